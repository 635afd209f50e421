"""A function's own share without a function: the arithmetic of pairs and budgets, whose turn it is, what is refused."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tester_results import both_ways

from tailrace.errors import Mistake
from tailrace.measure import share as the_share
from tailrace.measure.method import Place
from tailrace.measure.share import ShareMethod, budgets_of, figures_of, with_skeleton
from tailrace.plan.make import make_plan
from tailrace.plan.planned import Plan
from tailrace.report.figures import trial_names
from tailrace.report.html import render
from tailrace.report.share import shares
from tailrace.report.table import print_run
from tailrace.resources.topology import Cpu
from tailrace.results.comparison import places
from tailrace.results.diff import diff
from tailrace.results.model import Run, Trial, parse_run
from tailrace.results.no_loss import NoLossRate
from tailrace.results.run import RunFolder
from tailrace.results.share import ShareFinding, SharePair, contributions_of
from tailrace.results.stored import StoredRun
from tailrace.results.table import csv_text
from tailrace.spec.load import parse_spec
from tailrace.spec.tests import Share

TWO = "functions: {first: skeleton, wan: %s}\nchains: {office: [tester.a, first, wan, tester.b]}\n"
MICROSECONDS = st.integers(0, 10**9).map(lambda ns: ns / 1000)


def plan(function: str = "{kind: impair, replicas: 2, impair: {delay: [1ms, 2ms]}}") -> Plan:
    return make_plan(parse_spec(TWO % function, "s"), huge=False, cpus=[Cpu(0), Cpu(1)], real_time="not asked")


def pair(function: float, skeleton: float, figure: str = "average_us") -> SharePair:
    return SharePair(function={"a-to-b": {figure: function}}, skeleton={"a-to-b": {figure: skeleton}})


# --- the arithmetic --------------------------------------------------------------------------------------------------


@given(st.lists(MICROSECONDS, min_size=1, max_size=7), MICROSECONDS)
def test_what_is_added_to_every_trial_is_the_share(base: list[float], added: float) -> None:
    (found,) = contributions_of([pair(each + added, each) for each in base])
    assert found.difference_us == pytest.approx(added, abs=1e-6)
    assert found.pairs == len(base)
    if len(base) > 1:
        assert found.low_us == pytest.approx(added, abs=1e-6)
        assert found.high_us == pytest.approx(added, abs=1e-6)
    else:
        assert (found.low_us, found.high_us) == (None, None)


@given(st.lists(st.tuples(MICROSECONDS, MICROSECONDS), min_size=2, max_size=7))
def test_the_other_way_round_it_is_the_opposite(values: list[tuple[float, float]]) -> None:
    (there,) = contributions_of([pair(*each) for each in values])
    (back,) = contributions_of([pair(*each[::-1]) for each in values])
    assert there.low_us is not None and there.high_us is not None
    assert there.low_us <= there.difference_us <= there.high_us
    assert back.difference_us == pytest.approx(-there.difference_us)


def test_a_figure_that_one_side_lacks_is_left_out() -> None:
    lossy = SharePair(function={"a-to-b": {"loss_ratio": 1.0}}, skeleton={"a-to-b": {"average_us": 5.0}})
    assert contributions_of([lossy]) == ()
    (found,) = contributions_of([lossy, pair(7, 5)])
    assert (found.difference_us, found.pairs) == (2, 1)


def test_nothing_is_divided_by_nothing() -> None:
    (found,) = contributions_of([pair(3, 0)])
    assert (found.difference_us, found.ratio) == (3, None)


# --- the budget ------------------------------------------------------------------------------------------------------


def traced(parts: list[float], name: str, function: str = "wan") -> Any:
    kinds = ("ring", "switch", "function", "switch", "ring")
    names = ("tester.a to the switch", f"tester.a to {function}.0", function, f"{function}.1 to tester.b", "to the end")
    made = [
        SimpleNamespace(kind=kind, name=word, latency_us=SimpleNamespace(average=each))
        for kind, word, each in zip(kinds, names, parts, strict=True)
    ]
    hops = SimpleNamespace(parts=made, average_us=sum(parts))
    return SimpleNamespace(name=name, directions=[SimpleNamespace(name="a-to-b", hops=hops)])


@given(*[st.lists(MICROSECONDS, min_size=5, max_size=5)] * 2)
def test_the_elements_add_up_to_the_whole_and_their_differences_to_its(one: list[float], other: list[float]) -> None:
    (budget,) = budgets_of(traced(one, "with"), traced(other, "without", "wan@2"))
    assert [each.name for each in budget.elements][1:4] == ["tester.a to wan.0", "wan", "wan.1 to tester.b"]
    assert sum(each.function_us for each in budget.elements) == pytest.approx(budget.function_us)
    assert sum(each.skeleton_us for each in budget.elements) == pytest.approx(budget.skeleton_us)
    differences = [each.function_us - each.skeleton_us for each in budget.elements]
    assert sum(differences) == pytest.approx(budget.function_us - budget.skeleton_us, abs=1e-6)


def test_ways_that_are_not_alike_have_no_budget() -> None:
    one, other = traced([1, 2, 3, 4, 5], "with"), traced([1, 2, 3, 4, 5], "without")
    other.directions[0].hops.parts.pop()
    assert budgets_of(one, other) == ()
    other.directions[0].hops = None
    assert budgets_of(one, other) == ()


# --- the method ------------------------------------------------------------------------------------------------------


def test_all_replicas_become_skeletons_and_nothing_else_changes() -> None:
    before = plan()
    after = with_skeleton(before, "wan")
    assert [(each.name, each.kind, each.settings) for each in after.functions] == [
        ("first", "skeleton", ()),
        ("wan", "skeleton", ()),
        ("wan-2", "skeleton", ()),
    ]
    assert (after.placement, after.chains, after.ports) == (before.placement, before.chains, before.ports)


def test_a_guest_is_nothing_to_replace() -> None:
    with pytest.raises(Mistake, match="wan is a guest"):
        with_skeleton(plan("guest"), "wan")


def test_each_function_has_its_turn_unless_one_is_named() -> None:
    place = Place(plan().chains[0])
    assert [step.name for step in ShareMethod().steps([Share.model_validate({})], place)] == [
        "two-functions-64-share-of-first",
        "two-functions-64-share-of-wan",
    ]
    (step,) = ShareMethod().steps(
        [Share.model_validate({"function": "wan", "duration": "2s", "pairs": 3, "rate": "1kpps"})], place
    )
    assert step.seconds > 2 * 4 * 2
    with pytest.raises(Mistake, match="--function lan: not in the chain; it has first, wan"):
        ShareMethod().steps([Share.model_validate({"function": "lan"})], place)
    with pytest.raises(Mistake, match="expected a SPEC whose chain has one"):
        ShareMethod().steps([Share.model_validate({})], Place())


def test_what_is_up_is_left_alone() -> None:
    record = SimpleNamespace(purpose="up")
    session: Any = SimpleNamespace(node=SimpleNamespace(state=SimpleNamespace(record=record)))
    with pytest.raises(Mistake, match="run `tailrace down` first"):
        ShareMethod().begin(session)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "share", spec="", host={}, command=(), versions={})


class Machine:
    """A chain whose function takes 40 µs and whose skeleton takes none, on a machine that gets slower and slower."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: RunFolder) -> None:
        self.turns: list[tuple[str, bool]] = []
        self.changes = 0
        self.drift = 0
        self.tracing = False
        control = SimpleNamespace(call=lambda *_, **__: {"config": {}})
        self.node: Any = SimpleNamespace(plan=plan(), fabric=SimpleNamespace(control=control))
        self.session: Any = SimpleNamespace(node=self.node, folder=folder, hops=None)
        monkeypatch.setattr(the_share, "stand", self.stand)
        monkeypatch.setattr(the_share, "at_rate", self.at_rate)
        monkeypatch.setattr(the_share, "budgets_of", lambda *_: ())

    def stand(self, node: Any, wanted: Plan) -> None:
        self.changes += node.plan != wanted
        node.plan = wanted

    def at_rate(self, session: Any, case: Any, rate: float) -> Trial:
        kind = next(each.kind for each in self.node.plan.functions if each.function == "wan")
        self.turns.append((kind, session.hops is not None))
        self.drift += 10
        return session.folder.add_trial(
            both_ways(50, base_ns=(40_000 if kind == "impair" else 0) + 1000 * self.drift),
            name=case.name, profile="64", functions=2, offered_pps=rate,
        )  # fmt: skip


def run(machine: Machine, pairs: int) -> ShareFinding:
    test = Share.model_validate({"function": "wan", "pairs": pairs, "rate": "1kpps"})
    (step,) = ShareMethod().steps([test], Place(machine.node.plan.chains[0]))
    step.work(machine.session)
    found = machine.session.folder.run.findings[-1]
    assert isinstance(found, ShareFinding)
    return found


@pytest.mark.parametrize("pairs", [1, 2, 4])
def test_pairs_stand_the_other_way_round_in_turn(
    monkeypatch: pytest.MonkeyPatch, folder: RunFolder, pairs: int
) -> None:
    machine = Machine(monkeypatch, folder)
    found = run(machine, pairs)
    order = ["impair", "skeleton", "skeleton", "impair"] * 2
    assert machine.turns[: 2 * pairs] == [(kind, False) for kind in order[: 2 * pairs]]
    # Then both are traced, and the chain is as it was; it was changed no more often than needed.
    assert {kind for kind, _ in machine.turns[2 * pairs :]} == {"impair", "skeleton"}
    assert all(tracing for _, tracing in machine.turns[2 * pairs :])
    assert machine.node.plan == plan()
    assert machine.changes <= pairs + 2
    if pairs % 2 == 0:
        # A drift of 10 µs from trial to trial is taken out by the turns.
        mean = fmean(
            each.function["a-to-b"]["average_us"] - each.skeleton["a-to-b"]["average_us"] for each in found.pairs
        )
        assert mean == pytest.approx(40, abs=0.5)
        contribution = found.contribution("a-to-b", "average_us")
        assert contribution is not None
        assert contribution.difference_us == pytest.approx(40, abs=0.5)


def test_the_rate_is_confirmed_by_the_chain_as_it_is_and_its_limit_is_said(
    monkeypatch: pytest.MonkeyPatch, folder: RunFolder
) -> None:
    machine = Machine(monkeypatch, folder)
    searched = NoLossRate(pps=1e6, limit="tester")
    looked: list[str] = []

    def measured(_: Any, case: Any) -> Any:
        looked.append(case.name)
        assert not machine.changes
        return SimpleNamespace(searched=searched, offered_pps=5e5)

    monkeypatch.setattr(the_share, "measured", measured)
    test = Share.model_validate({"function": "wan", "pairs": 1, "rate": "50%"})
    (step,) = ShareMethod().steps([test], Place(machine.node.plan.chains[0]))
    step.work(machine.session)
    assert looked == ["two-functions-64-share-of-wan-first-look"]
    found = folder.run.findings[-1]
    assert isinstance(found, ShareFinding)
    assert (found.offered_pps, found.rate_fraction, found.searched) == (5e5, 0.5, searched)
    assert {trial.offered_pps for trial in folder.run.trials} == {5e5}
    section, *_ = shares([found])
    assert any("Offered: 50% of the no-loss rate with wan, ≥1.000 Mpps" in text for text in section.remarks)
    assert any(text.startswith("≥: nothing was lost") for text in section.remarks)


def test_what_was_measured_is_kept_when_it_is_cut_short(monkeypatch: pytest.MonkeyPatch, folder: RunFolder) -> None:
    machine = Machine(monkeypatch, folder)
    at_rate = machine.at_rate

    def interrupted(*given: Any) -> Trial:
        if len(machine.turns) == 3:
            raise KeyboardInterrupt
        return at_rate(*given)

    monkeypatch.setattr(the_share, "at_rate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(machine, 5)
    (found,) = folder.run.findings
    assert isinstance(found, ShareFinding)
    assert len(found.pairs) == 1
    assert found.budgets == ()


def test_rounds_are_kept_beside_each_other(monkeypatch: pytest.MonkeyPatch, folder: RunFolder) -> None:
    machine = Machine(monkeypatch, folder)
    for number in (1, 2):
        folder.begin_round(number)
        run(machine, 1)
    assert [each.name for each in folder.run.findings] == [
        "two-functions-64-share-of-wan",
        "two-functions-64-share-of-wan-round-2",
    ]


def test_trials_are_distinguished_in_every_round(monkeypatch: pytest.MonkeyPatch, folder: RunFolder) -> None:
    machine = Machine(monkeypatch, folder)
    monkeypatch.setattr(
        the_share,
        "budgets_of",
        lambda one, other: budgets_of(traced([9, 1, 40, 1, 5], one.name), traced([8, 1, 2, 1, 5], other.name)),
    )
    for number in (1, 2):
        folder.begin_round(number)
        run(machine, 1)
    said = {place.words for place in places(folder.run.findings).values()}
    assert said == {
        "with wan, first look",
        *(f"with {side}, {when}" for side in ("wan", "the skeleton") for when in ("pair 1", "traced")),
    }
    names = trial_names(folder.run.model_copy(update={"repeat": 2}))
    assert len(set(names.values())) == len(folder.run.trials) == 8


# --- what is shown ---------------------------------------------------------------------------------------------------


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, folder: RunFolder) -> Iterator[Run]:
    machine = Machine(monkeypatch, folder)
    monkeypatch.setattr(
        the_share,
        "budgets_of",
        lambda *_: budgets_of(traced([9, 1, 40, 1, 5], "with"), traced([8, 1, 2, 1, 5], "without")),
    )
    run(machine, 2)
    yield folder.finish()


def test_tables_say_the_share_and_add_up(shown: Run, folder: RunFolder) -> None:
    contributions, budget = shares(shown.findings)
    assert contributions.heading == "Share of wan (impair), 64 B, 2 VNFs at 0.0010 Mpps each way, 2 pairs"
    assert contributions.rows[0][:2] == ("a-to-b", "mean")
    assert contributions.rows[0][4].startswith("40.0 [")
    assert budget.rows[2] == ("function wan", "40.0", "71.4%", "2.00", "38.0")
    assert budget.rows[-1] == ("together", "56.0", "100.0%", "17.0", "39.0")
    console = Console(record=True, width=160)
    print_run(shown, console)
    assert "Where the time goes: wan (impair), 64 B, a-to-b" in console.export_text()
    # What is too wide says in every part which figure of which direction a line is of.
    narrow = Console(record=True, width=60)
    print_run(shown, narrow)
    assert sum(line.split()[:2] == ["a-to-b", "p99.9"] for line in narrow.export_text().splitlines()) > 1
    assert "Share of wan" in render([StoredRun(folder.path, shown, "", {}, ())])


def test_a_side_that_is_near_the_testers_own_floor_is_marked(
    monkeypatch: pytest.MonkeyPatch, folder: RunFolder
) -> None:
    machine = Machine(monkeypatch, folder)
    folder.add_floor(both_ways(50, base_ns=10_000), profile="64", ports="vhost-user", offered_pps=1e5)
    (section,) = shares([run(machine, 2)])
    medians = [row for row in section.rows if row[1] == "p50"]
    assert [row[0] for row in medians] == ["a-to-b", "b-to-a"]
    for row in medians:  # about 65 µs with the function and 25 µs with the skeleton, on a floor of 11 µs
        assert not row[2].startswith("~")
        assert row[3].startswith("~")
    assert not any(row[3].startswith("~") for row in section.rows if row[1] != "p50")
    # The same as comma-separated values.
    rows = [row for row in csv.DictReader(io.StringIO(csv_text([folder.run]))) if "floor_ratio" in row["figure"]]
    assert [(row["direction"], row["figure"], row["near_floor"]) for row in rows] == [
        (direction, f"with {side} floor_ratio", near)
        for direction in ("a-to-b", "b-to-a")
        for side, near in (("wan", "no"), ("skeleton", "yes"))
    ]
    for row in rows:
        expected = (65 if "wan" in row["figure"] else 25) / 11
        assert float(row["value"]) == pytest.approx(expected, rel=0.1)


def test_what_both_chains_took_has_its_spread(shown: Run) -> None:
    contributions, _ = shares(shown.findings)
    for row in contributions.rows:
        assert re.fullmatch(r"[~†]*[\d.,]+ \([\d.,]+–[\d.,]+\)", row[2])
        assert re.fullmatch(r"[~†]*[\d.,]+ \([\d.,]+–[\d.,]+\)", row[3])


def test_diff_sets_shares_beside_each_other(shown: Run, folder: RunFolder) -> None:
    stored = StoredRun(folder.path, shown, "", {}, ())
    found = {each.figure: each for each in diff(stored, stored).figures if each.figure.startswith("share of wan")}
    assert found["share of wan, a-to-b average"].a == pytest.approx(40, abs=0.5)
    assert found["share of wan, a-to-b p99"].unit == "µs"


def test_a_figure_without_latency_has_its_loss() -> None:
    way = SimpleNamespace(name="a-to-b", loss_ratio=1.0, latency_us=None, offered=4, sent=3)
    trial: Any = SimpleNamespace(directions=[way], offered_pps=1e5)
    assert figures_of(trial) == {"a-to-b": {"loss_ratio": 1.0, "sent_ratio": 0.75}}


def test_what_was_sent_is_found_with_the_trials_of_an_older_run(
    monkeypatch: pytest.MonkeyPatch, folder: RunFolder
) -> None:
    known = run(Machine(monkeypatch, folder), 2)
    document = {**json.loads(folder.run.to_json()), "format": 3}
    for finding in document["findings"]:
        for pair in finding["pairs"]:
            for side in pair.values():
                for way in side.values():
                    assert way.pop("sent_ratio") == 1
    assert parse_run(json.dumps(document)).findings == (known,)
