"""What passing the switch costs in time: one frame at a time, and at a steady rate, beside a peer.

The tester is both guests, on one core: a frame's latency is from the moment it is put into a ring to the moment it is
taken out of one. One at a time means that no frame is sent before the one before it has come back: the rate is so
low that the wait between two frames is many times the latency. All frames must come back, once and in order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tailrace.bench.compare import Plan, Side, Step, after, compare, total_seconds
from tailrace.bench.guests import check_all_there, latency_figures, tester_at
from tailrace.bench.model import OVS_DPDK, TAILRACE, Comparison, Figures, Ratio, Sample
from tailrace.bench.setting import Setting, check_alive
from tailrace.bench.sides import against_known, check_installed, running
from tailrace.bench.window import windows_of
from tailrace.fabric import ovs_dpdk
from tailrace.measure.profile import profile
from tailrace.measure.progress import Reporter
from tailrace.measure.tester import TESTER_PROGRAM, Tester
from tailrace.plan.planned import TESTER_BUFFERS_MIB
from tailrace.resources import hugepages
from tailrace.state.record import Process

LOADS = {"single": 5_000.0, "paced": 100_000.0}
"""Frames a second: one at a time, and a steady load."""
START_SECONDS = 9.0
"""What the start and the end of a side take."""
SETTLE_SECONDS = 3.0
"""By then the kernel has done what the end of the side before left to it: memory to be taken back, above all."""
WINDOW_SECONDS = 1.0
"""A window of each load: of 100,000 frames a hundred are beyond p99.9, of 5000 five."""
LAST_SECONDS = 1.0
"""How long the last frames of a window may take."""
RATIOS = tuple(
    Ratio(f"{load}_{figure}", f"{load}_{figure}_us", TAILRACE, OVS_DPDK)
    for load in LOADS
    for figure in ("p50", "p99", "p99.9")
)
"""Below 1 they favour Tailrace."""


@dataclass(frozen=True)
class LatencyPlan(Plan):
    """What is to be measured."""

    against: str = OVS_DPDK

    def __post_init__(self) -> None:
        super().__post_init__()
        against_known(self.against)

    @property
    def sides(self) -> Sequence[Side]:
        seconds = loads_seconds(self.seconds) + START_SECONDS
        return [Side(name, seconds, partial(_side, self, name)) for name in against_known(self.against)]

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, self.sides)


def run(plan: LatencyPlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all pairs."""
    names = against_known(plan.against)
    check_installed(names)
    mib = TESTER_BUFFERS_MIB + (ovs_dpdk.MEMORY_MIB if OVS_DPDK in names else 0)
    return compare(
        "latency",
        plan,
        plan.sides,
        RATIOS,
        folder=folder,
        report=report,
        pages=mib // hugepages.PAGE_MIB + 8,
        programs=("tailrace-switch", TESTER_PROGRAM),
        settings={"rates_pps": LOADS},
    )


def _side(plan: LatencyPlan, name: str, setting: Setting, step: Step) -> list[Sample]:
    with running(setting, name, what=f"{plan.frame} B") as (switch, sockets), tester_at(setting, sockets) as tester:
        processes = [*switch.processes(), tester.process]
        return measure_loads(plan, setting, processes, tester, step, lambda: check_alive(processes))


def loads_seconds(seconds: float) -> float:
    """How long `measure_loads` takes for so many seconds of each load."""
    return len(LOADS) * (seconds + windows_of(seconds, WINDOW_SECONDS) * LAST_SECONDS)


def measure_loads(
    plan: Plan,
    setting: Setting,
    processes: Sequence[Process],
    tester: Tester,
    step: Step,
    watch: Callable[[], None],
    settle: float = SETTLE_SECONDS,
) -> list[Sample]:
    """The latency of each load in turn, one way, in windows of WINDOW_SECONDS each.

    `processes` are all that polls; they have `settle` seconds before. Raises Fault unless all frames come back, and
    what `watch` raises.
    """
    time.sleep(settle)
    windows = windows_of(plan.seconds, WINDOW_SECONDS)
    done = START_SECONDS / 2

    def measured() -> Figures:
        nonlocal done
        figures: dict[str, float] = {}
        for load, rate in LOADS.items():
            step(done)
            result = tester.trial(
                profile(plan.frame).streams(rate)[:1],
                plan.seconds / windows,
                wait=LAST_SECONDS,
                interval=1.0,
                watch=watch,
                progress=after(step, done),
            )
            done += plan.seconds / windows + LAST_SECONDS
            (stream,) = result["streams"]
            check_all_there(stream)
            figures |= latency_figures(stream, f"{load}_")
        return figures

    return setting.samples(processes, measured, windows)
