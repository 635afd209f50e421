"""Whether something disciplines this host's clock: PTP's phc2sys or ptp4l, or NTP. The kernel says so of all."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass

STA_UNSYNC = 0x0040
"""<linux/timex.h>; the kernel sets it too where the clock may be 16 s off."""
LOST_US = 100_000
"""The error grows by 500 µs a second while nobody corrects the clock: by so much in 200 s."""


class _Timex(ctypes.Structure):
    """struct timex, adjtimex(2)."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
        ("status", ctypes.c_int),
        *((name, ctypes.c_long) for name in ("constant", "precision", "tolerance", "tv_sec", "tv_usec", "tick")),
        *((name, ctypes.c_long) for name in ("ppsfreq", "jitter")),
        ("shift", ctypes.c_int),
        *((name, ctypes.c_long) for name in ("stabil", "jitcnt", "calcnt", "errcnt", "stbcnt")),
        ("tai", ctypes.c_int),
        ("reserved", ctypes.c_int * 11),
    ]


@dataclass(frozen=True)
class Discipline:
    """What the kernel says of its clock."""

    synchronised: bool
    error_us: int
    """The most that it may be off, by who disciplines it, and by how long ago that was."""
    tai_s: int
    """How far TAI is ahead of UTC; 0 where nobody has said so."""

    @property
    def holds(self) -> bool:
        """Whether it is disciplined now."""
        return self.synchronised and self.error_us < LOST_US


def discipline() -> Discipline:
    """Reads it, which changes nothing and needs no privilege. Raises OSError."""
    timex = _Timex(modes=0)
    if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex)) < 0:
        raise OSError(ctypes.get_errno(), "adjtimex")
    return Discipline(not timex.status & STA_UNSYNC, int(timex.maxerror), int(timex.tai))


class Watched:
    """It from one look to the next: what is to be said of it, each thing once."""

    def __init__(self, read: Callable[[], Discipline] = discipline) -> None:
        self._read = read
        self._held: bool | None = None

    def look(self, seconds: float) -> Iterator[str]:
        """What has changed, so many seconds after the start."""
        found = self._read()
        first, self._held, before = self._held is None, found.holds, self._held
        if first:
            off = "" if found.tai_s else "; nobody has told the kernel how far TAI is ahead, so it is UTC"
            if found.holds:
                yield f"the clock is disciplined, and at most {found.error_us} µs off{off}"
            else:
                yield f"nothing disciplines the clock (PTP, NTP): the intervals are this host's own{off}"
        elif before and not found.holds:
            yield (
                f"{seconds:.0f} s after the start the clock may have been {found.error_us / 1000:.0f} ms off: PTP or "
                "NTP was lost, or corrects it rarely"
            )
        elif found.holds and not before:
            yield f"{seconds:.0f} s after the start the clock was disciplined again"
