"""The method that disturbs order on purpose: its streams, the replicas it needs, and what it says."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from run_folders import add
from tester_results import result, stream
from typer.testing import CliRunner

from tailrace.cli import main
from tailrace.errors import Mistake
from tailrace.measure.method import Place
from tailrace.measure.overtaking import overtaking_note
from tailrace.measure.profile import profile
from tailrace.measure.reorder import Apart, ReorderMethod, delays_of, slower_of
from tailrace.plan.make import make_plan
from tailrace.plan.planned import Plan
from tailrace.report.figures import percent
from tailrace.report.findings import sections
from tailrace.report.html import render
from tailrace.report.rounds import figure
from tailrace.report.table import print_run
from tailrace.resources.topology import Cpu
from tailrace.results import RunFolder
from tailrace.results.comparison import places
from tailrace.results.findings import Order, ReorderFinding
from tailrace.results.stored import StoredRun
from tailrace.spec.load import parse_spec
from tailrace.spec.source import SpecError
from tailrace.spec.tests import Reorder
from tailrace.switch.config import port_name

CHAIN = "chains: {office: [tester.a, wan, tester.b]}\n"


def plan(function: str) -> Plan:
    spec = parse_spec(f"functions: {{wan: {function}}}\n{CHAIN}", "s")
    return make_plan(spec, huge=False, cpus=[Cpu(0), Cpu(1)], real_time="not asked")


def test_flows_apart_are_the_flows_together() -> None:
    together = profile("imix", 3)
    streams = Apart(together.name, together.traffic, flows=3).streams(30_000.0)
    assert [(each["name"], each["flow"]) for each in streams] == [
        ("a-to-b-0", 0), ("a-to-b-1", 1), ("a-to-b-2", 2), ("b-to-a-0", 0), ("b-to-a-1", 1), ("b-to-a-2", 2),
    ]  # fmt: skip
    for each in streams:
        assert each["flows"] == 1
        assert each["rate"] == 10_000.0
        assert (each["frames"], each["weights"]) == (together.traffic["frames"], together.traffic["weights"])


def test_slower_replicas_are_those_behind_the_fastest_of_their_function() -> None:
    found = plan("{kind: impair, replicas: 3, impair: {delay: [1ms, 2ms, 1ms]}}")
    assert delays_of(found.functions) == {"wan": 1000, "wan-2": 2000, "wan-3": 1000}
    assert [each.name for each in slower_of(found)] == ["wan-2"]


@pytest.mark.parametrize("function", ["skeleton", "{kind: impair, replicas: 2, impair: {delay: 2ms}}"])
def test_where_all_are_alike_nothing_would_be_seen(function: str, tmp_path: Path) -> None:
    assert slower_of(plan(function)) == []
    # It is refused before anything is started, with the line of the chain.
    spec = tmp_path / "s.yaml"
    spec.write_text(f"functions: {{wan: {function}}}\nchains:\n  office: [tester.a, wan, tester.b]\n")
    done = CliRunner().invoke(main.app, ["measure", "reorder", str(spec), "--runs", str(tmp_path / "runs")])
    assert done.exit_code == 2
    said = "chains.office: none of its functions has replicas that delay frames unequally"
    assert f"{spec}:3:3: {said}" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_it_needs_a_chain() -> None:
    with pytest.raises(Mistake, match="expected a SPEC"):
        ReorderMethod().steps([Reorder()], Place())
    (chain,) = plan("{kind: impair, replicas: 2, impair: {delay: [0s, 2ms]}}").chains
    (step,) = ReorderMethod().steps([Reorder()], Place(chain))
    assert step.name == "one-function-64"
    assert step.seconds > 2 * 5.0


@pytest.mark.parametrize(
    ("words", "said"),
    [("{flows: 33}", "flows"), ("{flows: 1}", "flows"), ("{pcap: x.pcap}", "a capture's flows are not known")],
)
def test_what_is_wrong_is_said(words: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        parse_spec(f"functions: {{wan: impair}}\n{CHAIN}tests: [reorder: {words}]\n", "s")


def test_ratios_are_those_of_the_rfc() -> None:
    order = Order(
        sent=1000, received=800, out_of_sequence=200, beyond_window=0, extent_average=3, extent_max=9, extent_unknown=0
    )
    finding = ReorderFinding(
        name="x", profile="64", functions=1, valid=True, reason=None, flows=2, delays_us={"a": 0, "b": 9}, slower=250,
        together=order, apart=order.model_copy(update={"out_of_sequence": 0}),
    )  # fmt: skip
    assert order.ratio == 0.25
    assert finding.seen == 0.8
    assert finding.apart.ratio == 0
    assert finding.as_planned and finding.unseen is None
    for slower, seen, why in ((0, 0, "no frame took"), (250, 124, "only 124 were seen"), (250, 0, "only 0 were seen")):
        few = order.model_copy(update={"out_of_sequence": seen})
        blind = finding.model_copy(update={"slower": slower, "together": few})
        assert not blind.as_planned
        assert why in (blind.unseen or "")
    assert {name: place.words for name, place in places([finding]).items()} == {
        "x-together": "flows together",
        "x-apart": "flows apart",
    }


def disturbed_run(runs: Path, together: int, *, slower: int = 20, apart: int = 0, lost: int = 0) -> RunFolder:
    """A run with so many frames out of sequence in the trial of the flows together, and in that of the flows apart."""
    order = Order(
        sent=100, received=100, out_of_sequence=0, beyond_window=0, extent_average=0, extent_max=0, extent_unknown=0
    )
    with RunFolder.create(runs, "reorder", spec="", host={}, command=(), versions={}, repeat=2) as folder:
        for number in (1, 2):
            folder.begin_round(number)
            for name, disturbed in (("together", together), ("apart", apart)):
                made = result(stream([1_000] * 100, out_of_sequence=disturbed, lost=lost))
                add(folder, made, name=f"x-{name}", functions=1)
            folder.add_finding(
                ReorderFinding(
                    name="x", profile="64", functions=1, valid=True, reason=None, flows=2, delays_us={"a": 0, "b": 9},
                    slower=slower, together=order.model_copy(update={"out_of_sequence": together}), apart=order,
                )
            )  # fmt: skip
    return folder


@pytest.mark.parametrize(
    ("slower", "disturbed", "reason"),
    [(100, 100, None), (0, 0, "no frame took a slower replica"), (100, 40, "only 40 were seen")],
)
def test_a_run_in_which_the_order_was_not_disturbed_is_not_valid(
    tmp_path: Path, slower: int, disturbed: int, reason: str | None
) -> None:
    planned = plan("{kind: impair, replicas: 2, impair: {delay: [0s, 2ms]}}")
    (late,) = slower_of(planned)
    given = 0

    def measure(streams: list[dict[str, Any]], *_: Any) -> dict[str, Any]:
        nonlocal given
        given += slower
        return result(stream([1_000] * 1000, out_of_sequence=disturbed if len(streams) == 2 else 0))

    def ports() -> list[Any]:
        names = [port_name(port, {}) for port in late.ports]
        return [SimpleNamespace(name=name, counters={"sent_packets": given // len(names)}) for name in names]

    place = Place(planned.chains[0])
    (step,) = ReorderMethod().steps([Reorder(frames=[64], flows=2)], place)
    with RunFolder.create(tmp_path, "reorder", spec="", host={}, command=(), versions={}) as folder:
        fabric = SimpleNamespace(ports=ports)
        state = SimpleNamespace(record=SimpleNamespace(instances={}))
        node = SimpleNamespace(plan=planned, fabric=fabric, state=state, lead=lambda *_: None)
        session: Any = SimpleNamespace(measure=measure, folder=folder, node=node)
        step.work(session)
        run = folder.finish()
    (found,) = run.findings
    assert isinstance(found, ReorderFinding)
    assert (run.valid, found.valid, found.slower) == (reason is None, reason is None, slower)
    assert (reason is None) == (found.reason is None)
    assert (reason or "") in (found.reason or "") and (reason or "") in (run.reason or "")


def told(folder: RunFolder) -> tuple[str, str, int]:
    """The page's banner, its colour, and how many cells are red."""
    page = render([StoredRun(folder.path, folder.run, "")])
    found = re.search(r'<div class="banner answer (\w+)">.*<p>(.*?)</p></div>', page, re.S)
    assert found is not None
    return found[2], found[1], page.count('<td class="fault')


def test_order_that_is_disturbed_on_purpose_is_no_fault(tmp_path: Path) -> None:
    folder = disturbed_run(tmp_path, 20)
    words = "Of 400 frames sent, 40 were out of sequence, as planned; no other was lost, duplicated or out of sequence"
    text, colour, red = told(folder)
    assert text.startswith(words)
    assert (colour, red) == ("neutral", 0)
    console = Console(record=True, width=100, color_system="standard", force_terminal=True)
    print_run(folder.run, console)
    (line,) = [line for line in console.export_text(styles=True).splitlines() if "as planned" in line]
    assert "\x1b" not in line, "neither red nor green"


@pytest.mark.parametrize(
    ("changes", "said", "red"),
    [
        ({"together": 20, "lost": 3}, "12 lost, 40 out of sequence as planned", 8),
        ({"together": 20, "apart": 1}, "2 out of sequence, 40 out of sequence as planned", 4),
        ({"together": 21}, "42 out of sequence.", 4),
    ],
)
def test_what_was_not_planned_stays_red(tmp_path: Path, changes: dict[str, int], said: str, red: int) -> None:
    text, colour, cells = told(disturbed_run(tmp_path, **changes))
    assert said in text
    assert (colour, cells) == ("bad", red)


def test_rounds_are_one_row_with_their_spread(tmp_path: Path) -> None:
    apart = Order(
        sent=900, received=800, out_of_sequence=0, beyond_window=0, extent_average=0, extent_max=0, extent_unknown=0
    )
    with RunFolder.create(tmp_path, "reorder", spec="", host={}, command=(), versions={}, repeat=2) as folder:
        for number, disturbed in ((1, 200), (2, 240)):
            folder.begin_round(number)
            together = apart.model_copy(
                update={"out_of_sequence": disturbed, "extent_average": disturbed / 100, "extent_max": disturbed}
            )
            folder.add_finding(
                ReorderFinding(
                    name="x", profile="64", functions=1, valid=True, reason=None, flows=2, delays_us={"a": 0, "b": 9},
                    slower=250, together=together, apart=apart,
                )
            )  # fmt: skip
    (section,) = sections(folder.run)
    assert figure([0.50001, 0.50002], percent) == "50 %", "a range that cannot be seen"
    assert [row[2:] for row in section.rows] == [
        ("2 as 1", "1,600", "500", "440", "27.5% (25%–30%)", "88% (80%–96%)", "2.2 (2.0–2.4)", "240"),
        ("2 as 2", "1,600", "-", "0", "0", "-", "-", "-"),
    ]
    assert section.remarks[-1].startswith("2 rounds")


@pytest.mark.parametrize(
    ("function", "disturbed", "flows", "method", "told"),
    [
        ("{kind: skeleton, replicas: 2}", 3, 9, "latency", True),
        ("{kind: skeleton, replicas: 2}", 3, None, "latency", True),
        ("{kind: skeleton, replicas: 2}", 3, 9, "reorder", False),
        ("{kind: skeleton, replicas: 2}", 3, 1, "latency", False),
        ("{kind: skeleton, replicas: 2}", 0, 9, "latency", False),
        ("{kind: skeleton}", 3, 9, "latency", False),
    ],
)
def test_flows_that_overtake_each_other_in_replicas_are_reported(
    tmp_path: Path, function: str, disturbed: int, flows: int | None, method: str, told: bool
) -> None:
    with RunFolder.create(
        tmp_path, "latency", spec="", host={}, command=(), versions={}, spec_name="s", fabric="tailrace", method=method
    ) as folder:
        document = result(stream([5_000] * 100, out_of_sequence=disturbed))
        add(folder, document, functions=1, flows=flows)
    note = overtaking_note(plan(function), folder.run)
    assert (note is not None) == told
    assert note is None or "replicas of 'wan'" in note
