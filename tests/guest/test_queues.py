"""Several queue pairs: a machine that uses fewer than it could, and changes that while traffic runs."""

from __future__ import annotations

import re
from pathlib import Path

import linux
import pytest
from machine import Machine
from running_switch import RunningSwitch, wait_until
from wiring import assert_no_fault, two_machines

pytestmark = [pytest.mark.requires_program("tailrace-switch", "qemu-system-x86_64", "iperf3"), pytest.mark.whole]

PAIRS = 4
MOST = 16


def packets_of_pairs(machine: Machine, direction: str, pairs: int = PAIRS) -> list[int]:
    """For each queue of the driver: tx_queue_0_packets with Linux 6.1, tx0_packets with 6.12."""
    lines = machine.run("ethtool -S eth0").splitlines()
    found = {}
    for line in lines:
        name = re.fullmatch(rf"\s*{direction}(?:_queue_)?(\d+)_packets: (\d+)", line)
        if name:
            found[int(name[1])] = int(name[2])
    return [found[number] for number in range(pairs) if number in found]


@pytest.mark.parametrize("packed", ["off", "on"])
def test_a_machine_uses_as_many_pairs_as_it_likes(
    switch: RunningSwitch, tmp_path: Path, accelerator: str, packed: str
) -> None:
    address = f"{linux.ADDRESS}.2"
    with two_machines(switch, tmp_path, accelerator, {"packed": packed}, queues=PAIRS, cpus=2) as (left, right):
        assert "mq" in linux.features(left)
        load = left.begin(f"ping -i 0.005 {address}")
        for here, there in ((PAIRS, 1), (1, PAIRS), (2, 3)):
            linux.use_pairs(left, here)
            linux.use_pairs(right, there)
            linux.ping(left, address)
            linux.tcp(left, right, address, "--parallel 6", seconds=1)
            linux.tcp(left, right, address, "--parallel 6", "--reverse", seconds=1)
        assert "duplicates" not in load.end("INT")
        # Linux sends by CPU and flow: six flows were on more than one pair.
        assert sum(count > 0 for count in packets_of_pairs(left, "tx")) > 1
        assert_no_fault(switch, "a", "b")


def test_sixteen_pairs_and_fewer(switch: RunningSwitch, tmp_path: Path, accelerator: str) -> None:
    """As many as a port may have, of machines with fewer CPUs; then one that uses some of them, and another number."""
    address = f"{linux.ADDRESS}.2"
    with two_machines(switch, tmp_path, accelerator, {}, queues=MOST, cpus=4) as (left, right):

        def both_use(here: int, there: int) -> None:
            linux.use_pairs(left, here)
            linux.use_pairs(right, there)
            for name, pairs in (("a", here), ("b", there)):
                wait_until(
                    lambda name=name, pairs=pairs: switch.port(name)["pairs"] == pairs, f"{pairs} pairs at {name}"
                )  # type: ignore[misc]

        both_use(MOST, MOST)
        linux.ping(left, address)
        linux.choose_pairs_by_flow(left)
        for _ in range(8):
            linux.tcp(left, right, address, "--parallel 32", seconds=1)
            if all(packets_of_pairs(left, "tx", MOST)):
                break
        sent, received = packets_of_pairs(left, "tx", MOST), packets_of_pairs(right, "rx", MOST)
        assert len(sent) == len(received) == MOST
        assert all(sent) and all(received), (sent, received)
        both_use(5, 11)
        linux.ping(left, address)
        linux.tcp(left, right, address, "--parallel 8", seconds=1)
        linux.tcp(left, right, address, "--parallel 8", "--reverse", seconds=1)
        assert_no_fault(switch, "a", "b")
