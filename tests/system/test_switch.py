"""The real switch under the address and undefined-behaviour sanitizers, with guests good and bad."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
    SENDS,
    SIZE,
    WRITE,
    FrontEnd,
)
from guest_pair import GuestPair
from running_switch import RunningSwitch, wait_until

from tailrace.process.control import ControlError

SOURCE = Path(__file__).resolve().parents[2] / "dataplane/switch/switch.c"
METHODS = re.findall(r'^\t\{"([a-z.]+)", ', SOURCE.read_text(), re.M)


@pytest.fixture
def switch(asan_binaries: Path, tmp_path: Path) -> Iterator[RunningSwitch]:
    running = RunningSwitch(asan_binaries / "switch/tailrace-switch", tmp_path)
    yield running
    assert running.end() == 0
    assert not (tmp_path / "control").exists() and not (tmp_path / "page").exists()
    assert not list(tmp_path.glob("*.sock"))


@pytest.fixture
def pair(switch: RunningSwitch) -> Iterator[GuestPair]:
    pair = GuestPair(switch, ("a", "b"))
    yield pair
    pair.end()


@pytest.fixture
def ahead() -> Iterator[int]:
    """The CPU on which this process goes before all ordinary ones."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    yield min(cpus)
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.sched_setaffinity(0, cpus)


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
    pair = GuestPair(switch, ("a", "b"), lambda: FrontEnd(features=features))
    for _ in range(10):
        pair.exchange()
    counters = switch.counters("a")
    assert counters["received_packets"] == counters["sent_packets"] == 200
    assert not any(count for name, count in counters.items() if name.startswith("drop_"))
    pair.end()


def test_a_guest_may_reset_its_driver(pair: GuestPair) -> None:
    pair.exchange()
    guest = pair.guests[0]
    assert guest.stop_rings() == [20, 20]
    pair.switch.wait_state("a", "waiting")
    guest.reset()
    guest.start_rings()
    pair.switch.wait_state("a", "up")
    pair.exchange()


def test_rings_go_on_where_they_stood(pair: GuestPair) -> None:
    pair.exchange()
    guest = pair.guests[0]
    first = guest.stop_rings()[0]
    guest.start_rings(first)
    pair.switch.wait_state("a", "up")
    pair.exchange()


def test_a_guest_may_come_back(pair: GuestPair) -> None:
    pair.exchange()
    for guest, path, name in zip(pair.guests, pair.paths, pair.names, strict=True):
        guest.close()
        pair.switch.wait_state(name, "waiting")
        guest.reset()
        guest.start(path)
        pair.switch.wait_state(name, "up")
    pair.exchange()


def test_memory_may_change_while_the_rings_run(pair: GuestPair) -> None:
    pair.exchange()
    for size in (SIZE - 4096, SIZE):
        pair.guests[0].give_memory(size)
        pair.exchange()


def test_a_second_front_end_is_turned_away(pair: GuestPair) -> None:
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
    switch.set_chain("chain", "a", "b")
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


def test_a_sleeping_guest_is_woken(pair: GuestPair) -> None:
    receiver = pair.guests[1]
    receiver.offer_buffers(1)
    pair.guests[0].send(b"y" * 60)
    os.set_blocking(receiver.call[RECEIVES], True)
    assert struct.unpack("<Q", os.read(receiver.call[RECEIVES], 8))[0] >= 1
    assert receiver.received() == [b"y" * 60]


def test_a_full_receiver_holds_frames_back_and_then_loses_them_by_name(pair: GuestPair) -> None:
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
    switch.set_chain("chain", "a", "b")
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


def test_ports_come_and_go_beside_a_chain_that_runs(pair: GuestPair) -> None:
    for number in range(20):
        name = f"extra{number}"
        pair.switch.add_guest(name)
        pair.exchange(5)
        pair.switch.remove_port(name)
        pair.exchange(5)
    for counters in map(pair.switch.counters, pair.names):
        assert not any(count for name, count in counters.items() if name.startswith("drop_"))


def test_what_cannot_be_is_refused_with_the_reason(switch: RunningSwitch, tmp_path: Path) -> None:
    switch.add_guest("a")
    switch.add_guest("b")
    switch.add_guest("c")
    switch.set_chain("chain", "a", "b")
    taken = socket.socket(socket.AF_UNIX)
    taken.bind(str(tmp_path / "taken"))
    taken.listen()
    guest = {"kind": "guest", "path": str(tmp_path / "new.sock")}
    chain = {"from": "c", "to": "d"}
    refused: list[tuple[dict[str, Any], str]] = [
        ({"ports": {"d": {**guest, "path": str(tmp_path / "a.sock")}}}, r"^ports\.d: .* belongs to port 'a'$"),
        ({"ports": {"d": {**guest, "path": str(tmp_path / "taken")}}}, r"^ports\.d: .* in use"),
        ({"ports": {"d": {**guest, "path": "/" + "x" * 200}}}, r"^ports\.d\.path: .* longer than 107 bytes"),
        ({"ports": {"d": {**guest, "path": str(tmp_path / "no/d")}}}, r"^ports\.d: .* No such file or directory"),
        ({"ports": {"d": {**guest, "socket": {"group": "nosuchgroup"}}}}, r"^ports\.d: .*nosuchgroup"),
        ({"ports": {"d": {**guest, "socket": {"mode": "0999"}}}}, r"^ports\.d\.socket\.mode: '0999': .* octal"),
        (
            {"ports": {"d": {**guest, "socket": {"mode": "0" + 30 * "7"}}}},
            r"^ports\.d\.socket\.mode: .*octal",
        ),
        ({"ports": {"d": {**guest, "queues": 17}}}, r"^ports\.d\.queues: .* from 1 to 16$"),
        (
            {"ports": {"d": {"kind": "device", "device": "if:nosuchthing"}}},
            r"^ports\.d: no network interface 'nosuchthing'",
        ),
        ({"ports": {"d": {"kind": "cable"}}}, r"^ports\.d\.kind: 'cable': expected 'guest' or 'device'$"),
        ({"ports": {"d": {**guest, "mode": "both"}}}, r"^ports\.d\.mode: .* 'server' or 'client'$"),
        ({"ports": {"d": {**guest, "colour": "red"}}}, r"^ports\.d\.colour: no such key$"),
        ({"ports": {"": guest}}, "1 to 47 characters"),
        ({"ports": {"d": {"kind": "guest"}}}, r"^ports\.d\.path: is missing$"),
        ({"ports": {"a": None}}, r"^chains\.chain\.from: no port 'a'$"),
        ({"chains": {"x": {"from": "a", "to": "c"}}}, r"^chains\.x\.from: port 'a' is in chain 'chain' too"),
        ({"chains": {"x": chain}}, r"^chains\.x\.to: no port 'd'$"),
        ({"chains": {"x": {"from": "c", "to": "c"}}}, r"^chains\.x: port 'c' stands twice$"),
        ({"chains": {"x": {"from": "a", "through": ["fw"], "to": "b"}}}, r"^chains\.x\.from: port 'a' is in chain"),
        ({"chains": {"chain": {"through": ["fw"]}}}, r"^chains\.chain\.through\[0\]: no function 'fw'$"),
        ({"chains": {"chain": {"match": [{"vlan": 5000}]}}}, r"^chains\.chain\.match\[0\]\.vlan: expected a number"),
        ({"chains": {"chain": {"match": [{"source": "10/8"}]}}}, r"^chains\.chain\.match\[0\]\.source: "),
        ({"workers": {"pins": {"a/0": 7}}}, r"^workers\.pins\.a/0: .* the switch has 1"),
        ({"workers": {"pins": {"a/1": 0}}}, r"^workers\.pins\.a/1: port 'a' has 1 queues"),
    ]
    before = switch.call("config.get")
    assert len(METHODS) > 15
    for method in METHODS:
        with pytest.raises(ControlError, match=rf"^zzz: {method} knows no such param$"):
            switch.call(method, zzz=1)
    for method in ("config.plan", "config.apply", "config.rollback"):
        for base in (-5, "1", 1.5, None):
            with pytest.raises(ControlError, match=r"^base: expected the number of a version$"):
                switch.call(method, **({} if method == "config.rollback" else {"patch": {}}), base=base)
    for patch, reason in refused:
        for method in ("config.plan", "config.apply"):
            if method == "config.plan" and re.search("taken|/no/|nosuch", str(patch)):
                continue  # only trying shows it
            with pytest.raises(ControlError, match=reason):
                switch.call(method, patch=patch)
    with pytest.raises(ControlError, match=r"no method 'port\.sing'"):
        switch.call("port.sing")
    # What is quoted is cut, and the caller is answered all the same where that is within a character.
    with pytest.raises(ControlError, match=r"^x{63}\?: port\.list knows no such param$"):
        switch.call("port.list", **{"x" * 63 + "é": 1})
    with pytest.raises(ControlError, match=r"^no method 'é+\??$"):
        switch.call("é" * 400)
    assert switch.call("config.get") == before
    assert [port["name"] for port in switch.call("port.list")] == ["a", "b", "c"]
    (listed,) = switch.call("chain.list")
    assert (listed["name"], listed["from"], listed["through"], listed["to"]) == ("chain", "a", [], "b")
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
            client.settimeout(60)
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


def test_an_answer_comes_in_one_piece(switch: RunningSwitch, ahead: int) -> None:
    """Whoever goes before the switch on its core is woken by the first piece, and would have to wait for the next."""
    os.sched_setaffinity(switch.process.pid, {ahead})
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(switch.folder / "control"))
        for number in range(20):
            client.sendall(b'{"jsonrpc": "2.0", "id": %d, "method": "version"}\n' % number)
            answer = client.recv(4096)
            assert answer.endswith(b"\n") and json.loads(answer)["id"] == number


def test_a_caller_for_whom_no_descriptor_is_left_is_turned_away(switch: RunningSwitch) -> None:
    """And not left at the head of the queue, where the switch would find it again and again."""
    while switch.open_files() < 64:  # poll() refuses more than the limit
        switch.add_guest(f"guest{switch.open_files()}")
    highest = max(int(path.name) for path in Path(f"/proc/{switch.process.pid}/fd").iterdir())
    before = resource.prlimit(switch.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(switch.process.pid, resource.RLIMIT_NOFILE, (highest + 1, before[1]))
    callers = []
    try:
        while "no file descriptor is left for a caller" not in switch.log.read_text():
            assert len(callers) < 25, "fewer than the callers that may be there at once"
            callers.append(socket.socket(socket.AF_UNIX))
            callers[-1].connect(str(switch.folder / "control"))
            switch.call("version")
        callers[-1].settimeout(60)
        assert callers[-1].recv(1) == b""
    finally:
        resource.prlimit(switch.process.pid, resource.RLIMIT_NOFILE, before)
        for caller in callers:
            caller.close()
    assert switch.call("version")["program"] == "tailrace-switch"


# ------- guests that do not behave: their rings; what front ends may say is in test_guest_hostile.py -------


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
    switch: RunningSwitch, pair: GuestPair, attack: Callable[[FrontEnd], None], reason: str
) -> None:
    bad = GuestPair(switch, ("bad", "peer"))
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


def test_empty_descriptors_cost_the_frame_and_not_the_others_time(switch: RunningSwitch, pair: GuestPair) -> None:
    guests = [FrontEnd(ring_size=1024), FrontEnd(ring_size=1024)]
    for guest, name in zip(guests, ("bad", "peer"), strict=True):
        guest.start(switch.add_guest(name))
        switch.wait_state(name, "up")
    switch.set_chain("bad", "bad", "peer")
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


def test_values_that_change_under_the_switch(switch: RunningSwitch, pair: GuestPair) -> None:
    """A guest scribbles over its rings as fast as it can, again and again; a chain beside it loses nothing."""
    bad = GuestPair(switch, ("bad", "peer"))
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
