"""Machines that boot from disks: one that is built here, and those that do not boot."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine import BOOT
from running_node import Command, needs_a_node, wait_until

from tailrace.functions import agent
from tailrace.functions.disks import let_read, qemu_user
from tailrace.functions.domain import machine_id
from tailrace.functions.names import outer_name
from tailrace.node.pools import pooled
from tailrace.observe.function_log import log_of
from tailrace.process.hypervisor import connect, library
from tailrace.state.record import peek

pytestmark = [
    *needs_a_node,
    pytest.mark.requires_program("virtlogd", "qemu-system-x86_64", "qemu-img", "mformat", "syslinux"),
    pytest.mark.timeout(900),
]

SPEC = """\
fabric: {idle: sleep}
functions: {own: {runs: machine, image: disk.qcow2, seed: {hostname: wall}}}
chains: {voice: [tester.a, own, tester.b]}
tests: [latency: {frames: 64, rate: 500pps, duration: 2s}]
"""


@pytest.fixture(scope="module")
def disk(command: Command, images: Path) -> Iterator[Path]:
    """A disk of the user's, in the folder of the spec: `tailrace image build --disk`, packed."""
    built = json.loads(command("image", "build", "own", "--disk", "--json").stdout)["disk"]
    path = command.folder / "disk.qcow2"
    subprocess.run(["qemu-img", "convert", "-c", "-O", "qcow2", built, path], check=True)
    let_read(path, qemu_user())  # and nobody else, until a machine has it
    yield path
    shutil.rmtree(images / "own")


@pytest.fixture
def overlays(images: Path) -> Iterator[Path]:
    """Where machines write."""
    folder = images / "disks"
    yield folder
    assert not list(folder.glob("*")), "something is left of a machine"


@pytest.mark.parametrize("firmware", ["bios", pytest.param("uefi", marks=pytest.mark.whole)])
def test_a_disk_boots_forwards_and_is_not_changed(command: Command, disk: Path, overlays: Path, firmware: str) -> None:
    before = hashlib.sha256(disk.read_bytes()).digest()
    spec = command.spec(SPEC.replace("disk.qcow2", f"disk.qcow2, firmware: {firmware}"))
    command("up", spec)
    try:
        assert len(list(overlays.glob("*"))) == (3 if firmware == "uefi" else 2)
        # Its ports are up when Linux has a driver for them, which is before its function has them.
        wait_until_forwarding(command, "own")
        assert agent.ask(command.state / "logs/own.agent", "hostname").strip() == "wall"
        by_uefi = "[ -e /sys/firmware/efi ] && echo yes || echo no"
        assert agent.ask(command.state / "logs/own.agent", by_uefi).strip() == ("yes" if firmware == "uefi" else "no")
        assert_forwards(command, spec)
    finally:
        command("down")
    assert hashlib.sha256(disk.read_bytes()).digest() == before
    assert stat.S_IMODE(disk.stat().st_mode) == 0o400 and not os.listxattr(disk)


def assert_forwards(command: Command, spec: Path) -> None:
    result = json.loads(command("measure", "latency", spec, "--json").stdout)
    frames = [way for trial in result["trials"] for way in trial["directions"]]
    assert sum(way["received"] for way in frames) == sum(way["sent"] for way in frames) > 100


def instance(command: Command, name: str = "own") -> str:
    """The process that a function is now."""
    return str(
        next(each["name"] for each in command.status()["processes"] if each["alive"] and each["function"] == name)
    )


class Kept:
    """What a machine writes before the first partition of its disk, where nobody else does, and in its memory."""

    place = "/dev/vda bs=512 count=1 seek=2047"

    def __init__(self, command: Command, name: str) -> None:
        self.command, self.name = command, name

    def inside(self, words: str) -> str:
        return agent.ask(self.command.state / f"logs/{instance(self.command, self.name)}.agent", words).strip()

    def write(self, disk: str, memory: str) -> None:
        self.inside(f"echo {disk} | dd of={self.place} conv=sync,fsync 2>/dev/null; echo {memory} >/run/mark")

    def read(self) -> list[str]:
        """Of its memory, and of its disk itself."""
        shown = f"cat /run/mark; dd if={self.place.replace('seek', 'skip')} 2>/dev/null"
        return self.inside(f"echo 3 >/proc/sys/vm/drop_caches; {shown}").replace("\0", "").split()


def wait_until_forwarding(command: Command, name: str) -> None:
    """By the file that `tailrace function log` shows: an emulated machine has the CPU that starting it would take."""
    wait_until(lambda: "forwarding" in log_of(command.state, name).read_text(errors="replace"), BOOT)


@pytest.mark.whole
def test_it_has_its_cpus_by_its_load(command: Command, disk: Path, overlays: Path) -> None:
    """What polls inside is stopped, and goes on."""
    del disk, overlays
    cpus = "cpus: {most: 2, automatic: true, busy: 30%}, seed"
    command("up", command.spec(SPEC.replace("seed", cpus)))

    def count() -> int:
        (own,) = pooled(peek(command.state))
        return own.count

    def tell(name: str) -> None:
        agent.ask(command.state / "logs/own.agent", f"kill -{name} $(pidof tailrace-vnf)")

    try:
        wait_until_forwarding(command, "own")
        wait_until(lambda: count() == 2, BOOT)
        tell("STOP")
        wait_until(lambda: count() == 1, BOOT)  # while it booted one may have been given back and wanted again
        tell("CONT")
        wait_until(lambda: count() == 2, BOOT)
        said = command("function", "cpus", "own", "1", status=2).stderr
        assert "own has its CPUs by its load" in said
        assert_agrees(command)
    finally:
        command("down")


def assert_agrees(command: Command) -> None:
    """The threads of virtual CPUs are where the record says that they are."""
    (own,) = [each for each in command.status()["processes"] if each["function"] == "own" and each["alive"]]
    pins = connect().lookupByName(outer_name(command.state, own["name"])).vcpuPinInfo()
    assert [[cpu for cpu, may in enumerate(each) if may] for each in pins] == [[cpu] for cpu in own["cpus"]]
    assert command.status()["unlike"] == []


def kill_while_it_saves(command: Command, file: Path) -> None:
    """The machine stands still for a moment only, so that may take several tries; it goes on, and nothing is left."""
    killed = False
    while not killed:
        saving = command.begin("function", "save", "own", file)
        wait_until(lambda: [*file.parent.glob(f".{file.name}-*/state")] or saving.poll() is not None, BOOT)  # noqa: B023
        saving.kill()
        killed = saving.wait() == -signal.SIGKILL and not file.exists()
        file.unlink(missing_ok=True)
    wait_until(lambda: not [*file.parent.glob(f".{file.name}-*")], BOOT)
    machine = connect().lookupByName(outer_name(command.state, instance(command)))
    wait_until(lambda: machine.state()[0] == library().VIR_DOMAIN_RUNNING, BOOT)


@pytest.mark.whole
def test_a_machine_goes_on_with_what_it_had_written_to_its_disk(command: Command, disk: Path, overlays: Path) -> None:
    """Also on another host, where it comes with its disk."""
    del overlays
    spec = command.spec(SPEC)
    command("up", spec)
    try:
        wait_until_forwarding(command, "own")
        kept = Kept(command, "own")
        kept.write("here", "memory")
        file = command.folder / "own.state"
        kill_while_it_saves(command, file)
        command("function", "save", "own", file)
        kept.write("gone", "lost")
        before = instance(command)
        command("function", "restore", "own", file)
        assert instance(command) != before
        assert kept.read() == ["memory", "here"]
        assert_forwards(command, spec)
        command("function", "export", "own", command.folder / "own.tar")
    finally:
        command("down")
    there = command.folder / "there"
    there.mkdir()
    made = json.loads(
        command("function", "import", command.folder / "own.tar", "--state", there / "own.state", "--json").stdout
    )
    assert made["image"] == made["function"]["image"] == str(there / "own.qcow2")
    assert Path(made["image"]).read_bytes() == disk.read_bytes()
    spec = command.spec(SPEC.replace("disk.qcow2", made["image"]), "there.yaml")
    command("up", spec)
    try:
        command("function", "restore", "own", made["state"])
        assert kept.read() == ["memory", "here"]
        assert_forwards(command, spec)
    finally:
        command("down")


PAIR = SPEC.replace("[tester.a, own, tester.b]", "[tester.a, own, copy, tester.b]").replace(
    "functions: {", "functions: {copy: {runs: machine, image: disk.qcow2}, "
)


@pytest.mark.whole
def test_a_copy_has_a_disk_of_its_own_and_a_snapshot_the_disk_as_it_was(
    command: Command, disk: Path, overlays: Path, images: Path
) -> None:
    """The copy takes the place of a machine that has booted from the same image."""
    before = hashlib.sha256(disk.read_bytes()).digest()
    spec = command.spec(PAIR)
    command("up", spec)
    try:
        wait_until_forwarding(command, "own")
        wait_until_forwarding(command, "copy")
        own, copy = Kept(command, "own"), Kept(command, "copy")
        own.write("here", "memory")
        command("function", "snapshot", "own", "before")
        command("function", "clone", "own", "copy")
        assert copy.read() == ["memory", "here"]
        name = outer_name(command.state, instance(command, "copy"))
        assert copy.inside("hostname; cat /etc/machine-id").split() == [name, machine_id(name).hex]
        assert own.inside("hostname") == "wall"
        copy.write("there", "other")
        assert own.read() == ["memory", "here"]
        own.write("gone", "lost")
        command("function", "restore", "own", "--snapshot", "before")
        assert (own.read(), copy.read()) == (["memory", "here"], ["other", "there"])
        assert_forwards(command, spec)
        assert len(list(overlays.glob("*.qcow2"))) == 2
    finally:
        command("down")
        shutil.rmtree(images / "snapshots", ignore_errors=True)
    assert hashlib.sha256(disk.read_bytes()).digest() == before


@pytest.mark.whole
def test_a_disk_that_does_not_boot_is_told_with_the_consoles_last_lines(command: Command, overlays: Path) -> None:
    """Its boot code ends in nothing."""
    (command.folder / "empty.raw").write_bytes(b"\xcd\x18".ljust(510, b"\0") + b"\x55\xaa" + bytes(1 << 20))
    said = command("up", command.spec(SPEC.replace("disk.qcow2", "empty.raw"), "no.yaml"), status=None)
    assert said.returncode != 0 and "No bootable device" in said.stderr, said.stderr
    missing = command.spec(SPEC.replace("disk.qcow2", "missing.raw"), "missing.yaml")
    assert "missing.raw: there is no such file" in command("up", missing, status=2).stderr
    del overlays
