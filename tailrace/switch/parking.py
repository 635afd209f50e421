"""What the switch puts aside for a guest that moves to another node, or comes from one (`dataplane/steer/park.h`)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tailrace.errors import TailraceError
from tailrace.process.control import Control, ControlError, ControlLost

_KEEP_SECONDS = 5.0
"""After which the switch is asked again: one that is not asked for a minute ends it."""
_ANSWER_SECONDS = 10.0
_SOON_SECONDS = 2.0
"""In which the switch answers while somebody waits who must not wait for it long: a machine may stand still."""
_STILL_SECONDS = 2.0
_DRAIN_SECONDS = 60.0
_LOOK_SECONDS = 0.005


class Parking:
    """Of a function's ports, each by its side. The connection to the switch is its own: any thread, one at a time."""

    def __init__(self, socket: Path, ports: Mapping[str, Sequence[str]], *, slides: bool) -> None:
        """Begins. `ports`: by side, the names that it has in turn. `slides`: until it is known what the other switch
        has (`give`) only the newest is kept; that has to be said of each side before the guest takes any. Raises
        Failure."""
        self._control = Control(socket, timeout=_ANSWER_SECONDS)
        self._parks: dict[str, int] = {}
        self._asked = time.monotonic()
        try:
            for side, names in ports.items():
                started = self._call("park.start", ports=list(names), slides=slides)
                self._parks[side] = int(started["park"])
        except BaseException:
            self.end()
            raise

    @property
    def sides(self) -> Sequence[str]:
        return list(self._parks)

    def keep(self) -> None:
        """Has the switch go on; to be called again and again. A switch that does not answer loses frames, not the
        machine: that is found out when they are taken."""
        if time.monotonic() - self._asked >= _KEEP_SECONDS:
            self._asked = time.monotonic()
            with suppress(TailraceError):
                self._count(_SOON_SECONDS)

    def _call(self, method: str, within: float = _ANSWER_SECONDS, **params: Any) -> Any:
        self._control.patience(within)
        return self._control.call(method, **params)

    def _count(self, within: float = _ANSWER_SECONDS) -> tuple[int, int]:
        """How many frames wait, and how many were delivered."""
        found = [self._call("park.status", within, park=park) for park in self._parks.values()]
        return sum(each["waiting"] for each in found), sum(each["delivered"] for each in found)

    def take(self, side: str) -> tuple[list[str], bool]:
        """The oldest of what is put aside, as text for `give`, and whether it is not all of what there was when the
        first of it was taken. Raises Failure."""
        found = self._call("park.take", _SOON_SECONDS, park=self._parks[side])
        return found["frames"], bool(found["more"])

    def give(self, side: str, frames: Sequence[str]) -> None:
        """The other switch had these, behind those that it had before. Raises Failure."""
        self._call("park.give", park=self._parks[side], frames=list(frames))

    def drain(self) -> int:
        """Waits until all is delivered, while the guest takes any; returns how many frames were. Raises Failure."""
        began = changed = time.monotonic()
        waiting, delivered = self._count()
        while waiting and (now := time.monotonic()) < min(changed + _STILL_SECONDS, began + _DRAIN_SECONDS):
            time.sleep(_LOOK_SECONDS)
            before = delivered
            waiting, delivered = self._count()
            changed = now if delivered != before else changed
        return delivered

    def end(self) -> None:
        """Drops and counts what is left. A switch that is lost has none."""
        with suppress(ControlLost):
            for park in self._parks.values():
                with suppress(ControlError):
                    self._call("park.stop", park=park)
        self._parks = {}
        self._control.close()
