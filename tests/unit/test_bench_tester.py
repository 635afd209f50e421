"""The arithmetic of `tailrace bench tester`, without any process."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.bench import tester
from tailrace.errors import Fault, Mistake


def stream(**values: Any) -> dict[str, Any]:
    known = {
        "sent": 1_000_010,
        "received": 1_000_000,
        "unsent": 5,
        "lost": 10,
        "duplicate": 1,
        "out_of_sequence": 2,
        "received_seconds": 0.5,
    }
    return known | values


def test_the_testers_own_count_is_of_both_directions() -> None:
    own = tester.own_count({"streams": [stream(), stream(received=500_000, received_seconds=1.0)]})
    assert own == {
        "mpps": 2.5,
        "sent": 2_000_020,
        "received": 1_500_000,
        "unsent": 10,
        "lost": 20,
        "duplicate": 2,
        "out_of_sequence": 4,
    }


@pytest.mark.parametrize("values", [{"received": 0}, {"received_seconds": 0.0}])
def test_a_direction_that_brought_nothing_is_a_fault(values: dict[str, Any]) -> None:
    with pytest.raises(Fault, match="no frame came back"):
        tester.own_count({"streams": [stream(), stream(**values)]})


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
