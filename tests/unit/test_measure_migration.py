"""What `tailrace measure migration` refuses, gives to nodes, finds and shows. No machine moves here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tester_results import result, stream
from typer.testing import CliRunner

from tailrace.cli import main
from tailrace.errors import Mistake
from tailrace.measure.migration import check_chain, machine_of, place_of, spec_of
from tailrace.report.findings import sections
from tailrace.report.headline import headline
from tailrace.results import RunFolder, load_run
from tailrace.results.diff import diff
from tailrace.results.migration import MigrationFinding
from tailrace.results.stored import read_run
from tailrace.results.table import csv_text
from tailrace.spec.load import parse_located, parse_spec

SPEC = """\
functions:
  first: {kind: skeleton, runs: machine, latency: normal}
  second: skeleton
chains:
  voice: [tester.a, second, first, tester.b]
"""


def run(tmp_path: Path, spec: str, *words: str) -> tuple[int, str]:
    path = tmp_path / "s.yaml"
    path.write_text(spec)
    done = CliRunner().invoke(main.app, ["measure", "migration", str(path), "--runs", str(tmp_path / "runs"), *words])
    return done.exit_code, done.stderr


@pytest.mark.parametrize(
    ("spec", "words", "said"),
    [
        (SPEC.replace("runs: machine, latency: normal", "runs: process"), (), "functions: none of them runs in a mach"),
        (SPEC.replace("normal}", "normal, migratable: false}"), (), "2:71: functions.first.migratable: first may not"),
        (SPEC.replace("second, first", "second"), (), "chains.voice: it does not lead through first"),
        (SPEC.replace("tester.a, ", "{if: eth7}, "), (), "chains: no chain runs from tester.a to tester.b"),
        (SPEC, ("--function", "second"), "--function second: expected a machine of the spec: first"),
        (SPEC, ("--rate", "15pps"), "expected at least 10 packets a second of each flow"),
        (SPEC, ("--frames", "9000"), "--frames"),
        (SPEC, ("--downtime", "2h"), "--downtime: 2h is not possible"),
        (SPEC, ("--bandwidth", "1KiB"), "--bandwidth: 1KiB is too little"),
        (SPEC, ("--hosts", "/a", "/b"), "--hosts and --between belong together"),
        (SPEC, ("--hosts", "/a", "/a", "--between", "if:lo", "vdev:net_null0"), "one is named twice"),
        (SPEC, ("--hosts", "/no/such", "/b", "--between", "if:lo", "vdev:net_null0"), "/no/such: no service runs"),
    ],
)
def test_what_cannot_be_is_named_before_anything_starts(
    tmp_path: Path, spec: str, words: tuple[str, ...], said: str
) -> None:
    status, error = run(tmp_path, spec, *words)
    assert status == 2 and said in error, error
    assert not (tmp_path / "runs").exists()


def test_of_several_machines_one_is_named() -> None:
    spec, document = parse_located(SPEC.replace("second: skeleton", "second: {kind: skeleton, runs: machine}"), "s")
    with pytest.raises(Mistake, match="first, second are machines; say which one moves"):
        machine_of(spec, document, None)
    assert machine_of(spec, document, "second") == "second"
    check_chain(spec, document, "second")


def test_both_nodes_have_the_chain_and_one_the_machine_that_comes() -> None:
    spec = parse_spec(SPEC, "s")
    here, there = (
        parse_spec(spec_of(spec, SPEC, "first", 1, ("veth0", "veth1"), arrives), "node") for arrives in (False, True)
    )
    assert here.chains == there.chains and here.chains["voice"].through == ["second", "first"]
    assert [each.functions["first"].arrives for each in (here, there)] == [False, True]
    assert here.functions["first"].latency == "normal" and here.fabric.cores == [1]


def test_a_chain_that_is_written_the_other_way_round_has_its_ends_so() -> None:
    turned = SPEC.replace("tester.a, second, first, tester.b", "tester.b, second, first, tester.a")
    node = json.loads(spec_of(parse_spec(turned, "s"), turned, "first", 1, ("A", "B"), False))
    assert node["chains"]["voice"] == [{"if": "B"}, "second", "first", {"if": "A"}]


def test_a_node_has_names_as_the_spec_has_them() -> None:
    """Which YAML 1.1 would read as no texts."""
    text = SPEC.replace("second", "no")
    node = json.loads(spec_of(parse_spec(text, "s"), text, "first", 1, ("A", "B"), False))
    assert sorted(node["functions"]) == ["first", "no"]


def test_the_machine_is_on_one_of_two() -> None:
    assert place_of("first", ("/a", "/b"), ("stopped", "running")) == 1
    with pytest.raises(Mistake, match="first is running on /a, running on /b; expected it to run on one of them"):
        place_of("first", ("/a", "/b"), ("running", "running"))


def finding(outages: dict[str, float], **more: Any) -> MigrationFinding:
    words = {
        "name": "migration-64", "profile": "64", "flows": 2, "functions": 1, "valid": True, "reason": None,
        "trial": "migration-64", "acceleration": "emulated", "outages_ms": outages, "frame_ms": 4.0, "pause_ms": 20.0,
        "switch_ms": 30.0, "total_ms": 1448.0, "rounds": 3, "bytes": 256 << 20, "forwarded": 5, "parked": 70, "lost": 0,
        "duplicate": 0, "out_of_sequence": 0,
    }  # fmt: skip
    return MigrationFinding.model_validate({**words, **more})


def kept(folder: Path, *outages: float) -> Path:
    """A run of so many moves."""
    with RunFolder.create(
        folder, "migration", spec=SPEC, host={}, command=(), versions={}, repeat=len(outages)
    ) as made:
        for number, outage in enumerate(outages, 1):
            made.begin_round(number)
            trial = made.add_trial(
                result(stream([5000] * 100)), name="migration-64", profile="64", functions=1, offered_pps=1000, flows=2
            )
            found = finding({"a-to-b-0": outage, "b-to-a-0": 100.0}, trial=trial.name)
            made.add_finding(found)
    return made.path


def test_moves_are_shown_beside_what_others_publish(tmp_path: Path) -> None:
    run = load_run(kept(tmp_path, 263.0, 600.0, 300.0))
    assert headline(run) == ["1 VNF, 64 B: outage 300 ms (263 ms–600 ms), at most 500 ms in 2 of 3 moves; nothing lost"]
    (section,) = sections(run)
    assert section.rows[0][1:3] == ("3", "300 (263–600)") and section.rows[0][-1] == "210"
    assert "2 of 3 moves. Published for comparison: at most 500 ms" in section.remarks[0]
    assert any("emulated" in each for each in section.remarks)
    assert {line.label: len(line.points) for line in section.charts[0].lines} == {
        "64 B, a-to-b-0": 3,
        "64 B, b-to-a-0": 3,
    }


def test_moves_of_two_runs_are_compared_and_are_lines_of_the_table(tmp_path: Path) -> None:
    one, other = (read_run(kept(tmp_path / name, *values)) for name, values in (("a", (200.0, 300.0)), ("b", (500.0,))))
    figures = {each.figure: each for each in diff(one, other).figures}
    assert (figures["outage"].a, figures["outage"].b, figures["outage"].unit) == (250.0, 500.0, "ms")
    assert "outage_ms a-to-b-0" in csv_text([one.run])
