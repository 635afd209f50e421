"""The index of runs: it finds them, and being lost, damaged, old or read-only costs nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import Mistake
from tailrace.results import RunFolder
from tailrace.results.index import INDEX, find_runs, host_name
from tailrace.results.run import write_atomically


def make(runs: Path, method: str, spec: str | None, host: str, fabric: str, day: int) -> Path:
    folder = RunFolder.create(
        runs, f"{method}-{spec}", spec="", host={"system": {"name": host}, "cpu": {"model": "Some CPU"}}, command=[],
        versions={}, method=method, spec_name=spec, fabric=fabric,
    )  # fmt: skip
    started = datetime(2026, 11, day, 12, tzinfo=UTC)
    run = folder.run.model_copy(update={"started": started, "finished": started + timedelta(hours=1)})
    write_atomically(folder.path / "results.json", run.to_json())
    return folder.path


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    runs = tmp_path / "runs"
    make(runs, "latency", "chain", "lab-1", "tailrace", 1)
    make(runs, "throughput", "chain", "lab-2", "tailrace", 3)
    make(runs, "latency", "chain-of-two", "lab-1", "ovs-dpdk", 2)
    make(runs, "soak", None, "Office [A]", "linux-bridge", 4)
    return runs


def found(runs: Path, **wanted: Any) -> list[tuple[str | None, str | None]]:
    return [(entry.method, entry.spec) for entry in find_runs(runs, **wanted)]


ALL = [("soak", None), ("throughput", "chain"), ("latency", "chain-of-two"), ("latency", "chain")]


def test_the_newest_is_first_and_everything_is_said(runs: Path) -> None:
    assert found(runs) == ALL
    entry = find_runs(runs)[-1]
    assert (entry.host, entry.fabric, entry.trials, entry.unreadable) == ("lab-1", "tailrace", 0, None)
    assert entry.started == datetime(2026, 11, 1, 12, tzinfo=UTC).timestamp()
    assert entry.finished == entry.started + 3600
    assert entry.reason == "the run has not finished"


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        ({"spec": "chain"}, [1, 3]),
        ({"until": datetime(2026, 11, 3, tzinfo=UTC)}, [2, 3]),
        ({"since": datetime(2026, 11, 2, tzinfo=UTC), "until": datetime(2026, 11, 4, tzinfo=UTC)}, [1, 2]),
        ({"spec": "chain*"}, [1, 2, 3]),
        ({"host": "LAB-1"}, [2, 3]),
        ({"host": "lab-?", "method": "latency"}, [2, 3]),
        ({"host": "office [a]"}, [0]),
        ({"fabric": "ovs-dpdk"}, [2]),
        ({"fabric": "tailrace", "spec": "chain", "host": "lab-2"}, [1]),
        ({"since": datetime(2026, 11, 3, tzinfo=UTC)}, [0, 1]),
        ({"since": datetime(2026, 11, 3, 13, tzinfo=UTC)}, [0]),
        ({"spec": "' OR 1=1 --"}, []),
        ({"spec": ""}, []),
    ],
)
def test_runs_are_found_by_what_they_are_of(runs: Path, wanted: dict[str, Any], numbers: list[int]) -> None:
    assert found(runs, **wanted) == [ALL[number] for number in numbers]


def test_new_changed_and_removed_folders_are_noticed(runs: Path) -> None:
    assert found(runs) == ALL
    new = make(runs, "loss", "chain", "lab-1", "tailrace", 5)
    assert found(runs)[0] == ("loss", "chain")
    shutil.rmtree(new)
    assert found(runs) == ALL
    folder = runs / find_runs(runs)[0].folder
    folder.rename(runs / "renamed")
    assert find_runs(runs)[0].folder == "renamed"
    text = (runs / "renamed/results.json").read_text()
    write_atomically(runs / "renamed/results.json", text.replace('"method": "soak"', '"method": "burst"'))
    assert found(runs)[0] == ("burst", None)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b"not a database at all, but long enough to look like one" * 100),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:5000]),
        lambda path: _execute(path, "DROP TABLE runs"),
        lambda path: _execute(path, "ALTER TABLE runs DROP COLUMN fabric"),
        lambda path: _execute(path, "PRAGMA user_version = 7"),
        lambda path: _execute(path, "DELETE FROM runs"),
    ],
)  # fmt: skip
def test_an_index_that_is_lost_or_damaged_is_made_anew(runs: Path, damage: Any) -> None:
    find_runs(runs)
    damage(runs / INDEX)
    assert found(runs) == ALL
    with sqlite3.connect(runs / INDEX) as database:
        assert database.execute("SELECT count(*) FROM runs").fetchone() == (4,)
    database.close()


def _execute(path: Path, statement: str) -> None:
    database = sqlite3.connect(path)
    database.execute(statement)
    database.commit()
    database.close()


def test_where_no_index_can_be_written_runs_are_found_all_the_same(runs: Path) -> None:
    (runs / INDEX).mkdir()
    assert found(runs, spec="chain") == [ALL[1], ALL[3]]
    assert (runs / INDEX).is_dir()


def test_results_that_cannot_be_read_are_listed_with_the_reason_and_read_when_they_can(runs: Path) -> None:
    path = runs / find_runs(runs)[0].folder / "results.json"
    whole = path.read_text()
    path.write_text(whole[:100])
    last = find_runs(runs)[-1]
    assert last.unreadable is not None
    assert "not JSON" in last.unreadable
    assert len(found(runs, host="*")) == 3
    path.write_text(whole.replace('"format": ', '"format": 9'))
    assert "upgrade Tailrace" in (find_runs(runs)[-1].unreadable or "")
    path.write_text(whole)
    assert found(runs) == ALL


def test_other_things_in_the_folder_are_no_runs(runs: Path) -> None:
    (runs / "notes").mkdir()
    (runs / "a-file.zip").write_text("")
    os.mkfifo(runs / "pipe")
    shutil.copytree(runs / find_runs(runs)[0].folder, runs / ".import-x1y2z3")  # of an import that was killed
    assert found(runs) == ALL


def test_a_folder_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="no such folder"):
        find_runs(tmp_path / "runs")


def test_a_host_is_called_by_its_name_else_by_its_processor() -> None:
    assert host_name({"system": {"name": "lab-1"}, "cpu": {"model": "x"}}) == "lab-1"
    assert host_name({"system": {"name": None}, "cpu": {"model": "x"}}) == "x"
    assert host_name({"system": "odd"}) is None
