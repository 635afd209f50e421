"""A machine moves from one node to another by `tailrace migrate`, while frames pass that are all counted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from private_network import Network
from running_node import Command, needs_a_node, next_event, open_folder, wait_until
from small_disk import fill
from two_nodes import Node, kill, two_nodes

from tailrace.bench.hub import Hub
from tailrace.bench.migration import spec_of
from tailrace.functions import agent
from tailrace.node.client import Client
from tailrace.node.moving import STALLED_SECONDS
from tailrace.process.connections import give_up_after
from tailrace.state.record import State, peek

pytestmark = [
    *needs_a_node,
    pytest.mark.requires_program("virtlogd", "virsh", "qemu-system-x86_64", "nsenter"),
    pytest.mark.timeout(900),
]

RATE = 250
"""Frames a second: an emulated machine keeps up."""


@contextmanager
def both_up(tailrace: Path, more: str = "") -> Iterator[tuple[Node, Node]]:
    """A chain through the machine on one; the same chain on the other, which has none. `more`: words of the machine."""
    network = Network()
    try:
        for host in ("one", "two"):
            for side in (0, 1):
                network.pair(f"{host}{side}", f"{host}{side}p")
        with two_nodes(tailrace, network) as (one, two):
            for core, (host, node) in enumerate((("one", one), ("two", two))):
                text = spec_of(core, (f"{host}0", f"{host}1"), node is two)
                node("up", node.spec(text.replace("latency: normal", f"latency: normal{more}")))
            yield one, two
    finally:
        network.end()


@pytest.fixture(scope="module")
def nodes(tailrace: Path, images: Path) -> Iterator[tuple[Node, Node]]:
    del images
    with both_up(tailrace) as made:
        yield made


@pytest.fixture
def traffic(nodes: tuple[Node, Node]) -> Iterator[Hub]:
    """Frames to both nodes, and those that come from either."""
    network = nodes[0].network.name
    made = Hub(network, ["one0p", "two0p"], ["one1p", "two1p"], RATE)
    yield made
    made.end()


def running(node: Node) -> list[str]:
    return [name for name, state in node.machines().items() if state == "running"]


def place(nodes: tuple[Node, Node]) -> int:
    """Which of the nodes has the one copy."""
    found = [len(running(each)) for each in nodes]
    assert sum(found) == 1, found
    return found.index(1)


STEPS = {
    "place": "prepares a place for it",
    "memory": " % after ",
    "still": "stands still",
    "ended": "has ended here; what came for it",
    "told": "is to go on at",
}
"""What the command says of a move's steps, in their order."""
SLOW = ("place", "memory")
"""The steps in which a move that begins slowly stays until it is ended."""


def begin(source: Node, target: Node, step: str) -> subprocess.Popen[str]:
    """A move that has come to this step on return; in the first two it stays there, and a later one may be short."""
    limits = ("--bandwidth", "1MiB") if step in SLOW else ("--downtime", "60s")
    moving = source.begin("migrate", "first", target.state, *limits)
    steps = list(STEPS)
    awaited = [STEPS[each] for each in steps[steps.index(step) :]]
    assert moving.stdout is not None
    for line in moving.stdout:
        if any(each in line for each in awaited):
            return moving
    raise AssertionError(moving.communicate())


def test_it_moves_and_every_frame_is_accounted_for(nodes: tuple[Node, Node], traffic: Hub) -> None:
    one, two = nodes
    traffic.wait_from(0)
    assert json.loads(one("migrate", "first", two.state, "--dry-run", "--json").stdout)["possible"]
    moved = json.loads(one("migrate", "first", two.state, "--json").stdout)
    assert moved["pause_ms"] > 0 and moved["rounds"] > 0 and moved["bytes"] > 128 << 20, moved
    traffic.wait_from(1)
    assert place(nodes) == 1
    frames = traffic.account()
    assert (frames.lost, frames.duplicate, frames.out_of_sequence) == (0, 0, 0), frames
    assert all(node == 1 for _, _, node in traffic.received[traffic.from_(0) :]), "none from where it was"
    again = json.loads(one("migrate", "first", two.state, "--dry-run", "--json", status=2).stdout)
    assert {each["kind"] for each in again["reasons"]} == {"function"}
    assert f"function first: first (stopped, moved to {two.state})" in one("status").stdout
    refused = one("function", "start", "first", status=2).stderr
    assert f"first has moved to {two.state}, and runs there" in refused and place(nodes) == 1


def test_a_move_that_is_cancelled_leaves_it_where_it_is(nodes: tuple[Node, Node], traffic: Hub) -> None:
    source = nodes[place(nodes)]
    target = next(each for each in nodes if each is not source)
    traffic.wait_from(nodes.index(source))
    assert "no move of first is at work" in source("migrate", "first", "--cancel", status=2).stderr
    before = target.sockets()
    moving = begin(source, target, "memory")
    assert give_up_after(source.copies()[0], STALLED_SECONDS) == 1, "its memory has one way, which can be bounded"
    assert json.loads(source("migrate", "first", "--cancel", "--json").stdout)["cancelled"]
    error = moving.communicate(timeout=150)[1]
    assert moving.returncode == 130 and "first goes on here" in error
    traffic.wait_from(nodes.index(source))
    assert nodes[place(nodes)] is source and target.machines() == {}
    frames = traffic.account()
    assert (frames.lost, frames.duplicate, frames.out_of_sequence) == (0, 0, 0)
    assert target.sockets() == before, "what was prepared there is undone"


def test_a_full_disk_of_the_other_node_leaves_it_where_it_is(nodes: tuple[Node, Node], traffic: Hub) -> None:
    source = nodes[place(nodes)]
    target = next(each for each in nodes if each is not source)
    traffic.wait_from(nodes.index(source))
    before = target.sockets()
    filler = fill(target.disk)
    try:
        error = source("migrate", "first", target.state, status=2).stderr
        refused = json.loads(target("migrate", "first", source.state, "--dry-run", "--json", status=2).stdout)
    finally:
        filler.unlink()
    assert f"storage: 0 KiB are free there on the disk of {target.state}" in error, error
    assert f"0 KiB are free here on the disk of {target.state}" in json.dumps(refused["reasons"])
    traffic.wait_from(nodes.index(source))
    assert nodes[place(nodes)] is source and target.machines() == {}
    frames = traffic.account()
    assert (frames.lost, frames.duplicate, frames.out_of_sequence) == (0, 0, 0), frames
    assert target.sockets() == before, "what was prepared there is undone"


@pytest.mark.parametrize("whose", ["source", "target"])
def test_a_disk_that_fills_while_memory_is_sent_loses_nothing(
    nodes: tuple[Node, Node], traffic: Hub, whose: str
) -> None:
    source = nodes[place(nodes)]
    target = next(each for each in nodes if each is not source)
    traffic.wait_from(nodes.index(source))
    moving = source.begin("migrate", "first", target.state, "--bandwidth", "64MiB")
    (machine,) = source.copies()
    assert moving.stdout is not None
    assert any(STEPS["memory"] in line for line in moving.stdout), moving.communicate()
    os.kill(machine, signal.SIGSTOP)
    try:
        assert running(source), "it has not been sent yet"
        filler = fill((source if whose == "source" else target).disk)
    finally:
        os.kill(machine, signal.SIGCONT)
    try:
        said = moving.communicate(timeout=150)
    finally:
        filler.unlink()
    assert moving.returncode == 0, said
    traffic.wait_from(nodes.index(target))
    assert nodes[place(nodes)] is target and [len(each.copies()) for each in (source, target)] == [0, 1]
    assert f"function first: first (stopped, moved to {target.state})" in source("status").stdout
    frames = traffic.account()
    assert (frames.lost, frames.duplicate, frames.out_of_sequence) == (0, 0, 0), frames


def test_a_standby_takes_over_while_a_machine_is_sent(nodes: tuple[Node, Node], traffic: Hub) -> None:
    source = nodes[place(nodes)]
    target = next(each for each in nodes if each is not source)
    traffic.wait_from(nodes.index(source))
    other = "other: {kind: skeleton, latency: normal, replicas: {1: active, 2: standby}}"
    text = (source.folder / "spec.yaml").read_text()
    text = text.replace("functions: {", f"functions: {{{other}, ").replace(", first, ", ", first, other, ")
    source("apply", source.spec(text, "more.yaml"))
    try:
        with closing(Client(source.state, look=True)) as client:
            client.subscribe()
            moving = begin(source, target, "memory")
            (active,) = (each for each in State(source.state, peek(source.state)).processes() if each.name == "other")
            kill(active.inner()[-1].pid)
            assert next_event(client, "function.took_over")["about"] == "other-2"
            traffic.wait_from(nodes.index(source))
            assert moving.poll() is None, "it is still sent"
            source("migrate", "first", "--cancel")
            assert moving.wait(150) == 130
            assert next_event(client, "function.restarted")["about"] == "other"
        (found,) = (each for each in source.status()["functions"] if each["name"] == "other")
        roles = {each["name"]: each["state"] for each in found["replicas"]}
        assert roles == {"other": "standby", "other-2": "active"}, "the move has not written down what was before it"
        traffic.wait_from(nodes.index(source))
    finally:
        source("apply", source.folder / "spec.yaml")


def test_a_host_is_drained(nodes: tuple[Node, Node], traffic: Hub) -> None:
    source = nodes[place(nodes)]
    target = next(each for each in nodes if each is not source)
    traffic.wait_from(nodes.index(source))
    words = ("drain", "--all", "--to", target.state, "--json")
    would = json.loads(source(*words, "--dry-run").stdout)
    assert (would["moves"], would["stays"]) == (["first"], {}) and nodes[place(nodes)] is source
    assert json.loads(source(*words).stdout)["moves"] == ["first"]
    traffic.wait_from(nodes.index(target))
    assert nodes[place(nodes)] is target
    assert "Nothing runs here any more" in source(*words[:-1]).stdout
    again = json.loads(source(*words).stdout)
    assert again["moves"] == [] and again["stays"] == {}


def lead_to_both(network: Network, end: str, others: list[str]) -> None:
    """A cable of the tester's, whose frames go to all of these and whose own come from each."""
    network.pair(end, f"{end}p")
    network.run("ip", "link", "add", f"{end}b", "type", "bridge", "forward_delay", "0", "ageing_time", "0")
    network.run("ip", "link", "set", f"{end}b", "up")
    for each in (f"{end}p", *others):
        network.run("ip", "link", "set", each, "master", f"{end}b")
    for each in others:
        network.run("ip", "link", "set", each, "type", "bridge_slave", "isolated", "on")


@pytest.mark.whole
def test_the_tester_measures_the_outage(nodes: tuple[Node, Node], tailrace: Path) -> None:
    one, two = nodes
    network, source = one.network, place(nodes)
    try:
        for side in (0, 1):
            lead_to_both(network, f"end{side}", [f"one{side}p", f"two{side}p"])
        with open_folder() as folder:
            program = folder / "tailrace"
            program.write_text(f'#!/bin/sh\nexec {" ".join(network.within)} {tailrace} "$@"\n')
            program.chmod(0o755)
            command = Command(program, folder)
            words = ("--hosts", one.state, two.state, "--between", "if:end0", "if:end1", "--json")
            spec = command.spec(spec_of(0, ("a", "b"), False))
            run = json.loads(command("measure", "migration", spec, *words).stdout)
    finally:
        for side in (0, 1):
            network.run("ip", "link", "del", f"end{side}b")
            network.run("ip", "link", "del", f"end{side}")
    assert place(nodes) == 1 - source
    (found,), (trial,) = run["findings"], run["trials"]
    assert set(found["outages_ms"]) == {"a-to-b-0", "a-to-b-1", "b-to-a-0", "b-to-a-1"}
    assert all(0 < each < found["total_ms"] for each in found["outages_ms"].values())
    assert found["pause_ms"] > 0 and found["switch_ms"] > 0 and found["rounds"] > 0
    assert (found["lost"], found["duplicate"], found["out_of_sequence"]) == (0, 0, 0), found
    assert run["valid"] and trial["name"] == found["trial"] and trial["directions"][0]["received"] > 0


PARTIES: dict[str, Callable[[Node, Node], int]] = {
    "QEMU of the source": lambda source, _: source.copies()[0],
    "QEMU of the target": lambda _, target: wait_until(target.copies)[0],
    "libvirt of the source": lambda source, _: source.daemon(),
    "libvirt of the target": lambda _, target: target.daemon(),
    "service of the source": lambda source, _: source.service(),
    "service of the target": lambda _, target: target.service(),
    "switch of the source": lambda source, _: source.switch(),
    "switch of the target": lambda _, target: target.switch(),
    "command": lambda source, _: source.begun[-1].pid,
}
"""Who takes part in a move, by process."""
BEGUN = ("QEMU of the target", "libvirt of the target", "command")
"""Who may not be there before it."""
GOES_ON_WITHOUT = ("switch of the source", "command")
"""Whose end does not end a move that has begun, so that it is cancelled. Nor does that of a libvirt before the move
needs it: it is started again then."""
TABLE = [
    pytest.param(party, step, marks=() if (party, step) == ("QEMU of the target", "memory") else pytest.mark.whole)
    for step in STEPS
    for party in PARTIES
    if (party, step) not in (("QEMU of the source", "ended"), ("QEMU of the source", "told"))  # it has ended by then
]


@pytest.mark.parametrize(("party", "step"), TABLE)
def test_one_copy_runs_whoever_is_killed_at_whichever_step(
    nodes: tuple[Node, Node], traffic: Hub, party: str, step: str
) -> None:
    source = nodes[place(nodes)]
    target = next(each for each in nodes if each is not source)
    traffic.wait_from(nodes.index(source))
    machine, sockets, since = source.copies(), target.sockets(), len(traffic.received)
    process = None if party in BEGUN else PARTIES[party](source, target)
    moving = begin(source, target, step)
    kill(process or PARTIES[party](source, target))
    if (party in GOES_ON_WITHOUT and step in SLOW) or (party.startswith("libvirt") and step == "place"):
        source("migrate", "first", "--cancel", status=None)
    target("up", target.folder / "spec.yaml")  # what has ended of a node is there again
    error = moving.communicate(timeout=150)[1]
    source("up", source.folder / "spec.yaml")
    for each in nodes:
        each("status", status=None)  # which asks libvirt
    wait_until(lambda: sum(len(running(each)) for each in nodes) == 1, 150)
    where = place(nodes)
    traffic.wait_from(where, 150)
    here, there = nodes[where], nodes[1 - where]
    assert place(nodes) == where and not there.machines(), "nothing is left of the other one"
    assert [len(each.copies()) for each in (here, there)] == [1, 0]
    if step in SLOW:
        assert here is source, "it has not gone"
        if party == "QEMU of the source":
            assert "first has ended here" in error and "goes on here" not in error, error
        else:
            assert source.copies() == machine, "it was not started anew"
    if here is source:
        assert target.sockets() == sockets, "what was prepared there is undone"
    if party in ("QEMU of the target", "switch of the target") and step == "memory":
        assert moving.returncode == 1 and "first goes on here" in error, error
        frames = traffic.account(since)
        assert (frames.lost, frames.duplicate, frames.out_of_sequence) == (0, 0, 0), frames
    again = json.loads(here("migrate", "first", there.state, "--dry-run", "--json").stdout)
    assert again["possible"], again


@pytest.mark.whole
def test_a_port_that_stands_by_moves(tailrace: Path, images: Path) -> None:
    """No virtual function is there on either node: the ports carry all, by the interface that stands for both."""
    del images
    macs = ("02:00:00:00:00:0a", "02:00:00:00:00:0b")
    failover = ", ".join(f"{port}: {{mac: '{mac}'}}" for port, mac in enumerate(macs))
    with both_up(tailrace, f", driver: linux, failover: {{{failover}}}") as nodes:
        one, two = nodes
        hub = Hub(one.network.name, ["one0p", "two0p"], ["one1p", "two1p"], RATE)
        try:
            hub.wait_from(0)
            # Before the bridge is one interface for both, of each port.
            joined = agent.ask(one.state / "logs/first.agent", "ls -d /sys/class/net/bridge/lower_*/lower_* | wc -l")
            assert joined.strip() == str(len(macs))
            one("migrate", "first", two.state)
            hub.wait_from(1)
            frames = hub.account()
            assert (frames.lost, frames.duplicate, frames.out_of_sequence) == (0, 0, 0), frames
        finally:
            hub.end()
