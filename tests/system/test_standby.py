"""A replica in standby: attached, without a frame, until the active one ends; then it has its place at once."""

from __future__ import annotations

import json
import os
import signal
from contextlib import closing
from pathlib import Path

import pytest
from running_node import Command, needs_a_node, next_event, wait_until
from running_tester import Trial, beside_a_node, stream

from tailrace.node.client import Client
from tailrace.state.record import Process, State, peek

pytestmark = [*needs_a_node, pytest.mark.unsanitized]

FLOWS = 8
RATE = 1000.0
"""Frames a second of each flow, so that what was lost says for how long nothing came."""
MOST_LOST = 10.0
"""Seconds of that, however busy the machine is; docs/operating.md has what it takes there."""
STANDBY = """\
functions: {first: {kind: skeleton, replicas: {1: active, 2: standby}}}
chains: {voice: [tester.a, first, tester.b]}
"""


def replicas(command: Command) -> dict[str, str]:
    return {each["name"]: each["state"] for each in command.status()["functions"][0]["replicas"]}


def frames(command: Command, owner: str) -> int:
    """That were sent to a function's ports."""
    return sum(port["sent_packets"] for port in command.status()["ports"] if port["name"].rpartition(".")[0] == owner)


def kill(command: Command, name: str) -> None:
    found = next(each for each in State(command.state, peek(command.state)).processes() if each.name == name)
    assert isinstance(found, Process)
    os.kill(found.inner()[-1].pid, signal.SIGKILL)


def take_over(command: Command, name: str, by: str) -> None:
    """One is killed: the other has its place, and it is started again."""
    with closing(Client(command.state, look=True)) as client:
        client.subscribe()
        kill(command, name)
        told = next_event(client, "function.took_over")
        assert (told["about"], told["details"]["ended"]) == (by, name)
        assert next_event(client, "function.restarted")["about"] == name


def test_it_takes_over_and_who_was_active_stands_by(command: Command, binaries: Path, tmp_path: Path) -> None:
    spec = command.spec(STANDBY)
    command("up", spec)
    assert replicas(command) == {"first": "active", "first-2": "standby"}
    command("plan", spec, status=0)
    ports = {end: f"vhost:{command.state / 'sockets' / f'tester.{end}'}.sock" for end in "ab"}
    tester = beside_a_node(binaries, tmp_path, ports, "--memory", "256")
    tester.start([stream(str(flow), "a", "b", RATE, flow=flow) for flow in range(FLOWS)], 3600, wait=1.0)
    tester.wait_more(1000)
    assert frames(command, "first-2") == 0, "it gets no frames"

    take_over(command, "first", by="first-2")
    tester.wait_more(1000)
    assert replicas(command) == {"first": "standby", "first-2": "active"}
    assert frames(command, "first@2") == 0, "it stands by in turn"

    take_over(command, "first-2", by="first")
    tester.wait_more(1000)
    tester.call("trial.stop")
    result: Trial = tester.wait_end()
    for each in result["streams"]:
        assert each["duplicate"] == each["foreign"] == 0, each
        assert each["lost"] <= 2 * MOST_LOST * RATE, each  # none at all, where frames could wait
    print("lost of each flow:", [each["lost"] for each in result["streams"]])
    assert tester.end() == 0


def test_the_roles_are_on_record_and_the_spec_gives_them_back(command: Command) -> None:
    spec = command.spec(STANDBY)
    command("up", spec)
    kill(command, "first")
    wait_until(lambda: replicas(command) == {"first": "standby", "first-2": "active"})
    wait_until(lambda: command.process("first@2"))

    def well() -> bool:
        found = command.status()
        return not found["broken"] and not found["unlike"]

    wait_until(well)
    changes = json.loads(command("plan", spec, "--json", status=3).stdout)
    assert changes["start"] == changes["stop"] == [], "nothing has to be started for that"
    command("apply", spec)
    assert replicas(command) == {"first": "active", "first-2": "standby"}
    assert "first: first-2 is in standby" in command("scale", "first", "1", status=2).stderr
    for words in (["first-2"], ["first-2", "--active"]):  # two would share the flows
        assert "'first-2' is in standby" in command("drain", *words, status=2).stderr
