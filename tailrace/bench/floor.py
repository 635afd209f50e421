"""How far the hop is from the floor: a bare copy of the same bytes between the same kind of buffers, nothing around.

The floor (`tailrace-floor`) has the same distance between its cores: one core writes frames and reads them, as guests
do, and the other only copies. What the hop takes beyond that is what rings, checks and counters cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tailrace.bench import testpmd
from tailrace.bench.bare import bare
from tailrace.bench.compare import Plan, Side, Step, compare, total_seconds
from tailrace.bench.hop import HopPlan, pages
from tailrace.bench.model import TAILRACE, Comparison, Figures, Ratio, Sample
from tailrace.bench.setting import Setting
from tailrace.bench.sides import ALONE
from tailrace.bench.window import side_seconds, windows_of
from tailrace.measure.progress import Reporter

FLOOR = "floor"
FLOOR_PROGRAM = "tailrace-floor"
RATIOS = (Ratio("cycles", "cycles_per_packet", TAILRACE, FLOOR),)
"""Above 1: so many times the floor's cycles."""


@dataclass(frozen=True)
class FloorPlan(Plan):
    """What is to be measured."""

    @property
    def sides(self) -> Sequence[Side]:
        hop = HopPlan(self.frame, self.pairs, self.seconds, self.cores, ALONE).sides
        return [*hop, Side(FLOOR, side_seconds(self.seconds), partial(_side, self))]

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, self.sides)


def run(plan: FloorPlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all pairs."""
    testpmd.program()
    return compare(
        FLOOR,
        plan,
        plan.sides,
        RATIOS,
        folder=folder,
        report=report,
        pages=pages([TAILRACE]),
        programs=("tailrace-switch", FLOOR_PROGRAM),
    )


def _side(plan: FloorPlan, setting: Setting, step: Step) -> list[Sample]:
    windows = windows_of(plan.seconds)
    done = 0.0

    def measured() -> Figures:
        nonlocal done
        figures = _floor(plan, setting, plan.seconds / windows)
        done += plan.seconds / windows
        step(done)
        return figures

    return setting.samples([], measured, windows)


def _floor(plan: FloorPlan, setting: Setting, seconds: float) -> Figures:
    found = bare(setting, FLOOR_PROGRAM, seconds, "--frame", str(plan.frame))
    return {name: found[name] for name in ("cycles_per_packet", "mpps")}
