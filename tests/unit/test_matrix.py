"""The matrix without I/O: which cells there are, on which stands, and which are left after a run that was cut short."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from joined_tester import JoinedTester
from pydantic import ValidationError
from run_folders import add
from simulated_device import SimulatedDevice
from tester_results import result, stream
from typer.testing import CliRunner

from tailrace.cli import commands
from tailrace.cli.main import app
from tailrace.cli.matrix import PLAN, MatrixOptions, _resume
from tailrace.errors import Failure, Mistake
from tailrace.functions.machine import InMachine
from tailrace.measure import matrix as the_matrix
from tailrace.measure import stand as the_stand
from tailrace.measure.floors import floors_seconds
from tailrace.measure.matrix import MatrixRun, cells, done, left, pattern, seconds, stands
from tailrace.measure.profile import profile
from tailrace.measure.progress import Silent
from tailrace.plan.usable import Usable
from tailrace.report.comparisons import heats
from tailrace.resources.topology import Cpu
from tailrace.results.comparison import CellRange, CellRound, MatrixCell
from tailrace.results.model import Trial
from tailrace.results.record import name_in_round
from tailrace.results.run import RunFolder
from tailrace.results.table_findings import lines
from tailrace.spec.tests import Matrix
from tailrace.state.launch import Launcher
from tailrace.state.record import Record, State, hold_run


def matrix(**words: Any) -> Matrix:
    return Matrix.model_validate(words)


def test_patterns_are_written_as_rfc_8204_does() -> None:
    assert [pattern("north/south", functions) for functions in range(4)] == ["P2P", "PVP", "PVVP", "PVVVP"]
    assert [pattern("east/west", functions) for functions in range(3)] == ["VV", "VVV", "VVVV"]


def test_a_matrix_is_the_product_of_all() -> None:
    found = cells(
        matrix(
            fabrics=["tailrace", "linux-bridge"],
            interfaces=["vhost-user", "tap"],
            patterns=["VV", "PVP"],
            frames=[64, 1518],
        )
    )
    assert [cell.name for cell in found] == [
        f"{fabric}-{name}-{size}"
        for name_of in ("VV", "PVP")
        for interface in ("vhost-user", "tap")
        for fabric in ("tailrace", "linux-bridge")
        for name in (f"{interface}-{name_of}",)
        for size in (64, 1518)
    ]


def test_a_cell_that_two_patterns_name_is_measured_once() -> None:
    found = cells(
        matrix(
            fabrics=["tailrace"],
            interfaces=["vhost-user", "memif"],
            patterns=["P2P", "PVP", "PVVP", "north/south"],
            functions=[1, 2, 3],
            frames=[64],
        )
    )
    names = [cell.name for cell in found]
    assert len(names) == len(set(names)) == 7
    # Without functions it does not matter what their ports would be.
    assert names[0] == "tailrace-veth-P2P-64"
    assert [cell.functions for cell in found] == [0, 1, 1, 2, 2, 3, 3]


def test_without_a_switch_a_link_to_the_outside_is_of_the_outsides_kind() -> None:
    found = cells(
        matrix(fabrics=["direct"], interfaces=["vhost-user", "memif"], patterns=["PVP", "PVVP", "VV"], frames=[64])
    )
    assert [cell.name for cell in found] == [
        "direct-veth-PVP-64",
        "direct-vhost-user-PVVP-64",
        "direct-memif-PVVP-64",
        "direct-vhost-user-VV-64",
        "direct-memif-VV-64",
    ]


def test_what_cannot_be_had_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(the_stand, "usable_cpus", lambda: Usable([Cpu(number, core=number) for number in range(2)]))

    def missing() -> None:
        raise Mistake("it is not installed; install it with `sudo apt-get install it`")

    changed = dict(the_matrix.MATRIX_KINDS)
    changed["tailrace"] = replace(changed["tailrace"], installed=missing)
    changed["direct"] = replace(changed["direct"], installed=lambda: None)
    monkeypatch.setattr(the_matrix, "MATRIX_KINDS", changed)
    test = matrix(fabrics=["tailrace", "direct"], interfaces=["memif", "tap"], patterns=["VV"], frames=[64, 1518])
    (wanted,), refused = left(test, known={("direct-memif-VV-64", 1)})
    assert [cell.name for cell in wanted] == ["direct-memif-VV-1518"]
    reasons = {cell.name: reason for cell, reason in refused}
    assert reasons["tailrace-memif-VV-64"] == "it is not installed; install it with `sudo apt-get install it`"
    assert reasons["direct-tap-VV-64"] == "direct has no tap ports; it has vhost-user, memif, veth"
    assert len(reasons) == 6


def test_machines_that_this_machine_cannot_have_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_self: object) -> None:
        raise Mistake("no image of machines; make one with `tailrace image build`")

    monkeypatch.setattr(InMachine, "check", missing)
    monkeypatch.setattr(the_stand, "usable_cpus", lambda: Usable([Cpu(number, core=number) for number in range(2)]))
    changed = {name: replace(kind, installed=lambda: None) for name, kind in the_matrix.MATRIX_KINDS.items()}
    monkeypatch.setattr(the_matrix, "MATRIX_KINDS", changed)
    test = matrix(
        runs_in="machine", fabrics=["tailrace"], interfaces=["vhost-user"], patterns=["P2P", "PVP"], frames=[64]
    )
    (wanted,), ((cell, reason),) = left(test)
    assert [each.pattern for each in wanted] == ["P2P"], "it has no function"
    assert (cell.pattern, reason) == ("PVP", "no image of machines; make one with `tailrace image build`")


def test_functions_are_one_to_eight() -> None:
    found = cells(matrix(fabrics=["direct"], interfaces=["vhost-user"], patterns=["east/west"], frames=[64]))
    assert [cell.functions for cell in found] == list(range(1, 9))
    for wrong in (0, 9):
        with pytest.raises(ValidationError):
            matrix(functions=[wrong])


def test_cells_that_differ_in_traffic_alone_share_a_stand() -> None:
    found = cells(
        matrix(fabrics=["tailrace", "direct"], interfaces=["vhost-user"], patterns=["VV"], frames=[64, "imix"])
    )
    assert [[cell.profile.name for cell in group] for group in stands(found)] == [["64", "imix"]] * 2


def test_what_is_done_is_known_from_the_run_folder(tmp_path: Path) -> None:
    found = cells(matrix(fabrics=["tailrace"], interfaces=["vhost-user"], patterns=["VV", "PVP"], frames=[64, 1518]))
    measured, refused, failed, _ = found
    folder = RunFolder.create(tmp_path, "matrix", spec="", host={}, command=(), versions={})
    folder.put_finding(measured.finding().with_round(CellRound(round=1, trial="x", p99_us=3.5)))
    folder.put_finding(refused.finding().model_copy(update={"not_here": "too few cores"}))
    folder.put_finding(failed.finding().model_copy(update={"valid": False, "reason": "it died"}))
    folder.finish()
    again = RunFolder.reopen(folder.path)
    assert not again.run.valid
    assert again.run.finished is None
    # What failed is tried again, and takes the place of what was kept of it.
    # And what could not be had is looked at again: it may have been installed meanwhile.
    assert done(again.run) == {(measured.name, 1)}
    again.put_finding(failed.finding().with_round(CellRound(round=1, trial="y", p99_us=3.5)))
    assert done(again.run) == {(measured.name, 1), (failed.name, 1)}
    assert len(again.run.findings) == 3
    assert again.finish().valid


# --- floors ----------------------------------------------------------------------------------------------------------

FLOORS = matrix(
    fabrics=["direct"], interfaces=["vhost-user", "memif"], patterns=["PVP", "VV", "PVVP"], frames=[64, 1518],
    rate="1kpps",
)  # fmt: skip


def run_matrix(
    monkeypatch: pytest.MonkeyPatch, folder: RunFolder, fails: Callable[[str], str | None] = lambda _: None
) -> JoinedTester:
    """Measures `FLOORS` on fabrics that answer at once: every frame takes 10 µs, in the second round 20 µs, ...

    `fails` says by a trial's name why it fails.
    """

    @contextmanager
    def standing(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(tester=None, check=lambda: None, version=dict, notes=())

    def measured(session: Any, case: Any) -> Trial:
        traffic = {"name": case.name, **case.profile.kind._asdict(), "functions": case.functions}
        number = session.folder._round
        if reason := fails(name_in_round(case.name, number)):
            raise Failure(reason)
        made = result(stream([10_000 * number] * 100))
        kept: Trial = session.folder.add_trial(made, offered_pps=case.rate.pps, **traffic)
        return kept

    monkeypatch.setattr(the_stand, "usable_cpus", lambda: Usable([Cpu(number, core=number) for number in range(4)]))
    monkeypatch.setattr(the_matrix, "standing", standing)
    monkeypatch.setattr(the_matrix, "measured", measured)
    monkeypatch.setattr(the_matrix, "keep_aside", lambda *_: None)
    joined = JoinedTester(monkeypatch)
    launcher = Launcher(State(folder.path, Record(boot="none")), folder.logs, tied=True)
    MatrixRun(FLOORS, launcher, folder, Silent(), huge=False).run()
    return joined


def test_a_floor_is_measured_once_for_each_kind_of_port_and_profile_and_not_for_each_cell(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = RunFolder.create(tmp_path, "matrix", spec="", host={}, command=(), versions={})
    joined = run_matrix(monkeypatch, folder)
    found = [each for each in folder.run.findings if isinstance(each, MatrixCell)]
    assert len(found) == len(cells(FLOORS)) == 10
    # North/south the tester's ports are veths, whatever the functions' are.
    assert joined.stood == [("veth", "direct"), ("vhost-user", "direct"), ("memif", "direct")]
    assert [(each.ports, each.profile) for each in folder.run.floors] == [
        (ports, size) for ports in ("veth", "vhost-user", "memif") for size in ("64", "1518")
    ]
    for cell in found:
        expected = 10 / 8 if cell.ends == "north/south" else 10
        assert cell.floor_ratio == pytest.approx(expected, rel=0.02), cell.name


def test_a_matrix_that_is_gone_on_with_measures_the_floors_again_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = RunFolder.create(tmp_path, "matrix", spec="", host={}, command=(), versions={})
    run_matrix(monkeypatch, folder)
    failed = next(each for each in cells(FLOORS) if each.name == "direct-memif-VV-1518")
    folder.put_finding(failed.finding().model_copy(update={"valid": False, "reason": "it died"}))
    folder.finish()
    before = folder.run.floors
    again = RunFolder.reopen(folder.path)
    assert run_matrix(monkeypatch, again).stood == [("memif", "direct")]
    assert again.run.floors[: len(before)] == before
    assert [(each.ports, each.profile) for each in again.run.floors[len(before) :]] == [("memif", "1518")]


def test_the_time_for_a_floor_is_counted_once() -> None:
    pairs = [("veth", profile(64)), ("veth", profile(64)), ("veth", profile(1518)), ("tap", profile(64))]
    assert floors_seconds(pairs) == floors_seconds(pairs[1:])  # type: ignore[arg-type]
    assert floors_seconds(pairs) == floors_seconds(pairs[1:3]) + floors_seconds(pairs[3:])  # type: ignore[arg-type]
    one, other, *_ = cells(FLOORS)
    assert one.stand == other.stand
    assert seconds([[one, other]], FLOORS) < seconds([[one]], FLOORS) + seconds([[other]], FLOORS)
    # Rounds share the floors and nothing else.
    floor = floors_seconds([(one.tester_ports, one.profile)])
    assert seconds([[one], [one]], FLOORS) == pytest.approx(2 * seconds([[one]], FLOORS) - floor)


def test_machines_take_their_time_to_boot() -> None:
    """Once a stand, and only where there is one."""

    def whole(runs: str, patterns: list[str], rounds: int = 1) -> float:
        test = matrix(
            fabrics=["tailrace"], interfaces=["vhost-user"], patterns=patterns, frames=[64, 1518], runs_in=runs
        )
        return seconds([cells(test)] * rounds, test)

    boot = InMachine.boot_seconds
    assert boot > 0
    for patterns, rounds, boots in ((["PVP"], 1, 1), (["P2P"], 1, 0), (["VV", "PVP", "PVVP"], 1, 2), (["PVP"], 3, 3)):
        longer = whole("machine", patterns, rounds) - whole("process", patterns, rounds)
        assert longer == pytest.approx(boots * boot), patterns


# --- no-loss rates ---------------------------------------------------------------------------------------------------


class SimulatedTester:
    """The tester as a session has it, of a device that is only arithmetic."""

    control = None

    def __init__(self, device: SimulatedDevice) -> None:
        self._device = device

    def trial(self, streams: list[dict[str, Any]], seconds: float, *, wait: float, **_: Any) -> dict[str, Any]:
        return self._device(streams, seconds, wait, "")


@pytest.mark.parametrize("loss", [0.0, 1.5e-5])
def test_a_cell_has_a_no_loss_rate_only_if_its_trial_confirmed_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, loss: float
) -> None:
    """By the rule that `measure latency` has: its attempts are kept, and the cell is the last."""
    tester = SimulatedTester(SimulatedDevice(1e9, sender=1e5, loss=loss))

    @contextmanager
    def standing(*_: Any) -> Iterator[Any]:
        yield SimpleNamespace(tester=tester, check=lambda: None, version=dict, notes=())

    monkeypatch.setattr(the_stand, "usable_cpus", lambda: Usable([Cpu(number, core=number) for number in range(4)]))
    monkeypatch.setattr(the_matrix, "standing", standing)
    monkeypatch.setattr(the_matrix, "keep_aside", lambda *_: None)
    JoinedTester(monkeypatch)
    folder = RunFolder.create(tmp_path, "matrix", spec="", host={}, command=(), versions={})
    launcher = Launcher(State(folder.path, Record(boot="none")), folder.logs, tied=True)
    test = matrix(
        fabrics=["direct"], interfaces=["vhost-user"], patterns=["VV"], frames=[64], rate="90%", duration="2s"
    )
    MatrixRun(test, launcher, folder, Silent(), huge=False).run()
    (cell,) = folder.run.findings
    assert isinstance(cell, MatrixCell)
    (found,) = cell.rounds
    assert found.searched is not None
    standing_trial = folder.run.trials[-1]
    assert (found.trial, found.offered_pps) == (standing_trial.name, standing_trial.offered_pps)
    assert {place.words for place in folder.run.places.values()} == {"direct, vhost-user, VV"}
    rates, *_ = heats([cell])
    words = rates.rows[0][1]
    if loss:
        assert [trial.attempt for trial in folder.run.trials] == [1, 2, 3, None]
        assert all(trial.total("lost") for trial in folder.run.trials)
        assert (cell.no_loss_pps, cell.not_confirmed, words) == (None, True, "none")
        assert any(text.startswith("none: no full-length trial confirmed") for text in rates.remarks)
    else:
        assert len(folder.run.trials) == 1
        assert cell.no_loss_pps == found.no_loss_pps == found.searched.pps == pytest.approx(1e5, rel=0.06)
        assert words.startswith("≥") and cell.bound == "at_least"
        assert any(text.startswith("≥: nothing was lost") for text in rates.remarks)
        (line,) = [line for line in lines(cell) if line["figure"] == "no_loss_pps"]
        assert line["bound"] == "at_least"
    # What is gone on with after a kill takes no name that an attempt has.
    again = MatrixRun(test, launcher, folder, Silent(), huge=False)
    assert again._trial_name(cells(test)[0], 1) == f"{standing_trial.name}-again-2"


# --- rounds ----------------------------------------------------------------------------------------------------------


def of_round(number: int, p99: float, **more: Any) -> CellRound:
    return CellRound(round=number, trial=f"cell-{number}", p99_us=p99, **more)


def test_a_cell_is_the_median_of_its_rounds_in_whatever_order_they_came() -> None:
    cell = cells(FLOORS)[0].finding().with_round(of_round(1, 10.0))
    assert (cell.p99_us, cell.spread, cell.trial) == (10.0, {}, "cell-1")
    cell = cell.with_round(of_round(3, 40.0)).with_round(of_round(2, 20.0, no_loss_pps=5e5))
    assert (cell.p99_us, cell.no_loss_pps, cell.p50_us, cell.trial) == (20.0, 5e5, None, "cell-1")
    # What was measured once has no spread.
    assert cell.spread == {"p99_us": CellRange(low=10.0, high=40.0)}
    assert [each.round for each in cell.rounds] == [1, 2, 3]
    found = cell.spread_of("p99_us")
    assert found is not None
    assert (found.low, found.median, found.high, found.count) == (10.0, 20.0, 40.0, 3)
    rate = cell.spread_of("no_loss_pps")
    assert rate is not None
    assert rate.count == 1, "the rounds that confirmed none are not in it"


def test_why_a_round_failed_stands_until_it_has_been_measured() -> None:
    failed = cells(FLOORS)[0].finding().model_copy(update={"valid": False, "reason": "round 1: it died"})
    later = failed.with_round(of_round(2, 10.0))
    assert (later.valid, later.reason) == (False, "round 1: it died")
    whole = later.with_round(of_round(1, 20.0))
    assert (whole.valid, whole.reason, whole.p99_us) == (True, None, 15.0)


def test_rounds_go_over_the_whole_matrix_on_one_set_of_floors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "matrix", spec="", host={}, command=(), versions={}, repeat=3)
    joined = run_matrix(monkeypatch, folder)
    names = [cell.name for cell in cells(FLOORS)]
    measured = [trial.name for trial in folder.run.trials]
    assert measured == [name_in_round(name, number) for number in (1, 2, 3) for name in names]
    assert joined.stood == [("veth", "direct"), ("vhost-user", "direct"), ("memif", "direct")]
    found = [each for each in folder.run.findings if isinstance(each, MatrixCell)]
    assert [cell.name for cell in found] == names
    for cell in found:
        assert cell.p50_us == pytest.approx(20, rel=0.02)
        assert [each.p50_us for each in cell.rounds] == pytest.approx([10, 20, 30], rel=0.02)
        assert [each.trial for each in cell.rounds] == [name_in_round(cell.name, number) for number in (1, 2, 3)]
    assert folder.finish().valid


def test_a_matrix_goes_on_at_the_cell_and_the_round_where_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = [cell.name for cell in cells(FLOORS)]
    folder = RunFolder.create(tmp_path, "matrix", spec="", host={}, command=(), versions={}, repeat=2)
    killed = name_in_round(names[3], 2)

    def kill(name: str) -> str | None:
        if name == killed:
            raise KeyboardInterrupt
        return "it died" if name == names[0] else None

    with pytest.raises(KeyboardInterrupt):
        run_matrix(monkeypatch, folder, kill)
    before = {trial.name: trial.started for trial in folder.run.trials}
    again = RunFolder.reopen(folder.path)
    (first, second), _ = left(FLOORS, done(again.run), again.run.repeat)
    # The one that failed took no other along: its stand's second cell was measured on another.
    assert [cell.name for cell in first] == names[:1]
    assert [cell.name for cell in second] == names[3:]
    run_matrix(monkeypatch, again)
    assert not any(left(FLOORS, done(again.run), again.run.repeat)[0])
    assert {trial.name: trial.started for trial in again.run.trials}.items() >= before.items()
    assert len(again.run.trials) == 2 * len(names)
    for cell in again.run.findings:
        assert isinstance(cell, MatrixCell)
        assert (cell.valid, [each.round for each in cell.rounds]) == (True, [1, 2])
    assert again.finish().valid


def test_a_resume_that_is_refused_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_STATE", str(tmp_path / "state"))
    test = matrix(fabrics=["direct"], interfaces=["vhost-user"], patterns=["VV"], frames=[64])
    with RunFolder.create(tmp_path, "matrix", spec="", host={}, command=(), versions={}) as folder:
        (folder.path / PLAN).write_text(test.model_dump_json())
        add(folder, {**result(stream([1_000] * 50)), "stopped": True})
    assert not folder.run.valid
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    with hold_run(tmp_path / "state"), pytest.raises(Mistake):
        _resume(folder.path, MatrixOptions({}, 1, tmp_path, huge=False, as_json=True))
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == before


def test_a_dry_run_says_what_there_is_and_why_not_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(the_stand, "usable_cpus", lambda: Usable([Cpu(number, core=number) for number in range(2)]))
    changed = dict(the_matrix.MATRIX_KINDS)
    changed["direct"] = replace(changed["direct"], installed=lambda: None)
    monkeypatch.setattr(the_matrix, "MATRIX_KINDS", changed)
    monkeypatch.setattr(commands, "needs_root", lambda *_: pytest.fail("it does nothing"))
    words = ["--fabrics", "direct,card", "--interfaces", "vhost-user,passthrough", "--patterns", "VV", "--frames", "64"]
    words = ["measure", "matrix", *words, "--dry-run", "--runs", str(tmp_path / "runs")]
    done = CliRunner().invoke(app, [*words, "--json"])
    document = json.loads(done.output)
    assert (document["cells"], document["stacks"]) == (["direct-vhost-user-VV-64"], []) and document["seconds"] > 0
    assert sorted(document["not_here"]) == [
        "card-passthrough-VV-64", "card-vhost-user-VV-64", "direct-passthrough-VV-64",
    ]  # fmt: skip
    said = CliRunner().invoke(app, words).output
    assert "1 cells, about 1 min; 3 more are not possible here" in said
    assert re.search(r"direct +vhost-user +1 +VV", said)
    assert re.search(r"1 +card: no card is named; expected --card NAME", said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"card": "a,b,c"}, "--card: a,b,c is not possible; expected at most 2"),
        ({"outside": "a"}, "outside is the far end of each card's cable; expected card beside it"),
        ({"card": ["a", "a"], "outside": ["b", "b"]}, "b is listed twice; expected each once"),
    ],
)
def test_cards_that_do_not_fit_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(Mistake, match=words):
        commands.override(Matrix(), options)
