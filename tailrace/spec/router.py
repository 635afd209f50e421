"""The router as a spec words it: its own addresses, and routes that it has beside those of whoever runs in its network
namespace."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tailrace.spec.addresses import (
    ADDRESS,
    NOWHERE,
    WITH_LENGTH,
    Address,
    Net,
    address_schema,
    read_host,
    read_interface,
    read_network,
)
from tailrace.spec.fields import OneOrMany, each_once, short
from tailrace.spec.kind import Network, Route, Settings
from tailrace.spec.position import Location
from tailrace.spec.virtual_function import Station

MOST_ROUTES = 1 << 22
PortName = Literal["port0", "port1"]
_PORTS: tuple[PortName, ...] = ("port0", "port1")
#: Bytes of tables, as the program takes them (dataplane/functions/router_table.c): at least, and for each route.
_TABLES = 160 << 20
_IPV4_ROUTE, _IPV6_ROUTE = 640, 3700

#: Routes by the length of their prefix, and by its bits.
Narrow = dict[int, dict[int, Net]]


def _interface(value: Any) -> str:
    """10.0.0.1/24"""
    expected = "expected an address with its prefix's length, such as 10.0.0.1/24 or 2001:db8::1/64"
    found = read_interface(value, expected)
    if found.ip.is_link_local:
        raise ValueError(f"{found} cannot be a port's; {expected}")
    return str(found)


def _prefix(value: Any) -> str:
    """10.0.0.0/8"""
    expected = "expected a prefix such as 10.0.0.0/8, 0.0.0.0/0 or 2001:db8::/32"
    return str(read_network(value, expected, bare=False))


def _next_hop(value: Any) -> str:
    """10.0.0.2"""
    return str(read_host(value, "expected that of a neighbour, such as 10.0.0.2"))


Interface = Annotated[str, BeforeValidator(_interface), address_schema(WITH_LENGTH, "10.0.0.1/24")]
Prefix = Annotated[str, BeforeValidator(_prefix), address_schema(WITH_LENGTH, "10.0.0.0/8")]
NextHop = Annotated[str, BeforeValidator(_next_hop), address_schema(ADDRESS, "10.0.0.2")]
Interfaces = Annotated[list[Interface], short(str, lambda value: [value]), OneOrMany()]
NextHops = Annotated[list[NextHop], short(str, lambda value: [value]), OneOrMany(), Field(min_length=1, max_length=8)]


class Router(Settings):
    """What a router is told."""

    port0: Interfaces = Field(
        default_factory=list,
        description="the addresses of its first port, with the lengths of their prefixes; none: they are set by hand, "
        "or by a routing daemon, in its network namespace",
    )
    port1: Interfaces = Field(default_factory=list, description="the same of its second port")
    routes: Annotated[dict[Prefix, NextHops], each_once(_prefix, "prefix")] = Field(
        default_factory=dict,
        description="by prefix: the neighbour that leads there, or several that share the flows. Others may be added "
        "in its network namespace while it runs",
    )
    macs: dict[PortName, Station] = Field(
        default_factory=dict, description="the MAC addresses of its ports; random ones unless given"
    )
    neighbours: Annotated[dict[NextHop, Station], each_once(_next_hop, "address")] = Field(
        default_factory=dict,
        description="MAC addresses of neighbours that are not asked for them; others are found by ARP and neighbour "
        "discovery",
    )
    ipv4_routes: int = Field(16384, ge=1, le=MOST_ROUTES, description="the most IPv4 routes that it has room for")
    ipv6_routes: int = Field(16384, ge=1, le=MOST_ROUTES, description="the most IPv6 routes that it has room for")

    def settings(self, replica: int) -> tuple[str, ...]:
        del replica
        return (f"ipv4-routes={self.ipv4_routes}", f"ipv6-routes={self.ipv6_routes}")

    def network(self) -> Network:
        routes = (
            Route(prefix, tuple((hop, port) for hop in hops if (port := self._port_of(hop)) is not None))
            for prefix, hops in self.routes.items()
        )
        return Network(
            (tuple(self.port0), tuple(self.port1)),
            tuple(routes),
            tuple(self.macs.get(port) for port in _PORTS) if self.macs else (),
            tuple(
                (address, mac, port)
                for address, mac in self.neighbours.items()
                if (port := self._port_of(address)) is not None
            ),
        )

    def stands_for(self) -> tuple[str, ...]:
        return tuple(str(ipaddress.ip_interface(each).ip) for each in (*self.port0, *self.port1))

    def tables_mib(self, queues: int = 1) -> int:
        del queues  # which share them
        needed = _TABLES + _IPV4_ROUTE * self.ipv4_routes + _IPV6_ROUTE * self.ipv6_routes
        return -(-needed // (2 << 20)) * 2

    def refuses(self, replicas: int, standby: int) -> str | None:
        del standby
        return f"{replicas} replicas would have the same addresses; expected 1" if replicas > 1 else None

    def warnings(self) -> Iterator[str]:
        for version, room in ((4, self.ipv4_routes), (6, self.ipv6_routes)):
            number = sum(ipaddress.ip_network(each).version == version for each in self.routes)
            if number > room:
                yield (
                    f"{number} IPv{version} routes are more than ipv{version}_routes has room for ({room}), so the "
                    f"kernel forwards all of IPv{version}"
                )

    def problems(self) -> Iterator[tuple[Location, str]]:
        owners: dict[str, str] = {}
        networks: dict[Net, str] = {}
        for port in _PORTS:
            for text in getattr(self, port):
                found = ipaddress.ip_interface(text)
                address = str(found.ip)
                if address in owners:
                    yield (port,), f"{address} is an address of {owners[address]} already; expected each once"
                elif networks.get(found.network, port) != port:
                    yield (
                        (port,),
                        f"{found.network} is the network of {networks[found.network]} too, so it would not be known "
                        "at which port a neighbour is; expected another one",
                    )
                owners.setdefault(address, port)
                networks.setdefault(found.network, port)
        for address in self.neighbours:
            if address in owners or self._port_of(address) is None:
                yield (
                    ("neighbours", address),
                    f"{address} is no other address in a prefix of a port; expected that of a neighbour",
                )
            elif whole := self._whole(address):
                yield ("neighbours", address), f"{address} is {whole}; expected that of a neighbour"
        routes = {prefix: ipaddress.ip_network(prefix) for prefix in self.routes}
        narrow = _narrow(routes.values(), networks)
        for prefix, hops in self.routes.items():
            for why in self._problems_of(routes[prefix], hops, owners, networks, narrow):
                yield ("routes", prefix), why

    def _problems_of(
        self, prefix: Net, hops: list[str], owners: dict[str, str], networks: dict[Net, str], narrow: Narrow
    ) -> Iterator[str]:
        """What is wrong with a route."""
        nowhere = [each for each in NOWHERE if each.version == prefix.version and each.supernet_of(prefix)]  # type: ignore[arg-type]
        if nowhere:
            yield f"frames to {nowhere[0]} are never forwarded; expected another prefix"
        address = str(prefix.network_address)
        if prefix.prefixlen == prefix.max_prefixlen and address in owners:
            yield f"{address} is the router's own ({owners[address]}), so nothing goes on; expected another prefix"
        elif prefix in networks:
            yield (
                f"{prefix} is the network of {networks[prefix]}, whose neighbours are reached directly; expected "
                "another prefix"
            )
        for place, hop in enumerate(hops):
            if ipaddress.ip_address(hop).version != prefix.version:
                yield f"{hop} is of another IP version than {prefix}; expected one of the same"
            elif hop in owners:
                yield f"{hop} is the router's own ({owners[hop]}); expected a neighbour's"
            elif self._port_of(hop) is None:
                known = ", ".join([*self.port0, *self.port1])
                wanted = f"expected one of {known}" if known else "expected a port with an address there"
                yield f"{hop} is in no prefix of a port, so it is not known how to reach it; {wanted}"
            elif whole := self._whole(hop):
                yield f"{hop} is {whole}; expected a neighbour's"
            elif hop in hops[:place]:
                yield f"{hop} is named twice; expected each next hop once"
            elif (by := self._route_of(hop, narrow)) is not None:
                yield (
                    f"{hop} is a next hop, and {by} another route to it, which the kernel refuses for IPv6; expected "
                    f"no route to a part of a port's network that has {hop} in it"
                )

    def _networks(self, address: Address) -> Iterator[tuple[Net, int]]:
        """Those that hold an address, each with the number of the port that it is of."""
        for number, port in enumerate(_PORTS):
            for text in getattr(self, port):
                network = ipaddress.ip_interface(text).network
                if address in network:
                    yield network, number

    def _port_of(self, hop: str) -> int | None:
        """The number of the port that a neighbour is at: of the longest prefix. None: it is at none."""
        found = max(self._networks(ipaddress.ip_address(hop)), key=lambda each: each[0].prefixlen, default=None)
        return None if found is None else found[1]

    def _whole(self, text: str) -> str | None:
        """What an address is if no neighbour can have it (RFC 1812, 4.2.2.11; RFC 3021 has pairs of hosts)."""
        address = ipaddress.ip_address(text)
        for network, _ in self._networks(address):
            if network.version == 4 and network.prefixlen < network.max_prefixlen - 1:
                if address == network.broadcast_address:
                    return f"the address of all in {network}"
                if address == network.network_address:
                    return f"the address of the whole network {network}"
        return None

    def _route_of(self, hop: str, narrow: Narrow) -> Net | None:
        """The route by which Linux would look for a next hop of IPv6, where its port's network is wider: then it is
        refused (ip6_route_check_nh() in net/ipv6/route.c)."""
        address = ipaddress.ip_address(hop)
        if address.version == 4 or not narrow:
            return None
        own = max(network.prefixlen for network, _ in self._networks(address))
        for length in sorted((each for each in narrow if each > own), reverse=True):
            found = narrow[length].get(int(address) >> (address.max_prefixlen - length))
            if found is not None:
                return found
        return None


def _narrow(routes: Iterable[Net], networks: Iterable[Net]) -> Narrow:
    """The IPv6 routes to a part of a port's network. Usually there are none, and a spec may have a million routes."""
    ports = [each for each in networks if each.version == 6]
    narrow: Narrow = {}
    for route in routes:
        if any(route.prefixlen > port.prefixlen and route.network_address in port for port in ports):
            first = int(route.network_address) >> (route.max_prefixlen - route.prefixlen)
            narrow.setdefault(route.prefixlen, {})[first] = route
    return narrow
