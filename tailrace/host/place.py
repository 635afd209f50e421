"""Which CPU each polling thread gets.

A polling thread wants a CPU to itself. Where there are not enough, the switch keeps one alone, because whatever
delays it delays everything, and the tester shares another with the functions, which then sleep until they are notified
and run at a real-time priority, so that the tester's polling does not keep a packet waiting. That is said in
the first line of the output: absolute latencies on such a machine are those of sharing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import Mistake

#: Low in the range of real-time priorities: above ordinary threads, below the kernel's own interrupt threads (50).
FUNCTION_PRIORITY = 10
#: Ahead of all other ordinary work, without the throttle that the kernel puts on real-time threads that never sleep.
#: Only where a core is left for that other work: a poller that never sleeps would starve it, this command included.
POLLER_NICE = -20


@dataclass(frozen=True)
class Cpu:
    """One logical CPU and where it sits."""

    number: int
    node: int = 0
    core: int = 0
    """The first CPU of the physical core, so that siblings are told from cores."""


@dataclass(frozen=True)
class Place:
    """Where one process runs: the CPU of its polling thread, and all CPUs it may use (control threads)."""

    core: int
    cpus: tuple[int, ...]
    mode: str = "poll"
    priority: int | None = None
    """A SCHED_FIFO priority, or None for the ordinary scheduler."""
    nice: int = POLLER_NICE
    """Niceness under the ordinary scheduler."""


@dataclass(frozen=True)
class Placement:
    """The plan for every poller."""

    switch: Place
    tester: Place | None
    functions: dict[str, Place]
    oversubscribed: bool
    pollers: int
    cores: int

    @property
    def headline(self) -> str:
        """The first line of output: how pollers and cores stand to each other."""
        if not self.oversubscribed:
            return f"{self.pollers} pollers on {self.cores} cores: each polls on a core of its own."
        shared = self.tester.core if self.tester else next(iter(self.functions.values())).core
        real_time = any(place.priority for place in self.functions.values())
        how = (
            f"at real-time priority {FUNCTION_PRIORITY}"
            if real_time
            else "at ordinary priority (real-time was refused)"
        )
        who = "the tester and the functions share" if self.tester else "the functions share"
        return (
            f"Oversubscribed: {self.pollers} pollers on {self.cores} cores. The switch has core {self.switch.core} "
            f"alone, {who} core {shared}; functions are interrupt-driven {how}."
        )


def allowed_cpus() -> list[Cpu]:
    """The CPUs this process may use, with their place in the machine."""
    return [_describe(number) for number in sorted(os.sched_getaffinity(0))]


def _describe(number: int) -> Cpu:
    base = Path(f"/sys/devices/system/cpu/cpu{number}")
    node = next((int(path.name[4:]) for path in base.glob("node[0-9]*")), 0)
    try:
        siblings = (base / "topology/thread_siblings_list").read_text()
        core = min(parse_cpu_list(siblings))
    except (OSError, ValueError):
        core = number
    return Cpu(number, node, core)


def parse_cpu_list(text: str) -> list[int]:
    """0-3,8 → [0, 1, 2, 3, 8]. Raises ValueError."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return cpus


def place(
    cpus: Sequence[Cpu],
    functions: Sequence[str],
    *,
    tester: bool,
    real_time: bool,
) -> Placement:
    """The placement of the switch, the tester (where there is one) and the functions on `cpus`.

    `real_time` says whether this process may use real-time priorities.
    """
    if not cpus:
        raise Mistake("no CPU is allowed; give this process at least one, for instance with taskset")
    order = _best_first(cpus)
    count = 1 + int(tester) + len(functions)
    numbers = [cpu.number for cpu in order]
    if count <= len(numbers):
        # The first CPU also serves Linux's own work, so it goes to nobody as long as there are enough.
        spare = numbers[:-count]
        chosen = numbers[len(numbers) - count :]
        control = tuple(sorted(spare)) if spare else (numbers[0],)
        nice = POLLER_NICE if spare else 0
        places = [Place(core, tuple(sorted({core, *control})), nice=nice) for core in chosen]
        switch, rest = places[0], places[1:]
        if not spare:  # the last in the list is the switch's: Linux's own work goes to the first
            switch, rest = places[-1], places[:-1]
        own_tester = rest.pop(0) if tester else None
        return Placement(switch, own_tester, dict(zip(functions, rest, strict=False)), False, count, len(numbers))
    switch_core, shared = numbers[-1], numbers[0]
    interrupt = Place(shared, (shared,), "interrupt", FUNCTION_PRIORITY if real_time else None, nice=0)
    return Placement(
        Place(switch_core, tuple(sorted({switch_core, shared})), nice=0),
        Place(shared, (shared,), nice=0) if tester else None,
        dict.fromkeys(functions, interrupt),
        True,
        count,
        len(numbers),
    )


def place_tester(cpus: Sequence[Cpu]) -> Place:
    """The tester's place where it is the only poller: the last CPU, its control thread on the first."""
    order = _best_first(cpus)
    if not order:
        raise Mistake("no CPU is allowed; give this process at least one, for instance with taskset")
    core = order[-1].number
    return Place(core, tuple(sorted({core, order[0].number})), nice=POLLER_NICE if len(order) > 1 else 0)


def _best_first(cpus: Sequence[Cpu]) -> list[Cpu]:
    """All on the best node, first threads of cores before their siblings, in the order of their numbers.

    Only CPUs of the node with the most of them count: memory and rings are shared, and another node is far.
    """
    nodes: dict[int, list[Cpu]] = {}
    for cpu in cpus:
        nodes.setdefault(cpu.node, []).append(cpu)
    best = max(nodes.values(), key=lambda members: (len({cpu.core for cpu in members}), -members[0].node))
    firsts: dict[int, Cpu] = {}
    for cpu in sorted(best, key=lambda cpu: cpu.number):
        firsts.setdefault(cpu.core, cpu)
    return sorted(firsts.values(), key=lambda cpu: cpu.number)
