"""The benchmarks that measure our own programs, as a user runs them: shape and plausibility, no figures to reach."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from statistics import median

import pytest
import ready_command
from running_node import open_folder

from tailrace.bench.switch import CHANGES
from tailrace.resources.hugepages import POOL

pytestmark = [
    pytest.mark.requires_root,
    pytest.mark.requires_hugepages,
    pytest.mark.requires_program("dpdk-testpmd", "tailrace-switch", "tailrace-tester", "tailrace-core-to-core"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs, for a switch and its load"),
]
PAGES = POOL / "nr_hugepages"


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TAILRACE_STATE": str(folder / "state")}


def bench(tailrace: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = ("bench", *options)
    return ready_command.run(tailrace, words, environment=environment(folder), folder=Path.cwd(), timeout=280)


@pytest.mark.parametrize("what", ["first-touch", "rules-cost", "steer-cost", "tunnel-cost", "vring-cost"])
def test_a_program_without_options_refuses_each(binaries: Path, what: str) -> None:
    program = binaries / f"bench/tailrace-{what}"
    for options, status in ((["--rounds", "3"], 2), (["one", "more"], 2), (["--help"], 0)):
        done = subprocess.run([program, *options], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == status
        assert (done.stderr if status else done.stdout).startswith(f"usage: tailrace-{what}\n")


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (["64"], 2, "usage: tailrace-leave-cost [--mib N]"),
        (["--mib", "0"], 2, "--mib 0: expected an integer from 1 to 65536"),
        (["--help"], 0, "usage: tailrace-leave-cost [--mib N]"),
    ],
)
def test_how_much_a_guest_shares_that_leaves_is_an_option(
    binaries: Path, options: list[str], status: int, words: str
) -> None:
    program = binaries / "bench/tailrace-leave-cost"
    done = subprocess.run([program, *options], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status
    assert words in (done.stderr if status else done.stdout)


@pytest.mark.parametrize("options", [(), ("--connect",)])
def test_requests_to_who_hangs_up_say_so(binaries: Path, options: tuple[str, ...]) -> None:
    address = f"127.77.{os.getpid() % 256}.1"
    with socket.create_server((address, 5202)) as server:
        line = [
            binaries / "bench/tailrace-requests",
            "--client",
            address,
            "--connections",
            "1",
            "--seconds",
            "60",
            *options,
        ]
        client = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        connection, _ = server.accept()
        connection.recv(1)
        connection.close()
        output, errors = client.communicate(timeout=60)
    assert (client.returncode, output) == (1, "")
    assert "after 0 requests: Connection reset by peer" in errors


@pytest.mark.whole
def test_the_tester_beside_testpmd(tailrace: Path, tmp_path: Path) -> None:
    options = ("--frame", "64", "--flows", "100", "--pairs", "1", "--seconds", "0.5", "--json")
    done = bench(tailrace, tmp_path, "tester", *options)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["bench"], result["frame"], result["flows"]) == ("tester", 64, 100)
    pairs = result["pairs"]
    assert len(pairs) == 1 or not any(pair["steady"] for pair in pairs)  # the cores moved in it, so there is a second
    for pair in pairs:
        for name in ("tester", "testpmd"):
            assert 0.001 < pair[name]["mpps"] < 200
            assert 0 < pair[name]["busy"] <= 1
        assert pair["near"] == (pair["core_to_core_ns"] < 150)
    rates = median(pair["tester"]["mpps"] / pair["testpmd"]["mpps"] for pair in pairs)
    assert result["ratios"]["mpps"] == pytest.approx(rates, rel=0.05, abs=1e-3)
    assert result["machine"]["versions"].keys() >= {"tailrace-switch", "tailrace-tester", "dpdk"}
    assert not (tmp_path / "state").exists()


def test_starting_and_changing_the_switch(tailrace: Path, tmp_path: Path) -> None:
    done = bench(tailrace, tmp_path, "switch", "--starts", "2", "--changes", "5", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["bench"], result["frame"]) == ("switch", 64)
    ready = result["times_ms"]["start to ready"]
    assert ready["count"] == 2
    assert 1 < ready["median"] <= ready["max"] < 60_000
    assert 1 < result["memory_mib"]["0"] <= result["memory_mib"]["16"] <= 64
    assert all(result["times_ms"][name]["count"] == 5 for name in CHANGES)
    beside = result["beside"]
    assert beside["received"] > 100
    assert beside["lost"] == beside["duplicate"] == beside["out_of_sequence"] == beside["dropped"] == 0
    assert not (tmp_path / "state").exists()


OPEN_VSWITCH = pytest.mark.requires_program("ovs-vswitchd-dpdk")
WHOLE = pytest.mark.whole


@pytest.mark.parametrize(
    ("options", "sides", "ratios"),
    [
        pytest.param(
            ("latency", "--against", "ovs-dpdk"), ("tailrace", "ovs-dpdk"), "single_p50", marks=[OPEN_VSWITCH, WHOLE]
        ),
        pytest.param(
            ("chain", "--functions", "2", "--against", "ovs-dpdk"),
            ("tailrace", "ovs-dpdk"),
            "mpps",
            marks=[OPEN_VSWITCH, WHOLE],
        ),
        pytest.param(
            ("tcp", "--messages", "64,65536", "--against", "ovs-dpdk"),
            ("tailrace", "ovs-dpdk"),
            "gbps_64",
            marks=[OPEN_VSWITCH],
        ),
        pytest.param(
            ("tcp", "--messages", "64", "--against", "veth,linux-bridge"),
            ("tailrace", "veth", "linux-bridge"),
            "round_trip_linux-bridge",
            marks=WHOLE,
        ),
        pytest.param(("floor",), ("tailrace", "floor"), "cycles", marks=WHOLE),
        pytest.param(
            ("floor", "--guest", "rewrite", "--ways"),
            ("tailrace", "floor", "movsb", "next", "ahead", "ring-256"),
            "mpps_ring-256",
            marks=WHOLE,
        ),
        (("function",), ("skeleton", "testpmd"), "time"),
        pytest.param(
            ("function", "router", "--routes", "2000", "--ipv6-routes", "200", "--against", "kernel"),
            ("router", "kernel", "router_2_cores"),
            "mpps_kernel",
            marks=WHOLE,
        ),
        pytest.param(("function", "firewall"), ("skeleton", "firewall", "firewall_10000_rules"), "rules", marks=WHOLE),
        pytest.param(("function", "nat"), ("skeleton", "nat"), "mpps", marks=WHOLE),
        pytest.param(("function", "balancer"), ("skeleton", "balancer"), "cores", marks=WHOLE),
        pytest.param(("scale", "--of", "guests"), ("2-guests", "64-guests"), "guests", marks=WHOLE),
        pytest.param(("scale", "--of", "chains"), ("1-chains", "1000-chains"), "chains", marks=WHOLE),
        pytest.param(("scale", "--of", "flows"), ("1-flows", "1000000-flows"), "flows", marks=WHOLE),
        pytest.param(("idle",), ("poll", "pause", "sleep", "bare wake"), "wake_p99", marks=WHOLE),
        pytest.param(("recorder", "--functions", "1"), ("off", "on"), "paced_p50", marks=WHOLE),
        pytest.param(("interrupts",), ("off", "on", "cyclictest"), "timer_p50", marks=WHOLE),
    ],
)
def test_a_comparison_has_every_side_and_its_ratios(
    tailrace: Path, tmp_path: Path, options: tuple[str, ...], sides: tuple[str, ...], ratios: str
) -> None:
    seconds = "1" if options[0] == "tcp" or {"firewall", "nat", "balancer"} & set(options) else "0.5"
    done = bench(tailrace, tmp_path, *options, "--pairs", "1", "--seconds", seconds, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["bench"] == options[0]
    if "--functions" in options:
        assert result["functions"] == int(options[options.index("--functions") + 1])
    for pair in result["pairs"]:
        for side in sides:
            assert all(value >= 0 for value in pair[side].values())
            assert any(value > 0 for value in pair[side].values())
        if "router" in sides:  # routes were changed while frames moved
            assert pair["router"]["forwarded_meanwhile"] > 0 and pair["router"]["not_forwarded"] == 0
    assert result["ratios"][ratios] > 0
    assert not (tmp_path / "state").exists()


def test_connections_are_handed_over(tailrace: Path, tmp_path: Path) -> None:
    done = bench(tailrace, tmp_path, "handover", "--connections", "20000", "--pairs", "1", "--json")
    assert done.returncode == 0, done.stderr
    pairs = json.loads(done.stdout)["pairs"]
    assert pairs
    for pair in pairs:  # several where the host has moved the cores meanwhile
        assert pair["firewall"]["taken"] >= 19980 and pair["firewall"]["seconds"] > 0
    assert not (tmp_path / "state").exists()


def test_a_function_has_a_cpu_in_a_burst_and_gives_it_back(tailrace: Path) -> None:
    with open_folder() as folder:
        done = bench(tailrace, folder, "plug", "--automatic", "--times", "1", "--wave", "2", "--json")
        assert done.returncode == 0, done.stderr
        assert not (folder / "state").exists()
    result = json.loads(done.stdout)
    assert result["bench"] == "plug" and result["lost"] == result["traffic"]["duplicate"] == 0
    assert {name: each["count"] for name, each in result["times_ms"].items()} == {"take": 1, "give back": 1}
    assert all(each["min"] > 0 for each in result["times_ms"].values())
    assert 0 < result["busy"] < result["load"] and result["wave"]["seconds"] == 2


def test_a_configuration_of_many_chains(tailrace: Path, tmp_path: Path) -> None:
    done = bench(tailrace, tmp_path, "apply", "--chains", "100", "--times", "2", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["bench"], result["frame"], result["chains"]) == ("apply", 64, 100)
    assert result["times_ms"]["add one chain"]["count"] == 2
    assert len(result["pairs"]) == 2
    for pair in result["pairs"]:
        assert pair["alone"]["add_one_chain_ms"] > 0 and pair["beside"]["add_one_chain_ms"] > 0
    ratios = [pair["beside"]["add_one_chain_ms"] / pair["alone"]["add_one_chain_ms"] for pair in result["pairs"]]
    assert result["ratios"]["add_one_chain"] == pytest.approx(median(ratios), rel=0.01)
    beside = result["beside"]
    assert beside["lost"] == beside["duplicate"] == beside["out_of_sequence"] == beside["dropped"] == 0
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("tester", "--frame", "60"), "64 to 1518"),
        (("tester", "--flows", "0"), "1 to 1000000"),
        (("recorder", "--functions", "9"), "0 to 8"),
        (("switch", "--starts", "0"), "at least 1"),
        (("switch", "--cores", "0,0"), "two different CPUs"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    tailrace: Path, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    done = bench(tailrace, tmp_path, *options)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "options", [("tester", "--seconds", "60"), pytest.param(("switch", "--changes", "10000"), marks=WHOLE)]
)
def test_an_interrupted_run_leaves_nothing(tailrace: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    pages = PAGES.read_text()
    running = subprocess.Popen(
        [tailrace, "bench", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    )
    control = tmp_path / "state/run/tester.control"
    deadline = time.monotonic() + 100
    while not control.exists():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline, "no tester within 100 s"
        time.sleep(0.05)
    time.sleep(1)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Traceback" not in errors
    assert PAGES.read_text() == pages
    assert not (tmp_path / "state").exists()


def test_how_soon_a_chain_forwards(tailrace: Path) -> None:
    with open_folder() as folder:  # whose paths are short enough for sockets
        done = bench(tailrace, folder, "start", "--of", "process=2", "--times", "2", "--json")
        refused = bench(tailrace, folder, "start", "--of", "cloud=2")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert set(result["times_ms"]) == {"2 processes up", "2 processes down"}
    assert all(0 < each["min"] <= each["max"] and each["count"] == 2 for each in result["times_ms"].values())
    assert refused.returncode == 2 and "--of cloud: no such place" in refused.stderr


@pytest.mark.whole
@pytest.mark.requires_program("chromium")
def test_the_dashboard(tailrace: Path) -> None:
    size = ("--chains", "5", "--ports", "4", "--seconds", "2")
    options = (*size, "--changes", "2", "--deaths", "2", "--heap", "1", "--json")
    with open_folder() as folder:  # a socket's path is short
        done = bench(tailrace, folder, "dashboard", *options)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["bench"], result["settings"]["chains"]) == ("dashboard", 5)
    figures = result["figures"]
    assert 0 < figures["frame_p50_ms"] <= figures["frame_p99_ms"] <= figures["frame_max_ms"]
    assert 0 < figures["frame_cpu_p50_ms"] <= figures["frame_cpu_p99_ms"] <= figures["frame_cpu_max_ms"]
    assert -10 < figures["change_to_pixel_p50_ms"] <= figures["change_to_pixel_max_ms"] < 20_000
    assert 0 < figures["death_to_alarm_p50_ms"] <= figures["death_to_alarm_max_ms"] < 30_000
    assert 0 < figures["server_percent"] < 100
    assert 1 < figures["before_heap_mib"] < 500
