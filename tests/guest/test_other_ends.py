"""The other end of a bond and of a tunnel is a stock Debian kernel's, in a virtual machine: its bonding driver with
LACP, and its geneve device. Few hosts' kernels have both."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import linux
import pytest
from machine import Hardware, Machine, mac
from one_network import Host
from private_network import Network
from running_node import Command, needs_a_node, wait_until
from running_switch import RunningSwitch, switch_of_devices

pytestmark = [pytest.mark.whole, pytest.mark.requires_program("ip", "ping", "tailrace-switch", "qemu-system-x86_64")]
VNI, NEAR, FAR = 42, "203.0.113.1", "203.0.113.2"


def nics(*taps: str) -> Hardware:
    """A machine with a virtio device on each TAP."""
    words: list[str | Path] = []
    for number, tap in enumerate(taps):
        words += ["-netdev", f"tap,id=tap{number},ifname={tap},script=no,downscript=no"]
        words += ["-device", f"virtio-net-pci,netdev=tap{number},mac={mac(number + 1)}"]
    return Hardware(arguments=words)


@pytest.fixture
def switch(binaries: Path, tmp_path: Path, network: Network) -> Iterator[RunningSwitch]:
    with switch_of_devices(binaries, tmp_path, network.within) as running:
        yield running


def test_lacp_with_linux(switch: RunningSwitch, network: Network, tmp_path: Path, accelerator: str) -> None:
    for tap in ("tap0", "tap1"):
        network.run("ip", "tuntap", "add", "mode", "tap", "vnet_hdr", "name", tap)
        network.run("ip", "link", "set", tap, "up")
    network.pair("near", "far")
    network.run("ip", "address", "add", f"{linux.ADDRESS}.1/24", "dev", "far")
    with Machine(tmp_path, "linux", nics("tap0", "tap1"), accelerator=accelerator, within=network.within) as machine:
        machine.run("modprobe bonding max_bonds=0; echo +bond0 >/sys/class/net/bonding_masters")
        for key, value in (("mode", "802.3ad"), ("lacp_rate", "fast"), ("miimon", "100")):
            machine.run(f"echo {value} >/sys/class/net/bond0/bonding/{key}")
        for name in ("eth0", "eth1"):
            machine.run(f"ethtool -s {name} speed 10000 duplex full; ip link set {name} down")
            machine.run(f"echo +{name} >/sys/class/net/bond0/bonding/slaves")
        linux.configure(machine, 2, "bond0")
        switch.add_device("wan", "bond:lacp,if:tap0,if:tap1")
        switch.add_device("near", "if:near")
        switch.join("near", "wan")

        def active() -> list[bool]:
            return [each["active"] for each in switch.port("wan")["bond"]["members"]]

        wait_until(lambda: active() == [True, True], 120)
        switch.wait_state("wan", "up")
        wait_until(lambda: "Number of ports: 2" in machine.run("cat /proc/net/bonding/bond0"), 120)
        (partner,) = {each["partner"] for each in switch.port("wan")["bond"]["members"]}
        assert partner.lower() == machine.run("cat /sys/class/net/bond0/address").strip()
        wait_until(lambda: "1 received" in machine.run(f"ping -c 1 -W 5 {linux.ADDRESS}.1; true"), 120)
        linux.ping(machine, f"{linux.ADDRESS}.1")

        # The machine's own device keeps its link: only LACP tells it.
        network.run("ip", "link", "set", "tap1", "down")
        wait_until(lambda: active() == [True, False], 120)
        wait_until(lambda: "Number of ports: 1" in machine.run("cat /proc/net/bonding/bond0"), 120)
        linux.ping(machine, f"{linux.ADDRESS}.1")


@pytest.fixture
def hosts() -> Iterator[tuple[Host, str]]:
    """A host with an interface, and a TAP."""
    mark = os.getpid() % 100_000
    host, tap = Host(f"tog{mark}", 1), f"tot{mark}"
    try:
        host.make()
        subprocess.run(["ip", "tuntap", "add", "mode", "tap", "vnet_hdr", "name", tap], check=True)
        subprocess.run(["ip", "link", "set", tap, "up"], check=True)
        yield host, tap
    finally:
        host.remove()
        subprocess.run(["ip", "link", "delete", tap], check=False, capture_output=True)


class TestGeneve:
    """A node has the tunnel."""

    pytestmark = needs_a_node

    def test_frames_pass_to_linux(
        self, command: Command, hosts: tuple[Host, str], tmp_path: Path, accelerator: str
    ) -> None:
        host, tap = hosts
        host.run("ip", "link", "set", "eth0", "mtu", "1450")
        tunnel = f"{{protocol: geneve, vni: {VNI}, local: {NEAR}, remote: {FAR}}}"
        spec = command.spec(
            f"fabric: {{idle: sleep}}\nfunctions: {{away: {{kind: tunnel, tunnel: {tunnel}}}}}\n"
            f"chains: {{wan: [{{if: {host.namespace}}}, away, {{if: {tap}}}]}}\n"
        )
        with Machine(tmp_path, "linux", nics(tap), accelerator=accelerator) as machine:
            machine.run(f"modprobe geneve; ip address add {FAR}/24 dev eth0; ip link set eth0 up")
            machine.run(f"ip link add inner type geneve id {VNI} remote {NEAR}; ip link set inner mtu 1450")
            linux.configure(machine, 2, "inner", mtu=1450)
            host.run("ip", "address", "add", f"{linux.ADDRESS}.1/24", "dev", "eth0")
            command("up", spec)
            try:
                wait_until(lambda: "1 received" in machine.run(f"ping -c 1 -W 5 {linux.ADDRESS}.1; true"), 120)
                linux.ping(machine, f"{linux.ADDRESS}.1")
                linux.ping(machine, f"{linux.ADDRESS}.1", 20, 1450 - 28)
            finally:
                command("down")
