"""The switches under test behind one face: two vhost-user ports, joined, and the counters of one polling thread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tailrace.bench.model import OVS_DPDK, TAILRACE, Counters
from tailrace.errors import Fault
from tailrace.fabric.ovs_dpdk import OvsDpdk
from tailrace.fabric.tailrace import SwitchOptions, TailraceFabric
from tailrace.host.launch import Launcher
from tailrace.host.place import POLLER_NICE, Place
from tailrace.host.state import FilePath, Process

BACKPRESSURE_US = 20_000
_PORTS = ("p0", "p1")


class Switch(Protocol):
    """A switch between two guests that listen at `sockets`."""

    def start(self, sockets: Sequence[Path]) -> None:
        """Starts it with both ports joined, both ways."""

    def counters(self) -> Counters:
        """What it has counted until now."""

    def version(self) -> dict[str, str]:
        """Names and versions of what runs."""

    def processes(self) -> list[Process]:
        """The processes that must live for the measurement to count."""

    def stop(self) -> None:
        """Ends it."""


class TailraceSwitch:
    """tailrace-switch."""

    def __init__(self, launcher: Launcher, place: Place) -> None:
        self._launcher = launcher
        self._fabric = TailraceFabric(launcher, SwitchOptions(place, BACKPRESSURE_US, "poll"))

    def start(self, sockets: Sequence[Path]) -> None:
        self._fabric.start()
        for name, path in zip(_PORTS, sockets, strict=True):
            self._launcher.state.add(FilePath(str(path)))
            # The client's side, so that the guests are started with the same words for both switches.
            self._fabric.control.call("port.add", name=name, kind="guest", path=str(path), mode="client")
        self._fabric.wire("hop", _PORTS)

    def counters(self) -> Counters:
        worker = self._fabric.worker_cycles()
        dropped = sum(sum(port.drops.values()) for port in self._fabric.ports())
        if not worker:
            raise Fault("tailrace-switch shows no worker in its counters")
        return Counters(worker["packets"], worker["busy_cycles"], worker["idle_cycles"], dropped)

    def version(self) -> dict[str, str]:
        return self._fabric.version()

    def processes(self) -> list[Process]:
        return self._fabric.processes()

    def stop(self) -> None:
        self._fabric.stop()


class OpenVswitch:
    """Open vSwitch with DPDK: the same two ports, joined by two port-to-port rules, one PMD on the same core."""

    def __init__(self, launcher: Launcher, place: Place) -> None:
        self._fabric = OvsDpdk(launcher, place, nice=POLLER_NICE)

    def start(self, sockets: Sequence[Path]) -> None:
        self._fabric.start()
        for name, path in zip(_PORTS, sockets, strict=True):
            self._fabric.add_guest_port(name, path)
        self._fabric.wire("hop", _PORTS)

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
