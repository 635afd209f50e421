"""`measure matrix` with `stacks`: TCP between two of Linux's network stacks, beside the cells, by what joins them.

The transfers and pings are those of `bench tcp` (`tailrace.measure.tcp`). Each way is a finding for each round, kept as
soon as it is known.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tailrace.errors import Mistake
from tailrace.fabric.base import Port
from tailrace.fabric.kinds import MATRIX_KINDS, Kind, Making
from tailrace.fabric.network import Network
from tailrace.measure.progress import Reporter
from tailrace.measure.session import keep_aside
from tailrace.measure.stacks import OWN_WAYS, PASSTHROUGH, check_card
from tailrace.measure.stand import clear
from tailrace.measure.tcp import (
    GUEST_MIB,
    START_SECONDS,
    Stacks,
    behind,
    check_guests,
    check_programs,
    own_way,
    ping,
    side_seconds,
    transfer,
)
from tailrace.plan.usable import usable_cpus
from tailrace.process.process import undisturbed
from tailrace.resources import hugepages
from tailrace.resources.place import Placement, place, place_without_switch
from tailrace.results.findings import RoundTrips, StacksFinding
from tailrace.results.record import name_in_round
from tailrace.results.run import RunFolder
from tailrace.spec.tests import Matrix
from tailrace.state.launch import Launcher


@dataclass(frozen=True)
class Way:
    """What joins two stacks."""

    name: str
    card: str | None = None

    @property
    def case(self) -> str:
        """The name of its finding."""
        return f"stacks-{self.name}"

    @property
    def kind(self) -> Kind | None:
        """The switch that does; None is a way of Linux's own."""
        return None if self.name in OWN_WAYS else MATRIX_KINDS[self.name]

    def placed(self) -> Placement:
        """Where the switch, and the stacks' load as a tester, run. Raises Mistake if that cannot be here."""
        cpus = usable_cpus().cpus
        if self.kind is None:
            return place_without_switch(cpus, (), real_time=False)
        return place(cpus, (), tester=True, real_time=False)

    def pages(self, *, huge: bool) -> int:
        """2 MiB pages that it takes."""
        if self.kind is None:
            return 0
        return (self.kind.memory_mib + (2 * GUEST_MIB if huge else 0)) // hugepages.PAGE_MIB + (8 if huge else 0)

    def finding(self) -> StacksFinding:
        """What is kept of it, without figures."""
        return StacksFinding(name=self.case, valid=True, reason=None, way=self.name)


def why_not(way: Way) -> str | None:
    """Why a way cannot be had on this machine, or None."""
    try:
        check_programs()
        if way.kind is not None:
            check_guests()
            way.kind.installed()
        elif way.name == PASSTHROUGH:
            if way.card is None:
                raise Mistake("no card is named; expected --card NAME, as `tailrace host inspect` lists them")
            check_card(way.card)
        way.placed()
    except Mistake as refusal:
        return str(refusal)
    return None


def ways_left(
    test: Matrix, known: Collection[tuple[str, int]] = (), repeat: int = 1
) -> tuple[list[list[Way]], list[tuple[Way, str]]]:
    """What is to be measured in each round besides the `known`, and the ways that cannot be had here, with why."""
    rounds: list[list[Way]] = [[] for _ in range(repeat)]
    refused: list[tuple[Way, str]] = []
    for name in test.stacks:
        way = Way(name, test.card[0] if test.card and name == PASSTHROUGH else None)
        numbers = [number for number in range(1, repeat + 1) if (way.case, number) not in known]
        reason = why_not(way) if numbers else None
        if reason is not None:
            refused.append((way, reason))
            continue
        for number in numbers:
            rounds[number - 1].append(way)
    return rounds, refused


def way_seconds(test: Matrix) -> float:
    """How long one way is expected to take."""
    return side_seconds(_transfer_seconds(test), len(test.messages))


def _transfer_seconds(test: Matrix) -> int:
    """iperf3's are whole."""
    return max(1, math.ceil(test.duration))


def measure_way(
    way: Way, test: Matrix, launcher: Launcher, folder: RunFolder, report: Reporter, number: int, *, huge: bool
) -> StacksFinding:
    """What a way carries, for the n-th time. Everything is gone when it returns. Raises Mistake, Failure."""
    label = f"TCP between two stacks by {way.name}"
    report.stage(label, way_seconds(test))
    logs = launcher.logs / name_in_round(way.case, number)
    logs.mkdir(parents=True, exist_ok=True)
    launcher.state.sockets.mkdir(parents=True, exist_ok=True)
    where = way.placed()
    keep_aside(where.switch)
    with _joined(way, replace(launcher, logs=logs), folder, where, huge=huge) as stacks:
        report.advance(label, START_SECONDS / 2)
        trips = ping(stacks)
        gbps: dict[str, float] = {}
        retransmits = 0.0
        for message in test.messages:
            found = transfer(stacks, _transfer_seconds(test), message)
            gbps[str(message)] = found["gbps"]
            retransmits += found["retransmits"]
    return way.finding().model_copy(update={"gbps": gbps, "retransmits": int(retransmits), "ping": _round_trips(trips)})


def _round_trips(found: dict[str, float]) -> RoundTrips:
    return RoundTrips(
        min_us=found["ping_min_us"],
        average_us=found["ping_avg_us"],
        max_us=found["ping_max_us"],
        mdev_us=found["ping_mdev_us"],
        lost=int(found["ping_lost"]),
    )


@contextmanager
def _joined(way: Way, launcher: Launcher, folder: RunFolder, where: Placement, *, huge: bool) -> Iterator[Stacks]:
    if where.tester is None:
        raise ValueError("a placement without a load")
    if way.kind is None:
        with own_way(launcher, where.tester, way.name, way.card) as stacks:
            yield stacks
        return
    network = Network(launcher.state)
    before = list(launcher.state.record.things)
    beside = replace(launcher, network=network.name)
    fabric = way.kind.make(Making(beside, where, network, ("vhost-user-client",) * 2, offloads=True))
    try:
        network.create()
        fabric.start()
        folder.ran(fabric.version())
        sockets = _sockets(fabric.carry("stacks", _PORTS))
        with behind(launcher, where.tester, sockets, fabric.processes(), huge=huge) as stacks:
            yield stacks
    finally:
        with undisturbed():
            clear(launcher.state, before, fabric)


_PORTS = tuple(Port(f"stack{end}", "vhost-user-client") for end in (0, 1))


def _sockets(uris: dict[str, str]) -> Sequence[Path]:
    return [Path(uris[port.name].removeprefix("vhost-server:")) for port in _PORTS]
