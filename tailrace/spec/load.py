"""A spec file into a checked `Spec`, or one message: `file:line:column: what; what was expected`."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tailrace.spec import units
from tailrace.spec.model import RESERVED_NAMES, TESTER_ENDS, Chain, Device, Fabric, Function, Hop, Latency, Spec, Test
from tailrace.spec.position import Document, Location, Position, SpecError, parse_document, read_document

#: The model that a location in the spec belongs to; `None` stands for any name or index.
_MODELS: list[tuple[tuple[str | None, ...], type[BaseModel]]] = [
    ((), Spec),
    (("fabric",), Fabric),
    (("functions", None), Function),
    (("chains", None), Chain),
    (("chains", None, "path", None), Hop),
    (("chains", None, "path", None, "device"), Device),
    (("tests", None), Test),
    (("tests", None, "latency"), Latency),
]


def load_spec(path: Path) -> Spec:
    """Reads and checks a spec; raises `SpecError` for the first thing wrong with it, in the order of the file."""
    return _check(read_document(path))


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
    problems = list(_cross_check(document, spec))
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
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else (f".{step}" if text else str(step))
    return text or "the spec"


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
        message = f"unknown key {key!r} in {_shown(_written(document, around))}; expected one of {keys}{hint}"
    elif kind == "missing":
        around = _written(document, location[:-1])
        position = document.key(around) if around else document.value(())
        message = f"{_shown(around)} lacks {str(location[-1])!r}; expected the key `{location[-1]}:`"
    elif kind == "value_error":
        message = str(details["ctx"]["error"])
    elif kind == "literal_error":
        message = f"{value} is unknown in {_shown(written)}; expected {details['ctx']['expected']}"
    elif kind == "string_pattern_mismatch" and details["loc"][-1] == "[key]":
        position = document.key(written)
        message = (
            f"{details['input']!r} cannot be a name; "
            "expected small letters, digits and hyphens, a letter first, 24 at most"
        )
    else:
        message = f"{_plain(details)} in {_shown(written)}; expected {_expected(details, location)}"
    return SpecError(document.path, position, message)


def _plain(details: ErrorDetails) -> str:
    value = details["input"]
    if isinstance(value, dict):
        return "a group of keys"
    if isinstance(value, list):
        return "a list"
    return units.shown(value)


def _expected(details: ErrorDetails, location: Location) -> str:
    model = _model_at(location)
    if model is not None:
        return f"the keys {_keys_of(Device if model is Hop else model)}"
    text = details["msg"]
    for start in ("Input should be ", "Value should be ", "String should "):
        text = text.removeprefix(start)
    return {"a valid dictionary": "names, each with what it is", "a valid list": "a list, with `- ` or [ ]"}.get(
        text, text
    )


def _path_location(document: Document, chain: str, index: int) -> Location:
    long = ("chains", chain, "path", index)
    return long if long in document.values else ("chains", chain, index)


def _cross_check(document: Document, spec: Spec) -> list[SpecError]:
    """What only shows when the parts are looked at together."""
    problems: list[SpecError] = []

    def problem(position: Position, message: str) -> None:
        problems.append(SpecError(document.path, position, message))

    used: dict[str, str] = {}
    known = ", ".join(spec.functions) or "none is defined"
    for name in spec.functions:
        if name in RESERVED_NAMES:
            problem(
                document.key(("functions", name)),
                f"the name {name!r} is Tailrace's own ({RESERVED_NAMES[name]}); expected another name for the function",
            )
    for name, chain in spec.chains.items():
        if name in spec.functions:
            problem(
                document.key(("chains", name)),
                f"the name {name!r} is used twice (a function has it); expected each name once",
            )
        for index, hop in enumerate(chain.path):
            position = document.value(_path_location(document, name, index))
            at_end = index in (0, len(chain.path) - 1)
            is_end = hop.device is not None or hop.name in TESTER_ENDS
            if at_end and not is_end:
                problem(
                    position,
                    f"{str(hop)!r} cannot be a chain's end; expected tester.a, tester.b "
                    "or a device such as {if: veth0}",
                )
            elif not at_end and is_end:
                problem(
                    position, f"{str(hop)!r} is an end and stands inside the chain; expected a function here ({known})"
                )
            elif not is_end and hop.name not in spec.functions:
                near = difflib.get_close_matches(hop.name or "", list(spec.functions), 1)
                hint = f" (did you mean {near[0]}?)" if near else ""
                problem(
                    position,
                    f"the chain {name!r} goes through {hop.name!r}, which is missing; "
                    f"expected a function ({known}){hint}",
                )
            elif str(hop) in used:
                problem(
                    position,
                    f"{str(hop)!r} is used twice (first in the chain {used[str(hop)]!r}); "
                    "expected each end and function in one place",
                )
            used.setdefault(str(hop), name)
    if not spec.chains:
        problem(
            document.key(("chains",)),
            "there is no chain; expected at least one, such as `voice: [tester.a, first, tester.b]`",
        )
    if spec.tests and spec.tester_chain() is None:
        problem(
            document.key(("tests", 0)),
            "nothing to measure: no chain runs from tester.a to tester.b; expected one",
        )
    return problems
