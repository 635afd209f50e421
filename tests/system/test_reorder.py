"""`tailrace measure reorder` with real replicas of unequal delay: what is overtaken is seen, and no pinned flow is."""

from __future__ import annotations

import pytest
from running_node import REPOSITORY, Command, needs_a_node

pytestmark = [*needs_a_node, pytest.mark.sanitized]


def test_flows_overtake_each_other_and_none_itself(command: Command) -> None:
    options = ("--duration", "1s", "--rate", "10kpps", "--runs", command.runs)
    done = command("measure", "reorder", REPOSITORY / "examples/reorder.yaml", *options)
    results = command.results()
    (finding,) = results["findings"]
    assert finding["delays_us"] == {"wan": 0, "wan-2": 5000}
    together, apart = finding["together"], finding["apart"]
    assert apart["received"] > 100
    assert apart["out_of_sequence"] == 0
    assert finding["slower"] > 100
    # Frames at the end have nobody after them, and a busy machine delays the faster replica too.
    assert 0.5 * finding["slower"] < together["out_of_sequence"] <= 1.01 * finding["slower"]
    assert together["extent_max"] >= together["extent_average"] > 1
    assert [trial["name"] for trial in results["trials"]] == ["one-function-64-together", "one-function-64-apart"]
    assert "out of sequence, as planned" in " ".join(done.stdout.split())


def test_replicas_that_are_alike_are_refused(command: Command) -> None:
    refused = command("measure", "reorder", REPOSITORY / "examples/replicas.yaml", "--runs", command.runs, status=2)
    assert "none of its functions has replicas that delay frames unequally" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not command.runs.exists()
    assert not command.leftovers()
