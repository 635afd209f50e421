"""Following frames through the switch, and the hop trace, with real traffic and a function."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from running_node import ONE, Command
from running_tester import stream
from watched_switch import Watched, watched_switch

from tailrace.observe.hop_trace import HopTrace, frame_key
from tailrace.process.control import ControlError

THREE = """\
functions: {first: skeleton, pool: {kind: skeleton, replicas: 2}, last: skeleton}
chains: {voice: [tester.a, first, pool, last, tester.b]}
tests: [latency: {frames: 64, rate: 5kpps, duration: 1s, flows: 64}]
"""

MATCHED = {
    "chains": {
        "voice": {"from": "a", "through": [], "to": "b", "match": [{"destination_port": 9}]},
    }
}


def follow(tailrace: Path, watched: Watched, streams: list[dict[str, Any]], *arguments: str) -> list[dict[str, Any]]:
    """The frames that `tailrace trace` follows while the tester sends."""
    process = subprocess.Popen(
        [tailrace, "trace", "--control", watched.switch.folder / "control", "--json", *arguments],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip

    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        watched.tester.trial(streams, 0.05)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    frames: list[dict[str, Any]] = json.loads(out)
    return frames


def steps(frame: dict[str, Any]) -> list[str]:
    return [step["text"] for step in frame["steps"]]


def test_a_frame_is_followed_along_a_chain(asan_binaries: Path, tailrace: Path, tmp_path: Path) -> None:
    config = {"chains": {"x": {"from": "a", "through": [], "to": "b"}}}
    with watched_switch(asan_binaries, tmp_path, "ab", config) as watched:
        frames = follow(tailrace, watched, [stream("there", "a", "b", 1000)], "--count", "3")
        assert [steps(frame) for frame in frames] == [["enters by port a", "leaves by port b: chain x, hop 0"]] * 3
        assert all(frame["steps"][0]["us"] == 0 and frame["length"] == 60 for frame in frames)


def test_a_frame_that_no_rule_takes_and_one_that_nobody_receives(
    asan_binaries: Path, tailrace: Path, tmp_path: Path
) -> None:
    with watched_switch(asan_binaries, tmp_path, "ab", MATCHED) as watched:
        # Back to a only what comes from port 9; the tester's frames from b do, those from a do not.
        (frame,) = follow(tailrace, watched, [stream("there", "a", "b", 1000)], "--match", "protocol=udp")
        assert steps(frame)[0] == "enters by port a"
        assert steps(frame)[-1] == "leaves by port b: chain voice, hop 0"
        watched.switch.patch(chains={"voice": {"match": [{"destination_port": 10}]}})
        (frame,) = follow(tailrace, watched, [stream("there", "a", "b", 1000)], "--match", "protocol=udp")
        assert steps(frame) == ["enters by port a", "dropped: no chain's match fits (drop_no_match)"]


def test_a_bridge_says_what_it_decides(asan_binaries: Path, tailrace: Path, tmp_path: Path) -> None:
    config = {"bridges": {"lan": {"ports": {"a": {}, "b": {}, "c": {}}}}}
    with watched_switch(asan_binaries, tmp_path, "abc", config) as watched:
        (frame,) = follow(tailrace, watched, [stream("there", "a", "b", 1000)])
        assert steps(frame)[0] == "enters by port a"
        assert steps(frame)[1].startswith("bridge, VLAN 0: to every port of its VLAN but its own")
        assert {step.split(" ")[3] for step in steps(frame)[2:]} == {"b", "c"}


def test_only_one_follows_at_a_time_and_what_is_forgotten_ends(asan_binaries: Path, tmp_path: Path) -> None:
    with watched_switch(asan_binaries, tmp_path, "ab", MATCHED) as watched:
        watched.switch.call("trace.start", count=1)
        with pytest.raises(ControlError, match="already"):
            watched.switch.call("trace.start", count=1)
        watched.switch.call("trace.stop")
        watched.switch.call("trace.stop")
        with pytest.raises(ControlError, match="no frames are being followed"):
            watched.switch.call("trace.read")
        with pytest.raises(ControlError, match="count"):
            watched.switch.call("trace.start", count=0)


# ------- the hop trace -------


def test_the_hop_trace_has_every_nth_frame_of_the_run(asan_binaries: Path, tmp_path: Path) -> None:
    config = {"chains": {"x": {"from": "a", "through": [], "to": "b"}}, "trace": {"every": 4, "recent": 65536}}
    with watched_switch(asan_binaries, tmp_path, "ab", config) as watched:
        watched.tester.trial([stream("there", "a", "b", 5_000)], 0.2)  # no key yet, or another: nothing is noted
        trace = HopTrace(Path(watched.switch.call("trace.key", key=12345)["path"]))
        watched.tester.trial([stream("there", "a", "b", 5_000)], 0.2)
        assert trace.sampled() == ([], True)
        result = watched.tester.trial([stream("there", "a", "b", 5_000, frames=[64, 1518])], 0.5, key=12345, sample=4)
        (there,) = result["streams"]
        records, whole = trace.sampled()
        assert whole
        assert [record.frame for record in records] == [frame_key(0, n) for n in range(0, there["sent"], 4)]
        assert {(record.source, record.target) for record in records} == {("a", "b")}
        samples = watched.tester.call("trial.samples")
        assert samples["every"] == 4
        by_frame = {record.frame: record for record in records}
        assert len(samples["frames"]) == len(records)
        for number, sequence, sent, received in samples["frames"]:
            record = by_frame[frame_key(number, sequence)]
            assert sent <= record.arrived <= record.left
            assert record.arrived <= received
        slowest = watched.tester.call("trial.worst")["frames"]
        assert len(slowest) == 100
        delays = [received - sent for _, _, sent, received in slowest]
        assert delays == sorted(delays, reverse=True)
        found = trace.recent_of({frame_key(n, s): (sent, received) for n, s, sent, received in slowest})
        assert len(found) == 100
        trace.close()
        # Off again: nothing is left of it.
        watched.switch.patch(trace=None)
        assert not list(tmp_path.glob("page.trace*"))
        with pytest.raises(ControlError, match="there is no trace"):
            watched.switch.call("trace.key", key=1)


@pytest.mark.parametrize("trace", [{"every": 3}, {"every": 4, "recent": 5}, {"often": 1}])
def test_a_trace_that_cannot_be_is_refused_with_its_key(
    asan_binaries: Path, tmp_path: Path, trace: dict[str, int]
) -> None:
    with watched_switch(asan_binaries, tmp_path, "ab", MATCHED) as watched, pytest.raises(ControlError, match="trace"):
        watched.switch.patch(trace=trace)


@pytest.mark.requires_root
@pytest.mark.requires_hugepages
@pytest.mark.requires_program("tailrace-switch", "tailrace-vnf", "tailrace-tester", "bwrap")
@pytest.mark.parametrize("spec", [pytest.param(ONE, marks=pytest.mark.whole), THREE])
def test_latency_is_taken_apart_by_hop_and_function(command: Command, spec: str) -> None:
    functions = ["first"] if spec == ONE else ["first", "pool", "last"]
    options = ("--duration", "1s", "--hops", "--runs", command.runs, "--json")
    done = command("measure", "latency", command.spec(spec), *options)
    (trial,) = json.loads(done.stdout)["trials"]
    replicas = set()
    for way, first, last in zip(trial["directions"], "ab", "ba", strict=True):
        hops = way["hops"]
        assert [part["kind"] for part in hops["parts"]] == [
            "ring",
            "switch",
            *["function", "switch"] * len(functions),
            "ring",
        ]
        names = [part["name"] for part in hops["parts"]]
        assert names[0] == f"tester.{first} to the switch"
        assert names[2:-1:2] == (functions if first == "a" else functions[::-1])
        assert names[-1] == f"the switch to tester.{last}"
        # Every sampled frame was traced, and the parts add up to the whole, in the mean and for each slow frame.
        assert hops["left_out"] == 0
        assert 0 < hops["frames"] <= way["received"]
        averages = [part["latency_us"]["average"] for part in hops["parts"]]
        assert sum(averages) == pytest.approx(hops["average_us"])
        assert sum(part["share"] for part in hops["parts"]) == pytest.approx(1)
        for slow in hops["slowest"]:
            assert sum(slow["parts_us"]) == pytest.approx(slow["latency_us"])
            assert len(slow["parts"]) == len(slow["parts_us"]) == len(names)
            replicas |= set(slow["parts"][2:-1:2]) - {"first", "last"}
        assert all(
            (command.runs / trial_folder(command) / part["histogram"]["file"]).exists() for part in hops["parts"]
        )
    slowest = [slow["latency_us"] for way in trial["directions"] for slow in way["hops"]["slowest"]]
    # At this rate the switch remembers all frames of the trial, so none of the worst is without its hops.
    assert len(slowest) == 100
    assert all(way["hops"]["slowest_untraced"] == 0 for way in trial["directions"])
    # One of them alone, where that was kept from its CPU while the other ran.
    assert replicas <= {"pool", "pool-2"} and bool(replicas) == ("pool" in functions)
    assert max(slowest) == pytest.approx(max(way["latency_us"]["max"] for way in trial["directions"]), abs=0.01)
    report = (command.runs / trial_folder(command) / "report.html").read_text()
    assert "Where the time goes" in report
    assert "function first" in report


def trial_folder(command: Command) -> str:
    (folder,) = command.runs.iterdir()
    return folder.name
