"""`tailrace up`, `status` and `down` with real processes: what is up is told, and nothing is left, after any end."""

from __future__ import annotations

import json
import mmap
import os
import re
import signal
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest
from clean_machine import things
from running_node import ONE, REPOSITORY, Command, kill_all, needs_a_node, pages, wait_until
from running_switch import RunningSwitch

from tailrace.node.running import reserve_pages
from tailrace.process.control import Control
from tailrace.process.process import ProcessId
from tailrace.resources.hugepages import pool
from tailrace.resources.ledger import claim_file
from tailrace.state.record import Process, hold, peek

pytestmark = needs_a_node


def namespaces(pid: int) -> dict[str, str]:
    return {
        name: str(Path(f"/proc/{pid}/ns/{name}").readlink()) for name in ("user", "mnt", "pid", "net", "ipc", "uts")
    }


def first_sandbox(command: Command) -> int:
    """The pid of the sandbox around the function `first`."""
    first = command.process("first")
    assert first is not None
    return int(first["sandbox_pid"])


def writers(command: Command) -> list[ProcessId]:
    """Who writes the logs of functions."""
    found = [thing for thing in peek(command.state).things if isinstance(thing, Process)]
    return [process.writer for process in found if process.writer_pid]


@pytest.mark.unsanitized
def test_the_log_of_a_function_is_bounded_and_has_what_came_last(command: Command) -> None:
    """It prints 40 MiB long after `tailrace up` has ended."""
    command("up", command.spec(ONE))
    (writer,) = writers(command)
    first = command.process("first")
    assert first is not None
    log = command.state / "logs" / "first.log"
    with Path(f"/proc/{first['pid']}/fd/2").open("wb", buffering=0) as output:
        for number in range(40):
            output.write((b"%d" % number).rjust(63, b"x") * (1 << 14) + b"\n")
        output.write(b"the last line\n")
    wait_until(lambda: log.read_bytes().endswith(b"the last line\n"))
    kept = sorted(path.name for path in log.parent.glob("first.log*"))
    assert kept == ["first.log", "first.log.1"]
    assert 8 << 20 < sum((log.parent / name).stat().st_size for name in kept) <= 17 << 20
    assert command.status()["state"] == "up"
    # It needs no time of its own, and ends with the function, of which nothing it said is lost.
    assert writer.alive()
    os.kill(first["pid"], signal.SIGKILL)
    assert writer.wait(60)
    command("down")


def test_up_status_down(command: Command) -> None:
    spec = command.spec(ONE)
    up = command("up", spec)
    if len(os.sched_getaffinity(0)) < 3:
        assert up.stdout.startswith("Oversubscribed: 3 pollers")
    status = command.status()
    assert status["state"] == "up"
    assert {port["name"]: port["state"] for port in status["ports"]} == {
        "tester.a": "waiting", "first.0": "up", "first.1": "up", "tester.b": "waiting",
    }  # fmt: skip
    assert status["chains"][0]["ports"] == ["tester.a", "first.0", "first.1", "tester.b"]
    assert "Up: " in command("status").stdout

    again = command("up", spec)
    assert "already up" in again.stdout
    assert command.status()["processes"] == status["processes"]

    other = command.spec(ONE.replace("first", "other"), "other.yaml")
    refused = command("up", other, status=2)
    assert "another plan" in refused.stderr
    assert "tailrace down" in refused.stderr

    down = json.loads(command("down", "--json").stdout)
    assert down["problems"] == []
    assert not command.leftovers()
    assert "Nothing was up" in command("down").stdout


@pytest.mark.unsanitized
def test_a_function_is_in_a_sandbox(command: Command) -> None:
    command("up", command.spec(ONE))
    first = command.process("first")
    assert first is not None
    pid = first["pid"]
    ours, theirs = namespaces(os.getpid()), namespaces(pid)
    assert all(ours[name] != theirs[name] for name in ours)
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    assert all(int(status[name], 16) == 0 for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"))
    assert status["NoNewPrivs"].strip() == "1"
    mounts = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    assert {fields[5].split(",")[0] for fields in mounts if fields[4].startswith("/proc")} == {"ro"}
    # What the function is refused: the sandbox's own command line, with another program in the function's place.
    box = Path(f"/proc/{first_sandbox(command)}/cmdline").read_bytes().decode().split("\0")
    place = box.index("--json-status-fd")  # which is not open here
    del box[place : place + 2]
    box = box[: box.index("--remount-ro", box.index("--chdir"))]
    box += ["--ro-bind", "/bin", "/bin", "--ro-bind", "/lib", "/lib", "--ro-bind", "/lib64", "/lib64", "--"]
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/nr_hugepages"):
        opened = subprocess.run([*box, "/bin/sh", "-c", f": >>{path}"], capture_output=True, text=True, check=False)
        assert opened.returncode != 0
        assert "Read-only file system" in opened.stderr
    nested = subprocess.run([*box, "/bin/unshare", "--user", "true"], capture_output=True, text=True, check=False)
    assert "unshare failed" in nested.stderr
    root = Path(f"/proc/{pid}/root")
    seen = {path.name for path in root.iterdir()}
    assert seen <= {"dev", "lib", "lib64", "proc", "run", "sys", "tailrace-vnf", "tmp", "usr"}
    assert {path.name for path in (root / "run").iterdir()} == {"port0", "port1"}
    assert {path.name for path in (root / "sys/kernel/mm/hugepages").iterdir()} == {"hugepages-2048kB"}
    assert not (root / "usr/bin").exists()
    assert [path.name for path in Path(f"/proc/{pid}/net/dev").parent.glob("dev")] == ["dev"]
    interfaces = [line.split(":")[0].strip() for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]]
    assert interfaces == ["lo"]
    if command.status()["oversubscribed"]:
        assert os.sched_getscheduler(pid) in (os.SCHED_FIFO, os.SCHED_OTHER)
        assert len(os.sched_getaffinity(pid)) == 1


@pytest.mark.unsanitized
def test_what_ended_is_reported_and_brought_back(command: Command) -> None:
    spec = command.spec(ONE.replace("skeleton", "{kind: skeleton, restart: never}"))
    command("up", spec)
    first = command.process("first")
    assert first is not None
    os.kill(first["pid"], signal.SIGKILL)
    wait_until(lambda: command.process("first") is None)
    broken = command("status", status=1)
    assert "BROKEN" in broken.stdout
    refused = command("measure", "latency", spec, status=2)
    assert "has ended" in refused.stderr
    switch = command.process("switch")
    assert "up again (first had ended)" in command("up", spec).stdout
    assert command.status()["state"] == "up"
    assert command.process("switch") == switch


def test_down_after_everything_was_killed(command: Command) -> None:
    before = pages()
    command("up", command.spec(ONE))
    kill_all(command)
    assert command.state.exists()
    assert command("status", status=1).stdout.startswith("BROKEN")
    command("down")
    assert not command.leftovers()
    assert pages() <= before


@pytest.mark.unsanitized
@pytest.mark.parametrize("how", ["damaged", "gone", "without claim"])
def test_down_finds_what_runs_without_a_record(command: Command, how: str) -> None:
    """And nothing is started over it. Huge pages are given back as the claim says."""
    before = pages()
    spec = command.spec(ONE)
    command("up", spec, *(["--no-huge"] if how == "without claim" else []))
    assert (pages() > before) is (how != "without claim")
    cgroups = [Path(each["path"]) for each in things(command, "cgroup")]
    record = command.state / "state.json"
    if how == "gone":
        record.unlink()
    else:
        record.write_text("{")
    if how == "without claim":
        claim_file(command.state).write_text("{")
    for arguments in (("up", spec), ("status",)):
        refused = command(*arguments, status=1).stderr
        assert f"{command.state}" in refused and "`tailrace down` ends what can be found of it" in refused
    control = Control(command.state / "sockets/switch.control")
    assert control.call("config.get")["config"]["chains"], "what runs is left alone"
    control.close()
    said = command("down").stdout
    assert "nothing of ours is left" in said
    assert ("huge pages that were added are not known and stay" in said) is (how == "without claim")
    assert pages() == before
    assert not command.leftovers()
    assert not [path for path in cgroups if path.exists()]


@pytest.mark.unsanitized
def test_two_that_overlap_give_back_all_the_huge_pages_that_they_added(tmp_path: Path) -> None:
    """The first to come is the first to go, and what it leaves is what the second has added."""
    before = pages()
    with hold(tmp_path / "first") as first, hold(tmp_path / "second") as second:
        reserve_pages(first, pool().free + 3)
        reserve_pages(second, pool().free + 5)
        assert pages() == before + 8
        assert first.undo_all() == []
        assert pages() == before + 5
        assert second.undo_all() == []
    assert pages() == before


@pytest.mark.unsanitized
def test_pages_that_are_used_when_they_are_given_back_go_with_their_user(tmp_path: Path) -> None:
    """Whatever others add and give back meanwhile."""
    before, size = pages(), 2 << 20
    with hold(tmp_path / "first") as first, hold(tmp_path / "second") as second:
        reserve_pages(first, pool().free + 4)
        count = pool().free
        with mmap.mmap(-1, count * size, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | MAP_HUGETLB) as used:
            for at in range(0, count * size, size):
                used[at] = 1
            assert first.undo_all() == []
            reserve_pages(second, 3)
            assert second.undo_all() == []
    assert pages() == before


@pytest.mark.unsanitized
def test_up_killed_in_the_middle_leaves_only_what_down_finds(command: Command) -> None:
    running = command.begin("up", command.spec(ONE))
    wait_until(lambda: any(thing["name"] == "switch" for thing in things(command)))
    os.kill(command.service(), signal.SIGKILL)
    _, said = running.communicate(timeout=60)
    assert "the service has ended in the middle of node.up" in said
    command("down")
    assert not command.leftovers()


@pytest.mark.unsanitized
def test_ctrl_c_while_coming_up_leaves_nothing(command: Command) -> None:
    running = command.begin("up", command.spec(ONE))
    wait_until(lambda: (command.state / "state.json").exists())
    running.send_signal(signal.SIGINT)
    _, error = running.communicate(timeout=60)
    assert running.returncode in (0, 130)
    if running.returncode == 130:
        assert error.startswith("tailrace: interrupted by Ctrl-C"), error
        assert not command.leftovers()


@pytest.mark.unsanitized
def test_a_wrong_spec_starts_nothing(command: Command) -> None:
    spec = command.spec("functions: {first: skeleton}\nchains:\n  voice: [tester.a, frist, tester.b]\n")
    refused = command("up", spec, status=2)
    assert refused.stdout == ""
    assert refused.stderr.count("\n") == 1
    assert f"{spec}:3:21: " in refused.stderr
    assert not command.state.exists()


@pytest.mark.unsanitized
@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("chains:\n  voice: [tester.a, {if: absent0}]\n", r":2:21: ports\.if-absent0: there is no interface absent0"),
        ("ports:\n  wan: {device: {pci: 'ffff:ff:1f.7'}}\n", r":2:3: ports\.wan: there is no PCI device"),
        ("fabric: {user: absentuser}\n", r":1:10: fabric\.user: no user 'absentuser'"),
        ("ports:\n  wan: {path: /no/such/vm}\n", r":2:3: ports\.wan: /no/such/vm: there is no folder /no/such;"),
        ("fabric: {user: '0:5'}\n", r":1:10: fabric\.user: '0:5' is root"),
        ("fabric: {user: 5000000000:5}\n", r":1:10: fabric\.user: '5000000000:5' is out of range"),
    ],
    ids=["interface", "pci", "user", "folder", "root", "no number"],
)
def test_what_this_machine_lacks_is_reported_with_its_place(command: Command, spec: str, told: str) -> None:
    ends = "" if spec.startswith("chains") else "chains:\n  voice: [tester.a, tester.b]\n"
    for options in ([], ["--dry-run"]):
        refused = command("up", command.spec(spec + ends), *options, status=2)
        assert refused.stderr.count("\n") == 1
        assert re.search(told, refused.stderr), refused.stderr
        assert "the switch" not in refused.stdout or not options, "a plan that cannot be is not shown"
        assert not command.leftovers()


#: Linux, asm-generic/mman.h: 2 MiB, whatever the default size is.
MAP_HUGETLB = 0x40000 | 21 << 26

CLAIM = """
import os, socket, sys
for core in sys.argv[1].split(","):
    claim = socket.socket(socket.AF_UNIX)
    claim.bind("\\0tailrace-worker-on-core-" + core)
    claim.listen()
    os.set_inheritable(claim.detach(), True)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Takes cores as the workers of a switch do, and becomes a command."""


def beside(command: Command, cores: Collection[int], *words: str) -> subprocess.CompletedProcess[str]:
    """A command beside a switch that no node has started, in a network namespace of its own: nobody else is told so."""
    argv = ["unshare", "--net", sys.executable, "-c", CLAIM, ",".join(map(str, cores)), command.program, *words]
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=60, check=False, env=command.environment, cwd=command.folder
    )


@pytest.mark.unsanitized
@pytest.mark.parametrize("command_words", [("up",), ("measure", "latency")])
@pytest.mark.parametrize("named", [True, False], ids=["named", "all"])
def test_a_core_that_another_switch_has_is_reported_before_anything_starts(
    command: Command, command_words: tuple[str, ...], named: bool
) -> None:
    cores = sorted(os.sched_getaffinity(0))
    taken = cores[-1:] if named else cores
    spec = command.spec((f"fabric:\n  cores: {taken}\n" if named else "") + ONE)
    refused = beside(command, taken, *command_words, spec)
    assert refused.returncode == 2
    place = "2:3: " if named else " "
    assert f"{spec}:{place}fabric.cores: core {cores[-1]} is taken by a worker of another" in refused.stderr
    assert "--share-cores" not in refused.stderr
    assert "end that switch first (`tailrace down`" in refused.stderr
    if len(cores) > 1:
        assert ("; name another with `fabric: {cores: [" in refused.stderr) == named
    assert len([line for line in refused.stderr.splitlines() if not line.startswith("note: ")]) == 1
    assert not command.leftovers()
    assert not command.runs.exists()


@pytest.mark.unsanitized
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_the_core_of_another_switch_is_left_to_it(command: Command) -> None:
    core = max(os.sched_getaffinity(0))
    planned = beside(command, [core], "up", "--dry-run", "--json", command.spec(ONE))
    placement = json.loads(planned.stdout)["placement"]
    assert core not in (placement["switch"]["core"], placement["tester"]["core"])
    assert f"CPUs left to others ({core}: a switch's worker, process " in planned.stdout + planned.stderr


@pytest.mark.unsanitized
def test_a_missing_program_is_reported(command: Command) -> None:
    command.environment["TAILRACE_BINARIES"] = "/nowhere"
    refused = command("up", command.spec(ONE), status=2)
    assert "tailrace-switch is not built" in refused.stderr
    assert not command.state.exists()


@pytest.mark.unsanitized
def test_a_missing_interface_is_reported(command: Command) -> None:
    spec = command.spec("functions: {a: skeleton}\nchains: {v: [{if: no-such-if}, a, {if: other-if}]}\n")
    refused = command("up", spec, status=2)
    assert "there is no interface no-such-if" in refused.stderr
    assert not command.state.exists()


@pytest.mark.unsanitized
def test_a_dry_run_prints_the_plan_and_does_nothing(command: Command) -> None:
    said = command("up", REPOSITORY / "examples/chain.yaml", "--dry-run").stdout
    assert "start first (skeleton) in a process" in said
    assert not command.state.exists()


def test_a_vhost_user_back_end_is_a_port_and_is_sought_again(command: Command, binaries: Path) -> None:
    folder = command.folder_for_sockets()
    cores = sorted(os.sched_getaffinity(0))
    # Not on the core where the node's switch polls ahead of all that is not its own: it would start for half a minute.
    within = ("taskset", "-c", str(cores[0]))
    other = RunningSwitch(binaries / "switch/tailrace-switch", folder, "--idle", "sleep", within=within)
    path = other.add_guest("uplink", socket={"mode": "0666"})
    ports = f"ports: {{link: {{vhost: {path}}}, vm: }}\nchains: {{v: [link, vm]}}\n"
    command("up", command.spec(f"fabric: {{cores: [{cores[-1]}]}}\n{ports}"))

    def state() -> str:
        return next(str(port["state"]) for port in command.status()["ports"] if port["name"] == "link")

    wait_until(lambda: state() == "up")
    other.wait_state("uplink", "up")
    other.kill()
    wait_until(lambda: state() != "up")
    other.start()
    other.add_guest("uplink", socket={"mode": "0666"})
    wait_until(lambda: state() == "up")
    command("down")
    assert other.end() == 0
