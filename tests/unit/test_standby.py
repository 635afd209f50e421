"""Replicas in standby: what a spec says, what the switch gets, and who takes whose place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tailrace.errors import Mistake
from tailrace.node.operations import with_standby
from tailrace.plan.make import make_plan, scaled
from tailrace.plan.planned import Plan
from tailrace.resources.topology import Cpu
from tailrace.spec.load import parse_spec
from tailrace.switch.config import configuration


def plan_of(replicas: str) -> Plan:
    text = f"functions: {{fw: {{kind: skeleton, replicas: {replicas}}}}}\nchains: {{c: [tester.a, fw, tester.b]}}\n"
    return make_plan(parse_spec(text, "s"), cpus=[Cpu(number, 0, number) for number in range(8)], real_time=None)


def states(plan: Plan) -> dict[str, str]:
    return {each.name: each.state for each in plan.functions}


def test_the_switch_gives_it_no_new_flows() -> None:
    plan = plan_of("{1: active, 2: standby}")
    group = configuration(plan, Path("/run/tailrace/sockets"), {})["functions"]["fw"]["replicas"]
    assert {name: each["state"] for name, each in group.items()} == {"fw": "active", "fw-2": "draining"}


@pytest.mark.parametrize(
    ("replicas", "said"),
    [
        ("{1: standby}", "no replica is active; expected at least one"),
        ("{1: active, 2: warm}", "'warm' is no replica's state; expected active, draining or standby"),
    ],
)
def test_what_cannot_be_is_refused(replicas: str, said: str) -> None:
    with pytest.raises(Mistake, match=re.escape(said)):
        plan_of(replicas)


@pytest.mark.parametrize(
    ("replicas", "gone", "then", "whose"),
    [
        ("{1: active, 2: standby}", {"fw"}, ["standby", "active"], {"fw-2": "fw"}),
        ("{1: active, 2: standby}", {"fw-2"}, ["active", "standby"], {}),
        ("{1: active, 2: standby}", {"fw", "fw-2"}, ["active", "standby"], {}),
        ("{1: active, 2: active, 3: standby}", {"fw-2"}, ["active", "standby", "active"], {"fw-3": "fw-2"}),
        ("{1: active, 2: active, 3: standby}", {"fw", "fw-2"}, ["standby", "active", "active"], {"fw-3": "fw"}),
        ("{1: active, 2: standby, 3: standby}", {"fw", "fw-2"}, ["standby", "standby", "active"], {"fw-3": "fw"}),
        ("{1: active, 2: draining, 3: standby}", {"fw-2"}, ["active", "draining", "standby"], {}),
        ("{1: active, 2: draining}", {"fw"}, ["active", "draining"], {}),
    ],
)
def test_who_stands_by_takes_the_place_of_who_has_ended(
    replicas: str, gone: set[str], then: list[str], whose: dict[str, str]
) -> None:
    plan, took_over = with_standby(plan_of(replicas), gone)
    assert list(states(plan).values()) == then
    assert took_over == whose


def test_replicas_are_not_counted_where_some_stand_by() -> None:
    with pytest.raises(Mistake, match="fw: fw-2 is in standby; expected `replicas` in the spec to say which are"):
        scaled(plan_of("{1: active, 2: standby}"), "fw", 2, cpus=[Cpu(number, 0, number) for number in range(8)])
