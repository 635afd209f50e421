"""Placement and plans: who polls where, and that a plan is data."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import Mistake
from tailrace.functions.program import BUFFERS_MIB
from tailrace.functions.runtimes import RUNTIMES, STARTERS
from tailrace.node.operations import contents_of
from tailrace.plan.make import make_plan, scaled
from tailrace.plan.planned import TESTER_BUFFERS_MIB, Plan, identity_of
from tailrace.resources.place import Placement, place
from tailrace.resources.topology import Cpu
from tailrace.spec import runtime as spec_runtime
from tailrace.spec.load import load_located, load_spec, parse_located, parse_spec
from tailrace.spec.model import Function
from tailrace.spec.source import SpecError
from tailrace.switch.config import configuration

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.yaml"))
TWO = """\
functions: {first: skeleton, second: skeleton, spare: skeleton}
chains: {v: [tester.a, first, second, tester.b]}
"""


def cpus(count: int) -> list[Cpu]:
    return [Cpu(number, 0, number) for number in range(count)]


def test_a_spec_says_of_each_runtime_what_it_is() -> None:
    assert set(RUNTIMES) == set(get_args(Function.model_fields["runs"].annotation)) == set(spec_runtime.RUNTIMES)
    for name, said in spec_runtime.RUNTIMES.items():
        assert (said.started, said.threads) == (name in STARTERS, RUNTIMES[name].threads)


def test_two_cores_and_three_pollers_are_oversubscribed() -> None:
    placed = place(cpus(2), ["first"], tester=True, real_time=True)
    assert placed.oversubscribed
    assert placed.switch.core == 1
    assert placed.tester is not None
    assert placed.tester.core == placed.functions["first"].core == 0
    assert placed.tester.cpus == placed.functions["first"].cpus == (0,)
    assert placed.functions["first"].mode == "interrupt"
    assert placed.functions["first"].priority is not None
    assert placed.headline.startswith("Oversubscribed: 3 pollers on 2 cores. The switch has core 1 alone, the tester")


def test_who_shares_a_core_is_not_said_to_have_it_alone() -> None:
    headline = place(cpus(2), ["first"], tester=True, real_time=True, workers=2).headline
    assert "The switch polls on cores 0, 1, the tester and the functions share core 0 with it;" in headline


def test_refused_real_time_is_said() -> None:
    placed = place(cpus(2), ["first"], tester=True, real_time=False)
    assert placed.functions["first"].priority is None
    assert "real-time was refused" in placed.headline


def test_the_floor_fits_two_cores() -> None:
    placed = place(cpus(2), [], tester=True, real_time=True)
    assert not placed.oversubscribed
    assert placed.tester is not None
    assert {placed.switch.core, placed.tester.core} == {0, 1}


@pytest.mark.parametrize(
    ("mode", "steered", "noted"),
    [
        ("lacp", "chains: {c: [tester.a, f, tester.b]}", True),
        ("lacp", "chains: {c: [tester.a, f, tester.b]}\nmirrors: {m: {port: f.0, to: wan}}", True),
        ("lacp", "chains: {c: [tester.a, f, wan]}", False),
        ("lacp", "bridges: {b: [wan, f.0]}", False),
        ("active-backup", "chains: {c: [tester.a, f, tester.b]}\nmirrors: {m: {port: f.0, to: wan}}", False),
    ],
)
def test_a_bond_whose_lacp_nobody_takes_is_noted(mode: str, steered: str, noted: bool) -> None:
    text = f"functions: {{f: skeleton}}\nports: {{wan: {{bond: {{members: [x, y], mode: {mode}}}}}}}\n{steered}\n"
    made = make_plan(parse_spec(text, "s"), huge=False, cpus=[Cpu(0), Cpu(1)], real_time="not asked")
    said = "wan is in no chain and no bridge, so nothing hears the LACP of its other end: no frame leaves by it"
    assert (said in made.notes) == noted


def test_with_enough_cores_each_polls_alone_and_linux_keeps_the_first() -> None:
    placed = place(cpus(6), ["first", "second"], tester=True, real_time=True)
    assert not placed.oversubscribed
    assert placed.tester is not None
    polling = [placed.switch.core, placed.tester.core, *(each.core for each in placed.functions.values())]
    assert sorted(polling) == [2, 3, 4, 5]
    assert all(each.mode == "poll" and each.priority is None for each in placed.functions.values())
    assert placed.switch.cpus == tuple(sorted({0, 1, placed.switch.core}))


def test_one_core_for_everything() -> None:
    placed = place(cpus(1), ["first"], tester=True, real_time=True)
    assert placed.headline.startswith("Oversubscribed: 3 pollers on 1 core. ")
    assert placed.oversubscribed
    assert placed.switch.core == 0


def test_no_core_at_all() -> None:
    with pytest.raises(Mistake, match="no CPU"):
        place([], [], tester=True, real_time=True)


def test_siblings_and_far_nodes_are_left_out() -> None:
    # Two nodes of two cores of two threads; a third core on node 1.
    machine = [Cpu(0, 0, 0), Cpu(1, 0, 1), Cpu(6, 0, 0), Cpu(7, 0, 1)]
    machine += [Cpu(2, 1, 2), Cpu(3, 1, 3), Cpu(4, 1, 4), Cpu(8, 1, 2), Cpu(9, 1, 3), Cpu(10, 1, 4)]
    placed = place(machine, ["first"], tester=True, real_time=True)
    assert placed.tester is not None
    assert {placed.switch.core, placed.tester.core, placed.functions["first"].core} == {2, 3, 4}


def test_pollers_have_fast_cores_where_cores_are_of_two_kinds() -> None:
    # As a hybrid processor numbers them: fast cores first.
    machine = [Cpu(number, 0, number, slow=number >= 4) for number in range(8)]
    few = place(machine, ["first"], tester=True, real_time=True)
    assert few.tester is not None
    assert {few.switch.core, few.tester.core, few.functions["first"].core} == {1, 2, 3}
    many = place(machine, ["first", "second", "third", "fourth"], tester=True, real_time=True)
    assert many.tester is not None
    assert (many.switch.core, many.tester.core) == (1, 2)
    assert 0 in many.switch.cpus, "Linux's own work keeps the first core"
    alone = place(machine, [str(number) for number in range(6)], tester=True, real_time=True)
    assert alone.switch.core == 3


@given(st.integers(1, 32), st.integers(0, 16), st.booleans(), st.booleans())
def test_any_placement_is_sound(cores: int, functions: int, tester: bool, real_time: bool) -> None:
    names = [f"f{number}" for number in range(functions)]
    placed = place(cpus(cores), names, tester=tester, real_time=real_time)
    assert list(placed.functions) == names
    assert (placed.tester is not None) == tester
    everyone = [placed.switch, *placed.functions.values(), *([placed.tester] if placed.tester else [])]
    assert all(each.core in each.cpus and each.core < cores for each in everyone)
    assert placed.oversubscribed == (1 + functions + tester > cores)
    if not placed.oversubscribed:
        assert len({each.core for each in everyone}) == len(everyone)
        assert all(each.mode == "poll" for each in everyone)
    elif cores > 1:
        assert placed.switch.core not in {each.core for each in everyone[1:]}
    assert placed.headline


def test_a_plan_says_all_and_is_the_same_for_the_same() -> None:
    spec = parse_spec(TWO, "s")
    plan = make_plan(spec, cpus=cpus(2), real_time=None)
    assert [port.name for port in plan.ports] == [
        "tester.a", "first.0", "first.1", "second.0", "second.1", "tester.b",
    ]  # fmt: skip
    assert plan.chains[0].ports == ("tester.a", "first.0", "first.1", "second.0", "second.1", "tester.b")
    assert plan.chains[0].tested
    assert sum(plan.pages.values()) == (2 * BUFFERS_MIB + TESTER_BUFFERS_MIB) // 2
    assert "spare is in no chain and is not started" in plan.notes
    assert plan.identity == make_plan(spec, cpus=cpus(2), real_time=None).identity
    assert plan.identity == identity_of(json.loads(json.dumps(plan.as_data())))
    assert plan.identity != make_plan(spec, cpus=cpus(3), real_time=None).identity
    assert make_plan(spec, huge=False, cpus=cpus(2), real_time=None).pages == {}
    assert len(plan.lines()) > 8


def test_huge_pages_are_of_the_size_and_the_cpu_of_who_needs_them() -> None:
    text = """\
functions:
  first: skeleton
  vm: {kind: skeleton, runs: machine, pages: 1GiB, memory: 2GiB, replicas: 2}
chains: {v: [tester.a, first, vm, tester.b]}
"""
    plan = make_plan(parse_spec(text, "s"), cpus=cpus(8), real_time=None, memory=64 << 30)
    places, tester = plan.placement.functions, plan.placement.tester
    assert tester is not None
    assert plan.pages == {
        (tester.core, 2048): TESTER_BUFFERS_MIB // 2,
        (places["first"].core, 2048): BUFFERS_MIB // 2,
        (places["vm"].core, 1 << 20): 2,
        (places["vm-2"].core, 1 << 20): 2,
    }
    assert plan.pages_of(["vm"]) == {(places["vm"].core, 1 << 20): 2}
    small = (BUFFERS_MIB + TESTER_BUFFERS_MIB) // 2
    assert f"reserve 2 MiB pages until {small} are free ({2 * small} MiB)" in plan.lines()
    assert "reserve 1 GiB pages until 4 are free (4096 MiB)" in plan.lines()
    common = plan.common_lines()  # which `plan` shows where nothing is up
    assert [line for line in plan.lines() if line in common] == common
    for words in ("reserve 2 MiB pages", "reserve 1 GiB pages", "start the switch on core"):
        assert any(line.startswith(words) for line in common), words


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("runs: process, pages: 1GiB", "pages: a process has pages of 2MiB; expected none, or `runs: machine`"),
        ("runs: machine, pages: 1GiB", "memory: 256MiB is no multiple of 1GiB; expected one"),
        ("runs: machine, pages: 1GiB, memory: 1536MiB", "memory: 1536MiB is no multiple of 1GiB; expected one"),
    ],
)
def test_pages_that_a_function_cannot_have_are_refused(words: str, told: str) -> None:
    with pytest.raises(Mistake) as refused:
        parse_spec(f"functions: {{f: {{kind: skeleton, {words}}}}}\nchains: {{v: [tester.a, f, tester.b]}}\n", "s")
    assert told in str(refused.value)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_has_a_plan_and_a_configuration(path: Path) -> None:
    plan = make_plan(load_spec(path), cpus=cpus(2), real_time=None)
    assert Plan.read(json.loads(json.dumps(plan.as_data()))) == plan
    config = configuration(plan, Path("/run/tailrace/sockets"), {})
    assert set(config["ports"]) == {port.name for port in plan.ports}
    assert plan.lines()


def test_a_machine_has_memory_to_boot_in() -> None:
    text = "functions: {first: {runs: machine, memory: 199MiB, KIND}}\nchains: {v: [tester.a, first, tester.b]}\n"
    spec = parse_spec(text.replace("KIND", "kind: skeleton"), "s")
    said = r"functions\.first\.memory: 199MiB hold no machine .* 72 MiB of huge pages inside; expected 200MiB"
    with pytest.raises(Mistake, match=said):
        make_plan(spec, cpus=cpus(3), real_time=None)
    for fits in ("kind: skeleton, driver: linux", "image: small.raw"):
        make_plan(parse_spec(text.replace("KIND", fits), "s"), cpus=cpus(3), real_time=None)
    make_plan(parse_spec(text.replace("199MiB, KIND", "200MiB, kind: skeleton"), "s"), cpus=cpus(3), real_time=None)


def test_a_machine_has_whole_huge_pages() -> None:
    """Its ports let it show all of them; a process has what was asked for."""
    text = "functions: {f: {kind: skeleton, runs: RUNS, memory: 257MiB}}\nchains: {v: [tester.a, f, tester.b]}\n"
    for runs, memory in (("machine", 258 << 20), ("process", 257 << 20)):
        plan = make_plan(parse_spec(text.replace("RUNS", runs), "s"), cpus=cpus(3), real_time=None)
        (function,) = plan.started
        assert function.memory_bytes == memory
        if runs == "machine":
            assert {port.memory_bytes for port in plan.ports if port.name.startswith("f.")} == {memory}


def test_more_memory_than_the_machine_has_is_refused() -> None:
    spec = parse_spec(TWO.replace("first: skeleton", "first: {kind: skeleton, memory: 8GiB}"), "s")
    assert make_plan(spec, cpus=cpus(2), real_time=None, memory=8 << 30).functions[0].memory_bytes == 8 << 30
    with pytest.raises(Mistake, match=r"functions\.first\.memory: 8GiB is more than this machine has \(4096MiB\)"):
        make_plan(spec, cpus=cpus(2), real_time=None, memory=4 << 30)


def test_all_that_the_machine_lacks_is_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "fabric: {cores: [7, 0, 9]}\nfunctions: {a: {kind: skeleton, memory: 8GiB}}\n"
        "chains: {v: [tester.a, a, p]}\nports:\n  p: {socket: {mode: '0660', group: nosuch}}\n"
    )
    spec, document = load_located(file)
    with pytest.raises(SpecError) as caught:
        make_plan(spec, cpus=cpus(2), real_time=None, memory=4 << 30, document=document)
    places = [line.removeprefix(f"{file}:").partition(": ")[0] for line in caught.value.lines]
    assert places == ["1:18", "1:24", "2:41", "5:37"]


def test_a_group_that_there_is_not_is_reported_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("chains: {v: [tester.a, a]}\nports:\n  a: {socket: {mode: '0660', group: nosuch}}\n")
    spec, document = load_located(file)
    with pytest.raises(Mistake, match=rf"{file}:3:37: ports\.a\.socket\.group: no group 'nosuch' .*`groupadd nosuch`"):
        make_plan(spec, cpus=cpus(2), real_time=None, document=document)
    with pytest.raises(Mistake, match=r"^ports\.a\.socket\.group: no group 'nosuch'"):
        make_plan(spec, cpus=cpus(2), real_time=None)


def test_a_plan_without_a_tester_has_no_place_for_one() -> None:
    spec = parse_spec("functions: {a: skeleton}\nchains: {v: [{if: x}, a, {vdev: 'net_null0,copy=1'}]}\n", "s")
    plan = make_plan(spec, cpus=cpus(2), real_time="Operation not permitted")
    assert not plan.tester
    assert plan.placement.tester is None
    assert [port.device for port in plan.ports] == ["if:x", None, None, "vdev:net_null0,copy=1"]
    assert all(len(port.name) < 48 and "," not in port.name for port in plan.ports)


@pytest.mark.parametrize(
    ("example", "contents"),
    [
        ("guests", "1 guest, 2 ports, 1 chain"),
        ("chain-of-two", "2 functions, 2 ports, 1 chain"),
        ("bridge", "1 function, 4 ports, 2 bridges"),
    ],
)
def test_what_is_up_is_counted_also_where_others_start_it(example: str, contents: str) -> None:
    (path,) = (each for each in EXAMPLES if each.stem == example)
    assert contents_of(make_plan(load_spec(path), cpus=cpus(2), real_time=None)) == contents


def device_names(*uris: str, more: str = "") -> dict[str | None, str]:
    """The ports of a chain for each of the devices, by device."""
    ends = [uri.partition(":") for uri in uris]
    chains = "".join(
        f"  c{number}: {{path: [tester.a, a, {{{kind}: '{rest}'}}], match: {{vlan: {number + 1}}}}}\n"
        for number, (kind, _, rest) in enumerate(ends)
    )
    spec = parse_spec(f"functions: {{a: skeleton}}\n{more}chains:\n{chains}", "s")
    plan = make_plan(spec, cpus=cpus(2), real_time=None)
    assert len({port.name for port in plan.ports}) == len(plan.ports)
    names = {port.device: port.name for port in plan.ports if port.device}
    assert [chain.end for chain in plan.chains] == [names[uri] for uri in uris]
    return names


def test_devices_whose_names_look_alike_are_ports_of_their_own() -> None:
    long = "vdev:net_pcap0,iface=" + "x" * 40
    names = device_names("if:eth_0", "if:eth-0", f"{long}1", f"{long}2", "if:eth1")
    assert (names["if:eth_0"], names["if:eth1"]) == ("if-eth-0", "if-eth1"), "as ever"
    assert re.fullmatch("if-eth-0-[0-9a-f]{8}", names["if:eth-0"])
    assert len(set(names.values())) == 5
    assert all(len(name) < 48 for name in names.values())
    assert device_names("if:eth_0", "if:eth-0")["if:eth-0"] == names["if:eth-0"], "whatever else there is"


def test_a_device_whose_name_is_another_ports_has_one_of_its_own() -> None:
    names = device_names("if:eth0", more="ports: {if-eth0: {if: eth1}}\n")
    assert names["if:eth1"] == "if-eth0"
    assert names["if:eth0"].startswith("if-eth0-")


LEVELS = """\
functions: {quick: {kind: skeleton, latency: high}, first: {kind: skeleton, latency: LEVEL}, bulk: skeleton}
chains: {v: [tester.a, quick, first, bulk, tester.b]}
"""


def planned_levels(level: str, count: int, keep: Placement | None = None) -> Plan:
    text = LEVELS.replace("LEVEL", level).replace("bulk: skeleton", "bulk: {kind: skeleton, latency: normal}")
    spec, document = parse_located(text, "levels.yaml")
    return make_plan(spec, cpus=cpus(count), real_time=None, document=document, keep=keep)


def test_a_function_of_level_normal_has_no_core_of_its_own() -> None:
    plan = planned_levels("medium", 5)
    where = plan.placement
    assert not where.oversubscribed and where.pollers == 4
    assert where.functions["bulk"].mode == "interrupt" and where.functions["bulk"].priority is None
    polled = {where.switch.core, *(where.functions[name].core for name in ("quick", "first"))}
    assert not polled.intersection(where.functions["bulk"].cpus)
    kept = planned_levels("medium", 5, keep=where).placement
    assert kept.functions == where.functions


def test_a_function_of_level_high_without_a_core_of_its_own_is_refused() -> None:
    with pytest.raises(SpecError, match=r"levels.yaml:1:\d+: functions.quick.latency: high takes a core of its own"):
        planned_levels("medium", 3)
    assert planned_levels("normal", 4).placement.functions["quick"].mode == "poll"


def test_a_guest_has_no_place_that_its_level_could_ask_for() -> None:
    text = "functions: {first: {runs: guest}, second: skeleton}\nchains: {v: [tester.a, first, second, tester.b]}\n"
    plan = make_plan(parse_spec(text, "s"), cpus=cpus(12), real_time=None)
    older = replace(plan, functions=tuple(replace(each, latency="high") for each in plan.functions))
    assert scaled(older, "second", 2, cpus=cpus(12)).placement.functions.keys() == {"second", "second-2"}


def scaled_plan(count: int, text: str = TWO, **options: Any) -> tuple[Plan, Plan]:
    plan = make_plan(parse_spec(text, "s"), cpus=cpus(12), real_time=None)
    return plan, scaled(plan, "first", count, cpus=cpus(12), **options)


def test_a_function_is_scaled_up_and_whoever_is_there_stays() -> None:
    plan, more = scaled_plan(3)
    group = {each.name: each.state for each in more.functions if each.function == "first"}
    assert group == dict.fromkeys(("first", "first-2", "first-3"), "active")
    assert {each.name for each in more.ports} - {each.name for each in plan.ports} == {
        f"first-{number}.{side}" for number in (2, 3) for side in (0, 1)
    }
    where = more.placement.functions
    assert {name: where[name] for name in plan.placement.functions} == plan.placement.functions
    assert len({at.core for at in where.values()}) == 4 and more.pinned_by["first"] == "flow"
    # As a spec says the same.
    text = TWO.replace("first: skeleton", "first: {kind: skeleton, replicas: 3}")
    written = make_plan(parse_spec(text, "s"), cpus=cpus(12), real_time=None)
    assert set(written.functions) == set(more.functions) and set(written.ports) == set(more.ports)
    assert configuration(written, Path("/s"), {}) == configuration(more, Path("/s"), {})


def test_what_is_too_many_drains_and_then_goes() -> None:
    _, more = scaled_plan(3)
    drained = scaled(more, "first", 1, cpus=cpus(12))
    states = {each.name: each.state for each in drained.functions if each.function == "first"}
    assert states == {"first": "active", "first-2": "draining", "first-3": "draining"}
    back = scaled(drained, "first", 2, cpus=cpus(12), remove=True)
    assert [each.name for each in back.functions if each.function == "first"] == ["first", "first-2"]
    assert not any(each.name.startswith("first-3.") for each in back.ports)
    assert not any(name == "first-3" for name in back.placement.functions)
    assert scaled(back, "first", 2, cpus=cpus(12)).identity == back.identity


@pytest.mark.parametrize(("pin", "kept"), [("", {}), (", pin: flow", {"first": "flow"})])
def test_scaled_up_and_down_again_it_is_as_before(pin: str, kept: dict[str, str]) -> None:
    plan, more = scaled_plan(2, TWO.replace("first: skeleton", f"first: {{kind: skeleton{pin}}}"))
    drained = scaled(more, "first", 1, cpus=cpus(12))
    assert drained.pinned_by == {"first": "flow"}
    back = scaled(drained, "first", 1, cpus=cpus(12), remove=True)
    assert back.pinned_by == kept and back.identity == plan.identity


def test_replicas_of_a_spec_are_scaled_down_to_one_that_needs_no_pin() -> None:
    text = TWO.replace("first: skeleton", "first: {kind: skeleton, replicas: 2}")
    _, one = scaled_plan(1, text, remove=True)
    assert one.pinned_by == {}
    assert scaled(one, "first", 2, cpus=cpus(12)).pinned_by == {"first": "flow"}


@pytest.mark.parametrize(
    ("name", "count", "said"),
    [
        ("none", 2, "'none' is no function that is up; there are: first, second"),
        ("first", 0, "0 replicas are not possible; expected 1 to 64"),
        ("first", 65, "65 replicas are not possible; expected 1 to 64"),
    ],
)
def test_what_cannot_be_scaled_is_refused(name: str, count: int, said: str) -> None:
    plan, _ = scaled_plan(1)
    with pytest.raises(Mistake, match=re.escape(said)):
        scaled(plan, name, count, cpus=cpus(12))


def test_a_function_in_a_bridge_is_not_scaled() -> None:
    text = "functions: {first: skeleton}\nbridges: {lan: [tester.a, first.0], wan: [first.1, tester.b]}\n"
    with pytest.raises(Mistake, match=r"first: first.0 is in a bridge"):
        scaled_plan(2, text)
