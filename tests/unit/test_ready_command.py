"""The command as the tests run it is the command as a user does: what it prints, how it ends, and where it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import ready_command

TAILRACE = Path(sys.prefix) / "bin/tailrace"
SPEC = "functions: {first: skeleton}\nchains: {voice: [tester.a, first, tester.b]}\n"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "TAILRACE_STATE": str(tmp_path / "state")}


@pytest.mark.parametrize(
    "words", [("--help",), ("status", "--json"), ("nonsense",), ("up", "missing.yaml"), ("up", "--dry-run", "s.yaml")]
)
def test_it_does_what_the_program_does(tmp_path: Path, environment: dict[str, str], words: tuple[str, ...]) -> None:
    (tmp_path / "s.yaml").write_text(SPEC)
    copy = ready_command.run(TAILRACE, words, environment=environment, folder=tmp_path, timeout=60)
    program = subprocess.run(
        [TAILRACE, *words], capture_output=True, text=True, check=False, env=environment, cwd=tmp_path, timeout=60
    )
    assert (copy.returncode, copy.stdout, copy.stderr) == (program.returncode, program.stdout, program.stderr)


def test_one_that_takes_too_long_is_killed(tmp_path: Path, environment: dict[str, str]) -> None:
    """What the process takes that is copied, until it is ready, is no time of the command's."""
    ready_command.end_copied()
    files, threads = sum(1 for _ in Path("/proc/self/fd").iterdir()), threading.active_count()
    with pytest.raises(subprocess.TimeoutExpired):
        ready_command.run(
            TAILRACE, ("metrics", "--listen", "127.0.0.1:0"), environment=environment, folder=tmp_path, timeout=0.01
        )
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) <= files + 1  # the socket to the process that is copied
    assert threading.active_count() <= threads


def test_output_that_somebody_keeps_open_has_a_limit() -> None:
    output, kept = os.pipe()
    os.write(kept, b"said")
    found = {output: b""}
    assert not ready_command.read_all(found, 0.01)
    os.close(kept)
    assert ready_command.read_all(found, 60)
    os.close(output)
    assert found == {output: b"said"}


def test_the_process_that_is_copied_is_started_anew_where_it_was_killed(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    for _ in range(2):
        done = ready_command.run(TAILRACE, ("--version",), environment=environment, folder=tmp_path, timeout=60)
        assert done.returncode == 0
        assert ready_command._process is not None
        ready_command._process[0].kill()
        ready_command._process[0].wait()


@pytest.mark.parametrize("times", [1, 2])
def test_the_process_that_is_copied_is_started_anew_where_it_ends_with_a_request(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Twice at most: it may end each time."""
    program = tmp_path / "ends"
    program.write_text(
        "import os, socket, sys\n"
        f"if len(os.listdir({str(tmp_path)!r})) > {times}:\n"
        f"    os.execv(sys.executable, [sys.executable, '-P', {ready_command.__file__!r}, sys.argv[1]])\n"
        f"open({str(tmp_path)!r} + f'/{{os.getpid()}}', 'w')\n"
        "socket.socket(fileno=int(sys.argv[1])).recv(1)\n"
    )
    ready_command.end_copied()
    monkeypatch.setattr(ready_command, "__file__", str(program))
    words = ("--version",)
    if times == 1:
        assert ready_command.run(TAILRACE, words, environment=environment, folder=tmp_path, timeout=60).returncode == 0
    else:
        with pytest.raises(RuntimeError, match="ended, or stood still, before it ran the command"):
            ready_command.run(TAILRACE, words, environment=environment, folder=tmp_path, timeout=60)


def test_another_program_is_started_itself(tmp_path: Path, environment: dict[str, str]) -> None:
    program = tmp_path / "other"
    program.write_text("#!/bin/sh\necho $1\nexit 3\n")
    program.chmod(0o755)
    done = ready_command.run(program, ("said",), environment=environment, folder=tmp_path, timeout=60)
    assert (done.returncode, done.stdout) == (3, "said\n")
