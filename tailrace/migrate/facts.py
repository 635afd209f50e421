"""What a node says of itself and of one of its functions: whether that can move from there, or to there.

Both nodes answer with the same facts; `tailrace.migrate.checks` compares them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

from pydantic import TypeAdapter, ValidationError

from tailrace import __version__
from tailrace.errors import Failure, Mistake
from tailrace.functions.acceleration import acceleration
from tailrace.functions.images import DEFAULT, machine_image
from tailrace.functions.traits import read_traits
from tailrace.kernel.boot import boot_id
from tailrace.kernel.tree import Tree
from tailrace.plan.planned import Plan, PlannedFunction
from tailrace.process import hypervisor
from tailrace.resources import hugepages
from tailrace.resources.topology import available_mib
from tailrace.state.record import Record, State
from tailrace.switch.config import instance_name

RunState = Literal["absent", "stopped", "ended", "running"]


@dataclass(frozen=True)
class FunctionFacts:
    """A function as the plan of a node has it."""

    kind: str | None
    runs: str
    image: str
    made_of: str
    """Identifies the content of its image; empty: there is none, or it is the user's own disk."""
    memory_bytes: int
    cpus: int
    latency: str
    interfaces: tuple[str, ...]
    driver: str
    settings: tuple[str, ...]
    domain: str | None
    migratable: bool
    huge: bool
    own_cpus: bool
    """Each of its CPUs has one of the host's to itself."""
    node: int | None
    """The NUMA node that it is on; None: the host has one."""
    page_kib: int = hugepages.PAGE_KIB
    """The size of its huge pages."""
    failover: tuple[str, ...] = ()
    """The ports in front of which there may be a virtual function, each with the address of both."""
    most_cpus: int = 1
    """How many CPUs of its own a machine has; `cpus`: those of the host that it has at the moment."""
    automatic: bool = False
    """It has more and fewer of the host's by itself, from `least_cpus` on."""
    least_cpus: int = 1
    stacked: bool = False
    priority: str = ""
    """The bounds of its CPUs' priority; empty: it stays."""
    network: str = ""
    """Identifies the addresses and routes that it was given at its start; empty: none."""


@dataclass(frozen=True)
class Facts:
    """What a node says."""

    host: str
    boot: str
    folder: str
    state: RunState
    """Of the function."""
    function: FunctionFacts | None
    tailrace: str
    cpu: str
    """The processor's name."""
    flags: tuple[str, ...]
    """What it can do, in the kernel's words."""
    acceleration: str = ""
    """What runs machines here; empty: it was not asked for what it has for machines, as the function is none."""
    libvirt: int = 0
    """As libvirt has it: 9000000 is 9.0.0."""
    qemu: int = 0
    kinds: tuple[str, ...] = ()
    """The kinds of machine that QEMU has here."""
    machine: str = ""
    """The kind of the one that runs."""
    cpu_mode: str = ""
    """How the CPU of that one was chosen, in libvirt's words."""
    devices: tuple[str, ...] = ()
    """What that one has of this host alone: `disk PATH`, `passthrough ADDRESS`, `device KIND`."""
    libvirt_uri: str = ""
    """Where another host's libvirt reaches this one's."""
    memory_free: int = 0
    pages_free: int = 0
    """Huge pages of 2 MiB that nobody has taken, on the function's node."""
    disk_free: int | None = None
    """Bytes of the disk that the state folder is on; None: it has no bound."""
    nodes: Mapping[int, int] = field(default_factory=dict)
    """What a machine can have of each NUMA node's memory, in MiB, beside huge pages that are free."""
    sends_to: tuple[str, str] | None = None
    """The boot and the folder of the node to which it sends a machine at the moment."""
    moves: Mapping[str, bool] = field(default_factory=dict)
    """Of the last moves to here that have ended, each by its name: whether the machine came. One that came may have
    gone since; of one that is not named nothing is known."""


_MOST_DEVICES = 64


@cache
def _reader() -> TypeAdapter[Facts]:
    """Made when it is needed."""
    return TypeAdapter(Facts)


def read_facts(data: Any) -> Facts:
    """Facts that another node has sent. Raises Mistake where they are of another version's."""
    try:
        return _reader().validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        at = ".".join(map(str, first["loc"]))
        raise Mistake(
            f"the other node answers as another version of Tailrace does ({at}: {first['msg']}); expected {__version__}"
        ) from None


def facts_of(folder: Path, record: Record, name: str) -> Facts:
    """What the node of a state folder says of a function (or replica). Raises Failure, Mistake."""
    plan = Plan.read(record.plan)
    planned = next((each for each in plan.started if each.name == name), None)
    tree = Tree()
    state, outer = _run_state(State(folder, record), name) if planned is not None else ("absent", "")
    function = _function(plan, planned) if planned is not None else None
    base = hugepages.pool_of(function.node, kib=function.page_kib) if function is not None else hugepages.POOL
    cpu, flags = _processor(tree)
    found = Facts(
        host=os.uname().nodename,
        boot=boot_id(),
        folder=str(folder),
        state=state,
        function=function,
        tailrace=__version__,
        cpu=cpu,
        flags=flags,
        memory_free=_memory_free(tree),
        pages_free=hugepages.pool(base).free,
        disk_free=_disk_free(folder),
        nodes=available_mib(tree),
        moves=dict(record.moves),
    )
    if function is not None and function.runs != "machine":
        return found
    try:
        return _with_machines(found, outer)
    except (Failure, Mistake):
        if function is not None:
            raise
        return found  # what it lacks for machines in general is not what was asked for


def _with_machines(facts: Facts, outer: str) -> Facts:
    """With what it has for machines, and of the one that libvirt knows by this name. Raises Failure, Mistake."""
    connection = hypervisor.connect()
    domain = ElementTree.fromstring(hypervisor.machine_xml(outer)) if outer else None
    return replace(
        facts,
        libvirt=int(connection.getLibVersion()),
        qemu=int(connection.getVersion()),
        acceleration=acceleration().kind,
        kinds=_kinds(connection.getCapabilities()),
        machine=_attribute(domain, "os/type", "machine"),
        cpu_mode=_attribute(domain, "cpu", "mode"),
        devices=bound_devices(domain) if domain is not None else (),
        libvirt_uri=str(connection.getURI()),
    )


def as_data(facts: Facts) -> dict[str, Any]:
    """Plain data, as `read_facts` takes it."""
    return asdict(facts)


def bound_devices(domain: ElementTree.Element) -> tuple[str, ...]:
    """What a machine has of its host alone, in a few words each."""
    found = []
    for device in domain.iterfind("devices/*"):
        source = device.find("source")
        if device.tag == "disk":
            found.append(f"disk {_source(source)}")
        elif device.tag == "hostdev":
            if device.find("teaming") is None:  # else it is unplugged before
                found.append(f"passthrough {_source(source)}")
        elif device.tag in ("filesystem", "redirdev", "shmem", "tpm", "vsock"):
            found.append(f"device {device.tag}")
    return tuple(found[:_MOST_DEVICES])


def _source(source: ElementTree.Element | None) -> str:
    """Of a disk or device: a path, or a PCI address."""
    if source is None:
        return "without a source"
    path = source.get("file") or source.get("dev") or source.get("name")
    address = source.find("address")
    if path is None and address is not None:
        numbers = [address.get(key, "0x0").removeprefix("0x") for key in ("domain", "bus", "slot", "function")]
        return f"{numbers[0]}:{numbers[1]}:{numbers[2]}.{numbers[3]}"
    return path or source.get("protocol") or "without a path"


def _function(plan: Plan, planned: PlannedFunction) -> FunctionFacts:
    place, traits = plan.placement.functions[planned.name], read_traits(Tree())
    image = planned.image or DEFAULT
    made_of = ""
    if planned.runs == "machine" and planned.kind is not None:
        with suppress(Mistake):
            made_of = machine_image(image).made_of
    return FunctionFacts(
        kind=planned.kind,
        runs=planned.runs,
        image=image,
        made_of=made_of,
        memory_bytes=planned.memory_bytes,
        cpus=planned.cpus,
        latency=planned.latency,
        interfaces=planned.interfaces,
        driver=planned.driver,
        settings=planned.settings,
        domain=planned.domain,
        migratable=planned.migratable,
        huge=plan.huge,
        own_cpus=place.mode == "poll" and len(place.cores) >= planned.cpus,
        node=traits.node(place.core) if traits.several_nodes else None,
        page_kib=planned.page_kib,
        failover=tuple(f"{port} ({mac})" for port, mac in planned.failover_ports),
        most_cpus=planned.most_cpus,
        automatic=planned.automatic,
        least_cpus=planned.least_cpus,
        stacked=planned.stacked,
        priority=planned.priority.word() if planned.priority is not None else "",
        network=sha256(repr(planned.network).encode()).hexdigest() if planned.network is not None else "",
    )


def _run_state(state: State, name: str) -> tuple[RunState, str]:
    """What has become of a function, and the name by which libvirt knows it where it runs."""
    record = state.record
    wanted = instance_name(name, record.instances.get(name, 1))
    process = next((each for each in state.processes() if each.name == wanted), None)
    if process is not None and process.id.alive():
        return "running", process.outside
    return ("stopped" if name in record.stopped else "ended"), ""


def _processor(tree: Tree) -> tuple[str, tuple[str, ...]]:
    """Its name, and what it can do."""
    fields: dict[str, str] = {}
    for line in (tree.text("/proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    return fields.get("model name", ""), tuple(sorted(set(fields.get("flags", "").split())))


def _kinds(capabilities: str) -> tuple[str, ...]:
    """Source: libvirt's formatcaps.html."""
    found = ElementTree.fromstring(capabilities).iterfind("guest/arch[@name='x86_64']/machine")
    return tuple(sorted({each.text for each in found if each.text and each.text.startswith("pc-q35-")}))


def _attribute(domain: ElementTree.Element | None, at: str, key: str) -> str:
    found = domain.find(at) if domain is not None else None
    return found.get(key, "") if found is not None else ""


def _memory_free(tree: Tree) -> int:
    for line in (tree.text("/proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 0


def _disk_free(folder: Path) -> int | None:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize if found.f_blocks else None  # a tmpfs of no size has none
