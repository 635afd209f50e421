"""Comparisons without fabrics: whose turn it is, at which rate, what is kept when one is cut short, and the tables."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from joined_tester import JoinedTester
from rich.console import Console
from run_folders import add, without_loss
from tester_results import both_ways, result, stream

from tailrace.errors import Fault, Mistake
from tailrace.fabric.kinds import KINDS
from tailrace.measure import compare as the_compare
from tailrace.measure.compare import ComparePlan, Comparison
from tailrace.measure.profile import profile
from tailrace.measure.progress import Silent
from tailrace.measure.search import NoRate
from tailrace.measure.side import Load, figures, loads_of
from tailrace.measure.stand import Placed, Scene, SceneFunction, placement
from tailrace.report.bars import heat_maps, throughput
from tailrace.report.comparisons import cells_table, comparisons, heats
from tailrace.report.figures import naming, trial_names
from tailrace.report.findings import sections
from tailrace.report.html import render
from tailrace.report.marked import by_profile, mark
from tailrace.report.rounds import interval_words
from tailrace.report.table import print_run
from tailrace.resources.topology import Cpu
from tailrace.results.comparison import (
    CellFigures,
    CellRound,
    ComparedPair,
    ComparisonFinding,
    MatrixCell,
    Place,
    places,
    ratios_of,
)
from tailrace.results.model import Trial, parse_run
from tailrace.results.no_loss import Limit, NoLossRate
from tailrace.results.run import RunFolder
from tailrace.results.stored import StoredRun
from tailrace.results.table import csv_text
from tailrace.results.table_findings import lines
from tailrace.spec.tests import Latency
from tailrace.spec.units import Rate
from tailrace.state.launch import Launcher
from tailrace.state.record import Record, State

NAMES = ("tailrace", "ovs-dpdk", "direct")
LIMITS: dict[str, Limit] = {"tailrace": "tester", "ovs-dpdk": "loss", "direct": "tester", "linux-bridge": "loss"}
NO_LOSS = {"tailrace": 3e6, "ovs-dpdk": 1e6, "direct": 4e6, "linux-bridge": 2e6}


def plan(loads: list[Load], pairs: int = 2, names: tuple[str, ...] = NAMES) -> ComparePlan:
    scene = Scene("chain", (SceneFunction("first"),))
    cpus = [Cpu(number, core=number) for number in range(8)]
    placed = [Placed(KINDS[name], placement(scene, KINDS[name], cpus, real_time=True)) for name in names]
    return ComparePlan(scene, placed, loads, pairs)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "compare", spec="", host={}, command=("tailrace",), versions={})


class Machine:
    """Fabrics that answer at once, with what they were asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: str = "") -> None:
        self.asked: list[tuple[str, str, float]] = []
        self.looked: list[tuple[str, str]] = []
        self.up = ""
        self.fails = fails
        self.joined = JoinedTester(monkeypatch)
        monkeypatch.setattr(the_compare, "standing", self.standing)
        monkeypatch.setattr(the_compare, "core_to_core", lambda *_: 80.0)
        monkeypatch.setattr(the_compare, "no_loss", lambda *_: self.searched())
        monkeypatch.setattr(the_compare, "measured", self.measured)
        monkeypatch.setattr(the_compare, "at_rate", self.at_rate)
        monkeypatch.setattr(the_compare, "figures", lambda *given: given[0])
        monkeypatch.setattr(the_compare, "keep_aside", lambda *_: None)

    @contextmanager
    def standing(self, *given: Any) -> Iterator[Any]:
        assert not self.up, "two fabrics at once"
        self.up = given[2].name
        try:
            yield SimpleNamespace(tester=None, check=lambda: None, version=dict)
        finally:
            self.up = ""

    def searched(self) -> NoLossRate:
        return NoLossRate(pps=NO_LOSS[self.up], limit=LIMITS[self.up])

    def measured(self, *given: Any) -> Any:
        _, case = given
        self.looked.append((self.up, case.name))
        searched = self.searched()
        return SimpleNamespace(searched=searched, offered_pps=searched.pps * case.rate.fraction)

    def at_rate(self, *given: Any) -> dict[str, float]:
        _, case, rate = given
        self.asked.append((self.up, case.name, rate))
        if case.name == self.fails:
            raise Fault("it died")
        return {"p50_us": 10.0 * (1 + list(NO_LOSS).index(self.up)), "loss_ratio": 0.0}


def run(wanted: ComparePlan, folder: RunFolder) -> None:
    state = State(folder.path, Record(boot="none"))
    Comparison(wanted, Launcher(state, folder.logs, tied=True), folder, Silent()).run()


@pytest.mark.parametrize("lossy", [1, len(NAMES)])
def test_a_fabric_that_loses_frames_at_any_rate_is_measured_at_the_others_rate(
    monkeypatch: pytest.MonkeyPatch, folder: RunFolder, lossy: int
) -> None:
    machine = Machine(monkeypatch)
    found = the_compare.measured

    def measured(*given: Any) -> Any:
        if machine.up in NAMES[:lossy]:
            raise NoRate("frames are lost even at 1000 frames a second")
        return found(*given)

    monkeypatch.setattr(the_compare, "measured", measured)
    monkeypatch.setattr(the_compare, "no_loss", lambda *_: machine.searched())
    wanted = plan([Load("64", profile(64), Rate(fraction=0.5), 1.0)])
    if lossy == len(NAMES):
        with pytest.raises(NoRate, match="no fabric has a rate without loss"):
            run(wanted, folder)
        return
    run(wanted, folder)
    assert [name for name, _, _ in machine.asked] == [*NAMES, *NAMES[1:], NAMES[0]]
    (finding,) = folder.run.findings
    assert isinstance(finding, ComparisonFinding)
    assert all(NAMES[0] not in pair.searched and NAMES[1] in pair.searched for pair in finding.pairs)
    assert folder.run.notes == (f"{NAMES[0]}, 64: frames are lost even at 1000 frames a second",)


def test_fabrics_take_turns_at_the_same_rate(monkeypatch: pytest.MonkeyPatch, folder: RunFolder) -> None:
    machine = Machine(monkeypatch)
    run(plan([Load("64", profile(64), Rate(fraction=0.5), 1.0)]), folder)
    first, second, third = NAMES
    assert [name for name, _, _ in machine.asked] == [*NAMES, second, third, first]
    # Half of the lowest no-loss rate, for all; each has been confirmed beforehand.
    assert {rate for _, _, rate in machine.asked} == {0.5e6}
    assert machine.looked == [(name, f"64-{name}-first-look") for name in NAMES]
    (finding,) = folder.run.findings
    assert isinstance(finding, ComparisonFinding)
    assert len(finding.pairs) == 2
    assert finding.rate_fraction == 0.5
    assert {side: rate.pps for side, rate in finding.searched.items()} == {side: NO_LOSS[side] for side in NAMES}
    assert [{side: rate.limit for side, rate in pair.searched.items()} for pair in finding.pairs] == [
        {side: LIMITS[side] for side in NAMES}
    ] * 2
    ratio = finding.ratio("ovs-dpdk", "p50_us")
    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high) == (2.0, 2.0, 2.0)
    assert finding.ratio("tailrace", "p50_us") is None


@pytest.mark.parametrize("names", [NAMES[:2], NAMES, (*NAMES, "linux-bridge")])
def test_each_fabric_comes_first_and_last_equally_often(
    monkeypatch: pytest.MonkeyPatch, folder: RunFolder, names: tuple[str, ...]
) -> None:
    machine = Machine(monkeypatch)
    run(plan([Load("64", profile(64), Rate(pps=1000), 1.0)], pairs=2 * len(names), names=names), folder)
    turns = [name for name, _, _ in machine.asked]
    pairs = [turns[at : at + len(names)] for at in range(0, len(turns), len(names))]
    for end in (0, -1):
        assert Counter(pair[end] for pair in pairs) == dict.fromkeys(names, 2)
    (finding,) = folder.run.findings
    assert isinstance(finding, ComparisonFinding)
    assert finding.sides == names
    # The order is kept, and read again as it was; ratios do not depend on it.
    (stored,) = parse_run(folder.run.to_json()).findings
    assert isinstance(stored, ComparisonFinding)
    assert [list(pair.sides) for pair in stored.pairs] == pairs
    assert {each.side: each.median for each in finding.ratios if each.figure == "p50_us"} == {
        name: 1.0 + list(NO_LOSS).index(name) for name in names[1:]
    }


def test_no_loss_rates_that_are_the_testers_limit_are_marked_and_ratios_of_them(
    monkeypatch: pytest.MonkeyPatch, folder: RunFolder
) -> None:
    """In the table, on the page and as comma-separated values, each mark explained once."""
    Machine(monkeypatch)
    monkeypatch.setattr(the_compare, "figures", lambda trial, searched: {**trial, "no_loss_mpps": searched.pps / 1e6})
    run(plan([Load("64", profile(64), Rate(fraction=0.5), 1.0)], pairs=2, names=(*NAMES, "linux-bridge")), folder)
    assert folder.run.notes == ()
    (section,) = comparisons(folder.run.findings)
    shown = {row[1]: row[2:] for row in section.rows if row[0].startswith("no-loss")}
    assert shown == {
        "tailrace": ("≥3.000", "-"),
        "ovs-dpdk": ("1.000", "≤× 0.333 [0.333–0.333]"),
        "direct": ("≥4.000", "?× 1.33 [1.33–1.33]"),
        "linux-bridge": ("2.000", "≤× 0.667 [0.667–0.667]"),
    }
    (said,) = [text for text in section.remarks if text.startswith("≥")]
    assert "≤: the ratio is at most this" in said and "?: nothing is known of the ratio" in said
    assert any("Offered: 50% of the lowest no-loss rate, 1.000 Mpps (ovs-dpdk)" in text for text in section.remarks)
    assert not any(mark in cell for row in section.rows if "p50" in row[0] for cell in row for mark in "≥≤?")
    assert "≥3.000" in render([StoredRun(folder.path, folder.run, "")])
    found = {row["figure"]: row["bound"] for row in csv.DictReader(io.StringIO(csv_text([folder.run])))}
    assert [found[f"{side}/tailrace no_loss_mpps"] for side in ("ovs-dpdk", "direct")] == ["at_most", "unknown"]
    assert [found[f"{side} no_loss_mpps"] for side in ("tailrace", "ovs-dpdk")] == ["at_least", ""]
    assert found["direct/tailrace p50_us"] == ""
    # The other way round the ratio is at least so much.
    monkeypatch.setattr(the_compare, "standing", Machine(monkeypatch).standing)
    monkeypatch.setattr(the_compare, "figures", lambda trial, searched: {**trial, "no_loss_mpps": searched.pps / 1e6})
    with RunFolder.create(folder.path, "other", spec="", host={}, command=(), versions={}) as other:
        run(plan([Load("64", profile(64), Rate(fraction=0.5), 1.0)], names=("ovs-dpdk", "tailrace")), other)
    (section,) = comparisons(other.run.findings)
    assert next(row[3] for row in section.rows if row[1] == "tailrace").startswith("≥× 3 ")


def test_a_rate_that_is_given_is_not_looked_for(monkeypatch: pytest.MonkeyPatch, folder: RunFolder) -> None:
    machine = Machine(monkeypatch)
    wanted = plan([Load("64", profile(64), Rate(pps=1000), 1.0)], pairs=1)
    assert not wanted.searches
    run(wanted, folder)
    assert {rate for _, _, rate in machine.asked} == {1000}


SIDES = ("tailrace", "linux-bridge", "direct")


def test_the_floor_is_measured_once_for_each_kind_of_port(monkeypatch: pytest.MonkeyPatch, folder: RunFolder) -> None:
    machine = Machine(monkeypatch)
    rates = (Rate(pps=1000), Rate(pps=2000))
    traffic = (profile(64), profile("imix"))
    loads = [Load(f"{each.name}-{n}", each, rate, 1.0) for each in traffic for n, rate in enumerate(rates)]
    monkeypatch.setattr(
        the_compare, "at_rate", lambda session, case, rate: measured(session.folder, case.name, case.profile.name, rate)
    )
    monkeypatch.setattr(the_compare, "figures", figures)
    run(plan(loads, names=SIDES), folder)
    # Two TAPs have a bridge between them; all else is joined with nothing between.
    assert machine.joined.stood == [("vhost-user", "direct"), ("tap", "linux-bridge")]
    floors = [(each.ports, each.profile, each.offered_pps, each.latency_us.p50) for each in folder.run.floors]
    assert [each[:3] for each in floors] == [
        ("vhost-user", "64", 1e5), ("vhost-user", "imix", 1e5), ("tap", "64", 1e4), ("tap", "imix", 1e4),
    ]  # fmt: skip
    # Each side stands on the floor of its own ports: 10 µs are ten times 1 µs, and not twice 8 µs.
    assert {each.near_floor for each in folder.run.trials if "linux-bridge" in each.name} == {True}
    assert {each.near_floor for each in folder.run.trials if "linux-bridge" not in each.name} == {False}
    for finding in folder.run.findings:
        assert isinstance(finding, ComparisonFinding)
        assert finding.floor_ratio("linux-bridge") == pytest.approx(10 / 8, rel=0.02)
        assert finding.floor_ratio("direct") == pytest.approx(10, rel=0.02)
    (section, *_) = comparisons(folder.run.findings)
    medians = {row[1]: row[2] for row in section.rows if row[0] == "p50 µs"}
    assert [medians[side].startswith("~") for side in SIDES] == [False, True, False]
    assert not any(cell.startswith("~") for row in section.rows if row[0] != "p50 µs" for cell in row)


def measured(folder: RunFolder, name: str, traffic: str, rate: float) -> Trial:
    made = result(stream([10_000] * 100))
    return folder.add_trial(made, name=name, profile=traffic, flows=1, functions=1, offered_pps=rate)


@pytest.mark.parametrize("fails", ["tap", "vhost-user"])
def test_a_floor_that_cannot_be_measured_is_a_note(
    monkeypatch: pytest.MonkeyPatch, folder: RunFolder, fails: str
) -> None:
    machine = Machine(monkeypatch)
    machine.joined = JoinedTester(monkeypatch, fails)
    run(plan([Load("64", profile(64), Rate(pps=1000), 1.0)], pairs=2, names=SIDES), folder)
    assert len(machine.asked) == 6
    # Nor is it tried again for every pair.
    assert sorted(machine.joined.stood) == [("tap", "linux-bridge"), ("vhost-user", "direct")]
    assert folder.run.notes == (f"the tester's own floor over {fails} was not measured: it does not start",)
    assert [each.ports for each in folder.run.floors] == [kind for kind in ("vhost-user", "tap") if kind != fails]


def test_what_was_measured_is_kept_when_a_fabric_fails(monkeypatch: pytest.MonkeyPatch, folder: RunFolder) -> None:
    Machine(monkeypatch, fails="64-direct-pair-2")
    with pytest.raises(Fault, match="direct: it died"):
        run(plan([Load("64", profile(64), Rate(pps=1000), 1.0)]), folder)
    (finding,) = folder.run.findings
    assert isinstance(finding, ComparisonFinding)
    # It was the turn of the third side to be the second one.
    assert [list(pair.sides) for pair in finding.pairs] == [list(NAMES), ["ovs-dpdk"]]
    counts = {each.side: each.pairs for each in finding.ratios}
    assert counts == {"ovs-dpdk": 1, "direct": 1}
    (section,) = comparisons(folder.run.findings)
    assert any("is incomplete" in text for text in section.remarks)


def test_one_fabric_alone_is_no_comparison() -> None:
    with pytest.raises(Mistake, match="one fabric alone"):
        ComparePlan(Scene("chain", ()), plan([]).fabrics[:1], [])


def test_loads_have_names_of_their_own() -> None:
    tests = [
        Latency.model_validate({"frames": [64, "imix"], "rate": ["10%", "90%"]}),
        Latency.model_validate({"frames": 64}),
    ]
    names = [load.name for load in loads_of(tests)]
    assert len(names) == len(set(names)) == 5


def comparison() -> ComparisonFinding:
    sides = ("tailrace", "direct")
    pairs = [
        ComparedPair(
            sides={"tailrace": {"p50_us": 10.0, "loss_ratio": 0.0}, "direct": {"p50_us": low, "loss_ratio": 0.01}}
        )
        for low in (4.0, 5.0, 6.0)
    ]
    return ComparisonFinding(
        method="compare", name="64", profile="64", functions=1, valid=True, reason=None, baseline="tailrace",
        sides=sides, offered_pps=1e6, pairs=tuple(pairs), ratios=ratios_of(pairs, sides, "tailrace", ["p50_us"]),
        left_out={"vnf": "no <core>"},
    )  # fmt: skip


def of_pairs(count: int) -> ComparisonFinding:
    known = comparison()
    pairs = (known.pairs * 3)[:count]
    return known.model_copy(
        update={"pairs": pairs, "ratios": ratios_of(pairs, known.sides, known.baseline, ["p50_us"])}
    )


@pytest.mark.parametrize(
    ("pairs", "level", "said"),
    [
        (1, 0, "a single pair has none"),
        (2, 0.5, "which contains the true median in 50 %"),
        (5, 0.9375, "which contains the true median in 94 %"),
        (6, 0.95, "which contains the true median in 95 %"),
    ],
)
def test_what_an_interval_is_worth_is_stored_and_said(pairs: int, level: float, said: str) -> None:
    finding = of_pairs(pairs)
    assert [each.level for each in finding.ratios] == [level]
    (section,) = comparisons([finding])
    assert said in section.remarks[0]


def test_how_pairs_were_ordered_is_said_as_it_was(monkeypatch: pytest.MonkeyPatch, folder: RunFolder) -> None:
    """Those of earlier versions all began with the same side."""
    (section,) = comparisons([comparison()])
    assert "every fabric once, one after the other; always in this order." in section.remarks[0]
    Machine(monkeypatch)
    run(plan([Load("64", profile(64), Rate(pps=1000), 1.0)]), folder)
    (section,) = comparisons(folder.run.findings)
    assert "each pair begins with the next fabric, so each is first and last equally often." in section.remarks[0]
    (section,) = comparisons([comparison().model_copy(update={"method": "noise"})])
    assert "a quiet trial and, right after it, a noisy one." in section.remarks[0]


def test_what_intervals_of_unlike_numbers_of_pairs_are_worth_is_said() -> None:
    finding = of_pairs(5)
    ratios = (*finding.ratios, *of_pairs(4).ratios, *of_pairs(1).ratios)
    assert interval_words(ratios).endswith("the true median in 88 to 94 % of cases")
    of_old = [each.model_copy(update={"level": 0.95}) for each in finding.ratios]
    assert interval_words(of_old).endswith("in 94 % of cases")


def sent(ratios: dict[str, tuple[float, ...]]) -> ComparisonFinding:
    """The same, with the part of the frames offered that was sent to a side in each pair."""
    known = comparison()
    pairs = tuple(
        ComparedPair(
            sides={
                side: {**pair.sides[side], "no_loss_mpps": 1.0, "sent_ratio": parts[number]}
                for side, parts in ratios.items()
            }
        )
        for number, pair in enumerate(known.pairs)
    )
    found = ratios_of(pairs, known.sides, known.baseline, ["no_loss_mpps", "p50_us"])
    return known.model_copy(update={"pairs": pairs, "ratios": found})


def test_figures_of_a_side_that_sent_less_than_offered_in_any_pair_are_marked() -> None:
    """In the table as in the CSV; not the no-loss rate, which was looked for at other rates."""
    short = sent({"tailrace": (1.0, 0.99, 0.985), "direct": (1.0, 0.97, 0.5)})
    (section,) = comparisons([short])
    assert section.rows == (
        ("no-loss Mpps (short trials)", "tailrace", "1.000", "-"),
        ("no-loss Mpps (short trials)", "direct", "1.000", "× 1 [1–1]"),
        ("p50 µs", "tailrace", "10.0", "-"),
        ("p50 µs", "direct", "†5.00 (4.00–6.00)", "†× 0.5 [0.4–0.6]"),
        ("most lost", "tailrace", "0", "-"),
        ("most lost", "direct", "†1 %", "-"),
    )
    (said,) = [text for text in section.remarks if text.startswith("†")]
    assert "less than 98% of the offered frames" in said
    assert "direct in 2 of 3 trials, 50.0% at least" in said
    marked = {line["figure"]: line.get("fell_short") for line in lines(short)}
    assert (marked["direct/tailrace p50_us"], marked["direct p50_us"], marked["tailrace p50_us"]) == (True, True, False)
    assert (marked["direct/tailrace no_loss_mpps"], marked["direct no_loss_mpps"]) == (None, None)
    # One pair is enough, and a short baseline is short in every ratio. None is where it is not known.
    (section,) = comparisons([sent({"tailrace": (0.9, 1.0, 1.0), "direct": (1.0, 1.0, 1.0)})])
    assert [row[2:] for row in section.rows if row[0] == "p50 µs"] == [
        ("†10.0", "-"), ("5.00 (4.00–6.00)", "†× 0.5 [0.4–0.6]"),
    ]  # fmt: skip
    assert comparison().sent("direct").fell_short is None
    (section,) = comparisons([comparison()])
    assert "†" not in str(section)


@pytest.mark.parametrize("method", ["compare", "noise"])
def test_what_was_sent_is_found_with_the_trials_of_an_older_run(folder: RunFolder, method: str) -> None:
    """Format 3 had it with them only. In the second round, so that names say a round too."""
    folder.begin_round(2)
    known = comparison()
    trials = {
        "compare": {"tailrace": "64-tailrace-pair-{}", "direct": "64-direct-pair-{}"},
        "noise": {"tailrace": "64-pair-{}-direct-tailrace", "direct": "64-pair-{}-direct"},
    }[method]
    for number in (1, 2, 3):
        for side, unsent in (("tailrace", 0), ("direct", number)):
            made = result(stream([1_000] * (100 - 10 * unsent), offered=100, unsent=10 * unsent))
            add(folder, made, name=trials[side].format(number), functions=1)
    folder.put_finding(known.model_copy(update={"method": method}))
    document = {**json.loads(folder.run.to_json()), "format": 3}
    (found,) = parse_run(json.dumps(document)).findings
    assert isinstance(found, ComparisonFinding)
    assert found.values("direct", "sent_ratio") == [0.9, 0.8, 0.7]
    assert (found.sent("tailrace").fell_short, found.sent("direct").fell_short) == (False, True)
    # Where the trials are not there it stays unknown.
    (found,) = parse_run(json.dumps({**document, "trials": []})).findings
    assert isinstance(found, ComparisonFinding)
    assert found.sent("direct").fell_short is None


def test_a_ratio_is_marked_by_the_trials_that_it_is_made_of() -> None:
    """Quiet trials before another neighbour are no part of it."""
    pairs = (
        ComparedPair(sides={"quiet": {"p50_us": 1.0, "sent_ratio": 0.5}, "cpu": {"p50_us": 1.0, "sent_ratio": 1.0}}),
        ComparedPair(sides={"quiet": {"p50_us": 1.0, "sent_ratio": 1.0}, "disk": {"p50_us": 1.0, "sent_ratio": 1.0}}),
    )
    sides = ("quiet", "cpu", "disk")
    found = comparison().model_copy(
        update={
            "method": "noise", "baseline": "quiet", "sides": sides, "pairs": pairs,
            "ratios": ratios_of(pairs, sides, "quiet", ["p50_us"]),
        }
    )  # fmt: skip
    marked = {line["figure"]: line["fell_short"] for line in lines(found) if "fell_short" in line}
    assert (marked["quiet p50_us"], marked["cpu/quiet p50_us"], marked["disk/quiet p50_us"]) == (True, True, False)


def test_the_part_that_was_sent_is_that_of_the_worse_direction(folder: RunFolder) -> None:
    made = result(stream([1_000] * 98, offered=100, unsent=2), stream([1_000] * 60, "b-to-a", offered=100, unsent=40))
    trial = folder.add_trial(made, name="x", profile="64", functions=1, offered_pps=1e6)
    assert figures(trial)["sent_ratio"] == 0.6
    assert "sent_ratio" not in figures(trial.model_copy(update={"offered_pps": 0.0})), "as much as could be sent"


def test_a_table_has_ratios_with_their_interval() -> None:
    (section,) = comparisons([comparison()])
    assert section.titles == ("figure", "fabric", "median", "× tailrace")
    assert section.rows == (
        ("p50 µs", "tailrace", "10.0", "-"),
        ("p50 µs", "direct", "5.00 (4.00–6.00)", "× 0.5 [0.4–0.6]"),
        ("most lost", "tailrace", "0", "-"),
        ("most lost", "direct", "1 %", "-"),
    )
    assert any("vnf was left out: no <core>" in text for text in section.remarks)


def cell(fabric: str, pattern: str, p99: float | None, **more: Any) -> MatrixCell:
    return MatrixCell(
        name=f"{fabric}-{pattern}", profile="64", functions=0 if pattern == "VV" else 1, valid=True, reason=None,
        fabric=fabric, interface="vhost-user", ends="east/west" if pattern == "VV" else "north/south",
        pattern=pattern, p99_us=p99,
    ).model_copy(update=more)  # fmt: skip


def measured_once(known: MatrixCell) -> MatrixCell:
    """A cell with its figures as those of a round, whose trial has its name."""
    figures = known.model_dump(include=set(CellFigures.model_fields), exclude_none=True)
    return known.with_round(CellRound(round=1, trial=known.name, **{"loss_ratio": 0.0, **figures}))


CELLS = [
    cell("tailrace", "PVP", 10.0),
    cell("tailrace", "VV", 20.0, loss_ratio=0.1),
    cell("direct", "PVP", 30.0),
    cell("direct", "VV", None, not_here="too few <cores>"),
]


def test_a_map_is_warm_where_the_figure_is_better() -> None:
    (section,) = heats(CELLS)
    assert section.titles == ("fabric, ports", "PVP", "VV")
    assert section.rows[0] == ("tailrace, vhost-user", "10.0", "20.0 !")
    assert section.rows[1] == ("direct, vhost-user", "30.0", "not here")
    # Latency is better where it is less, and a rate where it is more; the ends are told.
    assert section.heat == ((None, 1.0, pytest.approx(0.369, abs=1e-3)), (None, 0.0, None))
    assert section.ends == ("30.0", "10.0")
    rates = [each.model_copy(update={"no_loss_pps": 1e6 * each.p99_us}) for each in CELLS if each.p99_us]
    by_rate, by_latency = heats(rates)
    assert by_rate.heat == ((None, 0.0, pytest.approx(0.631, abs=1e-3)), (None, 1.0, None))
    assert by_rate.ends == ("10.000", "30.000")
    assert by_latency.ends == section.ends
    assert section.remarks == (
        "Not here, too few <cores> (direct, vhost-user: VV).",
        "!: frames were lost in the measured trial; the latency is that of the frames received.",
    )


def test_cells_are_listed_with_fabric_ports_and_pattern() -> None:
    measured = [measured_once(each) for each in CELLS[:3]]
    (section,) = cells_table([*measured, CELLS[3]])
    places = [("tailrace", "PVP"), ("tailrace", "VV"), ("direct", "PVP")]
    assert [row[:3] for row in section.rows] == [(fabric, "vhost-user", pattern) for fabric, pattern in places]
    assert [row[4] for row in section.rows] == ["0", "10 %", "0"]
    assert "in results.json" in section.remarks[0]
    (searched,) = cells_table([each.model_copy(update={"no_loss_pps": 1e6}) for each in measured])
    assert "in the map above" in searched.remarks[0]
    assert section.remarks[1].startswith("One round")


def test_cells_that_were_repeated_have_their_spread_and_the_mark_of_the_floor() -> None:
    """In the table, in the map, and as comma-separated values."""
    known = ((1, 9e5, 0.0, 8.0, 2.0), (2, 11e5, 0.0, 10.0, 2.5), (3, None, 0.1, 11.0, 4.0))
    near = cell("direct", "VV", None)
    for number, rate, lost, p99, times in known:
        figures = {"no_loss_pps": rate, "loss_ratio": lost, "p50_us": 4.0, "p99_us": p99, "floor_ratio": times}
        found_before = NoLossRate(pps=1e6, limit="loss")
        near = near.with_round(CellRound(round=number, trial=f"cell-{number}", searched=found_before, **figures))
    far = near.model_copy(update={"name": "far", "pattern": "PVP", "ends": "north/south", "floor_ratio": 3.0})
    (table,) = cells_table([near, far])
    assert [row[4:] for row in table.rows] == [
        ("0 (0–10%)", f"{mark}4.00", "10.0 (8.00–11.0)", "-", "3") for mark in ("~", "")
    ]
    assert table.remarks[1].startswith("3 rounds")
    rates, slowest = heats([near, far])
    # The round that lost frames has no rate without loss; a rate is no latency and stands on no floor.
    assert rates.rows == (("direct, vhost-user", "1.000 (0.9000–1.100) 2 of 3 !", "1.000 (0.9000–1.100) 2 of 3 !"),)
    assert rates.remarks[1] == "!: so many of the rounds confirmed a rate; the figure is of these."
    assert slowest.rows == (("direct, vhost-user", "10.0 (8.00–11.0) !", "~10.0 (8.00–11.0) !"),)
    found = {line["figure"]: line for line in lines(near)}
    assert (found["p99_us"]["value"], found["p99_us"]["low"], found["p99_us"]["high"]) == (10.0, 8.0, 11.0)
    assert (found["p99_us"]["values"], found["no_loss_pps"]["values"]) == (3, 2)
    assert (found["floor_ratio"]["low"], found["floor_ratio"]["near_floor"]) == (2.0, True)
    place = Place("direct, vhost-user, VV", "direct, vhost-user", "VV")
    assert places([near]) == {f"cell-{number}": place for number in (1, 2, 3)}


def test_a_cell_of_which_a_round_sent_less_than_offered_is_marked() -> None:
    """In the table, in the map and as comma-separated values, but for the rate that was looked for."""
    short, whole = cell("direct", "PVP", None), cell("direct", "VV", None)
    figures = {"no_loss_pps": 1e6, "loss_ratio": 0.0, "p50_us": 4.0, "p99_us": 9.0, "max_us": 9.0}
    for number, part in ((1, 1.0), (2, 0.5), (3, 0.99)):
        short = short.with_round(CellRound(round=number, trial=f"cell-{number}", sent_ratio=part, **figures))
        whole = whole.with_round(CellRound(round=number, trial=f"cell-{number + 3}", sent_ratio=0.99, **figures))
    (table,) = cells_table([short, whole])
    assert [row[4:8] for row in table.rows] == [
        tuple(f"{mark}{text}" for text in ("0", "4.00", "9.00", "9.00")) for mark in ("†", "")
    ]
    rates, slowest = heats([short, whole])
    assert rates.rows == (("direct, vhost-user", "1.000", "1.000"),)
    assert slowest.rows == (("direct, vhost-user", "†9.00", "9.00"),)
    assert not any(text.startswith("†") for text in rates.remarks), "no figure of it is marked"
    for section in (table, slowest):
        (said,) = [text for text in section.remarks if text.startswith("†")]
        assert "direct, vhost-user, PVP, 64 B in 1 of 3 trials, 50.0% at least." in said
    for known, expected in ((short, True), (whole, False)):
        found = {line["figure"]: line.get("fell_short") for line in lines(known)}
        assert (found["p99_us"], found["loss_ratio"], found["no_loss_pps"]) == (expected, expected, None)


def test_only_the_shortest_of_many_are_named() -> None:
    cells = [
        measured_once(cell("direct", "VV", 9.0, name=f"cell-{number}", interface=f"i{number}", sent_ratio=number / 10))
        for number in range(9)
    ]
    (said,) = [text for text in next(cells_table(cells)).remarks if text.startswith("†")]
    assert "direct, i0, VV" in said
    assert "direct, i6, VV" not in said
    assert said.endswith("; and 3 more.")


def test_what_a_cell_sent_is_found_with_the_trials_of_an_older_run(folder: RunFolder) -> None:
    """Format 4 had it with them only."""
    known = cell("direct", "VV", None)
    for number in (1, 2):
        made = result(stream([1_000] * (100 - 10 * number), offered=100, unsent=10 * number))
        add(folder, made, name=f"cell-{number}", functions=1)
        trial = folder.run.trials[-1]
        known = known.with_round(CellRound(round=number, trial=trial.name, p50_us=1.0, sent_ratio=trial.sent_ratio))
    folder.put_finding(known)
    document = {**json.loads(folder.run.to_json()), "format": 4}
    (finding,) = document["findings"]
    for each in (finding, finding["spread"], *finding["rounds"]):
        del each["sent_ratio"]
    assert parse_run(json.dumps(document)).findings == (known,)
    (found,) = parse_run(json.dumps({**document, "trials": []})).findings
    assert isinstance(found, MatrixCell)
    assert found.sent.fell_short is None


def test_maps_and_rounds_of_trials_that_sent_less_than_offered_are_marked(tmp_path: Path) -> None:
    """Also where nothing was compared; in the CSV each direction has what it sent itself."""
    words: dict[str, Any] = {"spec": "", "host": {}, "command": (), "versions": {}, "repeat": 2}
    with RunFolder.create(tmp_path, "latency", **words) as folder:
        for number in (1, 2):
            folder.begin_round(number)
            for frames in ("64", "1518"):
                for functions in (1, 2):
                    unsent = 10 if (number, frames, functions) == (2, "64", 1) else 0
                    short = stream([1_000] * (100 - unsent), offered=100, unsent=unsent)
                    made = result(short, stream([1_000] * 100, "b-to-a"))
                    add(folder, made, frames, functions, name=f"{functions}-{frames}")
    stored = StoredRun(folder.path, folder.run, "")
    marked = [
        (made.title, label, number)
        for made in heat_maps(mark([stored]))
        for label, row in made.rows
        for number, one in enumerate(row)
        if one is not None and one.text.startswith("†")
    ]
    assert marked == [("Latency p50, µs", "1 VNF", 0), ("Latency p99, µs", "1 VNF", 0)]
    assert "64 B, 1 VNF, round 2 in 1 of 1 trials, 90.0% at least" in render([stored])
    traffic, latency = sections(folder.run)
    assert [row[3].startswith("†") for row in traffic.rows] == [True, False, False, False]
    assert [row[3].startswith("†") for row in latency.rows] == [True, False, False, False]
    assert any("64 B, 1 VNF in 1 of 2 trials, 90.0% at least" in text for text in latency.remarks)
    lines_of = [row for row in csv.DictReader(io.StringIO(csv_text([folder.run]))) if row["trial"] == "1-64-round-2"]
    assert [(row["direction"], row["fell_short"]) for row in lines_of] == [("a-to-b", "yes"), ("b-to-a", "no")]


def test_a_median_of_a_cell_that_is_near_the_floor_is_marked() -> None:
    ratios = (2.9, 3.1, None)
    measured = [
        measured_once(cell("direct", "VV", 9.0, name=f"cell-{ratio}", p50_us=4.0, floor_ratio=ratio))
        for ratio in ratios
    ]
    (section,) = cells_table(measured)
    at = section.titles.index("p50 µs")
    assert [row[at] for row in section.rows] == ["~4.00", "4.00", "4.00"]
    assert [row[at + 1] for row in section.rows] == ["9.00"] * 3


def test_charts_tell_the_trials_of_a_matrix_apart(folder: RunFolder) -> None:
    """Alike in traffic and length of chain, they are of different fabrics: none takes the place of another."""
    for frames in ("64", "1518"):
        for number, each in enumerate(CELLS[:3]):
            name = f"{each.name}-{frames}"
            functions = each.functions
            add(folder, both_ways(100, seed=number, base_ns=1_000 * (1 + number)), frames, functions, name=name)
            folder.put_finding(measured_once(each.model_copy(update={"name": name, "profile": frames})))
    one = mark([StoredRun(folder.path, folder.run, "")])
    maps = list(heat_maps(one))
    assert maps
    for made in maps:
        assert [label for label, _ in made.rows] == [
            "tailrace, vhost-user, VV", "tailrace, vhost-user, PVP", "direct, vhost-user, PVP",
        ]  # fmt: skip
    page = render([StoredRun(folder.path, folder.run, "")])
    # A fabric by itself is no floor of the tester's.
    _, vnfs, *_ = naming([folder.run])
    assert {vnfs.cell(trial) for trial in folder.run.trials} == {"0", "1"}
    assert "<td>direct, vhost-user, PVP</td>" in page
    assert "64 B, direct, vhost-user, PVP" in page


def test_trials_of_pairs_say_their_side() -> None:
    for method, names in (
        ("compare", {"64-direct-pair-2": Place("direct, pair 2", "direct")}),
        (
            "noise",
            {
                "64-pair-1-direct": Place("direct, pair 1", "direct"),
                "64-pair-1-direct-tailrace": Place("tailrace before direct, pair 1", "tailrace"),
            },
        ),
    ):
        found = places([comparison().model_copy(update={"method": method})])
        assert names.items() <= found.items()


def test_charts_have_the_trials_of_pairs_and_not_those_at_other_rates_before_them(folder: RunFolder) -> None:
    for name in ("64-direct-first-look", "64-tailrace-pair-1", "64-direct-pair-1"):
        add(folder, both_ways(50), functions=1, name=name)
    folder.put_finding(comparison())
    ((_, drawn),) = by_profile(mark([StoredRun(folder.path, folder.run, "")]))
    assert [one.trial.name for one in drawn] == ["64-tailrace-pair-1", "64-direct-pair-1"]
    assert folder.run.places["64-direct-first-look"].words == "direct, first look"


def test_both_are_drawn_and_nothing_of_a_reason_is_markup(folder: RunFolder) -> None:
    for finding in (comparison(), *CELLS):
        folder.put_finding(finding)
    page = render([StoredRun(folder.path, folder.run, "")])
    assert 'class="warm" style="--warmth: 1.000"' in page
    assert 'worst, 30.0 <span class="ramp"></span> 10.0, best' in page
    assert "× 0.5 [0.4–0.6]" in page
    assert "too few &lt;cores&gt;" in page
    assert "<cores>" not in page
    console = Console(record=True, width=160, color_system="truecolor", force_terminal=True)
    print_run(folder.run, console)
    text = console.export_text()
    assert "× 0.5 [0.4–0.6]" in text
    assert re.search(r"worst, 30\.0 +10\.0, best", text)


def test_trials_that_differ_in_their_rate_alone_are_distinguished(folder: RunFolder) -> None:
    for frames in ("64", "1518"):
        for part in (1.0, 0.5):
            add(
                folder, both_ways(100, base_ns=round(1_000 * part)), frames, 1, name=f"{frames}-at-{part}",
                rate_fraction=part, offered_pps=2e6 * part, **without_loss(2e6),
            )  # fmt: skip
    assert set(trial_names(folder.run).values()) == {
        f"{frames} B, 1 VNF at {part}" for frames in (64, 1518) for part in ("100%", "50%")
    }
    maps = {made.title: made for made in heat_maps(mark([StoredRun(folder.path, folder.run, "")]))}
    assert [label for label, _ in maps["Latency p50, µs"].rows] == ["1 VNF at 100%", "1 VNF at 50%"]
    # Of the rate that they are parts of there is one bar.
    (mpps, _) = throughput(mark([StoredRun(folder.path, folder.run, "")]))
    assert [bar.label for bar in mpps.bars] == ["64 B, 1 VNF (100%)", "1518 B, 1 VNF (100%)"]
    assert [column.title for column in naming([folder.run])] == ["frames", "VNFs", "rate"]
