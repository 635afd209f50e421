"""A TCP connection between two network namespaces that stays open, and says something when it is told to."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

ECHO = """
import socket, sys, threading
def answer(peer):
    while data := peer.recv(4096):
        peer.sendall(data)
with socket.create_server(("", int(sys.argv[1]))) as server:
    while True:
        threading.Thread(target=answer, args=[server.accept()[0]], daemon=True).start()
"""
TALK = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 20) as peer, peer.makefile("rw") as lines:
    for line in sys.stdin:
        lines.write(line)
        lines.flush()
        print(lines.readline(), end="", flush=True)
"""


@dataclass
class Conversation:
    client: subprocess.Popen[str]

    def says(self, word: str) -> str:
        """Sends a word; returns what comes back: nothing, if nothing comes in 20 s."""
        assert self.client.stdin is not None and self.client.stdout is not None
        self.client.stdin.write(f"{word}\n")
        self.client.stdin.flush()
        return self.client.stdout.readline().strip()


@contextmanager
def conversation(namespace: str, to: str, port: int) -> Iterator[Conversation]:
    """With an ECHO server that listens there."""
    words = ["ip", "netns", "exec", namespace, "python3", "-c", TALK, to, str(port)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        try:
            yield Conversation(client)
        finally:
            client.kill()
