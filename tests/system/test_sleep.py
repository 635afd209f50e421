"""A worker that sleeps: what wakes it, how soon, what it costs while nothing happens, and that nothing is missed."""

from __future__ import annotations

import os
import random
import struct
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from front_end import (
    F_EVENT_INDEX,
    F_INDIRECT,
    F_MERGEABLE,
    F_VERSION_1,
    GET_FEATURES,
    RECEIVES,
    RING_AT,
    SENDS,
    SET_VRING_ENABLE,
    FrontEnd,
    fill,
)
from running_switch import RunningSwitch, wait_until
from running_tester import RunningTester, both_ways
from test_config import assert_exact

PLAIN = F_VERSION_1 | F_MERGEABLE | F_INDIRECT


class KickingGuest(FrontEnd):
    """A guest that kicks when it is asked to, as a driver does, and never otherwise."""

    _fence = threading.Lock()

    def kick_if_wanted(self) -> bool:
        with self._fence:  # taking it is a full fence: the index is seen before the wish is read
            pass
        used = RING_AT[SENDS] + 0x8000
        if self.features & F_EVENT_INDEX:
            (wish,) = struct.unpack_from("<H", self.memory, used + 4 + 8 * self.ring_size)
            wanted = wish == (self.added[SENDS] - 1) & 0xFFFF
        else:
            wanted = not self.words[used // 2] & 1
        if wanted:
            os.eventfd_write(self.kick[SENDS], 1)
        return wanted


def worker(switch: RunningSwitch) -> dict[str, int]:
    return next(slot.counters for slot in switch.page.slots() if slot.kind == "worker")


@pytest.fixture
def switch(binaries: Path, tmp_path: Path) -> Iterator[RunningSwitch]:
    running = RunningSwitch(binaries / "switch/tailrace-switch", tmp_path, "--idle", "sleep", "--idle-after-us", "100")
    yield running
    assert running.end() == 0


def pair(switch: RunningSwitch, features: int) -> tuple[KickingGuest, KickingGuest]:
    guests = KickingGuest(features=features), KickingGuest(features=features)
    for guest, name in zip(guests, "ab", strict=True):
        guest.start(switch.add_guest(name))
        switch.wait_state(name, "up")
    switch.set_chain("x", "a", "b")
    return guests


@pytest.mark.parametrize("features", [PLAIN, PLAIN | F_EVENT_INDEX], ids=["flags", "event-index"])
def test_no_wakeup_is_missed(switch: RunningSwitch, features: int) -> None:
    """Frames arrive at every moment of the way into sleep; one that were missed would stay for ever."""
    sender, receiver = pair(switch, features)
    generator = random.Random(5)
    kicks = 0
    slowest = 0.0
    for number in range(4000):
        frame = struct.pack("<I", number) * 15
        receiver.offer_buffers(1)
        sender.send(frame)
        began = time.monotonic()
        kicks += sender.kick_if_wanted()
        assert receiver.wait_received(1, seconds=5) == [frame], number
        slowest = max(slowest, time.monotonic() - began)
        pause = time.monotonic() + generator.uniform(0, 200e-6)  # about as long as it takes to fall asleep
        while time.monotonic() < pause:
            pass
    assert kicks > 100  # else it never slept, and this showed nothing
    assert worker(switch)["sleeps"] >= kicks
    for guest in (sender, receiver):
        guest.end()


def test_an_idle_switch_costs_next_to_nothing(switch: RunningSwitch) -> None:
    guests = pair(switch, PLAIN)
    wait_until(lambda: bool(switch.call("worker.list")[0]["asleep"]), "the worker sleeps")
    stat = Path(f"/proc/{switch.process.pid}/stat")

    def ticks() -> int:
        fields = stat.read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before, sleeps = ticks(), worker(switch)["sleeps"]
    time.sleep(3)
    used = (ticks() - before) / os.sysconf("SC_CLK_TCK")
    assert used < 0.02 * 3
    assert worker(switch)["sleeps"] - sleeps < 30  # it sleeps through, and is not woken for nothing
    for guest in guests:
        guest.end()


def test_messages_of_a_guest_wake_sleepers_now_and_then(switch: RunningSwitch) -> None:
    """Each of these takes a ring away and gives it back, which workers that sleep must hear of: a hundred times a
    second, however many there are."""
    guests = pair(switch, PLAIN)
    noisy = FrontEnd()
    noisy.start(switch.add_guest("noisy"))
    switch.wait_state("noisy", "up")
    before, messages = worker(switch)["wakeups"], 0
    began = time.monotonic()
    while (took := time.monotonic() - began) < 1 or messages <= 1000:
        noisy.send_message(SET_VRING_ENABLE, struct.pack("<II", RECEIVES, 1))
        noisy.ask(GET_FEATURES)
        messages += 1
    assert worker(switch)["wakeups"] - before < 2 * took * 100 + 20
    for guest in (*guests, noisy):
        guest.end()


def test_what_changes_wakes_a_sleeper(switch: RunningSwitch) -> None:
    """A configuration, a guest that comes, a guest that goes: each is noticed without any traffic."""
    sender, receiver = pair(switch, PLAIN)
    for number in range(20):
        wait_until(lambda: bool(switch.call("worker.list")[0]["asleep"]), "the worker sleeps")
        switch.remove_chain("x")
        sender.send(b"n" * 60)
        sender.kick_if_wanted()
        wait_until(lambda count=number + 1: switch.counters("a")["drop_no_chain"] == count, "the frame is dropped")  # type: ignore[misc]
        switch.set_chain("x", "a", "b")
        receiver.close()
        switch.wait_state("b", "waiting")
        receiver.reset()
        receiver.start(switch.folder / "b.sock")
        switch.wait_state("b", "up")
        wait_until(lambda: bool(switch.call("worker.list")[0]["asleep"]), "the worker sleeps")
        receiver.offer_buffers(1)
        sender.send(b"m" * 60)
        sender.kick_if_wanted()
        assert receiver.wait_received(1) == [b"m" * 60]
    for guest in (sender, receiver):
        guest.end()


def test_one_descriptor_for_kicks_and_calls_that_its_guest_makes_blocking(switch: RunningSwitch) -> None:
    """The switch then kicks itself, and what it wakes its guest with could block it: the others do not notice."""
    beside = pair(switch, PLAIN)
    bad, peer = KickingGuest(), KickingGuest()
    shared = bad.kick[SENDS]
    bad.kick = bad.call = [shared, shared]
    for guest, name in ((bad, "bad"), (peer, "peer")):
        guest.start(switch.add_guest(name))
        switch.wait_state(name, "up")
    switch.set_chain("y", "bad", "peer")
    os.set_blocking(shared, True)
    for sender, receiver in ((bad, peer), (peer, bad)):
        receiver.offer_buffers(20)
        for number in range(20):
            sender.send(bytes([number]) * 60)
            sender.kick_if_wanted()
            assert receiver.wait_received(1) == [bytes([number]) * 60]
    wait_until(lambda: bool(switch.call("worker.list")[0]["asleep"]), "the worker sleeps")
    sleeps = worker(switch)["sleeps"]
    time.sleep(0.5)
    assert worker(switch)["sleeps"] - sleeps < 20
    fill(shared)
    bad.offer_buffers(1)
    peer.send(b"f" * 60)
    peer.kick_if_wanted()
    switch.wait_state("bad", "quarantined")
    assert "blocks" in switch.port("bad")["reason"]
    beside[1].offer_buffers(20)
    for number in range(20):
        beside[0].send(bytes([number]) * 60)
        beside[0].kick_if_wanted()
        assert beside[1].wait_received(1) == [bytes([number]) * 60]
    os.set_blocking(shared, False)
    for guest in (*beside, bad, peer):
        guest.end()


def test_frames_that_wait_for_a_receiver_keep_the_worker_awake(switch: RunningSwitch) -> None:
    sender, receiver = pair(switch, PLAIN)
    sender.send(b"w" * 60)
    sender.kick_if_wanted()
    time.sleep(0.005)  # the receiver has no buffer, and gives no sign when it has
    receiver.offer_buffers(1)
    assert receiver.wait_received(1) == [b"w" * 60]
    for guest in (sender, receiver):
        guest.end()


def test_a_sleeping_receiver_is_notified_before_the_worker_sleeps(switch: RunningSwitch) -> None:
    sender, receiver = pair(switch, PLAIN)
    os.set_blocking(receiver.call[RECEIVES], True)
    for _ in range(50):
        receiver.offer_buffers(1)
        sender.send(b"t" * 60)
        sender.kick_if_wanted()
        os.read(receiver.call[RECEIVES], 8)  # would wait for ever
        assert receiver.received() == [b"t" * 60]
    for guest in (sender, receiver):
        guest.end()


@pytest.mark.parametrize("rate", [500, 3000])
def test_every_frame_arrives_between_sleeps(binaries: Path, tmp_path: Path, rate: int) -> None:
    switch = RunningSwitch(binaries / "switch/tailrace-switch", tmp_path, "--idle", "sleep", "--idle-after-us", "50")
    ends = {name: f"vhost:{switch.add_guest(name)}" for name in "ab"}
    switch.set_chain("x", "a", "b")
    tester = RunningTester(binaries / "tester/tailrace-tester", tmp_path, ends)
    for name in ends:
        switch.wait_state(name, "up")
    result = tester.trial(both_ways(rate), 2.0, wait=1.0)
    for name in ("there", "back"):
        assert_exact(result, name)
    assert worker(switch)["sleeps"] > 100
    assert tester.end() == 0
    assert switch.end() == 0


def test_nothing_is_said_to_wait_in_a_port_of_a_worker_that_sleeps(binaries: Path, tmp_path: Path) -> None:
    """It looks how many frames wait now and then, and falls asleep sooner than it would look again."""
    switch = RunningSwitch(binaries / "switch/tailrace-switch", tmp_path, "--idle", "sleep", "--idle-after-us", "1")
    guests = pair(switch, PLAIN)

    def are_gone(count: int) -> bool:
        return switch.counters("b")["drop_receiver_full"] == count

    for number in range(1, 6):
        for _ in range(10):
            guests[0].send(bytes(60))
        guests[0].kick_if_wanted()
        # The receiver has no buffers: they wait, and then are dropped.
        wait_until(partial(are_gone, 10 * number), "they are gone")
        wait_until(lambda: bool(switch.call("worker.list")[0]["asleep"]), "the worker sleeps")
        assert switch.counters("a")["waiting_packets"] == 0
    for guest in guests:
        guest.end()
    assert switch.end() == 0
