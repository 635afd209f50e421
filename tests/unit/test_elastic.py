"""Functions with several CPUs, more and fewer of them: what a spec says, what is planned, what is done about it."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tailrace.bench import hotplug
from tailrace.bench.automatic import AutomaticPlan, AutomaticResult, Resize, limit, spec_of
from tailrace.bench.model import Beside
from tailrace.bench.plug import PlugPlan, PlugResult
from tailrace.errors import Fault, Mistake
from tailrace.functions.domain import differing
from tailrace.functions.program import threads_of
from tailrace.functions.vcpus import move, spread
from tailrace.node.difference import Change, Difference, difference
from tailrace.plan.levels import explained
from tailrace.plan.make import make_plan, resized
from tailrace.plan.planned import Plan
from tailrace.process import hypervisor
from tailrace.resources.place import Place, TooFewCpus
from tailrace.resources.topology import Cpu
from tailrace.spec.load import parse_spec
from tailrace.spec.model import Cpus, Function
from tailrace.switch.config import configuration

SOCKETS = Path("/run/tailrace/sockets")


def cpus(count: int) -> list[Cpu]:
    return [Cpu(number, 0, number) for number in range(count)]


def plan_of(first: str = "{kind: skeleton, cpus: {most: 4}}", count: int = 8, rest: str = "") -> Plan:
    text = f"functions: {{first: {first}{rest}}}\nchains: {{voice: [tester.a, first, tester.b]}}\n"
    return make_plan(parse_spec(text, "s"), cpus=cpus(count), real_time=None)


def to(old: Plan, new: Plan) -> Difference:
    running = configuration(old, SOCKETS, {})
    return difference(old, new, running=running, instances={}, alive=["first"], sockets=SOCKETS)


def test_a_number_says_both() -> None:
    assert Function(kind="skeleton", cpus=2).cpus == Cpus(start=2, most=2)
    assert Function(kind="skeleton", cpus={"most": 4}).cpus == Cpus(start=1, most=4)
    assert Function(kind="skeleton").cpus == Cpus(start=1, most=1)


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (
            "{kind: skeleton, cpus: 0}",
            "0 is no number of CPUs; expected 1 to 16 (64 of a machine, or with an image of your own), or {start: 1, ",
        ),
        ("{kind: skeleton, cpus: två}", "'två' is no number of CPUs; expected 1 to 16 (64 of a machine"),
        ("{kind: skeleton, cpus: 1.5}", "1.5 is no number of CPUs; expected 1 to 16 (64 of a machine"),
        ("{kind: skeleton, cpus: {most: 65}}", "65 is no number of CPUs; expected 1 to 16 (64 of a machine"),
        ("{kind: skeleton, cpus: {start: '2', most: 4}}", "'2' is no number of CPUs; expected 1 to 16"),
        ("{kind: skeleton, cpus: 65}", "65 is no number of CPUs"),
        ("{kind: skeleton, cpus: yes}", "'yes' is no number of CPUs"),
        ("{kind: skeleton, cpus: {start: 3, most: 2}}", "start: 3 is more than most, 2"),
        ("{kind: skeleton, cpus: {most: 17}}", "17 CPUs; each has a queue, and ports have 16"),
        ("{kind: skeleton, cpus: 9}", "9 CPUs are more than the 8 that may be used"),
        ("{kind: impair, cpus: 2}", "kind impair has one thread, because its plan numbers frames in the order"),
        (
            "{kind: skeleton, runs: container, cpus: {most: 2}}",
            "a container keeps the CPUs that it starts with; expected a number, or `runs: process`",
        ),
        (
            "{kind: skeleton, runs: machine, cpus: {most: 2}, latency: high}",
            "so it has all its CPUs; expected `latency: medium`, or `cpus: {stacked: true}`",
        ),
        (
            "{kind: skeleton, runs: machine, cpus: {most: 2}, latency: normal}",
            "with latency normal a machine has no CPU of its own; expected `latency: medium`",
        ),
        ("{kind: skeleton, cpus: {start: 2, most: 2, automatic: true}}", "automatic: start and most are both 2"),
        (
            "{kind: skeleton, runs: machine, interface: e1000e, cpus: {most: 2, automatic: true}}",
            "automatic: how busy a guest is that polls shows in rings that the switch serves, and those of e1000e it",
        ),
        (
            "{kind: skeleton, runs: container, cpus: {most: 2, automatic: true}}",
            "a container keeps the CPUs that it starts with",
        ),
        (
            "{kind: skeleton, cpus: {most: 2, automatic: true, polls: true}}",
            "automatic: polls: it is said of a machine with an image of your own; of a kind it is known",
        ),
        *(
            (
                f"{{kind: skeleton, cpus: {{most: 4, automatic: true, busy: {busy}}}}}",
                f"{busy} is out of range; expected 1% to 95%",
            )
            for busy in ("160%", "100%", "96%", "0%", "0.5%")
        ),
        (
            "{kind: skeleton, cpus: {most: 4, busy: 60%}}",
            "busy: it says when there are more CPUs with `auto",
        ),
        (
            "{kind: skeleton, cpus: {most: 4, stacked: true}}",
            "stacked: only virtual CPUs take turns, and a pro",
        ),
        (
            "{kind: skeleton, runs: container, cpus: {start: 2, most: 2, stacked: true}}",
            "stacked: only virtual CPUs take turns, and a container has none; expected none, or `runs: machine`",
        ),
        ("{kind: skeleton, cpus: {most: 2, polls: true}}", "polls: it says how the load is read with `automatic"),
        ("{runs: guest, cpus: 2}", "2 CPUs, which a guest has from whoever runs it"),
    ],
)
def test_what_cannot_be_is_refused(first: str, said: str) -> None:
    with pytest.raises(Mistake, match=re.escape(said)):
        plan_of(first)


def test_its_ports_have_a_queue_for_each_and_flows_are_spread() -> None:
    plan = plan_of()
    ports = configuration(plan, SOCKETS, {})["ports"]
    assert [(ports[name]["queues"], ports[name]["spread"]) for name in ("first.0", "first.1")] == [(4, True)] * 2
    assert "queues" not in ports["tester.a"]
    assert "spread" not in configuration(plan_of("skeleton"), SOCKETS, {})["ports"]["first.0"]
    assert plan.function("first").queues == (4, 4)
    assert plan.function("first").tables_mib == 3 * 12


@pytest.mark.parametrize(
    ("first", "load"),
    [
        ("kind: skeleton", "rounds"),
        ("kind: skeleton, runs: machine", "rings"),
        ("kind: skeleton, runs: machine, driver: linux", "time"),
    ],
)
def test_how_busy_it_is_is_read_where_that_shows(first: str, load: str) -> None:
    plan = plan_of(f"{{{first}, cpus: {{most: 2, automatic: true}}}}")
    assert plan.function("first").load == load
    ports = configuration(plan, SOCKETS, {})["ports"]
    assert [ports[name].get("unread", False) for name in ("first.0", "first.1", "tester.a")] == [
        load == "rings",
        load == "rings",
        False,
    ]
    by_hand = plan_of(f"{{{first}, cpus: {{most: 2}}}}")
    assert by_hand.function("first").load is None
    assert "unread" not in configuration(by_hand, SOCKETS, {})["ports"]["first.0"]


def test_it_grows_by_cpus_that_nobody_has_and_shrinks_to_its_first() -> None:
    plan = plan_of()
    own = plan.placement.functions["first"].cores
    others = {plan.placement.switch.core, plan.placement.tester.core if plan.placement.tester else None}
    more = resized(plan, "first", 3, cpus=cpus(8))
    at = more.placement.functions["first"]
    assert at.cores[0] == own[0] and len(set(at.cores)) == 3
    assert others.isdisjoint(at.cores) and set(at.cores) <= set(at.cpus)
    assert (more.placement.switch, more.placement.tester) == (plan.placement.switch, plan.placement.tester)
    again = resized(more, "first", 4, cpus=cpus(8))
    assert again.placement.functions["first"].cores[:3] == at.cores, "who has a CPU keeps it"
    fewer = resized(again, "first", 2, cpus=cpus(8))
    assert fewer.placement.functions["first"].cores == at.cores[:2]
    assert set(fewer.placement.functions["first"].cpus).isdisjoint(again.placement.functions["first"].cores[2:])
    assert resized(fewer, "first", 2, cpus=cpus(8)).identity == fewer.identity


def test_who_holds_the_cpus_is_said() -> None:
    plan = plan_of(count=3)
    assert not plan.placement.oversubscribed
    with pytest.raises(TooFewCpus) as refused:
        resized(plan, "first", 2, cpus=cpus(3))
    said = str(refused.value)
    assert said.startswith("first: 1 more CPU of its own; none are free; ")
    for who in ("the switch", "the tester", "first"):
        assert f"is held by {who}" in said


def test_where_cpus_are_shared_its_threads_share_too() -> None:
    plan = plan_of(count=2)
    assert plan.placement.oversubscribed
    more = resized(plan, "first", 3, cpus=cpus(2))
    assert more.placement.functions == plan.placement.functions
    assert threads_of(more.placement.functions["first"], 3) == [plan.placement.functions["first"].core] * 3


def test_threads_have_a_cpu_each_or_the_shared_ones_in_turn() -> None:
    assert threads_of(Place(2, (0, 2, 3), cores=(2, 3)), 2) == [2, 3]
    assert threads_of(Place(1, (0, 1), "interrupt"), 3) == [1, 0, 1]


@pytest.mark.parametrize(
    ("count", "first", "said"),
    [
        (5, "{kind: skeleton, cpus: {most: 4}}", "first: 5 CPUs are not possible; expected 1 to 4"),
        (0, "{kind: skeleton, cpus: {most: 4}}", "first: 0 CPUs are not possible; expected 1 to 4"),
        (2, "{kind: impair}", "first cannot have more or fewer CPUs: 2 CPUs; kind impair has one thread"),
        (2, "{runs: guest}", "first is somebody else's"),
        (2, "{kind: skeleton, runs: container}", "first cannot have more or fewer CPUs: a container keeps the CPUs"),
        (2, "{kind: skeleton, runs: machine}", "(`functions: {first: {cpus: {most: 2}}}` gives it the virtual CPUs"),
        (1, "{kind: skeleton, runs: machine, cpus: 2, latency: high}", "high no virtual CPU waits for another"),
        (1, "{kind: skeleton, runs: machine, cpus: 2, latency: normal}", "latency normal a machine has no CPU of its"),
    ],
)
def test_what_cannot_be_resized_is_refused(count: int, first: str, said: str) -> None:
    plan = plan_of(first)
    with pytest.raises(Mistake, match=re.escape(said)):
        resized(plan, "first", count, cpus=cpus(8))
    with pytest.raises(Mistake, match="'none' is no function that is up; there are: first"):
        resized(plan, "none", count, cpus=cpus(8))


def test_it_goes_on_with_other_cpus() -> None:
    plan = plan_of()
    more = resized(plan, "first", 2, cpus=cpus(8))
    at = more.placement.functions["first"].cores
    wanted = to(plan, more)
    assert (wanted.resize, wanted.start, wanted.stop, wanted.config_changes) == (("first",), (), (), False)
    assert wanted.changes == (Change("change", "process", "first", (f"CPUs: {at[0]} → {at[0]}, {at[1]}",)),)
    assert to(more, more).nothing
    assert to(more, plan).resize == ("first",), "the spec says how many it starts with"


def test_more_queues_take_a_new_instance() -> None:
    plan, other = plan_of(), plan_of("{kind: skeleton, cpus: {most: 5}}")
    wanted = to(plan, other)
    assert (wanted.resize, wanted.start) == ((), ("first",))
    assert "cpus.most: 4 → 5" in wanted.changes[0].detail


def test_one_that_moves_otherwise_is_replaced() -> None:
    plan = plan_of()
    at = plan.placement.functions["first"]
    placement = replace(plan.placement, functions={"first": replace(at, mode="interrupt")})
    assert to(plan, replace(plan, placement=placement)).start == ("first",)


def test_what_it_cost_is_a_document() -> None:
    traffic = Beside(1000.0, 100, 100, 0, 0, 0, 0, 0, 9.0)
    taken = {"plug": [float(each) for each in range(1, 101)], "unplug": [4.0], "restart": [200.0]}
    document = PlugResult(taken, traffic, 0, (), {}).document()
    assert document["bench"] == "plug" and document["lost"] == 0
    assert document["times_ms"]["plug"] == {"count": 100, "min": 1.0, "median": 50.5, "max": 100.0, "p99": 99.0}
    assert document["ratios"] == {"plug_over_restart": 0.2525, "unplug_over_restart": 0.02}


def test_a_machines_pool_is_compared_with_hot_plug() -> None:
    taken = {"plug": [10.0], "unplug": [5.0], "restart": [200.0]}
    taken |= {
        hotplug.POOL_PLUG: [2.0],
        hotplug.POOL_UNPLUG: [1.0],
        hotplug.HOT_PLUG: [40.0],
        hotplug.SETVCPUS: [8.0],
    }
    result = PlugResult(taken, Beside(1000.0, 100, 100, 0, 0, 0, 0, 0, 9.0), 0, (), {})
    document = result.document()
    assert document["ratios"]["pool_over_hotplug"] == 0.05
    assert document["ratios"]["pool_over_setvcpus"] == 0.25
    assert document["published_ms"] == {"plug": 40.0, "unplug": 20.0}
    assert document["times_ms"]["machine: hot-plug"]["p99"] == 40.0
    assert PlugPlan(10, machine=True).total_seconds > PlugPlan(10).total_seconds


@pytest.mark.parametrize(("times", "rate"), [(0, 1e3), (10_001, 1e3), (1, 99), (1, 2e6)])
def test_what_is_not_measured_is_refused(times: int, rate: float) -> None:
    with pytest.raises(Mistake, match="expected"):
        PlugPlan(times, rate)


def test_its_threads_are_said() -> None:
    plan = plan_of("{kind: skeleton, cpus: {start: 2, most: 4}}")
    at = plan.placement.functions["first"]
    cores = ", ".join(map(str, at.cores))
    assert any(each.endswith(f"on cores {cores}, poll mode, with 2 of 4 CPUs") for each in plan.lines())
    points = {
        each.what: each.is_set for each in explained(plan.function("first"), at, huge=True, cpus=[], machine=None)
    }
    assert points["threads"] == f"2 of 4, on CPU {cores}"


# --- by load -------------------------------------------------------------------------------------------------------

BY_LOAD = "{kind: skeleton, cpus: {start: 1, most: 4, automatic: true}}"


def test_one_that_goes_by_its_load_is_given_none_by_hand() -> None:
    plan = plan_of(BY_LOAD)
    assert resized(plan, "first", 3, itself=True, cpus=cpus(8)).function("first").cpus == 3
    with pytest.raises(Mistake, match=re.escape("first has its CPUs by its load; expected `automatic: false` in its")):
        resized(plan, "first", 3, cpus=cpus(8))


def test_each_replica_goes_by_its_own_load() -> None:
    plan = resized(plan_of(BY_LOAD[:-1] + ", replicas: 2}"), "first", 2, itself=True, cpus=cpus(8))
    assert {each.name: each.cpus for each in plan.functions} == {"first": 2, "first-2": 1}


@pytest.mark.parametrize(
    ("has", "first", "keeps"),
    [
        (3, BY_LOAD, 3),
        (3, BY_LOAD.replace("start: 1, most: 4", "start: 4, most: 5"), 4),
        (3, BY_LOAD.replace("most: 4", "most: 2"), 2),
        (3, "{kind: skeleton, cpus: {most: 4}}", 1),
    ],
)
def test_a_spec_leaves_it_the_cpus_that_its_load_gave_it(has: int, first: str, keeps: int) -> None:
    text = f"functions: {{first: {first}}}\nchains: {{voice: [tester.a, first, tester.b]}}\n"
    old = resized(plan_of(BY_LOAD), "first", has, itself=True, cpus=cpus(8))
    plan = make_plan(parse_spec(text, "s"), cpus=cpus(8), real_time=None, keep=old.placement, sized={"first": has})
    assert plan.function("first").cpus == keeps
    if first == BY_LOAD:
        assert to(old, plan).nothing


def test_that_it_goes_by_its_load_can_change_while_it_runs() -> None:
    wanted = to(plan_of(), plan_of(BY_LOAD))
    assert (wanted.start, wanted.stop, wanted.resize) == ((), (), ())
    assert wanted.changes == (Change("change", "process", "first", ("cpus.automatic: false → true",)),)
    wanted = to(plan_of(BY_LOAD), plan_of(BY_LOAD.replace("true}", "true, busy: 40%}")))
    assert wanted.changes == (Change("change", "process", "first", ("cpus.busy: 75% → 40%",)),)


def test_that_it_polls_can_be_said_while_it_runs(tmp_path: Path) -> None:
    (tmp_path / "own.qcow2").touch()

    def plan(polls: str) -> Plan:
        first = f"{{runs: machine, image: own.qcow2, cpus: {{most: 2, automatic: true, polls: {polls}}}}}"
        text = f"functions: {{first: {first}}}\nchains: {{voice: [tester.a, first, tester.b]}}\n"
        return make_plan(parse_spec(text, "s"), cpus=cpus(8), real_time=None, folder=tmp_path)

    for before, then in (("false", "true"), ("true", "false")):
        wanted = to(plan(before), plan(then))
        assert (wanted.start, wanted.stop, wanted.resize) == ((), (), ())
        assert [(each.what, each.name, each.detail) for each in wanted.changes] == [
            ("process", "first", (f"cpus.polls: {before} → {then}",)),
            *(("port", f"first.{side}", (f"unread: {before.title()} → {then.title()}",)) for side in (0, 1)),
        ]
    assert to(plan("true"), plan("true")).nothing


def test_a_plan_as_data_has_all_of_it() -> None:
    """It is made of each part's own fields, without asdict(), which copies everything."""
    plan = plan_of()
    data = json.loads(json.dumps(asdict(replace(plan, beside=None))))
    del data["beside"]
    assert plan.as_data() == data
    assert Plan.read(plan.as_data()).identity == plan.identity


# --- machines ------------------------------------------------------------------------------------------------------

IN_A_MACHINE = "{kind: skeleton, runs: machine, cpus: {most: 3}}"


@pytest.mark.parametrize(
    ("own", "vcpus", "on"),
    [
        ([5], 1, [5]),
        ([5], 3, [5, 5, 5]),
        ([5, 6], 2, [6, 5]),
        ([5, 6], 4, [6, 6, 6, 5]),
        ([5, 6, 7], 4, [6, 7, 6, 5]),
        ([5, 6, 7, 8], 4, [6, 7, 8, 5]),
    ],
)
def test_the_virtual_cpu_that_polls_is_alone_as_soon_as_there_are_two(
    own: list[int], vcpus: int, on: list[int]
) -> None:
    assert spread(own, vcpus) == on


def test_a_machine_has_all_virtual_cpus_from_its_start_and_they_move() -> None:
    plan = plan_of(IN_A_MACHINE)
    function, at = plan.function("first"), plan.placement.functions["first"]
    assert (function.elastic, function.queues, function.tables_mib) == (True, (1, 1), 0)
    assert function.runs_on(at) == [at.core] * 3
    more = resized(plan, "first", 3, cpus=cpus(8))
    now = more.placement.functions["first"]
    assert now.cores[0] == at.core and sorted(more.function("first").runs_on(now)) == sorted(now.cores)
    wanted = to(plan, more)
    assert (wanted.resize, wanted.start, wanted.stop, wanted.config_changes) == (("first",), (), (), False)
    assert wanted.changes[0].detail[0].startswith(f"CPUs: {at.core}, {at.core}, {at.core} → ")
    fewer = resized(more, "first", 2, cpus=cpus(8))
    assert set(fewer.function("first").runs_on(fewer.placement.functions["first"])) == set(now.cores[:2])
    points = {
        each.what: each.is_set for each in explained(more.function("first"), now, huge=True, cpus=[], machine=None)
    }
    assert points["CPUs"].startswith("3 for 3 virtual CPUs, which are on CPU ")


def test_who_holds_the_cpus_that_a_machine_lacks_is_said() -> None:
    with pytest.raises(TooFewCpus, match=r"first: 1 more CPU of its own; none are free; .*is held by first"):
        resized(plan_of(IN_A_MACHINE, count=3), "first", 2, cpus=cpus(3))


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("{kind: firewall, runs: machine, cpus: 2}", "of its 2 virtual CPUs one polls, .* the other one is its own"),
        ("{kind: skeleton, runs: machine, cpus: {most: 4}}", "of its 4 virtual CPUs one polls, .* the other 3 are its"),
        ("{kind: skeleton, runs: machine}", None),
        ("{kind: firewall, cpus: 2}", None),
        ("{kind: skeleton, runs: machine, driver: linux, cpus: 2}", None),
    ],
)
def test_a_note_says_which_cpus_of_a_machine_forward(first: str, said: str | None) -> None:
    found = [each for each in plan_of(first).notes if each.startswith("first: ")]
    assert len(found) == (said is not None)
    assert said is None or re.match(f"first: {said}", found[0])


def test_one_of_latency_high_is_stacked_where_it_says_so() -> None:
    high = "{kind: skeleton, runs: machine, latency: high, cpus: {most: 2, stacked: true}}"
    plan = plan_of(high)
    assert resized(plan, "first", 2, cpus=cpus(8)).function("first").cpus == 2
    alone = plan_of("{kind: skeleton, runs: machine, latency: high, cpus: 2}")
    assert to(alone, plan_of(high.replace("most", "start: 2, most"))).start == ("first",), "its scheduling is another"


def test_a_machine_whose_cpus_are_shared_stays_where_it_is() -> None:
    plan = plan_of(IN_A_MACHINE, count=2)
    more = resized(plan, "first", 3, cpus=cpus(2))
    assert more.placement.functions == plan.placement.functions
    assert to(plan, more).resize == ("first",), "it is on record for when there are more"


class Domain:
    """One of libvirt's that runs, as far as it is asked here."""

    def __init__(self, pins: list[tuple[bool, ...]]) -> None:
        self.pins = pins
        self.moved: list[int] = []

    def vcpuPinInfo(self) -> list[tuple[bool, ...]]:
        return self.pins

    def pinVcpuFlags(self, vcpu: int, on: tuple[bool, ...], flags: int) -> None:
        assert flags == 1, "it runs, and is not kept"
        self.moved.append(vcpu)
        self.pins[vcpu] = on


def test_libvirt_moves_those_that_are_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    domain = Domain([(True, False), (True, True), (False, True)])
    names: list[str] = []

    def named(name: str) -> Domain:
        names.append(name)
        return domain

    binding = SimpleNamespace(VIR_DOMAIN_AFFECT_LIVE=1, libvirtError=RuntimeError)
    monkeypatch.setattr(hypervisor, "library", lambda: binding)
    monkeypatch.setattr(hypervisor, "connect", lambda: SimpleNamespace(lookupByName=named))
    xml = "<domain><cputune><vcpupin vcpu='0' cpuset='0'/><vcpupin vcpu='2' cpuset='9'/></cputune></domain>"
    file = tmp_path / "first.xml"
    file.write_text(xml)
    used = move("tailrace-first", [0, 1, 1], file)
    assert (names, domain.moved, used.vcpus_moved) == (["tailrace-first"], [1], 1)
    assert domain.pins == [(True, False), (False, True), (False, True)]
    assert differing(xml, file.read_text()) == ["cputune/vcpupin"]
    assert 'cpuset="1"' in file.read_text(), "what it is compared with says so from then on"
    assert move("tailrace-first", [0, 1, 1], tmp_path / "gone").vcpus_moved == 0


def test_a_function_by_its_load_in_a_document() -> None:
    traffic = Beside(1000.0, 100, 100, 0, 0, 0, 0, 0, 9.0)
    changes = [Resize(at, cpus) for at, cpus in ((0.1, 2), (1.5, 1), (2.1, 2), (62.5, 1), (64.1, 2), (190.0, 1))]
    taken = {"take": [20.0, 60.0], "give back": [500.0, 450.0]}
    result = AutomaticResult(taken, 0.1, 0.05, 200.0, changes, traffic, (), {})
    document = result.document()
    assert document["within"] == {"take": 1, "give back": 2}
    assert document["wave"]["flaps"] == 2, "the last one was not wanted again"
    assert document["wave"]["most_in_a_minute"] == 1
    assert document["times_ms"]["take"]["p99"] == 60.0
    flapping = replace(result, changes=[Resize(number, 1 + number % 2) for number in range(8)])
    assert (flapping.flaps, flapping.most_in_a_minute) == (4, 4)
    assert replace(result, changes=[], wave=0.0).document()["wave"]["most_in_a_minute"] == 0
    assert AutomaticPlan(10).total_seconds > AutomaticPlan(10, wave=2.0).total_seconds


def test_how_busy_one_cpu_is_is_measured_on_one() -> None:
    probe, burst = (parse_spec(spec_of(name, busy), "s").functions[name] for name, busy in (("a", None), ("b", 0.3)))
    assert probe.cpus == Cpus(start=1, most=2)
    assert burst.cpus == Cpus(start=1, most=2, automatic=True, busy="30%")


def test_a_burst_is_above_the_limit() -> None:
    assert limit(0.101) == 0.05 and limit(3.0) == 0.75
    with pytest.raises(Fault, match=r"busy for 1\.9% of its CPU's time; expected at least 2%: offer more"):
        limit(0.019)


@pytest.mark.parametrize(("times", "rate", "wave"), [(0, 1e3, 0), (1001, 1e3, 0), (1, 99, 0), (1, 2e7, 0), (1, 1e3, 1)])
def test_bursts_that_are_not_measured_are_refused(times: int, rate: float, wave: float) -> None:
    with pytest.raises(Mistake, match="expected"):
        AutomaticPlan(times, rate, wave)
