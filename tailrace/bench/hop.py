"""The cost of one hop between two VNFs: saturated, both directions, one switch beside another.

Pairs alternate the switches (A B A B), so that both meet the same machine. The load keeps the switch's rings full;
the switch polls on a core of its own. A switch that loses a packet in the measured time, or any packet without
counting it, or whose traffic stalls, gives no figure but an error.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tailrace.bench import testpmd
from tailrace.bench.model import OVS_DPDK, TAILRACE, Counters, HopResult, Pair, Side
from tailrace.bench.sides import SWITCHES, Switch
from tailrace.bench.testpmd import Testpmd
from tailrace.errors import Failure, Fault, Mistake
from tailrace.fabric import ovs_dpdk
from tailrace.host import hugepages
from tailrace.host.launch import Launcher
from tailrace.host.place import Place, allowed_cpus
from tailrace.host.process import how_it_ended, identify, reap
from tailrace.host.programs import own_program
from tailrace.host.state import State, hold
from tailrace.measure.progress import Reporter
from tailrace.measure.session import keep_aside, undisturbed
from tailrace.node import reserve_pages

FRAMES = (64, 1518)
"""Smallest and largest frame."""
SETTLE_SECONDS = 1.0
"""From the first packet to the first reading: caches warm, rules installed, rings full."""
STALL_SECONDS = 1.0
SIDE_SECONDS = 4.0
"""What starting and ending one side takes besides the measured time, for the progress bar."""


@dataclass(frozen=True)
class HopPlan:
    """What is to be measured. Raises Mistake where that cannot be."""

    frame: int
    against: str | None = None
    pairs: int = 5
    seconds: float = 3.0
    cores: tuple[int, int] | None = None
    """The switch's CPU and the load's; the last and the first allowed unless given."""

    def __post_init__(self) -> None:
        if not FRAMES[0] <= self.frame <= FRAMES[1]:
            raise Mistake(
                f"--frame {self.frame}: expected a frame size from {FRAMES[0]} to {FRAMES[1]} bytes, FCS included"
            )
        if self.against not in (None, OVS_DPDK):
            raise Mistake(f"--against {self.against}: expected {OVS_DPDK}")
        if self.pairs < 1:
            raise Mistake(f"--pairs {self.pairs}: expected at least 1")
        if not 0.2 <= self.seconds <= 3600:
            raise Mistake(f"--seconds {self.seconds:g}: expected 0.2 to 3600")

    @property
    def switches(self) -> list[str]:
        return [TAILRACE] if self.against is None else [TAILRACE, self.against]

    @property
    def total_seconds(self) -> float:
        return self.pairs * len(self.switches) * self.side_seconds

    @property
    def side_seconds(self) -> float:
        return self.seconds + SETTLE_SECONDS + SIDE_SECONDS

    @property
    def pages(self) -> int:
        """2 MiB pages that the load and, beside it, the hungrier switch take."""
        mib = testpmd.MEMORY_MIB + (ovs_dpdk.MEMORY_MIB if OVS_DPDK in self.switches else 0)
        return mib // hugepages.PAGE_MIB + 8


def run(plan: HopPlan, folder: Path, report: Reporter) -> HopResult:
    """Measures all pairs. Everything that it starts and reserves is gone when it returns or raises."""
    switch_core, load_core, control = _cores(plan.cores)
    _check(plan)
    with _session(folder, plan.pages) as state:
        bench = _Bench(
            plan,
            Launcher(state, state.logs, tied=True),
            Place(switch_core, tuple(sorted({switch_core, control}))),
            load_core,
            control,
            report,
        )
        keep_aside(Place(switch_core, tuple(cpu.number for cpu in allowed_cpus())))
        pairs = [bench.pair(number) for number in range(plan.pairs)]
        return HopResult(plan.frame, plan.seconds, pairs, _machine(switch_core, load_core, bench.versions))


def core_to_core(one: int, other: int) -> float:
    """Round trip of a cache line between two idle cores, in ns."""
    program = own_program("tailrace-core-to-core")
    done = subprocess.run(
        [str(program), "--cores", f"{one},{other}", "--json"], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        raise Failure(done.stderr.strip() or f"{program.name} failed with status {done.returncode}")
    return float(json.loads(done.stdout)["round_trip_ns"])


@dataclass
class _Bench:
    """One run: what all its pairs have in common."""

    plan: HopPlan
    launcher: Launcher
    place: Place
    load_core: int
    control: int
    report: Reporter
    versions: dict[str, str] = field(default_factory=dict)

    def pair(self, number: int) -> Pair:
        """Each switch once."""
        before = core_to_core(self.place.core, self.load_core)
        sides: dict[str, Side] = {}
        for name in self.plan.switches:
            label = f"pair {number + 1} of {self.plan.pairs}: {name}, {self.plan.frame} B"
            self.report.stage(label, self.plan.side_seconds)
            try:
                sides[name] = self._side(name, partial(self.report.advance, label))
            except Fault as error:
                raise Fault(f"{name}, {self.plan.frame} B: {error}") from None
        return Pair(before, core_to_core(self.place.core, self.load_core), sides)

    def _side(self, name: str, step: Callable[[float], None]) -> Side:
        """One switch: up, saturated, measured, held to account, down."""
        sockets = [self.launcher.state.sockets / f"guest{number}" for number in (0, 1)]
        switch: Switch = SWITCHES[name](self.launcher, self.place)
        load: Testpmd | None = None
        try:
            switch.start(sockets)
            self.versions |= switch.version()
            step(SIDE_SECONDS / 4)
            load = Testpmd(self.launcher, sockets, core=self.load_core, control=self.control)
            load.wait_ready()
            step(SIDE_SECONDS / 2)
            load.start(self.plan.frame)
            started = time.monotonic()

            def reading() -> tuple[float, Counters]:
                _check_alive(switch, load)
                before = time.monotonic()
                counters = switch.counters()
                after = time.monotonic()
                step(SIDE_SECONDS / 2 + after - started)
                return (before + after) / 2, counters

            side = measure_window(self.plan.seconds, reading, time.sleep)
            _check_alive(switch, load)
            traffic = load.drain()
            check_whole(traffic, switch.counters())
            load.quit()
            return side
        finally:
            with undisturbed():
                if load is not None:
                    load.close()
                switch.stop()


def measure_window(
    seconds: float, reading: Callable[[], tuple[float, Counters]], sleep: Callable[[float], None]
) -> Side:
    """Reads counters over a window after settling. Raises Fault if traffic stalls or packets are dropped in it."""
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
    if last.dropped != first.dropped:
        raise Fault(f"{last.dropped - first.dropped} packets were dropped while it was measured")
    try:
        return Side.between(first, last, at - begin)
    except ValueError as error:
        raise Fault(str(error)) from None


def check_whole(traffic: testpmd.Traffic, counters: Counters) -> None:
    """Holds the guests' account of the whole run against the switch's. Raises Fault if they do not agree."""
    lost = traffic.sent - traffic.received
    if lost != counters.dropped:
        raise Fault(
            f"the guests sent {traffic.sent} packets and received {traffic.received}, {lost} fewer, "
            f"and the switch counted {counters.dropped} dropped"
        )
    if not traffic.received <= counters.packets <= traffic.sent:
        raise Fault(
            f"the switch counted {counters.packets} packets and the guests sent {traffic.sent} "
            f"and received {traffic.received}"
        )


def _check_alive(switch: Switch, load: Testpmd | None) -> None:
    for process in switch.processes():
        if not process.id.alive():
            raise Fault(f"{process.program} {how_it_ended(reap(process.pid))}")
    if load is not None:
        load.check_alive()


@contextmanager
def _session(folder: Path, pages: int) -> Iterator[State]:
    """The state held for this run, with huge pages reserved; all undone at the end."""
    with hold(folder) as state:
        if state.record.things:
            raise Mistake("Tailrace is up, and this needs the cores for itself; run `tailrace down` first")
        state.record.purpose, state.record.owner = "run", identify(os.getpid())
        state.logs.mkdir(exist_ok=True)
        state.sockets.mkdir(mode=0o700, exist_ok=True)
        try:
            reserve_pages(state, pages)
            yield state
        finally:
            with undisturbed():
                problems = state.undo_all()
        if problems:
            raise Failure(f"not all was undone: {'; '.join(problems)}; run `tailrace down`")


def _cores(wanted: tuple[int, int] | None) -> tuple[int, int, int]:
    """The CPUs of the switch, of the load, and of everything that sleeps."""
    allowed = [cpu.number for cpu in allowed_cpus()]
    if wanted is None:
        if len(allowed) < 2:
            raise Mistake("bench hop needs two CPUs, one for the switch and one for the load; this process may use one")
        wanted = (allowed[-1], allowed[0] if len(allowed) == 2 else allowed[-2])
    if wanted[0] == wanted[1] or not set(wanted) <= set(allowed):
        raise Mistake(f"--cores {wanted[0]},{wanted[1]}: expected two different CPUs of {','.join(map(str, allowed))}")
    spare = [cpu for cpu in allowed if cpu not in wanted]
    return wanted[0], wanted[1], spare[0] if spare else wanted[1]


def _check(plan: HopPlan) -> None:
    """What is missing is said before anything starts."""
    if os.geteuid() != 0:
        raise Mistake("bench hop needs root, for huge pages and the priority of polling threads; start it with sudo")
    for program in ("tailrace-core-to-core", "tailrace-switch"):
        own_program(program)
    testpmd.program()
    if plan.against == OVS_DPDK:
        ovs_dpdk.OvsDpdk.installed()


def _machine(switch_core: int, load_core: int, versions: dict[str, str]) -> dict[str, Any]:
    """What the figures were measured on and with."""
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "unknown",
    )
    return {
        "cpu": cpu,
        "cpus": len(allowed_cpus()),
        "switch_core": switch_core,
        "load_core": load_core,
        "kernel": platform.release(),
        "versions": versions,
    }
