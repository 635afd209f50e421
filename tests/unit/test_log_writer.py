"""The bound on a function's log, and that what it said last is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.process import log_writer
from tailrace.process.log_writer import CHUNK, BoundedLog, previous, with_times
from tailrace.process.process import Limits
from tailrace.state import launch
from tailrace.state.launch import _TIME, Launcher, why_ended
from tailrace.state.record import hold

LIMIT = 10_000


def both(log: Path) -> bytes:
    """What is kept, the older first."""
    return b"".join(path.read_bytes() for path in (previous(log), log) if path.exists())


def test_a_log_begins_anew_with_a_whole_line(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(b"from before\n")
    bounded = BoundedLog(log, LIMIT)
    said = b"from before\n"
    for number in range(3000):
        line = b"line %d\n" % number
        said += line
        for part in (line[:3], line[3:]):
            bounded.write(part)
        assert log.stat().st_size <= LIMIT + CHUNK
        assert said.endswith(both(log))
        assert log.read_bytes().startswith((b"line ", b"from before"))
    assert LIMIT < len(both(log)) <= 2 * LIMIT + 100
    assert log.read_bytes().endswith(b"line 2999\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.log", "x.log.1"]


def test_what_has_no_lines_is_bounded_too(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    bounded = BoundedLog(log, LIMIT)
    for _ in range(100):
        bounded.write(b"x" * 999)
        assert log.stat().st_size <= LIMIT
        assert len(both(log)) <= 2 * LIMIT


def test_what_cannot_be_written_is_lost_and_what_comes_after_is_not(tmp_path: Path) -> None:
    log = tmp_path / "later" / "x.log"
    bounded = BoundedLog(log, LIMIT)
    bounded.write(b"lost\n")
    log.parent.mkdir()
    bounded.write(b"kept\n")
    assert log.read_bytes() == b"kept\n"


def test_the_writer_ends_with_those_who_write_and_not_when_it_is_told_to(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    argv = [sys.executable, "-I", "-S", log_writer.__file__, str(log), str(LIMIT)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as writer:
        assert writer.stdin is not None
        writer.stdin.write(b"first\n")
        writer.stdin.flush()
        while not log.exists():
            pass
        writer.terminate()
        writer.stdin.write(b"x" * 300_000 + b"\nlast words\n")
    assert writer.returncode == 0
    assert log.read_bytes().endswith(b"last words\n")
    assert len(both(log)) <= 2 * (LIMIT + CHUNK)


def test_each_line_begins_with_the_time_once() -> None:
    now = 1_793_577_600.0424
    stamp = b"2026-11-02T00:00:00.042Z "
    assert with_times(b"one\ntwo", now, at_start=True) == stamp + b"one\n" + stamp + b"two"
    assert with_times(b" goes on\n", now, at_start=False) == b" goes on\n"
    assert with_times(b"\n\n", now, at_start=True) == stamp + b"\n" + stamp + b"\n"
    assert _TIME.match(stamp.decode())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "LOG_BYTES", LIMIT)


SCRIPT = "echo here it begins; i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; echo the end >&2; exit 3"


@pytest.mark.usefixtures("small")
def test_a_program_that_prints_more_than_the_bound(tmp_path: Path) -> None:
    with hold(tmp_path / "state") as state:
        launcher = Launcher(state, tmp_path, tied=False)
        launcher.log("it").write_text("the end of another\n" * 10)
        process = launcher.start("it", ["sh", "-c", SCRIPT], Limits(), bounded=True)
        assert process.id.wait(60)
        assert why_ended(launcher, process).endswith("(the end)")
        assert not process.writer.alive()
        lines = launcher.log("it").read_text().splitlines()
        assert [_TIME.sub("", line) for line in lines[-2:]] == ["line 19999", "the end"]
        assert all(_TIME.match(line) for line in lines)
        assert len(both(launcher.log("it"))) <= 2 * (LIMIT + CHUNK)
        # What is on record is undone, though nothing is left to do.
        assert state.processes() == [process]
        assert state.undo_all() == []


def test_what_was_said_since_the_start_is_found_behind_a_new_beginning(tmp_path: Path) -> None:
    with hold(tmp_path / "state") as state:
        launcher = Launcher(state, tmp_path, tied=False)
        log = launcher.log("it")
        log.write_text("forwarding\n")
        process = launcher.start("it", ["true"], Limits(), bounded=True)
        assert process.id.wait(60)
        assert process.writer.wait(60)
        assert not launcher.said("it", "forwarding"), "that was another"
        with log.open("a") as file:
            file.write("forwarding now\n")
        assert launcher.said("it", "forwarding")
        log.replace(previous(log))
        assert launcher.said("it", "forwarding now"), "nothing has been said since"
        log.write_text("more\n")
        assert launcher.said("it", "forwarding now")
        with previous(log).open("rb"):  # so that its inode is no other's
            log.replace(previous(log))
            log.write_text("and more\n")
            assert launcher.said("it", "and more")
        assert not launcher.said("it", "forwarding")
        assert state.undo_all() == []


def test_what_an_earlier_one_said_is_not_taken_for_new_where_its_log_is_gone(tmp_path: Path) -> None:
    with hold(tmp_path / "state") as state:
        launcher = Launcher(state, tmp_path, tied=False)
        previous(launcher.log("it")).write_text("forwarding\n")
        process = launcher.start("it", ["true"], Limits(), bounded=True)
        assert process.id.wait(60)
        assert process.writer.wait(60)
        assert not launcher.said("it", "forwarding")
        launcher.log("it").write_text("forwarding\n")
        assert launcher.said("it", "forwarding")
        assert state.undo_all() == []
