"""What tests with virtual machines share: how fast machines can be had here, their images, a switch."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine import BACKPORTED, BOOT, IMAGES, REPOSITORY, Hardware, Machine, MachineError
from running_node import Command, open_folder, wait_until
from running_switch import RunningSwitch

BOOT_LIMIT = 10
"""Seconds for a machine to boot with KVM: where KVM works it takes one; elsewhere stock kernels fail or hang."""

_accelerator = pytest.StashKey[str]()


def _boots_with_kvm(folder: Path) -> str:
    """Empty, or why not."""
    if not Path("/dev/kvm").exists():
        return "no /dev/kvm"
    try:
        with Machine(folder, "probe", Hardware(), accelerator="kvm") as probe:
            probe.wait_ready(BOOT_LIMIT)
    except MachineError as error:
        lines = str(error).splitlines()
        return f"{lines[0]}; {lines[-1]}"
    return ""


@pytest.fixture(scope="session")
def accelerator(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> str:
    """`kvm` if a machine boots with it here, else `tcg`, which is emulation.  Kept until the host boots again."""
    if not (IMAGES / "cloud/vmlinuz").exists():
        pytest.skip("no images of virtual machines: scripts/setup guest")
    kept = IMAGES / "kvm.json"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    try:
        answer: dict[str, str] = json.loads(kept.read_text())
    except (OSError, ValueError):
        answer = {}
    if answer.get("boot") != boot:
        answer = {"boot": boot, "why_not": _boots_with_kvm(tmp_path_factory.mktemp("kvm"))}
        kept.write_text(json.dumps(answer))
    pytestconfig.stash[_accelerator] = f"emulated (tcg), because KVM does not run them here: {answer['why_not']}"
    if not answer["why_not"]:
        pytestconfig.stash[_accelerator] = "run by KVM"
    return "tcg" if answer["why_not"] else "kvm"


@pytest.fixture(scope="session")
def backported(accelerator: str) -> str:
    """The same for machines that the QEMU of BACKPORTED runs; skips where there is none."""
    missing = BACKPORTED / "missing"
    if missing.exists():
        pytest.skip(missing.read_text().strip())
    if not BACKPORTED.exists():
        pytest.skip("no QEMU from 8.0 on: scripts/setup guest")
    return accelerator


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    said = config.stash.get(_accelerator, None)
    if said:
        terminalreporter.line(f"virtual machines were {said}")


@pytest.fixture(scope="session")
def images(tailrace: Path) -> Iterator[Path]:
    """A folder with the image of Tailrace's own functions."""
    folder = IMAGES / "functions"
    os.environ["TAILRACE_IMAGES"] = str(folder)
    subprocess.run([tailrace, "image", "build"], timeout=600, check=True, capture_output=True)
    yield folder
    del os.environ["TAILRACE_IMAGES"]
    owner = REPOSITORY.stat()
    for path in (folder, *folder.rglob("*")):  # root has made them in somebody's checkout
        os.chown(path, owner.st_uid, owner.st_gid)


@pytest.fixture(scope="session")
def daemons() -> Iterator[None]:
    """libvirt's, which Tailrace starts where nobody else does: they end by themselves, once and for all tests."""
    yield
    wait_until(lambda: not Path("/run/tailrace-libvirt/libvirt-sock").exists(), 60)


@pytest.fixture(scope="module")
def command(tailrace: Path, images: Path, daemons: None) -> Iterator[Command]:
    """With machines, which take their time."""
    del images, daemons
    with open_folder() as folder:
        made = Command(tailrace, folder)
        made.limit = BOOT
        yield made
        made("down", status=None)


def _running_switch(binaries: Path, folder: Path) -> Iterator[RunningSwitch]:
    """It leaves room for the machines, and the last CPU to the tester."""
    core = str(min(os.sched_getaffinity(0)))
    options: list[str | Path] = [
        "--idle",
        "sleep",
        "--cores",
        core,
        "--config",
        folder / "config",
        "--keep",
        "net_raw,net_admin",
    ]
    running = RunningSwitch(binaries / "switch/tailrace-switch", folder, *options)
    yield running
    assert running.end() == 0


@pytest.fixture
def switch(binaries: Path, tmp_path: Path) -> Iterator[RunningSwitch]:
    yield from _running_switch(binaries, tmp_path)


@pytest.fixture(scope="module")
def shared_switch(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSwitch]:
    """One for all tests of a module, whose machines are too."""
    yield from _running_switch(binaries, tmp_path_factory.mktemp("shared"))


@pytest.fixture
def lasting_switch(binaries: Path, tmp_path: Path) -> Iterator[RunningSwitch]:
    """Another one, for what has to go on while that is killed."""
    folder = tmp_path / "lasting"
    folder.mkdir()
    yield from _running_switch(binaries, folder)
