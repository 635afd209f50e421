"""When what has ended by itself is started again, and what listeners are sent of it."""

from __future__ import annotations

import json

from tailrace.node.events import KEPT, History, stamp
from tailrace.node.restarts import FORGIVEN, PAUSES, Restarts


def test_the_first_start_is_at_once_and_the_pauses_grow() -> None:
    restarts, now = Restarts(), 100.0
    for pause in (*PAUSES, PAUSES[-1]):
        assert restarts.ended("fw", now) == pause
        assert restarts.pause("fw", now) == pause
        now += pause
        assert restarts.due(now) == ["fw"]
        restarts.started("fw", now)
        assert restarts.due(now) == [] and restarts.next_in(now) is None


def test_what_has_run_for_long_begins_anew_and_what_does_not_start_does_not() -> None:
    restarts = Restarts()
    restarts.ended("fw", 0.0)
    restarts.started("fw", 0.0)
    assert restarts.ended("fw", FORGIVEN - 1) == PAUSES[1]
    restarts.started("fw", FORGIVEN)
    assert restarts.ended("fw", 2 * FORGIVEN) == PAUSES[0]
    for pause in PAUSES[1:]:  # the start itself fails, however long that takes
        assert restarts.ended("fw", 10 * FORGIVEN) == pause


def test_each_has_pauses_of_its_own_and_the_next_is_known() -> None:
    restarts = Restarts()
    restarts.ended("a", 0.0)
    restarts.ended("a", 0.0)
    restarts.ended("b", 0.5)
    assert restarts.due(0.5) == ["b"] and restarts.next_in(0.5) == 0.0
    restarts.started("b", 0.5)
    assert restarts.next_in(0.5) == PAUSES[1] - 0.5
    assert restarts.pause("c", 0.0) is None


def numbers(lines: list[bytes]) -> list[int]:
    return [json.loads(line)["params"]["number"] for line in lines]


def test_events_are_kept_in_order_and_the_oldest_go() -> None:
    history = History()
    for count in range(KEPT + 5):
        history.add("port.up", f"p{count}", {}, 0.0)
    assert history.next == KEPT + 6
    lost, lines, after = history.since(1, 3)
    assert (lost, numbers(lines), after) == (5, [6, 7, 8], 9)
    lost, lines, after = history.since(KEPT + 4, 100)
    assert (lost, numbers(lines), after) == (0, [KEPT + 4, KEPT + 5], KEPT + 6)
    assert history.since(KEPT + 6, 100) == (0, [], KEPT + 6)


def test_a_time_is_written_as_rfc_3339_has_it() -> None:
    assert stamp(0.0625) == "1970-01-01T00:00:00.062Z"
    assert stamp(1e9) == "2001-09-09T01:46:40.000Z"
