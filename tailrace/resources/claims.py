"""Cores that a worker of some switch has: it polls, so whoever shares its core waits while it runs.

A worker holds its core by a name in the kernel's abstract space of sockets, which goes with it however it ends
(dataplane/switch/cores.c).
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

_CREDENTIALS = struct.Struct("iII")
"""struct ucred: process, user, group."""

END_IT = "end that switch first (`tailrace down`, with the TAILRACE_STATE that it was started with)"


def holder(core: int) -> int | None:
    """The process that has a core: one of root's or of ours; anybody else may take the name, and has no say."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(f"\0tailrace-worker-on-core-{core}")
            peer = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return None
    process, user, _ = _CREDENTIALS.unpack(peer)
    return process if user in (0, os.geteuid()) else None


@dataclass(frozen=True)
class Worker:
    """A switch's worker that has a core: of a node whose claim may not be read, or of a switch that no node started."""

    process: int

    @property
    def words(self) -> str:
        return f"a switch's worker, process {self.process}"

    def on(self, cpu: int) -> str:
        """Who polls on a CPU, in words."""
        del cpu
        return self.words


def workers(cpus: Iterable[int], own: Collection[int] = ()) -> dict[int, Worker]:
    """The switches' workers on these CPUs, but for one's own."""
    return {cpu: Worker(process) for cpu in cpus if cpu not in own and (process := holder(cpu)) is not None}


def taken(cores: Sequence[int]) -> str | None:
    """Which of these cores somebody else's worker has, and what that would mean; None if none is taken."""
    for core in cores:
        if (process := holder(core)) is not None:
            return (
                f"core {core} is taken by a worker of another switch (process {process}), and each would wait while "
                "the other runs"
            )
    return None
