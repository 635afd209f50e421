"""A reader of the recorder's file: what happened on the recorded CPUs (dataplane/recorder/record.h)."""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tailrace.errors import Failure
from tailrace.observe.ring import Ring

_HEADER = struct.Struct("<8sII")
_SCHEMA_AT = 64
_WORD = struct.Struct("<Q")
#: Records that may be written over while they are read: as many as the recorder may write in one go.
_MARGIN = 4096
#: Records are taken from the ring in pieces of so many.
_PIECE = 2048
_END = 1


class Event(NamedTuple):
    """Something that lasted from `begin` to `end` (TSC cycles) on a CPU."""

    begin: int
    end: int
    cpu: int
    kind: str
    """As dataplane/recorder/record.h lists them."""
    id: int
    """A thread's id, or an interrupt's line."""
    name: str
    extra: int
    inside: str = ""
    """The machine whose CPU and thread that are; empty: this host's."""


@dataclass(frozen=True)
class Series:
    """All events of one kind, name and id on one CPU, counted since the recorder started."""

    cpu: int
    kind: str
    id: int
    name: str
    count: int
    cycles: int
    longest: int
    """Since the last `begin_part()`, 0 if there was none."""


@dataclass(frozen=True)
class Source:
    """Where one sort of event comes from."""

    what: str
    origin: str | None
    """None: it cannot be recorded here."""
    why: str | None
    """Why not."""


class Recording:
    """The file, mapped. The recorder goes on writing."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("r+b") as file:
                self._map = mmap.mmap(file.fileno(), 0)
        except (OSError, ValueError):
            raise Failure(f"{path}: cannot be read; is the recorder running?") from None
        magic, version, length = _HEADER.unpack_from(self._map)
        if magic != b"TAILNOTE" or version != 2:
            raise Failure(f"{path}: not a recording that this version reads")
        schema: dict[str, Any] = json.loads(self._map[_SCHEMA_AT : _SCHEMA_AT + length])
        record = struct.Struct(schema["record"]["format"])
        self._series: dict[str, Any] = schema["series"]
        self._one = struct.Struct(self._series["format"])
        self._kinds: list[str] = schema["kinds"]
        self._cpus: list[dict[str, int]] = schema["cpus"]
        *self._rings, self._notes = (
            Ring(self._map, each["head"], each["records"], each["length"], _MARGIN, record)
            for each in (*self._cpus, schema["notes"])
        )
        self._clock_error: int = schema["clock_error"]
        self._part: int = schema["part"]
        self._wall: int = schema["wall"]
        self._known: list[Series] = []
        self.sources: Sequence[Source] = tuple(
            Source(each["what"], each["from"], each["why"]) for each in schema["sources"]
        )

    @property
    def until(self) -> int:
        """All that ended before this time (TSC) is there, on every CPU."""
        return min(self._word(cpu["until"]) for cpu in self._cpus)

    @property
    def lost(self) -> int:
        """Events that the kernel could not deliver."""
        return sum(self._word(cpu["lost"]) for cpu in self._cpus)

    def heads(self) -> list[tuple[int, int]]:
        """Of each CPU: how many events were ever written, and how many the ring holds."""
        return [(ring.head, ring.length) for ring in self._rings]

    @property
    def clock_error(self) -> int:
        """Times of events are known to so many cycles."""
        return self._word(self._clock_error)

    def wall(self, tsc: int) -> float:
        """A time of the TSC in seconds since 1970, on the line between the first and the last look at both clocks."""
        first, began, last, ended = (self._word(self._wall + 8 * number) for number in range(4))
        return (began + (tsc - first) * (ended - began) / max(last - first, 1)) / 1e9

    def series(self) -> list[Series]:
        """All series as they stand."""
        used = min(self._word(self._series["used"]), self._series["count"])
        current = self._word(self._part)
        found = []
        for number in range(used):
            at = self._series["offset"] + number * self._one.size
            kind, cpu, id_, name, count, cycles, longest, part = self._one.unpack_from(self._map, at)
            text = name.split(b"\0", 1)[0].decode(errors="replace")
            longest = longest if part == current else 0
            found.append(Series(cpu, self._kinds[kind], id_, text, count, cycles, longest))
        return found

    def begin_part(self) -> None:
        """From now on `Series.longest` is of what ends after this."""
        _WORD.pack_into(self._map, self._part, self._word(self._part) + 1)

    def between(self, begin: int, end: int, late: int) -> tuple[list[Event], bool]:
        """All events that lie in or reach into the time from `begin` to `end` (TSC), and whether all are still there.

        One that goes on for more than `late` cycles after `end` is left out.
        """
        if self._word(self._series["used"]) > len(self._known):
            self._known = self.series()
        found: list[Event] = []
        whole = True
        for ring in self._rings:
            first = ring.first(*ring.window, _END, begin)
            found += self._events(ring, first, end, late)
            whole = whole and (ring.oldest < first or ring.oldest == 0)
        return found, whole

    def notes(self, begin: int) -> list[Event]:
        """What is rare, and ended after `begin`: migrations, changes of frequency, steal time and the like."""
        self._known = self.series()
        ring = self._notes
        return list(self._events(ring, ring.first(*ring.window, _END, begin), 1 << 64, 0))

    def _events(self, ring: Ring, first: int, end: int, late: int) -> Iterator[Event]:
        for start, stop, series, extra in ring.between(first, ring.head, _PIECE):
            if stop > end + late:
                return
            if start <= end and series < len(self._known):
                known = self._known[series]
                yield Event(start, stop, known.cpu, known.kind, known.id, known.name, extra)

    def _word(self, at: int) -> int:
        return int(_WORD.unpack_from(self._map, at)[0])

    def close(self) -> None:
        self._map.close()
