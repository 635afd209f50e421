"""Results: what the tester says becomes figures that can be stood behind, and stays on disk whatever happens."""

from __future__ import annotations

import json
import math
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st
from tester_results import both_ways, contract_index, latency, result, samples_of, stream

from tailrace.results import FORMAT, ResultError, RunFolder, Unreadable, load_run, parse_run
from tailrace.results.comparison import MatrixCell, places
from tailrace.results.histogram import HIGHEST_NS, Histogram, bounds, from_tester, index_of, log_text, merge, read_log
from tailrace.results.migrate import migrate
from tailrace.results.no_loss import NoLossRate
from tailrace.results.run import load_histogram, write_atomically
from tailrace.results.schema import schema_text
from tailrace.results.trial import file_name, from_trial_result, worse

REPOSITORY = Path(__file__).resolve().parents[2]


# Histograms


@given(st.integers(0, HIGHEST_NS))
def test_layout_is_the_testers_and_hdrhistograms(value: int) -> None:
    hdr = HdrHistogram(1, HIGHEST_NS, 2)
    hdr.record_value(value)
    index = index_of(value)
    assert hdr.counts[index] == 1
    low, high = bounds(index)
    assert low <= value <= high
    assert high - low <= low / 128
    assert index_of(low) == index_of(high) == index
    assert index_of(high + 1) == index + 1


@given(st.integers(0, 2**33))
def test_layout_is_the_contracts(value: int) -> None:
    assert index_of(value) == contract_index(value)


def exact_quantile(ordered: list[int], share: Fraction) -> int:
    return ordered[max(1, math.ceil(share * len(ordered))) - 1]


@settings(max_examples=60)
@given(st.lists(st.one_of(st.integers(0, 10_000_000_000), st.integers(100, 5_000)), min_size=1, max_size=300))
def test_every_percentile_is_within_one_percent_of_the_exact_one(samples: list[int]) -> None:
    histogram = from_tester(latency(samples))
    ordered = sorted(samples)
    for thousandth in [1, 10, 100, 250, 500, 501, 900, 990, 999, 1000]:
        share = Fraction(thousandth, 1000)
        exact, found = exact_quantile(ordered, share), histogram.quantile(share)
        assert exact <= found <= exact * 1.01
        assert found <= ordered[-1]


def test_every_rank_of_a_long_tailed_sample() -> None:
    ordered = sorted(samples_of(20_000, seed=7))
    histogram = from_tester(latency(ordered))
    found = histogram.values_at_ranks(range(1, len(ordered) + 1))
    assert all(exact <= value <= exact * 1.01 for exact, value in zip(ordered, found, strict=True))
    figures = histogram.latency()
    assert figures is not None
    assert figures.min == ordered[0] / 1e3
    assert figures.max == ordered[-1] / 1e3
    assert figures.average == pytest.approx(sum(ordered) / len(ordered) / 1e3, rel=1e-12)
    assert figures.p99_99 == pytest.approx(ordered[20_000 - 2 - 1] / 1e3, rel=0.01)


def test_the_rank_is_rounded_up_and_never_to_the_nearest() -> None:
    # 99 % of 160 is 158.4: 158 frames are fewer than 99 %.
    histogram = from_tester(latency(list(range(1, 161))))
    assert histogram.quantile(Fraction(99, 100)) == 159


def test_ranks_that_are_not_there() -> None:
    histogram = from_tester(latency([5, 6]))
    for rank in (0, 3):
        with pytest.raises(ValueError, match="rank"):
            histogram.value_at_rank(rank)
    with pytest.raises(ValueError, match="rank"):
        Histogram().value_at_rank(1)
    assert Histogram().latency() is None


def test_a_value_beyond_the_testers_range_is_the_maximum() -> None:
    # The tester counts it in its last bucket; the tail must not be shown shorter than it was.
    top = index_of(10_000_000_000)
    histogram = from_tester(
        {"count": 2, "min_ns": 10, "max_ns": 60_000_000_000, "sum_ns": 60_000_000_010, "counts": [[10, 1], [top, 1]]}
    )
    assert histogram.quantile(Fraction(99, 100)) == 60_000_000_000


@given(st.lists(st.lists(st.integers(0, 10**10), max_size=30), max_size=4))
def test_merging_is_recording_together(parts: list[list[int]]) -> None:
    together = [value for part in parts for value in part]
    assert merge(from_tester(latency(part)) for part in parts) == from_tester(latency(together))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"count": 4}, "hold 3 frames, but it counted 4"),
        ({"min_ns": 90}, "contradict its buckets"),
        ({"max_ns": 299}, "contradict its buckets"),
        ({"min_ns": 400}, "contradict its buckets"),
        ({"sum_ns": 901}, "sum"),
        ({"sum_ns": 299}, "sum"),
        ({"counts": [[10**6, 3]]}, "bucket 1000000"),
    ],
)
def test_a_histogram_that_contradicts_itself_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ResultError, match=message):
        from_tester({**latency([100, 200, 300]), **change})


def test_log_is_readable_by_the_library_with_tags_counts_and_maximum(tmp_path: Path) -> None:
    samples = {"a-to-b": samples_of(5_000, 3), "b-to-a": [1, 255, 256, 9_999_999_999], "none": []}
    histograms = {tag: from_tester(latency(values)) for tag, values in samples.items()}
    path = tmp_path / "x.hlog"
    path.write_text(log_text(1_795_000_000.25, 2.5, histograms))
    found = read_log(path)
    assert {tag: histogram.counts for tag, histogram in found.items()} == {
        tag: histogram.counts for tag, histogram in histograms.items()
    }
    lines = [line for line in path.read_text().splitlines() if line.startswith("Tag=")]
    assert lines[1].startswith("Tag=b-to-a,0.000,2.500,9999.999999,HISTFAAAA")
    assert HdrHistogram.decode(lines[1].split(",")[-1]).get_total_count() == 4


@pytest.mark.parametrize("text", ["Tag=a,0.0,1.0,1.0,HISTFAAAArubbish", "Tag=a,0.0,1.0,1.0,%%%", "Tag=a,..,1,1,HIST"])
def test_a_damaged_log_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.hlog"
    path.write_text(text + "\n")
    with pytest.raises(ResultError, match=r"x\.hlog"):
        read_log(path)


# Trials


def trial(document: dict[str, Any], **changes: Any) -> Any:
    arguments = {"name": "t", "profile": "64", "functions": 1, "offered_pps": 1e6, **changes}
    return from_trial_result(document, **arguments)


def test_rates_are_of_unique_frames_over_the_time_in_which_they_were_sent() -> None:
    # 1000 frames in a second, and 500 copies, the last of which came half a second late.
    samples = [1_000] * 1_499 + [500_000_000]
    way = trial(result(stream(samples, duplicate=500, frame=512))).trial.directions[0]
    assert way.sent == 1_000
    assert way.mpps == pytest.approx(1_000 / 1e6)
    assert way.mean_frame == 512
    assert way.gbps_l2 == pytest.approx(1_000 * 512 * 8 / 1e9)
    assert way.gbps_l1 == pytest.approx(1_000 * 532 * 8 / 1e9)


def test_line_rate_of_ten_gigabit_is_ten_gigabit_at_layer_1() -> None:
    frames, seconds = 1_488, 1_488 / 14_880_952.38
    way = trial(result(stream([500] * frames, seconds=seconds), seconds=seconds)).trial.directions[0]
    assert way.mpps == pytest.approx(14.88095238)
    assert way.gbps_l1 == pytest.approx(10.0)
    assert way.gbps_l2 == pytest.approx(7.619, abs=1e-3)


def test_unsent_frames_are_not_lost() -> None:
    way = trial(result(stream([500] * 10, offered=25, unsent=15))).trial.directions[0]
    assert (way.offered, way.sent, way.unsent, way.lost, way.loss_ratio) == (25, 10, 15, 0, 0.0)


def test_a_direction_that_received_nothing() -> None:
    found = trial(result(stream([], lost=7), stream([900] * 7, "b-to-a"))).trial
    assert found.valid
    assert found.headline == 0
    assert found.worse.latency_us is None
    assert found.worse.histogram is None
    assert (found.worse.mpps, found.worse.gbps_l1, found.worse.loss_ratio) == (0, 0, 1)
    assert all(interval.max_us is None for interval in found.worse.intervals)


def test_a_direction_that_could_not_send_at_all_is_never_the_better_one() -> None:
    found = trial(result(stream([900] * 7), stream([], "b-to-a", offered=7, unsent=7))).trial
    assert found.worse.name == "b-to-a"


@pytest.mark.parametrize(
    ("a", "b", "index"),
    [
        (stream([100] * 99, lost=1), stream([90_000] * 100, "b-to-a"), 0),
        # Loss is compared as a ratio: 1 of 10 is worse than 2 of 102.
        (stream([100] * 9, lost=1), stream([100] * 100, "b-to-a", lost=2), 0),
        (stream([100] * 1000 + [9_000]), stream([200] * 1001, "b-to-a"), 1),
        (stream([100] * 1000 + [9_000]), stream([100] * 1000 + [9_500], "b-to-a"), 1),
        (stream([100] * 10), stream([100] * 10, "b-to-a"), 0),
    ],
)
def test_the_worse_direction(a: dict[str, Any], b: dict[str, Any], index: int) -> None:
    assert worse(trial(result(a, b)).trial.directions) == index


def test_two_intervals_that_begin_at_one_time_stay_two() -> None:
    """As in a soak that is ended where one begins."""
    only = stream(samples_of(400, 1))
    last = only["intervals"][-1]
    only["intervals"].append({**last, "sent": 0, "received": 0, "sum_ns": 0, "min_ns": 0, "max_ns": 0})
    way = trial(result(only, stream([100] * 400, "b-to-a"))).trial.directions[0]
    assert [each.received for each in way.intervals] == [40] * 10 + [0]


def test_streams_of_one_direction_are_summed_and_kept() -> None:
    first, second = samples_of(400, 1), samples_of(600, 2, base_ns=9_000)
    a = stream(first, lost=3) | {"name": "voice"}
    b = stream(second, duplicate=5, frame=1518) | {"name": "video"}
    measured = trial(result(a, b, stream(first, "b-to-a")))
    way, back = measured.trial.directions
    assert (way.name, way.received, way.lost, way.duplicate, way.sent) == ("a-to-b", 1_000, 3, 5, 998)
    assert way.mean_frame == pytest.approx((400 * 64 + 600 * 1518) / 1000)
    assert way.gbps_l2 == pytest.approx(sum(part.gbps_l2 for part in way.streams))
    assert way.latency_us is not None
    assert way.latency_us.max == max(first + second) / 1e3
    assert [part.name for part in way.streams] == ["voice", "video"]
    assert way.intervals[0].received == 100
    assert way.intervals[0].max_us == max(first[:40] + second[:60]) / 1e3
    assert way.intervals[0].avg_us == pytest.approx(sum(first[:40] + second[:60]) / 100 / 1e3)
    assert back.streams == ()
    assert set(measured.histograms) == {"a-to-b", "a-to-b.voice", "a-to-b.video", "b-to-a"}
    assert measured.histograms["a-to-b"] == from_tester(latency(first + second))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lost": 1}, "counts contradict each other"),
        ({"duplicate": 1}, "counts contradict each other"),
        ({"received": 9}, "counts contradict each other"),
        ({"beyond_window": 1, "lost": 2}, "counts contradict each other"),
        ({"latency": latency([100] * 8)}, "8 frames were timed, but 10 received"),
        ({"latency": latency([100] * 11)}, "11 frames were timed, but 10 received"),
    ],
)
def test_counts_that_contradict_each_other_make_the_trial_invalid(change: dict[str, Any], message: str) -> None:
    found = trial(result({**stream([100] * 10), **change})).trial
    assert not found.valid
    assert message in found.reason


def test_frames_beyond_the_window_may_be_either() -> None:
    for lost in (0, 1):
        assert trial(result({**stream([100] * 10), "beyond_window": 1, "lost": lost})).trial.valid


def test_a_stopped_trial_is_kept_and_invalid() -> None:
    found = trial(result(stream([100] * 10), stopped=True)).trial
    assert (found.valid, found.reason) == (False, "stopped before its end")


@pytest.mark.parametrize("key", ["streams", "duration", "started_at", "stopped"])
def test_a_result_that_lacks_something_is_refused(key: str) -> None:
    document = result(stream([100] * 10))
    del document[key]
    with pytest.raises(ResultError, match=f"the tester's result of t: {key}"):
        trial(document)


def test_hostile_names_stay_inside_the_folder_and_the_log() -> None:
    assert file_name("../../etc/passwd") == "etc-passwd"
    assert file_name("..") == "unnamed"
    assert file_name("a,b\nTag=x 1") == "a-b-Tag-x-1"
    assert len(file_name("x" * 999)) == 100


# Run folders


def create(runs: Path, **changes: Any) -> RunFolder:
    arguments: dict[str, Any] = {
        "spec": "fabric: tailrace\n",
        "host": {"cpu": "Some CPU", "cores": 2},
        "command": ["tailrace", "demo"],
        "versions": {"tailrace": "0.1.0"},
        "fabric": "tailrace",
    }
    return RunFolder.create(runs, "demo", **{**arguments, **changes})


def add(folder: RunFolder, functions: int, profile: str = "64", **changes: Any) -> Any:
    document = changes.pop("document", None) or both_ways(seed=functions, base_ns=2_000 + 3_000 * functions)
    name = changes.pop("name", f"{profile}-{functions}")
    return folder.add_trial(
        document, name=name, profile=profile, functions=functions, offered_pps=2_000, rate_fraction=0.9, **changes
    )


def on_disk(folder: RunFolder) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder.path / "results.json").read_text())
    return document


def test_a_run_folder_is_complete(tmp_path: Path) -> None:
    with create(tmp_path / "runs") as folder:
        floor = add(folder, 0)
        chain = add(folder, 1)
    names = sorted(str(path.relative_to(folder.path)) for path in folder.path.rglob("*"))
    assert names == [
        "histograms", "histograms/64-0.hlog", "histograms/64-1.hlog", "host.json", "logs", "results.json", "spec.yaml",
    ]  # fmt: skip
    run = load_run(folder.path)
    assert run == folder.run
    assert run.valid
    assert run.finished is not None
    assert run.trials == (floor, chain)
    assert floor.share_us is None
    assert chain.share_us.floor == "64-0"
    floor_way = next(way for way in floor.directions if way.name == chain.worse.name)
    assert chain.share_us.p99 == pytest.approx(chain.worse.latency_us.p99 - floor_way.latency_us.p99)
    assert chain.share_us.max == pytest.approx(chain.worse.latency_us.max - floor_way.latency_us.max)
    for way in chain.directions:
        histogram = load_histogram(folder.path, way.histogram, way.latency_us)
        assert histogram.latency() == way.latency_us
        assert histogram.count == way.received


def test_results_conform_to_the_published_schema(tmp_path: Path) -> None:
    with create(tmp_path) as folder:
        add(folder, 0)
        add(folder, 1, document=result(stream([], lost=3), stream([5_000] * 9, "b-to-a") | {"name": "voice"}))
    schema = json.loads((REPOSITORY / "docs/results.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    document = on_disk(folder)
    validator.validate(document)
    assert "p99.9" in document["trials"][0]["directions"][0]["latency_us"]
    assert "from" in document["trials"][0]["directions"][0]
    document["trials"][0]["directions"][0]["lost"] = -1
    assert not validator.is_valid(document)


def test_the_published_schema_is_current() -> None:
    published = (REPOSITORY / "docs/results.schema.json").read_text()
    assert published == schema_text(), "run: python -m tailrace.results.schema docs/results.schema.json"


def test_every_field_of_the_schema_says_what_it_is() -> None:
    schema = json.loads(schema_text())
    for model in [schema, *schema["$defs"].values()]:
        for name, field in model.get("properties", {}).items():
            assert field.get("description"), name


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    paths = {create(tmp_path).path for _ in range(5)}
    assert len(paths) == 5


def test_until_it_has_finished_a_run_is_not_valid(tmp_path: Path) -> None:
    folder = create(tmp_path)
    assert (on_disk(folder)["valid"], on_disk(folder)["reason"]) == (False, "the run has not finished")
    add(folder, 0)
    # As if the power were cut here.
    run = load_run(folder.path)
    assert (run.valid, run.finished, len(run.trials)) == (False, None, 1)
    assert folder.finish().valid


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("the function first was killed by signal 9"), "the function first was killed by signal 9"),
        (KeyboardInterrupt(), "interrupted"),
        (ValueError(), "ValueError"),
    ],
)
def test_what_ends_a_run_is_its_reason_and_what_was_measured_is_kept(
    tmp_path: Path, error: BaseException, reason: str
) -> None:
    with pytest.raises(type(error)), create(tmp_path) as folder:
        add(folder, 0)
        raise error
    run = load_run(folder.path)
    assert (run.valid, run.reason, len(run.trials)) == (False, reason, 1)
    assert run.finished is not None


def test_the_first_reason_stands(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), create(tmp_path) as folder:
        folder.invalidate("the switch died")
        folder.invalidate("a function lost its port")
        assert on_disk(folder)["reason"] == "the switch died"
        raise RuntimeError("a socket was closed")
    assert on_disk(folder)["reason"] == "the switch died"


def test_an_invalid_trial_makes_the_run_invalid(tmp_path: Path) -> None:
    with create(tmp_path) as folder:
        add(folder, 0, document={**both_ways(), "stopped": True})
        add(folder, 1)
    assert (folder.run.valid, folder.run.reason) == (False, "64-0: stopped before its end")
    assert folder.run.trials[1].share_us is None, "an invalid floor is no floor"


def test_a_run_that_measured_nothing_is_not_valid(tmp_path: Path) -> None:
    with create(tmp_path) as folder:
        pass
    assert folder.run.reason == "nothing was measured"


def test_the_floor_is_of_the_same_profile(tmp_path: Path) -> None:
    folder = create(tmp_path)
    add(folder, 0, "64")
    assert add(folder, 1, "1518").share_us is None
    assert add(folder, 1, "64").share_us.floor == "64-0"


def test_a_result_that_cannot_be_kept_costs_nothing_that_was(tmp_path: Path) -> None:
    folder = create(tmp_path)
    add(folder, 0)
    before = on_disk(folder)
    with pytest.raises(ResultError, match="64-0"):
        add(folder, 1, name="64-0")
    with pytest.raises(ResultError, match="streams"):
        add(folder, 1, document={**result(), "streams": []})
    assert on_disk(folder) == before


def test_names_that_become_one_file_name_do_not_share_a_log(tmp_path: Path) -> None:
    folder = create(tmp_path)
    logs = {add(folder, 0, name=name).worse.histogram.file for name in ("a/b", "a b", "a-b")}
    assert len(logs) == 3
    assert all((folder.path / log).is_file() for log in logs)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results.json"
    write_atomically(path, "old")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_notes_are_kept_once(tmp_path: Path) -> None:
    folder = create(tmp_path, notes=["one"])
    folder.note("two")
    folder.note("one")
    assert load_run(folder.path).notes == ("one", "two")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": 8}', "format 8, but this Tailrace reads up to format 7; upgrade"),
        ('{"format": "1"}', "no format version"),
        ('{"format": true}', "no format version"),
        ("[1]", "no format version"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"format": 1}', "x.json: id: Field required"),
        ('{"format": 7}', "x.json: id: Field required"),
        ('{"format": 2, "findings": [1]}', "x.json: breaks the format 2 that it says it has"),
        ('{"format": 3, "findings": [{"method": "noise", "sides": 1}]}', "x.json: breaks the format 3"),
        ('{"format": 4, "findings": [{"method": "matrix", "rounds": 1}]}', "x.json: breaks the format 4"),
        ('{"format": 5, "trials": [1]}', "x.json: breaks the format 5"),
    ],
)
def test_results_that_cannot_be_read_say_why(text: str, message: str) -> None:
    with pytest.raises(Unreadable, match=message) as caught:
        parse_run(text, "x.json")
    assert caught.value.exit_status == 2


def test_results_that_were_cut_short_are_refused_wherever_they_end(tmp_path: Path) -> None:
    text = (create(tmp_path).path / "results.json").read_text().rstrip()
    for end in range(len(text)):
        with pytest.raises(Unreadable):
            parse_run(text[:end])


def test_every_older_format_has_a_step_and_a_file_that_is_read() -> None:
    for version in range(1, FORMAT):
        text = (REPOSITORY / f"tests/unit/data/results-format-{version}.json").read_text()
        assert json.loads(text)["format"] == version
        run = parse_run(text)
        assert run.format == FORMAT
        assert (run.method, run.spec) == ("latency", "chain")
        assert [trial.name for trial in run.trials] == ["64-0", "64-1"]
        assert parse_run(run.to_json()) == run


def test_parts_of_a_way_of_format_3_lose_the_names_of_processes() -> None:
    names = ["tester.a to wan@4.0", "wan@4", "wan@4.1 to the switch", "a@b"]
    hops = {"parts": [{"name": name} for name in names], "slowest": [{"parts": names}]}
    document = {"trials": [{"name": "x", "directions": [{"hops": hops}, {"hops": None}]}]}
    (found, _) = migrate(document, 3, 4)["trials"][0]["directions"]
    expected = ["tester.a to wan.0", "wan", "wan.1 to the switch", "a@b"]
    assert [part["name"] for part in found["hops"]["parts"]] == expected
    assert found["hops"]["slowest"] == [{"parts": expected}]
    assert hops["slowest"] == [{"parts": names}], "what is migrated is left alone"


def test_a_device_of_format_5_was_a_chain_without_functions() -> None:
    """As a floor is one, which it was taken for."""
    named = [{"name": name, "functions": 0} for name in ("through-64-at-50%", "floor-64", "soak-64")]
    for fabric, functions in ((None, [None, 0, None]), ("tailrace", [None, 0, 0])):
        document = {"fabric": fabric, "trials": named, "findings": named[:2]}
        found = migrate(document, 5, 6)
        assert [each["functions"] for each in found["trials"]] == functions
        assert [each["functions"] for each in found["findings"]] == functions[:2]


def test_a_no_loss_rate_of_format_5_was_confirmed_only_where_its_trial_lost_nothing() -> None:
    run = parse_run((REPOSITORY / "tests/unit/data/results-format-5.json").read_text())
    floor, chain = run.trials
    assert (floor.no_loss_pps, floor.total("lost")) == (1.1e6, 0)
    assert (chain.no_loss_pps, chain.total("lost")) == (None, 2)
    assert [trial.searched for trial in run.trials] == [NoLossRate(pps=pps, limit=None) for pps in (1.1e6, 5e5)]
    cell, _ = run.findings
    assert isinstance(cell, MatrixCell)
    assert (cell.no_loss_pps, cell.not_confirmed, cell.bound) == (None, True, None)
    assert [(each.no_loss_pps, each.searched) for each in cell.rounds] == [(None, chain.searched)]


def test_the_medians_of_a_cell_of_format_5_are_of_the_rounds_that_confirmed_a_rate() -> None:
    rounds = [
        {"round": number, "trial": f"gone-{number}", "no_loss_pps": pps, "loss_ratio": lost, "sent_ratio": sent}
        for number, pps, lost, sent in ((1, 1e6, 0, 1.0), (2, 2e6, 0.1, 1.0), (3, 4e6, 0, 0.5), (4, 3e6, 0, None))
    ]
    cell = {"method": "matrix", "no_loss_pps": 2.5e6, "spread": {"no_loss_pps": {}, "p50_us": 1}, "rounds": rounds}
    (found,) = migrate({"findings": [cell]}, 5, 6)["findings"]
    assert [each["no_loss_pps"] for each in found["rounds"]] == [1e6, None, None, 3e6]
    assert (found["no_loss_pps"], found["spread"]) == (2e6, {"no_loss_pps": {"low": 1e6, "high": 3e6}, "p50_us": 1})


@pytest.mark.parametrize("method", ["noise", "share"])
def test_pairs_of_format_5_were_at_a_part_of_one_rate_that_was_looked_for_before(method: str) -> None:
    trials = [
        {"name": f"64-pair-{number}-x", "no_loss_pps": 1e6, "rate_fraction": 0.5, "directions": []} for number in (1, 2)
    ]
    document = {"trials": trials, "findings": [{"method": method, "name": "64", "baseline": "quiet"}]}
    found = migrate(document, 5, 6)
    searched = {"pps": 1e6, "upper_pps": None, "limit": None}
    (finding,) = found["findings"]
    assert finding["searched"] == ({"quiet": searched} if method == "noise" else searched)
    assert finding["rate_fraction"] == 0.5
    # None of these trials was there to confirm it, whatever it lost.
    assert [(trial["no_loss_pps"], trial.get("searched")) for trial in found["trials"]] == [(None, None)] * 2


def test_a_cell_of_format_2_was_measured_in_one_round() -> None:
    run = parse_run((REPOSITORY / "tests/unit/data/results-format-2.json").read_text())
    measured, lacking = run.findings
    assert isinstance(measured, MatrixCell)
    assert isinstance(lacking, MatrixCell)
    (only,) = measured.rounds
    assert (only.round, only.trial, only.p99_us) == (1, "64-1", measured.p99_us)
    assert places(run.findings)["64-1"].words == "tailrace, memif, PVP"
    assert (lacking.rounds, lacking.not_here) == ((), "too few cores")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"valid": True, "reason": "x"}, "reason"),
        ({"unknown": 1}, "unknown"),
        ({"trials": [{}]}, "trials.0"),
        ({"started": "2026-11-21T00:00:00"}, "started"),
    ],
)
def test_results_that_break_the_model_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    document = on_disk(create(tmp_path))
    with pytest.raises(ResultError, match=message):
        parse_run(json.dumps({**document, **change}))


def test_nan_is_refused(tmp_path: Path) -> None:
    folder = create(tmp_path)
    add(folder, 0)
    text = (folder.path / "results.json").read_text().replace('"duration_s": 1.0', '"duration_s": NaN')
    assert "NaN" in text
    with pytest.raises(ResultError, match="duration_s"):
        parse_run(text)


def test_a_folder_without_results(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="is this a run folder"):
        load_run(tmp_path)


def test_a_histogram_is_not_looked_for_outside_the_folder(tmp_path: Path) -> None:
    folder = create(tmp_path / "runs")
    way = add(folder, 0).worse
    (tmp_path / "x.hlog").write_text("")
    for file in ("../../x.hlog", str(tmp_path / "x.hlog")):
        with pytest.raises(ResultError, match="outside the run folder"):
            load_histogram(folder.path, way.histogram.model_copy(update={"file": file}), way.latency_us)


def test_a_log_of_another_trial_is_noticed(tmp_path: Path) -> None:
    folder = create(tmp_path)
    floor, chain = add(folder, 0), add(folder, 2)
    with pytest.raises(ResultError, match="not the distribution"):
        load_histogram(folder.path, floor.worse.histogram, chain.worse.latency_us)
