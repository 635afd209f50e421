"""The CPUs that something may be placed on: those that this process may use and nobody else polls on, with their
roles."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from tailrace.errors import Failure, Refused
from tailrace.host.in_force import roles_in_force
from tailrace.kernel.cpus import show_list
from tailrace.kernel.tree import Tree
from tailrace.resources.claims import workers
from tailrace.resources.ledger import alone_of_others, exclusive_of_others, own_claim
from tailrace.resources.topology import Cpu, Role, allowed_cpus


class Holder(Protocol):
    """Who polls on a CPU: what a node has claimed, or a switch's worker."""

    @property
    def words(self) -> str: ...

    def on(self, cpu: int) -> str: ...


@dataclass(frozen=True)
class Usable:
    """What placement chooses from."""

    cpus: Sequence[Cpu]
    notes: tuple[str, ...] = ()
    """What is to be said of it."""
    allowed: Sequence[Cpu] = ()
    """All that may be used, also those that are left to others."""
    held: Mapping[int, str] = field(default_factory=dict)
    """Who polls on each of these, or on a thread of its core, in words."""


def usable_cpus(own: Collection[Path] = (), *, named: Collection[int] = (), least: int = 1) -> Usable:
    """Those of this machine: without what others than these state folders hold, unless it is named or fewer than the
    least number of cores would be left. What cannot be read is noted. Raises Refused where functions of others have
    all to themselves."""
    found = with_roles(allowed_cpus(), Tree())
    ours = {cpu for folder in own if (claim := own_claim(folder)) is not None for cpu in claim.exclusive}
    others = workers((cpu.number for cpu in found.cpus), ours)
    alone = alone_of_others(own)
    return left_to_others(found, {**others, **exclusive_of_others(own), **alone}, named, least, others, alone)


def with_roles(cpus: Sequence[Cpu], tree: Tree) -> Usable:
    """The same CPUs with their roles, where a profile is applied to the machine."""
    try:
        found = roles_in_force(tree)
    except Failure as error:
        return Usable(cpus, (f"the roles of `tailrace host apply` are unknown, so CPUs are chosen without: {error}",))
    if found is None:
        return Usable(cpus)
    roles, profile = found
    return Usable([replace(cpu, role=Role(roles.role(cpu.number), profile)) for cpu in cpus])


def left_to_others(
    found: Usable,
    held: Mapping[int, Holder],
    named: Collection[int],
    least: int,
    switches: Collection[int] = (),
    alone: Collection[int] = (),
) -> Usable:
    """What is found without the cores that others hold, as far as that leaves enough. Where it does not, those that
    other switches' workers have are left to them: no two switches can have one. Those that others have `alone` are
    always left to them. Raises Refused where these are all."""
    core_of = {cpu.number: cpu.core for cpu in found.cpus}
    for number in (cpu for cpu in named if cpu not in held):
        for cpu, holder in held.items():
            if cpu in core_of and core_of[cpu] == core_of.get(number):
                said = f"fabric.cores: CPU {number} is a thread of the core of CPU {cpu}, on which {holder.words} polls"
                found = replace(found, notes=(*found.notes, f"{said}: each slows the other"))
    theirs = {cpu.number: held[cpu.number] for cpu in found.cpus if cpu.number in held and cpu.number not in named}
    if not theirs:
        return replace(found, allowed=found.cpus)

    def without(numbers: Collection[int]) -> list[Cpu]:
        cores = {core_of[number] for number in numbers}
        return [cpu for cpu in found.cpus if cpu.core not in cores or cpu.number in named]

    all_left, most = without(theirs), without(theirs.keys() & alone)
    shared = (without(theirs.keys() & {*switches, *alone}), most)
    left = next((cpus for cpus in (all_left, *shared) if len({cpu.core for cpu in cpus}) >= least), most)
    of_core = {core_of[number]: holder.on(number) for number, holder in theirs.items()}
    words = {cpu.number: of_core[cpu.core] for cpu in found.cpus if cpu.core in of_core}
    if not left:
        raise Refused(f"every CPU that may be used is a function's of latency high: {show_held(words)}; end one first")
    who = "; ".join(
        f"{show_list(cpu for cpu, each in theirs.items() if each == holder)}: {holder.words}"
        for holder in dict.fromkeys(theirs.values())
    )
    said = (
        "CPUs left to others"
        if left is all_left
        else "too few CPUs are free, so some are shared with others that poll on them"
    )
    return Usable(left, (*found.notes, f"{said} ({who})"), found.cpus, words)


def show_held(held: Mapping[int, str]) -> str:
    """CPUs 1,3 are held by fw of /run/tailrace (fw.yaml)."""
    return "; ".join(
        f"CPU{'s' if len(cpus) > 1 else ''} {show_list(cpus)} {'are' if len(cpus) > 1 else 'is'} held by {holder}"
        for holder in dict.fromkeys(held.values())
        if (cpus := [cpu for cpu, each in held.items() if each == holder])
    )
