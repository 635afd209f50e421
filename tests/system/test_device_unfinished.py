"""What Linux leaves unfinished at an `if:` port: checksums, and segments that nobody has cut.

Behind the port is a Linux network stack in a namespace that nobody else has touched, or a machine behind a TAP. Each
frame that leaves the switch is looked at: it is no longer than the wire takes, its checksums are right, none is lost.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import select
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from front_end import F_MERGEABLE, F_VERSION_1, RECEIVES, RING_AT, FrontEnd
from private_network import VNET_HDR, End, Network
from running_switch import RunningSwitch, wait_until

pytestmark = [pytest.mark.requires_root, pytest.mark.requires_program("ip", "ping", "tailrace-switch")]

NEEDS_CSUM, TCPV4, UFO, TCPV6, UDP_L4 = 1, 1, 3, 4, 5
CHECKSUM, GUEST_TSO4 = 1 << 1, 1 << 7  # VIRTIO_NET_F_GUEST_CSUM, _TSO4
PACKET, VNET, IGNORE_OUTGOING = 263, 15, 23  # SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING
UDP, UDP_SEGMENT = 17, 103
BYTES = 1_000_000
ENDS = b"\x02\x00\x00\x00\x00\x0b\x02\x00\x00\x00\x00\x0a"
FOUR = socket.inet_aton("198.18.5.1") + socket.inet_aton("198.18.5.2")
SIX = socket.inet_pton(socket.AF_INET6, "fd05::1") + socket.inet_pton(socket.AF_INET6, "fd05::2")


# ------- frames -------


def sum_of(data: bytes) -> int:
    """RFC 1071, not inverted."""
    total = sum(struct.unpack(f">{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def unfinished(ip6: bool, tags: bytes, payload: bytes, size: int, sequence: int = 1) -> bytes:
    """A TCP frame as a guest's driver hands it over: the sum of the pseudo header alone, and to be cut to `size`."""
    addresses = SIX if ip6 else FOUR
    length = 20 + len(payload)
    pseudo = sum_of(addresses + struct.pack(">II", 6, length))
    tcp = struct.pack(">HHIIBBHHH", 1000, 80, sequence, 0, 0x50, 0x18, 1000, pseudo, 0) + payload
    if ip6:
        ip = struct.pack(">IHBB", 6 << 28, length, 6, 64) + addresses
    else:
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + length, 1, 0x4000, 64, 6, 0) + addresses
        ip = ip[:10] + struct.pack(">H", 0xFFFF ^ sum_of(ip)) + ip[12:]
    start = 14 + len(tags) + len(ip)
    cut = len(payload) > size
    kind = (TCPV6 if ip6 else TCPV4) if cut else 0
    header = VNET_HDR.pack(NEEDS_CSUM, kind, start + 20 if cut else 0, size if cut else 0, start, 16)
    return header + ENDS + tags + (b"\x86\xdd" if ip6 else b"\x08\x00") + ip + tcp


def wrong_with(frame: bytes, at: int = 12) -> str | None:
    """What is wrong with the lengths and checksums of an Ethernet frame whose type is at byte `at`, a VXLAN inside it
    included; None: nothing, or it is not IP."""
    kind = frame[at : at + 2]
    while kind in (b"\x81\x00", b"\x88\xa8"):
        at += 4
        kind = frame[at : at + 2]
    at += 2
    if kind == b"\x08\x00":
        size, protocol, addresses = (frame[at] & 15) * 4, frame[at + 9], frame[at + 12 : at + 20]
        end = at + int.from_bytes(frame[at + 2 : at + 4])
        if sum_of(frame[at : at + size]) != 0xFFFF:
            return "IPv4 header"
    elif kind == b"\x86\xdd":
        size, protocol, addresses = 40, frame[at + 6], frame[at + 8 : at + 40]
        end = at + 40 + int.from_bytes(frame[at + 4 : at + 6])
    else:
        return None
    if end > len(frame) or (end < len(frame) and len(frame) > 64):
        return f"length {len(frame)}, says {end}"
    datagram = frame[at + size : end]
    summed = protocol == 6 or (protocol == UDP and datagram[6:8] != bytes(2))
    if summed and sum_of(addresses + struct.pack(">II", protocol, len(datagram)) + datagram) != 0xFFFF:
        return f"checksum of protocol {protocol}"
    if protocol == UDP and datagram[2:4] == struct.pack(">H", 4789):
        return wrong_with(frame, at + size + 8 + 8 + 12)
    return None


# ------- the machine -------


@pytest.fixture
def switch(asan_binaries: Path, tmp_path: Path, network: Network) -> Iterator[RunningSwitch]:
    running = RunningSwitch(
        asan_binaries / "switch/tailrace-switch",
        tmp_path,
        *("--memory", "128", "--idle", "sleep", "--keep", "net_raw,net_admin", "--backpressure-us", "20000000"),
        within=network.within,
    )
    yield running
    assert running.end() == 0


@pytest.fixture
def stacks() -> Iterator[tuple[Network, Network]]:
    """Two network stacks in namespaces of their own, with IPv6."""
    pair = Network(), Network()
    for each in pair:
        each.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=0", "net.ipv6.conf.default.disable_ipv6=0")
    yield pair
    for each in pair:
        each.end()


def address(stack: Network, number: int, device: str = "eth0") -> None:
    """`number` is this side's, 1 or 2."""
    net = {"eth0": "18.5", "vx4": "19.4", "vx6": "19.6"}[device]
    stack.run("ip", "address", "add", f"198.{net}.{number}/24", "dev", device)
    stack.run("ip", "address", "add", f"fd00:{net.replace('.', '')}::{number}/64", "dev", device, "nodad")


def tunnel(stack: Network, number: int, ip6: bool) -> None:
    """A VXLAN device on top of eth0 (RFC 7348)."""
    name = "vx6" if ip6 else "vx4"
    local, remote = (f"fd00:185::{each}" if ip6 else f"198.18.5.{each}" for each in (number, 3 - number))
    options = ("udp6zerocsumrx", "udp6zerocsumtx") if ip6 else ()
    stack.run(
        *("ip", "link", "add", name, "type", "vxlan", "id", "9", "dstport", "4789", "dev", "eth0"),
        *("local", local, "remote", remote, *options),
    )
    stack.run("ip", "link", "set", name, "up")
    address(stack, number, name)


@pytest.fixture
def joined(
    network: Network, switch: RunningSwitch, stacks: tuple[Network, Network]
) -> Iterator[tuple[tuple[Network, End], tuple[Network, End]]]:
    """Each stack behind an `if:` port, a chain between the two; with who looks at what reaches each."""
    ends = []
    for number, (name, stack) in enumerate(zip(("left", "right"), stacks, strict=True), 1):
        network.reach(name, stack, "eth0")
        address(stack, number)
        switch.add_device(name, f"if:{name}")
        switch.wait_state(name, "up")
        ends.append((stack, End(stack, "eth0")))
    switch.join("left", "right")
    yield ends[0], ends[1]
    for _, end in ends:
        end.close()


def carry(sender: Network, receiver: Network, there: str, size: int = BYTES) -> None:
    """A connection between two stacks carries so many bytes, and as they were sent."""
    family = socket.AF_INET6 if ":" in there else socket.AF_INET
    data = bytes(range(251)) * (size // 251 + 1)
    listener = receiver.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the connection before may still be closing
    listener.bind((there, 5001))
    listener.listen()
    connection = sender.socket(family, socket.SOCK_STREAM)
    for each in (listener, connection):
        each.settimeout(60)
    received = hashlib.sha256()

    def receive() -> None:
        accepted = listener.accept()[0]
        accepted.settimeout(60)
        while part := accepted.recv(1 << 20):
            received.update(part)
        accepted.close()

    thread = threading.Thread(target=receive)
    thread.start()
    connection.connect((there, 5001))
    connection.sendall(data)
    connection.close()
    thread.join()
    listener.close()
    assert received.digest() == hashlib.sha256(data).digest()


def expect_whole(end: End, longest: int = 1514) -> list[bytes]:
    """Everything that has reached this end is fit for the wire; returns it."""
    frames = end.received()
    assert max(map(len, frames)) <= longest
    wrong = {what for frame in frames if (what := wrong_with(frame))}
    assert not wrong
    return frames


def no_drops(switch: RunningSwitch, *names: str) -> None:
    """But for what came before there was a chain."""
    for name in names:
        counters = switch.counters(name).items()
        assert not {key: n for key, n in counters if key.startswith("drop_") and n and key != "drop_no_chain"}


# ------- a stack in another namespace -------


@pytest.mark.parametrize("ip6", [False, True], ids=["ipv4", "ipv6"])
def test_a_stack_whose_offloads_nobody_has_switched_off(
    switch: RunningSwitch, joined: tuple[tuple[Network, End], tuple[Network, End]], ip6: bool
) -> None:
    (left, at_left), (right, at_right) = joined
    one, other = ("fd00:185::1", "fd00:185::2") if ip6 else ("198.18.5.1", "198.18.5.2")
    left.run("ping", "-c", "2", "-i", "0.2", "-W", "5", "-s", "1000", other)
    carry(left, right, other)
    carry(right, left, one)
    for end in (at_left, at_right):
        assert len(expect_whole(end)) > BYTES // 1500
    no_drops(switch, "left", "right")
    # They came uncut: fewer than what was given on.
    counters = switch.counters("left")
    assert counters["received_packets"] < switch.counters("right")["sent_packets"]


@pytest.mark.parametrize("ip6", [False, True], ids=["over-ipv4-with-checksum", "over-ipv6-without"])
def test_a_tunnel_whose_inner_tcp_is_unfinished(
    switch: RunningSwitch, joined: tuple[tuple[Network, End], tuple[Network, End]], ip6: bool
) -> None:
    (left, at_left), (right, at_right) = joined
    tunnel(left, 1, ip6)
    tunnel(right, 2, ip6)
    for there in ("198.19.6.2", "fd00:196::2") if ip6 else ("198.19.4.2", "fd00:194::2"):
        carry(left, right, there)
    for end in (at_left, at_right):
        expect_whole(end)
    no_drops(switch, "left", "right")


def test_datagrams_that_a_program_leaves_to_be_cut(
    switch: RunningSwitch, joined: tuple[tuple[Network, End], tuple[Network, End]]
) -> None:
    (left, _), (right, at_right) = joined
    for family, there in ((socket.AF_INET, "198.18.5.2"), (socket.AF_INET6, "fd00:185::2")):
        sender, receiver = (stack.socket(family, socket.SOCK_DGRAM) for stack in (left, right))
        receiver.bind((there, 5002))
        receiver.settimeout(60)
        sender.setsockopt(UDP, UDP_SEGMENT, 1200)
        data = os.urandom(10 * 1200 + 100)
        # The first one has to find out where the other is.
        for message in (data, data, data):
            sender.sendto(message, (there, 5002))
            assert b"".join(receiver.recv(2000) for _ in range(11)) == message
        sender.close()
        receiver.close()
    expect_whole(at_right)
    no_drops(switch, "left", "right")


def test_segments_of_more_than_64_kib(
    switch: RunningSwitch, joined: tuple[tuple[Network, End], tuple[Network, End]]
) -> None:
    """BIG TCP, where an operator has allowed it."""
    (left, _), (right, at_right) = joined
    left.run("ip", "link", "set", "eth0", "gso_max_size", "185000")
    carry(left, right, "fd00:185::2", 4 * BYTES)
    expect_whole(at_right)
    no_drops(switch, "left", "right")


def sent_again(stack: Network) -> int:
    """TCP segments that a stack has sent once more (RFC 4022, tcpRetransSegs)."""
    names, values = (
        line.split() for line in stack.run("cat", "/proc/net/snmp").splitlines() if line.startswith("Tcp:")
    )
    return int(dict(zip(names, values, strict=True))["RetransSegs"])


def test_flows_keep_their_order_in_several_queues(
    network: Network, switch: RunningSwitch, stacks: tuple[Network, Network]
) -> None:
    """Long segments and short ones of a flow come by different sockets of its queue."""
    ends = []
    for number, (name, stack) in enumerate(zip(("left", "right"), stacks, strict=True), 1):
        network.reach(name, stack, "eth0")
        address(stack, number)
        switch.add_device(name, f"if:{name}", queues=3)
        switch.wait_state(name, "up")
        ends.append(End(stack, "eth0"))
    switch.join("left", "right")
    for _ in range(4):
        carry(*stacks, "198.18.5.2", BYTES // 4)
    for end in ends:
        frames = expect_whole(end)
        end.close()
    # Each byte of each connection once, and in its order, but for what a stack that had to wait has sent again.
    again = sum(sent_again(stack) for stack in stacks)
    sequences: dict[bytes, list[int]] = {}
    for frame in frames:
        if frame[12:14] == b"\x08\x00" and frame[23] == 6 and len(frame) > 66:
            sequences.setdefault(frame[34:36], []).append(int.from_bytes(frame[38:42]))
    for flow in sequences.values():
        steps = [after - before & 0xFFFFFFFF for before, after in itertools.pairwise(flow)]
        assert sum(not 0 < step <= 1460 for step in steps) <= 2 * again
    no_drops(switch, "left", "right")


def test_what_the_host_itself_sends_is_not_taken_for_what_comes_in(
    network: Network, joined: tuple[tuple[Network, End], tuple[Network, End]]
) -> None:
    (left, at_left), (_, at_right) = joined
    frame = ENDS + b"\x88\xb5" + bytes(60)
    host = End(network, "left")
    host.send(frame)
    while frame not in at_left.wait_received(1):  # Linux may have something to say of its own
        pass
    left.run("ping", "-c", "1", "-W", "5", "198.18.5.2")
    assert frame not in at_right.received()
    host.close()


# ------- a machine behind a TAP -------


@pytest.fixture
def machine(network: Network, switch: RunningSwitch, stacks: tuple[Network, Network]) -> Iterator[int]:
    """A TAP as QEMU opens it, as a port, with a chain to the right stack. Its file."""
    tap = network.tap("vm")
    network.reach("right", stacks[1], "eth0")
    address(stacks[1], 2)
    for name, interface in (("machine", "vm"), ("right", "right")):
        switch.add_device(name, f"if:{interface}")
        switch.wait_state(name, "up")
    switch.join("machine", "right")
    yield tap
    os.close(tap)


class Guest:
    """A machine's stack behind a TAP: what its driver would hand over is what leaves a namespace of its own."""

    def __init__(self, network: Network, stack: Network, tap: int) -> None:
        network.reach("wire", stack, "eth0")
        address(stack, 1)
        self._wire = network.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        for option in (VNET, IGNORE_OUTGOING):
            self._wire.setsockopt(PACKET, option, 1)
        self._wire.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
        self._wire.bind(("wire", 3))
        self._tap = tap
        self._ended, self._end = os.pipe()
        self._thread = threading.Thread(target=self._move)
        self._thread.start()

    def _move(self) -> None:
        while True:
            ready = select.select([self._wire, self._tap, self._ended], [], [])[0]
            if self._ended in ready:
                return
            if self._wire in ready:
                os.write(self._tap, self._wire.recv(1 << 17))
            if self._tap in ready:
                self._wire.send(os.read(self._tap, 1 << 17))

    def end(self) -> None:
        os.write(self._end, b"x")
        self._thread.join()
        self._wire.close()
        os.close(self._end)
        os.close(self._ended)


def test_a_machine_behind_a_tap(
    network: Network, switch: RunningSwitch, stacks: tuple[Network, Network], machine: int
) -> None:
    guest = Guest(network, stacks[0], machine)
    end = End(stacks[1], "eth0")
    for one, other in (("198.18.5.1", "198.18.5.2"), ("fd00:185::1", "fd00:185::2")):
        stacks[0].run("ping", "-c", "2", "-i", "0.2", "-W", "5", other)
        carry(stacks[0], stacks[1], other)
        carry(stacks[1], stacks[0], one)
    expect_whole(end)
    end.close()
    guest.end()
    no_drops(switch, "machine", "right")


TAGS = {
    "plain": b"",
    "c": b"\x81\x00\x60\x07",
    "s": b"\x88\xa8\x00\x05",
    "s-and-c": b"\x88\xa8\x00\x05\x81\x00\x00\x07",
}


@pytest.mark.parametrize("tags", TAGS.values(), ids=TAGS)
def test_tagged_frames_of_a_machine(
    switch: RunningSwitch, stacks: tuple[Network, Network], machine: int, tags: bytes
) -> None:
    """Linux takes the outer tag off, and says where the checksum is in what is left."""
    end = End(stacks[1], "eth0")
    payload = os.urandom(20_000)
    for ip6, (size, whole) in itertools.product((False, True), ((1400, payload), (1400, payload[:100]), (1400, b""))):
        os.write(machine, unfinished(ip6, tags, whole, size))
        headers = 14 + len(tags) + (40 if ip6 else 20) + 20
        frames = end.wait_received(max(1, -(-len(whole) // size)))
        # The receiving Linux takes tags off for whoever looks, too.
        gone = 4 if tags else 0
        assert b"".join(frame[headers - gone :] for frame in frames)[: len(whole)] == whole
        assert not {what for frame in frames if (what := wrong_with(frame))}
        assert all(len(frame) <= headers + size for frame in frames)
    end.close()
    no_drops(switch, "machine", "right")


class Taker(FrontEnd):
    """A guest that takes segments whole, each in as many buffers as it needs."""

    def next_whole(self, seconds: float = 60) -> tuple[tuple[int, ...], bytes]:
        """The next frame's network header, without the number of buffers, and its bytes."""
        used = lambda: self.used_index(RECEIVES) - self.seen[RECEIVES] & 0xFFFF  # noqa: E731
        wait_until(lambda: used() > 0, "a frame arrives", seconds)
        parts = [self._part()]
        (count,) = struct.unpack_from("<H", parts[0], 10)
        parts += [self._part() for _ in range(count - 1)]
        whole = b"".join(parts)
        return VNET_HDR.unpack_from(whole), whole[self.header :]

    def _part(self) -> bytes:
        place = RING_AT[RECEIVES] + 0x8000 + 4 + self.seen[RECEIVES] % self.ring_size * 8
        slot, length = struct.unpack_from("<II", self.memory, place)
        self.seen[RECEIVES] = (self.seen[RECEIVES] + 1) & 0xFFFF
        at = self.buffer_address(RECEIVES, slot)
        return bytes(self.memory[at : at + length])


@pytest.fixture
def taker(switch: RunningSwitch) -> Iterator[Taker]:
    """After the machine: in the place of the right stack."""
    guest = Taker(features=F_VERSION_1 | F_MERGEABLE | CHECKSUM | GUEST_TSO4)
    guest.start(switch.add_guest("taker"))
    switch.wait_state("taker", "up")
    switch.remove_chain("machine-right")
    switch.join("machine", "taker")
    yield guest
    guest.end()


def test_a_segment_is_handed_on_whole_to_a_guest_that_takes_it(
    switch: RunningSwitch, machine: int, taker: Taker
) -> None:
    payload = os.urandom(65_000)
    segment = unfinished(False, b"", payload, 1400)
    taker.offer_buffers(40)
    os.write(machine, segment)
    header, frame = taker.next_whole()
    assert header == (NEEDS_CSUM, TCPV4, 54, 1400, 34, 16)
    assert frame == segment[VNET_HDR.size :]
    # Over IPv6 it has not asked for it.
    taker.offer_buffers(2 * 15)
    os.write(machine, unfinished(True, b"", payload[:20_000], 1400))
    frames = [taker.next_whole() for _ in range(15)]
    assert {header for header, _ in frames} == {(0,) * 6}
    assert b"".join(frame[74:] for _, frame in frames) == payload[:20_000]
    assert not {what for _, frame in frames if (what := wrong_with(frame))}
    no_drops(switch, "machine", "taker")


def test_a_segment_waits_until_the_guest_has_all_the_buffers_that_it_takes(
    switch: RunningSwitch, machine: int, taker: Taker
) -> None:
    segments = [unfinished(False, b"", os.urandom(40_000), 1400, sequence) for sequence in range(3)]
    for segment in segments:
        os.write(machine, segment)
    for segment in segments:
        # One at a time, and few: it needs 20.
        for _ in range(20):
            blocked = switch.counters("taker")["blocked_polls"]
            wait_until(lambda before=blocked: switch.counters("taker")["blocked_polls"] > before, "it waits")
            taker.offer_buffers(1)
        assert taker.next_whole()[1] == segment[VNET_HDR.size :]
    no_drops(switch, "machine", "taker")


def test_long_frames_that_come_while_the_switch_is_held_up_are_taken_or_counted(
    switch: RunningSwitch, stacks: tuple[Network, Network], machine: int
) -> None:
    """What the kernel keeps of them is limited; afterwards each frame is itself again."""
    end = End(stacks[1], "eth0")
    count = 500
    before = switch.counters("machine")
    with switch.held_up():
        for number in range(count):
            os.write(machine, unfinished(False, b"", number.to_bytes(4) * 15_000, 60_000, number))

    def told() -> int:
        counters = switch.counters("machine")
        taken = counters["received_packets"] - before["received_packets"]
        return taken + counters["drop_device_missed"] - before["drop_device_missed"]

    wait_until(lambda: told() >= count, "each frame is counted, as taken or as lost")
    assert told() == count
    assert switch.counters("machine")["drop_device_missed"] > 0
    end.received()
    payload = os.urandom(40_000)
    os.write(machine, unfinished(False, b"", payload, 1400))
    assert b"".join(frame[54:] for frame in end.wait_received(29)) == payload
    end.close()


def test_a_header_that_contradicts_its_frame_costs_that_frame_alone(
    stacks: tuple[Network, Network], machine: int
) -> None:
    end = End(stacks[1], "eth0")
    good = unfinished(False, b"", b"good", 1400)
    long = unfinished(False, b"", bytes(5000), 1400)[VNET_HDR.size :]
    wrong = ((1, 34, 16), (7, 34, 16), (65535, 34, 16), (1400, 14, 16), (1400, 34, 6), (1400, 60, 2))
    for (size, start, offset), kind in itertools.product(wrong, (TCPV4, TCPV6, UFO, UDP_L4, TCPV4 | 0x80)):
        # Linux refuses most of them.
        with contextlib.suppress(OSError):
            os.write(machine, VNET_HDR.pack(NEEDS_CSUM, kind, 54, size, start, offset) + long)

    def has_come() -> bool:
        os.write(machine, good)
        return any(frame[54:58] == b"good" for frame in end.received())

    wait_until(has_come, "others go through")
    end.close()


@pytest.mark.parametrize("size", [1000, 5000])
def test_a_segment_that_linux_cannot_describe_costs_the_port_its_speed_alone(
    switch: RunningSwitch, stacks: tuple[Network, Network], machine: int, size: int
) -> None:
    """Linux 6.18 has no place for another frame in the ring of a packet socket after that."""
    end = End(stacks[1], "eth0")
    datagram = unfinished(False, b"", bytes(size), 1400)[VNET_HDR.size :]
    os.write(machine, VNET_HDR.pack(NEEDS_CSUM, UFO, 42, 512, 34, 16) + datagram)
    good = unfinished(False, b"", b"good", 1400)
    written = 1

    def has_come() -> bool:
        nonlocal written
        os.write(machine, good)
        written += 1
        return any(frame[54:58] == b"good" for frame in end.received())

    wait_until(has_come, "frames go through again")
    for tags in TAGS.values():
        payload = os.urandom(20_000)
        os.write(machine, unfinished(False, tags, payload, 1400))
        os.write(machine, unfinished(False, tags, payload[:700], 1400))
        headers = 54 + len(tags) - (4 if tags else 0)
        frames = [frame for frame in end.wait_received(16) if frame[54:58] != b"good"]
        while len(frames) < 16:
            frames += [frame for frame in end.wait_received(1) if frame[54:58] != b"good"]
        assert b"".join(frame[headers:] for frame in frames) == payload + payload[:700]
        assert not {what for frame in frames if (what := wrong_with(frame))}
        written += 2

    def told() -> int:
        counters = switch.counters("machine")
        return counters["received_packets"] + counters["drop_device_missed"]

    wait_until(lambda: told() >= written, "each frame is counted, as taken or as lost")
    assert switch.counters("machine")["drop_device_missed"] > 0
    end.close()
