"""The balancer as a spec words it: virtual addresses and ports, and the back ends that share what is sent there."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from tailrace.spec import units
from tailrace.spec.addresses import ADDRESS, address_schema, read_host
from tailrace.spec.connections import Following
from tailrace.spec.fields import Duration, Model, Name, OneOrMany, ShortSchema, short
from tailrace.spec.position import Location

#: What the program can hold (dataplane/functions/balancer_set.h, maglev.h).
MOST_SERVICES, MOST_BACK_ENDS, MOST_OF_A_SERVICE, MOST_WEIGHT = 64, 1024, 256, 256
#: What it is told that nobody else is to read.
SECRETS = ("secret",)
_PORTS = 1 << 16
_RANGE = (0.1, 3600.0)
#: How one is written, by IP version.
_SOURCES = {4: "10.0.0.9", 6: "'2001:db8::9'"}


def _address(value: Any) -> str:
    return str(read_host(value, "expected an IPv4 or IPv6 address, such as 192.0.2.1 or 2001:db8::1"))


Address = Annotated[str, BeforeValidator(_address), address_schema(ADDRESS, "192.0.2.1", "2001:db8::1")]
Addresses = Annotated[list[Address], short(str, lambda value: [value]), OneOrMany(), Field(min_length=1, max_length=2)]
Port = Annotated[int, Field(ge=1, le=_PORTS - 1)]
Kind = Literal["tcp", "echo", "neighbour"]


class Probe(Model):
    """How it is found out whether back ends are up."""

    by: Kind | None = Field(
        None,
        description="what they answer. tcp: a SYN at their port; echo: ping; neighbour: ARP or neighbour discovery. "
        "Unless given: tcp where the service is, otherwise echo",
    )
    interval: Duration = Field(2.0, validate_default=False, description="between two probes of a back end")
    timeout: Duration = Field(1.0, validate_default=False, description="how long an answer is waited for")
    rise: int = Field(2, ge=1, le=10, description="answers in a row until one that was down is up")
    fall: int = Field(3, ge=1, le=10, description="probes in a row without an answer until it is down")

    @model_validator(mode="after")
    def _in_range(self) -> Probe:
        for name in ("interval", "timeout"):
            value = getattr(self, name)
            if not _RANGE[0] <= value <= _RANGE[1]:
                raise ValueError(f"{name}: {units.show_duration(value)} is out of range; expected 100ms to 1h")
        if self.timeout > self.interval:
            raise ValueError("the timeout is longer than the interval; expected at most as long")
        return self


ShortProbe = Annotated[
    Probe,
    short(str, lambda value: {"by": value}),
    ShortSchema({"enum": ["tcp", "echo", "neighbour"], "description": "what they answer"}),
]


class BackEnd(Model):
    """A server that gets a part of what is sent to a service."""

    name: Name | None = Field(None, description="under which it is shown; its address and port unless given")
    address: Address = Field(description="where it is, on the side of the second port")
    port: Port | None = Field(None, description="where it listens; the port of the service unless given")
    weight: int = Field(1, ge=1, le=MOST_WEIGHT, description="its share of new connections, beside that of the others")
    drain: bool = Field(False, description="whether it gets no new connections; those that it has go on")


ShortBackEnd = Annotated[
    BackEnd,
    short(str, lambda value: {"address": value}),
    ShortSchema({"type": "string", "description": "its address", "examples": ["10.0.0.2"]}),
]


class Service(Model):
    """A virtual address and port, and who is behind it."""

    address: Address = Field(description="the virtual address, which the balancer answers ARP for at its first port")
    port: Port = Field(description="there")
    protocol: Literal["tcp", "udp"] = Field("tcp", description="of what is sent there")
    mode: Literal["rewrite", "direct"] = Field(
        "rewrite",
        description="rewrite: frames get the back end's address and port, and its answers, which have to come by, the "
        "virtual one's; direct: they get its MAC address alone, and it answers clients directly",
    )
    health: ShortProbe = Field(default_factory=lambda: Probe(), description="which back ends are up")
    back_ends: list[ShortBackEnd] = Field(
        min_length=1, max_length=MOST_OF_A_SERVICE, description="who shares what is sent there"
    )

    def port_of(self, back_end: BackEnd) -> int:
        return self.port if back_end.port is None else back_end.port

    def name_of(self, back_end: BackEnd) -> str:
        if back_end.name is not None:
            return back_end.name
        text = f"[{back_end.address}]" if ":" in back_end.address else back_end.address
        return f"{text}:{self.port_of(back_end)}"

    def told(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "address": self.address,
            "port": self.port,
            "protocol": self.protocol,
            "mode": self.mode,
            "health": {
                "by": self.health.by or ("tcp" if self.protocol == "tcp" else "echo"),
                "interval": round(self.health.interval * 1000),
                "timeout": round(self.health.timeout * 1000),
                "rise": self.health.rise,
                "fall": self.health.fall,
            },
            "back_ends": [
                {
                    "name": self.name_of(each),
                    "address": each.address,
                    "port": self.port_of(each),
                    "weight": each.weight,
                    "drain": each.drain,
                }
                for each in self.back_ends
            ],
        }


class Balancer(Following):
    """What a balancer is told. Clients are at its first port, back ends at its second."""

    source: Addresses | None = Field(
        None, description="its own address among the back ends, from which it probes them; one of each IP version"
    )
    gateway: Addresses | None = Field(
        None,
        description="a router by which it reaches back ends in other networks; all of its IP version are then reached "
        "by it, but in mode direct. One of each version",
    )
    secret: Annotated[str, Field(min_length=8, max_length=64)] | None = Field(
        None,
        description="what the choice of a back end depends on besides the connection, 8 to 64 characters; with one, a "
        "connection that is not known goes where it went before the function was started again. Random unless given",
    )
    services: dict[Name, Service] = Field(
        default_factory=dict, max_length=MOST_SERVICES, description="virtual addresses and ports, by name"
    )

    def told(self) -> dict[str, Any]:
        return {
            "services": [service.told(name) for name, service in self.services.items()],
            **({"source": self.source} if self.source else {}),
            **({"gateway": self.gateway} if self.gateway else {}),
            **({"secret": self.secret} if self.secret else {}),
        }

    def stands_for(self) -> tuple[str, ...]:
        own = [*(service.address for service in self.services.values()), *(self.source or ())]
        return tuple(str(ipaddress.ip_network(each)) for each in dict.fromkeys(own))

    def refuses(self, replicas: int, standby: int) -> str | None:
        if replicas - standby > 1:
            return (
                f"{replicas - standby} replicas would not see both directions of a connection; expected 1, and others "
                "in standby"
            )
        return None

    def warnings(self) -> Iterator[str]:
        for name, service in self.services.items():
            if all(each.drain for each in service.back_ends):
                yield f"all back ends of the service {name!r} are in drain, so it takes no new connection"

    def problems(self) -> Iterator[tuple[Location, str]]:
        for key in ("source", "gateway"):
            versions = [_version(each) for each in getattr(self, key) or ()]
            if len(set(versions)) < len(versions):
                yield (key,), f"two addresses of IPv{versions[0]}; expected one of each IP version"
        for each in self.gateway or ():
            if each in (self.source or ()):
                yield ("gateway",), f"{each} is the source too; expected the address of a router"
        number = sum(len(service.back_ends) for service in self.services.values())
        if number > MOST_BACK_ENDS:
            yield ("services",), f"{number} back ends; expected at most {MOST_BACK_ENDS} of all services"
        yield from self._problems_of_services()
        yield from self._problems_of_back_ends()

    def _problems_of_services(self) -> Iterator[tuple[Location, str]]:
        owners: dict[tuple[str, int, str], str] = {}
        ends = {each.address: name for name, service in self.services.items() for each in service.back_ends}
        for name, service in self.services.items():
            owner = owners.setdefault((service.address, service.port, service.protocol), name)
            if owner != name:
                yield (
                    ("services", name, "address"),
                    f"{service.protocol} {_end(service.address, service.port)} is that of service {owner!r} already",
                )
            if service.address in (self.source or ()):
                yield ("services", name, "address"), f"{service.address} is the source too; expected another address"
            if service.address in (self.gateway or ()):
                yield ("services", name, "address"), f"{service.address} is the gateway too; expected another address"
            if service.address in ends:
                yield (
                    ("services", name, "address"),
                    f"{service.address} is that of a back end of {ends[service.address]!r}; expected another address",
                )

    def _problems_of_back_ends(self) -> Iterator[tuple[Location, str]]:
        owners: dict[tuple[str, ...], tuple[str, int]] = {}
        sources = {_version(each) for each in self.source or ()}
        for name, service in self.services.items():
            names: dict[str, int] = {}
            for number, each in enumerate(service.back_ends):
                where: Location = ("services", name, "back_ends", number)
                version, port = _version(each.address), service.port_of(each)
                if version != _version(service.address):
                    yield (
                        (*where, "address"),
                        f"{each.address} is not of the IP version of {service.address}; expected an IPv"
                        f"{_version(service.address)} address",
                    )
                elif version not in sources:
                    yield (
                        (*where, "address"),
                        f"balancer lacks a 'source' of IPv{version}, from which {each.address} is probed; expected "
                        f"such as source: {_SOURCES[version]}, an address that nobody else has",
                    )
                if each.address in (self.source or ()):
                    yield (*where, "address"), f"{each.address} is the source; expected a back end's own address"
                if service.mode == "direct" and port != service.port:
                    yield (
                        (*where, "port"),
                        f"mode direct leaves the port as it is; expected none, or {service.port}",
                    )
                # Who an answer is from is known by these, but in mode direct.
                known = (each.address, str(port), *((service.protocol,) if service.mode == "rewrite" else ("", name)))
                owner = owners.setdefault(known, (name, number))
                if owner != (name, number):
                    yield (
                        (*where, "address"),
                        f"{_end(each.address, port)} is back end {owner[1] + 1} of {owner[0]!r} already; expected each "
                        "address and port once",
                    )
                if names.setdefault(service.name_of(each), number) != number and each.name is not None:
                    yield (
                        (*where, "name"),
                        f"{each.name!r} is the name of back end {names[each.name] + 1} already",
                    )


def _version(address: str) -> int:
    return ipaddress.ip_address(address).version


def _end(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
