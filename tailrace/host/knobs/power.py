"""Frequency and idle states of the isolated CPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tailrace.host.knobs.base import Context, Family, Knob, file_setting, is_number
from tailrace.host.setting import Form, Setting
from tailrace.resources.roles import Roles
from tailrace.resources.topology import CPUS

_MOST_MHZ = 10_000
UNCORE = f"{CPUS}/intel_uncore_frequency"


def _isolated(roles: Roles) -> Sequence[int]:
    return roles.isolated


def _system(roles: Roles) -> Sequence[int]:
    return roles.system


def _each(
    name: str, form: Form, of: Callable[[Roles], Sequence[int]] = _isolated, scale: int = 0
) -> Callable[[Context, Any], Iterable[Setting]]:
    """The same file of every CPU of a role; a number is multiplied by `scale`, unless that is 0."""

    def settings(context: Context, value: Any) -> list[Setting]:
        wanted = value * scale if scale else value
        return [
            setting
            for cpu in of(context.roles)
            for setting in file_setting(context, f"{CPUS}/cpu{cpu}/{name}", wanted, form)
        ]

    return settings


def _least_frequency(context: Context, value: Any) -> list[Setting]:
    if not value:
        return []
    if value is not True:
        return list(_each("cpufreq/scaling_min_freq", Form.NUMBER, scale=1000)(context, value))
    limit = context.knobs.get("frequency_limit", _MOST_MHZ) * 1000
    tree = context.machine.tree
    highest = {cpu: tree.number(f"{CPUS}/cpu{cpu}/cpufreq/cpuinfo_max_freq") for cpu in context.roles.isolated}
    return [
        setting
        for cpu, khz in highest.items()
        if khz is not None
        for setting in file_setting(context, f"{CPUS}/cpu{cpu}/cpufreq/scaling_min_freq", min(khz, limit), Form.NUMBER)
    ]


def _uncore(context: Context, value: Any) -> list[Setting]:
    """The lowest frequency of every die, set to its highest. Where dies have clusters, those are set one by one: what
    stands for the whole die there shows the lowest and the highest of all of them."""
    if not value:
        return []
    tree = context.machine.tree
    names = tree.names(UNCORE)
    clusters = [name for name in names if name.startswith("uncore")]
    highest = {name: tree.text(f"{UNCORE}/{name}/max_freq_khz") for name in clusters or names}
    return [
        setting
        for name, khz in highest.items()
        if khz is not None
        for setting in file_setting(context, f"{UNCORE}/{name}/min_freq_khz", khz, Form.NUMBER)
    ]


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and value.replace("_", "").replace("-", "").isalnum()


def _is_megahertz(value: Any) -> bool:
    return is_number(value) and 100 <= value <= _MOST_MHZ


def _is_latency(value: Any) -> bool:
    return value == "n/a" or (is_number(value) and value >= 0)


class Frequency(Family):
    name = "frequency"
    title = "Frequency"
    text = "A core that changes its frequency stops for about 10 µs, and then runs at another speed."
    knobs = (
        Knob(
            "governor",
            "what chooses the frequency of the isolated CPUs",
            "`performance` keeps the highest frequency",
            "power",
            "Linux, Documentation/admin-guide/pm/cpufreq.rst; TuneD latency-performance",
            "run",
            "a governor's name, such as performance",
            _each("cpufreq/scaling_governor", Form.TEXT),
            _is_word,
            needs="a frequency driver; virtual machines have none",
        ),
        Knob(
            "energy_preference",
            "the processor's own balance of speed and power (EPP)",
            "otherwise the processor lowers the frequency by itself",
            "power",
            "Linux, Documentation/admin-guide/pm/intel_pstate.rst and amd-pstate.rst; TuneD throughput-performance",
            "run",
            "performance, balance_performance, ...",
            _each("cpufreq/energy_performance_preference", Form.TEXT),
            _is_word,
            needs="intel_pstate or amd_pstate in active mode",
            kernels="any; on AMD from 6.3 on",
        ),
        Knob(
            "energy_bias",
            "the processor's own balance of speed and power (EPB)",
            "0 means performance",
            "power",
            "Linux, Documentation/admin-guide/pm/intel_epb.rst; TuneD latency-performance",
            "run",
            "0 to 15",
            _each("power/energy_perf_bias", Form.NUMBER),
            lambda value: is_number(value) and 0 <= value <= 15,
            needs="an Intel processor with EPB",
        ),
        Knob(
            "least_frequency",
            "keeps the isolated CPUs at their highest frequency",
            "some governors lower the frequency of idle CPUs",
            "power",
            "Linux, Documentation/admin-guide/pm/cpufreq.rst",
            "run",
            "true: the processor's highest, or frequency_limit if that is set; or a number of MHz up to that",
            _least_frequency,
            lambda value: isinstance(value, bool) or _is_megahertz(value),
            needs="a frequency driver; virtual machines have none",
        ),
        Knob(
            "frequency_limit",
            "the highest frequency of the isolated CPUs",
            "a frequency that all of them can keep at once does not vary with turbo",
            "speed of the isolated CPUs",
            "Linux, Documentation/admin-guide/pm/cpufreq.rst; OpenShift node tuning operator",
            "run",
            "MHz",
            _each("cpufreq/scaling_max_freq", Form.NUMBER, scale=1000),
            _is_megahertz,
            needs="a frequency driver; virtual machines have none",
        ),
        Knob(
            "system_frequency_limit",
            "the highest frequency of the system's CPUs",
            "the power that they save is there for the isolated CPUs' turbo",
            "speed of the system's CPUs",
            "Linux, Documentation/admin-guide/pm/cpufreq.rst; OpenShift node tuning operator",
            "run",
            "MHz",
            _each("cpufreq/scaling_max_freq", Form.NUMBER, _system, scale=1000),
            _is_megahertz,
            needs="a frequency driver; virtual machines have none",
        ),
        Knob(
            "uncore_frequency",
            "keeps caches and memory controllers (the uncore) at their highest frequency",
            "it follows the load, and every access to the shared cache and to memory waits for it",
            "power, and less turbo for the cores of the socket",
            "Linux, Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst",
            "run",
            "true or false",
            _uncore,
            needs="an Intel server and the module intel_uncore_frequency",
            kernels="from 5.6 on; dies with clusters from 6.5 on",
        ),
    )


class IdleStates(Family):
    name = "idle"
    title = "Idle states"
    text = (
        "The deeper a core sleeps, the later it wakes: from 1 µs to more than 200 µs. These knobs set files of each "
        "CPU, which stay as set. /dev/cpu_dma_latency limits all CPUs at once, but only while a process holds it open."
    )
    knobs = (
        Knob(
            "idle_latency",
            "the wake-up time in µs that the isolated CPUs may take",
            "`n/a` keeps an idle core awake; 0 means no limit",
            "power, and less turbo for the other cores",
            'Linux, Documentation/admin-guide/pm/cpuidle.rst, "Power Management Quality of Service for CPUs"',
            "run",
            "µs; 0: no limit; n/a: no wake-up time at all",
            _each("power/pm_qos_resume_latency_us", Form.TEXT),
            _is_latency,
            needs="a CPU that is isolated, and a kernel that shows its power/pm_qos_resume_latency_us",
        ),
        Knob(
            "system_idle_latency",
            "the wake-up time in µs that the system's CPUs may take",
            "threads there that a function waits for, such as vhost's or an interrupt's, wake sooner. Both knobs "
            "together equal an open /dev/cpu_dma_latency",
            "power: the machine hardly sleeps",
            'Linux, Documentation/admin-guide/pm/cpuidle.rst, "Power Management Quality of Service for CPUs"',
            "run",
            "µs; 0: no limit; n/a: no wake-up time at all",
            _each("power/pm_qos_resume_latency_us", Form.TEXT, _system),
            _is_latency,
            needs="a kernel that shows power/pm_qos_resume_latency_us of its CPUs",
        ),
    )
