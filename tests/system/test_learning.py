"""A bridge under test knows where to send the first frame of the first trial (RFC 2544, section 23)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from captures import write_capture
from private_network import Network, statistics
from running_node import Command
from running_tester import RunningTester, both_ways, stream

pytestmark = pytest.mark.requires_root


@pytest.fixture
def bridge() -> Iterator[Network]:
    """Linux's bridge between tester.a (ta) and tester.b (tb), which drops what it has not learned the way to."""
    network = Network()
    if Path("/proc/sys/net/bridge").exists():  # else each frame goes through iptables, which routes it
        network.run("sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=0")
    # One that snoops joins a group (RFC 4286), and says so to its ports: frames that the tester did not send.
    options = ("forward_delay", "0", "mcast_snooping", "0")
    network.run("ip", "link", "add", "name", "bridge", "type", "bridge", *options)
    for end, port in (("ta", "pa"), ("tb", "pb")):
        network.pair(end, port)
        network.run("ip", "link", "set", port, "master", "bridge")
        network.run("bridge", "link", "set", "dev", port, "flood", "off")
    network.run("ip", "link", "set", "bridge", "up")
    yield network
    network.end()


def test_frames_go_ahead_and_count_nowhere(asan_binaries: Path, tmp_path: Path, bridge: Network) -> None:
    program = asan_binaries / "tester/tailrace-tester"
    tester = RunningTester(program, tmp_path, {"a": "if:ta", "b": "if:tb"}, prefix=bridge.within)
    one_way = [stream("there", "a", "b", 500, flows=7)]
    try:
        unknown = tester.trial(one_way, 0.2)["streams"][0]
        assert (unknown["received"], unknown["lost"]) == (0, unknown["sent"])
        before = [statistics(bridge, port, "rx_packets") for port in ("pa", "pb")]
        known = tester.trial(one_way, 0.2, learn=True)["streams"][0]
        assert (known["received"], known["lost"], known["foreign"]) == (known["sent"], 0, 0)
        after = [statistics(bridge, port, "rx_packets") for port in ("pa", "pb")]
        assert [now - then for now, then in zip(after, before, strict=True)] == [known["sent"], 1]
    finally:
        assert tester.end() == 0


def test_there_are_none_for_a_capture(asan_binaries: Path, tmp_path: Path, bridge: Network) -> None:
    path = write_capture(tmp_path / "t.pcap", [bytes.fromhex("02000000000b02000000000a0800") + bytes(60)])
    program = asan_binaries / "tester/tailrace-tester"
    tester = RunningTester(program, tmp_path, {"a": "if:ta", "b": "if:tb"}, prefix=bridge.within)
    try:
        there = tester.trial([stream("there", "a", "b", 500, pcap=path)], 0.1, learn=True)["streams"][0]
        assert statistics(bridge, "pa", "rx_packets") == there["sent"]
        assert statistics(bridge, "pb", "rx_packets") == 0
        assert len(tester.trial(both_ways(100), 0.1, learn=False)["streams"]) == 2
    finally:
        assert tester.end() == 0


def test_the_first_trial_between_two_ports_of_a_bridge_loses_nothing(command: Command, bridge: Network) -> None:
    options = ("--frames", "64", "--rate", "500pps", "--duration", "500ms", "--no-huge", "--runs", str(command.runs))
    done = subprocess.run(
        [*bridge.within, command.program, "measure", "latency", "--between", "if:ta", "if:tb", *options, "--json"],
        env=dict(os.environ, TAILRACE_STATE=str(command.state)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (trial,) = json.loads(done.stdout)["trials"]
    seen = [log.read_text() for log in command.folder.rglob("tester.log")]
    for direction in trial["directions"]:
        assert (direction["lost"], direction["foreign"]) == (0, 0), seen
        assert direction["received"] == direction["sent"] > 0
