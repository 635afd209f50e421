"""What it costs the switch that somebody looks: a hop under saturated traffic with the dashboard's page open, in turn
with the same hop while the page plays a record of it, while a process that reads nothing is as busy, and with no page.

What counts is the switch's cycles a packet, of polls that found some: those that the page takes from its core's caches
and from its counters' lines are in them. Packets a second are not to be compared on two cores: there the server and the
browser share the core of the guests, who then have less time to send, and the switch finds other bursts. Of a record
the page draws the same, but nobody reads the switch's counters or asks it anything; it draws less often, though. So
the last word is that of the busy process, which takes as much of that core as the page and its server did.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
from tailrace.process.process import cpu_seconds, descendants
from tailrace.resources import hugepages
from tailrace.resources.place import POLLER_NICE

OPEN, RECORD, BUSY, NONE = "page open", "page of a record", "as busy a process", "no page"
START_SECONDS = 4.0
OPEN_SECONDS = 8.0
RATIOS = (
    Ratio("cycles", "cycles_per_packet", OPEN, RECORD),
    Ratio("cycles, by as busy a process", "cycles_per_packet", OPEN, BUSY),
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
#: Takes so much of a core, as the page does: ten times a second a piece.
_WORK = """import os, sys, time
share, parent, began = float(sys.argv[1]), int(sys.argv[2]), time.monotonic()
while os.getppid() == parent:
    due = share * (time.monotonic() - began)
    while time.process_time() < due:
        pass
    time.sleep(0.1)
"""
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
        used: list[float] = []  # of a core, by each page that was open

        def side(name: str, page: Page, open_s: float = 0.0, note: Callable[[float], None] = lambda _: None) -> Side:
            return Side(name, seconds + open_s, partial(_side, self, page, open_s, note))

        return [
            side(OPEN, partial(_live, folder, made / _RECORD), OPEN_SECONDS, used.append),
            side(RECORD, partial(_replayed, made), OPEN_SECONDS),
            side(BUSY, lambda: _busy(used[-1])),
            side(NONE, lambda: nullcontext(lambda: 0)),
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
Page = Callable[[], AbstractContextManager[Shown]]


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


@contextmanager
def _busy(share: float) -> Iterator[Shown]:
    """A process that takes as much of a core."""
    argv = [*_AMONG_POLLERS, sys.executable, "-I", "-c", _WORK, f"{share:.4f}", str(os.getpid())]
    with subprocess.Popen(argv) as process:
        try:
            yield lambda: 0
        finally:
            process.kill()


def _side(
    plan: LookingPlan, page: Page, open_s: float, note: Callable[[float], None], setting: Setting, step: Step
) -> list[Sample]:
    """A saturated hop, while a page shows something; with it, how many pictures a second were shown meanwhile, and how
    much of a core that took, which is noted."""
    step = after(step, open_s)
    with page() as pictures:
        lookers = descendants(os.getpid())
        with running(setting, TAILRACE) as (switch, sockets):
            step(START_SECONDS / 2)
            watched = _Watched(lookers, after(step, START_SECONDS / 2))
            before, began = pictures(), time.monotonic()
            samples = saturate(setting, switch, sockets, plan, watched.step)
            each_second = (pictures() - before) / (time.monotonic() - began)
    note(watched.share)
    figures = {"pictures_per_s": round(each_second, 2), "page_percent": round(100 * watched.share, 2)}
    return [replace(each, figures={**each.figures, **figures}) for each in samples]


class _Watched:
    """What processes take of a core while the hop is measured: from the first step to the last."""

    def __init__(self, processes: Sequence[int], step: Step) -> None:
        self._processes, self._step = processes, step
        self._seen: list[tuple[float, float]] = []

    def step(self, done: float) -> None:
        self._seen.append((time.monotonic(), sum(map(cpu_seconds, self._processes))))
        self._step(done)

    @property
    def share(self) -> float:
        (began, before), (ended, now) = self._seen[0], self._seen[-1]
        return (now - before) / (ended - began) if ended > began else 0.0
