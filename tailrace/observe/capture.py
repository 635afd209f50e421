"""Capturing what a port or a chain of the switch carries.

The switch's workers copy frames into rings, one for each worker, in files that are read here; what comes out is written
to capture files. What finds no room in a ring, because the disk is slower than the traffic, is counted by the
switch and reported at the end; traffic never waits for a capture.
"""

from __future__ import annotations

import heapq
import os
import stat
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.errors import Failure, Mistake
from tailrace.observe.pcap import RECORD, Full, Writer, records
from tailrace.process.control import Control

_HEADER = struct.Struct("<8sIIQ")
_COUNTER = struct.Struct("<Q")
_HEAD, _FRAMES, _DROPPED, _TAIL, _DATA = 64, 72, 80, 128, 4096
_CHUNK = 4 << 20
#: Seconds between two questions to the switch, which also keep the capture alive and its clock right.
_ASK = 1.0


class Ring:
    """One worker's ring: it writes frames, this takes them out.

    Its reader may be root, and the switch another user whom nobody trusts: the file must be `owner`'s, the switch's
    own, so that no other is written to, and it is read and not mapped, since who cuts off a mapped file ends its
    reader (SIGBUS). Raises Failure where anything of it cannot be.
    """

    def __init__(self, path: Path, owner: int) -> None:
        self._path = path
        self._file = _open_ring(path, owner)
        magic, version, _, self._size = _HEADER.unpack(self._read(0, _HEADER.size))
        if magic != b"TAILCAPT" or version != 1:
            raise Failure(f"{path}: not a capture that this version reads")
        if self._size == 0 or os.fstat(self._file).st_size < _DATA + self._size:
            raise self._unsound()
        self._tail = self._get(_TAIL)

    def _unsound(self) -> Failure:
        return Failure(f"{self._path}: what the switch wrote there is no capture's ring; look at the switch")

    def _read(self, offset: int, length: int) -> bytes:
        found = os.pread(self._file, length, offset)
        if len(found) != length:
            raise self._unsound()
        return found

    def _get(self, offset: int) -> int:
        """A counter, which the kernel might copy while it is written: it holds when it is read twice the same."""
        before, found = b"", self._read(offset, _COUNTER.size)
        while found != before:
            before, found = found, self._read(offset, _COUNTER.size)
        return int(_COUNTER.unpack(found)[0])

    @property
    def frames(self) -> int:
        """Frames ever put in."""
        return self._get(_FRAMES)

    @property
    def dropped(self) -> int:
        """Frames that found no room."""
        return self._get(_DROPPED)

    def take(self) -> bytes:
        """The records that are there, whole, up to some megabytes; they are gone from the ring."""
        length = self._get(_HEAD) - self._tail
        if length == 0:
            return b""
        if not 0 < length <= self._size:
            raise self._unsound()
        taken, at = min(length, _CHUNK), self._tail % self._size
        first = min(taken, self._size - at)
        chunk = self._read(_DATA + at, first) + (self._read(_DATA, taken - first) if taken > first else b"")
        if length > _CHUNK:
            end = max((end for _, end in records(chunk)), default=0)
            if end == 0:
                raise self._unsound()
            chunk = chunk[:end]
        self._tail += len(chunk)
        os.pwrite(self._file, _COUNTER.pack(self._tail), _TAIL)
        return chunk

    def close(self) -> None:
        os.close(self._file)


def _open_ring(path: Path, owner: int) -> int:
    """The file, for reading and writing. It is looked at before it is opened, which of a device might do something."""
    there = -1
    try:
        there = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        found = os.fstat(there)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != owner:
            raise Failure(f"{path}: not a file of the switch's own (user {owner}), so it is left alone")
        return os.open(f"/proc/self/fd/{there}", os.O_RDWR | os.O_CLOEXEC)
    except (OSError, ValueError):
        raise Failure(f"{path}: the switch's capture cannot be read") from None
    finally:
        if there >= 0:
            os.close(there)


def merged(chunks: list[bytes]) -> bytes:
    """The records of several workers in the order of their times."""
    full = [chunk for chunk in chunks if chunk]
    if len(full) < 2:
        return full[0] if full else b""

    def timed(chunk: bytes) -> list[tuple[tuple[int, int], bytes]]:
        return [(RECORD.unpack_from(chunk, at)[:2], chunk[at:end]) for at, end in records(chunk)]

    return b"".join(record for _, record in heapq.merge(*map(timed, full), key=lambda item: item[0]))


@dataclass
class Captured:
    """What a capture came to."""

    frames: int
    """All that were written, also to files that have made room for newer ones."""
    kept: int
    """Those in the files that are there."""
    dropped: int
    paths: list[Path]
    ended: str
    error: Failure | None = None


@dataclass
class _Running:
    control: Control
    number: int
    rings: list[Ring]
    writer: Writer

    def move(self) -> bool:
        """Writes what is there; whether there was anything."""
        chunk = merged([ring.take() for ring in self.rings])
        if chunk:
            self.writer.write(chunk)
        return bool(chunk)

    @property
    def dropped(self) -> int:
        return sum(ring.dropped for ring in self.rings)

    def run(self, stop: Callable[[], bool], seconds: float | None, progress: Callable[[int, int], None]) -> str:
        """Captures until `stop` says so or the time is over; returns why it ended."""
        began = asked = time.monotonic()
        while True:
            ending = stop()
            moved = self.move()
            now = time.monotonic()
            if now - asked >= _ASK:
                asked = now
                self.control.call("capture.status", capture=self.number)
                progress(self.writer.written, self.dropped)
            if ending:
                return "stopped"
            if seconds is not None and now - began >= seconds:
                return "its time is over"
            if not moved:
                time.sleep(0.01)


def capture(
    control: Control,
    asked: dict[str, Any],
    make_writer: Callable[[], Writer],
    *,
    stop: Callable[[], bool],
    seconds: float | None = None,
    progress: Callable[[int, int], None] = lambda _frames, _dropped: None,
) -> Captured:
    """Captures until `stop` says so, so many seconds have passed, or the writer takes no more.

    `asked` are the params of capture.start. What was captured stays, whatever ends it: a failure is in the result.
    Raises ControlError if the switch refuses; no file is touched then, and an older one of that name is as it was.
    """
    answer = control.call("capture.start", **asked)
    try:
        writer = make_writer()
    except Mistake:
        with suppress(Failure):
            control.call("capture.stop", capture=answer["capture"])
        raise
    running = _Running(control, answer["capture"], [], writer)
    error: Failure | None = None
    ended = ""
    try:
        for path in answer["rings"]:
            running.rings.append(Ring(Path(path), control.peer))
        ended = running.run(stop, seconds, progress)
    except Full as full:
        ended = str(full)
    except Failure as failure:
        error = failure
    with suppress(Failure):
        control.call("capture.stop", capture=running.number)
    if error is None and ended in ("stopped", "its time is over"):
        try:
            while running.move():
                pass
        except Full as full:
            ended = str(full)
        except Failure as failure:
            error = failure
    writer.close()
    dropped = 0
    with suppress(Failure):
        dropped = running.dropped
    result = Captured(writer.written, writer.kept, dropped, writer.paths, ended, error)
    for ring in running.rings:
        ring.close()
    return result
