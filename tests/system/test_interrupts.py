"""Interrupts to user space of this host: each is accounted for, and the report says how long they took."""

from __future__ import annotations

import json

import pytest
from injected_interrupts import check_adds_up
from killed_run import killed_after_a_slice
from running_node import Command, needs_a_node

from tailrace.results.causes import Causes

pytestmark = [*needs_a_node, pytest.mark.unsanitized]


def test_each_interrupt_is_accounted_for(command: Command) -> None:
    done = command("measure", "interrupts", "--sides", "native", "--duration", "2s", "--json")
    run = json.loads(done.stdout)
    assert run["valid"], run["reason"]
    found = {trial["test"]: trial for trial in run["host_trials"]}
    assert set(found) == {"interrupt-native", "timer"}
    native, timer = found["interrupt-native"], found["timer"]
    held = sum(int(note.split()[1]) for note in run["notes"] if "times no interrupt was raised" in note)
    assert native["samples"] + native["missed"] == timer["samples"] == 2000 - held
    assert 0 < native["latency_us"]["min"] <= native["latency_us"]["p50"] <= native["latency_us"]["max"]
    assert native["role"] == "receiver"


def test_each_on_each_path_is_accounted_for(command: Command) -> None:
    """By an eventfd, from another CPU, by the receiver's own timer, in turn."""
    words = ("--path", "msix,ipi,timer", "--period", "500us", "--budget", "500us", "--causes")
    done = command("measure", "interrupts", "--sides", "native", *words, "--duration", "3s", "--json")
    run = json.loads(done.stdout)
    assert run["valid"], run["reason"]
    found = {trial["test"]: trial for trial in run["host_trials"]}
    assert set(found) == {"interrupt-native", "ipi-native", "wakeup-native", "timer"}
    for name in ("interrupt-native", "ipi-native", "wakeup-native"):
        native = found[name]
        assert native["role"] == "receiver" and native["samples"] + native["budget"]["missed"] == 2000
        assert 0 < native["latency_us"]["min"] <= native["latency_us"]["p50"] <= native["latency_us"]["max"]
        causes = Causes.model_validate(native["causes"])
        assert len(causes.frames) == min(100, native["samples"]) - causes.unexamined > 0
        check_adds_up(causes)


def test_a_run_that_was_killed_is_gone_on_with(command: Command) -> None:
    """What was measured is kept, and the rest is measured as it was asked for."""
    words = ("--path", "msix,ipi,timer", "--period", "500us", "--budget", "500us", "--duration", "6s")
    folder, before = killed_after_a_slice(command, "--sides", "native", *words)
    assert not before["valid"] and 1 <= before["host_soak"]["done"] < 3
    (kept,) = [trial for trial in before["host_trials"] if trial["test"] == "interrupt-native"]

    refused = command("measure", "interrupts", "--resume", folder, "--period", "1ms", status=2)
    assert "expected no other settings with it" in refused.stderr
    run = json.loads(command("measure", "interrupts", "--resume", folder, "--json").stdout)
    assert run["valid"] and run["host_soak"]["done"] == 3 and len(run["host_soak"]["gaps"]) == 1
    found = {trial["test"]: trial for trial in run["host_trials"]}
    assert found["interrupt-native"]["samples"] == kept["samples"]
    for name in ("interrupt-native", "ipi-native", "wakeup-native"):
        assert found[name]["samples"] + found[name]["budget"]["missed"] == 4000
    again = command("measure", "interrupts", "--resume", folder, status=2)
    assert "its 3 slices are all measured" in again.stderr


def test_intervals_that_are_late_or_missed_are_counted(command: Command) -> None:
    """A budget that some keep and a budget that all keep, if no interrupt is missed."""
    for budget, all_late in (("1us", True), ("1s", False)):
        words = ("--tti", "--period", "1s" if budget == "1s" else "1ms", "--budget", budget)
        done = command("measure", "interrupts", "--sides", "native", "--duration", "2s", *words, "--json")
        run = json.loads(done.stdout)
        (native,) = [trial for trial in run["host_trials"] if trial["test"] == "interrupt-native"]
        found = native["budget"]
        assert found["us"] == (1e6 if budget == "1s" else 1)
        assert native["samples"] + found["missed"] == (2 if budget == "1s" else 2000)
        assert found["late"] == (native["samples"] if all_late else 0)
        assert any("disciplin" in note for note in run["notes"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--sides", "native,foreign"), "'foreign' is unknown; expected native, tuned, untuned"),
        (("--period", "1us"), "expected 10us to 1s"),
        (("--period", "soon"), "--period"),
        (("--budget", "2ms"), "--budget 2ms: expected 1us to the period, 1ms"),
        (("--tti", "--budget", "soon"), "--budget"),
        (("--cpu", "4096"), "is not available"),
        (("--trace", "missing/trace.json"), "there is no folder missing"),
        (("--functions",), "--functions: expected --trace FILE beside it"),
        (("--sides", "tuned", "--image", "missing"), "there is no image 'missing'"),
        (("--path", "timer", "--tti"), "--path timer and --tti: a receiver's own clock knows no TAI"),
        (("--path", "air"), "'air' is unknown; expected msix, vring, ipi, timer"),
        (("--beside", "office"), "--beside office: expected a spec that has these machines"),
        (("--load", "machines"), "'machines' is unknown; expected none, cpu, memory"),
    ],
)
def test_a_mistake_is_one_line(command: Command, words: tuple[str, ...], said: str) -> None:
    done = command("measure", "interrupts", *words, status=2)
    assert said in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("function", "words", "said"),
    [
        ("fw: skeleton", (), "no function of it has `runs: machine`"),
        ("native: {kind: skeleton, runs: machine}", (), "the name of functions.native means the host"),
        ("ue: {kind: skeleton, runs: machine}", ("--sides", "tuned"), "'tuned' is unknown; expected native, ue"),
        ("ue: {kind: skeleton, runs: machine}", ("--image", "missing"), "there is no image 'missing'"),
        ("ue: {kind: skeleton, runs: machine}", ("--beside", "fw"), "'fw' is unknown; expected ue"),
        ("ue: {kind: skeleton, runs: machine, latency: high}", ("--beside", "ue"), "expected normal or medium"),
    ],
)
def test_a_spec_without_a_machine_to_be_measured_is_a_mistake(
    command: Command, function: str, words: tuple[str, ...], said: str
) -> None:
    name = function.split(":")[0]
    spec = command.spec(f"functions: {{{function}}}\nchains: {{voice: [tester.a, {name}, tester.b]}}\n")
    done = command("measure", "interrupts", spec, *words, status=2)
    assert said in done.stderr and done.stderr.count("\n") == 1
