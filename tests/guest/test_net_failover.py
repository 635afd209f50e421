"""A port of the switch that stands by for a card of the machine's: the machine's Linux makes one interface of both
(Documentation/networking/net_failover.rst).

The card is an e1000e that QEMU plugs and unplugs, or a virtual function of an igb that is the machine's own: QEMU gives
away none of the host's without an IOMMU.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from emulated_nics import Wire
from machine import BOOT, Hardware, Machine, Nic, mac
from running_switch import RunningSwitch, wait_until

pytestmark = [
    pytest.mark.requires_program("tailrace-switch", "qemu-system-x86_64"),
    pytest.mark.timeout(BOOT),
]

STANDBY = 62
"""VIRTIO_NET_F_STANDBY, of the virtio specification 1.2, 5.1.3."""
NEIGHBOUR = "198.18.7.2", "02:00:00:00:00:99"
PINGS = 5


def requests(wire: Wire, count: int) -> list[bytes]:
    """Those among the next frames that have come by the cable."""
    return [each for each in wire.wait_received(count) if each[12:14] == b"\x08\x00"]


def turned(request: bytes) -> bytes:
    """A request to who sent this one; sums stay right."""
    return request[6:12] + request[:6] + request[12:26] + request[30:34] + request[26:30] + request[34:]


class Both:
    """A machine's interface that stands for its port, by which its frames go unless there is a card, and the card."""

    def __init__(self, machine: Machine, switch: RunningSwitch, wire: Wire) -> None:
        self.machine, self.switch, self.wire = machine, switch, wire
        features = machine.run("cat /sys/class/net/eth*/device/features")
        assert "1" in {each[STANDBY] for each in features.split()}
        machine.run("for each in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$each; done")
        (self.name,) = machine.run("cd /sys/class/net; ls -d */lower_* | cut -d / -f 1").split()
        machine.run(f"ip link set {self.name} up; ip address add 198.18.7.1/24 dev {self.name}")
        machine.run(f"ip neighbour add {NEIGHBOUR[0]} lladdr {NEIGHBOUR[1]} dev {self.name}")

    def sent(self) -> int:
        return self.switch.counters("a")["received_packets"]

    def ping(self) -> None:
        """Sends PINGS requests that nobody answers."""
        self.machine.ask(f"ping -q -c {PINGS} -i 0.05 -W 1 {NEIGHBOUR[0]}")

    def assert_by_the_switch(self) -> None:
        before = self.sent()
        self.ping()
        wait_until(lambda: self.sent() >= before + PINGS, "they come to the switch")

    def assert_by_the_card(self) -> None:
        """Once the machine has joined it; both ways."""
        self.machine.wait(f"[ $(ls -d /sys/class/net/{self.name}/lower_* | wc -l) = 2 ]", BOOT)
        self.machine.wait(f"cat /sys/class/net/{self.name}/lower_*/carrier | tr '\\n' ' ' | grep '1 1'", BOOT)
        self.wire.forget(0.2)
        before = self.sent()
        self.ping()
        found = requests(self.wire, PINGS)
        assert len(found) == PINGS and self.sent() == before
        self.wire.send(turned(found[0]))
        (answer,) = self.wire.wait_received(1)
        assert answer[:12] == found[0][:12] and self.sent() == before


@contextmanager
def standing_by(switch: RunningSwitch, folder: Path, accelerator: str, card: str, **kind: Any) -> Iterator[Both]:
    """A machine with a port that stands by. `card`: of its devices, in QEMU's words; `wire`: the back end of one."""
    path = switch.add_guest("a", "server")
    switch.add_guest("b", "server")
    switch.set_chain("wire", "a", "b")
    wire = Wire(folder, "card")
    nic = Nic(path, options={"mac": mac(1), "failover": "on"})
    slot = [
        "-device",
        "pcie-root-port,id=place,chassis=1",
        "-netdev",
        wire.backend,
        *(["-device", card] if card else []),
    ]
    try:
        hardware = Hardware([nic], kernel="rt", arguments=slot, **kind)
        with Machine(folder, "machine", hardware, accelerator=accelerator) as machine:
            machine.run("for name in e1000e igb igbvf; do modprobe $name; done")
            yield Both(machine, switch, wire)
    finally:
        wire.close()


@pytest.mark.whole
def test_frames_go_by_the_card_while_there_is_one(switch: RunningSwitch, tmp_path: Path, accelerator: str) -> None:
    card = {"driver": "e1000e", "id": "card", "bus": "place", "netdev": "card", "mac": mac(1), "romfile": ""}
    with standing_by(switch, tmp_path, accelerator, "", memory=384) as both:
        both.assert_by_the_switch()
        for _ in range(2):
            # Its names have underscores, which `execute` would make hyphens.
            both.machine.qmp.cmd("device_add", **card, failover_pair_id="nic0")
            both.assert_by_the_card()
            both.machine.execute("device_del", id="card")
            both.machine.wait_event("DEVICE_DELETED", BOOT)
            both.assert_by_the_switch()


@pytest.mark.whole
def test_a_virtual_function_is_joined_and_goes_again(switch: RunningSwitch, tmp_path: Path, backported: str) -> None:
    """Frames go by the switch while it has no link, and go on when it has gone."""
    card = f"igb,id=card,bus=place,netdev=card,mac={mac(2)},romfile="
    with standing_by(switch, tmp_path, backported, card, memory=512, cpus=2, backported=True) as both:
        machine = both.machine
        folder = machine.run("dirname $(ls /sys/bus/pci/devices/*/sriov_numvfs)").strip()
        interface = machine.run(f"ls {folder}/net").strip()
        machine.run(f"ip link set {interface} up")
        both.assert_by_the_switch()
        join = f"""
            address=$(basename $(realpath {folder}/virtfn0))
            [ ! -e {folder}/virtfn0/driver ] || echo $address >/sys/bus/pci/drivers/igbvf/unbind
            echo $address >/sys/bus/pci/drivers_probe
            [ $(ls -d /sys/class/net/{both.name}/lower_* | wc -l) = 2 ]
        """
        machine.run(f"cd {folder}; echo 0 >sriov_drivers_autoprobe; echo 1 >sriov_numvfs")
        # It has its address before its driver sees it, as Tailrace has the card know it before it is plugged.
        machine.run(f"ip link set {interface} vf 0 mac {mac(1)}; echo 1 >{folder}/sriov_drivers_autoprobe")
        # Made, it takes the card's link. On a slow machine igbvf does not wait for the card long enough.
        machine.wait(f"[ $(cat {folder}/net/{interface}/carrier) = 1 ]", BOOT)
        machine.wait(join, BOOT)
        # QEMU's card tells a function of its link only at times; without a cable it has none.
        machine.execute("set_link", name="card", up=False)
        machine.wait(f"[ $(cat {folder}/net/{interface}/carrier) = 0 ]", BOOT)
        both.assert_by_the_switch()
        machine.run(f"echo 0 >{folder}/sriov_numvfs")
        machine.wait(f"[ $(ls -d /sys/class/net/{both.name}/lower_* | wc -l) = 1 ]", BOOT)
        both.assert_by_the_switch()
