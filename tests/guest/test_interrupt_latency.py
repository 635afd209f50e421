"""Interrupts to user space of machines, beside those of the host: each is accounted for, by one clock, and the slowest
are explained by what happened to the thread of the machine's CPU.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import closing
from pathlib import Path

import pytest
from injected_interrupts import (
    ALL_TOLD,
    FIRST,
    LEAST,
    RUNS,
    STOP,
    Kind,
    check_adds_up,
    check_named,
    check_sizes,
    delay_each,
    hog,
    receiver_at_work,
    told_of,
)
from killed_run import killed_after_a_slice, with_a_slice
from libvirt import libvirtError
from running_node import REPOSITORY, Command, needs_a_node, wait_until
from trace_events import read_trace

from tailrace.functions import agent
from tailrace.functions.acceleration import acceleration
from tailrace.functions.names import outer_name
from tailrace.process.hypervisor import connect
from tailrace.results.causes import Causes

pytestmark = [
    *needs_a_node,
    pytest.mark.requires_program("virtlogd", "virsh", "qemu-system-x86_64"),
    pytest.mark.timeout(900),
]
SIDES = ("native", "tuned", "untuned")
EXAMPLE = REPOSITORY / "examples/consolidation.yaml"


@pytest.mark.parametrize(
    "sides", [pytest.param(SIDES[:2], id="tuned"), pytest.param(SIDES, id="both", marks=pytest.mark.whole)]
)
def test_receivers_in_machines_take_turns_with_one_of_the_host(command: Command, sides: tuple[str, ...]) -> None:
    """On all paths, for a second each: each interrupt of each is accounted for."""
    words = ("--sides", ",".join(sides), "--path", "msix,vring,ipi,timer", "--period", "5ms", "--budget", "5ms")
    duration = f"{4 * len(sides) - 1}s"
    run = json.loads(command("measure", "interrupts", *words, "--duration", duration, "--causes", "--json").stdout)
    assert run["valid"], run["reason"]
    found = {trial["test"]: trial for trial in run["host_trials"]}
    machines = {f"{figure}-{side}" for figure in ("interrupt", "vring", "ipi", "wakeup") for side in sides[1:]}
    assert set(found) == {"interrupt-native", "ipi-native", "wakeup-native", "timer"} | machines
    sent = [trial for name, trial in found.items() if name.startswith(("interrupt-", "vring-"))]
    assert sum(trial["samples"] + trial["missed"] for trial in sent) == found["timer"]["samples"]
    for name, trial in found.items():
        if name == "timer":
            continue
        assert trial["samples"] > 0 and trial["latency_us"]["max"] > 0, name
        assert trial["samples"] + trial["budget"]["missed"] == 200, name
        causes = Causes.model_validate(trial["causes"])
        assert len(causes.frames) == min(100, trial["samples"]) - causes.unexamined, name
        assert causes.frames or not name.startswith("interrupt-"), name
        check_adds_up(causes)
    for name in machines:
        assert any(note.startswith(f"{name}: its clock") for note in run["notes"]), run["notes"]
    for side in sides[1:]:
        assert not [note for note in run["notes"] if note.startswith(f"{side}: what its guest does")]
        causes = Causes.model_validate(found[f"interrupt-{side}"]["causes"])
        assert causes.unexamined_inside < len(causes.frames)
        assert any(cause.inside == side for frame in causes.frames for cause in frame.causes)


@pytest.mark.whole
def test_a_run_with_a_machine_that_was_killed_is_gone_on_with(command: Command) -> None:
    """The machine that the killed one has left is ended, and another one is measured."""
    words = ("--sides", "native,tuned", "--period", "5ms", "--budget", "5ms", "--duration", "4s")
    folder, before = killed_after_a_slice(command, *words)
    assert not before["valid"] and before["host_soak"]["done"] == 1
    run = json.loads(command("measure", "interrupts", "--resume", folder, "--json").stdout)
    assert run["valid"], run["reason"]
    assert run["host_soak"]["done"] == 2 and len(run["host_soak"]["gaps"]) == 1
    found = {trial["test"]: trial for trial in run["host_trials"]}
    assert set(found) == {"interrupt-native", "interrupt-tuned", "timer"}
    for name in ("interrupt-native", "interrupt-tuned"):
        assert found[name]["samples"] + found[name]["budget"]["missed"] == 400


@pytest.mark.whole
def test_a_machine_that_stood_still_has_another_clock_and_what_was_measured_is_kept(command: Command) -> None:
    """As after a restore from a save: an emulated machine's TSC stands still while it does, and so has another offset
    from then on. To be saved QEMU refuses while it has the interrupt's device."""
    if acceleration().kind != "tcg":
        pytest.skip("with KVM a machine's time stamp counter goes on while it stands still")
    words = ("--sides", "tuned", "--path", "msix,timer", "--period", "5ms", "--budget", "5ms", "--duration", "12s")
    words += ("--causes",)
    with with_a_slice(command, *words) as (running, folder):
        wait_until(lambda: running.poll() is not None or receiver_at_work(command, "tuned"), command.limit)
        with closing(connect()) as hypervisor:
            domain = hypervisor.lookupByName(outer_name(command.run, "tuned"))
            for _ in range(3):  # the first may come before the slice has asked for the machine's clock
                domain.suspend()
                domain.resume()
                time.sleep(0.3)
            with pytest.raises(libvirtError, match="ivshmem"):
                domain.save(str(command.folder / "saved"))
        _, errors = running.communicate(timeout=command.limit)
    before = json.loads((folder / "results.json").read_text())
    assert not before["valid"] and before["host_soak"]["done"] == 1, errors
    said = "tuned: the receiver's time stamp counter was set, or has another rate than this host's"
    assert said in before["reason"]
    (kept,) = [trial for trial in before["host_trials"] if trial["test"] == "interrupt-tuned"]
    assert kept["samples"] + kept["budget"]["missed"] == 1200
    run = json.loads(command("measure", "interrupts", "--resume", folder, "--json").stdout)
    assert run["valid"], run["reason"]
    found = {trial["test"]: trial for trial in run["host_trials"]}
    assert found["interrupt-tuned"]["samples"] == kept["samples"]
    assert found["wakeup-tuned"]["samples"] + found["wakeup-tuned"]["budget"]["missed"] == 1200


@pytest.mark.whole
def test_the_functions_that_the_slowest_went_through_are_traced(command: Command) -> None:
    """By the machine's own kernel; on this host by its kernel, or a note says why not."""
    path = command.folder / "trace.json"
    words = ("--sides", "tuned", "--period", "5ms", "--duration", "3s", "--trace", path, "--functions", "--json")
    run = json.loads(command("measure", "interrupts", *words).stdout)
    assert run["valid"], run["reason"]
    found = read_trace(path)
    functions = [each for each in found if each.track.startswith("functions of thread ")]
    inside = [each for each in functions if each.process == "machine tuned, CPU 0"]
    assert not [note for note in run["notes"] if note.startswith("tuned: ") and "functions" in note]
    assert bool([note for note in run["notes"] if "of this host's kernel are not traced" in note]) != any(
        each.process.startswith("CPU ") for each in functions
    )
    slow = [each for each in found if each.track == "the slowest interrupts"]
    within = {each.name for each in inside for one in slow if each.ts < one.end and each.end > one.ts}
    # The interrupt came, and its thread was woken.
    assert {"handle_edge_irq", "try_to_wake_up"} <= within, within


@pytest.mark.whole
@pytest.mark.requires_program("stress-ng")
def test_an_ordinary_machine_under_load_takes_turns_with_none(command: Command) -> None:
    """The example: every interval of the real-time machine is accounted for under either load."""
    command("image", "build", "loaded", "--with", "stress-ng")
    words = (EXAMPLE, "--sides", "radio", "--beside", "office", "--period", "5ms", "--budget", "5ms")
    run = json.loads(command("measure", "interrupts", *words, "--duration", "4s", "--json").stdout)
    assert run["valid"], run["reason"]
    found = {trial["load"]: trial for trial in run["host_trials"] if trial["test"] != "timer"}
    assert set(found) == {"none", "machines"}
    for trial in found.values():
        assert trial["test"] == "interrupt-radio"
        assert trial["samples"] + trial["budget"]["missed"] == 400
        assert trial["samples"] > 0 and 0 <= trial["budget"]["late"] <= trial["samples"]
    (said,) = [note for note in run["notes"] if note.startswith("office ")]
    beside, computed = map(float, re.findall(r"[\d.]+(?= s )", said))
    assert beside >= 2 and computed > 0


@pytest.mark.whole
def test_the_machines_of_a_spec_are_receivers(command: Command) -> None:
    ue = "ue: {kind: skeleton, runs: machine, latency: medium, memory: 384MiB}"
    spec = command.spec(f"functions: {{{ue}, fw: skeleton}}\nchains: {{voice: [tester.a, ue, fw, tester.b]}}\n")
    run = json.loads(command("measure", "interrupts", spec, "--period", "5ms", "--duration", "4s", "--json").stdout)
    assert run["valid"], run["reason"]
    found = {trial["test"]: trial for trial in run["host_trials"]}
    assert set(found) == {"interrupt-native", "interrupt-ue", "timer"}
    assert found["interrupt-ue"]["samples"] > 0


@pytest.mark.whole
@pytest.mark.requires_program("tailrace-injector")
@pytest.mark.parametrize(
    ("kind", "times"),
    [pytest.param(hog(10_000), 40, id="hog"), pytest.param(STOP, 60, id="stop")],
)
@pytest.mark.parametrize("side", SIDES[1:])
def test_what_held_the_cpu_of_a_machine_up_is_named(
    command: Command, binaries: Path, side: str, kind: Kind, times: int
) -> None:
    """Not always first: where machines are emulated, an interrupt goes through threads of QEMU at ordinary priority,
    and what else runs on this host may keep it for longer."""
    check_named(command, binaries, side, kind, times, "--period", "2ms", "--duration", "10s", first=False)


HOG = "awk"
"""The name of a task that is put into a guest: nothing else there has it."""


def held_up_inside(command: Command, side: str) -> Causes:
    """What a run tells of a side in whose guest a task above the receiver's priority comes ten times a second."""
    words = ("--image", "injected", "--sides", side, "--period", "2ms", "--duration", "10s", "--causes", "--json")
    running = command.begin("measure", "interrupts", *words)
    wait_until(lambda: running.poll() is not None or receiver_at_work(command, side), command.limit)
    if running.poll() is None:
        (socket,) = command.folder.rglob(f"{side}.agent")
        spin = f"chrt -f 98 {HOG} 'BEGIN {{ for (i = 0; i < 20000; i++) s += i }}'"
        agent.ask(socket, f"(for n in $(seq 80); do {spin}; sleep 0.1; done) >/dev/null 2>&1 &")
    return told_of(command, running, side)[0]


@pytest.mark.whole
@pytest.mark.parametrize("side", SIDES[1:])
def test_what_held_the_receiver_up_inside_is_named_there(command: Command, side: str) -> None:
    """And nowhere else: not as a task of this host."""
    command("image", "build", "injected", "--with", "chrt")
    named = 0
    for _ in range(RUNS):
        for frame in held_up_inside(command, side).frames:
            hogs = [cause for cause in frame.causes if f": {HOG} (thread " in cause.text]
            assert all(cause.inside == side and cause.text.startswith(f"in {side}: another task") for cause in hogs)
            named += bool(hogs)
        if named >= LEAST:
            break
    assert named >= LEAST


@pytest.mark.whole
@pytest.mark.requires_program("tailrace-injector")
def test_how_long_a_delay_of_a_machines_cpu_took_is_told(command: Command, binaries: Path) -> None:
    check_sizes(delay_each(command, binaries, "tuned") for _ in range(2))


@pytest.mark.whole
def test_how_long_a_delay_inside_took_is_told(command: Command, binaries: Path) -> None:
    command("image", "build", "injected", "--with", str(binaries / "test/tailrace-injector"))

    def delayed() -> Causes:
        words = ("--image", "injected", "--sides", "tuned", *ALL_TOLD, "--causes", "--json")
        running = command.begin("measure", "interrupts", *words)
        wait_until(lambda: running.poll() is not None or receiver_at_work(command, "tuned"), command.limit)
        if running.poll() is None:
            (socket,) = command.folder.rglob("tuned.agent")
            delay = f"tailrace-injector {' '.join(FIRST)} --cpu 0 --priority 98"
            # Aside: the run itself asks the agent meanwhile.
            agent.ask(socket, f"{delay} --process $(pidof tailrace-interrupt-receiver) >/dev/null 2>&1 &")
        return told_of(command, running, "tuned")[0]

    # Where it is emulated, the guest's scheduler reads its clock some µs before or after the task is told to run.
    check_sizes((delayed() for _ in range(2)), inside="tuned", least=30)
