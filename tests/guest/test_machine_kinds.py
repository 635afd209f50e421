"""A firewall in a machine: it is told its rules, also while it runs, and says what they have decided."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running_node import Command, needs_machines

pytestmark = [*needs_machines, pytest.mark.whole]

SPEC = """\
fabric: {idle: sleep}
functions: {fw: {kind: firewall, runs: machine, firewall: {rules: [{name: all, action: allow}]}}}
chains: {voice: [tester.a, fw, tester.b]}
tests: [latency: {frames: 64, rate: 500pps, duration: 2s}]
"""


def frames(command: Command, spec: Path) -> tuple[int, int]:
    """How many were sent, and how many of these came."""
    result = json.loads(command("measure", "latency", spec, "--json", status=None).stdout)
    ways = [way for trial in result["trials"] for way in trial["directions"]]
    return sum(way["sent"] for way in ways), sum(way["received"] for way in ways)


def rules(command: Command) -> dict[str, int]:
    """The frames that each rule has decided on."""
    shown = json.loads(command("function", "show", "fw", "--json").stdout)
    assert shown["function"] == "firewall"
    return {row["rule"]: row["frames"] for row in shown["tables"]["rules"]["rows"]}


def test_a_firewall_in_a_machine_does_what_it_is_told_and_says_so(command: Command) -> None:
    spec = command.spec(SPEC)
    command("up", spec)
    try:
        sent, received = frames(command, spec)
        assert sent == received > 100
        assert rules(command)["all"] > 0
        before = command.status()["processes"]
        denies = SPEC.replace("name: all, action: allow", "name: none, action: deny")
        command("apply", command.spec(denies, "none.yaml"))
        assert command.status()["processes"] == before, "it was not replaced"
        assert rules(command).keys() == {"default", "none"}
    finally:
        command("down")
