"""How soon a function that has its CPUs by its load gets one when a burst of frames comes, how soon it gives that back
when it idles, and how often it gives one back under a square wave, where each that it gives back is wanted again.

What was learned of a function holds for a while (`tailrace.node.sizing`), so each burst, and the wave, has a function
of its own, which is led in the place of the one before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tailrace.bench.guests import WAIT_SECONDS, ended, tester_at
from tailrace.bench.model import Beside, Spread
from tailrace.bench.own_node import own_folder
from tailrace.bench.plug import flows, p99, switch_drops
from tailrace.errors import Fault, Mistake
from tailrace.functions.runtimes import program_of
from tailrace.measure.own_node import OwnNode
from tailrace.measure.progress import Reporter
from tailrace.measure.tester import TESTER_PROGRAM, Tester
from tailrace.node.client import Client
from tailrace.observe.gaps import Busy
from tailrace.plan.planned import Plan
from tailrace.process.programs import own_program
from tailrace.state.record import Process, peek

TAKE, GIVE = "take", "give back"
GOALS_MS = {TAKE: 50.0, GIVE: 1000.0}
MOST_A_MINUTE = 1
"""CPUs that are given back and wanted again, in any minute."""
PERIOD = 2.0
"""Of the square wave, in seconds: for half of it frames come. Each pause is long enough for a CPU to be given back."""
_SPEC = """\
fabric: {{backpressure: 10s}}
functions: {{{name}: {{kind: skeleton, cpus: {{start: 1, most: 2{more}}}}}}}
chains: {{voice: [tester.a, {name}, tester.b]}}
"""
"""Others may keep a poller off its CPU for a while, and nothing is to be lost by that."""
_PROBE = "probe"
"""The function of which is learned how busy a burst keeps one."""
_LEAST_BUSY, _MOST_BUSY = 0.01, 0.75
_MINUTE = 60.0
_LOOK_SECONDS = 1.0
_EVENT_SECONDS = 30.0
_BURST_SECONDS = 0.3
"""For which a burst lasts after the CPU is there."""
_ROUND_SECONDS = 5.0
"""About what a burst takes with its function, for the progress bar."""


@dataclass(frozen=True)
class AutomaticPlan:
    """What is to be measured. Raises Mistake where that cannot be."""

    times: int = 20
    """Bursts."""
    rate: float = 400_000.0
    """Frames a second of a burst, all flows both ways together."""
    wave: float = 130.0
    """Seconds of the square wave; 0: none."""

    def __post_init__(self) -> None:
        if not 1 <= self.times <= 1000:
            raise Mistake(f"--times {self.times}: expected 1 to 1000 with --automatic")
        if not 100 <= self.rate <= 10e6:
            raise Mistake(f"--rate {self.rate:g}: expected 100 to 10000000 frames a second with --automatic")
        if not (self.wave == 0 or PERIOD <= self.wave <= 86_400):
            raise Mistake(f"--wave {self.wave:g}: expected 0, or {PERIOD:g} to 86400 seconds")

    @property
    def total_seconds(self) -> float:
        return 10.0 + _ROUND_SECONDS * self.times + self.wave


@dataclass(frozen=True)
class Resize:
    """Of the number of CPUs under the wave."""

    at: float
    """Seconds from the wave's begin."""
    cpus: int
    """How many there are from then on."""


@dataclass(frozen=True)
class AutomaticResult:
    """What came out."""

    taken_ms: Mapping[str, Sequence[float]]
    load: float
    """How busy a burst keeps the function on one CPU."""
    busy: float
    """The limit above which it has one more."""
    wave: float
    changes: Sequence[Resize]
    traffic: Beside
    notes: Sequence[str]
    machine: Mapping[str, Any]

    @property
    def times_ms(self) -> dict[str, Spread]:
        return {name: Spread.of(taken) for name, taken in self.taken_ms.items()}

    @property
    def within(self) -> dict[str, int]:
        """How many of them took no longer than they are to take at most."""
        return {name: sum(each <= GOALS_MS[name] for each in taken) for name, taken in self.taken_ms.items()}

    @property
    def flaps(self) -> int:
        """CPUs that were given back under the wave, and wanted again."""
        return len(flaps(self.changes))

    @property
    def most_in_a_minute(self) -> int:
        """Of those, in any minute."""
        at = flaps(self.changes)
        return max((sum(first <= each < first + _MINUTE for each in at) for first in at), default=0)

    def document(self) -> dict[str, Any]:
        return {
            "bench": "plug",
            "automatic": True,
            "times_ms": {
                name: {**self.times_ms[name].document(), "p99": round(p99(taken), 3)}
                for name, taken in self.taken_ms.items()
            },
            "goals_ms": GOALS_MS,
            "within": self.within,
            "load": round(self.load, 4),
            "busy": self.busy,
            "wave": {
                "seconds": self.wave,
                "period_seconds": PERIOD,
                "changes": [{"at_s": round(each.at, 3), "cpus": each.cpus} for each in self.changes],
                "flaps": self.flaps,
                "most_in_a_minute": self.most_in_a_minute,
            },
            "lost": self.traffic.lost,
            "traffic": self.traffic.document(),
            "notes": list(self.notes),
            "machine": dict(self.machine),
        }


def flaps(changes: Sequence[Resize]) -> list[float]:
    """When CPUs were given back that were wanted again later."""
    return [one.at for one, other in pairwise(changes) if other.cpus > one.cpus]


def spec_of(name: str, busy: float | None) -> str:
    """A node with one function: with its second CPU where its first is busier than that, or, of None, without."""
    return _SPEC.format(name=name, more="" if busy is None else f", automatic: true, busy: {busy:.0%}")


def limit(load: float) -> float:
    """The limit of a function that a burst keeps so busy: half of that, so that the burst is above it whatever else
    runs, and on two CPUs not quiet. Raises Fault where a burst is too little."""
    if load < 2 * _LEAST_BUSY:
        raise Fault(
            f"a burst keeps the function busy for {load:.1%} of its CPU's time; expected at least "
            f"{2 * _LEAST_BUSY:.0%}: offer more (--rate)"
        )
    return min(int(load * 50) / 100, _MOST_BUSY)


def run(plan: AutomaticPlan, folder: Path, report: Reporter) -> AutomaticResult:
    """Measures all of it. Everything that it starts and reserves is gone when it returns or raises."""
    own_program(TESTER_PROGRAM)
    with own_folder("bench plug", folder, report) as (setting, made):
        report.stage("bursts", 10.0 + _ROUND_SECONDS * plan.times)
        node = OwnNode(made, spec_of(_PROBE, None))
        try:
            node.command("up", str(node.spec))
            placement = Plan.read(peek(node.state).plan).placement
            ends = [node.state / "sockets" / f"tester.{end}.sock" for end in "ab"]
            with (
                closing(Client(node.state)) as client,
                tester_at(setting, ends, listen=False, place=placement.tester) as tester,
            ):
                client.subscribe()
                bursts = _Bursts(node, client, tester, plan.rate)
                load = bursts.load()
                bursts.busy = limit(load)
                taken: dict[str, list[float]] = {TAKE: [], GIVE: []}
                for number in range(plan.times):
                    for name, milliseconds in zip(taken, bursts.one(f"burst{number}"), strict=True):
                        taken[name].append(milliseconds)
                    report.advance("bursts", 10.0 + _ROUND_SECONDS * (number + 1))
                report.stage("wave", plan.wave)
                changes = list(bursts.wave(plan.wave, report)) if plan.wave else []
                dropped = switch_drops(client.call("node.status"))
        finally:
            node.command("down")
        traffic = Beside.of(plan.rate, {"streams": bursts.streams}, dropped)
        return AutomaticResult(
            taken, load, bursts.busy, plan.wave, changes, traffic, [placement.headline], setting.machine()
        )


class _Bursts:
    """Frames that come and stop, and what a function's CPUs do about that."""

    def __init__(self, node: OwnNode, client: Client, tester: Tester, rate: float) -> None:
        self.node, self.client, self.tester, self.rate = node, client, tester, rate
        self.busy = _LEAST_BUSY
        self.streams: list[dict[str, Any]] = []
        """Of all bursts that were counted."""

    def load(self) -> float:
        """How busy a burst keeps a function on its one CPU."""
        things = peek(self.node.state).things
        (process,) = (each for each in things if isinstance(each, Process) and each.name == _PROBE)
        with closing(Busy(program_of(process) or process.pid)) as busy:
            self._begin()
            time.sleep(_BURST_SECONDS)
            began, before = time.monotonic(), busy.seconds
            time.sleep(_LOOK_SECONDS)
            load = (busy.seconds - before) / (time.monotonic() - began)
            self._end()
        return load

    def one(self, name: str) -> tuple[float, float]:
        """In ms: from the first frame until a function of this name has its second CPU, and from the end of the burst
        until it has given that back. Raises Fault."""
        self._lead_to(name)
        self._begin()
        self._resized(2)
        taken = float(self.tester.control.call("trial.status")["elapsed"])
        time.sleep(_BURST_SECONDS)
        stopped = time.monotonic()
        self.tester.control.call("trial.stop")
        self._resized(1)
        given = time.monotonic() - stopped
        self._end()
        return taken * 1e3, given * 1e3

    def wave(self, seconds: float, report: Reporter) -> Iterator[Resize]:
        """Frames for half of each period, none for the other half."""
        self._lead_to("wave")
        began = time.monotonic()
        for period in range(round(seconds / PERIOD)):
            self._begin()
            yield from self._changes(began, began + (period + 0.5) * PERIOD)
            self.tester.control.call("trial.stop")
            yield from self._changes(began, began + (period + 1) * PERIOD)
            self._end()
            report.advance("wave", (period + 1) * PERIOD)

    def _changes(self, began: float, until: float) -> Iterator[Resize]:
        while (left := until - time.monotonic()) > 0:
            event = self.client.next_event(left)
            if event is not None and event["kind"] == "function.resized":
                yield Resize(time.monotonic() - began, len(event["details"]["now"]))

    def _lead_to(self, name: str) -> None:
        """A function of this name in the place of the one that is there."""
        self.node.spec.write_text(spec_of(name, self.busy))
        self.node.command("apply", str(self.node.spec))
        while self.client.next_event(0.0) is not None:
            pass

    def _begin(self) -> None:
        self.tester.begin(flows(self.rate), 3600.0, wait=WAIT_SECONDS, interval=1.0)

    def _end(self) -> None:
        self.streams += ended(self.tester)["streams"]

    def _resized(self, cpus: int) -> None:
        deadline = time.monotonic() + _EVENT_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            event = self.client.next_event(left)
            if event is None:
                continue
            if event["kind"] == "function.crowded":
                raise Fault(f"the function cannot have another CPU: {event['details']['why']}")
            if event["kind"] == "function.resized" and len(event["details"]["now"]) == cpus:
                return
        raise Fault(f"the function did not come to {cpus} CPUs within {_EVENT_SECONDS:g} s")
