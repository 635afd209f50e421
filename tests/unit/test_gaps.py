"""Gaps as a process notes them: read, bounded, and not believed when they cannot be."""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from collections.abc import Iterator

import pytest

from tailrace.errors import Failure
from tailrace.observe.gaps import Busy, Gap, Gaps, Rest, Wait

HZ = 2_500_000_000
LENGTH = 256


class Process:
    """This process as one with a polling loop."""

    def __init__(
        self, length: int = LENGTH, waits: int = 0, seals: int = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
    ) -> None:
        self.file = os.memfd_create("tailrace-gaps", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.records = 64 + 128 + 64
        self.waits = self.records + 24 * LENGTH + 64
        os.ftruncate(self.file, self.waits + 24 * LENGTH)
        fcntl.fcntl(self.file, fcntl.F_ADD_SEALS, seals)
        os.pwrite(self.file, struct.pack("<8sIIQQ", b"TAILGAPS", 2, 1, 5 * HZ // 10**6, HZ), 0)
        thread = threading.get_native_id()
        os.pwrite(
            self.file, struct.pack("<48siIII", b"worker-0", thread, self.records, length, waits or self.waits), 64
        )
        self.count = {self.records: 0, self.waits: 0}

    def note(self, begin: int, end: int, frames: int = 0) -> None:
        self._add(self.records, begin, end, frames)

    def wait(self, begin: int, end: int, what: int) -> None:
        self._add(self.waits, begin, end, what)

    def _add(self, records: int, begin: int, end: int, what: int) -> None:
        os.pwrite(self.file, struct.pack("<QQQ", begin, end, what), records + self.count[records] % LENGTH * 24)
        self.count[records] += 1
        os.pwrite(self.file, struct.pack("<Q", self.count[records]), records - 64)


@pytest.fixture
def process() -> Iterator[Process]:
    process = Process()
    yield process
    os.close(process.file)


def test_gaps_are_found_by_their_time(process: Process) -> None:
    for number in range(10):
        process.note(1000 * number, 1000 * number + 500, number)
    gaps = Gaps(os.getpid())
    (loop,) = gaps.loops
    assert (loop.name, loop.thread, gaps.tsc_hz) == ("worker-0", threading.get_native_id(), HZ)
    assert loop.ring.head == 10
    assert loop.between(3500, 5001) == ([Gap(3000, 3500, 3), Gap(4000, 4500, 4), Gap(5000, 5500, 5)], True)
    assert loop.between(3600, 3900) == ([], True)
    gaps.close()


def test_waits_and_rests_are_found_by_when_they_ended(process: Process) -> None:
    process.wait(100, 900, 3 << 16 | 5)
    process.wait(950, 2000, (1 << 64) - 1)
    process.wait(400, 2000, 5 << 16 | 6)
    process.wait(2100, 2500, 3 << 16 | 5)
    gaps = Gaps(os.getpid())
    (loop,) = gaps.loops
    assert loop.waits_between(901, 2000) == ([Wait(400, 2000, 5, 6)], [Rest(950, 2000)], True)
    assert loop.waits_between(0, 5000)[0] == [Wait(100, 900, 3, 5), Wait(400, 2000, 5, 6), Wait(2100, 2500, 3, 5)]
    for number in range(LENGTH):
        process.wait(3000 + number, 3001 + number, 0)
    assert not loop.waits_between(2000, 3000)[-1]
    assert loop.between(0, 5000) == ([], True)
    gaps.close()


def test_those_that_may_be_overwritten_are_left_out(process: Process) -> None:
    for number in range(1000):
        process.note(1000 * number, 1000 * number + 500)
    gaps = Gaps(os.getpid())
    (loop,) = gaps.loops
    found, whole = loop.between(0, 10**9)
    assert found[-1].begin == 999_000
    assert len(found) == LENGTH - 64
    assert not whole
    # The oldest that is left may have had one before it that lay in that time too.
    oldest = found[0].begin
    assert loop.between(oldest, oldest + 600) == ([found[0]], False)
    assert loop.between(oldest + 1000, oldest + 1600) == ([found[1]], True)
    gaps.close()


def test_a_count_that_cannot_be_does_not_take_forever(process: Process) -> None:
    gaps = Gaps(os.getpid())
    os.pwrite(process.file, struct.pack("<Q", 2**64 - 1), process.records - 64)
    assert gaps.loops[0].between(0, 2**63) == ([], False)
    gaps.close()


def test_a_reader_sets_the_limit(process: Process) -> None:
    gaps = Gaps(os.getpid())
    assert gaps.limit == 12_500
    gaps.limit = 777
    assert struct.unpack("<Q", os.pread(process.file, 8, 16)) == (777,)
    gaps.close()


@pytest.mark.parametrize(
    "wrong", [{"length": LENGTH + 1}, {"waits": 1 << 20}, {"waits": 8}, {"length": 0}, {"seals": fcntl.F_SEAL_GROW}]
)
def test_what_a_process_wrote_is_not_believed(wrong: dict[str, int]) -> None:
    process = Process(**wrong)
    with pytest.raises(Failure, match="no gaps that this version reads"):
        Gaps(os.getpid())
    os.close(process.file)


def test_a_process_that_notes_none() -> None:
    with pytest.raises(Failure, match="notes no gaps"):
        Gaps(os.getpid())


def test_how_long_loops_were_at_work_is_read_as_it_grows(process: Process) -> None:
    busy = Busy(os.getpid())
    assert busy.seconds == 0.0
    os.pwrite(process.file, struct.pack("<Q", HZ // 4), 64 + 64)
    assert busy.seconds == 0.25
    busy.close()


def test_a_process_that_could_end_its_reader_is_not_asked_how_busy_it_is(process: Process) -> None:
    os.pwrite(process.file, struct.pack("<I", 0), 12)
    with pytest.raises(Failure, match="does not say how busy it is"):
        Busy(os.getpid())
    os.close(process.file)
    process.file = Process(seals=0).file
    with pytest.raises(Failure, match="has no gaps that this version reads"):
        Busy(os.getpid())
