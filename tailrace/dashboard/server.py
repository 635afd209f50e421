"""The dashboard's server: the page, the stream of what changes, and what its views ask for (api.py)."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tailrace.dashboard import nodes
from tailrace.dashboard.access import Guard
from tailrace.dashboard.alarms import Alarms
from tailrace.dashboard.api import Places, routes
from tailrace.dashboard.door import Followers, Server, bounds
from tailrace.dashboard.events import Events
from tailrace.dashboard.feed import Feed
from tailrace.dashboard.host import Host
from tailrace.dashboard.measurement import Measurement
from tailrace.dashboard.nodes import Remote
from tailrace.dashboard.overview import Overview
from tailrace.dashboard.passwords import Passwords
from tailrace.dashboard.record import Recorder
from tailrace.dashboard.rules import EVERYTHING, Rules
from tailrace.errors import Mistake
from tailrace.observe.metrics import authority
from tailrace.observe.snapshot import Sampler

_STUCK_MS = 10_000
"""A client that takes nothing for so long is let go."""
_MOST_NAMES = 64
"""Slots whose counters are asked for at once."""
_STATIC = Path(__file__).parent / "static"
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@dataclass(frozen=True)
class Shown:
    """What is shown, and by which rules somebody is told."""

    sampler: Sampler
    events: Events
    places: Places
    rules: Rules = EVERYTHING
    control: bool = False
    """It may be changed too."""
    recorder: Recorder | None = None
    passwords: Passwords | None = None
    """Of who may look without the token."""
    remotes: tuple[Remote, ...] = ()
    """Other nodes, which the page shows too."""


def application(shown: Shown, token: str, listen: str, followers: int) -> Starlette:
    """Answers for the address or name that it listens on; so many may follow a stream."""
    host, measurement = Host(), Measurement(shown.places.runs)
    feed = Feed(shown.sampler, shown.events, Alarms(shown.rules, host, measurement), shown.recorder)
    overview = Overview(feed, host, shown.remotes)
    # Read once: what a request names is looked up here, and never becomes a path.
    files = {path.name: (path.read_bytes(), _TYPES[path.suffix]) for path in _STATIC.iterdir()}

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in files:
            return PlainTextResponse("There is no such page.\n", 404)
        content, kind = files[name]
        return Response(content, media_type=kind)

    async def stream(_: Request) -> Response:
        return StreamingResponse(feed.follow(), media_type="text/event-stream")

    async def counters(request: Request) -> Response:
        kind, names = request.query_params.get("kind", ""), request.query_params.getlist("name")[:_MOST_NAMES]
        if kind not in ("hop", "queue"):
            return JSONResponse({"error": "Expected the kind hop or queue."}, 404)
        return JSONResponse({"counters": await feed.counters(kind, names)})

    @asynccontextmanager
    async def running(_: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(feed.run()), asyncio.create_task(overview.run())]
        yield
        for each in tasks:
            each.cancel()
            with suppress(asyncio.CancelledError):
                await each
        if shown.recorder:
            shown.recorder.close()

    return Starlette(
        routes=[
            Route("/", page),
            Route("/stream", stream),
            Route("/api/counters", counters, methods=["GET"]),
            *routes(shown.places, host, measurement, control=shown.control),
            *overview.routes(),
            *nodes.routes(shown.remotes),
            Route("/{name}", page),
        ],
        middleware=[
            Middleware(Guard, token=token, listen=listen, control=shown.control, passwords=shown.passwords),
            Middleware(Followers, most=followers),
        ],
        lifespan=running,
    )


def listen_on(host: str, port: int) -> socket.socket:
    """Port 0 is any free one. Raises Mistake."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:  # a name may be none that can be looked up
        why = "no host has such a name"
        if isinstance(error, OSError):  # of an address Python's text names it again
            number = error.errno or 0
            why = os.strerror(number) if number > 0 else error.strerror or str(error)
        raise Mistake(f"{authority(host, port)}: cannot listen there ({why}); choose another with --listen") from None
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STUCK_MS)
    return listening


class Certificate(NamedTuple):
    """Files in PEM form."""

    chain: Path
    key: Path

    def check(self) -> None:
        """Raises Mistake."""
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*self)
        except ssl.SSLError as error:
            raise Mistake(f"{self.chain}, {self.key}: not a certificate and its key in PEM form ({error})") from None
        except OSError as error:
            raise Mistake(f"{self.chain}, {self.key}: {error.strerror}") from None


def server(shown: Shown, token: str, listen: str, certificate: Certificate | None = None) -> Server:
    """What answers: `run(sockets=[listening])` returns after a signal, or once `should_exit` is true."""
    connections, followers = bounds()
    config = uvicorn.Config(
        application(shown, token, listen, followers), http="h11", ws="none", loop="asyncio", log_config=None,
        log_level="critical", access_log=False, server_header=False, proxy_headers=False, timeout_graceful_shutdown=0,
        ssl_certfile=certificate and certificate.chain, ssl_keyfile=certificate and certificate.key,
    )  # fmt: skip
    return Server(config, connections)
