"""What one hop costs: CPU cycles a packet and Mpps of a saturated switch between guests, beside a peer's, for each kind
of traffic (traffic.py).

Pairs alternate the switches (A B A B). A figure is only kept if every packet of the measured time was delivered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tailrace.bench import circulate, testpmd
from tailrace.bench.compare import Plan, Side, compare, total_seconds
from tailrace.bench.model import OVS_DPDK, Comparison, Kinds
from tailrace.bench.sides import against_known, check_installed
from tailrace.bench.traffic import KINDS, PLAIN, Kind
from tailrace.errors import Failure, Mistake
from tailrace.fabric import ovs_dpdk
from tailrace.measure.progress import Reporter
from tailrace.resources import hugepages

ALL = "all"


@dataclass(frozen=True)
class HopPlan(Plan):
    """What is to be measured."""

    against: str = OVS_DPDK
    traffic: str = PLAIN

    def __post_init__(self) -> None:
        super().__post_init__()
        against_known(self.against)
        if self.traffic not in KINDS:
            raise Mistake(f"--traffic {self.traffic}: expected {ALL} or some of {', '.join(KINDS)}")
        if self.kind.whole_seconds and not self.seconds.is_integer():
            raise Mistake(f"--seconds {self.seconds:g}: expected whole seconds, 1 to 3600, of --traffic {self.traffic}")

    @property
    def kind(self) -> Kind:
        return KINDS[self.traffic]

    @property
    def sides(self) -> Sequence[Side]:
        seconds, measure = self.kind.side_seconds(self.seconds), self.kind.measure
        return [Side(name, seconds, partial(measure, self, name)) for name in against_known(self.against)]

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, self.sides)


@dataclass(frozen=True)
class KindsPlan:
    """Several kinds of traffic, one after the other."""

    plans: Sequence[HopPlan]

    @classmethod
    def of(cls, traffic: str, plan: HopPlan, frame: int | None = None) -> KindsPlan:
        """The plan for each kind of a list, once, with frames of this size, if one is asked for; `all` stands for every
        kind. Raises Mistake."""
        kinds = [kind for word in traffic.split(",") for kind in (KINDS if word == ALL else [word])]
        sized = plan if frame is None else replace(plan, frame=frame)
        plans = [replace(sized, traffic=kind) for kind in dict.fromkeys(kinds)]
        own = [each.traffic for each in plans if each.kind.own_frames]
        if frame is not None and own:
            raise Mistake(f"--frame {frame}: expected none with --traffic {','.join(own)}, whose frames have their own")
        return cls(plans)

    @property
    def total_seconds(self) -> float:
        return sum(plan.total_seconds for plan in self.plans)


def run_kinds(plan: KindsPlan, folder: Path, report: Reporter) -> Kinds:
    """Measures one kind after the other. Where one fails, the others are measured all the same; Ctrl-C ends it, and the
    kinds before are the result. Raises what a single one raises."""
    measured: dict[str, Comparison] = {}
    failed: dict[str, BaseException] = {}
    for each in plan.plans:
        try:
            measured[each.traffic] = run(each, folder, report)
        except Failure as error:
            if len(plan.plans) == 1:
                raise
            failed[each.traffic] = error
            continue
        except KeyboardInterrupt as interruption:
            if not measured:
                raise
            failed[each.traffic] = interruption
            break
        if isinstance(measured[each.traffic].error, KeyboardInterrupt):
            break
    return Kinds(measured, failed)


def pages(sides: Sequence[str]) -> int:
    """2 MiB pages that the hungriest guests and, beside them, the hungrier switch take."""
    guests = max(testpmd.MEMORY_MIB, circulate.PROCESSES * circulate.MEMORY_MIB)
    return (guests + (ovs_dpdk.MEMORY_MIB if OVS_DPDK in sides else 0)) // hugepages.PAGE_MIB + 8


def run(plan: HopPlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all pairs."""
    names = against_known(plan.against)
    plan.kind.check_installed()
    check_installed(names)
    return compare(
        "hop",
        plan,
        plan.sides,
        plan.kind.ratios,
        folder=folder,
        report=report,
        pages=pages(names),
        programs=("tailrace-switch", *plan.kind.programs),
        settings={"traffic": plan.traffic},
    )
