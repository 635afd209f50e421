"""The command as the tests run it is the command as a user does: what it prints, how it ends, and where it runs."""

from __future__ import annotations

import os
import subprocess
import sys
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
    with pytest.raises(subprocess.TimeoutExpired):
        ready_command.run(
            TAILRACE, ("metrics", "--listen", "127.0.0.1:0"), environment=environment, folder=tmp_path, timeout=0.5
        )


def test_another_program_is_started_itself(tmp_path: Path, environment: dict[str, str]) -> None:
    program = tmp_path / "other"
    program.write_text("#!/bin/sh\necho $1\nexit 3\n")
    program.chmod(0o755)
    done = ready_command.run(program, ("said",), environment=environment, folder=tmp_path, timeout=60)
    assert (done.returncode, done.stdout) == (3, "said\n")
