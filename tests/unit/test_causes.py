"""Attribution of a frame's latency: shares add up, nothing is counted twice, and the right one is blamed."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.host.knobs import KNOBS
from tailrace.measure.cause_words import all_knobs, knobs, words
from tailrace.measure.causes import Account, Cause, Evidence, Holders, Hop, Poller, account, late_wakes, real_gaps
from tailrace.measure.hops import Part
from tailrace.observe.gaps import Gap, Rest, Wait
from tailrace.observe.recording import Event

HZ = 2_500_000_000
US = HZ // 1_000_000

TESTER = Poller("tester", 100, 0)
FIRST = Poller("first", 101, 0)
WORKER = Poller("worker-0", 102, 1)
POLLERS = (TESTER, FIRST, WORKER)
WAY = (
    Part("ring", "tester.a to the switch"),
    Part("switch", "tester.a to first.0"),
    Part("function", "first"),
    Part("switch", "first.1 to tester.b"),
    Part("ring", "the switch to tester.b"),
)
HOPS = (Hop(WORKER, 1, 2, "first.0", FIRST), Hop(WORKER, 3, 4, "tester.b", TESTER))
HOLDERS = (
    Holders(WORKER, TESTER, HOPS),
    Holders(WORKER),
    Holders(FIRST, WORKER, HOPS[1:]),
    Holders(WORKER),
    Holders(TESTER, WORKER),
)


def event(begin: int, end: int, cpu: int, kind: str, id_: int = 0, name: str = "") -> Event:
    return Event(begin * US, end * US, cpu, kind, id_, name, 0)


def gap(begin: int, end: int, frames: int = 0) -> Gap:
    return Gap(begin * US, end * US, frames)


def wait(begin: int, end: int, hop: Hop) -> Wait:
    return Wait(begin * US, end * US, hop.source, hop.target)


def explained(
    parts: list[int], events: list[Event], gaps: dict[int, list[Gap]] | None = None, waits: list[Wait] | None = None
) -> Account:
    """The account of a frame sent at 1000 µs whose parts take so many µs; the switch's worker noted the waits."""
    times = [at * US for at in accumulate(parts, initial=1000)]
    found = account(WAY, times, HOLDERS, Evidence(events, gaps or {}, {WORKER.thread: waits or []}, POLLERS), HZ)
    assert found.total == times[-1] - times[0]
    return found


def shares(found: Account) -> list[tuple[str, str, str, float]]:
    return [(share.cause.kind, share.pollers[0], share.part.name, share.cycles / US) for share in found.shares]


def test_without_events_all_time_is_usual() -> None:
    found = explained([3, 1, 5, 1, 2], [])
    assert (found.shares, found.unexplained, found.usual) == ((), 0, 12 * US)


def test_a_task_on_the_switchs_core_is_to_blame_for_the_wait_in_the_ring() -> None:
    found = explained([210, 1, 5, 1, 2], [event(1005, 1205, 1, "task", 900, "hog")], {102: [gap(1004, 1206)]})
    assert shares(found) == [("task", "worker-0", "tester.a to the switch", 200)]
    assert (found.unexplained, found.usual) == (2 * US, 17 * US)
    assert found.shares[0].cause.name == "hog"


def test_a_task_that_is_the_poller_itself_is_no_cause() -> None:
    assert explained([210, 1, 5, 1, 2], [event(900, 1205, 1, "task", WORKER.thread)]).shares == ()


def test_an_interrupt_within_a_task_is_counted_once() -> None:
    found = explained(
        [300, 1, 5, 1, 2],
        [event(1000, 1200, 1, "task", 900, "hog"), event(1050, 1060, 1, "interrupt", 0, "local_timer")],
    )
    assert [(kind, us) for kind, _, _, us in shares(found)] == [("task", 190), ("interrupt", 10)]


def test_what_happens_on_another_cpu_does_not_matter() -> None:
    events = [event(1000, 1200, 0, "softirq", 3, "NET_RX"), event(1000, 1200, 2, "task", 900, "hog")]
    assert explained([210, 1, 5, 1, 2], events).shares == ()


def test_a_stopped_function_is_stopped_whatever_else_runs_on_its_core() -> None:
    found = explained(
        [3, 1, 5000, 1, 2],
        [event(1010, 5990, 0, "stopped", FIRST.thread), event(1010, 5990, 0, "task", TESTER.thread, "lcore-worker-1")],
    )
    assert shares(found) == [("stopped", "first", "first", 4980)]


def test_a_gap_that_nothing_explains_is_said_to_be_unexplained() -> None:
    found = explained([210, 1, 5, 1, 2], [], {102: [gap(1004, 1206)]})
    assert found.shares == ()
    assert found.unexplained == 202 * US
    assert found.unexplained_most is not None
    assert (found.unexplained_most.part, found.unexplained_most.cause.cpu) == (WAY[0], WORKER.cpu)


def test_a_long_round_that_moved_many_frames_is_work() -> None:
    assert real_gaps([gap(0, 30, 64), gap(0, 33, 64), gap(0, 6, 1)], HZ) == [gap(0, 33, 64), gap(0, 6, 1)]


def test_a_page_fault_takes_its_gap_from_where_it_began() -> None:
    found = explained(
        [3, 1, 400, 1, 2], [event(1050, 1050, 0, "fault", FIRST.thread)], {FIRST.thread: [gap(1040, 1340)]}
    )
    assert shares(found) == [("fault", "first", "first", 290)]
    assert found.unexplained == 10 * US


def test_a_wait_for_the_disk_after_a_page_fault_is_the_faults() -> None:
    events = [
        event(1050, 1050, 0, "fault", FIRST.thread),
        event(1060, 1330, 0, "blocked", FIRST.thread),
        event(1060, 1330, 0, "task", TESTER.thread, "lcore-worker-1"),
    ]
    found = explained([3, 1, 400, 1, 2], events, {FIRST.thread: [gap(1040, 1340)]})
    assert shares(found) == [("fault", "first", "first", 290)]


def test_a_page_fault_on_the_way_out_of_sleep_is_in_no_gap() -> None:
    events = [
        event(990, 1020, 0, "asleep", FIRST.thread),
        event(1025, 1025, 0, "fault", FIRST.thread),
        event(1030, 1330, 0, "blocked", FIRST.thread),
        event(1030, 1330, 0, "task", TESTER.thread, "lcore-worker-1"),
        event(1400, 1450, 0, "blocked", FIRST.thread),
    ]
    found = explained([3, 1, 500, 1, 2], events)
    assert shares(found) == [
        ("fault", "first", "first", 305),
        ("blocked", "first", "first", 50),
        ("asleep", "first", "first", 16),
    ]


def test_a_frame_that_waits_for_room_is_held_up_by_who_should_have_made_some() -> None:
    ran = event(1010, 1990, 0, "task", FIRST.thread, "tailrace-vnf")
    found = explained([3, 1, 1000, 1, 200], [ran], {TESTER.thread: [gap(1009, 1992)]}, [wait(1100, 2001, HOPS[1])])
    assert shares(found) == [("task", "tester", "first", 890), ("full", "worker-0", "first", 9)]
    assert found.unexplained == 2 * US
    assert found.unexplained_most is not None
    assert (found.unexplained_most.part, found.unexplained_most.cause.cpu) == (WAY[2], FIRST.cpu)
    assert words(found.shares[1].cause, found.shares[1].pollers) == "tester.b had no room"
    # Without the switch's word for it, nobody knows that the frame waited for the tester.
    assert explained([3, 1, 1000, 1, 200], [ran], {TESTER.thread: [gap(1009, 1992)]}).shares == ()
    # Nor is it to blame while another port had no room.
    assert explained([3, 1, 1000, 1, 200], [ran], waits=[Wait(1100 * US, 2001 * US, 9, 4)]).shares == ()


def test_of_rings_that_fill_up_one_after_the_other_the_last_is_to_blame() -> None:
    stopped = [event(1050, 1900, 0, "stopped", TESTER.thread)]
    found = explained([950, 1, 40, 1, 20], stopped, waits=[wait(1300, 1940, HOPS[0]), wait(1200, 1930, HOPS[1])])
    assert shares(found) == [
        ("stopped", "tester", "tester.a to the switch", 600),
        ("full", "worker-0", "tester.a to the switch", 30),
        ("full", "worker-0", "tester.a to the switch", 10),
    ]
    assert [share.cause.name for share in found.shares[1:]] == ["tester.b", "first.0"]
    # A function that had room is not held up by the one after it.
    assert explained([950, 1, 40, 1, 20], stopped, waits=[wait(1200, 1930, HOPS[1])]).shares == ()


def test_a_gap_of_the_last_of_them_goes_before_its_full_ring() -> None:
    evidence = Evidence(
        gaps={TESTER.thread: [gap(1050, 1920)]},
        waits={WORKER.thread: [wait(1010, 1940, HOPS[0]), wait(1020, 1930, HOPS[1])]},
    )
    found = account(WAY[:1], [1000 * US, 1950 * US], [Holders(WORKER, onward=HOPS)], evidence, HZ)
    assert found.unexplained == 870 * US
    assert [(share.cause.name, share.cycles // US) for share in found.shares] == [("tester.b", 40), ("first.0", 20)]


def test_who_has_the_frame_comes_before_who_should_make_room() -> None:
    events = [event(1050, 1500, 0, "stopped", FIRST.thread), event(1400, 1900, 0, "stopped", TESTER.thread)]
    found = explained([3, 1, 1000, 1, 20], events, waits=[wait(1010, 2002, HOPS[1])])
    assert shares(found) == [
        ("stopped", "first", "first", 450),
        ("stopped", "tester", "first", 400),
        ("full", "worker-0", "first", 142),
    ]


def test_what_comes_between_waking_and_working_is_a_gap() -> None:
    events = [event(900, 1100, 0, "asleep", FIRST.thread), event(1200, 1250, 0, "asleep", 99)]
    rest, limit = Rest(899 * US, 1400 * US), 5 * US
    gaps = list(late_wakes([rest], FIRST.thread, events, limit))
    assert gaps == [gap(1100, 1400)]
    found = explained([3, 1, 500, 1, 20], [*events, event(1150, 1180, 0, "softirq", 3, "NET_RX")], {FIRST.thread: gaps})
    assert shares(found) == [("asleep", "first", "first", 96), ("softirq", "first", "first", 30)]
    assert found.unexplained == 270 * US
    # A few microseconds are its usual way back, and nobody knows when it woke if the kernel did not say.
    assert not list(late_wakes([Rest(899 * US, 1105 * US)], FIRST.thread, events, limit))
    assert not list(late_wakes([rest], FIRST.thread, [], limit))
    assert not list(late_wakes([Rest(1150 * US, 1400 * US)], FIRST.thread, events, limit))


def test_the_sender_counts_only_in_its_own_gaps() -> None:
    hog = event(1000, 1180, 0, "task", 900, "hog")
    assert explained([210, 1, 5, 1, 2], [hog]).shares == ()
    found = explained([210, 1, 5, 1, 2], [hog], {TESTER.thread: [gap(990, 1190)]})
    assert shares(found) == [("task", "tester", "tester.a to the switch", 180)]


def test_a_known_cause_of_the_second_goes_before_an_unexplained_gap_of_the_first() -> None:
    gaps = {TESTER.thread: [gap(990, 1190)], WORKER.thread: [gap(1000, 1190)]}
    found = explained([210, 1, 5, 1, 2], [event(1000, 1180, 0, "stopped", TESTER.thread)], gaps)
    assert shares(found) == [("stopped", "tester", "tester.a to the switch", 180)]
    assert found.unexplained == 10 * US


def test_who_sleeps_may_not_have_been_woken_because_the_other_was_held_up() -> None:
    events = [
        event(1004, 1500, 0, "asleep", FIRST.thread),
        event(1004, 1500, 0, "task", TESTER.thread, "lcore-worker-1"),
    ]
    hog = event(1010, 1400, 1, "task", 900, "hog")
    found = explained([3, 1, 500, 1, 2], [*events, hog], {WORKER.thread: [gap(1009, 1401)]})
    assert shares(found)[0] == ("task", "worker-0", "first", 390)
    # ... and where the other was not, what its CPU did meanwhile is explained.
    found = explained([3, 1, 500, 1, 2], events)
    assert [(share.cause.id, share.cycles) for share in found.shares] == [(TESTER.thread, 496 * US)]
    found = explained([3, 1, 500, 1, 2], events[:1])
    assert shares(found) == [("asleep", "first", "first", 496)]


def test_a_cause_over_several_parts_is_one() -> None:
    found = explained([10, 1, 5, 60, 2], [event(1000, 1080, 1, "nmi"), event(1000, 1080, 0, "task", 900, "hog")])
    assert shares(found)[0] == ("nmi", "worker-0", "first.1 to tester.b", 71)


def test_a_cause_that_held_up_several_on_its_cpu_is_one() -> None:
    other = event(1120, 1620, 0, "task", 901, "other")
    hog = [event(1020, 1120, 0, "task", 900, "hog"), event(1620, 2011, 0, "task", 900, "hog"),
           event(2012, 2500, 0, "task", 900, "hog")]  # fmt: skip
    found = explained([10, 1, 1000, 1, 600], [other, *hog])
    assert [(share.cause.name, share.cycles // US, share.events) for share in found.shares] == [
        ("hog", 979, 3),
        ("other", 500, 1),
    ]
    assert found.shares[0].held == (("first", 491 * US), ("tester", 488 * US))
    assert found.first is found.shares[0]


def test_what_is_unexplained_ranks_first_where_it_is_more() -> None:
    hog = event(1010, 1100, 1, "task", 900, "hog")
    found = explained([400, 1, 5, 1, 2], [hog], {WORKER.thread: [gap(1010, 1191)]})
    assert found.first is not None and found.first.cause.kind == "unexplained"
    found = explained([400, 1, 5, 1, 2], [hog], {WORKER.thread: [gap(1010, 1190)]})
    assert found.first is found.shares[0]


def test_a_cpu_that_was_gone_while_one_slept_is_not_the_sleeps() -> None:
    """The kernel believes that the tester ran; the tester knows that it did not."""
    events = [
        event(1004, 1500, 0, "asleep", FIRST.thread),
        event(1004, 1500, 0, "task", TESTER.thread, "lcore-worker-1"),
        event(1100, 1130, 0, "softirq", 3, "NET_RX"),
    ]
    parts = [3, 1, 520, 1, 2]
    found = explained(parts, events, {TESTER.thread: [gap(1010, 1400)]})
    assert found.unexplained == 360 * US
    assert [(share.cause.kind, share.cycles // US) for share in found.shares] == [("task", 106), ("softirq", 30)]
    assert found.unexplained_most is not None
    assert (found.unexplained_most.part, found.unexplained_most.cause.cpu) == (WAY[2], 0)
    # Also where the kernel does not say who ran.
    found = explained(parts, [events[0]], {TESTER.thread: [gap(1010, 1400)]})
    assert (found.unexplained, shares(found)) == (390 * US, [("asleep", "first", "first", 106)])
    # A gap that the kernel explains is that of its cause, and one on another CPU is another matter.
    hog = event(1010, 1400, 0, "task", 900, "hog")
    found = explained(parts, [events[0], hog], {TESTER.thread: [gap(1010, 1400)]})
    assert (found.unexplained, found.shares[0].cause.name) == (0, "hog")
    elsewhere = (FIRST, WORKER, Poller("tester", TESTER.thread, 2))
    evidence = Evidence(events[:1], {TESTER.thread: [gap(1010, 1400)]}, pollers=elsewhere)
    times = [at * US for at in accumulate(parts, initial=1000)]
    assert account(WAY, times, HOLDERS, evidence, HZ).unexplained == 0
    # ... nor does it matter what happened while the other slept, and this one was awake.
    found = explained(parts, [], {TESTER.thread: [gap(1010, 1400)]})
    assert found.unexplained == 0


_KINDS = ("interrupt", "softirq", "nmi", "task", "ready", "asleep", "blocked", "stopped", "exit", "fault")
_EVENTS = st.builds(
    lambda at, length, cpu, kind, id_: event(at, at if kind == "fault" else at + length, cpu, kind, id_, "x"),
    st.integers(900, 2200),
    st.integers(0, 400),
    st.integers(0, 2),
    st.sampled_from(_KINDS),
    st.sampled_from([100, 101, 102, 900]),
)
_GAPS = st.dictionaries(
    st.sampled_from([100, 101, 102]),
    st.lists(st.builds(lambda at, length, frames: gap(at, at + length, frames), st.integers(900, 2200),
                       st.integers(1, 400), st.integers(0, 64)), max_size=6),
)  # fmt: skip


@given(st.lists(st.integers(0, 300), min_size=5, max_size=5), st.lists(_EVENTS, max_size=25), _GAPS)
def test_shares_add_up_whatever_happened(parts: list[int], events: list[Event], gaps: dict[int, list[Gap]]) -> None:
    found = explained(parts, events, gaps)  # which checks the sum
    assert found.usual >= 0
    assert found.unexplained >= 0
    assert all(share.cycles > 0 and share.events > 0 for share in found.shares)
    assert all(sum(cycles for _, cycles in share.held) == share.cycles for share in found.shares)
    assert len({share.cause for share in found.shares}) == len(found.shares)
    assert [share.cycles for share in found.shares] == sorted((share.cycles for share in found.shares), reverse=True)
    # No cause took longer than its events lasted within the frame's time.
    begin, end = 1000 * US, (1000 + sum(parts)) * US
    for share in found.shares:
        if share.cause.kind in ("interrupt", "softirq", "nmi"):
            lasted = _union(
                (max(each.begin, begin), min(each.end, end))
                for each in events
                if each.kind == share.cause.kind and each.cpu == share.cause.cpu
            )
            assert share.cycles <= lasted


@given(st.lists(_EVENTS, max_size=12), _GAPS)
def test_the_same_event_reported_twice_changes_nothing(events: list[Event], gaps: dict[int, list[Gap]]) -> None:
    parts = [200, 10, 300, 10, 200]
    once, twice = explained(parts, events, gaps), explained(parts, events * 2, gaps)
    assert {s.cause: s.cycles for s in once.shares} == {s.cause: s.cycles for s in twice.shares}
    assert (once.unexplained, once.usual) == (twice.unexplained, twice.usual)


def _union(spans) -> int:  # type: ignore[no-untyped-def]
    edges = sorted((begin, end) for begin, end in spans if end > begin)
    points = sorted({point for span in edges for point in span})
    return sum(
        high - low for low, high in pairwise(points) if any(begin <= low and end >= high for begin, end in edges)
    )


def test_every_knob_that_is_named_exists() -> None:
    assert all_knobs() <= set(KNOBS)


@pytest.mark.parametrize(
    ("cause", "held", "text", "knob"),
    [
        (Cause("task", "hog", 1, 900), ["worker-0"], "another task ran on CPU 1: hog (thread 900)", "isolcpus"),
        (Cause("task", "kworker/1:2", 1, 9), ["worker-0"], "kworker/1:2", "workqueues"),
        (Cause("interrupt", "local_timer", 1, 0), ["worker-0"], "the timer's interrupt on CPU 1", "nohz_full"),
        (Cause("interrupt", "eth0", 1, 38), ["worker-0"], "interrupt 38 (eth0) on CPU 1", "irq_affinity"),
        (Cause("softirq", "NET_RX", 1, 3), ["worker-0"], "the softirq NET_RX on CPU 1", "receive_steering"),
        (Cause("fault", "", 0, 101), ["first"], "page faults of first", "huge_pages_2mib"),
        (Cause("stopped", "", 0, 101), ["first"], "first was stopped by a signal", None),
        (Cause("task", "lcore-worker-1", 0, 101), ["tester", "second"],
         "first ran on CPU 0, which it shares with tester and second", None),
    ],
)  # fmt: skip
def test_causes_in_words(cause: Cause, held: list[str], text: str, knob: str | None) -> None:
    pollers = {101: "first"}
    assert text in words(cause, held, pollers)
    found = knobs(cause, pollers)
    assert (knob in found) if knob is not None else not found
