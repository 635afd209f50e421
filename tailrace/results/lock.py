"""Who is at work on a run folder, or a log in it: a lock (flock(2)), which the kernel takes back from whoever ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tailrace.errors import Mistake


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """The folder is this command's for the block. Raises Mistake while it is another's, OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Mistake(f"{folder}: another command measures into it; wait for it, or end it with Ctrl-C") from None
        yield
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether a process has the folder or the log to itself, to go on with it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
