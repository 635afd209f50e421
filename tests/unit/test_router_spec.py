"""The router as a spec words it: what its program and its network namespace are told, and all that is wrong at once."""

from __future__ import annotations

import ipaddress
import json

import pytest
import yaml

from tailrace.errors import Mistake
from tailrace.functions.namespace import network_commands
from tailrace.functions.process import command
from tailrace.functions.runtime import Instance
from tailrace.functions.runtimes import has_namespace
from tailrace.plan.make import make_plan, scaled
from tailrace.plan.planned import Plan
from tailrace.resources.place import Place
from tailrace.resources.topology import Cpu
from tailrace.spec.kind import Network, Route
from tailrace.spec.load import parse_spec
from tailrace.spec.router import Router
from tailrace.spec.source import SpecError

CPUS = [Cpu(0), Cpu(1)]
CHAIN = "chains: {wan: [tester.a, edge, tester.b]}\n"
PORTS = "port0: 10.0.0.1/24, port1: [10.0.1.1/24, 'fd00:1::1/64']"


def edge(router: str, more: str = "") -> str:
    return f"functions:\n  edge: {{kind: router, router: {{{router}}}{more}}}\n{CHAIN}"


def plan(text: str) -> Plan:
    return make_plan(parse_spec(text, "s"), huge=False, cpus=CPUS, real_time="not asked")


def test_an_address_that_another_function_stands_for_is_noted() -> None:
    others = (
        "  gate: {kind: nat, nat: {pool: 10.0.1.0/30, inside: 192.168.0.0/16}}\n"
        "  next: {kind: router, router: {port0: 'fd00:1::1/64'}}\n"
    )
    chain = "chains: {wan: [tester.a, gate, edge, next, tester.b]}\n"
    text = edge(PORTS).replace(CHAIN, others + chain)
    reached = "what is sent there reaches one of them only, unless their networks are apart"
    assert [note for note in plan(text).notes if "stand for" in note] == [
        f"gate and edge both stand for 10.0.1.1: {reached}",
        f"edge and next both stand for fd00:1::1: {reached}",
    ]


def test_every_word_reaches_the_program_or_the_namespace() -> None:
    routes = "routes: {0.0.0.0/0: [10.0.1.2, 10.0.0.2], 'fd00:2::/32': 'fd00:1::2'}"
    (function,) = plan(edge(f"{PORTS}, {routes}, ipv4_routes: 100, ipv6_routes: 7")).functions
    assert function.settings == ("ipv4-routes=100", "ipv6-routes=7")
    assert function.network == Network(
        (("10.0.0.1/24",), ("10.0.1.1/24", "fd00:1::1/64")),
        (Route("0.0.0.0/0", (("10.0.1.2", 1), ("10.0.0.2", 0))), Route("fd00:2::/32", (("fd00:1::2", 1),))),
    )


def test_stations_reach_the_namespace_with_the_ports_that_they_are_at() -> None:
    macs = "macs: {port1: '02:00:00:00:00:0A'}"
    near = (
        "neighbours: {10.0.1.2: '02:00:00:00:00:0b', 'fd00:1::2': '02:00:00:00:00:0c', 10.0.0.9: '02:00:00:00:00:0d'}"
    )
    (function,) = plan(edge(f"{PORTS}, {macs}, {near}")).functions
    assert function.network is not None and function.network.macs == (None, "02:00:00:00:00:0a")
    assert function.network.neighbours == (
        ("10.0.1.2", "02:00:00:00:00:0b", 1),
        ("fd00:1::2", "02:00:00:00:00:0c", 1),
        ("10.0.0.9", "02:00:00:00:00:0d", 0),
    )


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("10.0.0.1", "is no other address"),
        ("192.0.2.1", "is no other address"),
        ("10.0.0.0", "is the address of the whole network 10.0.0.0/24"),
        ("10.0.1.255", "is the address of all in 10.0.1.0/24"),
    ],
)
def test_a_neighbour_is_another_one_in_a_network_of_a_port(address: str, said: str) -> None:
    with pytest.raises(Mistake, match=f"{address} {said}"):
        plan(edge(f"{PORTS}, neighbours: {{{address}: '02:00:00:00:00:0b'}}"))


def test_a_neighbour_is_at_the_port_of_the_longest_prefix() -> None:
    ports = "port0: 10.0.0.1/8, port1: 10.0.1.1/24"
    (function,) = plan(edge(f"{ports}, routes: {{0.0.0.0/0: [10.0.1.2, 10.0.2.255]}}")).functions
    assert function.network is not None
    assert function.network.routes == (Route("0.0.0.0/0", (("10.0.1.2", 1), ("10.0.2.255", 0))),)


def test_more_routes_than_there_is_room_for_are_a_note() -> None:
    routes = "routes: {10.2.0.0/16: 10.0.1.2, 10.3.0.0/16: 10.0.1.2, 'fd00:2::/32': 'fd00:1::2'}"
    notes = plan(edge(f"{PORTS}, {routes}, ipv4_routes: 1, ipv6_routes: 1")).notes
    said = "edge: 2 IPv4 routes are more than ipv4_routes has room for (1), so the kernel forwards all of IPv4"
    assert [each for each in notes if each.startswith("edge: ")] == [said]


def test_its_tables_have_room_beside_the_buffers() -> None:
    made = make_plan(parse_spec(edge("ipv4_routes: 1000000, ipv6_routes: 200000"), "s"), cpus=CPUS, real_time=None)
    (function,) = made.functions
    assert function.tables_mib == 1478
    assert sum(made.pages_of(["edge"]).values()) == (64 + 1478) // 2
    assert {each.memory_bytes for each in made.ports if each.owner == "edge"} == {(256 + 64 + 1478) << 20}


def test_without_settings_it_has_a_namespace_all_the_same_and_others_have_none() -> None:
    router, skeleton = plan(
        "functions: {edge: router, fw: skeleton}\nchains: {o: [tester.a, edge, fw, tester.b]}\n"
    ).functions
    assert router.network == Network(((), ()))
    assert skeleton.network is None


def test_a_plan_reads_back_the_same() -> None:
    made = plan(edge(f"{PORTS}, routes: {{0.0.0.0/0: 10.0.1.2}}"))
    assert Plan.read(made.as_data()).functions == made.functions


def test_what_is_written_reads_back_the_same() -> None:
    spec = parse_spec(edge(f"{PORTS}, routes: {{0.0.0.0/0: 10.0.1.2}}"), "s")
    again = yaml.safe_dump(json.loads(spec.model_dump_json(by_alias=True, exclude_none=True)))
    assert parse_spec(again, "again") == spec


def test_its_sandbox_is_in_its_namespace_without_capabilities() -> None:
    place = Place(1, (0, 1), "interrupt")
    words = command(Instance("edge", "router", ("vhost:/s/a", "vhost:/s/b"), place, 1, True, network="tailrace-edge"))
    assert "--unshare-net" not in words and "--cap-add" not in words
    assert "--unshare-user" in words and "--disable-userns" in words
    assert words[words.index("/dev/net/tun") - 1] == "--dev-bind"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (edge("port0: 10.0.0.1"), r"s:2:40: .*'10\.0\.0\.1' is no address; expected an address with its prefix's"),
        (edge("port0: 10.0.0.0/24"), "is the address of the whole network"),
        (edge("port0: 224.0.0.1/24"), "an address that no host has in a network .224.0.0.0/4."),
        (edge("port0: 255.255.255.255/32"), "an address that no host has in a network .240.0.0.0/4."),
        (edge("port0: 0.0.0.5/32"), "an address that no host has in a network .0.0.0.0/8."),
        (edge("port0: 240.0.0.1/4"), "an address that no host has in a network .240.0.0.0/4."),
        (edge("port0: 0.0.0.1/8"), "an address that no host has in a network .0.0.0.0/8."),
        (edge("port0: '::ffff:10.0.0.1/120'"), "an address that no host has in a network .::ffff:0(:0|.0.0.0)/96."),
        (edge("port0: 10.0.0.255/24"), "is the address of the whole network, or of all in it"),
        (edge("port0: 10.0.0.1/255.255.255.0"), "has a mask; expected the length of the prefix, 10.0.0.1/24"),
        (edge("port0: '2001:db8::1%eth0/64'"), "names a zone, which is not in a frame; expected 2001:db8::1/64"),
        (edge(f"{PORTS}, routes: {{'2001:db8::%x/48': 'fd00:1::2'}}"), "names a zone.*; expected 2001:db8::/48"),
        (edge(f"{PORTS}, routes: {{10.2.0.0/16: 'fd00:1::2%eth0'}}"), "names a zone.*; expected fd00:1::2"),
        (edge(f"{PORTS}, neighbours: {{'fd00:1::2%x': '02:00:00:00:00:0b'}}"), "names a zone.*; expected fd00:1::2"),
        (edge(f"{PORTS}, routes: {{10.2.0.0/16: 0.0.0.9}}"), "0.0.0.9 is an address that no host has"),
        (edge(f"{PORTS}, routes: {{10.2.0.0/255.255.0.0: 10.0.1.2}}"), "has a mask; .*, 10.2.0.0/16"),
        (
            edge(f"{PORTS}, routes: {{10.2.0.0/16: 10.0.1.2, 10.2.0.0/016: 10.0.1.3}}"),
            "'10.2.0.0/16' and '10.2.0.0/016' are the same prefix; expected each once",
        ),
        (
            edge(f"{PORTS}, routes: {{'2001:DB8:1::/48': 'fd00:1::2', '2001:db8:1::/48': 'fd00:1::3'}}"),
            "'2001:DB8:1::/48' and '2001:db8:1::/48' are the same prefix; expected each once",
        ),
        (
            edge(
                f"{PORTS}, neighbours: {{'fd00:1::a': '02:00:00:00:00:0b', 'fd00:1::A': '02:00:00:00:00:0c', "
                "'fd00:1:0::a': '02:00:00:00:00:0d'}"
            ),
            "'fd00:1::a' and 'fd00:1::A' and 'fd00:1:0::a' are the same address; expected each once",
        ),
        (edge("port0: 'fe80::1/64'"), "cannot be a port's"),
        (edge(f"{PORTS}, routes: {{10.2.0.1/16: 10.0.1.2}}"), "has bits set beyond its length; expected 10.2.0.0/16"),
        (edge(f"{PORTS}, routes: {{10.2.0.0/16: ten}}"), "'ten' is no address; expected that of a neighbour"),
        (edge(f"{PORTS}, routes: {{10.2.0.0/16: []}}"), "routes"),
        (edge(f"{PORTS}, routes: {{10.2.0.0/16: 10.9.0.1}}"), r"10\.9\.0\.1 is in no prefix of a port"),
        (edge(f"{PORTS}, routes: {{10.2.0.0/16: 'fd00:1::2'}}"), "fd00:1::2 is of another IP version"),
        (edge("routes: {10.2.0.0/16: 10.9.0.1}"), "not known how to reach it; expected a port with an address there"),
        (edge(f"{PORTS}, routes: {{10.0.0.1/32: 10.0.1.2}}"), r"10\.0\.0\.1 is the router's own .port0., so nothing"),
        (
            edge(f"{PORTS}, routes: {{'fd00:1::1/128': 'fd00:1::2'}}"),
            "fd00:1::1 is the router's own .port1., so",
        ),
        (edge(f"{PORTS}, routes: {{10.2.0.0/16: 10.0.1.1}}"), r"10\.0\.1\.1 is the router's own .port1."),
        (
            edge(f"{PORTS}, routes: {{10.2.0.0/16: 10.0.1.255}}"),
            r"10\.0\.1\.255 is the address of all in 10\.0\.1\.0/24",
        ),
        (edge(f"{PORTS}, routes: {{10.2.0.0/16: 10.0.1.0}}"), r"10\.0\.1\.0 is the address of the whole network"),
        (edge(f"{PORTS}, routes: {{10.2.0.0/16: [10.0.1.2, 10.0.1.2]}}"), r"10\.0\.1\.2 is named twice"),
        (edge(f"{PORTS}, routes: {{10.0.1.0/24: 10.0.1.9}}"), r"10\.0\.1\.0/24 is the network of port1"),
        (edge(f"{PORTS}, routes: {{127.1.0.0/16: 10.0.1.2}}"), r"frames to 127\.0\.0\.0/8 are never forwarded"),
        (edge(f"{PORTS}, routes: {{224.0.0.0/4: 10.0.1.2}}"), r"frames to 224\.0\.0\.0/4 are never forwarded"),
        (edge(f"{PORTS}, routes: {{'ff05::/16': 'fd00:1::2'}}"), "frames to ff00::/8 are never forwarded"),
        (edge(f"{PORTS}, routes: {{'::1/128': 'fd00:1::2'}}"), "frames to ::/127 are never forwarded"),
        (edge(f"{PORTS}, routes: {{'::ffff:0:0/96': 'fd00:1::2'}}"), "frames to ::ffff:0:0/96 are never forwarded"),
        (
            edge(f"{PORTS}, routes: {{'fd00:1::2/128': 'fd00:1::2'}}"),
            "fd00:1::2/128 another route to it, which the kernel",
        ),
        (edge("port0: 10.0.0.1/24, port1: 10.0.0.2/24"), r"10\.0\.0\.0/24 is the network of port0 too"),
        (edge("port0: 10.0.0.1/24, port1: 10.0.0.1/24"), r"10\.0\.0\.1 is an address of port0 already"),
        (edge("rotues: {}"), "unknown key 'rotues'.*did you mean routes"),
        (edge("ipv4_routes: 0"), "ipv4_routes"),
        (edge(PORTS, ", replicas: 2"), "2 replicas would have the same addresses; expected 1"),
        (f"functions: {{edge: {{kind: skeleton, router: {{}}}}}}\n{CHAIN}", "and this is skeleton; expected one"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        parse_spec(text, "s")


def test_all_that_is_wrong_is_said_at_once() -> None:
    text = edge(f"{PORTS}, routes: {{10.2.0.0/16: 10.9.0.1, 10.3.0.0/16: 10.0.1.1, 10.4.0.0/16: 'fd00:1::2'}}")
    with pytest.raises(SpecError) as wrong:
        parse_spec(text, "s")
    assert [word in str(wrong.value) for word in ("no prefix of a port", "router's own", "another IP version")] == [
        True
    ] * 3


@pytest.mark.parametrize("near", [False, True])
def test_what_routes_are_looked_through_for_grows_with_their_number_alone(
    near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`near`: each is to a part of a port's network, which others' next hops are compared with."""
    work = [0]
    parse, contains = ipaddress.ip_network, ipaddress.IPv6Network.__contains__

    def count_parse(address: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        work[0] += 1
        return parse(address)

    def count_contains(self: ipaddress.IPv6Network, other: object) -> bool:
        work[0] += 1
        return contains(self, other)

    def work_for(number: int) -> int:
        first = "fd00:1::1" if near else "fd00:2:"
        router = Router.model_validate(
            {
                "port1": "fd00:1::1/64",
                "routes": {f"{first}:{each:x}:0/112": f"fd00:1::2:{each:x}" for each in range(number)},
            }
        )
        work[0] = 0
        assert not list(router.problems())
        return work[0]

    monkeypatch.setattr(ipaddress, "ip_network", count_parse)
    monkeypatch.setattr(ipaddress.IPv6Network, "__contains__", count_contains)
    assert 0 < work_for(4000) <= 2 * work_for(2000) + 16


def test_of_routes_to_a_next_hop_the_narrowest_is_said() -> None:
    routes = "routes: {'fd00:1::/96': 'fd00:1:0:0:1::2', 'fd00:1::/120': 'fd00:1:0:0:1::2', 'fd00:2::/32': 'fd00:1::2'}"
    with pytest.raises(SpecError, match="fd00:1::2 is a next hop, and fd00:1::/120 another route to it"):
        parse_spec(edge(f"{PORTS}, {routes}"), "s")


def test_in_a_machine_the_kernel_inside_is_told_its_network() -> None:
    with pytest.raises(Mistake, match="256MiB hold no machine whose function has tables of 228 MiB; expected 428MiB"):
        plan(edge(PORTS, ", runs: machine"))
    told = "routes: {0.0.0.0/0: [10.0.1.2, 10.0.0.2]}, macs: {port1: '02:00:00:00:00:0a'}"
    near = "neighbours: {10.0.1.2: '02:00:00:00:00:0b'}"
    (function,) = plan(edge(f"{PORTS}, {told}, {near}", ", runs: machine, memory: 512MiB")).functions
    assert not has_namespace("machine", function.network) and has_namespace("container", function.network)
    assert not has_namespace("process", None) and function.network is not None
    assert network_commands(function.network, ["52:54:00:00:00:00", "52:54:00:00:00:01"]) == [
        "address flush dev port0 scope global",
        "neighbour flush dev port0 nud permanent",
        "link set port0 address 52:54:00:00:00:00 up",
        "address replace 10.0.0.1/24 dev port0",
        "address flush dev port1 scope global",
        "neighbour flush dev port1 nud permanent",
        "link set port1 address 02:00:00:00:00:0a up",
        "address replace 10.0.1.1/24 dev port1",
        "address replace fd00:1::1/64 dev port1",
        "neighbour replace 10.0.1.2 lladdr 02:00:00:00:00:0b dev port1 nud permanent protocol 116",
        "route replace 0.0.0.0/0 proto 116 nexthop via 10.0.1.2 dev port1 nexthop via 10.0.0.2 dev port0",
    ]


def test_it_is_not_scaled() -> None:
    with pytest.raises(Mistake, match="would have the same addresses"):
        scaled(plan(edge(PORTS)), "edge", 2, cpus=CPUS)
