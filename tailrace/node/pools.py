"""The CPUs of functions that have more and fewer by themselves: how busy each is, looked at in a thread of its own
(`tailrace.node.sizing` decides): an event loop takes twice as long for each look.

A thread that polls takes all of its CPU's time, whether anything comes or not. So it is asked how long its rings were
not empty, which it counts in memory that is read without a call (`tailrace.observe.gaps`). A machine is asked nothing.
If it polls, the switch says how often frames waited in its rings (`tailrace.observe.unread`); if not, it is as busy as
the kernel says that it has used CPUs, all its threads together.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tailrace.errors import Failure, Mistake
from tailrace.functions.runtime import Load
from tailrace.functions.runtimes import STARTERS, program_of
from tailrace.node.sizing import Sizing
from tailrace.observe.gaps import Busy
from tailrace.observe.unread import Unread
from tailrace.plan.planned import Plan
from tailrace.process.process import ProcessId
from tailrace.state.record import Process, Record
from tailrace.switch.config import instance_name, port_name

LOOK = 0.02
"""Seconds between two looks."""
SOON = 0.005
"""Until the next one where a function has just become busier."""
SAMPLED = 0.25
"""Seconds between two looks at what is a number of samples: some 300 then, whose share is off by 2.5 % on average."""
_RISES = 0.15
_PROCESS_CLOCK = 2
"""CPUCLOCK_SCHED, of a whole process (Linux, include/linux/posix-timers_types.h)."""


@dataclass(frozen=True)
class Pooled:
    """A function that has more and fewer CPUs by itself."""

    name: str
    """Of the function, or replica."""
    process: Process
    least: int
    most: int
    count: int
    """How many it has."""
    busy: float
    """For how much of their time they may be at work before it has more."""
    load: Load | None = "rounds"
    ports: tuple[str, ...] = ()
    """As the switch calls them."""


def pooled(record: Record) -> list[Pooled]:
    """Those that run."""
    if not any(each.get("automatic") for each in record.plan.get("functions", [])):
        return []  # reading a plan of a thousand chains takes a while
    try:
        planned = Plan.read(record.plan).started if record.complete else ()
    except Mistake:
        return []
    chosen = {instance_name(each.name, record.instances.get(each.name, 1)): each for each in planned if each.automatic}
    found = []
    for process in (thing for thing in record.things if isinstance(thing, Process)):
        function = chosen.get(process.name)
        if function is not None and process.id.alive():
            bounds = function.least_cpus, function.most_cpus
            ports = tuple(port_name(each, record.instances) for each in function.ports)
            load = function.load
            if load is None:  # a version has recorded it that knew of one way only, and of no guests that poll
                load = STARTERS[function.runs].tells_load(function.kind, function.driver, polls=False)
            found.append(Pooled(function.name, process, *bounds, function.cpus, function.busy, load, ports))
    return found


class CpuTime:
    """The CPU time of a process, all its threads together; by a clock (clock_getcpuclockid(3)), which is exact also on
    a CPU without a tick."""

    def __init__(self, pid: int) -> None:
        """Raises Failure: it has ended."""
        self._clock = ~pid << 3 | _PROCESS_CLOCK
        try:
            self._seconds = time.clock_gettime(self._clock)
        except OSError as error:
            raise Failure(f"the CPU time of process {pid} cannot be read: {error.strerror}") from None

    @property
    def seconds(self) -> float:
        """As much as it has taken so far; after its end, until then."""
        with suppress(OSError):
            self._seconds = time.clock_gettime(self._clock)
        return self._seconds

    def close(self) -> None:
        pass


class Meter(Protocol):
    """How busy a function was."""

    @property
    def seconds(self) -> float:
        """For how long its threads were at work so far, all together; only differences mean anything."""

    def close(self) -> None:
        """It is not asked again."""


def _meter(function: Pooled, page: Path) -> Meter:
    """Raises Failure."""
    pid = program_of(function.process) or function.process.pid
    if function.load == "rings":
        return Unread(page, function.ports)
    return CpuTime(pid) if function.load == "time" else Busy(pid)


@dataclass
class _Watched:
    busy: Meter
    read: Load | None
    """How."""
    sizing: Sizing
    looked: float
    """When it was last looked at, of time.monotonic()."""
    counted: float
    """Seconds that its threads had been busy then."""
    apart: float = SOON / 2
    """Seconds between two looks at the least."""
    load: float = 0.0
    asked: bool = False
    """For other CPUs, and it has no answer yet."""


class Pools:
    """The functions of one node."""

    def __init__(self, resize: Callable[[str, int, float], None], page: Path) -> None:
        """`resize` is called with the name of a function, how many CPUs it is to have, and its load; what came of that
        is told by `answered`. `page`: the switch's counters."""
        self._resize = resize
        self._page = page
        self._lock = threading.Lock()
        self._watched: dict[ProcessId, tuple[str, _Watched]] = {}
        self._sizings: dict[str, Sizing] = {}
        """By name: what was learned of a function holds for the instance in its place."""
        self._thread: threading.Thread | None = None

    def watch(self, functions: Iterable[Pooled], cpus: Collection[int] = ()) -> None:
        """Looks at these, and at no others any more; on these CPUs, if any are named."""
        now = time.monotonic()
        wanted = {each.process.id: each for each in functions}
        with self._lock:
            for id, (_, watched) in list(self._watched.items()):
                if id not in wanted or watched.read != wanted[id].load:
                    self._watched.pop(id)[1].busy.close()
            self._sizings = {each.name: self._sizing(each, now) for each in wanted.values()}
            for id, each in wanted.items():
                if id in self._watched:
                    self._watched[id][1].sizing = self._sizings[each.name]
                    continue
                with suppress(Failure):  # it has ended, which is somebody else's to see
                    busy, sizing = _meter(each, self._page), self._sizings[each.name]
                    apart = SAMPLED if each.load == "rings" else SOON / 2
                    self._watched[id] = each.name, _Watched(busy, each.load, sizing, now, busy.seconds, apart)
            if self._watched and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pools", daemon=True)
                self._thread.start()
            if self._thread is not None and self._thread.native_id is not None and cpus:
                with suppress(OSError):
                    os.sched_setaffinity(self._thread.native_id, cpus)

    def _sizing(self, function: Pooled, now: float) -> Sizing:
        known = self._sizings.get(function.name)
        if known is None:
            return Sizing(function.least, function.most, function.count, function.busy)
        known.least, known.most, known.busy = function.least, function.most, function.busy
        if known.count != function.count:
            known.resized(now, function.count)
        return known

    def answered(self, name: str, count: int | None) -> bool:
        """A function has as many CPUs as was asked for it, or (None) cannot have them; whether the latter is new."""
        now, new = time.monotonic(), False
        with self._lock:
            for each, watched in self._watched.values():
                if each != name:
                    continue
                watched.asked = False
                if count is None:
                    new = watched.sizing.refused(now)
                elif count != watched.sizing.count:
                    watched.sizing.resized(now, count)
        return new

    def _run(self) -> None:
        while (pause := self.look()) is not None:
            time.sleep(pause)

    def look(self) -> float | None:
        """Looks at all of them; returns the seconds until the next look, None where there is nobody to look at."""
        rises = False
        with self._lock:
            for name, watched in self._watched.values():
                now = time.monotonic()
                seconds = now - watched.looked
                if seconds < watched.apart:
                    continue
                counted = watched.busy.seconds
                load = (counted - watched.counted) / seconds
                rises |= load > watched.load + _RISES
                watched.looked, watched.counted, watched.load = now, counted, load
                count = None if watched.asked else watched.sizing.wanted(now, seconds, load)
                if count is not None:
                    watched.asked = True
                    self._resize(name, count, load)
            if not self._watched:
                self._thread = None
                return None
        return SOON if rises else LOOK
