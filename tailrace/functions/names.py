"""What a function is called where other nodes have theirs too: by podman, by libvirt."""

from __future__ import annotations

import zlib
from pathlib import Path

_ORDINARY = Path("/run/tailrace")


def outer_name(folder: Path, name: str) -> str:
    """tailrace-fw, tailrace-fw.2 of its second instance; of another state folder than the ordinary one,
    tailrace-1a2b3c4d-fw. Podman takes no other characters."""
    mark = "" if folder.resolve() == _ORDINARY else f"{zlib.crc32(str(folder.resolve()).encode()):08x}-"
    return f"tailrace-{mark}{name.replace('@', '.')}"
