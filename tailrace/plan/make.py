"""From what the user asked for to what will be done on this machine: a plan is data (`tailrace.plan.planned`).

It can be printed before it is applied (`tailrace up --dry-run`), applied twice without harm (two plans are the same if
their identity is), and undone (`tailrace.state.record`). Making one changes nothing.
"""

from __future__ import annotations

import grp
import hashlib
import ipaddress
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

from tailrace.errors import Mistake
from tailrace.functions.runtime import Load, PriorityRange, Starter
from tailrace.functions.runtimes import RUNTIMES
from tailrace.kernel.tree import Tree
from tailrace.plan.planned import (
    TESTER_BUFFERS_MIB,
    Plan,
    PlannedBridge,
    PlannedChain,
    PlannedFunction,
    PlannedHealth,
    PlannedMember,
    PlannedMirror,
    PlannedPort,
    identity_of,
)
from tailrace.plan.usable import Usable, show_held, usable_cpus
from tailrace.process.process import real_time_refusal
from tailrace.resources.addresses import is_own
from tailrace.resources.interface import mtu_of
from tailrace.resources.ledger import exclusive_of_others, polled_on
from tailrace.resources.place import FUNCTION_PRIORITY, Placement, TooFewCpus, keep_places, place, with_shared
from tailrace.resources.topology import Cpu
from tailrace.resources.virtual_functions import Failover, FunctionRefused, PlannedVf, locate
from tailrace.spec.interface import passed_through
from tailrace.spec.model import MOST_REPLICAS, TESTER_ENDS, Function, Port, Spec, replica_name
from tailrace.spec.port import Device
from tailrace.spec.position import Document, Location, naming, raise_any
from tailrace.spec.source import SpecError
from tailrace.spec.tunnel import Tunnel
from tailrace.spec.units import show_size
from tailrace.spec.virtual_function import VirtualFunction

__all__ = [
    "TESTER_BUFFERS_MIB",
    "Plan",
    "PlannedChain",
    "PlannedFunction",
    "PlannedPort",
    "identity_of",
    "make_plan",
]


def make_plan(
    spec: Spec,
    *,
    huge: bool = True,
    cpus: Sequence[Cpu] | None = None,
    real_time: str | bool | None = True,
    memory: int | None = None,
    document: Document | None = None,
    keep: Placement | None = None,
    sized: Mapping[str, int] | None = None,
    folder: Path | None = None,
    own: Collection[Path] = (),
    tree: Tree | None = None,
) -> Plan:
    """The plan for a spec on this machine (or on `cpus`, with `memory` bytes). Raises Mistake if it cannot be had here.

    `real_time` True asks the kernel whether real-time priorities may be used; otherwise it is the refusal, or None.
    `document` knows where in the file a mistake is. `keep` is the placement of what is up: who stays is not moved.
    `sized` has the CPUs of functions (replicas) that are up and have more and fewer by themselves.
    `folder` is where relative paths begin; this process's own unless given. `own` are the state folders whose CPUs are
    not somebody else's. `tree` has the network cards; this machine's own unless given.
    """
    maker = _Maker(spec, document, folder or Path.cwd(), tree or Tree())
    used = maker.used_functions()
    maker.check_memory(used, memory)
    maker.check_interfaces(used)
    cores = spec.fabric.cores or []
    beside = polled_on() if cpus is None else None
    hosts = _addresses_of_the_host(spec, used) + _narrow_links(spec) if cpus is None else []
    usable = Usable(cpus) if cpus is not None else usable_cpus(own, named=cores, least=spec.fabric.number)
    maker.check_cpus(used, usable.allowed or usable.cpus)
    maker.check_cores(usable.allowed or usable.cpus)
    maker.check_workers(usable)
    cpus = usable.cpus
    ports = maker.ports(used)
    raise_any(maker.problems)
    ports, functions = maker.count_vfs(ports, maker.functions(used, sized or {}))
    raise_any(maker.problems)
    refusal = real_time_refusal(FUNCTION_PRIORITY) if real_time is True else real_time
    tester = any(port.owner in TESTER_ENDS for port in ports)
    workers = spec.fabric.number
    if keep is not None and (len(keep.workers) != workers or (cores and tuple(cores) != keep.workers)):
        keep = None
    placement = place_functions(
        functions, cpus, tester=tester, real_time=refusal is None, workers=workers, cores=cores, keep=keep
    )
    for each in functions:
        why = not_high(each, placement, usable.held, keep)
        if why is not None:
            maker.refuse(("functions", each.function, "latency"), why)
    raise_any(maker.problems)
    notes = [f"{name} is in no chain and is not started" for name in spec.functions if name not in used]
    notes += [f"{name}: {why}" for name in used for why in spec.functions[name].own_settings.warnings()]
    notes += _shared_prefixes(spec, used) + hosts
    notes += _without_frames(spec, used)
    notes += _silent_bonds(spec)
    notes += [*usable.notes, *placement.notes]
    if placement.oversubscribed and refusal is not None and any(each.started for each in functions):
        notes.append(
            f"real-time priorities are refused ({refusal}), so functions wait for the scheduler: "
            "run as root, or raise the limit with `ulimit -r`"
        )
    return Plan(
        fabric=spec.fabric.kind,
        backpressure_us=round(spec.fabric.backpressure * 1e6),
        idle=spec.fabric.policies,
        ports=tuple(ports),
        functions=tuple(functions),
        chains=tuple(maker.chains()),
        placement=placement,
        huge=huge,
        notes=tuple(notes),
        user=spec.fabric.user,
        pinned_by={name: spec.functions[name].pin for name in used if spec.functions[name].pinned},
        shared_out=tuple(sorted(name for name in used if spec.functions[name].shared_out)),
        ageing={name: int(spec.functions[name].ageing) for name in used},
        bridges=tuple(maker.bridges()),
        mirrors=tuple(
            PlannedMirror(name, each.port, each.chain, each.direction, each.to) for name, each in spec.mirrors.items()
        ),
        trace_every=spec.trace.every if spec.trace else None,
        pins=dict(spec.fabric.pins),
        restart=spec.fabric.restart,
        memory_mib=None if spec.fabric.memory is None else spec.fabric.memory >> 20,
        cores=tuple(cores),
        beside=beside,
    )


def place_functions(
    functions: Iterable[PlannedFunction],
    cpus: Sequence[Cpu],
    *,
    tester: bool,
    real_time: bool,
    workers: int = 1,
    cores: Sequence[int] = (),
    keep: Placement | None = None,
) -> Placement:
    """Where all run, by their latency levels; who is in the placement to `keep` stays. Raises Mistake."""
    started = [each for each in functions if each.started]
    alone = [each.name for each in started if each.latency != "normal"]
    several = {each.name: each.cpus for each in started if each.cpus > 1}
    if keep is not None:
        elastic = [each.name for each in started if each.elastic]
        high = [each.name for each in started if each.latency == "high"]
        placement = keep_places(
            keep, cpus, alone, tester=tester, real_time=real_time, several=several, elastic=elastic, high=high
        )
    else:
        placement = place(
            cpus, alone, tester=tester, real_time=real_time, workers=workers, cores=cores, several=several
        )
    return with_shared(placement, [each.name for each in started if each.latency == "normal"])


def not_high(
    function: PlannedFunction, placement: Placement, held: Mapping[int, str], keep: Placement | None
) -> str | None:
    """Why a function of latency high cannot be: it has its CPUs to itself; None if it can, or is of another level.
    `held`: who else polls on which CPUs; who has one of these by the placement to `keep` has it still."""
    if not function.started or function.latency != "high":
        return None
    at, was = placement.functions[function.name], keep.functions.get(function.name) if keep is not None else None
    if at.mode != "poll":
        also = f" ({show_held(held)})" if held else ""
        return (
            f"high takes a core of its own, and {placement.pollers} pollers have {placement.cores} here{also}; "
            "expected medium, or `latency: normal` of others, which then poll on none"
        )
    theirs = {cpu: held[cpu] for cpu in at.cores if cpu in held and (was is None or cpu not in was.cores)}
    if theirs:
        return f"high takes a core of its own, and {show_held(theirs)}; expected medium, or that this ends first"
    return None


def scaled(
    plan: Plan,
    name: str,
    count: int,
    *,
    remove: bool = False,
    cpus: Sequence[Cpu] | None = None,
    own: Collection[Path] = (),
) -> Plan:
    """A plan with so many active replicas of a function. What is too many drains or, with `remove`, goes. `cpus` and
    `own` as in make_plan(). Raises Mistake if that cannot be."""
    group = {_number(each): each for each in plan.functions if each.function == name}
    if not group:
        names = ", ".join(dict.fromkeys(each.function for each in plan.functions)) or "none"
        raise Mistake(f"{name!r} is no function that is up; there are: {names}")
    if not 1 <= count <= MOST_REPLICAS:
        raise Mistake(f"{count} replicas are not possible; expected 1 to {MOST_REPLICAS}")
    waits = next((each.name for each in group.values() if each.state == "standby"), None)
    if waits is not None:
        raise Mistake(f"{name}: {waits} is in standby; expected `replicas` in the spec to say which are, and `apply`")
    first = next(iter(group.values()))
    if count > 1 and first.network is not None:
        raise Mistake(f"{name}: replicas would have the same addresses; expected 1")
    ports = {each.name: each for each in plan.ports if each.name in first.ports}
    _check_shared_out(plan, name, first, ports.values())
    free = (number for number in range(1, MOST_REPLICAS + 1) if number not in group)
    new = {number: _copy(first, name, number) for number in list(free)[: max(count - len(group), 0)]}
    kept = sorted(group)[:count]
    of_it = [replace(group[number], state="active" if number in kept else "draining") for number in group]
    of_it = [each for each in of_it if not (remove and each.state == "draining")] + list(new.values())
    at = next(index for index, each in enumerate(plan.functions) if each.function == name)
    others = [each for each in plan.functions if each.function != name]
    functions = (*others[:at], *of_it, *others[at:])
    stay = {each.name for each in of_it}
    gone = {port for each in group.values() if each.name not in stay for port in each.ports}
    added = [
        replace(ports[old], name=port, owner=each.name)
        for each in new.values()
        for old, port in zip(first.ports, each.ports, strict=True)
    ]
    beside = polled_on() if cpus is None else None
    usable = Usable(cpus) if cpus is not None else usable_cpus(own, named=plan.cores, least=len(plan.placement.workers))
    placement = place_functions(
        functions,
        usable.cpus,
        tester=plan.placement.tester is not None,
        real_time=real_time_refusal(FUNCTION_PRIORITY) is None,
        keep=plan.placement,
    )
    for each in functions:
        why = not_high(each, placement, usable.held, plan.placement)
        if why is not None:
            raise Mistake(f"{each.name}: {why}")
    pinned, shared_out = dict(plan.pinned_by), set(plan.shared_out)
    if len(of_it) > 1 and name not in pinned:
        pinned[name] = "flow"
        shared_out.add(name)
    elif len(of_it) == 1 and name in shared_out:
        del pinned[name]
        shared_out.remove(name)
    return replace(
        plan,
        functions=functions,
        ports=tuple(each for each in plan.ports if each.name not in gone) + tuple(added),
        placement=placement,
        pinned_by=pinned,
        shared_out=tuple(sorted(shared_out)),
        beside=beside,
    )


def resized(
    plan: Plan,
    name: str,
    count: int,
    *,
    itself: bool = False,
    cpus: Sequence[Cpu] | None = None,
    own: Collection[Path] = (),
) -> Plan:
    """A plan in which a function, or each of its replicas, has so many CPUs; `itself`: only the replica of that name,
    which has them by its load. `cpus` and `own` as in make_plan(). Raises Mistake if that cannot be."""
    chosen = [each for each in plan.functions if name == each.name or (name == each.function and not itself)]
    if not chosen:
        names = ", ".join(each.name for each in plan.functions) or "none"
        raise Mistake(f"{name!r} is no function that is up; there are: {names}")
    for each in chosen:
        _check_elastic(each, count)
        if each.automatic and not itself:
            raise Mistake(
                f"{each.name} has its CPUs by its load; expected `automatic: false` in its spec, or another least "
                f"(`functions: {{{each.function}: {{cpus: {{start: {count}}}}}}}`) by `tailrace apply`"
            )
    functions = tuple(replace(each, cpus=count) if each in chosen else each for each in plan.functions)
    beside = polled_on() if cpus is None else None
    usable = Usable(cpus) if cpus is not None else usable_cpus(own, named=plan.cores, least=len(plan.placement.workers))
    try:
        placement = place_functions(
            functions,
            usable.cpus,
            tester=plan.placement.tester is not None,
            real_time=False,  # that is of new ones, of which there is none
            keep=plan.placement,
        )
    except TooFewCpus as error:
        raise TooFewCpus(f"{error}; {'; '.join(_holders(plan.placement, own))}") from None
    for each in chosen:
        why = not_high(each, placement, usable.held, plan.placement)
        if why is not None:
            raise TooFewCpus(f"{each.name}: {why}")
    return replace(plan, functions=functions, placement=placement, beside=beside)


def _check_elastic(function: PlannedFunction, count: int) -> None:
    """Raises Mistake unless a function can have so many CPUs while it runs."""
    name, runtime = function.name, RUNTIMES[function.runs]
    if not function.started or (function.kind is None and runtime.threads):
        raise Mistake(
            f"{name} is somebody else's, and Tailrace does not know its threads; expected one that has a kind"
        )
    why = runtime.refuses_cpus(function.kind, 1, 2)
    if why is None and count < function.most_cpus:
        why = runtime.refuses_fewer(function.latency, stacked=function.stacked)
    if why is not None:
        raise Mistake(f"{name} cannot have more or fewer CPUs: {why}")
    if not 1 <= count <= function.most_cpus:
        lacks = "queues" if runtime.threads else "virtual CPUs"
        cure = f"`functions: {{{function.function}: {{cpus: {{most: {count}}}}}}}` gives it the {lacks} for more"
        raise Mistake(
            f"{name}: {count} CPUs are not possible; expected 1 to {function.most_cpus}"
            + (f" ({cure}, and needs a new instance)" if count > function.most_cpus else "")
        )


def _holders(placement: Placement, own: Collection[Path]) -> list[str]:
    """Who has each CPU that is polled on."""
    has = dict.fromkeys(placement.workers, "the switch")
    if placement.tester is not None:
        has.setdefault(placement.tester.core, "the tester")
    for name, at in placement.functions.items():
        has |= {core: name for core in at.cores if core not in has}
    has |= {core: claim.words for core, claim in exclusive_of_others(own).items() if core not in has}
    return [f"CPU {core} is held by {who}" for core, who in sorted(has.items())]


def _number(function: PlannedFunction) -> int:
    """Which replica it is: 1 for fw, 2 for fw-2."""
    return int(function.name.removeprefix(function.function).removeprefix("-") or 1)


def _copy(first: PlannedFunction, name: str, number: int) -> PlannedFunction:
    """Another replica of a function."""
    made = replica_name(name, number)
    ports = tuple(f"{made}.{port.rpartition('.')[2]}" for port in first.ports)
    return replace(first, name=made, ports=ports, state="active")


def _check_shared_out(plan: Plan, name: str, first: PlannedFunction, ports: Iterable[PlannedPort]) -> None:
    """Only chains share traffic out among replicas. Raises Mistake where something else uses a port of the function."""
    used = {member.port for bridge in plan.bridges for member in bridge.members}
    used |= {end for chain in plan.chains for end in (chain.start, chain.end)}
    used |= {port for mirror in plan.mirrors for port in (mirror.port, mirror.to) if port}
    taken = sorted(used.intersection(first.ports))
    if taken:
        raise Mistake(f"{name}: {taken[0]} is in a bridge, at the end of a chain or in a mirror; expected only chains")
    if any(port.path is not None for port in ports):
        raise Mistake(f"{name}: its ports have paths of their own, which another replica cannot have too")


def _shared_prefixes(spec: Spec, used: Sequence[str]) -> list[str]:
    """Functions that stand for the same addresses: allowed, as their networks may be apart."""
    own = {
        name: [ipaddress.ip_network(each) for each in spec.functions[name].own_settings.stands_for()] for name in used
    }

    def shown(prefix: ipaddress.IPv4Network | ipaddress.IPv6Network) -> str:
        single = prefix.prefixlen == prefix.max_prefixlen
        return str(prefix.network_address) if single else f"addresses of {prefix}"

    return [
        f"{one} and {other} both stand for {shown(least)}: what is sent there reaches one of them only, unless their "
        "networks are apart"
        for one, other in combinations(own, 2)
        for pair in product(own[one], own[other])
        for wide, least in [sorted(pair, key=lambda each: each.prefixlen)]
        if wide.version == least.version and least.network_address in wide
    ]


def _addresses_of_the_host(spec: Spec, used: Sequence[str]) -> list[str]:
    """The same of functions and this host, whose kernel sees the frames of the switch's interfaces, too."""
    return [
        f"{name} stands for {prefix.network_address}, which is an address of this host too: both answer there, unless "
        "their networks are apart; give one of them another address"
        for name in used
        for prefix in map(ipaddress.ip_network, spec.functions[name].own_settings.stands_for())
        if prefix.prefixlen == prefix.max_prefixlen and is_own(str(prefix.network_address))
    ]


def _narrow_links(spec: Spec) -> list[str]:
    """Tunnels whose packets may be longer than an interface carries that they leave by."""
    found = []
    for chain in spec.chains.values():
        last, end = chain.through[-1:], chain.path[-1]
        tunnel = spec.functions[last[0]].own_settings if last else None
        device = end.device or (spec.ports[end.name].device if end.name in spec.ports else None)
        if not isinstance(tunnel, Tunnel) or device is None:
            continue
        for uri in device.identities:
            scheme, _, name = uri.partition(":")
            mtu = mtu_of(name) if scheme == "if" else None
            if mtu is not None and mtu < tunnel.mtu:
                found.append(
                    f"{last[0]}: its mtu is {tunnel.mtu}, and the interface {name} carries {mtu}: longer packets are "
                    f"lost there; give the tunnel `mtu: {mtu}`, or `ip link set {name} mtu {tunnel.mtu}`"
                )
    return found


def _without_frames(spec: Spec, used: Sequence[str]) -> list[str]:
    """Functions with CPUs that forward nothing."""
    known = [(name, spec.functions[name]) for name in used]
    found = [
        (name, RUNTIMES[each.runs].cpus_without_frames(each.kind, each.driver, each.cpus.most)) for name, each in known
    ]
    return [f"{name}: {why}" for name, why in found if why is not None]


def _silent_bonds(spec: Spec) -> list[str]:
    """Bonds that never carry a frame: who receives from one takes LACP's frames, too."""
    led = {hop.name for chain in spec.chains.values() for hop in chain.path}
    led |= {port for bridge in spec.bridges.values() for port in bridge.ports}
    return [
        f"{name} is in no chain and no bridge, so nothing hears the LACP of its other end: no frame leaves by it"
        for name, port in spec.ports.items()
        if port.device is not None
        and port.device.bond is not None
        and port.device.bond.mode == "lacp"
        and name not in led
    ]


class _Maker:
    """The parts of a plan, one by one."""

    def __init__(self, spec: Spec, document: Document | None, folder: Path, tree: Tree) -> None:
        self.spec = spec
        self.tree = tree
        self.document = document
        self.folder = folder
        self.device_names = _device_names(spec)
        self.problems: list[SpecError] = []
        """What cannot be on this machine, each with its place in the file."""

    def refuse(self, location: Location, message: str) -> None:
        """Notes what cannot be; without a file there is nothing to note it with. Raises Mistake then."""
        if self.document is None:
            raise Mistake(naming(location, message))
        self.problems.append(self.document.mistake(location, message))

    def used_functions(self) -> list[str]:
        """The functions in a chain or a bridge, in the order in which packets meet them first."""
        used: dict[str, None] = {}
        for chain in self.spec.chains.values():
            owners = (self._owner(str(hop)) or str(hop) for hop in chain.path)
            used.update(dict.fromkeys(owner for owner in owners if owner in self.spec.functions))
        for bridge in self.spec.bridges.values():
            used.update(dict.fromkeys(owner for port in bridge.ports if (owner := self._owner(port))))
        return list(used)

    def _owner(self, port: str) -> str | None:
        """The function that has a port."""
        owner = port.rpartition(".")[0]
        return owner if owner in self.spec.functions else None

    def check_memory(self, used: Sequence[str], memory: int | None) -> None:
        """A limit above what there is limits nothing: the machine would run out first."""
        total = memory if memory is not None else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        for name in used:
            size = self.spec.functions[name].memory
            if size > total:
                self.refuse(
                    ("functions", name, "memory"),
                    f"{show_size(size)} is more than this machine has ({total >> 20}MiB); expected less",
                )
            function, runtime = self.spec.functions[name], RUNTIMES[self.spec.functions[name].runs]
            why = runtime.refuses_memory(size, function.kind, function.driver, function.tables_mib)
            if why is not None:
                self.refuse(("functions", name, "memory"), why)
        for word in (each.name for each in RUNTIMES.values() if each.reserves):
            own = {name: each for name, each in self.spec.functions.items() if name in used and each.runs == word}
            whole = sum(each.memory * len(each.replicas) for each in own.values())
            if whole > total and not self.problems:
                self.refuse(
                    ("functions", next(reversed(own)), "memory"),
                    f"all {word}s together have {show_size(whole)}, and the host {total >> 20}MiB; expected less",
                )

    def check_cpus(self, used: Sequence[str], cpus: Sequence[Cpu]) -> None:
        """A function has as many CPUs as what it lives in, and its kind, can use, and no more than there are."""
        for name in used:
            function = self.spec.functions[name]
            start, most = function.cpus.start, function.cpus.most
            runtime = RUNTIMES[function.runs]
            why = runtime.refuses_cpus(function.kind, start, most)
            if why is None and start < most:
                why = runtime.refuses_fewer(function.latency, stacked=function.cpus.stacked)
            if why is None and function.cpus.automatic and (said := _refuses_load(function)):
                why = f"automatic: {said}"
            if why is None and start > len(cpus):
                why = f"{start} CPUs are more than the {len(cpus)} that may be used; expected no more than these"
            if why is not None:
                self.refuse(("functions", name, "cpus"), why)

    def check_interfaces(self, used: Sequence[str]) -> None:
        """A function's ports are such as what it lives in can have on this machine."""
        for name in used:
            function = self.spec.functions[name]
            runtime = RUNTIMES[function.runs]
            if not isinstance(runtime, Starter):
                continue
            for interface in function.interface:
                why = runtime.refuses_interface(interface)
                if why is not None:
                    self.refuse(("functions", name, "interface"), why)

    def check_cores(self, cpus: Sequence[Cpu]) -> None:
        """Workers poll, so each has a core that is there, may be used, and is nobody else's."""
        fabric = self.spec.fabric
        allowed = sorted(cpu.number for cpu in cpus)
        listed = ", ".join(map(str, allowed)) or "none"
        for index, core in enumerate(fabric.cores or []):
            if core not in allowed:
                self.refuse(
                    ("fabric", "cores", index),
                    f"core {core} is not there, is offline or may not be used; expected some of {listed}",
                )
        physical = len({cpu.core for cpu in cpus})
        if fabric.workers is not None and fabric.workers > physical:
            self.refuse(
                ("fabric", "workers"),
                f"{fabric.workers} workers are more than the {physical} core(s) that may be used ({listed}); "
                f"expected at most {physical}",
            )

    def check_workers(self, usable: Usable) -> None:
        """There is a core for each worker beside those that others have to themselves."""
        fabric = self.spec.fabric
        cores = {cpu.core for cpu in usable.cpus}
        held = {cpu.number: usable.held[cpu.number] for cpu in usable.allowed if cpu.core not in cores}
        if not fabric.cores and held and len(cores) < fabric.number and not self.problems:
            self.refuse(
                ("fabric", "workers"),
                f"{fabric.number} workers have no core each, as nobody else is put on one of latency high: "
                f"{show_held(held)}; expected {len(cores)} at most, or that this ends first",
            )

    # --- ports -----------------------------------------------------------------------------------------------------

    def ports(self, used: Sequence[str]) -> list[PlannedPort]:
        """Those of chains in their order, then those of bridges and mirrors, then the rest."""
        found: dict[str, PlannedPort] = {}

        def add(port: PlannedPort) -> None:
            have = found.get(port.name)
            if have is None or port.queues > have.queues:
                found[port.name] = port

        def add_function(name: str) -> None:
            for number in self.spec.functions[name].replicas:
                replica = replica_name(name, number)
                function = self.spec.functions[name]
                for port, settings in zip(function.port_names(replica), function.port_names(name), strict=True):
                    add(self._port(port, replica, settings))

        for chain_name, chain in self.spec.chains.items():
            for index, hop in enumerate(chain.path):
                function = self._owner(str(hop)) or str(hop)
                if hop.device is None and function in used:
                    add_function(function)
                elif hop.device is not None and self.spec.device_port(hop.device.uri) is None:
                    name = self.device_names[hop.device.uri]
                    self._stands_for(name, chain_name, index)
                    uri, vf = self._device(name, hop.device)
                    add(PlannedPort(name, uri, uri, hop.queues, vf=vf))
                else:
                    add(self._named(self._end(str(hop))))
        for bridge in self.spec.bridges.values():
            for name in bridge.ports:
                owner = self._owner(name)
                if owner is not None:
                    add_function(owner)
                else:
                    add(self._named(name))
        for mirror in self.spec.mirrors.values():
            add(self._named(mirror.to))
        for name in self.spec.ports:
            if "." not in name:
                add(self._named(name))
        return list(found.values())

    def count_vfs(
        self, ports: list[PlannedPort], functions: list[PlannedFunction]
    ) -> tuple[list[PlannedPort], list[PlannedFunction]]:
        """The same, where each virtual function says how many its card needs for all. A device that two have is
        noted."""
        vfs = [port.vf for port in ports if port.vf is not None] + [vf for each in functions for vf in each.vfs]
        vfs += [one.vf for each in functions for one in each.failover if one.vf is not None]
        if not vfs:
            return ports, functions
        need: dict[str, int] = {}
        for vf in vfs:
            need[vf.card] = max(need.get(vf.card, 0), vf.number + 1, vf.functions)
        has: dict[str, str] = {}
        users = [(("ports", port.name), uri) for port in ports for uri in port.devices]
        users += [
            (("functions", each.function), uri) for each in functions for uri in each.interfaces if passed_through(uri)
        ]
        users += [
            (("functions", each.function), f"pci:{one.vf.address}")
            for each in functions
            for one in each.failover
            if one.vf is not None
        ]
        for at, uri in users:
            if uri in has:
                self.refuse(at, f"{uri} is {has[uri]!r}'s already; expected each device once")
            has.setdefault(uri, at[1])

        def counted(vf: PlannedVf) -> PlannedVf:
            return replace(vf, functions=need[vf.card])

        return (
            [port if port.vf is None else replace(port, vf=counted(port.vf)) for port in ports],
            [
                replace(
                    each,
                    vfs=tuple(map(counted, each.vfs)),
                    failover=tuple(
                        one if one.vf is None else replace(one, vf=counted(one.vf)) for one in each.failover
                    ),
                )
                for each in functions
            ],
        )

    def _stands_for(self, port: str, chain: str, index: int) -> None:
        """Notes where in the file the device of a port stands."""
        if self.document is None:
            return
        forms = (("chains", chain, index), ("chains", chain, "path", index))
        self.document.stand_ins.setdefault(port, next((at for at in forms if at in self.document.values), forms[0]))

    def _end(self, text: str) -> str:
        """The name of the port that a chain's end is."""
        return self.spec.device_port(text) or self.device_names.get(text, text)

    def _named(self, name: str) -> PlannedPort:
        return self._port(name, name, name)

    def _port(self, name: str, owner: str, settings: str) -> PlannedPort:
        port = self.spec.ports.get(settings, Port())
        uri, vf = self._device(name, port.device) if port.device else (None, None)
        function = self.spec.functions.get(settings.rpartition(".")[0])
        runtime = RUNTIMES[function.runs] if function is not None else None
        own, behind = None, PlannedPort.behind
        if function is not None and isinstance(runtime, Starter):
            behind = runtime.behind(function.interfaces[int(settings.rpartition(".")[2])])
            own = runtime.shared_bytes(_memory(function), function.tables_mib) if behind == "socket" else None
        return PlannedPort(
            name,
            uri or owner,
            uri,
            self._queues(function, port),
            path=port.path,
            mode="client" if runtime is not None and runtime.listens else port.mode,
            socket_mode=_socket_mode(port),
            socket_group=self._group(settings, port.socket.group),
            offloads=port.offloads,
            memory_bytes=port.memory or own,
            max_bps=port.rate.max,
            max_pps=port.rate.packets,
            to_bps=port.rate.to.max,
            to_pps=port.rate.to.packets,
            to_latency=port.rate.to.latency,
            share=port.rate.share,
            waits=function is not None and function.on_failure == "block",
            behind=behind,
            spread=function is not None and self._threads(function) > 1,
            unread=function is not None and _load(function) == "rings",
            vf=vf,
        )

    def _device(self, port: str, device: Device) -> tuple[str, PlannedVf | None]:
        """The URI that the switch opens, and the virtual function that it is of. One that cannot be is noted."""
        if device.vf is None:
            return _whole(device.uri, self.folder), None
        at = self.document.stand_ins.get(port, ("ports", port)) if self.document else ("ports", port)
        found = self._vf(at, device.vf)
        return (device.uri, None) if found is None else (f"pci:{found.address}", found)

    def _vf(self, at: Location, wanted: VirtualFunction) -> PlannedVf | None:
        """None if it cannot be, which is noted."""
        try:
            card, address = locate(self.tree, wanted.of, wanted.number)
        except FunctionRefused as error:
            self.refuse(at, str(error))
            return None
        return PlannedVf(wanted.of, card, wanted.number, address, wanted.functions or 0, wanted.settings)

    def _interfaces(self, name: str, interfaces: Sequence[str]) -> tuple[tuple[str, ...], tuple[PlannedVf, ...]]:
        """What the guest of a function sees, with the addresses of virtual functions, and these."""
        found: dict[str, PlannedVf] = {}
        for each in interfaces:
            if each.startswith("vf:"):
                vf = self._vf(("functions", name, "interface"), VirtualFunction.of_uri(each))
                found |= {each: vf} if vf is not None else {}
        return (
            tuple(f"pci:{found[each].address}" if each in found else each for each in interfaces),
            tuple(found.values()),
        )

    def _failover(self, name: str, function: Function) -> tuple[Failover, ...]:
        found = []
        for port, each in function.failover.items():
            wanted = each.function
            vf = None if wanted is None else self._vf(("functions", name, "failover", str(port)), wanted)
            found.append(Failover(port, each.mac, vf and replace(vf, comes_and_goes=True)))
        return tuple(found)

    def _queues(self, function: Function | None, port: Port) -> int:
        return max(port.queues, self._threads(function) if function is not None else 1)

    def _threads(self, function: Function) -> int:
        """The most threads that it can have, which have a queue each."""
        own = function.kind is not None and RUNTIMES[function.runs].threads
        return function.cpus.most if own else 1

    def _group(self, port: str, name: str | None) -> str | None:
        """The group of a port's socket. Raises Mistake if there is none of that name."""
        if name is not None:
            try:
                grp.getgrnam(name)
            except KeyError:
                self.refuse(
                    ("ports", port, "socket", "group"),
                    f"no group {name!r} on this machine; expected one that there is, or make it: `groupadd {name}`",
                )
        return name

    # --- what is between ports -------------------------------------------------------------------------------------

    def functions(self, used: Sequence[str], sized: Mapping[str, int]) -> list[PlannedFunction]:
        found = []
        for name in used:
            function = self.spec.functions[name]
            queues = [self._queues(function, self.spec.ports.get(port, Port())) for port in function.port_names(name)]
            interfaces, vfs = self._interfaces(name, function.interfaces)
            failover = self._failover(name, function)
            for index, (number, state) in enumerate(function.replicas.items()):
                replica = replica_name(name, number)
                cpus = function.cpus
                has = sized.get(replica, cpus.start) if cpus.automatic else cpus.start
                found.append(
                    PlannedFunction(
                        replica,
                        function.kind,
                        function.runs,
                        name,
                        tuple(function.port_names(replica)),
                        _memory(function),
                        tuple(queues),
                        min(max(has, cpus.start), cpus.most),
                        state,
                        tuple(_setting(each, self.folder) for each in function.settings(index)),
                        function.restart,
                        function.on_failure,
                        str(self.folder / function.image) if function.disk and function.image else function.image,
                        latency=function.latency,
                        interfaces=interfaces,
                        driver=function.driver,
                        domain=function.domain,
                        health=_health(function),
                        tables_mib=function.tables_mib,
                        network=function.network,
                        told=function.own_settings.told(),
                        most_cpus=cpus.most,
                        automatic=cpus.automatic,
                        least_cpus=cpus.start,
                        busy=cpus.busy,
                        load=_load(function),
                        stacked=cpus.stacked,
                        vfs=vfs,
                        failover=failover,
                        migratable=function.migratable,
                        connections=function.connections,
                        arrives=function.arrives,
                        page_kib=function.page_kib,
                        priority=priority_of(function),
                    )
                )
        return found

    def chains(self) -> list[PlannedChain]:
        """Those with a match first: a chain without one takes what is left."""
        planned = [
            PlannedChain(
                name,
                self._end(chain.ends[0]),
                tuple(chain.through),
                self._end(chain.ends[1]),
                set(chain.ends) == set(TESTER_ENDS),
                tuple(match.as_rule() for match in chain.match),
                chain.priority,
            )
            for name, chain in self.spec.chains.items()
        ]
        return sorted(planned, key=lambda chain: not chain.match)

    def bridges(self) -> list[PlannedBridge]:
        return [
            PlannedBridge(
                name,
                tuple(
                    PlannedMember(port, member.access, tuple(member.trunk) if member.trunk else None, member.native)
                    for port, member in bridge.ports.items()
                ),
                bridge.ageing,
                bridge.macs,
                bridge.flood,
            )
            for name, bridge in self.spec.bridges.items()
        ]


def _setting(setting: str, folder: Path) -> str:
    """A setting of a function; one that names a file has its whole path."""
    name, _, value = setting.partition("=")
    return f"{name}={folder / value}" if name == "user-data" else setting


def priority_of(function: Function) -> PriorityRange | None:
    """Between which bounds the priority of its virtual CPUs follows what it runs; None: it stays."""
    said = function.priority
    return PriorityRange(said.least, said.most, tuple(said.tasks), round(said.within * 1e6)) if said else None


def _memory(function: Function) -> int:
    """The bytes of a function's memory. All of a machine's is in huge pages, of which QEMU has no part."""
    page = function.page_kib << 10
    return -(-function.memory // page) * page if RUNTIMES[function.runs].reserves else function.memory


def _load(function: Function) -> Load | None:
    """How it is read how busy it is; None: it is not, as it has its CPUs by hand."""
    if not function.cpus.automatic:
        return None
    return RUNTIMES[function.runs].tells_load(function.kind, function.driver, polls=function.cpus.polls)


def _refuses_load(function: Function) -> str | None:
    """Why it cannot have its CPUs by its load; None if it can."""
    cpus, interfaces = function.cpus, function.interfaces
    return RUNTIMES[function.runs].refuses_automatic(function.kind, function.driver, interfaces, polls=cpus.polls)


def _health(function: Function) -> PlannedHealth | None:
    said = function.health
    return PlannedHealth(tuple(said.command or ()), said.every, said.timeout, said.failures) if said else None


def _whole(uri: str, folder: Path) -> str:
    """A device's URI with whole paths of its capture files: the switch has a working directory of its own."""
    scheme, _, rest = uri.partition(":")
    paths = rest.split(",")
    if scheme != "pcap" or len(paths) > 2:
        return uri
    return f"{scheme}:{','.join(str(folder / path) if path else path for path in paths)}"


def _socket_mode(port: Port) -> str | None:
    """Of a socket elsewhere than in Tailrace's own folder, which nobody can enter, not everybody may be a guest."""
    if port.socket.mode is not None:
        return f"{int(port.socket.mode, 8):04o}"
    return "0660" if port.path is not None and port.mode == "server" else None


def device_port(uri: str) -> str:
    """A port's name for a device: its URI, without what a name cannot hold."""
    scheme, _, rest = uri.partition(":")
    return f"{scheme}-" + "".join(each if each.isalnum() or each in "-." else "-" for each in rest)[:40]


def _device_names(spec: Spec) -> dict[str, str]:
    """The ports of devices that stand in chains, by URI: each its own, also where two URIs make one name."""
    taken = set(spec.ports)
    for name, function in spec.functions.items():
        for number in function.replicas:
            taken.update(function.port_names(replica_name(name, number)))
    found: dict[str, str] = {}
    for chain in spec.chains.values():
        for hop in chain.path:
            if hop.device is None or hop.device.uri in found or spec.device_port(hop.device.uri) is not None:
                continue
            uri = hop.device.uri
            name = device_port(uri)
            if name in taken:
                # Of the URI alone, so that it stays; cut, so that it is no longer than others are.
                name = f"{name[:37]}-{hashlib.sha256(uri.encode()).hexdigest()[:8]}"
            taken.add(name)
            found[uri] = name
    return found
