"""A virtual function in front of a machine's vhost-user port: plugged while the machine runs, and unplugged.

The machine's Linux makes one interface of both (net_failover): frames go by the function while there is one, and by the
port else. Both have one address. The card has it for the function while that is plugged, and not after: then frames for
it leave the card where the switch is.

Sources: the kernel's Documentation/networking/net_failover.rst; libvirt's formatdomain.html, <teaming>; the virtio
specification 1.2, 5.1.3 (VIRTIO_NET_F_STANDBY).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from xml.etree import ElementTree

from tailrace.errors import Failure, Refused
from tailrace.functions.domain import FAILOVER, SLOT, alias, failover_device
from tailrace.functions.vfio import keep_closed, let_open
from tailrace.kernel.tree import Tree
from tailrace.process import hypervisor
from tailrace.process.plain import plain
from tailrace.process.process import undisturbed
from tailrace.resources.card_netlink import CardNetlink, CardSettings
from tailrace.resources.virtual_functions import Failover, PlannedVf, interface_of, is_there
from tailrace.state.record import Process, State

_log = logging.getLogger(__name__)
NO_MAC = "00:00:00:00:00:00"
"""With this one a function is given no frames to an address of its own."""
UNPLUG_SECONDS = 60.0
"""In which the machine's system lets go of a function; on a busy host."""
_LOOK_SECONDS = 0.02


def plugged(xml: str) -> set[int]:
    """The ports of a machine, in libvirt's words, that have a function in front of them."""
    names = [alias(each) for each in ElementTree.fromstring(xml).iterfind("devices/hostdev")]
    return {int(each.removeprefix(FAILOVER)) for each in names if each.startswith(FAILOVER)}


def slot_of(xml: str, port: int) -> int:
    """The bus of a machine, in libvirt's words, that is for what is in front of a port. Raises Failure."""
    for each in ElementTree.fromstring(xml).iterfind("devices/controller"):
        if alias(each) == f"{SLOT}{port}":
            return int(each.get("index", "0"))
    raise Failure(f"its port {port} has no slot for a virtual function; `tailrace function restart` makes one")


def plug(
    state: State, machine: Process, failover: Failover, tree: Tree | None = None, card: CardSettings | None = None
) -> None:
    """Has a function carry the frames of a port of a machine, which has none there. Raises Failure, Mistake."""
    vf, tree = failover.vf, tree or Tree()
    if vf is None or not is_there(tree, vf):
        raise Failure(f"virtual function {vf.name if vf else 'of the port'} is not there")
    libvirt, name = hypervisor.library(), machine.outside
    device = failover_device(failover.port, vf.address, slot_of(hypervisor.machine_xml(name), failover.port))
    let_open(state, machine.name, vf.address, tree)
    _tell_card(tree, card or CardNetlink(), vf, failover.mac)
    try:
        hypervisor.connect().lookupByName(name).attachDeviceFlags(device, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    except libvirt.libvirtError as error:
        _tell_card(tree, card or CardNetlink(), vf, NO_MAC)
        keep_closed(state, machine.name, vf.address)
        raise Failure(f"libvirt does not plug the virtual function {vf.name}: {plain(str(error))}") from None


def unplug(
    state: State,
    machine: Process,
    failovers: Collection[Failover],
    tree: Tree | None = None,
    card: CardSettings | None = None,
) -> list[Failover]:
    """Has the ports of a machine carry their frames themselves; returns those that did not. Raises Failure where its
    system does not let go of a function, and then the others are plugged again."""
    libvirt, name, tree = hypervisor.library(), machine.outside, tree or Tree()
    taken = [each for each in failovers if each.port in plugged(hypervisor.machine_xml(name))]
    deadline = time.monotonic() + UNPLUG_SECONDS
    try:
        domain = hypervisor.connect().lookupByName(name)
        for each in taken:
            domain.detachDeviceAlias(f"{FAILOVER}{each.port}", libvirt.VIR_DOMAIN_AFFECT_LIVE)
        while left := plugged(hypervisor.machine_xml(name)):
            if time.monotonic() > deadline:
                ports = ", ".join(map(str, sorted(left)))
                raise Failure(
                    f"its system has not let go of the virtual function of port {ports} in {UNPLUG_SECONDS:g} s; it "
                    "needs the drivers pciehp and net_failover"
                )
            time.sleep(_LOOK_SECONDS)
    except BaseException as error:
        with undisturbed():
            replug(state, machine, taken, tree, card)
        if isinstance(error, libvirt.libvirtError | Failure):
            raise Failure(f"a virtual function cannot be unplugged: {plain(str(error))}") from None
        raise
    for each in taken:
        if each.vf is not None:
            _tell_card(tree, card or CardNetlink(), each.vf, NO_MAC)
            keep_closed(state, machine.name, each.vf.address)
    return taken


def replug(
    state: State,
    machine: Process,
    failovers: Collection[Failover],
    tree: Tree | None = None,
    card: CardSettings | None = None,
) -> list[str]:
    """Plugs those of a machine that are not; returns why any cannot be. Until they are, the ports carry all."""
    problems = []
    for each in failovers:
        if each.vf is None:
            continue
        try:
            if each.port not in plugged(hypervisor.machine_xml(machine.outside)):
                plug(state, machine, each, tree, card)
        except (Failure, Refused) as error:
            problems.append(f"port {each.port} has no virtual function, and carries its frames itself: {error}")
    return problems


def _tell_card(tree: Tree, card: CardSettings, vf: PlannedVf, mac: str) -> None:
    """Gives a function an address. A card that refuses it gives its frames to whom it did before."""
    interface = interface_of(tree, vf.card)
    try:
        if interface is not None and card.read(interface, vf.number).get("mac") != mac:
            card.write(interface, vf.number, {"mac": mac})
    except OSError as error:
        _log.warning("%s does not take the address %s for %s: %s", vf.of, mac, vf.name, error.strerror or error)
