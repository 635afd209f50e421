"""Two ports of one tester that are joined with each other and with nothing else, to measure the tester by itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Joined:
    """Two ports of one tester that are each other's other end."""

    kind: str
    """What they are, in words."""
    ports: tuple[tuple[str, str], ...]
    """Names and URIs, in the order in which they must be opened."""


def joined_ports(uri: str, socket: Path) -> Joined | None:
    """Two ports of the kind of `uri`, joined by a socket; None where that takes a cable."""
    scheme = uri.partition(":")[0]
    if scheme in ("vhost", "vhost-server"):
        # The back end is DPDK's own, which answers from a thread of its own while the front end is opened.
        return Joined("vhost-user", (("a", f"vdev:net_vhost0,iface={socket}"), ("b", f"vhost:{socket}")))
    if scheme == "memif":
        return Joined("memif", (("a", f"memif:{socket},role=server"), ("b", f"memif:{socket}")))
    return None
