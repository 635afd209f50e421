"""The measurement that is under way, or the last one, from what it has written to its run folder; it never waits for
who looks.

A soak has a distribution for each interval, other methods one for each trial. Both are the columns of a heat map.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tailrace.observe.watch import SOAK, View, by_time, watched
from tailrace.observe.watch_host import METHODS as HOST
from tailrace.results import ResultError, Run, load_run
from tailrace.results.histogram import Histogram, bounds
from tailrace.results.intervals import Interval
from tailrace.results.lock import is_held
from tailrace.results.model import Latency, Trial
from tailrace.results.run import RESULTS
from tailrace.results.stored import read_run

_EVERY = 0.9
"""Seconds between two looks: all who ask within that time get the same."""
_COLUMNS = 240
"""Columns of a heat map; of more, neighbours are one."""
_ROWS_A_POWER = 4
"""Rows of a heat map for each power of two of latency."""
_SLOWEST = 20
_COUNTS = ("sent", "received", "lost", "duplicate", "out_of_sequence")


class HeatMap:
    """Frames by latency over time, in bounded room: where it is full, each two neighbours become one."""

    def __init__(self) -> None:
        self._columns: list[tuple[str, dict[int, int]]] = []
        self._each = 1
        self._in_last = 1

    def add(self, label: str, *histograms: Histogram) -> None:
        if self._in_last == self._each:
            if len(self._columns) == _COLUMNS:
                pairs = zip(self._columns[::2], self._columns[1::2], strict=True)
                self._columns = [(first, _sum(counts, more)) for (first, counts), (_, more) in pairs]
                self._each *= 2
            self._columns.append((label, {}))
            self._in_last = 0
        _, counts = self._columns[-1]
        for histogram in histograms:
            for index, count in histogram.counts:
                row = int(math.log2(max(bounds(index)[1], 1)) * _ROWS_A_POWER)
                counts[row] = counts.get(row, 0) + count
        self._in_last += 1

    def document(self) -> dict[str, Any]:
        """`from_us`: the smallest latency of each row. A column has its label and [row, frames]."""
        rows = [row for _, counts in self._columns for row in counts]
        first, last = min(rows, default=0), max(rows, default=-1)
        return {
            "from_us": [2 ** (row / _ROWS_A_POWER) / 1e3 for row in range(first, last + 1)],
            "columns": [
                {"label": label, "counts": [[row - first, count] for row, count in sorted(counts.items())]}
                for label, counts in self._columns
            ],
        }


def _sum(one: dict[int, int], two: dict[int, int]) -> dict[int, int]:
    return {row: one.get(row, 0) + two.get(row, 0) for row in one.keys() | two.keys()}


class Measurement:
    """The newest run of a folder of runs, for several threads."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._lock = threading.Lock()
        self._looked = float("-inf")
        self._document: dict[str, Any] = {}
        self._run: dict[str, Any] = {}
        self._stamp: tuple[Path, int] | None = None
        """Of which file `_run` was made: it is read again where it has changed."""
        self._soak: _Soak | None = None

    def document(self) -> dict[str, Any]:
        """`why` where nothing can be shown; else of the newest run that can be read."""
        with self._lock:
            if time.monotonic() - self._looked >= _EVERY:
                self._document = self._look()
                self._looked = time.monotonic()
            return self._document

    def _look(self) -> dict[str, Any]:
        why = f"nothing has been measured in {self._runs} yet; see `tailrace measure --help`"
        for folder in by_time(self._runs):
            try:
                return self._read(folder)
            except ResultError as error:
                why = str(error)
        return {"why": why}

    def _read(self, folder: Path) -> dict[str, Any]:
        """Raises ResultError."""
        if self._soak is None or self._soak.folder != folder:
            self._soak = None
            with suppress(ResultError):  # no soak, or one without an interval yet
                self._soak = _Soak(folder)
        if self._soak is not None:
            return self._soak.document()
        try:
            stamp = folder, (folder / RESULTS).stat().st_mtime_ns
        except OSError as error:
            raise ResultError(f"{folder / RESULTS}: {error.strerror}") from None
        if stamp != self._stamp:
            run = load_run(folder)
            self._run = _of_host(folder, run) if run.method in (*HOST, SOAK) else _of_trials(folder)
            self._stamp = stamp
        return {**self._run, "state": "running" if is_held(folder) else self._run["ended"]}


class _Soak:
    """One soak of traffic: its log is read once, and then what is added."""

    def __init__(self, folder: Path) -> None:
        """Raises ResultError if there is none."""
        self.folder = folder
        self._view = View.open(folder, histograms=True)
        self._map = HeatMap()

    def document(self) -> dict[str, Any]:
        """Raises ResultError if it has gone."""
        for entry in self._view.reader.entries():
            self._view.totals.add(entry)
            if isinstance(entry, Interval):
                self._map.add(f"{entry.start_s:.0f} s", *entry.histograms)
        said = self._view.as_data()
        ways = [
            {
                "trial": said["name"],
                "way": name,
                **{each: way.counts[each] for each in _COUNTS},
                **_latency(way.histogram.latency()),
            }
            for name, way in self._view.totals.ways.items()
        ]
        more = {"run": self.folder.name, "method": SOAK, "ways": ways, "slowest": [], "heat": self._map.document()}
        return {**said, **more}


def _of_host(folder: Path, run: Run) -> dict[str, Any]:
    """A run of the host, or a soak that has no interval yet: as `tailrace watch` has it."""
    said = watched(folder).as_data()
    return {**said, "run": folder.name, "method": run.method, "ended": said["state"], "ways": [], "slowest": []}


def _of_trials(folder: Path) -> dict[str, Any]:
    stored = read_run(folder)
    run = stored.run
    heat = HeatMap()
    for trial in run.trials:
        if trial.name in stored.histograms:
            heat.add(trial.name, stored.histograms[trial.name])
    slowest = sorted((frame for trial in run.trials for frame in _slowest(trial)), key=lambda each: -each["latency_us"])
    return {
        "run": folder.name,
        "name": run.name,
        "method": run.method,
        "ended": "cut off" if run.finished is None else "done" if run.valid else "broken off",
        "reason": run.reason,
        "ways": [
            {
                "trial": trial.name,
                "way": way.name,
                **{each: getattr(way, each) for each in _COUNTS},
                **_latency(way.latency_us),
            }
            for trial in run.trials
            for way in trial.directions
        ],
        "slowest": slowest[:_SLOWEST],
        "heat": heat.document(),
    }


def _latency(latency: Latency | None) -> dict[str, Any]:
    return {"latency_us": latency and latency.model_dump(by_alias=True)}


def _slowest(trial: Trial) -> Iterator[dict[str, Any]]:
    """The slowest frames of a trial whose hops were traced: where each was held up most, and why if that is known."""
    for way in trial.directions:
        if way.hops is None:
            continue
        why = {frame.sequence: frame for frame in way.hops.causes.frames} if way.hops.causes else {}
        for frame in way.hops.slowest:
            part, us = max(zip(frame.parts, frame.parts_us, strict=True), key=lambda each: each[1], default=("", 0.0))
            causes = why[frame.sequence].causes if frame.sequence in why else ()
            yield {
                "trial": trial.name,
                "way": way.name,
                "sequence": frame.sequence,
                "latency_us": frame.latency_us,
                "part": part,
                "part_us": us,
                "cause": causes[0].text if causes else "",
            }
