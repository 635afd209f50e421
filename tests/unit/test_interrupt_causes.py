"""The slowest interrupts, explained by what happened on the receiver's CPU."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tailrace.errors import Failure
from tailrace.measure.cause_words import words
from tailrace.measure.causes import Holders, Poller, account
from tailrace.measure.interrupt_causes import _WAY, InterruptCauses
from tailrace.observe.recording import Event, Series
from tailrace.results.causes import KEPT, Causes

HZ = 1_000_000
RECEIVER = Poller("native", 7, 1)
EVENTS = [Event(1000, 1400, 1, "task", 900, "hog", 0), Event(900, 1400, 1, "asleep", 7, "", 0)]
FOUND = {"slowest_missed": 0}


INSIDE = Poller("native", 41, 0, "native")


class Guest:
    """A machine's recorder that knows these events, or fails."""

    def __init__(self, *events: Event, whole: bool = True, fails: bool = False) -> None:
        self.poller = INSIDE
        self.asked: list[Any] = []
        self._events, self._whole, self._fails = events, whole, fails

    def show(self, spans: list[tuple[int, int]], offset: int) -> SimpleNamespace:
        if self._fails:
            raise Failure("it does not answer")
        self.asked.append((spans, offset))
        spans_of = dict.fromkeys(spans, self._events if self._whole else None)
        return SimpleNamespace(spans=spans_of, lost=3, clock_error=9)


def inside(guest: Guest, raised: int, arrived: int) -> tuple[InterruptCauses, Causes]:
    causes = made()
    causes.guest = guest  # type: ignore[assignment]
    causes.note({**FOUND, "slowest": [[5, raised, arrived]], "clock_offset": 77})
    return causes, causes.explain()


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


def test_what_was_lost_is_of_the_slice_and_added_up_also_over_two_recorders() -> None:
    causes, first = inside(Guest(), 1000, 2000)
    causes.begin()
    causes.recorder.recording.lost = 5  # type: ignore[misc]
    causes.note({**FOUND, "slowest": [[6, 1000, 2000]], "clock_offset": 77})
    second = causes.explain()
    assert (first.lost, second.lost) == (3, 5)
    _, other = inside(Guest(), 1000, 2000)
    one = first.and_later(second).model_copy(update={"recorded": {"a": "x"}, "missing": {"b": "not here"}})
    both = one.and_later(other.model_copy(update={"recorded": {"b": "y"}}))
    assert (both.lost, both.recorded, both.missing) == (11, {"a": "x", "b": "y"}, {"b": "not here"})


def test_what_ran_inside_is_the_cause_where_nothing_kept_the_machines_cpu() -> None:
    guest = Guest(
        Event(1200, 1700, 0, "task", 900, "busy", 0, "native"),
        Event(1650, 1700, 0, "interrupt", 0, "local_timer", 0, "native"),
        Event(900, 1800, 0, "asleep", 41, "", 0, "native"),
    )
    causes, found = inside(guest, 1000, 2000)
    assert guest.asked == [([(1000, 2000)], 77)] and found.unexamined_inside == 0
    assert (found.lost, found.clock_error_us) == (3, 9.0)
    (frame,) = found.frames
    assert [(cause.text, cause.us, cause.inside) for cause in frame.causes] == [
        ("another task ran on CPU 1: hog (thread 900)", 400.0, ""),
        ("in native: another task ran on CPU 0: busy (thread 900)", 250.0, "native"),
        ("in native: the receiver was asleep and had to be woken", 100.0, "native"),
        ("in native: the timer's interrupt on CPU 0", 50.0, "native"),
    ]
    assert frame.usual_us == 200.0 and frame.causes[1].knobs == ()
    (slow,) = causes.slow(found)
    assert slow.inside == INSIDE and len(slow.events) == 5
    assert [each.text for each in found.recurrences] == ["another task ran on CPU 1: hog (thread 900)"]


def test_what_an_exit_took_is_its_reasons_but_for_sleep_and_for_what_else_kept_the_machines_cpu() -> None:
    exits = [Event(950, 1450, 1, "exit", 7, "HLT", 12), Event(1500, 1530, 1, "exit", 7, "MSR_WRITE", 32)]
    guest = Guest(Event(1450, 1800, 0, "task", 900, "busy", 0, "native"))
    causes, _ = inside(guest, 1000, 2000)
    (evidence,) = causes._kept.values()
    assert evidence is not None
    passage = Holders(RECEIVER, inside=INSIDE)
    found = account(_WAY, (1000, 2000), [passage], replace(evidence, events=[*evidence.events, *exits]), HZ)
    told = {(share.cause.kind, share.cause.name, share.cause.inside): share.cycles for share in found.shares}
    # The receiver's CPU was another task's while it slept; after that it was on its way back for 50.
    assert told == {
        ("task", "hog", ""): 400, ("exit", "HLT", ""): 50, ("exit", "MSR_WRITE", ""): 30,
        ("task", "busy", "native"): 320,
    }  # fmt: skip
    said = [words(share.cause, share.pollers) for share in found.shares]
    assert "native was left for this host: MSR_WRITE" in said
    assert found.total == 1000 and found.usual == 200


def test_what_is_not_known_of_the_guest_is_counted_and_a_fault_is_kept() -> None:
    _, found = inside(Guest(whole=False), 1000, 2000)
    assert found.unexamined_inside == 1 and len(found.frames) == 1
    causes, found = inside(Guest(fails=True), 1000, 2000)
    assert causes.faults == ["it does not answer"] and causes.guest is None
    assert found.unexamined_inside == 1 and len(found.frames) == 1


def test_of_the_slowest_so_far_the_functions_are_known_too() -> None:
    asked: list[tuple[int, int, int | None]] = []
    function = Event(1100, 1200, 0, "function", 41, "schedule", 0, "native")

    def take(raised: int, arrived: int, offset: int | None) -> list[Event]:
        asked.append((raised, arrived, offset))
        return [function]

    causes = made()
    causes.paths = SimpleNamespace(take=take)  # type: ignore[assignment]
    causes.note({**FOUND, "slowest": [[5, 1000, 1500], [6, 2000, 2010]], "clock_offset": 77})
    causes.note({**FOUND, "slowest": [[5, 1000, 1500], [7, 3000, 3400]], "clock_offset": 77})
    assert asked == [(1000, 1500, 77)]
    slow = {each.frame.sequence: function in each.events for each in causes.slow(causes.explain())}
    assert slow == {5: True, 6: False, 7: False}
    causes.begin()  # the next slice: what was slowest before still counts
    causes.note({**FOUND, "slowest": [[5, 5000, 5500]]})
    assert len(asked) == 1 and not any(function in each.events for each in causes.slow(causes.explain()))
