"""A spec file into a checked `Spec`, or all that is wrong with it: `file:line:column: what; what was expected`.

What is wrong as YAML, by the models and between the parts is reported at once. For that, each part that has something
wrong is left out (`_Sound`) before the next look; what is only a consequence of that is not reported.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tailrace.spec import units
from tailrace.spec.check import cross_check
from tailrace.spec.fields import NAMES
from tailrace.spec.model import HOSTNAME, IMAGE, Device, Hop, Spec
from tailrace.spec.port import PATTERNS
from tailrace.spec.position import Document, Location, naming, parse_document, raise_any, read_document, shown_key
from tailrace.spec.priority import TASK
from tailrace.spec.source import SpecError
from tailrace.spec.words import expected

#: Items of a list that are looked at for what a message may be about.
MOST_ITEMS = 64
#: What a text should have been, where a pattern says it to machines only.
_PATTERNS = {
    **PATTERNS,
    IMAGE: "an image's name or a disk's path without spaces, such as localhost/firewall:1.2 or disks/router.qcow2",
    HOSTNAME: "a name of letters, digits, hyphens and dots, such as router-1",
    TASK: "a thread's name without spaces, 15 characters at most, such as pmd-worker",
}


def load_spec(path: Path) -> Spec:
    """Reads and checks a spec. Raises `SpecError` with all that is wrong with it, in the order of the file, and
    `Mistake` where the file cannot be read."""
    return load_located(path)[0]


def load_located(path: Path) -> tuple[Spec, Document]:
    """The same with the document, which knows where everything stands, for what is found out later."""
    document = read_document(path)
    return _check(document), document


def parse_located(text: str, name: str) -> tuple[Spec, Document]:
    """The same for a text that somebody else has read; `name` stands for the file in messages."""
    document = parse_document(text, name)
    return _check(document), document


def parse_spec(text: str, name: str) -> Spec:
    """The same without the document."""
    return parse_located(text, name)[0]


def _check(document: Document) -> Spec:
    problems = list(document.problems)
    if not isinstance(document.data, dict):
        if not problems:
            said = "this is not a spec; expected the keys " + _keys_of(Spec)
            problems.append(SpecError(document.path, document.value(()), said))
        raise_any(problems)
    sound = _Sound(document)
    spec, details = sound.validate()
    problems += [_explain(document, each) for each in details if not sound.consequence(each, details)]
    if spec is None:
        sound.leave_out_wrong(details)
        spec, details = sound.validate()
    if spec is None:  # what was left out was needed
        sound.leave_out_entries(details)
        spec, details = sound.validate()
    if spec is not None:
        problems += cross_check(document, spec, sound.left_out)
    raise_any(problems)
    assert spec is not None, details
    return spec


#: Sections that are made of entries.
_ENTRIES = ("ports", "functions", "chains", "bridges", "mirrors", "tests")


class _Sound:
    """The data of a document without what is wrong in it."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.data: dict[str, Any] = document.data
        self.left_out: set[Location] = set()
        self._leave_out(document.unread)

    def validate(self) -> tuple[Spec | None, list[ErrorDetails]]:
        """The spec of the data, or what is wrong with it."""
        try:
            return Spec.model_validate(self.data), []
        except ValidationError as error:
            return None, error.errors()

    def consequence(self, details: ErrorDetails, all_of_them: Sequence[ErrorDetails]) -> bool:
        """Whether it would not be wrong without something else that is."""
        location = _steps(details)
        written = _written(self.document, location)
        if details["type"] != "missing":
            return any(out[: len(written)] == written for out in self.left_out)
        misspelt = {
            _meant(str(each["loc"][-1]), _model_at(location[:-1]))
            for each in all_of_them
            if each["type"] == "extra_forbidden" and _steps(each)[:-1] == location[:-1]
        }
        return location[-1] in misspelt or (*written, location[-1]) in self.left_out

    def leave_out_wrong(self, details: Iterable[ErrorDetails]) -> None:
        """Leaves out the values that are wrong, each with the key that it stands at."""
        for each in details:
            location = _steps(each)
            around = _written(self.document, location[:-1])
            if each["type"] == "missing":
                self._leave_out([_entry(around)])
            elif each["type"] == "extra_forbidden":
                self._leave_out([(*around, str(location[-1]))])
                near = _meant(str(location[-1]), _model_at(location[:-1]))
                if not around and near:  # nothing of the section that is meant has been seen
                    self.left_out.add((near,))
            else:
                self._leave_out([_written(self.document, location)])

    def leave_out_entries(self, details: Iterable[ErrorDetails]) -> None:
        """Leaves out the whole entries that these are about."""
        self._leave_out(_entry(_written(self.document, _steps(each))) for each in details)

    def _leave_out(self, locations: Iterable[Location]) -> None:
        for location in locations:
            if self.data is self.document.data:
                self.data = copy.deepcopy(self.data)
            if location[:1] == ("chains",) and "match" in location:
                location = location[: location.index("match") + 1]  # with a part of it, it would take other frames
            while location and not self._remove(location):
                location = location[:-1]
            self.left_out.add(location)

    def _remove(self, location: Location) -> bool:
        """Takes a value out with its key. False if it stands in a list, where what comes behind it keeps its number."""
        around: Any = self.data
        for step in location[:-1]:
            around = around.get(step, {}) if isinstance(around, dict) else around[step]
        if isinstance(around, dict):
            around.pop(location[-1], None)
        elif location[0] == "tests" and len(location) == 2:
            around[location[1]] = {"latency": {}}
        else:
            return False
        return True


def _entry(location: Location) -> Location:
    """The function, chain, test, ... that a location is in; of other sections, the section."""
    return location[: 2 if location[:1] and location[0] in _ENTRIES else 1]


def _steps(details: ErrorDetails) -> Location:
    return tuple(step for step in details["loc"] if step != "[key]")


def _meant(key: str, model: type[BaseModel] | None) -> str | None:
    """The key that a misspelt one is nearest to."""
    keys = _keys_of(Device if model is Hop else model).split(", ") if model else []
    return next(iter(difflib.get_close_matches(key, keys, 1)), None)


def _model_at(location: Location) -> type[BaseModel] | None:
    """The model that a location in the spec belongs to; None: what is there has no keys of its own."""
    found: Any = Spec
    for step in location:
        found = inside(found, step)
    return found if _is_model(found) else None


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def inside(annotation: Any, step: str | int) -> Any:
    """What a key or an index leads to in a value of an annotation, without what is only said about it."""
    if _is_model(annotation):
        fields = annotation.model_fields
        found = next((field.annotation for name, field in fields.items() if step in (name, field.alias)), None)
    elif get_origin(annotation) in (dict, list):
        found = get_args(annotation)[-1]
    else:
        return None
    while get_origin(found) in (Annotated, Union, UnionType):
        inner = get_args(found)
        found = inner[0] if get_origin(found) is Annotated else next(each for each in inner if each is not type(None))
    return found


def _keys_of(model: type[BaseModel]) -> str:
    return ", ".join(field.alias or name for name, field in model.model_fields.items())


def _written(document: Document, location: Location) -> Location:
    """The location as it stands in the file: a short form lacks the steps that the long form has."""
    written: Location = ()
    data: Any = document.data
    for step in location:
        if isinstance(data, dict) and step not in data:
            step = str(step)  # YAML's keys are text here
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
    location = _steps(details)
    written = _written(document, location)
    kind = details["type"]
    position = document.value(written)
    value = units.shown(details["input"])
    if kind == "extra_forbidden":
        around = location[:-1]
        model = _model_at(around)
        keys = _keys_of(Device if model is Hop else model) if model else "none"
        key = str(location[-1])
        near = _meant(key, model)
        hint = f" (did you mean {near}?)" if near else ""
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
    elif kind == "string_pattern_mismatch" and details["ctx"]["pattern"] in NAMES:
        if details["loc"][-1] == "[key]":
            position = document.key(written)
        what, words = NAMES[details["ctx"]["pattern"]]
        message = f"{details['input']!r} cannot be a {what}; expected {words}"
    elif details["loc"][-1] == "[key]":
        position = document.key(written)
        words = "a port's number, such as 0" if "failover" in location else _expected(details, ())
        message = f"{details['input']!r} is a key of {_shown(written[:-1])}; expected {words}"
    elif kind == "string_type" and document.texts.get(written):
        text = document.texts[written]
        message = f"{text} in {_shown(written)} is {value} to YAML, and no text; expected it in quotes, as '{text}'"
    else:
        message = f"{_plain(details)} in {_shown(written)}; expected {_expected(details, location)}"
    return SpecError(document.path, position, naming(written, message + _instead(document, written, message)))


def _instead(document: Document, written: Location, message: str) -> str:
    """What to write instead of a text (or one in a list) that a message is about, where YAML 1.1 reads no text."""
    value: Any = document.data
    for step in written:
        value = value[step]
    items = value[:MOST_ITEMS] if isinstance(value, list) else []
    texts = [(written, value), *(((*written, index), item) for index, item in enumerate(items))]
    found = [document.mistakable[at] for at, text in texts if at in document.mistakable and repr(text) in message]
    return "".join(f" ({meant})" for meant in dict.fromkeys(found))


def _plain(details: ErrorDetails) -> str:
    value = details["input"]
    if isinstance(value, dict):
        return "a group of keys"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return units.shown(value)


def _expected(details: ErrorDetails, location: Location) -> str:
    model = _model_at(location)
    if model is not None:
        return f"the keys {_keys_of(Device if model is Hop else model)}"
    if details["type"] == "string_pattern_mismatch" and details["ctx"]["pattern"] in _PATTERNS:
        return _PATTERNS[details["ctx"]["pattern"]]
    around = _model_at(location[:-1])
    return expected(details, around.model_fields.get(str(location[-1])) if around is not None else None)
