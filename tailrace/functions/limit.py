"""The memory limit of a sandbox: a cgroup where one can be had, else the limit of the process.

Where systemd is the first process it sets the limit, of the unit that the sandbox is or, where it is started otherwise,
of a scope: the tree of cgroups is its own.
A cgroup counts everything that the sandbox touches, whoever in it does; RLIMIT_DATA only what each process maps
privately. Huge pages are counted by neither: they are bounded by the machine's pool.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import Failure
from tailrace.kernel.tree import Tree
from tailrace.process.systemd import scope, scope_name, systemd_has
from tailrace.state.launch import Launcher
from tailrace.state.record import Cgroup, Scope, State

UNGROUPED = "no memory cgroup can be made here, so sandboxes are limited by RLIMIT_DATA"
"""Said to the user."""


@dataclass(frozen=True)
class MemoryLimit:
    """What holds a sandbox to its memory."""

    mechanism: str
    """`systemd unit`, `systemd scope`, `cgroup v2`, `cgroup v1` or `RLIMIT_DATA`."""
    memory_bytes: int | None = None
    """For the unit."""
    cgroup: Path | None = None
    """The cgroup to enter."""
    before: Sequence[str] = ()
    """The words before the command that put it into a scope."""
    data_bytes: int | None = None


def _memory_cgroup() -> tuple[str, Path] | None:
    """The version of the memory controller and the folder in which this process may make cgroups."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return None
    own = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    for fields in mounts:
        point, tail = Path(fields[4]), fields[fields.index("-") + 1 :]
        if tail[0] == "cgroup" and "memory" in tail[2].split(","):
            group = next((path for names, path in own.items() if "memory" in names.split(",")), "/")
            folder = point / group.lstrip("/")
            return ("cgroup v1", folder) if os.access(folder, os.W_OK) else None
    for fields in mounts:
        point, tail = Path(fields[4]), fields[fields.index("-") + 1 :]
        # Under v2 a cgroup with processes in it cannot hold cgroups with limits, so ours stand at the top; not where
        # this process is elsewhere, as in a container that sees the tree of its host.
        if tail[0] == "cgroup2" and own.get("") == "/" and os.access(point, os.W_OK):
            try:
                enabled = (point / "cgroup.subtree_control").read_text().split()
            except OSError:
                return None
            return ("cgroup v2", point) if "memory" in enabled else None
    return None


def limit_memory(launcher: Launcher, name: str, size: int) -> MemoryLimit:
    """Makes a limit of `size` bytes for a sandbox that the launcher is about to start, on record first."""
    state = launcher.state
    if launcher.by_systemd:
        return MemoryLimit("systemd unit", memory_bytes=size)
    if systemd_has(Tree()):
        return _scope(state, name, size) or MemoryLimit("RLIMIT_DATA", data_bytes=size)
    found = _memory_cgroup()
    if found is None:
        return MemoryLimit("RLIMIT_DATA", data_bytes=size)
    version, parent = found
    folder = parent / f"tailrace-{os.getpid()}-{name}"
    state.add(Cgroup(str(folder)))
    try:
        folder.mkdir(exist_ok=True)
        if version == "cgroup v2":
            (folder / "memory.max").write_text(str(size))
            _try_write(folder / "memory.swap.max", "0")
        else:
            (folder / "memory.limit_in_bytes").write_text(str(size))
    except OSError as error:
        raise Failure(f"{folder}: the memory limit cannot be set: {error.strerror}") from None
    return MemoryLimit(version, cgroup=folder)


def _scope(state: State, name: str, size: int) -> MemoryLimit | None:
    unit = scope_name(name)
    before = scope(unit, (f"MemoryMax={size}", "MemorySwapMax=0"))
    if before is None:
        return None
    state.add(Scope(unit, name))
    return MemoryLimit("systemd scope", before=before)


def _try_write(path: Path, text: str) -> None:
    with suppress(OSError):  # a kernel without swap accounting
        path.write_text(text)
