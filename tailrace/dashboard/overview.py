"""All nodes at a glance: this one, and those of the list (nodes.py), whose dashboards are asked for their summaries.

They are asked only while somebody looks on, each by itself, so that a slow one delays no other. What comes is somebody
else's: it is taken up to a size and within a time, and has to fit the model.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tailrace.dashboard.feed import Feed
from tailrace.dashboard.host import Host
from tailrace.dashboard.nodes import ANOTHER_TOKEN, UNREACHED, Remote, why_not
from tailrace.dashboard.summary import Summary, summary
from tailrace.errors import Failure

EVERY = 1.0
"""Seconds between two times that a node is asked."""
LINGER = 5.0
"""Seconds after somebody has looked that nodes are asked on."""
_SECONDS = 5.0
"""For a whole answer."""
_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class _Seen:
    """What a node has said, or why it has not."""

    time: float
    summary: Summary | None
    why: str = ""


class Overview:
    """Runs in the server's event loop."""

    def __init__(self, feed: Feed, host: Host, remotes: tuple[Remote, ...]) -> None:
        self._feed, self._host, self._remotes = feed, host, remotes
        self._seen: dict[str, _Seen] = {}
        self._asked = float("-inf")
        self._wanted = asyncio.Event()

    async def run(self) -> None:
        """Asks the other nodes, until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for remote in self._remotes:
                tasks.create_task(self._follow(remote))

    async def _follow(self, remote: Remote) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if loop.time() - self._asked > LINGER:
                self._wanted.clear()
                self._seen.pop(remote.name, None)  # the next to look shall see nothing that is old
                await self._wanted.wait()
            began = loop.time()
            self._seen[remote.name] = await _look(remote)
            await asyncio.sleep(max(began + EVERY - loop.time(), 0.0))

    async def own(self) -> Summary:
        """This node's."""
        document, totals = await self._feed.glance()
        return summary(document, totals, await asyncio.to_thread(self._host.verify))

    async def document(self) -> dict[str, Any]:
        """Each node with its state, what it says, and how many seconds ago."""
        now = self._asked = asyncio.get_running_loop().time()
        self._wanted.set()
        nodes = [_row("", _Seen(now, await self.own()), now)]
        nodes += [_row(remote.name, self._seen.get(remote.name), now) for remote in self._remotes]
        return {"host": socket.gethostname(), "nodes": nodes}

    def routes(self) -> list[Route]:
        async def own(_: Request) -> Response:
            return JSONResponse((await self.own()).model_dump(exclude_none=True))

        async def overview(_: Request) -> Response:
            return JSONResponse(await self.document())

        return [Route("/api/summary", own), Route("/api/overview", overview)]


def _row(name: str, seen: _Seen | None, now: float) -> dict[str, Any]:
    if seen is None:
        return {"name": name, "state": "connecting"}
    age = {"name": name, "seconds": round(max(now - seen.time, 0.0), 1)}
    if seen.summary is None:
        return {**age, "state": "unreachable", "why": seen.why}
    state = "live" if seen.summary.up else "no switch"
    return {
        **age,
        "state": state,
        "why": seen.summary.why,
        "summary": seen.summary.model_dump(exclude_none=True),
    }


async def _look(remote: Remote) -> _Seen:
    time = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(_SECONDS):
            found = await _ask(remote)
    except Failure as error:
        return _Seen(time(), None, f"{remote.name}: {error}")
    except UNREACHED as error:
        return _Seen(time(), None, why_not(remote, error))
    return _Seen(time(), found)


async def _ask(remote: Remote) -> Summary:
    """Raises Failure, and UNREACHED."""
    status, _, body = await remote.ask("GET", "/api/summary")
    said = bytearray()
    try:
        if status != 200:
            known = {401: ANOTHER_TOKEN, 404: "its dashboard has no summaries; is Tailrace older there?"}
            raise Failure(known.get(status, f"its dashboard answers {status}"))
        async for chunk in body.chunks():
            said += chunk
            if len(said) > _MOST_BYTES:
                raise Failure("its summary is too long")
    finally:
        body.close()
    try:
        return Summary.model_validate_json(bytes(said))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))[:64] or "the document"
        raise Failure(f"its summary cannot be read: {where}: {first['msg']}") from None
