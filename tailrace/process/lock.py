"""Locks between commands: flock(2) on a file that only its owner can open, so that nobody else can hold it.

The kernel lets go of a lock however its holder ends, and knows who that is (holder.py). The file is there while it is
held, and may stay after a power cut, which means nothing.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tailrace.errors import Mistake
from tailrace.process.holder import described, lock_holder

_AGAIN_SECONDS = 0.05
_TRIES = 10


class Held(Exception):
    """Another process has the lock."""

    def __init__(self, pid: int | None) -> None:
        super().__init__(pid)
        self.pid = pid
        """Its id; None where the kernel does not tell."""

    def __str__(self) -> str:
        """The process: its id, its command, and since when it has run."""
        return (described(self.pid) if self.pid is not None else None) or "another process"


@contextmanager
def locked(path: Path, *, patience: float = 0.0) -> Iterator[None]:
    """The lock that stands for what is done in the block, in a folder that is there.

    Raises Held if another process still has it after `patience` seconds, Mistake where others could take part in it,
    OSError.
    """
    descriptor = _acquire(path, time.monotonic() + patience)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether a process has the lock; of one that we may not open the kernel is asked."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError:
        return lock_holder(path) is not None
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _acquire(path: Path, deadline: float) -> int:
    while True:
        descriptor = _open(path)
        try:
            _take(descriptor, deadline)
            if _is_at(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its holder has just removed it


def _open(path: Path) -> int:
    """The file, which is made where it is missing. Raises Mistake if others may open it, or could have made it."""
    folder = path.parent.stat()
    if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
        raise Mistake(f"{path.parent}: anybody may write to it and so block this command; run `chmod o-w` on it first")
    for _ in range(_TRIES):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size or found.st_uid not in (os.geteuid(), folder.st_uid):
            os.close(descriptor)
            raise Mistake(f"{path}: is not a lock of ours; move it away")
        if not found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            return descriptor
        # One that others could open may be held by them, whatever its mode is made now.
        os.close(descriptor)
        with suppress(FileNotFoundError):
            path.unlink()
    raise Mistake(f"{path}: another process keeps opening it to others")


def _take(descriptor: int, deadline: float) -> None:
    """Raises Held."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise Held(lock_holder(descriptor)) from None
            time.sleep(_AGAIN_SECONDS)
        else:
            return


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False
