"""The firewall as a spec words it: groups of addresses, and rules of which the first that fits a flow's first frame
counts. What the program is told are the switch's matches (`tailrace.spec.match`), one for each pair of prefixes."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from tailrace.spec import hidden
from tailrace.spec.addresses import PREFIX, Net, address_schema, networks
from tailrace.spec.connections import Following
from tailrace.spec.fields import NAME, Model, Name, OneOrMany, short
from tailrace.spec.match import PROTOCOLS, WITH_PORTS, PortRange, Prefix, Protocol, read_prefix
from tailrace.spec.position import Location

MOST_RULES = 10_000
#: What the program can hold (CLASSIFY_ENTRIES in dataplane/steer/classify.h), and be told at once (CONTROL_LINE in
#: dataplane/common/control.c, less what stands around it).
MOST_ENTRIES = 1 << 16
_MOST_TEXT = (4 << 20) - 1024
#: The IP version of protocols that have one.
_VERSIONS = {PROTOCOLS["icmp"]: 4, PROTOCOLS["icmpv6"]: 6}
#: The name of the row that counts those that no rule fits (dataplane/functions/firewall_rules.c).
_DEFAULT = "default"
_EVERYBODY = {4: "0.0.0.0/0", 6: "::/0"}


#: What no frame that reaches the rules is from or to (martian4(), martian6() in dataplane/functions/inspect.c). From
#: 0.0.0.0 asks who has no address yet; what is from :: is neighbour discovery, which passes before any rule.
_MARTIANS: dict[str, tuple[Net, ...]] = {
    "from": (
        *ipaddress.IPv4Network("0.0.0.0/8").address_exclude(ipaddress.IPv4Network("0.0.0.0")),
        *networks("127.0.0.0/8", "224.0.0.0/3", "::/127", "::ffff:0:0/96", "ff00::/8"),
    ),
    "to": networks("0.0.0.0/8", "127.0.0.0/8", "::/127", "::ffff:0:0/96"),
}


def _address(value: Any) -> str:
    """A group's name, or a prefix."""
    return value if isinstance(value, str) and re.fullmatch(NAME, value) else read_prefix(value)


Action = Literal["allow", "deny", "reject"]
Address = Annotated[str, BeforeValidator(_address), address_schema(rf"^{NAME}$|{PREFIX}", "10.1.0.0/16", "web")]
Addresses = Annotated[list[Address], short(str, lambda value: [value]), OneOrMany(), Field(min_length=1)]
Prefixes = Annotated[list[Prefix], short(str, lambda value: [value]), OneOrMany(), Field(min_length=1)]


class Rule(Model):
    """What becomes of flows whose first frame has all of this."""

    name: Name | None = Field(None, description="under which it is counted; its number unless given")
    action: Action = Field(
        description="allow: the flow passes, both ways; deny: it is dropped; reject: it is dropped, and its sender told"
    )
    port: Literal["port0", "port1"] | None = Field(
        None, description="where the first frame comes in; either, unless given"
    )
    source: Addresses | None = Field(None, description="where it comes from: prefixes, or names of groups")
    destination: Addresses | None = Field(None, description="where it goes")
    protocol: Protocol | None = Field(None, description="IP protocol: a number, or icmp, tcp, udp, icmpv6, sctp")
    source_port: PortRange | None = Field(None, description="of TCP, UDP or SCTP, or [first, last]")
    destination_port: PortRange | None = Field(None, description="of TCP, UDP or SCTP, or [first, last]")

    @property
    def ports(self) -> range:
        return range(2) if self.port is None else range(int(self.port[-1]), int(self.port[-1]) + 1)


class Firewall(Following):
    """What a firewall is told."""

    default: Action = Field("deny", description="what becomes of flows that no rule fits")
    groups: dict[Name, Prefixes] = Field(default_factory=dict, description="prefixes by a name that rules may use")
    rules: list[Rule] = Field(default_factory=list, max_length=MOST_RULES, description="the first that fits counts")

    def told(self) -> dict[str, Any]:
        return {
            "default": self.default,
            "rules": [
                {"name": self._name(number), "action": rule.action}
                | ({"port": rule.ports[0]} if rule.port is not None else {})
                | {"match": [each.as_data() for each in self._parts[number]]}
                for number, rule in enumerate(self.rules)
            ],
        }

    def warnings(self) -> Iterator[str]:
        parts = [[one for part in of_rule for one in _of_one_version(part)] for of_rule in self._parts]
        ranked = [(part, rule.ports) for number, rule in enumerate(self.rules) for part in parts[number]]
        numbers = [number for number in range(len(self.rules)) for _ in parts[number]]
        found: dict[int, set[int] | None] = {}
        for place, by in enumerate(hidden.hiders(ranked)):
            number = numbers[place]
            before = found.setdefault(number, set())
            if by is None or numbers[by] == number:
                found[number] = before if by is not None else None
            elif before is not None:
                before.add(numbers[by])
        for number, by_rules in found.items():
            why = [_never(part) for part in self._parts[number]]
            if all(why):
                frames = f"frames {why[0]} are dropped before any rule"
                yield f"the rule {self._name(number)!r} never counts, because {frames}"
            elif by_rules:
                names = " and ".join(f"{self._name(each)!r}" for each in sorted(by_rules))
                yield f"the rule {self._name(number)!r} never counts, because {names} before it fits all that it fits"

    def problems(self) -> Iterator[tuple[Location, str]]:
        owners: dict[str, int] = {}
        sound = True
        for number, rule in enumerate(self.rules):
            for where, why in self._problems_of(rule):
                sound = False
                yield ("rules", number, *where), why
            if rule.name == _DEFAULT:
                yield (
                    ("rules", number, "name"),
                    f"{_DEFAULT!r} is what flows that no rule fits are counted under; expected another name",
                )
            if rule.name is not None and owners.setdefault(rule.name, number) != number:
                yield ("rules", number, "name"), f"{rule.name!r} is the name of rule {owners[rule.name] + 1} already"
        if not sound:
            return
        for port in range(2):
            entries = sum(
                part.entries()
                for number, rule in enumerate(self.rules)
                if port in rule.ports
                for part in self._parts[number]
            )
            if entries > MOST_ENTRIES:
                yield (
                    ("rules",),
                    f"groups and port ranges come to {entries} entries at port{port}; expected at most {MOST_ENTRIES}: "
                    "fewer pairs of prefixes, or ranges that begin and end at powers of two",
                )
                return
        if len(json.dumps(self.told())) > _MOST_TEXT:
            yield ("rules",), "the rules come to more than 4 MiB of text; expected fewer pairs of prefixes"

    def _name(self, number: int) -> str:
        return self.rules[number].name or f"{number + 1}"

    def _problems_of(self, rule: Rule) -> Iterator[tuple[Location, str]]:
        known = True
        for key in ("source", "destination"):
            for each in getattr(rule, key) or ():
                if re.fullmatch(NAME, each) and each not in self.groups:
                    known = False
                    groups = ", ".join(self.groups) or "a prefix, because there are no groups"
                    yield (key,), f"{each!r} is no group; expected {groups}"
        ports = rule.source_port is not None or rule.destination_port is not None
        if ports and rule.protocol is not None and rule.protocol not in WITH_PORTS:
            yield ("protocol",), f"protocol {rule.protocol} has no port numbers; expected tcp, udp or sctp beside them"
        if known and not self._pairs(rule):
            yield (
                (),
                "no frame is of both IP versions that it asks for; expected source, destination and protocol of one",
            )

    def _prefixes(self, addresses: list[str] | None) -> list[str | None]:
        """With names replaced by what they stand for; [None]: any address."""
        if addresses is None:
            return [None]
        return [prefix for each in addresses for prefix in self.groups.get(each, [each])]

    def _pairs(self, rule: Rule) -> list[tuple[str | None, str | None]]:
        """Pairs of a source and a destination that a frame can have."""
        own = _VERSIONS.get(rule.protocol or 0)

        def fits(*prefixes: str | None) -> bool:
            versions = {ipaddress.ip_network(each).version for each in prefixes if each is not None}
            return len(versions | ({own} if own is not None else set())) <= 1

        return [pair for pair in product(self._prefixes(rule.source), self._prefixes(rule.destination)) if fits(*pair)]

    @cached_property
    def _parts(self) -> list[list[hidden.Part]]:
        """Of each rule: what it fits."""
        return [
            [
                hidden.Part(source, destination, rule.protocol, rule.source_port, rule.destination_port)
                for source, destination in self._pairs(rule)
            ]
            for rule in self.rules
        ]


def _of_one_version(part: hidden.Part) -> list[hidden.Part]:
    """The same, of frames of IPv4 and of IPv6 each by itself: what hides it may name all of one."""
    if part.source is not None or part.destination is not None:
        return [part]
    own = _VERSIONS.get(part.protocol or 0)
    return [replace(part, source=all_of) for version, all_of in _EVERYBODY.items() if own in (None, version)]


def _never(part: hidden.Part) -> str | None:
    """Which frames they would have to be that a part of a rule fits, if none reaches it."""
    for word, text in (("from", part.source), ("to", part.destination)):
        if text is not None and _within(ipaddress.ip_network(text), _MARTIANS[word]):
            return f"{word} {text}"
    if part.source is not None and part.source == part.destination:
        network = ipaddress.ip_network(part.source)
        if network.prefixlen == network.max_prefixlen:
            return f"from {network.network_address} to itself"
    return None


def _within(inner: Net, outer: Iterable[Net]) -> bool:
    first, last = inner.network_address, inner.broadcast_address
    return any(each.version == inner.version and first in each and last in each for each in outer)
