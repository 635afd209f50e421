"""Tasks stay off isolated CPUs by cgroups of version 2: by systemd where the tree is its own, directly elsewhere."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from machines import make
from tuned_host import Host, contents, meanings

from tailrace.functions import limit
from tailrace.functions.limit import limit_memory
from tailrace.host import task_cpus
from tailrace.host.task_cpus import UNITS, Tasks, displaced
from tailrace.host.tuner import State as Found
from tailrace.kernel.tree import Tree
from tailrace.node import strays
from tailrace.process import systemd as process_systemd
from tailrace.process.systemd import CGROUP, OWN, REST
from tailrace.state.launch import Launcher
from tailrace.state.record import Cgroup, Scope, hold

SYSTEMD = {"/run/systemd/system/README": "", "/run/systemd/private": ""}
UNIFIED = {f"{CGROUP}/cgroup.controllers": "cpuset cpu memory", f"{CGROUP}/cgroup.subtree_control": "memory"}
PLACES = [f"tasks:{unit}" for unit in UNITS]
#: systemctl, which does as it is told a little later, as systemd does; and keeps what it was told.
SYSTEMCTL = """\
#!/bin/sh
echo "$@" >>"$FAKE/told"
[ ! -e "$FAKE/fails" ] || { echo "Failed to $1: Access denied" >&2; exit 1; }
[ "$1" = set-property ] || exit 0
value=${4#AllowedCPUs=} file=$FAKE/sys/fs/cgroup/$3/cpuset.cpus
(sleep 0.05; [ -n "$value" ] && echo "$value" >"$file" || rm -f "$file") >/dev/null 2>&1 &
"""


def groups(*names: str) -> dict[str, str]:
    return {f"{CGROUP}/{name}/cgroup.procs": "" for name in names}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    return Host(tmp_path)


def planned(host: Host) -> dict[str, str]:
    """What of the profile is about tasks and controllers."""
    steps = host.plan("latency").steps("run")
    return {
        step.setting.place: step.setting.wanted
        for step in steps
        if step.setting.scheme in ("tasks", "controller", "partition")
    }


def test_systemds_slices_are_limited_and_not_that_of_virtual_machines(host: Host) -> None:
    make(host.folder, {**SYSTEMD, **UNIFIED, **groups(*UNITS, "machine.slice", OWN)})
    assert planned(host) == dict.fromkeys(PLACES, "0")


def test_a_group_that_is_not_there_is_not_limited(host: Host) -> None:
    make(host.folder, {**SYSTEMD, **UNIFIED, **groups("system.slice")})
    assert planned(host) == {"tasks:system.slice": "0"}


def test_elsewhere_every_group_is_and_the_tasks_that_are_in_none(host: Host) -> None:
    make(host.folder, {**UNIFIED, **groups("services", "tailrace-77-fw")})
    assert planned(host) == {"controller:cpuset": "on", "tasks:services": "0", f"tasks:{REST}": "0"}


@pytest.mark.parametrize(
    "more",
    [
        {"/sys/devices/system/cpu/isolated": "1-3"},  # isolcpus has brought it
        {f"{CGROUP}/cgroup.type": "domain"},  # a container's
        {f"{CGROUP}/cgroup.controllers": "cpu memory"},  # cpusets are of version 1
    ],
)
def test_nothing_is_limited_where_it_is_not_needed_or_not_ours(host: Host, more: dict[str, str]) -> None:
    make(host.folder, {**UNIFIED, **groups("services"), **more})
    assert planned(host) == {}


def test_no_partition_is_made_beside_systemds_tree(host: Host) -> None:
    make(host.folder, {**UNIFIED, **groups("services")})
    own = host.own("{cpuset_partition: true}")
    assert len(list(host.plan(own).steps())) == 2
    make(host.folder, SYSTEMD)
    assert list(host.plan(own).steps()) == []


@pytest.mark.parametrize("more", [{}, SYSTEMD])
def test_they_are_limited_verified_and_put_back(host: Host, more: dict[str, str]) -> None:
    make(host.folder, {**UNIFIED, **groups("system.slice"), f"{CGROUP}/system.slice/cpuset.cpus": "", **more})
    before = meanings(contents(host.folder))
    host.apply("latency", boot=False)
    assert (host.folder / "sys/fs/cgroup/system.slice/cpuset.cpus").read_text() == "0\n"
    assert (host.folder / f"sys/fs/cgroup/{REST}").exists() is not more
    assert host.states()["tasks:system.slice"] is Found.RIGHT
    make(host.folder, {f"{CGROUP}/system.slice/cpuset.cpus": "0-3"})
    assert host.states()["tasks:system.slice"] is Found.DRIFTED
    host.apply("throughput")
    host.apply("latency", boot=False)
    assert host.undo() == []
    assert not (host.folder / f"sys/fs/cgroup/{REST}").exists()
    assert meanings(contents(host.folder)) == before


@pytest.fixture
def systemd(host: Host, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose first process is systemd; the folder that its systemctl works in."""
    make(host.folder, {**SYSTEMD, **UNIFIED, **groups(*UNITS)})
    program = host.folder / "bin/systemctl"
    program.parent.mkdir()
    program.write_text(SYSTEMCTL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("FAKE", str(host.folder))
    monkeypatch.setattr(Tree, "live", True)
    return host.folder


def test_systemd_is_told_and_waited_for(systemd: Path) -> None:
    tasks = Tasks(Tree(systemd))
    assert tasks.read("system.slice") == ""
    tasks.write("system.slice", "0")
    assert tasks.read("system.slice") == "0"
    tasks.write("system.slice", "")
    assert tasks.read("system.slice") == ""
    assert (systemd / "told").read_text().splitlines() == [
        "set-property --runtime system.slice AllowedCPUs=0",
        "set-property --runtime system.slice AllowedCPUs=",
    ]


def test_what_systemd_refuses_is_reported_in_its_words(systemd: Path) -> None:
    make(systemd, {"/fails": ""})
    with pytest.raises(OSError, match="Failed to set-property: Access denied"):
        Tasks(Tree(systemd)).write("system.slice", "0")


def test_what_systemd_does_not_do_is_an_error(systemd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_cpus, "_PATIENCE", 0.5)
    monkeypatch.setenv("FAKE", "/nowhere")
    with pytest.raises(OSError, match="systemd does not set it"):
        Tasks(Tree(systemd)).write("system.slice", "0")


def test_a_sandbox_that_ends_with_its_command_has_its_memory_limit_of_a_scope(
    systemd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = systemd / "bin/systemd-run"
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.setattr(process_systemd, "Tree", lambda: Tree(systemd))
    monkeypatch.setattr(limit, "Tree", lambda: Tree(systemd))
    before = contents(systemd / "sys")
    with hold(tmp_path / "node") as held:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        launcher = Launcher(held, tmp_path, tied=True)
        found = limit_memory(launcher, "fw@2", 1 << 20)
        (thing,) = held.record.things
        assert isinstance(thing, Scope) and thing.of == "fw@2"
        unit = thing.unit
        assert re.fullmatch(rf"tailrace-{os.getpid()}-\d+-fw_2\.scope", unit)
        assert found.mechanism == "systemd scope" and found.cgroup is None and found.data_bytes is None
        assert list(found.before) == [
            str(program), "--scope", "--quiet", "--collect", f"--slice={OWN}", f"--unit={unit}",
            "--property", "MemoryMax=1048576", "--property", "MemorySwapMax=0", "--",
        ]  # fmt: skip
        assert limit_memory(launcher, "fw@2", 1 << 20).before != found.before, "the first may not have gone yet"
        assert held.undo(thing) is None
    assert (systemd / "told").read_text() == f"stop --no-block {unit}\n"
    assert contents(systemd / "sys") == before


def test_where_systemd_cannot_be_asked_no_group_is_made_beside_its_own(
    systemd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_systemd, "find_system_program", lambda _: None)
    monkeypatch.setattr(limit, "Tree", lambda: Tree(systemd))
    with hold(tmp_path / "node") as held:
        assert limit_memory(Launcher(held, tmp_path, tied=False), "fw", 1 << 20).mechanism == "RLIMIT_DATA"
        assert held.record.things == []


def test_a_scope_that_has_gone_is_undone(systemd: Path) -> None:
    program = systemd / "bin/systemctl"
    program.write_text("#!/bin/sh\necho 'Failed to stop x.scope: Unit x.scope not loaded.' >&2; exit 5\n")
    assert Scope("x.scope", "fw").undo() is None
    program.write_text("#!/bin/sh\necho 'Failed to stop x.scope: Connection timed out' >&2; exit 1\n")
    assert Scope("x.scope", "fw").undo() == "scope x.scope: Failed to stop x.scope: Connection timed out"


def test_what_runs_without_a_record_is_found_with_its_scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "1": "0::/tailrace.slice/tailrace-77-5-fw.scope",
        "2": "0::/tailrace-77-fw",
        "3": f"0::/{REST}",
        "5": "0::/tailrace.slice/tailrace-5-fw-01234567.service",
        "4": "0::/tailrace.slice/run-u4.scope",
    }
    make(tmp_path, {f"/{pid}/cgroup": text for pid, text in files.items()})
    monkeypatch.setattr(strays, "Path", lambda path: tmp_path / str(path).removeprefix("/proc/"))
    found = [strays._cgroup(int(pid)) for pid in files]
    assert found[0] == Scope("tailrace-77-5-fw.scope", "")
    assert isinstance(found[1], Cgroup) and found[1].path.endswith("tailrace-77-fw")
    assert found[2:] == [None, None, None]


class Executed(Exception):
    """The process would be another program now."""


@pytest.fixture
def entering(systemd: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """What `enter` makes of a process in a cgroup; empty if it stays as it is."""
    program = systemd / "bin/systemd-run"
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(process_systemd, "Tree", lambda: Tree(systemd))
    monkeypatch.setattr(sys, "orig_argv", ["python3", "-m", "tailrace.cli.main", "up", "x.yaml"])

    def execute(_: str, argv: list[str], environment: dict[str, str]) -> None:
        assert environment[process_systemd._INSIDE]
        raise Executed(argv)

    monkeypatch.setattr(os, "execve", execute)

    def enter(group: str) -> list[str]:
        make(systemd, {"/proc/self/cgroup": f"0::{group}", f"{CGROUP}/cgroup.procs": ""})
        try:
            process_systemd.enter()
        except Executed as executed:
            argv: list[str] = executed.args[0]
            return argv
        return []

    return enter


def test_what_starts_pollers_goes_on_in_a_slice_of_its_own(entering: Callable[[str], list[str]]) -> None:
    argv = entering("/user.slice/user-0.slice/session-1.scope")
    assert Path(argv[0]).name == "systemd-run" and f"--slice={OWN}" in argv
    assert argv[argv.index("--") + 1 :] == [sys.executable, "-m", "tailrace.cli.main", "up", "x.yaml"]


def test_what_is_there_already_stays_as_it_is(
    entering: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch, systemd: Path
) -> None:
    assert entering(f"/{OWN}/tailrace-5-6-command.scope") == []
    monkeypatch.setenv(process_systemd._INSIDE, "5")
    assert entering("/user.slice") == []
    monkeypatch.delenv(process_systemd._INSIDE)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert entering("/user.slice") == []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    make(systemd, {f"{CGROUP}/cgroup.controllers": "cpu"})
    assert entering("/user.slice") == []


def test_without_systemd_it_leaves_the_group_of_limited_tasks(
    entering: Callable[[str], list[str]], systemd: Path
) -> None:
    assert entering(f"/{REST}") == []
    assert (systemd / "sys/fs/cgroup/cgroup.procs").read_text().startswith(str(os.getpid()))


def test_who_is_pinned_to_isolated_cpus_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pid, (name, group, line) in {
        11: ("qemu", "/user.slice/a.scope", "qemu"),
        12: ("sshd", "/system.slice/sshd.service", "sshd"),
        13: ("vm", "/machine.slice/vm.scope", "vm"),
        14: ("kthread", "/", ""),
    }.items():
        make(
            tmp_path,
            {
                f"/proc/{pid}/comm": name,
                f"/proc/{pid}/cgroup": f"0::{group}",
                f"/proc/{pid}/cmdline": line,
                f"/proc/{pid}/task/{pid}/comm": name,
            },
        )
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1} if pid == 12 else {2})
    assert displaced(Tree(tmp_path), UNITS, {0}) == ["qemu (11)"]


def test_what_systemd_refuses_is_reported_and_the_rest_is_applied(host: Host, systemd: Path) -> None:
    make(systemd, {"/fails": ""})
    outcome = host.apply(host.own("{user_tasks: true, vm.stat_interval: 7}"), boot=False)
    assert [why for _, why in outcome.refused] == ["Failed to set-property: Access denied"] * 3
    assert [step.setting.target for step in outcome.changed] == ["/proc/sys/vm/stat_interval"]
