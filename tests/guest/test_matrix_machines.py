"""`tailrace measure matrix` whose functions are virtual machines, behind two switches; what has no machines says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from clean_machine import things
from running_node import Command, needs_a_node

from tailrace.process.hypervisor import connect

pytestmark = [
    *needs_a_node,
    pytest.mark.whole,
    pytest.mark.requires_program("ovs-vswitchd", "virtlogd", "qemu-system-x86_64"),
    pytest.mark.timeout(900),
]
HOW = ("--frames", "64", "--rate", "1kpps", "--duration", "300ms", "--runs-in", "machine")


def test_functions_in_machines(command: Command, images: Path) -> None:
    assert images.exists()
    ways = ("--fabrics", "tailrace,ovs-dpdk,direct", "--interfaces", "vhost-user,memif", "--patterns", "PVP")
    command.limit = 800
    command("measure", "matrix", *ways, *HOW, "--runs", command.runs)
    found = {each["name"]: each for each in command.results()["findings"] if each["method"] == "matrix"}
    for name in ("tailrace-vhost-user-PVP-64", "ovs-dpdk-vhost-user-PVP-64"):
        assert found[name]["valid"] and found[name]["mpps"] > 0, found[name]
    assert "no memif" in found["tailrace-memif-PVP-64"]["not_here"]
    assert "no veth" in found["direct-veth-PVP-64"]["not_here"]
    notes = " ".join(command.results()["notes"])
    assert "in a machine of its own" in notes
    assert not things(command)
    assert not [each for each in connect().listAllDomains() if each.name().startswith("tailrace-")]
