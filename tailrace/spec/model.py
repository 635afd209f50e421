"""What a user can ask for, as typed models; the short and the long form of a thing are one model.

The words here are the words on the command line, in results and in reports. The JSON Schema in docs/ is generated
from these models (`tailrace.spec.schema`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from tailrace.spec import units

SMALLEST_FRAME = 64
LARGEST_FRAME = 1518
MOST_FLOWS = 1_000_000
TESTER_ENDS = ("tester.a", "tester.b")
#: Names that stand beside the functions' own: of processes, logs and ports.
RESERVED_NAMES = {"switch": "the switch", "tester": "the tester, whose ends are tester.a and tester.b"}
LEAST_MEMORY = 128 << 20
MOST_MEMORY = 1 << 40
#: 7:4:1 of 64, 570 and 1518 B: a mean of 353.8 B.
IMIX_FRAMES = (64, 570, 1518)
IMIX_WEIGHTS = (7, 4, 1)


class _Short:
    """Marks a model as having a short form: `expand` makes the long one of it, `schema` describes it."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [self.schema, dict(handler(core))]}


def _short(wanted: type | tuple[type, ...], expand: Callable[[Any], Any]) -> BeforeValidator:
    return BeforeValidator(lambda value: expand(value) if isinstance(value, wanted) else value)


def _text(pattern: str, example: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern, "examples": [example]})


Duration = Annotated[
    float,
    BeforeValidator(lambda value: units.parse_duration(value)),
    PlainSerializer(units.show_duration),
    _text(units.DURATION_PATTERN, "60s"),
]
Size = Annotated[
    int,
    BeforeValidator(lambda value: units.parse_size(value)),
    PlainSerializer(units.show_size),
    _text(units.SIZE_PATTERN, "256MiB"),
]
Rate = Annotated[
    units.Rate,
    BeforeValidator(lambda value: units.parse_rate(value)),
    PlainSerializer(str),
    _text(units.RATE_PATTERN, "90%"),
]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class Fabric(_Model):
    """What carries packets between the functions."""

    kind: Literal["tailrace"] = Field("tailrace", description="tailrace: Tailrace's own one-copy switch")
    backpressure: Duration = Field(
        0.020,
        validate_default=False,
        description="how long a frame waits in its sender's ring for a full receiver before it is dropped and counted",
    )
    idle: Literal["poll", "pause"] = Field(
        "poll", description="what the switch's worker does when it finds nothing: poll on, or pause to save power"
    )

    @field_validator("backpressure")
    @classmethod
    def _backpressure_in_range(cls, value: float) -> float:
        if value > 10:
            raise ValueError(f"{units.show_duration(value)} is too long; expected at most 10s")
        return value


class Function(_Model):
    """A virtual network function. It lives in a sandboxed process of its own."""

    kind: Literal["skeleton"] = Field(description="skeleton: forwards between its two ports and does nothing else")
    memory: Size = Field(
        256 << 20, validate_default=False, description="the most memory that the sandbox may use besides huge pages"
    )

    @field_validator("memory")
    @classmethod
    def _memory_in_range(cls, value: int) -> int:
        if value < LEAST_MEMORY:
            raise ValueError(f"{units.show_size(value)} is too little to start in; expected at least 128MiB")
        if value > MOST_MEMORY:
            raise ValueError(f"{units.show_size(value)} is more than any machine has; expected at most 1024GiB")
        return value


INTERFACE_NAME = "expected 1 to 15 characters without '/', ',' or white space, such as veth0"


def is_interface_name(text: str) -> bool:
    """Whether Linux could have an interface of this name, and DPDK, which reads a comma as a separator, open it."""
    return 1 <= len(text.encode()) <= 15 and text not in (".", "..") and not re.search(r"[/,\s\x00-\x1f\x7f]", text)


class Device(_Model):
    """A chain's end outside: exactly one of a Linux interface, a PCI device, or a DPDK virtual device."""

    model_config = ConfigDict(populate_by_name=True)

    interface: str | None = Field(
        None,
        alias="if",
        json_schema_extra={"minLength": 1, "maxLength": 15},
        description="a Linux interface, its name without '/', ',' or white space",
    )
    pci: str | None = Field(
        None, pattern=r"^[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$", description="a PCI address"
    )
    vdev: str | None = Field(None, min_length=1, description="arguments of a DPDK virtual device")

    @field_validator("interface")
    @classmethod
    def _an_interface_name(cls, value: str | None) -> str | None:
        if value is not None and not is_interface_name(value):
            raise ValueError(f"{value!r} is no interface's name; {INTERFACE_NAME}")
        return value

    @model_validator(mode="after")
    def _exactly_one(self) -> Device:
        if sum(value is not None for value in (self.interface, self.pci, self.vdev)) != 1:
            raise ValueError("a device end names exactly one device; expected one of if, pci, vdev")
        return self

    @property
    def uri(self) -> str:
        """As every part of Tailrace writes it: if:veth0, pci:0000:01:00.0, vdev:net_..."""
        if self.interface is not None:
            return f"if:{self.interface}"
        return f"pci:{self.pci}" if self.pci is not None else f"vdev:{self.vdev}"


class Hop(_Model):
    """One place on a chain: a tester's end, a function, or a device."""

    name: str | None = None
    device: Device | None = None

    def __str__(self) -> str:
        return self.name if self.name is not None else (self.device.uri if self.device else "")


def _expand_hop(value: Any) -> Any:
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict) and not set(value) & {"name", "device"}:
        return {"device": value}
    if isinstance(value, dict | Hop):
        return value
    raise ValueError(
        f"{units.shown(value)} is no place on a chain; "
        "expected a function's name, tester.a, tester.b, or a device such as {if: veth0}"
    )


_HOP_SCHEMA = {
    "anyOf": [
        {"type": "string", "description": "a function's name, tester.a or tester.b"},
        {
            "type": "object",
            "description": "a device outside: one of a Linux interface, a PCI device, a DPDK virtual device",
            "properties": {key: {"type": "string", "minLength": 1} for key in ("if", "pci", "vdev")},
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
        },
    ]
}


class Chain(_Model):
    """An ordered path: an end, the functions a packet passes, an end."""

    path: Annotated[
        list[Annotated[Hop, BeforeValidator(_expand_hop)]],
        WithJsonSchema({"type": "array", "minItems": 2, "items": _HOP_SCHEMA}),
    ]

    @field_validator("path")
    @classmethod
    def _has_ends(cls, value: list[Hop]) -> list[Hop]:
        if len(value) < 2:
            raise ValueError("a chain has two ends; expected at least [tester.a, tester.b]")
        return value


def _check_frame(value: Any) -> Any:
    expected = f"expected a frame size from {SMALLEST_FRAME} to {LARGEST_FRAME} (with FCS), or imix"
    if value == "imix":
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{units.shown(value)} is no frame size; {expected}")
    if not SMALLEST_FRAME <= value <= LARGEST_FRAME:
        raise ValueError(f"{value} is out of range; {expected}")
    return value


_FRAME_SCHEMA = {"anyOf": [{"type": "integer", "minimum": SMALLEST_FRAME, "maximum": LARGEST_FRAME}, {"const": "imix"}]}
Frame = Annotated[int | Literal["imix"], BeforeValidator(_check_frame), WithJsonSchema(_FRAME_SCHEMA)]


class Latency(_Model):
    """One-way latency of the chain between tester.a and tester.b, both directions at once, every frame timed."""

    frames: Annotated[
        list[Frame],
        _short((int, str), lambda value: [value]),
        WithJsonSchema({"anyOf": [_FRAME_SCHEMA, {"type": "array", "minItems": 1, "items": _FRAME_SCHEMA}]}),
    ] = Field([64, 256, "imix", 1518], validate_default=False, description="profiles; each is measured on its own")
    pcap: str | None = Field(None, min_length=1, description="a capture file to send instead of `frames`")
    rate: Rate = Field(
        units.Rate(fraction=0.9),
        validate_default=False,
        description="in each direction: packets a second, or a part of the no-loss rate, which is then searched for",
    )
    duration: Duration = Field(60.0, validate_default=False, description="of the measured trial of each profile")
    flows: int = Field(1, ge=1, le=MOST_FLOWS, description="UDP flows in each direction")

    @field_validator("frames")
    @classmethod
    def _frames_differ(cls, value: list[Any]) -> list[Any]:
        if not value:
            raise ValueError("no profile to measure; expected at least one frame size, or imix")
        for index, frame in enumerate(value):
            if frame in value[:index]:
                raise ValueError(f"{frame} is listed twice; expected each profile once")
        return value

    @field_validator("duration")
    @classmethod
    def _duration_in_range(cls, value: float) -> float:
        if not 0.1 <= value <= 14 * 24 * 3600:
            raise ValueError(f"{units.show_duration(value)} is out of range; expected from 100ms to 336h")
        return value

    @model_validator(mode="after")
    def _one_traffic(self) -> Latency:
        if self.pcap is not None and "frames" in self.model_fields_set:
            raise ValueError("frames and pcap both say what to send; expected one of them")
        return self


class Test(_Model):
    """Something to measure."""

    __test__ = False  # not one of pytest's
    latency: Latency


ShortFabric = Annotated[
    Fabric, _short(str, lambda value: {"kind": value}), _Short({"enum": ["tailrace"], "description": "the kind"})
]
ShortFunction = Annotated[
    Function, _short(str, lambda value: {"kind": value}), _Short({"enum": ["skeleton"], "description": "the kind"})
]
ShortChain = Annotated[
    Chain,
    _short(list, lambda value: {"path": value}),
    _Short({"type": "array", "minItems": 2, "items": _HOP_SCHEMA, "description": "the path"}),
]
ShortTest = Annotated[
    Test, _short(str, lambda value: {value: {}}), _Short({"enum": ["latency"], "description": "with its defaults"})
]
Name = Annotated[
    str,
    Field(pattern=r"^[a-z][a-z0-9-]{0,23}$", description="small letters, digits and hyphens; 24 at most"),
]


class Spec(_Model):
    """What should exist on this machine, and what should be measured on it."""

    fabric: ShortFabric = Field(default_factory=lambda: Fabric(), description="what carries packets")
    functions: dict[Name, ShortFunction] = Field(default_factory=dict, description="virtual network functions by name")
    chains: dict[Name, ShortChain] = Field(description="paths by name")
    tests: list[ShortTest] = Field(default_factory=list, description="what to measure")

    def tester_chain(self) -> tuple[str, Chain] | None:
        """The chain from one end of the tester to the other, which is what tests measure."""
        for name, chain in self.chains.items():
            ends = {chain.path[0].name, chain.path[-1].name}
            if ends == set(TESTER_ENDS):
                return name, chain
        return None
