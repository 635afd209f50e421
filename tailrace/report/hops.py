"""Tables of where frames' time goes, for the terminal and the HTML report: the same rows in both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.process.plain import plain
from tailrace.report.figures import count, microseconds, traced_names
from tailrace.results.model import Direction, Hops, Run, SlowFrame

SLOWEST = 10
"""How many of the slowest frames are shown; results.json has all."""

TITLES = ("part of the path", "avg µs", "share", "p50 µs", "p99 µs", "p99.9 µs", "max µs")


@dataclass(frozen=True)
class Table:
    """One direction of a trial, taken apart."""

    heading: str
    rows: tuple[tuple[str, ...], ...]
    slow_titles: tuple[str, ...]
    slow_rows: tuple[tuple[str, ...], ...]
    remark: str


def tables(run: Run) -> Iterator[Table]:
    """A table for each direction whose hops were traced."""
    names = traced_names(run)
    for trial in run.trials:
        for way in trial.directions:
            if way.hops is not None:
                yield _table(f"{names[trial.name]}, {plain(way.name)}", way, way.hops)


def _table(heading: str, way: Direction, hops: Hops) -> Table:
    rows = [
        (
            _part(part.kind, part.name),
            microseconds(part.latency_us.average),
            f"{part.share:.1%}",
            *(microseconds(getattr(part.latency_us, name)) for name in ("p50", "p99", "p99_9", "max")),
        )
        for part in hops.parts
    ]
    rows.append(("together", microseconds(hops.average_us), "100.0%", "", "", "", ""))
    sampled = count(hops.frames + hops.left_out)
    remark = f"Averages add up; percentiles do not. Of {sampled} sampled frames of {count(way.received)}"
    remark += f", {count(hops.left_out)} were not traced completely." if hops.left_out else ", all were traced."
    if hops.slowest_untraced:
        remark += (
            f" Of the trial's slowest, {hops.slowest_untraced} were overwritten in the trace before they were read."
        )
    # Which replica a frame was with stands in results.json; its parts are the same.
    names = tuple(part.name for part in hops.parts) if hops.slowest else ()
    shown = [each for each in hops.slowest if len(each.parts) == len(names)]
    if len(shown) < len(hops.slowest):
        remark += f" {len(hops.slowest) - len(shown)} took another path, and are only in results.json."
    shown = shown[:SLOWEST]
    return Table(
        heading=heading,
        rows=tuple(rows),
        slow_titles=("slowest frames", "latency µs", *(plain(name) for name in names)),
        slow_rows=tuple(_slow(each) for each in shown),
        remark=remark,
    )


def _part(kind: str, name: str) -> str:
    return plain(f"function {name}" if kind == "function" else name)


def _slow(frame: SlowFrame) -> tuple[str, ...]:
    return (count(frame.sequence), microseconds(frame.latency_us), *map(microseconds, frame.parts_us))
