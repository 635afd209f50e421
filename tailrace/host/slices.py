"""The CPUs that tasks may use, by first-level cgroups of version 2: how they stay off the isolated ones at run time.

Where systemd is the first process the tree of cgroups is systemd's alone: it is asked to limit its slices, and what
Tailrace starts is in a slice of its own, tailrace.slice, which has all CPUs. Elsewhere the groups are limited directly,
and what is in none is put into one of ours.
Sources: systemd, docs/CGROUP_DELEGATION.md, systemd.resource-control(5), systemd-run(1); Linux,
Documentation/admin-guide/cgroup-v2.rst, "Cpuset".
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress

from tailrace.host.groups import CGROUP, make, remove
from tailrace.process.plain import last_line
from tailrace.process.programs import find_system_program
from tailrace.resources.cpus import parse_list
from tailrace.resources.tree import Tree

UNITS = ("init.scope", "system.slice", "user.slice")
"""Those of systemd's that are limited. Not machine.slice: a virtual machine's CPUs are whose who has pinned it."""
OWN = "tailrace.slice"
REST = "tailrace-system"
"""Our group of tasks that are in none, where the tree is nobody's."""
_INSIDE = "TAILRACE_SCOPE"
_PATIENCE = 10.0
"""Seconds in which systemd does what it has been told."""


def systemd_has(tree: Tree) -> bool:
    """Whether the tree of cgroups is systemd's (sd_booted(3)); a chroot may not show it all of /run."""
    return tree.exists("/run/systemd/system") or tree.text("/proc/1/comm") == "systemd"


def has_cpusets(tree: Tree) -> bool:
    """Whether there is a hierarchy of version 2 with the controller."""
    return "cpuset" in (tree.text(f"{CGROUP}/cgroup.controllers") or "").split()


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


def run_systemctl(*words: str) -> str:
    """What systemctl says. Raises OSError with its words if it fails."""
    program = find_system_program("systemctl")
    if program is None:
        raise OSError(errno.ENOENT, "systemctl is missing")
    try:
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise OSError(errno.ETIMEDOUT, f"systemctl {words[0]}: no answer within {_PATIENCE:g} s") from None
    if done.returncode != 0:
        raise OSError(errno.EIO, last_line(done.stderr, f"systemctl {words[0]} failed"))
    return done.stdout


def systemd_run() -> str | None:
    """The program that makes units of systemd's (systemd-run(1)); None where the tree of cgroups is not systemd's, or
    systemd cannot be asked."""
    tree = Tree()
    if not systemd_has(tree) or os.geteuid() != 0 or not tree.exists("/run/systemd/private"):
        return None
    return find_system_program("systemd-run")


def scope_name(of: str) -> str:
    """The name of a new scope: one that has just ended, or of a process with the same id, may still be there."""
    return f"tailrace-{os.getpid()}-{time.monotonic_ns()}-{re.sub('[^A-Za-z0-9_.-]', '_', of)}.scope"


def scope(unit: str, properties: Iterable[str] = ()) -> list[str] | None:
    """The words before a command that make systemd run it, as this process, in a scope of our slice; None where it
    cannot be asked."""
    program = systemd_run()
    if program is None:
        return None
    words = [program, "--scope", "--quiet", "--collect", f"--slice={OWN}", f"--unit={unit}"]
    return [*words, *(word for each in properties for word in ("--property", each)), "--"]


def enter() -> None:
    """Goes on in a scope of our slice, or out of our group of limited tasks, where isolated CPUs may be used, as do the
    processes that it starts. It stays the same process, begun again; harmless where it is there already."""
    tree = Tree()
    if _INSIDE in os.environ or os.geteuid() != 0 or not has_cpusets(tree):
        return
    group = _own_group()
    if group == f"/{REST}":
        with suppress(OSError):
            tree.write(f"{CGROUP}/cgroup.procs", str(os.getpid()))
        return
    words = None if group is None or group.startswith(f"/{OWN}/") else scope(scope_name("command"))
    if words is not None:
        sys.stdout.flush()
        argv = [*words, sys.executable, *sys.orig_argv[1:]]
        os.execve(argv[0], argv, {**os.environ, _INSIDE: str(os.getpid())})


def _own_group() -> str | None:
    """This process's cgroup of version 2."""
    lines = (Tree().text("/proc/self/cgroup") or "").splitlines()
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
