"""Figures that were measured several times, in rounds or pairs: the median with its spread, and how that is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tailrace.report.figures import MISSING
from tailrace.results.comparison import ComparedRatio
from tailrace.results.ratio import coverage
from tailrace.results.share import Contribution
from tailrace.results.spread import Spread, spread


def figure(values: Sequence[float], show: Callable[[float], str]) -> str:
    """A figure of several rounds or pairs: its median, the lowest and the highest."""
    return spread_words(spread(values), show)


def spread_words(found: Spread | None, show: Callable[[float], str]) -> str:
    """The same of what is known already: 1.57 (0.351–1.74); the median alone where all are shown alike."""
    if found is None:
        return MISSING
    text, low, high = show(found.median), show(found.low), show(found.high)
    return text if low == high else f"{text} ({low}–{high})".replace(" %", "%")


def interval_words(found: Iterable[ComparedRatio | Contribution]) -> str:
    """What the intervals of medians over pairs are worth: bootstrap interval, which holds the true median with 94 %."""
    # Runs of earlier versions say 95 % of any number of pairs.
    levels = [min(each.level, coverage(each.pairs, 1)) for each in found if each.pairs > 1]
    if not levels:
        return "bootstrap interval (a single pair has none)"
    low, high = (f"{100 * level:.0f}" for level in (min(levels), max(levels)))
    return (
        f"bootstrap interval, which contains the true median in {low if low == high else f'{low} to {high}'} % of cases"
    )


def pooled_remark(rounds: int) -> str:
    """How a table of what so many rounds say together is to be read, beside those of each round."""
    return (
        f"Medians over the {rounds} rounds, with the lowest and the highest in brackets. The tables below show each "
        "round."
    )


def remark(rounds: int) -> tuple[str, ...]:
    """How a table of so many rounds is to be read."""
    if rounds < 2:
        return ("One round, so there is no spread; --repeat 5 gives one.",)
    return (f"{rounds} rounds: medians, with the lowest and the highest in brackets.",)
