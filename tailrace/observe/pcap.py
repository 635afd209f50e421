"""Writing capture files: pcap with nanoseconds, one after the other, within bounds.

Records come as the switch's capture rings hold them (dataplane/steer/capture_ring.h): pcap's own records, whole, one
after the other. They are looked into only where a file has to end between two of them.
"""

from __future__ import annotations

import os
import stat
import struct
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import Failure, Mistake

#: Magic of a pcap with nanoseconds in the writer's byte order; version 2.4, UTC, Ethernet.
_HEADER = struct.Struct("<IHHiIII")
_MAGIC, _ETHERNET = 0xA1B23C4D, 1
RECORD = struct.Struct("<IIII")
"""Of a record's header: seconds, nanoseconds, bytes kept, bytes that the frame had."""


def header(snaplen: int) -> bytes:
    """What a file begins with."""
    return _HEADER.pack(_MAGIC, 2, 4, 0, 0, snaplen, _ETHERNET)


def records(chunk: bytes | memoryview) -> Iterator[tuple[int, int]]:
    """Where each record of the chunk begins and ends. What is cut off at its end is left out."""
    at = 0
    while at + RECORD.size <= len(chunk):
        end = at + RECORD.size + RECORD.unpack_from(chunk, at)[2]
        if end > len(chunk):
            return
        yield at, end
        at = end


@dataclass(frozen=True)
class Bounds:
    """When a file is full, and how many are kept."""

    size: int
    """Bytes of a file, its header included."""
    frames: int | None = None
    """Frames in a file."""
    seconds: float | None = None
    """Seconds until the next file."""
    files: int | None = None
    """How many are kept, the newest; None: there is one, and its end is the capture's."""


def check_target(path: Path) -> None:
    """Raises Mistake where the path is no file's, as `.` and `/` are not, which have no name to add numbers to."""
    if path.name in ("", "..") or path.is_dir():
        raise Mistake(f"{path}: this is a directory; expected a file, such as {path / 'x.pcap'}")


class Full(Exception):
    """No more is to be written; the message says why."""


class Writer:
    """Capture files at `path`, or with numbers before its suffix (x-00001.pcap, ...) where several are kept.

    Raises Mistake if the first cannot be made, Failure if the disk is full or fails, Full when the bounds are reached
    or `most` frames in all have been written. What was written until then is whole.
    """

    def __init__(self, path: Path, bounds: Bounds, snaplen: int, most: int | None = None) -> None:
        self._base, self._bounds, self._snaplen, self._most = path, bounds, snaplen, most
        self._files: deque[tuple[Path, int]] = deque()
        """The files that are there, and how many frames had been written before each began."""
        self._number = self._size = self._frames = 0
        self._file = -1
        self.written = 0
        """Frames, in files that are there and in those that are not any more."""
        check_target(path)
        try:
            self._open()
        except OSError as error:
            raise Mistake(f"{self.path}: {error.strerror}; choose another file") from None

    @property
    def paths(self) -> list[Path]:
        """The files that are there, the oldest first."""
        return [path for path, _ in self._files]

    @property
    def kept(self) -> int:
        """Frames in the files that are there."""
        return self.written - (self._files[0][1] if self._files else self.written)

    def write(self, chunk: bytes) -> None:
        """Adds whole records."""
        if self._bounds.seconds is not None and time.monotonic() - self._opened >= self._bounds.seconds:
            self._next("its time is over")
        while chunk:
            fitting, count = self._fitting(chunk)
            if count == 0:
                if self._frames == 0:
                    raise Failure(f"{self.path}: one frame is larger than a file may be")
                self._next("the file is full")
                continue
            self._write(chunk[:fitting])
            self._frames += count
            self.written += count
            chunk = chunk[fitting:]
            if self._most is not None and self.written >= self._most:
                raise Full("all frames asked for")

    def _fitting(self, chunk: bytes) -> tuple[int, int]:
        """How many bytes of the chunk, up to the end of a record, the file has room for, and the frames in them."""
        room = self._bounds.size - self._size
        most = min(
            self._bounds.frames - self._frames if self._bounds.frames is not None else len(chunk),
            self._most - self.written if self._most is not None else len(chunk),
        )
        fitting = count = 0
        for _, end in records(chunk):
            if end > room or count >= most:
                break
            fitting, count = end, count + 1
        return fitting, count

    def _open(self) -> None:
        self._number += 1
        base = self._base
        several = self._bounds.files is not None
        self.path = base.with_name(f"{base.stem}-{self._number:05}{base.suffix}") if several else base
        # Frames are their senders' business: nobody else may read them, also in a file that was there.
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if stat.S_ISREG(os.fstat(self._file).st_mode):
            os.fchmod(self._file, 0o600)
            os.ftruncate(self._file, 0)
        self._size = self._frames = 0
        self._opened = time.monotonic()
        self._files.append((self.path, self.written))
        self._put(header(self._snaplen))

    def _next(self, reason: str) -> None:
        if self._bounds.files is None:
            raise Full(reason)
        os.close(self._file)
        self._file = -1
        while len(self._files) >= self._bounds.files:
            self._files.popleft()[0].unlink(missing_ok=True)
        try:
            self._open()
        except OSError as error:
            raise Failure(f"{self.path}: {error.strerror}; what was captured until then is kept") from None

    def _write(self, chunk: bytes) -> None:
        try:
            self._put(chunk)
        except OSError as error:
            raise Failure(f"{self.path}: {error.strerror}; what was captured until then is kept") from None

    def _put(self, chunk: bytes) -> None:
        done = 0
        try:
            while done < len(chunk):
                done += os.write(self._file, chunk[done:])
        except OSError:
            # The disk is full in the middle of a record: the file ends before it.
            whole = [end for _, end in records(chunk) if end <= done]
            os.ftruncate(self._file, self._size + max(whole, default=0))
            self._size += max(whole, default=0)
            self._frames += len(whole)
            self.written += len(whole)
            raise
        self._size += done

    def close(self) -> None:
        """Ends the last file. One that not even a header fitted into is removed."""
        if self._file < 0:
            return
        os.close(self._file)
        self._file = -1
        if self._size < _HEADER.size:
            self.path.unlink(missing_ok=True)
            self._files.pop()
