"""Devices with several queues, and devices that wake a worker which sleeps: frames are spread by flow, each flow stays
in order, and none is left lying.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from front_end import RECEIVES, SENDS, FrontEnd
from private_network import End, Network
from running_switch import RunningSwitch, wait_until
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

pytestmark = [pytest.mark.requires_root, pytest.mark.requires_program("ip", "tailrace-switch")]

FLOWS, EACH = 64, 4
RING = 256
QUEUES = ("numrxqueues", "2", "numtxqueues", "2")


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network()
    yield network
    network.end()


@pytest.fixture
def switch(asan_binaries: Path, tmp_path: Path, network: Network) -> Iterator[RunningSwitch]:
    running = RunningSwitch(
        asan_binaries / "switch/tailrace-switch", tmp_path, "--memory", "256", "--idle", "sleep", "--keep",
        "net_raw,net_admin,sys_admin,ipc_lock", within=network.within,
    )  # fmt: skip
    yield running
    assert running.end() == 0


@pytest.fixture
def guest(switch: RunningSwitch) -> Iterator[FrontEnd]:
    guest = FrontEnd(ring_size=RING)
    guest.start(switch.add_guest("guest"))
    switch.wait_state("guest", "up")
    yield guest
    guest.end()


def flow(number: int, count: int) -> bytes:
    packet = IP(src=f"198.18.0.{number + 1}", dst="198.19.0.1") / UDP(sport=1000 + 7 * number, dport=80)
    return bytes(Ether(src="02:00:00:00:00:0a", dst="02:00:00:00:00:0b") / packet / Raw(bytes([number, count] * 12)))


def take(guest: FrontEnd, count: int, seconds: float = 15) -> list[bytes]:
    """So many frames, with buffers offered as they are used up."""
    frames: list[bytes] = []
    deadline = time.monotonic() + seconds
    while len(frames) < count:
        assert time.monotonic() < deadline, f"{len(frames)} of {count} frames arrived"
        guest.offer_buffers(guest.room(RECEIVES))
        frames += guest.received()
    return frames


def queue_counters(switch: RunningSwitch, port: str) -> list[dict[str, int]]:
    return [slot.counters for slot in switch.page.slots() if slot.name.startswith(f"{port}/")]


# DPDK's driver of AF_XDP sees one queue of a veth, however many it has: it asks for combined ones.
@pytest.mark.parametrize("uri", ["if:left", "tap:left"])
def test_flows_are_spread_over_the_queues_and_stay_in_order(
    network: Network, switch: RunningSwitch, guest: FrontEnd, uri: str
) -> None:
    if uri != "tap:left":
        network.run("ip", "link", "add", "left", *QUEUES, "type", "veth", "peer", "name", "right", *QUEUES)
        for name in ("left", "right"):
            network.run("ip", "link", "set", name, "up")
    switch.add_device("wan", uri, queues=2)
    switch.wait_state("wan", "up")
    switch.join("guest", "wan")
    end = End(network, "left" if uri == "tap:left" else "right")
    guest.offer_buffers(RING)
    for count in range(EACH):
        for number in range(FLOWS):
            end.send(flow(number, count))
    arrived: dict[int, list[int]] = {}
    for frame in take(guest, FLOWS * EACH):
        arrived.setdefault(frame[42], []).append(frame[43])
    assert arrived == {number: list(range(EACH)) for number in range(FLOWS)}
    received = [each["received_packets"] for each in queue_counters(switch, "wan")]
    assert sum(received) == FLOWS * EACH
    assert min(received) > 0, received
    for each in queue_counters(switch, "wan") + queue_counters(switch, "guest"):
        assert not {name: count for name, count in each.items() if name.startswith("drop_") and count}
    end.close()


def worker(switch: RunningSwitch) -> dict[str, int]:
    return next(slot.counters for slot in switch.page.slots() if slot.kind == "worker")


def sleeps_in_half_a_second(switch: RunningSwitch) -> int:
    wait_until(lambda: bool(switch.call("worker.list")[0]["asleep"]), "the worker sleeps")
    before = worker(switch)["sleeps"]
    time.sleep(0.5)
    return worker(switch)["sleeps"] - before


@pytest.mark.parametrize("scheme", ["if", "xdp", "tap"])
def test_a_device_that_wakes_its_worker_is_not_polled(
    network: Network, switch: RunningSwitch, guest: FrontEnd, scheme: str
) -> None:
    if scheme != "tap":
        network.pair("left", "right")
    switch.add_device("wan", f"{scheme}:left")
    switch.wait_state("wan", "up")
    switch.join("guest", "wan")
    end = End(network, "left" if scheme == "tap" else "right")
    for number in range(20):
        guest.offer_buffers(1)
        end.send(flow(number, 0))
        assert guest.wait_received(1) == [flow(number, 0)]
    assert sleeps_in_half_a_second(switch) < 50
    end.close()


def test_virtio_user_wakes_its_worker(switch: RunningSwitch, guest: FrontEnd, binaries: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    other = RunningSwitch(binaries / "switch/tailrace-switch", folder, "--idle", "pause")
    far = FrontEnd()
    far.start(other.add_guest("far"))
    path = other.add_guest("uplink")
    other.join("far", "uplink")
    switch.add_device("link", f"vhost:{path}")
    for each, name in ((switch, "link"), (other, "uplink"), (other, "far")):
        each.wait_state(name, "up")
    switch.join("guest", "link")
    for number in range(50):
        time.sleep(number % 5 * 0.0001)  # about as long as it takes to fall asleep
        guest.offer_buffers(1)
        far.send(flow(number, 0))
        assert guest.wait_received(1) == [flow(number, 0)], number
    assert sleeps_in_half_a_second(switch) < 50
    switch.remove_chain("guest-link")
    switch.remove_port("link")
    far.end()
    assert other.end() == 0


def test_what_a_rate_holds_back_at_a_device_is_not_slept_over(
    network: Network, switch: RunningSwitch, guest: FrontEnd
) -> None:
    """The frames wait in the device's ring, and the kernel told of them when they came, once."""
    network.pair("left", "right")
    switch.add_device("wan", "if:left", rate={"packets": 500})
    switch.wait_state("wan", "up")
    switch.join("guest", "wan")
    end = End(network, "right")
    guest.offer_buffers(RING)
    for number in range(200):
        end.send(flow(number % FLOWS, 0))
    assert len(take(guest, 200)) == 200
    assert worker(switch)["sleeps"] > 10
    guest.send(flow(0, 1))
    os.eventfd_write(guest.kick[SENDS], 1)
    assert end.wait_received(1) == [flow(0, 1)]
    end.close()
