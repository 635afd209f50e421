"""Soaks made up for tests: the intervals that a tester would have handed over, hours of them in seconds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tailrace.results.histogram import Histogram, index_of
from tailrace.results.interval_log import SUFFIX, IntervalLog
from tailrace.results.intervals import Header, Interval, Part, Way
from tailrace.results.soak import Totals

START = 1_795_000_000.0
WAYS = ("a-to-b", "b-to-a")


def header(seconds: float = 100.0, interval: float = 10.0, pps: float = 10_000.0, **changes: Any) -> Header:
    streams = tuple({"name": name, "from": name[0], "to": name[-1], "rate": pps, "frames": [64]} for name in WAYS)
    made = Header("soak-64", "64", 1, seconds, interval, pps, None, None, streams, START)
    return replace(made, **changes)


def part(number: int = 1, offset: float = 0.0, boot: str = "this-boot") -> Part:
    return Part(number, offset, START + offset, boot, 1000.0 + offset)


def histogram(chance: random.Random, base: int = 5_000, samples: int = 60) -> Histogram:
    values = [base + int(chance.lognormvariate(7, 0.5)) for _ in range(samples)]
    return Histogram(tuple(sorted(Counter(map(index_of, values)).items())), min(values), max(values), sum(values))


def way(name: str, found: Histogram, **changes: int) -> Way:
    """One direction of an interval in which all that was sent came back, but for what `changes` say."""
    count = found.count
    latency = found.latency()
    assert latency is not None
    made = Way(
        name=name, offered=count, sent=count, refused=0, received=count, lost=0, duplicate=0, out_of_sequence=0,
        beyond_window=0, foreign=0, sent_bytes=64 * count, received_bytes=64 * count, in_flight=0, min_ns=found.min_ns,
        max_ns=found.max_ns, sum_ns=found.sum_ns, p50_ns=round(latency.p50 * 1e3), p99_ns=round(latency.p99 * 1e3),
    )  # fmt: skip
    return replace(made, **changes)


def intervals(
    count: int, *, of: Part | None = None, length: float = 10.0, seed: int = 1, samples: int = 60
) -> Iterator[Interval]:
    """Intervals of one part that follow each other."""
    of = of or part()
    chance = random.Random(seed)
    for number in range(count):
        found = tuple(histogram(chance, samples=samples) for _ in WAYS)
        start = of.offset_s + number * length
        yield Interval(
            of.number, number, start, start + length, START + start + length, 0.0,
            tuple(map(way, WAYS, found)), found,
        )  # fmt: skip


def write(folder: Path, count: int = 5, *, made: Header | None = None, end: bool = True) -> tuple[Path, Totals]:
    """A log of one part in `folder`, and what it comes to."""
    made = made or header(10.0 * count)
    path = folder / f"{made.name}{SUFFIX}"
    log = IntervalLog.create(path, made)
    totals = Totals(made)
    log.begin(part())
    totals.add(part())
    for interval in intervals(count):
        log.add(interval)
        totals.add(interval)
    if end:
        log.end(None)
    log.close()
    return path, totals
