"""`bench function router`: what it routes, which frames, and what it refuses."""

from __future__ import annotations

import json
import socket
import struct
import threading
from contextlib import closing
from ipaddress import IPv6Network, ip_network
from pathlib import Path

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from tailrace.bench.full_table import MARKER, FullTable, _capture, frame, random_ipv6_prefixes, random_routes, station
from tailrace.bench.routing import RATIOS, RoutingPlan, _changes
from tailrace.errors import Mistake
from tailrace.process.control import Control


def test_routes_are_different_networks_that_may_be_forwarded() -> None:
    routes = random_routes(5000)
    networks = [ip_network((address, length)) for address, length, _ in routes]
    assert len(set(networks)) == 5000 and networks == sorted(networks)
    assert not any(
        each.is_loopback or each.is_multicast or each.overlaps(ip_network("198.18.0.0/15")) for each in networks
    )
    assert not any(each.overlaps(ip_network(MARKER)) for each in networks)
    assert {port for _, _, port in routes} == {0, 1}
    assert random_routes(5000) == routes, "every run has the same"
    assert len({IPv6Network(each) for each in random_ipv6_prefixes(2000)}) == 2000


def test_frames_hold_and_leave_by_the_other_port(tmp_path: Path) -> None:
    made = Ether(frame(station(1), 0xC6124E02, 0x0A000001, 64))
    assert len(made) == 60 and made.dst == "02:00:00:00:00:01" and made[IP].ttl == 64
    checksum, length = made[IP].chksum, made[IP].len
    del made[IP].chksum, made[IP].len
    assert (checksum, length) == (IP(bytes(made[IP])).chksum, 46) and made[UDP].len == 26

    routes = random_routes(300)
    text = _capture(tmp_path / "x.pcap", station(0), 0, routes, 64).read_bytes()[24:]
    assert len(text) == 2048 * 76
    for at in range(0, len(text), 76):
        (destination,) = struct.unpack_from("!I", text, at + 16 + 30)
        assert any(destination >> (32 - length) == address >> (32 - length) for address, length, port in routes if port)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"routes": 1}, "--routes 1"),
        ({"routes": 1_000_001}, "--routes 1000001"),
        ({"ipv6_routes": -1}, "--ipv6-routes -1"),
        ({"against": "vpp"}, "--against vpp"),
    ],
)
def test_what_cannot_be_measured_is_refused(words: dict[str, object], said: str) -> None:
    with pytest.raises(Mistake, match=said):
        RoutingPlan(**words)  # type: ignore[arg-type]


def test_ratios_are_above_1_where_the_router_is_better() -> None:
    sides = {
        "router": {"mpps": 20.0},
        "l3fwd": {"mpps": 10.0},
        "kernel": {"mpps": 1.0},
        "router_2_cores": {"mpps": 39.0},
        "skeleton": {"mpps": 50.0},
        "skeleton_2_cores": {"mpps": 99.0},
    }
    ratios = {"mpps_l3fwd": 2.0, "mpps_kernel": 20.0, "cores": 1.95, "cores_skeleton": 1.98}
    assert {each.name: each.of(sides) for each in RATIOS} == ratios
    assert RoutingPlan(against="none").peers == ()


def test_a_router_that_has_lost_messages_knows_the_last_change_all_the_same(tmp_path: Path) -> None:
    """It asks for all routes then: that is counted, and no reason to end."""
    told = iter([(5, 0), (5, 1), (5, 1), (6, 1)])
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "router"))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as stream:
                for (routes, lost), line in zip(told, stream, strict=False):
                    counters = {
                        "routed": [{"forwarded": 7, "to_kernel": 1}] * 2,
                        "routes": {"ipv4": routes},
                        "netlink": {"messages": 1000, "lost": lost},
                    }
                    answer = {"id": json.loads(line)["id"], "result": {"counters": counters}}
                    connection.sendall(json.dumps(answer).encode() + b"\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        nothing = tmp_path / "nothing"
        table = FullTable("none", (nothing, nothing), nothing, nothing, lambda: None, (nothing, nothing))
        with closing(Control(tmp_path / "router")) as router:
            found = _changes(RoutingPlan(), table, router)
        thread.join(10)
    assert (found["read_anew"], found["not_forwarded"]) == (1, 0)
