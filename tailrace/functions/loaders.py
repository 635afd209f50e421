"""Of which architectures the loaders on a disk are that UEFI starts: so an image of another one is known. A few sectors
are read and, whatever they say, no more than _MOST bytes at once.

Sources: the UEFI specification 2.10, 3.5.1.1 (loaders' names) and 5.3.3 (partitions); Microsoft's FAT specification,
1.03.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator

Read = Callable[[int, int], bytes]
"""Reads so many bytes from a place of the disk."""
_SECTOR = 512
_MOST = 32 << 10
_SYSTEM = uuid.UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b").bytes_le
"""The type of the partition that UEFI boots from, in a GPT; and in a PC's table."""
_SYSTEM_MBR = 0xEF
_END, _DELETED, _LONG_NAME = 0x00, 0xE5, 0x0F
OURS = "BOOTX64.EFI"


def foreign_loaders(begin: bytes, read: Read) -> list[str]:
    """The loaders, such as BOOTAA64.EFI, on a disk that begins so, where all of them are of other architectures; none
    where one is ours, or what is there is not known."""
    try:
        found = [name for first in _partitions(begin, read) for name in _loaders(first, read)]
    except (struct.error, IndexError, ValueError):
        return []
    return [] if OURS in found else sorted(found)


def _partitions(begin: bytes, read: Read) -> Iterator[int]:
    """The first bytes of those that UEFI boots from."""
    if begin[512:520] != b"EFI PART":
        for number in range(4):
            kind, first = struct.unpack_from("<4xB3xI", begin, 446 + 16 * number)
            if kind == _SYSTEM_MBR:
                yield first * _SECTOR
        return
    at, count, size = struct.unpack_from("<QII", begin, 512 + 72)
    if size < 128:
        raise ValueError("no entry is that short")
    entries = read(at * _SECTOR, min(count * size, _MOST))
    for place in range(0, len(entries) - 127, size):
        if entries[place : place + 16] == _SYSTEM:
            yield struct.unpack_from("<Q", entries, place + 32)[0] * _SECTOR


def _loaders(first: int, read: Read) -> list[str]:
    """Of the file system that begins there: what is in its folder EFI/BOOT and has a name that UEFI looks for."""
    head = read(first, _SECTOR)
    sector, per_cluster, reserved, tables, in_root = struct.unpack_from("<HBHBH", head, 11)
    short, long, root_cluster = *struct.unpack_from("<H", head, 22), *struct.unpack_from("<I4xI", head, 36)
    cluster = sector * per_cluster
    if sector not in (512, 1024, 2048, 4096) or cluster == 0:
        return []
    root = first + (reserved + tables * (short or long)) * sector
    data = root + in_root * 32

    def of_cluster(number: int) -> bytes:
        return read(data + (number - 2) * cluster, min(cluster, _MOST)) if number >= 2 else b""

    folder = read(root, min(in_root * 32, _MOST)) if in_root else of_cluster(root_cluster)
    for name in ("EFI", "BOOT"):
        folder = of_cluster(next((number for each, number in _entries(folder) if each == name), 0))
    return [name for name, _ in _entries(folder) if name.startswith("BOOT") and name.endswith(".EFI")]


def _entries(folder: bytes) -> Iterator[tuple[str, int]]:
    """The short names in a folder, each with the cluster where that begins."""
    for place in range(0, len(folder) - 31, 32):
        name, attributes, high, low = struct.unpack_from("<11sB8xH4xH", folder, place)
        if name[0] == _END:
            return
        if name[0] == _DELETED or attributes & _LONG_NAME == _LONG_NAME:
            continue
        stem, ending = (part.decode("latin-1").rstrip() for part in (name[:8], name[8:]))
        yield f"{stem}.{ending}" if ending else stem, high << 16 | low
