"""A YAML file as plain data, with the place in the file of every key and every value.

Scalars are read by YAML 1.2's core schema (`core_schema.py`); docs/spec.md says what that means. A key written twice is
an error, because a YAML library would silently keep the last one. What is wrong is collected, and reported at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tailrace.errors import Mistake, Refused
from tailrace.spec.core_schema import CoreError, CoreLoader, foreign_tag, mistakable, scalar
from tailrace.spec.source import Position, SpecError, printable, read_source

MOST_NODES = 100_000
MOST_TOLD = 100

Location = tuple[str | int, ...]


def shown_key(location: Location) -> str:
    """A location as one writes it: tests[0].latency.duration."""
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else (f".{printable(step)}" if text else printable(step))
    return text


def naming(location: Location, message: str) -> str:
    """The message with the key that it is about, unless it names that itself."""
    key = shown_key(location)
    return message if key in message else f"{key}: {message}"


class SpecErrors(SpecError):
    """Several things wrong with a spec, a line for each; position and message are those of the first."""

    def __init__(self, errors: Sequence[SpecError]) -> None:
        Mistake.__init__(self, "\n".join(map(str, errors)))
        self.errors = tuple(errors)
        self.position, self.message = errors[0].position, errors[0].message

    @property
    def lines(self) -> Sequence[str]:
        said = [str(error) for error in self.errors[:MOST_TOLD]]
        more = len(self.errors) - len(said)
        return [*said, f"{more:,} more mistakes are not shown; mend these first"] if more else said


def raise_any(errors: Iterable[SpecError]) -> None:
    """Raises what is wrong, in the order of the file and each thing once; nothing where nothing is."""
    found = list({str(error): error for error in sorted(errors, key=lambda each: each.position)}.values())
    if found:
        raise found[0] if len(found) == 1 else SpecErrors(found)


@dataclass
class Document:
    """A parsed file: its data, and where each key and value of it stands."""

    path: str
    data: Any
    problems: list[SpecError] = field(default_factory=list)
    """What is wrong with it as YAML."""
    unread: list[Location] = field(default_factory=list)
    """Values that a problem is about: there is None in their place."""
    keys: dict[Location, Position] = field(default_factory=dict)
    values: dict[Location, Position] = field(default_factory=dict)
    texts: dict[Location, str] = field(default_factory=dict)
    """What is written where YAML reads no text: 0x10, which is the number 16 to it."""
    mistakable: dict[Location, str] = field(default_factory=dict)
    """Of texts that are numbers, or true or false, to YAML 1.1: what to write instead."""
    stand_ins: dict[str, Location] = field(default_factory=dict)
    """Ports that are made of what stands elsewhere, such as of a device in a chain: where that is."""

    def key(self, location: Location) -> Position:
        """Where the key of this location stands; for an item of a list, where the item does."""
        return self.keys.get(location) or self.value(location)

    def value(self, location: Location) -> Position:
        """Where the value of this location stands, or that of the nearest thing around it."""
        while location not in self.values and location:
            location = location[:-1]
        return self.values.get(location, Position(1, 1))

    def mistake(self, location: Location, message: str) -> SpecError:
        """What was found out about a value after the file was read, at its place."""
        return SpecError(self.path, self.value(location), naming(location, message))

    @contextmanager
    def locating(self) -> Iterator[None]:
        """What is refused in the block is reported with its place in the file."""
        try:
            yield
        except Refused as refused:
            found = [self.refused(line) for line in refused.lines]
            raise_any(each for each in found if isinstance(each, SpecError))
            raise found[0] from None

    def refused(self, message: str) -> Mistake:
        """What the switch says of a configuration (`chains.voice.through[1]: why`), at the place in the file."""
        if message.startswith("workers.pins"):  # which a spec has among what is said of the fabric
            message = "fabric" + message.removeprefix("workers")
        key = message.partition(": ")[0]
        section, _, rest = key.partition(".")
        stands_in = [name for name in self.stand_ins if rest == name or rest.startswith(f"{name}.")]
        if section == "ports" and stands_in:
            return SpecError(self.path, self.value(self.stand_ins[stands_in[0]]), message)
        if "." not in key or (section,) not in self.keys:
            return Mistake(f"{self.path}: {message}")
        return SpecError(self.path, self.key(self._nearest(key)), message)

    def _nearest(self, key: str) -> Location:
        """The location of a key of the configuration, as far as the file has it; names may have dots in them."""
        place: Location = ()
        rest = key
        while rest:
            inside = [each[-1] for each in self.values if each and each[:-1] == place]
            steps = {f"[{step}]" if isinstance(step, int) else step: step for step in inside}
            fitting = [text for text in steps if rest == text or rest.startswith((f"{text}.", f"{text}["))]
            if not fitting:
                break
            step = max(fitting, key=len)
            place = (*place, steps[step])
            rest = rest[len(step) :].removeprefix(".")
        return place


#: What ends a text where C reads it, and what UTF-8 has no bytes for.
_NOWHERE = re.compile("[\0\ud800-\udfff]")


def _position(mark: Any) -> Position:
    return Position(mark.line + 1, mark.column + 1)


class _Reader:
    """Makes a document of YAML nodes. Values that cannot be read are None, and noted."""

    def __init__(self, path: str) -> None:
        self.document = Document(path, None)
        self.nodes = 0
        self.open: set[int] = set()

    def error(self, node: yaml.Node, location: Location, message: str) -> SpecError:
        return SpecError(self.document.path, _position(node.start_mark), naming(location, message))

    def wrong(self, node: yaml.Node, location: Location, message: str) -> None:
        self.document.problems.append(self.error(node, location, message))

    def unread(self, node: yaml.Node, location: Location, message: str) -> None:
        self.wrong(node, location, message)
        self.document.unread.append(location)

    def read(self, node: yaml.Node, location: Location) -> Any:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise self.error(node, location, f"more than {MOST_NODES} values; expected a spec, not a dump")
        self.document.values.setdefault(location, _position(node.start_mark))
        if id(node) in self.open:
            return self.unread(node, location, "this alias contains itself; expected an alias of something complete")
        tag = foreign_tag(node)
        if tag is not None:
            return self.unread(node, location, tag)
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, location)
            if isinstance(node, yaml.SequenceNode):
                return [self.read(item, (*location, index)) for index, item in enumerate(node.value)]
            return self._scalar(node, location) if isinstance(node, yaml.ScalarNode) else None
        finally:
            self.open.discard(id(node))

    def _scalar(self, node: yaml.ScalarNode, location: Location) -> Any:
        try:
            value = scalar(node)
        except ValueError as error:
            return self.unread(node, location, str(error))
        if isinstance(value, str) and _NOWHERE.search(value):
            return self.unread(
                node,
                location,
                f"{value!r} has a character that no name and no path can have; expected a text without it",
            )
        if not isinstance(value, str):
            self.document.texts[location] = node.value
        elif (meant := mistakable(node)) is not None:
            self.document.mistakable[location] = meant
        return value

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self.wrong(key_node, location, "a key made of several values; expected a word")
                continue
            key = str(key_node.value)
            here = (*location, key)
            if (tag := foreign_tag(key_node)) is not None:
                self.wrong(key_node, here, tag)
            elif key == "<<" and key_node.style is None:
                self.wrong(key_node, here, "YAML 1.2 has no merge keys; expected the keys themselves, or an alias")
            elif key in result:
                first = self.document.keys[here]
                self.wrong(
                    key_node,
                    here,
                    f"the name {key!r} is used twice (first on line {first.line}); expected each name once",
                )
            else:
                self.document.keys[here] = _position(key_node.start_mark)
                result[key] = self.read(value_node, here)
        return result


def read_document(path: Path) -> Document:
    """The file's data and positions, and what is wrong with it as YAML. Raises `SpecError` where that leaves nothing to
    be read, and `Mistake` where the file cannot be read at all."""
    return parse_document(read_source(path), printable(str(path)))


def parse_document(text: str, shown: str) -> Document:
    """The same of a text; `shown` stands for the file in messages."""
    try:
        node = yaml.compose(text, Loader=CoreLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = _position(mark) if mark else Position(1, 1)
        said = f"not YAML: {error.problem}; expected `key: value` lines"
        raise SpecError(shown, position, str(error.problem) if isinstance(error, CoreError) else said) from None
    except yaml.reader.ReaderError as error:
        before_text = text[: error.position]
        position = Position(before_text.count("\n") + 1, error.position - (before_text.rfind("\n") + 1) + 1)
        raise SpecError(shown, position, "a character that YAML does not allow; expected plain text") from None
    except RecursionError:
        raise SpecError(shown, Position(1, 1), "nested too deeply; expected a spec") from None
    if node is None:
        raise SpecError(shown, Position(1, 1), "the file is empty; expected at least `chains:`")
    reader = _Reader(shown)
    reader.document.data = reader.read(node, ())
    return reader.document
