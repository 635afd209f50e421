"""What `measure share` found, as tables: what a function adds to each figure, and the budget of the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tailrace.process.plain import plain
from tailrace.report.figures import MISSING, chain_name, mega, microseconds, no_loss_words, profile_name
from tailrace.report.marks import bound_remark, by_floor, by_sent, short_remark
from tailrace.report.rounds import figure, interval_words, pooled_remark, spread_words
from tailrace.report.section import Section
from tailrace.results.pooled import pool
from tailrace.results.record import Measurement, Sent
from tailrace.results.share import Budget, Contribution, Figures, ShareFinding, Side
from tailrace.results.spread import Spread, by_case
from tailrace.results.table_findings import figures

_FIGURES = {
    "average_us": "mean",
    "p50_us": "p50",
    "p90_us": "p90",
    "p99_us": "p99",
    "p99.9_us": "p99.9",
    "max_us": "max",
}
_SIDES: dict[Side, str] = {"function": "the function", "skeleton": "skeleton"}
_TITLES = ("direction", "latency", "with it, µs", "with skeleton, µs", "own share, µs", "× skeleton")
_HOW = (
    "Own share: the chain with the function less the chain with the skeleton, which only forwards, in its place. It "
    "is the median over pairs, in brackets its {interval}; the ratio likewise. The other columns: medians over "
    "pairs, with the lowest and the highest in brackets.",
    "The line of the mean is exactly what the function adds to the mean. The other lines are differences of two "
    "percentiles, not percentiles of a difference.",
)
_BUDGET = (
    "Means over the traced frames, in µs: each column adds up to its total. One trial each: a difference that the "
    "pairs above do not confirm comes from the machine.",
)


def shares(found: Sequence[Measurement]) -> Iterator[Section]:
    """For each function and kind of traffic: what it adds, then where the time goes; where it was measured in several
    rounds, before theirs what all of them say it adds."""
    for rounds in by_case(each for each in found if isinstance(each, ShareFinding)):
        if len(rounds) > 1:
            yield _pooled(rounds)
        for finding in rounds:
            yield _contributions(finding)
            for budget in finding.budgets:
                yield _budget(finding, budget)


def _pooled(rounds: Sequence[ShareFinding]) -> Section:
    """What the rounds say together: the spread over them of what each says by itself."""
    first = rounds[0]
    known = pool([list(figures(each)) for each in rounds])

    def side(which: Side, words: str, direction: str, name: str) -> str:
        text = spread_words(known.get((direction, f"with {words} {name}")), microseconds)
        if name == "p50_us":
            floor = known.get((direction, f"with {words} floor_ratio"))
            text = by_floor(text, floor.median if floor else None)
        return by_sent(text, short=_sent(rounds, direction, which).fell_short)

    rows = []
    for direction, name in dict.fromkeys((part.direction, part.figure) for part in first.contributions):
        share = known.get((direction, f"{first.function} {name}"))
        ratio = known.get((direction, f"with {first.function}/with skeleton {name}"))
        short = _sent(rounds, direction, *_SIDES).fell_short
        rows.append(
            (
                plain(direction),
                _FIGURES[name],
                side("function", first.function, direction, name),
                side("skeleton", "skeleton", direction, name),
                by_sent(_range(share, microseconds, " to "), short=short),
                by_sent(_range(ratio, lambda value: f"{value:.3g}", "–"), short=short),
            )
        )
    rates = figure([each.offered_pps / 1e6 for each in rounds], mega)
    return Section(
        f"Share of {_name(first)}, {chain_name(first.functions)} at {rates} Mpps each way, all {len(rounds)} rounds "
        "together",
        _TITLES,
        tuple(rows),
        (pooled_remark(len(rounds)), *_short_remarks(rounds)),
        naming=2,
    )


def _range(found: Spread | None, show: Callable[[float], str], to: str) -> str:
    """204 (198 to 211)"""
    return MISSING if found is None else f"{show(found.median)} ({show(found.low)}{to}{show(found.high)})"


def _short_remarks(rounds: Sequence[ShareFinding]) -> Iterator[str]:
    """What the mark of figures of a lower rate means, where there are any."""
    names: dict[Side, str] = {**_SIDES, "function": plain(rounds[0].function)}
    sent = {
        f"with {words}, {plain(direction)}": _sent(rounds, direction, side)
        for side, words in names.items()
        for direction in dict.fromkeys(part.direction for each in rounds for part in each.contributions)
    }
    if (said := short_remark(sent)) is not None:
        yield said


def _offered(finding: ShareFinding) -> Iterator[str]:
    """Of which no-loss rate what was offered is a part."""
    if finding.searched is not None and finding.rate_fraction is not None:
        yield (
            f"Offered: {100 * finding.rate_fraction:.4g}% of the no-loss rate with {plain(finding.function)}, "
            f"{no_loss_words(finding.searched)}. Before the pairs, a full-length trial was made at that part."
        )
        if (said := bound_remark([finding.searched.bound])) is not None:
            yield said


def _sent(rounds: Sequence[ShareFinding], direction: str, *sides: Side) -> Sent:
    """What was sent in a direction with the sides, in all rounds."""
    return sum((each.sent(direction, *sides) for each in rounds), Sent(()))


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
            by_sent(difference_words(each), short=finding.sent(each.direction, *_SIDES).fell_short),
            by_sent(_ratio_words(each), short=finding.sent(each.direction, *_SIDES).fell_short),
        )
        for each in finding.contributions
    ]
    lost = {"function": _most_lost(with_function), "skeleton": _most_lost(with_skeleton)}
    remarks = [
        f"With the {side} up to {ratio * 100:.3g} % of the frames of a trial were lost: latency is of the frames "
        "received."
        for side, ratio in lost.items()
        if ratio
    ]
    return Section(
        f"Share of {_name(finding)}, {chain_name(finding.functions)} at {mega(finding.offered_pps / 1e6)} Mpps each "
        f"way, {len(finding.pairs)} pair{'' if len(finding.pairs) == 1 else 's'}",
        _TITLES,
        tuple(rows),
        (
            *(text.format(interval=interval_words(finding.contributions)) for text in _HOW),
            *_offered(finding),
            *_short_remarks([finding]),
            *remarks,
        ),
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


def _shown(finding: ShareFinding, side: Side, of: Contribution) -> str:
    """The median over pairs of one side with its spread; that of medians marked where it is near the tester's own."""
    text = figure(finding.values(side, of.direction, of.figure), microseconds)
    text = by_floor(text, finding.floor_ratio(side, of.direction)) if of.figure == "p50_us" else text
    return by_sent(text, short=finding.sent(of.direction, side).fell_short)


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
