"""Nodes that are not as on most servers: memory alone (CXL, HBM), CPUs alone, offline, numbers with gaps."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from machines import add_nic, machine, make
from typer.testing import CliRunner

from tailrace.cli.host import app
from tailrace.errors import Mistake
from tailrace.host.machine import read_machine
from tailrace.host.picture import draw
from tailrace.host.profile import load_profile, profile_names
from tailrace.host.tuning import TuningPlan, make_tuning_plan
from tailrace.kernel.tree import Tree

NODES = "/sys/devices/system/node"
GIB = 1 << 20
"""In kB, as meminfo says it."""


def nodes(folder: Path, layout: Mapping[int, tuple[str, int]], distances: Mapping[int, str] | None = None) -> None:
    """Nodes by number, each with its CPUs and its memory in kB, as the kernel lists those that are online."""
    shutil.rmtree(folder / NODES.lstrip("/"))
    for node, (cpus, memory) in layout.items():
        at = f"{NODES}/node{node}"
        files = {"cpulist": cpus, "meminfo": f"Node {node} MemTotal:       {memory} kB"}
        if distances:
            files["distance"] = distances[node]
        for size in (2048, 1048576):
            files |= {f"hugepages/hugepages-{size}kB/{key}_hugepages": "0" for key in ("nr", "free")}
        make(folder, {f"{at}/{key}": text for key, text in files.items()})
    make(folder, {f"{NODES}/online": ",".join(map(str, layout))})


def planned(folder: Path, profile: str = "latency", nic: str | None = None) -> TuningPlan:
    return make_tuning_plan(read_machine(Tree(folder)), load_profile(profile), nic)


def pages(folder: Path, value: str) -> dict[str, str]:
    """Where a plan wants so many pages of 2 MiB."""
    own = folder / "own.yaml"
    own.write_text(f"inherits: vanilla\nknobs: {{huge_pages_2mib: {value}}}\n")
    return {step.setting.target.split("/")[5]: step.setting.wanted for step in planned(folder, str(own)).steps()}


@pytest.mark.parametrize("profile", profile_names())
@pytest.mark.parametrize(
    ("layout", "node", "because"),
    [
        ({0: ("0-3", 64 * GIB), 1: ("", 256 * GIB)}, 0, "the one node that has CPUs and memory"),
        ({0: ("0-3", 0), 1: ("", 64 * GIB)}, 0, "the one node that has CPUs"),
        ({0: ("", 64 * GIB), 1: ("0-3", 0)}, 1, "the one node that has CPUs"),
        ({0: ("0", 0), 1: ("1-3", 0), 2: ("", 64 * GIB)}, 1, "the one node that has enough cores"),
        ({0: ("0-2", 0), 1: ("3", 64 * GIB), 2: ("", 64 * GIB)}, 0, "the one node that has enough cores"),
        ({1: ("0-3", 64 * GIB), 4: ("", 64 * GIB)}, 1, "the one node that has CPUs and memory"),
        ({2: ("0-1", 64 * GIB), 5: ("2-3", 64 * GIB)}, 2, "the first node of those with the most cores"),
    ],
)
def test_cores_are_dealt_on_a_node_that_has_them(
    tmp_path: Path, layout: Mapping[int, tuple[str, int]], node: int, because: str, profile: str
) -> None:
    machine(tmp_path)
    nodes(tmp_path, layout)
    roles = planned(tmp_path, profile).roles
    assert (roles.node, roles.because) == (node, because)
    assert roles.cpus["switch"]


@pytest.mark.parametrize("profile", ["latency", "throughput"])
def test_the_command_plans_for_a_machine_whose_memory_is_on_a_node_without_cpus(tmp_path: Path, profile: str) -> None:
    machine(tmp_path, cores=8)
    nodes(tmp_path, {0: ("0-7", 0), 1: ("", 4 * GIB)})
    done = CliRunner().invoke(app, ["plan", "--profile", profile, "--root", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["roles"]["cpus"]["system"] == "0"


DISTANCES = {1: "10 21 14 31", 4: "21 10 31 14", 6: "14 31 10 41", 9: "31 14 41 10"}
"""Between the nodes that are online: 6 has the memory near 1, 9 that near 4."""
LAYOUT = {1: ("0-3", 0), 4: ("4-7", 0), 6: ("", 64 * GIB), 9: ("", 64 * GIB)}


def test_huge_pages_are_on_the_nearest_node_that_has_memory(tmp_path: Path) -> None:
    machine(tmp_path, cores=8)
    nodes(tmp_path, LAYOUT, DISTANCES)
    assert pages(tmp_path, "64") == {"node6": "64"}
    add_nic(tmp_path, "eth0", "0000:81:00.0", 4)
    assert pages(tmp_path, "64") == {"node9": "64"}
    assert pages(tmp_path, "{6: 8, 9: 16, 1: 0}") == {"node6": "8", "node9": "16", "node1": "0"}
    with pytest.raises(Mistake, match="there is no memory on node 1; this machine has 6, 9"):
        pages(tmp_path, "{1: 64}")
    with pytest.raises(Mistake, match="there is no node 0; this machine has 6, 9"):
        pages(tmp_path, "{0: 64}")


def test_a_card_on_a_node_without_cpus_has_the_nearest_ones(tmp_path: Path) -> None:
    machine(tmp_path, cores=8)
    nodes(tmp_path, LAYOUT, DISTANCES)
    add_nic(tmp_path, "eth0", "0000:81:00.0", 9)
    roles = planned(tmp_path, nic="eth0").roles
    assert (roles.node, roles.because) == (4, "the nearest one with CPUs to eth0")
    plan = planned(tmp_path)
    assert (plan.roles.node, plan.roles.because) == (4, "the node of eth0, the first network card by address")
    assert plan.warnings == []


def test_a_card_that_does_not_tell_its_node_decides_nothing(tmp_path: Path) -> None:
    machine(tmp_path, cores=8)
    nodes(tmp_path, {1: ("0-2", 64 * GIB), 4: ("3-7", 64 * GIB)})
    add_nic(tmp_path, "eth0", "0000:81:00.0", -1)
    roles = planned(tmp_path, nic="eth0").roles
    assert (roles.node, roles.because) == (4, "the node with the most cores; eth0 has no known node")
    assert "eth0 at 0000:81:00.0" in draw(read_machine(Tree(tmp_path)), roles), "shown with the first node"


def test_a_node_that_is_offline_is_none(tmp_path: Path) -> None:
    machine(tmp_path)
    nodes(tmp_path, {0: ("0-3", 64 * GIB), 1: ("", 0)})
    make(tmp_path, {f"{NODES}/online": "0", f"{NODES}/possible": "0-1"})
    assert [node.number for node in read_machine(Tree(tmp_path)).nodes] == [0]
    assert planned(tmp_path).roles.because == "there is one node"
