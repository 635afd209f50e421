"""Virtual functions of network cards (SR-IOV): made, bound to vfio-pci, and given back as they were.

Each step is small and may be repeated. What is on record, and when, is `tailrace.state.card_functions`. Source of the
files: Linux, Documentation/ABI/testing/sysfs-bus-pci.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tailrace.errors import Failure, Refused
from tailrace.kernel.tree import Tree
from tailrace.resources.cards import ADDRESS, NET, read_group
from tailrace.resources.topology import MOST_VFS, PCI

VFIO = "vfio-pci"
_PROBE = "/sys/bus/pci/drivers_probe"
_LINK_SECONDS = 10.0
_UP = 1
"""IFF_UP."""
_NO_IOMMU = "vfio-noiommu"
"""The name of a group that stands for none (drivers/vfio/group.c)."""
#: Who may have a device of a group beside one that a guest has (vfio_dev_driver_allowed() in drivers/vfio).
_HARMLESS = (None, VFIO, "pci-stub", "pcieport")


class Why(enum.Enum):
    """What is in the way of a virtual function."""

    NO_CARD = "no such card"
    NO_SRIOV = "no SR-IOV"
    TOO_MANY = "more functions than the card has"
    FIXED = "the number of functions is fixed while there are some"
    NO_INTERFACE = "the card has no interface"
    DOWN = "the card is down"
    NO_IOMMU = "no IOMMU"
    NO_VFIO = "no vfio-pci"
    IN_USE = "in use"
    SHARED_GROUP = "its group has other devices"
    REFUSED = "the driver refuses"
    GONE = "gone"


class FunctionRefused(Refused):
    """One virtual function cannot be had; says why, and the cure."""

    def __init__(self, why: Why, message: str) -> None:
        super().__init__(message)
        self.why = why


class FunctionsRefused(Refused):
    """Several cannot be had, by the names of who is to have them."""

    def __init__(self, found: Iterable[tuple[str, FunctionRefused]]) -> None:
        self.found = tuple(found)
        super().__init__("\n".join(self.lines))

    @property
    def lines(self) -> list[str]:
        return list(dict.fromkeys(f"{user}: {error}" for user, error in self.found))

    @property
    def whys(self) -> list[Why]:
        return [error.why for _, error in self.found]


@dataclass(frozen=True)
class PlannedVf:
    """A virtual function that a port is on, or a function has to itself."""

    of: str
    """Its card, as the spec names it."""
    card: str
    """The card's PCI address."""
    number: int
    address: str
    """Its own, also before it is made."""
    functions: int
    """How many the card needs for all."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What the card is to do with it (`tailrace.spec.virtual_function`)."""
    comes_and_goes: bool = False
    """A machine has it for a while (`tailrace.functions.failover`), and it has an address only then."""

    @property
    def name(self) -> str:
        return f"{self.of}/{self.number}"


@dataclass(frozen=True)
class Failover:
    """What carries the frames of a machine's vhost-user port while there is one."""

    port: int
    mac: str
    """Of both."""
    vf: PlannedVf | None
    """None: nothing does on this node."""


def locate(tree: Tree, of: str, number: int) -> tuple[str, str]:
    """The addresses of a card and of one of its functions, which need not have been made. Raises FunctionRefused."""
    card = _find_card(tree, of)
    device = f"{PCI}/{card}"
    most = _count(tree, card, "total")
    if tree.exists(f"{device}/physfn"):
        raise FunctionRefused(
            Why.NO_SRIOV, f"{of} is a virtual function itself, of {tree.target(f'{device}/physfn')}; name that card"
        )
    if not most:
        raise FunctionRefused(
            Why.NO_SRIOV,
            f"{of} has no virtual functions (no sriov_totalvfs); switch SR-IOV on in the firmware of machine and card, "
            "or name another card: `tailrace host inspect` lists them",
        )
    if number >= most:
        raise FunctionRefused(
            Why.TOO_MANY, f"{of} has at most {most} virtual functions; expected a number from 0 to {most - 1}"
        )
    return card, tree.target(f"{device}/virtfn{number}") or _to_be(tree, card, number)


def _find_card(tree: Tree, of: str) -> str:
    if ADDRESS.fullmatch(of.lower()):
        card: str | None = of.lower() if tree.exists(f"{PCI}/{of.lower()}") else None
    else:
        card = tree.target(f"{NET}/{of}/device") if "/" not in of else None
        if of in tree.names(NET) and (card is None or not ADDRESS.fullmatch(card)):
            raise FunctionRefused(
                Why.NO_SRIOV,
                f"{of} is no PCI card, so it has no virtual functions; `tailrace host inspect` lists the cards",
            )
    if card is None or not ADDRESS.fullmatch(card):
        raise FunctionRefused(
            Why.NO_CARD, f"there is no network card {of}; `tailrace host inspect` lists those of this machine"
        )
    return card


def _to_be(tree: Tree, card: str, number: int) -> str:
    """Where Linux will put a function (pci_iov_virtfn_bus() and _devfn())."""
    offset, stride = (tree.number(f"{PCI}/{card}/sriov_{which}") or 0 for which in ("offset", "stride"))
    domain, bus, rest = card.split(":")
    device, _, function = rest.partition(".")
    place = (int(bus, 16) << 8 | int(device, 16) << 3 | int(function)) + offset + stride * number
    return f"{domain}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7}"


def _count(tree: Tree, card: str, which: str) -> int:
    return min(max(tree.number(f"{PCI}/{card}/sriov_{which}vfs") or 0, 0), MOST_VFS)


def interface_of(tree: Tree, card: str) -> str | None:
    """The Linux interface of a card, by which it is told what to do with its functions."""
    return next(iter(tree.names(f"{PCI}/{card}/net")), None)


def is_there(tree: Tree, wanted: PlannedVf) -> bool:
    return tree.target(f"{PCI}/{wanted.card}/virtfn{wanted.number}") == wanted.address


def is_bound(tree: Tree, address: str) -> bool:
    """Whether vfio-pci has a device."""
    return tree.target(f"{PCI}/{address}/driver") == VFIO


#: What keeps a function from programs, and not from Linux's own driver.
_OF_VFIO = (Why.NO_IOMMU, Why.NO_VFIO, Why.SHARED_GROUP)


def obstacles(tree: Tree, wanted: Mapping[str, PlannedVf], *, linux: bool = False) -> list[tuple[str, FunctionRefused]]:
    """All that is in the way of functions, by the names of who is to have them, or of Linux's driver; looks only."""
    found = []
    for user, each in wanted.items():
        found += [(user, FunctionRefused(why, text)) for why, text in _of_card(tree, each)]
        if is_there(tree, each):
            found += [(user, FunctionRefused(why, text)) for why, text in _of_function(tree, each)]
    return [(user, why) for user, why in found if not (linux and why.why in _OF_VFIO)]


def _of_card(tree: Tree, wanted: PlannedVf) -> Iterator[tuple[Why, str]]:
    of, device = wanted.of, f"{PCI}/{wanted.card}"
    interface = interface_of(tree, wanted.card)
    if not tree.exists(device):
        yield Why.GONE, f"the card {of} is gone (PCI device {wanted.card}); plug it in, or name another one"
        return
    if interface is None:
        driver = tree.target(f"{device}/driver") or "none"
        yield Why.NO_INTERFACE, f"{of} has no Linux interface (its driver: {driver}); bind it to its own driver"
    elif not (tree.number(f"{NET}/{interface}/flags") or 0) & _UP:
        yield Why.DOWN, f"{of} is down, and its functions with it; run `sudo ip link set {interface} up`"
    if not tree.exists(f"{device}/iommu_group"):
        yield (
            Why.NO_IOMMU,
            f"{of} is behind no IOMMU, so its functions could reach all memory; switch VT-d or AMD-Vi on in the "
            "firmware, and boot with `intel_iommu=on` (AMD: nothing more)",
        )
    if not tree.exists(f"/sys/bus/pci/drivers/{VFIO}"):
        yield Why.NO_VFIO, f"this Linux has no driver {VFIO}; run `sudo modprobe {VFIO}`"
    have, most, need = _count(tree, wanted.card, "num"), _count(tree, wanted.card, "total"), wanted.functions
    if need > most:
        yield Why.TOO_MANY, f"{need} virtual functions are more than the {most} of {of}; expected at most {most}"
    elif 0 < have < need:
        yield (
            Why.FIXED,
            f"{of} has {have} virtual functions and {need} are needed, and Linux adds none to those there are; free "
            f"them and run `echo 0 | sudo tee {device}/sriov_numvfs`, or use a number below {have}",
        )


def _of_function(tree: Tree, wanted: PlannedVf) -> Iterator[tuple[Why, str]]:
    """Of one that is there already."""
    device = f"{PCI}/{wanted.address}"
    for pid in holders(tree, wanted.address):
        name = tree.text(f"/proc/{pid}/comm") or "?"
        yield Why.IN_USE, f"{wanted.name} is in use by process {pid} ({name}); end that, or use another function"
    for interface in tree.names(f"{device}/net"):
        if (tree.number(f"{NET}/{interface}/flags") or 0) & _UP:
            yield (
                Why.IN_USE,
                f"{wanted.name} is in use as Linux's interface {interface}; run `sudo ip link set {interface} down`, "
                "or use another function",
            )
    why = neighbours(tree, wanted)
    if why is not None:
        yield why.why, str(why)


def neighbours(tree: Tree, wanted: PlannedVf) -> FunctionRefused | None:
    """Why the IOMMU group of a function that is there keeps it from being given away; None if it does not."""
    return _shared(tree, wanted.address, wanted.name)


def vfio_group(tree: Tree, address: str) -> str:
    """The file of a device's IOMMU group, by which a program drives the device. Raises FunctionRefused if the program
    could reach more than the device, or vfio-pci has not got it."""
    if not tree.exists(f"{PCI}/{address}"):
        raise FunctionRefused(Why.GONE, f"there is no PCI device {address}; `lspci -D` lists those there are")
    why = _shared(tree, address, f"PCI device {address}")
    if why is not None:
        raise why
    driver = tree.target(f"{PCI}/{address}/driver")
    if driver != VFIO:
        raise FunctionRefused(
            Why.NO_VFIO,
            f"PCI device {address} has {f'the driver {driver}' if driver else 'no driver'}; bind it with "
            f"`dpdk-devbind.py -b {VFIO} {address}`",
        )
    return group_file(tree, address)


def group_file(tree: Tree, address: str) -> str:
    """The file of a device's IOMMU group, once vfio-pci has the device."""
    return f"/dev/vfio/{tree.target(f'{PCI}/{address}/iommu_group')}"


def _shared(tree: Tree, address: str, name: str) -> FunctionRefused | None:
    """Why a device cannot be given away, if it cannot: it reaches all memory, or Linux uses another of its group."""
    group = read_group(tree, address, f"{PCI}/{address}")
    if group is None:
        return FunctionRefused(
            Why.NO_IOMMU, f"{name} is behind no IOMMU; boot with `intel_iommu=on` (AMD: nothing more)"
        )
    if tree.text(f"{PCI}/{address}/iommu_group/name") == _NO_IOMMU:
        return FunctionRefused(
            Why.NO_IOMMU,
            f"{name} is in vfio's no-IOMMU mode, in which it could reach all memory; boot with `intel_iommu=on` (AMD: "
            "nothing more), and load vfio without enable_unsafe_noiommu_mode",
        )
    drivers = {each: tree.target(f"{PCI}/{each}/driver") for each in group.others}
    others = [f"{each} ({driver})" for each, driver in drivers.items() if driver not in _HARMLESS]
    if not others:
        return None
    more = f" and {len(others) - 4} more" if len(others) > 4 else ""
    return FunctionRefused(
        Why.SHARED_GROUP,
        f"{name} shares IOMMU group {group.number} with {', '.join(others[:4])}{more}, which Linux uses and it "
        "could reach; put the card into a slot of its own, switch ACS on in the firmware, or unbind the others",
    )


def holders(tree: Tree, address: str) -> list[int]:
    """The processes that have a device from vfio."""
    if not is_bound(tree, address):
        return []
    group = tree.target(f"{PCI}/{address}/iommu_group")
    files = {f"/dev/vfio/{group}"} | {f"/dev/vfio/devices/{each}" for each in tree.names(f"{PCI}/{address}/vfio-dev")}
    found = []
    for _, pid in tree.find("/proc", "*"):
        for name in tree.names(f"/proc/{pid}/fd"):
            with suppress(OSError, ValueError):  # it has been closed meanwhile
                if str(tree.at(f"/proc/{pid}/fd/{name}").readlink()) in files:
                    found.append(pid)
                    break
    return found


def still_held(tree: Tree, address: str, seconds: float = 3.0) -> str | None:
    """Why a device cannot be taken back: a process has it still, a while after it was to let go of it. Else None."""
    deadline = time.monotonic() + seconds
    while held := holders(tree, address):
        if time.monotonic() > deadline:
            return f"virtual function {address} is in use by process {held[0]}; end that, then `tailrace down`"
        time.sleep(0.05)
    return None


# --- making and binding --------------------------------------------------------------------------------------------


def make(tree: Tree, card: str, count: int) -> None:
    """Makes functions of a card that has none. No driver of Linux takes them. A card that loses its link by that, as
    with igb, has it again on return, or after some seconds has none. Raises OSError."""
    probe = f"{PCI}/{card}/sriov_drivers_autoprobe"
    before = tree.text(probe)
    linked = _has_link(tree, card)
    if before is not None:
        tree.write(probe, "0")
    try:
        tree.write(f"{PCI}/{card}/sriov_numvfs", str(count))
    finally:
        if before is not None:
            tree.write(probe, before)
    # A driver that is told of a rate compares it with that of the link.
    deadline = time.monotonic() + _LINK_SECONDS
    while linked and not _has_link(tree, card) and time.monotonic() < deadline:
        time.sleep(0.05)


def _has_link(tree: Tree, card: str) -> bool:
    return tree.text(f"{NET}/{interface_of(tree, card)}/carrier") == "1"


def unmake(tree: Tree, card: str, count: int, autoprobe: str | None) -> str | None:
    """Removes functions that were made here; returns why that cannot be, or None. A card that has gone, or has another
    number of them, which somebody else has made, is left alone."""
    device = f"{PCI}/{card}"
    if not tree.exists(device):
        return None
    try:
        if autoprobe is not None and tree.text(f"{device}/sriov_drivers_autoprobe") != autoprobe:
            tree.write(f"{device}/sriov_drivers_autoprobe", autoprobe)
        if _count(tree, card, "num") != count:
            return None
        for number in range(count):
            address = tree.target(f"{device}/virtfn{number}")
            # Linux would wait for that for good.
            problem = still_held(tree, address) if address else None
            if problem is not None:
                return problem
        tree.write(f"{device}/sriov_numvfs", "0")
    except OSError as error:
        return f"{device}/sriov_numvfs: {error.strerror}; run `echo 0 | sudo tee {device}/sriov_numvfs`"
    return None


def bind(tree: Tree, address: str) -> None:
    """Gives a function to vfio-pci. Raises OSError, Failure."""
    device = f"{PCI}/{address}"
    driver = tree.target(f"{device}/driver")
    if driver == VFIO:
        return
    tree.write(f"{device}/driver_override", VFIO)
    if driver is not None:
        tree.write(f"{device}/driver/unbind", address)
    tree.write(_PROBE, address)
    now = tree.target(f"{device}/driver")
    if now != VFIO:
        raise Failure(f"PCI device {address} does not take the driver {VFIO} (it has {now or 'none'}); see `dmesg`")


def bind_linux(tree: Tree, address: str) -> str:
    """Gives a function to Linux's own driver; returns the interface that it is then. Raises OSError, Failure."""
    device = f"{PCI}/{address}"
    if (tree.text(f"{device}/driver_override") or "(null)") != "(null)":
        tree.write(f"{device}/driver_override", "")
    driver = tree.target(f"{device}/driver")
    if driver == VFIO:
        tree.write(f"{device}/driver/unbind", address)
    if driver in (None, VFIO):
        tree.write(_PROBE, address)
    deadline = time.monotonic() + _LINK_SECONDS
    while not (names := tree.names(f"{device}/net")):
        if time.monotonic() > deadline:
            raise Failure(
                f"PCI device {address} becomes no interface of Linux's (its driver: "
                f"{tree.target(f'{device}/driver') or 'none'}); load the driver of the card's virtual functions, and "
                "see `dmesg`"
            )
        time.sleep(0.05)
    return next(iter(names))


def unbind(tree: Tree, address: str, driver: str, override: str) -> None:
    """Gives a function back to the driver that it had (none: empty), with the override that it had. Raises OSError."""
    device = f"{PCI}/{address}"
    now = tree.target(f"{device}/driver")
    if (tree.text(f"{device}/driver_override") or "") != override:
        # An empty line clears it.
        tree.write(f"{device}/driver_override", "" if override in ("", "(null)") else override)
    if (now or "") == driver:
        return
    if now is not None:
        tree.write(f"{device}/driver/unbind", address)
    if driver:
        tree.write(_PROBE, address)
