"""What a comparison found: figures as measured, and the ratios of each pair.

Absolute figures depend on the machine and, on a shared one, on the minute. So two sides are compared only within
a pair, measured one right after the other, and the result is the median of the pairs' ratios.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from tailrace.errors import Fault
from tailrace.fabric.base import Counters
from tailrace.host.distance import NEAR_NS
from tailrace.results.ratio import Figures as Figures
from tailrace.results.ratio import Ratio as Ratio
from tailrace.results.ratio import Summary

TAILRACE = "tailrace"
OVS_DPDK = "ovs-dpdk"


@dataclass(frozen=True)
class Window:
    """Two readings and the time between them."""

    first: Counters
    last: Counters
    seconds: float

    @property
    def packets(self) -> int:
        return self.last.packets - self.first.packets

    @property
    def dropped(self) -> int:
        return self.last.dropped - self.first.dropped

    def check_lossless(self) -> None:
        """Raises Fault if packets were dropped in it."""
        if self.dropped:
            raise Fault(f"{self.dropped} packets were dropped while it was measured")

    def figures(self) -> dict[str, float]:
        """What the switch did in it. Raises Fault if no packet was delivered.

        `cycles_per_packet`: busy cycles a packet, the way Open vSwitch counts its processing cycles. `mpps`: million
        packets a second that guests were given, all directions together. `busy`: share of the polling thread's
        cycles that were busy; 1 means that the switch was the limit. `dropped` packets are not in `mpps`.
        """
        busy = self.last.busy_cycles - self.first.busy_cycles
        idle = self.last.idle_cycles - self.first.idle_cycles
        delivered = self.packets - self.dropped
        if delivered <= 0 or busy <= 0 or self.seconds <= 0:
            raise Fault("no packet passed")
        return {
            "cycles_per_packet": round(busy / self.packets, 2),
            "mpps": round(delivered / self.seconds / 1e6, 4),
            "packets": self.packets,
            "dropped": self.dropped,
            "busy": round(busy / (busy + idle), 4),
        }


@dataclass(frozen=True)
class Pair:
    """Each side once, one right after the other, and how far the two cores were from each other meanwhile."""

    sides: Mapping[str, Figures]
    looks_ns: Sequence[float]
    """Round trip of a cache line between the switch's core and the load's, both otherwise idle: before the first side
    and after each."""

    @property
    def near(self) -> bool:
        return self.looks_ns[0] < NEAR_NS

    @property
    def steady(self) -> bool:
        """Whether the cores were equally near at every look, so that all sides met the same machine."""
        return all(self.near == (look < NEAR_NS) for look in self.looks_ns)

    def document(self) -> dict[str, Any]:
        return {
            **{name: dict(figures) for name, figures in self.sides.items()},
            "core_to_core_ns": round(self.looks_ns[0], 1),
            "core_to_core_later_ns": [round(look, 1) for look in self.looks_ns[1:]],
            "near": self.near,
            "steady": self.steady,
        }


def steady_pairs(measure: Callable[[int], Pair], count: int) -> tuple[list[Pair], list[Pair]]:
    """`count` pairs during which the cores did not move, and those set aside because they did.

    `measure` is told the number of the pair. It is called at most twice as often as pairs are wanted; where no pair was
    steady, those that moved are all there is and are returned as the pairs.
    """
    steady: list[Pair] = []
    moved: list[Pair] = []
    while len(steady) < count and len(steady) + len(moved) < 2 * count:
        pair = measure(len(steady))
        (steady if pair.steady else moved).append(pair)
    return (steady, moved) if steady else (moved, [])


@dataclass(frozen=True)
class Comparison:
    """All pairs of one benchmark."""

    bench: str
    settings: Mapping[str, Any]
    """What was measured: the frame size in bytes, FCS included, and whatever else was chosen."""
    pairs: Sequence[Pair]
    moved: Sequence[Pair]
    """Pairs set aside because the cores moved during them; they count in no median."""
    ratios: Sequence[Ratio]
    machine: Mapping[str, Any]
    asked: int
    """How many pairs were to be measured; where cores move too often there are fewer."""

    def median(self, ratio: Ratio) -> float | None:
        """The median of the pairs' ratios; None where there is a side only."""
        found = self.summary(ratio)
        return found.median if found else None

    def summary(self, ratio: Ratio) -> Summary | None:
        """The same with its interval."""
        return ratio.summary([pair.sides for pair in self.pairs])

    def document(self) -> dict[str, Any]:
        summaries = {ratio.name: self.summary(ratio) for ratio in self.ratios}
        return {
            "bench": self.bench,
            **self.settings,
            "asked": self.asked,
            "pairs": [pair.document() for pair in self.pairs],
            "moved": [pair.document() for pair in self.moved],
            "ratios": {name: None if found is None else round(found.median, 3) for name, found in summaries.items()},
            "intervals": {name: None if found is None else found.document() for name, found in summaries.items()},
            "core_to_core_ns": round(median(pair.looks_ns[0] for pair in self.pairs), 1),
            "near": all(pair.near for pair in self.pairs),
            "machine": dict(self.machine),
        }


@dataclass(frozen=True)
class Spread:
    """Many times of one thing, in ms."""

    count: int
    least: float
    median: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Raises ValueError if there are none."""
        return cls(len(values), min(values), median(values), max(values))

    def document(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "min": round(self.least, 3),
            "median": round(self.median, 3),
            "max": round(self.most, 3),
        }


@dataclass(frozen=True)
class Beside:
    """The frames of the chain beside which ports and chains were changed, both directions together."""

    rate_pps: float
    """Frames offered a second, each way."""
    sent: int
    received: int
    unsent: int
    """Frames that the tester had no time to send; not lost."""
    lost: int
    duplicate: int
    out_of_sequence: int
    dropped: int
    """Frames that the switch counted as dropped at the chain's ports."""
    worst_us: float
    """The largest latency."""

    @classmethod
    def of(cls, rate_pps: float, result: dict[str, Any], dropped: int) -> Beside:
        """From the tester's result. Raises Fault if nothing came back."""
        streams = result["streams"]
        keys = ("sent", "received", "unsent", "lost", "duplicate", "out_of_sequence")
        total = {key: sum(int(stream[key]) for stream in streams) for key in keys}
        if any(stream["received"] == 0 for stream in streams):
            raise Fault("no frame came back on the chain beside")
        worst = max(int(stream["latency"]["max_ns"]) for stream in streams) / 1e3
        return cls(rate_pps, dropped=dropped, worst_us=worst, **total)

    def document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class ChangeResult:
    """How long each kind of change took, and what became of the frames beside."""

    bench: str
    settings: Mapping[str, Any]
    times_ms: Mapping[str, Spread]
    """Each from the call to its answer."""
    memory_mib: Mapping[int, float]
    """Peak resident memory, by the number of guests attached. Guests' own memory is in huge pages and not in it."""
    beside: Beside
    machine: Mapping[str, Any]
    core_to_core_ns: float
    pairs: Sequence[Mapping[str, Figures]] = ()
    """The times of each round by side, where changes were made on two."""
    ratios: Sequence[Ratio] = ()

    def document(self) -> dict[str, Any]:
        summaries = {ratio.name: ratio.summary(self.pairs) for ratio in self.ratios}
        return {
            "bench": self.bench,
            **self.settings,
            "pairs": [
                {side: {name: round(ms, 3) for name, ms in figures.items()} for side, figures in pair.items()}
                for pair in self.pairs
            ],
            "ratios": {name: None if found is None else round(found.median, 3) for name, found in summaries.items()},
            "times_ms": {name: spread.document() for name, spread in self.times_ms.items()},
            "memory_mib": {str(guests): round(mib, 1) for guests, mib in self.memory_mib.items()},
            "beside": self.beside.document(),
            "core_to_core_ns": round(self.core_to_core_ns, 1),
            "near": self.core_to_core_ns < NEAR_NS,
            "machine": dict(self.machine),
        }
