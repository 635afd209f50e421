"""The network namespace that a function lives in, where its kind has one, with a TAP interface for each of its ports,
its addresses and its routes; and the same for one that has a kernel of its own, in a machine.

It is the function's, and not an instance's: what an operator or a routing daemon has set in it stays when the function
is restarted. The TAP interfaces are those of the function's own group, so it opens them without a capability.
Sources: ip-netns(8), ip-tuntap(8), the kernel's Documentation/networking/tuntap.rst and ip-sysctl.rst.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tailrace.errors import Failure, Mistake
from tailrace.functions.names import outer_name
from tailrace.process.programs import run_system
from tailrace.spec.kind import Network, Route
from tailrace.state.record import Namespace, State

_SWITCHES = ("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
_PROTOCOL = "116"
"""Of the routes and neighbours that a spec gives (rtnetlink(7), rtm_protocol): others are not ours."""


def prepare_namespace(state: State, function: str, network: Network, group: int) -> str:
    """Makes the namespace of a function, whose group that is, on record first, or brings the one that is there to what
    is wanted; returns its name. Raises Mistake or Failure."""
    if os.geteuid() != 0:
        raise Mistake(f"{function} has a network namespace of its own, which root makes: run as root")
    thing = Namespace(outer_name(state.folder, function), function)
    if thing not in state.record.things:
        state.add(thing)
        problem = thing.undo()  # one of that name which a record that was lost has left
        if problem is not None:
            raise Failure(problem)
    if not Path("/run/netns", thing.name).exists():
        run_system("ip", "netns", "add", thing.name)
    run_system("sysctl", "-qw", *_SWITCHES, namespace=thing.name)
    _ip(thing.name, "link", "set", "lo", "up")
    for number, addresses in enumerate(network.addresses):
        mac = network.macs[number] if network.macs else None
        _port(thing.name, f"port{number}", addresses, group, mac)
    _neighbours(thing.name, network)
    for version in (4, 6):
        _routes(thing.name, version, network.routes)
    return thing.name


def network_commands(network: Network, macs: Sequence[str]) -> list[str]:
    """What ip(8) is told in a system of a function's own, line by line, once its program has made the TAP interfaces;
    `macs`: of the ports, unless the spec gives others."""
    lines = []
    for number, addresses in enumerate(network.addresses):
        port = f"port{number}"
        mac = (network.macs[number] if network.macs else None) or macs[number]
        # A copy of another machine has that one's.
        lines += [f"address flush dev {port} scope global", f"neighbour flush dev {port} nud permanent"]
        lines += [f"link set {port} address {mac} up"]
        lines += [f"address replace {address} dev {port}" for address in addresses]
    for address, mac, at in network.neighbours:
        lines.append(f"neighbour replace {address} lladdr {mac} dev port{at} nud permanent protocol {_PROTOCOL}")
    for route in network.routes:
        hops = " ".join(f"nexthop via {hop} dev port{at}" for hop, at in route.via)
        lines.append(f"route replace {route.prefix} proto {_PROTOCOL} {hops}")
    return lines


def _ip(namespace: str, *words: str) -> str:
    return run_system("ip", "-n", namespace, *words)


def _listed(namespace: str, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_ip(namespace, "-j", *words) or "[]")
    return found


def _port(namespace: str, name: str, addresses: tuple[str, ...], group: int, mac: str | None) -> None:
    """A port's TAP interface, up, with this MAC address if one is given. Of its addresses those are the spec's to say
    that it has any of."""
    there = {each["ifname"]: each for each in _listed(namespace, "address", "show")}
    if name not in there:
        _ip(namespace, "tuntap", "add", "dev", name, "mode", "tap", "multi_queue", "group", str(group))
    for each in there.get(name, {}).get("addr_info", []):
        address = f"{each['local']}/{each['prefixlen']}"
        if addresses and each["scope"] == "global" and address not in addresses:
            _ip(namespace, "address", "delete", address, "dev", name)
    for address in addresses:
        _ip(namespace, "address", "replace", address, "dev", name)
    _ip(namespace, "link", "set", name, *(("address", mac) if mac is not None else ()), "up")


def _neighbours(namespace: str, network: Network) -> None:
    """Those that the spec gives; those that it has given before, and does not any more, are forgotten."""
    wanted = {(address, f"port{port}") for address, _, port in network.neighbours}
    for address, mac, port in network.neighbours:
        of = ("dev", f"port{port}", "nud", "permanent", "protocol", _PROTOCOL)
        _ip(namespace, "neighbour", "replace", address, "lladdr", mac, *of)
    for found in _listed(namespace, "neighbour", "show", "nud", "permanent", "proto", _PROTOCOL):
        if (found["dst"], found["dev"]) not in wanted:
            _ip(namespace, "neighbour", "delete", found["dst"], "dev", found["dev"])


def _routes(namespace: str, version: int, routes: tuple[Route, ...]) -> None:
    wanted = {each.prefix: each for each in routes if ipaddress.ip_network(each.prefix).version == version}
    for each in wanted.values():
        hops = [word for hop, port in each.via for word in ("nexthop", "via", hop, "dev", f"port{port}")]
        _ip(namespace, f"-{version}", "route", "replace", each.prefix, "proto", _PROTOCOL, *hops)
    everything = "0.0.0.0/0" if version == 4 else "::/0"
    for found in _listed(namespace, f"-{version}", "route", "show", "proto", _PROTOCOL):
        text = everything if found["dst"] == "default" else found["dst"]
        prefix = str(ipaddress.ip_network(text))
        if prefix not in wanted:
            _ip(namespace, f"-{version}", "route", "delete", prefix, "proto", _PROTOCOL)
