"""`tailrace measure matrix` on real traffic: every kind of port, what cannot be had, and going on after kill -9."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from clean_machine import is_alive, things
from running_node import Command, elapsed, needs_a_node, wait_until

pytestmark = needs_a_node
BRIEF = ("--frames", "64", "--rate", "5kpps", "--duration", "300ms")


def cells(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in document["findings"] if each["method"] == "matrix"}


def stacks(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["way"]: each for each in document["findings"] if each["method"] == "stacks"}


def check_stacks(way: dict[str, Any], *messages: str) -> None:
    assert (way["valid"], way["not_here"], list(way["gbps"])) == (True, None, list(messages)), way
    assert all(rate > 0 for rate in way["gbps"].values())
    assert 0 < way["ping"]["min_us"] <= way["ping"]["average_us"] <= way["ping"]["max_us"]


def check_measured(cell: dict[str, Any]) -> None:
    assert (cell["valid"], cell["reason"], cell["not_here"]) == (True, None, None), cell["name"]
    assert 0 < cell["p50_us"] <= cell["p99_us"] <= cell["max_us"]
    assert cell["mpps"] > 0
    assert cell["floor_ratio"] > 0


def test_a_function_on_every_kind_of_port(command: Command) -> None:
    options = ("--fabrics", "tailrace", "--interfaces", "vhost-user,memif,tap,veth", "--patterns", "PVP")
    done = command("-v", "measure", "matrix", *options, *BRIEF, "--runs", command.runs)
    results = command.results()
    assert results["valid"]
    assert results["versions"].keys() >= {"tailrace-switch", "tailrace-tester", "dpdk"}
    found = cells(results)
    assert list(found) == [f"tailrace-{kind}-PVP-64" for kind in ("vhost-user", "memif", "tap", "veth")]
    for cell in found.values():
        check_measured(cell)
        assert cell["loss_ratio"] < 0.5
        assert f"tailrace, {cell['interface']} " in done.stdout
    # The tester's ends are veths, whatever the function's ports are.
    (floor,) = results["floors"]
    assert (floor["ports"], floor["profile"]) == ("veth", "64")
    assert "own floor (to itself over veth" in done.stdout
    for cell in found.values():
        assert cell["floor_ratio"] == pytest.approx(cell["p50_us"] / floor["latency_us"]["p50"])


def test_what_cannot_be_had_says_why_and_a_killed_matrix_goes_on(command: Command) -> None:
    options = ("--fabrics", "tailrace,linux-bridge,direct", "--interfaces", "memif,veth", "--patterns", "VV")
    options += ("--stacks", "veth,passthrough", "--messages", "65536")
    begun = command.begin("measure", "matrix", *options, *BRIEF, "--duration", "1s", "--runs", command.runs)

    def known() -> dict[str, dict[str, Any]]:
        try:
            return cells(command.results())
        except (ValueError, OSError):  # there is no run folder yet
            return {}

    wait_until(lambda: sum(each["trial"] is not None for each in known().values()) >= 2 and elapsed(command) > 0.1, 60)
    processes = things(command)
    begun.kill()
    begun.communicate(timeout=60)
    before = command.results()
    kept = {name: cell for name, cell in cells(before).items() if cell["trial"] is not None}
    assert not before["valid"]
    (folder,) = command.runs.iterdir()
    done = command("measure", "matrix", "--resume", folder, "--json")
    document = json.loads(done.stdout)
    assert document["valid"]
    found = cells(document)
    assert found.pop("linux-bridge-memif-VV-64")["not_here"] == "linux-bridge has no memif ports; it has tap, veth"
    assert len(found) == 5
    for cell in found.values():
        check_measured(cell)
    ways = stacks(document)
    check_stacks(ways["veth"], "65536")
    assert "expected --card NAME" in ways["passthrough"]["not_here"]
    # Each sitting has measured the floors that it needed, each once.
    floors = [each["ports"] for each in document["floors"]]
    assert set(floors) == {"memif", "veth"}
    assert max(floors.count(ports) for ports in floors) <= 2
    # What was done is as it was, and no cell has a second trial.
    assert {name: found[name] for name in kept} == kept
    started = {trial["name"]: trial["started"] for trial in document["trials"]}
    assert {trial["name"]: trial["started"] for trial in before["trials"]}.items() <= started.items()
    assert sorted(started) == sorted(found)
    assert not any(is_alive(each) for each in processes)
    again = command("measure", "matrix", "--resume", folder, status=2)
    assert "every cell that this machine can have is done" in again.stderr


@pytest.mark.whole
def test_a_repeated_matrix_goes_on_in_its_round_and_has_a_spread(command: Command) -> None:
    options = ("--fabrics", "direct", "--interfaces", "vhost-user,memif", "--patterns", "VV", "--repeat", "2")
    begun = command.begin("measure", "matrix", *options, *BRIEF, "--duration", "1s", "--runs", command.runs)

    def measured() -> list[dict[str, Any]]:
        """The rounds of all cells. A trial is kept before it counts; killed in between, it is made again."""
        try:
            return [each for cell in cells(command.results()).values() for each in cell["rounds"]]
        except (ValueError, OSError):  # there is no run folder yet
            return []

    names = ["direct-vhost-user-VV-64", "direct-memif-VV-64"]
    rounds = [*names, *(f"{name}-round-2" for name in names)]
    wait_until(lambda: len(measured()) >= 2 and elapsed(command) > 0.1, 60)
    begun.kill()
    begun.communicate(timeout=60)
    before = {trial["name"]: trial["started"] for trial in command.results()["trials"]}
    assert rounds[:2] == list(before)[:2]
    assert len(before) < 4
    (folder,) = command.runs.iterdir()
    done = command("-v", "measure", "matrix", "--resume", folder)
    results = command.results()
    assert results["valid"]
    started = {trial["name"]: trial["started"] for trial in results["trials"]}
    assert list(started) == rounds
    assert before.items() <= started.items()
    for name, cell in cells(results).items():
        check_measured(cell)
        assert [each["trial"] for each in cell["rounds"]] == [name, f"{name}-round-2"]
        low, high = sorted(each["p99_us"] for each in cell["rounds"])
        assert cell["spread"]["p99_us"] == {"low": low, "high": high}
        assert cell["p99_us"] == pytest.approx((low + high) / 2)
    assert "2 rounds: medians" in done.stdout
    assert re.search(r"[0-9] \([0-9.,]+–[0-9.,]+\)", done.stdout)
    refused = command("measure", "matrix", "--resume", folder, "--repeat", "3", status=2)
    assert "expected neither a SPEC nor other settings with it" in refused.stderr


@pytest.mark.whole
@pytest.mark.requires_program("ovs-vswitchd-dpdk")
def test_a_whole_matrix(command: Command) -> None:
    options = ("--interfaces", "vhost-user,memif,tap,veth", "--patterns", "P2P,PVP,PVVP,VV", "--frames", "64,1518")
    options += ("--stacks", "tailrace,ovs-dpdk,linux-bridge", "--messages", "64,65536")
    folder = command.folder / "all"
    running = command.begin("measure", "matrix", *options, "--rate", "5kpps", "--duration", "300ms", "--runs", folder)
    told = running.communicate(timeout=280)
    assert running.returncode == 0, told
    (run,) = folder.iterdir()
    results = json.loads((run / "results.json").read_text())
    for way in stacks(results).values():
        check_stacks(way, "64", "65536")
    assert len(stacks(results)) == 3
    found = cells(results)
    lacking = {name.rsplit("-", 2)[0] for name, cell in found.items() if cell["not_here"]}
    assert lacking == {"ovs-dpdk-memif", "linux-bridge-vhost-user", "linux-bridge-memif", "direct-tap"}
    for cell in found.values():
        if not cell["not_here"]:
            check_measured(cell)
