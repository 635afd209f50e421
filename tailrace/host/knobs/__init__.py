"""Everything that can be tuned, family by family."""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.host.knobs.base import Context, Family, Knob
from tailrace.host.knobs.cmdline import CommandLine
from tailrace.host.knobs.cores import Cores
from tailrace.host.knobs.interrupts import Interrupts, KernelWork
from tailrace.host.knobs.memory import HugePages, PageMerging
from tailrace.host.knobs.network import Network
from tailrace.host.knobs.power import Frequency, IdleStates
from tailrace.host.knobs.rcu import Rcu
from tailrace.host.knobs.sysctls import Scheduler, Timers, Watchdogs
from tailrace.host.knobs.virtualization import Kvm

FAMILIES: tuple[type[Family], ...] = (
    CommandLine,
    Interrupts,
    KernelWork,
    Rcu,
    Timers,
    Watchdogs,
    Scheduler,
    Frequency,
    IdleStates,
    Cores,
    PageMerging,
    HugePages,
    Kvm,
    Network,
)
KNOBS: Mapping[str, Knob] = {knob.name: knob for family in FAMILIES for knob in family.knobs}

__all__ = ["FAMILIES", "KNOBS", "Context", "Family", "Knob"]
