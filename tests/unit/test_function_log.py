"""What `tailrace function log` prints of a log that is written meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from tailrace.cli.function import _log
from tailrace.errors import Mistake
from tailrace.kernel.boot import boot_id
from tailrace.observe import function_log
from tailrace.observe.function_log import added_lines, latest_lines, log_now
from tailrace.process.log_writer import BoundedLog, previous
from tailrace.process.process import identify
from tailrace.state.record import Process, Record, State

LINE = "line 0000"
LIMIT = 10 * (len(LINE) + 1)


def say(bounded: BoundedLog, first: int, end: int) -> None:
    for number in range(first, end):
        bounded.write(f"line {number:04}\n".encode())


def lines(first: int, end: int) -> list[str]:
    return [f"line {number:04}" for number in range(first, end)]


def test_the_last_lines_are_of_the_log_before_too(tmp_path: Path) -> None:
    path = tmp_path / "gate.log"
    say(BoundedLog(path, LIMIT), 0, 12)  # ten are one log
    assert previous(path).exists()
    for count in (1, 2, 5, 12, 100):
        found, file = latest_lines(path, count)
        with file:
            assert found == lines(max(12 - count, 0), 12)
            assert file.read() == b""


def test_what_is_added_is_followed_from_log_to_log(tmp_path: Path) -> None:
    """Into a log that begins anew, twice, and to that of another instance, which is not there at once."""
    path, other = tmp_path / "gate.log", tmp_path / "gate@2.log"
    bounded, current = BoundedLog(path, LIMIT), path
    say(bounded, 0, 5)

    def replace() -> None:
        nonlocal current
        current = other

    steps: list[Callable[[], None]] = [
        lambda: say(bounded, 5, 12),
        lambda: bounded.write(b"line "),
        lambda: bounded.write(b"0012\n"),
        lambda: say(bounded, 13, 22),
        replace,
        lambda: bounded.write(b"line 0022"),  # its last words
        lambda: say(BoundedLog(other, LIMIT), 23, 25),
    ]
    found, file = latest_lines(path, 2)
    with file:
        assert found == lines(3, 5)
        assert list(islice(added_lines(file, lambda: current, lambda: steps.pop(0)()), 20)) == lines(5, 25)
    assert not steps


def test_the_log_is_that_of_the_newest_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And after its end that of the last one."""

    def have(*names: str) -> None:
        own = identify(os.getpid())
        assert own is not None
        things = [Process(name, own.pid, own.start, "tailrace-vnf", runtime="process") for name in names]
        State(tmp_path, Record(boot_id(), things=list(things))).save()

    monkeypatch.setattr(function_log, "_LOOK", 0)
    have("gate")
    log = log_now(tmp_path, "gate")
    found = [log()]
    for names in (("gate", "gate@2"), ("gate@2",), ()):
        have(*names)
        found.append(log())
    assert [path.name for path in found] == ["gate.log", *["gate@2.log"] * 3]
    with pytest.raises(Mistake, match="no function 'gate' is up"):
        log_now(tmp_path, "gate")


def test_what_is_followed_is_no_json() -> None:
    with pytest.raises(Mistake, match="expected one of them"):
        _log("gate", 20, follow=True, as_json=True)
