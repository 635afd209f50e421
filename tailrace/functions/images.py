"""What functions in containers and machines start from. Made of Tailrace's own programs and Debian's packages; the same
input gives the same bytes.

A container's image is a layer with the function's program and its libraries, in podman's store; it is made when it is
first needed. A machine's is a kernel and an initramfs, made by `tailrace image build`.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import lzma
import os
import re
import subprocess
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from tailrace.errors import Failure, Mistake
from tailrace.functions import agent
from tailrace.functions.disks import FORMATS, make_boot_disk
from tailrace.functions.program import (
    INTERRUPT_RECEIVER,
    NAME,
    PRIORITY_AGENT,
    RECORDER_PROGRAM,
    libraries,
    visible_libraries,
)
from tailrace.process.plain import last_line
from tailrace.process.programs import (
    find_system_program,
    finished,
    own_program,
    podman,
    portable_program,
    system_program,
)
from tailrace.state.folder import IMAGES

DEFAULT = "tailrace"
"""The machine image of Tailrace's own functions."""
KERNELS = {"cloud": "linux-image-cloud-amd64", "stock": "linux-image-amd64", "rt": "linux-image-rt-amd64"}
PROFILES = ("latency",)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TAKEN = ("disks", "kvm.json", "packages", "snapshots")
"""What is beside the images."""
_REPOSITORY = "localhost/tailrace-vnf"
_OF_A_BUILD = re.compile(rf"{_REPOSITORY}:[0-9a-f]{{16}}")
_KEPT_SECONDS = 3600.0
_MODULES = (
    "virtio_pci",
    "virtio_net",
    "uio_pci_generic",
    "e1000e",
    "vmxnet3",
    "igbvf",
    "ixgbevf",
    "iavf",
    "bridge",
    "vfio_pci",
    "vfio_iommu_type1",
)
DRIVERS = {"vhost-user": "virtio_net", "virtio": "virtio_net", "e1000e": "e1000e", "vmxnet3": "vmxnet3"}
"""Linux's drivers for interfaces of machines."""
DRIVER_FOR_PROGRAMS = "uio_pci_generic"
"""Gives a device to DPDK's drivers."""
_NETWORK_MODULES = ("tun", "8021q")
"""Of a router, whose routes are those of the kernel inside."""
_DISK_RUN = f"tailrace-vnf,skeleton,--mode,poll,--core,0,--memory,64,--huge,--commands,{agent.COMMANDS}"
_ELF = b"\x7fELF"
_PROGRAMS = ("ip", "ethtool")
_TUNING_PROGRAMS = ("chrt", "cyclictest")
"""Of these Debian's busybox has none, or one that can do less."""
_DISK_MODULES = ("virtio_blk", "vfat", "nls_cp437", "nls_ascii")
_ARGUMENTS = f"console=ttyS0 panic=-1 quiet tailrace.ports=any tailrace.pages=36 tailrace.run={_DISK_RUN}"
_SYSLINUX = f"""\
DEFAULT tailrace
SERIAL 0 115200
LABEL tailrace
 LINUX /vmlinuz
 INITRD /initramfs
 APPEND {_ARGUMENTS}
"""
_GRUB = f"""\
linux /vmlinuz {_ARGUMENTS}
initrd /initramfs
boot
"""
_MODULE_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")
_FORMAT = 2
"""1: nothing said what drivers its kernel has."""


@dataclass(frozen=True)
class Image:
    """A machine's image."""

    folder: Path
    kernel: str
    """Debian's package of it, with its version."""
    made_of: str
    """Identifies all that it was made of."""
    profile: str = ""
    """Of how it is tuned inside (functions/guest); empty: not at all."""
    programs: tuple[str, ...] = ()
    """Programs of the host that it was built with, by name."""
    drivers: tuple[str, ...] | None = None
    """Which of DRIVERS its kernel has, and DRIVER_FOR_PROGRAMS; None: nothing says."""

    @property
    def vmlinuz(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def initramfs(self) -> Path:
        return self.folder / "initramfs"

    @property
    def disk(self) -> Path:
        """The same as a disk, where it was built."""
        return self.folder / "disk.raw"


@dataclass(frozen=True)
class _Manifest:
    format: int
    kernel: str
    made_of: str
    digests: dict[str, str]
    """SHA-256 of each file."""
    profile: str = ""
    programs: tuple[str, ...] = ()
    drivers: tuple[str, ...] | None = None


def images_folder() -> Path:
    """Where machine images are kept."""
    chosen = os.environ.get(IMAGES)
    if chosen:
        return Path(chosen).absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/tailrace/images")
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "tailrace" / "images"


def is_image_name(name: str) -> bool:
    """Whether a machine's image may have this name: it is a folder's, and a disk of the user's has another."""
    return _NAME.fullmatch(name) is not None and name not in _TAKEN and not name.endswith(tuple(FORMATS))


def _folder_of(name: str) -> Path:
    """Where an image of this name is, or would be. Raises Mistake."""
    if not is_image_name(name):
        raise Mistake(
            f"{name!r} is no image's name; expected letters, digits, dots, hyphens and underscores, 64 at most, which "
            f"end in none of {', '.join(FORMATS)}, and none of {', '.join(_TAKEN)}"
        )
    return images_folder() / name


def machine_image(name: str = DEFAULT) -> Image:
    """A machine's image by name. Raises Mistake where there is none, or it is damaged or another version's."""
    folder = _folder_of(name)
    build = "build it with `tailrace image build`" if name == DEFAULT else f"build it: `tailrace image build {name}`"
    if not (folder / "image.json").exists():
        raise Mistake(f"there is no image {name!r} in {images_folder()}; {build}")
    return image_in(folder, build)


def image_in(folder: Path, build: str = "build it anew") -> Image:
    """The image in a folder; `build`: how it is had anew. Raises Mistake where it is damaged, or another version's."""
    try:
        manifest = TypeAdapter(_Manifest).validate_json((folder / "image.json").read_bytes())
    except (OSError, ValidationError):
        raise Mistake(f"{folder}/image.json: damaged; {build}") from None
    if manifest.format != _FORMAT:
        version = "an earlier" if manifest.format < _FORMAT else "a later"
        raise Mistake(f"{folder}: {version} version of Tailrace has built this image; {build}")
    for file, digest in manifest.digests.items():
        if _digest(folder / file) != digest:
            raise Mistake(f"{folder / file}: is not what was built (cut short, or changed since); {build}")
    return _image_of(folder, manifest)


def machine_images() -> list[Image]:
    """All machines' images that are whole."""
    found = []
    for manifest in sorted(images_folder().glob("*/image.json")):
        with suppress(Mistake):
            found.append(machine_image(manifest.parent.name))
    return found


def unusable_images() -> dict[str, str]:
    """Why each other of the machines' images cannot be used, by its name."""
    found = {}
    names = [manifest.parent.name for manifest in sorted(images_folder().glob("*/image.json"))]
    for name in filter(is_image_name, names):
        try:
            machine_image(name)
        except Mistake as mistake:
            found[name] = str(mistake)
    return found


@cache
def _digest_of(path: Path, changed: int, size: int) -> str:
    del changed, size
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(path: Path) -> str | None:
    """SHA-256 of a file; None where it is missing. One that has not changed is read once."""
    try:
        found = path.stat()
        return _digest_of(path, found.st_mtime_ns, found.st_size)
    except OSError:
        return None


# --- a container's -------------------------------------------------------------------------------------------------


def container_image() -> str:
    """The name of the image of Tailrace's functions in podman's store; makes it where it is not there yet, and removes
    those of earlier builds that no container has. Raises Failure, Mistake."""
    program = own_program(NAME)
    files = {f"/{NAME}": program, **by_name(visible_libraries(program, _PORTS))}
    stats = {name: found.stat() for name, found in sorted(files.items()) if isinstance(found, Path)}
    seen = [(name, found.st_size, found.st_mtime_ns) for name, found in stats.items()]
    image = f"{_REPOSITORY}:{hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]}"
    if podman_has(image):
        return image
    with tempfile.TemporaryDirectory(prefix="tailrace-image-") as folder:
        layer = Path(folder, "layer.tar")
        write_layer(layer, files)
        podman("import", "--quiet", "--change", f'ENTRYPOINT ["/{NAME}"]', str(layer), image)
    with suppress(Failure, Mistake, ValueError):  # the new one is there, whatever becomes of these
        _remove_older(image)
    return image


def _remove_older(image: str) -> None:
    """Removes the images of other builds, but for new ones, from which somebody may be about to start, and those that
    somebody has tagged. One whose age podman does not say stays. Raises Failure, ValueError."""
    found = json.loads(podman("images", "--filter", f"reference={_REPOSITORY}", "--format", "json"))
    before = time.time() - _KEPT_SECONDS
    ages = [(each, each.get("Created")) for each in found or ()]
    old = [each for each, made in ages if isinstance(made, (int, float)) and made < before]
    names = {name for each in old for name in each.get("Names") or ()} - {image}
    for name in sorted(filter(_OF_A_BUILD.fullmatch, names)):
        with suppress(Failure):  # a container has it: without force podman keeps it then
            podman("image", "rm", name)


_PORTS = ("vhost-server:",)


def podman_has(image: str) -> bool:
    """Whether an image is in podman's store. Raises Failure, Mistake where nothing can have such a name."""
    done = finished([system_program("podman"), "image", "exists", image])
    if "reference format" in done.stderr or "must be lowercase" in done.stderr:
        why = last_line(done.stderr).removeprefix("Error: ")
        raise Mistake(f"no image has the name {image} ({why}); expected one such as localhost/fw:3")
    if done.returncode not in (0, 1):
        raise Failure(f"podman: {last_line(done.stderr)}")
    return done.returncode == 0


def architecture(image: str) -> str:
    """The architecture of an image in podman's store. Raises Failure."""
    return podman("image", "inspect", "--format", "{{.Architecture}}", image).strip()


_REFERENCE = re.compile(r"(?:[\w.-]+(?::\d+)?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*(?::\w[\w.-]{0,127})?", re.ASCII)
"""The name of an image (https://github.com/distribution/reference)."""


def import_root(archive: Path, name: str, entry: Sequence[str]) -> str:
    """Makes an image of a root filesystem, such as LXC's, in a tar archive; `entry` is what it starts. Returns the
    image's name. Raises Failure, Mistake."""
    if not archive.is_file():
        raise Mistake(f"{archive}: there is no such file; expected a tar archive of a root filesystem")
    if _is_empty(archive):
        raise Mistake(f"{archive}: nothing is in it; expected a tar archive of a root filesystem")
    if not _REFERENCE.fullmatch(name):  # podman would say so when it has made the image, and keep that without a name
        raise Mistake(f"{name}: no image has such a name; expected one in lower case, such as localhost/fw:3")
    start = f"ENTRYPOINT {json.dumps(list(entry))}"
    try:
        podman("import", "--quiet", "--change", start, str(archive), name, seconds=600)
    except Failure as error:
        why = str(error).rpartition("Error: ")[2]
        if "processing tar file" in why:
            raise Mistake(f"{archive}: podman cannot unpack it ({why}); expected a whole tar archive") from None
        raise
    return name


def _is_empty(archive: Path) -> bool:
    """Whether a file has nothing in it, or is an archive that has not. What only podman can unpack has something."""
    try:
        with tarfile.open(archive) as opened:
            return opened.next() is None
    except (tarfile.TarError, EOFError, OSError, lzma.LZMAError, zlib.error):
        return archive.stat().st_size == 0


def by_name(libraries: Iterable[Path]) -> dict[str, Path | str]:
    """Libraries by all of their names: the file, or where the name leads. One file under two names would be two drivers
    to DPDK."""
    found: dict[str, Path | str] = {}
    for each in libraries:
        real = each.resolve()
        found[str(real)] = real
        if real != each:
            found[str(each)] = str(real)
    return found


def write_layer(path: Path, files: Mapping[str, Path | str]) -> None:
    """A tar archive of files, and of links to where they lead, by their names in it: the same for the same files."""
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, source in sorted(files.items()):
            entry = tarfile.TarInfo(name.lstrip("/"))
            if isinstance(source, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, source
                archive.addfile(entry)
                continue
            entry.size, entry.mode = source.stat().st_size, 0o755
            with source.open("rb") as file:
                archive.addfile(entry, file)


# --- a machine's ---------------------------------------------------------------------------------------------------


def build_machine_image(
    name: str = DEFAULT,
    kernel: str = "cloud",
    *,
    disk: bool = False,
    profile: str = "",
    programs: Sequence[str] = (),
) -> Image:
    """Makes a machine's image with the functions' program; `kernel` is one of KERNELS; `disk`: as a disk too, whose
    skeleton forwards between its first two ports; `profile`: how it is tuned inside, one of PROFILES; `programs`: of
    this host, which it has too, with their libraries. Raises Failure, Mistake."""
    folder = _folder_of(name)
    program = portable_program(NAME)
    own = [portable_program(each) for each in (INTERRUPT_RECEIVER, RECORDER_PROGRAM)]
    with suppress(Mistake):  # it is built where clang and libbpf are
        own.append(portable_program(PRIORITY_AGENT))
    wanted = dict.fromkeys((*_PROGRAMS, *(_TUNING_PROGRAMS if profile else ()), *programs))
    more = [_program(each) for each in wanted]
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise Mistake(f"{folder}: {error.strerror}; run as root, or set {IMAGES} to another folder") from None
    package = _package(_kernel_package(KERNELS[kernel]))
    busybox = _package("busybox-static")
    files: dict[str, bytes | str] = {f"/usr/bin/{NAME}": program.read_bytes()}
    for path, found in by_name(visible_libraries(program, ("pci:",))).items():
        files[path] = found if isinstance(found, str) else found.read_bytes()
    for each in (*own, *more):
        for path, found in {f"/usr/bin/{each.name}": each, **by_name(libraries(each))}.items():
            files[path] = found if isinstance(found, str) else found.read_bytes()
    files["/init"] = (Path(__file__).parent / "guest" / "init").read_bytes()
    with _unpacked(busybox) as archive:
        files["/bin/busybox"] = _member(archive, r"\./(usr/)?bin/busybox")
    with _unpacked(package) as archive:
        vmlinuz = _member(archive, r"\./boot/vmlinuz-.*")
        modules = _modules(archive, (*_MODULES, *(_DISK_MODULES if disk else ())))
        network = _modules(archive, _NETWORK_MODULES)
        drivers = _drivers(archive, modules)
    files |= {f"/lib/modules/{each}.ko": data for each, data in (modules | network).items()}
    for name, order in (("order", list(modules)), ("network", [each for each in network if each not in modules])):
        files[f"/lib/modules/{name}"] = "".join(f"/lib/modules/{each}.ko\n" for each in order).encode()
    image = store(folder, package.stem, {"vmlinuz": vmlinuz, "initramfs": cpio(files)}, profile, programs, drivers)
    if disk:
        with _unpacked(_package("grub-efi-amd64-bin")) as archive:
            _store_disk(image, _member(archive, r"\./usr/lib/grub/x86_64-efi/monolithic/grubx64\.efi"))
    return image


def _program(name: str) -> Path:
    """A program of this host by its name or path. Raises Mistake."""
    if "/" in name and not find_system_program(name):
        raise Mistake(f"{name}: there is no program; expected one of this host, such as stress-ng")
    path = Path(system_program(name))
    with path.open("rb") as file:
        if file.read(len(_ELF)) != _ELF:
            raise Mistake(f"{name}: {path} is a script, and what runs it would be missing inside; expected a program")
    return path


def _store_disk(image: Image, loader: bytes) -> None:
    """`loader` is what UEFI starts."""
    new = image.disk.with_suffix(".new")
    files: dict[str, Path | bytes] = {"vmlinuz": image.vmlinuz, "initramfs": image.initramfs}
    files["syslinux.cfg"] = _SYSLINUX.encode()
    files["EFI/BOOT/BOOTX64.EFI"] = loader
    files["EFI/debian/grub.cfg"] = _GRUB.encode()  # where Debian's looks
    try:
        make_boot_disk(new, files)
        new.chmod(0o644)
        new.replace(image.disk)
    except OSError as error:
        raise Failure(f"{image.disk}: {error.strerror}; make room there and try again") from None
    finally:
        new.unlink(missing_ok=True)


def store(
    folder: Path,
    kernel: str,
    files: Mapping[str, bytes],
    profile: str = "",
    programs: Sequence[str] = (),
    drivers: Sequence[str] | None = None,
) -> Image:
    """Puts an image's files into its folder; it is one when the last of them, image.json, is there. Raises Failure."""
    for name, data in files.items():
        _write(folder / name, data)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    made_of = hashlib.sha256(json.dumps([digests, profile], sort_keys=True).encode()).hexdigest()[:16]
    of_kernel = None if drivers is None else tuple(drivers)
    manifest = _Manifest(_FORMAT, kernel, made_of, digests, profile, tuple(programs), of_kernel)
    _write(folder / "image.json", (json.dumps(asdict(manifest), indent=1) + "\n").encode())
    return _image_of(folder, manifest)


def _image_of(folder: Path, manifest: _Manifest) -> Image:
    return Image(
        folder, manifest.kernel, manifest.made_of, manifest.profile, manifest.programs, drivers=manifest.drivers
    )


def _write(path: Path, data: bytes) -> None:
    new = path.with_name(f"{path.name}.new")
    try:
        new.write_bytes(data)
        new.chmod(0o644)
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise Failure(f"{path}: {error.strerror}; make room there and try again") from None


def _run(*words: str, folder: Path | None = None) -> str:
    done = finished(words, 600.0, folder=folder)
    if done.returncode != 0:
        raise Failure(f"{' '.join(words)}: {last_line(done.stderr)}")
    return done.stdout


def _kernel_package(name: str) -> str:
    """The package with the kernel's files that a name without a version stands for."""
    found = re.search(r"^ *Depends: *(linux-image-\d\S*)", _run("apt-cache", "depends", name), re.MULTILINE)
    if found is None:
        raise Failure(f"apt knows no kernel {name}; run `apt-get update`")
    return found[1]


def _package(name: str) -> Path:
    """The file of one of Debian's packages, in the version that apt would install; downloaded once."""
    folder = images_folder() / "packages"
    folder.mkdir(exist_ok=True)
    version = re.search(r"^ *Candidate: *(\S+)$", _run("apt-cache", "policy", name), re.MULTILINE)
    if version is None or version[1] == "(none)":
        raise Failure(f"apt knows no package {name}; run `apt-get update`")
    file = folder / f"{name}_{version[1].replace(':', '%3a')}_amd64.deb"
    if not file.exists():
        for old in folder.glob(f"{name}_*.deb"):
            old.unlink()
        # As who runs this, and not as apt's own user, who may not write here.
        _run("apt-get", "-o", "APT::Sandbox::User=", "download", "-qq", name, folder=folder)
    return file


class _unpacked:
    """The files of a package."""

    def __init__(self, package: Path) -> None:
        self._file = tempfile.TemporaryFile(prefix="tailrace-image-")  # noqa: SIM115 - closed at the end
        done = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=self._file, timeout=600, check=False)
        if done.returncode != 0:
            self._file.close()
            package.unlink(missing_ok=True)
            raise Failure(f"{package}: is no whole package and was removed; try again")

    def __enter__(self) -> tarfile.TarFile:
        self._file.seek(0)
        self._archive = tarfile.open(fileobj=self._file)
        return self._archive

    def __exit__(self, *_: object) -> None:
        self._archive.close()
        self._file.close()


def _member(archive: tarfile.TarFile, pattern: str) -> bytes:
    """The contents of the one file of this name. Raises Failure."""
    for entry in archive.getmembers():
        if entry.isfile() and re.fullmatch(pattern, entry.name):
            file = archive.extractfile(entry)
            assert file is not None
            return file.read()
    raise Failure(f"a package of Debian's has no file {pattern}")


def _modules(archive: tarfile.TarFile, names: Iterable[str]) -> dict[str, bytes]:
    """The kernel's modules of these names, each after those that it needs. What is not there is a
    part of the kernel, or of another one."""
    found = {
        Path(entry.name).name.partition(".")[0].replace("-", "_"): entry
        for entry in archive.getmembers()
        if re.search(r"\.ko(\.xz)?$", entry.name)
    }
    wanted: dict[str, bytes] = {}

    def add(name: str) -> None:
        entry = found.get(name)
        if entry is None or name in wanted:
            return
        file = archive.extractfile(entry)
        assert file is not None
        data = file.read()
        if entry.name.endswith(".xz"):
            data = lzma.decompress(data)
        depends = _MODULE_DEPENDS.search(data)
        for each in filter(None, depends[1].decode().split(",") if depends else ()):
            add(each.replace("-", "_"))
        wanted[name] = data

    for name in names:
        add(name)
    return wanted


def _drivers(archive: tarfile.TarFile, modules: Iterable[str]) -> list[str]:
    """The drivers of machines' interfaces that a kernel has: as one of these modules, or in itself."""
    inside = _member(archive, r"\./(usr/)?lib/modules/[^/]+/modules\.builtin").decode().split()
    has = {*modules, *(Path(each).stem.replace("-", "_") for each in inside)}
    return sorted({*DRIVERS.values(), DRIVER_FOR_PROGRAMS} & has)


def cpio(files: Mapping[str, bytes | str]) -> bytes:
    """An archive as the kernel unpacks it: files, and links to where they lead, by their whole names, all executable,
    with the folders above them.

    Source: Documentation/driver-api/early-userspace/buffer-format.rst.
    """
    folders = {str(above)[1:] for name in files for above in Path(name).parents if str(above) != "/"}
    entries: list[tuple[str, int, bytes]] = [(name, 0o040755, b"") for name in folders]
    for name, data in files.items():
        entries.append((name[1:], 0o120777, data.encode()) if isinstance(data, str) else (name[1:], 0o100755, data))
    out = io.BytesIO()
    for number, (name, mode, data) in enumerate([*sorted(entries), ("TRAILER!!!", 0, b"")], 1):
        _add_entry(out, number, name, mode, data)
    return out.getvalue()


def _add_entry(out: io.BytesIO, number: int, name: str, mode: int, data: bytes) -> None:
    fields: Iterable[int] = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    out.write(b"070701" + b"".join(f"{field:08X}".encode() for field in fields) + name.encode() + b"\0")
    out.write(b"\0" * (-out.tell() % 4))
    out.write(data)
    out.write(b"\0" * (-out.tell() % 4))
