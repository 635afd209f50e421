"""The kinds of traffic of `tailrace bench hop`, without any switch: what is declared, and what makes a run invalid."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from tailrace.bench import hop, requests
from tailrace.bench.circulate import DEVICES, PROCESSES, Account, Guests, Run, Wiring, disagreement
from tailrace.bench.floor import FLOOR, GUESTS, WAYS, WAYS_RATIOS, FloorPlan
from tailrace.bench.hop import ALL, HopPlan, KindsPlan
from tailrace.bench.model import OVS_DPDK, TAILRACE, Comparison, Kinds, Pair, Sample
from tailrace.bench.table import kinds_table
from tailrace.bench.traffic import KINDS, RATIOS
from tailrace.errors import Fault, Mistake
from tailrace.fabric.ovs_dpdk import parse_flow_packets, parse_layouts
from tailrace.measure.progress import Silent

WIRINGS: dict[str, Wiring] = {
    name: kind.measure.args[0]  # type: ignore[attr-defined]
    for name, kind in KINDS.items()
    if name not in ("plain", "iperf")
}


@pytest.mark.parametrize("name", WIRINGS)
def test_what_arrives_is_sent_again_and_no_ring_has_too_little_room(name: str) -> None:
    guests = WIRINGS[name].guests
    for sender in set(guests.back) - {None}:
        assert sender in range(len(guests.back))
        assert guests.back[cast(int, sender)] != sender
    room = 256 if "queue_size=256" in guests.rings else 1024
    assert guests.frames <= room, "all may be on their way to one guest"


@pytest.mark.parametrize("name", WIRINGS)
def test_both_switches_know_every_port(name: str) -> None:
    wiring = WIRINGS[name]
    ports = {port.name for port in wiring.guests.ports}
    text = json.dumps(wiring.config)
    assert all(f'"{port}"' in text for port in ports)
    rules = " ".join([*wiring.rules.flows, *wiring.rules.groups])
    numbers = {f"output:{number}" for number in range(1, len(ports) + 1)}
    reached = {word for word in rules.replace(",", " ").replace("=", " ").split() if word.startswith("output:")}
    assert reached <= numbers
    assert "NORMAL" in rules or len(reached) >= len(ports) - 2  # nothing arrives where flows to replicas begin


def test_guests_are_told_what_they_send() -> None:
    guests = Guests((1, 0), unfinished=8, tags=(0, 100), last="veth")
    (line,) = guests.lines(["vhost-server:/run/p0", "if:guest0"], 128)
    assert line[:4] == ["--port", "vdev:net_virtio_user0,path=/run/p0,queue_size=1024,server=1", "--port", "if:guest0"]
    words = dict(zip(line[4::2], line[5::2], strict=True))
    assert (words["--back"], words["--frame"], words["--unfinished"], words["--tags"]) == ("1,0", "128", "8", "0,100")
    assert "--rewrite" not in line
    (line,) = Guests((None, 0), frame="imix", rewrite=True).lines(["if:a", "if:b"], 64)
    assert line[4:8] == ["--back", "-,0", "--frame", "imix"]
    assert "--rewrite" in line


def test_the_floors_guests_do_the_same_with_a_frame_as_the_hops() -> None:
    assert [side.name for side in FloorPlan(guest="forward").sides] == [TAILRACE, FLOOR]
    plan = FloorPlan(guest="rewrite", ways=True)
    assert [side.name for side in plan.sides] == [TAILRACE, FLOOR, *WAYS]
    assert {ratio.side for ratio in WAYS_RATIOS} == set(WAYS)
    assert {kind for kind, wiring in WIRINGS.items() if wiring.guests.rewrite} == {GUESTS["rewrite"]}
    with pytest.raises(Mistake, match="--guest read: expected forward or rewrite"):
        FloorPlan(guest="read")


def test_more_guests_than_dpdk_has_room_for_are_played_by_two_processes() -> None:
    guests = WIRINGS["many"].guests
    lines = guests.lines([f"vhost:/run/{port.name}" for port in guests.ports], 64)
    assert len(lines) == PROCESSES
    assert [line.count("--port") for line in lines] == [DEVICES, DEVICES]
    assert "path=/run/p32,queue_size=256" in lines[1][1]
    assert {line[line.index("--back") + 1] for line in lines} == {",".join(str(n ^ 1) for n in range(DEVICES))}
    both = ACCOUNT + ACCOUNT
    assert (both.sent, both.ports) == (2 * ACCOUNT.sent, (40, 40, 40, 40))


ACCOUNT = Account(
    rehearsed=20, sent=80, chained=10, received=80, bytes=80 * 350, unfinished=10, stray=0, right=8, wrong=0,
    ports=(40, 40),
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "packets", "words"),
    [
        ({}, 100, None),
        ({"received": 79}, 100, "sent 80 frames and received 79"),
        ({"right": 7}, 100, "of 8 frames 7 were whole"),
        ({"wrong": 1}, 100, "and 1 were not"),
        ({"stray": 2}, 100, "2 had strayed"),
        ({}, 101, "counted 101 packets"),
    ],
)
def test_an_account_without_a_frame_is_refused(changes: dict[str, Any], packets: int, words: str | None) -> None:
    found = disagreement(replace(ACCOUNT, **changes), 8, packets)
    assert found is None if words is None else words in str(found)


def problem(
    kind: str, packets: Sequence[int] = (), layouts: Sequence[str] = ("split", "split"), **changes: Any
) -> str | None:
    """What is wrong with a run of a kind that has shown this, None if nothing is."""
    switch = cast(Any, SimpleNamespace(rule_packets=lambda: packets))
    run = Run(replace(ACCOUNT, **changes), layouts, switch)
    return next(filter(None, (shown(run) for shown in WIRINGS[kind].shows)), None)


def test_a_figure_is_of_its_kind_or_there_is_none() -> None:
    assert problem("checksum", unfinished=80) is None
    assert problem("checksum", unfinished=79) is not None
    assert problem("mixed") is None
    assert problem("mixed", unfinished=0) is not None
    assert problem("mixed", chained=0) is not None
    assert "64.0 B" in str(problem("mixed", bytes=80 * 60))
    assert problem("packed", layouts=["packed", "packed"]) is None
    assert problem("packed", layouts=["packed", "split"]) is not None
    assert problem("packed", layouts=[]) is not None
    assert problem("match", packets=[5, 9] * 500) is None
    assert problem("match", packets=[5, 11] * 500) is not None
    assert problem("match", packets=[9000]) == "there are 1 rules"
    assert problem("pin", ports=(0, 20, 20, 21, 19, 0)) is None
    assert problem("pin", ports=(0, 40, 0, 21, 19, 0)) is not None
    assert problem("many", ports=(1,) * 64) is None
    assert problem("many", ports=(1,) * 63 + (0,)) is not None


def test_open_vswitch_says_how_often_a_rule_was_used_and_which_rings_a_guest_has() -> None:
    text = " cookie=0x0, duration=1s, table=0, n_packets=12, n_bytes=9, in_port=1 actions=output:2\n"
    assert parse_flow_packets(text + text.replace("12", "7")) == [12, 7]
    guest = 'status : {features="0x0000000510208182", mode=server, num_of_vrings="2"}\n'
    device = 'status : {driver_name=net_af_packet, if_type="6"}\n'
    assert parse_layouts(guest + device + guest.replace("0x0000000510", "0x0000000110")) == ["packed", "split"]


def test_requests_a_second() -> None:
    assert requests.rate('{"requests": 30000, "seconds": 2.0}') == 15.0
    for text in ("", "{}", '{"requests": 1, "seconds": 0}', '{"requests": 0, "seconds": 2.0}'):
        with pytest.raises(Fault, match="not answered"):
            requests.rate(text)


def test_the_kinds_that_are_asked_for() -> None:
    plan = HopPlan(frame=128, pairs=2)
    assert [each.traffic for each in KindsPlan.of(ALL, plan).plans] == list(KINDS)
    assert {each.traffic for each in KindsPlan.of(f"pin,{ALL}", plan).plans} == set(KINDS)
    two = KindsPlan.of("pin,vlan,pin", plan)
    assert {each.frame for each in KindsPlan.of("pin,vlan", plan, 512).plans} == {512}
    with pytest.raises(Mistake, match="--frame 64: expected none with --traffic mixed,iperf"):
        KindsPlan.of(ALL, plan, 64)
    assert [(each.traffic, each.frame, each.pairs) for each in two.plans] == [("pin", 128, 2), ("vlan", 128, 2)]
    assert two.total_seconds == sum(each.total_seconds for each in two.plans)
    with pytest.raises(Mistake, match="--traffic udp: expected all or some of plain, checksum"):
        KindsPlan.of("plain,udp", plan)


def found(traffic: str, *cycles: tuple[float, float]) -> Comparison:
    """A comparison by the cycles of each pair."""
    pairs = [
        Pair(
            {
                name: [Sample({"cycles_per_packet": value, "mpps": 1e3 / value}, (60.0, 60.0))]
                for name, value in ((TAILRACE, ours), (OVS_DPDK, theirs))
            }
        )
        for ours, theirs in cycles
    ]
    machine = {"cpu": "CPU", "switch_core": 1, "load_core": 0, "versions": {"dpdk": "22.11"}}
    return Comparison("hop", {"traffic": traffic, "frame": 64}, pairs, RATIOS, machine, len(pairs))


def test_of_one_kind_the_document_is_that_of_a_comparison_and_of_several_there_is_one_for_each() -> None:
    pin = found("pin", (50, 200))
    assert Kinds({"pin": pin}, {}).document() == pin.document()
    assert pin.document()["traffic"] == "pin"
    document = Kinds({"pin": pin, "vlan": found("vlan", (40, 200))}, {"many": Fault("no")}).document()
    assert [(each["traffic"], each["ratios"]["cycles"]) for each in document["kinds"]] == [("pin", 4.0), ("vlan", 5.0)]
    assert document["failed"] == {"many": "no"}


def test_one_table_has_the_least_and_the_most_ratio_of_every_kind() -> None:
    result = Kinds({"pin": found("pin", (50, 200), (40, 200), (50, 300))}, {"many": Fault("no room")})
    console = Console(width=120, file=StringIO())
    console.print(kinds_table(result, "By kind", {"pin": KINDS["pin"].columns}, []))
    assert isinstance(console.file, StringIO)
    text = " ".join(console.file.getvalue().split())
    assert "pin cycles 50.0 200.0 5.00 [4.00–6.00] 3 60 near" in text
    assert "many failed: no room" in text


def test_a_kind_that_fails_does_not_cost_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(plan: HopPlan, *_: object) -> Comparison:
        if plan.traffic == "pin":
            raise Fault("no")
        return found(plan.traffic, (50, 200))

    monkeypatch.setattr(hop, "run", run)
    result = hop.run_kinds(KindsPlan.of("bridge,pin,vlan", HopPlan()), tmp_path, Silent())
    assert list(result.measured) == ["bridge", "vlan"]
    assert str(result.error) == "no"
    with pytest.raises(Fault, match="no"):
        hop.run_kinds(KindsPlan.of("pin", HopPlan()), tmp_path, Silent())


def test_the_kinds_before_ctrl_c_are_the_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(plan: HopPlan, *_: object) -> Comparison:
        if plan.traffic == "pin":
            raise KeyboardInterrupt
        return found(plan.traffic, (50, 200))

    monkeypatch.setattr(hop, "run", run)
    result = hop.run_kinds(KindsPlan.of("bridge,pin,vlan", HopPlan()), tmp_path, Silent())
    assert list(result.measured) == ["bridge"]
    assert isinstance(result.error, KeyboardInterrupt)
    assert result.document()["failed"] == {"pin": "interrupted by Ctrl-C"}
    with pytest.raises(KeyboardInterrupt):
        hop.run_kinds(KindsPlan.of("pin,vlan", HopPlan()), tmp_path, Silent())
