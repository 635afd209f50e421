"""MSI-X, an interrupt of its own for each ring: emulated machines have it with QEMU from 8.0 on."""

from __future__ import annotations

from pathlib import Path

import linux
import pytest
from machine import Machine
from running_switch import RunningSwitch
from wiring import assert_no_fault, two_machines

pytestmark = pytest.mark.requires_program("tailrace-switch", "qemu-system-x86_64", "iperf3")


def interrupts(machine: Machine) -> dict[str, int]:
    """Of the NIC, by what they are for, and how many there were."""
    device = linux.virtio_device(machine)
    counted = {}
    for line in machine.run(f"grep {device}- /proc/interrupts").splitlines():
        words = line.split()
        assert "MSI" in line, line
        counted[words[-1].partition("-")[2]] = int(words[1])
    return counted


def test_each_ring_has_its_interrupt(switch: RunningSwitch, tmp_path: Path, backported: str) -> None:
    with two_machines(switch, tmp_path, backported, {}, backported=True) as (left, right):
        before = interrupts(left)
        assert set(before) == {"config", "input.0", "output.0"}
        linux.exchange(left, right)
        assert interrupts(left)["input.0"] > before["input.0"]
        assert interrupts(left)["output.0"] > before["output.0"]
        assert_no_fault(switch, "a", "b")
