"""A machine in one file: written, taken over, and refused where it is not what was written."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest
from test_saved import with_disk, write

from tailrace.errors import Failure, Mistake
from tailrace.functions import images, parcel, saved
from tailrace.process import hypervisor

FUNCTION = {"kind": "skeleton", "runs": "machine", "memory": "256MiB"}


@pytest.fixture
def exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that was exported, on a host that has no image."""
    monkeypatch.setenv("TAILRACE_IMAGES", str(tmp_path / "there"))
    made = tmp_path / "there" / "tailrace"
    made.mkdir(parents=True)
    images.store(made, "linux-image-6.1", {"vmlinuz": b"kernel", "initramfs": b"files"})
    monkeypatch.setattr(saved, "save", lambda _, path, **__: write(path, "<domain/>").stat().st_size)
    file = tmp_path / "first.tar"
    assert parcel.export("first", FUNCTION, "tailrace-first", file) == file.stat().st_size
    assert file.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("TAILRACE_IMAGES", str(tmp_path / "here"))
    return file


def test_a_state_that_cannot_be_saved_is_told_of_the_file_that_was_asked_for(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise Failure("libvirt does not save it: no space is left")

    monkeypatch.undo()
    monkeypatch.setenv("TAILRACE_IMAGES", str(tmp_path / "there"))
    monkeypatch.setattr(hypervisor, "machine_xml", lambda _: "<domain><devices/></domain>")
    monkeypatch.setattr(hypervisor, "save", full)
    file = exported.with_name("second.tar")
    with pytest.raises(Failure, match=rf"^{file}: libvirt does not save it: no space is left.*nothing was written$"):
        parcel.export("second", FUNCTION, "tailrace-second", file)
    assert not file.exists()


def left(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.rglob("*") if each.is_file())


def test_a_machine_comes_with_its_state_and_image(exported: Path, tmp_path: Path) -> None:
    made = parcel.import_(exported, tmp_path / "first.state")
    assert made.parcel.function == FUNCTION and made.new_image
    assert saved.read(tmp_path / "first.state").domain == "<domain/>"
    assert images.machine_image("tailrace").kernel == "linux-image-6.1"
    assert not parcel.import_(exported, tmp_path / "again.state").new_image


def test_nothing_is_replaced(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(Mistake, match="mine: is there already"):
        parcel.import_(exported, tmp_path / "mine")
    with pytest.raises(Mistake, match=r"first.tar: is there already"):
        parcel.export("first", FUNCTION, "tailrace-first", exported)
    other = tmp_path / "here" / "tailrace"
    other.mkdir(parents=True)
    images.store(other, "linux-image-7", {"vmlinuz": b"other", "initramfs": b"files"})
    with pytest.raises(Mistake, match="is another image of this name"):
        parcel.import_(exported, tmp_path / "first.state")
    assert (tmp_path / "mine").read_text() == "mine" and not (tmp_path / "first.state").exists()


@pytest.fixture
def with_its_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that was exported with its disk."""
    image = tmp_path / "there" / "my disk.raw"
    image.parent.mkdir()
    image.write_bytes(b"a disk")
    monkeypatch.setattr(parcel, "qemu_user", os.geteuid)

    def save(_: str, path: Path, wanted: Path) -> None:
        assert wanted == tmp_path / "fw.tar"
        with_disk(write(path, "<domain/>"), image, b"written")

    monkeypatch.setattr(saved, "save", save)
    parcel.export("fw", {"runs": "machine", "image": str(image)}, "tailrace-fw", tmp_path / "fw.tar")
    return tmp_path / "fw.tar"


def test_a_machine_comes_with_its_disk_as_it_was(with_its_disk: Path, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    made = parcel.import_(with_its_disk, here / "fw.state")
    assert made.image == here / "fw.raw" and made.image.read_bytes() == b"a disk"
    assert made.parcel.function == {"runs": "machine", "image": str(made.image)}
    saved.take_disk(saved.read(made.state), made.image, here / "overlay")
    assert (here / "overlay").read_bytes() == b"written"
    with pytest.raises(Mistake, match=r"fw.raw: is there already"):
        parcel.import_(with_its_disk, here / "again.state")
    assert left(here) == ["fw.raw", "fw.state", "overlay"]


def test_a_disk_that_is_not_the_one_of_its_state_is_refused(
    with_its_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = members(with_its_disk)
    about = json.loads(whole["machine.json"])
    other = {**about, "digests": {**about["digests"], "image/disk": hashlib.sha256(b"other").hexdigest()}}
    here = tmp_path / "here"
    here.mkdir()
    for contents, said in (
        ({**whole, "image/disk": b"A disk"}, "image/disk is damaged"),
        ({**whole, "image/disk": b"other", "machine.json": json.dumps(other).encode()}, "is not the one of its state"),
        ({**whole, "machine.json": whole["machine.json"].replace(b'"fw.raw"', b'"../fw.raw"')}, "is damaged"),
        ({**whole, "machine.json": whole["machine.json"].replace(b'"format": 2', b'"format": 1')}, "is damaged"),
    ):
        with pytest.raises(Mistake, match=said):
            parcel.import_(pack(tmp_path / "bad.tar", contents), here / "fw.state")
    assert left(here) == []
    image = tmp_path / "there" / "my disk.raw"

    def written_meanwhile(_: str, path: Path, wanted: Path) -> None:
        assert wanted == tmp_path / "other.tar"
        with_disk(write(path, "<domain/>"), image, b"written")
        image.write_bytes(b"another disk")

    monkeypatch.setattr(saved, "save", written_meanwhile)
    with pytest.raises(Mistake, match=r"my disk.raw: is not as it was"):
        parcel.export("fw", {"runs": "machine", "image": str(image)}, "tailrace-fw", tmp_path / "other.tar")
    assert not (tmp_path / "other.tar").exists()


def members(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as archive:
        return {each.name: archive.extractfile(each).read() for each in archive}  # type: ignore[union-attr]


def pack(file: Path, contents: dict[str, bytes]) -> Path:
    with tarfile.open(file, "w") as archive:
        for name, data in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return file


def test_what_is_not_what_was_exported_is_refused_and_nothing_is_left(exported: Path, tmp_path: Path) -> None:
    whole = members(exported)
    bad = tmp_path / "bad"
    bad.mkdir()
    for contents, said in (
        ({**whole, "machine.state": whole["machine.state"][:-1] + b"x"}, "machine.state is damaged"),
        ({**whole, "../escape": b"x"}, "does not belong there"),
        ({key: each for key, each in whole.items() if key != "image/vmlinuz"}, "lacks image/vmlinuz"),
        ({"machine.json": b"{}"}, "machine.json is damaged"),
        ({"hello": b"x"}, "no machine that was exported"),
        ({**whole, "machine.json": whole["machine.json"].replace(b'"tailrace"', b'"../x"')}, "is damaged"),
    ):
        with pytest.raises(Mistake, match=said):
            parcel.import_(pack(tmp_path / "bad.tar", contents), bad / "first.state")
    (tmp_path / "short.tar").write_bytes(exported.read_bytes()[:-20000])
    for file, said in (("short.tar", "cut short|damaged"), ("none.tar", "no such file")):
        with pytest.raises(Mistake, match=said):
            parcel.import_(tmp_path / file, bad / "first.state")
    with pytest.raises(Mistake, match="Is a directory; expected a file that `tailrace function export` has written"):
        parcel.import_(tmp_path, bad / "first.state")
    assert left(bad) == [] and not (tmp_path / "here").exists()
