"""`measure latency --causes` as a user runs it, and the recorder by itself: shape and sums, no figures to reach."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from running_node import ONE, Command, needs_a_node, wait_until

from tailrace.observe.recording import Event, Recording

pytestmark = [
    *needs_a_node,
    pytest.mark.requires_program("tailrace-recorder"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs, for the switch and for the rest"),
]


def caused(command: Command, *options: str) -> list[dict[str, Any]]:
    """What was found out of each direction."""
    command("measure", "latency", command.spec(ONE), "--causes", *options, "--runs", command.runs)
    (trial,) = command.results()["trials"]
    return [direction["hops"]["causes"] for direction in trial["directions"]]


def test_the_command_says_why_frames_were_slow(command: Command) -> None:
    for causes in caused(command, "--gap-limit", "3us", "--rate", "5kpps", "--duration", "500ms"):
        assert causes["limit_us"] == pytest.approx(3)
        assert set(causes["gaps"]) == {"worker-0", "first", "tester"}
        assert "context switches" in causes["recorded"]
        assert not set(causes["recorded"]) & set(causes["missing"])
        for what, why in causes["missing"].items():
            assert f"{what} cannot be recorded here: {why}" in command.results()["notes"]
        assert causes["clock_error_us"] < 10
        assert causes["frames"]
        for frame in causes["frames"]:
            told = sum(cause["us"] for cause in frame["causes"]) + frame["unexplained_us"] + frame["usual_us"]
            assert told == pytest.approx(frame["latency_us"], rel=1e-6, abs=0.01)
    # The latency of a frame is the same whichever table says it, but for what is cut to nanoseconds.
    for way in command.results()["trials"][0]["directions"]:
        by_hop = {frame["sequence"]: frame["latency_us"] for frame in way["hops"]["slowest"]}
        by_cause = {frame["sequence"]: frame["latency_us"] for frame in way["hops"]["causes"]["frames"]}
        both = by_hop.keys() & by_cause.keys()
        assert both
        for sequence in both:
            assert by_cause[sequence] == pytest.approx(by_hop[sequence], abs=0.002)
    (run,) = command.runs.iterdir()
    assert "Why the slowest were slow" in (run / "report.html").read_text()
    assert not command.leftovers()


@pytest.mark.whole
def test_looking_up_is_fast_enough_for_many_gaps(command: Command) -> None:
    """At this rate on shared cores pollers note tens of thousands of gaps a second, and soon write over the oldest."""
    for causes in caused(command, "--gap-limit", "1us", "--rate", "100kpps", "--duration", "3s"):
        assert len(causes["frames"]) > 5 * causes["unexamined"]
        # To be held up for so long is not work.
        assert not [frame for frame in causes["frames"] if frame["usual_us"] > 2000]


def test_without_a_switch_of_ours_there_are_no_causes(command: Command) -> None:
    refused = command("measure", "latency", "--between", "if:lo", "vdev:net_null0", "--causes", status=2)
    assert "--causes needs the switch's own records" in refused.stderr


@pytest.mark.parametrize(
    ("options", "origin"),
    [((), "BPF"), (("--no-bpf",), "tracepoints"), (("--software",), "software events")],
    ids=["bpf", "tracepoints", "software"],
)
def test_a_recorder_notes_who_ran_and_what_it_cannot_know(
    binaries: Path, tmp_path: Path, options: tuple[str, ...], origin: str
) -> None:
    """By programs in the kernel, by its tracepoints where there can be none, and with what stands in for those."""
    path, cpu = tmp_path / "file", max(os.sched_getaffinity(0))
    program = binaries / "recorder/tailrace-recorder"
    recorder = subprocess.Popen([program, "--file", path, "--cpu", str(cpu), "--thread", str(os.getpid()), *options])
    try:
        wait_until(path.exists)
        recording = Recording(path)
        began = recording.until
        # Two that hand the CPU to each other, some thousand times.
        loop = "for i in $(seq 300); do /bin/true; done"
        subprocess.run(["taskset", "--cpu-list", str(cpu), "sh", "-c", f"({loop}) & {loop}; wait"], check=True)

        def ran() -> list[Event]:
            """Tasks on this CPU, as far as it has been read by now."""
            read = recording.between(began, recording.until, 0)[0]
            return [each for each in read if each.kind == "task" and each.cpu == cpu]

        # Software events tell no names, and who has ended has none any more.
        wait_until(lambda: sum(each.name == "true" or origin == "software events" for each in ran()) > 100)
        sources = {each.what: each for each in recording.sources}
        assert sources["context switches"].origin == origin
        for each in recording.sources:
            assert (each.origin is None) == bool(each.why), each
        if origin == "software events":
            assert sources["softirqs"].why == "tracepoints are not to be used"
        events, whole = recording.between(began, recording.until, 0)
        assert whole and recording.lost == 0
        # A CPU runs one task at a time, and events stand in the order of their ends.
        assert all(later.begin >= former.end for former, later in pairwise(ran()))
        assert all(later.end >= former.end for former, later in pairwise(events))
        recording.close()
    finally:
        recorder.terminate()
        assert recorder.wait(60) == 0
    assert not path.exists()


@pytest.mark.parametrize("options", [(), ("--no-bpf",)], ids=["bpf", "tracepoints"])
def test_events_that_a_recorder_comes_too_late_for_are_counted(
    binaries: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Two processes hand a CPU to each other some 100,000 times a second, and the recorder is stopped for that long."""
    path, cpu = tmp_path / "file", max(os.sched_getaffinity(0))
    recorder = subprocess.Popen([binaries / "recorder/tailrace-recorder", "--file", path, "--cpu", str(cpu), *options])
    yielding = "import os\nwhile True: os.sched_yield()"
    pair = [subprocess.Popen(["taskset", "--cpu-list", str(cpu), sys.executable, "-c", yielding]) for _ in range(2)]
    try:
        wait_until(path.exists)
        recording = Recording(path)

        def switches() -> int:
            return sum(each.count for each in recording.series() if each.kind == "task" and each.cpu == cpu)

        wait_until(lambda: switches() > 10_000)
        lost = recording.lost
        recorder.send_signal(signal.SIGSTOP)
        time.sleep(2)
        recorder.send_signal(signal.SIGCONT)
        wait_until(lambda: recording.lost > lost + 10_000)
        since, before = recording.until, switches()
        wait_until(lambda: switches() > before + 10_000)
        events, _ = recording.between(since, recording.until, 0)
        ran = [event for event in events if event.kind == "task" and event.cpu == cpu]
        assert all(later.begin >= former.end for former, later in pairwise(ran))
        recording.close()
    finally:
        for process in (recorder, *pair):
            process.terminate()
            process.wait(60)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "--file and at least one --cpu are needed"),
        (("--file", "x", "--cpu", "none"), "--cpu none"),
        (("--file", "x", "--cpu", "0", "more"), "'more' is not an option"),
    ],
)
def test_mistakes_of_a_recorder(binaries: Path, options: tuple[str, ...], expected: str) -> None:
    program = binaries / "recorder/tailrace-recorder"
    done = subprocess.run([program, *options], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert expected in done.stderr
