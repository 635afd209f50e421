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
    "crowded": Nic("igb", for_vfio=False, port={"disable-acs": "on"}),
    "open": Nic("igb", for_vfio=False, iommu=False),
}
IGB = [name for name, nic in NICS.items() if nic.driver == "igb"]
"""The cards. `crowded` shares its IOMMU group with its functions, `open` is behind no IOMMU."""
CABLES = {"second": "far-second", "third": "far-third"}
FRAMES = [frame(size, number) for number in range(4) for size in (60, 128, 590, 1514)]
OWN = FRAMES[0][:6].hex(":")
"""The address of the function: where the frames go to."""
NO_MAC = "00:00:00:00:00:00"


class Card:
    """The physical function, and `tailrace` beside it."""

    def __init__(self, nics: NicMachine) -> None:
        self.machine, self.nics = nics.machine, nics
        self.folder = f"/sys/bus/pci/devices/{nics.addresses['physical']}"
        self.machine.run("for name in igb igbvf; do modprobe $name; done")
        self.interface = self.interface_of("physical")
        self.machine.run("mkdir -p /run/netns")
        for name in (*IGB, *CABLES.values()):
            self.machine.run(f"ip link set {self.interface_of(name)} up")

    def interface_of(self, name: str) -> str:
        """Of Linux's, on a NIC."""
        path = f"/sys/bus/pci/devices/{self.nics.addresses[name]}"
        return Path(self.machine.run(f"ls -d {path}/net/* {path}/virtio*/net/* 2>/dev/null || true").split()[0]).name

    def spec(self, name: str = "spec", **settings: Any) -> str:
        """A chain from a function, the card's first unless said, to the other NIC."""
        port = {"of": self.interface, "number": 0, "mac": OWN, **settings}
        return self.write(
            {
                "ports": {"wan": {"vf": port}, "right": {"pci": self.nics.addresses["right"]}},
                "fabric": {"idle": "sleep"},
                "chains": {"voice": ["wan", "right"]},
            },
            name,
        )

    def write(self, document: dict[str, Any], name: str = "spec") -> str:
        """A spec in a file; its path."""
        text = base64.b64encode(json.dumps(document).encode()).decode()
        path = f"/root/{name}.yaml"
        self.machine.run(f"mkdir -p /root; echo {text} | base64 -d >{path}")
        return path

    def tailrace(self, *words: str) -> tuned.Answer:
        (said,) = tuned.tailrace(self.machine, words, seconds=BOOT)
        assert said.status == 0, said
        return said

    def folder_of(self, name: str) -> str:
        return f"/sys/bus/pci/devices/{self.nics.addresses[name]}"

    def state(self, name: str = "physical") -> dict[str, Any]:
        """All of a card that Tailrace touches; its link comes and goes with its functions."""
        each = "for each in virtfn*/; do [ ! -d $each ] || echo $each $(readlink $each/driver) "
        each += "$(cat $each/driver_override); done"
        look = f"cd {self.folder_of(name)}; cat sriov_numvfs sriov_drivers_autoprobe; {each}"
        link = self.link(self.interface_of(name))
        return {"card": self.machine.run(look), "up": "UP" in link["flags"], "functions": link.get("vfinfo_list", [])}

    def link(self, interface: str | None = None) -> dict[str, Any]:
        """What Linux says of a physical function."""
        (found,) = json.loads(self.machine.run(f"ip -j link show {interface or self.interface}"))
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
    after = card.state()
    for was, now in zip(before["functions"], after["functions"], strict=True):
        if was["address"] == NO_MAC:  # Linux's driver of a function without one may make one up, and tell the card
            now["address"] = NO_MAC
    assert after == before
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


def test_a_card_that_is_reset_in_mid_run(card: Card) -> None:
    """Behind its driver's back, and by its driver being bound anew: what to do is said, and then it goes on."""
    before = card.state()
    card.tailrace("up", card.spec(spoof_check=False))
    wire, right = card.nics.wires["physical"], card.nics.wires["right"]
    log, read = "/run/tailrace/service.log", 0

    def wait_event(kind: str, *words: str) -> None:
        """The last one after what was waited for before; what comes after it is looked at the next time."""
        nonlocal read
        found = f"tail -n +{read + 1} {log} | grep -n 'event: {kind}'"
        for word in words:
            found += f" | grep '{word}'"
        card.machine.wait(f"{found} >/run/found", BOOT)
        read += int(card.machine.run("tail -n 1 /run/found").partition(":")[0])

    def cross() -> None:
        wire.forget(0.2)
        right.forget()
        for each in FRAMES:
            wire.send(each)
            assert right.wait_received(1, BOOT) == [each]
            right.send(answer(each))
            assert wire.wait_received(1, BOOT) == [answer(each)]

    wait_event("port.up wan")
    cross()
    card.machine.run(f"echo 1 >{card.folder}/reset")
    wait_event("port.down wan", "its card was reset", f"ip link set {card.interface} down")
    card.machine.run(f"ip link set {card.interface} down; ip link set {card.interface} up")
    wait_event("port.up wan")
    cross()
    address = card.nics.addresses["physical"]
    card.machine.run(f"echo {address} >/sys/bus/pci/drivers/igb/unbind")
    wait_event("card.lost")
    (said,) = tuned.tailrace(card.machine, ("status", "--json"), seconds=BOOT)
    broken = "\n".join(json.loads(said.out)["broken"])
    assert "port wan is removed" in broken and f"{card.interface} has no Linux interface" in broken
    card.machine.run(f"echo {address} >/sys/bus/pci/drivers/igb/bind")
    wait_event("card.lost", f"ip link set {card.interface} up")
    card.machine.run(f"ip link set {card.interface} up")
    wait_event("card.back", f"{card.interface}/0")
    wait_event("port.up wan")
    cross()
    card.tailrace("down")
    assert card.state() == before


@pytest.fixture
def in_use(card: Card) -> Iterator[None]:
    """Linux has the first function of `second` as an interface that is up, and a process that of `third` from vfio."""
    addresses = {}
    for name in ("second", "third"):
        folder = card.folder_of(name)
        card.machine.run(f"echo 1 >{folder}/sriov_numvfs")
        addresses[name] = Path(card.machine.run(f"realpath {folder}/virtfn0").strip()).name
    card.machine.wait(f"ls {card.folder_of('second')}/virtfn0/net")
    card.machine.run(f"ip link set $(ls {card.folder_of('second')}/virtfn0/net) up")
    device = f"/sys/bus/pci/devices/{addresses['third']}"
    card.machine.run(
        f"[ ! -e {device}/driver ] || echo {addresses['third']} >{device}/driver/unbind; "
        f"echo vfio-pci >{device}/driver_override; echo {addresses['third']} >/sys/bus/pci/drivers_probe"
    )
    group = Path(card.machine.run(f"readlink {device}/iommu_group").strip()).name
    holder = card.machine.begin(f"exec sleep 3600 <>/dev/vfio/{group}")
    card.machine.wait(f"ls -l /proc/[0-9]*/fd | grep -q /dev/vfio/{group}")
    yield
    holder.end()
    for name in ("second", "third"):
        card.machine.run(f"echo 0 >{card.folder_of(name)}/sriov_numvfs")


@pytest.mark.usefixtures("in_use")
def test_what_is_in_the_way_is_named_with_its_cure_and_nothing_stays(card: Card) -> None:
    """Each by the emulated hardware and Linux's own drivers."""
    of = {name: card.interface_of(name) for name in IGB}

    def states() -> dict[str, dict[str, Any]]:
        found = {name: card.state(name) for name in IGB}
        found["second"].pop("functions")  # Linux tells the card of its function's address when it likes
        return found

    before = states()
    wrong: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
        "number": ({"number": 7}, (f"{of['physical']} has at most 7 virtual functions", "a number from 0 to 6")),
        "many": ({"functions": 8}, (f"8 virtual functions are more than the 7 of {of['physical']}", "at most 7")),
        "open": ({"of": of["open"]}, (f"{of['open']} is behind no IOMMU", "boot with `intel_iommu=on`")),
        "crowded": (
            {"of": of["crowded"]},
            (f"{of['crowded']}/0 shares IOMMU group", f"{card.nics.addresses['crowded']} (igb)", "switch ACS on"),
        ),
        "linux": ({"of": of["second"]}, (f"{of['second']}/0 is in use as Linux's interface", "`sudo ip link set ")),
        "held": ({"of": of["third"]}, (f"{of['third']}/0 is in use by process", "(sleep); end that")),
        "rate": (
            {"max_rate": "5000Mbps"},
            (f"the driver of {of['physical']} refuses", "max_rate 5000", "leave it out, or give another value"),
        ),
        "least": ({"min_rate": "10Mbps"}, (f"the driver of {of['physical']} refuses", "min_rate 10", "leave it out")),
    }
    specs = [card.spec(name, **settings) for name, (settings, _) in wrong.items()]
    said = tuned.tailrace(card.machine, *(("up", spec) for spec in specs), seconds=BOOT)
    for (_, words), told in zip(wrong.values(), said, strict=True):
        assert told.status != 0 and "Traceback" not in told.error, told
        text = " ".join(told.error.split())
        assert "wan" in text and all(each in text for each in words), told
    assert states() == before


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
