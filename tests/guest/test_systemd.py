"""A machine whose first process is systemd: the switch and the functions are transient units, which the service starts,
takes up and ends."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine import Hardware, Machine

from tailrace.process.log_writer import with_times

pytestmark = [pytest.mark.requires_program("qemu-system-x86_64"), pytest.mark.timeout(900)]

#: For whatever an emulated machine on a busy one does.
PATIENCE = 240
SPEC = """\
ports: {c: , d: }
fabric: {idle: sleep}
functions: {fw: {kind: skeleton}}
chains: {v: [c, fw, d]}
"""
#: Run inside: a program as a unit, with all that can be asked of one.
PROGRAM = """\
import os, time
from pathlib import Path
from tailrace.errors import Failure
from tailrace.state.record import hold
from tailrace.process import units
from tailrace.state.launch import Launcher, why_ended
from tailrace.process.process import Limits

SCRIPT = '''
readlink /proc/$$/ns/net; umask; echo "$VALUE"; echo '$VALUE'; echo kept >&9
grep -E "Cpus_allowed_list|SigIgn" /proc/$$/status; cut -d " " -f 19 /proc/$$/stat; ulimit -c; echo "the end"
while [ ! -e /run/go ]; do sleep 0.1; done; echo last words; exit 3
'''
assert units.slice_name() == "tailrace.slice"  # where podman and libvirt are told to put what they start
limits = Limits(
    cpus=(1,), nice=-5, memory_bytes=48 << 20, umask=0o027, network="other", environment={"VALUE": "a  b"}
)
with hold(Path("/run/limits")) as state:
    state.logs.mkdir()
    launcher = Launcher(state, state.logs, tied=False)
    os.dup2(os.open("/run/kept", os.O_WRONLY | os.O_CREAT), 9)
    process = launcher.start("it", ["/bin/sh", "-c", SCRIPT], limits, keep=[9])
    assert state.processes() == [process]
    while not launcher.said("it", "the end"):
        assert process.id.alive(), launcher.log("it").read_text()
        time.sleep(0.1)
    print(launcher.log("it").read_text(), end="")
    print(Path("/run/kept").read_text(), end="")
    print(Path("/sys/fs/cgroup/tailrace.slice", process.unit, "memory.max").read_text(), end="")
    Path("/run/go").touch()
    assert process.id.wait(60)
    print(why_ended(launcher, process))
    try:
        bad = launcher.start("bad", ["/nowhere"], Limits())
        assert bad.id.wait(60)
        print(why_ended(launcher, bad))
    except Failure as failure:
        print(failure)
    print(state.undo_all())
"""


def boot(folder: Path, name: str, accelerator: str) -> Machine:
    layers = ("base", "python", "tailrace", "dpdk", "systemd")
    return Machine(folder, name, Hardware(layers=layers, cpus=2, memory=1280), accelerator=accelerator)


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory, accelerator: str) -> Iterator[Machine]:
    """One for all tests here, of which each leaves nothing."""
    with boot(tmp_path_factory.mktemp("systemd"), "systemd", accelerator) as machine:
        yield machine
        assert units(machine) == {}


def write(machine: Machine, path: str, text: str) -> None:
    machine.run(f"echo {base64.b64encode(text.encode()).decode()} | base64 -d >{path}")


def units(machine: Machine) -> dict[str, str]:
    """Those of programs, by the name of what runs: none has failed, or is left behind one that has ended."""
    lines = machine.run("systemctl list-units --all --plain --no-legend 'tailrace-*.service'").splitlines()
    assert all(line.split()[1:4] == ["loaded", "active", "running"] for line in lines), lines
    return {line.split()[0].rpartition("-")[0].removeprefix("tailrace-"): line.split()[0] for line in lines}


def shown(machine: Machine, unit: str, *names: str) -> dict[str, str]:
    """Properties of a unit."""
    lines = machine.run(f"systemctl show --property={','.join(names)} {unit}").splitlines()
    return dict(line.split("=", 1) for line in lines)


def wait_for(machine: Machine, event: str, times: int = 1) -> None:
    """Returns when the service has told of an event so often."""
    machine.wait(f"[ $(journalctl --unit tailraced --output cat | grep -c 'event: {event} ') -ge {times} ]", PATIENCE)


def test_a_node_of_units(booted: Machine) -> None:
    machine = booted
    write(machine, "/root/spec.yaml", SPEC)
    machine.run("systemctl start tailraced", PATIENCE)
    machine.run("tailrace up /root/spec.yaml", PATIENCE)
    first = units(machine)
    assert first.keys() == {"switch", "fw"}

    status = machine.run("systemctl status tailrace.slice")
    assert all(f"─{unit}" in status for unit in (*first.values(), "tailraced.service")), status
    names = ("Slice", "Restart", "CPUAffinity", "MemoryMax", "MemorySwapMax", "Nice", "UMask", "LimitCORE")
    common = {"Slice": "tailrace.slice", "Restart": "no", "LimitCORE": "0"}
    assert shown(machine, first["switch"], *names).items() >= {**common, "CPUAffinity": "0-1"}.items()
    found = shown(machine, first["fw"], *names)
    assert found.items() >= {**common, "CPUAffinity": "0", "MemorySwapMax": "0", "UMask": "0000"}.items()
    assert 0 < int(found["MemoryMax"]) < 1 << 30

    # In the journal, by the unit and by name, and in the log, where each line begins with the time.
    said = "tailrace-vnf: info: forwarding"
    for by in (f"--unit {first['fw']}", "--identifier tailrace-fw"):
        machine.wait(f"journalctl {by} --output cat | grep -qxF '{said}'", PATIENCE)
    assert said in machine.run("cut -d ' ' -f 2- /run/tailrace/logs/fw.log").splitlines()
    machine.wait("journalctl --identifier tailrace-switch --output cat | grep -q 'a guest is there'", PATIENCE)

    # A function that is killed is replaced, and of its unit nothing is left.
    machine.run("kill -9 $(pidof tailrace-vnf)")
    wait_for(machine, "function.restarted")
    second = units(machine)
    assert second.keys() == {"switch", "fw_2"} and second["switch"] == first["switch"]

    # The service's death, and its restart, end nothing, and it watches what it has taken up.
    running = {unit: shown(machine, unit, "MainPID", "NRestarts") for unit in second.values()}
    for times, end in ((1, "systemctl kill --signal KILL tailraced"), (2, "systemctl restart tailraced")):
        machine.run(end, PATIENCE)
        wait_for(machine, "service.adopted", times)
        assert {unit: shown(machine, unit, "MainPID", "NRestarts") for unit in units(machine).values()} == running
    machine.run("kill -9 $(pidof tailrace-switch)")
    wait_for(machine, "switch.restarted")
    third = units(machine)
    assert third["fw_2"] == second["fw_2"] and third["switch"] != first["switch"]

    said = machine.run("tailrace down", PATIENCE)
    assert "nothing of ours is left" in said and units(machine) == {}
    assert machine.run("systemctl --failed --no-legend; ls /sys/fs/cgroup/tailrace.slice | grep tailrace-; true") == ""


@pytest.mark.whole
def test_another_boot_of_the_same_disk_brings_back_what_was_up(
    tmp_path: Path, accelerator: str, booted: Machine
) -> None:
    write(booted, "/root/spec.yaml", SPEC)
    booted.run("systemctl start tailraced", PATIENCE)
    booted.run("tailrace up /root/spec.yaml", PATIENCE)
    kept = booted.run("tar -C / -cf - var/lib/tailrace | base64 -w 0").strip()
    booted.run("tailrace down", PATIENCE)
    with boot(tmp_path, "again", accelerator) as again:
        again.run(f"echo {kept} | base64 -d | tar -C / -xf -")
        again.run("systemctl start tailraced", PATIENCE)
        wait_for(again, "node.resumed")
        assert units(again).keys() == {"switch", "fw"}
        again.run("tailrace down", PATIENCE)
        assert units(again) == {}


def test_all_that_is_asked_of_a_program_holds_in_a_unit(booted: Machine) -> None:
    booted.run("ip netns add other")
    write(booted, "/run/program.py", PROGRAM)
    lines = booted.run("PYTHONPATH=/opt/tailrace python3 -P /run/program.py", PATIENCE).splitlines()
    there = booted.run("ip netns exec other readlink /proc/self/ns/net").strip()
    stamp = len(with_times(b"x", 0, at_start=True)) - 1
    said = [line[stamp:] for line in lines[:8]]
    assert said[:4] == [there, "0027", "a  b", "$VALUE"]
    # A broken pipe ends it, as it does everywhere else.
    assert [line.split() for line in said[4:7]] == [["SigIgn:", "0" * 16], ["Cpus_allowed_list:", "1"], ["-5"]]
    assert said[7] == "0" and lines[8].endswith(" the end") and lines[9] == "kept"
    assert int(lines[10]) == (48 << 20) + (16 << 20)
    assert lines[11] == "the function it ended (last words)"
    assert "/nowhere: could not be started: No such file or directory" in lines[12]
    assert lines[13:] == ["[]"]
    booted.run("ip netns delete other")
    assert booted.run("systemctl --failed --no-legend") == ""
