"""The switch ends when it is told to, whatever its guests do at that moment, against the real switch under the
sanitizers."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from front_end import RECEIVES, SENDS, SET_VRING_ENABLE, FrontEnd, fill
from guest_pair import GuestPair
from running_switch import RunningSwitch

TIMES = 10
MESSAGES = 64


def woken_by(descriptor: int) -> FrontEnd:
    """A guest that is woken for all of its rings by the same descriptor, which may be another guest's too."""
    guest = FrontEnd()
    for number, call in enumerate(guest.call):
        os.close(call)
        guest.call[number] = os.dup(descriptor)
    return guest


def end_while_it_is_woken_for(switch: RunningSwitch, pair: GuestPair, call: int) -> None:
    """Tell the switch to end, with messages to be read for each of which it takes a ring from its workers and would
    wake the guest; the descriptor for that is full, and made blocking again and again, whatever the switch makes it."""
    over = threading.Event()
    allowed = sorted(os.sched_getaffinity(0))
    mine, its = allowed[0], allowed[-1]

    def make_it_block() -> None:
        os.sched_setaffinity(0, {mine})
        with suppress(PermissionError):  # ahead of whatever else is at work there
            os.sched_setscheduler(0, os.SCHED_FIFO if mine != its else os.SCHED_OTHER, os.sched_param(mine != its))
        while not over.is_set():
            os.set_blocking(call, True)

    blocker = threading.Thread(target=make_it_block)
    switch.control.close()
    with switch.held_up():
        for thread in Path(f"/proc/{switch.process.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {its})
        fill(call)
        switch.process.send_signal(signal.SIGTERM)
        for guest in pair.guests:
            for number in range(MESSAGES):
                ring = (RECEIVES, SENDS)[number % 2]
                guest.send_message(SET_VRING_ENABLE, struct.pack("<II", ring, 1))
        blocker.start()
    try:
        assert switch.process.wait(60) == 0
    except subprocess.TimeoutExpired:
        switch.process.kill()
        switch.process.wait()
        pytest.fail("the switch has not ended in 60 s")
    finally:
        over.set()
        blocker.join()
    assert "Sanitizer" not in switch.log.read_text()


def test_no_guest_keeps_the_switch_from_ending(asan_binaries: Path, tmp_path: Path) -> None:
    """Whoever closes a port writes to its guest's descriptor as a worker does, and is watched over as one until the
    last port is closed. A guest can block it only between two system calls of the switch, so there are many tries."""
    for number in range(TIMES):
        folder = tmp_path / str(number)
        folder.mkdir()
        call = os.eventfd(0)
        switch = RunningSwitch(
            asan_binaries / "switch/tailrace-switch", folder, "--idle", "sleep", "--idle-after-us", "100"
        )
        pair = GuestPair(switch, ("bad", "peer"), lambda call=call: woken_by(call))  # type: ignore[misc]
        pair.exchange()
        end_while_it_is_woken_for(switch, pair, call)
        pair.end()
        os.close(call)
