"""The cost of one hop between two VNFs: saturated, both directions, one switch beside another.

Pairs alternate the switches (A B A B), so that both meet the same machine. The load keeps the switch's rings full;
the switch polls on a core of its own. A switch that loses a packet in the measured time, or any packet without
counting it, or whose traffic stalls, gives no figure but an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tailrace.bench import testpmd
from tailrace.bench.model import OVS_DPDK, TAILRACE, HopResult, Pair, Side, steady_pairs
from tailrace.bench.setting import CORE_TO_CORE, Cores, Setting, check_able, prepared
from tailrace.bench.sides import SWITCHES, Switch
from tailrace.bench.window import SETTLE_SECONDS, saturate
from tailrace.errors import Fault, Mistake
from tailrace.fabric import ovs_dpdk
from tailrace.host import hugepages
from tailrace.measure.progress import Reporter
from tailrace.measure.session import undisturbed

FRAMES = (64, 1518)
"""Smallest and largest frame."""
SIDE_SECONDS = 4.0
"""What starting and ending one side takes besides the measured time, for the progress bar."""


@dataclass(frozen=True)
class HopPlan:
    """What is to be measured. Raises Mistake where that cannot be."""

    frame: int
    against: str | None = None
    pairs: int = 5
    seconds: float = 3.0
    cores: tuple[int, int] | None = None
    """The switch's CPU and the load's; the last and the first allowed unless given."""

    def __post_init__(self) -> None:
        if not FRAMES[0] <= self.frame <= FRAMES[1]:
            raise Mistake(
                f"--frame {self.frame}: expected a frame size from {FRAMES[0]} to {FRAMES[1]} bytes, FCS included"
            )
        if self.against not in (None, OVS_DPDK):
            raise Mistake(f"--against {self.against}: expected {OVS_DPDK}")
        if self.pairs < 1:
            raise Mistake(f"--pairs {self.pairs}: expected at least 1")
        if not 0.2 <= self.seconds <= 3600:
            raise Mistake(f"--seconds {self.seconds:g}: expected 0.2 to 3600")

    @property
    def switches(self) -> list[str]:
        return [TAILRACE] if self.against is None else [TAILRACE, self.against]

    @property
    def total_seconds(self) -> float:
        return self.pairs * len(self.switches) * self.side_seconds

    @property
    def side_seconds(self) -> float:
        return self.seconds + SETTLE_SECONDS + SIDE_SECONDS

    @property
    def pages(self) -> int:
        """2 MiB pages that the load and, beside it, the hungrier switch take."""
        mib = testpmd.MEMORY_MIB + (ovs_dpdk.MEMORY_MIB if OVS_DPDK in self.switches else 0)
        return mib // hugepages.PAGE_MIB + 8


def run(plan: HopPlan, folder: Path, report: Reporter) -> HopResult:
    """Measures all pairs. Everything that it starts and reserves is gone when it returns or raises."""
    cores = Cores.choose(plan.cores, "bench hop")
    check_able("bench hop", (CORE_TO_CORE, "tailrace-switch"))
    testpmd.program()
    if plan.against == OVS_DPDK:
        ovs_dpdk.OvsDpdk.installed()
    with prepared(folder, cores, plan.pages, report) as setting:
        pairs, moved = steady_pairs(partial(_pair, setting, plan), plan.pairs)
        return HopResult(plan.frame, plan.seconds, pairs, setting.machine(), moved)


def _pair(setting: Setting, plan: HopPlan, number: int) -> Pair:
    """Each switch once."""
    looks = [setting.core_to_core()]
    sides: dict[str, Side] = {}
    for name in plan.switches:
        label = f"pair {number + 1} of {plan.pairs}: {name}, {plan.frame} B"
        setting.report.stage(label, plan.side_seconds)
        try:
            sides[name] = _side(setting, plan, name, partial(setting.report.advance, label))
        except Fault as error:
            raise Fault(f"{name}, {plan.frame} B: {error}") from None
        looks.append(setting.core_to_core())
    between = looks[1] if len(looks) > 2 else None
    return Pair(looks[0], looks[-1], sides, core_to_core_between_ns=between)


def _side(setting: Setting, plan: HopPlan, name: str, step: Callable[[float], None]) -> Side:
    """One switch: up, saturated, measured, held to account, down."""
    sockets = [setting.launcher.state.sockets / f"guest{number}" for number in (0, 1)]
    switch: Switch = SWITCHES[name](setting.launcher, setting.cores.switch_place)
    try:
        switch.start(sockets)
        setting.versions |= switch.version()
        step(SIDE_SECONDS / 4)
        window = saturate(
            setting, switch, sockets, plan.frame, plan.seconds, lambda done: step(SIDE_SECONDS / 2 + done)
        )
        window.check_lossless()
        try:
            return Side.between(window.first, window.last, window.seconds)
        except ValueError as error:
            raise Fault(str(error)) from None
    finally:
        with undisturbed():
            switch.stop()
