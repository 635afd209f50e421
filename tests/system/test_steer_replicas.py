"""Replica groups: a flow and its answer meet, what a change moves, draining, and fragments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from running_switch import RunningSwitch, SharedSwitch, wait_until
from scapy.layers.inet import ICMP, IP, TCP, UDP, fragment
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP
from scapy.packet import Raw
from steered import Guests, answer, frame, pieces6, replicas, udp

from tailrace.process.control import ControlError

FLOWS = [udp(1024 + i, 80 + i % 7, source=f"10.0.{i % 50}.1") for i in range(600)]


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
    """a - fw - b, with fw three times."""
    guests = Guests(switch, ("a", "b", *(f"fw{i}.{side}" for i in range(1, 5) for side in "lr")))
    switch.patch(
        functions={"fw": {"replicas": replicas("fw", 3)}}, chains={"c": {"from": "a", "through": ["fw"], "to": "b"}}
    )
    yield guests
    guests.end()


def set_replicas(switch: RunningSwitch, count: int, **states: str) -> None:
    names = {f"fw{i}": None for i in range(1, 5)}
    switch.patch(functions={"fw": {"replicas": {**names, **replicas("fw", count, **states)}}})


def replica_of(port: str) -> str:
    return port.partition(".")[0]


def flows_left(switch: RunningSwitch) -> dict[str, int]:
    (function,) = switch.call("function.list")
    return {name: replica["flows"] for name, replica in function["replicas"].items()}


def various() -> list[bytes]:
    """A few flows of every kind."""
    frames = []
    for i in range(12):
        frames += [
            udp(2000 + i, 53),
            frame(IP(src="10.1.0.1", dst="10.1.0.2") / TCP(sport=3000 + i, dport=443)),
            frame(IP(src="10.1.0.1", dst="10.1.0.2") / ICMP(type=8, id=i + 1)),
            frame(IP(src=f"10.1.1.{i}", dst="10.1.0.2", proto=50) / Raw(b"encrypted")),
            frame(IPv6(src="2001:db8::1", dst="2001:db8::2") / UDP(sport=4000 + i, dport=53)),
            frame(IP(src="10.2.0.1", dst="10.2.0.2") / UDP(sport=5000 + i, dport=53), [7]),
            frame(IP(src="10.3.0.1", dst="10.3.0.2") / UDP(sport=6000 + i, dport=53), [7, 8]),
            frame(Raw(b"not IP" * 8), source=f"02:00:00:00:01:{i:02x}"),
        ]
    return frames


def test_a_flow_and_its_answer_reach_the_same_replica(guests: Guests) -> None:
    frames = various()
    there = guests.spread("a", frames)
    back = guests.spread("b", [answer(one) for one in frames])
    assert {port.partition(".")[2] for port in there} == {"l"}
    assert {port.partition(".")[2] for port in back} == {"r"}
    assert [replica_of(port) for port in there] == [replica_of(port) for port in back]
    assert len(set(there)) == 3
    # And on from every replica, either way.
    assert guests.where("fw2.r", frames[0]) == "b"
    assert guests.where("fw2.l", answer(frames[0])) == "a"


def test_a_tag_does_not_move_a_flow(guests: Guests) -> None:
    packet = IP(src="10.1.0.1", dst="10.1.0.2") / UDP(sport=1, dport=2)
    plain, *tagged = (guests.where("a", frame(packet, vlans)) for vlans in ([], [5], [6], [5, 6]))
    assert tagged == [plain] * 3


def test_the_error_about_a_flow_reaches_the_replica_of_the_flow(guests: Guests) -> None:
    for i in range(20):
        flow = IP(src="10.1.0.1", dst="10.1.0.2") / UDP(sport=3000 + i, dport=53) / Raw(b"q" * 20)
        error = IP(src="192.0.2.1", dst="10.1.0.1") / ICMP(type=3, code=4) / bytes(flow)
        assert replica_of(guests.where("b", frame(error))) == replica_of(guests.where("a", frame(flow)))


def test_a_replica_more_or_less_moves_its_share_and_nothing_else(switch: RunningSwitch, guests: Guests) -> None:
    three = guests.spread("a", FLOWS)
    for name in ("fw1.l", "fw2.l", "fw3.l"):
        assert 160 <= three.count(name) <= 240
    set_replicas(switch, 4)
    four = guests.spread("a", FLOWS)
    moved = [now for was, now in zip(three, four, strict=True) if was != now]
    assert set(moved) == {"fw4.l"}
    assert 0.8 * 150 <= len(moved) <= 1.2 * 150
    set_replicas(switch, 3)
    assert guests.spread("a", FLOWS) == three


def test_who_looks_often_has_no_flows_counted(switch: RunningSwitch, guests: Guests) -> None:
    guests.spread("a", FLOWS[:20])
    assert sum(flows_left(switch).values()) == 20
    (function,) = switch.call("function.list", flows=False)
    assert function["crowded"] == 0
    assert not any("flows" in replica for replica in function["replicas"].values())
    with pytest.raises(ControlError, match="flow"):
        switch.call("function.list", flow=False)


def test_a_draining_replica_keeps_its_flows_and_gets_no_new_ones(switch: RunningSwitch, guests: Guests) -> None:
    established, fresh = FLOWS[:300], FLOWS[300:]
    before = guests.spread("a", established)
    left = flows_left(switch)
    assert left == {f"fw{i}": before.count(f"fw{i}.l") for i in (1, 2, 3)}
    set_replicas(switch, 3, fw2="draining")
    assert guests.spread("a", established) == before
    assert [replica_of(port) for port in guests.spread("b", [answer(one) for one in established])] == [
        replica_of(port) for port in before
    ]
    assert "fw2.l" not in guests.spread("a", fresh)
    assert flows_left(switch)["fw2"] == left["fw2"]
    # Another change of the group does not lose them.
    set_replicas(switch, 4, fw2="draining")
    after = guests.spread("a", established)
    assert [port == "fw2.l" for port in after] == [port == "fw2.l" for port in before]
    # Without it, only its flows have moved.
    set_replicas(switch, 3, fw2="draining")
    names = {"fw2": None}
    switch.patch(functions={"fw": {"replicas": names}})
    after = guests.spread("a", established)
    assert all(was == now for was, now in zip(before, after, strict=True) if was != "fw2.l")
    assert "fw2.l" not in after


def test_the_only_replica_is_drained_where_its_flows_are_known(switch: RunningSwitch, guests: Guests) -> None:
    established, fresh = FLOWS[:100], FLOWS[100:200]
    set_replicas(switch, 1)
    switch.patch(functions={"fw": {"pin": "flow"}})
    assert set(guests.spread("a", established)) == {"fw1.l"}
    assert flows_left(switch) == {"fw1": 100}
    set_replicas(switch, 2, fw1="draining")
    assert set(guests.spread("a", established)) == {"fw1.l"}
    assert set(guests.spread("b", [answer(one) for one in established])) == {"fw1.r"}
    assert set(guests.spread("a", fresh)) == {"fw2.l"}


def test_a_drained_replica_has_no_flows_left(switch: RunningSwitch, guests: Guests) -> None:
    guests.spread("a", FLOWS[:64])
    assert flows_left(switch)["fw1"] > 0
    set_replicas(switch, 3, fw1="draining")
    switch.patch(functions={"fw": {"ageing": 1}})
    wait_until(lambda: flows_left(switch)["fw1"] == 0, "no flow is left")
    assert "fw1.l" not in guests.spread("a", FLOWS[:64])


def test_by_addresses_all_flows_of_two_hosts_meet(switch: RunningSwitch, guests: Guests) -> None:
    switch.patch(functions={"fw": {"pin": "addresses"}})
    for host in range(10):
        flows = [udp(1000 + i, i, source=f"10.9.0.{host}") for i in range(20)]
        assert len(set(guests.spread("a", flows))) == 1


def test_fragments_stay_together_in_any_order(guests: Guests) -> None:
    for i in range(16):
        packet = IP(src="10.0.0.1", dst="10.0.0.2", id=i) / UDP(sport=7000 + i, dport=80) / Raw(b"p" * 2500)
        flow = guests.where("a", frame(IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=7000 + i, dport=80)))
        pieces = [frame(piece) for piece in fragment(packet, fragsize=800)]
        if i % 2:
            assert guests.send("a", *pieces) == {flow: pieces}
        else:
            pieces.reverse()
            assert len(guests.send("a", *pieces)) == 1


@pytest.mark.parametrize("options", [False, True], ids=["plain", "options"])
def test_fragments_of_ipv6_stay_together_whatever_lies_behind_their_header(guests: Guests, options: bool) -> None:
    for i in range(16):
        whole = frame(IPv6(src="2001:db8::1", dst="2001:db8::2") / UDP(sport=7000 + i, dport=80))
        pieces = pieces6(80, i + 1, options=options, source_port=7000 + i)
        assert guests.send("a", *pieces) == {guests.where("a", whole): pieces}


def test_fragments_of_two_vlans_are_not_taken_for_one_datagram(guests: Guests) -> None:
    """Of the same addresses and number, and mixed: each VLAN's go where their own first goes."""
    reached = set()
    for i in range(16):
        ten, twenty = (
            [
                frame(piece, [vlan])
                for piece in fragment(
                    IP(src="10.0.0.1", dst="10.0.0.2", id=i) / UDP(sport=port, dport=80) / Raw(b"p" * 2500),
                    fragsize=800,
                )
            ]
            for vlan, port in ((10, 7000 + i), (20, 8000 + i))
        )
        where = [guests.spread("a", [one, other]) for one, other in zip(ten, twenty, strict=True)]
        assert all(pair == where[0] for pair in where)
        reached.add(tuple(where[0]))
    assert any(one != other for one, other in reached)


def test_a_switch_that_starts_again_sends_flows_where_they_were(asan_binaries: Path, tmp_path: Path) -> None:
    reached = []
    for _ in range(2):
        switch = RunningSwitch(asan_binaries / "switch/tailrace-switch", tmp_path, "--config", str(tmp_path / "config"))
        if not reached:
            guests = Guests(switch, ("a", "b", *(f"fw{i}.{side}" for i in range(1, 4) for side in "lr")))
            switch.patch(
                functions={"fw": {"replicas": replicas("fw", 3)}},
                chains={"c": {"from": "a", "through": ["fw"], "to": "b"}},
            )
        else:
            guests.switch = switch
            for name, guest in guests.guests.items():
                guest.close()
                guest.reset()
                guests.attach(name)
        reached.append(guests.spread("a", FLOWS[:100]))
        switch.process.kill()
        switch.process.wait()
        switch.control.close()
    assert reached[0] == reached[1]
    guests.end()


def walk(guests: Guests, start: str, frames: Sequence[bytes]) -> list[list[str]]:
    """For each frame the functions' ports that it enters by, and the end that it reaches: every function forwards."""
    ways: list[list[str]] = [[] for _ in frames]
    at = dict.fromkeys(range(len(frames)), start)
    while at:
        for port in sorted(set(at.values())):
            here = [number for number, where in at.items() if where == port]
            for number, reached in zip(here, guests.spread(port, [frames[i] for i in here]), strict=True):
                ways[number].append(reached)
                name, _, side = reached.partition(".")
                at[number] = f"{name}.{'r' if side == 'l' else 'l'}"
                if not side:
                    del at[number]
    return ways


def test_a_flow_passes_a_replica_of_each_group_and_its_answer_the_same_in_mirrored_order(switch: RunningSwitch) -> None:
    """Two groups in a chain that has a match, beside one without functions for what that does not fit."""
    sides = [f"{name}.{side}" for name in ("fw1", "fw2", "fw3", "lb1", "lb2") for side in "lr"]
    guests = Guests(switch, ("a", "b", *sides))
    switch.patch(
        functions={"fw": {"replicas": replicas("fw", 3)}, "lb": {"replicas": replicas("lb", 2)}},
        chains={
            "web": {
                "from": "a",
                "through": ["fw", "lb"],
                "to": "b",
                "match": [{"protocol": 17, "destination_port": [80, 89]}, {"protocol": 6}],
            },
            "rest": {"from": "a", "to": "b", "match": [{"ethertype": 0x0800}]},
        },
    )
    flows = [udp(2000 + i, 80 + i % 10) for i in range(60)]
    flows += [frame(IP(src="10.1.0.1", dst="10.1.0.2") / TCP(sport=3000 + i, dport=443)) for i in range(20)]
    others = [udp(2000 + i, 53) for i in range(10)]
    there = walk(guests, "a", flows)
    back = walk(guests, "b", [answer(one) for one in flows])
    for way, other in zip(there, back, strict=True):
        (fw, fw_side), (lb, lb_side) = (port.split(".") for port in way[:2])
        assert (fw[:2], fw_side, lb[:2], lb_side, way[2:]) == ("fw", "l", "lb", "l", ["b"])
        assert other == [f"{lb}.r", f"{fw}.r", "a"]
    # The groups choose each by itself.
    assert {(replica_of(way[0]), replica_of(way[1])) for way in there} == {
        (f"fw{i}", f"lb{j}") for i in (1, 2, 3) for j in (1, 2)
    }
    assert walk(guests, "a", others) == [["b"]] * 10
    assert walk(guests, "b", [answer(one) for one in others]) == [["a"]] * 10
    guests.end()


def test_arp_is_pinned_by_its_macs(guests: Guests) -> None:
    for i in range(8):
        one = frame(ARP(), source=f"02:00:00:00:02:{i:02x}")
        assert replica_of(guests.where("a", one)) == replica_of(guests.where("b", answer(one)))
