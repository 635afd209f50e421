"""A plan as data: what will be on this machine, port by port and process by process, and where it runs.

Made from a spec by `tailrace.plan.make`. It can be printed, compared, kept in a file and read back (`Plan.read`).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from tailrace.errors import Mistake
from tailrace.functions.runtime import Behind, Load, PriorityRange
from tailrace.functions.runtimes import STARTERS
from tailrace.plan.capabilities import capabilities
from tailrace.resources.hugepages import PAGE_KIB, PAGE_MIB, Wanted, size_words
from tailrace.resources.ledger import Polled
from tailrace.resources.place import Place, Placement
from tailrace.resources.virtual_functions import Failover, PlannedVf
from tailrace.spec.kind import Network
from tailrace.spec.match import NAMES
from tailrace.spec.model import TESTER_ENDS
from tailrace.spec.port import members_of

#: DPDK's memory of the tester: packet buffers and rings.
TESTER_BUFFERS_MIB = 256
OWN_IMAGE = "Tailrace's own"


@dataclass(frozen=True)
class PlannedPort:
    """A port of the fabric, and who is behind it."""

    name: str
    owner: str
    """`tester.a`, a function's process, the port's own name, or a device's URI."""
    device: str | None = None
    queues: int = 1
    path: str | None = None
    """A guest's socket; None: in Tailrace's own folder (`tailrace.switch.config.socket_of`)."""
    mode: Literal["server", "client"] = "server"
    socket_mode: str | None = None
    socket_group: str | None = None
    offloads: bool = True
    memory_bytes: int | None = None
    """The most that its guest may share; None: as much as the switch maps for any."""
    max_bps: int | None = None
    max_pps: int | None = None
    to_bps: int | None = None
    """The most that it is sent, where `max_bps` is what it sends."""
    to_pps: int | None = None
    to_latency: float | None = None
    """Seconds that a frame may wait for that in the switch; None: the switch's own default."""
    share: int = 1
    waits: bool = False
    """Frames wait for it while nobody is attached."""
    spread: bool = False
    """Its queues have flows, whoever sends them: a thread of the function each, at the most."""
    unread: bool = False
    """It is counted how often frames wait in its guest's rings."""
    behind: Behind = "socket"
    """Of a function's port: what the switch opens. An interface has its name from `tailrace.switch.config`."""

    vf: PlannedVf | None = None
    """The virtual function that `device` is: it is made and bound before, and given back afterwards."""

    @property
    def guest(self) -> bool:
        return self.opens is None

    @property
    def devices(self) -> tuple[str, ...]:
        """The URIs of the devices that it is on: several are a bond."""
        return members_of(self.device) if self.device is not None else ()

    @property
    def opens(self) -> str | None:
        """The URI of the device that the switch opens, without the name of one that is to be made; None: a socket."""
        return "if:" if self.behind == "interface" else self.device


@dataclass(frozen=True)
class PlannedHealth:
    """How it is found out whether a function is well; times in seconds."""

    command: tuple[str, ...]
    """What is run inside; empty: whether it takes the frames that wait for it."""
    every: float
    timeout: float
    failures: int


@dataclass(frozen=True)
class PlannedFunction:
    """One of a function: its only one, or one of its replicas."""

    name: str
    kind: str | None
    """What it does; None where Tailrace does not know."""
    runs: str
    """Where it lives (`tailrace.functions.runtimes`)."""
    function: str
    ports: tuple[str, ...]
    """In order; chains lead from the first to the second."""
    memory_bytes: int
    queues: tuple[int, ...] = ()
    """Of each port."""
    cpus: int = 1
    state: Literal["active", "draining", "standby"] = "active"
    settings: tuple[str, ...] = ()
    """What its program is given, as NAME=VALUE."""
    restart: Literal["always", "on-failure", "never"] = "on-failure"
    on_failure: Literal["drop", "block", "bypass"] = "drop"
    image: str | None = None
    """What it starts from; None: Tailrace's own."""
    latency: Literal["normal", "medium", "high"] = "medium"
    interfaces: tuple[str, ...] = ()
    """What its guest sees as each of its ports; pci:ADDRESS is none of the switch's."""
    driver: Literal["dpdk", "linux"] = "dpdk"
    """Whose drivers these have."""
    domain: str | None = None
    """Of a machine: what is merged into libvirt's domain."""
    health: PlannedHealth | None = None
    tables_mib: int = 0
    """What its program's tables take of DPDK's memory, beside packet buffers."""
    network: Network | None = None
    """The network namespace that it lives in; None: it has none of its own."""
    told: dict[str, Any] | None = None
    """What its program is told when it runs, and again whenever that changes; None: nothing."""
    most_cpus: int = 1
    """How many CPUs it can have."""
    automatic: bool = False
    """It has more and fewer by itself."""
    least_cpus: int = 1
    """How few it has then."""
    busy: float = 0.75
    """For how much of their time its CPUs may be at work before it has more."""
    load: Load | None = None
    """How it is read for how much of it they are; None: it is not."""
    stacked: bool = False
    """Of a machine: its virtual CPUs may share CPUs at any latency level."""
    vfs: tuple[PlannedVf, ...] = ()
    """The virtual functions among its interfaces."""
    failover: tuple[Failover, ...] = ()
    """Of a machine: the virtual functions in front of its ports."""
    migratable: bool = True
    """Of a machine: it may move to another node."""
    connections: int = 1
    """Of a machine: by how many its memory is sent then."""
    arrives: bool = False
    """Of a machine: it is not started here, and comes from another node."""
    page_kib: int = PAGE_KIB
    """The size of its huge pages."""
    priority: PriorityRange | None = None
    """Of a machine: that of its virtual CPUs follows what its guest runs."""

    @property
    def started(self) -> bool:
        """Whether Tailrace starts it."""
        return self.runs in STARTERS

    @property
    def elastic(self) -> bool:
        """Whether it can have more or fewer CPUs while it runs."""
        if self.most_cpus == 1 or not self.started or not STARTERS[self.runs].elastic:
            return False
        runtime = STARTERS[self.runs]
        return not (runtime.threads and self.kind is None) and runtime.refuses_fewer(self.latency, stacked=True) is None

    def runs_on(self, place: Place) -> list[int]:
        """The CPU of each of its threads, or of its virtual CPUs."""
        return STARTERS[self.runs].cpus_of(place, self.cpus, self.most_cpus)

    @property
    def failover_ports(self) -> tuple[tuple[int, str], ...]:
        """The ports in front of which there may be a virtual function, with the address of both."""
        return tuple((each.port, each.mac) for each in self.failover)

    @property
    def what(self) -> str:
        """What it does, or what it starts from."""
        return self.kind or f"image {self.image}"

    @property
    def fixed(self) -> tuple[Any, ...]:
        """What cannot change while it runs."""
        return (
            self.kind,
            self.runs,
            self.image,
            self.memory_bytes,
            self.page_kib,
            self.queues,
            self.most_cpus,
            None if self.elastic else self.cpus,
            self.stacked,
            self.settings,
            self.latency,
            self.interfaces,
            self.failover_ports,
            self.driver,
            self.domain,
            self.network,
            self.priority,
        )


@dataclass(frozen=True)
class PlannedChain:
    """A chain as the fabric is given it."""

    name: str
    start: str
    through: tuple[str, ...]
    end: str
    tested: bool
    """Runs from one end of the tester to the other."""
    match: tuple[dict[str, Any], ...] = ()
    priority: int = 0

    @property
    def functions(self) -> tuple[str, ...]:
        return self.through

    @property
    def ports(self) -> tuple[str, ...]:
        """The ports it passes, where each function has one replica."""
        return (self.start, *(f"{name}.{side}" for name in self.through for side in (0, 1)), self.end)


@dataclass(frozen=True)
class PlannedMember:
    """A port on a bridge."""

    port: str
    access: int | None = None
    trunk: tuple[int, ...] | None = None
    native: int | None = None


@dataclass(frozen=True)
class PlannedBridge:
    name: str
    members: tuple[PlannedMember, ...]
    ageing: float
    macs: int
    flood: int


@dataclass(frozen=True)
class PlannedMirror:
    name: str
    port: str | None
    chain: str | None
    direction: str
    to: str


@dataclass(frozen=True)
class Plan:
    """Everything that will be started, and where."""

    fabric: str
    backpressure_us: int
    idle: str
    ports: tuple[PlannedPort, ...]
    functions: tuple[PlannedFunction, ...]
    chains: tuple[PlannedChain, ...]
    placement: Placement
    huge: bool
    notes: tuple[str, ...]
    user: str | None = None
    pinned_by: dict[str, str] = field(default_factory=dict)
    """What keeps packets with one replica, for each function whose flows are known."""
    shared_out: tuple[str, ...] = ()
    """Those of them, sorted, that are so only because they have several replicas: the spec asks for no `pin`."""
    ageing: dict[str, int] = field(default_factory=dict)
    """For how many seconds a flow that is not seen is known, for each function."""
    bridges: tuple[PlannedBridge, ...] = ()
    mirrors: tuple[PlannedMirror, ...] = ()
    trace_every: int | None = None
    pins: dict[str, int] = field(default_factory=dict)
    memory_mib: int | None = None
    """The switch's memory for packet buffers of devices; None: what they need, and some to spare."""
    restart: Literal["on-failure", "never"] = "on-failure"
    """Whether the switch is started again when it has ended by itself."""
    cores: tuple[int, ...] = ()
    """The cores that the spec names for the switch's workers; none: they were chosen here."""
    beside: Polled | None = field(default=None, compare=False)
    """What was polled on when it was made; None: it was kept, and has its CPUs whoever has claimed them since."""

    @property
    def vfs(self) -> dict[str, PlannedVf]:
        """The virtual functions that are made for it, by who has them, as a spec names it."""
        found = {f"ports.{port.name}": port.vf for port in self.ports if port.vf is not None}
        for each in self.functions:
            found |= {f"functions.{each.function}.interface.{vf.name}": vf for vf in each.vfs}
            found |= {
                f"functions.{each.function}.failover.{one.port}": one.vf for one in each.failover if one.vf is not None
            }
        return found

    @property
    def tester(self) -> bool:
        """Whether the tester has a place in it."""
        return any(port.owner in TESTER_ENDS for port in self.ports)

    @property
    def started(self) -> list[PlannedFunction]:
        """The functions that Tailrace starts."""
        return [each for each in self.functions if each.started]

    def function(self, name: str) -> PlannedFunction:
        """The function (or replica) of a name."""
        return next(each for each in self.functions if each.name == name)

    def guests(self, function: PlannedFunction) -> list[PlannedPort]:
        """The ports of a function that are vhost-user sockets."""
        return [port for port in self.ports if port.name in function.ports and port.guest]

    @property
    def where(self) -> str | None:
        """Where its functions live, in words; None where all live where they usually do, or are somebody else's."""
        if all(STARTERS[each.runs].usual for each in self.started):
            return None
        return ", ".join(f"{each.name} runs in a {each.runs}" for each in self.started)

    @property
    def pages(self) -> Wanted:
        """Huge pages that must be free when it is applied, the tester's included."""
        found = Counter(self.pages_of(each.name for each in self.started))
        if self.huge and self.tester and self.placement.tester is not None:
            found[self.placement.tester.core, PAGE_KIB] += TESTER_BUFFERS_MIB // PAGE_MIB
        return found

    def pages_of(self, functions: Iterable[str]) -> Wanted:
        """Huge pages that these functions need, which Tailrace starts."""
        found: Counter[tuple[int, int]] = Counter()
        wanted = set(functions) if self.huge else set()
        for each in self.started:
            if each.name in wanted:
                found[self.placement.functions[each.name].core, each.page_kib] += self.pages_for(each)
        return found

    def pages_for(self, function: PlannedFunction) -> int:
        """How many huge pages of its size a function needs that Tailrace starts."""
        size = STARTERS[function.runs].huge_bytes(function.memory_bytes, function.tables_mib) if self.huge else 0
        return -(-size // (function.page_kib << 10))

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that sockets are given to."""
        return tuple(sorted({port.socket_group for port in self.ports if port.socket_group is not None}))

    @property
    def opens_pci(self) -> bool:
        """Whether a port is on a PCI device."""
        return any(device.startswith("pci:") for port in self.ports for device in port.devices)

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What the switch must be able to do for its device ports."""
        return capabilities(port.opens for port in self.ports if port.opens is not None)

    def as_data(self) -> dict[str, Any]:
        """Plain data, the same for the same plan."""
        own = {name: value for name, value in vars(self).items() if name != "beside"}
        data: dict[str, Any] = json.loads(json.dumps(own, default=vars))  # asdict() takes ten times as long
        return data

    @classmethod
    def read(cls, data: dict[str, Any]) -> Plan:
        """A plan that was kept as data. Raises Mistake if another version of Tailrace wrote it."""
        try:
            return _reader().validate_python(data)
        except ValidationError:
            raise Mistake(
                "what is up was planned by another version of Tailrace; run `tailrace down`, then `tailrace up SPEC`"
            ) from None

    @property
    def identity(self) -> str:
        """Two plans that do the same have the same identity."""
        return identity_of(self.as_data())

    def placed_as(self, old: Plan) -> Plan:
        """This plan in the places of an older one, where the same pollers are in both: who is up is not moved, unless
        this one names other cores."""
        here, there = self.placement, old.placement
        same = set(here.functions) == set(there.functions) and (here.tester is None) == (there.tester is None)
        if self.cores and self.cores != there.workers:
            return self
        if same and len(here.workers) == len(there.workers):
            functions = {name: there.functions[name] for name in here.functions}
            return replace(self, placement=replace(there, functions=functions))
        return self

    def lines(self) -> list[str]:
        """The plan in words, in the order in which it is applied."""
        where = self.placement
        said = [where.headline, *self._pages_lines(), *self._switch_lines()]
        said += [f"add the port {port.name}{_port_words(port)}" for port in self.ports]
        for function in self.functions:
            if not function.started:
                said.append(f"leave the ports of {function.name} for its guest")
                continue
            at = where.functions[function.name]
            # A machine's virtual CPUs have one by its latency level alone: they take turns on a shared core.
            priority = f" at real-time priority {at.priority}" if at.priority and function.runs != "machine" else ""
            said.append(
                f"start {function.name} ({function.what}) in a {function.runs} on {at.words}, {at.mode} mode{priority}"
                + (f", with {function.cpus} of {function.most_cpus} CPUs" if function.elastic else "")
            )
            said += _why_words(at)
        said += [f"wire the chain {chain.name}: {chain_words(chain)}" for chain in self.chains]
        said += [
            f"bridge {bridge.name}: {', '.join(member_words(member) for member in bridge.members)}"
            for bridge in self.bridges
        ]
        said += [
            f"mirror {mirror.name}: the {'port' if mirror.port else 'chain'} {mirror.port or mirror.chain} "
            f"({mirror.direction}) to {mirror.to}"
            for mirror in self.mirrors
        ]
        if self.trace_every is not None:
            said.append(f"trace one test frame of {self.trace_every} through every hop")
        return said + self._tester_lines() + [f"note: {note}" for note in self.notes]

    def common_lines(self) -> list[str]:
        """Of these the lines about what no function has to itself: the placement as a whole, huge pages, the switch
        and its workers, the tester."""
        return [self.placement.headline, *self._pages_lines(), *self._switch_lines(), *self._tester_lines()]

    def _pages_lines(self) -> list[str]:
        sizes: Counter[int] = Counter()
        for (_, kib), count in self.pages.items():
            sizes[kib] += count
        return [
            f"reserve {size_words(kib)} pages until {count} are free ({count * kib >> 10} MiB)"
            for kib, count in sorted(sizes.items())
        ]

    def _switch_lines(self) -> list[str]:
        where = self.placement
        cores = f"core {where.switch.core}"
        if len(where.workers) > 1:
            cores = f"cores {', '.join(map(str, where.workers))}"
        waits = f"it waits {self.backpressure_us} µs for a full receiver"
        return [f"start the switch on {cores} ({waits})", *_why_words(where.switch)]

    def _tester_lines(self) -> list[str]:
        place = self.placement.tester
        if not self.tester or place is None:
            return []
        return [f"leave the ends tester.a and tester.b for the tester, on core {place.core}", *_why_words(place)]


@cache
def _reader() -> TypeAdapter[Plan]:
    """Made when it is needed: that takes longer than most commands do."""
    return TypeAdapter(Plan)


def identity_of(data: dict[str, Any]) -> str:
    """The identity of a plan that was stored as data; who has chosen the cores, and why, makes no difference."""
    doing = {key: value for key, value in data.items() if key not in ("cores", "notes", "placement")}
    if where := data.get("placement"):
        own = {key: value for key, value in where.items() if key != "notes"}
        own |= {key: _without_why(where[key]) for key in ("switch", "tester")}
        doing["placement"] = own | {"functions": {name: _without_why(at) for name, at in where["functions"].items()}}
    return hashlib.sha256(json.dumps(doing, sort_keys=True).encode()).hexdigest()[:16]


def _without_why(place: dict[str, Any] | None) -> dict[str, Any] | None:
    return place and {key: value for key, value in place.items() if key != "why"}


def _why_words(place: Place) -> list[str]:
    """The line that says why a process is where it is; none where a plan was kept that does not tell."""
    return [f"  {place.words}: {place.why}"] if place.why else []


def _port_words(port: PlannedPort) -> str:
    words = f" on {port.device or 'a TAP'}" if port.opens else " (vhost-user)"
    if port.vf is not None:
        words += f", virtual function {port.vf.name}{vf_words(port.vf.settings)}"
    if port.queues > 1:
        words += f", {port.queues} queues"
    for way, bits, packets in (("sends", port.max_bps, port.max_pps), ("is sent", port.to_bps, port.to_pps)):
        most = [f"{bits / 1e6:g} Mbps"] if bits is not None else []
        most += [f"{packets} packets a second"] if packets is not None else []
        if most:
            words += f", {way} at most {' and '.join(most)}"
    return words


def vf_words(settings: dict[str, Any]) -> str:
    """What a card does with a function: (mac 02:00:00:00:00:0a, vlan 10)."""
    said = ", ".join(f"{word} {value}" for word, value in settings.items())
    return f" ({said})" if said else ""


def chain_words(chain: PlannedChain) -> str:
    """tester.a first second tester.b, for which frames."""
    words = " ".join((chain.start, *chain.through, chain.end))
    if chain.match:
        words += f" for {' or '.join(match_words(match) for match in chain.match)}"
    return words


def match_words(match: dict[str, Any]) -> str:
    """vlan 10, protocol udp, destination port 80–90"""
    said = []
    for name, value in match.items():
        text = f"{value[0]}–{value[1]}" if isinstance(value, list | tuple) else str(value)
        text = next((known for known, number in NAMES.get(name, {}).items() if number == value), text)
        said.append(f"{name.replace('_', ' ')} {text}")
    return ", ".join(said)


def member_words(member: PlannedMember) -> str:
    """fw.0, fw.1 (VLAN 10), wan (VLANs 10, 20 tagged)"""
    if member.access is not None:
        return f"{member.port} (VLAN {member.access})"
    if member.trunk is not None:
        native = f", {member.native} native" if member.native is not None else ""
        return f"{member.port} (VLANs {' '.join(map(str, member.trunk))} tagged{native})"
    return member.port


def cpus_of(kept: dict[str, Any]) -> dict[str, list[int]]:
    """The CPU of each thread of a function that can have more and fewer, of a plan on record; the others are not
    there."""
    if all(each.get("most_cpus", 1) == 1 for each in kept.get("functions", [])):
        return {}  # reading a plan of a thousand chains takes a while
    try:
        plan = Plan.read(kept)
    except Mistake:
        return {}
    places = plan.placement.functions
    return {each.name: each.runs_on(places[each.name]) for each in plan.functions if each.elastic}
