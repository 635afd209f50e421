"""A switch's counters over a span of saturated traffic, and whether the guests' account agrees with them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from tailrace.bench.compare import Plan, Step
from tailrace.bench.model import Figures, Sample, Window
from tailrace.bench.setting import LOOK_SECONDS, Setting, check_alive
from tailrace.bench.testpmd import Testpmd, Traffic
from tailrace.errors import Fault
from tailrace.fabric.base import Counters
from tailrace.process.process import undisturbed
from tailrace.state.record import Process


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
"""From the first packet to the first window: caches warm, rules installed, rings full."""
STALL_SECONDS = 1.0
WINDOW_SECONDS = 0.25
"""How long a window lasts at least, unless less was asked for in all."""


def windows_of(seconds: float, each: float = WINDOW_SECONDS) -> int:
    """In how many windows so many seconds are measured."""
    return max(1, int(seconds / each))


def side_seconds(seconds: float) -> float:
    """How long windows of so many seconds in all take, with the looks between them."""
    return SETTLE_SECONDS + seconds + windows_of(seconds) * LOOK_SECONDS


def most_seconds(seconds: float) -> float:
    """For how long a load is told to go on that is ended after windows of so many seconds."""
    return 60.0 + 2 * side_seconds(seconds)


def measure_window(
    seconds: float, reading: Callable[[], tuple[float, Counters]], sleep: Callable[[float], None]
) -> Window:
    """Reads counters over a window. Raises Fault if traffic stalls in it."""
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


def watch_windows(
    setting: Setting,
    seconds: float,
    switch: Counted,
    loads: Sequence[Process],
    progress: Step,
    figures: Callable[[Callable[[], Window]], Figures] = lambda window: window().figures(),
    check_load: Callable[[], None] | None = None,
    *,
    lossless: bool = False,
) -> list[Sample]:
    """Windows of a running switch under its loads, `seconds` in all, after settling.

    `figures` calls for a window and says what is to be kept of it; `progress` is given the seconds done. Raises Fault
    if one side ends, with the words of `check_load` if it is a load's; where `lossless` also if a packet is dropped
    from the first window to the last.
    """
    count, started = windows_of(seconds), time.monotonic()

    def check() -> None:
        check_alive(switch.processes())
        check_load() if check_load else check_alive(loads)

    def reading() -> tuple[float, Counters]:
        check()
        before = time.monotonic()
        counters = counters_of(switch)
        after = time.monotonic()
        progress(after - started)
        return (before + after) / 2, counters

    def window() -> Window:
        found = measure_window(seconds / count, reading, time.sleep)
        check()
        return found

    time.sleep(SETTLE_SECONDS)
    check()
    before = counters_of(switch)
    samples = setting.samples([*switch.processes(), *loads], lambda: figures(window), count)
    if lossless and (dropped := counters_of(switch).dropped - before.dropped):
        raise Fault(f"{dropped} packets were dropped while it was measured")
    return samples


def saturate(
    setting: Setting,
    switch: Counted,
    sockets: Sequence[Path],
    plan: Plan,
    progress: Step,
    *,
    lossless: bool = True,
) -> list[Sample]:
    """Saturates a running switch with testpmd, listening at `sockets`. Raises Fault if a packet is lost uncounted,
    where `lossless` also if one is dropped."""
    load = Testpmd(setting.launcher, sockets, core=setting.cores.load, control=setting.cores.control)
    try:
        load.wait_ready()
        load.start(plan.frame)
        samples = watch_windows(
            setting, plan.seconds, switch, [load.process], progress, check_load=load.check_alive, lossless=lossless
        )
        check_whole(load.drain(), lambda: counters_of(switch))
        load.quit()
        return samples
    finally:
        with undisturbed():
            load.close()


SETTLED_SECONDS = 3.0
"""A switch may add to its counters late: Open vSwitch's polling thread does once a second to some."""


def check_whole(traffic: Traffic, reading: Callable[[], Counters], seconds: float = SETTLED_SECONDS) -> None:
    """Holds the guests' account of the whole run against the switch's, which has some `seconds` to agree.

    Raises Fault if it does not.
    """
    check_settled(lambda: _disagreement(traffic, reading()), seconds)


def check_settled(problem: Callable[[], str | None], seconds: float = SETTLED_SECONDS) -> None:
    """Returns as soon as there is no problem. Raises Fault if after so many seconds there still is one."""
    deadline = time.monotonic() + seconds
    while found := problem():
        if time.monotonic() > deadline:
            raise Fault(found)
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
