"""`tailrace measure share` with real traffic: a delay that is known is found to be the function's own share."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pytest
from running_node import ONE, Command, needs_a_node

pytestmark = needs_a_node

SIDES = ("function", "skeleton")
DELAY_US = 1000.0
SPEC = """\
functions: {wan: {kind: impair, impair: {delay: 1ms}}}
chains: {office: [tester.a, wan, tester.b]}
"""


def test_a_known_delay_is_the_functions_share(command: Command) -> None:
    """Of 1 ms. On a shared core the function looks every 50 µs whether a frame has waited long enough, and the
    skeleton, which sleeps, has to be woken; on a busy machine both wait for the core, and the interval says so.
    """
    options = ("--pairs", "5", "--rate", "5kpps", "--duration", "500ms", "--runs", command.runs)
    done = command("measure", "share", command.spec(SPEC), *options)
    results = command.results()
    assert results["valid"]
    (finding,) = results["findings"]
    assert (finding["function"], finding["kind"], len(finding["pairs"])) == ("wan", "impair", 5)
    pairs = finding["pairs"]
    shares = {(each["direction"], each["figure"]): each for each in finding["contributions"]}
    for direction in ("a-to-b", "b-to-a"):
        share = shares[direction, "p50_us"]
        assert share["low_us"] < 1.3 * DELAY_US and share["high_us"] > 0.9 * DELAY_US, share
        assert share["low_us"] <= share["difference_us"] <= share["high_us"]
        assert all(pair[side][direction]["floor_ratio"] > 0 for pair in pairs for side in SIDES)
        means = [
            pair["function"][direction]["average_us"] - pair["skeleton"][direction]["average_us"] for pair in pairs
        ]
        assert shares[direction, "average_us"]["difference_us"] == pytest.approx(median(means))
    # The budget adds up to the trials' own means, since at this rate every frame is traced, and the delay lies in one.
    trials = {trial["name"]: trial for trial in results["trials"]}
    assert [budget["direction"] for budget in finding["budgets"]] == ["a-to-b", "b-to-a"]
    for budget in finding["budgets"]:
        for side in SIDES:
            whole = sum(element[f"{side}_us"] for element in budget["elements"])
            assert whole == pytest.approx(budget[f"{side}_us"], abs=1e-6)
            trial = trials[budget[f"{side}_trial"]]
            way = next(each for each in trial["directions"] if each["name"] == budget["direction"])
            assert way["hops"]["frames"] == way["received"]
            assert way["latency_us"]["average"] == pytest.approx(whole, abs=0.01)
        assert [element["kind"] for element in budget["elements"]] == ["ring", "switch", "function", "switch", "ring"]
        assert budget["elements"][2]["name"] == "wan"
        traced = [trials[budget[f"{side}_trial"]]["directions"] for side in SIDES]
        names = {part["name"] for ways in traced for way in ways for part in way["hops"]["parts"]}
        assert "wan" in names
        assert not any("@" in name for name in names), "a process's name is nobody's who reads results"
        inside = {side: median_inside(trials[budget[f"{side}_trial"]], budget["direction"]) for side in SIDES}
        assert inside["function"] > 0.9 * DELAY_US, inside
    assert "Share of wan (impair)" in done.stdout
    assert "Where the time goes" in done.stdout


def median_inside(trial: dict[str, Any], direction: str) -> float:
    """What the traced frames spent with the function, in µs."""
    (way,) = [each for each in trial["directions"] if each["name"] == direction]
    (part,) = [each for each in way["hops"]["parts"] if each["kind"] == "function"]
    return float(part["latency_us"]["p50"])


def test_functions_that_look_at_frames_pass_those_of_one_flow(command: Command) -> None:
    """A firewall and a router, which drop what is not sound."""
    spec = Path(__file__).parents[2] / "examples" / "share-functions.yaml"
    command("measure", "latency", spec, "--frames", "64", "--rate", "2kpps", "--duration", "1s", "--runs", command.runs)
    ways = [way for trial in command.results()["trials"] for way in trial["directions"]]
    assert ways and all(way["received"] > 0.9 * way["sent"] for way in ways)


def test_a_function_of_what_is_up_is_not_replaced(command: Command) -> None:
    spec = command.spec(ONE)
    command("up", spec)
    refused = command("measure", "share", spec, "--rate", "1kpps", "--runs", command.runs, status=2)
    assert "run `tailrace down` first" in refused.stderr
    assert command.status()["state"] == "up"
