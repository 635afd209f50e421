"""The file by which a machine's QEMU has a device of the host's (vfio).

libvirt gives it to whom QEMU runs as only where it labels files, and a machine's are left as they are (`relabel='no'`):
its image and sockets are others' too. So it is given here, on record first, once vfio-pci has the device.

Source: the kernel's Documentation/driver-api/vfio.rst; virSecurityDACSetHostdevLabel() of libvirt.
"""

from __future__ import annotations

import os
from typing import Any

from tailrace.errors import Failure
from tailrace.functions.disks import qemu_user
from tailrace.kernel.tree import Tree
from tailrace.process import hypervisor
from tailrace.process.plain import plain
from tailrace.resources.topology import PCI
from tailrace.resources.virtual_functions import VFIO, vfio_group
from tailrace.state.record import State, VfioFile


def take_device(state: State, of: str, address: str, connection: Any, tree: Tree | None = None) -> None:
    """Has vfio-pci have a device, as libvirt does when the machine starts, and QEMU open it. Raises Failure,
    FunctionRefused."""
    tree = tree or Tree()
    if tree.target(f"{PCI}/{address}/driver") != VFIO:
        libvirt = hypervisor.library()
        try:
            connection.nodeDeviceLookupByName(f"pci_{address.replace(':', '_').replace('.', '_')}").detachFlags("vfio")
        except libvirt.libvirtError as error:
            raise Failure(f"libvirt does not bind PCI device {address} to {VFIO}: {plain(str(error))}") from None
    let_open(state, of, address, tree)


def let_open(state: State, of: str, address: str, tree: Tree) -> None:
    """Lets QEMU open a device that vfio-pci has, for the machine of an instance. Raises Failure, FunctionRefused."""
    file = tree.at(vfio_group(tree, address))
    try:
        user = file.stat().st_uid
        known = [each for each in state.record.things if isinstance(each, VfioFile)]
        if (of, address) not in {(each.of, each.address) for each in known}:
            state.add(VfioFile(str(file), of, address, user))
        if user != qemu_user():
            os.chown(file, qemu_user(), -1)
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}") from None


def keep_closed(state: State, of: str, address: str) -> None:
    """Gives the file of a device that was unplugged back to whom it was."""
    for thing in [each for each in state.record.things if isinstance(each, VfioFile)]:
        if (thing.of, thing.address) == (of, address):
            state.undo(thing)
