"""What differs between runs: spec, host, versions, how they were run, and the figures of trials of the same name.

Figures of two runs were measured at two times; on a shared machine they may differ for that alone. The floors, which
are trials too, show by how much.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.results.findings import ThroughputFinding
from tailrace.results.model import Latency, Run, Trial
from tailrace.results.share import ShareFinding
from tailrace.results.stored import StoredRun

CHANGING = ("system: load", "cpu: mhz_now", "memory: available_mib", "memory: hugepages_2mib: free")
"""Facts of a host that are others at every look, and say nothing of the difference between two runs."""


@dataclass(frozen=True)
class Figure:
    """A figure of a trial."""

    name: str
    unit: str
    of: Callable[[Trial], float | int | None]
    """None where the trial has none."""


def _latency(field: str) -> Callable[[Trial], float | None]:
    def of(trial: Trial) -> float | None:
        latency: Latency | None = trial.worse.latency_us
        return None if latency is None else getattr(latency, field)

    return of


FIGURES = (
    Figure("no-loss rate", "Mpps", lambda trial: None if trial.no_loss_pps is None else trial.no_loss_pps / 1e6),
    Figure("offered", "Mpps", lambda trial: trial.offered_pps / 1e6),
    Figure("received", "Mpps", lambda trial: trial.worse.mpps),
    Figure("lost", "frames", lambda trial: trial.total("lost")),
    Figure("duplicate", "frames", lambda trial: trial.total("duplicate")),
    Figure("out of sequence", "frames", lambda trial: trial.total("out_of_sequence")),
    Figure("latency min", "µs", _latency("min")),
    Figure("latency avg", "µs", _latency("average")),
    Figure("latency p50", "µs", _latency("p50")),
    Figure("latency p99", "µs", _latency("p99")),
    Figure("latency p99.9", "µs", _latency("p99_9")),
    Figure("latency max", "µs", _latency("max")),
)


@dataclass(frozen=True)
class Differing:
    """Something that is not the same in all runs: what each says of it, None where it says nothing."""

    name: str
    values: tuple[str | None, ...]


@dataclass(frozen=True)
class Compared:
    """A figure of a trial that both of two runs have."""

    trial: str
    figure: str
    unit: str
    a: float | int
    b: float | int

    @property
    def ratio(self) -> float | None:
        """b ÷ a; None where a is 0."""
        return self.b / self.a if self.a else None


@dataclass(frozen=True)
class Difference:
    """What changed from run `a` to run `b`."""

    a: str
    b: str
    setting: tuple[Differing, ...]
    host: tuple[Differing, ...]
    versions: tuple[Differing, ...]
    spec: tuple[str, ...]
    """Lines of a unified diff; none if the specs are the same."""
    figures: tuple[Compared, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    """Trials that only one has."""

    def as_data(self) -> dict[str, Any]:
        """What --json prints."""

        def pairs(several: Sequence[Differing]) -> dict[str, Any]:
            return {each.name: {"a": each.values[0], "b": each.values[1]} for each in several}

        return {
            "a": self.a,
            "b": self.b,
            "setting": pairs(self.setting),
            "host": pairs(self.host),
            "versions": pairs(self.versions),
            "spec": list(self.spec),
            "figures": [
                {"trial": f.trial, "figure": f.figure, "unit": f.unit, "a": f.a, "b": f.b, "ratio": f.ratio}
                for f in self.figures
            ],
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
        }


def diff(a: StoredRun, b: StoredRun) -> Difference:
    """What changed from `a` to `b`. Trials are matched by their names."""
    ours = {trial.name: trial for trial in a.run.trials}
    theirs = {trial.name: trial for trial in b.run.trials}
    figures = [
        Compared(name, figure.name, figure.unit, one, other)
        for name in ours
        if name in theirs
        for figure in FIGURES
        if (one := figure.of(ours[name])) is not None and (other := figure.of(theirs[name])) is not None
    ]
    figures += _rates(a.run, b.run)
    figures += _shares(a.run, b.run)
    return Difference(
        a=a.run.id,
        b=b.run.id,
        setting=tuple(differing([_setting(each.run) for each in (a, b)])),
        host=tuple(differing_hosts([a.run, b.run])),
        versions=tuple(differing([each.run.versions for each in (a, b)])),
        spec=tuple(spec_lines(a, b)),
        figures=tuple(figures),
        only_a=tuple(name for name in ours if name not in theirs),
        only_b=tuple(name for name in theirs if name not in ours),
    )


def _rates(a: Run, b: Run) -> list[Compared]:
    """The throughput that both have found, for the same part of loss."""
    ours, theirs = (
        {
            (each.name, goal.loss_ratio): goal.pps / 1e6
            for each in run.findings
            if isinstance(each, ThroughputFinding)
            for goal in each.goals
        }
        for run in (a, b)
    )
    return [
        Compared(name, f"throughput, {100 * loss:g} % lost", "Mpps", rate, theirs[name, loss])
        for (name, loss), rate in ours.items()
        if (name, loss) in theirs
    ]


def _shares(a: Run, b: Run) -> list[Compared]:
    """What a function adds to the mean and to the 99th percentile of each direction, in both runs."""
    ours, theirs = (
        {
            (each.name, f"share of {each.function}, {part.direction} {part.figure.removesuffix('_us')}"): part
            for each in run.findings
            if isinstance(each, ShareFinding)
            for part in each.contributions
            if part.figure in ("average_us", "p99_us")
        }
        for run in (a, b)
    )
    return [
        Compared(name, figure, "µs", part.difference_us, theirs[name, figure].difference_us)
        for (name, figure), part in ours.items()
        if (name, figure) in theirs
    ]


def spec_lines(a: StoredRun, b: StoredRun) -> list[str]:
    """The unified diff of the specs of two runs; empty if they are the same."""
    names = (a.run.spec or "spec", b.run.spec or "spec")
    return list(difflib.unified_diff(a.spec.splitlines(), b.spec.splitlines(), *names, lineterm="", n=2))


def differing(runs: Sequence[Mapping[str, str]]) -> list[Differing]:
    """The keys of which the `runs` do not say the same, in order of their first appearance."""
    keys = dict.fromkeys(key for each in runs for key in each)
    rows = (Differing(key, tuple(each.get(key) for each in runs)) for key in keys)
    return [row for row in rows if len(set(row.values)) > 1]


def differing_hosts(runs: Sequence[Run]) -> list[Differing]:
    """The hosts' facts of which `runs` do not say the same, without those that change from moment to moment."""
    known = [{name: text for name, text in facts(run.host) if name not in CHANGING} for run in runs]
    return differing(known)


def _setting(run: Run) -> dict[str, str]:
    return {
        "method": run.method,
        "spec": run.spec or "none",
        "fabric": run.fabric or "none",
        "oversubscribed": "yes" if run.oversubscribed else "no",
        "valid": "yes" if run.valid else f"no: {run.reason}",
        "command": " ".join(run.command),
    }


def facts(value: Any, name: str = "") -> list[tuple[str, str]]:
    """The leaves of a tree of host facts as pairs of name and text: {"cpu": {"cores": 2}} is ("cpu: cores", "2")."""
    if isinstance(value, Mapping):
        return [pair for key, part in value.items() for pair in facts(part, f"{name}: {key}" if name else str(key))]
    if isinstance(value, list | tuple):
        if any(isinstance(part, Mapping | list | tuple) for part in value):
            return [pair for number, part in enumerate(value) for pair in facts(part, f"{name} {number}")]
        return [(name, ", ".join(_leaf(part) for part in value) or "none")]
    return [(name, _leaf(value))]


def _leaf(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
