"""A machine moves to another host by a real ssh: two network namespaces, and OpenSSH's server in the second one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from far_host import CABLE, FAR, HOST, two_hosts
from private_network import Network, statistics
from running_node import needs_a_node, wait_until
from two_nodes import Node

from tailrace.bench.hub import Hub
from tailrace.bench.migration import spec_of

pytestmark = [
    *needs_a_node,
    pytest.mark.requires_program("virtlogd", "virsh", "qemu-system-x86_64", "nsenter", "sshd", "ssh"),
    pytest.mark.timeout(900),
]
RATE = 250
"""Frames a second: an emulated machine keeps up."""
NO_FUNCTION = """\
fabric: {idle: sleep, cores: [0]}
chains: {voice: [{if: left}, {if: right}]}
"""


def test_ssh_that_does_not_get_there_is_told(tailrace: Path) -> None:
    with two_hosts(tailrace) as (near, _, far):
        near.network.pair("left", "right")
        near("up", near.spec(NO_FUNCTION))

        def refused(host: str, status: int = 1) -> str:
            return near("migrate", "first", host, "--dry-run", status=status).stderr

        said = refused(HOST)
        assert "Connection refused" in said and "no ssh server listens there" in said
        far.listen()
        said = refused(HOST)
        assert "Host key verification failed" in said and f"`ssh {HOST} true` as root" in said
        far.become_known()
        said = refused(f"root@{FAR}")
        assert "Permission denied (publickey" in said and f"`ssh-copy-id root@{FAR}` as root" in said
        far.let_in()
        said = refused(HOST, 2)
        assert "no service answers there in /run/tailrace; start one: `tailrace up SPEC`" in said


@contextmanager
def both_up(tailrace: Path) -> Iterator[tuple[Node, Node, Hub]]:
    """A chain through the machine on the near host; the same chain on the far one, which has none; frames to both."""
    between = Network()
    try:
        with two_hosts(tailrace) as (near, node, far):
            for host, each in (("one", near), ("two", node)):
                for side in (0, 1):
                    between.reach(f"{host}{side}p", each.network, f"{host}{side}")
            far.listen()
            far.become_known()
            far.let_in()
            near("up", near.spec(spec_of(0, ("one0", "one1"), False)))
            node("up", node.spec(spec_of(1, ("two0", "two1"), True)))
            hub = Hub(between.name, ["one0p", "two0p"], ["one1p", "two1p"], RATE)
            try:
                hub.wait_from(0)
                yield near, node, hub
            finally:
                hub.end()
    finally:
        between.end()


@pytest.mark.whole
def test_it_moves_and_every_frame_is_accounted_for(tailrace: Path, images: Path) -> None:
    del images
    with both_up(tailrace) as (near, node, hub):
        assert json.loads(near("migrate", "first", HOST, "--dry-run", "--json").stdout)["possible"]
        before = statistics(near.network, CABLE, "tx_bytes")
        moved = json.loads(near("migrate", "first", f"root@{FAR}", "--json").stdout)
        assert moved["pause_ms"] > 0 and moved["bytes"] > 128 << 20, moved
        assert statistics(near.network, CABLE, "tx_bytes") - before > 16 << 20, "its memory went by the cable"
        hub.wait_from(1)
        frames = hub.account()
        assert (frames.lost, frames.duplicate, frames.out_of_sequence) == (0, 0, 0), frames
        assert f"function first: first (stopped, moved to root@{FAR})" in near("status").stdout
        again = json.loads(near("migrate", "first", HOST, "--dry-run", "--json", status=2).stdout)
        assert {each["kind"] for each in again["reasons"]} == {"function"}, again
        assert near.machines() == {} and list(node.machines().values()) == ["running"]
        wait_until(lambda: not list(Path("/tmp").glob("tailrace-ssh-*")))
