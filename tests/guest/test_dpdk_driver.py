"""A virtual machine between two ports of the switch, with DPDK's virtio driver; the tester counts every frame."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import linux
import pytest
from machine import Background, Hardware, Machine, Nic, Value, mac
from running_switch import RunningSwitch
from running_tester import RunningTester, Trial, both_ways

pytestmark = pytest.mark.requires_program("tailrace-switch", "tailrace-tester", "qemu-system-x86_64", "dpdk-testpmd")

ENDS = ("a", "b")
INSIDE = ("left", "right")

TESTPMD = (
    # It ends when its input does.
    "tail -f /dev/null | dpdk-testpmd --lcores 0@0,1@0 --in-memory -m 96 --no-telemetry -- "
    "--total-num-mbufs=8192 --auto-start --forward-mode=io"
)
SKELETON = "tailrace-vnf skeleton --huge --memory 64 --port pci:{0} --port pci:{1}"


@pytest.fixture
def paths(switch: RunningSwitch) -> dict[str, Path]:
    names = (ENDS[0], *INSIDE, ENDS[1])
    paths = {name: switch.add_guest(name) for name in names}
    switch.set_chain("chain", *names)
    return paths


@pytest.fixture
def tester(binaries: Path, tmp_path: Path, paths: dict[str, Path]) -> Iterator[RunningTester]:
    running = RunningTester(
        binaries / "tester/tailrace-tester", tmp_path, {name: f"vhost:{paths[name]}" for name in ENDS}
    )
    yield running
    assert running.end() == 0


def boot(folder: Path, paths: dict[str, Path], accelerator: str, **options: Value) -> Machine:
    nics = [Nic(paths[name], options={"mac": mac(i), **options}) for i, name in enumerate(INSIDE)]
    return Machine(folder, "vnf", Hardware(nics, memory=384, layers=("base", "dpdk")), accelerator=accelerator)


def give_to_dpdk(machine: Machine) -> list[str]:
    """Bind both NICs to a driver for programs; their PCI addresses."""
    machine.run("modprobe uio_pci_generic; echo 80 >/proc/sys/vm/nr_hugepages")
    addresses = [linux.pci_address(machine, interface) for interface in ("eth0", "eth1")]
    for address in addresses:
        device = f"/sys/bus/pci/devices/{address}"
        machine.run(
            f"echo {address} >{device}/driver/unbind; echo uio_pci_generic >{device}/driver_override; "
            f"echo {address} >/sys/bus/pci/drivers_probe; [ -e {device}/driver ]"
        )
    return addresses


def assert_all_arrived(trial: Trial) -> None:
    """Every frame that was sent arrived once, in order and whole; most of what should be sent was."""
    for each in trial["streams"]:
        assert each["received"] == each["sent"] > each["offered"] / 10, each
        for key in ("lost", "duplicate", "out_of_sequence", "beyond_window", "foreign"):
            assert each[key] == 0, (key, each)
        assert each["received_bytes"] == each["sent_bytes"]


def drops(switch: RunningSwitch) -> dict[str, dict[str, int]]:
    return {
        port: {key: count for key, count in switch.counters(port).items() if key.startswith("drop_")}
        for port in (*ENDS, *INSIDE)
    }


def forward(switch: RunningSwitch, tester: RunningTester, machine: Machine, program: str) -> Background:
    """Start a program between both NICs; returns once frames come through it both ways."""
    running = machine.begin(program.format(*give_to_dpdk(machine)))
    try:
        for name in INSIDE:
            switch.wait_state(name, "up")
    except AssertionError as error:
        raise AssertionError(f"{error}\n{running.output()}") from None
    for _ in range(20):
        trial = tester.trial(both_ways(100), 0.2, wait=0.3)
        if all(each["received"] for each in trial["streams"]):
            return running
    raise AssertionError(f"nothing comes through\n{running.output()}")


PROGRAMS = [
    pytest.param(TESTPMD, {}, id="testpmd"),
    pytest.param(TESTPMD, {"mrg_rxbuf": "off", "indirect_desc": "off"}, id="testpmd-plain", marks=pytest.mark.whole),
    pytest.param(SKELETON, {}, id="skeleton"),
]


@pytest.mark.parametrize(("program", "options"), PROGRAMS)
def test_every_frame_crosses_a_function_in_a_machine(
    switch: RunningSwitch,
    tester: RunningTester,
    tmp_path: Path,
    paths: dict[str, Path],
    accelerator: str,
    program: str,
    options: dict[str, Value],
) -> None:
    with boot(tmp_path, paths, accelerator, **options) as machine:
        running = forward(switch, tester, machine, program)
        before = drops(switch)
        assert_all_arrived(tester.trial(both_ways(1000, frames=[64, 256, 1518]), 1.0, wait=5.0))
        running.end()
        assert drops(switch) == before
