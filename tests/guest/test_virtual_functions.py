"""Device ports on virtual functions of a NIC (SR-IOV): Linux has the physical one, the switch the others.

The NIC is an Intel 82576, which QEMU emulates from version 8 on: the installed one or that of Debian's backports.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from crossing import (
    JUMBO,
    PLAIN,
    TAG,
    answer,
    assert_dropped,
    begin_function,
    cross,
    frame,
    open_ports,
    refusal,
    traffic,
)
from emulated_nics import VIRTIO, Nic, NicMachine, SwitchInside, nic_machine
from machine import Background
from running_switch import wait_until

pytestmark = [
    pytest.mark.requires_root,
    pytest.mark.requires_program("tailrace-switch", "qemu-system-x86_64", "ip"),
]

NICS = {
    "physical": Nic("igb", for_vfio=False),
    "right": Nic("virtio-net-pci", VIRTIO),
    "third": Nic("e1000e"),
}
UNTAGGED = [each for each in PLAIN if each[12:14] != TAG[:2]]
MACS = {"first": UNTAGGED[0][:6], "second": bytes.fromhex("02000000000c")}
"""Of the virtual functions: the first is where the frames go to."""


class VirtualFunctions:
    """Of the NIC `physical`, by name: made and unmade by Linux, and bound to vfio-pci."""

    def __init__(self, nics: NicMachine) -> None:
        self.machine = nics.machine
        self.nics = nics
        self._folder = f"/sys/bus/pci/devices/{nics.addresses['physical']}"
        self.machine.run("for name in igb igbvf; do modprobe $name; done")
        self.interface = self.machine.run(f"ls {self._folder}/net").strip()
        # Who wants a virtual function says so.
        self.machine.run(f"echo 0 >{self._folder}/sriov_drivers_autoprobe")
        self.set_link(up=True)
        # One cable for all.
        nics.wires = {**nics.wires, "first": nics.wires["physical"]}
        self.make()

    def make(self) -> None:
        self.machine.run(f"echo {len(MACS)} >{self._folder}/sriov_numvfs")
        for number, (name, mac) in enumerate(MACS.items()):
            path = self.machine.run(f"realpath {self._folder}/virtfn{number}").strip()
            self.nics.addresses[name] = path.rpartition("/")[2]
            self.set(name, "mac", mac.hex(":"))
            self.nics.bind(name, "vfio-pci")

    def begin_unmaking(self) -> Background:
        """Linux waits until nobody has any of them."""
        return self.machine.begin(f"echo 0 >{self._folder}/sriov_numvfs")

    def set(self, name: str, key: str, value: str) -> None:
        """What its physical function does with it."""
        self.machine.run(f"ip link set {self.interface} vf {list(MACS).index(name)} {key} {value}")

    def set_link(self, *, up: bool) -> None:
        """Of the physical function."""
        self.machine.run(f"ip link set {self.interface} {'up' if up else 'down'}")


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory, backported: str) -> Iterator[VirtualFunctions]:
    # The cloud kernel has no driver for the NIC.
    with nic_machine(tmp_path_factory.mktemp("nics"), backported, NICS, kernel="rt", backported=True) as nics:
        yield VirtualFunctions(nics)


@pytest.fixture
def nics(functions: VirtualFunctions) -> NicMachine:
    return functions.nics


@pytest.fixture
def switch(nics: NicMachine) -> Iterator[SwitchInside]:
    running = SwitchInside(nics, "--pci")
    yield running
    assert running.end() == 0


def test_frames_cross_from_a_virtual_function_to_a_nic(switch: SwitchInside, nics: NicMachine) -> None:
    open_ports(switch, nics, "first", "right")
    mac = MACS["first"].hex(":")
    assert switch.port("first")["mac"] == mac
    address = nics.addresses["first"]
    assert switch.said(f"PCI device {address} receives only what is sent to its address {mac} or to several: ") == 1
    switch.join("first", "right")
    cross(switch, nics, "first", "right", wanted=UNTAGGED + JUMBO)
    # What is for others, and of a VLAN that the physical function has not let it into, stays outside.
    for stranger in (answer(UNTAGGED[0]), frame(64, 0, TAG)):
        nics.wires["first"].send(stranger)
    everybody = b"\xff" * 6 + UNTAGGED[0][6:]
    nics.wires["first"].send(everybody)
    assert nics.wires["right"].wait_received(1) == [everybody]


@pytest.mark.whole
def test_frames_cross_a_function_behind_a_virtual_function(switch: SwitchInside, nics: NicMachine) -> None:
    open_ports(switch, nics, "first", "right")
    function = begin_function(switch, nics)
    switch.set_chain("chain", "first", "in", "out", "right")
    cross(switch, nics, "first", "right", "in", "out", wanted=UNTAGGED)
    function.end()
    function.wait()


def test_frames_cross_from_one_virtual_function_to_another(
    switch: SwitchInside, nics: NicMachine, functions: VirtualFunctions
) -> None:
    """Inside the NIC, which knows its own addresses."""
    functions.set("second", "mac", UNTAGGED[0][6:12].hex(":"))
    open_ports(switch, nics, "third", "second", "first", "right")
    switch.join("third", "second")
    switch.join("first", "right")
    cross(switch, nics, "third", "right", "second", "first", wanted=UNTAGGED)
    functions.set("second", "mac", MACS["second"].hex(":"))


def test_a_virtual_function_in_a_vlan(switch: SwitchInside, nics: NicMachine, functions: VirtualFunctions) -> None:
    """The physical function puts it there; the switch sees frames without a tag."""
    functions.set("first", "vlan", str(int.from_bytes(TAG[2:])))
    open_ports(switch, nics, "first", "right")
    switch.join("first", "right")
    wire, right = nics.wires["first"], nics.wires["right"]
    for each in UNTAGGED:
        tagged = each[:12] + TAG + each[12:]
        wire.send(each)
        wire.send(tagged)
        assert right.wait_received(1) == [each]
        right.send(answer(each))
        assert wire.wait_received(1) == [answer(each)[:12] + TAG + each[12:]]
    functions.set("first", "vlan", "0")


@pytest.mark.whole
def test_the_cable_of_a_virtual_function(switch: SwitchInside, nics: NicMachine) -> None:
    open_ports(switch, nics, "first", "right")
    switch.join("first", "right")
    nics.set_link("physical", up=False)
    switch.wait_state("first", "down")
    assert switch.port("first")["reason"] == "it has no link"
    assert_dropped(switch, nics.wires["right"], "first")
    nics.set_link("physical", up=True)
    switch.wait_state("first", "up")
    cross(switch, nics, "first", "right", wanted=UNTAGGED)


def test_a_physical_function_that_goes_down_and_comes_back(
    switch: SwitchInside, nics: NicMachine, functions: VirtualFunctions
) -> None:
    """It forgets what the virtual one asked of it, which is deaf until it asks again."""
    open_ports(switch, nics, "first", "right")
    switch.join("first", "right")
    cross(switch, nics, "first", "right", wanted=UNTAGGED)
    functions.set_link(up=False)
    switch.wait_state("first", "down")
    down = f"its physical function is down; bring it up with 'ip link set {functions.interface} up'"
    assert switch.port("first")["reason"] == down
    assert_dropped(switch, nics.wires["right"], "first")
    switch.add_device("second", nics.uri("second"))
    assert switch.port("second")["reason"] == down
    functions.set_link(up=True)
    for name in ("first", "second"):
        switch.wait_state(name, "up")
        assert switch.port(name)["mac"] == MACS[name].hex(":")
    cross(switch, nics, "first", "right", wanted=UNTAGGED)


@pytest.mark.whole
def test_virtual_functions_that_are_unmade_under_traffic_and_made_again(
    switch: SwitchInside, nics: NicMachine, functions: VirtualFunctions
) -> None:
    open_ports(switch, nics, "first", "right", "third")
    switch.join("first", "right")
    before = switch.counters("right")["sent_packets"]
    with traffic(nics.wires["first"], nics.wires["right"]):
        wait_until(lambda: switch.counters("right")["sent_packets"] > before + 100, "frames move")
        unmaking = functions.begin_unmaking()
        switch.wait_state("first", "removed")
        unmaking.wait()
    assert switch.port("first")["reason"] == "it is not there any more"
    assert_dropped(switch, nics.wires["right"], "first")
    switch.remove_chain("first-right")
    switch.join("third", "right")
    nics.wires["right"].forget(0.2)
    cross(switch, nics, "third", "right", wanted=PLAIN)
    switch.remove_chain("third-right")
    functions.make()
    switch.wait_state("first", "up")
    switch.join("first", "right")
    cross(switch, nics, "first", "right", wanted=UNTAGGED)
    assert switch.said(f"device {nics.uri('first')} is gone") == 1


def test_a_virtual_function_that_cannot_be_opened(switch: SwitchInside, nics: NicMachine) -> None:
    address = nics.addresses["first"]
    assert f"{address} has 1 queue and 2 are asked for; ask for fewer" in refusal(switch, nics.uri("first"), queues=2)
    nics.bind("first", "igbvf")
    assert "it has the driver igbvf; bind it to vfio-pci" in refusal(switch, nics.uri("first"))
    nics.bind("first", "vfio-pci")
    open_ports(switch, nics, "first")
