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
from tailrace.results.intervals import End, Header, Interval, Part, Way
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
        log.end(End(None))
    log.close()
    return path, totals


#: Intervals of the made-up soak of 40 hours in which something happens.
SPIKES = {17: 812_345, 4_321: 1_234_567, 14_399: 999_001}
LOSSES = {100: 3, 9_000: 12_345, 9_001: 7}
GAP_AFTER, GAP_S = 6_000, 7_200.0


def forty_hours(count: int = 14_400) -> tuple[Totals, list[Interval]]:
    """A soak of 40 hours in intervals of 10 s: broken off once, with slow frames and losses at known places."""
    chance = random.Random(40)
    usual = [histogram(chance, samples=400) for _ in range(64)]
    totals = Totals(header(10.0 * count, pps=40.0))
    parts = (part(1), part(2, 10.0 * GAP_AFTER + GAP_S, boot="another-boot"))
    found: list[Interval] = []
    for number in range(count):
        of = parts[number >= GAP_AFTER]
        if number in (0, GAP_AFTER):
            totals.add(of)
        start = of.offset_s + 10.0 * (number - (GAP_AFTER if of.number == 2 else 0))
        pair = []
        for _ in WAYS:
            one = chance.choice(usual)
            if number in SPIKES:
                slow = SPIKES[number]
                one = Histogram((*one.counts, (index_of(slow), 1)), one.min_ns, slow, one.sum_ns + slow)
            pair.append(one)
        ways = tuple(
            way(name, one, lost=LOSSES.get(number, 0), sent=one.count + LOSSES.get(number, 0),
                offered=one.count + LOSSES.get(number, 0)) for name, one in zip(WAYS, pair, strict=True)
        )  # fmt: skip
        interval = Interval(of.number, number, start, start + 10.0, START + start, 0.0, ways, tuple(pair))
        totals.add(interval)
        found.append(replace(interval, histograms=()))
    totals.add(End(None))
    return totals, found
