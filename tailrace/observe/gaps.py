"""A reader of what polling loops note of themselves: gaps, and waits for a receiver (dataplane/common/gaps.h)."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tailrace.errors import Failure
from tailrace.observe.ring import Ring

_FILE = "/memfd:tailrace-gaps"
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_HEADER = struct.Struct("<8sIIQQ")
_LIMIT_AT = 16
_LOOPS_AT = 64
_LOOP = struct.Struct("<48siIII")
_LOOP_SIZE = 128
_BUSY_AT = 64
_VERSION = 2
_WORD = struct.Struct("<Q")
_RECORD = struct.Struct("<QQQ")
_HEAD_BEFORE = 64
_MOST_LOOPS = 1024
#: Records that the loop may be writing over while they are read.
_MARGIN = 64
_BEGIN, _END = 0, 1
#: In place of the ports that a wait is about.
_REST = (1 << 64) - 1


class Gap(NamedTuple):
    """A round of a polling loop that took longer than the limit; times in TSC cycles."""

    begin: int
    end: int
    frames: int
    """Frames that it moved: a long round may be an honest one."""


class Wait(NamedTuple):
    """A time in which frames waited for a receiver that took none; times in TSC cycles."""

    begin: int
    end: int
    source: int
    """The switch's number of the port that the frames came from."""
    target: int
    """The same of the receiver."""


class Rest(NamedTuple):
    """A time in which a loop did nothing because there was nothing to do; times in TSC cycles."""

    begin: int
    end: int


@dataclass(frozen=True)
class Loop:
    """One polling loop of a process."""

    name: str
    thread: int
    """Linux's thread id, as this process sees it; 0 before the loop's first round."""
    ring: Ring
    waits: Ring

    def between(self, begin: int, end: int) -> tuple[list[Gap], bool]:
        """The gaps that lie in or reach into the time from `begin` to `end` in their order, and whether all are there.

        Some may have been written over by later ones.
        """
        ring = self.ring
        oldest, head = ring.window
        first = ring.first(oldest, head, _END, begin)
        gaps = (Gap(*values) for values in ring.between(first, ring.first(first, head, _BEGIN, end)))
        found = [gap for gap in gaps if gap.begin < gap.end]
        return found, ring.oldest < first or ring.oldest == 0

    def waits_between(self, begin: int, end: int) -> tuple[list[Wait], list[Rest], bool]:
        """The waits and rests that ended in the time from `begin` to `end`, and whether all are there.

        A frame leaves when its wait ends, and comes no further before a rest ends.
        """
        ring = self.waits
        oldest, head = ring.window
        first = ring.first(oldest, head, _END, begin)
        waits, rests = [], []
        for low, high, what in ring.between(first, ring.first(first, head, _END, end + 1)):
            if low < high and what == _REST:
                rests.append(Rest(low, high))
            elif low < high:
                waits.append(Wait(low, high, what >> 16 & 0xFFFF, what & 0xFFFF))
        return waits, rests, ring.oldest < first or ring.oldest == 0


class Busy:
    """How long the loops of one process were at work, mapped: of a loop that polls its CPU time says nothing. The
    process is not trusted: it may say anything, and no more than a number."""

    def __init__(self, pid: int) -> None:
        descriptor = _opened(pid, os.O_RDONLY)
        try:
            magic, version, count, _, tsc_hz = _HEADER.unpack(os.pread(descriptor, _HEADER.size, 0))
            if magic != b"TAILGAPS" or version != _VERSION or not 0 < count <= _MOST_LOOPS or not tsc_hz:
                raise ValueError
            self._tsc_hz = float(tsc_hz)
            self._map = mmap.mmap(descriptor, _LOOPS_AT + count * _LOOP_SIZE, prot=mmap.PROT_READ)
        except (OSError, ValueError, struct.error):
            raise Failure(f"process {pid} does not say how busy it is in a way that this version reads") from None
        finally:
            os.close(descriptor)
        self._words = struct.Struct("<" + f"{_BUSY_AT}xQ{_LOOP_SIZE - _BUSY_AT - 8}x" * count)

    @property
    def seconds(self) -> float:
        """How long rounds that moved frames have taken so far, all loops together; only differences mean anything."""
        cycles: int = sum(self._words.unpack_from(self._map, _LOOPS_AT))
        return cycles / self._tsc_hz

    def close(self) -> None:
        self._map.close()


class Gaps:
    """The gaps of one process's loops, mapped. The process is not trusted: what it wrote is checked."""

    def __init__(self, pid: int) -> None:
        descriptor = _opened(pid, os.O_RDWR)
        try:
            self._map = mmap.mmap(descriptor, 0)
        except (OSError, ValueError):
            raise Failure(f"the gaps of process {pid} cannot be read; run as root") from None
        finally:
            os.close(descriptor)
        try:
            self.loops = tuple(self._read_loops(pid))
        except (struct.error, ValueError):
            raise Failure(f"process {pid} has no gaps that this version reads") from None

    def _read_loops(self, pid: int) -> Iterator[Loop]:
        magic, version, count, _, self.tsc_hz = _HEADER.unpack_from(self._map)
        if magic != b"TAILGAPS" or version != _VERSION or count > _MOST_LOOPS or not self.tsc_hz:
            raise ValueError
        threads = _threads(pid)
        for number in range(count):
            name, thread, records, length, waits = _LOOP.unpack_from(self._map, _LOOPS_AT + number * _LOOP_SIZE)
            text = name.split(b"\0", 1)[0].decode(errors="replace")
            yield Loop(text, threads.get(thread, 0), self._ring(records, length), self._ring(waits, length))

    def _ring(self, records: int, length: int) -> Ring:
        if not length or records < _HEAD_BEFORE or records + length * _RECORD.size > len(self._map):
            raise ValueError
        return Ring(self._map, records - _HEAD_BEFORE, records, length, _MARGIN, _RECORD)

    @property
    def limit(self) -> int:
        """Rounds longer than so many cycles are noted."""
        return int(_WORD.unpack_from(self._map, _LIMIT_AT)[0])

    @limit.setter
    def limit(self, cycles: int) -> None:
        _WORD.pack_into(self._map, _LIMIT_AT, cycles)

    def close(self) -> None:
        self._map.close()


def _opened(pid: int, flags: int) -> int:
    """The file of a process, as a descriptor. Raises Failure."""
    try:
        descriptor = os.open(_find(pid), flags | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        raise Failure(f"the gaps of process {pid} cannot be read; run as root") from None
    try:
        # One that could be cut short under us would end this process.
        sealed = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    except OSError:
        sealed = False
    if not sealed:
        os.close(descriptor)
        raise Failure(f"process {pid} has no gaps that this version reads")
    return descriptor


def _find(pid: int) -> Path:
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if str(entry.readlink()).startswith(_FILE):
                    return entry
            except OSError:
                continue
    except OSError as error:
        raise Failure(f"the gaps of process {pid} cannot be found ({error.strerror}); run as root") from None
    raise Failure(f"process {pid} notes no gaps")


def _threads(pid: int) -> dict[int, int]:
    """Thread ids as the process itself sees them, and as we do: a sandbox has numbers of its own."""
    found: dict[int, int] = {}
    for entry in Path(f"/proc/{pid}/task").iterdir():
        try:
            status = (entry / "status").read_text()
        except OSError:
            continue
        inner = next((line.split()[-1] for line in status.splitlines() if line.startswith("NSpid:")), entry.name)
        found[int(inner)] = int(entry.name)
    return found
