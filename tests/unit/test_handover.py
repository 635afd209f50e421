"""Connections pass from one instance to the next by the node, whatever either of them says."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.functions.handover import HandOver
from tailrace.state.record import Process, Record, State

OLD, NEW = (Process(name, 1, 1, "tailrace-vnf", runtime="process") for name in ("fw", "fw@2"))
Asked = list[tuple[str, dict[str, Any]]]


@pytest.fixture(name="state")
def fixture_state(tmp_path: Path) -> State:
    for each in (OLD, NEW):
        (tmp_path / "sockets" / f"{each.name}.0").mkdir(parents=True)
    return State(tmp_path, Record("boot"))


@contextmanager
def instance(state: State, process: Process, answer: Callable[[str, dict[str, Any]], object]) -> Iterator[Asked]:
    """One that answers so, and what it was asked."""
    asked: Asked = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(state.sockets / f"{process.name}.0" / "control"))
        listener.listen()

        def serve() -> None:
            while True:
                connection, _ = listener.accept()
                with connection, connection.makefile("rb") as stream:
                    line = stream.readline()
                    if not line:
                        return  # of the end of the test
                    request = json.loads(line)
                    asked.append((request["method"], request["params"]))
                    result = answer(request["method"], request["params"])
                    connection.sendall(json.dumps({"id": request["id"], "result": result}).encode() + b"\n")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield asked
        finally:
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(listener.getsockname())
            thread.join(10)


def pages(_method: str, params: dict[str, Any]) -> object:
    if "since" in params:
        return {"connections": "ee", "next": 0, "tick": 900}
    return {"connections": "aa", "next": 5, "tick": 700} if params["from"] == 1 else {**NOTHING, "tick": 800}


NOTHING = {"connections": "", "next": 0, "tick": 0}


def taken(_method: str, params: dict[str, Any]) -> object:
    return {"taken": 3, "unfit": 1} if params["connections"] == "aa" else {"updated": 2}


def test_all_is_handed_over_and_then_what_was_seen_since(state: State) -> None:
    hand_over = HandOver(state, OLD, NEW)
    with instance(state, OLD, pages) as asked, instance(state, NEW, taken) as told:
        hand_over.step()
        hand_over.step()
    assert [each for _, each in asked] == [{"from": 1}, {"from": 5}, {"from": 1, "since": 700}]
    assert [each["connections"] for _, each in told] == ["aa", "ee"]
    assert hand_over.counts == {"taken": 3, "unfit": 1, "updated": 2}
    assert hand_over.said() == "fw: 3 connections handed over; not taken: 1 unfit"


def test_of_no_connections_nothing_is_said(state: State) -> None:
    hand_over = HandOver(state, OLD, NEW)
    with instance(state, OLD, lambda *_: NOTHING), instance(state, NEW, taken) as told:
        hand_over.step()
    assert not told and hand_over.said() is None


def test_what_else_an_instance_knows_is_passed_on_too(state: State) -> None:
    hand_over = HandOver(state, OLD, NEW)
    with instance(state, OLD, lambda *_: {**NOTHING, "told": "ab"}), instance(state, NEW, lambda *_: {}) as told:
        hand_over.step()
    assert told == [("take_connections", {"connections": "", "told": "ab"})]
    assert hand_over.said() is None


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"connections": "", "next": 1, "tick": 0}, "fw does not come to an end of its connections"),
        ({"connections": "", "next": -4, "tick": 0}, "fw does not come to an end of its connections"),
        ({"connections": 7}, "its answer is no page of connections"),
        ([], "its answer is no page of connections"),
    ],
)
def test_an_old_instance_that_lies_stops_nothing(state: State, answer: object, why: str) -> None:
    hand_over = HandOver(state, OLD, NEW)
    with instance(state, OLD, lambda *_: answer) as asked:
        hand_over.step()
        hand_over.step()
    assert len(asked) == 1
    assert hand_over.said() == f"fw: not all connections were handed over: {why}"


@pytest.mark.parametrize("answer", [None, {"taken": -1}, {"taken": "many"}])
def test_so_does_a_new_one(state: State, answer: object) -> None:
    hand_over = HandOver(state, OLD, NEW)
    with instance(state, OLD, pages), instance(state, NEW, lambda *_: answer):
        hand_over.step()
    assert (said := hand_over.said()) is not None and said.startswith("fw: not all connections")


def test_an_instance_that_has_gone_is_said(state: State) -> None:
    hand_over = HandOver(state, OLD, NEW)
    hand_over.step()
    assert (said := hand_over.said()) is not None and "fw cannot be asked" in said
