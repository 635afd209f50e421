"""Which core does what: system, switch, VNFs, tester; by the machine's topology and the network card's node.

The system's share of that node grows with the node and with the queues of its cards, because every interrupt and the
packets of Linux's own network are handled there; of other nodes all CPUs are the system's.

Stable: cores are dealt in one order that depends on the topology alone, on the node with the most cores; among nodes
with as many, the network card with the lowest address decides. Where cores are of several kinds the switch and the
tester have fast ones, and functions what is left. Once a profile is applied that node is kept, whatever
card comes, or leaves Linux for a driver of DPDK's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tailrace.errors import Mistake
from tailrace.kernel.cpus import show_list
from tailrace.resources.topology import Topology

MANY = 4
"""So many cores of a node are enough for a tester of its own."""
CORES_PER_SYSTEM_CORE = 16
QUEUES_PER_CPU = 32
"""Each receive queue has an interrupt, of which an x86 CPU can take some 200 in all."""
SYSTEM = "system"
ROLES = (SYSTEM, "switch", "vnf", "tester")
WORDS = {
    "system": "Linux itself, interrupts, control",
    "switch": "the switch's polling workers",
    "vnf": "functions: sandboxes and guests",
    "tester": "the tester's polling thread",
}


@dataclass(frozen=True)
class Roles:
    """The logical CPUs of each role. CPUs of no role belong to the system."""

    cpus: Mapping[str, tuple[int, ...]]
    node: int
    """The node that the switch, the functions and the tester are on."""
    because: str
    share: str = ""
    """How many of the node's cores the system has, and why so many."""
    system_cores: int = 0

    @property
    def system(self) -> tuple[int, ...]:
        return self.cpus["system"]

    @property
    def isolated(self) -> tuple[int, ...]:
        """Every CPU that is kept free of everything but its role."""
        return tuple(sorted(cpu for role in ROLES[1:] for cpu in self.cpus[role]))

    def role(self, cpu: int) -> str:
        """The role of a CPU."""
        return next((role for role in ROLES if cpu in self.cpus[role]), "system")


def deal_roles(
    machine: Topology,
    wanted: Mapping[str, int | str],
    nic: str | None = None,
    *,
    kept: int | None = None,
    kept_system: int | None = None,
) -> Roles:
    """Deals the machine's cores to the roles.

    `wanted` gives whole cores by role; "rest" for one of them takes what the others leave, which may be none, "spare"
    takes one where there are at least MANY, and "auto" for the system as many as the node and its cards need. `nic`
    names the network card that frames come in by: its node is used; otherwise the node that is `kept` from before,
    where "auto" is `kept_system` cores again, otherwise the one with the most cores, and of several such that of the
    first physical card. A core's SMT siblings stay together. Raises Mistake if there are not enough cores.
    """
    least = sum(1 if count == "auto" else _number(count, 0) for count in wanted.values())
    node, because = _node(machine, nic, kept, least)
    cores = _cores(machine, node)
    share = ""
    if wanted.get("system") == "auto":
        count, share = _system_share(machine, node, cores, wanted, kept_system if node == kept else None)
        wanted = {**wanted, "system": count}
    counts = _counts(wanted, len(cores), node)
    share = f"{counts['system']} of the {len(cores)} cores of node {node}{f' ({share})' if share else ''}"
    slow = {core for core in cores if core[0] in machine.slow}
    dealt: dict[str, tuple[int, ...]] = {}
    # Where it matters those that poll for every frame choose before the functions.
    for role in ("system", "switch", "tester", "vnf") if slow else ROLES:
        own, cores = cores[: counts[role]], cores[counts[role] :]
        dealt[role] = tuple(cpu for core in own for cpu in core)
        if role == "system":  # which has the first core, where Linux starts, of whatever kind it is
            cores.sort(key=lambda core: core in slow)
    others = [cpu.number for cpu in machine.cpus if cpu.online and cpu.node != node]
    share += " and all CPUs of other nodes" if others else ""
    rest = [cpu for core in cores for cpu in core]
    dealt["system"] = tuple(sorted({*dealt["system"], *others, *rest}))
    if not dealt["system"]:
        raise Mistake("no core is left for the system; give it at least one")
    return Roles({role: tuple(sorted(dealt[role])) for role in ROLES}, node, because, share, counts["system"])


def _system_share(
    machine: Topology, node: int, cores: Sequence[tuple[int, ...]], wanted: Mapping[str, int | str], kept: int | None
) -> tuple[int, str]:
    """How many cores of a node the system needs, at least one, and why so many."""
    others = sum(1 if wanted.get(role) == "rest" else _number(wanted.get(role, 0), len(cores)) for role in ROLES[1:])
    room = max(len(cores) - others, 1)
    if kept:
        return min(kept, room), "as applied before"
    queues = sum(nic.queues for nic in machine.nics if machine.nearest(nic.node, nodes_with_cpus(machine)) == node)
    threads = max(map(len, cores), default=1)
    by_cores, by_queues = len(cores) // CORES_PER_SYSTEM_CORE, -(-queues // (QUEUES_PER_CPU * threads))
    if max(by_cores, by_queues) > room:
        return room, "as many as the other roles leave"
    if by_queues > max(by_cores, 1):
        return by_queues, f"a CPU for each {QUEUES_PER_CPU} of the {queues} receive queues of its network cards"
    return max(by_cores, 1), f"one for each {CORES_PER_SYSTEM_CORE}" if by_cores else "at least one"


def _number(count: int | str, cores: int) -> int:
    """How many cores a role of a node with so many gets, where it is not all that is left."""
    if count == "spare":
        return 1 if cores >= MANY else 0
    return 0 if count == "rest" else int(count)


def _node(machine: Topology, nic: str | None, kept: int | None, least: int) -> tuple[int, str]:
    """The node, and why that one. Nodes without a CPU have memory alone (CXL, HBM): no core is dealt there."""
    named = ""
    if nic is not None:
        card = next((each for each in machine.nics if nic in (each.name, each.address)), None)
        if card is None:
            known = ", ".join(each.name for each in machine.nics) or "none"
            raise Mistake(f"no network card {nic!r}; the physical ones are: {known}")
        node = machine.nearest(card.node, nodes_with_cpus(machine))
        if card.node is not None and node is not None:
            return node, f"the {'node of' if node == card.node else 'nearest one with CPUs to'} {card.name}"
        named = f"; {card.name} has no known node"
    elif kept is not None and _cores(machine, kept):
        return kept, "as applied before"
    node, because = _best_node(machine, least)
    return node, because + named


def nodes_with_cpus(machine: Topology) -> list[int]:
    """The nodes that have an online CPU."""
    return [each.number for each in machine.nodes if each.cpus]


def _best_node(machine: Topology, least: int) -> tuple[int, str]:
    """Of the nodes with so many cores; those without memory of their own come last."""
    able = [each for each in machine.nodes if each.cpus]
    enough = [each for each in able if len(_cores(machine, each.number)) >= least] or able
    with_memory = [each for each in enough if each.memory_mib]
    cores = {each.number: len(_cores(machine, each.number)) for each in with_memory or enough}
    best = [node for node, count in cores.items() if count == max(cores.values())]
    if len(best) < 2:
        if len(cores) > 1:
            return best[0], "the node with the most cores"
        if len(machine.nodes) < 2:
            return min(best, default=0), "there is one node"
        if len(able) > len(enough):
            return best[0], "the one node that has enough cores"
        what = "memory" if len(able) == len(machine.nodes) else "CPUs and memory" if with_memory else "CPUs"
        return min(best, default=0), f"the one node that has {what}"
    homes = {nic: machine.nearest(nic.node, nodes_with_cpus(machine)) for nic in machine.nics}
    near = [nic for nic, home in homes.items() if nic.node is not None and home in best and not nic.virtual_function]
    if near:
        first = min(near, key=lambda each: each.address)
        return homes[first] or 0, f"the node of {first.name}, the first network card by address"
    return min(best), "the first node of those with the most cores"


def _cores(machine: Topology, node: int) -> list[tuple[int, ...]]:
    """The node's cores, each as its online logical CPUs, in the order of their first one."""
    cores: dict[int, list[int]] = {}
    for cpu in machine.cpus:
        if cpu.online and cpu.node == node:
            cores.setdefault(cpu.core, []).append(cpu.number)
    return [tuple(sorted(cores[core])) for core in sorted(cores)]


def _counts(wanted: Mapping[str, int | str], cores: int, node: int) -> dict[str, int]:
    unknown = sorted(set(wanted) - set(ROLES))
    if unknown:
        raise Mistake(f"roles: no role {unknown[0]!r}; expected {', '.join(ROLES)}")
    greedy = [role for role in ROLES if wanted.get(role) == "rest"]
    if len(greedy) > 1:
        raise Mistake(f"roles: {' and '.join(greedy)} both take the rest; only one role can")
    counts = {role: _number(wanted.get(role, 0), cores) for role in ROLES}
    left = cores - sum(counts.values())
    if left < 0:
        asked = ", ".join(f"{role} {wanted[role]}" for role in ROLES if role in wanted)
        raise Mistake(
            f"roles: {asked} is more than the {cores} core{'' if cores == 1 else 's'} of node {node}; "
            "take fewer, or another node's card"
        )
    if greedy:
        counts[greedy[0]] = left
    return counts


def show_roles(roles: Roles) -> Sequence[str]:
    """One line for each role that has a CPU."""
    return [f"{role}: CPUs {show_list(cpus)}, {WORDS[role]}" for role, cpus in roles.cpus.items() if cpus]
