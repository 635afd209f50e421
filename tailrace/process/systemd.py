"""systemd, where it is the first process: it is told what to do, and what Tailrace starts is in a slice of its own.

The tree of cgroups is then systemd's alone, and tailrace.slice has all CPUs, also where `tailrace host apply` keeps
everybody else off some of them (`tailrace.host.task_cpus`).
Sources: systemd, docs/CGROUP_DELEGATION.md, systemd-run(1).
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

from tailrace.kernel.tree import Tree
from tailrace.process.plain import last_line
from tailrace.process.programs import find_system_program

CGROUP = "/sys/fs/cgroup"
"""Of version 2, where a machine has one hierarchy."""
OWN = "tailrace.slice"
REST = "tailrace-system"
"""Our group of tasks that are in none, where the tree is nobody's."""
_INSIDE = "TAILRACE_SCOPE"
_PATIENCE = 10.0
"""Seconds in which systemd answers."""


def systemd_has(tree: Tree) -> bool:
    """Whether the tree of cgroups is systemd's (sd_booted(3)); a chroot may not show it all of /run."""
    return tree.exists("/run/systemd/system") or tree.text("/proc/1/comm") == "systemd"


def has_cpusets(tree: Tree) -> bool:
    """Whether there is a hierarchy of version 2 with the controller."""
    return "cpuset" in (tree.text(f"{CGROUP}/cgroup.controllers") or "").split()


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
