"""Runs as a page shows them: one by itself, or several side by side, each with a letter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tailrace.report.figures import in_order, plain, profile_place
from tailrace.results.model import Trial
from tailrace.results.stored import StoredRun

MOST_RUNS = 7
"""As many as there are colours to tell them by."""


@dataclass(frozen=True)
class Marked:
    """A run and the letter it is known by; no letter where it is alone."""

    letter: str
    number: int
    """Its place among the runs, from 1; 0 where it is alone."""
    stored: StoredRun

    def colour(self, functions: int) -> int:
        """By run where there are several, else by the length of the chain; 0 is the floor's grey."""
        return self.number or functions % 8

    def label(self, text: str) -> str:
        """`text`, with the letter in front."""
        return f"{self.letter}: {text}" if self.letter else text

    @property
    def title(self) -> str:
        """What a heading calls it."""
        return self.label(plain(self.stored.run.id))


@dataclass(frozen=True)
class MarkedTrial:
    """A trial and the run it is of."""

    of: Marked
    trial: Trial


def mark(runs: Sequence[StoredRun]) -> list[Marked]:
    """The runs with letters from A on, if there are several."""
    if len(runs) == 1:
        return [Marked("", 0, runs[0])]
    return [Marked(chr(ord("A") + number), number + 1, stored) for number, stored in enumerate(runs)]


def trials(runs: Sequence[Marked]) -> list[MarkedTrial]:
    """All trials in the order of a table: alike ones of several runs stand below each other."""
    each = [MarkedTrial(marked, trial) for marked in runs for trial in in_order(marked.stored.run)]
    if len(runs) == 1:
        return each

    return sorted(each, key=lambda one: (profile_place(one.trial.profile), one.trial.functions))


def by_profile(runs: Sequence[Marked]) -> Iterator[tuple[str, list[MarkedTrial]]]:
    """The profiles of all runs in order, each with its trials."""
    found: dict[str, list[MarkedTrial]] = {}
    for one in trials(runs):
        found.setdefault(one.trial.profile, []).append(one)
    yield from found.items()
