"""What the switch says by itself: what becomes of ports, to all who listen, and to nobody else's cost. And frames that
wait for a guest that is not there."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from front_end import RECEIVES, RING_AT, SENDS, FrontEnd
from running_switch import RunningSwitch, wait_until

from tailrace.process.control import ControlError

FRAME = bytes(60)


@pytest.fixture
def switch(binaries: Path, tmp_path: Path) -> Iterator[RunningSwitch]:
    running = RunningSwitch(binaries / "switch/tailrace-switch", tmp_path)
    yield running
    assert running.end() == 0


class Listener:
    """Somebody who has subscribed."""

    def __init__(self, switch: RunningSwitch) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(switch.folder / "control"))
        self.socket.sendall(b'{"jsonrpc":"2.0","id":1,"method":"events.subscribe"}\n')
        self.stream = self.socket.makefile("rb")
        self.ports: list[dict[str, Any]] = json.loads(self.stream.readline())["result"]["ports"]

    def next(self) -> dict[str, Any]:
        """Of a port; configurations are made as well."""
        while (message := json.loads(self.stream.readline()))["method"] == "config":
            assert message["params"]["pid"] == os.getpid()
        assert message["method"] == "port" and "id" not in message
        found: dict[str, Any] = message["params"]
        return found

    def wait(self, name: str, state: str) -> dict[str, Any]:
        while True:
            found = self.next()
            if found["name"] == name and found["state"] == state:
                return found

    def end(self) -> None:
        self.stream.close()
        self.socket.close()


def test_guests_come_and_go_and_are_stopped(switch: RunningSwitch) -> None:
    path = switch.add_guest("a")
    listener = Listener(switch)
    assert [(each["name"], each["state"]) for each in listener.ports] == [("a", "waiting")]
    guest = FrontEnd()
    guest.start(path)
    listener.wait("a", "up")
    guest.close()
    listener.wait("a", "waiting")
    switch.add_guest("b")
    listener.wait("b", "waiting")
    # A sender whose index runs away: its ring is stopped by a worker, in the middle of its work.
    switch.join("a", "b")
    bad = FrontEnd()
    bad.start(path)
    listener.wait("a", "up")
    struct.pack_into("<H", bad.memory, RING_AT[SENDS] + 0x4000 + 2, 5000)
    bad.kicks(SENDS)
    stopped = listener.wait("a", "quarantined")
    assert stopped["reason"] == switch.port("a")["reason"]
    listener.end()
    bad.end()


def test_a_port_that_a_failed_change_has_closed_is_gone_and_opened_again(switch: RunningSwitch, tmp_path: Path) -> None:
    """Its socket can be made neither for the change nor for what was before; the same configuration makes it again."""
    folder = tmp_path / "folder"
    folder.mkdir()
    switch.patch(ports={"a": {"kind": "guest", "path": str(folder / "a.sock")}})
    switch.add_guest("b")
    switch.join("a", "b")
    before = switch.call("config.get")
    listener = Listener(switch)
    (folder / "a.sock").unlink()
    folder.rmdir()
    with pytest.raises(ControlError, match=r"ports\.a: "):
        switch.patch(ports={"a": {"queues": 2}})
    gone = listener.wait("a", "gone")
    assert gone["reason"] == switch.port("a")["reason"]
    late = Listener(switch)
    assert [(each["name"], each["state"]) for each in late.ports] == [("a", "gone"), ("b", "waiting")]
    with pytest.raises(ControlError, match=r"ports\.a: "):
        switch.call("config.apply", config=before["config"])
    folder.mkdir()
    assert switch.call("config.apply", config=before["config"])["version"] == before["version"]
    assert switch.call("config.get") == before
    for each in (listener, late):
        each.wait("a", "waiting")
        each.end()
    assert (folder / "a.sock").is_socket()


def test_all_who_listen_hear_the_same_and_one_that_is_gone_holds_nobody_up(switch: RunningSwitch) -> None:
    listeners = [Listener(switch) for _ in range(3)]
    listeners[1].end()
    path = switch.add_guest("a")
    guest = FrontEnd()
    guest.start(path)
    for listener in (listeners[0], listeners[2]):
        listener.wait("a", "up")
        listener.end()
    guest.end()


def test_a_listener_that_does_not_read_is_dropped(switch: RunningSwitch) -> None:
    switch.patch(ports={f"p{number}": guest_port(switch, number) for number in range(64)})
    deaf, listening = Listener(switch), Listener(switch)
    gone = 0

    def round_of_changes() -> bool:
        """Ports that are made anew are new to who listens."""
        nonlocal gone
        gone += 1
        switch.patch(ports={f"q{gone % 2}-{number}": guest_port(switch, number + 100) for number in range(64)})
        listening.wait(f"q{gone % 2}-63", "waiting")
        switch.patch(ports={f"q{gone % 2}-{number}": None for number in range(64)})
        return "a listener reads too slowly and is dropped" in switch.log.read_text()

    wait_until(round_of_changes, "the deaf listener is dropped", 60)
    while deaf.stream.readline():
        pass
    deaf.end()
    listening.end()


def guest_port(switch: RunningSwitch, number: int) -> dict[str, str]:
    return {"kind": "guest", "path": str(switch.folder / f"{number}.sock")}


def test_frames_wait_for_a_guest_that_is_awaited(switch: RunningSwitch) -> None:
    """Longer than for a full receiver, and no longer once they are not to."""
    left = FrontEnd()
    path = switch.add_guest("left")
    right = switch.add_guest("right", absent="wait")
    switch.join("left", "right")
    left.start(path)
    switch.wait_state("left", "up")
    for _ in range(8):
        left.send(FRAME)
    left.kicks(SENDS)
    wait_until(lambda: switch.counters("left")["blocked_polls"] + switch.counters("right")["blocked_polls"] > 1000, "")
    assert switch.counters("right")["drop_receiver_down"] == 0
    receiver = FrontEnd()
    receiver.start(right)
    receiver.offer_buffers(receiver.room(RECEIVES))
    assert receiver.wait_received(8) == [FRAME] * 8
    receiver.close()
    switch.wait_state("right", "waiting")
    left.send(FRAME)
    left.kicks(SENDS)
    switch.patch(ports={"right": {"absent": "drop"}})
    wait_until(lambda: switch.counters("right")["drop_receiver_down"] == 1, "the frame that waited is dropped")
    left.end()
