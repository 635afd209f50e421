"""What checking every frame costs: the tester beside plain testpmd, on the same ports and core, as fast as each can;
and what many flows cost the tester, beside one.

All play both guests of one hop, saturated, both ways; pairs alternate them (A B C A B C). testpmd only passes on what
comes. The tester makes, signs, receives, checks and times every frame. All are counted by the same switch's
counters, over the same kind of window, and what the tester counts itself must agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tailrace.bench import testpmd
from tailrace.bench.compare import Plan, Side, Step, after, compare, total_seconds
from tailrace.bench.guests import WAIT_SECONDS, ended, tester_at
from tailrace.bench.model import TAILRACE, Comparison, Ratio, Sample
from tailrace.bench.setting import Setting
from tailrace.bench.sides import running
from tailrace.bench.testpmd import Traffic
from tailrace.bench.window import check_whole, counters_of, most_seconds, saturate, side_seconds, watch_windows
from tailrace.errors import Fault, Mistake
from tailrace.measure.profile import profile
from tailrace.measure.progress import Reporter
from tailrace.measure.tester import TESTER_PROGRAM
from tailrace.plan.planned import TESTER_BUFFERS_MIB
from tailrace.resources import hugepages

TESTER = "tester"
TESTER_FLOWS = "tester-flows"
"""The tester with as many flows as were asked for, where TESTER has one."""
TESTPMD = "testpmd"
FLOWS = (1, 1_000_000)
START_SECONDS = 5.0
"""What starting and ending one side takes besides the measured time, for the progress bar."""
RATIO = Ratio("mpps", "mpps", TESTER, TESTPMD)
"""1 would mean that proof costs nothing."""
FLOWS_RATIO = Ratio("flows_mpps", "mpps", TESTER_FLOWS, TESTER)
"""1 would mean that flows cost nothing."""


@dataclass(frozen=True)
class TesterPlan(Plan):
    """What is to be measured."""

    flows: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not FLOWS[0] <= self.flows <= FLOWS[1]:
            raise Mistake(f"--flows {self.flows}: expected {FLOWS[0]} to {FLOWS[1]}")

    @property
    def sides(self) -> Sequence[Side]:
        seconds = side_seconds(self.seconds) + START_SECONDS
        sides = [Side(TESTER, seconds, partial(_tester, self, 1)), Side(TESTPMD, seconds, partial(_testpmd, self))]
        if self.flows > 1:
            sides.insert(0, Side(TESTER_FLOWS, seconds, partial(_tester, self, self.flows)))
        return sides

    @property
    def ratios(self) -> Sequence[Ratio]:
        return [RATIO, FLOWS_RATIO] if self.flows > 1 else [RATIO]

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, self.sides)


def run(plan: TesterPlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all pairs."""
    testpmd.program()
    return compare(
        "tester",
        plan,
        plan.sides,
        plan.ratios,
        folder=folder,
        report=report,
        pages=max(testpmd.MEMORY_MIB, TESTER_BUFFERS_MIB) // hugepages.PAGE_MIB + 8,
        programs=("tailrace-switch", TESTER_PROGRAM),
        settings={"flows": plan.flows},
    )


def _tester(plan: TesterPlan, flows: int, setting: Setting, step: Step) -> list[Sample]:
    """One trial around the window, as fast as possible, with the tester listening where testpmd would."""
    with (
        running(setting, TAILRACE, what=f"the tester, {plan.frame} B, {flows} flow(s)") as (switch, sockets),
        tester_at(setting, sockets) as tester,
    ):
        streams = profile(plan.frame, flows).streams(0.0)
        tester.begin(streams, most_seconds(plan.seconds), wait=WAIT_SECONDS)
        samples = watch_windows(setting, plan.seconds, switch, [tester.process], after(step, START_SECONDS / 2))
        check_whole(account(ended(tester)), lambda: counters_of(switch))
        return samples


def _testpmd(plan: TesterPlan, setting: Setting, step: Step) -> list[Sample]:
    with running(setting, TAILRACE, what=f"testpmd, {plan.frame} B") as (switch, sockets):
        return saturate(setting, switch, sockets, plan, after(step, START_SECONDS / 2), lossless=False)


def account(result: dict[str, Any]) -> Traffic:
    """What the tester says of the whole trial, both directions together.

    Raises Fault if a direction brought nothing, or if a frame came twice or out of sequence.
    """
    streams = result["streams"]
    if any(stream["received"] == 0 for stream in streams):
        raise Fault("no frame came back to the tester")
    keys = ("sent", "received", "lost", "duplicate", "out_of_sequence")
    total = {key: sum(int(stream[key]) for stream in streams) for key in keys}
    if total["duplicate"] or total["out_of_sequence"]:
        raise Fault(
            f"of {total['received']} frames the tester found {total['duplicate']} duplicate and "
            f"{total['out_of_sequence']} out of sequence"
        )
    return Traffic(total["sent"], total["sent"] - total["lost"])
