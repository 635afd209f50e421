"""Frames whose checksum is left to others, in tunnels and behind headers of every kind: whoever takes that gets them as
they are, and everybody else finished."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from front_end import F_INDIRECT, F_MERGEABLE, F_VERSION_1, SENDS, FrontEnd, PackedFrontEnd
from private_network import End, Network
from running_switch import RunningSwitch
from scapy.contrib.geneve import GENEVE
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrHopByHop, IPv6ExtHdrSegmentRouting
from scapy.layers.l2 import GRE, Dot1AD, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet, Raw

PLAIN = F_VERSION_1 | F_MERGEABLE | F_INDIRECT
#: VIRTIO_NET_F_CSUM, GUEST_CSUM, GUEST_TSO4, GUEST_TSO6, HOST_TSO4, HOST_TSO6.
OFFLOADS = PLAIN | 1 << 0 | 1 << 1 | 1 << 7 | 1 << 8 | 1 << 11 | 1 << 12
TCP, CHECKSUM = 6, 16
TCP4, TCP6 = 1, 4


def added(data: bytes) -> int:
    """The sum of the 16-bit words (RFC 1071), not inverted."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@dataclass(frozen=True)
class Sent:
    """A frame with a TCP segment in it whose checksum is not finished, and the same finished."""

    header: bytes
    frame: bytes
    finished: bytes


def segment(source: str, destination: str, length: int = 41) -> tuple[bytes, int]:
    """A TCP header and payload without a checksum, and the sum of the pseudo header."""
    tcp = struct.pack(">HHIIBBHHH", 1024, 80, 1, 1, 0x50, 0x18, 1000, 0, 0) + bytes(range(length))
    addresses = ipaddress.ip_address(source).packed + ipaddress.ip_address(destination).packed
    return tcp, added(addresses + struct.pack(">II", len(tcp), TCP))


def sent(wrap: Callable[[Packet], Packet], *, six: bool = False, final: str = "") -> Sent:
    """`wrap` puts what is around it around the segment; `final` is where it goes, if its header says otherwise."""
    source, destination = ("fd00::1", "fd00::2") if six else ("192.0.2.1", "192.0.2.2")
    tcp, pseudo = segment(source, final or destination)
    network = IPv6(src=source, dst=destination, nh=TCP) if six else IP(src=source, dst=destination, proto=TCP)
    whole = bytes(wrap(network / Raw(tcp)))
    at = whole.rindex(tcp)

    def with_sum(total: int) -> bytes:
        return whole[: at + CHECKSUM] + struct.pack(">H", total) + whole[at + CHECKSUM + 2 :]

    header = struct.pack("<BBHHHH", 1, 0, 0, 0, at, CHECKSUM)
    return Sent(header, with_sum(pseudo), with_sum(0xFFFF ^ added(with_sum(pseudo)[at:])))


def ether(inner: Packet) -> Packet:
    return Ether(src="02:00:00:00:00:0a", dst="02:00:00:00:00:0b") / inner


def tagged(count: int) -> Callable[[Packet], Packet]:
    def wrap(inner: Packet) -> Packet:
        for number in range(count):
            inner = Dot1Q(vlan=10 + number) / inner
        return ether(inner)

    return wrap


def udp(port: int) -> Packet:
    return UDP(sport=5555, dport=port, chksum=0)


def behind(*headers: Packet) -> Callable[[Packet], Packet]:
    """Between the IPv6 header and what it carries."""

    def wrap(inner: Packet) -> Packet:
        carried: Packet = inner.payload
        inner.remove_payload()
        del inner.nh
        headers[-1].nh = TCP
        for header in headers:
            inner = inner / header
        return ether(inner / carried)

    return wrap


OVN = bytes.fromhex("0102800100010002")  # an option of 8 bytes, as OVN puts into each frame
SEGMENTS = [f"fd00::{number}" for number in range(10, 17)]
FRAMES = {
    "TCP": sent(ether),
    "three tags": sent(tagged(3)),
    "four tags, IPv6": sent(tagged(4), six=True),
    "six tags": sent(tagged(6)),
    "a service tag, and two": sent(lambda inner: ether(Dot1AD(vlan=5) / Dot1Q(vlan=6) / Dot1Q(vlan=7) / inner)),
    "MPLS": sent(lambda inner: ether(MPLS(label=16, s=0) / MPLS(label=17, s=0) / MPLS(label=18, s=1) / inner)),
    "IP in IP": sent(lambda inner: ether(IP() / inner)),
    "GRE over IPv6": sent(lambda inner: ether(IPv6() / GRE(key_present=1, key=7) / inner), six=True),
    "VXLAN over IPv4": sent(lambda inner: ether(IP() / udp(4789) / VXLAN(vni=7) / ether(inner)), six=True),
    "VXLAN over IPv6": sent(lambda inner: ether(IPv6() / udp(4789) / VXLAN(vni=7) / ether(inner)), six=True),
    "Geneve with OVN's option": sent(
        lambda inner: ether(IP() / udp(6081) / GENEVE(vni=7, options=Raw(OVN)) / ether(inner)), six=True
    ),
    "Geneve with 64 bytes of options, over IPv6": sent(
        lambda inner: ether(IPv6() / udp(6081) / GENEVE(vni=7, optionlen=16, options=Raw(OVN * 8)) / ether(inner))
    ),
    "a tunnel in a tunnel": sent(
        lambda inner: ether(
            IPv6() / udp(4789) / VXLAN(vni=1) / ether(Dot1Q(vlan=9) / IPv6() / udp(4789) / VXLAN(vni=2) / ether(inner))
        ),
        six=True,
    ),
    "options for every hop, and for the destination": sent(behind(IPv6ExtHdrHopByHop(), IPv6ExtHdrDestOpt()), six=True),
    "a route of seven segments": sent(
        behind(IPv6ExtHdrSegmentRouting(addresses=SEGMENTS, segleft=6)), six=True, final=SEGMENTS[0]
    ),
}
PATHS = {
    "hop": {"chains": {"x": {"from": "a", "through": [], "to": "b"}}},
    "rules": {"chains": {"x": {"from": "a", "through": [], "to": "b", "match": [{"vlan": [0, 4094]}]}}},
    "bridge": {"bridges": {"lan": {"ports": {"a": {}, "b": {}}}}},
}


@pytest.fixture
def switch(asan_binaries: Path, tmp_path: Path) -> Iterator[RunningSwitch]:
    running = RunningSwitch(asan_binaries / "switch/tailrace-switch", tmp_path, "--idle", "sleep")
    yield running
    assert running.end() == 0


def attached(switch: RunningSwitch, name: str, guest: FrontEnd) -> FrontEnd:
    guest.start(switch.add_guest(name))
    switch.wait_state(name, "up")
    return guest


def crossed(sender: FrontEnd, receiver: FrontEnd, one: Sent) -> bytes:
    receiver.offer_buffers(1)
    sender.send(one.frame, one.header)
    sender.kicks(SENDS)
    (frame,) = receiver.wait_received(1)
    return frame


@pytest.mark.parametrize("kind", [FrontEnd, PackedFrontEnd], ids=["split", "packed"])
def test_a_checksum_is_finished_for_whoever_does_not(switch: RunningSwitch, kind: type[FrontEnd]) -> None:
    sender = attached(switch, "a", kind(features=OFFLOADS))
    for features in (PLAIN, OFFLOADS):
        receiver = attached(switch, "b", kind(features=features))
        for path in PATHS.values():
            switch.patch(chains=None, bridges=None)
            switch.patch(**path)
            for name, one in FRAMES.items():
                expected = one.finished if features == PLAIN else one.frame
                assert crossed(sender, receiver, one) == expected, (name, path)
        receiver.end()
        switch.wait_state("b", "waiting")
    assert switch.counters("a")["drop_offload_malformed"] == 0
    sender.end()


@pytest.mark.requires_root
@pytest.mark.requires_program("ip")
def test_a_checksum_is_finished_for_an_interface(network: Network, asan_binaries: Path, tmp_path: Path) -> None:
    switch = RunningSwitch(
        asan_binaries / "switch/tailrace-switch", tmp_path,
        "--idle", "sleep", "--memory", "256", "--keep", "net_raw,net_admin", within=network.within,
    )  # fmt: skip
    network.pair("left", "right")
    switch.add_device("wan", "if:left")
    switch.wait_state("wan", "up")
    sender = attached(switch, "a", FrontEnd(features=OFFLOADS))
    switch.join("a", "wan")
    end = End(network, "right")
    # Linux hands the outermost tag to a socket apart from the frame.
    untagged = {name: one for name, one in FRAMES.items() if one.frame[12:14] not in (b"\x81\x00", b"\x88\xa8")}
    for name, one in untagged.items():
        sender.send(one.frame, one.header)
        sender.kicks(SENDS)
        assert end.wait_received(1) == [one.finished], name
    end.close()
    sender.end()
    assert switch.end() == 0


def test_a_long_segment_is_cut_under_three_tags_and_behind_a_long_route(switch: RunningSwitch) -> None:
    """For whoever does not: in parts of 20 bytes each, every one of which is right."""
    sender = attached(switch, "a", FrontEnd(features=OFFLOADS))
    receiver = attached(switch, "b", FrontEnd(features=PLAIN))
    switch.join("a", "b")
    for name, kind in (("three tags", TCP4), ("MPLS", TCP4), ("a route of seven segments", TCP6)):
        one = FRAMES[name]
        start = struct.unpack_from("<H", one.header, 6)[0]
        receiver.offer_buffers(3)
        sender.send(one.frame, struct.pack("<BBHHHH", 1, kind, 0, 20, start, CHECKSUM))
        sender.kicks(SENDS)
        parts = receiver.wait_received(3)
        assert [len(part) - start - 20 for part in parts] == [20, 20, 1]
        assert b"".join(part[start + 20 :] for part in parts) == one.frame[start + 20 :]
        whole = struct.unpack(">H", one.frame[start + CHECKSUM : start + CHECKSUM + 2])[0]
        for part in parts:
            # The pseudo header's own sum, with this one's length in the place of the whole one's.
            pseudo = whole + 0xFFFF - (len(one.frame) - start) + (len(part) - start)
            assert added(struct.pack(">I", pseudo) + part[start:]) == 0xFFFF, name
    for guest in (sender, receiver):
        guest.end()
