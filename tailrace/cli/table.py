"""Tables of plain text, without lines, as most commands print them.

Rich takes as long to load as many a command takes otherwise, so it is left to what has to be folded or measured.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

from tailrace.cli.output import plain_console, print_line, wide_console

_ENDLESS = 10_000


class PlainTable:
    """Rows of texts below their headings."""

    def __init__(self, *headings: str) -> None:
        self.headings = headings
        self.rows: list[Sequence[str]] = []

    def add_row(self, *cells: str) -> None:
        """As many as there are headings, or fewer."""
        self.rows.append((*cells, *[""] * (len(self.headings) - len(cells))))

    def lines(self) -> list[str] | None:
        """The heading and the rows, all of the same length; None where a cell has a letter that may be none, or two
        columns wide."""
        rows = [self.headings, *self.rows]
        if not all(cell.isascii() and cell.isprintable() for row in rows for cell in row):
            return None
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def print_table(table: PlainTable) -> None:
    """Prints a table, folded to the terminal's width. Where there is none it is as wide as its longest line, so that a
    file or another program gets a line for each row."""
    lines = table.lines()
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else _ENDLESS
    if lines is not None and len(lines[0]) <= room:
        heading, *rows = lines
        sys.stdout.write(f"\x1b[1m{heading}\x1b[0m\n" if _has_styles() else f"{heading}\n")
        if rows:
            print_line("\n".join(rows))
        return
    from rich.table import Table

    folded = Table(box=None, pad_edge=False)
    for each in table.headings:
        folded.add_column(each, overflow="fold")
    for row in table.rows:
        folded.add_row(*row)
    (plain_console() if sys.stdout.isatty() else wide_console()).print(folded)


def _has_styles() -> bool:
    """Whether a heading is bold: on a terminal that can show it, and where colours are asked for (`--color`)."""
    asked = bool(os.environ.get("FORCE_COLOR")) or sys.stdout.isatty()
    return asked and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
