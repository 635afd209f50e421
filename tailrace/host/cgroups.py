"""Places that are more than one file: control groups of cpuset. Made, read and removed as one value."""

from __future__ import annotations

from contextlib import suppress

from tailrace.kernel.tree import Tree
from tailrace.process.systemd import CGROUP

PARTITION = f"{CGROUP}/tailrace-isolated"
CPUSETS = f"{CGROUP}/cpuset"
"""Of version 1, where it has one for each controller."""
DOMAIN = f"{CPUSETS}/tailrace-system"
CACHE = "/sys/fs/resctrl/tailrace"
"""Of resctrl (resctrl.py)."""


class Partitions:
    """`partition:FOLDER`: a cpuset partition that is isolated; its value is its list of CPUs, empty if there is none.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def read(self, target: str) -> str | None:
        if not self._tree.exists(f"{CGROUP}/cgroup.subtree_control"):
            return None
        if not self._tree.exists(target):
            return ""
        state, cpus = (self._tree.text(f"{target}/{name}") or "" for name in ("cpuset.cpus.partition", "cpuset.cpus"))
        return cpus if state == "isolated" else f"{cpus} {state}: not isolated"

    def write(self, target: str, value: str) -> None:
        folder = self._tree.at(target)
        if not value:
            remove(self._tree, target, {"cpuset.cpus.partition": "member"})
            return
        folder.mkdir(exist_ok=True)
        make(self._tree, f"{target}/cpuset.cpus", value)
        make(self._tree, f"{target}/cpuset.cpus.partition", "isolated")
        state = self._tree.text(f"{target}/cpuset.cpus.partition") or ""
        if "invalid" in state:
            self.write(target, "")
            raise OSError(22, f"the kernel refuses the partition: {state}")


class Controllers:
    """`controller:NAME`: whether groups of the first level have a controller of version 2, `on` or `off`."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def read(self, target: str) -> str | None:
        if target not in (self._tree.text(f"{CGROUP}/cgroup.controllers") or "").split():
            return None
        return "on" if target in (self._tree.text(f"{CGROUP}/cgroup.subtree_control") or "").split() else "off"

    def write(self, target: str, value: str) -> None:
        path = f"{CGROUP}/cgroup.subtree_control"
        if self._tree.live:
            self._tree.write(path, f"{'+' if value == 'on' else '-'}{target}")
            return
        others = [name for name in (self._tree.text(path) or "").split() if name != target]
        self._tree.write(path, " ".join([*others, target] if value == "on" else others))


class Domains:
    """`domains:FOLDER`: the CPUs among which the scheduler balances, as a cpuset of version 1 that nothing is moved to;
    its value is its list of CPUs, empty where balancing is among all.

    Source: Linux, Documentation/admin-guide/cgroup-v1/cpusets.rst, cpuset.sched_load_balance.
    """

    _BALANCE = "cpuset.sched_load_balance"

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def read(self, target: str) -> str | None:
        whole = self._tree.text(f"{CPUSETS}/{self._BALANCE}")
        if not self._tree.exists(target):
            return "" if whole == "1" else None  # off without us: somebody else has arranged it so
        cpus = self._tree.text(f"{target}/cpuset.cpus") or ""
        return cpus if whole == "0" else f"{cpus}: not in effect"

    def write(self, target: str, value: str) -> None:
        if not value:
            self._tree.write(f"{CPUSETS}/{self._BALANCE}", "1")
            remove(self._tree, target, {})
            return
        self._tree.at(target).mkdir(exist_ok=True)
        make(self._tree, f"{target}/cpuset.cpus", value)
        make(self._tree, f"{target}/cpuset.mems", self._tree.text(f"{CPUSETS}/cpuset.mems") or "0")
        make(self._tree, f"{target}/{self._BALANCE}", "1")
        self._tree.write(f"{CPUSETS}/{self._BALANCE}", "0")


def make(tree: Tree, path: str, value: str) -> None:
    """Writes a file of a group that has just been made: the kernel has filled it, a copied tree has not."""
    if not tree.live:
        tree.at(path).touch()
    tree.write(path, value)


def remove(tree: Tree, folder: str, first: dict[str, str]) -> None:
    """Removes a group, after writing what it needs to hear first. Raises OSError."""
    at = tree.at(folder)
    if not at.exists():
        return
    for name, value in first.items():
        with suppress(OSError):
            tree.write(f"{folder}/{name}", value)
    if not tree.live:
        for file in at.iterdir():
            file.unlink()
    at.rmdir()
