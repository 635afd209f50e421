"""A disk that fills while a run measures: what was measured is kept, and the run says so and where it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from clean_machine import PLAIN
from running_node import Command
from small_disk import fill, small_disk

from tailrace.errors import Failure
from tailrace.measure.host.plan import HostPlan
from tailrace.measure.host.run import measure_host
from tailrace.measure.host.tools import Progress, Setting, Slice, from_values
from tailrace.measure.progress import Silent
from tailrace.measure.session import Finished, Request, run_on_host
from tailrace.results import load_run
from tailrace.results.reserve import NAME
from tailrace.state.record import Unwritable, hold, peek

pytestmark = pytest.mark.requires_root


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB."""
    with small_disk(tmp_path / "disk", 16) as place:
        yield place


class Tool:
    """Measures 100 values of 5 µs at each turn, before the second of which something happens."""

    name = "cyclictest"

    def __init__(self, second: Callable[[], None]) -> None:
        self.second = second
        self.turn = 0

    def measure(self, setting: Setting, seconds: int, progress: Progress) -> Mapping[str, Mapping[int, Slice]]:
        self.turn += 1
        if self.turn == 2:
            self.second()
        progress(seconds)
        return {self.name: {cpu: Slice(from_values({5_000: 100}), 0) for cpu in setting.cpus}}


def measured(disk: Path, state: Path, second: Callable[[], None]) -> Finished:
    cpu = min(os.sched_getaffinity(0))
    plan = HostPlan([Tool(second)], ["none"], {cpu: "system"}, (cpu,), 2, least_rounds=2)
    request = Request("host", disk / "runs", state, ("tailrace",), "", "host", None)
    finished = run_on_host(request, lambda folder, _: measure_host(plan, folder, Silent()), plan.cpus)
    assert isinstance(finished.error, Failure) and "No space left on device" in str(finished.error)
    assert load_run(finished.folder) == finished.run
    assert [trial.samples for trial in finished.run.host_trials] == [100]
    assert not finished.run.valid
    return finished


@pytest.mark.requires_hugepages
@pytest.mark.requires_program("tailrace-switch", "tailrace-vnf", "bwrap")
def test_a_node_is_taken_down_where_nothing_can_be_written(command: Command, disk: Path) -> None:
    """And until then it is not changed: what cannot be put on record is not begun."""
    kept = command.state
    command.state = disk / "state"
    command.environment["TAILRACE_STATE"] = str(command.state)
    spec = command.spec(PLAIN)
    command("up", spec)
    fill(disk)
    refused = command("apply", command.spec(PLAIN.replace("voice", "other"), "other.yaml"), status=1).stderr
    assert refused.startswith(f"tailrace: {command.state}/state.json.new: No space left on device")
    assert "No changes" in command("plan", spec).stdout
    assert "nothing of ours is left" in command("down").stdout
    assert not command.leftovers()
    command.state = kept


def test_what_has_room_is_written_to_a_full_disk(disk: Path) -> None:
    """And where there is none for it, that is said before."""
    with hold(disk / "state") as state:
        state.save()
        with state.room_kept(2):
            filler = fill(disk)
            for stopped in (["fw"], ["fw", "nat"]):
                state.record.stopped = stopped
                state.save()
                assert peek(state.folder).stopped == stopped
                fill(disk)
        fill(disk)
        with pytest.raises(Unwritable, match=r"state\.json\.new: No space left on device"), state.room_kept(1):
            pytest.fail("it has no room")
        filler.unlink()
        assert state.undo_all() == []


def test_a_run_ends_in_order_with_the_room_that_it_has_kept(disk: Path, tmp_path: Path) -> None:
    finished = measured(disk, tmp_path / "state", lambda: fill(disk))
    assert finished.run.finished is not None and "No space left on device" in (finished.run.reason or "")
    assert finished.report is not None and finished.report.stat().st_size > 0
    assert not (finished.folder / NAME).exists()


def test_where_even_that_room_is_gone_the_folder_is_still_told(disk: Path, tmp_path: Path) -> None:
    def all_gone() -> None:
        (kept,) = disk.glob(f"runs/*/{NAME}")
        kept.unlink()
        fill(disk)

    finished = measured(disk, tmp_path / "state", all_gone)
    assert (finished.run.finished, finished.report) == (None, None)
