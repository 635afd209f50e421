"""Which boot of the machine this is."""

from __future__ import annotations

from tailrace.resources.tree import Tree


def boot_id(tree: Tree | None = None) -> str:
    """What tells one boot from another; empty for a copied machine."""
    return (tree or Tree()).text("/proc/sys/kernel/random/boot_id") or ""
