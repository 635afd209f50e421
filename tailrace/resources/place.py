"""Which CPU each polling thread gets.

A polling thread wants a CPU to itself. Where there are not enough, the switch keeps one alone, because whatever
delays it delays everything, and the tester shares another with the functions, which then sleep until they are notified
and run at a real-time priority, so that the tester's polling does not keep a packet waiting. That is said in
the first line of the output: absolute latencies on such a machine are those of sharing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tailrace.errors import Mistake
from tailrace.resources.topology import Cpu

#: Low in the range of real-time priorities: above ordinary threads, below the kernel's own interrupt threads (50).
FUNCTION_PRIORITY = 10
#: Ahead of all other ordinary work, without the throttle that the kernel puts on real-time threads that never sleep.
#: Only where a core is left for that other work: a poller that never sleeps would starve it, this command included.
POLLER_NICE = -20


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
    """Where its control threads and its first worker run."""
    tester: Place | None
    functions: dict[str, Place]
    oversubscribed: bool
    pollers: int
    cores: int
    workers: tuple[int, ...] = ()
    """The cores of the switch's workers."""

    @property
    def headline(self) -> str:
        """The first line of output: how pollers and cores stand to each other."""
        if not self.oversubscribed:
            pollers = "1 poller" if self.pollers == 1 else f"{self.pollers} pollers"
            return f"{pollers} on {self.cores} cores: each polls on a core of its own."
        places = [*([self.tester] if self.tester else []), *reversed(self.functions.values())]
        shared = places[0].core if places else self.switch.core
        real_time = any(place.priority for place in self.functions.values())
        how = (
            f"at real-time priority {FUNCTION_PRIORITY}"
            if real_time
            else "at ordinary priority (real-time was refused)"
        )
        who = "the tester and the functions share" if self.tester else "the functions share"
        has = f"core {self.switch.core}" if len(self.workers) < 2 else f"cores {', '.join(map(str, self.workers))}"
        alone = "The switch"
        if not self.workers and self.functions:  # there is no switch
            alone, who, shared = "The tester", "the functions share", next(iter(self.functions.values())).core
        if shared in self.workers:
            has, with_it = f"polls on {has}", " with it"
        else:
            has, with_it = f"has {has} alone", ""
        return (
            f"Oversubscribed: {self.pollers} pollers on {self.cores} cores. "
            f"{alone} {has}, {who} core {shared}{with_it}; functions are interrupt-driven {how}."
        )


def place(
    cpus: Sequence[Cpu],
    functions: Sequence[str],
    *,
    tester: bool,
    real_time: bool,
    workers: int = 1,
    cores: Sequence[int] = (),
) -> Placement:
    """The placement of the switch, the tester (where there is one) and the functions on `cpus`.

    The switch has so many `workers`, or one on each of `cores`, which must be among `cpus`. `real_time` says whether
    this process may use real-time priorities.
    """
    if not cpus:
        raise Mistake("no CPU is allowed; give this process at least one, for instance with taskset")
    order = _best_first(cpus)
    workers = len(cores) or workers
    count = workers + int(tester) + len(functions)
    numbers = [cpu.number for cpu in order]
    others = [number for number in numbers if number not in cores]
    if count - len(cores) <= len(others):
        # The first CPU also serves Linux's own work, so it goes to nobody as long as there are enough.
        wanted = count - len(cores)
        spare, chosen = others[: len(others) - wanted], others[len(others) - wanted :]
        if spare:  # of the chosen ones the first are the switch's
            slow = {cpu.number for cpu in order if cpu.slow}
            chosen.sort(key=lambda number: number in slow)
        control = tuple(sorted(spare)) if spare else (numbers[0],)
        nice = POLLER_NICE if spare else 0
        if cores:
            own, rest = list(cores), chosen
        elif spare:
            own, rest = chosen[:workers], chosen[workers:]
        else:  # the last in the list are the switch's: Linux's own work goes to the first
            own, rest = chosen[len(chosen) - workers :], chosen[: len(chosen) - workers]
        switch = Place(own[0], tuple(sorted({*own, *control})), nice=nice)
        places = [Place(core, tuple(sorted({core, *control})), nice=nice) for core in rest]
        own_tester = places.pop(0) if tester else None
        placed = dict(zip(functions, places, strict=False))
        return Placement(switch, own_tester, placed, False, count, len(numbers), tuple(own))
    own = list(cores) or numbers[max(len(numbers) - workers, 0) :]
    shared = next((number for number in numbers if number not in own), numbers[0])
    return Placement(
        Place(own[0], tuple(sorted({*own, shared})), nice=0),
        Place(shared, (shared,), nice=0) if tester else None,
        dict.fromkeys(functions, interrupt_place(shared, real_time=real_time)),
        True,
        count,
        len(numbers),
        tuple(own),
    )


def place_without_switch(cpus: Sequence[Cpu], functions: Sequence[str], *, real_time: bool) -> Placement:
    """The placement of the tester and the functions where no switch polls: the tester has what a switch would have."""
    found = place(cpus, functions, tester=False, real_time=real_time)
    return replace(found, tester=found.switch, workers=())


def interrupt_place(core: int, *, real_time: bool) -> Place:
    """A place that is shared: sleeps until there is something to do, and then goes first."""
    return Place(core, (core,), "interrupt", FUNCTION_PRIORITY if real_time else None, nice=0)


def keep_places(
    old: Placement, cpus: Sequence[Cpu], functions: Sequence[str], *, tester: bool, real_time: bool
) -> Placement:
    """A placement for a changed set of functions in which whoever stays, stays where it is.

    New pollers get the CPUs that nobody has; where these do not suffice, new functions share one.
    """
    numbers = [cpu.number for cpu in _best_first(cpus)]
    kept = {name: old.functions[name] for name in functions if name in old.functions}
    new = [name for name in functions if name not in kept]
    taken = {*old.workers, *(each.core for each in kept.values()), *([old.tester.core] if old.tester else [])}
    free = [number for number in numbers if number not in taken]
    own_tester = old.tester if tester else None
    wanted = len(new) + int(tester and own_tester is None)
    shares = old.oversubscribed or wanted > len(free)
    shared = old.tester.core if old.tester else next((core for core in numbers if core not in old.workers), numbers[0])
    if wanted and old.oversubscribed:
        shared = next((each.core for each in kept.values()), shared)
    chosen = [] if shares else free[len(free) - wanted :]
    control = {number for number in free if number not in chosen} or {numbers[0]}
    if tester and own_tester is None:
        own_tester = Place(chosen.pop(0), (), nice=0) if chosen else Place(shared, (shared,), nice=0)
        own_tester = replace(own_tester, cpus=tuple(sorted({own_tester.core, *control})))
    places = {
        name: Place(chosen.pop(0), (), nice=0) if chosen else interrupt_place(shared, real_time=real_time)
        for name in new
    }
    placed = {
        name: replace(each, cpus=tuple(sorted({each.core, *control}))) if not each.cpus else each
        for name, each in places.items()
    }
    count = max(len(old.workers), 1) + int(tester) + len(functions)
    ordered = {name: {**kept, **placed}[name] for name in functions}
    return Placement(old.switch, own_tester, ordered, shares, count, len(numbers), old.workers)


def place_tester(cpus: Sequence[Cpu]) -> Place:
    """The tester's place where it is the only poller: the last CPU, its control thread on the first."""
    order = _best_first(cpus)
    if not order:
        raise Mistake("no CPU is allowed; give this process at least one, for instance with taskset")
    core = order[-1].number
    return Place(core, tuple(sorted({core, order[0].number})), nice=POLLER_NICE if len(order) > 1 else 0)


def poller_node(cpus: Sequence[Cpu]) -> int | None:
    """The node that all pollers are on; None without a CPU."""
    return next((cpu.node for cpu in _best_first(cpus)), None) if cpus else None


def _best_first(cpus: Sequence[Cpu]) -> list[Cpu]:
    """All on the best node, first threads of cores before their siblings, in the order of their numbers, but for the
    first one slow ones before fast ones; isolated ones last, where pollers are taken from.

    Only CPUs of the node with the most of them count, isolated ones first: memory and rings are shared, and another
    node is far.
    """
    nodes: dict[int, list[Cpu]] = {}
    for cpu in cpus:
        nodes.setdefault(cpu.node, []).append(cpu)
    best = max(
        nodes.values(),
        key=lambda members: (
            len({cpu.core for cpu in members if cpu.isolated}),
            len({cpu.core for cpu in members}),
            -members[0].node,
        ),
    )
    firsts: dict[int, Cpu] = {}
    for cpu in sorted(best, key=lambda cpu: cpu.number):
        firsts.setdefault(cpu.core, cpu)
    boot = min(cpu.number for cpu in firsts.values())  # Linux's own work is there, of whatever kind it is
    return sorted(firsts.values(), key=lambda cpu: (cpu.isolated, cpu.number != boot, not cpu.slow, cpu.number))
