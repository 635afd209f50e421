"""The arithmetic and the checks of `tailrace bench tester`, without any process."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from tailrace.bench import model, table, tester
from tailrace.bench.model import Counters, OwnCount, Rate, Window
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


def test_a_rate_is_what_was_delivered_in_the_window() -> None:
    window = Window(Counters(100, 1000, 500, 7), Counters(4_000_110, 4000, 1500, 17), 2.0)
    assert Rate.of(window) == Rate(2.0, 0.75, 10)


def test_nothing_delivered_is_a_fault() -> None:
    with pytest.raises(Fault, match="no packet passed"):
        Rate.of(Window(Counters(0, 0, 0, 0), Counters(10, 1, 1, 10), 1.0))


def test_the_testers_own_count_is_of_both_directions() -> None:
    own = tester.own_count({"streams": [stream(), stream(received=500_000, received_seconds=1.0)]})
    assert own == OwnCount(2.5, 2_000_020, 1_500_000, 10, 20, 2, 4)


@pytest.mark.parametrize("values", [{"received": 0}, {"received_seconds": 0.0}])
def test_a_direction_that_brought_nothing_is_a_fault(values: dict[str, Any]) -> None:
    with pytest.raises(Fault, match="no frame came back"):
        tester.own_count({"streams": [stream(), stream(**values)]})


def pair(ours: float, plain: float) -> model.TesterPair:
    own = OwnCount(ours, 1_000_000, 999_990, 0, 10, 0, 0)
    return model.TesterPair(82.0, 351.0, Rate(ours, 0.6, 0), own, Rate(plain, 0.9, 0))


RESULT = model.TesterResult(
    64,
    1,
    3.0,
    [pair(6, 10), pair(9, 10), pair(7, 10)],
    {"cpu": "CPU", "switch_core": 1, "load_core": 0, "versions": {}},
)


def test_the_ratio_is_the_median_of_the_pairs_ratios() -> None:
    assert RESULT.ratio_median == pytest.approx(0.7)
    document = RESULT.document()
    assert document["bench"] == "tester"
    assert document["ratios"] == {"mpps": 0.7}
    assert document["pairs"][0]["tester"]["own"]["lost"] == 10
    assert document["pairs"][0].keys() == {
        "tester",
        "testpmd",
        "core_to_core_ns",
        "core_to_core_between_ns",
        "core_to_core_after_ns",
        "near",
        "steady",
    }


def test_table_fits_a_terminal_of_80_columns() -> None:
    console = Console(width=80, file=StringIO())
    console.print(table.tester_table(RESULT))
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert "0.70×" in text
    assert "near*" in text
    assert "…" not in text


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
