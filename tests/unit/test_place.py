"""Placement beside cores that the spec names, and of functions with several CPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tailrace.errors import Mistake
from tailrace.plan.make import make_plan
from tailrace.resources.place import Placement, keep_places, place, poller_node
from tailrace.resources.topology import Cpu, Role
from tailrace.spec.load import parse_spec


def machine(cores: int, *, nodes: int = 1, roles: str = "") -> list[Cpu]:
    """So many cores, spread over the nodes, with two threads each: those of core n are n and n + `cores`."""
    names = {"s": "system", "w": "switch", "t": "tester", "v": "vnf"}
    return [
        Cpu(
            number,
            number % cores * nodes // cores,
            number % cores,
            siblings=(number % cores, number % cores + cores),
            role=Role(names[roles[number % cores]], "latency") if roles else None,
        )
        for number in range(2 * cores)
    ]


def polled(placed: Placement) -> list[int]:
    places = [*([placed.tester] if placed.tester else []), *placed.functions.values()]
    return [core for at in places for core in at.cores]


# --- cores that are named ------------------------------------------------------------------------------------------


def test_the_sibling_of_a_named_core_is_nobody_elses() -> None:
    cpus = machine(4)
    for named in (3, 7):
        placed = place(cpus, ["a"], tester=True, real_time=True, cores=[named])
        assert polled(placed) == [1, 2]
        assert all(set(at.cpus).isdisjoint({3, 7} - {at.core}) for at in placed.functions.values())
        assert placed.notes == ()
        more = keep_places(placed, cpus, ["a", "b"], tester=True, real_time=True)
        assert polled(more) == [1, 2, 0]
        full = keep_places(more, cpus, ["a", "b", "c"], tester=True, real_time=True)
        assert full.oversubscribed
        assert full.functions["c"].core == 1, "it shares, and is on no sibling of who polls"


def test_what_shares_a_core_shares_that_of_a_high_one_last() -> None:
    cpus = machine(3)
    placed = place(cpus, ["a", "b"], tester=False, real_time=True)
    own = {name: at.core for name, at in placed.functions.items()}
    for high, other in ((["a"], "b"), (["b"], "a")):
        more = keep_places(placed, cpus, ["a", "b", "c"], tester=False, real_time=True, high=high)
        assert more.functions["c"].core == own[other]
    full = keep_places(placed, cpus, ["a", "b", "c"], tester=False, real_time=True, high=["a", "b"])
    assert full.functions["c"].core in own.values(), "and never a worker's while there is another"


def test_a_control_thread_is_on_no_sibling_of_a_named_core() -> None:
    cpus = machine(4, roles="sswv")
    placed = place(cpus, ["a"], tester=False, real_time=True, cores=[4])
    assert placed.switch.cpus == (1, 4, 5), "CPU 0 is of the same core"


def test_where_no_core_is_left_the_sibling_is_shared_and_said() -> None:
    placed = place(machine(1), ["a"], tester=True, real_time=True, cores=[0])
    assert placed.oversubscribed
    assert polled(placed) == [1, 1]
    assert placed.notes == ("no core is left beside those of fabric.cores, so others poll on CPU 1 of these",)


def test_two_threads_of_one_core_are_named_and_said_to_be() -> None:
    placed = place(machine(4), ["a"], tester=False, real_time=True, cores=[1, 5])
    assert placed.workers == (1, 5)
    assert placed.notes == ("fabric.cores: CPUs 1 and 5 are threads of one core, and slow each other",)
    assert placed.headline == "3 pollers on 4 cores: each polls on a CPU of its own."


@pytest.mark.parametrize(("named", "node"), [([7], 1), ([0], 0), ([4, 1], 1), ([0, 5, 6], 1)])
def test_all_pollers_are_on_the_node_of_the_named_cores(named: Sequence[int], node: int) -> None:
    cpus = [*machine(8, nodes=2), Cpu(99, 0, 99)]  # the first node would be chosen
    placed = place(cpus, ["a"], tester=True, real_time=True, cores=named)
    by_number = {cpu.number: cpu for cpu in cpus}
    assert {by_number[number].node for at in placed.functions.values() for number in at.cpus} == {node}
    assert placed.tester is not None
    assert by_number[placed.tester.core].node == node
    assert poller_node(cpus, [*placed.workers, *polled(placed)]) == node
    far = [core for core in named if by_number[core].node != node]
    assert [note for note in placed.notes if "node" in note] == [
        f"fabric.cores: CPU {core} is on node {1 - node}, and all else on {node}" for core in far
    ]
    more = keep_places(placed, cpus, ["a", "b"], tester=True, real_time=True)
    assert by_number[more.functions["b"].core].node == node


# --- several CPUs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "several", "chosen"),
    [
        (6, {"a": 2}, {"a": (4, 5), "b": (3,)}),
        (6, {"b": 3}, {"a": (2,), "b": (3, 4, 5)}),
        (5, {"a": 2}, {"a": (3, 4), "b": (2,)}),
        (4, {"a": 2}, {"a": (1, 2), "b": (0,)}),
    ],
)
def test_a_function_has_whole_cores_that_follow_one_another(
    cores: int, several: Mapping[str, int], chosen: Mapping[str, tuple[int, ...]]
) -> None:
    """The switch keeps off the first one, where Linux works."""
    placed = place(machine(cores), ["a", "b"], tester=False, real_time=True, several=several)
    assert not placed.oversubscribed
    assert {name: at.cores for name, at in placed.functions.items()} == chosen
    assert all(at.core == at.cores[0] for at in placed.functions.values())
    assert set(polled(placed)).isdisjoint(placed.workers)
    assert placed.pollers == 1 + sum(map(len, chosen.values()))


def test_they_follow_one_another_where_others_have_gone() -> None:
    cpus = machine(8)
    old = place(cpus, ["a", "b", "c", "d"], tester=True, real_time=True)
    assert polled(old) == [3, 4, 5, 6, 7]
    now = keep_places(old, cpus, ["b", "d", "e"], tester=True, real_time=True, several={"e": 2})
    assert now.functions["e"].cores == (0, 1), "6 and 1 are free too"
    assert [now.functions[name] for name in "bd"] == [old.functions[name] for name in "bd"]


def test_who_gets_another_number_of_cpus_moves_and_the_others_stay() -> None:
    cpus = machine(8)
    old = place(cpus, ["a", "b"], tester=False, real_time=True)
    now = keep_places(old, cpus, ["a", "b"], tester=False, real_time=True, several={"a": 2})
    assert now.functions["b"] == old.functions["b"]
    assert now.functions["a"].cores == (3, 4)
    assert keep_places(now, cpus, ["a", "b"], tester=False, real_time=True, several={"a": 2}) == now


def test_by_roles_too() -> None:
    cpus = machine(6, roles="sswvvv")
    placed = place(cpus, ["a"], tester=False, real_time=True, several={"a": 3})
    assert placed.functions["a"].cores == (3, 4, 5)
    assert placed.functions["a"].why == "role vnf of profile latency, node 0, whole cores"
    placed = place(cpus, ["a"], tester=False, real_time=True, several={"a": 4})
    assert placed.functions["a"].cores == (3, 4, 5, 1)
    (note,) = placed.notes
    assert note.startswith("a: too few CPUs of role vnf are left, so it polls on CPUs 3, 4, 5, 1")


def test_too_many_are_oversubscribed() -> None:
    placed = place(machine(3), ["a"], tester=True, real_time=True, several={"a": 2})
    assert placed.oversubscribed
    assert placed.headline.startswith("Oversubscribed: 4 pollers on 3 cores.")
    assert placed.functions["a"].cores == (0,)
    kept = keep_places(placed, machine(3), ["a"], tester=True, real_time=True, several={"a": 2})
    assert kept.functions == placed.functions


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("{kind: impair, cpus: 2}", "2 CPUs; kind impair has one thread, because .*; expected 1"),
        ("{runs: guest, cpus: 2}", "2 CPUs, which a guest has from whoever runs it; expected 1"),
        ("{kind: skeleton, cpus: 65}", "expected 1 to 16"),
    ],
)
def test_who_cannot_use_several_is_refused(function: str, said: str) -> None:
    text = f"functions: {{a: {function}}}\nchains: {{v: [tester.a, a, tester.b]}}\n"
    with pytest.raises(Mistake, match=said):
        make_plan(parse_spec(text, "s"), cpus=machine(4), real_time=None)
