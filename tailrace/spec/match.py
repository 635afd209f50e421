"""Which frames belong to a chain, where several chains begin at one port.

A match is written for the chain's own direction, from its first end to its last; for the way back, source and
destination change places by themselves.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from tailrace.spec import units
from tailrace.spec.addresses import PREFIX, address_schema, read_network
from tailrace.spec.fields import Model

ETHERTYPES = {"ipv4": 0x0800, "arp": 0x0806, "ipv6": 0x86DD}
PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58, "sctp": 132}
#: Names for numbers, by the field that they are of.
NAMES = {"ethertype": ETHERTYPES, "protocol": PROTOCOLS}
#: Protocols whose header begins with the two port numbers.
WITH_PORTS = (6, 17, 132)

Range = tuple[int, int]


def _number(value: Any, what: str, least: int, most: int) -> int:
    expected = f"expected a number from {least} to {most}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{units.shown(value)} is no {what}; {expected}")
    if not least <= value <= most:
        raise ValueError(f"{value} is no {what}; {expected}")
    return value


def _range(what: str, least: int, most: int) -> BeforeValidator:
    """A number, or the first and the last of a range; kept as a range."""

    def parse(value: Any) -> Range:
        if isinstance(value, list | tuple):
            if len(value) != 2:
                raise ValueError(f"{len(value)} numbers are no range; expected the first and the last {what}")
            first, last = (_number(each, what, least, most) for each in value)
            if first > last:
                raise ValueError(f"[{first}, {last}] is empty; expected the first {what}, then the last")
            return first, last
        number = _number(value, what, least, most)
        return number, number

    return BeforeValidator(parse)


def _range_schema(least: int, most: int) -> WithJsonSchema:
    number = {"type": "integer", "minimum": least, "maximum": most}
    return WithJsonSchema({"anyOf": [number, {"type": "array", "minItems": 2, "maxItems": 2, "items": number}]})


def _word(what: str, words: dict[str, int], least: int, most: int) -> BeforeValidator:
    """A number, or a word for it."""

    def parse(value: Any) -> int:
        if isinstance(value, str):
            if value not in words:
                raise ValueError(
                    f"{value!r} is no {what}; expected {', '.join(words)}, or a number from {least} to {most}"
                )
            return words[value]
        return _number(value, what, least, most)

    return BeforeValidator(parse)


def _word_schema(words: dict[str, int], least: int, most: int) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"enum": list(words)}, {"type": "integer", "minimum": least, "maximum": most}]})


def read_prefix(value: Any) -> str:
    """10.1.0.0/16. Raises ValueError."""
    return str(read_network(value, "expected an IPv4 or IPv6 prefix, such as 10.1.0.0/16 or 2001:db8::/32"))


Vlan = Annotated[Range, _range("VLAN", 0, 4094), _range_schema(0, 4094)]
PortRange = Annotated[Range, _range("port number", 0, 65535), _range_schema(0, 65535)]
Ethertype = Annotated[int, _word("Ethertype", ETHERTYPES, 0x0600, 0xFFFF), _word_schema(ETHERTYPES, 0x0600, 0xFFFF)]
Protocol = Annotated[int, _word("protocol", PROTOCOLS, 0, 255), _word_schema(PROTOCOLS, 0, 255)]
Prefix = Annotated[str, BeforeValidator(read_prefix), address_schema(PREFIX, "10.1.0.0/16")]


class Match(Model):
    """Frames that have all of these; a field that is not given is not looked at."""

    vlan: Vlan | None = Field(
        None, description="the (outer) VLAN, or [first, last]; 0: none (no tag, or one with VLAN 0)"
    )
    inner_vlan: Vlan | None = Field(None, description="the inner VLAN of two (QinQ), or [first, last]; 0: none")
    ethertype: Ethertype | None = Field(None, description="after the VLANs: a number, or ipv4, arp, ipv6")
    source: Prefix | None = Field(None, description="prefix of the IPv4 or IPv6 source address")
    destination: Prefix | None = Field(None, description="prefix of the IPv4 or IPv6 destination address")
    protocol: Protocol | None = Field(None, description="IP protocol: a number, or icmp, tcp, udp, icmpv6, sctp")
    source_port: PortRange | None = Field(None, description="of TCP, UDP or SCTP, or [first, last]")
    destination_port: PortRange | None = Field(None, description="of TCP, UDP or SCTP, or [first, last]")

    @model_validator(mode="after")
    def _can_be(self) -> Match:
        if not self.model_fields_set:
            raise ValueError("a match that asks for nothing; leave it out to take every frame, or expected one field")
        versions = {ipaddress.ip_network(each).version for each in (self.source, self.destination) if each}
        if len(versions) == 2:
            raise ValueError("source and destination are of IPv4 and IPv6; expected prefixes of one of them")
        if versions and self.ethertype is not None:
            wanted = ETHERTYPES[f"ipv{versions.pop()}"]
            if self.ethertype != wanted:
                raise ValueError(f"no frame of Ethertype {self.ethertype:#06x} has such an address; leave it out")
        ports = self.source_port is not None or self.destination_port is not None
        no_ip = self.ethertype not in (None, ETHERTYPES["ipv4"], ETHERTYPES["ipv6"])
        if no_ip and (ports or self.protocol is not None):
            raise ValueError(
                f"a frame of Ethertype {self.ethertype:#06x} has no IP protocol and no ports; leave one of them out"
            )
        if ports and self.protocol is not None and self.protocol not in WITH_PORTS:
            raise ValueError(f"protocol {self.protocol} has no port numbers; expected tcp, udp or sctp beside them")
        return self

    def as_rule(self) -> dict[str, Any]:
        """As the switch is given it: numbers, prefixes as text, a range of one as that one."""
        rule: dict[str, Any] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, tuple):
                value = value[0] if value[0] == value[1] else list(value)
            if value is not None:
                rule[name] = value
        return rule
