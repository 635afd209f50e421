"""A chain of 1 to 8 functions, one behind the other on one machine (east/west): packets a second of all together.

testpmd plays the functions: a pair of ports each, what comes in by one goes out by the other. The switch joins each
function's second port with the next one's first, and the last with the first, so packets circulate.
Every hop between two functions counts, as in the published measurements of virtio, vhost-user and SR-IOV.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tailrace.bench import testpmd
from tailrace.bench.compare import Plan, Side, Step, after, compare, total_seconds
from tailrace.bench.hop import pages
from tailrace.bench.model import OVS_DPDK, Comparison, Sample
from tailrace.bench.setting import Setting
from tailrace.bench.sides import Joints, against_known, check_installed, running
from tailrace.bench.traffic import RATIOS, START_SECONDS
from tailrace.bench.window import saturate, side_seconds
from tailrace.errors import Mistake
from tailrace.measure.progress import Reporter

MOST_FUNCTIONS = 8


@dataclass(frozen=True)
class ChainPlan(Plan):
    """What is to be measured."""

    functions: int = 1
    against: str = OVS_DPDK

    def __post_init__(self) -> None:
        super().__post_init__()
        against_known(self.against)
        if not 1 <= self.functions <= MOST_FUNCTIONS:
            raise Mistake(f"--functions {self.functions}: expected 1 to {MOST_FUNCTIONS}")

    @property
    def joints(self) -> Joints:
        """Each function's second port with the next one's first: guests 2k and 2k + 1 are function k."""
        return [(2 * k + 1, 2 * k + 2) for k in range(self.functions - 1)] + [(2 * self.functions - 1, 0)]

    @property
    def sides(self) -> Sequence[Side]:
        seconds = side_seconds(self.seconds) + START_SECONDS
        return [Side(name, seconds, partial(_side, self, name)) for name in against_known(self.against)]

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, self.sides)


def run(plan: ChainPlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all pairs."""
    names = against_known(plan.against)
    testpmd.program()
    check_installed(names)
    return compare(
        "chain",
        plan,
        plan.sides,
        RATIOS,
        folder=folder,
        report=report,
        pages=pages(names),
        programs=("tailrace-switch",),
        settings={"functions": plan.functions},
    )


def _side(plan: ChainPlan, name: str, setting: Setting, step: Step) -> list[Sample]:
    what = f"{plan.functions} functions, {plan.frame} B"
    with running(setting, name, plan.joints, what=what) as (switch, sockets):
        step(START_SECONDS / 2)
        # A switch without back pressure drops what a function does not take; what it drops is not delivered.
        return saturate(setting, switch, sockets, plan, after(step, START_SECONDS / 2), lossless=False)
