"""A reader of the switch's hop trace: a file that describes itself, mapped read-only (dataplane/switch/trace.h)."""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tailrace.errors import Failure
from tailrace.observe.ring import Ring

_HEADER = struct.Struct("<8sII")
_SCHEMA_OFFSET = 64
_FRAME = struct.Struct("<Q")
_ARRIVED = 1


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
        record = struct.Struct(schema["record"]["format"])
        if schema["record"]["fields"] != ["frame", "arrived", "stay", "from", "to"]:
            raise Failure(f"{path}: its records are not those that this version reads")
        self._ports: dict[str, int] = schema["ports"]
        rings: dict[str, list[Ring]] = {"sampled": [], "recent": []}
        for each in schema["rings"]:
            ring = Ring(self._map, each["head"], each["records"], each["length"], schema["margin"], record)
            rings[each["kind"]].append(ring)
        self._sampled, self._recent = rings["sampled"], rings["recent"]
        self.restart()

    def close(self) -> None:
        self._map.close()

    def restart(self) -> None:
        """From here on records from before are left out."""
        self._start = {ring.head_at: ring.head for ring in (*self._sampled, *self._recent)}

    def sampled(self) -> tuple[list[Record], bool]:
        """All records of sampled frames since `restart`, and whether they are all (none was overwritten)."""
        names = self.port_names()
        found: list[Record] = []
        whole = True
        for ring in self._sampled:
            start = self._start[ring.head_at]
            first = max(start, ring.oldest)
            records = list(ring.between(first, ring.head))
            lost = max(ring.oldest - first, 0)
            whole = whole and first == start and not lost
            found += [_named(values, names) for values in records[lost:]]
        return found, whole

    def heads(self) -> list[tuple[int, int]]:
        """Of each ring of all frames: how many records were ever written, and how many it holds."""
        return [(ring.head, ring.length) for ring in self._recent]

    def recent_of(self, frames: Mapping[int, tuple[int, int]]) -> dict[int, list[Record]]:
        """The records of these frames that are still there.

        `frames` has for each frame (`frame_key`) when it was sent and received, by the TSC: only there is looked.
        """
        names = self.port_names()
        found: dict[int, list[Record]] = {}
        for ring in self._recent:
            start = self._start[ring.head_at]
            for frame, (sent, received) in frames.items():
                head = ring.head
                low = ring.first(max(start, ring.oldest), head, _ARRIVED, sent)
                high = ring.first(low, head, _ARRIVED, received)
                for place, values in _find(ring, frame, low, high):
                    if place >= ring.oldest:
                        found.setdefault(frame, []).append(_named(values, names))
        return found

    def port_names(self) -> list[str]:
        """The names of the switch's ports by their numbers; "" for one that is not there."""
        offset, size, count = (self._ports[key] for key in ("offset", "size", "count"))
        block = self._map[offset : offset + size * count]
        return [block[i * size : (i + 1) * size].split(b"\0", 1)[0].decode(errors="replace") for i in range(count)]


def _find(ring: Ring, frame: int, first: int, end: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    wanted, size = _FRAME.pack(frame), ring.record.size
    for place, part in ring.slices(first, end):
        at = part.find(wanted)
        while at >= 0:
            if at % size == 0:
                yield place + at // size, ring.record.unpack_from(part, at)
            at = part.find(wanted, at + 1)


def _named(values: tuple[int, ...], names: list[str]) -> Record:
    frame, arrived, stay, source, target = values
    return Record(frame, arrived, arrived + stay, names[source], names[target])
