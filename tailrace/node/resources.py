"""Who holds what of this machine, for `tailrace node resources`; only looks, and shows what this user may read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tailrace.kernel.tree import Tree
from tailrace.plan.usable import with_roles
from tailrace.resources.claim import Claim, Part
from tailrace.resources.claims import workers
from tailrace.resources.conflict import room
from tailrace.resources.ledger import claims, unreadable
from tailrace.resources.topology import Cpu, Node, Topology, read_topology


def resources(tree: Tree | None = None) -> dict[str, Any]:
    """CPUs, memory, network cards and ports, each with its owners, and the owners themselves."""
    tree = tree or Tree()
    machine, held = read_topology(tree), claims()
    usable = with_roles(machine.cpus, tree)
    notes = list(usable.notes)
    if (hidden := unreadable()) is not None:
        notes.append(f"{hidden} is open to root alone: what root holds is not shown; run this with sudo")
    return {
        "cpus": [_cpu(cpu, held, live=tree.live) for cpu in usable.cpus],
        "nodes": [_node(node, machine, held) for node in machine.nodes],
        "nics": _nics(machine, held),
        "ports": [{"port": port, "owner": claim.words} for claim in held for port in claim.ports],
        "owners": [_owner(claim) for claim in held],
        "notes": notes,
    }


def _owner(claim: Claim) -> dict[str, Any]:
    return {
        "folder": claim.folder,
        "spec": claim.spec,
        "measurement": claim.owner.pid if claim.owner else None,
        "parts": [asdict(part) for part in claim.parts],
    }


def _cpu(cpu: Cpu, held: Sequence[Claim], *, live: bool) -> dict[str, Any]:
    def whose(claim: Claim) -> str:
        return claim.whose(lambda part: cpu.number in (*part.exclusive, *part.shared))

    exclusive = [whose(claim) for claim in held if cpu.number in claim.exclusive]
    shared = [whose(claim) for claim in held if cpu.number in claim.shared]
    if not exclusive and live:
        exclusive = [worker.words for worker in workers([cpu.number]).values()]
    return {
        "cpu": cpu.number,
        "node": cpu.node,
        "core": cpu.core,
        "online": cpu.online,
        "role": cpu.role.name if cpu.role else None,
        "isolated": cpu.isolated,
        "use": "exclusive" if exclusive else "shared" if shared else None,
        "owners": [*exclusive, *shared],
    }


def _node(node: Node, machine: Topology, held: Sequence[Claim]) -> dict[str, Any]:
    ours = [pages for claim in held for pages in claim.pages if machine.home(pages.node) == node.number]
    memory = room(node, held)

    def whose(claim: Claim, kib: int) -> str:
        """Who uses how many pages of a size."""
        used = {part.name: _pages(part, kib, node, machine) for part in claim.parts}
        return ", ".join(f"{name} {count}" for name, count in used.items() if count)

    return {
        "node": node.number,
        "memory_mib": node.memory_mib,
        "reserve_mib": memory.reserve,
        "held_mib": memory.held,
        "left_mib": memory.left,
        "owners": [
            f"{', '.join(shares)} of {claim.words}" for claim in held if (shares := _shares(claim, node.number))
        ],
        "pages": [
            {
                "kib": pool.kib,
                "total": pool.total,
                "free": pool.free,
                "ours": sum(pages.count for pages in ours if pages.kib == pool.kib),
                "owners": [f"{used} of {claim.words}" for claim in held if (used := whose(claim, pool.kib))],
            }
            for pool in node.huge
        ],
    }


def _shares(claim: Claim, node: int) -> list[str]:
    """Who has how many MiB of a node."""
    return [f"{part.name} {each.words}" for part in claim.parts for each in part.memory if each.node == node]


def _pages(part: Part, kib: int, node: Node, machine: Topology) -> int:
    return sum(each.count for each in part.pages if each.kib == kib and machine.home(each.node) == node.number)


def _nics(machine: Topology, held: Sequence[Claim]) -> list[dict[str, Any]]:
    """The physical ones, and the other interfaces that somebody holds."""
    found: dict[str, dict[str, Any]] = {}
    for nic in machine.nics:
        found[nic.name] = {"nic": nic.name, "address": nic.address, "node": nic.node, "driver": nic.driver}
    known = {address: nic.name for nic in machine.nics for address in (nic.name, nic.address)}
    owners: dict[str, list[str]] = {}
    for claim in held:
        for name in claim.nics:
            whose = claim.whose(lambda part, name=name: name in part.nics)  # type: ignore[misc]
            owners.setdefault(known.get(name, name), []).append(whose)
    for name in owners:
        found.setdefault(name, {"nic": name, "address": None, "node": None, "driver": None})
    return [{**nic, "owners": owners.get(name, [])} for name, nic in found.items()]
