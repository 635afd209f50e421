"""The firewall as a spec words it: what its program is told, all that is wrong at once, and rules that never count."""

from __future__ import annotations

import ipaddress
import json
import random

import pytest
import yaml

from tailrace.errors import Mistake
from tailrace.plan.make import make_plan
from tailrace.plan.planned import Plan
from tailrace.resources.topology import Cpu
from tailrace.spec.hidden import Part, hiders
from tailrace.spec.load import parse_spec
from tailrace.spec.source import SpecError

CPUS = [Cpu(0), Cpu(1)]
CHAIN = "chains: {wan: [tester.a, fw, tester.b]}\n"
GROUPS = "groups: {web: [10.0.1.0/24, 'fd00:1::/64'], one: 10.0.1.7}"


def fw(*rules: str, more: str = GROUPS, where: str = "") -> str:
    listed = ", ".join(f"{{{each}}}" for each in rules)
    return f"functions:\n  fw: {{kind: firewall, firewall: {{{more}, rules: [{listed}]}}{where}}}\n{CHAIN}"


def plan(text: str) -> Plan:
    return make_plan(parse_spec(text, "s"), huge=False, cpus=CPUS, real_time="not asked")


def warnings(*rules: str) -> list[str]:
    return [note for note in plan(fw(*rules)).notes if note.startswith("fw: ")]


def test_every_word_reaches_the_program() -> None:
    more = f"{GROUPS}, default: allow, connections: 1000, timeouts: {{two_way: 10min}}"
    rule = "name: web, action: allow, port: port1, source: [web, 10.2.0.0/16], destination: one, protocol: tcp"
    (function,) = plan(fw(f"{rule}, source_port: [1024, 65535], destination_port: 80", more=more)).functions
    same = {"destination": "10.0.1.7/32", "protocol": 6, "source_port": [1024, 65535], "destination_port": 80}
    assert function.told == {
        "default": "allow",
        "rules": [
            {
                "name": "web",
                "action": "allow",
                "port": 1,
                "match": [{"source": "10.0.1.0/24", **same}, {"source": "10.2.0.0/16", **same}],
            }
        ],
    }
    assert "connections=1000" in function.settings and "two_way=600" in function.settings
    assert "tcp_established=7440" in function.settings


def test_a_rule_without_anything_fits_everything() -> None:
    (function,) = plan(fw("action: reject")).functions
    assert function.told["rules"] == [{"name": "1", "action": "reject", "match": [{}]}]
    (function,) = plan(fw("action: deny")).functions
    assert function.told == {"default": "deny", "rules": [{"name": "1", "action": "deny", "match": [{}]}]}


def test_a_protocol_of_one_ip_version_takes_the_addresses_of_that() -> None:
    (function,) = plan(fw("action: allow, destination: web, protocol: icmpv6")).functions
    assert function.told is not None
    assert function.told["rules"][0]["match"] == [{"destination": "fd00:1::/64", "protocol": 58}]


def test_its_tables_have_room() -> None:
    (function,) = plan(fw("action: allow", more="connections: 1000000")).functions
    assert function.tables_mib == 94  # 76 bytes for each, and 32 for each of 524288 places of eight


def test_what_is_written_reads_back_the_same() -> None:
    spec = parse_spec(fw("action: allow, destination: web, protocol: tcp, destination_port: [80, 89]"), "s")
    again = yaml.safe_dump(json.loads(spec.model_dump_json(by_alias=True, exclude_none=True)))
    assert parse_spec(again, "again") == spec
    made = plan(again)
    assert Plan.read(made.as_data()).functions == made.functions


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (fw("action: allow, source: wbe"), r"s:2:.*'wbe' is no group; expected web, one"),
        (fw("action: allow, source: 10.0.0.1/8"), "has bits set beyond its length; expected 10.0.0.0/8"),
        (fw("action: allow, source: one, destination: 'fd00::1'"), "no frame is of both IP versions"),
        (fw("action: allow, source: one, protocol: icmpv6"), "no frame is of both IP versions"),
        (fw("action: allow, protocol: icmp, destination_port: 80"), "protocol 1 has no port numbers"),
        (fw("action: drop"), "action"),
        (fw("acton: allow"), "unknown key 'acton'.*did you mean action"),
        (fw("action: allow, destination_port: [90, 80]"), "is empty"),
        (fw("name: default, action: allow"), "'default' is what flows that no rule fits are counted under; expected"),
        (fw("name: a, action: allow", "name: a, action: deny"), "'a' is the name of rule 1 already"),
        (
            fw("name: '', action: deny"),
            r"rules\[0\].name: '' cannot be a name; expected small letters, digits and hyphens, a letter first, 24",
        ),
        (fw("action: allow, source: '2001:db8::1%eth0'"), "names a zone.*; expected 2001:db8::1$"),
        (fw("action: allow, source: 10.0.0.0/255.0.0.0"), "has a mask; expected the length of the prefix, 10.0.0.0/8"),
        (fw("action: allow", more="timeouts: {query: 0.5s}"), "expected whole seconds from 1s to 24h"),
        (fw("action: allow", more="connections: 1"), "connections"),
        (fw("action: allow", more="groups: {web: ten}"), "'ten' is no prefix"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        parse_spec(text, "s")


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(SpecError) as wrong:
        parse_spec(
            fw("action: allow, source: wbe", "action: allow, destination: eno, protocol: icmp, source_port: 1"), "s"
        )
    assert all(words in str(wrong.value) for words in ("'wbe' is no group", "'eno' is no group", "has no port numbers"))


def test_more_than_the_program_holds_is_refused() -> None:
    ranges = "action: allow, source_port: [1, 65534], destination_port: [1, 65534]"  # 30 prefixes each
    with pytest.raises(SpecError, match=r"come to 72000 entries at port0; expected at most 65536"):
        parse_spec(fw(*[f"port: port0, source: 10.0.{number}.0/24, {ranges}" for number in range(80)]), "s")


@pytest.mark.parametrize(
    ("rule", "frames"),
    [
        ("source: 224.0.0.0/4", "from 224.0.0.0/4"),
        ("source: 0.1.0.0/16", "from 0.1.0.0/16"),
        ("source: ['::1', 127.0.0.1]", "from ::1/128"),
        ("source: '::'", "from ::/128"),
        ("destination: '::ffff:0:0/96'", "to ::ffff:0:0/96"),
        ("destination: 127.0.0.0/8", "to 127.0.0.0/8"),
        ("source: 10.0.0.1, destination: 10.0.0.1", "from 10.0.0.1 to itself"),
    ],
)
def test_a_rule_for_frames_that_no_rule_sees_is_warned_of(rule: str, frames: str) -> None:
    said = f"fw: the rule '1' never counts, because frames {frames} are dropped before any rule"
    assert warnings(f"action: allow, {rule}") == [said]


def test_a_rule_of_which_some_frames_come_is_not_warned_of() -> None:
    for rule in (
        "source: [224.0.0.0/4, 10.0.0.1]",
        "source: 0.0.0.0",
        "source: 0.0.0.0/0",
        "destination: 224.0.0.0/4",
        "destination: 'ff02::/16'",
        "source: 10.0.0.0/24, destination: 10.0.0.0/24",
    ):
        assert not warnings(f"action: allow, {rule}")


def test_a_rule_that_never_counts_is_warned_of() -> None:
    web = "action: allow, destination: web, protocol: tcp, destination_port: [80, 89]"
    assert warnings(f"name: web, {web}", "action: deny, destination: one, protocol: tcp, destination_port: 80") == [
        "fw: the rule '2' never counts, because 'web' before it fits all that it fits"
    ]
    assert warnings(f"name: web, port: port0, {web}", f"port: port0, {web}")
    assert not warnings(f"name: web, port: port0, {web}", web)  # also at the other port
    assert not warnings(f"name: web, {web}", "action: deny, destination: one, protocol: tcp, destination_port: 90")
    assert not warnings(f"name: web, {web}", "action: deny, destination: one, protocol: udp, destination_port: 80")
    assert not warnings(
        f"name: web, {web}", "action: deny, destination: 10.0.0.0/8, protocol: tcp, destination_port: 80"
    )
    assert not warnings("action: allow, destination: one", "action: deny, destination: web")
    both = warnings(
        "action: allow, destination: 10.0.0.0/8",
        "action: allow, destination: 'fd00::/16'",
        "action: deny, destination: web",
    )
    assert both == ["fw: the rule '3' never counts, because '1' and '2' before it fits all that it fits"]
    assert len(warnings("action: deny", "action: allow, protocol: udp", "action: allow")) == 2


def test_all_of_an_ip_version_hides_what_is_of_that_version() -> None:
    ipv4, ipv6 = "action: allow, source: 0.0.0.0/0", "action: allow, destination: '::/0'"
    for hidden in ("protocol: icmp", "destination: 10.0.0.5", "source: 10.0.0.0/8"):
        assert warnings(ipv4, f"action: deny, {hidden}") == [
            "fw: the rule '2' never counts, because '1' before it fits all that it fits"
        ]
        assert not warnings(ipv6, f"action: deny, {hidden}")
    assert warnings(ipv6, "action: deny, protocol: icmpv6")
    assert not warnings(ipv4, "action: deny, protocol: tcp")  # IPv6 is left
    assert warnings(ipv4, ipv6, "action: deny, protocol: tcp") == [
        "fw: the rule '3' never counts, because '1' and '2' before it fits all that it fits"
    ]
    assert warnings("action: allow, source: [0.0.0.0/0, '::/0']", "action: deny, protocol: tcp")
    assert not warnings("action: allow, protocol: icmp", "action: deny, source: 0.0.0.0/0", "action: deny")


def test_a_rule_is_hidden_by_what_holds_all_of_it() -> None:
    """As a comparison of each with all before it says."""
    chance = random.Random(1)

    prefixes = {4: ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24"], 6: ["::/0", "fd00::/16", "fd00:1::/32"]}

    def part() -> Part:
        version = chance.choice([4, 4, 6])
        source, destination = (chance.choice([None, *prefixes[version]]) for _ in range(2))
        low = chance.choice([0, 80, 443])
        return Part(
            source, destination, chance.choice([None, 6, 17]), None, chance.choice([None, (low, 443), (80, 80)])
        )

    def holds(outer: Part, inner: Part) -> bool:
        def network(prefix: str | None, other: str | None) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
            """What is not given is any of the other's IP version."""
            if prefix is not None:
                return ipaddress.ip_network(prefix)
            return None if other is None else ipaddress.ip_network(prefixes[ipaddress.ip_network(other).version][0])

        def within(one: Part, two: Part, end: str, other: str) -> bool:
            wide = network(getattr(two, end), getattr(two, other))
            narrow = network(getattr(one, end), getattr(one, other))
            return wide is None or (
                narrow is not None and narrow.version == wide.version and narrow.subnet_of(wide)  # type: ignore[arg-type]
            )

        return (
            within(inner, outer, "source", "destination")
            and within(inner, outer, "destination", "source")
            and outer.protocol in (None, inner.protocol)
            and inner.has_ports_of(outer)
        )

    parts = [(part(), range(chance.choice([0, 1]), 2)) for _ in range(300)]
    found = list(hiders(parts))
    for place, (each, ports) in enumerate(parts):
        expected = any(holds(before, each) and set(ports) <= set(where) for before, where in parts[:place])
        assert (found[place] is not None) == expected


def test_rules_for_one_port_each_are_not_all_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared, has_ports_of = 0, Part.has_ports_of

    def counted(self: Part, other: Part) -> bool:
        nonlocal compared
        compared += 1
        return has_ports_of(self, other)

    monkeypatch.setattr(Part, "has_ports_of", counted)
    parts = [(Part("10.0.0.1/32", None, 6, None, (port % 1500,) * 2), range(2)) for port in range(2000)]
    assert [each for each in hiders(parts) if each is not None] == list(range(500))
    assert compared < 2 * len(parts)


def test_a_machine_holds_the_tables_of_its_function() -> None:
    plan(fw("action: allow", where=", runs: machine"))
    many = f"{GROUPS}, connections: 4000000"
    with pytest.raises(Mistake, match=r"memory: 256MiB hold no machine whose function has tables of \d+ MiB; expected"):
        plan(fw("action: allow", more=many, where=", runs: machine"))
    plan(fw("action: allow", more=many, where=", runs: machine, memory: 1GiB"))
    plan(fw("action: allow", more=many))
