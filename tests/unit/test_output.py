"""What becomes of a command whose output cannot be written: its work is done and told of elsewhere."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pytest
from rich.table import Table
from rich.text import Text

import tailrace
from tailrace.cli.commands import say
from tailrace.cli.output import (
    error_line,
    note,
    orderly,
    plain_console,
    print_json,
    print_line,
    run_command,
    telling,
    wide_console,
)
from tailrace.cli.table import PlainTable, print_table
from tailrace.process.plain import MOST, PlainFormatter, last_line, plain, plain_lines
from tailrace.process.process import undisturbed
from tailrace.report.screen import Screen

FULL = Path("/dev/full")
NO_SPACE = "tailrace: standard output: No space left on device"


Output = Callable[[], TextIO]


def no_room() -> TextIO:
    return FULL.open("w")


def no_reader() -> TextIO:
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w")


def screen() -> int:
    Screen().print("a table")
    return 0


def lines() -> int:
    print_line("a line")
    return 0


@pytest.mark.parametrize("call", [screen, lines])
@pytest.mark.parametrize(("output", "status", "said"), [(no_room, 1, f"{NO_SPACE}\n"), (no_reader, 141, "")])
def test_output_that_is_the_work_fails_in_one_line(
    output: Output,
    call: Callable[[], int],
    status: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But to a reader that has gone there is nothing to say."""
    with output() as unwritable:
        monkeypatch.setattr(sys, "stdout", unwritable)
        assert run_command(call) == status
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("call", [screen, lines])
@pytest.mark.parametrize(("output", "why"), [(no_room, "No space left on device"), (no_reader, "Broken pipe")])
def test_output_that_only_tells_of_the_work_changes_nothing(
    output: Output,
    call: Callable[[], int],
    why: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def tell() -> int:
        with telling("version 3 is up all the same"):
            call()
        return lines()

    with output() as unwritable:
        monkeypatch.setattr(sys, "stdout", unwritable)
        assert run_command(tell) == 0
    assert capsys.readouterr().err == f"tailrace: standard output: {why}; version 3 is up all the same\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_are_no_obstacle(closed: str) -> None:
    program = f"{sys.executable} -m tailrace.cli.main version {closed}"
    done = subprocess.run(["sh", "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def _signals() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals")
def test_a_terminal_that_is_closed_ends_a_command_in_order() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with pytest.raises(KeyboardInterrupt, match="ended by SIGHUP"), orderly():
        with undisturbed():
            signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)


@pytest.mark.usefixtures("_signals")
def test_a_command_that_was_started_to_outlive_its_terminal_does() -> None:
    """As `nohup` starts it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with orderly():
        signal.raise_signal(signal.SIGHUP)


def test_a_command_that_only_asks_loads_neither_rich_nor_models() -> None:
    """Its start is all of the time that it takes."""
    program = (
        "import sys; sys.argv = ['tailrace', 'status']\n"
        "import tailrace.cli.main, tailrace.cli.operate, tailrace.node.client\n"
        "tailrace.cli.main.operate.status  # loaded as it is used\n"
        "from tailrace.cli.table import PlainTable, print_table\n"
        "print_table(PlainTable('port', 'state'))\n"
        "print(sorted({'rich', 'pydantic', 'yaml'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "port  state\n[]\n"


HOSTILE = "a\x1b[2J[/x][red]:x:\r\t\x9b\u202e\ud800\x7fé"
"""Of each kind that a terminal, or Rich, would obey; `é` is a letter."""
HARMLESS = "a [2J[/x][red]:x:      é"


def test_whatever_is_printed_a_terminal_obeys_nothing_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE)
    plain_table = PlainTable(HOSTILE)
    plain_table.add_row(HOSTILE)
    print_table(plain_table)
    for console in (wide_console(), plain_console(), Screen(width=200)):
        console.print(table)
        console.print(HOSTILE, Text(HOSTILE))
    print_line(f"{HOSTILE}\n{HOSTILE}")
    print_json({HOSTILE: HOSTILE})
    say([HOSTILE], as_json=False)
    error_line(f"{HOSTILE}\n")
    note(HOSTILE)
    said = capsys.readouterr()
    for stream in said:
        assert all(line.isprintable() for line in stream.split("\n"))
        assert "[/x][red]:x:" in stream and "é" in stream
    assert said.err.count("\n") == 2
    document = said.out[said.out.index("{") :].partition("}")[0] + "}"
    assert json.loads(document) == {HOSTILE: HOSTILE}  # what is for programs loses nothing


def test_words_of_others_are_letters_on_one_line_and_bounded() -> None:
    assert plain(HOSTILE) == HARMLESS
    assert plain("x" * (1 << 20), 8) == "xxxxxxx…"
    assert len(plain("\x1b" * (1 << 20))) == MOST
    assert plain_lines(f"{HOSTILE}\n\n{HOSTILE}") == f"{HARMLESS}\n\n{HARMLESS}"
    assert last_line(b"a\n b\x1b[2J\xff\r\n \n") == "b [2J\ufffd"
    assert (last_line("\n"), last_line(b"", "nothing")) == ("failed", "nothing")


def test_logs_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter("%(message)s"))
    handler.handle(logging.makeLogRecord({"msg": "%s", "args": (HOSTILE,)}))
    assert capsys.readouterr().err == f"{HARMLESS}\n"


def test_there_is_no_other_console() -> None:
    """Rich's own would obey what is printed: [/x] is an error to it, and ESC goes to the terminal."""
    sources = Path(tailrace.__file__).parent
    made = re.compile(r"\b(Console|from_markup)\((?!Console)")
    assert [path for path in sources.rglob("*.py") if made.search(path.read_text())] == []
