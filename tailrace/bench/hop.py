"""What one hop costs: CPU cycles a packet and Mpps of a saturated switch between two guests, beside a peer's.

Pairs alternate the switches (A B A B). A figure is only kept if every packet of the measured time was delivered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tailrace.bench import testpmd
from tailrace.bench.compare import Plan, Side, Step, after, compare, total_seconds
from tailrace.bench.model import OVS_DPDK, TAILRACE, Comparison, Ratio, Sample
from tailrace.bench.setting import Setting
from tailrace.bench.sides import against_known, check_installed, running
from tailrace.bench.window import saturate, side_seconds
from tailrace.fabric import ovs_dpdk
from tailrace.measure.progress import Reporter
from tailrace.resources import hugepages

START_SECONDS = 4.0
"""What starting and ending one side takes besides the measured time, for the progress bar."""
RATIOS = (
    Ratio("cycles", "cycles_per_packet", OVS_DPDK, TAILRACE),
    Ratio("mpps", "mpps", TAILRACE, OVS_DPDK),
)
"""Above 1 both favour Tailrace."""


@dataclass(frozen=True)
class HopPlan(Plan):
    """What is to be measured."""

    against: str = OVS_DPDK

    def __post_init__(self) -> None:
        super().__post_init__()
        against_known(self.against)

    @property
    def sides(self) -> Sequence[Side]:
        seconds = side_seconds(self.seconds) + START_SECONDS
        return [Side(name, seconds, partial(_side, self, name)) for name in against_known(self.against)]

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, self.sides)


def pages(sides: Sequence[str]) -> int:
    """2 MiB pages that testpmd and, beside it, the hungrier switch take."""
    return (testpmd.MEMORY_MIB + (ovs_dpdk.MEMORY_MIB if OVS_DPDK in sides else 0)) // hugepages.PAGE_MIB + 8


def run(plan: HopPlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all pairs."""
    names = against_known(plan.against)
    testpmd.program()
    check_installed(names)
    return compare(
        "hop",
        plan,
        plan.sides,
        RATIOS,
        folder=folder,
        report=report,
        pages=pages(names),
        programs=("tailrace-switch",),
    )


def _side(plan: HopPlan, name: str, setting: Setting, step: Step) -> list[Sample]:
    """One switch: up, saturated, measured, held to account, down."""
    with running(setting, name, what=f"{plan.frame} B") as (switch, sockets):
        step(START_SECONDS / 2)
        return saturate(setting, switch, sockets, plan, after(step, START_SECONDS / 2))
