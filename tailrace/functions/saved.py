"""A machine's whole state in a file, in libvirt's own format (`virsh restore` takes it too): a header, the domain, and
QEMU's stream of memory and devices. Of a machine with a disk of the user's, what it has written to that follows, which
neither libvirt nor QEMU reads: its overlay on the image, where that begins, and what image that is.

libvirt restores a machine only as what it was: of that name, with those sockets. Here it becomes another instance, or a
copy: the same stream behind another domain. Memory is read from the file anew, as the switch has to share it.

Source: struct _virQEMUSaveHeader in libvirt's src/qemu/qemu_saveimage.h.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from xml.etree import ElementTree

from tailrace.errors import Failure, Mistake
from tailrace.functions.domain import MachineSetting, domain_xml
from tailrace.kernel.plain_file import plain_file
from tailrace.process import hypervisor
from tailrace.process.if_killed import if_killed

_HEADER = struct.Struct("<16s5I56x")
"""Magic, version, length of what precedes the stream, whether it ran, compression, where the cookie begins."""
_WHOLE, _PARTIAL = b"LibvirtQemudSave", b"LibvirtQemudPart"
_VERSION = 2
_MOST_XML = 1 << 20
_DISK = struct.Struct("<16s4Q")
"""At the file's end: magic, where the overlay begins and ends, and the image as `_identity` has it."""
_WITH_DISK = b"TailraceDisk\0\0\0\1"
_KIND = re.compile(r"pc-q35-[0-9.]+")
_COMPARED = (
    "another acceleration",
    "another memory, in KiB,",
    "another number of CPUs",
    "other ports",
    "another function",
    "another number of disks",
    "other firmware",
)
_FUNCTION = re.compile(r"\btailrace\.run=(\S+)")


@dataclass(frozen=True)
class SavedDisk:
    """What a machine has written to its disk."""

    begins: int
    ends: int
    image: tuple[int, int]
    """Beneath it, as `_identity` has it."""


@dataclass(frozen=True)
class Saved:
    """A machine in a file."""

    path: Path
    domain: str
    """In libvirt's words."""
    cookie: bytes
    """What libvirt has noted beside it."""
    begins: int
    """Where the stream does."""
    ends: int
    """Where the stream does, at the latest."""
    disk: SavedDisk | None = None


def read(path: Path) -> Saved:
    """A machine that was saved. Raises Mistake where the file is none, or not whole."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise Mistake(f"{path}: is no file; `tailrace function save NAME FILE` makes one")
            if about.st_uid != os.geteuid():  # a machine's state can be made to attack QEMU
                raise Mistake(f"{path}: belongs to another user; expected a file of one's own")
            header = file.read(_HEADER.size)
            if header[:16] == _PARTIAL:
                raise Mistake(f"{path}: was not saved to its end")
            if len(header) < _HEADER.size or header[:16] != _WHOLE:
                raise Mistake(f"{path}: is no machine that was saved; `tailrace function save NAME FILE` makes one")
            _, version, length, _, compressed, cookie = _HEADER.unpack(header)
            if version != _VERSION or compressed:
                raise Mistake(
                    f"{path}: is compressed, or of version {version}; expected one that was saved by Tailrace"
                )
            data = file.read(length) if length <= _MOST_XML else b""
            begins, ends = _HEADER.size + length, os.fstat(file.fileno()).st_size
            disk = _disk_in(file, begins, ends)
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}") from None
    if len(data) < length or begins >= ends:
        raise Mistake(f"{path}: is cut short")
    domain, noted = (data[:cookie], data[cookie:]) if cookie else (data, b"")
    try:
        text = domain.rstrip(b"\0").decode()
        ElementTree.fromstring(text)
    except (ValueError, ElementTree.ParseError):
        raise Mistake(f"{path}: is damaged") from None
    return Saved(path, text, noted.rstrip(b"\0"), begins, ends if disk is None else disk.begins, disk)


def _disk_in(file: BinaryIO, least: int, size: int) -> SavedDisk | None:
    """What follows the stream of a file of this size, whose stream begins at `least`."""
    if size < least + _DISK.size:
        return None
    magic, begins, ends, *image = _DISK.unpack(os.pread(file.fileno(), _DISK.size, size - _DISK.size))
    if magic != _WITH_DISK or not least < begins < ends == size - _DISK.size:
        return None
    return SavedDisk(begins, ends, (image[0], image[1]))


def save(name: str, path: Path, wanted: Path | None = None) -> int:
    """Saves a machine that goes on running afterwards; returns the bytes that it takes. What is at `path` is replaced
    when all is written, and has to be a file. Raises Failure, Mistake: they name `wanted`, the file that it was asked
    for, if that is another one."""
    path = plain_file(path)
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    except OSError as error:
        raise Mistake(f"{path.parent}: {error.strerror}") from None
    try:
        with if_killed('rm -rf -- "$1"', str(folder)):
            new = folder / "state"
            free = shutil.disk_usage(folder).free
            disk = _disk_of(name)
            if disk is not None and path.exists() and any(path.samefile(each) for each in disk):
                raise Mistake(f"{wanted or path}: the machine runs from this disk; expected another file")
            try:
                hypervisor.save(name, new, None if disk is None else lambda: _add_disk(new, *disk))
            except Failure as error:
                room = f" ({free >> 20} MiB were free there, and it may take all of its memory)"
                raise Failure(f"{wanted or path}: {error}{room}; nothing was written") from None
            os.chown(new, os.geteuid(), os.getegid())
            new.chmod(0o600)  # all that was in its memory
            size = new.stat().st_size
            new.replace(path)
            return size
    except OSError as error:
        raise Failure(f"{wanted or path}: {error.strerror}; nothing was written") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _disk_of(name: str) -> tuple[Path, Path] | None:
    """The overlay of a machine's disk, and the image beneath it; None: it has no disk. Raises Failure, and Mistake
    where it has what such a file does not hold."""
    devices = ElementTree.fromstring(hypervisor.machine_xml(name)).find("devices")
    assert devices is not None
    if devices.find("hostdev") is not None:
        raise Mistake(f"{name} has a device of its own, which such a file does not hold")
    found = devices.findall("disk")
    if not found:
        return None
    files = [found[0].find("source"), found[0].find("backingStore/source")]
    overlay, image = ("" if each is None else each.get("file", "") for each in files)
    if len(found) != 2 or not overlay or not image:
        raise Mistake(f"{name} has a disk beside its own, which such a file does not hold")
    return Path(overlay), Path(image)


def _identity(image: Path) -> tuple[int, int]:
    """What tells an image from another one, and from what it was before: its size, and when it was written."""
    about = image.stat()
    return about.st_size, about.st_mtime_ns


def _add_disk(path: Path, overlay: Path, image: Path) -> None:
    """Adds what a machine that stands still has written. Raises OSError."""
    with path.open("r+b") as file, overlay.open("rb") as source:
        begins = file.seek(0, os.SEEK_END)  # sendfile(2) takes no file that is open to append
        size = os.fstat(source.fileno()).st_size
        _copy(file, source, 0, size)
        file.write(_DISK.pack(_WITH_DISK, begins, begins + size, *_identity(image)))


def check_image(saved: Saved, image: Path) -> tuple[int, int]:
    """Whether an image is the one that a saved machine's disk was on; returns where the overlay on it begins and ends.
    Raises Mistake."""
    if saved.disk is None:
        raise Mistake(f"{saved.path}: holds no disk; it is cut short, or of a machine without one")
    try:
        if saved.disk.image != _identity(image):
            raise Mistake(f"{image}: is not as it was when {saved.path} was saved; expected the same file")
    except OSError as error:
        raise Mistake(f"{image}: {error.strerror}") from None
    return saved.disk.begins, saved.disk.ends


def take_disk(saved: Saved, image: Path, overlay: Path) -> None:
    """Writes to a new file what a machine had written to its disk, whose image is here. Raises Failure, Mistake."""
    begins, ends = check_image(saved, image)
    try:
        with create_private(overlay) as file, saved.path.open("rb") as source:
            _copy(file, source, begins, ends)
    except OSError as error:
        raise Failure(f"{saved.path}: its disk cannot be copied to {overlay}: {error.strerror}") from None


def _copy(file: BinaryIO, source: BinaryIO, offset: int, end: int) -> None:
    """Adds a part of a file to another one. Raises OSError."""
    while offset < end:
        sent = os.sendfile(file.fileno(), source.fileno(), offset, end - offset)
        if not sent:
            raise OSError(errno.EIO, "it has become shorter")
        offset += sent


def write_as(saved: Saved, domain: str, path: Path) -> None:
    """Writes the same machine behind another domain. Raises Failure."""
    text = domain.encode() + b"\0"
    cookie = saved.cookie + b"\0" if saved.cookie else b""
    header = _HEADER.pack(_WHOLE, _VERSION, len(text) + len(cookie), 1, 0, len(text) if cookie else 0)
    try:
        with create_private(path) as file, saved.path.open("rb") as source:
            file.write(header + text + cookie)
            file.flush()
            _copy(file, source, saved.begins, saved.ends)
    except OSError as error:
        raise Failure(f"{saved.path}: cannot be copied to {path}: {error.strerror}") from None


def create_private(path: Path) -> BinaryIO:
    """A new file that only its owner can read. Raises OSError."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def domain_of(saved: Saved, setting: MachineSetting, *, copy: bool) -> str:
    """The domain of a machine that was saved, as it is to be here: with the saved one's kind of machine and buses, and
    unless it is a copy, its addresses. Nothing else is taken from a file that may be somebody else's.
    Raises Mistake where it is another machine than `setting` says."""
    return ElementTree.tostring(domain_like(saved.domain, setting, str(saved.path), copy=copy), encoding="unicode")


def domain_like(domain: str, setting: MachineSetting, where: str, *, copy: bool = False) -> ElementTree.Element:
    """The same of a machine that is in libvirt's words `where`."""
    was, here = ElementTree.fromstring(domain), ElementTree.fromstring(domain_xml(setting))
    for what, one, other in zip(_COMPARED, _compared(was), _compared(here), strict=True):
        if one != other:
            raise Mistake(f"{where}: is a machine with {what} ({one}) than this one ({other})")
    kind = was.find("os/type")
    if kind is None or not _KIND.fullmatch(kind.get("machine", "")):
        raise Mistake(f"{where}: is no machine of Tailrace's")
    here.find("os/type").set("machine", kind.get("machine", ""))  # type: ignore[union-attr]
    devices = here.find("devices")
    assert devices is not None
    for each in devices.findall("controller[@type='pci']"):
        devices.remove(each)
    devices.extend(was.findall("devices/controller[@type='pci']"))
    for old, new in zip(was.findall("devices/interface"), here.findall("devices/interface"), strict=True):
        mac = old.find("mac")
        if not copy and mac is not None:
            new.find("mac").set("address", mac.get("address", ""))  # type: ignore[union-attr]
    for old, new in zip(was.findall("devices/disk"), here.findall("devices/disk"), strict=True):
        new.extend(old.findall("address[@type='pci']"))
    return here


def _kind_of_port(port: ElementTree.Element) -> str:
    model, behind = port.find("model"), port.find("teaming") is not None
    kind = f"{port.get('type')} {'' if model is None else model.get('type')}"
    return f"{kind} behind a virtual function" if behind else kind


def _compared(domain: ElementTree.Element) -> tuple[str | int | None, ...]:
    """What makes it the machine that it is, by _COMPARED."""
    function = _FUNCTION.search(domain.findtext("os/cmdline", ""))
    ports = domain.findall("devices/interface")
    kinds = ", ".join(map(_kind_of_port, ports))
    words = function[1].replace(",", " ") if function else "none of Tailrace's"
    disks = len(domain.findall("devices/disk"))
    firmware = "bios" if domain.find("os/loader") is None else "uefi"
    return domain.get("type"), domain.findtext("memory"), domain.findtext("vcpu"), kinds, words, disks, firmware
