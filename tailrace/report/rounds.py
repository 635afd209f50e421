"""Figures that were measured several times, in rounds or pairs: the median with its spread, and how that is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tailrace.report.figures import MISSING
from tailrace.results.spread import Spread, spread


def figure(values: Sequence[float], show: Callable[[float], str], *, absolute: bool = False) -> str:
    """A figure of several rounds: its median, and its spread; `absolute` for what may be near 0: its range."""
    return spread_words(spread(values), show, absolute=absolute)


def spread_words(found: Spread | None, show: Callable[[float], str], *, absolute: bool = False) -> str:
    """The same of what is known already: 12.3 ±4.0%, or of what may be near 0: 0.1% (0–0.4%)."""
    if found is None:
        return MISSING
    text = show(found.median)
    if absolute:
        low, high = show(found.low), show(found.high)
        return text if low == high else f"{text} ({low}–{high})".replace(" %", "%")
    if found.count > 1 and found.relative is not None:
        text += f" ±{found.relative:.1%}"
    return text


def pooled_remark(rounds: int) -> str:
    """How a table of what so many rounds say together is to be read, beside those of each round."""
    return (
        f"Each round by itself stands below; here are medians over the {rounds} rounds, ± half the way from the lowest "
        "to the highest, or in brackets the lowest and the highest."
    )


def remark(rounds: int) -> tuple[str, ...]:
    """How a table of so many rounds is to be read."""
    if rounds < 2:
        return ("One round, so there is no spread; --repeat 5 gives one.",)
    return (f"{rounds} rounds: medians, ± half the way from the lowest to the highest.",)
