"""Pictures of one node, ten a second, for all that look on; while nobody does, and none is
recorded and nobody told of alarms, none is taken.

Each follower is sent the whole document first, and then what has changed. A change is encoded once for all. Who is too
slow for that gets the whole again instead, so that nothing waits here for anybody.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from pydantic_core import to_json

from tailrace.dashboard.alarms import Alarms
from tailrace.dashboard.events import Events
from tailrace.dashboard.picture import Pictures, Totals, nothing
from tailrace.dashboard.record import Recorder
from tailrace.dashboard.turns import Document
from tailrace.errors import TailraceError
from tailrace.observe.snapshot import Sampler

EVERY = 0.1
"""Seconds between two pictures."""
SELDOM = 1.0
"""The same, while they are only glanced at."""
GLANCED = 5.0
"""Seconds after a glance that pictures are taken on."""
LISTEN = 0.5
"""Seconds for which the end of the server may wait."""
CHECK = 1.0
"""Seconds between two looks at what alarms need beside the pictures."""


class Feed:
    """Runs in an event loop; what the switch is asked, it is asked in a thread, since it may be slow to answer."""

    def __init__(self, sampler: Sampler, events: Events, alarms: Alarms, recorder: Recorder | None = None) -> None:
        self._sampler = sampler
        self._pictures = Pictures()
        self._events = events
        self._alarms = alarms
        self._recorder = recorder
        self._number = 1
        self._document: Document | None = None
        self._whole = self._change = b""
        self._news = asyncio.Condition()
        self._reading = asyncio.Lock()
        """Of the sampler, which serves one at a time."""
        self._glanced = self._summed = float("-inf")
        self._glance: tuple[Document, Totals] | None = None
        self.followers = 0

    async def run(self) -> None:
        """Takes pictures, and hears of events, until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen())
            tasks.create_task(self._check())
            tasks.create_task(self._look())

    async def _listen(self) -> None:
        while True:  # beside the pictures, which do not wait for a service that is busy
            await asyncio.to_thread(self._events.listen, LISTEN)

    async def _check(self) -> None:
        while True:
            if self._wanted:
                await asyncio.to_thread(self._alarms.check)
            await asyncio.sleep(CHECK)

    @property
    def _wanted(self) -> bool:
        return self._watched or time.monotonic() - self._glanced <= GLANCED

    @property
    def _watched(self) -> bool:
        """Whether somebody takes each picture."""
        return bool(self.followers or self._alarms.webhooks or self._recorder)

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._wanted:
                self._document = self._glance = None  # the next to come shall see nothing that is old
                self._pictures = Pictures()
                async with self._news:
                    await self._news.wait_for(lambda: self._wanted)
            began = loop.time()
            async with self._reading:
                document = self._take() if self._sampler.at_hand() else await asyncio.to_thread(self._take)
            if document is not None:
                document["events"] = self._alarms.look(document, self._events.latest)
                if self._recorder and self._recorder.why:
                    document["record"] = self._recorder.why
                async with self._news:
                    self._publish(document)
                    self._sum(document)
                    self._news.notify_all()
            await asyncio.sleep(max(began + EVERY - loop.time(), 0.0))
            if not self._watched and self._document is not None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(SELDOM - EVERY), self._news:
                        await self._news.wait_for(lambda: self._watched)

    async def glance(self) -> tuple[Document, Totals]:
        """A picture that is at most about a second old, and the sums over its chains."""
        self._glanced = time.monotonic()
        async with self._news:
            self._news.notify_all()
            while self._glance is None:
                await self._news.wait()
        return self._glance

    def _sum(self, document: Document) -> None:
        """For those who glance; a picture in ten, since that goes through all chains."""
        now = time.monotonic()
        if now - self._glanced > GLANCED:
            self._glance = None
        elif self._glance is None or now - self._summed >= SELDOM - EVERY:
            self._glance, self._summed = (document, self._pictures.totals()), now

    async def counters(self, kind: str, names: Sequence[str]) -> dict[str, dict[str, int]]:
        """All that is counted of a hop (`CHAIN/N`) or of ports' queues, since each began. Nothing where pictures have
        not been taken lately."""
        async with self._reading:
            return self._sampler.counters(kind, names) if self._document is not None else {}

    async def follow(self) -> AsyncIterator[bytes]:
        """Server-sent events: `whole`, a document, and `change`, a merge patch of the last one."""
        self.followers += 1
        seen = -1
        try:
            async with self._news:
                self._news.notify_all()  # who takes pictures may be waiting for a first follower
            yield b"retry: 500\n\n"
            while True:
                async with self._news:
                    while self._document is None or self._number == seen:
                        await self._news.wait()
                event = self._change if seen == self._number - 1 else self._as_whole()
                seen = self._number
                yield event
        finally:
            self.followers -= 1

    def _take(self) -> Document | None:
        """What is to be seen now; None where there is nothing yet to compare a first snapshot with."""
        try:
            now = self._sampler.snapshot("worker")
            live = self._watched and self._pictures.live
            document = now and self._pictures.take(now, *self._sampler.tables("queue", "hop", live=live))
            why = "no switch is up; start one with `tailrace up SPEC`"
        except TailraceError as error:
            document, why = None, str(error)
        except KeyError as error:
            lacking = f"it counts no {error.args[0]}"
            document, why = None, f"the switch that is up is of another version of Tailrace ({lacking}); look with that"
        if document is None:
            self._pictures = Pictures()
            return nothing(why)
        return document or None

    def _publish(self, document: Document) -> None:
        change = to_json(self._pictures.change(self._document or {}, document))
        self._change = _event(b"change", change)
        self._document, self._whole = document, b""
        self._number += 1
        if self._recorder:
            self._recorder.write(lambda: to_json(document), change)

    def _as_whole(self) -> bytes:
        if not self._whole:
            self._whole = _event(b"whole", to_json(self._document or {}))
        return self._whole


def _event(name: bytes, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name, data)
