"""What was measured several times, together: of each figure the median, the lowest and the highest, for all methods.

Figures of findings are those of the table of comma-separated values (table_findings.py), by the same names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from tailrace.results.comparison import ComparisonFinding, MatrixCell
from tailrace.results.record import Count, Measurement, OfTraffic
from tailrace.results.share import ShareFinding
from tailrace.results.spread import Spread, by_case, spread
from tailrace.results.table_findings import Line, figures

if TYPE_CHECKING:
    from tailrace.results.model import Trial

COMPARING = (ComparisonFinding, MatrixCell, ShareFinding)
"""Findings that say of their trials what there is to say."""

_COUNTS = ("lost", "duplicate", "out_of_sequence")
_LATENCY = {
    "min": "min_us", "average": "average_us", "p50": "p50_us", "p90": "p90_us", "p99": "p99_us", "p99_9": "p99.9_us",
    "p99_99": "p99.99_us", "max": "max_us",
}  # fmt: skip

Key = tuple[str | None, str]
"""A direction, where a figure is of one, and the figure's name."""


class Pooled(OfTraffic):
    """A figure that was measured several times."""

    finding: str | None = Field(description="Method of the finding that it is of; null of a measured trial.")
    name: str = Field(min_length=1, description="Name of the trial or finding; over rounds, without the round.")
    functions: Count | None = Field(description="Functions in its chain; null of a device between two ports.")
    direction: str | None = Field(default=None, description="Such as a-to-b, where it is of one direction.")
    figure: str = Field(min_length=1, description="Which figure, such as p99_us; its unit is in the name.")
    over: Literal["rounds", "pairs"] = Field(description="What was repeated.")
    values: Count = Field(description="How many rounds or pairs have it.")
    median: float = Field(description="The median of them.")
    low: float = Field(description="The lowest.")
    high: float = Field(description="The highest.")


def pooled_of(trials: Sequence[Trial], findings: Sequence[Measurement]) -> Iterator[Pooled]:
    """All figures of a run that were measured several times."""
    for finding in findings:
        for line in figures(finding):
            if "over" in line and "level" not in line:  # an interval's ends are not the lowest and the highest
                over = Spread(line["value"], line["low"], line["high"], line["values"])
                yield _pooled(finding, finding.name, (line.get("direction"), line["figure"]), line["over"], over)
    yield from over_rounds(trials, findings)


def over_rounds(trials: Sequence[Trial], findings: Sequence[Measurement]) -> Iterator[Pooled]:
    """The figures of trials and findings that were measured in several rounds; not of cells, which have theirs.

    Trials of which their findings say all are left out.
    """
    for rounds in by_case(findings):
        for key, found in pool([list(figures(each)) for each in rounds]).items():
            yield _pooled(rounds[0], rounds[0].case, key, "rounds", found)
    if not any(isinstance(each, COMPARING) for each in findings):
        for same in by_case(trials):
            for key, found in pool([list(_figures_of(each)) for each in same]).items():
                yield _pooled(same[0], same[0].case, key, "rounds", found)


def pool(rounds: Sequence[Sequence[Line]]) -> Mapping[Key, Spread]:
    """The spread of each figure over rounds; of those that several rounds have."""
    found: dict[Key, list[float]] = {}
    for lines in rounds:
        for line in lines:
            value = line.get("value")
            if isinstance(value, int | float):
                found.setdefault((line.get("direction"), line["figure"]), []).append(value)
    spreads = ((key, spread(values)) for key, values in found.items())
    return {key: each for key, each in spreads if each is not None and each.count > 1}


def _pooled(of: Measurement, name: str, key: Key, over: Literal["rounds", "pairs"], found: Spread) -> Pooled:
    return Pooled(
        finding=getattr(of, "method", None),
        name=name,
        **of.traffic_kind._asdict(),
        functions=of.functions,
        direction=key[0],
        figure=key[1],
        over=over,
        values=found.count,
        median=found.median,
        low=found.low,
        high=found.high,
    )


def _figures_of(trial: Trial) -> Iterator[Line]:
    """The figures of a trial: rates, loss ratio and latency of the worse direction, counts of all."""
    worse, latency = trial.worse, trial.worse.latency_us
    known = {
        "no_loss_pps": trial.no_loss_pps,
        "searched_pps": trial.searched.pps if trial.searched else None,
        "offered_pps": trial.offered_pps,
        "mpps": worse.mpps,
        "loss_ratio": worse.loss_ratio,
        **{name: trial.total(name) for name in _COUNTS},
        **({name: getattr(latency, field) for field, name in _LATENCY.items()} if latency else {}),
        "floor_ratio": trial.floor_ratio,
    }
    yield from ({"figure": name, "value": value} for name, value in known.items() if value is not None)
