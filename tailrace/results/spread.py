"""What repetitions say of each other: the median of a figure, and how far apart its values lie."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from tailrace.results.record import Measurement

M = TypeVar("M", bound=Measurement)


@dataclass(frozen=True)
class Spread:
    """A figure that was measured several times."""

    median: float
    low: float
    high: float
    count: int


def spread(values: Sequence[float]) -> Spread | None:
    """The spread of `values`; None of none."""
    return Spread(median(values), min(values), max(values), len(values)) if values else None


def by_case(measured: Iterable[M]) -> list[list[M]]:
    """The rounds of each case together, cases in the order in which they first come."""
    cases: dict[str, list[M]] = {}
    for each in measured:
        cases.setdefault(each.case, []).append(each)
    return list(cases.values())
