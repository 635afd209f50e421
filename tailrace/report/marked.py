"""Runs as a page shows them: one by itself, or several side by side, each with a letter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tailrace.report.figures import chains, disturbed, in_order, is_fault, plain, profile_place, rates, trial_names
from tailrace.results.comparison import ComparisonFinding, Place
from tailrace.results.comparison import places as places_of
from tailrace.results.model import Trial
from tailrace.results.stored import StoredRun

COLOURS = 7
"""How many there are to tell lines by, from 1 on; 0 is grey."""
DASHES = 7
"""How many patterns of dashes there are; 0 is a solid line. report.js has them."""
MOST_RUNS = COLOURS


def look(number: int) -> tuple[int, int]:
    """The colour and dashes of the line of a number, from 0: the first seven differ in both, 49 in one of them.

    Dashes tell lines apart on paper, and for who sees few colours.
    """
    return 1 + number % COLOURS, (number + number // COLOURS) % DASHES


@dataclass(frozen=True)
class Marked:
    """A run and the letter it is known by; no letter where it is alone."""

    letter: str
    number: int
    """Its place among the runs, from 1; 0 where it is alone."""
    stored: StoredRun

    def colour(self, number: int) -> int:
        """By run where there are several, else by a number: the length of the chain, 0 being the floor's grey."""
        return self.number or number % (1 + COLOURS)

    @cached_property
    def names(self) -> dict[str, str]:
        """What tells each of its trials from the others, by its name."""
        return trial_names(self.stored.run)

    @cached_property
    def chains(self) -> dict[str, str]:
        """What each of its trials went through, by its name."""
        return chains(self.stored.run)

    @cached_property
    def rates(self) -> dict[str, str]:
        """The rates of those of its trials that differ in nothing else, by name."""
        return rates(self.stored.run)

    @cached_property
    def places(self) -> dict[str, Place]:
        """Of its trials that a matrix or a comparison has, by name: which cell, or side, they are of."""
        return places_of(self.stored.run.findings)

    @cached_property
    def disturbed(self) -> frozenset[str]:
        """The names of its trials whose order was disturbed on purpose."""
        return disturbed(self.stored.run)

    @cached_property
    def is_compared(self) -> bool:
        """Whether its trials are those of pairs, which only ratios say something of."""
        return any(isinstance(each, ComparisonFinding) for each in self.stored.run.findings)

    @cached_property
    def sides(self) -> dict[str, int]:
        """The sides that its trials of `places` are of, numbered from 0, by the names of the trials.

        Of chains of several lengths each is a side of its own, but where only such of one length are set together.
        """
        keys = {
            trial.name: (place.side, None if place.among else trial.functions)
            for trial in self.stored.run.trials
            if (place := self.places.get(trial.name)) is not None
        }
        known = list(dict.fromkeys(keys.values()))
        return {name: known.index(key) for name, key in keys.items()}

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

    @property
    def name(self) -> str:
        """What tells it from others, with the run's letter."""
        return self.of.label(self.of.names[self.trial.name])

    @property
    def place(self) -> Place | None:
        """Which part of a method it is, where it is one of several."""
        return self.of.places.get(self.trial.name)

    @property
    def look(self) -> tuple[int, int] | None:
        """Its side's colour and dashes, where it is of one: in a run by itself both, beside others the run's colour."""
        if self.place is None:
            return None
        colour, dashes = look(self.of.sides[self.trial.name])
        return self.of.colour(colour), dashes

    @property
    def chain(self) -> str:
        """What it went through, with the run's letter."""
        return self.of.label(self.of.chains[self.trial.name])

    @property
    def rate(self) -> str:
        """ " at 50%", where the run has trials that differ in their rate alone."""
        rate = self.of.rates.get(self.trial.name)
        return "" if rate is None else f" at {rate}"

    @property
    def round(self) -> str:
        """ ", round 2", where the run has several."""
        return f", round {self.trial.round}" if self.of.stored.run.repeat > 1 else ""

    def is_fault(self, count: str) -> bool:
        """Whether one of its counts is a fault of the device."""
        return is_fault(count, self.trial, self.of.disturbed)


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
