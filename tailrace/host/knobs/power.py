"""Frequency and idle states of the isolated CPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tailrace.host.knobs.base import Context, Family, Knob, file_setting, is_number
from tailrace.host.machine import CPUS
from tailrace.host.setting import Form, Setting


def _each(name: str, form: Form) -> Callable[[Context, Any], Iterable[Setting]]:
    """The same file of every isolated CPU."""

    def settings(context: Context, value: Any) -> list[Setting]:
        return [
            setting
            for cpu in context.roles.isolated
            for setting in file_setting(context, f"{CPUS}/cpu{cpu}/{name}", value, form)
        ]

    return settings


def _least_frequency(context: Context, value: Any) -> list[Setting]:
    if not value:
        return []
    tree = context.machine.tree
    highest = {cpu: tree.text(f"{CPUS}/cpu{cpu}/cpufreq/cpuinfo_max_freq") for cpu in context.roles.isolated}
    return [
        setting
        for cpu, khz in highest.items()
        if khz is not None
        for setting in file_setting(context, f"{CPUS}/cpu{cpu}/cpufreq/scaling_min_freq", khz, Form.NUMBER)
    ]


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and value.replace("_", "").replace("-", "").isalnum()


def _is_latency(value: Any) -> bool:
    return value == "n/a" or (is_number(value) and value >= 0)


class Frequency(Family):
    name = "frequency"
    title = "Frequency"
    text = "A core that changes its frequency stops for some 10 µs and then has another speed."
    knobs = (
        Knob(
            "governor",
            "who chooses the frequency of the isolated CPUs",
            "`performance` keeps it at the top",
            "power",
            "Linux, Documentation/admin-guide/pm/cpufreq.rst",
            "run",
            "a governor's name, such as performance",
            _each("cpufreq/scaling_governor", Form.TEXT),
            _is_word,
            needs="a frequency driver, which a virtual machine has not",
        ),
        Knob(
            "energy_preference",
            "what the processor itself prefers (EPP)",
            "the processor lowers the frequency by itself otherwise",
            "power",
            "Linux, Documentation/admin-guide/pm/intel_pstate.rst",
            "run",
            "performance, balance_performance, ...",
            _each("cpufreq/energy_performance_preference", Form.TEXT),
            _is_word,
            needs="intel_pstate or amd_pstate in active mode",
        ),
        Knob(
            "energy_bias",
            "what the processor itself prefers (EPB), 0 to 15",
            "0 is for performance",
            "power",
            "Linux, Documentation/admin-guide/pm/intel_epb.rst",
            "run",
            "0 to 15",
            _each("power/energy_perf_bias", Form.NUMBER),
            lambda value: is_number(value) and 0 <= value <= 15,
            needs="an Intel processor with EPB",
        ),
        Knob(
            "least_frequency",
            "keeps the isolated CPUs at their highest frequency",
            "some governors still go down when idle",
            "power",
            "Linux, Documentation/admin-guide/pm/cpufreq.rst",
            "run",
            "true or false",
            _least_frequency,
            needs="a frequency driver, which a virtual machine has not",
        ),
    )


class IdleStates(Family):
    name = "idle"
    title = "Idle states"
    text = "The deeper a core sleeps, the later it wakes: from 1 µs to more than 200 µs."
    knobs = (
        Knob(
            "idle_latency",
            "the wake-up time in µs that the isolated CPUs may take",
            "`n/a` keeps a core awake when it has nothing to do; 0 means no limit",
            "power, and less turbo for the other cores",
            'Linux, Documentation/admin-guide/pm/cpuidle.rst, "Power Management Quality of Service for CPUs"',
            "run",
            "µs, 0 for no limit, or n/a for none at all",
            _each("power/pm_qos_resume_latency_us", Form.TEXT),
            _is_latency,
            needs="a CPU that is isolated",
        ),
    )
