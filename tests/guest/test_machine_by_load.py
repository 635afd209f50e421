"""A machine that polls has more and fewer CPUs by what waits in its rings, while frames come faster than it takes
them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from front_end import SENDS, FrontEnd
from running_node import Command, needs_machines, wait_until

from tailrace.node.client import Client
from tailrace.plan.planned import Plan
from tailrace.state.record import peek

pytestmark = [*needs_machines, pytest.mark.requires_program("virsh"), pytest.mark.whole]

SPEC = """\
fabric: {idle: sleep}
ports: {c: , d: , e: , f: }
functions:
  first: {kind: skeleton, runs: machine, cpus: {start: 1, most: 2, automatic: true}}
  other: {kind: skeleton}
chains: {voice: [c, first, d], data: [e, other, f]}
"""
"""On two CPUs the functions share one, and so may have more of it: nobody has to have a third."""
FRAME = b"\2\0\0\0\0\2" + b"\2\0\0\0\0\1" + b"\x88\xb5" + bytes(46)


class Traffic:
    """Frames into the chain as fast as the switch takes them, and out of it, until its end."""

    def __init__(self, node: Command) -> None:
        self.ends = {name: FrontEnd() for name in "cd"}
        for name, end in self.ends.items():
            end.start(node.state / f"sockets/{name}.sock")
        self.came = 0
        self.sends = threading.Event()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        enters, leaves = self.ends["c"], self.ends["d"]
        leaves.offer_buffers(32)
        while not self._ending.is_set():
            if self.sends.is_set() and enters.room(SENDS) > 0:
                enters.send(FRAME)
                enters.kicks(SENDS)
            else:
                time.sleep(0.001)
            if (frames := len(leaves.received())) > 0:
                self.came += frames
                leaves.offer_buffers(frames)

    def end(self) -> None:
        self._ending.set()
        self._thread.join()
        for end in self.ends.values():
            end.end()


@pytest.fixture
def node(command: Command) -> Iterator[Command]:
    command("up", command.spec(SPEC))
    yield command
    command("down")


@pytest.fixture
def traffic(node: Command) -> Iterator[Traffic]:
    made = Traffic(node)
    try:
        wait_until(lambda: {each["name"] for each in node.status()["ports"] if each["state"] == "up"} >= set("cd"))
        yield made
    finally:
        made.end()


def cpus(node: Command) -> int:
    """That it has for its virtual ones."""
    return Plan.read(peek(node.state).plan).function("first").cpus


def resized(client: Client) -> dict[str, Any]:
    """What becomes of its CPUs next. It is told meanwhile if it cannot have them, which is tried again."""
    crowded: dict[str, Any] | None = None
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline and (event := client.next_event(120)) is not None:
        if event["kind"] == "function.resized":
            return dict(event)
        if event["kind"] == "function.crowded":
            crowded = dict(event)
    raise AssertionError(f"it has as many CPUs as before: {crowded or 'nobody says why'}")


def test_it_grows_by_what_waits_and_shrinks_when_nothing_does(node: Command, traffic: Traffic) -> None:
    assert cpus(node) == 1, "its vCPUs take all of their time, and no frame waits"
    client = Client(node.state, look=True)
    try:
        client.subscribe()
        traffic.sends.set()
        more = resized(client)
    finally:
        client.close()
    assert more["about"] == "first" and more["details"]["load"] > 0.75, more
    wait_until(lambda: cpus(node) == 2, 150)  # once more, where the traffic stood still meanwhile
    came = traffic.came
    wait_until(lambda: traffic.came > came + 100)
    traffic.sends.clear()
    wait_until(lambda: cpus(node) == 1, 150)
