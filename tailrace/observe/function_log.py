"""What a function of what is up has said: of a machine, its console."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from tailrace.errors import Mistake, TailraceError
from tailrace.process.log_writer import previous
from tailrace.state.record import Process, peek
from tailrace.switch.config import function_name

_LINE = 256
"""Bytes that a line has, as a rule."""
_MOST = 1 << 16
"""And those that are shown as one at most."""
_PAUSE, _LOOK = 0.1, 1.0
"""Seconds between two looks at a log, and between two at which log it is."""


def processes(folder: Path) -> dict[str, Process]:
    """The newest process of each function or replica of what is up in a folder, by name. Raises Failure."""
    things = peek(folder).things
    return {function_name(each.name): each for each in things if isinstance(each, Process) and each.runtime}


def process_of(folder: Path, name: str) -> Process:
    """The process of a function or a replica. Raises Mistake if there is none, Failure."""
    found = processes(folder)
    if name not in found:
        raise Mistake(f"no function {name!r} is up; there are: {', '.join(found) or 'none'}")
    return found[name]


def log_of(folder: Path, name: str) -> Path:
    """Raises as process_of does."""
    return folder / "logs" / f"{process_of(folder, name).name}.log"


def last_lines(file: BinaryIO, count: int) -> list[str]:
    """The last lines of a log, which may be long; the file is then at its end. Raises OSError."""
    end = file.seek(0, os.SEEK_END)
    reach = count * _LINE
    while True:
        start = max(end - reach, 0)
        file.seek(start)
        lines = file.read(end - start).splitlines()
        if start == 0 or len(lines) > count:
            return [line.decode(errors="replace") for line in lines[-count:]]
        reach *= 4


def latest_lines(path: Path, count: int) -> tuple[list[str], BinaryIO]:
    """The last lines of what is kept, of the log before too if this one has begun anew (log_writer.py); and this one,
    open and at its end. Raises OSError."""
    file = path.open("rb")
    try:
        lines = last_lines(file, count)
        if len(lines) < count:
            with suppress(FileNotFoundError), previous(path).open("rb") as before:
                if not os.path.samestat(os.fstat(file.fileno()), os.fstat(before.fileno())):
                    lines = last_lines(before, count - len(lines)) + lines
    except OSError:
        file.close()
        raise
    return lines, file


def log_now(folder: Path, name: str) -> Callable[[], Path]:
    """Says which file is the log of a function, and after its end which one was; looks once a second. Raises as
    process_of does, but only now."""
    path, looked = log_of(folder, name), time.monotonic()

    def now() -> Path:
        nonlocal path, looked
        if time.monotonic() - looked >= _LOOK:
            with suppress(TailraceError):
                path = log_of(folder, name)
            looked = time.monotonic()
        return path

    return now


def added_lines(file: BinaryIO, log: Callable[[], Path], wait: Callable[[], None] | None = None) -> Iterator[str]:
    """Each line that is added to a log, from where `file` stands. Goes on with the one that begins in its place when it
    is full, and with that of the instance that comes in its function's place: `log` says which file it is now. Raises
    OSError."""
    begun = b""
    with ExitStack() as opened:
        while True:
            newer = _newer(file, log())  # before the look at what is left in the older one
            while added := file.readline(_MOST):
                begun += added
                if begun.endswith(b"\n") or len(begun) >= _MOST:
                    yield _text(begun)
                    begun = b""
            if newer is None:
                (wait or _pause)()
                continue
            if begun:
                yield _text(begun)
                begun = b""
            opened.close()
            file = opened.enter_context(newer)


def _pause() -> None:
    time.sleep(_PAUSE)


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r\n")


def _newer(file: BinaryIO, path: Path) -> BinaryIO | None:
    """What is at the path now, if that is another file."""
    try:
        found = path.open("rb")
    except FileNotFoundError:  # not yet
        return None
    if not os.path.samestat(os.fstat(file.fileno()), os.fstat(found.fileno())):
        return found
    found.close()
    return None
