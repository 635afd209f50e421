"""The server that Prometheus scrapes: a thread for each connection, of which there is a bounded number.

Whoever reaches its address may connect. At the bound the connection that has been without a request for longest makes
room for the next, or else the one that has been answered for longest, so that those who send or take nothing neither
keep a scrape out nor take all descriptors.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from socketserver import ThreadingMixIn
from typing import IO, Any, cast
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer

MOST = 64
"""Connections at once."""
_SECONDS = 10.0
"""A client that sends or takes nothing for so long is let go."""

_LONGEST = 1 << 16
"""Bytes of a request's first line."""


class _Answer(ServerHandler):
    def log_exception(self, exc_info: Any) -> None:
        """Nothing is written of who takes no answer."""
        if not isinstance(exc_info[1], (ConnectionError, TimeoutError)):
            super().log_exception(exc_info)


class _Handler(WSGIRequestHandler):
    timeout = _SECONDS
    server: ScrapeServer

    def parse_request(self) -> bool:
        parsed = super().parse_request()
        self.server.asked(self.connection)
        return parsed

    def handle(self) -> None:
        with suppress(OSError):  # it has gone, or was ended
            self.raw_requestline = self.rfile.readline(_LONGEST + 1)
            if len(self.raw_requestline) > _LONGEST:
                self.requestline = self.request_version = self.command = ""
                self.send_error(414)
            elif self.parse_request():
                written = cast(IO[bytes], self.wfile)
                answer = _Answer(self.rfile, written, self.get_stderr(), self.get_environ(), multithread=True)
                answer.request_handler = self  # type: ignore[attr-defined]
                answer.run(self.server.get_app())  # type: ignore[arg-type]

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
        self._asked: dict[socket.socket, None] = {}
        """Those with one, the oldest first."""
        super().__init__((str(address[0]), port), _Handler)

    def asked(self, connection: socket.socket) -> None:
        """Its request is read as far as its headers."""
        with self._lock:
            if connection in self._idle:
                del self._idle[connection]
                self._asked[connection] = None

    def verify_request(self, request: Any, _: Any) -> bool:
        """Makes room for it; it is always answered."""
        with self._lock:
            if len(self._idle) + len(self._asked) >= MOST:
                ended = self._idle or self._asked
                oldest = next(iter(ended))
                del ended[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread closes it
            self._idle[request] = None
        return True

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._idle.pop(request, None)
            self._asked.pop(request, None)
        super().shutdown_request(request)
