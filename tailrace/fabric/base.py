"""What carries packets between functions: one interface, whatever is behind it.

A fabric has ports; a chain is an ordered, even number of ports, joined in pairs both ways (first with second,
third with fourth, ...): what a function does between its two ports is its own affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tailrace.host.state import Process


@dataclass(frozen=True)
class PortState:
    """A port as the fabric sees it."""

    name: str
    state: str
    """waiting (nobody is attached), up, quarantined (the guest broke the rules), or down."""
    reason: str | None = None
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def drops(self) -> dict[str, int]:
        """The reasons for which frames were dropped, with how many."""
        return {name: count for name, count in self.counters.items() if name.startswith("drop_") and count}


class Fabric(Protocol):
    """A running or startable fabric."""

    kind: str

    def start(self) -> None:
        """Starts it; returns when it takes ports. Raises Failure."""

    def add_guest_port(self, name: str, path: Path) -> None:
        """A vhost-user port that listens at `path` for its guest."""

    def add_device_port(self, name: str, uri: str) -> None:
        """A port on a device: if:NAME, pci:ADDRESS or vdev:ARGUMENTS."""

    def wire(self, chain: str, ports: Sequence[str]) -> None:
        """Joins the ports in pairs, replacing what the chain was before."""

    def unwire(self, chain: str) -> None:
        """Takes the chain's pairs apart."""

    def ports(self) -> list[PortState]:
        """All ports with their states and counters."""

    def processes(self) -> list[Process]:
        """The processes without which nothing is carried."""

    def version(self) -> dict[str, str]:
        """Names and versions of what runs."""

    def stop(self) -> None:
        """Stops it; what it had is gone afterwards."""
