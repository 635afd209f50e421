"""The interval log of a soak: what a crash, a power cut, a full disk and a bad sector leave, and what it comes to."""

from __future__ import annotations

import errno
import json
import os
import random
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from soaks import START, header, histogram, intervals, part, way, write

from tailrace.observe.watch import View
from tailrace.results import ResultError, RunFolder, load_run
from tailrace.results.histogram import DIGITS, HIGHEST_NS, index_of, read_log
from tailrace.results.interval_log import IntervalLog, LogReader
from tailrace.results.intervals import End, Interval, Part
from tailrace.results.soak import MOST_INTERVALS, Totals, find_log, read_totals, trial_result


@pytest.fixture(autouse=True)
def no_slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)


def read(path: Path) -> list[Part | Interval | End]:
    return list(LogReader(path, histograms=True).entries())


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path, _ = write(tmp_path)
    assert read(path) == [part(), *intervals(5), End(None)]
    assert LogReader(path).header == header(50.0)


def test_a_reader_follows_a_log_that_grows(tmp_path: Path) -> None:
    log = IntervalLog.create(tmp_path / "x", header())
    reader = LogReader(tmp_path / "x")
    assert list(reader.entries()) == []
    log.begin(part())
    made = list(intervals(3))
    log.add(made[0])
    assert [type(entry) for entry in reader.entries()] == [Part, Interval]
    assert list(reader.entries()) == []
    log.add(made[1])
    log.add(made[2])
    assert [entry.number for entry in reader.entries() if isinstance(entry, Interval)] == [1, 2]
    log.close()


def test_it_is_a_histogram_log_that_others_read(tmp_path: Path) -> None:
    path, totals = write(tmp_path)
    found = read_log(path)
    assert set(found) == {"a-to-b", "b-to-a"}
    for name, whole in found.items():
        assert whole.counts == totals_of(path).ways[name].histogram.counts
    lines = [line for line in path.read_text().splitlines() if line.startswith("Tag=a-to-b")]
    assert [line.split(",")[1:3] for line in lines] == [[f"{10 * number}.000", "10.000"] for number in range(5)]
    assert totals.intervals == 5


def test_hdrhistogram_opens_it_while_it_grows(tmp_path: Path) -> None:
    log = IntervalLog.create(tmp_path / "x", header())
    log.begin(part())
    made = list(intervals(3))
    for number, each in enumerate(made, 1):
        log.add(each)
        reader = HistogramLogReader(str(tmp_path / "x"), HdrHistogram(1, HIGHEST_NS, DIGITS))
        found = [reader.get_next_interval_histogram() for _ in range(2 * number)]
        assert reader.get_next_interval_histogram() is None
        reader.close()
        expected = [histogram for interval in made[:number] for histogram in interval.histograms]
        assert [each.get_tag() for each in found] == ["a-to-b", "b-to-a"] * number
        assert [each.get_total_count() for each in found] == [each.count for each in expected]
        assert all(
            abs(one.get_max_value() - each.max_ns) <= each.max_ns / 100
            for one, each in zip(found, expected, strict=True)
        )
    log.close()


def totals_of(path: Path) -> Totals:
    return read_totals(path)[0]


def test_whatever_byte_a_crash_tears_it_at_all_whole_intervals_are_kept(tmp_path: Path) -> None:
    path, _ = write(tmp_path, 3, end=False)
    whole = path.read_bytes()
    first = whole.index(b"#[Part")
    ends = [at + 2 for at in range(len(whole)) if whole.startswith(b"]\n", at) and at > first]
    for size in [*range(first, len(whole), 97), *ends, *(end - 1 for end in ends), len(whole)]:
        path.write_bytes(whole[:size])
        reader = LogReader(path)
        entries = list(reader.entries())
        assert len(entries) == sum(end <= size for end in ends)
        log, torn = IntervalLog.reopen(reader)
        assert torn == size - max([first, *(end for end in ends if end <= size)])
        log.begin(part(2, 100.0))
        log.close()
        assert read(path)[len(entries) :] == [part(2, 100.0)]


def test_zeros_after_a_power_cut_are_dropped(tmp_path: Path) -> None:
    path, _ = write(tmp_path, 3, end=False)
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(bytes(5000))
    reader = LogReader(path)
    assert len(list(reader.entries())) == 4
    assert reader.offset == size
    assert reader.damaged == 0


@pytest.mark.parametrize("header", ["[1,2]", '"x"', "{}", "3", "[" * 100_000, '{"format":"1"}'])
def test_a_log_with_a_damaged_header_is_said_to_be(tmp_path: Path, header: str) -> None:
    path = tmp_path / "x.intervals.hlog"
    path.write_text(f"#[Soak {header}]\n")
    with pytest.raises(ResultError, match="its first lines are damaged"):
        LogReader(path)


WRONG = (None, True, -1, 1.5, 1e300, float("nan"), 10**40, "x", [], [[]], {}, [1], {"x": 1})


def spoiled(document: Any) -> Iterator[Any]:
    """A JSON document with each of its parts in turn replaced by what it may not be, or left out."""
    yield from WRONG
    if isinstance(document, dict):
        for key, value in document.items():
            yield {name: each for name, each in document.items() if name != key}
            yield from ({**document, key: wrong} for wrong in spoiled(value))
    elif isinstance(document, list):
        for at, value in enumerate(document):
            yield from ([*document[:at], wrong, *document[at + 1 :]] for wrong in spoiled(value))


@pytest.mark.parametrize("kind", ["Soak", "Part", "Interval", "End"])
def test_a_log_that_is_wrong_but_for_its_check_sums_is_reported_in_one_line(tmp_path: Path, kind: str) -> None:
    """Or is taken, where what is wrong with it cannot be known: but then all can reckon with it."""
    path, _ = write(tmp_path, 1)
    whole = path.read_bytes()
    begin = whole.index(f"#[{kind} ".encode())
    end = whole.index(b"]\n", begin) + 2
    payload = whole[whole.rindex(b"\n", 0, whole.index(b"Tag=")) + 1 : begin] if kind == "Interval" else b""
    words = whole[begin + 2 : end - 2].split(b" ", 1 if kind == "Soak" else 2)
    told = 0
    for document in spoiled(json.loads(words[-1])):
        text = json.dumps(document).encode()
        check = b"" if kind == "Soak" else b"%08x " % zlib.crc32(payload + text)
        path.write_bytes(whole[:begin] + b"#[%s %s%s]\n" % (kind.encode(), check, text) + whole[end:])
        try:
            read_totals(path)
        except ResultError as error:
            assert str(path) in str(error)
            assert "\n" not in str(error)
            told += 1
        else:
            with suppress(ResultError):  # as of counts that contradict each other
                trial = trial_result(path, read_totals(path)[0], stopped=False)
                run_folder(tmp_path).add_trial(trial, name="x", profile="64", functions=1, offered_pps=1.0)
            with suppress(ResultError):
                View(tmp_path, LogReader(path), Totals(LogReader(path).header)).look().draw(80)
    assert told > 20


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", '"x"', "3", "", "{"])
def test_a_block_that_is_no_object_is_reported_with_the_file(tmp_path: Path, text: str) -> None:
    path, _ = write(tmp_path, 1)
    with path.open("a") as file:
        for kind in ("Part", "Interval", "End", "Other"):
            file.write(f"#[{kind} {zlib.crc32(text.encode()):08x} {text}]\n")
    with pytest.raises(ResultError, match=f"{path}: after its first .* not the log of a soak"):
        read(path)


def test_a_damaged_interval_is_left_out_and_reported(tmp_path: Path) -> None:
    path, _ = write(tmp_path, 5)
    text = path.read_bytes()
    blocks = text.split(b"Tag=a-to-b")
    blocks[2] = blocks[2].replace(b"HIST", b"HISU", 1)
    path.write_bytes(b"Tag=a-to-b".join(blocks))
    totals, reader = read_totals(path)
    assert reader.damaged == 1
    assert totals.intervals == 4
    assert trial_result(path, totals, stopped=False)["soak"].damaged == 1


def test_a_full_disk_costs_only_what_it_cannot_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = IntervalLog.create(tmp_path / "x", header())
    log.begin(part())
    made = list(intervals(3))
    log.add(made[0])
    room = [300]
    pwrite = os.pwrite

    def small(descriptor: int, data: bytes, offset: int) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = pwrite(descriptor, data[: room[0]], offset)
        room[0] -= done
        return done

    monkeypatch.setattr(os, "pwrite", small)
    with pytest.raises(OSError, match="No space"):
        log.add(made[1])
    assert read(tmp_path / "x") == [part(), made[0]]
    room[0] = 1 << 20
    log.add(made[2])
    log.close()
    assert read(tmp_path / "x") == [part(), made[0], made[2]]


@pytest.mark.parametrize("pps", [1.0, 1e3, 1e6, 1e7])
def test_a_log_stays_below_its_bound(tmp_path: Path, pps: float) -> None:
    """With the worst that can be: every bucket used, all alike, and counts that do not compress."""
    made = header(100.0, pps=pps)
    log = IntervalLog.create(tmp_path / "x", made)
    log.begin(part())
    frames = int(pps * 10)
    buckets = min(index_of(1 << 34), frames)
    chance = random.Random(5)
    counts = tuple((index, chance.randrange(max(frames // buckets * 9 // 5, 1)) + 1) for index in range(buckets))
    for interval in intervals(10):
        worst = replace(interval.histograms[0], counts=counts, max_ns=(1 << 34) - 1)
        ways = tuple(
            replace(each, **dict.fromkeys(("sent", "received", "lost", "sent_bytes", "received_bytes"), frames))
            for each in interval.ways
        )
        log.add(replace(interval, ways=ways, histograms=(worst, worst)))
    log.end(End(None))
    log.close()
    size = (tmp_path / "x").stat().st_size
    assert size <= made.most_bytes(10)
    if pps >= 1e6:  # below, so few different counts are left that they compress well
        assert size > made.most_bytes(10) / 2, "the bound is so loose that it says nothing"


def test_totals_add_up_and_a_cut_off_part_leaves_out_what_was_under_way() -> None:
    made = header()
    totals = Totals(made)
    found = histogram(random.Random(1))
    totals.add(part())
    last = Interval(
        1, 0, 0.0, 10.0, START + 10, 0.0,
        (way("a-to-b", found, sent=70, sent_bytes=70 * 64, offered=75, lost=3, in_flight=7),), (found,),
    )  # fmt: skip
    totals.add(last)
    totals.add(part(2, 500.0, boot="another"))
    assert [(gap.start_s, gap.end_s, gap.reason) for gap in totals.gaps] == [(10.0, 500.0, "the machine was rebooted")]
    counts = totals.ways["a-to-b"].counts
    assert (counts["sent"], counts["offered"], counts["lost"], counts["received"]) == (63, 68, 3, 60)
    assert counts["sent_bytes"] == 63 * 64
    totals.add(replace(last, part=2, start_s=500.0, end_s=510.0))
    totals.add(End("interrupted by Ctrl-C"))
    totals.add(part(3, 600.0, boot="another"))
    assert totals.gaps[1].reason == "interrupted by Ctrl-C"
    assert totals.ways["a-to-b"].counts["sent"] == 133
    assert totals.measured_s == 20.0


def run_folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "soak", spec="", host={}, command=["tailrace"], versions={})


def test_a_soak_becomes_a_trial_with_every_interval(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    path, _ = write(folder.path / "histograms", 30)
    assert find_log(folder.path) == path
    totals = totals_of(path)
    trial = folder.add_trial(
        trial_result(path, totals, stopped=False), name="soak-64", profile="64", functions=1, offered_pps=10_000
    )
    assert trial.valid
    assert trial.soak is not None and trial.soak.intervals == 30 and not trial.soak.gaps
    for way_ in trial.directions:
        assert len(way_.intervals) == 30
        assert way_.received == sum(each.received for each in way_.intervals) == 30 * 60
        assert way_.latency_us is not None
        assert way_.latency_us.max == max(each.max_us or 0 for each in way_.intervals)
        assert sum(each.lost or 0 for each in way_.intervals) == way_.lost == 0
    folder.finish()
    assert load_run(folder.path) == folder.run


def test_a_run_is_gone_on_with(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    path, totals = write(folder.path / "histograms", 3)
    names = {"name": "soak-64", "profile": "64", "functions": 1, "offered_pps": 10_000.0}
    folder.add_trial(trial_result(path, totals_of(path), stopped=True), **names)  # type: ignore[arg-type]
    folder.finish()
    assert not folder.run.valid
    again = RunFolder.reopen(folder.path)
    assert not again.run.trials and again.run.finished is None
    again.add_trial(trial_result(path, totals_of(path), stopped=False), **names)  # type: ignore[arg-type]
    again.finish()
    assert again.run.valid
    assert [each.name for each in (folder.path / "histograms").iterdir()].count("soak-64.hlog") == 1
    assert len(list((folder.path / "histograms").iterdir())) == 2
    assert totals.intervals == 3


def test_a_run_that_names_a_file_elsewhere_removes_nothing_there(tmp_path: Path) -> None:
    """It may have been imported: its words are another's."""
    folder = run_folder(tmp_path)
    path, _ = write(folder.path / "histograms", 3)
    names = {"name": "soak-64", "profile": "64", "functions": 1, "offered_pps": 10_000.0}
    folder.add_trial(trial_result(path, totals_of(path), stopped=True), **names)  # type: ignore[arg-type]
    folder.finish()
    mine = tmp_path / "mine.hlog"
    mine.touch()
    results = folder.path / "results.json"
    results.write_text(results.read_text().replace("histograms/soak-64.hlog", os.path.relpath(mine, folder.path)))
    before = results.read_text()
    with pytest.raises(ResultError, match=r"mine\.hlog: outside the run folder"):
        RunFolder.reopen(folder.path)
    assert mine.exists() and results.read_text() == before


def test_of_a_very_long_soak_neighbours_become_one_and_no_extreme_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MOST_INTERVALS >= 14_400
    monkeypatch.setattr("tailrace.results.soak.MOST_INTERVALS", 4)
    path, _ = write(tmp_path, 10)
    result = trial_result(path, totals_of(path), stopped=False)
    found = result["streams"][0]["intervals"]
    assert [each["start"] for each in found] == [0.0, 30.0, 60.0, 90.0]
    assert max(each["max_ns"] for each in found) == result["streams"][0]["latency"]["max_ns"]
    assert min(each["min_ns"] for each in found) == result["streams"][0]["latency"]["min_ns"]
    assert sum(each["received"] for each in found) == 600


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="No such file"):
        LogReader(tmp_path / "none")
    (tmp_path / "x").write_text("#[Histogram log format version 1.3]\n")
    with pytest.raises(ResultError, match="not the log of a soak"):
        LogReader(tmp_path / "x")
    path, _ = write(tmp_path)
    path.write_text(path.read_text().replace('"format":1', '"format":9'))
    with pytest.raises(ResultError, match="upgrade Tailrace"):
        LogReader(path)
    with pytest.raises(ResultError, match="no soak in it"):
        find_log(tmp_path)
