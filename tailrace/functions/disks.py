"""Disks that machines boot from: an image of the user's is looked at, and never written to. What the machine writes
goes to an overlay, which ends with it; what it is told at its first boot is a second disk (cloud-init's NoCloud).

A disk may come from anywhere, so root does not read it, and it is read in no other format than its name says. Each
machine's QEMU is a user of its own, so that no machine reaches the files of another.
Sources: QEMU's docs/interop/qcow2.txt; the UEFI specification 2.10, 5.2 and 5.3 (partition tables); cloud-init's
documentation of NoCloud.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import stat
import struct
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tailrace.errors import Failure, Mistake
from tailrace.functions.loaders import OURS, foreign_loaders
from tailrace.kernel.acl import grant
from tailrace.process.plain import last_line
from tailrace.process.programs import finished, system_program
from tailrace.state.numbers import NUMBERS
from tailrace.state.record import Admitted, State

FORMATS = {".qcow2": "qcow2", ".raw": "raw"}
"""Of images, by how their names end."""
_SECTOR = 512
_CODE = 440
_TABLE = struct.Struct("<B3xB3xII")
"""An entry of a PC's partition table: active, type, first sector, number of sectors."""
_PROTECTIVE, _EFI_SYSTEM = 0xEE, 0xEF
"""Types of partitions: all of a disk that has a GPT; what UEFI boots from."""
UEFI_CODE, _UEFI_VARIABLES = Path("/usr/share/OVMF/OVMF_CODE_4M.fd"), Path("/usr/share/OVMF/OVMF_VARS_4M.fd")
"""Of the package ovmf: the firmware, and what it keeps about a machine before its first boot."""
_SEED_KIB = 512
_LEAST_DISK = 48 << 20
"""Bytes for which mtools and SYSLINUX agree about the kind of FAT."""
_USER = "libvirt-qemu"
_QCOW2 = b"QFI\xfb"
_QCOW2_HEADER = struct.Struct(">4sI12xI24xQI36xI")
"""Magic, version, bits of a cluster's size, where the table of references is and its clusters, bits of a counter's."""
_MOST_REFERENCES = 8 << 20
"""Bytes of that table that QEMU opens (QCOW_MAX_REFTABLE_SIZE)."""
DISK_PROGRAMS = ("setpriv", "qemu-img", "qemu-io")
"""What reads a disk."""


def machine_user(group: int) -> int:
    """The number of the user that the QEMU of a machine with this group runs as: the machine's own, so that one that
    was broken out of reaches no other's files. Where machines have no numbers of their own (the state folder is closed
    to others), libvirt's for all. Raises Mistake."""
    return group if group in NUMBERS else qemu_user()


def admit(state: State, of: str, path: Path, user: int, permissions: int) -> None:
    """Lets the user of an instance's machine, on record first, use a file of the host's that is not open to all: 4 to
    read, 2 to write, 1 to pass. Raises Mistake."""
    try:
        if path.stat().st_mode & permissions == permissions:
            return
        state.add(Admitted(str(path), of, user))
        grant(path, "user", user, permissions)
    except OSError as error:
        raise Mistake(
            f"{path}: cannot be opened to user {user}, who is the QEMU of {of} ({error.strerror}); where its file "
            "system keeps no lists of users (acl), open it to all"
        ) from None


def qemu_user() -> int:
    """The number of the user that libvirt's QEMU runs as unless it is told another. Raises Mistake."""
    try:
        return pwd.getpwnam(_USER).pw_uid
    except KeyError:
        raise Mistake(f"there is no user {_USER}, which Debian's libvirt makes: run `scripts/setup machines`") from None


def disk_format(image: Path) -> str:
    """The format of a disk image, as its name says. Raises Mistake."""
    try:
        return FORMATS[image.suffix]
    except KeyError:
        raise Mistake(f"{image}: expected a name that ends in {' or '.join(FORMATS)}") from None


def check_disk(image: Path, user: int, firmware: str | None = None, *, whole: bool = True) -> str:
    """The firmware by which QEMU, as its user, boots a PC from a disk image, as far as the file shows it: bios or uefi;
    `firmware`: it has to be this one; `whole`: all that says where its data are is read, which takes long of a large
    image; its length is always held against that. Raises Mistake, Failure."""
    kind = _kind_of(image)
    closed = next((path for path in image.resolve().parents if not path.stat().st_mode & stat.S_IXOTH), None)
    if closed is not None and user != os.geteuid():
        raise Mistake(
            f"{image}: {closed} is closed to others, and each machine's QEMU is a user of its own; "
            f"`chmod o+x {closed}`, or put it elsewhere"
        )
    found = json.loads(_qemu(user, image, "qemu-img", "info", "--output=json", "-f", kind, str(image)))
    details = found.get("format-specific", {}).get("data", {})
    other = found.get("backing-filename") or details.get("data-file")
    if other:
        raise Mistake(f"{image}: needs another file ({other}); make it whole with `qemu-img convert -O qcow2`")
    if kind == "qcow2":
        _check_length(image)
    if kind == "qcow2" and whole:
        checked = json.loads(_qemu(user, image, "qemu-img", "check", "--output=json", "-f", kind, str(image)))
        if checked.get("corruptions"):
            raise Mistake(f"{image}: is damaged; `qemu-img check` says where")
    size = int(found["virtual-size"])
    begin = _read(user, image, kind, 0, 2 * _SECTOR) if size >= 2 * _SECTOR else b""
    firmware = firmware or _firmware(begin)
    why_not = boots_not(begin, size, firmware)
    if why_not is not None:
        raise Mistake(f"{image}: {why_not}")
    if firmware == "uefi":

        def read(at: int, count: int) -> bytes:
            return _read(user, image, kind, at, min(count, size - at)) if at < size and count else b""

        others = foreign_loaders(begin, read)
        if others:
            raise Mistake(f"{image}: is for another architecture: UEFI finds {', '.join(others)}, and not {OURS}")
    return firmware


def check_beginning(image: Path) -> None:
    """What a disk image's first bytes show, for where nothing is there that reads more. Raises Mistake."""
    kind = _kind_of(image)
    try:
        with image.open("rb") as file:
            begin = file.read(2 * _SECTOR)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise Mistake(f"{image}: {error.strerror}") from None
    if kind == "qcow2":
        why_not = None if begin.startswith(_QCOW2) else "cannot be read as qcow2 (it does not begin as one)"
        if why_not is None:
            _check_length(image)
    else:
        why_not = boots_not(begin, size, _firmware(begin))
    if why_not is not None:
        raise Mistake(f"{image}: {why_not}")


def _check_length(image: Path) -> None:
    """Whether a qcow2 image is as long as its tables say, of which three places are read, however large it is. What is
    not as QEMU's own are says nothing here: `qemu-img` refuses it. Raises Mistake.

    Source: docs/interop/qcow2.txt, header and "Host cluster management"."""
    try:
        with image.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = file.read(_QCOW2_HEADER.size)
            if len(header) < _QCOW2_HEADER.size:
                raise Mistake(f"{image}: is cut short: {size} bytes hold no header")
            _, version, bits, table, clusters, order = _QCOW2_HEADER.unpack(header)
            order = order if version >= 3 else 4
            if not (9 <= bits <= 21 and order <= 6 and clusters << bits <= _MOST_REFERENCES):
                return
            file.seek(table)
            blocks = file.read(clusters << bits)
            tables = end = table + (clusters << bits)
            if len(blocks) == clusters << bits:
                each = next((at for at in range(len(blocks) - 8, -1, -8) if any(blocks[at : at + 8])), None)
                if each is not None:
                    (block,) = struct.unpack_from(">Q", blocks, each)
                    file.seek(block)
                    counts = file.read(1 << bits)
                    tables = end = max(end, block + (1 << bits))
                    if len(counts) == 1 << bits and (used := counts.rstrip(b"\0")):
                        last = len(used) * 8 - (1 if order >= 3 else 9 - used[-1].bit_length()) >> order
                        end = max(end, ((each // 8 << bits + 3 - order) + last + 1) << bits)
    except PermissionError:  # QEMU's user may; root may not on every network's file system
        return
    except (OSError, OverflowError) as error:
        raise Mistake(f"{image}: cannot be read as qcow2 ({error})") from None
    # Of one that is compressed the last cluster ends where its data do.
    if tables > size or end - size >= 1 << bits:
        raise Mistake(f"{image}: is cut short ({size} of {end} bytes)")


def _kind_of(image: Path) -> str:
    """The format of a disk image that is there. Raises Mistake."""
    kind = disk_format(image)
    if not image.is_file():
        raise Mistake(f"{image}: {'is no file' if image.exists() else 'there is no such file'}")
    return kind


def _firmware(begin: bytes) -> str:
    """By which a PC boots from a disk that begins so, if it does."""
    return "bios" if any(begin[:_CODE]) else "uefi"


def boots_not(begin: bytes, size: int, firmware: str) -> str | None:
    """Why a PC's firmware, bios or uefi, does not boot from a disk that begins so and has so many bytes; None: it
    may."""
    if begin[510:512] != b"\x55\xaa":
        return "is no disk that boots: its first sector has no signature"
    entries = [_TABLE.unpack_from(begin, 446 + 16 * number) for number in range(4)]
    if firmware == "bios" and not any(begin[:_CODE]):
        return "a PC's BIOS cannot boot from it: there is no boot code; expected `firmware: uefi`, or another image"
    if firmware == "uefi" and not any(kind in (_PROTECTIVE, _EFI_SYSTEM) for _, kind, _, _ in entries):
        return "no PC boots from it: there is neither boot code for a BIOS nor a partition for UEFI"
    end = max((first + count for _, kind, first, count in entries if kind not in (0, _PROTECTIVE)), default=0)
    if begin[512:520] == b"EFI PART":
        end = struct.unpack_from("<Q", begin, 512 + 32)[0] + 1  # the second table, in the last sector
    if end * _SECTOR > size:
        return f"is cut short: its partitions end at {end * _SECTOR} bytes, and it has {size}"
    return None


def make_overlay(image: Path, overlay: Path, user: int) -> None:
    """Makes an empty overlay on a disk image, for a machine's user alone. Raises Failure."""
    words = ["create", "-q", "-f", "qcow2", "-F", disk_format(image), "-b", str(image), str(overlay)]
    _run(["qemu-img", *words])
    _give(overlay, user)


def make_variables(path: Path, user: int) -> None:
    """Makes what UEFI keeps about a machine, for its user alone. Raises Mistake, OSError."""
    for each in (UEFI_CODE, _UEFI_VARIABLES):
        if not each.exists():
            raise Mistake(f"{each} is missing, by which the image boots: run `scripts/setup machines`")
    shutil.copyfile(_UEFI_VARIABLES, path)
    _give(path, user)


def check_overlay(overlay: Path, user: int) -> None:
    """Gives an overlay that a saved machine has written to its user, unless QEMU would read another file of the
    host's by it: what is beneath it libvirt says. Raises Mistake."""
    _give(overlay, user)
    found = json.loads(_qemu(user, overlay, "qemu-img", "info", "--output=json", "-f", "qcow2", str(overlay)))
    if found.get("format-specific", {}).get("data", {}).get("data-file"):
        raise Mistake(f"{overlay}: needs another file, so it was not made by Tailrace")


def let_read(image: Path, user: int) -> None:
    """Lets QEMU's user, and nobody else but root, read a disk image that is root's."""
    if os.geteuid() == 0:
        image.chmod(0o400)
        os.chown(image, user, -1)


def _give(path: Path, user: int) -> None:
    path.chmod(0o600)
    os.chown(path, user, -1)


def seed_files(
    machine_id: str, hostname: str, addresses: Mapping[str, str], user_data: bytes | None = None
) -> dict[str, bytes]:
    """What a machine is told at its first boot, by the files' names: who it is, and for each MAC address the IP address
    (10.0.0.1/24) of that interface. JSON is YAML."""
    # Without set-name, cloud-init writes files of ifupdown's and networkd's that are for interfaces of these names, and
    # gives no interface such a name.
    names = {f"port{number}": mac for number, mac in enumerate(addresses)}
    ethernets = {
        name: {
            "match": {"macaddress": mac},
            "set-name": name,
            **({"addresses": [addresses[mac]]} if addresses[mac] else {"optional": True}),
        }
        for name, mac in names.items()
    }
    files: dict[str, object] = {
        "meta-data": {"instance-id": machine_id, "local-hostname": hostname},
        "network-config": {"version": 2, "ethernets": ethernets},
    }
    seed = {name: (json.dumps(each, indent=1) + "\n").encode() for name, each in files.items()}
    return seed | {"user-data": user_data if user_data is not None else b"#cloud-config\n{}\n"}


def make_seed(path: Path, files: Mapping[str, bytes], user: int) -> None:
    """Makes the disk with these files for a machine's user alone: a FAT file system called CIDATA. Raises Failure."""
    with tempfile.TemporaryDirectory(prefix="tailrace-seed-") as folder:
        for name, data in files.items():
            Path(folder, name).write_bytes(data)
        kib = max(_SEED_KIB, 2 * sum(len(data) for data in files.values()) >> 10)
        path.write_bytes(b"")
        os.truncate(path, kib << 10)
        _run(["mformat", "-i", str(path), "-v", "CIDATA", "-N", "0", "-T", str(kib * 2), "-h", "2", "-s", "9", "::"])
        _run(["mcopy", "-i", str(path), *(str(Path(folder, name)) for name in files), "::/"])
        _give(path, user)


def make_boot_disk(path: Path, files: Mapping[str, Path | bytes]) -> None:
    """Makes a disk that a PC boots from by its BIOS and SYSLINUX, or by UEFI: one FAT partition with these files, by
    their paths, among them syslinux.cfg, and for UEFI EFI/BOOT/BOOTX64.EFI. The same files give the same bytes. Raises
    Failure."""
    with tempfile.TemporaryDirectory(prefix="tailrace-disk-") as folder:
        for name, data in files.items():
            copy = Path(folder, name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(data if isinstance(data, bytes) else data.read_bytes())
        sources = sorted(str(each) for each in Path(folder).iterdir())
        used = sum(each.stat().st_size for each in Path(folder).rglob("*") if each.is_file())
        sectors = max(used + used // 16 + (4 << 20), _LEAST_DISK) // _SECTOR
        first = 2048
        table = _TABLE.pack(0x80, _EFI_SYSTEM, first, sectors)
        code = _boot_code()
        with path.open("wb") as file:
            file.write(code.ljust(446, b"\0") + table.ljust(64, b"\0") + b"\x55\xaa")
            file.truncate((first + sectors) * _SECTOR)
        image = f"{path}@@{first * _SECTOR}"
        geometry = ["-T", str(sectors), "-h", "255", "-s", "63", "-H", str(first)]
        _run(["mformat", "-i", image, *geometry, "-N", "0", "-v", "TAILRACE", "::"])
        _run(["mcopy", "-s", "-i", image, *sources, "::/"])
        _run(["syslinux", "--install", "--offset", str(first * _SECTOR), str(path)])


def _boot_code() -> bytes:
    """What the BIOS starts from the first sector, of the package syslinux-common."""
    path = Path("/usr/lib/syslinux/mbr/mbr.bin")
    try:
        return path.read_bytes()
    except OSError:
        raise Mistake(f"{path} is missing: run `scripts/setup machines`") from None


def _run(words: Sequence[str]) -> str:
    """Runs a program of the system; files that it makes are always of the same time. Raises Failure, also where it
    takes a minute."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "0", "MTOOLS_SKIP_CHECK": "1", "TZ": "UTC", "LC_ALL": "C"}
    command = [system_program(words[0]), *words[1:]]
    done = finished(command, environment=environment)
    if done.returncode != 0:
        raise Failure(f"{words[0]}: {last_line(done.stderr, f'status {done.returncode}')}")
    return done.stdout


def _qemu(user: int, image: Path, program: str, *words: str) -> str:
    """What one of QEMU's programs prints of an image, as QEMU's user. Raises Mistake; Late after a minute."""
    before = [system_program("setpriv"), f"--reuid={user}", "--regid=65534", "--clear-groups", "--"]
    command = [*(before if os.geteuid() == 0 else []), system_program(program), *words]
    done = finished(command, folder=Path("/"))
    # 3: clusters that nothing uses, which are no damage; 2: damage, which is also in what it prints.
    if done.returncode not in (0, 2, 3) or not done.stdout.strip():
        said = last_line(done.stderr, f"status {done.returncode}")
        said = re.sub(rf"^{re.escape(program)}: |Could not open '[^']*': ", "", said)
        cure = f"; QEMU runs as user {user}, who must be able to read it" if "ermission" in said else ""
        raise Mistake(f"{image}: cannot be read as {disk_format(image)} ({said}){cure}")
    return done.stdout


def _read(user: int, image: Path, kind: str, at: int, count: int) -> bytes:
    """Bytes of the disk that an image is. Raises Mistake."""
    shown = _qemu(user, image, "qemu-io", "-r", "-f", kind, "-c", f"read -v {at} {count}", str(image))
    lines = re.findall(r"^[0-9a-f]{8,}: +((?:[0-9a-f]{2} +){1,16})", shown, re.MULTILINE)
    return bytes.fromhex("".join(lines))
