"""What the switch says of a frame that it follows, and what others see of it: given, dropped, changed on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from front_end import F_VERSION_1, SENDS, FrontEnd
from guest_pair import GuestPair
from running_switch import RunningSwitch, wait_until
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from steered import Guests, replicas, udp

from tailrace.observe.following import Note, Trail


@pytest.fixture
def switch(asan_binaries: Path, tmp_path: Path) -> Iterator[RunningSwitch]:
    running = RunningSwitch(asan_binaries / "switch/tailrace-switch", tmp_path)
    yield running
    assert running.end() == 0


def steps(switch: RunningSwitch) -> list[list[str]]:
    """The steps of each frame that has been followed since this was last asked."""
    trail = Trail()
    trail.add(Note(**note) for note in switch.call("trace.read", most=1000)["notes"])
    return [[note.text for sighting in frame.sightings for note in sighting.notes] for frame in trail.frames()]


def test_a_frame_too_long_for_its_receiver_is_traced_as_dropped_and_not_captured(switch: RunningSwitch) -> None:
    """The receiver's buffers are of 2 KiB, and it did not ask for frames in several of them."""
    pair = GuestPair(switch, ("a", "b"), lambda: FrontEnd(ring_size=16, features=F_VERSION_1))
    sender, receiver = pair.guests
    switch.add_guest("probe")
    switch.patch(mirrors={"m": {"port": "b", "direction": "out", "to": "probe"}})
    given = switch.call("capture.start", port="b", direction="out")["capture"]
    offered = switch.call("capture.start", port="a", direction="in")["capture"]
    switch.call("trace.start", count=2)
    receiver.offer_buffers(2)
    at = 0x380000  # in the guest's memory, where no buffer is
    sender.memory[at : at + 3000] = bytes(12) + b"\x02" * 2988
    sender.write_desc(SENDS, 0, 0x10000000 + at, 3000, 0)
    sender.offer(SENDS, 0)
    sender.next_desc[SENDS] = 1
    sender.send(b"\x02" * 60)
    assert receiver.wait_received(1) == [b"\x02" * 60]
    wait_until(lambda: sender.used_index(SENDS) == 2, "the switch has taken both frames")
    assert switch.counters("b")["drop_receiver_too_small"] == 1
    assert steps(switch) == [
        ["enters by port a", "dropped: port b takes no frame so long (drop_receiver_too_small)"],
        ["enters by port a", "leaves by port b: chain a-b, hop 0"],
    ]
    assert switch.call("capture.status", capture=given)["frames"] == 1
    assert switch.call("capture.status", capture=offered)["frames"] == 2
    (mirror,) = [slot for slot in switch.page.slots() if slot.kind == "mirror"]
    assert mirror.counters["drop_receiver_down"] == 1  # there is nobody at the probe
    pair.end()


def test_frames_that_cannot_be_read_are_traced_as_dropped(switch: RunningSwitch) -> None:
    """Where frames are steered: a direct hop is tested with simulated guests."""
    guests = Guests(switch, ("a", "b"))
    switch.patch(chains={"x": {"from": "a", "through": [], "to": "b", "match": [{"destination_port": 80}]}})
    switch.call("trace.start", count=3)
    whole = udp()
    assert guests.send("a", b"\x02" * 9, whole, b"\x02" * 13) == {"b": [whole]}
    found = steps(switch)
    assert found.count(["enters by port a", "leaves by port b: chain x, hop 0"]) == 1
    short = "dropped: it is shorter than an Ethernet header (drop_frame_too_short)"
    assert found.count(["enters by port a", short]) == 2
    assert len(found) == 3
    # Nothing is known of them, so they match nothing that asks for something.
    switch.call("trace.stop")
    switch.call("trace.start", count=3, match=[{"protocol": 17}])
    guests.send("a", b"\x02" * 9, whole)
    assert steps(switch) == [["enters by port a", "leaves by port b: chain x, hop 0"]]
    guests.end()


def test_a_frame_is_known_again_behind_a_function_that_changed_it(switch: RunningSwitch) -> None:
    """The function, of two replicas, is the test: it routes, completes the checksum and adds a tag."""
    names = ("a", "b", *(f"f{replica}.{side}" for replica in (1, 2) for side in "lr"))
    guests = Guests(switch, names)
    switch.patch(
        functions={"f": {"replicas": replicas("f", 2)}}, chains={"x": {"from": "a", "through": ["f"], "to": "b"}}
    )
    switch.call("trace.start", count=8)
    for number in range(4):
        whole = udp(1000 + number)
        sent = bytearray(whole)
        sent[40:42] = b"\x12\x34"  # as a guest leaves a checksum to others
        ((left, received),) = guests.send("a", bytes(sent)).items()
        routed = Ether(received[0])
        del routed[UDP].chksum, routed[IP].chksum
        routed[IP].ttl -= 1
        changed = bytes(Ether(src=routed.dst, dst=routed.src) / Dot1Q(vlan=5) / routed.payload)
        assert guests.send(f"{left[:2]}.r", changed) == {"b": [changed]}
        assert steps(switch) == [
            [
                "enters by port a",
                f"pinned to replica {left[:2]}",
                f"leaves by port {left}: chain x, hop 0",
                f"enters by port {left[:2]}.r",
                "leaves by port b: chain x, hop 1",
            ]
        ]
    guests.end()
