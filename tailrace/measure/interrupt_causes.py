"""Why the slowest interrupts of a side are slow: what the receiver's CPU did between raised and arrived, explained by
`cause_meter.py`. Of a machine it is the thread of its CPU, and what that does inside where its guest has a recorder.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.errors import Failure
from tailrace.measure.cause_meter import CauseMeter, Passage
from tailrace.measure.causes import Holders, Poller
from tailrace.measure.function_trace import FunctionPaths
from tailrace.measure.guest_recorder import GuestRecorder
from tailrace.measure.hops import Part, Sighting
from tailrace.measure.interrupt_trace import Slow
from tailrace.observe.recording import Event
from tailrace.results.causes import KEPT, Causes

_WAY = (Part("interrupt", "the way to user space"),)


@dataclass
class InterruptCauses(CauseMeter):
    """The causes of one side's slow interrupts, for one slice after the other."""

    limit_us: float = 0.0
    poller: Poller = field(kw_only=True)
    """The receiver, which does not poll."""
    guest: GuestRecorder | None = None
    """Of a machine, who knows what its guest does."""
    pause: float = 5.0
    """Seconds from one question to it to the next: each keeps the guest from other work. By then its recorder must not
    have written over what is asked for."""
    faults: list[str] = field(default_factory=list)
    """Why it could not be asked any more."""
    paths: FunctionPaths | None = None
    """Who knows the functions that the slowest so far went through, where that is asked for."""
    _slowest: dict[int, Sighting] = field(default_factory=dict)
    """By the interrupt's number."""
    _missed: int = 0
    _inside: dict[int, Sequence[Event] | None] = field(default_factory=dict)
    """What the guest did, of those that were asked for; None: that is gone. By the interrupt's number."""
    _offset: int | None = None
    """Cycles that the guest's TSC is ahead."""
    _lost: int = 0
    _clock_error: int = 0
    """In the guest: events that its kernel could not deliver so far, and how exactly its times are known."""
    _lost_inside_before: int = 0
    _next_question: float = 0.0
    _worst: int = 0
    """Cycles that the slowest of all slices took."""
    _functions: dict[int, Sequence[Event]] = field(default_factory=dict)
    """Of those that were the slowest so far. By the interrupt's number."""

    @property
    def pollers(self) -> dict[str, Poller]:
        return {self.poller.name: self.poller}

    def begin(self) -> None:
        super().begin()
        self._slowest.clear()
        self._inside.clear()
        self._functions.clear()
        self._missed, self._offset = 0, None
        self._lost_inside_before = self._lost
        self._next_question = time.monotonic() + self.pause

    def note(self, found: Mapping[str, Any]) -> None:
        """What the sender tells of the slowest: looks up those that are new, before what is known is forgotten."""
        told = {number: Sighting(0, number, raised, arrived) for number, raised, arrived in found["slowest"]}
        slowest = sorted({**self._slowest, **told}.values(), key=lambda each: each.sent - each.received)[:KEPT]
        self._slowest = {each.sequence: each for each in slowest}
        self._missed = int(found["slowest_missed"])
        self._offset = found.get("clock_offset")
        if self.paths is not None and slowest and slowest[0].received - slowest[0].sent > self._worst:
            worst = slowest[0]
            self._worst = worst.received - worst.sent
            self._functions[worst.sequence] = self.paths.take(worst.sent, worst.received, self._offset)
        self.look(slowest)
        if time.monotonic() >= self._next_question:
            self._ask()

    def _ask(self) -> None:
        """What the guest did around those of the slowest that it was not asked for yet."""
        self._inside = {number: events for number, events in self._inside.items() if number in self._slowest}
        new = [each for each in self._slowest.values() if each.sequence not in self._inside]
        if self.guest is None or self._offset is None or not new:
            return
        try:
            shown = self.guest.show([(each.sent, each.received) for each in new], self._offset)
        except Failure as error:
            self.faults.append(str(error))
            self.guest = None
            return
        self._lost, self._clock_error = shown.lost, shown.clock_error
        for each in new:
            self._inside[each.sequence] = shown.spans[each.sent, each.received]
        self._next_question = time.monotonic() + self.pause

    def explain(self) -> Causes:
        """After the slice: why the slowest were slow. Of those that the sender could not tell nothing is known."""
        slowest = list(self._slowest.values())
        self.last_look(slowest)
        inside = self.guest.poller if self.guest is not None else None
        self._ask()
        for each in slowest:
            events, evidence = self._inside.get(each.sequence), self._kept.get(each.key)
            if events and evidence is not None:
                self._kept[each.key] = replace(evidence, events=[*evidence.events, *events])
        who = [Holders(self.poller, inside=inside)]
        passages = [Passage(each, _WAY, (each.sent, each.received), who) for each in slowest]
        causes = self.explain_passages([*passages, *[None] * self._missed], self.hz)
        if inside is None:
            return causes
        unknown = sum(self._inside.get(frame.sequence) is None for frame in causes.frames)
        return causes.model_copy(
            update={
                "unexamined_inside": unknown,
                "lost": causes.lost + max(self._lost - self._lost_inside_before, 0),
                "clock_error_us": max(causes.clock_error_us, self._us(self._clock_error)),
            }
        )

    def slow(self, causes: Causes) -> Iterator[Slow]:
        """The interrupts that these causes are of, with all that is known of their time."""
        inside = self.guest.poller if self.guest is not None else None
        for frame in causes.frames:
            sighting = self._slowest[frame.sequence]
            evidence = self._kept[sighting.key]
            if evidence is not None:
                events = [*evidence.events, *self._functions.get(frame.sequence, ())]
                yield Slow(self.poller, frame, sighting.sent, sighting.received, events, inside)
