"""A PCIe link: how fast it is, how fast it could be, and what of that is left for data.

Sources: PCI Express Base Specification 6.0 (encodings); R. Neugebauer et al., "Understanding PCIe performance for end
host networking", SIGCOMM 2018, section 3 (packets of the data link layer; 24 bytes around the data of each packet that
has a 64-bit address).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tailrace.kernel.tree import Tree

USUAL_PAYLOAD = 256
"""Bytes in a packet, where the configuration space cannot be read."""
AROUND = 24
"""Bytes around the data of a packet, or of a request for data."""
_LINK_LAYER = 57.88 / 62.96
"""What acknowledgements and flow control leave of a link."""
#: From this many GT/s on: the part of the bits that are no encoding. 8b/10b, 128b/130b, flits with their own checks.
_ENCODINGS = ((64.0, 242 / 256), (8.0, 128 / 130), (2.5, 8 / 10))
_SPEED = re.compile(r"(\d{1,3}(?:\.\d)?) GT/s(?: PCIe)?")
_WIDTHS = (1, 2, 4, 8, 12, 16, 32)


@dataclass(frozen=True)
class PcieLink:
    """What one device has to the rest of the machine. GT/s are of each lane."""

    gts: float
    lanes: int
    most_gts: float
    """Of the device itself; its slot may give less."""
    most_lanes: int
    payload: int | None
    """The most bytes of data in a packet; None: it cannot be read, and USUAL_PAYLOAD is assumed."""

    @property
    def gbps(self) -> float:
        """Gbit/s one way, without the encoding of the bits."""
        return self.gts * self.lanes * next((part for least, part in _ENCODINGS if self.gts >= least), 8 / 10)

    @property
    def effective_gbps(self) -> float:
        """Gbit/s of data one way in packets of the most bytes, beside what the link says of itself."""
        payload = self.payload or USUAL_PAYLOAD
        return self.gbps * _LINK_LAYER * payload / (payload + AROUND)

    @property
    def slowed(self) -> bool:
        """Whether the device could have a faster link than it has."""
        return self.gts < self.most_gts or self.lanes < self.most_lanes

    def __str__(self) -> str:
        return f"PCIe {self.gts:g} GT/s × {self.lanes}"


def read_link(tree: Tree, device: str, payload: int | None) -> PcieLink | None:
    """The link of the device in a folder of /sys; None where Linux does not tell of one."""
    gts, most_gts = (_speed(tree.text(f"{device}/{which}_link_speed")) for which in ("current", "max"))
    lanes, most_lanes = (tree.number(f"{device}/{which}_link_width") for which in ("current", "max"))
    if gts is None or lanes not in _WIDTHS:
        return None
    return PcieLink(
        gts,
        lanes,
        max(most_gts or gts, gts),
        max(most_lanes, lanes) if most_lanes in _WIDTHS else lanes,
        payload,
    )


def _speed(text: str | None) -> float | None:
    found = _SPEED.fullmatch(text or "")
    return float(found[1]) if found and 2.5 <= float(found[1]) <= 256 else None
