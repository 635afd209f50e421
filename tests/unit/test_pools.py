"""Functions that have their CPUs by their load, as the service looks at them: asked for once, and again after a no."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from tailrace.errors import Failure
from tailrace.node import pools
from tailrace.node.pools import Pooled, Pools, pooled
from tailrace.plan.make import make_plan
from tailrace.process.process import identify
from tailrace.resources.topology import Cpu
from tailrace.spec.load import parse_spec
from tailrace.state.record import Process, Record

PAGE = Path("/there/is/none")


class Busy:
    """A function that says how busy it is, in a moment that this file makes."""

    now = 100.0
    worked: ClassVar[dict[int, float]] = {}
    closed: ClassVar[list[int]] = []

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.worked.setdefault(pid, 0.0)

    @property
    def seconds(self) -> float:
        return self.worked[self.pid]

    def close(self) -> None:
        self.closed.append(self.pid)


class Turned(Pools):
    """Looks when it is told to."""

    def _run(self) -> None:
        self.pause = pools.LOOK

    def turn(self, loads: dict[int, float]) -> float | None:
        """Time goes on to the next look, during which functions were so busy; returns how long it is to the one after
        that."""
        Busy.now += self.pause
        for pid, load in loads.items():
            Busy.worked[pid] += load * self.pause
        found = self.look()
        self.pause = found or 0.0
        return found


def function(name: str = "first", pid: int = 10, count: int = 1) -> Pooled:
    process = Process(name, pid, 1, runtime="process")
    return Pooled(name, process, 1, 4, count, 0.75)


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    Busy.now, Busy.worked, Busy.closed = 100.0, {}, []
    monkeypatch.setattr(pools, "Busy", Busy)
    monkeypatch.setattr(pools, "program_of", lambda process: process.pid)
    monkeypatch.setattr("tailrace.node.pools.time.monotonic", lambda: Busy.now)


def test_a_burst_is_answered_and_nothing_is_asked_twice() -> None:
    asked: list[tuple[str, int, float]] = []
    found = Turned(lambda *what: asked.append(what), PAGE)
    found.watch([function()])
    assert found.turn({10: 0.0}) == pools.LOOK
    found.turn({10: 1.0})
    found.turn({10: 1.0})
    assert [each[:2] for each in asked] == [("first", 2)]
    assert asked[0][2] == pytest.approx(1.0)
    assert found.answered("first", 2) is False
    found.watch([function(count=2)])
    found.turn({10: 2.0})
    assert [each[:2] for each in asked[1:]] == [("first", 4)]


def test_it_looks_again_soon_when_one_becomes_busier() -> None:
    found = Turned(lambda *_: None, PAGE)
    found.watch([function()])
    assert found.turn({10: 0.0}) == pools.LOOK
    assert found.turn({10: 0.5}) == pools.SOON
    assert found.turn({10: 0.5}) == pools.LOOK, "it is as busy as before"


def test_a_no_is_told_once_and_asked_again_later() -> None:
    asked: list[float] = []
    found = Turned(lambda *_: asked.append(Busy.now), PAGE)
    found.watch([function()])
    found.turn({10: 1.0})
    assert found.answered("first", None) is True
    while len(asked) < 2:
        found.turn({10: 1.0})
    assert asked[1] - asked[0] >= 1.0
    assert found.answered("first", None) is False, "nothing new"


def test_who_has_gone_is_left_and_who_is_in_its_place_is_looked_at() -> None:
    asked: list[int] = []
    found = Turned(lambda _, count, __: asked.append(count), PAGE)
    found.watch([function(count=2)])
    found.watch([replace(function(count=2), process=function(pid=11).process)])
    assert Busy.closed == [10]
    while not asked:
        found.turn({11: 0.0})
    assert asked == [1]
    found.watch(())
    assert Busy.closed == [10, 11]
    assert found.turn({}) is None, "nobody is looked at any more"


def test_it_looks_by_itself_until_there_is_nobody_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(pools, "Busy", Busy)
    monkeypatch.setattr(pools, "program_of", lambda process: process.pid)
    asked = threading.Event()
    found = Pools(lambda *_: asked.set(), PAGE)
    found.watch([function(count=2)], os.sched_getaffinity(0))
    assert asked.wait(30), "it idles, and is to have fewer"
    found.watch(())
    for thread in threading.enumerate():
        if thread.name == "pools":
            thread.join(30)
            assert not thread.is_alive()


def test_none_is_looked_at_while_nothing_is_up() -> None:
    assert pooled(Record(boot="")) == []


def test_it_is_read_otherwise_as_soon_as_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rings(Busy):
        def __init__(self, page: Path, ports: tuple[str, ...]) -> None:
            assert (page, ports) == (PAGE, ("first.0",))
            super().__init__(20)

    monkeypatch.setattr(pools, "Unread", Rings)
    asked: list[int] = []
    found = Turned(lambda _, count, __: asked.append(count), PAGE)
    by_time = replace(function(), ports=("first.0",))
    found.watch([by_time])
    found.watch([replace(by_time, busy=0.5)])
    assert Busy.closed == [], "it is read as before"
    found.watch([replace(by_time, load="rings")])
    assert Busy.closed == [10]
    before = Busy.now
    while not asked:
        found.turn({10: 0.0, 20: 1.0})
    assert asked == [2] and Busy.now - before >= pools.SAMPLED
    found.watch(())
    assert Busy.closed == [10, 20]


@pytest.mark.parametrize(
    ("first", "load"),
    [
        ("{kind: skeleton, cpus: {most: 2, automatic: true}}", "rounds"),
        ("{runs: machine, image: own.qcow2, cpus: {most: 2, automatic: true}}", "time"),
    ],
)
def test_of_a_plan_that_does_not_say_how_it_is_read_as_ever(tmp_path: Path, first: str, load: str) -> None:
    """The version before had none of it on record."""
    (tmp_path / "own.qcow2").touch()
    text = f"functions: {{first: {first}}}\nchains: {{voice: [tester.a, first, tester.b]}}\n"
    cpus = [Cpu(number, 0, number) for number in range(4)]
    plan = make_plan(parse_spec(text, "s"), cpus=cpus, real_time=None, folder=tmp_path).as_data()
    (own,) = (each for each in plan["functions"] if each["name"] == "first")
    assert own.pop("load") == load
    id = identify(os.getpid())
    assert id is not None
    process = Process("first", id.pid, id.start, runtime=own["runs"])
    (found,) = pooled(Record(boot="", plan=plan, complete=True, things=[process]))
    assert (found.load, found.ports) == (load, ("first.0", "first.1"))


def test_a_process_that_is_asked_nothing_is_as_busy_as_the_kernel_says() -> None:
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as busy:
        meter = pools.CpuTime(busy.pid)
        before, deadline = meter.seconds, time.monotonic() + 60
        while meter.seconds < before + 0.05:
            assert time.monotonic() < deadline
        busy.kill()
        busy.wait()
        last = meter.seconds
        assert last >= before + 0.05 and meter.seconds == last, "as much as it had taken"
    with pytest.raises(Failure, match="the CPU time of process"):
        pools.CpuTime(busy.pid)
