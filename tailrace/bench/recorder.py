"""What recording causes costs: latency through the switch with the recorder off and on, in turn.

As in `bench latency`: one frame at a time and at a steady rate, every frame timed. The tester is both ends of a chain
of so many skeletons; without one it is both guests of a hop. With the recorder on, interrupts, context switches and
the rest are recorded on the CPUs of all pollers, functions included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tailrace.bench.chain import MOST_FUNCTIONS
from tailrace.bench.compare import Plan, Side, Step, compare, total_seconds
from tailrace.bench.latency import LOADS, START_SECONDS, loads_seconds, measure_loads
from tailrace.bench.model import TAILRACE, Comparison, Ratio, Sample
from tailrace.bench.setting import Setting, check_alive
from tailrace.errors import Mistake
from tailrace.fabric.kinds import KINDS
from tailrace.host.place import Placement
from tailrace.host.process import undisturbed
from tailrace.measure.progress import Reporter
from tailrace.measure.recorder import RECORDER_PROGRAM, Recorder, place_recorder, pollers_of
from tailrace.measure.stand import Scene, SceneFunction, Stand, standing
from tailrace.measure.tester import TESTER_PROGRAM

OFF, ON = "off", "on"
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
    def sides(self) -> Sequence[Side]:
        seconds = loads_seconds(self.seconds) + START_SECONDS
        return [Side(name, seconds, partial(_side, self, name == ON)) for name in (OFF, ON)]

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, self.sides)


def run(plan: RecorderPlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all pairs."""
    programs = ["tailrace-switch", TESTER_PROGRAM, RECORDER_PROGRAM, *(["tailrace-vnf"] if plan.functions else [])]
    return compare(
        "recorder",
        plan,
        plan.sides,
        RATIOS,
        folder=folder,
        report=report,
        pages=plan.scene.pages(KINDS[TAILRACE]),
        programs=programs,
        settings={"functions": plan.functions, "rates_pps": LOADS},
    )


@contextmanager
def _recording(setting: Setting, stand: Stand, where: Placement) -> Iterator[None]:
    """The recorder at work as `measure latency --causes` has it."""
    watched = pollers_of(where, stand.fabric.processes(), stand.functions, stand.tester)
    recorder = Recorder.start(setting.launcher, [each.poller for each in watched], place_recorder(where))
    try:
        yield
        check_alive([recorder.process])
    finally:
        with undisturbed():
            recorder.close()


def _side(plan: RecorderPlan, on: bool, setting: Setting, step: Step) -> list[Sample]:
    where = setting.cores.placement([function.name for function in plan.scene.functions])
    with standing(setting.launcher, plan.scene, KINDS[TAILRACE], where) as stand:
        setting.versions |= stand.version()
        processes = [*stand.fabric.processes(), *stand.functions, stand.tester.process]
        with _recording(setting, stand, where) if on else nullcontext():
            return measure_loads(plan, setting, processes, stand.tester, step, stand.check)
