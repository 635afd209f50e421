"""What the switch costs to start and to change, alone.

Time from start to ready; memory, with and without guests; and how long it takes to add and remove ports and chains
while a chain beside them carries a tester's traffic, every frame of which must come back.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.bench import testpmd
from tailrace.bench.change import (
    BESIDE_FRAME,
    BETWEEN_SECONDS,
    SETTLE_SECONDS,
    bare_switch,
    beside_traffic,
    idle_guests,
    sockets,
    wait_up,
)
from tailrace.bench.model import Beside, ChangeResult, Spread
from tailrace.bench.setting import CORE_TO_CORE, Cores, Setting, check_able, check_alive, prepared
from tailrace.bench.sides import guest_port, joined
from tailrace.errors import Failure, Mistake
from tailrace.fabric.tailrace import TailraceFabric
from tailrace.measure.progress import Reporter
from tailrace.measure.tester import TESTER_PROGRAM
from tailrace.plan.planned import TESTER_BUFFERS_MIB
from tailrace.resources import hugepages
from tailrace.state.record import Process

READY = "start to ready"
CHANGES = ("add two ports", "join them", "part them", "remove them")
"""What is timed, in this order."""
GUESTS = 16
"""Guests attached for the larger figure of memory."""
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


def run(plan: SwitchPlan, folder: Path, report: Reporter) -> ChangeResult:
    """Measures all three. Everything that it starts and reserves is gone when it returns or raises."""
    cores = Cores.choose(plan.cores, "bench switch")
    check_able("bench switch", (CORE_TO_CORE, "tailrace-switch", TESTER_PROGRAM))
    testpmd.program()
    with prepared(folder, cores, plan.pages, report) as setting:
        distance = setting.core_to_core()
        ready = _starts(setting, plan)
        memory = _memory(setting, plan)
        changes, beside = _changes(setting, plan)
        times = {READY: Spread.of(ready), **changes}
        return ChangeResult("switch", {"frame": BESIDE_FRAME}, times, memory, beside, setting.machine(), distance)


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


def _starts(setting: Setting, plan: SwitchPlan) -> list[float]:
    """Milliseconds from before the process is made until its control socket answers, each time."""
    setting.report.stage(READY, plan.start_seconds)
    taken = []
    for number in range(plan.starts):
        began = time.monotonic()
        with bare_switch(setting):
            taken.append((time.monotonic() - began) * 1e3)
        setting.report.advance(READY, plan.start_seconds * (number + 1) / plan.starts)
    return taken


def _memory(setting: Setting, plan: SwitchPlan) -> dict[int, float]:
    """Peak resident memory in MiB by the number of guests attached."""
    setting.report.stage("memory", plan.memory_seconds)
    with bare_switch(setting) as fabric:
        (process,) = fabric.processes()
        memory = {0: _peak(process)}
        at = sockets(setting, "memory", GUESTS)
        names = [f"p{number}" for number in range(GUESTS)]
        pairs = zip(names[::2], names[1::2], strict=True)
        fabric.apply(
            {
                "ports": {name: {"kind": "guest", "path": str(path)} for name, path in zip(names, at, strict=True)},
                "chains": {f"{one}-{other}": joined(one, other) for one, other in pairs},
            }
        )
        with idle_guests(setting, at, listen=False):
            wait_up(fabric, names)
            memory[GUESTS] = _peak(process)
    return memory


def _changes(setting: Setting, plan: SwitchPlan) -> tuple[dict[str, Spread], Beside]:
    """Milliseconds of each kind of change, and what became of the frames beside."""
    label = "changes beside traffic"
    setting.report.stage(label, plan.change_seconds)
    at = sockets(setting, "guest", 2)
    taken: dict[str, list[float]] = {name: [] for name in CHANGES}
    with (
        bare_switch(setting) as fabric,
        idle_guests(setting, at, listen=True),
        beside_traffic(setting, fabric) as traffic,
    ):
        for number in range(plan.changes):
            _change(fabric, at, taken)
            check_alive(fabric.processes())
            setting.report.advance(label, plan.change_seconds * (number + 1) / plan.changes)
    return {name: Spread.of(values) for name, values in taken.items()}, traffic.outcome


def _change(fabric: TailraceFabric, at: Sequence[Path], taken: dict[str, list[float]]) -> None:
    """Two ports come, with guests that attach, are joined and parted, and go."""
    add, join, part, remove = CHANGES

    def timed(change: str, patch: dict[str, Any]) -> None:
        began = time.monotonic()
        fabric.apply(patch)
        taken[change].append((time.monotonic() - began) * 1e3)
        time.sleep(BETWEEN_SECONDS)

    timed(add, {"ports": {name: guest_port(path) for name, path in zip(("c", "d"), at, strict=True)}})
    wait_up(fabric, ("c", "d"))
    timed(join, {"chains": {"changing": joined("c", "d")}})
    timed(part, {"chains": {"changing": None}})
    timed(remove, {"ports": {"c": None, "d": None}})
