"""A guest whose memory has been paged out: what it may cost the others, with a real swap file.

docs/threat-model.md: each page that a worker waits for is charged to its guest; who takes too much is stopped and
barred, and nobody else is.
"""

from __future__ import annotations

import mmap
import os
import random
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from front_end import (
    BASE,
    BUFFERS_AT,
    F_INDIRECT,
    F_MERGEABLE,
    F_VERSION_1,
    GET_FEATURES,
    INDIRECT,
    NEXT,
    RING_AT,
    SENDS,
    SET_MEM_TABLE,
    SIZE,
    USER,
    FrontEnd,
)
from guest_pair import GuestPair
from running_switch import RunningSwitch, wait_until

pytestmark = [pytest.mark.requires_root, pytest.mark.requires_program("mkswap", "swapon")]

SWAP, SWAP_MIB = "swap", 64
READS = 2000
"""Pages a second that a slow disk gives: each takes longer than one that is at hand (dataplane/port/guest_pages.c)."""
SWAPS = Path("/proc/swaps")
PAGE = 4096


@contextmanager
def swap_file(file: Path) -> Iterator[None]:
    """Swap of the test's own, used before any other; gone with the test, and with pytest if that is killed."""
    with file.open("wb") as made:
        for _ in range(SWAP_MIB):
            made.write(bytes(1 << 20))
    file.chmod(0o600)
    subprocess.run(["mkswap", file], check=True, capture_output=True)
    # It reads until nobody can write any more: the end of the test, or of pytest.
    script = 'swapon --priority 32767 "$0" && echo on && { cat > /dev/null; swapoff "$0"; }'
    keeper = subprocess.Popen(
        ["sh", "-c", script, file],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert keeper.stdin and keeper.stdout and keeper.stderr
    try:
        if keeper.stdout.readline() != "on\n":
            pytest.skip(f"needs a swap file: {keeper.stderr.read().strip()}")
        yield
    finally:
        keeper.stdin.close()
        keeper.wait(60)
        for pipe in (keeper.stdout, keeper.stderr):
            pipe.close()
        file.unlink()
        assert str(file) not in SWAPS.read_text()


class Squeezed:
    """A cgroup for memory that is to be in swap, and one for whoever is to read slowly from there."""

    def __init__(self, memory: Path, reclaim: str, disk: Path, limit: str) -> None:
        self.folders = memory, disk
        self._reclaim, self._limit = memory / reclaim, disk / limit
        self._reads = f"riops={READS}" if limit == "io.max" else str(READS)

    def charge(self, touch: Callable[[], None]) -> None:
        """Have pages that are made be counted as the first one's."""
        child = os.fork()
        if child == 0:
            try:
                (self.folders[0] / "cgroup.procs").write_text("0")
                touch()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0

    def page_out(self) -> None:
        """All that is the first one's."""
        self._reclaim.write_text(str(1 << 30))

    def slow_down(self, process: int, file: Path) -> None:
        """Have a process wait for each page of this swap file."""
        device = file.stat().st_dev
        try:
            self._limit.write_text(f"{os.major(device)}:{os.minor(device)} {self._reads}")
        except OSError as error:
            pytest.skip(f"needs a disk that can be slowed down: {error}")
        (self.folders[1] / "cgroup.procs").write_text(str(process))


@contextmanager
def squeezed() -> Iterator[Squeezed]:
    root, name = Path("/sys/fs/cgroup"), f"tailrace-test-swap-{os.getpid()}"
    unified = root / "cgroup.subtree_control"
    if (root / "memory/memory.force_empty").exists() and (root / "blkio").is_dir():
        group = Squeezed(
            root / "memory" / name, "memory.force_empty", root / "blkio" / name, "blkio.throttle.read_iops_device"
        )
    elif unified.exists() and {"memory", "io"} <= set(unified.read_text().split()):
        group = Squeezed(root / name, "memory.reclaim", root / f"{name}-disk", "io.max")
    else:
        pytest.skip("needs cgroups that limit memory and disks")
    made = []
    try:
        for folder in group.folders:
            folder.mkdir()
            made.append(folder)
        yield group
    finally:
        for folder in made:
            folder.rmdir()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Squeezed]:
    with swap_file(tmp_path / SWAP), squeezed() as group:
        yield group


class PagedOut(FrontEnd):
    """A guest that sends frames from memory that is in swap: each piece of a frame lies in a page of its own, and none
    of them beside another, so that nothing brings more than the page that is touched."""

    guest, user = 0x4_0000_0000, 0x7E00_0000_0000
    frames, pieces, apart = 32, 128, 8

    def __init__(self, group: Squeezed) -> None:
        super().__init__(256, F_VERSION_1 | F_MERGEABLE | F_INDIRECT)
        self.places = [number * self.apart * PAGE for number in range(self.frames * self.pieces)]
        random.Random(1).shuffle(self.places)
        self.large = len(self.places) * self.apart * PAGE
        self.file = os.memfd_create("paged-out")
        os.ftruncate(self.file, self.large)
        self.mapped = mmap.mmap(self.file, self.large)
        group.charge(self._touch)
        group.page_out()

    def _touch(self) -> None:
        for place in self.places:
            self.mapped[place] = 1

    def give_memory(self, size: int = SIZE) -> None:
        regions = ((BASE, size, USER, 0), (self.guest, self.large, self.user, 0))
        table = struct.pack("<II", 2, 0) + b"".join(struct.pack("<QQQQ", *region) for region in regions)
        self.send_message(SET_MEM_TABLE, table, (self.memory_fd, self.file))

    def put(self) -> None:
        """All frames at one moment."""
        for frame in range(self.frames):
            at = BUFFERS_AT[SENDS] + frame * self.pieces * 16
            for piece in range(self.pieces):
                address = self.guest + self.places[frame * self.pieces + piece]
                more = NEXT if piece + 1 < self.pieces else 0
                struct.pack_into("<QIHH", self.memory, at + piece * 16, address + 64, 14, more, piece + 1)
            slot = self._slot(SENDS)
            self.write_desc(SENDS, slot, BASE + at, self.pieces * 16, INDIRECT)
            index = (self.added[SENDS] + frame) % self.ring_size
            struct.pack_into("<H", self.memory, RING_AT[SENDS] + 0x4004 + index * 2, slot)
        self.added[SENDS] = (self.added[SENDS] + self.frames) & 0xFFFF
        self.set_available_index(SENDS, self.added[SENDS])

    def end(self) -> None:
        super().end()
        self.mapped.close()
        os.close(self.file)


@pytest.fixture
def switch(asan_binaries: Path, tmp_path: Path) -> Iterator[RunningSwitch]:
    running = RunningSwitch(asan_binaries / "switch/tailrace-switch", tmp_path)
    yield running
    assert running.end() == 0


def test_a_guest_in_swap_is_charged_and_holds_up_nobody_for_long(
    group: Squeezed, switch: RunningSwitch, tmp_path: Path
) -> None:
    """Its pages may take a second of the workers' time, and not much more; another pair forwards all the while."""
    beside = GuestPair(switch, ("beside", "other"))
    pair = GuestPair(switch, ("swapped", "far"), lambda: PagedOut(group), FrontEnd)
    guest, far = pair.guests
    assert isinstance(guest, PagedOut)
    group.slow_down(switch.process.pid, tmp_path / SWAP)

    def over() -> bool:
        return switch.port("swapped")["state"] == "quarantined"

    deadline, counted = time.monotonic() + 60, 0
    while not over():
        assert time.monotonic() < deadline, f"not stopped: {pair.describe()}"
        group.page_out()
        far.offer_buffers(guest.frames)
        guest.put()
        beside.exchange()
        wait_until(lambda: guest.used_index(SENDS) == guest.added[SENDS] or over(), "all is moved, or nothing more is")
        far.received()
        assert switch.counters("swapped")["pages_swapped"] > counted or over()
        counted = switch.counters("swapped")["pages_swapped"]
    assert "read from swap" in switch.port("swapped")["reason"]
    # A second's worth, and what the time has given back.
    assert 0 < counted < 5 * READS
    beside.exchange()
    # Barred for a second, and then served as any other.
    began = time.monotonic()
    guest.stop_rings()
    guest.reset()
    guest.give_memory()
    guest.start_rings()
    guest.ask(GET_FEATURES)
    assert "read from swap" in switch.port("swapped")["reason"]
    switch.wait_state("swapped", "up")
    assert time.monotonic() - began > 0.5
    beside.exchange()
    beside.assert_untouched()
    beside.end()
    pair.end()
