"""The order of a latency measurement, against simulated devices: no process, no packet."""

# ruff: noqa: ARG001 (a simulated device takes what a real one takes)

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from run_folders import add
from simulated_device import SimulatedDevice
from tester_results import both_ways, result, stream

from tailrace.errors import Mistake
from tailrace.measure.chain import Timing, measure
from tailrace.measure.latency import Case, measure_case
from tailrace.measure.method import Place
from tailrace.measure.profile import parse_frames, profile
from tailrace.measure.search import SearchOptions
from tailrace.measure.tester import Stopped, absolute_uri
from tailrace.measure.trials import is_whole, judge, kept_up
from tailrace.report.bars import throughput
from tailrace.report.caveats import warnings
from tailrace.report.figures import mega, tone, verdict
from tailrace.report.html import render
from tailrace.report.marked import by_profile, mark
from tailrace.report.table import print_run
from tailrace.results import RunFolder
from tailrace.results.no_loss import NoLossRate
from tailrace.results.stored import StoredRun
from tailrace.results.table import csv_text
from tailrace.spec.units import Rate


def answer(rate: float, seconds: float, *, lost: int = 0, unsent: float = 0.0, most: float = 1e7) -> dict[str, Any]:
    """What a tester answers for two directions at a rate."""
    offered = round((rate or most) * seconds)
    sent = round(offered * (1 - unsent))
    stream = {
        "offered": offered,
        "sent": sent,
        "unsent": offered - sent,
        "received": sent - lost,
        "lost": lost,
        "duplicate": 0,
        "out_of_sequence": 0,
        "beyond_window": 0,
        "foreign": 0,
    }
    return {"streams": [dict(stream), dict(stream)], "duration": seconds}


def test_what_counts_as_whole_and_kept() -> None:
    assert is_whole(answer(1e6, 1.0))
    assert not is_whole(answer(1e6, 1.0, lost=1))
    for fault in ("duplicate", "out_of_sequence", "beyond_window", "foreign"):
        faulty = answer(1e6, 1.0)
        faulty["streams"][1][fault] = 1
        assert not is_whole(faulty), fault
    assert kept_up(answer(1e6, 1.0, unsent=0.01), 1e6, 1.0)
    assert not kept_up(answer(1e6, 1.0, unsent=0.1), 1e6, 1.0)
    assert not kept_up(answer(1e5, 1.0), 1e6, 1.0)
    assert judge(answer(0, 2.0, most=3e6), 0, 2.0).forwarded_pps == pytest.approx(3e6)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "latency", spec="", host={}, command=(), versions={})


def case(rate: Rate) -> Case:
    return Case("one-function-64", profile(64), 1, rate, 10.0)


def test_a_fraction_is_searched_for_and_the_trial_runs_at_it(folder: RunFolder) -> None:
    limit = 2e6
    device = SimulatedDevice(limit, overloaded=0.9)
    floors: list[float] = []
    trial = measure_case(device, folder, case(Rate(fraction=0.9)), SearchOptions(), measure_floor=floors.append)
    assert folder.run.trials == (trial,)
    assert (trial.name, trial.attempt) == ("one-function-64", None)
    assert trial.no_loss_pps is not None and trial.searched is not None
    assert trial.offered_pps == pytest.approx(trial.no_loss_pps * 0.9)
    assert limit * 0.9 <= trial.no_loss_pps == trial.searched.pps <= limit
    assert (trial.searched.limit, trial.searched.bound) == ("loss", None)
    assert floors == [trial.offered_pps]
    assert warnings(folder.run) == []


def test_a_search_that_ran_out_of_trials_says_between_what_it_lies(folder: RunFolder) -> None:
    device = SimulatedDevice(1.5e6, sender=2e6)
    trial = measure_case(device, folder, case(Rate(fraction=0.5)), SearchOptions(most_trials=5))
    assert trial.searched is not None and trial.searched.upper_pps is not None
    assert trial.searched.limit == "trials"
    assert 0 < trial.searched.pps <= 1.5e6 < trial.searched.upper_pps
    (told,) = warnings(folder.run)
    low, high = (mega(rate / 1e6) for rate in (trial.searched.pps, trial.searched.upper_pps))
    assert told.endswith(f"may do more: 64 B, 1 VNF {low} Mpps, and {high} failed.")


def test_a_rate_given_outright_is_not_searched_for_and_not_repeated(folder: RunFolder) -> None:
    device = SimulatedDevice(1e9, loss=0.5)
    trial = measure_case(device, folder, case(Rate(pps=1e4)), SearchOptions())
    assert device.trials == [(1e4, 10.0)]
    assert folder.run.trials == (trial,)
    assert (trial.no_loss_pps, trial.searched) == (None, None)
    assert trial.total("lost") == 100_000
    assert warnings(folder.run) == []


def test_a_no_loss_rate_that_is_the_testers_is_marked_as_that(folder: RunFolder) -> None:
    for name in ("one-function-64", "two-functions-64"):
        again = replace(case(Rate(fraction=0.5)), name=name)
        trial = measure_case(SimulatedDevice(1e9, sender=2e6), folder, again, SearchOptions())
        assert trial.searched is not None
        assert (trial.searched.limit, trial.searched.bound) == ("tester", "at_least")
        assert trial.no_loss_pps == pytest.approx(2e6, rel=0.05)
    # One sentence for both.
    (told,) = warnings(folder.run)
    assert told.startswith("≥: nothing was lost at the highest rate that the tester could send")
    assert told.count("64 B, 1 VNF 2.0") == 2 or told.count("64 B, 1 VNF 1.9") == 2
    (mpps, *_) = throughput(mark([StoredRun(folder.path, folder.run, "")]))
    assert [(bar.label, bar.value[0]) for bar in mpps.bars] == [("64 B, 1 VNF (50%)", "≥")]
    assert "≥: nothing was lost" in render([StoredRun(folder.path, folder.run, "")])
    (row, *_) = csv.DictReader(io.StringIO(csv_text([folder.run])))
    assert (row["bound"], row["no_loss_pps"]) == ("at_least", row["searched_pps"])


LOSSY = Case("one-function-64", profile(64), 1, Rate(fraction=0.9), 3.0)


def test_a_loss_that_short_trials_do_not_show_leaves_no_rate_without_loss(folder: RunFolder) -> None:
    """Every trial of full length is kept, and its loss reported: none of them confirmed a rate."""
    device = SimulatedDevice(1e9, sender=1e6, loss=1.5e-6)  # a frame in some 0.7 s
    trial = measure_case(device, folder, LOSSY, SearchOptions())
    made = folder.run.trials
    assert [each.name for each in made] == [*(f"one-function-64-attempt-{n}" for n in (1, 2, 3)), "one-function-64"]
    assert [each.attempt for each in made] == [1, 2, 3, None]
    assert {each.stands_as for each in made} == {trial.name}
    full = [rate for rate, seconds in device.trials if seconds == 3.0]
    assert [each.offered_pps for each in made] == full
    assert full == pytest.approx([full[0] * 0.75**number for number in range(4)])
    assert all(each.total("lost") for each in made)
    assert {each.no_loss_pps for each in made} == {None}
    # The account is of all of them.
    lost = sum(each.total("lost") for each in made)
    sent = sum(each.total("sent") for each in made)
    assert verdict(folder.run) == f"Of {sent:,} frames sent: {lost:,} lost."
    assert tone(folder.run) == "bad"
    told = " ".join(warnings(folder.run))
    assert "the short search trials had passed: 64 B, 1 VNF 3 times, " in told
    assert "No rate without loss was found, because every full-length trial failed: " in told
    assert f"64 B, 1 VNF, down to {mega(full[-1] / 1e6)} Mpps." in told
    # No chart claims one; what is drawn and reckoned with is the last trial alone.
    stored = StoredRun(folder.path, folder.run, "")
    assert throughput(mark([stored])) == []
    ((_, drawn),) = by_profile(mark([stored]))
    assert [one.trial for one in drawn] == [trial]
    page = render([stored])
    assert "No rate without loss was found" in page and "attempt" in page
    console = Console(record=True, width=160)
    print_run(folder.run, console)
    lines = [line for line in console.export_text().splitlines() if line.startswith(" 64 B")]
    assert [line.split()[3] for line in lines[:3]] == ["1", "2", "3"]
    assert len(lines) == 4
    rows = [row for row in csv.DictReader(io.StringIO(csv_text([folder.run]))) if row["worse"] == "yes"]
    assert [(row["attempt"], row["no_loss_pps"]) for row in rows] == [("1", ""), ("2", ""), ("3", ""), ("", "")]
    assert all(float(row["searched_pps"]) > 0 for row in rows)


def test_a_rate_that_is_lowered_until_it_is_confirmed_stands(folder: RunFolder) -> None:
    """A buffer hides the overload from short trials."""
    device = SimulatedDevice(1e6, sender=1.4e6, buffer=200_000)
    trial = measure_case(device, folder, LOSSY, SearchOptions())
    first, *_ = made = folder.run.trials
    assert (first.attempt, first.no_loss_pps) == (1, None)
    assert first.total("lost") > 0 == trial.total("lost")
    assert trial.searched is not None
    assert trial.no_loss_pps == trial.searched.pps == pytest.approx(trial.offered_pps / 0.9)
    # What limits it by now is known: it is no longer the tester's.
    assert (trial.searched.limit, trial.searched.upper_pps) == ("loss", made[-2].offered_pps)
    (mpps, *_) = throughput(mark([StoredRun(folder.path, folder.run, "")]))
    assert [(bar.label, bar.value) for bar in mpps.bars] == [("64 B, 1 VNF (90%)", mega(trial.no_loss_pps / 1e6))]
    (told,) = warnings(folder.run)
    assert told.startswith("Repeated, at a lower rate")


def test_a_rate_that_a_trial_below_it_refuted_is_claimed_by_none(folder: RunFolder) -> None:
    """The whole trial at the full rate was luck."""
    searched = NoLossRate(pps=1e6, limit="loss")
    for part, lost in ((1.0, 0), (0.5, 3), (0.1, 0)):
        made = result(stream([1_000] * 50, lost=lost), stream([1_000] * 50, "b-to-a"))
        add(
            folder, made, functions=1, name=f"at-{part}", offered_pps=1e6 * part, rate_fraction=part,
            searched=searched, confirmed=not lost,
        )  # fmt: skip
    (one,) = mark([StoredRun(folder.path, folder.run, "")])
    assert one.confirmed == frozenset()
    assert throughput([one]) == []


def test_parts_of_a_rate_that_was_lowered_are_parts_of_what_is_left(folder: RunFolder) -> None:
    device = SimulatedDevice(1e6, sender=1.4e6, buffer=200_000)
    rates = [Rate(fraction=part) for part in (1.0, 0.5)]
    cases = [replace(LOSSY, name=f"at-{rate}", rate=rate) for rate in rates]
    session = SimpleNamespace(measure=device, folder=folder, node=None)
    measure(session, Place(), cases, Timing(1.0, 1.0), with_floor=False)  # type: ignore[arg-type]
    first, second = folder.run.standing
    assert first.searched == second.searched
    assert second.offered_pps == pytest.approx(first.offered_pps / 2)


def test_a_trial_in_which_the_tester_fell_short_is_repeated_at_its_rate_first(folder: RunFolder) -> None:
    rates: list[float] = []

    def measure(streams: list[dict[str, Any]], seconds: float, wait: float, label: str) -> dict[str, Any]:
        rate = streams[0]["rate"]
        if seconds < 1:
            return SimulatedDevice(1e6, sender=1.1e6)(streams, seconds, wait, label)
        rates.append(rate)
        return SimulatedDevice(1e9, sender=rate * 0.9 if len(rates) in wrong else rate)(streams, seconds, wait, label)

    wrong = {1}
    trial = measure_case(measure, folder, case(Rate(fraction=0.9)), SearchOptions())
    assert rates[0] == rates[1] == trial.offered_pps
    first, second = folder.run.trials
    assert (first.attempt, first.fell_short, first.no_loss_pps) == (1, "tester", None)
    assert second.no_loss_pps is not None, "what was the tester's failing does not count against the device"
    assert mark([StoredRun(folder.path, folder.run, "")])[0].confirmed == {second.name}

    rates.clear()
    wrong = {1, 2}
    folder.begin_round(2)
    measure_case(measure, folder, case(Rate(fraction=0.9)), SearchOptions())
    assert rates == pytest.approx([rates[0], rates[0], rates[0] * 0.75])


def test_without_patience_the_loss_stands_and_no_rate_is_claimed(folder: RunFolder) -> None:
    device = SimulatedDevice(1e9, sender=1e6, loss=1.5e-6)
    trial = measure_case(device, folder, LOSSY, SearchOptions(), patient=lambda: False)
    assert folder.run.trials == (trial,)
    assert trial.total("lost") > 0
    assert (trial.no_loss_pps, trial.attempt) == (None, None)


def test_an_attempt_has_no_share_and_is_no_floor(folder: RunFolder) -> None:
    add(folder, both_ways(50), functions=0, name="floor-attempt-1", attempt=1)
    add(folder, both_ways(50), functions=1, name="before")
    add(folder, both_ways(50), functions=0, name="floor")
    add(folder, both_ways(50), functions=1, name="chain-attempt-1", attempt=1)
    add(folder, both_ways(50), functions=1, name="chain")
    assert [trial.share_us.floor if trial.share_us else None for trial in folder.run.trials] == [
        None, None, None, None, "floor",
    ]  # fmt: skip


def test_a_trial_that_is_cut_short_is_kept_before_the_cause_goes_on(folder: RunFolder) -> None:
    cut = both_ways(50)

    def measure(streams: list[dict[str, Any]], seconds: float, wait: float, label: str) -> dict[str, Any]:
        raise Stopped(KeyboardInterrupt("ended by SIGTERM"), cut)

    with pytest.raises(Stopped):
        measure_case(measure, folder, case(Rate(pps=1e6)), SearchOptions())
    (trial,) = folder.run.trials
    assert (trial.valid, trial.reason) == (False, "stopped before its end")
    assert folder.finish().reason == "ended by SIGTERM"


def test_profiles() -> None:
    assert parse_frames("64,imix, 1518") == [64, "imix", 1518]
    for wrong in ("63", "1519", "x", "", "64,64", "64,,imix"):
        with pytest.raises(Mistake, match="expected"):
            parse_frames(wrong)
    imix = profile("imix", 10).streams(5.0)
    sizes, weights = imix[0]["frames"], imix[0]["weights"]
    assert sum(size * weight for size, weight in zip(sizes, weights, strict=True)) / sum(weights) == pytest.approx(
        353.83, abs=0.01
    )


NO_PORTS = [
    "", "vhost", "vhost:", "tcp:1", "/a.sock", "vhost:/nowhere.sock",
    "if:no-such", "if:a,b", "if:a/b", "pci:zz", "pci:1", "pci:ffff:ff:1f.7", "pci:../0000:00:00.0",
]  # fmt: skip


@pytest.mark.parametrize("uri", NO_PORTS)
def test_ports_that_are_none(uri: str) -> None:
    with pytest.raises(Mistake):
        absolute_uri(uri)
