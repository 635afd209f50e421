"""What recording causes costs: latency through the switch with the recorder off and on, in turn.

As in `bench latency`: one frame at a time and at a steady rate, every frame timed. The tester is both ends of a chain
of so many skeletons; without one it is both guests of a hop. With the recorder on, interrupts, context switches and
the rest are recorded on the CPUs of all pollers, functions included.

Both sides are measured on the same processes: only the recorder comes and goes. Where a switch is started anew its
memory lies elsewhere, and a frame takes some per cent longer or shorter for that alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tailrace.bench.chain import MOST_FUNCTIONS
from tailrace.bench.compare import Plan, Side, Step, compare
from tailrace.bench.latency import LOADS, SETTLE_SECONDS, START_SECONDS, loads_seconds, measure_loads
from tailrace.bench.model import TAILRACE, Comparison, Ratio, Sample
from tailrace.bench.setting import Setting, check_alive
from tailrace.errors import Mistake
from tailrace.fabric.kinds import KINDS
from tailrace.functions.program import RECORDER_PROGRAM
from tailrace.measure.progress import Reporter
from tailrace.measure.recorder import Recorder, place_recorder, pollers_of
from tailrace.measure.stand import Scene, SceneFunction, standing
from tailrace.measure.tester import TESTER_PROGRAM
from tailrace.process.process import undisturbed

OFF, ON = "off", "on"
_RECORDER_SECONDS = 0.5
"""Before a side, so that starting the recorder is not in it; with it off as well."""
RATIOS = tuple(
    Ratio(f"{load}_{figure}", f"{load}_{figure}_us", ON, OFF) for load in LOADS for figure in ("p50", "p99", "p99.9")
)
"""1 would mean that recording costs nothing."""


@dataclass(frozen=True)
class RecorderPlan(Plan):
    """What is to be measured."""

    functions: int = 0
    """Skeletons in the chain."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.functions <= MOST_FUNCTIONS:
            raise Mistake(f"--functions {self.functions}: expected 0 to {MOST_FUNCTIONS}")

    @property
    def scene(self) -> Scene:
        return Scene("bench", tuple(SceneFunction(f"vnf{number}") for number in range(1, self.functions + 1)))

    @property
    def seconds_each(self) -> float:
        """How long a side takes."""
        return loads_seconds(self.seconds) + _RECORDER_SECONDS

    @property
    def total_seconds(self) -> float:
        return START_SECONDS + 2 * self.pairs * self.seconds_each


def run(plan: RecorderPlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all pairs."""
    bench = _Bench(plan)
    programs = ["tailrace-switch", TESTER_PROGRAM, RECORDER_PROGRAM, *(["tailrace-vnf"] if plan.functions else [])]
    return compare(
        "recorder",
        plan,
        [Side(name, plan.seconds_each, partial(bench.side, name == ON)) for name in (OFF, ON)],
        RATIOS,
        folder=folder,
        report=report,
        pages=plan.scene.pages(KINDS[TAILRACE]),
        programs=programs,
        settings={"functions": plan.functions, "rates_pps": LOADS},
        around=bench.standing,
    )


class _Bench:
    """The processes that both sides are measured on."""

    def __init__(self, plan: RecorderPlan) -> None:
        self._plan = plan

    @contextmanager
    def standing(self, setting: Setting) -> Iterator[None]:
        """They are up in the block."""
        self._where = setting.cores.placement([function.name for function in self._plan.scene.functions])
        with standing(setting.launcher, self._plan.scene, KINDS[TAILRACE], self._where) as self._stand:
            setting.versions |= self._stand.version()
            time.sleep(SETTLE_SECONDS)
            yield

    @contextmanager
    def _recording(self, setting: Setting) -> Iterator[None]:
        """The recorder at work as `measure latency --causes` has it."""
        stand = self._stand
        watched = pollers_of(self._where, stand.fabric.processes(), stand.functions, stand.tester)
        recorder = Recorder.start(setting.launcher, [each.poller for each in watched], place_recorder(self._where))
        try:
            yield
            check_alive([recorder.process])
        finally:
            with undisturbed():
                recorder.close()

    def side(self, on: bool, setting: Setting, step: Step) -> list[Sample]:
        """The latencies with the recorder on, or off."""
        stand = self._stand
        processes = [*stand.fabric.processes(), *stand.functions, stand.tester.process]
        with self._recording(setting) if on else nullcontext():
            return measure_loads(
                self._plan, setting, processes, stand.tester, step, stand.check, settle=_RECORDER_SECONDS
            )
