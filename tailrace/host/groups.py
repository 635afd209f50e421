"""Places that are more than one file: a cpuset partition, a share of the cache. Made, read and removed as one value."""

from __future__ import annotations

from contextlib import suppress

from tailrace.host.tree import Tree

PARTITION = "/sys/fs/cgroup/tailrace-isolated"
CACHE = "/sys/fs/resctrl/tailrace"


class Partitions:
    """`partition:FOLDER`: a cpuset partition that is isolated; its value is its list of CPUs, empty if there is none.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def read(self, target: str) -> str | None:
        if not self._tree.exists("/sys/fs/cgroup/cgroup.subtree_control"):
            return None
        state = self._tree.text(f"{target}/cpuset.cpus.partition") or ""
        return self._tree.text(f"{target}/cpuset.cpus") or "" if state.startswith("isolated") else ""

    def write(self, target: str, value: str) -> None:
        folder = self._tree.at(target)
        if not value:
            remove(self._tree, target, {"cpuset.cpus.partition": "member"})
            return
        if "cpuset" not in (self._tree.text("/sys/fs/cgroup/cgroup.subtree_control") or "").split():
            self._tree.write("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset")
        folder.mkdir(exist_ok=True)
        make(self._tree, f"{target}/cpuset.cpus", value)
        make(self._tree, f"{target}/cpuset.cpus.partition", "isolated")
        state = self._tree.text(f"{target}/cpuset.cpus.partition") or ""
        if "invalid" in state:
            self.write(target, "")
            raise OSError(22, f"the kernel refuses the partition: {state}")


class CacheShares:
    """`cache:FOLDER`: a group of CPUs with ways of the last-level cache of its own; its value is `CPUS L3:0=MASK;...`.

    Source: Linux, Documentation/arch/x86/resctrl.rst.
    """

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    def read(self, target: str) -> str | None:
        if not self._tree.exists("/sys/fs/resctrl/schemata"):
            return None
        cpus, shares = (self._tree.text(f"{target}/{name}") for name in ("cpus_list", "schemata"))
        if cpus is None or shares is None:
            return ""
        line = next((line.strip() for line in shares.splitlines() if line.strip().startswith("L3:")), "")
        return f"{cpus} {line}"

    def write(self, target: str, value: str) -> None:
        if not value:
            remove(self._tree, target, {})
            return
        cpus, _, shares = value.partition(" ")
        self._tree.at(target).mkdir(exist_ok=True)
        make(self._tree, f"{target}/schemata", shares)
        make(self._tree, f"{target}/cpus_list", cpus)


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
