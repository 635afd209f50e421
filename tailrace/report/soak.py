"""What a soak has beyond other trials, for terminal and HTML report: the tester alone, gaps, the worst intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from tailrace.process.plain import plain
from tailrace.report.figures import MISSING, count, mega, microseconds, trial_name
from tailrace.report.findings import Section
from tailrace.results.model import Alone, Interval, Run, Soak, Trial
from tailrace.spec.units import show_span

SHOWN = 10
"""How many intervals of a kind are shown; results.json has all."""

TITLES = ("at", "UTC", "avg µs", "max µs", "lost", "dupl.", "out of seq.", "received")


def sections(run: Run) -> Iterator[Section]:
    """One for each soak of a run: what was measured, what broke it, and the intervals that stand out."""
    for trial in run.trials:
        if trial.soak is not None:
            yield _section(trial, trial.soak)


def faults(interval: Interval) -> int:
    """Frames lost, repeated or out of order in an interval."""
    return max(interval.lost or 0, 0) + (interval.duplicate or 0) + (interval.out_of_sequence or 0)


def _section(trial: Trial, soak: Soak) -> Section:
    way = trial.worse
    faulty = sorted((each for each in way.intervals if faults(each)), key=faults, reverse=True)
    slow = sorted(way.intervals, key=lambda each: -(each.max_us or 0.0))[:SHOWN]
    shown = sorted({each.start_s: each for each in (*slow, *faulty[:SHOWN])}.values(), key=lambda each: each.start_s)
    remarks = [*_measured(trial, soak), *_breaks(soak)]
    remarks.append(
        f"The {len(slow)} intervals with the slowest frames"
        + (f", and the {min(len(faulty), SHOWN)} worst of {count(len(faulty))} with faults" if faulty else "")
        + f", of {plain(way.name)}, the worse direction. All intervals: {plain(soak.log)}."
    )
    return Section(
        heading=f"Soak: {trial_name(trial)}",
        titles=TITLES,
        rows=tuple(_row(trial, each) for each in shown),
        remarks=tuple(remarks),
    )


def _breaks(soak: Soak) -> Iterator[str]:
    for gap in soak.gaps:
        yield (
            f"Nothing was measured for {show_span(gap.end_s - gap.start_s)} from {show_span(gap.start_s)} on: "
            f"{plain(gap.reason)}."
        )
    for step in soak.clock_steps:
        yield f"The clock was set by {step.step_s:+.3f} s before {show_span(step.at_s)}; the soak goes by the TSC."
    if soak.damaged:
        yield f"{count(soak.damaged)} intervals of the log are damaged on disk, and left out."


def _measured(trial: Trial, soak: Soak) -> Iterator[str]:
    parts = f" in {soak.parts} parts" if soak.parts > 1 else ""
    yield (
        f"{show_span(trial.duration_s)} of {show_span(soak.asked_s)} were measured{parts}, in {count(soak.intervals)} "
        f"intervals of {soak.interval_s:g} s at {mega(trial.offered_pps / 1e6)} Mpps each way."
    )
    if soak.alone is not None:
        yield _alone(soak.alone)


def _alone(alone: Alone) -> str:
    latency = alone.latency_us
    faulty = alone.lost + alone.duplicate + alone.out_of_sequence
    fine = (
        "none lost, duplicated or out of sequence"
        if not faulty
        else f"{count(faulty)} lost, duplicated or out of sequence"
    )
    unsent = f"; {count(alone.unsent)} more unsent" if alone.unsent else ""
    return (
        f"The tester alone, {show_span(alone.seconds)} over {plain(alone.ports)} ports joined with each other at the "
        f"same rate: {count(alone.sent)} frames, {fine}{unsent}; latency {microseconds(latency.min)} µs at least, "
        f"{microseconds(latency.average)} on average, {microseconds(latency.p99_9)} at 99.9 %, "
        f"{microseconds(latency.max)} at most."
    )


def _row(trial: Trial, interval: Interval) -> tuple[str, ...]:
    latencies = (interval.avg_us, interval.max_us)
    return (
        _clock(interval.start_s),
        f"{trial.started + timedelta(seconds=interval.start_s):%m-%d %H:%M:%S}",
        *(MISSING if each is None else microseconds(each) for each in latencies),
        *(MISSING if each is None else count(each) for each in _counts(interval)),
        count(interval.received),
    )


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds: 41:59:50."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _counts(interval: Interval) -> Sequence[int | None]:
    return interval.lost, interval.duplicate, interval.out_of_sequence
