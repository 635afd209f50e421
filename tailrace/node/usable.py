"""The CPUs that something may be placed on: those that this process may use, each with the role that it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tailrace.errors import Failure
from tailrace.host.in_force import roles_in_force
from tailrace.resources.topology import Cpu, Role, allowed_cpus
from tailrace.resources.tree import Tree


@dataclass(frozen=True)
class Usable:
    """What placement chooses from."""

    cpus: Sequence[Cpu]
    notes: tuple[str, ...] = ()
    """What is to be said of it."""


def usable_cpus() -> Usable:
    """Those of this machine. It never fails: what cannot be read is noted."""
    return with_roles(allowed_cpus(), Tree())


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
