"""What was there before it was changed, on disk before each change, so that it can be put back after any end.

One line of JSON for each entry, appended and synced before the change it is about. The first entry of a place is
the one that counts: it holds what stood there before Tailrace. A line that the power cut in two is about a change that
was not made yet; it is cut off before anything is added. The journal is removed when all is as it was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import UnionType

from tailrace.errors import Failure, Mistake
from tailrace.host.setting import SCHEMES, Form, Setting
from tailrace.kernel.tree import Tree
from tailrace.process.lock import Held, locked

ENVIRONMENT = "TAILRACE_HOST_STATE"
DEFAULT = Path("/var/lib/tailrace/host")
BOOT_FILE = "boot"
"""The place of an entry that is about the boot loader's file; its texts are the file's content."""
_APPLIED = "applied"


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
    refused: bool = False
    """The kernel did not take it."""
    kept: str | None = None
    """What it made of it, where it said nothing."""
    knob: str = ""
    """The knob that wanted it."""

    def __post_init__(self) -> None:
        """Raises ValueError or TypeError for what no journal says: a damaged one must not stop an undo halfway."""
        _check_types(str, self.place, self.form, self.wanted, self.boot, self.knob)
        _check_types(str | None, self.was, self.kept)
        if self.setting.scheme not in (*SCHEMES, BOOT_FILE):
            raise ValueError(self.place)

    @property
    def setting(self) -> Setting:
        return Setting(self.place, self.wanted, Form(self.form))


@dataclass(frozen=True)
class Applied:
    """What was asked for last, so that it can be verified without being named again."""

    profile: str
    """The profile's name, or its file's path."""
    nic: str | None = None
    """The network card that was named."""
    roles: str | None = None
    """The profile whose roles the cores keep, where it is another."""
    node: int | None = None
    """The node that the roles' cores are on, which they keep: the card may be DPDK's by now."""
    siblings: Sequence[Sequence[int]] = ()
    """The CPUs of each core of which some were taken offline: the kernel does not tell of those any more."""
    system: int = 1
    """The system's cores on that node, which it keeps as well; one in journals that do not say."""

    def __post_init__(self) -> None:
        """Raises TypeError for what no journal says."""
        _check_types(str, self.profile)
        _check_types(int, self.system)
        _check_types(str | None, self.nic, self.roles)
        _check_types(int | None, self.node, *(cpu for cpus in self.siblings for cpu in cpus))


def _check_types(kind: type | UnionType, *values: object) -> None:
    if not all(isinstance(value, kind) for value in values):
        raise TypeError(f"expected {kind}")


def state_folder(tree: Tree | None = None) -> Path:
    """$TAILRACE_HOST_STATE, else /var/lib/tailrace/host, which outlives a reboot; a copied machine has its own."""
    chosen = os.environ.get(ENVIRONMENT)
    return Path(chosen).absolute() if chosen else (tree or Tree()).at(str(DEFAULT))


class Journal:
    """The journal, held by one process at a time (`hold_journal`)."""

    def __init__(self, path: Path) -> None:
        """Raises Failure if a line cannot be understood, other than a last one that was cut off."""
        self.path = path
        self.applied: Applied | None = None
        """What was applied last; None if nothing is."""
        self._entries: dict[str, Entry] = {}
        """The first entry of each place, with the newest `wanted`."""
        self._whole = 0
        """Bytes of the file up to the end of its last whole line."""
        if path.exists():
            self._read(path.read_bytes())

    def _read(self, content: bytes) -> None:
        self._whole = content.rfind(b"\n") + 1
        for number, line in enumerate(content[: self._whole].splitlines(), 1):
            try:
                document = json.loads(line)
                if _APPLIED in document:
                    self.applied = Applied(**document[_APPLIED])
                else:
                    self._take(Entry(**document))
            except (ValueError, TypeError):
                raise Failure(
                    f"{self.path}: line {number} is damaged; put back by hand what the earlier lines say, "
                    "then remove the file"
                ) from None

    def _take(self, entry: Entry) -> None:
        first = self._entries.get(entry.place)
        # The boot loader's file outlives a boot, nothing else does.
        if first is not None and (first.boot == entry.boot or entry.setting.scheme == BOOT_FILE):
            entry = replace(entry, was=first.was)
        self._entries[entry.place] = entry

    @property
    def entries(self) -> list[Entry]:
        """In the order in which the places were first changed."""
        return list(self._entries.values())

    def note(self, *entries: Entry, applied: Applied | None = None) -> None:
        """Writes entries; returns when they are on disk. Raises Failure, and then nothing may be changed."""
        documents = [asdict(entry) for entry in entries] + ([{_APPLIED: asdict(applied)}] if applied else [])
        if not documents:
            return
        new = not self.path.exists()
        text = "".join(json.dumps(document) + "\n" for document in documents).encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.truncate(self._whole)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if new:
                sync_folder(self.path.parent)
        except OSError as error:
            raise Failure(f"{self.path}: {error.strerror}; nothing is changed without a record") from None
        self._whole += len(text)
        for entry in entries:
            self._take(entry)
        self.applied = applied or self.applied

    def clear(self) -> None:
        """All is as it was."""
        if self.path.exists():
            self.path.unlink()
            sync_folder(self.path.parent)
        self._entries, self.applied, self._whole = {}, None, 0


def sync_folder(folder: Path) -> None:
    """Returns when the names in a folder are on disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def hold_journal(folder: Path) -> Iterator[Journal]:
    """The journal, for this process alone. Raises Mistake while another command changes the host."""
    with ExitStack() as held:
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            held.enter_context(locked(folder / "lock"))
        except Held as error:
            raise Mistake(
                f"another `tailrace host` command is changing the host: {error}; wait for it to end"
            ) from None
        except OSError as error:
            raise Mistake(f"{folder}: {error.strerror}; tuning the host needs root, start it with sudo") from None
        yield Journal(folder / "journal")


def read_journal(folder: Path) -> Journal:
    """The journal as it is now, to look at. Raises Failure."""
    try:
        return Journal(folder / "journal")
    except OSError as error:
        raise Failure(f"{folder}/journal: {error.strerror}") from None
