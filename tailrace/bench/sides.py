"""The switches under test behind one face: vhost-user ports, joined in pairs, and one polling thread's counters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tailrace.bench.model import OVS_DPDK, TAILRACE, Counters
from tailrace.bench.setting import Setting
from tailrace.errors import Fault, Mistake
from tailrace.fabric.ovs_dpdk import OvsDpdk
from tailrace.fabric.tailrace import SwitchOptions, TailraceFabric
from tailrace.host.launch import Launcher
from tailrace.host.place import POLLER_NICE, Place
from tailrace.host.process import undisturbed
from tailrace.host.state import FilePath, Process

BACKPRESSURE_US = 20_000

Joints = Sequence[tuple[int, int]]
"""Which guests are joined with which, by their places in the list of sockets."""
ONE_HOP: Joints = ((0, 1),)


class Counted(Protocol):
    """A running switch, as a measurement watches it."""

    def counters(self) -> Counters:
        """What it has counted until now."""

    def processes(self) -> list[Process]:
        """The processes that must live for the measurement to count."""


class Switch(Counted, Protocol):
    """A switch between guests that listen at `sockets`."""

    def start(self, sockets: Sequence[Path], joints: Joints = ONE_HOP) -> None:
        """Starts it with a port for each socket, joined in pairs, both ways."""

    def version(self) -> dict[str, str]:
        """Names and versions of what runs."""

    def stop(self) -> None:
        """Ends it."""


class TailraceCounters:
    """A tailrace-switch that runs, whoever started it."""

    def __init__(self, fabric: TailraceFabric) -> None:
        self.fabric = fabric

    def counters(self) -> Counters:
        worker = self.fabric.worker_cycles()
        dropped = sum(sum(port.drops.values()) for port in self.fabric.ports())
        if not worker:
            raise Fault("tailrace-switch shows no worker in its counters")
        return Counters(worker["packets"], worker["busy_cycles"], worker["idle_cycles"], dropped)

    def processes(self) -> list[Process]:
        return self.fabric.processes()


class TailraceSwitch(TailraceCounters):
    """tailrace-switch."""

    def __init__(self, launcher: Launcher, place: Place, *, idle: str = "poll", offloads: bool = False) -> None:
        super().__init__(TailraceFabric(launcher, SwitchOptions(place, BACKPRESSURE_US, idle)))
        self._launcher = launcher
        self._offloads = offloads

    def start(self, sockets: Sequence[Path], joints: Joints = ONE_HOP) -> None:
        self.fabric.start()
        for path in sockets:
            self._launcher.state.add(FilePath(str(path)))
        self.fabric.apply(
            {
                "ports": {
                    f"p{number}": {**guest_port(path), "offloads": self._offloads}
                    for number, path in enumerate(sockets)
                },
                "chains": {f"hop-{one}-{other}": joined(f"p{one}", f"p{other}") for one, other in joints},
            }
        )

    def version(self) -> dict[str, str]:
        return self.fabric.version()

    def stop(self) -> None:
        self.fabric.stop()


def guest_port(path: Path) -> dict[str, object]:
    """A port of the switch's configuration for a guest that listens: then all guests are started with the same words
    whatever the switch is."""
    return {"kind": "guest", "path": str(path), "mode": "client"}


def joined(one: str, other: str) -> dict[str, object]:
    """A chain of the switch's configuration that joins two ports."""
    return {"from": one, "to": other, "through": []}


class OpenVswitch:
    """Open vSwitch with DPDK: the same ports, joined by port-to-port rules, one PMD on the same core."""

    def __init__(self, launcher: Launcher, place: Place, *, offloads: bool = False) -> None:
        self._fabric = OvsDpdk(launcher, place, nice=POLLER_NICE, offloads=offloads)

    def start(self, sockets: Sequence[Path], joints: Joints = ONE_HOP) -> None:
        self._fabric.start()
        for number, path in enumerate(sockets):
            self._fabric.add_guest_port(f"p{number}", path)
        self._fabric.wire("bench", [f"p{end}" for joint in joints for end in joint])

    def counters(self) -> Counters:
        stats = self._fabric.stats()
        return Counters(stats.packets, stats.busy_cycles, stats.idle_cycles, self._fabric.dropped())

    def version(self) -> dict[str, str]:
        return self._fabric.version()

    def processes(self) -> list[Process]:
        return self._fabric.processes()

    def stop(self) -> None:
        self._fabric.stop()


SWITCHES: dict[str, type[TailraceSwitch] | type[OpenVswitch]] = {TAILRACE: TailraceSwitch, OVS_DPDK: OpenVswitch}


ALONE = "none"


def against_known(against: str) -> tuple[str, ...]:
    """The sides of a comparison with `against`, ours first; ours alone for ALONE. Raises Mistake if it is not known."""
    if against not in (ALONE, OVS_DPDK):
        raise Mistake(f"--against {against}: expected {OVS_DPDK} or {ALONE}")
    return (TAILRACE,) if against == ALONE else (TAILRACE, against)


def check_installed(sides: Sequence[str]) -> None:
    """Raises Mistake, naming the package, if a side is not installed."""
    if OVS_DPDK in sides:
        OvsDpdk.installed()


@contextmanager
def running(
    setting: Setting, name: str, guests: int = 2, joints: Joints = ONE_HOP, *, what: str = "", offloads: bool = False
) -> Iterator[tuple[Switch, list[Path]]]:
    """A switch that is up, and the sockets where its guests are to listen; ended after the block.

    Guests may ask for checksums and segmentation where `offloads`. A Fault in the block is told with the side's name
    and `what`.
    """
    sockets = [setting.launcher.state.sockets / f"guest{number}" for number in range(guests)]
    switch: Switch = SWITCHES[name](setting.launcher, setting.cores.switch_place, offloads=offloads)
    try:
        switch.start(sockets, joints)
        setting.versions |= switch.version()
        yield switch, sockets
    except Fault as error:
        raise Fault(f"{', '.join(filter(None, (name, what)))}: {error}") from None
    finally:
        with undisturbed():
            switch.stop()
