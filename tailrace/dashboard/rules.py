"""Rules for alarms: a YAML file, checked.

`python -m tailrace.dashboard.rules > docs/alarms.schema.json` writes its schema.
"""

from __future__ import annotations

import json
import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter

from tailrace.dashboard.yaml_file import read_yaml
from tailrace.switch.config import function_name, planned_port

MOST = 256
When = Literal["loss", "out-of-sequence", "drift", "port-down", "node-failed", "function-restarted"]


def _web(url: str) -> str:
    try:
        usable = re.fullmatch(r"https?://[^/?#\s]+[!-~]*", url) is not None and urlsplit(url).port != 0
    except ValueError:  # a port that is none
        usable = False
    if not usable:
        raise ValueError("expected http://… or https://…, in ASCII and without spaces (%20), and no port 0")
    return url


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Rule(_Part):
    """What is an alarm."""

    when: When = Field(
        description="loss: a chain drops frames; out-of-sequence: a measurement under way sees frames reordered; "
        "drift: the host or the switch is not as it was set; port-down: a port's device or guest is gone; "
        "node-failed: the switch has ended by itself, what was up cannot be brought back, or its record be read; "
        "function-restarted: a function has ended by itself, or failed its check"
    )
    about: str = Field(
        "*", max_length=256, description="names of chains, ports, functions or runs; * and ? stand for any"
    )
    above: float = Field(0.0, ge=0, description="loss, out-of-sequence: only above so many frames a second")
    level: Literal["warning", "alarm"] = "alarm"

    def fits(self, about: str) -> bool:
        """Whether it is about that, of whichever instance of a function it is: fw@2 is fw, fw@2.0 is fw.0."""
        planned = planned_port(about) if "." in about else function_name(about)
        return any(fnmatchcase(each, self.about) for each in (about, planned))


class Webhook(_Part):
    """Who is told of each alarm: a POST with a JSON object."""

    url: Annotated[str, AfterValidator(_web)] = Field(max_length=2048)


class Rules(_Part):
    """The whole file."""

    rules: tuple[Rule, ...] = Field(
        tuple(Rule(when=when) for when in get_args(When)),
        max_length=MOST,
        description="unless given, everything is an alarm",
    )
    webhooks: tuple[Webhook, ...] = Field((), max_length=16)


EVERYTHING = Rules()


def read_rules(path: Path) -> Rules:
    """Raises Mistake with what is wrong, and where."""
    return read_yaml(path, TypeAdapter(Rules))


def schema_text() -> str:
    """The schema as it stands in docs/."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "tailrace/alarms"}
    return json.dumps({**head, **Rules.model_json_schema()}, indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
