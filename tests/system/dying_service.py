"""A service that is killed at a step of what it does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from running_node import Command, wait_until

from tailrace.node.client import ask

#: The service, which is killed when the record is written for the n-th time: before that, or after it.
DYING = """\
import os, signal, sys
from tailrace.state.record import State
from tailrace.node import service
left, after, save = int(sys.argv[1]), sys.argv[2] == "after", State.save
def dying(self, **how):
    global left
    left -= 1
    if left == 0 and not after:
        os.kill(os.getpid(), signal.SIGKILL)
    save(self, **how)
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
State.save = dying
sys.exit(service.main([sys.argv[3], "--while-up"]))
"""


@contextmanager
def dying_service(command: Command, step: int, when: str) -> Iterator[subprocess.Popen[bytes]]:
    """In the place of the one that runs."""
    ask(command.state, "service.stop", start=False)
    started = subprocess.Popen(
        [sys.executable, "-c", DYING, str(step), when, command.state], env=command.environment, cwd=command.folder
    )
    try:
        wait_until(lambda: answers(command, started.pid))
        yield started
        started.wait(timeout=60)
    finally:
        started.kill()
        started.wait()


def answers(command: Command, pid: int) -> bool:
    try:
        return command.service() == pid
    except Exception:
        return False
