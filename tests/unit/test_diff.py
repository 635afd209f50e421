"""What changed between two runs, in the terminal, as JSON, on a page with both, and all figures as CSV."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from run_folders import add, run_folder, without_loss
from tester_results import both_ways, result, stream

from tailrace.measure.host.tools import from_values
from tailrace.report.bars import throughput
from tailrace.report.difference import print_difference
from tailrace.report.html import write_comparison
from tailrace.report.marked import mark
from tailrace.results import RunFolder, load_run
from tailrace.results.comparison import CellRound, ComparedPair, ComparisonFinding, MatrixCell, ratios_of
from tailrace.results.diff import FIGURES, Difference, diff
from tailrace.results.findings import Goal, LossFinding, Order, ReorderFinding, SearchTrial, ThroughputFinding
from tailrace.results.host import HostSoak, HostTrial
from tailrace.results.spread import Spread
from tailrace.results.stored import read_run
from tailrace.results.table import COLUMNS, csv_text


def difference(a: RunFolder, b: RunFolder) -> Difference:
    return diff(*(read_run(each.path, distributions=False) for each in (a, b)))


def shown(found: Difference, width: int = 100) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    print_difference(found, console)
    return console.export_text()


def test_a_run_does_not_differ_from_itself(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    found = difference(folder, folder)
    assert (found.setting, found.host, found.versions, found.spec, found.only_a, found.only_b) == ((),) * 6
    assert {figure.ratio for figure in found.figures} <= {1.0, None}
    text = shown(found)
    assert "The same: setting, host, versions, spec." in text
    assert len(found.figures) == len(folder.run.trials) * (len(FIGURES) - 1)  # nothing was searched for


def test_everything_that_changed_is_found(tmp_path: Path) -> None:
    a = run_folder(tmp_path, profiles=("64",), chains=2)
    b = run_folder(
        tmp_path,
        profiles=("64", "256"),
        chains=1,
        spec="fabric: tailrace\nfunctions: {}\n",
        host={"cpu": {"model": "Other CPU", "cores": 2, "mhz_now": "1"}, "system": {"load": [1.0]}},
        versions={"tailrace": "0.2.0", "dpdk": "22.11"},
        fabric="ovs-dpdk",
        oversubscribed=True,
    )
    found = difference(a, b)
    assert {row.name: row.values for row in found.versions} == {
        "tailrace": ("0.1.0", "0.2.0"),
        "dpdk": (None, "22.11"),
    }
    host = {row.name: row.values for row in found.host}
    assert host["cpu: model"] == ("Some CPU", "Other CPU")
    assert not {"cpu: mhz_now", "system: load", "cpu: cores"} & host.keys()
    assert {row.name for row in found.setting} == {"fabric", "oversubscribed"}
    assert found.spec[-1] == "+functions: {}"
    assert (found.only_a, found.only_b) == (("64-1",), ("256-0",))
    assert {figure.trial for figure in found.figures} == {"64-0"}
    text = shown(found)
    for word in ("Other CPU", "0.2.0", "+functions: {}", "Only A has: 64-1.", "Only B has: 256-0."):
        assert word in text
    assert json.loads(json.dumps(found.as_data()))["versions"]["dpdk"] == {"a": None, "b": "22.11"}


def test_ratios_are_b_by_a(tmp_path: Path) -> None:
    folders = []
    for factor in (1, 3):
        with RunFolder.create(tmp_path, "x", spec="", host={}, command=[], versions={}) as folder:
            add(folder, result(stream([1_000 * factor] * 50, lost=factor - 1)), **without_loss(1e6 / factor))
        folders.append(folder)
    found = {figure.figure: figure for figure in difference(*folders).figures}
    assert found["latency p50"].ratio == pytest.approx(3, rel=0.01)
    assert found["no-loss rate"].ratio == pytest.approx(1 / 3)
    assert (found["lost"].a, found["lost"].b, found["lost"].ratio) == (0, 2, None)
    lines = shown(difference(*folders)).splitlines()
    assert next(line for line in lines if "p50" in line).split()[-3:] == ["1.00", "3.00", "3.00"]
    assert next(line for line in lines if " lost " in line).split()[-3:] == ["0", "2", "-"]


def repeated(runs: Path, *rounds: tuple[int, int], name: str = "64", **words: Any) -> RunFolder:
    """A run whose rounds have such a latency in ns and so many frames lost."""
    made = {"spec": "", "host": {}, "command": [], "versions": {}, "repeat": len(rounds), **words}
    with RunFolder.create(runs, "x", **made) as folder:
        for number, (latency, lost) in enumerate(rounds, 1):
            folder.begin_round(number)
            add(folder, result(stream([latency] * 50, lost=lost)), name=name)
    return folder


def test_rounds_are_compared_by_their_medians_and_losses_by_their_sum(tmp_path: Path) -> None:
    a, b = repeated(tmp_path, (1_000, 0)), repeated(tmp_path, (9_000, 0), (2_000, 3), (3_000, 4))
    found = difference(a, b)
    assert (found.only_a, found.only_b) == ((), ())
    figures = {figure.figure: figure for figure in found.figures}
    assert figures["latency p50"].ratio == pytest.approx(3, rel=0.01)
    assert figures["lost"].b == 7
    data = {each["figure"]: each for each in found.as_data()["figures"]}
    assert data["latency p50"]["b_range"] == [pytest.approx(2, rel=0.01), pytest.approx(9, rel=0.01)]
    assert "a_range" not in data["latency p50"]
    text = shown(found)
    assert re.search(r"3\.0\d \(2\.0\d–9\.0\d\)", text)
    assert "A has one round and B 3 rounds: sums are over these." in text


def at_rates(runs: Path, *rates: float, floor: bool = False) -> RunFolder:
    """A run of one case at parts of its no-loss rate, as `measure latency` names them; so many µs as percent."""
    with RunFolder.create(runs, "latency", spec="", host={}, command=[], versions={}) as folder:
        for rate in rates:
            name = f"one-function-64-at-{100 * rate:g}%" if len(rates) > 1 else "one-function-64"
            made = result(stream([round(rate * 1e5)] * 50))
            pps = rate * (1e6 + len(rates))
            if floor:
                add(folder, made, name=f"floor-for-{name}", offered_pps=pps)
            add(folder, made, name=name, functions=1, rate_fraction=rate, offered_pps=pps, **without_loss(pps / rate))
    return folder


def test_one_rate_is_found_among_several(tmp_path: Path) -> None:
    one, several = at_rates(tmp_path, 0.5, floor=True), at_rates(tmp_path, 0.1, 0.5, 0.9, floor=True)
    for a, b, only in ((one, several, "only_b"), (several, one, "only_a")):
        found = difference(a, b)
        assert {figure.trial for figure in found.figures} == {
            "one-function-64-at-50%", "floor-for-one-function-64-at-50%",
        }  # fmt: skip
        (p50,) = [each for each in found.figures if each.figure == "latency p50" and each.trial.startswith("one")]
        assert (p50.a, p50.b) == (pytest.approx(50, rel=0.01), pytest.approx(50, rel=0.01))
        lacking = {f"{which}one-function-64-at-{rate}%" for which in ("", "floor-for-") for rate in (10, 90)}
        assert set(found.as_data()[only]) == lacking
        assert found.rates == ()


def test_rates_that_are_not_alike_are_named(tmp_path: Path) -> None:
    found = difference(at_rates(tmp_path, 0.5), at_rates(tmp_path, 0.1, 0.9))
    assert found.figures == ()
    assert found.as_data()["rates"] == [{"trial": "one-function-64", "a": ["50%"], "b": ["10%", "90%"]}]
    text = " ".join(shown(found).split())
    assert "one-function-64: A was measured at 50% and B at 10%, 90%, with no rate in common" in text
    assert "Only B has: one-function-64-at-10%, one-function-64-at-90%." in text
    # Of the same name, but at another rate: the figures are there, and it is said.
    found = difference(at_rates(tmp_path, 0.5), at_rates(tmp_path, 0.9))
    assert [(each.a, each.b) for each in found.rates] == [(("50%",), ("90%",))]
    assert found.figures


def of_tests(runs: Path, *tests: tuple[float, int, float], method: str = "latency") -> RunFolder:
    """A run of a spec with several tests of one rate each: kpps, flows, seconds; as many µs as kpps and flows."""
    with RunFolder.create(runs, method, spec="", host={}, command=[], versions={}) as folder:
        for number, (kpps, flows, seconds) in enumerate(tests):
            made = result(stream([round(1e3 * kpps * flows)] * 50))
            name = "one-function-64" + (f"-again-{number}" if number else "")
            words = {"functions": 1, "offered_pps": 1e3 * kpps, "flows": flows}
            add(folder, {**made, "duration": seconds}, name=name, **words)
    return folder


def test_trials_of_one_name_are_paired_by_all_that_is_known_of_them(tmp_path: Path) -> None:
    """The number in a name is only the place of a test in its spec."""
    a = of_tests(tmp_path, (10, 1, 1.0), (20, 1, 1.0), (20, 7, 1.0), (30, 1, 1.0))
    b = of_tests(tmp_path, (20, 7, 1.0), (40, 1, 1.0), (20, 1, 60.0), (10, 1, 1.001))
    for one, other in ((a, b), (b, a)):
        found = difference(one, other)
        p50 = {each.trial: (each.a, each.b) for each in found.figures if each.figure == "latency p50"}
        assert sorted(p50.values()) == [(pytest.approx(us, rel=0.01),) * 2 for us in (10, 20, 140)]
        only = (found.only_a, found.only_b) if one is a else (found.only_b, found.only_a)
        assert only == (
            ("one-function-64 (0.03 Mpps, 1 flow, 1 s)",), ("one-function-64 (0.04 Mpps, 1 flow, 1 s)",),
        )  # fmt: skip
        (unlike,) = found.unlike
        assert (unlike.what, {unlike.a, unlike.b}) == ("duration", {"1 s", "60 s"})
        assert all(name.startswith("one-function-64 (0.0") for name in p50)
        assert any("7 flows" in name for name in p50)
    text = " ".join(shown(difference(a, b)).split())
    assert "1 s in A and 60 s in B: the duration differs." in text
    assert "Only A has: one-function-64 (0.03 Mpps, 1 flow, 1 s)." in text
    assert json.loads(json.dumps(difference(a, b).as_data()))["unlike"][0]["what"] == "duration"


def test_single_trials_of_one_name_are_set_against_each_other_and_what_differs_is_said(tmp_path: Path) -> None:
    found = difference(of_tests(tmp_path, (10, 1, 1.0)), of_tests(tmp_path, (10, 1000, 1.0)))
    assert found.figures
    assert [(each.trial, each.what, each.a, each.b) for each in found.unlike] == [
        ("one-function-64", "flows", "1 flow", "1000 flows")
    ]
    # What an older run does not say may be anything.
    older = at_rates(tmp_path, 0.5)
    assert difference(older, older).unlike == ()


def test_findings_of_one_name_are_paired_by_their_search(tmp_path: Path) -> None:
    folders = []
    for order in ((1e6, "mlrsearch"), (2e6, "rfc2544")), ((2e6, "rfc2544"), (1e6, "mlrsearch")):
        with RunFolder.create(tmp_path, "throughput", spec="", host={}, command=[], versions={}) as folder:
            for number, (pps, search) in enumerate(order):
                goal = Goal(loss_ratio=0, pps=pps, upper_pps=None, gbps_l1=1, gbps_l2=1, limit="loss")
                folder.add_finding(
                    ThroughputFinding(
                        name="one-function-64" + (f"-again-{number}" if number else ""), profile="64", functions=1,
                        valid=True, reason=None, search=search, precision=0.005, goals=(goal,), trials=(),
                    )
                )  # fmt: skip
        folders.append(folder)
    found = difference(*folders)
    assert [(each.trial, each.ratio) for each in found.figures] == [
        ("one-function-64 (mlrsearch, precision 0.005)", 1.0), ("one-function-64 (rfc2544, precision 0.005)", 1.0),
    ]  # fmt: skip
    assert (found.only_a, found.only_b, found.unlike) == ((), (), ())


def test_findings_that_only_one_run_has_are_named(tmp_path: Path) -> None:
    found = difference(searched(tmp_path, 1e6), at_rates(tmp_path, 0.5))
    assert (found.only_a, found.only_b) == (("one-function-64, throughput",), ("one-function-64",))
    assert found.figures == ()
    found = difference(searched(tmp_path, 1e6), at_rates(tmp_path, 0.1, 0.5))
    assert found.only_a == ("one-function-64, throughput",)


def cells(runs: Path, **reasons: str | None) -> RunFolder:
    """A matrix of which the cells with a reason could not be measured here."""
    with RunFolder.create(runs, "matrix", spec="", host={}, command=[], versions={}) as folder:
        for name, reason in reasons.items():
            found = MatrixCell(
                name=name, profile="64", functions=0, valid=True, reason=None, fabric="direct", interface="memif",
                ends="east/west", pattern="VV", not_here=reason,
            )  # fmt: skip
            if reason is None:
                add(folder, result(stream([1_000] * 50)), name=name)
                found = found.with_round(CellRound(round=1, trial=name, p50_us=1.0))
            folder.put_finding(found, of_all_rounds=True)
    return folder


def test_a_cell_that_was_not_measured_is_not_something_that_a_run_has(tmp_path: Path) -> None:
    here = cells(tmp_path, both=None, one=None, other="no CPUs", neither="no CPUs")
    there = cells(tmp_path, both=None, one="no\nNIC", neither="no CPUs")
    found = difference(here, there)
    assert (found.only_a, found.only_b) == (("one",), ())
    told = [
        ("other", "a", "no CPUs"),
        ("neither", "a", "no CPUs"),
        ("one", "b", "no\nNIC"),
        ("neither", "b", "no CPUs"),
    ]
    assert [(each.name, each.run, each.reason) for each in found.not_measured] == told
    assert [tuple(each.values()) for each in found.as_data()["not_measured"]] == told
    lines = [line for line in shown(found, 200).splitlines() if line.startswith(("Only", "Not"))]
    assert lines[:2] == ["Only A has: one.", "Not measured in A: other, neither: no CPUs."]
    assert lines[2].startswith("Not measured in B: one: no")
    assert lines[3:] == ["Not measured in B: neither: no CPUs."]


def comparison(runs: Path, *ratios: float) -> RunFolder:
    """A comparison of two fabrics, with one pair for each ratio of direct's latency to tailrace's."""
    pairs = []
    with RunFolder.create(runs, "compare", spec="", host={}, command=[], versions={}) as folder:
        for number, ratio in enumerate(ratios, 1):
            for fabric, us in (("tailrace", 10.0), ("direct", 10.0 * ratio)):
                add(folder, result(stream([round(us * 1e3)] * 50)), name=f"64-{fabric}-pair-{number}")
            pairs.append(ComparedPair(sides={"tailrace": {"p50_us": 10.0}, "direct": {"p50_us": 10.0 * ratio}}))
        sides = ("tailrace", "direct")
        folder.put_finding(
            ComparisonFinding(
                method="compare", name="64", profile="64", functions=1, valid=True, reason=None, baseline="tailrace",
                sides=sides, offered_pps=1e6, pairs=tuple(pairs),
                ratios=ratios_of(pairs, sides, "tailrace", ["p50_us"]),
            )
        )  # fmt: skip
    return folder


def test_comparisons_differ_by_their_ratios_and_by_the_medians_over_pairs(tmp_path: Path) -> None:
    found = difference(comparison(tmp_path, 0.5, 0.4, 0.6), comparison(tmp_path, 0.25))
    assert (found.only_a, found.only_b) == ((), ())
    assert {figure.trial for figure in found.figures} == {"64-tailrace", "64-direct", "64"}
    (ratio,) = [figure for figure in found.figures if figure.unit == "×"]
    assert (ratio.figure, ratio.a, ratio.b) == ("direct ÷ tailrace, p50_us", 0.5, 0.25)


def test_a_hostile_run_does_not_move_the_cursor(tmp_path: Path) -> None:
    evil = "\x1b[2J\r\u202e[red]"
    a = run_folder(tmp_path, profiles=("64",), chains=1)
    b = run_folder(tmp_path, profiles=("64",), chains=1, spec=evil, host={evil: evil}, versions={evil: evil})
    with b:
        add(b, both_ways(50), name=evil)
    assert not set("\x1b\r\u202e") & set(shown(difference(a, b)))


def test_runs_side_by_side_keep_their_figures_and_say_what_differs(tmp_path: Path) -> None:
    a = run_folder(tmp_path, profiles=("64", "256"), chains=2)
    b = run_folder(tmp_path, profiles=("64",), chains=2, versions={"tailrace": "0.2.0"}, spec="fabric: ovs-dpdk\n")
    page = write_comparison([a.path, b.path], tmp_path / "both.html").read_text()
    assert "2 runs side by side" in page
    assert "<td>0.2.0</td>" in page
    for folder in (a, b):
        assert folder.run.id in page
    assert page.count("The spec of ") == 2
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert [profile["title"] for profile in data] == ["64 B", "256 B"]
    labels = [one["label"].partition(":")[0] for one in data[0]["percentiles"]]
    assert labels == ["A", "B", "A", "B"]
    assert {one["colour"] for one in data[0]["percentiles"]} == {1, 2}


# CSV


def rows(*folders: RunFolder) -> list[dict[str, str]]:
    text = csv_text(load_run(folder.path) for folder in folders)
    assert text.endswith("\r\n")
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_csv_has_a_line_for_each_direction_with_every_figure(tmp_path: Path) -> None:
    a, b = run_folder(tmp_path), run_folder(tmp_path, profiles=("64",), chains=1)
    found = rows(a, b)
    assert len(found) == 2 * (len(a.run.trials) + len(b.run.trials))
    assert tuple(found[0]) == COLUMNS
    trial = a.run.trials[1]
    lines = [row for row in found if row["run"] == a.run.id and row["trial"] == trial.name]
    for line, way in zip(lines, trial.directions, strict=True):
        assert way.latency_us is not None
        assert line["direction"] == way.name
        assert (int(line["received"]), int(line["refused"])) == (way.received, way.refused)
        assert float(line["latency_p99.9_us"]) == way.latency_us.p99_9
        assert float(line["mpps"]) == way.mpps
        assert (line["worse"], bool(line["share_p50_us"])) == (("yes", True) if way is trial.worse else ("no", False))


def test_csv_of_a_direction_that_received_nothing_has_empty_cells(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, "x", spec="", host={}, command=[], versions={}) as folder:
        add(folder, result(stream([], lost=3)))
    (row,) = rows(folder)
    assert (row["latency_p50_us"], row["lost"], row["trial_valid"], row["fabric"]) == ("", "3", "yes", "")


def test_a_spreadsheet_is_not_made_to_reckon(tmp_path: Path) -> None:
    def hostile(text: str) -> dict[str, Any]:
        return stream([100] * 5) | {"name": text, "from": text}

    with RunFolder.create(tmp_path, "x", spec="", host={}, command=[], versions={}, fabric="=cmd|'/c calc'!A1") as made:
        add(made, result(hostile("@SUM(1+1)*cmd")), name='=1+1,"x"\n')
    (row,) = rows(made)
    assert row["fabric"] == "'=cmd|'/c calc'!A1"
    assert row["trial"] == '\'=1+1,"x"\n'
    assert row["direction"].startswith("'@SUM")


def test_csv_has_what_methods_found(tmp_path: Path) -> None:
    throughput_found = searched(tmp_path, 1e6)
    compared = comparison(tmp_path, 0.5, 0.4)
    lossy = curve(tmp_path, 0.1)
    found = [row for row in rows(throughput_found, compared, lossy) if row["finding"]]
    assert [(row["finding"], row["trial"], row["figure"], row["value"]) for row in found] == [
        ("throughput", "one-function-64", "ndr_pps", "1000000.0"),
        ("throughput", "one-function-64", "ndr_gbps_l1", "1.0"),
        ("throughput", "one-function-64", "ndr_gbps_l2", "1.0"),
        ("throughput", "one-function-64", "ndr_limit", "loss"),
        ("compare", "64", "direct/tailrace p50_us", "0.45"),
        ("compare", "64", "tailrace p50_us", "10.0"),
        ("compare", "64", "direct p50_us", "4.5"),
        ("loss", "one-function-64", "full_pps", "2000000.0"),
        ("loss", "one-function-64", "loss_ratio at 100% of full_pps", "0.1"),
        ("loss", "one-function-64", "loss_ratio", "0.1"),
    ]
    assert (found[4]["low"], found[4]["high"]) == ("0.4", "0.5")
    assert [found[6][name] for name in ("low", "high", "over", "values", "fell_short")] == [
        "4.0",
        "5.0",
        "pairs",
        "2",
        "",
    ]
    assert (found[-1]["offered_pps"], found[-1]["offered"], found[-1]["lost"]) == ("2000000.0", "100", "9")
    # Whose doing it is that less was sent, of a trial and of the point that it makes.
    assert (found[-1]["unsent"], found[-1]["refused"]) == ("10", "10")
    assert [row["fell_short"] for row in found[-2:]] == ["yes", "yes"]
    assert {row["run"] for row in found} == {throughput_found.run.id, compared.run.id, lossy.run.id}


# Loss curves, order, the host


def curve(runs: Path, ratio: float) -> RunFolder:
    """A loss curve of one point, at the full rate."""
    trial = SearchTrial(
        offered_pps=2e6, duration_s=1, sent=90, unsent=10, refused=10, lost=9, duplicate=0, out_of_sequence=0,
        beyond_window=0, foreign=0, sent_pps=90, forwarded_pps=81, loss_ratio=ratio, fell_short="refused",
    )  # fmt: skip
    with RunFolder.create(runs, "loss", spec="", host={}, command=[], versions={}) as folder:
        folder.add_finding(
            LossFinding(
                name="one-function-64", profile="64", functions=1, valid=True, reason=None, full_pps=2e6,
                trials=(trial,),
            )
        )  # fmt: skip
    return folder


def reordered(runs: Path, *frames: int) -> RunFolder:
    """What `measure reorder` finds where so many of 1,000 frames were out of sequence, together and apart."""
    together, apart = (
        Order(
            sent=1000, received=1000, out_of_sequence=number, beyond_window=0, extent_average=0, extent_max=0,
            extent_unknown=0,
        )
        for number in frames
    )  # fmt: skip
    with RunFolder.create(runs, "reorder", spec="", host={}, command=[], versions={}) as folder:
        folder.add_finding(
            ReorderFinding(
                name="64", profile="64", functions=1, valid=True, reason=None, flows=8, delays_us={}, slower=9,
                together=together, apart=apart,
            )
        )  # fmt: skip
    return folder


def host(runs: Path, us: int, *cpus: int) -> RunFolder:
    """A run of `measure host` in which these CPUs always took so long."""
    histogram = from_values({1000 * us: 100})
    with RunFolder.create(runs, "host", spec="", host={}, command=[], versions={}) as folder:
        found = [
            HostTrial(
                name=f"latency-cyclictest-cpu-cpu{cpu}", test="cyclictest", load="cpu", host_profile="latency", cpu=cpu,
                role="vnf", started=folder.run.started, duration_s=1, samples=100, missed=2,
                latency_us=histogram.latency(), histogram=None, intervals=(),
            )
            for cpu in cpus
        ]  # fmt: skip
        soak = HostSoak(asked_s=1, slices=1, done=1, end_s=1, boot="this-boot")
        folder.keep_host_slice([(trial, histogram) for trial in found], soak)
    return folder


def test_loss_curves_and_order_are_compared(tmp_path: Path) -> None:
    found = difference(curve(tmp_path, 0.1), curve(tmp_path, 0.2))
    assert [(each.figure, each.unit, each.a, each.b) for each in found.figures] == [
        ("full rate", "Mpps", 2.0, 2.0),
        ("lost at 100 % of the full rate", "%", 10.0, 20.0),
    ]
    assert next(line for line in shown(found).splitlines() if "lost at" in line).split()[-3:] == ["†10", "†20", "2.00"]
    assert "†: less than 98% of the frames offered were sent in a trial" in " ".join(shown(found).split())
    found = difference(reordered(tmp_path, 50, 0), reordered(tmp_path, 25, 1))
    assert [(each.figure, each.a, each.b) for each in found.figures] == [
        ("reordered, together", 5.0, 2.5),
        ("reordered, apart", 0.0, 0.1),
    ]


def test_what_was_measured_of_the_host_is_compared(tmp_path: Path) -> None:
    found = difference(host(tmp_path, 5, 1, 2), host(tmp_path, 10, 1, 3))
    assert {each.trial for each in found.figures} == {"latency-cyclictest-cpu-cpu1"}
    figures = {each.figure: each for each in found.figures}
    assert list(figures) == ["min", "avg", "p50", "p99", "p99.9", "p99.99", "max", "missed"]
    assert figures["max"].ratio == 2.0 and figures["missed"].a == 2
    assert (found.only_a, found.only_b) == (("latency-cyclictest-cpu-cpu2",), ("latency-cyclictest-cpu-cpu3",))
    assert "max, µs" in shown(found) and "worse direction" not in shown(found)


def test_csv_has_a_line_for_each_trial_of_the_host(tmp_path: Path) -> None:
    found = rows(host(tmp_path, 5, 1, 2))
    assert [(row["trial"], row["cpu"]) for row in found] == [
        ("latency-cyclictest-cpu-cpu1", "1"),
        ("latency-cyclictest-cpu-cpu2", "2"),
    ]
    cells = {"test": "cyclictest", "load": "cpu", "host_profile": "latency", "role": "vnf", "samples": "100"}
    cells |= {"missed": "2", "latency_max_us": "5.0", "latency_p99.99_us": "5.0", "duration_s": "1.0", "finding": ""}
    assert cells.items() <= found[0].items()


# Throughput that was searched for


def searched(runs: Path, *rates: float) -> RunFolder:
    with RunFolder.create(runs, "x", spec="", host={}, command=[], versions={}) as folder:
        for number, rate in enumerate(rates, 1):
            goal = Goal(loss_ratio=0, pps=rate, upper_pps=None, gbps_l1=rate / 1e6, gbps_l2=rate / 1e6, limit="loss")
            folder.begin_round(number)
            folder.add_finding(
                ThroughputFinding(
                    name="one-function-64", profile="64", functions=1, valid=True, reason=None, search="mlrsearch",
                    precision=0.01, goals=(goal,), trials=(),
                )
            )  # fmt: skip
    return folder


def test_the_throughput_that_was_found_is_compared_and_charted_as_the_median_of_its_rounds(tmp_path: Path) -> None:
    a, b = searched(tmp_path, 1e6), searched(tmp_path, 4e6, 2e6, 3e6)
    (figure,) = difference(a, b).figures
    assert (figure.figure, figure.a, figure.b, figure.ratio) == ("throughput, 0 % lost", 1.0, 3.0, 3.0)
    assert (figure.a_spread, figure.b_spread) == (None, Spread(3.0, 2.0, 4.0, 3))
    charts = throughput(mark([read_run(each.path) for each in (a, b)]))
    assert [chart.title for chart in charts] == ["Mpps", "Gbps at layer 1"]
    bars = charts[0].bars
    assert [(bar.label, bar.value) for bar in bars] == [
        ("A: 64 B, 1 VNF", "1.000"),
        ("B: 64 B, 1 VNF", "3.000 (2.000–4.000)"),
    ]
    assert [bar.segments[0].percent for bar in bars] == pytest.approx([100 / 3, 100])
