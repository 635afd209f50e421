"""Kernel switches in /proc/sys: timers, watchdogs, scheduler, memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tailrace.host.knobs.base import Context, Family, Knob, file_setting, is_number
from tailrace.host.setting import Form, Setting
from tailrace.kernel.cpus import show_list

SYSCTL = "Linux, Documentation/admin-guide/sysctl"


def _sysctl(name: str) -> Callable[[Context, Any], Iterable[Setting]]:
    path = f"/proc/sys/{name.replace('.', '/')}"
    return lambda context, value: file_setting(context, path, int(value), Form.NUMBER)


def _watchdog_cpus(context: Context, value: bool) -> list[Setting]:
    cpus = context.roles.system if value else context.machine.online
    return file_setting(context, "/proc/sys/kernel/watchdog_cpumask", show_list(cpus), Form.CPU_LIST)


def _fair_server(context: Context, value: int) -> list[Setting]:
    at = "/sys/kernel/debug/sched/fair_server"
    return [
        setting
        for cpu in context.roles.isolated
        for setting in file_setting(context, f"{at}/cpu{cpu}/runtime", value, Form.NUMBER)
    ]


def _shown(name: str) -> str:
    return f"a kernel that shows /proc/sys/{name.replace('.', '/')}"


def _number(name: str, what: str, why: str, cost: str, source: str, takes: str, needs: str = "") -> Knob:
    return Knob(name, what, why, cost, source, "run", takes, _sysctl(name), is_number, needs or _shown(name))


class Timers(Family):
    name = "timers"
    title = "Timers"
    text = "Where timers run, and how often the kernel updates statistics."
    knobs = (
        _number(
            "kernel.timer_migration",
            "whether an idle CPU hands its timers to a busy one",
            "1: a timer armed on a CPU before it was isolated leaves it. TuneD sets 0, OpenShift 1. Tailrace gives "
            "roles at run time, so pending timers must be able to leave",
            "nothing",
            "Linux, kernel/time/timer.c, sysctl_timer_migration; OpenShift node tuning operator",
            "0 or 1",
        ),
        _number(
            "vm.stat_interval",
            "seconds between two updates of memory statistics",
            "each update runs on every CPU that touched memory",
            "/proc/vmstat lags behind",
            f"{SYSCTL}/vm.rst; TuneD network-latency",
            "seconds",
        ),
    )


class Watchdogs(Family):
    name = "watchdogs"
    title = "Watchdogs"
    text = "Detectors of stuck CPUs and tasks. They interrupt what they watch."
    knobs = (
        _number(
            "kernel.nmi_watchdog",
            "the detector of hard lockups",
            "it is a non-maskable interrupt on every CPU, and takes a performance counter",
            "CPUs stuck with interrupts off are not reported",
            f"{SYSCTL}/kernel.rst; TuneD network-latency",
            "0 or 1",
            "a kernel with CONFIG_HARDLOCKUP_DETECTOR, and a performance counter",
        ),
        Knob(
            "watchdog_cpus",
            "keeps lockup detectors on the system's CPUs",
            "their threads run at the highest priority on every watched CPU",
            "stuck isolated CPUs are not reported",
            f"{SYSCTL}/kernel.rst",
            "run",
            "true or false",
            _watchdog_cpus,
            needs="a kernel with CONFIG_LOCKUP_DETECTOR",
        ),
        _number(
            "kernel.hung_task_timeout_secs",
            "seconds after which a blocked task is reported",
            "with 0 the thread that checks all tasks never wakes",
            "hung tasks are not reported",
            f"{SYSCTL}/kernel.rst; TuneD network-latency",
            "seconds; 0: never",
            "a kernel with CONFIG_DETECT_HUNG_TASK",
        ),
    )


class Scheduler(Family):
    name = "scheduler"
    title = "Scheduler"
    text = "How the scheduler treats threads that never sleep, and memory."
    knobs = (
        _number(
            "kernel.sched_rt_runtime_us",
            "µs of each second for which real-time threads may run",
            "with -1 a polling real-time thread is never stopped; by default it is stopped for 50 ms each second. From "
            "Linux 6.12 on fair_server decides this",
            "a runaway real-time thread keeps its CPU for good",
            "Linux, Documentation/scheduler/sched-rt-group.rst; TuneD realtime",
            "µs; -1: no limit",
        ),
        Knob(
            "fair_server",
            "ns of each second that ordinary threads get on an isolated CPU with a real-time thread that never sleeps",
            "from Linux 6.12 on it stops a polling real-time thread for 50 ms each second, whatever "
            "kernel.sched_rt_runtime_us says",
            "an ordinary thread left on such a CPU never runs again",
            "Linux, kernel/sched/debug.c, sched/fair_server",
            "run",
            "ns; 0: none",
            _fair_server,
            lambda value: is_number(value) and value >= 0,
            needs="Linux 6.12 and debugfs at /sys/kernel/debug",
            kernels="from 6.12 on",
        ),
        _number(
            "kernel.numa_balancing",
            "whether pages are moved towards the CPUs that use them",
            "the kernel provokes page faults to find out who uses a page",
            "memory stays where it was first used; place it well",
            f"{SYSCTL}/kernel.rst; TuneD network-latency",
            "0 or 1; 2, between memory tiers, and 3, both, from Linux 5.18 on",
            "a kernel with CONFIG_NUMA_BALANCING",
        ),
    )
