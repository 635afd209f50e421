"""A tunnel's end as a spec words it: the network within, and the two addresses between which its frames travel."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from tailrace.spec import units
from tailrace.spec.balancer import Address
from tailrace.spec.fields import Duration, Model
from tailrace.spec.kind import Settings
from tailrace.spec.position import Location
from tailrace.spec.virtual_function import Station

#: UDP's ports (RFC 7348, 8; RFC 8926, 3.3).
PORTS = {"vxlan": 4789, "geneve": 6081}
#: BFD's, on one link and over routers (RFC 5881, 4; RFC 5883, 5).
LIVENESS_PORTS = (3784, 4784)
#: By IP version: what every link carries (RFC 791; RFC 8200, 5).
LEAST_MTU = {4: 576, 6: 1280}
MOST_MTU = 9216


def _interval(value: float) -> float:
    if not 0.01 <= value <= 60:
        raise ValueError(f"{units.show_duration(value)} is out of range; expected 10ms to 60s")
    return value


class Liveness(Model):
    """How it is found out whether the other end is there (RFC 5880)."""

    interval: Annotated[Duration, AfterValidator(_interval)] = Field(
        0.3,
        validate_default=False,
        description="between two packets of either end; the slower one of the two ends decides",
    )
    missed: int = Field(
        3, ge=1, le=255, description="packets that do not come until the other end takes this one for lost"
    )


class Tunnel(Settings):
    """What a tunnel's end is told. Frames to be carried are at its first port, the network between the ends at its
    second."""

    _needed: ClassVar[dict[str, str]] = {
        "local": "its own address, such as local: 192.0.2.1",
        "remote": "the other end's address, such as remote: 192.0.2.2",
        "vni": "the network's number, such as vni: 42",
    }

    protocol: Literal["vxlan", "geneve"] = Field(
        "vxlan", description="how frames are carried: VXLAN (RFC 7348), or Geneve (RFC 8926) without options"
    )
    vni: int | None = Field(None, ge=0, lt=1 << 24, description="the number of the network within; both ends have one")
    local: Address | None = Field(
        None, description="this end's address, for which it answers ARP or neighbour discovery at its second port"
    )
    remote: Address | None = Field(None, description="the other end's address")
    gateway: Address | None = Field(
        None, description="whom it sends to first, where the other end is not on its link: a router's address there"
    )
    neighbour: Station | None = Field(
        None,
        description="the MAC address of the other end, or of the gateway; unless given it is asked for (ARP, neighbour "
        "discovery)",
    )
    mac: Station | None = Field(
        None, description="its own MAC address at its second port; made of `local` unless given"
    )
    port: int | None = Field(
        None, ge=1, le=65535, description="UDP's port of both ends; 4789 for VXLAN and 6081 for Geneve unless given"
    )
    mtu: int = Field(
        1500,
        ge=min(LEAST_MTU.values()),
        le=MOST_MTU,
        description="the longest IP packet that the network between the ends carries",
    )
    checksum: bool | None = Field(
        None,
        description="whether the UDP checksum is written, over the whole frame; over IPv6 it is unless given, over "
        "IPv4 it is 0. One that comes is checked; with Geneve over IPv6 none is taken without, unless this is false",
    )
    tagged: bool | None = Field(
        None,
        description="whether frames within may have VLAN tags; with Geneve they may unless given, with VXLAN they are "
        "dropped (RFC 7348, 6.1)",
    )

    liveness: Liveness | None = Field(
        None,
        description="a BFD session with the other end (RFC 5881; with `gateway` RFC 5883): frames to an end that was "
        "there, and is not any more, are dropped and counted. Unless given, there is none",
    )

    @property
    def version(self) -> int:
        """Of IP, between the ends."""
        return ipaddress.ip_address(self.local).version if self.local is not None else 4

    def settings(self, replica: int) -> tuple[str, ...]:
        del replica
        checksum = self.version == 6 if self.checksum is None else self.checksum
        tagged = self.protocol == "geneve" if self.tagged is None else self.tagged
        given = {"gateway": self.gateway, "neighbour": self.neighbour, "mac": self.mac}
        alive = self.liveness
        watched = () if alive is None else (f"liveness={round(alive.interval * 1e6)}", f"multiplier={alive.missed}")
        return (
            f"protocol={self.protocol}",
            f"vni={self.vni}",
            f"local={self.local}",
            f"remote={self.remote}",
            f"port={PORTS[self.protocol] if self.port is None else self.port}",
            f"mtu={self.mtu}",
            f"checksum={'yes' if checksum else 'no'}",
            f"tagged={'yes' if tagged else 'no'}",
            *(f"{name}={value}" for name, value in given.items() if value is not None),
            *watched,
        )

    def refuses(self, replicas: int, standby: int) -> str | None:
        del standby
        missing = [f"{name!r}, {what}" for name, what in self._needed.items() if getattr(self, name) is None]
        if missing:
            return f"tunnel lacks {'; '.join(missing)}"
        return f"{replicas} replicas would have the same address; expected 1" if replicas > 1 else None

    def stands_for(self) -> tuple[str, ...]:
        return (self.local,) if self.local is not None else ()

    def problems(self) -> Iterator[tuple[Location, str]]:
        for name in ("remote", "gateway"):
            other = getattr(self, name)
            if other is None:
                continue
            if ipaddress.ip_address(other).version != self.version:
                yield (name,), f"{other} is not of the same IP version as {self.local}; expected IPv{self.version}"
            elif other == self.local:
                yield (name,), f"{other} is this end's own address; expected another one's"
        if self.gateway is not None and self.gateway == self.remote:
            # Liveness would go by the port of ends that are not on one link, where nobody answers.
            yield ("gateway",), f"{self.gateway} is the other end itself; leave gateway out if that is on the link"
        if self.mac is not None and self.mac == self.neighbour:
            yield ("neighbour",), f"{self.mac} is this end's own MAC address; expected another one's"
        if self.liveness is not None and self.port in LIVENESS_PORTS:
            yield ("port",), f"{self.port} is BFD's, which liveness needs; expected another one"
        if self.mtu < LEAST_MTU[self.version]:
            yield (
                ("mtu",),
                f"{self.mtu} is less than IPv{self.version} has; expected at least {LEAST_MTU[self.version]}",
            )

    def warnings(self) -> Iterator[str]:
        if self.gateway is not None and self.neighbour is not None:
            yield f"gateway {self.gateway} is not asked for its MAC address, as neighbour gives one"
