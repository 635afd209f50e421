"""A reader of the switch's page of counters: a file mapped read-only, so that watching costs the fast path nothing."""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import Failure

_HEADER = struct.Struct("<8sIIIIII")
_SCHEMA_OFFSET = 64
_SLOT = struct.Struct("<II56s")


@dataclass(frozen=True)
class Slot:
    """The counters of one worker, queue (`PORT/N`) or hop (`CHAIN/N`), all read within a few microseconds."""

    kind: str
    name: str
    generation: int
    counters: dict[str, int]


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
        magic, version, length, self._offset, self._size, self._slots, _ = _HEADER.unpack_from(self._map)
        if magic != b"TAILRACE" or version != 2:
            raise Failure(f"{path}: not a page of counters that this version reads")
        schema = json.loads(self._map[_SCHEMA_OFFSET : _SCHEMA_OFFSET + length])
        self._kinds: dict[int, str] = {number: kind for kind, number in schema["kinds"].items()}
        self._fields: dict[str, list[str | None]] = {kind: list(schema[kind]) for kind in schema["kinds"]}
        self._values = {kind: struct.Struct(f"<{len(fields)}Q") for kind, fields in self._fields.items()}
        self._heads: dict[int, tuple[bytes, str | None, str, int]] = {}
        """What each slot's head was read as: few change from one read to the next."""

    def slots(
        self, wanted: Callable[[str, str], bool] = lambda _kind, _name: True, *, sparse: bool = False
    ) -> list[Slot]:
        """The slots in use whose kind and name are wanted; `sparse`: without the counters that are 0."""
        found = []
        used = min(_HEADER.unpack_from(self._map)[-1], self._slots)
        for index in range(used):
            offset = self._offset + index * self._size
            for _ in range(3):  # a slot that is taken anew while it is read is read again
                head, kind, name, generation = self._head(index, offset)
                if kind is None or not wanted(kind, name):
                    break
                values = self._values[kind].unpack_from(self._map, offset + _SLOT.size)
                if self._map[offset : offset + _SLOT.size] == head:
                    named = zip(self._fields[kind], values, strict=True)
                    counters = {field: value for field, value in named if field and (value or not sparse)}
                    found.append(Slot(kind, name, generation, counters))
                    break
        return found

    def _head(self, index: int, offset: int) -> tuple[bytes, str | None, str, int]:
        """A slot's head as it is now, its kind (None: it is free), name and generation."""
        head = self._map[offset : offset + _SLOT.size]
        known = self._heads.get(index)
        if known is None or known[0] != head:
            number, generation, name = _SLOT.unpack(head)
            text = name.split(b"\0", 1)[0].decode(errors="replace")
            known = self._heads[index] = head, self._kinds.get(number), text, generation
        return known

    def ports(self) -> dict[str, dict[str, int]]:
        """The counters of each port: the sums over its queues."""
        sums: dict[str, dict[str, int]] = {}
        for slot in self.slots():
            if slot.kind == "queue":
                port = sums.setdefault(slot.name.rpartition("/")[0], dict.fromkeys(slot.counters, 0))
                for name, value in slot.counters.items():
                    port[name] += value
        return sums

    def close(self) -> None:
        self._map.close()
