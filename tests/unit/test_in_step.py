"""A function in standby is kept in step: which pairs there are, what is asked of the active one, and what becomes of it
where one of them fails."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_handover import NEW, OLD, instance

from tailrace.cli.operate import in_step_words
from tailrace.errors import TailraceError
from tailrace.node import standby
from tailrace.node.standby import InStep, Pair, Standbys, pairs
from tailrace.plan.make import make_plan
from tailrace.plan.planned import Plan
from tailrace.process.process import ProcessId, identify
from tailrace.resources.topology import Cpu
from tailrace.spec.load import parse_spec
from tailrace.state.record import Process, Record, State

Params = dict[str, Any]


def itself() -> ProcessId:
    found = identify(os.getpid())
    assert found is not None
    return found


@pytest.fixture(name="state")
def fixture_state(tmp_path: Path) -> State:
    for each in (OLD, NEW):
        (tmp_path / "sockets" / f"{each.name}.0").mkdir(parents=True)
    return State(tmp_path, Record("boot"))


# --- which ---------------------------------------------------------------------------------------------------------


def plan_of(kind: str, replicas: str, more: str = "") -> Plan:
    text = f"functions: {{fw: {{kind: {kind}, replicas: {replicas}{more}}}}}\nchains: {{c: [tester.a, fw, tester.b]}}\n"
    return make_plan(parse_spec(text, "s"), cpus=[Cpu(number, 0, number) for number in range(16)], real_time=None)


def paired(plan: Plan, **instances: int) -> set[tuple[str, str]]:
    own = itself()
    names = [name if instances.get(name, 1) == 1 else f"{name}@{instances[name]}" for name in ("fw", "fw-2", "fw-3")]
    things = [Process(name, own.pid, own.start, runtime="process") for name in names]
    record = Record("boot", things=[*things], plan=plan.as_data(), complete=True, instances=instances)
    return {(each.active.name, each.standby.name) for each in pairs(record)}


@pytest.mark.parametrize(
    ("kind", "replicas", "found"),
    [
        ("firewall", "{1: active, 2: standby}", {("fw", "fw-2")}),
        ("firewall", "{1: active, 2: active, 3: standby}", {("fw", "fw-3"), ("fw-2", "fw-3")}),
        ("firewall", "{1: active, 2: standby, 3: standby}", {("fw", "fw-2"), ("fw", "fw-3")}),
        ("firewall", "{1: active, 2: draining}", set()),
        ("skeleton", "{1: active, 2: standby}", set()),
    ],
)
def test_who_stands_by_gets_the_connections_of_all_that_are_active(
    kind: str, replicas: str, found: set[tuple[str, str]]
) -> None:
    assert paired(plan_of(kind, replicas)) == found


def test_another_instance_is_another_pair() -> None:
    assert paired(plan_of("firewall", "{1: active, 2: standby}"), fw=2) == {("fw@2", "fw-2")}


def test_what_was_seen_is_handed_over_again_before_it_is_forgotten() -> None:
    own = itself()
    things = [Process(name, own.pid, own.start, runtime="process") for name in ("fw", "fw-2")]

    def refresh(more: str) -> float:
        plan = plan_of("firewall", "{1: active, 2: standby}", more)
        return pairs(Record("boot", things=[*things], plan=plan.as_data(), complete=True))[0].refresh

    assert refresh(", firewall: {timeouts: {tcp_closed: 60s}}") == standby.REFRESH
    assert refresh(", firewall: {timeouts: {two_way: 6s}}") == 2


# --- what is handed over -------------------------------------------------------------------------------------------


class Active:
    """An instance that has two pages, of which the second one is short."""

    def __init__(self) -> None:
        self.tick = 100

    def __call__(self, _method: str, params: Params) -> object:
        self.tick += 1
        return {"connections": "aa", "next": 5 if params["from"] == 1 else 0, "tick": self.tick}


def taken(_method: str, params: Params) -> object:
    return {"taken": 1} if params["connections"] else {}


def test_all_first_then_changes_and_a_page_of_what_was_seen(state: State) -> None:
    kept = InStep(state, Pair(OLD, NEW, refresh=0))
    with instance(state, OLD, Active()) as asked, instance(state, NEW, taken) as told:
        for _ in range(4):
            kept.round()
    changed = [{"from": entry, "changed": tick} for tick in (101, 103, 106) for entry in (1, 5)]
    seen = [{"from": 1, "since": 101}, {"from": 5, "since": 101}, {"from": 1, "since": 105}]
    rounds = [
        [{"from": 1}, {"from": 5}],
        *([*changed[at : at + 2], seen[at // 2]] for at in (0, 2, 4)),
    ]
    assert [each for _, each in asked] == [params for each in rounds for params in each]
    assert sum(each["connections"] == "" for _, each in told) == 4, "each round ends with an empty page"
    assert kept.counts == {"taken": 11} and kept.known_at is not None and not kept.lost


def test_what_was_only_seen_waits_until_it_is_due(state: State) -> None:
    kept = InStep(state, Pair(OLD, NEW, refresh=3600))
    with (
        instance(state, OLD, lambda *_: {"connections": "", "next": 0, "tick": 7}) as asked,
        instance(state, NEW, lambda *_: {"unfit": 2}),
    ):
        for _ in range(3):
            kept.round()
    assert [each for _, each in asked] == [{"from": 1}, {"from": 1, "changed": 7}, {"from": 1, "changed": 7}]


def test_it_rests_after_each_page_and_ends_there(state: State) -> None:
    rests: list[float] = []

    def wait(seconds: float) -> bool:
        rests.append(seconds)
        return len(rests) == 3

    kept = InStep(state, Pair(OLD, NEW), wait)
    with instance(state, OLD, Active()) as asked, instance(state, NEW, taken):
        kept.round()
        with pytest.raises(TailraceError, match="not kept in step any more"):
            kept.round()
    assert len(asked) == len(rests) == 3 and all(seconds > 0 for seconds in rests)


def test_what_a_standby_makes_up_is_not_kept(state: State) -> None:
    kept = InStep(state, Pair(OLD, NEW, refresh=0))
    told = iter(range(1000))
    with instance(state, OLD, Active()), instance(state, NEW, lambda *_: {"unfit": 1, f"made-up-{next(told)}": 1}):
        kept.round()
        assert kept.counts == {"unfit": 2}
        for _ in range(2):
            kept.round()
        assert kept.lost == {"unfit": 4}, "of this look, and of what has changed since it began"


def test_who_does_not_come_to_an_end_is_left(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "_ALL_SECONDS", 0.0)
    endless: Callable[[str, Params], object] = lambda _, params: {  # noqa: E731
        "connections": "",
        "next": params["from"] + 1,
        "tick": 1,
    }
    with instance(state, OLD, endless), pytest.raises(TailraceError, match="fw does not come to an end"):
        InStep(state, Pair(OLD, NEW)).round()


# --- the threads ---------------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(standby, "PERIOD", 0.001)
    monkeypatch.setattr(standby, "_AGAIN_SECONDS", 0.001)
    yield


@pytest.mark.usefixtures("quick")
def test_it_begins_anew_after_a_failure_and_says_so_once(state: State) -> None:
    events: queue.Queue[tuple[str, str, Params]] = queue.Queue()
    own = itself()
    old, new = (replace(each, pid=own.pid, start=own.start) for each in (OLD, NEW))
    standbys = Standbys(state, lambda *event: events.put(event))
    lies = True
    with instance(state, OLD, lambda *args: [] if lies else Active()(*args)) as asked, instance(state, NEW, taken):
        standbys.watch([Pair(old, new)])
        assert events.get(timeout=60) == (
            "function.behind",
            "fw",
            {"of": "fw", "why": "its answer is no page of connections"},
        )
        (said,) = standbys.as_data()["fw"]
        assert said["behind_ms"] is None and said["why"] == "its answer is no page of connections"
        lies = False
        kind, _, details = events.get(timeout=60)
        assert kind == "function.in_step" and details["connections"] == 2
        (keeper,) = standbys._keepers.values()
        standbys.watch([])
        keeper.thread.join(60)
        assert not keeper.thread.is_alive() and standbys.as_data() == {}
    assert events.empty()
    assert all("changed" not in each for _, each in asked[:2]), "all that there is, each time"


@pytest.mark.usefixtures("quick")
def test_who_fails_once_may_be_about_to_end(state: State) -> None:
    events: queue.Queue[tuple[str, str, Params]] = queue.Queue()
    own = itself()
    old, new = (replace(each, pid=own.pid, start=own.start) for each in (OLD, NEW))
    standbys = Standbys(state, lambda *event: events.put(event))
    answers: list[object] = [[]]
    with instance(state, OLD, lambda *args: answers.pop() if answers else Active()(*args)), instance(state, NEW, taken):
        standbys.watch([Pair(old, new)])
        assert events.get(timeout=60)[0] == "function.in_step"
        standbys.watch([])
    assert not answers


def test_words() -> None:
    one = {"of": "fw", "behind_ms": 120.0, "not_taken": {"unfit": 3}, "why": None}
    other = {"of": "fw-3", "behind_ms": None, "not_taken": {}, "why": "no answer"}
    assert list(in_step_words([one, other])) == [
        "0.1 s behind of fw (not taken: 3 unfit)",
        "not all connections yet of fw-3: no answer",
    ]
