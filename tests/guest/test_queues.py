"""Several queue pairs: a machine that uses fewer than it could, and changes that while traffic runs."""

from __future__ import annotations

from pathlib import Path

import linux
import pytest
from machine import Machine
from running_switch import RunningSwitch
from wiring import assert_no_fault, two_machines

pytestmark = pytest.mark.requires_program("tailrace-switch", "qemu-system-x86_64", "iperf3")

PAIRS = 4


def use(machine: Machine, pairs: int) -> None:
    machine.run(f"ethtool -L eth0 combined {pairs}")


def packets_of_pairs(machine: Machine, direction: str) -> list[int]:
    """For each queue of the driver."""
    lines = machine.run("ethtool -S eth0").splitlines()
    found = {name: int(count) for name, _, count in (line.strip().partition(": ") for line in lines) if count}
    return [found[f"{direction}_queue_{n}_packets"] for n in range(PAIRS) if f"{direction}_queue_{n}_packets" in found]


@pytest.mark.parametrize("packed", ["off", pytest.param("on", marks=pytest.mark.whole)])
def test_a_machine_uses_as_many_pairs_as_it_likes(
    switch: RunningSwitch, tmp_path: Path, accelerator: str, packed: str
) -> None:
    address = f"{linux.ADDRESS}.2"
    with two_machines(switch, tmp_path, accelerator, {"packed": packed}, queues=PAIRS, cpus=2) as (left, right):
        assert "mq" in linux.features(left)
        load = left.begin(f"ping -i 0.005 {address}")
        for here, there in ((PAIRS, 1), (1, PAIRS), (2, 3)):
            use(left, here)
            use(right, there)
            linux.ping(left, address)
            linux.tcp(left, right, address, "--parallel 6", seconds=1)
            linux.tcp(left, right, address, "--parallel 6", "--reverse", seconds=1)
        assert "duplicates" not in load.end("INT")
        # Linux sends by CPU and flow: six flows were on more than one pair.
        assert sum(count > 0 for count in packets_of_pairs(left, "tx")) > 1
        assert_no_fault(switch, "a", "b")
