"""From a plan to the switch's configuration, and what lies between what is up and what is asked for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import Mistake
from tailrace.node.difference import Change, Difference, config_changes, difference
from tailrace.plan.make import make_plan
from tailrace.plan.planned import Plan
from tailrace.resources.place import keep_places, place
from tailrace.resources.topology import Cpu
from tailrace.spec.load import _check, load_located, parse_spec
from tailrace.spec.position import parse_document
from tailrace.spec.source import SpecError
from tailrace.state.record import Granted
from tailrace.switch.config import Config, configuration, function_name, instance_name

SOCKETS = Path("/run/t/sockets")
ONE = "functions: {first: skeleton, second: skeleton}\nchains: {voice: [tester.a, first, tester.b]}\n"
TWO = ONE.replace("first, tester.b", "first, second, tester.b")


def cpus(count: int) -> list[Cpu]:
    return [Cpu(number, 0, number) for number in range(count)]


def plan_of(text: str, old: Plan | None = None, cores: int = 2) -> Plan:
    keep = old.placement if old else None
    return make_plan(parse_spec(text, "s"), cpus=cpus(cores), real_time=None, memory=8 << 30, keep=keep)


class Up:
    """A node as the pure functions see it: a plan, the switch's configuration, and which processes run."""

    def __init__(self, text: str, cores: int = 2) -> None:
        self.plan = plan_of(text, cores=cores)
        self.cores = cores
        self.instances: dict[str, int] = {}
        self.config = configuration(self.plan, SOCKETS, {})
        self.alive = {each.name for each in self.plan.started}
        self.granted = Granted(self.plan.capabilities, self.plan.groups)

    def to(self, text: str, anew: Collection[str] = (), stopped: Collection[str] = ()) -> Difference:
        return difference(
            self.plan,
            plan_of(text, self.plan, self.cores),
            running=self.config,
            instances=self.instances,
            alive=self.alive,
            sockets=SOCKETS,
            granted=self.granted,
            anew=anew,
            stopped=stopped,
        )

    def apply(self, text: str) -> Difference:
        wanted = self.to(text)
        self.plan = plan_of(text, self.plan, self.cores)
        self.instances, self.config = wanted.instances, wanted.config
        self.alive -= set(wanted.stop)
        self.alive |= {instance_name(name, wanted.instances.get(name, 1)) for name in wanted.start}
        return wanted


def said(wanted: Difference) -> list[tuple[str, str, str]]:
    return [(each.change, each.what, each.name) for each in wanted.changes]


def test_the_configuration_of_a_chain() -> None:
    config = configuration(plan_of(ONE), SOCKETS, {})
    assert config == {
        "ports": {
            "tester.a": {"kind": "guest", "path": "/run/t/sockets/tester.a.sock", "mode": "server"},
            "first.0": {"kind": "guest", "path": "/run/t/sockets/first.0/sock", "mode": "client", "memory": 320 << 20},
            "first.1": {"kind": "guest", "path": "/run/t/sockets/first.1/sock", "mode": "client", "memory": 320 << 20},
            "tester.b": {"kind": "guest", "path": "/run/t/sockets/tester.b.sock", "mode": "server"},
        },
        "functions": {
            "first": {
                "replicas": {"first": {"left": "first.0", "right": "first.1", "state": "active"}},
            }
        },
        "chains": {"voice": {"from": "tester.a", "through": ["first"], "to": "tester.b"}},
    }


def test_the_configuration_of_everything() -> None:
    text = """\
fabric: {workers: 2, pins: {wan/1: 1, fw.0/0: 0}}
ports:
  wan: {if: veth0, queues: 2, rate: {max: 1Gbps, packets: 500kpps, share: 3}}
  vm1: {path: /run/vm1.sock, mode: client}
  vm2: {socket: {mode: "660", group: daemon}, offloads: false}
  probe:
functions:
  fw: {kind: skeleton, replicas: {1: active, 2: draining}, pin: addresses}
  router: skeleton
  box: guest
chains:
  rest: [tester.a, fw, box, tester.b]
  web: {path: [tester.a, fw, wan], match: {ethertype: ipv6, destination_port: 443}, priority: 3}
bridges:
  home: {ports: {vm1: , router.0: {access: 10}, vm2: {trunk: [10, 20], native: 20}}, ageing: 60s}
mirrors:
  tapped: {chain: web, direction: in, to: probe}
trace: 512
"""
    plan = plan_of(text)
    config = configuration(plan, SOCKETS, {"fw": 2})
    assert config["ports"]["wan"] == {
        "kind": "device",
        "device": "if:veth0",
        "queues": 2,
        "rate": {"max": 10**9, "packets": 500_000, "share": 3},
    }
    assert config["ports"]["vm1"] == {"kind": "guest", "path": "/run/vm1.sock", "mode": "client"}
    assert config["ports"]["vm2"]["socket"] == {"mode": "0660", "group": "daemon"}
    assert config["ports"]["vm2"]["offloads"] is False
    assert config["ports"]["fw@2.0"]["path"] == "/run/t/sockets/fw@2.0/sock"
    assert config["ports"]["box.0"] == {"kind": "guest", "path": "/run/t/sockets/box.0.sock", "mode": "server"}
    assert "fw.0" not in config["ports"]
    assert config["functions"]["fw"] == {
        "pin": "addresses",
        "replicas": {
            "fw": {"left": "fw@2.0", "right": "fw@2.1", "state": "active"},
            "fw-2": {"left": "fw-2.0", "right": "fw-2.1", "state": "draining"},
        },
    }
    assert set(config["functions"]) == {"fw", "box"}, "a function on a bridge is two ports to the switch"
    assert list(config["chains"]) == ["web", "rest"], "a chain without a match takes what is left"
    assert config["chains"]["rest"]["match"] == [{}]
    assert config["chains"]["web"] == {
        "from": "tester.a",
        "through": ["fw"],
        "to": "wan",
        "match": [{"ethertype": 0x86DD, "destination_port": 443}],
        "priority": 3,
    }
    assert config["bridges"]["home"] == {
        "ports": {"vm1": {}, "router.0": {"access": 10}, "vm2": {"trunk": [10, 20], "native": 20}},
        "ageing": 60,
        "macs": 4096,
        "flood": 10_000,
    }
    assert config["mirrors"] == {"tapped": {"chain": "web", "direction": "in", "to": "probe"}}
    assert config["trace"] == {"every": 512}
    assert config["workers"] == {"pins": {"wan/1": 1, "fw@2.0/0": 0}}
    assert [each.name for each in plan.started] == ["fw", "fw-2", "router"]
    assert Plan.read(plan.as_data()) == plan
    assert any("for ethertype ipv6, destination port 443" in line for line in plan.lines())


def test_a_guest_has_as_many_ports_as_it_says() -> None:
    plan = plan_of(
        "functions: {vm: {runs: guest, ports: 4}, ids: {runs: guest, ports: 1}}\n"
        "chains: {through: [tester.a, vm, tester.b], management: [vm.2, {if: lo}]}\n"
        "bridges: {lan: [vm.3, ids.0]}\n"
    )
    assert plan.started == []
    config = configuration(plan, SOCKETS, {})
    assert set(config["ports"]) == {"tester.a", "tester.b", "vm.0", "vm.1", "vm.2", "vm.3", "ids.0", "if-lo"}
    assert config["functions"] == {"vm": {"replicas": {"vm": {"left": "vm.0", "right": "vm.1", "state": "active"}}}}
    assert config["chains"]["management"] == {"from": "vm.2", "through": [], "to": "if-lo"}
    assert set(config["bridges"]["lan"]["ports"]) == {"vm.3", "ids.0"}


def test_a_guest_may_be_written_as_a_kind() -> None:
    spec = "functions: {{box: {}}}\nchains: {{v: [tester.a, box, tester.b]}}\n"
    plans = [plan_of(spec.format(words)) for words in ("guest", "{kind: guest}", "{runs: guest}")]
    assert {plan.identity for plan in plans} == {plans[0].identity}


def test_names_of_instances() -> None:
    assert instance_name("fw", 1) == "fw"
    assert instance_name("fw-2", 3) == "fw-2@3"
    assert function_name("fw-2@3") == "fw-2"
    assert function_name("fw") == "fw"


def test_the_same_again_is_nothing() -> None:
    up = Up(ONE)
    assert up.to(ONE).nothing
    assert not up.to(ONE).config_changes
    assert up.to(ONE).start == ()


def test_from_nothing_everything_is_added() -> None:
    wanted = difference(None, plan_of(ONE), running={}, instances={}, alive=(), sockets=SOCKETS)
    assert wanted.start == ("first",)
    assert set(wanted.stage["ports"]) == {"first.0", "first.1"}
    assert said(wanted) == [
        ("add", "process", "first"),
        ("add", "port", "tester.a"),
        ("add", "port", "tester.b"),
        ("add", "function", "first"),
        ("add", "chain", "voice"),
    ]
    assert wanted.counts() == {"add": 5, "change": 0, "remove": 0}


def test_a_function_more_and_back() -> None:
    up = Up(ONE)
    wanted = up.apply(TWO)
    assert (wanted.start, wanted.stop) == (("second",), ())
    assert set(wanted.stage["ports"]) == {"second.0", "second.1"}
    assert said(wanted) == [
        ("add", "process", "second"),
        ("add", "function", "second"),
        ("change", "chain", "voice"),
    ]
    assert wanted.changes[-1].detail == ("through: first → first second",)
    back = up.apply(ONE)
    assert (back.start, back.stop, back.stage) == ((), ("second",), {})
    assert ("remove", "process", "second") in said(back)
    assert up.to(ONE).nothing


def test_a_function_that_changes_is_replaced_beside_itself() -> None:
    up = Up(ONE)
    more = ONE.replace("first: skeleton", "first: {kind: skeleton, memory: 512MiB}")
    wanted = up.apply(more)
    assert (wanted.start, wanted.stop) == (("first",), ("first",))
    assert wanted.instances == {"first": 2}
    assert set(wanted.stage["ports"]) == {"first@2.0", "first@2.1"}
    assert wanted.config["functions"]["first"]["replicas"]["first"]["left"] == "first@2.0"
    assert "first.0" not in wanted.config["ports"]
    assert wanted.changes[0].detail == ("memory: 256MiB → 512MiB", "a new one takes its place")
    assert up.to(more).nothing
    again = up.apply(ONE)
    assert (again.start, again.stop) == (("first",), ("first@2",))
    assert again.instances == {"first": 3}


def test_what_has_ended_gets_a_successor() -> None:
    up = Up(TWO)
    up.alive.remove("second")
    wanted = up.to(TWO)
    assert (wanted.start, wanted.stop) == (("second",), ("second",))
    assert wanted.instances == {"second": 2}
    assert wanted.changes[0].detail == ("it has ended: a new one takes its place",)


def test_what_was_stopped_stays_so_whatever_is_applied() -> None:
    """It may have moved to another node, and runs there."""
    up, others = Up(ONE), ONE.replace("first: skeleton", "first: {kind: skeleton, memory: 512MiB}")
    assert up.to(ONE, stopped=["first"]).nothing
    wanted = up.to(others, stopped=["first"])
    assert (wanted.start, wanted.stay, wanted.stop) == ((), ("first",), ("first",))
    assert wanted.stage == {} and wanted.instances == {"first": 2}
    assert wanted.config["functions"]["first"]["replicas"]["first"]["left"] == "first@2.0", "what is started next"
    assert wanted.changes[0].detail == ("memory: 256MiB → 512MiB", "it stays stopped")
    assert up.to(others, anew=["first"], stopped=["first"]).start == ("first",)
    same = up.to(ONE.replace("first: skeleton", "first: {kind: skeleton, on_failure: bypass}"), stopped=["first"])
    assert (same.start, same.stay, same.instances) == ((), (), {}), "nothing of an instance is other"
    del up.config["ports"]["first.0"]
    assert (found := up.to(ONE, stopped=["first"])).start == () and found.stay == ("first",)


def test_what_is_to_be_made_anew_is_not_said_to_have_ended() -> None:
    up = Up(TWO)
    wanted = up.to(TWO, anew=["second"])
    assert (wanted.start, wanted.stop, wanted.instances) == (("second",), ("second",), {"second": 2})
    assert wanted.changes[0].detail == ("a new one takes its place",)


def test_a_replica_more_moves_no_other() -> None:
    up = Up(ONE)
    wanted = up.apply(ONE.replace("first: skeleton", "first: {kind: skeleton, replicas: 3}"))
    assert wanted.start == ("first-2", "first-3")
    assert wanted.stop == ()
    assert up.config["functions"]["first"]["replicas"]["first"]["left"] == "first.0"
    drained = up.apply(
        ONE.replace("first: skeleton", "first: {kind: skeleton, replicas: {1: active, 2: active, 3: draining}}")
    )
    assert (drained.start, drained.stop) == ((), ())
    assert drained.changes == (Change("change", "function", "first", ("replicas.first-3.state: active → draining",)),)
    (_, gone) = up.to(ONE.replace("first: skeleton", "first: {kind: skeleton, replicas: 2}")).changes
    assert gone.detail[-1] == "replicas.first-3.state: draining → none"
    back = up.apply(ONE.replace("first: skeleton", "first: {kind: skeleton, replicas: 3}"))
    assert back.changes == (Change("change", "function", "first", ("replicas.first-3.state: draining → active",)),)


def test_rates_change_without_a_new_process() -> None:
    up = Up(ONE)
    wanted = up.apply(ONE + "ports: {first.0: {rate: 1Gbps}, tester.a: {rate: {share: 2}}}\n")
    assert (wanted.start, wanted.stop) == ((), ())
    assert wanted.config_changes
    assert said(wanted) == [("change", "port", "tester.a"), ("change", "port", "first.0")]
    queues = up.to(ONE + "ports: {first.0: {queues: 2}}\n")
    assert queues.start == ("first",)
    assert "queues: 1, 1 → 2, 1" in queues.changes[0].detail


def test_what_a_port_sends_and_is_sent_is_each_reported() -> None:
    up = Up(ONE)
    both = ONE + "ports: {tester.a: {rate: {max: 1Gbps, to: 500Mbps}}}\n"
    wanted = up.apply(both)
    assert wanted.changes == (
        Change("change", "port", "tester.a", ("rate.max: none → 1000000000", "rate.to.max: none → 500000000")),
    )
    assert up.config["ports"]["tester.a"]["rate"] == {"max": 10**9, "to": {"max": 500_000_000}}
    assert any("sends at most 1000 Mbps, is sent at most 500 Mbps" in line for line in up.plan.lines())
    alone = up.apply(ONE + "ports: {first.1: {rate: {to: {packets: 2kpps}}}}\n")
    assert [each for each in alone.changes if each.name == "first.1"] == [
        Change("change", "port", "first.1", ("rate.to.packets: none → 2000",))
    ]
    assert up.to(ONE + "ports: {first.1: {rate: {to: {packets: 2000pps}, share: 1}}}\n").nothing
    added = up.to(ONE + "ports: {first.1: {rate: {to: {packets: 2kpps}}}, vm: {rate: {to: 1kbps}}}\n")
    assert [each.detail for each in added.changes] == [("/run/t/sockets/vm.sock, rate.to.max 1000",)]


def test_the_ageing_of_flows_is_a_difference_and_its_default_is_none() -> None:
    up = Up(ONE)
    words = "{kind: skeleton, ageing: %s}"
    assert up.to(ONE.replace("first: skeleton", "first: " + words % "5min")).nothing
    wanted = up.apply(ONE.replace("first: skeleton", "first: " + words % "20s"))
    assert (wanted.start, wanted.stop) == ((), ())
    assert wanted.changes == (Change("change", "function", "first", ("ageing: 300 → 20",)),)
    assert up.config["functions"]["first"]["ageing"] == 20
    assert Plan.read(up.plan.as_data()) == up.plan


def test_what_the_running_switch_cannot_become_is_reported() -> None:
    up = Up(ONE, cores=8)
    wanted = up.to("fabric: {idle: [sleep, poll], backpressure: 5ms, workers: 2}\n" + ONE)
    assert [each.split(":")[0] for each in wanted.fixed] == ["fabric.backpressure", "fabric.idle", "the workers' cores"]
    assert not wanted.nothing


def test_what_the_switch_gave_up_at_its_start_it_cannot_have_again() -> None:
    up = Up(ONE)
    wanted = up.to(ONE + "ports: {wan: {if: veth0}, vm: {socket: {group: daemon}}}\n")
    assert [each.rpartition(", which")[0] for each in wanted.fixed] == [
        "a device port that needs the capabilities net_admin, net_raw",
        "a socket of the group daemon",
    ]
    with_device = Up(ONE + "ports: {wan: {if: veth0}}\n")
    assert with_device.to(ONE + "ports: {wan: {if: veth1}}\n").fixed == ()


def test_what_the_switch_has_kept_it_has_though_a_change_did_without() -> None:
    with_all = ONE + "ports: {wan: {if: veth0}, nic: {pci: '0000:00:04.0'}, vm: {socket: {group: daemon}}}\n"
    up = Up(with_all)
    up.granted = replace(up.granted, pci=True)
    up.apply(ONE)
    assert up.to(with_all).fixed == ()


def test_somebody_elses_change_shows_and_is_undone() -> None:
    up = Up(ONE)
    up.config["chains"]["voice"]["through"] = []
    up.config["ports"]["extra"] = {"kind": "guest", "path": "/x"}
    assert said(up.to(ONE)) == [("remove", "port", "extra"), ("change", "chain", "voice")]


def test_defaults_are_no_difference() -> None:
    bare: Config = {"ports": {"p": {"kind": "guest", "path": "/x"}}, "chains": {"v": {"from": "a", "to": "b"}}}
    full: Config = {
        "ports": {"p": {"kind": "guest", "path": "/x", "mode": "server", "queues": 1, "offloads": True, "rate": {}}},
        "chains": {"v": {"from": "a", "through": [], "to": "b", "match": [], "priority": 0}},
        "bridges": {},
    }
    assert config_changes(bare, full) == []
    assert config_changes(full, bare) == []


def chains(*names: str, **priorities: int) -> Config:
    of = {name: {"from": "a", "to": "b", "priority": priorities.get(name, 0)} for name in names}
    return {"chains": of}


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        (chains("x", "y"), chains("x", "y"), []),
        (chains("x", "y"), chains("y", "x"), [("y", "order: now before x")]),
        (chains("x", "y", "z"), chains("y", "z", "x"), [("x", "order: now after z")]),
        (chains("x", "old", "y"), chains("new", "x", "y"), []),
        (chains("x", "y", x=1), chains("y", "x", x=1), []),
        (chains("x", "y", x=1), chains("y", "x"), [("y", "order: now before x"), ("x", "priority: 1 → 0")]),
    ],
)
def test_which_chain_is_asked_first_is_a_difference(
    before: Config, after: Config, moved: list[tuple[str, str]]
) -> None:
    """Of chains of one priority, that is; what is between two others moves neither."""
    found = [each for each in config_changes(before, after) if each.change == "change"]
    assert [(each.name, each.detail) for each in found] == [(name, (said,)) for name, said in moved]


TEXTS = st.sampled_from(
    [
        ONE,
        TWO,
        "chains: {voice: [tester.a, tester.b]}\n",
        ONE.replace("first: skeleton", "first: {kind: skeleton, memory: 1GiB}"),
        ONE.replace("first: skeleton", "first: {kind: skeleton, replicas: 3}"),
        ONE.replace("first: skeleton", "first: {kind: skeleton, replicas: {1: draining, 3: active}}"),
        "functions: {first: skeleton}\nbridges: {lan: [first.0, first.1]}\n",
    ]
)


@given(st.lists(TEXTS, min_size=2, max_size=6), st.integers(2, 8), st.data())
def test_any_history_ends_in_what_was_asked_for(history: list[str], cores: int, data: st.DataObject) -> None:
    up = Up(history[0], cores)
    for text in history[1:]:
        if up.alive and data.draw(st.booleans()):
            up.alive.discard(data.draw(st.sampled_from(sorted(up.alive))))
        before = set(up.alive)
        wanted = up.apply(text)
        assert not wanted.fixed
        started = {instance_name(name, wanted.instances.get(name, 1)) for name in wanted.start}
        assert not started & before, "a new process never has the name of one that runs"
        assert set(wanted.stage.get("ports", {})) == {f"{name}.{side}" for name in started for side in (0, 1)}
        running = {instance_name(each.name, wanted.instances.get(each.name, 1)) for each in up.plan.started}
        assert running == up.alive
        of_functions = {
            side for group in up.config["functions"].values() for each in group["replicas"].values()
            for side in (each["left"], each["right"])
        }  # fmt: skip
        assert of_functions <= set(up.config["ports"])
        assert up.to(text).nothing


@given(st.integers(1, 12), st.integers(0, 6), st.integers(0, 8), st.booleans(), st.booleans(), st.integers(1, 3))
def test_who_stays_is_not_moved(cores: int, before: int, after: int, tester: bool, still: bool, workers: int) -> None:
    old = place(
        cpus(cores), [f"f{n}" for n in range(before)], tester=tester, real_time=True, workers=min(workers, cores)
    )
    names = [f"f{n}" for n in range(1, after + 1)]
    new = keep_places(old, cpus(cores), names, tester=still, real_time=True)
    assert list(new.functions) == names
    assert new.switch == old.switch
    assert new.workers == old.workers
    assert all(new.functions[name] == old.functions[name] for name in names if name in old.functions)
    assert (new.tester is not None) == still
    if tester and still:
        assert new.tester == old.tester
    polling = [*new.workers, *(each.core for each in new.functions.values() if each.mode == "poll")]
    if not new.oversubscribed:
        assert len(set(polling)) == len(polling)
    assert all(each.core in each.cpus for each in new.functions.values())


def test_workers_and_cores() -> None:
    placed = place(cpus(6), ["f"], tester=True, real_time=True, workers=2)
    assert placed.workers == (2, 3)
    assert placed.switch.cpus == (0, 1, 2, 3)
    chosen = place(cpus(6), ["f"], tester=True, real_time=True, cores=(0, 5))
    assert chosen.workers == (0, 5)
    assert {chosen.tester.core if chosen.tester else None, chosen.functions["f"].core} == {3, 4}
    both = place(cpus(2), ["f"], tester=True, real_time=True, workers=2)
    assert both.oversubscribed
    assert both.workers == (0, 1)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("fabric: {workers: 3}\n", "s.yaml:1:19: fabric.workers: 3 workers are more than the 2 core(s)"),
        ("fabric: {cores: [1, 7]}\n", "s.yaml:1:21: fabric.cores[1]: core 7 is not there"),
    ],
)
def test_more_cores_than_there_are(text: str, start: str) -> None:
    document = parse_document(text + ONE, "s.yaml")
    with pytest.raises(SpecError) as caught:
        make_plan(_check(document), cpus=cpus(2), real_time=None, document=document)
    assert str(caught.value).startswith(start)
    with pytest.raises(Mistake, match=r"fabric\."):
        make_plan(parse_spec(text + ONE, "s"), cpus=cpus(2), real_time=None)


def test_what_the_switch_refuses_is_reported_with_its_place() -> None:
    document = parse_document(ONE + "ports:\n  tester.a: {rate: 1Gbps}\n", "s.yaml")
    assert str(document.refused("chains.voice.through[1]: no function 'x'")).startswith("s.yaml:2:10: chains.voice")
    assert str(document.refused("ports.tester.a.rate.to.max: why")).startswith("s.yaml:4:14: ports.tester.a.rate.to")
    assert str(document.refused("ports.tester.a.queues: why")).startswith("s.yaml:4:3: ports.tester.a.queues: why")
    assert str(document.refused("ports.first.0.path: why")).startswith("s.yaml:3:1: ")
    assert str(document.refused("out of memory")) == "s.yaml: out of memory"


@pytest.mark.parametrize(
    ("chain", "place"),
    [("voice: [tester.a, {if: absent0}]", "2:21"), ("voice: {path: [tester.a, {if: absent0}]}", "2:28")],
)
def test_a_device_that_stands_in_a_chain_is_reported_with_its_place(chain: str, place: str, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(f"chains:\n  {chain}\n")
    spec, document = load_located(file)
    make_plan(spec, cpus=cpus(4), real_time=None, memory=8 << 30, document=document)
    assert str(document.refused("ports.if-absent0: why")).startswith(f"{file}:{place}: ports.if-absent0: why")
    assert str(document.refused("ports.if-absent0.queues: why")).startswith(f"{file}:{place}: ")


def test_the_same_spec_is_the_same_plan_wherever_it_came_to_be() -> None:
    up = Up(ONE, cores=8)
    up.apply(TWO)
    fresh = plan_of(TWO, cores=8)
    assert fresh.identity != up.plan.identity, "a plan from nothing has other cores"
    assert fresh.placed_as(up.plan).identity == up.plan.identity
    assert plan_of(ONE, cores=8).placed_as(up.plan).identity != up.plan.identity


def test_a_plan_that_names_other_cores_is_not_the_one_that_is_up() -> None:
    """Who has chosen the cores makes no difference; which they are does."""
    up = Up("fabric: {cores: [0]}\n" + ONE)
    for other, same in (("cores: [1]", False), ("cores: [0]", True), ("backpressure: 20ms", True)):
        fresh = plan_of(f"fabric: {{{other}}}\n" + ONE)
        assert (fresh.placed_as(up.plan).identity == up.plan.identity) == same, other
    chosen = Up(ONE)
    assert chosen.plan.placement.workers == (1,)
    for core, same in ((0, False), (1, True)):
        named = plan_of(f"fabric: {{cores: [{core}]}}\n" + ONE)
        assert (named.placed_as(chosen.plan).identity == chosen.plan.identity) == same
    # Naming the cores that it has already changes nothing either.
    named = plan_of("fabric: {cores: [1]}\n" + ONE, chosen.plan)
    assert named.identity == chosen.plan.identity


BYPASSED = "functions: {fw: {kind: skeleton, replicas: 2}, first: {kind: skeleton, on_failure: bypass}}\n"
BYPASSED += "chains: {voice: [tester.a, fw, first, tester.b]}\n"


def test_what_has_ended_and_is_led_around_is_not_asked_for() -> None:
    up = Up(BYPASSED)
    config = configuration(up.plan, SOCKETS, {}, ["fw-2", "first"])
    assert config["chains"]["voice"]["through"] == ["fw"]
    assert set(config["functions"]) == {"fw"} and set(config["functions"]["fw"]["replicas"]) == {"fw"}
    assert set(config["ports"]) == set(up.config["ports"]), "their ports stay, for whoever comes back"
    neither = configuration(up.plan, SOCKETS, {}, ["fw", "fw-2", "first"])
    assert neither["chains"]["voice"]["through"] == [] and neither["functions"] == {}


def test_what_comes_back_is_led_through_and_what_stays_away_is_not() -> None:
    up = Up(BYPASSED)
    up.config = configuration(up.plan, SOCKETS, {}, ["fw-2", "first"])
    up.alive -= {"fw-2"}  # first has ended too, and is to be left so: it is counted among the living
    wanted = difference(
        up.plan,
        up.plan,
        running=up.config,
        instances={},
        alive=up.alive,
        sockets=SOCKETS,
        around=["fw-2", "first"],
    )
    assert (wanted.start, wanted.around) == (("fw-2",), ("first",))
    assert wanted.config["chains"]["voice"]["through"] == ["fw"]
    assert set(wanted.config["functions"]["fw"]["replicas"]) == {"fw", "fw-2"}
    up.alive -= {"first"}
    wanted = difference(
        up.plan, up.plan, running=up.config, instances={}, alive=up.alive, sockets=SOCKETS, around=["fw-2", "first"]
    )
    assert wanted.around == () and wanted.config["chains"]["voice"]["through"] == ["fw", "first"]


def test_a_function_that_is_waited_for_is_awaited_at_both_its_ports() -> None:
    up = Up("functions: {first: {kind: skeleton, on_failure: block}}\nchains: {voice: [tester.a, first, tester.b]}\n")
    assert {name: port.get("absent") for name, port in up.config["ports"].items()} == {
        "tester.a": None,
        "first.0": "wait",
        "first.1": "wait",
        "tester.b": None,
    }


def test_a_function_that_can_be_told_goes_on() -> None:
    def rules(*actions: str, connections: int = 1000) -> str:
        listed = ", ".join(f"{{action: {each}, protocol: {number}}}" for number, each in enumerate(actions))
        return (
            f"functions: {{fw: {{kind: firewall, firewall: {{rules: [{listed}], connections: {connections}}}}}}}\n"
            "chains: {voice: [tester.a, fw, tester.b]}\n"
        )

    up = Up(rules("allow", "deny"))
    assert up.to(rules("allow", "deny")).nothing
    wanted = up.to(rules("allow", "allow", "deny"))
    assert (wanted.tell, wanted.start, wanted.stop, wanted.config_changes) == (("fw",), (), (), False)
    assert wanted.changes == (Change("change", "process", "fw", ("rules: 2 → 3, 2 of them new",)),)
    replaced = up.to(rules("allow", connections=2000))
    assert (replaced.tell, replaced.start) == ((), ("fw",))
