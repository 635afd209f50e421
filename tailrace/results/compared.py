"""The figures that two runs have in common, set against each other: of trials, of what methods found, of the host.

Where something was repeated the medians are, each with its spread; of frames lost the sums. A figure says of each side
what marks it: that it is of a lower rate, near the tester's own floor, or that the tester was the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from tailrace.results.comparison import ComparisonFinding
from tailrace.results.findings import BurstFinding, LossFinding, ReorderFinding, StacksFinding, ThroughputFinding
from tailrace.results.migration import MigrationFinding
from tailrace.results.model import Latency, Run, Trial, sent_of
from tailrace.results.no_loss import Bound
from tailrace.results.record import is_near_floor
from tailrace.results.share import ShareFinding
from tailrace.results.spread import Spread, spread

Mark = Literal["fell_short", "near_floor"] | Bound
"""What a reader must know of a figure, by the names that the CSV has."""


@dataclass(frozen=True)
class Figure:
    """A figure of a trial."""

    name: str
    unit: str
    of: Callable[[Trial], float | int | None]
    """None where the trial has none."""
    summed: bool = False
    """Over rounds: a frame lost in one of them is not made good by the others."""
    marks: tuple[Callable[[Sequence[Trial]], Mark | None], ...] = ()
    """What may mark it, of all rounds."""


@dataclass(frozen=True)
class Compared:
    """A figure that both of two runs have, of a trial or a finding."""

    trial: str
    figure: str
    unit: str
    a: float | int
    b: float | int
    """Medians over rounds; of counts of faults, sums."""
    a_spread: Spread | None = None
    b_spread: Spread | None = None
    """Of several rounds; None of one, and of sums."""
    a_marks: tuple[Mark, ...] = ()
    b_marks: tuple[Mark, ...] = ()

    @property
    def ratio(self) -> float | None:
        """b ÷ a; None where a is 0."""
        return self.b / self.a if self.a else None

    @property
    def spreads(self) -> dict[str, Spread]:
        """Those that there are, by the side: a, b."""
        both = {"a": self.a_spread, "b": self.b_spread}
        return {side: each for side, each in both.items() if each is not None}

    @property
    def marks(self) -> dict[str, tuple[Mark, ...]]:
        """Those that there are, by the side: a, b."""
        return {side: each for side, each in (("a", self.a_marks), ("b", self.b_marks)) if each}


@dataclass
class Values:
    """What a run says of one figure, in all rounds."""

    values: list[float] = field(default_factory=list)
    marks: dict[Mark, None] = field(default_factory=dict)
    """In one round is enough."""

    def add(self, value: float, *marks: Mark | None) -> None:
        self.values.append(value)
        self.marks |= dict.fromkeys(mark for mark in marks if mark)


ByFigure = dict[tuple[str, str], Values]
"""By figure and unit."""


def _latency(name: str) -> Callable[[Trial], float | None]:
    def of(trial: Trial) -> float | None:
        latency: Latency | None = trial.worse.latency_us
        return None if latency is None else getattr(latency, name)

    return of


def _fell_short(trials: Sequence[Trial]) -> Mark | None:
    return "fell_short" if sent_of(trials).fell_short else None


def _near_floor(trials: Sequence[Trial]) -> Mark | None:
    known = [trial.floor_ratio for trial in trials if trial.floor_ratio is not None]
    return "near_floor" if known and is_near_floor(median(known)) else None


def _bound(trials: Sequence[Trial]) -> Mark | None:
    known = (trial.searched for trial in trials if trial.no_loss_pps is not None)
    return next((searched.bound for searched in known if searched and searched.bound), None)


_SENT = (_fell_short,)

FIGURES = (
    Figure(
        "no-loss rate",
        "Mpps",
        lambda trial: None if trial.no_loss_pps is None else trial.no_loss_pps / 1e6,
        marks=(_bound,),
    ),
    Figure("offered", "Mpps", lambda trial: trial.offered_pps / 1e6),
    Figure("received", "Mpps", lambda trial: trial.worse.mpps, marks=_SENT),
    Figure("lost", "frames", lambda trial: trial.total("lost"), summed=True),
    Figure("duplicate", "frames", lambda trial: trial.total("duplicate"), summed=True),
    Figure("out of sequence", "frames", lambda trial: trial.total("out_of_sequence"), summed=True),
    Figure("latency min", "µs", _latency("min"), marks=_SENT),
    Figure("latency avg", "µs", _latency("average"), marks=_SENT),
    Figure("latency p50", "µs", _latency("p50"), marks=(_fell_short, _near_floor)),
    Figure("latency p99", "µs", _latency("p99"), marks=_SENT),
    Figure("latency p99.9", "µs", _latency("p99_9"), marks=_SENT),
    Figure("latency max", "µs", _latency("max"), marks=_SENT),
)

_HOST_FIGURES = {
    "min": "min", "average": "avg", "p50": "p50", "p99": "p99", "p99_9": "p99.9", "p99_99": "p99.99", "max": "max",
}  # fmt: skip


def of_trials(name: str, figure: Figure, ours: Sequence[Trial], theirs: Sequence[Trial]) -> Compared | None:
    """A figure of the trials of a case, all rounds together; None where one run has none."""
    both = []
    for trials in (ours, theirs):
        known = [value for trial in trials if (value := figure.of(trial)) is not None]
        both.append(Values(known, dict.fromkeys(mark for of in figure.marks if (mark := of(trials)))))
    one, other = both
    if figure.summed and one.values and other.values:
        return Compared(name, figure.name, figure.unit, sum(one.values), sum(other.values))
    return _medians(name, figure.name, figure.unit, one, other)


def _medians(name: str, figure: str, unit: str, ours: Values, theirs: Values) -> Compared | None:
    one, other = spread(ours.values), spread(theirs.values)
    if one is None or other is None:
        return None
    here, there = (each if each.count > 1 else None for each in (one, other))
    return Compared(name, figure, unit, one.median, other.median, here, there, tuple(ours.marks), tuple(theirs.marks))


def medians_of(name: str, ours: ByFigure, theirs: ByFigure) -> list[Compared]:
    """What both have, by their medians."""
    both = (_medians(name, *key, ours[key], theirs[key]) for key in ours if key in theirs)
    return [each for each in both if each is not None]


def of_findings(run: Run) -> dict[str, ByFigure]:
    """The figures of findings, by case."""
    cases: dict[str, ByFigure] = {}
    for each in run.findings:
        found = cases.setdefault(each.case, {})

        def add(figure: str, unit: str, value: float, *marks: Mark | None, found: ByFigure = found) -> None:
            found.setdefault((figure, unit), Values()).add(value, *marks)

        if isinstance(each, ThroughputFinding):
            for goal in each.goals:
                add(f"throughput, {100 * goal.loss_ratio:g} % lost", "Mpps", goal.pps / 1e6, goal.bound)
        elif isinstance(each, LossFinding):
            add("full rate", "Mpps", each.full_pps / 1e6)
            for fraction, trial in each.points.items():
                short: Mark | None = "fell_short" if trial.fell_short else None
                add(f"lost at {100 * fraction:g} % of the full rate", "%", 100 * trial.loss_ratio, short)
        elif isinstance(each, ReorderFinding):
            for name, order in (("together", each.together), ("apart", each.apart)):
                add(f"reordered, {name}", "%", 100 * order.ratio)
        elif isinstance(each, MigrationFinding):
            for figure in ("outage", "pause", "switch", "total"):
                add(figure, "ms", getattr(each, f"{figure}_ms"))
        elif isinstance(each, StacksFinding):
            for size, gbps in each.gbps.items():
                add(f"TCP by writes of {size} B", "Gbit/s", gbps)
            if each.ping is not None:
                add("ping mean", "µs", each.ping.average_us)
                add("ping mdev", "µs", each.ping.mdev_us)
        elif isinstance(each, BurstFinding) and each.frames:
            add("longest burst", "frames", each.average)
        elif isinstance(each, ComparisonFinding):
            for ratio in each.ratios:
                short = "fell_short" if each.sent(ratio.side, each.baseline).marks(ratio.figure) else None
                add(f"{ratio.side} ÷ {each.baseline}, {ratio.figure}", "×", ratio.median, short, ratio.bound)
        elif isinstance(each, ShareFinding):
            for part in each.contributions:
                if part.figure in ("average_us", "p99_us"):
                    short = "fell_short" if each.sent(part.direction, "function", "skeleton").fell_short else None
                    name = f"share of {each.function}, {part.direction} {part.figure.removesuffix('_us')}"
                    add(name, "µs", part.difference_us, short)
    return cases


def of_host(run: Run) -> dict[str, ByFigure]:
    """The figures of host trials, by trial."""
    cases: dict[str, ByFigure] = {}
    for trial in run.host_trials:
        found = cases.setdefault(trial.name, {})
        if trial.latency_us is not None:
            values = ((name, getattr(trial.latency_us, each)) for each, name in _HOST_FIGURES.items())
            found |= {(name, "µs"): Values([value]) for name, value in values}
        found["missed", "values"] = Values([trial.missed])
        if trial.budget is not None:
            found["over budget", "intervals"] = Values([trial.budget.late + trial.budget.missed])
    return cases
