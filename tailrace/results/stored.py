"""A run as it lies in its folder, for who reads it: figures, spec, and the distributions that they were taken from.

What is missing or damaged beside results.json costs what it would have shown, and is said.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tailrace.results.histogram import Histogram
from tailrace.results.model import ResultError, Run
from tailrace.results.run import SPEC, load_histogram, load_run


@dataclass(frozen=True)
class StoredRun:
    """One run folder, read."""

    folder: Path
    run: Run
    spec: str
    """The spec's text; empty where it is missing."""
    histograms: dict[str, Histogram] = field(default_factory=dict)
    """The distribution of each trial's headline, and of each host trial, by the trial's name."""
    missing: tuple[tuple[str, str], ...] = ()
    """What could not be read: a trial's name (or "spec"), and why."""


def read_run(folder: Path, *, distributions: bool = True) -> StoredRun:
    """The run in `folder`, with its headlines' distributions unless they are not wanted.

    Raises Unreadable if `folder` is no run folder, or holds results that this Tailrace cannot read.
    """
    run = load_run(folder)
    if not folder.is_dir():
        folder = folder.parent
    histograms: dict[str, Histogram] = {}
    missing: list[tuple[str, str]] = []
    for trial in run.trials if distributions else ():
        way = trial.worse
        if way.histogram is None or way.latency_us is None:
            continue
        try:
            histograms[trial.name] = load_histogram(folder, way.histogram, way.latency_us)
        except ResultError as error:
            missing.append((trial.name, str(error)))
    for host_trial in run.host_trials if distributions else ():
        if host_trial.histogram is None or host_trial.latency_us is None:
            continue
        try:
            histograms[host_trial.name] = load_histogram(folder, host_trial.histogram, host_trial.latency_us)
        except ResultError as error:
            missing.append((f"curve for {host_trial.name}", str(error)))
    try:
        spec = (folder / SPEC).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        spec = ""
        missing.append(("spec", f"{folder / SPEC}: {error.strerror or error}"))
    return StoredRun(folder, run, spec, histograms, tuple(missing))
