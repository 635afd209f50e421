"""A reader of the switch's page of counters: a file mapped read-only, so that watching costs the fast path nothing."""

from __future__ import annotations

import json
import mmap
import struct
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

    def slots(self) -> list[Slot]:
        """All slots in use."""
        found = []
        used = min(_HEADER.unpack_from(self._map)[-1], self._slots)
        for index in range(used):
            offset = self._offset + index * self._size
            for _ in range(3):  # a slot that is taken anew while it is read is read again
                number, generation, name = _SLOT.unpack_from(self._map, offset)
                kind = self._kinds.get(number)
                if kind is None:
                    break
                fields = self._fields[kind]
                values = struct.unpack_from(f"<{len(fields)}Q", self._map, offset + _SLOT.size)
                if _SLOT.unpack_from(self._map, offset) == (number, generation, name):
                    text = name.split(b"\0", 1)[0].decode(errors="replace")
                    counters = {field: value for field, value in zip(fields, values, strict=True) if field}
                    found.append(Slot(kind, text, generation, counters))
                    break
        return found

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
