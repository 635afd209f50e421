"""A machine in one file, to be moved to another host: a tar archive of what it is, its state, and what it started
from: the image, or the disk of the user's, whole and as it is. What the machine had written to that is in its state.

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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tailrace.errors import Failure, Mistake
from tailrace.functions import saved
from tailrace.functions.disks import FORMATS, let_read, qemu_user
from tailrace.functions.images import DEFAULT, image_in, images_folder, is_image_name, machine_image
from tailrace.process.if_killed import if_killed
from tailrace.spec.fields import NAME

_FORMAT, _WITH_DISK = 1, 2
_ABOUT, _STATE = "machine.json", "machine.state"
_IMAGE, _DISK = ("image/vmlinuz", "image/initramfs", "image/image.json"), ("image/disk",)
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
    """Its name among the images; of a disk, the name that its file gets."""
    digests: dict[str, str]
    """SHA-256 of each other member."""

    @property
    def members(self) -> tuple[str, ...]:
        """All others that it has to have."""
        return (_STATE, *(_DISK if self.format == _WITH_DISK else _IMAGE))


@dataclass(frozen=True)
class Imported:
    """What an import has made."""

    parcel: Parcel
    state: Path
    image: Path
    """Its folder, or the file that is its disk."""
    new_image: bool


def export(name: str, function: Mapping[str, Any], outer: str, path: Path) -> int:
    """Writes a machine that runs, known to libvirt as `outer`, to a new file; returns the bytes. Raises Failure,
    Mistake."""
    if path.exists():
        raise Mistake(f"{path}: is there already; name another file")
    named = Path(str(function.get("image") or DEFAULT))
    disk = named.suffix in FORMATS
    image = named if disk else machine_image(str(named)).folder
    with _folder_beside(path) as folder:
        saved.save(outer, folder / _STATE, wanted=path)
        files = {_DISK[0]: image} if disk else {each: image / Path(each).name for each in _IMAGE}
        sources = {_STATE: folder / _STATE, **files}
        digests = {each: _digest(source) for each, source in sources.items()}
        called = f"{name}{image.suffix}" if disk else image.name
        about = asdict(Parcel(_WITH_DISK if disk else _FORMAT, name, dict(function), called, digests))
        (folder / _ABOUT).write_text(json.dumps(about, indent=1) + "\n")
        new = folder / "parcel"
        with saved.create_private(new) as file, tarfile.open(fileobj=file, mode="w") as archive:
            for each, source in {_ABOUT: folder / _ABOUT, **sources}.items():
                entry = tarfile.TarInfo(each)
                entry.size, entry.mode = source.stat().st_size, 0o600
                with source.open("rb") as content:
                    archive.addfile(entry, content)
        if disk:
            saved.check_image(saved.read(folder / _STATE), image)  # somebody may have written to it meanwhile
        size = new.stat().st_size
        _put(new, path)
        return size


def look_into(path: Path) -> Parcel:
    """What a file says that it is. Raises Mistake."""
    with _opened(path) as archive:
        return _about(path, archive)


def import_(path: Path, state: Path) -> Imported:
    """Puts a machine's state into a new file, and its image among the images unless that very image is there; a disk
    into a new file beside the state. Raises Failure, Mistake; then nothing is left."""
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
        missing = [each for each in parcel.members if not (folder / each).exists()]
        if missing:
            raise Mistake(f"{path}: is cut short; it lacks {', '.join(missing)}")
        found = saved.read(folder / _STATE)
        if parcel.format == _WITH_DISK:
            image, new = _put_disk(path, found, folder / _DISK[0], state.with_name(parcel.image)), True
            parcel = replace(parcel, function={**parcel.function, "image": str(image)})
        else:
            image, new = _put_image(path, folder / "image", parcel.image)
        try:
            _put(folder / _STATE, state)
        except BaseException:
            if new and image.is_dir():
                shutil.rmtree(image, ignore_errors=True)
            elif new:
                image.unlink(missing_ok=True)
            raise
        return Imported(parcel, state, image, new)


def _put_disk(path: Path, state: saved.Saved, disk: Path, to: Path) -> Path:
    """Gives a disk its name, as its machine's state knows it. Raises Failure, Mistake."""
    if state.disk is None or state.disk.image[0] != disk.stat().st_size:
        raise Mistake(f"{path}: its disk is not the one of its state")
    os.utime(disk, ns=(state.disk.image[1], state.disk.image[1]))
    saved.check_image(state, disk)
    let_read(disk, qemu_user())
    _put(disk, to)
    return to


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
    if parcel.format not in (_FORMAT, _WITH_DISK):
        raise Mistake(f"{path}: was exported by another version of Tailrace")
    names = [f"{parcel.name}{each}" for each in FORMATS] if parcel.format == _WITH_DISK else None
    known = is_image_name(parcel.image) if names is None else parcel.image in names
    if set(parcel.digests) != set(parcel.members) or not known or not re.fullmatch(NAME, parcel.name):
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
        with if_killed('rm -rf -- "$1"', str(new)):
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
    except (IsADirectoryError, PermissionError) as error:
        if error.filename != str(path):
            raise
        expected = "expected a file that `tailrace function export` has written"
        raise Mistake(f"{path}: {error.strerror}; {expected}") from None


@contextmanager
def _folder_beside(path: Path) -> Iterator[Path]:
    """A folder for what is being made, on the same file system, that goes with all that is in it. Raises Failure."""
    try:
        with (
            tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as made,
            if_killed('rm -rf -- "$1"', made),
        ):
            yield Path(made)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}; nothing was written") from None
