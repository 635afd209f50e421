"""Connections that the instance of a function gives to the one that replaces it, or to the one that stands by to do so
(dataplane/functions/handover.h).

What the old one says is passed on as it is: the new one checks it. Nothing that either says can hold a change up for
long, or stop it: connections that were not handed over are lost, as if the old one had crashed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, NonNegativeInt, TypeAdapter, ValidationError

from tailrace.errors import Fault, TailraceError
from tailrace.functions.show import call
from tailrace.state.record import Process, State

FOLLOWING = ("firewall", "nat", "balancer")
"""Kinds of which a new instance can go on with connections."""
_FIRST_SECONDS, _LATER_SECONDS = 60.0, 10.0
"""For all pages of an instance: all that it has, while the old one carries the frames; what it has seen since."""


class Page(BaseModel):
    """What an instance gives at once."""

    connections: str
    next: int
    tick: int
    told: str = ""
    """What else it knows: a balancer, which back ends are up."""


_COUNTS = TypeAdapter(dict[str, NonNegativeInt])
_RESULTS = ("taken", "updated", "known", "aged", "no_room", "unfit", "malformed")
"""What can become of a connection (dataplane/functions/handover.h)."""


def hand_page(
    state: State, old: Process, new: Process, at: int, which: Mapping[str, int], counts: dict[str, int]
) -> Page:
    """Hands over one page, from an entry on, of the connections that are asked for (`since` or `changed`); adds to
    `counts` what became of them. Raises Mistake, Failure, ValidationError."""
    page = Page.model_validate(call(state, old, "give_connections", **{"from": at}, **which))
    told = {"told": page.told} if page.told else {}
    if page.connections or told:
        found = call(state, new, "take_connections", connections=page.connections, **told)
        told_of = _COUNTS.validate_python(found)
        for name in _RESULTS:  # and nothing else that it says: these live as long as it does
            if name in told_of:
                counts[name] = counts.get(name, 0) + told_of[name]
    if page.next and page.next <= at:
        raise Fault(f"{old.name} does not come to an end of its connections")
    return page


def why_not(error: TailraceError | ValidationError | OSError) -> str:
    """Why connections could not be handed over."""
    return "its answer is no page of connections" if isinstance(error, ValidationError) else str(error)


@dataclass
class HandOver:
    """From one instance to another, in two steps: all that it has, and later what it has seen since."""

    state: State
    old: Process
    new: Process
    counts: dict[str, int] = field(default_factory=dict)
    """What became of the connections, by the new instance's words."""
    why: str | None = None
    """Why it was cut short."""
    patience: float = _FIRST_SECONDS
    """Seconds for all that the old one has."""
    since: int | None = None

    def step(self) -> None:
        """Hands over what was not handed over yet, or says in `why` what has stopped it."""
        if self.why is not None:
            return
        try:
            self._pages()
        except (TailraceError, ValidationError) as error:
            self.why = why_not(error)

    def _pages(self) -> None:
        seconds = self.patience if self.since is None else _LATER_SECONDS
        deadline, at, began = time.monotonic() + seconds, 1, None
        since = {} if self.since is None else {"since": self.since}
        while at:
            page = hand_page(self.state, self.old, self.new, at, since, self.counts)
            began = page.tick if began is None else began
            at = page.next
            if at and time.monotonic() > deadline:
                raise Fault(f"{self.old.name} has not given all of its connections in {seconds:.0f} s")
        self.since = began

    def said(self) -> str | None:
        """What is to be said of it; None: there was nothing to hand over."""
        name = self.new.name.partition("@")[0]
        if self.why is not None:
            return f"{name}: not all connections were handed over: {self.why}"
        taken = self.counts.get("taken", 0)
        lost = {each: self.counts.get(each, 0) for each in ("no_room", "unfit", "malformed")}
        left = ", ".join(f"{number} {each}" for each, number in lost.items() if number)
        if not taken and not left:
            return None
        return f"{name}: {taken} connections handed over" + (f"; not taken: {left}" if left else "")
