"""Who had which ports of a NAT's pool when: read from what its instances have logged, however these ended."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tailrace.cli.function import _blocks, moment
from tailrace.errors import Mistake
from tailrace.kernel.boot import boot_id
from tailrace.node import operations
from tailrace.observe.block_log import read
from tailrace.process.process import identify
from tailrace.state.folder import ENVIRONMENT
from tailrace.state.record import Process, Record, State

SAYS = "2026-11-30T12:00:00.000Z tailrace-vnf: info: "
FIRST = (
    "blocks: 2026-11-30T12:00:00Z begins",
    "forwarding",
    "blocks: 2026-11-30T12:01:00Z assigned 10.0.0.2 198.51.100.7 39936-40447 1",
    "blocks: 2026-11-30T12:02:00Z assigned 10.0.0.3 198.51.100.7 40448-40959 2 vlan 5 7",
    "blocks: 2026-11-30T12:05:00Z released 10.0.0.2 198.51.100.7 39936-40447 3",
    "blocks: 2026-11-30T12:05:00Z assigned 10.0.0.4 198.51.100.7 39936-40447 4",
)
SECOND = (
    "blocks: 2026-11-30T12:10:00Z begins",
    "blocks: 2026-11-30T12:10:01Z kept 10.0.0.4 198.51.100.7 39936-40447 1",
    "blocks: 2026-11-30T12:11:00Z left out 36 (2-37)",
)


@pytest.fixture(name="folder")
def fixture_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a NAT that is in its second instance, which runs."""
    name = identify(os.getpid())
    assert name is not None
    running = Process("gate@2", name.pid, name.start, "tailrace-vnf", runtime="process")
    record = Record(boot_id(), things=[running], instances={"gate": 2})
    record.plan = {
        "functions": [
            {"name": "gate", "function": "gate", "kind": "nat"},
            {"name": "fw", "function": "fw", "kind": "x"},
        ]
    }
    state = State(tmp_path, record)
    state.save()
    state.logs.mkdir()
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path))
    write(tmp_path, "gate.log", *FIRST)
    write(tmp_path, "gate@2.log", *SECOND)
    write(tmp_path, "gate-2.log", *FIRST)  # another function's
    return tmp_path


def write(folder: Path, name: str, *lines: str, before: str = SAYS, end: str = "\n") -> None:
    (folder / "logs" / name).write_bytes("".join(before + line + end for line in lines).encode())


def clock(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-11-30T{text}Z")


def who(folder: Path, port: int, time: str, seconds: int = 0) -> list[tuple[str, str]]:
    begin = clock(time)
    found = read(folder, "gate").of("198.51.100.7", port, begin, begin + timedelta(seconds=seconds))
    return [(each.host, each.instance) for each in found]


def test_a_host_has_a_block_from_its_line_until_it_is_released(folder: Path) -> None:
    assert who(folder, 40000, "12:00:59") == []
    assert who(folder, 40000, "12:03:00") == [("10.0.0.2", "gate")]
    assert who(folder, 40447, "12:05:00", 59) == [("10.0.0.2", "gate"), ("10.0.0.4", "gate")]
    assert who(folder, 40448, "12:03:00") == [("10.0.0.3", "gate")]
    assert who(folder, 40960, "12:03:00") == []
    (tagged,) = (each for each in read(folder, "gate").held if each.vlan)
    assert (tagged.host, tagged.vlan, tagged.first, tagged.last) == ("10.0.0.3", "5 7", 40448, 40959)


def test_blocks_of_an_instance_that_was_killed_end_where_the_next_one_begins(folder: Path) -> None:
    assert who(folder, 40500, "12:09:59") == [("10.0.0.3", "gate")]
    assert who(folder, 40500, "12:10:01") == []
    assert who(folder, 40000, "12:10:01") == [("10.0.0.4", "gate@2")]


def test_one_that_was_replaced_has_its_own_until_it_ends(folder: Path) -> None:
    write(folder, "gate.log", *FIRST, "blocks: 2026-11-30T12:10:05Z ends")
    assert who(folder, 40500, "12:10:04") == [("10.0.0.3", "gate")]
    assert who(folder, 40500, "12:10:06") == []
    assert who(folder, 40000, "12:30:00") == [("10.0.0.4", "gate@2")]


def test_what_ran_last_and_ended_without_a_word_has_nothing_any_more(folder: Path) -> None:
    path = folder / "logs" / "gate@2.log"
    path.rename(folder / "logs" / "gate@3.log")
    os.utime(folder / "logs" / "gate@3.log", (clock("12:20:00").timestamp(),) * 2)
    assert who(folder, 40000, "12:19:00") == [("10.0.0.4", "gate@3")]
    assert who(folder, 40000, "12:21:00") == []


def test_a_log_that_began_anew_goes_on(folder: Path) -> None:
    (folder / "logs" / "gate.log").rename(folder / "logs" / "gate.log.1")
    write(folder, "gate.log", "blocks: 2026-11-30T12:06:00Z released 10.0.0.4 198.51.100.7 39936-40447 5")
    assert who(folder, 40000, "12:05:30") == [("10.0.0.4", "gate")]
    assert who(folder, 40000, "12:07:00") == []
    (folder / "logs" / "gate.log.1").unlink()  # what is older than the oldest log
    assert who(folder, 40000, "12:05:30") == [("10.0.0.4", "gate")]
    assert read(folder, "gate").held[0].since is None


@pytest.mark.parametrize(
    ("before", "end"),
    [("2026-11-30T12:00:00.123456789+00:00 stderr F tailrace-vnf: info: ", "\n"), ("tailrace-vnf: info: ", "\r\n")],
)
def test_logs_of_containers_and_machines_are_read_too(folder: Path, before: str, end: str) -> None:
    write(folder, "gate.log", *FIRST, before=before, end=end)
    assert who(folder, 40000, "12:03:00") == [("10.0.0.2", "gate")]


def test_what_does_not_hold_is_no_line(folder: Path) -> None:
    write(
        folder,
        "gate.log",
        "blocks: 2026-11-30T12:00:00Z assigned \x1b[2J 198.51.100.7 39936-40447 1",
        "blocks: 2026-11-30T12:00:00Z assigned 10.0.0.2 198.51.100.7 39936-40447",
        "blocks: 12:00 assigned 10.0.0.2 198.51.100.7 39936-40447 1",
        "blocks: 2026-11-30T12:00:00Z assigned 10.0.0.2 198.51.100.7 39936-40447 1 vlan 5 6 7",
        "blocks: 2026-13-30T12:00:00Z assigned 10.0.0.2 198.51.100.7 39936-40447 1",
        "\udc80".encode(errors="surrogateescape").decode("latin1"),
    )
    assert {each.instance for each in read(folder, "gate").held} == {"gate@2"}


@pytest.mark.usefixtures("folder")
def test_the_command_says_who_and_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    assert _blocks("gate", "198.51.100.7:40000", "2026-11-30T12:03", as_json=False) == 0
    heading, row, left_out = capsys.readouterr().out.splitlines()
    assert heading.split()[0] == "host"
    assert row.split() == [
        "10.0.0.2",
        "-",
        "198.51.100.7",
        "39936-40447",
        "2026-11-30T12:01:00Z",
        "2026-11-30T12:05:00Z",
        "gate",
    ]
    assert left_out == "gate@2: 36 events before 2026-11-30T12:11:00Z were left out"
    _blocks("gate", None, "2026-11-30T11:00", as_json=False)
    assert "begin at 2026-11-30T12:00:00Z; what was before is not known" in capsys.readouterr().out
    _blocks("gate", None, None, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert [each["host"] for each in found["blocks"]] == ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.4"]
    assert found["blocks"][-1]["until"] is None and found["begins"] == "2026-11-30T12:00:00Z"
    assert found["left_out"] == [{"instance": "gate@2", "time": "2026-11-30T12:11:00Z", "count": 36}]


def test_mistakes_are_said(folder: Path) -> None:
    with pytest.raises(Mistake, match="expected a function of kind nat"):
        read(folder, "fw")
    with pytest.raises(Mistake, match="no function 'none' is up"):
        read(folder, "none")
    for wrong in ("gate", "198.51.100.7:0", "198.51.100.7:x", "198.51.100.7:", "198.51.100.700"):
        with pytest.raises(Mistake, match=r"expected one of the pool, such as 198\.51\.100\.7"):
            _blocks("gate", wrong, None, as_json=False)
    with pytest.raises(Mistake, match="--at noon: not a time; expected one in UTC such as 12:03"):
        _blocks("gate", None, "noon", as_json=False)


@pytest.mark.parametrize(
    ("text", "begin", "seconds"),
    [
        ("12:03", "12:03:00", 59),
        ("12:03:20", "12:03:20", 0),
        ("2026-11-30T12:03", "12:03:00", 59),
        ("2026-11-30T14:03+02:00", "12:03:00", 59),
        ("2026-11-30T12:03:20Z", "12:03:20", 0),
        ("2h", "13:00:00", 0),
    ],
)
def test_a_time_without_seconds_is_a_minute(text: str, begin: str, seconds: int) -> None:
    found = moment(text, datetime(2026, 11, 30, 15, tzinfo=UTC))
    assert found == (clock(begin), clock(begin) + timedelta(seconds=seconds))


def test_logs_of_old_instances_stay_as_long_as_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "logs").mkdir()
    monkeypatch.setattr(operations, "_LOGS_BYTES", 100)
    state = cast(State, SimpleNamespace(logs=tmp_path / "logs", record=SimpleNamespace(instances={"gate": 5})))
    names = {5: "gate@5.log", 4: "gate@4.log", 3: "gate@3.log", 2: "gate@2.log", 1: "gate.log"}

    def kept(**sizes: int) -> list[int]:
        for instance, name in names.items():
            (tmp_path / "logs" / name).write_bytes(b"x" * sizes.get(f"of_{instance}", 10))
        (tmp_path / "logs" / "gate@2.log.1").write_bytes(b"x")
        operations._forget_logs(state, "gate")
        return [instance for instance, name in names.items() if (tmp_path / "logs" / name).exists()]

    assert kept() == [5, 4, 3, 2, 1]
    assert kept(of_3=70, of_2=20) == [5, 4, 3]
    assert not (tmp_path / "logs" / "gate@2.log.1").exists()
    assert kept(of_5=200, of_4=200) == [5, 4]
    monkeypatch.setattr(operations, "_LOGS", 3)
    assert kept() == [5, 4, 3]
