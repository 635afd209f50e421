"""What a kind of function can be told in a spec, and what it needs of the place where it lives.

A kind with settings has a model of its own, which is a row of `tailrace.spec.model.SETTINGS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from tailrace.spec.fields import Model
from tailrace.spec.position import Location


@dataclass(frozen=True)
class Route:
    """A route of a function's own network namespace."""

    prefix: str
    via: tuple[tuple[str, int], ...]
    """The next hops: address, and number of the port that it is at."""


@dataclass(frozen=True)
class Network:
    """The network namespace that a function lives in, with a TAP interface for each of its ports: port0, port1."""

    addresses: tuple[tuple[str, ...], ...]
    """Of each port, as ADDRESS/LENGTH; none: they are somebody else's to set."""
    routes: tuple[Route, ...] = ()
    macs: tuple[str | None, ...] = ()
    """Of each port that has one given."""
    neighbours: tuple[tuple[str, str, int], ...] = ()
    """Those that are given: address, MAC address, and number of the port that it is at."""


class Settings(Model):
    """Of a kind that has none, and the base of the others."""

    one_thread: ClassVar[str | None] = None
    """Why one thread of its program has to see all frames; None: each of several may have its own queues."""

    def settings(self, replica: int) -> tuple[str, ...]:
        """What the program of the replica (from 0) is given, as NAME=VALUE."""
        del replica
        return ()

    def network(self) -> Network | None:
        """The network namespace that it needs; None: it has none."""
        return None

    def tables_mib(self, queues: int = 1) -> int:
        """What its program's tables for so many queues take of DPDK's memory, beside packet buffers."""
        del queues
        return 0

    def refuses(self, replicas: int, standby: int) -> str | None:
        """Why it cannot be with so many replicas, of which so many stand by; None if it can."""
        del replicas, standby
        return None

    def told(self) -> dict[str, Any] | None:
        """What the program is told when it runs, and again whenever that changes; None: it is told nothing."""
        return None

    def warnings(self) -> Iterator[str]:
        """What is allowed, and most likely not meant."""
        return iter(())

    def stands_for(self) -> tuple[str, ...]:
        """The prefixes that it sends from, or is reached at: its own, or in the place of others."""
        return ()

    def problems(self) -> Iterator[tuple[Location, str]]:
        """What is wrong between its parts: where, from the settings on, and what."""
        return iter(())
