"""`tailrace measure noise` on real traffic: beside stress-ng, and beside a neighbour VNF at full rate."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from clean_machine import PLAIN, is_alive, things
from running_node import Command, elapsed, needs_a_node, wait_until

from tailrace.process.process import descendants

pytestmark = [*needs_a_node, pytest.mark.requires_program("stress-ng")]


def check_noise(command: Command, *neighbours: str, pairs: int, duration: str) -> None:
    options = ("--neighbours", ",".join(neighbours), "--pairs", str(pairs), "--frames", "64", "--rate", "5kpps")
    done = command(
        "measure", "noise", command.spec(PLAIN), *options, "--duration", duration, "--runs", command.runs, "--json"
    )
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["valid"]
    (finding,) = document["findings"]
    assert finding["sides"] == ["quiet", *neighbours]
    assert finding["left_out"] == {}
    assert [list(pair["sides"]) for pair in finding["pairs"]] == [["quiet", each] for each in neighbours] * pairs
    assert all(figures["floor_ratio"] > 0 for pair in finding["pairs"] for figures in pair["sides"].values())
    ratios = {(each["side"], each["figure"]): each for each in finding["ratios"]}
    for side in neighbours:
        for figure in ("p50_us", "p90_us", "p99_us", "p99.9_us", "max_us"):
            each = [
                p["sides"][side][figure] / p["sides"]["quiet"][figure] for p in finding["pairs"] if side in p["sides"]
            ]
            assert ratios[side, figure]["pairs"] == len(each) == pairs
            assert min(each) * 0.999 <= ratios[side, figure]["median"] <= max(each) * 1.001
    names = [
        f"one-function-64-pair-{number}-{side}{quiet}"
        for number in range(1, pairs + 1)
        for side in neighbours
        for quiet in ("-quiet", "")
    ]
    assert [trial["name"] for trial in document["trials"]] == names
    if "vnf" in neighbours:  # its generator has sent through the switch, and how much came back is kept
        ran = [pair["sides"]["vnf"]["neighbour_mpps"] for pair in finding["pairs"] if "vnf" in pair["sides"]]
        assert len(ran) == pairs and all(each > 0 for each in ran)
        (log,) = Path(document["folder"], "logs").glob("neighbour.log")
        said = [line.partition(" ")[2] for line in log.read_text().splitlines()]  # behind the time
        counted = [json.loads(words) for words in said if words.startswith("{")]
        assert len(counted) == pairs
        assert all(port["received"] > 10 for each in counted for port in each["ports"])


def test_quiet_and_noisy_in_turn(command: Command) -> None:
    check_noise(command, "cpu", "vnf", pairs=1, duration="500ms")


@pytest.mark.whole
def test_every_neighbour(command: Command) -> None:
    check_noise(command, "cpu", "cache", "memory", "disk", "vnf", pairs=2, duration="1s")


@pytest.mark.parametrize(
    ("neighbour", "ended"),
    [
        ("disk", signal.SIGKILL),
        pytest.param("vnf", signal.SIGINT, marks=pytest.mark.whole),
        pytest.param("cpu", signal.SIGINT, marks=pytest.mark.whole),
    ],
)
def test_what_ends_the_measurement_ends_the_neighbour(command: Command, neighbour: str, ended: signal.Signals) -> None:
    options = ("--neighbours", neighbour, "--frames", "64", "--rate", "5kpps", "--duration", "2s")
    running = command.begin("measure", "noise", command.spec(PLAIN), *options, "--runs", command.runs)
    wanted = f"neighbour-{neighbour}" if neighbour != "vnf" else "neighbour-generator"
    found: list[dict[str, Any]] = []

    def is_noisy() -> bool:
        found[:] = [each for each in things(command) if each["name"].startswith("neighbour")]
        return any(each["name"] == wanted for each in found) and elapsed(command) > 0.1

    wait_until(is_noisy, 60)
    workers = [worker for each in found for worker in descendants(each["pid"])]
    running.send_signal(ended)
    _, told = running.communicate(timeout=60)
    if ended == signal.SIGINT:
        assert running.returncode == 130, told
    else:
        command("down")
    wait_until(lambda: not any(is_alive({"pid": pid}) for pid in (*workers, *(each["pid"] for each in found))))
    (folder,) = command.runs.iterdir()
    assert not (folder / "neighbour").exists()
