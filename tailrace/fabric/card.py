"""A network card's own switch as a fabric (SR-IOV): functions have virtual functions of the card, and no program
carries frames between them.

Tailrace's switch can have the ends of a chain on virtual functions too (`SwitchOnCards`), so that both are measured
alike.

Each pair of ports is a VLAN of its own in the card, in which either end has the address that the tester's frames bear,
so that they pass function after function as they are. North/south the outermost two are in none: frames come and go by
the card's cable, at whose far end the tester has an interface.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tailrace.errors import Mistake
from tailrace.fabric.base import Counters, Port, pairs
from tailrace.fabric.network import Network
from tailrace.fabric.tailrace import SwitchOptions, TailraceFabric
from tailrace.kernel.tree import Tree
from tailrace.resources.virtual_functions import FunctionsRefused, PlannedVf, locate, obstacles
from tailrace.state.card_functions import take_functions
from tailrace.state.launch import Launcher
from tailrace.state.record import Process, State
from tailrace.switch.config import Config

NEAR, FAR = "02:54:52:00:00:0a", "02:54:52:00:00:0b"
"""The tester's addresses (dataplane/tester/frames.c): frames from tester.a go to FAR, the others to NEAR."""
FIRST_VLAN = 3001


@dataclass(frozen=True)
class Cabling:
    """Which cards there are, and what hangs on them."""

    cards: tuple[str, ...] = ()
    """The card of tester.a's end, and that of tester.b's; one alone carries east/west."""
    outside: tuple[str, ...] = ()
    """The Linux interface at the far end of the cable of each."""

    @property
    def outward(self) -> bool:
        """Whether there is a cable for either end of a chain."""
        return len(self.cards) == len(self.outside) == 2

    def wires(self, ports: Sequence[Port]) -> dict[str, str]:
        """The URIs of the ports that are at a cable's far end. Raises Mistake if there is no cable."""
        found = [port for port in ports if port.interface == "wire"]
        if found and not self.outward:
            raise Mistake(
                "north/south by a card needs two cards and what is cabled to each; expected `--card A,B --outside C,D` "
                "(two ports of one card are two)"
            )
        return {port.name: f"if:{name}" for port, name in zip(found, self.outside, strict=False)}


NO_CABLING = Cabling()


Planner = Callable[[Cabling, Sequence[Port], Tree], dict[str, PlannedVf]]


def planned(cabling: Cabling, ports: Sequence[Port], tree: Tree) -> dict[str, PlannedVf]:
    """The virtual functions that ports are on, by the names of the ports. Raises Mistake if there can be none."""
    if not cabling.cards:
        raise Mistake("card: no card is named; expected --card NAME, as `tailrace host inspect` lists them")
    wires = cabling.wires(ports)
    joined = pairs(ports)
    taken: dict[str, int] = {}
    found: dict[str, PlannedVf] = {}
    for number, pair in enumerate(joined):
        of = cabling.cards[-1] if wires and number == len(joined) - 1 else cabling.cards[0]
        outside = any(port.name in wires for port in pair)
        if all(port.name in wires for port in pair):
            raise Mistake("card: between two cables there is no virtual function; expected a function, as in PVP")
        for port, mac in zip(pair, (NEAR, FAR), strict=True):
            if port.name in wires:
                continue
            card, address = locate(tree, of, taken.setdefault(of, 0))
            # A forwarder sends frames of others; some drivers look at that whatever their VLAN.
            settings = {"mac": mac, "spoof_check": False, "vlan": 0 if outside else FIRST_VLAN + number, "qos": 0}
            found[port.name] = PlannedVf(of, card, taken[of], address, 0, settings)
            taken[of] += 1
    return {name: _counted(each, taken) for name, each in found.items()}


def _counted(vf: PlannedVf, taken: Mapping[str, int]) -> PlannedVf:
    return PlannedVf(vf.of, vf.card, vf.number, vf.address, taken[vf.of], vf.settings)


def planned_ends(cabling: Cabling, ports: Sequence[Port], tree: Tree) -> dict[str, PlannedVf]:
    """The virtual functions by which a switch reaches the cables of its chain's ends. Raises Mistake."""
    found: dict[str, PlannedVf] = {}
    for name, of, mac in zip(cabling.wires(ports), cabling.cards, (FAR, NEAR), strict=False):
        number = sum(vf.of == of for vf in found.values())
        card, address = locate(tree, of, number)
        found[name] = PlannedVf(of, card, number, address, 0, {"mac": mac, "spoof_check": False, "vlan": 0, "qos": 0})
    need = Counter(vf.of for vf in found.values())
    return {name: _counted(vf, need) for name, vf in found.items()}


def check_card(cabling: Cabling, ports: Sequence[Port], tree: Tree | None = None, which: Planner = planned) -> None:
    """Raises Mistake, with all that is in the way, if these ports cannot be had of the cards; changes nothing."""
    tree = tree or Tree()
    found = obstacles(tree, which(cabling, ports, tree))
    if found:
        raise FunctionsRefused(found)


class Card:
    """Virtual functions of one card, or of two; its owner undoes what is on record."""

    kind = "card"

    def __init__(self, state: State, cabling: Cabling) -> None:
        self._state = state
        self._cabling = cabling

    def start(self) -> None:
        """Nothing runs but the card."""

    def carry(self, chain: str, ports: Sequence[Port]) -> dict[str, str]:  # noqa: ARG002 - there is one chain
        wanted = planned(self._cabling, ports, Tree())
        take_functions(self._state, wanted)
        return self._cabling.wires(ports) | {name: f"pci:{each.address}" for name, each in wanted.items()}

    def counters(self) -> Counters | None:
        return None

    def processes(self) -> list[Process]:
        return []

    def version(self) -> dict[str, str]:
        return {}

    def stop(self) -> None:
        """What is on record of it goes with the stand."""


class SwitchOnCards(TailraceFabric):
    """Tailrace's switch, whose `wire` ports are virtual functions of cards; its owner undoes what is on record."""

    def __init__(self, launcher: Launcher, options: SwitchOptions, network: Network, cabling: Cabling) -> None:
        super().__init__(launcher, options, network)
        self._cabling = cabling
        self._state = launcher.state
        self._wires: dict[str, str] = {}
        self._ends: dict[str, PlannedVf] = {}

    def carry(self, chain: str, ports: Sequence[Port]) -> dict[str, str]:
        self._wires = self._cabling.wires(ports)
        self._ends = planned_ends(self._cabling, ports, Tree())
        take_functions(self._state, self._ends)
        return super().carry(chain, ports)

    def _port(self, port: Port, uris: dict[str, str]) -> Config:
        if port.interface != "wire":
            return super()._port(port, uris)
        uris[port.name] = self._wires[port.name]
        return {"kind": "device", "device": f"pci:{self._ends[port.name].address}"}
