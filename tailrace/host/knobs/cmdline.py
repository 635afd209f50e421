"""The kernel command line: what can only be decided at boot."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tailrace.host.boot import argument_setting
from tailrace.host.command_line import GIB
from tailrace.host.knobs.base import (
    Context,
    Family,
    Knob,
    Value,
    huge_pages_by_node,
    is_number,
    is_number_by_node,
    one_of,
)
from tailrace.host.setting import Setting
from tailrace.kernel.cpus import show_groups, show_list

PARAMETERS = "Linux, Documentation/admin-guide/kernel-parameters.txt"
OPENSHIFT = "OpenShift node tuning operator"
TUNED_KVM = "TuneD cpu-partitioning and realtime-virtual-host"


def _fixed(*arguments: tuple[str, str]) -> Callable[[Context, Value], list[Setting]]:
    """Arguments that do not depend on the machine, for a value that is true."""
    return lambda _, value: [argument_setting(*argument) for argument in arguments] if value else []


def _list(context: Context, cpus: Iterable[int]) -> str:
    """A list of CPUs, short where the kernel takes groups: it reads some 2,000 letters in all (boot.py)."""
    return show_groups(cpus) if context.machine.kernel.since(4, 11) else show_list(cpus)


def _isolated(context: Context, value: Value) -> str:
    """The list of the CPUs that are kept free; empty where there is none."""
    return _list(context, context.roles.isolated) if value else ""


def _isolcpus(context: Context, value: Value) -> list[Setting]:
    """With the flags that the kernel knows: before 5.8 it takes nothing of an argument with another one."""
    kernel, cpus = context.machine.kernel, _isolated(context, value)
    flags = "domain,managed_irq," if kernel.since(5, 6) else "domain," if kernel.since(4, 15) else ""
    return [argument_setting("isolcpus", flags + cpus)] if cpus else []


def _rcu_nocbs(context: Context, value: Value) -> list[Setting]:
    cpus = _isolated(context, value)
    return [argument_setting("rcu_nocbs", cpus)] if cpus else []


def _irqaffinity(context: Context, value: Value) -> list[Setting]:
    return [argument_setting("irqaffinity", _list(context, context.roles.system))] if value else []


def _nohz_full(context: Context, value: Value) -> list[Setting]:
    cpus = _isolated(context, value)
    if not cpus or context.machine.kernel.built("NO_HZ_FULL") is False:
        return []
    return [argument_setting("nohz", "on"), argument_setting("nohz_full", cpus)]


def _huge_pages(context: Context, value: Any) -> list[Setting]:
    machine = context.machine
    if not value or not ("pdpe1gb" in machine.flags or machine.pools(1 << 20)):
        return []
    wanted = huge_pages_by_node(context, "huge_pages_1gib", value, 1024)
    if len(context.machine.nodes) > 1 and context.machine.kernel.since(5, 16):
        count = ",".join(f"{node}:{pages}" for node, pages in wanted.items())
    else:
        count = str(sum(wanted.values()))
    pairs = (("default_hugepagesz", GIB), ("hugepagesz", GIB), ("hugepages", count))
    return [argument_setting(*pair) for pair in pairs]


def _iommu(context: Context, value: Value) -> list[Setting]:
    if not value or context.machine.architecture != "x86_64":
        return []
    vendor = [argument_setting("intel_iommu", "on")] if context.machine.intel else []
    return [*vendor, argument_setting("iommu", "pt")]


def _c_states(context: Context, value: Value) -> list[Setting]:
    if not value or context.machine.architecture != "x86_64":
        return []
    intel = [argument_setting("intel_idle.max_cstate", "0")] if context.machine.intel else []
    return [argument_setting("processor.max_cstate", "1"), *intel]


#: From which kernel on amd_pstate= takes a mode; one that it does not know it passes over without a word.
AMD_MODES = {"passive": (6, 1), "disable": (6, 1), "active": (6, 3), "guided": (6, 4)}


def _p_state(context: Context, value: Any) -> list[Setting]:
    machine = context.machine
    if machine.intel and value != "guided":
        return [argument_setting("intel_pstate", str(value))]
    if machine.amd and value in AMD_MODES and machine.kernel.since(*AMD_MODES[value]):
        return [argument_setting("amd_pstate", str(value))]
    return []


def _tsc(context: Context, value: Any) -> list[Setting]:
    if not value or context.machine.architecture != "x86_64":
        return []
    if value == "nowatchdog" and not context.machine.kernel.since(5, 2):
        return []
    return [argument_setting("tsc", "reliable" if value is True else str(value))]


def _x86(*arguments: tuple[str, str]) -> Callable[[Context, Value], list[Setting]]:
    def settings(context: Context, value: Value) -> list[Setting]:
        return _fixed(*arguments)(context, value) if context.machine.architecture == "x86_64" else []

    return settings


def _nx_huge_pages(context: Context, value: Value) -> list[Setting]:
    return [argument_setting("kvm.nx_huge_pages", "0")] if value and context.machine.intel else []


def _pause_exits(context: Context, value: Value) -> list[Setting]:
    machine = context.machine
    if value and machine.intel:
        return [argument_setting("kvm_intel.ple_gap", "0")]
    # Before 5.8 a count of 0 makes a guest exit at every pause.
    if value and machine.amd and "pausefilter" in machine.flags and machine.kernel.since(5, 8):
        return [argument_setting("kvm_amd.pause_filter_count", "0")]
    return []


def _avic(context: Context, value: Value) -> list[Setting]:
    machine = context.machine
    there = machine.amd and "avic" in machine.flags and machine.kernel.since(4, 7)
    return [argument_setting("kvm_amd.avic", "1")] if value and there else []


def _machine_check(context: Context, value: Value) -> list[Setting]:
    return [argument_setting("mce", str(value))] if context.machine.architecture == "x86_64" else []


class CommandLine(Family):
    name = "cmdline"
    title = "Kernel command line"
    text = (
        "Arguments that the boot loader gives the kernel; they take effect after a reboot. Tailrace adds one file to "
        "the boot loader's configuration and edits no other."
    )
    knobs = (
        Knob(
            "isolcpus",
            "keeps load balancing and managed interrupts off the isolated CPUs",
            "a function has its CPU to itself",
            "nothing else can use the isolated CPUs",
            f"{PARAMETERS}; TuneD realtime; {OPENSHIFT}",
            "boot",
            "true or false",
            _isolcpus,
            needs="a CPU that is isolated",
            kernels="any; with managed_irq from 5.6 on, with domain from 4.15 on. A kernel ignores the whole "
            "argument if it does not know a flag",
        ),
        Knob(
            "nohz_full",
            "stops the timer tick on isolated CPUs that run one thread",
            "a tick interrupts a polling thread up to a thousand times a second",
            "slower system calls on these CPUs",
            f"{PARAMETERS}; TuneD cpu-partitioning and realtime-virtual-host; published as optimized-2",
            "boot",
            "true or false",
            _nohz_full,
            needs="a kernel with CONFIG_NO_HZ_FULL, and a CPU that is isolated",
        ),
        Knob(
            "rcu_nocbs",
            "runs RCU callbacks of isolated CPUs in threads, which can run on other CPUs",
            "otherwise callbacks run in softirqs on the CPU itself",
            "a little more work for the system's CPUs",
            f"{PARAMETERS}; TuneD cpu-partitioning and realtime-virtual-host; published as optimized-2",
            "boot",
            "true or false",
            _rcu_nocbs,
            needs="a CPU that is isolated",
        ),
        Knob(
            "irqaffinity",
            "sends interrupts to the system's CPUs from boot on",
            "an interrupt costs a polling thread 1 to 10 µs",
            "nothing",
            f"{PARAMETERS}; TuneD realtime-virtual-host",
            "boot",
            "true or false",
            _irqaffinity,
        ),
        Knob(
            "rcu_priority",
            "the real-time priority of RCU's threads",
            "memory runs out if real-time threads that never sleep keep RCU from running",
            "nothing",
            f"{PARAMETERS}; {OPENSHIFT} (11)",
            "boot",
            "a priority, 1 to 98",
            lambda _, value: [argument_setting("rcutree.kthread_prio", str(value))],
            lambda value: is_number(value) and 1 <= value <= 98,
        ),
        Knob(
            "skew_tick",
            "makes the CPUs tick one after another",
            "CPUs that tick together contend for the same locks",
            "a little power",
            f"{PARAMETERS}; TuneD network-latency",
            "boot",
            "true or false",
            _fixed(("skew_tick", "1")),
        ),
        Knob(
            "tsc_reliable",
            "trusts the time-stamp counter, without a watchdog",
            "the watchdog interrupts every CPU in turn; it has caused spikes",
            "a broken counter goes unnoticed",
            f"{PARAMETERS}; TuneD network-latency; published as optimized-2",
            "boot",
            "true or false; nowatchdog: checked at boot only",
            _tsc,
            lambda value: isinstance(value, bool) or value == "nowatchdog",
            needs="an x86 processor",
            kernels="any; nowatchdog from 5.2 on",
        ),
        Knob(
            "rcu_normal_after_boot",
            "stops expedited RCU grace periods after boot",
            "an expedited one interrupts every CPU",
            "some changes of configuration take longer",
            f"{PARAMETERS}; TuneD network-latency",
            "boot",
            "true or false",
            _fixed(("rcupdate.rcu_normal_after_boot", "1")),
        ),
        Knob(
            "soft_lockup_off",
            "turns lockup detectors off from boot on",
            "each is a timer and a high-priority thread on every CPU",
            "a stuck CPU is not reported",
            f"{PARAMETERS}; TuneD cpu-partitioning (nosoftlockup); {OPENSHIFT} (nmi_watchdog=0)",
            "boot",
            "true or false",
            _fixed(("nosoftlockup", ""), ("nmi_watchdog", "0")),
        ),
        Knob(
            "machine_check",
            "how the kernel handles machine checks",
            "polling for corrected errors runs a timer on every CPU",
            "ignore_ce: corrected memory errors go unreported; off: all errors do",
            f"{PARAMETERS}; {OPENSHIFT} (mce=off); TuneD cpu-partitioning sets ignore_ce at run time",
            "boot",
            "ignore_ce or off",
            _machine_check,
            one_of("ignore_ce", "off"),
            needs="an x86 processor",
        ),
        Knob(
            "audit_off",
            "turns system call auditing off",
            "it slows every system call, and its queue can block",
            "no audit trail; check your policy",
            PARAMETERS,
            "boot",
            "true or false",
            _fixed(("audit", "0")),
        ),
        Knob(
            "pstate_driver",
            "the mode of the processor's frequency driver",
            "`passive`: the kernel's governor chooses the frequency; `disable`: acpi-cpufreq does",
            "nothing",
            f"{PARAMETERS}; TuneD realtime (disable); {OPENSHIFT} (active, passive, guided)",
            "boot",
            "active, passive or disable; on AMD also guided",
            _p_state,
            one_of("active", "passive", "disable", "guided"),
            needs="an Intel or AMD processor",
            kernels="any; on AMD passive and disable from 6.1 on, active from 6.3, guided from 6.4",
        ),
        Knob(
            "shallow_idle",
            "keeps every core out of deep idle states",
            "leaving a deep state takes 50 to 200 µs; in a published case one raised the maximum from 60 µs to 40 ms",
            "power: 1.5 to 2 times the idle watts of a server; less turbo",
            f"{PARAMETERS}; {OPENSHIFT}; seapath issue 57",
            "boot",
            "true or false",
            _c_states,
            needs="an x86 processor",
        ),
        Knob(
            "idle_poll",
            "keeps idle CPUs polling; they never sleep",
            "the fastest wake-up",
            "full power on every core; SMT siblings slow each other down",
            f"{PARAMETERS}; {OPENSHIFT}",
            "boot",
            "true or false",
            _x86(("idle", "poll")),
            needs="an x86 processor",
        ),
        Knob(
            "huge_pages_1gib",
            "reserves huge pages of 1 GiB at boot",
            "a guest's memory needs one translation for each GiB; after boot, memory is too fragmented",
            "nothing else can use the memory; 1 GiB becomes the default size for vm.nr_hugepages, hugepages= before a "
            "hugepagesz=, and hugetlbfs without pagesize=",
            f"{PARAMETERS}; {OPENSHIFT}",
            "boot",
            "a number, for the node of the switch and the functions; or numbers by node: {0: 4, 1: 1}. Before Linux "
            "5.16 the pages are spread over all nodes",
            _huge_pages,
            is_number_by_node,
            needs="a processor with pages of 1 GiB (pdpe1gb)",
            mib=1024,
            kernels="any; by node from 5.16 on",
        ),
        Knob(
            "iommu",
            "turns the IOMMU on, for guests' devices only",
            "SR-IOV functions in guests need it; with pt the host's own devices have no translation",
            "nothing",
            f"{PARAMETERS}; {OPENSHIFT}",
            "boot",
            "true or false",
            _iommu,
            needs="an x86 processor",
        ),
        Knob(
            "kvm_clock",
            "stops KVM's periodic update of guests' clocks",
            "it interrupts every virtual CPU every 5 minutes",
            "a guest's clock may drift by a few parts per billion",
            f"Linux, arch/x86/kvm/x86.c, kvmclock_periodic_sync; {TUNED_KVM}",
            "boot",
            "true or false",
            _x86(("kvm.kvmclock_periodic_sync", "0")),
            needs="an x86 processor",
        ),
        Knob(
            "kvm_nx_huge_pages",
            "lets guests execute from huge pages on processors with the multihit bug",
            "the mitigation splits pages, and a kernel thread recovers them",
            "a guest can stop such a processor; for trusted guests only",
            f"Linux, Documentation/admin-guide/hw-vuln/multihit.rst; {TUNED_KVM}",
            "boot",
            "true or false",
            _nx_huge_pages,
            needs="an Intel processor; only some have the bug",
        ),
        Knob(
            "kvm_pause_exits",
            "stops the exits of a guest that spins",
            "nobody else waits for a CPU that a guest has to itself",
            "nothing if CPUs are pinned",
            f"Linux, arch/x86/kvm/vmx/vmx.c, ple_gap, and svm/svm.c, pause_filter_count; {TUNED_KVM} (ple_gap)",
            "boot",
            "true or false",
            _pause_exits,
            needs="an Intel processor, or an AMD processor with the pause filter",
            kernels="any; on AMD from 5.8 on",
        ),
        Knob(
            "kvm_avic",
            "lets interrupts reach a running guest without an exit on AMD (AVIC); Intel does so by default (APICv)",
            "an exit costs a guest 1 to 2 µs. No profile sets it: Linux before 6.17 may lose interrupts between "
            "virtual CPUs on processors up to Zen 2 (erratum 1235)",
            "nothing",
            "Linux, arch/x86/kvm/svm/avic.c",
            "boot",
            "true or false",
            _avic,
            needs="an AMD processor with AVIC",
            kernels="from 4.7 on; on by default from 6.18 on, on Zen 4 and later",
        ),
    )
