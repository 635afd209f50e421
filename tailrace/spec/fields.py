"""What every model of the spec is made of: strictness, short forms, quantities and names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)
from pydantic_core import CoreSchema

from tailrace.spec import units


class Model(BaseModel):
    """Takes no key that it does not know, no text or fraction for a whole number, and never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True, defer_build=True)


class ShortSchema:
    """Tells a model's JSON schema of its short form."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [self.schema, dict(handler(core))]}


class OneOrMany:
    """Tells a list's JSON schema that its only item may stand without the list."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = dict(handler(core))
        return {"anyOf": [schema["items"], schema]}


def short(wanted: type | tuple[type, ...], expand: Callable[[Any], Any]) -> BeforeValidator:
    """A short form: where a value is of a wanted type, `expand` makes the long form of it."""
    return BeforeValidator(lambda value: expand(value) if isinstance(value, wanted) else value)


def each_once(read: Callable[[Any], Any], what: str) -> WrapValidator:
    """Of keys that have several spellings: each is there once. `read` makes the same of all spellings of one `what`."""

    def check(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        found = handler(value)
        if not isinstance(value, dict) or len(found) == len(value):
            return found
        spellings: dict[Any, list[str]] = {}
        for key in value:
            spellings.setdefault(read(key), []).append(f"{key!r}")
        several = [" and ".join(each) for each in spellings.values() if len(each) > 1]
        raise ValueError(f"{', '.join(several)} are the same {what}; expected each once")

    return WrapValidator(check)


def text_schema(pattern: str, example: str) -> WithJsonSchema:
    """The JSON schema of a quantity that is written as text."""
    return WithJsonSchema({"type": "string", "pattern": pattern, "examples": [example]})


Duration = Annotated[
    float,
    BeforeValidator(lambda value: units.parse_duration(value)),
    PlainSerializer(units.show_duration),
    text_schema(units.DURATION_PATTERN, "60s"),
]


def whole_seconds(least: str, most: str) -> AfterValidator:
    """Of a duration: in a range, and no fraction of a second, which the switch has no word for."""
    first, last = units.parse_duration(least), units.parse_duration(most)

    def check(value: float) -> float:
        if not first <= value <= last or value != int(value):
            raise ValueError(
                f"{units.show_duration(value)} is out of range; expected whole seconds from {least} to {most}"
            )
        return value

    return AfterValidator(check)


Pause = Annotated[
    float,
    BeforeValidator(lambda value: units.parse_pause(value)),
    PlainSerializer(units.show_duration),
    text_schema(units.DURATION_PATTERN, "5s"),
]
"""A duration that may be none: 0s."""
Size = Annotated[
    int,
    BeforeValidator(lambda value: units.parse_size(value)),
    PlainSerializer(units.show_size),
    text_schema(units.SIZE_PATTERN, "256MiB"),
]
Rate = Annotated[
    units.Rate,
    BeforeValidator(lambda value: units.parse_rate(value)),
    PlainSerializer(str),
    text_schema(units.RATE_PATTERN, "90%"),
]
Ratio = Annotated[
    float,
    BeforeValidator(lambda value: units.parse_ratio(value)),
    PlainSerializer(units.show_ratio),
    text_schema(units.RATIO_PATTERN, "0.5%"),
]
BitRate = Annotated[
    int,
    BeforeValidator(lambda value: units.parse_bit_rate(value)),
    PlainSerializer(units.show_bit_rate),
    text_schema(units.BIT_RATE_PATTERN, "1Gbps"),
]
PacketRate = Annotated[
    int,
    BeforeValidator(lambda value: units.parse_packet_rate(value)),
    PlainSerializer(units.show_packet_rate),
    text_schema(units.PACKET_RATE_PATTERN, "1Mpps"),
]

NAME = r"[a-z][a-z0-9-]{0,23}"
_NAME = rf"^{NAME}$"
_PORT_NAME = rf"^({NAME}(\.([0-9]|1[0-5]))?|tester\.[ab])$"
#: What a text cannot be that is written otherwise, and what was expected.
NAMES = {
    _NAME: ("name", "small letters, digits and hyphens, a letter first, 24 at most"),
    _PORT_NAME: (
        "port",
        "small letters, digits and hyphens, a letter first, 24 at most; or tester.a, tester.b, FUNCTION.0 to "
        "FUNCTION.15",
    ),
}
Name = Annotated[
    str,
    Field(pattern=_NAME, description="small letters, digits and hyphens; 24 at most"),
]
#: A port has a name of its own, or is one of the two of a function or of the tester.
PortName = Annotated[
    str,
    Field(
        pattern=_PORT_NAME,
        description="a name under `ports`, tester.a, tester.b, or FUNCTION.0 to FUNCTION.15",
    ),
]
