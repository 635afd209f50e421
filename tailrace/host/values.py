"""Reading and writing the places that settings name (setting.py)."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from tailrace.host.boot import BootLoader
from tailrace.host.cgroups import Controllers, Domains, Partitions
from tailrace.host.journal import state_folder
from tailrace.host.nics import Nics
from tailrace.host.page_pools import PagePools
from tailrace.host.resctrl import CacheShares
from tailrace.host.setting import Setting
from tailrace.host.task_cpus import Tasks
from tailrace.kernel.cpus import parse_list, show_list
from tailrace.kernel.tree import Tree

OWN = ("controller", "partition", "domains", "cache")
"""Schemes of places that Tailrace makes itself and no device brings along."""


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
    """The ids of a machine's kernel threads by name."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._named: dict[str, list[int]] | None = None

    def then(self, name: str) -> list[int]:
        """As they were when the first was asked for: all of /proc is looked at once."""
        if self._named is None:
            self._named = self._look()
        return self._named.get(name, [])

    def now(self, name: str) -> list[int]:
        """As they are. Raises OSError in a copied tree, whose threads cannot be changed."""
        if not self.tree.live:
            raise OSError(1, "a copied machine's threads cannot be changed")
        self._named = self._look()
        return self._named.get(name, [])

    def _look(self) -> dict[str, list[int]]:
        named: dict[str, list[int]] = {}
        for path, pid in self.tree.find("/proc", "*"):
            if not self.tree.text(f"{path}/cmdline"):  # kernel threads have no command line
                named.setdefault(self.tree.text(f"{path}/comm") or "", []).append(pid)
        return named


class Affinities:
    """`thread:`: the CPUs that the kernel threads of a name may use."""

    def __init__(self, threads: KernelThreads) -> None:
        self._threads = threads

    def read(self, target: str) -> str | None:
        for pid in self._threads.then(target):
            status = self._threads.tree.text(f"/proc/{pid}/status") or ""
            for line in status.splitlines():
                if line.startswith("Cpus_allowed_list:"):
                    return show_list(parse_list(line.partition(":")[2]))
        return None

    def write(self, target: str, value: str) -> None:
        for pid in self._threads.now(target):
            os.sched_setaffinity(pid, parse_list(value))


class Priorities:
    """`priority:`: the real-time priority (SCHED_FIFO) of the kernel threads of a name; 0 at ordinary priority."""

    def __init__(self, threads: KernelThreads) -> None:
        self._threads = threads

    def read(self, target: str) -> str | None:
        for pid in self._threads.then(target):
            stat = self._threads.tree.text(f"/proc/{pid}/stat") or ""
            fields = stat[stat.rfind(")") + 2 :].split()
            if len(fields) > 37:
                return fields[37]  # proc(5): field 40, rt_priority
        return None

    def write(self, target: str, value: str) -> None:
        policy = os.SCHED_FIFO if int(value) else os.SCHED_OTHER
        for pid in self._threads.now(target):
            os.sched_setscheduler(pid, policy, os.sched_param(int(value)))


class Values:
    """All places of one machine."""

    def __init__(self, tree: Tree) -> None:
        self.boot = BootLoader(tree)
        threads = KernelThreads(tree)
        self._schemes: dict[str, Places] = {
            "file": Files(tree),
            "thread": Affinities(threads),
            "priority": Priorities(threads),
            "argument": self.boot,
            "controller": Controllers(tree),
            "tasks": Tasks(tree),
            "partition": Partitions(tree),
            "domains": Domains(tree),
            "cache": CacheShares(tree),
            "nic": Nics(tree),
            "pages": PagePools(tree, state_folder(tree)),
        }

    def read(self, setting: Setting) -> str | None:
        """What stands there now; for a kernel argument what the running kernel was given."""
        return self._schemes[setting.scheme].read(setting.target)

    def write(self, setting: Setting, value: str) -> None:
        """Sets it. Raises OSError."""
        self._schemes[setting.scheme].write(setting.target, value)

    def restore(self, setting: Setting, was: str) -> None:
        """Sets what stood there before, unless it does already or the place has gone. Raises OSError."""
        now = self.read(setting)
        if (now is None and setting.scheme not in OWN) or replace(setting, wanted=was).satisfied(now):
            return
        with suppress(FileNotFoundError):  # it has gone just now, or what it was made in
            self.write(setting, was)
