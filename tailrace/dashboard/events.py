"""The last events of the node's service, for the page's bell."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Any

from tailrace.errors import TailraceError
from tailrace.node.client import Client

KEPT = 50
_AGAIN = 1.0
"""Seconds until a service that was not there is asked for again."""


class Events:
    """Listens for as long as it is asked to; used by one thread at a time. While no service runs there are none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._client: Client | None = None
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self.latest: dict[str, dict[str, Any]] = {}
        """By number: those that are more than information."""

    def listen(self, seconds: float) -> None:
        """Takes what comes within so long."""
        try:
            if self._client is None:
                self._client = Client(self._folder, look=True)
                self._kept.clear()  # a service that was started anew numbers from 1 again
                self._client.subscribe(1)
            while (event := self._client.next_event(seconds)) is not None:
                seconds = 0.0
                if event.get("level", "info") != "info":
                    self._kept.append(event)
        except TailraceError:
            self.close()
            time.sleep(_AGAIN)
        self.latest = {
            str(each["number"]): {name: each[name] for name in ("time", "kind", "level", "about")}
            for each in self._kept
        }

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
