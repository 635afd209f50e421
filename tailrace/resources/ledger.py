"""Who of Tailrace's holds what of this machine: one file for each state folder, in a folder that only its owner opens.

Root's claims are in one place, whatever their state folders; another user's are that user's own. A claim holds as long
as what is up there is on record, in this boot, and, of a measurement, as long as its command runs. Others are ignored,
and removed by the next one that is written, unless they say which huge pages are to be given back.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tailrace.errors import Failure, Mistake
from tailrace.kernel.tree import Tree
from tailrace.process.lock import Held, locked
from tailrace.resources.claim import Claim, Pages
from tailrace.resources.conflict import check_beside
from tailrace.resources.hugepages import pool, pool_of
from tailrace.resources.topology import read_cpus

_ROOTS = Path("/run/tailrace-claims")
PATIENCE = 10.0
"""Seconds that another command is waited for; it only writes a small file."""
_TRIES = 10

Polled = frozenset[tuple[int, str]]
"""CPUs that are polled on, each with the state folder that it is for."""


class Overtaken(Failure):
    """Another has claimed the same cores since they were chosen."""


@cache
def _reader() -> TypeAdapter[Claim]:
    """Made when it is needed."""
    return TypeAdapter(Claim)


def ledger_folder() -> Path:
    """Root's, or that of another user."""
    if os.geteuid() == 0:
        return _ROOTS
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / _ROOTS.name if runtime else Path(f"/tmp/{_ROOTS.name}-{os.geteuid()}")


def claim_file(state: Path) -> Path:
    """Where the claim of a state folder is."""
    return ledger_folder() / f"{hashlib.sha256(os.fsencode(state.absolute())).hexdigest()[:16]}.json"


def claims() -> list[Claim]:
    """Those that hold, and that this user may read, by folder."""
    found = (_read(path) for folder in dict.fromkeys((ledger_folder(), _ROOTS)) for path in _files(folder))
    return sorted((claim for claim in found if claim and claim.holds()), key=lambda claim: claim.folder)


def pages_to_give_back() -> list[Pages]:
    """The huge pages that were added for all state folders whose claims this user may read, and are still there."""
    found = (_read(path) for folder in dict.fromkeys((ledger_folder(), _ROOTS)) for path in _files(folder))
    return [pages for claim in found if claim is not None for pages in claim.owed]


def exclusive_of_others(own: Collection[Path]) -> dict[int, Claim]:
    """The CPUs that are polled on for other state folders than these, each with one that holds it."""
    names = {str(folder.absolute()) for folder in own}
    return {cpu: claim for claim in reversed(claims()) if claim.folder not in names for cpu in claim.exclusive}


def alone_of_others(own: Collection[Path]) -> dict[int, Claim]:
    """Those of these CPUs that nobody else is put on, each with the claim of whoever has it."""
    names = {str(folder.absolute()) for folder in own}
    return {cpu: claim for claim in claims() if claim.folder not in names for cpu in claim.alone}


def polled_on() -> Polled:
    """All CPUs that are polled on now."""
    return frozenset((cpu, claim.folder) for claim in claims() for cpu in claim.exclusive)


def write_claim(claim: Claim, known: Polled | None = None, adding: Mapping[int, int] = MappingProxyType({})) -> None:
    """Writes a claim in the place of an older one, and removes those that do not hold. `adding`: huge pages that are to
    be added for it, in MiB by node.

    With `known`, what was polled on when its CPUs were chosen, it raises Overtaken if another has claimed some of these
    cores since. Raises Refused where what others hold leaves no room for it, Failure, Mistake.
    """
    file = claim_file(Path(claim.folder))
    with _alone(file.parent):
        check_beside(claim, own_claim(Path(claim.folder)), claims(), adding)
        if known is not None:
            _check_free(claim, known)
        for path in _files(file.parent):
            other = _read(path)
            if path != file and (other is None or not (other.holds() or _owes(other))):
                path.unlink(missing_ok=True)
        for path in file.parent.glob("*.new"):  # of one who was killed here
            path.unlink(missing_ok=True)
        _put(file, claim)


def _put(file: Path, claim: Claim) -> None:
    new = file.with_suffix(".new")
    new.write_text(json.dumps(asdict(claim)) + "\n")
    new.replace(file)


def unclaim_pages(file: Path, pages: Pages) -> int:
    """Takes pages out of a claim, before they are given back: whoever reads it afterwards does not give them back a
    second time, and neither does who was killed before the record said so. Returns how many of them are to be given
    back: fewer than were added where `forget_pages` has found them gone, and all where there is no claim to say.
    Raises Failure, Mistake."""
    if _read(file) is None:
        return pages.count
    with _alone(file.parent):
        claim = _read(file)
        same = [each for each in claim.pages if _the_same(each, pages)] if claim else []
        if claim is None or not same:  # who was killed just before they were claimed has them, too
            return pages.count
        found = max(same, key=lambda each: (each.count == pages.count, each.count))
        kept = [replace(each, count=0) if each is found else each for each in claim.pages]
        _put(file, replace(claim, pages=tuple(kept)))
        return min(found.count, pages.count)


def _the_same(claimed: Pages, pages: Pages) -> bool:
    """Whether these are the pages that a claim speaks of, of which some may be gone."""
    of_pool = (claimed.kib, claimed.node) == (pages.kib, pages.node)
    return of_pool and (claimed.before is None or claimed.before == pages.before)


def forget_pages(base: Path) -> None:
    """Takes off the claims of those who are gone what a pool no longer has: somebody has made it smaller by hand, and
    pages that are added from now on are not theirs to give back. To be called before any are added, under
    `hugepages.alone`. Raises Failure, Mistake."""
    folder = ledger_folder()
    claimed = [(path, claim) for path in _files(folder) if (claim := _read(path)) is not None and claim.owed]
    of_pool = {each for _, claim in claimed for each in claim.owed if pool_of(each.node, kib=each.kib) == base}
    gone = sum(each.count for _, claim in claimed for each in claim.owed if each in of_pool) - pool(base).total
    dead = [(path, claim) for path, claim in claimed if gone > 0 and not claim.holds()]
    if not dead:
        return
    with _alone(folder):
        for path, claim in dead:
            kept = []
            for each in claim.pages:
                less = min(each.count, gone) if each in of_pool else 0
                gone -= less
                kept.append(replace(each, count=each.count - less))
            _put(path, replace(claim, pages=tuple(kept)))  # also where none is left, as the record knows the old count


def _owes(claim: Claim) -> bool:
    """Whether there are pages to be given back, or a record may say so of those that are gone."""
    return any(each.count for each in claim.owed) or bool(claim.owed and Path(claim.folder).exists())


def _check_free(claim: Claim, known: Polled) -> None:
    new = {cpu: folder for cpu, folder in polled_on() - known if folder != claim.folder}
    core_of = {cpu.number: cpu.core for cpu in read_cpus(Tree())} if new else {}
    own = {core_of.get(cpu, cpu) for cpu in claim.exclusive}
    for cpu, folder in sorted(new.items()):
        if core_of.get(cpu, cpu) in own:
            raise Overtaken(f"CPU {cpu} was claimed for {folder} after it had been chosen here; try again")


def remove_claim(file: Path) -> None:
    """Removes a claim, and the folder with the last one. Raises OSError."""
    file.unlink(missing_ok=True)
    file.with_suffix(".new").unlink(missing_ok=True)
    with suppress(OSError):
        file.parent.rmdir()


def own_claim(state: Path) -> Claim | None:
    """The claim of a state folder."""
    return _read(claim_file(state))


def unreadable() -> Path | None:
    """The folder of root's claims where this user may not read them."""
    return _ROOTS if _ROOTS.exists() and not os.access(_ROOTS, os.R_OK | os.X_OK) else None


def _files(folder: Path) -> list[Path]:
    """Nothing where it may not be read, or is not root's or ours alone: it may be made to mislead."""
    try:
        found = folder.lstat()
        if not _only_ours(found) and found.st_uid != 0:
            return []
        return sorted(folder.glob("*.json"))
    except OSError:
        return []


def _only_ours(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _read(path: Path) -> Claim | None:
    """None if it cannot be read: it has just gone, or another version has written it."""
    try:
        found = path.stat()
        return _read_once(path, (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size))
    except (OSError, ValueError, ValidationError):
        return None


@lru_cache(maxsize=64)
def _read_once(path: Path, mark: tuple[int, ...]) -> Claim:
    """A claim is replaced by another file, never written over."""
    del mark
    document: Any = json.loads(path.read_text())
    return _reader().validate_python(document)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """The folder, which is made where it is missing, for this process alone."""
    with ExitStack() as held:
        try:
            _lock(folder, held)
            yield
        except Held as error:
            raise Failure(f"{error} has been writing to {folder} for {PATIENCE:g} s; end it") from None
        except OSError as error:
            raise Failure(f"{folder}: {error.strerror}, so what is held cannot be written there") from None


def _lock(folder: Path, held: ExitStack) -> None:
    for attempt in range(_TRIES):
        folder.mkdir(mode=0o700, exist_ok=True)
        with suppress(FileNotFoundError) if attempt < _TRIES - 1 else nullcontext():  # the last claim has just gone
            found = folder.lstat()
            if not _only_ours(found):
                raise Mistake(f"{folder}: is not a folder that only we can open; remove it")
            held.enter_context(locked(folder / "lock", patience=PATIENCE))
            return
