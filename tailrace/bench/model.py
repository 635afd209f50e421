"""What a comparison found: numbers as measured, and the ratios of each pair.

Absolute figures depend on the machine and, on a shared one, on the minute. So two sides are compared only within
a pair, measured one right after the other, and the result is the median of the pairs' ratios.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any

NEAR_NS = 150.0
"""Under this round trip of a cache line two cores share their last-level cache."""

TAILRACE = "tailrace"
OVS_DPDK = "ovs-dpdk"


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

    @property
    def near(self) -> bool:
        return self.core_to_core_ns < NEAR_NS

    @property
    def steady(self) -> bool:
        """Whether the cores were as near after the pair as before, so that both sides met the same machine."""
        return self.near == (self.core_to_core_after_ns < NEAR_NS)

    def distance_document(self) -> dict[str, Any]:
        return {
            "core_to_core_ns": round(self.core_to_core_ns, 1),
            "core_to_core_after_ns": round(self.core_to_core_after_ns, 1),
            "near": self.near,
            "steady": self.steady,
        }


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
            "ratio_cycles_median": _rounded(self.ratio_cycles_median),
            "ratio_mpps_median": _rounded(self.ratio_mpps_median),
            "machine": self.machine,
        }


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
