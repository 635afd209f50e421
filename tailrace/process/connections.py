"""TCP connections of other processes, whose options their programs do not set."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_PIDFD_GETFD = 438  # with every architecture


def give_up_after(pid: int, seconds: float) -> int:
    """Has the TCP connections of a process fail when nothing of what it sends has been acknowledged, or taken, for so
    long: without that TCP tries again for about 15 minutes. Needs root. Returns how many it has, 0 for a process that
    has ended. Source: TCP_USER_TIMEOUT in tcp(7), pidfd_getfd(2)."""
    count = 0
    with suppress(OSError):
        for each in _sockets(pid):
            with each, suppress(OSError):
                if each.family in (socket.AF_INET, socket.AF_INET6) and each.type == socket.SOCK_STREAM:
                    each.getpeername()  # fails for one that listens
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1e3 * seconds))
                    count += 1
    return count


def _sockets(pid: int) -> Iterator[socket.socket]:
    """All of its sockets, as duplicates. Raises OSError where it has ended."""
    process = os.pidfd_open(pid)
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if not str(entry.readlink()).startswith("socket:"):
                    continue
                duplicate = _LIBC.syscall(_PIDFD_GETFD, process, int(entry.name), 0)
                if duplicate >= 0:
                    yield socket.socket(fileno=duplicate)
    finally:
        os.close(process)
