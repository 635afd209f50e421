"""Plain tables look as Rich draws them, which is only loaded for those that have to be folded."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout

import pytest
from rich.table import Table

from tailrace.cli import table as tables
from tailrace.cli.table import PlainTable, print_table
from tailrace.report.screen import Screen

ROWS: dict[str, tuple[tuple[str, ...], ...]] = {
    "none": (),
    "one": (("first.0", "up", "12", "34", "none"),),
    "longer than the headings": (("tester.a", "waiting", "1" * 20, "0", "receiver_full 3, no_match 1"), ("x",) * 5),
    "empty cells": (("", "", "", "", ""), ("first", "", "", "1", "")),
    "fewer cells": (("first",), ("second", "up")),
    "a letter that is not ASCII": (("first", "–", "µ", "1", "3"),),
    "letters two columns wide": (("網路", "up", "1", "2", "3"), ("first", "up", "1", "2", "3")),
    "several lines": (("first", "a\nb", "1", "2", "3"),),
    "what Rich would take for a style": (("[bold]x[/]", ":x:", "1", "2", "3"),),
}
HEADINGS = ("port", "state", "", "received", "drops")


def drawn(rows: tuple[tuple[str, ...], ...], width: int) -> str:
    table = Table(box=None, pad_edge=False)
    for each in HEADINGS:
        table.add_column(each, overflow="fold")
    for row in rows:
        table.add_row(*row)
    file = io.StringIO()
    Screen(width=width, file=file, highlight=False).print(table)
    return file.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(rows: tuple[tuple[str, ...], ...], *, terminal: bool = False) -> str:
    table = PlainTable(*HEADINGS)
    for row in rows:
        table.add_row(*row)
    with redirect_stdout(Terminal() if terminal else io.StringIO()) as out:
        print_table(table)
    return out.getvalue()


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize(("terminal", "columns"), [(False, 10_000), (True, 80), (True, 30)])
def test_a_table_is_what_rich_draws(
    rows: tuple[tuple[str, ...], ...], terminal: bool, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that reads it gets a line for each row, a terminal what fits."""
    monkeypatch.setenv("COLUMNS", str(columns if terminal else 30))
    assert re.sub(r"\x1b\[\d*m", "", printed(rows, terminal=terminal)) == drawn(rows, columns)


def test_what_fits_needs_no_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded() -> Screen:
        raise AssertionError("it was loaded")

    monkeypatch.setattr(tables, "wide_console", loaded)
    assert printed(ROWS["one"]).splitlines()[1].split() == list(ROWS["one"][0])


@pytest.mark.parametrize(("term", "bold"), [("xterm", True), ("dumb", False)])
def test_the_heading_is_bold_on_a_terminal(term: str, bold: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", term)
    for rows in (ROWS["one"], ROWS["a letter that is not ASCII"]):
        heading, row = printed(rows).splitlines()
        assert heading.startswith("\x1b[1m") is bold
        assert "\x1b" not in row
