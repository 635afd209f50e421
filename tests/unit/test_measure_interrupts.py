"""What is said of interrupts beside their latencies."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.cli.interrupts import METHOD, _left_of
from tailrace.errors import Failure, Mistake
from tailrace.functions import agent
from tailrace.functions.machine import InMachine
from tailrace.functions.runtime import Instance, PriorityRange
from tailrace.functions.vcpus import spread
from tailrace.measure import interrupts
from tailrace.measure.beside import Guest, Neighbour
from tailrace.measure.host.plan import HostPlan
from tailrace.measure.interrupt_plan import InterruptPlan
from tailrace.measure.interrupts import GUESTS, Account, Side, _histogram, notes_of
from tailrace.results import RunFolder
from tailrace.results.host import HostSoak

WELL = {
    "raised": 1000, "lost": 0, "wrong": 0, "held": 0, "reset": 0, "ipis": 0, "recording_ns": 0, "clock_error_ns": 0.0,
}  # fmt: skip


def test_nothing_is_said_of_interrupts_that_all_arrived_by_one_clock() -> None:
    account = Account()
    account.add(WELL)
    account.add(WELL)
    assert account.raised == 2000
    assert list(account.notes("native")) == []


def test_each_that_did_not_arrive_is_said_by_its_kind() -> None:
    account = Account()
    account.add({**WELL, "lost": 1, "wrong": 2, "held": 3, "reset": 4, "clock_error_ns": 250.0})
    account.add({**WELL, "lost": 1, "clock_error_ns": 100.0})
    lost, wrong, held, reset, clock = account.notes("tuned")
    assert lost == "tuned: 2 of 2000 interrupts did not arrive within a second"
    assert wrong.startswith("tuned: of 2 of 2000 interrupts the receiver named a time")
    assert held.startswith("tuned: 3 times no interrupt was raised")
    assert reset == "tuned: 4 times the clock was set, and the moments began anew from there"
    assert clock == "tuned: its clock and this host's are joined within 0.25 µs"


def test_what_the_receivers_system_has_counted_is_said() -> None:
    account = Account()
    account.add({**WELL, "ipis": 980})
    (said,) = account.notes("ipi-tuned")
    assert said == "ipi-tuned: its system has counted 980 interprocessor interrupts for 1000 wake-ups"


def test_what_it_took_to_write_an_interrupt_down_is_said_of_the_worst_slice() -> None:
    account = Account()
    for took in (40, 90, 60):
        account.add({**WELL, "recording_ns": took})
    account.add({name: value for name, value in WELL.items() if name != "recording_ns"})  # of an older build
    (said,) = account.notes("native")
    assert said == "native: to write an interrupt down took its receiver 0.090 µs"


def test_of_a_run_that_was_resumed_each_part_has_its_own_counts() -> None:
    side, office = Side("ue", 1000, remarks=["ue: it has rained"]), Neighbour("office", Guest("normal"), 2.0, 1.0)
    side.accounts["msix"] = Account(raised=10, lost=1)
    lost = "ue: 1 of 10 interrupts did not arrive within a second"
    beside = "office ran beside for 2.0 s and took 1.0 s of CPU in these"
    assert list(notes_of([side], [office], 1)) == [lost, beside, "ue: it has rained"]
    later = [f"part 3 of the run: {each}" for each in (lost, beside)]
    assert list(notes_of([side], [office], 3)) == [*later, "ue: it has rained"]


def resumed(folder: Path, *, causes: bool) -> tuple[InterruptPlan, int]:
    """What is left of a run of two slices, with a trace."""
    side = Side("native", 1000)
    host = HostPlan(side.tools(), ["none"], {max(os.sched_getaffinity(0)): "receiver"}, (), 2.0, least_rounds=2)
    text = InterruptPlan(host, [side], [], "tailrace", causes).text()
    run = RunFolder.create(folder, METHOD, spec=text, host={}, command=[], versions={})
    run.keep_host_slice([], HostSoak(asked_s=2.0, slices=2, done=1, end_s=1.0, boot="x"))
    return _left_of(run.path, traced=True)


def test_the_rest_of_a_run_is_traced_only_if_it_records(tmp_path: Path) -> None:
    plan, done = resumed(tmp_path, causes=True)
    assert plan.causes and done == 1
    with pytest.raises(Mistake, match=r"--trace needs a run that was begun with --causes or --trace"):
        resumed(tmp_path, causes=False)


def test_each_path_of_interrupts_has_a_name_of_its_own() -> None:
    assert Side("ue", 1000).name == Side("ue", 1000, clock="tai").name == "interrupt-ue"
    assert Side("ue", 1000, paths=("timer",)).name == "wakeup-ue"
    assert [each.name for each in Side("ue", 1000, paths=("vring", "msix")).tools()] == ["vring-ue", "interrupt-ue"]


def test_a_histogram_is_the_senders() -> None:
    found = _histogram({"count": 3, "min_ns": 5, "max_ns": 300, "sum_ns": 310, "counts": [[5, 2], [278, 1]]})
    assert (found.count, found.min_ns, found.max_ns, found.sum_ns) == (3, 5, 300, 310)
    assert found.value_at_rank(3) == 300
    assert _histogram({"count": 0, "min_ns": 0, "max_ns": 0, "sum_ns": 0, "counts": []}).count == 0


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Instance]:
    """The machines that are asked for."""
    found: list[Instance] = []

    def start(_: InMachine, launcher: Any, instance: Instance) -> Any:
        del launcher
        found.append(instance)
        return SimpleNamespace(process=None)

    monkeypatch.setattr(InMachine, "start", start)
    return found


def ask(side: Side) -> None:
    side._machine(SimpleNamespace(), Path("/s/interrupts"), 3, (0, 1), "tailrace", 7)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("guest", "priority"), [(GUESTS["tuned"], True), (GUESTS["untuned"], False), (Guest("medium", 384 << 20), False)]
)
def test_a_machine_is_as_it_is_asked_for(started: list[Instance], guest: Guest, priority: bool) -> None:
    ask(Side("ue", 1000, guest))
    (instance,) = started
    assert (instance.name, instance.latency, instance.memory_bytes) == ("ue", guest.latency, guest.memory_bytes)
    assert instance.place.core == 3 and "/s/interrupts" in (instance.domain or "")
    assert ("--priority" in (instance.in_place or "")) == priority
    assert not instance.ports and "--nic" not in (instance.in_place or "")


def test_a_machine_between_whose_cpus_interrupts_go_has_two(started: list[Instance]) -> None:
    ask(Side("ue", 1000, GUESTS["tuned"], paths=("ipi",)))
    (instance,) = started
    assert (instance.most_cpus, instance.stacked) == (2, True)
    assert spread(instance.place.cores, 2) == [3, 0] and instance.place.core == 0
    assert (instance.in_place or "").endswith(" irqaffinity=0")
    assert "--core,0,--waker,1" in (instance.in_place or "") and not instance.ports


def test_a_machine_whose_network_device_raises_interrupts_has_one(started: list[Instance]) -> None:
    ask(Side("ue", 1000, GUESTS["tuned"], paths=("msix", "vring")))
    (instance,) = started
    assert instance.ports == ("vhost-server:/s/nic",) and "--nic,0000:00:08.0" in (instance.in_place or "")


def follower(*, alive: bool) -> Any:
    return SimpleNamespace(id=SimpleNamespace(alive=lambda: alive))


def side_of_machine(follows: Any) -> Side:
    side = Side("ue", 1000, Guest("high", priority=PriorityRange(0, 40)))
    side._launcher, side._receiver, side._follower = SimpleNamespace(), SimpleNamespace(), follows  # type: ignore[assignment]
    return side


def test_what_has_a_priority_follow_is_started_again_where_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    again, given = follower(alive=True), []

    def follow_again(_: Any, machine: Any, before: Any) -> Any:
        given.append((machine, before))
        return again

    monkeypatch.setattr(interrupts, "follow_again", follow_again)
    ended = follower(alive=False)
    side = side_of_machine(ended)
    for seconds in (3.2, 4.2):
        side._watch_follower(seconds)
    assert side._follower is again and given == [(side._receiver, ended)]
    (said,) = side.notes()
    assert said.startswith("ue: 3 s after a slice began") and said.endswith("it was started again at once")


def test_what_was_measured_is_kept_where_it_cannot_be_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise Failure("nobody inside has answered")

    monkeypatch.setattr(interrupts, "follow_again", fails)
    side = side_of_machine(follower(alive=False))
    for seconds in (3.2, 4.2):
        side._watch_follower(seconds)
    (said,) = side.notes()
    assert said.endswith("its priority is the planned one from then on: nobody inside has answered")


def test_a_machine_without_a_recorder_is_measured_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise Failure("its image has no tailrace-recorder")

    monkeypatch.setattr(agent, "ask", fails)
    side = side_of_machine(None)
    side._launcher = SimpleNamespace(log=lambda name: Path(f"/s/{name}.log"))  # type: ignore[assignment]
    side._receiver = SimpleNamespace(id=SimpleNamespace(signal=lambda _: None))  # type: ignore[assignment]
    assert side._guest_recorder() is None
    assert list(side.notes()) == ["ue: what its guest does is not recorded: its image has no tailrace-recorder"]


@pytest.mark.parametrize("ends", [True, False])
def test_a_guest_that_stops_answering_does_not_end_the_slice(monkeypatch: pytest.MonkeyPatch, ends: bool) -> None:
    """It may keep whoever asks it for longer than a slice is waited for: what came meanwhile is looked up."""
    now, looks = 0.0, 0

    def call(what: str, **_: object) -> dict[str, Any]:
        nonlocal looks
        looks += what == "interrupts.look"
        return {"result": {"lost": 0}} if ends and looks > 1 else {}

    def note(_: object) -> None:
        nonlocal now
        now += 1000.0

    monkeypatch.setattr(interrupts, "time", SimpleNamespace(monotonic=lambda: now, sleep=lambda _: None))
    side = side_of_machine(None)
    side.causes = SimpleNamespace(note=note)  # type: ignore[assignment]
    side._sender = side._receiver = follower(alive=True)
    control: Any = SimpleNamespace(call=call)
    if ends:
        assert side._slice(control, "msix", 1, lambda _: None) == {"lost": 0}
    else:
        with pytest.raises(Failure, match="its interrupts did not end in 1000 s"):
            side._slice(control, "msix", 1, lambda _: None)
    assert looks == 2
