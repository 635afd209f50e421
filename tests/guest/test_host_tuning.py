"""Tuning on kernels that are rebooted: plan, boot with the generated line, apply, verify, measure, undo, boot again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tuned
from machine import Machine

pytestmark = pytest.mark.requires_program("qemu-system-x86_64", "cyclictest", "stress-ng")

PLAN = ("host", "plan", "--json")
VERIFY = ("host", "verify", "--json")
MEASURE = ("measure", "host", "--duration", "4s", "--runs", "/tmp/runs", "--json")
MEASURED = (1, 3)
#: One CPU of each node stays free, and under load only the isolated CPU is measured: tuned kernels do not throttle
#: real-time threads, and an emulated CPU on a busy machine may have time for nothing else. Four of them on a machine of
#: two have half a CPU each: with three measured, measuring once did not come to its end.
ALL, LOADED = ("--load", "none", "--cpus", ",".join(map(str, MEASURED))), ("--load", "cpu,memory", "--cpus", "1")


def file(machine: Machine, path: str) -> str:
    return machine.run(f"cat {path}").strip()


def steady(plan: dict[str, Any]) -> dict[str, str]:
    """What run-time knobs set, without interrupts and threads that come and go."""
    return {place: now for place, now in tuned.places(plan, "run").items() if "/irq/" not in place}


def names(tools: str) -> list[str]:
    """Of what tools measure."""
    return tools.replace("timerlat", "timerlat-irq,timerlat-thread").split(",")


def figures(measured: tuned.Answer) -> set[tuple[str, str, int]]:
    """What was measured, under which load, on which CPU."""
    trials = measured.document()["host_trials"]
    return {(trial["test"], trial["load"], trial["cpu"]) for trial in trials if trial["samples"]}


@pytest.mark.whole
@pytest.mark.timeout(900)  # three boots of an emulated machine: a minute where nothing else runs
@pytest.mark.parametrize(
    ("kernel", "tools"),
    [
        pytest.param("rt", "timerlat,cyclictest", id="real-time"),
        pytest.param("cloud", "cyclictest", id="stock"),
    ],
)
def test_tuned_over_two_reboots_and_back(tmp_path: Path, accelerator: str, kernel: str, tools: str) -> None:
    with tuned.machine(tmp_path, "before", kernel, accelerator, "") as machine:
        tuned.restore(machine, "")
        untuned_line = tuned.line(machine)
        # Before a reboot, too, nothing is on the isolated CPU that has not been put there; afterwards all may be.
        for verb, allowed, status in (("apply", "0,2-3", "1"), ("undo", "0-3", "0")):
            more = ("--run-time",) if verb == "apply" else ()
            tuned.tailrace(machine, ("host", verb, "--yes", "--json", *more))[0].document()
            assert machine.run("taskset 2 true; echo $?").split()[-1] == status
            seen = machine.run("grep -h Cpus_allowed_list /proc/self/status /proc/1/status | cut -f 2")
            assert seen.split() == [allowed] * 2
        planned, applied = tuned.tailrace(machine, PLAN, ("host", "apply", "--yes", "--json"))
        plan = planned.document()
        assert plan["roles"]["cpus"] == {"system": "0,2-3", "switch": "1", "vnf": "", "tester": ""}
        assert applied.document()["reboot"]
        line, kept = tuned.line(machine), tuned.shut_down(machine)
    assert all(argument in line.split() for argument in plan["arguments"])

    with tuned.machine(tmp_path, "tuned", kernel, accelerator, line) as machine:
        tuned.restore(machine, kept)
        assert file(machine, "/sys/devices/system/cpu/isolated") == "1"
        fresh, again, verified, measured, loaded, undone, after = tuned.tailrace(
            machine,
            PLAN,
            ("host", "apply", "--yes", "--json"),
            VERIFY,
            (*MEASURE, *ALL, "--tools", tools),
            (*MEASURE, *LOADED, "--tools", tools.partition(",")[0]),
            ("host", "undo", "--yes", "--json"),
            PLAN,
        )
        assert not again.document()["reboot"], "the kernel did not take the arguments"
        counts = verified.document()["counts"]
        wrong = [each for each in verified.document()["places"] if each["state"] not in ("right", "cannot be set here")]
        assert verified.status == 0 and not wrong, (counts, wrong)
        assert figures(measured) == {(name, "none", cpu) for name in names(tools) for cpu in MEASURED}, measured.error
        first = names(tools.partition(",")[0])
        assert figures(loaded) == {(name, load, 1) for name in first for load in ("cpu", "memory")}, loaded.error
        assert undone.document()["problems"] == []
        assert steady(after.document()) == steady(fresh.document())
        line, kept = tuned.line(machine), tuned.shut_down(machine)
    assert line == untuned_line

    with tuned.machine(tmp_path, "after", kernel, accelerator, line) as machine:
        tuned.restore(machine, kept)
        assert file(machine, "/sys/devices/system/cpu/isolated") == ""
        assert machine.run("ls /var/lib/tailrace/host /etc/default/grub.d").split() == [
            "/etc/default/grub.d:",
            "/var/lib/tailrace/host:",
        ]
        (back,) = tuned.tailrace(machine, PLAN)
        assert tuned.places(back.document(), "boot") == tuned.places(plan, "boot")
        assert steady(back.document()) == steady(plan)
