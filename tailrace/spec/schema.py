"""The spec's JSON Schema, for editors: `python -m tailrace.spec.schema > docs/spec.schema.json`."""

from __future__ import annotations

import json
import sys
from typing import Any

from tailrace.spec.model import Spec


def schema_text() -> str:
    """The schema as it stands in docs/, generated from the models."""
    schema = Spec.model_json_schema(by_alias=True)
    _close(schema)
    return (
        json.dumps(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "tailrace/spec", **schema},
            indent=2,
        )
        + "\n"
    )


def _close(schema: Any) -> None:
    """Where keys have a pattern, no others are taken; pydantic leaves that open."""
    for each in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(each, dict | list):
            _close(each)
    if isinstance(schema, dict) and "patternProperties" in schema:
        schema.setdefault("additionalProperties", False)


if __name__ == "__main__":
    sys.stdout.write(schema_text())
