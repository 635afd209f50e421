"""`pages:`: huge pages that tuning adds to the pool of a node, and gives back by count: what others have there stays.

A value says how many there are beside those of nodes and measurements, and how many of these tuning has added:
`512 (412 ours)`. What is wanted is so many at least. The count is kept beside the journal, as of this boot. It is never
above what there is beyond what others had, so a command that is killed at any step neither loses pages nor gives back
those of others.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from tailrace.kernel.boot import boot_id
from tailrace.kernel.tree import Tree
from tailrace.resources import hugepages
from tailrace.resources.ledger import forget_pages, pages_to_give_back

_VALUE = re.compile(r"(\d+)(?: \((\d+) ours\))?")
_POOL = re.compile(r".*/node(\d+)/hugepages/hugepages-(\d+)kB/nr_hugepages")


@dataclass(frozen=True)
class Pages:
    """The pages of a pool, but for those of nodes and measurements."""

    there: int
    ours: int | None = None
    """Those that tuning has added; None: of what is wanted, as many as it takes."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError."""
        found = _VALUE.fullmatch(text.strip())
        if found is None:
            raise ValueError(text)
        return cls(int(found[1]), None if found[2] is None else int(found[2]))

    def __str__(self) -> str:
        return f"{self.there}" if self.ours is None else f"{self.there} ({self.ours} ours)"

    @classmethod
    def says(cls, text: str, wanted: str) -> bool:
        """Whether a text says what is wanted: so many at least, and none of ours too many; or so many of ours."""
        try:
            found, asked = cls.parse(text), cls.parse(wanted)
        except ValueError:
            return text == wanted
        if asked.ours is not None:
            return found.ours == asked.ours
        return found.there >= asked.there and (found.ours or 0) <= asked.there


@dataclass(frozen=True)
class _Kept:
    """What is kept of a pool."""

    others: int
    """Pages of others when ours were added."""
    ours: int


class PagePools:
    """The pools of one machine, by the files of their sizes."""

    def __init__(self, tree: Tree, folder: Path) -> None:
        """`folder` is that of the journal."""
        self._tree = tree
        self._file = folder / "pages"

    def read(self, target: str) -> str | None:
        """The value now; None if there is no such pool."""
        found = self._pages(target)
        return None if found is None else str(found)

    def write(self, target: str, value: str) -> None:
        """Adds pages, or gives ours back, until it is so. Raises OSError, Failure."""
        try:
            wanted = Pages.parse(value)
        except ValueError:
            raise OSError(errno.EINVAL, f"{value!r} is no number of pages", target) from None
        with self._alone():
            if (pool := self._of_kernel(target)) is not None:
                forget_pages(pool)
            now = self._pages(target)
            if now is None or now.ours is None:
                raise FileNotFoundError(errno.ENOENT, "there is no such pool", target)
            others = now.there - now.ours
            ours = max(wanted.there - others, 0) if wanted.ours is None else wanted.ours
            if ours > now.ours:  # on record first: what is not there does not count
                self._keep(target, _Kept(others, ours))
            if ours != now.ours:
                self._tree.write(target, str(max((self._total(target) or 0) + ours - now.ours, 0)))
            made = self._pages(target)
            have = made.there - others if made is not None else 0
            self._keep(target, _Kept(others, min(max(have, 0), ours)))

    def _pages(self, target: str) -> Pages | None:
        total = self._total(target)
        if total is None:
            return None
        there = max(total - self._of_nodes(target), 0)
        kept = self._all_kept().get(target, _Kept(there, 0))
        return Pages(there, min(max(there - kept.others, 0), kept.ours))

    def _total(self, target: str) -> int | None:
        """Without those that were given back and are in use still, as `hugepages.pool` has it."""
        total = self._tree.number(target)
        surplus = self._tree.number(target.replace("nr_hugepages", "surplus_hugepages"))
        return None if total is None else total - (surplus or 0)

    def _of_nodes(self, target: str) -> int:
        """Those that nodes and measurements have added, and give back themselves."""
        own = self._of_kernel(target)
        added = pages_to_give_back() if own is not None else ()
        return sum(each.count for each in added if hugepages.pool_of(each.node, kib=each.kib) == own)

    def _of_kernel(self, target: str) -> Path | None:
        """The pool that nodes and measurements on a node's CPUs add to; None but on the machine itself."""
        named = _POOL.fullmatch(target)
        return hugepages.pool_of(int(named[1]), kib=int(named[2])) if named is not None and self._tree.live else None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._tree.live:
            yield
            return
        with hugepages.alone():
            yield

    def _all_kept(self) -> dict[str, _Kept]:
        """What cannot be read is nothing: pages that may be somebody else's are not given back."""
        try:
            document = json.loads(self._file.read_text())
            if document["boot"] != boot_id(self._tree):
                return {}
            return {str(at): _Kept(int(each["others"]), int(each["ours"])) for at, each in document["pools"].items()}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return {}

    def _keep(self, target: str, kept: _Kept) -> None:
        """Raises OSError, and then nothing may be added."""
        pools = {at: each for at, each in {**self._all_kept(), target: kept}.items() if each.ours}
        if not pools:
            self._file.unlink(missing_ok=True)
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        new = self._file.with_name(f".{self._file.name}.new")
        try:
            document = {"boot": boot_id(self._tree), "pools": {at: asdict(each) for at, each in pools.items()}}
            new.write_text(json.dumps(document) + "\n")
            new.replace(self._file)
        except OSError:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise
