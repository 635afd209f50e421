"""Frames that circulate between the guests of a switch, all of which `tailrace-circulate` plays on the load's core.

They go as those of testpmd do in `bench hop`: as many are on their way as a ring holds, so none is lost for want of
room, and what arrives is sent again at once. In the end every frame is held against what it was when it was made.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from operator import add

from tailrace.bench.compare import Plan, Step, after
from tailrace.bench.model import Sample
from tailrace.bench.setting import Setting, check_alive
from tailrace.bench.sides import fabric_of, started
from tailrace.bench.window import Counted, check_settled, counters_of, watch_windows
from tailrace.errors import Fault
from tailrace.fabric.base import Interface, Port
from tailrace.fabric.network import Network
from tailrace.fabric.ovs_dpdk import OvsDpdk, Rules
from tailrace.fabric.tailrace import TailraceFabric
from tailrace.process.process import UMASK_GUEST, Limits, undisturbed
from tailrace.process.programs import own_program
from tailrace.resources.place import POLLER_NICE
from tailrace.state.record import Process
from tailrace.switch.config import Config

PROGRAM = "tailrace-circulate"
DEVICES = 32
"""The most guests of one process, because DPDK has room for no more; several processes take turns on the core."""
PROCESSES = 2
MEMORY_MIB = 160
"""DPDK's memory of each (dataplane/bench/circulate.c)."""
START_SECONDS = 6.0
"""What starting and ending one side takes besides the measured time, for the progress bar."""
_REHEARSED_SECONDS = 60.0
_CIRCULATING = "circulating"


@dataclass(frozen=True)
class Account:
    """What the guests have counted, from when the frames began to circulate."""

    rehearsed: int
    """Frames sent before that."""
    sent: int
    chained: int
    """Those that were sent in two pieces."""
    received: int
    bytes: int
    unfinished: int
    """Those received whose checksum was left to the receiver."""
    stray: int
    """Those that arrived where none is to arrive, or with a wrong tag."""
    right: int
    """At the end, frames that arrived where they are to, once, and as they were made."""
    wrong: int
    """At the end, other frames."""
    ports: Sequence[int]
    """Frames received by each guest."""

    def __add__(self, other: Account) -> Account:
        mine, others = vars(self), vars(other)
        return Account(**{name: mine[name] + others[name] for name in mine})


@dataclass(frozen=True)
class Guests:
    """Who they are and what they send."""

    back: Sequence[int | None]
    """For each guest the one from which frames that arrive there are sent again; None: none is to arrive there. Both
    are among the same DEVICES."""
    frame: str | None = None
    """imix; None: the plan's size."""
    frames: int = 1024
    """That begin at each guest that sends: as many as a ring holds at most."""
    flows: int = 1
    unfinished: int = 0
    """One frame in so many leaves its checksum to others; 0: none."""
    chained: int = 0
    """One frame in so many is sent in two pieces; 0: none."""
    rewrite: bool = False
    """Whether they read and write every byte of a frame before they send it again."""
    tags: Sequence[int] = ()
    """For each guest, the VLAN of all that passes its port; 0: none."""
    rings: str = "queue_size=1024"
    """In the words of DPDK's virtio-user."""
    interface: Interface = "vhost-user-client"
    """How they reach the switch. Open vSwitch takes unfinished checksums only where it is the client; but then it looks
    once a second for a guest."""
    last: Interface | None = None
    """And how the last one does; as the others if None."""

    @property
    def ports(self) -> list[Port]:
        names = [f"p{number}" for number in range(len(self.back))]
        others = [Port(name, self.interface) for name in names[:-1]]
        return [*others, Port(names[-1], self.last or self.interface)]

    @property
    def circulating(self) -> int:
        """Frames that are on their way."""
        return self.frames * len(set(self.back) - {None})

    def lines(self, uris: Sequence[str], frame: int) -> list[list[str]]:
        """The command line of each process that plays guests at these URIs."""
        return [self._line(uris, frame, first) for first in range(0, len(uris), DEVICES)]

    def _line(self, uris: Sequence[str], frame: int, first: int) -> list[str]:
        part = slice(first, first + DEVICES)
        words = [word for n, uri in enumerate(uris[part]) for word in ("--port", _virtio_user(n, uri, self.rings))]
        words += ["--back", ",".join("-" if port is None else str(port - first) for port in self.back[part])]
        words += ["--frame", self.frame or str(frame), "--frames", str(self.frames), "--flows", str(self.flows)]
        words += ["--unfinished", str(self.unfinished), "--chained", str(self.chained)]
        words += ["--rewrite"] if self.rewrite else []
        return words + (["--tags", ",".join(map(str, self.tags))] if self.tags else [])


def _virtio_user(number: int, uri: str, rings: str) -> str:
    """A vhost-user socket as the same device that testpmd has; anything else as it is."""
    scheme, _, path = uri.partition(":")
    modes = {"vhost": "", "vhost-server": ",server=1"}
    return f"vdev:net_virtio_user{number},path={path},{rings}{modes[scheme]}" if scheme in modes else uri


Switch = OvsDpdk | TailraceFabric


@dataclass(frozen=True)
class Run:
    """What a run leaves to look at."""

    account: Account
    layouts: Sequence[str]
    """Of the guests' rings, before they ended."""
    switch: Switch


Shown = Callable[[Run], str | None]
"""What is wrong with what a run has shown, None if nothing is."""


@dataclass(frozen=True)
class Wiring:
    """Guests, what each switch does with their frames, and what shows that it did."""

    guests: Guests
    config: Config
    """Tailrace's, but for the ports."""
    rules: Rules
    """Open vSwitch's."""
    shows: Sequence[Shown] = ()
    offloads: bool = False
    """Guests may ask for checksums."""


def measure(wiring: Wiring, plan: Plan, name: str, setting: Setting, step: Step) -> list[Sample]:
    """One switch: up, wired, under the guests' frames, measured, held to account, down."""
    network = Network(setting.launcher.state)
    network.create()
    try:
        inside = replace(setting, launcher=replace(setting.launcher, network=network.name))
        fabric = fabric_of(inside, name, offloads=wiring.offloads, network=network)
        with started(fabric, inside, name) as switch:
            return _measured(wiring, plan, switch, inside, step)
    finally:
        with undisturbed():
            network.remove()


def _measured(wiring: Wiring, plan: Plan, switch: Switch, setting: Setting, step: Step) -> list[Sample]:
    uris = switch.plug(wiring.guests.ports)
    if isinstance(switch, OvsDpdk):
        switch.program(wiring.rules)
    else:
        switch.apply(wiring.config)
    with circulating(setting, wiring.guests, list(uris.values()), plan.frame) as loads:
        step(START_SECONDS / 2)
        progress = after(step, START_SECONDS / 2)
        samples = watch_windows(setting, plan.seconds, switch, loads, progress, lossless=True)
        layouts = switch.layouts()
        run = Run(ended(setting, loads, wiring.guests, switch), layouts, switch)
    check_settled(lambda: next(filter(None, (shown(run) for shown in wiring.shows)), None))
    return samples


@contextmanager
def circulating(setting: Setting, guests: Guests, uris: Sequence[str], frame: int) -> Iterator[list[Process]]:
    """The processes that play the guests at these URIs, whose frames have begun to circulate."""
    lines = guests.lines(uris, frame)
    loads: list[Process] = []
    try:
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in lines]
        try:
            for number, line in enumerate(lines):
                loads.append(_start(setting, number, line, pipes))
            os.write(pipes[0][1], b"0")
        finally:
            for descriptor in chain.from_iterable(pipes):
                os.close(descriptor)
        deadline = time.monotonic() + _REHEARSED_SECONDS
        while not all(setting.launcher.said(load.name, _CIRCULATING) for load in loads):
            for load in loads:
                if not load.id.alive():
                    raise Fault(str(setting.launcher.failure(load.name, f"{PROGRAM} has ended")))
            if time.monotonic() > deadline:
                raise Fault(str(setting.launcher.failure(loads[0].name, "the frames do not circulate")))
            time.sleep(0.02)
        yield loads
    finally:
        _end(setting, loads)


def _start(setting: Setting, number: int, line: Sequence[str], pipes: Sequence[tuple[int, int]]) -> Process:
    """One of as many processes as pipes, which takes turns with the others."""
    place = setting.cores.load_place
    argv = [str(own_program(PROGRAM)), "--core", str(place.core), "--huge", *line]
    turns = pipes[number][0], pipes[(number + 1) % len(pipes)][1]
    if len(pipes) > 1:
        argv += ["--turns", ",".join(map(str, turns))]
    limits = Limits(cpus=place.cpus, nice=POLLER_NICE, umask=UMASK_GUEST)
    return setting.launcher.start(f"circulate-{number}", argv, limits, keep=turns)


def _end(setting: Setting, loads: Sequence[Process]) -> None:
    with undisturbed():
        for load in loads:
            setting.launcher.state.undo(load)


def ended(setting: Setting, loads: Sequence[Process], guests: Guests, switch: Counted) -> Account:
    """Ends the guests; what they have counted together. Raises Fault if that is not whole, or the switch has counted
    something else."""
    check_alive(loads)
    _end(setting, loads)
    accounts = []
    for load in loads:
        try:
            accounts.append(Account(**json.loads(setting.launcher.last_words(load.name))))
        except (ValueError, TypeError):
            raise Fault(str(setting.launcher.failure(load.name, f"{PROGRAM} failed"))) from None
    account = reduce(add, accounts)
    check_settled(lambda: disagreement(account, guests.circulating, counters_of(switch).packets))
    return account


def disagreement(account: Account, circulating: int, packets: int) -> str | None:
    """What is wrong with an account of so many frames, of which a switch has counted `packets` passing; else None."""
    if account.received != account.sent:
        return f"the guests sent {account.sent} frames and received {account.received}"
    if account.right != circulating or account.wrong or account.stray:
        return (
            f"of {circulating} frames {account.right} were whole and in their place at the end and {account.wrong} "
            f"were not; {account.stray} had strayed"
        )
    if packets != account.rehearsed + account.sent:
        return f"the switch counted {packets} packets and the guests sent {account.rehearsed + account.sent}"
    return None
