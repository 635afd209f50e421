"""The rooms of tailrace/ are in layers: each imports only from those that docs/architecture.md lists above it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
_PACKAGE = TOP / "tailrace"


def listed() -> list[str]:
    """The rooms in the order of the page."""
    text = (TOP / "docs/architecture.md").read_text()
    (listing,) = re.findall(r"^tailrace/ .*\n((?:  .*\n)+)", text, re.MULTILINE)
    return re.findall(r"^  (\w+)/", listing, re.MULTILINE)


def imported(text: str) -> Iterator[str]:
    """The rooms whose modules are imported, inside functions too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module == "tailrace":
            yield from (alias.name for alias in node.names)
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        yield from (name.split(".")[1] for name in names if name.startswith("tailrace."))


def test_the_page_lists_every_room() -> None:
    assert sorted(listed()) == sorted(path.name for path in _PACKAGE.iterdir() if any(path.glob("*.py")))


@pytest.mark.parametrize("room", listed())
def test_a_room_imports_only_from_those_above_it(room: str) -> None:
    rooms = listed()
    below = set(rooms[rooms.index(room) + 1 :])
    wrong = [
        f"{path.relative_to(TOP)} imports from {name}/"
        for path in sorted((_PACKAGE / room).rglob("*.py"))
        for name in imported(path.read_text())
        if name in below
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "text",
    [
        "from tailrace.node.client import Client",
        "from tailrace import node",
        "import tailrace.node.client",
        "def call():\n    from tailrace.node import client",
        "if TYPE_CHECKING:\n    from tailrace.node.client import Client",
    ],
)
def test_an_import_is_found_wherever_it_stands(text: str) -> None:
    assert list(imported(text)) == ["node"]
