"""Cores, their clock and their memory: what makes one deterministic, and what it shares."""

from __future__ import annotations

from tailrace.host.capabilities.base import Capability, Finding, find_flag
from tailrace.host.machine import CPUS, Machine


def _invariant_tsc(machine: Machine) -> Finding:
    if machine.architecture == "aarch64":
        return Finding(True, True, "the generic timer of Arm runs at one rate in every state")
    both = {"constant_tsc", "nonstop_tsc"} <= machine.flags
    source = machine.tree.text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    return Finding(
        both,
        both and source == "tsc",
        f"constant_tsc and nonstop_tsc: {'both' if both else 'not both'}; clock source {source}",
    )


def _smt(machine: Machine) -> Finding:
    control, active = (machine.tree.text(f"{CPUS}/smt/{name}") for name in ("control", "active"))
    present = any(len(cpu.siblings) > 1 for cpu in machine.cpus) or control in ("on", "off")
    return Finding(present, active == "1", f"{CPUS}/smt: control {control}, active {active}")


def _cache_allocation(machine: Machine) -> Finding:
    flag = find_flag(machine, "cat_l3", "cat_l2")
    mounted = machine.tree.exists("/sys/fs/resctrl/schemata")
    return Finding(
        flag.present or mounted, mounted, f"{flag.evidence}; /sys/fs/resctrl is {'' if mounted else 'not '}mounted"
    )


def _one_gib(machine: Machine) -> Finding:
    flag = find_flag(machine, "pdpe1gb")
    pools = [pool for node in machine.nodes for pool in node.huge if pool.kib == 1 << 20]
    total = sum(pool.total for pool in pools)
    return Finding(flag.present or bool(pools), total > 0, f"{flag.evidence}; {total} pages of 1 GiB reserved")


def _huge_pages(machine: Machine) -> Finding:
    pools = [pool for node in machine.nodes for pool in node.huge]
    total = sum(pool.total * pool.kib for pool in pools) // 1024
    sizes = ", ".join(sorted({f"{pool.kib // 1024} MiB" for pool in pools}))
    return Finding(bool(pools), total > 0, f"sizes {sizes or 'none'}; {total} MiB reserved")


def _realtime(machine: Machine) -> Finding:
    return Finding(
        machine.kernel.realtime, machine.kernel.realtime, f"kernel {machine.kernel.release}: {machine.kernel.version}"
    )


def _tickless(machine: Machine) -> Finding:
    now = machine.tree.text(f"{CPUS}/nohz_full")
    on = bool(now and now != "(null)")
    built = machine.kernel.built("NO_HZ_FULL")
    return Finding(
        True if on or now is not None else built, on, f"{CPUS}/nohz_full: {now}; CONFIG_NO_HZ_FULL {_built(built)}"
    )


def _isolation(machine: Machine) -> Finding:
    now = machine.tree.text(f"{CPUS}/isolated")
    return Finding(now is not None, bool(now), f"{CPUS}/isolated: {now or 'empty' if now is not None else 'not there'}")


def _frequency(machine: Machine) -> Finding:
    driver = machine.tree.text(f"{CPUS}/cpu0/cpufreq/scaling_driver")
    governor = machine.tree.text(f"{CPUS}/cpu0/cpufreq/scaling_governor")
    return Finding(
        driver is not None, governor == "performance" if driver else None, f"driver {driver}, governor {governor}"
    )


def _idle(machine: Machine) -> Finding:
    driver = machine.tree.text(f"{CPUS}/cpuidle/current_driver")
    states = [
        machine.tree.text(f"{path}/name") or "?" for path, _ in machine.tree.find(f"{CPUS}/cpu0/cpuidle", "state*")
    ]
    there = driver not in (None, "none")
    return Finding(there, there, f"driver {driver}, states {', '.join(states) or 'none'}")


def _built(value: bool | None) -> str:
    return "unknown" if value is None else "yes" if value else "no"


CAPABILITIES = (
    Capability(
        "invariant-tsc",
        "Invariant time-stamp counter",
        "one clock for all cores, in every power state: what all latencies are measured with",
        "firmware; tsc=reliable keeps it",
        _invariant_tsc,
    ),
    Capability(
        "smt",
        "Simultaneous multithreading",
        "two threads share a core: more throughput, and each delays the other",
        f"{CPUS}/smt/control, or take single siblings offline",
        _smt,
    ),
    Capability(
        "cache-allocation",
        "Cache allocation (CAT)",
        "a neighbour cannot evict a function's cache lines",
        "mount -t resctrl resctrl /sys/fs/resctrl",
        _cache_allocation,
    ),
    Capability(
        "huge-pages",
        "Huge pages",
        "fewer TLB misses, and memory that stays in place",
        "/sys/devices/system/node/nodeN/hugepages",
        _huge_pages,
    ),
    Capability(
        "huge-pages-1gib",
        "Huge pages of 1 GiB",
        "one translation for a guest's memory",
        "hugepagesz=1G hugepages=N",
        _one_gib,
    ),
    Capability(
        "realtime",
        "Real-time kernel",
        "the kernel itself can be preempted nearly everywhere",
        "install linux-image-rt-amd64 and boot it",
        _realtime,
    ),
    Capability(
        "tickless",
        "Full tickless operation",
        "no timer tick on a core with one running thread",
        "nohz_full=CPUS",
        _tickless,
    ),
    Capability(
        "isolation",
        "CPU isolation",
        "the scheduler leaves a core alone",
        "isolcpus=CPUS, or a cpuset partition",
        _isolation,
    ),
    Capability(
        "frequency",
        "Frequency control",
        "a core that changes its frequency changes its latency",
        "governor performance",
        _frequency,
    ),
    Capability(
        "idle",
        "Idle states",
        "a core that sleeps deeply wakes late",
        "pm_qos_resume_latency_us, /dev/cpu_dma_latency, processor.max_cstate=1",
        _idle,
    ),
)
