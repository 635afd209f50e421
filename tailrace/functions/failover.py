"""A virtual function in front of a machine's vhost-user port: plugged while the machine runs, and unplugged.

The machine's Linux makes one interface of both (net_failover): frames go by the function while there is one, and by the
port else. Both have one address. The card has it for the function while that is plugged, and not after: then frames for
it leave the card where the switch is.

Sources: the kernel's Documentation/networking/net_failover.rst; libvirt's formatdomain.html, <teaming>; the virtio
specification 1.2, 5.1.3 (VIRTIO_NET_F_STANDBY).
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace
from xml.etree import ElementTree

from tailrace.errors import Failure, Refused
from tailrace.functions.domain import FAILOVER, SLOT, address_of, alias, failover_device, user_of
from tailrace.functions.vfio import let_open, recorded
from tailrace.kernel.tree import Tree
from tailrace.process import hypervisor
from tailrace.process.plain import plain
from tailrace.process.process import undisturbed
from tailrace.resources.card_netlink import CardSettings
from tailrace.resources.virtual_functions import Failover, is_there
from tailrace.state.card_functions import give_address, take_address
from tailrace.state.record import Process, State, VfioFile

UNPLUG_SECONDS = 60.0
"""In which the machine's system lets go of a function; on a busy host."""
_LOOK_SECONDS = 0.02


def plugged(xml: str) -> dict[int, str]:
    """The ports of a machine, in libvirt's words, that have a function in front of them, and its PCI address."""
    found = {}
    for each in ElementTree.fromstring(xml).iterfind("devices/hostdev"):
        if alias(each).startswith(FAILOVER):
            at = each.find("source/address")
            found[int(alias(each).removeprefix(FAILOVER))] = "" if at is None else address_of(at)
    return found


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
    xml = hypervisor.machine_xml(name)
    device = failover_device(failover.port, vf.address, slot_of(xml, failover.port))
    let_open(state, machine.name, vf.address, user_of(xml), tree, vf.card, vf.number)
    try:
        give_address(tree, vf.card, vf.number, failover.mac, card)
        hypervisor.connect().lookupByName(name).attachDeviceFlags(device, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    except BaseException as error:
        with undisturbed():
            _forget(state, machine, vf.address, tree, card)
        if isinstance(error, libvirt.libvirtError):
            raise Failure(f"libvirt does not plug the virtual function {vf.name}: {plain(str(error))}") from None
        raise


def unplug(
    state: State,
    machine: Process,
    ports: Collection[int],
    tree: Tree | None = None,
    card: CardSettings | None = None,
) -> list[int]:
    """Has ports of a machine carry their frames themselves; returns those that did not. Raises Failure where its system
    does not let go of a function. Then, and when it is cut short, it may still do so later: see plug_again()."""
    libvirt, name, tree = hypervisor.library(), machine.outside, tree or Tree()
    taken = {port: at for port, at in plugged(hypervisor.machine_xml(name)).items() if port in ports}
    deadline = time.monotonic() + UNPLUG_SECONDS
    try:
        domain = hypervisor.connect().lookupByName(name)
        for port, at in taken.items():
            _mark(state, machine, at)
            domain.detachDeviceAlias(f"{FAILOVER}{port}", libvirt.VIR_DOMAIN_AFFECT_LIVE)
        while left := plugged(hypervisor.machine_xml(name)).keys() & taken.keys():
            if time.monotonic() > deadline:
                raise Failure(
                    f"its system has not let go of the virtual function of port {', '.join(map(str, sorted(left)))} in "
                    f"{UNPLUG_SECONDS:g} s; it needs the drivers pciehp and net_failover"
                )
            time.sleep(_LOOK_SECONDS)
    except libvirt.libvirtError as error:
        raise Failure(f"a virtual function cannot be unplugged: {plain(str(error))}") from None
    with undisturbed():
        for at in taken.values():
            _forget(state, machine, at, tree, card)
    return list(taken)


def plug_again(
    state: State,
    machine: Process,
    failovers: Collection[Failover],
    tree: Tree | None = None,
    card: CardSettings | None = None,
) -> list[str]:
    """After an unplug that was not to be: plugs what the machine's system has let go of meanwhile. Returns why any
    cannot be. What it has not let go of stays marked on record (`VfioFile.leaves`): it may at any time."""
    tree = tree or Tree()
    there = set(plugged(hypervisor.machine_xml(machine.outside)).values())
    gone = [each for each in _leaving(state, machine) if each.address not in there]
    for each in gone:
        _forget(state, machine, each.address, tree, card)
    ours = {each.address for each in gone}
    return replug(state, machine, [each for each in failovers if each.vf and each.vf.address in ours], tree, card)


def _leaving(state: State, machine: Process) -> list[VfioFile]:
    things = (each for each in state.record.things if isinstance(each, VfioFile))
    return [each for each in things if each.of == machine.name and each.leaves]


def _mark(state: State, machine: Process, address: str) -> None:
    thing = recorded(state, machine.name, address)
    if thing is not None:
        state.alter(thing, replace(thing, leaves=True))


def _forget(state: State, machine: Process, address: str, tree: Tree, card: CardSettings | None) -> None:
    """A function is not in the machine any more."""
    thing = recorded(state, machine.name, address)
    if thing is not None:
        take_address(tree, thing.card, thing.number, card)
        state.undo(thing)


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
                _forget(state, machine, each.vf.address, tree or Tree(), card)
                plug(state, machine, each, tree, card)
        except (Failure, Refused) as error:
            problems.append(f"port {each.port} has no virtual function, and carries its frames itself: {error}")
    return problems
