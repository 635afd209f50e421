"""What was there before it was changed, on disk before each change, so that it can be put back after any end.

One line of JSON for each entry, appended and synced before the change it is about. The first entry of a place is
the one that counts: it holds what stood there before Tailrace. The journal is removed when all is as it was.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tailrace.errors import Failure, Mistake
from tailrace.host.setting import Form, Setting
from tailrace.host.tree import Tree

ENVIRONMENT = "TAILRACE_HOST_STATE"
DEFAULT = Path("/var/lib/tailrace/host")
BOOT_FILE = "boot"
"""The place of an entry that is about the boot loader's file; its texts are the file's content."""


@dataclass(frozen=True)
class Entry:
    """One change."""

    place: str
    form: str
    was: str | None
    """What stood there before; None: nothing (a file of ours that was not there)."""
    wanted: str
    boot: str
    """The boot in which it was made: what is not a file of the boot loader does not outlive it."""
    profile: str
    refused: bool = False
    """The kernel did not take it."""

    @property
    def setting(self) -> Setting:
        return Setting(self.place, self.wanted, Form(self.form))


def state_folder() -> Path:
    """$TAILRACE_HOST_STATE, else /var/lib/tailrace/host, which outlives a reboot."""
    chosen = os.environ.get(ENVIRONMENT)
    return Path(chosen).absolute() if chosen else DEFAULT


def boot_id(tree: Tree) -> str:
    """What tells one boot from another; empty for a copied machine."""
    return tree.text("/proc/sys/kernel/random/boot_id") or ""


class Journal:
    """The journal, held by one process at a time (`hold_journal`)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._entries: dict[str, Entry] = {}
        """The first entry of each place, with the newest `wanted`."""
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    self._take(Entry(**json.loads(line)))
                except (ValueError, TypeError):
                    break  # the last line of a crash in the middle of writing it: its change was not made yet

    def _take(self, entry: Entry) -> None:
        first = self._entries.get(entry.place)
        if first is not None and first.boot == entry.boot:
            entry = replace(entry, was=first.was)
        self._entries[entry.place] = entry

    @property
    def entries(self) -> list[Entry]:
        """In the order in which the places were first changed."""
        return list(self._entries.values())

    @property
    def profile(self) -> str | None:
        """The profile that was applied last; None if none is."""
        return self.entries[-1].profile if self._entries else None

    def note(self, entry: Entry) -> None:
        """Writes an entry; returns when it is on disk. Raises Failure, and then nothing may be changed."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps(asdict(entry)) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise Failure(f"{self.path}: {error.strerror}; nothing is changed without a record of it") from None
        self._take(entry)

    def clear(self) -> None:
        """All is as it was."""
        self.path.unlink(missing_ok=True)
        self._entries = {}


@contextmanager
def hold_journal(folder: Path) -> Iterator[Journal]:
    """The journal, for this process alone. Raises Mistake while another command changes the host."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise Mistake(f"{folder}: {error.strerror}; tuning the host needs root, start it with sudo") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Mistake("another `tailrace host` command is changing the host; wait for it to end") from None
        yield Journal(folder / "journal")


def read_journal(folder: Path) -> Journal:
    """The journal as it is now, to look at."""
    return Journal(folder / "journal")
