"""Where packets enter and leave: devices, guests' sockets, and what a port may carry; bridges and mirrors of ports."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from tailrace.spec import units
from tailrace.spec.fields import (
    BitRate,
    Duration,
    Model,
    Name,
    PacketRate,
    PortName,
    ShortSchema,
    Size,
    short,
    whole_seconds,
)
from tailrace.spec.virtual_function import CardFunction, VirtualFunction

MOST_QUEUES = 16
MOST_VLAN = 4094
#: As the switch has it (GUEST_MEMORY_MOST in dataplane/port/guest_memory.h).
MOST_GUEST_MEMORY = 2 << 40
#: The longest path of a Unix socket (unix(7): 108 bytes with the terminating zero).
LONGEST_SOCKET = 107
SOCKET_MODE = r"^0?[0-7]{3}$"
PCI_ADDRESS = r"^[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$"
GROUP_NAME = r"^[A-Za-z_][A-Za-z0-9_.-]{0,31}$"
USER = r"^([A-Za-z_][A-Za-z0-9_-]{0,31}|[0-9]{1,10}:[0-9]{1,10})$"
#: What a text should have been, where a pattern says it to machines only.
PATTERNS = {
    SOCKET_MODE: "file permissions in octal, such as '0660'",
    GROUP_NAME: "a group's name, such as kvm",
    USER: "a user's name, such as nobody, or two numbers, such as 990:990",
    PCI_ADDRESS: "a PCI address, such as 0000:3b:00.0",
}
INTERFACE_NAME = "expected 1 to 15 characters without '/', ':', ',' or white space, such as veth0"


def is_interface_name(text: str) -> bool:
    """Whether Linux could have an interface of this name (dev_valid_name() in net/core/dev.c), and DPDK, which reads a
    comma as a separator, open it."""
    return 1 <= len(text.encode()) <= 15 and text not in (".", "..") and not re.search(r"[/:,\s\x00-\x1f\x7f]", text)


def _socket_path(value: str | None) -> str | None:
    if value is None:
        return None
    if not value.startswith("/"):
        raise ValueError(f"{value!r} is no whole path; expected one from the root, such as /run/vm1.sock")
    length = len(value.encode())
    if length > LONGEST_SOCKET:
        raise ValueError(f"{length} bytes are too long for a socket's path; expected at most {LONGEST_SOCKET}")
    return value


#: As the switch has it (BOND_MEMBERS in dataplane/port/device_bond.h).
MOST_MEMBERS = 8


def _member_uri(value: Any) -> str:
    """if:eth1 of eth1 or {if: eth1}."""
    name = value["if"] if isinstance(value, dict) and set(value) == {"if"} else value
    if not isinstance(name, str):
        raise ValueError(f"{units.shown(value)} is no member; expected an interface's name")
    name = name.removeprefix("if:")
    if not is_interface_name(name):
        raise ValueError(f"{name!r} is no interface's name; {INTERFACE_NAME}")
    return f"if:{name}"


_MEMBER_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "description": "a Linux interface"},
        {
            "type": "object",
            "properties": {"if": {"type": "string"}},
            "required": ["if"],
            "additionalProperties": False,
        },
    ]
}


class Bond(Model):
    """Several devices as one port."""

    members: list[Annotated[str, BeforeValidator(_member_uri), WithJsonSchema(_MEMBER_SCHEMA)]] = Field(
        json_schema_extra={"minItems": 2, "maxItems": MOST_MEMBERS},
        description="two interfaces or more; with active-backup the first one with a link is active at first",
    )
    mode: Literal["active-backup", "lacp"] = Field(
        "active-backup",
        description="active-backup: one member carries all frames, and another if its link is lost; lacp: those of "
        "which LACP (IEEE 802.1AX) has agreed with the other end carry frames, each flow by one of them",
    )

    @field_validator("members")
    @classmethod
    def _several_each_once(cls, value: list[str]) -> list[str]:
        if not 2 <= len(value) <= MOST_MEMBERS:
            raise ValueError(f"a bond joins devices; expected from 2 to {MOST_MEMBERS} members")
        for index, uri in enumerate(value):
            if uri in value[:index]:
                raise ValueError(f"{uri} is a member twice; expected each device once")
        return value

    @property
    def name(self) -> str:
        """active-backup,if:eth1,if:eth2"""
        return ",".join([self.mode, *self.members])


_BOND_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "several devices as one",
    "properties": {
        "members": {"type": "array", "minItems": 2, "maxItems": MOST_MEMBERS, "items": _MEMBER_SCHEMA},
        "mode": {"enum": ["active-backup", "lacp"]},
    },
    "required": ["members"],
    "additionalProperties": False,
}


def members_of(uri: str) -> tuple[str, ...]:
    """The devices that are opened for a URI: the members of a bond, or it itself."""
    return tuple(uri.split(",")[1:]) if uri.startswith("bond:") else (uri,)


class Device(Model):
    """A port outside: exactly one of these."""

    model_config = ConfigDict(populate_by_name=True)

    interface: str | None = Field(
        None,
        alias="if",
        json_schema_extra={"minLength": 1, "maxLength": 15},
        description="a Linux interface, its name without '/', ',' or white space",
    )
    pci: str | None = Field(None, pattern=PCI_ADDRESS, description="a PCI address")
    vdev: str | None = Field(None, min_length=1, description="arguments of a DPDK virtual device")
    tap: str | None = Field(None, min_length=1, description="a TAP interface, which is made under this name")
    xdp: str | None = Field(None, min_length=1, description="a Linux interface, by AF_XDP")
    memif: str | None = Field(
        None, min_length=1, description="a memif socket: PATH of one that another makes, or PATH,role=server"
    )
    pcap: str | None = Field(None, min_length=1, description="capture files: IN, or IN,OUT")
    vhost: str | None = Field(
        None,
        min_length=1,
        description="the socket of a vhost-user back end, such as another switch's port; one that ends is sought again",
    )

    vf: CardFunction | None = Field(
        None, description="a virtual function of a network card, which is made for this, and given back: CARD/NUMBER"
    )
    bond: Bond | None = Field(None, description="several devices as one: {members: [eth1, eth2]}")

    @field_validator("interface", "tap", "xdp")
    @classmethod
    def _an_interface_name(cls, value: str | None) -> str | None:
        if value is not None and not is_interface_name(value):
            raise ValueError(f"{value!r} is no interface's name; {INTERFACE_NAME}")
        return value

    @field_validator("tap")
    @classmethod
    def _no_template(cls, value: str | None) -> str | None:
        if value is not None and "%" in value:
            raise ValueError(f"{value!r} has a '%', of which Linux would make a number; expected a name without it")
        return value

    @field_validator("pci")
    @classmethod
    def _as_linux_writes_it(cls, value: str | None) -> str | None:
        return value.lower() if value is not None else None

    @field_validator("vhost")
    @classmethod
    def _a_path(cls, value: str | None) -> str | None:
        return _socket_path(value)

    @model_validator(mode="after")
    def _exactly_one(self) -> Device:
        if len(self._given()) != 1:
            raise ValueError(f"a device end names exactly one device; expected one of {', '.join(DEVICE_KEYS)}")
        return self

    def _given(self) -> dict[str, str]:
        values = {field.alias or name: getattr(self, name) for name, field in type(self).model_fields.items()}
        texts = {
            key: value.name if isinstance(value, VirtualFunction | Bond) else value for key, value in values.items()
        }
        return {key: value for key, value in texts.items() if value is not None}

    @property
    def uri(self) -> str:
        """As every part of Tailrace writes it: if:veth0, pci:0000:01:00.0, vdev:net_..."""
        ((scheme, rest),) = self._given().items()
        return f"{scheme}:{rest}"

    @property
    def identities(self) -> tuple[str, ...]:
        """What no two ports have in common: an interface is the same one, however its frames are taken."""
        scheme, _, rest = self.uri.partition(":")
        return (f"if:{rest}",) if scheme in ("xdp", "tap") else members_of(self.uri)


DEVICE_KEYS = tuple(field.alias or name for name, field in Device.model_fields.items())
Queues = Annotated[int, Field(ge=1, le=MOST_QUEUES)]


#: A bit rate alone is `max`.
_SHORT_RATE = (
    short(str, lambda value: {"max": value}),
    ShortSchema({"type": "string", "pattern": units.BIT_RATE_PATTERN, "description": "max"}),
)
#: As the switch has it (read_most in dataplane/switch/model_ports.c).
LEAST_PORT_RATE = 1000


def _port_rate(value: int) -> int:
    if value < LEAST_PORT_RATE:
        raise ValueError(f"{units.show_bit_rate(value)} is too little for a port; expected from 1kbps to 1600Gbps")
    return value


PortBitRate = Annotated[BitRate, AfterValidator(_port_rate)]


#: As the switch has it (read_to in dataplane/switch/model_ports.c).
SHAPER_LATENCY = ("100us", "10s")


def _shaper_latency(value: float) -> float:
    least, most = SHAPER_LATENCY
    if not units.parse_duration(least) <= value <= units.parse_duration(most):
        raise ValueError(f"{units.show_duration(value)} is out of range; expected from {least} to {most}")
    return value


class RateTo(Model):
    """The most that a port is sent. It is divided among those that send to it by their `share`."""

    max: PortBitRate | None = Field(
        None, description="most bits a second that it is sent, on layer 2 with FCS: 500Mbps"
    )
    packets: PacketRate | None = Field(None, description="most packets a second that it is sent: 100kpps")
    latency: Annotated[Duration, AfterValidator(_shaper_latency)] | None = Field(
        None,
        description="the longest that a frame waits for the rate in the switch: 10ms unless given; or as long as 16 "
        "frames of 1518 bytes take, where that is longer",
    )

    @model_validator(mode="after")
    def _latency_of_a_rate(self) -> RateTo:
        if self.latency is not None and self.max is None and self.packets is None:
            raise ValueError("latency says how long a frame may wait for a rate; expected max or packets beside it")
        return self


class PortRate(Model):
    """The most that a port sends (which waits in its own ring and is not lost), the most that it is sent, and its
    share of what it sends to."""

    max: PortBitRate | None = Field(None, description="most bits a second that it sends, on layer 2 with FCS: 1Gbps")
    packets: PacketRate | None = Field(None, description="most packets a second that it sends: 500kpps")
    to: Annotated[RateTo, *_SHORT_RATE] = Field(
        default_factory=RateTo,
        description="the most that it is sent: more waits in its sender's ring where that is a guest's and leads to "
        "this port alone, and else in the switch, up to `latency`; beyond that it is dropped (drop_rate)",
    )
    share: int = Field(
        1,
        ge=1,
        le=1000,
        description="its part of a receiver that several ports send to, by bytes, in proportion to theirs: of a "
        "receiver's `to`, or of what it takes while it is full",
    )


class Socket(Model):
    """Who may connect to a guest's socket."""

    mode: str | None = Field(
        None,
        pattern=SOCKET_MODE,
        description="as chmod(1) takes it; '0660' unless given, of a socket with a path of its own",
    )
    group: str | None = Field(None, pattern=GROUP_NAME, description="a group's name: kvm")


class Port(Model):
    """A port of its own, on a device or for a guest that attaches by itself; or what a function's port may carry."""

    device: Device | None = Field(None, description="what it is on; otherwise a guest attaches to it by vhost-user")
    path: str | None = Field(None, description="the guest's socket; in Tailrace's own folder unless given")
    mode: Literal["server", "client"] = Field(
        "server", description="server: the switch listens at the socket; client: it keeps connecting to it"
    )
    queues: Queues = Field(1, description="pairs of queues, one for each CPU of a guest at the best")
    socket: Socket = Field(default_factory=Socket, description="who may connect")
    memory: Size | None = Field(
        None, description="the most memory that its guest may share with the switch: 4GiB; else half of the machine's"
    )
    offloads: bool = Field(True, description="whether checksum and segmentation may be left to the receiver")
    rate: Annotated[PortRate, *_SHORT_RATE] = Field(
        default_factory=PortRate, description="the most that it sends and is sent, and its share"
    )

    @field_validator("path")
    @classmethod
    def _a_path(cls, value: str | None) -> str | None:
        return _socket_path(value)

    @field_validator("memory")
    @classmethod
    def _memory_in_range(cls, value: int | None) -> int | None:
        if value is not None and not 1 << 20 <= value <= MOST_GUEST_MEMORY:
            raise ValueError(f"{units.show_size(value)} is out of range; expected from 1MiB to 2TiB")
        return value

    @model_validator(mode="after")
    def _guest_or_device(self) -> Port:
        if self.device is not None:
            of_a_guest = [name for name, default in _GUEST.items() if getattr(self, name) != default]
            if of_a_guest:
                raise ValueError(f"a port on a device has no {of_a_guest[0]}; expected device, queues or rate")
        elif self.mode == "client" and self.path is None:
            raise ValueError("a port in client mode connects to the guest's own socket; expected its path")
        return self


_GUEST: dict[str, Any] = {"path": None, "mode": "server", "socket": Socket(), "memory": None, "offloads": True}


def expand_port(value: Any) -> Any:
    """{if: veth0, rate: 1Gbps} is {device: {if: veth0}, rate: 1Gbps}; nothing is a guest's port with all defaults."""
    if value is None:
        return {}
    if isinstance(value, dict) and set(value) & set(DEVICE_KEYS) and "device" not in value:
        inner = {key: value[key] for key in value if key in DEVICE_KEYS}
        return {"device": inner, **{key: value[key] for key in value if key not in DEVICE_KEYS}}
    return value


_DEVICE_PROPERTIES: dict[str, Any] = {key: {"type": "string", "minLength": 1} for key in DEVICE_KEYS} | {
    "vf": {"type": ["string", "object"], "description": "CARD/NUMBER, or what `ports` has for a virtual function"},
}
DEVICE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "a device outside: a Linux interface, a PCI device, a DPDK virtual device, …, and its queues",
    "properties": {**_DEVICE_PROPERTIES, "queues": {"type": "integer", "minimum": 1, "maximum": MOST_QUEUES}},
    "additionalProperties": False,
    "minProperties": 1,
    "maxProperties": 2,
}
SHORT_PORT: dict[str, Any] = {
    "anyOf": [
        {"type": "null", "description": "a guest's port, with all defaults"},
        {
            "type": "object",
            "description": "a port on a device",
            "properties": {**DEVICE_SCHEMA["properties"], "bond": _BOND_SCHEMA, "rate": True},
            "additionalProperties": False,
            "minProperties": 1,
        },
    ]
}
ShortPort = Annotated[Port, BeforeValidator(expand_port), ShortSchema(SHORT_PORT)]


def _vlan(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_VLAN:
        raise ValueError(f"{units.shown(value)} is no VLAN; expected a number from 1 to {MOST_VLAN}")
    return value


Vlan = Annotated[int, BeforeValidator(_vlan), WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MOST_VLAN})]


class Member(Model):
    """A port on a bridge: frames go as they come, or it is in one VLAN untagged, or in several tagged."""

    access: Vlan | None = Field(None, description="its only VLAN; the port itself sees no tag")
    trunk: list[Vlan] | None = Field(None, min_length=1, description="its VLANs, tagged")
    native: Vlan | None = Field(None, description="of a trunk: the VLAN of untagged frames")

    @model_validator(mode="after")
    def _one_kind(self) -> Member:
        if self.access is not None and (self.trunk is not None or self.native is not None):
            raise ValueError("a port is in one VLAN or carries several; expected access, or trunk (and native)")
        if self.native is not None and self.trunk is None:
            raise ValueError("a native VLAN is one of a trunk; expected trunk beside it, or access")
        return self


def _expand_members(value: Any) -> Any:
    if isinstance(value, list):
        for index, name in enumerate(value):
            if not isinstance(name, str):
                raise ValueError(f"{units.shown(name)} is no port's name; expected names, such as [tester.a, fw.0]")
            if name in value[:index]:
                raise ValueError(f"{name!r} is listed twice; expected each port once")
        return {name: {} for name in value}
    if isinstance(value, dict):
        return {name: {} if member is None else member for name, member in value.items()}
    return value


_NAMES = {"type": "array", "minItems": 2, "items": {"type": "string"}, "description": "the ports, without VLANs"}


class Bridge(Model):
    """Ports between which frames go by learned MAC address."""

    ports: Annotated[dict[PortName, Member], BeforeValidator(_expand_members), ShortSchema(_NAMES)] = Field(
        description="its ports, each with its VLANs"
    )
    ageing: Annotated[Duration, whole_seconds("1s", "24h")] = Field(
        300.0, validate_default=False, description="a MAC address is forgotten after this time"
    )
    macs: int = Field(4096, ge=1, le=1 << 20, description="most MAC addresses that it learns")
    flood: PacketRate = Field(
        10_000,
        validate_default=False,
        description="most packets a second that each port may have sent to all others: broadcast, multicast and "
        "unknown addresses",
    )

    @field_validator("ports")
    @classmethod
    def _has_ports(cls, value: dict[str, Member]) -> dict[str, Member]:
        if len(value) < 2:
            raise ValueError("a bridge joins ports; expected at least two")
        return value


ShortBridge = Annotated[Bridge, short(list, lambda value: {"ports": value}), ShortSchema(_NAMES)]


class Mirror(Model):
    """A copy of what a port or a chain carries, to another port."""

    port: PortName | None = Field(None, description="whose packets")
    chain: Name | None = Field(None, description="or of which chain")
    direction: Literal["in", "out", "both"] = Field("both", description="in: received from it; out: sent to it")
    to: PortName = Field(description="the port that gets the copies; it carries nothing else")

    @model_validator(mode="after")
    def _one_source(self) -> Mirror:
        if (self.port is None) == (self.chain is None):
            raise ValueError("a mirror copies one thing; expected port or chain")
        if self.port == self.to:
            raise ValueError(f"{self.to!r} would get its own packets; expected another port in `to`")
        return self
