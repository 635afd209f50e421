"""How far the hop is from the floor: a bare copy of the same bytes between the same kind of buffers, nothing around.

The floor (`tailrace-floor`) has the same distance between its cores: one core writes frames and reads them, as guests
do, and the other only copies. What the hop takes beyond that is what rings, checks and counters cost.

What guests do with a frame decides which lines move: those that forward it read its header, those that rewrite it have
written every line of what is copied next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tailrace.bench.bare import bare
from tailrace.bench.compare import Plan, Side, Step, compare, total_seconds
from tailrace.bench.hop import HopPlan, pages
from tailrace.bench.model import TAILRACE, Comparison, Figures, Ratio, Sample
from tailrace.bench.setting import Setting
from tailrace.bench.sides import ALONE
from tailrace.bench.traffic import KINDS, PLAIN, REWRITE
from tailrace.bench.window import side_seconds, windows_of
from tailrace.errors import Mistake
from tailrace.measure.progress import Reporter

FLOOR = "floor"
FLOOR_PROGRAM = "tailrace-floor"
RATIOS = (Ratio("cycles", "cycles_per_packet", TAILRACE, FLOOR),)
"""Above 1: so many times the floor's cycles."""
GUESTS = {"forward": PLAIN, "rewrite": REWRITE}
"""What guests do with a frame before they send it again, and the hop's kind of traffic (traffic.py)."""
SHORT = 256
WAYS = {
    "movsb": ("--copy", "movsb"),
    "next": ("--copy", "next"),
    "ahead": ("--copy", "ahead"),
    f"ring-{SHORT}": ("--ring", str(SHORT)),
}
"""Other ways of the bare copy, in its words (dataplane/bench/floor.c)."""
WAYS_RATIOS = tuple(Ratio(f"mpps_{way}", "mpps", way, FLOOR) for way in WAYS)
"""Above 1: faster than the bare copy as it is."""


@dataclass(frozen=True)
class FloorPlan(Plan):
    """What is to be measured."""

    guest: str = "forward"
    ways: bool = False
    """Besides, the bare copy by other ways."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.guest not in GUESTS:
            raise Mistake(f"--guest {self.guest}: expected {' or '.join(GUESTS)}")

    @property
    def sides(self) -> Sequence[Side]:
        hop = HopPlan(self.frame, self.pairs, self.seconds, self.cores, ALONE, GUESTS[self.guest]).sides
        copies = {FLOOR: (), **(WAYS if self.ways else {})}
        return [
            *hop,
            *(Side(name, side_seconds(self.seconds), partial(_side, self, how)) for name, how in copies.items()),
        ]

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, self.sides)


def run(plan: FloorPlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all pairs."""
    kind = KINDS[GUESTS[plan.guest]]
    kind.check_installed()
    return compare(
        FLOOR,
        plan,
        plan.sides,
        RATIOS + (WAYS_RATIOS if plan.ways else ()),
        folder=folder,
        report=report,
        pages=pages([TAILRACE]),
        programs=("tailrace-switch", FLOOR_PROGRAM, *kind.programs),
        settings={"guest": plan.guest},
    )


def _side(plan: FloorPlan, how: Sequence[str], setting: Setting, step: Step) -> list[Sample]:
    windows = windows_of(plan.seconds)
    done = 0.0

    def measured() -> Figures:
        nonlocal done
        figures = _floor(plan, how, setting, plan.seconds / windows)
        done += plan.seconds / windows
        step(done)
        return figures

    return setting.samples([], measured, windows)


def _floor(plan: FloorPlan, how: Sequence[str], setting: Setting, seconds: float) -> Figures:
    found = bare(setting, FLOOR_PROGRAM, seconds, "--frame", str(plan.frame), "--guest", plan.guest, *how)
    return {name: found[name] for name in ("cycles_per_packet", "mpps")}
