"""What verifying says of places that are not as they are wanted: whose doing it is, and what applying again mends."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from machines import add_nic, machine, make
from tuned_host import Host, contents
from typer.testing import CliRunner

from tailrace.cli.host import app
from tailrace.host import show, tuner
from tailrace.host.cgroups import CACHE, CPUSETS, DOMAIN
from tailrace.host.journal import ENVIRONMENT, read_journal
from tailrace.host.tuner import State
from tailrace.host.watching import changes
from tailrace.kernel.tree import Tree

STAT = "file:/proc/sys/vm/stat_interval"
PAGES = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    return Host(tmp_path)


def test_what_the_kernel_quietly_did_not_take_is_said_and_is_no_drift(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Tree.write

    def clamping(tree: Tree, path: str, value: str) -> None:
        write(tree, path, str(min(int(value), 3000)) if path == PAGES else value)

    monkeypatch.setattr(Tree, "write", clamping)
    before = contents(host.folder)
    own = host.own("{huge_pages_2mib: 30000, vm.stat_interval: 33}")
    outcome = host.apply(own)
    assert [step.setting.place for step in outcome.changed] == [STAT]
    assert show.refused_lines(outcome) == [
        "Cannot be set here: huge_pages_2mib to 30000: the kernel made it 3000 (3000 ours)."
    ]
    assert host.states(own) == {f"pages:{PAGES}": State.REFUSED, STAT: State.RIGHT}
    make(host.folder, {PAGES: "5"})
    assert host.states(own)[f"pages:{PAGES}"] is State.DRIFTED
    assert host.undo() == []
    assert contents(host.folder) == before


def test_what_the_kernel_does_not_give_back_is_said_and_undone_later(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, most = Tree.write, 30
    path = STAT.removeprefix("file:")

    def clamping(tree: Tree, at: str, value: str) -> None:
        write(tree, at, str(min(int(value), most)) if at == path else value)

    make(host.folder, {path: "40"})
    before = contents(host.folder)
    monkeypatch.setattr(Tree, "write", clamping)
    host.apply(host.own("{vm.stat_interval: 20}"))
    assert host.undo() == [f"{path}: was '40', and the kernel made it '30'"]
    most = 50
    assert host.undo() == []
    assert contents(host.folder) == before


def test_a_value_that_bounds_another_is_set_before_both_are_read_back(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lowest frequency is set before the highest, and the kernel shows no more than that allows."""
    at = "/sys/devices/system/cpu/cpu1/cpufreq"
    make(host.folder, {f"{at}/scaling_min_freq": "800000", f"{at}/scaling_max_freq": "2000000"})
    write, least = Tree.write, 0

    def bounding(tree: Tree, path: str, value: str) -> None:
        nonlocal least
        if path.endswith("scaling_min_freq"):
            least = int(value)
        write(tree, path, value)
        highest = tree.number(f"{at}/scaling_max_freq") or 0
        write(tree, f"{at}/scaling_min_freq", str(min(least, highest)))

    monkeypatch.setattr(Tree, "write", bounding)
    own = host.own("{least_frequency: 2500, frequency_limit: 2800}")
    assert not host.apply(own).refused
    assert set(host.states(own).values()) == {State.RIGHT}


def test_what_another_profile_set_has_not_drifted(host: Host) -> None:
    host.apply("latency", boot=False)
    states = host.states("throughput")
    assert states["file:/sys/kernel/mm/transparent_hugepage/enabled"] is State.WRONG
    assert not any(state.lost for state in states.values())


def test_what_was_right_for_this_profile_and_no_more_has_drifted(host: Host) -> None:
    first, second = host.own("{vm.stat_interval: 33}"), host.own("{vm.stat_interval: 44}")
    host.apply(first)
    make(host.folder, {"/proc/sys/vm/stat_interval": "44"})
    assert not host.apply(second).changed
    make(host.folder, {"/proc/sys/vm/stat_interval": "55"})
    assert host.states(second)[STAT] is State.DRIFTED
    host.undo()
    assert (host.folder / "proc/sys/vm/stat_interval").read_text() == "1\n"


def test_what_was_put_back_is_not_looked_for(host: Host) -> None:
    host.apply("latency", boot=False)
    host.apply("throughput", boot=False)
    make(host.folder, {"/proc/sys/vm/stat_interval": "5"})
    states = host.states("throughput")
    assert STAT not in states and not any(state.lost for state in states.values())


def test_what_went_with_a_reboot_is_reported_and_mended_by_applying_again(host: Host) -> None:
    own = host.own("{vm.stat_interval: 33, kernel.nmi_watchdog: 0}")
    host.apply(own)
    places = {"/proc/sys/vm/stat_interval": "1", "/proc/sys/kernel/nmi_watchdog": "1"}
    make(host.folder, {**places, "/proc/sys/kernel/random/boot_id": "second-boot"})
    found = tuner.verify(host.plan(own), host.machine, read_journal(host.state))
    assert {each.state for each in found} == {State.GONE}
    assert show.check_document(found)["lost"]
    assert [change.what for change in changes(lambda: found, None, 0, 1)] == ["gone with the reboot"] * 2
    host.apply(own)
    assert set(host.states(own).values()) == {State.RIGHT}


def test_what_the_machine_does_not_have_is_not_right(host: Host) -> None:
    add_nic(host.folder, "eth0", "0000:81:00.0", 0)
    own = host.own("{adaptive_coalescing_off: true}")  # a copied card cannot be asked
    host.apply(own)
    assert host.states(own) == {"nic:eth0/adaptive-rx": State.REFUSED}


def domains(host: Host) -> None:
    shutil.rmtree(host.folder / DOMAIN.lstrip("/"))


def resctrl(host: Host) -> None:
    shutil.rmtree(host.folder / "sys/fs/resctrl")


@pytest.mark.parametrize(
    ("knob", "place", "remove"),
    [
        ("{scheduler_domains: true}", f"domains:{DOMAIN}", domains),
        ("{cache_share: 50}", f"cache:{CACHE}", resctrl),
    ],
)
def test_what_tailrace_made_and_somebody_removed_has_drifted(
    host: Host, knob: str, place: str, remove: Callable[[Host], None]
) -> None:
    files = {f"{CPUSETS}/cpuset.sched_load_balance": "1", f"{CPUSETS}/cpuset.mems": "0"}
    make(
        host.folder,
        {**files, "/sys/fs/resctrl/info/L3/cbm_mask": "fff", "/sys/fs/resctrl/schemata": "    L3:0=fff;1=fff"},
    )
    own = host.own(knob)
    host.apply(own)
    assert host.states(own) == {place: State.RIGHT}
    remove(host)
    assert host.states(own) == {place: State.DRIFTED}
    assert host.undo() == []
    assert (host.folder / CPUSETS.lstrip("/") / "cpuset.sched_load_balance").read_text() == "1\n"


def test_what_went_with_its_device_has_not_drifted(host: Host) -> None:
    add_nic(host.folder, "eth0", "0000:81:00.0", 0)
    own = host.own("{receive_steering: true}")
    host.apply(own)
    assert list(host.states(own).values()) == [State.RIGHT]
    shutil.rmtree(host.folder / "sys/class/net/eth0")  # the card is DPDK's now
    assert host.states(own) == {}


def test_what_comes_again_under_a_profile_that_leaves_it_alone_has_not_drifted(host: Host) -> None:
    """As khugepaged does, whose thread ends with `latency` and begins again with `throughput`."""
    before = contents(host.folder)
    first, second = host.own("{irq_affinity: true, vm.stat_interval: 33}"), host.own("{vm.stat_interval: 44}")
    host.apply(first)
    shutil.rmtree(host.folder / "proc/irq/30")
    assert set(host.apply(second).put_back) == {f"file:/proc/irq/{number}/smp_affinity_list" for number in (31, 32)}
    make(host.folder, {"/proc/irq/30/smp_affinity_list": "0-3"})
    assert host.states(second) == {STAT: State.RIGHT}
    assert host.undo() == []
    assert contents(host.folder) == before


def test_a_kernel_argument_waits_for_a_reboot_only_with_its_own_value(host: Host) -> None:
    host.apply(host.own("{huge_pages_1gib: 40, audit_off: true}"))
    four = host.states(host.own("{huge_pages_1gib: 4, audit_off: true}"))
    assert four["argument:hugepages"] is State.WRONG
    assert four["argument:audit"] is State.REBOOT
    forty = host.states(host.own("{huge_pages_1gib: 40}"))
    assert forty["argument:hugepages"] is State.REBOOT


def test_verifying_a_named_profile_keeps_the_node_and_the_roles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "state"))
    monkeypatch.setattr(os, "fsync", lambda _: None)
    root = tmp_path / "root"
    machine(root, nodes=2)
    for number in range(2):
        add_nic(root, f"eth{number}", f"0000:8{number}:00.0", number)
    own = tmp_path / "own.yaml"
    own.write_text("inherits: latency\nroles: {system: 2}\n")

    def run(*words: str) -> str:
        done = CliRunner().invoke(app, [*words, "--root", str(root), "--json"])
        assert done.exit_code == 0, done.output
        return done.output

    def not_right(profile: str) -> set[str]:
        places = json.loads(run("verify", "--profile", profile))["places"]
        return {place["place"] for place in places if place["state"] in ("drifted", "wrong")}

    run("apply", "--profile", str(own), "--nic", "eth1", "--run-time", "--yes")
    assert all(place.startswith("argument:") for place in not_right(str(own)))
    run("switch-mode", "throughput")
    assert not_right("throughput") == set()
