"""What `measure host` found, for the terminal and the HTML report: the same rows in both, and the charts' numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from tailrace.process.plain import plain
from tailrace.report.curves import LEAST_US, Point, distributions, short
from tailrace.report.figures import MISSING, count, microseconds
from tailrace.report.marked import Marked, look
from tailrace.results.host import HostTrial
from tailrace.results.model import Run
from tailrace.results.ratio import Summary, summarise
from tailrace.spec.units import show_span

TITLES = ("tool", "load", "CPU", "values", "min µs", "avg µs", "p50 µs", "p99 µs", "p99.9 µs", "p99.99 µs", "max µs")
GROUP_TITLES = ("", "CPU", "values", "min", "avg", "p50", "p99", "p99.9", "p99.99", "max")
_FIELDS = ("min", "average", "p50", "p99", "p99_9", "p99_99", "max")
MEANINGS = {
    "cyclictest": "cyclictest: how much later than requested a thread of real-time priority wakes up, in whole µs.",
    "oslat": "oslat: how long a thread that never sleeps is kept from running, in each round of its loop.",
    "timerlat-irq": "timerlat-irq: from a timer's expiry to its interrupt, measured by the kernel.",
    "timerlat-thread": "timerlat-thread: from a timer's expiry to its thread, measured by the kernel.",
    "osnoise": "osnoise: each time that a thread that never sleeps was kept from running, measured by the kernel.",
    "interrupt-native": "interrupt-native: from an interrupt that is raised to a thread in user space of this host.",
    "interrupt-tuned": "interrupt-tuned: the same in a machine at `latency: high`, by its device's MSI-X.",
    "interrupt-untuned": "interrupt-untuned: the same in a machine at `latency: normal`.",
    "vring-tuned": "vring-tuned: from a frame that is given to the network device (virtio) of a machine at `latency: "
    "high` to a packet socket in its user space.",
    "vring-untuned": "vring-untuned: the same in a machine at `latency: normal`.",
    "ipi-native": "ipi-native: from a thread that wakes one on another CPU, to that one, of this host.",
    "ipi-tuned": "ipi-tuned: the same between the two virtual CPUs of a machine at `latency: high`, inside.",
    "ipi-untuned": "ipi-untuned: the same in a machine at `latency: normal`.",
    "wakeup-native": "wakeup-native: how much later than its own timer a thread in user space of this host wakes up.",
    "wakeup-tuned": "wakeup-tuned: the same in a machine at `latency: high`, by the machine's timer and clock.",
    "wakeup-untuned": "wakeup-untuned: the same in a machine at `latency: normal`.",
    "timer": "timer: how much later than asked the interrupts were raised; it is in no other figure.",
    "hwlat": "hwlat: time lost while interrupts are off: firmware or a hypervisor took it.",
}
_INTERRUPT = "interrupt-"
_RECEIVERS = re.compile(r"(interrupt|vring|ipi|wakeup)-")
PUBLISHED = (
    "Published for comparison, with KVM, in µs (Wind River and Intel), maximum and average: native 3.16 and 1.29, a "
    "tuned machine 15.62 and 2.95, an untuned one 168.84 and 5.55; 2.5 million of a base station in 40 minutes: "
    "untuned 986 and 18.33, tuned 27 and 12.18."
)
"""Of interrupts by MSI to a guest; native, tuned and untuned are as ours."""


@dataclass(frozen=True)
class Compared:
    """One figure of two profiles: the later one's divided by the first one's, round by round."""

    test: str
    load: str
    cpu: int
    role: str
    figure: str
    first: str
    other: str
    ratios: tuple[float, ...]

    @property
    def summary(self) -> Summary:
        """The median, with its bootstrap interval over the pairs."""
        return summarise(self.ratios)


@dataclass(frozen=True)
class Section:
    """What a report shows of one run's host trials."""

    titles: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    compared: Sequence[Compared]
    remarks: Sequence[str]


def titles(run: Run) -> tuple[str, ...]:
    """The headings of the table."""
    return ("profile", *TITLES) if _profiles(run) else TITLES


def rows(run: Run) -> list[tuple[str, ...]]:
    """One row for each tool, load, profile and CPU."""
    with_profile = bool(_profiles(run))
    return [
        ((plain(trial.host_profile or "as found"),) if with_profile else ()) + _row(trial) for trial in _sorted(run)
    ]


def groups(run: Run) -> Iterator[tuple[str, list[tuple[str, ...]]]]:
    """For a terminal, which is narrow: what a table is of, and its rows, by GROUP_TITLES."""
    named = bool(_profiles(run))
    for (test, kind), trials in groupby(_sorted(run), lambda each: (each.test, each.load)):
        found = [(trial, _row(trial)) for trial in trials]
        yield (
            f"{plain(test)}, load {kind}, in µs",
            [((plain(trial.host_profile or "as found") if named else ""), *row[2:]) for trial, row in found],
        )


def remarks(run: Run) -> list[str]:
    """How to read it, and what is missing from it."""
    tests = dict.fromkeys(trial.test for trial in run.host_trials)
    said = [meaning for test in tests if (meaning := _meaning(test))]
    if any(test.startswith(_INTERRUPT) for test in tests):
        said.append(PUBLISHED)
    missed = sum(trial.missed for trial in run.host_trials)
    if missed:
        said.append(f"{count(missed)} values did not fit into the kernel's buffer; no figure has them.")
    said += [
        f"Nothing was measured for {show_span(gap.end_s - gap.start_s)}, {show_span(gap.start_s)} after the start: "
        f"{plain(gap.reason)}."
        for gap in (run.host_soak.gaps if run.host_soak else ())
    ]
    said += [
        f"The clock was set by {step.step_s:+.3f} s before {show_span(step.at_s)}; the run uses another clock."
        for step in (run.host_soak.clock_steps if run.host_soak else ())
    ]
    return said


def _meaning(test: str) -> str | None:
    """What a tool measures; None of one that is not known."""
    if test not in MEANINGS and (found := _RECEIVERS.match(test)):
        name = plain(test[found.end() :])
        return f"{plain(test)}: the same in a machine with the latency level and the memory of the spec's {name}."
    return MEANINGS.get(test)


def compared(run: Run) -> list[Compared]:
    """p99.99 and maximum of each later profile against the first, for what both have."""
    profiles = _profiles(run)
    found = []
    for first in (trial for trial in _sorted(run) if trial.host_profile in profiles[:1]):
        for other in run.host_trials:
            same = (other.test, other.load, other.cpu) == (first.test, first.load, first.cpu)
            if not same or other.host_profile in (first.host_profile, None) or first.host_profile is None:
                continue
            for figure in ("p99_99_us", "max_us"):
                pairs = zip(first.intervals, other.intervals, strict=False)
                values = ((getattr(one, figure), getattr(two, figure)) for one, two in pairs)
                ratios = tuple(two / one for one, two in values if one and two is not None)
                if ratios:
                    found.append(
                        Compared(
                            first.test, first.load, first.cpu, first.role, figure.removesuffix("_us").replace("_", "."),
                            first.host_profile, other.host_profile or "", ratios,
                        )
                    )  # fmt: skip
    return found


def section(run: Run) -> Section:
    """All that a report shows of a run's host trials, but the charts."""
    return Section(titles(run), rows(run), compared(run), remarks(run))


def charts(runs: Sequence[Marked]) -> list[dict[str, Any]]:
    """One entry for each tool and load, as `curves.charts` makes them; a line for each CPU and profile."""
    groups: dict[tuple[str, str], list[tuple[Marked, HostTrial]]] = {}
    for each in runs:
        for trial in _sorted(each.stored.run):
            groups.setdefault((trial.test, trial.load), []).append((each, trial))
    return [_chart(f"{plain(test)}, load {kind}", found) for (test, kind), found in groups.items()]


def _chart(title: str, found: Sequence[tuple[Marked, HostTrial]]) -> dict[str, Any]:
    lines: list[tuple[dict[str, Any], Marked, HostTrial]] = []
    for of, trial in found:
        if trial.name in of.stored.histograms:
            colour, dash = look(len(lines))
            lines.append(({"label": of.label(_label(trial)), "colour": colour, "dash": dash}, of, trial))
    return {
        "title": title,
        **distributions([(line, of.stored.histograms[trial.name]) for line, of, trial in lines]),
        "times": [{**line, **_over_time(of.stored.run, trial)} for line, of, trial in lines],
    }


def _over_time(run: Run, trial: HostTrial) -> dict[str, list[Any]]:
    """As `curves.over_time`: what each slice found, nothing at the start of a gap, and the gaps."""
    gaps = run.host_soak.gaps if run.host_soak else ()
    points = [(each.start_s, each.min_us, each.avg_us, each.max_us) for each in trial.intervals]
    points = sorted([*points, *((gap.start_s, None, None, None) for gap in gaps)], key=lambda point: point[0])
    x, *figures = zip(*points, strict=True) if points else ((), (), (), ())
    return {
        "x": [short(each) for each in x],
        **{name: list(map(_drawn, values)) for name, values in zip(("min", "avg", "max"), figures, strict=True)},
        "faults": [],
        "gaps": [[short(gap.start_s), short(gap.end_s)] for gap in gaps],
    }


def _drawn(us: Point) -> Point:
    return None if us is None else short(max(us, LEAST_US))


def _label(trial: HostTrial) -> str:
    profile = f", {plain(trial.host_profile)}" if trial.host_profile else ""
    return f"CPU {trial.cpu} ({plain(trial.role)}){profile}"


def _profiles(run: Run) -> list[str]:
    return [name for name in dict.fromkeys(trial.host_profile for trial in run.host_trials) if name is not None]


def _sorted(run: Run) -> list[HostTrial]:
    """By tool and load in the order of measuring, then CPU; profiles beside each other."""
    tests = list(dict.fromkeys(trial.test for trial in run.host_trials))
    loads = ("none", "cpu", "memory", "machines")
    return sorted(run.host_trials, key=lambda each: (tests.index(each.test), loads.index(each.load), each.cpu))


def _row(trial: HostTrial) -> tuple[str, ...]:
    latency = trial.latency_us
    figures = (MISSING if latency is None else microseconds(getattr(latency, name)) for name in _FIELDS)
    return (plain(trial.test), trial.load, f"{trial.cpu} {plain(trial.role)}", count(trial.samples), *figures)
