"""Network cards as `tailrace host inspect` shows them: links, groups, functions, the card's own switch."""

from __future__ import annotations

from pathlib import Path

import pytest
from hosts import HOSTS
from machines import link, machine, make
from sriov_kernel import CARD, PCI, ROOT, SriovKernel, add_card, express, function_at

from tailrace.host import show
from tailrace.host.capabilities import find_capabilities
from tailrace.host.copy import copy_machine
from tailrace.host.machine import read_machine
from tailrace.host.show_cards import card_document, card_lines
from tailrace.kernel import tree as tree_module
from tailrace.kernel.tree import Tree
from tailrace.resources.cards import Card, read_cards
from tailrace.resources.pci_config import PciConfig
from tailrace.resources.pcie_link import PcieLink
from tailrace.resources.topology import read_nics


def only(tree: Tree) -> Card:
    (card,) = read_cards(tree, read_nics(tree))
    return card


def test_a_card_with_functions(tmp_path: Path) -> None:
    add_card(tmp_path)
    kernel = SriovKernel(tmp_path)
    kernel.write(f"{ROOT}/{CARD}/sriov_numvfs", "2")
    card = only(kernel)
    assert list(card_lines(card)) == [
        "PCIe 8 GT/s × 8; able to 16 GT/s × 16: 63.0 Gbit/s each way, 55.3 of data (packets of 512 B)",
        "IOMMU group 20, alone; ACS above it",
        f"virtual function 0 at {function_at(0)}: igbvf, IOMMU group 30, alone",
        f"virtual function 1 at {function_at(1)}: igbvf, IOMMU group 31, alone",
    ]
    document = card_document(card)
    assert document["link"] == {
        "gts": 8.0, "lanes": 8, "most_gts": 16.0, "most_lanes": 16,
        "payload": 512, "gbps": 63.02, "effective_gbps": 55.34,
    }  # fmt: skip
    assert document["group"] == {"number": 20, "others": ()}
    assert [each["address"] for each in document["virtual_functions"]] == ["0000:3b:02.0", "0000:3b:02.2"]


def test_a_card_of_which_little_is_known(tmp_path: Path) -> None:
    add_card(tmp_path, iommu=False)
    for name in ("config", "current_link_speed"):
        (tmp_path / f"{ROOT}/{CARD}/{name}".lstrip("/")).unlink()
    (tmp_path / f"{ROOT}/config".lstrip("/")).write_bytes(express()[:64])  # what Linux shows to who is not root
    assert list(card_lines(only(Tree(tmp_path)))) == ["no IOMMU group; ACS unknown"]


def test_a_group_with_others_and_a_bridge(tmp_path: Path) -> None:
    add_card(tmp_path)
    make(tmp_path, {f"{ROOT}/0000:3b:00.1/class": "0x020000"})
    link(tmp_path, f"{PCI}/devices/0000:3b:00.1", f"../../..{ROOT[4:]}/0000:3b:00.1")
    for name in ("0000:3b:00.1", Path(ROOT).name):
        link(tmp_path, f"/sys/kernel/iommu_groups/20/devices/{name}", "../../../..")
    (tmp_path / f"{ROOT}/config".lstrip("/")).write_bytes(express(acs=0x1))
    cards = read_cards(Tree(tmp_path), read_nics(Tree(tmp_path)))
    assert "IOMMU group 20 with 0000:3b:00.1; no ACS above it" in list(card_lines(cards[0]))


def test_representors_tell_of_switchdev(tmp_path: Path) -> None:
    add_card(tmp_path)
    ports = {"ens1f0": "p0", "ens1f0_0": "pf0vf0", "ens1f0_1": "c1pf0vf1", "ens1f0_u": "p1", "other": "pf0vf0"}
    for name, port in ports.items():
        switch = "02ff" if name == "other" else "02aa"
        make(tmp_path, {f"/sys/class/net/{name}/{key}": value for key, value in
                        {"phys_port_name": port, "phys_switch_id": switch}.items()})  # fmt: skip
    make(tmp_path, {f"{ROOT}/{CARD}/infiniband/mlx5_0/fw_ver": "22.31.1014"})
    card = only(Tree(tmp_path))
    assert (card.eswitch, card.representors) == ("switchdev", ("ens1f0_0", "ens1f0_1"))
    assert card.firmware == "22.31.1014"
    assert "its own switch is in switchdev mode, represented by ens1f0_0, ens1f0_1" in list(card_lines(card))


@pytest.mark.parametrize(
    ("gts", "lanes", "gbps"), [(2.5, 1, 2.0), (5.0, 8, 32.0), (8.0, 8, 63.02), (16.0, 16, 252.06), (64.0, 16, 968.0)]
)
def test_what_a_link_carries(gts: float, lanes: int, gbps: float) -> None:
    assert PcieLink(gts, lanes, gts, lanes, None).gbps == pytest.approx(gbps, abs=0.01)


def test_the_published_example_of_a_link() -> None:
    """SIGCOMM 2018: of 8 GT/s × 8, 57.88 Gbit/s are left for packets, each with 24 bytes beside its data."""
    link = PcieLink(8.0, 8, 8.0, 8, 256)
    assert link.effective_gbps == pytest.approx(57.88 * 256 / 280, abs=0.06)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 4096,
        b"\x00" * 4096,
        bytes((0x40,)) * 4096,  # each capability leads to itself
        express()[:0x79],
        express()[:0x101],
        bytes(range(256)) * 16,
    ],
)
def test_a_configuration_space_of_nonsense(content: bytes) -> None:
    config = PciConfig(content)
    assert config.payload in (None, 128, 256, 512, 1024, 2048, 4096)
    assert config.isolates in (None, True, False)


@pytest.mark.parametrize("seed", range(20))
def test_what_a_hostile_sysfs_says_is_bounded(tmp_path: Path, seed: int) -> None:
    """Everything that is read of a card, replaced by something else, one after the other."""
    add_card(tmp_path)
    SriovKernel(tmp_path).write(f"{ROOT}/{CARD}/sriov_numvfs", "3")
    values = ("9" * 5000, "-1", "4294967296", "\x1b[2J\x00\n" * 99, "é" * 70000, "")
    folder = tmp_path / f"{ROOT}/{CARD}".lstrip("/")
    paths = sorted(path for path in folder.iterdir() if not path.is_dir() or path.is_symlink())
    path, value = paths[seed % len(paths)], values[seed % len(values)]
    targets = ("..", "/", path.name, "../" * 99, "x" * 255)
    if path.is_symlink():
        path.unlink()
        path.symlink_to(targets[seed % len(targets)])
    else:
        path.write_text(value)
    tree = Tree(tmp_path)
    for card in read_cards(tree, read_nics(tree)):
        said = "\n".join(card_lines(card))
        assert len(said) < 10_000
        assert said.replace("\n", "").isprintable()
        card_document(card)


def test_a_long_file_is_read_in_pieces_and_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux refuses to fill a large buffer from a file of /proc/sys."""
    assert len(Tree().text("/proc/sys/kernel/random/boot_id") or "") == 36
    make(tmp_path, {"/proc/long": "a" * 200_000})
    assert len(Tree(tmp_path).text("/proc/long") or "") == 200_000
    monkeypatch.setattr(tree_module, "_MOST_CHUNKS", 2)
    assert len(Tree(tmp_path).text("/proc/long") or "") == 2 << 16


def test_a_card_with_more_functions_than_there_can_be(tmp_path: Path) -> None:
    add_card(tmp_path, most=10**9)
    make(tmp_path, {f"{ROOT}/{CARD}/sriov_numvfs": str(10**9)})
    assert read_nics(Tree(tmp_path))[0].most_vfs == 0xFFFF
    assert only(Tree(tmp_path)).virtual_functions == ()


def test_the_card_of_a_real_server(tmp_path: Path) -> None:
    """On the board, behind a bridge that is no real one: its link is what it says."""
    HOSTS["intel-sr-iov"](tmp_path)
    first, second = read_cards(Tree(tmp_path), read_nics(Tree(tmp_path)))
    assert (first.name, first.address, str(first.link)) == ("enp96s0f0", "0000:60:00.0", "PCIe 2.5 GT/s × 1")
    assert first.link is not None and first.link.slowed
    assert (first.link.payload, first.isolated, first.group) == (None, None, None)
    assert second.name == "enp96s0f1"


def test_a_copy_has_the_same_cards(tmp_path: Path) -> None:
    root = tmp_path / "root"
    machine(root)
    add_card(root)
    SriovKernel(root).write(f"{ROOT}/{CARD}/sriov_numvfs", "2")
    copy_machine(tmp_path / "copy", Tree(root))
    shown = []
    for folder in (root, tmp_path / "copy"):
        found = read_machine(Tree(folder))
        cards = read_cards(found.tree, found.nics)
        shown.append(show.machine_document(found, find_capabilities(found), cards))
    assert shown[0]["nics"] == shown[1]["nics"]
    assert shown[1]["nics"][0]["link"]["payload"] == 512
    assert shown[1]["nics"][0]["isolated"] is True
