"""Programs as units of systemd's: what it is asked for, what becomes of their output, and when they are none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.errors import Failure
from tailrace.functions.limit import limit_memory
from tailrace.process import log_writer, units
from tailrace.process.log_writer import JOURNAL_BYTES, JOURNAL_SECONDS, Journal
from tailrace.process.process import Limits
from tailrace.state.launch import _TIME, Launcher, why_ended
from tailrace.state.record import Process, State, hold

#: systemd-run: keeps what it was told and what was on record then, and starts the program; the journal is a file.
SYSTEMD_RUN = """\
#!/bin/sh
printf '%s\\n' "$@" >$FAKE/told
cp $FAKE/node/state.json $FAKE/record
[ ! -e $FAKE/fails ] || { cat $FAKE/fails >&2; exit 1; }
while [ "$1" != -- ]; do shift; done
shift
setsid "$@" >>$FAKE/journal 2>&1 </dev/null &
echo $! >$FAKE/pid
"""
SYSTEMCTL = """\
#!/bin/sh
echo "$@" >>$FAKE/asked
[ "$1" != show ] || cat $FAKE/pid
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a machine whose systemd is two scripts."""
    for name, text in (("systemd-run", SYSTEMD_RUN), ("systemctl", SYSTEMCTL)):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("FAKE", str(tmp_path))
    monkeypatch.setattr(units, "available", lambda: True)
    monkeypatch.setattr(units, "systemd_run", lambda: f"{tmp_path}/bin/systemd-run")
    return tmp_path


def launcher_of(state: State) -> Launcher:
    state.logs.mkdir()
    return Launcher(state, state.logs, tied=False)


def test_a_program_is_on_record_before_it_is_a_unit_and_has_its_limits(fake: Path) -> None:
    with hold(fake / "node") as state:
        launcher = launcher_of(state)
        kept = os.open(fake / "kept", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
        limits = Limits(
            cpus=(0, 2), nice=-20, memory_bytes=1 << 30, umask=0, network="there", environment={"NAME": "a b"}
        )
        script = f"while [ ! -e {fake}/go ]; do sleep 0.01; done; "
        script += f"echo first; echo kept >/proc/self/fd/{kept}; echo '$HOME' last >&2; exit 3"
        process = launcher.start("fw@2", ["sh", "-c", script], limits, keep=[kept])
        os.close(kept)
        (planned,) = [each for each in json.loads((fake / "record").read_text())["things"] if each["kind"] == "process"]
        assert (planned["name"], planned["pid"], planned["unit"]) == ("fw@2", 0, process.unit)
        assert state.processes() == [process]
        (fake / "go").touch()
        assert process.id.wait(60)
        while not launcher.said("fw@2", "last"):
            pass
        assert why_ended(launcher, process) == "the function fw@2 ended ($$HOME last)"  # as systemd would make it
        assert _TIME.sub("", launcher.log("fw@2").read_text().splitlines()[0]) == "first"
        assert (fake / "journal").read_text() == "first\n$$HOME last\n"
        assert (fake / "kept").read_text() == "kept\n"
        assert state.undo_all() == []
    told = (fake / "told").read_text().splitlines()
    assert told[: told.index("--")] == [
        "--quiet", "--collect", "--slice=tailrace.slice", f"--unit={process.unit}", "--description=Tailrace: fw@2",
        "--property=Type=exec", "--property=Before=tailraced.service", "--property=OOMPolicy=continue",
        "--property=TimeoutStopSec=5s", "--property=LimitCORE=0", "--property=SyslogIdentifier=tailrace-fw@2",
        "--property=CPUAffinity=0,2", "--property=Nice=-20", f"--property=MemoryMax={(1 << 30) + (16 << 20)}",
        "--property=MemorySwapMax=0", "--property=UMask=0000", "--property=NetworkNamespacePath=/run/netns/there",
        "--setenv=NAME=a b",
    ]  # fmt: skip
    show = f"show --property=MainPID --value {process.unit}"
    assert (fake / "asked").read_text().splitlines() == [show, f"stop --no-block {process.unit}"]


def test_two_units_have_two_names() -> None:
    assert units.unit_name("fw@2") != units.unit_name("fw@2")
    assert units.unit_name("fw@2").startswith("tailrace-fw_2-")


def test_what_systemd_refuses_is_said_and_undone(fake: Path) -> None:
    (fake / "fails").write_text("Failed to start transient service unit: Access denied\nand more\n")
    with hold(fake / "node") as state:
        with pytest.raises(Failure) as failure:
            launcher_of(state).start("fw", ["true"], Limits())
        (process,) = state.processes()
        assert str(failure.value) == (
            "fw: systemd does not start it: Failed to start transient service unit: Access denied; "
            f"see `journalctl --unit={process.unit}`"
        )
        assert not process.id.alive()
        assert state.undo_all() == []
    assert (fake / "asked").read_text() == f"stop --no-block {process.unit}\n"


def test_a_unit_that_does_not_end_is_a_problem(fake: Path) -> None:
    (fake / "bin/systemctl").write_text("#!/bin/sh\necho Connection timed out >&2; exit 1\n")
    assert Process("fw", 0, 0, unit="x.service").undo() == "unit x.service (fw): Connection timed out"


def test_what_has_ended_at_its_start_is_told_in_its_words(fake: Path) -> None:
    with hold(fake / "node") as state:
        launcher = launcher_of(state)
        log = launcher.log("fw")
        log.write_text("tailrace-vnf: error: of another start\n")
        says = f'echo "tailrace-vnf: error: no port" >> {log}; echo 0'
        (fake / "bin/systemctl").write_text(f'#!/bin/sh\n[ "$1" != show ] || {{ {says}; }}\n')
        with pytest.raises(Failure, match="true: has ended at its start: tailrace-vnf: error: no port"):
            launcher.start("fw", ["true"], Limits())


def test_a_program_that_cannot_be_started_says_so_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    argv = [sys.executable, "-I", "-S", log_writer.__file__, str(log), "1000", "0", "--", "/nowhere"]
    assert subprocess.run(argv, capture_output=True, timeout=60, check=False).returncode == 127
    while not log.exists() or not log.read_text().endswith(
        "/nowhere: could not be started: No such file or directory\n"
    ):
        pass


def test_what_dies_with_its_command_is_no_unit(fake: Path) -> None:
    with hold(fake / "node") as state:
        assert not Launcher(state, state.logs, tied=True).by_systemd
        launcher = Launcher(state, state.logs, tied=False)
        assert launcher.by_systemd
        limit = limit_memory(launcher, "fw", 1 << 20)
        assert (limit.mechanism, limit.memory_bytes, limit.cgroup) == ("systemd unit", 1 << 20, None)
        assert state.record.things == []


@pytest.mark.parametrize(("answer", "here"), [(True, True), (False, False), (PermissionError(), False)])
def test_a_unit_is_where_this_process_is(monkeypatch: pytest.MonkeyPatch, answer: bool | OSError, here: bool) -> None:
    asked = []

    def same(one: Path, other: Path) -> bool:
        asked.append((str(one), str(other)))
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(Path, "samefile", same)
    monkeypatch.setattr(units, "systemd_run", lambda: "systemd-run")
    assert units.available() is here
    assert asked[0] == ("/proc/self/root", "/proc/1/root")
    monkeypatch.setattr(units, "systemd_run", lambda: None)
    assert not units.available()


def test_nobody_waits_for_the_journal_and_it_takes_no_more_than_its_bound() -> None:
    source, sink = os.pipe()
    journal = Journal(sink)
    for _ in range(100):
        journal.write(b"x" * 65536, 1.0)  # a pipe takes one of them
    taken = len(os.read(source, 1 << 20))
    assert taken == 65536
    while taken < JOURNAL_BYTES:
        journal.write(b"x" * 65536, 2.0)
        taken += len(os.read(source, 1 << 20))
    assert taken == JOURNAL_BYTES
    journal.write(b"lost", 3.0)
    os.set_blocking(source, False)
    with pytest.raises(BlockingIOError):
        os.read(source, 1)
    journal.write(b"again", 1.0 + JOURNAL_SECONDS)
    assert os.read(source, 100) == b"again"
    os.close(source)
    journal.write(b"into nothing", 500.0)
    os.close(sink)
