"""The advisor: which limit bounds which traffic, how parameters are fitted, and how bad input is answered."""

from __future__ import annotations

import importlib
import json
import os
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from machines import make
from sriov_kernel import add_card
from typer.testing import CliRunner

from tailrace.advise.calibrate import _middle_95, check, fit, interpolated, middle, percentile, predict, worker_machine
from tailrace.advise.chain import Best, Chain, answers, assignments, changes, turning_points
from tailrace.advise.learn import Learned, learn, of_switch, read_measured
from tailrace.advise.machine import PARAMETERS, Machine, read_machine, show_machine
from tailrace.advise.model import Cell, Interface, Traffic, direct_mpps, limits, line_mpps, pcie_ns, poller
from tailrace.advise.of_card import card_parameters
from tailrace.advise.of_spec import chains_of
from tailrace.advise.table import COLUMNS, read_table
from tailrace.cli.main import app
from tailrace.errors import Mistake
from tailrace.kernel.tree import Tree
from tailrace.report.advice import draw
from tailrace.resources.pcie_link import AROUND, USUAL_PAYLOAD, PcieLink
from tailrace.results import RunFolder
from tailrace.results.findings import ThroughputFinding
from tailrace.spec.load import load_spec

REPOSITORY = Path(__file__).resolve().parents[2]
PUBLISHED = read_machine()


def bound(traffic: Traffic, interface: Interface, frame: int, functions: int) -> str:
    found = predict(PUBLISHED, Cell(traffic, interface, frame, functions))
    assert found is not None
    return found.name


def table(path: Path, *rows: str) -> Path:
    path.write_text("# a table\n" + ",".join(COLUMNS) + "\n" + "".join(f"{row}\n" for row in rows))
    return path


def advise(*words: str | Path, status: int = 0) -> str:
    done = CliRunner().invoke(app, ["advise", *map(str, words)])
    assert done.exit_code == status, done.output
    return done.output


def test_the_link_carries_what_ethernet_says() -> None:
    assert line_mpps(PUBLISHED, 64) == pytest.approx(40e3 / (84 * 8))


@pytest.mark.parametrize(
    ("frame", "written"),
    [
        (64, 60 + 24 + 24 + 38),
        (256, 252 + 24 + 24 + 38),
        (512, 508 + 2 * 24 + 24 + 38),
        (1518, 1514 + 6 * 24 + 3 * 24 + 38),
    ],
)
def test_a_frame_crosses_pcie_with_what_is_around_it(frame: int, written: int) -> None:
    assert pcie_ns(PUBLISHED, frame) == pytest.approx(8 * written / PUBLISHED["pcie_gbps"])
    assert direct_mpps(PUBLISHED, frame) == pytest.approx(1e3 / (PUBLISHED["direct_ns"] + pcie_ns(PUBLISHED, frame)))


def test_pcie_carries_no_more_than_its_link_leaves() -> None:
    link = PcieLink(8.0, 8, 8.0, 8, USUAL_PAYLOAD)
    assert PUBLISHED["pcie_gbps"] < link.effective_gbps * (USUAL_PAYLOAD + AROUND) / USUAL_PAYLOAD


@pytest.mark.parametrize(
    ("traffic", "interface", "frame", "functions", "words"),
    [
        ("north-south", "sr-iov", 64, 1, "the functions' cores"),
        ("north-south", "sr-iov", 64, 4, "the card's frame rate"),
        ("north-south", "sr-iov", 1518, 4, "the link"),
        ("east-west", "sr-iov", 256, 4, "the card's frame rate, twice for each hop"),
        ("east-west", "sr-iov", 1518, 4, "PCIe, which each hop crosses both ways"),
        ("north-south", "vhost-user", 64, 8, "the core that polls the card"),
        ("east-west", "vhost-user", 64, 8, "the cores that copy between functions"),
    ],
)
def test_the_bottleneck_is_the_published_one(
    traffic: Traffic, interface: Interface, frame: int, functions: int, words: str
) -> None:
    assert bound(traffic, interface, frame, functions) == words


def test_a_cell_that_a_machine_has_not_is_left_out() -> None:
    assert limits(PUBLISHED, Cell("east-west", "virtio", 64, 2)) == []
    assert limits(worker_machine("here", [(64, 10.0), (1518, 100.0)], "me"), Cell("north-south", "sr-iov", 64, 1)) == []


def test_parameters_that_made_a_table_are_found_again(tmp_path: Path) -> None:
    wanted = {"hop_ns": 150.0, "hop_byte_ns": 0.25}
    made = PUBLISHED.having(wanted)
    rows = []
    for frame in (64, 256, 1518):
        for functions in (2, 8):
            limit = predict(made, Cell("east-west", "vhost-user", frame, functions))
            assert limit is not None
            rows.append(f"east-west,vhost-user,{frame},{functions},1.0,{limit.mpps:.6f}")
    found = fit(PUBLISHED, read_table(table(tmp_path / "t.csv", *rows)), "a test", resamples=3)
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, rel=0.01)
        assert found.parameters[name].source == "a test"
    assert found["card_mpps"] == PUBLISHED["card_mpps"], "nothing in the table depends on it"


def test_a_fit_stays_within_what_a_file_may_have(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", "east-west,vhost-user,64,2,0,1e-8", "east-west,vhost-user,256,2,0,1e-8")
    mine = machine_file(tmp_path / "m.yaml", hop_ns=1e9, hop_byte_ns=1e9)
    assert "95th percentile" in advise("validate", path, "--machine", mine, "--leave-out")


def test_a_cell_within_its_rounding_is_right(tmp_path: Path) -> None:
    rows = read_table(table(tmp_path / "t.csv", "north-south,virtio,64,1,0.0,0.01", "stack-netperf,sr-iov,64,1,6.3,"))
    assert [row.error(value) for row, value in zip(rows, (0.0149, 6.26), strict=True)] == [0, 0]
    assert rows[0].error(0.03) == pytest.approx(2)
    (power,) = read_table(table(tmp_path / "t.csv", "north-south,virtio,64,1,,1.5e1"))
    assert (power.measured, power.error(15.4), power.error(16.5)) == (15, 0, pytest.approx(0.1))
    assert rows[1].measured == 6.3 and rows[1].predicted(1.0) == pytest.approx(0.512)


def test_a_cell_has_one_figure_at_least(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", "north-south,sr-iov,512,2,,9.4")
    (row,) = json.loads(advise("validate", path, "--json"))["rows"]
    assert (row["measured_gbps"], row["measured_mpps"], row["error"]) == (None, 9.4, 0)
    assert "9.4 Mpps" in advise("validate", path)
    said = advise("validate", table(path, "north-south,sr-iov,512,2,,"), status=2)
    assert "line 3: neither gbps nor mpps; expected one of them" in said


def test_a_table_has_so_many_cells_at_most(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", *["north-south,sr-iov,512,2,1,1"] * 2001)
    assert "2001 cells; expected no more than 2000" in advise("validate", path, status=2)


def test_an_interpolation_leaves_out_what_is_asked_for(tmp_path: Path) -> None:
    lines = [f"east-west,vhost-user,{frame},2,1,{mpps}" for frame, mpps in ((64, 8), (128, 99), (256, 2))]
    rows = read_table(table(tmp_path / "t.csv", *lines))
    assert interpolated(rows[1], rows) == pytest.approx(4)
    assert interpolated(rows[1], rows[:2]) is None


def test_rows_with_gbps_alone_are_compared_with_those_that_have_mpps(tmp_path: Path) -> None:
    """36.576 Gbit/s are 9 Mpps of 512 B; a cell that is there twice is no choice."""
    path = table(
        tmp_path / "t.csv",
        "north-south,sr-iov,512,2,36.576,", "north-south,vhost-user,512,2,,8.9",
        "north-south,sr-iov,512,4,,9", "north-south,sr-iov,512,8,,9",
        "east-west,sr-iov,64,2,,16", "east-west,sr-iov,64,2,,12",
    )  # fmt: skip
    rows = read_table(path)
    assert interpolated(rows[0], rows) == pytest.approx(36.576) and interpolated(rows[3], rows) == pytest.approx(9)
    assert json.loads(advise("validate", path, "--json"))["choices"] == 0


def test_stacks_of_several_guests_share_the_link_alone(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", *(f"stack-netperf,sr-iov,64,{guests},5,\n" for guests in (1, 2, 16)))
    one, two, many = json.loads(advise("validate", path, "--json"))["rows"]
    assert two["predicted_mpps"] == pytest.approx(2 * one["predicted_mpps"], rel=1e-3)
    assert many["bottleneck"] == "the link, as TCP uses it"
    assert [row["extrapolated"] for row in (one, two, many)] == [False, True, True]
    assert "Extrapolated: 2 stacks (calibrated: 1); 16 stacks" in advise("validate", path)
    (long,) = json.loads(advise("validate", table(path, "stack-netperf,sr-iov,16777216,1,39,"), "--json"))["rows"]
    assert long["predicted_mpps"] * 8 * 16777.216 == pytest.approx(PUBLISHED["stack_gbps"], rel=1e-4)


def test_errors_are_by_nearest_rank() -> None:
    assert (percentile([4, 1, 3, 2], 0.5), percentile([1.0], 0.95), percentile([], 0.95)) == (2, 1, 0)
    assert (middle([1, 2, 9]), middle([])) == (2, 0)


def test_a_chain_takes_more_of_the_card_with_each_function() -> None:
    (one,) = (each for each in answers(PUBLISHED, Chain(1, 1, 2), 64) if each.interface == "sr-iov")
    (two,) = (each for each in answers(PUBLISHED, Chain(2, 1, 2), 64) if each.interface == "sr-iov")
    assert two.mpps == pytest.approx(PUBLISHED["card_mpps"] / 3) and one.mpps > two.mpps
    assert [best.words for best in turning_points(PUBLISHED, Chain(8, 1, 2))][-1] == "vhost-user"


def test_a_hybrid_leaves_the_ends_to_the_card() -> None:
    """Its hops are one fewer than the functions; where the card has only that to do, it is as good as its middle."""
    worker = worker_machine("here", [(64, 40.0), (1518, 185.4)], "me").parameters
    machine = PUBLISHED.model_copy(update={"parameters": PUBLISHED.parameters | worker})
    of = {each.interface: each for each in answers(machine, Chain(3, 1, 2), 64)}
    assert of["hybrid"].mpps == pytest.approx(1e3 / (2 * 40)) and "2 hops" in of["hybrid"].bottleneck.name
    assert of["vhost-user"].mpps == pytest.approx(1e3 / (4 * 40))
    assert of["hybrid"].by_name["the card's frame rate"] == PUBLISHED["card_mpps"] and "PCIe" in of["hybrid"].by_name
    assert "hybrid" not in {each.interface for each in answers(machine, Chain(1, 1, 2), 64)}
    assert "hybrid" not in {each.interface for each in answers(machine, Chain(3, 1, 0), 64)}, "there is no card"


def with_switch(worker_ns: float) -> Machine:
    worker = worker_machine("here", [(64, worker_ns), (1518, worker_ns + 145.4)], "me").parameters
    return PUBLISHED.model_copy(update={"parameters": PUBLISHED.parameters | worker})


def test_hops_between_functions_are_the_cards_or_the_switchs_one_by_one() -> None:
    """One core of the switch serves all its hops, so a hop that the card takes off it makes the others faster."""
    of = {each.interface: each for each in answers(with_switch(52.0), Chain(4, 1, 2), 64)}
    assert (of["sr-iov"].mpps, of["vhost-user"].mpps) == (pytest.approx(33.76 / 7), pytest.approx(1e3 / (5 * 52)))
    assert of["hybrid"].mpps == pytest.approx(1e3 / (2 * 52)) and of["hybrid"].by_card == 1
    assert of["hybrid"].words == "hybrid, 1 of 3 inner hops by the card" and of["hybrid"].in_spec
    assert "2 hops" in of["hybrid"].bottleneck.name


def every_number_of_hops(machine: Machine, chain: Chain) -> list[float]:
    """What hybrids carry, by the number of inner hops that are the card's, each worked out by itself."""
    found = []
    for by_card in range(chain.functions - (1 if chain.ends == 2 else 0)):
        handled, hops = chain.ends / 2 + 2 * by_card, chain.functions - 1 - by_card + 2 - chain.ends
        card = [machine["card_mpps"] / handled, 1e3 / pcie_ns(machine, 64) / (chain.ends / 2 + by_card)]
        switch = [chain.workers * 1e3 / (hops * machine["worker_ns"])]
        found.append(min(*card, *switch, direct_mpps(machine, 64), line_mpps(machine, 64) * 2 / chain.ends))
    return found


@pytest.mark.parametrize("worker_ns", [5.0, 20.0, 52.0, 120.0, 400.0])
@pytest.mark.parametrize("functions", [1, 2, 3, 4, 5, 8, 24])
@pytest.mark.parametrize(("workers", "ends"), [(1, 2), (2, 2), (1, 1)])
def test_no_number_of_hops_by_the_card_is_better(worker_ns: float, functions: int, workers: int, ends: int) -> None:
    machine, chain = with_switch(worker_ns), Chain(functions, workers, ends)
    every = every_number_of_hops(machine, chain)
    hybrids = [each for each in assignments(machine, chain, 64) if each.interface == "hybrid"]
    if not every:
        assert not hybrids
        return
    assert hybrids[0].mpps == pytest.approx(max(every))
    # In a spec each function has a port at the switch: of hops in a row, an end's among them, every other is a card's.
    positions = range(2 if ends else 1, functions - (1 if ends == 2 else 0))
    sayable = every[: len(positions[::2]) + 1]
    assert max(each.mpps for each in hybrids if each.in_spec) == pytest.approx(max(sayable))
    assert all(each.in_spec == (each.by_card < len(sayable)) for each in hybrids)


def test_two_links_carry_twice_as_much() -> None:
    one, two = (answers(with_switch(5.0), Chain(1, 4, 2, links=links), 1518)[0].by_name for links in (1, 2))
    assert two["the 2 links"] == pytest.approx(2 * one["the link"])


def test_what_is_chosen_is_a_line_for_each_kind() -> None:
    """Not one for each number of hops, of which a long chain has many."""
    few, more, *_ = turning_points(with_switch(52.0), Chain(200, 1, 2))
    assert (few.frames[0], few.answer.in_spec) == (64, True) and re.fullmatch(
        r"hybrid, \d+ to 99 of 199 inner hops by the card", few.words
    )
    assert more.frames[0] == few.frames[1] + 1 and not more.answer.in_spec and more.by_card[0] == 100


def test_what_chains_share_is_divided_among_them() -> None:
    alone, shared = Chain(2, 1, 2), Chain(2, 1, 2, beside=3, on_card=2)
    for interface, parts in (("sr-iov", 2), ("vhost-user", 3)):
        one, other = (
            next(each for each in answers(with_switch(52.0), chain, 64) if each.interface == interface)
            for chain in (alone, shared)
        )
        assert other.mpps == pytest.approx(one.mpps / parts)
        assert other.bottleneck.name == f"{one.bottleneck.name}, shared by {parts} chains"


def test_the_ends_of_a_spec_say_what_is_on_a_card(tmp_path: Path) -> None:
    text = """
ports: {wan: {vf: ens1f0/0}, lan: {vf: ens1f0/1}, lacp: {bond: {members: [ens2f0, ens1f0]}}, guest: {}}
functions:
  a: skeleton
  b: skeleton
  c: skeleton
  d: skeleton
  e: skeleton
  first: {kind: skeleton, interface: [{passthrough: ens3f0/0}, vhost-user]}
  last: {kind: skeleton, interface: [vhost-user, {passthrough: ens3f0/1}]}
chains:
  north: [wan, a, lan]
  far: [{if: ens5f0}, e, {if: ens6f0}]
  half: [lacp, b, tester.a]
  none: [guest, c, tester.b]
  hybrid: [first.1, d, last.0]
"""
    (tmp_path / "s.yaml").write_text(text)
    found = chains_of(load_spec(tmp_path / "s.yaml"))
    assert found == {
        "north": Chain(1, 1, 2, beside=5, on_card=2),
        "far": Chain(1, 1, 2, beside=5, links=2),
        "half": Chain(1, 1, 1, beside=5, on_card=2),
        "none": Chain(1, 1, 0, beside=5, on_card=1),
        "hybrid": Chain(3, 1, 2, beside=5, on_card=1),
    }
    assert chains_of(load_spec(tmp_path / "s.yaml"), on_card=True)["hybrid"] == Chain(3, 1, 2, beside=5, on_card=5)
    said = advise(tmp_path / "s.yaml", "--frames", "64")
    assert said.count("No end of it is a port of a card") == 1
    assert "frame rate, shared by 5 chains" in advise(tmp_path / "s.yaml", "--frames", "64", "--on-card")


def test_replicas_and_cpus_of_a_function_add_up_behind_the_switch(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "functions:\n"
        "  a: {kind: skeleton, cpus: {start: 1, most: 8, automatic: true}}\n"
        "  b: {kind: skeleton, cpus: 3, replicas: {1: active, 2: active, 3: standby, 4: draining}}\n"
        "  c: {kind: skeleton, runs: machine, cpus: 2}\n"
        "  d: {kind: skeleton, replicas: 3}\n"
        "chains:\n"
        "  many: [tester.a, a, b, tester.b]\n"
        "  one: [{if: e0}, c, {if: e1}]\n"
        "  x: {path: [{if: e2}, d, {if: e3}], match: [{vlan: 5}]}\n"
        "  y: [{if: e2}, d, {if: e3}]\n"
    )
    found = chains_of(load_spec(spec))
    assert {name: (each.cores, each.in_function) for name, each in found.items()} == {
        "many": (6, 1), "one": (1, 1), "x": (3, 2), "y": (3, 2),
    }  # fmt: skip
    here = worker_machine("here", [(64, 0.1), (1518, 0.2)], "me", [(64, 100.0), (1518, 200.0)])
    for name, mpps in (("many", 60), ("one", 10), ("x", 15)):
        assert answers(here, found[name], 64)[0].mpps == pytest.approx(mpps)
    assert answers(here, found["x"], 64)[0].bottleneck.name == "the functions' cores, 3 of each, shared by 2 chains"
    pair, wide = (Chain(2, 1, ends=2, cores=cores) for cores in (1, 4))
    for frame in (64, 1518):
        one, four = ({each.interface: each.by_name for each in answers(PUBLISHED, of, frame)} for of in (pair, wide))
        assert one["sr-iov"] == four["sr-iov"]
        hop = "the cores that copy between functions"
        assert four["vhost-user"][f"{hop}, 4 of each"] == pytest.approx(4 * one["vhost-user"][hop])
    assert "many, 2 functions, of 6 CPUs behind the switch" in advise(spec)


def test_a_function_with_replicas_has_no_device_to_itself(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    for replicas, in_spec in ((1, True), (3, False)):
        of = f"functions: {{a: {{kind: skeleton, cpus: 9}}, b: {{kind: skeleton, cpus: 9, replicas: {replicas}}}}}\n"
        spec.write_text(of + "chains: {c: [{if: e0}, a, b, {if: e1}]}\n")
        (chain,) = json.loads(advise(spec, "--frames", "64", "--json"))["chains"]
        hybrid = next(row for row in chain["rows"] if row["interface"] == "hybrid")
        assert hybrid["in_spec"] == in_spec and chain["recommended"][0]["interface"] == "hybrid"
    said = advise(spec, "--frames", "64")
    assert "A spec cannot say that, because a virtual function is one replica's" in said
    assert "Of what it can say the best is vhost-user" in said


def test_tailraces_switch_takes_a_hop_more_than_there_are_functions() -> None:
    here = worker_machine("here", [(64, 20.0), (1518, 165.4)], "me")
    (answer,) = answers(here, Chain(2, 2, 0), 64)
    assert answer.mpps == pytest.approx(2 * 1e3 / (3 * 20)) and "2 cores, 3 hops" in answer.bottleneck.name
    assert here["worker_byte_ns"] == pytest.approx(0.1)


def test_a_machine_is_read_as_it_was_shown(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(show_machine(PUBLISHED))
    assert read_machine(tmp_path / "m.yaml") == PUBLISHED
    assert set(PUBLISHED.parameters) <= set(PARAMETERS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{name: x, parameters: {hop_ns: {value: -1, source: me}}}", "not the parameters of a machine"),
        ("{name: x, parameters: {hops: {value: 1, source: me}}}", "unknown parameters hops"),
        ("[", "not the parameters of a machine"),
        ("hello", "not the parameters of a machine .a single value.; expected name"),
        ("", "nothing is in it.; expected name"),
        ("[1]", "a list.; expected name"),
        ("{functions: {}, chains: {}}", "lacks name, lacks parameters, unknown key functions, unknown key chains; exp"),
        ("{name: x, parameters: {worker_ns: 52}}", "parameters.worker_ns: expected value and source"),
        ("{name: x, parameters: {worker_ns: {value: 1e99, source: me}}}", r"value is '1e\+99': expected less"),
        ("{name: x, parameters: {worker_ns: {value: true, source: me}}}", "value is 'True': expected a valid"),
        ("{name: x, parameters: {worker_ns: {value: '52', source: me}}}", "value is '52': expected a valid"),
        ("{name: x, calibrated: {frames: [true, 64]}, parameters: {}}", "frames.0 is 'True': expected a valid integer"),
        ("{name: x, name: y, parameters: {}}", "'name' is used twice; expected each key once"),
        ("{name: x, calibrated: {frames: [9, 1]}, parameters: {}}", "9 to 1; expected the least, then the most"),
        ("name: 2026-99-99", "not the parameters of a machine: lacks parameters"),
        ("[" * 5000, "not the parameters of a machine .nested too deeply"),
    ],
)
def test_a_bad_machine_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "m.yaml").write_text(text)
    with pytest.raises(Mistake, match=words):
        read_machine(tmp_path / "m.yaml")


def machine_file(path: Path, **values: float) -> Path:
    """As somebody writes it by hand."""
    parameters = {name: {"value": value, "source": "me"} for name, value in values.items()}
    path.write_text(json.dumps({"name": "mine", "parameters": parameters}))
    return path


CARD = {"card_mpps": 33.0, "line_gbps": 40.0, "pcie_gbps": 51.0, "direct_ns": 26.0}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "vhost-user worker_ns, worker_byte_ns"),
        ({"worker_ns": 50.0}, "vhost-user worker_byte_ns"),
        ({"poller_ns": 70.0}, "vhost-user worker_ns, worker_byte_ns"),
        ({"line_gbps": 40.0}, "sr-iov card_mpps, direct_ns, pcie_gbps; or for hybrid"),
        ({"card_mpps": 33.0, "line_gbps": 40.0}, "sr-iov direct_ns, pcie_gbps; or for hybrid"),
        ({"vhost_ns": 141.0, "vhost_byte_ns": 0.06}, "vhost-user hop_ns, hop_byte_ns, poller_ns"),
    ],
)
def test_a_file_that_says_too_little_is_refused_with_what_it_lacks(
    tmp_path: Path, values: dict[str, float], words: str
) -> None:
    mine = machine_file(tmp_path / "m.yaml", **values)
    said = advise(REPOSITORY / "examples/chain-of-two.yaml", "--on-card", "--machine", mine, status=2)
    assert "too few parameters for any answer" in said and words in said


def test_what_a_file_says_is_answered_and_what_it_lacks_named(tmp_path: Path) -> None:
    spec, mine, chart = REPOSITORY / "examples/chain-of-two.yaml", tmp_path / "m.yaml", tmp_path / "c.svg"
    machine_file(mine, **CARD)
    said = advise(spec, "--on-card", "--machine", mine, "--chart", chart)
    assert "Choose sr-iov" in said and "Of what it can say nothing is known." in said
    assert "No answer for vhost-user: the machine's parameters lack worker_ns, worker_byte_ns." in said
    machine_file(mine, worker_ns=50, worker_byte_ns=0.1, function_ns=40, poller_ns=70)
    said = advise(spec, "--machine", mine, "--chart", chart)
    assert "Choose vhost-user" in said and "No answer" not in said
    assert "Without the limit of the functions' cores: the machine's parameters lack function_byte_ns." in said
    machine_file(mine, vhost_ns=141, vhost_byte_ns=0.06, hop_ns=191, hop_byte_ns=0.2)
    (chain,) = json.loads(advise(spec, "--machine", mine, "--json"))["chains"]
    assert {row["interface"] for row in chain["rows"]} == {"vhost-user"} and not chain["missing"]
    named = advise("chains", tmp_path / "none.json", "--machine", mine, status=2)
    assert "says nothing of Tailrace's switch, without worker_ns, worker_byte_ns" in named


def test_all_that_is_wrong_with_a_table_is_said(tmp_path: Path) -> None:
    bad = (
        "north-south,virtio,64,1,1,1_0",
        "north-south,virtio,64,1,\u0661,1",
        "up-down,virtio,64,1,1,1",
        "north-south,virtio,63,1,1,1",
        "north-south,virtio,64,1,nan,1",
        "north-south",
    )
    with pytest.raises(Mistake) as caught:
        read_table(table(tmp_path / "t.csv", *bad))
    said = str(caught.value)
    assert all(f"line {number}: " in said for number in range(3, 9)) and "frame_bytes '63'" in said
    with pytest.raises(Mistake, match=r"line 3: 200000 characters.* line 4: ") as caught:
        read_table(table(tmp_path / "t.csv", "9" * 200_000, "a\0", *["x"] * 30))
    assert "; and 12 more" in str(caught.value)
    for text in ("", "a,b\n", ",".join(COLUMNS)):
        (tmp_path / "t.csv").write_text(text)
        with pytest.raises(Mistake):
            read_table(tmp_path / "t.csv")


def test_the_first_line_of_a_table_is_read_as_the_others_are(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    cell = ("north-south", "sr-iov", "512", "2", "", "9.4")
    for form in ("{}", '"{}"', ' "{}" '):
        path.write_text("\n".join(",".join(map(form.format, words)) for words in (COLUMNS, cell)))
        assert [(row.cell.frame, row.mpps) for row in read_table(path)] == [(512, 9.4)]
    for columns, words in (
        (COLUMNS[:4], "its first line lacks gbps, mpps"),
        ((*COLUMNS, "note"), "its first line has note besides"),
        (COLUMNS[::-1], "its first line has them in another order"),
    ):
        path.write_text(",".join(columns))
        with pytest.raises(Mistake, match=words):
            read_table(path)


def test_the_command_advises_on_a_spec() -> None:
    spec = REPOSITORY / "examples/chain-of-two.yaml"
    said = advise(spec, "--on-card")
    assert "Choose sr-iov: at 64 B it carries 11.3 Mpps, and vhost-user 5.22, bounded by the cores" in said
    assert re.search(
        r"^From frames of \d+ B on choose vhost-user: at .*, and sr-iov .*, bounded by PCIe", said, re.MULTILINE
    )
    assert "the card's frame rate, 3 for each frame" in said
    assert "A spec cannot say that, because each function has a port at the switch; `measure matrix" in said
    assert "Of what it can say the best is vhost-user: 5.22 Mpps at 64 B." in said
    (chain,) = json.loads(advise(spec, "--on-card", "--frames", "512", "--json"))["chains"]
    assert {row["interface"] for row in chain["rows"]} == {"vhost-user", "sr-iov", "hybrid"}
    assert {row["frame_bytes"] for row in chain["rows"]} == {512}
    assert chain["rows"][0]["predicted_mpps"] > chain["rows"][1]["predicted_mpps"]


def test_the_command_validates_a_table(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", "east-west,vhost-user,64,2,4.99,10.36", "east-west,virtio,64,2,1,1")
    found = json.loads(advise("validate", path, "--json"))
    (row,) = found["rows"]
    assert row["error"] < 0.05 and found["left_out"] == 1 and row["bottleneck"].startswith("the cores that copy")
    said = advise("validate", path, "--calibrate", path)
    assert "note: fits to t.csv" in said and "Error: median" in said


def test_rows_without_a_prediction_are_counted_with_the_reason(tmp_path: Path) -> None:
    lines = ["east-west,virtio,64,2,1,1", "east-west,virtio,64,4,1,1", "north-south,sr-iov,64,1,1,1"]
    path = table(tmp_path / "t.csv", *lines, "east-west,vhost-user,64,2,4.99,10.36")
    mine = machine_file(tmp_path / "m.yaml", hop_ns=190, hop_byte_ns=0.1, card_mpps=30)
    said = advise("validate", path, "--machine", mine)
    assert "Left out: 2 rows. The model has nothing for east-west by virtio." in said
    assert "Left out: 1 row. North-south by sr-iov: the machine lacks direct_ns, pcie_gbps, line_gbps." in said
    found = json.loads(advise("validate", path, "--machine", mine, "--json"))
    assert found["left_out"] == 3 and [each["rows"] for each in found["why_left_out"]] == [2, 1]
    assert len(found["rows"]) == 1
    said = advise("validate", table(tmp_path / "v.csv", *lines[:2]))
    assert "Nothing of this table can be predicted.\nLeft out: 2 rows." in said


def test_an_interval_leaves_out_as_many_below_as_above(tmp_path: Path) -> None:
    """With cells of 10 % noise, made by 200 ns a hop: what made them is inside, and the ends are not the extremes."""
    assert _middle_95([float(number) for number in range(200)]) == (5.0, 194.0)
    assert _middle_95([3.0]) == (3.0, 3.0)
    rows = [f"east-west,vhost-user,64,{n},1.0,{n * 5 * (0.9 if n % 2 else 1.1):.4f}" for n in range(2, 12)]
    fitted = fit(PUBLISHED, read_table(table(tmp_path / "t.csv", *rows)), "a test").parameters["hop_ns"]
    assert fitted.low is not None and fitted.high is not None
    assert fitted.low < 200 < fitted.high and fitted.low < fitted.value < fitted.high


def test_the_best_interface_is_counted_where_it_stands_out(tmp_path: Path) -> None:
    rows = [
        "east-west,sr-iov,64,2,1,16.9", "east-west,vhost-user,64,2,1,10.4", "east-west,sr-iov,64,8,1,20",
        "east-west,vhost-user,64,8,1,19.5", "east-west,sr-iov,1518,8,1,9", "east-west,vhost-user,1518,8,1,3",
    ]  # fmt: skip
    said = advise("validate", table(tmp_path / "t.csv", *rows))
    assert "Best interface: right 1 of 2 times" in said, "the second has no gap; the third is not as the model has it"


def made_table(path: Path, machine: Machine) -> Path:
    """What such a machine would have had measured, with four digits."""
    rows = []
    for interface in ("vhost-user", "sr-iov"):
        for frame in (64, 256, 1518):
            for functions in (2, 4, 8):
                limit = predict(machine, Cell("east-west", interface, frame, functions))  # type: ignore[arg-type]
                assert limit is not None
                rows.append(f"east-west,{interface},{frame},{functions},1.0,{limit.mpps:.4f}")
    return table(path, *rows)


def test_cells_that_are_left_out_are_predicted_by_the_others(tmp_path: Path) -> None:
    """With the very model that has made them, those between others are right; none of theirs is used for it."""
    path = made_table(tmp_path / "t.csv", PUBLISHED.having({"hop_ns": 250.0, "card_mpps": 30.0}))
    found = json.loads(advise("validate", path, "--leave-out", "--json"))
    assert [each["left_out"] for each in found["groups"]] == [
        "64 B", "256 B", "1518 B", "2 functions", "4 functions", "8 functions"
    ]  # fmt: skip
    assert all(each["cells"] == 6 for each in found["groups"])
    assert found["between"]["p95_error"] < 0.01
    both = found["both"]
    assert both["cells"] == 36 and both["median_error"] < both["interpolation_median_error"]
    assert both["model_nearer"] + both["interpolation_nearer"] <= 36
    said = advise("validate", path, "--leave-out")
    assert "Cells that lie between others: median 0." in said
    assert "expected no --calibrate" in advise("validate", path, "--leave-out", "--calibrate", path, status=2)
    one = table(tmp_path / "one.csv", "east-west,sr-iov,64,2,1,16.9")
    assert "expected others to fit to" in advise("validate", one, "--leave-out", status=2)


def test_the_core_that_polls_slows_down_once_its_cache_is_full() -> None:
    """Up to there it is of no matter how many functions there are."""
    few, more, many = (poller(PUBLISHED, 64, guests).mpps for guests in (1, 2, 8))
    assert few == more > many
    assert poller(PUBLISHED.having({"poller_cache_kib": 1e6}), 64, 8).mpps == few
    assert many > 1e3 / (PUBLISHED["poller_ns"] + PUBLISHED["poller_miss_ns"])


def test_memory_bounds_what_is_copied() -> None:
    """Two copies of each hop east/west; one by Tailrace's switch, which has a hop more than there are functions."""
    slow = {"memory_gbps": 80.0}
    found = predict(PUBLISHED.having(slow), Cell("east-west", "vhost-user", 1518, 8))
    assert found is not None and found.name == "memory, 4 touches of each byte"
    assert found.mpps == pytest.approx(80e3 / (4 * 8 * 1514))
    here = worker_machine("here", [(64, 10.0), (1518, 20.0)], "me")
    here = here.model_copy(
        update={"parameters": {**here.parameters, "memory_gbps": PUBLISHED.parameters["memory_gbps"]}}
    )
    (answer,) = answers(here.having(slow), Chain(2, 4, 0), 1518)
    assert answer.bottleneck.name == "memory, 6 touches of each byte"


def test_what_is_extrapolated_is_said(tmp_path: Path) -> None:
    spec = tmp_path / "s.yaml"
    names = [f"f{number}" for number in range(9)]
    spec.write_text(
        json.dumps({"functions": dict.fromkeys(names, "skeleton"), "chains": {"c": ["tester.a", *names, "tester.b"]}})
    )
    said = advise(spec, "--frames", "64,9000")
    outside = ["9 functions (calibrated: 1 to 8)", "frames of 9000 B (calibrated: 64 to 1518 B)"]
    assert f"Extrapolated: {'; '.join(outside)}." in said
    (chain,) = json.loads(advise(spec, "--frames", "64,9000", "--json"))["chains"]
    assert chain["beyond"] == outside and all(row["extrapolated"] for row in chain["rows"])
    assert "Extrapolated" not in advise(REPOSITORY / "examples/chain.yaml")
    messages = table(tmp_path / "t.csv", "stack-netperf,sr-iov,65536,1,38,", "north-south,sr-iov,64,9,16.2,33.8")
    found = json.loads(advise("validate", messages, "--json"))
    assert [row["extrapolated"] for row in found["rows"]] == [False, True] and len(found["beyond"]) == 1
    assert found["interpolation_median_error"] is None, "two cells alone surround nothing"
    assert "an interpolation unknown" in advise("validate", messages)
    fitted = fit(PUBLISHED, read_table(messages), "a test", resamples=0).calibrated
    assert (fitted.frames, fitted.messages, fitted.functions) == ((64, 64), (65536, 65536), (9, 9))


def test_a_short_message_takes_no_less_than_the_shortest_frame(tmp_path: Path) -> None:
    of = {"stack_gbps": 40, "stack_direct_ns": 6.3, "stack_direct_byte_ns": 0.1}
    machine = machine_file(tmp_path / "m.yaml", **of)
    path = table(tmp_path / "t.csv", *(f"stack-netperf,sr-iov,{size},1,0.1," for size in (1, 2, 64)))
    rows = json.loads(advise("validate", path, "--machine", machine, "--json"))["rows"]
    assert [row["predicted_mpps"] for row in rows[:2]] == [158.73, 158.73] and rows[2]["predicted_mpps"] == 78.125


def test_a_table_says_nothing_of_what_is_not_in_it(tmp_path: Path) -> None:
    """What a fit leaves as it was is good for what it was good for."""
    rows = read_table(table(tmp_path / "t.csv", "north-south,sr-iov,512,3,,9", "east-west,virtio,9000,9,,1"))
    found = fit(PUBLISHED, rows, "me", resamples=0).calibrated
    assert (found.frames, found.functions) == ((512, 512), (3, 3))
    assert (found.messages, found.stacks) == (PUBLISHED.calibrated.messages, (1, 1))
    assert found.beyond(512, 1) == ["1 function (calibrated: 3)"]
    nothing = fit(PUBLISHED, rows[1:], "me", resamples=0)
    assert nothing.calibrated == PUBLISHED.calibrated
    said = json.loads(advise("validate", table(tmp_path / "t.csv", "east-west,virtio,64,2,,1"), "--json"))
    assert not said["rows"] and said["median_error"] is None and said["p95_error"] is None


def test_the_command_calibrates_from_hops(tmp_path: Path) -> None:
    for frame, mpps in ((64, 20.0), (1518, 5.0)):
        pairs = [{"tailrace": {"busy": 1.0, "mpps": mpps}}]
        document = {"bench": "hop", "frame": frame, "pairs": pairs, "machine": {"cpu": "a CPU"}}
        (tmp_path / f"{frame}.json").write_text(json.dumps(document))
    made = tmp_path / "here.yaml"
    advise("calibrate", tmp_path / "64.json", tmp_path / "1518.json", "-o", made)
    assert read_machine(made)["worker_ns"] == pytest.approx(50)
    said = advise(REPOSITORY / "examples/chain.yaml", "--machine", made)
    assert "a CPU, Tailrace" in said and "2 hops for each frame" in said
    assert "two sizes" in advise("calibrate", tmp_path / "64.json", "-o", made, status=2)
    (tmp_path / "64.json").write_text("{}")
    assert "expected a result" in advise("calibrate", tmp_path / "64.json", "-o", made, status=2)


def test_of_several_results_of_one_size_each_counts_once(tmp_path: Path) -> None:
    long = bench(tmp_path / "1518.json", "hop", 5.0, 1.0, frame=1518)
    fast, slow = (bench(tmp_path / f"{busy}.json", "hop", 10.0, busy, frame=64) for busy in (0.2, 0.4))
    made = tmp_path / "here.yaml"
    said = advise("calibrate", fast, slow, tmp_path / "." / "0.2.json", long, "-o", made)
    assert read_machine(made)["worker_ns"] == pytest.approx(30), "20 and 40 ns"
    assert "bytes not measured, by frames of 64 B" in said
    assert "two sizes" in advise("calibrate", fast, slow, "-o", made, status=2)


@pytest.mark.parametrize(
    ("changes", "side", "words"),
    [
        ({}, {"mpps": float("nan")}, "mpps nan is not from"),
        ({}, {"mpps": -3}, "mpps -3 is not from"),
        ({}, {"mpps": float("inf")}, "mpps inf is not from"),
        ({}, {"busy": 0}, "busy 0 is not from"),
        ({"frame": 0}, {}, "frame 0 is not from 64 to 9000"),
        ({"frame": 10**30}, {}, "is not from 64 to 9000"),
        ({"frame": 10**400}, {}, "is not from 64 to 9000"),
        ({"frame": "64"}, {}, "frame 64 is not from"),
    ],
)
def test_figures_that_no_benchmark_finds_are_refused(
    tmp_path: Path, changes: dict[str, Any], side: dict[str, Any], words: str
) -> None:
    good, bad, here = tmp_path / "good.json", tmp_path / "bad.json", tmp_path / "here.yaml"
    bench(good, "hop", 5.0, 0.8, frame=1518)
    for command in ("hop", "chain"):
        bench(bad, command, 20.0, 0.5, **{"frame": 64, "functions": 2, **changes})
        document = json.loads(bad.read_text())
        for pair in document["pairs"]:
            pair["tailrace"].update(side)
        bad.write_text(json.dumps(document))
        machine_file(here, worker_ns=50, worker_byte_ns=0.1)
        rest = ("calibrate", good, bad, "-o", here) if command == "hop" else ("chains", bad, "--machine", here)
        said = advise(*rest, status=2)
        assert words in said and f"expected a result of `tailrace bench {command} --json`" in said


def test_a_chain_has_functions(tmp_path: Path) -> None:
    machine_file(tmp_path / "m.yaml", worker_ns=50, worker_byte_ns=0.1)
    for more, words in (({"functions": -4}, "functions -4 is not from 1 to"), ({}, "it has no functions")):
        bad = bench(tmp_path / "c.json", "chain", 20.0, 0.5, frame=64, **more)
        assert words in advise("chains", bad, "--machine", tmp_path / "m.yaml", status=2)


def bench(path: Path, command: str, mpps: float, busy: float, **more: Any) -> Path:
    sides = [{"tailrace": {"busy": busy, "mpps": mpps * off}} for off in (0.9, 1.0, 1.2)]
    path.write_text(json.dumps({"bench": command, "pairs": sides, "machine": {"cpu": "a CPU"}, **more}))
    return path


def test_chains_are_compared_with_what_one_hop_predicts(tmp_path: Path) -> None:
    hops = [
        bench(tmp_path / "64.json", "hop", 20.0, 0.5, frame=64),
        bench(tmp_path / "1518.json", "hop", 5.0, 0.8, frame=1518),
    ]
    here = tmp_path / "here.yaml"
    assert "Functions: 50 ns a frame, 0.103 ns for each byte, by frames of 64, 1518 B." in advise(
        "calibrate", *hops, "-o", here
    )
    assert read_machine(here)["worker_ns"] == pytest.approx(25)
    of = [bench(tmp_path / f"c{n}.json", "chain", mpps, 0.6, frame=64, functions=n) for n, mpps in ((1, 21.0), (8, 16))]
    found = json.loads(advise("chains", *of, "--machine", here, "--json"))
    assert [(row["functions"], row["measured_mpps"], row["predicted_mpps"]) for row in found["rows"]] == [
        (1, 21.0, 20.0), (8, 16.0, 20.0),
    ]  # fmt: skip
    assert found["largest_error"] == pytest.approx(0.25)
    said = advise("chains", *of, "--machine", here)
    assert "Largest error: 25.0 %." in said and "the core that the functions share" in said
    assert "expected a result of `tailrace bench chain --json`" in advise(
        "chains", hops[0], "--machine", here, status=2
    )
    bench(hops[1], "hop", 5.0, 1.0, frame=1518)
    said = advise("calibrate", *hops, "-o", here)
    assert "bytes not measured, by frames of 64 B" in said and "no more than 200 ns at 1518 B" in said
    assert read_machine(here)["function_ns"] == pytest.approx(50), "of the size at which they were the limit"
    sources = {name: each.source for name, each in read_machine(here).parameters.items()}
    assert sources["worker_ns"] == "bench hop, frames of 64, 1518 B"
    assert sources["function_ns"] == (
        "bench hop, frames of 64 B; no more than at frames of 1518 B, where the switch was the limit"
    )
    assert sources["function_byte_ns"].startswith("not measured")
    bench(hops[0], "hop", 20.0, 1.0, frame=64)
    advise("calibrate", *hops, "-o", here)
    assert "function_ns" not in read_machine(here), "the switch was the limit: nothing is known of the functions"
    (tmp_path / "other.yaml").write_text(show_machine(PUBLISHED))
    assert "says nothing of Tailrace's switch" in advise("chains", *of, "--machine", tmp_path / "other.yaml", status=2)


def test_a_size_that_the_switch_bounds_is_a_bound_for_the_functions_alone() -> None:
    """Two sizes say 50 ns and 0.1 ns a byte; a longer frame, of which the switch was the limit, took less."""
    hops = [(64, 10.0), (1518, 20.0)]
    free = worker_machine("here", hops, "me", [(64, 50.0), (564, 100.0)], [(1564, 900.0)])
    assert (free["function_ns"], free["function_byte_ns"]) == (pytest.approx(50), pytest.approx(0.1))
    bounded = worker_machine("here", hops, "me", [(64, 50.0), (564, 100.0)], [(1564, 140.0)])
    assert (bounded["function_ns"], bounded["function_byte_ns"]) == (pytest.approx(50), pytest.approx(0.06))


def test_each_distance_of_the_cores_is_a_machine_of_its_own(tmp_path: Path) -> None:
    """Far from each other, a frame takes three times as long; results have pairs of either."""

    def both(path: Path, command: str, near: float, far: float, **more: Any) -> Path:
        bench(path, command, near, 0.5, **more)
        document = json.loads(path.read_text())
        for pair in document["pairs"]:
            pair["distance"] = "near"
        others = [{"tailrace": {"busy": 0.5, "mpps": far}, "distance": "far"}]
        path.write_text(json.dumps({**document, "others": {"far": {"pairs": others}}}))
        return path

    hops = [both(tmp_path / f"{size}.json", "hop", 20.0, 8.0, frame=size) for size in (64, 1518)]
    of = both(tmp_path / "c4.json", "chain", 21.0, 8.4, frame=64, functions=4)
    machines = []
    for which in ("near", "far"):
        machines.append(tmp_path / f"{which}.yaml")
        assert f"its cores {which}" in advise("calibrate", *hops, "-o", machines[-1], "--distance", which)
    assert "its cores near" in advise("calibrate", *hops, "-o", tmp_path / "most.yaml")
    found = json.loads(advise("chains", of, "--machine", machines[0], "--machine", machines[1], "--json"))
    assert [(row["distance"], row["measured_mpps"], row["predicted_mpps"]) for row in found["rows"]] == [
        ("near", 21.0, 20.0), ("far", 8.4, 8.0),
    ]  # fmt: skip
    assert found["left_out"] == 0
    silent = tmp_path / "silent.yaml"
    silent.write_text("".join(line for line in machines[1].read_text().splitlines(True) if "distance" not in line))
    named = [word for each in (silent, *machines) for word in ("--machine", each)]
    again = json.loads(advise("chains", of, *named, "--json"))
    assert again["rows"] == found["rows"]  # one that says no distance stands behind those that do
    assert "Left out: 1 of another distance" in advise("chains", of, "--machine", machines[1])
    assert "(near: 64 B; far: 64 B)" in advise("calibrate", hops[0], "-o", tmp_path / "x", status=2)
    assert "expected siblings, near, far" in advise(
        "calibrate", *hops, "-o", tmp_path / "x", "--distance", "1", status=2
    )


def test_a_function_bounds_what_passes_through_it() -> None:
    here = worker_machine("here", [(64, 10.0), (1518, 20.0)], "me", [(64, 50.0), (1518, 80.0)])
    (answer,) = answers(here, Chain(1, 1, 0), 64)
    assert answer.bottleneck.name == "the functions' cores" and answer.mpps == pytest.approx(20)


@pytest.mark.parametrize("words", ["63", "64,", "9001", "imax", "6_4", "9" * 5000])
def test_frames_that_are_none_are_refused(words: str) -> None:
    assert f"--frames {words}" in advise(REPOSITORY / "examples/chain.yaml", "--frames", words, status=2)


def test_a_mix_takes_the_time_of_its_sizes() -> None:
    here = worker_machine("here", [(64, 20.0), (1518, 165.4)], "me")
    (answer,) = answers(here, Chain(1, 1, 0), "imix")
    times = [20.0, 20 + 0.1 * (570 - 64), 165.4]
    assert answer.mpps == pytest.approx(1e3 / (2 * (7 * times[0] + 4 * times[1] + times[2]) / 12))
    every = {each.interface: each for each in answers(PUBLISHED, Chain(3, 1, 2), "imix")}
    assert set(every) == {"vhost-user", "sr-iov", "hybrid"}
    rows = json.loads(advise(REPOSITORY / "examples/chain.yaml", "--frames", "imix,64", "--json"))["chains"][0]["rows"]
    assert [(row["frames"], row["frame_bytes"]) for row in rows] == [("imix", 353.8), (64, 64)]


def test_the_frames_of_a_specs_tests_are_those_that_are_asked_for(tmp_path: Path) -> None:
    def asked(spec: Path) -> list[Any]:
        (chain,) = json.loads(advise(spec, "--json"))["chains"]
        return [row["frames"] for row in chain["rows"]]

    assert asked(REPOSITORY / "examples/chain.yaml") == [64, 256, "imix", 1518]
    text = "functions: {a: skeleton}\nchains: {c: [tester.a, a, tester.b]}\n"
    (tmp_path / "s.yaml").write_text(text)
    assert asked(tmp_path / "s.yaml") == [64, 256, 1518]
    (tmp_path / "s.yaml").write_text(text + "tests: [{latency: {frames: 512}}, {soak: {frames: [imix]}}]\n")
    assert asked(tmp_path / "s.yaml") == [512, "imix"]


def test_the_shipped_machine_is_whole() -> None:
    assert isinstance(PUBLISHED, Machine) and all(value.source for value in PUBLISHED.parameters.values())
    rows = [("north-south", "sr-iov"), ("east-west", "vhost-user"), ("stack-netperf", "virtio")]
    assert all(limits(PUBLISHED, Cell(traffic, interface, 256, 2)) for traffic, interface in rows)  # type: ignore[arg-type]
    assert check(PUBLISHED, []) == []


def throughput(runs: Path, found: dict[str, tuple[int, float, str]], **changes: Any) -> Path:
    """A run of `measure throughput`: by name the frame's size, the rate of each direction, and what limited it."""
    spec = "functions: {first: skeleton}\nchains: {voice: [tester.a, first, tester.b]}\n"
    arguments: dict[str, Any] = {
        "spec": spec,
        "host": {},
        "command": ["tailrace"],
        "versions": {},
        "fabric": "tailrace",
    }
    with RunFolder.create(runs, "throughput", **{**arguments, **changes}) as folder:
        for name, (frame, pps, limit) in found.items():
            goal = {"loss_ratio": 0, "pps": pps, "upper_pps": None, "gbps_l1": 1, "gbps_l2": 1, "limit": limit}
            search = {
                "name": name, "profile": str(frame), "functions": 1, "valid": True, "reason": None, "goals": [goal],
                "search": "mlrsearch", "precision": 0.01, "trials": [],
            }  # fmt: skip
            folder.add_finding(ThroughputFinding.model_validate(search))
    return folder.path


def test_a_machine_learns_from_what_was_measured(tmp_path: Path) -> None:
    # 20 ns a hop, and 0.1 ns for each byte beyond 64: two hops a frame, two directions.
    run = throughput(tmp_path, {"a": (64, 12.5e6, "loss"), "b": (564, 1e9 / 280, "refused"), "c": (64, 1.0, "tester")})
    learned = read_measured([run, run / ".." / run.name])
    assert [each.name for each in learned.measured] == ["a", "b"], "each once"
    assert [(what.rpartition(" ")[2], "the tester could" in why) for what, why in learned.left_out] == [("c", True)]
    machine = learn(PUBLISHED, learned)
    assert machine["worker_ns"] == pytest.approx(20) and machine["worker_byte_ns"] == pytest.approx(0.1, rel=1e-3)
    assert machine["card_mpps"] == PUBLISHED["card_mpps"]
    assert [each.predicted(machine) for each in learned.measured] == [pytest.approx(25), pytest.approx(7.143, rel=1e-3)]


def test_frames_of_one_size_need_a_machine_that_knows_a_byte(tmp_path: Path) -> None:
    measured = read_measured([throughput(tmp_path, {"a": (64, 12.5e6, "loss")})])
    with pytest.raises(Mistake, match="frames of one size"):
        learn(PUBLISHED, measured)
    here = worker_machine("here", [(64, 10.0), (1518, 155.4)], "me")
    assert learn(here, measured)["worker_ns"] == pytest.approx(20)
    with pytest.raises(Mistake, match="say nothing of the switch"):
        learn(here, Learned([], []))


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"fabric": "ovs-dpdk"}, "fabric ovs-dpdk"), ({"oversubscribed": True}, "more polling threads than cores")],
)
def test_runs_that_measured_something_else_are_left_out(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    learned = read_measured([throughput(tmp_path, {"a": (64, 1e6, "loss")}, **changes)])
    assert not learned.measured and words in learned.left_out[0][1]


@pytest.mark.parametrize(
    ("frame", "pps", "functions", "words"),
    [
        (0, 1e6, 1, "is not of frames of one size"),
        (9001, 1e6, 1, "is not of frames of one size"),
        (64, 1e6, 10**12, "is not of frames of one size through functions"),
        (64, 1e308, 1, "a rate that no switch's cores bound (1e+308 packets a second)"),
        (64, 1, 1, "a rate that no switch's cores bound"),
    ],
)
def test_figures_that_no_search_finds_are_left_out(
    tmp_path: Path, frame: int, pps: float, functions: int, words: str
) -> None:
    run = throughput(tmp_path, {"a": (frame, pps, "loss")})
    results = run / "results.json"
    results.write_text(results.read_text().replace('"functions": 1', f'"functions": {functions}'))
    assert words in advise(REPOSITORY / "examples/chain.yaml", "--learn", run, "--chart", tmp_path / "c.svg", status=2)


def test_what_the_functions_bounded_says_nothing_of_the_switch(tmp_path: Path) -> None:
    """A hop takes 10 ns and a function 40: 25 Mpps are the functions', and 20 are not explained by them."""
    here = worker_machine("here", [(64, 10.0), (1518, 20.0)], "me", [(64, 40.0), (1518, 60.0)])
    run = throughput(tmp_path, {"a": (64, 12.5e6, "loss"), "b": (64, 10e6, "loss")})
    learned = of_switch(here, read_measured([run]))
    assert [each.name for each in learned.measured] == ["b"]
    assert "is what the functions' cores carry" in learned.left_out[0][1]
    alone = throughput(tmp_path, {"a": (64, 12.5e6, "loss")})
    with pytest.raises(Mistake, match=r"say nothing of the switch.*\nleft out: .*, a is what the functions' cores"):
        learn(here, of_switch(here, read_measured([alone])))


def test_more_cores_of_a_function_bound_less_of_a_run(tmp_path: Path) -> None:
    """A hop takes 10 ns and a function 40: of one CPU 25 Mpps are the functions', of two they are not."""
    here = worker_machine("here", [(64, 10.0), (1518, 20.0)], "me", [(64, 40.0), (1518, 60.0)])
    run = throughput(tmp_path, {"a": (64, 12.5e6, "loss")})
    assert not of_switch(here, read_measured([run])).measured
    spec = run / "spec.yaml"
    spec.write_text(spec.read_text().replace("first: skeleton", "first: {kind: skeleton, cpus: 2}"))
    (measured,) = of_switch(here, read_measured([run])).measured
    assert measured.chain.cores == 2


def test_runs_without_a_machine_are_not_mixed_with_the_published_one(tmp_path: Path) -> None:
    run = throughput(tmp_path / "runs", {"a": (64, 12.5e6, "loss"), "b": (564, 1e9 / 280, "loss")})
    kept, spec = tmp_path / "here.yaml", REPOSITORY / "examples/chain.yaml"
    said = json.loads(advise(spec, "--learn", run, "-o", kept, "--json"))
    assert said["machine"] == "the machine of these runs" and set(read_machine(kept).parameters) == {
        "worker_ns",
        "worker_byte_ns",
    }
    assert [each["predicted_mpps"] for each in said["learned"]["measured"]] == [None, None]
    shared = throughput(tmp_path / "runs", {"a": (64, 12.5e6, "loss")}, oversubscribed=True)
    assert "had more polling threads than cores" in advise(spec, "--learn", shared, status=2)


def test_every_run_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(Mistake) as caught:
        read_measured([tmp_path / "one", tmp_path / "other"])
    one, other = caught.value.lines
    assert f"{tmp_path}/one:" in one and f"{tmp_path}/other:" in other


def test_why_nothing_is_learned_is_a_line_for_each_run(tmp_path: Path) -> None:
    run = throughput(tmp_path, {"a": (64, 1.0, "tester")}, oversubscribed=True)
    said = advise(REPOSITORY / "examples/chain.yaml", "--learn", run, status=2)
    assert f"\ntailrace: left out: {run.name} had more polling threads than cores\n" in said


def test_the_command_learns_draws_and_keeps(tmp_path: Path) -> None:
    run = throughput(tmp_path / "runs", {"a": (64, 12.5e6, "loss"), "b": (564, 1e9 / 280, "loss")})
    chart, kept = tmp_path / "limits.svg", tmp_path / "here.yaml"
    spec = REPOSITORY / "examples/chain.yaml"
    said = json.loads(advise(spec, "--learn", run, "--chart", chart, "-o", kept, "--json"))
    assert [each["learned_error"] for each in said["learned"]["measured"]] == [pytest.approx(0, abs=1e-3)] * 2
    assert read_machine(kept)["worker_ns"] == pytest.approx(20)
    svg = "{http://www.w3.org/2000/svg}"
    drawn = ElementTree.fromstring(chart.read_text())
    assert len(list(drawn.iter(f"{svg}circle"))) == 3, "two that were measured, and the legend's"
    assert any("bounded by" in (each.text or "") for each in drawn.iter(f"{svg}text"))
    assert "after learning" in advise(spec, "--learn", run)
    assert "expected --learn RUN" in advise(spec, "-o", kept, status=2)


def test_a_picture_is_as_large_as_what_is_in_it() -> None:
    long = Chain(24, 1, ends=2, beside=2, on_card=2, cores=3)
    picture = ElementTree.fromstring(draw(PUBLISHED, {"long": long, "other": long}))
    texts = [each for each in picture.iter() if each.tag.endswith("text")]
    lowest = max(float(each.attrib["y"]) for each in texts)
    widest = max(float(each.attrib["x"]) + 6.6 * len(each.text or "") for each in texts)
    assert lowest < float(picture.attrib["height"]) and widest < float(picture.attrib["width"])
    headings = [float(each.attrib["y"]) for each in texts if each.attrib["class"] == "title"]
    above = max(float(each.attrib["y"]) for each in texts[: len(texts) // 2])
    assert headings == sorted(headings) and above < headings[1], "panels are apart"
    assert 'viewBox="0 0 1060 340"' in draw(PUBLISHED, {"voice": Chain(2, 1, ends=2)})


def test_nothing_is_written_over_what_is_read(tmp_path: Path) -> None:
    run = throughput(tmp_path / "runs", {"a": (64, 12.5e6, "loss"), "b": (564, 1e9 / 280, "loss")})
    spec, both = tmp_path / "s.yaml", tmp_path / "both"
    text = (REPOSITORY / "examples/chain.yaml").read_text()
    spec.write_text(text)
    for words in (("--learn", run, "-o", spec), ("--chart", spec), ("--learn", run, "-o", both, "--chart", both)):
        assert "expected another file" in advise(spec, *words, status=2)
    assert spec.read_text() == text and not both.exists()
    mine = machine_file(tmp_path / "m.yaml", worker_ns=20, worker_byte_ns=0.1)
    assert "expected another file" in advise(spec, "--machine", mine, "--chart", mine, status=2)
    assert "ends in .svg" in advise(spec, "--on-card", "--chart", tmp_path / "limits.png", status=2)
    assert not (tmp_path / "limits.png").exists()
    hop = bench(tmp_path / "64.json", "hop", 20.0, 0.5, frame=64)
    assert "expected another file" in advise("calibrate", hop, "-o", hop, status=2)


def test_a_report_has_what_was_predicted_beside_what_was_measured(tmp_path: Path) -> None:
    run = throughput(tmp_path / "runs", {"a": (64, 12.5e6, "loss"), "b": (564, 1.0, "tester")})
    kept, page = tmp_path / "here.yaml", tmp_path / "page.html"
    kept.write_text(show_machine(worker_machine("here", [(64, 18.0), (1518, 155.4)], "me")))

    def report(*words: str | Path, status: int = 0) -> str:
        done = CliRunner().invoke(app, ["report", *map(str, words)])
        assert done.exit_code == status, done.output
        return done.output

    report(run, "--machine", kept, "-o", page)
    text = re.sub(r"\s*<[^>]+>\s*", "|", page.read_text())
    # 2 x 12.5 Mpps were measured; two hops of 18 ns a frame leave 27.8.
    assert re.search(
        r"Prediction and measurement.*\|a\|+64 B\|+1\|+25\.0*\|+27\.778\|+\+11\.1 %\|+the switch", text, re.S
    )
    assert "Not compared:" in text and "the tester could send no more" in text
    report(run, "-o", page)
    assert "Prediction and measurement" not in page.read_text()
    assert "expected --machine without it" in report(run, "--csv", "--machine", kept, status=2)
    assert "nowhere.yaml" in report(run, "--machine", "nowhere.yaml", status=2)


def test_more_pollers_than_cpus_are_said_as_up_says_it(tmp_path: Path) -> None:
    cpus = max(os.sched_getaffinity(0)) + 1
    names = [f"f{number}" for number in range(cpus)]
    spec = {"functions": dict.fromkeys(names, "skeleton"), "chains": {"c": ["tester.a", *names, "tester.b"]}}
    (tmp_path / "s.yaml").write_text(json.dumps(spec))
    mine = machine_file(tmp_path / "m.yaml", worker_ns=50, worker_byte_ns=0.1)
    said = advise(tmp_path / "s.yaml", "--machine", mine)
    assert "On this host: Oversubscribed: " in said and "The rates are of a core for each." in said
    assert "Oversubscribed" not in advise(tmp_path / "s.yaml"), "the published machine is not this host"


def test_a_card_gives_what_linux_knows_of_it(tmp_path: Path) -> None:
    """A link of 8 GT/s × 8 leaves 57.9 Gbit/s (SIGCOMM 2018), of which the model takes the packets' headers itself."""
    assert "no card" in (card_parameters(Tree(tmp_path), None).note or "")
    with pytest.raises(Mistake, match=r"--card eth9: no such network card; .*: none"):
        card_parameters(Tree(tmp_path), "eth9")
    add_card(tmp_path)
    for name in (None, "ens1f0", "0000:3b:00.0"):
        found = card_parameters(Tree(tmp_path), name).values
        assert {each: value.value for each, value in found.items()} == {"line_gbps": 25.0, "pcie_gbps": 57.93}
        assert "ens1f0" in found["line_gbps"].source and "PCIe 8 GT/s × 8 of ens1f0" in found["pcie_gbps"].source
    make(tmp_path, {"/sys/class/net/ens1f0/speed": "-1"})
    assert set(card_parameters(Tree(tmp_path), None).values) == {"pcie_gbps"}


def test_chains_that_are_alike_are_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, looked = tmp_path / "spec.yaml", []
    functions = "".join(f"  f{number}: skeleton\n" for number in range(9))
    chains = "".join(f"  c{number}: [{{if: a{number}}}, f{number}, {{if: b{number}}}]\n" for number in range(9))
    spec.write_text(f"functions:\n{functions}chains:\n{chains}")

    def look(machine: Machine, chain: Chain) -> list[Best]:
        looked.append(chain)
        return turning_points(machine, chain)

    monkeypatch.setattr(importlib.import_module("tailrace.cli.advise"), "turning_points", look)
    found = json.loads(advise(spec, "--json"))["chains"]
    assert [each["chain"] for each in found] == [f"c{number}" for number in range(9)] and len(looked) == 1


def test_a_misspelt_command_is_no_spec() -> None:
    said = advise("validat", "t.csv", status=2)
    assert "validat: no such command, nor a spec; did you mean validate?" in said
    assert "nowhere.yaml" in advise("nowhere.yaml", status=2)


def test_what_would_change_the_answer_does() -> None:
    chain = Chain(2, 1, 2)
    for frame in (64, 1518):
        (turn,) = changes(PUBLISHED, chain, frame)
        best = answers(PUBLISHED, chain, frame)[0].interface
        for past, interface in ((1.01, turn.interface), (0.99, best)):
            factor = past if turn.value > turn.now else 1 / past
            moved = PUBLISHED.having({turn.parameter: turn.value * factor})
            assert answers(moved, chain, frame)[0].interface == interface
    assert changes(worker_machine("here", [(64, 10.0), (1518, 155.4)], "me"), chain, 64) == []


def test_the_page_has_every_parameter_with_its_unit() -> None:
    page = (REPOSITORY / "docs/advise.md").read_text()
    assert all(f"| `{name}` | {each.unit} | {each.meaning} |" in page for name, each in PARAMETERS.items())


def test_the_hybrid_on_the_page_is_a_spec(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs/advise.md").read_text()
    (text,) = re.findall(r"```yaml\n(functions:\n  f1:.*?)```", page, re.DOTALL)
    (tmp_path / "s.yaml").write_text(text)
    assert all(chain.ends == 2 for chain in chains_of(load_spec(tmp_path / "s.yaml")).values())
