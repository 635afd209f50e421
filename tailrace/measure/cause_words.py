"""Causes in words, and the knobs that act on them (`tailrace.host.knobs`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tailrace.measure.causes import Cause

NOBODY: Mapping[int, str] = {}

#: By the tracepoint's name of an interrupt of the processor: what it is, and what keeps it off a CPU.
_INTERRUPTS = {
    "local_timer": ("the timer's interrupt", ("nohz_full", "isolcpus", "kernel.timer_migration", "vm.stat_interval")),
    "call_function": ("interrupts that run a function for another CPU", ("isolcpus", "nohz_full", "page_merging")),
    "call_function_single": (
        "interrupts that run a function for another CPU",
        ("isolcpus", "nohz_full", "page_merging"),
    ),
    "irq_work": ("the kernel's own interrupts (irq_work)", ("rcu_nocbs", "nohz_full")),
    "thermal_apic": ("the processor's thermal interrupt", ("governor", "least_frequency")),
    "threshold_apic": ("the processor's error threshold interrupt", ("machine_check",)),
    "deferred_error_apic": ("the processor's deferred error interrupt", ("machine_check",)),
}
_LINES = ("irq_affinity", "irqaffinity", "irq_default_affinity", "card_queues")
_SOFTIRQS: dict[str, tuple[str, ...]] = {
    "TIMER": ("kernel.timer_migration", "nohz_full", "isolcpus"),
    "HRTIMER": ("kernel.timer_migration", "nohz_full", "isolcpus"),
    "NET_TX": ("card_queues", "irq_affinity"),
    "NET_RX": ("receive_steering", "card_queues", "irq_affinity"),
    "BLOCK": ("irq_affinity",),
    "IRQ_POLL": ("irq_affinity",),
    "TASKLET": ("irq_affinity",),
    "SCHED": ("isolcpus", "user_tasks"),
    "RCU": ("rcu_nocbs", "rcu_normal_after_boot"),
}
#: Tasks of the kernel, by the beginning of their names.
_KERNEL_TASKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("kworker/", ("workqueues", "isolcpus")),
    ("ksoftirqd/", ("irq_affinity", "isolcpus")),
    ("rcu", ("rcu_nocbs", "kernel_threads")),
    ("migration/", ("isolcpus", "user_tasks")),
    ("watchdog", ("watchdog_cpus", "soft_lockup_off")),
    ("khugepaged", ("transparent_huge_pages", "transparent_defrag")),
    ("ksmd", ("page_merging",)),
    ("kcompactd", ("transparent_defrag", "kernel_threads")),
    ("kswapd", ("kernel_threads",)),
    ("irq/", _LINES),
    ("kauditd", ("audit_off",)),
)
_OTHERS: dict[str, tuple[str, ...]] = {
    "nmi": ("kernel.nmi_watchdog", "watchdog_cpus"),
    "asleep": ("idle_latency", "shallow_idle", "idle_poll"),
    "fault": ("huge_pages_2mib", "transparent_huge_pages", "page_merging", "kernel.numa_balancing"),
}


def words(cause: Cause, held: Sequence[str], pollers: Mapping[int, str] = NOBODY) -> str:
    """The cause in words. `held` are those whom it kept, `pollers` the names of our own polling threads."""
    if cause.inside:
        return f"in {cause.inside}: {_words(cause, 'the receiver', NOBODY)}"
    return _words(cause, " and ".join(held), pollers)


def _words(cause: Cause, who: str, pollers: Mapping[int, str]) -> str:
    if cause.kind == "task":
        if cause.id in pollers:
            return f"{pollers[cause.id]} ran on CPU {cause.cpu}, which it shares with {who}"
        return f"another task ran on CPU {cause.cpu}: {cause.name or 'unknown'} (thread {cause.id})"
    if cause.kind == "interrupt":
        if cause.name in _INTERRUPTS:
            return f"{_INTERRUPTS[cause.name][0]} on CPU {cause.cpu}"
        return f"interrupt {cause.id} ({cause.name or 'unknown'}) on CPU {cause.cpu}"
    return {
        "softirq": f"the softirq {cause.name} on CPU {cause.cpu}",
        "nmi": f"non-maskable interrupts on CPU {cause.cpu}",
        "stopped": f"{who} was stopped by a signal",
        "blocked": f"{who} waited in the kernel",
        "asleep": f"{who} was asleep and had to be woken",
        "fault": f"page faults of {who}",
        "exit": f"{who} was left for this host: {cause.name}",
        "full": f"{cause.name} had no room",
    }.get(cause.kind, cause.kind)


def knobs(cause: Cause, pollers: Mapping[int, str] = NOBODY) -> tuple[str, ...]:
    """The names of the knobs that act on it; none where tuning does not help, or not that of this host."""
    if cause.inside:
        return ()
    if cause.kind == "task":
        if cause.id in pollers:
            return ()
        for beginning, found in _KERNEL_TASKS:
            if cause.name.startswith(beginning):
                return found
        return ("isolcpus", "user_tasks")
    if cause.kind == "interrupt":
        return _INTERRUPTS[cause.name][1] if cause.name in _INTERRUPTS else _LINES
    if cause.kind == "softirq":
        return _SOFTIRQS.get(cause.name, ("isolcpus",))
    return _OTHERS.get(cause.kind, ())


def all_knobs() -> set[str]:
    """Every knob that is named here."""
    tables = [known for _, known in _INTERRUPTS.values()] + [*_SOFTIRQS.values(), *_OTHERS.values()]
    tables += [known for _, known in _KERNEL_TASKS]
    return {"isolcpus", "user_tasks", *_LINES}.union(*tables)
