"""Front ends that do what none should, against the real switch under the sanitizers. The function in a container is its
own front end, so whatever can be said on its socket will be said. Each attack may cost its own port, nothing else: the
process lives, the chain beside it loses no frame, and what the attacker sent is neither kept nor waited for.
"""

from __future__ import annotations

import os
import random
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest
from front_end import (
    ADD_MEM_REG,
    BASE,
    F_LOG_ALL,
    F_MERGEABLE,
    F_PROTOCOL,
    F_VERSION_1,
    GET_FEATURES,
    GET_INFLIGHT_FD,
    GET_QUEUE_NUM,
    GET_VRING_BASE,
    IOTLB_MSG,
    NET_SET_MTU,
    NEXT,
    NO_FD,
    RECEIVES,
    REM_MEM_REG,
    RESET_DEVICE,
    RESET_OWNER,
    RING_AT,
    SEND_RARP,
    SENDS,
    SET_FEATURES,
    SET_INFLIGHT_FD,
    SET_LOG_BASE,
    SET_LOG_FD,
    SET_MEM_TABLE,
    SET_OWNER,
    SET_STATUS,
    SET_VRING_ADDR,
    SET_VRING_BASE,
    SET_VRING_CALL,
    SET_VRING_ENABLE,
    SET_VRING_ERR,
    SET_VRING_KICK,
    SET_VRING_NUM,
    SIZE,
    USER,
    WRITE,
    FrontEnd,
    PackedFrontEnd,
)
from guest_pair import GuestPair
from running_switch import RunningSwitch, SharedSwitch, wait_until

PAGE = 4096


# The sanitizer keeps freed memory for a while, so what is to show that none is lost runs without it.
without_sanitizer = pytest.mark.parametrize("switch", ["binaries"], indirect=True)
# What is to be in its log once, or at a bounded rate, is of this test.
with_a_log_of_its_own = pytest.mark.parametrize("switch", ["asan_binaries"], indirect=True)

# A worker that sleeps does all that one that polls does, and asks each ring to be woken.
OPTIONS = ("--idle", "sleep", "--idle-after-us", "100")


@pytest.fixture(scope="module")
def shared(asan_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSwitch]:
    """One that lives through all attacks."""
    made = SharedSwitch(asan_binaries / "switch/tailrace-switch", tmp_path_factory.mktemp("shared"), *OPTIONS)
    yield made
    made.end()


@pytest.fixture
def switch(request: pytest.FixtureRequest, shared: SharedSwitch, tmp_path: Path) -> Iterator[RunningSwitch]:
    if not hasattr(request, "param"):
        with shared.lent() as running:
            yield running
        return
    build: Path = request.getfixturevalue(request.param)
    running = RunningSwitch(build / "switch/tailrace-switch", tmp_path, *OPTIONS)
    yield running
    assert running.end() == 0


@pytest.fixture(autouse=True)
def beside(switch: RunningSwitch) -> Iterator[GuestPair]:
    """A chain that must not notice."""
    pair = GuestPair(switch, ("a", "b"))
    pair.exchange()
    yield pair
    pair.exchange()
    pair.assert_untouched()
    pair.end()


@pytest.fixture
def bad(switch: RunningSwitch) -> Iterator[GuestPair]:
    """The chain whose first guest is the attacker. Whatever it does, it may begin anew."""
    pair = GuestPair(switch, ("bad", "peer"))
    yield pair
    pair.end()


def begins_anew(pair: GuestPair, which: int = 0) -> None:
    """The attacker's port serves the next front end, with memory of its own."""
    old = pair.guests[which]
    old.close()
    pair.switch.wait_state(pair.names[which], "waiting")
    other = pair.guests[1 - which]
    other.stop_rings()
    other.reset()
    other.start_rings()
    pair.guests[which] = FrontEnd()
    pair.guests[which].start(pair.paths[which])
    for name in pair.names:
        pair.switch.wait_state(name, "up")
    pair.exchange(5)
    with suppress(OSError, ValueError):
        old.end()


# ------- memory -------


def regions(*each: tuple[int, int, int, int]) -> bytes:
    """A memory table of (guest address, size, front end's address, offset in the file)."""
    return struct.pack("<II", len(each), 0) + b"".join(struct.pack("<QQQQ", *region) for region in each)


MEMORY_TABLES = {
    "no-region": (),
    "empty-region": ((BASE, 0, USER, 0),),
    "longer-than-its-file": ((BASE, SIZE + PAGE, USER, 0),),
    "offset-beyond-its-file": ((BASE, PAGE, USER, SIZE),),
    "offset-that-wraps": ((BASE, SIZE, USER, 2**64 - PAGE),),
    "size-that-wraps": ((BASE, 2**64 - PAGE, USER, PAGE),),
    "guest-address-that-wraps": ((2**64 - PAGE, SIZE, USER, 0),),
    "front-end-address-that-wraps": ((BASE, SIZE, 2**64 - PAGE, 0),),
    "overlap": ((BASE, SIZE, USER, 0), (BASE + PAGE, SIZE, USER + SIZE, 0)),
    "overlap-in-the-front-end": ((BASE, SIZE, USER, 0), (BASE + SIZE, SIZE, USER + PAGE, 0)),
    "one-region-in-another": ((BASE, SIZE, USER, 0), (BASE + PAGE, PAGE, USER + SIZE, 0)),
}


@pytest.mark.parametrize("table", MEMORY_TABLES.values(), ids=MEMORY_TABLES.keys())
def test_a_memory_table_that_cannot_be_is_refused(
    switch: RunningSwitch, beside: GuestPair, bad: GuestPair, table: tuple[tuple[int, int, int, int], ...]
) -> None:
    guest = bad.guests[0]
    bad.guests[1].offer_buffers(1)
    taken = guest.acknowledged(SET_MEM_TABLE, regions(*table), (guest.memory_fd,) * len(table))
    assert taken == (table == ())
    switch.wait_state("bad", "waiting")
    guest.send(b"n" * 60)
    beside.exchange()
    assert switch.counters("bad")["received_packets"] == 0
    begins_anew(bad)


def test_a_sparse_file_does_not_take_the_address_space(bad: GuestPair) -> None:
    """A file may claim 2^60 bytes and hold none. One guest gets 2 TiB of addresses at the most."""
    guest = bad.guests[0]
    bad.guests[1].offer_buffers(1)
    huge = os.memfd_create("sparse")
    os.ftruncate(huge, 1 << 45)
    for number in range(10):
        region = (BASE + (number << 45), 1 << 45, USER + (number << 45), 0)
        assert not guest.acknowledged(ADD_MEM_REG, struct.pack("<QQQQQ", 0, *region), (huge,))
    os.close(huge)
    assert guest.acknowledged(REM_MEM_REG, struct.pack("<QQQQQ", 0, BASE, SIZE, USER, 0))
    # QEMU 7.2 takes a region away once for every queue pair.
    assert guest.acknowledged(REM_MEM_REG, struct.pack("<QQQQQ", 0, BASE, SIZE, USER, 0))
    begins_anew(bad)


def test_more_memory_slots_than_there_are(bad: GuestPair) -> None:
    guest = bad.guests[0]
    bad.guests[1].offer_buffers(1)
    taken = 0
    for number in range(1, 100):
        region = (BASE + number * SIZE, SIZE, USER + number * SIZE, 0)
        taken += guest.acknowledged(ADD_MEM_REG, struct.pack("<QQQQQ", 0, *region), (guest.memory_fd,))
    assert taken == 31
    bad.exchange()
    begins_anew(bad)


def test_memory_cut_short_costs_its_own_port_only(switch: RunningSwitch, beside: GuestPair, bad: GuestPair) -> None:
    bad.exchange()
    os.ftruncate(bad.guests[0].memory_fd, 0)  # from here on the test itself must not touch it either
    bad.guests[1].send(b"c" * 60)
    switch.wait_state("bad", "quarantined")
    assert "memory file" in switch.port("bad")["reason"]
    beside.exchange()
    begins_anew(bad)


@without_sanitizer
@pytest.mark.whole
def test_a_guest_that_shares_much_and_cuts_a_little_stalls_nobody(
    switch: RunningSwitch, beside: GuestPair, bad: GuestPair
) -> None:
    """1 GiB is there, the switch has mapped all of it, and the last page is cut and then used. With `-s` prints the
    longest time that a frame of the chain beside it took, before, meanwhile and while the guest leaves."""
    much = 1 << 30
    sender, receiver = beside.guests
    guest = bad.guests[0]
    bad.guests[1].offer_buffers(1)
    file = os.memfd_create("much")
    for _ in range(much >> 20):
        os.write(file, b"x" * (1 << 20))
    assert guest.acknowledged(ADD_MEM_REG, struct.pack("<QQQQQ", 0, BASE + much, much, USER + much, 0), (file,))
    wait_until(lambda: switch.mapped("much") == much, "the switch has mapped it")

    def longest(until: Callable[[], bool]) -> float:
        worst, over = 0.0, False
        while not over:
            over = until()
            began = time.perf_counter()
            receiver.offer_buffers(1)
            sender.send(b"b" * 60)
            sender.kicks(SENDS)
            receiver.wait_received(1)
            worst = max(worst, time.perf_counter() - began)
        return worst

    def after(seconds: float) -> Callable[[], bool]:
        end = time.monotonic() + seconds
        return lambda: time.monotonic() > end

    before = longest(after(3))
    os.ftruncate(file, much - PAGE)
    guest.write_desc(SENDS, 0, BASE + 2 * much - PAGE, 100, 0)
    guest.offer(SENDS, 0)
    guest.kicks(SENDS)
    meanwhile = longest(lambda: switch.port("bad")["state"] == "quarantined")
    meanwhile = max(meanwhile, longest(after(1)))
    assert much - (4 << 20) < switch.mapped("much") < much
    print(f"\nlongest time of a frame: {before * 1e3:.2f} ms before, {meanwhile * 1e3:.2f} ms while 1 GiB loses a page")
    guest.close()
    leaving = longest(lambda: switch.port("bad")["state"] == "waiting")
    leaving = max(leaving, longest(after(1)))
    print(f"and {leaving * 1e3:.2f} ms while its port is given back")
    assert switch.mapped("much") == 0
    os.close(file)


@pytest.mark.parametrize("left", [0, RING_AT[SENDS], 0x10_0000])
def test_memory_cut_short_again_and_again_under_traffic(switch: RunningSwitch, bad: GuestPair, left: int) -> None:
    """The fault meets the worker in the middle of a hop, wherever that is: all, the rings, or the buffers are gone."""
    for _ in range(5):
        guest, peer = bad.guests
        for _ in range(8):
            peer.send(b"f" * 1500)
            guest.send(b"t" * 1500)
        guest.offer_buffers(32)
        peer.offer_buffers(8)
        os.ftruncate(guest.memory_fd, left)
        for _ in range(8):
            peer.send(b"f" * 1500)
        switch.wait_state("bad", "quarantined")
        begins_anew(bad)


def test_memory_cut_short_before_the_rings_start(switch: RunningSwitch) -> None:
    """Then it is not a worker that reads what is no longer there, but the thread that speaks to all front ends."""
    guest = FrontEnd()
    guest.connect(switch.add_guest("bad"))
    guest.negotiate()
    guest.give_memory()
    guest.ask(GET_FEATURES)  # it has been mapped: a file that is too short by then is refused
    os.ftruncate(guest.memory_fd, 0)
    guest.start_rings()
    switch.wait_state("bad", "quarantined")
    assert "memory file" in switch.port("bad")["reason"]
    guest.end()


def test_a_dirty_log_that_is_cut_short(beside: GuestPair, bad: GuestPair) -> None:
    guest = bad.guests[0]
    bad.guests[1].offer_buffers(1)
    log = os.memfd_create("log")
    os.ftruncate(log, 1 << 20)
    assert guest.ask(SET_LOG_BASE, struct.pack("<QQ", 1 << 20, 0), (log,))
    guest.send_message(SET_FEATURES, struct.pack("<Q", guest.features | F_LOG_ALL))
    for ring in (RECEIVES, SENDS):
        at = USER + RING_AT[ring]
        used = BASE + RING_AT[ring] + 0x8000
        guest.send_message(SET_VRING_ADDR, struct.pack("<IIQQQQ", ring, 1, at, at + 0x8000, at + 0x4000, used))
    bad.exchange()
    os.ftruncate(log, 0)
    guest.offer_buffers(1)
    bad.guests[1].send(b"l" * 60)
    beside.exchange()
    os.close(log)
    begins_anew(bad)


# ------- rings -------


def ring_message(request: int, index: int, number: int = 0) -> tuple[int, bytes]:
    return request, struct.pack("<II", index, number)


@pytest.mark.parametrize("index", [2, 31, 32, 255, 256, 65536, 2**31, 2**32 - 1])
def test_rings_that_the_port_does_not_have(bad: GuestPair, index: int) -> None:
    guest = bad.guests[0]
    bad.guests[1].offer_buffers(1)
    for request in (SET_VRING_NUM, SET_VRING_BASE, SET_VRING_ENABLE):
        assert not guest.acknowledged(request, struct.pack("<II", index, 64))
    assert not guest.acknowledged(SET_VRING_ADDR, struct.pack("<IIQQQQ", index, 0, USER, USER, USER, 0))
    if index < NO_FD:
        for request in (SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR):
            assert not guest.acknowledged(request, struct.pack("<Q", index), (guest.kick[0],))
            assert not guest.acknowledged(request, struct.pack("<Q", index | NO_FD))
    bad.exchange()  # what is refused changes nothing
    guest.send_message(GET_VRING_BASE, struct.pack("<II", index, 0))
    assert guest.socket is not None and guest.socket.recv(1) == b""  # it has an answer, and there is none
    begins_anew(bad)


@pytest.mark.parametrize("size", [0, 40000, 65536, 2**32 - 1])
def test_ring_sizes_that_cannot_be(bad: GuestPair, size: int) -> None:
    assert not bad.guests[0].acknowledged(SET_VRING_NUM, struct.pack("<II", SENDS, size))
    bad.exchange()
    begins_anew(bad)


def set_address(guest: FrontEnd, desc: int, avail: int, used: int) -> None:
    guest.send_message(SET_VRING_ADDR, struct.pack("<IIQQQQ", SENDS, 0, desc, used, avail, 0))


DESC, AVAIL, USED = USER + RING_AT[SENDS], USER + RING_AT[SENDS] + 0x4000, USER + RING_AT[SENDS] + 0x8000


def used_ring_past_the_end(guest: FrontEnd) -> None:
    set_address(guest, DESC, AVAIL, USER + SIZE - 0x100)


def no_room_for_the_event_index(guest: FrontEnd) -> None:
    set_address(guest, DESC, AVAIL, USER + SIZE - (4 + 8 * guest.ring_size))


def rings_outside(guest: FrontEnd) -> None:
    set_address(guest, 0, 0, 0)


def rings_at_the_end_of_addresses(guest: FrontEnd) -> None:
    set_address(guest, 2**64 - 16, 2**64 - 16, 2**64 - 16)


def ring_that_crosses_regions(guest: FrontEnd) -> None:
    """The two regions are neighbours for the guest and for the front end, and not here."""
    half = RING_AT[SENDS] + 0x100  # in the midst of the descriptors
    table = regions(
        (BASE, half & ~0xFFF, USER, 0), (BASE + (half & ~0xFFF), SIZE // 2, USER + (half & ~0xFFF), SIZE // 2)
    )
    set_address(guest, USER + (half & ~0xFFF) - 64, AVAIL, USED)
    guest.send_message(SET_MEM_TABLE, table, (guest.memory_fd,) * 2)


def ring_in_memory_that_is_taken_away(guest: FrontEnd) -> None:
    guest.give_memory(RING_AT[SENDS])


def ring_that_grows(guest: FrontEnd) -> None:
    guest.give_memory(0x30000)
    guest.send_message(*ring_message(SET_VRING_NUM, SENDS, 32768))


def unaligned_descriptors(guest: FrontEnd) -> None:
    set_address(guest, DESC + 8, AVAIL, USED)


def unaligned_used_ring(guest: FrontEnd) -> None:
    set_address(guest, DESC, AVAIL, USED + 2)


def size_that_is_no_power_of_two(guest: FrontEnd) -> None:
    guest.send_message(*ring_message(SET_VRING_NUM, SENDS, 100))


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        (used_ring_past_the_end, "does not lie within one region"),
        (no_room_for_the_event_index, "does not lie within one region"),
        (rings_outside, "does not lie within one region"),
        (rings_at_the_end_of_addresses, "does not lie within one region"),
        (ring_that_crosses_regions, "does not lie within one region"),
        (ring_in_memory_that_is_taken_away, "does not lie within one region"),
        (ring_that_grows, "does not lie within one region"),
        (unaligned_descriptors, "not aligned"),
        (unaligned_used_ring, "not aligned"),
        (size_that_is_no_power_of_two, "power of two"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_rings_that_do_not_fit_are_not_served(
    switch: RunningSwitch, beside: GuestPair, bad: GuestPair, attack: Callable[[FrontEnd], None], reason: str
) -> None:
    attack(bad.guests[0])
    switch.wait_state("bad", "quarantined")
    assert reason in switch.port("bad")["reason"]
    bad.guests[0].send(b"v" * 60)
    beside.exchange()
    assert switch.counters("bad")["received_packets"] == 0
    begins_anew(bad)


def test_a_ring_whose_size_changes_while_it_runs(beside: GuestPair, bad: GuestPair) -> None:
    guest = bad.guests[0]
    bad.guests[1].offer_buffers(1)
    for size in (1, 2, 4096, 16, 64, 32768, 64) * 20:
        guest.send_message(*ring_message(SET_VRING_NUM, SENDS, size))
        guest.send(b"s" * 60)
    beside.exchange()
    begins_anew(bad)


@with_a_log_of_its_own
def test_a_quarantine_is_logged_once(switch: RunningSwitch, beside: GuestPair, bad: GuestPair) -> None:
    size_that_is_no_power_of_two(bad.guests[0])
    switch.wait_state("bad", "quarantined")
    text = "port bad: queue 0, send ring: stopped until the guest resets it: a split ring's size is no power of two"
    wait_until(lambda: text in switch.log.read_text(), "it is in the log")
    for _ in range(20):
        size_that_is_no_power_of_two(bad.guests[0])
    beside.exchange()
    assert switch.log.read_text().count(text) == 1
    begins_anew(bad)


# ------- descriptors to notify with -------


def pipe(request: int, ring: int) -> Callable[[FrontEnd], None]:
    def attack(guest: FrontEnd) -> None:
        readable, writable = os.pipe()
        guest.send_message(request, struct.pack("<Q", ring), (writable,))
        os.close(readable)
        os.close(writable)

    return attack


def folder(request: int, ring: int) -> Callable[[FrontEnd], None]:
    def attack(guest: FrontEnd) -> None:
        fd = os.open("/", os.O_RDONLY)
        guest.send_message(request, struct.pack("<Q", ring), (fd,))
        os.close(fd)

    return attack


def own_socket(request: int, ring: int) -> Callable[[FrontEnd], None]:
    """Its own end of the connection: were it kept, the connection would never end."""

    def attack(guest: FrontEnd) -> None:
        assert guest.socket is not None
        guest.send_message(request, struct.pack("<Q", ring), (guest.socket.fileno(),))

    return attack


@pytest.mark.parametrize("kind", [pipe, folder, own_socket])
@pytest.mark.parametrize(
    ("request_", "reason"), [(SET_VRING_CALL, "wake"), (SET_VRING_KICK, "kicks")], ids=["call", "kick"]
)
def test_descriptors_that_are_no_eventfd(
    switch: RunningSwitch,
    bad: GuestPair,
    kind: Callable[[int, int], Callable[[FrontEnd], None]],
    request_: int,
    reason: str,
) -> None:
    kind(request_, SENDS)(bad.guests[0])
    switch.wait_state("bad", "quarantined")
    assert "no eventfd" in switch.port("bad")["reason"] and reason in switch.port("bad")["reason"]
    begins_anew(bad)


@pytest.mark.parametrize("request_", [SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR], ids=["kick", "call", "error"])
def test_a_descriptor_that_is_no_eventfd_is_not_acknowledged(
    switch: RunningSwitch, bad: GuestPair, request_: int
) -> None:
    guest = bad.guests[0]
    bad.guests[1].offer_buffers(1)
    file, (readable, writable), eventfd = os.open("/etc/passwd", os.O_RDONLY), os.pipe(), os.eventfd(0)
    for descriptor in (file, readable, writable):
        assert not guest.acknowledged(request_, struct.pack("<Q", SENDS), (descriptor,))
        if request_ != SET_VRING_ERR:
            switch.wait_state("bad", "quarantined")
    assert guest.acknowledged(request_, struct.pack("<Q", SENDS), (eventfd,))
    for descriptor in (file, readable, writable, eventfd):
        os.close(descriptor)
    begins_anew(bad)


@pytest.mark.parametrize("blocking", [False, True])
def test_a_full_call_descriptor_blocks_nobody(switch: RunningSwitch, bad: GuestPair, blocking: bool) -> None:
    """The switch makes it non-blocking. A guest that undoes that stalls the worker until its watch interrupts it, after
    at most 20 ms, and loses the ring: so a guest can do it once for each time that it starts its rings."""
    for call in bad.guests[1].call:
        os.write(call, struct.pack("<Q", 2**64 - 2))
        os.set_blocking(call, blocking)
    if blocking:
        bad.guests[1].offer_buffers(1)
        bad.guests[0].send(b"e" * 60)
        switch.wait_state("peer", "quarantined")
        assert "blocks" in switch.port("peer")["reason"]
        for call in bad.guests[1].call:
            os.set_blocking(call, False)
            os.read(call, 8)
        begins_anew(bad, 1)
    else:
        bad.exchange(5)


# ------- messages -------


def test_half_a_message_holds_up_nobody(switch: RunningSwitch) -> None:
    """The rest may take a second. Nobody waits for it: the thread that reads messages reads what is there."""
    path = switch.add_guest("lonely")
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(path))
        client.sendall(struct.pack("<III", SET_FEATURES, 1, 8))
        other = GuestPair(switch, ("c", "d"))
        other.exchange()
        assert client.recv(1) == b""  # cut off
    other.end()


def test_a_message_that_comes_byte_by_byte_is_a_message(switch: RunningSwitch) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(switch.add_guest("slow")))
        for _ in range(3):
            for byte in struct.pack("<III", GET_FEATURES, 1, 0):
                client.sendall(bytes([byte]))
            assert len(client.recv(20, socket.MSG_WAITALL)) == 20


def test_connections_that_close_in_mid_message(switch: RunningSwitch) -> None:
    path = switch.add_guest("lonely")
    memory = os.memfd_create("memory")
    os.ftruncate(memory, SIZE)
    message = struct.pack("<III", SET_MEM_TABLE, 1, 40) + regions((BASE, SIZE, USER, 0))
    before = switch.open_files()
    for length in range(1, len(message)):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            socket.send_fds(client, [message[:length]], [memory])
    os.close(memory)
    wait_until(lambda: switch.open_files() == before, "nothing is kept")
    guest = FrontEnd()
    guest.start(path)
    switch.wait_state("lonely", "up")
    guest.end()


def test_one_that_says_nothing_gives_way(switch: RunningSwitch) -> None:
    path = switch.add_guest("lonely")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.settimeout(60)
        silent.connect(str(path))
        guest = FrontEnd()
        guest.start(path)
        switch.wait_state("lonely", "up")
        assert silent.recv(1) == b""
        guest.end()


def test_connections_that_say_nothing_or_rubbish(switch: RunningSwitch) -> None:
    path = switch.add_guest("lonely")
    generator = random.Random(2)
    before = switch.open_files()
    for number in range(300):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            if number % 3:
                client.sendall(generator.randbytes(generator.randrange(1, 300)))
    wait_until(lambda: switch.open_files() == before, "nothing is kept")
    guest = FrontEnd()
    guest.start(path)
    switch.wait_state("lonely", "up")
    guest.end()


def test_messages_that_are_well_formed_and_senseless(switch: RunningSwitch, beside: GuestPair, bad: GuestPair) -> None:
    """Any message with any numbers and any descriptors, in any order, to rings that are up: thousands of them."""
    generator = random.Random(3)
    path = bad.paths[0]
    before = switch.open_files()
    memory = bad.guests[0].memory_fd
    bad.guests[0].close()
    for _ in range(100):
        guest = FrontEnd()
        guest.connect(path)
        with suppress(OSError, struct.error):
            guest.set_up()
        for _ in range(60):
            size = generator.choice((0, 8, 8, 8, 16, 40, 40, 72))
            words = [
                generator.choice((0, 1, 2, 64, 256, USER, BASE, SIZE, generator.getrandbits(64))) for _ in range(9)
            ]
            payload = struct.pack("<9Q", *words)[:size]
            fds = (memory, guest.kick[0], memory)[: generator.choice((0, 0, 1, 1, 2, 3))]
            with suppress(OSError):
                guest.send_message(generator.randrange(0, 45), payload, fds, 1 | generator.choice((0, 8)))
        guest.end()
    beside.exchange()
    wait_until(lambda: switch.open_files() <= before, "nothing is kept")
    begins_anew(bad)


OUT_OF_ORDER: dict[str, list[tuple[int, bytes]]] = {
    "enable-before-anything": [ring_message(SET_VRING_ENABLE, SENDS, 1), ring_message(SET_VRING_ENABLE, RECEIVES, 1)],
    "kick-before-memory": [(SET_VRING_KICK, struct.pack("<Q", SENDS)), ring_message(SET_VRING_ENABLE, SENDS, 1)],
    "kick-without-a-descriptor": [(SET_VRING_KICK, struct.pack("<Q", SENDS | NO_FD))],
    "address-before-memory": [(SET_VRING_ADDR, struct.pack("<IIQQQQ", SENDS, 0, DESC, USED, AVAIL, 0))],
    "base-before-anything": [ring_message(GET_VRING_BASE, SENDS)],
    "base-twice": [ring_message(GET_VRING_BASE, SENDS)] * 2,
    "reset-before-anything": [(RESET_OWNER, b""), (RESET_DEVICE, b""), (SET_STATUS, struct.pack("<Q", 0))],
    "owner-twice": [(SET_OWNER, b""), (SET_OWNER, b"")],
}


@pytest.mark.parametrize("messages", OUT_OF_ORDER.values(), ids=OUT_OF_ORDER.keys())
def test_messages_out_of_order(switch: RunningSwitch, beside: GuestPair, messages: list[tuple[int, bytes]]) -> None:
    """They are harmless, and the port comes up all the same once everything has been said."""
    guest = FrontEnd()
    path = switch.add_guest("odd")
    guest.connect(path)
    for request, payload in messages:
        if request == GET_VRING_BASE:
            assert len(guest.ask(request, payload)) == 8
        else:
            needs = request == SET_VRING_KICK and not payload[1]
            guest.send_message(request, payload, (guest.kick[0],) if needs else ())
    beside.exchange()
    guest.set_up()
    switch.wait_state("odd", "up")
    guest.end()


@pytest.mark.parametrize("size", [273, 1 << 16, 2**31, 2**32 - 1])
def test_messages_longer_than_any(switch: RunningSwitch, size: int) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(switch.add_guest("long")))
        client.sendall(struct.pack("<III", SET_MEM_TABLE, 1, size) + bytes(200))
        with suppress(ConnectionResetError):
            assert client.recv(1) == b""


@pytest.mark.parametrize("flags", [0, 2, 3, 1 | 4])
def test_messages_of_another_version(switch: RunningSwitch, flags: int) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(switch.add_guest("other")))
        client.sendall(struct.pack("<III", GET_FEATURES, flags, 0))
        assert client.recv(1) == b""


NOT_OFFERED = (
    0,
    SEND_RARP,
    21,
    IOTLB_MSG,
    23,
    24,
    25,
    26,
    27,
    28,
    29,
    30,
    GET_INFLIGHT_FD,
    SET_INFLIGHT_FD,
    33,
    35,
    41,
    99,
)


def test_messages_that_were_not_offered(bad: GuestPair) -> None:
    guest = bad.guests[0]
    bad.guests[1].offer_buffers(1)
    for request in (*NOT_OFFERED, 2**31, 2**32 - 1):
        for size in (0, 8, 16, 24, 40, 264):
            assert not guest.acknowledged(request, bytes(size))
    for number in (0, 67, 65536, 2**63):
        assert not guest.acknowledged(NET_SET_MTU, struct.pack("<Q", number))
    assert guest.acknowledged(NET_SET_MTU, struct.pack("<Q", 9000))
    assert not guest.acknowledged(SET_FEATURES, struct.pack("<Q", 2**64 - 1))
    assert not guest.acknowledged(SET_STATUS, struct.pack("<Q", 256))
    bad.exchange()


@pytest.mark.parametrize("reads", [True, False], ids=["reads-answers", "reads-nothing"])
@pytest.mark.parametrize(
    ("request_", "payload"),
    [(GET_FEATURES, b""), ring_message(SET_VRING_ENABLE, SENDS, 1), (SET_FEATURES, struct.pack("<Q", F_PROTOCOL))],
    ids=["asks", "changes-a-ring", "changes-all-rings"],
)
def test_a_flood_of_messages(
    switch: RunningSwitch, beside: GuestPair, bad: GuestPair, request_: int, payload: bytes, reads: bool
) -> None:
    """As fast as they go for a second and more. Each costs the switch one turn of the thread that reads them, in which
    every other socket has its turn too; workers only find a ring missing for a moment. One that does not read the
    answers is cut off when its socket is full."""
    guest = bad.guests[0]
    bad.guests[1].offer_buffers(1)
    assert guest.socket is not None
    connection = guest.socket
    stop = threading.Event()

    def flood() -> None:
        message = struct.pack("<III", request_, 1 if request_ == GET_FEATURES else 9, len(payload)) + payload
        with suppress(OSError):
            while not stop.is_set():
                connection.sendall(message * 10)
                if reads:
                    connection.recv(200, socket.MSG_WAITALL)

    flooder = threading.Thread(target=flood)
    flooder.start()
    end = time.monotonic() + 1
    rounds = 0
    while time.monotonic() < end or rounds < 3:
        beside.exchange()
        number = f"extra{rounds}"
        other = FrontEnd()
        other.start(switch.add_guest(number))
        switch.wait_state(number, "up")
        other.end()
        rounds += 1
    stop.set()
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    flooder.join()
    begins_anew(bad)


@with_a_log_of_its_own
def test_the_log_is_not_filled_by_a_guest(switch: RunningSwitch, bad: GuestPair) -> None:
    """A ring that is stopped and set up again, wrong each time: a burst of lines, one a second, and how many more there
    would have been."""
    guest = bad.guests[0]
    bad.guests[1].offer_buffers(1)
    began = time.monotonic()
    for _ in range(80):
        set_address(guest, USER - PAGE, AVAIL, USED)
        guest.send_message(SET_VRING_KICK, struct.pack("<Q", SENDS), (guest.kick[SENDS],))
        guest.send_message(SET_VRING_ENABLE, struct.pack("<II", SENDS, 1))
        switch.wait_state("bad", "quarantined")
        time.sleep(0.025)  # the switch looks every 20 ms, and reports what has changed since
        guest.ask(GET_VRING_BASE, struct.pack("<II", SENDS, 0))
        time.sleep(0.025)
    begins_anew(bad)
    text = re.compile(r" port bad: .*| bad: \d+ lines were left out")
    wait_until(lambda: "left out" in (text.findall(switch.log.read_text()) or [""])[-1], "it says what it left out")
    said = [line for line in switch.log.read_text().splitlines() if text.search(line)]
    lines = text.findall("\n".join(said))
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z tailrace-switch: ", line) for line in said)
    assert len(lines) < 8 + (time.monotonic() - began) + 1
    assert sum(int(count) for count in re.findall(r"(\d+) lines (?:before|were)", "\n".join(lines))) > 20


@without_sanitizer
def test_ten_thousand_connections(switch: RunningSwitch, beside: GuestPair) -> None:
    path = switch.add_guest("popular")
    files, memory = switch.open_files(), switch.memory()
    for _ in range(10_000):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
    beside.exchange()
    wait_until(lambda: switch.open_files() == files, "nothing is kept")
    wait_until(lambda: switch.counters("popular")["connections_refused"] == 10_000, "each has been closed")
    assert switch.memory() - memory < 4 << 20
    guest = FrontEnd()
    guest.start(path)
    switch.wait_state("popular", "up")
    guest.end()


def test_descriptors_on_messages_that_take_none(switch: RunningSwitch, bad: GuestPair) -> None:
    guest = bad.guests[0]
    bad.guests[1].offer_buffers(1)
    before = switch.open_files()
    for request in (*range(45), 2**32 - 1):
        for payload in (b"", bytes(8), struct.pack("<II", 255, 0), bytes(40)):
            if request in (GET_FEATURES, 15, GET_QUEUE_NUM, 36, 40, GET_VRING_BASE) and len(payload) in (0, 8):
                continue
            if request in (SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR, ADD_MEM_REG) and len(payload) in (8, 40):
                continue
            guest.acknowledged(request, payload, (guest.memory_fd,) * 8)
    wait_until(lambda: switch.open_files() <= before, "nothing is kept")  # which a thread of the port's own closes
    begins_anew(bad)
    before = switch.open_files()
    for count in (9, 20, 100, 253):  # more than any message has
        other = FrontEnd()
        other.connect(switch.add_guest(f"many{count}"))
        with suppress(OSError):
            other.send_message(SET_OWNER, b"", (other.memory_fd,) * count)
            assert other.socket is not None and other.socket.recv(1) == b""
        other.end()
    wait_until(lambda: switch.open_files() <= before + 4, "only the four listeners are new")


class Lingering:
    """Sockets whose close() waits for a minute, since what was written to them has not been read.

    give_up() is for the end of a test that fails too: whoever collects them would wait for a minute for each.
    """

    def __init__(self, count: int) -> None:
        self.near: list[socket.socket] = []
        self.far: list[socket.socket] = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            for _ in range(count):
                near = socket.create_connection(listener.getsockname())
                self.far.append(listener.accept()[0])
                near.setblocking(False)
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 60))
                with suppress(BlockingIOError):
                    while True:
                        near.send(bytes(1 << 20))
                self.near.append(near)

    def hand_over(self, switch: RunningSwitch, say: Callable[[tuple[int, ...]], object]) -> None:
        """The switch has the last ones of the descriptors, since it stands still until ours are closed."""
        with switch.held_up():
            say(tuple(near.fileno() for near in self.near))
            for near in self.near:
                near.close()

    def give_up(self) -> None:
        """Their close() returns."""
        for far in self.far:
            far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            far.close()
        for near in self.near:
            near.close()


def one_each(guest: FrontEnd, fds: tuple[int, ...]) -> None:
    for fd in fds:
        guest.send_message(SET_LOG_FD, b"", (fd,))


def many_at_once(guest: FrontEnd, fds: tuple[int, ...]) -> None:
    """More than any message has."""
    guest.send_message(SET_OWNER, b"", fds)


def left_unread(guest: FrontEnd, fds: tuple[int, ...]) -> None:
    """Behind a message that ends the connection."""
    assert guest.socket is not None
    guest.socket.sendall(b"\xff" * 12)
    one_each(guest, fds)


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(
    ("say", "count", "times", "too_many"),
    [
        (one_each, 1, 1, False),
        (one_each, 40, 2, True),
        (many_at_once, 1, 1, False),
        (many_at_once, 70, 1, True),
        (left_unread, 40, 1, False),
    ],
)
def test_descriptors_whose_end_is_long_in_coming(
    switch: RunningSwitch,
    bad: GuestPair,
    ends: ExitStack,
    say: Callable[[FrontEnd, tuple[int, ...]], None],
    count: int,
    times: int,
    too_many: bool,
) -> None:
    """Neither other guests nor the operator wait for them. A front end that sends many has to, before it is heard
    again."""
    guest = FrontEnd()
    lingering = [Lingering(count) for _ in range(times)]
    for sockets in lingering:
        ends.callback(sockets.give_up)
    path = switch.add_guest("lingers")
    guest.connect(path)
    guest.negotiate()
    for sockets in lingering:
        guest.ask(GET_FEATURES)  # all before has been read
        sockets.hand_over(switch, partial(say, guest))
    began = time.monotonic()
    guest.close()
    begins_anew(bad)
    if not too_many:
        guest.start(path)
        switch.wait_state("lingers", "up")
        guest.close()
    else:
        # The first finds out that it is too many; the next are not taken before these have come to their end.
        silent = [FrontEnd() for _ in range(3)]
        for each in silent:
            each.connect(path)
        assert silent[2].socket is not None
        silent[2].socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            silent[2].ask(GET_FEATURES)
        for each in silent:
            each.end()
    other = FrontEnd()
    other.start(switch.add_guest("other-port"))
    switch.wait_state("other-port", "up")
    switch.remove_port("other-port")
    other.end()
    assert time.monotonic() - began < 30, "somebody waited for the end of the descriptors"
    ends.close()
    guest.start(path)
    switch.wait_state("lingers", "up")
    guest.end()


def test_one_that_has_gone_gives_way_before_all_that_it_said_is_read(switch: RunningSwitch) -> None:
    path = switch.add_guest("lonely")
    first, next_one = FrontEnd(), FrontEnd()
    first.connect(path)
    first.negotiate()
    first.ask(GET_FEATURES)
    with switch.held_up():
        next_one.connect(path)
        for _ in range(50):
            first.send_message(GET_FEATURES)
        first.close()
    next_one.set_up()
    switch.wait_state("lonely", "up")
    first.end()
    next_one.end()


def test_one_that_is_cut_off_for_another_does_not_count_against_it(switch: RunningSwitch, ends: ExitStack) -> None:
    """With as many to be closed as there may be, the end of a silent connection is one too many."""
    path = switch.add_guest("lingers")
    lingering = Lingering(63)
    ends.callback(lingering.give_up)
    guest = FrontEnd()
    guest.connect(path)
    guest.negotiate()
    lingering.hand_over(switch, partial(one_each, guest))
    guest.ask(GET_FEATURES)  # all before has been read
    guest.close()
    silent, other = FrontEnd(), FrontEnd()
    silent.connect(path)
    other.connect(path)
    assert other.socket is not None
    other.socket.settimeout(0.5)
    with pytest.raises(TimeoutError):
        other.ask(GET_FEATURES)
    ends.close()
    other.socket.settimeout(30)
    other.ask(GET_FEATURES)
    silent.end()
    other.end()


# ------- attacks on vhost back ends that are known by number -------


def test_cve_2018_1059_a_buffer_that_leaves_its_region(switch: RunningSwitch, bad: GuestPair) -> None:
    """Two regions are neighbours for the guest and lie apart here. A length was checked against the first page only,
    and the copy went on into whatever lay behind it. Here each piece is translated: what the guest meant arrives, and
    a buffer that ends outside its memory stops the ring."""
    guest, peer = bad.guests
    half = SIZE // 2
    other = os.memfd_create("other half")
    os.ftruncate(other, half)
    table = regions((BASE, half, USER, 0), (BASE + half, half, USER + half, 0))
    assert guest.acknowledged(SET_MEM_TABLE, table, (guest.memory_fd, other))
    text = random.Random(4).randbytes(600)
    at = half - 12 - 300
    guest.memory[at : at + 12] = bytes(12)
    guest.memory[at + 12 : half] = text[:300]
    os.pwrite(other, text[300:], 0)
    guest.write_desc(SENDS, 0, BASE + at, 612, 0)
    guest.next_desc[SENDS] = 1
    guest.offer(SENDS, 0)
    peer.offer_buffers(3)
    assert peer.wait_received(1) == [text]
    guest.write_desc(SENDS, 1, BASE + SIZE - 100, 612, 0)
    guest.offer(SENDS, 1)
    switch.wait_state("bad", "quarantined")
    assert "outside the guest's memory" in switch.port("bad")["reason"]
    os.close(other)
    begins_anew(bad)


@without_sanitizer
def test_cve_2019_14818_ring_sizes_again_and_again(switch: RunningSwitch, bad: GuestPair) -> None:
    """Each SET_VRING_NUM allocated, and forgot what the one before had; descriptors along with it stayed open."""
    guest = bad.guests[0]
    bad.guests[1].offer_buffers(1)
    files, memory = switch.open_files(), switch.memory()
    for number in range(20_000):
        guest.send_message(*ring_message(SET_VRING_NUM, SENDS, 32768 >> number % 2))
    for _ in range(1000):
        assert not guest.acknowledged(SET_VRING_NUM, struct.pack("<II", SENDS, 64), (guest.memory_fd,) * 8)
    wait_until(lambda: switch.open_files() == files, "nothing is kept")  # which a thread of the port's own closes
    assert switch.memory() - memory < 4 << 20
    begins_anew(bad)


@pytest.mark.parametrize(
    ("size", "offset"),
    [(2**64 - PAGE, PAGE), (PAGE, 2**64 - PAGE), (2**64 - 1, 2), (0, 0), (1 << 20, PAGE), (1 << 62, 1 << 62)],
)
def test_cve_2020_10722_a_log_whose_size_wraps(bad: GuestPair, size: int, offset: int) -> None:
    """Size and offset were added before they were checked: the log was a page long, and written far behind it."""
    guest = bad.guests[0]
    bad.guests[1].offer_buffers(1)
    log = os.memfd_create("log")
    os.ftruncate(log, 1 << 20)
    assert not guest.acknowledged(SET_LOG_BASE, struct.pack("<QQ", size, offset), (log,))
    os.close(log)
    guest.send_message(SET_FEATURES, struct.pack("<Q", guest.features | F_LOG_ALL))
    bad.exchange()


def test_cve_2020_10723_ring_numbers_that_are_cut_to_size(bad: GuestPair) -> None:
    """The number was checked after it had been cut to 8 or 16 bits, and used as it was."""
    guest = bad.guests[0]
    bad.guests[1].offer_buffers(1)
    for index in (256, 257, 65536, 65537, 2**31 + 1, 2**32 - 2**16):
        assert not guest.acknowledged(SET_VRING_NUM, struct.pack("<II", index, 1))
        assert not guest.acknowledged(SET_VRING_ADDR, struct.pack("<IIQQQQ", index, 0, 0, 0, 0, 0))
        assert not guest.acknowledged(SET_VRING_ENABLE, struct.pack("<II", index, 0))
    bad.exchange()


@pytest.mark.parametrize(
    ("address", "length", "reason"),
    [
        (0, 2048, "outside the guest's memory"),
        (BASE + SIZE - 16, 2048, "outside the guest's memory"),
        (2**64 - 64, 2048, "outside the guest's memory"),
        (BASE + 0x100000, 0, "no room"),
        (BASE + 0x100000, 8, "no room"),
    ],
)
def test_cve_2020_10725_receive_descriptors_of_a_packed_ring(
    switch: RunningSwitch, address: int, length: int, reason: str
) -> None:
    """Buffers of a packed ring were taken four at a time, and translated without a look at the result."""
    pair = GuestPair(switch, ("packed", "peer"), PackedFrontEnd, FrontEnd)
    pair.exchange()
    guest, peer = pair.guests
    assert isinstance(guest, PackedFrontEnd)
    guest.offer_buffers(3)
    guest.add(RECEIVES, address, length, WRITE)
    for number in range(4):
        peer.send(bytes([number]) * 60)
    switch.wait_state("packed", "quarantined")
    assert reason in switch.port("packed")["reason"]
    pair.restart(0)
    pair.end()


@without_sanitizer
def test_cve_2020_10726_the_in_flight_buffer_again_and_again(switch: RunningSwitch, bad: GuestPair) -> None:
    """Each GET_INFLIGHT_FD made a file and left it open (and see CVE-2021-3839, CVE-2022-0669: SET_INFLIGHT_FD wrote
    behind the file, and left descriptors open). We offer no such thing."""
    guest = bad.guests[0]
    bad.guests[1].offer_buffers(1)
    files, memory = switch.open_files(), switch.memory()
    for number in range(2000):
        inflight = struct.pack("<QQHHI", 1 << 20, 0, number % 300, 1024, 0)[:20]
        assert not guest.acknowledged(GET_INFLIGHT_FD, inflight)
        assert not guest.acknowledged(SET_INFLIGHT_FD, inflight, (guest.memory_fd,) * (number % 4))
    wait_until(lambda: switch.open_files() == files, "nothing is kept")  # which a thread of the port's own closes
    assert switch.memory() - memory < 4 << 20
    bad.exchange()


def test_cve_2020_14375_values_that_change_after_the_check(
    switch: RunningSwitch, beside: GuestPair, bad: GuestPair
) -> None:
    """A descriptor was checked, then read again and used. Here a guest changes one as fast as it can, between a buffer
    of its own and an address outside: it gets a frame across or loses its ring, and the sanitizer sees no other
    access."""
    generator = random.Random(5)
    deadline = time.monotonic() + 5
    for _ in range(10):
        guest, peer = bad.guests
        stop = threading.Event()

        def flip(guest: FrontEnd = guest, stop: threading.Event = stop) -> None:
            while not stop.is_set():
                slot = generator.randrange(8)
                good = BASE + guest.buffer_address(SENDS, slot)
                guest.write_desc(SENDS, slot, good, 72, 0)
                bad_address = generator.choice((0, BASE + SIZE - 8, 2**64 - 8, good))
                guest.write_desc(
                    SENDS, slot, bad_address, generator.choice((72, 2**32 - 1)), generator.choice((0, NEXT)), 9
                )

        flipper = threading.Thread(target=flip)
        flipper.start()
        while switch.port("bad")["state"] == "up" and time.monotonic() < deadline:
            peer.offer_buffers(8)
            for slot in range(8):
                guest.offer(SENDS, slot)
            beside.exchange(2)
            peer.received()
        stop.set()
        flipper.join()
        begins_anew(bad)


def test_cve_2022_2132_a_header_in_many_pieces(switch: RunningSwitch, bad: GuestPair) -> None:
    """A header spread over descriptors was taken for the data, and descriptors without any data were walked again and
    again. Here the header may lie anywhere, a frame without data is dropped and counted, and the walk is bounded."""
    guest, peer = bad.guests
    text = bytes(range(100))
    guest.memory[0x100000 : 0x100000 + 12 + len(text)] = bytes(12) + text
    for slot in range(12):  # a descriptor for each byte of the header
        guest.write_desc(SENDS, slot, BASE + 0x100000 + slot, 1, NEXT, slot + 1)
    guest.write_desc(SENDS, 12, BASE + 0x100000 + 12, len(text), 0)
    peer.offer_buffers(2)
    guest.offer(SENDS, 0)
    assert peer.wait_received(1) == [text]
    guest.write_desc(SENDS, 13, BASE + 0x100000, 12, 0)  # a header, and nothing else
    guest.offer(SENDS, 13)
    wait_until(lambda: switch.counters("bad")["drop_frame_too_short"] == 1, "the frame is dropped")
    guest.write_desc(SENDS, 14, BASE + 0x100000, 12, NEXT, 15)
    guest.write_desc(SENDS, 15, BASE + 0x100000, 0, NEXT, 16)
    guest.write_desc(SENDS, 16, BASE + 0x100000, 0, 0)
    guest.offer(SENDS, 14)
    wait_until(lambda: switch.counters("bad")["drop_frame_too_short"] == 2, "the frame is dropped")
    guest.next_desc[SENDS] = 20
    guest.send(b"w" * 60)
    assert peer.wait_received(1) == [b"w" * 60]


FEATURES_WITHOUT_PROTOCOL = F_VERSION_1 | F_MERGEABLE


def test_a_front_end_without_protocol_features_is_served(switch: RunningSwitch) -> None:
    """An old one knows no message to enable a ring: a kick starts it."""
    guest, peer = FrontEnd(), FrontEnd()
    path = switch.add_guest("old")
    peer.start(switch.add_guest("new"))
    switch.join("old", "new")
    guest.connect(path)
    guest.features = FEATURES_WITHOUT_PROTOCOL
    guest.send_message(SET_FEATURES, struct.pack("<Q", guest.features))
    guest.give_memory()
    guest.start_rings(enable=False)
    switch.wait_state("old", "up")
    peer.offer_buffers(1)
    guest.send(b"o" * 60)
    assert peer.wait_received(1) == [b"o" * 60]
    guest.end()
    peer.end()


def test_a_guest_that_uses_one_queue_more_and_one_less_again_and_again(switch: RunningSwitch) -> None:
    """Each time the workers' programs are made anew, which costs the control thread and wakes the workers."""
    guest = FrontEnd()
    guest.connect(switch.add_guest("busy", queues=2))
    guest.set_up()
    for ring in (RECEIVES, SENDS):
        at = USER + RING_AT[ring]
        guest.send_message(SET_VRING_NUM, struct.pack("<II", ring + 2, guest.ring_size))
        guest.send_message(SET_VRING_ADDR, struct.pack("<IIQQQQ", ring + 2, 0, at, at + 0x8000, at + 0x4000, 0))
        guest.send_message(SET_VRING_KICK, struct.pack("<Q", ring + 2), (guest.kick[ring],))
        guest.send_message(SET_VRING_ENABLE, struct.pack("<II", ring + 2, 1))
    wait_until(lambda: switch.port("busy")["pairs"] == 2, "both pairs are used")
    began, before, changes = time.monotonic(), switch.call("worker.list")[0]["program"], 0
    while (took := time.monotonic() - began) < 1 or changes <= 1000:
        assert guest.acknowledged(SET_VRING_ENABLE, struct.pack("<II", RECEIVES + 2, changes % 2))
        changes += 1
    assert switch.call("worker.list")[0]["program"] - before <= took / 0.01 + 2
    # What it said last holds.
    assert guest.acknowledged(SET_VRING_ENABLE, struct.pack("<II", RECEIVES + 2, 0))
    wait_until(lambda: switch.port("busy")["pairs"] == 1, "one pair is used")
    guest.end()
