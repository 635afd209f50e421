"""What `measure interrupts` costs itself, and whether its clockwork agrees with cyclictest: three sides in turn.

`off` and `on` are its native receiver, without and with the recorder of `--causes`, on the same processes: only the
interrupts are compared. How late the receiver's own timer wakes it (`--path timer`) is what cyclictest measures, so
that is compared with cyclictest's own, on the same CPU, at the same priority and interval.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tailrace import __version__
from tailrace.bench.compare import Plan, Step, compare
from tailrace.bench.compare import Side as BenchSide
from tailrace.bench.model import Comparison, Figures, Ratio, Sample
from tailrace.bench.setting import LOOK_SECONDS, Setting, check_alive
from tailrace.errors import Fault
from tailrace.functions.program import INTERRUPT_RECEIVER, RECORDER_PROGRAM
from tailrace.measure.host.tools import INTERVAL_US, Cyclictest
from tailrace.measure.host.tools import Setting as HostSetting
from tailrace.measure.interrupts import NATIVE, RECEIVER, SENDER, SENDS, Side, Way
from tailrace.measure.progress import Reporter
from tailrace.measure.recorder import Recorder
from tailrace.process.process import undisturbed
from tailrace.process.programs import system_program
from tailrace.results.histogram import Histogram

OFF, ON, CYCLICTEST = "off", "on", "cyclictest"
_FIGURES = ("p50", "p99", "average")
RATIOS = (
    *(Ratio(f"recorder_{figure}", f"{figure}_us", ON, OFF) for figure in _FIGURES),
    *(Ratio(f"timer_{figure}", f"timer_{figure}_us", OFF, CYCLICTEST) for figure in _FIGURES),
)
"""1 would mean that recording costs nothing, and that both find the same of the timer."""
_PREFIXES: Mapping[Way, str] = {"msix": "", "timer": "timer_"}
"""Of figures on each path."""
_SETTLE_SECONDS = 0.5
"""Before a side, so that starting the recorder is not in it; without it as well."""
_START_SECONDS = 1.0


@dataclass(frozen=True)
class InterruptsPlan(Plan):
    """What is to be measured."""

    @property
    def subject(self) -> dict[str, Any]:
        return {"period_us": INTERVAL_US}

    @property
    def named(self) -> Sequence[str]:
        return ()

    @property
    def slice_seconds(self) -> int:
        """Whole seconds, as tools take them."""
        return max(1, round(self.seconds))

    @property
    def seconds_each(self) -> float:
        """How long a side takes."""
        return self.slice_seconds + _SETTLE_SECONDS + 2 * LOOK_SECONDS

    @property
    def seconds_ours(self) -> float:
        """How long one of ours takes: the interrupts, then the timer."""
        return self.seconds_each + self.slice_seconds

    @property
    def total_seconds(self) -> float:
        return _START_SECONDS + self.pairs * (2 * self.seconds_ours + self.seconds_each)


def run(plan: InterruptsPlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all sides in turn. Raises as `compare` does."""
    system_program(CYCLICTEST)
    bench = _Bench(plan)
    return compare(
        "interrupts",
        plan,
        [
            BenchSide(OFF, plan.seconds_ours, partial(bench.ours, False)),
            BenchSide(ON, plan.seconds_ours, partial(bench.ours, True)),
            BenchSide(CYCLICTEST, plan.seconds_each, bench.cyclictest),
        ],
        RATIOS,
        folder=folder,
        report=report,
        pages=0,
        programs=[SENDER, INTERRUPT_RECEIVER, RECORDER_PROGRAM],
        around=bench.standing,
    )


class _Bench:
    """The sender and its receiver, which both of our sides are measured on."""

    def __init__(self, plan: InterruptsPlan) -> None:
        self._plan = plan

    @contextmanager
    def standing(self, setting: Setting) -> Iterator[None]:
        """They are up in the block, the receiver on the switch's core, the sender on the load's."""
        cores = setting.cores
        setting.versions["tailrace"] = __version__
        self._side = Side(NATIVE, INTERVAL_US * 1000, paths=tuple(_PREFIXES))
        self._control = tuple(dict.fromkeys((cores.load, cores.control)))
        self._where = HostSetting({cores.switch: RECEIVER, cores.load: SENDS}, self._control, setting.launcher.logs)
        with self._side.up(setting.launcher, cores.switch, self._control, None):
            yield

    @contextmanager
    def _recording(self, setting: Setting) -> Iterator[None]:
        """The recorder at work, and its events looked at, as `measure interrupts --causes` has it."""
        core = setting.cores.switch
        recorder = Recorder.start(setting.launcher, [self._side.poller(core)], (setting.cores.control,))
        try:
            self._side.record(recorder, core, None)
            yield
            check_alive([recorder.process])
        finally:
            self._side.causes = None
            with undisturbed():
                recorder.close()

    def ours(self, on: bool, setting: Setting, step: Step) -> list[Sample]:
        """The interrupts and the receiver's timer, with the recorder on or off."""

        def measure() -> Figures:
            found: dict[str, float] = {}
            for path, prefix in _PREFIXES.items():
                told = self._side.along(path, self._where, self._plan.slice_seconds, step)
                (one,) = told[self._side.figure(path)].values()
                found |= figures(one.histogram, prefix)
            return found

        with self._recording(setting) if on else nullcontext():
            time.sleep(_SETTLE_SECONDS)
            return setting.samples([], measure)

    def cyclictest(self, setting: Setting, step: Step) -> list[Sample]:
        """What cyclictest finds of the receiver's CPU."""
        core = setting.cores.switch
        where = replace(self._where, cpus={core: RECEIVER})

        def measure() -> Figures:
            found = Cyclictest(fine=True).measure(where, self._plan.slice_seconds, step)
            return figures(found[CYCLICTEST][core].histogram, "timer_")

        time.sleep(_SETTLE_SECONDS)
        return setting.samples([], measure)


def figures(found: Histogram, prefix: str, names: Sequence[str] = _FIGURES) -> Figures:
    """In µs. Raises Fault where nothing was measured."""
    latency = found.latency()
    if latency is None:
        raise Fault("nothing was measured: see the logs")
    return {f"{prefix}{name}_us": getattr(latency, name.replace(".", "_")) for name in names}
