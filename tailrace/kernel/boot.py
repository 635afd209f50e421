"""Which boot of the machine this is."""

from __future__ import annotations

from functools import cache

from tailrace.kernel.tree import Tree


def boot_id(tree: Tree | None = None) -> str:
    """What tells one boot from another; empty for a copied machine."""
    return _own() if tree is None else _read(tree)


@cache
def _own() -> str:
    """This process does not outlive its boot."""
    return _read(Tree())


def _read(tree: Tree) -> str:
    return tree.text("/proc/sys/kernel/random/boot_id") or ""
