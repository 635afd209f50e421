"""The roles that `tailrace host apply` has given to the CPUs, for whoever places something on them."""

from __future__ import annotations

from tailrace.errors import Failure, Mistake
from tailrace.host.journal import read_journal, state_folder
from tailrace.kernel.tree import Tree
from tailrace.resources.roles import Roles, deal_roles
from tailrace.resources.topology import Topology, read_topology


def roles_in_force(tree: Tree) -> tuple[Roles, str] | None:
    """The roles, and the profile that they are of; None if none is applied, or if it keeps no CPU for a role. Raises
    Failure where that cannot be read, or is not of this machine."""
    applied = read_journal(state_folder(tree)).applied
    if applied is None:
        return None
    from tailrace.host.profile import load_profile  # it loads all knobs, and most machines have no profile

    try:
        profile = load_profile(applied.roles or applied.profile)
        machine: Topology = read_topology(tree).with_cores(applied.siblings)
        roles = deal_roles(machine, profile.roles, kept=applied.node, kept_system=applied.system)
    except Mistake as error:
        raise Failure(f"the profile that is applied: {error}") from None
    return (roles, profile.name) if roles.isolated else None
