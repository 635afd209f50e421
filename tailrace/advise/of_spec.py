"""The chains of a spec as the model knows them: how many functions, which ends are ports of a card, what they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tailrace.advise.chain import BOTH, Chain
from tailrace.spec.model import Chain as SpecChain
from tailrace.spec.model import Function, Hop, Spec
from tailrace.spec.port import Device
from tailrace.spec.virtual_function import VirtualFunction

_ANY = "the card"


def chains_of(spec: Spec, *, on_card: bool = False) -> dict[str, Chain]:
    """All chains that lead through a function, by name. An end is a card's where it is an interface of Linux, a PCI
    device, a virtual function or a bond, or a port of a function whose other port is on a card; with `on_card` each is
    taken for one, all of one card."""
    cards = {
        name: [{_ANY}] * BOTH if on_card else [_cards_of(spec, hop) for hop in (chain.path[0], chain.path[-1])]
        for name, chain in spec.chains.items()
    }
    led = Counter(each for chain in spec.chains.values() for each in chain.through)
    found = {}
    for name, chain in spec.chains.items():
        # A function with a device of its own ends its chain, and is in no other.
        served = [(_cores(spec.functions[each]), led[each]) for each in chain.through]
        served += [(1, 1) for end in chain.ends if _passed(spec, end)]
        if served:
            cores, in_function = min(served, key=lambda each: each[0] / each[1])
            own = set().union(*cards[name])
            sharing = [sum(card in set().union(*ends) for ends in cards.values()) for card in own]
            found[name] = Chain(
                functions=len(served),
                workers=spec.fabric.number,
                ends=sum(map(bool, cards[name])),
                beside=len(spec.chains),
                on_card=max(sharing, default=1),
                links=BOTH if all(cards[name]) and not set.intersection(*cards[name]) else 1,
                cores=cores,
                in_function=in_function,
                one_replica=all(len(spec.functions[each].replicas) == 1 for each in _outermost(chain, cards[name])),
            )
    return found


def _outermost(chain: SpecChain, cards: Sequence[set[str]]) -> list[str]:
    """The functions next to those ends that are a card's."""
    return [chain.through[at] for at, card in zip((0, -1), cards, strict=True) if card and chain.through]


def _cores(function: Function) -> int:
    """CPUs that forward, of all replicas that get new flows: one of each where it is not known to have more queues."""
    active = list(function.replicas.values()).count("active")
    if not function.runtime.threads or function.own_image:
        return active
    return active * (function.cpus.most if function.cpus.automatic else function.cpus.start)


def _passed(spec: Spec, end: str) -> bool:
    """Whether an end is the port of a function whose other port is a device of its own."""
    function = spec.functions.get(end.rpartition(".")[0])
    return function is not None and bool(function.passed_through)


def _cards_of(spec: Spec, end: Hop) -> set[str]:
    """The cards of a chain's end, as the spec names them; none of a tester's end, a socket, a TAP or a program."""
    name = str(end)
    device = end.device or (spec.ports[name].device if name in spec.ports else None)
    if device is not None:
        return _cards_of_device(device)
    if _passed(spec, name):
        return {_card_of_uri(uri) for uri in spec.functions[name.rpartition(".")[0]].passed_through}
    return set()


def _cards_of_device(device: Device) -> set[str]:
    if device.vf is not None:
        return {device.vf.of}
    if device.bond is not None:
        return {member.removeprefix("if:") for member in device.bond.members}
    if device.pci is not None:
        return {_card_of_uri(f"pci:{device.pci}")}
    name = device.interface or device.xdp
    return {name} if name else set()


def _card_of_uri(uri: str) -> str:
    """Ports of one card are functions of one PCI device."""
    if uri.startswith("vf:"):
        return VirtualFunction.of_uri(uri).of
    return uri.removeprefix("pci:").partition(".")[0]
