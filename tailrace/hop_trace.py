"""A reader of the switch's hop trace: a file that describes itself, mapped read-only (dataplane/switch/trace.h)."""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tailrace.errors import Failure

_HEADER = struct.Struct("<8sII")
_SCHEMA_OFFSET = 64
_FRAME = struct.Struct("<Q")


class Record(NamedTuple):
    """A frame given from one port to the next; times in TSC cycles."""

    frame: int
    """As `frame_key` makes it."""
    arrived: int
    """When the switch took it up at the sender's ring."""
    left: int
    """When the next port had it."""
    source: str
    target: str


def frame_key(stream: int, sequence: int) -> int:
    """What records know a test frame by: the stream and the sequence number modulo 2^48."""
    return stream << 48 | sequence & 0xFFFF_FFFF_FFFF


@dataclass(frozen=True)
class _Ring:
    worker: int
    kind: str
    head: int
    records: int
    length: int


class HopTrace:
    """The trace, mapped. Workers go on writing; one that may have been overwritten under the reader is left out."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        except (OSError, ValueError):
            raise Failure(f"{path}: the hop trace cannot be read; is the switch running?") from None
        magic, version, length = _HEADER.unpack_from(self._map)
        if magic != b"TAILHOPS" or version != 1:
            raise Failure(f"{path}: not a hop trace that this version reads")
        schema: dict[str, Any] = json.loads(self._map[_SCHEMA_OFFSET : _SCHEMA_OFFSET + length])
        self.tsc_hz: int = schema["tsc_hz"]
        self.every: int = schema["every"]
        self._margin: int = schema["margin"]
        self._record = struct.Struct(schema["record"]["format"])
        if schema["record"]["fields"] != ["frame", "arrived", "stay", "from", "to"]:
            raise Failure(f"{path}: its records are not those that this version reads")
        self._ports: dict[str, int] = schema["ports"]
        self._rings = [_Ring(**ring) for ring in schema["rings"]]
        self._start = [self._head(ring) for ring in self._rings]

    def close(self) -> None:
        self._map.close()

    def restart(self) -> None:
        """From here on records from before are left out."""
        self._start = [self._head(ring) for ring in self._rings]

    def sampled(self) -> tuple[list[Record], bool]:
        """All records of sampled frames since `restart`, and whether they are all (none was overwritten)."""
        names = self._names()
        found: list[Record] = []
        whole = True
        for ring, start in zip(self._rings, self._start, strict=True):
            if ring.kind != "sampled":
                continue
            head = self._head(ring)
            first = max(start, head - ring.length + self._margin)
            records = list(self._between(ring, first, head))
            lost = max(self._head(ring) - ring.length + self._margin - first, 0)
            whole = whole and first == start and not lost
            found += [_named(values, names) for values in records[lost:]]
        return found, whole

    def heads(self) -> list[tuple[int, int]]:
        """Of each ring of all frames: how many records were ever written, and how many it holds."""
        return [(self._head(ring), ring.length) for ring in self._rings if ring.kind == "recent"]

    def recent_of(self, frames: Mapping[int, tuple[int, int]]) -> dict[int, list[Record]]:
        """The records of these frames that are still there.

        `frames` has for each frame (`frame_key`) when it was sent and received, by the TSC: only there is looked.
        """
        names = self._names()
        found: dict[int, list[Record]] = {}
        for ring, start in zip(self._rings, self._start, strict=True):
            if ring.kind != "recent":
                continue
            for frame, (sent, received) in frames.items():
                head = self._head(ring)
                oldest = max(start, head - ring.length + self._margin)
                low = self._first_since(ring, oldest, head, sent)
                high = self._first_since(ring, low, head, received)
                for place, values in self._find(ring, frame, low, high):
                    if place > self._head(ring) - ring.length + self._margin:
                        found.setdefault(frame, []).append(_named(values, names))
        return found

    def _head(self, ring: _Ring) -> int:
        return int(_FRAME.unpack_from(self._map, ring.head)[0])

    def _names(self) -> list[str]:
        offset, size, count = (self._ports[key] for key in ("offset", "size", "count"))
        block = self._map[offset : offset + size * count]
        return [block[i * size : (i + 1) * size].split(b"\0", 1)[0].decode(errors="replace") for i in range(count)]

    def _at(self, ring: _Ring, place: int) -> tuple[int, ...]:
        return self._record.unpack_from(self._map, ring.records + place % ring.length * self._record.size)

    def _slices(self, ring: _Ring, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The records from `first` to before `end` as bytes, in one piece or two, each with the place of its first."""
        while first < end:
            index = first % ring.length
            count = min(end - first, ring.length - index)
            offset = ring.records + index * self._record.size
            yield first, self._map[offset : offset + count * self._record.size]
            first += count

    def _between(self, ring: _Ring, first: int, end: int) -> Iterator[tuple[int, ...]]:
        for _, part in self._slices(ring, first, end):
            yield from self._record.iter_unpack(part)

    def _first_since(self, ring: _Ring, low: int, high: int, time: int) -> int:
        """The place of the first record from `low` to `high` that is not older than `time`: they are in order."""
        while low < high:
            middle = (low + high) // 2
            if self._at(ring, middle)[1] < time:
                low = middle + 1
            else:
                high = middle
        return low

    def _find(self, ring: _Ring, frame: int, first: int, end: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        wanted, size = _FRAME.pack(frame), self._record.size
        for place, part in self._slices(ring, first, end):
            at = part.find(wanted)
            while at >= 0:
                if at % size == 0:
                    yield place + at // size, self._record.unpack_from(part, at)
                at = part.find(wanted, at + 1)


def _named(values: tuple[int, ...], names: list[str]) -> Record:
    frame, arrived, stay, source, target = values
    return Record(frame, arrived, arrived + stay, names[source], names[target])
