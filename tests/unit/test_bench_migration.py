"""What `tailrace bench migration` counts, and how it is shown. No machine moves here."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from tailrace.bench.hub import Account
from tailrace.bench.migration import MigrationPlan, MigrationResult, Move, spec_of
from tailrace.bench.table import migration_table
from tailrace.errors import Failure, Mistake
from tailrace.spec.load import parse_spec

MACHINE = {"cpu": "a CPU", "switch_core": 1, "load_core": 0, "versions": {"tailrace": "1"}}


def frames(*numbers: int) -> list[tuple[float, int]]:
    """One each 10 ms."""
    return [(0.01 * at, number) for at, number in enumerate(numbers)]


@pytest.mark.parametrize(
    ("numbers", "lost", "duplicate", "late"),
    [
        ([7, 8, 9], 0, 0, 0),
        ([7, 9, 12], 3, 0, 0),
        ([7, 8, 8, 9], 0, 1, 0),
        ([7, 9, 8, 10], 0, 0, 1),
        ([7, 9, 10, 8, 8], 0, 1, 2),
        ([], 0, 0, 0),
    ],
)
def test_frames_are_accounted_for(numbers: list[int], lost: int, duplicate: int, late: int) -> None:
    account = Account.of(frames(*numbers))
    assert (account.received, account.lost, account.duplicate, account.out_of_sequence) == (
        len(numbers),
        lost,
        duplicate,
        late,
    )


def test_the_outage_is_the_longest_time_without_a_frame() -> None:
    assert Account.of([(1.0, 1), (1.25, 2), (1.5, 3), (2.0, 4)]).outage_ms == 500.0
    assert Account.of([(1.0, 1)]).outage_ms == 0.0


def result(asked: int = 2, error: Failure | None = None) -> MigrationResult:
    said = {"milliseconds": 9000.0, "pause_ms": 100, "switch_ms": 150.0, "rounds": 3, "bytes": 256 << 20}
    moves = [
        Move.of(said, Account(500, 100, 0, 0, 400.0)),
        Move.of({**said, "pause_ms": 60}, Account(600, 140, 1, 2, 600.0)),
    ]
    return MigrationResult(250.0, moves, ("emulated",), MACHINE, asked, error)


def test_what_it_cost_is_a_document() -> None:
    document = json.loads(json.dumps(result().document()))
    assert document["bench"] == "migration"
    assert document["times_ms"]["outage"] == {"count": 2, "min": 400.0, "median": 500.0, "max": 600.0}
    assert document["times_ms"]["pause"]["median"] == 80.0
    assert [document[key] for key in ("received", "lost", "duplicate", "out_of_sequence")] == [1100, 240, 1, 2]
    assert (document["published_ms"], document["within_published"]) == (500.0, 1)
    assert document["moves"][0]["frames"]["lost"] == 100 and document["notes"] == ["emulated"]
    assert document["error"] is None


def test_what_it_cost_is_a_table() -> None:
    console = Console(width=120)
    with console.capture() as shown:
        console.print(migration_table(result(), "moves"))
    assert "outage" in shown.get() and "in 1 of 2" in shown.get()
    assert "240 lost, 1 duplicated, 2 out of sequence" in shown.get() and "note: emulated" in shown.get()


def test_what_was_measured_before_a_failure_is_kept() -> None:
    cut = result(5, Failure("not enough frames come in 120 s"))
    document = json.loads(json.dumps(cut.document()))
    assert (document["asked"], len(document["moves"])) == (5, 2)
    assert document["error"] == "not enough frames come in 120 s"
    console = Console(width=120)
    with console.capture() as shown:
        console.print(migration_table(cut, "moves"))
    assert "2 moves of 5 were measured" in shown.get()


@pytest.mark.parametrize(("times", "rate"), [(0, 250), (1001, 250), (1, 9), (1, 2001)])
def test_what_is_not_measured_is_refused(times: int, rate: float) -> None:
    with pytest.raises(Mistake, match="expected"):
        MigrationPlan(times, rate)


def test_both_nodes_say_the_same_of_the_machine() -> None:
    here, there = (parse_spec(spec_of(0, ("veth0", "veth1"), arrives), "spec") for arrives in (False, True))
    assert there.functions["first"].arrives and not here.functions["first"].arrives
    assert there.chains == here.chains
