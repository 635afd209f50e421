"""What `measure host` found: for each tool, load, tuning profile and CPU a distribution, and a record of each slice."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from tailrace.results.causes import Causes
from tailrace.results.record import Amount, ClockStep, Count, Gap, HistogramReference, Latency, Record


class HostInterval(Record):
    """What one slice of a host trial measured."""

    start_s: Amount = Field(description="Start of the slice, in seconds after the start of the run.")
    samples: Count = Field(description="Values measured in the slice.")
    min_us: Amount | None = Field(description="Smallest value of the slice in µs; null if it has none.")
    avg_us: Amount | None = Field(description="Mean value of the slice in µs; null if it has none.")
    p99_99_us: Amount | None = Field(description="99.99th percentile of the slice in µs; null if it has no value.")
    max_us: Amount | None = Field(description="Largest value of the slice in µs; null if it has none.")


class Budget(Record):
    """What became of the intervals in each of which an interrupt is to arrive within a time."""

    us: Amount = Field(description="That time, in µs.")
    late: Count = Field(description="Intervals whose interrupt arrived later than that.")
    missed: Count = Field(
        description="Intervals whose interrupt did not arrive, or was not raised because the one before had not."
    )

    def kept(self) -> bool:
        """Whether every interrupt was in time."""
        return self.late == 0 and self.missed == 0


class HostTrial(Record):
    """How late one CPU wakes up, or how long it is taken from a program, measured by one tool under one load."""

    name: str = Field(min_length=1, description="Name of the trial, unique in the run.")
    test: str = Field(
        min_length=1,
        description="The tool: cyclictest, oslat, timerlat-irq, timerlat-thread, osnoise, hwlat; of "
        "`measure interrupts` the receiver: interrupt-native, interrupt-tuned, interrupt-untuned, or interrupt- and "
        "a function's name; in place of interrupt- with `--path vring` vring-, ipi ipi-, timer wakeup-; and timer.",
    )
    load: Literal["none", "cpu", "memory", "machines"] = Field(
        description="What else ran meanwhile; machines: stress-ng in those named by `--beside`."
    )
    host_profile: str | None = Field(description="The tuning profile in effect; null for the host as it was found.")
    cpu: Count = Field(description="The logical CPU.")
    role: str = Field(
        min_length=1, description="The CPU's role: system, switch, vnf, tester; receiver or sender of interrupts."
    )
    started: AwareDatetime = Field(description="When the first slice started.")
    duration_s: Amount = Field(description="How long was measured, in seconds: the sum of the slices.")
    samples: Count = Field(description="Values measured.")
    missed: Count = Field(
        description="Values that are in no figure: the kernel's buffer had no room for them, or the "
        "interrupt did not arrive."
    )
    latency_us: Latency | None = Field(description="The values in µs; null if there are none.")
    budget: Budget | None = Field(
        default=None, description="Of interrupts with a budget, how it was kept; null of everything else."
    )
    causes: Causes | None = Field(
        default=None, description="Why the slowest interrupts were slow; null unless it was asked for."
    )
    histogram: HistogramReference | None = Field(description="The whole distribution; null if there is no value.")
    intervals: tuple[HostInterval, ...] = Field(description="The slices in order of time.")


class HostSoak(Record):
    """How far a run of `measure host` is: what `--resume` goes on from."""

    asked_s: Amount = Field(description="How long was to be measured, in seconds: all slices together.")
    slices: Count = Field(description="Slices that were asked for.")
    done: Count = Field(description="Slices that are measured.")
    end_s: Amount = Field(description="End of the last of them, in seconds after the start of the run.")
    boot: str = Field(description="The kernel's name for the boot in which it was measured.")
    began_s: float | None = Field(
        default=None,
        description="Start of the run by the clock of that boot (CLOCK_BOOTTIME), in seconds; negative if that was "
        "before the boot; null if it is not known.",
    )
    gaps: tuple[Gap, ...] = Field(default=(), description="When nothing was measured between two slices, and why.")
    clock_steps: tuple[ClockStep, ...] = Field(default=(), description="When the machine's clock was set.")
