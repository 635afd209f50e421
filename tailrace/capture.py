"""Capturing what a port or a chain of the switch carries.

The switch's workers copy frames into rings, one for each worker, in files that are mapped here; what comes out is
written to capture files. What finds no room in a ring, because the disk is slower than the traffic, is counted by the
switch and told at the end; traffic never waits for a capture.
"""

from __future__ import annotations

import heapq
import mmap
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.control import Control
from tailrace.errors import Failure, Mistake
from tailrace.pcap import RECORD, Full, Writer, records

_HEADER = struct.Struct("<8sIIQ")
_COUNTER = struct.Struct("<Q")
_HEAD, _FRAMES, _DROPPED, _TAIL, _DATA = 64, 72, 80, 128, 4096
_CHUNK = 4 << 20
#: Seconds between two questions to the switch, which also keep the capture alive and its clock right.
_ASK = 1.0


class Ring:
    """One worker's ring: it writes frames, this takes them out."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), 0)
        except (OSError, ValueError):
            raise Failure(f"{path}: the switch's capture cannot be read") from None
        magic, version, _, self._size = _HEADER.unpack_from(self._map)
        if magic != b"TAILCAPT" or version != 1:
            raise Failure(f"{path}: not a capture that this version reads")
        self._tail = self._get(_TAIL)

    def _get(self, offset: int) -> int:
        return int(_COUNTER.unpack_from(self._map, offset)[0])

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
        head = self._get(_HEAD)
        if head == self._tail:
            return b""
        at, length = self._tail % self._size, head - self._tail
        first = min(length, self._size - at)
        chunk = self._map[_DATA + at : _DATA + at + first] + self._map[_DATA : _DATA + length - first]
        if length > _CHUNK:
            end = 0
            for _, after in records(chunk):
                end = after
                if end >= _CHUNK:
                    break
            chunk = chunk[:end]
        self._tail += len(chunk)
        _COUNTER.pack_into(self._map, _TAIL, self._tail)
        return chunk

    def close(self) -> None:
        self._map.close()


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
        running.rings = [Ring(Path(path)) for path in answer["rings"]]
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
    result = Captured(writer.written, writer.kept, running.dropped, writer.paths, ended, error)
    for ring in running.rings:
        ring.close()
    return result
