"""A machine moves from one node to another by `tailrace migrate`, while frames pass that are all counted."""

from __future__ import annotations

import json
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from private_network import End, Network
from running_node import needs_a_node, wait_until
from two_nodes import Node, kill, two_nodes

pytestmark = [
    *needs_a_node,
    pytest.mark.requires_program("virtlogd", "virsh", "qemu-system-x86_64", "nsenter"),
    pytest.mark.timeout(900),
]

SPEC = """\
fabric: {{idle: sleep, cores: [{core}]}}
functions: {{first: {{kind: skeleton, runs: machine, latency: normal{arrives}}}}}
chains: {{voice: [{{if: {host}0}}, first, {{if: {host}1}}]}}
"""
HEAD = bytes.fromhex("0200000000bb0200000000aa88b5")
PAUSE = 0.004
"""Between two frames: an emulated machine keeps up."""


class Traffic:
    """Frames to both nodes, as by a hub; and those that come from either, counted by their number."""

    def __init__(self, network: Network) -> None:
        self._in = [End(network, f"{host}0p") for host in ("one", "two")]
        self._out = [End(network, f"{host}1p") for host in ("one", "two")]
        self.sent = 0
        self.received: list[tuple[float, int, int]] = []
        """When, the frame's number, which node it came from."""
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def _send(self) -> None:
        while not self._ending.wait(PAUSE):
            frame = HEAD + struct.pack(">Q", self.sent) + bytes(64)
            for end in self._in:
                end.send(frame)
            self.sent += 1

    def _receive(self) -> None:
        while not self._ending.wait(0.001):
            for node, end in enumerate(self._out):
                now = time.monotonic()
                self.received += [
                    (now, *struct.unpack(">Q", frame[14:22]), node) for frame in end.received() if frame[:14] == HEAD
                ]

    def end(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()
        for end in (*self._in, *self._out):
            end.close()

    def numbers(self) -> list[int]:
        """Those of the frames that came, as they came."""
        return [number for _, number, _ in self.received]

    def from_node(self, node: int) -> int:
        return sum(each == node for _, _, each in self.received)

    def wait_from(self, node: int, count: int = 50) -> None:
        before = self.from_node(node)
        wait_until(lambda: self.from_node(node) >= before + count, 60)


@pytest.fixture(scope="module")
def nodes(tailrace: Path, images: Path) -> Iterator[tuple[Node, Node]]:
    """A chain through the machine on one; the same chain on the other, which has none."""
    del images
    network = Network()
    try:
        for host in ("one", "two"):
            for side in (0, 1):
                network.pair(f"{host}{side}", f"{host}{side}p")
        with two_nodes(tailrace, network) as (one, two):
            for core, (host, node) in enumerate((("one", one), ("two", two))):
                arrives = ", arrives: true" if node is two else ""
                node("up", node.spec(SPEC.format(core=core, host=host, arrives=arrives)))
            yield one, two
    finally:
        network.end()


@pytest.fixture
def traffic(nodes: tuple[Node, Node]) -> Iterator[Traffic]:
    made = Traffic(nodes[0].network)
    yield made
    made.end()


def running(node: Node) -> list[str]:
    return [name for name, state in node.machines().items() if state == "running"]


def place(nodes: tuple[Node, Node]) -> int:
    """Which of the nodes has the one copy."""
    found = [len(running(each)) for each in nodes]
    assert sum(found) == 1, found
    return found.index(1)


def begin_slowly(source: Node, target: Node) -> subprocess.Popen[str]:
    """A move that does not come to an end by itself; on return the target has a machine that is being filled."""
    moving = source.begin("migrate", "first", target.state, "--bandwidth", "1MiB")
    wait_until(lambda: target.machines() or moving.poll() is not None, 60)
    assert moving.poll() is None, moving.communicate()
    return moving


def test_it_moves_and_every_frame_is_accounted_for(nodes: tuple[Node, Node], traffic: Traffic) -> None:
    one, two = nodes
    traffic.wait_from(0)
    assert json.loads(one("migrate", "first", two.state, "--dry-run", "--json").stdout)["possible"]
    moved = json.loads(one("migrate", "first", two.state, "--json").stdout)
    assert moved["pause_ms"] > 0 and moved["rounds"] >= 1 and moved["bytes"] > 128 << 20
    traffic.wait_from(1)
    assert place(nodes) == 1
    numbers = traffic.numbers()
    assert numbers == sorted(set(numbers)), "none came twice, and all in order"
    assert all(node == 1 for _, _, node in traffic.received[traffic.from_node(0) :]), "none from where it was"
    again = json.loads(one("migrate", "first", two.state, "--dry-run", "--json", status=2).stdout)
    assert {each["kind"] for each in again["reasons"]} == {"function"}
    assert "function first: first (stopped)" in one("status").stdout


def test_a_move_that_fails_or_is_cancelled_leaves_it_where_it_is(nodes: tuple[Node, Node], traffic: Traffic) -> None:
    source = nodes[place(nodes)]
    target = next(each for each in nodes if each is not source)
    traffic.wait_from(nodes.index(source))
    first = traffic.numbers()[0]
    moving = begin_slowly(source, target)
    (name,) = target.machines()
    kill(target.machine(name))
    error = moving.communicate(timeout=60)[1]
    assert moving.returncode == 1 and "first goes on here" in error
    moving = begin_slowly(source, target)
    assert json.loads(source("migrate", "first", "--cancel", "--json").stdout)["cancelled"]
    error = moving.communicate(timeout=60)[1]
    assert moving.returncode == 130 and "first goes on here" in error
    traffic.wait_from(nodes.index(source))
    assert nodes[place(nodes)] is source and target.machines() == {}
    numbers = traffic.numbers()
    assert numbers == list(range(first, first + len(numbers))), "no frame was lost"
    assert not list((target.state / "sockets").glob("first@*")), "what was prepared there is undone"


def libvirt_of_the_source(source: Node, _: Node) -> int:
    return source.daemon()


def libvirt_of_the_target(_: Node, target: Node) -> int:
    return target.daemon()


def service_of_the_source(source: Node, _: Node) -> int:
    return source.service()


def service_of_the_target(_: Node, target: Node) -> int:
    return target.service()


def machine_of_the_source(source: Node, _: Node) -> int:
    return source.machine(running(source)[0])


@pytest.mark.whole
@pytest.mark.parametrize(
    "party",
    [
        libvirt_of_the_source,
        libvirt_of_the_target,
        service_of_the_source,
        service_of_the_target,
        machine_of_the_source,
    ],
)
def test_one_copy_runs_whoever_is_killed(
    nodes: tuple[Node, Node], traffic: Traffic, party: Callable[[Node, Node], int]
) -> None:
    source = nodes[place(nodes)]
    target = next(each for each in nodes if each is not source)
    moving = begin_slowly(source, target)
    kill(party(source, target))
    moving.communicate(timeout=120)
    for each in nodes:  # what has ended of a node is there again
        each("up", each.folder / "spec.yaml")
    wait_until(lambda: sum(len(running(each)) for each in nodes) == 1, 150)
    traffic.wait_from(place(nodes))
    where = place(nodes)
    assert not nodes[1 - where].machines(), "nothing is left of the other one"
