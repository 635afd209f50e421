"""What has happened on a node, in order: events that whoever wants to know is sent as they happen.

They are numbered from 1 while the service runs, and the last KEPT are kept, so that a listener that was away, or reads
slowly, goes on where it was. What is older is lost to it, and it is told how much.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

KEPT = 16384


class Kind(NamedTuple):
    """A kind of event."""

    level: Literal["info", "warning", "alarm"]
    """alarm: an operator has to do something; warning: something was lost, or is about to be."""
    when: str
    details: Mapping[str, str] = MappingProxyType({})
    """What it says beside whose event it is, by name."""


_SPEC = {"spec": "its path"}
_WHY = {"why": "in words"}
_PID = {"pid": "of the process"}
_AGAIN = {"again_in": "seconds until it is tried again"}
_DIED = {**_PID, "again_in": "seconds until it is started again; null: it is not"}
_TOOK = {"milliseconds": "how long that took, or how long it was out"}
_PORT = {"why": "in words; only where the switch says why"}
_LOAD = {"load": "of its CPUs, as a share of one"}
#: The kinds by what they are about, and when each happens: the words of the API.
KINDS = {
    "node.up": Kind("info", "what a spec asks for is up", _SPEC),
    "node.down": Kind("info", "everything was taken down", _SPEC),
    "node.resumed": Kind("info", "what was up before the machine was started anew is up again", _SPEC),
    "node.failed": Kind(
        "alarm", "that could not be brought back; it is tried again, after a pause", {**_WHY, **_AGAIN}
    ),
    "node.unreadable": Kind(
        "alarm", "the record of what is up cannot be read: what runs goes on, and nothing is started again", _WHY
    ),
    "node.readable": Kind("info", "the record can be read again"),
    "version.applied": Kind("info", "the switch has a new configuration", {"version": "of the configuration", **_SPEC}),
    "node.drifted": Kind(
        "alarm",
        "somebody else has changed the switch, which is not as planned any more",
        {"unlike": "what the switch carries otherwise than planned"},
    ),
    "node.as_planned": Kind("info", "the switch is as planned again"),
    "function.up": Kind("info", "a function runs and forwards", _PID),
    "function.died": Kind("warning", "a function's process has ended by itself", _DIED),
    "function.unhealthy": Kind("warning", "a function has failed its check again and again, and is killed", _WHY),
    "function.ended": Kind("info", "a function's process was ended by a change, or by an operator", _PID),
    "function.took_over": Kind(
        "warning",
        "a function in standby has the place of one that has ended",
        {"ended": "the one whose place it has", **_TOOK},
    ),
    "function.in_step": Kind(
        "info",
        "a function in standby knows the connections of the active one",
        {"connections": "that it was handed", **_TOOK},
    ),
    "function.behind": Kind(
        "warning", "connections cannot be handed over to a function in standby; it is tried again, after a pause", _WHY
    ),
    "function.priority_lost": Kind(
        "warning",
        "what has a machine's priority follow what it runs has ended, or cannot be started: it has the planned one",
        {"pid": "of who did that, if it has ended", "why": "it cannot be started", **_AGAIN},
    ),
    "function.priority_back": Kind("info", "a machine's priority follows again what it runs", _TOOK),
    "function.resized": Kind(
        "info",
        "a function has more or fewer CPUs, by its load or by an operator",
        {"before": "how many CPUs it had", "now": "how many it has", **_TOOK, **_LOAD},
    ),
    "function.crowded": Kind(
        "warning",
        "a function's load asks for other CPUs, which it cannot have; it is tried again, after a pause",
        {**_WHY, "wanted": "how many CPUs", **_LOAD},
    ),
    "function.moved": Kind(
        "info", "a machine has moved to another node", {"to": "the other node", "pause_ms": "how long it stood still"}
    ),
    "function.arrived": Kind("info", "a machine that came from another node forwards"),
    "function.returned": Kind("warning", "a machine that was lost on its way to another node was started anew here"),
    "function.restarted": Kind("info", "a function that had ended by itself forwards again", _TOOK),
    "function.failed": Kind(
        "alarm",
        "a function that has ended could not be started again; it is tried again, after a pause",
        {**_WHY, **_AGAIN},
    ),
    "switch.up": Kind("info", "the switch runs", _PID),
    "switch.ended": Kind("info", "the switch was ended by a command", _PID),
    "switch.died": Kind("alarm", "the switch has ended by itself", _DIED),
    "switch.restarted": Kind("info", "a switch that had ended by itself runs again, as it was", _TOOK),
    "switch.failed": Kind(
        "alarm",
        "a switch that has ended could not be started again; it is tried again, after a pause",
        {**_WHY, **_AGAIN},
    ),
    "chain.bypassed": Kind(
        "warning", "a chain leads past functions that have ended", {"functions": "that it leads past", **_TOOK}
    ),
    "chain.restored": Kind("info", "a chain leads through all its functions again"),
    "port.waiting": Kind("info", "nobody is attached to a port", _PORT),
    "port.up": Kind("info", "somebody is attached to a port", _PORT),
    "port.members": Kind("info", "other members of a bond can carry frames, or carry them, than before", _PORT),
    "port.down": Kind("warning", "a port's device, or its link, is gone", _PORT),
    "port.removed": Kind("warning", "a port's device was taken away; it is sought again", _PORT),
    "port.quarantined": Kind("alarm", "a port's guest broke a rule and is no longer served", _PORT),
    "port.gone": Kind("alarm", "a port was closed for a change that failed, and could not be opened again", _PORT),
    "card.lost": Kind(
        "alarm",
        "virtual functions that went with their card cannot be made again; it is tried again, after a pause",
        _WHY,
    ),
    "card.back": Kind(
        "info", "virtual functions that went with their card are made again", {"functions": "their names"}
    ),
    "service.adopted": Kind("info", "the service took up what ran before it", {"runs": "the names of what it took up"}),
}


def stamp(seconds: float) -> str:
    """2026-11-27T10:15:00.123Z (RFC 3339), of seconds since 1970."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds * 1000) % 1000:03d}Z"


@dataclass
class History:
    """The last events, each as the line that listeners are sent."""

    first: int = 1
    """The number of the oldest that is kept."""
    lines: deque[bytes] = field(default_factory=deque)

    @property
    def next(self) -> int:
        """The number that the next event gets."""
        return self.first + len(self.lines)

    def add(self, kind: str, about: str, details: Mapping[str, Any], seconds: float) -> None:
        """An event of one of KINDS, about a function, a port or nothing in particular."""
        event = {"number": self.next, "time": stamp(seconds), "kind": kind}
        event |= {"level": KINDS[kind].level, "about": about, "details": details}
        message = {"jsonrpc": "2.0", "method": "event", "params": event}
        self.lines.append(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        if len(self.lines) > KEPT:
            self.lines.popleft()
            self.first += 1

    def since(self, number: int, most: int) -> tuple[int, list[bytes], int]:
        """From an event on: how many of those are lost, at most so many of the rest, and the number to go on from."""
        start = max(number, self.first)
        end = min(self.next, start + most)
        lines = [self.lines[index - self.first] for index in range(start, end)]
        return start - number, lines, max(end, start)
