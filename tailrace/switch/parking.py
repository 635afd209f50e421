"""What the switch puts aside for a guest that moves to another node, or comes from one (`dataplane/steer/park.h`)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tailrace.errors import TailraceError
from tailrace.switch.control import Control

_KEEP_SECONDS = 5.0
"""After which the switch is asked again: one that is not asked for a minute ends it."""
_STILL_SECONDS = 2.0
_DRAIN_SECONDS = 60.0
_LOOK_SECONDS = 0.005


class Parking:
    """Of a function's ports, each by its side. The connection to the switch is its own: any thread, one at a time."""

    def __init__(self, socket: Path, ports: Mapping[str, Sequence[str]], *, slides: bool) -> None:
        """Begins. `ports`: by side, the names that it has in turn. `slides`: nothing is to be delivered before it is
        known what the other switch has (`give`); until then only the newest is kept. Raises Failure."""
        self._control = Control(socket)
        self._parks: dict[str, int] = {}
        self._asked = time.monotonic()
        try:
            for side, names in ports.items():
                started = self._control.call("park.start", ports=list(names), slides=slides)
                self._parks[side] = int(started["park"])
        except BaseException:
            self.end()
            raise

    @property
    def sides(self) -> Sequence[str]:
        return list(self._parks)

    def keep(self) -> None:
        """Has the switch go on; to be called again and again. Raises Failure."""
        if time.monotonic() - self._asked >= _KEEP_SECONDS:
            self._asked = time.monotonic()
            self._count()

    def _count(self) -> tuple[int, int]:
        """How many frames wait, and how many were delivered."""
        found = [self._control.call("park.status", park=park) for park in self._parks.values()]
        return sum(each["waiting"] for each in found), sum(each["delivered"] for each in found)

    def take(self, side: str) -> list[str]:
        """The oldest of what is put aside, as text for `give`; not all of it, if it is much. Raises Failure."""
        frames: list[str] = self._control.call("park.take", park=self._parks[side])["frames"]
        return frames

    def give(self, side: str, frames: Sequence[str]) -> None:
        """The other switch had these, behind those that it had before. Raises Failure."""
        self._control.call("park.give", park=self._parks[side], frames=list(frames))

    def drain(self) -> None:
        """Waits until all is delivered, while the guest takes any. Raises Failure."""
        began = changed = time.monotonic()
        waiting, delivered = self._count()
        while waiting and (now := time.monotonic()) < min(changed + _STILL_SECONDS, began + _DRAIN_SECONDS):
            time.sleep(_LOOK_SECONDS)
            before = delivered
            waiting, delivered = self._count()
            changed = now if delivered != before else changed

    def end(self) -> None:
        """Drops and counts what is left. A switch that is lost has none."""
        with suppress(TailraceError):
            for park in self._parks.values():
                self._control.call("park.stop", park=park)
        self._parks = {}
        self._control.close()
