"""What a process leaves to a shell, for where it is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

_WITHIN = """
import sys
from tailrace.process.if_killed import if_killed
with if_killed('echo "$2" >"$1.new" && mv "$1.new" "$1"', sys.argv[1], "two words"):
    print("within", flush=True)
    sys.stdin.readline()
print("over", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("number", [None, signal.SIGKILL, signal.SIGTERM])
def test_a_script_runs_if_the_process_is_killed_within_and_not_afterwards(tmp_path: Path, number: int | None) -> None:
    done = tmp_path / "done"
    words = [sys.executable, "-c", _WITHIN, str(done)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "within\n"
        if number is None:
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "over\n"  # and by then its shell has ended
        process.send_signal(number or signal.SIGKILL)
    deadline = time.monotonic() + 60
    while number is not None and not done.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (done.read_text() if done.exists() else None) == (None if number is None else "two words\n")
