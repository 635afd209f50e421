"""A part of a soak with a tester that is made up: counts, a clock that is set, a disk that fills, an early end."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from soaks import WAYS, header

from tailrace.errors import Failure, Fault
from tailrace.measure import soaking
from tailrace.measure.soaking import Soaking
from tailrace.measure.tester import Stopped
from tailrace.process.control import ControlLost
from tailrace.results.interval_log import IntervalLog, LogReader
from tailrace.results.intervals import End, Interval, Part
from tailrace.results.soak import Totals, read_totals

INTERVAL = 0.01


class MadeUpTester:
    """Hands over a record at each look, `each` frames in it; then it has ended."""

    def __init__(self, records: int, each: int = 100, clock: Callable[[int], float] = lambda _: 0.0) -> None:
        self.control: Any = self
        self.records = records
        self.each = each
        self.clock = clock
        self.started: dict[str, Any] = {}
        self.stopped = False
        self.state = "done"
        self._given = 0

    def begin(self, streams: list[dict[str, Any]], seconds: float, **more: Any) -> None:
        self.started = {"streams": streams, "seconds": seconds, **more}

    def cut_short(self, wait: float) -> None:
        assert wait >= 0
        self.stopped = True
        self.records = self._given

    def call(self, method: str, kept: int = 0) -> dict[str, Any]:
        if method == "trial.status":
            return {"state": self.state, "reason": "the link of port a went down"}
        assert method == "trial.records"
        if kept == self._given and self._given < self.records:
            self._given += 1
        return {
            "ended": self._given == self.records,
            "records": [self._record(number) for number in range(kept, self._given)],
        }

    def _record(self, number: int) -> dict[str, Any]:
        total = self.each * (number + 1)
        counts = dict.fromkeys(("offered", "sent", "received"), total)
        faults = ("lost", "duplicate", "out_of_sequence", "beyond_window", "foreign")
        zero = dict.fromkeys((*faults, "refused", "in_flight", "latest"), 0) | {"window": 4_194_304}
        latency = {"count": self.each, "min_ns": 200, "max_ns": 200, "sum_ns": 200 * self.each, "overflow": 0,
                   "counts": [[200, self.each]]}  # fmt: skip
        return {
            "number": number,
            "start": INTERVAL * number,
            "end": INTERVAL * (number + 1),
            "monotonic": 50.0 + INTERVAL * (number + 1),
            "real_time": 1_795_000_000.0 + INTERVAL * (number + 1) + self.clock(number),
            "streams": [
                {"name": name, **counts, **zero, "sent_bytes": 64 * total, "received_bytes": 64 * total,
                 "latency": latency} for name in WAYS
            ],
        }  # fmt: skip


@pytest.fixture(autouse=True)
def no_slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)


@pytest.fixture(autouse=True)
def clocks_that_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soaking.time, "time", lambda: 1_795_000_000.0)
    monkeypatch.setattr(soaking.time, "monotonic", lambda: 50.0)
    monkeypatch.setattr(soaking.time, "sleep", lambda _: None)


def begin(folder: Path, tester: MadeUpTester, told: list[str] | None = None, seconds: float = 1.0) -> Soaking:
    made = header(seconds, INTERVAL)
    told = [] if told is None else told
    log = IntervalLog.create(folder / "x", made)
    return Soaking(tester, log, Totals(made), check=lambda: None, progress=lambda _: None, tell=told.append)


def read(folder: Path) -> list[Part | Interval | End]:
    return list(LogReader(folder / "x").entries())


def test_every_record_is_in_the_log_and_counts_are_those_of_its_interval(tmp_path: Path) -> None:
    tester = MadeUpTester(20)
    soaking_ = begin(tmp_path, tester)
    soaking_.run()
    entries = read(tmp_path)
    assert isinstance(entries[0], Part) and entries[-1] == End(None)
    kept = [entry for entry in entries if isinstance(entry, Interval)]
    assert [entry.number for entry in kept] == list(range(20))
    assert all(way.sent == way.received == 100 and way.sent_bytes == 6400 for entry in kept for way in entry.ways)
    assert not any(entry.clock_step_s for entry in kept)
    assert tester.started["more"] == {"record": INTERVAL}
    total = soaking_.totals.ways["a-to-b"]
    assert (total.counts["sent"], total.window, total.latest) == (2000, 4_194_304, 0)


def test_a_tester_that_answers_and_does_not_end_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a real-time task has its core: the words that can be had are kept, and Ctrl-C ends the soak."""

    class Starved(MadeUpTester):
        def cut_short(self, wait: float) -> None:
            pass

    soaking_ = begin(tmp_path, Starved(10**9))
    clock = iter(range(50, 10**6))
    monkeypatch.setattr(soaking.time, "monotonic", lambda: float(next(clock)))
    soaking_.log.begin(Part(1, 0.0, 0.0, "this-boot", 0.0))
    soaking_.last_words("interrupted by Ctrl-C")
    ended = read(tmp_path)[-1]
    assert ended == End("interrupted by Ctrl-C", whole=False)


def test_a_clock_that_is_set_is_reported_and_moves_nothing(tmp_path: Path) -> None:
    told: list[str] = []
    soaking_ = begin(tmp_path, MadeUpTester(6, clock=lambda number: -3600.0 if number >= 3 else 0.0), told)
    soaking_.run()
    steps = [entry for entry in read(tmp_path) if isinstance(entry, Interval) and entry.clock_step_s]
    assert [(entry.number, round(entry.clock_step_s, 6)) for entry in steps] == [(3, -3600.0)]
    assert steps[0].start_s == pytest.approx(3 * INTERVAL)
    assert told == [
        "the machine's clock was set by -3600.000 s; the soak uses the TSC, so its figures are not affected"
    ]
    assert soaking_.totals.measured_s == pytest.approx(6 * INTERVAL)


def test_a_clock_that_is_steered_is_not_a_step(tmp_path: Path) -> None:
    soaking_ = begin(tmp_path, MadeUpTester(6, clock=lambda number: 0.09 * number))
    soaking_.run()
    assert not soaking_.totals.clock_steps


def test_a_disk_that_fills_ends_the_soak_and_keeps_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tester = MadeUpTester(20)
    soaking_ = begin(tmp_path, tester)
    pwrite = os.pwrite

    def full(descriptor: int, data: bytes, offset: int) -> int:
        if b'"number":7' in bytes(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(Stopped, match=r"No space left.*the 7 intervals before are kept.*--resume") as stopped:
        soaking_.run()
    assert isinstance(stopped.value.cause, Failure)
    assert tester.stopped
    assert len([entry for entry in read(tmp_path) if isinstance(entry, Interval)]) == 7
    # Once there is room again, what the tester still had is kept too, and the reason.
    monkeypatch.setattr(os, "pwrite", pwrite)
    soaking_.last_words("the disk was full")
    soaking_.last_words("once is enough")
    soaking_.log.close()
    totals, reader = read_totals(tmp_path / "x")
    assert totals.ways["a-to-b"].counts["sent"] == 800 and reader.damaged == 0
    assert totals.ended == End("the disk was full", whole=True)


def test_a_tester_that_is_gone_leaves_what_it_had_handed_over(tmp_path: Path) -> None:
    class Dying(MadeUpTester):
        def call(self, method: str, kept: int = 0) -> dict[str, Any]:
            if self._given == 5 and kept == 5:
                raise ControlLost("connection closed")
            return super().call(method, kept)

    soaking_ = begin(tmp_path, Dying(20))
    with pytest.raises(Stopped):
        soaking_.run()
    entries = read(tmp_path)
    assert len([entry for entry in entries if isinstance(entry, Interval)]) == 5
    assert entries[-1] == End("connection closed", whole=False)


def test_an_interruption_keeps_the_last_records_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tester = MadeUpTester(20)
    soaking_ = begin(tmp_path, tester)
    looks = iter(range(100))

    def check() -> None:
        if next(looks) == 4:
            raise KeyboardInterrupt("interrupted by Ctrl-C")

    soaking_.check = check
    clock = iter(range(50, 10_000))
    monkeypatch.setattr(soaking.time, "monotonic", lambda: float(next(clock)))
    with pytest.raises(Stopped):
        soaking_.run()
    entries = read(tmp_path)
    assert tester.stopped
    assert entries[-1] == End("interrupted by Ctrl-C")
    assert len(entries) > 3


def test_a_port_that_goes_down_is_a_fault(tmp_path: Path) -> None:
    tester = MadeUpTester(5)
    tester.state = "failed"
    with pytest.raises(Stopped) as stopped:
        begin(tmp_path, tester).run()
    assert isinstance(stopped.value.cause, Fault)
    assert read(tmp_path)[-1] == End("the tester failed: the link of port a went down")


def test_it_is_gone_on_with_for_the_rest_of_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(tmp_path, MadeUpTester(30)).log.close()
    (tmp_path / "x").unlink()
    first = begin(tmp_path, MadeUpTester(30))
    first.run()
    first.log.close()
    totals, reader = read_totals(tmp_path / "x")
    log, torn = IntervalLog.reopen(reader)
    assert not torn
    tester = MadeUpTester(70)
    assert totals.first is not None
    later = totals.first.boot_time + 1000.0
    monkeypatch.setattr(soaking.time, "clock_gettime", lambda _: later)
    again = Soaking(tester, log, totals, check=lambda: None, progress=lambda _: None, tell=lambda _: None)
    again.run()
    assert tester.started["seconds"] == pytest.approx(0.7)
    assert totals.measured_s == pytest.approx(1.0)
    (gap,) = totals.gaps
    assert (gap.start_s, gap.end_s) == (pytest.approx(0.3), pytest.approx(1000.0))
    kept = [entry for entry in read(tmp_path) if isinstance(entry, Interval)]
    assert kept[30].part == 2 and kept[30].start_s == pytest.approx(1000.0)


def test_one_that_has_had_its_time_measures_nothing(tmp_path: Path) -> None:
    soaking_ = begin(tmp_path, MadeUpTester(3))
    soaking_.totals.measured_s = 0.9
    soaking_.run()
    assert read(tmp_path) == []
