"""A YAML file as plain data, with the place in the file of every key and every value.

A key written twice is an error here, because YAML itself would silently keep the last one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tailrace.errors import Mistake, Refused

MOST_BYTES = 1 << 20
MOST_NODES = 100_000

Location = tuple[str | int, ...]


@dataclass(frozen=True, order=True)
class Position:
    """Line and column, both counted from 1."""

    line: int
    column: int


def shown_key(location: Location) -> str:
    """A location as one writes it: tests[0].latency.duration."""
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else (f".{printable(step)}" if text else printable(step))
    return text


def printable(text: str) -> str:
    """Text that a terminal takes for nothing else: quoted, if it has to be."""
    return text if text.isprintable() else repr(text)


def naming(location: Location, message: str) -> str:
    """The message with the key that it is about, unless it names that itself."""
    key = shown_key(location)
    return message if key in message else f"{key}: {message}"


class SpecError(Mistake):
    """One thing wrong with a spec, at one place in it."""

    def __init__(self, path: str, position: Position, message: str) -> None:
        super().__init__(f"{path}:{position.line}:{position.column}: {message}")
        self.position = position
        self.message = message


@dataclass
class Document:
    """A parsed file: its data, and where each key and value of it stands."""

    path: str
    data: Any
    keys: dict[Location, Position] = field(default_factory=dict)
    values: dict[Location, Position] = field(default_factory=dict)
    texts: dict[Location, str] = field(default_factory=dict)
    """What is written where YAML reads no text: 0660, which is the number 432 to it."""
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
        """What is refused in the block is told with its place in the file."""
        try:
            yield
        except Refused as refused:
            raise self.refused(str(refused)) from None

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

#: What PyYAML raises for a value that is not of its tag: `!!int ""`, `!!bool x`, `!!timestamp x`.
_UNREADABLE = (yaml.YAMLError, ValueError, LookupError, AttributeError)


def _position(mark: Any) -> Position:
    return Position(mark.line + 1, mark.column + 1)


class _Reader:
    def __init__(self, path: str) -> None:
        self.document = Document(path, None)
        self.constructor = yaml.constructor.SafeConstructor()
        self.nodes = 0
        self.open: set[int] = set()

    def fail(self, node: yaml.Node, location: Location, message: str) -> SpecError:
        return SpecError(self.document.path, _position(node.start_mark), naming(location, message))

    def read(self, node: yaml.Node, location: Location) -> Any:
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise self.fail(node, location, f"more than {MOST_NODES} values; expected a spec, not a dump")
        if id(node) in self.open:
            raise self.fail(node, location, "this alias contains itself; expected an alias of something complete")
        self.document.values.setdefault(location, _position(node.start_mark))
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, location)
            if isinstance(node, yaml.SequenceNode):
                return [self.read(item, (*location, index)) for index, item in enumerate(node.value)]
            return self._scalar(node, location)
        finally:
            self.open.discard(id(node))

    def _scalar(self, node: yaml.Node, location: Location) -> Any:
        # YAML 1.1 takes 0000:01:00.0 and 990:50 for numbers to the base of 60, which nobody means.
        if node.tag.endswith((":int", ":float")) and ":" in node.value:
            return node.value
        try:
            value = self.constructor.construct_object(node)
        except _UNREADABLE:
            message = f"{node.value!r} cannot be read; expected a word, a number or a quantity"
            raise self.fail(node, location, message) from None
        if isinstance(value, str) and _NOWHERE.search(value):
            message = f"{value!r} has a character that no name and no path can have; expected a text without it"
            raise self.fail(node, location, message)
        if not isinstance(value, str):
            self.document.texts[location] = node.value
        return value

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self.fail(key_node, location, "a key made of several values; expected a word")
            key = str(key_node.value)
            here = (*location, key)
            if key in result:
                first = self.document.keys[here]
                raise self.fail(
                    key_node,
                    here,
                    f"the name {key!r} is used twice (first on line {first.line}); expected each name once",
                )
            self.document.keys[here] = _position(key_node.start_mark)
            result[key] = self.read(value_node, here)
        return result


def read_document(path: Path) -> Document:
    """The file's data and positions. Raises `SpecError`, or `Mistake` where the file cannot be read at all."""
    shown = printable(str(path))
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)  # it need not be a file that ends
    except FileNotFoundError:
        raise Mistake(f"{shown}: there is no such file; expected a spec, such as examples/chain.yaml") from None
    except IsADirectoryError:
        raise Mistake(f"{shown}: this is a directory; expected a spec, such as examples/chain.yaml") from None
    except OSError as error:
        raise Mistake(f"{shown}: cannot be read ({error.strerror}); expected a readable spec") from None
    if len(raw) > MOST_BYTES:
        raise SpecError(shown, Position(1, 1), "larger than 1 MiB; expected a spec, which is a few lines of YAML")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        column = error.start - (before.rfind(b"\n") + 1) + 1
        raise SpecError(shown, Position(before.count(b"\n") + 1, column), "not UTF-8; expected a text file") from None
    return parse_document(text, shown)


def parse_document(text: str, shown: str) -> Document:
    """The data and positions of a text; `shown` stands for the file in messages."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = _position(mark) if mark else Position(1, 1)
        raise SpecError(shown, position, f"not YAML: {error.problem}; expected `key: value` lines") from None
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
