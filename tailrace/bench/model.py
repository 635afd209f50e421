"""What a comparison found: numbers as measured, and the ratios of each pair.

Absolute figures depend on the machine and, on a shared one, on the minute. So two sides are compared only within
a pair, measured one right after the other, and the result is the median of the pairs' ratios.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, TypeVar

from tailrace.errors import Fault

NEAR_NS = 150.0
"""Under this round trip of a cache line two cores share their last-level cache."""

TAILRACE = "tailrace"
OVS_DPDK = "ovs-dpdk"
TESTER = "tester"
TESTPMD = "testpmd"

CHANGES = ("port.add", "chain.set", "chain.remove", "port.remove")
"""The control methods that are timed."""


@dataclass(frozen=True)
class Counters:
    """What a switch's polling thread counted since it started. Cycles are of the TSC."""

    packets: int
    """Packets that it received from guests."""
    busy_cycles: int
    """Cycles of the polls that found packets, from one poll's end to the next."""
    idle_cycles: int
    """Cycles of the polls that found nothing."""
    dropped: int
    """Packets that it received and did not deliver."""


@dataclass(frozen=True)
class Window:
    """Two readings and the time between them."""

    first: Counters
    last: Counters
    seconds: float

    @property
    def dropped(self) -> int:
        return self.last.dropped - self.first.dropped

    @property
    def delivered(self) -> int:
        return self.last.packets - self.first.packets - self.dropped

    @property
    def delivered_mpps(self) -> float:
        """Million packets a second that guests were given, all directions together."""
        return self.delivered / self.seconds / 1e6

    @property
    def busy(self) -> float:
        """Share of the polling thread's cycles that were busy; 1 means that the switch was the limit."""
        busy = self.last.busy_cycles - self.first.busy_cycles
        return busy / max(busy + self.last.idle_cycles - self.first.idle_cycles, 1)

    def check_lossless(self) -> None:
        """Raises Fault if packets were dropped in it."""
        if self.dropped:
            raise Fault(f"{self.dropped} packets were dropped while it was measured")


@dataclass(frozen=True)
class Side:
    """One switch in one pair: saturated, both directions."""

    cycles_per_packet: float
    """Busy cycles a packet, the way Open vSwitch counts its processing cycles."""
    mpps: float
    """Million packets a second that passed the switch, both directions together."""
    packets: int
    """Packets in the measured time."""
    busy: float
    """Share of the polling thread's cycles that were busy; 1 means that the switch was the limit."""

    @classmethod
    def between(cls, first: Counters, last: Counters, seconds: float) -> Side:
        """The difference of two readings `seconds` apart. Raises ValueError if no packet passed."""
        packets = last.packets - first.packets
        busy = last.busy_cycles - first.busy_cycles
        idle = last.idle_cycles - first.idle_cycles
        if packets <= 0 or busy <= 0 or seconds <= 0:
            raise ValueError("no packet passed")
        return cls(busy / packets, packets / seconds / 1e6, packets, busy / (busy + idle))

    def document(self) -> dict[str, Any]:
        return {
            "cycles_per_packet": round(self.cycles_per_packet, 2),
            "mpps": round(self.mpps, 4),
            "packets": self.packets,
            "busy": round(self.busy, 4),
        }


@dataclass(frozen=True)
class Distance:
    """How far the two cores of a pair were from each other."""

    core_to_core_ns: float
    """Round trip of a cache line between the switch's core and the load's, both otherwise idle, before the pair."""
    core_to_core_after_ns: float
    """The same after the pair."""
    core_to_core_between_ns: float | None = field(default=None, kw_only=True)
    """The same between the two sides; None where there is one side."""

    @property
    def near(self) -> bool:
        return self.core_to_core_ns < NEAR_NS

    @property
    def steady(self) -> bool:
        """Whether the cores were equally near at every look, so that both sides met the same machine."""
        looks = (self.core_to_core_between_ns, self.core_to_core_after_ns)
        return all(self.near == (look < NEAR_NS) for look in looks if look is not None)

    def distance_document(self) -> dict[str, Any]:
        return {
            "core_to_core_ns": round(self.core_to_core_ns, 1),
            "core_to_core_between_ns": _rounded(self.core_to_core_between_ns, 1),
            "core_to_core_after_ns": round(self.core_to_core_after_ns, 1),
            "near": self.near,
            "steady": self.steady,
        }


AnyPair = TypeVar("AnyPair", bound=Distance)


def steady_pairs(measure: Callable[[int], AnyPair], count: int) -> tuple[list[AnyPair], list[AnyPair]]:
    """`count` pairs during which the cores did not move, and those set aside because they did.

    `measure` is told the number of the pair. It is called at most twice as often as pairs are wanted; where no pair was
    steady, those that moved are all there is and are returned as the pairs.
    """
    steady: list[AnyPair] = []
    moved: list[AnyPair] = []
    while len(steady) < count and len(steady) + len(moved) < 2 * count:
        pair = measure(len(steady))
        (steady if pair.steady else moved).append(pair)
    return (steady, moved) if steady else (moved, [])


@dataclass(frozen=True)
class Pair(Distance):
    """Each switch once, one right after the other."""

    sides: dict[str, Side] = field(default_factory=dict)

    @property
    def ratio_cycles(self) -> float | None:
        """Open vSwitch's cycles a packet ÷ Tailrace's; None without both."""
        if not {TAILRACE, OVS_DPDK} <= self.sides.keys():
            return None
        return self.sides[OVS_DPDK].cycles_per_packet / self.sides[TAILRACE].cycles_per_packet

    @property
    def ratio_mpps(self) -> float | None:
        """Tailrace's Mpps ÷ Open vSwitch's; None without both."""
        if not {TAILRACE, OVS_DPDK} <= self.sides.keys():
            return None
        return self.sides[TAILRACE].mpps / self.sides[OVS_DPDK].mpps

    def document(self) -> dict[str, Any]:
        return {
            **{name: side.document() for name, side in self.sides.items()},
            **self.distance_document(),
        }


@dataclass(frozen=True)
class HopResult:
    """All pairs of one frame size."""

    frame: int
    """Bytes, with the 4 of the FCS."""
    seconds: float
    pairs: list[Pair]
    machine: dict[str, Any]
    moved: list[Pair] = field(default_factory=list)
    """Pairs set aside because the cores moved during them; they count in no median."""

    @property
    def ratio_cycles_median(self) -> float | None:
        return _median([pair.ratio_cycles for pair in self.pairs])

    @property
    def ratio_mpps_median(self) -> float | None:
        return _median([pair.ratio_mpps for pair in self.pairs])

    def document(self) -> dict[str, Any]:
        return {
            "frame": self.frame,
            "seconds": self.seconds,
            "pairs": [pair.document() for pair in self.pairs],
            "moved": [pair.document() for pair in self.moved],
            "ratio_cycles_median": _rounded(self.ratio_cycles_median),
            "ratio_mpps_median": _rounded(self.ratio_mpps_median),
            "machine": self.machine,
        }


@dataclass(frozen=True)
class Rate:
    """What guests on one core were given, by the switch's counters, both directions together."""

    mpps: float
    busy: float
    """Share of the switch's cycles that were busy; well under 1, the guests were the limit."""
    dropped: int
    """Packets that the switch dropped meanwhile; they are not in `mpps`."""

    @classmethod
    def of(cls, window: Window) -> Rate:
        """Raises Fault if nothing was delivered."""
        if window.delivered <= 0:
            raise Fault("no packet passed")
        return cls(window.delivered_mpps, window.busy, window.dropped)

    def document(self) -> dict[str, Any]:
        return {"mpps": round(self.mpps, 4), "busy": round(self.busy, 4), "dropped": self.dropped}


@dataclass(frozen=True)
class OwnCount:
    """What the tester counted itself, both directions together, over its whole trial."""

    mpps: float
    """Frames received, of each direction from its first to its last."""
    sent: int
    received: int
    unsent: int
    lost: int
    duplicate: int
    out_of_sequence: int

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "mpps": round(self.mpps, 4)}


@dataclass(frozen=True)
class TesterPair(Distance):
    """The tester and testpmd, one right after the other."""

    tester: Rate
    own: OwnCount
    testpmd: Rate

    @property
    def ratio(self) -> float:
        """The tester's rate ÷ testpmd's."""
        return self.tester.mpps / self.testpmd.mpps

    def document(self) -> dict[str, Any]:
        return {
            TESTER: {**self.tester.document(), "own": self.own.document()},
            TESTPMD: self.testpmd.document(),
            **self.distance_document(),
        }


@dataclass(frozen=True)
class TesterResult:
    """All pairs of one frame size."""

    frame: int
    """Bytes, with the 4 of the FCS."""
    flows: int
    """UDP flows that the tester sends each way."""
    seconds: float
    pairs: list[TesterPair]
    machine: dict[str, Any]
    moved: list[TesterPair] = field(default_factory=list)
    """Pairs set aside because the cores moved during them; they count in no median."""

    @property
    def ratio_median(self) -> float:
        return median(pair.ratio for pair in self.pairs)

    def document(self) -> dict[str, Any]:
        return {
            "bench": "tester",
            "frame": self.frame,
            "flows": self.flows,
            "seconds": self.seconds,
            "pairs": [pair.document() for pair in self.pairs],
            "moved": [pair.document() for pair in self.moved],
            "ratios": {"mpps": round(self.ratio_median, 3)},
            "machine": self.machine,
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
class SwitchResult:
    """What the switch costs to start and to change."""

    ready_ms: Spread
    """From before the process is made until its control socket answers."""
    memory_mib: dict[int, float]
    """Peak resident memory, by the number of guests attached. Guests' own memory is in huge pages and not in it."""
    change_ms: dict[str, Spread]
    """Each control method, from the call to its answer."""
    beside: Beside
    machine: dict[str, Any]

    def document(self) -> dict[str, Any]:
        return {
            "bench": "switch",
            "ready_ms": self.ready_ms.document(),
            "memory_mib": {str(guests): round(mib, 1) for guests, mib in self.memory_mib.items()},
            "change_ms": {name: spread.document() for name, spread in self.change_ms.items()},
            "beside": self.beside.document(),
            "machine": self.machine,
        }


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)
