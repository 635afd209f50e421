"""What a test sends, as a spec words it: frames or a capture, flows, and rates that there are lines for."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)

from tailrace.spec import units
from tailrace.spec.fields import Model

SMALLEST_FRAME = 64
LARGEST_FRAME = 1518
MOST_FLOWS = 1_000_000
#: 7:4:1 of 64, 570 and 1518 B: a mean of 353.8 B.
IMIX_FRAMES = (64, 570, 1518)
IMIX_WEIGHTS = (7, 4, 1)
IMIX_MEAN = sum(size * weight for size, weight in zip(IMIX_FRAMES, IMIX_WEIGHTS, strict=True)) / sum(IMIX_WEIGHTS)


def _check_frame(value: Any) -> Any:
    expected = f"expected a frame size from {SMALLEST_FRAME} to {LARGEST_FRAME} (with FCS), or imix"
    if value == "imix":
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{units.shown(value)} is no frame size; {expected}")
    if not SMALLEST_FRAME <= value <= LARGEST_FRAME:
        raise ValueError(f"{value} is out of range; {expected}")
    return value


def differ(value: list[Any]) -> list[Any]:
    """Raises ValueError if nothing is in a list, or something twice."""
    if not value:
        raise ValueError("nothing to measure; expected at least one")
    return differ_or_none(value)


def differ_or_none(value: list[Any]) -> list[Any]:
    """Raises ValueError if something is in a list twice."""
    for index, each in enumerate(value):
        if each in value[:index]:
            raise ValueError(f"{each} is listed twice; expected each once")
    return value


#: A single value is a list of one.
listed = BeforeValidator(lambda value: value if isinstance(value, list) else [value])
_FRAME_SCHEMA = {"anyOf": [{"type": "integer", "minimum": SMALLEST_FRAME, "maximum": LARGEST_FRAME}, {"const": "imix"}]}
Frame = Annotated[int | Literal["imix"], BeforeValidator(_check_frame), WithJsonSchema(_FRAME_SCHEMA)]
Frames = Annotated[
    list[Frame],
    listed,
    AfterValidator(differ),
    WithJsonSchema({"anyOf": [_FRAME_SCHEMA, {"type": "array", "minItems": 1, "items": _FRAME_SCHEMA}]}),
]


class Traffic(Model):
    """What is sent, in both directions at once: what all tests have in common."""

    frames: Frames = Field([64, 256, "imix", 1518], validate_default=False, description="each is measured on its own")
    pcap: str | None = Field(
        None,
        min_length=1,
        description="a capture file (pcap or pcapng) to send instead of `frames`; the last 18 bytes of each datagram "
        "are overwritten",
    )
    flows: int = Field(1, ge=1, le=MOST_FLOWS, description="UDP flows in each direction")

    @model_validator(mode="after")
    def _one_traffic(self) -> Traffic:
        if self.pcap is not None and "frames" in self.model_fields_set:
            raise ValueError("frames and pcap both say what to send; expected one of them")
        return self

    @model_serializer(mode="wrap")
    def _one_traffic_again(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What is written reads back the same: beside a capture, frames are none."""
        written: dict[str, Any] = write(self)
        if self.pcap is not None:
            written.pop("frames", None)
        return written

    @field_validator("rate", check_fields=False)
    @classmethod
    def _some_line_carries_it(cls, value: Any, info: ValidationInfo) -> Any:
        """Whatever a test's rate is: one that no line has for its longest frames is a mistake of units."""
        frames = [SMALLEST_FRAME] if info.data.get("pcap") is not None else info.data.get("frames", ())
        size = max((IMIX_MEAN if each == "imix" else each for each in frames), default=SMALLEST_FRAME)
        most = int(units.MOST_BPS / size / 8)
        for pps in _packet_rates(value):
            if pps > most:
                raise ValueError(
                    f"{units.show_packet_rate(round(pps))} of {size:g} B frames is more than any line carries; "
                    f"expected at most {units.show_packet_rate(most)} ({units.show_bit_rate(units.MOST_BPS)})"
                )
        return value


def packet_rates(test: Model) -> list[float]:
    """The rates that a test gives outright, in packets a second; none where it gives parts of a rate to be found."""
    return _packet_rates(getattr(test, "rate", None))


def _packet_rates(asked: Any) -> list[float]:
    found = [
        each.pps if isinstance(each, units.Rate) else each for each in (asked if isinstance(asked, list) else [asked])
    ]
    return [float(each) for each in found if each]
