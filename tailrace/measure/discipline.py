"""Whether something disciplines this host's clock: PTP's phc2sys or ptp4l, or NTP. The kernel says so of all."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tailrace.measure.ptp import Ptp, programs, ptp
from tailrace.process.plain import plain

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


@dataclass(frozen=True)
class Source:
    """Who disciplines the clock, as far as it can be found."""

    names: tuple[str, ...] = ()
    """The programs."""
    ptp: Ptp | None = None
    """What ptp4l says."""

    @property
    def follows(self) -> bool:
        """Whether it follows a master by PTP."""
        return self.ptp is not None and bool(self.ptp.master)

    def text(self) -> str:
        """A sentence's part; empty: nobody was found."""
        if self.ptp is not None and self.ptp.master:
            return (
                f"by PTP ({', '.join(self.names)}: master {plain(self.ptp.master)}, offset {self.ptp.offset_ns:+d} ns)"
            )
        return f"by {', '.join(self.names)}" if self.names else ""


def source() -> Source:
    """Looks for it, and asks ptp4l."""
    found = programs()
    return Source(tuple(dict.fromkeys(found.values())), ptp(found))


class Watched:
    """It from one look to the next: what is to be said of it, each thing once."""

    def __init__(
        self, read: Callable[[], Discipline] = discipline, who: Callable[[], Source] = lambda: Source()
    ) -> None:
        self._read = read
        self._who = who
        self._held: bool | None = None
        self._followed = False

    def look(self, seconds: float) -> Iterator[str]:
        """What has changed, so many seconds after the start."""
        found, who = self._read(), self._who()
        first, self._held, before = self._held is None, found.holds, self._held
        followed, self._followed = self._followed, who.follows
        if first:
            yield self._first(found, who)
            return
        if followed and not who.follows:
            yield (
                f"{seconds:.0f} s after the start PTP was lost: ptp4l follows no master any more; intervals from there "
                "on are this host's own"
            )
        elif who.follows and not followed:
            yield f"{seconds:.0f} s after the start the clock was disciplined {who.text()}"
        if before and not found.holds:
            yield (
                f"{seconds:.0f} s after the start the clock may have been {found.error_us / 1000:.0f} ms off: PTP or "
                "NTP was lost, or corrects it rarely"
            )
        elif found.holds and not before:
            yield f"{seconds:.0f} s after the start the clock was disciplined again"

    def _first(self, found: Discipline, who: Source) -> str:
        off = "" if found.tai_s else "; nobody has told the kernel how far TAI is ahead, so it is UTC"
        if found.holds:
            by = f" {who.text()}" if who.text() else ""
            return f"the clock is disciplined{by}, and at most {found.error_us} µs off{off}"
        runs = f"; {', '.join(who.names)} runs, and does not yet" if who.names else ""
        return f"nothing disciplines the clock (PTP, NTP): the intervals are this host's own{runs}{off}"
