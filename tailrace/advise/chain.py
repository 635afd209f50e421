"""What a chain carries, by the kind of its interfaces, and which kind is to be chosen.

Every frame of a chain passes all of its functions. Rates are of both directions together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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

VHOST_USER, SR_IOV, HYBRID = "vhost-user", "sr-iov", "hybrid"
INTERFACES = (VHOST_USER, SR_IOV, HYBRID)
"""Which hops have which: all by the switch; all by the card; those from the wire and to it by the card, and those
between functions by the switch. No other assignment carries more than the best of these: each more hop by the card
takes more of it, and whether one hop or several are the switch's, each of these has a core of its own."""
WORKER, FUNCTION = ("worker_ns", "worker_byte_ns"), ("function_ns", "function_byte_ns")
"""What is to be known of Tailrace's switch, and of the functions behind it."""
SWITCH_CORES = "the switch's"
"""As the limit of Tailrace's own switch begins."""
FRAMES = range(64, 1519)
_FURTHEST, _CLOSE = 10.0, 0.001


@dataclass(frozen=True)
class Chain:
    """What decides of a chain."""

    functions: int
    workers: int
    """Cores that the switch polls on."""
    wire: bool
    """Its ends are ports of a network card."""


@dataclass(frozen=True)
class Answer:
    """A chain with one kind of interface, at one size of frame."""

    interface: str
    limits: Sequence[Limit]
    """The lowest first."""

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


def answers(machine: Machine, chain: Chain, frame: int) -> list[Answer]:
    """For each kind of interface that the machine has, the best first."""
    found = [
        Answer(interface, sorted(each, key=lambda limit: limit.mpps))
        for interface in INTERFACES
        if (each := list(_limits(machine, chain, frame, interface)))
    ]
    return sorted(found, key=lambda answer: -answer.mpps)


def missing(machine: Machine, chain: Chain) -> dict[str, tuple[str, ...]]:
    """For each kind of interface that there is no answer for, the parameters that it needs and the machine has not."""
    switch = machine.lacks(_switch_needs(machine, chain))
    found = {VHOST_USER: switch}
    if chain.wire:
        card = machine.lacks((*CARD, "line_gbps"))
        found[SR_IOV] = card
        if chain.functions > 1:
            between = machine.lacks(_switch_needs(machine, replace(chain, wire=False)))
            found[HYBRID] = tuple(dict.fromkeys((*card, *between)))
    return {interface: names for interface, names in found.items() if names}


def unbounded(machine: Machine, chain: Chain) -> dict[str, tuple[str, ...]]:
    """The limits of Tailrace's switch that its answers go without, each with the parameters that the machine lacks."""
    if machine.lacks(WORKER):
        return {}
    found = {"the functions' cores": machine.lacks(FUNCTION)}
    if chain.wire:
        found["the link"] = machine.lacks(("line_gbps",))
    return {limit: names for limit, names in found.items() if names}


def _switch_needs(machine: Machine, chain: Chain) -> tuple[str, ...]:
    """The parameters of a switch: of Tailrace's, or of another where the machine has them, or more of them."""
    other = (*FED, *(BETWEEN if chain.functions > 1 else ()), *(POLLER if chain.wire else ()))
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


def turning_points(machine: Machine, chain: Chain) -> list[tuple[int, str]]:
    """From which size of frame on another kind is the best, with the kind; the first is that of the shortest."""
    found: list[tuple[int, str]] = []
    for frame in FRAMES:
        best = next(iter(answers(machine, chain, frame)), None)
        if best is not None and (not found or found[-1][1] != best.interface):
            found.append((frame, best.interface))
    return found


@dataclass(frozen=True)
class Turn:
    """What would make another kind of interface the best at one size of frame: one parameter, moved so far."""

    frame: int
    interface: str
    parameter: str
    unit: str
    now: float
    value: float


def changes(machine: Machine, chain: Chain, frame: int) -> list[Turn]:
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


def _turning_factor(machine: Machine, chain: Chain, frame: int, name: str, way: int) -> float | None:
    """By how much the parameter is to be multiplied (way 1) or divided (-1) until another kind is the best. Limits are
    monotonic in each parameter, so the turn is found by halving."""
    best = answers(machine, chain, frame)[0].interface

    def turned(factor: float) -> bool:
        return answers(machine.having({name: machine[name] * factor**way}), chain, frame)[0].interface != best

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


def _limits(machine: Machine, chain: Chain, frame: int, interface: str) -> Iterator[Limit]:
    if interface in missing(machine, chain) or (interface != VHOST_USER and not chain.wire):
        return
    if interface == VHOST_USER:
        yield from _switched(machine, chain, frame, hops=chain.functions + 1, ends=chain.wire)
    elif interface == SR_IOV:
        yield from _by_card(machine, frame, inner=chain.functions - 1)
    elif chain.functions > 1:
        yield from _by_card(machine, frame, inner=0)
        yield from _switched(machine, chain, frame, chain.functions - 1, ends=False)
    else:
        return
    if chain.wire and "line_gbps" in machine:
        yield Limit("the link", line_mpps(machine, frame))


def _by_card(machine: Machine, frame: int, inner: int) -> Iterator[Limit]:
    """Of a chain whose ends, and so many hops inside, are on virtual functions."""
    # In from the wire and out to it is one frame of the card's; a hop inside the card is two.
    handled, crossings = 1 + 2 * inner, 1 + inner
    yield Limit("the functions' cores", direct_mpps(machine, frame))
    what = f"the card's frame rate, {handled} for each frame" if handled > 1 else "the card's frame rate"
    yield Limit(what, machine["card_mpps"] / handled)
    yield Limit(
        f"PCIe, crossed {crossings} times each way" if crossings > 1 else "PCIe",
        1e3 / pcie_ns(machine, frame) / crossings,
    )


def _switched(machine: Machine, chain: Chain, frame: int, hops: int, *, ends: bool) -> Iterator[Limit]:
    """Of a chain that has so many hops by the switch, where `ends` with those from the card and to it."""
    if not machine.lacks(WORKER):
        if not machine.lacks(FUNCTION):
            yield Limit("the functions' cores", 1e3 / _time(machine, "function", frame))
        on = f"{SWITCH_CORES} core" if chain.workers == 1 else f"{SWITCH_CORES} {chain.workers} cores"
        many = "1 hop" if hops == 1 else f"{hops} hops"
        yield Limit(f"{on}, {many} for each frame", chain.workers * 1e3 / (hops * _time(machine, "worker", frame)))
        yield from memory(machine, frame, hops * ONE_COPY)
    else:
        yield Limit("the functions' cores and their hops", 1e3 / _time(machine, "vhost", frame))
        if chain.functions > 1:
            yield Limit("the cores that copy between functions", 1e3 / _time(machine, "hop", frame))
            yield from memory(machine, frame, (chain.functions - 1) * TWO_COPIES)
        if ends:
            yield poller(machine, frame, min(chain.functions, 2))
            yield Limit(
                "the link, as that core takes it without loss", machine["poller_line"] * line_mpps(machine, frame)
            )
