"""The real tester on real ports: against a device that errs as planned, against DPDK's testpmd as a vhost-user back
end, and through Tailrace's own switch and functions. Its counts must be exact."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from captures import cut_off, write_capture
from faulty_device import Plan
from running_switch import RunningSwitch, wait_until
from running_tester import RunningTester, both_ways, stream

from tailrace.process.control import FAILED, INVALID_PARAMS, UNKNOWN, ControlError

IMIX = {"frames": [64, 570, 1518], "weights": [28, 16, 4]}


@pytest.fixture
def program(binaries: Path) -> Path:
    return binaries / "tester/tailrace-tester"


def assert_clean(result: dict[str, Any]) -> None:
    """Every frame that was sent came back once and in order."""
    for each in result["streams"]:
        assert each["sent"] > 0
        assert each["received"] == each["sent"], each
        for key in ("lost", "duplicate", "out_of_sequence", "beyond_window", "foreign"):
            assert each[key] == 0, (key, each)
        assert each["offered"] == each["sent"] + each["unsent"]
        assert each["received_bytes"] == each["sent_bytes"]


def assert_consistent(result: dict[str, Any]) -> None:
    """The parts of a result agree with each other."""
    for each in result["streams"]:
        latency = each["latency"]
        assert latency["count"] == each["received"] == sum(count for _, count in latency["counts"])
        assert sum(interval["sent"] for interval in each["intervals"]) == each["sent"]
        assert sum(interval["received"] for interval in each["intervals"]) == each["received"]
        assert sum(interval["sum_ns"] for interval in each["intervals"]) == latency["sum_ns"]
        assert max(interval["max_ns"] for interval in each["intervals"]) == latency["max_ns"]
        assert min(i["min_ns"] for i in each["intervals"] if i["received"]) == latency["min_ns"]
        assert 0 < latency["min_ns"] <= latency["sum_ns"] / latency["count"] <= latency["max_ns"]
        between = 1e9 * each["received_seconds"]
        assert between / each["received"] <= each["longest_gap_ns"] + 1 <= between + 2, "the mean, and all of them"
        starts = [interval["start"] for interval in each["intervals"]]
        assert starts == pytest.approx([i * result["interval"] for i in range(len(starts))])


# ------- a device that errs as planned -------


@dataclass
class FaultyDevice:
    namespace: str
    process: subprocess.Popen[str]

    def end(self) -> list[dict[str, int]]:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stdout is not None
        counts: list[dict[str, int]] = json.loads(self.process.stdout.read())
        assert self.process.wait(60) == 0
        return counts


@pytest.fixture
def faulty_device() -> Iterator[FaultyDevice]:
    """Two interfaces, a and b, in a network namespace of their own, with the device between them."""
    namespace = f"tailrace-test-{uuid.uuid4().hex[:8]}"

    def ip(*arguments: str) -> None:
        subprocess.run(["ip", "-n", namespace, *arguments], check=True)

    subprocess.run(["ip", "netns", "add", namespace], check=True)
    process = None
    try:
        quiet = "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"
        subprocess.run(["ip", "netns", "exec", namespace, "sysctl", "-qw", *quiet], check=True)
        for name in ("a", "b"):
            ip("link", "add", "name", name, "type", "veth", "peer", "name", f"{name}-far")
            ip("link", "set", "dev", name, "up")
            ip("link", "set", "dev", f"{name}-far", "up")
        script = Path(__file__).with_name("faulty_device.py")
        process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, sys.executable, script, "a-far", "b-far"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield FaultyDevice(namespace, process)
    finally:
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
        subprocess.run(["ip", "netns", "del", namespace], check=True)


WRAPS = 2**48 - 700
"""Sequence numbers begin again at zero soon after this one."""


def expected_counts(sent: int) -> dict[str, int]:
    """What RFC 4737 makes of the planned arrivals, by its text: duplicates first, then each number against NextExp."""
    plan = Plan()
    arrivals = [number for frame in range(sent) for number in plan.arrive(frame)]
    seen: set[int] = set()
    counts = dict.fromkeys(("duplicate", "out_of_sequence", "foreign"), 0)
    next_expected = 0
    for number in arrivals:
        if number is None:
            counts["foreign"] += 1
            continue
        assert isinstance(number, int)
        if number in seen:
            counts["duplicate"] += 1
            continue
        seen.add(number)
        if number >= next_expected:
            next_expected = number + 1
        else:
            counts["out_of_sequence"] += 1
    counts["lost"] = sent - len(seen)
    counts["received"] = len(arrivals) - counts["foreign"]
    counts["beyond_window"] = 0
    return counts


@pytest.mark.requires_root
@pytest.mark.parametrize(
    ("traffic", "first_sequence"),
    [
        ({"flows": 1}, 0),
        ({"flows": 1}, WRAPS),
        ({"flows": 1000, **IMIX}, 0),
        pytest.param({"flows": 1000, **IMIX}, WRAPS, marks=pytest.mark.whole),
        pytest.param({"frames": [1518], "flows": 10}, 0, marks=pytest.mark.whole),
        pytest.param({"frames": [1518], "flows": 10}, WRAPS, marks=pytest.mark.whole),
    ],
    ids=["64", "64-over-the-wrap", "imix", "imix-over-the-wrap", "1518", "1518-over-the-wrap"],
)
def test_counts_are_exactly_what_the_device_did(
    program: Path,
    tmp_path: Path,
    faulty_device: FaultyDevice,
    first_sequence: int,
    traffic: dict[str, Any],
) -> None:
    tester = RunningTester(
        program,
        tmp_path,
        {"a": "if:a", "b": "if:b"},
        prefix=("ip", "netns", "exec", faulty_device.namespace),
    )
    result = tester.trial(both_ways(1500, **traffic), 1.0, wait=2.0, first_sequence=first_sequence)
    assert tester.end() == 0
    device = faulty_device.end()
    assert_consistent(result)
    for side, each in enumerate(result["streams"]):
        assert each["offered"] == 1500
        assert device[side]["received"] == each["sent"], "the kernel lost frames before the device"
        assert {key: each[key] for key in expected_counts(each["sent"])} == expected_counts(each["sent"])


# ------- a vhost-user back end that we did not write -------


@dataclass
class Testpmd:
    """testpmd as a vhost-user back end with ports a and b."""

    __test__ = False
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def ports(self) -> dict[str, str]:
        return {name: f"vhost:{self.folder}/{name}.sock" for name in ("a", "b")}


@contextmanager
def run_testpmd(folder: Path) -> Iterator[Testpmd]:
    devices = [f"--vdev=net_vhost{i},iface={folder}/{name}.sock" for i, name in enumerate("ab")]
    cores = sorted(os.sched_getaffinity(0))
    argv = ["dpdk-testpmd", f"--lcores=0@{cores[-1]},1@{cores[0]}", "--no-huge", "-m", "256", "--no-pci"]
    prefix = f"tailrace-test-{uuid.uuid4().hex[:8]}"
    argv += [f"--file-prefix={prefix}", "--no-telemetry", *devices]
    argv += ["--", "--forward-mode=io", "--auto-start", "--total-num-mbufs=8192", "--stats-period=1"]
    with (folder / "testpmd.log").open("w") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        ready = "Port statistics"
        wait_until(lambda: ready in (folder / "testpmd.log").read_text(), "testpmd forwards", 60)
        yield Testpmd(folder, process)
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(f"/var/run/dpdk/{prefix}", ignore_errors=True)


@pytest.fixture(scope="module")
def testpmd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testpmd]:
    """One for all tests that leave it whole: it takes long to start."""
    with run_testpmd(tmp_path_factory.mktemp("testpmd")) as running:
        yield running


@pytest.fixture
def tester(program: Path, tmp_path: Path, testpmd: Testpmd) -> Iterator[RunningTester]:
    running = RunningTester(program, tmp_path, testpmd.ports)
    yield running
    assert running.end() == 0
    assert not running.path.exists()


needs_testpmd = pytest.mark.requires_program("dpdk-testpmd")


@needs_testpmd
@pytest.mark.unsanitized
@pytest.mark.parametrize(
    "traffic",
    [{}, {"frames": [256]}, {"frames": [1518]}, {"frames": [9018]}, {"flows": 1_000_000}, IMIX],
    ids=["64", "256", "1518", "9018", "flows", "imix"],
)
def test_every_frame_comes_back_from_a_back_end(tester: RunningTester, traffic: dict[str, Any]) -> None:
    result = tester.trial(both_ways(5000, **traffic))
    assert_clean(result)
    assert_consistent(result)
    sizes = sorted(traffic.get("frames", [64]))
    for each in result["streams"]:
        assert each["offered"] == 5000
        assert sizes[0] <= each["sent_bytes"] / each["sent"] <= sizes[-1]
        if traffic is IMIX and each["unsent"] == 0:
            assert each["sent_bytes"] / each["sent"] == pytest.approx(353.8, rel=0.001)


@needs_testpmd
def test_several_streams_each_have_their_own_account(tester: RunningTester) -> None:
    streams = [
        stream("one", "a", "b", 1000),
        stream("two", "a", "b", 2000, frames=[1518]),
        stream("back", "b", "a", 500),
    ]
    result = tester.trial(streams)
    assert_clean(result)
    assert [each["offered"] for each in result["streams"]] == [1000, 2000, 500]
    assert tester.call("trial.status")["state"] == "done"


@needs_testpmd
def test_a_trial_can_be_stopped_and_keeps_its_result(tester: RunningTester) -> None:
    tester.start(both_ways(2000), 3600)
    tester.wait_sent(100)
    with pytest.raises(ControlError, match=r"running.*trial\.stop") as refused:
        tester.start(both_ways(1))
    assert refused.value.code == FAILED
    with pytest.raises(ControlError, match="still running"):
        tester.call("trial.result")
    tester.call("trial.stop")
    result = tester.wait_end()
    assert result["stopped"] is True
    assert 0 < result["duration"] < 60
    assert_clean(result)
    assert tester.trial(both_ways(100))["stopped"] is False


@needs_testpmd
def test_a_back_end_that_dies_fails_the_trial_and_what_was_measured_is_kept(program: Path, tmp_path: Path) -> None:
    with run_testpmd(tmp_path) as testpmd:
        tester = RunningTester(program, tmp_path, testpmd.ports)
        tester.start(both_ways(2000), 3600)
        tester.wait_more(100)
        testpmd.process.kill()
    result = tester.wait_end("failed")
    reason = tester.call("trial.status")["reason"]
    assert reason.startswith("the link of port ") and "went down" in reason
    assert all(each["received"] >= 1 for each in result["streams"])
    wait_until(lambda: all(port["link"] == "down" for port in tester.call("port.list")), "both links down")
    with pytest.raises(ControlError, match=r"port a .* is down"):
        tester.start(both_ways(100))
    assert tester.end() == 0


@needs_testpmd
def test_unlimited_rate_has_no_unsent_frames(tester: RunningTester) -> None:
    result = tester.trial(both_ways(0), 0.2)
    for each in result["streams"]:
        assert each["unsent"] == 0
        assert each["sent"] == each["offered"] > 100
        assert each["duplicate"] == each["out_of_sequence"] == each["beyond_window"] == 0


@needs_testpmd
def test_a_long_trial_merges_its_intervals(tester: RunningTester) -> None:
    result = tester.trial(both_ways(1000), 5.0, interval=0.001, wait=2.0)
    assert_consistent(result)
    assert result["interval"] == pytest.approx(0.002)
    assert_clean(result)


@needs_testpmd
def test_a_capture_is_replayed(tester: RunningTester, tmp_path: Path) -> None:
    lengths = [42, 60, 61, 100, 590, 1514]
    capture = write_capture(tmp_path / "good.pcap", [bytes([length % 256]) * length for length in lengths])
    result = tester.trial([stream("capture", "a", "b", 6 * 500, pcap=capture)])
    assert_clean(result)
    each = result["streams"][0]
    if each["unsent"] == 0:
        assert each["sent_bytes"] == 500 * sum(max(length, 60) + 4 for length in lengths)


@needs_testpmd
def test_a_bad_capture_is_refused_with_the_reason(tester: RunningTester, tmp_path: Path) -> None:
    bad = {
        write_capture(tmp_path / "cut.pcap", [bytes(1000)], cut=900): "cut to 100 of 1000 bytes",
        write_capture(tmp_path / "raw.pcap", [bytes(100)], link_type=101): "link type 101",
        write_capture(tmp_path / "none.pcap", []): "no frame",
        cut_off(write_capture(tmp_path / "short.pcap", [bytes(100)] * 3), 50): "ends within frame 3: it was cut off",
        cut_off(write_capture(tmp_path / "shorter.pcap", [bytes(100)]), 100 + 8): "ends within frame 1: it was cut off",
        cut_off(write_capture(tmp_path / "shortest.pcap", []), 4): "this is no capture file",
        str(tmp_path / "missing.pcap"): "No such file",
    }
    for path, reason in bad.items():
        with pytest.raises(ControlError, match=reason) as refused:
            tester.start([stream("capture", "a", "b", 1, pcap=path)])
        assert refused.value.code == INVALID_PARAMS
        assert "streams[0].pcap" in str(refused.value) and path in str(refused.value)


BAD_PARAMETERS: list[tuple[dict[str, Any], str]] = [
    ({"duration": 0}, "duration: expected a number"),
    ({"duration": "1s"}, "duration: expected a number"),
    ({"wait": -1}, "wait: expected"),
    ({"interval": 0}, "interval: expected"),
    ({"first_sequence": 2**48}, "first_sequence: expected an integer"),
    ({"length": 1}, "length: unknown key"),
    ({"streams": []}, "streams: expected"),
    ({"streams": [1]}, r"streams\[0\]"),
    ({"streams": [{}]}, r"streams\[0\]\.name: expected"),
    ({"streams": [{**stream("x", "a", "b", 1), "size": 64}]}, r"streams\[0\]\.size: unknown key"),
    ({"streams": [stream("x", "a", "b", -1)]}, r"streams\[0\]\.rate: expected"),
    ({"streams": [stream("x", "a", "b", 1, flows=0)]}, r"streams\[0\]\.flows: expected an integer from 1 to 1000000"),
    ({"streams": [stream("x", "a", "b", 1, frames=[63])]}, r"streams\[0\]\.frames: expected .* from 64 to"),
    ({"streams": [stream("x", "a", "b", 1, frames=[64], weights=[1, 2])]}, r"weights: expected as many as 'frames'"),
    ({"streams": [stream("x", "a", "b", 1, frames=[64], weights=[0])]}, r"weights: expected"),
    ({"streams": [stream("x", "a", "b", 1, frames=[64, 65], weights=[4099, 1])]}, r"weights: one round"),
    ({"streams": [{**stream("x", "a", "b", 1), "pcap": "y"}]}, r"streams\[0\]\.pcap: expected either"),
    ({"streams": [stream("x", "a", "b", 1), stream("x", "b", "a", 1)]}, r"streams\[1\]\.name: expected"),
]


@needs_testpmd
def test_bad_parameters_are_refused_by_name(tester: RunningTester) -> None:
    good: dict[str, Any] = {"duration": 0.1, "streams": both_ways(1)}
    for change, message in BAD_PARAMETERS:
        with pytest.raises(ControlError, match=message) as refused:
            tester.call("trial.start", **{**good, **change})
        assert refused.value.code == INVALID_PARAMS, change
    with pytest.raises(ControlError, match="no port 'c'") as refused:
        tester.start([stream("x", "a", "c", 1)])
    assert refused.value.code == UNKNOWN
    assert tester.call("trial.status") == {"state": "idle", "elapsed": 0.0, "streams": [], "reason": None}
    with pytest.raises(ControlError, match="no trial"):
        tester.call("trial.result")
    tester.start(**good)  # nothing of what was refused is in the way
    tester.wait_end()


# ------- Tailrace's own switch and functions -------


@pytest.mark.requires_program("bwrap")
@pytest.mark.parametrize(
    ("mode", "sandboxed"),
    [
        ("interrupt", False),
        ("poll", True),
        pytest.param("poll", False, marks=pytest.mark.whole),
        pytest.param("interrupt", True, marks=pytest.mark.whole),
    ],
)
def test_a_skeleton_forwards_every_frame(
    binaries: Path, tmp_path: Path, program: Path, mode: str, sandboxed: bool
) -> None:
    switch = RunningSwitch(binaries / "switch/tailrace-switch", tmp_path, "--idle", "pause")
    vnf = tester = None
    names = ["a", "left", "right", "b"]
    try:
        paths = {name: switch.add_guest(name) for name in names}
        switch.set_chain("chain", *names)
        argv: list[str | Path] = [binaries / "functions/tailrace-vnf", "skeleton", "--mode", mode]
        argv += [f"--port=vhost:{paths['left']}", f"--port=vhost:{paths['right']}"]
        if sandboxed:
            box: list[str | Path] = [
                "bwrap",
                "--unshare-all",
                "--die-with-parent",
                "--cap-drop",
                "ALL",
                "--ro-bind",
                "/",
                "/",
            ]
            box += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run", "--ro-bind", tmp_path, tmp_path]
            argv = [*box, *argv]
        vnf = subprocess.Popen(argv, stdout=subprocess.PIPE)
        tester = RunningTester(program, tmp_path, {name: f"vhost:{paths[name]}" for name in "ab"})
        for name in names:
            switch.wait_state(name, "up")
        result = tester.trial(both_ways(2000, **IMIX), 1.0, wait=2.0)
        assert_clean(result)
        if not sandboxed:  # bubblewrap keeps signals from what it runs
            vnf.terminate()
            output, _ = vnf.communicate(timeout=60)
            assert vnf.returncode == 0
            counters = json.loads(output)
            for port, each in zip(counters["ports"], result["streams"], strict=True):
                assert port["received"] == port["sent"] == each["sent"]
                assert port["drop_full"] == port["drop_function"] == 0
            assert (counters["sleeps"] > 0) == (mode == "interrupt")
    finally:
        if vnf is not None and vnf.poll() is None:
            vnf.kill()
            vnf.wait()
        if tester is not None:
            assert tester.end() == 0
        assert switch.end() == 0


@pytest.mark.parametrize("mode", ["poll", pytest.param("interrupt", marks=pytest.mark.whole)])
def test_a_full_receiver_is_felt_at_the_chains_beginning(
    binaries: Path, tmp_path: Path, program: Path, mode: str
) -> None:
    switch = RunningSwitch(
        binaries / "switch/tailrace-switch", tmp_path, "--idle", "pause", "--backpressure-us", "10000000"
    )
    names = ["a", "first.0", "first.1", "second.0", "second.1", "b"]
    functions: list[subprocess.Popen[bytes]] = []
    tester = None
    try:
        paths = {name: switch.add_guest(name) for name in names}
        switch.set_chain("chain", *names)
        for name in ("first", "second"):
            argv: list[str | Path] = [binaries / "functions/tailrace-vnf", "skeleton", "--mode", mode]
            argv += [f"--port=vhost:{paths[f'{name}.{side}']}" for side in (0, 1)]
            functions.append(subprocess.Popen(argv, stdout=subprocess.PIPE))
        tester = RunningTester(program, tmp_path, {name: f"vhost:{paths[name]}" for name in "ab"})
        for name in names:
            switch.wait_state(name, "up")
        functions[1].send_signal(signal.SIGSTOP)
        tester.start([stream("there", "a", "b", 20_000)], 1.0, wait=5.0)
        # More than the rings take on the way, so the rest stays with who sends.
        wait_until(lambda: tester.call("trial.status")["state"] == "waiting", "all is offered")
        functions[1].send_signal(signal.SIGCONT)
        (there,) = tester.wait_end()["streams"]
        assert there["unsent"] > 0
        assert there["lost"] == there["duplicate"] == there["out_of_sequence"] == 0
        for function in functions:
            function.terminate()
            output, _ = function.communicate(timeout=60)
            for port in json.loads(output)["ports"]:
                assert port["drop_full"] == port["drop_function"] == 0
                assert port["received"] == port["sent"]
    finally:
        for function in functions:
            if function.poll() is None:
                function.kill()
                function.wait()
        if tester is not None:
            assert tester.end() == 0
        assert switch.end() == 0


# ------- starting and ending -------


def run(program: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_help_and_version(program: Path, binaries: Path) -> None:
    for path in (program, binaries / "functions/tailrace-vnf"):
        helped = run(path, "--help")
        assert helped.returncode == 0 and helped.stdout.startswith("Usage: tailrace-") and helped.stderr == ""
        assert run(path, "--version").stdout.startswith("tailrace-")


LONG = "vhost:/" + 107 * "x"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--control and at least one --port"),
        (("--control", "c", "--port", "a"), "expected NAME=URI"),
        (("--control", "c", "--port", "a=nic:0"), "names no port"),
        (("--control", "c", "--port", f"a={LONG}"), "at most 107 bytes"),
        (("--control", "c", "--port", "a=vhost:x,server=1"), "comma"),
        (("--control", "c", "--port", "a=pci:zz"), "not a PCI address"),
        (("--control", "c", "--port", "a=vhost:x", "--port", "a=vhost:y"), "used twice"),
        (("--control", "c", "--port", "a=vhost:x", "--memory", "lots"), "--memory lots"),
        (("--control", "c", "--port", "a=vhost:x", "--fast"), "--fast: no such option"),
        (("--control",), "--control: its value is missing"),
    ],
)
def test_a_wrong_option_ends_it_with_status_2_and_one_line(
    program: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = run(program, *arguments)
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert done.stderr.startswith("tailrace-tester: error: ")


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("vhost:{folder}/absent.sock", "start the vhost-user back end"),
        ("vhost:{folder}/file", "not a socket"),
        ("vhost-server:{folder}/file", "exists and is not a socket"),
        ("if:absent0", "no network interface 'absent0'"),
        ("vdev:net_nonsense9", "DPDK could not make the device"),
    ],
)
def test_a_port_that_cannot_be_opened_ends_it_with_status_1(
    program: Path, tmp_path: Path, uri: str, message: str
) -> None:
    (tmp_path / "file").touch()
    control = tmp_path / "control"
    done = run(program, "--control", control, "--port", "a=" + uri.format(folder=tmp_path))
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.splitlines()[-1].startswith("tailrace-tester: error: port a: ")
    assert not control.exists()


def test_a_signal_ends_the_wait_for_a_back_end(program: Path, tmp_path: Path) -> None:
    port = tmp_path / "a.sock"
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [program, "--control", tmp_path / "control", "--port", f"a=vhost-server:{port}"], stderr=log
        )
    wait_until(port.is_socket, "the socket is there")
    process.terminate()
    assert process.wait(60) == 0
    assert not port.exists()
