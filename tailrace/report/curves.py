"""What the charts draw: numbers for JavaScript, a few thousand a chart however long the run was."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.report.figures import chain_name, in_order, profile_name
from tailrace.results.histogram import Histogram
from tailrace.results.model import Direction, Run, Trial

PER_DECADE = 24
"""Points of a percentile curve between 90 % and 99 %, and so on."""

LONGEST = 2_000
"""Most points of a curve over time."""

LEAST_US = 0.001
"""What a latency of 0 is drawn as: a logarithmic axis has no 0."""


def grid(most: int) -> list[float]:
    """The x axis of percentile charts, 1 ÷ (1 - percentile), from 1 to the first point at or beyond `most` frames."""
    steps = math.ceil(PER_DECADE * math.log10(max(most, 1)) - 1e-9)
    return [10 ** (step / PER_DECADE) for step in range(steps + 1)]


def by_percentile(histogram: Histogram, axis: Sequence[float]) -> list[float | None]:
    """Latency in µs at each x of `axis`; the first x at or beyond the number of frames is the maximum, then None."""
    count = histogram.count
    inside = [x for x in axis if x < count]
    # The share 1 - 1/x of n frames is n - n/x of them; nearest-rank rounds up.
    ranks = [max(1, count - math.floor(count / x + 1e-9)) for x in inside]
    values: list[float | None] = [max(ns / 1e3, LEAST_US) for ns in histogram.values_at_ranks(ranks)]
    if histogram.counts and len(inside) < len(axis):
        values.append(max(histogram.max_ns / 1e3, LEAST_US))
    return values + [None] * (len(axis) - len(values))


def over_time(direction: Direction) -> tuple[list[float], list[float | None]]:
    """Starts of intervals in seconds, and the largest latency in each in µs; None where nothing was received.

    Neighbouring intervals become one, and keep their maximum, where there are more than LONGEST.
    """
    width = max(1, math.ceil(len(direction.intervals) / LONGEST))
    groups = [direction.intervals[start : start + width] for start in range(0, len(direction.intervals), width)]
    starts = [group[0].start_s for group in groups]
    maxima = [
        max((max(interval.max_us, LEAST_US) for interval in group if interval.max_us is not None), default=None)
        for group in groups
    ]
    return starts, maxima


def charts(run: Run, histograms: Mapping[str, Histogram]) -> list[dict[str, Any]]:
    """One entry for each profile of `run`: its title, the percentile chart's and the time chart's series.

    `histograms` holds the distribution of each trial's headline by the trial's name; a trial without is left out of the
    percentile chart. Each series has the number of functions, by which it is coloured.
    """
    profiles: dict[str, list[Trial]] = {}
    for trial in in_order(run):
        profiles.setdefault(trial.profile, []).append(trial)
    made = []
    for profile, trials in profiles.items():
        known = [trial for trial in trials if trial.name in histograms]
        axis = grid(max((histograms[trial.name].count for trial in known), default=1))
        chains = [trial.functions for trial in trials]
        labels = {
            trial.name: f"{chain_name(trial.functions)}, {trial.worse.name}"
            + (f", {trial.name}" if chains.count(trial.functions) > 1 else "")
            for trial in trials
        }
        made.append(
            {
                "title": profile_name(profile),
                "axis": [_short(x) for x in axis],
                "percentiles": [
                    {
                        "label": labels[trial.name],
                        "functions": trial.functions,
                        "y": [_short(y) for y in by_percentile(histograms[trial.name], axis)],
                    }
                    for trial in known
                ],
                "maxima": [
                    {
                        "label": labels[trial.name],
                        "functions": trial.functions,
                        "x": starts,
                        "y": [_short(y) for y in maxima],
                    }
                    for trial in trials
                    for starts, maxima in [over_time(trial.worse)]
                    if starts
                ],
            }
        )
    return made


def _short(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.6g}")
