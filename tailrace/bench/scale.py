"""Whether a hop stays as cheap when there is more of something: guests, chains that share their ends, flows of a group.

No peer: the smallest and the largest of one thing are measured in turn (A B A B), on the same cores, and the ratio of
their cycles a packet says what size costs. All else is the same for both. A worker with many guests also looks at those
that have nothing; the cycles of a poll that moved frames and of one that found none are counted apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tailrace.bench import circulate
from tailrace.bench.change import sockets, wait_up
from tailrace.bench.circulate import Guests
from tailrace.bench.compare import Plan, Side, Step, after, compare, total_seconds
from tailrace.bench.guests import WAIT_SECONDS, ended, tester_at
from tailrace.bench.model import Comparison, Figures, Ratio, Sample, Window
from tailrace.bench.setting import Setting
from tailrace.bench.sides import BACKPRESSURE_US, guest_port, joined
from tailrace.bench.window import most_seconds, side_seconds, watch_windows
from tailrace.errors import Fault, Mistake
from tailrace.fabric.tailrace import SwitchOptions, TailraceFabric
from tailrace.measure.profile import profile
from tailrace.measure.progress import Reporter
from tailrace.measure.tester import TESTER_PROGRAM
from tailrace.plan.planned import TESTER_BUFFERS_MIB
from tailrace.process.process import undisturbed
from tailrace.resources import hugepages
from tailrace.state.record import Process

GUESTS, CHAINS, FLOWS = "guests", "chains", "flows"
SIZES = {GUESTS: (2, 64), CHAINS: (1, 1000), FLOWS: (1, 1_000_000)}
"""The smallest and the largest of each."""
FRAMES, RINGS = 128, "queue_size=256"
"""For any number of guests: frames that begin at each, descriptors of a ring."""
REPLICAS = 2
START_SECONDS = 6.0
FIRST_ADDRESS, FIRST_PORT, ADDRESSES = "198.18.1.", 1024, 256
"""Flow k, of the tester and of tailrace-circulate, has the source address 198.18.1.(k mod 256) and the UDP source port
1024 + k / 256."""


@dataclass(frozen=True)
class ScalePlan(Plan):
    """What is to be measured."""

    of: str | None = None
    """guests, chains or flows; None for all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.of is not None and self.of not in SIZES:
            raise Mistake(f"--of {self.of}: expected {', '.join(SIZES)}")

    @property
    def things(self) -> Sequence[str]:
        return [self.of] if self.of is not None else list(SIZES)

    @property
    def sides(self) -> Sequence[Side]:
        seconds = side_seconds(self.seconds) + START_SECONDS
        measures = {GUESTS: _guests, CHAINS: _chains, FLOWS: _flows}
        return [
            Side(f"{size}-{thing}", seconds, partial(measures[thing], self, size))
            for thing in self.things
            for size in SIZES[thing]
        ]

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, self.sides)

    @property
    def ratios(self) -> Sequence[Ratio]:
        """Above 1: so many times the cycles of the smallest."""
        return [
            Ratio(thing, "hop_cycles", f"{SIZES[thing][1]}-{thing}", f"{SIZES[thing][0]}-{thing}")
            for thing in self.things
        ]


def run(plan: ScalePlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all pairs."""
    return compare(
        "scale",
        plan,
        plan.sides,
        plan.ratios,
        folder=folder,
        report=report,
        pages=(circulate.PROCESSES * circulate.MEMORY_MIB + TESTER_BUFFERS_MIB) // hugepages.PAGE_MIB + 8,
        programs=("tailrace-switch", TESTER_PROGRAM, circulate.PROGRAM),
    )


def flow_chain(number: int, flows: int) -> dict[str, Any]:
    """The chain from a to b of one flow of `flows`, or of all where there is one chain."""
    match: dict[str, Any] = {"protocol": 17}
    if flows > 1:
        match |= {
            "source": f"{FIRST_ADDRESS}{number % ADDRESSES}/32",
            "source_port": FIRST_PORT + number // ADDRESSES,
        }
    return {"from": "a", "to": "b", "through": [], "match": [match]}


@contextmanager
def _switch(setting: Setting, config: dict[str, Any]) -> Iterator[TailraceFabric]:
    fabric = TailraceFabric(setting.launcher, SwitchOptions(setting.cores.switch_place, BACKPRESSURE_US, "poll"))
    try:
        fabric.start()
        setting.versions |= fabric.version()
        fabric.apply(config)
        yield fabric
    finally:
        with undisturbed():
            fabric.stop()


def _guests(plan: ScalePlan, guests: int, setting: Setting, step: Step) -> list[Sample]:
    """Guests joined in pairs, all sending as fast as one core lets them."""
    at = sockets(setting, "guest", guests)
    config = {
        "ports": {f"p{number}": guest_port(path) for number, path in enumerate(at)},
        "chains": {f"hop{number}": joined(f"p{number}", f"p{number + 1}") for number in range(0, guests, 2)},
    }
    players = Guests(tuple(number ^ 1 for number in range(guests)), frames=FRAMES, rings=RINGS)
    uris = [f"vhost-server:{path}" for path in at]
    with _switch(setting, config) as fabric, circulate.circulating(setting, players, uris, plan.frame) as loads:
        samples = _samples(plan, setting, fabric, loads, step, lossless=True)
        circulate.ended(setting, loads, players, fabric)
        return samples


def _chains(plan: ScalePlan, chains: int, setting: Setting, step: Step) -> list[Sample]:
    """Chains between the same two ports, one for each flow that the tester sends, or one for all of them."""
    at = sockets(setting, "guest", 2)
    config = {
        "ports": {name: guest_port(path) for name, path in zip("ab", at, strict=True)},
        "chains": {f"chain{number}": flow_chain(number, chains) for number in range(chains)},
    }
    with _switch(setting, config) as fabric:
        return _saturated(plan, SIZES[CHAINS][1], setting, fabric, at, step)


def _flows(plan: ScalePlan, flows: int, setting: Setting, step: Step) -> list[Sample]:
    """So many flows into a group of two replicas, whose first ports the tester plays as well: every hop is pinned."""
    names = ["a", "left0", "left1"]
    at = sockets(setting, "guest", len(names))
    waiting = sockets(setting, "right", REPLICAS + 1)
    ports = {name: guest_port(path) for name, path in zip(names, at, strict=True)}
    ports |= {f"right{n}": guest_port(path) for n, path in enumerate(waiting)}
    replicas = {f"r{n}": {"left": f"left{n}", "right": f"right{n}"} for n in range(REPLICAS)}
    config = {
        "ports": ports,
        "functions": {"group": {"replicas": replicas}},
        "chains": {"pinned": {"from": "a", "through": ["group"], "to": f"right{REPLICAS}"}},
    }
    with _switch(setting, config) as fabric:
        return _saturated(plan, flows, setting, fabric, at, step, names)


def _saturated(
    plan: ScalePlan,
    flows: int,
    setting: Setting,
    fabric: TailraceFabric,
    at: Sequence[Path],
    step: Step,
    names: Sequence[str] = "ab",
) -> list[Sample]:
    """The tester at these ports, as fast as it can: both ways between two, else from the first on."""
    with tester_at(setting, at, names=names) as tester:
        wait_up(fabric, names)
        streams = profile(plan.frame, flows).streams(0.0, names[:2])
        tester.begin(
            streams if len(names) == 2 else streams[:1],
            most_seconds(plan.seconds),
            wait=WAIT_SECONDS,
        )
        samples = _samples(plan, setting, fabric, [tester.process], step)
        ended(tester)
        return samples


def _samples(
    plan: ScalePlan,
    setting: Setting,
    fabric: TailraceFabric,
    loads: Sequence[Process],
    step: Step,
    *,
    lossless: bool = False,
) -> list[Sample]:
    """What the switch does under the loads that run. `hop_cycles`: cycles a packet of the polls that moved packets;
    `empty_poll_cycles`: of a poll that found none. Raises Fault if a packet is dropped where none may be."""

    def figures(window: Callable[[], Window]) -> Figures:
        before = fabric.worker_cycles()
        found = window()
        after = fabric.worker_cycles()
        timed = {name: after[name] - before[name] for name in after if name.startswith("timed_")}
        if not timed["timed_packets"]:
            raise Fault("no packet passed")
        empty = timed["timed_empty_cycles"] / max(timed["timed_empty_polls"], 1)
        hop = timed["timed_cycles"] / timed["timed_packets"]
        return {"hop_cycles": round(hop, 2), "empty_poll_cycles": round(empty, 2), **found.figures()}

    progress = after(step, START_SECONDS / 2)
    return watch_windows(setting, plan.seconds, fabric, loads, progress, figures, lossless=lossless)
