"""A real-time Debian, a stock Debian and a system that is not Linux run three functions of one chain, and none reaches
another's memory."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path

import pytest
from machine import BOOT, IMAGES
from running_node import Command, needs_machines, wait_until

from tailrace.functions import agent
from tailrace.functions.disks import make_boot_disk

pytestmark = [*needs_machines, pytest.mark.whole]

SPEC = """\
fabric: {idle: sleep}
functions:
  late: {kind: skeleton, runs: machine, image: realtime, cpus: 2}
  stock: {kind: skeleton, runs: machine, image: stock}
  other: {runs: machine, image: other.raw, firmware: uefi}
chains: {voice: [tester.a, late, stock, other, tester.b]}
tests: [latency: {frames: 64, rate: 500pps, duration: 2s}]
"""
NAMES = ("late", "stock", "other")
FORWARDS = "bridge: forwarding by "
BRIDGE = IMAGES / "uefi_bridge.efi"


@pytest.fixture(scope="module")
def node(command: Command, images: Path) -> Iterator[Command]:
    """The chain is up."""
    command("image", "build", "realtime", "--kernel", "rt", "--profile", "latency")
    command("image", "build", "stock", "--kernel", "stock")
    make_boot_disk(command.folder / "other.raw", {"EFI/BOOT/BOOTX64.EFI": BRIDGE, "syslinux.cfg": b""})
    command("up", command.spec(SPEC))
    # Its ports are up when its firmware has a driver for them, which is before it forwards.
    wait_until(lambda: FORWARDS in command("function", "log", "other").stdout, BOOT)
    yield command
    command("down")
    for name in ("realtime", "stock"):
        shutil.rmtree(images / name)


@pytest.fixture(scope="module")
def pids(node: Command) -> dict[str, int]:
    return {each["function"]: each["pid"] for each in node.status()["processes"] if each["function"] in NAMES}


def inside(node: Command, name: str, words: str) -> str:
    return agent.ask(node.state / f"logs/{name}.agent", words)


def test_three_systems_forward_in_one_chain(node: Command) -> None:
    result = json.loads(node("measure", "latency", node.spec(SPEC), "--json").stdout)
    frames = [way for trial in result["trials"] for way in trial["directions"]]
    assert sum(way["received"] for way in frames) == sum(way["sent"] for way in frames) > 100
    releases = {name: inside(node, name, "uname -r").strip() for name in ("late", "stock")}
    assert "-rt-" in releases["late"] and len(set(releases.values())) == 2
    assert inside(node, "late", "cat /sys/kernel/realtime").strip() == "1"


def test_the_real_time_one_is_tuned_inside_by_the_hosts_knobs(node: Command) -> None:
    line = inside(node, "late", "cat /proc/cmdline")
    assert "isolcpus=domain,managed_irq,1" in line and "irqaffinity=0" in line
    done = node("function", "verify", "late", "--json", status=None)
    places = {each["place"]: each["state"] for each in json.loads(done.stdout)["places"]}
    assert done.returncode == 0, [place for place, state in places.items() if state == "wrong"]
    assert places["argument:isolcpus"] == places["file:/proc/sys/vm/stat_interval"] == "right"
    assert places["priority:ktimers/1"] == "right"
    assert "T: 0" in inside(node, "late", "cyclictest --quiet --loops=10 --interval=10000 --priority=80")
    assert "is not tuned inside" in node("function", "verify", "stock", status=2).stderr


def memory_files(pid: int) -> set[str]:
    """The memory files that a process has mapped, by device and inode (proc(5))."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {" ".join(line.split()[3:5]) for line in lines if "memfd" in line or "hugepages" in line}


def as_machine(pid: int, attempt: Callable[[], object]) -> bool:
    """Whether an attempt succeeds, made as the user and group that a machine's QEMU is."""
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups([])
            os.setgid(int(status["Gid"].split()[0]))
            os.setuid(int(status["Uid"].split()[0]))
            attempt()
            code = 0
        except OSError:
            pass
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def test_none_has_or_reaches_anothers_memory(pids: dict[str, int]) -> None:
    mapped = {name: memory_files(pid) for name, pid in pids.items()}
    assert all(mapped.values())
    for one, other in permutations(NAMES, 2):
        assert not mapped[one] & mapped[other]
        its = Path(f"/proc/{pids[other]}")
        ways = (lambda its=its: (its / "mem").open("rb").close(), lambda its=its: next((its / "map_files").iterdir()))
        assert not any(as_machine(pids[one], way) for way in ways)


def test_none_reaches_what_another_has_on_its_disk(pids: dict[str, int], images: Path) -> None:
    written = [path for path in (images / "disks").iterdir() if path.suffix in {".qcow2", ".seed", ".variables"}]
    assert len(written) == 3
    for path in written:
        opened = [as_machine(pids[name], lambda path=path: path.open("rb").close()) for name in NAMES]
        assert opened == [name == "other" for name in NAMES]
