"""Why the slowest interrupts of a side are slow: what the receiver's CPU did between raised and arrived, explained by
`cause_meter.py`. Of a machine it is the thread of its CPU: what its guest does meanwhile is the usual time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.measure.cause_meter import CauseMeter, Passage
from tailrace.measure.causes import Holders, Poller
from tailrace.measure.hops import Part, Sighting
from tailrace.measure.interrupt_trace import Slow
from tailrace.results.causes import KEPT, Causes

_WAY = (Part("interrupt", "the way to user space"),)


@dataclass
class InterruptCauses(CauseMeter):
    """The causes of one side's slow interrupts, for one slice after the other."""

    limit_us: float = 0.0
    poller: Poller = field(kw_only=True)
    """The receiver, which does not poll."""
    _slowest: dict[int, Sighting] = field(default_factory=dict)
    """By the interrupt's number."""
    _missed: int = 0

    @property
    def pollers(self) -> dict[str, Poller]:
        return {self.poller.name: self.poller}

    def begin(self) -> None:
        super().begin()
        self._slowest.clear()
        self._missed = 0

    def note(self, found: Mapping[str, Any]) -> None:
        """What the sender tells of the slowest: looks up those that are new, before what is known is forgotten."""
        told = {number: Sighting(0, number, raised, arrived) for number, raised, arrived in found["slowest"]}
        slowest = sorted({**self._slowest, **told}.values(), key=lambda each: each.sent - each.received)[:KEPT]
        self._slowest = {each.sequence: each for each in slowest}
        self._missed = int(found["slowest_missed"])
        self.look(slowest)

    def explain(self) -> Causes:
        """After the slice: why the slowest were slow. Of those that the sender could not tell nothing is known."""
        slowest = list(self._slowest.values())
        self.last_look(slowest)
        who = [Holders(self.poller)]
        passages = [Passage(each, _WAY, (each.sent, each.received), who) for each in slowest]
        return self.explain_passages([*passages, *[None] * self._missed], self.hz)

    def slow(self, causes: Causes) -> Iterator[Slow]:
        """The interrupts that these causes are of, with all that is known of their time."""
        for frame in causes.frames:
            sighting = self._slowest[frame.sequence]
            evidence = self._kept[sighting.key]
            if evidence is not None:
                yield Slow(self.poller, frame, sighting.sent, sighting.received, evidence.events)
