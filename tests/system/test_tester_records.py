"""The tester over days: interval records while a trial runs, counters and clocks at the end of their range, and memory
that does not grow. Its two ports are joined with each other, so every frame comes back once and in order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from running_switch import wait_until
from running_tester import RunningTester, both_ways

from tailrace.process.control import FAILED, ControlError

HOURS_40 = 40 * 3600.0
FAULTS = ("lost", "duplicate", "out_of_sequence", "beyond_window", "foreign")


@pytest.fixture
def tester(binaries: Path, tmp_path: Path) -> Iterator[RunningTester]:
    socket = tmp_path / "joined.sock"
    ports = {"a": f"vdev:net_vhost0,iface={socket}", "b": f"vhost:{socket}"}
    tester = RunningTester(binaries / "tester/tailrace-tester", tmp_path, ports)
    try:
        wait_until(lambda: all(port["link"] == "up" for port in tester.call("port.list")), "links")
        yield tester
    finally:
        assert tester.end() == 0


def all_records(tester: RunningTester, kept: int = 0) -> list[dict[str, Any]]:
    """The records of a trial from `kept` on, taken while it runs, until it has ended."""
    found: list[dict[str, Any]] = []

    def ended() -> bool:
        answer = tester.call("trial.records", kept=kept + len(found))
        found.extend(answer["records"])
        return bool(answer["ended"]) and not answer["records"]

    wait_until(ended, "the trial's end")
    return found


def test_records_follow_each_other_and_add_up_to_the_result(tester: RunningTester) -> None:
    tester.start(both_ways(20_000), 2.0, wait=0.1, record=0.1)
    records = all_records(tester)
    result = tester.call("trial.result")
    assert [record["number"] for record in records] == list(range(len(records)))
    assert len(records) >= 15
    assert records[0]["start"] == 0
    assert all(one["end"] == after["start"] for one, after in pairwise(records))
    assert records[-1]["end"] == pytest.approx(result["duration"])
    for number, whole in enumerate(result["streams"]):
        parts = [record["streams"][number] for record in records]
        assert [part["name"] for part in parts] == [whole["name"]] * len(parts)
        for key in ("offered", "sent", "unsent", "received", "lost", "sent_bytes", "received_bytes"):
            values = [part[key] for part in parts]
            assert values[-1] == whole[key], key
            assert values == sorted(values), key
        assert whole["lost"] == 0 and whole["sent"] > 0
        latency = whole["latency"]
        for key in ("count", "sum_ns"):
            assert sum(part["latency"][key] for part in parts) == latency[key]
        assert max(part["latency"]["max_ns"] for part in parts) == latency["max_ns"]
        assert min(part["latency"]["min_ns"] for part in parts if part["latency"]["count"]) == latency["min_ns"]
        together: dict[int, int] = {}
        for part in parts:
            for index, count in part["latency"]["counts"]:
                together[index] = together.get(index, 0) + count
        assert [list(pair) for pair in sorted(together.items())] == latency["counts"]


def test_a_record_is_given_again_until_it_is_kept(tester: RunningTester) -> None:
    tester.start(both_ways(1000), 1.0, wait=0.05, record=0.1)
    wait_until(lambda: bool(tester.call("trial.records")["records"]), "a record")
    first = tester.call("trial.records")["records"][0]
    assert first["number"] == 0
    assert tester.call("trial.records")["records"][0] == first
    assert all(record["number"] > 0 for record in tester.call("trial.records", kept=1)["records"])
    assert all_records(tester, 1)[0]["number"] == 1
    tester.start(both_ways(1000), 0.1, wait=0.05)
    with pytest.raises(ControlError, match="begin one with `record`") as refused:
        tester.call("trial.records")
    assert refused.value.code == FAILED
    tester.wait_end()


def test_records_that_nobody_reads_become_longer_and_lose_nothing(tester: RunningTester) -> None:
    result = tester.trial(both_ways(10_000), 1.0, wait=0.05, record=0.02)
    records = all_records(tester)
    assert len(records) == 8
    assert records[-1]["end"] - records[-1]["start"] > 0.5
    for number, whole in enumerate(result["streams"]):
        assert sum(record["streams"][number]["latency"]["count"] for record in records) == whole["received"]


@pytest.mark.parametrize(
    ("rate", "age", "params"),
    [
        pytest.param(10_000_000, HOURS_40, {}, id="40-hours-at-10-Mpps"),
        pytest.param(100_000, HOURS_40, {}, id="40-hours", marks=pytest.mark.whole),
        pytest.param(100_000, HOURS_40, {"clock_wraps_in": 0.7}, id="40-hours-and-the-frames-clock-wraps"),
        pytest.param(100_000, 2**32 / 100_000 - 0.5, {}, id="32-bit-counts"),
        pytest.param(
            100_000,
            HOURS_40,
            {"first_sequence": 2**48 - int(HOURS_40 * 1e5) - 50_000},
            id="the-frames-number-wraps",
        ),
        pytest.param(
            100_000,
            HOURS_40,
            {"first_sequence": 2**48 - 50_000},
            id="the-frames-number-has-wrapped",
            marks=pytest.mark.whole,
        ),
    ],
)
def test_the_end_of_a_long_run_is_exact(tester: RunningTester, rate: int, age: float, params: dict[str, Any]) -> None:
    """The tester begins as one that has run for days: all counters are where they would be, and go on."""
    seconds = 1.0
    tester.start(both_ways(rate), age + seconds, age=age, wait=0.1, record=0.1, **params)
    records = all_records(tester)
    result = tester.call("trial.result")
    before = age * rate
    for number, whole in enumerate(result["streams"]):
        assert whole["offered"] == whole["sent"] + whole["unsent"] == pytest.approx((age + seconds) * rate, abs=1)
        assert whole["received"] == whole["sent"] == whole["latency"]["count"] > before
        assert not any(whole[fault] for fault in FAULTS), whole
        assert whole["unsent"] < (0.5 if rate == 100_000 else 0.99) * rate
        parts = [record["streams"][number] for record in records]
        fresh = sum(part["latency"]["count"] for part in parts)
        assert whole["sent"] - fresh == pytest.approx(before, abs=1)
        assert all(not part[fault] for part in parts for fault in FAULTS)
        # A clock or a number that wrapped wrongly would show as hours, or as a negative time.
        assert all(0 < part["latency"]["max_ns"] < 5e9 for part in parts if part["latency"]["count"])
    assert records[0]["start"] == pytest.approx(age, abs=1e-6)
    assert records[-1]["end"] == pytest.approx(age + seconds, abs=0.01)
    assert result["duration"] == pytest.approx(age + seconds, abs=0.01)


def memory(process: int) -> dict[str, int]:
    """VmRSS and VmData in KiB."""
    lines = (line.split() for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) for words in lines if words[0] in ("VmRSS:", "VmData:")}


@pytest.mark.unsanitized
@pytest.mark.whole
def test_a_thousand_intervals_take_no_more_memory_than_fifty(tester: RunningTester) -> None:
    tester.start(both_ways(20_000), 12.0, wait=0.1, record=0.01)
    kept, early = 0, None
    while True:
        answer = tester.call("trial.records", kept=kept)
        kept += len(answer["records"])
        if early is None and kept >= 50:
            early = memory(tester.process.pid)
        if answer["ended"] and not answer["records"]:
            break
    assert kept >= 500
    assert early is not None
    late = memory(tester.process.pid)
    # The allocator of the control thread may keep a little of what answers took.
    assert late["VmRSS"] <= early["VmRSS"] + 512, (early, late)
    assert late["VmData"] <= early["VmData"] + 512, (early, late)
