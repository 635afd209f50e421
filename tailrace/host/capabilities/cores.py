"""Cores, their clock and their memory: what makes one deterministic, and what it shares."""

from __future__ import annotations

from tailrace.host.capabilities.base import Capability, Finding, find_flag, in_this_tree
from tailrace.host.machine import Machine
from tailrace.kernel.cpus import parse_list
from tailrace.resources.topology import CPUS, HUGE_PAGES


def _invariant_tsc(machine: Machine) -> Finding:
    if machine.architecture == "aarch64":
        return Finding(True, True, "the generic timer of Arm runs at one rate in every state")
    both = {"constant_tsc", "nonstop_tsc"} <= machine.flags
    source = machine.tree.text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    words = f"constant_tsc and nonstop_tsc: {'both' if both else 'not both'}"
    if source is None:
        return Finding(both, None if both else False, f"{words}; the clock source cannot be read here")
    return Finding(both, both and source == "tsc", f"{words}; clock source {source}")


def _smt(machine: Machine) -> Finding:
    control, active = (machine.tree.text(f"{CPUS}/smt/{name}") for name in ("control", "active"))
    present = any(len(cpu.siblings) > 1 for cpu in machine.cpus) or control in ("on", "off")
    if active is None:  # before Linux 4.19
        pairs = sum(cpu.online and len(set(cpu.siblings) & set(machine.online)) > 1 for cpu in machine.cpus)
        return Finding(present, pairs > 0, f"topology/thread_siblings_list: {pairs} CPUs share a core with another")
    return Finding(present, active == "1", f"{CPUS}/smt: control {control}, active {active}")


def _cache_allocation(machine: Machine) -> Finding:
    flag = find_flag(machine, "cat_l3", "cat_l2")
    mounted = machine.tree.exists("/sys/fs/resctrl/schemata")
    return Finding(
        flag.present or mounted, mounted, f"{flag.evidence}; /sys/fs/resctrl is {'' if mounted else 'not '}mounted"
    )


def _one_gib(machine: Machine) -> Finding:
    flag = find_flag(machine, "pdpe1gb")
    pools = machine.pools(1 << 20)
    total = sum(pool.total for pool in pools)
    evidence = "a pool of the kernel's" if pools else flag.evidence
    return Finding(flag.present or bool(pools), total > 0, f"{evidence}; {total} pages of 1 GiB reserved")


def _huge_pages(machine: Machine) -> Finding:
    pools = [pool for node in machine.nodes for pool in node.huge]
    total = sum(pool.total * pool.kib for pool in pools) // 1024
    sizes = ", ".join(f"{kib >> 10} MiB" if kib >= 1 << 10 else f"{kib} KiB" for kib in sorted({p.kib for p in pools}))
    known = bool(pools) or in_this_tree(machine, HUGE_PAGES)
    words = f"sizes {sizes or 'none'}; {total} MiB reserved" if known else "no pool can be read here"
    return Finding(bool(pools) if known else None, total > 0, words)


def _realtime(machine: Machine) -> Finding:
    kernel = machine.kernel
    if not kernel.realtime and not kernel.version:
        return Finding(None, None, "/proc/version cannot be read here")
    return Finding(kernel.realtime, kernel.realtime, f"kernel {kernel.release}: {kernel.version}")


def _tickless(machine: Machine) -> Finding:
    now = machine.tree.text(f"{CPUS}/nohz_full")
    try:
        on = bool(parse_list(now or ""))
    except ValueError:  # `(null)` for none
        on = False
    built = machine.kernel.built("NO_HZ_FULL")
    return Finding(
        True if on or now is not None else built, on, f"{CPUS}/nohz_full: {now}; CONFIG_NO_HZ_FULL {_built(built)}"
    )


def _isolation(machine: Machine) -> Finding:
    now = machine.tree.text(f"{CPUS}/isolated")
    if now is None:
        return Finding(None, None, f"{CPUS}/isolated cannot be read here")
    return Finding(True, bool(now), f"{CPUS}/isolated: {now or 'empty'}")


def _frequency(machine: Machine) -> Finding:
    power = machine.power
    if power.frequency is None:
        there = in_this_tree(machine, f"{CPUS}/cpufreq")
        words = f"{CPUS}/cpufreq is empty: no driver" if there else f"{CPUS}/cpufreq cannot be read here"
        return Finding(False if there else None, None, words)
    return Finding(True, power.governor == "performance", f"driver {power.frequency}, governor {power.governor}")


def _idle(machine: Machine) -> Finding:
    power = machine.power
    there = power.idle is not None
    if not there and not in_this_tree(machine, f"{CPUS}/cpuidle"):
        return Finding(None, None, f"{CPUS}/cpuidle cannot be read here")
    return Finding(there, there, f"driver {power.idle}, states {', '.join(power.states) or 'unknown'}")


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
        "install the distribution's real-time kernel (Debian: linux-image-rt-amd64, linux-image-rt-arm64) and boot it",
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
