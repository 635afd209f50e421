"""Network cards for a terminal, and the same as plain data: link, IOMMU group, functions, the card's own switch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tailrace.resources.cards import Card, Group, VirtualFunction
from tailrace.resources.pcie_link import USUAL_PAYLOAD

_SHOWN = 8
"""So many functions or devices are shown one by one; --json has all."""


def card_document(card: Card | None) -> dict[str, Any]:
    """What a card adds to its network card's document; nothing for one that is none of its own."""
    if card is None:
        return {}
    found = asdict(card)
    del found["name"], found["address"]
    if card.link is not None:
        link = {"gbps": round(card.link.gbps, 2), "effective_gbps": round(card.link.effective_gbps, 2)}
        found["link"] |= link
    return found


def card_lines(card: Card | None) -> Iterator[str]:
    """What is known of a card."""
    if card is None:
        return
    if card.link is not None:
        link = card.link
        slowed = f"; able to {link.most_gts:g} GT/s × {link.most_lanes}" if link.slowed else ""
        packets = f"packets of {link.payload or USUAL_PAYLOAD} B{'' if link.payload else ', assumed'}"
        yield f"{link}{slowed}: {link.gbps:.1f} Gbit/s each way, {link.effective_gbps:.1f} of data ({packets})"
    if card.firmware is not None:
        yield f"firmware {card.firmware}"
    acs = {True: "ACS above it", False: "no ACS above it", None: "ACS unknown"}[card.isolated]
    yield f"{_group(card.group)}; {acs}"
    if card.eswitch is not None:
        names = ", ".join(card.representors[:_SHOWN]) + (", …" if len(card.representors) > _SHOWN else "")
        yield f"its own switch is in {card.eswitch} mode" + (f", represented by {names}" if names else "")
    for each in card.virtual_functions[:_SHOWN]:
        yield _function(each)
    if len(card.virtual_functions) > _SHOWN:
        yield f"{len(card.virtual_functions) - _SHOWN} more virtual functions, which --json lists"


def _function(each: VirtualFunction) -> str:
    interface = f", interface {each.interface}" if each.interface else ""
    return f"virtual function {each.number} at {each.address}: {each.driver or 'no driver'}{interface}, " + (
        _group(each.group)
    )


def _group(group: Group | None) -> str:
    if group is None:
        return "no IOMMU group"
    if not group.others:
        return f"IOMMU group {group.number}, alone"
    more = len(group.others) - _SHOWN
    names = ", ".join(group.others[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"IOMMU group {group.number} with {names}"
