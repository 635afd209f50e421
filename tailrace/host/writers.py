"""Who writes to the files that tuning has set, while somebody watches: the kernel tells by fanotify(7).

Nothing tells afterwards who wrote to a file of /proc or /sys. So `tailrace host watch` has the kernel tell it of each
write, and keeps the last writer of each place beside the journal, where `verify` finds it.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tailrace.errors import Failure

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLOEXEC, _NONBLOCK = 1, 2
_MARK_ADD, _MODIFY, _CWD = 1, 2, -100
#: struct fanotify_event_metadata: length, version, reserved, length of this part, mask, descriptor, process.
_EVENT = struct.Struct("=IBBHQii")
_OURS = "tailrace"
_FILE = "writers"
_SETTLE = 1.0
"""Seconds between two reports: what changes many places does so at once."""


class Writers:
    """Hears of every write to some files. One thread owns it."""

    def __init__(self, descriptor: int, folder: Path, boot: str) -> None:
        self._descriptor, self._folder, self._boot = descriptor, folder, boot
        self._targets: dict[str, str] = {}
        """What was asked for, by where it really is."""

    @classmethod
    def start(cls, folder: Path, boot: str) -> Self:
        """Keeps what it hears in `folder`, as of this boot. Raises Failure where the kernel does not tell."""
        descriptor = _LIBC.fanotify_init(_CLOEXEC | _NONBLOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_LARGEFILE)
        if descriptor < 0:
            raise Failure(f"cannot see who changes files: fanotify: {os.strerror(ctypes.get_errno())}")
        return cls(descriptor, folder, boot)

    def watch(self, targets: Sequence[str]) -> None:
        """From here on writes to these files are heard, for good; asked again, also of those that were made anew."""
        for target in targets:
            real = os.path.realpath(target)
            path = os.fsencode(real)
            if _LIBC.fanotify_mark(self._descriptor, _MARK_ADD, ctypes.c_uint64(_MODIFY), _CWD, path) == 0:
                self._targets[real] = target

    def wait(self, seconds: float) -> None:
        """Returns after this time, or soon after somebody else has written; what was heard is kept then."""
        end, found = time.monotonic() + seconds, dict[str, str | None]()
        while (left := end - time.monotonic()) > 0:
            if not select.select([self._descriptor], [], [], left)[0]:
                continue
            found |= self._heard()
            if any(found.values()):
                end = min(end, time.monotonic() + _SETTLE)
        self._keep(found)

    def heard(self) -> bool:
        """Whether somebody else has written since; what was heard is kept."""
        found = self._heard()
        self._keep(found)
        return any(found.values())

    def close(self) -> None:
        os.close(self._descriptor)

    def _keep(self, found: Mapping[str, str | None]) -> None:
        if found:
            known = {**read_writers(self._folder, self._boot), **found}
            _write(self._folder, self._boot, {place: by for place, by in known.items() if by is not None})

    def _heard(self) -> dict[str, str | None]:
        """The last writer of each place; None where it was Tailrace itself."""
        found: dict[str, str | None] = {}
        for path, process in self._events():
            target = self._targets.get(path)
            if target is not None:
                found[target] = _name(process)
        return found

    def _events(self) -> Iterator[tuple[str, int]]:
        """Path and process of each write."""
        try:
            data = os.read(self._descriptor, 1 << 16)
        except OSError:
            return
        while len(data) >= _EVENT.size:
            length, _, _, _, _, descriptor, process = _EVENT.unpack_from(data)
            data = data[max(length, _EVENT.size) :]
            if descriptor < 0:
                continue  # more was written than the kernel kept
            try:
                yield str(Path(f"/proc/self/fd/{descriptor}").readlink()), process
            finally:
                os.close(descriptor)


def _name(process: int) -> str | None:
    """A process by name and number; None for Tailrace itself."""
    try:
        name = Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return f"process {process}, which has ended"
    return None if name == _OURS else f"{name} (process {process})"


def read_writers(folder: Path, boot: str) -> Mapping[str, str]:
    """Who wrote last to which file in this boot, as far as somebody watched."""
    try:
        document = json.loads((folder / _FILE).read_text())
        return {str(place): str(by) for place, by in document["places"].items()} if document["boot"] == boot else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write(folder: Path, boot: str, places: Mapping[str, str]) -> None:
    """A record that is lost, as on a full disk, costs a name in a report and no more."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{_FILE}.new"
        temporary.write_text(json.dumps({"boot": boot, "places": dict(places)}) + "\n")
        temporary.replace(folder / _FILE)


def forget_writers(folder: Path) -> None:
    """All is set anew, or as it was: who wrote before is of no interest."""
    with suppress(OSError):
        (folder / _FILE).unlink(missing_ok=True)
