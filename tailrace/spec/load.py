"""A spec file into a checked `Spec`, or one message: `file:line:column: what; what was expected`."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tailrace.spec import units
from tailrace.spec.check import cross_check
from tailrace.spec.model import (
    Bridge,
    Chain,
    Device,
    Fabric,
    Function,
    Hop,
    Impair,
    Match,
    Member,
    Mirror,
    Port,
    PortRate,
    RateTo,
    Socket,
    Spec,
    Test,
    Trace,
)
from tailrace.spec.port import PATTERNS
from tailrace.spec.position import Document, Location, SpecError, naming, parse_document, read_document, shown_key
from tailrace.spec.tests import METHODS

#: The model that a location in the spec belongs to; `None` stands for any name or index.
_MODELS: list[tuple[tuple[str | None, ...], type[BaseModel]]] = [
    ((), Spec),
    (("fabric",), Fabric),
    (("ports", None), Port),
    (("ports", None, "device"), Device),
    (("ports", None, "socket"), Socket),
    (("ports", None, "rate"), PortRate),
    (("ports", None, "rate", "to"), RateTo),
    (("functions", None), Function),
    (("functions", None, "impair"), Impair),
    (("chains", None), Chain),
    (("chains", None, "match", None), Match),
    (("chains", None, "path", None), Hop),
    (("chains", None, "path", None, "device"), Device),
    (("bridges", None), Bridge),
    (("bridges", None, "ports", None), Member),
    (("mirrors", None), Mirror),
    (("trace",), Trace),
    (("tests", None), Test),
    *((("tests", None, name), model) for name, model in METHODS.items()),
]


def load_spec(path: Path) -> Spec:
    """Reads and checks a spec; raises `SpecError` for the first thing wrong with it, in the order of the file."""
    return load_located(path)[0]


def load_located(path: Path) -> tuple[Spec, Document]:
    """The same with the document, which knows where everything stands, for what is found out later."""
    document = read_document(path)
    return _check(document), document


def parse_spec(text: str, name: str) -> Spec:
    """The same for a text that is no file; `name` stands for the file in messages."""
    return _check(parse_document(text, name))


def _check(document: Document) -> Spec:
    if not isinstance(document.data, dict):
        raise SpecError(document.path, document.value(()), "this is not a spec; expected the keys " + _keys_of(Spec))
    try:
        spec = Spec.model_validate(document.data)
    except ValidationError as error:
        # A misspelt key is also a missing one: the misspelling is what the user needs to hear about.
        found = [(details["type"] == "missing", _explain(document, details)) for details in error.errors()]
        raise min(found, key=lambda each: (each[0], each[1].position))[1] from None
    problems = cross_check(document, spec)
    if problems:
        raise min(problems, key=lambda each: each.position)
    return spec


def _model_at(location: Location) -> type[BaseModel] | None:
    for pattern, model in _MODELS:
        if len(pattern) == len(location) and all(
            want is None or want == have for want, have in zip(pattern, location, strict=True)
        ):
            return model
    return None


def _keys_of(model: type[BaseModel]) -> str:
    return ", ".join(field.alias or name for name, field in model.model_fields.items())


def _written(document: Document, location: Location) -> Location:
    """The location as it stands in the file: a short form lacks the steps that the long form has."""
    written: Location = ()
    data: Any = document.data
    for step in location:
        inside = isinstance(data, dict) and step in data
        if isinstance(data, list):
            inside = isinstance(step, int) and step < len(data)
        if not inside:
            continue
        data = data[step]
        written = (*written, step)
    return written


def _shown(location: Location) -> str:
    return shown_key(location) or "the spec"


def _explain(document: Document, details: ErrorDetails) -> SpecError:
    location = tuple(step for step in details["loc"] if step != "[key]")
    written = _written(document, location)
    kind = details["type"]
    position = document.value(written)
    value = units.shown(details["input"])
    if kind == "extra_forbidden":
        around = location[:-1]
        model = _model_at(around)
        keys = _keys_of(Device if model is Hop else model) if model else "none"
        key = str(location[-1])
        near = difflib.get_close_matches(key, keys.split(", "), 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        position = document.key((*_written(document, around), key))
        written = _written(document, around)
        message = f"unknown key {key!r} in {_shown(written)}; expected one of {keys}{hint}"
    elif kind == "missing":
        written = _written(document, location[:-1])
        position = document.key(written) if written else document.value(())
        message = f"{_shown(written)} lacks {str(location[-1])!r}; expected the key `{location[-1]}:`"
    elif kind == "value_error":
        message = str(details["ctx"]["error"])
    elif kind == "literal_error":
        message = f"{value} is unknown in {_shown(written)}; expected {details['ctx']['expected']}"
    elif kind == "string_pattern_mismatch" and details["loc"][-1] == "[key]":
        position = document.key(written)
        words = "small letters, digits and hyphens, a letter first, 24 at most"
        if _names_ports(location):
            words += "; or tester.a, tester.b, FUNCTION.0 or FUNCTION.1"
        message = f"{details['input']!r} cannot be a {'port' if _names_ports(location) else 'name'}; expected {words}"
    elif kind == "string_type" and document.texts.get(written):
        text = document.texts[written]
        message = f"{text} in {_shown(written)} is {value} to YAML, and no text; expected it in quotes, as '{text}'"
    else:
        message = f"{_plain(details)} in {_shown(written)}; expected {_expected(details, location)}"
    return SpecError(document.path, position, naming(written, message))


def _names_ports(location: Location) -> bool:
    return location[:1] == ("ports",) or (location[:1] == ("bridges",) and "ports" in location)


def _plain(details: ErrorDetails) -> str:
    value = details["input"]
    if isinstance(value, dict):
        return "a group of keys"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return units.shown(value)


#: What should have been there, where the model's own words are those of a programmer.
_WORDS = {
    "dict_type": "names, each with what it is",
    "list_type": "a list, with `- ` or [ ]",
    "too_short": "at least one item",
    "string_type": "a text",
    "string_too_short": "a text that is not empty",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
}


def _expected(details: ErrorDetails, location: Location) -> str:
    model = _model_at(location)
    if model is not None:
        return f"the keys {_keys_of(Device if model is Hop else model)}"
    if details["type"] == "string_pattern_mismatch" and details["ctx"]["pattern"] in PATTERNS:
        return PATTERNS[details["ctx"]["pattern"]]
    return _WORDS.get(details["type"]) or details["msg"].removeprefix("Input should be ")
