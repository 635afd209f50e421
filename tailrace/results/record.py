"""What every model of results.json is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)]

FLOOR_TIMES = 3
"""A median of fewer times the tester's own floor than this says as much of the tester as of what was measured."""


UNSENT_TOLERANCE = 0.02
"""Of the frames offered, how many may stay unsent for a rate to count as kept. On a shared core a scheduler's tick
costs the tester some; also a device that takes frames late makes some. They are shown as unsent, and never lost."""


FAULTS = ("lost", "duplicate", "out_of_sequence", "beyond_window", "foreign")
"""The counts that are all 0 where every frame that was sent came back, once and in order, and nothing else came."""


CAPTURE_SUM = ", SHA-256 "
"""Between a capture's name and the beginning of its check sum."""


class TrafficKind(NamedTuple):
    """A kind of traffic, by the words of `OfTraffic`."""

    profile: str
    flows: int | None = None
    capture: str | None = None


class ResultError(Exception):
    """Results that cannot be read, or that contradict themselves. The message is one line for the user."""


class Record(BaseModel):
    """What all models share: frozen, no unknown keys, no NaN or infinity."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        defer_build=True,
    )


class Latency(Record):
    """One-way latency in µs, over every frame received (all copies), on the tester's own clock."""

    min: Amount = Field(description="Smallest latency, exact, in µs.")
    average: Amount = Field(description="Arithmetic mean over every frame, exact, in µs.")
    p50: Amount = Field(description="Median, in µs; like every percentile here at most 1 % above the exact quantile.")
    p90: Amount = Field(description="90th percentile, in µs.")
    p99: Amount = Field(description="99th percentile, in µs.")
    p99_9: Amount = Field(
        validation_alias="p99.9", serialization_alias="p99.9", description="99.9th percentile, in µs."
    )
    p99_99: Amount = Field(
        validation_alias="p99.99", serialization_alias="p99.99", description="99.99th percentile, in µs."
    )
    max: Amount = Field(description="Largest latency, exact, in µs.")


class HistogramReference(Record):
    """Where the whole latency distribution lies: a line of an HDR V2 histogram log in the run folder."""

    file: str = Field(description="Path of the log, relative to the run folder.")
    tag: str = Field(description="The tag of the line in the log.")


class ClockStep(Record):
    """The machine's clock was set while something was measured. No figure goes by that clock, so none is touched."""

    at_s: Amount = Field(description="End of the interval in which it was, in seconds after the start of the soak.")
    step_s: float = Field(description="By how much, in seconds.")


class Gap(Record):
    """A time in which a soak did not measure, because it was broken off and gone on with later."""

    start_s: Amount = Field(description="End of the last interval before it, in seconds after the start of the soak.")
    end_s: Amount = Field(description="When measuring went on.")
    reason: str = Field(description="Why the soak was broken off.")


def is_near_floor(ratio: float | None) -> bool:
    """Whether a median that is so many times the tester's own is the tester's as much as anybody's."""
    return ratio is not None and ratio < FLOOR_TIMES


@dataclass(frozen=True)
class Sent:
    """How much of what was offered was sent in the trials behind a figure.

    One of them is enough for the figure to be marked: a median over pairs or rounds hides it, their spread does not.
    """

    ratios: tuple[float, ...]
    """Sent ÷ offered of each trial, where that is known."""

    @property
    def short(self) -> int:
        """How many trials sent so much less than was offered that what they measured is of a lower rate."""
        return sum(ratio < 1 - UNSENT_TOLERANCE for ratio in self.ratios)

    @property
    def fell_short(self) -> bool | None:
        """Whether any trial did; None if nothing is known."""
        return self.short > 0 if self.ratios else None

    def marks(self, figure: str) -> bool | None:
        """The same of one figure. A no-loss rate is looked for at other rates than the one offered, and a neighbour
        runs at its own."""
        return None if figure.startswith(("no_loss_", "neighbour_")) else self.fell_short

    def __add__(self, other: Sent) -> Sent:
        return Sent(self.ratios + other.ratios)


def name_in_round(case: str, number: int) -> str:
    """What a case is called when it is measured for the n-th time: one-function-64, one-function-64-round-2."""
    return case if number == 1 else f"{case}-round-{number}"


class OfTraffic(Record):
    """What is said of one kind of traffic."""

    profile: str = Field(min_length=1, description='Traffic profile: a frame size in bytes, "imix" or "pcap".')
    flows: Count | None = Field(default=None, description="UDP flows each way; null of a capture, or if not known.")
    capture: str | None = Field(
        default=None,
        description="Name of the capture file that was sent, with the beginning of its SHA-256 sum (up to format 6 the "
        "name alone); null of other traffic.",
    )

    @property
    def traffic_kind(self) -> TrafficKind:
        """What was sent: only what is of the same kind of traffic says something of each other."""
        return TrafficKind(self.profile, self.flows, self.capture)


class Measurement(OfTraffic):
    """What trials and findings have in common."""

    name: str = Field(min_length=1, description="Its name, unique in the run (of findings, for each method).")
    functions: Count | None = Field(
        description="Functions in the chain; 0 is the tester's own floor, null a device between two ports, of which "
        "Tailrace manages nothing."
    )
    round: int = Field(default=1, ge=1, description="Which time it was measured, where --repeat asked for several.")
    valid: bool = Field(description="False if the figures must not be relied upon.")
    reason: str | None = Field(description="Why it is not valid; null if it is.")

    @model_validator(mode="after")
    def _reasoned(self) -> Self:
        if self.valid != (self.reason is None):
            raise ValueError("a reason is given exactly where valid is false")
        return self

    @property
    def is_floor(self) -> bool:
        """Whether it is the tester to itself, with no function between."""
        return self.functions == 0

    @property
    def case(self) -> str:
        """The name without the round: what it is a repetition of."""
        return self.name.removesuffix(f"-round-{self.round}") if self.round > 1 else self.name
