"""What a result says of what it stands on: the tester's own floor, its clock, its window; how frames were reordered."""

from __future__ import annotations

import csv
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tester_results import both_ways, latency, result, samples_of, stream

from tailrace.measure.floor import floor_seconds
from tailrace.measure.joined import joined_ports
from tailrace.measure.profile import profile
from tailrace.report.difference import print_difference
from tailrace.report.html import write_report
from tailrace.report.table import print_run
from tailrace.results import RunFolder, load_run
from tailrace.results.diff import diff
from tailrace.results.no_loss import NoLossRate
from tailrace.results.stored import read_run
from tailrace.results.table import csv_text


def folder_in(runs: Path) -> RunFolder:
    return RunFolder.create(runs, "latency", spec="", host={}, command=["tailrace"], versions={})


def measure(folder: RunFolder, median_ns: int, profile: str = "64", name: str = "one-function-64") -> Any:
    made = result(stream([median_ns] * 100))
    return folder.add_trial(made, name=name, profile=profile, functions=1, offered_pps=1e5)


def floor(folder: RunFolder, median_ns: int, ports: str = "vhost-user", **changes: Any) -> None:
    made = result(stream([median_ns] * 100, **changes))
    folder.add_floor(made, profile="64", ports=ports, offered_pps=1e5)


def printed(folder: RunFolder) -> str:
    console = Console(width=200, file=StringIO(), force_terminal=False)
    print_run(folder.run, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize(("median_ns", "near"), [(2_900, True), (3_100, False)])
def test_what_is_near_the_testers_own_floor_is_marked_everywhere(tmp_path: Path, median_ns: int, near: bool) -> None:
    with folder_in(tmp_path) as folder:
        floor(folder, 1_000)
        trial = measure(folder, median_ns)
    assert trial.floor_ratio == pytest.approx(median_ns / 1_000, rel=0.01)
    assert trial.near_floor == near
    assert load_run(folder.path).trials[0].near_floor == near
    text = printed(folder)
    assert "own floor (to itself over vhost-user, 0.1000 Mpps), p50 in µs: 64 B 1.00." in text
    assert (f"~{median_ns / 1000:.2f}" in text) == near
    page = write_report(folder.path).read_text()
    assert (f"~{median_ns / 1000:.2f}" in page) == near
    assert "own floor" in page


def test_a_trial_stands_on_the_floor_of_as_many_flows(tmp_path: Path) -> None:
    with folder_in(tmp_path) as folder:
        made = result(stream([1_000] * 100))
        for flows, median_ns in ((1, 1_000), (1_000_000, 3_000)):
            floor_of = result(stream([median_ns] * 100))
            folder.add_floor(floor_of, profile="64", flows=flows, ports="vhost-user", offered_pps=1e5)
        ratios = [
            folder.add_trial(
                made, name=f"{flows}-flows", profile="64", flows=flows, functions=1, offered_pps=1e5
            ).floor_ratio
            for flows in (1, 1_000_000, 7)
        ]
    assert ratios == [pytest.approx(1.0, rel=0.01), pytest.approx(1 / 3, rel=0.01), None]
    assert "p50 in µs: 64 B (1 flow) 1.00, 64 B (1,000,000 flows) 3.00." in " ".join(printed(folder).split())


def test_a_sum_beyond_63_bits_is_read_exactly(tmp_path: Path) -> None:
    """The tester hands it over as text."""
    made = result(stream([10**9] * 100))
    latency = made["streams"][0]["latency"]
    latency |= {"count": 10**11, "sum_ns": str(10**20), "counts": [[latency["counts"][0][0], 10**11]]}
    made["streams"][0] |= {"sent": 10**11, "offered": 10**11, "received": 10**11}
    made["streams"][0]["intervals"][0]["sum_ns"] = str(10**20)
    with folder_in(tmp_path) as folder:
        trial = folder.add_trial(made, name="t", profile="64", functions=1, offered_pps=1e5)
    assert trial.valid
    assert trial.worse.latency_us is not None and trial.worse.latency_us.average == 1e6


@pytest.mark.parametrize(("unsent", "short"), [(19, True), (1, False)])
def test_figures_of_a_trial_that_sent_less_than_offered_are_marked_in_the_table_of_one_round(
    tmp_path: Path, unsent: int, short: bool
) -> None:
    """With the line that says what the mark means right below; on the page too, there also for each direction."""
    with folder_in(tmp_path) as folder:
        less = stream([5_000] * (100 - unsent), offered=100, unsent=unsent)
        made = result(less, stream([4_000] * 100, "b-to-a"))
        folder.add_trial(made, name="one-function-64", profile="64", functions=1, offered_pps=100.0)
    text = printed(folder)
    (row,) = [line.split() for line in text.splitlines() if line.startswith(" 64 B")]
    marked = [word for word in row if word.startswith("†")]
    assert len(marked) == (8 if short else 0), "received, layer 1, and six of latency"
    below = text.partition(" 64 B")[2]
    assert ("†: less than 98% of the offered frames were sent" in below) == short
    assert ("64 B, 1 VNF in 1 of 1 trials, 81.0% at least" in below) == short
    page = write_report(folder.path).read_text()
    assert ("†: less than 98%" in page) == short
    assert len(re.findall("<td[^>]*>†", page)) == (8 + 11 if short else 0), "the row, and the direction that fell short"


def test_diff_marks_figures_as_the_tables_of_each_run_do(tmp_path: Path) -> None:
    folders = []
    for number, unsent in enumerate((0, 30)):
        with folder_in(tmp_path / str(number)) as folder:
            floor(folder, 4_000)
            way = stream([5_000] * (100 - unsent), offered=100, unsent=unsent)
            folder.add_trial(
                result(way), name="one-function-64", profile="64", functions=1, offered_pps=90.0, rate_fraction=0.9,
                searched=NoLossRate(pps=100.0, limit="loss" if unsent else "tester"), confirmed=True,
            )  # fmt: skip
        folders.append(folder)
    found = diff(*(read_run(folder.path) for folder in folders))
    marks = {each.figure: (each.a_marks, each.b_marks) for each in found.figures}
    assert marks["latency p50"] == (("near_floor",), ("fell_short", "near_floor"))
    assert marks["latency p99"] == marks["received"] == ((), ("fell_short",))
    assert marks["no-loss rate"] == (("at_least",), ())
    assert marks["offered"] == marks["lost"] == ((), ())
    (p50,) = [each for each in found.as_data()["figures"] if each["figure"] == "latency p50"]
    assert (p50["a_marks"], p50["b_marks"]) == (["near_floor"], ["fell_short", "near_floor"])
    console = Console(width=200, file=StringIO(), force_terminal=False)
    print_difference(found, console)
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    (line,) = [line.split() for line in text.splitlines() if "latency p50" in line]
    assert line[-3:] == ["~5.00", "†~5.00", "="]
    for said in ("†: less than 98% of", "~: less than 3 times the tester's own floor", "≥: nothing was lost"):
        assert text.count(said) == 1


def test_only_a_floor_of_the_same_profile_counts(tmp_path: Path) -> None:
    with folder_in(tmp_path) as folder:
        floor(folder, 1_000)
        trial = measure(folder, 1_000, "imix", "one-function-imix")
    assert trial.floor_ratio is None
    assert not trial.near_floor


def test_no_share_is_made_of_a_cell_that_may_be_of_another_fabric(tmp_path: Path) -> None:
    with folder_in(tmp_path) as folder:
        empty = result(stream([1_000] * 100))
        folder.add_trial(empty, name="linux-bridge-vv", profile="64", functions=0, offered_pps=1e5)
        assert measure(folder, 5_000).share_us.p50 == pytest.approx(4, rel=0.02)
        folder.measure_over("vhost-user")
        assert measure(folder, 5_000, name="tailrace-pvp").share_us is None


def test_a_trial_stands_on_the_last_floor_of_its_own_ports(tmp_path: Path) -> None:
    with folder_in(tmp_path) as folder:
        floor(folder, 1_000)
        floor(folder, 8_000, "tap")
        folder.measure_over("vhost-user")
        trials = [measure(folder, 10_000, name="first")]
        folder.measure_over("tap")
        trials.append(measure(folder, 10_000, name="second"))
        floor(folder, 2_000, "tap")
        trials.append(measure(folder, 10_000, name="third"))
        folder.measure_over("memif")
        trials.append(measure(folder, 10_000, name="fourth"))
    assert [each.floor_ratio for each in trials[:3]] == pytest.approx([10, 10 / 8, 5], rel=0.02)
    assert [each.near_floor for each in trials] == [False, True, False, False]
    assert trials[3].floor_ratio is None
    text = printed(folder)
    assert "own floor (to itself over vhost-user, 0.1000 Mpps), p50 in µs: 64 B 1.00." in text
    # Measured again, it is told from the lowest to the highest.
    assert re.search(r"to itself over tap, 0\.1000 Mpps\), p50 in µs: 64 B 2\.0\d–8\.0\d\.", text)
    assert text.count("~: less than 3 times that floor") == 1
    page = write_report(folder.path).read_text()
    assert "to itself over tap" in page
    lines = list(csv.DictReader(StringIO(csv_text([folder.run]))))
    told = [(row["trial"], row["profile"], row["latency_min_us"]) for row in lines if row["finding"] == "floor"]
    assert told == [("vhost-user", "64", "1.0"), ("tap", "64", "8.0"), ("tap", "64", "2.0")]
    marks = {row["trial"]: row["near_floor"] for row in lines if not row["finding"]}
    assert marks == {"first": "no", "second": "yes", "third": "no", "fourth": ""}


def test_a_median_of_rounds_that_is_near_the_floor_is_marked(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "latency", spec="", host={}, command=["tailrace"], versions={}, repeat=3)
    with folder:
        floor(folder, 1_000)
        for number, median_ns in enumerate((2_000, 2_500, 9_000), 1):
            folder.begin_round(number)
            measure(folder, median_ns)
    assert re.search(r"~2\.5\d \(2\.0\d–9\.0\d\)", printed(folder))


def test_the_other_direction_has_a_ratio_of_its_own(tmp_path: Path) -> None:
    with folder_in(tmp_path) as folder:
        floor(folder, 1_000)
        made = result(stream([9_000] * 100), stream([2_000] * 100, "b-to-a"))
        trial = folder.add_trial(made, name="x", profile="64", functions=1, offered_pps=1e5)
    assert [trial.floor_ratio_of(way) for way in trial.directions] == pytest.approx([9, 2], rel=0.02)
    assert not trial.near_floor


def test_a_floor_that_lost_frames_is_none(tmp_path: Path) -> None:
    with folder_in(tmp_path) as folder:
        floor(folder, 1_000, lost=1)
        assert measure(folder, 1_000).floor_ratio is None
    assert not folder.run.floors
    assert "lost frames to itself" in folder.run.notes[0]


def test_ports_of_a_kind_are_joined_and_those_that_need_a_cable_are_not(tmp_path: Path) -> None:
    for uri in ("vhost:/run/a.sock", "vhost-server:/run/a.sock"):
        joined = joined_ports(uri, tmp_path / "floor.sock")
        assert joined is not None
        assert joined.kind == "vhost-user"
        assert [name for name, _ in joined.ports] == ["a", "b"]
        assert all(str(tmp_path / "floor.sock") in each for _, each in joined.ports)
    assert joined_ports("pci:0000:01:00.0", tmp_path / "floor.sock") is None
    assert floor_seconds([]) == 0
    assert floor_seconds([profile(64), profile("imix")]) > floor_seconds([profile(64)]) > 0


def test_the_clock_is_reported_with_its_error(tmp_path: Path) -> None:
    clock = {"source": "tsc", "invariant": True, "hz": 2_600_000_000, "error_ppm": 0.42, "checked_seconds": 12.5}
    with folder_in(tmp_path) as folder:
        made = {**result(stream(samples_of(100, 1))), "clock": clock}
        trial = folder.add_trial(made, name="x", profile="64", functions=1, offered_pps=1e5)
    assert trial.clock is not None
    assert (trial.clock.hz, trial.clock.error_ppm, trial.clock.checked_s) == (2_600_000_000, 0.42, 12.5)
    assert "TSC of 2.600000 GHz, durations within 0.42 ppm of CLOCK_MONOTONIC_RAW over 12.5 s" in printed(folder)


def test_how_far_frames_were_reordered_is_reported_exactly(tmp_path: Path) -> None:
    def reordered(values: list[int], unknown: int) -> dict[str, Any]:
        counted = latency(values)
        return {"max": counted["max_ns"], "sum": counted["sum_ns"], "unknown": unknown, "counts": counted["counts"]}

    streams = [
        stream(samples_of(100, 1), "a-to-b", out_of_sequence=4, extents=reordered([1, 2, 3], 1), window=4096),
        stream(samples_of(100, 2), "b-to-a", out_of_sequence=0, extents=reordered([], 0), window=4096),
    ]
    with folder_in(tmp_path) as folder:
        trial = folder.add_trial(result(*streams), name="x", profile="64", functions=1, offered_pps=1e5)
    there, back = trial.directions
    assert there.extents is not None
    assert there.extents.model_dump() == {"frames": 3, "unknown": 1, "average": 2, "p50": 2, "p99": 3, "max": 3}
    assert back.extents is None


def test_a_window_that_overflowed_says_by_how_much(tmp_path: Path) -> None:
    with folder_in(tmp_path) as folder:
        made = result(stream(samples_of(100, 1), beyond_window=2, received=102, window=4096, latest=5000))
        made["streams"][0]["latency"] = latency(samples_of(102, 1))
        folder.add_trial(made, name="x", profile="64", functions=1, offered_pps=1e5)
    assert "2 frames came too late for the analyser's window of 4,096 (the latest was 5,000 behind)" in printed(folder)


def test_results_without_any_of_it_are_read(tmp_path: Path) -> None:
    with folder_in(tmp_path) as folder:
        trial = folder.add_trial(both_ways(100), name="x", profile="64", functions=1, offered_pps=1e5)
    assert trial.clock is None
    assert trial.directions[0].window is None
    assert load_run(folder.path).floors == ()
