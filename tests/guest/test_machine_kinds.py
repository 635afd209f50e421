"""A firewall, a NAT and a balancer in machines: they are told their settings, the firewall also other rules while it
runs, do what they are told, and say what became of frames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from running_node import Command, needs_machines

pytestmark = [*needs_machines, pytest.mark.whole]

#: A frame from an inside host of the NAT's.  From tester.a it is translated; from tester.b it passes as it came.
PCAP = Path(__file__).parents[2] / "examples" / "share-nat.pcap"

BOTH = f"""\
fabric: {{idle: sleep}}
functions:
  gate: {{kind: nat, runs: machine, nat: {{inside: 10.10.0.0/24, pool: 198.51.100.0/28}}}}
  lb:
    kind: balancer
    runs: machine
    balancer:
      source: 198.18.80.9
      services: {{web: {{address: 198.18.80.100, port: 80, back_ends: [{{name: one, address: 198.18.80.2}}]}}}}
chains: {{voice: [tester.a, gate, lb, tester.b]}}
tests: [latency: {{pcap: {PCAP}, rate: 500pps, duration: 2s}}]
"""

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


def shown(command: Command, name: str, kind: str) -> dict[str, Any]:
    """What a function says of itself."""
    said: dict[str, Any] = json.loads(command("function", "show", name, "--json").stdout)
    assert said["function"] == kind
    return said


def rules(command: Command) -> dict[str, int]:
    """The frames that each rule has decided on."""
    return {row["rule"]: row["frames"] for row in shown(command, "fw", "firewall")["tables"]["rules"]["rows"]}


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


def test_a_nat_and_a_balancer_in_machines_do_what_they_are_told_and_say_so(command: Command) -> None:
    spec = command.spec(BOTH)
    command("up", spec)
    try:
        sent, received = frames(command, spec)
        assert sent == received > 100
        gate, lb = shown(command, "gate", "nat"), shown(command, "lb", "balancer")
        inside, outside = gate["counters"]["translated"]
        assert inside["passed"] - inside["untouched"] > 100 and outside["untouched"] > 100
        (mapping,) = gate["tables"]["mappings"]["rows"]
        assert mapping["outside"].startswith("198.51.100.")
        assert all(port["untouched"] > 100 for port in lb["counters"]["balanced"])
        (service,) = lb["tables"]["services"]["rows"]
        (back_end,) = lb["tables"]["back_ends"]["rows"]
        assert service["service"] == "web" and back_end["back_end"] == "one"
    finally:
        command("down")
