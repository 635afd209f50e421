"""Placement where `tailrace host apply` has given the CPUs roles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from machines import add_nic, machine

from tailrace.host.journal import Journal, state_folder
from tailrace.host.machine import read_machine
from tailrace.host.profile import load_profile
from tailrace.host.tuning import make_tuning_plan
from tailrace.kernel.tree import Tree
from tailrace.plan.make import make_plan
from tailrace.plan.planned import Plan
from tailrace.plan.usable import with_roles
from tailrace.resources.place import Placement, keep_places, place, place_tester, place_without_switch
from tailrace.resources.topology import Cpu, Role, read_topology
from tailrace.spec.load import parse_spec

LATENCY = "role {} of profile latency"


def host(folder: Path, *, cores: int = 4, profile: str = "latency", nic: str | None = None) -> list[Cpu]:
    """The CPUs of a machine of two nodes with cards on both, to which a profile is applied."""
    tree = machine(folder, nodes=2, cores=cores, threads=2)
    add_nic(folder, "ens1", "0000:31:00.0", 0)
    add_nic(folder, "ens2", "0000:b1:00.0", 1)
    asked = make_tuning_plan(read_machine(tree), load_profile(profile), nic).asked
    Journal(state_folder(tree) / "journal").note(applied=asked)
    usable = with_roles(read_topology(tree).cpus, tree)
    assert usable.notes == ()
    return list(usable.cpus)


def numbered(roles: str) -> list[Cpu]:
    """CPUs of one node, each with the role that its letter is of: system, switch, tester, vnf; `.`: none is left."""
    names = {"s": "system", "w": "switch", "t": "tester", "v": "vnf"}
    return [Cpu(number, core=number, role=Role(names[each], "latency")) for number, each in enumerate(roles)]


def roles(cpus: Sequence[Cpu], placed: Placement) -> dict[str, str]:
    by = {cpu.number: cpu.role.name for cpu in cpus if cpu.role}
    found = {"switch": by[placed.switch.core], **{name: by[at.core] for name, at in placed.functions.items()}}
    return found | ({"tester": by[placed.tester.core]} if placed.tester else {})


@pytest.mark.parametrize(("nic", "node"), [(None, 0), ("ens2", 1)])
def test_on_two_nodes_nobody_polls_on_the_systems_cpus(tmp_path: Path, nic: str | None, node: int) -> None:
    """All interrupts are there, and all CPUs of the other node are the system's."""
    cpus = host(tmp_path, nic=nic)
    placed = place(cpus, ["first"], tester=True, real_time=True)
    assert not placed.oversubscribed
    assert placed.notes == ()
    assert roles(cpus, placed) == {"switch": "switch", "first": "vnf", "tester": "tester"}
    places = [placed.switch, placed.tester, placed.functions["first"]]
    system = {cpu.number for cpu in cpus if cpu.role and cpu.role.name == "system" and cpu.node == node}
    for at in places:
        assert at is not None
        assert next(cpu for cpu in cpus if cpu.number == at.core).node == node
        assert set(at.cpus) == {at.core, *system}, "control threads are on the system's CPUs of that node"
    assert placed.functions["first"].why == f"{LATENCY.format('vnf')}, node {node}, a whole core"


def test_without_a_profile_and_after_a_damaged_journal_cpus_are_chosen_as_ever(tmp_path: Path) -> None:
    tree = machine(tmp_path, nodes=2, cores=4, threads=2)
    cpus = read_topology(tree).cpus
    assert with_roles(cpus, tree).cpus == cpus
    assert with_roles(cpus, tree).notes == ()
    journal = state_folder(tree) / "journal"
    journal.parent.mkdir(parents=True)
    journal.write_text("no journal\n")
    damaged = with_roles(cpus, tree)
    assert damaged.cpus == cpus
    (note,) = damaged.notes
    assert "line 1 is damaged" in note


def test_a_profile_that_is_gone_is_noted(tmp_path: Path) -> None:
    cpus = host(tmp_path, cores=4)
    tree = Tree(tmp_path)
    journal = state_folder(tree) / "journal"
    journal.write_text(journal.read_text().replace('"latency"', '"/gone.yaml"'))
    (note,) = with_roles(cpus, tree).notes
    assert "/gone.yaml: No such file" in note


@pytest.mark.parametrize(
    ("cpus", "functions", "chosen", "noted"),
    [
        ("swtvv", 2, [1, 2, 3, 4], []),
        ("swtvvv", 1, [1, 2, 3], []),
        ("swvvv", 2, [1, 4, 2, 3], ["the tester"]),
        ("swtv", 3, None, None),
        ("sswtv", 2, [2, 3, 4, 1], ["f1"]),
        ("sswt", 1, [2, 3, 1], ["f0"]),
    ],
    ids=["fits", "one-vnf-is-spare", "no-tester", "too-many", "a-system-cpu", "no-vnf"],
)
def test_a_role_with_too_few_cpus_has_others_that_are_kept_free_and_then_any(
    cpus: str, functions: int, chosen: list[int] | None, noted: list[str] | None
) -> None:
    placed = place(numbered(cpus), [f"f{number}" for number in range(functions)], tester=True, real_time=True)
    assert placed.oversubscribed == (chosen is None)
    if chosen is None:
        assert placed.tester is not None
        assert (placed.switch.core, placed.tester.core) == (1, 3), (
            "the switch keeps its own, the rest shares one of vnf"
        )
        assert placed.switch.cpus == (0, 1)
        return
    assert placed.tester is not None
    assert [placed.switch.core, placed.tester.core, *(at.core for at in placed.functions.values())] == chosen
    assert [note.partition(":")[0] for note in placed.notes] == noted
    assert all(0 in at.cpus for at in placed.functions.values())


def test_isolated_cpus_come_before_the_systems() -> None:
    cpus = [*numbered("ssw"), Cpu(3, core=3, isolated=True, role=Role("system", "latency")), *numbered("ssssss")[4:]]
    placed = place(cpus, ["f"], tester=False, real_time=True)
    assert placed.functions["f"].core == 3
    assert placed.notes == (
        "f: no CPU of role vnf is left, so it polls on CPU 3 (role system of profile latency, node 0, isolated)",
    )


def test_who_comes_later_has_its_role_too() -> None:
    cpus = numbered("swtvvvv")
    old = place(cpus, ["a"], tester=False, real_time=True)
    now = keep_places(old, cpus, ["a", "b"], tester=True, real_time=True)
    assert now.functions["a"] == old.functions["a"]
    assert roles(cpus, now) == {"switch": "switch", "a": "vnf", "b": "vnf", "tester": "tester"}


def test_the_tester_alone_and_without_a_switch_has_its_role() -> None:
    cpus = numbered("swtvv")
    assert place_tester(cpus).core == 2
    assert place_tester(cpus).cpus == (0, 2)
    found = place_without_switch(cpus, ["a"], real_time=True)
    assert found.tester is not None
    assert (found.tester.core, found.functions["a"].core) == (2, 3)


def test_a_plan_says_why_and_is_the_same_for_other_words() -> None:
    spec = parse_spec("functions: {a: skeleton}\nchains: {v: [tester.a, a, tester.b]}\n", "s")
    plan = make_plan(spec, cpus=numbered("swvv"), real_time=None)
    lines = plan.lines()
    at = next(number for number, line in enumerate(lines) if line.startswith("start a "))
    assert lines[at + 1] == "  core 2: role vnf of profile latency, node 0, a whole core"
    assert any(line.startswith("note: the tester: no CPU of role tester is left") for line in lines)
    data = plan.as_data()
    assert data["placement"]["functions"]["a"]["why"] == "role vnf of profile latency, node 0, a whole core"
    assert Plan.read(data).placement.functions["a"].why
    other = make_plan(spec, cpus=[*numbered("swvv")[:1], *numbered("swtv")[1:]], real_time=None)
    assert [at.core for at in (plan.placement.switch, plan.placement.functions["a"])] == [1, 2]
    assert other.placement.tester is not None
    plain = make_plan(spec, cpus=[Cpu(number, core=number) for number in range(2)], real_time=None)
    said = make_plan(spec, cpus=[Cpu(number, core=number, isolated=True) for number in range(2)], real_time=None)
    assert plain.placement.switch.why != said.placement.switch.why
    assert plain.identity == said.identity
