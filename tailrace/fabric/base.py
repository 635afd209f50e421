"""What carries packets between functions: one interface, whatever is behind it.

A fabric has ports; a chain is an ordered, even number of ports, joined in pairs both ways (first with second,
third with fourth, ...): what a function does between its two ports is its own affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from tailrace.state.record import Process

Interface = Literal["vhost-user", "vhost-user-client", "memif", "tap", "veth", "passthrough", "wire"]
"""How whoever is behind a port reaches it. vhost-user: shared virtqueues, at a socket where the fabric listens, or as
its client, where the guest does; memif: shared memory of DPDK and VPP; tap: a TAP interface that the guest holds; veth:
the far end of a pair of Linux interfaces; passthrough: a virtual function of a network card (SR-IOV); wire: the far end
of the card's cable."""

KERNEL: tuple[Interface, ...] = ("tap", "veth")
"""Interfaces of Linux's: they live in a network namespace."""
POLLED: tuple[Interface, ...] = ("memif", "veth", "passthrough")
"""Interfaces without receive interrupts (in DPDK's drivers, 22.11 to 24.11): a function on one, on a core that it
shares, looks for frames again and again after a short sleep."""


@dataclass(frozen=True)
class Port:
    """A port that is wanted of a fabric."""

    name: str
    interface: Interface = "vhost-user"
    group: int | None = None
    """Where the guest makes the socket (vhost-user-client): who may, by number, in a folder of its own; None: whoever
    enters the folder of sockets."""


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
class PortState:
    """A port as the fabric sees it."""

    name: str
    state: str
    """waiting (nobody is attached), up, quarantined (the guest broke the rules), or down."""
    reason: str | None = None
    counters: dict[str, int] = field(default_factory=dict)
    attached: dict[str, Any] | None = None
    """Of a guest that is there: since when, its rings, features and memory, as `port.list` has them."""
    bond: dict[str, Any] | None = None
    """Of a bond: its mode, and its members with their states, as `port.list` has them."""

    @property
    def drops(self) -> dict[str, int]:
        """The reasons for which frames were dropped, with how many."""
        return {name: count for name, count in self.counters.items() if name.startswith("drop_") and count}


def members_words(bond: dict[str, Any], reason: str | None) -> str:
    """Which members of a bond carry frames, and what is wrong with others."""
    active = [str(each["device"]) for each in bond["members"] if each["active"]]
    carries = f"frames by {' and '.join(active)}" if active else "no member carries frames"
    return "; ".join([carries, *([reason] if reason else [])])


class Fabric(Protocol):
    """A startable fabric. All that it makes is on record, and gone after `stop` or `tailrace down`."""

    kind: str

    def start(self) -> None:
        """Starts it; returns when it takes ports. Raises Mistake if it is not installed, Failure if it fails."""

    def carry(self, chain: str, ports: Sequence[Port]) -> dict[str, str]:
        """Makes the ports, joined in pairs, both ways. Returns by port the URI (dataplane/common/device.h) with which
        whoever is behind it opens its end. Raises Failure."""

    def counters(self) -> Counters | None:
        """What it has counted until now; None if it has no polling thread of its own."""

    def processes(self) -> list[Process]:
        """The processes without which nothing is carried."""

    def version(self) -> dict[str, str]:
        """Names and versions of what runs; none of the kernel, which is the host's."""

    def stop(self) -> None:
        """Stops it; what it had is gone afterwards."""


def pairs(ports: Sequence[Port]) -> list[tuple[Port, Port]]:
    """The ports as they are joined. Raises ValueError if one is left over."""
    return list(zip(ports[::2], ports[1::2], strict=True))
