"""RCU and softirqs at run time: how grace periods are waited for, and the priorities of the threads behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tailrace.host.knobs.base import Context, Family, Knob, file_setting, is_number
from tailrace.host.setting import Form, Setting


def _switch(name: str) -> Callable[[Context, Any], Iterable[Setting]]:
    return lambda context, value: file_setting(context, f"/sys/kernel/{name}", int(value), Form.NUMBER)


def _priority(thread: str) -> Callable[[Context, Any], Iterable[Setting]]:
    """Of a thread that each isolated CPU has."""

    def settings(context: Context, value: Any) -> list[Setting]:
        tree = context.machine.tree
        running = {tree.text(f"{path}/comm") for path, _ in tree.find("/proc", "*")}
        names = [f"{thread}/{cpu}" for cpu in context.roles.isolated]
        return [
            Setting(f"priority:{name}", str(value), Form.NUMBER, optional=True) for name in names if name in running
        ]

    return settings


def _is_priority(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 98


_TAKES = "a priority, 1 to 98; 0: not real-time"
_WHY = "a real-time thread that never sleeps keeps it from running, and work piles up. No shipped profile sets it"
_SOURCE = "TuneD realtime-virtual-host; OpenShift node tuning operator"


class Rcu(Family):
    name = "rcu"
    title = "RCU and softirqs"
    text = "Work that the kernel defers: until every CPU has passed a quiescent state, or until an interrupt is over."
    knobs = (
        Knob(
            "rcu_normal",
            "makes RCU grace periods normal, not expedited",
            "an expedited one interrupts every CPU; same as rcu_normal_after_boot, without a reboot",
            "some changes of configuration take longer",
            "Linux, kernel/ksysfs.c, rcu_normal, and Documentation/RCU/checklist.rst",
            "run",
            "true or false",
            _switch("rcu_normal"),
            needs="a kernel that shows /sys/kernel/rcu_normal",
        ),
        Knob(
            "softirq_priority",
            "the real-time priority of ksoftirqd on isolated CPUs",
            _WHY,
            "softirqs preempt ordinary threads",
            _SOURCE,
            "run",
            _TAKES,
            _priority("ksoftirqd"),
            _is_priority,
            needs="a CPU that is isolated",
        ),
        Knob(
            "rcu_callback_priority",
            "the real-time priority of rcuc on isolated CPUs",
            _WHY,
            "callbacks preempt ordinary threads",
            _SOURCE,
            "run",
            _TAKES,
            _priority("rcuc"),
            _is_priority,
            needs="a kernel that runs RCU callbacks in threads (real-time, or rcutree.use_softirq=0)",
        ),
        Knob(
            "timer_priority",
            "the real-time priority of ktimers on isolated CPUs",
            _WHY,
            "timers preempt ordinary threads",
            _SOURCE,
            "run",
            _TAKES,
            _priority("ktimers"),
            _is_priority,
            needs="a real-time kernel from 6.1 on",
        ),
    )
