"""The CPUs that tasks may use, by first-level cgroups of version 2: how they stay off the isolated ones at run time.

Where systemd is the first process the tree of cgroups is systemd's alone: it is asked to limit its slices, and what
Tailrace starts is in a slice of its own, which has all CPUs. Elsewhere the groups are limited directly, and what is in
none is put into one of ours.
Sources: systemd, docs/CGROUP_DELEGATION.md, systemd.resource-control(5); Linux,
Documentation/admin-guide/cgroup-v2.rst, "Cpuset".
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable

from tailrace.host.cgroups import make, remove
from tailrace.kernel.cpus import parse_list
from tailrace.kernel.tree import Tree
from tailrace.process.systemd import CGROUP, REST, run_systemctl, systemd_has

UNITS = ("init.scope", "system.slice", "user.slice")
"""Those of systemd's that are limited. Not machine.slice: a virtual machine's CPUs are whose who has pinned it."""
_PATIENCE = 10.0
"""Seconds in which systemd does what it has been told."""


def limited(tree: Tree) -> list[str]:
    """The first-level groups whose tasks are to stay off the isolated CPUs."""
    if systemd_has(tree):
        return [unit for unit in UNITS if tree.exists(f"{CGROUP}/{unit}")]
    if tree.exists(f"{CGROUP}/cgroup.type"):  # not the machine's root, but a container's
        return []
    groups = [name for name in tree.names(CGROUP) if tree.exists(f"{CGROUP}/{name}/cgroup.procs")]
    return [*(name for name in groups if not name.startswith("tailrace")), REST]


class Tasks:
    """`tasks:GROUP`: the CPUs that a first-level group's tasks may use; empty where they may use all."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def read(self, target: str) -> str | None:
        there = self._tree.exists(f"{CGROUP}/{target}")
        if target == REST:
            return (self._tree.text(f"{CGROUP}/{target}/cpuset.cpus") or "not yet limited") if there else ""
        return self._tree.text(f"{CGROUP}/{target}/cpuset.cpus") or "" if there else None

    def write(self, target: str, value: str) -> None:
        if self._tree.live and systemd_has(self._tree):
            self._tell_systemd(target, value)
        elif target == REST:
            self._gather(value)
        else:
            make(self._tree, f"{CGROUP}/{target}/cpuset.cpus", value)

    def _tell_systemd(self, unit: str, value: str) -> None:
        """Until the next boot, as all that is set at run time."""
        run_systemctl("set-property", "--runtime", unit, f"AllowedCPUs={value}")
        deadline = time.monotonic() + _PATIENCE
        while parse_list(self.read(unit) or "") != parse_list(value):  # it answers before it has done so
            if time.monotonic() > deadline:
                raise OSError(errno.EIO, "systemd does not set it")
            time.sleep(0.01)

    def _gather(self, value: str) -> None:
        """Moves the tasks that are in no group to one of these CPUs, or back. What is pinned to other CPUs, as only
        somebody who wants it there does, stays where it is."""
        folder = f"{CGROUP}/{REST}"
        if not value:
            if self._tree.exists(folder):
                _move(self._tree, folder, CGROUP, set())
                remove(self._tree, folder, {})
            return
        self._tree.at(folder).mkdir(exist_ok=True)
        make(self._tree, f"{folder}/cpuset.cpus", value)
        if self._tree.live:
            _move(self._tree, CGROUP, folder, set(parse_list(value)))


def _move(tree: Tree, source: str, target: str, cpus: set[int]) -> None:
    """Moves all processes of user space, but those with a thread that may use none of `cpus`, if there are any."""
    for _ in range(10):  # those that are started meanwhile begin where their parents were
        pids = [int(pid) for pid in (tree.text(f"{source}/cgroup.procs") or "").split()]
        moved = [pid for pid in pids if _movable(tree, pid, cpus) and _moves(tree, target, pid)]
        if not moved:
            return


def _movable(tree: Tree, pid: int, cpus: set[int]) -> bool:
    if not tree.text(f"/proc/{pid}/cmdline"):  # the kernel's own
        return False
    threads = tree.names(f"/proc/{pid}/task") if cpus else []
    return not any(_pinned_elsewhere(int(thread), cpus) for thread in threads)


def _pinned_elsewhere(thread: int, cpus: set[int]) -> bool:
    try:
        return not os.sched_getaffinity(thread) & cpus
    except OSError:
        return False


def _moves(tree: Tree, target: str, pid: int) -> bool:
    try:
        tree.write(f"{target}/cgroup.procs", str(pid))
    except OSError:  # it has ended
        return False
    return True


def displaced(tree: Tree, groups: Iterable[str], cpus: set[int]) -> list[str]:
    """Processes of these groups that are pinned away from `cpus`, and would be moved there: name and id."""
    found = []
    for path, pid in tree.find("/proc", "*"):
        group = next((line[3:] for line in (tree.text(f"{path}/cgroup") or "").splitlines() if line[:3] == "0::"), "/")
        if group.split("/")[1] in groups and not _movable(tree, pid, cpus) and tree.text(f"{path}/cmdline"):
            found.append(f"{tree.text(f'{path}/comm')} ({pid})")
    return found
