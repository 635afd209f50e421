"""The arithmetic and the parsing of `tailrace bench switch`, without any process."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tailrace.bench.model import Beside, ChangeResult, Ratio, Spread
from tailrace.bench.switch import CHANGES, READY, SwitchPlan, parse_peak
from tailrace.bench.table import change_table
from tailrace.bench.testpmd import arguments
from tailrace.errors import Fault, Mistake

STATUS = "VmPeak:\t 9000 kB\nVmHWM:\t   23552 kB\nVmRSS:\t   20000 kB\n"


def test_peak_memory_is_in_mib() -> None:
    assert parse_peak(STATUS) == 23.0


def test_a_status_without_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="VmHWM"):
        parse_peak("Name:\tkthreadd\n")


def test_a_spread_is_of_all_values() -> None:
    assert Spread.of([3.0, 1.0, 2.0, 10.0]) == Spread(4, 1.0, 2.5, 10.0)


def stream(**values: Any) -> dict[str, Any]:
    known = {"sent": 100, "received": 99, "unsent": 3, "lost": 1, "duplicate": 0, "out_of_sequence": 0}
    return {**known, "latency": {"max_ns": 4500}, **values}


def test_the_chain_beside_is_of_both_directions() -> None:
    beside = Beside.of(1000.0, {"streams": [stream(), stream(latency={"max_ns": 9000})]}, 2)
    assert beside == Beside(1000.0, 200, 198, 6, 2, 0, 0, 2, 9.0)


def test_a_chain_beside_that_carried_nothing_is_a_fault() -> None:
    with pytest.raises(Fault, match="no frame came back"):
        Beside.of(1000.0, {"streams": [stream(), stream(received=0)]}, 0)


def result() -> ChangeResult:
    return ChangeResult(
        "switch",
        {},
        {READY: Spread.of([130.0, 140.0]), **{name: Spread.of([0.1, 0.2, 5.0]) for name in CHANGES}},
        {0: 22.84, 16: 23.26},
        Beside.of(1000.0, {"streams": [stream(), stream()]}, 0),
        {"cpu": "CPU", "switch_core": 1, "load_core": 0, "versions": {}},
        48.0,
    )


def test_document_has_the_promised_shape() -> None:
    document = result().document()
    assert document["bench"] == "switch"
    assert document["times_ms"][READY] == {"count": 2, "min": 130.0, "median": 135.0, "max": 140.0}
    assert list(document["times_ms"]) == [READY, *CHANGES]
    assert document["memory_mib"] == {"0": 22.8, "16": 23.3}
    assert document["beside"]["lost"] == 2
    assert document["near"]


def test_changes_on_two_sides_are_pairs_with_ratios() -> None:
    pairs = [{"alone": {"add_ms": 2.0}, "beside": {"add_ms": ms}} for ms in (4.0, 5.0, 12.0)]
    document = replace(result(), pairs=pairs, ratios=(Ratio("add", "add_ms", "beside", "alone"),)).document()
    assert document["pairs"] == pairs
    assert document["ratios"] == {"add": 2.5}
    assert result().document()["pairs"] == [] and result().document()["ratios"] == {}


def test_table_says_what_was_lost() -> None:
    console = Console(width=80, file=StringIO())
    console.print(change_table(result(), "What it costs"))
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue().replace("\n", " ")
    assert "2 lost" in text
    assert "23.3 MiB with 16 guests" in text
    assert "…" not in text


def test_guests_that_do_not_listen_connect_to_the_switch() -> None:
    line = arguments([Path("/a")], core=1, control=0, listen=False)
    assert "net_virtio_user0,path=/a,queue_size=1024" in line


@pytest.mark.parametrize("values", [{"starts": 0}, {"changes": 0}, {"changes": 10_001}])
def test_a_plan_that_cannot_be_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(Mistake, match="expected"):
        SwitchPlan(**values)
