"""The system's share: it grows with the node and its cards' queues, and a card's work is done by CPUs of its node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from machines import add_nic, machine, make
from tuned_host import Host

from tailrace.errors import Mistake
from tailrace.host import show
from tailrace.host.journal import Applied
from tailrace.host.machine import read_machine
from tailrace.host.profile import load_profile, profile_names
from tailrace.host.tuning import TuningPlan, make_tuning_plan
from tailrace.kernel.cpus import show_list
from tailrace.kernel.tree import Tree


def planned(folder: Path, profile: str = "throughput", kept: Applied | None = None) -> TuningPlan:
    return make_tuning_plan(read_machine(Tree(folder)), load_profile(profile), kept=kept)


def card(folder: Path, name: str, address: str, node: int, queues: int) -> None:
    add_nic(folder, name, address, node)
    make(folder, {f"/sys/class/net/{name}/queues/rx-{queue}/rps_cpus": "0" for queue in range(queues)})


def own(folder: Path, roles: str) -> str:
    path = folder / "own.yaml"
    path.write_text(f"inherits: throughput\nroles: {roles}\n")
    return str(path)


def places(plan: TuningPlan, part: str) -> set[str]:
    return {step.setting.wanted for step in plan.steps() if part in step.setting.target}


@pytest.mark.parametrize("profile", profile_names())
@pytest.mark.parametrize(
    ("cores", "threads", "system", "why"),
    [
        (2, 1, "0", "1 of the 2 cores of node 0 (at least one)"),
        (8, 2, "0,8", "1 of the 8 cores of node 0 (at least one)"),
        (32, 1, "0-1", "2 of the 32 cores of node 0 (one for each 16)"),
        (64, 2, "0-3,64-67", "4 of the 64 cores of node 0 (one for each 16)"),
        (128, 2, "0-7,128-135", "8 of the 128 cores of node 0 (one for each 16)"),
    ],
)
def test_the_system_has_more_cores_of_a_larger_node(
    tmp_path: Path, cores: int, threads: int, system: str, why: str, profile: str
) -> None:
    machine(tmp_path, cores=cores, threads=threads)
    plan = planned(tmp_path, profile)
    assert show_list(plan.roles.system) == system
    assert f"The system has {why}." in show.plan_lines(plan)
    assert show.plan_document(plan)["roles"]["system"] == why


def test_the_queues_of_the_nodes_cards_count(tmp_path: Path) -> None:
    machine(tmp_path, nodes=2, cores=16, threads=2)
    card(tmp_path, "eth0", "0000:31:00.0", 0, 64)
    card(tmp_path, "eth1", "0000:31:00.1", 0, 100)
    card(tmp_path, "eth2", "0000:b1:00.0", 1, 63)
    plan = planned(tmp_path)
    assert plan.roles.share == (
        "3 of the 16 cores of node 0 (a CPU for each 32 of the 164 receive queues of its network cards) "
        "and all CPUs of other nodes"
    )
    assert show_list(plan.roles.system) == "0-2,16-34,48-63"
    assert not [warning for warning in plan.warnings if "queues" in warning]


def test_the_other_roles_keep_their_cores(tmp_path: Path) -> None:
    machine(tmp_path, cores=4)
    card(tmp_path, "eth0", "0000:31:00.0", 0, 512)
    plan = planned(tmp_path, own(tmp_path, "{switch: 2}"))
    assert plan.roles.cpus == {"system": (0,), "switch": (1, 2), "vnf": (), "tester": (3,)}
    assert plan.roles.share == "1 of the 4 cores of node 0 (as many as the other roles leave)"
    (warning,) = plan.warnings
    assert warning.startswith("eth0: 512 queues, each with an interrupt, for the system's CPUs 0: give the system more")


def test_interrupts_and_packets_go_to_the_cpus_of_the_cards_node(tmp_path: Path) -> None:
    machine(tmp_path, nodes=2, cores=32, interrupts=4)
    for number, node in enumerate((0, 1, -1)):  # the fourth does not tell
        make(tmp_path, {f"/proc/irq/{30 + number}/node": str(node)})
    card(tmp_path, "eth0", "0000:31:00.0", 0, 8)
    card(tmp_path, "eth1", "0000:b1:00.0", 1, 8)
    plan = planned(tmp_path)
    wanted = {step.setting.target: step.setting.wanted for step in plan.steps()}
    assert [wanted[f"/proc/irq/{30 + number}/smp_affinity_list"] for number in range(4)] == [
        "0-1",
        "32-63",
        "0-1,32-63",
        "0-1,32-63",
    ]
    assert places(plan, "net/eth0/") == {"3"}
    assert places(plan, "net/eth1/") == {"ffffffff,00000000"}


def test_interrupts_that_are_too_many_for_the_nodes_cpus_go_to_all(tmp_path: Path) -> None:
    machine(tmp_path, nodes=2, cores=8, interrupts=201)
    make(tmp_path, {f"/proc/irq/{30 + number}/node": "0" for number in range(201)})
    add_nic(tmp_path, "eth0", "0000:31:00.0", 0)
    assert places(planned(tmp_path), "/proc/irq/3") == {"0,8-15"}
    (tmp_path / "proc/irq/30/node").write_text("1\n")
    assert places(planned(tmp_path), "/proc/irq/31/") == {"0"}


def test_a_card_that_dpdk_takes_moves_no_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queues are gone then."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    machine(tmp_path, cores=16)
    card(tmp_path, "eth0", "0000:31:00.0", 0, 128)
    before = planned(tmp_path)
    assert before.roles.system == (0, 1, 2, 3)
    for path in (tmp_path / "sys/class/net/eth0/queues").rglob("*"):
        if path.is_file():
            path.unlink()
    (tmp_path / "sys/class/net/eth0/device").unlink()
    after = planned(tmp_path, kept=before.asked)
    assert after.roles.cpus == before.roles.cpus
    assert after.roles.share == "4 of the 16 cores of node 0 (as applied before)"
    assert planned(tmp_path).roles.system == (0,)


def test_a_host_tuned_by_an_earlier_version_keeps_its_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its journal does not say how many cores the system has, which was one."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    host = Host(tmp_path)
    machine(tmp_path, cores=32)
    host.apply("throughput")
    journal = host.state / "journal"
    assert '"system": 2' in journal.read_text()
    journal.write_text(journal.read_text().replace(', "system": 2', ""))
    assert host.plan("throughput").roles.system == (0,)


@pytest.mark.parametrize("roles", ["{vnf: auto}", "{system: some}"])
def test_a_share_that_no_role_has_is_refused(tmp_path: Path, roles: str) -> None:
    machine(tmp_path)
    known = "`auto`" if "some" in roles else "`spare`"
    with pytest.raises(Mistake, match=f"expected a number of cores, or `rest`, .*{known}$"):
        planned(tmp_path, own(tmp_path, roles))
