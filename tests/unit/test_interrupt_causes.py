"""The slowest interrupts, explained by what happened on the receiver's CPU."""

from __future__ import annotations

from types import SimpleNamespace

from tailrace.measure.causes import Poller
from tailrace.measure.interrupt_causes import InterruptCauses
from tailrace.observe.recording import Event, Series
from tailrace.results.causes import KEPT, Causes

HZ = 1_000_000
RECEIVER = Poller("native", 7, 1)
EVENTS = [Event(1000, 1400, 1, "task", 900, "hog", 0), Event(900, 1400, 1, "asleep", 7, "", 0)]
FOUND = {"slowest_missed": 0}


def made(until: int = 1 << 40) -> InterruptCauses:
    recording = SimpleNamespace(
        until=until, clock_error=0, lost=0, sources=(), begin_part=lambda: None, notes=lambda _: [],
        series=lambda: [Series(1, "task", 900, "hog", 3, 1200, 500)], wall=lambda tsc: tsc / HZ,
        between=lambda begin, end, _: ([each for each in EVENTS if each.end >= begin and each.begin <= end], True),
    )  # fmt: skip
    recorder = SimpleNamespace(recording=recording)
    causes = InterruptCauses(recorder, (), HZ, poller=RECEIVER)  # type: ignore[arg-type]
    causes.begin()
    return causes


def explained(number: int, raised: int, arrived: int) -> Causes:
    causes = made()
    causes.note({**FOUND, "slowest": [[number, raised, arrived]]})
    return causes.explain()


def test_what_ran_while_it_was_under_way_is_its_cause() -> None:
    (frame,) = explained(5, 1000, 1500).frames
    assert (frame.sequence, frame.latency_us, frame.part) == (5, 500.0, "the way to user space")
    (cause,) = frame.causes
    assert (cause.text, cause.us) == ("another task ran on CPU 1: hog (thread 900)", 400.0)
    assert (frame.unexplained_us, frame.usual_us) == (0.0, 100.0)


def test_what_is_known_of_the_slowest_is_given_on() -> None:
    causes = made()
    causes.note({**FOUND, "slowest": [[5, 1000, 1500], [6, 2000, 2010]]})
    found = causes.explain()
    slow = list(causes.slow(found))
    assert [(each.frame.sequence, each.raised, each.arrived) for each in slow] == [(5, 1000, 1500), (6, 2000, 2010)]
    assert [len(each.events) for each in slow] == [2, 0] and slow[0].receiver is RECEIVER


def test_only_the_slowest_stay_and_those_that_were_not_told_are_counted() -> None:
    causes = made()
    causes.note({**FOUND, "slowest": [[number, 0, 100 + number] for number in range(1, KEPT + 1)]})
    causes.note({"slowest_missed": 3, "slowest": [[500, 0, 9000]]})
    found = causes.explain()
    assert len(found.frames) == KEPT and found.unexamined == 3
    assert found.frames[0].sequence == 500
    assert min(frame.sequence for frame in found.frames) == 2
    causes.begin()
    assert causes.explain().frames == ()


def test_what_is_not_recorded_yet_is_looked_up_when_it_is() -> None:
    causes = made(until=1200)
    causes.note({**FOUND, "slowest": [[5, 1000, 1500]]})
    assert causes.explain().unexamined == 1
    causes.recorder.recording.until = 2000  # type: ignore[misc]
    assert causes.explain().unexamined == 0


def test_slices_are_put_together() -> None:
    one, other = explained(5, 1000, 1500), explained(9, 1000, 1600)
    both = one.and_later(other)
    assert [frame.sequence for frame in both.frames] == [9, 5]
    (hog,) = both.recurrences
    assert (hog.first_of, hog.longest_us) == (2, 500.0)
