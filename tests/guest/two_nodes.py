"""Two nodes on one machine (`tailrace.measure.two_nodes`), as a user operates them. Their network is the test's."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from machine import BOOT
from private_network import Network
from running_node import Command, open_folder, wait_until
from small_disk import small_disk

from tailrace.measure.two_nodes import Space

DISK_MIB = 64
"""Far more than a node's state has."""


class Node(Command):
    """The command on one of the nodes."""

    def __init__(self, tailrace: Path, folder: Path, disk: Path, space: Space, network: Network) -> None:
        self.network = network
        self.within = space.within
        """Put before a command, so that it runs there."""
        self.disk = disk
        """Where its state is, and nothing else."""
        program = folder / "tailrace"
        program.write_text(f'#!/bin/sh\nexec {" ".join(space.within)} {tailrace} "$@"\n')
        program.chmod(0o755)
        super().__init__(program, folder, disk / "state")
        self.limit = BOOT
        self.libvirt = space.libvirt
        self.environment |= space.environment

    def machines(self) -> dict[str, str]:
        """Those of its libvirt, with their state."""
        words = ["-c", f"qemu+unix:///system?socket={self.libvirt}/libvirt-sock", "list", "--all"]
        done = subprocess.run(["virsh", *words], capture_output=True, text=True, timeout=30, check=False)
        rows = [line.split(maxsplit=2) for line in done.stdout.splitlines()[2:] if line.strip()]
        return {name: state for _, name, state in rows}

    def machine(self, name: str) -> int:
        """The process of one of them."""
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"guest={name},".encode() in (entry / "cmdline").read_bytes():
                    return int(entry.name)
        raise AssertionError(f"{name} has no process")

    def copies(self) -> list[int]:
        """The processes of its machines, whether its libvirt knows them or not."""
        mark, found = f"{self.state}/".encode(), []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                if b"qemu-system" in words.split(b"\0")[0] and mark in words:
                    found.append(int(entry.name))
        return found

    def sockets(self) -> set[str]:
        """Those of its functions' ports, and whatever else lies beside them."""
        return {each.name for each in (self.state / "sockets").iterdir()}

    def switch(self) -> int:
        """The process of its switch."""
        return next(int(each["pid"]) for each in self.status()["processes"] if each["name"] == "switch")

    def daemon(self) -> int:
        """The process of its libvirtd, as soon as it has one; one that was killed leaves its file."""

        def found() -> int | None:
            with suppress(OSError, ValueError):
                pid = int((self.libvirt / "libvirtd.pid").read_text())
                return pid if Path(f"/proc/{pid}/comm").read_text() == "libvirtd\n" else None
            return None

        return int(wait_until(found))


@contextmanager
def two_nodes(tailrace: Path, network: Network, other: Network | None = None) -> Iterator[tuple[Node, Node]]:
    """Both, with nothing up; the second one in a network of its `other`, as another host is."""
    with open_folder() as folder, ExitStack() as disks:
        spaces, nodes = [], []
        try:
            owned = [folder / host for host in ("one", "two")]
            for own in owned:  # first: what is mounted later, the other's namespaces have not
                own.mkdir()
                own.chmod(0o755)
                disks.enter_context(small_disk(own / "disk", DISK_MIB))
            for own, here in zip(owned, (network, other or network), strict=True):
                spaces.append(Space(own, f"tailrace-{own.name}", here.name))
                nodes.append(Node(tailrace, own, own / "disk", spaces[-1], here))
            yield nodes[0], nodes[1]
        finally:
            for node in nodes:
                node.end_begun()
                node("down", status=None)
            for space in spaces:
                space.end()


def kill(pid: int) -> None:
    """It may end by itself meanwhile, as the source's QEMU does when the last of its machine is sent."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
