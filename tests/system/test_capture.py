"""`tailrace capture` on a switch with traffic: what is in the files, and how a capture ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import ready_command
from front_end import BASE, RECEIVES, SENDS
from guest_pair import GuestPair
from running_switch import RunningSwitch, wait_until
from running_tester import both_ways, stream
from scapy.layers.inet import IP
from scapy.utils import rdpcap
from watched_switch import Watched, watched_switch

CHAIN = {"chains": {"x": {"from": "a", "through": [], "to": "b"}}}


class Capture:
    """The command, capturing."""

    def __init__(self, tailrace: Path, watched: Watched, *arguments: str | Path) -> None:
        self.watched = watched
        self.process = subprocess.Popen(
            [tailrace, "capture", "--control", watched.switch.folder / "control", "--json", *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def wait(self) -> Capture:
        """Until the switch copies: it makes the file first, and answers nobody else until it does."""
        switch = self.watched.switch
        wait_until(lambda: bool(list(switch.folder.glob("page.capture-*.0"))), "the capture has begun")
        switch.call("version")
        return self

    def end(self, number: int | None = signal.SIGINT, status: int = 0) -> dict[str, Any]:
        if number is not None:
            self.process.send_signal(number)
        out, error = self.process.communicate(timeout=60)
        assert self.process.returncode == status, error
        assert not list(self.watched.switch.folder.glob("page.capture-*"))
        self.error = error
        document: dict[str, Any] = json.loads(out) if out else {}
        return document


def test_ctrl_c_ends_a_capture_with_all_that_passed(asan_binaries: Path, tailrace: Path, tmp_path: Path) -> None:
    with watched_switch(asan_binaries, tmp_path, "ab", CHAIN) as watched:
        file = tmp_path / "x.pcap"
        capture = Capture(tailrace, watched, "--port", "a", file).wait()
        before = time.time()
        result = watched.tester.trial(both_ways(5_000, frames=[64, 1518]), 0.5)
        done = capture.end()
        sent = sum(each["sent"] for each in result["streams"])
        assert all(each["lost"] == 0 for each in result["streams"])
        assert (done["frames"], done["dropped"], done["ended"]) == (sent, 0, "stopped")
        frames = rdpcap(str(file))
        assert len(frames) == sent
        assert {len(frame) for frame in frames} == {60, 1514}
        times = [float(frame.time) for frame in frames]
        assert times == sorted(times)
        assert before - 1 < times[0] < times[-1] < time.time() + 1
        assert {frame[IP].src for frame in frames} == {"198.18.1.0", "198.19.1.1"}
        assert len({bytes(frame) for frame in frames}) == sent  # each has its own signature: whole frames, none twice
        # tcpdump reads it too, if it is there.
        if os.access("/usr/bin/tcpdump", os.X_OK):
            read = subprocess.run(
                ["/usr/bin/tcpdump", "-nr", file, "--count"], capture_output=True, text=True, check=True
            )
            assert f"{sent} packets" in read.stdout


def test_direction_match_snaplen_and_count(asan_binaries: Path, tailrace: Path, tmp_path: Path) -> None:
    with watched_switch(asan_binaries, tmp_path, "ab", CHAIN) as watched:
        one, two = tmp_path / "in.pcap", tmp_path / "match.pcap"
        first = Capture(tailrace, watched, "--port", "a", "--direction", "in", "--snaplen", "64", one).wait()
        second = Capture(
            tailrace, watched, "--chain", "x", "--match", "source=198.18.1.7/32,protocol=udp", "--count", "10", two
        )  # fmt: skip
        wait_until(lambda: len(list(tmp_path.glob("page.capture-*.0"))) == 2, "both have begun")
        second.wait()
        result = watched.tester.trial(both_ways(5_000, frames=[512], flows=16), 0.5)
        assert first.end()["frames"] == result["streams"][0]["sent"]
        done = second.end(None)
        assert (done["frames"], done["ended"]) == (10, "all frames asked for")
        assert {(len(frame), frame.wirelen) for frame in rdpcap(str(one))} == {(64, 508)}
        assert {frame[IP].src for frame in rdpcap(str(two))} == {"198.18.1.7"}


def test_vlan_0_is_what_has_no_vlan(asan_binaries: Path, tmp_path: Path) -> None:
    """Without a tag, or with one that has a priority alone."""
    switch = RunningSwitch(asan_binaries / "switch/tailrace-switch", tmp_path)
    pair = GuestPair(switch, ("a", "b"))
    matches = ([{"vlan": 0}], [{"vlan": [0, 10]}], [{"vlan": [1, 4094]}])
    captures = [switch.call("capture.start", port="a", direction="in", match=match)["capture"] for match in matches]
    pair.guests[1].offer_buffers(4)
    for tag in ("", "8100c000", "81000007", "8100000b"):
        pair.guests[0].send(bytes.fromhex("02000000000b02000000000a" + tag + "0806") + bytes(46))
    pair.guests[1].wait_received(4)
    assert [switch.call("capture.status", capture=number)["frames"] for number in captures] == [2, 3, 2]
    for number in captures:
        switch.call("capture.stop", capture=number)
    pair.end()
    assert switch.end() == 0


def test_files_are_rotated_and_the_last_are_kept(asan_binaries: Path, tailrace: Path, tmp_path: Path) -> None:
    with watched_switch(asan_binaries, tmp_path, "ab", CHAIN) as watched:
        base = tmp_path / "r.pcap"
        capture = Capture(
            tailrace, watched, "--port", "a", "--direction", "in", "--rotate-frames", "100", "--files", "3", base
        ).wait()
        result = watched.tester.trial([stream("there", "a", "b", 5_000)], 0.3)
        done = capture.end()
        sent = result["streams"][0]["sent"]
        assert done["frames"] == sent
        last = (sent + 99) // 100
        files = [tmp_path / f"r-{number:05}.pcap" for number in range(last - 2, last + 1)]
        assert done["files"] == [str(file) for file in files]
        assert sorted(tmp_path.glob("r*.pcap")) == files
        assert [len(rdpcap(str(file))) for file in files] == [100, 100, sent - 100 * (last - 1)]
        assert done["kept"] == sent - 100 * (last - 3)
        # By size: one file, and the end when it is full.
        capture = Capture(tailrace, watched, "--port", "a", "--size", "1MiB", base).wait()
        watched.tester.trial(both_ways(5_000, frames=[1518]), 0.3)
        done = capture.end(None)
        assert done["ended"] == "the file is full"
        assert 2**20 - 1600 < base.stat().st_size <= 2**20
        assert len(rdpcap(str(base))) == done["frames"]


def test_a_reader_that_is_too_slow_loses_what_is_counted(asan_binaries: Path, tailrace: Path, tmp_path: Path) -> None:
    with watched_switch(asan_binaries, tmp_path, "ab", CHAIN) as watched:
        capture = Capture(tailrace, watched, "--port", "a", "--buffer", "64KiB", tmp_path / "x.pcap").wait()
        os.kill(capture.process.pid, signal.SIGSTOP)
        result = watched.tester.trial(both_ways(5_000, frames=[1518]), 0.3)
        os.kill(capture.process.pid, signal.SIGCONT)
        done = capture.end()
        sent = sum(each["sent"] for each in result["streams"])
        assert all(each["lost"] == 0 for each in result["streams"])
        assert 30 < done["frames"] < 60
        assert done["dropped"] == sent - done["frames"]
        assert len(rdpcap(str(tmp_path / "x.pcap"))) == done["frames"]


@pytest.mark.whole
def test_a_reader_that_is_killed_leaves_nothing_for_long(asan_binaries: Path, tailrace: Path, tmp_path: Path) -> None:
    with watched_switch(asan_binaries, tmp_path, "ab", CHAIN) as watched:
        capture = Capture(tailrace, watched, "--port", "a", tmp_path / "x.pcap").wait()
        capture.process.kill()
        capture.process.communicate()
        wait_until(lambda: not list(tmp_path.glob("page.capture-*")), "the capture has ended")
        assert "its reader has not been heard of" in watched.switch.log.read_text()


@pytest.mark.requires_root
def test_a_full_disk_keeps_what_was_captured(asan_binaries: Path, tailrace: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tailrace-test", disk], check=True)
    try:
        with watched_switch(asan_binaries, tmp_path, "ab", CHAIN) as watched:
            file = disk / "x.pcap"
            capture = Capture(tailrace, watched, "--port", "a", file).wait()
            watched.tester.trial(both_ways(5_000, frames=[1518]), 0.3)
            done = capture.end(None, status=1)
            assert capture.error == f"tailrace: {file}: No space left on device; what was captured until then is kept\n"
            assert len(rdpcap(str(file))) == done["frames"] > 100
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("x.pcap",), "expected --port NAME or --chain NAME"),
        (("--port", "nosuch", "x.pcap"), "no port 'nosuch'"),
        (("--chain", "nosuch", "x.pcap"), "no chain 'nosuch'"),
        (("--port", "a", "/nonexistent/x.pcap"), "/nonexistent/x.pcap: No such file or directory"),
        (("--port", "a", "--direction", "up", "x.pcap"), "expected in, out or both"),
        (("--port", "a", "--match", "color=red", "x.pcap"), "is not NAME=VALUE of a field"),
        (("--port", "a", "--match", "source=10.0.0.0/40", "x.pcap"), "--match 'source=10.0.0.0/40': source: "),
        (
            ("--port", "a", "--match", "vlan=1", "--match", "vlan=99999", "x.pcap"),
            "--match 'vlan=99999': vlan: expected",
        ),
        (("--port", "a", "--rotate-time", "1s", "x.pcap"), "need --files"),
    ],
)
def test_mistakes_are_one_line(
    asan_binaries: Path, tailrace: Path, tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    older = tmp_path / "x.pcap"
    older.write_text("of yesterday")
    with watched_switch(asan_binaries, tmp_path, "ab", CHAIN) as watched:
        words = ("capture", "--control", str(watched.switch.folder / "control"), *arguments)
        refused = ready_command.run(tailrace, words, environment=dict(os.environ), folder=tmp_path, timeout=60)
        assert refused.returncode == 2
        assert expected in refused.stderr
        assert refused.stderr.count("\n") == 1
        assert older.read_text() == "of yesterday"


def test_a_frame_that_waits_is_captured_once(asan_binaries: Path, tmp_path: Path) -> None:
    """A receiver has one buffer, and the frame needs two: the switch looks at it again and again, until there are."""
    switch = RunningSwitch(
        asan_binaries / "switch/tailrace-switch", tmp_path, "--idle", "pause", "--backpressure-us", "10000000"
    )
    pair = GuestPair(switch, ("a", "b"))
    sender, receiver = pair.guests
    capture = switch.call("capture.start", port="a", direction="in")["capture"]

    def captured() -> int:
        return int(switch.call("capture.status", capture=capture)["frames"])

    receiver.offer_buffers(1)
    frame = bytes(range(256)) * 12
    sender.memory[0x300000 : 0x300000 + 12 + len(frame)] = bytes(12) + frame
    sender.write_desc(SENDS, 0, BASE + 0x300000, 12 + len(frame), 0)
    sender.offer(SENDS, 0)
    blocked = switch.counters("b")["blocked_polls"]
    wait_until(lambda: switch.counters("b")["blocked_polls"] > blocked + 1000, "it has waited for many rounds")
    assert captured() == 0
    receiver.offer_buffers(1)
    wait_until(lambda: receiver.used_index(RECEIVES) == 2, "the frame arrives")
    wait_until(lambda: captured() > 0, "it is captured")
    assert captured() == 1
    switch.call("capture.stop", capture=capture)
    pair.end()
    assert switch.end() == 0
