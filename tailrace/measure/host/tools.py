"""What a tool is, and the two of rt-tests: what they are given, and what they found.

cyclictest sleeps until a moment and looks how much later it woke. oslat never sleeps and looks how long it was taken
away from. Both need nothing of the kernel. The kernel's own tracers are in tracers.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tailrace.kernel.cpus import show_list
from tailrace.measure.host.program import run
from tailrace.process.programs import system_program
from tailrace.results.causes import Causes
from tailrace.results.histogram import Histogram, index_of
from tailrace.results.host import Budget

Progress = Callable[[float], None]
"""Told how many seconds of a slice are done."""
PRIORITY = 95
"""Of measuring threads: above the kernel's interrupt threads (50), below its watchdogs (99)."""
INTERVAL_US = 500
"""Between two wake-ups."""
HIGHEST_US = 1_000_000
"""The most that cyclictest's histogram can hold: one second."""
BUCKETS = 1024
"""The most that oslat's histogram can hold, in µs."""


@dataclass(frozen=True)
class Setting:
    """Where a slice measures, and from where."""

    cpus: Mapping[int, str]
    """The role of each CPU that is measured."""
    control: tuple[int, ...]
    """The CPUs of everything that does not measure: the system's."""
    folder: Path
    """For what the programs write."""


@dataclass(frozen=True)
class Slice:
    """What one slice found of one CPU."""

    histogram: Histogram
    missed: int = 0
    budget: Budget | None = None
    causes: Causes | None = None


class Tool(Protocol):
    """One way to measure."""

    @property
    def name(self) -> str: ...

    def measure(self, setting: Setting, seconds: int, progress: Progress) -> Mapping[str, Mapping[int, Slice]]:
        """What was found, by name of the figure and CPU. Raises Failure."""


def from_values(values: Mapping[int, int]) -> Histogram:
    """The histogram of values in ns with their counts."""
    kept = {value: count for value, count in values.items() if count}
    if not kept:
        return Histogram()
    counts: dict[int, int] = {}
    for value, count in kept.items():
        counts[index_of(value)] = counts.get(index_of(value), 0) + count
    total = sum(value * count for value, count in kept.items())
    return Histogram(tuple(sorted(counts.items())), min(kept), max(kept), total)


@dataclass(frozen=True)
class Cyclictest:
    """How much later than asked a thread wakes up. Values are whole µs, rounded down by cyclictest."""

    fine: bool = False
    """Whether they are whole ns; the histogram then ends at a millisecond."""

    @property
    def name(self) -> str:
        return "cyclictest"

    def measure(self, setting: Setting, seconds: int, progress: Progress) -> Mapping[str, Mapping[int, Slice]]:
        result = setting.folder / "cyclictest.json"
        argv = [
            system_program("cyclictest"),
            "--quiet",
            "--mlockall",
            # It must meet the power management that it is to judge.
            "--default-system",
            "--policy=fifo",
            f"--priority={PRIORITY}",
            f"--interval={INTERVAL_US}",
            f"--affinity={show_list(setting.cpus)}",
            f"--threads={len(setting.cpus)}",
            f"--mainaffinity={show_list(setting.control)}",
            f"--histogram={HIGHEST_US}",
            f"--duration={seconds}s",
            f"--json={result}",
            *(["--nsecs"] if self.fine else []),
        ]
        everywhere = tuple(sorted({*setting.cpus, *setting.control}))
        run(argv, setting.folder / "cyclictest.log", everywhere, seconds, progress)
        return {self.name: parse_cyclictest(json.loads(result.read_text()), 1 if self.fine else 1000)}


def parse_cyclictest(document: Mapping[str, Any], unit_ns: int = 1000) -> dict[int, Slice]:
    """cyclictest's JSON: what each CPU's thread saw. What its histogram could not hold counts as its maximum."""
    found: dict[int, Slice] = {}
    for thread in document["thread"].values():
        values = {int(value) * unit_ns: int(count) for value, count in thread["histogram"].items()}
        over, most = int(thread["cycles"]) - sum(values.values()), int(thread["max"]) * unit_ns
        if over > 0:
            values[most] = values.get(most, 0) + over
        found[int(thread["cpu"])] = Slice(from_values(values))
    return found


class Oslat:
    """How long a thread that never sleeps is kept from running. Values are whole µs.

    On the system's CPUs it runs at ordinary priority, because at a real-time one nothing else would run there.
    """

    name = "oslat"

    def measure(self, setting: Setting, seconds: int, progress: Progress) -> Mapping[str, Mapping[int, Slice]]:
        isolated = [cpu for cpu, role in setting.cpus.items() if role != "system"]
        if not isolated:
            return {}
        result = setting.folder / "oslat.json"
        argv = [
            system_program("oslat"),
            "--quiet",
            "--zero-omit",
            f"--cpu-list={show_list(isolated)}",
            f"--cpu-main-thread={setting.control[0]}",
            f"--rtprio={PRIORITY}",
            f"--bucket-size={BUCKETS}",
            f"--duration={seconds}",
            f"--json={result}",
        ]
        everywhere = tuple(sorted({*isolated, *setting.control}))
        # It first finds out what an undisturbed round takes, one second for each thread.
        run(argv, setting.folder / "oslat.log", everywhere, seconds + 2 * len(isolated), progress)
        return {self.name: parse_oslat(json.loads(result.read_text()))}


def parse_oslat(document: Mapping[str, Any]) -> dict[int, Slice]:
    """oslat's JSON. Its last bucket holds everything longer; those count as its maximum."""
    found: dict[int, Slice] = {}
    for thread in document["thread"].values():
        values = {int(us) * 1000: int(count) for us, count in thread["histogram"].items()}
        over = values.pop(BUCKETS * 1000, 0)
        if over:
            values[max(int(thread["max"]), BUCKETS) * 1000] = over
        found[int(thread["cpu"])] = Slice(from_values(values))
    return found
