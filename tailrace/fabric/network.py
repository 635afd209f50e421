"""A private network namespace, for what must not be seen by the machine's own network: TAPs, veths, bridges, a switch's
own interfaces. One record undoes it with all that is in it, after any end.

IPv6 is off in it, so that nothing but the test's own frames is on the way. Its bridges do not ask the firewall, as
none does on a Debian where nobody has loaded br_netfilter.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from tailrace.errors import Failure
from tailrace.process.programs import run_system, system_program
from tailrace.state.record import Namespace, State

_numbers = itertools.count()
_SWITCHES = (
    ("net/ipv6/conf/all/disable_ipv6", 1),
    ("net/ipv6/conf/default/disable_ipv6", 1),
    ("net/bridge/bridge-nf-call-iptables", 0),
    ("net/bridge/bridge-nf-call-ip6tables", 0),
    ("net/bridge/bridge-nf-call-arptables", 0),
)


class Network:
    """One namespace. Interfaces get short names of their own: Linux's have at most 15 letters."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._names = itertools.count()
        self.name = f"tailrace-{os.getpid()}-{next(_numbers)}"
        self._record = Namespace(self.name)

    def create(self) -> None:
        """Makes it, on record first. Raises Mistake or Failure."""
        self._state.add(self._record)
        _run(["netns", "add", self.name])
        switches = [f"{key.replace('/', '.')}={value}" for key, value in _SWITCHES if Path("/proc/sys", key).exists()]
        if switches:
            _run(["netns", "exec", self.name, system_program("sysctl"), "-qw", *switches])
        self._ip("link", "set", "lo", "up")

    def tap(self) -> str:
        """A TAP interface, up, for a guest that opens it by its name."""
        name = f"tap{next(self._names)}"
        # With several queues, because DPDK's driver opens it so; it has one.
        self._ip("tuntap", "add", "dev", name, "mode", "tap", "multi_queue")
        self._ip("link", "set", name, "up")
        return name

    def veth(self) -> tuple[str, str]:
        """Two ends of a cable, up: the fabric's, and the guest's."""
        number = next(self._names)
        ends = f"veth{number}", f"guest{number}"
        self._ip("link", "add", "name", ends[0], "type", "veth", "peer", "name", ends[1])
        for end in ends:
            self._ip("link", "set", end, "up")
        return ends

    def bridge(self, members: Sequence[str]) -> str:
        """A bridge of Linux's with these interfaces on it, as it comes, but for the wait before it forwards."""
        name = f"br{next(self._names)}"
        self._ip("link", "add", "name", name, "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
        for member in members:
            self._ip("link", "set", member, "master", name)
        self._ip("link", "set", name, "up")
        return name

    def hub(self, end: str, others: Sequence[str]) -> str:
        """A bridge that sends each frame of one interface to all others, and what comes from these to that one alone.
        It learns nothing, so whoever answers changes nothing."""
        name = self.bridge([end, *others])
        self._ip("link", "set", name, "type", "bridge", "ageing_time", "0")
        for each in (end, *others):
            self._ip("link", "set", each, "type", "bridge_slave", "learning", "off")
        for each in others:
            self._ip("link", "set", each, "type", "bridge_slave", "isolated", "on")
        return name

    def remove(self) -> None:
        """Removes it with all that is in it. Raises Failure."""
        problem = self._state.undo(self._record)
        if problem:
            raise Failure(problem)

    def _ip(self, *arguments: str) -> None:
        _run(["-n", self.name, *arguments])


def _run(arguments: Sequence[str]) -> None:
    run_system("ip", *arguments)
