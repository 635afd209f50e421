"""Which of ordered rules can never count, because one before fits all that they fit.

A rule is looked for by what it would have to be hidden by: of the same addresses in as many bits or fewer, which are
few different numbers of bits however many the rules. That several rules hide one together is not found.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

Range = tuple[int, int]
_ALL: Range = (0, 65535)
#: The IP version, the first bits of an address, and how many; of any address (0, 0, 0).
_Bits = tuple[int, int, int]


def _bits(prefix: str | None) -> _Bits:
    if prefix is None:
        return 0, 0, 0
    network = ipaddress.ip_network(prefix)
    length = network.prefixlen
    return network.version, int(network.network_address) >> (network.max_prefixlen - length), length


def _cut(bits: _Bits, version: int, length: int) -> _Bits | None:
    """The first bits of these, as a prefix of that length has them; None: there is none that holds all of it."""
    if version == 0:
        return 0, 0, 0
    if bits[0] != version or bits[2] < length:
        return None
    return version, bits[1] >> (bits[2] - length), length


def _within(inner: Range | None, outer: Range | None) -> bool:
    if outer is None:
        return True
    return inner is not None and outer[0] <= inner[0] and inner[1] <= outer[1]


@dataclass(frozen=True)
class Part:
    """What a rule fits, or a part of it: a frame that has all of this; None: any."""

    source: str | None = None
    destination: str | None = None
    protocol: int | None = None
    source_port: Range | None = None
    destination_port: Range | None = None

    def as_data(self) -> dict[str, Any]:
        """As the switch has a match: a range of one as that one."""
        data: dict[str, Any] = {}
        for name in ("source", "destination", "protocol", "source_port", "destination_port"):
            value = getattr(self, name)
            if isinstance(value, tuple):
                value = value[0] if value[0] == value[1] else list(value)
            if value is not None:
                data[name] = value
        return data

    def entries(self) -> int:
        """Prefixes that its port ranges are cut into."""
        return _prefixes_in(self.source_port or _ALL) * _prefixes_in(self.destination_port or _ALL)

    @cached_property
    def bits(self) -> tuple[_Bits, _Bits]:
        """Of source and destination. A frame has one IP version, so what one end says of it holds for the other."""
        source, destination = _bits(self.source), _bits(self.destination)
        version = source[0] or destination[0]
        return (source[0] or version, *source[1:]), (destination[0] or version, *destination[1:])

    def has_ports_of(self, other: Part) -> bool:
        """Whether all ports that it asks for are those of the other one too."""
        return _within(self.source_port, other.source_port) and _within(self.destination_port, other.destination_port)


def _prefixes_in(numbers: Range) -> int:
    first, end = numbers[0], numbers[1] + 1
    found = 0
    while first < end:
        size = first & -first if first else 1 << 16
        while size > end - first:
            size //= 2
        first += size
        found += 1
    return found


#: What hides a part is looked for by: source, destination, protocol, and the one port of each end that it asks for.
_Key = tuple[_Bits, _Bits, int | None, int | None, int | None]


def _one(numbers: Range | None) -> int | None:
    return numbers[0] if numbers is not None and numbers[0] == numbers[1] else None


def hiders(parts: Sequence[tuple[Part, range]]) -> Iterator[int | None]:
    """Of each part, which stands for one where frames come in at these ports: the place of one before it that hides it
    there; None: there is none."""
    shapes: set[tuple[int, int, int, int]] = set()
    """IP version and bits of source and destination, of those that came."""
    known: dict[_Key, list[int]] = {}
    for place, (part, _) in enumerate(parts):
        hider = _hider(parts, place, shapes, known)
        yield hider
        if hider is not None:  # which hides all that this one does
            continue
        source, destination = part.bits
        shapes.add((source[0], source[2], destination[0], destination[2]))
        key = (source, destination, part.protocol, _one(part.source_port), _one(part.destination_port))
        known.setdefault(key, []).append(place)


def _hider(
    parts: Sequence[tuple[Part, range]],
    place: int,
    shapes: set[tuple[int, int, int, int]],
    known: dict[_Key, list[int]],
) -> int | None:
    part, ports = parts[place]
    others = list(product({part.protocol, None}, {_one(part.source_port), None}, {_one(part.destination_port), None}))
    for shape in shapes:
        source, destination = _cut(part.bits[0], *shape[:2]), _cut(part.bits[1], *shape[2:])
        if source is None or destination is None:
            continue
        for other in others:
            for each in known.get((source, destination, *other), ()):
                before, where = parts[each]
                if part.has_ports_of(before) and set(ports) <= set(where):
                    return each
    return None
