"""Older results.json brought to the format that this Tailrace writes, one format at a time.

A step takes the document of one format and returns that of the next; it may only reckon from what the document says.
What cannot be known becomes null, never a guess. Who changes the format adds a step here, and keeps a file of the old
format in tests/unit/data.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from tailrace.results.record import name_in_round

Document = dict[str, Any]


def _say_method_and_spec(document: Document) -> Document:
    """1 to 2: what was measured and of which spec was only in the run's name, such as latency-chain."""
    method, _, spec = str(document.get("name", "")).partition("-")
    return {**document, "method": method or "unknown", "spec": spec or None}


_CELL_FIGURES = (
    "no_loss_pps", "offered_pps", "mpps", "loss_ratio", "p50_us", "p99_us", "p99_9_us", "max_us", "floor_ratio",
    "trial",
)  # fmt: skip


def _give_cells_rounds(document: Document) -> Document:
    """2 to 3: a cell of a matrix was measured once, and had the figures of that round alone."""

    def with_round(finding: Document) -> Document:
        if finding.get("method") != "matrix" or finding.get("trial") is None:
            return finding
        return {**finding, "rounds": [{"round": 1, **{name: finding.get(name) for name in _CELL_FIGURES}}]}

    return {**document, "findings": [with_round(each) for each in document.get("findings", ())]}


_INSTANCE = re.compile(r"@\d+(?=\.[01]\b| |$)")
"""What a process that came in another's place was called beside its function: wan@4.1."""


def _from_3(document: Document) -> Document:
    """3 to 4: parts of a way had the names of processes, and pairs did not say how much was sent.

    What rounds and pairs say together is reckoned from the rest, whenever it is read.
    """
    document = copy.deepcopy(document)
    for trial in document.get("trials", ()):
        for way in trial.get("directions", ()):
            hops = way.get("hops") or {}
            for part in hops.get("parts", ()):
                part["name"] = _INSTANCE.sub("", part["name"])
            for frame in hops.get("slowest", ()):
                frame["parts"] = [_INSTANCE.sub("", name) for name in frame["parts"]]
    return _say_what_was_sent(document)


def _say_what_was_sent(document: Document) -> Document:
    """How much of what was offered to a side of a pair was sent stood with its trials only."""
    trials = {trial.get("name"): trial for trial in document.get("trials", ())}
    findings = [_with_sent(finding, trials) for finding in document.get("findings", ())]
    return {**document, "findings": findings} if findings else document


def _with_sent(finding: Document, trials: Mapping[str, Document]) -> Document:
    """A finding of pairs with the part of the frames offered that was sent, where its trials are there."""
    if finding.get("method") not in ("compare", "noise", "share"):
        return finding
    number = finding.get("round", 1)
    case = str(finding.get("name")).removesuffix(f"-round-{number}")
    baseline, others = finding.get("baseline"), max(len(finding.get("sides", ())) - 1, 1)

    def trial(index: int, pair: Document, side: str) -> Document:
        if finding["method"] == "compare":
            name = f"{case}-{side}-pair-{index + 1}"
        elif finding["method"] == "share":
            name = f"{case}-pair-{index + 1}-{side}"
        else:
            noisy = next((each for each in pair if each != baseline), side)
            name = f"{case}-pair-{index // others + 1}-{noisy}" + (f"-{baseline}" if side == baseline else "")
        return trials.get(name_in_round(name, number), {})

    def with_sent(index: int, pair: Document) -> Document:
        if finding["method"] == "share":
            known = {side: _sent(trial(index, pair, side)) for side in pair}
            return {
                side: {name: _adding(figures, known[side].get(name)) for name, figures in ways.items()}
                for side, ways in pair.items()
            }
        sides = pair.get("sides", {})
        least = {side: min(_sent(trial(index, sides, side)).values(), default=None) for side in sides}
        return {**pair, "sides": {side: _adding(figures, least[side]) for side, figures in sides.items()}}

    return {**finding, "pairs": [with_sent(*each) for each in enumerate(finding.get("pairs", ()))]}


def _sent(trial: Document) -> dict[str, float]:
    """By direction of a trial, the part of the frames offered that was sent; nothing where none was asked for."""
    ways = trial.get("directions", ()) if trial.get("offered_pps") else ()
    return {way["name"]: way["sent"] / way["offered"] for way in ways if way.get("offered")}


def _adding(figures: Document, sent_ratio: float | None) -> Document:
    return figures if sent_ratio is None else {**figures, "sent_ratio": sent_ratio}


def _say_what_cells_sent(document: Document) -> Document:
    """4 to 5: how much of what was offered to a cell of a matrix was sent stood with its trials only."""
    trials = {trial.get("name"): trial for trial in document.get("trials", ())}

    def with_sent(finding: Document) -> Document:
        if finding.get("method") != "matrix":
            return finding
        rounds = [
            _adding(each, min(_sent(trials.get(each.get("trial"), {})).values(), default=None))
            for each in finding.get("rounds", ())
        ]
        known = [each["sent_ratio"] for each in rounds if "sent_ratio" in each]
        if len(known) > 1:
            extremes = {"low": min(known), "high": max(known)}
            finding = {**finding, "spread": {**finding.get("spread", {}), "sent_ratio": extremes}}
        return {**_adding(finding, median(known) if known else None), "rounds": rounds}

    findings = [with_sent(finding) for finding in document.get("findings", ())]
    return {**document, "findings": findings} if findings else document


def _from_5(document: Document) -> Document:
    """5 to 6: a device between two ports was a chain without functions, as the floor is one."""
    document = copy.deepcopy(document)
    for each in (*document.get("trials", ()), *document.get("findings", ())):
        if _is_of_device(each, document):
            each["functions"] = None
    return document


def _is_of_device(measured: Document, document: Document) -> bool:
    """Such trials and findings were called through-64; a soak's as those of chains are, but of no fabric."""
    name = str(measured.get("name"))
    return name.startswith("through-") or (name.startswith("soak-") and document.get("fabric") is None)


STEPS: dict[int, Callable[[Document], Document]] = {
    1: _say_method_and_spec,
    2: _give_cells_rounds,
    3: _from_3,
    4: _say_what_cells_sent,
    5: _from_5,
}


def migrate(document: Document, version: int, target: int) -> Document:
    """The `document` of format `version` in the format `target`, which is not older; the argument is left alone."""
    for step in range(version, target):
        document = {**STEPS[step](document), "format": step + 1}
    return document
