"""The real switch under the address and undefined-behaviour sanitizers, with guests good and bad."""

from __future__ import annotations

import os
import random
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from front_end import (
    BASE,
    F_EVENT_INDEX,
    F_IN_ORDER,
    F_INDIRECT,
    F_MERGEABLE,
    F_VERSION_1,
    INDIRECT,
    NEXT,
    RECEIVES,
    RING_AT,
    SENDS,
    SET_FEATURES,
    SET_MEM_TABLE,
    SET_VRING_ADDR,
    SET_VRING_CALL,
    SET_VRING_NUM,
    SIZE,
    USER,
    WRITE,
    FrontEnd,
)
from running_switch import RunningSwitch, wait_until

from tailrace.control import ControlError


@pytest.fixture
def switch(asan_binaries: Path, tmp_path: Path) -> Iterator[RunningSwitch]:
    running = RunningSwitch(asan_binaries / "switch/tailrace-switch", tmp_path)
    yield running
    assert running.end() == 0
    assert not (tmp_path / "control").exists() and not (tmp_path / "page").exists()
    assert not list(tmp_path.glob("*.sock"))


class Pair:
    """Two guests on one chain."""

    def __init__(self, switch: RunningSwitch, names: tuple[str, str], features: int | None = None) -> None:
        self.switch = switch
        self.names = names
        self.guests = [FrontEnd() if features is None else FrontEnd(features=features) for _ in names]
        self.paths = [switch.add_guest(name) for name in names]
        switch.call("chain.set", name="-".join(names), ports=list(names))
        for guest, path in zip(self.guests, self.paths, strict=True):
            guest.start(path)
        for name in names:
            switch.wait_state(name, "up")

    def exchange(self, count: int = 20) -> None:
        """Frames cross both ways whole and in order."""
        for sender, receiver in ((0, 1), (1, 0)):
            frames = [struct.pack("<HI", count, i) * 10 for i in range(count)]
            self.guests[receiver].offer_buffers(count)
            for frame in frames:
                self.guests[sender].send(frame)
            assert self.guests[receiver].wait_received(count) == frames

    def end(self) -> None:
        for guest in self.guests:
            guest.end()


@pytest.fixture
def pair(switch: RunningSwitch) -> Iterator[Pair]:
    pair = Pair(switch, ("a", "b"))
    yield pair
    pair.end()


# ------- guests that behave -------


@pytest.mark.parametrize(
    "features",
    [
        F_VERSION_1 | F_MERGEABLE | F_INDIRECT,
        F_VERSION_1,
        F_MERGEABLE,
        0,
        F_VERSION_1 | F_EVENT_INDEX,
        F_VERSION_1 | F_IN_ORDER,
    ],
    ids=["modern", "no-mergeable", "legacy-mergeable", "legacy", "event-index", "in-order"],
)
def test_frames_cross_with_every_set_of_features(switch: RunningSwitch, features: int) -> None:
    pair = Pair(switch, ("a", "b"), features)
    for _ in range(10):
        pair.exchange()
    counters = switch.counters("a")
    assert counters["received_packets"] == counters["sent_packets"] == 200
    assert not any(count for name, count in counters.items() if name.startswith("drop_"))
    pair.end()


def test_a_guest_may_reset_its_driver(pair: Pair) -> None:
    pair.exchange()
    guest = pair.guests[0]
    assert guest.stop_rings() == [20, 20]
    pair.switch.wait_state("a", "waiting")
    guest.reset()
    guest.start_rings()
    pair.switch.wait_state("a", "up")
    pair.exchange()


def test_rings_go_on_where_they_stood(pair: Pair) -> None:
    pair.exchange()
    guest = pair.guests[0]
    first = guest.stop_rings()[0]
    guest.start_rings(first)
    pair.switch.wait_state("a", "up")
    pair.exchange()


def test_a_guest_may_come_back(pair: Pair) -> None:
    pair.exchange()
    for guest, path, name in zip(pair.guests, pair.paths, pair.names, strict=True):
        guest.close()
        pair.switch.wait_state(name, "waiting")
        guest.reset()
        guest.start(path)
        pair.switch.wait_state(name, "up")
    pair.exchange()


def test_memory_may_change_while_the_rings_run(pair: Pair) -> None:
    pair.exchange()
    for size in (SIZE - 4096, SIZE):
        pair.guests[0].give_memory(size)
        pair.exchange()


def test_a_second_front_end_is_turned_away(pair: Pair) -> None:
    second = FrontEnd()
    second.connect(pair.paths[0])
    assert second.socket is not None
    assert second.socket.recv(1) == b""
    second.end()
    pair.exchange()


def test_the_switch_connects_as_a_client_and_again_after_a_loss(switch: RunningSwitch, tmp_path: Path) -> None:
    guests = [FrontEnd(), FrontEnd()]
    listeners = []
    for name in ("a", "b"):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / f"{name}.sock"))
        listener.listen()
        listeners.append(listener)
        switch.add_guest(name, mode="client")
    switch.call("chain.set", name="chain", ports=["a", "b"])
    for _ in range(2):
        for guest, listener, name in zip(guests, listeners, ("a", "b"), strict=True):
            guest.accept(listener)
            guest.set_up()
            switch.wait_state(name, "up")
        guests[0].send(b"x" * 60)
        guests[1].offer_buffers(1)
        assert guests[1].wait_received(1) == [b"x" * 60]
        for guest, name in zip(guests, ("a", "b"), strict=True):
            guest.close()
            guest.reset()
            switch.wait_state(name, "waiting")
    for guest, listener in zip(guests, listeners, strict=True):
        guest.end()
        listener.close()
    for name in ("a", "b"):
        (tmp_path / f"{name}.sock").unlink()


def test_a_sleeping_guest_is_woken(pair: Pair) -> None:
    receiver = pair.guests[1]
    receiver.offer_buffers(1)
    pair.guests[0].send(b"y" * 60)
    os.set_blocking(receiver.call[RECEIVES], True)
    assert struct.unpack("<Q", os.read(receiver.call[RECEIVES], 8))[0] >= 1
    assert receiver.received() == [b"y" * 60]


def test_a_full_receiver_holds_frames_back_and_then_loses_them_by_name(pair: Pair) -> None:
    sender, receiver = pair.guests
    sender.send(b"z" * 60)
    wait_until(lambda: pair.switch.counters("b")["drop_receiver_full"] == 1, "the frame is dropped")
    assert pair.switch.counters("b")["blocked_polls"] > 0
    receiver.offer_buffers(1)
    sender.send(b"w" * 60)
    assert receiver.wait_received(1) == [b"w" * 60]


def test_frames_for_nobody_are_counted(switch: RunningSwitch) -> None:
    guest = FrontEnd()
    guest.start(switch.add_guest("a"))
    switch.wait_state("a", "up")
    guest.send(b"1" * 60)
    wait_until(lambda: switch.counters("a")["drop_no_chain"] == 1, "the frame is dropped")
    switch.add_guest("b")
    switch.call("chain.set", name="chain", ports=["a", "b"])
    guest.send(b"2" * 60)
    wait_until(lambda: switch.counters("b")["drop_receiver_down"] == 1, "the frame is dropped")
    guest.end()


# ------- configuration -------


def test_resident_memory_stays_small(binaries: Path, tmp_path: Path) -> None:
    """Without huge pages, with 16 guest ports: at most 64 MiB. The sanitizer's own memory would hide it."""
    folder = tmp_path / "plain"
    folder.mkdir()
    plain = RunningSwitch(binaries / "switch/tailrace-switch", folder)
    for number in range(16):
        plain.add_guest(f"p{number}")
    status = Path(f"/proc/{plain.process.pid}/status").read_text()
    resident = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
    assert plain.end() == 0
    assert resident <= 64 * 1024


def test_ports_come_and_go_beside_a_chain_that_runs(pair: Pair) -> None:
    for number in range(20):
        name = f"extra{number}"
        pair.switch.add_guest(name)
        pair.exchange(5)
        pair.switch.call("port.remove", name=name)
        pair.exchange(5)
    for counters in map(pair.switch.counters, pair.names):
        assert not any(count for name, count in counters.items() if name.startswith("drop_"))


def test_what_cannot_be_is_refused_with_the_reason(switch: RunningSwitch, tmp_path: Path) -> None:
    switch.add_guest("a")
    switch.add_guest("b")
    switch.add_guest("c")
    switch.call("chain.set", name="chain", ports=["a", "b"])
    taken = socket.socket(socket.AF_UNIX)
    taken.bind(str(tmp_path / "taken"))
    taken.listen()
    guest = {"kind": "guest", "path": str(tmp_path / "new.sock")}
    refused: list[tuple[str, dict[str, object], str]] = [
        ("port.add", {"name": "a", **guest}, "port 'a' exists"),
        ("port.add", {"name": "d", "kind": "guest", "path": str(tmp_path / "a.sock")}, "belongs to port 'a'"),
        ("port.add", {"name": "d", "kind": "guest", "path": str(tmp_path / "taken")}, "in use"),
        ("port.add", {"name": "d", "kind": "guest", "path": "/" + "x" * 200}, "longer than 107 bytes"),
        ("port.add", {"name": "d", "kind": "guest", "path": str(tmp_path / "no/d")}, "No such file or directory"),
        ("port.add", {"name": "d", "kind": "device", "device": "if:nosuchthing"}, "no network interface"),
        ("port.add", {"name": "d", "kind": "cable", "path": "/x"}, "expected 'guest' or 'device'"),
        ("port.add", {"name": "d", **guest, "mode": "both"}, "expected 'server' or 'client'"),
        ("port.add", {"name": "d", **guest, "colour": "red"}, "colour"),
        ("port.add", {"name": "", **guest}, "1 to 47 characters"),
        ("port.add", {"name": "d", "kind": "guest"}, "a guest port has a 'path'"),
        ("port.remove", {"name": "nobody"}, "no port 'nobody'"),
        ("port.remove", {"name": "a"}, "remove the chain first"),
        ("chain.set", {"name": "x", "ports": ["a", "c"]}, "port 'a' is in chain 'chain'"),
        ("chain.set", {"name": "x", "ports": ["c"]}, "even number"),
        ("chain.set", {"name": "x", "ports": ["c", "nobody"]}, "no port 'nobody'"),
        ("chain.set", {"name": "x", "ports": ["c", "c"]}, "stands twice"),
        ("chain.remove", {"name": "x"}, "no chain 'x'"),
        ("port.sing", {}, "no method 'port.sing'"),
    ]
    for method, params, reason in refused:
        with pytest.raises(ControlError, match=reason):
            switch.call(method, **params)
    assert [port["name"] for port in switch.call("port.list")] == ["a", "b", "c"]
    assert switch.call("chain.list") == [{"name": "chain", "ports": ["a", "b"]}]
    taken.close()
    (tmp_path / "taken").unlink()


def test_a_second_switch_on_the_same_socket_says_so(switch: RunningSwitch, asan_binaries: Path) -> None:

    second = subprocess.run(
        [asan_binaries / "switch/tailrace-switch", "--control", switch.folder / "control", "--page", "/nowhere/page"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 1
    assert "is in use" in second.stderr
    assert switch.call("version")["program"] == "tailrace-switch"


def test_rubbish_on_the_control_socket_is_answered_and_survived(switch: RunningSwitch) -> None:
    for rubbish in (b"\x00\xff\xfe\n", b"{}\n", b"[]\n", b'{"method": 3}\n', b'{"method":"version","params":[1]}\n'):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            client.connect(str(switch.folder / "control"))
            client.sendall(rubbish)
            assert b'"error"' in client.recv(4096)
    for half in (b"", b'{"jsonrpc": "2.0", "method": "ver'):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(switch.folder / "control"))
            client.sendall(half)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(switch.folder / "control"))
        with pytest.raises(OSError):  # a line without an end: cut off at the limit
            for _ in range(100):
                client.sendall(b"x" * 100_000)
    assert switch.call("version")["program"] == "tailrace-switch"


# ------- guests that do not behave -------


def endless_chain(guest: FrontEnd) -> None:
    guest.write_desc(SENDS, 0, BASE + 0x100000, 100, NEXT, 0)
    guest.offer(SENDS, 0)


def address_outside(guest: FrontEnd) -> None:
    guest.write_desc(SENDS, 0, BASE + SIZE - 10, 100, 0)
    guest.offer(SENDS, 0)


def address_that_wraps(guest: FrontEnd) -> None:
    guest.write_desc(SENDS, 0, 2**64 - 50, 100, 0)
    guest.offer(SENDS, 0)


def head_outside(guest: FrontEnd) -> None:
    guest.offer(SENDS, 1000)


def index_far_ahead(guest: FrontEnd) -> None:
    guest.set_available_index(SENDS, 5000)


def wrong_direction(guest: FrontEnd) -> None:
    guest.write_desc(SENDS, 0, BASE + 0x100000, 100, WRITE)
    guest.offer(SENDS, 0)


def next_outside(guest: FrontEnd) -> None:
    guest.write_desc(SENDS, 0, BASE + 0x100000, 100, NEXT, 777)
    guest.offer(SENDS, 0)


def nested_table(guest: FrontEnd) -> None:
    struct.pack_into("<QIHH", guest.memory, 0x200000, BASE + 0x200000, 16, INDIRECT, 0)
    guest.write_desc(SENDS, 0, BASE + 0x200000, 16, INDIRECT)
    guest.offer(SENDS, 0)


def no_header(guest: FrontEnd) -> None:
    guest.write_desc(SENDS, 0, BASE + 0x100000, 3, 0)
    guest.offer(SENDS, 0)


ATTACKS: list[tuple[Callable[[FrontEnd], None], str]] = [
    (endless_chain, "chain has no end"),
    (address_outside, "outside the guest's memory"),
    (address_that_wraps, "outside the guest's memory"),
    (head_outside, "head index"),
    (index_far_ahead, "more than a ring ahead"),
    (wrong_direction, "wrong direction"),
    (next_outside, "next index"),
    (nested_table, "indirect table"),
    (no_header, "no room for the network header"),
]


@pytest.mark.parametrize(("attack", "reason"), ATTACKS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_malformed_ring_costs_its_own_port_only(
    switch: RunningSwitch, pair: Pair, attack: Callable[[FrontEnd], None], reason: str
) -> None:
    bad = Pair(switch, ("bad", "peer"))
    guest = bad.guests[0]
    attack(guest)
    # A frame has to be wanted for the ring to be read to the end.
    bad.guests[1].offer_buffers(4)
    switch.wait_state("bad", "quarantined")
    assert reason in switch.port("bad")["reason"]
    assert switch.counters("bad")["quarantines"] == 1
    assert switch.port("peer")["state"] == "up"
    pair.exchange()
    # It is well again once it starts anew.
    guest.close()
    switch.wait_state("bad", "waiting")
    guest.reset()
    guest.start(bad.paths[0])
    switch.wait_state("bad", "up")
    bad.guests[0].send(b"q" * 60)
    assert bad.guests[1].wait_received(1) == [b"q" * 60]
    bad.end()


def used_ring_past_the_end(guest: FrontEnd) -> None:
    at = USER + RING_AT[SENDS]
    used = USER + SIZE - 0x100
    guest.send_message(SET_VRING_ADDR, struct.pack("<IIQQQQ", SENDS, 0, at, used, at + 0x4000, 0))


def no_room_for_the_event_index(guest: FrontEnd) -> None:
    at = USER + RING_AT[SENDS]
    used = USER + SIZE - (4 + 8 * guest.ring_size)
    guest.send_message(SET_VRING_ADDR, struct.pack("<IIQQQQ", SENDS, 0, at, used, at + 0x4000, 0))


def ring_that_grows(guest: FrontEnd) -> None:
    guest.give_memory(0x30000)
    guest.send_message(SET_VRING_NUM, struct.pack("<II", SENDS, 32768))


def call_descriptor_that_is_a_pipe(guest: FrontEnd) -> None:
    readable, writable = os.pipe()
    guest.send_message(SET_VRING_CALL, struct.pack("<Q", SENDS), (writable,))
    os.close(readable)
    os.close(writable)


@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        (used_ring_past_the_end, "does not lie within one region"),
        (no_room_for_the_event_index, "does not lie within one region"),
        (ring_that_grows, "does not lie within one region"),
        (call_descriptor_that_is_a_pipe, "no eventfd"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_rings_that_do_not_fit_are_not_served(
    switch: RunningSwitch, pair: Pair, attack: Callable[[FrontEnd], None], reason: str
) -> None:
    """What DPDK's library lets pass: it would have the switch write beside the guest's memory."""
    bad = Pair(switch, ("bad", "peer"))
    guest = bad.guests[0]
    attack(guest)
    switch.wait_state("bad", "quarantined")
    assert reason in switch.port("bad")["reason"]
    guest.send(b"v" * 60)
    pair.exchange()
    assert switch.counters("bad")["received_packets"] == 0
    guest.close()
    switch.wait_state("bad", "waiting")
    guest.reset()
    guest.start(bad.paths[0])
    switch.wait_state("bad", "up")
    bad.end()


@pytest.mark.parametrize("blocking", [False, True])
def test_a_full_call_descriptor_blocks_nobody(switch: RunningSwitch, pair: Pair, blocking: bool) -> None:
    bad = Pair(switch, ("bad", "peer"))
    for call in bad.guests[1].call:
        os.write(call, struct.pack("<Q", 2**64 - 2))
        os.set_blocking(call, blocking)  # the switch has made it non-blocking, and the guest undoes that
    if blocking:
        bad.guests[1].offer_buffers(1)
        bad.guests[0].send(b"e" * 60)
        switch.wait_state("peer", "quarantined")
        assert "blocks" in switch.port("peer")["reason"]
    else:
        bad.exchange(5)
    pair.exchange()
    bad.end()


def test_empty_descriptors_cost_the_frame_and_not_the_others_time(switch: RunningSwitch, pair: Pair) -> None:
    guests = [FrontEnd(ring_size=1024), FrontEnd(ring_size=1024)]
    for guest, name in zip(guests, ("bad", "peer"), strict=True):
        guest.start(switch.add_guest(name))
        switch.wait_state(name, "up")
    switch.call("chain.set", name="bad", ports=["bad", "peer"])
    for slot in range(1000):
        guests[0].write_desc(SENDS, slot, BASE + 0x100000, 0, NEXT, slot + 1)
    guests[0].write_desc(SENDS, 1000, BASE + 0x100000, 100, 0)
    guests[0].offer(SENDS, 0)
    guests[1].offer_buffers(2)
    wait_until(lambda: switch.counters("bad")["drop_frame_fragmented"] == 1, "the frame is dropped")
    pair.exchange()
    guests[1].write_desc(RECEIVES, 2, BASE + 0x100000, 0, WRITE)
    guests[1].offer(RECEIVES, 2)
    for number in range(3):
        guests[0].next_desc[SENDS] = number
        guests[0].send(bytes([number]) * 60)
    switch.wait_state("peer", "quarantined")
    assert "no room" in switch.port("peer")["reason"]
    for guest in guests:
        guest.end()


def test_a_memory_table_that_cannot_be_mapped_stops_the_port(switch: RunningSwitch, pair: Pair) -> None:
    """With an acknowledgement asked for, the library keeps the connection, and stale ring addresses with it."""
    bad = Pair(switch, ("bad", "peer"))
    guest = bad.guests[0]
    for regions in (b"", struct.pack("<QQQQ", BASE, 1 << 60, USER, 0)):
        count = len(regions) // 32
        guest.send_message(SET_MEM_TABLE, struct.pack("<II", count, 0) + regions, (guest.memory_fd,) * count)
    switch.wait_state("bad", "waiting")
    guest.send(b"n" * 60)
    pair.exchange()
    assert switch.counters("bad")["received_packets"] == 0
    bad.end()


def test_values_that_change_under_the_switch(switch: RunningSwitch, pair: Pair) -> None:
    """A guest scribbles over its rings as fast as it can, again and again; a chain beside it loses nothing."""
    bad = Pair(switch, ("bad", "peer"))
    guest = bad.guests[0]
    stop = threading.Event()
    generator = random.Random(1)

    def scribble() -> None:
        while not stop.is_set():
            ring = generator.choice((RECEIVES, SENDS))
            slot = generator.randrange(guest.ring_size)
            address = generator.choice((BASE, BASE + generator.randrange(SIZE), generator.getrandbits(64)))
            flags, following = generator.choice((0, 1, 2, 3, 4, 5)), generator.randrange(guest.ring_size + 2)
            guest.write_desc(ring, slot, address, generator.choice((60, 100, 2048, 2**32 - 1)), flags, following)
            guest.offer(ring, slot)

    rounds = 0
    while rounds < 25:
        stop.clear()
        scribbler = threading.Thread(target=scribble)
        scribbler.start()
        bad.guests[1].offer_buffers(8)
        switch.wait_state("bad", "quarantined")
        pair.exchange(4)
        stop.set()
        scribbler.join()
        guest.close()
        switch.wait_state("bad", "waiting")
        guest.reset()
        guest.start(bad.paths[0])
        switch.wait_state("bad", "up")
        bad.guests[1].close()
        bad.guests[1].reset()
        switch.wait_state("peer", "waiting")
        bad.guests[1].start(bad.paths[1])
        switch.wait_state("peer", "up")
        rounds += 1
    assert switch.counters("bad")["quarantines"] >= rounds
    for counters in map(switch.counters, pair.names):
        assert not any(count for name, count in counters.items() if name.startswith("drop_"))
        assert counters["quarantines"] == 0
    bad.end()


def test_memory_cut_short_costs_its_own_port_only(switch: RunningSwitch, pair: Pair) -> None:
    bad = Pair(switch, ("bad", "peer"))
    bad.exchange()
    os.ftruncate(bad.guests[0].memory_fd, 0)  # from here on the test itself must not touch it either
    bad.guests[1].send(b"c" * 60)
    switch.wait_state("bad", "quarantined")
    assert "memory file" in switch.port("bad")["reason"]
    pair.exchange()
    bad.guests[0].close()
    switch.wait_state("bad", "waiting")
    again = FrontEnd()
    again.start(bad.paths[0])
    switch.wait_state("bad", "up")
    bad.guests[1].offer_buffers(1)
    again.send(b"d" * 60)
    assert bad.guests[1].wait_received(1) == [b"d" * 60]
    again.end()
    bad.end()


def test_half_a_message_holds_up_nobody(switch: RunningSwitch, pair: Pair) -> None:
    path = switch.add_guest("lonely")
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(struct.pack("<III", SET_FEATURES, 1, 8))
        other = Pair(switch, ("c", "d"))
        other.exchange()
        assert client.recv(1) == b""  # cut off
    switch.call("chain.remove", name="c-d")
    for name in (*other.names, "lonely"):
        switch.call("port.remove", name=name)
    pair.exchange()
    other.end()


def test_connections_that_say_nothing_or_rubbish(switch: RunningSwitch, pair: Pair) -> None:
    path = switch.add_guest("lonely")
    generator = random.Random(2)
    for number in range(300):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            if number % 3:
                client.sendall(generator.randbytes(generator.randrange(1, 300)))
    pair.exchange()
    wait_until(lambda: switch.port("lonely")["state"] == "waiting", "the port waits")
    guest = FrontEnd()

    def comes_up() -> bool:
        """The switch may still be busy turning the last one away."""
        try:
            guest.start(path)
            return True
        except (OSError, struct.error):
            guest.close()
            return False

    wait_until(comes_up, "a real guest gets in")
    switch.wait_state("lonely", "up")
    guest.end()
