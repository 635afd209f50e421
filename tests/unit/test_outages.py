"""How often functions were out: each outage once, by what chains did, with the frames that were lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tailrace.cli.operate import outage_words
from tailrace.fabric.base import PortState
from tailrace.node.outages import count_outages, keep_lost
from tailrace.plan.make import make_plan
from tailrace.resources.topology import Cpu
from tailrace.spec.load import parse_spec
from tailrace.state.record import Outages, Record, hold, peek

SPEC = """\
functions:
  fw: {kind: skeleton, replicas: 2}
  nat: {kind: skeleton, on_failure: bypass}
  lb: {kind: skeleton, on_failure: block}
chains: {v: [tester.a, fw, nat, lb, tester.b]}
"""
PLAN = make_plan(parse_spec(SPEC, "s"), cpus=[Cpu(number, core=number) for number in range(8)], real_time=None)


def test_each_outage_is_counted_once_by_what_its_chain_does() -> None:
    record = Record(boot="", plan=PLAN.as_data())
    assert not count_outages(record, PLAN.functions, ["fw"], []), "its other replica is there"
    assert not count_outages(record, PLAN.functions, ["nat"], []), "nothing leads past it yet"
    assert count_outages(record, PLAN.functions, ["fw", "fw-2", "nat", "lb"], ["nat"])
    assert not count_outages(record, PLAN.functions, ["fw", "fw-2", "nat", "lb"], ["nat"])
    assert not count_outages(record, PLAN.functions, ["lb"], [])
    record.instances["lb"] = record.instances["fw-2"] = 2
    assert count_outages(record, PLAN.functions, ["lb", "fw", "fw-2"], [])
    found = {name: each.counts for name, each in record.outages.items()}
    none = {"bypass": 0, "block": 0, "drop": 0, "lost": 0}
    assert found == {"fw": {**none, "drop": 2}, "nat": {**none, "bypass": 1}, "lb": {**none, "block": 2}}


def test_what_ports_have_lost_is_kept_when_they_go(tmp_path: Path) -> None:
    record = Record(boot="", plan=PLAN.as_data(), instances={"fw-2": 3})
    ports = [
        PortState("fw-2@3.0", "waiting", counters={"drop_receiver_down": 7, "drop_rate": 1}),
        PortState("fw-2@3.1", "waiting", counters={"drop_receiver_down": 5}),
        PortState("fw.0", "up", counters={"drop_receiver_down": 3}),
        PortState("tester.a", "up", counters={"drop_receiver_down": 9}),
    ]
    assert not keep_lost(record, ports, ["nat"])
    assert keep_lost(record, ports, ["fw-2@3"])
    assert record.outages == {"fw": Outages(lost=12)}
    assert count_outages(record, PLAN.functions, ["fw", "fw-2"], [])
    with hold(tmp_path / "state") as state:
        state.record.outages = record.outages
        state.save()
        assert peek(state.folder).outages == {"fw": Outages(drop=1, lost=12, last=("fw", "fw-2@3"))}


def test_outages_in_words() -> None:
    assert outage_words({}) == outage_words(Outages().counts) == ""
    assert outage_words(Outages(bypass=1).counts) == "out 1 time (bypassed 1)"
    assert outage_words(replace(Outages(block=1, drop=2), lost=3).counts) == (
        "out 3 times (blocked 1, dropped 2), 3 frames lost"
    )
