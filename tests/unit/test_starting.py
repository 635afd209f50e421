"""Functions that are started, several at a time where their place can do that."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.errors import Failure
from tailrace.functions.runtime import Started
from tailrace.node import running
from tailrace.node.running import Node
from tailrace.state.record import Process


class Place:
    """A place whose instances start once so many are about to."""

    def __init__(self, together: int, *, several: bool = True, fails: str = "") -> None:
        self.several = several
        self.fails = fails
        self.barrier = threading.Barrier(together)
        self.ended: list[str] = []

    def start(self, _launcher: object, instance: Any) -> Started:
        name: str = instance.name
        self.barrier.wait(60)
        self.ended.append(name)
        if name == self.fails:
            raise Failure(f"{name} does not start")
        return Started(Process(name, 1, 1), ["they are emulated"])


def start(monkeypatch: pytest.MonkeyPatch, place: Place, *names: str) -> tuple[list[str], list[str]]:
    """The processes, and the notes."""
    monkeypatch.setattr(running, "STARTERS", {"there": place})
    plan: Any = SimpleNamespace(functions=[SimpleNamespace(name=name, runs="there") for name in sorted(names)])
    node: Any = SimpleNamespace(launcher=None, notes=[])
    node._instance = lambda _plan, planned, _number: SimpleNamespace(name=planned.name, group=0)
    node._surround = lambda *_: None
    processes = Node.start_functions(node, plan, dict.fromkeys(names, 1))
    return [each.name for each in processes], node.notes


def test_several_start_at_the_same_time_and_are_said_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names, notes = start(monkeypatch, Place(3), "c", "a", "b")
    assert (names, notes) == (["c", "a", "b"], ["they are emulated"])


def test_others_start_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(1, several=False)
    assert start(monkeypatch, place, "b", "a")[0] == ["b", "a"] and place.ended == ["a", "b"]


def test_one_that_fails_is_said_when_the_others_have_started(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(3, fails="a")
    with pytest.raises(Failure, match="a does not start"):
        start(monkeypatch, place, "a", "b", "c")
    assert sorted(place.ended) == ["a", "b", "c"]
