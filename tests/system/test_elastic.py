"""`tailrace function cpus`: a function that runs has more and fewer CPUs while frames move, and none is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from running_node import Command, needs_a_node, next_event, wait_until
from running_tester import Trial, beside_a_node, stream

from tailrace.functions.show import Shown, ask
from tailrace.node.client import Client
from tailrace.observe.gaps import Busy, Gaps
from tailrace.state.record import Process, State, peek

pytestmark = [*needs_a_node, pytest.mark.unsanitized]

FLOWS = 8
#: A busy machine may keep all pollers off their CPUs for a while, and nothing is to be lost by that.
ELASTIC = """\
fabric: {backpressure: 10s}
functions: {first: {kind: skeleton, cpus: {most: 4}}}
chains: {voice: [tester.a, first, tester.b]}
"""
BY_LOAD = ELASTIC.replace("most: 4", "start: 1, most: 4, automatic: true, busy: 1%")
MANY = 400_000
"""Frames a second. A tester that shares the function's CPU keeps it busy for some per cent of that at most."""
#: Nobody but the switch and the function polls, so that each has a core of its own where there are two.
ALONE = """\
ports: {c: , d: }
functions: {first: {kind: skeleton, cpus: {most: 2}}}
chains: {voice: [c, first, d]}
"""


class Traffic:
    """Flows both ways, each a stream that is checked for order, until the block ends."""

    def __init__(self, binaries: Path, command: Command, folder: Path, rate: float = 8000) -> None:
        ports = {end: f"vhost:{command.state / 'sockets' / f'tester.{end}'}.sock" for end in "ab"}
        self.tester = beside_a_node(binaries, folder, ports, "--memory", "256")
        self.command = command
        self.rate = rate / 2 / FLOWS
        self.result: Trial = {}
        self.ports: list[dict[str, Any]] = []

    def __enter__(self) -> Traffic:
        streams = [
            stream(f"{source}{target}{flow}", source, target, self.rate, flow=flow)
            for source, target in ("ab", "ba")
            for flow in range(FLOWS)
        ]
        self.tester.start(streams, 3600, wait=1.0)
        self.tester.wait_sent(100)
        return self

    def __exit__(self, *_: object) -> None:
        self.tester.call("trial.stop")
        self.result = self.tester.wait_end()
        self.ports = self.command.status()["ports"]
        assert self.tester.end() == 0

    def more(self) -> None:
        self.tester.wait_more(100)

    def nothing_was_lost(self) -> None:
        assert len(self.result["streams"]) == 2 * FLOWS
        drops = [
            {key: value for key, value in port.items() if key == "name" or (key.startswith("drop") and value)}
            for port in self.ports
        ]
        for each in self.result["streams"]:
            assert each["received"] == each["sent"] > 100, (each, drops)
            assert each["lost"] == each["duplicate"] == each["foreign"] == each["out_of_sequence"] == 0, each


def running(command: Command, name: str = "first") -> Process:
    found = [each for each in State(command.state, peek(command.state)).processes() if each.name == name]
    assert len(found) == 1
    return found[0]


def shown(command: Command) -> Shown:
    return ask(State(command.state, peek(command.state)), running(command), 20)


def received(command: Command) -> list[int]:
    """Frames that came by each queue from either side."""
    rows = shown(command).tables["queues"].rows
    return [int(str(row["received_0"])) + int(str(row["received_1"])) for row in rows]


def resized(command: Command, count: int) -> dict[str, Any]:
    applied = json.loads(command("function", "cpus", "first", str(count), "--json").stdout)
    found: dict[str, Any] = applied["resized"]["first"]
    assert applied["start"] == applied["stop"] == []
    assert found["handed_over_ms"] <= applied["milliseconds"]
    return found


def test_it_grows_and_shrinks_while_frames_move(command: Command, binaries: Path, tmp_path: Path) -> None:
    command("up", command.spec(ELASTIC))
    before = running(command)
    with Traffic(binaries, command, tmp_path) as traffic:
        wait_until(lambda: sum(count > 0 for count in received(command)) > 1)  # flows are spread
        for count in (2, 4, 3, 1, 4, 2, 1):
            found = resized(command, count)
            assert len(found["now"]) == count
            if count > len(found["before"]):
                assert found["first_frame_ms"] > 0
            traffic.more()
        assert "has 1 CPU already" in command("function", "cpus", "first", "1").stdout
    traffic.nothing_was_lost()
    assert running(command) == before, "it is the same process"
    ports = shown(command).counters["ports"]
    assert isinstance(ports, list)
    assert sum(int(each["received"]) for each in ports) == sum(int(each["sent"]) for each in ports)
    assert sum(int(each["received"]) for each in ports) == sum(each["sent"] for each in traffic.result["streams"])


def test_its_cpus_are_on_record(command: Command, binaries: Path, tmp_path: Path) -> None:
    """The service starts anew, the function ends and is started again, the spec is applied."""
    spec = command.spec(ELASTIC)
    command("up", spec)
    assert len(resized(command, 3)["now"]) == 3
    proposal = json.loads(command("plan", spec, "--json", status=3).stdout)
    assert [(each["what"], each["name"]) for each in proposal["changes"]] == [("process", "first")]
    assert proposal["start"] == []
    service = command.service()
    wait_until(lambda: _ended(service))
    assert "has 3 CPUs already" in command("function", "cpus", "first", "3").stdout

    command("function", "restart", "first")
    now = running(command, "first@2")
    threads = shown_of(command, now)
    assert len({row["thread"] for row in threads}) == 3
    command("apply", spec)
    assert len({row["thread"] for row in shown_of(command, now)}) == 1
    command("rollback")
    assert len({row["thread"] for row in shown_of(command, now)}) == 3
    with Traffic(binaries, command, tmp_path) as traffic:
        traffic.more()
    traffic.nothing_was_lost()


def shown_of(command: Command, process: Process) -> list[dict[str, Any]]:
    return list(ask(State(command.state, peek(command.state)), process, 20).tables["queues"].rows)


def _ended(service: int) -> bool:
    """Tells the service to end; whether it has. The next command starts another."""
    try:
        os.kill(service, signal.SIGTERM)
    except ProcessLookupError:
        return True
    return False


def test_its_load_gives_it_more_and_idling_takes_them_back(command: Command, binaries: Path, tmp_path: Path) -> None:
    command("up", command.spec(BY_LOAD))
    before = running(command)
    client = Client(command.state, look=True)
    try:
        client.subscribe()
        with Traffic(binaries, command, tmp_path, MANY) as traffic:
            more = next_event(client, "function.resized")["details"]
            assert len(more["now"]) > len(more["before"]) == 1
            assert more["load"] >= 0.01
            command("plan", command.spec(BY_LOAD), status=0)  # the spec leaves it what its load gave it
            traffic.more()
        fewer = more
        while len(fewer["now"]) > 1:  # a burst of somebody else on its CPU may give it more once more
            fewer = next_event(client, "function.resized")["details"]
    finally:
        client.close()
    traffic.nothing_was_lost()
    assert running(command) == before, "it is the same process"
    assert "first has its CPUs by its load" in command("function", "cpus", "first", "2", status=2).stderr


@pytest.mark.parametrize(("ports", "least", "most"), [("", 0.8, 1.2), (",no-rx=1", 0.0, 0.1)], ids=["frames", "none"])
def test_a_poller_says_how_busy_it_is(binaries: Path, ports: str, least: float, most: float) -> None:
    """Where its CPU time says nothing: it has always all of it, less what others take."""
    options = [option for number in (0, 1) for option in ("--port", f"vdev:net_null{number}{ports}")]
    program = [binaries / "functions/tailrace-vnf", "skeleton", *options, "--memory", "64"]
    function = subprocess.Popen(program, stderr=subprocess.PIPE, text=True)
    try:
        assert function.stderr is not None
        assert any("forwarding" in line for line in function.stderr)
        wait_until(lambda: any(loop.thread for loop in Gaps(function.pid).loops))
        busy = Busy(function.pid)
        # What it says is read between two looks at the clock, which others may hold apart.
        first, before, second = time.monotonic(), busy.seconds, time.monotonic()
        wait_until(lambda: time.monotonic() - second > 0.5)
        third, after, fourth = time.monotonic(), busy.seconds, time.monotonic()
        busy.close()
        assert least * (third - second) <= after - before <= most * (fourth - first)
    finally:
        function.terminate()
        function.communicate(timeout=60)
    assert function.returncode == 0


def test_what_cannot_be_is_refused_with_the_reason(command: Command) -> None:
    spec = """\
functions:
  first: {kind: skeleton, cpus: {most: 2}}
  second: {kind: impair}
  third: skeleton
chains: {voice: [tester.a, first, second, third, tester.b]}
"""
    assert "nothing is up" in command("function", "cpus", "first", "2", status=2).stderr
    command("up", command.spec(spec))
    refused = command("function", "cpus", "first", "3", status=2).stderr
    assert "3 CPUs are not possible; expected 1 to 2 (`functions: {first: {cpus: {most: 3}}}`" in refused
    assert "Invalid value" in command("function", "cpus", "first", "0", status=2).stderr
    assert "kind impair has one thread, because its plan numbers frames" in (
        command("function", "cpus", "second", "2", status=2).stderr
    )
    assert "expected 1 to 1" in command("function", "cpus", "third", "2", status=2).stderr
    assert "is no function" in command("function", "cpus", "fourth", "2", status=2).stderr
    command("function", "stop", "first")
    assert "first does not run; `tailrace function start first`" in (
        command("function", "cpus", "first", "2", status=2).stderr
    )


def test_cpus_of_others_are_named(command: Command) -> None:
    """With a CPU for the switch and each CPU for the function there is none left for one more."""
    command("up", command.spec(ALONE))
    refused = command("function", "cpus", "first", "2", status=None)
    held = json.loads(command("function", "show", "first", "--json").stdout)
    cpus = {row["cpu"] for row in held["tables"]["queues"]["rows"]}
    if refused.returncode == 0:
        assert len(cpus) == 2
    else:
        assert refused.returncode == 2
        assert "first: 1 more CPU of its own; none are free; CPU " in refused.stderr
        assert "is held by the switch" in refused.stderr
        assert "is held by first" in refused.stderr
        assert len(cpus) == 1
