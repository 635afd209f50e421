"""Which CPU each polling thread gets, and why that one.

Where roles are applied (`Cpu.role`), each poller has a CPU of its role, or else one that is kept free for another or
isolated, or else any; control threads are on the system's CPUs.

A polling thread wants a CPU to itself. Where there are not enough, the switch keeps one alone, because whatever
delays it delays everything, and the tester shares another with the functions, which then sleep until they are notified
and run at a real-time priority, so that the tester's polling does not keep a packet waiting. That is said in
the first line of the output: absolute latencies on such a machine are those of sharing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tailrace.errors import Mistake
from tailrace.resources.roles import SYSTEM
from tailrace.resources.topology import Cpu

#: Low in the range of real-time priorities: above ordinary threads, below the kernel's own interrupt threads (50).
FUNCTION_PRIORITY = 10
#: Ahead of all other ordinary work, without the throttle that the kernel puts on real-time threads that never sleep.
#: Only where a core is left for that other work: a poller that never sleeps would starve it, this command included.
POLLER_NICE = -20


class TooFewCpus(Mistake):
    """A function that runs cannot have as many CPUs as it is to have."""


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
    cores: tuple[int, ...] = ()
    """The CPUs that are its own, of which `core` is the first."""

    def __post_init__(self) -> None:
        if not self.cores:
            object.__setattr__(self, "cores", (self.core,))

    @property
    def words(self) -> str:
        """Core 3; cores 3, 4."""
        return f"core{'s' if len(self.cores) > 1 else ''} {', '.join(map(str, self.cores))}"


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
    siblings: bool = False
    """Two of these are threads of one core, as the spec names them."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """Where it is not as the roles would have it."""

    @property
    def headline(self) -> str:
        """The first line of output: how pollers and cores stand to each other."""
        if not self.oversubscribed:
            own = "CPU" if self.siblings else "core"
            return f"{_on_cores(self.pollers, self.cores)}: each polls on a {own} of its own."
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
            f"Oversubscribed: {_on_cores(self.pollers, self.cores)}. "
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
    several: Mapping[str, int] = MappingProxyType({}),
    first: str = "switch",
) -> Placement:
    """The placement of the switch, the tester (where there is one) and the functions on `cpus`.

    The switch has so many `workers`, or one on each of `cores`, which must be among `cpus`. Functions have a CPU each,
    or as many as `several` says. `real_time` says whether this process may use real-time priorities. `first` is the
    role of who has the switch's place.
    """
    if not cpus:
        raise Mistake("no CPU is allowed; give this process at least one, for instance with taskset")
    order = _best_first(cpus, cores)
    workers = len(cores) or workers
    named = [_Choice((cpu,), "named by fabric.cores") for core in cores for cpu in cpus if cpu.number == core]
    taken = {choice.cpu.core for choice in named}
    pollers = [] if cores else [_Poller(first, "the switch" if first == "switch" else "the tester")] * workers
    pollers += [_TESTER] if tester else []
    pollers += _functions(functions, several)
    count = len(cores) + sum(poller.cpus for poller in pollers)
    whole = len(taken.union(cpu.core for cpu in order))
    notes = _named_notes(named, order)
    chosen = _choose(order, pollers, taken, leading=0 if cores else workers)
    if chosen is not None:
        chosen = named + chosen
        own, rest = chosen[:workers], chosen[workers:]
        control, spare = _control(cpus, order, _cores(chosen))
        nice = POLLER_NICE if spare else 0
        places = [choice.place(control, nice) for choice in rest]
        return Placement(
            own[0].place({*control, *(choice.cpu.number for choice in own)}, nice),
            places.pop(0) if tester else None,
            dict(zip(functions, places, strict=False)),
            False,
            count,
            whole,
            tuple(choice.cpu.number for choice in own),
            len(taken) < len(named),
            (*notes, *(choice.note for choice in chosen if choice.note)),
        )
    own = named or _choose(order, pollers[:workers], ()) or [_Choice((cpu,)) for cpu in order]
    numbers = tuple(choice.cpu.number for choice in own)
    beside = [cpu for cpu in cpus if cpu.core in taken and cpu.number not in cores]
    shared = _shared(order, _cores(own), beside)
    if shared.core in taken:
        notes.append(f"no core is left beside those of fabric.cores, so others poll on CPU {shared.number} of these")
    why = _why(shared, f"shared: {_on_cores(count, whole)}")
    return Placement(
        own[0].place({*numbers, *_system(cpus, order, _cores(own), [shared.number])}, 0),
        Place(shared.number, (shared.number,), nice=0, why=why) if tester else None,
        dict.fromkeys(functions, interrupt_place(shared.number, real_time=real_time, why=why)),
        True,
        count,
        whole,
        numbers,
        len(taken) < len(named),
        (*notes, *(choice.note for choice in own if choice.note)),
    )


def place_without_switch(cpus: Sequence[Cpu], functions: Sequence[str], *, real_time: bool) -> Placement:
    """The placement of the tester and the functions where no switch polls: the tester has what a switch would have."""
    found = place(cpus, functions, tester=False, real_time=real_time, first="tester")
    return replace(found, tester=found.switch, workers=())


def with_shared(placement: Placement, names: Iterable[str]) -> Placement:
    """The placement with functions that have no CPU of their own: they share those of control threads, sleep until they
    are notified, and wait for whoever else runs there."""
    own = set(placement.workers)
    control = tuple(cpu for cpu in placement.switch.cpus if cpu not in own) or placement.switch.cpus
    at = Place(control[0], control, "interrupt", nice=0, why="latency normal: it shares the CPUs of control threads")
    return replace(placement, functions={**placement.functions, **dict.fromkeys(names, at)})


def interrupt_place(core: int, *, real_time: bool, why: str = "") -> Place:
    """A place that is shared: sleeps until there is something to do, and then goes first."""
    return Place(core, (core,), "interrupt", FUNCTION_PRIORITY if real_time else None, nice=0, why=why)


def keep_places(
    old: Placement,
    cpus: Sequence[Cpu],
    functions: Sequence[str],
    *,
    tester: bool,
    real_time: bool,
    several: Mapping[str, int] = MappingProxyType({}),
    elastic: Collection[str] = (),
    high: Collection[str] = (),
) -> Placement:
    """A placement for a changed set of functions in which whoever stays, stays where it is, unless it has more or fewer
    CPUs now; one that is `elastic` stays then too, with the first of those that it has, or some more.

    New pollers get the CPUs that nobody has; where these do not suffice, new functions share one, of those that are
    `high` only where there is no other. Raises TooFewCpus where they do not suffice for who stays.
    """
    order = _best_first(cpus, old.workers)
    kept = {
        name: have
        for name in functions
        if (have := old.functions.get(name))
        and (have.mode == "interrupt" or len(have.cores) == several.get(name, 1) or name in elastic)
    }
    wanted = {name: several.get(name, 1) for name, have in kept.items() if have.mode == "poll"}
    kept |= {name: _first_of(kept[name], count) for name, count in wanted.items() if count < len(kept[name].cores)}
    more = {name: count - len(kept[name].cores) for name, count in wanted.items() if count > len(kept[name].cores)}
    new = [name for name in functions if name not in kept]
    numbers = {*old.workers, *(core for at in kept.values() for core in at.cores)}
    numbers |= {old.tester.core} if old.tester else set()
    taken = {cpu.core for cpu in cpus if cpu.number in numbers}
    own_tester = old.tester if tester else None
    new_tester = tester and own_tester is None
    if more:
        added = _choose(order, _functions(more, more), taken)
        if added is None:
            raise TooFewCpus(f"{' and '.join(more)}: {_too_few(sum(more.values()), order, taken)}")
        kept |= {name: _with(kept[name], choice) for name, choice in zip(more, added, strict=True)}
        taken |= _cores(added)
    pollers = ([_TESTER] if new_tester else []) + _functions(new, several)
    chosen = None if old.oversubscribed else _choose(order, pollers, taken)
    count = max(len(old.workers), 1) + int(tester) + sum(each.cpus for each in _functions(functions, several))
    if chosen is not None:
        control, _ = _control(cpus, order, taken | _cores(chosen))
        places = [choice.place(control, 0) for choice in chosen]
    else:
        polled = {core for name, at in kept.items() if name in high for core in at.cores}
        own = {cpu.core for cpu in cpus if cpu.number in old.workers}
        of_high = {cpu.core for cpu in cpus if cpu.number in polled}
        shared = _shared(order, own | of_high, [cpu for cpu in order if cpu.core not in own])
        core = old.tester.core if old.tester else shared.number
        if pollers and old.oversubscribed:
            core = next((each.core for each in kept.values()), core)
        at = next((cpu for cpu in cpus if cpu.number == core), shared)
        why = _why(at, f"shared: {_on_cores(count, len(order))}")
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
        old.siblings,
        tuple(choice.note for choice in chosen or () if choice.note),
    )


def _on_cores(pollers: int, cores: int) -> str:
    """3 pollers on 2 cores."""
    return f"{pollers} poller{'s' if pollers > 1 else ''} on {cores} core{'s' if cores > 1 else ''}"


def _first_of(place: Place, count: int) -> Place:
    """The place with so many of its cores."""
    gone = set(place.cores[count:])
    return replace(place, cores=place.cores[:count], cpus=tuple(cpu for cpu in place.cpus if cpu not in gone))


def _with(place: Place, more: _Choice) -> Place:
    """The place with some cores more."""
    new = tuple(cpu.number for cpu in more.cpus)
    return replace(place, cores=(*place.cores, *new), cpus=tuple(sorted({*place.cpus, *new})))


def _too_few(count: int, order: Sequence[Cpu], taken: Collection[int]) -> str:
    free = [cpu.number for cpu in order if cpu.core not in taken]
    left = f"only {', '.join(map(str, free))} is" if len(free) == 1 else f"{', '.join(map(str, free)) or 'none'} are"
    return f"{count} more CPU{'s' if count > 1 else ''} of {'their' if count > 1 else 'its'} own; {left} free"


def place_tester(cpus: Sequence[Cpu]) -> Place:
    """The tester's place where it is the only poller: the last CPU, its control thread on the first."""
    if not cpus:
        raise Mistake("no CPU is allowed; give this process at least one, for instance with taskset")
    order = _best_first(cpus)
    (choice,) = _choose(order, [_TESTER], ()) or [_Choice((order[-1],))]
    return choice.place(
        _system(cpus, order, [choice.cpu.core], [order[0].number]), POLLER_NICE if len(order) > 1 else 0
    )


# --- which CPU -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Poller:
    """Who wants a CPU, or several."""

    role: str
    name: str
    cpus: int = 1


_TESTER = _Poller("tester", "the tester")


def _functions(names: Iterable[str], several: Mapping[str, int]) -> list[_Poller]:
    return [_Poller("vnf", name, several.get(name, 1)) for name in names]


@dataclass(frozen=True)
class _Choice:
    """The CPUs that one poller has."""

    cpus: tuple[Cpu, ...]
    how: str = ""
    note: str = ""

    @property
    def cpu(self) -> Cpu:
        return self.cpus[0]

    def place(self, control: Collection[int], nice: int) -> Place:
        own = tuple(cpu.number for cpu in self.cpus)
        beside = {number for cpu in self.cpus for number in cpu.siblings}.difference(own)
        whole = "a whole core" if len(own) == 1 else "whole cores"
        why = _why(self.cpu, self.how, "" if beside.intersection(control) else whole)
        return Place(own[0], tuple(sorted({*own, *control})), nice=nice, why=why, cores=own)


def _cores(choices: Iterable[_Choice]) -> set[int]:
    return {cpu.core for choice in choices for cpu in choice.cpus}


def _named_notes(named: Sequence[_Choice], order: Sequence[Cpu]) -> list[str]:
    """What is to be said of the cores that the spec names."""
    notes = []
    first: dict[int, int] = {}
    for number, core in ((choice.cpu.number, choice.cpu.core) for choice in named):
        if first.setdefault(core, number) != number:
            notes.append(f"fabric.cores: CPUs {first[core]} and {number} are threads of one core, and slow each other")
    far = [choice.cpu for choice in named if choice.cpu.node != order[0].node]
    notes += [f"fabric.cores: CPU {cpu.number} is on node {cpu.node}, and all else on {order[0].node}" for cpu in far]
    return notes


def _why(cpu: Cpu, how: str = "", whole: str = "") -> str:
    """Role vnf of profile latency, node 0, isolated, a whole core."""
    said = [how, str(cpu.role or ""), f"node {cpu.node}", "isolated" if cpu.isolated else "", whole]
    return ", ".join(filter(None, said))


def _choose(
    order: Sequence[Cpu], pollers: Sequence[_Poller], taken: Collection[int], *, leading: int = 0
) -> list[_Choice] | None:
    """CPUs for each of the pollers, of cores that nobody has taken; None if these do not suffice. So many `leading`
    pollers keep off Linux's own work, also where the others cannot."""
    free = [cpu for cpu in order if cpu.core not in taken]
    count = sum(poller.cpus for poller in pollers)
    if count > len(free):
        return None
    if _roles_applied(order):
        return _by_roles(free, pollers, order)
    # The first CPU also serves Linux's own work, so it goes to nobody as long as there are enough.
    spare = len(free) > count
    first = (_fast_first(free[len(free) - count :]) if spare else free[len(free) - leading :])[:leading]
    found = {number: _Choice((cpu,)) for number, cpu in enumerate(first)}
    left = [cpu for cpu in free if cpu not in first]
    for number, poller in enumerate(pollers):
        if poller.cpus > 1:
            found[number] = _Choice(_run(left[::-1], poller.cpus, order))
            left = [cpu for cpu in left if cpu not in found[number].cpus]
    left = left[len(left) - (len(pollers) - len(found)) :]
    rest = iter(_fast_first(left) if spare else left)
    return [found.get(number) or _Choice((next(rest),)) for number in range(len(pollers))]


def _fast_first(cpus: Iterable[Cpu]) -> list[Cpu]:
    return sorted(cpus, key=lambda cpu: cpu.slow)


def _run(cpus: Sequence[Cpu], count: int, order: Iterable[Cpu]) -> tuple[Cpu, ...]:
    """So many of the CPUs: the first ones whose cores follow one another, if any do."""
    at = {number: place for place, number in enumerate(sorted(cpu.number for cpu in order))}
    runs = [sorted(cpus[begin : begin + count], key=lambda cpu: cpu.number) for begin in range(len(cpus) - count + 1)]
    return tuple(next((run for run in runs if at[run[-1].number] - at[run[0].number] == count - 1), runs[0]))


def _by_roles(free: Sequence[Cpu], pollers: Sequence[_Poller], order: Sequence[Cpu]) -> list[_Choice]:
    """Each poller's own role first, so that nobody has what another needs; then what is kept free, and then the rest,
    of which the first CPU comes last."""
    left = sorted(free, key=lambda cpu: (cpu.slow, cpu.number))
    found: dict[int, _Choice] = {}
    for number, poller in enumerate(pollers):
        own = [cpu for cpu in left if _role(cpu) == poller.role]
        if len(own) >= poller.cpus:
            found[number] = _Choice(_run(own, poller.cpus, order))
            left = [cpu for cpu in left if cpu not in found[number].cpus]
    for number, poller in enumerate(pollers):
        if number in found:
            continue
        own = [cpu for cpu in left if _role(cpu) == poller.role]
        kept = [cpu for cpu in left if _kept_free(cpu)]
        others = tuple(dict.fromkeys([*own, *kept, *sorted(left, key=free.index, reverse=True)]))[: poller.cpus]
        left = [cpu for cpu in left if cpu not in others]
        lack = f"no CPU of role {poller.role} is left" if not own else f"too few CPUs of role {poller.role} are left"
        at = f"CPU{'s' if len(others) > 1 else ''} {', '.join(str(cpu.number) for cpu in others)}"
        found[number] = _Choice(others, lack, f"{poller.name}: {lack}, so it polls on {at} ({_why(others[0])})")
    return [found[number] for number in range(len(pollers))]


def _role(cpu: Cpu) -> str | None:
    return cpu.role.name if cpu.role else None


def _kept_free(cpu: Cpu) -> bool:
    """Whether Linux's own work is kept off it."""
    return cpu.isolated or _role(cpu) not in (None, SYSTEM)


def _roles_applied(cpus: Iterable[Cpu]) -> bool:
    return any(cpu.role for cpu in cpus)


def _shared(order: Sequence[Cpu], own: Collection[int], beside: Sequence[Cpu] = ()) -> Cpu:
    """The CPU of those who share one: if possible not of the switch's `own` cores, or else one `beside` its CPUs."""
    others = [cpu for cpu in order if cpu.core not in own] or beside or order[:1]
    if not _roles_applied(order):
        return others[0]
    return min(others, key=lambda cpu: (_role(cpu) != "vnf", not _kept_free(cpu)))


def _control(cpus: Sequence[Cpu], order: Sequence[Cpu], taken: Collection[int]) -> tuple[list[int], bool]:
    """The CPUs of control threads, and whether they are apart from the cores that are taken."""
    spare = sorted(cpu.number for cpu in order if cpu.core not in taken)
    system = _system(cpus, order, taken, spare)
    return (system, True) if system else ([order[0].number], False)


def _system(cpus: Sequence[Cpu], order: Sequence[Cpu], taken: Collection[int], otherwise: Sequence[int]) -> list[int]:
    """The system's CPUs, if possible of the pollers' node; other ones where no roles are applied."""
    system = [cpu for cpu in cpus if _role(cpu) == SYSTEM and cpu.core not in taken]
    near = [cpu for cpu in system if cpu.node == order[0].node]
    return sorted(cpu.number for cpu in near or system) or list(otherwise)


def poller_node(cpus: Sequence[Cpu], polled: Sequence[int] = ()) -> int | None:
    """The node that pollers are on where these CPUs are polled on: that of most of them, or else the one with the most
    CPUs, those with a role and isolated ones first. None without a CPU."""
    known = {cpu.number: cpu.node for cpu in cpus}
    nodes = [known[number] for number in polled if number in known]
    if nodes:
        return max(nodes, key=nodes.count)

    def worth(node: int) -> tuple[int, ...]:
        own = [cpu for cpu in cpus if cpu.node == node]
        with_role = {cpu.core for cpu in own if _role(cpu) not in (None, SYSTEM)}
        return len(with_role), len({cpu.core for cpu in own if cpu.isolated}), len({cpu.core for cpu in own}), -node

    return max(known.values(), key=worth, default=None)


def _best_first(cpus: Sequence[Cpu], polled: Collection[int] = ()) -> list[Cpu]:
    """One CPU of each core of the pollers' node: one that is `polled` on already, or else its first thread, as memory
    and rings are shared, and another node is far. In the order of their numbers, but for the first one slow ones before
    fast ones; isolated ones last, where pollers are taken from."""
    node = poller_node(cpus, tuple(polled))
    best = [cpu for cpu in cpus if cpu.node == node]
    firsts: dict[int, Cpu] = {}
    for cpu in sorted(best, key=lambda cpu: (cpu.number not in polled, cpu.number)):
        firsts.setdefault(cpu.core, cpu)
    boot = min(best, key=lambda cpu: cpu.number).core  # Linux's own work is there, of whatever kind it is
    return sorted(firsts.values(), key=lambda cpu: (cpu.isolated, cpu.core != boot, not cpu.slow, cpu.number))
