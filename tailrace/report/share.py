"""What `measure share` found, as tables: what a function adds to each figure, and the budget of the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from tailrace.report.figures import MISSING, by_floor, chain_name, mega, microseconds, plain, profile_name
from tailrace.report.rounds import figure
from tailrace.report.section import Section
from tailrace.results.record import Measurement
from tailrace.results.share import Budget, Contribution, Figures, ShareFinding

_FIGURES = {
    "average_us": "mean",
    "p50_us": "p50",
    "p90_us": "p90",
    "p99_us": "p99",
    "p99.9_us": "p99.9",
    "max_us": "max",
}
_HOW = (
    "Own share: the chain with the function less the chain with the skeleton in its place, which only forwards, within "
    "each pair; the median over pairs with its 95 % bootstrap interval, and the same of the ratio. What the chains "
    "took: medians over pairs, ± half the way from the lowest to the highest.",
    "Means subtract: the first line is what the function adds to the mean. Quantiles do not: the others are "
    "differences of two percentiles, not percentiles of a difference.",
)
_BUDGET = (
    "Means over the traced frames, in µs: each column adds up to its total. One trial each, so a difference that the "
    "pairs above do not bear out is the machine's.",
)


def shares(found: Sequence[Measurement]) -> Iterator[Section]:
    """For each function and kind of traffic: what it adds, then where the time goes."""
    for finding in found:
        if isinstance(finding, ShareFinding):
            yield _contributions(finding)
            for budget in finding.budgets:
                yield _budget(finding, budget)


def _name(finding: ShareFinding) -> str:
    again = f", round {finding.round}" if finding.round > 1 else ""
    return f"{plain(finding.function)} ({plain(finding.kind)}), {profile_name(finding.profile)}{again}"


def _contributions(finding: ShareFinding) -> Section:
    with_function = [pair.function for pair in finding.pairs]
    with_skeleton = [pair.skeleton for pair in finding.pairs]
    rows = [
        (
            plain(each.direction),
            _FIGURES[each.figure],
            _shown(finding, "function", each),
            _shown(finding, "skeleton", each),
            difference_words(each),
            _ratio_words(each),
        )
        for each in finding.contributions
    ]
    lost = {"function": _most_lost(with_function), "skeleton": _most_lost(with_skeleton)}
    remarks = [
        f"With the {side} up to {ratio * 100:.3g} % of the frames of a trial were lost: latency is of the others."
        for side, ratio in lost.items()
        if ratio
    ]
    return Section(
        f"Share of {_name(finding)}, {chain_name(finding.functions)} at {mega(finding.offered_pps / 1e6)} Mpps each "
        f"way, {len(finding.pairs)} pair{'' if len(finding.pairs) == 1 else 's'}",
        ("direction", "latency", "with it, µs", "with skeleton, µs", "own share, µs", "× skeleton"),
        tuple(rows),
        (*_HOW, *remarks),
        naming=2,
    )


def difference_words(each: Contribution) -> str:
    """204 [198–211]"""
    if each.low_us is None or each.high_us is None:
        return microseconds(each.difference_us)
    return f"{microseconds(each.difference_us)} [{microseconds(each.low_us)} to {microseconds(each.high_us)}]"


def _ratio_words(each: Contribution) -> str:
    if each.ratio is None:
        return MISSING
    if each.ratio_low is None or each.ratio_high is None:
        return f"{each.ratio:.3g}"
    return f"{each.ratio:.3g} [{each.ratio_low:.3g}–{each.ratio_high:.3g}]"


def _shown(finding: ShareFinding, side: Literal["function", "skeleton"], of: Contribution) -> str:
    """The median over pairs of one side with its spread; that of medians marked where it is near the tester's own."""
    figures: list[Figures] = [getattr(pair, side) for pair in finding.pairs]
    known = [each[of.direction][of.figure] for each in figures if of.figure in each.get(of.direction, {})]
    text = figure(known, microseconds)
    return by_floor(text, finding.floor_ratio(side, of.direction)) if of.figure == "p50_us" else text


def _most_lost(sides: Sequence[Figures]) -> float:
    return max((way.get("loss_ratio", 0.0) for side in sides for way in side.values()), default=0.0)


def _budget(finding: ShareFinding, budget: Budget) -> Section:
    rows = [
        (
            plain(f"function {each.name}" if each.kind == "function" else each.name),
            microseconds(each.function_us),
            f"{each.function_us / budget.function_us:.1%}" if budget.function_us else MISSING,
            microseconds(each.skeleton_us),
            microseconds(each.function_us - each.skeleton_us),
        )
        for each in budget.elements
    ]
    whole = budget.function_us - budget.skeleton_us
    rows.append(
        ("together", microseconds(budget.function_us), "100.0%", microseconds(budget.skeleton_us), microseconds(whole))
    )
    return Section(
        f"Where the time goes: {_name(finding)}, {plain(budget.direction)}",
        ("element", "with it, µs", "of the whole", "with skeleton, µs", "difference, µs"),
        tuple(rows),
        _BUDGET,
    )
