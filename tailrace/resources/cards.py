"""What the network cards can give guests: physical and virtual functions, their IOMMU groups, the card's own switch.

Read through a `Tree`, as the topology is. Two things are not in /sys, and of a copied machine are not known: the
firmware's version and the mode of the card's switch. What Linux shows is a card's own word, so it is bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from tailrace.errors import Failure, Mistake
from tailrace.kernel.tree import Tree
from tailrace.process.programs import run_system
from tailrace.resources.ethtool import read_firmware
from tailrace.resources.pci_config import SIZE, PciConfig
from tailrace.resources.pcie_link import PcieLink, read_link
from tailrace.resources.topology import PCI, Nic

_LISTED = 1024
"""So many virtual functions, or neighbours in a group, are listed: more than any card or machine has."""
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_WORD = re.compile(r"[ -~]{1,64}")
_REPRESENTOR = re.compile(r"(?:c\d+)?pf\d+(?:vf|sf)\d+")
NET = "/sys/class/net"


@dataclass(frozen=True)
class Group:
    """An IOMMU group: its devices reach each other, so one owner has all of them."""

    number: int
    others: tuple[str, ...]
    """The other devices in it that are no bridges."""


@dataclass(frozen=True)
class VirtualFunction:
    """One of a card's."""

    number: int
    address: str
    driver: str | None
    """None: nobody has it."""
    interface: str | None
    group: Group | None


@dataclass(frozen=True)
class Card:
    """A physical function, and what it is made of."""

    name: str
    address: str
    firmware: str | None
    link: PcieLink | None
    group: Group | None
    """None: there is no IOMMU, or it is off."""
    isolated: bool | None
    """Whether ACS of all bridges above keeps it from its neighbours; None: it cannot be read."""
    eswitch: str | None
    """`legacy` or `switchdev`: the mode of the card's own switch."""
    representors: tuple[str, ...]
    """Interfaces that stand for its functions in switchdev mode."""
    virtual_functions: tuple[VirtualFunction, ...]


def read_cards(tree: Tree, nics: Iterable[Nic]) -> tuple[Card, ...]:
    """One for each network card that is no virtual function, in their order."""
    return tuple(_card(tree, nic) for nic in nics if not nic.virtual_function)


def _card(tree: Tree, nic: Nic) -> Card:
    device = f"{NET}/{nic.name}/device" if nic.interface else f"{PCI}/{nic.address}"
    representors = _representors(tree, nic.name) if nic.interface else ()
    return Card(
        nic.name,
        nic.address,
        _firmware(tree, nic, device),
        read_link(tree, device, _config(tree, device).payload),
        read_group(tree, nic.address, device),
        _isolated(tree, device),
        _eswitch(tree, nic.address) or ("switchdev" if representors else None),
        representors,
        tuple(read_virtual_functions(tree, device)),
    )


def read_virtual_functions(tree: Tree, device: str) -> Iterator[VirtualFunction]:
    """Those that the physical one in this folder has now."""
    for number in range(min(max(tree.number(f"{device}/sriov_numvfs") or 0, 0), _LISTED)):
        target = tree.target(f"{device}/virtfn{number}")
        if target is None or not ADDRESS.fullmatch(target):
            continue
        own = f"{PCI}/{target}"
        interface = next(iter(tree.names(f"{own}/net")), None)
        driver = _word(tree.target(f"{own}/driver"))
        yield VirtualFunction(number, target, driver, _word(interface), read_group(tree, target, own))


def read_group(tree: Tree, address: str, device: str) -> Group | None:
    """The IOMMU group of the device in this folder; None if it has none."""
    name = tree.target(f"{device}/iommu_group") or ""
    if not re.fullmatch(r"\d{1,9}", name):
        return None
    others = (each for each in tree.names(f"{device}/iommu_group/devices") if each != address)
    # A bridge carries what the others say, and says nothing itself.
    devices = (each for each in others if ADDRESS.fullmatch(each) and not _bridge(tree, each))
    return Group(int(name), tuple(islice(devices, _LISTED)))


def _bridge(tree: Tree, address: str) -> bool:
    return (tree.text(f"{PCI}/{address}/class") or "").startswith("0x0604")


def _config(tree: Tree, device: str) -> PciConfig:
    return PciConfig(tree.raw(f"{device}/config", SIZE) or b"")


def _isolated(tree: Tree, device: str) -> bool | None:
    """By the bridges above it, of which a device on the root bus has none."""
    tree.target(device)  # so that a copy has the link that is followed here
    try:
        above = [each.name for each in tree.at(device).resolve().parents]
    except (OSError, RuntimeError, ValueError):  # a circle of links
        return None
    if not any(_ROOT.fullmatch(name) for name in above):
        return None
    found = [_config(tree, f"{PCI}/{name}").isolates for name in above if ADDRESS.fullmatch(name)]
    return False if False in found else None if None in found else True


def _representors(tree: Tree, name: str) -> tuple[str, ...]:
    switch = tree.text(f"{NET}/{name}/phys_switch_id")
    if not switch:
        return ()
    found = (each for each in tree.names(NET) if tree.text(f"{NET}/{each}/phys_switch_id") == switch)
    ports = ((each, tree.text(f"{NET}/{each}/phys_port_name") or "") for each in found if _word(each))
    return tuple(islice((each for each, port in ports if _REPRESENTOR.fullmatch(port)), _LISTED))


def _firmware(tree: Tree, nic: Nic, device: str) -> str | None:
    if tree.live and nic.interface:
        return _word(read_firmware(nic.name))
    for name in tree.names(f"{device}/infiniband")[:1]:  # NVIDIA's and Broadcom's tell there too
        return _word(tree.text(f"{device}/infiniband/{name}/fw_ver"))
    return None


def _eswitch(tree: Tree, address: str) -> str | None:
    if not tree.live:
        return None
    name = f"pci/{address}"
    try:
        mode = json.loads(run_system("devlink", "-j", "dev", "eswitch", "show", name))["dev"][name]["mode"]
    except (Failure, Mistake, ValueError, LookupError, TypeError, OSError):
        return None  # its driver has no such switch, or this Linux no devlink
    return mode if mode in ("legacy", "switchdev") else None


def _word(text: str | None) -> str | None:
    """What may be printed as it is."""
    return text if text is not None and _WORD.fullmatch(text) else None
