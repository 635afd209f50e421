"""`bench handover`: the connections that it makes up, and what it refuses."""

from __future__ import annotations

import pytest

from tailrace.bench.handover import HandOverPlan, record
from tailrace.errors import Mistake


def test_records_are_different_connections_with_their_ends_in_the_programs_order() -> None:
    records = [record(number, 7) for number in range(1000)]
    assert {len(each) for each in records} == {88}
    assert len({each[:48] for each in records}) == 1000
    for each in records:
        one, other = each[:16], each[16:32]
        assert int.from_bytes(one, "little") < int.from_bytes(other, "little")
        assert each[48:52] == (7).to_bytes(4, "little")


def test_a_hand_over_is_measured_however_long_it_takes() -> None:
    """A host that does 80,000 connections a second needs 50 s for the most; a slow one several times as long."""
    assert HandOverPlan(connections=4_000_000).patience > 400


def test_what_cannot_be_measured_is_refused() -> None:
    assert HandOverPlan().settings.connections == 2_000_000
    for connections in (999, 4_000_001):
        with pytest.raises(Mistake, match=f"--connections {connections}"):
            HandOverPlan(connections=connections)
