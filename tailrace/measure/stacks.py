"""Two Linux network stacks, and the ways of Linux's own in which they are joined: what a switch is compared with.
(`tailrace.measure.tcp` joins them by a switch, and measures.)

veth: a cable, nothing between (native); linux-bridge: what a host has where nobody has tuned anything (default);
passthrough: a virtual function of a card for each, with Linux's driver, joined by the card. Each stack lives in a
network namespace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tailrace.errors import Failure
from tailrace.fabric.card import FAR, FIRST_VLAN, NEAR
from tailrace.fabric.network import Network
from tailrace.kernel.tree import Tree
from tailrace.process.process import undisturbed
from tailrace.process.programs import run_system
from tailrace.resources.virtual_functions import FunctionsRefused, PlannedVf, locate, obstacles
from tailrace.state.card_functions import take_functions
from tailrace.state.record import Namespace, State

VETH, LINUX_BRIDGE, PASSTHROUGH = "veth", "linux-bridge", "passthrough"
OWN_WAYS = (VETH, LINUX_BRIDGE, PASSTHROUGH)
MTU = 1500
INTERFACE = "eth0"
ADDRESSES = ("198.18.88.1", "198.18.88.2")


def ip(*words: str) -> None:
    """Raises Failure with what it says."""
    run_system("ip", *words)


def add_stack(interface: str, namespace: str, end: int, within: str | None = None) -> None:
    """Gives an interface, of the namespace `within` or of this one, to a stack as its only one, with its address."""
    ip(*(("-n", within) if within else ()), "link", "set", interface, "netns", namespace, "name", INTERFACE)
    ip("-n", namespace, "address", "add", f"{ADDRESSES[end]}/24", "dev", INTERFACE)
    ip("-n", namespace, "link", "set", INTERFACE, "mtu", str(MTU), "up")


def _of_card(card: str) -> dict[str, PlannedVf]:
    tree = Tree()
    found = {}
    for number, mac in enumerate((NEAR, FAR)):
        at, address = locate(tree, card, number)
        found[f"--card: stack {number}"] = PlannedVf(
            card, at, number, address, 2, {"mac": mac, "vlan": FIRST_VLAN, "qos": 0}
        )
    return found


def check_card(card: str) -> None:
    """Raises Mistake, with all that is in the way, if two stacks cannot have functions of a card."""
    found = obstacles(Tree(), _of_card(card), linux=True)
    if found:
        raise FunctionsRefused(found)


@contextmanager
def joined(state: State, way: str, card: str | None, namespaces: Sequence[str]) -> Iterator[None]:
    """Two stacks, joined in one of OWN_WAYS; all is gone after the block. Raises Failure, Mistake."""
    before = list(state.record.things)
    network = Network(state)
    try:
        for name in namespaces:
            state.add(Namespace(name))
            ip("netns", "add", name)
        if way == PASSTHROUGH:
            within = None
            interfaces = list(take_functions(state, _of_card(card or ""), linux=True).values())
        else:
            within = network.name
            network.create()
            interfaces = _own_interfaces(network, way)
        for end, interface in enumerate(interfaces):
            add_stack(interface, namespaces[end], end, within)
        yield
    finally:
        with undisturbed():
            # A function is taken from its driver wherever its interface is, and the namespaces are empty then.
            ours = [thing for thing in reversed(state.record.things) if thing not in before]
            failed = [problem for thing in ours if (problem := state.undo(thing)) is not None]
        if failed:
            raise Failure("; ".join(failed))


def _own_interfaces(network: Network, way: str) -> list[str]:
    """The ends of a cable, or of two with a bridge between them."""
    if way == VETH:
        return list(network.veth())
    cables = [network.veth() for _ in range(2)]
    network.bridge([own for own, _ in cables])
    return [guest for _, guest in cables]
