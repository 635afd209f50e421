"""What happens to devices while frames move: a link is lost, an interface deleted, a peer killed.

Each is an event: said once, shown by `port.list`, its frames counted as dropped; and traffic resumes when it is over.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from front_end import RECEIVES
from private_network import End, Network, statistics
from running_switch import KEEP, RunningSwitch, wait_until
from test_device_kinds import COUNT, Guest, exchange, frames, no_drops

from tailrace.process.control import ControlError

pytestmark = [pytest.mark.requires_root, pytest.mark.requires_program("ip", "tailrace-switch")]


# Two switches share two cores here, and one may be kept off its core for longer than frames usually wait.
OPTIONS = ("--memory", "256", "--idle", "sleep", "--backpressure-us", "200000")


@pytest.fixture
def switch(asan_binaries: Path, tmp_path: Path, network: Network) -> Iterator[RunningSwitch]:
    running = RunningSwitch(
        asan_binaries / "switch/tailrace-switch",
        tmp_path,
        *OPTIONS,
        *KEEP,
        within=network.within,
    )
    yield running
    assert running.end() == 0


@pytest.fixture
def guest(switch: RunningSwitch) -> Iterator[Guest]:
    guest = Guest(switch, "guest")
    yield guest
    guest.end()


def lost(switch: RunningSwitch, guest: Guest, port: str) -> None:
    """Frames for a device without a link are dropped, and say why."""
    before = switch.counters(port)["drop_receiver_down"]
    guest.send(frames())
    wait_until(lambda: switch.counters(port)["drop_receiver_down"] >= before + COUNT, "the frames are dropped")


def said(switch: RunningSwitch, text: str) -> int:
    return switch.log.read_text().count(text)


def opened(path: Path, times: int) -> float:
    """How long it takes until the file has been opened so many times, by whomever (inotify(7), IN_OPEN)."""
    began = time.monotonic()
    library = ctypes.CDLL(None, use_errno=True)
    watch = library.inotify_init()
    assert library.inotify_add_watch(watch, os.fsencode(path), 0x20) >= 0, os.strerror(ctypes.get_errno())
    while times > 0:
        times -= len(os.read(watch, 16)) // 16  # without a name each event has 16 bytes
    took = time.monotonic() - began
    os.close(watch)
    return took


def test_the_kernels_statistics_are_read_once_a_second(network: Network, switch: RunningSwitch) -> None:
    """What a device has lost; its state is looked at more often."""
    network.pair("left", "right")
    switch.add_device("wan", "if:left")
    switch.wait_state("wan", "up")
    statistics_file = Path(f"/proc/{switch.process.pid}/root/sys/class/net/left/statistics/rx_errors")
    # Once in each second of the clock: the first may be late in its own.
    assert opened(statistics_file, 5) > 3


@pytest.mark.parametrize("scheme", ["if", "xdp"])
def test_a_link_that_is_lost_and_returns(network: Network, switch: RunningSwitch, guest: Guest, scheme: str) -> None:
    network.pair("left", "right")
    switch.add_device("wan", f"{scheme}:left")
    switch.wait_state("wan", "up")
    switch.join("guest", "wan")
    end = End(network, "right")
    exchange(guest, end)
    since = switch.port("wan")["since"]
    for _ in range(2):
        network.run("ip", "link", "set", "right", "down")
        switch.wait_state("wan", "down")
        assert switch.port("wan")["reason"] == "it has no link"
        assert switch.port("wan")["since"] >= since
        lost(switch, guest, "wan")
        network.run("ip", "link", "set", "right", "up")
        switch.wait_state("wan", "up")
        assert switch.port("wan")["reason"] is None
        end.close()
        end = End(network, "right")
        exchange(guest, end)
    assert said(switch, f"device {scheme}:left has lost its link") == 2
    assert said(switch, f"device {scheme}:left is up") == 2
    end.close()


@pytest.mark.parametrize("scheme", ["if", "xdp"])
def test_an_interface_deleted_under_traffic_and_made_again(
    network: Network, switch: RunningSwitch, guest: Guest, scheme: str
) -> None:
    network.pair("left", "right")
    switch.add_device("wan", f"{scheme}:left")
    switch.wait_state("wan", "up")
    switch.join("guest", "wan")
    end = End(network, "right")
    exchange(guest, end)
    end.close()
    network.run("ip", "link", "delete", "right")
    guest.send(frames())
    switch.wait_state("wan", "removed")
    lost(switch, guest, "wan")
    network.pair("left", "right")
    switch.wait_state("wan", "up")
    end = End(network, "right")
    exchange(guest, end)
    end.close()
    assert said(switch, f"device {scheme}:left is gone") == 1


def test_a_tap_whose_linux_side_goes_down(network: Network, switch: RunningSwitch, guest: Guest) -> None:
    switch.add_device("host", "tap:tap0")
    switch.wait_state("host", "up")
    switch.join("guest", "host")
    network.run("ip", "link", "set", "tap0", "down")
    switch.wait_state("host", "down")
    lost(switch, guest, "host")
    network.run("ip", "link", "set", "tap0", "up")
    switch.wait_state("host", "up")
    end = End(network, "tap0")
    exchange(guest, end)
    end.close()


def test_a_tap_that_somebody_deletes_is_made_again(network: Network, switch: RunningSwitch, guest: Guest) -> None:
    switch.add_device("host", "tap:tap0")
    switch.wait_state("host", "up")
    switch.join("guest", "host")
    network.run("ip", "link", "delete", "tap0")
    wait_until(lambda: said(switch, "device tap:tap0 is gone") == 1, "it is noticed")
    switch.wait_state("host", "up")
    end = End(network, "tap0")
    exchange(guest, end)
    end.close()


class Other:
    """Another switch with a guest, at the far end of a link."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        folder.mkdir()
        self.switch = RunningSwitch(binaries / "switch/tailrace-switch", folder, *OPTIONS)
        self.guest = Guest(self.switch, "far")

    def kill(self) -> None:
        self.switch.kill()
        self.guest.end()

    def end(self) -> None:
        self.guest.end()
        assert self.switch.end() == 0


def across(one: Guest, other: Guest, *switches: RunningSwitch) -> None:
    """Frames cross both ways whole and in order, once one has: each end's driver connects at its own moment."""
    wanted, first = frames(), frames(1, size=100)[0]
    for sender, receiver in ((one, other), (other, one)):
        received: list[bytes] = []
        deadline = time.monotonic() + 60
        while first not in received:
            states = [(switch.call("port.list"), switch.page.ports()) for switch in switches]
            assert time.monotonic() < deadline, f"no frame crosses: {states}"
            if receiver.front_end.room(RECEIVES) > COUNT:
                receiver.offer(1)
            sender.send([first])
            time.sleep(0.1)
            received = receiver.front_end.received()
        receiver.offer(COUNT)
        sender.send(wanted)
        received = []
        while len(received) < COUNT:
            received += [frame for frame in receiver.wait_received(1) if frame != first]
        assert received == wanted


@pytest.mark.parametrize("role", ["client", "server"])
def test_a_memif_peer_killed_under_traffic_and_back(
    switch: RunningSwitch, guest: Guest, asan_binaries: Path, tmp_path: Path, role: str
) -> None:
    """The driver unmaps the memory that both share while a worker may be copying from it."""
    path = tmp_path / "memif.sock"
    switch.add_device("link", f"memif:{path},role={role}")
    switch.join("guest", "link")
    for number in range(5):
        other = Other(asan_binaries, tmp_path / f"other{number}")
        other.switch.add_device("link", f"memif:{path}" + (",role=server" if role == "client" else ""))
        other.switch.join("far", "link")
        switch.wait_state("link", "up")
        other.switch.wait_state("link", "up")
        across(guest, other.guest, switch, other.switch)
        for _ in range(3):
            guest.send(frames())
            other.guest.send(frames())
        other.kill()
        switch.wait_state("link", "down")
        lost(switch, guest, "link")
        guest.front_end.received()


def test_a_vhost_user_back_end_killed_under_traffic_and_back(
    switch: RunningSwitch, guest: Guest, asan_binaries: Path, tmp_path: Path
) -> None:
    other = Other(asan_binaries, tmp_path / "other")
    path = other.switch.add_guest("uplink")
    other.switch.join("far", "uplink")
    switch.add_device("link", f"vhost:{path}")
    switch.wait_state("link", "up")
    switch.join("guest", "link")
    across(guest, other.guest, switch, other.switch)
    other.kill()
    wait_until(lambda: switch.port("link")["state"] != "up", "its end is noticed")
    again = RunningSwitch(asan_binaries / "switch/tailrace-switch", tmp_path / "other", *OPTIONS)
    far = Guest(again, "far")
    again.add_guest("uplink")
    again.join("far", "uplink")
    switch.wait_state("link", "up")
    across(guest, far, switch, again)
    far.end()
    switch.remove_chain("guest-link")
    switch.remove_port("link")
    assert again.end() == 0


def test_frames_that_a_device_cannot_take_are_counted(network: Network, switch: RunningSwitch, guest: Guest) -> None:
    """DPDK's driver says of frames beyond the MTU that they were sent, and Linux refuses them without a word."""
    network.pair("left", "right")
    network.run("ip", "link", "set", "left", "mtu", "1000")
    switch.add_device("wan", "if:left")
    switch.wait_state("wan", "up")
    switch.join("guest", "wan")
    end = End(network, "right")
    guest.send([*frames(2, size=1004), *frames(2, size=1000), *frames(2, size=60)])
    assert [len(frame) for frame in end.wait_received(4)] == [1014, 1014, 74, 74]
    wait_until(lambda: switch.counters("wan")["sent_packets"] == 4, "all are counted")
    counters = switch.counters("wan")
    assert (counters["drop_receiver_too_small"], counters["drop_device_refused"]) == (2, 0)
    wait_until(lambda: switch.port("wan")["kernel"]["sent"] == 4, "Linux says the same")
    assert statistics(network, "left", "tx_packets") == 4
    end.close()


def test_several_queues_and_too_few(network: Network, switch: RunningSwitch, guest: Guest, tmp_path: Path) -> None:
    network.pair("left", "right")
    for uri, wrong in (
        ("xdp:left", "interface left has 1 queue for AF_XDP and 2 are asked for"),
        (f"pcap:,{tmp_path}/out.pcap", "has 1 queue and 2 are asked for"),
    ):
        with pytest.raises(ControlError, match=wrong):
            switch.add_device("wan", uri, queues=2)
    assert [port["name"] for port in switch.call("port.list")] == ["guest"]
    for name, uri in (("host", "tap:tap0"), ("wan", "if:left")):
        switch.add_device(name, uri, queues=2)
        switch.wait_state(name, "up")
        assert len(switch.port(name)["queues"]) == 2
    end = End(network, "right")
    switch.join("guest", "wan")
    wanted = frames()
    guest.send(wanted)
    assert sorted(end.wait_received(COUNT)) == sorted(wanted)
    guest.offer(COUNT)
    for frame in wanted:
        end.send(frame)
    assert sorted(guest.wait_received(COUNT)) == sorted(wanted)
    no_drops(switch, "guest", "wan")
    end.close()


@pytest.mark.parametrize("queues", [1, 2])
def test_what_the_host_sends_by_an_interface_is_not_received(
    network: Network, switch: RunningSwitch, guest: Guest, queues: int
) -> None:
    network.pair("left", "right")
    switch.add_device("wan", "if:left", queues=queues)
    switch.wait_state("wan", "up")
    switch.join("wan", "guest")
    end, host = End(network, "right"), End(network, "left")
    wanted = frames()
    host.send(wanted[0])
    assert end.wait_received(1) == wanted[:1]
    guest.offer(COUNT)
    for frame in wanted:
        end.send(frame)
    assert sorted(guest.wait_received(COUNT)) == sorted(wanted)
    # The worker counts what a device had after the guest has it.
    wait_until(lambda: switch.counters("wan")["received_packets"] >= COUNT, "all are counted")
    assert switch.counters("wan")["received_packets"] == COUNT
    end.close()
    host.close()


@pytest.mark.parametrize("scheme", ["if", "xdp"])
def test_a_change_that_is_refused_while_a_device_is_gone(
    network: Network, switch: RunningSwitch, guest: Guest, scheme: str
) -> None:
    """It leaves everything as it was, the port that is gone included, and that comes back."""
    network.pair("left", "right")
    switch.add_device("wan", f"{scheme}:left")
    switch.wait_state("wan", "up")
    switch.join("guest", "wan")
    before = switch.call("config.get")
    network.run("ip", "link", "delete", "left")
    switch.wait_state("wan", "removed")
    refused = {
        "another port cannot be": {"ports": {"more": {"kind": "device", "device": "if:nowhere"}}},
        "the port itself cannot become that": {"ports": {"wan": {"device": "if:nowhere"}}},
        "a chain has no such end": {"chains": {"guest-wan": {"to": "nobody"}}},
    }
    for why, patch in refused.items():
        with pytest.raises(ControlError):
            switch.call("config.apply", patch=patch)
        assert switch.call("config.get") == before, why
        assert switch.port("wan")["state"] == "removed", why
        lost(switch, guest, "wan")
    network.pair("left", "right")
    switch.wait_state("wan", "up")
    end = End(network, "right")
    exchange(guest, end)
    end.close()


def test_nothing_is_left_of_an_xdp_program(network: Network, switch: RunningSwitch) -> None:
    network.pair("left", "right")
    switch.add_device("wan", "xdp:left")
    switch.wait_state("wan", "up")
    assert "xdp" in network.run("ip", "link", "show", "dev", "left")
    switch.remove_port("wan")
    assert "xdp" not in network.run("ip", "link", "show", "dev", "left")


def test_an_idle_switch_with_a_device_sleeps(network: Network, switch: RunningSwitch) -> None:
    """Watching over a device costs next to nothing: well below a twentieth of a core."""
    network.pair("left", "right")
    switch.add_device("wan", "if:left")
    switch.wait_state("wan", "up")

    def ticks() -> int:
        fields = Path(f"/proc/{switch.process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    subprocess.run(["sleep", "2"], check=True)
    assert ticks() - before <= 10


@pytest.mark.parametrize("uri", ["if:left", "xdp:left", "tap:tap0"])
def test_what_comes_while_the_switch_is_held_up_is_counted_where_it_is_lost(
    network: Network, switch: RunningSwitch, uri: str
) -> None:
    """Its ring is full after some thousand frames; what comes then never reaches the switch."""
    if uri.startswith("tap:"):
        switch.add_device("wan", uri)
        end = End(network, "tap0")
    else:
        network.pair("left", "right")
        end = End(network, "right")
        switch.add_device("wan", uri)
    switch.wait_state("wan", "up")
    before = switch.counters("wan")
    with switch.held_up():
        for frame in frames(count=6000):
            end.send(frame)

    def told() -> int:
        counters = switch.counters("wan")
        return counters["drop_device_missed"] + counters["received_packets"] - before["received_packets"]

    wait_until(lambda: told() >= 6000, "each frame is counted, as taken or as lost")
    assert told() == 6000
    assert switch.counters("wan")["drop_device_missed"] > 0
    assert switch.port("wan")["state"] == "up"
    end.close()
