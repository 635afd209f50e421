"""Writes what comes in by its standard input to a log of bounded size: `log_writer.py LOG BYTES`.

A process of its own, so that it lives as long as whoever writes, and no longer: it ends when nobody has the other end
any more. It stands by itself, without the rest of the package, because one runs for each function. Once LOG has BYTES
it becomes LOG.1, in the place of the one before, so that twice as much is kept, and a chunk. Each line begins with the
time, as our own programs have it where they write to a file (dataplane/common/log.h).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

CHUNK = 1 << 16
RATE = 16 << 20
"""Bytes a second: who floods its log waits, for neither a core nor the disk is for that."""


def previous(log: Path) -> Path:
    """Where a log's output went before it began anew."""
    return log.with_name(f"{log.name}.1")


class BoundedLog:
    """The log and the one before it. What cannot be written is lost: whoever prints must not wait, or end, for that."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._descriptor = -1
        self._size = 0
        self._line_is_open = False

    def write(self, chunk: bytes) -> None:
        """Appends what was read, and begins anew before it where the log is full, if possible with a whole line."""
        if self._descriptor < 0 and not self._open():
            return
        if self._size > 0 and self._size + len(chunk) > self._limit:
            rest = chunk.find(b"\n") + 1 if self._line_is_open else 0
            self._append(chunk[:rest])
            chunk = chunk[rest:]
            if not chunk:  # the newest line stays in the log; it is the next that begins anew
                self._line_is_open = False
                return
            with suppress(OSError):  # which may say only now that a disk is full
                os.close(self._descriptor)
            self._descriptor = -1
            try:
                self._path.replace(previous(self._path))
            except OSError:
                return
            if not self._open():
                return
        self._append(chunk)
        self._line_is_open = not chunk.endswith(b"\n")

    def _open(self) -> bool:
        try:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._size = os.fstat(self._descriptor).st_size
        except OSError:
            return False
        return True

    def _append(self, chunk: bytes) -> None:
        while chunk:
            try:
                written = os.write(self._descriptor, chunk)
            except OSError:
                return
            self._size += written
            chunk = chunk[written:]


def with_times(chunk: bytes, now: float, *, at_start: bool) -> bytes:
    """The chunk, which is not empty, with the time before each line that begins in it."""
    milliseconds = int(now * 1000)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds // 1000))
    stamp = f"{text}.{milliseconds % 1000:03d}Z ".encode()
    lines = chunk[:-1].replace(b"\n", b"\n" + stamp) + chunk[-1:]
    return stamp + lines if at_start else lines


def main() -> None:
    # Its end is that of the function, which may have last words after these have come.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    log = BoundedLog(Path(sys.argv[1]), int(sys.argv[2]))
    at_start = True
    while chunk := os.read(0, CHUNK):
        text = with_times(chunk, time.time(), at_start=at_start)
        at_start = chunk.endswith(b"\n")
        for begin in range(0, len(text), CHUNK):
            log.write(text[begin : begin + CHUNK])
        if len(text) >= CHUNK:
            time.sleep(len(text) / RATE)


if __name__ == "__main__":
    main()
