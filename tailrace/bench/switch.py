"""What the switch costs to start and to change, alone.

Time from start to ready; memory, with and without guests; and how long it takes to add and remove ports and chains
while a chain beside them carries a tester's traffic, every frame of which must come back.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.bench import testpmd
from tailrace.bench.model import CHANGES, Beside, Spread, SwitchResult
from tailrace.bench.setting import Cores, Setting, check_able, check_alive, prepared
from tailrace.bench.sides import BACKPRESSURE_US
from tailrace.bench.testpmd import Testpmd
from tailrace.errors import Failure, Fault, Mistake
from tailrace.fabric.tailrace import SwitchOptions, TailraceFabric
from tailrace.host import hugepages
from tailrace.host.state import FilePath, Process
from tailrace.measure.profile import profile
from tailrace.measure.progress import Reporter
from tailrace.measure.session import undisturbed
from tailrace.measure.tester import TESTER_PROGRAM, Tester
from tailrace.plan import TESTER_BUFFERS_MIB

GUESTS = 16
"""Guests attached for the larger figure of memory."""
BESIDE_PPS = 50_000.0
"""Frames a second each way on the chain beside: few enough for any machine, so that a loss has one cause only."""
BESIDE_FRAME = 64
SETTLE_SECONDS = 0.5
"""Traffic flows so long before the first change and after the last."""
WAIT_SECONDS = 2.0
"""How long the tester waits for the last frames."""
BETWEEN_SECONDS = 0.01
"""Between two changes, so that all else gets its turn."""
ATTACH_SECONDS = 10.0
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True)
class SwitchPlan:
    """What is to be measured. Raises Mistake where that cannot be."""

    starts: int = 20
    changes: int = 50
    """How often two ports are added, joined, parted and removed."""
    cores: tuple[int, int] | None = None
    """The switch's CPU and the tester's; the last and the first allowed unless given."""

    def __post_init__(self) -> None:
        if self.starts < 1:
            raise Mistake(f"--starts {self.starts}: expected at least 1")
        if not 1 <= self.changes <= 10_000:
            raise Mistake(f"--changes {self.changes}: expected 1 to 10000")

    @property
    def start_seconds(self) -> float:
        return self.starts * 0.5

    @property
    def memory_seconds(self) -> float:
        return 5.0

    @property
    def change_seconds(self) -> float:
        return 6.0 + 2 * SETTLE_SECONDS + self.changes * (len(CHANGES) + 2) * 2 * BETWEEN_SECONDS

    @property
    def total_seconds(self) -> float:
        return self.start_seconds + self.memory_seconds + self.change_seconds

    @property
    def pages(self) -> int:
        """2 MiB pages of the tester and of the guests that come and go."""
        return (testpmd.MEMORY_MIB + TESTER_BUFFERS_MIB) // hugepages.PAGE_MIB + 8


def run(plan: SwitchPlan, folder: Path, report: Reporter) -> SwitchResult:
    """Measures all three. Everything that it starts and reserves is gone when it returns or raises."""
    cores = Cores.choose(plan.cores, "bench switch")
    check_able("bench switch", ("tailrace-switch", TESTER_PROGRAM))
    testpmd.program()
    with prepared(folder, cores, plan.pages, report) as setting:
        ready = _starts(setting, plan)
        memory = _memory(setting, plan)
        changes, beside = _changes(setting, plan)
        return SwitchResult(Spread.of(ready), memory, changes, beside, setting.machine())


def parse_peak(status: str) -> float:
    """The largest resident memory that a process ever had, in MiB, from /proc/PID/status. Raises ValueError."""
    found = _PEAK.search(status)
    if found is None:
        raise ValueError("no VmHWM")
    return int(found[1]) / 1024


def _peak(process: Process) -> float:
    try:
        return parse_peak(Path(f"/proc/{process.pid}/status").read_text())
    except (OSError, ValueError):
        check_alive([process])
        raise Failure(f"the memory of {process.program} cannot be read") from None


@contextmanager
def _switch(setting: Setting) -> Iterator[TailraceFabric]:
    """A switch without ports, as `tailrace up` starts it."""
    fabric = TailraceFabric(setting.launcher, SwitchOptions(setting.cores.switch_place, BACKPRESSURE_US, "poll"))
    try:
        fabric.start()
        setting.versions |= fabric.version()
        yield fabric
    finally:
        with undisturbed():
            fabric.stop()


def _starts(setting: Setting, plan: SwitchPlan) -> list[float]:
    """Milliseconds from before the process is made until its control socket answers, each time."""
    label = "start to ready"
    setting.report.stage(label, plan.start_seconds)
    taken = []
    for number in range(plan.starts):
        began = time.monotonic()
        with _switch(setting):
            taken.append((time.monotonic() - began) * 1e3)
        setting.report.advance(label, plan.start_seconds * (number + 1) / plan.starts)
    return taken


def _memory(setting: Setting, plan: SwitchPlan) -> dict[int, float]:
    """Peak resident memory in MiB by the number of guests attached."""
    setting.report.stage("memory", plan.memory_seconds)
    with _switch(setting) as fabric:
        (process,) = fabric.processes()
        memory = {0: _peak(process)}
        sockets = _sockets(setting, "memory", GUESTS)
        for number, path in enumerate(sockets):
            fabric.add_guest_port(f"p{number}", path)
        fabric.wire("all", [f"p{number}" for number in range(GUESTS)])
        with _guests(setting, sockets, listen=False):
            _wait_up(fabric, [f"p{number}" for number in range(GUESTS)])
            memory[GUESTS] = _peak(process)
    return memory


def _changes(setting: Setting, plan: SwitchPlan) -> tuple[dict[str, Spread], Beside]:
    """Milliseconds of each kind of change, and what became of the frames beside."""
    label = "changes beside traffic"
    setting.report.stage(label, plan.change_seconds)
    ends, come_and_go = _sockets(setting, "beside", 2), _sockets(setting, "guest", 2)
    with _switch(setting) as fabric, _guests(setting, come_and_go, listen=True):
        for name, path in zip("ab", ends, strict=True):
            fabric.add_guest_port(name, path)
        fabric.wire("beside", ("a", "b"))
        with _tester(setting, ends) as tester:
            setting.versions |= tester.version()
            _wait_up(fabric, ("a", "b"))
            streams = profile(BESIDE_FRAME).streams(BESIDE_PPS)
            tester.begin(streams, 3600.0, wait=WAIT_SECONDS, interval=1.0)
            with _answered_at_once():
                time.sleep(SETTLE_SECONDS)
                taken: dict[str, list[float]] = {name: [] for name in CHANGES}
                for number in range(plan.changes):
                    _change(fabric, come_and_go, taken)
                    check_alive([*fabric.processes(), tester.process])
                    setting.report.advance(label, plan.change_seconds * (number + 1) / plan.changes)
                time.sleep(SETTLE_SECONDS)
            result = tester.cut_short(WAIT_SECONDS)
            if result is None:
                raise Failure("the tester did not come to an end")
        dropped = sum(sum(port.drops.values()) for port in fabric.ports() if port.name in ("a", "b"))
        return {name: Spread.of(values) for name, values in taken.items()}, Beside.of(BESIDE_PPS, result, dropped)


def _change(fabric: TailraceFabric, sockets: Sequence[Path], taken: dict[str, list[float]]) -> None:
    """Two ports come, with guests that attach, are joined and parted, and go."""

    def timed(method: str, **params: Any) -> None:
        began = time.monotonic()
        fabric.control.call(method, **params)
        taken[method].append((time.monotonic() - began) * 1e3)
        time.sleep(BETWEEN_SECONDS)

    for name, path in zip(("c", "d"), sockets, strict=True):
        timed("port.add", name=name, kind="guest", path=str(path), mode="client")
    _wait_up(fabric, ("c", "d"))
    timed("chain.set", name="changing", ports=["c", "d"])
    timed("chain.remove", name="changing")
    for name in ("c", "d"):
        timed("port.remove", name=name)


def _sockets(setting: Setting, name: str, count: int) -> list[Path]:
    """Paths of sockets, on record, so that whoever makes them need not clean up."""
    paths = [setting.launcher.state.sockets / f"{name}{number}" for number in range(count)]
    for path in paths:
        setting.launcher.state.add(FilePath(str(path)))
    return paths


@contextmanager
def _guests(setting: Setting, sockets: Sequence[Path], *, listen: bool) -> Iterator[Testpmd]:
    """Guests that attach and send nothing."""
    cores = setting.cores
    guests = Testpmd(setting.launcher, sockets, core=cores.load, control=cores.control, listen=listen)
    try:
        yield guests
        guests.check_alive()
    finally:
        with undisturbed():
            guests.close()


@contextmanager
def _tester(setting: Setting, sockets: Sequence[Path]) -> Iterator[Tester]:
    ports = [(name, f"vhost:{path}") for name, path in zip("ab", sockets, strict=True)]
    place = setting.cores.load_place
    tester = Tester.start(setting.launcher, ports, place, memory_mib=TESTER_BUFFERS_MIB, huge=True)
    try:
        yield tester
    finally:
        with undisturbed():
            tester.stop()


def _wait_up(fabric: TailraceFabric, names: Sequence[str]) -> None:
    """Waits until a guest is attached to each of the ports. Raises Fault."""
    deadline = time.monotonic() + ATTACH_SECONDS
    while True:
        states = {port.name: port.state for port in fabric.ports()}
        waiting = [name for name in names if states[name] != "up"]
        if not waiting:
            return
        if time.monotonic() > deadline:
            raise Fault(f"no guest attached to {waiting[0]} within {ATTACH_SECONDS:g} s; it is {states[waiting[0]]}")
        time.sleep(BETWEEN_SECONDS)


@contextmanager
def _answered_at_once() -> Iterator[None]:
    """This process goes before the tester, with which it may share a core, so that it times the switch and not itself.

    Without the privilege everything is as before.
    """
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
