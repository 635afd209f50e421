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
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from tailrace.errors import Failure, Mistake
from tailrace.functions.names import outer_name
from tailrace.process.programs import PATIENCE, finished, run_system, system_program
from tailrace.spec.kind import Network
from tailrace.state.record import Namespace, State

_SWITCHES = {
    # Of several addresses in one network the others would go with the first one.
    4: ("net.ipv4.ip_forward=1", "net.ipv4.conf.all.promote_secondaries=1"),
    6: ("net.ipv6.conf.all.forwarding=1",),
}
_IPV6 = Path("/proc/sys/net/ipv6")
"""A host that was booted with ipv6.disable=1 has none."""
_PROTOCOL = "116"
"""Of the routes and neighbours that a spec gives (rtnetlink(7), rtm_protocol): others are not ours."""
_FAILED = re.compile(r"\s*Command failed -:(\d+)\s*")
"""How ip(8) says in which line of a batch it has stopped."""
_LINE_SECONDS = 1e-3
"""For a line of a batch: a hundred times as long as it takes."""


def prepare_namespace(state: State, function: str, network: Network, group: int) -> str:
    """Makes the namespace of a function, whose group that is, on record first, or brings the one that is there to what
    is wanted; returns its name. Raises Mistake or Failure."""
    if os.geteuid() != 0:
        raise Mistake(f"{function} has a network namespace of its own, which root makes: run as root")
    versions = (4, 6) if _IPV6.exists() else (4,)
    _check_versions(function, network, versions)
    thing = Namespace(outer_name(state.folder, function), function)
    if thing not in state.record.things:
        state.add(thing)
        problem = thing.undo()  # one of that name which a record that was lost has left
        if problem is not None:
            raise Failure(problem)
    if not Path("/run/netns", thing.name).exists():
        run_system("ip", "netns", "add", thing.name)
    switches = chain.from_iterable(_SWITCHES[version] for version in versions)
    run_system("sysctl", "-qw", *switches, namespace=thing.name)
    _ip(thing.name, "link", "set", "lo", "up")
    for number, addresses in enumerate(network.addresses):
        mac = network.macs[number] if network.macs else None
        _port(thing.name, f"port{number}", addresses, group, mac)
    _batch(thing.name, [*_wanted(network), *_unwanted(thing.name, network, versions)])
    return thing.name


def _check_versions(function: str, network: Network, versions: Sequence[int]) -> None:
    """Raises Mistake where the kernel has not all IP versions of what is wanted."""
    if 6 in versions:
        return
    found = [*chain.from_iterable(network.addresses), *(each.prefix for each in network.routes)]
    found += [address for address, _, _ in network.neighbours]
    lacking = next((each for each in found if ":" in each), None)
    if lacking is not None:
        raise Mistake(
            f"{function}: {lacking} is of IPv6, which this host's kernel has not; boot it without ipv6.disable=1, or "
            "leave out what is of IPv6"
        )


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
    return [*lines, *_wanted(network)]


def with_failed_line(said: str, lines: Sequence[str]) -> str:
    """What ip(8) has said of a batch of these lines, with the line that it has stopped at in place of its number."""
    found = _FAILED.search(said)
    if found is None or not 1 <= int(found[1]) <= len(lines):
        return said
    why = " ".join(_FAILED.sub(" ", said).split())
    return f"`ip {lines[int(found[1]) - 1]}`: {why}"


def _wanted(network: Network) -> list[str]:
    """The neighbours and routes that the spec gives."""
    lines = [
        f"neighbour replace {address} lladdr {mac} dev port{at} nud permanent protocol {_PROTOCOL}"
        for address, mac, at in network.neighbours
    ]
    for route in network.routes:
        hops = " ".join(f"nexthop via {hop} dev port{at}" for hop, at in route.via)
        lines.append(f"route replace {route.prefix} proto {_PROTOCOL} {hops}")
    return lines


def _unwanted(namespace: str, network: Network, versions: Sequence[int]) -> Iterator[str]:
    """Takes away those that it has given before, and does not any more."""
    neighbours = {(address, f"port{port}") for address, _, port in network.neighbours}
    for found in _listed(namespace, "neighbour", "show", "nud", "permanent", "proto", _PROTOCOL):
        if (found["dst"], found["dev"]) not in neighbours:
            yield f"neighbour delete {found['dst']} dev {found['dev']}"
    routes = {each.prefix for each in network.routes}
    for version in versions:
        everything = {4: "0.0.0.0/0", 6: "::/0"}[version]
        for found in _listed(namespace, f"-{version}", "route", "show", "proto", _PROTOCOL):
            prefix = str(ipaddress.ip_network(everything if found["dst"] == "default" else found["dst"]))
            if prefix not in routes:
                yield f"route delete {prefix} proto {_PROTOCOL}"


def _batch(namespace: str, lines: Sequence[str]) -> None:
    """Has one ip(8) do all of it, in order. Raises Failure with the line that it has stopped at."""
    if not lines:
        return
    command = [system_program("ip"), "-n", namespace, "-batch", "-"]
    done = finished(command, PATIENCE + _LINE_SECONDS * len(lines), told="".join(f"{line}\n" for line in lines))
    if done.returncode != 0:
        raise Failure(f"network namespace {namespace}: {with_failed_line(done.stderr.strip(), lines)}")


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
