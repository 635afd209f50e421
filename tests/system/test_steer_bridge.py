"""A bridge between guests: learning, VLANs, limits, flaps; a slow receiver; and a device on a veth pair."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from front_end import RECEIVES
from private_network import End, Network
from running_switch import RunningSwitch, SharedSwitch, wait_until
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw
from steered import Guests

from tailrace.process.control import ControlError

ALL = "ff:ff:ff:ff:ff:ff"
GROUP = "01:00:5e:00:00:05"


def mac(station: int) -> str:
    return f"02:00:00:00:00:{station:02x}"


def to(destination: int | str, source: int, vlan: int | None = None, text: str = "", priority: int = 0) -> bytes:
    """A frame between stations, of 60 bytes or, with a tag, 64."""
    head = Ether(src=mac(source), dst=destination if isinstance(destination, str) else mac(destination))
    payload = Raw(text.encode().ljust(46, b"."))
    if vlan is None:
        head.type = 0x0900
        return bytes(head / payload)
    return bytes(head / Dot1Q(vlan=vlan, prio=priority, type=0x0900) / payload)


@pytest.fixture(scope="module")
def shared(asan_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSwitch]:
    made = SharedSwitch(asan_binaries / "switch/tailrace-switch", tmp_path_factory.mktemp("shared"))
    yield made
    made.end()


@pytest.fixture
def switch(shared: SharedSwitch) -> Iterator[RunningSwitch]:
    with shared.lent() as running:
        yield running


@contextmanager
def bridged(switch: RunningSwitch, ports: dict[str, dict[str, Any]], **settings: Any) -> Iterator[Guests]:
    guests = Guests(switch, ports)
    switch.patch(bridges={"lan": {"ports": ports, **settings}})
    yield guests
    guests.end()


@pytest.fixture
def plain(switch: RunningSwitch) -> Iterator[Guests]:
    with bridged(switch, {"p1": {}, "p2": {}, "p3": {}, "p4": {}}) as guests:
        yield guests


def lan(switch: RunningSwitch) -> dict[str, Any]:
    (bridge,) = switch.call("bridge.list")
    return dict(bridge)


def test_what_is_not_known_goes_to_all_and_what_is_known_to_one(switch: RunningSwitch, plain: Guests) -> None:
    first, second = to(2, 1), to(1, 2)
    assert plain.send("p1", first) == {"p2": [first], "p3": [first], "p4": [first]}
    assert plain.where("p2", second) == "p1"
    assert plain.where("p1", first) == "p2"
    learned = {(entry["mac"], entry["vlan"]): entry["port"] for entry in lan(switch)["macs"]}
    assert learned == {(mac(1), 0): "p1", (mac(2), 0): "p2"}
    assert all(0 <= entry["age"] < 60 for entry in lan(switch)["macs"])


@pytest.mark.parametrize("destination", [ALL, GROUP, "33:33:00:00:00:01"])
def test_none_of_many_receivers_waits_for_the_slowest(plain: Guests, destination: str) -> None:
    plain.slow.add("p3")
    frames = [to(destination, 1, text=str(i)) for i in range(50)]
    assert plain.send("p1", *frames) == {"p2": frames, "p4": frames}
    assert plain.drops("p3") == {"drop_receiver_full": 50}
    assert plain.drops("p1") == plain.drops("p2") == plain.drops("p4") == {}
    # The one without a guest costs nobody else, either.
    plain.guests["p4"].close()
    plain.switch.wait_state("p4", "waiting")
    assert plain.send("p1", *frames) == {"p2": frames}
    assert plain.drops("p4") == {"drop_receiver_down": 50}


def test_no_frame_goes_back_to_its_port(plain: Guests) -> None:
    plain.send("p1", to(ALL, 1), to(ALL, 2))
    assert plain.where("p1", to(2, 1)) == ""
    assert plain.drops("p1") == {"drop_same_port": 1}


def test_a_station_is_forgotten_when_it_is_not_seen(switch: RunningSwitch) -> None:
    with bridged(switch, {"p1": {}, "p2": {}, "p3": {}}) as guests:
        guests.send("p1", to(ALL, 1))
        assert guests.where("p2", to(1, 2)) == "p1"
        switch.patch(bridges={"lan": {"ageing": 1}})
        wait_until(lambda: not lan(switch)["macs"], "nothing is learned any more")
        assert set(guests.send("p2", to(1, 2))) == {"p1", "p3"}


def test_a_station_is_forgotten_with_its_guest(switch: RunningSwitch, plain: Guests) -> None:
    """As with a cable that is pulled: what is for it goes to all, and reaches it wherever it is now."""
    plain.send("p2", to(ALL, 2), to(ALL, 3))
    plain.send("p4", to(ALL, 4))
    assert plain.where("p1", to(2, 1)) == "p2"
    plain.guests["p2"].close()
    wait_until(lambda: "p2" not in {entry["port"] for entry in lan(switch)["macs"]}, "what was behind p2 is forgotten")
    one = to(2, 1)
    assert plain.send("p1", one) == {"p3": [one], "p4": [one]}
    assert plain.where("p1", to(4, 1)) == "p4", "others are not forgotten"
    plain.send("p3", to(ALL, 2))
    assert plain.where("p1", to(2, 1)) == "p3"
    assert lan(switch)["moves"] == 0, "it is new there"
    # And with its port's next guest it may come back.
    plain.guests["p2"].reset()
    plain.attach("p2")
    plain.send("p2", to(ALL, 3))
    assert plain.where("p1", to(3, 1)) == "p2"


def test_a_priority_without_a_vlan_goes_on_between_plain_ports(plain: Guests) -> None:
    """Such frames are PROFINET's; Linux's bridge hands them on as they are."""
    for priority in (6, 0):
        frame = to(ALL, 1, 0, priority=priority)
        assert plain.send("p1", frame) == {"p2": [frame], "p3": [frame], "p4": [frame]}
    # It is in no VLAN, as what has no tag: who is known there is known here.
    assert plain.send("p2", to(1, 2, 0, priority=6)) == {"p1": [to(1, 2, 0, priority=6)]}
    assert plain.send("p2", to(1, 2)) == {"p1": [to(1, 2)]}


def test_a_station_is_forgotten_with_the_ring_that_it_is_behind(switch: RunningSwitch, plain: Guests) -> None:
    """One that is malformed and not served any more, which tells nobody."""
    plain.send("p2", to(ALL, 2))
    guest = plain.guests["p2"]
    guest.set_available_index(RECEIVES, (guest.added[RECEIVES] + 5000) & 0xFFFF)
    plain.send("p1", to(2, 1))
    switch.wait_state("p2", "quarantined")
    wait_until(lambda: mac(2) not in {entry["mac"] for entry in lan(switch)["macs"]}, "it is forgotten")
    one = to(2, 1)
    assert plain.send("p1", one) == {"p3": [one], "p4": [one]}


def test_vlans_are_kept_apart_and_every_port_has_its_form_of_a_tag(switch: RunningSwitch) -> None:
    ports: dict[str, dict[str, Any]] = {
        "a10": {"access": 10},
        "b10": {"access": 10},
        "a20": {"access": 20},
        "trunk": {"trunk": [10, 20]},
        "native": {"trunk": [10, 20], "native": 10},
    }
    with bridged(switch, ports) as guests:
        plain, ten, twenty = to(ALL, 1), to(ALL, 1, 10), to(ALL, 1, 20)
        assert guests.send("a10", plain) == {"b10": [plain], "trunk": [ten], "native": [plain]}
        assert guests.send("trunk", to(ALL, 2, 10)) == {
            "a10": [to(ALL, 2)],
            "b10": [to(ALL, 2)],
            "native": [to(ALL, 2)],
        }
        assert guests.send("native", twenty) == {"a20": [plain], "trunk": [twenty]}
        # Known in one VLAN is not known in another.
        assert guests.send("trunk", to(1, 9, 10)) == {"a10": [to(1, 9)]}
        assert guests.send("trunk", to(1, 9, 20)) == {"native": [to(1, 9, 20)]}
        # A tag that says only how urgent a frame is keeps that.
        assert guests.send("a10", to(2, 1, 0, priority=5)) == {"trunk": [to(2, 1, 10, priority=5)]}
        assert guests.drops("a10") == guests.drops("trunk") == guests.drops("native") == {}
        for port, refused in (("a10", to(ALL, 1, 10)), ("trunk", plain), ("trunk", to(ALL, 1, 30))):
            assert guests.where(port, refused) == ""
        assert guests.drops("a10") == {"drop_vlan": 1}
        assert guests.drops("trunk") == {"drop_vlan": 2}


def test_ports_that_are_named_in_another_order_keep_their_vlans(switch: RunningSwitch) -> None:
    ports: dict[str, dict[str, Any]] = {"a10": {"access": 10}, "a20": {"access": 20}, "trunk": {"trunk": [10, 20]}}
    with bridged(switch, ports) as guests:
        assert guests.send("a10", to(ALL, 1)) == {"trunk": [to(ALL, 1, 10)]}
        whole = switch.call("config.get")["config"]
        named = whole["bridges"]["lan"]["ports"]
        whole["bridges"]["lan"]["ports"] = {name: named[name] for name in ("a20", "trunk", "a10")}
        whole["ports"]["trunk"]["rate"] = {"max": 10**9}  # the order alone would not be a change
        switch.call("config.apply", config=whole)
        assert guests.send("a10", to(ALL, 1)) == {"trunk": [to(ALL, 1, 10)]}
        assert guests.send("trunk", to(1, 2, 10)) == {"a10": [to(1, 2)]}
        assert guests.send("trunk", to(ALL, 2, 20)) == {"a20": [to(ALL, 2)]}


def test_a_service_tag_names_no_vlan_of_the_bridge(switch: RunningSwitch) -> None:
    """A bridge of customers' VLANs (802.1Q, 5.5) knows a frame's by its C-TAG, 0x8100. What has an S-TAG, 0x88a8, has
    none: it is in its port's native VLAN, whole, and goes nowhere from a port that takes only tagged frames."""
    service = Ether(src=mac(1), dst=ALL, type=0x88A8) / Dot1Q(vlan=20, type=0x0900) / Raw(b"." * 46)
    under_ten = Ether(src=mac(1), dst=ALL) / Dot1Q(vlan=10, type=0x88A8) / service.payload
    frame, tagged = bytes(service), bytes(under_ten)
    ports: dict[str, dict[str, Any]] = {
        "native": {"trunk": [10, 20], "native": 10},
        "too": {"trunk": [10, 20], "native": 10},
        "trunk": {"trunk": [10, 20]},
        "a10": {"access": 10},
        "a20": {"access": 20},
    }
    with bridged(switch, ports) as guests:
        assert guests.send("native", frame) == {"too": [frame], "trunk": [tagged], "a10": [frame]}
        assert guests.send("trunk", tagged) == {"native": [frame], "too": [frame], "a10": [frame]}
        assert guests.send("trunk", frame) == {}
        assert guests.drops("trunk") == {"drop_vlan": 1}


def test_a_second_tag_does_not_lead_into_another_vlan(switch: RunningSwitch) -> None:
    """Whose first tag is that of a native VLAN would leave without it, and be in the VLAN of its second tag wherever it
    arrives. So it keeps both; and one whose first tag has no VLAN in it goes nowhere."""

    def stacked(first: int) -> bytes:
        head = Ether(src=mac(1), dst=ALL) / Dot1Q(vlan=first) / Dot1Q(vlan=20, type=0x0900)
        return bytes(head / Raw(b"." * 42))

    ports: dict[str, dict[str, Any]] = {
        "one": {"trunk": [10, 20], "native": 10},
        "two": {"trunk": [10, 20], "native": 10},
        "a20": {"access": 20},
    }
    with bridged(switch, ports) as guests:
        assert guests.send("one", stacked(10)) == {"two": [stacked(10)]}
        assert guests.send("one", stacked(0)) == {}
        assert guests.drops("one") == {"drop_vlan": 1}
        assert guests.send("one", to(ALL, 1, 10)) == {"two": [to(ALL, 1)]}  # with one tag it is as any other


def test_frames_to_all_are_limited(switch: RunningSwitch) -> None:
    with bridged(switch, {"p1": {}, "p2": {}}, flood=20) as guests:
        frames = [to(ALL, 1, text=str(i)) for i in range(400)]
        arrived = guests.send("p1", *frames)["p2"]
        limited = guests.drops("p1")["drop_flood_limited"]
        assert len(arrived) + limited == 400
        assert 64 <= len(arrived) <= 300
        guests.send("p2", to(2, 3))  # its own limit
        assert guests.drops("p2") == {}
        assert guests.where("p1", to(3, 1)) == "p2"  # known: not limited
        wait_until(lambda: bool(guests.send("p1", to(ALL, 1))), "the limit lets some pass again")


def test_a_station_that_flaps_is_reported(switch: RunningSwitch, plain: Guests) -> None:
    began = time.monotonic()
    plain.send("p1", to(ALL, 1))
    plain.send("p2", to(ALL, 1))
    assert plain.where("p3", to(1, 3)) == "p2"  # it has moved
    assert lan(switch)["flaps"] == []
    for _ in range(3):
        plain.send("p1", to(ALL, 1))
        plain.send("p2", to(ALL, 1))
    (flap,) = lan(switch)["flaps"]
    assert (flap["mac"], flap["vlan"], flap["from"], flap["to"], flap["moves"]) == (mac(1), 0, "p1", "p2", 7)
    assert 0 <= flap["last"] <= flap["first"] < 60
    assert switch.counters("p1")["address_flaps"] == 3
    assert switch.counters("p2")["address_flaps"] == 3
    # And in the log, a line a second however many there are: those left out are counted.
    for _ in range(50):
        plain.send("p1", *(to(GROUP, station) for station in range(1, 11)))
        plain.send("p2", *(to(GROUP, station) for station in range(1, 11)))

    def told() -> list[int]:
        pattern = (
            r"warning: bridge lan: station 02:00:00:00:00:\w\w flaps: it moved from port p[12] to port p[12]; "
            r"(\d+) more moves"
        )
        return [1 + int(more) for more in re.findall(pattern, switch.log.read_text())]

    flaps = switch.counters("p1")["address_flaps"] + switch.counters("p2")["address_flaps"]
    assert flaps > 500
    wait_until(lambda: sum(told()) == flaps, "all of it is told of")
    assert len(told()) <= time.monotonic() - began + 2


def test_one_port_cannot_take_the_room_of_others(switch: RunningSwitch) -> None:
    with bridged(switch, {"p1": {}, "p2": {}}, macs=64, flood=1_000_000) as guests:
        guests.send("p1", *(to(GROUP, station) for station in range(1, 200)))
        bridge = lan(switch)
        assert len(bridge["macs"]) == 48  # its share of 16, and the common half
        assert bridge["room"] == 64
        assert bridge["unlearned"] == 199 - 48
        guests.send("p2", *(to(GROUP, station) for station in range(200, 216)))
        learned = {each["mac"] for each in lan(switch)["macs"] if each["port"] == "p2"}
        # One whose two buckets are full finds no room; which one that is depends on a secret.
        assert 13 <= len(learned) <= 16
        known = next(station for station in range(200, 216) if mac(station) in learned)
        assert guests.where("p1", to(known, 1)) == "p2"


def test_what_is_no_station_and_what_is_for_bridges_is_dropped_by_name(plain: Guests) -> None:
    for source in ("01:00:5e:00:00:01", "00:00:00:00:00:00", ALL):
        assert plain.where("p1", bytes(Ether(src=source, dst=mac(1), type=0x0900) / Raw(b"." * 46))) == ""
    assert plain.where("p1", to("01:80:c2:00:00:0e", 1)) == ""
    assert plain.drops("p1") == {"drop_source_address": 3, "drop_reserved_address": 1}


def test_stations_stay_known_when_the_bridge_changes(switch: RunningSwitch, plain: Guests) -> None:
    plain.send("p1", to(ALL, 1))
    plain.send("p4", to(ALL, 4))
    switch.patch(bridges={"lan": {"ports": {"p4": None}, "ageing": 200}})
    assert plain.where("p2", to(1, 2)) == "p1"
    assert set(plain.send("p2", to(4, 2))) == {"p1", "p3"}
    assert {entry["port"] for entry in lan(switch)["macs"]} == {"p1", "p2"}
    plain.send("p4", to(ALL, 4))
    assert plain.drops("p4") == {"drop_no_chain": 1}


def test_a_bridge_gets_the_room_that_it_is_given(switch: RunningSwitch, plain: Guests) -> None:
    plain.send("p1", to(ALL, 1))
    for macs in (64, 8192):
        switch.patch(bridges={"lan": {"macs": macs}})
        assert lan(switch)["room"] == macs
        assert set(plain.send("p2", to(1, 2))) == {"p1", "p3", "p4"}, "it begins anew"
        assert plain.where("p1", to(2, 1)) == "p2"
    # What is refused changes nothing.
    with pytest.raises(ControlError):
        switch.patch(bridges={"lan": {"macs": 128, "ports": {"none": {}}}})
    assert lan(switch)["room"] == 8192
    assert plain.where("p1", to(2, 1)) == "p2"


def test_workers_share_a_bridge(asan_binaries: Path, tmp_path: Path) -> None:
    """Two workers give frames to the same guests at the same time: every frame arrives, and each sender's in order."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        pytest.skip("needs two CPUs")
    switch = RunningSwitch(
        asan_binaries / "switch/tailrace-switch", tmp_path, "--cores", ",".join(map(str, cores)), "--idle", "pause"
    )
    with bridged(switch, {"p1": {}, "p2": {}, "p3": {}}, flood=1_000_000) as guests:
        switch.patch(workers={"pins": {"p1/0": 0, "p2/0": 1, "p3/0": 0}})
        guests.send("p3", to(ALL, 3))
        senders, receiver = (guests.guests["p1"], guests.guests["p2"]), guests.guests["p3"]
        for number in range(50):
            texts = [f"{number} {i}" for i in range(16)]
            for guest in guests.guests.values():
                guest.offer_buffers(32 - ((guest.added[RECEIVES] - guest.seen[RECEIVES]) & 0xFFFF))
            for text in texts:
                senders[0].send(to(3, 1, text=text))
                senders[1].send(to(ALL, 2, text=text))
            arrived = receiver.wait_received(32)
            assert [one for one in arrived if one[11] == 1] == [to(3, 1, text=text) for text in texts]
            assert [one for one in arrived if one[11] == 2] == [to(ALL, 2, text=text) for text in texts]
            assert senders[0].wait_received(16) == [to(ALL, 2, text=text) for text in texts]
            guests.guests["p2"].received()
        assert all(guests.drops(name) == {} for name in guests.guests)
    assert switch.end() == 0


@pytest.mark.requires_root
@pytest.mark.requires_program("ip")
def test_a_device_is_a_port_like_any_other(asan_binaries: Path, tmp_path: Path) -> None:
    """A veth pair in a network namespace of its own: the switch at one end, a raw socket at the other."""
    network = Network()
    network.pair("left", "right")
    wire = End(network, "right")
    switch = RunningSwitch(
        asan_binaries / "switch/tailrace-switch", tmp_path, "--keep", "net_raw,net_admin", within=network.within
    )
    try:
        switch.add_device("wan", "if:left")
        with bridged(switch, {"p1": {}, "p2": {}}) as guests:
            switch.patch(bridges={"lan": {"ports": {"wan": {}}}})
            frames = [to(ALL, 1, text=str(i)) for i in range(100)]
            assert guests.send("p1", *frames) == {"p2": frames}
            assert wire.wait_received(100) == frames
            guests.offer()
            wire.send(to(1, 9))
            assert guests.guests["p1"].wait_received(1) == [to(1, 9)]
            wire.send(to(ALL, 9, text="all"))
            for guest in guests.guests.values():
                assert guest.wait_received(1) == [to(ALL, 9, text="all")]
            assert guests.where("p2", to(9, 2)) == ""
            assert wire.wait_received(1) == [to(9, 2)]
            # The worker counts what a device has taken after it is on the wire.
            wait_until(lambda: switch.counters("wan")["sent_packets"] >= 101, "all are counted")
            assert switch.counters("wan")["sent_packets"] == 101
            # Its link is lost: what was learned behind it is forgotten.
            network.run("ip", "link", "set", "right", "down")
            wait_until(lambda: "wan" not in {entry["port"] for entry in lan(switch)["macs"]}, "it is forgotten")
            assert guests.where("p2", to(9, 2)) == "p1"
    finally:
        status = switch.end()
        wire.close()
        network.end()
    assert status == 0
