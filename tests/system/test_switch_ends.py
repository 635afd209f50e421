"""The switch ends when it is told to, whatever its guests do at that moment, against the real switch under the
sanitizers."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
from pathlib import Path

import pytest
from front_end import RECEIVES, SENDS, SET_VRING_ENABLE, FrontEnd, fill
from guest_pair import GuestPair
from running_switch import RunningSwitch

PAIRS = 8


def woken_by(descriptor: int) -> FrontEnd:
    """A guest that is woken for all of its rings by the same descriptor, which may be another guest's too."""
    guest = FrontEnd()
    for number, call in enumerate(guest.call):
        os.close(call)
        guest.call[number] = os.dup(descriptor)
    return guest


@pytest.fixture
def blocking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file: once it has a byte that is not 0, eventfds block in the switch, whatever that makes them."""
    library, file = tmp_path / "blocking_eventfd.so", tmp_path / "blocking"
    source = Path(__file__).parent / "blocking_eventfd.c"
    subprocess.run(["gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", library, source], check=True)
    file.write_bytes(b"\0")
    for name, value in (
        ("LD_PRELOAD", str(library)),
        ("BLOCKING_EVENTFD", str(file)),
        ("ASAN_OPTIONS", "verify_asan_link_order=0"),
    ):
        monkeypatch.setenv(name, value)
    return file


def test_no_guest_keeps_the_switch_from_ending(
    asan_binaries: Path, tmp_path: Path, blocking: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes a ring from its workers, as where a port is closed, writes to its guest's descriptor, and is
    watched over until the last port is closed.

    Each guest is woken by a descriptor that is full and blocks. It asks for its rings to be taken and given back, so
    that there is something to wake it for, at the moment when the switch ends. Waking all of them takes longer than
    the rest of the end, so that a watchdog that ended before the ports were closed would leave the last of them
    waiting for ever."""
    call = os.eventfd(0)
    switch = RunningSwitch(
        asan_binaries / "switch/tailrace-switch", tmp_path, "--idle", "sleep", "--idle-after-us", "100"
    )
    for name in ("LD_PRELOAD", "BLOCKING_EVENTFD", "ASAN_OPTIONS"):
        monkeypatch.delenv(name)
    pairs = [GuestPair(switch, (f"left{number}", f"right{number}"), lambda: woken_by(call)) for number in range(PAIRS)]
    for pair in pairs:
        pair.exchange()
    switch.control.close()
    with switch.held_up():
        with blocking.open("r+b") as file:
            file.write(b"\1")
        fill(call)
        switch.process.send_signal(signal.SIGTERM)
        for guest in (each for pair in pairs for each in pair.guests):
            for ring in (RECEIVES, SENDS, RECEIVES, SENDS):
                guest.send_message(SET_VRING_ENABLE, struct.pack("<II", ring, 1))
    try:
        assert switch.process.wait(60) == 0
    except subprocess.TimeoutExpired:
        switch.process.kill()
        switch.process.wait()
        pytest.fail("the switch has not ended in 60 s")
    assert "Sanitizer" not in switch.log.read_text()
    for pair in pairs:
        pair.end()
    os.close(call)
