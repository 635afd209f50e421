"""The slowest interrupts as a trace file: whole by its format, bounded, and of the slowest only."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from trace_events import Drawn, read_trace

from tailrace.errors import Failure, Mistake
from tailrace.measure import interrupt_trace
from tailrace.measure.causes import Poller
from tailrace.measure.interrupt_trace import Slow, Trace, check_path
from tailrace.observe.recording import Event
from tailrace.results.causes import KEPT, Cause, CausedFrame

BEGAN = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
NATIVE, TUNED = Poller("native", 7, 1), Poller("tuned", 9, 1)
HZ = 1_000_000
"""A cycle is a µs."""


def slow(number: int, raised: int, arrived: int, *events: Event, receiver: Poller = NATIVE) -> Slow:
    took = float(arrived - raised)
    hog = Cause(
        kind="task", text="another task ran on CPU 1: hog (thread 900)", part="the way to user space", thread="native",
        cpu=1, us=took - 10, share=1 - 10 / took, events=1, knobs=(),
    )  # fmt: skip
    frame = CausedFrame(
        sequence=number, latency_us=took, sent=BEGAN + timedelta(microseconds=raised), sent_tsc=raised, part=hog.part,
        cpu=1, causes=(hog,), unexplained_us=0.0, usual_us=10.0, evidence=(),
    )  # fmt: skip
    return Slow(receiver, frame, raised, arrived, events)


def drawn(folder: Path, *found: Slow) -> list[Drawn]:
    trace = Trace(HZ)
    trace.add(found)
    trace.write(folder / "trace.json")
    return read_trace(folder / "trace.json")


def test_what_the_cpu_and_the_receiver_did_stands_on_tracks_of_their_own(tmp_path: Path) -> None:
    events = (
        Event(900, 1400, 1, "asleep", 7, "", 0),
        Event(1000, 1400, 1, "task", 900, 'hog "</script>', 20),
        Event(1100, 1120, 1, "interrupt", 0, "local_timer", 0),
        Event(1120, 1130, 1, "softirq", 0, "TIMER", 0),
        Event(1150, 1150, 1, "fault", 7, "", 0),
        Event(1000, 1400, 1, "asleep", 8, "", 0),
    )
    found = {(each.process, each.track): each for each in drawn(tmp_path, slow(5, 1000, 1500, *events))}
    assert set(found) == {
        ("CPU 1", "tasks"), ("CPU 1", "interrupts"), ("CPU 1", "softirqs"),
        ("receiver native, thread 7", "state of the thread"), ("receiver native, thread 7", "the slowest interrupts"),
    }  # fmt: skip
    task = found["CPU 1", "tasks"]
    assert (task.name, task.ts, task.end) == ('hog "</script>', 100, 500)
    assert task.args == {"thread": 900, "priority": 20}
    told = found["receiver native, thread 7", "the slowest interrupts"]
    assert (told.name, told.ts, told.end) == ("interrupt 5: 500 µs", 100, 600)
    assert told.args["1"] == "490 µs another task ran on CPU 1: hog (thread 900)"
    assert told.args["usual"] == "10.0 µs" and told.args["raised"].startswith("2026-11-22T12:00:00.001")
    marks = [each for each in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if each["ph"] == "i"]
    assert [(each["name"], each["ts"]) for each in marks] == [("page fault", 250)]


def test_an_event_of_two_interrupts_is_drawn_once_and_none_reaches_out_of_another(tmp_path: Path) -> None:
    hog = Event(1000, 1400, 1, "task", 900, "hog", 0)
    others = [Event(1399, 1500, 1, "task", 901, "a", 0), Event(1398, 1410, 1, "task", 902, "b", 0)]
    found = drawn(tmp_path, slow(5, 1000, 1500, hog, *others), slow(6, 1100, 1600, hog, receiver=TUNED))
    tasks = [(each.name, each.ts, each.end) for each in found if each.track == "tasks"]
    assert tasks == [("hog", 0, 400), ("b", 400, 410), ("a", 410, 500)]
    assert sum(each.track == "the slowest interrupts" for each in found) == 2


def test_only_the_slowest_of_each_receiver_stay(tmp_path: Path) -> None:
    found = drawn(
        tmp_path, *(slow(number, 1000 * number, 1000 * number + 20 + number) for number in range(1, KEPT + 6))
    )
    names = {each.name.split(":")[0] for each in found}
    assert len(names) == KEPT and "interrupt 5" not in names and "interrupt 6" in names


def test_what_there_is_no_room_for_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupt_trace, "MOST_EVENTS", 12)
    monkeypatch.setattr(interrupt_trace, "MOST_OF_ONE", 10)
    all_of = [[Event(at, at + 1, 1, "interrupt", 0, "x", 0) for at in range(first, first + 20)] for first in (0, 100)]
    found = drawn(tmp_path, slow(1, 0, 30, *all_of[0]), slow(2, 100, 120, *all_of[1]))
    assert sum(each.track == "interrupts" for each in found) == 12
    assert json.loads((tmp_path / "trace.json").read_text())["otherData"]["events left out"] == "28"
    assert sum(each.track == "the slowest interrupts" for each in found) == 2


def test_of_a_run_that_was_resumed_it_says_so() -> None:
    for resumed, of in ((False, "the run"), (True, "the run since it was resumed")):
        trace = Trace(HZ, resumed=resumed)
        trace.add([slow(5, 1000, 1500)])
        assert trace.document()["otherData"]["of"] == of
        assert trace.text().startswith(f"The slowest of {of}\n\nnative," if resumed else "native,")


def test_a_run_without_slow_interrupts_is_a_trace_too(tmp_path: Path) -> None:
    assert drawn(tmp_path) == []


def test_a_file_that_cannot_be_is_said_before_anything_is_measured(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="there is a folder"):
        check_path(tmp_path)
    with pytest.raises(Mistake, match="there is no folder"):
        check_path(tmp_path / "none/trace.json")
    check_path(tmp_path / "trace.json")
    with pytest.raises(Failure, match="cannot be written"):
        Trace(HZ).write(tmp_path / ("x" * 300))


def test_what_a_guest_did_has_tracks_of_its_own(tmp_path: Path) -> None:
    events = (
        Event(1000, 1400, 0, "task", 9, "guest's hog", 20, "tuned"),
        Event(900, 1400, 0, "asleep", 41, "", 0, "tuned"),
        Event(1000, 1400, 1, "task", 41, "host's hog", 20),
    )
    one = replace(slow(5, 1000, 1500, *events, receiver=TUNED), inside=Poller("tuned", 41, 0, "tuned"))
    found = {(each.process, each.track): each.name for each in drawn(tmp_path, one)}
    assert found == {
        ("machine tuned, CPU 0", "tasks"): "guest's hog", ("CPU 1", "tasks"): "host's hog",
        ("receiver tuned in the machine, thread 41", "state of the thread"): "asleep",
        ("receiver tuned, thread 9", "the slowest interrupts"): "interrupt 5: 500 µs",
    }  # fmt: skip


def test_exits_of_a_machine_stand_on_a_track_of_their_own(tmp_path: Path) -> None:
    events = (Event(1100, 1130, 1, "exit", 9, "MSR_WRITE", 32), Event(1100, 1130, 1, "exit", 8, "HLT", 12))
    (shown,) = [each for each in drawn(tmp_path, slow(5, 1000, 1500, *events, receiver=TUNED)) if each.ts]
    assert (shown.process, shown.track) == ("receiver tuned, thread 9", "exits to this host")
    assert (shown.name, shown.ts, shown.end, shown.args) == ("MSR_WRITE", 100, 130, {"reason": 32})
    trace = Trace(HZ)
    trace.add([slow(5, 1000, 1500, *events, receiver=TUNED)])
    assert trace.text().splitlines()[-1].endswith("130.000  receiver tuned, thread 9: exit MSR_WRITE")


def test_as_text_it_is_in_the_order_of_time(tmp_path: Path) -> None:
    events = (Event(1100, 1200, 0, "task", 9, "hog", 20, "tuned"), Event(900, 1400, 1, "asleep", 9, "", 0))
    trace = Trace(HZ)
    trace.add([slow(5, 1000, 1500, *events, receiver=TUNED), slow(6, 2000, 2900)])
    trace.write(tmp_path / "trace.txt")
    first, second = (tmp_path / "trace.txt").read_text().split("\n\n")
    assert first.startswith("native, interrupt 6: 900 µs, raised 2026-11-22T12:00:00.002")
    assert [line.split() for line in second.splitlines()[-3:]] == [
        ["from", "µs", "to", "µs"],
        ["-100.000", "400.000", "receiver", "tuned,", "thread", "9:", "asleep"],
        ["100.000", "200.000", "machine", "tuned,", "CPU", "0:", "task", "hog", "(thread", "9)"],
    ]


def test_functions_stand_on_tracks_of_their_threads_as_deep_as_they_were_called(tmp_path: Path) -> None:
    events = (
        Event(1100, 1300, 0, "function", 41, "schedule", 0, "tuned"),
        Event(1150, 1200, 0, "function", 41, "enqueue_task_rt", 1, "tuned"),
        Event(1000, 1250, 0, "function", 0, "schedule_idle", 0, "tuned"),
        Event(1050, 1060, 1, "function", 9, "eventfd_signal", 0),
    )
    one = slow(5, 1000, 1500, *events, receiver=TUNED)
    found = {(each.process, each.track, each.name) for each in drawn(tmp_path, one) if "functions" in each.track}
    assert found == {
        ("machine tuned, CPU 0", "functions of thread 41", "schedule"),
        ("machine tuned, CPU 0", "functions of thread 41", "enqueue_task_rt"),
        ("machine tuned, CPU 0", "functions of thread 0", "schedule_idle"),
        ("CPU 1", "functions of thread 9", "eventfd_signal"),
    }
    trace = Trace(HZ)
    trace.add([one])
    assert [line[29:] for line in trace.text().splitlines()[-2:]] == [
        "machine tuned, CPU 0: schedule() of thread 41",
        "machine tuned, CPU 0:   enqueue_task_rt() of thread 41",
    ]
