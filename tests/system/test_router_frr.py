"""FRR speaks OSPF and BGP beside the router, which follows: next hops that share the flows, and links that are lost.

left ---- edge (the router) ---- right
  \\                              /
   ------------- far -------------
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from frr import frr
from routed_hosts import Host, Scene, routed, run
from running_node import needs_a_node, wait_until

pytestmark = [
    *needs_a_node,
    pytest.mark.unsanitized,  # the tables alone take most of its memory
    pytest.mark.requires_program("ip", "ping", "vtysh"),
]
FAR = "198.51.100.9"
SERVICE = {4: "203.0.113.9", 6: "2001:db8:203::9"}
"""An address of right's that only BGP tells of."""
SECONDS = 60
OSPF = "ip ospf area 0\n ip ospf network point-to-point\n ip ospf hello-interval 1\n ip ospf dead-interval 4\n"


def ospf(router: str, *interfaces: str) -> str:
    links = "".join(f"interface {each}\n {OSPF}!\n" for each in interfaces)
    return f"{links}router ospf\n ospf router-id {router}\n!\n"


def bgp(number: int, router: str, neighbours: dict[str, int], told: tuple[str, ...] = ()) -> str:
    """Neighbours by address, with their numbers; `told` are prefixes."""
    text = f"router bgp {number}\n bgp router-id {router}\n no bgp ebgp-requires-policy\n"
    text += " no bgp network import-check\n no bgp default ipv4-unicast\n"
    for address, other in neighbours.items():
        for words in (f"remote-as {other}", "timers 1 3", "timers connect 1"):
            text += f" neighbor {address} {words}\n"
    for family, mark in (("ipv4", "."), ("ipv6", ":")):
        text += f" address-family {family} unicast\n"
        text += "".join(f"  neighbor {each} activate\n" for each in neighbours if mark in each)
        text += "".join(f"  network {each}\n" for each in told if mark in each) + " exit-address-family\n"
    return f"{text}!\n"


@pytest.fixture(scope="module")
def scene(tailrace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    mark, folder = os.getpid() % 100_000, tmp_path_factory.mktemp("frr")
    left, right = Host(f"trl{mark}", 80), Host(f"trr{mark}", 81)
    far = f"trf{mark}"
    with ExitStack() as stack:
        scene = stack.enter_context(routed(tailrace, tmp_path_factory.mktemp("router"), (left, right), "{}"))
        run("ip", "netns", "add", far)
        stack.callback(run, "ip", "netns", "delete", far)
        run("ip", "-n", far, "link", "set", "lo", "up")
        run("ip", "-n", far, "address", "add", f"{FAR}/32", "dev", "lo")
        for host, network in ((left, 82), (right, 83)):
            words = ("ip", "-n", host.namespace)
            run(*words, "link", "add", "far", "type", "veth", "peer", "name", f"to{network}", "netns", far)
            for namespace, name, number in ((host.namespace, "far", 2), (far, f"to{network}", 1)):
                run("ip", "-n", namespace, "address", "add", f"198.18.{network}.{number}/24", "dev", name)
                run("ip", "-n", namespace, "link", "set", name, "up")
            run("ip", "netns", "exec", host.namespace, "sysctl", "-qw", "net.ipv4.ip_forward=1")
            for version in (4, 6):  # what leads to others is FRR's to say
                host.run("ip", f"-{version}", "route", "delete", "default")
        for version, length in ((4, 32), (6, 128)):
            right.run("ip", "address", "add", f"{SERVICE[version]}/{length}", "dev", "lo")
        networks = ("2001:db8:80::/64", "2001:db8:81::/64")  # those of IPv4 are OSPF's to tell
        told = (f"{SERVICE[4]}/32", f"{SERVICE[6]}/128")
        us = [dict.fromkeys(host.routers.values(), 65000) for host in (left, right)]
        them = {address: 65000 + host.network for host in (left, right) for address in host.addresses.values()}
        for namespace, daemons in (
            (far, {"ospfd": ospf("10.0.0.4", "to82", "to83", "lo")}),
            (left.namespace, {"ospfd": ospf("10.0.0.2", "eth0", "far"), "bgpd": bgp(65080, "10.0.0.2", us[0])}),
            (right.namespace, {"ospfd": ospf("10.0.0.3", "eth0", "far"), "bgpd": bgp(65081, "10.0.0.3", us[1], told)}),
            (
                scene.namespace,
                {"ospfd": ospf("10.0.0.1", "port0", "port1"), "bgpd": bgp(65000, "10.0.0.1", them, networks)},
            ),
        ):
            stack.enter_context(frr(namespace, folder / namespace, **daemons))
        yield scene


def routes(scene: Scene, version: int = 4) -> dict[str, Any]:
    """Where the router's fast path leads to, by prefix."""
    shown = json.loads(scene.command("function", "show", "edge", "--json", "--most", "1000").stdout)
    return {each["prefix"]: each["to"] for each in shown["tables"][f"ipv{version}_routes"]["rows"]}


def leads(scene: Scene, prefix: str, *to: str) -> bool:
    """Whether it leads there and nowhere else."""
    return sorted(routes(scene, 6 if ":" in prefix else 4).get(prefix, [])) == sorted(to)


@contextmanager
def told_after(what: str) -> Iterator[None]:
    """Prints how long it took until the fast path leads another way (docs/router.md)."""
    began = time.monotonic()
    yield
    print(f"\n{what}: {time.monotonic() - began:.1f} s")


@pytest.mark.whole
def test_ospf_is_followed_when_a_link_is_lost(scene: Scene) -> None:
    left, right = scene.left, scene.right
    by_left, by_right = f"{left.addresses[4]} port0", f"{right.addresses[4]} port1"
    wait_until(partial(leads, scene, f"{FAR}/32", by_left, by_right), SECONDS)  # both ways are as long
    for host, others in ((left, by_right), (right, by_left)):
        host.run("ip", "link", "set", "far", "down")
        with told_after("OSPF, a link of a neighbour's lost"):
            wait_until(partial(leads, scene, f"{FAR}/32", others), SECONDS)
        wait_until(partial(host.reaches, FAR), SECONDS)
        host.ping_all(FAR)
        host.run("ip", "link", "set", "far", "up")
        wait_until(partial(leads, scene, f"{FAR}/32", by_left, by_right), SECONDS)


def test_bgp_is_followed_in_ipv4_and_ipv6(scene: Scene) -> None:
    left, right = scene.left, scene.right
    for version, length in ((4, 32), (6, 128)):
        wait_until(partial(left.reaches, SERVICE[version]), SECONDS)
        left.ping_all(SERVICE[version])
        (to,) = routes(scene, version)[f"{SERVICE[version]}/{length}"]
        assert to.endswith(" port1")
    right.run("ip", "link", "set", "eth0", "down")
    with told_after("BGP with a hold time of 3 s, the neighbour's interface down"):
        wait_until(partial(leads, scene, f"{SERVICE[4]}/32"), SECONDS)
    wait_until(partial(leads, scene, f"{SERVICE[6]}/128"), SECONDS)
    right.run("ip", "link", "set", "eth0", "up")
    right.run("ip", "address", "replace", f"{right.addresses[6]}/64", "dev", "eth0", "nodad")
    for version in (4, 6):
        wait_until(partial(left.reaches, SERVICE[version]), SECONDS)
