"""What comparisons find: figures of each pair as measured, and the ratios of pairs with their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from pydantic import Field

from tailrace.results.findings import ReorderFinding
from tailrace.results.no_loss import Bound, NoLossRate, bound_of_ratio
from tailrace.results.ratio import LEVEL, Ratio
from tailrace.results.record import Amount, Count, Measurement, Record, Sent, name_in_round
from tailrace.results.share import ShareFinding
from tailrace.results.spread import Spread, spread


class ComparedPair(Record):
    """Each side once, one after the other."""

    sides: dict[str, dict[str, Amount]] = Field(
        description="By side, in the order in which they were measured: no_loss_mpps (in short trials), mpps received, "
        "loss_ratio, and latency (p50_us, p90_us, p99_us, p99.9_us, max_us) of the worse direction; floor_ratio: the "
        "median as a multiple of the tester's own; sent_ratio: the part of the frames offered that was sent, in the "
        "direction where that is least; and neighbour_mpps: what a neighbour's function passed on beside it."
    )
    searched: dict[str, NoLossRate] = Field(
        default_factory=dict,
        description="By side: the no-loss rate that no_loss_mpps says, as short trials found it, with its limit; empty "
        "where none was looked for.",
    )
    core_to_core_ns: tuple[Amount, ...] = Field(
        default=(),
        description="Round trip of a cache line between the two cores in use, before the first side and after each: "
        "where it jumps, the sides met different machines.",
    )


class ComparedRatio(Record):
    """A figure of one side by the same figure of the baseline: the median over pairs."""

    side: str = Field(description="The side that is divided by the baseline.")
    figure: str = Field(description="Which figure, such as p99_us.")
    median: Amount = Field(description="Median of the pairs' ratios.")
    low: Amount | None = Field(description="Lower end of its bootstrap interval; null of a single pair.")
    high: Amount | None = Field(description="Upper end of it.")
    level: Amount = Field(
        default=LEVEL,
        description="How often such an interval contains the true median: 0.95 from six pairs on, of fewer less often; "
        "0 of a single pair.",
    )
    pairs: Count = Field(description="Pairs that it rests on.")
    bound: Bound | None = Field(
        default=None,
        description="Of a ratio of no-loss rates, where a limit of the tester's stands for one of the device's: "
        "at_least, it may be higher; at_most, lower; unknown, both are limits of the tester's. Null of all others.",
    )


class ComparisonFinding(Measurement):
    """One kind of traffic on several sides, which took turns: A B C, B C A, C A B; of noise always quiet, noisy."""

    method: Literal["compare", "noise"] = Field(
        description="compare: the sides are fabrics; noise: they are neighbours."
    )
    baseline: str = Field(description="The side that all others are divided by.")
    sides: tuple[str, ...] = Field(
        description="All sides, in the order in which they were asked for; the order of a pair is that of its sides."
    )
    left_out: dict[str, str] = Field(default_factory=dict, description="Sides that could not be measured, and why.")
    offered_pps: Amount = Field(description="The common rate of each direction, in frames a second.")
    rate_fraction: Amount | None = Field(
        default=None,
        description="offered_pps as a fraction of the lowest no-loss rate of `searched`; null if the rate was given "
        "outright.",
    )
    searched: dict[str, NoLossRate] = Field(
        default_factory=dict,
        description="By side: the no-loss rate that was looked for beforehand and held against a trial of full length "
        "at rate_fraction of it; empty if the rate was given outright.",
    )
    pairs: tuple[ComparedPair, ...] = Field(description="Every pair, in order.")
    ratios: tuple[ComparedRatio, ...] = Field(description="Of each side but the baseline, each figure.")

    def ratio(self, side: str, figure: str) -> ComparedRatio | None:
        return next((each for each in self.ratios if (each.side, each.figure) == (side, figure)), None)

    def values(self, side: str, figure: str) -> list[float]:
        """A figure of a side in each pair that has it."""
        return [pair.sides[side][figure] for pair in self.pairs if figure in pair.sides.get(side, {})]

    def bound(self, side: str, figure: str) -> Bound | None:
        """That a side's no-loss rate is at least this, where it is the tester's limit in any pair; None of all else."""
        if figure != NO_LOSS_FIGURE:
            return None
        return next((rate.bound for pair in self.pairs if (rate := pair.searched.get(side)) and rate.bound), None)

    def floor_ratio(self, side: str) -> float | None:
        """The median over pairs of a side's median latency as a multiple of the tester's own; None if unknown."""
        known = self.values(side, "floor_ratio")
        return median(known) if known else None

    def sent(self, *sides: str) -> Sent:
        """What was sent to the sides, in the pairs that have all of them."""
        pairs = [pair.sides for pair in self.pairs if pair.sides.keys() >= set(sides)]
        return Sent(tuple(pair[side]["sent_ratio"] for pair in pairs for side in sides if "sent_ratio" in pair[side]))


NO_LOSS_FIGURE = "no_loss_mpps"
NEIGHBOUR_FIGURE = "neighbour_mpps"


def _bound(pairs: Sequence[ComparedPair], side: str, by: str) -> Bound | None:
    """What is known of the median ratio of two sides' no-loss rates: one pair with the tester's limit is enough."""
    both = [pair.searched for pair in pairs if pair.searched.keys() >= {side, by}]
    return bound_of_ratio(*(next((p[each].bound for p in both if p[each].bound), None) for each in (side, by)))


def ratios_of(
    pairs: Sequence[ComparedPair], sides: Sequence[str], baseline: str, names: Sequence[str]
) -> tuple[ComparedRatio, ...]:
    """The ratios of all sides to the baseline, of the pairs that have both."""
    found = []
    known: list[Mapping[str, Mapping[str, float]]] = [pair.sides for pair in pairs]
    for side in sides:
        for figure in names:
            summary = Ratio(figure, figure, side, baseline).summary(known) if side != baseline else None
            if summary is not None:
                found.append(
                    ComparedRatio(
                        side=side,
                        figure=figure,
                        median=summary.median,
                        low=summary.low,
                        high=summary.high,
                        level=summary.level,
                        pairs=summary.pairs,
                        bound=_bound(pairs, side, baseline) if figure == NO_LOSS_FIGURE else None,
                    )
                )
    return tuple(found)


class CellFigures(Record):
    """The figures of a cell of a matrix."""

    no_loss_pps: Amount | None = Field(
        default=None,
        description="No-loss rate of each direction, in frames a second, found in short trials and confirmed by the "
        "measured one; null if it was not, or none was looked for.",
    )
    offered_pps: Amount | None = Field(default=None, description="Rate of the measured trial, in frames a second.")
    mpps: Amount | None = Field(default=None, description="Rate received in the worse direction, in millions a second.")
    loss_ratio: Amount | None = Field(default=None, description="Lost by sent in the worse direction.")
    p50_us: Amount | None = Field(default=None, description="Median latency in µs.")
    p99_us: Amount | None = Field(default=None, description="99th percentile of latency in µs.")
    p99_9_us: Amount | None = Field(default=None, description="99.9th percentile of latency in µs.")
    max_us: Amount | None = Field(default=None, description="Largest latency in µs.")
    floor_ratio: Amount | None = Field(
        default=None, description="Median latency as a multiple of the tester's own over such ports; null if unknown."
    )
    sent_ratio: Amount | None = Field(
        default=None,
        description="Sent by offered of the measured trial, in the direction where that is least; null if unknown.",
    )


class CellRound(CellFigures):
    """A cell as it was measured once."""

    round: int = Field(ge=1, description="Which time it was measured.")
    searched: NoLossRate | None = Field(
        default=None, description="The no-loss rate that its trial is at a part of, as in trials; null if none is."
    )
    trial: str = Field(min_length=1, description="Name of its trial.")


class CellRange(Record):
    """How far apart the rounds of a cell lie in one figure."""

    low: Amount = Field(description="The lowest of the rounds.")
    high: Amount = Field(description="The highest of the rounds.")


class MatrixCell(CellFigures, Measurement):
    """One cell of a matrix: one fabric, kind of interface, pattern, number of functions and kind of traffic.

    Its figures are the medians of its rounds.
    """

    method: Literal["matrix"] = Field(default="matrix", description="What kind of finding it is.")
    fabric: str = Field(description="What carries the frames.")
    interface: str = Field(description="What the functions' ports are: vhost-user, memif, tap, veth or passthrough.")
    ends: Literal["north/south", "east/west"] = Field(
        description="north/south: in and out by interfaces of the machine's (a veth here stands for a NIC); east/west: "
        "from function to function, the tester being the outer ones."
    )
    pattern: str = Field(description="As RFC 8204 writes it: P2P, PVP, PVVP, VV; a letter more for each function more.")
    not_here: str | None = Field(default=None, description="Why it cannot be measured on this machine; null if it was.")
    trial: str | None = Field(default=None, description="Name of its trial; of several rounds, that of the first.")
    spread: dict[str, CellRange] = Field(
        default_factory=dict, description="Of several rounds: by figure, such as p99_us, its lowest and its highest."
    )
    rounds: tuple[CellRound, ...] = Field(default=(), description="Every round that was measured, in order.")

    @property
    def place(self) -> str:
        """Where in the matrix it is, but for the traffic: tailrace, memif, PVP."""
        return f"{self.fabric}, {self.interface}, {self.pattern}"

    @property
    def sent(self) -> Sent:
        """What was sent of what was offered, in all of its rounds."""
        return Sent(tuple(each.sent_ratio for each in self.rounds if each.sent_ratio is not None))

    @property
    def bound(self) -> Bound | None:
        """That its no-loss rate is at least this, where it is the tester's limit in any round."""
        known = (each.searched for each in self.rounds if each.no_loss_pps is not None)
        return next((searched.bound for searched in known if searched and searched.bound), None)

    @property
    def not_confirmed(self) -> bool:
        """Whether a no-loss rate was looked for, and no measured trial of any round confirmed one."""
        return self.no_loss_pps is None and any(each.searched for each in self.rounds)

    def spread_of(self, figure: str) -> Spread | None:
        """What its rounds say of a figure; None where that was not measured."""
        value = getattr(self, figure)
        if value is None:
            return None
        known = self.spread.get(figure)
        low, high = (known.low, known.high) if known else (value, value)
        # A round that confirmed no rate has none, and is not in the median.
        return Spread(value, low, high, sum(getattr(each, figure) is not None for each in self.rounds))

    def with_round(self, new: CellRound) -> MatrixCell:
        """The cell with one round more. Why another round failed stands until that one has been measured."""
        rounds = tuple(sorted((*self.rounds, new), key=lambda each: each.round))
        known = {
            name: found
            for name in CellFigures.model_fields
            if (found := spread([value for each in rounds if (value := getattr(each, name)) is not None]))
        }
        whole = len(rounds) == rounds[-1].round
        return self.model_copy(
            update={name: found.median for name, found in known.items()}
            | {
                "valid": self.valid or whole,
                "reason": None if whole else self.reason,
                "not_here": None,
                "trial": rounds[0].trial,
                "spread": {
                    name: CellRange(low=found.low, high=found.high) for name, found in known.items() if found.count > 1
                },
                "rounds": rounds,
            }
        )


FIRST_LOOK = "first-look"
"""What trials are called that confirm a no-loss rate, of a part of which those of pairs are."""
LOOKED = ", first look"
"""What their places end with."""


@dataclass(frozen=True)
class Place:
    """Which part of a method a trial is, where traffic and length of chain do not distinguish it from others."""

    words: str
    """Tells it from all others of its traffic and chain: quiet before cpu, pair 2."""
    side: str
    """What it has in common with its repetitions, in pairs or rounds: quiet."""
    among: str = ""
    """Which sides it is to be set beside, where not all: the pattern of a matrix."""


def places(found: Iterable[Measurement]) -> dict[str, Place]:
    """By a trial's name: which cell of a matrix, which side of which pair, or which part of a method it is."""
    said: dict[str, Place] = {}
    for finding in found:
        if isinstance(finding, MatrixCell):
            place = Place(finding.place, f"{finding.fabric}, {finding.interface}", finding.pattern)
            said |= {each.trial: place for each in finding.rounds}
        elif isinstance(finding, ComparisonFinding):
            for number in range(1, len(finding.pairs) + 1):
                for each in finding.sides:
                    for name, words, side in _trials_of(finding, each, number):
                        said[name_in_round(name, finding.round)] = Place(f"{words}, pair {number}", side)
            for each in finding.sides if finding.method == "compare" else (finding.baseline,):
                words = f"{each}{LOOKED}"
                said[name_in_round(f"{finding.case}-{each}-{FIRST_LOOK}", finding.round)] = Place(words, words)
        elif isinstance(finding, ShareFinding):
            said |= _places_of_share(finding)
        elif isinstance(finding, ReorderFinding):
            for name, words in (("together", "flows together"), ("apart", "flows apart")):
                said[name_in_round(f"{finding.case}-{name}", finding.round)] = Place(words, words)
    return said


def _places_of_share(finding: ShareFinding) -> dict[str, Place]:
    sides = {"function": f"with {finding.function}", "skeleton": "with the skeleton"}
    said = {
        name_in_round(f"{finding.case}-pair-{number}-{side}", finding.round): Place(f"{words}, pair {number}", words)
        for number in range(1, len(finding.pairs) + 1)
        for side, words in sides.items()
    }
    words = f"{sides['function']}{LOOKED}"
    said[name_in_round(f"{finding.case}-{FIRST_LOOK}", finding.round)] = Place(words, words)
    for budget in finding.budgets:
        for side, trial in (("function", budget.function_trial), ("skeleton", budget.skeleton_trial)):
            words = f"{sides[side]}, traced"
            said[trial] = Place(words, words)
    return said


def _trials_of(finding: ComparisonFinding, side: str, number: int) -> Iterator[tuple[str, str, str]]:
    """The names of a side's trials in a pair, what they are, and of which side: noise has a quiet one before each."""
    quiet = finding.baseline
    if finding.method == "compare":
        yield f"{finding.case}-{side}-pair-{number}", side, side
    elif side != quiet:
        yield f"{finding.case}-pair-{number}-{side}-{quiet}", f"{quiet} before {side}", quiet
        yield f"{finding.case}-pair-{number}-{side}", side, side
