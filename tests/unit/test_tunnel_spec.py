"""A tunnel's end as a spec words it: what its program is told, and all that is wrong at once."""

from __future__ import annotations

import json

import pytest
import yaml

from tailrace.plan import make
from tailrace.plan.make import make_plan
from tailrace.plan.planned import Plan
from tailrace.resources.addresses import is_own
from tailrace.resources.topology import Cpu
from tailrace.spec.load import parse_spec
from tailrace.spec.source import SpecError
from tailrace.spec.tunnel import Tunnel

CHAIN = "chains: {wan: [tester.a, away, tester.b]}\n"
ENDS = "vni: 42, local: 192.0.2.1, remote: 192.0.2.2"
SIX = "vni: 42, local: '2001:db8::1', remote: '2001:db8::2'"


def tunnel(*words: str, where: str = "") -> str:
    return f"functions:\n  away: {{kind: tunnel, tunnel: {{{', '.join(words)}}}{where}}}\n{CHAIN}"


def plan(text: str) -> Plan:
    return make_plan(parse_spec(text, "s"), huge=False, cpus=[Cpu(0), Cpu(1)], real_time="not asked")


def told(*words: str) -> dict[str, str]:
    (function,) = plan(tunnel(*words)).functions
    return dict(each.split("=", 1) for each in function.settings)


def test_what_is_not_given_follows_from_protocol_and_ip_version() -> None:
    vxlan = {"protocol": "vxlan", "port": "4789", "tagged": "no"}
    geneve = {"protocol": "geneve", "port": "6081", "tagged": "yes"}
    ends = {"vni": "42", "local": "192.0.2.1", "remote": "192.0.2.2", "mtu": "1500", "checksum": "no"}
    assert told(ENDS) == {**ends, **vxlan}
    assert told(ENDS, "protocol: geneve") == {**ends, **geneve}
    assert told(SIX)["checksum"] == "yes"


def test_every_word_reaches_the_program() -> None:
    more = (
        "gateway: 192.0.2.9, neighbour: '02:00:00:00:00:09', mac: '02:00:00:00:00:01', port: 8472, mtu: 9000, "
        "checksum: true, tagged: true, liveness: {interval: 50ms, missed: 5}"
    )
    assert told(ENDS, more) == {
        "protocol": "vxlan",
        "vni": "42",
        "local": "192.0.2.1",
        "remote": "192.0.2.2",
        "gateway": "192.0.2.9",
        "neighbour": "02:00:00:00:00:09",
        "mac": "02:00:00:00:00:01",
        "port": "8472",
        "mtu": "9000",
        "checksum": "yes",
        "tagged": "yes",
        "liveness": "50000",
        "multiplier": "5",
    }
    assert told(ENDS, "liveness: {}")["liveness"] == "300000"


def test_two_of_one_address_are_noted() -> None:
    other = "vni: 43, local: 192.0.2.1, remote: 192.0.2.3"
    text = (
        f"functions:\n  one: {{kind: tunnel, tunnel: {{{ENDS}}}}}\n  two: {{kind: tunnel, tunnel: {{{other}}}}}\n"
        "bridges: {lan: [one.0, two.0, tester.a], wan: [one.1, two.1, tester.b]}\n"
    )
    assert [note for note in plan(text).notes if "stand for" in note] == [
        "one and two both stand for 192.0.2.1: what is sent there reaches one of them only, unless their networks are "
        "apart"
    ]
    apart = text.replace("192.0.2.1, remote: 192.0.2.3", "192.0.2.4, remote: 192.0.2.3")
    assert not [note for note in plan(apart).notes if "stand for" in note]


def test_one_that_is_the_hosts_too_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = parse_spec(tunnel(ENDS), "s")
    for own, noted in (("192.0.2.1", True), ("192.0.2.2", False)):
        monkeypatch.setattr(make, "is_own", own.__eq__)
        found = [note for note in make_plan(spec, huge=False).notes if "address of this host" in note]
        assert [note.partition(":")[0] for note in found] == [
            "away stands for 192.0.2.1, which is an address of this host too"
        ] * noted


@pytest.mark.parametrize(
    ("device", "more", "noted"),
    [
        ("{if: narrow}", "mtu: 1500", ["narrow carries 1400"]),
        ("{xdp: narrow}", "mtu: 1500", ["narrow carries 1400"]),
        ("{if: narrow}", "mtu: 1400", []),
        ("{if: usual}", "mtu: 1500", []),
        ("{if: none}", "mtu: 1500", []),
        ("{bond: {members: [usual, narrow]}}", "mtu: 1600", ["usual carries 1500", "narrow carries 1400"]),
        ("{tap: made}", "mtu: 9000", []),
    ],
)
def test_an_interface_that_carries_less_is_noted(
    monkeypatch: pytest.MonkeyPatch, device: str, more: str, noted: list[str]
) -> None:
    monkeypatch.setattr(make, "mtu_of", {"tight": 1280, "narrow": 1400, "usual": 1500}.get)
    text = f"ports: {{near: {{if: tight}}, far: {device}}}\n"
    text += tunnel(ENDS, more).replace("tester.a", "near").replace("tester.b", "far")
    inline = tunnel(ENDS, more).replace("tester.a", "{if: tight}").replace("tester.b", device)
    for each in (text, inline) if "bond" not in device else (text,):
        found = [note for note in make_plan(parse_spec(each, "s"), huge=False).notes if "longer packets" in note]
        assert [note.partition("the interface ")[2].partition(":")[0] for note in found] == noted


def test_whose_an_address_is() -> None:
    assert is_own("127.0.0.1")
    assert not is_own("198.51.100.1") and not is_own("2001:db8:ffff::1") and not is_own("fe80::1")


def test_it_may_have_several_cpus() -> None:
    assert Tunnel.one_thread is None
    (function,) = plan(tunnel(ENDS, where=", cpus: {start: 1, most: 2}")).functions
    assert function.most_cpus == 2


def test_what_is_written_reads_back_the_same() -> None:
    spec = parse_spec(tunnel(ENDS, "protocol: geneve"), "s")
    again = yaml.safe_dump(json.loads(spec.model_dump_json(by_alias=True, exclude_none=True)))
    assert parse_spec(again, "again") == spec


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *(
            (
                text,
                ["tunnel lacks 'local', its own address", "'remote', the other", "'vni', the net"],
            )
            for text in (f"functions: {{away: tunnel}}\n{CHAIN}", tunnel(""))
        ),
        (tunnel("local: 192.0.2.1, remote: 192.0.2.2"), ["tunnel lacks 'vni'"]),
        (tunnel(ENDS, where=", replicas: 2"), ["2 replicas would have the same address; expected 1"]),
        (tunnel("vni: 16777216, local: 192.0.2.1, remote: 192.0.2.2"), ["vni", "16777216"]),
        (tunnel("vni: 1, local: 192.0.2.1, remote: 192.0.2.1"), ["192.0.2.1 is this end's own address"]),
        (tunnel("vni: 1, local: 192.0.2.1, remote: 239.1.1.1"), ["239.1.1.1 is an address that no host has"]),
        (
            tunnel(ENDS, "gateway: '2001:db8::9', mtu: 575, port: 0, protocol: gre"),
            ["575", "port", "gre", "expected 'vxlan' or 'geneve'"],
        ),
        (
            tunnel("vni: 1, local: 192.0.2.1, remote: '2001:db8::2', gateway: '2001:db8::9'"),
            ["2001:db8::2 is not of the same IP version as 192.0.2.1", "2001:db8::9 is not of the same IP version"],
        ),
        (tunnel(ENDS, "port: 3784, liveness: {}"), ["3784 is BFD's, which liveness needs"]),
        (tunnel(ENDS, "liveness: {interval: 5ms, missed: 0}"), ["5ms is out of range; expected 10ms to 60s", "missed"]),
        (tunnel(ENDS, "gateway: 192.0.2.2"), ["192.0.2.2 is the other end itself; leave gateway out if"]),
        (
            tunnel(ENDS, "mac: '02:00:00:00:00:0a', neighbour: '02:00:00:00:00:0A'"),
            ["neighbour: 02:00:00:00:00:0a is this end's own MAC address; expected another one's"],
        ),
        (tunnel(SIX, "mtu: 1279"), ["1279 is less than IPv6 has; expected at least 1280"]),
        (tunnel(ENDS, "neighbour: '01:00:5e:00:00:01'"), ["neighbour"]),
    ],
)
def test_all_that_is_wrong_is_said_at_once(text: str, said: list[str]) -> None:
    with pytest.raises(SpecError) as failed:
        parse_spec(text, "s")
    for each in said:
        assert each in str(failed.value)
