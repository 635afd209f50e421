"""The run: every tool under every load, in short slices that take turns, so that all of them see the same hours.

Where tuning profiles are compared they take turns too (A B A B), and each round is a pair. What is measured is kept
after every slice, so a run of many hours that is cut short has lost nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from tailrace.errors import Mistake
from tailrace.host.place import allowed_cpus
from tailrace.measure.host.loads import load
from tailrace.measure.host.tools import Setting, Slice, Tool
from tailrace.measure.progress import Reporter
from tailrace.results import RunFolder
from tailrace.results.histogram import Histogram, merge
from tailrace.results.host import HostInterval, HostTrial
from tailrace.results.model import timestamp

LONGEST_SLICE = 60
"""Seconds; so a run of hours has an interval record of each tool and load at least every few minutes."""
_OVERHEAD = 1.5
"""Seconds that starting and ending a slice takes, for the progress bar."""


@dataclass(frozen=True)
class HostPlan:
    """What is measured. Raises Mistake where the time is too short for it."""

    tools: Sequence[Tool]
    loads: Sequence[str]
    cpus: Mapping[int, str]
    """The role of each CPU that is measured."""
    control: tuple[int, ...]
    """The system's CPUs."""
    seconds: float
    """Of the whole run."""
    profiles: Sequence[str | None] = (None,)
    """Tuning profiles that take turns; None: the host as it is."""
    least_rounds: int = 1

    def __post_init__(self) -> None:
        least = self.slices * self.least_rounds
        if self.seconds < least:
            raise Mistake(
                f"--duration {self.seconds:g}s: too short for {least} slices of a second: {len(self.tools)} tools, "
                f"{len(self.loads)} loads, {len(self.profiles)} profiles, {self.least_rounds} rounds"
            )

    @property
    def slices(self) -> int:
        """In one round."""
        return len(self.tools) * len(self.loads) * len(self.profiles)

    @property
    def rounds(self) -> int:
        return max(self.least_rounds, int(-(-self.seconds // (self.slices * LONGEST_SLICE))))

    @property
    def slice_seconds(self) -> int:
        """Whole seconds, as the tools take them."""
        return max(1, int(self.seconds / (self.slices * self.rounds)))

    @property
    def total_seconds(self) -> float:
        return self.rounds * self.slices * (self.slice_seconds + _OVERHEAD)


@dataclass
class _Series:
    """What was found so far of one figure, under one load and profile, on one CPU."""

    started: datetime
    histogram: Histogram = field(default_factory=Histogram)
    missed: int = 0
    seconds: float = 0.0
    intervals: list[HostInterval] = field(default_factory=list)


def measure_host(
    plan: HostPlan, folder: RunFolder, report: Reporter, switch: Callable[[str | None], None] = lambda _: None
) -> None:
    """Measures everything; `switch` brings the host into a profile before its slices. Raises Failure."""
    series: dict[tuple[str | None, str, str, int], _Series] = {}
    setting = Setting(plan.cpus, plan.control, folder.logs)
    began = time.time()
    with _on(plan.control) as anywhere:
        for number in range(plan.rounds):
            for profile in plan.profiles:
                switch(profile)
                for kind in plan.loads:
                    with load(kind, len(anywhere), plan.control, anywhere, folder.logs):
                        for tool in plan.tools:
                            at = f" {profile}" if profile else ""
                            label = f"round {number + 1} of {plan.rounds}:{at} {tool.name}, load {kind}"
                            report.stage(label, plan.slice_seconds + _OVERHEAD)
                            start = time.time()
                            found = tool.measure(setting, plan.slice_seconds, partial(report.advance, label))
                            for figure, cpus in found.items():
                                for cpu, slice_ in cpus.items():
                                    key = profile, figure, kind, cpu
                                    one = series.setdefault(key, _Series(timestamp(start)))
                                    _add(one, slice_, start - began, plan.slice_seconds)
                                    folder.keep_host_trial(_trial(key, one, plan.cpus[cpu]), one.histogram)


@contextmanager
def _on(control: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Keeps this process off the CPUs that are measured, for the block; gives those that others may use."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, control)
    try:
        yield tuple(sorted(own))
    finally:
        os.sched_setaffinity(0, own)


def _add(series: _Series, found: Slice, start: float, seconds: int) -> None:
    one, latency = found.histogram, found.histogram.latency()
    series.intervals.append(
        HostInterval(
            start_s=max(start, 0.0),
            samples=one.count,
            min_us=latency.min if latency else None,
            avg_us=latency.average if latency else None,
            p99_99_us=latency.p99_99 if latency else None,
            max_us=latency.max if latency else None,
        )
    )
    series.histogram = merge([series.histogram, one])
    series.missed += found.missed
    series.seconds += seconds


def _trial(key: tuple[str | None, str, str, int], series: _Series, role: str) -> HostTrial:
    profile, figure, kind, cpu = key
    return HostTrial(
        name="-".join(filter(None, (profile, figure, kind, f"cpu{cpu}"))),
        test=figure,
        load=kind,
        host_profile=profile,
        cpu=cpu,
        role=role,
        started=series.started,
        duration_s=series.seconds,
        samples=series.histogram.count,
        missed=series.missed,
        latency_us=series.histogram.latency(),
        histogram=None,
        intervals=tuple(series.intervals),
    )


def usable(cpus: Sequence[int]) -> list[int]:
    """Those of the CPUs that this process may use."""
    allowed = {cpu.number for cpu in allowed_cpus()}
    return [cpu for cpu in cpus if cpu in allowed]
