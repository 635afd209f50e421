"""Rates without loss: what short trials find, what a longer trial confirms, and what is known of the ratio of two."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tailrace.results.record import Amount, Record

Bound = Literal["at_least", "at_most", "unknown"]
"""What a figure says where a limit of the tester's stands for one of the device's: the device's may be higher, or lower
(of a ratio that is divided by such a limit), or anything (of the ratio of two such limits)."""


Limit = Literal["loss", "refused", "tester", "rate", "trials"]
"""What kept a rate from being higher; the last three are no limits of the device's."""


class NoLossRate(Record):
    """The highest rate at which short trials lost nothing. That longer ones lose nothing either is not known of it."""

    pps: Amount = Field(description="The rate of each direction, as it was really sent, in frames a second.")
    upper_pps: Amount | None = Field(default=None, description="The lowest rate that failed; null if none did.")
    limit: Limit | None = Field(
        description="What kept it from being higher: loss; refused: the device took no more; tester: the tester could "
        "send no more; rate: no more was asked for; trials: their number ran out. In the last three cases the device's "
        "is at least this. Null: not known."
    )

    @property
    def bound(self) -> Bound | None:
        """That the device's may be higher, where the limit was not the device's; None else."""
        return bound_of(self.limit)


def bound_of(limit: Limit | None) -> Bound | None:
    """That the device's rate may be higher, where its limit was not the device's; None else."""
    return "at_least" if limit in ("tester", "rate", "trials") else None


def bound_of_ratio(side: Bound | None, by: Bound | None) -> Bound | None:
    """What is known of a ratio, by what is known of both of its sides."""
    if side and by:
        return "unknown"
    return "at_least" if side else "at_most" if by else None
