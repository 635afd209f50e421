"""What recording causes costs: latency through the switch with the recorder off and on, in turn.

As `bench latency`: the tester is both guests, one frame at a time and at a steady rate, every frame timed. With the
recorder on, interrupts, context switches and the rest are recorded on both pollers' CPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tailrace.bench.compare import Plan, Side, Step, compare, total_seconds
from tailrace.bench.guests import WAIT_SECONDS, tester_at
from tailrace.bench.latency import LOADS, START_SECONDS, measure_loads
from tailrace.bench.model import TAILRACE, Comparison, Figures, Ratio
from tailrace.bench.setting import Setting, check_alive
from tailrace.bench.sides import running
from tailrace.fabric.base import Fabric
from tailrace.host import hugepages
from tailrace.host.process import undisturbed
from tailrace.measure.progress import Reporter
from tailrace.measure.recorder import RECORDER_PROGRAM, Recorder, watch_process
from tailrace.measure.tester import TESTER_PROGRAM, Tester
from tailrace.plan import TESTER_BUFFERS_MIB

OFF, ON = "off", "on"
RATIOS = tuple(
    Ratio(f"{load}_{figure}", f"{load}_{figure}_us", ON, OFF) for load in LOADS for figure in ("p50", "p99", "p99.9")
)
"""1 would mean that recording costs nothing."""


@dataclass(frozen=True)
class RecorderPlan(Plan):
    """What is to be measured."""

    @property
    def sides(self) -> Sequence[Side]:
        seconds = len(LOADS) * (self.seconds + WAIT_SECONDS) + START_SECONDS
        return [Side(name, seconds, partial(_side, self, name == ON)) for name in (OFF, ON)]

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, self.sides)


def run(plan: RecorderPlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all pairs."""
    return compare(
        "recorder",
        plan,
        plan.sides,
        RATIOS,
        folder=folder,
        report=report,
        pages=TESTER_BUFFERS_MIB // hugepages.PAGE_MIB + 8,
        programs=("tailrace-switch", TESTER_PROGRAM, RECORDER_PROGRAM),
        settings={"rates_pps": LOADS},
    )


@contextmanager
def _recording(setting: Setting, switch: Fabric, tester: Tester) -> Iterator[None]:
    """The recorder on both pollers, on the CPU of everything that sleeps."""
    cores = setting.cores
    watched = [each for process in switch.processes() for each in watch_process(process.pid, [cores.switch])]
    watched += watch_process(tester.process.pid, [cores.load])
    recorder = Recorder.start(setting.launcher, [each.poller for each in watched], [cores.control])
    try:
        yield
        check_alive([recorder.process])
    finally:
        with undisturbed():
            recorder.close()


def _side(plan: RecorderPlan, on: bool, setting: Setting, step: Step) -> Figures:
    with (
        running(setting, TAILRACE, what=f"{plan.frame} B") as (switch, sockets),
        tester_at(setting, sockets) as tester,
        _recording(setting, switch, tester) if on else nullcontext(),
    ):
        return measure_loads(plan, switch, tester, step)
