"""How it is found out whether a function that runs is well."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator

from tailrace.spec import units
from tailrace.spec.fields import Duration, Model, ShortSchema, short

FORWARDS = "forwards"
_RANGE = (0.1, 3600.0)


class Health(Model):
    """What fails so often in succession has a function ended, as if it had ended by itself."""

    command: list[str] | None = Field(
        None,
        min_length=1,
        description="of a container: what is run inside, and ends with status 0 where the function is well; the "
        "function is well if it takes the frames that wait for it, unless given",
    )
    every: Duration = Field(5.0, validate_default=False, description="the pause before each time")
    timeout: Duration = Field(2.0, validate_default=False, description="how long the command may take")
    failures: int = Field(3, ge=1, le=1000, description="how often in succession it fails until the function is ended")

    @field_validator("every", "timeout")
    @classmethod
    def _in_range(cls, value: float) -> float:
        if not _RANGE[0] <= value <= _RANGE[1]:
            raise ValueError(f"{units.show_duration(value)} is out of range; expected 100ms to 1h")
        return value


def _expand(value: Any) -> Any:
    if isinstance(value, list):
        return {"command": value}
    if value != FORWARDS:
        raise ValueError(
            f"{units.shown(value)} is no check; expected {FORWARDS}, or a command such as [/check, --quick]"
        )
    return {}


ShortHealth = Annotated[
    Health,
    short((str, list), _expand),
    ShortSchema(
        {
            "anyOf": [
                {"enum": [FORWARDS], "description": "that it takes the frames that wait for it"},
                {"type": "array", "minItems": 1, "items": {"type": "string"}, "description": "the command"},
            ]
        }
    ),
]
