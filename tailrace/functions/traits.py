"""What of this host decides how its machines are made: where its CPUs are, its clock, its scheduler."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace.kernel.tree import Tree
from tailrace.resources.topology import read_cpus

_CAP_SYS_RESOURCE = 24
REAL_TIME = "/proc/sys/kernel/sched_rt_runtime_us"
_GROUPS = "/sys/fs/cgroup/cpu/cpu.rt_runtime_us"


@dataclass(frozen=True)
class Traits:
    """Unless said, those of a host with one NUMA node where all can be had."""

    nodes: Mapping[int, int] = field(default_factory=dict)
    """The NUMA node of each CPU."""
    invariant_tsc: bool = True
    """The time stamp counter has one rate, also while a CPU sleeps."""
    real_time: str | None = None
    """Why a CPU of a machine that never sleeps can have no real-time priority; None: it can."""

    memory_lock: str | None = None
    """Why a machine's memory cannot be kept from swap; None: it can."""

    def node(self, cpu: int) -> int:
        return self.nodes.get(cpu, 0)

    @property
    def several_nodes(self) -> bool:
        return len(set(self.nodes.values())) > 1


def read_traits(tree: Tree) -> Traits:
    """Those of the machine behind `tree`."""
    cpus = read_cpus(tree)
    flags = (tree.text("/proc/cpuinfo") or "").split()
    return Traits(
        {cpu.number: cpu.node for cpu in cpus},
        {"constant_tsc", "nonstop_tsc"} <= set(flags),
        _real_time_refusal(tree),
        _lock_refusal(tree),
    )


def _lock_refusal(tree: Tree) -> str | None:
    """Sources: getrlimit(2), RLIMIT_MEMLOCK; capabilities(7), CAP_SYS_RESOURCE."""
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] == resource.RLIM_INFINITY:
        return None
    status = dict(line.split(":\t", 1) for line in (tree.text("/proc/self/status") or "").splitlines() if ":\t" in line)
    if int(status.get("CapEff", "0"), 16) >> _CAP_SYS_RESOURCE & 1:
        return None
    return "the limit of locked memory (`ulimit -l -H`) is not `unlimited`, and root may not raise it here"


def _real_time_refusal(tree: Tree) -> str | None:
    """Sources: Linux, Documentation/scheduler/sched-rt-group.rst."""
    if tree.number(REAL_TIME) != -1:
        return f"the kernel stops a real-time thread that never sleeps ({REAL_TIME} is not -1): `tailrace host plan`"
    if tree.text(_GROUPS) is not None:
        return f"the machines' cgroups grant none ({_GROUPS}: CONFIG_RT_GROUP_SCHED under cgroup v1)"
    return None
