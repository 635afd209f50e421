"""Functions in standby are kept in step with the active ones: the service hands connections over again and again, so
that who takes a place over knows what went through it.

Each pair has a thread of its own, so that no other, and nothing else that the service does, waits for it. Its work is
bounded: a page has a bounded number of connections, and after each it rests for as long as that took.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Any

from pydantic import ValidationError

from tailrace.errors import Fault, Mistake, TailraceError
from tailrace.functions.handover import FOLLOWING, Page, hand_page, why_not
from tailrace.functions.runtimes import STARTERS
from tailrace.functions.show import call
from tailrace.plan.planned import Plan, PlannedFunction
from tailrace.spec.connections import Timeouts
from tailrace.state.record import Process, Record, State
from tailrace.switch.config import function_name, instance_name

PERIOD = 0.1
"""Seconds between two rounds."""
REFRESH = 10.0
"""Seconds after which connections that were only seen are handed over again; sooner for short time-outs."""
_AGAIN_SECONDS = 1.0
"""After which a hand-over that has failed begins anew; as long as it took, if that is longer."""
_ALL_SECONDS = 600.0
"""For all that there is."""
_LOST = ("no_room", "unfit", "malformed")
Tell = Callable[[str, str, dict[str, Any]], None]


@dataclass(frozen=True)
class Pair:
    """Two instances of a function, of which one takes the place of the other when that ends."""

    active: Process
    standby: Process
    refresh: float = REFRESH
    """Seconds after which connections that were only seen are handed over again."""


def pairs(record: Record) -> list[Pair]:
    """Those that run, of functions that follow connections."""
    if not any(each.get("state") == "standby" for each in record.plan.get("functions", [])):
        return []  # reading a plan of a thousand chains takes a while
    try:
        planned = Plan.read(record.plan).started if record.complete else ()
    except Mistake:
        return []
    running = {thing.name: thing for thing in record.things if isinstance(thing, Process) and thing.id.alive()}
    groups: dict[str, dict[str, list[Process]]] = {}
    refresh: dict[str, float] = {}
    for each in planned:
        process = running.get(instance_name(each.name, record.instances.get(each.name, 1)))
        if process is None or each.kind not in FOLLOWING or not STARTERS[each.runs].hands_over:
            continue
        groups.setdefault(each.function, {}).setdefault(each.state, []).append(process)
        refresh[each.function] = _refresh(each)
    return [
        Pair(active, standby, refresh[function])
        for function, states in groups.items()
        for active, standby in product(states.get("active", ()), states.get("standby", ()))
    ]


def _refresh(function: PlannedFunction) -> float:
    """A third of the shortest time after which a connection that is not seen is forgotten, at the most."""
    given = dict(each.partition("=")[::2] for each in function.settings)
    return min(REFRESH, *(int(given[name]) / 3 for name in Timeouts.model_fields if name in given))


class InStep:
    """Keeps a standby in step. First it gets all that there is, then in each round what has begun or changed, and a
    page at most of what was only seen, so that it does not forget that."""

    def __init__(self, state: State, pair: Pair, wait: Callable[[float], bool] = lambda _: False) -> None:
        """`wait` rests for so many seconds, and returns whether there is nothing more to do."""
        self.state = state
        self.pair = pair
        self._wait = wait
        self.counts: dict[str, int] = {}
        """What became of the connections, by the standby's words."""
        self.known_at: float | None = None
        """When whatever there was is known, of time.monotonic(); None: not all was handed over yet."""
        self._changed: int | None = None
        """The tick from which on changes are handed over next."""
        self._at = 0
        """The entry at which what was only seen goes on; 0: there is nothing under way."""
        self._since = self._until = 0
        """The ticks since when it was seen, and when the look that is under way began."""
        self._next_look = 0.0

    def round(self) -> None:
        """One round. Raises Mistake, Failure, ValidationError; then a new one is to begin anew."""
        began = time.monotonic()
        if self._changed is None:
            self._changed = self._since = self._hand({}, began + _ALL_SECONDS)
            self._next_look = began + self.pair.refresh
        else:
            self._changed = self._hand({"changed": self._changed}, began + _ALL_SECONDS)
            self._look(began)
        call(self.state, self.pair.standby, "take_connections", connections="")
        self.known_at = began

    def _hand(self, which: dict[str, int], deadline: float) -> int:
        """Hands over all of these; returns the tick at the beginning."""
        page = self._page(1, which)
        tick = page.tick
        while page.next:
            if time.monotonic() > deadline:
                raise Fault(f"{self.pair.active.name} does not come to an end of its connections")
            page = self._page(page.next, which)
        return tick

    def _look(self, now: float) -> None:
        """Hands over a page of what was only seen since the look before began."""
        if not self._at and now < self._next_look:
            return
        first = not self._at
        if first:  # what was refused comes again, and may be taken now
            for name in _LOST:
                self.counts.pop(name, None)
        page = self._page(self._at or 1, {"since": self._since})
        if first:
            self._until, self._next_look = page.tick, now + self.pair.refresh
        self._at = page.next
        if not self._at:
            self._since = self._until

    def _page(self, at: int, which: dict[str, int]) -> Page:
        began = time.monotonic()
        page = hand_page(self.state, self.pair.active, self.pair.standby, at, which, self.counts)
        if self._wait(time.monotonic() - began):
            raise Fault(f"{self.pair.standby.name} is not kept in step any more")
        return page

    @property
    def lost(self) -> dict[str, int]:
        """Connections that the standby has not taken since the look that is under way began, by the reason."""
        return {name: number for name in _LOST if (number := self.counts.get(name, 0))}


class _Keeper:
    """The thread of one pair."""

    def __init__(self, state: State, pair: Pair, tell: Tell) -> None:
        self.pair = pair
        self.ends = threading.Event()
        self._state = state
        self._tell = tell
        self._in_step = InStep(state, pair, self.ends.wait)
        self._why: str | None = None
        """Why the last hand-over has failed."""
        self._failures = 0
        """In a row."""
        self.thread = threading.Thread(target=self._run, name="in step", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        pause = 0.0
        while not self.ends.wait(pause):
            began, new = time.monotonic(), self._in_step.known_at is None
            try:
                self._in_step.round()
            except (TailraceError, ValidationError, OSError) as error:
                pause = max(_AGAIN_SECONDS, time.monotonic() - began)
                self._failed(why_not(error))
                continue
            self._failures, self._why = 0, None
            took = time.monotonic() - began
            pause = PERIOD
            if new:
                taken = self._in_step.counts.get("taken", 0)
                self._say("function.in_step", connections=taken, milliseconds=round(took * 1e3, 1))

    def _failed(self, why: str) -> None:
        """It begins anew. One of the two that is about to end fails once: somebody else says that it has ended."""
        self._failures, self._why = self._failures + 1, why
        self._in_step = InStep(self._state, self.pair, self.ends.wait)
        if self._failures == 2 and self.pair.active.id.alive() and self.pair.standby.id.alive():
            self._say("function.behind", why=why)

    def _say(self, kind: str, **details: Any) -> None:
        if not self.ends.is_set():
            self._tell(
                kind, function_name(self.pair.standby.name), {"of": function_name(self.pair.active.name), **details}
            )

    def as_data(self, now: float) -> dict[str, Any]:
        in_step = self._in_step
        known_at = in_step.known_at
        return {
            "of": function_name(self.pair.active.name),
            "behind_ms": None if known_at is None else round((now - known_at) * 1e3, 1),
            "not_taken": in_step.lost,
            "why": self._why,
        }


class Standbys:
    """Those of one node."""

    def __init__(self, state: State, tell: Tell) -> None:
        """`tell` is called, in a thread of its own, with the kind of an event, whose it is, and its details."""
        self._state = state
        self._tell = tell
        self._lock = threading.Lock()
        self._keepers: dict[Pair, _Keeper] = {}

    def watch(self, wanted: Iterable[Pair], cpus: Collection[int] = ()) -> None:
        """Keeps these in step, and no others any more; on these CPUs, if any are named."""
        wanted = set(wanted)
        with self._lock:
            for gone in set(self._keepers) - wanted:
                self._keepers.pop(gone).ends.set()
            for pair in wanted - set(self._keepers):
                self._keepers[pair] = _Keeper(self._state, pair, self._tell)
            for keeper in self._keepers.values():
                if keeper.thread.native_id is not None and cpus:
                    with suppress(OSError):
                        os.sched_setaffinity(keeper.thread.native_id, cpus)

    def as_data(self) -> dict[str, list[dict[str, Any]]]:
        """Of each function (or replica) in standby: of which others it gets connections (`of`), how many ms ago it knew
        all that there was (`behind_ms`; None: not yet), what it could not take, and why a hand-over has failed."""
        now = time.monotonic()
        found: dict[str, list[dict[str, Any]]] = {}
        with self._lock:
            for pair, keeper in self._keepers.items():
                found.setdefault(function_name(pair.standby.name), []).append(keeper.as_data(now))
        return found
