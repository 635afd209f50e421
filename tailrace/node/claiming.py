"""What a node or a measurement holds of the machine, put into the ledger before it is used (`resources/ledger.py`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from tailrace.kernel.boot import boot_id
from tailrace.node.strays import lost_pages
from tailrace.plan.planned import Plan
from tailrace.resources.ledger import Claim, Pages, Polled, claim_file, own_claim, write_claim
from tailrace.resources.pci import full_address
from tailrace.resources.place import Place, Placement
from tailrace.spec.interface import passed_through
from tailrace.state.record import Claimed, HugePages, State


def claim_plans(state: State, *plans: Plan) -> None:
    """Claims what these plans use, for a change from one to another. Raises Overtaken where another has claimed cores
    of the last one since it was made, Failure, Mistake."""
    uris = [port.device or "" for plan in plans for port in plan.ports]
    uris += [uri for plan in plans for function in plan.started for uri in function.interfaces if passed_through(uri)]
    devices = [uri.partition(":") for uri in uris]
    claim_placements(
        state,
        [plan.placement for plan in plans],
        nics=[full_address(at) if kind == "pci" else at for kind, _, at in devices if kind in ("pci", "if", "xdp")],
        ports=[port.name for plan in plans for port in plan.ports],
        known=plans[-1].beside,
    )


def claim_placements(
    state: State,
    placements: Iterable[Placement],
    *,
    nics: Iterable[str] = (),
    ports: Iterable[str] = (),
    known: Polled | None = None,
) -> None:
    """Claims the CPUs of placements, compared with what was `known` when they were chosen. Raises Overtaken, Failure,
    Mistake."""
    polled: set[int] = set()
    used: set[int] = set()
    for each in placements:
        places = [each.switch, *each.functions.values(), *([each.tester] if each.tester else [])]
        polled.update(each.workers, (core for place in places if place.mode == "poll" for core in place.cores))
        used.update(*(place.cpus for place in places))
    _claim(state, polled, used - polled, nics, ports, known)


def claim_place(state: State, place: Place) -> None:
    """Claims what one poller uses. Raises Failure, Mistake."""
    claim_cpus(state, [place.core], place.cpus)


def claim_cpus(state: State, exclusive: Collection[int], shared: Collection[int] = ()) -> None:
    """Raises Failure, Mistake."""
    _claim(state, set(exclusive), set(shared) - set(exclusive), (), ())


def claim_pages(state: State) -> None:
    """Claims the huge pages that are on record now, beside what is claimed. Raises Failure, Mistake."""
    claim = own_claim(state.folder)
    if claim is not None:
        write_claim(replace(claim, pages=_pages(state)))


def _claim(
    state: State,
    polled: set[int],
    shared: set[int],
    nics: Iterable[str],
    ports: Iterable[str],
    known: Polled | None = None,
) -> None:
    thing = Claimed(str(claim_file(state.folder)))
    if thing not in state.record.things:  # pages of a record that was lost are this one's from now on
        state.add(thing, *lost_pages(state.folder))
    claim = Claim(
        str(state.folder.absolute()),
        state.record.spec,
        boot_id(),
        state.record.owner,
        tuple(sorted(polled)),
        tuple(sorted(shared)),
        _pages(state),
        tuple(sorted(set(nics))),
        tuple(dict.fromkeys(ports)),
    )
    if own_claim(state.folder) != claim:
        write_claim(claim, known)


def _pages(state: State) -> tuple[Pages, ...]:
    things = [thing for thing in state.record.things if isinstance(thing, HugePages) and thing.there]
    return tuple(Pages(thing.kib, thing.added, thing.node) for thing in things)
