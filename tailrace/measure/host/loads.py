"""What else runs while the host is measured: nothing, computing, or memory that is mapped and written (stress-ng)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from tailrace.errors import Failure
from tailrace.measure.host.program import last_words, running
from tailrace.process.process import descendants
from tailrace.process.programs import system_program

LOADS = ("none", "cpu", "memory")
Load = Callable[[str, int, Sequence[int], Sequence[int], Path], AbstractContextManager[None]]
"""As `load` is."""
_START_SECONDS = 10.0
_MEMORY = "64M"
"""For each worker of the memory load: more than a core's own caches."""


@contextmanager
def load(kind: str, workers: int, control: Sequence[int], anywhere: Sequence[int], folder: Path) -> Iterator[None]:
    """So many workers, for the block.

    They are started on the `control` CPUs and then allowed `anywhere`: whether they spread from there is the
    scheduler's affair, as with everybody else's programs. Raises Failure if they do not start.
    """
    if kind == "none":
        yield
        return
    work = {"cpu": ["--cpu", str(workers)], "memory": ["--vm", str(workers), "--vm-bytes", _MEMORY]}[kind]
    argv = [system_program("stress-ng"), "--quiet", *work]
    log = folder / f"stress-ng-{kind}.log"
    with running(argv, log, control) as process:
        deadline = time.monotonic() + _START_SECONDS
        while len(found := descendants(process.pid)) < workers:
            if not process.alive() or time.monotonic() > deadline:
                raise Failure(f"stress-ng did not start: {last_words(log)}")
            time.sleep(0.05)
        for pid in (process.pid, *found, *descendants(process.pid)):
            with suppress(ProcessLookupError):
                os.sched_setaffinity(pid, anywhere)
        yield
