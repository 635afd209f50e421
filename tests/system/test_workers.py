"""Several workers: what each polls, queues that move between them beside traffic, exits that they share."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from front_end import FrontEnd
from guest_pair import GuestPair
from running_switch import RunningSwitch, wait_until
from running_tester import RunningTester, both_ways
from test_config import assert_exact


@pytest.fixture
def switch(asan_binaries: Path, tmp_path: Path) -> Iterator[RunningSwitch]:
    """Three workers on two cores."""
    running = RunningSwitch(asan_binaries / "switch/tailrace-switch", tmp_path, "--cores", "0,1,1", "--idle", "pause")
    yield running
    assert running.end() == 0


def test_no_worker_is_interrupted_by_the_signals_of_a_driver(switch: RunningSwitch) -> None:
    """DPDK's driver for TAP has the process signalled for each frame. The one that is let through makes every thread
    give up its privileges."""
    real_time = range(signal.SIGRTMIN, signal.SIGRTMAX + 1)
    for worker in switch.call("worker.list"):
        status = Path(f"/proc/{switch.process.pid}/task/{worker['tid']}/status").read_text()
        blocked = int(status.split("SigBlk:")[1].split()[0], 16)
        assert [number for number in real_time if not blocked >> (number - 1) & 1] == [signal.SIGRTMIN + 4]


def polled_by(switch: RunningSwitch) -> dict[str, str]:
    return {queue: worker["name"] for worker in switch.call("worker.list") for queue in worker["queues"]}


def test_queues_are_spread_over_the_workers(switch: RunningSwitch) -> None:
    assert "workers 1 and 2 share core 1" in switch.log.read_text()
    workers = switch.call("worker.list")
    assert [(worker["name"], worker["core"]) for worker in workers] == [
        ("worker-0", 0),
        ("worker-1", 1),
        ("worker-2", 1),
    ]
    assert len({worker["tid"] for worker in workers}) == 3
    for name in "abcdef":
        switch.add_guest(name)
    assert sorted(polled_by(switch).values()) == sorted(["worker-0", "worker-1", "worker-2"] * 2)
    switch.patch(ports={"a": {"queues": 3}}, workers={"pins": {"a/0": 2, "a/1": 2, "b/0": 1}})
    assert [polled_by(switch)[queue] for queue in ("a/0", "a/1", "b/0")] == ["worker-2", "worker-2", "worker-1"]


def test_queues_may_move_while_frames_pass(switch: RunningSwitch) -> None:
    pair = GuestPair(switch, ("a", "b"))
    for number in range(30):
        switch.patch(workers={"pins": {"a/0": number % 3, "b/0": number // 3 % 3}})
        pair.exchange(8)
    pair.assert_untouched()
    pair.end()


def test_workers_that_share_a_receiver_lose_and_mix_nothing(switch: RunningSwitch) -> None:
    """Three senders on three workers to one receive queue, which takes its lock."""
    guests = {name: FrontEnd(ring_size=256) for name in ("a", "b", "c", "to")}
    for name, guest in guests.items():
        guest.start(switch.add_guest(name))
        switch.wait_state(name, "up")
    names = ("a", "b", "c")
    switch.patch(
        chains={name: {"from": name, "to": "to", "match": [{"ethertype": 0x88B5}]} for name in names},
        workers={"pins": {f"{name}/0": number for number, name in enumerate(names)}},
    )
    rounds, received = 60, []
    head = bytes.fromhex("020000000002 020000000001 88b5")
    for number in range(rounds):
        guests["to"].offer_buffers(3)
        senders = [
            threading.Thread(target=guests[name].send, args=(head + f"{name}{number:04}".encode().ljust(46),))
            for name in names
        ]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        received += guests["to"].wait_received(3)
    for name in names:
        mine = [frame[14:19].decode() for frame in received if frame[14:15] == name.encode()]
        assert mine == [f"{name}{number:04}" for number in range(rounds)]
    hops = {slot.name: slot.counters["forward_packets"] for slot in switch.page.slots() if slot.kind == "hop"}
    assert hops == {f"{name}/0": rounds for name in names}
    for guest in guests.values():
        guest.end()


@pytest.mark.parametrize(
    "idle", [*(pytest.param(each, marks=pytest.mark.whole) for each in ("poll", "pause")), "sleep"]
)
def test_moving_beside_traffic_reorders_and_loses_nothing(binaries: Path, tmp_path: Path, idle: str) -> None:
    switch = RunningSwitch(
        binaries / "switch/tailrace-switch", tmp_path, "--cores", "0,1", "--idle", idle, "--backpressure-us", "10000000"
    )
    ends = {name: f"vhost:{switch.add_guest(name)}" for name in "ab"}
    switch.set_chain("x", "a", "b")
    tester = RunningTester(binaries / "tester/tailrace-tester", tmp_path, ends)
    for name in ends:
        switch.wait_state(name, "up")
    tester.start(both_ways(5000), 3600, wait=3.0)
    tester.wait_sent(100)
    for number in range(20):
        switch.patch(workers={"pins": {"a/0": number % 2, "b/0": number // 2 % 2}})
        time.sleep(0.03)
    tester.call("trial.stop")
    result = tester.wait_end()
    for name in ("there", "back"):
        assert_exact(result, name)
    assert tester.end() == 0
    assert switch.end() == 0


def test_a_saturated_worker_gives_a_queue_to_an_idle_one(binaries: Path, tmp_path: Path) -> None:
    """Devices that always have frames, so a worker that polls one has no idle round."""
    switch = RunningSwitch(binaries / "switch/tailrace-switch", tmp_path, "--cores", "0,1", "--memory", "128")
    names = [f"n{number}" for number in range(4)]
    switch.patch(
        ports={name: {"kind": "device", "device": f"vdev:net_null{number}"} for number, name in enumerate(names)},
        chains={"x": {"from": "n0", "to": "n1"}, "y": {"from": "n2", "to": "n3"}},
        workers={"pins": {f"{name}/0": 0 for name in names}},
    )
    wait_until(lambda: bool(switch.call("worker.list")[0]["busy"] > 0.9), "the worker is saturated")
    time.sleep(2.5)
    assert set(polled_by(switch).values()) == {"worker-0"}  # a pin stands
    assert "moved" not in switch.log.read_text()
    switch.patch(workers=None)
    wait_until(lambda: len(set(polled_by(switch).values())) == 2, "a queue has moved")
    said = re.findall(
        r"queue n[0-3]/0 moved from worker 0 to worker 1: .* (\d+) % and \d+ % busy", switch.log.read_text()
    )
    assert len(said) == 1
    assert int(said[0]) > 90
    moved = next(queue for queue, worker in polled_by(switch).items() if worker == "worker-1").partition("/")[0]
    before = switch.counters(moved)["received_packets"]
    wait_until(lambda: switch.counters(moved)["received_packets"] > before + 1000, "the other worker polls it")
    assert switch.end() == 0


@pytest.mark.parametrize(
    ("cores", "reason"),
    [
        ("0,999", "core 999 is offline or not allowed"),
        ("0,", "--cores 0,: expected up to 64 CPU numbers"),
        ("one", "--cores one: expected up to 64 CPU numbers"),
        ("-1", "--cores -1: expected up to 64 CPU numbers"),
    ],
)
def test_cores_that_cannot_be(binaries: Path, tmp_path: Path, cores: str, reason: str) -> None:
    options = ["--control", tmp_path / "control", "--page", tmp_path / "page", "--cores", cores]
    done = subprocess.run(
        [binaries / "switch/tailrace-switch", *options], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode in (1, 2)
    assert reason in done.stderr
    assert not (tmp_path / "control").exists()


def test_a_core_that_another_switch_has_is_refused(switch: RunningSwitch, binaries: Path, tmp_path: Path) -> None:
    """Unless sharing is asked for, as this test's own switches do."""
    folder = tmp_path / "second"
    folder.mkdir()
    program = binaries / "switch/tailrace-switch"
    said = f"core 1 is taken by a worker of another switch (process {switch.process.pid}), and each waits"
    options = ["--control", folder / "control", "--page", folder / "page", "--cores", "1"]
    # However often somebody has asked before: more often than there is room for in a queue.
    for _ in range(int(Path("/proc/sys/net/core/somaxconn").read_text()) + 100):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(20)
            probe.connect("\0tailrace-worker-on-core-1")
    refused = subprocess.run([program, *options], capture_output=True, text=True, timeout=30, check=False)
    assert refused.returncode == 1
    assert [line for line in refused.stderr.splitlines() if " error: " in line] == refused.stderr.splitlines()
    assert said in refused.stderr
    assert "--share-cores" in refused.stderr
    assert not list(folder.iterdir())
    second = RunningSwitch(program, folder, "--cores", "1", "--idle", "sleep")
    assert said in second.log.read_text()
    assert second.end() == 0
    assert switch.call("version")["program"] == "tailrace-switch"


def test_a_core_for_two_workers_is_refused(binaries: Path, tmp_path: Path) -> None:
    options = ["--control", tmp_path / "control", "--page", tmp_path / "page", "--cores", "1,1"]
    done = subprocess.run(
        [binaries / "switch/tailrace-switch", *options], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert "workers 0 and 1 share core 1" in done.stderr
    assert not (tmp_path / "control").exists()


def test_each_worker_has_an_idle_policy_of_its_own(asan_binaries: Path, tmp_path: Path) -> None:
    """Frames cross from the one that sleeps to the one that polls and back."""
    policies = ("--cores", "0,1,1", "--idle", "pause,sleep", "--idle-after-us", "100")
    switch = RunningSwitch(asan_binaries / "switch/tailrace-switch", tmp_path, *policies)
    assert [worker["idle"] for worker in switch.call("worker.list")] == ["pause", "sleep", "sleep"]
    pair = GuestPair(switch, ("a", "b"))
    switch.patch(workers={"pins": {"a/0": 0, "b/0": 1}})
    asleep = [False, True, True]
    wait_until(lambda: [worker["asleep"] for worker in switch.call("worker.list")] == asleep, "two workers sleep")
    for _ in range(20):
        pair.exchange(4)
    pair.assert_untouched()
    pair.end()
    assert switch.end() == 0


@pytest.mark.parametrize("policies", ["poll,nap", "poll,", ",poll", "", "poll,poll,sleep"])
def test_wrong_idle_policies_are_one_clear_line(binaries: Path, tmp_path: Path, policies: str) -> None:
    options = ["--control", tmp_path / "control", "--page", tmp_path / "page", "--cores", "0,1", "--idle", policies]
    done = subprocess.run(
        [binaries / "switch/tailrace-switch", *options], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert ("3 policies, and there are 2 workers" if policies.count(",") == 2 else "one for each worker") in line
    assert not (tmp_path / "control").exists()


@pytest.mark.requires_root
def test_others_cannot_say_that_a_core_is_taken(binaries: Path, tmp_path: Path) -> None:
    """The name by which a switch says so is one that anybody can take."""
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import socket; s = socket.socket(socket.AF_UNIX); s.bind('\\0tailrace-worker-on-core-1'); s.listen(); "
            "print('taken', flush=True); input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        user=65534,
    )
    assert holder.stdout is not None and holder.stdout.readline() == b"taken\n"
    running = RunningSwitch(binaries / "switch/tailrace-switch", tmp_path, "--cores", "1", "--idle", "sleep")
    running.command.remove("--share-cores")
    assert running.end() == 0
    running.start()
    assert "somebody says that core 1 is taken" in running.log.read_text()
    assert running.end() == 0
    holder.communicate(b"\n")
