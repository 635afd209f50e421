"""Reading and writing the places that settings name (setting.py)."""

from __future__ import annotations

import os
from typing import Protocol

from tailrace.host.boot import BootLoader
from tailrace.host.cpus import parse_list, show_list
from tailrace.host.groups import CacheShares, Controllers, Domains, Partitions
from tailrace.host.nics import Nics
from tailrace.host.setting import Setting
from tailrace.host.tree import Tree


class Places(Protocol):
    """Where one scheme's values are."""

    def read(self, target: str) -> str | None:
        """The value now; None if there is no such place."""

    def write(self, target: str, value: str) -> None:
        """Sets it. Raises OSError."""


class Files:
    """`file:`: files of /sys and /proc."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def read(self, target: str) -> str | None:
        return self._tree.text(target)

    def write(self, target: str, value: str) -> None:
        self._tree.write(target, value)


class KernelThreads:
    """`thread:`: the CPUs that the kernel threads of a name may use. In a copied tree they are read only."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._named: dict[str, list[int]] | None = None
        """The ids of kernel threads by name, as they were when the first was asked for."""

    def read(self, target: str) -> str | None:
        if self._named is None:
            self._named = self._look()
        for pid in self._named.get(target, []):
            status = self._tree.text(f"/proc/{pid}/status") or ""
            for line in status.splitlines():
                if line.startswith("Cpus_allowed_list:"):
                    return show_list(parse_list(line.partition(":")[2]))
        return None

    def write(self, target: str, value: str) -> None:
        for pid in self._look().get(target, []):
            if not self._tree.live:
                raise OSError(1, "a copied machine's threads cannot be moved")
            os.sched_setaffinity(pid, parse_list(value))

    def _look(self) -> dict[str, list[int]]:
        named: dict[str, list[int]] = {}
        for path, pid in self._tree.find("/proc", "*"):
            if not self._tree.text(f"{path}/cmdline"):  # kernel threads have no command line
                named.setdefault(self._tree.text(f"{path}/comm") or "", []).append(pid)
        return named


class Values:
    """All places of one machine."""

    def __init__(self, tree: Tree) -> None:
        self.boot = BootLoader(tree)
        self._schemes: dict[str, Places] = {
            "file": Files(tree),
            "thread": KernelThreads(tree),
            "argument": self.boot,
            "controller": Controllers(tree),
            "partition": Partitions(tree),
            "domains": Domains(tree),
            "cache": CacheShares(tree),
            "nic": Nics(tree),
        }

    def read(self, setting: Setting) -> str | None:
        """What stands there now; for a kernel argument what the running kernel was given."""
        return self._schemes[setting.scheme].read(setting.target)

    def write(self, setting: Setting, value: str) -> None:
        """Sets it. Raises OSError."""
        self._schemes[setting.scheme].write(setting.target, value)
