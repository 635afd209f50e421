"""`tailrace bench hop` as a user runs it, with real switches: shape and plausibility, no figures to reach."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import ready_command

from tailrace.bench.traffic import KINDS
from tailrace.resources.hugepages import POOL
from tailrace.state.record import FilePath, hold_run

pytestmark = [
    pytest.mark.requires_root,
    pytest.mark.requires_hugepages,
    pytest.mark.requires_program("ovs-vswitchd-dpdk", "dpdk-testpmd", "tailrace-switch", "tailrace-core-to-core"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs, for a switch and its load"),
]
PAGES = POOL / "nr_hugepages"


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TAILRACE_STATE": str(folder / "state")}


def hop(tailrace: Path, folder: Path, *options: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    words = ("bench", "hop", *options)
    return ready_command.run(tailrace, words, environment=environment(folder), folder=Path.cwd(), timeout=timeout)


def check_pair(pair: dict[str, Any]) -> None:
    for name in ("tailrace", "ovs-dpdk"):
        assert 5 < pair[name]["cycles_per_packet"] < 20_000
        assert 0.01 < pair[name]["mpps"] < 200
        assert 0 < pair[name]["busy"] <= 1
    assert 5 < pair["core_to_core_ns"] < 100_000
    assert pair["near"] == (pair["core_to_core_ns"] < 150)


def test_one_pair_beside_open_vswitch(tailrace: Path, tmp_path: Path) -> None:
    pages = PAGES.read_text()
    options = ("--frame", "64", "--pairs", "1", "--seconds", "1", "--against", "ovs-dpdk", "--json")
    for _ in range(3):
        done = hop(tailrace, tmp_path, *options)
        if "ovs-dpdk, 64 B: the guests sent" not in done.stderr:  # at times it loses a ring of frames, and counts none
            break
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["frame"] == 64
    # More than one only where the cores moved during each.
    pairs = result["pairs"]
    assert len(pairs) == 1 or not any(pair["steady"] for pair in pairs)
    for pair in pairs:
        check_pair(pair)
    ratios = [pair["ovs-dpdk"]["cycles_per_packet"] / pair["tailrace"]["cycles_per_packet"] for pair in pairs]
    assert result["ratios"]["cycles"] == pytest.approx(statistics.median(ratios), rel=0.01)
    ratios = [pair["tailrace"]["mpps"] / pair["ovs-dpdk"]["mpps"] for pair in pairs]
    assert result["ratios"]["mpps"] == pytest.approx(statistics.median(ratios), rel=0.01)
    assert result["machine"]["versions"].keys() >= {"tailrace-switch", "openvswitch", "dpdk"}
    assert PAGES.read_text() == pages
    assert not (tmp_path / "state").exists()


def test_alone_it_has_no_ratio_and_prints_a_table_whatever_a_killed_run_has_left(
    tailrace: Path, tmp_path: Path
) -> None:
    with hold_run(tmp_path / "state") as state:  # ends as if it were killed: nothing is undone
        (left := tmp_path / "left").touch()
        state.add(FilePath(str(left)))
    done = hop(tailrace, tmp_path, "--frame", "1518", "--pairs", "1", "--seconds", "0.5", "--against", "none")
    assert done.returncode == 0, done.stderr
    assert "1518 B frames" in done.stdout
    assert not left.exists()
    assert not (tmp_path / "state").exists()
    assert "ovs-dpdk" not in done.stdout


def test_kinds_of_traffic_alone_are_one_table(tailrace: Path, tmp_path: Path) -> None:
    options = ("--traffic", "checksum,many", "--pairs", "1", "--seconds", "0.25", "--against", "none")
    done = hop(tailrace, tmp_path, *options)
    assert done.returncode == 0, done.stderr
    rows = [line.split()[:2] for line in done.stdout.splitlines() if line.strip()]
    assert all([kind, figure] in rows for kind in ("checksum", "many") for figure in ("cycles", "Mpps"))
    assert "failed" not in done.stdout


@pytest.mark.whole
def test_every_kind_of_traffic_beside_open_vswitch(tailrace: Path, tmp_path: Path) -> None:
    pages = PAGES.read_text()
    done = hop(tailrace, tmp_path, "--traffic", "all", "--pairs", "1", "--seconds", "1", "--json", timeout=400)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["failed"] == {}
    assert [each["traffic"] for each in result["kinds"]] == list(KINDS)
    for each in result["kinds"]:
        assert each["bench"] == "hop"
        assert all(ratio > 0 for ratio in each["ratios"].values())
        for pair in each["pairs"]:
            assert all(5 < pair[name]["cycles_per_packet"] < 100_000 for name in ("tailrace", "ovs-dpdk"))
    assert PAGES.read_text() == pages
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--frame", "60"), "64 to 1518"),
        (("--frame", "64", "--against", "vpp"), "expected ovs-dpdk or none"),
        (("--traffic", "plain,udp"), "--traffic udp: expected all or some of plain, checksum"),
        (("--traffic", "pin,mixed,iperf", "--frame", "64"), "--frame 64: expected none with --traffic mixed,iperf"),
        (("--traffic", "iperf", "--seconds", "0.25"), "expected whole seconds"),
        (("--pairs", "1001"), "--pairs 1001: expected 1 to 1000"),
        (("--frame", "64", "--cores", "0,0"), "two different CPUs"),
        (("--frame", "64", "--cores", "zero"), "such as 1,0"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    tailrace: Path, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    done = hop(tailrace, tmp_path, *options)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(tailrace: Path, tmp_path: Path, number: signal.Signals) -> None:
    pages = PAGES.read_text()
    running = subprocess.Popen(
        [tailrace, "bench", "hop", "--frame", "64", "--against", "ovs-dpdk", "--seconds", "30"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    )
    log = tmp_path / "state/run/logs/testpmd.log"
    deadline = time.monotonic() + 100
    while not (log.exists() and "tx_first" in log.read_text(errors="replace")):
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline, "no traffic within 100 s"
        time.sleep(0.05)
    running.send_signal(number)
    _, errors = running.communicate(timeout=60)
    assert running.returncode != 0
    assert "Traceback" not in errors
    assert PAGES.read_text() == pages
    assert not (tmp_path / "state").exists()


def test_a_guest_that_dies_fails_the_run_and_leaves_nothing(tailrace: Path, tmp_path: Path) -> None:
    pages = PAGES.read_text()
    running = subprocess.Popen(
        [tailrace, "bench", "hop", "--frame", "64", "--seconds", "30", "--against", "none"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    )
    state = tmp_path / "state/run/state.json"
    log = tmp_path / "state/run/logs/testpmd.log"
    deadline = time.monotonic() + 100
    while not (log.exists() and "tx_first" in log.read_text(errors="replace")):
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline, "no traffic within 100 s"
        time.sleep(0.05)
    (load,) = (thing for thing in json.loads(state.read_text())["things"] if thing.get("name") == "testpmd")
    os.kill(load["pid"], signal.SIGKILL)
    output, errors = running.communicate(timeout=60)
    assert running.returncode == 1
    assert output == ""
    assert "testpmd was killed by signal 9 (SIGKILL)" in errors.replace("\n", " ")
    assert PAGES.read_text() == pages
    assert not (tmp_path / "state").exists()
