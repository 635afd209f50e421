"""Linux interfaces at a chain's end, made ready for a switch.

The kernel postpones checksums and segmentation to the hardware, and a virtual interface has none. The switch finishes
that work (dataplane/common/device_packet.h), as far as the kernel can describe it to a packet socket: TCP, and UDP
since Linux 6.2. Other long segments would be lost, so the other end of a veth must not leave any to be cut. And what
the switch's own end receives is not merged: its frames are those on the wire. What is switched off is recorded and put
back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.errors import Failure, Mistake
from tailrace.process.programs import run_system
from tailrace.resources.ethtool import enabled_offloads

#: On the end that the switch opens: nothing merged. By ethtool's short names.
_OWN = ("gro", "lro")
#: On the far end of a veth: segments that cannot be handed over are cut there. By ethtool's names, which are long.
_FAR = ("tx-sctp-segmentation", "tx-udp-segmentation", "tx-udp_tnl-segmentation", "tx-udp_tnl-csum-segmentation")


@dataclass(frozen=True)
class Change:
    """Offloads of one interface to switch off, with what they are now."""

    interface: str
    namespace: str | None
    before: dict[str, bool]

    @property
    def wanted(self) -> dict[str, bool]:
        return dict.fromkeys(self.before, False)


def _link(name: str) -> dict[str, Any]:
    try:
        found: list[dict[str, Any]] = json.loads(run_system("ip", "-json", "-details", "link", "show", "dev", name))
    except Failure:
        raise Mistake(f"there is no interface {name}; `ip link` lists those of this machine") from None
    return found[0]


def check_interface(name: str) -> None:
    """Raises Mistake if the interface is missing or down."""
    link = _link(name)
    if "UP" not in link.get("flags", []):
        raise Mistake(f"the interface {name} is down; run `sudo ip link set {name} up`")


def mtu_of(name: str) -> int | None:
    """The longest packet that an interface carries; None: it is not known."""
    try:
        return int(Path("/sys/class/net", name, "mtu").read_text())
    except (OSError, ValueError):
        return None


def changes_for(name: str) -> list[Change]:
    """The offloads to switch off for a chain's end at this interface.

    The far end of a veth in a network namespace without a name stays as it is: nobody can enter that.
    """
    link = _link(name)
    changes = [Change(name, None, enabled_offloads(name, _OWN))]
    if link.get("linkinfo", {}).get("info_kind") == "veth" and (peer := _veth_peer(link)) is not None:
        far, namespace = peer
        changes.append(Change(far, namespace, enabled_offloads(far, _FAR, namespace)))
    return [change for change in changes if change.before]


def _veth_peer(link: dict[str, Any]) -> tuple[str, str | None] | None:
    """Name and namespace of the other end; None if its namespace has no name."""
    number = link.get("link_netnsid")
    if number is None:
        return (str(link["link"]), None) if "link" in link else None
    for entry in json.loads(run_system("ip", "-json", "netns", "list-id") or "[]"):
        if entry.get("nsid") == number and entry.get("name"):
            namespace = str(entry["name"])
            for other in json.loads(run_system("ip", "-json", "link", "show", namespace=namespace)):
                if other["ifindex"] == link["link_index"]:
                    return str(other["ifname"]), namespace
    return None
