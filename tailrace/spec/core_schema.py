"""YAML 1.2's core schema (yaml.org/spec/1.2.2, section 10.3): which scalars are numbers, true, false or nothing.

PyYAML reads YAML 1.1, in which 010 is 8, `no` is false, 1_000 and 1:30 are numbers and 2026-01-02 is a date. Here all
of these are texts. One thing differs from the core schema, which reads 010 as 10: a number with a leading zero is a
text, because the two versions mean different numbers by it.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

_PREFIX = "tag:yaml.org,2002:"
_TEXT = _PREFIX + "str"
_COLLECTIONS: dict[type[yaml.Node], str] = {yaml.MappingNode: _PREFIX + "map", yaml.SequenceNode: _PREFIX + "seq"}

_DECIMAL = "(?:0|[1-9][0-9]*)"
_SCALARS = {
    _PREFIX + "null": re.compile(r"(?:~|null|Null|NULL|)\Z"),
    _PREFIX + "bool": re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"),
    _PREFIX + "int": re.compile(rf"(?:[-+]?{_DECIMAL}|0o[0-7]+|0x[0-9a-fA-F]+)\Z"),
    _PREFIX + "float": re.compile(
        rf"(?:[-+]?(?:{_DECIMAL}(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
    ),
}
#: Also with the underscores of YAML 1.1.
_LEADING_ZERO = re.compile(r"[-+]?0[0-9_]+\Z")
_LONGEST = 100  # characters of a number: beyond everything that is meant

_VERSION_1_1 = yaml.resolver.Resolver()

Scalar = str | int | float | bool | None


class CoreError(yaml.MarkedYAMLError):
    """A file that is YAML, and not such as is taken here; `problem` is the whole message."""


class CoreLoader(yaml.SafeLoader):
    """Reads one document by the core schema, as nodes (`yaml.compose`) or as data (`read`).

    Raises `CoreError` for several documents, or one of YAML 1.1; as data, also for a key that is used twice, a foreign
    tag and what is not of its tag.
    """

    yaml_implicit_resolvers = {None: list(_SCALARS.items())}  # noqa: RUF012

    def get_single_node(self) -> yaml.Node | None:
        self.get_event()  # type: ignore[no-untyped-call]  # the stream's start
        node = None if self.check_event(yaml.StreamEndEvent) else self.compose_document()
        if not self.check_event(yaml.StreamEndEvent):
            raise CoreError(
                problem="a second document begins here (`---`); expected one document in a file",
                problem_mark=self._next_event().start_mark,
            )
        return node

    def _next_event(self) -> Any:
        return self.peek_event()  # type: ignore[no-untyped-call]

    def compose_document(self) -> yaml.Node | None:
        start = self._next_event()
        if start.version not in (None, (1, 2)):
            version = ".".join(map(str, start.version))
            raise CoreError(
                problem=f"the directive %YAML {version} asks for other rules; expected YAML 1.2, or no directive",
                problem_mark=start.start_mark,
            )
        return super().compose_document()

    def compose_scalar_node(self, anchor: dict[str, yaml.Node]) -> yaml.ScalarNode:
        event = self._next_event()
        if event.tag == "!":  # the non-specific tag: a text, whatever it looks like (YAML 1.2.2, 6.9.1)
            event.tag = _TEXT
        return super().compose_scalar_node(anchor)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        said = foreign_tag(node)
        if said is not None:
            raise CoreError(problem=said, problem_mark=node.start_mark)
        if not isinstance(node, yaml.ScalarNode):
            return super().construct_object(node, deep)
        try:
            return scalar(node)
        except ValueError as error:
            raise CoreError(problem=str(error), problem_mark=node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names: set[Any] = set()
        for key, _ in node.value:
            name = self.construct_object(key) if isinstance(key, yaml.ScalarNode) else None
            if name in names:
                raise CoreError(problem=f"{name!r} is used twice; expected each key once", problem_mark=key.start_mark)
            names.add(name)
        return super().construct_mapping(node, deep)


def read(text: str) -> Any:
    """The data of a text; None if there is nothing in it. Raises `yaml.YAMLError`."""
    try:
        return yaml.load(text, Loader=CoreLoader)
    except RecursionError:
        raise CoreError(problem="nested too deeply; expected few levels") from None


def read_version_1_1(text: str) -> Any:
    """The data of a text by YAML 1.1, as `yaml.safe_dump` writes it. Raises `yaml.YAMLError`, also for what PyYAML has
    other errors for: dates and numbers that there are not, such as 2026-99-99, and too many levels. These errors say
    nothing of what stands there."""
    try:
        return yaml.safe_load(text)
    except RecursionError:
        raise CoreError(problem="nested too deeply; expected few levels") from None
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
        raise CoreError(problem="a date or a number that there is not; expected a text in quotes") from None


def scalar(node: yaml.ScalarNode) -> Scalar:
    """The value of a scalar. Raises ValueError, saying why, if its tag is not one of the core schema or not its own."""
    text: str = node.value
    if node.tag == _TEXT:
        return text
    pattern = _SCALARS.get(node.tag)
    if pattern is None:
        raise ValueError(foreign_tag(node))
    if pattern.match(text) is None or len(text) > _LONGEST:
        raise ValueError(f"{text[:40]!r} cannot be read; expected a word, a number or a quantity")
    kind = node.tag.removeprefix(_PREFIX)
    if kind == "int":
        return int(text, 0) if text.startswith(("0o", "0x")) else int(text)
    if kind == "float":
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text.lower() == "true" if kind == "bool" else None


def foreign_tag(node: yaml.Node) -> str | None:
    """Why the tag of a node is not taken; None if it is one of the core schema for such a node."""
    expected = _COLLECTIONS.get(type(node))
    if node.tag == expected or (expected is None and (node.tag == _TEXT or node.tag in _SCALARS)):
        return None
    return f"the tag {shown_tag(node)} is not known here; expected a value without a tag"


def shown_tag(node: yaml.Node) -> str:
    """A tag as one writes it: !!set."""
    tag = str(node.tag)
    return "!!" + tag.removeprefix(_PREFIX) if tag.startswith(_PREFIX) else tag


def mistakable(node: yaml.ScalarNode) -> str | None:
    """Of a plain text that is a number, or true or false, to YAML 1.1: what to write instead; None of any other."""
    text: str = node.value
    if node.tag != _TEXT or node.style is not None or ":" in text or len(text) > _LONGEST:
        return None
    if _LEADING_ZERO.match(text):
        digits = text.replace("_", "")
        octal = f", or 0o{digits.lstrip('+0') or '0'} for octal" if re.fullmatch(r"\+?[0-7]+", digits) else ""
        return f"a leading zero means octal in YAML 1.1 only, so {text} is a text here; write {int(digits)}{octal}"
    tag = _VERSION_1_1.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    if tag not in _SCALARS:
        return None
    try:
        value = yaml.constructor.SafeConstructor().construct_object(yaml.ScalarNode(tag, text))
    except ValueError:
        return None
    return f"{text} is a text in YAML 1.2; write {str(value).lower()}"
