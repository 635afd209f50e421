"""The door of the dashboard's server: connections are accepted here, and those that ask for nothing are ended.

Whoever reaches the address may connect, with no token. So connections are bounded below the descriptors that the
process may have: at the bound the one that has been without a request for longest makes room for the next, one that
was never let in before others. Only who is let in may wait for an answer, or take one slowly. One connection is
accepted in each round of the event loop; what the others have sent is read between two. Everything here runs in that
loop.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections.abc import Sequence
from typing import Any, NamedTuple

import h11
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS = 10.0
"""For a whole request that is let in, from the connection or from the last answer to such a one; for a TLS handshake
too. Who is not let in has no more in all."""
LET_IN = "tailrace.let_in"
"""True in the scope of a request whose sender may look."""
_SWEEP = 1.0
"""Seconds between two looks at who has had that long."""
_RETRY = 0.1
"""Seconds until the next connection is accepted, where the system has no descriptor or memory for it."""
_OWN = 64
"""Descriptors for all but connections."""


class Bounds(NamedTuple):
    connections: int
    followers: int
    """Of both streams together; one of another node's takes a connection to it too."""


def bounds(descriptors: int | None = None) -> Bounds:
    """What fits into so many descriptors; unless given, into those that this process may have."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if descriptors is None else descriptors
    free = max(soft - _OWN, 6) if soft != resource.RLIM_INFINITY else 1 << 20
    return Bounds(min(free * 2 // 3, 1024), min(free // 3, 200))


class Followers:
    """Middleware that counts who looks on, from when one is let in: a thousand may come before the first is served."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most
        self._count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].rpartition("/")[2] != "stream":
            await self._app(scope, receive, send)
            return
        if self._count >= self._most:
            await PlainTextResponse("Too many look on.\n", 503, {"Retry-After": "5"})(scope, receive, send)
            return
        self._count += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._count -= 1


class _Visitor(H11Protocol):
    """A connection, from when it is accepted."""

    def __init__(self, door: Door, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._door = door
        self._connecting: asyncio.Task[None] | None = None
        self.since = self.loop.time()
        """When it last had nothing to wait for."""
        self.known = False
        """It has had an answer for which it was let in."""

    @property
    def _let_in(self) -> bool:
        return self.cycle is not None and LET_IN in self.cycle.scope

    @property
    def asks(self) -> bool:
        """Whether it has sent a whole request that was let in, and not all of the answer has left yet."""
        if not self._let_in:
            return False
        if self.transport is not None and self.transport.get_write_buffer_size():
            return True  # who takes nothing of it is ended by TCP_USER_TIMEOUT
        whole = self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)
        return whole and not self.cycle.response_complete

    def connect(self, connection: socket.socket, context: ssl.SSLContext | None) -> None:
        self._connecting = self.loop.create_task(self._connect(connection, context))

    async def _connect(self, connection: socket.socket, context: ssl.SSLContext | None) -> None:
        limit = SECONDS if context else None
        try:
            await self.loop.connect_accepted_socket(lambda: self, connection, ssl=context, ssl_handshake_timeout=limit)
        except (OSError, asyncio.CancelledError):  # it has gone, or speaks no TLS
            connection.close()
            self._door.left(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._door.left(self)

    def on_response_complete(self) -> None:
        if self._let_in:
            self.known, self.since = True, self.loop.time()
        super().on_response_complete()
        self._door.accept_on()  # it may make room now

    def end(self) -> None:
        self._door.left(self)
        if self.transport is not None:
            self.transport.abort()
        elif self._connecting is not None:
            self._connecting.cancel()


class Door:
    """Accepts connections for a server, in whose list of servers it stands. The sockets are the server's to close."""

    def __init__(self, server: uvicorn.Server, sockets: Sequence[socket.socket], most: int) -> None:
        self._server = server
        self._sockets = sockets
        self._most = most
        self._visitors: dict[_Visitor, None] = {}
        self._loop = asyncio.get_running_loop()
        self._open = self._accepting = False

    def open(self) -> None:
        self._open = True
        for each in self._sockets:
            each.setblocking(False)
            each.listen(self._server.config.backlog)
        self.accept_on()
        self._sweep()

    def close(self) -> None:
        self._open = False
        self._pause()

    async def wait_closed(self) -> None:
        """Nothing waits: the server itself ends the connections that are left."""

    def left(self, visitor: _Visitor) -> None:
        self._visitors.pop(visitor, None)
        self.accept_on()

    def accept_on(self) -> None:
        """Accepts again, where it has paused."""
        if self._open and not self._accepting:
            self._accepting = True
            for each in self._sockets:
                self._loop.add_reader(each, self._accept, each)

    def _pause(self) -> None:
        if self._accepting:
            self._accepting = False
            for each in self._sockets:
                self._loop.remove_reader(each)

    def _accept(self, listening: socket.socket) -> None:
        if len(self._visitors) >= self._most:
            silent = (each for each in self._visitors if not each.asks)
            idle = min(silent, key=lambda each: (each.known, each.since), default=None)
            if idle is None:  # the next one waits until one of them has its answer
                self._pause()
                return
            idle.end()
        try:
            connection, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError:  # no descriptor or memory for it; the socket stays readable
            self._pause()
            self._loop.call_later(_RETRY, self.accept_on)
            return
        connection.setblocking(False)
        config, state = self._server.config, self._server
        visitor = _Visitor(
            self, config=config, server_state=state.server_state, app_state=state.lifespan.state, _loop=self._loop
        )
        self._visitors[visitor] = None
        visitor.connect(connection, config.ssl)

    def _sweep(self) -> None:
        if not self._open:
            return
        now = self._loop.time()
        for each in list(self._visitors):
            if each.asks:
                each.since = now
            elif now - each.since > SECONDS:
                each.end()
        self.accept_on()  # the rest of an answer may have left
        self._loop.call_later(_SWEEP, self._sweep)


class Server(uvicorn.Server):
    """A server with such a door. `run(sockets=[listening])` returns after a signal, or once `should_exit` is true."""

    def __init__(self, config: uvicorn.Config, most: int) -> None:
        super().__init__(config)
        self._most = most

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        door = Door(self, sockets or [], self._most)
        self.servers = [door]  # type: ignore[list-item]
        door.open()
