"""A port of the switch that stands by for a card of the machine's: the machine's Linux makes one interface of both.

The card is an emulated e1000e in place of a virtual function. QEMU, the switch and the kernel inside do with it what
they do with one (Documentation/networking/net_failover.rst).
"""

from __future__ import annotations

from pathlib import Path

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


def ping(machine: Machine) -> None:
    """Sends PINGS requests that nobody answers."""
    machine.ask(f"ping -q -c {PINGS} -i 0.05 -W 1 {NEIGHBOUR[0]}")


def requests(wire: Wire) -> list[bytes]:
    """Those that have come by the cable."""
    frames = wire.wait_received(PINGS)
    return [each for each in frames if each[12:14] == b"\x08\x00"]


@pytest.mark.whole
def test_frames_go_by_the_card_while_there_is_one(switch: RunningSwitch, tmp_path: Path, accelerator: str) -> None:
    path = switch.add_guest("a", "server")
    switch.add_guest("b", "server")
    switch.set_chain("wire", "a", "b")
    wire = Wire(tmp_path, "card")
    nic = Nic(path, options={"mac": mac(1), "failover": "on"})
    slot = ["-device", "pcie-root-port,id=place,chassis=1", "-netdev", wire.backend]
    card = {"driver": "e1000e", "id": "card", "bus": "place", "netdev": "card", "mac": mac(1), "romfile": ""}
    hardware = Hardware([nic], kernel="rt", memory=384, arguments=slot)

    def sent() -> int:
        return switch.counters("a")["received_packets"]

    def assert_by_the_switch() -> None:
        before = sent()
        ping(machine)
        wait_until(lambda: sent() >= before + PINGS, "they come to the switch")

    try:
        with Machine(tmp_path, "machine", hardware, accelerator=accelerator) as machine:
            machine.run("modprobe e1000e")
            features = machine.run("cat /sys/class/net/eth*/device/features")
            assert features.split()[0][STANDBY] == "1"
            machine.run("for each in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$each; done")
            (both,) = machine.run("cd /sys/class/net; ls -d */lower_* | cut -d / -f 1").split()
            machine.run(f"ip link set {both} up; ip address add 198.18.7.1/24 dev {both}")
            machine.run(f"ip neighbour add {NEIGHBOUR[0]} lladdr {NEIGHBOUR[1]} dev {both}")
            assert_by_the_switch()
            for _ in range(2):
                # Its names have underscores, which `execute` would make hyphens.
                machine.qmp.cmd("device_add", **card, failover_pair_id="nic0")
                machine.wait(f"[ $(ls -d /sys/class/net/{both}/lower_* | wc -l) = 2 ]", BOOT)
                machine.wait(f"cat /sys/class/net/{both}/lower_*/carrier | tr '\\n' ' ' | grep '1 1'", BOOT)
                wire.forget(0.2)
                before = sent()
                ping(machine)
                assert len(requests(wire)) == PINGS and sent() == before
                machine.execute("device_del", id="card")
                machine.wait_event("DEVICE_DELETED", BOOT)
                assert_by_the_switch()
    finally:
        wire.close()
