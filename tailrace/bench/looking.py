"""What it costs the switch that somebody looks: a hop under saturated traffic with the dashboard's page open, in turn
with the same hop with none.

What counts is the switch's cycles a packet, of polls that found some: those that the page takes from its core's caches
and from its counters' lines are in them. Packets a second are not to be compared on two cores: there the server and the
browser share the core of the guests, who then have less time to send.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tailrace.bench import testpmd
from tailrace.bench.browser import CHROMIUM
from tailrace.bench.compare import Plan, Side, Step, after, compare, total_seconds
from tailrace.bench.looker import dashboard_of, looked_at
from tailrace.bench.model import TAILRACE, Comparison, Ratio, Sample
from tailrace.bench.setting import Setting
from tailrace.bench.sides import running
from tailrace.bench.window import saturate, side_seconds
from tailrace.errors import Mistake
from tailrace.measure.progress import Reporter
from tailrace.resources import hugepages
from tailrace.resources.place import POLLER_NICE

OPEN, NONE = "page open", "no page"
START_SECONDS = 4.0
OPEN_SECONDS = 8.0
RATIOS = (Ratio("cycles", "cycles_per_packet", OPEN, NONE),)
_AMONG_POLLERS = ("nice", "-n", str(POLLER_NICE))
"""Else the guests would leave a hundredth of their core, and there would be no page."""


@dataclass(frozen=True)
class LookingPlan(Plan):
    """What is to be measured. Raises Mistake where that cannot be."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if CHROMIUM is None:
            raise Mistake("bench dashboard needs Chromium; `apt-get install chromium`")

    def sides(self, folder: Path) -> Sequence[Side]:
        seconds = side_seconds(self.seconds) + START_SECONDS
        return [
            Side(OPEN, seconds + OPEN_SECONDS, partial(_open, self, folder)),
            Side(NONE, seconds, partial(_hop, self, lambda: 0)),
        ]

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, self.sides(Path()))


def run(plan: LookingPlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all pairs."""
    return compare(
        "dashboard-hop",
        plan,
        plan.sides(folder),
        RATIOS,
        folder=folder,
        report=report,
        pages=testpmd.MEMORY_MIB // hugepages.PAGE_MIB + 8,
        programs=("tailrace-switch",),
    )


def _open(plan: LookingPlan, folder: Path, setting: Setting, step: Step) -> list[Sample]:
    with _page(folder) as pictures:
        return _hop(plan, pictures, setting, after(step, OPEN_SECONDS))


@contextmanager
def _page(folder: Path) -> Iterator[Callable[[], int]]:
    """The page, open and waiting for a switch; how many pictures it has shown."""
    with (
        dashboard_of(folder, _AMONG_POLLERS) as (_, link),
        looked_at(link, within=_AMONG_POLLERS, state="no switch") as page,
    ):
        yield lambda: int(page.evaluate("bench.pictures"))


def _hop(plan: LookingPlan, pictures: Callable[[], int], setting: Setting, step: Step) -> list[Sample]:
    """One side; with it, how many pictures a second were shown meanwhile."""
    with running(setting, TAILRACE) as (switch, sockets):
        step(START_SECONDS / 2)
        before, began = pictures(), time.monotonic()
        samples = saturate(setting, switch, sockets, plan, after(step, START_SECONDS / 2))
        each_second = (pictures() - before) / (time.monotonic() - began)
    return [replace(each, figures={**each.figures, "pictures_per_s": round(each_second, 2)}) for each in samples]
