"""`vf:` ports on a card: Tailrace makes its functions, sets and binds them, moves frames, and gives all back as it was.

The card is an Intel 82576, which QEMU emulates from version 8 on, behind an IOMMU, with Linux's own driver.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import tuned
from crossing import TAG, answer, frame
from emulated_nics import VIRTIO, Nic, NicMachine, nic_machine
from machine import BOOT

pytestmark = [
    pytest.mark.whole,
    pytest.mark.timeout(3 * BOOT),
    pytest.mark.requires_root,
    pytest.mark.requires_program("tailrace-switch", "qemu-system-x86_64", "ip"),
]

NICS = {"physical": Nic("igb", for_vfio=False), "right": Nic("virtio-net-pci", VIRTIO)}
FRAMES = [frame(size, number) for number in range(4) for size in (60, 128, 590, 1514)]
OWN = FRAMES[0][:6].hex(":")
"""The address of the function: where the frames go to."""


class Card:
    """The physical function, and `tailrace` beside it."""

    def __init__(self, nics: NicMachine) -> None:
        self.machine, self.nics = nics.machine, nics
        self.folder = f"/sys/bus/pci/devices/{nics.addresses['physical']}"
        self.machine.run("for name in igb igbvf; do modprobe $name; done")
        self.interface = self.machine.run(f"ls {self.folder}/net").strip()
        self.machine.run(f"ip link set {self.interface} up; mkdir -p /run/netns")

    def spec(self, **settings: Any) -> str:
        """A chain from the card's first function to the other NIC."""
        port = {"of": self.interface, "number": 0, "mac": OWN, **settings}
        document = {
            "ports": {"wan": {"vf": port}, "right": {"pci": self.nics.addresses["right"]}},
            "fabric": {"idle": "sleep"},
            "chains": {"voice": ["wan", "right"]},
        }
        text = base64.b64encode(json.dumps(document).encode()).decode()
        path = "/root/spec.yaml"
        self.machine.run(f"mkdir -p /root; echo {text} | base64 -d >{path}")
        return path

    def tailrace(self, *words: str) -> tuned.Answer:
        (said,) = tuned.tailrace(self.machine, words, seconds=BOOT)
        assert said.status == 0, said
        return said

    def state(self) -> dict[str, Any]:
        """All of the card that Tailrace touches; its link comes and goes with its functions."""
        look = f"cd {self.folder}; cat sriov_numvfs sriov_drivers_autoprobe; ls -d virtfn* 2>/dev/null || true"
        link = self.link()
        return {"card": self.machine.run(look), "up": "UP" in link["flags"], "functions": link.get("vfinfo_list", [])}

    def link(self) -> dict[str, Any]:
        """What Linux says of the physical function."""
        (found,) = json.loads(self.machine.run(f"ip -j link show {self.interface}"))
        assert isinstance(found, dict)
        return found

    def function(self) -> dict[str, Any]:
        """The first function's settings."""
        found: dict[str, Any] = self.link()["vfinfo_list"][0]
        return found


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory, backported: str) -> Iterator[Card]:
    layers: Sequence[str] = ("base", "python", "tailrace", "dpdk")
    folder: Path = tmp_path_factory.mktemp("card")
    # The cloud kernel has no driver for the card.
    with nic_machine(folder, backported, NICS, kernel="rt", backported=True, layers=layers, memory=1536) as nics:
        yield Card(nics)


def test_frames_cross_in_a_vlan_and_all_is_given_back(card: Card) -> None:
    before = card.state()
    vlan = int.from_bytes(TAG[2:])
    card.tailrace("up", card.spec(vlan=vlan, spoof_check=False, trust=True))
    found = card.function()
    assert found["address"] == OWN and found["vlan_list"][0]["vlan"] == vlan, found
    assert not found["spoofchk"] and found["trust"], found
    driver = card.machine.run(f"readlink {card.folder}/virtfn0/driver").strip()
    assert Path(driver).name == "vfio-pci"
    wire, right = card.nics.wires["physical"], card.nics.wires["right"]
    wire.forget(0.2)
    for each in FRAMES:
        tagged = each[:12] + TAG + each[12:]
        wire.send(each)  # of no VLAN: it is not for the function
        wire.send(tagged)
        assert right.wait_received(1) == [each]
        right.send(answer(each))
        assert wire.wait_received(1) == [answer(each)[:12] + TAG + each[12:]]
    card.tailrace("down")
    assert card.state() == before


def test_settings_change_while_it_is_up(card: Card) -> None:
    """What Linux's driver says of them; QEMU's card keeps to the VLAN, and sends spoofed frames whatever is set."""
    before = card.state()
    card.tailrace("up", card.spec(spoof_check=True))
    found = card.function()
    assert found["spoofchk"] and not found["trust"], found
    wire, right = card.nics.wires["physical"], card.nics.wires["right"]
    wire.forget(0.2)
    right.send(answer(FRAMES[0]))
    assert wire.wait_received(1) == [answer(FRAMES[0])]
    card.tailrace("apply", card.spec(spoof_check=False, trust=True, vlan=int.from_bytes(TAG[2:])), "--yes")
    found = card.function()
    assert not found["spoofchk"] and found["trust"], found
    right.send(answer(FRAMES[0]))
    assert wire.wait_received(1) == [answer(FRAMES[0])[:12] + TAG + answer(FRAMES[0])[12:]]
    card.tailrace("down")
    assert card.state() == before


def test_functions_that_were_there_stay(card: Card) -> None:
    """Also their number, and the driver of each."""
    card.machine.run(f"echo 2 >{card.folder}/sriov_numvfs")
    before = card.state()
    driver = card.machine.run(f"readlink {card.folder}/virtfn0/driver || echo none")
    card.tailrace("up", card.spec(spoof_check=False))
    card.tailrace("down")
    assert card.state() == before
    assert card.machine.run(f"readlink {card.folder}/virtfn0/driver || echo none") == driver
    card.machine.run(f"echo 0 >{card.folder}/sriov_numvfs")
