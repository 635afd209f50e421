"""Runs as a page shows them: one by itself, or several side by side, each with a letter."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tailrace.process.plain import plain
from tailrace.report.figures import chains, disturbed, in_order, is_fault, profile_place, rates, trial_names
from tailrace.results.comparison import LOOKED, ComparisonFinding, Place
from tailrace.results.model import Trial
from tailrace.results.record import TrafficKind
from tailrace.results.stored import StoredRun

COLOURS = 7
"""How many there are to distinguish lines by, from 1 on; 0 is grey."""
DASHES = 7
"""How many patterns of dashes there are; 0 is a solid line. report.js has them."""
MOST_RUNS = COLOURS


def look(number: int) -> tuple[int, int]:
    """The colour and dashes of the line of a number, from 0: the first seven differ in both, 49 in one of them.

    Dashes distinguish lines on paper, and for who sees few colours.
    """
    return 1 + number % COLOURS, (number + number // COLOURS) % DASHES


@dataclass(frozen=True)
class Marked:
    """A run and the letter it is known by; no letter where it is alone."""

    letter: str
    number: int
    """Its place among the runs, from 1; 0 where it is alone."""
    stored: StoredRun

    def colour(self, number: int | None) -> int:
        """By run where there are several, else by a number: the length of the chain, 0 being the floor's grey, and a
        device's as that of one function."""
        return self.number or (1 if number is None else number) % (1 + COLOURS)

    @cached_property
    def names(self) -> dict[str, str]:
        """What distinguishes each of its trials from the others, by its name."""
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
        return self.stored.run.places

    @cached_property
    def confirmed(self) -> frozenset[str]:
        """The names of its trials whose no-loss rate stands: the highest of their kind and round that a trial of full
        length confirmed, and none refuted, at that rate or below."""
        alike: dict[tuple[TrafficKind, str, int], list[Trial]] = {}
        for trial in self.stored.run.trials:
            if trial.searched is not None:
                alike.setdefault((trial.traffic_kind, self.chains[trial.name], trial.round), []).append(trial)
        found = (_highest_confirmed(trials) for trials in alike.values())
        return frozenset(trial.name for trial in found if trial is not None)

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
        """The sides of its trials of `places`, as far as charts have them, numbered from 0, by the trials' names.

        Of chains of several lengths each is a side of its own, but where only such of one length are set together.
        """
        keys = {
            trial.name: (place.side, None if place.among else trial.functions)
            for trial in self.stored.run.trials
            if (place := self.places.get(trial.name)) is not None and self.is_drawn(trial)
        }
        known = list(dict.fromkeys(keys.values()))
        return {name: known.index(key) for name, key in keys.items()}

    def is_drawn(self, trial: Trial) -> bool:
        """Whether charts have it: one that stands, and in a comparison one of the pairs, which were at one rate."""
        place = self.places.get(trial.name)
        looked = self.is_compared and place is not None and place.words.endswith(LOOKED)
        return trial.attempt is None and not looked

    def label(self, text: str) -> str:
        """`text`, with the letter in front."""
        return f"{self.letter}: {text}" if self.letter else text

    @property
    def title(self) -> str:
        """What a heading calls it."""
        return self.label(plain(self.stored.run.id))


def _highest_confirmed(trials: Sequence[Trial]) -> Trial | None:
    failed = (trial.offered_pps for trial in trials if not trial.whole or trial.fell_short == "refused")
    lowest = min(failed, default=math.inf)
    sound = [trial for trial in trials if trial.no_loss_pps is not None and trial.no_loss_pps < lowest]
    return max(sound, key=lambda trial: (trial.no_loss_pps or 0.0, trial.offered_pps), default=None)


@dataclass(frozen=True)
class MarkedTrial:
    """A trial and the run it is of."""

    of: Marked
    trial: Trial

    @property
    def name(self) -> str:
        """What distinguishes it from others, with the run's letter."""
        return self.of.label(self.of.names[self.trial.name])

    @property
    def place(self) -> Place | None:
        """Which part of a method it is, where it is one of several."""
        return self.of.places.get(self.trial.name)

    @property
    def look(self) -> tuple[int, int] | None:
        """Its side's colour and dashes, where it is of one: in a run by itself both, beside others the run's colour."""
        side = self.of.sides.get(self.trial.name)
        if side is None:
            return None
        colour, dashes = look(side)
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
    def no_loss_pps(self) -> float | None:
        """The no-loss rate that it confirmed, if that stands."""
        return self.trial.no_loss_pps if self.trial.name in self.of.confirmed else None

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

    return sorted(each, key=lambda one: (profile_place(one.trial.profile), one.trial.functions or 0))


def by_profile(runs: Sequence[Marked]) -> Iterator[tuple[str, list[MarkedTrial]]]:
    """The profiles of all runs in order, each with the trials that charts are made of."""
    found: dict[str, list[MarkedTrial]] = {}
    for one in (each for each in trials(runs) if each.of.is_drawn(each.trial)):
        found.setdefault(one.trial.profile, []).append(one)
    yield from found.items()
