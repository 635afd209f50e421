"""What a switch costs that has nothing to do, and what a frame waits that finds it so: poll, pause and sleep in turn.

CPU time is the whole process's, as the kernel accounts it. Then single frames come so seldom that each finds the worker
at rest; their latency, guest to guest, contains the waking. What waking alone takes on this machine, between the same
two cores, is measured beside it (`tailrace-wake`): no switch that sleeps is awake before.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tailrace.bench.bare import bare
from tailrace.bench.change import wait_up
from tailrace.bench.compare import Plan, Side, Step, after, compare, total_seconds
from tailrace.bench.guests import WAIT_SECONDS, check_all_there, latency_figures, tester_at
from tailrace.bench.model import TAILRACE, Comparison, Figures, Ratio, Sample
from tailrace.bench.setting import Setting, check_alive
from tailrace.bench.sides import running
from tailrace.errors import Fault
from tailrace.fabric.tailrace import TailraceFabric
from tailrace.measure.profile import profile
from tailrace.measure.progress import Reporter
from tailrace.measure.tester import TESTER_PROGRAM
from tailrace.plan.planned import TESTER_BUFFERS_MIB
from tailrace.resources import hugepages
from tailrace.state.record import Process

POLICIES = ("poll", "pause", "sleep")
SELDOM_PPS = 200.0
"""A frame every 5 ms: far longer than a worker waits before it sleeps."""
SETTLE_SECONDS = 0.5
START_SECONDS = 5.0
WAKE = "bare wake"
WAKE_PROGRAM = "tailrace-wake"
RATIOS = (
    Ratio("cpu", "cpu_percent", "sleep", "poll"),
    Ratio("p50", "p50_us", "sleep", "poll"),
    Ratio("wake_p50", "p50_us", "sleep", WAKE),
    Ratio("wake_p99", "p99_us", "sleep", WAKE),
)


@dataclass(frozen=True)
class IdlePlan(Plan):
    """What is to be measured."""

    @property
    def sides(self) -> Sequence[Side]:
        seconds = 2 * self.seconds + SETTLE_SECONDS + WAIT_SECONDS + START_SECONDS
        policies = [Side(policy, seconds, partial(_side, self, policy)) for policy in POLICIES]
        return [*policies, Side(WAKE, self.seconds, partial(_wake, self))]

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, self.sides)


def run(plan: IdlePlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all policies."""
    return compare(
        "idle",
        plan,
        plan.sides,
        RATIOS,
        folder=folder,
        report=report,
        pages=TESTER_BUFFERS_MIB // hugepages.PAGE_MIB + 8,
        programs=("tailrace-switch", TESTER_PROGRAM, WAKE_PROGRAM),
        settings={"rate_pps": SELDOM_PPS},
    )


def _side(plan: IdlePlan, policy: str, setting: Setting, step: Step) -> list[Sample]:
    with (
        running(setting, TAILRACE, what=policy, idle=policy) as (switch, sockets),
        tester_at(setting, sockets) as tester,
    ):
        assert isinstance(switch, TailraceFabric)
        wait_up(switch, ("p0", "p1"))
        step(START_SECONDS / 2)
        time.sleep(SETTLE_SECONDS)
        (process,) = switch.processes()

        def measured() -> Figures:
            before, began = cpu_seconds(process), time.monotonic()
            time.sleep(plan.seconds)
            used = (cpu_seconds(process) - before) / (time.monotonic() - began)
            done = START_SECONDS / 2 + SETTLE_SECONDS + plan.seconds
            result = tester.trial(
                profile(plan.frame).streams(SELDOM_PPS)[:1],
                plan.seconds,
                wait=WAIT_SECONDS,
                interval=1.0,
                watch=lambda: check_alive([tester.process, process]),
                progress=after(step, done),
            )
            (stream,) = result["streams"]
            check_all_there(stream)
            return {"cpu_percent": round(100 * used, 2), **latency_figures(stream)}

        return setting.samples([process, tester.process], measured)


def _wake(plan: IdlePlan, setting: Setting, step: Step) -> list[Sample]:
    def measured() -> Figures:
        found = bare(setting, WAKE_PROGRAM, plan.seconds)
        step(plan.seconds)
        return {name: found[name] for name in ("p50_us", "p99_us", "p99.9_us", "max_us")}

    return setting.samples([], measured)


def cpu_seconds(process: Process, threads: str = "") -> float:
    """CPU time of a process's threads whose names begin so, until now, in seconds: exact, where /proc/PID/stat counts
    clock ticks.

    Source: the first field of /proc/PID/task/TID/schedstat, in ns. Raises Fault if the process has ended.
    """
    try:
        tasks = [each.parent for each in Path(f"/proc/{process.pid}/task").glob("*/schedstat")]
        counted = [each for each in tasks if (each / "comm").read_text().startswith(threads)]
        return sum(int((each / "schedstat").read_text().split()[0]) for each in counted) / 1e9
    except OSError:
        check_alive([process])
        raise Fault(f"{process.program} has ended") from None
