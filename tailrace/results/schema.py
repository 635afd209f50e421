"""docs/results.schema.json, from the models: `python -m tailrace.results.schema docs/results.schema.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tailrace.results.model import FORMAT, Run


def schema_text() -> str:
    """The JSON Schema (2020-12) of results.json as text."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Run.model_json_schema(mode="serialization"),
        "title": f"Tailrace results.json, format {FORMAT}",
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the schema to the path in the first argument, or to standard output."""
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(schema_text(), encoding="utf-8")
    else:
        sys.stdout.write(schema_text())


if __name__ == "__main__":
    main()
