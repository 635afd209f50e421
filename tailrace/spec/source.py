"""A spec's file as text, read by whoever has it: needs nothing else of Tailrace's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import Mistake

MOST_BYTES = 1 << 20


@dataclass(frozen=True, order=True)
class Position:
    """Line and column, both counted from 1."""

    line: int
    column: int


class SpecError(Mistake):
    """One thing wrong with a spec, at one place in it."""

    def __init__(self, path: str, position: Position, message: str) -> None:
        super().__init__(f"{path}:{position.line}:{position.column}: {message}")
        self.position = position
        self.message = message


def printable(text: str) -> str:
    """Text that a terminal takes for nothing else: quoted, if it has to be."""
    return text if text.isprintable() else repr(text)


def read_source(path: Path) -> str:
    """The file's text. Raises `SpecError` where it is no text, and `Mistake` where it cannot be read at all."""
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
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        column = error.start - (before.rfind(b"\n") + 1) + 1
        raise SpecError(shown, Position(before.count(b"\n") + 1, column), "not UTF-8; expected a text file") from None
