"""A router in a machine: the kernel inside has its addresses, routes and neighbours, between two real TCP/IP stacks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from machine import BOOT
from routed_hosts import Host, spec_of
from running_node import Command, needs_a_node, wait_until

from tailrace.functions import agent
from tailrace.functions.domain import mac_address
from tailrace.functions.names import outer_name

pytestmark = [
    *needs_a_node,
    pytest.mark.whole,
    pytest.mark.requires_program("virtlogd", "qemu-system-x86_64", "ping", "traceroute"),
    pytest.mark.timeout(900),
]
ROUTES = "{198.51.100.0/24: 198.18.79.2, '2001:db8:100::/48': ['2001:db8:79::2', '2001:db8:79::3']}"


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Host, Host]]:
    mark = os.getpid() % 100_000
    made = (Host(f"tml{mark}", 78), Host(f"tmr{mark}", 79))
    try:
        for host in made:
            host.make()
        yield made
    finally:
        for host in made:
            host.remove()


def text(hosts: tuple[Host, Host], routes: str) -> str:
    spec = spec_of(*hosts, routes, runs="machine").replace("runs: machine", "runs: machine\n    memory: 512MiB")
    return spec + "fabric: {idle: sleep}\n"


@pytest.fixture(scope="module")
def node(command: Command, hosts: tuple[Host, Host]) -> Command:
    command("up", command.spec(text(hosts, ROUTES)))
    for to in hosts[1].addresses.values():
        wait_until(partial(hosts[0].reaches, to), BOOT)
    return command


def inside(node: Command, instance: str, words: str) -> str:
    return agent.ask(node.state / f"logs/{instance}.agent", words)


def shown(node: Command) -> Any:
    return json.loads(node("function", "show", "edge", "--json").stdout)


def forwarded(node: Command) -> int:
    return sum(each["forwarded"] for each in shown(node)["counters"]["routed"])


def test_two_hosts_reach_each_other_through_it(node: Command, hosts: tuple[Host, Host]) -> None:
    left, right = hosts
    before = forwarded(node)
    for version in (4, 6):
        left.ping_all(right.addresses[version], 20)
        left.ping_all(left.routers[version])
    assert forwarded(node) - before >= 60
    said = left.run("traceroute", "-4", "-n", "-q", "1", right.addresses[4])
    assert [line.split()[1] for line in said.splitlines()[1:]] == [left.routers[4], right.addresses[4]]


def test_its_network_is_that_of_the_kernel_inside(node: Command, hosts: tuple[Host, Host]) -> None:
    left, right = hosts
    name = outer_name(node.state, "edge")
    assert not Path("/run/netns", name).exists()
    assert "198.51.100.0/24 via 198.18.79.2 dev port1 proto 116" in inside(node, "edge", "/usr/bin/ip route")
    assert inside(node, "edge", "/usr/bin/ip -6 route show 2001:db8:100::/48").count("nexthop via 2001:db8:79::") == 2
    assert inside(node, "edge", "cat /sys/class/net/port1/address").strip() == mac_address(name, 1)
    # What is set there is followed, and the kernel inside has VLANs.
    right.run("ip", "address", "add", "192.0.2.9/32", "dev", "lo")
    inside(node, "edge", f"/usr/bin/ip route add 192.0.2.0/24 via {right.addresses[4]}")
    wait_until(partial(left.reaches, "192.0.2.9"))
    inside(
        node,
        "edge",
        "/usr/bin/ip link add link port1 name port1.100 type vlan id 100; /usr/bin/ip link set port1.100 up",
    )
    inside(node, "edge", "/usr/bin/ip address add 203.0.113.1/24 dev port1.100")
    wait_until(
        lambda: {"prefix": "203.0.113.0/24", "to": ["port1.100"]} in shown(node)["tables"]["ipv4_routes"]["rows"]
    )


def test_another_instance_has_the_same_stations_and_the_new_routes(node: Command, hosts: tuple[Host, Host]) -> None:
    left, right = hosts
    station = left.run("ip", "neighbour", "show", left.routers[4]).split()[4]
    right.run("ip", "address", "replace", "203.0.113.9/32", "dev", "lo")
    node("apply", node.spec(text(hosts, "{203.0.113.0/24: 198.18.79.2}")))
    left.ping_all("203.0.113.9")
    assert left.run("ip", "neighbour", "show", left.routers[4]).split()[4] == station
    assert "198.51.100.0/24" not in inside(node, "edge@2", "/usr/bin/ip route")
