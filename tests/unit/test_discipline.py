"""What is said of who disciplines the clock."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tailrace.measure.discipline import STA_UNSYNC, Discipline, Watched, discipline

PTP = Discipline(synchronised=True, error_us=3, tai_s=37)
NOBODY = Discipline(synchronised=False, error_us=16_000_000, tai_s=0)


def said(*readings: Discipline) -> list[list[str]]:
    left: Iterator[Discipline] = iter(readings)
    watched = Watched(lambda: next(left))
    return [list(watched.look(10.0 * number)) for number in range(len(readings))]


def test_the_kernel_is_asked() -> None:
    found = discipline()
    assert found.error_us >= 0 and -1000 < found.tai_s < 1000
    # Of the same call: TAI is so far ahead of UTC by clock_gettime() too.
    assert round(time.clock_gettime(time.CLOCK_TAI) - time.time()) == found.tai_s
    assert STA_UNSYNC == 64


def test_a_clock_that_is_disciplined_is_said_once() -> None:
    assert said(PTP, PTP) == [["the clock is disciplined, and at most 3 µs off"], []]


def test_a_clock_of_its_own_is_said_once() -> None:
    (first,), second = said(NOBODY, NOBODY)
    assert first.startswith("nothing disciplines the clock (PTP, NTP)") and "so it is UTC" in first
    assert second == []


def test_a_loss_and_its_end_are_said() -> None:
    late = Discipline(synchronised=True, error_us=150_000, tai_s=37)
    _, lost, still, again = said(PTP, late, NOBODY, PTP)
    assert lost == [
        "10 s after the start the clock may have been 150 ms off: PTP or NTP was lost, or corrects it rarely"
    ]
    assert still == []
    assert again == ["30 s after the start the clock was disciplined again"]
