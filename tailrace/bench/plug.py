"""How soon a function that runs has one CPU more, and one less, while frames move: from the call until the first frame
was forwarded by the new thread, and until the CPU is free. Beside it what there is without that: a new instance in its
place (`function restart`), by the same service.

Frames of several flows go both ways all the while. Each is checked for loss and order.

A machine's virtual CPUs are measured apart (`hotplug.py`): within a pool, beside hot-plug.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.bench import hotplug
from tailrace.bench.guests import WAIT_SECONDS, ended, tester_at
from tailrace.bench.model import Beside, Spread
from tailrace.bench.own_node import own_folder
from tailrace.errors import Fault, Mistake
from tailrace.functions.acceleration import acceleration
from tailrace.functions.runtimes import STARTERS
from tailrace.measure.own_node import OwnNode
from tailrace.measure.progress import Reporter
from tailrace.measure.tester import TESTER_PROGRAM
from tailrace.node.client import Client
from tailrace.plan.planned import Plan
from tailrace.process.programs import own_program
from tailrace.state.record import peek

SPEC = """\
functions: {first: {kind: skeleton, cpus: {most: 2}}}
chains: {voice: [tester.a, first, tester.b]}
"""
FRAME = 64
FLOWS = 8
"""Each way."""
PLUG, UNPLUG, RESTART = "plug", "unplug", "restart"
PUBLISHED_MS = {PLUG: 40.0, UNPLUG: 20.0}
"""About what others publish, for the virtual CPUs of a machine in a pool."""
_SETTLE_SECONDS = 0.5
_BETWEEN_SECONDS = 0.02
_RESTARTS = 10
"""At most; each takes as long as a start."""


@dataclass(frozen=True)
class PlugPlan:
    """What is to be measured. Raises Mistake where that cannot be."""

    times: int = 100
    rate: float = 20_000.0
    """Frames a second, all flows both ways together."""
    machine: bool = False
    """Whether a machine's virtual CPUs are measured too."""

    def __post_init__(self) -> None:
        if not 1 <= self.times <= 10_000:
            raise Mistake(f"--times {self.times}: expected 1 to 10000")
        if not 100 <= self.rate <= 1e6:
            raise Mistake(f"--rate {self.rate:g}: expected 100 to 1000000 frames a second")

    @property
    def restarts(self) -> int:
        return min(self.times, _RESTARTS)

    @property
    def total_seconds(self) -> float:
        return self.process_seconds + self.machine_seconds

    @property
    def process_seconds(self) -> float:
        return 6.0 + 0.3 * self.times + 1.5 * self.restarts

    @property
    def machine_seconds(self) -> float:
        return hotplug.seconds(self.times) if self.machine else 0.0


@dataclass(frozen=True)
class PlugResult:
    """What came out."""

    taken_ms: Mapping[str, Sequence[float]]
    traffic: Beside
    late: int
    """How often no frame came to the new CPU while it was waited for."""
    notes: Sequence[str]
    machine: Mapping[str, Any]

    @property
    def times_ms(self) -> dict[str, Spread]:
        return {name: Spread.of(taken) for name, taken in self.taken_ms.items()}

    @property
    def ratios(self) -> dict[str, float]:
        """Of the medians: to a new instance, and of a machine's pool to hot-plug and to its `virsh setvcpus` alone."""
        times = self.times_ms
        found = {f"{name}_over_{RESTART}": times[name].median / times[RESTART].median for name in (PLUG, UNPLUG)}
        if hotplug.HOT_PLUG in times:
            pool = times[hotplug.POOL_PLUG].median
            found["pool_over_hotplug"] = pool / times[hotplug.HOT_PLUG].median
            found["pool_over_setvcpus"] = pool / times[hotplug.SETVCPUS].median
        return found

    def document(self) -> dict[str, Any]:
        return {
            "bench": "plug",
            "ratios": {name: round(ratio, 4) for name, ratio in self.ratios.items()},
            "times_ms": {
                name: {**self.times_ms[name].document(), "p99": round(p99(taken), 3)}
                for name, taken in self.taken_ms.items()
            },
            "published_ms": PUBLISHED_MS,
            "lost": self.traffic.lost,
            "late": self.late,
            "traffic": self.traffic.document(),
            "notes": list(self.notes),
            "machine": dict(self.machine),
        }


def p99(taken: Sequence[float]) -> float:
    """Nearest-rank (RFC 2330, section 11.3)."""
    return sorted(taken)[math.ceil(0.99 * len(taken)) - 1]


def run(plan: PlugPlan, folder: Path, report: Reporter) -> PlugResult:
    """Measures all of it. Everything that it starts and reserves is gone when it returns or raises."""
    own_program(TESTER_PROGRAM)
    if plan.machine:
        STARTERS["machine"].check()
    taken: dict[str, list[float]] = {name: [] for name in (PLUG, UNPLUG, RESTART)}
    late = 0
    with own_folder("bench plug", folder, report) as (setting, made):
        report.stage("CPUs", plan.process_seconds)
        node = OwnNode(made, SPEC)
        try:
            node.command("up", str(node.spec))
            client = Client(node.state)
            ends = [node.state / "sockets" / f"tester.{end}.sock" for end in "ab"]
            placement = Plan.read(peek(node.state).plan).placement
            with tester_at(setting, ends, listen=False, place=placement.tester) as tester:
                tester.begin(flows(plan.rate), 3600.0, wait=WAIT_SECONDS, interval=1.0)
                time.sleep(_SETTLE_SECONDS)
                for number in range(plan.times):
                    more = client.call("function.cpus", name="first", count=2)
                    first = more["resized"]["first"]["first_frame_ms"]
                    if first is None:
                        late += 1
                    else:
                        taken[PLUG].append(first)
                    time.sleep(_BETWEEN_SECONDS)
                    taken[UNPLUG].append(client.call("function.cpus", name="first", count=1)["milliseconds"])
                    time.sleep(_BETWEEN_SECONDS)
                    report.advance("CPUs", plan.process_seconds * (number + 1) / plan.times)
                time.sleep(_SETTLE_SECONDS)
                result = ended(tester)
                dropped = switch_drops(client.call("node.status"))
                # What a new instance costs is measured apart: it is allowed to lose what is inside the old one.
                for _ in range(plan.restarts):
                    began = time.monotonic()
                    client.call("function.restart", name="first")
                    taken[RESTART].append((time.monotonic() - began) * 1e3)
            client.close()
        finally:
            node.command("down")
        if not taken[PLUG]:
            raise Fault("no frame came to the new CPU while it was waited for")
        notes = [placement.headline]
        if plan.machine:
            report.stage("machine", plan.machine_seconds)
            taken |= hotplug.measure(setting, plan.times, lambda done: report.advance("machine", done))
            notes += acceleration().notes
        return PlugResult(taken, Beside.of(plan.rate, result, dropped), late, notes, setting.machine())


def flows(rate: float) -> list[dict[str, Any]]:
    """A stream for each flow, so that its order is seen."""
    return [
        {"name": f"{source}{target}{flow}", "from": source, "to": target, "rate": rate / 2 / FLOWS,
         "frames": [FRAME], "flow": flow}
        for source, target in ("ab", "ba")
        for flow in range(FLOWS)
    ]  # fmt: skip


def switch_drops(status: Mapping[str, Any]) -> int:
    """Frames that the switch has counted as dropped."""
    return sum(sum(port["drops"].values()) for port in status["ports"])
