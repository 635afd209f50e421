"""A chain of a virtual machine, a container and a process, as a user has it: `tailrace up`, measure, down."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from containers import containers, podman
from machine import BOOT
from running_node import Command, needs_a_node, wait_until
from test_service import listening

from tailrace.functions.images import by_name, write_layer
from tailrace.functions.names import outer_name
from tailrace.functions.program import visible_libraries
from tailrace.process.hypervisor import connect
from tailrace.process.process import identify
from tailrace.state.numbers import NUMBERS

pytestmark = [
    *needs_a_node,
    pytest.mark.requires_program("dpdk-testpmd", "podman", "virtlogd", "virsh", "qemu-system-x86_64"),
    pytest.mark.timeout(900),
]

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = (REPOSITORY / "examples/machines.yaml").read_text()
# The switch sleeps while there is nothing to do, so that an emulated machine has the CPU.
# While an emulated machine waits for its turn on a busy CPU, frames wait in its rings, which have to suffice.
MIXED = EXAMPLE.replace("rate: 10kpps, duration: 10s", "rate: 500pps, duration: 2s") + "fabric: {idle: sleep}\n"
MIXED = MIXED.replace("runs: machine", "runs: machine, on_failure: bypass").replace(
    "runs: container", "runs: container, on_failure: bypass"
)


def machines() -> list[str]:
    """Those that libvirt has of ours."""
    return [each.name() for each in connect().listAllDomains() if each.name().startswith("tailrace-")]


@pytest.fixture(scope="module")
def node(command: Command) -> Command:
    """The chain is up."""
    command("up", command.spec(MIXED))
    return command


def process_status(pid: int) -> dict[str, str]:
    """/proc/PID/status, by field (proc(5))."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def own(node: Command, name: str) -> str:
    return outer_name(node.state, name)


def test_each_function_lives_where_the_spec_says(node: Command) -> None:
    status = node.status()
    assert {each["name"]: each["runs"] for each in status["functions"]} == {
        "first": "machine",
        "second": "container",
        "third": "process",
    }
    assert {each["name"]: each["state"] for each in status["ports"] if "tester" not in each["name"]} == {
        f"{name}.{side}": "up" for name in ("first", "second", "third") for side in (0, 1)
    }
    assert machines() == [own(node, "first")]
    assert containers() == [own(node, "second")]


def counted(node: Command) -> dict[str, list[dict[str, int]]]:
    """What each function says of its ports."""
    found = {}
    for name in ("first", "second", "third"):
        shown = json.loads(node("function", "show", name, "--json").stdout)
        assert shown["function"] == "skeleton"
        found[name] = shown["counters"]["ports"]
    return found


def test_a_measurement_loses_no_frame_and_each_function_says_what_it_was(node: Command) -> None:
    before = counted(node)
    done = node("measure", "latency", node.spec(MIXED), "--json")
    result = json.loads(done.stdout)
    frames = [direction for trial in result["trials"] for direction in trial["directions"]]
    assert sum(each["received"] for each in frames) == sum(each["sent"] for each in frames) > 100
    assert "first runs in a machine, second runs in a container, third runs in a process" in result["notes"]
    for name, ports in counted(node).items():
        for was, now in zip(before[name], ports, strict=True):
            assert now["drop_function"] == 0
            assert now["received"] - was["received"] > 50, f"of this measurement, by {name}"


def test_the_machine_is_confined_and_pinned(node: Command) -> None:
    domain = connect().lookupByName(own(node, "first"))
    xml = domain.XMLDesc()
    assert "<memballoon model='none'/>" in xml and "usb" not in xml.replace("model='none'", "").split("<devices>")[0]
    assert node("function", "xml", "first").stdout.strip() == xml.strip()
    (pinned,) = domain.vcpuPinInfo()
    assert sum(pinned) == 1
    pid = next(each["pid"] for each in node.status()["processes"] if each["name"] == "first")
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    assert status["Seccomp"] == "2" and int(status["CapEff"], 16) == 0
    assert int(status["Uid"].split()[0]) == int(status["Gid"].split()[0]) in NUMBERS
    assert Path(f"/proc/{pid}/exe").readlink().name == "qemu-system-x86_64"


def test_virsh_shows_the_machine_and_what_it_takes(node: Command) -> None:
    def virsh(*words: str) -> str:
        done = subprocess.run(
            ["virsh", "--connect", connect().getURI(), *words], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    name = own(node, "first")
    assert name in virsh("list", "--name").split()
    assert virsh("dumpxml", name).strip() == node("function", "xml", "first").stdout.strip()
    found = dict(line.strip().split("=", 1) for line in virsh("domstats", name).splitlines() if "=" in line)
    assert found["state.state"] == found["vcpu.current"] == "1" and int(found["vcpu.0.time"]) > 0


def test_what_virsh_has_changed_is_reported(node: Command) -> None:
    assert node.status()["unlike"] == []
    domain = connect().lookupByName(own(node, "first"))
    (before,) = domain.vcpuPinInfo()
    domain.pinVcpu(0, tuple(not each for each in before))
    (change,) = node.status()["unlike"]
    assert (change["what"], change["name"], change["detail"]) == ("process", "first", ["cputune/vcpupin"])
    assert "process first is not as planned; cputune/vcpupin" in node("status").stdout
    domain.pinVcpu(0, before)
    assert node.status()["unlike"] == []


def test_a_machine_that_virsh_has_suspended_is_said_to_stand_still(node: Command) -> None:
    domain = connect().lookupByName(own(node, "first"))
    domain.suspend()
    try:
        (change,) = node.status()["unlike"]
        said = "stands still: suspended (`virsh resume` has it go on)"
        assert change["detail"] == [f"it {said}"]
        assert f"first {said}" in node("function", "show", "first", status=1).stderr
    finally:
        domain.resume()
    assert node("function", "show", "first").stdout


def test_the_container_is_confined(node: Command) -> None:
    name = own(node, "second")
    pid = int(podman("container", "inspect", "--format", "{{.State.Pid}}", name))
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    assert status["Seccomp"] == "2" and int(status["CapEff"], 16) == 0 and int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"] == "1" and int(status["Uid"].split()[0]) != 0
    host = json.loads(podman("container", "inspect", name))[0]["HostConfig"]
    assert host["NetworkMode"] == "none" and host["ReadonlyRootfs"] and host["Memory"] == 256 << 20
    interfaces = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
    assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]
    said = subprocess.run(["podman", "logs", name], capture_output=True, text=True, timeout=60, check=True)
    assert "forwarding" in said.stdout + said.stderr
    assert "forwarding" in node("function", "log", "second").stdout


def shared_memory(pid: int) -> set[str]:
    """The memory files that a process has mapped, by device and inode (proc(5))."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {" ".join(line.split()[3:5]) for line in lines if "/memfd:" in line}


def test_no_function_has_anothers_memory_or_reaches_its_socket(node: Command) -> None:
    """By what each has mapped, and by trying as the user and group that QEMU is."""
    pids = {each["function"]: each["pid"] for each in node.status()["processes"]}
    first, second, third, switch = (shared_memory(pids[name]) for name in ("first", "second", "third", None))
    assert not (first & second or first & third or second & third)
    assert switch & first and switch & second and switch & third
    status = process_status(pids["first"])
    user, group = int(status["Uid"].split()[0]), int(status["Gid"].split()[0])

    def reaches(port: str) -> bool:
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setgid(group)
                os.setuid(user)
                (node.state / "sockets" / port / "sock").stat()
                os._exit(0)
            finally:
                os._exit(1)
        return os.waitpid(child, 0)[1] == 0

    assert reaches("first.0") and reaches("first.1")
    assert not any(reaches(f"{name}.{side}") for name in ("second", "third") for side in (0, 1))


def test_the_machines_console_is_in_its_log(node: Command) -> None:
    assert "forwarding" in node("function", "log", "first").stdout
    said = json.loads(node("function", "log", "first", "--lines", "1", "--json").stdout)
    assert len(said["lines"]) == 1


def test_what_is_no_machine_has_no_console(node: Command) -> None:
    assert "second lives in a container" in node("function", "console", "second", status=2).stderr
    assert "no function 'nobody' is up; there are: " in node("function", "xml", "nobody", status=2).stderr


@pytest.mark.parametrize("name", ["second", "first"])
def test_what_is_killed_is_started_again(node: Command, name: str) -> None:
    """By its policy, on-failure; its ports are taken up again. Until then the chain leads past it."""

    def process() -> tuple[int, int]:
        return next((each["pid"], each["restarts"]) for each in node.status()["processes"] if each["function"] == name)

    pid, restarts = process()
    with listening(node) as event:
        os.kill(pid, signal.SIGKILL)
        bypassed = event("chain.bypassed")
        assert bypassed["details"]["functions"] == [name]
        print(f"{name}: bypassed after {bypassed['details']['milliseconds']} ms")
    wait_until(lambda: process()[1] == restarts + 1 and process()[0] != pid, BOOT)
    wait_until(
        lambda: all(each["state"] == "up" for each in node.status()["ports"] if "tester" not in each["name"]), BOOT
    )


@pytest.mark.parametrize("name", ["second", pytest.param("first", marks=pytest.mark.whole)])
def test_a_change_replicas_and_a_stop_are_alike_wherever_it_lives(node: Command, name: str) -> None:
    """Of a machine each is a boot."""
    there = {"first": machines, "second": containers}[name]
    (only,) = there()
    more = MIXED.replace(f"  {name}: {{", f"  {name}: {{memory: 300MiB, ")
    assert f"process {name}" in node("apply", node.spec(more, "more.yaml")).stdout
    (other,) = there()
    assert other != only
    assert f"process {name}" in node("rollback").stdout
    assert other not in there() and len(there()) == 1
    node("scale", name, "2")
    assert len(there()) == 2
    shown = next(each for each in node.status()["functions"] if each["name"] == name)
    assert [each["state"] for each in shown["replicas"]] == ["active", "active"]
    node("scale", name, "1")
    assert len(there()) == 1
    node("function", "stop", name)
    assert there() == []
    node("function", "start", name)
    assert len(there()) == 1 and node.status()["state"] == "up"


def test_down_leaves_nothing(node: Command) -> None:
    node("down")
    assert machines() == [] and containers() == []
    assert not list(Path("/run/libvirt/qemu").glob("tailrace-*.pid"))


CONTAINERS = """\
functions: {first: {kind: skeleton, runs: container}, second: {kind: skeleton, runs: container}}
chains: {voice: [tester.a, first, second, tester.b]}
tests: [latency: {frames: 64, rate: 5kpps, duration: 20s}]
"""


@pytest.mark.whole
def test_a_chain_of_containers_loses_no_frame_while_they_are_replaced(command: Command) -> None:
    spec = command.spec(CONTAINERS, "containers.yaml")
    command("up", spec)
    try:
        before = set(containers())
        measuring = command.begin("measure", "latency", spec)
        wait_until(command.trial_is_running, 120)
        for name in ("first", "second"):
            command("function", "restart", name)
        _, said = measuring.communicate(timeout=BOOT)
        # A measurement of what was changed meanwhile says so; its counts stand.
        assert "what is up was changed while it was measured" in said
        (run,) = command.runs.glob("*-containers")
        result = json.loads((run / "results.json").read_text())
        frames = [way for trial in result["trials"] for way in trial["directions"]]
        assert sum(way["received"] for way in frames) == sum(way["sent"] for way in frames) > 100
        assert len(containers()) == 2 and before.isdisjoint(containers())
        assert "no function that Tailrace has started" in command("function", "restart", "third", status=2).stderr
    finally:
        command("down")
    assert containers() == []


TESTPMD = """\
#!/bin/dash
exec dpdk-testpmd --lcores "0@$TAILRACE_CORE,1@$TAILRACE_CORE" --no-huge -m 128 --no-pci \\
  --no-telemetry --no-shconf \\
  --vdev "net_virtio_user0,path=$TAILRACE_PORT_0,server=1,queue_size=1024" \\
  --vdev "net_virtio_user1,path=$TAILRACE_PORT_1,server=1,queue_size=1024" \\
  -- --total-num-mbufs=8192 --forward-mode=io --auto-start --stats-period 3600
"""


@pytest.fixture
def testpmd_image(tmp_path: Path) -> Iterator[str]:
    """An image that is not ours: DPDK's testpmd, started by a shell with the sockets from its environment."""
    entry, layer = tmp_path / "entry", tmp_path / "layer.tar"
    entry.write_text(TESTPMD)
    programs = [Path("/bin/dash"), Path("/usr/bin/dpdk-testpmd")]
    files: dict[str, Path | str] = {"/entry": entry, **{str(each): each for each in programs}}
    for program in programs:
        files |= by_name(visible_libraries(program, ("vhost-server:",)))
    write_layer(layer, files)
    name = "localhost/tailrace-test-testpmd:1"
    podman("import", "--quiet", "--change", 'ENTRYPOINT ["/entry"]', str(layer), name)
    yield name
    podman("rmi", "--force", name)


def test_an_image_of_somebody_elses_takes_its_sockets_from_the_environment(
    command: Command, testpmd_image: str
) -> None:
    text = CONTAINERS.replace("{kind: skeleton, runs: container}", f"{{runs: container, image: {testpmd_image!r}}}", 1)
    spec = command.spec(text.replace("20s", "2s"), "own.yaml")
    command("up", spec)
    try:
        output = command("measure", "latency", spec, "--json").stdout
        frames = [way for trial in json.loads(output)["trials"] for way in trial["directions"]]
        assert sum(way["received"] for way in frames) == sum(way["sent"] for way in frames) > 100
    finally:
        command("down")
    missing = command.spec(text.replace("testpmd:1", "testpmd:2"), "missing.yaml")
    assert "podman has no image localhost/tailrace-test-testpmd:2" in command("up", missing, status=2).stderr
    assert containers() == []


HIGH = """\
ports: {west: {}, east: {}}
functions: {first: {kind: skeleton, runs: machine, latency: high, domain: "<devices><rng model='virtio'><backend \
model='random'>/dev/urandom</backend></rng></devices>"}}
chains: {voice: [west, first, east]}
fabric: {idle: sleep}
"""


def test_a_machine_of_level_high_has_a_core_of_its_own_or_is_refused(command: Command) -> None:
    """Two cores suffice for the switch and the machine, and not for a tester beside them."""
    refused = command.spec(HIGH.replace("west", "tester.a").replace("east", "tester.b").partition("\n")[2], "no.yaml")
    assert "functions.first.latency: high takes a core of its own" in command("up", refused, status=2).stderr
    command("up", command.spec(HIGH, "high.yaml"))
    try:
        found = json.loads(command("function", "explain", "first", "--json").stdout)
        points = {each["what"]: each for each in found["points"]}
        assert found["latency"] == "high" and points["CPU"]["is_set"].endswith("its own")
        emulated = bool(points["acceleration"]["lacking"])
        xml = command("function", "xml", "first").stdout
        assert ("cpu-pm=on" in xml) != emulated
        assert "<rng model='virtio'>" in xml and "<cell id='0'" in xml
        assert json.loads(command("function", "xml", "first", "--json").stdout)["xml"] == xml
        assert "first runs in a machine, latency high." in command("function", "explain", "first").stdout
    finally:
        command("down")


def test_machines_come_up_with_a_stand_in_for_qemu(command: Command) -> None:
    done = command("bench", "start", "--of", "machine=3", "--stand-in", "--times", "1", "--json")
    found = json.loads(done.stdout)
    assert found["times_ms"].keys() == {"3 machines up", "3 machines down"} and "stand-in" in found["notes"][0]
    assert machines() == []


def test_a_domain_that_libvirt_does_not_take_is_named(command: Command) -> None:
    spec = command.spec(HIGH.replace("<devices>", "<devices><nonsense/>"), "nonsense.yaml")
    said = command("up", spec, status=1).stderr
    assert "first: libvirt does not start the machine" in said and "schema" in said, said
    assert machines() == []


@pytest.mark.whole
def test_libvirt_killed_while_it_starts_a_machine(command: Command) -> None:
    """It is named, and QEMU is ended also where libvirt knows nothing of it any more."""
    if Path("/run/libvirt/libvirt-sock").exists():
        pytest.skip("libvirt's daemon is the system's")
    up = command.begin("up", command.spec(HIGH, "high.yaml"))
    pid_file = Path("/run/libvirt/qemu", f"{own(command, 'first')}.pid")
    wait_until(pid_file.exists, 60)
    machine = int(pid_file.read_text())
    os.kill(int(Path("/run/tailrace-libvirt/libvirtd.pid").read_text()), signal.SIGKILL)
    _, said = up.communicate(timeout=BOOT)
    assert up.returncode == 1 and "first: libvirt does not start the machine" in said, said
    wait_until(lambda: identify(machine) is None)
    assert not pid_file.exists() and machines() == []


def test_an_image_is_the_same_when_it_is_built_again(command: Command, images: Path) -> None:
    def digests() -> dict[str, str]:
        files = (images / "tailrace/vmlinuz", images / "tailrace/initramfs")
        return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in files}

    before = digests()
    found = json.loads(command("image", "build", "--json").stdout)
    assert digests() == before
    assert found["bytes"] < 120e6
    assert [each["name"] for each in json.loads(command("image", "list", "--json").stdout)] == ["tailrace"]


def test_a_missing_or_truncated_image_is_named_and_nothing_is_left(command: Command, images: Path) -> None:
    file = images / "tailrace/initramfs"
    whole = file.read_bytes()
    file.write_bytes(whole[:-4096])
    try:
        said = command("up", command.spec(MIXED), status=2).stderr
        assert f"{file}: is not what was built" in said and "tailrace image build" in said
    finally:
        file.write_bytes(whole)
    command.environment["TAILRACE_IMAGES"] = str(command.folder / "none")
    try:
        assert "there is no image 'tailrace'" in command("up", command.spec(MIXED), status=2).stderr
    finally:
        command.environment["TAILRACE_IMAGES"] = str(images)
    assert machines() == [] and containers() == []
    assert not command.state.exists() or not (command.state / "state.json").exists()


def test_a_machine_that_does_not_boot_is_told_with_its_last_words(command: Command, images: Path) -> None:
    """Its kernel finds no system in what it is given, and says last where it was (dump_kernel_offset())."""
    broken = images / "broken"
    shutil.copytree(images / "tailrace", broken)
    manifest = json.loads((broken / "image.json").read_text())
    (broken / "initramfs").write_bytes(b"no archive")
    manifest["digests"]["initramfs"] = hashlib.sha256(b"no archive").hexdigest()
    (broken / "image.json").write_text(json.dumps(manifest))
    spec = command.spec(
        "functions: {first: {kind: skeleton, runs: machine, image: broken}}\n"
        "chains: {voice: [tester.a, first, tester.b]}\n",
        "broken.yaml",
    )
    try:
        said = command("up", spec, status=1).stderr
    finally:
        shutil.rmtree(broken)
    assert re.search(r"the function first ended \(\[.*\| \[[^]]+\] Kernel Offset: ", said), said
    assert machines() == []
