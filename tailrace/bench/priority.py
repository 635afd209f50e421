"""What a real-time task in a machine gains where the priority of its virtual CPU follows what runs: two sides in turn.

On the CPU of a machine's virtual CPU runs a load of this host at real-time priority 10, most of the time; in the
machine an ordinary task computes without end, and a real-time task is waked by its own timer, as cyclictest is.
`without` the virtual CPU has the priority that was planned; `with` it has that of what it runs. What the load gets of
its CPU meanwhile is the price.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tailrace.bench.compare import Plan, Step, compare
from tailrace.bench.compare import Side as BenchSide
from tailrace.bench.interrupts import figures
from tailrace.bench.model import Comparison, Figures, Ratio, Sample
from tailrace.bench.setting import LOOK_SECONDS, Setting
from tailrace.errors import Fault
from tailrace.functions import agent
from tailrace.functions.images import DEFAULT, machine_image
from tailrace.functions.machine import InMachine
from tailrace.functions.priority import PROGRAM, followed
from tailrace.functions.program import INTERRUPT_RECEIVER
from tailrace.functions.runtime import PriorityRange
from tailrace.measure.beside import BOOT_SECONDS, Guest
from tailrace.measure.host.tools import Setting as HostSetting
from tailrace.measure.interrupts import RECEIVER, SENDER, SENDS, Side
from tailrace.measure.progress import Reporter
from tailrace.process.process import Limits, cpu_seconds, descendants, undisturbed
from tailrace.process.programs import system_program
from tailrace.state.launch import why_ended
from tailrace.state.record import Process

WITHOUT, WITH = "without", "with"
_FIGURES = ("p50", "p99", "p99.9", "max")
LOAD_FIGURE = "load_percent"
RATIOS = (
    *(Ratio(figure.replace(".", "_"), f"{figure}_us", WITH, WITHOUT) for figure in _FIGURES),
    Ratio("load", LOAD_FIGURE, WITH, WITHOUT),
)
PERIOD_US = 2000
LOAD_PRIORITY, LOAD_PERCENT, LOAD_SLICE_MS = 10, 80, 20
BOUNDS = PriorityRange(0, 40, (INTERRUPT_RECEIVER[:15],))
_LOADER = "stress-ng"
_NAME = "radio"
_START_SECONDS = 2.0
"""Of the follower, and of the load."""


@dataclass(frozen=True)
class PriorityPlan(Plan):
    """What is to be measured."""

    @property
    def subject(self) -> dict[str, Any]:
        return {"period_us": PERIOD_US, "load_priority": LOAD_PRIORITY, "most": BOUNDS.most, "least": BOUNDS.least}

    @property
    def named(self) -> Sequence[str]:
        return ()

    @property
    def slice_seconds(self) -> int:
        return max(1, round(self.seconds))

    @property
    def seconds_each(self) -> float:
        """How long a side takes."""
        return self.slice_seconds + _START_SECONDS + 2 * LOOK_SECONDS

    @property
    def total_seconds(self) -> float:
        return BOOT_SECONDS + 2 * self.pairs * self.seconds_each


def run(plan: PriorityPlan, folder: Path, report: Reporter) -> Comparison:
    """Measures both sides in turn. Raises as `compare` does."""
    system_program(_LOADER)
    machine_image(DEFAULT)
    InMachine().check()
    bench = _Bench(plan)
    return compare(
        "priority",
        plan,
        [BenchSide(name, plan.seconds_each, partial(bench.side, name == WITH)) for name in (WITHOUT, WITH)],
        RATIOS,
        folder=folder,
        report=report,
        pages=0,
        programs=[SENDER, PROGRAM],
        around=bench.standing,
    )


class _Bench:
    def __init__(self, plan: PriorityPlan) -> None:
        self._plan = plan
        self._side = Side(_NAME, PERIOD_US * 1000, Guest("high", priority=BOUNDS), paths=("timer",), follows=False)
        self._where: HostSetting
        self._control: tuple[int, ...] = ()

    @contextmanager
    def standing(self, setting: Setting) -> Iterator[None]:
        """The machine, with what computes in it."""
        cores, launcher = setting.cores, setting.launcher
        self._control = tuple(dict.fromkeys((cores.load, cores.control)))
        self._where = HostSetting({cores.switch: RECEIVER, cores.load: SENDS}, self._control, launcher.logs)
        with self._side.up(launcher, cores.switch, self._control, None):
            with self._side.going():
                agent.ask(agent.beside(launcher.log(_NAME)), "while :; do :; done >/dev/null 2>&1 &")
            yield

    @contextmanager
    def _loaded(self, setting: Setting) -> Iterator[Process]:
        """The host's load on the CPU of the virtual one."""
        core, launcher = setting.cores.switch, setting.launcher
        words = [system_program(_LOADER), "--quiet", "--cpu", "1", "--cpu-load", str(LOAD_PERCENT)]
        words += ["--cpu-load-slice", str(LOAD_SLICE_MS), "--sched", "fifo", "--sched-prio", str(LOAD_PRIORITY)]
        process = launcher.start(
            "load", [*words, "--timeout", str(self._plan.slice_seconds + 120)], Limits(cpus=(core,))
        )
        try:
            yield process
            if not process.id.alive():
                raise Fault(why_ended(launcher, process))
        finally:
            with undisturbed():
                launcher.state.undo(process)

    def side(self, follows: bool, setting: Setting, step: Step) -> list[Sample]:
        """How late the task wakes up, with the priority of its virtual CPU as planned, or as it runs."""

        def measure() -> Figures:
            with self._side.going():
                machine = self._side.process
                with (
                    followed(setting.launcher, machine, BOUNDS, self._control) if follows else nullcontext(),
                    self._loaded(setting) as load,
                ):
                    began, used = time.monotonic(), _cpu_seconds(load)
                    found = self._side.measure(self._where, self._plan.slice_seconds, step)
                    share = (_cpu_seconds(load) - used) / (time.monotonic() - began)
            (of_task,) = found[self._side.name].values()
            return {**figures(of_task.histogram, "", _FIGURES), LOAD_FIGURE: 100 * share}

        return setting.samples([], measure)


def _cpu_seconds(process: Process) -> float:
    """Of a program and those that it has started."""
    return sum(map(cpu_seconds, (process.pid, *descendants(process.pid))))
