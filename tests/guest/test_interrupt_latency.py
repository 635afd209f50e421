"""Interrupts to user space of machines, beside those of the host: each is accounted for, by one clock."""

from __future__ import annotations

import json

import pytest
from running_node import Command, needs_a_node

pytestmark = [
    *needs_a_node,
    pytest.mark.requires_program("virtlogd", "virsh", "qemu-system-x86_64"),
    pytest.mark.timeout(900),
]
SIDES = ("native", "tuned", "untuned")


def test_receivers_in_machines_take_turns_with_one_of_the_host(command: Command) -> None:
    done = command("measure", "interrupts", "--sides", ",".join(SIDES), "--period", "5ms", "--duration", "6s", "--json")
    run = json.loads(done.stdout)
    assert run["valid"], run["reason"]
    found = {trial["test"]: trial for trial in run["host_trials"]}
    assert set(found) == {*(f"interrupt-{side}" for side in SIDES), "timer"}
    accounted = sum(trial["samples"] + trial["missed"] for name, trial in found.items() if name != "timer")
    assert accounted == found["timer"]["samples"]
    for side in SIDES:
        trial = found[f"interrupt-{side}"]
        assert trial["samples"] > 0 and trial["latency_us"]["min"] > 0, side
    for side in SIDES[1:]:
        assert any(note.startswith(f"{side}: its clock") for note in run["notes"]), run["notes"]
