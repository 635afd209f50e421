"""What the switch sends in a guest's name (VHOST_USER_SEND_RARP), so that bridges learn where the guest is now."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from front_end import GET_PROTOCOL_FEATURES, RARP, SEND_RARP, SENDS, SET_VRING_ENABLE, FrontEnd
from running_switch import RunningSwitch, wait_until
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from steered import Guests

STATION = bytes.fromhex("020000000007")
OTHER = bytes.fromhex("020000000009")


def rarp(mac: bytes) -> bytes:
    """As QEMU makes it: to all, "request reverse" for Ethernet and IPv4, by the station that it asks for."""
    body = struct.pack(">HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 3, mac, bytes(4), mac, bytes(4))
    return (b"\xff" * 6 + mac + b"\x80\x35" + body).ljust(60, b"\0")


def to(destination: bytes, source: bytes) -> bytes:
    return bytes(Ether(dst=destination, src=source, type=0x0900) / Raw(b"." * 46))


@pytest.fixture(params=["poll", "sleep"])
def switch(asan_binaries: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningSwitch]:
    program = asan_binaries / "switch/tailrace-switch"
    running = RunningSwitch(program, tmp_path, "--idle", request.param, "--idle-after-us", "100")
    yield running
    assert running.end() == 0


@pytest.fixture(autouse=True)
def _negotiated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FrontEnd, "wanted_protocol", RARP)


@pytest.fixture
def bridged(switch: RunningSwitch) -> Iterator[Guests]:
    names = ("old", "new", "peer")
    guests = Guests(switch, names)
    switch.patch(bridges={"lan": {"ports": {name: {} for name in names}}})
    guests.offer()
    yield guests
    guests.end()


def received(guests: Guests, name: str) -> int:
    return guests.switch.counters(name)["received_packets"]


def announce(guests: Guests, name: str, mac: bytes) -> None:
    """Returns when the frame has been sent."""
    before = received(guests, name)
    assert guests.guests[name].announce(mac)
    wait_until(lambda: received(guests, name) == before + 1, "the frame counts as the guest's")


def test_the_others_hear_of_it_once_and_the_station_has_moved(switch: RunningSwitch, bridged: Guests) -> None:
    assert set(bridged.send("old", to(b"\xff" * 6, STATION))) == {"new", "peer"}
    assert set(bridged.send("peer", to(STATION, OTHER))) == {"old"}
    announce(bridged, "new", STATION)
    assert switch.counters("new")["received_bytes"] == 60
    (entry,) = [one for one in switch.call("bridge.list")[0]["macs"] if one["mac"].endswith(":07")]
    assert entry["port"] == "new"
    # What comes next is the guest's own: nothing of the announcement is left.
    own = to(OTHER, STATION)
    assert bridged.guests["old"].wait_received(1) == bridged.guests["peer"].wait_received(1) == [rarp(STATION)]
    assert bridged.send("new", own) == {"peer": [own]}
    assert set(bridged.send("peer", to(STATION, OTHER))) == {"new"}
    assert received(bridged, "new") == 2
    assert bridged.drops("new") == bridged.drops("old") == bridged.drops("peer") == {}


def test_it_waits_for_the_guests_rings(switch: RunningSwitch, bridged: Guests) -> None:
    """QEMU says it before the machine goes on."""
    guest = bridged.guests["new"]
    guest.send_message(SET_VRING_ENABLE, struct.pack("<II", SENDS, 0))
    assert guest.announce(STATION)
    assert guest.announce(OTHER), "instead of the one before"
    assert received(bridged, "new") == 0
    guest.send_message(SET_VRING_ENABLE, struct.pack("<II", SENDS, 1))
    assert bridged.guests["peer"].wait_received(1) == [rarp(OTHER)]
    # Who comes next is somebody else.
    guest.send_message(SET_VRING_ENABLE, struct.pack("<II", SENDS, 0))
    assert guest.announce(STATION)
    guest.close()
    switch.wait_state("new", "waiting")
    guest.reset()
    bridged.attach("new")
    own = to(b"\xff" * 6, OTHER)
    assert bridged.send("new", own)["peer"] == [own]


def test_a_port_that_leads_nowhere_drops_it(switch: RunningSwitch) -> None:
    guests = Guests(switch, ("alone",))
    announce(guests, "alone", STATION)
    assert guests.drops("alone") == {"drop_no_chain": 1}
    guests.end()


def test_a_full_receiver_drops_it_as_any_frame(switch: RunningSwitch) -> None:
    guests = Guests(switch, ("a", "b"))
    switch.join("a", "b")
    announce(guests, "a", STATION)
    wait_until(lambda: guests.drops("b") == {"drop_receiver_full": 1}, "it has waited, and is dropped")
    own = to(OTHER, STATION)
    assert guests.send("a", own) == {"b": [own]}
    guests.end()


def test_a_flood_of_it_sends_one_at_a_time_and_harms_nobody(switch: RunningSwitch, bridged: Guests) -> None:
    names = ("a", "b")
    beside = Guests(switch, names)
    switch.patch(bridges={"other": {"ports": {name: {} for name in names}}})
    guest = bridged.guests["new"]
    began, asked = time.monotonic(), 0
    while time.monotonic() < began + 1:
        for _ in range(100):
            guest.send_message(SEND_RARP, STATION + bytes(2))
        asked += 100
        one = to(b"\xff" * 6, OTHER)
        assert beside.send("a", one) == {"b": [one]}
    assert guest.announce(OTHER), "all of them have been acted on"
    wait_until(lambda: any(m["mac"].endswith(":09") for m in switch.call("bridge.list")[0]["macs"]), "the last is sent")
    assert 1 < received(bridged, "new") <= asked + 1
    assert beside.drops("a") == beside.drops("b") == {}
    # Its own frames still go, and in their number.
    before = received(bridged, "new")
    for _ in range(5):
        guest.send(to(OTHER, STATION))
    guest.kicks(SENDS)
    wait_until(lambda: guest.used_index(SENDS) == guest.added[SENDS], "its frames are taken")
    wait_until(lambda: received(bridged, "new") == before + 5, "and counted")
    beside.end()


def test_what_is_no_such_message_is_refused(
    switch: RunningSwitch, bridged: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    (offered,) = struct.unpack("<Q", bridged.guests["new"].ask(GET_PROTOCOL_FEATURES))
    assert offered & RARP
    for size in (0, 6, 7, 9, 16):
        assert not bridged.guests["new"].acknowledged(SEND_RARP, (STATION + bytes(10))[:size])
    assert bridged.guests["new"].announce(STATION)
    # Nor from one that has not taken the feature.
    monkeypatch.setattr(FrontEnd, "wanted_protocol", 0)
    bridged.guests["old"].close()
    switch.wait_state("old", "waiting")
    bridged.guests["old"].reset()
    bridged.attach("old")
    assert not bridged.guests["old"].announce(STATION)
    assert received(bridged, "old") == 0
