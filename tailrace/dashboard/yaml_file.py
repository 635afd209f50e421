"""A YAML file that the dashboard is given, checked against its model."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from tailrace.errors import Mistake
from tailrace.spec.core_schema import read_version_1_1
from tailrace.spec.position import Document, Location, parse_document, raise_any, shown_key
from tailrace.spec.source import SpecError, printable

Made = TypeVar("Made")
_QUOTING = (yaml.composer.ComposerError, yaml.constructor.ConstructorError)
"""Errors that say what stands there."""
_WORDS = {
    "missing": "is missing",
    "model_type": "expected keys, each with a value",
    "list_type": "expected a list, with `- ` or [ ]",
    "tuple_type": "expected a list, with `- ` or [ ]",
    "string_type": "expected a text",
}


def read_yaml(path: Path, kind: TypeAdapter[Made]) -> Made:
    """What the file says; an empty one is an empty list or group of keys. Raises Mistake with all that is wrong, each
    thing with its line and with what is expected. It never says what stands there: that may be a secret."""
    schema = kind.json_schema()
    try:
        text = path.read_text(encoding="utf-8")
        said = read_version_1_1(text)
        empty: object = [] if schema.get("type") == "array" else {}
        return kind.validate_python(empty if said is None else said)
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        if isinstance(error, _QUOTING):
            problem = "an alias, an anchor, a tag or a key that is not known here"
        raise Mistake(f"{path}{f':{mark.line + 1}' if mark else ''}: not YAML: {problem or 'not a text'}") from None
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
    raise_any(_mistakes(_located(text, printable(str(path))), schema, details))
    raise AssertionError(details)


def _located(text: str, shown: str) -> Document:
    """Where everything stands."""
    try:
        return parse_document(text, shown)
    except SpecError:  # what YAML 1.1 takes, and 1.2 does not
        return Document(shown, None)


def _mistakes(document: Document, schema: dict[str, Any], details: Sequence[ErrorDetails]) -> Iterator[SpecError]:
    unknown = [each["loc"] for each in details if each["type"] == "extra_forbidden"]
    meant = {at: next(iter(difflib.get_close_matches(str(at[-1]), _keys(schema, at[:-1]), 1)), "") for at in unknown}
    misspelt = {(*at[:-1], near) for at, near in meant.items()}
    for each in details:
        at = each["loc"]
        if each["type"] == "missing" and at in misspelt:
            continue
        around = at[:-1] if each["type"] == "missing" else at
        words = _said(each)
        if at in meant:
            near = f" (did you mean {meant[at]}?)" if meant[at] else ""
            words = f"there is no such key; expected one of {', '.join(_keys(schema, at[:-1]))}{near}"
        yield SpecError(document.path, document.key(around), f"{shown_key(at) or 'the file'}: {words}")


def _keys(schema: dict[str, Any], location: Location) -> list[str]:
    """Those that there may be at a location, by the schema."""
    found = schema
    for step in (*location, None):
        while "$ref" in found:
            found = schema["$defs"][found["$ref"].rpartition("/")[2]]
        if step is not None:
            found = found["items"] if isinstance(step, int) else found["properties"][step]
    return list(found["properties"])


def _said(details: ErrorDetails) -> str:
    if details["type"] == "literal_error":
        return f"expected {details['ctx']['expected']}"
    if details["type"] == "too_long":
        return f"expected at most {details['ctx']['max_length']} items"
    words = details["msg"].removeprefix("Value error, ").replace("Input should be ", "expected ")
    return _WORDS.get(details["type"], words)
