"""Every shape that DPDK's virtio driver gives its rings, through the real switch under the sanitizers: the tester
counts each frame, or testpmd does where there are several queues.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running_switch import RunningSwitch, wait_until
from running_tester import RunningTester, both_ways
from testpmd import Testpmd

pytestmark = pytest.mark.requires_root

SHAPES: dict[str, str] = {
    "split": "packed_vq=0",
    "packed": "packed_vq=1",
    "split-in-order": "packed_vq=0,in_order=1",
    "split-out-of-order": "packed_vq=0,in_order=0",
    "packed-in-order": "packed_vq=1,in_order=1",
    "packed-out-of-order": "packed_vq=1,in_order=0",
    "split-one-buffer": "packed_vq=0,mrg_rxbuf=0",
    "packed-one-buffer": "packed_vq=1,mrg_rxbuf=0",
    "packed-one-buffer-in-order": "packed_vq=1,mrg_rxbuf=0,in_order=1",
    "split-vectorized": "packed_vq=0,mrg_rxbuf=0,in_order=0,vectorized=1",
    "packed-vectorized": "packed_vq=1,mrg_rxbuf=0,in_order=1,vectorized=1",
    "split-64": "packed_vq=0,queue_size=64",
    "packed-64": "packed_vq=1,queue_size=64",
    "split-256-in-order": "packed_vq=0,in_order=1,queue_size=256",
    "packed-512": "packed_vq=1,queue_size=512",
    "split-1024": "packed_vq=0,queue_size=1024",
    "packed-1024-in-order": "packed_vq=1,in_order=1,queue_size=1024",
    "split-4096": "packed_vq=0,queue_size=4096",
    "packed-4096": "packed_vq=1,queue_size=4096",
    "split-32768": "packed_vq=0,queue_size=32768",
}

BETWEEN = ("split-256-in-order", "packed-512", "split-1024", "packed-1024-in-order")
"""Neither the smallest ring nor the largest."""


@pytest.fixture
def switch(asan_binaries: Path, tmp_path: Path) -> Iterator[RunningSwitch]:
    running = RunningSwitch(asan_binaries / "switch/tailrace-switch", tmp_path, "--idle", "pause")
    yield running
    assert running.end() == 0


def assert_every_frame_once(result: dict[str, Any]) -> None:
    for each in result["streams"]:
        assert each["received"] == each["sent"] > 0, each
        for key in ("lost", "duplicate", "out_of_sequence", "beyond_window", "foreign"):
            assert each[key] == 0, (key, each)


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(shape, id=name, marks=[pytest.mark.whole] if name in BETWEEN else [])
        for name, shape in SHAPES.items()
    ],
)
def test_every_shape_of_ring(switch: RunningSwitch, binaries: Path, tmp_path: Path, shape: str) -> None:
    """Several times around the ring where it is small; frames of all sizes."""
    ports = {}
    for number, name in enumerate("ab"):
        path = switch.add_guest(name)
        ports[name] = f"vdev:net_virtio_user{number},path={path},{shape}"
    switch.join("a", "b")
    tester = RunningTester(binaries / "tester/tailrace-tester", tmp_path, ports, "--memory", "192")
    try:
        for name in "ab":
            switch.wait_state(name, "up")
        result = tester.trial(both_ways(10_000, frames=[64, 570, 1518], weights=[2, 1, 1]), 0.3)
        assert_every_frame_once(result)
        for counters in map(switch.counters, "ab"):
            assert not any(count for counter, count in counters.items() if counter.startswith("drop_")), counters
            assert counters["quarantines"] == 0
    finally:
        tester.end()


def test_mixed_shapes(switch: RunningSwitch, binaries: Path, tmp_path: Path) -> None:
    """A chain's two guests need not be alike."""
    shapes = {"a": "packed_vq=1,in_order=1,queue_size=256", "b": "packed_vq=0,mrg_rxbuf=0,queue_size=1024"}
    ports = {
        name: f"vdev:net_virtio_user{number},path={switch.add_guest(name)},{shape}"
        for number, (name, shape) in enumerate(shapes.items())
    }
    switch.join("a", "b")
    tester = RunningTester(binaries / "tester/tailrace-tester", tmp_path, ports)
    try:
        for name in "ab":
            switch.wait_state(name, "up")
        assert_every_frame_once(tester.trial(both_ways(10_000, frames=[64, 570, 1518]), 0.3))
    finally:
        tester.end()


def drivers(paths: list[Path], options: str) -> list[str]:
    return [f"net_virtio_user{number},path={path},{options}" for number, path in enumerate(paths)]


@pytest.mark.requires_program("dpdk-testpmd")
@pytest.mark.parametrize(
    ("configured", "offered", "used", "packed"),
    [(1, 1, 1, 0), (2, 2, 2, 1), (4, 4, 3, 0), (16, 8, 8, 0), (8, 8, 5, 1), (16, 2, 1, 0)],
    ids=["1", "2-packed", "3-of-4", "8-of-16", "5-of-8-packed", "1-of-2-of-16"],
)
def test_queues(switch: RunningSwitch, tmp_path: Path, configured: int, offered: int, used: int, packed: int) -> None:
    """The switch has room for `configured` pairs, the front end has `offered`, the driver uses `used` of them. Frames
    go around on every pair that is used, and none is lost. DPDK's driver has 8 pairs at the most."""
    paths = [switch.add_guest(name, queues=configured) for name in "ab"]
    switch.join("a", "b")
    testpmd = Testpmd(tmp_path, drivers(paths, f"queues={offered},queue_size=256,packed_vq={packed}"), queues=used)
    for name in "ab":
        switch.wait_state(name, "up")
    wait_until(lambda: all(switch.port(name)["pairs"] == used for name in "ab"), f"{used} pairs are in use")
    testpmd.say("start tx_first 1")

    def moved(queue: int) -> bool:
        counters = [slot.counters for slot in switch.page.slots() if slot.name in (f"a/{queue}", f"b/{queue}")]
        return len(counters) == 2 and all(each["received_packets"] > 1000 for each in counters)

    for queue in range(used):
        wait_until(lambda queue=queue: moved(queue), f"frames go around on pair {queue}")  # type: ignore[misc]
    counts = testpmd.end()
    assert len(counts) >= 2
    assert all(each["dropped"] == 0 for each in counts), counts
    for counters in map(switch.counters, "ab"):
        # What was under way when testpmd left is all that may be lost.
        lost = sum(count for counter, count in counters.items() if counter.startswith("drop_"))
        assert lost <= 64 * used, counters
        assert counters["quarantines"] == 0


SMALL_BUFFERS = ("--mbuf-size=384", "--enable-scatter", "--tx-offloads=0x8000", "--no-flush-rx")
"""256 bytes each for a frame, of which it may take several on the way in and on the way out (DPDK's MULTI_SEGS)."""


@pytest.mark.requires_program("dpdk-testpmd")
@pytest.mark.parametrize(
    "shape",
    [
        pytest.param("packed_vq=0", id="split", marks=pytest.mark.whole),
        pytest.param("packed_vq=0,in_order=0", id="split-out-of-order"),
        pytest.param("packed_vq=1", id="packed"),
        pytest.param("packed_vq=1,in_order=1", id="packed-in-order", marks=pytest.mark.whole),
        pytest.param("packed_vq=1,in_order=0", id="packed-out-of-order", marks=pytest.mark.whole),
    ],
)
def test_frames_of_several_buffers(switch: RunningSwitch, binaries: Path, tmp_path: Path, shape: str) -> None:
    """A guest between two others has no buffer that holds a frame of more than 244 bytes: it receives and sends them
    in pieces, and the tester finds every byte that it signed."""
    paths = {name: switch.add_guest(name) for name in ("a", "in", "out", "b")}
    switch.patch(chains={"there": {"from": "a", "to": "in"}, "back": {"from": "out", "to": "b"}})
    testpmd = Testpmd(tmp_path, drivers([paths["in"], paths["out"]], f"queue_size=256,{shape}"), *SMALL_BUFFERS)
    ports = {name: f"vdev:net_virtio_user{number},path={paths[name]}" for number, name in enumerate("ab")}
    tester = RunningTester(binaries / "tester/tailrace-tester", tmp_path, ports, "--memory", "192")
    try:
        for name in paths:
            switch.wait_state(name, "up")
        testpmd.say("start")

        def trial(seconds: float) -> dict[str, Any]:
            return tester.trial(both_ways(1_000, frames=[64, 570, 1518], weights=[1, 1, 1]), seconds)

        def all_come(result: dict[str, Any]) -> bool:
            return all(each["received"] == each["sent"] > 0 for each in result["streams"])

        wait_until(lambda: all_come(trial(0.05)), "testpmd forwards")
        assert_every_frame_once(trial(1.0))
        assert all(switch.counters(name)["quarantines"] == 0 for name in paths)
    finally:
        tester.end()
        testpmd.end()


def test_more_queues_than_configured_are_refused(switch: RunningSwitch, tmp_path: Path) -> None:
    paths = [switch.add_guest(name, queues=2) for name in "ab"]
    testpmd = Testpmd(tmp_path, drivers(paths, "queues=4"), queues=4)
    assert testpmd.wait() != 0
    assert "queue" in testpmd.log.read_text()
    assert switch.port("a")["state"] == "waiting"
