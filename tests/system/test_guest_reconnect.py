"""A switch that is killed and started again under load, and guests that outlive it: each goes on where it stood, no
frame arrives twice or out of its order, and only what was under way is lost.
"""

from __future__ import annotations

import random
import re
import shutil
import struct
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from front_end import SENDS, FrontEnd, PackedFrontEnd
from lasting_guests import BURST, Pair, Traffic
from running_switch import RunningSwitch, wait_until
from running_tester import RunningTester, stream

ATTEMPTS = 5
_started: list[RunningSwitch] = []


@pytest.fixture(autouse=True)
def no_switch_is_left() -> Iterator[None]:
    yield
    while _started:
        switch = _started.pop()
        if switch.process.poll() is None:
            switch.kill()


def start_switch(build: Path, folder: Path) -> RunningSwitch:
    """It keeps its configuration in a file, so that nobody has to tell it again after a crash."""
    configuration = folder / "configuration.json"
    known = configuration.exists()
    switch = RunningSwitch(build / "switch/tailrace-switch", folder, "--config", str(configuration))
    _started.append(switch)
    if not known:
        for name in ("a", "b"):
            switch.add_guest(name, mode="client")
        switch.join("a", "b")
    return switch


def not_back(switch: RunningSwitch) -> list[str]:
    """The ports for whose guests it no longer waits, as it says."""
    return re.findall(r"port (\S+): its guest is not back yet", switch.log.read_text())


KINDS = [(FrontEnd, FrontEnd), (PackedFrontEnd, PackedFrontEnd), (FrontEnd, PackedFrontEnd), (PackedFrontEnd, FrontEnd)]


@pytest.mark.parametrize("kinds", KINDS, ids=["split", "packed", "split-to-packed", "packed-to-split"])
def test_a_switch_killed_under_load(
    binaries: Path, tmp_path: Path, kinds: tuple[type[FrontEnd], type[FrontEnd]]
) -> None:
    generator = random.Random(1)
    pair = Pair(tmp_path, kinds)
    switch = start_switch(binaries, tmp_path)
    for name in ("b", "a"):
        pair.serve(name)
        switch.wait_state(name, "up")
    traffic = Traffic(pair.guests["a"], pair.guests["b"])
    lost = dropped = 0
    kills = 8
    took: list[float] = []
    try:
        for _ in range(kills):
            traffic.wait_more(500, "frames arrive")
            time.sleep(generator.random() * 0.01)
            counters = switch.counters("b")
            dropped += sum(count for name, count in counters.items() if name.startswith("drop_"))
            switch.control.close()
            switch.process.kill()
            switch.process.wait()
            for guest in pair.guests.values():
                if isinstance(guest, PackedFrontEnd):
                    guest.forget_recorded(generator.randrange(8))
            switch = start_switch(binaries, tmp_path)
            started = time.monotonic()
            for name in ("b", "a"):
                pair.serve(name)
            traffic.wait_more(0, "the guests resume")
            took.append(time.monotonic() - started)
        assert min(took) < 1, took
        traffic.pause()
        counters = switch.counters("b")
        dropped += sum(count for name, count in counters.items() if name.startswith("drop_"))
    finally:
        traffic.end()
    assert all(later > earlier for earlier, later in zip(traffic.received, traffic.received[1:], strict=False))
    lost = traffic.sent - len(traffic.received)
    assert lost <= dropped + kills * BURST, (lost, dropped)
    assert switch.end() == 0
    pair.end()


def frame(number: int) -> bytes:
    """To all of a bridge, and numbered."""
    return bytes.fromhex("ffffffffffff 020000000001 0900") + struct.pack("<Q", number) * 6


WAYS: dict[str, dict[str, Any]] = {
    "direct": {},
    "steered": {"chains": {"a-b": {"match": [{"ethertype": 0x0900}]}}},
    "bridged": {"chains": None, "bridges": {"lan": {"ports": {"a": {}, "b": {}}}}},
}


@pytest.mark.parametrize("kind", [FrontEnd, PackedFrontEnd], ids=["split", "packed"])
@pytest.mark.parametrize("way", WAYS)
def test_frames_wait_for_a_receiver_that_is_about_to_come_back(
    asan_binaries: Path, tmp_path: Path, way: str, kind: type[FrontEnd]
) -> None:
    """The sender is back first, with frames that it has sent meanwhile: they stay in its ring until the receiver is.

    Where this test was not back in time, which the switch says, it proves nothing and is done again.
    """
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        pair = Pair(folder, (kind, kind))
        switch = start_switch(asan_binaries, folder)
        switch.patch(**WAYS[way])
        for name in ("a", "b"):
            pair.serve(name)
            switch.wait_state(name, "up")
        switch.kill()
        a, b = pair.guests["a"], pair.guests["b"]
        frames = [frame(number) for number in range(40)]
        for each in frames:
            a.send(each)
        b.offer_buffers(len(frames))
        switch.start()
        pair.serve("a")
        switch.wait_state("a", "up")
        left = a.ring_size - a.room(SENDS)
        pair.serve("b")
        switch.wait_state("b", "up")
        in_time = not not_back(switch)
        if in_time:
            assert left == len(frames)
            assert b.wait_received(len(frames)) == frames
            for name in ("a", "b"):
                assert not any(count for reason, count in switch.counters(name).items() if reason.startswith("drop_"))
        assert switch.end() == 0
        pair.end()
        if in_time:
            return
    pytest.fail(f"the guest was back too late {ATTEMPTS} times")


def test_a_guest_that_stays_away_delays_those_who_send_to_it_once(asan_binaries: Path, tmp_path: Path) -> None:
    lan, wire = (Pair(tmp_path, (FrontEnd, FrontEnd), names) for names in (("a", "b"), ("d", "e")))
    guests = {**lan.guests, **wire.guests}
    pairs = {name: pair for pair in (lan, wire) for name in pair.guests}
    switch = start_switch(asan_binaries, tmp_path)
    for name in ("away", "d", "e"):
        switch.add_guest(name, mode="client")
    switch.patch(chains={"a-b": None}, bridges={"lan": {"ports": {"a": {}, "b": {}, "away": {}}}})
    switch.join("d", "e")
    for name, pair in pairs.items():
        pair.serve(name)
        switch.wait_state(name, "up")
    switch.kill()
    for name in ("b", "e"):
        guests[name].offer_buffers(8)
    for name in ("a", "d"):
        guests[name].send(frame(0))
    switch.start()
    for name, pair in pairs.items():
        pair.serve(name)
    arrived: dict[str, list[str]] = {}

    def all_arrived() -> bool:
        for name in {"b", "e"} - set(arrived):
            if guests[name].received() == [frame(0)]:
                arrived[name] = not_back(switch)
        return len(arrived) == 2

    wait_until(all_arrived, "both frames arrive")
    # Who does not send to the one that is away does not wait for it.
    assert arrived == {"b": ["away"], "e": []}
    # It is waited for once, and one that comes later is not waited for at all.
    guests["a"].send(frame(1))
    assert guests["b"].wait_received(1) == [frame(1)]
    switch.add_guest("later", mode="client")
    switch.patch(bridges={"lan": {"ports": {"later": {}}}})
    guests["a"].send(frame(2))
    assert guests["b"].wait_received(1) == [frame(2)]
    assert not_back(switch) == ["away"]
    assert switch.counters("away")["drop_receiver_down"] == 3
    assert switch.counters("later")["drop_receiver_down"] == 1
    assert switch.end() == 0
    for pair in (lan, wire):
        pair.end()


@pytest.mark.parametrize("kind", [FrontEnd, PackedFrontEnd], ids=["split", "packed"])
def test_a_front_end_that_comes_back_is_found_at_once(
    asan_binaries: Path, tmp_path: Path, kind: type[FrontEnd]
) -> None:
    """The switch as a client looks again every 20 ms, not every second."""
    pair = Pair(tmp_path, (kind, kind))
    switch = start_switch(asan_binaries, tmp_path)
    for name in ("a", "b"):
        pair.serve(name)
        switch.wait_state(name, "up")
    took = []
    for _ in range(5):
        for name, guest in pair.guests.items():
            guest.close()
            switch.wait_state(name, "waiting")
            guest.reset()
            began = time.monotonic()
            pair.serve(name)
            switch.wait_state(name, "up")
            took.append(time.monotonic() - began)
        a, b = pair.guests["a"], pair.guests["b"]
        b.offer_buffers(20)
        for number in range(20):
            a.send(struct.pack("<Q", number) * 8)
        wait_until(lambda: switch.counters("b")["sent_packets"] >= 20, f"frames cross; {switch.counters('a')}")
        assert b.wait_received(20) == [struct.pack("<Q", number) * 8 for number in range(20)]
    assert min(took) < 1, took
    assert switch.end() == 0
    pair.end()


def wait_forwards(switch: RunningSwitch) -> None:
    sent = switch.counters("b")["sent_packets"]
    wait_until(lambda: switch.counters("b")["sent_packets"] > sent, "it resumes")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.mark.requires_root
@pytest.mark.requires_program("dpdk-testpmd")
@pytest.mark.parametrize("packed", [pytest.param(0, id="split", marks=pytest.mark.whole), pytest.param(1, id="packed")])
def test_testpmd_outlives_the_switch(binaries: Path, stage: Path, packed: int) -> None:
    """The tester's frames go through a switch that stays, into DPDK's testpmd, from there through a switch that is
    killed and back through testpmd: its driver listens, as QEMU does. The tester counts exactly."""
    outer_folder, inner_folder = stage / "outer", stage / "inner"
    outer_folder.mkdir()
    inner_folder.mkdir()
    outer = RunningSwitch(binaries / "switch/tailrace-switch", outer_folder, "--idle", "pause")
    for name in ("in", "out", "first", "last"):
        outer.add_guest(name)
    outer.join("in", "first")
    outer.join("last", "out")
    sides = [
        f"net_virtio_user0,path={outer_folder}/first.sock",
        f"net_virtio_user1,path={inner_folder}/a.sock,server=1,packed_vq={packed}",
        f"net_virtio_user2,path={inner_folder}/b.sock,server=1,packed_vq={packed}",
        f"net_virtio_user3,path={outer_folder}/last.sock",
    ]
    log = (stage / "testpmd.log").open("w")
    prefix = f"tailrace-test-{uuid.uuid4().hex[:8]}"
    arguments = ["dpdk-testpmd", "--no-huge", "-m", "256", "--no-pci", "--no-telemetry", "-l", "0,1"]
    arguments += [f"--vdev={side}" for side in sides]
    arguments += [
        "--file-prefix",
        prefix,
        "--",
        "--auto-start",
        "--total-num-mbufs=16384",
    ]
    arguments += ["--forward-mode=io", "--port-topology=paired", "--stats-period=1"]
    inner = None
    testpmd = subprocess.Popen(arguments, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    tester = None
    try:
        wait_until(lambda: (inner_folder / "a.sock").exists(), "testpmd listens")
        inner = start_switch(binaries, inner_folder)
        for name in ("first", "last"):
            outer.wait_state(name, "up")
        for name in ("a", "b"):
            inner.wait_state(name, "up")
        tester = RunningTester(
            binaries / "tester/tailrace-tester",
            stage,
            {name: f"vhost:{outer_folder}/{name}.sock" for name in ("in", "out")},
        )
        tester.start([stream("there", "in", "out", 20_000)], 3600)
        for _ in range(3):
            tester.wait_more(1000)
            inner.control.close()
            inner.process.kill()
            inner.process.wait()
            inner = start_switch(binaries, inner_folder)
            for name in ("a", "b"):
                inner.wait_state(name, "up")
            wait_forwards(inner)
        tester.wait_more(1000)
        tester.call("trial.stop")
        (result,) = tester.wait_end()["streams"]
        assert result["duplicate"] == result["out_of_sequence"] == result["beyond_window"] == result["foreign"] == 0
        assert result["lost"] == result["sent"] - result["received"]
    finally:
        testpmd.kill()
        testpmd.wait()
        shutil.rmtree(f"/var/run/dpdk/{prefix}", ignore_errors=True)
        log.close()
        if tester is not None:
            tester.end()
        for each in (inner, outer):
            if each is not None:
                each.end()
