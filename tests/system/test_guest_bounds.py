"""What one guest may cost the others, and how often: the bounds that docs/threat-model.md states, against the real
switch under the sanitizers. How much work a visit to a ring may be is counted in dataplane/test/test_vring_work.c.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from front_end import (
    ADD_MEM_REG,
    BASE,
    BUFFERS_AT,
    F_INDIRECT,
    F_MERGEABLE,
    F_VERSION_1,
    GET_FEATURES,
    INDIRECT,
    NEXT,
    RECEIVES,
    REM_MEM_REG,
    RING_AT,
    SENDS,
    SET_LOG_BASE,
    SET_MEM_TABLE,
    SET_VRING_ADDR,
    SET_VRING_ENABLE,
    SET_VRING_NUM,
    SIZE,
    USER,
    WRITE,
    FrontEnd,
    PackedFrontEnd,
    fill,
)
from guest_pair import GuestPair
from running_switch import RunningSwitch, wait_until

from tailrace.errors import Failure, Mistake
from tailrace.process.control import ControlError
from tailrace.resources import hugepages

LONGEST_LOG = 1 << 26


@pytest.fixture
def switch(asan_binaries: Path, tmp_path: Path) -> Iterator[RunningSwitch]:
    running = RunningSwitch(asan_binaries / "switch/tailrace-switch", tmp_path)
    yield running
    assert running.end() == 0


@pytest.fixture
def bad(switch: RunningSwitch, request: pytest.FixtureRequest) -> Iterator[GuestPair]:
    """The chain whose first guest is the attacker; another chain that must not notice is beside it."""
    beside = GuestPair(switch, ("beside", "other"))
    pair = GuestPair(switch, ("bad", "peer"), getattr(request, "param", FrontEnd))
    yield pair
    beside.exchange()
    beside.assert_untouched()
    beside.end()
    pair.end()


def set_up_anew(guest: FrontEnd) -> None:
    """What a driver does that resets its device: the rings are empty, and the memory is the same."""
    guest.stop_rings()
    guest.reset()
    guest.start_rings()
    guest.ask(GET_FEATURES)  # all of that has been acted on


def region(size: int = SIZE) -> bytes:
    return struct.pack("<QQQQ", BASE, size, USER, 0)


@pytest.mark.parametrize("by_region", [False, True], ids=["another table", "another region"])
def test_memory_that_was_cut_is_not_served_again(switch: RunningSwitch, bad: GuestPair, by_region: bool) -> None:
    """What lies in its place is the switch's own memory: not the guest's to have, and nothing that is sent arrives."""
    guest, peer = bad.guests
    bad.exchange()
    os.ftruncate(guest.memory_fd, 0)
    peer.send(b"c" * 60)
    switch.wait_state("bad", "quarantined")
    os.ftruncate(guest.memory_fd, SIZE)  # so that the test may touch it
    received = switch.counters("bad")["received_packets"]
    for _ in range(3):
        set_up_anew(guest)
        guest.send(b"again" * 12)
        assert switch.port("bad")["state"] == "quarantined"
        assert "memory file" in switch.port("bad")["reason"]
    assert switch.counters("bad")["received_packets"] == received
    # Other memory, and a driver that starts on it, are a beginning.
    if by_region:
        again = struct.pack("<Q", 0) + region()
        assert guest.acknowledged(REM_MEM_REG, again)
        assert guest.acknowledged(ADD_MEM_REG, again, (guest.memory_fd,))
    else:
        guest.give_memory()
    set_up_anew(guest)
    set_up_anew(peer)
    for name in bad.names:
        switch.wait_state(name, "up")
    bad.exchange()


def block_its_worker(pair: GuestPair) -> None:
    """The second guest fills the descriptors that it is woken with, makes them block, is woken, and empties them."""
    guest, peer = pair.guests
    for call in peer.call:
        fill(call)
    peer.offer_buffers(1)
    guest.send(b"e" * 60)
    pair.switch.wait_state("peer", "quarantined")
    assert "blocks" in pair.switch.port("peer")["reason"]
    for call in peer.call:
        os.set_blocking(call, False)
        os.read(call, 8)


@pytest.mark.parametrize("bad", [FrontEnd, PackedFrontEnd], indirect=True, ids=["split", "packed"])
def test_a_guest_that_blocks_its_worker_again_is_barred_for_longer(switch: RunningSwitch, bad: GuestPair) -> None:
    """Each time the others wait for 20 ms: so that they need not do so all the time, its rings stay stopped for a
    second, then for two, and so on."""
    peer = bad.guests[1]
    waited = []
    for _ in range(2):
        block_its_worker(bad)
        began = time.monotonic()
        set_up_anew(peer)
        assert switch.port("peer")["state"] == "quarantined"  # although nothing is wrong with it now
        switch.wait_state("peer", "up")
        waited.append(time.monotonic() - began)
        bad.exchange(3)
    assert waited[0] > 0.5
    assert waited[1] > 1.5


def watches(switch: RunningSwitch) -> bool:
    """Whether a thread looks after the workers, every 10 ms; no other thread sleeps and wakes nearly as often."""

    def sleeps() -> dict[str, int]:
        tasks = Path(f"/proc/{switch.process.pid}/task").glob("*/status")
        return {
            task.parent.name: int(task.read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0]) for task in tasks
        }

    before = sleeps()
    time.sleep(0.5)
    return any(count - before.get(task, count) > 20 for task, count in sleeps().items())


def test_a_watch_that_rests_is_back_when_it_is_needed(switch: RunningSwitch, bad: GuestPair) -> None:
    peer = bad.guests[1]
    wait_until(lambda: not watches(switch), "nobody has been woken for a second")
    block_its_worker(bad)
    set_up_anew(peer)
    switch.wait_state("peer", "up")
    bad.exchange()


@pytest.mark.parametrize("uri", ["memif:{}/memif.sock,role=server", "vdev:net_ring0"])
def test_the_watch_does_not_rest_beside_a_driver_that_may_wake_a_peer(
    switch: RunningSwitch, tmp_path: Path, uri: str
) -> None:
    """It does so behind our back, by a descriptor that the peer can make block."""
    wait_until(lambda: not watches(switch), "nobody has been woken for a second")
    switch.add_device("device", uri.format(tmp_path))
    time.sleep(1.5)
    wait_until(lambda: watches(switch), "somebody watches")  # a busy machine may keep it from its work for a while


class LongChains(PackedFrontEnd):
    """A guest whose send ring has 4096 descriptors, and makes them one chain."""

    size = 4096
    ring_at, events_at, table_at = 0x30_0000, 0x32_0000, 0x34_0000

    def start_rings(self, first: int | None = None, enable: bool = True) -> None:
        super().start_rings(first, enable=False)
        at, events = USER + self.ring_at, USER + self.events_at
        self.send_message(SET_VRING_NUM, struct.pack("<II", SENDS, self.size))
        self.send_message(SET_VRING_ADDR, struct.pack("<IIQQQQ", SENDS, 0, at, events, events + 64, 0))
        for ring in (RECEIVES, SENDS) if enable else ():
            self.send_message(SET_VRING_ENABLE, struct.pack("<II", ring, 1))

    def _write(self, place: int, address: int, length: int, flags: int) -> None:
        struct.pack_into("<QIH", self.memory, place, BASE + address, length, 0)
        self.words[place // 2 + 7] = flags

    def send_direct(self) -> None:
        available = 1 << 7
        for number in reversed(range(self.size)):  # the first is made available last
            more = NEXT if number + 1 < self.size else 0
            self._write(self.ring_at + 16 * number, BUFFERS_AT[SENDS], 2, more | available)

    def send_indirect(self) -> None:
        available = 1 << 7
        for number in range(self.size):
            self._write(self.table_at + 16 * number, BUFFERS_AT[SENDS], 2, 0)
        self._write(self.ring_at, self.table_at, 16 * self.size, INDIRECT | available)


@pytest.mark.parametrize("indirect", [False, True], ids=["direct", "indirect"])
def test_a_chain_of_4096_descriptors_in_a_packed_ring(switch: RunningSwitch, bad: GuestPair, indirect: bool) -> None:
    """No driver makes one. Where its end has to be looked for it stops the ring; in a table it costs the frame."""
    guest, sink = LongChains(), FrontEnd()
    for name, each in (("long", guest), ("sink", sink)):
        each.start(switch.add_guest(name))
        switch.wait_state(name, "up")
    sink.offer_buffers(8)
    switch.join("long", "sink")
    if indirect:
        guest.send_indirect()
        wait_until(lambda: switch.counters("long")["drop_frame_fragmented"] == 1, "the frame is dropped")
        assert switch.port("long")["state"] == "up"
    else:
        guest.send_direct()
        switch.wait_state("long", "quarantined")
        assert "more than 256 slots" in switch.port("long")["reason"]
    assert sink.received() == []
    bad.exchange()
    set_up_anew(guest)
    switch.wait_state("long", "up")
    guest.end()
    sink.end()


def test_memory_must_be_memory(switch: RunningSwitch, bad: GuestPair, tmp_path: Path) -> None:
    """A page of a file on a disk, or in a file system that the guest serves itself, may never come. Nor may one of a
    device, whose file lies in memory and whose pages are the driver's."""
    devices = Path("/dev/zero")
    kinds = subprocess.run(["stat", "-f", "-c", "%T", tmp_path, devices], capture_output=True, text=True, check=True)
    disk, device = kinds.stdout.split()
    assert disk not in ("tmpfs", "hugetlbfs"), "the test needs a folder on a disk; give it --basetemp"
    assert device == "tmpfs"
    path = tmp_path / "memory"
    path.touch()
    os.truncate(path, SIZE)
    for refused in path, devices:
        with refused.open("r+b", buffering=0) as file:
            for request, payload in (
                (SET_LOG_BASE, struct.pack("<QQ", 4096, 0)),
                (ADD_MEM_REG, bytes(8) + struct.pack("<QQQQ", BASE + SIZE, SIZE, USER + SIZE, 0)),
                (SET_MEM_TABLE, struct.pack("<II", 1, 0) + region()),
            ):
                assert not bad.guests[0].acknowledged(request, payload, (file.fileno(),)), refused
    switch.wait_state("bad", "waiting")


def test_the_log_of_a_migration_is_bounded(bad: GuestPair) -> None:
    """A bit for each page of the most memory that a guest may have; more would be address space for nothing."""
    guest = bad.guests[0]
    log = os.memfd_create("log")
    os.ftruncate(log, 1 << 40)
    for size in (LONGEST_LOG + 1, 1 << 40):
        assert not guest.acknowledged(SET_LOG_BASE, struct.pack("<QQ", size, 0), (log,))
    assert guest.ask(SET_LOG_BASE, struct.pack("<QQ", LONGEST_LOG, 0), (log,))
    os.close(log)
    bad.exchange()


def test_a_guest_shares_no_more_memory_than_its_port_allows(switch: RunningSwitch) -> None:
    """A file's pages that are not there are made when the switch writes to them, at nobody's cost but the machine's."""
    path = switch.add_guest("small", memory=SIZE)
    guest = FrontEnd()
    guest.start(path)
    switch.wait_state("small", "up")
    sparse = os.memfd_create("sparse")
    os.ftruncate(sparse, 1 << 30)
    more = struct.pack("<QQQQQ", 0, BASE + SIZE, 1 << 20, USER + SIZE, 0)
    assert not guest.acknowledged(ADD_MEM_REG, more, (sparse,))
    told = "port small: refused memory: it shares more than the 4 MiB that the port allows"
    wait_until(lambda: told in switch.log.read_text(), "it is logged")
    assert guest.acknowledged(SET_MEM_TABLE, struct.pack("<II", 1, 0) + region(), (guest.memory_fd,))
    assert not guest.acknowledged(SET_MEM_TABLE, struct.pack("<II", 1, 0) + region(1 << 30), (sparse,))
    os.close(sparse)
    guest.close()
    with pytest.raises(ControlError, match=r"ports\.small\.memory: expected a whole number from 1048576 to"):
        switch.patch(ports={"small": {"memory": 4096}})


def test_small_regions_of_large_pages_count_as_pages(switch: RunningSwitch) -> None:
    """Of a page that the switch touches it makes all, and its file may have none yet."""
    page = 2 << 20
    guest = FrontEnd()
    guest.start(switch.add_guest("small", memory=SIZE + 2 * page))
    switch.wait_state("small", "up")
    large = os.memfd_create("large", os.MFD_HUGETLB | os.MFD_HUGE_2MB)
    os.ftruncate(large, 4 * page)

    def shares(offset: int) -> bool:
        """A small part of the file, where nothing else is in the guest's memory."""
        body = struct.pack("<QQQQQ", 0, BASE + SIZE + offset, 4096, USER + SIZE + offset, offset)
        return guest.acknowledged(ADD_MEM_REG, body, (large,))

    assert shares(page - 4096)
    assert shares(3 * page)
    assert shares(0), "in the first page, as the one before"
    assert shares(3 * page + 8192)
    assert not shares(page)
    wait_until(lambda: "it shares more than the 8 MiB" in switch.log.read_text(), "it is logged")
    os.close(large)
    guest.end()


def test_a_guest_whose_port_does_not_say_shares_half_of_the_machines_memory(switch: RunningSwitch) -> None:
    """It could have the switch make the pages of a file that has none, until there is no memory left."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    guest = FrontEnd()
    guest.start(switch.add_guest("any"))
    switch.wait_state("any", "up")
    sparse = os.memfd_create("sparse")
    os.ftruncate(sparse, machine)
    half = machine // 2 >> 12 << 12
    assert switch.port("any")["memory"] >> 12 << 12 == half

    def shares(size: int) -> bool:
        return guest.acknowledged(ADD_MEM_REG, struct.pack("<QQQQQ", 0, BASE + SIZE, size, USER + SIZE, 0), (sparse,))

    assert not shares(half)
    told = f"refused memory: it shares more than the {half >> 20} MiB that the port allows, which its `memory` says"
    wait_until(lambda: told in switch.log.read_text(), "it is said what to do")
    assert shares(half - SIZE)
    guest.end()
    # One that says so may have more.
    guest = FrontEnd()
    guest.start(switch.add_guest("large", memory=machine))
    switch.wait_state("large", "up")
    assert switch.port("large")["memory"] == machine
    assert shares(half)
    guest.end()
    os.close(sparse)


def test_a_guest_whose_waking_takes_long_again_and_again_is_stopped(switch: RunningSwitch, bad: GuestPair) -> None:
    """Whoever writes to a descriptor goes through all who wait for it. Some 200,000 here; it may take a second of its
    worker's time so, and not much more, and then it is barred as one that blocks."""
    call = bad.guests[1].call[RECEIVES]
    sets = [select.epoll() for _ in range(400)]
    copies = [os.dup(call) for _ in range(500)]
    try:
        for waits in sets:
            for copy in copies:
                waits.register(copy, select.EPOLLIN)
        woken = 0
        while switch.port("peer")["state"] == "up" and woken < 2000:
            bad.guests[1].offer_buffers(1)
            bad.guests[0].send(bytes(60))
            # The guest is woken, or has been stopped since it was asked.
            if select.select([call], [], [], 1)[0]:
                os.eventfd_read(call)
                woken += 1
        assert 10 < woken < 2000
        assert "waking the guest takes long" in switch.port("peer")["reason"]
    finally:
        for waits in sets:
            waits.close()
        for copy in copies:
            os.close(copy)
    # Set up again it is still barred, and after that it is served.
    set_up_anew(bad.guests[1])
    assert "waking the guest takes long" in switch.port("peer")["reason"]
    switch.wait_state("peer", "up")
    bad.exchange()


class Sparse(FrontEnd):
    """A guest whose frames and buffers lie in pages of their own, in a memory that has none to begin with."""

    guest, user = 0x4_0000_0000, 0x7E00_0000_0000
    page, frames, pieces = 4096, 64, 128

    def __init__(self) -> None:
        super().__init__(256, F_VERSION_1 | F_MERGEABLE | F_INDIRECT)

    def make(self) -> int:
        return os.memfd_create("sparse")

    def give_memory(self, size: int = SIZE) -> None:
        self.sparse = self.make()
        self.size = self.frames * self.pieces * self.page
        os.ftruncate(self.sparse, self.size)
        table = struct.pack("<II", 2, 0) + region(size) + struct.pack("<QQQQ", self.guest, self.size, self.user, 0)
        self.send_message(SET_MEM_TABLE, table, (self.memory_fd, self.sparse))

    def give_back(self) -> None:
        """All pages, as a balloon does with some (FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE)."""
        assert ctypes.CDLL(None).fallocate(self.sparse, 3, ctypes.c_long(0), ctypes.c_long(self.size)) == 0

    def _table(self, ring: int, frame: int) -> int:
        """A table of descriptors, each of a page of its own."""
        at = BUFFERS_AT[ring] + frame * self.pieces * 16
        for piece in range(self.pieces):
            more = NEXT if piece + 1 < self.pieces else 0
            address = self.guest + (frame * self.pieces + piece) * self.page + (64 if ring == SENDS else 0)
            flags = more | (WRITE if ring == RECEIVES else 0)
            struct.pack_into("<QIHH", self.memory, at + piece * 16, address, 14, flags, piece + 1)
        return at

    def put(self, ring: int) -> None:
        """As many frames as there are, or buffers for them, all at one moment."""
        at = RING_AT[ring] + 0x4000
        for frame in range(self.frames):
            slot = self._slot(ring)
            self.write_desc(ring, slot, BASE + self._table(ring, frame), self.pieces * 16, INDIRECT)
            struct.pack_into("<H", self.memory, at + 4 + (self.added[ring] + frame) % self.ring_size * 2, slot)
        self.added[ring] = (self.added[ring] + self.frames) & 0xFFFF
        self.set_available_index(ring, self.added[ring])

    def end(self) -> None:
        super().end()
        os.close(self.sparse)


@pytest.fixture
def sparse(switch: RunningSwitch) -> Iterator[GuestPair]:
    pair = GuestPair(switch, ("sparse", "far"), Sparse)
    yield pair
    pair.end()


def cross(pair: GuestPair) -> bool:
    """As many frames as there are; whether all of them arrive, or else the port is stopped."""
    guest, far = pair.guests
    assert isinstance(guest, Sparse) and isinstance(far, Sparse)
    far.put(RECEIVES)
    guest.put(SENDS)
    wait_until(
        lambda: guest.used_index(SENDS) == guest.added[SENDS] or pair.switch.port("sparse")["state"] == "quarantined",
        "all is moved, or nothing more will be",
    )
    return guest.used_index(SENDS) == guest.added[SENDS]


def bursts_of_one(switch: RunningSwitch) -> int:
    (worker,) = (slot for slot in switch.page.slots() if slot.kind == "worker")
    return worker.counters["burst_1"]


def test_pages_that_are_missing_end_the_visit(switch: RunningSwitch, sparse: GuestPair) -> None:
    """The switch makes them, and counts them as work: of these frames none is moved together with another."""
    before = bursts_of_one(switch)
    for guest in sparse.guests:
        assert isinstance(guest, Sparse) and os.fstat(guest.sparse).st_blocks == 0
    assert cross(sparse)
    # The worker counts after the guest has its frames back.
    wait_until(lambda: bursts_of_one(switch) - before >= Sparse.frames, "each has been moved by itself")
    for guest in sparse.guests:
        # Nobody else has touched them: Linux has the switch's cgroup pay for them.
        assert isinstance(guest, Sparse) and os.fstat(guest.sparse).st_blocks * 512 == guest.size
    for name in sparse.names:
        assert switch.counters(name)["pages_made"] == Sparse.frames * Sparse.pieces
        assert switch.port(name)["state"] == "up"
    # Once they are there they cost nothing.
    before = bursts_of_one(switch)
    assert cross(sparse)
    assert bursts_of_one(switch) - before < Sparse.frames
    assert switch.counters("sparse")["pages_made"] == Sparse.frames * Sparse.pieces


def test_a_guest_that_gives_back_its_memory_again_and_again_is_stopped(
    switch: RunningSwitch, bad: GuestPair, sparse: GuestPair
) -> None:
    """It may take a second of the workers' time by that, and not much more; then it is barred as one that blocks."""
    guest, far = sparse.guests
    assert isinstance(guest, Sparse) and isinstance(far, Sparse)
    for _ in range(100):
        guest.give_back()
        if not cross(sparse):
            break
    assert switch.port("sparse")["state"] == "quarantined"
    assert "gives back memory" in switch.port("sparse")["reason"]
    assert 20_000 < switch.counters("sparse")["pages_made"] <= 120_000
    bad.exchange()
    began = time.monotonic()
    for each in (guest, far):
        each.stop_rings()
        each.reset()
        os.close(each.sparse)
        each.give_memory()
        each.start_rings()
        each.ask(GET_FEATURES)
    assert "gives back memory" in switch.port("sparse")["reason"]
    switch.wait_state("sparse", "up")
    assert time.monotonic() - began > 0.5


class SparseLarge(Sparse):
    """The same in pages of 2 MiB, of which there are few."""

    page, frames, pieces = 2 << 20, 3, 4

    def make(self) -> int:
        return os.memfd_create("large", os.MFD_HUGETLB | os.MFD_HUGE_2MB)


@contextmanager
def pages_reserved(count: int, pool: str) -> Iterator[Path]:
    base = Path("/sys/kernel/mm/hugepages") / pool
    with hugepages.alone(base):
        added = hugepages.missing(count, base)
        try:
            hugepages.add(added, base)
        except (Failure, Mistake) as error:
            pytest.skip(f"needs {count} huge pages of {pool.removeprefix('hugepages-')}: {error}")
    try:
        yield base
    finally:
        with hugepages.alone(base):
            hugepages.remove(added, base)


@pytest.mark.requires_hugepages
def test_large_pages_that_are_missing_are_made_too(switch: RunningSwitch) -> None:
    with pages_reserved(2 * SparseLarge.frames * SparseLarge.pieces, "hugepages-2048kB"):
        pair = GuestPair(switch, ("sparse", "far"), SparseLarge)
        assert cross(pair)
        for name in pair.names:
            assert switch.counters(name)["pages_made"] == SparseLarge.frames * SparseLarge.pieces
            assert switch.port(name)["state"] == "up"
        pair.end()


@pytest.mark.requires_hugepages
def test_pages_too_large_to_be_made_beside_traffic_are_made_before_it(switch: RunningSwitch, bad: GuestPair) -> None:
    """Those that are missing when a guest shares its memory are made then. One that it takes back stops its rings, and
    no worker waits for another."""
    guest, giant = bad.guests[0], 1 << 30
    with pages_reserved(1, "hugepages-1048576kB") as base:
        file = os.memfd_create("giant", os.MFD_HUGETLB | os.MFD_HUGE_1GB)
        os.ftruncate(file, giant)
        where = struct.pack("<QQQQ", Sparse.guest, giant, Sparse.user, 0)
        assert os.fstat(file).st_blocks == 0
        assert guest.acknowledged(ADD_MEM_REG, bytes(8) + where, (file,))
        assert os.fstat(file).st_blocks * 512 == giant
        assert hugepages.pool(base).free == 0
        frame = bytes(60)

        def send() -> None:
            slot = guest._slot(SENDS)
            guest.write_desc(SENDS, slot, Sparse.guest + 4096, guest.header + len(frame), 0)
            guest.offer(SENDS, slot)

        bad.guests[1].offer_buffers(2)
        send()
        assert bad.guests[1].wait_received(1) == [frame]
        assert ctypes.CDLL(None).fallocate(file, 3, ctypes.c_long(0), ctypes.c_long(giant)) == 0
        send()
        switch.wait_state("bad", "quarantined")
        assert "memory" in switch.port("bad")["reason"]
        assert switch.counters("bad")["pages_made"] == 0
        guest.close()
        switch.wait_state("bad", "waiting")
        os.close(file)
    bad.restart(0)


class SparseHuge(Sparse):
    """In a tmpfs that would like to have large pages, and has small ones where some have been given back."""

    folder: Path

    def make(self) -> int:
        file = os.open(self.folder / f"{id(self)}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        size, large = self.frames * self.pieces * self.page, 2 << 20
        os.ftruncate(file, size)
        for at in range(0, size, large):
            os.pwrite(file, b"x", at)
            punched = ctypes.CDLL(None).fallocate(file, 3, ctypes.c_long(at + 4096), ctypes.c_long(large - 4096))
            assert punched == 0
        return file


@pytest.mark.requires_root
def test_a_tmpfs_that_would_like_large_pages_may_have_small_ones(
    switch: RunningSwitch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "huge"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "huge=always", "tailrace-test", folder]
    if subprocess.run(command, check=False).returncode != 0:
        pytest.skip("needs a kernel that has huge pages in a tmpfs (CONFIG_TRANSPARENT_HUGEPAGE)")
    try:
        monkeypatch.setattr(SparseHuge, "folder", folder, raising=False)
        pair = GuestPair(switch, ("sparse", "far"), SparseHuge)
        assert cross(pair)
        for name in pair.names:
            assert switch.port(name)["state"] == "up"
            assert 0 < switch.counters(name)["pages_made"] < Sparse.frames * Sparse.pieces
        pair.end()
        for name in pair.names:
            switch.wait_state(name, "waiting")
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
