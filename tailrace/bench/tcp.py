"""TCP between two Linux network stacks through the switch, with checksums and segmentation passed on, beside peers and
ways of Linux's own.

The stacks, the guests and iperf3 share the load's core: it is their limit as much as the switch's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tailrace.bench.compare import Plan, Side, Step, compare, total_seconds
from tailrace.bench.model import OVS_DPDK, TAILRACE, Comparison, Figures, Ratio, Sample
from tailrace.bench.setting import Setting
from tailrace.bench.sides import ALONE, check_installed, running
from tailrace.errors import Mistake
from tailrace.fabric import ovs_dpdk
from tailrace.fabric.base import Fabric
from tailrace.measure.progress import Reporter
from tailrace.measure.stacks import MTU, OWN_WAYS, PASSTHROUGH, check_card
from tailrace.measure.tcp import (
    BULK,
    GUEST_MIB,
    START_SECONDS,
    TAP_GUEST,
    Stacks,
    behind,
    check_guests,
    check_programs,
    own_way,
    ping,
    side_seconds,
    transfer,
)
from tailrace.resources import hugepages


@dataclass(frozen=True)
class TcpPlan(Plan):
    """What is to be measured."""

    against: str = OVS_DPDK
    """Several with commas: switches, and ways of Linux's own."""
    card: str | None = None
    """Whose virtual functions the stacks have by PASSTHROUGH."""
    messages: tuple[int, ...] = (BULK,)
    """Bytes of each write; each size is measured by itself."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.seconds.is_integer():
            raise Mistake(f"--seconds {self.seconds:g}: expected whole seconds, 1 to 3600, as iperf3 does")
        if not self.messages or not all(1 <= each <= BULK for each in self.messages):
            raise Mistake(f"--messages: expected bytes from 1 to {BULK}, such as 64,256,1518,65536")
        if len({*self.messages}) < len(self.messages):
            raise Mistake("--messages: a size is there twice; expected each once")
        if (PASSTHROUGH in self.names) != (self.card is not None):
            raise Mistake(f"--card: expected the network card of --against {PASSTHROUGH}, and only there")

    @property
    def names(self) -> list[str]:
        """Of the sides, ours first. Raises Mistake if one is not known."""
        others = self.against.split(",")
        if len({*others}) < len(others) or (len(others) > 1 and ALONE in others):
            raise Mistake(f"--against {self.against}: expected each once, and {ALONE} alone")
        if unknown := [each for each in others if each not in (ALONE, OVS_DPDK, *OWN_WAYS)]:
            raise Mistake(f"--against {unknown[0]}: expected {', '.join((OVS_DPDK, *OWN_WAYS))} or {ALONE}")
        return [TAILRACE, *(each for each in others if each != ALONE)]

    @property
    def ratios(self) -> list[Ratio]:
        """Above 1 favours Tailrace. With several peers a ratio's name ends with the peer's."""
        found = []
        for other in self.names[1:]:
            suffix = f"_{other}" if len(self.names) > 2 else ""
            found += [Ratio(f"{name}{suffix}", name, TAILRACE, other) for name in map(figure_of, self.messages)]
            found.append(Ratio(f"round_trip{suffix}", "ping_avg_us", other, TAILRACE))
        return found

    @property
    def sides(self) -> Sequence[Side]:
        seconds = side_seconds(self.seconds, len(self.messages))
        return [Side(name, seconds, partial(_side, self, name)) for name in self.names]

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, self.sides)


def figure_of(message: int) -> str:
    """What the rate by writes of so many bytes is called in a result."""
    return "gbps" if message == BULK else f"gbps_{message}"


def run(plan: TcpPlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all pairs."""
    names = plan.names
    check_installed(names)
    if plan.card is not None:
        check_card(plan.card)
    check_programs()
    check_guests()
    mib = 2 * GUEST_MIB + (ovs_dpdk.MEMORY_MIB if OVS_DPDK in names else 0)
    return compare(
        "tcp",
        plan,
        plan.sides,
        plan.ratios,
        folder=folder,
        report=report,
        pages=mib // hugepages.PAGE_MIB + 8,
        programs=("tailrace-switch", TAP_GUEST),
        settings={"mtu": MTU, "messages": list(plan.messages)},
    )


def _side(plan: TcpPlan, name: str, setting: Setting, step: Step) -> list[Sample]:
    with _ends(plan, setting, name) as stacks:
        step(START_SECONDS / 2)

        def measure() -> Figures:
            found = ping(stacks)
            retransmits = 0.0
            for message in plan.messages:
                bulk = transfer(stacks, plan.seconds, message)
                found[figure_of(message)] = bulk["gbps"]
                retransmits += bulk["retransmits"]
            return found | {"retransmits": retransmits}

        return setting.samples(stacks.needed, measure)


@contextmanager
def _ends(plan: TcpPlan, setting: Setting, name: str) -> Iterator[Stacks]:
    """Two stacks that are joined in a way."""
    if name in OWN_WAYS:
        with own_way(setting.launcher, setting.cores.load_place, name, plan.card) as stacks:
            yield stacks
        return
    with through(setting, name) as (_, stacks):
        yield stacks


@contextmanager
def through(setting: Setting, name: str) -> Iterator[tuple[Fabric, Stacks]]:
    """A fabric that is up, and two stacks behind it."""
    with (
        running(setting, name, offloads=True) as (switch, sockets),
        behind(setting.launcher, setting.cores.load_place, sockets, switch.processes()) as stacks,
    ):
        yield switch, stacks
