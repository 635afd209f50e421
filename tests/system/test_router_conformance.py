"""What a router must and must not do with packets, by RFC 1812 and RFC 4443: scapy makes them and reads what comes out.

The router's ports are capture files: all of a test comes in at port 0, and what leaves is looked at when it has ended.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from routed_hosts import run
from running_node import wait_until
from scapy.error import Scapy_Exception
from scapy.layers.inet import ICMP, IP, UDP, IPOption_NOP, IPOption_RR
from scapy.layers.inet6 import (
    HBHOptUnknown,
    ICMPv6DestUnreach,
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6PacketTooBig,
    ICMPv6ParamProblem,
    ICMPv6TimeExceeded,
    IPv6,
    IPv6ExtHdrHopByHop,
    PadN,
)
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Raw
from scapy.utils import rdpcap, wrpcap

from tailrace.process.control import Control

pytestmark = [pytest.mark.requires_root, pytest.mark.requires_program("ip", "tailrace-vnf")]
MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")
HOSTS = ("02:00:00:00:00:11", "02:00:00:00:00:12")
US, FAR, NOWHERE = "198.18.78.1", "198.18.79.2", "203.0.113.1"
US6, FAR6, NOWHERE6 = "2001:db8:78::1", "2001:db8:79::2", "2001:db8:ffff::1"
MTU = 1400


@dataclass
class Seen:
    """What came out of it."""

    back: list[Packet]
    """Of port 0, to who has sent."""
    on: list[Packet]
    counters: dict[str, Any]
    """Of what came in, by what became of it."""
    log: list[str]

    def errors(self, kind: Any) -> list[Packet]:
        return [each for each in self.back if kind in each]

    def senders(self) -> list[int]:
        """Whose packets went on, in order."""
        return [int(each[UDP].sport) for each in self.on if UDP in each]


@dataclass
class Router:
    """The namespace that it lives in, and the program."""

    namespace: str
    program: Path
    folder: Path
    numbers: Iterator[int] = field(default_factory=count)

    def take(self, *frames: Packet) -> Seen:
        """Lets all of them come in, and looks at what left when the last two have: one that the kernel answers, and one
        that it forwards. What goes to the kernel keeps its order."""
        last = 200 + next(self.numbers)
        frames = (*frames, ipv4(last, ttl=1), ipv4(last, options=[IPOption_NOP()] * 4))
        come, left = self.folder / "in.pcap", [self.folder / f"out{port}.pcap" for port in range(2)]
        for each in left:
            each.unlink(missing_ok=True)
        wrpcap(str(come), [Ether(dst=MACS[0], src=HOSTS[0]) / each for each in frames])
        control, log = self.folder / "control", self.folder / "log"
        words = [str(self.program), "router", "--port", f"pcap:{come},{left[0]}", "--port", f"pcap:,{left[1]}"]
        words += ["--mode", "interrupt", "--memory", "256", "--control", str(control)]
        with log.open("w") as said:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, *words], stdout=subprocess.DEVNULL, stderr=said
            )

        def ended() -> bool:
            back, on = (read(path) for path in left)
            return any(IP in each and each[IP].dst == f"198.51.100.{last}" for each in back) and any(
                IP in each and each[IP].src == f"198.51.100.{last}" for each in on
            )

        try:
            wait_until(ended)
            asked = Control(control)
            counters = asked.call("show", most=0)["counters"]
            asked.close()
        finally:
            process.terminate()
            process.wait(60)
        back, on = ([each for each in read(path) if not is_last(each, f"198.51.100.{last}")] for path in left)
        return Seen(back, on, counters["routed"][0], log.read_text().splitlines())


def read(path: Path) -> list[Packet]:
    """Whole frames, of IP, that are there by now."""
    try:
        return [each for each in rdpcap(str(path)) if (IP in each or IPv6 in each) and not noise(each)]
    except (OSError, EOFError, Scapy_Exception):
        return []


def noise(packet: Packet) -> bool:
    """What the kernel says by itself: to groups."""
    return bool(int(packet.dst[:2], 16) & 1)


def is_last(packet: Packet, address: str) -> bool:
    return IP in packet and address in (packet[IP].src, packet[IP].dst)


@pytest.fixture(scope="module", name="router")
def made(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    name = f"trc{os.getpid() % 100_000}"
    run("ip", "netns", "add", name)
    try:
        switches = ("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv6.conf.default.accept_dad=0")
        run("ip", "netns", "exec", name, "sysctl", "-qw", *switches)
        run("ip", "-n", name, "link", "set", "lo", "up")
        for port in range(2):
            words = ("ip", "-n", name)
            run(*words, "tuntap", "add", "dev", f"port{port}", "mode", "tap", "multi_queue")
            run(*words, "link", "set", f"port{port}", "address", MACS[port], "up")
            for address, length in ((f"198.18.{78 + port}.", 24), (f"2001:db8:{78 + port}::", 64)):
                run(*words, "address", "add", f"{address}1/{length}", "dev", f"port{port}")
                run(*words, "neigh", "add", f"{address}2", "lladdr", HOSTS[port], "dev", f"port{port}")
        run("ip", "-n", name, "link", "set", "port1", "mtu", str(MTU))
        # Senders of their own, so that each is answered: Linux limits its errors by who gets them.
        run("ip", "-n", name, "route", "add", "198.51.100.0/24", "via", "198.18.78.2")
        run("ip", "-n", name, "route", "add", "2001:db8:100::/48", "via", "2001:db8:78::2")
        run("ip", "-n", name, "route", "add", "blackhole", "192.0.2.0/24")
        yield Router(name, binaries / "functions" / "tailrace-vnf", tmp_path_factory.mktemp("conformance"))
    finally:
        run("ip", "netns", "delete", name)


def ipv4(sender: int, to: str = FAR, size: int = 20, **fields: Any) -> Packet:
    return IP(src=f"198.51.100.{sender}", dst=to, id=sender, **fields) / UDP(sport=sender, dport=9) / Raw(bytes(size))


def ipv6(sender: int, to: str = FAR6, size: int = 20, **fields: Any) -> Packet:
    packet = IPv6(src=f"2001:db8:100::{sender}", dst=to, **fields)
    return packet / UDP(sport=sender, dport=9) / Raw(bytes(size))


def with_option(sender: int, option: Packet) -> Packet:
    return IPv6(src=f"2001:db8:100::{sender}", dst=FAR6) / IPv6ExtHdrHopByHop(options=[option]) / UDP(sport=sender)


def whole(packet: Packet) -> bool:
    """Whether the checksum of its IPv4 header holds."""
    again = packet[IP].copy()
    del again.chksum
    return bool(IP(bytes(again)).chksum == packet[IP].chksum)


def quoted(error: Packet) -> bytes:
    """What an error says of its cause: the datagram from its IP header on."""
    return bytes(error[ICMP].payload)


def test_hops_are_counted_down_to_the_last(router: Router) -> None:
    seen = router.take(
        ipv4(1), ipv4(2, ttl=2), ipv4(3, ttl=1), ipv4(4, ttl=0), ipv6(5), ipv6(6, hlim=2), ipv6(7, hlim=1)
    )
    assert sorted(seen.senders()) == [1, 2, 5, 6]
    for each in seen.on:
        assert (each.src, each.dst) == (MACS[1], HOSTS[1])
    assert {each[UDP].sport: each[IP].ttl for each in seen.on if IP in each} == {1: 63, 2: 1}
    assert {each[UDP].sport: each[IPv6].hlim for each in seen.on if IPv6 in each} == {5: 63, 6: 1}
    assert all(whole(each) for each in seen.on if IP in each)
    answers = {each[IP].dst: each for each in seen.errors(ICMP)}
    assert set(answers) == {"198.51.100.3", "198.51.100.4"}
    error = answers["198.51.100.3"]
    assert (error[ICMP].type, error[ICMP].code, error[IP].src) == (11, 0, US)
    assert quoted(error)[:28] == bytes(IP(bytes(ipv4(3, ttl=1))))[:28]  # RFC 1812, 4.3.2.3
    (error6,) = seen.errors(ICMPv6TimeExceeded)
    assert (error6[ICMPv6TimeExceeded].code, error6[IPv6].src, error6[IPv6].dst) == (0, US6, "2001:db8:100::7")


def test_what_has_no_way_is_reported_and_a_black_hole_is_silent(router: Router) -> None:
    seen = router.take(ipv4(11, NOWHERE), ipv6(12, NOWHERE6), ipv4(13, "192.0.2.1"))
    (error,) = seen.errors(ICMP)
    assert (error[ICMP].type, error[ICMP].code, error[IP].dst) == (3, 0, "198.51.100.11")  # RFC 1812, 4.3.3.1
    (error6,) = seen.errors(ICMPv6DestUnreach)
    assert (error6[ICMPv6DestUnreach].code, error6[IPv6].dst) == (0, "2001:db8:100::12")  # RFC 4443, 3.1
    assert seen.counters["drop_blackhole"] == 1 and not seen.senders()


def test_martians_go_nowhere(router: Router) -> None:
    sources = ("127.0.0.1", "0.0.0.0", "224.0.0.1", "240.0.0.1", "255.255.255.255")
    targets = ("0.0.0.0", "127.0.0.1", "240.0.0.1")
    packets: list[Packet] = [IP(src=each, dst=FAR) / UDP(sport=1) for each in sources]
    packets += [IP(src="198.51.100.21", dst=each) / UDP(sport=1) for each in targets]
    packets += [IPv6(src=each, dst=FAR6) / UDP(sport=1) for each in ("::", "::1", "ff02::1", "::ffff:10.0.0.1")]
    packets += [IPv6(src="2001:db8:100::21", dst=each) / UDP(sport=1) for each in ("::1", "::ffff:10.0.0.1")]
    seen = router.take(*packets)
    assert seen.counters["drop_martian"] == len(packets)  # RFC 1812, 5.3.7; RFC 4291, 2.5; RFC 6890
    assert not seen.on and not seen.back


def test_headers_that_do_not_hold_are_dropped_by_name(router: Router) -> None:
    seen = router.take(
        ipv4(31, chksum=1),
        ipv4(32, version=5),
        ipv4(33, len=100),
        ipv4(34, ihl=4),
        ipv6(35, plen=100),
        ipv6(36, version=4),
    )
    named = {name: count for name, count in seen.counters.items() if name.startswith("drop_") and count}
    assert named == {"drop_checksum": 1, "drop_version": 2, "drop_length": 3}  # RFC 1812, 5.2.2
    assert not seen.on and not seen.back


def test_options_are_seen_to(router: Router) -> None:
    seen = router.take(
        ipv4(41, options=[IPOption_NOP()] * 4),
        ipv4(42, options=[IPOption_RR(routers=["0.0.0.0", "0.0.0.0"])]),
        with_option(43, PadN(optdata=bytes(4))),
        with_option(44, HBHOptUnknown(otype=0x9E, optdata=b"1234")),
        with_option(45, HBHOptUnknown(otype=0x1E, optdata=b"1234")),
    )
    assert sorted(seen.senders()) == [41, 42, 43, 45]
    recorded = next(each for each in seen.on if each[UDP].sport == 42)
    assert recorded[IP].options[0].routers[0] == "198.18.79.1" and whole(recorded)  # RFC 1812, 5.3.13.4
    (error,) = seen.errors(ICMPv6ParamProblem)  # RFC 8200, 4.2: what a router does not know, with these bits
    assert (error[ICMPv6ParamProblem].code, error[IPv6].dst) == (2, "2001:db8:100::44")


def test_what_is_too_long_is_cut_or_reported(router: Router) -> None:
    seen = router.take(
        ipv4(51, size=MTU - 27, flags="DF"), ipv4(52, size=MTU - 27), ipv6(53, size=MTU - 47), ipv4(54, size=MTU - 28)
    )
    (error,) = seen.errors(ICMP)
    assert (error[ICMP].type, error[ICMP].code, error[ICMP].nexthopmtu) == (3, 4, MTU)  # RFC 1191, 4
    assert error[IP].dst == "198.51.100.51"
    (error6,) = seen.errors(ICMPv6PacketTooBig)
    assert (error6[ICMPv6PacketTooBig].mtu, error6[IPv6].dst) == (MTU, "2001:db8:100::53")  # RFC 4443, 3.2
    assert len(bytes(error6[IPv6])) <= 1280
    pieces = [each for each in seen.on if each[IP].id == 52]
    assert len(pieces) == 2 and all(len(each[IP]) <= MTU and whole(each) for each in pieces)
    assert sum(each[IP].len - 20 for each in pieces) == 8 + MTU - 27
    assert [len(each[IP]) for each in seen.on if each[IP].id == 54] == [MTU]


def test_no_error_answers_what_must_have_none(router: Router) -> None:
    error = ICMP(type=3, code=1) / IP(src=FAR, dst="198.51.100.61") / UDP()
    error6 = ICMPv6DestUnreach(code=1) / IPv6(src=FAR6, dst="2001:db8:100::62") / UDP()
    seen = router.take(
        IP(src="198.51.100.61", dst=FAR, ttl=1) / error,  # RFC 1812, 4.3.2.7
        IPv6(src="2001:db8:100::62", dst=FAR6, hlim=1) / error6,  # RFC 4443, 2.4 (e.1)
        IP(src="198.51.100.63", dst=FAR, ttl=1, frag=100) / Raw(bytes(64)),
        ipv4(64, "198.18.79.255", ttl=1),
        IPv6(src="2001:db8:100::65", dst="ff0e::9", hlim=1) / ICMPv6EchoRequest(),
    )
    assert not seen.errors(ICMP) and not seen.on
    assert not [each for each in seen.back if IPv6 in each]


def test_a_storm_of_arp_keeps_nothing_else_out(router: Router) -> None:
    """What its queue has no room for is dropped by name; what is to be forwarded, or for another class, has its own."""
    storm = [ARP(op="who-has", hwsrc=HOSTS[0], psrc=f"198.18.78.{2 + n % 100}", pdst=US) for n in range(1000)]
    seen = router.take(*storm, *(ipv4(81 + n) for n in range(8)), *storm)
    assert seen.senders() == [81 + n for n in range(8)]
    assert seen.counters["kernel_neighbours"] + seen.counters["drop_kernel_neighbours"] == 2 * len(storm)
    assert seen.counters["kernel_neighbours"] >= 511
    assert seen.counters["drop_kernel_itself"] == seen.counters["drop_kernel_others"] == 0
    assert len(seen.log) < 20


def redirect(better: str, about: Packet) -> Packet:
    """From the next hop of the senders' network, which the router believes where it is no router."""
    return IP(src="198.18.78.2", dst=US) / ICMP(type=5, code=1, gw=better) / about


def test_redirects_are_not_believed(router: Router) -> None:
    to = "198.51.100.91"
    run("ip", "-n", router.namespace, "neigh", "replace", "198.18.78.9", "lladdr", HOSTS[1], "dev", "port0")
    about = IP(src=US, dst=to) / ICMP(type=0, id=1)
    way = ("ip", "-n", router.namespace, "route", "get", to)
    assert "via 198.18.78.2 " in run(*way)
    seen = router.take(redirect("198.18.78.9", about), ipv4(91, ttl=1))
    assert "via 198.18.78.2 " in run(*way) and "redirected" not in run(*way)
    (error,) = seen.errors(ICMP)
    assert error.dst == HOSTS[0] and seen.counters["kernel_itself"] == 1


def test_an_error_that_lies_about_a_path_changes_no_path(router: Router) -> None:
    """Who says that a packet of the router's was too long has seen none; others' are as long as the link takes."""
    lie = ICMP(type=3, code=4, nexthopmtu=600) / IP(src=US, dst=FAR) / ICMP(type=0, id=1)
    lie6 = ICMPv6PacketTooBig(mtu=1280) / IPv6(src=US6, dst=FAR6) / ICMPv6EchoReply(id=1)
    seen = router.take(
        IP(src="198.18.79.9", dst=US) / lie,
        IPv6(src="2001:db8:100::9", dst=US6) / lie6,
        ipv4(92, size=MTU - 28, flags="DF"),
        ipv6(93, size=MTU - 48),
    )
    assert sorted(seen.senders()) == [92, 93] and not seen.errors(ICMP) and not seen.errors(ICMPv6PacketTooBig)
    assert {len(bytes(each)) for each in seen.on} == {14 + MTU}


def test_errors_are_limited(router: Router) -> None:
    seen = router.take(*[ipv4(71, ttl=1)] * 100, *[ipv6(72, hlim=1)] * 100)
    for kind in (ICMP, ICMPv6TimeExceeded):
        assert 1 <= len(seen.errors(kind)) <= 20  # RFC 1812, 4.3.2.8; RFC 4443, 2.4 (f)
