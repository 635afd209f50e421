"""Whether frames wait in a guest's ring, which the switch counts where that is wanted: how busy one is that polls."""

from __future__ import annotations

import queue
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from front_end import SENDS, FrontEnd, PackedFrontEnd
from guest_pair import GuestPair
from running_switch import RunningSwitch, wait_until

from tailrace.node.pools import Pooled, Pools
from tailrace.process.process import identify
from tailrace.state.record import Process

MANY = 60


@pytest.fixture
def switch(binaries: Path, tmp_path: Path) -> Iterator[RunningSwitch]:
    running = RunningSwitch(binaries / "switch/tailrace-switch", tmp_path)
    yield running
    assert running.end() == 0


def want(switch: RunningSwitch, unread: bool) -> None:
    """Of the port b; nothing else of it changes."""
    switch.patch(ports={"b": {"unread": unread or None}})


def share(switch: RunningSwitch) -> float:
    """Of so many looks from now on, those that find frames."""
    before = switch.counters("b")
    wait_until(lambda: switch.counters("b")["looks"] >= before["looks"] + MANY, "the switch looks")
    after = switch.counters("b")
    return (after["looks_unread"] - before["looks_unread"]) / (after["looks"] - before["looks"])


@pytest.mark.parametrize("kind", [FrontEnd, PackedFrontEnd], ids=["split", "packed"])
def test_frames_that_its_guest_has_not_taken_are_seen(switch: RunningSwitch, kind: type[FrontEnd]) -> None:
    pair = GuestPair(switch, ("a", "b"), kind)
    sender, receiver = pair.guests
    receiver.offer_buffers(32)
    assert switch.counters("b")["looks"] == 0, "nobody wants to know"
    want(switch, True)
    assert share(switch) == 0
    for _ in range(32):
        sender.send(b"x" * 60)
    receiver.wait_received(32)
    assert share(switch) == 1, "no buffer has come back"
    receiver.offer_buffers(32)
    share(switch)  # it may have begun before
    assert share(switch) == 0
    assert switch.counters("a")["looks"] == 0
    receiver.offer_buffers(16)
    for _ in range(3):
        sender.send(b"x" * 60)
    receiver.wait_received(3)
    share(switch)
    assert share(switch) == 0, "a guest that keeps some buffers for later has taken what it was given"
    want(switch, False)
    switch.add_guest("c")  # which the thread that looks does, after the turn that it may have been at
    last = switch.counters("b")["looks"]
    for number in range(3):  # after each of these it has a turn
        switch.add_guest(f"c{number}")
    assert switch.counters("b")["looks"] == last, "nobody wants to know any more"
    want(switch, True)
    wait_until(lambda: switch.counters("b")["looks"] > last, "it looks again")
    pair.assert_untouched()
    pair.restart(1)
    receiver.offer_buffers(8)
    share(switch)
    assert share(switch) == 0, "of a guest that has begun anew nothing is known"
    pair.end()


def test_rings_of_more_ports_than_have_room_in_a_turn_are_looked_at_in_turn(switch: RunningSwitch) -> None:
    pair = GuestPair(switch, ("a", "b"))
    receiver = pair.guests[1]
    receiver.offer_buffers(32)
    others = [f"other{number}" for number in range(4)]
    for each in others:  # before b, as the thread finds them
        switch.add_guest(each, queues=16, unread=True)
    want(switch, True)
    assert share(switch) == 0
    for each in others:  # whose turn it may be
        switch.remove_port(each)
        assert share(switch) == 0
    pair.exchange()
    pair.end()


@contextmanager
def skeleton(binaries: Path, switch: RunningSwitch) -> Iterator[subprocess.Popen[str]]:
    """A function between two ports, whose driver is the one that it has in a machine (DPDK's for virtio)."""
    ports = [switch.folder / f"first.{side}.sock" for side in (0, 1)]
    options = [option for port in ports for option in ("--port", f"vhost-server:{port}")]
    program = [binaries / "functions/tailrace-vnf", "skeleton", *options, "--memory", "64"]
    function = subprocess.Popen(program, stderr=subprocess.PIPE, text=True)
    try:
        for side, port in enumerate(ports):
            switch.patch(
                ports={f"first.{side}": {"kind": "guest", "path": str(port), "mode": "client", "unread": True}}
            )
        for side in (0, 1):
            switch.wait_state(f"first.{side}", "up")
        yield function
    finally:
        function.send_signal(signal.SIGCONT)
        function.terminate()
        function.communicate(timeout=60)


def test_a_function_has_more_and_fewer_cpus_by_what_it_has_not_taken(switch: RunningSwitch, binaries: Path) -> None:
    """It stands still in place of one that cannot keep up, until its ring is full."""
    ends = {name: switch.add_guest(name) for name in ("a", "b")}
    guests = {name: FrontEnd() for name in ends}
    asked: queue.Queue[tuple[str, int, float]] = queue.Queue()
    pools = Pools(lambda *what: asked.put(what), switch.folder / "page")
    with skeleton(binaries, switch) as function:
        switch.set_chain("voice", "a", "first.0", "first.1", "b")
        for name, path in ends.items():
            guests[name].start(path)
            switch.wait_state(name, "up")
        id = identify(function.pid)
        assert id is not None
        process = Process("first", id.pid, id.start)
        ports = ("first.0", "first.1")
        pools.watch([Pooled("first", process, 1, 4, 1, 0.75, "rings", ports)])
        guests["b"].offer_buffers(32)
        for _ in range(20):
            guests["a"].send(b"x" * 60)
        guests["b"].wait_received(20)
        wait_until(lambda: switch.counters("first.0")["looks"] > MANY, "the switch looks")
        assert asked.empty(), "it polls, and so has all of a CPU, but no frame waits"
        function.send_signal(signal.SIGSTOP)
        while asked.empty():
            wait_until(lambda: guests["a"].room(SENDS) > 0, "the switch takes what was sent")
            guests["a"].send(b"x" * 60)
        name, count, load = asked.get()
        assert (name, count) == ("first", 2) and load > 0.75
        pools.answered("first", 2)
        function.send_signal(signal.SIGCONT)
        assert asked.get(timeout=60)[:2] == ("first", 1)
        pools.watch(())
    for guest in guests.values():
        guest.end()
