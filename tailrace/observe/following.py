"""Following frames through the switch: what it noted of each, put together by frame (dataplane/steer/follow.h).

The switch notes what happens to a frame at each port that it enters by. The frame that comes back from a function is
known as the same by its `mark`: a checksum of what functions leave alone, as addresses, ports and payload.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tailrace.process.control import Control

_READ = 512
_PAUSE = 0.05
#: Seconds without news after which the frames that were followed are taken to have gone their way.
QUIET = 0.5


@dataclass(frozen=True)
class Note:
    """One step of a frame."""

    time: int
    """TSC cycles."""
    sighting: int
    """The frame at the port by which it entered."""
    mark: int
    length: int
    """0: unknown, because the switch could not read it."""
    text: str


@dataclass
class Sighting:
    """A frame at one port."""

    number: int
    mark: int
    length: int
    notes: list[Note] = field(default_factory=list)

    @property
    def port(self) -> str:
        return self.notes[0].text


@dataclass
class Followed:
    """A frame on its way through the switch and its functions."""

    mark: int
    sightings: list[Sighting] = field(default_factory=list)

    @property
    def began(self) -> int:
        return self.sightings[0].notes[0].time

    @property
    def length(self) -> int:
        return self.sightings[0].length


class Trail:
    """Notes as they come in, put together."""

    def __init__(self) -> None:
        self._sightings: dict[int, Sighting] = {}

    def add(self, notes: Iterable[Note]) -> None:
        for note in notes:
            sighting = self._sightings.setdefault(note.sighting, Sighting(note.sighting, note.mark, note.length))
            sighting.notes.append(note)

    def frames(self) -> list[Followed]:
        """The frames in the order in which they were first seen.

        A frame with a mark that is known is the same one, unless that has been at this port before.
        """
        found: list[Followed] = []
        for sighting in sorted(self._sightings.values(), key=lambda each: each.notes[0].time):
            same = (
                frame
                for frame in found
                if frame.mark == sighting.mark and all(each.port != sighting.port for each in frame.sightings)
            )
            frame = next(same, None)
            if frame is None:
                frame = Followed(sighting.mark)
                found.append(frame)
            frame.sightings.append(sighting)
        return found


def follow(
    control: Control, match: list[dict[str, Any]], count: int, *, seconds: float | None, stop: Callable[[], bool]
) -> tuple[list[Followed], int, int]:
    """Follows the next `count` frames that match, until nothing more is heard of them.

    Returns the frames, how many notes were lost because they came faster than they were read, and the TSC's rate.
    Raises ControlError if the switch refuses.
    """
    answer = control.call("trace.start", match=match, count=count)
    trail, lost = Trail(), 0
    began = news = time.monotonic()
    try:
        while True:
            read = control.call("trace.read", most=_READ)
            notes = [Note(**note) for note in read["notes"]]
            trail.add(notes)
            lost = read["lost"]
            now = time.monotonic()
            if notes:
                news = now
                continue
            if stop() or (seconds is not None and now - began >= seconds):
                break
            if now - news >= QUIET and len(trail.frames()) >= count:
                break
            time.sleep(_PAUSE)
    finally:
        control.call("trace.stop")
    return trail.frames()[:count], lost, int(answer["tsc_hz"])


def lines(number: int, frame: Followed, hz: int) -> list[str]:
    """The frame's steps, each with the time since it was first seen."""
    notes = [note for sighting in frame.sightings for note in sighting.notes]
    length = f"{frame.length + 4} B" if frame.length else "not read"
    return [
        f"frame {number}: {length}, mark {frame.mark:08x}",
        *(f"  {(note.time - frame.began) / hz * 1e6:10.2f} µs  {note.text}" for note in notes),
    ]
