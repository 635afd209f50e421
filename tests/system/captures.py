"""Capture files: of frames, and of frames of given lengths."""

from __future__ import annotations

import os
import struct
from pathlib import Path

TAG = b"\x81\x00"


def frame(length: int, kind: bytes = b"\x08\x00") -> bytes:
    """A frame of so many bytes, of an Ethernet type."""
    return (bytes(12) + kind + bytes(length))[:length]


def pcap_of(*frames: tuple[int, int], order: str = "<", kind: bytes = b"\x08\x00") -> bytes:
    """A capture of frames of which so many bytes were kept, and that had so many."""
    records = (struct.pack(f"{order}IIII", 0, 0, kept, length) + frame(kept, kind) for kept, length in frames)
    return struct.pack(f"{order}IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + b"".join(records)


def pcapng_of(*frames: tuple[int, int], order: str = "<", kind: int = 6, type_of: bytes = b"\x08\x00") -> bytes:
    """The same as pcapng, in enhanced (6), old (2) or simple (3) blocks."""
    made = struct.pack(f"{order}IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
    made += struct.pack(f"{order}IIHHII", 1, 20, 1, 0, 0, 20)
    for kept, length in frames:
        around = struct.pack(f"{order}I", length) if kind == 3 else struct.pack(f"{order}IIIII", 0, 0, 0, kept, length)
        size = 12 + len(around) + kept + -kept % 4
        made += (
            struct.pack(f"{order}II", kind, size)
            + around
            + frame(kept, type_of)
            + bytes(-kept % 4)
            + struct.pack(f"{order}I", size)
        )
    return made


def write_capture(path: Path, frames: list[bytes], link_type: int = 1, cut: int = 0) -> str:
    """A capture of these frames, of which so many bytes were cut."""
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link_type)
    records = [struct.pack("<IIII", 0, 0, len(frame) - cut, len(frame)) + frame[: len(frame) - cut] for frame in frames]
    path.write_bytes(header + b"".join(records))
    return str(path)


def cut_off(path: str, missing: int) -> str:
    """The file without its last bytes."""
    os.truncate(path, Path(path).stat().st_size - missing)
    return path
