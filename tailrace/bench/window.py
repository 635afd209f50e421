"""A switch's counters over a span of saturated traffic, and whether the guests' account agrees with them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from tailrace.bench.model import Window
from tailrace.bench.setting import Setting, check_alive
from tailrace.bench.testpmd import Testpmd, Traffic
from tailrace.errors import Fault
from tailrace.fabric.base import Counters
from tailrace.host.process import undisturbed
from tailrace.host.state import Process


class Counted(Protocol):
    """A running switch, as a measurement watches it: a fabric with a polling thread."""

    def counters(self) -> Counters | None: ...

    def processes(self) -> list[Process]: ...


def counters_of(switch: Counted) -> Counters:
    """What it has counted until now. Raises Fault if it counts nothing."""
    counters = switch.counters()
    if counters is None:
        raise Fault("this fabric has no polling thread, and so no counters")
    return counters


SETTLE_SECONDS = 1.0
"""From the first packet to the first reading: caches warm, rules installed, rings full."""
STALL_SECONDS = 1.0


def measure_window(
    seconds: float, reading: Callable[[], tuple[float, Counters]], sleep: Callable[[float], None]
) -> Window:
    """Reads counters over a window after settling. Raises Fault if traffic stalls in it."""
    sleep(SETTLE_SECONDS)
    begin, first = reading()
    moved_at, last = begin, first
    at = begin
    while at < begin + seconds:
        sleep(max(min(STALL_SECONDS / 2, begin + seconds - at), 0.001))
        at, now = reading()
        if now.packets > last.packets:
            moved_at = at
        elif at - moved_at >= min(STALL_SECONDS, seconds):
            raise Fault(f"the traffic stalled: no packet passed for {at - moved_at:.1f} s")
        last = now
    return Window(first, last, at - begin)


def watch_window(
    seconds: float, switch: Counted, check_load: Callable[[], None], progress: Callable[[float], None]
) -> Window:
    """The window of a running switch. `progress` is told the seconds done. Raises Fault if one side ends."""
    started = time.monotonic()

    def reading() -> tuple[float, Counters]:
        check_alive(switch.processes())
        check_load()
        before = time.monotonic()
        counters = counters_of(switch)
        after = time.monotonic()
        progress(after - started)
        return (before + after) / 2, counters

    window = measure_window(seconds, reading, time.sleep)
    check_alive(switch.processes())
    check_load()
    return window


def saturate(
    setting: Setting,
    switch: Counted,
    sockets: Sequence[Path],
    frame: int,
    seconds: float,
    progress: Callable[[float], None],
) -> Window:
    """Saturates a running switch with testpmd, listening at `sockets`. Raises Fault if a packet is lost uncounted."""
    load = Testpmd(setting.launcher, sockets, core=setting.cores.load, control=setting.cores.control)
    try:
        load.wait_ready()
        load.start(frame)
        window = watch_window(seconds, switch, load.check_alive, progress)
        check_whole(load.drain(), lambda: counters_of(switch))
        load.quit()
        return window
    finally:
        with undisturbed():
            load.close()


SETTLED_SECONDS = 3.0
"""A switch may add to its counters late: Open vSwitch's polling thread does once a second to some."""


def check_whole(traffic: Traffic, reading: Callable[[], Counters], seconds: float = SETTLED_SECONDS) -> None:
    """Holds the guests' account of the whole run against the switch's, which has some `seconds` to agree.

    Raises Fault if it does not.
    """
    deadline = time.monotonic() + seconds
    while problem := _disagreement(traffic, reading()):
        if time.monotonic() > deadline:
            raise Fault(problem)
        time.sleep(0.1)


def _disagreement(traffic: Traffic, counters: Counters) -> str | None:
    lost = traffic.sent - traffic.received
    if lost != counters.dropped:
        return (
            f"the guests sent {traffic.sent} packets and received {traffic.received}, {lost} fewer, "
            f"and the switch counted {counters.dropped} dropped"
        )
    if not traffic.received <= counters.packets <= traffic.sent:
        return (
            f"the switch counted {counters.packets} packets and the guests sent {traffic.sent} "
            f"and received {traffic.received}"
        )
    return None
