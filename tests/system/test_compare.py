"""`tailrace compare` as a user runs it, on real traffic over every fabric; and what cannot be compared is said in one
line, before anything starts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from clean_machine import PLAIN, is_alive, network, things
from running_node import Command, elapsed, needs_a_node, pages, wait_until

pytestmark = [*needs_a_node, pytest.mark.requires_program("ovs-vswitchd-dpdk")]
ALL = ("tailrace", "ovs-dpdk", "linux-bridge", "direct")


def compared(command: Command, *options: str) -> dict[str, Any]:
    done = command("compare", command.spec(PLAIN), *options, "--runs", command.runs, "--json")
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["valid"]
    return document


def check_floors(document: dict[str, Any]) -> None:
    """One floor for each kind of port, and every side of every pair held against that of its own."""
    floors = {(each["ports"], each["profile"]): each["latency_us"]["p50"] for each in document["floors"]}
    profiles = {trial["profile"] for trial in document["trials"]}
    assert len(document["floors"]) == len(floors)
    assert set(floors) == {(ports, profile) for ports in ("vhost-user", "tap") for profile in profiles}
    for finding in document["findings"]:
        for pair in finding["pairs"]:
            for side, figures in pair["sides"].items():
                own = floors["tap" if side == "linux-bridge" else "vhost-user", finding["profile"]]
                assert figures["floor_ratio"] == pytest.approx(figures["p50_us"] / own)
    for trial in document["trials"]:
        assert trial["near_floor"] == (trial["floor_ratio"] < 3)


def check_sides(finding: dict[str, Any], pairs: int) -> None:
    assert finding["sides"] == list(ALL)
    assert len(finding["pairs"]) == pairs
    for pair in finding["pairs"]:
        for figures in pair["sides"].values():
            assert 0 < figures["p50_us"] <= figures["p99_us"] <= figures["max_us"]
            assert figures["mpps"] > 0
    ratios = {(each["side"], each["figure"]): each for each in finding["ratios"]}
    assert {side for side, _ in ratios} == set(ALL[1:])
    for (side, figure), ratio in ratios.items():
        each = [pair["sides"][side][figure] / pair["sides"]["tailrace"][figure] for pair in finding["pairs"]]
        assert min(each) * 0.999 <= ratio["low"] <= ratio["median"] <= ratio["high"] <= max(each) * 1.001


def test_all_fabrics_carry_the_same_traffic_in_turn(command: Command) -> None:
    document = compared(command, "--frames", "64", "--rate", "5kpps", "--duration", "300ms", "--pairs", "2")
    (finding,) = document["findings"]
    check_sides(finding, 2)
    check_floors(document)
    turns = [f"64-{fabric}-pair-1" for fabric in ALL] + [f"64-{fabric}-pair-2" for fabric in (*ALL[1:], ALL[0])]
    assert [trial["name"] for trial in document["trials"]] == turns
    for trial in document["trials"]:
        for way in trial["directions"]:
            assert way["sent"] > 0
            assert way["duplicate"] == way["out_of_sequence"] == way["foreign"] == 0
    assert document["versions"].keys() >= {"tailrace-switch", "tailrace-tester", "openvswitch", "dpdk"}
    page = (Path(document["folder"]) / "report.html").read_text()
    assert "64 B, linux-bridge, pair 2" in page
    for ports in ("vhost-user", "tap"):
        assert f"own floor (to itself over {ports}" in page
    logs = Path(document["folder"]) / "logs"
    assert (logs / "pair-1-ovs-dpdk" / "ovs-vswitchd.log").exists()


@pytest.mark.whole
def test_all_fabrics_at_a_part_of_the_lowest_rate_without_loss(command: Command) -> None:
    document = compared(command, "--frames", "64,1518", "--rate", "50%", "--duration", "1s", "--pairs", "2")
    check_floors(document)
    for finding in document["findings"]:
        check_sides(finding, 2)
        assert finding["searched"].keys() == set(ALL)
        lowest = min(searched["pps"] for searched in finding["searched"].values())
        assert finding["offered_pps"] == pytest.approx(lowest / 2)
        # Confirmed on each fabric, or not, by a trial of full length beforehand; and looked for again in each pair.
        looked = {trial["name"] for trial in document["trials"] if trial["attempt"] is None}
        assert looked >= {f"{finding['name']}-{fabric}-first-look" for fabric in ALL}
        assert all(pair["searched"].keys() == pair["sides"].keys() for pair in finding["pairs"])


@pytest.mark.parametrize(
    ("fabric", "then"), [("ovs-dpdk", "down"), pytest.param("linux-bridge", "next run", marks=pytest.mark.whole)]
)
def test_a_killed_comparison_leaves_nothing_behind(command: Command, fabric: str, then: str) -> None:
    before, links = pages(), network(command)
    options = ("--frames", "64", "--rate", "5kpps", "--duration", "60s", "--runs", command.runs)
    running = command.begin("compare", command.spec(PLAIN), "--fabrics", f"{fabric},direct", *options)
    # The floors come first: they have no function.
    wait_until(lambda: "first" in {each["name"] for each in things(command)} and elapsed(command) > 0.1, 60)
    processes, namespaces = things(command), things(command, "namespace")
    names = {each["name"] for each in processes}
    assert "tester" in names
    assert ("ovs-vswitchd" in names) == (fabric == "ovs-dpdk")
    assert namespaces
    running.kill()
    running.communicate(timeout=60)
    if then == "down":
        command("down")
    else:
        brief = ("--frames", "64", "--rate", "5kpps", "--duration", "200ms", "--pairs", "1")
        compared(command, "--fabrics", "linux-bridge,direct", *brief)
    wait_until(lambda: not any(is_alive(each) for each in processes))
    wait_until(lambda: not command.leftovers())
    assert pages() <= before
    assert network(command) <= links


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--fabrics", "tailrace"), "one fabric alone cannot be compared"),
        (("--fabrics", "tailrace,vpp"), "'vpp' is no fabric"),
        (("--fabrics", "linux-bridge,tailrace", "--interface", "memif"), "linux-bridge has no memif ports"),
        (("--interface", "sriov"), "no such kind of port"),
    ],
)
def test_mistakes_are_one_line(command: Command, options: tuple[str, ...], expected: str) -> None:
    refused = command("compare", command.spec(PLAIN), *options, status=2)
    assert expected in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_fabric_says_which_words_it_cannot_carry(command: Command) -> None:
    text = PLAIN.replace("[tester.a, first, tester.b]", "{path: [tester.a, first, tester.b], match: {vlan: 5}}")
    refused = command("compare", command.spec(text), "--fabrics", "tailrace,linux-bridge", status=2)
    assert re.search(r"\.yaml:\d+:\d+: linux-bridge cannot carry chains\.voice\.match", refused.stderr)


def test_what_is_not_installed_is_named(command: Command) -> None:
    command.environment["TAILRACE_BINARIES"] = str(command.folder)
    refused = command("compare", command.spec(PLAIN), "--fabrics", "direct,tailrace", status=2)
    assert "tailrace-switch is not built" in refused.stderr
