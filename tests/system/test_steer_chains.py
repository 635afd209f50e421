"""Chains with a match: several at one port, both ways through the same functions, and every reason not to carry."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from front_end import SENDS, FrontEnd
from running_switch import RunningSwitch, SharedSwitch, wait_until
from scapy.layers.inet import ICMP, IP, TCP, UDP, fragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrSegmentRouting
from scapy.layers.l2 import ARP
from scapy.packet import Raw
from steered import RING, Guests, answer, frame, pieces6, udp

from tailrace.process.control import ControlError


@pytest.fixture(scope="module")
def shared(asan_binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSwitch]:
    made = SharedSwitch(asan_binaries / "switch/tailrace-switch", tmp_path_factory.mktemp("shared"))
    yield made
    made.end()


@pytest.fixture
def switch(shared: SharedSwitch) -> Iterator[RunningSwitch]:
    with shared.lent() as running:
        yield running


@pytest.fixture
def guests(switch: RunningSwitch) -> Iterator[Guests]:
    guests = Guests(switch, ("a", "b", "c", "fw.l", "fw.r", "nat.l", "nat.r"))
    switch.patch(functions={name: function(name) for name in ("fw", "nat")})
    yield guests
    guests.end()


def function(name: str) -> dict[str, Any]:
    return {"replicas": {name: {"left": f"{name}.l", "right": f"{name}.r"}}}


def chain(through: list[str], *match: dict[str, Any], to: str = "b", priority: int = 0) -> dict[str, Any]:
    return {"from": "a", "through": through, "to": to, "match": list(match), "priority": priority}


def routed(segments: int) -> bytes:
    """A UDP datagram to port 80 on a way of so many segments (RFC 8754)."""
    way = IPv6ExtHdrSegmentRouting(addresses=[f"2001:db8::{number}" for number in range(segments)])
    return frame(IPv6(src="2001:db8::a", dst="2001:db8::b") / way / UDP(sport=9, dport=80, chksum=1) / Raw(b"x" * 40))


def hops(switch: RunningSwitch) -> dict[str, dict[str, int]]:
    return {slot.name: slot.counters for slot in switch.page.slots() if slot.kind == "hop"}


def test_both_ways_of_a_flow_take_the_same_functions_in_mirrored_order(switch: RunningSwitch, guests: Guests) -> None:
    switch.patch(
        chains={
            "web": chain(["fw", "nat"], {"protocol": 17, "destination_port": 80}),
            "rest": chain([], {"ethertype": 0x0800}),
        }
    )
    for one, way in (
        (udp(5000, 80), [("a", "fw.l"), ("fw.r", "nat.l"), ("nat.r", "b")]),
        (answer(udp(5000, 80)), [("b", "nat.r"), ("nat.l", "fw.r"), ("fw.l", "a")]),
        (udp(5000, 53), [("a", "b")]),
        (answer(udp(5000, 53)), [("b", "a")]),
        (udp(80, 5000), [("a", "b")]),  # the answer to a flow that came the other way is another flow
    ):
        for sender, receiver in way:
            assert guests.where(sender, one) == receiver
    counted = hops(switch)
    for name in ("web/0", "web/1", "web/2"):
        assert counted[name]["forward_packets"] == counted[name]["back_packets"] == 1
        assert counted[name]["forward_bytes"] == len(udp(5000, 80))
    assert counted["rest/0"]["forward_packets"] == 2
    assert counted["rest/0"]["back_packets"] == 1


def test_a_hop_counts_what_passed_between_its_own_neighbours(switch: RunningSwitch, guests: Guests) -> None:
    """After a change a hop between the same neighbours goes on, and one between others begins at 0."""
    any_udp = {"protocol": 17}

    def forward() -> dict[str, int]:
        return {name: counters["forward_packets"] for name, counters in hops(switch).items()}

    def pass_through(*through: str) -> None:
        ends = ["a", *itertools.chain.from_iterable((f"{name}.l", f"{name}.r") for name in through), "b"]
        for sender, receiver in zip(ends[::2], ends[1::2], strict=True):
            assert guests.where(sender, udp()) == receiver

    switch.patch(chains={"x": chain(["fw"], any_udp)})
    pass_through("fw")
    assert forward() == {"x/0": 1, "x/1": 1}
    switch.patch(chains={"x": chain(["fw", "nat"], any_udp)})
    assert forward() == {"x/0": 1, "x/1": 0, "x/2": 0}
    pass_through("fw", "nat")
    assert forward() == {"x/0": 2, "x/1": 1, "x/2": 1}
    # Of a change that is refused nothing stays.
    with pytest.raises(ControlError):
        switch.patch(
            chains={"x": chain(["nat"], any_udp), "y": chain(["fw"], {"vlan": 7})},
            ports={"none": {"kind": "device", "device": "net_tap_no,iface=/"}},
        )
    assert forward() == {"x/0": 2, "x/1": 1, "x/2": 1}
    pass_through("fw", "nat")
    switch.patch(chains={"x": chain(["nat"], any_udp, priority=3)})
    assert forward() == {"x/0": 0, "x/1": 0}
    pass_through("nat")
    switch.patch(chains={"x": chain(["nat"], any_udp, priority=4), "y": chain([], {"vlan": 7})})
    assert forward() == {"x/0": 1, "x/1": 1, "y/0": 0}
    switch.patch(chains={"x": chain([], any_udp, to="c")})
    assert forward() == {"x/0": 0, "y/0": 0}
    switch.patch(chains={"x": None})
    assert forward() == {"y/0": 0}


@pytest.mark.parametrize(
    ("match", "fits", "does_not"),
    [
        ({"vlan": 10}, frame(ARP(), [10]), frame(ARP(), [11])),
        ({"vlan": [10, 20]}, frame(ARP(), [20]), frame(ARP())),
        ({"vlan": 10, "inner_vlan": [1, 5]}, frame(ARP(), [10, 5]), frame(ARP(), [10, 6])),
        ({"vlan": 0}, frame(ARP()), frame(ARP(), [7])),
        ({"vlan": 0}, frame(ARP(), [0]), frame(ARP(), [7, 0])),
        ({"vlan": [0, 10]}, frame(ARP()), frame(ARP(), [11])),
        ({"vlan": 10, "inner_vlan": 0}, frame(ARP(), [10]), frame(ARP(), [10, 6])),
        ({"ethertype": 0x0806}, frame(ARP(), [10]), udp()),
        ({"source": "10.0.0.0/24"}, udp(source="10.0.0.200"), udp(source="10.0.1.200")),
        ({"destination": "10.0.0.2/32"}, udp(to="10.0.0.2"), udp(to="10.0.0.3")),
        (
            {"source": "2001:db8::/33"},
            frame(IPv6(src="2001:db8:7fff::1") / UDP()),
            frame(IPv6(src="2001:db8:8000::1") / UDP()),
        ),
        ({"protocol": 17}, udp(), frame(IP(proto=47))),
        ({"protocol": 0}, frame(IP(proto=0)), frame(ARP())),
        ({"source_port": [1000, 1999], "destination_port": 80}, udp(1999, 80), udp(2000, 80)),
        ({"destination_port": 80}, routed(3), routed(4)),
        ({"protocol": 17}, routed(12), frame(IP(proto=47))),
        ({"destination_port": [1, 1023]}, udp(1, 1023), udp(1, 1024)),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_match_fits_what_it_says(
    switch: RunningSwitch, guests: Guests, match: dict[str, Any], fits: bytes, does_not: bytes
) -> None:
    switch.patch(chains={"one": chain([], match)})
    assert guests.where("a", fits) == "b"
    assert guests.drops("a") == {}
    assert guests.where("a", does_not) == ""
    assert guests.drops("a") == {"drop_no_match": 1}
    assert guests.where("b", answer(fits)) == "a"


def test_the_higher_priority_comes_first_and_then_the_order_of_configuration(
    switch: RunningSwitch, guests: Guests
) -> None:
    switch.patch(
        chains={
            "late": chain([], {"ethertype": 0x0800}, to="c"),
            "low": chain([], {"protocol": 17}),
            "high": chain(["fw"], {"destination_port": 80}, priority=5),
        }
    )
    assert guests.where("a", udp(1, 80)) == "fw.l"
    assert guests.where("a", udp(1, 81)) == "c"
    switch.patch(chains={"late": None})
    assert guests.where("a", udp(1, 81)) == "b"


def test_later_fragments_take_the_chain_of_their_first(switch: RunningSwitch, guests: Guests) -> None:
    switch.patch(
        chains={"web": chain(["fw"], {"destination_port": 80}), "rest": chain([], {"ethertype": 0x0800}, to="c")}
    )
    for port, receiver in ((80, "fw.l"), (81, "c")):
        datagram = IP(src="10.0.0.1", dst="10.0.0.2", id=port) / UDP(sport=9, dport=port) / Raw(b"p" * 3000)
        pieces = [frame(piece) for piece in fragment(datagram, fragsize=1000)]
        assert len(pieces) >= 3
        assert guests.send("a", *pieces) == {receiver: pieces}


def test_later_fragments_find_their_first_by_any_queue_of_the_port(switch: RunningSwitch, guests: Guests) -> None:
    guest = guests.guests["m"] = FrontEnd(ring_size=RING)
    guest.pairs = 2
    switch.add_guest("m", queues=2)
    guests.attach("m")
    wait_until(lambda: len(switch.port("m")["attached"]["rings"]) == 2, "both pairs are there")
    web = {"from": "m", "through": ["fw"], "to": "b", "match": [{"destination_port": 80}]}
    switch.patch(chains={"web": web, "rest": {"from": "m", "through": [], "to": "c", "match": [{"ethertype": 0x0800}]}})

    numbers = itertools.count()

    def send(ring: int, *frames: bytes) -> None:
        guests.offer()
        for one in frames:
            guest.send_by(ring, one)
        wait_until(lambda: guest.used_index(ring) == guest.added[ring], "the switch has taken all frames")

    def pieces(port: int) -> list[bytes]:
        datagram = IP(src="10.0.0.1", dst="10.0.0.2", id=next(numbers)) / UDP(sport=9, dport=port) / Raw(b"p" * 3000)
        return [frame(piece) for piece in fragment(datagram, fragsize=1000)]

    for first_by, later_by in ((SENDS, SENDS + 2), (SENDS + 2, SENDS)):
        for port, receiver in ((81, "c"), (80, "fw.l")):
            first, *later = pieces(port)
            send(first_by, first)
            send(later_by, *later)
            assert guests.guests[receiver].wait_received(1 + len(later)) == [first, *later]
    # The number of a chain that is no more leads nowhere.
    first, *later = pieces(99)
    send(SENDS, first)
    switch.patch(chains={"rest": None})
    send(SENDS + 2, *later)
    assert guests.drops("m") == {"drop_no_match": len(later)}


@pytest.mark.parametrize("options", [False, True], ids=["plain", "options"])
@pytest.mark.parametrize("match", [{"destination_port": 80}, {"protocol": 17}], ids=["port", "protocol"])
def test_later_fragments_of_ipv6_take_the_chain_of_their_first(
    switch: RunningSwitch, guests: Guests, match: dict[str, Any], options: bool
) -> None:
    switch.patch(chains={"web": chain(["fw"], match), "rest": chain([], {"ethertype": 0x86DD}, to="c")})
    pieces = pieces6(80, 1, options=options)
    assert guests.send("a", *pieces) == {"fw.l": pieces}
    pieces = pieces6(81, 2, options=options)
    assert guests.send("a", *pieces) == {"c" if "destination_port" in match else "fw.l": pieces}


def test_a_first_fragment_leads_no_fragments_of_another_vlan(switch: RunningSwitch, guests: Guests) -> None:
    """Tenants share a trunk port, and one sends first fragments with the addresses and number of the other's datagrams:
    those take the chains that they would take without it."""
    switch.patch(
        chains={
            "ten": chain(["fw"], {"vlan": 10, "destination_port": 80}),
            "twenty": chain(["nat"], {"vlan": 20, "destination_port": 80}),
            "rest": chain([], {"ethertype": 0x0800}, to="c"),
        }
    )
    for number, tags in enumerate(([20], [20, 10], [10, 20], [])):
        datagram = IP(src="10.0.0.1", dst="10.0.0.2", id=number) / UDP(sport=9, dport=80) / Raw(b"p" * 3000)
        first, *later = fragment(datagram, fragsize=1000)
        assert guests.where("a", frame(first, tags)) == {(20,): "nat.l", (20, 10): "nat.l", (10, 20): "fw.l"}.get(
            tuple(tags), "c"
        )
        # Without their own first they go by what they say themselves, and with it as it did.
        assert {guests.where("a", frame(piece, [10])) for piece in later} == {"c"}
        assert {guests.where("a", frame(piece, [10])) for piece in (first, *later)} == {"fw.l"}


@pytest.mark.parametrize("tags", [(), (7,)])
def test_an_icmp_error_takes_the_chain_of_its_flow(
    switch: RunningSwitch, guests: Guests, tags: tuple[int, ...]
) -> None:
    switch.patch(
        chains={
            "web": chain(["fw"], {"protocol": 6, "destination_port": 443}),
            "pings": chain(["nat"], {"protocol": 1}),
            "rest": chain([], {"ethertype": 0x0800}, to="c"),
        }
    )
    for protocol, port, ways in (
        (TCP, 443, {"b": "fw.r", "fw.l": "a"}),  # back by the function that the flow went through
        (TCP, 80, {"c": "a"}),  # of no match of its own
    ):
        about = IP(src="10.0.0.1", dst="10.0.0.2") / protocol(sport=5000, dport=port)
        error = IP(src="192.0.2.9", dst="10.0.0.1") / ICMP(type=3, code=4) / about
        for sender, receiver in ways.items():
            assert guests.where(sender, frame(error, tags)) == receiver
    assert guests.where("a", frame(IP(dst="10.0.0.2") / ICMP(type=8), tags)) == "nat.l"
    # One that is about nothing that any chain knows is a frame like any other.
    error = IP(src="192.0.2.9", dst="10.0.0.1") / ICMP(type=3, code=1) / Raw(b"x" * 8)
    assert guests.where("b", frame(error, tags)) == "nat.r"


def test_a_full_receiver_of_one_chain_does_not_hold_up_another(switch: RunningSwitch, guests: Guests) -> None:
    switch.patch(
        chains={"full": chain([], {"destination_port": 80}), "free": chain([], {"destination_port": 81}, to="c")}
    )
    guests.slow.add("b")
    frames = [udp(i, 80 + i % 2) for i in range(60)]
    assert guests.send("a", *frames) == {"c": frames[1::2]}
    assert guests.drops("b") == {"drop_receiver_full": 30}
    assert hops(switch)["full/0"]["forward_drop_receiver_full"] == 30
    assert guests.drops("c") == guests.drops("a") == {}
    guests.guests["b"].close()
    switch.wait_state("b", "waiting")
    guests.send("a", *frames)
    assert guests.drops("b") == {"drop_receiver_full": 30, "drop_receiver_down": 30}


def test_a_thousand_chains_at_one_port(switch: RunningSwitch, guests: Guests) -> None:
    switch.patch(
        chains={
            f"chain-{i}": chain(["fw"] if i % 2 else [], {"source": f"10.{i // 250}.{i % 250}.0/24"}, to="b")
            for i in range(1000)
        }
    )
    for i in (0, 1, 249, 250, 998, 999):
        one = udp(source=f"10.{i // 250}.{i % 250}.7")
        assert guests.where("a", one) == ("fw.l" if i % 2 else "b")
        assert hops(switch)[f"chain-{i}/0"]["forward_packets"] == 1
