"""What is to be done where this process is killed in the middle of something, and cannot undo it itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tailrace.process.process import Limits, start

_SCRIPT = "read -r over && exit\n"
_END_SECONDS = 5.0


@contextmanager
def if_killed(script: str, *words: str) -> Iterator[None]:
    """A shell waits that runs `script`, whose arguments are `words`, if this process ends within. Raises Failure."""
    source, sink = os.pipe()
    try:
        shell = start(
            ["/bin/sh", "-c", _SCRIPT + script, "tailrace-if-killed", *words],
            log=Path(os.devnull),
            limits=Limits(tied=False),
            record=lambda _: None,
            stdin=source,
        )
    except BaseException:
        os.close(sink)
        raise
    finally:
        os.close(source)
    try:
        yield
    finally:
        with suppress(OSError):  # somebody has ended it
            os.write(sink, b"over\n")
        os.close(sink)
        shell.wait(_END_SECONDS)
