"""Room on disk for what a long run keeps."""

from __future__ import annotations

import shutil
from pathlib import Path


def free_bytes(folder: Path) -> int:
    """What is free where a folder is, or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def mib(size: int) -> str:
    """A number of bytes for people."""
    return f"{size / (1 << 20):,.0f} MiB"
