"""What a user can ask for, as typed models; the short and the long form of a thing are one model.

The words here are the words on the command line, in results and in reports. The JSON Schema in docs/ is generated
from these models (`tailrace.spec.schema`).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, field_validator, model_validator

from tailrace.spec import units
from tailrace.spec.addresses import WITH_LENGTH, address_schema, read_interface
from tailrace.spec.balancer import Balancer
from tailrace.spec.failover import Failovers
from tailrace.spec.fields import (
    Duration,
    Model,
    Name,
    OneOrMany,
    PortName,
    ShortSchema,
    Size,
    short,
    text_schema,
    whole_seconds,
)
from tailrace.spec.firewall import Firewall
from tailrace.spec.fragment import LONGEST, read_fragment
from tailrace.spec.health import ShortHealth
from tailrace.spec.impair import Impair
from tailrace.spec.interface import VHOST_USER, Interfaces, passed_through
from tailrace.spec.kind import Network, Settings
from tailrace.spec.match import Match
from tailrace.spec.nat import Nat
from tailrace.spec.port import (
    DEVICE_SCHEMA,
    INTERFACE_NAME,
    LONGEST_SOCKET,
    MOST_QUEUES,
    USER,
    Bridge,
    Device,
    Member,
    Mirror,
    Port,
    PortRate,
    Queues,
    RateTo,
    ShortBridge,
    ShortPort,
    Socket,
    is_interface_name,
)
from tailrace.spec.priority import PRIORITY_CPUS, Priority
from tailrace.spec.router import Router
from tailrace.spec.runtime import ELSEWHERE, RUNTIMES, Runtime, refusal
from tailrace.spec.tests import Test
from tailrace.spec.tunnel import Tunnel

__all__ = [
    "INTERFACE_NAME",
    "LONGEST_SOCKET",
    "Balancer",
    "Bridge",
    "Chain",
    "Device",
    "Fabric",
    "Firewall",
    "Function",
    "Hop",
    "Impair",
    "Match",
    "Member",
    "Mirror",
    "Nat",
    "Port",
    "PortRate",
    "RateTo",
    "Router",
    "Socket",
    "Spec",
    "Test",
    "Trace",
    "Tunnel",
    "is_interface_name",
]

MOST_REPLICAS = 64
MOST_PORTS = 16
MOST_CPUS = 64
BUSY = (0.01, 0.95)
"""What part of their time CPUs may be at work."""
USUALLY_BUSY = 0.75
#: What Tailrace's own functions are told; the settings of a kind stand under its name.
SETTINGS: dict[str, type[Settings]] = {
    "skeleton": Settings,
    "impair": Impair,
    "router": Router,
    "firewall": Firewall,
    "nat": Nat,
    "balancer": Balancer,
    "tunnel": Tunnel,
}
GUEST = "guest"
#: A name of podman's or of `tailrace image list`, or a disk's path; nothing that podman would take for an option.
IMAGE = r"^[A-Za-z0-9./][A-Za-z0-9._/:@-]*$"
HOSTNAME = r"^[A-Za-z0-9][A-Za-z0-9.-]{0,62}$"
MOST_WORKERS = 64
#: QEMU has a thread at each end of each, and takes 255.
MOST_CONNECTIONS = 64
#: As the switch has it unless its configuration says otherwise (PIN_FLOW_SECONDS in dataplane/steer/pin.h).
FLOW_AGEING = 300
TESTER_ENDS = ("tester.a", "tester.b")
#: Names that stand beside the functions' own: of processes, logs and ports.
RESERVED_NAMES = {"switch": "the switch", "tester": "the tester, whose ends are tester.a and tester.b"}
LEAST_MEMORY = 128 << 20
LEAST_BUFFERS = 64 << 20
#: Packet buffers and rings of each queue of a function's ports but the first (dataplane/functions/main.c).
QUEUE_MIB = 12
MOST_MEMORY = 1 << 40


Idle = Literal["poll", "pause", "sleep"]


class Fabric(Model):
    """What carries packets between the functions."""

    kind: Literal["tailrace"] = Field("tailrace", description="tailrace: Tailrace's own one-copy switch")
    backpressure: Duration = Field(
        0.020,
        validate_default=False,
        description="how long a frame waits in its sender's ring for a full receiver before it is dropped and counted",
    )
    idle: Annotated[list[Idle], short(str, lambda value: [value]), OneOrMany()] = Field(
        ["poll"],
        min_length=1,
        description="what a worker does when it finds nothing: poll on, pause to save power, or sleep until woken; a "
        "list has one for each worker",
    )
    workers: int | None = Field(None, ge=1, le=MOST_WORKERS, description="how many workers, each on a core of its own")
    cores: list[int] | None = Field(None, min_length=1, description="or the workers' cores, by number")
    user: str | None = Field(
        None,
        pattern=USER,
        description="whom the switch runs as once it has started, NAME or UID:GID; its own user unless given",
    )
    memory: Size | None = Field(
        None,
        description="memory set aside for packet buffers of device ports, 20MiB for each queue at most; what they need "
        "and some to spare for those that come later, unless given",
    )
    restart: Literal["on-failure", "never"] = Field(
        "on-failure", description="whether the switch is started again, as it was, when it has ended by itself"
    )
    pins: dict[str, int] = Field(
        default_factory=dict,
        description="queues (PORT/NUMBER) that stay with one worker (its number); the switch places the others",
    )

    @field_validator("backpressure")
    @classmethod
    def _backpressure_in_range(cls, value: float) -> float:
        if value > 10:
            raise ValueError(f"{units.show_duration(value)} is too long; expected at most 10s")
        return value

    @field_validator("cores")
    @classmethod
    def _cores_differ(cls, value: list[int] | None) -> list[int] | None:
        for index, core in enumerate(value or []):
            if core < 0 or core in (value or [])[:index]:
                raise ValueError(f"{core} is {'no core' if core < 0 else 'listed twice'}; expected each core once")
        return value

    @field_validator("memory")
    @classmethod
    def _memory_in_range(cls, value: int | None) -> int | None:
        if value is not None and not LEAST_BUFFERS <= value <= MOST_MEMORY:
            raise ValueError(f"{units.show_size(value)} is not possible; expected 64MiB to 1TiB")
        return value

    @model_validator(mode="after")
    def _workers_once(self) -> Fabric:
        if self.workers is not None and self.cores is not None:
            raise ValueError("workers and cores both say how many; expected one of them")
        if len(self.idle) not in (1, self.number):
            raise ValueError(
                f"idle lists {len(self.idle)} for {self.number} worker{'' if self.number == 1 else 's'}; "
                "expected one for each, or one for all"
            )
        return self

    @property
    def number(self) -> int:
        """How many workers."""
        return len(self.cores or []) or self.workers or 1

    @property
    def policies(self) -> str:
        """The idle policies as tailrace-switch takes them."""
        return ",".join(self.idle)


ReplicaState = Literal["active", "draining", "standby"]
REPLICA_STATES: tuple[ReplicaState, ...] = get_args(ReplicaState)


def _expand_replicas(value: Any) -> Any:
    """3 is {1: active, 2: active, 3: active}."""
    expected = f"expected a number from 1 to {MOST_REPLICAS}, {{1: active, 2: draining}} or {{1: active, 2: standby}}"
    if isinstance(value, bool) or not isinstance(value, int | dict):
        raise ValueError(f"{units.shown(value)} is no number of replicas; {expected}")
    if isinstance(value, dict):
        numbers = {str(key): state for key, state in value.items()}
        for key, state in numbers.items():
            if not re.fullmatch("[1-9][0-9]{0,3}", key) or int(key) > MOST_REPLICAS:
                raise ValueError(f"{key!r} is no replica's number; {expected}")
            if state not in REPLICA_STATES:
                expected = "active, draining or standby"
                raise ValueError(f"{units.shown(state)} is no replica's state; expected {expected}")
        if "active" not in numbers.values():
            raise ValueError("no replica is active; expected at least one")
        return {int(key): state for key, state in numbers.items()}
    if not 1 <= value <= MOST_REPLICAS:
        raise ValueError(f"{value} is no number of replicas; {expected}")
    return dict.fromkeys(range(1, value + 1), "active")


_REPLICAS_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": MOST_REPLICAS, "description": "how many"},
        {
            "type": "object",
            "description": "the state of each, by number",
            "patternProperties": {"^[1-9][0-9]?$": {"enum": list(REPLICA_STATES)}},
            "additionalProperties": False,
            "minProperties": 1,
        },
    ]
}
Replicas = Annotated[dict[int, ReplicaState], BeforeValidator(_expand_replicas), WithJsonSchema(_REPLICAS_SCHEMA)]


def _seed_address(value: Any) -> str:
    """10.0.0.1/24: netplan takes none without a length."""
    return str(read_interface(value, "expected one with its network, such as 10.0.0.1/24"))


SeedAddress = Annotated[str, BeforeValidator(_seed_address), address_schema(WITH_LENGTH, "10.0.0.1/24")]


class Seed(Model):
    """What a machine is told at its first boot (cloud-init, NoCloud)."""

    hostname: str | None = Field(None, pattern=HOSTNAME, description="its name for itself")
    addresses: list[SeedAddress] = Field(
        default_factory=list, description="of its ports in order, such as 10.0.0.1/24; cloud-init gives them to them"
    )
    user_data: str | None = Field(
        None, max_length=4096, description="a file with more for cloud-init: keys, users, packages"
    )

    @property
    def settings(self) -> tuple[str, ...]:
        """As NAME=VALUE."""
        said = [f"hostname={self.hostname}"] if self.hostname is not None else []
        said += [f"address{number}={each}" for number, each in enumerate(self.addresses)]
        return (*said, *([f"user-data={self.user_data}"] if self.user_data is not None else []))


_Busy = Annotated[
    float,
    BeforeValidator(lambda value: units.parse_ratio(value, BUSY)),
    PlainSerializer(units.show_ratio),
    text_schema(units.RATIO_PATTERN, "75%"),
]


class Cpus(Model):
    """How many CPUs a function has."""

    start: int = Field(1, ge=1, le=MOST_CPUS, description="how many it starts with")
    most: int = Field(
        1, ge=1, le=MOST_CPUS, description="how many it can have while it runs (`tailrace function cpus`)"
    )
    stacked: bool = Field(
        False,
        description="of a machine with latency high: its virtual CPUs may take turns on fewer CPUs, and have no "
        "real-time priority then. With latency medium they may without being asked",
    )

    automatic: bool = Field(
        False,
        description="of a process with a kind, or of a machine: it has more and fewer CPUs by itself, as "
        "its load asks for, from `start` to `most` (docs/elastic.md)",
    )
    busy: _Busy = Field(
        USUALLY_BUSY,
        validate_default=False,
        description="with automatic: its CPUs may be at work for so much of their time before it has more",
    )
    polls: bool = Field(
        False,
        description="with automatic, of a machine with an image: its guest polls its ports, so how busy it is shows in "
        "their rings, and not in its CPU time, which is all that it gets",
    )

    @field_validator("start", "most", mode="before")
    @classmethod
    def _some(cls, value: Any) -> Any:
        return _number_of_cpus(value, "a number")

    @model_validator(mode="after")
    def _starts_within(self) -> Cpus:
        if self.start > self.most:
            raise ValueError(f"start: {self.start} is more than most, {self.most}; expected no more than that")
        if self.automatic and self.start == self.most:
            raise ValueError(f"automatic: start and most are both {self.most}; expected more than start for most")
        if self.polls and not self.automatic:
            raise ValueError("polls: it says how the load is read with `automatic: true`; expected both")
        if self.busy != USUALLY_BUSY and not self.automatic:
            raise ValueError("busy: it says when there are more CPUs with `automatic: true`; expected both")
        return self


def _expand_cpus(value: Any) -> Any:
    """2 is {start: 2, most: 2}."""
    if isinstance(value, dict | Cpus):
        return value
    value = _number_of_cpus(value, "{start: 1, most: 4}")
    return {"start": value, "most": value}


def _number_of_cpus(value: Any, otherwise: str) -> int:
    """Raises ValueError where it is none."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_CPUS:
        raise ValueError(
            f"{units.shown(value)} is no number of CPUs; expected 1 to {MOST_QUEUES} ({MOST_CPUS} of a machine, or "
            f"with an image of your own), or {otherwise}"
        )
    return value


ShortCpus = Annotated[
    Cpus,
    BeforeValidator(_expand_cpus),
    ShortSchema({"type": "integer", "minimum": 1, "maximum": MOST_CPUS, "description": "how many, always"}),
]


class Function(Model):
    """A virtual network function, each replica of which lives by itself."""

    kind: Literal["skeleton", "impair", "router", "firewall", "nat", "balancer", "tunnel"] | None = Field(
        None,
        description="what it does. skeleton: forwards between its two ports, and nothing else; impair: loses, repeats, "
        "delays and reorders frames by a plan; router: forwards IPv4 and IPv6 by the routes of a network namespace of "
        "its own; firewall: lets through what rules allow, and what belongs to that; nat: gives what inside hosts send "
        "an address and port of a pool; balancer: leads what is for virtual addresses to back ends; "
        "tunnel: carries frames to another node or network, in VXLAN or Geneve. A guest has none",
    )
    runs: Literal["process", "container", "machine", "guest"] = Field(
        "process",
        description="where it lives. process: in a sandboxed process of its own; container: in an OCI container, by "
        "podman; machine: in a virtual machine, by libvirt and QEMU; guest: with somebody else, who starts "
        "a machine, a container or a program, for which its vhost-user ports wait",
    )
    priority: Priority | None = Field(
        None,
        description="of a machine: the priority of its virtual CPUs follows what its guest runs, within these bounds "
        "(docs/priority.md); unless said, `latency` alone decides",
    )
    image: str | None = Field(
        None,
        max_length=256,
        pattern=IMAGE,
        description="of a container: one of your own, which podman has, in place of Tailrace's; it has no kind. Of "
        "a machine: which of `tailrace image list` it boots from; or a disk of your own, FILE.qcow2 or FILE.raw, which "
        "is not written to; it has no kind",
    )
    seed: Seed | None = Field(
        None, description="of a machine with a disk of your own: what it is told at its first boot, by cloud-init"
    )
    firmware: Literal["bios", "uefi"] | None = Field(
        None,
        description="of a machine with a disk of your own: what it boots by. A PC's BIOS, unless the disk has no boot "
        "code for that",
    )
    ports: int = Field(
        2,
        ge=1,
        le=MOST_PORTS,
        description="how many ports a guest, or an image of your own, has: NAME.0, NAME.1 and so on. Chains "
        "lead from the first to the second; any other may be an end of a chain, or in a bridge",
    )
    interface: Interfaces = Field(
        [VHOST_USER],
        validate_default=False,
        min_length=1,
        description="what a machine's guest sees as its ports; a list has one for each. vhost-user: virtio, served by "
        "the switch itself; virtio, e1000e, vmxnet3: a device that QEMU emulates, and a TAP from there to the switch; "
        "{passthrough: PCI-ADDRESS}, or {passthrough: CARD/NUMBER} for a virtual function: a device of this machine's "
        "own, which is no port of the switch. A process may have vhost-user and passthrough",
    )
    failover: Failovers = Field(
        {},
        validate_default=False,
        description="of a machine, by the number of a vhost-user port: a virtual function that carries its frames "
        "while there is one (docs/sriov.md)",
    )
    driver: Literal["dpdk", "linux"] = Field(
        "dpdk",
        description="whose drivers a machine's ports have inside. dpdk: DPDK's, in the function; linux: Linux's own, "
        "and Linux's bridge forwards in place of the skeleton",
    )
    memory: Size = Field(
        256 << 20,
        validate_default=False,
        description="the most memory that the sandbox may use besides huge pages; what a machine has",
    )
    pages: Literal["2MiB", "1GiB"] = Field(
        "2MiB",
        description="of a machine: the size of the huge pages that its memory is in; of 1GiB, `memory` is a multiple",
    )
    cpus: ShortCpus = Field(
        default_factory=lambda: Cpus(),
        description="how many CPUs it has, each a core of its own where there are enough. In a process and a container "
        "each has a thread, and the ports a queue for each, over which flows are spread. A machine has `most` virtual "
        "CPUs from its start, on `start` CPUs",
    )
    latency: Literal["normal", "medium", "high"] = Field(
        "medium",
        description="how much a late frame matters. normal: it has no CPU of its own, and sleeps until it is notified; "
        "medium: it polls on a core of its own where there are enough; high: it does, or is refused, and nothing of it "
        "ever gives that core away (`tailrace function explain`)",
    )
    replicas: Replicas = Field(
        {1: "active"},
        validate_default=False,
        description="how many of it share the flows; a flow stays with one. By number: active; draining, which "
        "gets no new flows; standby, which gets none until an active one ends, and takes its place then",
    )
    pin: Literal["flow", "addresses"] = Field(
        "flow",
        description="what keeps packets with one replica: their flow (five-tuple), or their two IP addresses. Where a "
        "function with one replica says this, its flows are known too, so that it can be drained once it has two",
    )
    ageing: Annotated[Duration, whole_seconds("1s", "1h")] = Field(
        FLOW_AGEING,
        validate_default=False,
        description="a flow that has not been seen for so long is forgotten: until then it stays with its replica, "
        "also with one that drains",
    )
    impair: Impair | None = Field(None, description="of kind impair: what it does to frames")
    domain: str | None = Field(
        None,
        max_length=LONGEST,
        description="of a machine: elements of libvirt's <domain>, which are merged into the one that Tailrace makes, "
        "for what a spec has no word for (docs/functions.md)",
    )
    migratable: bool = Field(
        True, description="of a machine: whether it may move to another node while it runs (`tailrace migrate`)"
    )
    connections: int = Field(
        1,
        ge=1,
        le=MOST_CONNECTIONS,
        description="of a machine: by how many connections its memory is sent when it moves; with QEMU 7.2, a move "
        "by several that fails or is cancelled can leave it unable to move again until it is started anew "
        "(docs/migration.md)",
    )
    arrives: bool = Field(
        False, description="of a machine: it is not started here, and comes from another node (`tailrace migrate`)"
    )
    router: Router | None = Field(None, description="of kind router: its addresses and routes")
    firewall: Firewall | None = Field(None, description="of kind firewall: its rules")
    nat: Nat | None = Field(None, description="of kind nat: its pool, and what inside hosts may have of it")
    balancer: Balancer | None = Field(None, description="of kind balancer: its services and their back ends")
    tunnel: Tunnel | None = Field(None, description="of kind tunnel: its network, and the addresses of both ends")
    restart: Literal["always", "on-failure", "never"] = Field(
        "on-failure",
        description="whether its process is started again when it has ended by itself: always, if it failed (by a "
        "signal, or a status that is not 0), or never; soon at first, then after ever longer pauses",
    )
    health: ShortHealth | None = Field(
        None, description="how it is found out whether it is well; one that is not is ended, and `restart` applies"
    )
    on_failure: Literal["drop", "block", "bypass"] = Field(
        "drop",
        description="what becomes of its chain's frames until then: they are dropped and counted; they wait with their "
        "sender; or the chain leads past it. Where it has other replicas, these take its flows",
    )

    @property
    def pinned(self) -> bool:
        """Its flows are known to the switch, which looks at the frames for that."""
        return self.shared_out or "pin" in self.model_fields_set

    @property
    def shared_out(self) -> bool:
        """They are known only because it has several replicas."""
        return len(self.replicas) > 1 and "pin" not in self.model_fields_set

    def port_names(self, name: str) -> list[str]:
        """The names of its ports (or of a replica's) that the switch has, where it is called so."""
        return [f"{name}.{number}" for number, each in enumerate(self.interfaces) if not passed_through(each)]

    @property
    def interfaces(self) -> list[str]:
        """Of each port."""
        return self.interface * (self.ports if len(self.interface) == 1 else 1)

    @property
    def passed_through(self) -> list[str]:
        """The devices of this machine that it has to itself, as URIs."""
        return [each for each in self.interfaces if passed_through(each)]

    @property
    def runtime(self) -> Runtime:
        """Where it lives."""
        return RUNTIMES[self.runs]

    @property
    def own_image(self) -> bool:
        """Whether it starts from an image of the user's."""
        return self.image is not None and self.image.endswith(self.runtime.own_images)

    @property
    def disk(self) -> bool:
        """Whether it boots from a disk of the user's."""
        return self.own_image and self.runtime.boots

    @property
    def started(self) -> bool:
        """Whether Tailrace starts it."""
        return self.runtime.started

    @property
    def page_kib(self) -> int:
        """The size of the huge pages that it has."""
        return units.parse_size(self.pages) >> 10

    @model_validator(mode="before")
    @classmethod
    def _guest_as_a_kind(cls, value: Any) -> Any:
        """Before there were runtimes, `guest` was a kind."""
        if isinstance(value, dict) and value.get("kind") == GUEST and value.get("runs", GUEST) == GUEST:
            return {"runs": GUEST, **{key: each for key, each in value.items() if key != "kind"}}
        return value

    @model_validator(mode="after")
    def _runtime_fits(self) -> Function:
        for word in ELSEWHERE:
            said = getattr(self, word) != type(self).model_fields[word].default
            if said and (why := refusal(self.runs, word)) is not None:
                raise ValueError(why)
        return self

    @model_validator(mode="after")
    def _kind_fits(self) -> Function:
        if self.seed is not None and not self.disk:
            raise ValueError("seed is for a machine with a disk of your own; expected none, or `image: FILE.qcow2`")
        if self.firmware is not None and not self.disk:
            raise ValueError("firmware is of a machine with a disk of your own; expected none, or `image: FILE.qcow2`")
        if self.seed is not None and len(self.seed.addresses) > self.ports:
            raise ValueError(f"seed: {len(self.seed.addresses)} addresses for {self.ports} ports; expected one each")
        if self.own_image and self.kind is not None:
            raise ValueError(
                f"{self.kind} is a kind of Tailrace's own image; expected no kind beside an image of yours"
            )
        if self.started and self.kind is None and not self.own_image:
            if self.image is not None and self.runtime.boots:
                raise ValueError(
                    f"image {self.image} is no disk by its name; expected one that ends in .qcow2 or .raw, or a kind "
                    "for an image of `tailrace image list`"
                )
            raise ValueError(f"lacks 'kind', which says what it does; expected {' or '.join(SETTINGS)}")
        if not self.started and self.kind is not None:
            raise ValueError(f"{self.kind} is a kind that Tailrace starts, and a guest is not; expected no kind")
        if self.kind is not None and self.ports != 2:
            raise ValueError(f"{self.ports} ports; expected 2, which a {self.kind} has (a guest may have others)")
        return self

    @model_validator(mode="after")
    def _interface_fits(self) -> Function:
        words = self.runtime.words
        emulated = any(each != VHOST_USER and not passed_through(each) for each in self.interface)
        if (emulated and "interface" not in words) or (self.passed_through and "passthrough" not in words):
            also = ", and devices passed through" if "passthrough" in words else ""
            raise ValueError(f"interface: a {self.runs} has vhost-user ports{also}; expected none, or `runs: machine`")
        if len(self.interface) not in (1, self.ports):
            raise ValueError(
                f"interface lists {len(self.interface)} for {self.ports} ports; expected one for each, or one for all"
            )
        if self.driver == "linux" and ("driver" not in self.runtime.words or self.kind != "skeleton"):
            raise ValueError("driver: Linux forwards as a skeleton in a machine does; expected one, or dpdk")
        own = self.passed_through
        if len(own) == self.ports:
            raise ValueError("interface: the switch has none of its ports; expected a list with another kind too")
        if own and len(self.replicas) > 1:
            raise ValueError(f"{own[0]} is one device for {len(self.replicas)} replicas; expected one replica")
        if self.on_failure == "block" and set(self.interface) != {VHOST_USER}:
            raise ValueError("on_failure: frames wait at vhost-user ports only; expected drop or bypass")
        unseen = "a guest is not started here, so when it has ended is not known"
        if not self.started and self.on_failure == "bypass":
            raise ValueError(f"on_failure: {unseen} and no chain led past it; expected drop or block")
        if not self.started and "standby" in self.replicas.values():
            raise ValueError(f"replicas: {unseen} and none takes its place; expected active or draining")
        return self

    @model_validator(mode="after")
    def _failover_fits(self) -> Function:
        if not self.failover:
            return self
        if "failover" not in self.runtime.words:
            raise ValueError("failover: only machines are given devices; expected none, or `runs: machine`")
        if self.driver != "linux" and not self.disk:
            raise ValueError(
                "failover: Linux inside makes one interface of both, and DPDK's drivers do not; expected `driver: "
                "linux`, or a disk of your own"
            )
        if len(self.replicas) > 1:
            raise ValueError("failover: each function is one device, of one replica; expected one replica")
        fit = [number for number, each in enumerate(self.interfaces) if each == VHOST_USER]
        if wrong := [port for port in self.failover if port not in fit]:
            expected = ", ".join(map(str, fit)) or "none"
            raise ValueError(f"failover: {wrong[0]} is no vhost-user port of its; expected {expected}")
        macs = [each.mac for each in self.failover.values()]
        if len({*macs}) < len(macs):
            raise ValueError("failover: two ports have one mac; expected each once")
        return self

    @model_validator(mode="after")
    def _health_fits(self) -> Function:
        if self.health is not None and not self.started:
            raise ValueError("health: a guest is not Tailrace's to end; expected none")
        if self.health is not None and self.health.command is not None and "command" not in self.runtime.words:
            raise ValueError(f"health: a {self.runs} runs no command; expected forwards, or `runs: container`")
        return self

    @model_validator(mode="after")
    def _machine_fits(self) -> Function:
        if self.cpus.stacked and "stacked" not in self.runtime.words:
            raise ValueError(
                f"cpus: stacked: only virtual CPUs take turns, and a {self.runs} has none; expected none, or `runs: "
                "machine`"
            )
        if self.priority is not None and ("priority" not in self.runtime.words or self.disk):
            raise ValueError(
                "priority: only a machine with an image of Tailrace's says what it runs; expected none, or `runs: "
                "machine` without a disk of your own"
            )
        if self.priority is not None and self.cpus.most > PRIORITY_CPUS:
            raise ValueError(f"priority: {self.cpus.most} CPUs; expected {PRIORITY_CPUS} at most")
        if self.pages != "2MiB" and self.memory % (self.page_kib << 10):
            raise ValueError(f"memory: {units.show_size(self.memory)} is no multiple of {self.pages}; expected one")
        if self.arrives and ("arrives" not in self.runtime.words or not self.migratable):
            raise ValueError("arrives: only a machine that is migratable comes from elsewhere; expected none")
        if self.connections > 1 and ("arrives" not in self.runtime.words or not self.migratable):
            raise ValueError("connections: only a machine that is migratable moves; expected none")
        return self

    @model_validator(mode="after")
    def _settings_fit(self) -> Function:
        for kind in SETTINGS:
            if getattr(self, kind, None) is not None and self.kind != kind:
                raise ValueError(
                    f"{kind} says what a function of kind {kind} does, and this is {self.kind}; expected one"
                )
        standby = list(self.replicas.values()).count("standby")
        why = self.own_settings.refuses(len(self.replicas), standby)
        if why is not None:
            raise ValueError(why)
        return self

    @property
    def own_settings(self) -> Settings:
        """What it is told, as its kind has it."""
        given = getattr(self, self.kind, None) if self.kind is not None else None
        return given if isinstance(given, Settings) else SETTINGS.get(self.kind or "", Settings)()

    def settings(self, replica: int) -> tuple[str, ...]:
        """What the program of the n-th replica (from 0) is given, or what it boots, as NAME=VALUE."""
        if self.disk:
            told = self.seed.settings if self.seed is not None else ()
            return (*told, *([f"firmware={self.firmware}"] if self.firmware is not None else []))
        return self.own_settings.settings(replica)

    @property
    def tables_mib(self) -> int:
        """What its program's tables, and queues beyond the first, take of DPDK's memory, beside packet buffers."""
        queues = self.cpus.most if self.kind is not None and self.runtime.threads else 1
        return self.own_settings.tables_mib(queues) + (queues - 1) * QUEUE_MIB

    @property
    def network(self) -> Network | None:
        """The network namespace that it needs; None: it has none."""
        return self.own_settings.network()

    @field_validator("domain")
    @classmethod
    def _domain_is_sound(cls, value: str | None) -> str | None:
        if value is not None:
            read_fragment(value)
        return value

    @field_validator("memory")
    @classmethod
    def _memory_in_range(cls, value: int) -> int:
        if value < LEAST_MEMORY:
            raise ValueError(f"{units.show_size(value)} is too little to start in; expected at least 128MiB")
        if value > MOST_MEMORY:
            raise ValueError(f"{units.show_size(value)} is more than any machine has; expected at most 1TiB")
        return value


def replica_name(function: str, number: int) -> str:
    """fw, fw-2, fw-3: the first has the function's own name, so that a second one changes nothing about it."""
    return function if number == 1 else f"{function}-{number}"


class Hop(Model):
    """One place on a chain: a tester's end, a function, a port, or a device."""

    name: str | None = None
    device: Device | None = None
    queues: Queues = 1

    def __str__(self) -> str:
        return self.name if self.name is not None else (self.device.uri if self.device else "")


def _expand_hop(value: Any) -> Any:
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict) and "bond" in value:
        raise ValueError("a bond is a port of its own; expected its name here, and the bond under `ports`")
    if isinstance(value, dict) and not set(value) & {"name", "device"}:
        device = {key: value[key] for key in value if key != "queues"}
        return {"device": device, **({"queues": value["queues"]} if "queues" in value else {})}
    if isinstance(value, dict | Hop):
        return value
    raise ValueError(
        f"{units.shown(value)} is no place on a chain; "
        "expected a function's name, tester.a, tester.b, or a device such as {if: veth0}"
    )


_HOP_SCHEMA = {
    "anyOf": [
        {"type": "string", "description": "a function's or port's name, tester.a or tester.b"},
        DEVICE_SCHEMA,
    ]
}


class Chain(Model):
    """An ordered path: an end, the functions a packet passes, an end; both ways."""

    path: Annotated[
        list[Annotated[Hop, BeforeValidator(_expand_hop)]],
        WithJsonSchema({"type": "array", "minItems": 2, "items": _HOP_SCHEMA}),
    ]
    match: Annotated[list[Match], short(dict, lambda value: [value]), OneOrMany()] = Field(
        default_factory=list,
        description="which frames take it: those that one of these matches (all of its fields hold); none: all frames",
    )
    priority: int = Field(
        0, ge=0, le=65535, description="where several chains match a frame, the highest has it, then the first written"
    )

    @field_validator("path")
    @classmethod
    def _has_ends(cls, value: list[Hop]) -> list[Hop]:
        if len(value) < 2:
            raise ValueError("a chain has two ends; expected at least [tester.a, tester.b]")
        return value

    @property
    def ends(self) -> tuple[str, str]:
        return str(self.path[0]), str(self.path[-1])

    @property
    def through(self) -> list[str]:
        """The functions, in order."""
        return [str(hop) for hop in self.path[1:-1]]


class Trace(Model):
    """The hop trace: of every so many test frames of a stream, where each was when."""

    every: int = Field(1024, ge=1, le=1 << 30, description="one frame of so many, a power of two, is followed")

    @field_validator("every")
    @classmethod
    def _a_power_of_two(cls, value: int) -> int:
        if value & (value - 1):
            below = 1 << (value.bit_length() - 1)
            raise ValueError(f"{value} is no power of two; expected one, such as {below} or {2 * below}")
        return value


ShortFabric = Annotated[
    Fabric, short(str, lambda value: {"kind": value}), ShortSchema({"enum": ["tailrace"], "description": "the kind"})
]
ShortFunction = Annotated[
    Function,
    short(str, lambda value: {"kind": value}),
    ShortSchema({"enum": [*SETTINGS, "guest"], "description": "the kind"}),
]
ShortChain = Annotated[
    Chain,
    short(list, lambda value: {"path": value}),
    ShortSchema({"type": "array", "minItems": 2, "items": _HOP_SCHEMA, "description": "the path"}),
]
ShortTest = Annotated[
    Test,
    short(str, lambda value: {value: {}}),
    ShortSchema({"enum": list(Test.model_fields), "description": "with its defaults"}),
]
ShortTrace = Annotated[
    Trace, short(int, lambda value: {"every": value}), ShortSchema({"type": "integer", "minimum": 1})
]


class Spec(Model):
    """What should exist on this machine, and what should be measured on it."""

    fabric: ShortFabric = Field(default_factory=lambda: Fabric(), description="what carries packets")
    ports: dict[PortName, ShortPort] = Field(
        default_factory=dict,
        description="ports of their own by name, and what those of functions (fw.0, fw.1) and of the tester may carry",
    )
    functions: dict[Name, ShortFunction] = Field(default_factory=dict, description="virtual network functions by name")
    chains: dict[Name, ShortChain] = Field(default_factory=dict, description="paths by name")
    bridges: dict[Name, ShortBridge] = Field(default_factory=dict, description="bridges by name")
    mirrors: dict[Name, Mirror] = Field(default_factory=dict, description="mirrors by name")
    trace: ShortTrace | None = Field(None, description="the hop trace; off unless given")
    tests: list[ShortTest] = Field(default_factory=list, description="what to measure")

    def tester_chain(self) -> tuple[str, Chain] | None:
        """The chain from one end of the tester to the other, which is what tests measure."""
        for name, chain in self.chains.items():
            if set(chain.ends) == set(TESTER_ENDS):
                return name, chain
        return None

    def device_port(self, uri: str) -> str | None:
        """The name of the port on a device, where it has one of its own."""
        return next((name for name, port in self.ports.items() if port.device and port.device.uri == uri), None)
