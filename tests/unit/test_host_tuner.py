"""Applying, verifying and undoing, over machines made of files: what was there comes back, whatever happens between."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hosts import HOSTS
from machines import make
from tuned_host import Host, Write, contents, meanings, update_grub, with_preference

from tailrace.errors import Failure, Mistake
from tailrace.host import boot, tuner
from tailrace.host.boot import BootLoader
from tailrace.host.boot_files import GRUB_FILE
from tailrace.host.journal import hold_journal, read_journal
from tailrace.host.machine import read_machine
from tailrace.host.profile import load_profile
from tailrace.host.tuner import State
from tailrace.host.tuning import make_tuning_plan
from tailrace.kernel.cpus import show_list
from tailrace.kernel.tree import Tree


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # of a disk that these tests do not cut off
    return Host(tmp_path)


def test_undo_puts_every_byte_back(host: Host) -> None:
    before = contents(host.folder)
    outcome = host.apply()
    assert outcome.reboot
    assert contents(host.folder) != before
    assert (host.folder / "proc/sys/vm/stat_interval").read_text() == "120\n"
    assert (host.folder / "proc/irq/30/smp_affinity_list").read_text() == "0\n"
    assert "isolcpus=domain,managed_irq,1-3" in (host.folder / GRUB_FILE.lstrip("/")).read_text()
    assert host.undo() == []
    assert meanings(contents(host.folder)) == meanings(before)
    assert not (host.state / "journal").exists()


def test_applied_twice_changes_nothing_more(host: Host) -> None:
    host.apply()
    assert list(host.apply().changed) == []


def test_another_profile_on_top_still_comes_back_to_the_beginning(host: Host) -> None:
    before = contents(host.folder)
    host.apply("throughput")
    host.apply("latency")
    host.apply("optimized-1")
    host.undo()
    assert meanings(contents(host.folder)) == meanings(before)


def test_undo_without_anything_done_is_harmless(host: Host) -> None:
    before = contents(host.folder)
    assert host.undo() == []
    assert contents(host.folder) == before


def test_verify_tells_drift_from_what_waits_for_a_reboot(host: Host) -> None:
    assert host.states()["file:/proc/sys/vm/stat_interval"] is State.WRONG
    host.apply()
    states = host.states()
    assert states["file:/proc/sys/vm/stat_interval"] is State.RIGHT
    assert states["argument:nohz_full"] is State.REBOOT
    make(host.folder, {"/proc/sys/vm/stat_interval": "5"})
    assert host.states()["file:/proc/sys/vm/stat_interval"] is State.DRIFTED


def test_verify_names_who_is_known_to_change_it(host: Host) -> None:
    host.apply()
    make(host.folder, {"/proc/irq/30/smp_affinity_list": "0-3", "/proc/77/comm": "irqbalance"})
    found = tuner.verify(host.plan(), host.machine, read_journal(host.state))
    drifted = [each for each in found if each.state is State.DRIFTED]
    assert [each.by for each in drifted] == ["irqbalance"]


def test_another_tuner_is_refused_before_anything_is_done(host: Host) -> None:
    before = contents(host.folder)
    make(host.folder, {"/proc/77/comm": "tuned"})
    with pytest.raises(Mistake, match="another tuner is active: tuned"):
        host.apply()
    (host.folder / "proc/77/comm").unlink()
    assert contents(host.folder) == before


def test_an_unknown_boot_loader_is_refused_and_nothing_is_half_applied(host: Host) -> None:
    (host.folder / "etc/default/grub").unlink()
    before = contents(host.folder)
    with pytest.raises(
        Mistake, match=r"no boot loader that Tailrace knows .*yourself: isolcpus=domain,managed_irq,1-3 nohz=on"
    ):
        host.apply()
    assert meanings(contents(host.folder)) == meanings(before)
    assert host.apply(boot=False).changed


def test_a_failure_in_the_middle_undoes_what_was_done(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(host.folder)
    write = Tree.write

    def failing(tree: Tree, path: str, value: str) -> None:
        if path.endswith("stat_interval"):
            raise OSError(30, "Read-only file system")
        write(tree, path, value)

    monkeypatch.setattr(Tree, "write", failing)
    with pytest.raises(Failure, match="stat_interval: read-only, as in a container"):
        host.apply()
    assert meanings(contents(host.folder)) == meanings(before)
    assert not (host.state / "journal").exists()


def test_a_failure_on_top_of_another_profile_leaves_that_one(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    before = meanings(contents(host.folder))
    host.apply("throughput")
    tuned = meanings(contents(host.folder))
    write = Tree.write

    def failing(tree: Tree, path: str, value: str) -> None:
        if path.endswith("stat_interval"):
            raise OSError(30, "Read-only file system")
        write(tree, path, value)

    with monkeypatch.context() as patch:
        patch.setattr(Tree, "write", failing)
        with pytest.raises(Failure, match="stat_interval"):
            host.apply("latency")
    assert meanings(contents(host.folder)) == tuned
    journal = read_journal(host.state)
    assert journal.applied is not None and journal.applied.profile == "throughput"
    host.undo()
    assert meanings(contents(host.folder)) == before


def test_going_between_modes_leaves_nothing_of_the_other(host: Host) -> None:
    host.apply("throughput", boot=False)
    throughput = meanings(contents(host.folder))
    outcome = host.apply("latency", boot=False)
    assert outcome.changed
    latency = meanings(contents(host.folder))
    back = host.apply("throughput", boot=False)
    assert "file:/proc/sys/vm/stat_interval" in back.put_back
    assert meanings(contents(host.folder)) == throughput
    host.apply("latency", boot=False)
    assert meanings(contents(host.folder)) == latency


def test_a_profile_of_ones_own_is_found_again_by_verify(host: Host) -> None:
    own = host.folder / "mine.yaml"
    own.write_text("inherits: vanilla\nknobs: {vm.stat_interval: 33}\n")
    host.apply(str(own))
    applied = read_journal(host.state).applied
    assert applied is not None
    assert load_profile(applied.profile).knobs == {"vm.stat_interval": 33}


def test_the_boot_loaders_file_of_two_boots_is_still_undone(host: Host) -> None:
    before = meanings(contents(host.folder))
    host.apply("optimized-1")
    make(host.folder, {"/proc/sys/kernel/random/boot_id": "second-boot"})
    host.apply("latency")
    assert host.undo() == []
    assert not (host.folder / GRUB_FILE.lstrip("/")).exists()
    assert host.folder.joinpath("etc/default/grub").read_text() == before["etc/default/grub"]


def test_a_read_only_sys_is_refused_before_anything_is_done(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(host.folder)
    monkeypatch.setattr(os, "access", lambda path, _: "stat_interval" not in str(path))
    with pytest.raises(Failure, match=r"stat_interval: .*; nothing is changed"):
        host.apply()
    assert contents(host.folder) == before
    assert not (host.state / "journal").exists()


@pytest.mark.parametrize("name", ["irqbalance", "tuned", "numad", "power-profiles-daemon"])
def test_every_fighter_is_named_with_what_to_do(host: Host, name: str) -> None:
    make(host.folder, {"/proc/77/comm": name[:15]})  # which is all that the kernel keeps of a name
    with pytest.raises(Mistake, match=f"{name}.*systemctl disable --now {name}"):
        host.apply()


def test_an_interrupt_that_the_kernel_manages_is_no_failure(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Tree.write

    def managed(tree: Tree, path: str, value: str) -> None:
        if "/irq/31/" in path:
            raise OSError(5, "Input/output error")
        write(tree, path, value)

    monkeypatch.setattr(Tree, "write", managed)
    outcome = host.apply()
    assert [step.setting.target for step, _ in outcome.refused] == ["/proc/irq/31/smp_affinity_list"]
    assert host.states()["file:/proc/irq/31/smp_affinity_list"] is State.REFUSED


def test_after_a_reboot_only_the_boot_loaders_file_is_undone(host: Host) -> None:
    host.apply()
    make(host.folder, {"/proc/sys/kernel/random/boot_id": "second-boot", "/proc/sys/vm/stat_interval": "7"})
    host.undo()
    assert (host.folder / "proc/sys/vm/stat_interval").read_text() == "7\n"
    assert not (host.folder / GRUB_FILE.lstrip("/")).exists()


def test_two_at_once_are_refused(host: Host) -> None:
    with (
        hold_journal(host.state),
        pytest.raises(Mistake, match="another `tailrace host` command"),
        hold_journal(host.state),
    ):
        pass


def test_a_partition_and_a_share_of_the_cache_are_made_and_removed(host: Host) -> None:
    make(
        host.folder,
        {
            "/sys/fs/cgroup/cgroup.controllers": "cpuset memory",
            "/sys/fs/cgroup/cgroup.subtree_control": "memory",
            "/sys/fs/resctrl/info/L3/cbm_mask": "fff",
            "/sys/fs/resctrl/schemata": "    L3:0=fff;1=fff",
        },
    )
    own = host.folder / "own.yaml"
    own.write_text("inherits: vanilla\nknobs: {cpuset_partition: true, cache_share: 50}\n")
    before = contents(host.folder)
    host.apply(str(own))
    group = host.folder / "sys/fs/cgroup/tailrace-isolated"
    assert (host.folder / "sys/fs/cgroup/cgroup.subtree_control").read_text() == "memory cpuset\n"
    assert (group / "cpuset.cpus").read_text() == "1-3\n"
    assert (group / "cpuset.cpus.partition").read_text() == "isolated\n"
    assert (host.folder / "sys/fs/resctrl/tailrace/schemata").read_text() == "L3:0=3f;1=3f\n"
    assert (host.folder / "sys/fs/resctrl/schemata").read_text() == "    L3:0=fc0;1=fc0\n"
    assert list(host.apply(str(own)).changed) == []
    assert host.undo() == []
    assert contents(host.folder) == before
    assert not group.exists()


def test_second_threads_go_offline_and_come_back(tmp_path: Path) -> None:
    host = Host(tmp_path, threads=2)
    make(tmp_path, {f"/sys/devices/system/cpu/cpu{cpu}/online": "1" for cpu in range(1, 8)})
    own = tmp_path / "own.yaml"
    own.write_text("inherits: vanilla\nknobs: {siblings_offline: true}\n")
    host.apply(str(own))
    online = [(tmp_path / f"sys/devices/system/cpu/cpu{cpu}/online").read_text().strip() for cpu in range(1, 8)]
    assert online == ["1", "1", "1", "1", "0", "0", "0"]
    host.undo()
    assert all((tmp_path / f"sys/devices/system/cpu/cpu{cpu}/online").read_text() == "1\n" for cpu in range(1, 8))


def hotplugged(folder: Path, write: Write) -> Write:
    """Writing as on a kernel with four cores of two threads: a CPU that is offline has no topology and no frequency,
    and its sibling does not name it."""
    cpus = folder / "sys/devices/system/cpu"

    def plugging(tree: Tree, path: str, value: str) -> None:
        write(tree, path, value)
        if not path.endswith("/online"):
            return
        cpu = tree.at(path).parent
        for part in ("topology", "cpufreq"):
            here, away = cpu / part, cpu / f".{part}"
            (away if value == "1" else here).rename(here if value == "1" else away)
        online = {number for number in range(8) if (cpus / f"cpu{number}/topology").exists()}
        make(folder, {"/sys/devices/system/cpu/online": show_list(online)})
        make(folder, {"/sys/devices/system/node/node0/cpulist": show_list(online)})
        for number in online:
            siblings = show_list({number % 4, number % 4 + 4} & online)
            make(folder, {f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list": siblings})

    return plugging


def test_second_threads_stay_offline_and_keep_their_roles_when_applied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path, threads=2)
    make(tmp_path, {f"/sys/devices/system/cpu/cpu{cpu}/online": "1" for cpu in range(1, 8)})
    before = contents(tmp_path)
    monkeypatch.setattr(Tree, "write", hotplugged(tmp_path, Tree.write))
    own = host.own("{siblings_offline: true, governor: performance, irq_affinity: true, isolcpus: true}")
    first = host.plan(own)
    host.apply(own)
    assert host.machine.online == (0, 1, 2, 3, 4)
    again = host.plan(own)
    assert (again.roles.cpus, again.arguments()) == (first.roles.cpus, first.arguments())
    for _ in range(2):
        outcome = host.apply(own)
        assert (list(outcome.changed), list(outcome.put_back)) == ([], [])
        assert host.machine.online == (0, 1, 2, 3, 4)
    assert set(host.states(own).values()) == {State.RIGHT, State.REBOOT}
    host.apply(host.own("{irq_affinity: true}"))
    assert host.machine.online == tuple(range(8))
    assert host.undo() == []
    assert contents(tmp_path) == before


PREFERENCES = {
    f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/energy_performance_preference": "balance_performance" for cpu in range(4)
}


def test_a_preference_that_the_governor_forbids_is_put_back_after_it(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(host.folder, PREFERENCES)
    monkeypatch.setattr(Tree, "write", with_preference(Tree.write))
    before = meanings(contents(host.folder))
    host.apply("latency", boot=False)
    assert host.undo() == []
    assert meanings(contents(host.folder)) == before
    host.apply("latency", boot=False)
    host.apply("vanilla", boot=False)
    assert meanings(contents(host.folder)) == before
    host.apply("latency", boot=False)
    other = host.apply(host.own("{governor: schedutil}"), boot=False)  # which makes way for the former preference
    assert any(place.endswith("energy_performance_preference") for place in other.put_back)
    assert host.undo() == []
    assert meanings(contents(host.folder)) == before


def failing_at(name: str, write: Write) -> Write:
    """Writing that fails at the files of this name."""

    def failing(tree: Tree, path: str, value: str) -> None:
        if path.endswith(name):
            raise OSError(5, "Input/output error")
        write(tree, path, value)

    return failing


def test_a_failure_after_the_preference_leaves_the_profile_before(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    make(host.folder, PREFERENCES)
    host.apply(host.own("{vm.stat_interval: 33}"))
    tuned = meanings(contents(host.folder))
    with monkeypatch.context() as patch:
        patch.setattr(Tree, "write", failing_at("pm_qos_resume_latency_us", with_preference(Tree.write)))
        with pytest.raises(Failure, match="pm_qos_resume_latency_us: Input/output error") as raised:
            host.apply("latency")
    assert "not all" not in str(raised.value)
    assert meanings(contents(host.folder)) == tuned
    profile = read_journal(host.state).applied
    assert profile is not None
    assert set(host.states(profile.profile).values()) == {State.RIGHT}, "what was taken back counts as drifted"


@pytest.mark.parametrize("before", [None, "throughput"])
def test_what_cannot_be_put_back_after_a_failure_is_said(
    host: Host, monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    if before:
        host.apply(before)
    write = failing_at("vm/stat_interval", Tree.write)

    def stuck(tree: Tree, path: str, value: str) -> None:
        if path.endswith("timer_migration") and value == "0":
            raise OSError(5, "Input/output error")
        write(tree, path, value)

    make(host.folder, {"/proc/sys/kernel/timer_migration": "0"})
    with monkeypatch.context() as patch:
        patch.setattr(Tree, "write", stuck)
        with pytest.raises(Failure, match=r"stat_interval: .*; not all was put back: .*timer_migration: .*host undo"):
            host.apply("latency")
    assert host.undo() == []
    assert (host.folder / "proc/sys/kernel/timer_migration").read_text() == "0\n"


class Grub:
    """The boot loader of a copied machine, which can fail."""

    def __init__(self, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails = False
        self._folder = host.folder
        monkeypatch.setattr(BootLoader, "refresh", lambda _: self.refresh())
        self.refresh()

    def refresh(self) -> None:
        if self.fails:
            raise Failure("update-grub: has not ended within 120 s")
        update_grub(self._folder)

    @property
    def line(self) -> str:
        return (self._folder / "boot/grub/grub.cfg").read_text()


def test_a_boot_loader_that_fails_at_undo_is_asked_again_and_holds_nothing_up(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    grub = Grub(host, monkeypatch)
    before = meanings(contents(host.folder))
    host.apply()
    assert "isolcpus" in grub.line
    grub.fails = True
    assert host.undo() == [f"{GRUB_FILE}: update-grub: has not ended within 120 s"]
    assert (host.folder / "proc/sys/vm/stat_interval").read_text() == "1\n"
    assert "isolcpus" in grub.line
    grub.fails = False
    assert host.undo() == []
    assert meanings(contents(host.folder)) == before


def test_a_boot_loader_that_fails_fails_the_whole_call(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    grub = Grub(host, monkeypatch)
    before = meanings(contents(host.folder))
    grub.fails = True
    with pytest.raises(Failure, match=r"has not ended within 120 s; not all was put back: .*zz-tailrace.cfg"):
        host.apply()
    assert meanings(contents(host.folder)) == before
    grub.fails = False
    assert host.undo() == []
    assert not (host.state / "journal").exists()


def test_a_boot_loaders_command_that_does_not_end_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot, "PATIENCE", 0.1)
    monkeypatch.setattr(BootLoader, "commands", lambda _: [["sleep", "60"]])
    with pytest.raises(Failure, match=r"sleep 60: has not ended within 0\.1 s"):
        BootLoader(Tree()).refresh()


def test_kernel_install_is_refused_where_the_arguments_would_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    HOSTS["arm"](tmp_path)
    (tmp_path / "etc/kernel/cmdline").unlink()
    machine, before = read_machine(Tree(tmp_path)), contents(tmp_path)
    plan = make_tuning_plan(machine, load_profile("latency"))
    with hold_journal(tmp_path / "state") as journal:
        with pytest.raises(Mistake, match=r"would keep the arguments .* /etc/kernel/cmdline; .*yourself: isolcpus="):
            tuner.apply(plan, machine, journal)
        assert contents(tmp_path) == before
        make(tmp_path, {"/usr/lib/kernel/cmdline": "root=/dev/sda1"})
        assert tuner.apply(plan, machine, journal).reboot
