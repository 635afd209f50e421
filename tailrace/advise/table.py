"""Published tables of rates: a line for each cell, as CSV."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import cast

from tailrace.advise.model import INTERFACES, STACK, TRAFFICS, Cell, Interface, Traffic, gbps_of, mpps_at
from tailrace.errors import Mistake

COLUMNS = ("traffic", "interface", "frame_bytes", "functions", "gbps", "mpps")
FRAME_SIZES = (64, 9000)
"""The least and the most bytes of a frame, with FCS."""
MOST_FUNCTIONS = 1024
_MOST_MESSAGE = 1 << 24
_MOST_LINE, _MOST_SAID, _MOST_QUOTED = 4096, 20, 200
_FIGURE = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,2})?")
_MOST_ROWS = 2000
"""Of a table: what an interpolation takes grows with its square."""


@dataclass(frozen=True)
class Row:
    """A cell as it was measured: one figure at least. Where `mpps` is missing, Gbit/s are compared."""

    cell: Cell
    gbps: float | None
    mpps: float | None
    rounding: float
    """Half of the last digit that the compared figure has."""

    @property
    def measured(self) -> float:
        return (self.gbps or 0.0) if self.mpps is None else self.mpps

    def predicted(self, mpps: float) -> float:
        """A prediction as this row has its figure."""
        return gbps_of(mpps, self.cell) if self.mpps is None else mpps

    def in_mpps(self, figure: float) -> float:
        """A figure of this row's, as rows with another one can be compared with it."""
        return mpps_at(figure, self.cell) if self.mpps is None else figure

    def error(self, predicted: float) -> float:
        """As a part of what was measured; 0 within its rounding."""
        off = abs(predicted - self.measured)
        return 0.0 if off <= self.rounding else off / max(self.measured, self.rounding)


def read_table(path: Path) -> list[Row]:
    """Raises Mistake with all that is wrong in it."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise Mistake(f"{path}: {getattr(error, 'strerror', None) or 'not text'}") from None
    numbered = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip() and line[0] != "#"]
    if not numbered:
        raise Mistake(f"{path}: nothing is in it; expected the columns {','.join(COLUMNS)}")
    _check_columns(path, numbered[0][1])
    if len(numbered) - 1 > _MOST_ROWS:
        raise Mistake(f"{path}: {len(numbered) - 1} cells; expected no more than {_MOST_ROWS}")
    rows: list[Row] = []
    wrong: list[str] = []
    for number, line in numbered[1:]:
        try:
            rows.append(_row(_words(line)))
        except ValueError as error:
            wrong.append(f"line {number}: {error}")
    if wrong:
        more = f"; and {len(wrong) - _MOST_SAID} more" if len(wrong) > _MOST_SAID else ""
        raise Mistake(f"{path}: {'; '.join(wrong[:_MOST_SAID])}{more}")
    if not rows:
        raise Mistake(f"{path}: no cell is in it")
    return rows


def _check_columns(path: Path, line: str) -> None:
    """Raises Mistake, with what is otherwise, unless these are the columns."""
    try:
        found = _words(line)
    except ValueError as error:
        raise Mistake(f"{path}: {error}") from None
    if tuple(found) == COLUMNS:
        return
    lacks, more = [each for each in COLUMNS if each not in found], [each for each in found if each not in COLUMNS]
    said = ([f"lacks {', '.join(lacks)}"] if lacks else []) + ([f"has {', '.join(more)} besides"] if more else [])
    what = "; ".join(said)[:_MOST_QUOTED] or "has them in another order, or twice"
    raise Mistake(f"{path}: expected the columns {','.join(COLUMNS)}; its first line {what}")


def _words(line: str) -> list[str]:
    if len(line) > _MOST_LINE:
        raise ValueError(f"{len(line)} characters; expected no more than {_MOST_LINE}")
    try:
        return [word.strip() for word in next(csv.reader([line], skipinitialspace=True), [])]
    except csv.Error as error:
        raise ValueError(str(error)) from None


def _row(words: Sequence[str]) -> Row:
    if len(words) != len(COLUMNS):
        raise ValueError(f"{len(words)} columns; expected {len(COLUMNS)}")
    traffic, interface, frame, functions, gbps, mpps = words
    cell = Cell(
        cast(Traffic, _word("traffic", traffic, TRAFFICS)),
        cast(Interface, _word("interface", interface, INTERFACES)),
        _whole("frame_bytes", frame, *(FRAME_SIZES if traffic != STACK else (1, _MOST_MESSAGE))),
        _whole("functions", functions, 1, MOST_FUNCTIONS),
    )
    figure = mpps or gbps
    if not figure:
        raise ValueError("neither gbps nor mpps; expected one of them")
    return Row(cell, _amount("gbps", gbps), _amount("mpps", mpps), _rounding(figure))


def _word(column: str, text: str, known: Sequence[str]) -> str:
    if text not in known:
        raise ValueError(f"{column} {text!r}; expected {', '.join(known)}")
    return text


def _whole(column: str, text: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise ValueError(f"{column} {text!r}; expected {least} to {most}")
    return int(text)


def _amount(column: str, text: str) -> float | None:
    if not text:
        return None
    value = float(text) if _FIGURE.fullmatch(text) else -1.0
    if not 0 <= value < 1e9:
        raise ValueError(f"{column} {text!r}; expected a number from 0")
    return value


def _rounding(figure: str) -> float:
    """35.48 says 35.475 to 35.485; a hair more, for numbers that are not exact in binary."""
    _, _, last = Decimal(figure).as_tuple()
    return 0.5000001 * 10.0 ** int(last)
