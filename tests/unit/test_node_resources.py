"""`tailrace node resources`: who holds what, on a machine of files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
from machines import add_nic, machine
from typer.testing import CliRunner

from tailrace.cli import node as command
from tailrace.host.journal import Journal, state_folder
from tailrace.host.machine import read_machine
from tailrace.host.profile import load_profile
from tailrace.host.tuning import make_tuning_plan
from tailrace.kernel.boot import boot_id
from tailrace.kernel.tree import Tree
from tailrace.node.resources import resources
from tailrace.resources import ledger
from tailrace.resources.claim import Claim, Memory, Pages, Part
from tailrace.resources.ledger import write_claim


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tuned machine of two nodes, of which a node and a measurement hold something."""
    monkeypatch.setattr(ledger, "_ROOTS", tmp_path / "claims")
    monkeypatch.setattr(ledger, "ledger_folder", lambda: tmp_path / "claims")
    tree = machine(tmp_path, nodes=2, cores=4, threads=1)
    add_nic(tmp_path, "ens1", "0000:31:00.0", 1)
    asked = make_tuning_plan(read_machine(tree), load_profile("latency"), "ens1").asked
    Journal(state_folder(tree) / "journal").note(applied=asked)
    for name, claim in {
        "up": Claim(
            "",
            "a.yaml",
            boot_id(),
            None,
            (5, 6),
            (4,),
            (Pages(2048, 7, 1),),
            ("0000:31:00.0", "tap0"),
            ("p",),
            "",
            (
                Part("switch", memory=(Memory(1, 68),), exclusive=(5,), shared=(4,)),
                Part("functions.fw", (), (), (Memory(1, 256, True), Memory(0, 1)), (6,), (4,), (Pages(2048, 104, 1),)),
                Part("ports.wan", ("tap0",)),
            ),
        ),
        "run": Claim("", "b.yaml", boot_id(), None, (7,), (4,), (Pages(2048, 3, 1), Pages(1048576, 1))),
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "state.json").write_text("{}")
        write_claim(Claim(**{**vars(claim), "folder": str(folder)}))
    return tmp_path


def test_each_cpu_says_its_role_and_who_has_it(held: Path) -> None:
    found = resources(Tree(held))
    cpus = {cpu["cpu"]: cpu for cpu in found["cpus"]}
    up, run = f"{held}/up (a.yaml)", f"{held}/run (b.yaml)"
    assert (cpus[0]["role"], cpus[0]["use"], cpus[0]["owners"]) == ("system", None, [])
    both = f"switch, fw of {up}"
    assert (cpus[4]["role"], cpus[4]["use"], cpus[4]["owners"]) == ("system", "shared", [run, both])
    assert (cpus[5]["role"], cpus[5]["use"], cpus[5]["owners"]) == ("switch", "exclusive", [f"switch of {up}"])
    assert cpus[6]["owners"] == [f"fw of {up}"]
    assert (cpus[7]["node"], cpus[7]["owners"]) == (1, [run])
    assert [[pool["ours"] for pool in node["pages"]] for node in found["nodes"]] == [[0, 1], [10, 0]]
    nics = {nic["nic"]: nic for nic in found["nics"]}
    assert (nics["ens1"]["node"], nics["ens1"]["driver"], nics["ens1"]["owners"]) == (1, "ice", [up])
    assert nics["tap0"]["owners"] == [f"wan of {up}"]
    sizes = {key: found["nodes"][1][key] for key in ("memory_mib", "reserve_mib", "held_mib", "left_mib")}
    assert sizes == {"memory_mib": 65536, "reserve_mib": 2048, "held_mib": 256, "left_mib": 65536 - 2048 - 256}
    assert [node["owners"] for node in found["nodes"]] == [
        [f"fw up to 1 of {up}"],
        [f"switch up to 68, fw 256 of {up}"],
    ]
    assert [pool["owners"] for pool in found["nodes"][1]["pages"]] == [[f"fw 104 of {up}"], []]
    assert found["owners"][1]["parts"][2] == {**asdict(Part("ports.wan", ("tap0",)))}
    assert found["ports"] == [{"port": "p", "owner": up}]
    assert [owner["spec"] for owner in found["owners"]] == ["b.yaml", "a.yaml"]
    assert found["notes"] == []


def test_the_table_has_all_of_it(held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "found_resources", lambda: resources(Tree(held)))
    said = CliRunner().invoke(command.app, ["resources"]).output
    assert f"6    1     6     vnf     no        exclusive  fw of {held}/up (a.yaml)" in said
    assert f"1     65536 MiB  2048 MiB        256 MiB  63232 MiB  switch up to 68, fw 256 of {held}/up (a.yaml)" in said
    assert f"1     2 MiB     0      0     10    fw 104 of {held}/up (a.yaml)" in said
    assert f"tap0  –             –     –       wan of {held}/up (a.yaml)" in said


def test_what_only_root_may_read_is_said(held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "ledger_folder", lambda: held / "own")
    monkeypatch.setattr(ledger.os, "access", lambda *_: False)
    monkeypatch.setattr(ledger, "_files", lambda _: [])
    found = resources(Tree(held))
    assert found["owners"] == []
    assert found["notes"] == [f"{held}/claims is open to root alone: what root holds is not shown; run this with sudo"]
