"""From what the user asked for to what will be done on this machine: a plan is data.

It can be printed before it is applied (`tailrace up --dry-run`), applied twice without harm (two plans are the same if
their identity is), and undone (`tailrace.host.state`). Making one changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tailrace.errors import Mistake
from tailrace.host.hugepages import PAGE_MIB
from tailrace.host.place import FUNCTION_PRIORITY, Cpu, Placement, allowed_cpus, place
from tailrace.host.process import real_time_refusal
from tailrace.spec import Spec
from tailrace.spec.model import TESTER_ENDS
from tailrace.spec.units import show_size

#: DPDK's memory of a function and of the tester: packet buffers and rings.
FUNCTION_BUFFERS_MIB = 64
TESTER_BUFFERS_MIB = 256


@dataclass(frozen=True)
class PlannedPort:
    """A port of the fabric, and who is behind it."""

    name: str
    owner: str
    """`tester.a`, a function's name, or a device's URI."""
    device: str | None = None

    @property
    def guest(self) -> bool:
        return self.device is None


@dataclass(frozen=True)
class PlannedFunction:
    """A function to start."""

    name: str
    kind: str
    ports: tuple[str, str]
    memory_bytes: int


@dataclass(frozen=True)
class PlannedChain:
    """A chain as the fabric is told of it: ports, to be joined in pairs."""

    name: str
    ports: tuple[str, ...]
    functions: tuple[str, ...]
    tested: bool
    """Runs from one end of the tester to the other."""


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

    @property
    def tester(self) -> bool:
        """Whether the tester has a place in it."""
        return any(port.owner in TESTER_ENDS for port in self.ports)

    @property
    def pages(self) -> int:
        """Huge pages that must be free when it is applied, the tester's included."""
        if not self.huge:
            return 0
        guests = len(self.functions) * FUNCTION_BUFFERS_MIB + (TESTER_BUFFERS_MIB if self.tester else 0)
        return guests // PAGE_MIB

    def as_data(self) -> dict[str, Any]:
        """Plain data, the same for the same plan."""
        data: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return data

    @property
    def identity(self) -> str:
        """Two plans that do the same have the same identity."""
        return identity_of(self.as_data())

    def lines(self) -> list[str]:
        """The plan in words, in the order in which it is applied."""
        where = self.placement
        said = [where.headline]
        if self.pages:
            said.append(f"reserve 2 MiB pages until {self.pages} are free ({self.pages * PAGE_MIB} MiB)")
        said.append(
            f"start the switch on core {where.switch.core} (it waits {self.backpressure_us} µs for a full receiver)"
        )
        said += [
            f"add the port {port.name}" + (f" on {port.device}" if port.device else " (vhost-user)")
            for port in self.ports
        ]
        for function in self.functions:
            at = where.functions[function.name]
            priority = f" at real-time priority {at.priority}" if at.priority else ""
            said.append(
                f"start {function.name} ({function.kind}) in a sandbox on core {at.core}, {at.mode} mode{priority}"
            )
        said += [f"wire the chain {chain.name}: {' '.join(chain.ports)}" for chain in self.chains]
        if self.tester and where.tester:
            said.append(f"leave the ends tester.a and tester.b for the tester, on core {where.tester.core}")
        return said + [f"note: {note}" for note in self.notes]


def identity_of(data: dict[str, Any]) -> str:
    """The identity of a plan that was stored as data."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def make_plan(
    spec: Spec,
    *,
    huge: bool = True,
    cpus: Sequence[Cpu] | None = None,
    real_time: str | bool | None = True,
    memory: int | None = None,
) -> Plan:
    """The plan for a spec on this machine (or on `cpus`, with `memory` bytes). Raises Mistake if it cannot be had here.

    `real_time` True asks the kernel whether real-time priorities may be used; otherwise it is the refusal, or None.
    """
    ports: list[PlannedPort] = []
    chains: list[PlannedChain] = []
    used: list[str] = []
    for name, chain in spec.chains.items():
        names: list[str] = []
        for hop in chain.path:
            if hop.device is not None:
                port = PlannedPort(_device_port(hop.device.uri), hop.device.uri, hop.device.uri)
                ports.append(port)
                names.append(port.name)
            elif hop.name in TESTER_ENDS:
                ports.append(PlannedPort(str(hop.name), str(hop.name)))
                names.append(str(hop.name))
            else:
                for side in (0, 1):
                    ports.append(PlannedPort(f"{hop.name}.{side}", str(hop.name)))
                    names.append(f"{hop.name}.{side}")
                used.append(str(hop.name))
        ends = {chain.path[0].name, chain.path[-1].name}
        inner = tuple(str(hop.name) for hop in chain.path[1:-1])
        chains.append(PlannedChain(name, tuple(names), inner, ends == set(TESTER_ENDS)))
    _check_memory(spec, used, memory)
    refusal = real_time_refusal(FUNCTION_PRIORITY) if real_time is True else real_time
    placement = place(
        cpus if cpus is not None else allowed_cpus(),
        used,
        tester=any(port.owner in TESTER_ENDS for port in ports),
        real_time=refusal is None,
    )
    notes = [f"{name} is in no chain and is not started" for name in spec.functions if name not in used]
    if placement.oversubscribed and used and refusal is not None:
        notes.append(
            f"real-time priorities are refused ({refusal}), so functions wait for the scheduler: "
            "run as root, or raise the limit with `ulimit -r`"
        )
    functions = [
        PlannedFunction(name, spec.functions[name].kind, (f"{name}.0", f"{name}.1"), spec.functions[name].memory)
        for name in used
    ]
    return Plan(
        fabric=spec.fabric.kind,
        backpressure_us=round(spec.fabric.backpressure * 1e6),
        idle=spec.fabric.idle,
        ports=tuple(ports),
        functions=tuple(functions),
        chains=tuple(chains),
        placement=placement,
        huge=huge,
        notes=tuple(notes),
    )


def _check_memory(spec: Spec, used: Sequence[str], memory: int | None) -> None:
    """A limit above what there is limits nothing: the machine would run out first."""
    total = memory if memory is not None else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name in used:
        if spec.functions[name].memory > total:
            raise Mistake(
                f"functions.{name}.memory: {show_size(spec.functions[name].memory)} is more than this machine has "
                f"({total >> 20}MiB); expected less"
            )


def _device_port(uri: str) -> str:
    """A port's name for a device: its URI, without what a name cannot hold."""
    scheme, _, rest = uri.partition(":")
    return f"{scheme}-" + "".join(each if each.isalnum() or each in "-." else "-" for each in rest)[:40]
