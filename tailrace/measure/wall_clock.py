"""The clock on the wall, which may be set at any time, against those that only run."""

from __future__ import annotations

import time

#: It has been set if it is further off than this, and a thousandth of the time: what disciplines it (adjtimex(2)) makes
#: it run at most 500 ppm faster or slower.
_STEP = 0.1


def boot_seconds() -> float:
    """Seconds since the machine was booted, in sleep too; nobody can set it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def clock_step(off: float, seconds: float) -> float:
    """By how much the clock was set, where it is so far `off` after so many seconds; 0 if it was only disciplined."""
    return off if abs(off) > _STEP + 1e-3 * seconds else 0.0


class WallClock:
    """How far it is set from one look to the next."""

    def __init__(self) -> None:
        self._looked = boot_seconds()
        self._ahead = time.time() - self._looked

    def look(self) -> float:
        """By how much it was set since the last look, in seconds; 0 where it was not."""
        now = boot_seconds()
        ahead = time.time() - now
        step = clock_step(ahead - self._ahead, now - self._looked)
        self._looked, self._ahead = now, ahead
        return step
