"""What a capability is, and how a processor's flag is looked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tailrace.host.machine import Machine


@dataclass(frozen=True)
class Finding:
    """What was found of a capability. None: this machine does not report it."""

    present: bool | None
    enabled: bool | None
    evidence: str
    """Where it was read, and what stood there."""


@dataclass(frozen=True)
class Capability:
    """Something the machine may be able to do."""

    name: str
    title: str
    why: str
    """What it is for, in one line."""
    how: str
    """How to enable it."""
    find: Callable[[Machine], Finding]


def in_this_tree(machine: Machine, *folders: str) -> bool:
    """Whether one of the folders is there. Where it is not, nothing can be said about what would be in it: the kernel
    has been built without it, or a copy of the machine leaves it out."""
    return any(machine.tree.exists(folder) for folder in folders)


def find_flag(machine: Machine, *flags: str) -> Finding:
    """A CPU flag: shown by the kernel only where the CPU has it and nothing turned it off."""
    if not machine.flags:
        return Finding(None, None, "/proc/cpuinfo lists no flags")
    found = [flag for flag in flags if flag in machine.flags]
    words = f"/proc/cpuinfo: {', '.join(found)}" if found else f"/proc/cpuinfo: none of {', '.join(flags)}"
    return Finding(bool(found), bool(found), words)
