"""TCP connections of other processes, whose options their programs do not set."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_PIDFD_GETFD = 438  # with every architecture


def connections(pid: int) -> frozenset[int]:
    """The TCP connections of a process, each by a number that no other socket has while it is open; none of a process
    that has ended. Needs root."""
    return frozenset(_number(each) for each in _connections(pid))


def give_up_after(pid: int, seconds: float, before: Collection[int] = ()) -> int:
    """Has the TCP connections of a process fail when nothing of what it sends has been acknowledged, or taken, for so
    long: without that TCP tries again for about 15 minutes. Those of `before` (`connections`) are left alone. Needs
    root. Returns how many others there are, 0 for a process that has ended. Source: TCP_USER_TIMEOUT in tcp(7)."""
    count = 0
    for each in _connections(pid):
        if _number(each) not in before:
            with suppress(OSError):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1e3 * seconds))
                count += 1
    return count


def _number(connection: socket.socket) -> int:
    """Source: sockfs in proc_pid_fd(5), whose inodes these are."""
    return os.fstat(connection.fileno()).st_ino


def _connections(pid: int) -> Iterator[socket.socket]:
    """Of its sockets those that are connected by TCP, each open until the next one; none where it has ended."""
    with suppress(OSError):
        for each in _sockets(pid):
            with each:
                if each.family not in (socket.AF_INET, socket.AF_INET6) or each.type != socket.SOCK_STREAM:
                    continue
                try:
                    each.getpeername()
                except OSError:  # it listens
                    continue
                yield each


def _sockets(pid: int) -> Iterator[socket.socket]:
    """All of its sockets, as duplicates. Raises OSError where it has ended. Source: pidfd_getfd(2)."""
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
