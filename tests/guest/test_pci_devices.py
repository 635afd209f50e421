"""Device ports on PCI NICs, behind an IOMMU and bound to vfio-pci: the switch runs in the machine that has them."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator

import pytest
from crossing import BURST, JUMBO, PLAIN, assert_dropped, begin_function, cross, open_ports, refusal, traffic
from emulated_nics import QUEUES, NicMachine, SwitchInside, nic_machine
from private_network import End
from running_switch import wait_until
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

pytestmark = [
    pytest.mark.requires_root,
    pytest.mark.requires_program("tailrace-switch", "qemu-system-x86_64", "ip"),
]


@pytest.fixture(scope="module")
def nics(tmp_path_factory: pytest.TempPathFactory, accelerator: str) -> Iterator[NicMachine]:
    with nic_machine(tmp_path_factory.mktemp("nics"), accelerator) as nics:
        yield nics


@pytest.fixture
def switch(nics: NicMachine) -> Iterator[SwitchInside]:
    running = SwitchInside(nics, "--pci")
    yield running
    assert running.end() == 0


def test_frames_cross_from_nic_to_nic(switch: SwitchInside, nics: NicMachine) -> None:
    open_ports(switch, nics, "left", "right")
    assert nics.groups("tailrace-switch") == 2, "it takes the devices that it is told to, and no other"
    switch.join("left", "right")
    cross(switch, nics, "left", "right", wanted=PLAIN + JUMBO)
    open_ports(switch, nics, "third", "fourth")
    switch.join("third", "fourth")
    # QEMU's vmxnet3 drops what does not fit into one buffer.
    cross(switch, nics, "third", "fourth", wanted=PLAIN)
    cross(switch, nics, "left", "right", wanted=PLAIN)


def test_frames_cross_a_function_between_two_nics(switch: SwitchInside, nics: NicMachine) -> None:
    open_ports(switch, nics, "left", "right")
    function = begin_function(switch, nics)
    switch.set_chain("chain", "left", "in", "out", "right")
    cross(switch, nics, "left", "right", "in", "out", wanted=PLAIN)
    function.end()
    function.wait()


def test_a_function_on_huge_pages_opens_its_own_nics_and_no_other(nics: NicMachine) -> None:
    ports = " ".join(f"--port {nics.uri(name)}" for name in ("left", "right"))
    function = nics.machine.begin(f"exec tailrace-vnf skeleton --huge --memory 64 {ports}")
    wait_until(lambda: "forwarding" in function.output(), "it forwards")
    assert nics.groups("tailrace-vnf") == 2
    wanted = PLAIN[:BURST]
    for frame_ in wanted:
        nics.wires["left"].send(frame_)
    assert nics.wires["right"].wait_received(len(wanted)) == wanted
    function.end()
    function.wait()


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("left", "right"),
        pytest.param("right", "left", marks=pytest.mark.whole),
        pytest.param("third", "fourth", marks=pytest.mark.whole),
    ],
)
def test_a_nic_that_loses_its_link_and_gets_it_back(
    switch: SwitchInside, nics: NicMachine, name: str, other: str
) -> None:
    open_ports(switch, nics, name, other)
    switch.join(name, other)
    cross(switch, nics, name, other, wanted=PLAIN)
    ups = switch.said(f"device {nics.uri(name)} is up")
    nics.set_link(name, up=False)
    switch.wait_state(name, "down")
    assert switch.port(name)["reason"] == "it has no link"
    assert switch.port(other)["state"] == "up"
    assert_dropped(switch, nics.wires[other], name)
    nics.set_link(name, up=True)
    switch.wait_state(name, "up")
    assert switch.port(name)["reason"] is None
    cross(switch, nics, name, other, wanted=PLAIN)
    assert switch.said(f"device {nics.uri(name)} has lost its link") == 1
    assert switch.said(f"device {nics.uri(name)} is up") == ups + 1


def test_a_nic_unplugged_under_traffic_and_plugged_in_again(switch: SwitchInside, nics: NicMachine) -> None:
    """Linux asks for it back, and waits until it has it; what the other ports carry is not touched."""
    left, right = nics.wires["left"], nics.wires["right"]
    open_ports(switch, nics, "left", "right", "third", "fourth")
    switch.join("left", "right")
    switch.join("third", "fourth")
    before = switch.counters("right")["sent_packets"]
    with traffic(left, right):
        wait_until(lambda: switch.counters("right")["sent_packets"] > before + 100, "frames move")
        nics.unplug("left")
        cross(switch, nics, "third", "fourth", wanted=PLAIN)
        nics.machine.wait_event("DEVICE_DELETED")
    switch.wait_state("left", "removed")
    assert switch.port("left")["reason"] == "it is not there any more"
    assert not nics.has("left")
    assert_dropped(switch, right, "left")
    nics.plug("left")
    switch.wait_state("left", "up")
    right.forget(0.2)
    cross(switch, nics, "left", "right", wanted=PLAIN)
    cross(switch, nics, "third", "fourth", wanted=PLAIN)
    assert switch.said(f"device {nics.uri('left')} is gone") == 1


def test_a_nic_that_an_operator_takes_away_and_gives_back(switch: SwitchInside, nics: NicMachine) -> None:
    """Without unplugging: from vfio-pci, which waits for us, and back to it."""
    open_ports(switch, nics, "left", "right")
    switch.join("left", "right")
    nics.unbind("right")
    switch.wait_state("right", "removed")
    wait_until(lambda: "it has no driver" in switch.port("right")["reason"], "it says what is missing")
    nics.bind("right", "vfio-pci")
    switch.wait_state("right", "up")
    cross(switch, nics, "left", "right", wanted=PLAIN)


#: Makes an interface, and sends so many frames of one flow into it whenever it is asked to.
TAP = """
import fcntl, os, struct, sys
tap = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH22x", b"tap0", 0x1002))
os.system("ip link set tap0 up")
os.mkfifo("/run/tap")
while count := open("/run/tap").read():
    for number in range(int(count)):
        os.write(tap, bytes.fromhex("02000000000b02000000000a88b5") + bytes(46))
"""


def test_the_first_queues_of_a_kernel_share_what_comes(nics: NicMachine) -> None:
    """Each frame comes to one of them. Linux gives the first group of sockets after a boot the number 0, which is no
    sign that there is none."""
    machine = nics.machine
    machine.run("modprobe tun")
    tap = machine.begin(f"exec /usr/bin/python3 -ISc '{TAP}'")
    machine.wait("[ -p /run/tap ]")
    running = SwitchInside(nics, "--keep net_raw,net_admin")
    running.add_device("both", "if:tap0", queues=2)
    running.wait_state("both", "up")
    machine.run("echo 40 >/run/tap")

    def received() -> list[int]:
        found = [each for each in running.slots() if each.kind == "queue" and each.name.startswith("both/")]
        return sorted(each.counters["received_packets"] for each in found)

    wait_until(lambda: received()[-1] == 40, f"it received {received()}")
    assert received() == [0, 40]
    assert running.end() == 0
    tap.end()


def test_a_device_that_cannot_be_opened(switch: SwitchInside, nics: NicMachine) -> None:
    open_ports(switch, nics, "right", "third")
    switch.join("right", "third")
    left = nics.addresses["left"]
    assert "there is no PCI device ffff:ff:1f.7" in refusal(switch, "pci:ffff:ff:1f.7")
    nics.unbind("left")
    assert f"PCI device {left} could not be opened: it has no driver; bind it" in refusal(switch, f"pci:{left}")
    nics.bind("many", "virtio-pci")
    assert "it has the driver virtio-pci; bind it to vfio-pci" in refusal(switch, nics.uri("many"))
    nics.machine.run("modprobe uio_pci_generic")
    nics.bind("left", "uio_pci_generic")
    assert "it has the driver uio_pci_generic; bind it to vfio-pci" in refusal(switch, f"pci:{left}")
    nics.bind("left", "vfio-pci")
    most = QUEUES + 1
    assert re.search(
        f"{left} has [12] queues? and {most} are asked for; ask", refusal(switch, f"pci:{left}", queues=most)
    )
    nics.bind("many", "vfio-pci")
    assert f"has {QUEUES} queues and {most} are asked for" in refusal(switch, nics.uri("many"), queues=most)
    # Nothing of that has held the device back, which may also be written without its domain.
    switch.add_device("left", f"pci:{left.removeprefix('0000:')}")
    switch.wait_state("left", "up")
    assert f"PCI device {left} is in use" in refusal(switch, f"pci:{left}")
    assert switch.port("left")["state"] == "up"
    cross(switch, nics, "right", "third", wanted=PLAIN)


def test_a_switch_that_was_not_told_of_pci_devices(nics: NicMachine) -> None:
    switch = SwitchInside(nics)
    assert "start it with --pci" in refusal(switch, nics.uri("left"))
    assert switch.end() == 0


def sleeps_in_half_a_second(switch: SwitchInside) -> int:
    def sleeps() -> int:
        return next(slot.counters["sleeps"] for slot in switch.slots() if slot.kind == "worker")

    wait_until(lambda: bool(switch.call("worker.list")[0]["asleep"]), "the worker sleeps")
    before = sleeps()
    time.sleep(0.5)
    return sleeps() - before


@pytest.mark.parametrize("names", [("right", "third"), ("left", "fourth")])
def test_a_worker_that_sleeps_is_woken_by_a_nic(switch: SwitchInside, nics: NicMachine, names: tuple[str, str]) -> None:
    """Or looks for itself, until a NIC has shown that it interrupts."""
    open_ports(switch, nics, *names)
    switch.join(*names)
    one, other = (nics.wires[name] for name in names)
    for number, each in enumerate(PLAIN):
        time.sleep(number % 5 * 0.002)
        for sender, receiver in ((one, other), (other, one)):
            sender.send(each)
            assert receiver.wait_received(1) == [each]
    if "left" not in names:
        assert sleeps_in_half_a_second(switch) < 20


KEY = bytes.fromhex("6d5a" * 20)
"""The switch's for every device: the hash of a flow is that of its answers."""


def toeplitz(data: bytes) -> int:
    """Microsoft's hash for receive-side scaling."""
    key, bits, result = int.from_bytes(KEY), 8 * len(KEY), 0
    for number in range(8 * len(data)):
        if data[number // 8] >> (7 - number % 8) & 1:
            result ^= key >> (bits - 32 - number) & 0xFFFFFFFF
    return result


def flow_frame(number: int, count: int, answer: bool) -> tuple[bytes, int]:
    """A frame of a flow or of its answers, and the queue that it has to come by."""
    ends = [(f"198.18.0.{number + 1}", 1000 + 7 * number), ("198.19.0.1", 80)]
    (source, sport), (target, dport) = reversed(ends) if answer else ends
    packet = IP(src=source, dst=target) / UDP(sport=sport, dport=dport)
    data = socket.inet_aton(source) + socket.inet_aton(target) + sport.to_bytes(2) + dport.to_bytes(2)
    whole = Ether(src="02:00:00:00:00:0a", dst="02:00:00:00:00:0b") / packet / Raw(bytes([number, count] * 12))
    return bytes(whole), toeplitz(data) % 128 % QUEUES


def test_a_nic_with_several_queues_spreads_flows_over_them(switch: SwitchInside, nics: NicMachine) -> None:
    """By their hash, which the NIC computes with the switch's key: a flow and its answers keep to one queue."""
    flows, each = 16, 4
    switch.add_device("many", nics.uri("many"), queues=QUEUES)
    switch.wait_state("many", "up")
    open_ports(switch, nics, "left")
    switch.join("many", "left")
    end = End(nics.network, "many")
    expected = [0] * QUEUES
    arrived: dict[int, list[int]] = {}
    for count in range(each):
        for number in range(flows):
            whole, queue = flow_frame(number, count, answer=count % 2 == 1)
            end.send(whole)
            expected[queue] += 1
        for got in nics.wires["left"].wait_received(flows):
            arrived.setdefault(got[-2], []).append(got[-1])
    assert arrived == {number: list(range(each)) for number in range(flows)}
    assert all(expected)

    def received() -> list[int]:
        slots = {slot.name: slot.counters for slot in switch.slots() if slot.kind == "queue"}
        return [slots[f"many/{queue}"]["received_packets"] for queue in range(QUEUES)]

    wait_until(lambda: received() == expected, f"{expected} frames by queue")
    # And out by it.
    for each_frame in PLAIN[:BURST]:
        nics.wires["left"].send(each_frame)
    assert end.wait_received(BURST) == PLAIN[:BURST]
    end.close()
