"""The stream on disk: bounded, replayed from any moment, and what is said of one that was cut short."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import to_json
from running_node import wait_until
from served_dashboard import BEARER, MadeUp, ask, served

from tailrace.cli.dashboard import DashboardOptions, dashboard
from tailrace.dashboard import record as module
from tailrace.dashboard.record import Record, Recorder, previous
from tailrace.errors import Failure, Mistake


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1e9]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


def write(recorder: Recorder, clock: list[float], pictures: int) -> None:
    for _ in range(pictures):
        clock[0] += 0.1
        recorder.write(lambda: to_json({"whole": clock[0]}), to_json({"change": clock[0]}))


def lines(record: Record, at: float) -> list[dict[str, Any]]:
    return [json.loads(line) for line in record.part(at).splitlines()]


def test_any_part_can_be_replayed(tmp_path: Path, clock: list[float]) -> None:
    recorder = Recorder(tmp_path / "record", 1 << 20)
    write(recorder, clock, 250)
    record = Record(tmp_path / "record", recording=True)
    said = record.document()
    assert len(said["parts"]) == 3 and not said["cut"]
    for at in said["parts"]:
        first, *others = lines(record, at)
        assert first["at"] == at and "whole" in first and all("change" in each for each in others)
    write(recorder, clock, 100)
    assert len(record.document()["parts"]) == 4, "it is read on"
    recorder.close()
    assert not Record(tmp_path / "record", recording=False).document()["cut"]


def test_it_is_bounded(tmp_path: Path, clock: list[float]) -> None:
    file = tmp_path / "record"
    recorder = Recorder(file, 20_000)
    record = Record(file, recording=True)
    for _ in range(40):
        write(recorder, clock, 100)
        parts = record.document()["parts"]
        assert parts == sorted(parts)
        assert file.stat().st_size + (previous(file).stat().st_size if previous(file).exists() else 0) < 30_000
    assert lines(record, parts[0])[0]["at"] == parts[0], "of the one before"
    with pytest.raises(Mistake, match="the oldest go first"):
        record.part(1e9 + 0.1)
    recorder.close()


@pytest.mark.parametrize("torn", [0, 1, 40])
def test_one_that_was_cut_short(tmp_path: Path, clock: list[float], torn: int) -> None:
    file = tmp_path / "record"
    write(Recorder(file, 1 << 20), clock, 150)
    file.write_bytes(file.read_bytes()[: -torn or None])
    said = Record(file, recording=False).document()
    assert said["cut"] and len(said["parts"]) == 2


def test_what_is_no_record(tmp_path: Path) -> None:
    file = tmp_path / "record"
    with pytest.raises(Failure, match="No such file"):
        Record(file, recording=False).document()
    for content in (b"\x00\xff\n", b"[]\n", b'{"tailrace":9}\n', b'{"tailrace":1}\nnonsense\n'):
        file.write_bytes(content)
        with pytest.raises(Failure, match=r"not a record of `tailrace dashboard --record`"):
            Record(file, recording=False).document()
    with pytest.raises(Mistake):
        Recorder(tmp_path, 1 << 20)
    with pytest.raises(Mistake):
        Recorder(tmp_path / "none/record", 1 << 20)
    with pytest.raises(Mistake, match="expected one of them"):
        dashboard(DashboardOptions("127.0.0.1:0", None, record=file, replay=file))


@pytest.mark.parametrize(
    "content", [b"", b'{"tailrace":1', b'{"tailrace":1}\n{"at":1'], ids=["none", "head", "picture"]
)
def test_one_without_a_picture_is_said(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "record"
    file.write_bytes(content)
    with pytest.raises(Mistake, match=f"{file}: nothing was recorded in it, or it was cut short before its first"):
        dashboard(DashboardOptions("127.0.0.1:0", None, replay=file))


def test_a_full_disk_ends_the_record_alone(tmp_path: Path, clock: list[float]) -> None:
    recorder = Recorder(tmp_path / "record", 1 << 20)
    recorder._file.close()
    recorder._file = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115
    write(recorder, clock, 2)
    assert "No space left on device" in recorder.why
    recorder.close()


def test_it_is_recorded_while_nobody_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART", 1.0)
    recorder = Recorder(tmp_path / "record", 1 << 20)
    with served(MadeUp(), recorder=recorder) as port:
        assert json.loads(ask(port, "/api/record", BEARER).text)["recording"]
        parts = wait_until(lambda: json.loads(ask(port, "/api/record", BEARER).text)["parts"][1:])
        part = ask(port, f"/api/record/{parts[0]}", BEARER)
        assert (part.status, part.getheader("Content-Type")) == (200, "application/x-ndjson")
        assert "chains" in json.loads(part.text.splitlines()[0])["whole"]
    with served(MadeUp(), replayed=tmp_path / "record") as port:
        said = json.loads(ask(port, "/api/record", BEARER).text)
        assert (said["recording"], said["cut"]) == (False, False)
        assert ask(port, "/api/record/1.0", BEARER).status == 404
    with served(MadeUp()) as port:
        assert json.loads(ask(port, "/api/record", BEARER).text) == {"parts": []}
        assert ask(port, "/api/record/1.0", BEARER).status == 404
