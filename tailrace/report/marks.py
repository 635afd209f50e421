"""What stands before a figure that is not all that it seems, and what is said of it below the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tailrace.results.no_loss import Bound
from tailrace.results.record import UNSENT_TOLERANCE, Sent, is_near_floor

NEAR_FLOOR = "~"
"""Stands before a median that is near the tester's own."""

FELL_SHORT = "†"
"""Stands before a figure of which a trial sent less than was offered, so that it is of a lower rate."""

BOUNDS: Mapping[Bound, str] = {"at_least": "≥", "at_most": "≤", "unknown": "?"}
"""Stand before a no-loss rate that is a limit of the tester's, and before a ratio of such rates."""

MOST_NAMED = 6
"""Trials that a sentence names one by one: those with the most of it."""

_BOUND_WORDS: Mapping[Bound, str] = {
    "at_least": "≥: nothing was lost, and the tester could send no more or the search ran out of trials, so the "
    "device's rate without loss, or its ratio, is at least this",
    "at_most": "≤: the ratio is at most this, because the rate that it is divided by is at least the one found",
    "unknown": "?: nothing is known of the ratio, because both rates are at least the ones found",
}


def by_floor(text: str, ratio: float | None) -> str:
    """A median, marked where it is near the tester's own."""
    return NEAR_FLOOR + text if is_near_floor(ratio) else text


def by_sent(text: str, *, short: bool | None) -> str:
    """A figure, marked where much less was sent than offered in a trial behind it; None is not known."""
    return FELL_SHORT + text if short else text


def by_bound(text: str, bound: Bound | None) -> str:
    """A no-loss rate or a ratio of such, marked where the tester was the limit."""
    return BOUNDS[bound] + text if bound else text


def short_remark(sent: Mapping[str, Sent]) -> str | None:
    """What the mark of figures of a lower rate means, of the sides that have it; None if none has."""
    short = {side: each for side, each in sent.items() if each.short}
    if not short:
        return None
    shown = sorted(short, key=lambda side: min(short[side].ratios))[:MOST_NAMED]
    parts = [
        f"{side} in {each.short} of {len(each.ratios)} trials, {_part(min(each.ratios))} at least"
        for side, each in short.items()
        if side in shown
    ]
    rest = [f"and {len(short) - len(shown)} more"] if len(short) > len(shown) else []
    return (
        f"{FELL_SHORT}: less than {1 - UNSENT_TOLERANCE:.0%} of the offered frames were sent, so the figure is of a "
        f"lower rate: {'; '.join([*parts, *rest])}."
    )


def _part(ratio: float) -> str:
    """90.0%; of next to nothing < 0.1%"""
    return "< 0.1%" if 0 < ratio < 0.001 else f"{ratio:.1%}"


def bound_remark(bounds: Iterable[Bound | None]) -> str | None:
    """What the marks of limits of the tester's mean, of those that there are; None if there are none."""
    used = set(bounds)
    parts = [words for bound, words in _BOUND_WORDS.items() if bound in used]
    return f"{'; '.join(parts)}." if parts else None
