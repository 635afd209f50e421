"""A machine in one file, to be moved to another host: a tar archive of what it is, its state, and the image that it
started from.

What is imported may come from anywhere: only the members that are known are read, each whole and as its digest says,
and nothing that is there is replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tailrace.errors import Failure, Mistake
from tailrace.functions import saved
from tailrace.functions.disks import FORMATS
from tailrace.functions.images import DEFAULT, image_in, images_folder, machine_image
from tailrace.spec.fields import NAME

_FORMAT = 1
_ABOUT, _STATE = "machine.json", "machine.state"
_IMAGE = ("image/vmlinuz", "image/initramfs", "image/image.json")
_MOST_ABOUT = 1 << 20
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Parcel:
    """What is in the file."""

    format: int
    name: str
    """Of the function."""
    function: dict[str, Any]
    """As a spec has it."""
    image: str
    """Its name among the images."""
    digests: dict[str, str]
    """SHA-256 of each other member."""


@dataclass(frozen=True)
class Imported:
    """What an import has made."""

    parcel: Parcel
    state: Path
    image: Path
    new_image: bool


def export(name: str, function: Mapping[str, Any], outer: str, path: Path) -> int:
    """Writes a machine that runs, known to libvirt as `outer`, to a new file; returns the bytes. Raises Failure,
    Mistake."""
    if path.exists():
        raise Mistake(f"{path}: is there already; name another file")
    named = str(function.get("image") or DEFAULT)
    if Path(named).suffix in FORMATS:
        raise Mistake(f"{name} has a disk, which is not exported; save it, and copy that file and {named} (cp -p)")
    image = machine_image(named)
    with _folder_beside(path) as folder:
        saved.save(outer, folder / _STATE)
        sources = {_STATE: folder / _STATE, **{each: image.folder / Path(each).name for each in _IMAGE}}
        digests = {each: _digest(source) for each, source in sources.items()}
        about = asdict(Parcel(_FORMAT, name, dict(function), image.folder.name, digests))
        (folder / _ABOUT).write_text(json.dumps(about, indent=1) + "\n")
        new = folder / "parcel"
        with saved.create_private(new) as file, tarfile.open(fileobj=file, mode="w") as archive:
            for each, source in {_ABOUT: folder / _ABOUT, **sources}.items():
                entry = tarfile.TarInfo(each)
                entry.size, entry.mode = source.stat().st_size, 0o600
                with source.open("rb") as content:
                    archive.addfile(entry, content)
        size = new.stat().st_size
        _put(new, path)
        return size


def look_into(path: Path) -> Parcel:
    """What a file says that it is. Raises Mistake."""
    with _opened(path) as archive:
        return _about(path, archive)


def import_(path: Path, state: Path) -> Imported:
    """Puts a machine's state into a new file, and its image among the images unless that very image is there. Raises
    Failure, Mistake; then nothing is left."""
    if state.exists():
        raise Mistake(f"{state}: is there already; name another file with --state")
    with _folder_beside(state) as folder, _opened(path) as archive:
        parcel = _about(path, archive)
        for member in archive:
            if member.name == _ABOUT:
                continue
            if member.name not in parcel.digests or not member.isfile() or (folder / member.name).exists():
                raise Mistake(f"{path}: has a member that does not belong there ({member.name!r})")
            _extract(path, archive, member, folder / member.name, parcel.digests[member.name])
        missing = [each for each in (_STATE, *_IMAGE) if not (folder / each).exists()]
        if missing:
            raise Mistake(f"{path}: is cut short; it lacks {', '.join(missing)}")
        saved.read(folder / _STATE)
        image, new = _put_image(path, folder / "image", parcel.image)
        try:
            _put(folder / _STATE, state)
        except BaseException:
            if new:
                shutil.rmtree(image, ignore_errors=True)
            raise
        return Imported(parcel, state, image, new)


def _about(path: Path, archive: tarfile.TarFile) -> Parcel:
    """What it is, which is the first member."""
    member = archive.next()
    if member is None or member.name != _ABOUT or not member.isfile() or member.size > _MOST_ABOUT:
        raise Mistake(f"{path}: is no machine that was exported; `tailrace function export NAME FILE` makes one")
    file = archive.extractfile(member)
    assert file is not None
    try:
        parcel = TypeAdapter(Parcel).validate_json(file.read())
    except ValidationError:
        raise Mistake(f"{path}: {_ABOUT} is damaged") from None
    if parcel.format != _FORMAT:
        raise Mistake(f"{path}: was exported by another version of Tailrace")
    if set(parcel.digests) != {_STATE, *_IMAGE} or not all(
        re.fullmatch(NAME, each) for each in (parcel.name, parcel.image)
    ):
        raise Mistake(f"{path}: {_ABOUT} is damaged")
    return parcel


def _extract(path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo, to: Path, digest: str) -> None:
    """Writes a member to a new file. Raises Mistake where it is not what was exported, OSError."""
    source = archive.extractfile(member)
    assert source is not None
    found = hashlib.sha256()
    to.parent.mkdir(exist_ok=True)
    with saved.create_private(to) as file:
        while chunk := source.read(_CHUNK):
            found.update(chunk)
            file.write(chunk)
    if found.hexdigest() != digest:
        raise Mistake(f"{path}: {member.name} is damaged")


def _put_image(path: Path, folder: Path, name: str) -> tuple[Path, bool]:
    """Puts an image among the others, unless it is there; and whether it was not."""
    there = images_folder() / name
    try:
        found = image_in(folder)
    except Mistake as error:
        raise Mistake(f"{path}: its image is damaged ({error})") from None
    if there.exists():
        if machine_image(name).made_of != found.made_of:
            raise Mistake(f"{there}: is another image of this name; move it away, or export from a host with this one")
        return there, False
    new = Path(tempfile.mkdtemp(prefix=".import-", dir=_made(images_folder())))
    try:
        for each in folder.iterdir():
            shutil.copyfile(each, new / each.name)
            (new / each.name).chmod(0o644)
        new.chmod(0o755)
        new.rename(there)
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return there, True


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    return folder


def _put(new: Path, path: Path) -> None:
    """Gives a file its name, unless there is one of it. Raises Mistake, OSError."""
    try:
        os.link(new, path)
    except FileExistsError:
        raise Mistake(f"{path}: is there already; name another file") from None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    """An archive. Raises Mistake where it is none, or not whole."""
    try:
        with tarfile.open(path, "r:") as archive:
            yield archive
    except (tarfile.TarError, EOFError) as error:
        raise Mistake(f"{path}: is no archive, or cut short ({error})") from None
    except FileNotFoundError as error:
        if error.filename != str(path):
            raise
        raise Mistake(f"{path}: there is no such file") from None


@contextmanager
def _folder_beside(path: Path) -> Iterator[Path]:
    """A folder for what is being made, on the same file system, that goes with all that is in it. Raises Failure."""
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as made:
            yield Path(made)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}; nothing was written") from None
