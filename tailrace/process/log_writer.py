"""Writes what comes in by its standard input to a log of bounded size: `log_writer.py LOG BYTES`.

In a unit of systemd's (units.py): `log_writer.py LOG BYTES CPUS [NUMBER:FLAGS:FILE]... -- PROGRAM [ARGUMENT]...`. It
starts such a process, which may use CPUS and writes to the journal as well, and becomes the program whose output that
writes. The program has each FILE open as the descriptor of that NUMBER.

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
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

CHUNK = 1 << 16
RATE = 16 << 20
"""Bytes a second: who floods its log waits, for neither a core nor the disk is for that."""
JOURNAL_BYTES, JOURNAL_SECONDS = 1 << 20, 60.0
"""So much in so long goes to the journal too, which is not for one program alone: it would lose what others said."""


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


_ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""What does not end it: its end is that of the function, which may have last words after these have come."""
_JOURNAL = "journal"
"""The word after which standard output is the journal's."""


class Journal:
    """The journal's end of a unit's output. It is given what it takes at once, up to its bound: nobody waits for it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._since = -JOURNAL_SECONDS
        self._left = 0
        os.set_blocking(descriptor, False)

    def write(self, chunk: bytes, now: float) -> None:
        """`now` is of a clock that only goes forward."""
        if now >= self._since + JOURNAL_SECONDS:
            self._since, self._left = now, JOURNAL_BYTES
        with suppress(OSError):
            self._left -= os.write(self._descriptor, chunk[: self._left])


def _set_signals(handler: signal.Handlers, numbers: Iterable[signal.Signals]) -> None:
    for number in numbers:
        signal.signal(number, handler)


def write(log: BoundedLog, journal: Journal | None = None) -> None:
    """Writes until nobody has the other end of standard input."""
    _set_signals(signal.SIG_IGN, _ENDS)
    at_start = True
    while chunk := os.read(0, CHUNK):
        if journal is not None:
            journal.write(chunk, time.monotonic())
        text = with_times(chunk, time.time(), at_start=at_start)
        at_start = chunk.endswith(b"\n")
        for begin in range(0, len(text), CHUNK):
            log.write(text[begin : begin + CHUNK])
        if len(text) >= CHUNK:
            time.sleep(len(text) / RATE)


def become(log: list[str], cpus: str, files: list[str], argv: list[str]) -> None:
    """Becomes the program. Never returns."""
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    source, sink = os.pipe()
    # Before there is a writer: when the program has ended, however soon, systemd tells that to end too.
    _set_signals(signal.SIG_IGN, _ENDS)
    if os.fork() == 0:
        if os.fork() == 0:  # no child of the program's, which would not know of it
            os.close(sink)
            os.dup2(source, 0)
            os.setsid()
            os.setpriority(os.PRIO_PROCESS, 0, 0)
            with suppress(OSError):  # they have gone
                os.sched_setaffinity(0, map(int, cpus.split(",")))
            os.execv(sys.executable, [sys.executable, "-I", "-S", __file__, *log, _JOURNAL])
        os._exit(0)
    os.wait()
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    os.close(sink)
    os.close(source)
    try:
        for each in files:
            number, flags, path = each.split(":", 2)
            opened = os.open(path, int(flags))
            os.dup2(opened, int(number))
            if opened != int(number):
                os.close(opened)
            os.set_inheritable(int(number), True)
        if nice and os.getsid(0) == os.getpid():
            with suppress(OSError):
                # Where the kernel shares time among sessions first (sched_autogroup), only this is heard by the others.
                Path("/proc/self/autogroup").write_text(str(nice))
        # The last two are what Python, and systemd, leave out.
        _set_signals(signal.SIG_DFL, (*_ENDS, signal.SIGPIPE, signal.SIGXFSZ))
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"{argv[0]}: could not be started: {error.strerror}\n".encode())
    os._exit(127)


def main() -> None:
    log, words = sys.argv[1:3], sys.argv[3:]
    if "--" in words:
        end = words.index("--")
        become(log, words[0], words[1:end], words[end + 1 :])
    else:
        write(BoundedLog(Path(log[0]), int(log[1])), Journal(1) if words == [_JOURNAL] else None)


if __name__ == "__main__":
    main()
