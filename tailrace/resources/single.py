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


def nic_identity(nic: str, network: str, tree: Tree) -> str:
    """A card, named by its PCI address or an interface, by its address; any other interface by its network namespace
    (empty: this process's) and its name."""
    if _ADDRESS.fullmatch(nic):
        return nic
    own = own_network()
    if network in ("", own):
        address = tree.target(f"/sys/class/net/{nic}/device")
        if address is not None and _ADDRESS.fullmatch(address):
            return address
    return f"{network or own} {nic}"


def nic_words(nic: str) -> str:
    """The PCI device 0000:01:00.0; the interface eth0."""
    return f"the {'PCI device' if _ADDRESS.fullmatch(nic) else 'interface'} {nic}"
