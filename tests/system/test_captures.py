"""Captures as traffic: what the tester makes of a file, and that frames are found again whatever a device may change.

A device that forwards may change all of what `CHANGES` has, and is none the worse for it: nothing may count as lost.
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from captures import TAG, pcap_of, pcapng_of, write_capture
from private_network import End, Network, statistics
from running_tester import RunningTester, Trial, stream
from scapy.layers.inet import ICMP, IP, TCP, UDP, fragment
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet

from tailrace.errors import Mistake
from tailrace.measure.profile import Contents, capture

# ------- the file -------


@pytest.fixture(autouse=True)
def sanitized(asan_binaries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_BINARIES", str(asan_binaries))


FORMS = {"pcap": None, "pcapng": 6, "old": 2, "simple": 3}


def made(form: str, order: str, *frames: tuple[int, int], type_of: bytes = b"\x08\x00") -> bytes:
    kind = FORMS[form]
    if kind is None:
        return pcap_of(*frames, order=order, kind=type_of)
    return pcapng_of(*frames, order=order, kind=kind, type_of=type_of)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("form", FORMS)
def test_the_longest_payload_of_a_capture_is_known(tmp_path: Path, form: str, order: str) -> None:
    """A VLAN tag is no part of it (IEEE 802.3); the mean is of the frames as they are sent, padded, with the FCS."""
    path = tmp_path / "t.pcap"
    for tag, payload in ((b"\x08\x00", 1486), (TAG, 1482)):
        path.write_bytes(made(form, order, (40, 40), (1500, 1500), (1499, 1499), type_of=tag))
        found = capture(path)
        assert found.contents == Contents((64 + 1504 + 1503) / 3, 2, 1500, payload)
        assert (found.name, found.traffic) == ("pcap", {"pcap": str(path)})


@pytest.mark.parametrize("form", FORMS)
def test_a_bad_file_is_refused_with_the_reason(tmp_path: Path, form: str) -> None:
    path = tmp_path / "t.pcap"
    whole = made(form, "<", (60, 60), (60, 60), (60, 60))
    for content, said in (
        (whole[:-1], r"ends within frame 3: it was cut off.*`editcap -r .*t.pcap OUT 1-2`"),
        (made(form, ">", (60, 60), (64, 1500)), "frame 2 was cut to 64 of 1500 bytes when it was captured"),
        (made(form, "<"), "there is no frame in it; expected at least one"),
        (b"", "this is no capture file; expected a pcap or pcapng file"),
        (b"\x0a\x0d\x0d\x0a", "this is no capture file"),
    ):
        path.write_bytes(content)
        with pytest.raises(Mistake, match=rf"^{path}: .*{said}"):
            capture(path)
    path.unlink()
    with pytest.raises(Mistake, match=rf"^{path}: No such file or directory; expected a capture file"):
        capture(path)


def test_what_is_not_sent_as_it_was_captured_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "t.pcap"
    write_capture(path, [bytes(60), bytes(1514)])
    assert capture(path).note is None
    ack = bytes(Ether() / IP() / TCP(flags="A"))
    write_capture(path, [bytes(14), bytes(60), ack, ack + bytes(6), bytes(59)])
    assert capture(path).note == (
        "2 of the 5 frames of t.pcap are shorter than 60 bytes: they are sent padded with zeros to 60, the shortest "
        "that Ethernet has (without the FCS); "
        "2 of the 5 frames of t.pcap have less than 18 bytes behind their headers: they are sent with up to 18 bytes "
        "more, in which the tester's signature stands; "
        "1 of the 5 frames of t.pcap have bytes behind their IP datagram, such as padding: these are not sent, as no "
        "router sends them on"
    )


@pytest.mark.whole
def test_a_capture_larger_than_the_tester_reads_is_refused(tmp_path: Path) -> None:
    """With holes: nothing of it is on the disk."""
    path, number, length = tmp_path / "t.pcap", 16_500, 65_200
    with path.open("wb") as file:
        file.write(pcap_of())
        for index in range(number):
            file.seek(24 + index * (16 + length))
            file.write(pcap_of((length, length))[24:40])
        file.truncate(24 + number * (16 + length))
    with pytest.raises(Mistake, match=r"larger than 1024 MiB; expected a part of it \(`editcap -r .* OUT 1-16468`\)"):
        capture(path)


# ------- the device -------

NEAR, FAR, DEVICE = "02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:01"


def mixed() -> list[bytes]:
    """Frames of many kinds, with and without room for a signature, and padded as they come off a wire."""
    ip = IP(src="198.18.1.2", dst="198.19.1.2")
    six = IPv6(src="2001:db8::1", dst="2001:db8::2")
    text = bytes(range(256)) * 5
    packets = [
        ip / TCP(flags="A"),
        ip / TCP(flags="S", options=[("MSS", 1460), ("SAckOK", b"")]),
        ip / TCP(flags="PA") / text[:7],
        ip / TCP(flags="PA") / text[:1001],
        ip / UDP(sport=5000, dport=53) / text[:1],
        ip / UDP(sport=5000, dport=53) / text[:30],
        ip / UDP(sport=5000, dport=53) / text,
        ip / ICMP(type="echo-request") / text[:56],
        six / TCP(flags="A"),
        six / UDP(sport=7, dport=8) / text[:333],
    ]
    frames = [bytes(Ether(src=NEAR, dst=DEVICE) / packet) for packet in packets]
    tagged = [bytes(Ether(src=NEAR, dst=DEVICE) / Dot1Q(vlan=7) / packet) for packet in packets[:2]]
    return [frame.ljust(60, b"\0") for frame in frames] + frames[:1] + tagged


def checked(frame: bytes) -> Packet:
    """The packet, as a firewall looks at it: it drops what has a wrong length or checksum."""
    packet = Ether(frame)
    inner = packet[IP] if IP in packet else packet[IPv6]
    again = inner.copy()
    for layer in (again, again.payload):
        for field in ("chksum", "len", "plen"):
            if layer.fields.get(field):  # a UDP checksum of zero is none
                delattr(layer, field)
    assert bytes(again) == bytes(inner)[: len(again)], inner.summary()
    return packet


def rewritten(packet: Packet) -> bytes:
    """With lengths and checksums made again."""
    for layer in (packet[IP] if IP in packet else packet[IPv6], packet.lastlayer(), packet.getlayer(TCP)):
        if layer is not None and "chksum" in layer.fields:
            del layer.chksum
    return bytes(packet)


def routed(frame: bytes) -> list[bytes]:
    """Other MAC addresses, a hop less, other DSCP, and nothing behind the datagram; Ethernet's padding anew."""
    packet = checked(frame)
    packet.src, packet.dst = DEVICE, FAR
    if IP in packet:
        packet[IP].ttl -= 1
        packet[IP].tos = 46 << 2
        length = len(packet) - len(packet[IP]) + packet[IP].len
        del packet[IP].chksum
    else:
        packet[IPv6].hlim -= 1
        packet[IPv6].tc = 46 << 2
        length = len(packet) - len(packet[IPv6]) + 40 + packet[IPv6].plen
    return [bytes(packet)[:length].ljust(60, b"\0")]


def translated(frame: bytes) -> list[bytes]:
    packet = checked(frame)
    inner = packet[IP] if IP in packet else packet[IPv6]
    inner.src = "203.0.113.9" if IP in packet else "2001:db8:9::9"
    if TCP in packet or UDP in packet:
        inner.payload.sport = 61000
    return [rewritten(packet)]


def tagged(frame: bytes) -> list[bytes]:
    return [frame[:12] + b"\x88\xa8\x00\x64\x81\x00\x00\x07" + frame[12:]]


def untagged(frame: bytes) -> list[bytes]:
    """The tag goes, and what is then too short is padded."""
    return [(frame[:12] + frame[16:] if frame[12:14] == TAG else frame).ljust(60, b"\0")]


def padded(frame: bytes) -> list[bytes]:
    """As a device that puts a trailer of its own behind each frame, or leaves the FCS there."""
    return [frame + b"\xde\xad\xbe\xef\x00\x01"]


def fragmented(frame: bytes) -> list[bytes]:
    """For an MTU of 576 bytes (RFC 791): the last fragment has the end of the datagram."""
    packet = checked(frame)
    if IP not in packet or len(packet[IP]) <= 576:
        return [frame]
    head = frame[: len(packet) - len(packet[IP])]
    return [(head + bytes(part)).ljust(60, b"\0") for part in fragment(packet[IP], 552)]


CHANGES = [routed, translated, tagged, untagged, padded, fragmented]


@contextmanager
def device(network: Network, change: Callable[[bytes], list[bytes]]) -> Iterator[list[int]]:
    """Between two ends of the network: what comes in at one goes out at the other as `change` makes it. Frames in, and
    frames out."""
    counts, failed = [0, 0], list[BaseException]()
    ended = socket.socketpair()
    near, far = End(network, "da"), End(network, "db")

    def run() -> None:
        try:
            while ended[0] not in select.select([ended[0], near.descriptor], [], [])[0]:
                for made in change(near.wait_received(1)[0]):
                    far.send(made)
                    counts[1] += 1
                counts[0] += 1
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield counts
    finally:
        ended[1].send(b"x")
        thread.join()
        for each in (near, far):
            each.close()
        for side in ended:
            side.close()
    assert not failed, failed


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network()
    made.pair("ta", "da")
    made.pair("tb", "db")
    for end in ("ta", "da", "tb", "db"):
        made.run("ip", "link", "set", end, "mtu", "1600")  # for tags and trailers
    yield made
    made.end()


def sent_through(tester: RunningTester, least: int, **traffic: object) -> Trial:
    """What came of one direction, of which at least so many frames were sent. One that is late is not sent."""
    result = tester.trial([stream("there", "a", "b", 500, count=10 * least, **traffic)], 60.0, wait=1.0)
    there: Trial = result["streams"][0]
    assert there["sent"] >= least
    return there


@pytest.mark.requires_root
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_a_correct_device_changes_is_no_loss(
    asan_binaries: Path, tmp_path: Path, network: Network, change: Callable[[bytes], list[bytes]]
) -> None:
    frames = mixed()
    path = write_capture(tmp_path / "t.pcap", frames)
    tester = RunningTester(
        asan_binaries / "tester/tailrace-tester", tmp_path, {"a": "if:ta", "b": "if:tb"}, prefix=network.within
    )
    try:
        for traffic in ({"pcap": path}, {"frames": [64, 570, 1518], "weights": [7, 4, 1]}):
            with device(network, change) as counts:
                there = sent_through(tester, len(frames), **traffic)
            sent = there["sent"]
            assert counts[0] == sent
            assert (there["received"], there["lost"], there["duplicate"], there["out_of_sequence"]) == (sent, 0, 0, 0)
            # Of a datagram in pieces the last one counts.
            assert there["foreign"] == counts[1] - counts[0]
    finally:
        assert tester.end() == 0


@pytest.mark.requires_root
def test_a_router_loses_nothing_of_a_capture_of_short_segments(
    asan_binaries: Path, tmp_path: Path, network: Network
) -> None:
    """Linux's own: it sends the datagram on without the padding behind it (RFC 894; RFC 1812, 3.3.2)."""
    for interface, address, other in (("da", "198.18.1.1/24", "198.18.1.2"), ("db", "198.19.1.1/24", "198.19.1.2")):
        network.run("ip", "address", "add", address, "dev", interface)
        network.run("ip", "neigh", "replace", other, "lladdr", FAR, "dev", interface, "nud", "permanent")
    network.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0")
    router = network.run("cat", "/sys/class/net/da/address").strip()
    ip = IP(src="198.18.1.2", dst="198.19.1.2", flags="DF")
    ack = bytes(Ether(src=NEAR, dst=router) / ip / TCP(sport=5000, dport=80, flags="A"))
    path = write_capture(tmp_path / "t.pcap", [ack, ack.ljust(60, b"\0")])
    tester = RunningTester(
        asan_binaries / "tester/tailrace-tester", tmp_path, {"a": "if:ta", "b": "if:tb"}, prefix=network.within
    )
    try:
        before = statistics(network, "db", "tx_packets")
        there = sent_through(tester, 20, pcap=path)
        assert (there["received"], there["lost"], there["foreign"]) == (there["sent"], 0, 0)
        assert statistics(network, "db", "tx_packets") - before == there["sent"]
    finally:
        assert tester.end() == 0
