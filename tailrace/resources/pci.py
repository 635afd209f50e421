"""PCI devices of this machine, by their address."""

from __future__ import annotations

import re
from pathlib import Path

from tailrace.errors import Mistake

_ADDRESS = re.compile(r"(?:([0-9a-fA-F]{1,4}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
_DEVICES = Path("/sys/bus/pci/devices")


def check_pci(address: str) -> None:
    """Raises Mistake if this is no PCI address, or no device has it."""
    full = full_address(address)
    if not (_DEVICES / full).exists():
        raise Mistake(f"there is no PCI device {full}; `lspci -D` or `dpdk-devbind.py --status` lists those there are")


def check_passthrough(address: str) -> None:
    """Raises Mistake if a device cannot be given to a machine: only an IOMMU keeps it to that machine's memory."""
    check_pci(address)
    if not (_DEVICES / address / "iommu_group").exists():
        raise Mistake(
            f"PCI device {address} is behind no IOMMU, so it could reach all memory; switch VT-d or AMD-Vi on in the "
            "firmware, and boot with `intel_iommu=on` (AMD: nothing more)"
        )


def full_address(address: str) -> str:
    """The address with its domain, as Linux writes it. Raises Mistake if it is none."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise Mistake(f"{address!r} is no PCI address; expected one such as 0000:01:00.0")
    domain, bus, device, function = match.groups()
    return f"{(domain or '').zfill(4)}:{bus}:{device}.{function}".lower()
