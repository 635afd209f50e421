"""What a node or a measurement holds of the machine, put into the ledger before it is used (`resources/ledger.py`)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tailrace.fabric.tailrace import used_mib
from tailrace.functions.runtimes import STARTERS
from tailrace.kernel.boot import boot_id
from tailrace.kernel.tree import Tree
from tailrace.node.strays import lost_pages
from tailrace.plan.planned import TESTER_BUFFERS_MIB, Plan, PlannedPort
from tailrace.resources import hugepages
from tailrace.resources.claim import Claim, Memory, Pages, Part
from tailrace.resources.conflict import check_beside, memory_node, read_memory
from tailrace.resources.hugepages import PAGE_KIB, PAGE_MIB, Wanted
from tailrace.resources.ledger import Polled, claim_file, claims, own_claim, write_claim
from tailrace.resources.pci import full_address
from tailrace.resources.place import Place, Placement
from tailrace.resources.single import own_network
from tailrace.spec.interface import passed_through
from tailrace.state.record import Claimed, HugePages, State

_INTERFACES = ("if", "xdp", "tap")
_NONE: Wanted = MappingProxyType({})


def claim_plans(state: State, *plans: Plan, pages: Wanted = _NONE) -> None:
    """Claims what these plans use, for a change from one to another; `pages`: huge pages that are to be free for it.
    Raises Overtaken where another has claimed cores of the last one since it was made, Refused where what others hold
    leaves no room for it, Failure, Mistake."""
    _write(state, _claim_of(state, plans), plans[-1].beside, _to_add(pages))


def check_free(state: State, *plans: Plan, pages: Wanted = _NONE) -> None:
    """Whether nobody else has a network card, an interface or a socket of these plans, and their memory is left; looks
    only. Raises Refused."""
    check_beside(_claim_of(state, plans), own_claim(state.folder), claims(), _to_add(pages))


def claim_placements(state: State, placements: Iterable[Placement]) -> None:
    """Claims the CPUs of placements. Raises Failure, Mistake."""
    _write(state, _with_cpus(_own(state), *_cpus_of(placements)))


def claim_place(state: State, place: Place) -> None:
    """Claims what one poller uses. Raises Failure, Mistake."""
    claim_cpus(state, [place.core], place.cpus)


def claim_cpus(state: State, exclusive: Collection[int], shared: Collection[int] = ()) -> None:
    """Raises Failure, Mistake."""
    _write(state, _with_cpus(_own(state), set(exclusive), set(shared)))


def claim_pages(state: State) -> None:
    """Claims the huge pages that are on record now, beside what is claimed. Raises Failure, Mistake."""
    claim = own_claim(state.folder)
    if claim is not None:
        write_claim(replace(claim, pages=_pages(state)))


def _claim_of(state: State, plans: Sequence[Plan]) -> Claim:
    parts = _parts(plans)
    return replace(
        _with_cpus(_own(state), *_cpus_of(plan.placement for plan in plans)),
        nics=tuple(sorted({nic for part in parts for nic in part.nics})),
        ports=tuple(dict.fromkeys(port.name for plan in plans for port in plan.ports)),
        network=own_network(),
        parts=parts,
    )


def _own(state: State) -> Claim:
    """Of what is up there, with nothing but its pages."""
    folder, record = str(state.folder.absolute()), state.record
    return Claim(folder, record.spec, boot_id(), record.owner, pages=_pages(state))


def _with_cpus(claim: Claim, polled: set[int], used: set[int]) -> Claim:
    return replace(claim, exclusive=tuple(sorted(polled)), shared=tuple(sorted(used - polled)))


def _cpus_of(placements: Iterable[Placement]) -> tuple[set[int], set[int]]:
    """The CPUs that are polled on, and all that are used."""
    polled: set[int] = set()
    used: set[int] = set()
    for each in placements:
        places = [each.switch, *each.functions.values(), *([each.tester] if each.tester else [])]
        polled.update(each.workers, *map(_polls, places))
        used.update(*(place.cpus for place in places))
    return polled, used


def _parts(plans: Sequence[Plan]) -> tuple[Part, ...]:
    """Who has what; of several plans all that one of them has."""
    found: dict[str, _Part] = {}
    machine = read_memory(Tree())
    nodes = {cpu.number: memory_node(machine, cpu.node) for cpu in machine.cpus}
    home = memory_node(machine, None)
    for plan in plans:
        for user in _users(plan):
            part = found.setdefault(user.who, _Part())
            part.exclusive |= set(user.polls)
            part.used |= set(user.place.cpus)
            part.alone |= user.alone
            node = nodes.get(user.place.core, home)
            part.uses(node, user)
            part.nics |= dict.fromkeys(user.nics)
        for port in plan.ports:
            part = found.setdefault(f"ports.{port.name}", _Part())
            part.nics |= dict.fromkeys(nic for device in port.devices for nic in _nics(device))
            part.sockets |= dict.fromkeys(_sockets(port))
    return tuple(part.done(who) for who, part in found.items() if part != _Part())


@dataclass
class _Part:
    """A part as it comes together, each thing once."""

    nics: dict[str, None] = field(default_factory=dict)
    sockets: dict[str, None] = field(default_factory=dict)
    memory: dict[tuple[int, bool], int] = field(default_factory=dict)
    """MiB by node, and whether it is reserved."""
    pages: dict[tuple[int, int | None], int] = field(default_factory=dict)
    """Huge pages by their size in KiB and node."""
    exclusive: set[int] = field(default_factory=set)
    used: set[int] = field(default_factory=set)
    alone: bool = False

    def uses(self, node: int | None, user: _User) -> None:
        """Its memory, and its huge pages of a size: the most of what is said of a node."""
        kib, count = user.pages
        if node is not None and user.mib:
            key = node, user.reserved
            self.memory[key] = max(self.memory.get(key, 0), user.mib)
        if count:
            self.pages[kib, node] = max(self.pages.get((kib, node), 0), count)

    def done(self, who: str) -> Part:
        return Part(
            who,
            tuple(self.nics),
            tuple(self.sockets),
            tuple(Memory(node, mib, reserved) for (node, reserved), mib in self.memory.items()),
            tuple(sorted(self.exclusive)),
            tuple(sorted(self.used - self.exclusive)),
            tuple(Pages(kib, count, node) for (kib, node), count in self.pages.items()),
            self.alone,
        )


@dataclass(frozen=True)
class _User:
    """One that runs by a plan."""

    who: str
    place: Place
    polls: Collection[int]
    mib: int
    """Of ordinary memory, at the most."""
    pages: tuple[int, int] = (0, 0)
    """The size of its huge pages in KiB, and how many."""
    nics: Sequence[str] = ()
    """Cards that are passed through to it."""
    reserved: bool = False
    """Its ordinary memory is taken whole, of its node."""
    alone: bool = False
    """Nobody else is put on its CPUs."""


def _users(plan: Plan) -> Iterator[_User]:
    where = plan.placement
    queues = sum(port.queues for port in plan.ports if not port.guest)
    polls = {*where.workers, *_polls(where.switch)}
    yield _User("switch", where.switch, polls, used_mib(queues, plan.memory_mib))
    if where.tester is not None:
        mib = TESTER_BUFFERS_MIB if plan.tester else 0
        pages = (PAGE_KIB, mib // PAGE_MIB) if plan.huge else (0, 0)
        yield _User("tester", where.tester, _polls(where.tester), 0 if plan.huge else mib, pages)
    for each in plan.started:
        place = where.functions[each.name]
        runtime = STARTERS[each.runs]
        size = runtime.ordinary_bytes(each.memory_bytes, each.tables_mib, huge=plan.huge)
        own = [uri for uri in each.interfaces if passed_through(uri)]
        own += [f"pci:{one.vf.address}" for one in each.failover if one.vf is not None]
        nics = [nic for uri in own for nic in _nics(uri)]
        pages = (each.page_kib, plan.pages_for(each))
        mib, alone = -(-size >> 20), each.latency == "high"
        yield _User(f"functions.{each.name}", place, _polls(place), mib, pages, nics, runtime.reserves, alone)


def _polls(place: Place) -> tuple[int, ...]:
    return place.cores if place.mode == "poll" else ()


def _to_add(pages: Wanted) -> dict[int, int]:
    """The huge pages that are missing of these, by a CPU on their node and the size; in MiB by node."""
    found: dict[int, int] = {}
    if pages:
        machine = read_memory(Tree())
        nodes = {cpu.number: cpu.node for cpu in machine.cpus}
        for base, (node, kib, count) in hugepages.by_pool(pages, nodes).items():
            at = memory_node(machine, node)
            missing = hugepages.missing(count, base) * kib >> 10
            if at is not None and missing:
                found[at] = found.get(at, 0) + missing
    return found


def _nics(uri: str | None) -> list[str]:
    kind, _, at = (uri or "").partition(":")
    if kind == "pci":
        return [full_address(at)]
    return [at] if kind in _INTERFACES else []


def _sockets(port: PlannedPort) -> list[str]:
    """Those that nobody else can have: a guest's, and one of memif's that the switch makes."""
    kind, _, at = (port.device or "").partition(":")
    path, *words = at.split(",")
    if kind == "memif" and "role=server" in words:
        return [os.path.realpath(path)]
    return [] if port.path is None else [os.path.realpath(port.path)]


def _write(
    state: State, claim: Claim, known: Polled | None = None, adding: Mapping[int, int] = MappingProxyType({})
) -> None:
    thing = Claimed(str(claim_file(state.folder)))
    if thing not in state.record.things:  # pages of a record that was lost are this one's from now on
        state.add(thing, *lost_pages(state.folder))
        claim = replace(claim, pages=_pages(state))
    if adding or own_claim(state.folder) != claim:
        write_claim(claim, known, adding)


def _pages(state: State) -> tuple[Pages, ...]:
    things = [thing for thing in state.record.things if isinstance(thing, HugePages) and thing.there]
    return tuple(Pages(thing.kib, thing.added, thing.node, thing.before) for thing in things)
