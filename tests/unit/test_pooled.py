"""Rounds together, whatever the method: median, lowest and highest in results.json, the CSV and the tables."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_folders import add
from tester_results import result, stream

from tailrace.report.findings import sections
from tailrace.report.html import render
from tailrace.report.section import Section
from tailrace.results import RunFolder, load_run
from tailrace.results.comparison import CellRound, ComparedPair, ComparisonFinding, MatrixCell, ratios_of
from tailrace.results.findings import BurstFinding, Goal, LossFinding, Order, ReorderFinding, SearchTrial
from tailrace.results.findings import ThroughputFinding as Throughput
from tailrace.results.share import ShareFinding, SharePair, contributions_of
from tailrace.results.stored import StoredRun
from tailrace.results.table import csv_text

VALUES = (3.0, 1.0, 2.0)
OF: dict[str, Any] = {"name": "x", "profile": "64", "functions": 1, "valid": True, "reason": None}
SEARCHED: dict[str, Any] = dict.fromkeys(
    ("sent", "unsent", "refused", "lost", "duplicate", "out_of_sequence", "beyond_window", "foreign"), 0
)

Measure = Callable[[RunFolder, float], None]
"""Puts what one round came to into a folder; the value is what the figure is to be."""


def latency(folder: RunFolder, value: float) -> None:
    add(folder, result(stream([round(value * 1000)] * 50)), name="x", functions=1)


def throughput(folder: RunFolder, value: float) -> None:
    goal = Goal(loss_ratio=0, pps=value, upper_pps=None, gbps_l1=0, gbps_l2=0, limit="loss")
    folder.add_finding(Throughput(**OF, search="tst009", precision=0.01, goals=(goal,), trials=()))


def burst(folder: RunFolder, value: float) -> None:
    rates = {"rate_pps": 2e6, "throughput_pps": 1e6}
    folder.add_finding(BurstFinding(**OF, frames=(int(value),), longest=9, step=1, limit="loss", trials=9, **rates))


def loss(folder: RunFolder, value: float) -> None:
    trial = SearchTrial(
        **SEARCHED, offered_pps=5e5, duration_s=1, sent_pps=5e5, forwarded_pps=5e5, loss_ratio=value / 10,
        fell_short=None,
    )  # fmt: skip
    folder.add_finding(LossFinding(**OF, full_pps=1e6, trials=(trial,)))


def noise(folder: RunFolder, value: float) -> None:
    pair = ComparedPair(sides={"quiet": {"p50_us": 10.0}, "cpu": {"p50_us": 10 * value, "sent_ratio": 0.9}})
    folder.put_finding(
        ComparisonFinding(
            **OF, method="noise", baseline="quiet", sides=("quiet", "cpu"), offered_pps=1e5, pairs=(pair,) * 3,
            ratios=ratios_of([pair] * 3, ["cpu"], "quiet", ["p50_us"]),
        )
    )  # fmt: skip


def share(folder: RunFolder, value: float) -> None:
    pair = SharePair(
        function={"a-to-b": {"p50_us": 10 + value, "floor_ratio": 2.0}}, skeleton={"a-to-b": {"p50_us": 10}}
    )
    folder.put_finding(
        ShareFinding(
            **OF, function="wan", kind="router", offered_pps=1e5, pairs=(pair,), contributions=contributions_of([pair])
        )
    )


def reorder(folder: RunFolder, value: float) -> None:
    order = Order(
        sent=10, received=10, out_of_sequence=int(value), beyond_window=0, extent_average=value, extent_max=9,
        extent_unknown=0,
    )  # fmt: skip
    folder.add_finding(ReorderFinding(**OF, flows=2, delays_us={"a": 0}, slower=5, together=order, apart=order))


def matrix(folder: RunFolder, value: float) -> None:
    known = next((each for each in folder.run.findings if isinstance(each, MatrixCell)), None) or MatrixCell(
        **OF, fabric="direct", interface="memif", ends="east/west", pattern="VV"
    )
    number = len(known.rounds) + 1
    folder.put_finding(known.with_round(CellRound(round=number, trial=f"x-{number}", p50_us=value)), of_all_rounds=True)


METHODS: dict[str, tuple[Measure, str | None, str, float]] = {
    "latency": (latency, None, "p50_us", 1),
    "throughput": (throughput, None, "ndr_pps", 1),
    "burst": (burst, None, "burst_average", 1),
    "loss": (loss, None, "loss_ratio at 50% of full_pps", 10),
    "noise": (noise, None, "cpu/quiet p50_us", 1),
    "share": (share, "a-to-b", "wan p50_us", 1),
    "reorder": (reorder, None, "together_reordered_ratio", 10),
    "matrix": (matrix, None, "p50_us", 1),
}


def measured(runs: Path, method: str, rounds: int = len(VALUES)) -> RunFolder:
    words: dict[str, Any] = {"spec": "", "host": {}, "command": (), "versions": {}, "repeat": rounds}
    with RunFolder.create(runs, method, **words) as folder:
        for number, value in enumerate(VALUES[:rounds], 1):
            folder.begin_round(number)
            METHODS[method][0](folder, value)
    return folder


@pytest.mark.parametrize("method", METHODS)
def test_rounds_have_median_lowest_and_highest(tmp_path: Path, method: str) -> None:
    _, direction, figure, unit = METHODS[method]
    folder = measured(tmp_path, method)
    finding = None if method == "latency" else method
    where = {"finding": finding, "name": "x", "direction": direction, "figure": figure, "over": "rounds"}
    document = json.loads((folder.path / "results.json").read_text())
    (found,) = [each for each in document["pooled"] if where.items() <= each.items()]
    numbers = [found[name] * unit for name in ("median", "low", "high")]
    assert numbers == pytest.approx([2, 1, 3], rel=0.01)
    assert found["values"] == 3
    # The same as comma-separated values.
    lines = list(csv.DictReader(io.StringIO(csv_text([load_run(folder.path)]), newline="")))
    (line,) = [line for line in lines if line["figure"] == figure and line["over"] == "rounds"]
    assert [float(line[name]) * unit for name in ("value", "low", "high")] == pytest.approx([2, 1, 3], rel=0.01)
    assert (line["trial"], line["finding"], line["values"]) == ("x", finding or "", "3")
    assert load_run(folder.path) == folder.run, "what is pooled is reckoned anew"


@pytest.mark.parametrize("method", METHODS)
def test_one_round_has_nothing_to_pool(tmp_path: Path, method: str) -> None:
    folder = measured(tmp_path, method, rounds=1)
    assert [each for each in folder.run.pooled if each.over == "rounds"] == []


def test_pairs_of_one_round_have_the_spread_of_each_side(tmp_path: Path) -> None:
    pooled = {each.figure: each for each in measured(tmp_path, "noise", rounds=1).run.pooled}
    assert (pooled["cpu p50_us"].over, pooled["cpu p50_us"].values, pooled["cpu p50_us"].median) == ("pairs", 3, 30)


def test_an_interval_over_pairs_says_of_how_many_and_how_sure_it_is(tmp_path: Path) -> None:
    """And is not taken for the lowest and the highest."""
    ratio = {"noise": ["cpu/quiet p50_us"], "share": ["wan p50_us", "with wan/with skeleton p50_us"]}
    for method, level, pairs in (("noise", "0.75", "3"), ("share", "0.0", "1")):
        folder = measured(tmp_path, method, rounds=1)
        lines = list(csv.DictReader(io.StringIO(csv_text([folder.run]), newline="")))
        told = {line["figure"]: (line["over"], line["values"], line["level"]) for line in lines if line["level"]}
        assert told == dict.fromkeys(ratio[method], ("pairs", pairs, level))
        assert not told.keys() & {each.figure for each in folder.run.pooled}


def test_neither_what_is_pooled_nor_its_lack_keeps_a_run_from_being_read(tmp_path: Path) -> None:
    folder = measured(tmp_path, "latency")
    path = folder.path / "results.json"
    document = json.loads(path.read_text())
    for pooled in ({}, {"pooled": []}, {"pooled": "?"}):
        path.write_text(json.dumps({**{name: each for name, each in document.items() if name != "pooled"}, **pooled}))
        assert load_run(folder.path).pooled == folder.run.pooled


def table_of(folder: RunFolder) -> Section:
    """The table of all rounds, which stands before theirs."""
    first, *rounds = sections(folder.run)
    assert "all 3 rounds together" in first.heading
    assert not any("together" in each.heading for each in rounds)
    assert len(rounds) == 3
    assert first.heading in render([StoredRun(folder.path, folder.run, "")])
    return first


def test_noise_has_a_table_of_all_rounds(tmp_path: Path) -> None:
    table = table_of(measured(tmp_path, "noise"))
    assert table.titles == ("figure", "neighbour", "median", "× quiet")
    assert table.rows == (
        ("p50 µs", "quiet", "10.0", "-"),
        ("p50 µs", "cpu", "†20.0 (10.0–30.0)", "†× 2 (1–3)"),
    )
    assert "Medians over the 3 rounds" in table.remarks[0]
    assert table.remarks[1].startswith("†")


def test_share_has_a_table_of_all_rounds(tmp_path: Path) -> None:
    table = table_of(measured(tmp_path, "share"))
    assert table.rows == (("a-to-b", "p50", "~12.0 (11.0–13.0)", "10.0", "2.00 (1.00 to 3.00)", "1.2 (1.1–1.3)"),)
