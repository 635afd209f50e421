"""A machine between two stock Linux guests, shared by all tests: testpmd runs in it, then a router whose kernel has
VLAN interfaces.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import linux
import pytest
from machine import Hardware, Machine, Nic, mac
from running_switch import RunningSwitch, wait_until
from test_dpdk_driver import ENDS, INSIDE, TESTPMD, Function, boot, inside
from wiring import assert_no_fault

from tailrace.resources.hugepages import POOL

pytestmark = pytest.mark.requires_program("tailrace-switch", "qemu-system-x86_64", "dpdk-testpmd", "iperf3")

PAGES = 140
"""Of 2 MiB: the router's tables, packet buffers, and some."""
ROUTER = (
    "tailrace-vnf router --huge --memory 256 --port pci:{nics[0]} --port pci:{nics[1]} --control /run/router "
    "--set ipv4-routes=1000 --set ipv6-routes=1000"
)
WEST, EAST, PLAIN, BESIDE = 10, 20, 30, 11
"""Networks: of a VLAN at the west, of another one at the east, of untagged frames there, and of one more VLAN at the
west."""


@dataclass
class Between:
    switch: RunningSwitch
    west: Machine
    east: Machine
    machine: Machine
    function: Function


@pytest.fixture(scope="module")
def between(
    shared_switch: RunningSwitch, tmp_path_factory: pytest.TempPathFactory, accelerator: str
) -> Iterator[Between]:
    """All are up, and testpmd forwards."""
    switch, folder = shared_switch, tmp_path_factory.mktemp("between")
    names = (ENDS[0], *INSIDE, ENDS[1])
    paths = {name: switch.add_guest(name) for name in names}
    switch.set_chain("chain", *names)
    west, east = (
        Machine(folder, name, Hardware([Nic(paths[name], options={"mac": mac(number)})]), accelerator=accelerator)
        for number, name in enumerate(ENDS, 11)
    )
    with west, east, boot(folder, inside(paths, {}), accelerator, memory=640) as machine:
        function = Function(switch, machine, TESTPMD)
        function.wait_state("up")
        for number, client in enumerate((west, east), 1):
            linux.configure(client, number)
        yield Between(switch, west, east, machine, function)


def test_stock_linux_guests_reach_each_other_through_testpmd_in_a_machine(between: Between) -> None:
    """By ping, TCP both ways and UDP."""
    linux.exchange(between.west, between.east)
    assert_no_fault(between.switch, *ENDS, *INSIDE)


# --- the router ----------------------------------------------------------------------------------------------------


def network(number: int, host: int) -> list[str]:
    """Addresses of a host there, of both versions."""
    return [f"198.18.{number}.{host}", f"2001:db8:{number}::{host}"]


def give(interface: str, number: int, host: int, ip: str = "ip") -> str:
    """The commands that bring an interface up with both addresses."""
    four, six = network(number, host)
    return (
        f"echo 0 >/proc/sys/net/ipv6/conf/{interface}/disable_ipv6; {ip} link set {interface} up; "
        f"{ip} address add {four}/24 dev {interface}; {ip} address add {six}/64 dev {interface} nodad; "
    )


def vlan(parent: str, number: int, at: int, host: int) -> str:
    """Those that make one of a VLAN."""
    name = f"{parent}.{number}"
    return f"ip link add link {parent} name {name} type vlan id {number}; {give(name, at, host)}"


def default_routes(number: int, ip: str = "ip") -> str:
    four, six = network(number, 1)
    return f"{ip} -4 route add default via {four}; {ip} -6 route add default via {six}; "


@dataclass
class Routed:
    """The hosts are at VLANs of the router."""

    west: Machine
    east: Machine
    router: Machine
    running: Function

    def shown(self) -> Any:
        """Its counters and tables."""
        request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "show", "params": {"most": 100}})
        return json.loads(self.router.run(f"echo '{request}' | tailrace-vnf --ask /run/router"))["result"]

    def counted(self, name: str) -> list[int]:
        """At each port."""
        return [each[name] for each in self.shown()["counters"]["routed"]]

    def reaches(self, address: str, *options: str) -> bool:
        """Whether the west is answered from there."""
        return self.west.ask(f"ping -c 1 -W 1 {' '.join(options)} {address}")[0] == 0


@pytest.fixture(scope="module")
def routed(between: Between) -> Iterator[Routed]:
    west, east, machine, function = between.west, between.east, between.machine, between.function
    function.running.end()
    machine.run(
        f"echo {PAGES} >{POOL}/nr_hugepages; modprobe tun; modprobe 8021q; "
        "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.icmp_ratemask=0"
    )
    function.program = ROUTER.format(nics=function.nics)
    function.start()
    # A host of its own is at the other VLAN of the west, with the same interface below.
    beside = "ip -n beside"
    west.run(
        f"modprobe 8021q; {vlan('eth0', 100, WEST, 2)} {default_routes(WEST)}"
        "ip netns add beside; ip link add link eth0 name beside type vlan id 101; ip link set beside netns beside; "
        f"{give('beside', BESIDE, 2, beside).partition('; ')[2]} {default_routes(BESIDE, beside)}"
    )
    east.run(f"modprobe 8021q; {vlan('eth0', 200, EAST, 2)} {give('eth0', PLAIN, 2)} {default_routes(EAST)}")
    function.wait_state("up")
    machine.wait("[ -S /run/router ]")
    machine.run(
        f"{give('port0', 9, 1)} {vlan('port0', 100, WEST, 1)} {vlan('port0', 101, BESIDE, 1)}"
        f"{give('port1', PLAIN, 1)} {vlan('port1', 200, EAST, 1)}"
    )
    yield Routed(west, east, machine, function)
    function.running.end()


def test_a_router_forwards_between_vlans_and_what_has_none(routed: Routed) -> None:
    """To another VLAN, to no VLAN, and to another one of the same port; by its fast path."""
    for number in (EAST, PLAIN, BESIDE):
        for address in network(number, 2):
            wait_until(partial(routed.reaches, address), f"{address} is reached")
    before, by_kernel = routed.counted("forwarded"), sum(routed.counted("kernel_others"))
    for number in (EAST, PLAIN, BESIDE):
        for address in network(number, 2):
            linux.ping(routed.west, address, 10)
    forwarded = [now - then for now, then in zip(routed.counted("forwarded"), before, strict=True)]
    assert forwarded[0] >= 4 * 10 + 2 * 20 and forwarded[1] >= 4 * 10, forwarded
    # Of the 120 frames none; on a slow machine hosts and router look for each other again meanwhile.
    assert sum(routed.counted("kernel_others")) - by_kernel < 40


@pytest.mark.whole
def test_tcp_and_errors_cross_vlans(routed: Routed) -> None:
    four, six = network(EAST, 2)
    linux.tcp(routed.west, routed.east, four, seconds=1)
    linux.tcp(routed.west, routed.east, six, "--reverse", seconds=1)
    # The error comes from the VLAN where the packet came in; a packet that is too long for the other one is reported.
    for address, router, words in zip(network(EAST, 2), network(WEST, 1), ("-4", "-6"), strict=True):
        said = routed.west.ask(f"ping {words} -c 1 -W 5 -t 1 {address}")[1]
        assert f"From {router} " in said and "exceeded" in said, said
    routed.router.run("ip link set port1.200 mtu 1400")
    said = routed.west.ask(f"ping -M do -c 1 -W 5 -s 1373 {four}")[1]
    assert f"From {network(WEST, 1)[0]} " in said and "mtu = 1400" in said, said
    routed.router.run("ip link set port1.200 mtu 1500")


@pytest.mark.whole
def test_a_vlan_comes_and_goes_under_way(routed: Routed) -> None:
    address = network(EAST, 2)[0]
    assert routed.reaches(address)
    routed.router.run("ip link set port1.200 down")
    wait_until(lambda: not routed.reaches(address), "it is gone")
    routed.router.run("ip link delete port1.200")
    routed.router.run(vlan("port1", 200, EAST, 1))
    for each in network(EAST, 2):
        wait_until(partial(routed.reaches, each), f"{each} is reached again")
    before = sum(routed.counted("forwarded"))
    linux.ping(routed.west, address, 10)
    assert sum(routed.counted("forwarded")) - before >= 20
    names = {name for each in routed.shown()["tables"]["ipv4_routes"]["rows"] for name in each["to"]}
    assert {"port0.100", "port0.101", "port1.200", "port1"} <= names, names


@pytest.mark.whole
def test_a_kernel_whose_table_of_neighbours_is_full_keeps_those_that_are_known(routed: Routed) -> None:
    """Somebody looks for hosts that are not there: more than the kernel has room for."""
    known = network(EAST, 2)[0]
    assert routed.reaches(known)
    routed.router.run("for each in 1 2 3; do sysctl -qw net.ipv4.neigh.default.gc_thresh$each=16; done")
    nobody = " ".join(f"198.18.{PLAIN}.{host}" for host in range(10, 60))
    routed.west.run(f"for each in {nobody}; do ping -c 1 -W 1 $each >/dev/null & done; wait; true")
    linux.ping(routed.west, known, 10)
    assert int(routed.router.run(f"ip neigh show dev port1 | grep -c 198.18.{PLAIN} || true")) <= 17
    assert len(routed.running.running.output().splitlines()) < 40
    for each, usual in ((1, 128), (2, 512), (3, 1024)):
        routed.router.run(f"sysctl -qw net.ipv4.neigh.default.gc_thresh{each}={usual}")
