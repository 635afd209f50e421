"""Who may use a file beside its owner and group: the list that Linux keeps with it (acl(5)).

The attribute is as include/uapi/linux/posix_acl_xattr.h says.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

Who = Literal["user", "group"]
_ATTRIBUTE = "system.posix_acl_access"
_VERSION, _NO_ID = 2, 0xFFFFFFFF
_OWNER, _USER, _OWN_GROUP, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
_TAGS = {"user": _USER, "group": _GROUP}
_Key = tuple[int, int]
"""A tag, and the number of whom it is about."""


def grant(path: Path, who: Who, number: int, permissions: int) -> None:
    """Gives a user or group permissions (4: to read, 2: to write, 1: to pass) of a file or folder; nobody
    else's change. Raises OSError, also where the file system keeps no such lists."""
    with _alone(path):
        entries = _read(path)
        if (mask := entries.pop((_MASK, _NO_ID), None)) is not None:  # what it withheld stays withheld
            for key in entries:
                if key[0] in {_USER, _OWN_GROUP, _GROUP}:
                    entries[key] &= mask
        _write(path, {**entries, (_TAGS[who], number): permissions})


def withdraw(path: Path, who: Who, number: int) -> None:
    """Takes them back; a file that has no such entry stays as it is. Raises OSError."""
    with _alone(path):
        entries = _read(path)
        if entries.pop((_TAGS[who], number), None) is not None:
            entries.pop((_MASK, _NO_ID), None)
            _write(path, entries)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Between reading and writing nobody else of ours writes."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _read(path: Path) -> dict[_Key, int]:
    try:
        found = os.getxattr(path, _ATTRIBUTE)
    except OSError as error:
        if error.errno != errno.ENODATA:
            raise
        mode = path.stat().st_mode
        return {(_OWNER, _NO_ID): mode >> 6 & 7, (_OWN_GROUP, _NO_ID): mode >> 3 & 7, (_OTHER, _NO_ID): mode & 7}
    each = (struct.unpack_from("<HHI", found, at) for at in range(4, len(found), 8))
    return {(tag, number): permissions for tag, permissions, number in each}


def _write(path: Path, entries: Mapping[_Key, int]) -> None:
    """Without named users and groups Linux keeps it as the file's mode alone."""
    named = [key for key in entries if key[0] in {_USER, _GROUP}]
    mask = 0
    for key in (*named, (_OWN_GROUP, _NO_ID)):
        mask |= entries[key]
    whole = {**entries, (_MASK, _NO_ID): mask} if named else entries
    packed = (struct.pack("<HHI", tag, whole[tag, number], number) for tag, number in sorted(whole))
    os.setxattr(path, _ATTRIBUTE, struct.pack("<I", _VERSION) + b"".join(packed))
