"""What the dashboard's views ask the server for: functions, the host, the measurement under way, and runs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from machines import make
from run_folders import add, joined, run_folder
from served_dashboard import BEARER, TOKEN, MadeUp, ask, served, status_with_functions
from soaks import header, intervals, part
from tester_results import both_ways

from tailrace.dashboard import functions
from tailrace.dashboard.host import Host
from tailrace.dashboard.measurement import _COLUMNS, HeatMap, Measurement
from tailrace.errors import Failure
from tailrace.kernel.tree import Tree
from tailrace.observe.function_log import last_lines
from tailrace.results import RunFolder
from tailrace.results.histogram import Histogram
from tailrace.results.interval_log import SUFFIX, IntervalLog
from tailrace.results.lock import alone_in


@pytest.fixture(autouse=True)
def no_slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    with served(MadeUp(), folder=tmp_path) as port:
        yield port


def asked(port: int, path: str) -> Any:
    answer = ask(port, f"/api/{path}", BEARER)
    assert answer.status == 200, answer.text
    return json.loads(answer.text)


# --- functions -----------------------------------------------------------------------------------------------------


def test_functions_say_where_they_live(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "status", status_with_functions)
    found = asked(port, "functions")
    assert not found["control"]
    first, second = found["functions"]
    assert (first["runs"], first["state"], first["restarts"], first["flows"]) == ("machine", "active", 2, 7)
    assert first["cpus"]
    assert (second["state"], second["pid"]) == ("stopped", None)


def test_what_cannot_be_asked_is_said(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(_: Path) -> None:
        raise Failure("the record is damaged")

    monkeypatch.setattr(functions, "status", damaged)
    answer = ask(port, "/api/functions", BEARER)
    assert (answer.status, json.loads(answer.text)) == (503, {"error": "the record is damaged"})
    assert ask(port, "/api/functions/none/log", BEARER).status in (404, 503)


def test_only_with_control_is_anything_changed(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(MadeUp(), folder=tmp_path, control=True) as port_without_node:
        answer = ask(port_without_node, "/api/functions/nat/restart", BEARER, "POST")
        assert answer.status == 503 and "nothing is up; run `tailrace up SPEC`" in answer.text
    restarted = []
    monkeypatch.setattr(functions, "restart", lambda _, name: restarted.append(name) or {"version": 8})
    path = "/api/functions/nat/restart"
    assert ask(port, path, BEARER, "POST").status == 405
    with served(MadeUp(), folder=tmp_path, control=True) as port:
        cookie = ask(port, f"/?token={TOKEN}").getheader("Set-Cookie").partition(";")[0]
        for headers in ({}, {"Cookie": cookie}, {"Cookie": cookie, "Origin": "http://evil.example"}):
            assert ask(port, path, headers, "POST").status == 403
        assert restarted == []
        assert ask(port, path, {"Cookie": cookie, "Origin": f"http://127.0.0.1:{port}"}, "POST").status == 200
        assert json.loads(ask(port, path, BEARER, "POST").text) == {"version": 8}
        assert ask(port, path, BEARER).status == 405
    assert restarted == ["nat", "nat"]


def test_the_last_lines_of_a_long_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"{number} {'x' * (number % 900)}\n" for number in range(3000)) + "no end")
    with log.open("rb") as file:
        found = last_lines(file, 20)
        assert [line.partition(" ")[0] for line in found[:-1]] == [str(number) for number in range(2981, 3000)]
        assert found[-1] == "no end"
        assert file.read() == b""
        assert len(last_lines(file, 9999)) == 3001


# --- the host ------------------------------------------------------------------------------------------------------


def test_the_host_as_the_kernel_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, {
        "proc/stat": "cpu 0 0 0 0\ncpu0 100 0 0 900 0 0 0 0 0 0\ncpu1 0 0 0 1000 0 0 0 0 0 0\n",
        "proc/interrupts": "      CPU0 CPU1\n 1: 5 10 chip timer\nLOC: 0 7 Local\nERR: 3\n",
        "sys/class/thermal/thermal_zone0/type": "x86_pkg_temp\n",
        "sys/class/thermal/thermal_zone0/temp": "48500\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "2400000\n",
    })  # fmt: skip
    host = Host(Tree(tmp_path))
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 10.0)
    make(tmp_path, {"proc/stat": "cpu0 600 0 0 1400 0 0 0 0 0 0\ncpu1 0 0 0 2000 0 0 0 0 0 0\n"})
    make(tmp_path, {"proc/interrupts": "      CPU0 CPU1\n 1: 5 30 chip timer\nLOC: 0 7 Local\nERR: 3\n"})
    found = host.document()
    first, second = found["cpus"]
    assert (first["busy"], first["mhz"], second["busy"]) == (0.5, 2400, 0.0)
    assert second["interrupts"] == pytest.approx(2.0, rel=0.1)
    assert found["temperatures"] == [{"name": "x86_pkg_temp", "celsius": 48.5}]
    assert "no profile is applied" in found["verify"]["why"]
    assert host.document() is found, "asked again at once"


def test_this_host(port: int) -> None:
    found = asked(port, "host")
    assert len(found["cpus"]) == len([line for line in Path("/proc/stat").read_text().splitlines() if line[:4] > "cpu "
                                      and line.startswith("cpu")])  # fmt: skip


# --- the measurement under way -------------------------------------------------------------------------------------


def test_a_soak_is_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    place = tmp_path / "run/histograms"
    place.mkdir(parents=True)
    log = IntervalLog.create(place / f"soak-64{SUFFIX}", header(3600.0))
    log.begin(part())
    measurement = Measurement(tmp_path)
    made = list(intervals(20))
    with alone_in(tmp_path / "run"):
        for interval in made[:12]:
            log.add(interval)
        found = measurement.document()
        assert (found["state"], found["method"], found["intervals"]) == ("running", "soak", 12)
        assert found["ways"][0]["latency_us"]["p99.99"] > 0
        assert len(found["heat"]["columns"]) == 12
        for interval in made[12:]:
            log.add(interval)
        assert measurement.document() is found, "asked again at once"
        now = 2.0
        found = measurement.document()
    assert found["intervals"] == len(found["heat"]["columns"]) == 20
    frames = sum(count for column in found["heat"]["columns"] for _, count in column["counts"])
    assert frames == sum(histogram.count for interval in made for histogram in interval.histograms)
    json.dumps(found, allow_nan=False)
    log.close()


def test_trials_and_their_slowest_frames(tmp_path: Path) -> None:
    run = run_folder(tmp_path, profiles=("64",), chains=2)
    found = Measurement(tmp_path).document()
    assert (found["run"], found["state"]) == (run.path.name, "done")
    assert [(each["trial"], each["way"]) for each in found["ways"][:2]] == [("64-0", "a-to-b"), ("64-0", "b-to-a")]
    assert [column["label"] for column in found["heat"]["columns"]] == ["64-0", "64-1"]
    with RunFolder.create(tmp_path, "later", spec="", host={}, command=[], versions={}) as later:
        add(later, both_ways(1000) | {"hops": {"a-to-b": joined()}}, functions=2)
    os.utime(later.path / "results.json", (2e9, 2e9))
    found = Measurement(tmp_path).document()
    assert found["run"] == later.path.name
    assert found["slowest"][0]["part"]
    json.dumps(found, allow_nan=False)


def test_nothing_measured_yet(port: int) -> None:
    assert "nothing has been measured" in asked(port, "measurement")["why"]
    assert asked(port, "runs")["runs"] == []


def test_a_heat_map_is_bounded() -> None:
    heat = HeatMap()
    for number in range(5 * _COLUMNS + 3):
        heat.add(str(number), Histogram(((number % 300, 2),), 1, 300, 9))
    found = heat.document()
    assert _COLUMNS / 2 <= len(found["columns"]) <= _COLUMNS
    assert sum(count for column in found["columns"] for _, count in column["counts"]) == 2 * (5 * _COLUMNS + 3)
    assert HeatMap().document() == {"from_us": [], "columns": []}


# --- runs ----------------------------------------------------------------------------------------------------------


def test_runs_their_reports_and_what_changed(tmp_path: Path, port: int) -> None:
    a = run_folder(tmp_path / "runs", profiles=("64",)).path.name
    b = run_folder(tmp_path / "runs", profiles=("64",), versions={"tailrace": "0.2.0"}).path.name
    assert {each["folder"] for each in asked(port, "runs")["runs"]} == {a, b}
    changed = asked(port, f"diff?a={a}&b={b}")
    assert changed["versions"] == {"tailrace": {"a": "0.1.0", "b": "0.2.0"}}
    report = ask(port, f"/api/runs/{a}/report", BEARER)
    assert report.status == 200 and "<!doctype html>" in report.text.lower()
    policy = report.getheader("Content-Security-Policy")
    assert policy.startswith("sandbox allow-scripts; default-src 'none'; ") and "same-origin" not in policy


@pytest.mark.parametrize("name", ["..", "%2e%2e", "none", "..%2fruns", ""])
def test_a_run_is_one_of_the_list(tmp_path: Path, port: int, name: str) -> None:
    run_folder(tmp_path / "runs", profiles=("64",), chains=1)
    assert ask(port, f"/api/runs/{name}/report", BEARER).status == 404
    assert ask(port, f"/api/diff?a={name}&b={name}", BEARER).status == 404
