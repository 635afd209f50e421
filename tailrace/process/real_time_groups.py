"""Time at real-time priority for a machine's threads, where the kernel gives each cgroup its own: CONFIG_RT_GROUP_SCHED
under cgroup v1, where a new group has none. Elsewhere there is nothing to do.

A group's time is out of its parent's, in each second: each level gets three quarters of what its siblings have left,
and the virtual CPUs of a machine share what that has.

Source: Linux, Documentation/scheduler/sched-rt-group.rst.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup/cpu")
_TIME = "cpu.rt_runtime_us"
_OWN = re.compile(r"^\d+:(?:[^:]*,)?cpu(?:,[^:]*)?:(/.*)$", re.MULTILINE)


def groups_without_time(
    threads: Sequence[int], given: Collection[str] = (), root: Path = _ROOT, proc: Path = Path("/proc")
) -> list[str]:
    """The groups of these threads that have none, or have what another machine was `given`, outermost first: the last
    of those who share a group takes its time back."""
    found: dict[str, None] = {}
    for thread in threads:
        with suppress(OSError):
            groups = {str(group): _read(group) for group in _path(thread, root, proc)}
            found.update({name: None for name, time in groups.items() if time == 0 or name in given})
    return list(found)


def grant(groups: Sequence[str], threads: int) -> None:
    """Gives those some that have none; so many threads share what their machine has. What cannot be given, the kernel
    refuses the threads later."""
    left = threads
    for group in map(Path, groups):
        if _read(group) != 0:
            continue
        with suppress(OSError):
            if group.name.startswith("vcpu"):  # libvirt's, of a single thread
                (group / _TIME).write_text(str(_left(group) // max(left, 1)))
                left -= 1
            else:
                (group / _TIME).write_text(str(_left(group) * 3 // 4))


def take_back(groups: Sequence[str]) -> None:
    """Takes what `grant` has given. Groups that have gone, and those of which others have something, are left alone."""
    for group in reversed(groups):
        with suppress(OSError):
            Path(group, _TIME).write_text("0")


def _path(thread: int, root: Path, proc: Path) -> Iterator[Path]:
    """The groups of a thread below the root, outermost first."""
    own = _OWN.search((proc / str(thread) / "cgroup").read_text())
    if own is None or _read(root) is None:
        return
    group = root
    for name in Path(own[1]).parts[1:]:
        group = group / name
        yield group


def _read(group: Path) -> int | None:
    try:
        return int((group / _TIME).read_text())
    except (OSError, ValueError):
        return None


def _left(group: Path) -> int:
    """What a group's parent has, less what its siblings have."""
    siblings = (each for each in group.parent.iterdir() if each.is_dir())
    return max((_read(group.parent) or 0) - sum(max(_read(each) or 0, 0) for each in siblings), 0)
