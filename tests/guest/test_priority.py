"""A machine whose virtual CPU has the priority of what it runs, and the planned one where its agent, or who follows it,
has ended."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest
from running_node import Command, needs_machines, wait_until

from tailrace.functions import agent
from tailrace.node.client import Client
from tailrace.process.hypervisor import vcpu_threads
from tailrace.state.record import Follower, Process, State, peek

pytestmark = needs_machines

SPEC = """\
fabric: {idle: sleep}
ports: {c: , d: }
functions: {first: {kind: skeleton, runs: machine, driver: linux, latency: normal, priority: {least: 0, most: 30}}}
chains: {voice: [c, first, d]}
"""
END_AGENT = "for p in /proc/[0-9]*; do ! grep -qs ^tailrace-priority-agent $p/cmdline || kill ${p#/proc/}; done"
PLANNED, HIGHEST = (os.SCHED_OTHER, 0), (os.SCHED_FIFO, 30)


@pytest.fixture
def node(command: Command) -> Iterator[Command]:
    command("up", command.spec(SPEC))
    yield command
    command("down")


def followers(node: Command) -> list[Follower]:
    return [each for each in peek(node.state).things if isinstance(each, Follower)]


def told(node: Command, last: str) -> list[str]:
    """The events about it, once the last of them has come."""
    client = Client(node.state, look=True)
    try:
        client.subscribe(since=1)
        kinds: list[str] = []
        while (event := client.next_event(1.0 if last in kinds else 120)) is not None:
            kinds.append(event["kind"])
    finally:
        client.close()
    return [each for each in kinds if each.startswith("function.priority")]


def record(node: Command) -> tuple[Process, Follower]:
    (machine,) = [each for each in peek(node.state).things if isinstance(each, Process) and each.name == "first"]
    (follower,) = followers(node)
    return machine, follower


def test_a_virtual_cpu_has_the_priority_of_what_it_runs(node: Command) -> None:
    machine, follower = record(node)
    (thread,) = vcpu_threads(machine.pid)
    inside = agent.beside(State(node.state, peek(node.state)).logs / "first.log")

    def has() -> tuple[int, int]:
        return os.sched_getscheduler(thread), os.sched_getparam(thread).sched_priority

    wait_until(lambda: has() == HIGHEST)  # it is idle
    agent.ask(inside, "(while :; do :; done) >/dev/null 2>&1 & echo $! >/run/busy")
    wait_until(lambda: has() == PLANNED)
    wait_until(lambda: has() == HIGHEST)  # for a moment now and then
    agent.ask(inside, "kill $(cat /run/busy)")
    assert follower.id.alive()
    assert follower.planned == ((thread, *PLANNED),)

    os.kill(follower.pid, signal.SIGKILL)
    wait_until(lambda: [each.pid for each in followers(node)] not in ([], [follower.pid]) and has() == HIGHEST)
    wait_until(lambda: len(followers(node)) == 1)
    (again,) = followers(node)
    assert again.id.alive() and again.cpus == follower.cpus
    assert again.planned == follower.planned  # so it was given back before
    back = "function.priority_back"
    assert told(node, back) == ["function.priority_lost", back]

    agent.ask(inside, END_AGENT)
    log = State(node.state, peek(node.state)).logs / "first.priority.log"
    wait_until(lambda: "silent" in log.read_text())
    assert has() == PLANNED
    node("down")
    assert not again.id.alive()


@pytest.mark.whole
@pytest.mark.requires_program("stress-ng")
def test_the_comparison_has_both_sides(command: Command) -> None:
    result = json.loads(command("bench", "priority", "--pairs", "1", "--seconds", "2", "--json").stdout)
    assert result["bench"] == "priority"
    for side in ("without", "with"):
        for pair in result["pairs"]:
            assert pair[side]["p99.9_us"] > 0 and pair[side]["load_percent"] > 0
