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
from typing import Any, Literal, NamedTuple

KEPT = 16384


class Kind(NamedTuple):
    """A kind of event."""

    level: Literal["info", "warning", "alarm"]
    """alarm: an operator has to do something; warning: something was lost, or is about to be."""
    when: str


#: The kinds by what they are about, and when each happens: the words of the API.
KINDS = {
    "node.up": Kind("info", "what a spec asks for is up"),
    "node.down": Kind("info", "everything was taken down"),
    "node.resumed": Kind("info", "what was up before the machine was started anew is up again"),
    "node.failed": Kind("alarm", "that could not be brought back; it is tried again, after a pause"),
    "node.unreadable": Kind(
        "alarm", "the record of what is up cannot be read: what runs goes on, and nothing is started again"
    ),
    "node.readable": Kind("info", "the record can be read again"),
    "version.applied": Kind("info", "the switch has a new configuration"),
    "node.drifted": Kind("alarm", "somebody else has changed the switch, which is not as planned any more"),
    "node.as_planned": Kind("info", "the switch is as planned again"),
    "function.up": Kind("info", "a function runs and forwards"),
    "function.died": Kind("warning", "a function's process has ended by itself"),
    "function.unhealthy": Kind("warning", "a function has failed its check again and again, and is killed"),
    "function.ended": Kind("info", "a function's process was ended by a change, or by an operator"),
    "function.took_over": Kind("warning", "a function in standby has the place of one that has ended"),
    "function.in_step": Kind("info", "a function in standby knows the connections of the active one"),
    "function.behind": Kind(
        "warning", "connections cannot be handed over to a function in standby; it is tried again, after a pause"
    ),
    "function.priority_lost": Kind(
        "warning",
        "what has a machine's priority follow what it runs has ended, or cannot be started: it has the planned one",
    ),
    "function.priority_back": Kind("info", "a machine's priority follows again what it runs"),
    "function.resized": Kind("info", "a function has more or fewer CPUs, by its load or by an operator"),
    "function.crowded": Kind(
        "warning", "a function's load asks for other CPUs, which it cannot have; it is tried again, after a pause"
    ),
    "function.moved": Kind("info", "a machine has moved to another node"),
    "function.arrived": Kind("info", "a machine that came from another node forwards"),
    "function.returned": Kind("warning", "a machine that was lost on its way to another node was started anew here"),
    "function.restarted": Kind("info", "a function that had ended by itself forwards again"),
    "function.failed": Kind(
        "alarm", "a function that has ended could not be started again; it is tried again, after a pause"
    ),
    "switch.up": Kind("info", "the switch runs"),
    "switch.ended": Kind("info", "the switch was ended by a command"),
    "switch.died": Kind("alarm", "the switch has ended by itself"),
    "switch.restarted": Kind("info", "a switch that had ended by itself runs again, as it was"),
    "switch.failed": Kind(
        "alarm", "a switch that has ended could not be started again; it is tried again, after a pause"
    ),
    "chain.bypassed": Kind("warning", "a chain leads past functions that have ended"),
    "chain.restored": Kind("info", "a chain leads through all its functions again"),
    "port.waiting": Kind("info", "nobody is attached to a port"),
    "port.up": Kind("info", "somebody is attached to a port"),
    "port.members": Kind("info", "other members of a bond can carry frames, or carry them, than before"),
    "port.down": Kind("warning", "a port's device, or its link, is gone"),
    "port.removed": Kind("warning", "a port's device was taken away; it is sought again"),
    "port.quarantined": Kind("alarm", "a port's guest broke a rule and is no longer served"),
    "port.gone": Kind("alarm", "a port was closed for a change that failed, and could not be opened again"),
    "card.lost": Kind(
        "alarm", "virtual functions that went with their card cannot be made again; it is tried again, after a pause"
    ),
    "card.back": Kind("info", "virtual functions that went with their card are made again"),
    "service.adopted": Kind("info", "the service took up what ran before it"),
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
