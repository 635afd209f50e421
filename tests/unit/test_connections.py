"""How long a connection of another process is tried."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys

import pytest

from tailrace.process.connections import connections, give_up_after

_SENDER = """\
import socket, sys
listening = socket.create_server(("127.0.0.1", 0))
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    print("connected", flush=True)
    sys.stdin.readline()
    print(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT), flush=True)
    try:
        while True:
            connection.sendall(bytes(1 << 20))
    except OSError as error:
        print(error.errno)
"""


@pytest.mark.timeout(120)
def test_what_nobody_takes_ends_a_connection_of_another_process() -> None:
    """It also listens, which is no connection."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        subprocess.Popen(
            [sys.executable, "-c", _SENDER, str(server.getsockname()[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as sender,
        server.accept()[0],
    ):
        try:
            assert sender.stdout is not None and sender.stdout.readline() == "connected\n"
            there = connections(sender.pid)
            assert len(there) == 1 and give_up_after(sender.pid, 0.5) == 1
            out, _ = sender.communicate("go\n", timeout=60)
            assert [int(each) for each in out.split()] == [500, errno.ETIMEDOUT]
        finally:
            sender.kill()
    assert give_up_after(sender.pid, 0.5) == 0 and not connections(sender.pid), "it has ended"


def test_connections_of_before_are_left_alone() -> None:
    def timeout(of: socket.socket) -> int:
        return of.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)

    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as viewer:
        before = connections(os.getpid())
        with socket.create_connection(server.getsockname()) as memory:
            assert give_up_after(os.getpid(), 0.5, before) == 1
            assert (timeout(viewer), timeout(memory)) == (0, 500)


def test_sockets_that_have_no_tcp_are_left_alone() -> None:
    near, far = socket.socketpair()
    with near, far, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.connect(("127.0.0.1", 9))
        assert give_up_after(os.getpid(), 0.5) == 0
