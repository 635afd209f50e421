"""The function that errs as planned: what it does to frames, as a spec words it.

What becomes of which frame follows from the seed alone; dataplane/functions/impair.c says how.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from tailrace.spec import units
from tailrace.spec.kind import Settings

CHANCES = 1 << 32
"""Chances are counted in frames of so many."""
_LEAST = "0.00000002%"
"""The least share that is at least one of them, in round figures."""
MOST_DEPTH = 1 << 26
MOST_DELAY = 1.0
_SHARE_PATTERN = r"^[0-9]+(\.[0-9]+)?%$"


def _share(value: Any) -> float:
    """5% is 0.05."""
    expected = "expected a share of the frames from 0% to 100%, such as 1%"
    text = value.strip() if isinstance(value, str) else ""
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not text.endswith("%") or not 0 <= share <= 1:
        raise ValueError(f"{units.shown(value)} is no share; {expected}")
    if share and not chances(share):
        raise ValueError(f"{units.shown(value)} is not one frame of {CHANCES:,}; expected 0%, or at least {_LEAST}")
    return share


def chances(share: float) -> int:
    """A share as the program counts it, in frames of CHANCES."""
    return round(share * CHANCES)


def _delays(value: Any) -> list[float]:
    """One delay for all replicas, or a list with one for each; 0s is none."""
    delays = []
    for each in value if isinstance(value, list) else [value]:
        nothing = isinstance(each, str) and each.strip() in {f"0{unit}" for unit in units.DURATIONS}
        seconds = 0.0 if nothing else units.parse_duration(each)
        if seconds > MOST_DELAY:
            raise ValueError(f"{each} is too long; expected at most {units.show_duration(MOST_DELAY)}")
        delays.append(seconds)
    if not delays:
        raise ValueError("no delay; expected one, or one for each replica")
    return delays


def _show_delay(seconds: float) -> str:
    return units.show_duration(seconds) if seconds else "0s"


Share = Annotated[
    float,
    BeforeValidator(_share),
    PlainSerializer(lambda share: f"{share * 100:.10g}%"),
    WithJsonSchema({"type": "string", "pattern": _SHARE_PATTERN, "examples": ["1%"]}),
]
_DELAY_SCHEMA = {"type": "string", "pattern": units.DURATION_PATTERN, "examples": ["200us"]}
Delays = Annotated[
    list[float],
    BeforeValidator(_delays),
    PlainSerializer(lambda delays: [_show_delay(each) for each in delays]),
    WithJsonSchema({"anyOf": [_DELAY_SCHEMA, {"type": "array", "minItems": 1, "items": _DELAY_SCHEMA}]}),
]


class Impair(Settings):
    """What the impair function does to the frames of each direction."""

    one_thread: ClassVar[str | None] = "its plan numbers frames in the order in which they come"

    seed: int = Field(1, ge=0, lt=1 << 64, description="what becomes of which frame follows from it")
    drop: Share = Field(0.0, validate_default=False, description="frames that are lost")
    duplicate: Share = Field(0.0, validate_default=False, description="of the others, those that are sent twice")
    reorder: Share = Field(0.0, validate_default=False, description="of the others, those that leave late")
    depth: int = Field(
        100, ge=1, le=MOST_DEPTH, description="a late frame leaves after 1 to so many more frames have come, at random"
    )
    delay: Delays = Field(
        [0.0], validate_default=False, description="of all frames; or a list, with one for each replica in turn"
    )

    @model_validator(mode="after")
    def _late_frames_fit(self) -> Impair:
        # Half of the depth on the average; twice that, and the function would begin to depart from its plan.
        if self.reorder * self.depth > MOST_LATE:
            raise ValueError(
                f"about {self.reorder * self.depth / 2:.0f} frames would be late at once; "
                f"expected at most {MOST_LATE // 2}: a lower reorder or depth"
            )
        return self

    def refuses(self, replicas: int, standby: int) -> str | None:
        del standby
        delays = len(self.delay)
        if delays in (1, replicas):
            return None
        return f"{delays} delays for {replicas} replica(s); expected one for all, or one each"

    def settings(self, replica: int) -> tuple[str, ...]:
        delay = self.delay[min(replica, len(self.delay) - 1)]
        return (
            f"seed={self.seed + replica & (1 << 64) - 1}",
            *(f"{name}={chances(getattr(self, name))}" for name in ("drop", "duplicate", "reorder")),
            f"depth={self.depth}",
            f"delay-us={round(delay * 1e6)}",
        )


MOST_LATE = 4096
"""Frames that the program keeps late at once, in each direction."""
