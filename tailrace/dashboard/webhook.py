"""Webhooks: each alarm as a JSON object, sent by a thread, so that nobody waits for whoever is told."""

from __future__ import annotations

import json
import queue
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import BadStatusLine, HTTPException, RemoteDisconnected
from typing import Any
from urllib.parse import urlsplit

from tailrace.node.events import stamp

_WAITING = 100
"""Alarms that wait to be sent; of more, the newest are not."""
_SECONDS = 5.0
_PAUSES = (0.0, 1.0, 5.0)
"""Seconds before each attempt."""


class _Straight(urllib.request.HTTPRedirectHandler):
    """What was to be told to one is not told to another."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Webhooks:
    """Those who are told of each alarm."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._queues = {url: queue.Queue[dict[str, Any]](_WAITING) for url in urls}
        self.failures: dict[str, dict[str, Any]] = {}
        """The last failure of each, as an event; none where the last alarm was taken."""
        self._name = socket.gethostname()
        self._opener = urllib.request.build_opener(_Straight)
        for url, waiting in self._queues.items():
            threading.Thread(target=self._send_all, args=(url, waiting), daemon=True).start()

    def __bool__(self) -> bool:
        return bool(self._queues)

    def tell(self, alarm: Mapping[str, Any]) -> None:
        for url, waiting in self._queues.items():
            try:
                waiting.put_nowait({"host": self._name, **alarm})
            except queue.Full:
                self._failed(url, f"{_WAITING} alarms wait already")

    def _send_all(self, url: str, waiting: queue.Queue[dict[str, Any]]) -> None:
        while True:
            alarm = waiting.get()
            why = ""
            for pause in _PAUSES:
                time.sleep(pause)
                if not (why := self._send(url, alarm)):
                    break
            if why:
                self._failed(url, why)
            else:
                self.failures = {key: each for key, each in self.failures.items() if key != _key(url)}

    def _send(self, url: str, alarm: dict[str, Any]) -> str:
        """Why it was not taken; empty if it was."""
        headers = {"Content-Type": "application/json", "User-Agent": "tailrace"}
        request = urllib.request.Request(url, json.dumps(alarm).encode(), headers)
        try:
            with self._opener.open(request, timeout=_SECONDS):
                return ""
        except urllib.error.HTTPError as error:
            error.close()
            return f"it answers {error.code}"
        except BadStatusLine as error:
            return "it ended the connection" if isinstance(error, RemoteDisconnected) else "it does not speak HTTP"
        except (OSError, ValueError, HTTPException) as error:
            return str(getattr(error, "reason", error))

    def _failed(self, url: str, why: str) -> None:
        """Only the host is named: the rest of an address may be a secret."""
        about = urlsplit(url).hostname or "webhook"
        event = {"time": stamp(time.time()), "kind": f"webhook: {why}", "level": "warning", "about": about}
        self.failures = {**self.failures, _key(url): event}


def _key(url: str) -> str:
    return f"webhook {hash(url)}"
