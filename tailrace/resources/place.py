"""Which CPU each polling thread gets, and why that one.

Where roles are applied (`Cpu.role`), each poller has a CPU of its role, or else one that is kept free for another or
isolated, or else any; control threads are on the system's CPUs.

A polling thread wants a CPU to itself. Where there are not enough, the switch keeps one alone, because whatever
delays it delays everything, and the tester shares another with the functions, which then sleep until they are notified
and run at a real-time priority, so that the tester's polling does not keep a packet waiting. That is said in
the first line of the output: absolute latencies on such a machine are those of sharing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from tailrace.errors import Mistake
from tailrace.resources.roles import SYSTEM
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
    why: str = field(default="", compare=False)
    """Why it is this CPU, in words."""


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
    notes: tuple[str, ...] = field(default=(), compare=False)
    """Where it is not as the roles would have it."""

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
    first: str = "switch",
) -> Placement:
    """The placement of the switch, the tester (where there is one) and the functions on `cpus`.

    The switch has so many `workers`, or one on each of `cores`, which must be among `cpus`. `real_time` says whether
    this process may use real-time priorities. `first` is the role of who has the switch's place.
    """
    if not cpus:
        raise Mistake("no CPU is allowed; give this process at least one, for instance with taskset")
    order = _best_first(cpus)
    workers = len(cores) or workers
    named = [_Choice(cpu, "named by fabric.cores") for core in cores for cpu in cpus if cpu.number == core]
    pollers = [] if cores else [_Poller(first, "the switch" if first == "switch" else "the tester")] * workers
    pollers += [_TESTER] if tester else []
    pollers += [_Poller("vnf", name) for name in functions]
    count = workers + int(tester) + len(functions)
    chosen = _choose(order, pollers, cores, leading=0 if cores else workers)
    if chosen is not None:
        chosen = named + chosen
        own, rest = chosen[:workers], chosen[workers:]
        control, spare = _control(cpus, order, {choice.cpu.number for choice in chosen})
        nice = POLLER_NICE if spare else 0
        places = [choice.place(control, nice) for choice in rest]
        return Placement(
            own[0].place({*control, *(choice.cpu.number for choice in own)}, nice),
            places.pop(0) if tester else None,
            dict(zip(functions, places, strict=False)),
            False,
            count,
            len(order),
            tuple(choice.cpu.number for choice in own),
            tuple(choice.note for choice in chosen if choice.note),
        )
    own = named or _choose(order, pollers[:workers], ()) or [_Choice(cpu) for cpu in order]
    numbers = tuple(choice.cpu.number for choice in own)
    shared = _shared(order, numbers)
    why = _why(shared, f"shared: {count} pollers on {len(order)} cores")
    return Placement(
        own[0].place({*numbers, *_system(cpus, order, numbers, [shared.number])}, 0),
        Place(shared.number, (shared.number,), nice=0, why=why) if tester else None,
        dict.fromkeys(functions, interrupt_place(shared.number, real_time=real_time, why=why)),
        True,
        count,
        len(order),
        numbers,
        tuple(choice.note for choice in own if choice.note),
    )


def place_without_switch(cpus: Sequence[Cpu], functions: Sequence[str], *, real_time: bool) -> Placement:
    """The placement of the tester and the functions where no switch polls: the tester has what a switch would have."""
    found = place(cpus, functions, tester=False, real_time=real_time, first="tester")
    return replace(found, tester=found.switch, workers=())


def interrupt_place(core: int, *, real_time: bool, why: str = "") -> Place:
    """A place that is shared: sleeps until there is something to do, and then goes first."""
    return Place(core, (core,), "interrupt", FUNCTION_PRIORITY if real_time else None, nice=0, why=why)


def keep_places(
    old: Placement, cpus: Sequence[Cpu], functions: Sequence[str], *, tester: bool, real_time: bool
) -> Placement:
    """A placement for a changed set of functions in which whoever stays, stays where it is.

    New pollers get the CPUs that nobody has; where these do not suffice, new functions share one.
    """
    order = _best_first(cpus)
    kept = {name: old.functions[name] for name in functions if name in old.functions}
    new = [name for name in functions if name not in kept]
    taken = {*old.workers, *(each.core for each in kept.values()), *([old.tester.core] if old.tester else [])}
    own_tester = old.tester if tester else None
    new_tester = tester and own_tester is None
    pollers = ([_TESTER] if new_tester else []) + [_Poller("vnf", name) for name in new]
    chosen = None if old.oversubscribed else _choose(order, pollers, taken)
    count = max(len(old.workers), 1) + int(tester) + len(functions)
    if chosen is not None:
        control, _ = _control(cpus, order, {*taken, *(choice.cpu.number for choice in chosen)})
        places = [choice.place(control, 0) for choice in chosen]
    else:
        shared = _shared(order, old.workers)
        core = old.tester.core if old.tester else shared.number
        if pollers and old.oversubscribed:
            core = next((each.core for each in kept.values()), core)
        at = next((cpu for cpu in cpus if cpu.number == core), shared)
        why = _why(at, f"shared: {count} pollers on {len(order)} cores")
        control, _ = _control(cpus, order, taken)
        places = [Place(core, tuple(sorted({core, *control})), nice=0, why=why)] if new_tester else []
        places += [interrupt_place(core, real_time=real_time, why=why)] * len(new)
    if new_tester:
        own_tester = places.pop(0)
    placed = {**kept, **dict(zip(new, places, strict=True))}
    return Placement(
        old.switch,
        own_tester,
        {name: placed[name] for name in functions},
        chosen is None,
        count,
        len(order),
        old.workers,
        tuple(choice.note for choice in chosen or () if choice.note),
    )


def place_tester(cpus: Sequence[Cpu]) -> Place:
    """The tester's place where it is the only poller: the last CPU, its control thread on the first."""
    if not cpus:
        raise Mistake("no CPU is allowed; give this process at least one, for instance with taskset")
    order = _best_first(cpus)
    (choice,) = _choose(order, [_TESTER], ()) or [_Choice(order[-1])]
    own = choice.cpu.number
    return choice.place(_system(cpus, order, [own], [order[0].number]), POLLER_NICE if len(order) > 1 else 0)


# --- which CPU -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Poller:
    """Who wants a CPU."""

    role: str
    name: str


_TESTER = _Poller("tester", "the tester")


@dataclass(frozen=True)
class _Choice:
    """A CPU that one poller has."""

    cpu: Cpu
    how: str = ""
    note: str = ""

    def place(self, control: Collection[int], nice: int) -> Place:
        whole = "" if set(self.cpu.siblings) - {self.cpu.number} & set(control) else "a whole core"
        return Place(
            self.cpu.number, tuple(sorted({self.cpu.number, *control})), nice=nice, why=_why(self.cpu, self.how, whole)
        )


def _why(cpu: Cpu, how: str = "", whole: str = "") -> str:
    """Role vnf of profile latency, node 0, isolated, a whole core."""
    said = [how, str(cpu.role or ""), f"node {cpu.node}", "isolated" if cpu.isolated else "", whole]
    return ", ".join(filter(None, said))


def _choose(
    order: Sequence[Cpu], pollers: Sequence[_Poller], taken: Collection[int], *, leading: int = 0
) -> list[_Choice] | None:
    """A CPU for each of the pollers, of those that nobody has taken; None if these do not suffice. So many `leading`
    pollers keep off Linux's own work, also where the others cannot."""
    free = [cpu for cpu in order if cpu.number not in taken]
    count = len(pollers)
    if count > len(free):
        return None
    if _roles_applied(order):
        return _by_roles(free, pollers)
    # The first CPU also serves Linux's own work, so it goes to nobody as long as there are enough.
    chosen = free[len(free) - count :]
    if len(free) > count:
        chosen.sort(key=lambda cpu: cpu.slow)
    else:
        chosen = chosen[count - leading :] + chosen[: count - leading]
    return [_Choice(cpu) for cpu in chosen]


def _by_roles(free: Sequence[Cpu], pollers: Sequence[_Poller]) -> list[_Choice]:
    """Each poller's own role first, so that nobody has what another needs; then what is kept free, and then the rest,
    of which the first CPU comes last."""
    left = sorted(free, key=lambda cpu: (cpu.slow, cpu.number))
    found: dict[int, _Choice] = {}
    for number, poller in enumerate(pollers):
        own = next((cpu for cpu in left if _role(cpu) == poller.role), None)
        if own is not None:
            left.remove(own)
            found[number] = _Choice(own)
    for number, poller in enumerate(pollers):
        if number in found:
            continue
        other = next((cpu for cpu in left if _kept_free(cpu)), None) or max(left, key=lambda cpu: free.index(cpu))
        left.remove(other)
        lack = f"no CPU of role {poller.role} is left"
        note = f"{poller.name}: {lack}, so it polls on CPU {other.number} ({_why(other)})"
        found[number] = _Choice(other, lack, note)
    return [found[number] for number in range(len(pollers))]


def _role(cpu: Cpu) -> str | None:
    return cpu.role.name if cpu.role else None


def _kept_free(cpu: Cpu) -> bool:
    """Whether Linux's own work is kept off it."""
    return cpu.isolated or _role(cpu) not in (None, SYSTEM)


def _roles_applied(cpus: Iterable[Cpu]) -> bool:
    return any(cpu.role for cpu in cpus)


def _shared(order: Sequence[Cpu], own: Collection[int]) -> Cpu:
    """The CPU of those who share one: if possible not one of the switch's `own`."""
    others = [cpu for cpu in order if cpu.number not in own] or order[:1]
    if not _roles_applied(order):
        return others[0]
    return min(others, key=lambda cpu: (_role(cpu) != "vnf", not _kept_free(cpu)))


def _control(cpus: Sequence[Cpu], order: Sequence[Cpu], taken: Collection[int]) -> tuple[list[int], bool]:
    """The CPUs of control threads, and whether they are apart from those that are taken."""
    spare = sorted(cpu.number for cpu in order if cpu.number not in taken)
    system = _system(cpus, order, taken, spare)
    return (system, True) if system else ([order[0].number], False)


def _system(cpus: Sequence[Cpu], order: Sequence[Cpu], taken: Collection[int], otherwise: Sequence[int]) -> list[int]:
    """The system's CPUs, if possible of the pollers' node; other ones where no roles are applied."""
    system = [cpu for cpu in cpus if _role(cpu) == SYSTEM and cpu.number not in taken]
    near = [cpu for cpu in system if cpu.node == order[0].node]
    return sorted(cpu.number for cpu in near or system) or list(otherwise)


def poller_node(cpus: Sequence[Cpu]) -> int | None:
    """The node that all pollers are on; None without a CPU."""
    return next((cpu.node for cpu in _best_first(cpus)), None) if cpus else None


def _best_first(cpus: Sequence[Cpu]) -> list[Cpu]:
    """All on the best node, first threads of cores before their siblings, in the order of their numbers, but for the
    first one slow ones before fast ones; isolated ones last, where pollers are taken from.

    Only CPUs of the node with the most of them count, those with a role and isolated ones first: memory and rings are
    shared, and another node is far.
    """
    nodes: dict[int, list[Cpu]] = {}
    for cpu in cpus:
        nodes.setdefault(cpu.node, []).append(cpu)
    best = max(
        nodes.values(),
        key=lambda members: (
            len({cpu.core for cpu in members if _role(cpu) not in (None, SYSTEM)}),
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
