"""A run as one file, to be carried elsewhere: a zip archive with the run folder in it, and a list of what it holds.

    RUN/export.json      format, and of each file its size and SHA-256
    RUN/results.json     and all other files of the run folder

Whoever imports one trusts nothing in it. Only ordinary files in plain places are taken, each is as large as it says and
has the digest that it should have, all together stay below a limit, and the results must be readable; only then does
the folder appear among the others, whole. A digest shows damage, not forgery: nobody signs.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tailrace.errors import Failure, Mistake
from tailrace.results.model import FORMAT, HistogramReference, Run
from tailrace.results.run import RESULTS, load_run

CONTENTS = "export.json"
ARCHIVE_FORMAT = 1
SUFFIX = ".zip"
MOST_FILES = 20_000
MOST_BYTES = 4 << 30
"""What an archive may hold, unpacked: far more than a soak of days."""
_MOST_CONTENTS = 16 << 20
_CHUNK = 1 << 20
_BEGIN = b"PK\x03\x04"
"""What an archive that holds a file begins with."""
#: The oldest time that the format knows: the same run gives the same file.
_NO_TIME = (1980, 1, 1, 0, 0, 0)
#: A name in an archive: nothing that means something else on any system.
_PLAIN = re.compile(r"[A-Za-z0-9_+@,=~-](?:[A-Za-z0-9._+@,=~ -]{0,198}[A-Za-z0-9_+@,=~-])?")


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class _Contents(BaseModel):
    """export.json."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    tailrace_export: int = Field(ge=1)
    files: dict[str, _File]


def export_run(folder: Path, target: Path) -> Run:
    """Write the run `folder` to the file `target`, whole or not at all, and return the run.

    Raises Unreadable if it is no run folder, Mistake if it is not complete, has more files than an import takes or
    `target` is there already.
    """
    run = load_run(folder)
    if not folder.is_dir():
        raise Mistake(f"{folder}: a file; expected the run folder that it lies in")
    files = dict(sorted(_files_of(folder)))
    if len(files) + 1 > MOST_FILES:  # with the list of them
        raise Mistake(
            f"{folder}: holds {len(files):,} files, and `tailrace import` takes at most {MOST_FILES - 1:,} of a run; "
            "remove or pack those that are not the run's own"
        )
    for name in (run.id, *files):
        if not all(_PLAIN.fullmatch(part) for part in name.split("/")):
            raise Mistake(f"{folder}: {name!r} is no name that an archive may hold; rename or remove it")
    for name in sorted(_needed(run) - files.keys()):
        raise Mistake(f"{folder}: the run folder is not complete: {name}, which {RESULTS} refers to, is missing")
    try:
        file = target.open("xb")
    except FileExistsError:
        raise Mistake(f"{target}: is there already; expected the name of a new file (-o FILE)") from None
    try:
        with file:
            _write(file, run.id, files)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return run


def import_run(file: Path, runs: Path, *, most_bytes: int = MOST_BYTES) -> Path:
    """Unpack the run in the archive `file` into the folder `runs`, and return the new run folder.

    Raises Mistake if it is no such archive, is damaged, holds what it should not or more than `most_bytes`, is of a
    newer format, or if the run is there already; then nothing is left behind.
    """
    try:
        archive = zipfile.ZipFile(file)
    except (OSError, zipfile.BadZipFile, ValueError, RuntimeError) as error:
        raise Mistake(f"{file}: {_no_archive(file, error)}; expected a file made by `tailrace export`") from None
    with archive, _refusing(file):
        members = _members(archive, most_bytes)
        (name,) = {member.filename.split("/")[0] for member in members} or {""}
        contents = _contents(archive, members, name)
        target = runs / name
        if target.exists():
            raise Mistake(f"{target} is there already; remove it first, or import into another folder (--runs FOLDER)")
        runs.mkdir(parents=True, exist_ok=True)
        with _taken_back(Path(tempfile.mkdtemp(dir=runs, prefix=".import-"))) as folder:
            for member in members:
                inner = member.filename.partition("/")[2]
                if inner != CONTENTS:
                    _unpack(archive, member, contents.files[inner], folder / inner)
            _check_run(folder, name)
            (folder / "histograms").mkdir(exist_ok=True)
            (folder / "logs").mkdir(exist_ok=True)
            folder.chmod(0o755)
            folder.rename(target)
    return target


def _files_of(folder: Path) -> Iterator[tuple[str, Path]]:
    """The ordinary files of a run folder by their name in it; links and what begins with a dot are left out."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not path.is_file() or name.startswith(".") or "/." in name or name == CONTENTS:
            continue
        yield name, path


def _needed(run: Run) -> set[str]:
    """The files that results.json refers to."""
    return set(_referred(run))


def _referred(value: object) -> Iterator[str]:
    if isinstance(value, HistogramReference):
        yield value.file
    elif isinstance(value, BaseModel):
        for _, inner in value:
            yield from _referred(inner)
    elif isinstance(value, tuple):
        for inner in value:
            yield from _referred(inner)


def _write(file: BinaryIO, name: str, files: dict[str, Path]) -> None:
    listed: dict[str, dict[str, Any]] = {}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for inner, path in files.items():
            digest, size = hashlib.sha256(), 0
            with path.open("rb") as source, archive.open(_info(f"{name}/{inner}"), "w", force_zip64=True) as sink:
                while chunk := source.read(_CHUNK):
                    digest.update(chunk)
                    size += len(chunk)
                    sink.write(chunk)
            listed[inner] = {"size": size, "sha256": digest.hexdigest()}
        document = {"tailrace_export": ARCHIVE_FORMAT, "results_format": FORMAT, "files": listed}
        archive.writestr(_info(f"{name}/{CONTENTS}"), json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _NO_TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3  # Unix, whose modes follow
    info.external_attr = (stat.S_IFREG | 0o644) << 16
    return info


class _Refused(Exception):
    """Why an archive is not taken."""


def _no_archive(file: Path, error: Exception) -> str:
    """Why a file cannot be opened as an archive. What is left of one begins as the whole did, and has lost its end."""
    if isinstance(error, OSError) and error.errno != errno.EINVAL:  # EINVAL: places in it lie before its start
        return error.strerror or str(error)
    with file.open("rb") as opened:
        began_well = opened.read(len(_BEGIN)) == _BEGIN
    if began_well:
        return "a zip archive that was cut short or is damaged (copy it again); nothing was imported"
    return "no exported run (a zip archive)"


@contextmanager
def _refusing(file: Path) -> Iterator[None]:
    """One clear line for whatever is wrong with an archive."""
    try:
        yield
    except _Refused as error:
        raise Mistake(f"{file}: {error}; nothing was imported") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        raise Mistake(f"{file}: damaged ({error}); nothing was imported") from None
    except OSError as error:
        raise Failure(f"{file}: cannot be imported: {error.strerror or error}") from error


def _members(archive: zipfile.ZipFile, most_bytes: int) -> list[zipfile.ZipInfo]:
    """The files in the archive, looked at before anything is unpacked."""
    if len(archive.infolist()) > MOST_FILES:
        raise _Refused(f"holds {len(archive.infolist()):,} files, and a run has at most {MOST_FILES:,}")
    seen: set[str] = set()
    for member in archive.infolist():
        _check_member(member)
        if member.filename.lower() in seen:
            raise _Refused(f"holds {member.filename!r} twice")
        seen.add(member.filename.lower())
    members = [member for member in archive.infolist() if not member.is_dir()]
    total = sum(member.file_size for member in members)
    if total > most_bytes:
        raise _Refused(
            f"holds {total / (1 << 20):,.0f} MiB unpacked, and at most {most_bytes / (1 << 20):,.0f} MiB are taken "
            "(--most SIZE)"
        )
    if len({name.split("/")[0] for name in seen}) != 1:
        raise _Refused("does not hold one run folder")
    for member in members:
        if any(f"{member.filename.lower()}/" == other[: len(member.filename) + 1] for other in seen):
            raise _Refused(f"holds {member.filename!r} as a file and as a folder")
    return members


def _check_member(member: zipfile.ZipInfo) -> None:
    name = member.orig_filename
    parts = name.removesuffix("/").split("/")
    if not 1 <= len(parts) <= 8 or not all(_PLAIN.fullmatch(part) for part in parts) or name != member.filename:
        raise _Refused(f"holds a path that a run folder does not: {name[:100]!r}")
    if member.header_offset < 0:
        raise _Refused("damaged (a piece of it is missing)")
    if len(parts) == 1 and not member.is_dir():
        raise _Refused(f"holds a file beside the run folder: {name!r}")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFDIR if member.is_dir() else stat.S_IFREG):
        raise _Refused(f"holds something that is no ordinary file (a link?): {name!r}")
    if member.flag_bits & 0x1:
        raise _Refused(f"holds an encrypted file: {name!r}")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _Refused(f"holds a file compressed in a way that exports are not: {name!r}")


def _contents(archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], name: str) -> _Contents:
    """What the archive says it holds. Raises _Refused unless it holds just that."""
    there = {member.filename.partition("/")[2]: member for member in members}
    listing = there.pop(CONTENTS, None)
    if listing is None:
        raise _Refused(f"has no {name}/{CONTENTS}: not an exported run")
    if listing.file_size > _MOST_CONTENTS:
        raise _Refused(f"{CONTENTS} is too large")
    try:
        document = json.loads(archive.read(listing))
        contents = _Contents.model_validate(document)
    except (ValidationError, ValueError, RecursionError):
        raise _Refused(f"{CONTENTS} is not what `tailrace export` writes") from None
    if contents.tailrace_export > ARCHIVE_FORMAT:
        raise _Refused(
            f"exported in format {contents.tailrace_export}, but this Tailrace reads up to {ARCHIVE_FORMAT}; "
            "upgrade Tailrace"
        )
    if RESULTS not in contents.files:
        raise _Refused(f"has no {RESULTS}")
    for inner in contents.files.keys() ^ there.keys():
        word = "lacks" if inner in contents.files else "holds, unlisted,"
        raise _Refused(f"{word} {inner!r}")
    for inner, member in there.items():
        if member.file_size != contents.files[inner].size:
            raise _Refused(f"{inner!r} has {member.file_size} bytes and should have {contents.files[inner].size}")
    return contents


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, listed: _File, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, left = hashlib.sha256(), listed.size
    with archive.open(member) as source, target.open("xb") as sink:
        # What a member unpacks to is up to whoever made it: never more than it said.
        while chunk := source.read(min(_CHUNK, left + 1)):
            left -= len(chunk)
            if left < 0:
                break
            digest.update(chunk)
            sink.write(chunk)
    if left != 0 or digest.hexdigest() != listed.sha256:
        raise _Refused(f"{member.filename!r} is damaged: it is not what was exported")


def _check_run(folder: Path, name: str) -> None:
    """The folder's results must be readable here, and be the run's that the archive is named after."""
    try:
        run = load_run(folder)
    except Mistake as error:
        raise _Refused(str(error).replace(f"{folder}/", "")) from None
    if run.id != name:
        raise _Refused(f"holds the run {run.id!r} under the name {name!r}")
    for needed in sorted(_needed(run)):
        if not (folder / needed).resolve().is_relative_to(folder.resolve()) or not (folder / needed).is_file():
            raise _Refused(f"lacks {needed!r}, which {RESULTS} refers to")


@contextmanager
def _taken_back(folder: Path) -> Iterator[Path]:
    """A folder that is removed again unless the block renames it."""
    try:
        yield folder
    finally:
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)
