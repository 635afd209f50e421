"""The file by which a machine's QEMU has a device of the host's (vfio).

libvirt gives it to whom QEMU runs as only where it labels files, and a machine's are left as they are (`relabel='no'`):
its image and sockets are others' too. So it is given here, on record first, once vfio-pci has the device.

Source: the kernel's Documentation/driver-api/vfio.rst; virSecurityDACSetHostdevLabel() of libvirt.
"""

from __future__ import annotations

import os
from typing import Any

from tailrace.errors import Failure
from tailrace.kernel.tree import Tree
from tailrace.process import hypervisor
from tailrace.process.plain import plain
from tailrace.resources.topology import PCI
from tailrace.resources.virtual_functions import VFIO, group_file, vfio_group
from tailrace.state.record import State, VfioFile


def take_device(state: State, of: str, address: str, qemu: int, connection: Any, tree: Tree | None = None) -> None:
    """Has vfio-pci have a device, as libvirt does when the machine starts, and its QEMU, which is the user
    `qemu`, open it. Raises Failure, FunctionRefused."""
    tree = tree or Tree()
    if tree.target(f"{PCI}/{address}/driver") != VFIO:
        libvirt = hypervisor.library()
        # The file is root's when it is made. libvirt gives a device back by itself only if it has bound it itself as
        # the machine started.
        state.add(VfioFile(str(tree.at(group_file(tree, address))), of, address, user=0, bound=True))
        try:
            connection.nodeDeviceLookupByName(hypervisor.device_name(address)).detachFlags("vfio")
        except libvirt.libvirtError as error:
            raise Failure(f"libvirt does not bind PCI device {address} to {VFIO}: {plain(str(error))}") from None
    let_open(state, of, address, qemu, tree)


def recorded(state: State, of: str, address: str) -> VfioFile | None:
    """What is on record of a device of an instance's machine."""
    known = (each for each in state.record.things if isinstance(each, VfioFile))
    return next((each for each in known if (each.of, each.address) == (of, address)), None)


def let_open(state: State, of: str, address: str, qemu: int, tree: Tree, card: str = "", number: int = 0) -> None:
    """Lets QEMU open a device that vfio-pci has, for the machine of an instance: a function of a card where it is in
    front of a port. Raises Failure, FunctionRefused."""
    file = tree.at(vfio_group(tree, address))
    try:
        user = file.stat().st_uid
        if recorded(state, of, address) is None:
            state.add(VfioFile(str(file), of, address, user, card=card, number=number))
        if user != qemu:
            os.chown(file, qemu, -1)
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}") from None
