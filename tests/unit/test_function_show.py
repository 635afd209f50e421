"""What a function says of itself: asked at its socket, and shown whatever its kind."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace.errors import Fault, Mistake
from tailrace.functions.show import Shown, ask
from tailrace.node.record import Process, Record, State

ANSWER = {
    "function": "router",
    "counters": {
        "function": "router",
        "ports": [{"port": "vhost-server:/run/port0/sock", "received": 5}, {"port": "x", "received": 0}],
        "sleeps": 0,
        "routes": {"ipv4": 2, "ipv6": 0},
    },
    "tables": {
        "ipv4_routes": {"total": 2, "rows": [{"prefix": "192.0.2.0/24", "to": ["198.18.79.2 port1", "port0"]}]},
        "neighbours": {"total": 1, "rows": [{"address": "198.18.79.2\x1b", "port": 1, "mac": None}]},
    },
}


@pytest.fixture(name="state")
def fixture_state(tmp_path: Path) -> State:
    (tmp_path / "sockets" / "edge@2.0").mkdir(parents=True)
    return State(tmp_path, Record("boot"))


EDGE = Process("edge@2", 1, 1, "tailrace-vnf", runtime="process")


@contextmanager
def function(state: State, result: object) -> Iterator[None]:
    """A function that answers so, once."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(state.sockets / "edge@2.0" / "control"))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as stream:
                asked = json.loads(stream.readline())
                assert asked["method"] == "show" and asked["params"] == {"most": 7}
                connection.sendall(json.dumps({"id": asked["id"], "result": result}).encode() + b"\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join(10)


def test_counters_and_tables_of_any_kind_are_shown(state: State) -> None:
    with function(state, ANSWER):
        shown = ask(state, EDGE, 7)
    assert shown.model_dump() == ANSWER
    assert list(shown.counted()) == [("received", [5, 0]), ("routes: ipv4", [2])]
    routes, neighbours = shown.tables.values()
    assert routes.columns == ["prefix", "to"]
    assert list(routes.texts()) == [["192.0.2.0/24", "198.18.79.2 port1, port0"]]
    assert list(neighbours.texts()) == [["198.18.79.2", "1", "-"]]  # nothing that a terminal acts on
    assert list(Shown(function="skeleton", counters={}, tables={}).counted()) == []


def test_what_cannot_be_asked_is_said(state: State) -> None:
    with pytest.raises(Mistake, match="edge@2 cannot be asked"):
        ask(state, EDGE, 7)
    control = state.sockets / "edge@2.0" / "control"
    control.symlink_to(state.control)  # no function leads a root's command elsewhere
    with pytest.raises(Mistake, match="edge@2 cannot be asked"):
        ask(state, EDGE, 7)
    control.unlink()
    with function(state, {"function": 1}), pytest.raises(Fault, match="answers with something else"):
        ask(state, EDGE, 7)
