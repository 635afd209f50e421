"""What is said of interrupts beside their latencies."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.functions.machine import InMachine
from tailrace.functions.runtime import Instance
from tailrace.measure.interrupts import GUESTS, Account, Guest, Side, _histogram

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


def test_what_a_receivers_own_timer_raises_has_a_name_of_its_own() -> None:
    assert Side("ue", 1000).name == Side("ue", 1000, clock="tai").name == "interrupt-ue"
    assert Side("ue", 1000, clock="receiver").name == "wakeup-ue"


def test_a_histogram_is_the_senders() -> None:
    found = _histogram({"count": 3, "min_ns": 5, "max_ns": 300, "sum_ns": 310, "counts": [[5, 2], [278, 1]]})
    assert (found.count, found.min_ns, found.max_ns, found.sum_ns) == (3, 5, 300, 310)
    assert found.value_at_rank(3) == 300
    assert _histogram({"count": 0, "min_ns": 0, "max_ns": 0, "sum_ns": 0, "counts": []}).count == 0


@pytest.mark.parametrize(
    ("guest", "priority"), [(GUESTS["tuned"], True), (GUESTS["untuned"], False), (Guest("medium", 384 << 20), False)]
)
def test_a_machine_is_as_it_is_asked_for(monkeypatch: pytest.MonkeyPatch, guest: Guest, priority: bool) -> None:
    started: list[Instance] = []

    def start(_: InMachine, launcher: Any, instance: Instance) -> Any:
        del launcher
        started.append(instance)
        return SimpleNamespace(process=None)

    monkeypatch.setattr(InMachine, "start", start)
    Side("ue", 1000, guest)._machine(SimpleNamespace(), Path("/s/interrupts"), 3, (0, 1), "tailrace", 7)  # type: ignore[arg-type]
    (instance,) = started
    assert (instance.name, instance.latency, instance.memory_bytes) == ("ue", guest.latency, guest.memory_bytes)
    assert instance.place.core == 3 and "/s/interrupts" in instance.domain
    assert ("--priority" in instance.in_place) == priority
