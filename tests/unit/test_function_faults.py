"""What containers and machines need and do not have here, or lose: each is named, with what to do."""

from __future__ import annotations

import os
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from tailrace.cli import main
from tailrace.errors import Failure, Mistake, Refused
from tailrace.functions import container, disks, machine, rootless
from tailrace.functions import images as images_made
from tailrace.functions.container import InContainer
from tailrace.functions.images import import_root, podman_has, store
from tailrace.functions.machine import InMachine
from tailrace.functions.runtime import Instance
from tailrace.node import images
from tailrace.plan.make import make_plan
from tailrace.plan.planned import Plan
from tailrace.process import hypervisor, programs
from tailrace.process.process import identify
from tailrace.resources.place import Place
from tailrace.resources.topology import Cpu
from tailrace.spec.load import parse_spec
from tailrace.state import record
from tailrace.state.record import Process

INSTANCE = Instance("fw", "", ("vhost-server:/s/0",), Place(0, (0,)), 256 << 20, huge=False, image="registry/fw:3")


def plan(functions: str, *, cpus: int = 4, memory: int = 8 << 30) -> None:
    names = [part.partition(":")[0] for part in functions.split("; ")]
    chain = ", ".join(["a", *names, "b"])
    text = f"ports: {{a: , b: }}\nfunctions: {{{functions.replace('; ', ', ')}}}\nchains: {{v: [{chain}]}}\n"
    make_plan(parse_spec(text, "s"), cpus=[Cpu(n, core=n) for n in range(cpus)], memory=memory, real_time=None)


def plan_in(folder: Path, functions: str, chain: str, cpus: int = 4) -> Plan:
    text = f"ports: {{a: , b: }}\nfunctions: {{{functions}}}\nchains: {{v: [a, {chain}, b]}}\n"
    some = [Cpu(n, core=n) for n in range(cpus)]
    return make_plan(parse_spec(text, "s"), cpus=some, memory=8 << 30, real_time=None, folder=folder)


def test_high_twice_takes_two_cores_beside_the_switchs() -> None:
    both = "one: {kind: skeleton, latency: high}; two: {kind: skeleton, runs: container, latency: high}"
    plan(both, cpus=3)
    with pytest.raises(
        Mistake, match=r"functions.one.latency: high takes a core of its own, and 3 pollers have 2 here"
    ):
        plan(both, cpus=2)


def test_memory_and_cpus_that_the_host_has_not() -> None:
    with pytest.raises(Mistake, match=r"functions.one.memory: 16GiB is more than this machine has \(8192MiB\)"):
        plan("one: {kind: skeleton, runs: machine, memory: 16GiB}")
    both = "one: {kind: skeleton, runs: machine, memory: 5GiB}; two: {kind: skeleton, runs: machine, memory: 5GiB}"
    with pytest.raises(Mistake, match=r"functions.two.memory: all machines together have 10GiB, and the host 8192MiB"):
        plan(both)
    plan(both.replace("runs: machine", "runs: container"))  # limits, which the ledger adds up by node
    with pytest.raises(Mistake, match=r"functions.one.cpus: 5 CPUs are more than the 4 that may be used"):
        plan("one: {kind: skeleton, runs: machine, cpus: 5}")


def test_containers_are_in_our_slice_where_podman_leaves_cgroups_to_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    def words(own: str | None, manager: str) -> list[str]:
        monkeypatch.setattr(container.units, "slice_name", lambda: own)
        monkeypatch.setattr(container, "podman", lambda *_: f"{manager}\n")
        monkeypatch.setattr(container, "_limited", lambda: container._ALL)
        container._in_slice.cache_clear()
        found = container._options("tailrace-fw", Path("/logs/fw.log"), INSTANCE, "image", 1 << 20)
        container._in_slice.cache_clear()
        return found

    said = words("tailrace.slice", "systemd")
    assert said[said.index("--cgroup-parent") + 1] == "tailrace.slice"
    assert said[said.index("--memory") + 1] == str(1 << 20)
    assert "--cgroup-parent" not in words("tailrace.slice", "cgroupfs") + words(None, "systemd")


@pytest.mark.parametrize(
    ("runtime", "program", "package"),
    [(InContainer(), "podman", "podman runc"), (InMachine(), "qemu-system-x86_64", "qemu-system-x86")],
)
def test_a_program_that_is_missing(monkeypatch: pytest.MonkeyPatch, runtime: Any, program: str, package: str) -> None:
    monkeypatch.setattr(container, "own_program", lambda name: Path(name))
    monkeypatch.setattr(programs, "find_system_program", lambda _name: None)
    with pytest.raises(Mistake, match=f"{program} is missing; install it with `sudo apt-get install {package}`"):
        runtime.check()


def test_machines_are_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "system_program", lambda name: name)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Mistake, match="machines are started by root: run as root, or use `runs: process`"):
        InMachine().check()


def test_an_ordinary_users_containers_lack_something(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(rootless.pwd, "getpwuid", lambda _user: SimpleNamespace(pw_name="ann"))
    monkeypatch.setattr(rootless, "find_system_program", lambda _name: None)
    assert "sudo apt-get install uidmap" in (rootless.rootless_lacks(tmp_path) or "")
    monkeypatch.setattr(rootless, "find_system_program", lambda name: name)
    etc, kernel = tmp_path / "etc", tmp_path / "proc/sys/kernel"
    for folder in (etc, kernel):
        folder.mkdir(parents=True)
    (etc / "subuid").write_text("bob:100000:65536\nann:165536:65536\n")
    said = rootless.rootless_lacks(tmp_path) or ""
    assert said.startswith("/etc/subgid has no ids for containers of ann; ") and "sudo usermod --add-subuids" in said
    (etc / "subgid").write_text("1000:165536:65536\n")
    assert rootless.rootless_lacks(tmp_path) is None
    (kernel / "unprivileged_userns_clone").write_text("0\n")
    assert "sudo sysctl -w kernel.unprivileged_userns_clone=1" in (rootless.rootless_lacks(tmp_path) or "")
    monkeypatch.setattr(container, "own_program", lambda name: Path(name))
    monkeypatch.setattr(container, "system_program", lambda name: name)
    monkeypatch.setattr(container, "rootless_lacks", lambda: "there is something to do")
    with pytest.raises(Mistake, match="there is something to do; or run as root, or use `runs: process`"):
        InContainer().check()


@pytest.mark.parametrize("controllers", [frozenset[str](), frozenset({"memory", "pids"})])
def test_an_ordinary_users_container_is_that_user_and_limited_by_what_is_there(
    monkeypatch: pytest.MonkeyPatch, controllers: frozenset[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(container.units, "slice_name", lambda: None)
    monkeypatch.setattr(container, "_limited", lambda: controllers)
    container._in_slice.cache_clear()
    said = " ".join(container._options("tailrace-fw", Path("/logs/fw.log"), INSTANCE, "image", 1 << 20))
    container._in_slice.cache_clear()
    assert "--userns keep-id:uid=65534,gid=65534 --user 65534:65534" in said and "--cpuset-cpus" not in said
    by_cgroup = f"--memory {1 << 20} --memory-swap {1 << 20} --pids-limit 64"
    assert (by_cgroup in said, f"--ulimit data={1 << 20}:{1 << 20}" in said) == (bool(controllers), not controllers)


def test_an_image_that_podman_has_not_or_that_is_of_another_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container.platform, "machine", lambda: "x86_64")
    for said in ("invalid reference format", "repository name must be lowercase"):
        done = subprocess.CompletedProcess([], 125, "", f"Error: {said}\n")
        monkeypatch.setattr(images_made, "finished", lambda *_, done=done: done)
        with pytest.raises(Mistake, match=f"no image has the name registry/fw:3 .{said}.; expected"):
            container._image(INSTANCE)
    monkeypatch.setattr(container, "podman_has", lambda _image: False)
    with pytest.raises(Mistake, match="podman has no image registry/fw:3; `podman pull registry/fw:3` gets it"):
        container._image(INSTANCE)
    monkeypatch.setattr(container, "podman_has", lambda _image: True)
    monkeypatch.setattr(container, "architecture", lambda _image: "arm64")
    with pytest.raises(Mistake, match="registry/fw:3 is for arm64, and this host is amd64; `podman pull --arch amd64"):
        container._image(INSTANCE)
    monkeypatch.setattr(container, "architecture", lambda _image: "amd64")
    assert container._image(INSTANCE) == "registry/fw:3"


def test_a_root_filesystem_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match=r"root.tar: there is no such file; expected a tar archive"):
        import_root(tmp_path / "root.tar", "localhost/fw", ["/fw"])
    (tmp_path / "empty.qcow2").touch()
    tarfile.open(tmp_path / "empty.tar.xz", "w:xz").close()
    for name in ("empty.qcow2", "empty.tar.xz"):
        with pytest.raises(Mistake, match=f"{name}: nothing is in it; expected a tar archive"):
            import_root(tmp_path / name, "localhost/fw", ["/fw"])


class LibvirtError(Exception):
    """As libvirt raises it."""


def libvirt(monkeypatch: pytest.MonkeyPatch) -> None:
    """libvirt's binding, as far as it is needed."""
    monkeypatch.setattr(hypervisor, "library", lambda: SimpleNamespace(libvirtError=LibvirtError))


def test_a_machine_to_whose_ports_the_switch_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    libvirt(monkeypatch)
    comes = threading.Event()

    def begin() -> SimpleNamespace:
        comes.wait(10)
        return SimpleNamespace(XMLDesc=lambda: "<domain/>")

    with pytest.raises(Failure, match=r"has not started the machine within 0\.1 s: does the switch come to its ports"):
        hypervisor.create(begin, 0.1, [])
    comes.set()
    assert hypervisor.create(begin, 10, []) == "<domain/>"


def test_what_podman_makes_no_image_of_is_told_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refuse(*words: str, **_how: object) -> str:
        asked.append(words[-1])
        raise Failure("/usr/bin/podman import --quiet: Error: writing blob: processing tar file(unexpected EOF)")

    monkeypatch.setattr("tailrace.functions.images.podman", refuse)
    (tmp_path / "root.tar").write_bytes(b"no archive")
    for name in ("UPPER/Case", "fw:", "a b", "fw/"):
        with pytest.raises(Mistake, match=f"{name}: no image has such a name; expected one in lower case"):
            import_root(tmp_path / "root.tar", name, ["/fw"])
    names = ["fw", "localhost/fw:3", "registry.example:5000/a/b-c_d:v1.2"]
    for name in names:
        with pytest.raises(Mistake, match=r"cannot unpack it .*; expected a whole tar archive"):
            import_root(tmp_path / "root.tar", name, ["/fw"])
    assert asked == names


TIME = "2026-11-29T23:11:53.311392Z qemu-system-x86_64:"
WAITED = f"{TIME} -chardev socket,id=c,path=/s,server=on: info: QEMU waiting for connection on: disconnected:unix:/s\n"


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("End of file while reading data", "End of file while reading data; libvirt's daemon has ended"),
        (f"monitor: {WAITED}{WAITED}{TIME} no such device", f"monitor: {TIME} no such device"),
        ("load of migration failed: I/O", "load of migration failed: I/O; the state is damaged or cut short"),
        (f"{WAITED}guest RAM: Cannot allocate memory", "guest RAM: Cannot allocate memory; its memory was set aside"),
    ],
)
def test_what_libvirt_says_of_a_machine_that_does_not_start(
    monkeypatch: pytest.MonkeyPatch, says: str, told: str
) -> None:
    libvirt(monkeypatch)

    def begin() -> None:
        raise LibvirtError(says)

    with pytest.raises(Failure, match=f"libvirt does not start the machine: {told}"):
        hypervisor.create(begin, 10, [])


def test_a_libvirt_that_does_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    libvirt(monkeypatch)
    monkeypatch.setattr(hypervisor, "_SYSTEMS", tmp_path / "none")
    monkeypatch.setattr(hypervisor, "systemd_has", lambda _tree: True)
    with pytest.raises(Mistake, match=r"libvirtd does not run; start it: `systemctl enable --now libvirtd\.socket`"):
        hypervisor.connect()


@pytest.mark.parametrize("ours", [True, False])
def test_a_machine_that_libvirt_has_forgotten_is_ended_and_nobody_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ours: bool
) -> None:
    libvirt(monkeypatch)
    monkeypatch.setattr(hypervisor, "_PIDS", tmp_path)
    monkeypatch.setattr(hypervisor, "_SYSTEMS", tmp_path / "none")
    monkeypatch.setattr(hypervisor, "_answers", lambda: False)
    argument = "guest=tailrace-fw,debug-threads=on" if ours else "guest=tailrace-fw2,debug-threads=on"
    with subprocess.Popen([argument, "600"], executable="/usr/bin/sleep") as process:
        while not Path(f"/proc/{process.pid}/cmdline").read_bytes():
            time.sleep(0.01)  # Linux has ended the old program, and not yet written the arguments of the new one
        (tmp_path / "tailrace-fw.pid").write_text(f"{process.pid}\n")
        (tmp_path / "tailrace-fw.xml").write_text("<domstatus state='paused' reason='starting up' pid='0'>\n")
        for _ in range(2):
            hypervisor.end_machine("tailrace-fw")
        left, ended = list(tmp_path.iterdir()), process.poll() is not None
        process.kill()
    assert bool(left) != ours and ended == ours


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ([-9, 0], None),
        ([-9, -9], "container tailrace-fw: podman was killed by signal 9, twice"),
        ([125], "container tailrace-fw: podman failed"),
    ],
)
def test_a_podman_that_is_killed_while_it_removes_a_container_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, ends: list[int], said: str | None
) -> None:
    def run(*_words: object, **_how: object) -> SimpleNamespace:
        return SimpleNamespace(returncode=ends.pop(0), stderr="")

    monkeypatch.setattr(record.subprocess, "run", run)
    monkeypatch.setattr(record, "system_program", lambda name: name)
    assert record.Container("tailrace-fw", "fw").undo() == said
    assert not ends


def test_a_snapshot_that_is_not_there_is_told_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_IMAGES", str(tmp_path))
    done = CliRunner().invoke(main.app, ["function", "restore", "fw", "--snapshot", "before"])
    assert done.exit_code == 2
    assert "fw has no snapshot before; `tailrace function snapshots` shows those there are" in done.output


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_libvirt_that_ends_while_it_ends_a_machine_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, comes_back: bool
) -> None:
    class Ended(Exception):
        def get_error_code(self) -> int:
            return 38

    said: list[Exception] = [
        Ended("End of file while reading data"),
        Failure("libvirtd does not answer"),
        Ended("away"),
    ]

    def destroy() -> None:
        if len(said) > 1 or not comes_back:
            raise said[0] if len(said) == 1 else said.pop(0)

    binding = SimpleNamespace(libvirtError=Ended, VIR_ERR_NO_DOMAIN=42, VIR_ERR_OPERATION_INVALID=55)
    monkeypatch.setattr(hypervisor, "library", lambda: binding)
    monkeypatch.setattr(hypervisor, "_PIDS", tmp_path)
    (tmp_path / "tailrace-fw.pid").touch()
    domain = SimpleNamespace(destroy=destroy)
    monkeypatch.setattr(hypervisor, "connect", lambda: SimpleNamespace(lookupByName=lambda _name: domain))
    monkeypatch.setattr(hypervisor, "_PATIENCE_SECONDS", 60 if comes_back else 1)
    with nullcontext() if comes_back else pytest.raises(Failure, match="libvirt does not end it: away"):
        hypervisor.end_machine("tailrace-fw")
    assert len(said) == 1


def test_an_image_that_goes_before_its_container_starts_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tailrace's own; somebody else's is theirs to get."""
    runs: list[str] = []

    def run(options: Sequence[str], _: Instance) -> int:
        runs.append(options[0])
        if options[0] != "new":
            raise Failure("no such image")
        return 7

    monkeypatch.setattr(container, "_run", run)
    monkeypatch.setattr(container, "container_image", lambda: "new")
    monkeypatch.setattr(container, "podman_has", lambda _: False)
    own = replace(INSTANCE, image=None)
    assert container._run_from("old", lambda image: [image], own) == 7 and runs == ["old", "new"]
    with pytest.raises(Failure, match="no such image"):
        container._run_from("registry/fw:3", lambda image: [image], replace(INSTANCE, image="registry/fw:3"))
    monkeypatch.setattr(container, "podman_has", lambda _: True)
    with pytest.raises(Failure, match="no such image"):
        container._run_from("old", lambda image: [image], own)


@pytest.mark.parametrize(
    ("says", "well"), [("echo 0", True), ("echo 137", False), ("exit 125", False), ("exec sleep 60", False)]
)
def test_how_a_container_ended_is_asked_once_podman_has_noted_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, *, well: bool
) -> None:
    """Asked at once, podman would say of it that it runs, with status 0. What it never notes has failed."""
    program = tmp_path / "podman"
    program.write_text(f'#!/bin/sh\n[ "$1" = wait ] || {{ echo running 0; exit; }}\n{says}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(container, "_NOTED_SECONDS", 0.2 if "sleep" in says else 60.0)
    ended = Process("fw", 1, 1, runtime="container", outside="tailrace-fw")
    assert InContainer().ended_well(ended, tmp_path) is well


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            "kind: skeleton, runs: machine, image: nothing",
            "there is no image 'nothing' in .*tailrace image build nothing",
        ),
        ("runs: machine, image: nothing.raw", "nothing.raw: there is no such file"),
        ("runs: container, image: 'registry/fw:3'", "podman has no image registry/fw:3; `podman pull registry/fw:3`"),
    ],
)
def test_an_image_that_is_missing_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, said: str
) -> None:
    monkeypatch.setenv("TAILRACE_IMAGES", str(tmp_path))
    monkeypatch.setattr(container, "podman_has", lambda _: False)
    monkeypatch.setattr(machine, "qemu_user", lambda: 0)
    for runtime in (InMachine, InContainer):
        monkeypatch.setattr(runtime, "check", lambda _: None)
        monkeypatch.setattr(runtime, "check_by_looking", lambda _: None)
    made = plan_in(tmp_path, f"one: {{{function}}}", "one")
    for find in (images.check_images, images.look_for_images):
        with pytest.raises(Refused, match=f"functions.one.image: .*{said}"):
            find(made, ["one"])
        find(made, [])


@pytest.mark.parametrize("named", ["", ", image: tailrace"], ids=["its own", "by name"])
@pytest.mark.parametrize(
    ("words", "drivers", "said"),
    [
        ("interface: e1000e, driver: linux", ("uio_pci_generic", "virtio_net"), "e1000e: .* has no driver e1000e; .*"),
        ("interface: [virtio, vmxnet3], driver: linux", ("virtio_net",), "vmxnet3: .*--kernel stock.*driver: dpdk"),
        ("driver: linux", (), "vhost-user: .* no driver virtio_net"),
        ("interface: e1000e", ("e1000e",), "e1000e: .* no driver uio_pci_generic"),
        ("interface: e1000e, driver: linux", ("e1000e",), None),
        ("interface: e1000e", ("uio_pci_generic",), None),
        ("interface: e1000e, driver: linux", None, None),
    ],
)
def test_an_interface_that_the_images_kernel_cannot_drive_is_refused_before_a_boot(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    drivers: tuple[str, ...] | None,
    said: str | None,
    named: str,
) -> None:
    monkeypatch.setenv("TAILRACE_IMAGES", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for check in ("check", "check_by_looking"):
        monkeypatch.setattr(InMachine, check, lambda _: None)
    (tmp_path / "tailrace").mkdir()
    files = {"vmlinuz": b"kernel", "initramfs": b"files"}
    store(tmp_path / "tailrace", "linux-image-6.1", files, drivers=drivers)
    made = plan_in(tmp_path, f"one: {{kind: skeleton, runs: machine, {words}{named}}}", "one")
    for find in (images.check_images, images.look_for_images):
        if said is None:
            find(made, ["one"])
            continue
        with pytest.raises(Refused, match=f"^functions.one.interface: {said}"):
            find(made, ["one"])
        find(made, [])


def test_what_functions_live_in_is_missed_before_their_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary user is not told to build an image that only root can use. A plan is shown."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(machine, "system_program", lambda name: name)
    monkeypatch.setenv("TAILRACE_IMAGES", str(tmp_path))
    made = plan_in(tmp_path, "one: {kind: skeleton, runs: machine, image: nothing}", "one")
    with pytest.raises(Mistake, match="machines are started by root: run as root, or use `runs: process`"):
        images.check_images(made, ["one"])
    (note,) = images.look_for_images(made, ["one"])
    assert note.startswith("not checked whether a machine starts here, nor its image: machines are started by root")


NONE, GARBAGE = None, b"MZ" + bytes(4096)
ARM = bytes(446) + b"\0\0\0\0\x83" + bytes(59) + b"\x55\xaa" + bytes(4096)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("one.raw", NONE, "one.raw: there is no such file"),
        ("one.raw", GARBAGE, "one.raw: is no disk that boots: its first sector has no signature"),
        (
            "one.raw",
            ARM,
            "one.raw: no PC boots from it: there is neither boot code for a BIOS nor a partition for UEFI",
        ),
        ("one.qcow2", GARBAGE, r"one.qcow2: cannot be read as qcow2 \(it does not begin as one\)"),
    ],
)
def test_a_disk_is_looked_at_also_where_libvirt_and_qemu_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes | None, said: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    monkeypatch.setattr(programs, "find_system_program", lambda _: None)
    made = plan_in(tmp_path, f"one: {{runs: machine, image: {name}}}", "one")
    with pytest.raises(Refused, match=f"functions.one.image: .*{said}"):
        images.look_for_images(made, ["one"])
    boots = bytes([0xEB]) + ARM[1:]
    (tmp_path / "one.raw").write_bytes(boots)
    made = plan_in(tmp_path, "one: {runs: machine, image: one.raw, seed: {user_data: more.yaml}}", "one")
    with pytest.raises(Refused, match=r"functions.one.seed.user_data: .*/more.yaml: there is no such file"):
        images.look_for_images(made, ["one"])
    (tmp_path / "more.yaml").write_text("#cloud-config\n")
    (note,) = images.look_for_images(made, ["one"])
    assert "not checked whether a machine starts here" in note and "is missing; install it" in note


def test_without_podman_a_plan_says_what_was_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "own_program", lambda name: name)
    monkeypatch.setattr(programs, "find_system_program", lambda _: None)
    made = plan_in(tmp_path, "one: {runs: container, image: 'registry/fw:3'}", "one")
    (note,) = images.look_for_images(made, ["one"])
    assert note.startswith("not checked whether a container starts here, nor its image: podman is missing; install it")


def test_a_process_has_no_image_to_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "find_system_program", lambda _: None)
    made = plan_in(tmp_path, "one: {kind: skeleton, runs: process}", "one")
    assert images.look_for_images(made, ["one"]) == []


def test_an_image_of_many_functions_is_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And only before a start whether it is whole: the service's other callers wait while it makes a plan."""
    checked: list[object] = []
    monkeypatch.setattr(InMachine, "check", lambda _: checked.append("check"))
    monkeypatch.setattr(InMachine, "check_by_looking", lambda _: checked.append("look"))
    monkeypatch.setattr(machine, "qemu_user", lambda: 0)
    monkeypatch.setattr(machine, "check_disk", lambda path, _user, _firmware, *, whole: checked.append((path, whole)))
    one, two = tmp_path / "one.raw", tmp_path / "two.raw"
    text = f"a1: {{runs: machine, image: {one}, replicas: 3}}, a2: {{runs: machine, image: {two}}}"
    made = plan_in(tmp_path, text, "a1, a2", cpus=12)
    names = [each.name for each in made.started]
    assert len(names) == 4
    images.look_for_images(made, names)
    images.check_images(made, names)
    assert checked == ["look", (one, False), (two, False), "check", (one, True), (two, True)]


@pytest.mark.parametrize("program", ["podman", "qemu-img", "mformat"])
def test_a_program_that_does_not_end_is_a_failure_and_no_internal_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """As podman, whose store somebody has locked, or qemu-img with a large disk."""
    for name, words in (
        (program, "exec sleep 60"),
        ("setpriv", 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"'),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{words}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *words, **more: run(*words, **{**more, "timeout": 0.2}))
    disk = tmp_path / "large.qcow2"
    disk.touch()
    look: Callable[[], object] = {
        "podman": lambda: podman_has("registry/fw:3"),
        "qemu-img": lambda: disks.check_disk(disk, os.geteuid()),
        "mformat": lambda: disks.make_seed(disk, {}, os.geteuid()),
    }[program]
    with pytest.raises(programs.Late, match=rf"{program} .*: not done within 60 s"):
        look()


def test_a_connection_is_kept_as_long_as_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each machine of a matrix would leave one open until the command ends."""
    libvirt(monkeypatch)
    monkeypatch.setattr(machine, "_tied", [])
    closed: list[str] = []

    def lost() -> None:
        closed.append("lost")
        raise LibvirtError("client socket is closed")

    mine = identify(os.getpid())
    assert mine is not None
    for name, start in (("first", mine.start), ("lost", mine.start - 1), ("second", mine.start - 1)):
        close = lost if name == "lost" else partial(closed.append, name)
        machine._tie(Process(name, mine.pid, start), SimpleNamespace(close=close))
    assert closed == ["lost"]
    machine._tie(Process("third", mine.pid, mine.start), SimpleNamespace(close=partial(closed.append, "third")))
    assert closed == ["lost", "second"]
    assert [each.name for each, _ in machine._tied] == ["first", "third"]
