"""The server that Prometheus scrapes: a thread for each connection, of which there is a bounded number.

Whoever reaches its address may connect. At the bound the connection that has been without a request for longest makes
room for the next, so that those who send nothing neither keep a scrape out nor take all descriptors.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

MOST = 64
"""Connections at once."""
_SECONDS = 10.0
"""A client that sends or takes nothing for so long is let go."""


class _Handler(WSGIRequestHandler):
    timeout = _SECONDS
    server: ScrapeServer

    def parse_request(self) -> bool:
        parsed = super().parse_request()
        self.server.asked(self.connection)
        return parsed

    def handle(self) -> None:
        with suppress(OSError):  # it has gone, or was ended
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is written of what anybody sends."""


class ScrapeServer(ThreadingMixIn, WSGIServer):
    """Answers by `set_app`'s application. Raises OSError and UnicodeError where it cannot listen there."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int) -> None:
        self.address_family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._lock = threading.Lock()
        self._idle: dict[socket.socket, None] = {}
        """Connections without a request, the oldest first."""
        self._asked: set[socket.socket] = set()
        super().__init__((str(address[0]), port), _Handler)

    def asked(self, connection: socket.socket) -> None:
        """Its request is read as far as its headers."""
        with self._lock:
            if connection in self._idle:
                del self._idle[connection]
                self._asked.add(connection)

    def verify_request(self, request: Any, _: Any) -> bool:
        """Whether there is room for it; if not it is ended."""
        with self._lock:
            if len(self._idle) + len(self._asked) >= MOST:
                if not self._idle:
                    return False
                oldest = next(iter(self._idle))
                del self._idle[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread closes it
            self._idle[request] = None
        return True

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._idle.pop(request, None)
            self._asked.discard(request)
        super().shutdown_request(request)
