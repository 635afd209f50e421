"""The arithmetic of `tailrace bench tester`, without any process."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.bench import tester
from tailrace.bench.testpmd import Traffic
from tailrace.errors import Fault, Mistake


def stream(**values: Any) -> dict[str, Any]:
    known = {"sent": 1_000_010, "received": 1_000_000, "lost": 10, "duplicate": 0, "out_of_sequence": 0}
    return known | values


def test_the_testers_account_is_of_both_directions() -> None:
    own = tester.account({"streams": [stream(), stream(sent=500_000, received=499_999, lost=1)]})
    assert own == Traffic(sent=1_500_010, received=1_499_999)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"received": 0}, "no frame came back"),
        ({"duplicate": 1}, "1 duplicate"),
        ({"out_of_sequence": 2}, "2 out of sequence"),
    ],
)
def test_a_direction_that_brought_nothing_or_too_much_is_a_fault(values: dict[str, Any], words: str) -> None:
    with pytest.raises(Fault, match=words):
        tester.account({"streams": [stream(), stream(**values)]})


def test_the_ratio_is_the_testers_rate_by_testpmds() -> None:
    (ratio,) = tester.TesterPlan().ratios
    assert ratio.of({"tester": {"mpps": 7.0}, "testpmd": {"mpps": 10.0}}) == pytest.approx(0.7)


def test_many_flows_are_a_side_of_their_own_beside_one() -> None:
    plan = tester.TesterPlan(flows=1000)
    assert [side.name for side in plan.sides] == ["tester-flows", "tester", "testpmd"]
    by_testpmd, by_one = plan.ratios
    pair = {"tester-flows": {"mpps": 3.0}, "tester": {"mpps": 4.0}, "testpmd": {"mpps": 5.0}}
    assert (by_testpmd.of(pair), by_one.of(pair)) == (pytest.approx(0.8), pytest.approx(0.75))
    assert [side.name for side in tester.TesterPlan().sides] == ["tester", "testpmd"]


@pytest.mark.parametrize(
    "values",
    [
        {"frame": 63},
        {"frame": 1519},
        {"frame": 64, "flows": 0},
        {"frame": 64, "flows": 1_000_001},
        {"frame": 64, "pairs": 0},
        {"frame": 64, "seconds": 0.0},
    ],
)
def test_a_plan_that_cannot_be_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(Mistake, match="expected"):
        tester.TesterPlan(**values)
