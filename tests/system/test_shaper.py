"""Frames above the rate of their receiver that cannot wait with their sender: they wait in the switch, and none is
lost without being counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from front_end import SENDS
from running_switch import RunningSwitch, wait_until
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from steered import Guests

COUNT = 14
FAST = {"packets": 1_000_000}
SLOW = {"packets": 1}
"""A second is long enough for all that a test does meanwhile; 16 frames may wait however low the rate."""


def numbered(number: int) -> bytes:
    return bytes(Ether(src="02:00:00:00:00:0a", dst="ff:ff:ff:ff:ff:ff", type=0x0900) / Raw(bytes([number]) * 50))


FRAMES = [numbered(number) for number in range(COUNT)]


@pytest.fixture(params=["poll", "sleep"])
def guests(asan_binaries: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Guests]:
    program = asan_binaries / "switch/tailrace-switch"
    switch = RunningSwitch(program, tmp_path, "--idle", request.param, "--idle-after-us", "100")
    guests = Guests(switch, "ab")
    switch.patch(bridges={"lan": {"ports": {"a": {}, "b": {}}}})
    guests.offer()
    yield guests
    guests.end()
    assert switch.end() == 0


def rate(guests: Guests, to: dict[str, Any] | None) -> None:
    guests.switch.patch(ports={"b": {"rate": {"to": to} if to else None}})


def send(guests: Guests) -> None:
    """Returns when the switch has taken all frames."""
    guest = guests.guests["a"]
    for frame in FRAMES:
        guest.send(frame)
    guest.kicks(SENDS)
    wait_until(lambda: guest.used_index(SENDS) == guest.added[SENDS], "the switch has taken all frames")


def counted(guests: Guests, *names: str) -> int:
    counters = guests.switch.counters("b")
    return sum(counters[name] for name in names)


def dropped(guests: Guests) -> dict[str, int]:
    return {name: count for name, count in guests.switch.counters("b").items() if name.startswith("drop_") and count}


def test_frames_wait_for_the_rate_and_arrive_in_order(guests: Guests) -> None:
    rate(guests, {"packets": 50})
    send(guests)
    assert guests.guests["b"].wait_received(COUNT) == FRAMES
    assert not dropped(guests)


def test_what_waits_goes_on_when_the_rate_is_raised(guests: Guests) -> None:
    rate(guests, SLOW)
    send(guests)
    assert counted(guests, "sent_packets") < COUNT
    rate(guests, FAST)
    assert guests.guests["b"].wait_received(COUNT) == FRAMES
    assert not dropped(guests)


def test_what_finds_no_room_is_dropped_for_the_rate(guests: Guests) -> None:
    rate(guests, SLOW)
    send(guests)
    send(guests)
    rate(guests, FAST)
    wait_until(
        lambda: counted(guests, "sent_packets", "drop_rate") == 2 * COUNT, "each frame has arrived or is counted"
    )
    assert set(dropped(guests)) == {"drop_rate"}
    arrived = guests.guests["b"].wait_received(counted(guests, "sent_packets"))
    assert len(arrived) >= 16
    assert arrived == (FRAMES * 2)[: len(arrived)]


def test_what_waits_for_a_way_that_is_removed_is_counted(guests: Guests) -> None:
    rate(guests, SLOW)
    send(guests)
    guests.switch.patch(bridges={"lan": None})
    assert counted(guests, "sent_packets", "drop_chain_removed") == COUNT
    assert set(dropped(guests)) == {"drop_chain_removed"}


def test_what_waits_for_a_receiver_that_leaves_is_counted(guests: Guests) -> None:
    rate(guests, SLOW)
    send(guests)
    guests.guests["b"].end()
    wait_until(
        lambda: counted(guests, "sent_packets", "drop_receiver_down") == COUNT, "each frame has arrived or is counted"
    )
    assert set(dropped(guests)) == {"drop_receiver_down"}


def test_what_a_full_receiver_does_not_take_is_kept_waiting_for_a_while(guests: Guests) -> None:
    for _ in range(3):  # more than it has buffers for
        send(guests)
    before = counted(guests, "sent_packets"), counted(guests, "drop_receiver_full")
    assert sum(before) == 3 * COUNT
    assert before[1] > 0
    rate(guests, {"packets": 20})
    send(guests)
    wait_until(lambda: counted(guests, "drop_receiver_full") == before[1] + COUNT, "all frames are counted")
    assert counted(guests, "sent_packets") == before[0]
    # Whoever comes back gets what comes then.
    rate(guests, None)
    guests.guests["b"].wait_received(before[0])
    guests.offer()
    send(guests)
    assert guests.guests["b"].wait_received(COUNT) == FRAMES


def test_a_chain_counts_at_its_hop_what_has_waited(guests: Guests) -> None:
    match = [{"ethertype": 0x0900}]
    guests.switch.patch(
        bridges={"lan": None}, chains={"x": {"from": "a", "to": "b", "match": match}},
        ports={"b": {"rate": {"to": {"packets": 50}}}},
    )  # fmt: skip
    send(guests)
    assert guests.guests["b"].wait_received(COUNT) == FRAMES

    def hop() -> dict[str, int]:
        return next(slot.counters for slot in guests.switch.page.slots() if slot.name == "x/0")

    wait_until(lambda: hop()["forward_packets"] == COUNT, "the hop has counted all frames")
