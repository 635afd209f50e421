"""Whether functions that run are well, and what becomes of those that are not."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tailrace.errors import Mistake
from tailrace.node.health import Checked, Health, checked, stuck
from tailrace.plan.make import make_plan
from tailrace.plan.planned import PlannedHealth
from tailrace.process.process import ProcessId, identify
from tailrace.resources.topology import Cpu
from tailrace.spec.load import parse_spec
from tailrace.state.record import Process, Record

CPUS = [Cpu(number, core=number) for number in range(4)]


def counters(sent: int, blocked: int = 0, full: int = 0) -> dict[str, dict[str, int]]:
    return {"fw.0": {"sent_packets": sent, "blocked_polls": blocked, "drop_receiver_full": full}}


def test_a_function_forwards_that_takes_what_waits_for_it() -> None:
    before = counters(10, 5, 5)
    assert stuck(before, counters(10, 5, 5), ["fw.0"]) is None  # nothing has come
    assert stuck(before, counters(11, 9, 9), ["fw.0"]) is None
    assert stuck(before, counters(10, 6, 5), ["fw.0"]) == "frames wait for fw.0, and it takes none"
    assert stuck(before, counters(10, 5, 6), ["fw.0", "fw.1"]) is not None
    assert stuck({}, counters(10, 5, 6), ["fw.0"]) is None
    assert stuck(before, counters(0), ["fw.0"]) is None  # another switch counts anew


@pytest.fixture
def process() -> Iterator[ProcessId]:
    running = subprocess.Popen(["sleep", "600"])
    found = identify(running.pid)
    assert found is not None
    yield found
    running.kill()
    running.wait()


def look_after(
    process: ProcessId, command: tuple[str, ...], seconds: float = 60, *, within: float = 60
) -> list[tuple[str, str]]:
    """What is said of a process, as soon as something is, or in so long a time. Each check has `within` seconds."""
    said: list[tuple[str, str]] = []

    async def run() -> None:
        ill = asyncio.Event()

        def unhealthy(name: str, why: str) -> None:
            said.append((name, why))
            ill.set()

        health = Health(asyncio.get_running_loop(), Path("/none"), unhealthy)
        wanted = [Checked("fw@2", process, PlannedHealth((), 0.02, within, 3), command, ("fw@2.0",))]
        health.watch(wanted)
        health.watch(wanted)  # once is enough
        with suppress(TimeoutError):
            await asyncio.wait_for(ill.wait(), seconds)
        assert not ill.is_set() or await asyncio.to_thread(process.wait, 60)
        health.watch(())

    asyncio.run(run())
    return said


def test_one_that_fails_its_check_often_enough_is_killed(process: ProcessId) -> None:
    said = look_after(process, ("sh", "-c", "echo no frames >&2; exit 3"))
    assert said == [("fw@2", "its check ended with status 3 (no frames)")] and not process.alive()


def test_a_check_that_does_not_end_has_failed(process: ProcessId) -> None:
    ((_, why),) = look_after(process, ("sleep", "600"), within=0.2)
    assert why == "its check has not ended within 0.2 s" and not process.alive()


def test_one_that_fails_now_and_then_is_left(process: ProcessId, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    now_and_then = f"if test -e {mark}; then rm {mark}; else touch {mark}; exit 1; fi"
    assert look_after(process, ("sh", "-c", now_and_then), 1) == [] and process.alive()


def test_one_without_a_switch_is_left(process: ProcessId) -> None:
    assert look_after(process, (), 0.3) == [] and process.alive()


def spec_with(function: str) -> str:
    return f"functions: {{fw: {{{function}}}}}\nchains: {{voice: [tester.a, fw, tester.b]}}\n"


def planned(function: str) -> PlannedHealth | None:
    plan = make_plan(parse_spec(spec_with(function), "s"), cpus=CPUS, real_time=None)
    return plan.functions[0].health


def test_a_check_in_short_and_in_long() -> None:
    assert planned("kind: skeleton") is None
    assert planned("kind: skeleton, health: forwards") == PlannedHealth((), 5, 2, 3)
    assert planned("kind: skeleton, health: {every: 1s, failures: 1}") == PlannedHealth((), 1, 2, 1)
    assert planned("runs: container, image: fw, health: [/check, -q]") == PlannedHealth(("/check", "-q"), 5, 2, 3)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("kind: skeleton, health: well", "'well' is no check; expected forwards, or a command such as"),
        ("kind: skeleton, health: [/check]", "a process runs no command; expected forwards, or `runs: container`"),
        ("kind: skeleton, health: {every: 2h}", "7200s is out of range; expected 100ms to 1h"),
        ("runs: guest, health: forwards", "a guest is not Tailrace's to end"),
    ],
)
def test_a_check_that_cannot_be_is_refused(function: str, said: str) -> None:
    with pytest.raises(Mistake, match=re.escape(said)):
        parse_spec(spec_with(function), "s")


def test_what_runs_is_looked_after_once_all_is_up(process: ProcessId) -> None:
    text = spec_with("kind: skeleton, health: forwards")
    plan = make_plan(parse_spec(text, "s"), cpus=CPUS, real_time=None)
    running = Process("fw@2", process.pid, process.start, "bwrap", "process")
    record = Record("boot", plan=plan.as_data(), things=[running, Process("switch", process.pid, process.start)])
    assert checked(record) == []
    record.complete = True
    assert checked(record) == [Checked("fw@2", process, PlannedHealth((), 5, 2, 3), (), ("fw@2.0", "fw@2.1"))]
