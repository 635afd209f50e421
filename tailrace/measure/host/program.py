"""A program that measures or loads: it dies with this command, its output goes to a log, and it is ended in order."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tailrace.errors import Failure
from tailrace.process.plain import last_line
from tailrace.process.process import Limits, ProcessId, how_it_ended, reap, start

_LOOK = 0.2
"""Seconds between two looks at whether it has ended."""
_PATIENCE = 15.0
"""Seconds beyond its time until a program counts as stuck; also what it may take to end."""


@contextmanager
def running(argv: Sequence[str], log: Path, cpus: Sequence[int]) -> Iterator[ProcessId]:
    """The program, on these CPUs, until the block ends."""
    process = start(argv, log=log, limits=Limits(cpus=tuple(cpus)), record=lambda _: None)
    try:
        yield process
    finally:
        if process.signal(signal.SIGTERM) and not process.wait(_PATIENCE):
            process.signal(signal.SIGKILL)
        process.wait(_PATIENCE)


def run(argv: Sequence[str], log: Path, cpus: Sequence[int], seconds: float, progress: Callable[[float], None]) -> None:
    """Runs a program that ends by itself after so many seconds. Raises Failure with its last words if it fails."""
    began = time.monotonic()
    with running(argv, log, cpus) as process, os.fdopen(os.pidfd_open(process.pid)) as handle:
        while not select.select([handle], [], [], _LOOK)[0]:
            done = time.monotonic() - began
            progress(done)
            if done > seconds + _PATIENCE:
                raise Failure(f"{Path(argv[0]).name} did not end in {done:.0f} s; see {log}")
        status = reap(process.pid)
    if status != 0:
        raise Failure(f"{Path(argv[0]).name} {how_it_ended(status)}: {last_words(log)}")


def last_words(log: Path) -> str:
    """The last line in a log that says something."""
    return last_line(log.read_text(errors="replace"), f"see {log}")
