"""The stream on disk: a file of bounded size that the page replays, and its index.

Each line is a JSON object: {"tailrace": 1} first, then {"at": SECONDS, "whole": …} or {"at": …, "change": …} as the
stream sends them, and {"end": true} where it ended in order. A part begins with a whole, so that the page may begin at
any. Once the file has half of what it may, it becomes FILE.1, in the place of the one before.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from tailrace.errors import Failure, Mistake

FORMAT = 1
PART = 10.0
"""Seconds of the stream that the page asks for at once."""
MOST_PART = 64 << 20
"""Bytes of a part that are sent; no picture is as large."""
_END = b'{"end":true}\n'


def previous(file: Path) -> Path:
    return file.with_name(f"{file.name}.1")


class Recorder:
    """Writes, for one event loop. What cannot be written ends it, and `why` says so: nobody waits for a disk."""

    def __init__(self, file: Path, limit: int) -> None:
        """Begins anew; what was recorded before becomes FILE.1. Raises Mistake."""
        self.path = file
        self.why = ""
        self._half = limit // 2
        self._part = float("-inf")
        try:
            self._begin()
        except OSError as error:
            raise Mistake(f"{file}: {error.strerror}") from None

    def write(self, whole: Callable[[], bytes], change: bytes) -> None:
        """A picture: as JSON, whole (made only now and then) and as a change of the one before."""
        if self.why:
            return
        now = time.time()
        begins = now - self._part >= PART
        try:
            if begins and self._file.tell() >= self._half:
                self._close()
                self._begin()
            kind, said = (b"whole", whole()) if begins else (b"change", change)
            self._file.write(b'{"at":%.3f,"%s":%s}\n' % (now, kind, said))
            if begins:
                self._part = now
        except OSError as error:
            self.why = f"{self.path}: the record has ended: {error.strerror}"
            with suppress(OSError):
                self._file.close()

    def close(self) -> None:
        if not self.why:
            self._close()

    def _begin(self) -> None:
        if self.path.exists():
            if not self.path.is_file():
                raise Mistake(f"{self.path}: not a file")
            self.path.replace(previous(self.path))
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file: BinaryIO = os.fdopen(descriptor, "wb", buffering=0)
        self._file.write(f'{{"tailrace":{FORMAT}}}\n'.encode())

    def _close(self) -> None:
        with suppress(OSError):
            self._file.write(_END)
            self._file.close()


@dataclass
class Index:
    """Where the parts of a record begin; read on at every look."""

    path: Path
    parts: list[tuple[float, int]] = field(default_factory=list)
    """When, and at which byte."""
    last: float = 0.0
    """When the last picture was."""
    ended: bool = False
    size: int = 0
    """Bytes of whole lines that were read."""
    inode: int = 0

    def look(self) -> Index:
        """Raises Failure if it is no record, or is not there."""
        try:
            with self.path.open("rb") as file:
                if (inode := os.fstat(file.fileno()).st_ino) != self.inode:  # another has taken its name
                    self.parts, self.size, self.ended, self.inode = [], 0, False, inode
                file.seek(self.size)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._take(line)
                    self.size += len(line)
        except OSError as error:
            raise Failure(f"{self.path}: {error.strerror}") from None
        except ValueError:
            raise Failure(f"{self.path}: not a record of `tailrace dashboard --record`") from None
        return self

    def _take(self, line: bytes) -> None:
        if self.size == 0:
            head = json.loads(line)
            if not isinstance(head, dict) or head.get("tailrace") != FORMAT:
                raise ValueError
        elif line == _END:
            self.ended = True
        else:
            at, _, rest = line[:64].removeprefix(b'{"at":').partition(b",")
            self.last = float(at)
            if rest.startswith(b'"whole"'):
                self.parts.append((self.last, self.size))


class Record:
    """A record and the one that it has taken the place of, for who replays them."""

    def __init__(self, file: Path, *, recording: bool) -> None:
        self._recording = recording
        self._files = [Index(previous(file)), Index(file)]

    def document(self) -> dict[str, Any]:
        """When each part begins, how long it all is, and `cut` where it does not end in order. Raises Failure."""
        old, new = self._files
        found = [index.look() for index in ([old] if old.path.exists() else []) + [new]]
        return {
            "parts": [at for index in found for at, _ in index.parts],
            "last": max((index.last for index in found), default=0.0),
            "recording": self._recording,
            "cut": not self._recording and not new.ended,
        }

    def part(self, at: float) -> bytes:
        """The lines of the part that begins then. Raises Mistake if there is none, Failure."""
        for index in self._files:
            starts = [start for start, _ in index.parts]
            if at in starts:
                number = starts.index(at)
                begin = index.parts[number][1]
                end = index.parts[number + 1][1] if number + 1 < len(index.parts) else index.size
                try:
                    with index.path.open("rb") as file:
                        file.seek(begin)
                        return file.read(min(end - begin, MOST_PART))
                except OSError as error:
                    raise Failure(f"{index.path}: {error.strerror}") from None
        raise Mistake("there is no such part of the record; it is bounded, and the oldest go first")
