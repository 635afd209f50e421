"""Export and import: a run comes back as it was, and nothing that somebody else has made can do harm."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_folders import run_folder

from tailrace.errors import Mistake
from tailrace.report.html import write_report
from tailrace.results import RunFolder, load_run
from tailrace.results.archive import export_run, import_run


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run folder and its export, which tests take copies of."""
    made = run_folder(tmp_path_factory.mktemp("runs"), profiles=("64",), chains=2)
    (made.logs / "switch.log").write_text("started\n")
    write_report(made.path)
    archive = tmp_path_factory.mktemp("archive") / "run.zip"
    export_run(made.path, archive)
    return made.path, archive


@pytest.fixture
def folder(original: tuple[Path, Path], tmp_path: Path) -> Path:
    return shutil.copytree(original[0], tmp_path / "runs" / original[0].name)


@pytest.fixture
def archive(original: tuple[Path, Path], folder: Path, tmp_path: Path) -> Path:  # noqa: ARG001
    return shutil.copy(original[1], tmp_path / "run.zip")


def test_a_run_comes_back_as_it_was(folder: Path, archive: Path, tmp_path: Path) -> None:
    there = import_run(archive, tmp_path / "elsewhere")
    assert there == tmp_path / "elsewhere" / folder.name
    assert contents(there) == contents(folder)
    assert load_run(there) == load_run(folder)
    assert stat.S_IMODE(there.stat().st_mode) == 0o755
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == [folder.name]


def test_the_same_run_gives_the_same_file_and_unzips_by_hand(folder: Path, archive: Path, tmp_path: Path) -> None:
    export_run(folder, tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()
    zipfile.ZipFile(archive).extractall(tmp_path / "by-hand")
    assert contents(tmp_path / "by-hand" / folder.name).items() >= contents(folder).items()


def test_a_run_without_trials_keeps_its_folders(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "runs", profiles=()).path
    export_run(folder, tmp_path / "x.zip")
    there = import_run(tmp_path / "x.zip", tmp_path / "elsewhere")
    assert {path.name for path in there.iterdir()} == {path.name for path in folder.iterdir()}


def test_links_and_hidden_files_are_not_exported(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (folder / "logs/link.log").symlink_to(tmp_path / "secret")
    (folder / "logs/away").symlink_to(tmp_path)
    (folder / ".results.json.x").write_text("half")
    export_run(folder, tmp_path / "x.zip")
    assert not [name for name in zipfile.ZipFile(tmp_path / "x.zip").namelist() if "link" in name or "/." in name]
    assert b"secret" not in (tmp_path / "x.zip").read_bytes()


def test_what_cannot_be_exported_says_why(folder: Path, archive: Path, tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="is there already"):
        export_run(folder, archive)
    with pytest.raises(Mistake, match="is this a run folder"):
        export_run(tmp_path, tmp_path / "x.zip")
    (folder / "logs/bad\\name").write_text("")
    with pytest.raises(Mistake, match="no name that an archive may hold"):
        export_run(folder, tmp_path / "x.zip")
    (folder / "logs/bad\\name").unlink()
    (folder / "histograms/64-0.hlog").unlink()
    with pytest.raises(Mistake, match=r"not complete: histograms/64-0\.hlog"):
        export_run(folder, tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()


def test_no_run_is_exported_that_would_not_be_imported(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_run(folder, tmp_path / "x.zip")
    there = len(zipfile.ZipFile(tmp_path / "x.zip").infolist())
    monkeypatch.setattr("tailrace.results.archive.MOST_FILES", there)
    export_run(folder, tmp_path / "just.zip")
    assert contents(import_run(tmp_path / "just.zip", tmp_path / "in")) == contents(folder)
    (folder / "logs/one-more.log").write_text("")
    with pytest.raises(Mistake, match=f"{folder}: holds {there} files, and `tailrace import` takes at most"):
        export_run(folder, tmp_path / "more.zip")
    assert not (tmp_path / "more.zip").exists()


def test_a_run_that_is_there_is_not_touched(folder: Path, archive: Path) -> None:
    before = contents(folder)
    with pytest.raises(Mistake, match="is there already; remove it first"):
        import_run(archive, folder.parent)
    assert contents(folder) == before


def refused(file: Path, runs: Path, message: str, **options: Any) -> None:
    """The file is refused with the message, and leaves nothing anywhere."""
    before = {path for path in runs.parent.rglob("*") if path != runs}
    with pytest.raises(Mistake, match=message) as caught:
        import_run(file, runs, **options)
    assert caught.value.exit_status == 2
    assert "\n" not in str(caught.value)
    assert {path for path in runs.parent.rglob("*") if path != runs} == before


Member = tuple[zipfile.ZipInfo, bytes]


def rebuilt(archive: Path, change: Callable[[list[Member]], None], *, listed: bool = True) -> Path:
    """The archive with its members changed; with a list of contents that agrees with them, unless `listed` is false."""
    with zipfile.ZipFile(archive) as source:
        members = [(info, source.read(info)) for info in source.infolist()]
    change(members)
    if listed:
        index = next(number for number, (info, _) in enumerate(members) if info.filename.endswith("/export.json"))
        files = {
            info.filename.partition("/")[2]: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for number, (info, data) in enumerate(members)
            if number != index and not info.is_dir()
        }
        document = {**json.loads(members[index][1]), "files": files}
        members[index] = (members[index][0], json.dumps(document).encode())
    target = archive.with_name("changed.zip")
    with zipfile.ZipFile(target, "w") as sink, pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # of a name that is there twice
        for info, data in members:
            sink.writestr(info, data)
    return target


def member(name: str, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


RUN = "RUN"


@pytest.mark.parametrize(
    "name",
    [
        "../evil", "RUN/../evil", "RUN/../../evil", "/etc/evil", "RUN//evil", "RUN/logs/../../evil", "C:\\evil",
        "RUN/..\\evil", "RUN/.hidden", "RUN/logs/a\nb", "RUN/logs/nul\u202e", "RUN/" + "a/" * 20 + "x",
        "RUN/logs/" + "x" * 300, "RUN/logs/trailing.", "evil", "./RUN/evil",
    ],
)  # fmt: skip
def test_paths_that_lead_elsewhere_are_refused(archive: Path, folder: Path, tmp_path: Path, name: str) -> None:
    made = rebuilt(archive, lambda members: members.append((member(name.replace(RUN, folder.name)), b"evil")))
    refused(made, tmp_path / "in", "path that a run folder does not|beside the run folder|one run folder")
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK])
def test_links_and_devices_are_refused(archive: Path, folder: Path, tmp_path: Path, kind: int) -> None:
    made = rebuilt(
        archive, lambda members: members.append((member(f"{folder.name}/logs/x", kind | 0o777), b"/etc/passwd"))
    )
    refused(made, tmp_path / "in", "no ordinary file")


def test_a_second_run_a_second_file_and_a_file_that_is_a_folder_are_refused(
    archive: Path, folder: Path, tmp_path: Path
) -> None:
    for name, message in (
        ("other-run/results.json", "one run folder"),
        (f"{folder.name}/results.json", "twice"),
        (f"{folder.name}/RESULTS.json", "twice"),
        (f"{folder.name}/spec.yaml/x", "as a file and as a folder"),
    ):
        made = rebuilt(archive, lambda members, name=name: members.append((member(name), b"{}")))
        refused(made, tmp_path / "in", message)


def test_bombs_are_refused_before_they_are_unpacked(archive: Path, folder: Path, tmp_path: Path) -> None:
    def bomb(members: list[Member]) -> None:
        info = member(f"{folder.name}/logs/bomb.log")
        info.compress_type = zipfile.ZIP_DEFLATED
        members.append((info, bytes(50 << 20)))

    made = rebuilt(archive, bomb)
    assert made.stat().st_size < 1 << 20
    refused(made, tmp_path / "in", "at most 20 MiB are taken", most_bytes=20 << 20)
    assert import_run(made, tmp_path / "in", most_bytes=60 << 20).is_dir()


def test_a_file_that_is_larger_than_it_says_is_cut_off(archive: Path, folder: Path, tmp_path: Path) -> None:
    """A header that lies about the size: as many bytes as were announced are read, and they are not what was listed."""
    name = f"{folder.name}/logs/bomb.log".encode()
    info = member(name.decode())
    info.compress_type = zipfile.ZIP_DEFLATED

    made = rebuilt(archive, lambda members: members.append((info, bytes(8 << 20))))
    data = bytearray(made.read_bytes())
    entry = data.rindex(b"PK\x01\x02", 0, data.rindex(name))  # in the directory at the end, with the size at 24
    struct.pack_into("<I", data, entry + 24, 100)
    made.write_bytes(data)
    refused(made, tmp_path / "in", "has 100 bytes and should have 8388608")


def test_too_many_files_are_refused(
    archive: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.results.archive.MOST_FILES", 50)
    made = rebuilt(
        archive,
        lambda members: members.extend((member(f"{folder.name}/logs/{number}"), b"") for number in range(60)),
    )
    refused(made, tmp_path / "in", "and a run has at most 50")


def test_compression_that_exports_do_not_use_is_refused(archive: Path, folder: Path, tmp_path: Path) -> None:
    info = member(f"{folder.name}/logs/x")
    info.compress_type = zipfile.ZIP_LZMA
    refused(rebuilt(archive, lambda members: members.append((info, b"x"))), tmp_path / "in", "compressed in a way")


def test_what_is_not_listed_missing_or_changed_is_refused(archive: Path, folder: Path, tmp_path: Path) -> None:
    def drop(members: list[Member], name: str) -> None:
        members[:] = [each for each in members if not each[0].filename.endswith(name)]

    def change(members: list[Member]) -> None:
        at = next(number for number, each in enumerate(members) if each[0].filename.endswith("spec.yaml"))
        members[at] = (members[at][0], b"x" * len(members[at][1]))

    extra = (member(f"{folder.name}/logs/extra"), b"")
    for edit, listed, message in (
        (lambda members: members.append(extra), False, "holds, unlisted, 'logs/extra'"),
        (lambda members: drop(members, "host.json"), False, "lacks 'host.json'"),
        (lambda members: drop(members, "64-0.hlog"), True, r"lacks 'histograms/64-0\.hlog', which results"),
        (lambda members: drop(members, "results.json"), True, r"has no results\.json"),
        (change, False, "damaged: it is not what was exported"),
    ):
        refused(rebuilt(archive, edit, listed=listed), tmp_path / "in", message)
    made = rebuilt(archive, lambda members: drop(members, "export.json"), listed=False)
    refused(made, tmp_path / "in", "not an exported run")


def test_an_archive_that_is_cut_short_or_damaged_is_refused(archive: Path, folder: Path, tmp_path: Path) -> None:
    whole = archive.read_bytes()
    broken = tmp_path / "broken.zip"
    for end in range(4, len(whole), len(whole) // 40):
        broken.write_bytes(whole[:end])
        refused(broken, tmp_path / "in", rf"{broken}: a zip archive that was cut short .* nothing was imported")
    for begin in range(10, len(whole) // 2, len(whole) // 20):
        broken.write_bytes(whole[:begin] + whole[-len(whole) // 2 :])
        refused(broken, tmp_path / "in", rf"{broken}: .*damaged")
    for at in range(100, len(whole), len(whole) // 60):
        data = bytearray(whole)
        data[at] ^= 0x55
        broken.write_bytes(data)
        try:
            there = import_run(broken, tmp_path / "in")
        except Mistake as error:
            assert "nothing was imported" in str(error) or "expected a file made by" in str(error)
            assert not list((tmp_path / "in").iterdir() if (tmp_path / "in").exists() else [])
        else:  # a byte that means nothing, such as a time
            assert contents(there) == contents(folder)
            shutil.rmtree(there)


def test_a_file_without_a_name_is_refused(archive: Path, tmp_path: Path) -> None:
    data = bytearray(archive.read_bytes())
    entry = data.index(b"PK\x01\x02")
    name, extra, comment = struct.unpack_from("<HHH", data, entry + 28)
    struct.pack_into("<HHH", data, entry + 28, 0, extra, name + comment)
    archive.write_bytes(data)
    refused(archive, tmp_path / "in", "holds a path that a run folder does not: ''")


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    for name, data in (("empty", b""), ("text", b"hello\n"), ("tar", bytes(10240))):
        (tmp_path / name).write_bytes(data)
        refused(tmp_path / name, tmp_path / "in", "no exported run .* expected a file made by `tailrace export`")
    refused(tmp_path / "missing", tmp_path / "in", "No such file")


def edited(archive: Path, name: str, edit: Callable[[dict[str, Any]], None]) -> Path:
    def change(members: list[Member]) -> None:
        at = next(number for number, each in enumerate(members) if each[0].filename.endswith(f"/{name}"))
        document = json.loads(members[at][1])
        edit(document)
        members[at] = (members[at][0], json.dumps(document).encode())

    return rebuilt(archive, change)


def test_newer_formats_and_another_runs_results_are_refused(archive: Path, tmp_path: Path) -> None:
    for name, change, message in (
        ("results.json", {"format": 99}, "format 99, but this Tailrace reads up to format .*; upgrade Tailrace"),
        ("export.json", {"tailrace_export": 2}, "exported in format 2, but this Tailrace reads up to 1; upgrade"),
        ("results.json", {"id": "other"}, "holds the run 'other' under the name"),
        ("results.json", {"id": "../x"}, "holds the run"),
        ("results.json", {"trials": "none"}, r"results\.json: trials"),
        ("export.json", {"tailrace_export": "x"}, "not what `tailrace export` writes"),
    ):
        made = edited(archive, name, lambda document, change=change: document.update(change))
        refused(made, tmp_path / "in", message)


def test_a_histogram_that_lies_outside_is_refused(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "x.hlog").write_text("")

    def elsewhere(document: dict[str, Any]) -> None:
        document["trials"][0]["directions"][0]["histogram"]["file"] = "../../x.hlog"

    refused(edited(archive, "results.json", elsewhere), tmp_path / "in", "lacks '../../x.hlog'")


def test_an_older_run_is_taken_as_it_is(tmp_path: Path) -> None:
    text = (Path(__file__).parent / "data/results-format-1.json").read_text()
    document = json.loads(text)
    folder = tmp_path / "runs" / document["id"]
    (folder / "histograms").mkdir(parents=True)
    (folder / "results.json").write_text(text)
    for trial in document["trials"]:
        for way in trial["directions"]:
            (folder / way["histogram"]["file"]).write_text("")
    export_run(folder, tmp_path / "x.zip")
    there = import_run(tmp_path / "x.zip", tmp_path / "elsewhere")
    assert (there / "results.json").read_text() == text
    assert isinstance(load_run(there).method, str)


def test_a_full_disk_leaves_nothing_behind(
    folder: Path, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tailrace.results.archive._unpack", full)
    with pytest.raises(Exception, match="No space left"):
        import_run(archive, tmp_path / "in")
    assert list((tmp_path / "in").iterdir()) == []
    monkeypatch.setattr("tailrace.results.archive._write", full)
    with pytest.raises(OSError, match="No space left"):
        export_run(folder, tmp_path / "new.zip")
    assert not (tmp_path / "new.zip").exists()


def test_a_run_that_has_not_finished_can_be_taken_along(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "runs", "x", spec="", host={}, command=[], versions={})
    assert export_run(folder.path, tmp_path / "x.zip").finished is None
    assert not load_run(import_run(tmp_path / "x.zip", tmp_path / "elsewhere")).valid
