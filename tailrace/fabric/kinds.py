"""The fabrics there are: what each has, what it cannot carry, whether it is installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tailrace.errors import Mistake
from tailrace.fabric.base import KERNEL, Fabric, Interface
from tailrace.fabric.card import NO_CABLING, Cabling, Card, SwitchOnCards
from tailrace.fabric.direct import Direct
from tailrace.fabric.linux_bridge import LinuxBridge
from tailrace.fabric.network import Network
from tailrace.fabric.ovs_dpdk import MEMORY_MIB, OvsDpdk
from tailrace.fabric.tailrace import SwitchOptions, TailraceFabric
from tailrace.plan.capabilities import capabilities
from tailrace.process.programs import own_program
from tailrace.resources.place import Placement
from tailrace.state.launch import Launcher

BACKPRESSURE_US = 20_000
ETHERNET_MTU = 1500
JUMBO_MTU = 9000
"""What our own programs take where the device can chain buffers (`dataplane/common/device.c`)."""


@dataclass(frozen=True)
class Making:
    """What a fabric is made with."""

    launcher: Launcher
    placement: Placement
    network: Network
    interfaces: tuple[Interface, ...]
    """That of each of its ports."""
    backpressure_us: int = BACKPRESSURE_US
    idle: str = "poll"
    cabling: Cabling = NO_CABLING
    """Which cards carry frames, where one is to."""
    offloads: bool = False
    """Whether guests may ask for checksums and segmentation."""


@dataclass(frozen=True)
class Kind:
    """A kind of fabric."""

    name: str
    about: str
    interfaces: tuple[Interface, ...]
    """Those that its ports can have; the first unless another is asked for."""
    polls: bool
    """Whether it has a polling thread, and so a core, of its own."""
    memory_mib: int
    """2 MiB pages of its own."""
    installed: Callable[[], None]
    """Raises Mistake, naming what to install, if it cannot be had."""
    make: Callable[[Making], Fabric]
    private: bool = True
    """Its ports are in a network namespace of their own."""
    vhost_mtu: int | None = None
    """Of its vhost-user ports; None is not known."""

    def mtu(self, interface: Interface) -> int | None:
        """The longest payload of a frame that a port carries; None is not known."""
        # Linux gives a new interface Ethernet's; DPDK's drivers for TAP and memif take no longer frames.
        return ETHERNET_MTU if interface in (*KERNEL, "memif") else self.vhost_mtu


def _tailrace(making: Making) -> Fabric:
    place = making.placement.switch
    outward = "wire" in making.interfaces
    devices = [*(["if:"] if set(making.interfaces) & set(KERNEL) else []), *(["pci:"] if outward else [])]
    options = SwitchOptions(
        place,
        making.backpressure_us,
        making.idle,
        pci=outward,
        keep=capabilities(devices),
        cores=making.placement.workers,
        device_queues=sum(not each.startswith("vhost-user") for each in making.interfaces),
        offloads=making.offloads,
    )
    if outward:
        return SwitchOnCards(making.launcher, options, making.network, making.cabling)
    return TailraceFabric(making.launcher, options, making.network)


def _ovs_dpdk(making: Making) -> Fabric:
    place = making.placement.switch
    return OvsDpdk(making.launcher, place, nice=place.nice, offloads=making.offloads, network=making.network)


def _own_switch() -> None:
    own_program("tailrace-switch")


_ALL = (
    Kind(
        "tailrace",
        "Tailrace's own one-copy switch",
        ("vhost-user", "memif", "tap", "veth"),
        polls=True,
        memory_mib=0,
        installed=_own_switch,
        make=_tailrace,
        vhost_mtu=JUMBO_MTU,
    ),
    Kind(
        "ovs-dpdk",
        "Open vSwitch with DPDK, of Debian",
        ("vhost-user", "tap", "veth"),
        polls=True,
        memory_mib=MEMORY_MIB,
        installed=OvsDpdk.installed,
        make=_ovs_dpdk,
        vhost_mtu=ETHERNET_MTU,  # Open vSwitch's own, unless mtu_request says otherwise
    ),
    Kind(
        "linux-bridge",
        "Linux's own bridge: the untuned reference",
        KERNEL,
        polls=False,
        memory_mib=0,
        installed=LinuxBridge.installed,
        make=lambda making: LinuxBridge(making.network),
    ),
    Kind(
        "direct",
        "from function to function without a switch: the lower bound",
        ("vhost-user", "memif", "veth"),
        polls=False,
        memory_mib=0,
        installed=lambda: None,
        make=lambda making: Direct(making.launcher.state, making.network),
        vhost_mtu=ETHERNET_MTU,  # of DPDK's back end, which one end of each link is
    ),
)
KINDS = {kind.name: kind for kind in _ALL}
"""Those that any machine can have."""
CARD = Kind(
    "card",
    "a network card's own switch, between virtual functions (SR-IOV)",
    ("passthrough", "wire"),
    polls=False,
    memory_mib=0,
    installed=lambda: None,
    make=lambda making: Card(making.launcher.state, making.cabling),
    private=False,
)
_OUTWARD = replace(KINDS["tailrace"], interfaces=(*KINDS["tailrace"].interfaces, "wire"))
MATRIX_KINDS = {**KINDS, _OUTWARD.name: _OUTWARD, CARD.name: CARD}
"""Those of a matrix, which knows which cards there are."""


def parse_fabrics(text: str, option: str = "--fabrics") -> list[Kind]:
    """`tailrace,ovs-dpdk` → their kinds. Raises Mistake."""
    expected = f"expected some of {', '.join(KINDS)}"
    names = [word.strip() for word in text.split(",")]
    for index, name in enumerate(names):
        if name not in KINDS:
            raise Mistake(f"{option} {text}: {name!r} is no fabric; {expected}")
        if name in names[:index]:
            raise Mistake(f"{option} {text}: {name} is listed twice; {expected}, each once")
    return [KINDS[name] for name in names]


def parse_interface(text: str, option: str = "--interface") -> Interface:
    """`tap`. Raises Mistake."""
    known = dict.fromkeys(interface for kind in KINDS.values() for interface in kind.interfaces)
    for interface in known:
        if interface == text:
            return interface
    raise Mistake(f"{option} {text}: no such kind of port; expected {', '.join(known)}")


def check_installed(kinds: Sequence[Kind]) -> None:
    """Raises Mistake, with the package, if one of them is not installed."""
    for kind in kinds:
        kind.installed()
