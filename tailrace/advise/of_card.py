"""What the model knows of this machine's card without measuring: its link's rate, and what PCIe leaves for packets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace.advise.machine import Value
from tailrace.errors import Mistake
from tailrace.kernel.tree import Tree
from tailrace.resources.cards import read_cards
from tailrace.resources.pcie_link import AROUND, USUAL_PAYLOAD, PcieLink
from tailrace.resources.topology import read_nics


@dataclass(frozen=True)
class OfCard:
    """Parameters by name, or why there are none."""

    values: Mapping[str, Value] = field(default_factory=dict)
    note: str | None = None


def card_parameters(tree: Tree, name: str | None) -> OfCard:
    """Of the card (its interface or PCI address), or of the only one whose PCIe link Linux shows. Raises Mistake where
    there is none of that name."""
    nics = {each.name: each for each in read_nics(tree)}
    cards = {each.name: each for each in read_cards(tree, nics.values())}
    if name is None:
        shown = [each for each in cards.values() if each.link is not None]
        if not shown:
            return OfCard(note="no card with a PCIe link is here, so the file says nothing of one")
        if len(shown) > 1:
            listed = ", ".join(each.name for each in shown)
            return OfCard(note=f"several cards are here ({listed}): --card NAME adds what is known of one")
        card = shown[0]
    else:
        named = [each for each in cards.values() if name in (each.name, each.address)]
        if not named:
            there = ", ".join(cards) or "none"
            raise Mistake(f"--card {name}: no such network card; expected one of `tailrace host inspect`: {there}")
        card = named[0]
    found = {}
    if mbps := nics[card.name].mbps:
        found["line_gbps"] = Value(value=mbps / 1e3, source=f"the link of {card.name} now (host inspect)")
    if card.link is not None:
        source = f"{card.link} of {card.name}, without its link layer (host inspect): the most that can be"
        found["pcie_gbps"] = Value(value=float(f"{_packets(card.link):.4g}"), source=source)
    return OfCard(found, None if found else f"Linux shows neither a link nor PCIe of {card.name}")


def _packets(link: PcieLink) -> float:
    """Gbit/s one way with the headers of packets, which the model counts itself."""
    payload = link.payload or USUAL_PAYLOAD
    return link.effective_gbps * (payload + AROUND) / payload
