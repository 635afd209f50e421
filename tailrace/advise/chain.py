"""What a chain carries, by the kind of its interfaces, and which kind is to be chosen.

Every frame of a chain passes all of its functions. Rates are of both directions together. Chains that share a card, or
the switch's cores, are all at full load, and each has an equal part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from tailrace.advise.machine import PARAMETERS, Machine
from tailrace.advise.model import (
    BETWEEN,
    CARD,
    FED,
    ONE_COPY,
    POLLER,
    TWO_COPIES,
    Limit,
    direct_mpps,
    line_mpps,
    memory,
    pcie_ns,
    poller,
)
from tailrace.spec.traffic import IMIX_FRAMES, IMIX_WEIGHTS

VHOST_USER, SR_IOV, HYBRID = "vhost-user", "sr-iov", "hybrid"
INTERFACES = (VHOST_USER, SR_IOV, HYBRID)
"""Which hops have which: all by the switch; all by the card; those from the wire and to it by the card, and of those
between functions some. The latter are alike, so what matters is how many are the card's: every number is tried, because
the switch's cores may serve several hops. Ends by the switch carry no more where another hop is the card's: the card
has the wire's frames in any case, and the switch two hops more."""
WORKER, FUNCTION = ("worker_ns", "worker_byte_ns"), ("function_ns", "function_byte_ns")
"""What is to be known of Tailrace's switch, and of the functions behind it."""
SWITCH_CORES = "the switch's"
"""As the limit of Tailrace's own switch begins."""
FRAMES = range(64, 1519)
Frame = int | Literal["imix"]
"""Bytes with FCS; or the mix of a spec's tests."""
BOTH = 2
"""Ends of a chain."""
_FURTHEST, _CLOSE, _BETTER = 10.0, 0.001, 1e-6


@dataclass(frozen=True)
class Chain:
    """What decides of a chain."""

    functions: int
    workers: int
    """Cores that the switch polls on."""
    ends: int
    """How many of its two ends are ports of a network card."""
    beside: int = 1
    """Chains that the switch's cores and memory serve, this one included."""
    on_card: int = 1
    """Those that its card serves."""
    links: int = 1
    """Links that its ends are on: 2 if one is on another interface than the other."""
    cores: int = 1
    """CPUs that forward of the function that has the fewest for a chain, all replicas together. A virtual function has
    one queue, so they count behind the switch alone."""
    in_function: int = 1
    """Chains that lead through that function."""
    one_replica: bool = True
    """Whether the functions next to its ends on a card have one replica each, which a virtual function can be of."""

    @property
    def inner(self) -> int:
        """Hops between functions."""
        return self.functions - 1


@dataclass(frozen=True)
class Answer:
    """A chain with one kind of interface, at one size of frame."""

    interface: str
    limits: Sequence[Limit]
    """The lowest first."""
    by_card: int = 0
    """Of a hybrid: how many hops between functions are the card's."""
    inner: int = 0
    """Hops between functions."""
    in_spec: bool = True
    """Whether a spec can say it: a function that Tailrace starts has a port at the switch."""

    @property
    def bottleneck(self) -> Limit:
        return self.limits[0]

    @property
    def mpps(self) -> float:
        return self.bottleneck.mpps

    @property
    def by_name(self) -> dict[str, float]:
        """Each limit's Mpps."""
        return {limit.name: limit.mpps for limit in self.limits}

    @property
    def words(self) -> str:
        """The kind; of a hybrid with hops that could be either's, how many are whose."""
        return _words(self, (self.by_card, self.by_card))


def sizes_of(frame: Frame) -> Sequence[int]:
    """The sizes that are in a kind of frames."""
    return IMIX_FRAMES if frame == "imix" else (frame,)


def _over(frame: Frame, limits: Callable[[int], Iterable[Limit]]) -> list[Limit]:
    """The limits of frames; of a mix each takes the time that its sizes take in turn."""
    if frame != "imix":
        return list(limits(frame))
    return [
        Limit(
            same[0].name,
            sum(IMIX_WEIGHTS) / sum(many / of.mpps for many, of in zip(IMIX_WEIGHTS, same, strict=True)),
        )
        for same in zip(*(list(limits(size)) for size in IMIX_FRAMES), strict=True)
    ]


def _words(answer: Answer, by_card: tuple[int, int]) -> str:
    least, most = by_card
    if answer.interface != HYBRID or not most:
        return answer.interface
    many = f"{most}" if least == most else f"{least} to {most}"
    return f"{HYBRID}, {many} of {answer.inner} inner hops by the card"


def answers(machine: Machine, chain: Chain, frame: Frame) -> list[Answer]:
    """For each kind of interface that the machine has the best, best first."""
    found: dict[str, Answer] = {}
    for each in assignments(machine, chain, frame):
        found.setdefault(each.interface, each)
    return list(found.values())


def assignments(machine: Machine, chain: Chain, frame: Frame) -> list[Answer]:
    """The assignments of kinds of interfaces to hops that can be the best, best first; of equal ones first that which a
    spec can say, then that which takes less of the card."""
    lacking = missing(machine, chain)
    found = []
    for interface in INTERFACES:
        if interface not in lacking:
            found += list(_of_kind(machine, chain, frame, interface))
    return sorted(found, key=lambda each: (-each.mpps, not each.in_spec, each.by_card))


def _of_kind(machine: Machine, chain: Chain, frame: Frame, interface: str) -> Iterator[Answer]:
    def answer(limits: Callable[[int], Iterable[Limit]], by_card: int, in_spec: bool) -> Answer:
        found = sorted(_over(frame, limits), key=lambda each: each.mpps)
        return Answer(interface, found, by_card, chain.inner, in_spec)

    if interface == VHOST_USER:
        yield answer(lambda size: _switched(machine, chain, size, None), 0, True)
    elif interface == SR_IOV and chain.ends == BOTH:
        yield answer(lambda size: _by_card(machine, chain, size, chain.inner), chain.inner, False)
    elif interface == HYBRID and chain.ends and (most := _most_by_card(chain)) >= 0:
        sayable = _sayable(chain)
        for by_card in _worth_trying(machine, chain, frame, most, min(sayable, most)):
            both = partial(_hybrid, machine, chain, by_card=by_card)
            yield answer(both, by_card, by_card <= sayable and chain.one_replica)


def _most_by_card(chain: Chain) -> int:
    """Of a hybrid: the switch has one hop at least, which is an end's where the other end alone is a card's."""
    return chain.inner - (1 if chain.ends == BOTH else 0)


def _sayable(chain: Chain) -> int:
    """Of a hybrid: the most hops between functions that can be the card's in a spec. Each function has a port at the
    switch, so of two hops in a row one is the switch's; an end's hop is the card's."""
    free = chain.functions - 1 - chain.ends
    return max(free + 1, 0) // 2


def _hybrid(machine: Machine, chain: Chain, frame: int, by_card: int) -> Iterator[Limit]:
    yield from _by_card(machine, chain, frame, by_card)
    yield from _switched(machine, chain, frame, by_card)


def _worth_trying(machine: Machine, chain: Chain, frame: Frame, most: int, sayable: int) -> list[int]:
    """Numbers of hops by the card among which is the best, and the best up to what is sayable: with each more the card
    has more to do and the switch less, so it is where these two meet, found by halving."""

    def switch_is_ahead(by_card: int) -> bool:
        card, switch = (
            min(each.mpps for each in _over(frame, partial(of, machine, chain, by_card=by_card)))
            for of in (_by_card, _switched)
        )
        return switch >= card

    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if switch_is_ahead(middle) else (middle + 1, high)
    return sorted({0, sayable, max(low - 1, 0), low, min(low, sayable), min(max(low - 1, 0), sayable)})


def missing(machine: Machine, chain: Chain) -> dict[str, tuple[str, ...]]:
    """For each kind of interface that there is no answer for, the parameters that it needs and the machine has not."""
    found = {VHOST_USER: machine.lacks(_switch_needs(machine, chain, fed=chain.ends > 0))}
    card = machine.lacks((*CARD, "line_gbps"))
    if chain.ends == BOTH:
        found[SR_IOV] = card
    if chain.ends and _most_by_card(chain) >= 0:
        switch = machine.lacks(_switch_needs(machine, chain, fed=False))
        found[HYBRID] = tuple(dict.fromkeys((*card, *switch)))
    return {interface: names for interface, names in found.items() if names}


def unbounded(machine: Machine, chain: Chain) -> dict[str, tuple[str, ...]]:
    """The limits that answers by Tailrace's switch go without, each with the parameters that the machine lacks."""
    if machine.lacks(WORKER):
        return {}
    found = {"the functions' cores": machine.lacks(FUNCTION)}
    if chain.ends:
        found |= {"the link": machine.lacks(("line_gbps",)), "the card's frame rate": machine.lacks(("card_mpps",))}
        found["PCIe"] = machine.lacks(("pcie_gbps",))
    return {limit: names for limit, names in found.items() if names}


def _switch_needs(machine: Machine, chain: Chain, *, fed: bool) -> tuple[str, ...]:
    """The parameters of a switch, which a card feeds or not: of Tailrace's, or of another that the machine has."""
    other = (*FED, *(BETWEEN if chain.functions > 1 else ()), *(POLLER if fed else ()))
    if not machine.lacks(WORKER):
        return WORKER
    if not machine.lacks(other):
        return other
    return other if any(name in machine for name in FED) and not any(name in machine for name in WORKER) else WORKER


def circle(machine: Machine, frame: int) -> list[Limit]:
    """What bounds the rate of all functions together that send frames in a circle, as those of `tailrace bench chain`
    do: they share one core, and the switch has another. The lowest first; empty where the machine has no such switch.
    Each frame that a function forwards is a hop of the switch's, so their number does not matter."""
    found = []
    if not machine.lacks(WORKER):
        found.append(Limit("the switch's core", 1e3 / _time(machine, "worker", frame)))
    if not machine.lacks(FUNCTION):
        found.append(Limit("the core that the functions share", 1e3 / _time(machine, "function", frame)))
    return sorted(found, key=lambda limit: limit.mpps)


@dataclass(frozen=True)
class Best:
    """The best kind of interface for a range of sizes."""

    frames: tuple[int, int]
    """The shortest and the longest."""
    answer: Answer
    """Of the shortest."""
    by_card: tuple[int, int]
    """Of a hybrid, the fewest and the most inner hops that are the card's."""

    @property
    def words(self) -> str:
        """The kind; of a hybrid, how many hops are whose."""
        return _words(self.answer, self.by_card)


def turning_points(machine: Machine, chain: Chain) -> list[Best]:
    """The best kinds by size of frame: a new one where another kind is the best, or where a spec can no longer say it,
    or can."""
    found: list[Best] = []
    for frame in FRAMES:
        best = next(iter(answers(machine, chain, frame)), None)
        if best is None:
            continue
        last = found[-1] if found else None
        if last and (last.answer.interface, last.answer.in_spec) == (best.interface, best.in_spec):
            by_card = min(last.by_card[0], best.by_card), max(last.by_card[1], best.by_card)
            found[-1] = replace(last, frames=(last.frames[0], frame), by_card=by_card)
        else:
            found.append(Best((frame, frame), best, (best.by_card, best.by_card)))
    return found


@dataclass(frozen=True)
class Turn:
    """What would make another kind of interface the best at one size of frame: one parameter, moved so far."""

    frame: Frame
    interface: str
    parameter: str
    unit: str
    now: float
    value: float


def changes(machine: Machine, chain: Chain, frame: Frame) -> list[Turn]:
    """The smallest change of a single parameter, up or down, that changes the answer; empty where none within a factor
    of 10 does, or there is one kind alone."""
    kinds = answers(machine, chain, frame)
    if len(kinds) < 2:
        return []
    nearest: tuple[float, Turn] | None = None
    for name in machine.parameters:
        for way in (1, -1):
            factor = _turning_factor(machine, chain, frame, name, way)
            if factor is not None and (nearest is None or abs(math.log(factor)) < nearest[0]):
                other = answers(machine.having({name: machine[name] * factor}), chain, frame)[0].interface
                turn = Turn(frame, other, name, PARAMETERS[name].unit, machine[name], machine[name] * factor)
                nearest = (abs(math.log(factor)), turn)
    return [nearest[1]] if nearest else []


def _turning_factor(machine: Machine, chain: Chain, frame: Frame, name: str, way: int) -> float | None:
    """By how much the parameter is to be multiplied (way 1) or divided (-1) until another kind is the best. Limits are
    monotonic in each parameter, so the turn is found by halving."""
    best = answers(machine, chain, frame)[0].interface

    def turned(factor: float) -> bool:
        found = {
            each.interface: each.mpps
            for each in answers(machine.having({name: machine[name] * factor**way}), chain, frame)
        }
        return max(found.values()) > found[best] * (1 + _BETTER)

    low, high = 1.0, _FURTHEST
    if not turned(high):
        return None
    while high / low > 1 + _CLOSE:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if turned(middle) else (middle, high)
    return high**way


def _time(machine: Machine, name: str, frame: int) -> float:
    """In ns, of what takes so much for each frame, and for each byte above the shortest."""
    return machine[f"{name}_ns"] + machine[f"{name}_byte_ns"] * (frame - FRAMES[0])


def _part(limit: Limit, chains: int) -> Limit:
    """An equal part of what several chains share."""
    return limit if chains == 1 else Limit(f"{limit.name}, shared by {chains} chains", limit.mpps / chains)


def _each_core(limit: Limit, chain: Chain) -> Limit:
    """Of all cores of a function, over which its flows are spread."""
    return limit if chain.cores == 1 else Limit(f"{limit.name}, {chain.cores} of each", limit.mpps * chain.cores)


def _at_ends(machine: Machine, chain: Chain, frame: int, by_card: int) -> Iterator[Limit]:
    """Of the card, as far as the machine's is known: in from the wire and out to it is one frame of its, a hop inside
    it is two; each crosses PCIe once each way."""
    handled, crossings = chain.ends / BOTH + 2 * by_card, chain.ends / BOTH + by_card
    if "card_mpps" in machine:
        what = "the card's frame rate" + (f", {handled:g} for each frame" if handled > 1 else "")
        yield _part(Limit(what, machine["card_mpps"] / handled), chain.on_card)
    if "pcie_gbps" in machine:
        what = "PCIe" + (f", crossed {crossings:g} times each way" if crossings > 1 else "")
        yield _part(Limit(what, 1e3 / pcie_ns(machine, frame) / crossings), chain.on_card)
    if "line_gbps" in machine:
        what = "the link" if chain.links == 1 else f"the {chain.links} links"
        yield _part(Limit(what, line_mpps(machine, frame) * chain.links * BOTH / chain.ends), chain.on_card)


def _by_card(machine: Machine, chain: Chain, frame: int, by_card: int) -> Iterator[Limit]:
    """Of a chain whose ends on a card, and so many hops inside, are on virtual functions."""
    cores = Limit("the functions' cores, each on virtual functions", direct_mpps(machine, frame))
    yield _part(cores, chain.in_function)
    yield from _at_ends(machine, chain, frame, by_card)


def _switched(machine: Machine, chain: Chain, frame: int, by_card: int | None) -> Iterator[Limit]:
    """Of the hops by the switch: all but those of a hybrid that are the card's, or all there are (None)."""
    between = chain.inner - (by_card or 0)
    hops = between + (BOTH if by_card is None else BOTH - chain.ends)
    fed = by_card is None and chain.ends > 0
    if not machine.lacks(WORKER):
        if not machine.lacks(FUNCTION):
            function = Limit("the functions' cores", 1e3 / _time(machine, "function", frame))
            yield _part(_each_core(function, chain), chain.in_function)
        on = f"{SWITCH_CORES} core" if chain.workers == 1 else f"{SWITCH_CORES} {chain.workers} cores"
        many = "1 hop" if hops == 1 else f"{hops} hops"
        cores = Limit(f"{on}, {many} for each frame", chain.workers * 1e3 / (hops * _time(machine, "worker", frame)))
        yield _part(cores, chain.beside)
        touches = hops * ONE_COPY
    else:
        function = Limit("the functions' cores and their hops", 1e3 / _time(machine, "vhost", frame))
        yield _part(_each_core(function, chain), chain.in_function)
        if between:
            yield _each_core(Limit("the cores that copy between functions", 1e3 / _time(machine, "hop", frame)), chain)
        touches = between * TWO_COPIES
    if touches:
        for each in memory(machine, frame, touches):
            yield _part(each, chain.beside)
    if fed:
        yield from _at_ends(machine, chain, frame, 0)
        if machine.lacks(WORKER):
            yield _part(poller(machine, frame, min(chain.functions, 2) * chain.cores), chain.on_card)
            most = Limit(
                "the link, as that core takes it without loss", machine["poller_line"] * line_mpps(machine, frame)
            )
            yield _part(most, chain.on_card)
