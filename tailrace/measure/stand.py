"""A chain of functions between the tester's two ends, standing on any fabric for as long as a block lasts.

The same chain, functions and tester on each; only what carries the frames differs. Everything is started in a network
namespace of its own and is on record first, so that `tailrace down` finds it after any end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tailrace.errors import Failure, Fault, Mistake
from tailrace.fabric.base import POLLED, Fabric, Interface, Port
from tailrace.fabric.card import NO_CABLING, Cabling, check_card, planned_ends
from tailrace.fabric.kinds import BACKPRESSURE_US, Kind, Making
from tailrace.fabric.network import Network
from tailrace.functions.runtime import Instance, Starter
from tailrace.functions.runtimes import STARTERS
from tailrace.measure.fit import Carries
from tailrace.measure.profile import profile
from tailrace.measure.tester import Stopped, Tester
from tailrace.plan.planned import TESTER_BUFFERS_MIB
from tailrace.plan.usable import usable_cpus
from tailrace.process.process import real_time_refusal, undisturbed
from tailrace.resources import hugepages
from tailrace.resources.place import FUNCTION_PRIORITY, Placement, place, place_without_switch
from tailrace.resources.topology import Cpu
from tailrace.spec.interface import VHOST_USER
from tailrace.spec.model import TESTER_ENDS
from tailrace.state.launch import Launcher, why_ended
from tailrace.state.record import Process, State
from tailrace.switch.confine import group_for

_READY_SECONDS = 15.0
_PROBE_PPS = 2000.0
_PROBE_SECONDS = 0.02
_PROBE_LONGEST = 2.0
"""Seconds after which a chain is taken to lose some of its frames for good."""


@dataclass(frozen=True)
class SceneFunction:
    """A function of the chain."""

    name: str
    kind: str = "skeleton"
    memory_bytes: int = 256 << 20
    settings: tuple[str, ...] = ()
    """Of the function's program, as NAME=VALUE."""


@dataclass(frozen=True)
class Scene:
    """What is to stand, whatever the fabric."""

    chain: str
    functions: tuple[SceneFunction, ...]
    interface: Interface | None = None
    """Of the functions' ports; the fabric's first unless given."""
    ends: Interface | None = None
    """Of the tester's ends; as the functions' unless given."""
    huge: bool = True
    backpressure_us: int = BACKPRESSURE_US
    idle: str = "poll"
    cabling: Cabling = NO_CABLING
    runs: str = "process"
    """Where the functions live (`tailrace.functions.runtimes`)."""

    @property
    def runtime(self) -> Starter:
        return STARTERS[self.runs]

    @property
    def listens(self) -> bool:
        """Whether the functions listen at their ports. Machines do; a process connects as well, to any fabric."""
        return self.runtime.listens and self.runtime.own_kernel

    @property
    def patience(self) -> float:
        """Seconds after which frames come through."""
        return self.runtime.patience if self.listens and self.functions else _READY_SECONDS

    def interfaces(self, kind: Kind) -> tuple[Interface, Interface]:
        """Those of the functions' ports and of the tester's ends on a fabric."""
        interface = self.interface or kind.interfaces[0]
        return interface, self.ends or interface

    def ports(self, kind: Kind) -> list[Port]:
        """All ports in the order in which a frame from tester.a passes them."""
        interface, ends = self.interfaces(kind)
        inner = [Port(f"{function.name}.{side}", interface) for function in self.functions for side in (0, 1)]
        return [Port(TESTER_ENDS[0], ends), *inner, Port(TESTER_ENDS[1], ends)]

    def carries(self, kind: Kind) -> list[Carries]:
        """What the ports of each kind carry."""
        kinds = dict.fromkeys(port.interface for port in self.ports(kind))
        return [Carries(f"{kind.name}'s {each} ports", kind.mtu(each)) for each in kinds]

    def pages(self, kind: Kind) -> int:
        """2 MiB pages that everything takes."""
        if not self.huge:
            return kind.memory_mib // hugepages.PAGE_MIB
        functions = sum(self.runtime.huge_bytes(function.memory_bytes) for function in self.functions) >> 20
        mib = TESTER_BUFFERS_MIB + functions + kind.memory_mib
        return mib // hugepages.PAGE_MIB + 8


def placement(scene: Scene, kind: Kind, cpus: Sequence[Cpu], *, real_time: bool) -> Placement:
    """Where the switch, if there is one, the tester and the functions run. Raises Mistake if that cannot be here."""
    interface, ends = scene.interfaces(kind)
    for wanted in (interface, ends):
        if wanted not in kind.interfaces:
            raise Mistake(f"{kind.name} has no {wanted} ports; it has {', '.join(kind.interfaces)}")
    if scene.functions and scene.runtime.own_kernel:
        _check_machines(kind, interface)
    if kind.name == "card":
        check_card(scene.cabling, scene.ports(kind))
    elif ends == "wire":
        check_card(scene.cabling, scene.ports(kind), which=planned_ends)
    names = [function.name for function in scene.functions]
    if kind.polls:
        found = place(cpus, names, tester=True, real_time=real_time)
    else:
        found = place_without_switch(cpus, names, real_time=real_time)
    return found


def _check_machines(kind: Kind, interface: Interface) -> None:
    """Whether a fabric can have machines behind its ports. Raises Mistake."""
    if interface not in ("vhost-user", "passthrough"):
        raise Mistake(f"machines have vhost-user ports here, and virtual functions (passthrough), but no {interface}")
    if kind.name == "direct":
        raise Mistake("direct joins no machines: both ends of a link would listen; expected a switch")


@dataclass(frozen=True)
class Placed:
    """A fabric and where everything runs on it."""

    kind: Kind
    placement: Placement

    @property
    def name(self) -> str:
        return self.kind.name

    def caveat(self, scene: Scene) -> str | None:
        """What a reader must know of the functions' share in the latency; None if there is nothing."""
        interface, ends = scene.interfaces(self.kind)
        at_functions = {interface, *([ends] if self.kind.name == "direct" else [])}
        without = [each for each in POLLED if each in at_functions]
        if not scene.functions or not self.placement.oversubscribed or not without:
            return None
        return (
            f"{' and '.join(without)} ports have no receive interrupts: a function there that shares its core sleeps "
            "for 50 µs when no frame has come, which is part of the latency"
        )


def placed(scene: Scene, kinds: Sequence[Kind]) -> list[Placed]:
    """The placement on this machine for each fabric. Raises Mistake if one cannot be."""
    cpus, real_time = usable_cpus().cpus, real_time_refusal(FUNCTION_PRIORITY) is None
    return [Placed(kind, placement(scene, kind, cpus, real_time=real_time)) for kind in kinds]


@dataclass(frozen=True)
class Stand:
    """What stands."""

    launcher: Launcher
    fabric: Fabric
    tester: Tester
    functions: tuple[Process, ...]
    notes: tuple[str, ...] = ()
    """What is to be said of how the functions live."""

    def version(self) -> dict[str, str]:
        """Names and versions of what carries and measures the frames."""
        return self.fabric.version() | self.tester.version()

    def check(self) -> None:
        """Raises Fault if something that it stands on has ended."""
        for process in (self.tester.process, *self.functions, *self.fabric.processes()):
            if not process.id.alive():
                raise Fault(why_ended(self.launcher, process))


@contextmanager
def standing(launcher: Launcher, scene: Scene, kind: Kind, where: Placement) -> Iterator[Stand]:
    """The scene on a fabric, attached and ready for frames; gone after the block. Raises Mistake or Failure.

    `launcher.logs` gets every program's log; give each stand a folder of its own.
    """
    state = launcher.state
    for folder in (state.sockets, launcher.logs):
        folder.mkdir(parents=True, exist_ok=True)
    before = list(state.record.things)
    network = Network(state)
    if kind.private:
        launcher = replace(launcher, network=network.name)
    interfaces = tuple(port.interface for port in scene.ports(kind))
    making = Making(launcher, where, network, interfaces, scene.backpressure_us, scene.idle, scene.cabling)
    fabric = kind.make(making)
    try:
        if kind.private:
            network.create()
        fabric.start()
        stand = _occupy(launcher, fabric, scene, kind, where)
        _wait_until_carried(stand, scene.patience)
        yield stand
    finally:
        with undisturbed():
            clear(state, before, fabric)


def _occupy(launcher: Launcher, fabric: Fabric, scene: Scene, kind: Kind, where: Placement) -> Stand:
    """Starts who is behind the ports: the functions from the last to the first, then the tester."""
    state, runtime = launcher.state, scene.runtime
    groups = {function.name: group_for(state, function.name) for function in scene.functions if scene.listens}
    uris = fabric.carry(scene.chain, [_listening(port, groups) for port in scene.ports(kind)])
    started: list[Process] = []
    notes: dict[str, None] = {}
    for function in reversed(scene.functions):
        ports = tuple(uris[f"{function.name}.{side}"] for side in (0, 1))
        _wait_for_sockets(launcher, ports, started)
        place = where.functions[function.name]
        instance = Instance(
            name=function.name,
            kind=function.kind,
            ports=ports,
            place=place,
            memory_bytes=function.memory_bytes,
            huge=scene.huge,
            settings=function.settings,
            interfaces=tuple(uri if uri.startswith("pci:") else VHOST_USER for uri in ports) if groups else (),
            group=groups.get(function.name, state.group),
        )
        begun = runtime.start(launcher, instance)
        started.append(begun.process)
        notes.update(dict.fromkeys(begun.notes))
    ends = [(name.removeprefix("tester."), uris[name]) for name in TESTER_ENDS]
    if scene.functions:
        _wait_for_sockets(launcher, [uri for _, uri in ends], started)
    if where.tester is None:
        raise ValueError("a placement without a tester")
    # The far ends of cables are the machine's own interfaces.
    beside = replace(launcher, network=None) if "wire" in scene.interfaces(kind) else launcher
    tester = Tester.start(beside, ends, where.tester, memory_mib=TESTER_BUFFERS_MIB, huge=scene.huge)
    deadline = time.monotonic() + scene.patience
    for process in started:
        runtime.wait(launcher, process, where.functions[process.name], deadline)
    return Stand(launcher, fabric, tester, tuple(started), tuple(notes))


def _listening(port: Port, groups: Mapping[str, int]) -> Port:
    """The same, where the function behind it listens and has a group."""
    group = groups.get(port.name.rpartition(".")[0])
    return (
        port
        if group is None or port.interface != "vhost-user"
        else replace(port, interface="vhost-user-client", group=group)
    )


def _wait_until_carried(stand: Stand, patience: float) -> None:
    """Waits until frames come through both ways: a switch takes a port up some time after its guest has.

    Raises Failure. A function may lose frames by itself, so that some do is enough after a while.
    """
    began = time.monotonic()
    while True:
        try:
            result = stand.tester.trial(profile(64).streams(_PROBE_PPS), _PROBE_SECONDS, wait=0.03, watch=stand.check)
        except Stopped as stopped:
            raise stopped.cause from None
        seconds = time.monotonic() - began
        if not any(stream["lost"] for stream in result["streams"]):
            return
        if all(stream["received"] for stream in result["streams"]) and seconds > _PROBE_LONGEST:
            return
        if seconds > patience:
            raise Failure(f"no frame comes through the chain {patience:g} s after its start, at least one way")


def clear(state: State, before: Sequence[object], fabric: Fabric) -> None:
    """Takes a stand down, who is behind the ports first. Raises Failure if something stays."""
    ours = {process.pid for process in fabric.processes()}
    added = [thing for thing in reversed(state.record.things) if thing not in before]
    problems = [state.undo(thing) for thing in added if isinstance(thing, Process) and thing.pid not in ours]
    try:
        fabric.stop()
    except Failure as error:
        problems.append(str(error))
    problems += [state.undo(thing) for thing in reversed(list(state.record.things)) if thing not in before]
    failed = [problem for problem in problems if problem is not None]
    if failed:
        raise Failure("; ".join(failed))


def _wait_for_sockets(launcher: Launcher, uris: Sequence[str], makers: Sequence[Process]) -> None:
    """Waits until the sockets that these ports connect to are there. Raises Fault if who makes them has ended."""
    deadline = time.monotonic() + _READY_SECONDS
    for uri in uris:
        scheme, _, rest = uri.partition(":")
        if scheme not in ("vhost", "memif") or "role=server" in rest:
            continue
        path = Path(rest.partition(",")[0])
        while not path.exists():
            for process in makers:
                if not process.id.alive():
                    raise Fault(why_ended(launcher, process))
            if time.monotonic() > deadline:
                raise Failure(f"nobody made the socket {path} within {_READY_SECONDS:g} s")
            time.sleep(0.01)
