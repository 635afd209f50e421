"""How long a configuration takes: a thousand chains at once, and one more chain beside them.

First with nothing else to do. Then while a chain beside carries a tester's traffic, every frame of which must come
back; where there are no more cores the tester, which polls, shares the one that applies the configuration, and the
times cover both.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.bench.change import BESIDE_FRAME, BETWEEN_SECONDS, SETTLE_SECONDS, bare_switch, beside_traffic, sockets
from tailrace.bench.model import ChangeResult, Ratio, Spread
from tailrace.bench.setting import CORE_TO_CORE, Cores, check_able, check_alive, prepared
from tailrace.errors import Mistake
from tailrace.measure.progress import Reporter
from tailrace.measure.tester import TESTER_PROGRAM
from tailrace.plan.planned import TESTER_BUFFERS_MIB
from tailrace.resources import hugepages

PORT_PAIRS = 10
"""The chains are spread over so many pairs of ports, told apart by VLAN and address."""
CHANGES = ("apply all chains", "add one chain", "remove one chain", "remove all chains")
BESIDE = "{}, beside traffic"
SIDES = {"alone": "{}", "beside": BESIDE}
FIGURES = {change: f"{change.replace(' ', '_')}_ms" for change in CHANGES}
"""The names of the changes' times in a pair."""
RATIOS = tuple(Ratio(change.replace(" ", "_"), figure, "beside", "alone") for change, figure in FIGURES.items())
"""How much longer it takes beside traffic."""


@dataclass(frozen=True)
class ApplyPlan:
    """What is to be measured. Raises Mistake where that cannot be."""

    chains: int = 1000
    times: int = 20
    """How often each change is made."""
    cores: tuple[int, int] | None = None
    """The switch's CPU and the tester's; the last and the first allowed unless given."""

    def __post_init__(self) -> None:
        if not 1 <= self.chains <= 4000:
            raise Mistake(f"--chains {self.chains}: expected 1 to 4000")
        if not 1 <= self.times <= 1000:
            raise Mistake(f"--times {self.times}: expected 1 to 1000")

    @property
    def total_seconds(self) -> float:
        return 6.0 + 2 * SETTLE_SECONDS + 2 * self.times * (0.3 + len(CHANGES) * BETWEEN_SECONDS)


def chain(number: int) -> dict[str, Any]:
    """One of the chains, as the switch is given it: a pair of ports, a VLAN and an address prefix of its own."""
    pair, rest = number % PORT_PAIRS, number // PORT_PAIRS
    match = {"vlan": 1 + rest % 4000, "destination": f"10.{number >> 8 & 255}.{number & 255}.0/24", "protocol": 17}
    return {"from": f"in{pair}", "to": f"out{pair}", "through": [], "match": [match]}


def run(plan: ApplyPlan, folder: Path, report: Reporter) -> ChangeResult:
    """Measures all changes. Everything that it starts and reserves is gone when it returns or raises."""
    cores = Cores.choose(plan.cores, "bench apply")
    check_able("bench apply", (CORE_TO_CORE, "tailrace-switch", TESTER_PROGRAM))
    label = f"{plan.chains} chains"
    taken: dict[str, list[float]] = {name: [] for name in (*CHANGES, *map(BESIDE.format, CHANGES))}
    chains = {f"chain-{number}": chain(number) for number in range(plan.chains)}
    every, one, less, none = CHANGES
    with prepared(folder, cores, TESTER_BUFFERS_MIB // hugepages.PAGE_MIB + 8, report) as setting:
        distance = setting.core_to_core()
        report.stage(label, plan.total_seconds)
        with bare_switch(setting) as fabric:
            ends = [f"{end}{pair}" for pair in range(PORT_PAIRS) for end in ("in", "out")]
            at = sockets(setting, "end", len(ends))
            fabric.apply({"ports": {n: {"kind": "guest", "path": str(p)} for n, p in zip(ends, at, strict=True)}})

            def timed(change: str, patch: dict[str, Any]) -> None:
                began = time.monotonic()
                fabric.apply(patch)
                taken[change].append((time.monotonic() - began) * 1e3)
                time.sleep(BETWEEN_SECONDS)

            def rounds(done: int, name: str = "{}") -> None:
                for number in range(plan.times):
                    timed(name.format(every), {"chains": chains})
                    timed(name.format(one), {"chains": {"one-more": chain(plan.chains)}})
                    timed(name.format(less), {"chains": {"one-more": None}})
                    timed(name.format(none), {"chains": dict.fromkeys(chains)})
                    check_alive(fabric.processes())
                    report.advance(label, plan.total_seconds * (done + number + 1) / (2 * plan.times))

            rounds(0)
            with beside_traffic(setting, fabric) as traffic:
                rounds(plan.times, BESIDE)
        times = {name: Spread.of(values) for name, values in taken.items()}
        machine = setting.machine()
    pairs = [
        {
            side: {figure: taken[name.format(change)][number] for change, figure in FIGURES.items()}
            for side, name in SIDES.items()
        }
        for number in range(plan.times)
    ]
    settings = {"frame": BESIDE_FRAME, "chains": plan.chains}
    return ChangeResult("apply", settings, times, {}, traffic.outcome, machine, distance, pairs, RATIOS)
