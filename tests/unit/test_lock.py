"""Locks between commands: nobody but who may run the command can hold one, and who holds one is named."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tailrace.errors import Failure, Mistake
from tailrace.host.journal import hold_journal
from tailrace.process.lock import Held, is_locked, locked
from tailrace.resources import hugepages
from tailrace.results.lock import alone_in
from tailrace.state.record import HugePages, hold

OTHER = 65534
#: Somebody with no rights takes every lock that can be had below a folder; says how many, and keeps them.
HOSTILE = """
import fcntl, os, sys
os.setgid(65534); os.setuid(65534)
kept = []
for root, folders, files in os.walk(sys.argv[1]):
    for name in (".", *files):
        try:
            descriptor = os.open(os.path.join(root, name), os.O_RDONLY)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        kept.append(descriptor)
print(len(kept), flush=True)
sys.stdin.read()
"""
#: Another command, which holds a lock.
HOLDER = """
import sys
from pathlib import Path
from tailrace.process.lock import locked
with locked(Path(sys.argv[-1])):
    print(flush=True)
    sys.stdin.read()
"""


@contextmanager
def beside(program: str, *words: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process, and the line that it prints."""
    argv = [sys.executable, "-c", program, *map(str, words)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield process, process.stdout.readline()
        finally:
            process.stdin.close()


def test_the_file_is_its_owners_alone_and_goes_with_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert is_locked(path)
    assert list(tmp_path.iterdir()) == [] and not is_locked(path)


def test_who_holds_it_is_named_and_waited_for_within_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with beside(HOLDER, path) as (other, _):
        assert is_locked(path)
        for patience in (0.0, 0.2):
            began = time.monotonic()
            with pytest.raises(Held) as caught, locked(path, patience=patience):
                pass
            assert time.monotonic() - began >= patience
            assert caught.value.pid == other.pid
            assert re.match(rf"process {other.pid} \(`python.*`, since ", str(caught.value))
    with locked(path):
        pass


def test_it_is_had_when_its_holder_ends(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with beside(HOLDER, path) as (other, _):
        other.kill()
        with locked(path, patience=60):
            pass


def test_a_file_that_a_crash_has_left_means_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch(0o600)
    assert not is_locked(path)
    with locked(path):
        pass


def test_a_lock_that_others_could_open_is_made_anew(tmp_path: Path) -> None:
    """Somebody may hold it already, as one that an earlier version has left."""
    path = tmp_path / "lock"
    path.touch()
    path.chmod(0o644)
    with path.open() as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        with locked(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("what", ["link", "folder", "fifo", "dangling"])
def test_what_is_no_lock_is_not_followed(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path, target = folder / "lock", tmp_path / "target"
    if what == "link":
        target.write_text("kept")
        path.symlink_to(target)
    elif what == "dangling":
        path.symlink_to(target)
    elif what == "folder":
        path.mkdir()
    else:
        os.mkfifo(path, 0o600)
    with pytest.raises((OSError, Mistake)), locked(path):
        pass
    assert target.exists() is (what == "link")


def test_a_folder_that_anybody_may_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(Mistake, match=f"{folder}: anybody may write to it"), locked(folder / "lock"):
        pass
    assert list(folder.iterdir()) == []


@pytest.mark.requires_root
def test_a_lock_of_somebody_elses_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    path = tmp_path / "lock"
    path.touch(0o600)
    os.chown(path, OTHER, OTHER)
    with pytest.raises(Mistake, match="is not a lock of ours"), locked(path):
        pass


def huge(_: Path) -> AbstractContextManager[None]:
    return hugepages.alone()


HOLDS: dict[str, Callable[[Path], AbstractContextManager[object]]] = {
    "node": hold,
    "host": hold_journal,
    "run": alone_in,
    "huge": huge,
}


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that everybody can get to, as /run and /var/lib are."""
    with tempfile.TemporaryDirectory(prefix="tailrace-test-", dir="/tmp") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


@pytest.mark.requires_root
@pytest.mark.parametrize("kind", HOLDS)
def test_nobody_without_rights_can_hold_up_a_command(
    kind: str, open_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever they lock, before it begins and while it runs, it goes its way, and others are told who really runs."""
    monkeypatch.setattr(hugepages, "_LOCK", open_path / "huge.lock")
    monkeypatch.setattr(hugepages, "PATIENCE", 0.0)
    folder = open_path / "folder"
    folder.mkdir()
    (folder / "lock").touch()
    (folder / "lock").chmod(0o644)
    with beside(HOSTILE, open_path) as (_, taken):
        assert int(taken) > 0
        with HOLDS[kind](folder), beside(HOSTILE, open_path):
            assert any(path.name.endswith("lock") for path in (*folder.iterdir(), *open_path.iterdir()))
        with HOLDS[kind](folder):
            pass


@pytest.mark.requires_root
def test_nobody_without_rights_can_hold_the_pool_of_huge_pages() -> None:
    with beside(HOSTILE, "/sys/kernel/mm/hugepages") as (_, taken):
        assert int(taken) > 0
        with hugepages.alone():
            pass


@pytest.mark.parametrize(
    ("kind", "error", "said"),
    [
        ("node", Mistake, "is in use: process {pid} .*wait for it to end"),
        ("host", Mistake, "another `tailrace host` command is changing the host: process {pid} .*wait for it to end"),
        ("run", Mistake, "another command measures into it: process {pid} .*end it with Ctrl-C"),
        ("huge", Failure, "process {pid} .* has been changing the pool of huge pages for 0.1 s"),
    ],
)
def test_every_command_names_who_holds_it_up(
    kind: str, error: type[Exception], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / {"run": ".lock"}.get(kind, "lock")
    monkeypatch.setattr(hugepages, "_LOCK", path)
    monkeypatch.setattr(hugepages, "PATIENCE", 0.1)
    monkeypatch.setattr(hugepages.os, "access", lambda *_: True)
    with beside(HOLDER, path) as (other, _), pytest.raises(error) as caught, HOLDS[kind](tmp_path):
        pass
    assert re.search(said.format(pid=other.pid), str(caught.value)), caught.value


def test_pages_that_cannot_be_given_back_yet_are_a_problem_and_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hugepages, "_LOCK", tmp_path / "lock")
    monkeypatch.setattr(hugepages, "PATIENCE", 0.0)
    monkeypatch.setattr(hugepages.os, "access", lambda *_: True)
    with beside(HOLDER, tmp_path / "lock") as (other, _):
        problem = HugePages(before=0, added=1, there=True).undo()
    assert problem is not None and f"process {other.pid}" in problem


@pytest.mark.requires_root
def test_who_may_not_open_it_still_sees_that_a_run_is_at_work(open_path: Path) -> None:
    look = (
        "import os, sys\nfrom pathlib import Path\nfrom tailrace.results.lock import is_held\n"
        "os.setgid(65534); os.setuid(65534)\nprint(is_held(Path(sys.argv[1])), flush=True)\nsys.stdin.read()"
    )
    with alone_in(open_path), beside(look, open_path) as (_, seen):
        assert seen == "True\n"
    with beside(look, open_path) as (_, seen):
        assert seen == "False\n"
