"""A machine that reboots, or resets or unbinds its driver, under load: it resumes, and nobody else notices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import linux
import pytest
from machine import Machine
from running_switch import RunningSwitch
from running_tester import RunningTester, both_ways
from wiring import assert_no_fault, two_machines

pytestmark = pytest.mark.requires_program("tailrace-switch", "tailrace-tester", "qemu-system-x86_64")


def reboot(machine: Machine) -> None:
    machine.reset()
    linux.configure(machine, 2)


def link(machine: Machine) -> None:
    for _ in range(3):
        machine.run("ip link set eth0 down; ip link set eth0 up")


def unbind(machine: Machine) -> None:
    device, driver = linux.virtio_device(machine), "/sys/bus/virtio/drivers/virtio_net"
    for _ in range(3):
        machine.run(f"echo {device} >{driver}/unbind; echo {device} >{driver}/bind")
        linux.configure(machine, 2)


@pytest.mark.parametrize("packed", ["off", pytest.param("on", marks=pytest.mark.whole)])
@pytest.mark.parametrize("upset", [reboot, *(pytest.param(each, marks=pytest.mark.whole) for each in (link, unbind))])
def test_a_machine_resumes_and_nobody_else_notices(
    switch: RunningSwitch,
    binaries: Path,
    tmp_path: Path,
    accelerator: str,
    upset: Callable[[Machine], None],
    packed: str,
) -> None:
    others = {name: switch.add_guest(name) for name in ("c", "d")}
    switch.set_chain("others", "c", "d")
    tester = RunningTester(
        binaries / "tester/tailrace-tester", tmp_path, {name: f"vhost:{path}" for name, path in others.items()}
    )
    try:
        with two_machines(switch, tmp_path, accelerator, {"packed": packed}) as (left, right):
            linux.ping(left, f"{linux.ADDRESS}.2")
            tester.start(
                [{**each, "from": "cd"[i], "to": "dc"[i]} for i, each in enumerate(both_ways(500))], 3600, wait=5.0
            )
            load = left.begin(f"ping -i 0.002 -s 1000 {linux.ADDRESS}.2")
            right.begin(f"ping -i 0.002 -s 1000 {linux.ADDRESS}.1")
            before = switch.counters("b")
            upset(right)
            switch.wait_state("b", "up")
            linux.ping(right, f"{linux.ADDRESS}.1")
            linux.tcp(left, right, f"{linux.ADDRESS}.2", seconds=1)
            linux.tcp(left, right, f"{linux.ADDRESS}.2", "--reverse", seconds=1)
            assert switch.counters("b")["received_packets"] > before["received_packets"]
            assert "duplicates" not in load.end("INT")
            assert_no_fault(switch, "a", "b", "c", "d")
            tester.call("trial.stop")
            for each in tester.wait_end()["streams"]:
                assert each["received"] == each["sent"] > 50, each
                assert each["duplicate"] == each["out_of_sequence"] == 0, each
    finally:
        assert tester.end() == 0
