"""Whole machines (hosts.py): what is found of each, what a plan makes of it, and that all of it comes back."""

from __future__ import annotations

import io
import json
import lzma
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hosts import COPIES, DATA, HOSTS, pack, store
from machines import add_nic, make
from rich.console import Console

from tailrace.errors import Mistake
from tailrace.host import show, tuner
from tailrace.host.boot import BootLoader
from tailrace.host.capabilities import find_capabilities
from tailrace.host.copy import copy_machine
from tailrace.host.journal import hold_journal, read_journal
from tailrace.host.machine import Machine, read_machine
from tailrace.host.picture import draw
from tailrace.host.profile import load_profile, profile_names
from tailrace.host.tuner import State
from tailrace.host.tuning import make_tuning_plan
from tailrace.kernel.cpus import parse_list, show_list
from tailrace.kernel.tree import Tree

NAMES = ("intel", "amd", "arm", "this", *COPIES)


def made(name: str, folder: Path) -> Machine:
    HOSTS[name](folder)
    return read_machine(Tree(folder))


def able(machine: Machine) -> dict[str, tuple[bool | None, bool | None]]:
    """Present and enabled, by capability."""
    found = find_capabilities(machine)
    return {each.capability.name: (each.finding.present, each.finding.enabled) for each in found}


def test_the_intel_server(tmp_path: Path) -> None:
    machine = made("intel", tmp_path)
    assert (len(machine.online), len(machine.nodes), len(machine.nics)) == (96, 2, 2)
    found = able(machine)
    on = (
        "virtualization nested-paging accessed-dirty tagged-tlb posted-interrupts preemption-timer pause-loop-exiting "
        "iommu interrupt-remapping iommu-2mib iommu-1gib device-tlb direct-cache accelerators smt cache-allocation"
    )
    assert {name: found[name] for name in on.split() if found[name] != (True, True)} == {}
    assert found["sr-iov"] == (True, False)
    plan = make_tuning_plan(machine, load_profile("latency"))
    assert plan.roles.cpus["switch"] == (1, 49)
    assert ("intel_iommu", "on") in plan.arguments()
    assert any("ens2f0 is on node 1" in warning and "--nic ens2f0" in warning for warning in plan.warnings)
    assert make_tuning_plan(machine, load_profile("latency"), "ens2f0").roles.node == 1


def test_a_feature_of_vmx_is_found_where_kvm_is_not_loaded(tmp_path: Path) -> None:
    made("intel", tmp_path)
    shutil.rmtree(tmp_path / "sys/module")
    found = able(read_machine(Tree(tmp_path)))
    for name in ("posted-interrupts", "preemption-timer", "pause-loop-exiting", "tpr-shadow"):
        assert found[name][0], name


def test_the_amd_server(tmp_path: Path) -> None:
    machine = made("amd", tmp_path)
    found = able(machine)
    assert found["posted-interrupts"] == (True, False)
    assert found["preemption-timer"][0] is False
    assert found["interrupt-remapping"] == (True, True)
    assert found["iommu-2mib"] == (True, True)
    assert found["device-tlb"] == (True, True)
    (tmp_path / "sys/kernel/irq/30/chip_name").write_text("PCI-MSIX\n")
    assert able(machine)["interrupt-remapping"] == (True, False)
    assert len([cache for cache in machine.caches if cache.level == 3]) == 8
    plan = make_tuning_plan(machine, load_profile("latency"))
    assert plan.roles.node == 1
    names = [name for name, _ in plan.arguments()]
    assert "iommu" in names and "intel_iommu" not in names and "intel_idle.max_cstate" not in names


def test_the_arm_server(tmp_path: Path) -> None:
    machine = made("arm", tmp_path)
    assert machine.architecture == "aarch64"
    found = able(machine)
    assert found["invariant-tsc"] == (True, True)
    assert found["iommu"] == (True, True)
    assert found["nested-paging"] == (True, True)
    assert found["posted-interrupts"][0] is False
    assert machine.model == "Arm Neoverse N1"
    plan = make_tuning_plan(machine, load_profile("optimized-2"))
    names = [name for name, _ in plan.arguments()]
    assert not {"tsc", "iommu", "mce", "processor.max_cstate", "idle"} & set(names)
    assert plan.missing()["tsc_reliable"] == "an x86 processor"
    loader = BootLoader(machine.tree)
    assert loader.kind() == "kernel-install"
    assert loader.commands() == [["kernel-install", "add", "6.1.0", "/lib/modules/6.1.0/vmlinuz"]]


def test_the_small_virtual_machine(tmp_path: Path) -> None:
    machine = made("this", tmp_path)
    assert (len(machine.online), len(machine.nodes)) == (2, 1)
    assert machine.clock.source == "tsc"
    plan = make_tuning_plan(machine, load_profile("latency"))
    assert plan.roles.cpus == {"system": (0,), "switch": (1,), "vnf": (), "tester": ()}
    assert "governor" in plan.missing()


def test_a_real_server_with_sr_iov(tmp_path: Path) -> None:
    machine = made("intel-sr-iov", tmp_path)
    assert machine.parts == "2 sockets, 2 nodes, 16 cores, 32 CPUs online"
    assert machine.kernel.release == "3.10.0-1160.15.2.el7.x86_64"
    cards = {nic.name: (nic.driver, nic.node, nic.vfs, nic.most_vfs) for nic in machine.nics if nic.interface}
    assert cards == {"enp96s0f0": ("i40e", 0, 0, 64), "enp96s0f1": ("i40e", 0, 0, 64)}
    found = able(machine)
    assert found["sr-iov"] == (True, False)
    assert found["tickless"][1] is False  # this kernel shows a zero byte for no CPUs
    # Nothing is said of what the copy leaves out, nor of what a kernel before 5.6 does not list.
    for name in ("iommu", "interrupt-remapping", "frequency", "preemption-timer", "posted-interrupts"):
        assert found[name] == (None, None), name
    plan = make_tuning_plan(machine, load_profile("latency"))
    assert (plan.roles.node, plan.roles.cpus["switch"]) == (0, (1, 17))
    assert plan.roles.because == "the node of enp96s0f0, the first network card by address"


def test_a_real_server_tuned_by_somebody_else(tmp_path: Path) -> None:
    machine = made("intel-real-time", tmp_path)
    assert machine.parts == "2 sockets, 2 nodes, 40 cores, 80 CPUs online"
    assert machine.nodes[1].cpus == tuple(range(1, 80, 2))
    # Linux shows no interface of any: as cards do that DPDK has.
    assert [(nic.name, nic.driver, nic.node) for nic in machine.nics] == [
        ("0000:01:00.0", "igb", 0),
        ("0000:01:00.1", "igb", 0),
        ("0000:19:00.0", "i40e", 0),
        ("0000:19:00.1", "i40e", 0),
        ("0000:86:00.0", "i40e", 1),
        ("0000:86:00.1", "i40e", 1),
    ]
    found = able(machine)
    assert found["interrupt-remapping"] == (True, True)  # by /proc/interrupts
    assert found["sr-iov"] == (None, None)
    plan = make_tuning_plan(machine, load_profile("latency"), "0000:86:00.0")
    assert plan.roles.cpus["switch"] == (3, 43)
    assert len(list(plan.steps("run"))) == 555
    assert not any(step.setting.scheme == "nic" for step in plan.steps())
    for words in ("isolcpus=managed_irq,0-4,11-79", "nohz_full=0-4,11-79"):
        assert any(words in warning and "keeps the first one" in warning for warning in plan.warnings), words
    wanted = dict(plan.arguments())
    assert BootLoader(machine.tree).read("isolcpus") == "managed_irq,0-4,11-79" != wanted["isolcpus"]


def test_arguments_are_short_where_cpus_are_numbered_by_turns(tmp_path: Path) -> None:
    HOSTS["intel-real-time"](tmp_path)
    make(tmp_path, {"/proc/sys/kernel/osrelease": "5.14.0-427.59.1.el9_4.x86_64+rt"})
    machine = read_machine(Tree(tmp_path))
    wanted = dict(make_tuning_plan(machine, load_profile("latency")).arguments())
    assert wanted["isolcpus"] == "domain,managed_irq,2-38:1/2,42-78:1/2"
    assert wanted["irqaffinity"] == "0-1,3-39:1/2,40-41,43-79:1/2"
    make(tmp_path, {"/proc/sys/kernel/osrelease": "3.10.0-1160.15.2.el7.x86_64"})
    older = dict(make_tuning_plan(read_machine(Tree(tmp_path)), load_profile("latency")).arguments())
    assert parse_list(older["nohz_full"]) == parse_list(wanted["nohz_full"]) and ":" not in older["nohz_full"]


def test_arguments_that_the_kernel_would_cut_off_are_refused(tmp_path: Path) -> None:
    HOSTS["intel-real-time"](tmp_path)
    make(tmp_path, {"/etc/default/grub": "", "/boot/grub/grub.cfg": ""})
    machine, profile = read_machine(Tree(tmp_path)), load_profile("latency")
    loader, arguments = BootLoader(machine.tree), make_tuning_plan(machine, profile).arguments()
    with pytest.raises(Mistake, match=r"would have 2\d{3} letters, and the kernel reads only 2047; .*--run-time"):
        loader.check([*arguments, ("more", "x" * 1000)])
    loader.check(arguments)


def test_a_real_machine_whose_first_cpu_is_offline(tmp_path: Path) -> None:
    machine = made("intel-offline", tmp_path)
    assert machine.parts == "2 sockets, 2 nodes, 17 cores, 17 CPUs online"
    assert [(node.number, node.cpus) for node in machine.nodes] == [(0, (*range(4, 21, 2),)), (1, (*range(5, 20, 2),))]
    assert "offline: CPUs 0-3,21-23" in printed(machine)
    plan = make_tuning_plan(machine, load_profile("latency"))
    assert plan.roles.node == 1, "node 0 has more CPUs, and no memory"
    assert plan.roles.because == "the one node that has memory"
    assert not {0, 1, 2, 3, 21, 22, 23} & {*plan.roles.system, *plan.roles.isolated}


def test_a_real_amd_server_of_many_nodes(tmp_path: Path) -> None:
    machine = made("amd-opteron", tmp_path)
    assert machine.parts == "4 sockets, 8 nodes, 32 cores, 64 CPUs online"
    assert machine.nodes[2].cpus == tuple(range(32, 40))  # the nodes are not in the order of the CPUs
    assert machine.cpu(33).siblings == (32, 33)
    found = able(machine)
    assert found["smt"] == (True, True)  # by the topology: the kernel is older than smt/active
    assert found["preemption-timer"][0] is False and found["nested-paging"] == (True, None)
    plan = make_tuning_plan(machine, load_profile("latency"))
    assert plan.roles.cpus["switch"] == (2, 3)
    governors = [step.setting.target for step in plan.steps("run") if "governor" in step.setting.target]
    assert len(governors) == len(plan.roles.isolated) == 6


def test_a_real_amd_desktop(tmp_path: Path) -> None:
    machine = made("amd-ryzen", tmp_path)
    assert machine.parts == "1 socket, 1 node, 6 cores, 12 CPUs online"
    assert machine.nodes[0].memory_mib > 0
    assert [(cache.kib, len(cache.cpus)) for cache in machine.caches if cache.level == 3] == [(8192, 6)] * 2
    assert [each.name for each in machine.accelerators] == ["AMD Cryptographic Coprocessor"]
    assert {nic.node for nic in machine.nics} == {None}


def test_a_real_arm_server(tmp_path: Path) -> None:
    machine = made("arm-kunpeng", tmp_path)
    assert machine.model == "HiSilicon Kunpeng 920"
    assert machine.parts == "2 sockets, 4 nodes, 128 cores, 128 CPUs online"
    assert machine.nodes[3].cpus == tuple(range(96, 128))  # this kernel ends the list with a zero byte
    found = able(machine)
    assert found["virtualization"] == (None, None)
    assert found["huge-pages-1gib"] == (True, False)
    assert "64 KiB, 2 MiB, 32 MiB, 1024 MiB" in printed(machine)
    assert "TSC" not in printed(machine)
    own = tmp_path / "own.yaml"
    own.write_text("inherits: latency\nknobs: {huge_pages_1gib: 4}\n")
    plan = make_tuning_plan(machine, load_profile(str(own)))
    assert plan.roles.isolated == tuple(range(2, 32)), "a core of 16 is the system's"
    assert ("hugepagesz", "1G") in plan.arguments()


def test_a_real_arm_machine_of_two_kinds_of_cores(tmp_path: Path) -> None:
    machine = made("arm-two-kinds", tmp_path)
    assert machine.model == "Arm Cortex-A725 and Arm Cortex-X925"
    assert machine.slow == (*range(5), *range(10, 15))
    assert "L3 cache: 1 × 8 MiB, 1 × 16 MiB" in draw(machine, make_tuning_plan(machine, load_profile("vanilla")).roles)
    plan = make_tuning_plan(machine, load_profile("latency"))
    assert plan.roles.cpus["system"] == (0,)
    assert (plan.roles.cpus["switch"], plan.roles.cpus["tester"]) == ((5,), (6,))
    assert any(warning.startswith("CPUs 1-4,10-14 of vnf are on slower cores") for warning in plan.warnings)


def test_a_real_hybrid_processor(tmp_path: Path) -> None:
    machine = made("intel-hybrid", tmp_path)
    assert machine.slow == tuple(range(12, 20))
    plan = make_tuning_plan(machine, load_profile("latency"))
    assert plan.roles.cpus["system"] == (0, 1)
    assert (plan.roles.cpus["switch"], plan.roles.cpus["tester"]) == ((2, 3), (4, 5))
    own = tmp_path / "own.yaml"
    own.write_text("inherits: latency\nroles: {vnf: 3}\n")
    fast = make_tuning_plan(machine, load_profile(str(own)))
    assert fast.roles.cpus["vnf"] == tuple(range(6, 12))
    assert fast.warnings == []


@pytest.mark.parametrize("name", NAMES)
def test_one_more_card_does_not_reshuffle_the_cores(name: str, tmp_path: Path) -> None:
    before = made(name, tmp_path)
    plan = make_tuning_plan(before, load_profile("latency"))
    for number, node in enumerate(before.nodes):
        add_nic(tmp_path, f"new{number}", f"00ff:00:00.{number}", node.number)
        after = make_tuning_plan(read_machine(Tree(tmp_path)), load_profile("latency"), kept=plan.asked)
        assert after.roles.cpus == plan.roles.cpus
    add_nic(tmp_path, "first", "0000:00:00.0", before.nodes[-1].number)
    after = make_tuning_plan(read_machine(Tree(tmp_path)), load_profile("latency"), kept=plan.asked)
    assert after.roles.cpus == plan.roles.cpus


@pytest.mark.parametrize("name", NAMES)
def test_a_cards_node_is_honoured(name: str, tmp_path: Path) -> None:
    machine = made(name, tmp_path)
    for number, node in enumerate(machine.nodes):
        add_nic(tmp_path, f"new{number}", f"00ff:00:00.{number}", node.number)
    machine = read_machine(Tree(tmp_path))
    cpus = {node.number: set(node.cpus) for node in machine.nodes}
    for nic in machine.nics:
        roles = make_tuning_plan(machine, load_profile("latency"), nic.name).roles
        assert roles.node == (nic.node or 0)
        assert set(roles.isolated) <= cpus[roles.node]


@pytest.mark.parametrize("name", NAMES)
def test_every_machine_can_be_looked_at(name: str, tmp_path: Path) -> None:
    machine = made(name, tmp_path)
    text = printed(machine)
    for node in machine.nodes:
        assert f"node {node.number}: CPUs {show_list(node.cpus)}, " in text
    plan = make_tuning_plan(machine, load_profile("latency"))
    titles = re.findall(r"<title>CPU (\d+): (\w+)</title>", draw(machine, plan.roles))
    assert {int(cpu): role for cpu, role in titles} == {
        cpu.number: plan.roles.role(cpu.number) if cpu.online else "offline" for cpu in machine.cpus
    }


def printed(machine: Machine) -> str:
    console = Console(width=10_000, file=io.StringIO())
    console.print(show.machine_tree(machine, find_capabilities(machine)))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_is_what_its_own_files_give(name: str, tmp_path: Path) -> None:
    """Nothing in it that is not read, so nothing that a new copy of the same machine would not have."""
    HOSTS[name](tmp_path / "root")
    store(tmp_path / "root", tmp_path / "again.json.xz")
    files = (tmp_path / "again.json.xz", DATA / f"hosts/{name}.json.xz")
    again, before = (json.loads(lzma.decompress(file.read_bytes())) for file in files)
    assert again == before


@pytest.mark.parametrize("name", NAMES)
def test_every_profile_is_applied_verified_and_undone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    root, state = tmp_path / "root", tmp_path / "state"
    machine = made(name, root)
    before = contents(root)
    for profile in profile_names():
        plan = make_tuning_plan(machine, load_profile(profile))
        assert show.plan_document(plan) == show.plan_document(make_tuning_plan(machine, load_profile(profile)))
        with hold_journal(state) as journal:
            # The boot loader of a machine that has none is not known.
            tuner.apply(plan, machine, journal, boot=BootLoader(machine.tree).kind() is not None)
        again = make_tuning_plan(machine, load_profile(profile))
        found = tuner.verify(again, machine, read_journal(state))
        drifted = [each.step.setting.place for each in found if each.state is State.DRIFTED]
        assert drifted == []
    with hold_journal(state) as journal:
        assert tuner.undo(machine, journal) == []
    assert contents(root) == before


def contents(folder: Path) -> dict[str, str]:
    """Every file, of a kernel's choice the chosen word."""
    return {
        str(path.relative_to(folder)): chosen(path.read_text(errors="surrogateescape"))
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def chosen(text: str) -> str:
    return text.split("[")[1].split("]")[0] if "hugepage" not in text and text.count("[") == 1 else text.strip()


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_shows_the_same_machine(name: str, tmp_path: Path) -> None:
    machine = made(name, tmp_path / "first")
    assert copy_machine(tmp_path / "second", Tree(tmp_path / "first")) > 50
    copied = read_machine(Tree(tmp_path / "second"))
    assert show.machine_document(copied, find_capabilities(copied)) == show.machine_document(
        machine, find_capabilities(machine)
    )
    plans = [show.plan_document(make_tuning_plan(each, load_profile("latency"))) for each in (machine, copied)]
    assert plans[0] == plans[1]
    assert "texts" in pack(tmp_path / "second")


def test_a_machine_that_no_profile_fits_is_copied(tmp_path: Path) -> None:
    """It is the one that somebody else should look at."""
    made("intel", tmp_path / "first")
    make(tmp_path / "first", {"/sys/fs/resctrl/theirs/schemata": "L3:0=fff;1=fff"})
    copy_machine(tmp_path / "second", Tree(tmp_path / "first"))
    assert (tmp_path / "second/sys/fs/resctrl/theirs/schemata").read_text() == "L3:0=fff;1=fff\n"


def test_the_plugin_of_kernel_install_adds_the_arguments_to_the_entry(tmp_path: Path) -> None:
    machine = made("arm", tmp_path)
    loader = BootLoader(machine.tree)
    plugin = tmp_path / "plugin"
    plugin.write_text(loader.text([("nohz_full", "1-63"), ("nosoftlockup", "")]))
    environment = {"KERNEL_INSTALL_MACHINE_ID": "machine", "KERNEL_INSTALL_BOOT_ROOT": f"{tmp_path}/boot/efi"}
    subprocess.run(["sh", plugin, "add", "6.1.0"], env=environment, check=True)
    entry = tmp_path / "boot/efi/loader/entries/machine-6.1.0.conf"
    assert entry.read_text() == "options root=/dev/sda1 nohz_full=1-63 nosoftlockup\n"
