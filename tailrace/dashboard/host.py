"""What the machine does: its CPUs by role, their interrupts, huge pages, temperatures, and whether it is as applied.

Only while somebody asks, and not more often than it changes for the eye: all who ask within that time get the same.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from tailrace.errors import TailraceError
from tailrace.host.applied import check
from tailrace.host.show import check_document
from tailrace.host.tuner import State
from tailrace.kernel.tree import Tree
from tailrace.resources.roles import SYSTEM, Roles
from tailrace.resources.topology import CPUS, read_cpus, read_nodes

_EVERY = 0.9
"""Seconds between two looks at what changes all the time."""
_VERIFY_EVERY = 10.0
"""Seconds between two checks of every place that a profile has set: thousands of files on a large machine."""
_SHOWN = (State.DRIFTED, State.GONE, State.WRONG, State.REBOOT)
"""What of a check asks for something."""


@dataclass(frozen=True)
class _Counted:
    """What the kernel had counted at a moment."""

    time: float
    cpus: dict[int, tuple[int, int]]
    """Of each CPU: ticks at work, and in all."""
    interrupts: dict[int, int]


class Host:
    """This machine, for several threads."""

    def __init__(self, tree: Tree | None = None) -> None:
        self._tree = tree or Tree()
        self._lock = threading.Lock()
        self._before = self._count()
        self._document: dict[str, Any] = {}
        self._verified = float("-inf")
        self._verify: dict[str, Any] = {}
        self._roles: Roles | None = None

    def document(self) -> dict[str, Any]:
        with self._lock:
            if not self._document or time.monotonic() - self._before.time >= _EVERY:
                self._document = self._look()
            return self._document

    def verify(self) -> dict[str, Any]:
        """How the applied profile stands: `why` where none can be checked, else `profile`, `counts`, `drifted` and the
        `places` that are not right."""
        with self._lock:
            return self._checked()

    def _checked(self) -> dict[str, Any]:
        if time.monotonic() - self._verified >= _VERIFY_EVERY:
            try:
                plan, found = check(self._tree)
                said = check_document([each for each in found if each.state in _SHOWN])
                counts = check_document(found)["counts"]
                self._verify = {"profile": plan.profile.name, **said, "counts": counts}
                self._roles = plan.roles
            except TailraceError as error:
                self._verify, self._roles = {"why": str(error)}, None
            self._verified = time.monotonic()
        return self._verify

    def _look(self) -> dict[str, Any]:
        verify = self._checked()
        before, now = self._before, self._count()
        self._before = now
        seconds = max(now.time - before.time, 1e-9)
        cpus = []
        for cpu, (busy, ticks) in now.cpus.items():
            old_busy, old_ticks = before.cpus.get(cpu, (busy, ticks))
            mhz = self._tree.number(f"{CPUS}/cpu{cpu}/cpufreq/scaling_cur_freq")
            cpus.append(
                {
                    "cpu": cpu,
                    "role": self._roles.role(cpu) if self._roles else "",
                    "isolated": self._roles is not None and self._roles.role(cpu) != SYSTEM,
                    "busy": round((busy - old_busy) / max(ticks - old_ticks, 1), 3),
                    "interrupts": round((now.interrupts.get(cpu, 0) - before.interrupts.get(cpu, 0)) / seconds, 1),
                    **({"mhz": mhz // 1000} if mhz is not None else {}),
                }
            )
        return {
            "cpus": cpus,
            "huge": [
                {"node": node.number, "kib": pool.kib, "total": pool.total, "free": pool.free}
                for node in read_nodes(self._tree, read_cpus(self._tree))
                for pool in node.huge
                if pool.total
            ],
            "temperatures": self._temperatures(),
            "verify": verify,
        }

    def _count(self) -> _Counted:
        cpus = {}
        for line in (self._tree.text("/proc/stat") or "").splitlines():
            name, *fields = line.split()
            if name.startswith("cpu") and name != "cpu":
                # user nice system idle iowait irq softirq steal; a guest's time is in user's already
                ticks = [int(each) for each in fields[:8]]
                cpus[int(name[3:])] = sum(ticks) - ticks[3] - ticks[4], sum(ticks)
        return _Counted(time.monotonic(), cpus, self._interrupts())

    def _interrupts(self) -> dict[int, int]:
        """Of each CPU that is online, all kinds together (Linux, Documentation/filesystems/proc.rst)."""
        head, *lines = (self._tree.text("/proc/interrupts") or "").splitlines() or [""]
        numbers = [int(name.removeprefix("CPU")) for name in head.split()]
        sums = dict.fromkeys(numbers, 0)
        for line in lines:
            fields = line.split()[1 : len(numbers) + 1]
            if len(fields) == len(numbers) and all(each.isdigit() for each in fields):  # ERR and MIS have one for all
                for number, count in zip(numbers, fields, strict=True):
                    sums[number] += int(count)
        return sums

    def _temperatures(self) -> list[dict[str, Any]]:
        found = []
        for path, _ in self._tree.find("/sys/class/thermal", "thermal_zone*"):
            millidegrees = self._tree.number(f"{path}/temp")
            if millidegrees is not None:
                name = self._tree.text(f"{path}/type") or path.rpartition("/")[2]
                found.append({"name": name, "celsius": millidegrees / 1000})
        return found
