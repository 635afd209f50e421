"""A ring of records in memory that is mapped from somebody who goes on writing: the oldest are written over."""

from __future__ import annotations

import mmap
import struct
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

_WORD = struct.Struct("<Q")


@dataclass(frozen=True)
class Ring:
    """Record n lies at n modulo `length`. A record's place is the number of those written before it."""

    memory: mmap.mmap
    head_at: int
    """Where in the memory the number of records ever written stands."""
    records_at: int
    length: int
    margin: int
    """So many of the oldest may be written over while they are read."""
    record: struct.Struct

    @property
    def head(self) -> int:
        """How many were ever written."""
        return int(_WORD.unpack_from(self.memory, self.head_at)[0])

    @property
    def window(self) -> tuple[int, int]:
        """The places of all records that may still be read: the oldest, and one past the newest."""
        head = self.head
        return max(0, head - self.length + self.margin), head

    @property
    def oldest(self) -> int:
        """The place of the oldest record that may still be read."""
        return self.window[0]

    def at(self, place: int) -> tuple[int, ...]:
        """The fields of one record."""
        return self.record.unpack_from(self.memory, self._offset(place))

    def first(self, low: int, high: int, field: int, time: int) -> int:
        """The first place from `low` to `high` whose `field` is `time` or later; by that field they are in order."""
        return low + bisect_left(range(low, high), time, key=lambda place: self.at(place)[field])

    def slices(self, first: int, end: int, most: int | None = None) -> Iterator[tuple[int, bytes]]:
        """The records from `first` to before `end` as bytes, in pieces of at most `most`, each with its first place."""
        while first < end:
            count = min(end - first, self.length - first % self.length, most or self.length)
            offset = self._offset(first)
            yield first, self.memory[offset : offset + count * self.record.size]
            first += count

    def between(self, first: int, end: int, most: int | None = None) -> Iterator[tuple[int, ...]]:
        """The fields of the records from `first` to before `end`; copied out of the memory in pieces of `most`."""
        for _, part in self.slices(first, end, most):
            yield from self.record.iter_unpack(part)

    def _offset(self, place: int) -> int:
        return self.records_at + place % self.length * self.record.size
