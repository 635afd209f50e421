"""Memory plugged into a machine, and taken away, while traffic runs."""

from __future__ import annotations

from pathlib import Path

import linux
import pytest
from machine import Machine
from running_switch import RunningSwitch
from wiring import assert_no_fault, two_machines

pytestmark = pytest.mark.requires_program("tailrace-switch", "qemu-system-x86_64", "iperf3")

PLUGGED = 128
"""MiB: one block of x86-64 Linux."""


def plug(machine: Machine, name: str) -> None:
    machine.execute("object-add", qom_type="memory-backend-memfd", id=f"{name}-memory", size=PLUGGED << 20, share=True)
    machine.execute("device_add", driver="pc-dimm", id=name, memdev=f"{name}-memory")


def unplug(machine: Machine, name: str) -> None:
    machine.execute("device_del", id=name)
    machine.wait_event("DEVICE_DELETED")
    machine.execute("object-del", id=f"{name}-memory")


def total(machine: Machine) -> int:
    """MiB that the system inside has."""
    return int(machine.run("grep MemTotal /proc/meminfo").split()[1]) >> 10


def test_memory_comes_and_goes_while_traffic_runs(switch: RunningSwitch, tmp_path: Path, accelerator: str) -> None:
    address = f"{linux.ADDRESS}.2"
    # Movable: Linux gives back what it has not pinned there.
    options = {"slots": 4, "command_line": "memhp_default_state=online_movable"}
    with two_machines(switch, tmp_path, accelerator, {}, **options) as (left, right):  # type: ignore[arg-type]
        right.begin("iperf3 --server --one-off")
        right.wait("netstat -ltn | grep -q :5201")
        client = left.begin(f"iperf3 --client {address} --time 3600")
        before = total(right)
        for turn in range(3):
            plug(right, f"dimm{turn}")
            right.wait(f"[ $(awk '/MemTotal/ {{print $2}}' /proc/meminfo) -gt {(before + PLUGGED // 2) << 10} ]")
            received = linux.counter(right, "rx_bytes")
            right.wait(f"[ $(cat /sys/class/net/eth0/statistics/rx_bytes) -gt {received + 100_000} ]")
            unplug(right, f"dimm{turn}")
            right.wait(f"[ $(awk '/MemTotal/ {{print $2}}' /proc/meminfo) -lt {(before + PLUGGED // 2) << 10} ]")
        left.run("pidof iperf3")  # which an error would have ended
        client.end()
        linux.ping(left, address)
        assert_no_fault(switch, "a", "b")


@pytest.mark.whole
def test_frames_lie_in_memory_that_was_plugged(switch: RunningSwitch, tmp_path: Path, accelerator: str) -> None:
    options = {"slots": 4, "memory": 192, "command_line": "memhp_default_state=online_kernel"}
    with two_machines(switch, tmp_path, accelerator, {}, **options) as (left, right):  # type: ignore[arg-type]
        before = total(right)
        plug(right, "dimm")
        right.wait(f"[ $(awk '/MemTotal/ {{print $2}}' /proc/meminfo) -gt {(before + PLUGGED // 2) << 10} ]")
        # What was there before is given to files, so that buffers come from the new.
        free = int(right.run("grep MemFree /proc/meminfo").split()[1]) >> 10
        right.run(
            f"mount -o remount,size=90% /dev/shm; dd if=/dev/zero of=/dev/shm/full bs=1M count={free - PLUGGED // 2}"
        )
        right.run("ip link set eth0 down; ip link set eth0 up")
        linux.exchange(left, right)
        assert_no_fault(switch, "a", "b")
