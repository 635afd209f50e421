"""Devices that wake a worker which sleeps: none of their frames is left lying, and they need not be polled."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from front_end import SENDS, FrontEnd
from private_network import End, Network
from running_switch import RunningSwitch, switch_of_devices, wait_until
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

pytestmark = [pytest.mark.requires_root, pytest.mark.requires_program("ip", "tailrace-switch")]

RING = 256


@pytest.fixture
def switch(asan_binaries: Path, tmp_path: Path, network: Network) -> Iterator[RunningSwitch]:
    with switch_of_devices(asan_binaries, tmp_path, network.within) as running:
        yield running


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


def worker(switch: RunningSwitch) -> dict[str, int]:
    return next(slot.counters for slot in switch.page.slots() if slot.kind == "worker")


def sleeps_in_half_a_second(switch: RunningSwitch) -> int:
    wait_until(lambda: bool(switch.call("worker.list")[0]["asleep"]), "the worker sleeps")
    before = worker(switch)["sleeps"]
    time.sleep(0.5)
    return worker(switch)["sleeps"] - before


def wait_until_it_sleeps(switch: RunningSwitch) -> None:
    """Once more than so far: for a rate it may do so for a tenth of a millisecond at a time."""
    before = worker(switch)["sleeps"]
    wait_until(lambda: worker(switch)["sleeps"] > before, "the worker sleeps")


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


@pytest.mark.parametrize("scheme", ["if", "tap"])
def test_a_rate_holds_at_a_device_whose_worker_sleeps(
    network: Network, switch: RunningSwitch, guest: FrontEnd, scheme: str
) -> None:
    """What is above it waits where it is, nothing is lost, and no frame more comes that would wake the worker."""
    rate, count = 200, 60
    if scheme == "if":
        network.pair("left", "right")
    switch.add_device("wan", f"{scheme}:left", rate={"packets": rate, "to": {"packets": rate}})
    switch.wait_state("wan", "up")
    switch.join("guest", "wan")
    end = End(network, "left" if scheme == "tap" else "right")
    frames = [flow(number, 0) for number in range(count)]
    least = 0.8 * count / rate
    for _ in range(2):
        wait_until_it_sleeps(switch)
        guest.offer_buffers(count)
        began = time.monotonic()
        for frame in frames:
            end.send(frame)
        assert guest.wait_received(count) == frames
        assert time.monotonic() - began > least
        wait_until_it_sleeps(switch)
        began = time.monotonic()
        for frame in frames:
            guest.send(frame)
        os.eventfd_write(guest.kick[SENDS], 1)
        assert end.wait_received(count) == frames
        assert time.monotonic() - began > least
    for name in ("guest", "wan"):
        counters = switch.counters(name)
        assert not {key: value for key, value in counters.items() if key.startswith("drop_") and value}
    end.close()


@pytest.mark.parametrize("scheme", ["if", "tap"])
def test_flows_spread_over_the_queues_of_a_device(
    network: Network, switch: RunningSwitch, guest: FrontEnd, scheme: str
) -> None:
    """Linux divides them by their hash; each stays in its order."""
    flows, each = 32, 6
    if scheme == "if":
        network.pair("left", "right")
    switch.add_device("wan", f"{scheme}:left", queues=2)
    switch.wait_state("wan", "up")
    switch.join("guest", "wan")
    end = End(network, "left" if scheme == "tap" else "right")
    guest.offer_buffers(flows * each)
    for count in range(each):
        for number in range(flows):
            end.send(flow(number, count))
    arrived: dict[int, list[int]] = {}
    for frame in guest.wait_received(flows * each):
        arrived.setdefault(frame[-2], []).append(frame[-1])
    assert arrived == {number: list(range(each)) for number in range(flows)}

    def counted() -> list[int]:
        """Of each queue, which its worker counts after the guest has the frames."""
        slots = {slot.name: slot.counters for slot in switch.page.slots() if slot.kind == "queue"}
        return [slots[f"wan/{queue}"]["received_packets"] for queue in range(2)]

    wait_until(lambda: sum(counted()) >= flows * each, "all are counted")
    assert sum(counted()) == flows * each and all(counted()), counted()
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
