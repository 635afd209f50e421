"""What a virtual machine's front end says when the machine reboots, resets its driver, unbinds it, migrates or gets
more memory: all of it while frames move. Under the sanitizers.
"""

from __future__ import annotations

import contextlib
import grp
import os
import random
import re
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from front_end import (
    ADD_MEM_REG,
    BASE,
    F_LOG_ALL,
    GET_MAX_MEM_SLOTS,
    GET_QUEUE_NUM,
    RECEIVES,
    REM_MEM_REG,
    RESET_DEVICE,
    RESET_OWNER,
    RING_AT,
    SENDS,
    SET_FEATURES,
    SET_LOG_BASE,
    SET_STATUS,
    SET_VRING_ADDR,
    SET_VRING_ENABLE,
    SIZE,
    USER,
    FrontEnd,
    PackedFrontEnd,
)
from guest_pair import GuestPair
from running_switch import RunningSwitch, wait_until

from tailrace.process.control import ControlError

KINDS = pytest.mark.parametrize("kind", [FrontEnd, PackedFrontEnd], ids=["split", "packed"])


@pytest.fixture
def switch(request: pytest.FixtureRequest, asan_binaries: Path, tmp_path: Path) -> Iterator[RunningSwitch]:
    running = RunningSwitch(asan_binaries / "switch/tailrace-switch", tmp_path, *getattr(request, "param", ()))
    yield running
    assert running.end() == 0


class Load:
    """Frames from the pair's second guest to the first, without end; the first may stop listening at any moment."""

    def __init__(self, pair: GuestPair) -> None:
        self.sender = pair.guests[1]
        self.sent = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            if self.sender.room(SENDS) > 0:
                self.sender.send(struct.pack("<Q", self.sent) * 8)
                self.sent += 1

    def wait_more(self, count: int) -> None:
        seen = self.sent
        wait_until(lambda: self.sent >= seen + count, "the switch takes frames")

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


def disconnect(guest: FrontEnd) -> None:
    guest.close()


def reset_owner(guest: FrontEnd) -> None:
    guest.send_message(RESET_OWNER)


def reset_device(guest: FrontEnd) -> None:
    guest.send_message(RESET_DEVICE)


def reset_status(guest: FrontEnd) -> None:
    guest.send_message(SET_STATUS, struct.pack("<Q", 0))


def stop_rings(guest: FrontEnd) -> None:
    guest.stop_rings()


def disable_and_stop(guest: FrontEnd) -> None:
    for ring in (RECEIVES, SENDS):
        guest.send_message(SET_VRING_ENABLE, struct.pack("<II", ring, 0))
    guest.stop_rings()


@KINDS
@pytest.mark.parametrize(
    "how", [disconnect, reset_owner, reset_device, reset_status, stop_rings, disable_and_stop], ids=lambda f: f.__name__
)
def test_a_driver_that_starts_anew_under_load(
    switch: RunningSwitch, kind: type[FrontEnd], how: Callable[[FrontEnd], None]
) -> None:
    """Ten times, while the worker moves frames to and from it."""
    pair = GuestPair(switch, ("a", "b"), kind)
    load = Load(pair)
    try:
        for _ in range(10):
            guest = pair.guests[0]
            guest.offer_buffers(guest.room(RECEIVES))
            for number in range(guest.room(SENDS)):
                guest.send(bytes([number & 0xFF]) * 60)
            load.wait_more(20)
            how(guest)
            switch.wait_state("a", "waiting")
            load.wait_more(64)  # frames for nobody do not stay with their sender
            guest.reset()
            if guest.socket is None:
                guest.start(pair.paths[0])
            else:
                guest.start_rings()
            switch.wait_state("a", "up")
            guest.offer_buffers(40)
            frames = [struct.unpack_from("<Q", frame)[0] for frame in guest.wait_received(30)]
            assert all(later > earlier for earlier, later in pairwise(frames))
    finally:
        load.end()
    assert switch.counters("a")["quarantines"] == 0
    assert switch.counters("a")["drop_receiver_down"] > 0


@KINDS
def test_what_is_sent_by_a_disabled_queue_is_thrown_away(switch: RunningSwitch, kind: type[FrontEnd]) -> None:
    """As the vhost-user specification has it ("Ring states"): the guest has its buffers back, and is told."""
    pair = GuestPair(switch, ("a", "b"), kind)
    guest, peer = pair.guests
    pair.exchange()
    assert guest.room(SENDS) == guest.ring_size
    guest.send_message(SET_VRING_ENABLE, struct.pack("<II", SENDS, 0))
    switch.wait_state("a", "waiting")
    with contextlib.suppress(BlockingIOError):
        os.eventfd_read(guest.call[SENDS])
    peer.offer_buffers(20)
    for rounds in (1, 2, 3):
        for _ in range(guest.ring_size):
            guest.send(b"d" * 60)
        wait_until(lambda: guest.room(SENDS) == guest.ring_size, "all buffers are back")
        dropped = rounds * guest.ring_size
        wait_until(lambda count=dropped: switch.counters("a")["drop_queue_disabled"] == count, "they are counted")  # type: ignore[misc]
    assert os.eventfd_read(guest.call[SENDS]) > 0
    guest.send_message(SET_VRING_ENABLE, struct.pack("<II", SENDS, 1))
    switch.wait_state("a", "up")
    guest.send(b"e" * 60)
    assert peer.wait_received(1) == [b"e" * 60]
    assert switch.counters("a")["drop_queue_disabled"] == 3 * guest.ring_size
    pair.end()
    pair.end()


@KINDS
def test_rings_that_stop_and_go_on_where_they_stood(switch: RunningSwitch, kind: type[FrontEnd]) -> None:
    """A machine that is paused, or has been migrated: what the back end said is what it is told."""
    pair = GuestPair(switch, ("a", "b"), kind)
    for count in (1, 63, 64, 1, 5):
        pair.exchange(count)
        guest = pair.guests[0]
        positions = guest.stop_rings()
        switch.wait_state("a", "waiting")
        assert positions == [guest.position(ring) for ring in (RECEIVES, SENDS)]
        guest.start_rings(positions[0])
        switch.wait_state("a", "up")
    pair.exchange()
    pair.end()


@pytest.mark.parametrize("switch", [("--idle", "sleep")], indirect=True, ids=["sleeping"])
def test_a_packed_ring_that_is_stopped_is_left_alone(switch: RunningSwitch) -> None:
    """QEMU would serve it from a wrong place, if the guest kicked it as it was to kick a switch that sleeps."""
    pair = GuestPair(switch, ("a", "b"), PackedFrontEnd)
    pair.exchange()
    guest = pair.guests[0]
    wishes = (RING_AT[SENDS] + 0x8000) // 2 + 1
    wait_until(lambda: guest.words[wishes] == 0, "a kick is asked for")
    guest.stop_rings()
    assert guest.words[wishes] == 1
    pair.end()


# Python's guests may be slow to take frames: the switch waits for them longer than it would for others.
@pytest.mark.parametrize("switch", [("--backpressure-us", "10000000")], indirect=True, ids=["patient"])
@KINDS
def test_memory_comes_and_goes_under_load(switch: RunningSwitch, kind: type[FrontEnd]) -> None:
    """As QEMU's hot-plug does it: the whole table again, or a slot. No frame is lost: while the rings are withdrawn,
    those for them wait."""
    pair = GuestPair(switch, ("a", "b"), kind)
    guest = pair.guests[0]
    more = os.memfd_create("more")
    os.ftruncate(more, SIZE)
    slot = struct.pack("<QQQQQ", 0, BASE + SIZE, SIZE, USER + SIZE, 0)
    received: list[int] = []

    def take() -> None:
        guest.offer_buffers(guest.room(RECEIVES))
        received.extend(struct.unpack_from("<Q", frame)[0] for frame in guest.received())

    take()
    load = Load(pair)
    try:
        for _ in range(30):
            assert guest.acknowledged(ADD_MEM_REG, slot, (more,))
            take()
            assert guest.acknowledged(REM_MEM_REG, slot)
            take()
            guest.give_memory(SIZE - 4096)
            take()
            guest.give_memory()
            take()
    finally:
        load.end()
    wait_until(lambda: take() is None and received[-1:] == [load.sent - 1], "the last frame arrives")
    assert received == list(range(load.sent))
    assert not any(count for name, count in switch.counters("a").items() if name.startswith("drop_"))
    assert struct.unpack("<Q", guest.ask(GET_MAX_MEM_SLOTS))[0] == 32
    assert struct.unpack("<Q", guest.ask(GET_QUEUE_NUM))[0] == 1
    os.close(more)
    pair.end()


@KINDS
def test_what_is_written_is_noted_for_a_migration(switch: RunningSwitch, kind: type[FrontEnd]) -> None:
    """Logging begins under load, as a migration does, and every page that the switch then writes is in the log."""
    pair = GuestPair(switch, ("a", "b"), kind)
    pair.exchange()
    guest = pair.guests[0]
    log_fd = os.memfd_create("log")
    os.ftruncate(log_fd, (BASE + SIZE) // 4096 // 8 + 1)
    assert guest.ask(SET_LOG_BASE, struct.pack("<QQ", (BASE + SIZE) // 4096 // 8 + 1, 0), (log_fd,))
    assert guest.acknowledged(SET_FEATURES, struct.pack("<Q", guest.features | F_LOG_ALL))
    for ring in (RECEIVES, SENDS):
        at, place = USER + RING_AT[ring], RING_AT[ring] if kind is PackedFrontEnd else RING_AT[ring] + 0x8000
        address = struct.pack("<IIQQQQ", ring, 1, at, at + 0x8000, at + 0x4000, BASE + place)
        assert guest.acknowledged(SET_VRING_ADDR, address)
    guest.offer_buffers(20)
    offered = bytes(guest.memory)
    for number in range(20):
        pair.guests[1].send(random.Random(number).randbytes(1000))
    assert len(guest.wait_received(20)) == 20
    guest.stop_rings()
    after = bytes(guest.memory)
    log = os.pread(log_fd, os.fstat(log_fd).st_size, 0)
    written = [page for page in range(SIZE // 4096) if offered[page * 4096 :][:4096] != after[page * 4096 :][:4096]]
    assert len(written) > 5
    noted = {number - BASE // 4096 for number in range(len(log) * 8) if log[number // 8] >> number % 8 & 1}
    assert set(written) <= noted
    os.close(log_fd)
    pair.end()


@KINDS
def test_who_is_attached_is_reported(switch: RunningSwitch, kind: type[FrontEnd]) -> None:
    began = int(time.time())
    pair = GuestPair(switch, ("a", "b"), kind)
    attached = switch.port("a")["attached"]
    assert began <= attached.pop("since") <= time.time()
    packed = kind is PackedFrontEnd
    features = ["mrg_rxbuf", "version_1", "packed"] if packed else ["mrg_rxbuf", "indirect_desc", "version_1"]
    assert attached == {
        "layout": "packed" if packed else "split",
        "rings": [{"receive": 64, "send": 64}],
        "features": features,
        "memory": SIZE,
        "logs": False,
    }
    guest = pair.guests[0]
    log_fd = os.memfd_create("log")
    os.ftruncate(log_fd, (BASE + SIZE) // 4096 // 8 + 1)
    assert guest.ask(SET_LOG_BASE, struct.pack("<QQ", (BASE + SIZE) // 4096 // 8 + 1, 0), (log_fd,))
    assert guest.acknowledged(SET_FEATURES, struct.pack("<Q", guest.features | F_LOG_ALL))
    assert switch.port("a")["attached"]["logs"]
    os.close(log_fd)
    guest.close()
    wait_until(lambda: switch.port("a")["attached"] is None, "it has gone")
    said = re.findall(r"port a: (.*)", switch.log.read_text())
    assert said == ["a guest is there", "its guest has gone"]
    pair.end()


# ------- the socket -------


GROUP = grp.getgrall()[-1]


@pytest.mark.requires_root
@pytest.mark.parametrize("switch", [("--groups", GROUP.gr_name)], indirect=True, ids=["with-groups"])
def test_the_sockets_mode_and_group(switch: RunningSwitch) -> None:
    path = switch.add_guest("a", socket={"mode": "0660", "group": GROUP.gr_name})
    found = path.stat()
    assert stat.S_IMODE(found.st_mode) == 0o660
    assert found.st_gid == GROUP.gr_gid
    path = switch.add_guest("b", socket={"mode": "0600"})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_sockets_that_cannot_be_are_refused_in_one_line(switch: RunningSwitch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    refused: list[tuple[dict[str, object], str]] = [
        ({"path": "/" + "x" * 200}, "longer than 107 bytes"),
        ({"path": str(tmp_path / "no/such/folder/a.sock")}, "No such file or directory"),
        ({"path": "/proc/a.sock"}, "cannot be made|No such file"),
        ({"path": str(tmp_path / "file")}, "no socket is there"),
        ({"path": str(tmp_path / "a.sock"), "socket": {"group": "nosuchgroup"}}, "no group 'nosuchgroup'"),
        ({"path": str(tmp_path / "a.sock"), "socket": {"group": GROUP.gr_name}}, "start the switch with --groups"),
        ({"path": str(tmp_path / "a.sock"), "queues": 17}, "16"),
    ]
    for guest, reason in refused:
        try:
            switch.patch(ports={"odd": {"kind": "guest", **guest}})
            pytest.fail(f"{guest} was taken")
        except ControlError as error:
            assert re.search(reason, str(error)) and "\n" not in str(error)
    assert switch.call("port.list") == []
    assert (tmp_path / "file").read_text() == "x"
