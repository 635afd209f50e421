"""A machine whose virtual CPUs share fewer CPUs of the host, and have more and fewer of them while it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from running_node import Command, needs_a_node

from tailrace.functions import agent
from tailrace.functions.names import outer_name
from tailrace.functions.runtimes import STARTERS
from tailrace.process.hypervisor import connect
from tailrace.state.record import Process, State, peek

pytestmark = [
    *needs_a_node,
    pytest.mark.requires_program("virtlogd", "virsh", "qemu-system-x86_64"),
    pytest.mark.timeout(900),
]

#: Nobody but the switch polls beside it, so that it has a CPU of its own where there are two.
SPEC = """\
fabric: {idle: sleep}
ports: {c: , d: }
functions: {first: {kind: skeleton, runs: machine, cpus: {most: 2}}}
chains: {voice: [c, first, d]}
"""


@pytest.fixture(scope="module")
def node(command: Command) -> Iterator[Command]:
    """The machine is up."""
    command("up", command.spec(SPEC))
    yield command
    command("down")


def process(node: Command) -> Process:
    found = [each for each in State(node.state, peek(node.state)).processes() if each.name == "first"]
    assert len(found) == 1
    return found[0]


def pins(node: Command) -> list[list[int]]:
    """The CPUs of each virtual one, as virsh shows them."""
    found = connect().lookupByName(outer_name(node.state, "first")).vcpuPinInfo()
    return [[cpu for cpu, may in enumerate(each) if may] for each in found]


def threads(node: Command) -> list[set[int]]:
    """The same as the kernel has it, of each thread that QEMU names so (CPU 0/TCG, CPU 0/KVM)."""
    found = {}
    for thread in Path(f"/proc/{process(node).pid}/task").iterdir():
        with suppress(OSError):  # QEMU's other threads come and go
            name = (thread / "comm").read_text()
            if name.startswith("CPU "):
                found[name] = os.sched_getaffinity(int(thread.name))
    return [found[name] for name in sorted(found)]


def test_it_starts_with_all_virtual_cpus_on_the_one_that_it_has(node: Command) -> None:
    (own,) = {cpu for each in pins(node) for cpu in each}
    assert pins(node) == [[own], [own]] and threads(node) == [{own}, {own}]
    inside = agent.ask(node.state / "logs" / "first.agent", "cat /sys/devices/system/cpu/online")
    assert inside.strip() == "0-1"
    (row,) = [each for each in node.status()["processes"] if each["name"] == "first"]
    assert row["cpus"] == [own, own]
    assert "1 for 2 virtual CPUs" in node("function", "explain", "first").stdout


def test_its_virtual_cpus_move_while_it_runs(node: Command) -> None:
    """By the runtime itself: this machine may have no CPU to spare for a whole node."""
    (own,) = {cpu for each in pins(node) for cpu in each}
    other = next(cpu for cpu in sorted(os.sched_getaffinity(0)) if cpu != own)
    state, machine = State(node.state, peek(node.state)), STARTERS["machine"]
    for wanted, moved in (([other, own], 1), ([other, own], 0), ([own, own], 1)):
        used = machine.use_cpus(state, process(node), wanted)
        assert used.vcpus_moved == moved
        assert pins(node) == [[cpu] for cpu in wanted] and threads(node) == [{cpu} for cpu in wanted]
        assert node.status()["unlike"] == [], "what was asked for is no change of somebody else's"
    assert agent.ask(node.state / "logs" / "first.agent", "echo goes on").strip() == "goes on"


def test_it_has_more_where_there_are_more(node: Command) -> None:
    done = node("function", "cpus", "first", "2", status=None)
    if done.returncode == 0:
        assert "1 virtual CPU was moved" in done.stdout
        assert len({cpu for each in pins(node) for cpu in each}) == 2
        assert "first has 2 CPUs already" in node("function", "cpus", "first", "2").stdout
        node("function", "cpus", "first", "1")
    else:
        assert done.returncode == 2 and "first: 1 more CPU of its own; none are free; CPU " in done.stderr
    assert len({cpu for each in pins(node) for cpu in each}) == 1
    refused = node("function", "cpus", "first", "3", status=2).stderr
    assert "expected 1 to 2" in refused and "gives it the virtual CPUs for more" in refused
