"""Charts of compared sides and of matrices: what is one line, and that each line can be told from the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_folders import add, run_folder, without_loss
from tester_results import both_ways, result, stream

from tailrace.bench.browser import CHROMIUM, browser
from tailrace.report import curves
from tailrace.report.bars import throughput
from tailrace.report.html import write_report
from tailrace.report.marked import COLOURS, DASHES, look, mark
from tailrace.results import RunFolder
from tailrace.results.comparison import CellRound, ComparedPair, ComparisonFinding, MatrixCell
from tailrace.results.stored import read_run

NEIGHBOURS = ("cpu", "cache", "memory", "disk", "vnf")
PORTS = ("vhost-user", "memif", "tap", "veth")


def noisy(runs: Path, pairs: int = 2) -> Path:
    """Two pairs of each neighbour, with a quiet trial before every noisy one; the n-th quiet one has n frames more."""
    with RunFolder.create(runs, "noise", spec="", host={}, command=[], versions={}) as folder:
        for number in range(1, pairs + 1):
            for at, neighbour in enumerate(NEIGHBOURS):
                for name, us, frames in ((f"{neighbour}-quiet", 3, 100 + at), (neighbour, 10 * (at + 2), 50)):
                    way = stream([us * 1000] * frames, "a-to-b" if at else "b-to-a")
                    add(folder, result(way), functions=1, name=f"64-pair-{number}-{name}")
        folder.put_finding(
            ComparisonFinding(
                method="noise", name="64", profile="64", functions=1, valid=True, reason=None, baseline="quiet",
                sides=("quiet", *NEIGHBOURS), offered_pps=1e5, pairs=(ComparedPair(sides={}),) * pairs, ratios=(),
            )
        )  # fmt: skip
    return folder.path


def matrix(runs: Path, rates: tuple[float, ...] = (1e6,)) -> Path:
    """Two fabrics by four kinds of ports in two patterns, the same cell twice: in two rounds."""
    with RunFolder.create(runs, "matrix", spec="", host={}, command=[], versions={}, repeat=2) as folder:
        for functions, pattern in ((0, "VV"), (1, "PVP")):
            for number, (fabric, ports) in enumerate((fabric, ports) for fabric in ("one", "two") for ports in PORTS):
                name = f"{fabric}-{ports}-{pattern}"
                cell = MatrixCell(
                    name=name, profile="64", functions=functions, valid=True, reason=None, fabric=fabric,
                    interface=ports, ends="east/west", pattern=pattern,
                )  # fmt: skip
                for round_ in (1, 2):
                    folder.begin_round(round_)
                    made = both_ways(50, seed=number, base_ns=1_000 * (number + 1))
                    found = rates[number % len(rates)]
                    add(folder, made, functions=functions, name=name, **without_loss(found))
                    cell = cell.with_round(CellRound(round=round_, trial=folder.run.trials[-1].name, p50_us=1.0))
                folder.put_finding(cell)
    return folder.path


def charts(folder: Path) -> dict[str, dict[str, Any]]:
    return {each["title"]: each for each in curves.charts(mark([read_run(folder)]))}


def looks(lines: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(each["colour"], each["dash"]) for each in lines]


def test_quiet_is_one_side_however_many_neighbours_it_was_set_against(tmp_path: Path) -> None:
    chart = charts(noisy(tmp_path))["64 B"]
    for kind in ("percentiles", "frequencies", "times"):
        assert [each["label"] for each in chart[kind]] == [
            "quiet (10 trials)", "cpu, b-to-a (2 trials)", *(f"{name}, a-to-b (2 trials)" for name in NEIGHBOURS[1:]),
        ]  # fmt: skip
        assert len(set(looks(chart[kind]))) == 6
        assert len({dash for _, dash in looks(chart[kind])}) == 6, "they are told apart without colours"
    # All frames of all of its trials: two of each of 100 to 104, all of 3 µs.
    drawn = [y for y in chart["percentiles"][0]["y"] if y is not None]
    assert (set(drawn), len(drawn)) == ({3.0}, len(curves.grid(2 * (100 + 101 + 102 + 103 + 104))))


def test_over_time_trials_of_a_side_are_one_with_the_extremes_of_all(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, "noise", spec="", host={}, command=[], versions={}) as folder:
        for number, samples in ((1, [2_000, 4_000] * 10), (2, [6_000] * 10)):
            add(folder, result(stream(samples, intervals=2)), functions=1, name=f"64-one-pair-{number}")
        pairs = (ComparedPair(sides={}),) * 2
        folder.put_finding(
            ComparisonFinding(
                method="compare", name="64", profile="64", functions=1, valid=True, reason=None, baseline="one",
                sides=("one",), offered_pps=1e5, pairs=pairs, ratios=(),
            )
        )  # fmt: skip
    (line,) = charts(folder.path)["64 B"]["times"]
    assert (line["min"][0], line["max"][0]) == (2, 6)
    assert line["avg"][0] == pytest.approx((3 * 10 + 6 * 5) / 15), "of frames, not of trials"


def test_a_matrix_has_a_chart_for_each_pattern_and_every_line_its_own_look(tmp_path: Path) -> None:
    found = charts(matrix(tmp_path))
    assert list(found) == ["64 B, VV", "64 B, PVP"]
    for chart in found.values():
        assert len(set(looks(chart["percentiles"]))) == 8
        assert chart["percentiles"][0]["label"].startswith("one, vhost-user, ")
        assert all(each["label"].endswith("(2 trials)") for each in chart["percentiles"])
    # The same fabric and ports look alike wherever they are.
    assert looks(found["64 B, VV"]["percentiles"]) == looks(found["64 B, PVP"]["percentiles"])


def test_chains_of_several_lengths_that_were_compared_are_lines_of_their_own(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, "compare", spec="", host={}, command=[], versions={}) as folder:
        for functions in (1, 2):
            add(folder, both_ways(20), functions=functions, name=f"{functions}-one-pair-1")
            folder.put_finding(
                ComparisonFinding(
                    method="compare", name=str(functions), profile="64", functions=functions, valid=True, reason=None,
                    baseline="one", sides=("one",), offered_pps=1e5, pairs=(ComparedPair(sides={}),), ratios=(),
                )
            )  # fmt: skip
    lines = charts(folder.path)["64 B"]["percentiles"]
    assert [each["label"].rpartition(", ")[0] for each in lines] == ["one, 1 VNF", "one, 2 VNFs"]
    assert len(set(looks(lines))) == 2


def test_chains_of_one_run_are_distinguished_without_colours_too(tmp_path: Path) -> None:
    lines = charts(run_folder(tmp_path, profiles=("64",), chains=5).path)["64 B"]["percentiles"]
    assert sorted(looks(lines)) == [(0, 1), (1, 0), (2, 2), (3, 3), (4, 4)]


def test_looks_differ_in_colour_and_dashes() -> None:
    first = [look(number) for number in range(COLOURS)]
    assert sorted(colour for colour, _ in first) == list(range(1, 1 + COLOURS))
    assert sorted(dash for _, dash in first) == list(range(DASHES))
    assert len({look(number) for number in range(COLOURS * DASHES)}) == COLOURS * DASHES


def test_bars_of_rates_that_are_far_apart_are_logarithmic(tmp_path: Path) -> None:
    mpps, gbps = throughput(mark([read_run(matrix(tmp_path / "far", (8e6, 0.02e6)))]))
    assert mpps.title == "Mpps, logarithmic from 0.01"
    lengths = {bar.value: bar.segments[0].percent for bar in mpps.bars}
    assert lengths == {"8.000": pytest.approx(100), "0.0200": pytest.approx(10.37, abs=0.01)}
    assert gbps.title == "Gbps at layer 1, logarithmic from 0.01"
    mpps, _ = throughput(mark([read_run(matrix(tmp_path / "near", (8e6, 2e6)))]))
    assert mpps.title == "Mpps"
    assert {bar.segments[0].percent for bar in mpps.bars} == {100.0, 25.0}


@pytest.mark.parametrize("make", [noisy, matrix])
def test_a_legend_shows_each_line_as_it_is_drawn(tmp_path: Path, make: Any) -> None:
    if CHROMIUM is None:
        pytest.skip("no Chromium to draw with")
    page = write_report(make(tmp_path))
    with browser(tmp_path / "profile") as chromium:
        for dark in (False, True):
            chromium.open(page, 1280, dark=dark)
            samples = chromium.evaluate(SAMPLES)
            assert len(samples) == {noisy: 3, matrix: 6}[make]
            for legend in samples:
                assert len(set(map(tuple, legend))) == len(legend) == {noisy: 6, matrix: 8}[make]
                # On paper without colours, seven of them are told apart.
                assert len({dash for _, dash in legend}) == min(len(legend), DASHES)
        assert chromium.complaints == []


SAMPLES = """[...document.querySelectorAll(".u-legend")].map(legend =>
    [...legend.querySelectorAll(".u-series:not(.u-companion) .sample line")].map(
        line => [line.getAttribute("stroke"), line.getAttribute("stroke-dasharray")]))"""
"""Colour and dashes of the lines of each legend."""
