"""What `measure share` finds: one function's own part of the latency, and the budget of the way by element.

Means subtract: the mean of a sum is the sum of the means, so the chain with the function less the chain with the
skeleton in its place is what the function adds to the mean, exactly. Quantiles do not: the difference of two 99th
percentiles is not the 99th percentile of anything. It is given as what it is, a difference of two figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal

from pydantic import Field

from tailrace.results.no_loss import NoLossRate
from tailrace.results.ratio import LEVEL, summarise
from tailrace.results.record import Amount, Count, Measurement, Record, Sent

FIGURES = ("average_us", "p50_us", "p90_us", "p99_us", "p99.9_us", "max_us")

Side = Literal["function", "skeleton"]

Figures = dict[str, dict[str, Amount]]
"""By direction, then by figure."""


class SharePair(Record):
    """The chain with the function and with the skeleton in its place, one right after the other."""

    function: Figures = Field(
        description="By direction: average_us, p50_us, p90_us, p99_us, p99.9_us, max_us, loss_ratio of the chain as it "
        "is; floor_ratio: its median as a multiple of the tester's own; sent_ratio: the part of the frames offered "
        "that was sent."
    )
    skeleton: Figures = Field(description="The same of the chain with the skeleton in the function's place.")


class Contribution(Record):
    """What the function adds to one figure of one direction, over pairs."""

    direction: str = Field(description="Such as a-to-b.")
    figure: str = Field(description="Which figure, such as p99_us.")
    difference_us: float = Field(description="Median of the pairs' differences, function less skeleton, in µs.")
    low_us: float | None = Field(description="Lower end of its bootstrap interval; null of a single pair.")
    high_us: float | None = Field(description="Upper end of it.")
    ratio: Amount | None = Field(
        description="Median of the pairs' ratios, function by skeleton; null unless all pairs have one."
    )
    ratio_low: Amount | None = Field(description="Lower end of its bootstrap interval.")
    ratio_high: Amount | None = Field(description="Upper end of it.")
    level: Amount = Field(
        default=LEVEL,
        description="How often such an interval contains the true median: 0.95 from six pairs on, of fewer less often; "
        "0 of a single pair.",
    )
    pairs: Count = Field(description="Pairs that it rests on.")


class Element(Record):
    """One part of the way, as a mean over the traced frames."""

    kind: Literal["ring", "switch", "function"] = Field(description="As in the parts of a trial's hops.")
    name: str = Field(min_length=1, description="The function's name, or from where to where.")
    function_us: Amount = Field(description="Mean time in it in µs, in the chain as it is.")
    skeleton_us: Amount = Field(description="The same with the skeleton in the function's place.")


class Budget(Record):
    """Where the mean latency of one direction goes: the elements add up to the totals."""

    direction: str = Field(description="Such as a-to-b.")
    function_trial: str = Field(description="Name of the trial that was traced with the function.")
    skeleton_trial: str = Field(description="Name of the one that was traced with the skeleton.")
    elements: tuple[Element, ...] = Field(description="The parts of the way in their order.")
    function_us: Amount = Field(description="Mean latency of the traced frames in µs, in the chain as it is.")
    skeleton_us: Amount = Field(description="The same with the skeleton in the function's place.")


class ShareFinding(Measurement):
    """One function's own part of the latency of its chain."""

    method: Literal["share"] = Field(default="share", description="What kind of finding it is.")
    function: str = Field(min_length=1, description="The function whose part it is.")
    kind: str = Field(description="What it is: router, impair, ...")
    offered_pps: Amount = Field(description="The common rate of each direction, in frames a second.")
    rate_fraction: Amount | None = Field(
        default=None, description="offered_pps as a fraction of `searched`; null if the rate was given outright."
    )
    searched: NoLossRate | None = Field(
        default=None,
        description="The no-loss rate of the chain as it is, which was looked for beforehand and held against a trial "
        "of full length at rate_fraction of it; null if the rate was given outright.",
    )
    pairs: tuple[SharePair, ...] = Field(description="Every pair, in order.")
    contributions: tuple[Contribution, ...] = Field(description="Of each direction, each figure.")
    budgets: tuple[Budget, ...] = Field(
        default=(), description="Of each direction; empty until both chains have been traced."
    )

    def contribution(self, direction: str, figure: str) -> Contribution | None:
        return next((each for each in self.contributions if (each.direction, each.figure) == (direction, figure)), None)

    def values(self, side: Side, direction: str, figure: str) -> list[float]:
        """A figure of a side in each pair that has it."""
        figures: list[Figures] = [getattr(pair, side) for pair in self.pairs]
        return [each[direction][figure] for each in figures if figure in each.get(direction, {})]

    def floor_ratio(self, side: Side, direction: str) -> float | None:
        """The median over pairs of a side's median latency as a multiple of the tester's own; None if unknown."""
        known = self.values(side, direction, "floor_ratio")
        return median(known) if known else None

    def sent(self, direction: str, *sides: Side) -> Sent:
        """What was sent in a direction with the sides, in all pairs."""
        return Sent(tuple(ratio for side in sides for ratio in self.values(side, direction, "sent_ratio")))


def contributions_of(pairs: Sequence[SharePair]) -> tuple[Contribution, ...]:
    """What the function adds, of the pairs that have a figure on both sides."""
    found = []
    for direction in dict.fromkeys(name for pair in pairs for name in pair.function):
        for figure in FIGURES:
            both = [
                (pair.function[direction][figure], pair.skeleton[direction][figure])
                for pair in pairs
                if figure in pair.function.get(direction, {}) and figure in pair.skeleton.get(direction, {})
            ]
            if not both:
                continue
            difference = summarise([one - other for one, other in both])
            quotients = [one / other for one, other in both if other]
            ratio = summarise(quotients) if len(quotients) == len(both) else None
            found.append(
                Contribution(
                    direction=direction,
                    figure=figure,
                    difference_us=difference.median,
                    low_us=difference.low,
                    high_us=difference.high,
                    ratio=ratio.median if ratio else None,
                    ratio_low=ratio.low if ratio else None,
                    ratio_high=ratio.high if ratio else None,
                    level=difference.level,
                    pairs=difference.pairs,
                )
            )
    return tuple(found)
