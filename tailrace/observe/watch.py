"""`tailrace watch`: a measurement that is under way, seen from its run folder. It only reads; the tester never waits.

A soak is followed by its interval log, which is on disk interval by interval; before there is one, by its results.json.
A run of the host is `tailrace.observe.watch_host`'s. What is drawn is made of a `View`, purely; how often, and on
what, is `tailrace.cli.watch`.
"""

from __future__ import annotations

import math
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tailrace.observe.watch_host import METHODS as HOST
from tailrace.observe.watch_host import HostView
from tailrace.observe.watch_view import State, Watched, events, heading
from tailrace.process.plain import plain
from tailrace.report.figures import MISSING, chain_name, count, mega, microseconds, profile_name
from tailrace.results import ResultError, Run, load_run
from tailrace.results.interval_log import SUFFIX, LogReader
from tailrace.results.intervals import Interval, Way
from tailrace.results.lock import is_held
from tailrace.results.model import timestamp
from tailrace.results.record import FAULTS
from tailrace.results.run import RESULTS
from tailrace.results.soak import Totals, find_log, slowest_ns
from tailrace.spec.units import show_span

_BLOCKS = "▁▂▃▄▅▆▇█"
SOAK = "soak"
#: Of the newest intervals, how many maxima are remembered for the line of blocks.
_REMEMBERED = 600


@dataclass
class View:
    """A soak as it stands, read on at every look."""

    folder: Path
    reader: LogReader
    totals: Totals
    maxima: deque[tuple[int, bool]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    """Of the newest intervals: the slowest frame in ns, and whether anything was lost, repeated or out of order."""
    looked: float = 0.0

    @classmethod
    def open(cls, folder: Path, *, histograms: bool = False) -> View:
        """The soak in a run folder; with the distribution of each interval if it is wanted. Raises ResultError if there
        is none."""
        reader = LogReader(find_log(folder), histograms=histograms)
        return cls(folder, reader, Totals(reader.header))

    def look(self) -> View:
        for entry in self.reader.entries():
            self.totals.add(entry)
            if isinstance(entry, Interval):
                self.maxima.append((slowest_ns(entry), any(faults(way) for way in entry.ways)))
        self.looked = time.time()
        return self

    @property
    def state(self) -> State:
        ended = self.totals.ended
        if ended is not None and ended.reason is None:
            return "done"
        if is_held(self.folder):  # also one that has ended, and is about to be gone on with
            return "running"
        return "cut off" if ended is None else "broken off"

    @property
    def left_s(self) -> float:
        return max(self.totals.header.duration_s - self.totals.measured_s, 0.0)

    def draw(self, width: int, /) -> RenderableType:
        return draw(self, width)

    def as_data(self) -> dict[str, Any]:
        totals, header = self.totals, self.totals.header
        return {
            "folder": str(self.folder),
            "name": header.name,
            "state": self.state,
            "asked_s": header.duration_s,
            "measured_s": totals.measured_s,
            "intervals": totals.intervals,
            "offered_pps": header.offered_pps,
            "directions": {
                name: {**total.counts, "min_us": total.min_ns / 1e3, "max_us": total.max_ns / 1e3}
                for name, total in totals.ways.items()
            },
            "last": _interval_data(totals.last),
            "worst": _interval_data(totals.worst),
            "gaps": [gap.model_dump() for gap in totals.gaps],
            "clock_steps": [step.model_dump() for step in totals.clock_steps],
        }


def faults(way: Way) -> bool:
    """Whether in an interval a direction's frames did not all come once, in order, and nothing else."""
    return any(getattr(way, fault) > 0 for fault in FAULTS)


@dataclass
class Beginning:
    """A soak without an interval log: what it stands on is measured first."""

    folder: Path
    run: Run

    def look(self) -> Watched:
        with suppress(ResultError):  # no log yet, or one that is just being made
            return View.open(self.folder).look()
        self.run = load_run(self.folder)
        return self

    @property
    def state(self) -> State:
        if self.run.finished is not None:
            return "broken off"
        return "running" if is_held(self.folder) else "cut off"

    def as_data(self) -> dict[str, Any]:
        state = self.state
        reason = None if state == "running" else self.run.reason
        return {"folder": str(self.folder), "name": self.run.name, "state": state, "intervals": 0, "reason": reason}

    def draw(self, _width: int, /) -> RenderableType:
        if self.state == "running":
            text = Text("no interval yet: the rate is searched for unless it is given, and the tester is soaked alone")
        else:
            text = Text(f"{self.state} before its first interval: {plain(str(self.run.reason))}", style="yellow")
        return Group(heading(self.folder, self.run.name), text)


def watched(folder: Path) -> Watched:
    """The soak in a run folder, of traffic or of the host, to be looked at. Raises ResultError if there is none."""
    if not any((folder / "histograms").glob(f"*{SUFFIX}")):
        view = HostView.open(folder)
        if view.run.method in HOST:
            return view
        if view.run.method == SOAK:
            return Beginning(folder, view.run)
    return View.open(folder)


def by_time(runs: Path) -> list[Path]:
    """The run folders in a folder, of any method; the one that was written to last is the first."""
    written: dict[Path, float] = {}
    for pattern, depth in ((f"*/{RESULTS}", 0), (f"*/histograms/*{SUFFIX}", 1)):
        for path in runs.glob(pattern):
            folder = path.parents[depth]
            with suppress(FileNotFoundError):
                written[folder] = max(written.get(folder, 0.0), path.stat().st_mtime)
    return sorted(written, key=written.__getitem__, reverse=True)


def newest(runs: Path) -> Path:
    """The run folder of the soak, of traffic or the host, that was written to last. Raises ResultError if none is."""
    for folder in by_time(runs):
        with suppress(ResultError):
            watched(folder)
            return folder
    raise ResultError(f"{runs}: no soak in it; begin one with `tailrace measure soak SPEC` or `host`, or name a run")


def _interval_data(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    data = {name: value for name, value in vars(interval).items() if name not in ("ways", "histograms")}
    return {**data, "ways": [vars(way) for way in interval.ways]}


# --- drawing -------------------------------------------------------------------------------------------------------


def blocks(values: list[tuple[int, bool]], width: int) -> Text:
    """Maxima as a line of blocks on a logarithmic scale; neighbours that share a block show their largest."""
    step = max(1, math.ceil(len(values) / max(width, 1)))
    groups = [values[at : at + step] for at in range(0, len(values), step)]
    heights = [max(value for value, _ in group) for group in groups]
    low, high = (math.log(max(edge, 1)) for edge in (min(heights, default=1), max(heights, default=1)))
    line = Text(no_wrap=True)
    for group, value in zip(groups, heights, strict=True):
        share = (math.log(max(value, 1)) - low) / (high - low) if high > low else 0.0
        bad = any(fault for _, fault in group)
        line.append(_BLOCKS[round(share * (len(_BLOCKS) - 1))], style="red" if bad else "cyan")
    return line


def draw(view: View, width: int = 80) -> RenderableType:
    """The whole picture; a dozen lines."""
    totals, header = view.totals, view.totals.header
    rate = f"{mega(header.offered_pps / 1e6)} Mpps each way"
    what = f"{profile_name(header.profile)}, {chain_name(header.functions)}, {rate}"
    parts: list[RenderableType] = [heading(view.folder, what), _progress(view)]
    if view.state == "broken off" and totals.ended is not None and totals.ended.reason:
        parts.append(Text(f"broken off: {plain(totals.ended.reason)}", style="yellow"))
    if totals.last is None:
        parts.append(Text(f"the first interval of {header.interval_s:g} s is being measured", style="dim"))
        return Group(*parts)
    parts.append(_ways(totals))
    shown = list(view.maxima)[-10 * width :]
    parts.append(Text(f"slowest frame of each of the last {len(shown):,} intervals (red: loss, copies or disorder)"))
    parts.append(blocks(shown, width))
    if totals.worst is not None:
        parts.append(Text(f"worst: {microseconds(slowest_ns(totals.worst) / 1e3)} µs {_when(totals.worst)}"))
    return Group(*parts, *events(totals.gaps, totals.clock_steps))


def _progress(view: View) -> RenderableType:
    header = view.totals.header
    state = view.state
    text = f" {show_span(view.totals.measured_s)} of {show_span(header.duration_s)}, "
    if state == "running":
        text += f"until {timestamp(view.looked + view.left_s):%Y-%m-%d %H:%M} UTC"
    else:
        text += state
    table = Table.grid(expand=False)
    bar = ProgressBar(total=header.duration_s, completed=min(view.totals.measured_s, header.duration_s), width=24)
    table.add_row(bar, Text(text, style="default" if state in ("running", "done") else "yellow"))
    return table


def _when(interval: Interval) -> str:
    return f"at {show_span(interval.start_s)} ({timestamp(interval.real_time):%Y-%m-%d %H:%M:%S} UTC)"


def _ways(totals: Totals) -> Table:
    """A column for each direction: counts of billions need the room."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    last = totals.last
    now = {way.name: way for way in last.ways} if last else {}
    rows: dict[str, list[Text | str]] = {}
    for name, total in totals.ways.items():
        table.add_column(plain(name), justify="right", no_wrap=True)
        counts, way = total.counts, now[name]
        heard = counts["received"]
        seconds = last.end_s - last.start_s if last else 0.0
        rows.setdefault("frames sent", []).append(count(counts["sent"]))
        rows.setdefault("unsent", []).append(count(counts["offered"] - counts["sent"]))
        for fault in FAULTS:
            # What hardly ever is anything has a line where it is.
            if fault in ("beyond_window", "foreign") and not any(each.counts[fault] for each in totals.ways.values()):
                continue
            number, title = counts[fault], fault.replace("_", " ")
            rows.setdefault(title, []).append(Text(count(number), style="bold red" if number else "default"))
        ever = (total.min_ns, total.sum_ns / heard if heard else 0.0, total.max_ns)
        rows.setdefault("µs so far: min avg max", []).append(_three(ever, known=heard > 0))
        latest = (way.p50_ns, way.p99_ns, way.max_ns)
        rows.setdefault("µs now: p50 p99 max", []).append(_three(latest, known=way.received > 0))
        rows.setdefault("Mpps now", []).append(mega(way.received / seconds / 1e6) if seconds else MISSING)
    for title, cells in rows.items():
        table.add_row(title, *cells)
    return table


def _three(values: tuple[float, ...], *, known: bool) -> str:
    """Three latencies, which are given in ns."""
    return "   ".join(f"{microseconds(ns / 1e3) if known else MISSING:>6}" for ns in values)
