"""What differs between runs: spec, host, versions, how they were run, and the figures of trials that are alike.

Trials are alike by what was measured and by how: rate, flows, capture, duration; what findings rest on is looked at in
the same way. Of names only the part counts that says what was measured: a number that separates tests of a spec says
nothing of another spec. Where a run has one trial of a kind, and another run one too, the two are set against each
other whatever they differ in, and that is said.

Where a trial was repeated, in rounds or in the pairs of a comparison, the medians are set against each other, each with
its spread. Figures of two runs were measured at two times; on a shared machine they may differ for that alone. The
floors, which are trials too, show by how much.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.results.compared import FIGURES, Compared, medians_of, of_findings, of_host, of_trials
from tailrace.results.comparison import ComparisonFinding, MatrixCell, places
from tailrace.results.findings import StacksFinding, ThroughputFinding
from tailrace.results.model import Finding, Measurement, Run, Trial
from tailrace.results.record import CAPTURE_SUM
from tailrace.results.share import ShareFinding
from tailrace.results.spread import by_case
from tailrace.results.stored import StoredRun

CHANGING = ("system: load", "cpu: mhz_now", "memory: available_mib", "memory: hugepages_2mib: free")
"""Facts of a host that are others at every look, and say nothing of the difference between two runs."""

Cases = dict[str, list[Trial]]
"""By the name of a case, all trials of it."""

Word = str | float | None
"""One thing about how a case was measured; None is not known, and may be anything."""

_PAIR = re.compile(r"-pair-\d+")
_AT_RATE = re.compile(r"-at-[^-]+")
_AGAIN = re.compile(r"-again-\d+")
_FLOOR = "floor-for-"
"""What a floor that was measured for one case begins with: it has the rate of that."""


@dataclass(frozen=True)
class Differing:
    """Something that is not the same in all runs: what each says of it, None where it says nothing."""

    name: str
    values: tuple[str | None, ...]


@dataclass(frozen=True)
class Case:
    """What is set against its like in another run."""

    name: str
    words: Mapping[str, Word]
    """How it was measured, by what that is."""
    method: str = ""
    """Of what a method found."""

    @property
    def kind(self) -> str:
        """The part of its name that says what was measured."""
        return _AGAIN.sub("", _AT_RATE.sub("", self.name))

    def unlike(self, other: Case) -> list[str]:
        """What it differs in from another."""
        both = ((name, word, other.words.get(name)) for name, word in self.words.items())
        return [name for name, one, two in both if one is not None and two is not None and not _same(one, two)]

    @property
    def said(self) -> str:
        """one-function-64 (50%, 10 s)"""
        words = [_shown(name, word) for name, word in self.words.items() if word is not None]
        return _AGAIN.sub("", self.name) + (f" ({', '.join(words)})" if words else "")


@dataclass(frozen=True)
class Unlike:
    """Something in which two trials that are set against each other differ."""

    trial: str
    what: str
    """Such as duration."""
    a: str
    b: str


@dataclass(frozen=True)
class Rates:
    """A case that two runs measured at rates of which none is the same."""

    trial: str
    a: tuple[str, ...]
    b: tuple[str, ...]
    """Such as 90%."""


@dataclass(frozen=True)
class NotMeasured:
    """A cell of a matrix of which a run has no figures."""

    name: str
    run: str
    """a or b."""
    reason: str | None


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
    unlike: tuple[Unlike, ...] = ()
    """What else cases that are set against each other differ in."""
    not_measured: tuple[NotMeasured, ...] = ()
    """What a run was to measure and has no figures of; what only the other has is reported as that, too."""
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
                | {f"{side}_marks": list(each) for side, each in f.marks.items()}
                for f in self.figures
            ],
            "only_a": list(self.only_a),
            "only_b": list(self.only_b),
            "rates": [{"trial": each.trial, "a": list(each.a), "b": list(each.b)} for each in self.rates],
            "unlike": [{"trial": u.trial, "what": u.what, "a": u.a, "b": u.b} for u in self.unlike],
            "not_measured": [{"name": n.name, "run": n.run, "reason": n.reason} for n in self.not_measured],
        }


def diff(a: StoredRun, b: StoredRun) -> Difference:
    """What changed from `a` to `b`. Trials are matched by all that is known of them, all rounds of one together."""
    ours, theirs = (_cases(each.run) for each in (a, b))
    trials = _Matched([_case(name, ours) for name in ours], [_case(name, theirs) for name in theirs])
    figures = [
        found
        for here, there in trials.pairs
        for figure in FIGURES
        if (found := of_trials(trials.name(here, there), figure, ours[here.name], theirs[there.name])) is not None
    ]
    findings = _Matched(*([_finding(found, run) for found in by_case(_measured(run))] for run in (a.run, b.run)))
    ours_found, theirs_found = (of_findings(run) for run in (a.run, b.run))
    for here, there in findings.pairs:
        figures += medians_of(findings.name(here, there), ours_found[here.name], theirs_found[there.name])
    hosts = [of_host(run) for run in (a.run, b.run)]
    for name in hosts[0]:
        figures += medians_of(name, hosts[0][name], hosts[1].get(name, {}))
    only_a, only_b = (
        tuple(
            dict.fromkeys(
                [
                    *(trials.of(case) for case in trials.left[side]),
                    *(
                        f"{findings.of(case)}, {case.method}"
                        for case in findings.left[side]
                        if case.kind not in trials.kinds[side]
                    ),
                    *(name for name in hosts[side] if name not in hosts[1 - side]),
                ]
            )
        )
        for side in (0, 1)
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
        unlike=(*trials.unlike(), *findings.unlike()),
        not_measured=(*_not_measured(a.run, "a"), *_not_measured(b.run, "b")),
        rounds=(a.run.repeat, b.run.repeat),
    )


def _cases(run: Run) -> Cases:
    """The trials of each case: its rounds, and in a comparison those of all pairs."""
    paired = any(isinstance(each, ComparisonFinding) for each in run.findings)
    cases: Cases = {}
    for trial in run.standing:
        cases.setdefault(_PAIR.sub("", trial.case) if paired else trial.case, []).append(trial)
    return cases


def _case(name: str, cases: Cases) -> Case:
    """A case with how it was measured; a floor with how what it was measured for was, whose rate it has."""
    trial = cases.get(name.removeprefix(_FLOOR), cases[name])[0]
    flows = None if trial.flows is None else float(trial.flows)
    words = {"rate": _rate(name, cases), "flows": flows, "capture": trial.capture, "duration": trial.duration_s}
    return Case(name, words)


def _empty(run: Run) -> list[MatrixCell | StacksFinding]:
    """What of a matrix was not measured: the run has nothing of it but perhaps a reason."""
    return [
        each
        for each in run.findings
        if (isinstance(each, MatrixCell) and each.trial is None) or (isinstance(each, StacksFinding) and not each.gbps)
    ]


def _measured(run: Run) -> list[Finding]:
    empty = _empty(run)
    return [each for each in run.findings if each not in empty]


def _not_measured(run: Run, letter: str) -> list[NotMeasured]:
    return [NotMeasured(each.name, letter, each.not_here or each.reason) for each in _empty(run)]


def _finding(rounds: Sequence[Measurement], run: Run) -> Case:
    """What a method found, with how: of pairs by one of their trials, else by what the finding says itself."""
    first = rounds[0]
    words: dict[str, Word] = {}
    if isinstance(first, ThroughputFinding):
        words = {"search": first.search, "precision": first.precision}
    elif isinstance(first, ComparisonFinding | ShareFinding):
        names = places([first]).keys()
        known = next((trial for trial in run.trials if trial.name in names), None)
        words = dict(_case(known.name, {known.name: [known]}).words) if known else {}
    return Case(first.case, words, getattr(first, "method", ""))


class _Matched:
    """Cases of two runs, each set against at most one of the other run.

    Of one kind those come first that are alike in every word, then those that differ in the duration alone. Where each
    run has one of a kind there is nothing to choose between.
    """

    def __init__(self, ours: Sequence[Case], theirs: Sequence[Case]) -> None:
        self.left: tuple[list[Case], list[Case]] = (list(ours), list(theirs))
        self.kinds = tuple([case.kind for case in each] for each in self.left)
        self._named = [[_AGAIN.sub("", case.name) for case in each] for each in self.left]
        order = {case.name: number for number, case in enumerate(ours)}
        found: list[tuple[Case, Case]] = []
        for excused in ([], ["duration"]):
            for here in list(self.left[0]):
                fitting = [there for there in self.left[1] if there.kind == here.kind]
                fitting = [there for there in fitting if all(word in excused for word in here.unlike(there))]
                if fitting:
                    found.append(self._take(here, min(fitting, key=lambda there: there.name != here.name)))
        alone = [case for case in self.left[0] if all(kinds.count(case.kind) == 1 for kinds in self.kinds)]
        found += [self._take(here, next(each for each in self.left[1] if each.kind == here.kind)) for here in alone]
        self.pairs = sorted(found, key=lambda pair: order[pair[0].name])

    def _take(self, here: Case, there: Case) -> tuple[Case, Case]:
        self.left[0].remove(here)
        self.left[1].remove(there)
        return here, there

    def of(self, case: Case) -> str:
        """What a case is called: with how it was measured where its name does not distinguish it from others."""
        name = _AGAIN.sub("", case.name)
        return case.said if any(each.count(name) > 1 for each in self._named) else case.name

    def name(self, here: Case, there: Case) -> str:
        """What both are called together: the name that says more."""
        return max(self.of(here), self.of(there), key=len)

    def unlike(self) -> Iterator[Unlike]:
        """What those that are set against each other differ in; rates are reported by themselves."""
        for here, there in self.pairs:
            for what in here.unlike(there):
                if what != "rate":
                    both = (_shown(what, each.words[what]) for each in (here, there))
                    yield Unlike(self.name(here, there), what, *both)


def _same(one: str | float, other: str | float) -> bool:
    """Whether two words say the same; a duration is as it was measured, and a capture's sum may not be known."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=0.02)
    texts = str(one), str(other)
    known = all(CAPTURE_SUM in text for text in texts)
    return one == other or (not known and len({text.partition(CAPTURE_SUM)[0] for text in texts}) == 1)


def _shown(what: str, word: Word) -> str:
    if not isinstance(word, float):
        return str(word)
    shown = {"duration": f"{word:.3g} s", "flows": f"{word:.0f} flow{'' if word == 1 else 's'}"}
    return shown.get(what, f"{what} {word:g}")


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
            if not name.startswith(_FLOOR) and not cases[name][0].is_floor:
                found.setdefault(_AT_RATE.sub("", name), {})[_rate(name, cases)] = None
    for name, here in rates[0].items():
        there = rates[1].get(name, {})
        if there and not here.keys() & there.keys():
            yield Rates(name, tuple(here), tuple(there))


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
