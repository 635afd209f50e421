"""What of this machine only one can have, by one name whatever it is called: network cards and Linux's interfaces, and
sockets outside a node's own folder."""

from __future__ import annotations

import re
from pathlib import Path

from tailrace.kernel.tree import Tree

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def own_network() -> str:
    """The network namespace of this process, by a name that no other has; empty where the kernel does not tell."""
    try:
        found = Path("/proc/self/ns/net").stat()
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}"


def nic_name(nic: str, network: str) -> str:
    """A card named by its PCI address, or an interface of a network namespace (empty: this process's)."""
    return nic if _ADDRESS.fullmatch(nic) else f"{network or own_network()} {nic}"


def card_of(nic: str, network: str, tree: Tree) -> str | None:
    """The PCI address of the card that an interface is of, which may have others; None if it is of none, is a card
    itself, or is in another network namespace, where it cannot be looked for."""
    if _ADDRESS.fullmatch(nic) or network not in ("", own_network()):
        return None
    address = tree.target(f"/sys/class/net/{nic}/device")
    return address if address is not None and _ADDRESS.fullmatch(address) else None


def nic_words(nic: str) -> str:
    """The PCI device 0000:01:00.0; the interface eth0."""
    return f"the {'PCI device' if _ADDRESS.fullmatch(nic) else 'interface'} {nic}"
