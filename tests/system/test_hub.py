"""The hub beside two nodes notes frames in the order in which they came, however late it looks."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from types import SimpleNamespace
from typing import Any

import pytest
from private_network import Network

from tailrace.bench import hub
from tailrace.bench.hub import Hub, packet_socket
from tailrace.measure.two_nodes import wait_until

pytestmark = pytest.mark.requires_root


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network()
    made.pair("near0", "far0")
    made.pair("near1", "far1")
    yield made
    made.end()


def test_frames_of_two_nodes_are_noted_as_they_came(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = threading.Event()

    def late(*arguments: Any) -> Any:
        looks.wait()
        return select.select(*arguments)

    monkeypatch.setattr(hub, "select", SimpleNamespace(select=late))
    with ExitStack() as stack:
        beside = Hub(network.name, [], ["near0", "near1"], 1000)
        stack.callback(beside.end)
        stack.callback(looks.set)
        far = [stack.enter_context(closing(packet_socket(network.name, f"far{end}"))) for end in (0, 1)]
        for number, node in ((10, 0), (11, 0), (12, 0), (13, 1), (14, 0)):
            far[node].send((hub._HEAD + hub._NUMBER.pack(number)).ljust(60, b"\0"))
        looks.set()
        wait_until(lambda: len(beside.received) == 5, 60, "not all frames come")
    assert [(number, node) for _, number, node in beside.received] == [(10, 0), (11, 0), (12, 0), (13, 1), (14, 0)]
    assert beside.account().out_of_sequence == 0
