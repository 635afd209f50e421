"""A reader of the switch's page of counters: a file mapped read-only, so that watching costs the fast path nothing."""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from tailrace.errors import Failure
from tailrace.process.plain import plain

_HEADER = struct.Struct("<8sIIIIII")
_SCHEMA_OFFSET = 64
_SLOT = struct.Struct("<II56s")
_KIND = 0xFFFFFFFF
_TRIES = 3
_VERSION = 2


class OtherLayout(Failure):
    """The page of a switch of another version."""


@dataclass(frozen=True)
class Slot:
    """The counters of one worker, queue (`PORT/N`) or hop (`CHAIN/N`), all read within a few microseconds."""

    kind: str
    name: str
    generation: int
    counters: dict[str, int]


@dataclass(frozen=True)
class Table:
    """The counters of all slots of one kind, field by field: of a thousand slots that takes a tenth of the time."""

    slots: list[tuple[str, int]]
    """Name and generation of each; the same list again for as long as there are the same slots."""
    columns: Mapping[str, Sequence[int]]
    """Of each field what the slots have, in their order."""
    nothing: Sequence[int] = field(default=(), compare=False)
    """The column of each field of which nothing was ever counted: most reasons for drops. It is soon looked at."""
    live: bool = False
    """Each counter is read when it is asked for."""


class _Apart(Sequence[int]):
    """A field of slots between which there are others."""

    def __init__(self, words: memoryview, at: list[int]) -> None:
        self._words, self._at = words, at

    def __len__(self) -> int:
        return len(self._at)

    def __getitem__(self, row: Any) -> Any:
        return self._words[self._at[row]]


class Page:
    """The page, mapped. Slots come and go while it is mapped; each read sees those that are there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        except (OSError, ValueError):
            raise Failure(f"{path}: cannot be read; is the switch running? (`tailrace status`)") from None
        if len(self._map) < _SCHEMA_OFFSET:
            raise Failure(f"{path}: not a page of counters")
        magic, version, length, offset, size, slots, _ = _HEADER.unpack_from(self._map)
        if magic != b"TAILRACE":
            raise Failure(f"{path}: not a page of counters")
        if version != _VERSION:
            raise OtherLayout(
                f"the switch that is up is of another version of Tailrace (its page of counters has layout {version}, "
                f"this version reads {_VERSION}); look with that version, or end it by its `tailrace down`"
            )
        if size % 8 or offset + size * slots > len(self._map):
            raise Failure(f"{path}: not a whole page of counters")
        try:
            schema = json.loads(self._map[_SCHEMA_OFFSET : _SCHEMA_OFFSET + length])
            self._kinds: dict[int, str] = {number: kind for kind, number in schema["kinds"].items()}
            self._fields: dict[str, list[str | None]] = {kind: list(schema[kind]) for kind in schema["kinds"]}
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise Failure(f"{path}: a page of counters whose schema cannot be read") from None
        if any(_SLOT.size + 8 * len(fields) > size for fields in self._fields.values()):
            raise Failure(f"{path}: a page of counters whose slots are too small for what is counted")
        self._values = {kind: struct.Struct(f"<{len(fields)}Q") for kind, fields in self._fields.items()}
        self._offset, self._size, self._slots = offset, size, slots
        self._words = memoryview(self._map)[offset : offset + size * slots].cast("Q")
        """All slots; the first word of each says kind and generation."""
        self._first: list[int] = []
        """The first words, as they were when names were last read."""
        self._heads = b""
        """The same as they stand in the page: what is compared each time."""
        self._names: list[str] = []
        self._places: dict[str, list[int]] = {}
        """Which slots are of a kind, by number."""
        self._tables: dict[str, list[tuple[str, int]]] = {}
        self._live: dict[str, Table] = {}
        self._views: list[memoryview] = []
        """Of these: the file stays mapped for as long as there is one."""

    def slots(self, *kinds: str, owners: Collection[str] | None = None) -> list[Slot]:
        """The slots in use, of these kinds; without any, of all. `owners`: only those of these (`PORT` of `PORT/N`)."""
        found = []
        self._look()
        if kinds:
            wanted = sorted(index for kind in kinds for index in self._places.get(kind, ()))
        else:
            wanted = [index for index, first in enumerate(self._first) if first & _KIND]
        if owners is not None:
            wanted = [index for index in wanted if self._names[index].rpartition("/")[0] in owners]
        for index in wanted:
            offset = self._offset + index * self._size
            for _ in range(_TRIES):  # a slot that is taken anew while it is read is read again
                first = self._first[index]
                kind = self._kinds.get(first & _KIND)
                if kind is None:
                    break
                values = self._values[kind].unpack_from(self._map, offset + _SLOT.size)
                if self._words[index * self._size // 8] == first:
                    named = zip(self._fields[kind], values, strict=True)
                    counters = {field: value for field, value in named if field}
                    found.append(Slot(kind, self._names[index], first >> 32, counters))
                    break
                self._look()
        return found

    def table(self, kind: str) -> Table:
        """All slots of a kind. Where these come and go all the time, some may be read as they begin."""
        for _ in range(_TRIES):
            self._look()
            places = self._places.get(kind, [])
            if kind not in self._tables:
                self._tables[kind] = [(self._names[at], self._first[at] >> 32) for at in places]
            slots = self._tables[kind]
            zeros = [0] * len(places)
            columns = {
                field: self._column(places, number, zeros)
                for number, field in enumerate(self._fields.get(kind, ()))
                if field is not None
            }
            if self._read_heads() == self._heads:
                break
        return Table(slots, columns, zeros)

    def live(self, kind: str) -> Table | None:
        """All slots of a kind as `table` has found them, of which a few counters are soon read. To be used before the
        page is closed. None if there are others now, as far as was looked (`slots`)."""
        if kind not in self._tables:
            return None
        if kind not in self._live:
            places, stride = self._places.get(kind, []), self._size // 8
            first, last = (places[0], places[-1]) if places else (0, -1)
            columns: dict[str, Sequence[int]] = {}
            for number, field_name in enumerate(self._fields.get(kind, ())):
                if field_name is not None:
                    words = self._words[first * stride + _SLOT.size // 8 + number : (last + 1) * stride : stride]
                    self._views.append(words)
                    in_a_row = len(words) == len(places)
                    columns[field_name] = words if in_a_row else _Apart(words, [at - first for at in places])
            self._live[kind] = Table(self._tables[kind], columns, live=True)
        return self._live[kind]

    def _column(self, places: list[int], number: int, zeros: list[int]) -> Sequence[int]:
        """A field of these slots; `zeros` if nothing else is there."""
        if not places:
            return []
        stride, first, last = self._size // 8, places[0], places[-1]
        words = self._words[first * stride + _SLOT.size // 8 + number : (last + 1) * stride : stride]
        if words.tobytes() == bytes(8 * len(words)):
            return zeros
        column: list[int] = words.tolist()
        return column if len(column) == len(places) else list(itemgetter(*(at - first for at in places))(column))

    def _read_heads(self) -> bytes:
        used = min(_HEADER.unpack_from(self._map)[-1], self._slots)
        return self._words[: used * self._size // 8 : self._size // 8].tobytes()

    def _look(self) -> None:
        """Reads the names of slots that were taken since the last look."""
        heads = self._read_heads()
        if heads == self._heads:
            return
        old, first = self._first, memoryview(heads).cast("Q").tolist()
        self._heads, self._first = heads, first
        self._names += [""] * (len(first) - len(self._names))
        self._places, self._tables = {}, {}
        self._forget_live()
        for index, word in enumerate(first):
            if index >= len(old) or word != old[index]:
                name = _SLOT.unpack_from(self._map, self._offset + index * self._size)[-1]
                self._names[index] = plain(name.split(b"\0", 1)[0].decode(errors="replace"))
            if (kind := self._kinds.get(word & _KIND)) is not None:
                self._places.setdefault(kind, []).append(index)

    def ports(self) -> dict[str, dict[str, int]]:
        """The counters of each port: the sums over its queues."""
        sums: dict[str, dict[str, int]] = {}
        for slot in self.slots("queue"):
            port = sums.setdefault(slot.name.rpartition("/")[0], dict.fromkeys(slot.counters, 0))
            for name, value in slot.counters.items():
                port[name] += value
        return sums

    def _forget_live(self) -> None:
        for each in self._views:
            each.release()
        self._live, self._views = {}, []

    def close(self) -> None:
        self._forget_live()
        self._words.release()
        self._map.close()
