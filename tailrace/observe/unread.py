"""How busy a guest is that polls, from outside: how often the switch found frames in its rings that it had not taken
yet (dataplane/port/guest_unread.h). Its CPU time says nothing, as a loop that polls takes all.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from tailrace.errors import Failure
from tailrace.observe.page import Page


class Unread:
    """One guest, by the counters of its ports, of which the switch was told to count this (`unread`)."""

    def __init__(self, page: Path, ports: Collection[str]) -> None:
        """Raises Failure: there are no counters."""
        self._path = page
        self._ports = frozenset(ports)
        self._page: Page | None = None
        self._file = 0
        self._before: dict[str, tuple[int, int]] = {}
        """Of each queue, looks and those that found frames, as last read."""
        self._load = 0.0
        self._looked = time.monotonic()
        self._seconds = 0.0
        try:
            self._read()
        except OSError as error:
            raise Failure(f"{page}: cannot be read ({error.strerror}); is the switch running?") from None

    @property
    def seconds(self) -> float:
        """For how long threads that poll had something to do so far, each queue a thread; only differences mean
        anything. While there is no switch, it goes on as it was; where there are no rings to look at, it is idle."""
        with suppress(Failure, OSError):
            self._read()
        now = time.monotonic()
        self._seconds += self._load * (now - self._looked)
        self._looked = now
        return self._seconds

    def _read(self) -> None:
        """Raises Failure, OSError."""
        file = self._path.stat().st_ino
        if self._page is None or file != self._file:  # of a switch that was started again
            if self._page is not None:
                self._page.close()
            self._page, self._file, self._before = Page(self._path), file, {}
        idle: dict[str, float] = defaultdict(lambda: 1.0)
        for slot in self._page.slots("queue", owners=self._ports):
            queue = slot.name.rpartition("/")[2]
            looks, unread = slot.counters.get("looks", 0), slot.counters.get("looks_unread", 0)
            before = self._before.get(slot.name, (0, 0))
            self._before[slot.name] = looks, unread
            if looks > before[0]:
                # Its thread polls this queue of each port: it is idle while none of them has frames.
                idle[queue] *= 1 - (unread - before[1]) / (looks - before[0])
        self._load = sum(1 - each for each in idle.values())

    def close(self) -> None:
        if self._page is not None:
            self._page.close()
            self._page = None
