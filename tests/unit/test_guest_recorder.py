"""What a machine's recorder says is read within its bounds, by this host's clock; a machine may say anything."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import Failure
from tailrace.functions import agent
from tailrace.measure.causes import Evidence, Poller, _spans_of
from tailrace.measure.guest_recorder import MOST_OF_SPAN, MOST_SPANS, GuestRecorder
from tailrace.observe.recording import Event

HEAD = "until 5000 oldest 0 lost 2 clock 7\n"
AHEAD = 1000
"""Cycles that the machine's TSC is ahead."""


def recorder() -> GuestRecorder:
    return GuestRecorder("tuned", Path("agent"), Poller("tuned", 41, 0, "tuned"))


def answering(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """Its agent gives these answers; returns what it was asked."""
    asked: list[str] = []

    def ask(path: Path, command: str, seconds: float) -> str:
        assert path == Path("agent") and seconds > 0
        asked.append(command)
        return answers[min(len(asked), len(answers)) - 1]

    monkeypatch.setattr(agent, "ask", ask)
    return asked


def test_what_it_knows_of_a_span_is_by_this_hosts_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        "lacks steal time: none\nlacks page faults: not here\n"
        "event 1090 1150 0 task 7 49 a hog\x1b[0m\nevent 10 20 0 task 7 49 before\n"
        "event 1100 1110 3 task 8 0 of another CPU\nevent 1100 1110 0 steal 8 0 x\nspan 1100 1200\n"
    )
    asked = answering(monkeypatch, HEAD + lines)
    machine = recorder()
    shown = machine.show([(100, 200)], AHEAD)
    assert asked == ["tailrace-recorder --show /run/recorder --span 1100-1200"]
    assert shown.spans == {(100, 200): (Event(90, 150, 0, "task", 7, "a hog [0m", 49, "tuned"),)}
    assert (shown.lost, shown.clock_error) == (2, 7)
    assert machine.lacks == {"page faults": "not here"}


def test_what_was_overwritten_or_is_not_there_yet_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, "until 500 oldest 200 lost 0 clock 0\nspan 100 150\nspan 300 400\nspan 450 600\n")
    assert recorder().show([(100, 150), (300, 400), (450, 600)], 0).spans == {
        (100, 150): None, (300, 400): (), (450, 600): None,
    }  # fmt: skip


def test_what_had_no_room_is_asked_for_again_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(monkeypatch, HEAD + "span 1 2\n", HEAD, HEAD, HEAD + "span 5 6\n", HEAD)
    assert recorder().show([(1, 2), (3, 4), (5, 6)], 0).spans == {(1, 2): (), (3, 4): None, (5, 6): ()}
    assert [re.findall(r"\d+-\d+", each) for each in asked] == [
        ["1-2", "3-4", "5-6"], ["3-4", "5-6"], ["3-4", "5-6"], ["3-4", "5-6"], ["3-4"], ["3-4"], ["3-4"],
    ]  # fmt: skip


def test_questions_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering(monkeypatch, HEAD + "".join(f"span {at} {at + 1}\n" for at in range(0, 400, 2)))
    assert len(recorder().show([(at, at + 1) for at in range(0, 400, 2)], 0).spans) == 200
    assert len(asked) == 200 // MOST_SPANS


def test_an_event_reaches_out_of_its_span_so_far_only(monkeypatch: pytest.MonkeyPatch) -> None:
    last = (1 << 64) - 1
    begin, end = 1 << 40, (1 << 40) + 100
    answering(monkeypatch, f"until {last} oldest 0 lost 0 clock 0\nevent 0 {last} 0 task 7 0 x\nspan {begin} {end}\n")
    events = recorder().show([(begin, end)], 0).spans[begin, end]
    assert events is not None
    (event,) = events
    assert begin - event.begin == 1 << 31 and event.end - end == 1 << 22


def told(monkeypatch: pytest.MonkeyPatch, *events: str) -> tuple[Event, ...] | None:
    """What is known of a span after it said that these were in it."""
    lines = "".join(f"event {each} 0 x\n" for each in events)
    answering(monkeypatch, f"until 90000 oldest 0 lost 0 clock 0\n{lines}span 1000 9000\n")
    return recorder().show([(1000, 9000)], 0).spans[1000, 9000]


def test_of_what_cannot_overlap_the_later_begins_with_the_end_of_the_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    said = ("1000 1200 0 task 7", "1100 1150 0 task 8", "1190 1300 0 task 9", "1100 1250 0 interrupt 3")
    said += ("1000 1100 0 asleep 41", "1050 1200 0 blocked 41", "1060 1200 0 asleep 42")
    said += ("1200 1200 0 fault 41", "1200 1200 0 fault 41")
    events = told(monkeypatch, *said)
    assert events is not None
    assert [(each.begin, each.end, each.kind, each.id) for each in events] == [
        (1000, 1100, "asleep", 41), (1000, 1200, "task", 7), (1100, 1200, "blocked", 41), (1060, 1200, "asleep", 42),
        (1100, 1250, "interrupt", 3), (1200, 1300, "task", 9), (1200, 1200, "fault", 41), (1200, 1200, "fault", 41),
    ]  # fmt: skip


def test_a_span_of_very_many_events_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    said = [f"{at} {at + 1} 0 task 7" for at in range(1000, 1000 + 2 * MOST_OF_SPAN, 2)]
    assert len(told(monkeypatch, *said) or ()) == MOST_OF_SPAN
    assert told(monkeypatch, *said, "5000 5001 0 task 7") is None


def test_what_a_machine_says_is_cut_into_few_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its tasks lasts as long as all its sleeps, and each of its faults is before each of its waits."""
    half = MOST_OF_SPAN // 2
    sleeps = [f"{at} {at + 1} 0 asleep 41" for at in range(1000, 1000 + 2 * half, 2)]
    tasks = [f"1000 {1000 + 2 * half} 0 task {number}" for number in range(half)]
    faults = [f"{at} {at} 0 fault 41" for at in range(1000, 1000 + half)]
    waits = [f"{1000 + half} {1000 + 2 * half + number} 0 blocked 41" for number in range(half)]
    for said in (sleeps + tasks, faults + waits):
        events = told(monkeypatch, *said)
        assert events is not None and len(events) > half
        assert len(_spans_of(recorder().poller, Evidence(events), 1_000_000)) <= 2 * MOST_OF_SPAN


@pytest.mark.parametrize("said", ["", "until", "until 1 oldest 2 lost 3", "until x oldest 0 lost 0 clock 0\n"])
def test_an_answer_without_a_head_is_a_failure(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    answering(monkeypatch, said)
    with pytest.raises(Failure, match="is not understood"):
        recorder().show([], 0)


@given(
    st.lists(
        st.one_of(
            st.text(max_size=60),
            st.from_regex(
                r"event \d{1,20} \d{1,20} 0 (task|fault|interrupt) \d{1,10} \d{1,10} .{0,40}", fullmatch=True
            ),
            st.from_regex(r"span (1100|[0-9]{1,20}) (1200|[0-9]{1,20})", fullmatch=True),
            st.just("span 1100 1200"),
        ),
        max_size=40,
    ),
    st.integers(-(1 << 63), (1 << 63) - 1),
)
def test_whatever_it_says_what_is_known_is_of_the_spans_asked_for(lines: list[str], offset: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        answering(patched, HEAD + "\n".join(lines))
        shown = recorder().show([(100, 200)], offset)
    assert set(shown.spans) == {(100, 200)}
    for event in shown.spans[100, 200] or ():
        assert event.begin <= 200 and event.end >= 100 and event.inside == "tuned" and event.name.isprintable()
    assert len(shown.spans[100, 200] or ()) <= MOST_OF_SPAN
