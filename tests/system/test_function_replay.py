"""What two real TCP/IP stacks say to each other, replayed through a firewall and a NAT: each frame is accounted for. So
are public captures, in the firewall, as scapy reckons them."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from one_network import Host
from replaying import Seen, accounted, function, heard_by, listening, replaying, shown
from running_switch import wait_until
from scapy.layers.inet import IP, TCP
from scapy.packet import Packet
from scapy.plist import PacketList
from scapy.utils import rdpcap
from test_firewall import SERVER, WEB

pytestmark = [
    pytest.mark.requires_root,
    pytest.mark.unsanitized,
    pytest.mark.requires_program("tailrace-vnf", "ip", "ping", "curl", "ethtool"),
]
IPV4, IPV6 = b"\x08\x00", b"\x86\xdd"
PUBLIC = Path(__file__).parent / "public"
SERVER_OF_NAMES = "95.211.92.14"  # of most questions in dns.pcap
POOL, INSIDE = "203.0.113.0/30", "198.18.80.1/32"


@pytest.fixture(scope="module")
def conversation(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    """Pings, also in fragments, and a page by HTTP, of IPv4 and IPv6."""
    mark = os.getpid() % 100_000
    left, right = Host(f"tql{mark}", 1), Host(f"tqr{mark}", 2)
    folder, program = tmp_path_factory.mktemp("replay"), binaries / "functions/tailrace-vnf"
    with ExitStack() as stack:
        for host in (left, right):
            stack.callback(host.remove)
            host.make()
            host.run("ethtool", "-K", "eth0", "tx", "off")
        ears = [stack.enter_context(listening(host.namespace)) for host in (left, right)]
        stack.enter_context(function(program, folder, "skeleton", (left.namespace, right.namespace)))
        for to in right.addresses.values():
            wait_until(lambda to=to: left.reaches(to), "the hosts reach each other")  # type: ignore[misc]
            assert left.reaches(to, "-s", "3000")
        with right.serves(WEB, "python3", "-c", SERVER):
            for version in (4, 6):
                host = right.addresses[version] if version == 4 else f"[{right.addresses[version]}]"
                left.run("curl", "-sS", "-I", "--max-time", "20", f"http://{host}:{WEB}/")
        seen = [(when, port, frame) for port, ear in enumerate(ears) for frame, when in heard_by(ear)]
    frames = [Seen(port, frame) for _, port, frame in sorted(seen)]
    four = {each.frame[23] for each in frames if each.frame[12:14] == IPV4}
    six = {each.frame[20] for each in frames if each.frame[12:14] == IPV6}
    assert four >= {socket.IPPROTO_ICMP, socket.IPPROTO_TCP}
    assert six >= {socket.IPPROTO_ICMPV6, socket.IPPROTO_TCP, socket.IPPROTO_FRAGMENT}
    return frames


@pytest.mark.parametrize("threads", [1, 3])
def test_a_firewall_passes_what_belongs_together(
    threads: int, binaries: Path, tmp_path: Path, conversation: list[Seen]
) -> None:
    with replaying(binaries, tmp_path, "firewall", threads=threads) as replay:
        replay.control.call("configure", rules=[{"name": "out", "action": "allow", "port": 0, "match": [{}]}])
        out = replay.play(conversation)
        counters = shown(replay.control)
    accounted(counters, "filtered", conversation, out)
    for port in range(2):
        came = [each.frame for each in conversation if each.port == port]
        assert out[port] == came if threads == 1 else sorted(out[port]) == sorted(came)  # each flow has its own order


@pytest.mark.parametrize("threads", [1, 3])
def test_a_nat_accounts_for_every_frame(threads: int, binaries: Path, tmp_path: Path, conversation: list[Seen]) -> None:
    with replaying(binaries, tmp_path, "nat", f"pool={POOL}", f"inside={INSIDE}", threads=threads) as replay:
        out = replay.play(conversation)
        counters = shown(replay.control)
    accounted(counters, "translated", conversation, out)
    sources = [ip_address(frame[26:30]) for frame in out[0] if frame[12:14] == IPV4]
    assert sources and all(source in ip_network(POOL) for source in sources)
    # The answers are to the inside address itself, which nobody outside knows: no connection gets beyond its SYN.
    assert counters["translated"][1]["drop_inside"] > 0
    assert counters["translated"][0]["drop_state"] > 0


def captured(name: str) -> list[Packet]:
    return list(rdpcap(str(PUBLIC / f"{name}.pcap")))


def conversation_of(packet: Packet) -> str:
    """Of both directions."""
    transport = packet[IP].payload
    ends = (f"{packet[IP].src}:{transport.sport}", f"{packet[IP].dst}:{transport.dport}")
    return f"{packet[IP].proto} {min(ends)} {max(ends)}"


def test_a_public_capture_is_counted_as_scapy_counts_it(binaries: Path, tmp_path: Path) -> None:
    """The questions of `dns.pcap`, of which a rule allows those to one server; the connection of `http.pcap`; and this
    once more, from other ports and without its SYN, and with checksums that do not hold."""
    http, dns = captured("http"), captured("dns")
    opener = http[0][IP].src
    late, broken = [each.copy() for each in http[1:]], [each.copy() for each in http]
    for each in late:
        each[TCP].sport, each[TCP].dport = (port + (port != 80) for port in (each[TCP].sport, each[TCP].dport))
    for each in broken:
        each[IP].chksum ^= 1
    known = [each for each in dns if each[IP].dst == SERVER_OF_NAMES]
    refused = [each for each in dns if each not in known]

    def of(port: int, packets: list[Packet]) -> int:
        return sum(int(TCP in each and each[IP].src != opener) == port for each in packets)

    played = [Seen(of(1, [each]), bytes(each)) for each in (*dns, *late, *broken, *http)]
    web = {"name": "web", "action": "allow", "port": 0, "match": [{"protocol": 6, "destination_port": 80}]}
    names = {"name": "names", "action": "allow", "port": 0, "match": [{"destination": f"{SERVER_OF_NAMES}/32"}]}
    with replaying(binaries, tmp_path, "firewall") as replay:
        replay.control.call("configure", rules=[web, names])
        out = replay.play(played)
        counters, tables = shown(replay.control), replay.control.call("show", most=100)["tables"]
    accounted(counters, "filtered", played, out)
    for port, did in enumerate(counters["filtered"]):
        reckoned = {
            "passed": of(port, known) + of(port, http),
            "drop_rule": of(port, refused),
            "drop_state": of(port, late),
            "drop_checksum": of(port, broken),
        }
        assert {name: count for name, count in did.items() if count} == {name: n for name, n in reckoned.items() if n}
    decided = {row["rule"]: (row["frames"], row["bytes"]) for row in tables["rules"]["rows"]}
    assert decided == {
        "web": (1, len(http[0])),
        "names": (len(known), sum(map(len, known))),
        "default": (len(refused), sum(map(len, refused))),
    }
    conversations = PacketList(http + known).sessions(conversation_of)
    assert counters["connections"]["begun"] == len(conversations)
    states = sorted(row["state"] for row in tables["connections"]["rows"])
    assert states == ["one_way"] * len(known) + ["time_wait"]
