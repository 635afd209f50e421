"""Ratios of pairs, and how far they can be trusted: a bootstrap confidence interval over pairs.

Absolute figures depend on the machine and, on a shared one, on the minute. So two sides are compared only within a
pair, which has each side once, one after the other, and the result is the median of the pairs' ratios with its
interval.

Of few pairs a bootstrap interval is too narrow. So it is never narrower than that between two of the ordered values,
as far from either end, which holds the median by the binomial distribution, whatever the values are distributed like.

Sources: B. Efron, "Bootstrap Methods: Another Look at the Jackknife", Annals of Statistics 7 (1979); the percentile
method. H. A. David and H. N. Nagaraja, "Order Statistics", 3rd edition (2003), section 7.1. Pure functions.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise
from math import comb, factorial
from statistics import median
from typing import Any

LEVEL = 0.95
"""Of the intervals of six pairs and more: how often at least they contain the true median if measured again and again.
Those of fewer, from the least to the most, do so less often: see `Summary.level`."""
EXACT_MOST = 9
"""Up to so many pairs every resample is looked at; beyond, `RESAMPLES` of them, always the same."""
RESAMPLES = 20_000

Figures = Mapping[str, float]
"""What was measured of one side, by name: cycles_per_packet, mpps, ..."""


@dataclass(frozen=True)
class Ratio:
    """A figure of one side divided by the same figure of the other."""

    name: str
    """Its name in the document."""
    figure: str
    side: str
    """The side that is divided."""
    by: str
    """The side that it is divided by."""

    def of(self, sides: Mapping[str, Figures]) -> float | None:
        """The ratio in one pair; None where a side is missing or has nothing to divide by."""
        if not {self.side, self.by} <= sides.keys() or not sides[self.by].get(self.figure):
            return None
        value = sides[self.side].get(self.figure)
        return None if value is None else value / sides[self.by][self.figure]

    def summary(self, pairs: Sequence[Mapping[str, Figures]]) -> Summary | None:
        """The median of the pairs' ratios and its interval; None where no pair has both sides."""
        known = [value for sides in pairs if (value := self.of(sides)) is not None]
        return summarise(known) if known else None


@dataclass(frozen=True)
class Summary:
    """The median of some ratios and what interval it is likely to lie in."""

    median: float
    low: float | None
    """The interval's ends; None of a single pair, which says nothing about itself."""
    high: float | None
    level: float
    """How often such an interval contains the true median; 0 of a single pair."""
    pairs: int

    def document(self) -> dict[str, Any]:
        def rounded(value: float | None) -> float | None:
            return None if value is None else round(value, 4)

        return {
            "median": rounded(self.median),
            "low": rounded(self.low),
            "high": rounded(self.high),
            "level": self.level,
            "pairs": self.pairs,
        }

    def __str__(self) -> str:
        """2.41 [2.30–2.58 with 94 %]"""
        if self.low is None or self.high is None:
            return f"{self.median:.3g} [one pair]"
        return f"{self.median:.3g} [{self.low:.3g}–{self.high:.3g} with {100 * self.level:.0f} %]"


def summarise(values: Sequence[float], level: float = LEVEL) -> Summary:
    """The median with its interval. Raises ValueError if there are no values."""
    if not values:
        raise ValueError("no values")
    if len(values) == 1:
        return Summary(values[0], None, None, 0.0, 1)
    low, high = interval(values, level)
    return Summary(median(values), low, high, min(level, coverage(len(values), 1)), len(values))


def interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """The bootstrap interval of the median, widened to the narrowest between two ordered values that holds it with
    `level`; where there are too few values for that, from the least to the most."""
    ordered = sorted(values)
    place = 1
    while coverage(len(ordered), place + 1) >= level:
        place += 1
    low, high = bootstrap(values, level)
    return min(low, ordered[place - 1]), max(high, ordered[-place])


def coverage(count: int, place: int) -> float:
    """How often the true median lies from the `place`-th least to the `place`-th most of `count` values.

    Exact where no value comes twice: as many lie below the median as heads fall in `count` throws of a coin. 0 where
    the two places meet or have crossed.
    """
    if 2 * place > count:
        return 0.0
    return 1 - sum(comb(count, below) for below in range(place)) / (1 << (count - 1))


def bootstrap(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """The bootstrap percentile interval of the median: its quantiles (1 ± level) / 2 over resamples with replacement.

    Exact for up to `EXACT_MOST` values; beyond, from `RESAMPLES` drawn with a fixed seed, so that the same values
    always give the same interval.
    """
    weighted = exact_medians(values) if len(values) <= EXACT_MOST else drawn_medians(values)
    total = sum(weight for _, weight in weighted)
    tail = (1 - level) / 2 * total
    return _quantile(weighted, tail), _quantile(weighted, total - tail)


def exact_medians(values: Sequence[float]) -> list[tuple[float, int]]:
    """The median of every resample of n values from n, in ascending order, with how many of all n^n resamples have it.

    Resamples that differ only in their order are one, counted as often as it can be ordered (the multinomial).
    """
    ordered = sorted(values)
    count = len(ordered)
    orders = factorial(count)
    found: dict[float, int] = {}
    for chosen in combinations_with_replacement(range(count), count):
        weight = orders
        run = 1
        for before, now in pairwise(chosen):
            run = run + 1 if before == now else 1
            weight //= run
        middle = (ordered[chosen[(count - 1) // 2]] + ordered[chosen[count // 2]]) / 2
        found[middle] = found.get(middle, 0) + weight
    return sorted(found.items())


def drawn_medians(values: Sequence[float], resamples: int = RESAMPLES) -> list[tuple[float, int]]:
    """The medians of resamples drawn at random, always the same, in ascending order."""
    ordered, source = sorted(values), random.Random(len(values))
    return [(value, 1) for value in sorted(median(source.choices(ordered, k=len(ordered))) for _ in range(resamples))]


def _quantile(weighted: Sequence[tuple[float, int]], at: float) -> float:
    """The least value at which the weights, added up, reach `at`."""
    reached = 0.0
    for value, weight in weighted:
        reached += weight
        if reached >= at:
            return value
    return weighted[-1][0]
