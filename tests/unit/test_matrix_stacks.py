"""TCP between two stacks as a part of a matrix, without any stack: what is asked for, kept, gone on with and shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tailrace.errors import Failure, Mistake
from tailrace.measure import matrix as the_matrix
from tailrace.measure import matrix_stacks
from tailrace.measure.matrix import MatrixRun, done
from tailrace.measure.matrix_stacks import Way, way_seconds, ways_left, why_not
from tailrace.measure.progress import Silent
from tailrace.report.stacks import stacks
from tailrace.results.diff import diff
from tailrace.results.findings import RoundTrips, StacksFinding
from tailrace.results.run import RunFolder
from tailrace.results.stored import read_run
from tailrace.results.table_findings import lines
from tailrace.spec.tests import Matrix
from tailrace.state.launch import Launcher
from tailrace.state.record import Record, State

NO_CARD = "no card is named; expected --card NAME, as `tailrace host inspect` lists them"


def matrix(**words: Any) -> Matrix:
    """Whose only cell cannot be had anywhere."""
    only = {"fabrics": ["card"], "interfaces": ["passthrough"], "patterns": ["VV"], "frames": [64]}
    return Matrix.model_validate({**only, **words})


def measured(way: Way, gbps: float = 5.0) -> StacksFinding:
    ping = RoundTrips(min_us=20, average_us=30, max_us=400, mdev_us=7, lost=0)
    return way.finding().model_copy(update={"gbps": {"64": gbps, "65536": 2 * gbps}, "retransmits": 1, "ping": ping})


@pytest.fixture
def anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has all but a card."""
    monkeypatch.setattr(
        matrix_stacks, "why_not", lambda way: NO_CARD if way.name == "passthrough" and way.card is None else None
    )


def test_the_defaults_measure_no_stacks_and_the_sizes_of_the_study() -> None:
    assert (matrix().stacks, matrix().messages) == ([], [64, 256, 1518, 65536])
    assert way_seconds(matrix(duration="300ms", messages=[64])) == way_seconds(matrix(duration="1s", messages=64))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"stacks": ["veth", "veth"]}, "veth is listed twice"),
        ({"stacks": "memif"}, "'passthrough'"),
        ({"messages": []}, "at least"),
        ({"messages": [0]}, "greater than or equal to 1"),
        ({"messages": [1 << 18]}, "less than or equal to 131072"),
    ],
)
def test_what_cannot_be_asked_for(words: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        matrix(**words)


def test_what_a_machine_has_not_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_stacks, "check_programs", lambda: None)
    assert why_not(Way("passthrough")) == NO_CARD
    assert "there is no network card ens0" in (why_not(Way("passthrough", "ens0")) or "")

    def missing() -> None:
        raise Mistake("iperf3 is not installed; run: apt-get install iperf3")

    monkeypatch.setattr(matrix_stacks, "check_programs", missing)
    assert "apt-get install iperf3" in (why_not(Way("veth")) or "")


@pytest.mark.usefixtures("anything")
def test_a_card_is_for_passthrough_alone_and_what_is_done_is_left_out() -> None:
    asked = matrix(stacks=["tailrace", "veth", "passthrough"])
    rounds, refused = ways_left(asked, {("stacks-veth", 1)}, 2)
    assert [[way.name for way in each] for each in rounds] == [["tailrace"], ["tailrace", "veth"]]
    assert refused == [(Way("passthrough"), NO_CARD)]
    ((*_, last),), refused = ways_left(matrix(stacks=["veth", "passthrough"], card=["ens1f0"]))
    assert (last, refused) == (Way("passthrough", "ens1f0"), [])


@pytest.mark.usefixtures("anything")
def test_what_fails_is_kept_with_the_reason_and_gone_on_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = matrix(stacks=["veth", "linux-bridge", "passthrough"])
    fails = {"linux-bridge"}

    def measure_way(way: Way, *_: Any, **__: Any) -> StacksFinding:
        if way.name in fails:
            raise Failure("ping had no answer")
        return measured(way)

    monkeypatch.setattr(the_matrix, "measure_way", measure_way)
    folder = RunFolder.create(tmp_path, "matrix", spec="", host={}, command=(), versions={}, repeat=2)
    launcher = Launcher(State(folder.path, Record(boot="none")), folder.logs, tied=True)
    MatrixRun(asked, launcher, folder, Silent(), huge=False).run()
    assert not folder.finish().valid
    found = {each.name: each for each in folder.run.findings if isinstance(each, StacksFinding)}
    assert found["stacks-passthrough"].not_here == NO_CARD
    assert found["stacks-linux-bridge"].reason == "ping had no answer"
    assert found["stacks-veth-round-2"].gbps == {"64": 5.0, "65536": 10.0}
    again = RunFolder.reopen(folder.path)
    assert done(again.run) == {("stacks-veth", 1), ("stacks-veth", 2)}
    with monkeypatch.context() as now:  # what was measured of a way that cannot be had any more stays
        now.setattr(matrix_stacks, "why_not", lambda _: NO_CARD)
        MatrixRun(asked, launcher, again, Silent(), huge=False).run()
    assert done(again.run) == {("stacks-veth", 1), ("stacks-veth", 2)}
    fails.clear()
    MatrixRun(asked, launcher, again, Silent(), huge=False).run()
    assert done(again.run) == {(f"stacks-{way}", number) for way in ("veth", "linux-bridge") for number in (1, 2)}
    assert again.finish().valid


def test_the_table_has_a_row_for_each_way_and_says_what_is_not_there() -> None:
    veth, card = Way("veth"), Way("passthrough")
    second = measured(veth, 7.0).model_copy(update={"name": "stacks-veth-round-2", "round": 2})
    (section,) = stacks([measured(veth), second, card.finding().model_copy(update={"not_here": NO_CARD})])
    assert section.titles[:4] == ("way", "64 B, Gbit/s", "65536 B, Gbit/s", "sent again")
    assert section.rows[0][:4] == ("veth", "6 (5–7)", "12 (10–14)", "1")
    assert section.rows[0][4:] == ("20.0", "30.0", "400", "7.00")
    assert section.rows[1][:2] == ("passthrough", "not here") and len(section.rows[1]) == len(section.titles)
    assert any(NO_CARD in each for each in section.remarks)
    assert not list(stacks([]))


def test_each_figure_is_a_line_of_the_csv() -> None:
    found = {each["figure"]: each for each in lines(measured(Way("veth")))}
    assert (found["gbps 65536"]["value"], found["ping_mdev_us"]["value"]) == (10, 7)
    (line,) = lines(Way("passthrough").finding().model_copy(update={"not_here": NO_CARD}))
    assert line == {"fabric": "passthrough", "figure": "not_here", "reason": NO_CARD}


def test_two_runs_are_compared_by_way(tmp_path: Path) -> None:
    folders = []
    for number, gbps in enumerate((4.0, 6.0)):
        with RunFolder.create(tmp_path / str(number), "matrix", spec="", host={}, command=(), versions={}) as folder:
            folder.put_finding(measured(Way("veth"), gbps))
            folder.put_finding(Way("passthrough").finding().model_copy(update={"not_here": NO_CARD}))
        folders.append(folder.path)
    found = diff(*(read_run(path, distributions=False) for path in folders))
    ratios = {each.figure: each.ratio for each in found.figures}
    assert ratios["TCP by writes of 64 B"] == pytest.approx(1.5) and ratios["ping mdev"] == 1
