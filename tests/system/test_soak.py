"""`tailrace measure soak` and `tailrace watch` with the real switch and tester: killed, gone on with, a full disk."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from running_node import REPOSITORY, Command, kill_all, needs_a_node, wait_until
from small_disk import small_disk

from tailrace.observe.watch import View, newest
from tailrace.results import ResultError

pytestmark = needs_a_node

FLOOR = REPOSITORY / "examples/floor.yaml"
TRAFFIC = ("--frames", "64", "--rate", "10kpps", "--interval", "100ms", "--alone", "500ms")


def begin(command: Command, *options: str | Path, runs: Path | None = None) -> subprocess.Popen[str]:
    return command.begin("-v", "measure", "soak", FLOOR, *TRAFFIC, "--runs", runs or command.runs, *options)


def watched(command: Command) -> dict[str, Any]:
    """What `tailrace watch` says."""
    document: dict[str, Any] = json.loads(command("watch", "--once", "--json", "--runs", command.runs).stdout)
    return document


def intervals(command: Command, least: int, runs: Path | None = None) -> None:
    """Waits until so many intervals are on disk."""

    def enough() -> bool:
        try:
            view = View.open(newest(runs or command.runs))
            view.look()
        except ResultError:
            return False
        return view.totals.intervals >= least

    wait_until(enough, 60)


def the_trial(command: Command, runs: Path | None = None) -> dict[str, Any]:
    (folder,) = (runs or command.runs).iterdir()
    (trial,) = json.loads((folder / "results.json").read_text())["trials"]
    found: dict[str, Any] = trial
    return found


def check(trial: dict[str, Any], least: int) -> None:
    soak = trial["soak"]
    assert soak["intervals"] >= least
    assert soak["alone"]["latency_us"]["min"] > 0 and soak["alone"]["lost"] == 0
    assert trial["clock"]["hz"] > 0 and trial["clock"]["error_ppm"] > 0
    for way in trial["directions"]:
        assert way["lost"] == way["duplicate"] == way["out_of_sequence"] == 0
        assert way["received"] == way["sent"] > 0
        assert sum(each["received"] for each in way["intervals"]) == way["received"]
        assert max(each["max_us"] or 0 for each in way["intervals"]) == way["latency_us"]["max"]
        assert len(way["intervals"]) == soak["intervals"]


def test_a_soak_is_measured_watched_and_reported(command: Command) -> None:
    running = begin(command, "--duration", "5s")
    intervals(command, 5)
    seen = watched(command)
    assert seen["state"] == "running"
    assert seen["directions"]["a-to-b"]["received"] > 0
    shown = command("watch", "--once", "--runs", command.runs).stdout
    assert "a-to-b" in shown and "until" in shown
    _, error = running.communicate(timeout=60)
    assert running.returncode == 0, error
    assert "50 intervals; on disk at most" in error
    trial = the_trial(command)
    assert trial["valid"]
    assert trial["duration_s"] == pytest.approx(5.0, abs=0.1)
    check(trial, 25)
    assert trial["soak"]["gaps"] == []
    (folder,) = command.runs.iterdir()
    assert (folder / "report.html").exists() and not (folder / ".reserve").exists()
    ended = watched(command)
    assert ended["state"] == "done"
    assert ended["intervals"] == trial["soak"]["intervals"]


def test_a_soak_that_was_killed_is_gone_on_with(command: Command) -> None:
    running = begin(command, "--duration", "4s")
    intervals(command, 10)
    kill_all(command)
    running.wait(60)
    assert watched(command)["state"] == "cut off"
    (folder,) = command.runs.iterdir()
    assert not json.loads((folder / "results.json").read_text())["valid"]
    (log,) = (folder / "histograms").glob("*.intervals.hlog")
    with log.open("ab") as file:
        file.write(b"Tag=a-to-b,1.0")  # what a power cut leaves of an interval

    command("down")
    command("report", folder)
    results = json.loads((folder / "results.json").read_text())
    assert results["finished"] and not results["valid"] and "was killed or crashed" in results["reason"]
    (trial,) = results["trials"]
    assert trial["soak"]["intervals"] >= 10 and all(way["received"] > 0 for way in trial["directions"])
    assert "killed or crashed" in (folder / "report.html").read_text()
    refused = command("measure", "soak", FLOOR, "--resume", folder, status=2)
    assert "expected neither a SPEC nor other settings" in refused.stderr
    resumed = command("measure", "soak", "--resume", folder, "--runs", command.runs)
    assert "are measured; for the rest" in resumed.stderr
    results = json.loads((folder / "results.json").read_text())
    assert results["valid"], results["reason"]
    assert any("torn: 14 bytes" in note for note in results["notes"])
    trial = the_trial(command)
    check(trial, 20)
    (gap,) = trial["soak"]["gaps"]
    assert gap["reason"] == "the soak was killed or crashed"
    assert gap["end_s"] > gap["start_s"]
    assert trial["duration_s"] == pytest.approx(4.0, abs=0.2)
    again = command("measure", "soak", "--resume", folder, status=2)
    assert "is complete (4 s)" in again.stderr


def test_ctrl_c_keeps_what_was_measured(command: Command) -> None:
    running = begin(command, "--duration", "1h")
    intervals(command, 10)
    running.send_signal(signal.SIGINT)
    _, error = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "interrupted by Ctrl-C" in error and "what was measured" in error
    trial = the_trial(command)
    assert not trial["valid"]
    check(trial, 10)
    assert watched(command)["state"] == "broken off"


@pytest.mark.whole
@pytest.mark.parametrize("ended_by", ["time", "ctrl-c"])
def test_a_soak_says_why_its_slowest_frames_were_slow(command: Command, ended_by: str) -> None:
    running = begin(command, "--duration", "3s" if ended_by == "time" else "1h", "--causes")
    if ended_by == "ctrl-c":
        intervals(command, 10)
        running.send_signal(signal.SIGINT)
    printed, error = running.communicate(timeout=60)
    assert running.returncode == (0 if ended_by == "time" else 130), error
    trial = the_trial(command)
    check(trial, 10)
    for way in trial["directions"]:
        hops = way["hops"]
        assert hops["frames"] > 0 and [part["kind"] for part in hops["parts"]] == ["ring", "switch", "ring"]
        assert hops["slowest"][0]["latency_us"] == pytest.approx(way["latency_us"]["max"], rel=0.01)
        assert hops["causes"]["frames"] and hops["causes"]["recurrences"] is not None
        for frame in hops["causes"]["frames"]:
            told = sum(cause["us"] for cause in frame["causes"]) + frame["unexplained_us"] + frame["usual_us"]
            assert told == pytest.approx(frame["latency_us"], rel=0.02, abs=1)
    assert "slowest frames" in printed


@pytest.fixture
def clock(command: Command, tmp_path: Path) -> Callable[[int], None]:
    """Sets the clock on the wall by so many seconds, for the commands of a test, what they start, and nobody else."""
    library, file = tmp_path / "stepped_clock.so", tmp_path / "step"
    source = Path(__file__).parent / "stepped_clock.c"
    subprocess.run(["gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", library, source], check=True)
    file.write_bytes(bytes(8))
    command.environment |= {"LD_PRELOAD": str(library), "STEPPED_CLOCK": str(file)}

    def set_by(seconds: int) -> None:
        with file.open("r+b") as place:
            place.write(struct.pack("=q", seconds))

    return set_by


def test_a_clock_that_is_set_is_reported_and_moves_no_figure(command: Command, clock: Callable[[int], None]) -> None:
    """By an hour back, which would make times negative, and by a day from there."""
    running = begin(command, "--duration", "6s")
    intervals(command, 10)
    clock(-3600)
    intervals(command, 25)
    clock(-3600 + 86400)
    _, error = running.communicate(timeout=60)
    assert running.returncode == 0, error
    for step in ("-3600", "+86400"):
        assert f"the machine's clock was set by {step}" in error
        assert f"The clock was set by {step}" in next(command.runs.glob("*/report.html")).read_text()
    trial = the_trial(command)
    assert trial["valid"]
    check(trial, 40)
    assert trial["duration_s"] == pytest.approx(6.0, abs=0.1)
    steps = trial["soak"]["clock_steps"]
    assert [round(each["step_s"]) for each in steps] == [-3600, 86400]
    assert 0 < steps[0]["at_s"] < steps[1]["at_s"] < 6.2
    assert trial["soak"]["gaps"] == []
    starts = [each["start_s"] for each in trial["directions"][0]["intervals"]]
    assert all(0 < after - one < 60 for one, after in pairwise(starts))
    assert [round(each["step_s"]) for each in watched(command)["clock_steps"]] == [-3600, 86400]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB."""
    with small_disk(tmp_path / "disk", 64) as place:
        yield place


def test_a_disk_that_fills_keeps_what_was_measured(command: Command, disk: Path) -> None:
    refused = command("measure", "soak", FLOOR, *TRAFFIC, "--duration", "40h", "--runs", disk / "x", status=2)
    assert "make room, choose another place with --runs FOLDER, or a longer --interval" in refused.stderr
    assert not list(disk.iterdir())

    runs = disk / "runs"
    running = begin(command, "--duration", "6s", runs=runs)
    intervals(command, 10, runs)
    filler = disk / "filler"
    with filler.open("wb") as file:
        free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        os.posix_fallocate(file.fileno(), 0, free - 8192)
    _, error = running.communicate(timeout=60)
    assert running.returncode == 1, error
    assert "No space left on device" in error and "--resume RUN" in error
    trial = the_trial(command, runs)
    kept = trial["soak"]["intervals"]
    check(trial, 10)
    (folder,) = runs.iterdir()
    assert (folder / "report.html").exists()

    filler.unlink()
    command("measure", "soak", "--resume", folder)
    trial = the_trial(command, runs)
    check(trial, kept + 1)
    assert "No space left" in trial["soak"]["gaps"][0]["reason"]
    assert trial["valid"]


def memory(process: int) -> dict[str, int]:
    lines = (line.split() for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) for words in lines if words[0] in ("VmRSS:", "VmData:")}


@pytest.mark.whole
def test_neither_the_command_nor_the_tester_nor_the_switch_grows(command: Command) -> None:
    running = begin(command, "--duration", "1h", "--interval", "20ms")
    intervals(command, 100)
    daemons = [command.process(name) for name in ("tester", "switch")]
    early = {pid: memory(pid) for pid in (running.pid, *(each["pid"] for each in daemons if each is not None))}
    assert len(early) == 3
    intervals(command, 700)
    late = {pid: memory(pid) for pid in early}
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    for pid, before in early.items():
        # Between two collections of Python's garbage there may be 1.3 MiB of it; the daemons have none.
        more = 2048 if pid == running.pid else 256
        assert late[pid]["VmRSS"] <= before["VmRSS"] + more, (before, late[pid])
        assert late[pid]["VmData"] <= before["VmData"] + more, (before, late[pid])
