"""What a report says of the causes of slow frames: an incident is told once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from tailrace.gaps import Wait
from tailrace.hop_trace import Record
from tailrace.measure.cause_meter import CauseMeter
from tailrace.measure.causes import Account, Holders, Hop, Poller, Share
from tailrace.measure.causes import Cause as Held
from tailrace.measure.hops import Part
from tailrace.report.causes import incidents, table_of
from tailrace.results.model import Cause, CausedFrame, Causes, Recurrence

BEGAN = datetime(2026, 11, 22, 12, 0, 0, tzinfo=UTC)
HOG = Cause(
    kind="task", text="another task ran on CPU 1: hog (thread 9)", part="tester.a to the switch", thread="worker-0",
    cpu=1, us=200.0, share=0.8, events=1, knobs=("isolcpus", "cpuset_partition"),
)  # fmt: skip


def frame(sequence: int, at_us: float, latency_us: float = 250.0) -> CausedFrame:
    return CausedFrame(
        sequence=sequence, latency_us=latency_us, sent=BEGAN + timedelta(microseconds=at_us), sent_tsc=1, part=HOG.part,
        cpu=1, causes=(HOG,), unexplained_us=30.0, usual_us=20.0, evidence=(),
    )  # fmt: skip


def causes(*frames: CausedFrame) -> Causes:
    return Causes(
        frames=frames, unexamined=2, gaps={"worker-0": 3}, limit_us=5.0, clock_error_us=0.015, lost=0,
        recurrences=(
            Recurrence(text=HOG.text, cpu=1, first_of=len(frames), count=12, total_us=2400.0, longest_us=210.0,
                       knobs=HOG.knobs),
        ),
        recorded={"softirqs": "tracepoints"}, missing={"system management interrupts": "/dev/cpu/0/msr: none"},
    )  # fmt: skip


def test_frames_that_were_slow_together_are_one_incident() -> None:
    frames = [frame(10, 100), frame(11, 120), frame(12, 340), frame(900, 5000)]
    assert [(worst.sequence, more) for worst, more in incidents(frames)] == [(10, 2), (900, 0)]


def test_the_tables_say_hop_cpu_causes_and_knobs() -> None:
    table = table_of("64 B", causes(frame(10, 100), frame(11, 120)))
    ((sequence, more, latency, part, cpu, when, why, unexplained, usual),) = table.rows
    assert (sequence, more, latency, part, cpu) == ("10", "+1", "250", "tester.a to the switch", "1")
    assert when.startswith("12:00:00.000100")
    assert why == "200 µs (80%): another task ran on CPU 1: hog (thread 9)"
    assert (unexplained, usual) == ("30.0", "20.0")
    assert table.cause_rows[0][1:3] == ("2", "12")
    assert table.cause_rows[0][-1] == "isolcpus, cpuset_partition"
    assert table.lines[0].startswith("frame 10 and 1 more: 250 µs, held up in tester.a to the switch on CPU 1")
    assert "usual that none was seen to be" in table.remarks[0]
    assert any("2 were gone" in remark for remark in table.remarks)


@pytest.mark.parametrize("whole", [True, False])
def test_a_receiver_without_room_is_counted_over_the_trial_if_all_its_waits_are_kept(whole: bool) -> None:
    waits = [Wait(100, 200, 0, 4), Wait(300, 350, 7, 4), Wait(500, 900, 0, 1)]
    loop = SimpleNamespace(waits_between=lambda *_: (waits, [], whole))
    cause = Held("full", "first.0", 1, 7)
    meter = object.__new__(CauseMeter)
    meter.watched = [SimpleNamespace(poller=Poller("worker-0", 7, 1), loop=loop)]  # type: ignore[misc]
    meter.recorder = SimpleNamespace(recording=SimpleNamespace(series=list, until=1000))  # type: ignore[assignment]
    meter._before, meter._began, meter.hz = {}, 50, 1_000_000
    told = Account((Share(cause, Part("ring", "x"), 150, 2, (("worker-0", 150),)),), 0, None, 10)
    found = meter._recurrences([told, told], {"first.0": 4, "tester.b": 1})
    assert [(each.text, each.cpu, each.first_of, each.count, each.total_us, each.longest_us) for each in found] == (
        [("first.0 had no room", 1, 2, 2, 150.0, 100.0)] if whole else []
    )


def test_who_had_the_frame_in_each_part_of_its_way() -> None:
    class Watched:
        def __init__(self, poller: Poller) -> None:
            self.poller = poller

    tester, first, one, two = (
        Poller(name, number, number % 3) for number, name in enumerate(("tester", "first", "worker-0", "worker-1"))
    )
    meter = object.__new__(CauseMeter)
    meter.watched = [Watched(each) for each in (tester, first, one, two)]  # type: ignore[misc]
    meter.worker_of = {"tester.a": "worker-0", "first.1": "worker-1", "other.1": "worker-1"}.__getitem__
    hops = [Record(1, 10, 11, "tester.a", "first.0"), Record(1, 20, 21, "first.1", "tester.b")]
    numbers = {"tester.a": 0, "first.0": 4, "first.1": 5, "tester.b": 1}
    before, after = Hop(one, 0, 4, "first.0", first), Hop(two, 5, 1, "tester.b", tester)
    assert meter.holders(hops, numbers) == [
        Holders(one, tester, (before, after)), Holders(one), Holders(first, two, (after,)), Holders(two),
        Holders(tester, two),
    ]  # fmt: skip
    # A guest that is not ours has no poller that we know of.
    hops = [Record(1, 10, 11, "tester.a", "other.0"), Record(1, 20, 21, "other.1", "tester.b")]
    assert meter.holders(hops, numbers)[0].onward[0].receiver is None
    assert meter.holders(hops, numbers)[2] == Holders(None, two, (Hop(two, -1, 1, "tester.b", tester),))
