"""The NAT as a spec words it: what its program is told, and all that is wrong at once."""

from __future__ import annotations

import json

import pytest
import yaml

from tailrace.plan.make import make_plan
from tailrace.plan.planned import Plan
from tailrace.resources.topology import Cpu
from tailrace.spec.load import parse_spec
from tailrace.spec.source import SpecError

CHAIN = "chains: {wan: [tester.a, gate, tester.b]}\n"
FORWARD = "protocol: tcp, address: 198.51.100.1, port: 80, to: 10.0.0.5, to_port: 8080"


def nat(*more: str, pool: str = "198.51.100.0/28", where: str = "") -> str:
    words = ", ".join([f"pool: {pool}", *more])
    return f"functions:\n  gate: {{kind: nat, nat: {{{words}}}{where}}}\n{CHAIN}"


def plan(text: str) -> Plan:
    return make_plan(parse_spec(text, "s"), huge=False, cpus=[Cpu(0), Cpu(1)], real_time="not asked")


def test_every_word_reaches_the_program() -> None:
    more = "inside: 10.0.0.0/8, block: 1024, blocks: 2, host_connections: 100, connections: 1000"
    filtering = "filtering: address-and-port-dependent, timeouts: {one_way: 3min}"
    forwards = f"forwards: [{{{FORWARD}}}, {{protocol: udp, address: 203.0.113.9, port: 53, to: 10.0.0.6}}]"
    (function,) = plan(nat(more, filtering, forwards, pool="[198.51.100.0/28, 203.0.113.9]")).functions
    assert set(function.settings) >= {
        "pool=198.51.100.0/28,203.0.113.9/32",
        "inside=10.0.0.0/8",
        "block=1024",
        "blocks=2",
        "host-connections=100",
        "connections=1000",
        "filtering=address-and-port-dependent",
        "one_way=180",
        "forwards=tcp:198.51.100.1:80:10.0.0.5:8080,udp:203.0.113.9:53:10.0.0.6:53",
    }


def test_inside_is_private_unless_said() -> None:
    (function,) = plan(nat()).functions
    assert "inside=10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,100.64.0.0/10" in function.settings
    assert not any(each.startswith("forwards") for each in function.settings)


def test_its_tables_have_room_for_the_pool() -> None:
    few, many = (plan(nat(pool=each)).functions[0].tables_mib for each in ("198.51.100.0/28", "198.51.100.0/24"))
    assert many - few >= 240 * 64512 * 3 // 8 >> 20


def test_one_may_stand_by() -> None:
    active, standby = plan(nat(where=", replicas: {1: active, 2: standby}")).functions
    assert (active.state, standby.state) == ("active", "standby")
    assert active.settings == standby.settings


def test_what_is_written_reads_back_the_same() -> None:
    spec = parse_spec(nat(f"forwards: [{{{FORWARD}}}]"), "s")
    again = yaml.safe_dump(json.loads(spec.model_dump_json(by_alias=True, exclude_none=True)))
    assert parse_spec(again, "again") == spec


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"functions: {{gate: {{kind: nat}}}}\n{CHAIN}", "nat lacks 'pool'"),
        (nat(pool="'2001:db8::/64'"), "is no prefix of IPv4; expected an IPv4 prefix"),
        (nat(pool="198.51.100.1/28"), "has bits set beyond its length; expected 198"),
        (nat(pool="224.0.0.0/24"), "has addresses that no host has in a network .224.0.0.0/4."),
        (nat(pool="255.255.255.255"), "255.255.255.255/32 has addresses that no host has in a network .240.0.0.0/4."),
        (nat(pool="240.0.0.0/28"), "has addresses that no host has in a network .240.0.0.0/4."),
        (nat(pool="0.0.0.0/28"), "has addresses that no host has in a network .0.0.0.0/8."),
        (nat(pool="198.51.100.0/255.255.255.0"), "has a mask; expected the length of the prefix, 198.51.100.0/24"),
        (nat("inside: 0.0.0.0/0"), "inside.* 0.0.0.0/0 has addresses that no host has"),
        (nat(pool="198.51.0.0/16"), "65536 addresses; expected at most 1024"),
        (nat(pool="[198.51.100.0/28, 198.51.100.8]"), r"198.51.100.0/28 and 198.51.100.8/32 overlap"),
        (nat(pool="10.1.0.0/28"), "10.1.0.0/28 overlaps 10.0.0.0/8, which is inside"),
        (nat("block: 100"), "100 is no power of two"),
        (nat("blocks: 17"), "blocks"),
        (nat("filtering: none"), "filtering"),
        (nat("forwards: [{protocol: tcp, address: 203.0.113.1, port: 80, to: 10.0.0.5}]"), "not in the pool"),
        (nat("forwards: [{protocol: tcp, address: 198.51.100.1, port: 80, to: 8.8.8.8}]"), "8.8.8.8 is not in inside"),
        (nat(f"forwards: [{{{FORWARD}}}, {{{FORWARD}}}]"), "198.51.100.1:80 is that of forward 1 already"),
        (nat(where=", replicas: 2"), "2 replicas would have the same pool; expected 1"),
        (nat(where=", replicas: {1: active, 2: draining, 3: standby}"), "2 replicas would have the same pool"),
        (nat("blok: 64"), "unknown key 'blok'.*did you mean block"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        parse_spec(text, "s")


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(SpecError) as wrong:
        parse_spec(nat("block: 100", f"forwards: [{{{FORWARD}}}, {{{FORWARD}}}]", pool="10.0.0.0/28"), "s")
    found = str(wrong.value)
    assert all(words in found for words in ("which is inside", "no power of two", "not in the pool", "already"))


def test_two_that_stand_for_the_same_addresses_are_told() -> None:
    own = "kind: nat, nat: {pool: [198.51.100.4/30, 203.0.113.0/28]}"
    text = nat().replace("chains:", f"  other: {{{own}}}\nchains:").replace("gate,", "gate, other,")
    said = [note for note in plan(text).notes if "stand for" in note]
    apart = "what is sent there reaches one of them only, unless their networks are apart"
    assert said == [f"gate and other both stand for addresses of 198.51.100.4/30: {apart}"]
    assert not any("stand for" in note for note in plan(nat()).notes)
