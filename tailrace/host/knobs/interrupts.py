"""Interrupts, and the kernel's own deferred work: kept on the system's CPUs."""

from __future__ import annotations

from collections import Counter

from tailrace.host.knobs.base import Context, Family, Knob, Value, file_setting
from tailrace.host.setting import Form, Setting
from tailrace.kernel.cpus import show_list, show_mask

VECTORS = 200
"""So many interrupts a CPU of x86 can take, about (Linux, arch/x86/include/asm/irq_vectors.h)."""
WORKQUEUES = "/sys/devices/virtual/workqueue"
#: Kernel threads that may be moved and do work for the whole machine, without the numbers and devices in their names.
#: Threads of one CPU may not be moved, but for those that run its RCU callbacks for it (rcu_nocbs).
KERNEL_THREADS = (
    "rcu_preempt",
    "rcu_sched",
    "rcu_tasks",
    "rcu_tasks_kthread",
    "rcu_tasks_rude_kthread",
    "rcu_tasks_trace_kthread",
    "rcuog",
    "rcuop",
    "rcuos",
    "kcompactd",
    "kdamond",
    "khugepaged",
    "khungtaskd",
    "kswapd",
    "ksmd",
    "kauditd",
    "kdevtmpfs",
    "oom_reaper",
    "jbd2",
    "xfsaild",
)
_COMM = 15
"""So many letters of a thread's name kernels before 5.17 show."""


def _lines(context: Context, value: Value) -> list[Setting]:
    if not value:
        return []
    tree = context.machine.tree
    nodes = {path: _node(tree.number(f"{path}/node")) for path, _ in tree.find("/proc/irq", "*")}
    wanted = {node: show_list(_cpus(context, node, count)) for node, count in Counter(nodes.values()).items()}
    # The kernel refuses it for an interrupt that it manages itself or that belongs to one CPU: not a fault.
    return [
        setting
        for path, node in nodes.items()
        for setting in file_setting(context, f"{path}/smp_affinity_list", wanted[node], Form.CPU_LIST, optional=True)
    ]


def _node(number: int | None) -> int | None:
    """Of the interrupt's device; the kernel says -1 where it knows of none."""
    return number if number is not None and number >= 0 else None


def _cpus(context: Context, node: int | None, count: int) -> tuple[int, ...]:
    """The system's CPUs for so many interrupts of a node's devices: those near it, unless they cannot take so many."""
    near = context.system_near(node)
    return near if count <= VECTORS * len(near) else context.roles.system


def _default(context: Context, value: Value) -> list[Setting]:
    mask = show_mask(context.roles.system)
    return file_setting(context, "/proc/irq/default_smp_affinity", mask, Form.CPU_MASK) if value else []


def _workqueues(context: Context, value: Value) -> list[Setting]:
    if not value:
        return []
    tree, mask = context.machine.tree, show_mask(context.roles.system)
    inner = [f"{WORKQUEUES}/{name}/cpumask" for name in tree.names(WORKQUEUES)]
    return [
        setting
        for path in [f"{WORKQUEUES}/cpumask", *inner]
        for setting in file_setting(context, path, mask, Form.CPU_MASK, optional=path in inner)
    ]


def _may_move(name: str) -> bool:
    head = name.partition("/")[0][:_COMM]
    return bool({head, head.rstrip("0123456789.")} & {known[:_COMM] for known in KERNEL_THREADS})


def _threads(context: Context, value: Value) -> list[Setting]:
    if not value:
        return []
    tree = context.machine.tree
    running = {tree.text(f"{path}/comm") or "" for path, _ in tree.find("/proc", "*")}
    names = sorted(filter(_may_move, running))
    wanted = show_list(context.roles.system)
    return [Setting(f"thread:{name}", wanted, Form.CPU_LIST, optional=True) for name in names]


class Interrupts(Family):
    name = "interrupts"
    title = "Interrupts"
    text = "An interrupt takes 1 to 10 µs from a polling thread; its softirq takes more."
    knobs = (
        Knob(
            "irq_affinity",
            "moves every movable interrupt to the system's CPUs on its device's node",
            "isolated CPUs are not interrupted, and interrupts are handled near their device's memory",
            "the system's CPUs handle all interrupts",
            "Linux, Documentation/core-api/irq/irq-affinity.rst; TuneD realtime and cpu-partitioning",
            "run",
            "true or false",
            _lines,
            needs="interrupts in /proc/irq",
        ),
        Knob(
            "irq_default_affinity",
            "sends interrupts of devices added later to the system's CPUs",
            "a new device or virtual function brings its own interrupts",
            "nothing",
            "Linux, Documentation/core-api/irq/irq-affinity.rst; TuneD realtime and cpu-partitioning",
            "run",
            "true or false",
            _default,
            needs="interrupts in /proc/irq",
        ),
    )


class KernelWork(Family):
    name = "kernel-work"
    title = "Workqueues and kernel threads"
    text = "Deferred work of the kernel that any CPU can do."
    knobs = (
        Knob(
            "workqueues",
            "keeps unbound workqueues on the system's CPUs",
            "otherwise their work runs on any CPU",
            "nothing",
            "Linux, Documentation/admin-guide/kernel-parameters.txt, isolcpus; TuneD cpu-partitioning",
            "run",
            "true or false",
            _workqueues,
            needs="workqueues in /sys/devices/virtual/workqueue",
        ),
        Knob(
            "kernel_threads",
            "keeps movable kernel threads on the system's CPUs",
            "RCU, memory compaction, swapping, DAMON's scans and file system journals run for milliseconds",
            "nothing",
            "TuneD cpu-partitioning",
            "run",
            "true or false",
            _threads,
            needs="movable kernel threads",
        ),
    )
