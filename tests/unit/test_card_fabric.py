"""A card as a fabric: which virtual functions, VLANs and addresses; cells of a matrix."""

from __future__ import annotations

from pathlib import Path

import pytest
from sriov_kernel import CARD, SriovKernel, add_card, function_at
from test_card_functions import Card

from tailrace.errors import Mistake
from tailrace.fabric import card as the_card
from tailrace.fabric.card import FAR, FIRST_VLAN, NEAR, Cabling, check_card, planned, planned_ends
from tailrace.fabric.kinds import CARD as KIND
from tailrace.fabric.kinds import MATRIX_KINDS, Making
from tailrace.kernel.tree import Tree
from tailrace.measure.matrix import cells, left
from tailrace.measure.stand import Scene, SceneFunction
from tailrace.resources.virtual_functions import FunctionsRefused, Why
from tailrace.spec.tests import Matrix
from tailrace.state.card_functions import take_functions
from tailrace.state.record import State

ONE = Cabling(("ens1f0",))
TWO = Cabling(("ens1f0", CARD), ("ens2f0", "ens2f1"))
"""The same card twice: it is named by its address too."""


def scene(functions: int, *, outside: bool = False) -> Scene:
    names = tuple(SceneFunction(f"f{number}") for number in range(functions))
    return Scene("chain", names, "passthrough", "wire" if outside else "passthrough")


def test_each_hop_is_a_vlan_with_the_addresses_of_the_frames(kernel: SriovKernel) -> None:
    found = planned(ONE, scene(2).ports(KIND), kernel)
    assert list(found) == ["tester.a", "f0.0", "f0.1", "f1.0", "f1.1", "tester.b"]
    assert [(vf.number, vf.functions) for vf in found.values()] == [(number, 6) for number in range(6)]
    assert [vf.settings["mac"] for vf in found.values()] == [NEAR, FAR] * 3
    vlans = [vf.settings["vlan"] for vf in found.values()]
    assert vlans == [FIRST_VLAN, FIRST_VLAN, FIRST_VLAN + 1, FIRST_VLAN + 1, FIRST_VLAN + 2, FIRST_VLAN + 2]


def test_the_outermost_functions_are_at_the_cables_and_in_no_vlan(
    kernel: SriovKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(the_card, "locate", lambda _tree, of, number: (of, f"{of}:{number}"))
    found = planned(TWO, scene(2, outside=True).ports(KIND), kernel)
    assert {name: (vf.of, vf.number, vf.functions) for name, vf in found.items()} == {
        "f0.0": ("ens1f0", 0, 3), "f0.1": ("ens1f0", 1, 3), "f1.0": ("ens1f0", 2, 3), "f1.1": (CARD, 0, 1),
    }  # fmt: skip
    assert [(vf.settings["mac"], vf.settings["vlan"]) for vf in found.values()] == [
        (FAR, 0), (NEAR, FIRST_VLAN + 1), (FAR, FIRST_VLAN + 1), (NEAR, 0),
    ]  # fmt: skip
    assert TWO.wires(scene(2, outside=True).ports(KIND)) == {"tester.a": "if:ens2f0", "tester.b": "if:ens2f1"}


def test_a_switch_has_the_ends_of_its_chain_on_the_cards(kernel: SriovKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    ports = Scene("chain", (SceneFunction("f0"),), "vhost-user", "wire").ports(MATRIX_KINDS["tailrace"])
    found = planned_ends(Cabling(("ens1f0", "ens1f0"), ("ens2f0", "ens2f1")), ports, kernel)
    assert {name: (vf.number, vf.functions, vf.settings["mac"]) for name, vf in found.items()} == {
        "tester.a": (0, 2, FAR), "tester.b": (1, 2, NEAR),
    }  # fmt: skip
    monkeypatch.setattr(the_card, "locate", lambda _tree, of, number: (of, f"{of}:{number}"))
    assert [(vf.of, vf.number) for vf in planned_ends(TWO, ports, kernel).values()] == [("ens1f0", 0), (CARD, 0)]
    with pytest.raises(Mistake, match="needs two cards"):
        planned_ends(ONE, ports, kernel)


@pytest.mark.parametrize(
    ("cabling", "functions", "outside", "said"),
    [
        (Cabling(), 1, False, "no card is named; expected --card NAME"),
        (ONE, 1, True, "needs two cards and what is cabled to each; expected `--card A,B --outside C,D`"),
        (TWO, 0, True, "between two cables there is no virtual function"),
        (ONE, 4, False, "ens1f0 has at most 8 virtual functions"),
        (Cabling(("eth7",)), 1, False, "there is no network card eth7"),
    ],
)
def test_what_cannot_be_says_why(
    kernel: SriovKernel, cabling: Cabling, functions: int, outside: bool, said: str
) -> None:
    with pytest.raises(Mistake, match=said):
        check_card(cabling, scene(functions, outside=outside).ports(KIND), kernel)
    assert kernel.written == []


def test_all_that_is_in_the_way_of_a_card_is_said(tmp_path: Path) -> None:
    add_card(tmp_path / "root", iommu=False, up=False)
    with pytest.raises(FunctionsRefused) as raised:
        check_card(ONE, scene(0).ports(KIND), Tree(tmp_path / "root"))
    assert {*raised.value.whys} == {Why.DOWN, Why.NO_IOMMU}


def test_a_card_carries_and_what_it_took_is_on_record(
    kernel: SriovKernel, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = Card()
    monkeypatch.setattr(the_card, "Tree", lambda: kernel)
    monkeypatch.setattr(the_card, "take_functions", lambda on, wanted: take_functions(on, wanted, kernel, card))
    fabric = KIND.make(Making(_launcher(state), None, None, (), cabling=ONE))  # type: ignore[arg-type]
    uris = fabric.carry("chain", scene(1).ports(KIND))
    assert uris == {
        name: f"pci:{function_at(number)}" for number, name in enumerate(("tester.a", "f0.0", "f0.1", "tester.b"))
    }
    assert [card.settings[number]["vlan"] for number in range(4)] == [FIRST_VLAN] * 2 + [FIRST_VLAN + 1] * 2
    assert len(state.record.things) == 5  # that they were made, and each


def _launcher(state: State) -> object:
    return type("Launcher", (), {"state": state})()


# --- in a matrix -----------------------------------------------------------------------------------------------------


def test_a_matrix_says_of_each_cell_without_a_card_why() -> None:
    test = Matrix.model_validate(
        {"fabrics": ["card"], "interfaces": ["vhost-user", "passthrough"], "patterns": ["PVP", "VV"], "frames": [64]}
    )
    assert [cell.name for cell in cells(test)] == [
        "card-vhost-user-PVP-64", "card-passthrough-PVP-64", "card-vhost-user-VV-64", "card-passthrough-VV-64",
    ]  # fmt: skip
    (wanted,), refused = left(test)
    assert wanted == []
    reasons = {cell.name: reason for cell, reason in refused}
    assert reasons["card-vhost-user-VV-64"] == "card has no vhost-user ports; it has passthrough, wire"
    assert "expected --card NAME" in reasons["card-passthrough-VV-64"]


def test_a_matrix_has_its_cards_in_each_cell() -> None:
    words = {"fabrics": ["card", "tailrace", "linux-bridge"], "frames": [64], "patterns": ["P2P", "PVP", "VV"]}
    words["interfaces"] = ["passthrough"]
    found = cells(Matrix.model_validate({**words, "card": ["ens1f0", "ens1f1"], "outside": ["ens2f0", "ens2f1"]}))
    assert {cell.scene.cabling for cell in found} == {Cabling(("ens1f0", "ens1f1"), ("ens2f0", "ens2f1"))}
    assert [(cell.name, cell.tester_ports) for cell in found] == [
        ("card-wire-P2P-64", "wire"), ("tailrace-wire-P2P-64", "wire"), ("linux-bridge-veth-P2P-64", "veth"),
        ("card-passthrough-PVP-64", "wire"), ("tailrace-passthrough-PVP-64", "wire"),
        ("linux-bridge-passthrough-PVP-64", "veth"), ("card-passthrough-VV-64", "passthrough"),
        ("tailrace-passthrough-VV-64", "passthrough"), ("linux-bridge-passthrough-VV-64", "passthrough"),
    ]  # fmt: skip
    # With one card nothing goes out by a cable.
    (p2p, *_) = cells(Matrix.model_validate({**words, "fabrics": ["tailrace"], "card": ["ens1f0"]}))
    assert p2p.name == "tailrace-veth-P2P-64"
