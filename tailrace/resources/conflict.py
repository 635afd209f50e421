"""Whether a claim can stand beside those of others: what only one can have, and memory by NUMA node.

What is left of a node is told by its size and by what is reserved, always the same, and not by what happens to be
free (MemAvailable). What a limit only allows is shown, and refused to nobody: it is of no node, and seldom used. CPUs
are chosen by what others hold, and so are the ledger's (`tailrace.resources.ledger`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tailrace.errors import Refused
from tailrace.kernel.tree import Tree
from tailrace.resources.claim import Claim
from tailrace.resources.topology import Node, Topology, read_cpus, read_nodes

RESERVE, MOST_MIB = 16, 2048
"""Of each node's ordinary memory one part of so many is promised to nobody, so many MiB at most: it is for the kernel,
and what else runs."""


@dataclass(frozen=True)
class Room:
    """The memory of a node, in MiB."""

    node: int
    total: int
    pages: int
    """In huge pages, of all sizes, whoever has them."""
    held: int
    """Reserved."""

    @property
    def reserve(self) -> int:
        return min((self.total - self.pages) // RESERVE, MOST_MIB)

    @property
    def left(self) -> int:
        return max(self.total - self.pages - self.reserve - self.held, 0)


def room(node: Node, claims: Iterable[Claim]) -> Room:
    """What these claims leave of a node."""
    pages = sum(pool.total * pool.kib for pool in node.huge) >> 10
    return Room(node.number, node.memory_mib, pages, sum(claim.reserved(node.number) for claim in claims))


def memory_node(machine: Topology, node: int | None) -> int | None:
    """The node whose memory is used by who runs on a node: its own, or the nearest that has any; None where no memory
    is known."""
    return machine.nearest(machine.home(node), [each.number for each in machine.nodes if each.memory_mib])


def read_memory(tree: Tree) -> Topology:
    """The machine without its network cards, which are many files."""
    cpus = read_cpus(tree)
    return Topology(cpus, read_nodes(tree, cpus), ())


def check_beside(claim: Claim, own: Claim | None, claims: Iterable[Claim], adding: Mapping[int, int] = {}) -> None:
    """Raises Refused, with the key at fault, who holds it and the figures, where another of these claims has what only
    one can have, or a node has not as much memory left as this one takes. What its `own` has already is not refused.
    `adding`: huge pages that are to be added for it, in MiB by node."""
    tree = Tree()
    if own is not None and not own.holds():
        own = None
    others = [other for other in claims if other.folder != claim.folder]
    _check_singles(claim, own, others, tree)
    if own is not None and not own.parts:
        return  # the version that has written it said nothing of memory
    if adding or any(each.reserved for part in claim.parts for each in part.memory):
        for node in read_memory(tree).nodes:
            _check_memory(claim, own, others, node, adding.get(node.number, 0))


def _check_singles(claim: Claim, own: Claim | None, others: Iterable[Claim], tree: Tree) -> None:
    singles, cards = claim.singles(), claim.cards(tree)
    had = {**own.singles(), **own.cards(tree)} if own is not None else {}
    for other in others:
        theirs = other.singles()
        both = [(singles, theirs), (cards, theirs), (singles, other.cards(tree))]
        for wanted, key, (what, who) in ((mine, key, held) for mine, them in both for key, held in them.items()):
            if key in wanted and key not in had:
                named, whose = wanted[key]
                holder = other.whose(lambda part, who=who: part.who == who)  # type: ignore[misc]
                also = f" as {what}" if what != named else ""
                raise Refused(f"{whose}: {named} is held by {holder}{also}; use another, or {other.ending}")


def _check_memory(claim: Claim, own: Claim | None, others: Iterable[Claim], node: Node, adding: int) -> None:
    wanted, had = claim.reserved(node.number), own.reserved(node.number) if own is not None else 0
    left = room(node, others)
    if not left.total or wanted + adding <= max(left.left, 0 if adding else had):
        return
    shares = [
        (each.mib, part) for part in claim.parts for each in part.memory if each.node == node.number and each.reserved
    ]
    most = max(shares, key=lambda share: share[0], default=None)
    key = "fabric" if most is None or "." not in most[1].who else most[1].who
    who = ", ".join(f"{part.name} {mib}" for mib, part in shares)
    needs = " and ".join(
        [*([f"{wanted} MiB ({who})"] if wanted else []), *([f"{adding} MiB of new huge pages"] if adding else [])]
    )
    has = f"{left.total}: {left.pages} are in huge pages, {left.reserve} kept for the system"
    holders = [(mib, other) for other in others if (mib := other.reserved(node.number))]
    held = "".join(f", {mib} held by {other.words}" for mib, other in holders)
    cure = f", or {holders[0][1].ending}" if holders else ""
    said = f"{needs} would be of node {node.number}, which has {left.left} MiB left of {has}{held}"
    raise Refused(f"{key}.memory: {said}; expected less{cure}")
