"""How many CPUs a function is to have, by its load: more at once, fewer after it has been quiet, and ever more slowly
where that turned out wrong. Pure: times in seconds of one clock, loads in CPUs."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

AIM = 2 / 3
"""How busy it may be on as many CPUs as it is given or left with, as a part of how busy it may be at all: so that one
change causes no other."""
QUIET = 0.4
"""Seconds that it has to be quiet, on average, before it has fewer; then again, where it could do with fewer still."""
CALM = 60.0
"""Seconds in which a CPU that was given back is not to be wanted again. If it is, none is given back for as long; after
that again, for twice as long, and so on."""
LONGEST = 960.0
"""Seconds for which none is given back at most."""
AGAIN, RARELY = 1.0, 30.0
"""Seconds until others are asked for again where they could not be had; at first, and at most."""


@dataclass
class Sizing:
    """The CPUs of one function."""

    least: int
    most: int
    count: int
    """How many it has."""
    busy: float = 0.75
    """For how much of their time its CPUs may be at work before it has more."""
    _quiet: deque[tuple[float, float]] = field(default_factory=deque)
    """When it was looked at since it has so many, the oldest first, and the seconds of CPUs used until then."""
    _used: float = 0.0
    _shrunk: float | None = None
    """When it last had fewer."""
    _regrets: int = 0
    _keeps: float = -math.inf
    """Until when it has no fewer."""
    _asks: float = -math.inf
    """From when on others are asked for."""
    _refusals: int = 0

    def wanted(self, now: float, seconds: float, load: float) -> int | None:
        """How many it is to have, where it was so busy in the last seconds: the sum over its CPUs, each from 0 to 1.
        None: as many as it has."""
        load = min(max(load, 0.0), float(self.count))
        if not self._quiet:
            self._quiet.append((now - seconds, self._used))
        self._used += load * seconds
        self._quiet.append((now, self._used))
        if load > self.busy * self.count:
            more = min(self.most, max(self.count + 1, self._enough(load)))
            return more if more > self.count and now >= self._asks else None
        return self._fewer(now)

    def _fewer(self, now: float) -> int | None:
        while len(self._quiet) > 1 and self._quiet[1][0] <= now - QUIET:
            self._quiet.popleft()
        began, used = self._quiet[0]
        if now - began < QUIET or now < max(self._keeps, self._asks):
            return None
        enough = max(self.least, self._enough((self._used - used) / (now - began)))
        return enough if enough < self.count else None

    def _enough(self, load: float) -> int:
        """How many CPUs are enough for a load."""
        return math.ceil(load / (self.busy * AIM))

    def resized(self, now: float, count: int) -> None:
        """It has so many from now on, whoever wanted that."""
        if count > self.count and self._shrunk is not None and now - self._shrunk < CALM:
            self._keeps = now + min(CALM * 2**self._regrets, LONGEST)
            self._regrets += 1
        elif count > self.count:
            self._regrets = 0
        elif count < self.count:
            self._shrunk = now
        self.count = count
        self._refusals, self._asks = 0, -math.inf
        self._quiet.clear()

    def refused(self, now: float) -> bool:
        """It cannot have what it wanted; whether that is new, which is to be said."""
        self._asks = now + min(AGAIN * 2**self._refusals, RARELY)
        self._refusals += 1
        return self._refusals == 1
