"""Older results.json brought to the format that this Tailrace writes, one format at a time.

A step takes the document of one format and returns that of the next; it may only reckon from what the document says.
What cannot be known becomes null, never a guess. Who changes the format adds a step here, and keeps a file of the old
format in tests/unit/data.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from tailrace.results.record import FAULTS, UNSENT_TOLERANCE, name_in_round

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
    """5 to 6: a device between two ports was a chain without functions, as the floor is one; and what short trials had
    found was a no-loss rate, whether or not the trial that stood for it confirmed it."""
    document = copy.deepcopy(document)
    trials, findings = document.get("trials", ()), document.get("findings", ())
    for each in (*trials, *findings):
        if _is_of_device(each, document):
            each["functions"] = None
    by_name = {trial.get("name"): trial for trial in trials}
    for finding in findings:
        if finding.get("method") == "matrix":
            _bear_out_cell(finding, by_name)
        elif finding.get("method") in ("noise", "share"):
            _look_before_pairs(finding, trials)
    for trial in trials:
        if trial.get("no_loss_pps") is not None:
            trial["searched"] = _searched(trial["no_loss_pps"])
            if not _bore_out(trial):
                trial["no_loss_pps"] = None
    return document


def _searched(pps: float) -> Document:
    return {"pps": pps, "upper_pps": None, "limit": None}


def _bore_out(trial: Document) -> bool:
    """Whether a trial was sent, and all of it came back, once and in order."""
    counts = (way.get(fault, 0) for way in trial.get("directions", ()) for fault in FAULTS)
    return bool(trial.get("valid")) and not any(counts) and _was_sent(min(_sent(trial).values(), default=None))


def _was_sent(ratio: float | None) -> bool:
    return ratio is None or ratio >= 1 - UNSENT_TOLERANCE


def _bear_out_cell(cell: Document, trials: Mapping[str, Document]) -> None:
    """A cell's rounds had the rate that short trials found; where a round's trial is not there, its own figures say
    whether it confirmed that."""
    for each in cell.get("rounds", ()):
        if each.get("no_loss_pps") is None:
            continue
        each["searched"] = _searched(each["no_loss_pps"])
        trial = trials.get(each.get("trial", ""))
        sound = not each.get("loss_ratio") and _was_sent(each.get("sent_ratio")) if trial is None else _bore_out(trial)
        if not sound:
            each["no_loss_pps"] = None
    known = [rate for each in cell.get("rounds", ()) if (rate := each.get("no_loss_pps")) is not None]
    cell["no_loss_pps"] = median(known) if known else None
    cell.get("spread", {}).pop("no_loss_pps", None)
    if len(known) > 1:
        cell.setdefault("spread", {})["no_loss_pps"] = {"low": min(known), "high": max(known)}


def _look_before_pairs(finding: Document, trials: Sequence[Document]) -> None:
    """Every trial of pairs had the no-loss rate that was looked for before all of them."""
    case = str(finding.get("name")).removesuffix(f"-round-{finding.get('round', 1)}")
    for trial in (each for each in trials if str(each.get("name")).startswith(f"{case}-pair-")):
        pps, trial["no_loss_pps"] = trial.get("no_loss_pps"), None
        if pps is not None:
            searched = _searched(pps)
            finding["searched"] = {finding["baseline"]: searched} if finding["method"] == "noise" else searched
            finding["rate_fraction"] = trial.get("rate_fraction")


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
    6: dict,  # what floors and findings were of, beside their profile, was not kept, and is not known
}


def migrate(document: Document, version: int, target: int) -> Document:
    """The `document` of format `version` in the format `target`, which is not older; the argument is left alone."""
    for step in range(version, target):
        document = {**STEPS[step](document), "format": step + 1}
    return document
