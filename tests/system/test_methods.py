"""`tailrace measure throughput`, `loss`, `burst` and latency by load with the real switch, tester and function: what is
kept and how it hangs together; no figures to reach."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from running_node import ONE, Command, elapsed, needs_a_node, wait_until

pytestmark = needs_a_node

QUICK = ("--wait", "50ms", "--settle", "0s", "--frames", "64")


ATTEMPTS = 3
DISTURBED = "measure again when the machine is idle"


def measured(command: Command, *arguments: str | Path) -> dict[str, Any]:
    """A valid run. One that says itself that something else had the tester's core is measured again."""
    for _ in range(ATTEMPTS):
        done = command("measure", *arguments, "--runs", command.runs, "--json", status=None)
        document: dict[str, Any] = json.loads(done.stdout)
        if DISTURBED not in (document["reason"] or ""):
            break
    assert document["valid"], document["reason"]
    assert done.returncode == 0
    assert (Path(document["folder"]) / "report.html").exists()
    return document


def check_trials(trials: list[dict[str, Any]]) -> None:
    assert trials
    for trial in trials:
        assert trial["sent"] > 0
        assert trial["refused"] <= trial["unsent"]
        assert 0 <= trial["lost"] <= trial["sent"]
        assert (trial["lost"] == 0) == (trial["loss_ratio"] == 0)
        if trial["offered_pps"]:
            assert trial["sent_pps"] <= trial["offered_pps"]


@pytest.mark.parametrize("search", ["mlrsearch", pytest.param("tst009", marks=pytest.mark.whole)])
def test_throughput_of_a_real_chain(command: Command, search: str) -> None:
    options = ("--search", search, "--trial", "50ms", "--duration", "300ms", "--precision", "20%")
    document = measured(command, "throughput", command.spec(ONE), *options, *QUICK)
    (finding,) = document["findings"]
    assert (finding["name"], finding["functions"], finding["search"]) == ("one-function-64", 1, search)
    check_trials(finding["trials"])
    ndr, pdr = finding["goals"]
    assert (ndr["loss_ratio"], pdr["loss_ratio"]) == (0, 0.005)
    for goal in (ndr, pdr):
        best = [
            trial["sent_pps"]
            for trial in finding["trials"]
            if trial["duration_s"] == 0.3 and trial["loss_ratio"] <= goal["loss_ratio"]
        ]
        assert goal["pps"] in (0, goal["upper_pps"], *best)
        assert goal["limit"] in ("loss", "refused", "tester", "rate", "trials")


def test_a_curve_and_bursts_of_a_real_chain_in_two_rounds(command: Command) -> None:
    spec = command.spec(ONE)
    document = measured(command, "loss", spec, "--duration", "200ms", "--rate", "40kpps", "--repeat", "2", *QUICK)
    assert [finding["name"] for finding in document["findings"]] == ["one-function-64", "one-function-64-round-2"]
    (full,) = [each for each in document["pooled"] if each["figure"] == "full_pps"]
    assert (full["finding"], full["over"], full["values"], full["median"]) == ("loss", "rounds", 2, 40_000)
    for finding in document["findings"]:
        check_trials(finding["trials"])
        assert finding["trials"][0]["offered_pps"] == 40_000
    document = measured(command, "burst", spec, "--times", "2", "--longest", "10ms", "--precision", "20%", *QUICK)
    (finding,) = document["findings"]
    assert len(finding["frames"]) == 2
    assert all(1 <= length <= finding["longest"] for length in finding["frames"])
    assert finding["throughput_pps"] <= finding["rate_pps"]


@pytest.mark.whole
def test_latency_by_load_in_two_rounds(command: Command) -> None:
    options = ("--rate", "20kpps,5kpps", "--duration", "300ms", "--frames", "64", "--repeat", "2")
    done = command("measure", "latency", command.spec(ONE), *options, "--runs", command.runs)
    assert "All rounds together: latency" in done.stdout
    assert re.search(r"[0-9] \([0-9.,]+–[0-9.,]+\)", done.stdout)
    results = command.results()
    first = ["one-function-64-at-20kpps", "one-function-64-at-5kpps"]
    assert [trial["name"] for trial in results["trials"]] == [*first, *(f"{name}-round-2" for name in first)]
    assert [trial["offered_pps"] for trial in results["trials"]] == [20_000, 5_000] * 2
    assert [trial["round"] for trial in results["trials"]] == [1, 1, 2, 2]


def test_ctrl_c_keeps_the_trials_so_far(command: Command) -> None:
    options = ("--search", "tst009", "--trial", "50ms", "--duration", "60s", "--precision", "20%", "--loss", "0%")
    running = command.begin("measure", "throughput", command.spec(ONE), *options, *QUICK, "--runs", command.runs)
    try:
        # The tester alone comes first, without a switch; and the trials that look are over when one takes longer.
        wait_until(lambda: command.process("switch") and elapsed(command) > 0.5, 90)
    finally:
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=60)
    assert running.returncode == 130, told
    assert "interrupted by Ctrl-C" in told
    results = command.results()
    (finding,) = results["findings"]
    assert not results["valid"]
    assert not finding["valid"]
    check_trials(finding["trials"])
    assert finding["goals"] == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("throughput",), "expected either a SPEC or --between"),
        (("throughput", "--between", "if:lo", "if:lo"), "named twice"),
        (("throughput", "s.yaml", "--search", "linear"), "--search: 'linear'"),
        (("throughput", "s.yaml", "--trial", "2min"), "expected trial to be at most duration"),
        (("loss", "s.yaml", "--step", "20%"), "--step: 20% is out of range"),
        (("loss", "s.yaml", "--frames", "1519"), "'1519' is no profile"),
        (("burst", "s.yaml", "--frames", "imix"), "a burst has frames of one size"),
        (("latency", "s.yaml", "--rate", "10%,10%"), "listed twice"),
    ],
)
def test_mistakes_are_one_line_and_status_2(command: Command, arguments: tuple[str, ...], expected: str) -> None:
    command.spec(ONE, "s.yaml")
    refused = command("measure", *arguments, status=2)
    assert expected in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not command.runs.exists()
