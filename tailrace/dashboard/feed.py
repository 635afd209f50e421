"""Pictures of one node, ten a second, for all that look on; while nobody does, and none is
recorded and nobody told of alarms, none is taken.

Each follower is sent the whole document first, and then what has changed. A change is encoded once for all. Who is too
slow for that gets the whole again instead, so that nothing waits here for anybody.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from functools import lru_cache
from zlib import crc32

from tailrace.dashboard.alarms import Alarms
from tailrace.dashboard.events import Events
from tailrace.dashboard.picture import Document, chains, nothing, patch, picture
from tailrace.dashboard.record import Recorder
from tailrace.errors import TailraceError
from tailrace.observe.snapshot import Sampler, Snapshot

EVERY = 0.1
"""Seconds between two pictures."""
LISTEN = 0.25
"""Seconds for which the end of the server may wait."""
CHECK = 1.0
"""Seconds between two looks at what alarms need beside the pictures."""
WINDOW = 1.0
"""Seconds that a rate is of: less, and nobody could read it."""
MOST = 100
"""Chains that are looked at anew for a picture."""


class Window:
    """Snapshots of the last WINDOW, or the last two."""

    def __init__(self) -> None:
        self._kept: deque[Snapshot] = deque()

    def add(self, now: Snapshot) -> Snapshot | None:
        """What `now` is to be compared with; None: it is the first."""
        self._kept.append(now)
        while len(self._kept) > 2 and now.time - self._kept[1].time >= WINDOW:
            self._kept.popleft()
        return self._kept[0] if len(self._kept) > 1 else None


class Turns:
    """Pictures of a node, of which each has only so many chains anew that it costs no more than one of a small node.

    Of n times as many chains as MOST each is looked at with every n-th picture, and its rate is of the time between.
    """

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler
        self._all = Window()
        self._hops = [Window()]
        self._chains: list[Document] = [{}]
        """Of each turn, as they were last looked at."""
        self._turn = 0

    def take(self) -> Document | None:
        """None where there is no switch; empty where a first snapshot has nothing to be compared with yet."""
        turns = len(self._hops)
        turn = self._turn = (self._turn + 1) % turns
        now = self._sampler.snapshot(lambda kind, name: kind != "hop" or _turn_of(name, turns) == turn, sparse=True)
        if now is None:
            return None
        if (before := self._hops[turn].add(now)) is not None:
            self._chains[turn] = chains(before, now)
        if (before := self._all.add(now)) is None:
            return {}
        together: Document = {}
        for each in self._chains:
            together.update(each)
        wanted = -(-len(together) // MOST) or 1
        if wanted > turns or (wanted == 1 and turns > 1):
            self._hops, self._turn = [Window() for _ in range(wanted)], 0
            self._chains = [{} for _ in range(wanted)]
            for name, chain in together.items():
                self._chains[_turn_of(f"{name}/", wanted)][name] = chain
        return picture(before, now, together)


@lru_cache(maxsize=1 << 16)
def _turn_of(hop: str, turns: int) -> int:
    """Whose turn a chain is, by the name of a hop of it."""
    return crc32(hop.rpartition("/")[0].encode()) % turns


class Feed:
    """Runs in an event loop; the switch is looked at in a thread, since it may be slow to answer."""

    def __init__(self, sampler: Sampler, events: Events, alarms: Alarms, recorder: Recorder | None = None) -> None:
        self._sampler = sampler
        self._turns = Turns(sampler)
        self._events = events
        self._alarms = alarms
        self._recorder = recorder
        self._number = 1
        self._document: Document | None = None
        self._whole = self._change = ""
        self._news = asyncio.Condition()
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
        return bool(self.followers or self._alarms.webhooks or self._recorder)

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._wanted:
                self._document = None  # the next to come shall see nothing that is old
                self._turns = Turns(self._sampler)
                async with self._news:
                    await self._news.wait_for(lambda: self._wanted)
            began = loop.time()
            document = await asyncio.to_thread(self._take)
            if document is not None:
                document["events"] = self._alarms.look(document, self._events.latest)
                if self._recorder and self._recorder.why:
                    document["record"] = self._recorder.why
                async with self._news:
                    self._publish(document)
                    self._news.notify_all()
            await asyncio.sleep(max(began + EVERY - loop.time(), 0.0))

    async def follow(self) -> AsyncIterator[str]:
        """Server-sent events: `whole`, a document, and `change`, a merge patch of the last one."""
        self.followers += 1
        seen = -1
        try:
            async with self._news:
                self._news.notify_all()  # who takes pictures may be waiting for a first follower
            yield "retry: 500\n\n"
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
            document = self._turns.take()
            why = "no switch is up; start one with `tailrace up SPEC`"
        except TailraceError as error:
            document, why = None, str(error)
        if document is None:
            self._turns = Turns(self._sampler)
            return nothing(why)
        return document or None

    def _publish(self, document: Document) -> None:
        change = _json(patch(self._document or {}, document))
        self._change = _event("change", change)
        self._document, self._whole = document, ""
        self._number += 1
        if self._recorder:
            self._recorder.write(lambda: _json(document), change)

    def _as_whole(self) -> str:
        if not self._whole:
            self._whole = _event("whole", _json(self._document or {}))
        return self._whole


def _json(document: Document) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _event(name: str, text: str) -> str:
    return f"event: {name}\ndata: {text}\n\n"
