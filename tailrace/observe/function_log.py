"""What a function of what is up has said: of a machine, its console."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from tailrace.errors import Mistake
from tailrace.state.record import Process, peek
from tailrace.switch.config import function_name

_LINE = 256
"""Bytes that a line has, as a rule."""


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
