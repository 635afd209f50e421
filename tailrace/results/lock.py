"""Who is at work on a run folder and what is in it: a lock in it, while it is measured into or written anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tailrace.errors import Mistake
from tailrace.process.lock import Held, is_locked, locked

_LOCK = ".lock"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """The folder is this command's for the block. Raises Mistake while it is another's, OSError."""
    with ExitStack() as held:
        try:
            held.enter_context(locked(folder / _LOCK))
        except Held as error:
            raise Mistake(
                f"{folder}: another command measures into it: {error}; wait for it, or end it with Ctrl-C"
            ) from None
        yield


def is_held(folder: Path) -> bool:
    """Whether a process has the folder to itself, to go on with what is in it."""
    return is_locked(folder / _LOCK)
