"""Runs daemons and reaps what they leave: the first process of a container or of a small system may not, or late, and
who has ended a process of such a daemon waits for that.

Run as a program: reaper.py -- HELPER WORD ... -- DAEMON WORD ...  The last one is the daemon; the others are ended when
nothing else is left. At SIGUSR1 it starts again what of these has ended: what a daemon that was killed has left stays
with the helpers that it was started with.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def _commands(words: list[str]) -> list[list[str]]:
    """-- a b -- c → [[a, b], [c]]"""
    found: list[list[str]] = []
    for word in words:
        if word == "--":
            found.append([])
        else:
            found[-1].append(word)
    return found


def _children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def main(words: list[str]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    commands = _commands(words)
    begun: dict[int, int] = {}
    """Processes by which command each runs."""

    def start_missing(*_: object) -> None:
        for number, command in enumerate(commands):
            if number not in begun.values():
                begun[os.posix_spawnp(command[0], command, os.environ)] = number

    start_missing()
    signal.signal(signal.SIGUSR1, start_missing)
    with suppress(ChildProcessError):
        while True:
            ended = os.waitpid(-1, 0)[0]
            begun.pop(ended, None)
            helpers = {pid for pid, number in begun.items() if number != len(commands) - 1}
            if helpers and _children() <= helpers:
                for each in helpers:
                    with suppress(ProcessLookupError):
                        os.kill(each, signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1:])
