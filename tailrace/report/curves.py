"""What the charts draw: numbers for JavaScript, a few thousand a chart however long the run was."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any

from tailrace.process.plain import plain
from tailrace.report.figures import FAULTS, chain_name, profile_name
from tailrace.report.marked import DASHES, Marked, MarkedTrial, by_profile
from tailrace.results.histogram import Histogram, bounds, merge
from tailrace.results.model import Interval

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


def over_time(intervals: Sequence[Interval]) -> dict[str, list[Any]]:
    """Starts of intervals (x) in seconds, and the smallest, mean and largest latency in each in µs; None where nothing
    was received, and at the start of a gap.

    Neighbouring intervals become one where there are more than LONGEST, but never over a gap; extremes are kept, and
    the mean is that of all frames. "faults" has [x, frames lost, repeated, out of order] where there were any, "gaps"
    [from, to] where nothing was measured; both only of a soak.
    """
    width = max(1, math.ceil(len(intervals) / LONGEST))
    found: dict[str, list[Any]] = {"x": [], "min": [], "avg": [], "max": [], "faults": [], "gaps": []}
    end = None
    for stretch in _stretches(intervals):
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


def _together(trials: Sequence[Sequence[Interval]]) -> Sequence[Interval]:
    """The intervals of several trials, the first of each as one, and so on; of one trial its own."""
    if len(trials) == 1:
        return trials[0]
    made = []
    for each in zip_longest(*trials):
        same = [interval for interval in each if interval is not None]
        low, mean, high = _extremes(same)
        made.append(
            Interval(
                start_s=same[0].start_s,
                sent=sum(interval.sent for interval in same),
                received=sum(interval.received for interval in same),
                min_us=low,
                avg_us=mean,
                max_us=high,
            )
        )
    return made


def _extremes(group: Sequence[Interval]) -> tuple[Point, Point, Point]:
    """The smallest, mean and largest latency of all frames of these intervals in µs; None if there were none."""
    heard = [each for each in group if each.received]
    if not heard:
        return None, None, None
    mean = sum((each.avg_us or 0.0) * each.received for each in heard) / sum(each.received for each in heard)
    return min(each.min_us or 0.0 for each in heard), mean, max(each.max_us or 0.0 for each in heard)


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
    found["x"].append(x)
    for name, value in zip(("min", "avg", "max"), _extremes(group), strict=True):
        found[name].append(_us(value))


def _us(value: Point) -> Point:
    return None if value is None else max(value, LEAST_US)


@dataclass(frozen=True)
class Line:
    """What is drawn as one: a trial, or all trials of a side together."""

    label: str
    colour: int
    dash: int
    trials: tuple[MarkedTrial, ...]

    @property
    def look(self) -> dict[str, Any]:
        return {"label": self.label, "colour": self.colour, "dash": self.dash}

    @property
    def histogram(self) -> Histogram | None:
        """All frames of its trials; None if no distribution is there."""
        return merge(each) if (each := [_known(one) for one in self.trials if _has(one)]) else None

    @property
    def over_time(self) -> dict[str, list[Any]]:
        return over_time(_together([one.trial.worse.intervals for one in self.trials]))


def charts(runs: Sequence[Marked]) -> list[dict[str, Any]]:
    """One entry for each profile of `runs`, and pattern of a matrix: its title, and the series of its three charts.

    A trial whose distribution is missing is left out of the first two. Each series has a label, and the numbers of its
    colour and of its dashes.
    """
    return [_chart(title, lines(found)) for title, found in _charted(runs)]


def _charted(runs: Sequence[Marked]) -> Iterator[tuple[str, list[MarkedTrial]]]:
    """The trials that are to be set beside each other, with a title."""
    for profile, found in by_profile(runs):
        together: dict[str, list[MarkedTrial]] = {}
        for one in found:
            together.setdefault("" if one.place is None else one.place.among, []).append(one)
        for among, each in together.items():
            yield ", ".join(filter(None, [profile_name(profile), plain(among)])), each


def lines(found: Sequence[MarkedTrial]) -> list[Line]:
    """The lines of one chart: each trial by itself, but those of a side, in pairs or rounds, together."""
    together: dict[tuple[int, str | int], list[MarkedTrial]] = {}
    for one in found:
        key = one.trial.name if one.place is None else one.of.sides[one.trial.name]
        together.setdefault((one.of.number, key), []).append(one)
    return [_line(trials, found) for trials in together.values()]


def _line(trials: Sequence[MarkedTrial], found: Sequence[MarkedTrial]) -> Line:
    first = trials[0]
    if (look := first.look) is not None and first.place is not None:
        ways = {one.trial.worse.name for one in trials}
        several = len({one.trial.functions for one in found if one.place is not None}) > 1
        chain = [chain_name(first.trial.functions)] if several else []
        words = [first.of.label(first.place.side), *chain, *(ways if len(ways) == 1 else ())]
        times = f" ({len(trials)} trials)" if len(trials) > 1 else ""
        return Line(plain(", ".join(words) + times), *look, tuple(trials))
    trial, name = first.trial, first.chain + first.rate + first.round
    alike = [other for other in found if other.chain + other.rate + other.round == name]
    label = plain(f"{name}, {trial.worse.name}" + (f", {trial.name}" if len(alike) > 1 else ""))
    # One run: colours by chain, by rate where chains have several; dashes likewise, but where there are several rounds
    # by these. Several runs: colours by run, dashes by chain.
    number = _number(first, found)
    dash = _DASHES[((trial.functions or 0) if first.of.number else number or 0) % DASHES]
    if first.of.stored.run.repeat > 1 and not trial.is_floor and not first.of.number:
        dash = (trial.round - 1) % DASHES
    return Line(label, first.of.colour(number), dash, (first,))


_DASHES = (1, 0, *range(2, DASHES))
"""The floor's, and those of chains by their length."""


def _number(one: MarkedTrial, found: Sequence[MarkedTrial]) -> int | None:
    """The number of a trial's colour in one run: how many functions (None: a device), or its place, from 1, among
    chains and rates."""
    places = list(dict.fromkeys((other.trial.functions, other.rate) for other in found if not other.trial.is_floor))
    several = not one.trial.is_floor and any(rate for _, rate in places)
    return places.index((one.trial.functions, one.rate)) + 1 if several else one.trial.functions


def _chart(title: str, lines: Sequence[Line]) -> dict[str, Any]:
    known = [(line, histogram) for line in lines if (histogram := line.histogram) is not None]
    times = [(line, line.over_time) for line in lines]
    return {
        "title": title,
        **distributions([(line.look, histogram) for line, histogram in known]),
        "times": [
            {
                **line.look,
                **found,
                **{name: [short(y) for y in found[name]] for name in ("min", "avg", "max")},
            }
            for line, found in times
            if found["x"]
        ],
    }


def distributions(known: Sequence[tuple[dict[str, Any], Histogram]]) -> dict[str, Any]:
    """The series of the charts by percentile and of frequencies, and their axes, of lines and their distributions."""
    axis = grid(max((histogram.count for _, histogram in known), default=1))
    shares = [frequencies(histogram) for _, histogram in known]
    bins = sorted(set().union(*shares))
    numbers = list(range(bins[0] - 1, bins[-1] + 2)) if bins else []
    return {
        "axis": [short(x) for x in axis],
        "percentiles": [{**line, "y": [short(y) for y in by_percentile(histogram, axis)]} for line, histogram in known],
        "bins": [short(10 ** (number / PER_DECADE)) for number in numbers],
        "frequencies": [
            {**line, "y": [short(share.get(number, 0.0)) for number in numbers]}
            for (line, _), share in zip(known, shares, strict=True)
        ],
    }


def _has(one: MarkedTrial) -> bool:
    return one.trial.name in one.of.stored.histograms


def _known(one: MarkedTrial) -> Histogram:
    return one.of.stored.histograms[one.trial.name]


def short(number: Point) -> Point:
    """A number with six significant digits, so that a report stays small."""
    return None if number is None else float(f"{number:.6g}")
