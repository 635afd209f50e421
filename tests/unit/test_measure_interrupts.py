"""What is said of interrupts beside their latencies."""

from __future__ import annotations

from tailrace.measure.interrupts import Account, _histogram

WELL = {"raised": 1000, "lost": 0, "wrong": 0, "held": 0, "reset": 0, "clock_error_ns": 0.0}


def test_nothing_is_said_of_interrupts_that_all_arrived_by_one_clock() -> None:
    account = Account()
    account.add(WELL)
    account.add(WELL)
    assert account.raised == 2000
    assert list(account.notes("native")) == []


def test_each_that_did_not_arrive_is_said_by_its_kind() -> None:
    account = Account()
    account.add({**WELL, "lost": 1, "wrong": 2, "held": 3, "reset": 4, "clock_error_ns": 250.0})
    account.add({**WELL, "lost": 1, "clock_error_ns": 100.0})
    lost, wrong, held, reset, clock = account.notes("tuned")
    assert lost == "tuned: 2 of 2000 interrupts did not arrive within a second"
    assert wrong.startswith("tuned: of 2 of 2000 interrupts the receiver named a time")
    assert held.startswith("tuned: 3 times no interrupt was raised")
    assert reset == "tuned: 4 times the clock was set, and the moments began anew from there"
    assert clock == "tuned: its clock and this host's are joined within 0.25 µs"


def test_a_histogram_is_the_senders() -> None:
    found = _histogram({"count": 3, "min_ns": 5, "max_ns": 300, "sum_ns": 310, "counts": [[5, 2], [278, 1]]})
    assert (found.count, found.min_ns, found.max_ns, found.sum_ns) == (3, 5, 300, 310)
    assert found.value_at_rank(3) == 300
    assert _histogram({"count": 0, "min_ns": 0, "max_ns": 0, "sum_ns": 0, "counts": []}).count == 0
