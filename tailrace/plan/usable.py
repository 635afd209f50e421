"""The CPUs that something may be placed on: those that this process may use and nobody else polls on, with their
roles."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tailrace.errors import Failure
from tailrace.host.in_force import roles_in_force
from tailrace.kernel.cpus import show_list
from tailrace.kernel.tree import Tree
from tailrace.resources.claim import Claim
from tailrace.resources.ledger import exclusive_of_others
from tailrace.resources.topology import Cpu, Role, allowed_cpus


@dataclass(frozen=True)
class Usable:
    """What placement chooses from."""

    cpus: Sequence[Cpu]
    notes: tuple[str, ...] = ()
    """What is to be said of it."""
    allowed: Sequence[Cpu] = ()
    """All that may be used, also those that are left to others."""


def usable_cpus(own: Collection[Path] = (), *, named: Collection[int] = (), least: int = 1) -> Usable:
    """Those of this machine: without what is held for other state folders than these, unless it is named or fewer than
    the least number of cores would be left. It never fails: what cannot be read is noted."""
    found = with_roles(allowed_cpus(), Tree())
    return left_to_others(found, exclusive_of_others(own), named, least)


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


def left_to_others(found: Usable, held: dict[int, Claim], named: Collection[int], least: int) -> Usable:
    """What is found without the cores that others hold, as far as that leaves enough."""
    core_of = {cpu.number: cpu.core for cpu in found.cpus}
    for number in (cpu for cpu in named if cpu not in held):
        for cpu, claim in held.items():
            if cpu in core_of and core_of[cpu] == core_of.get(number):
                said = f"fabric.cores: CPU {number} is a thread of the core of CPU {cpu}, on which {claim.words} polls"
                found = replace(found, notes=(*found.notes, f"{said}: each slows the other"))
    theirs = {cpu.number: held[cpu.number] for cpu in found.cpus if cpu.number in held and cpu.number not in named}
    if not theirs:
        return replace(found, allowed=found.cpus)
    cores = {cpu.core for cpu in found.cpus if cpu.number in theirs}
    left = [cpu for cpu in found.cpus if cpu.core not in cores or cpu.number in named]
    enough = len({cpu.core for cpu in left}) >= least
    who = "; ".join(
        f"{show_list(cpu for cpu, claim in theirs.items() if claim is holder)}: {holder.words}"
        for holder in dict.fromkeys(theirs.values())
    )
    said = (
        "CPUs left to others" if enough else "too few CPUs are free, so some are shared with others that poll on them"
    )
    return Usable(left if enough else found.cpus, (*found.notes, f"{said} ({who})"), found.cpus)
