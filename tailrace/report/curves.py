"""What the charts draw: numbers for JavaScript, a few thousand a chart however long the run was."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tailrace.report.figures import FAULTS, plain, profile_name
from tailrace.report.marked import Marked, MarkedTrial, by_profile
from tailrace.results.histogram import Histogram, bounds
from tailrace.results.model import Direction, Interval

PER_DECADE = 24
"""Points of a percentile curve between 90 % and 99 %, and so on; bins of a frequency curve from 1 to 10 µs."""

LONGEST = 2_000
"""Most points of a curve over time."""

LEAST_US = 0.001
"""What a latency of 0 is drawn as: a logarithmic axis has no 0."""

Point = float | None


def grid(most: int) -> list[float]:
    """The x axis of percentile charts, 1 ÷ (1 - percentile), from 1 to the first point at or beyond `most` frames."""
    steps = math.ceil(PER_DECADE * math.log10(max(most, 1)) - 1e-9)
    return [10 ** (step / PER_DECADE) for step in range(steps + 1)]


def by_percentile(histogram: Histogram, axis: Sequence[float]) -> list[Point]:
    """Latency in µs at each x of `axis`; the first x at or beyond the number of frames is the maximum, then None."""
    count = histogram.count
    inside = [x for x in axis if x < count]
    # The share 1 - 1/x of n frames is n - n/x of them; nearest-rank rounds up.
    ranks = [max(1, count - math.floor(count / x + 1e-9)) for x in inside]
    values: list[Point] = [max(ns / 1e3, LEAST_US) for ns in histogram.values_at_ranks(ranks)]
    if histogram.counts and len(inside) < len(axis):
        values.append(max(histogram.max_ns / 1e3, LEAST_US))
    return values + [None] * (len(axis) - len(values))


def frequencies(histogram: Histogram) -> dict[int, float]:
    """The share of frames in each bin, by the bin's number: bin k is from 10^(k/24) to 10^((k+1)/24) µs.

    A bucket of the histogram that two bins have a part in is divided between them by length.
    """
    count = histogram.count
    shares: dict[int, float] = {}
    for bucket, number in histogram.counts:
        low, high = bounds(bucket)
        ends = [_bin_of(max(ns / 1e3, LEAST_US)) for ns in (low, high + 1)]
        first, last = math.floor(ends[0]), max(math.ceil(ends[1]) - 1, math.floor(ends[0]))
        for each in range(first, last + 1):
            part = min(ends[1], each + 1) - max(ends[0], each)
            whole = ends[1] - ends[0]
            shares[each] = shares.get(each, 0.0) + number / count * (part / whole if whole else 1.0)
    return shares


def _bin_of(us: float) -> float:
    return PER_DECADE * math.log10(us)


def over_time(direction: Direction) -> dict[str, list[Any]]:
    """Starts of intervals (x) in seconds, and the smallest, mean and largest latency in each in µs; None where nothing
    was received, and at the start of a gap.

    Neighbouring intervals become one where there are more than LONGEST, but never over a gap; extremes are kept, and
    the mean is that of all frames. "faults" has [x, frames lost, repeated, out of order] where there were any, "gaps"
    [from, to] where nothing was measured; both only of a soak.
    """
    width = max(1, math.ceil(len(direction.intervals) / LONGEST))
    found: dict[str, list[Any]] = {"x": [], "min": [], "avg": [], "max": [], "faults": [], "gaps": []}
    end = None
    for stretch in _stretches(direction.intervals):
        if end is not None:
            found["gaps"].append([short(end), short(stretch[0].start_s)])
            _point(found, end, [])
        for start in range(0, len(stretch), width):
            group = stretch[start : start + width]
            _point(found, group[0].start_s, group)
            counts = [sum(max(getattr(each, name) or 0, 0) for each in group) for name in FAULTS]
            if any(counts):
                found["faults"].append([short(group[0].start_s), *counts])
        end = stretch[-1].start_s + (stretch[-1].length_s or 0.0)
    return found


def _stretches(intervals: Sequence[Interval]) -> list[Sequence[Interval]]:
    """The intervals between gaps, which only those have whose length is known."""
    edges = [
        number
        for number, (one, after) in enumerate(pairwise(intervals), 1)
        if one.length_s is not None and after.start_s > one.start_s + 1.5 * one.length_s
    ]
    return [intervals[first:last] for first, last in pairwise([0, *edges, len(intervals)]) if first < last]


def _point(found: dict[str, list[Any]], x: float, group: Sequence[Interval]) -> None:
    """Add what a group of neighbours comes to, at x."""
    heard = [each for each in group if each.received]
    received = sum(each.received for each in heard)
    mean = sum((each.avg_us or 0.0) * each.received for each in heard) / received if heard else None
    found["x"].append(x)
    found["min"].append(_us(min((each.min_us or 0.0 for each in heard), default=None)))
    found["avg"].append(_us(mean))
    found["max"].append(_us(max((each.max_us or 0.0 for each in heard), default=None)))


def _us(value: Point) -> Point:
    return None if value is None else max(value, LEAST_US)


def charts(runs: Sequence[Marked]) -> list[dict[str, Any]]:
    """One entry for each profile of `runs`: its title, and the series of its three charts.

    A trial whose distribution is missing is left out of the first two. Each series has a label, and the numbers of its
    colour and of its dashes.
    """
    return [_profile(profile, found) for profile, found in by_profile(runs)]


def _profile(profile: str, found: Sequence[MarkedTrial]) -> dict[str, Any]:
    known = [(one, one.of.stored.histograms[one.trial.name]) for one in found if _has(one)]
    axis = grid(max((histogram.count for _, histogram in known), default=1))
    shares = [frequencies(histogram) for _, histogram in known]
    bins = sorted(set().union(*shares))
    numbers = list(range(bins[0] - 1, bins[-1] + 2)) if bins else []
    return {
        "title": profile_name(profile),
        "axis": [short(x) for x in axis],
        "percentiles": [
            {**_series(one, found), "y": [short(y) for y in by_percentile(histogram, axis)]} for one, histogram in known
        ],
        "bins": [short(10 ** (number / PER_DECADE)) for number in numbers],
        "frequencies": [
            {**_series(one, found), "y": [short(share.get(number, 0.0)) for number in numbers]}
            for (one, _), share in zip(known, shares, strict=True)
        ],
        "times": [
            {
                **_series(one, found),
                **lines,
                **{name: [short(y) for y in lines[name]] for name in ("min", "avg", "max")},
            }
            for one in found
            if (lines := over_time(one.trial.worse))["x"]
        ],
    }


def _has(one: MarkedTrial) -> bool:
    return one.trial.name in one.of.stored.histograms


def _series(one: MarkedTrial, found: Sequence[MarkedTrial]) -> dict[str, Any]:
    trial = one.trial
    placed = trial.name in one.of.places
    name = one.chain + one.rate + one.round
    alike = [other for other in found if other.chain + other.rate + other.round == name]
    label = plain(f"{name}, {trial.worse.name}" + (f", {trial.name}" if len(alike) > 1 and not placed else ""))
    # One run: colours by chain, by rate where chains have several, or by fabric or neighbour; dashes by round, and of
    # the floor. Several runs: colours by run, dashes by chain.
    if one.of.number:
        dash = (1, 0, 2, 3)[(trial.functions or 0) % 4]
    else:
        dash = (trial.round - 1) % 4 if not trial.is_floor and not placed else int(trial.is_floor)
    return {
        "label": label,
        "colour": one.of.colour(one.of.side(trial) if placed else _line(one, found)),
        "dash": dash,
    }


def _line(one: MarkedTrial, found: Sequence[MarkedTrial]) -> int | None:
    """The number of a trial's colour in one run: how many functions (None: a device), or its place, from 1, among
    chains and rates."""
    lines = list(dict.fromkeys((other.trial.functions, other.rate) for other in found if not other.trial.is_floor))
    several = not one.trial.is_floor and any(rate for _, rate in lines)
    return lines.index((one.trial.functions, one.rate)) + 1 if several else one.trial.functions


def short(number: Point) -> Point:
    """A number with six significant digits, so that a report stays small."""
    return None if number is None else float(f"{number:.6g}")
