"""Addresses and prefixes of IP as a spec writes them, and which of them a host can have.

One reader for every kind: what one of them refuses, none takes. Each raises ValueError with "what; what was expected".
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from pydantic import WithJsonSchema

from tailrace.spec import units

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Net = ipaddress.IPv4Network | ipaddress.IPv6Network
Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface

#: As a schema says it to editors: no zone, and a length in place of a mask.
ADDRESS = r"^[0-9a-fA-F:.]+$"
PREFIX = r"^[0-9a-fA-F:.]+(/[0-9]{1,3})?$"
WITH_LENGTH = r"^[0-9a-fA-F:.]+/[0-9]{1,3}$"


def networks(*texts: str) -> tuple[Net, ...]:
    """Each of these."""
    return tuple(ipaddress.ip_network(each) for each in texts)


_ALL = ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4", "::/127", "::ffff:0:0/96", "ff00::/8")
#: Where no frame is forwarded to by a route (RFC 1812, 5.3.7; RFC 6890; RFC 4291, 2.5 and 2.7).
NOWHERE = networks(*_ALL, "fe80::/10")
#: Of which no host has an address in a network (RFC 1122, 3.2.1.3; RFC 6890; RFC 4291, 2.5.5.2). Linux takes them all
#: (`ip address add`, 6.18), and drops what comes from there.
NOBODY = networks(*_ALL)


def nobody(found: Address | Net) -> Net | None:
    """Of what no host can have an address: the part of it that an address is of, or that a prefix has in it; None: a
    host can have each."""
    network = ipaddress.ip_network(found)
    return next((each for each in NOBODY if each.version == network.version and each.overlaps(network)), None)


def read_address(value: Any, expected: str) -> Address:
    """10.0.0.1"""
    text = _plain(value)
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"{units.shown(value)} is no address; {expected}") from None


def read_host(value: Any, expected: str) -> Address:
    """The same of an address that a host can have."""
    found = read_address(value, expected)
    if (of := nobody(found)) is not None:
        raise ValueError(f"{found} is an address that no host has in a network ({of}); {expected}")
    return found


def read_interface(value: Any, expected: str) -> Interface:
    """10.0.0.1/24, of which the address is one that a host can have."""
    text = _plain(value)
    try:
        found = ipaddress.ip_interface(text if "/" in text else "")
    except ValueError:
        raise ValueError(f"{units.shown(value)} is no address; {expected}") from None
    if (of := nobody(found.ip)) is not None:
        raise ValueError(f"{found} has an address that no host has in a network ({of}); {expected}")
    network = found.network
    narrow = network.prefixlen < network.max_prefixlen - 1  # RFC 3021 has pairs of hosts
    if narrow and found.version == 4 and found.ip in (network.network_address, network.broadcast_address):
        raise ValueError(f"{found} is the address of the whole network, or of all in it; {expected}")
    return found


def read_network(value: Any, expected: str, *, bare: bool = True) -> Net:
    """10.0.0.0/8; `bare`: or an address."""
    text = _plain(value)
    try:
        return ipaddress.ip_network(text if bare or "/" in text else "")
    except ValueError:
        pass
    try:
        meant = ipaddress.ip_interface(text if bare or "/" in text else "").network
    except ValueError:
        raise ValueError(f"{units.shown(value)} is no prefix; {expected}") from None
    raise ValueError(f"{value!r} has bits set beyond its length; expected {meant}")


def _plain(value: Any) -> str:
    """A text without what Python would take, and no other reader of the spec does: zones, and masks."""
    text = value.strip() if isinstance(value, str) else ""
    if "%" in text:
        raise ValueError(f"{text!r} names a zone, which is not in a frame; expected {re.sub('%[^/]*', '', text)}")
    if "." in text.partition("/")[2]:
        try:
            found = ipaddress.ip_interface(text)
        except ValueError:
            return text
        raise ValueError(f"{text!r} has a mask; expected the length of the prefix, {found}")
    return text


def address_schema(pattern: str, *examples: str) -> WithJsonSchema:
    """The JSON schema of one."""
    return WithJsonSchema({"type": "string", "pattern": pattern, "examples": list(examples)})
