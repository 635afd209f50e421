"""Benchmarks with machines, as a user runs them: shape and plausibility, no figures to reach."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from machine import BOOT, REPOSITORY
from running_node import Command, needs_a_node, open_folder

pytestmark = [
    *needs_a_node,
    pytest.mark.requires_program("virtlogd", "virsh", "qemu-system-x86_64", "nsenter", "tailrace-core-to-core"),
    pytest.mark.timeout(900),
    pytest.mark.whole,
]


@pytest.fixture
def bench(tailrace: Path, images: Path, daemons: None) -> Iterator[Callable[..., dict[str, Any]]]:
    """Runs one, and returns its result."""
    del images, daemons
    with open_folder() as folder:
        made = Command(tailrace, folder)
        made.limit = 3 * BOOT

        def run(*words: str) -> dict[str, Any]:
            document: dict[str, Any] = json.loads(made("bench", *words, "--json").stdout)
            assert not made.state.exists()
            return document

        yield run


def test_a_machine_moves_to_and_fro(bench: Callable[..., dict[str, Any]]) -> None:
    result = bench("migration", "--times", "2")
    assert result["bench"] == "migration" and len(result["moves"]) == 2
    assert result["duplicate"] == result["out_of_sequence"] == 0
    for move in result["moves"]:
        assert 0 < move["pause_ms"] < move["total_ms"] and move["bytes"] > 128 << 20 and move["rounds"] > 0
        assert move["frames"]["received"] >= 200 and 0 < move["frames"]["outage_ms"] < move["total_ms"]
    assert {each["count"] for each in result["times_ms"].values()} == {2}


def test_a_spec_s_machine_moves_between_nodes_that_are_made_for_it(command: Command) -> None:
    spec = command.spec((REPOSITORY / "examples/migration.yaml").read_text())
    run = json.loads(command("measure", "migration", spec, "--repeat", "2", "--json").stdout)
    assert run["valid"] and [each["round"] for each in run["findings"]] == [1, 2]
    for found in run["findings"]:
        assert 0 < found["pause_ms"] < found["total_ms"] and found["bytes"] > 128 << 20
        assert len(found["outages_ms"]) == 4 and found["duplicate"] == found["out_of_sequence"] == 0
    assert {each["figure"] for each in run["pooled"]} >= {"outage_ms", "pause_ms", "parked"}


def test_a_pool_beside_hot_plug(bench: Callable[..., dict[str, Any]]) -> None:
    result = bench("plug", "--times", "2", "--machine")
    assert result["bench"] == "plug" and result["lost"] == 0
    times = result["times_ms"]
    machines = {name: each for name, each in times.items() if name.startswith("machine: ")}
    assert len(machines) == 5 and all(each["count"] == 2 and each["min"] > 0 for each in machines.values())
    assert times["machine: hot-plug"]["min"] > times["machine: setvcpus alone"]["min"]
    assert result["ratios"]["pool_over_hotplug"] > 0
    assert result["ratios"]["pool_over_setvcpus"] > result["ratios"]["pool_over_hotplug"]
