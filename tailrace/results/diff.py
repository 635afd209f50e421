"""What differs between runs: spec, host, versions, how they were run, and the figures of trials that are alike.

Trials are alike by name; and where only one of two runs had several rates, which are in the names then, by their rate.

Where a trial was repeated, in rounds or in the pairs of a comparison, the medians are set against each other, each with
its spread. Figures of two runs were measured at two times; on a shared machine they may differ for that alone. The
floors, which are trials too, show by how much.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.results.comparison import ComparisonFinding
from tailrace.results.findings import BurstFinding, LossFinding, ReorderFinding, ThroughputFinding
from tailrace.results.model import Latency, Run, Trial
from tailrace.results.share import ShareFinding
from tailrace.results.spread import Spread, spread
from tailrace.results.stored import StoredRun

CHANGING = ("system: load", "cpu: mhz_now", "memory: available_mib", "memory: hugepages_2mib: free")
"""Facts of a host that are others at every look, and say nothing of the difference between two runs."""

Cases = dict[str, list[Trial]]
"""By the name of a case, all trials of it."""

_PAIR = re.compile(r"-pair-\d+")
_AT_RATE = re.compile(r"-at-[^-]+")
_FLOOR = "floor-for-"
"""What a floor that was measured for one case begins with: it has the rate of that."""


@dataclass(frozen=True)
class Figure:
    """A figure of a trial."""

    name: str
    unit: str
    of: Callable[[Trial], float | int | None]
    """None where the trial has none."""
    summed: bool = False
    """Over rounds: a frame lost in one of them is not made good by the others."""


def _latency(field: str) -> Callable[[Trial], float | None]:
    def of(trial: Trial) -> float | None:
        latency: Latency | None = trial.worse.latency_us
        return None if latency is None else getattr(latency, field)

    return of


FIGURES = (
    Figure("no-loss rate", "Mpps", lambda trial: None if trial.no_loss_pps is None else trial.no_loss_pps / 1e6),
    Figure("offered", "Mpps", lambda trial: trial.offered_pps / 1e6),
    Figure("received", "Mpps", lambda trial: trial.worse.mpps),
    Figure("lost", "frames", lambda trial: trial.total("lost"), summed=True),
    Figure("duplicate", "frames", lambda trial: trial.total("duplicate"), summed=True),
    Figure("out of sequence", "frames", lambda trial: trial.total("out_of_sequence"), summed=True),
    Figure("latency min", "µs", _latency("min")),
    Figure("latency avg", "µs", _latency("average")),
    Figure("latency p50", "µs", _latency("p50")),
    Figure("latency p99", "µs", _latency("p99")),
    Figure("latency p99.9", "µs", _latency("p99_9")),
    Figure("latency max", "µs", _latency("max")),
)

_HOST_FIGURES = {
    "min": "min", "average": "avg", "p50": "p50", "p99": "p99", "p99_9": "p99.9", "p99_99": "p99.99", "max": "max",
}  # fmt: skip


@dataclass(frozen=True)
class Differing:
    """Something that is not the same in all runs: what each says of it, None where it says nothing."""

    name: str
    values: tuple[str | None, ...]


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

    @property
    def ratio(self) -> float | None:
        """b ÷ a; None where a is 0."""
        return self.b / self.a if self.a else None

    @property
    def spreads(self) -> dict[str, Spread]:
        """Those that there are, by the side: a, b."""
        both = {"a": self.a_spread, "b": self.b_spread}
        return {side: each for side, each in both.items() if each is not None}


@dataclass(frozen=True)
class Rates:
    """A case that two runs measured at rates of which none is the same."""

    trial: str
    a: tuple[str, ...]
    b: tuple[str, ...]
    """Such as 90%."""


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
    """Trials and findings that only one has, of traffic or of the host."""
    rates: tuple[Rates, ...] = ()
    """Cases without a rate in common."""
    rounds: tuple[int, int] = (1, 1)
    """Of each run."""

    def as_data(self) -> dict[str, Any]:
        """What --json prints."""

        def pairs(several: Sequence[Differing]) -> dict[str, Any]:
            return {each.name: {"a": each.values[0], "b": each.values[1]} for each in several}

        return {
            "a": self.a,
            "b": self.b,
            "rounds": {"a": self.rounds[0], "b": self.rounds[1]},
            "setting": pairs(self.setting),
            "host": pairs(self.host),
            "versions": pairs(self.versions),
            "spec": list(self.spec),
            "figures": [
                {"trial": f.trial, "figure": f.figure, "unit": f.unit, "a": f.a, "b": f.b, "ratio": f.ratio}
                | {f"{side}_range": [each.low, each.high] for side, each in f.spreads.items()}
                for f in self.figures
            ],
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
            "rates": [{"trial": each.trial, "a": list(each.a), "b": list(each.b)} for each in self.rates],
        }


def diff(a: StoredRun, b: StoredRun) -> Difference:
    """What changed from `a` to `b`. Trials are matched by their names and rates, all rounds of one together."""
    ours, theirs = (_cases(each.run) for each in (a, b))
    alike = _alike(ours, theirs)
    figures = [
        found
        for here, there in alike.items()
        for figure in FIGURES
        if (found := _compared(max(here, there, key=len), figure, ours[here], theirs[there])) is not None
    ]
    figures += _found(a.run, b.run)
    others = [
        dict.fromkeys([*(each.case for each in run.findings), *(each.name for each in run.host_trials)])
        for run in (a.run, b.run)
    ]
    only_a, only_b = (
        tuple(dict.fromkeys(name for name in (*cases, *mine) if name not in matched and name not in (*other, *yours)))
        for cases, mine, matched, other, yours in (
            (ours, others[0], alike.keys(), theirs, others[1]),
            (theirs, others[1], alike.values(), ours, others[0]),
        )
    )
    return Difference(
        a=a.run.id,
        b=b.run.id,
        setting=tuple(differing([_setting(each.run) for each in (a, b)])),
        host=tuple(differing_hosts([a.run, b.run])),
        versions=tuple(differing([each.run.versions for each in (a, b)])),
        spec=tuple(spec_lines(a, b)),
        figures=tuple(figures),
        only_a=only_a,
        only_b=only_b,
        rates=tuple(_no_rate_in_common(ours, theirs)),
        rounds=(a.run.repeat, b.run.repeat),
    )


def _cases(run: Run) -> Cases:
    """The trials of each case: its rounds, and in a comparison those of all pairs."""
    paired = any(isinstance(each, ComparisonFinding) for each in run.findings)
    cases: Cases = {}
    for trial in run.trials:
        cases.setdefault(_PAIR.sub("", trial.case) if paired else trial.case, []).append(trial)
    return cases


def _alike(ours: Cases, theirs: Cases) -> dict[str, str]:
    """The cases that both have, in the order of ours: of the same name, or but for the rate in one's name the same."""
    at_rate = {(_AT_RATE.sub("", name), _rate(name, theirs)): name for name in theirs if name not in ours}
    pairs = {
        name: name if name in theirs else at_rate.get((_AT_RATE.sub("", name), _rate(name, ours))) for name in ours
    }
    return {here: there for here, there in pairs.items() if there is not None}


def _rate(name: str, cases: Cases) -> str:
    """The rate of a case: 50% of the no-loss rate, or 0.1 Mpps; of a floor that of what it was measured for."""
    trial = cases.get(name.removeprefix(_FLOOR), cases[name])[0]
    if trial.rate_fraction is not None:
        return f"{100 * trial.rate_fraction:.4g}%"
    return f"{trial.offered_pps / 1e6:.4g} Mpps" if trial.offered_pps else "as fast as possible"


def _no_rate_in_common(ours: Cases, theirs: Cases) -> Iterator[Rates]:
    """The cases that both have, but at other rates. A floor has those of what it was measured for."""
    rates: tuple[dict[str, dict[str, None]], ...] = ({}, {})
    for found, cases in zip(rates, (ours, theirs), strict=True):
        for name in cases:
            if not name.startswith(_FLOOR) and cases[name][0].functions:
                found.setdefault(_AT_RATE.sub("", name), {})[_rate(name, cases)] = None
    for name, here in rates[0].items():
        there = rates[1].get(name, {})
        if there and not here.keys() & there.keys():
            yield Rates(name, tuple(here), tuple(there))


def _compared(name: str, figure: Figure, ours: Sequence[Trial], theirs: Sequence[Trial]) -> Compared | None:
    one, other = ([value for trial in trials if (value := figure.of(trial)) is not None] for trials in (ours, theirs))
    if figure.summed and one and other:
        return Compared(name, figure.name, figure.unit, sum(one), sum(other))
    return _medians(name, figure.name, figure.unit, one, other)


def _medians(name: str, figure: str, unit: str, ours: Sequence[float], theirs: Sequence[float]) -> Compared | None:
    one, other = spread(ours), spread(theirs)
    if one is None or other is None:
        return None
    spreads = (each if each.count > 1 else None for each in (one, other))
    return Compared(name, figure, unit, one.median, other.median, *spreads)


def _found(a: Run, b: Run) -> list[Compared]:
    """What both have beside trials of traffic: what methods found, and what was measured of the host."""
    ours, theirs = ({**_findings(run), **_host(run)} for run in (a, b))
    both = (_medians(*key, ours[key], theirs[key]) for key in ours if key in theirs)
    return [each for each in both if each is not None]


def _findings(run: Run) -> dict[tuple[str, str, str], list[float]]:
    """The figures of findings, of all rounds, by case, figure and unit."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for each in run.findings:
        if isinstance(each, ThroughputFinding):
            for goal in each.goals:
                name = f"throughput, {100 * goal.loss_ratio:g} % lost"
                found.setdefault((each.case, name, "Mpps"), []).append(goal.pps / 1e6)
        elif isinstance(each, LossFinding):
            found.setdefault((each.case, "full rate", "Mpps"), []).append(each.full_pps / 1e6)
            for fraction, trial in each.points.items():
                name = f"lost at {100 * fraction:g} % of the full rate"
                found.setdefault((each.case, name, "%"), []).append(100 * trial.loss_ratio)
        elif isinstance(each, ReorderFinding):
            for name, order in (("together", each.together), ("apart", each.apart)):
                found.setdefault((each.case, f"reordered, {name}", "%"), []).append(100 * order.ratio)
        elif isinstance(each, BurstFinding):
            found.setdefault((each.case, "longest burst", "frames"), []).append(each.average)
        elif isinstance(each, ComparisonFinding):
            for ratio in each.ratios:
                name = f"{ratio.side} ÷ {each.baseline}, {ratio.figure}"
                found.setdefault((each.case, name, "×"), []).append(ratio.median)
        elif isinstance(each, ShareFinding):
            for part in each.contributions:
                if part.figure in ("average_us", "p99_us"):
                    name = f"share of {each.function}, {part.direction} {part.figure.removesuffix('_us')}"
                    found.setdefault((each.case, name, "µs"), []).append(part.difference_us)
    return found


def _host(run: Run) -> dict[tuple[str, str, str], list[float]]:
    """The figures of host trials, by trial, figure and unit."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for trial in run.host_trials:
        if trial.latency_us is not None:
            values = ((name, getattr(trial.latency_us, field)) for field, name in _HOST_FIGURES.items())
            found |= {(trial.name, name, "µs"): [value] for name, value in values}
        found[trial.name, "missed", "values"] = [trial.missed]
    return found


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
