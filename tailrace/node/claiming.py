"""What a node or a measurement holds of the machine, put into the ledger before it is used (`resources/ledger.py`)."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from tailrace.kernel.boot import boot_id
from tailrace.node.strays import lost_pages
from tailrace.plan.planned import Plan, PlannedPort
from tailrace.resources.ledger import Claim, Pages, Part, Polled, check_singles, claim_file, own_claim, write_claim
from tailrace.resources.pci import full_address
from tailrace.resources.place import Place, Placement
from tailrace.resources.single import own_network
from tailrace.spec.interface import passed_through
from tailrace.state.record import Claimed, HugePages, State

_INTERFACES = ("if", "xdp", "tap")


def claim_plans(state: State, *plans: Plan) -> None:
    """Claims what these plans use, for a change from one to another. Raises Overtaken where another has claimed cores
    of the last one since it was made, Refused where another has a card or a socket of it, Failure, Mistake."""
    _write(state, _claim_of(state, plans), plans[-1].beside)


def check_free(state: State, plan: Plan) -> None:
    """Whether nobody else has a network card, an interface or a socket of a plan; looks only. Raises Refused."""
    check_singles(_claim_of(state, [plan]))


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
        polled.update(each.workers, (core for place in places if place.mode == "poll" for core in place.cores))
        used.update(*(place.cpus for place in places))
    return polled, used


def _parts(plans: Sequence[Plan]) -> tuple[Part, ...]:
    """Who has what, by who; of several plans all."""
    nics: dict[str, dict[str, None]] = {}
    sockets: dict[str, dict[str, None]] = {}
    for plan in plans:
        for port in plan.ports:
            nics.setdefault(f"ports.{port.name}", {}).update(dict.fromkeys(_nics(port.device)))
            sockets.setdefault(f"ports.{port.name}", {}).update(dict.fromkeys(_sockets(port)))
        for each in plan.started:
            uris = [uri for uri in each.interfaces if passed_through(uri)]
            nics.setdefault(f"functions.{each.name}", {}).update((nic, None) for uri in uris for nic in _nics(uri))
    return tuple(
        Part(who, tuple(nics[who]), tuple(sockets.get(who, ()))) for who in nics if nics[who] or sockets.get(who)
    )


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


def _write(state: State, claim: Claim, known: Polled | None = None) -> None:
    thing = Claimed(str(claim_file(state.folder)))
    if thing not in state.record.things:  # pages of a record that was lost are this one's from now on
        state.add(thing, *lost_pages(state.folder))
        claim = replace(claim, pages=_pages(state))
    if own_claim(state.folder) != claim:
        write_claim(claim, known)


def _pages(state: State) -> tuple[Pages, ...]:
    things = [thing for thing in state.record.things if isinstance(thing, HugePages) and thing.there]
    return tuple(Pages(thing.kib, thing.added, thing.node) for thing in things)
