"""The record of what is up: nothing is lost by a crash, and nobody else's process is touched."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tailrace.cli import operate
from tailrace.errors import Failure, Mistake
from tailrace.functions.disks import admit, machine_user, make_seed
from tailrace.node.operations import Lowered, take_down
from tailrace.node.running import reserve_each, reserve_pages
from tailrace.node.status import status
from tailrace.node.strays import strays
from tailrace.observe.snapshot import Sampler
from tailrace.process import log_writer
from tailrace.process.process import Limits, ProcessId, end, how_it_ended, identify, start, stopped
from tailrace.process.programs import system_program
from tailrace.resources import hugepages
from tailrace.resources.ledger import claim_file
from tailrace.resources.topology import Cpu
from tailrace.state.function_tracer import NOTES, instance_of
from tailrace.state.ours import MARK, forget_service, mark, marked
from tailrace.state.record import (
    Admitted,
    ArmedTracer,
    Damaged,
    FilePath,
    Folder,
    HugePages,
    Process,
    Record,
    State,
    Unreadable,
    Unwritable,
    hold,
    holding,
    peek,
)
from tailrace.state.room import Room
from tailrace.switch.confine import group_for, let_pass, user_for


def bind(path: Path) -> None:
    """Leaves a socket there."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))


def lower(folder: Path) -> Lowered:
    with holding(folder) as held:
        return take_down(held)


def test_things_are_recorded_and_undone_backwards(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    made = tmp_path / "thing"
    with hold(folder) as state:
        state.add(FilePath(str(made)))
        made.write_text("x")
        state.add(HugePages(before=10**9, added=5))
    assert [thing.kind for thing in peek(folder).things] == ["file", "hugepages"]
    lowered = lower(folder)
    assert lowered.problems == []
    assert len(lowered.undone) == 2
    assert not made.exists()
    assert not folder.exists()
    assert lower(folder).undone == []


def test_the_record_says_what_things_and_plans_have_become(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    first, second = HugePages(before=1, added=5), FilePath(str(tmp_path / "thing"))
    with hold(folder) as state:
        for number in range(3):  # each as a new object, and perhaps where the one before was
            state.record.plan = {"functions": [{"cpus": number}]}
            state.save()
            assert peek(folder).plan == {"functions": [{"cpus": number}]}
        state.add(first, second)
        state.alter(first, replace(first, there=True))
        assert peek(folder).things == [replace(first, there=True), second]
        state.undo(second)
        assert peek(folder).things == [replace(first, there=True)]
        state.record.things.clear()


def test_what_cannot_be_put_on_record_is_reported_and_undone_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: Path, _text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = tmp_path / "state"
    things = [FilePath(str(tmp_path / name)) for name in "ab"]
    with hold(folder) as state:
        state.add(things[0])
        monkeypatch.setattr(Path, "write_text", full)
        with pytest.raises(Failure, match=rf"^{folder}/state\.json\.new: No space left on device.*make room there"):
            state.add(things[1])
    for thing in things:
        Path(thing.path).touch()
    assert peek(folder).things == things[:1]
    assert lower(folder).problems == []
    assert [Path(thing.path).exists() for thing in things] == [False, True]
    assert not folder.exists()


def test_room_that_is_kept_is_for_saves_that_a_full_disk_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: Path, _text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder, thing = tmp_path / "state", FilePath(str(tmp_path / "a"))
    with hold(folder) as state:
        state.add(thing)
        names = sorted(each.name for each in folder.iterdir())
        with state.room_kept(1):
            assert sorted(each.name for each in folder.iterdir()) == names, "nothing is left where it is killed"
            state.record.stopped = ["fw"]
            state.save()
            monkeypatch.setattr(Path, "write_text", full)
            state.undo(thing)
            assert peek(folder).things == [thing], "what can be undone again takes none of it"
            state.record.stopped = ["fw", "nat"]
            state.save()
            assert (peek(folder).stopped, peek(folder).things) == (["fw", "nat"], [])
            with pytest.raises(Unwritable):
                state.save()
        with pytest.raises(Unwritable), state.room_kept(0):
            state.save()
        assert peek(folder).stopped == ["fw", "nat"]


@pytest.mark.parametrize("lacks", ["open", "posix_fallocate"])
def test_a_file_system_that_keeps_no_room_is_written_to_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    def cannot(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    with monkeypatch.context() as patched:
        patched.setattr(os, lacks, cannot)
        room = Room(tmp_path, 4096)
    (tmp_path / "a").write_text("before")
    with room:
        room.write(tmp_path / "a", "after")
    assert (tmp_path / "a").read_text() == "after"


def test_no_folder_of_ours_stays_whichever_of_them_were_made(tmp_path: Path) -> None:
    with hold(tmp_path / "state") as state:
        state.sockets.mkdir()  # what logs elsewhere has no folder of logs here
        sockets = Folder(str(state.sockets / "link"))
        state.add(sockets)
        Path(sockets.path).mkdir()
        bind(Path(sockets.path) / "link.sock")
        assert state.undo_all() == []
    assert not (tmp_path / "state").exists()


def test_what_took_a_folders_place_is_left_alone(tmp_path: Path) -> None:
    """A function, or the switch's user, may have put a link there to what only root can change."""
    other = tmp_path / "other"
    other.mkdir(mode=0o755)
    (other / "file").touch()
    folder = Folder(str(tmp_path / "link"))
    Path(folder.path).symlink_to(other)
    with pytest.raises(OSError, match=r"directory|symbolic"):
        folder.give(0o700)
    assert folder.undo() is not None
    assert (other.stat().st_mode & 0o777, (other / "file").exists()) == (0o755, True)


def test_one_at_a_time(tmp_path: Path) -> None:
    with hold(tmp_path / "state"), pytest.raises(Mistake, match="in use"), hold(tmp_path / "state"):
        pass
    assert not (tmp_path / "state").exists()


def test_who_is_at_work_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    lock = (
        "import sys, time\nfrom pathlib import Path\nfrom tailrace.state.record import hold\n"
        "with hold(Path(sys.argv[-1])):\n    print(flush=True)\n    sys.stdin.read()\n"
    )
    program = tmp_path / "tailrace"
    program.write_text(lock)
    command = [sys.executable, program, "apply", "x.yaml", folder]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None and other.stdout is not None
        other.stdout.readline()
        with pytest.raises(Mistake) as caught, hold(folder):
            pass
        other.stdin.close()
    said = (
        rf"in use: process {other.pid} \(`tailrace apply x\.yaml {folder}`, since (\d{{4}}-\d\d-\d\d [\d:]{{8}})\) of T"
    )
    found = re.search(said, str(caught.value))
    assert found is not None, caught.value
    assert "wait for it to end" in str(caught.value)
    assert abs(time.mktime(time.strptime(found[1], "%Y-%m-%d %H:%M:%S")) - time.time()) < 60


def test_a_folder_open_to_all_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(Mistake, match="open to all"), hold(folder):
        pass


@pytest.mark.parametrize("below", ["", "state"])
def test_a_file_is_no_folder_and_root_is_no_cure(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Mistake, match="; set TAILRACE_STATE to a folder"), hold(tmp_path / "file" / below):
        pass


@pytest.mark.requires_root
def test_another_user_is_told_so_and_not_that_nothing_runs() -> None:
    """The record may be read by all, its sockets may not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        alive = identify(os.getpid())
        assert alive is not None
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        state = State(folder, Record(boot, things=[Process("switch", alive.pid, alive.start)]))
        state.save()
        state.sockets.mkdir(mode=0o710)
        for look in (lambda: status(folder), Sampler(folder).snapshot):
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    os.setgroups([])
                    os.setgid(65534)
                    os.setuid(65534)
                    look()
                except Exception as error:
                    os.write(writer, f"{type(error).__name__}: {error}".encode())
                finally:
                    os._exit(0)
            os.close(writer)
            os.waitpid(child, 0)
            with os.fdopen(reader) as said:
                assert said.read() == f"Mistake: {folder}: what is up there belongs to user 0; run as that user (sudo)"


@pytest.mark.parametrize(
    "plan",
    [
        {"functions": [{"name": "a", "function": "a"}]},
        {"chains": [{}]},
        {"placement": None},
        {"placement": {"tester": 1}},
    ],
    ids=str,
)
def test_a_plan_on_record_that_makes_no_sense_is_named(tmp_path: Path, plan: dict[str, Any]) -> None:
    folder = tmp_path / "state"
    with hold(folder) as state:
        state.add(FilePath(str(folder / "sockets/a.sock")))
        state.record.plan = plan
        state.save()
        with pytest.raises(Mistake, match="what is up was planned by another version of Tailrace"):
            status(folder)


@pytest.mark.parametrize(
    "change",
    ["{", "[" * 100_000, "[]", "{}", {"things": [{"kind": "file"}]},
     {"things": [{"kind": "process", "name": "x", "pid": [], "start": 1}]},
     {"things": [{"path": "/x"}]}, {"owner": "me"}, {"plan": 7},
     {"plan": {"functions": None}}, {"plan": {"chains": ["voice"]}},
     {"previous": {"plan": {}}}, {"changing": {"to": {"plan": {}, "spec": "x.yaml"}}}],
    ids=lambda change: str(change)[:40],
)  # fmt: skip
def test_a_damaged_record_is_reported_and_taken_down(tmp_path: Path, change: str | dict[str, Any]) -> None:
    folder = tmp_path / "state"
    with hold(folder) as state:
        state.save()
        whole = json.loads((folder / "state.json").read_text())
        (folder / "state.json").write_text(change if isinstance(change, str) else json.dumps({**whole, **change}))
        with pytest.raises(Damaged, match=rf"^{folder}/state\.json: damaged, .*; `tailrace down` ends"):
            peek(folder)
        (state.sockets / "first.0").mkdir(parents=True)
        bind(state.sockets / "first.0/sock")
        (state.sockets / "switch.page.capture-3.0").touch()
    assert lower(folder).problems == []
    assert not folder.exists()


def theirs_at(folder: Path, target: Path) -> dict[Path, bytes]:
    """A folder of somebody's, where much has a name that Tailrace gives too, and what is in it."""
    for below in ("logs", "sockets/first.0", "run/logs"):
        (folder / below).mkdir(parents=True)
    target.mkdir()
    names = ("state.json", "service.log", "functions", "recorder.file", "tester.control", "lock", "logs/my.log")
    names += ("sockets/first.0/notes", "sockets/switch.config", "run/state.json", "run/logs/my.log")
    files = [*(folder / name for name in names), target / "mine.log"]
    for file in files:
        file.write_text("mine")
    (folder / "link").symlink_to(target)
    return {file: file.read_bytes() for file in files}


def test_down_takes_nothing_from_a_folder_that_is_not_tailraces(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    theirs = theirs_at(folder, tmp_path / "target")
    with pytest.raises(Mistake, match=r"mine/lock: is not a lock of ours; move it away"):
        lower(folder)
    (folder / "lock").unlink()
    lowered = lower(folder)
    assert (lowered.undone, lowered.problems) == ([], [])
    assert str(folder / "state.json") in lowered.notes[0] and "stays" in lowered.notes[0]
    forget_service(folder)
    del theirs[folder / "lock"]
    assert {file: file.read_bytes() for file in theirs} == theirs
    with (
        pytest.raises(Mistake, match=r"mine/state\.json: is there, and nothing says that it is Tailrace's"),
        holding(folder) as held,
    ):
        held.take()


@pytest.mark.parametrize("name", ["state.json", "logs", "sockets", "service.log", "operate.socket"])
def test_nothing_is_begun_where_something_of_somebodys_would_be_replaced(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / name).write_text("{")
    with holding(folder) as held:
        with pytest.raises(Mistake, match=rf"mine/{name}: is there, .* set TAILRACE_STATE"):
            held.take()
        with pytest.raises(Mistake, match=rf"mine/{name}: is there"):
            held.state(damaged=True).save()
    assert [path.name for path in folder.iterdir()] == [name]


def test_what_a_killed_measurement_leaves_goes_with_the_folders_that_it_made(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom tailrace.state.record import hold_run\n"
        "with hold_run(Path(sys.argv[1])) as state:\n    state.save()\n    state.logs.mkdir()\n    os._exit(1)\n"
    )
    subprocess.run([sys.executable, "-c", program, folder], check=False)
    assert (folder / "run/logs").exists()
    assert lower(folder).problems == []
    assert not folder.exists()


def test_an_empty_folder_of_somebodys_stays_and_one_that_was_used_goes(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    assert lower(folder).undone == []
    assert folder.exists()
    with hold(folder) as state:
        state.save()
    assert lower(folder).problems == []
    assert not folder.exists()


def test_what_a_user_has_put_into_a_folder_of_ours_stays(tmp_path: Path) -> None:
    folder, target = tmp_path / "state", tmp_path / "target"
    target.mkdir()
    (target / "mine.log").touch()
    with hold(folder) as state:
        state.save()
        for each in (state.sockets, state.logs):
            each.mkdir()
        (state.logs / "first.log").touch()
        (state.sockets / "mine").mkdir()
        theirs = [state.logs / "notes.txt", state.sockets / "mine/file", state.sockets / "notes"]
        for each in theirs:
            each.touch()
        (state.logs / "link.log").symlink_to(target / "mine.log")
    assert lower(folder).problems == []
    assert all(path.exists() for path in [*theirs, target / "mine.log", folder / "logs/link.log"])
    assert not (folder / "logs/first.log").exists()


@pytest.mark.parametrize("name", ["logs", "sockets", "sockets/first.0"])
def test_nothing_is_removed_through_a_link(tmp_path: Path, name: str) -> None:
    folder, target = tmp_path / "state", tmp_path / "target"
    target.mkdir()
    (target / "mine.log").touch()
    bind(target / "mine.sock")
    with hold(folder) as state:
        state.save()
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).symlink_to(target)
    assert lower(folder).problems == []
    assert (target / "mine.log").exists() and (target / "mine.sock").exists()


def test_the_folder_of_an_older_version_is_known_by_its_record(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with hold(folder) as state:
        state.save()
        state.logs.mkdir()
        (state.logs / "first.log").touch()
        (folder / MARK).unlink()
    with hold(folder) as state:
        state.save()
    assert marked(folder)
    assert lower(folder).problems == []
    assert not folder.exists()


def test_sockets_of_measurements_whose_record_is_lost_are_removed_and_no_others(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with hold(folder):
        for name in ("tester.control", "neighbour-generator.control", "ue-sender.control", "mine.control"):
            bind(folder / name)
        (folder / "state.json").write_text("{")
    assert lower(folder).problems == []
    assert [path.name for path in folder.iterdir() if path.suffix == ".control"] == ["mine.control"]


def test_a_record_that_cannot_be_read_now_is_not_taken_for_lost(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with hold(folder) as state:
        state.save()
    (folder / "state.json").rename(tmp_path / "state.json")
    (folder / "state.json").mkdir()
    said = rf"^{folder}/state\.json: cannot be read \(Is a directory\), so what is up is not known$"
    with pytest.raises(Unreadable, match=said):
        peek(folder)
    with pytest.raises(Unreadable, match=said):
        lower(folder)
    (folder / "state.json").rmdir()
    (tmp_path / "state.json").rename(folder / "state.json")
    assert lower(folder).problems == []


@pytest.mark.parametrize("gone", [False, True])
def test_what_is_not_on_record_is_found_by_the_folder_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """Also where that is gone. And nobody else's: a tester that attaches to a port of the folder's has its control
    socket elsewhere."""
    folder = tmp_path / "state"
    if not gone:
        folder.mkdir(mode=0o755)
    monkeypatch.setenv("TAILRACE_STATE", str(folder))
    wait = ["-c", "import sys; sys.stdin.read()"]
    ours = ["tailrace-switch", *wait, "--control", str(folder / "sockets/switch.control")]
    theirs = ["tailrace-tester", *wait, "--control", str(tmp_path / "c"), "--port", f"a=vhost:{folder}/sockets/a.sock"]
    begun = [subprocess.Popen(words, executable=sys.executable, stdin=subprocess.PIPE) for words in (ours, theirs)]
    try:
        for each in begun:  # Linux shows no words yet when it has let the parent go on
            while not Path(f"/proc/{each.pid}/cmdline").read_bytes():
                time.sleep(0.01)
        assert [thing.pid for thing in strays(folder) if isinstance(thing, Process)] == [begun[0].pid]
        with pytest.raises(Failure, match=rf"process {begun[0].pid}\); `tailrace down` ends"):
            status(folder)
        lowered = operate._lower()
        assert lowered["undone"] == [f"process {begun[0].pid} (tailrace-switch)"]
        assert "huge pages" in lowered["notes"][0]
        assert begun[1].poll() is None and not folder.exists()
    finally:
        for process in begun:
            process.kill()
            process.communicate()


def test_what_an_older_record_does_not_know_is_found_beside_what_it_does(tmp_path: Path) -> None:
    """As of a copy that somebody has put back."""
    folder = tmp_path / "state"
    wait = ["-c", "import sys; sys.stdin.read()", "--control", str(folder / "sockets/switch.control")]
    words = ["tailrace-switch", *wait]
    begun = [subprocess.Popen(words, executable=sys.executable, stdin=subprocess.PIPE) for _ in range(2)]
    # Of a unit's log, which nothing on record speaks of.
    writer = [sys.executable, log_writer.__file__, str(tmp_path / "state/logs/fw.log"), "100"]
    begun.append(subprocess.Popen(writer, stdin=subprocess.PIPE))
    try:
        for each in begun:
            while not Path(f"/proc/{each.pid}/cmdline").read_bytes():
                time.sleep(0.01)
        known = identify(begun[0].pid)
        assert known is not None
        with hold(folder) as state:
            state.add(Process("switch", known.pid, known.start))
        assert lower(folder).undone == [
            f"process {begun[0].pid} (switch)",
            f"process {begun[1].pid} (tailrace-switch)",
        ]
        assert not folder.exists()
    finally:
        for process in begun:
            process.kill()
            process.communicate()


def test_a_tracer_that_is_not_on_record_is_found_by_what_it_has_noted(tmp_path: Path) -> None:
    assert strays(tmp_path) == []
    (tmp_path / NOTES[0]).touch()
    assert strays(tmp_path) == [], "somebody's own file"
    mark(tmp_path)
    assert strays(tmp_path) == [ArmedTracer(str(tmp_path / NOTES[0]), instance_of(tmp_path))]


def test_a_leftover_that_was_not_replaced_stays(tmp_path: Path) -> None:
    """What is on record is made later, or not at all: then what lay in its place is not ours to remove."""
    path = tmp_path / "stale.sock"
    for replaced in (False, True):
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(path))
        with hold(tmp_path / "state") as state:
            state.add(FilePath.to_be(str(path)))
            if replaced:
                path.unlink()
                with socket.socket(socket.AF_UNIX) as own:
                    own.bind(str(path))
            assert state.undo_all() == []
        assert path.exists() is not replaced
        path.unlink(missing_ok=True)


def test_after_a_restart_of_the_machine_only_files_are_undone(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with hold(folder) as state:
        mine = identify(os.getpid())
        assert mine is not None
        state.add(Process("self", mine.pid, mine.start))
        state.add(FilePath(str(tmp_path / "x")))
    record = json.loads((folder / "state.json").read_text())
    assert record["complete"] is False
    record.update(boot="another", complete=True)
    (folder / "state.json").write_text(json.dumps(record))
    assert [thing.kind for thing in peek(folder).things] == ["file"]
    assert not peek(folder).complete, "nothing of it runs any more"
    assert lower(folder).problems == []


def test_what_an_armed_tracer_has_noted_goes_with_the_rest(tmp_path: Path) -> None:
    """After a restart of the machine it is on record no more, and is not of the kernel that runs."""
    folder = tmp_path / "state"
    with hold(folder) as state:
        state.add(ArmedTracer(str(folder / NOTES[0]), instance_of(folder)))
        for name in NOTES:
            (folder / name).write_text("boot another\ntracing_on 0\n")
    record = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**record, "boot": "another"}))
    assert peek(folder).things == []
    assert lower(folder).problems == []
    assert not folder.exists()


def test_a_process_of_the_same_pid_but_another_start_is_left_alone() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        name = identify(child.pid)
        assert name is not None
        other = ProcessId(name.pid, name.start + 1)
        assert not other.alive()
        assert not other.signal(signal.SIGKILL)
        assert end(other)
        assert child.poll() is None
        assert end(name)
    finally:
        child.kill()
        child.wait()


def test_a_started_process_is_on_record_before_it_runs(tmp_path: Path) -> None:
    seen: list[bytes] = []

    def record(process: ProcessId) -> None:
        seen.append(Path(f"/proc/{process.pid}/cmdline").read_bytes())

    name = start(
        ["sleep", "60"], log=tmp_path / "log", limits=Limits(cpus=(min(os.sched_getaffinity(0)),)), record=record
    )
    try:
        assert b"sleep" not in seen[0].split(b"\0")[0]
        assert name.alive()
        assert len(os.sched_getaffinity(name.pid)) == 1
    finally:
        assert end(name)


def test_a_program_that_cannot_start_is_reported(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="could not be started"):
        start(["/nowhere/program"], log=tmp_path / "log", limits=Limits(), record=lambda _: None)


CRASH = """
import os, sys
from collections.abc import Callable
from pathlib import Path
from tailrace.process.process import Limits, start
def record(process):
    print(process.pid, flush=True)
    if sys.argv[1] == "before":
        os._exit(9)
start(["sleep", "60"], log=Path(sys.argv[3]), limits=Limits(tied=sys.argv[2] == "tied"), record=record)
os._exit(9)
"""


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("tied", ["tied", "loose"])
def test_a_crash_leaves_no_process_that_is_not_meant_to_live_on(tmp_path: Path, moment: str, tied: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASH, moment, tied, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 9, done.stderr
    name = identify(int(done.stdout))
    if moment == "after" and tied == "loose":
        assert name is not None
        assert name.alive()
        assert end(name)
    else:
        assert name is None or name.wait(60)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_processes_stand_still_with_those_below_them_and_go_on() -> None:
    ended = subprocess.Popen(["true"])
    gone = ProcessId(ended.pid, 1)
    ended.wait()
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        pids = [shell.pid, int(shell.stdout.readline())]
        parent, child = (identify(pid) for pid in pids)
        assert parent is not None
        assert child is not None
        with pytest.raises(ZeroDivisionError), stopped([gone, parent]):
            assert [state_of(pid) for pid in pids] == ["T", "T"]
            raise ZeroDivisionError
        assert "T" not in [state_of(pid) for pid in pids]
        end(child)
        assert shell.wait(60) == 0


def test_how_processes_end() -> None:
    assert how_it_ended(None) == "ended"
    assert how_it_ended(3 << 8) == "ended with status 3"
    assert how_it_ended(9) == "was killed by signal 9 (SIGKILL)"
    assert how_it_ended(137 << 8) == "was killed by signal 9 (SIGKILL)"


def test_huge_pages_are_added_and_given_back(tmp_path: Path) -> None:
    for name, count in (("nr_hugepages", 10), ("free_hugepages", 4), ("resv_hugepages", 1)):
        (tmp_path / name).write_text(f"{count}\n")
    assert hugepages.pool(tmp_path) == hugepages.Pool(10, 3)
    assert hugepages.missing(3, tmp_path) == 0
    assert hugepages.missing(8, tmp_path) == 5
    hugepages.add(5, tmp_path)
    assert (tmp_path / "nr_hugepages").read_text() == "15"
    hugepages.remove(5, tmp_path)
    assert (tmp_path / "nr_hugepages").read_text() == "10"
    with pytest.raises(Mistake, match="no huge pages"):
        hugepages.add(1, tmp_path / "none")


def test_pages_that_were_given_back_and_are_in_use_are_not_kept(tmp_path: Path) -> None:
    """The kernel counts them in nr_hugepages until they fall free."""
    for name, count in (("nr", 10), ("free", 0), ("resv", 0), ("surplus", 4)):
        (tmp_path / f"{name}_hugepages").write_text(f"{count}\n")
    assert hugepages.pool(tmp_path) == hugepages.Pool(6, 0)
    hugepages.remove(2, tmp_path)
    assert (tmp_path / "nr_hugepages").read_text() == "4"


def test_what_adds_huge_pages_names_their_size(tmp_path: Path) -> None:
    """vm.nr_hugepages is about the default size, which is 1 GiB on a host that was tuned so."""
    for name, count in (("nr_hugepages", 10), ("free_hugepages", 0), ("resv_hugepages", 0)):
        (tmp_path / name).write_text(f"{count}\n")
    (tmp_path / "nr_hugepages").unlink()
    (tmp_path / "nr_hugepages").mkdir()
    with pytest.raises(Failure, match=f"try `echo 5 | sudo tee {tmp_path}/nr_hugepages`"):
        hugepages.add(5, tmp_path)
    pool = "/sys/kernel/mm/hugepages/hugepages-2048kB"
    assert hugepages.command(7) == f"echo 7 | sudo tee {pool}/nr_hugepages"


def test_no_advice_is_about_huge_pages_of_the_default_size() -> None:
    top = Path(__file__).parents[2]
    files = [path for part in ("tailrace", "dataplane", "scripts", "docs") for path in (top / part).rglob("*")]
    suspects = re.compile(r"sysctl (-w )?vm\.nr_hugepages|/proc/sys/vm/nr_hugepages")
    told = [path for path in files if path.is_file() and suspects.search(path.read_text(errors="replace"))]
    assert told == []


NODES_WITH_MEMORY = [("0-1", 0, True), ("0-1", 1, True), ("0,2", 2, True), ("1", 1, False), ("0-1", 3, False)]


@pytest.mark.parametrize(("memory", "node", "own"), NODES_WITH_MEMORY)
def test_pages_are_reserved_on_the_pollers_node(tmp_path: Path, memory: str, node: int, own: bool) -> None:
    """The kernel spreads those of the machine's pool over all nodes with memory."""
    (tmp_path / "has_memory").write_text(f"{memory}\n")
    for number in range(3):
        (tmp_path / f"node{number}/hugepages/hugepages-2048kB").mkdir(parents=True)
    wanted = tmp_path / f"node{node}/hugepages/hugepages-2048kB"
    assert hugepages.pool_of(node, tmp_path) == (wanted if own else hugepages.POOL)
    assert hugepages.pool_of(None, tmp_path) == hugepages.POOL
    assert hugepages.pool_of(0, tmp_path / "none") == hugepages.POOL


def test_a_nodes_pool_does_not_tell_what_is_promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, node = (tmp_path / of / "hugepages-2048kB" for of in ("machine", "node1"))
    for base, counts in ((machine, {"resv": 3}), (node, {"nr": 10, "free": 8})):
        base.mkdir(parents=True)
        for name, count in counts.items():
            (base / f"{name}_hugepages").write_text(f"{count}\n")
    monkeypatch.setattr(hugepages, "POOL", machine)
    assert hugepages.pool(node) == hugepages.Pool(10, 5)


def test_pages_of_a_node_are_given_back_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.node.running.poller_node", lambda _cpus: 1)
    for node, count in ((0, 4), (1, 10)):
        (tmp_path / f"node{node}").mkdir()
        for name, pages in (("nr", count), ("free", 2), ("resv", 0)):
            (tmp_path / f"node{node}/{name}_hugepages").write_text(f"{pages}\n")
    monkeypatch.setattr(hugepages, "pool_of", lambda node, **_: tmp_path / f"node{node}")

    def totals() -> list[int]:
        return [hugepages.pool(tmp_path / f"node{node}").total for node in range(2)]

    with hold(tmp_path / "state") as state:
        reserve_pages(state, 7)
        assert totals() == [4, 15]
        claim = str(claim_file(tmp_path / "state"))
        assert peek(tmp_path / "state").things == [HugePages(before=10, added=5, there=True, node=1, claim=claim)]
        assert state.undo_all() == []
    assert totals() == [4, 10]


def test_pages_are_reserved_by_node_and_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of two CPUs that have the same pool together; what is free there counts once."""
    cpus = [Cpu(number, node=number // 4) for number in range(8)]
    monkeypatch.setattr("tailrace.node.running.read_cpus", lambda _: cpus)

    def base(node: int | None, *, kib: int) -> Path:
        return tmp_path / f"{node}-{kib}"

    for node in (0, 1):
        for kib in (2048, 1 << 20):
            base(node, kib=kib).mkdir()
            for name, pages in (("nr", 3), ("free", 2), ("resv", 0)):
                (base(node, kib=kib) / f"{name}_hugepages").write_text(f"{pages}\n")
    monkeypatch.setattr(hugepages, "pool_of", base)

    def totals() -> list[int]:
        return [hugepages.pool(base(node, kib=kib)).total for node in (0, 1) for kib in (2048, 1 << 20)]

    with hold(tmp_path / "state") as state:
        reserve_each(state, {(0, 2048): 5, (1, 2048): 4, (4, 2048): 2, (5, 1 << 20): 3, (6, 1 << 20): 1})
        assert totals() == [10, 3, 3, 5]
        things = [thing for thing in state.record.things if isinstance(thing, HugePages)]
        assert [(each.node, each.kib, each.added, each.there) for each in things] == [
            (0, 2048, 7, True),
            (1, 1 << 20, 2, True),
        ]
        assert state.undo_all() == []
    assert totals() == [3] * 4


def test_a_missing_package_is_reported_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_args, **_options: None)
    with pytest.raises(Mistake, match="bwrap is missing; install it with `sudo apt-get install bubblewrap`"):
        system_program("bwrap")


def test_nothing_up_is_a_state_too(tmp_path: Path) -> None:
    assert status(tmp_path / "state")["state"] == "down"


@pytest.mark.requires_root
def test_a_group_may_pass_through_a_folder_and_no_more() -> None:
    """As another user, in a folder that is open on the way."""
    folder = Path(tempfile.mkdtemp(prefix="tailrace-test-", dir="/run"))
    try:
        folder.chmod(0o710)
        os.chown(folder, 65000, 0)
        (folder / "file").write_text("")
        for group in (61500, 61400, 61500):
            let_pass(folder, group)

        def may(group: int, what: Callable[[], object]) -> bool:
            child = os.fork()
            if child == 0:
                try:
                    os.setgroups([])
                    os.setgid(group)
                    os.setuid(64055)
                    what()
                    os._exit(0)
                finally:
                    os._exit(1)
            return os.waitpid(child, 0)[1] == 0

        assert [may(group, (folder / "file").read_text) for group in (61500, 61400, 61300)] == [True, True, False]
        assert not may(61500, lambda: list(folder.iterdir()))
        assert not may(61500, (folder / "new").touch)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o710
    finally:
        shutil.rmtree(folder)


def test_a_functions_group_is_no_other_functions(tmp_path: Path) -> None:
    numbers, folder = range(100, 103), tmp_path / "state"
    with hold(folder) as state:
        assert [state.group_of(name, numbers, 2) for name in ("one", "two", "three")] == [102, 100, 101]
        with pytest.raises(Failure, match="3 functions have had a group"):
            state.group_of("four", numbers, 0)
    assert peek(folder).groups == {"one": 102, "two": 100, "three": 101}
    with hold(folder) as state:
        assert state.group_of("two", numbers, 1) == 100
        assert state.group_of("four", range(100, 106), 3, lambda: {103, 105}) == 104


@pytest.mark.requires_root
def test_a_user_is_let_use_a_file_while_that_is_on_record() -> None:
    """Two of them, as themselves; then the file is as it was."""
    folder = Path(tempfile.mkdtemp(prefix="tailrace-test-", dir="/run"))
    try:
        folder.chmod(0o711)
        file = folder / "disk.raw"
        file.write_text("disk")
        file.chmod(0o640)
        with hold(folder / "state") as state:
            for user in (61500, 61400):
                admit(state, f"fw{user}", file, user, 4)

            def may(user: int, what: Callable[[], object]) -> bool:
                child = os.fork()
                if child == 0:
                    try:
                        os.setgroups([])
                        os.setgid(user)
                        os.setuid(user)
                        what()
                        os._exit(0)
                    finally:
                        os._exit(1)
                return os.waitpid(child, 0)[1] == 0

            assert [may(user, file.read_text) for user in (61500, 61400, 61300)] == [True, True, False]
            assert not may(61500, lambda: file.open("r+").close())
            one, two = (each for each in state.record.things if isinstance(each, Admitted))
            assert state.undo(one) is None
            assert [may(user, file.read_text) for user in (61500, 61400)] == [False, True]
            assert state.undo(two) is None and two.undo() is None
        assert stat.S_IMODE(file.stat().st_mode) == 0o640 and not os.listxattr(file)
    finally:
        shutil.rmtree(folder)


@pytest.mark.requires_root
def test_the_disks_of_one_machine_are_closed_to_the_user_of_another() -> None:
    """What it has written, what it was told, and what its firmware keeps: by cat, as the user and group of another."""
    folder = Path(tempfile.mkdtemp(prefix="tailrace-test-", dir="/run"))
    try:
        folder.chmod(0o755)
        users = []
        with hold(folder / "state") as state:
            state.folder.chmod(0o711)
            for name in ("one", "two"):
                users.append(machine_user(group_for(state, name)))
                make_seed(folder / name, {"user-data": b"secret"}, users[-1])
            assert 0 not in users and len({*users, user_for(state.folder)}) == 3
        for name, user in zip(("one", "two"), users, strict=True):
            for reader in users:
                words = [f"--reuid={reader}", f"--regid={reader}", "--clear-groups", "cat", str(folder / name)]
                done = subprocess.run(["setpriv", *words], capture_output=True, check=False, timeout=60)
                assert (done.returncode == 0 and b"secret" in done.stdout) == (reader == user)
    finally:
        shutil.rmtree(folder)
