"""The program that has the priority of a machine's virtual CPUs follow what it says, beside threads and a page of the
test's own: whatever stands in that page, priorities are within the bounds, and in the end they are as before.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_node import wait_until

pytestmark = [pytest.mark.requires_root, pytest.mark.requires_program("tailrace-priority"), pytest.mark.timeout(120)]

MAGIC, IDLE = 0x3159544952495250, 100
LEAST, MOST = 5, 30
OTHER = (os.SCHED_OTHER, 0)


class Machine:
    """What stands for QEMU: this process, with a thread for each virtual CPU."""

    def __init__(self, cpus: int = 2) -> None:
        self.page: mmap.mmap | None = mmap.mmap(-1, mmap.PAGESIZE)
        self.at = ctypes.addressof(ctypes.c_char.from_buffer(self.page))
        self.ends = [threading.Event() for _ in range(cpus)]
        self.threads = [threading.Thread(target=end.wait, daemon=True) for end in self.ends]
        for thread in self.threads:
            thread.start()
        self.silent = threading.Event()
        self._beater = threading.Thread(target=self._beat, daemon=True)
        self._beater.start()

    def _beat(self) -> None:
        assert self.page is not None
        number = 0
        while not self.silent.wait(0.1):
            number += 1
            self.page[0:16] = struct.pack("<QQ", MAGIC, number)

    def say(self, cpu: int, word: int) -> None:
        assert self.page is not None
        at = 64 * (1 + cpu)
        self.page[at : at + 4] = struct.pack("<I", word)

    def has(self, cpu: int) -> tuple[int, int]:
        thread = self.threads[cpu].native_id
        assert thread is not None
        return os.sched_getscheduler(thread) & ~os.SCHED_RESET_ON_FORK, os.sched_getparam(thread).sched_priority

    def be_silent(self) -> None:
        self.silent.set()
        self._beater.join()

    def end(self) -> None:
        self.be_silent()
        for end in self.ends:
            end.set()


@pytest.fixture
def machine() -> Iterator[Machine]:
    made = Machine()
    yield made
    made.end()


class Follower:
    def __init__(self, binaries: Path, machine: Machine, *, process: int | None = None, period: int = 1000) -> None:
        argv = [str(binaries / "priority/tailrace-priority"), "--process", str(process or os.getpid())]
        argv += ["--page", f"{machine.at:x}", "--least", str(LEAST), "--most", str(MOST), "--period", str(period)]
        for thread in machine.threads:
            argv += ["--thread", str(thread.native_id)]
        self.process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)

    def end(self) -> str:
        """What it has said."""
        self.process.send_signal(signal.SIGTERM)
        said = self.process.communicate(timeout=60)[1]
        assert self.process.returncode == 0, said
        return said


@pytest.fixture
def follower(binaries: Path, machine: Machine) -> Iterator[Follower]:
    started = Follower(binaries, machine)
    yield started
    started.process.kill()
    started.process.communicate()


def fifo(priority: int) -> tuple[int, int]:
    return (os.SCHED_FIFO, priority)


def test_priorities_follow_within_the_bounds_and_are_given_back(machine: Machine, follower: Follower) -> None:
    machine.say(0, IDLE)
    machine.say(1, 20)
    wait_until(lambda: (machine.has(0), machine.has(1)) == (fifo(MOST), fifo(20)))
    machine.say(0, 99)
    machine.say(1, 1)
    wait_until(lambda: (machine.has(0), machine.has(1)) == (fifo(MOST), fifo(LEAST)))
    machine.say(0, 0)
    for priority in (LEAST, MOST, LEAST):  # it is raised for a moment now and then
        wait_until(lambda priority=priority: machine.has(0) == fifo(priority))  # type: ignore[misc]
    follower.end()
    assert machine.has(0) == machine.has(1) == OTHER


def test_a_machine_that_is_mad_stays_within_the_bounds_and_costs_no_more(machine: Machine, follower: Follower) -> None:
    began = time.monotonic()
    machine.say(0, 20)
    wait_until(lambda: machine.has(0) == fifo(20))
    randomly = random.Random(1)
    changes = 0
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        for _ in range(200):
            machine.say(changes % 2, randomly.choice((0, IDLE, 20, randomly.getrandbits(32))))
            changes += 1
        for cpu in range(2):
            policy, priority = machine.has(cpu)
            assert policy == os.SCHED_FIFO and LEAST <= priority <= MOST
    said = follower.end()
    made = int(said.split("has changed priorities ")[1].split()[0])
    assert made <= 8 * (time.monotonic() - began) * 1000 + 8, "four a period of each, at most"
    assert changes > made / 4


def test_a_machine_that_is_silent_has_the_planned_priority(machine: Machine, follower: Follower) -> None:
    machine.say(0, 20)
    wait_until(lambda: machine.has(0) == fifo(20))
    machine.be_silent()
    wait_until(lambda: machine.has(0) == machine.has(1) == OTHER)
    assert "silent" in follower.end()


def test_a_page_that_is_another_now_is_not_believed(machine: Machine, follower: Follower) -> None:
    machine.say(0, 20)
    wait_until(lambda: machine.has(0) == fifo(20))
    machine.be_silent()
    assert machine.page is not None
    machine.page[:] = os.urandom(len(machine.page))
    wait_until(lambda: machine.has(0) == machine.has(1) == OTHER)
    follower.end()


def test_a_virtual_cpu_that_goes_leaves_the_others(machine: Machine, follower: Follower) -> None:
    machine.say(0, 20)
    wait_until(lambda: machine.has(0) == fifo(20))
    machine.ends[1].set()
    machine.threads[1].join()
    for cpu, priority in ((1, 7), (0, 10), (1, 8), (0, 11)):
        machine.say(cpu, priority)
        if cpu == 0:
            wait_until(lambda wanted=priority: machine.has(0) == fifo(wanted))
    follower.end()
    assert machine.has(0) == OTHER


MACHINE = """
import ctypes, mmap, os, struct, time
page = mmap.mmap(-1, mmap.PAGESIZE)
print(hex(ctypes.addressof(ctypes.c_char.from_buffer(page))), flush=True)
number = 0
while True:
    number += 1
    page[0:16] = struct.pack("<QQ", 0x3159544952495250, number)
    page[64:68] = struct.pack("<I", 20)
    time.sleep(0.05)
"""


def test_it_ends_with_its_machine(binaries: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", MACHINE], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        at = other.stdout.readline().strip()
        argv = [str(binaries / "priority/tailrace-priority"), "--process", str(other.pid), "--page", at]
        argv += ["--thread", str(other.pid), "--least", "0", "--most", "20"]
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as program:
            try:
                wait_until(lambda: os.sched_getscheduler(other.pid) == os.SCHED_FIFO)
                other.kill()
                said = program.communicate(timeout=60)[1]
                assert program.returncode == 0, said
            finally:
                program.kill()
                other.kill()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("--page", "1234"), "expected the address of a page", id="no-page"),
        pytest.param(("--most", "50"), "most", id="above-interrupts"),
        pytest.param(("--least", "40"), "in this order", id="least-above-most"),
        pytest.param(("--thread", "1"), "No such process", id="another-process"),
    ],
)
def test_what_cannot_be_is_refused(binaries: Path, machine: Machine, words: tuple[str, str], said: str) -> None:
    argv = [str(binaries / "priority/tailrace-priority"), "--process", str(os.getpid()), "--page", f"{machine.at:x}"]
    argv += ["--thread", str(machine.threads[0].native_id), "--least", "0", "--most", "30", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (1, 2) and said in done.stderr
    assert machine.has(0) == OTHER
