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

NICS = {
    "physical": Nic("igb", for_vfio=False),
    "right": Nic("virtio-net-pci", VIRTIO),
    "second": Nic("igb", for_vfio=False),
    "third": Nic("igb", for_vfio=False),
    "far-second": Nic("virtio-net-pci", VIRTIO, for_vfio=False),
    "far-third": Nic("virtio-net-pci", VIRTIO, for_vfio=False),
}
CABLES = {"second": "far-second", "third": "far-third"}
FRAMES = [frame(size, number) for number in range(4) for size in (60, 128, 590, 1514)]
OWN = FRAMES[0][:6].hex(":")
"""The address of the function: where the frames go to."""


class Card:
    """The physical function, and `tailrace` beside it."""

    def __init__(self, nics: NicMachine) -> None:
        self.machine, self.nics = nics.machine, nics
        self.folder = f"/sys/bus/pci/devices/{nics.addresses['physical']}"
        self.machine.run("for name in igb igbvf; do modprobe $name; done")
        self.interface = self.interface_of("physical")
        self.machine.run("mkdir -p /run/netns")
        for name in ("physical", *CABLES, *CABLES.values()):
            self.machine.run(f"ip link set {self.interface_of(name)} up")

    def interface_of(self, name: str) -> str:
        """Of Linux's, on a NIC."""
        path = f"/sys/bus/pci/devices/{self.nics.addresses[name]}"
        return Path(self.machine.run(f"ls -d {path}/net/* {path}/virtio*/net/* 2>/dev/null || true").split()[0]).name

    def spec(self, **settings: Any) -> str:
        """A chain from the card's first function to the other NIC."""
        port = {"of": self.interface, "number": 0, "mac": OWN, **settings}
        return self.write(
            {
                "ports": {"wan": {"vf": port}, "right": {"pci": self.nics.addresses["right"]}},
                "fabric": {"idle": "sleep"},
                "chains": {"voice": ["wan", "right"]},
            }
        )

    def write(self, document: dict[str, Any]) -> str:
        """A spec in a file; its path."""
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
    layers: Sequence[str] = ("base", "python", "tailrace", "dpdk", "sandbox")
    folder: Path = tmp_path_factory.mktemp("card")
    # The cloud kernel has no driver for the card.
    kind: dict[str, Any] = {"kernel": "rt", "backported": True, "layers": layers, "memory": 2048, "clock": True}
    with nic_machine(folder, backported, NICS, CABLES, cpus=2, **kind) as nics:
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


def test_a_function_in_a_sandbox_has_one_to_itself(card: Card) -> None:
    """Frames of the cable come to the switch through a function's process, which has no capability."""
    before = card.state()
    mine = {"of": card.interface, "number": 0, "mac": OWN, "spoof_check": False}
    spec = card.write(
        {
            "ports": {"right": {"pci": card.nics.addresses["right"]}},
            "functions": {"fw": {"kind": "skeleton", "interface": [{"passthrough": mine}, "vhost-user"]}},
            "fabric": {"idle": "sleep"},
            "bridges": {"b": ["fw.1", "right"]},
        }
    )
    card.tailrace("up", spec)
    status = card.machine.run("cat /proc/$(pidof tailrace-vnf)/status")
    assert "CapEff:\t0000000000000000" in status
    seen = card.machine.run(
        "ls /proc/$(pidof tailrace-vnf)/root/sys/bus/pci/devices /proc/$(pidof tailrace-vnf)/root/dev/vfio"
    )
    assert len(seen.split()) == 5, seen  # a device, its group, the container, and the names of the folders
    wire, right = card.nics.wires["physical"], card.nics.wires["right"]
    wire.forget(0.2)
    for each in FRAMES:
        wire.send(each)
        assert right.wait_received(1) == [each]
        right.send(answer(each))
        assert wire.wait_received(1) == [answer(each)]
    card.tailrace("down")
    assert card.state() == before


def test_a_matrix_over_cards(card: Card) -> None:
    """In and out by two cables, through a function on the cards and through the switch; and inside one card."""
    cards = ",".join(map(card.interface_of, CABLES))
    outside = ",".join(map(card.interface_of, CABLES.values()))
    how = ("--frames", "64", "--rate", "200pps", "--duration", "300ms", "--card", cards, "--outside", outside)
    matrix = ("measure", "matrix", "--runs", "/root/runs", "--json", *how, "--patterns")
    by_card = (*matrix, "PVP,VV,east/west", "--functions", "1,4", "--fabrics", "card", "--interfaces", "passthrough")
    by_switch = (*matrix, "PVP", "--fabrics", "tailrace", "--interfaces", "vhost-user")
    said = tuned.tailrace(card.machine, by_card, by_switch, seconds=BOOT)
    cells = {each["name"]: each for answer in said for each in answer.document()["findings"]}
    refused = cells.pop("card-passthrough-VVVVVV-64")
    assert "has at most 7 virtual functions" in refused["not_here"]
    assert list(cells) == [
        "card-passthrough-PVP-64",
        "card-passthrough-VV-64",
        "card-passthrough-VVV-64",
        "tailrace-vhost-user-PVP-64",
    ]
    for cell in cells.values():
        assert cell["valid"] and cell["not_here"] is None, cell
        assert cell["mpps"] > 0 and cell["loss_ratio"] == 0 and cell["p50_us"] > 0, cell
    for name in CABLES:
        assert card.machine.run(f"cat /sys/bus/pci/devices/{card.nics.addresses[name]}/sriov_numvfs").strip() == "0"
