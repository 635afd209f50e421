"""Ends with this process what is not its child: a shell waits for the end of a pipe that only this process holds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tailrace.process.process import Limits, ProcessId, start
from tailrace.state.record import Process, State

_SCRIPT = 'read -r nothing; exec "$@"'
_held: list[int] = []


def keep(state: State, name: str, argv: Sequence[str]) -> None:
    """Runs a command when this process has ended, however it did. It is on record, so that it is ended with the rest
    where the end was orderly."""
    source, sink = os.pipe()
    _held.append(sink)

    def record(process: ProcessId) -> None:
        state.add(Process(f"{name}.keeper", process.pid, process.start, "sh"))

    try:
        start(
            ["/bin/sh", "-c", _SCRIPT, "tailrace-keeper", *argv],
            log=Path(os.devnull),
            limits=Limits(tied=False),
            record=record,
            stdin=source,
        )
    finally:
        os.close(source)
