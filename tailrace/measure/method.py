"""What a method of measuring is, and how its work is done: `tailrace measure NAME SPEC`.

To add one: its words in spec/tests.py, what it finds in results/findings.py (if measured trials do not say it all), a
`Method` here in tailrace/measure, and a command in cli/measure.py. A method turns tests into steps; everything else is
common: what is brought up and taken down, the progress bar, --json, --repeat with its spread, and that whatever was
measured is kept when a run is cut short.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from tailrace.measure.profile import Profile, capture, profile
from tailrace.plan.planned import Plan, PlannedChain
from tailrace.spec.traffic import Traffic

if TYPE_CHECKING:
    from tailrace.measure.session import Session

T = TypeVar("T", bound=Traffic)


@dataclass(frozen=True)
class Place:
    """Where it is measured: a chain of a spec, or between two ports of a device that Tailrace does not manage."""

    chain: PlannedChain | None = None
    ports: tuple[str, str] | None = None
    """The URIs of the device's, of which there is no chain."""

    @property
    def functions(self) -> int | None:
        """How many the chain has; None of a device."""
        return len(self.chain.functions) if self.chain else None

    def lead(self, session: Session, functions: int | None) -> None:
        """Leads the chain through its first `functions` functions; 0 joins the tester's two ends."""
        if self.chain is not None and session.node is not None:
            session.node.lead(self.chain.name, self.chain.through[:functions])


@dataclass(frozen=True)
class Step:
    """A part of a measurement that is kept by itself."""

    name: str
    """What it measures, such as one-function-64; results are kept under it, so it is unique among the steps."""
    seconds: float
    """How long it is expected to take, for the progress bar."""
    work: Callable[[Session], None]
    """Measures with `session.measure` and puts what came of it into `session.folder`."""


class Method(ABC, Generic[T]):
    """One way to measure."""

    name: ClassVar[str]
    """As on the command line, and as the key of a test in a spec."""
    one_test: ClassVar[bool] = False
    """Whether a spec may have one test of it only."""

    @abstractmethod
    def steps(self, tests: Sequence[T], place: Place) -> list[Step]:
        """What is to be done for the tests, in order. Raises Mistake where they cannot be."""

    def check(self, plan: Plan) -> None:
        """Called before anything is started. Raises Refused, with the key of the spec, where the plan lacks what is
        measured."""

    def profiles(self, tests: Sequence[T]) -> list[Profile]:
        """The kinds of traffic that it sends for the tests, each once; the tester measures its own floor of these."""
        return list({each.kind: each for test in tests for each in profiles_of(test)}.values())

    def begin(self, session: Session) -> None:
        """Called once everything is up."""

    def end(self, session: Session) -> None:
        """Called before everything is taken down, also after a failure."""


def run_steps(session: Session, steps: Sequence[Step], repeat: int = 1) -> None:
    """Does all steps `repeat` times: A B C A B C, so that what changes on the machine meanwhile meets all alike."""
    for number in range(1, repeat + 1):
        session.folder.begin_round(number)
        for step in steps:
            label = step.name if repeat == 1 else f"{step.name} ({number} of {repeat})"
            session.stage(label, step.seconds)
            step.work(session)


def profiles_of(test: Traffic) -> list[Profile]:
    """The kinds of traffic that a test names. Raises Mistake if its capture file cannot be used."""
    if test.pcap is not None:
        return [capture(Path(test.pcap))]
    return [profile(frames, test.flows) for frames in test.frames]


def case_name(profile: Profile, functions: int) -> str:
    """floor-64, one-function-imix, ..."""
    counts = {0: "floor", 1: "one-function", 2: "two-functions"}
    return f"{counts.get(functions, f'{functions}-functions')}-{profile.name}"


def name_of(profile: Profile, place: Place, taken: Iterable[str], more: str = "") -> str:
    """The name of a step: one-function-64, through-64, one-function-64-at-50; with -again-1 if it is taken."""
    base = case_name(profile, len(place.chain.functions)) if place.chain else f"through-{profile.name}"
    base += more
    taken = set(taken)
    name, number = base, 0
    while name in taken:
        number += 1
        name = f"{base}-again-{number}"
    return name
