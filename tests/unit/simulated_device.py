"""A device under test that is only arithmetic, behind the tester's interface: known capacity, known loss.

`device(streams, seconds, wait, label)` answers what a tester would (`tailrace.measure.trials.Measurer`). Both
directions are alike. What a device does with more than it can forward: it drops it (`buffer` frames are kept first), or
holds the sender back. `sender` and `stalls` are the tester's own failing.
"""

# ruff: noqa: ARG002 (a simulated device takes what a real one takes)

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import tester_results

SATURATED = 50e6
"""What the tester sends when it sends as fast as it can, unless something holds it back."""

LATENCY_NS = 5000


@dataclass
class SimulatedDevice:
    capacity: float
    """Frames a second in each direction."""
    loss: float = 0.0
    """The part of all frames that is lost at any rate."""
    buffer: int = 0
    """Frames beyond the capacity that are kept and sent later."""
    holds_back: bool = False
    """Takes no more than its capacity, instead of dropping."""
    sender: float = SATURATED
    """The most that the tester can send."""
    overloaded: float = 1.0
    """What is left of the capacity when more is offered."""
    stumbles: float = 0.0
    """How often a trial meets somebody else's work: then one frame is lost."""
    stalls: float = 0.0
    """How often the tester itself is held up: then it sends half."""
    seed: int = 1
    trials: list[tuple[float, float]] = field(default_factory=list)
    """Rate and seconds of each trial."""

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def __call__(self, streams: list[dict[str, Any]], seconds: float, wait: float, label: str) -> dict[str, Any]:
        rate, count = streams[0]["rate"], streams[0].get("count")
        self.trials.append((rate, seconds))
        speed = min(rate or self.sender, self.sender)
        if rate and self._chance.random() < self.stalls:
            speed /= 2
        taken = min(speed, self.capacity) if self.holds_back else speed
        offered = round((rate or taken) * seconds) if count is None else count
        sent = min(offered, int(taken * seconds))
        time = sent / taken if count is not None and taken else seconds
        carried = self.capacity * (self.overloaded if taken > self.capacity else 1.0)
        lost = 0 if taken <= self.capacity else max(0, sent - int(carried * time) - self.buffer)
        lost = min(sent, lost + round((sent - lost) * self.loss))
        if self._chance.random() < self.stumbles:
            lost = min(sent, max(lost, 1))
        unsent = 0 if count is not None else offered - sent
        by_device = self.holds_back and speed > taken
        answer = {
            "offered": sent + unsent,
            "sent": sent,
            "unsent": unsent,
            "refused": unsent if by_device else 0,
            "held": 1 if by_device else 0,
            "lost": lost,
        }
        received = sent - lost
        latency = {
            "count": received,
            "min_ns": LATENCY_NS if received else 0,
            "max_ns": LATENCY_NS if received else 0,
            "sum_ns": LATENCY_NS * received,
            "counts": [[tester_results.contract_index(LATENCY_NS), received]] if received else [],
        }
        made = [
            {
                **tester_results.stream([], stream["name"], seconds=seconds, intervals=1),
                **answer,
                "received": received,
                "latency": latency,
            }
            for stream in streams
        ]
        return tester_results.result(*made, seconds=seconds)
