"""iperf3 as a client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

_PATIENCE = 30.0
_BUSY = ("busy", "unable to receive control message", "Connection reset by peer", "Connection refused")
"""How a server says so, how it ends a connection that comes while it says so to another, and what comes of one while it
opens its socket anew for the next test (3.18)."""
_CLIENT = 'iperf3 --client "$@" || :'
"""What went wrong is in its JSON."""


def iperf(run: Callable[..., str], to: str, seconds: int, *options: str) -> dict[str, Any]:
    """What iperf3 says at the end of a test, which `run` starts. Its server takes one client at a time, and is busy for
    a moment after the last one: then it is asked again."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        said: dict[str, Any] = json.loads(
            run("sh", "-c", _CLIENT, "sh", to, "--time", str(seconds), "--json", *options)
        )
        if "error" not in said:
            end: dict[str, Any] = said["end"]
            return end
        busy = any(words in said["error"] for words in _BUSY)
        assert busy and time.monotonic() < deadline, said["error"]
        time.sleep(0.1)
