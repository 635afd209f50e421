"""Device ports of every kind that this machine can have, each with a peer that we did not write where there is one:
frames cross whole and in order, both ways.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from front_end import SENDS, FrontEnd
from private_network import End, Network
from running_switch import RunningSwitch, switch_of_devices, wait_until
from scapy.layers.inet import IP, UDP, fragment
from scapy.packet import Raw
from testpmd import Testpmd

pytestmark = [pytest.mark.requires_root, pytest.mark.requires_program("ip", "tailrace-switch")]

COUNT = 20


def frames(count: int = COUNT, size: int = 60) -> list[bytes]:
    """Frames of an experimental ethertype (IEEE 802), told apart by a number."""
    return [
        b"\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x88\xb5" + struct.pack(">I", i) * (size // 4)
        for i in range(count)
    ]


class Guest:
    """A guest on a port of the switch."""

    def __init__(self, switch: RunningSwitch, name: str) -> None:
        self.front_end = FrontEnd()
        self.front_end.start(switch.add_guest(name))
        switch.wait_state(name, "up")

    def send(self, wanted: list[bytes]) -> None:
        for frame in wanted:
            self.front_end.send(frame)
        os.eventfd_write(self.front_end.kick[SENDS], 1)  # the switch sleeps

    def offer(self, count: int) -> None:
        self.front_end.offer_buffers(count)

    def wait_received(self, count: int) -> list[bytes]:
        return self.front_end.wait_received(count)

    def end(self) -> None:
        self.front_end.end()


@pytest.fixture
def switch(asan_binaries: Path, tmp_path: Path, network: Network) -> Iterator[RunningSwitch]:
    with switch_of_devices(asan_binaries, tmp_path, network.within) as running:
        yield running


@pytest.fixture
def guest(switch: RunningSwitch) -> Iterator[Guest]:
    guest = Guest(switch, "guest")
    yield guest
    guest.end()


def exchange(guest: Guest, end: End, size: int = 60) -> None:
    """Frames cross both ways whole and in order."""
    wanted = frames(size=size)
    guest.send(wanted)
    assert end.wait_received(COUNT) == wanted
    guest.offer(COUNT)
    for frame in wanted:
        end.send(frame)
    assert guest.wait_received(COUNT) == wanted


def no_drops(switch: RunningSwitch, *names: str) -> None:
    for name in names:
        assert not {key: value for key, value in switch.counters(name).items() if key.startswith("drop_") and value}


@pytest.mark.parametrize("scheme", ["if", "xdp"])
def test_an_interface_of_linux(network: Network, switch: RunningSwitch, guest: Guest, scheme: str) -> None:
    network.pair("left", "right")
    switch.add_device("wan", f"{scheme}:left")
    switch.wait_state("wan", "up")
    switch.join("guest", "wan")
    end = End(network, "right")
    for size in (60, 300, 1500):
        exchange(guest, end, size)
    end.close()
    for counter in ("sent_packets", "received_packets"):
        wait_until(lambda name=counter: switch.counters("wan")[name] == 3 * COUNT, f"all are in {counter}")
    no_drops(switch, "wan", "guest")


def _as_others_see_them() -> list[bytes]:
    """Frames that Linux itself would take apart or join: fragments, and tags of both kinds."""
    ends = b"\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02"
    datagram = IP(src="10.1.1.1", dst="10.2.2.2", id=77) / UDP(sport=1, dport=2) / Raw(bytes(range(256)) * 12)
    whole = [b"\x08\x00" + bytes(piece) for piece in fragment(datagram, 1400)]
    tags = [
        b"\x81\x00\x00\x05",
        b"\x81\x00\xb0\x07",
        b"\x81\x00\x00\x00",
        b"\x81\x00\xc0\x00",
        b"\x88\xa8\xc0\x00",
        b"\x81\x00\xc0\x00\x81\x00\x00\x05",
        b"\x88\xa8\x00\x07",
        b"\x88\xa8\x60\x07\x81\x00\x00\x05",
        b"\x81\x00\x00\x07\x81\x00\x00\x05",
    ]
    tagged = [tag + b"\x88\xb5" + bytes([number]) * 60 for number, tag in enumerate(tags)]
    pieces = [b"\x88\xa8\x00\x07" + piece for piece in whole]
    lone = [whole[0].replace(b"\x00\x4d", b"\x00\x4e", 1)]
    return [ends + frame for frame in (*whole, *tagged, *pieces, *lone)]


@pytest.mark.parametrize("scheme", ["if", "xdp"])
def test_fragments_and_tags_arrive_as_they_were_sent(
    network: Network, switch: RunningSwitch, guest: Guest, scheme: str
) -> None:
    network.pair("left", "right")
    switch.add_device("wan", f"{scheme}:left")
    switch.wait_state("wan", "up")
    switch.join("guest", "wan")
    end = End(network, "right")
    wanted = _as_others_see_them()
    # More often than a ring has room for, so that every place of it has its turn.
    for _ in range(2048 // len(wanted) + 2 if scheme == "if" else 2):
        guest.offer(len(wanted))
        for frame in wanted:
            end.send(frame)
        assert guest.wait_received(len(wanted)) == wanted
    end.close()
    no_drops(switch, "wan", "guest")


def test_linuxs_own_stack_behind_a_tap(network: Network, switch: RunningSwitch, guest: Guest) -> None:
    """Linux answers an ARP request, and a program of its own gets and answers a datagram."""
    switch.add_device("host", "tap:tap0")
    network.run("ip", "address", "add", "198.18.9.1/24", "dev", "tap0")
    switch.wait_state("host", "up")
    switch.join("guest", "host")
    mac = bytes.fromhex(network.run("cat", "/sys/class/net/tap0/address").strip().replace(":", ""))
    me, mine, yours = b"\x02\x00\x00\x00\x09\x02", socket.inet_aton("198.18.9.2"), socket.inet_aton("198.18.9.1")
    request = b"\xff" * 6 + me + b"\x08\x06" + struct.pack(">HHBBH", 1, 0x800, 6, 4, 1) + me + mine + bytes(6) + yours
    guest.offer(8)
    guest.send([request.ljust(60, b"\0")])
    answer = next(frame for frame in iter(lambda: guest.wait_received(1)[0], b"") if frame[12:14] == b"\x08\x06")
    assert answer[20:22] == b"\x00\x02" and answer[22:28] == mac

    server = network.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("198.18.9.1", 7777))
    server.settimeout(60)
    payload = b"over the tap"
    datagram = struct.pack(">HHHH", 5555, 7777, 8 + len(payload), 0) + payload
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(datagram), 1, 0, 64, 17, 0) + mine + yours
    total = sum(struct.unpack(">10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    header = header[:10] + struct.pack(">H", ~total & 0xFFFF) + header[12:]
    guest.send([mac + me + b"\x08\x00" + header + datagram])
    got, sender = server.recvfrom(100)
    assert (got, sender) == (payload, ("198.18.9.2", 5555))
    server.sendto(b"answered", sender)
    answer = next(frame for frame in iter(lambda: guest.wait_received(1)[0], b"") if frame[12:14] == b"\x08\x00")
    assert answer[42:50] == b"answered"
    server.close()
    assert switch.port("host")["device"] == "tap:tap0"


def test_a_memif_between_two_switches(switch: RunningSwitch, guest: Guest, asan_binaries: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    other = RunningSwitch(asan_binaries / "switch/tailrace-switch", folder, "--memory", "256", "--idle", "sleep")
    far = Guest(other, "far")
    switch.add_device("link", f"memif:{tmp_path}/memif.sock,role=server")
    assert switch.port("link")["state"] == "down"
    other.add_device("link", f"memif:{tmp_path}/memif.sock")
    for each, name in ((switch, "guest"), (other, "far")):
        each.wait_state("link", "up")
        each.join(name, "link")
    wanted = frames()
    for sender, receiver in ((guest, far), (far, guest)):
        receiver.offer(COUNT)
        sender.send(wanted)
        assert receiver.wait_received(COUNT) == wanted
    no_drops(switch, "guest", "link")
    far.end()
    assert other.end() == 0


@pytest.mark.requires_program("dpdk-testpmd")
@pytest.mark.parametrize("role", ["server", "client"])
def test_a_memif_of_testpmds_with_several_queues(switch: RunningSwitch, tmp_path: Path, role: str) -> None:
    """It has both ends of a chain, a guest's and the memif's, and frames go around on every queue; also with the peer
    that comes after it was killed."""
    queues, at = 2, tmp_path / "memif.sock"
    of = {"server": f"memif:{at},role=server", "client": f"memif:{at}"}
    path = switch.add_guest("vm", queues=queues)
    devices = [
        f"net_virtio_user0,path={path},queues={queues}",
        f"net_memif0,id=0,socket={at},socket-abstract=no,role={'client' if role == 'server' else 'server'}",
    ]
    if role == "server":
        switch.add_device("link", of[role], queues=queues)

    def received() -> dict[str, int]:
        return {s.name: s.counters["received_packets"] for s in switch.page.slots() if s.kind == "queue"}

    def has_come(wanted: dict[str, int]) -> bool:
        now = received()
        return len(wanted) == 2 * queues and all(now[name] > count for name, count in wanted.items())

    for turn in range(2):
        if role == "client":
            at.unlink(missing_ok=True)  # which a testpmd that was killed has left, and the next one does not take
        testpmd = Testpmd(tmp_path, devices, queues=queues, name=str(turn))
        if "link" not in [port["name"] for port in switch.call("port.list")]:
            wait_until(at.exists, "testpmd listens")
            switch.add_device("link", of[role], queues=queues)
        if turn == 0:
            switch.join("vm", "link")
        for name in ("vm", "link"):
            switch.wait_state(name, "up")
        wait_until(lambda: switch.port("vm")["pairs"] == queues, "all pairs are in use")
        wanted = {name: count + 1000 for name, count in received().items()}
        testpmd.say("start tx_first 1")
        wait_until(partial(has_come, wanted), "frames come by every queue")
        assert len(switch.port("link")["queues"]) == queues
        testpmd.kill()
        wait_until(lambda: switch.port("link")["state"] != "up", "its end is noticed")


def test_virtio_user_on_another_switchs_guest_port(
    switch: RunningSwitch, guest: Guest, asan_binaries: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    other = RunningSwitch(asan_binaries / "switch/tailrace-switch", folder, "--idle", "sleep")
    far = Guest(other, "far")
    path = other.add_guest("uplink")
    other.join("far", "uplink")
    switch.add_device("link", f"vhost:{path}")
    switch.wait_state("link", "up")
    switch.join("guest", "link")
    other.wait_state("uplink", "up")
    wanted = frames()
    for sender, receiver in ((guest, far), (far, guest)):
        receiver.offer(COUNT)
        sender.send(wanted)
        assert receiver.wait_received(COUNT) == wanted
    switch.remove_chain("guest-link")
    switch.remove_port("link")
    far.end()
    assert other.end() == 0


def capture(path: Path, wanted: list[bytes]) -> None:
    """A capture file (libpcap's format, Ethernet, microseconds)."""
    packets = (struct.pack("<IIII", 0, i, len(frame), len(frame)) + frame for i, frame in enumerate(wanted))
    path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + b"".join(packets))


def captured(path: Path) -> list[bytes]:
    data, at, found = path.read_bytes(), 24, []
    while at + 16 <= len(data):
        length = struct.unpack_from("<I", data, at + 8)[0]
        found.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    return found


def test_captures_in_and_out(switch: RunningSwitch, guest: Guest, tmp_path: Path) -> None:
    there, back = frames(size=300), frames(size=60)
    capture(tmp_path / "in.pcap", there)
    guest.offer(COUNT)
    # At once: a file is read as soon as it is a port, and what is in no chain yet is dropped.
    switch.patch(
        ports={"file": {"kind": "device", "device": f"pcap:{tmp_path}/in.pcap,{tmp_path}/out.pcap"}},
        chains={"guest-file": {"from": "guest", "to": "file"}},
    )
    assert guest.front_end.wait_received(COUNT) == there
    guest.send(back)
    wait_until(lambda: switch.counters("file")["sent_packets"] == COUNT, "all frames are written")
    switch.remove_chain("guest-file")
    switch.remove_port("file")
    assert captured(tmp_path / "out.pcap") == back


def test_jumbo_frames_cross_whole(network: Network, switch: RunningSwitch) -> None:
    ends = []
    for name in ("east", "west"):
        network.pair(name, f"far{name}")
        for end in (name, f"far{name}"):
            network.run("ip", "link", "set", end, "mtu", "9000")
        switch.add_device(name, f"if:{name}")
        switch.wait_state(name, "up")
        ends.append(End(network, f"far{name}"))
    switch.join("east", "west")
    wanted = frames(size=8000)
    for sender, receiver in (ends, ends[::-1]):
        for frame in wanted:
            sender.send(frame)
        assert receiver.wait_received(COUNT) == wanted
    no_drops(switch, "east", "west")
    for end in ends:
        end.close()


def test_frames_that_one_device_takes_and_the_other_does_not(network: Network, switch: RunningSwitch) -> None:
    """A TAP delivers what is longer than a buffer, in several of them; nobody sends it but an interface that may."""
    network.pair("west", "far")
    for name in ("west", "far"):
        network.run("ip", "link", "set", name, "mtu", "4000")
    switch.add_device("host", "tap:tap0")
    switch.add_device("wan", "if:west")
    network.run("ip", "link", "set", "tap0", "mtu", "9000")
    for name in ("host", "wan"):
        switch.wait_state(name, "up")
    switch.join("host", "wan")
    ends = [End(network, "tap0"), End(network, "far")]
    long, longer = frames(size=3600), frames(size=8000)
    for frame in (*longer, *long):
        ends[0].send(frame)
    assert ends[1].wait_received(COUNT) == long
    wait_until(lambda: switch.counters("wan")["drop_receiver_too_small"] == COUNT, "the longer ones are dropped")
    for frame in (*long, *frames()):
        ends[1].send(frame)
    assert ends[0].wait_received(COUNT) == frames()
    assert switch.counters("host")["drop_receiver_too_small"] == COUNT
    for end in ends:
        end.close()


def test_frames_that_do_not_fit_a_buffer_of_af_xdp(network: Network, switch: RunningSwitch) -> None:
    """The interface would take them, and its driver in DPDK has one buffer for each."""
    for name in ("east", "west"):
        network.pair(name, f"far{name}")
        for end in (name, f"far{name}"):
            network.run("ip", "link", "set", end, "mtu", "3000")
    switch.add_device("east", "if:east")
    switch.add_device("west", "xdp:west")
    switch.join("east", "west")
    for name in ("east", "west"):
        switch.wait_state(name, "up")
    ends = [End(network, "fareast"), End(network, "farwest")]
    fits = frames(size=2000)
    for frame in (*frames(size=2500), *fits):
        ends[0].send(frame)
    assert ends[1].wait_received(COUNT) == fits
    assert switch.counters("west")["drop_receiver_too_small"] == COUNT
    wait_until(lambda: switch.counters("west")["sent_packets"] == COUNT, "what went out is counted")
    for end in ends:
        end.close()


def test_any_device_of_dpdks(switch: RunningSwitch, guest: Guest) -> None:
    """A ring gives back what it is given."""
    switch.add_device("ring", "vdev:net_ring0")
    switch.join("guest", "ring")
    wanted = frames()
    guest.offer(COUNT)
    guest.send(wanted)
    assert guest.wait_received(COUNT) == wanted
    no_drops(switch, "guest", "ring")


def test_a_device_gets_other_options_under_its_own_name(switch: RunningSwitch) -> None:
    """DPDK has it once: the one goes before the other comes."""
    for size in (128, 256):
        device = f"vdev:net_null0,size={size}"
        switch.patch(ports={"null": {"kind": "device", "device": device}})
        assert (switch.port("null")["device"], switch.port("null")["state"]) == (device, "up")


@pytest.mark.parametrize(("one", "other"), list(itertools.product(("if", "xdp"), repeat=2)))
def test_from_device_to_device(network: Network, switch: RunningSwitch, one: str, other: str) -> None:
    network.pair("east", "near")
    network.pair("west", "far")
    ends = [End(network, "near"), End(network, "far")]
    for name, scheme in (("east", one), ("west", other)):
        switch.add_device(name, f"{scheme}:{name}")
        switch.wait_state(name, "up")
    switch.join("east", "west")
    wanted = frames(size=300)
    for sender, receiver in (ends, ends[::-1]):
        for frame in wanted:
            sender.send(frame)
        assert receiver.wait_received(COUNT) == wanted
    no_drops(switch, "east", "west")
    for end in ends:
        end.close()
