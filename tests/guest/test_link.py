"""QEMU takes a machine's link away and gives it back: its rings stop, and go on where they stood."""

from __future__ import annotations

from pathlib import Path

import linux
import pytest
from machine import Machine
from running_switch import RunningSwitch
from wiring import assert_no_fault, two_machines

pytestmark = [pytest.mark.requires_program("tailrace-switch", "qemu-system-x86_64", "iperf3"), pytest.mark.whole]


def sends(machine: Machine, count: int) -> None:
    sent = linux.counter(machine, "tx_packets")
    machine.wait(f"[ $(cat /sys/class/net/eth0/statistics/tx_packets) -ge {sent + count} ]")


@pytest.mark.parametrize("packed", ["off", "on"], ids=["split", "packed"])
def test_a_link_that_goes_and_comes_under_traffic(
    switch: RunningSwitch, tmp_path: Path, accelerator: str, packed: str
) -> None:
    """The machine does not look at its link. What it sends meanwhile QEMU throws away; of a packed ring, where it would
    begin at a wrong place, the machine does not tell it, and the frames wait in their ring."""
    with two_machines(switch, tmp_path, accelerator, {"packed": packed, "status": "off"}) as (left, right):
        address = f"{linux.ADDRESS}.1"
        linux.ping(right, address, count=10)
        load = right.begin(f"ping -i 0.02 {address}")
        for _ in range(3):
            sends(right, 10)
            right.execute("set_link", name="nic0", up=False)
            switch.wait_state("b", "waiting")
            right.ask(f"ping -c 20 -i 0.02 -W 1 {address}")
            right.execute("set_link", name="nic0", up=True)
            switch.wait_state("b", "up")
        linux.ping(right, address)
        assert "duplicates" not in load.end("INT")
        linux.exchange(left, right)
        assert_no_fault(switch, "a", "b")
