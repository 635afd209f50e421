"""The NAT as a spec words it: which addresses are inside, which stand for them outside, and how many of the ports an
inside host may have."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from itertools import combinations, product
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tailrace.spec import units
from tailrace.spec.addresses import address_schema, nobody, read_host, read_network
from tailrace.spec.connections import Following
from tailrace.spec.fields import Model, OneOrMany, short
from tailrace.spec.position import Location

#: What the program can hold (dataplane/functions/nat_table.h).
MOST_PREFIXES, MOST_ADDRESSES, MOST_FORWARDS, MOST_BLOCKS = 16, 1024, 64, 16
FIRST_PORT, PORTS = 1024, 1 << 16
#: Bytes of what it keeps beside each connection, of a block and its host, and of what became of a block.
_BESIDE, _BLOCK, _EVENT = 64 + 32, 192, 32
#: RFC 1918, and RFC 6598 for what is behind a carrier's NAT.
INSIDE = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"]

Network = ipaddress.IPv4Network


def _prefix(value: Any) -> str:
    """198.51.100.0/28, or an address."""
    expected = "expected an IPv4 prefix or address, such as 198.51.100.0/28"
    found = read_network(value, expected)
    if found.version != 4:
        raise ValueError(f"{units.shown(value)} is no prefix of IPv4; {expected}")
    if (of := nobody(found)) is not None:
        raise ValueError(f"{found} has addresses that no host has in a network ({of}); {expected}")
    return str(found)


def _address(value: Any) -> str:
    expected = "expected one of IPv4, such as 10.0.0.5"
    found = read_host(value, expected)
    if found.version != 4:
        raise ValueError(f"{found} is no IPv4 address; {expected}")
    return str(found)


Prefix = Annotated[str, BeforeValidator(_prefix), address_schema(r"^[0-9.]+(/[0-9]{1,2})?$", "198.51.100.0/28")]
Prefixes = Annotated[
    list[Prefix], short(str, lambda value: [value]), OneOrMany(), Field(min_length=1, max_length=MOST_PREFIXES)
]
Address = Annotated[str, BeforeValidator(_address), address_schema(r"^[0-9.]+$", "10.0.0.5")]
Port = Annotated[int, Field(ge=1, le=PORTS - 1)]


class Forward(Model):
    """An address and port of the pool that always stands for the same end inside."""

    protocol: Literal["tcp", "udp"] = Field(description="of what is sent there")
    address: Address = Field(description="of the pool")
    port: Port = Field(description="there")
    to: Address = Field(description="the inside host that gets it")
    to_port: Port | None = Field(None, description="its port there; the same unless given")

    @property
    def inside_port(self) -> int:
        return self.port if self.to_port is None else self.to_port


class Nat(Following):
    """What a NAT is told. Inside is its first port."""

    pool: Prefixes | None = Field(
        None, description="the addresses that stand for inside hosts outside: prefixes, routed to this function's chain"
    )
    inside: Prefixes = Field(
        default_factory=lambda: list(INSIDE),
        description="the addresses that it translates, of what comes in at its first port; others pass as they are",
    )
    block: int = Field(
        512, ge=64, le=16384, description="ports that a host is given at a time: a power of two (RFC 7422)"
    )
    blocks: int = Field(4, ge=1, le=MOST_BLOCKS, description="the most blocks that a host may have (RFC 6888, REQ-4)")
    host_connections: int = Field(
        8192, ge=1, le=1 << 24, description="the most connections that a host may have begun (RFC 6888, REQ-5)"
    )
    filtering: Literal["endpoint-independent", "address-and-port-dependent"] = Field(
        "endpoint-independent",
        description="who may send to a port that an inside host has: all, or only whom it has sent to (RFC 4787, 5)",
    )
    forwards: list[Forward] = Field(
        default_factory=list, max_length=MOST_FORWARDS, description="ports that always lead to the same inside host"
    )

    def settings(self, replica: int) -> tuple[str, ...]:
        forwards = ",".join(
            f"{each.protocol}:{each.address}:{each.port}:{each.to}:{each.inside_port}" for each in self.forwards
        )
        return (
            *super().settings(replica),
            f"pool={','.join(self.pool or ())}",
            f"inside={','.join(self.inside)}",
            f"block={self.block}",
            f"blocks={self.blocks}",
            f"host-connections={self.host_connections}",
            f"filtering={self.filtering}",
            *([f"forwards={forwards}"] if forwards else []),
        )

    def other_bytes(self, queues: int) -> int:
        addresses = sum(Network(each).num_addresses for each in self.pool or ())
        blocks = addresses * ((PORTS - FIRST_PORT) // self.block)
        return 2 * self.connections * _BESIDE + blocks * (queues * _BLOCK + _EVENT + 3 * self.block // 8)

    def stands_for(self) -> tuple[str, ...]:
        return tuple(self.pool or ())

    def refuses(self, replicas: int, standby: int) -> str | None:
        if self.pool is None:
            return "nat lacks 'pool', the addresses that stand for inside hosts; expected such as pool: 198.51.100.0/28"
        if replicas - standby > 1:
            return f"{replicas - standby} replicas would have the same pool; expected 1, and others in standby"
        return None

    def problems(self) -> Iterator[tuple[Location, str]]:
        pool, inside = ([Network(each) for each in which] for which in (self.pool or [], self.inside))
        for key, prefixes in (("pool", pool), ("inside", inside)):
            for one, other in combinations(prefixes, 2):
                if one.overlaps(other):
                    yield (key,), f"{one} and {other} overlap; expected each address once"
        for one, other in product(pool, inside):
            if one.overlaps(other):
                yield ("pool",), f"{one} overlaps {other}, which is inside; expected each address on one side"
        addresses = sum(each.num_addresses for each in pool)
        if addresses > MOST_ADDRESSES:
            yield ("pool",), f"{addresses} addresses; expected at most {MOST_ADDRESSES}"
        if self.block & (self.block - 1):
            yield ("block",), f"{self.block} is no power of two; expected one, from 64 to 16384"
        yield from self._problems_of_forwards(pool, inside)

    def _problems_of_forwards(self, pool: list[Network], inside: list[Network]) -> Iterator[tuple[Location, str]]:
        owners: dict[tuple[str, str, str, int], int] = {}
        for number, each in enumerate(self.forwards):
            for key, address, prefixes, where in (
                ("address", each.address, pool, "the pool"),
                ("to", each.to, inside, "inside"),
            ):
                if not any(ipaddress.IPv4Address(address) in prefix for prefix in prefixes):
                    known = ", ".join(map(str, prefixes))
                    yield ("forwards", number, key), f"{address} is not in {where}; expected one of {known}"
            for key, end in (("address", (each.address, each.port)), ("to", (each.to, each.inside_port))):
                owner = owners.setdefault((key, each.protocol, *end), number)
                if owner != number:
                    yield (
                        ("forwards", number, key),
                        f"{each.protocol} {end[0]}:{end[1]} is that of forward {owner + 1} already; expected each once",
                    )
