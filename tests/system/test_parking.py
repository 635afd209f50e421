"""A guest moves from one switch to another: what comes for it meanwhile is put aside, and it gets each frame once, in
order. The guest is a front end of the test's, which stops its rings here and starts them there."""

from __future__ import annotations

import base64
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from front_end import RECEIVES, SENDS, FrontEnd
from running_switch import RunningSwitch, wait_until

from tailrace.process.control import ControlError
from tailrace.switch.parking import Parking

MAC = bytes.fromhex("0200000000bb0200000000aa88b5")


@pytest.fixture
def switches(binaries: Path, tmp_path: Path) -> Iterator[list[RunningSwitch]]:
    running = []
    for name in ("source", "target"):
        folder = tmp_path / name
        folder.mkdir()
        running.append(RunningSwitch(binaries / "switch/tailrace-switch", folder))
    yield running
    assert [each.end() for each in running] == [0, 0]


def frame(number: int, length: int = 60) -> bytes:
    return (MAC + struct.pack(">Q", number)).ljust(length, b"\0")


class Side:
    """A switch with who sends, and a port for the guest that moves."""

    def __init__(self, switch: RunningSwitch, bridged: bool) -> None:
        self.switch = switch
        self.sender = FrontEnd()
        left, self.path = switch.add_guest("left"), switch.add_guest("right")
        if bridged:
            switch.patch(bridges={"lan": {"ports": {"left": {}, "right": {}}}})
        else:
            switch.join("left", "right")
        self.sender.start(left)
        switch.wait_state("left", "up")
        self.park = 0

    def begin(self, *ports: str, slides: bool = False) -> None:
        self.park = self.switch.call("park.start", ports=ports, slides=slides)["park"]

    def send(self, numbers: Sequence[int], length: int = 60) -> None:
        for number in numbers:
            wait_until(lambda: self.sender.room(SENDS) > 0, "there is room")
            self.sender.send(frame(number, length))
            self.sender.kicks(SENDS)
        wait_until(lambda: self.sender.room(SENDS) == self.sender.ring_size, "all are taken")

    def status(self) -> dict[str, int]:
        found: dict[str, int] = self.switch.call("park.status", park=self.park)
        return found

    def take(self) -> list[str]:
        found: list[str] = self.switch.call("park.take", park=self.park)["frames"]
        return found

    def give(self, frames: Sequence[Any]) -> dict[str, int]:
        found: dict[str, int] = self.switch.call("park.give", park=self.park, frames=frames)
        return found

    def stop(self) -> dict[str, int]:
        found: dict[str, int] = self.switch.call("park.stop", park=self.park)
        return found


@pytest.fixture(params=[False, True], ids=["chain", "bridge"])
def sides(switches: list[RunningSwitch], request: pytest.FixtureRequest) -> Iterator[list[Side]]:
    made = [Side(each, request.param) for each in switches]
    yield made
    for each in made:
        each.sender.end()


def started(path: Path, switch: RunningSwitch, port: str = "right") -> FrontEnd:
    guest = FrontEnd()
    guest.start(path)
    guest.offer_buffers(guest.room(RECEIVES))
    switch.wait_state(port, "up")
    return guest


def numbers_of(guest: FrontEnd, count: int) -> list[int]:
    """Of the next frames; it offers its buffers again meanwhile."""
    found: list[bytes] = []

    def enough() -> bool:
        found.extend(guest.received())
        guest.offer_buffers(guest.room(RECEIVES))
        return len(found) >= count

    wait_until(enough, f"{count} frames come")
    return [struct.unpack_from(">Q", each, len(MAC))[0] for each in found]


@pytest.mark.parametrize("both", [False, True], ids=["to one", "to both"])
def test_a_guest_that_moves_gets_each_frame_once(sides: list[Side], both: bool) -> None:
    """`both`: the network sends each frame to both switches, else to the source until the guest is at the target."""
    source, target = sides
    source.begin("right")
    target.begin("right", "right@2", slides=True)
    guest = started(source.path, source.switch)

    def send(first: int, behind: int) -> None:
        for side in sides if both else [source]:
            side.send(range(first, behind))

    send(0, 40)
    assert numbers_of(guest, 40) == list(range(40))
    guest.stop_rings()
    guest.close()
    source.switch.wait_state("right", "waiting")
    send(40, 240)
    assert source.status()["waiting"] == 200
    while frames := source.take():
        target.give(frames)
    target.give([])
    if both:
        send(240, 300)
    else:
        target.send(range(240, 300))
    there = started(target.path, target.switch)
    assert numbers_of(there, 260) == list(range(40, 300))
    target.send(range(300, 340))
    assert numbers_of(there, 40) == list(range(300, 340))
    last = target.stop()
    assert (last["waiting"], last["given"], last["dropped"]) == (0, 200, 0)
    assert last["forgotten"] == (240 if both else 0)
    left = 60 if both else 0
    assert source.stop()["dropped"] == left
    for side, lost in ((source, left), (target, 0)):
        counted = side.switch.counters("right")
        assert (counted["drop_parked"], counted["drop_receiver_down"], counted["drop_receiver_full"]) == (lost, 0, 0)
    target.send(range(340, 360))
    assert numbers_of(there, 20) == list(range(340, 360))
    guest.end()
    there.end()


def test_a_guest_that_stays_after_all_gets_what_was_put_aside(sides: list[Side]) -> None:
    source, _ = sides
    source.begin("right")
    guest = started(source.path, source.switch)
    guest.stop_rings()
    guest.close()
    source.switch.wait_state("right", "waiting")
    source.send(range(100))
    again = started(source.path, source.switch)
    assert numbers_of(again, 100) == list(range(100))
    assert source.stop()["delivered"] == 100
    guest.end()
    again.end()


def test_who_begins_anew_takes_over(switches: list[RunningSwitch]) -> None:
    """A service that was killed has ended nothing; the next one begins with the same ports."""
    side = Side(switches[0], bridged=False)
    side.begin("right")
    former = side.park
    side.send(range(10))
    side.begin("right@2", "right")
    with pytest.raises(ControlError, match=f"no parking {former}"):
        side.switch.call("park.status", park=former)
    assert side.switch.counters("right")["drop_parked"] == 10
    side.send(range(10, 30))
    guest = started(side.path, side.switch)
    assert numbers_of(guest, 20) == list(range(10, 30))
    side.stop()
    guest.end()
    side.sender.end()


def test_more_than_one_request_holds_goes_over(switches: list[RunningSwitch]) -> None:
    """By what a node's service does it with."""
    sides = [Side(each, bridged=False) for each in switches]
    here, there = (
        Parking(each.switch.folder / "control", {"0": ["right", "right@2"]}, slides=slides)
        for each, slides in zip(sides, (False, True), strict=True)
    )
    sent = 0
    while sides[0].switch.counters("right")["parked_packets"] < 1500:
        sides[0].send(range(sent, sent + 50), 1500)
        sent += 50
    requests = 0
    more = True
    while more:
        frames, more = here.take("0")
        there.give("0", frames)
        requests += 1
        here.keep()
    assert requests > 1
    guest = started(sides[1].path, sides[1].switch)
    assert numbers_of(guest, sent) == list(range(sent))
    there.drain()
    there.end()
    here.end()
    assert [each.switch.counters("right")["drop_parked"] for each in sides] == [0, 0]
    guest.end()
    for each in sides:
        each.sender.end()


def test_what_is_put_aside_stays_when_the_chain_leads_to_another_instance(switches: list[RunningSwitch]) -> None:
    side = Side(switches[0], bridged=False)
    side.begin("right", "right@2")
    side.send(range(50))
    path = side.switch.add_guest("right@2")
    side.switch.patch(chains={"left-right": {"to": "right@2"}})
    side.send(range(50, 80))
    guest = started(path, side.switch, "right@2")
    assert numbers_of(guest, 80) == list(range(80))
    side.stop()
    guest.end()
    side.sender.end()


def test_what_is_no_frame_is_refused(switches: list[RunningSwitch]) -> None:
    side = Side(switches[0], bridged=False)
    side.begin("right", slides=True)
    plain = bytes(10)
    good = base64.b64encode(plain + frame(1)).decode()
    none: list[Any] = [
        "",
        "=",
        "====",
        "A",
        "AAA",
        "*" * 40,
        good[:-1],
        good + "=",
        7,
        None,
        [],
        base64.b64encode(plain + bytes(13)).decode(),
        base64.b64encode(bytes(9)).decode(),
        base64.b64encode(plain + bytes(70000)).decode(),
    ]
    for bad in none:
        with pytest.raises(ControlError, match=r"frames\[1\]: expected"):
            side.give([good, bad])
    for many in (good, [good] * 40000):
        with pytest.raises(ControlError, match=r"frames: expected a list"):
            side.switch.call("park.give", park=side.park, frames=many)
    assert side.status()["given"] == 0
    # As a guest may have it done: a checksum behind the frame's end. The others go on.
    unfinished = base64.b64encode(struct.pack("<BBHHHH", 1, 0, 0, 0, 5000, 0) + frame(1)).decode()
    given = side.give([good, unfinished, good])
    assert (given["given"], given["dropped"]) == (2, 1)
    lengths = [14, 59, 60, 61, 1514, 9000, 65535, 65565 + 8]
    frames = [base64.b64encode(plain + os.urandom(each)).decode() for each in lengths]
    assert side.give(frames)["given"] == 2 + len(lengths)
    with pytest.raises(ControlError, match="no parking 99"):
        side.switch.call("park.take", park=99)
    for wrong in ([], ["x"] * 5, [7], ["x" * 48], "right"):
        with pytest.raises(ControlError, match="ports"):
            side.switch.call("park.start", ports=wrong)
    side.stop()
    assert side.switch.counters("right")["drop_parked"] == 3 + len(lengths)
    side.sender.end()
