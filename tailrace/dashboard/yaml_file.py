"""A YAML file that the dashboard is given, checked against its model."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from tailrace.errors import Mistake
from tailrace.spec.core_schema import read_version_1_1

Made = TypeVar("Made")
_QUOTING = (yaml.composer.ComposerError, yaml.constructor.ConstructorError)
"""Errors that say what stands there."""
_WORDS = {
    "extra_forbidden": "there is no such key",
    "missing": "is missing",
    "model_type": "expected keys, each with a value",
    "list_type": "expected a list, with `- ` or [ ]",
    "tuple_type": "expected a list, with `- ` or [ ]",
    "string_type": "expected a text",
}


def read_yaml(path: Path, kind: TypeAdapter[Made]) -> Made:
    """What the file says; an empty one is an empty list or group of keys. Raises Mistake with the first thing that is
    wrong, where it stands, and what is expected. It never says what stands there: that may be a secret."""
    try:
        said = read_version_1_1(path.read_text(encoding="utf-8"))
        empty: object = [] if kind.json_schema().get("type") == "array" else {}
        return kind.validate_python(empty if said is None else said)
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        if isinstance(error, _QUOTING):
            problem = "an alias, an anchor, a tag or a key that is not known here"
        raise Mistake(f"{path}{f':{mark.line + 1}' if mark else ''}: not YAML: {problem or 'not a text'}") from None
    except ValidationError as error:
        raise Mistake(f"{path}: {_said(error.errors(include_url=False, include_input=False)[0])}") from None


def _said(details: ErrorDetails) -> str:
    where = ".".join(map(str, details["loc"])) or "the file"
    if details["type"] == "literal_error":
        return f"{where}: expected {details['ctx']['expected']}"
    words = details["msg"].removeprefix("Value error, ").replace("Input should be ", "expected ")
    return f"{where}: {_WORDS.get(details['type'], words)}"
