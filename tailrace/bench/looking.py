"""What it costs the switch that somebody looks: a hop under saturated traffic with the dashboard's page open, in turn
with the same hop while the page plays a record of it, and with no page.

What counts is the switch's cycles a packet, of polls that found some: those that the page takes from its core's caches
and from its counters' lines are in them. Packets a second are not to be compared on two cores: there the server and the
browser share the core of the guests, who then have less time to send, and the switch finds other bursts. Of a record
the page draws the same and takes as much of that core, but nobody reads the switch's counters or asks it anything.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tailrace.bench import testpmd
from tailrace.bench.browser import CHROMIUM, Browser
from tailrace.bench.compare import Plan, Side, Step, after, compare, total_seconds
from tailrace.bench.looker import dashboard_of, looked_at, wait_for
from tailrace.bench.model import TAILRACE, Comparison, Ratio, Sample
from tailrace.bench.setting import Setting
from tailrace.bench.sides import running
from tailrace.bench.window import saturate, side_seconds
from tailrace.errors import Failure, Mistake
from tailrace.measure.progress import Reporter
from tailrace.resources import hugepages
from tailrace.resources.place import POLLER_NICE

OPEN, RECORD, NONE = "page open", "page of a record", "no page"
START_SECONDS = 4.0
OPEN_SECONDS = 8.0
RATIOS = (
    Ratio("cycles", "cycles_per_packet", OPEN, RECORD),
    Ratio("cycles, by no page", "cycles_per_packet", OPEN, NONE),
)
_RECORD = "looked-at.record"
_AMONG_POLLERS = ("nice", "-n", str(POLLER_NICE))
"""Else the guests would leave a hundredth of their core, and there would be no page."""
_COUNT = """(() => {
  window.bench.shown = 0;
  new MutationObserver(() => window.bench.shown++).observe(
    document.querySelector("main"), {attributes: true, attributeFilter: ["data-time"]});
})()"""
#: Plays from a moment on, and from there again once it has come to the end. What the page has drawn is what it goes by.
_PLAY = """setInterval(() => {
  const slider = document.querySelector(".replay input"), play = document.querySelectorAll(".replay button")[1];
  const drawn = slider.getAttribute("aria-valuetext"), begin = new Date(BEGIN * 1000).toLocaleTimeString("en-GB");
  if (play.getAttribute("aria-pressed") === "true") {
    if (Number(slider.value) >= Number(slider.max)) play.click();
  } else if (drawn === begin && document.querySelector(".pill").textContent === "replay") {
    play.click();
  } else {
    slider.value = BEGIN;
    slider.dispatchEvent(new Event("input", {bubbles: true}));
  }
}, 100)"""


@dataclass(frozen=True)
class LookingPlan(Plan):
    """What is to be measured. Raises Mistake where that cannot be."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if CHROMIUM is None:
            raise Mistake("bench dashboard needs Chromium; `apt-get install chromium`")

    def sides(self, folder: Path, made: Path) -> Sequence[Side]:
        """`folder` is the node's, `made` is for what is recorded."""
        seconds = side_seconds(self.seconds) + START_SECONDS
        return [
            Side(
                OPEN, seconds + OPEN_SECONDS, partial(_side, self, partial(_live, folder, made / _RECORD), OPEN_SECONDS)
            ),
            Side(RECORD, seconds + OPEN_SECONDS, partial(_side, self, partial(_replayed, made), OPEN_SECONDS)),
            Side(NONE, seconds, partial(_side, self, lambda: nullcontext(lambda: 0), 0.0)),
        ]

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, self.sides(Path(), Path()))


def run(plan: LookingPlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all pairs."""
    with tempfile.TemporaryDirectory(prefix="tailrace-bench-") as made:
        return compare(
            "dashboard-hop",
            plan,
            plan.sides(folder, Path(made)),
            RATIOS,
            folder=folder,
            report=report,
            pages=testpmd.MEMORY_MIB // hugepages.PAGE_MIB + 8,
            programs=("tailrace-switch",),
        )


Shown = Callable[[], int]
"""How many pictures the page has shown."""


@contextmanager
def _live(folder: Path, record: Path) -> Iterator[Shown]:
    """The page, open and waiting for a switch. What it shows is recorded, for the side that follows."""
    record.unlink(missing_ok=True)  # of the pair before
    with (
        dashboard_of(folder, "--record", str(record), within=_AMONG_POLLERS) as (_, link),
        looked_at(link, within=_AMONG_POLLERS, state="no switch") as page,
    ):
        yield _counted(page)


@contextmanager
def _replayed(made: Path) -> Iterator[Shown]:
    """The page, which plays what it has shown on the side before, again and again. Nothing is up in its folder."""
    record = made / _RECORD
    with (
        dashboard_of(made / "node", "--replay", str(record), within=_AMONG_POLLERS) as (_, link),
        looked_at(link, within=_AMONG_POLLERS, state="no switch") as page,
    ):
        wait_for(page, "document.querySelector('.replay input') !== null")
        page.evaluate(_PLAY.replace("BEGIN", str(_first_up(record))))
        yield _counted(page)


def _first_up(record: Path) -> float:
    """When a switch was seen first. Raises Failure."""
    with record.open("rb") as lines:
        for line in lines:
            if line.startswith(b'{"at":') and b'"up":true' in line:
                return float(json.loads(line)["at"])
    raise Failure("the dashboard has recorded no picture of the switch")


def _counted(page: Browser) -> Shown:
    page.evaluate(_COUNT)
    return lambda: int(page.evaluate("bench.shown"))


def _side(
    plan: LookingPlan, page: Callable[[], AbstractContextManager[Shown]], open_s: float, setting: Setting, step: Step
) -> list[Sample]:
    """A saturated hop, while a page shows something; with it, how many pictures a second were shown meanwhile."""
    step = after(step, open_s)
    with page() as pictures, running(setting, TAILRACE) as (switch, sockets):
        step(START_SECONDS / 2)
        before, began = pictures(), time.monotonic()
        samples = saturate(setting, switch, sockets, plan, after(step, START_SECONDS / 2))
        each_second = (pictures() - before) / (time.monotonic() - began)
    return [replace(each, figures={**each.figures, "pictures_per_s": round(each_second, 2)}) for each in samples]
