"""The balancer as a spec words it: what its program is told, and all that is wrong at once."""

from __future__ import annotations

import json

import pytest
import yaml

from tailrace.plan.make import make_plan
from tailrace.plan.planned import Plan
from tailrace.resources.topology import Cpu
from tailrace.spec.load import parse_spec
from tailrace.spec.source import SpecError

CHAIN = "chains: {wan: [tester.a, lb, tester.b]}\n"
SOURCE = "source: 10.0.0.9"
ENDS = "back_ends: [10.0.0.2]"


def service(name: str = "web", address: str = "192.0.2.1", *more: str, ends: str = ENDS, port: int = 80) -> str:
    return f"{name}: {{{', '.join([f'address: {address!r}', f'port: {port}', *more, ends])}}}"


def balancer(*services: str, own: str = SOURCE, where: str = "") -> str:
    words = f"{own}, services: {{{', '.join(services)}}}"
    return f"functions:\n  lb: {{kind: balancer, balancer: {{{words}}}{where}}}\n{CHAIN}"


def plan(text: str) -> Plan:
    return make_plan(parse_spec(text, "s"), huge=False, cpus=[Cpu(0), Cpu(1)], real_time="not asked")


def test_every_word_reaches_the_program() -> None:
    ends = "back_ends: [10.0.0.2, {name: b, address: 10.0.0.3, port: 8080, weight: 5, drain: true}]"
    health = "health: {by: echo, interval: 500ms, timeout: 200ms, rise: 3, fall: 4}"
    own = "source: [10.0.0.9, '2001:db8::9'], gateway: 10.0.0.1, secret: twelve-three, connections: 1000"
    text = balancer(
        service("web", "192.0.2.1", health, ends=ends),
        service("names", "2001:db8:1::1", "protocol: udp, mode: direct", ends="back_ends: ['2001:db8::2']", port=53),
        own=own,
    )
    (function,) = plan(text).functions
    assert "connections=1000" in function.settings
    assert function.told == {
        "source": ["10.0.0.9", "2001:db8::9"],
        "gateway": ["10.0.0.1"],
        "secret": "twelve-three",
        "services": [
            {
                "name": "web",
                "address": "192.0.2.1",
                "port": 80,
                "protocol": "tcp",
                "mode": "rewrite",
                "health": {"by": "echo", "interval": 500, "timeout": 200, "rise": 3, "fall": 4},
                "back_ends": [
                    {"name": "10.0.0.2:80", "address": "10.0.0.2", "port": 80, "weight": 1, "drain": False},
                    {"name": "b", "address": "10.0.0.3", "port": 8080, "weight": 5, "drain": True},
                ],
            },
            {
                "name": "names",
                "address": "2001:db8:1::1",
                "port": 53,
                "protocol": "udp",
                "mode": "direct",
                "health": {"by": "echo", "interval": 2000, "timeout": 1000, "rise": 2, "fall": 3},
                "back_ends": [
                    {"name": "[2001:db8::2]:53", "address": "2001:db8::2", "port": 53, "weight": 1, "drain": False}
                ],
            },
        ],
    }


def test_tcp_is_probed_by_tcp_unless_said() -> None:
    (function,) = plan(
        balancer(service(), service("arp", "192.0.2.2", "health: neighbour", ends="back_ends: [10.0.0.3]"))
    ).functions
    assert function.told is not None
    assert [each["health"]["by"] for each in function.told["services"]] == ["tcp", "neighbour"]


def test_a_service_without_anybody_for_new_connections_is_noted() -> None:
    found = plan(balancer(service(ends="back_ends: [{address: 10.0.0.2, drain: true}]")))
    assert any("all back ends of the service 'web' are in drain" in note for note in found.notes)


def test_what_is_written_reads_back_the_same() -> None:
    spec = parse_spec(balancer(service(), service("names", "192.0.2.1", "protocol: udp", port=53)), "s")
    again = yaml.safe_dump(json.loads(spec.model_dump_json(by_alias=True, exclude_none=True)))
    assert parse_spec(again, "again") == spec


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (balancer(service(), own="connections: 1000"), "lacks a 'source' of IPv4.* expected such as source: 10.0.0.9"),
        (
            balancer(service("a", "2001:db8::5", ends="back_ends: ['2001:db8::2']"), own="source: 10.0.0.9"),
            "lacks a 'source' of IPv6.* such as source: '2001:db8::9'",
        ),
        (balancer(service(), own="secret: abc"), "'abc' in .*secret; expected a text of at least 8 characters"),
        (balancer(service(), own="secret: ''"), "expected a text of at least 8 characters"),
        (balancer(service(), own="source: [10.0.0.8, 10.0.0.9]"), "two addresses of IPv4"),
        (balancer(service(address="192.0.2.0/24")), "is no address; expected an IPv4 or IPv6 address"),
        (balancer(service(address="224.0.0.1")), "an address that no host has"),
        (balancer(service(address="240.0.0.1")), "240.0.0.1 is an address that no host has in a network .240.0.0.0/4."),
        (balancer(service(), own="source: 0.0.0.1"), "0.0.0.1 is an address that no host has in a network .0.0.0.0/8."),
        (balancer(service(ends="back_ends: [255.255.255.255]")), "255.255.255.255 is an address that no host has"),
        (balancer(service(), own="source: '2001:db8::1%eth0'"), "names a zone.*; expected 2001:db8::1"),
        (balancer(service(address="10.0.0.9")), "10.0.0.9 is the source too"),
        (balancer(service(address="10.0.0.1"), own=f"{SOURCE}, gateway: 10.0.0.1"), "10.0.0.1 is the gateway too"),
        (
            balancer(service(), own=f"{SOURCE}, gateway: 10.0.0.9"),
            "10.0.0.9 is the source too; expected the address of a",
        ),
        (balancer(service(address="10.0.0.2")), "that of a back end of 'web'"),
        (balancer(service(), service("also")), "tcp 192.0.2.1:80 is that of service 'web' already"),
        (balancer(service(ends="back_ends: []")), "back_ends"),
        (balancer(service(ends="back_ends: ['2001:db8::2']")), "not of the IP version of 192.0.2.1"),
        (balancer(service(ends="back_ends: [10.0.0.9]")), "10.0.0.9 is the source; expected a back end's own"),
        (balancer(service(ends="back_ends: [10.0.0.2, 10.0.0.2]")), "10.0.0.2:80 is back end 1 of 'web' already"),
        (balancer(service(), service("b", "192.0.2.2")), "10.0.0.2:80 is back end 1 of 'web' already"),
        (balancer(service(ends="back_ends: [{address: 10.0.0.2, weight: 0}]")), "weight"),
        (
            balancer(service("web", "192.0.2.1", "mode: direct", ends="back_ends: [{address: 10.0.0.2, port: 81}]")),
            "mode direct leaves the port as it is",
        ),
        (balancer(service("web", "192.0.2.1", "health: {timeout: 3s}")), "the timeout is longer than the interval"),
        (balancer(service("web", "192.0.2.1", "health: {interval: 10ms}")), "interval: 10ms is out of range"),
        (balancer(service(), where=", replicas: 2"), "2 replicas would not see both directions"),
        (balancer(service("web", "192.0.2.1", "prot: tcp")), "unknown key 'prot'.*did you mean port"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        parse_spec(text, "s")


def test_services_of_mode_direct_may_share_back_ends() -> None:
    parse_spec(balancer(service("a", "192.0.2.1", "mode: direct"), service("b", "192.0.2.2", "mode: direct")), "s")


def test_two_that_stand_for_the_same_address_are_told() -> None:
    second = service("b", ends="back_ends: [10.0.0.3]", port=81)
    other = f"kind: balancer, balancer: {{source: 10.0.0.8, services: {{{second}}}}}"
    text = balancer(
        service(),
        service("six", "2001:db8::1", ends="back_ends: ['2001:db8::2']"),
        own="source: [10.0.0.9, '2001:db8::9']",
    )
    text = text.replace("chains:", f"  other: {{{other}}}\nchains:").replace("lb,", "lb, other,")
    said = [note for note in plan(text).notes if "stand for" in note]
    assert said == [
        "lb and other both stand for 192.0.2.1: what is sent there reaches one of them only, unless their networks are "
        "apart"
    ]


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(SpecError) as wrong:
        parse_spec(
            balancer(
                service("a", "10.0.0.9", ends="back_ends: ['2001:db8::2']"),
                service("b", "192.0.2.1", ends="back_ends: [10.0.0.2, 10.0.0.2]"),
                service("c", "192.0.2.1", ends="back_ends: [10.0.0.3]"),
            ),
            "s",
        )
    found = str(wrong.value)
    said = ("is the source too", "not of the IP version", "back end 1 of 'b' already", "of service 'b' already")
    assert all(words in found for words in said), found
