"""The run: every tool under every load, in short slices that take turns, so that all of them see the same hours.

Where tuning profiles are compared they take turns too (A B A B), and each round is a pair. What is measured is kept
after every slice, so a run of many hours that is cut short has lost nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from tailrace.kernel.boot import boot_id
from tailrace.measure.host.loads import Load, load
from tailrace.measure.host.plan import HostPlan
from tailrace.measure.host.tools import Setting, Slice
from tailrace.measure.progress import Reporter
from tailrace.measure.wall_clock import WallClock, boot_seconds
from tailrace.resources.topology import allowed_cpus
from tailrace.results import Run, RunFolder
from tailrace.results.causes import Causes
from tailrace.results.histogram import Histogram, merge
from tailrace.results.host import Budget, HostInterval, HostSoak, HostTrial
from tailrace.results.model import ClockStep, Gap, timestamp
from tailrace.results.run import load_histogram

Key = tuple[str | None, str, str, int]
"""Profile, figure, load, CPU."""


@dataclass
class _Series:
    """What was found so far of one figure, under one load and profile, on one CPU."""

    started: datetime
    histogram: Histogram = field(default_factory=Histogram)
    missed: int = 0
    seconds: float = 0.0
    intervals: list[HostInterval] = field(default_factory=list)
    budget: Budget | None = None
    causes: Causes | None = None


def measure_host(
    plan: HostPlan,
    folder: RunFolder,
    report: Reporter,
    switch: Callable[[str | None], None] = lambda _: None,
    after: Callable[[], None] = lambda: None,
    under: Load = load,
    notes: Callable[[], Iterable[str]] = tuple,
) -> None:
    """Measures everything that the folder does not have yet; `switch` brings the host into a profile before its slices,
    `after` is called after each slice, and `under` is what else runs. `notes` are kept with each slice; they may grow.

    Raises Failure.
    """
    series = _read_series(folder)
    began = boot_seconds() - elapsed(folder.run)
    soak = _go_on(plan, folder.run.host_soak, began)
    wall = WallClock()
    setting = Setting(plan.cpus, plan.control, folder.logs)
    now: tuple[int, str | None] | None = None
    with _on(plan.control) as anywhere:
        for turn in plan.turns(soak.done):
            if (turn.number, turn.profile) != now:
                now = turn.number, turn.profile
                switch(turn.profile)
            with under(turn.load, len(anywhere), plan.control, anywhere, folder.logs):
                for tool in turn.tools:
                    at = f" {turn.profile}" if turn.profile else ""
                    label = f"round {turn.number} of {plan.rounds}:{at} {tool.name}, load {turn.load}"
                    report.stage(label, plan.slice_time)
                    started, start = timestamp(time.time()), boot_seconds() - began
                    found = tool.measure(setting, plan.slice_seconds, partial(report.advance, label))
                    kept = []
                    for figure, cpus in found.items():
                        for cpu, slice_ in cpus.items():
                            key = turn.profile, figure, turn.load, cpu
                            one = series.setdefault(key, _Series(started))
                            _add(one, slice_, start, plan.slice_seconds)
                            kept.append((_trial(key, one, plan.cpus[cpu]), one.histogram))
                    end = max(boot_seconds() - began, soak.end_s)
                    step = wall.look()
                    steps = (*soak.clock_steps, *((ClockStep(at_s=end, step_s=step),) if step else ()))
                    soak = soak.model_copy(update={"done": soak.done + 1, "end_s": end, "clock_steps": steps})
                    folder.keep_host_slice(kept, soak, notes())
                    after()


def _read_series(folder: RunFolder) -> dict[Key, _Series]:
    """What is in the folder of a run that is gone on with. Raises ResultError."""
    found: dict[Key, _Series] = {}
    for trial in folder.run.host_trials:
        histogram = Histogram()
        if trial.histogram is not None and trial.latency_us is not None:
            histogram = load_histogram(folder.path, trial.histogram, trial.latency_us)
        found[trial.host_profile, trial.test, trial.load, trial.cpu] = _Series(
            trial.started, histogram, trial.missed, trial.duration_s, list(trial.intervals), trial.budget, trial.causes
        )
    return found


def elapsed(run: Run) -> float:
    """Seconds since the start of the run. Across a reboot only the clock on the wall has run all the time."""
    soak = run.host_soak
    if soak is not None and soak.boot == boot_id() and soak.began_s is not None:
        return boot_seconds() - soak.began_s
    return max(time.time() - run.started.timestamp(), soak.end_s if soak else 0.0)


def _go_on(plan: HostPlan, before: HostSoak | None, began: float) -> HostSoak:
    """How far the run is, which `began` so many seconds after the boot, with the gap if it was broken off."""
    boot = boot_id()
    if before is None:
        asked = float(plan.all_slices * plan.slice_seconds)
        return HostSoak(asked_s=asked, slices=plan.all_slices, done=0, end_s=0.0, boot=boot, began_s=began)
    anew = before.boot != boot
    reason = "the machine was rebooted" if anew else "the run was interrupted, killed or crashed"
    gap = Gap(start_s=before.end_s, end_s=max(boot_seconds() - began, before.end_s), reason=reason)
    return before.model_copy(update={"boot": boot, "began_s": began, "gaps": (*before.gaps, gap)})


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
    if found.budget is not None:
        so_far = series.budget or Budget(us=found.budget.us, late=0, missed=0)
        series.budget = Budget(
            us=so_far.us, late=so_far.late + found.budget.late, missed=so_far.missed + found.budget.missed
        )
    if found.causes is not None:
        series.causes = found.causes if series.causes is None else series.causes.and_later(found.causes)
    series.seconds += seconds


def _trial(key: Key, series: _Series, role: str) -> HostTrial:
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
        budget=series.budget,
        causes=series.causes,
        histogram=None,
        intervals=tuple(series.intervals),
    )


def usable(cpus: Sequence[int]) -> list[int]:
    """Those of the CPUs that this process may use."""
    allowed = {cpu.number for cpu in allowed_cpus()}
    return [cpu for cpu in cpus if cpu in allowed]
