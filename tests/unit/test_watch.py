"""`tailrace watch`: what it makes of a log that grows, that has ended, and that nobody writes any more."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from soaks import header, intervals, part

from tailrace.measure.host.tools import from_values
from tailrace.observe.watch import Beginning, View, blocks, newest, watched
from tailrace.observe.watch_view import Watched
from tailrace.results import ResultError, RunFolder
from tailrace.results.host import HostInterval, HostSoak, HostTrial
from tailrace.results.interval_log import SUFFIX, IntervalLog
from tailrace.results.intervals import End
from tailrace.results.lock import alone_in


@pytest.fixture(autouse=True)
def no_slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)


def begin(folder: Path, name: str = "run") -> IntervalLog:
    place = folder / name / "histograms"
    place.mkdir(parents=True)
    log = IntervalLog.create(place / f"soak-64{SUFFIX}", header(3600.0))
    log.begin(part())
    return log


def drawn(view: Watched, width: int = 80) -> str:
    console = Console(width=width, record=True, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    console.print(view.draw(width))
    return console.export_text()


def test_a_soak_is_followed_while_it_runs(tmp_path: Path) -> None:
    log = begin(tmp_path)
    view = View.open(newest(tmp_path))
    view.look()
    made = list(intervals(20))
    with alone_in(tmp_path / "run"):
        assert "the first interval of 10 s is being measured" in drawn(view)
        for interval in made[:12]:
            log.add(interval)
        view.look()
        assert view.state == "running"
        assert view.totals.intervals == 12
        text = drawn(view)
    assert "2 min 0 s of 1 h 0 min, until" in text
    assert "frames sent" in text and "720" in text
    for interval in made[12:]:
        log.add(interval)
    view.look()
    assert view.as_data()["directions"]["a-to-b"]["sent"] == 20 * 60
    json.dumps(view.as_data())
    log.close()


@pytest.mark.parametrize(
    ("reason", "state", "said"),
    [
        (None, "done", "done"),
        ("the function first was killed", "broken off", "broken off: the function first was killed"),
        ("cut", "cut off", "cut off"),
    ],
)
def test_it_says_how_a_soak_ended(tmp_path: Path, reason: str | None, state: str, said: str) -> None:
    log = begin(tmp_path)
    for interval in intervals(3):
        log.add(interval)
    if state != "cut off":
        log.end(End(reason))
    log.close()
    view = View.open(tmp_path / "run")
    view.look()
    assert view.state == state
    assert said in drawn(view)


@pytest.mark.parametrize("width", [80, 120])
def test_nothing_is_cut_off_however_long_it_ran(tmp_path: Path, width: int) -> None:
    log = begin(tmp_path)
    (interval,) = intervals(1)
    many = 1_440_000_000_000
    ways = tuple(replace(way, sent=many, offered=many, received=many, lost=3, max_ns=9**9) for way in interval.ways)
    log.add(replace(interval, ways=ways, clock_step_s=-3600.0))
    log.begin(part(2, 500.0))
    log.close()
    view = View.open(tmp_path / "run")
    view.look()
    text = drawn(view, width)
    assert "1,440,000,000,000" in text and "…" not in text
    assert "gap: 8 min 10 s from 10 s on (the soak was killed or crashed)" in text
    assert "the clock was set by -3600.000 s at 10 s" in text
    assert max(map(len, text.splitlines())) <= width


def test_no_extreme_is_lost_in_the_line_of_blocks() -> None:
    values = [(1000, False)] * 500 + [(10**6, True)] + [(1000, False)] * 500
    line = blocks(values, 80)
    assert len(line) <= 80
    assert str(line).count("█") == 1 and str(line).count("▁") == len(line) - 1
    assert [span.style for span in line.spans].count("red") == 1


def test_where_there_is_no_soak_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="no soak in it; begin one"):
        newest(tmp_path)
    with pytest.raises(ResultError, match="expected the run folder"):
        View.open(tmp_path)


def first_moment(runs: Path) -> RunFolder:
    """What `measure soak` has made of a run before its log."""
    return RunFolder.create(runs, "soak-chain", spec="", host={}, command=(), versions={}, method="soak")


def test_a_soak_is_watched_from_its_first_moment_and_not_an_older_one(tmp_path: Path) -> None:
    old = begin(tmp_path)
    old.end(End(None))
    old.close()
    os.utime(old.path, (0, 0))
    folder = first_moment(tmp_path)
    with alone_in(folder.path):
        view = watched(newest(tmp_path)).look()
        assert (view.state, view.as_data()["folder"]) == ("running", str(folder.path))
        assert "no interval yet" in drawn(view)
        log = IntervalLog.create(folder.path / "histograms" / f"soak-64{SUFFIX}", header(3600.0))
        log.begin(part())
        for interval in intervals(2):
            log.add(interval)
        view = view.look()
        assert view.as_data()["intervals"] == 2
        log.close()
        assert view.state == "running", "its folder is still held"
    assert view.look().state == "cut off"


def test_a_soak_that_ended_before_its_first_interval_says_why(tmp_path: Path) -> None:
    folder = first_moment(tmp_path)
    view = watched(folder.path).look()
    assert isinstance(view, Beginning) and view.state == "cut off"
    folder.invalidate("the switch was killed")
    folder.finish()
    assert "broken off before its first interval: the switch was killed" in drawn(view.look())
    assert view.look().as_data()["reason"] == "the switch was killed"


def test_one_that_is_about_to_be_gone_on_with_runs(tmp_path: Path) -> None:
    log = begin(tmp_path)
    log.end(End("interrupted by Ctrl-C"))
    log.close()
    view = watched(tmp_path / "run").look()
    assert view.state == "broken off"
    with alone_in(tmp_path / "run"):
        assert view.look().state == "running"


def keep(folder: RunFolder, done: int, worst: dict[int, int]) -> None:
    """So many slices of a minute of 12 hours; in the last, each CPU had such a largest value in µs."""
    found = []
    for cpu, us in worst.items():
        histogram = from_values({5_000: 1_000, 1_000 * us: 1})
        interval = HostInterval(
            start_s=62.0 * (done - 1), samples=1_001, min_us=5, avg_us=5, p99_99_us=us, max_us=us
        )  # fmt: skip
        trial = HostTrial(
            name=f"cyclictest-cpu-cpu{cpu}", test="cyclictest", load="cpu", host_profile=None, cpu=cpu, role="vnf",
            started=folder.run.started, duration_s=60, samples=1_001, missed=0, latency_us=histogram.latency(),
            histogram=None, intervals=(interval,),
        )  # fmt: skip
        found.append((trial, histogram))
    soak = HostSoak(asked_s=43_200, slices=720, done=done, end_s=62.0 * done, boot="this-boot")
    folder.keep_host_slice(found, soak)


def test_a_soak_of_the_host_is_watched_slice_by_slice(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "host", spec="", host={}, command=(), versions={}, method="host")
    with alone_in(folder.path):
        view = watched(newest(tmp_path)).look()
        assert view.state == "running"
        assert "the first slice is being measured" in drawn(view)
        for done, worst in ((1, {1: 40, 2: 70}), (2, {1: 41, 2: 700})):
            keep(folder, done, worst)
            view = view.look()
        text = drawn(view)
        assert max(map(len, text.splitlines())) <= 80
        assert "host, 2 CPUs" in text and "2 min 0 s of 12 h 0 min, 2 of 720 slices, until" in text
        assert " ".join(text.splitlines()[-1].split()) == "cyclictest, load cpu 1,001 700 700 2 vnf 1 min 2 s"
        data = json.loads(json.dumps(view.as_data()))
        assert [(each["cpu"], each["max_us"]) for each in data["cpus"]] == [(1, 41.0), (2, 700.0)]
        assert (data["state"], data["done"], data["slices"], data["measured_s"]) == ("running", 2, 720, 120.0)
    assert view.state == "cut off"
    folder.invalidate("interrupted by Ctrl-C")
    folder.finish()
    view = view.look()
    assert view.state == "broken off" and "broken off: interrupted by Ctrl-C" in drawn(view)
