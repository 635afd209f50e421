"""Virtual functions of cards, for who has them in a plan: on record before anything is changed, and given back.

What is on record (`MadeFunctions`, `TakenFunction` in `tailrace.state.record`) is undone by `tailrace down` after any
end, and by a change to a plan without them. Taking them again is harmless: what is right stays, what has gone is made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tailrace.errors import Failure, Mistake
from tailrace.kernel.tree import Tree
from tailrace.resources.card_netlink import GROUPS, CardNetlink, CardSettings
from tailrace.resources.topology import PCI
from tailrace.resources.virtual_functions import (
    FunctionRefused,
    FunctionsRefused,
    PlannedVf,
    Why,
    bind,
    bind_linux,
    interface_of,
    is_bound,
    is_there,
    make,
    neighbours,
    obstacles,
    still_held,
    unbind,
    vfio_group,
)
from tailrace.state.record import MadeFunctions, State, TakenFunction

_log = logging.getLogger(__name__)


def _fresh(state: State, tree: Tree, wanted: Mapping[str, PlannedVf]) -> dict[str, PlannedVf]:
    """Those that are not ours yet, or have gone."""
    ours = {thing.path for thing in state.record.things if isinstance(thing, TakenFunction)}
    return {user: each for user, each in wanted.items() if each.address not in ours or not is_there(tree, each)}


def check_functions(state: State, wanted: Mapping[str, PlannedVf], tree: Tree | None = None) -> None:
    """Looks whether virtual functions can be had. Raises FunctionsRefused with all that is in the way."""
    tree = tree or Tree()
    _raise(obstacles(tree, _fresh(state, tree, wanted)))


def missing_functions(wanted: Mapping[str, PlannedVf], tree: Tree | None = None) -> list[str]:
    """Those of a plan that is up that are not there, as after a reset of their card, or that vfio-pci has not got."""
    tree = tree or Tree()
    return [each.name for each in _missing(tree, wanted).values()]


def why_missing(wanted: Mapping[str, PlannedVf], tree: Tree | None = None) -> list[str]:
    """What is in the way of those, each with its cure, or that vfio-pci has not got them; looks only."""
    tree = tree or Tree()
    missing = _missing(tree, wanted)
    found = obstacles(tree, missing)
    hindered = {user for user, _ in found}
    for user, each in missing.items():
        if user not in hindered and is_there(tree, each):
            try:
                vfio_group(tree, each.address)
            except FunctionRefused as why:
                found.append((user, why))
    return FunctionsRefused(found).lines


def _missing(tree: Tree, wanted: Mapping[str, PlannedVf]) -> dict[str, PlannedVf]:
    return {user: each for user, each in wanted.items() if not (is_there(tree, each) and is_bound(tree, each.address))}


def take_functions(
    state: State,
    wanted: Mapping[str, PlannedVf],
    tree: Tree | None = None,
    card: CardSettings | None = None,
    *,
    linux: bool = False,
) -> dict[str, str]:
    """Makes, sets and binds virtual functions, by the names of who has them (`Plan.vfs`), to vfio-pci, or to `linux`'s
    own driver: then it returns the interface of each. What was begun is on record if it fails. Raises FunctionsRefused,
    Failure."""
    if not wanted:
        return {}
    tree, card = tree or Tree(), card or CardNetlink()
    fresh = _fresh(state, tree, wanted)
    _raise(obstacles(tree, fresh, linux=linux))
    for each in {each.card: each for each in fresh.values()}.values():
        _make(state, tree, each)
    refused: list[tuple[str, FunctionRefused]] = []
    for user, each in wanted.items():
        refused += ((user, why) for why in _take(state, tree, card, each, linux=linux))
    _raise(refused)
    if not linux:
        return {}
    try:
        return {user: bind_linux(tree, each.address) for user, each in wanted.items()}
    except OSError as error:
        raise Failure(f"virtual functions: {error.strerror or error}; see `dmesg`") from None


def have_functions(state: State) -> bool:
    """Whether there is anything of them on record."""
    return any(isinstance(thing, MadeFunctions | TakenFunction) for thing in state.record.things)


def return_functions(state: State, wanted: Mapping[str, PlannedVf]) -> list[str]:
    """Gives back all but these; returns what could not be."""
    addresses, cards = {each.address for each in wanted.values()}, {each.card for each in wanted.values()}
    left = [
        thing
        for thing in reversed(state.record.things)
        if (isinstance(thing, TakenFunction) and thing.path not in addresses)
        or (isinstance(thing, MadeFunctions) and thing.path not in cards)
    ]
    return [problem for thing in left if (problem := state.undo(thing)) is not None]


def give_back(thing: TakenFunction, tree: Tree, card: CardSettings | None = None) -> str | None:
    """Puts a function back as it was; returns why that cannot be, or None. One that has gone has nothing to be put
    back."""
    device = f"{PCI}/{thing.path}"
    if tree.target(f"{PCI}/{thing.card}/virtfn{thing.number}") != thing.path:
        return None
    problem = still_held(tree, thing.path)
    if problem is not None:
        return problem
    problems = []
    interface = interface_of(tree, thing.card)
    if interface is not None and thing.changed:
        before = {word: thing.before[word] for word in thing.changed if word in thing.before}
        refused = _set(card or CardNetlink(), interface, thing.number, before, lambda _: None)
        # What a driver does not take back goes with a function that was made for this.
        problems += [] if thing.made else refused
    try:
        unbind(tree, thing.path, thing.driver, thing.override)
    except OSError as error:
        problems.append(f"{device}: {error.strerror or error}")
    return f"virtual function {thing.path}: {'; '.join(problems)}" if problems else None


NO_MAC = "00:00:00:00:00:00"
"""With this one a function is given no frames to an address of its own."""


def give_address(tree: Tree, of: str, number: int, mac: str, card: CardSettings | None = None) -> None:
    """Has a card give a function the frames for an address. One that refuses gives them to whom it did before."""
    card, interface = card or CardNetlink(), interface_of(tree, of)
    try:
        if interface is not None and card.read(interface, number).get("mac") != mac:
            card.write(interface, number, {"mac": mac})
    except OSError as error:
        _log.warning("%s does not take the address %s for function %d: %s", of, mac, number, error.strerror or error)


def take_address(tree: Tree, of: str, number: int, card: CardSettings | None = None) -> None:
    """Has a card give a function no frames for an address of its own any more."""
    give_address(tree, of, number, NO_MAC, card)


def _make(state: State, tree: Tree, wanted: PlannedVf) -> None:
    """Makes the functions of a card that has none."""
    device = f"{PCI}/{wanted.card}"
    if tree.number(f"{device}/sriov_numvfs"):
        return
    thing = MadeFunctions(wanted.card, wanted.functions, tree.text(f"{device}/sriov_drivers_autoprobe"))
    known = next(
        (each for each in state.record.things if isinstance(each, MadeFunctions) and each.path == wanted.card), None
    )
    if known is None:
        state.add(thing)
    elif known != thing:
        state.alter(known, thing)
    try:
        make(tree, wanted.card, wanted.functions)
    except PermissionError:
        raise Mistake(f"virtual functions of {wanted.of} are made by root: run as root (sudo)") from None
    except OSError as error:
        raise Failure(
            f"{wanted.of} does not make {wanted.functions} virtual functions: {error.strerror}; see `dmesg`, and give "
            "the kernel `pci=realloc` if it finds no room for them"
        ) from None


def _take(state: State, tree: Tree, card: CardSettings, wanted: PlannedVf, *, linux: bool) -> list[FunctionRefused]:
    """Sets one function, and binds it unless that is `linux`'s; returns what its card refuses."""
    interface = interface_of(tree, wanted.card)
    if not is_there(tree, wanted) or interface is None:
        now = tree.target(f"{PCI}/{wanted.card}/virtfn{wanted.number}")
        where = f"at {now}, not at {wanted.address}: run the command again" if now else "not there"
        return [FunctionRefused(Why.GONE, f"virtual function {wanted.name} is {where}")]
    refused: list[FunctionRefused] = []
    try:
        thing = _recorded(state, tree, card, interface, wanted)
        # As found, where another plan has set what this one does not.
        settings = {word: thing.before[word] for word in thing.changed if word in thing.before} | wanted.settings
        if wanted.comes_and_goes:
            settings.pop("mac", None)

        def changing(words: Sequence[str]) -> None:
            nonlocal thing
            now = replace(thing, changed=list(dict.fromkeys((*thing.changed, *words))))
            state.alter(thing, now)
            thing = now

        if wanted.comes_and_goes and "mac" not in thing.changed:
            changing(["mac"])
        refused += [
            FunctionRefused(Why.REFUSED, f"{wanted.name}: {why}")
            for why in _set(card, interface, wanted.number, settings, changing)
        ]
        if not linux and (why := neighbours(tree, wanted)) is not None:
            refused.append(why)
        if not linux and not refused:
            bind(tree, wanted.address)
    except OSError as error:
        raise Failure(f"virtual function {wanted.name}: {error.strerror or error}; see `dmesg`") from None
    return refused


def _recorded(state: State, tree: Tree, card: CardSettings, interface: str, wanted: PlannedVf) -> TakenFunction:
    """A function as it was before, on record. Raises OSError."""
    things = state.record.things
    known = next((each for each in things if isinstance(each, TakenFunction) and each.path == wanted.address), None)
    if known is not None:
        return known
    device = f"{PCI}/{wanted.address}"
    thing = TakenFunction(
        wanted.address,
        wanted.card,
        wanted.number,
        tree.target(f"{device}/driver") or "",
        tree.text(f"{device}/driver_override") or "",
        any(isinstance(each, MadeFunctions) and each.path == wanted.card for each in things),
        card.read(interface, wanted.number),
    )
    state.add(thing)
    return thing


def _set(
    card: CardSettings,
    interface: str,
    number: int,
    settings: Mapping[str, Any],
    changing: Callable[[Sequence[str]], None],
) -> list[str]:
    """Tells a card what is otherwise; returns what it refuses. `changing` is called before each change."""
    refused = []
    now = card.read(interface, number)
    for group in GROUPS:
        wanted = {word: settings[word] for word in group if word in settings}
        if all(now.get(word) == value for word, value in wanted.items()):
            continue
        # One message has all of a group: what is not asked for stays.
        values = {word: wanted.get(word, now.get(word, 0)) for word in group}
        changing(group)
        try:
            card.write(interface, number, values)
        except OSError as error:
            said = ", ".join(f"{word} {value}" for word, value in wanted.items())
            refused.append(
                f"the driver of {interface} refuses {said} ({error.strerror}); leave it out, or give another value"
            )
    return refused


def _raise(found: Sequence[tuple[str, FunctionRefused]]) -> None:
    if found:
        raise FunctionsRefused(found)
