"""What the service does by itself, without a switch."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tailrace.errors import Failure, Interrupted, Mistake
from tailrace.node import moving, priorities
from tailrace.node.api import METHODS, Named, Params
from tailrace.node.operations import LedAround, only_one
from tailrace.node.server import Call
from tailrace.node.service import _PLANS, Service, _ended_well, _Work
from tailrace.plan.make import make_plan
from tailrace.process.process import ProcessId, identify
from tailrace.resources.topology import Cpu
from tailrace.spec.load import parse_spec
from tailrace.state.record import FilePath, Follower, Held, Process, Record, Unsettled, holding

MACHINE = "functions: {fw: {kind: skeleton, runs: machine}}\nchains: {v: [tester.a, fw, tester.b]}\n"


def test_the_end_of_a_measurement_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it changes the switch: each would be a look every few seconds while it measures."""
    service = Service(Held(tmp_path), while_up=True)
    at_work, timers = [True], list[Callable[[], object]]()
    monkeypatch.setattr("tailrace.node.service.run_at_work", lambda _: at_work[0])
    monkeypatch.setattr(service.server, "soon", timers.append)

    def work() -> None:
        while not service._queue.empty():
            service._queue.get().do()

    for _ in range(3):
        service._configured_by(1)
        work()
    assert len(timers) == 1
    at_work[0] = False
    service._compare()  # as the timer has it done
    service._configured_by(1)
    assert service._queue.qsize() == 1
    service.server.loop.close()


def test_a_record_of_an_earlier_boot_in_the_place_of_that_of_what_runs_is_no_record(tmp_path: Path) -> None:
    """As of a copy that somebody has put back: the service stays, and leaves alone what it does not know."""
    service = Service(Held(tmp_path), while_up=True)
    wait = ["-c", "import sys; sys.stdin.read()", "--control", str(tmp_path / "sockets/switch.control")]
    with subprocess.Popen(["tailrace-switch", *wait], executable=sys.executable, stdin=subprocess.PIPE) as switch:
        while not Path(f"/proc/{switch.pid}/cmdline").read_bytes():
            time.sleep(0.01)
        found = identify(switch.pid)
        assert found is not None
        service._known = {"switch": found}
        with holding(tmp_path) as here:
            state = here.state()
            state.record.things = [FilePath(str(tmp_path / "a.sock")), Process("switch", found.pid, found.start)]
            state.record.complete = True
            state.save()
            assert service.wholly_up()
            state.record.boot = "another"
            state.save()
            assert service.something_up() and not service.wholly_up()
            assert f"process {switch.pid}" in str(service._unreadable)
        switch.kill()
    service.server.loop.close()


def test_a_plan_keeps_nobody_from_looking_after_what_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made again after that. A large spec takes seconds to read, and who may only look may send one."""
    service = Service(Held(tmp_path), while_up=True)
    monkeypatch.setattr(service, "_see", lambda _: None)
    begun, answers = threading.Event(), list[Any]()
    tries: list[int] = []

    def plan() -> dict[str, Any]:
        tries.append(1)
        if len(tries) == 1:
            begun.set()
            time.sleep(60)
        return {"tries": len(tries)}

    nobody: Any = None
    call = Call(METHODS["node.plan"], Params(), 0, nobody, 1, service.server)
    work = _Work(_PLANS, plan, call, answers.append)

    def end() -> None:
        begun.wait()
        service._look_soon()

    before = signal.signal(signal.SIGINT, service._interrupted)
    try:
        threading.Thread(target=end).start()
        service._do(work)
        assert answers == []
        assert service._queue.get().do == service._look
        assert service._queue.get() is work
        service._do(work)
    finally:
        signal.signal(signal.SIGINT, before)
    assert answers == [{"tries": 2}]
    service.server.loop.close()


@pytest.fixture
def machine() -> Iterator[Process]:
    """A process in the place of QEMU."""
    with subprocess.Popen(["sleep", "60"]) as started:
        found = identify(started.pid)
        assert found is not None
        yield Process("r@2", found.pid, found.start, "qemu-system-x86_64", runtime="machine")
        started.kill()


def test_only_a_move_that_is_at_work_is_cancelled(tmp_path: Path) -> None:
    service = Service(Held(tmp_path), while_up=True)
    with pytest.raises(Mistake, match="nothing is up; run"):
        service._cancel_move("fw")
    plan = make_plan(parse_spec(MACHINE, "s"), cpus=[Cpu(number, 0, number) for number in range(8)], real_time=None)
    with holding(tmp_path) as here:
        state = here.state()
        state.record.plan, state.record.complete = plan.as_data(), True
        state.record.things = [Process("fw", 1, 1, "fw", runtime="machine")]
        state.save()
        with pytest.raises(Mistake, match="'nosuch' is no function that Tailrace has started; there are: fw"):
            service._cancel_move("nosuch")
        with pytest.raises(Mistake, match="no move of fw is at work; `tailrace status` says whether it runs here"):
            service._cancel_move("fw")
    service.server.loop.close()


def test_who_gives_up_waiting_has_its_answer_at_once(tmp_path: Path) -> None:
    """Though what it waits for may take minutes; then nothing is done for it."""
    service = Service(Held(tmp_path), while_up=True)
    done: list[Call] = []
    service._methods["node.down"] = lambda call: done.append(call) or {}
    nobody: Any = None
    call = Call(METHODS["node.down"], Params(), 0, nobody, 1, service.server)

    async def ask() -> None:
        asked = asyncio.ensure_future(service._answer(call))
        await asyncio.sleep(0)
        service._cancel(call, "interrupted by Ctrl-C")
        with pytest.raises(Interrupted, match="interrupted by Ctrl-C"):
            await asked

    service.server.loop.run_until_complete(ask())
    assert service._queue.qsize() == 1 and service._waiting == {}
    service._do(service._queue.get())
    service.server.loop.run_until_complete(asyncio.sleep(0))  # what was to be told is dropped
    assert done == []
    service.server.loop.close()


def test_what_decides_about_a_move_is_told_while_another_is_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(Held(tmp_path), while_up=True)
    nobody: Any = None
    call = Call(METHODS["migrate.facts"], Named(name="fw"), 0, nobody, 1, service.server)
    monkeypatch.setattr(moving, "facts", lambda folder, name, beside: {"of": (folder, name, beside.to)})
    answer = service.server.loop.run_until_complete(service._answer(call))  # nobody does what waits
    assert answer == {"facts": {"of": (tmp_path, "fw", None)}} and service._queue.empty()
    service.server.loop.close()


def killed() -> ProcessId:
    with subprocess.Popen(["sleep", "60"]) as started:
        found = identify(started.pid)
        assert found is not None
        started.kill()
    return found


def test_a_follower_that_was_killed_is_started_again_and_the_planned_priority_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Process
) -> None:
    held = Held(tmp_path)
    service = Service(held, while_up=True)
    gone = killed()
    follower = Follower(gone.pid, gone.start, machine.name, cpus=(0,), planned=((machine.pid, 0, 0),))
    record = Record("boot", things=[machine, follower], complete=True)
    said: list[tuple[str, str | None]] = []
    given: list[Follower] = []
    tried: list[str] = []

    def start_again(_: Held, key: str) -> str:
        tried.append(key)
        if len(tried) == 1:
            raise Failure("its agent does not answer")
        return machine.name

    monkeypatch.setattr(service, "_record", lambda: record)
    monkeypatch.setattr(service, "_lead_around", lambda: None)
    monkeypatch.setattr("tailrace.node.service._policies", lambda _: {"r": "always"})
    monkeypatch.setattr(service.server, "publish", lambda kind, name, **_: said.append((kind, name)))
    monkeypatch.setattr(priorities, "give_back", lambda _, each: given.append(each))
    monkeypatch.setattr(priorities, "start_again", start_again)
    service._look()
    assert given == [follower] and tried == ["r.priority"]
    assert said == [("function.priority_lost", "r@2"), ("function.priority_lost", "r")]
    service._look()  # it is told once, and tried again after a pause
    assert len(said) == 2 and len(tried) == 1
    service._restarts.put_off("r.priority", 0.0)
    service._start_again()
    assert said[2:] == [("function.priority_back", "r@2")] and len(tried) == 2
    assert service._restarts.due(float("inf")) == []
    service.server.loop.close()


def test_a_follower_that_ended_with_its_machine_is_not_wanted(machine: Process) -> None:
    gone = killed()
    follower = Follower(gone.pid, gone.start, machine.name)
    assert priorities.ended(Record("boot", things=[machine, follower])) == [(follower, machine)]
    assert priorities.ended(Record("boot", things=[follower])) == []
    ended = Process(machine.name, gone.pid, gone.start, "qemu-system-x86_64")
    assert priorities.ended(Record("boot", things=[ended, follower])) == []


def test_several_that_have_ended_are_asked_after_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Podman may take seconds for each."""
    together = threading.Barrier(3)

    def asked(process: Process, _: Path) -> bool:
        together.wait(60)
        return process.name == "b"

    monkeypatch.setattr("tailrace.node.service.ended_well", asked)
    record = Record("boot", things=[Process(name, 1, 1, "tailrace-vnf") for name in "abcd"])
    assert _ended_well("abc", record, tmp_path) == {"b"}
    assert _ended_well("", record, tmp_path) == set()


def test_a_chain_leads_past_before_it_is_asked_how_a_function_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Podman may take a while to say. Listeners hear of the end first all the same."""
    service = Service(Held(tmp_path), while_up=True)
    gone = killed()
    switch = Process("switch", 1, 1, "tailrace-switch")
    plan = {"functions": [{"name": "fw", "function": "fw"}]}
    things = [switch, Process("fw", gone.pid, gone.start, "tailrace-vnf", runtime="container")]
    record = Record("boot", things=things, complete=True, plan=plan)
    done: list[str] = []

    def lead_around(_: Held, but: Collection[str]) -> LedAround:
        assert not but
        done.append("led")
        return LedAround(["voice"], ["fw"])

    def ended_well(*_: object) -> bool:
        done.append("asked")
        return True

    monkeypatch.setattr(service, "_record", lambda: record)
    monkeypatch.setattr(service, "_start_again", dict)
    monkeypatch.setattr("tailrace.node.service._running", lambda _: {"switch": switch.id})
    monkeypatch.setattr("tailrace.node.service._policies", lambda _: {"fw": "on-failure"})
    monkeypatch.setattr("tailrace.node.service.operations.lead_around", lead_around)
    monkeypatch.setattr("tailrace.node.service.ended_well", ended_well)
    monkeypatch.setattr(service.server, "publish", lambda kind, *_, **__: done.append(kind))
    service._noticed["switch"] = switch.id
    service._look()
    assert done == ["led", "asked", "function.died", "chain.bypassed"]
    service.server.loop.close()


def test_while_a_machine_is_sent_others_chains_are_looked_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a cancel that comes meanwhile comes after that. The machine itself is who moves it to see to."""
    service = Service(Held(tmp_path), while_up=True)
    gone, moved = killed(), killed()
    switch = Process("switch", 1, 1, "tailrace-switch")
    things = [Process("nat", gone.pid, gone.start), Process("fw@2", moved.pid, moved.start)]
    plan: dict[str, Any] = {"functions": []}
    record = Record("boot", things=[switch, *things], complete=True, plan=plan, instances={"fw": 2})
    done: list[Any] = []

    def lead_around(_: Held, but: Collection[str]) -> LedAround:
        signal.raise_signal(signal.SIGINT)
        done.append(list(but))
        return LedAround(took_over={"nat-2": "nat"})

    monkeypatch.setattr(service, "_record", lambda: record)
    monkeypatch.setattr(service, "_start_again", lambda: done.append("started") or {})
    monkeypatch.setattr("tailrace.node.service._running", lambda _: {"switch": switch.id})
    monkeypatch.setattr("tailrace.node.service._policies", lambda _: {"nat": "always", "fw": "always"})
    monkeypatch.setattr("tailrace.node.service.operations.lead_around", lead_around)
    monkeypatch.setattr(service.server, "publish", lambda kind, name, **_: done.append((kind, name)))
    service._noticed["switch"] = switch.id
    service._see_to_others("fw", lambda: done.append("changed"))
    assert done == [], "nothing has ended since it was looked"
    service._look_soon()
    with pytest.raises(KeyboardInterrupt):
        service._see_to_others("fw", lambda: done.append("changed"))
    ended = [("function.died", "nat"), ("function.took_over", "nat-2")]
    assert done == [["fw"], *ended, "changed"]
    service._see_to_others("fw", lambda: done.append("again"))
    assert len(done) == 4
    done.clear()
    monkeypatch.setattr("tailrace.node.service.operations.lead_around", lambda *_: LedAround())
    service._queue.get().do()
    assert done == [("function.died", "fw@2"), "started"] and set(service._restarts.due(time.monotonic())) == {
        "nat",
        "fw",
    }
    service.server.loop.close()


def test_functions_that_went_with_their_card_are_told_with_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever makes them again; and what was told before the node went down is told again."""
    service = Service(Held(tmp_path), while_up=True)
    record, gone, told = Record("boot", complete=True), list[str](), list[tuple[str, dict[str, Any]]]()

    def make(_: Held) -> list[str]:
        if gone:
            raise Failure("the card is down")
        return ["eth1/0", "eth1/1"]

    monkeypatch.setattr(service, "_record", lambda: record)
    monkeypatch.setattr(service.server, "soon", lambda _: None)
    monkeypatch.setattr(service.server, "publish", lambda kind, **details: told.append((kind, details)))
    monkeypatch.setattr("tailrace.node.service.operations.functions_gone", lambda _: list(gone))
    monkeypatch.setattr("tailrace.node.service.operations.make_functions_again", make)
    lost, back = ("card.lost", {"why": "the card is down"}), ("card.back", {"functions": ["eth1/0", "eth1/1"]})

    def look(*missing: str, complete: bool = True) -> None:
        gone[:], record.complete = missing, complete
        service._make_functions_again()

    look()  # all are there
    assert told == []
    look("eth1/0")
    look("eth1/0", "eth1/1", "eth2/0")  # of which a change takes the last out of the plan
    look()
    look()
    assert told == [lost, back]
    look("eth1/0")
    look("eth1/0", complete=False)
    look("eth1/0")
    look("eth1/0", complete=False)
    look()
    assert told == [lost, back, lost, lost]
    service.server.loop.close()


def test_other_nodes_are_asked_for_machines_while_the_service_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that does not answer, and one whose machine cannot be started, keep nobody from the others."""
    service = Service(Held(tmp_path), while_up=True)
    unsettled = {each: Unsettled(f"host-{each}", 32 * each) for each in "abcd"}
    record = Record("boot", complete=True, stopped=list("abcd"), unsettled=dict(unsettled))
    works, answers = threading.Event(), {"b": False, "c": True, "d": False}
    settled: list[tuple[str, bool]] = []
    said: list[tuple[str, str | None]] = []

    def came(_: Path, name: str, of: Unsettled) -> bool:
        assert works.wait(60) and of == unsettled[name]
        if name == "a":
            raise Failure("no answer")
        return answers[name]

    def settle(_: Held, name: str, of: Unsettled, *, came: bool) -> bool:
        assert of == unsettled[name]
        settled.append((name, came))
        if name == "b":
            raise Failure("no memory")
        del record.unsettled[name]
        return not came

    monkeypatch.setattr(service, "_record", lambda: record)
    monkeypatch.setattr(moving, "came", came)
    monkeypatch.setattr(moving, "settle", settle)
    monkeypatch.setattr(service.server, "publish", lambda kind, name, **_: said.append((kind, name)))
    service._settling = True
    service._settle()
    works.set()
    while service._settling:
        service._queue.get(timeout=60).do()
    assert settled == [("b", False), ("c", True), ("d", False)]
    assert said == [("function.returned", "d")] and list(record.unsettled) == ["a", "b"]
    assert "a, host-a: no answer" in caplog.text and "b, host-b: no memory" in caplog.text
    service.server.loop.close()


def test_of_several_replicas_the_first_has_the_functions_name() -> None:
    started = [SimpleNamespace(name=name, function="fw", runs="machine") for name in ("fw", "fw-2", "fw-3")]
    node = cast(Any, SimpleNamespace(plan=SimpleNamespace(started=started)))
    assert [only_one(node, name)[0] for name in ("fw", "fw-3")] == ["fw", "fw-3"]
    del started[0]
    with pytest.raises(Mistake, match="'fw' has several replicas; name one of them: fw-2, fw-3"):
        only_one(node, "fw")
