"""Apply and undo killed at every step: before each journal entry and each change, and half way through an entry.

After the next undo the machine is as it was. The profile sets a place of every scheme that a copied machine has.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hosts import HOSTS
from machines import machine, make
from tuned_host import update_grub, with_preference

from tailrace.errors import Failure
from tailrace.host import tuner
from tailrace.host.boot import BootLoader
from tailrace.host.cgroups import CPUSETS
from tailrace.host.journal import ENVIRONMENT, Journal, hold_journal
from tailrace.host.machine import read_machine
from tailrace.host.page_pools import PagePools
from tailrace.host.profile import load_profile
from tailrace.host.tuning import make_tuning_plan
from tailrace.kernel.tree import Tree

CPU = "/sys/devices/system/cpu"
PROFILE = """\
inherits: latency
knobs: {cpuset_partition: true, cache_share: 50, siblings_offline: true, huge_pages_2mib: 8, receive_steering: true}
"""


class Host:
    boots = True
    """Whether it has a boot loader that we know."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root, self.state, self.profile = folder / "root", folder / "state", folder / "every.yaml"
        self.profile.write_text(PROFILE)
        self.make()
        self.before = self.contents()

    def make(self) -> None:
        machine(self.root, cores=2, threads=2, interrupts=1)
        make(
            self.root,
            {
                "/sys/fs/cgroup/cgroup.controllers": "cpuset memory",
                "/sys/fs/cgroup/cgroup.subtree_control": "memory",
                f"{CPUSETS}/cpuset.sched_load_balance": "1",
                f"{CPUSETS}/cpuset.mems": "0",
                "/sys/fs/resctrl/info/L3/cbm_mask": "fff",
                "/sys/fs/resctrl/mode": "shareable",
                "/sys/fs/resctrl/mon_groups/all/cpus_list": "0-3",
                "/sys/fs/resctrl/schemata": "    MB:0=100\n    L2:0=fff;1=fff\n    L3:0=fff",
                **{f"{CPU}/cpu{cpu}/online": "1" for cpu in range(1, 4)},
                **{f"{CPU}/cpu{cpu}/cpufreq/energy_performance_preference": "power" for cpu in range(4)},
            },
        )
        update_grub(self.root)

    def contents(self) -> dict[str, str]:
        """Every file and folder; of a kernel's choice the chosen word, which is all that a plain file keeps."""
        return {
            str(path.relative_to(self.root)): _chosen(path.read_text(errors="surrogateescape"))
            if path.is_file()
            else "folder"
            for path in self.root.rglob("*")
            if path.name != "grub.d"  # the boot loader's own, which is left where it was missing
        }

    def apply(self, profile: str | None = None) -> None:
        found = read_machine(Tree(self.root))
        plan = make_tuning_plan(found, load_profile(profile or str(self.profile)))
        with hold_journal(self.state) as journal:
            tuner.apply(plan, found, journal, boot=self.boots)

    def throughput(self) -> None:
        self.apply("throughput")

    def undo(self) -> None:
        with hold_journal(self.state) as journal:
            assert tuner.undo(read_machine(Tree(self.root)), journal) == []


class Copied(Host):
    """A real machine's copy."""

    boots = False

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        super().__init__(folder)

    def make(self) -> None:
        HOSTS[self.name](self.root)


def _chosen(text: str) -> str:
    return text.split("[")[1].split("]")[0] if "[" in text else text.strip()


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "state"))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # the disk is not what is cut off here
    monkeypatch.setattr(Tree, "write", with_preference(Tree.write))
    host = Host(tmp_path)
    monkeypatch.setattr(BootLoader, "refresh", lambda _: update_grub(host.root))
    return host


def torn(note: Callable[..., None], journal: Journal, *entries: Any, **more: Any) -> None:
    """The power goes while an entry is written: half of what was added is there."""
    before = journal.path.stat().st_size if journal.path.exists() else 0
    note(journal, *entries, **more)
    after = journal.path.stat().st_size
    os.truncate(journal.path, (before + after) // 2 + 1)


STEPS: tuple[tuple[type, str], ...] = (
    (Journal, "note"),
    (Tree, "write"),
    (PagePools, "_keep"),
    (Journal, "clear"),
    (BootLoader, "stage"),
    (BootLoader, "refresh"),
)
"""What may be cut off: a journal entry, a change, a count of huge pages, or the boot loader before it hears of it."""


def killed_at(
    work: Callable[[], None], step: int, *, power: bool = False, steps: Sequence[tuple[type, str]] = STEPS
) -> bool:
    """Does the work in a child that dies before its `step`th journal entry or change; with `power`, in the middle of
    its `step`th entry. Dying after one is dying before the next.

    Returns whether it came so far.
    """
    child = os.fork()
    if child == 0:
        left = step

        def dying(call: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*arguments: Any, **more: Any) -> Any:
                nonlocal left
                left -= 1
                if left >= 0:
                    return call(*arguments, **more)
                if power:
                    torn(call, *arguments, **more)
                os._exit(9)

            return wrapped

        try:
            for owner, name in STEPS[:1] if power else steps:
                setattr(owner, name, dying(getattr(owner, name)))
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9), f"the child failed at step {step}"
    return status == 9


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-cut"])
def test_apply_killed_at_every_step(host: Host, *, power: bool) -> None:
    step = 0
    while killed_at(host.apply, step, power=power):
        host.undo()
        assert host.contents() == host.before, f"after {step} steps"
        step += 1
    assert step > (1 if power else 30)
    host.undo()
    assert host.contents() == host.before


@pytest.mark.parametrize("name", ["intel-sr-iov", "intel-hybrid", "amd-opteron", "arm-two-kinds"])
def test_a_real_machine_killed_at_every_step(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    host = Copied(tmp_path, name)
    for work in (host.apply, host.undo):
        step = 0
        died = True
        while died:
            if work == host.undo:
                host.apply()
            died = killed_at(work, step)
            host.undo()
            assert host.contents() == host.before, f"after {step} steps"
            step += 1
        assert step > 2


def test_undo_killed_at_every_step(host: Host) -> None:
    step = 0
    died = True
    while died:
        host.apply()
        died = killed_at(host.undo, step)
        host.undo()
        assert host.contents() == host.before, f"after {step} steps"
        step += 1
    assert step > 20


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power-cut"])
def test_another_profile_killed_at_every_step(host: Host, *, power: bool) -> None:
    step = 0
    died = True
    while died:
        host.throughput()
        died = killed_at(host.apply, step, power=power)
        host.undo()
        assert host.contents() == host.before, f"after {step} steps"
        step += 1
    assert step > (1 if power else 20)


def test_applied_again_after_every_kind_of_end_still_comes_back(host: Host) -> None:
    """The crash is followed not by undo but by another apply, whose entries come after the torn line."""
    for step in (0, 1, 5, 20):
        for power in (False, True):
            killed_at(host.apply, step, power=power)
            host.apply()
            host.undo()
            assert host.contents() == host.before, f"after {step} steps, power {power}"


def test_a_damaged_line_in_the_middle_is_said_and_nothing_is_thrown_away(host: Host) -> None:
    host.apply()
    journal = host.state / "journal"
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join([lines[0], lines[1][:20], *lines[2:]]) + "\n")
    with pytest.raises(Exception, match="line 2 is damaged"):
        host.undo()
    assert len(journal.read_text().splitlines()) == len(lines)


ENTRY = {"place": "file:/x", "form": "text", "was": "1", "wanted": "0", "boot": ""}


@pytest.mark.parametrize(
    "line",
    [
        5,
        {},
        {**ENTRY, "place": 5},
        {**ENTRY, "place": "nowhere:/x"},
        {**ENTRY, "form": "round"},
        {**ENTRY, "was": 0},
        {"applied": {"profile": 5}},
        {"applied": {"profile": "latency", "node": "x"}},
        {"applied": {"profile": "latency", "siblings": 5}},
        {"applied": {"profile": "latency", "system": "x"}},
    ],
    ids=str,
)
def test_a_line_that_no_journal_has_is_said_before_anything_is_put_back(host: Host, line: object) -> None:
    host.apply()
    tuned = host.contents()
    with (host.state / "journal").open("a") as file:
        file.write(json.dumps(line) + "\n")
    with pytest.raises(Failure, match="is damaged; put back"):
        host.undo()
    assert host.contents() == tuned


def test_what_the_boot_loader_has_not_heard_of_it_hears_when_it_is_done_again(host: Host) -> None:
    line, deaf = host.root / "boot/grub/grub.cfg", [(BootLoader, "refresh")]
    before = line.read_text()
    assert killed_at(host.apply, 0, steps=deaf)
    assert line.read_text() == before
    host.apply()
    assert "isolcpus" in line.read_text()
    assert killed_at(host.undo, 0, steps=deaf)
    assert "isolcpus" in line.read_text()
    host.undo()
    assert line.read_text() == before
