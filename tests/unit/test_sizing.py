"""CPUs by load: at once for a burst, back after a second of idling, and no flapping, whatever the load does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.node.pools import LOOK
from tailrace.node.sizing import CALM, QUIET, RARELY, Sizing


@dataclass
class Simulated:
    """A function whose load is given, in CPUs, by the time; it cannot be busier than all that it has."""

    load: Callable[[float], float]
    sizing: Sizing = field(default_factory=lambda: Sizing(1, 4, 1))
    now: float = 0.0
    changes: list[tuple[float, int, int]] = field(default_factory=list)
    free: int = 64
    asked: list[float] = field(default_factory=list)
    news: int = 0

    def run(self, until: float, step: float = LOOK) -> Simulated:
        while self.now < until:
            load = min(self.load(self.now), self.sizing.count)
            self.now += step
            count = self.sizing.wanted(self.now, step, load)
            if count is None:
                continue
            self.asked.append(self.now)
            if count > self.free:
                self.news += self.sizing.refused(self.now)
                continue
            self.changes.append((self.now, self.sizing.count, count))
            self.sizing.resized(self.now, count)
        return self

    @property
    def flaps(self) -> list[float]:
        """When CPUs were taken that had been given back less than a minute before."""
        pairs = pairwise(self.changes)
        return [
            then
            for (first, was, fewer), (then, _, more) in pairs
            if fewer < was and more > fewer and then - first < CALM
        ]


def steady(load: float) -> Callable[[float], float]:
    return lambda _: load


def square(period: float, high: float = 4.0, low: float = 0.0) -> Callable[[float], float]:
    return lambda now: high if now % period < period / 2 else low


def test_a_burst_gets_more_at_the_first_look() -> None:
    run = Simulated(lambda now: 4.0 if now >= 1.0 else 0.0).run(2.0)
    assert [change[1:] for change in run.changes] == [(1, 2), (2, 4)]
    assert [change[0] for change in run.changes] == pytest.approx([1.0 + LOOK, 1.0 + 2 * LOOK])


def test_how_busy_it_may_be_is_its_own_to_say() -> None:
    run = Simulated(steady(0.3), Sizing(1, 8, 1, 0.1)).run(2.0)
    assert [change[1:] for change in run.changes] == [(1, 5)]
    assert Simulated(steady(0.3), Sizing(1, 8, 1, 0.4)).run(2.0).changes == []


def test_an_idle_one_gives_all_back_within_a_second() -> None:
    run = Simulated(lambda now: 4.0 if now < 5.0 else 0.0).run(8.0)
    assert run.changes[-1][2] == 1
    assert 5.0 < run.changes[-1][0] < 5.9, "which leaves time for the change itself"


def test_it_never_has_fewer_than_the_least() -> None:
    run = Simulated(steady(0.0), Sizing(2, 4, 3)).run(3.0)
    assert [change[1:] for change in run.changes] == [(3, 2)]


@pytest.mark.parametrize("load", [0.3, 0.6, 1.2, 1.4, 2.7])
def test_a_steady_load_is_left_alone(load: float) -> None:
    run = Simulated(steady(load)).run(300.0)
    assert len(run.changes) <= 2
    assert all(now < 1.0 for now, *_ in run.changes)
    assert load <= run.sizing.busy * run.sizing.count


@pytest.mark.parametrize("period", [0.1, 1.0, 1.5, 2.0, 7.0, 20.0, 55.0])
def test_a_square_wave_makes_it_flap_once_a_minute_at_most_and_ever_less(period: float) -> None:
    run = Simulated(square(period)).run(1800.0)
    assert all(later - earlier >= CALM for earlier, later in pairwise(run.flaps))
    assert len(run.flaps) <= 6, "each pause is twice as long as the one before"


def test_a_load_of_the_day_is_followed_without_a_pause() -> None:
    run = Simulated(square(200.0)).run(1000.0)
    back = [now for now, _, count in run.changes if count == 1]
    assert len(back) == 5
    assert all(now % 200.0 - 100.0 < 1.0 for now in back)


def test_after_a_calm_time_it_starts_anew() -> None:
    """What a square wave has taught it is forgotten once a CPU that was given back was not wanted for a minute."""
    run = Simulated(lambda now: square(2.0)(now) if now < 20.0 or now >= 500.0 else 0.0).run(505.0)
    fewer = [now for now, was, count in run.changes if count < was and now > 400.0]
    assert fewer[0] < 503.0


def test_where_none_is_free_it_asks_ever_more_rarely() -> None:
    run = Simulated(steady(4.0), free=1).run(200.0)
    assert run.changes == []
    assert run.news == 1, "it is said once"
    assert len(run.asked) < 15
    pauses = [later - earlier for earlier, later in pairwise(run.asked)]
    assert all(earlier <= later + LOOK for earlier, later in pairwise(pauses))
    assert pauses[-1] == pytest.approx(RARELY, abs=2 * LOOK)
    run.free = 4
    run.run(300.0)
    assert run.sizing.count == 4


def test_one_that_cannot_be_given_back_is_not_asked_for_all_the_time() -> None:
    sizing = Sizing(1, 4, 4)
    asked = 0
    for look in range(1, 200):
        if sizing.wanted(look * LOOK, LOOK, 0.0) is not None:
            asked += 1
            sizing.refused(look * LOOK)
    assert asked == 3


def test_what_an_operator_gave_is_reckoned_from() -> None:
    sizing = Sizing(1, 4, 1)
    sizing.resized(10.0, 3)
    run = Simulated(steady(0.0), sizing, now=10.0).run(12.0)
    assert [change[1:] for change in run.changes] == [(3, 1)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.02, 20.0), st.floats(0.0, 8.0)), min_size=1, max_size=30),
    st.integers(1, 3),
    st.integers(0, 5),
)
def test_whatever_the_load_does(pieces: Sequence[tuple[float, float]], least: int, more: int) -> None:
    ends: list[tuple[float, float]] = []
    for seconds, high in pieces:
        ends.append(((ends[-1][0] if ends else 0.0) + seconds, high))

    def load(now: float) -> float:
        return next((high for end, high in ends if now < end), 0.0)

    run = Simulated(load, Sizing(least, least + more, least)).run(ends[-1][0] + 1.0)
    assert all(least <= count <= least + more for *_, count in run.changes)
    assert all(count != was for _, was, count in run.changes)
    assert all(later - earlier >= CALM for earlier, later in pairwise(run.flaps))
    given_back = [now for now, was, count in run.changes if count < was]
    assert all(later - earlier >= QUIET for earlier, later in pairwise(given_back))


@settings(max_examples=60, deadline=None)
@given(st.floats(0.1, 1.0), st.floats(0.0, 5.0))
def test_a_full_function_has_more_at_the_next_look(above: float, began: float) -> None:
    """Where it has room, however often it has changed before."""
    run = Simulated(square(2.0)).run(60.0 + began)
    run.load = steady(4.0 + above)
    before, had = run.now, run.sizing.count
    run.run(before + 3 * LOOK)
    assert run.sizing.count == 4
    assert had == 4 or next(now for now, *_ in run.changes if now > before) <= before + 2 * LOOK
