"""Whole machines (hosts.py): what is found of each, what a plan makes of it, and that all of it comes back."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hosts import HOSTS, pack

from tailrace.host import show, tuner
from tailrace.host.boot import BootLoader
from tailrace.host.capabilities import find_capabilities
from tailrace.host.copy import copy_machine
from tailrace.host.journal import hold_journal, read_journal
from tailrace.host.machine import Machine, read_machine
from tailrace.host.profile import load_profile, profile_names
from tailrace.host.tree import Tree
from tailrace.host.tuner import State
from tailrace.host.tuning import make_tuning_plan

NAMES = ("intel", "amd", "arm", "this")


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
        str(path.relative_to(folder)): chosen(path.read_text())
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


def test_the_plugin_of_kernel_install_adds_the_arguments_to_the_entry(tmp_path: Path) -> None:
    machine = made("arm", tmp_path)
    loader = BootLoader(machine.tree)
    plugin = tmp_path / "plugin"
    plugin.write_text(loader.text([("nohz_full", "1-63"), ("nosoftlockup", "")]))
    environment = {"KERNEL_INSTALL_MACHINE_ID": "machine", "KERNEL_INSTALL_BOOT_ROOT": f"{tmp_path}/boot/efi"}
    subprocess.run(["sh", plugin, "add", "6.1.0"], env=environment, check=True)
    entry = tmp_path / "boot/efi/loader/entries/machine-6.1.0.conf"
    assert entry.read_text() == "options root=/dev/sda1 nohz_full=1-63 nosoftlockup\n"
