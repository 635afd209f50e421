"""A PCI device's configuration space, as far as its `config` file in /sys shows it: root sees all, others 64 bytes.

The bytes are the device's own, and a copied one's are anybody's: each list in them is followed for a bounded number of
steps. Source: PCI Express Base Specification 5.0, sections 7.5.3 (PCI Express capability) and 7.7.8 (ACS).
"""

from __future__ import annotations

from collections.abc import Iterator

SIZE = 4096
_EXPRESS, _ACS = 0x10, 0x0D
_FIRST, _FIRST_EXTENDED = 0x34, 0x100
_STEPS = 64
"""More capabilities than any device has: a list that goes on is a circle."""
_ISOLATES = 0b11101
"""Source validation, request and completion redirect, upstream forwarding: what Linux asks of each bridge
(REQ_ACS_FLAGS in drivers/iommu/iommu.c)."""


class PciConfig:
    """What is in a configuration space; None where it does not show it."""

    def __init__(self, content: bytes) -> None:
        self._content = content[:SIZE]

    @property
    def payload(self) -> int | None:
        """The most bytes that the device puts into a packet (Max_Payload_Size)."""
        at = next((at for kind, at in self._capabilities() if kind == _EXPRESS), None)
        control = self._number(at + 8, 2) if at is not None else None
        size = control >> 5 & 7 if control is not None else None
        return 128 << size if size is not None and size <= 5 else None

    @property
    def isolates(self) -> bool | None:
        """Whether ACS keeps what is below a port from reaching its neighbours past the IOMMU."""
        if len(self._content) < _FIRST_EXTENDED + 4:
            return None
        at = next((at for kind, at in self._extended() if kind == _ACS), None)
        control = self._number(at + 6, 2) if at is not None else 0
        return control & _ISOLATES == _ISOLATES if control is not None else None

    def _number(self, at: int, size: int) -> int | None:
        found = self._content[at : at + size]
        return int.from_bytes(found, "little") if len(found) == size else None

    def _capabilities(self) -> Iterator[tuple[int, int]]:
        """Kind and place of each."""
        at = self._number(_FIRST, 1)
        for _ in range(_STEPS):
            if not at or at < 0x40 or (head := self._number(at & ~3, 2)) is None:
                return
            yield head & 0xFF, at & ~3
            at = head >> 8

    def _extended(self) -> Iterator[tuple[int, int]]:
        at = _FIRST_EXTENDED
        for _ in range(_STEPS):
            head = self._number(at, 4)
            if not head:
                return
            yield head & 0xFFFF, at
            at = head >> 20 & ~3
            if at < _FIRST_EXTENDED:
                return
