"""What the machine can do that a deterministic host needs: each with its reason, whether it is there, whether it is on,
how to turn it on, and how we know.

Sources: the Intel and AMD architecture manuals for the features, Linux's Documentation/arch/x86/cpuinfo.rst for where
the kernel shows them, and Documentation/admin-guide/kernel-parameters.txt for how to turn them on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tailrace.host.machine import CPUS, Machine


@dataclass(frozen=True)
class Finding:
    """What was found of a capability. None: this machine does not tell."""

    present: bool | None
    enabled: bool | None
    evidence: str
    """Where it was read, and what stood there."""


@dataclass(frozen=True)
class Capability:
    """Something the machine may be able to do."""

    name: str
    title: str
    why: str
    """What it is for, in one line."""
    how: str
    """How to enable it."""
    find: Callable[[Machine], Finding]


@dataclass(frozen=True)
class Found:
    """A capability and what was found of it."""

    capability: Capability
    finding: Finding


def find_capabilities(machine: Machine) -> list[Found]:
    """All capabilities in their order."""
    return [Found(capability, capability.find(machine)) for capability in CAPABILITIES]


def _flag(machine: Machine, *flags: str) -> Finding:
    """A CPU flag: shown by the kernel only where the CPU has it and nothing turned it off."""
    if not machine.flags:
        return Finding(None, None, "/proc/cpuinfo lists no flags")
    found = [flag for flag in flags if flag in machine.flags]
    words = f"/proc/cpuinfo: {', '.join(found)}" if found else f"/proc/cpuinfo: none of {', '.join(flags)}"
    return Finding(bool(found), bool(found), words)


def _parameter(machine: Machine, flag: Finding, *parameters: str) -> Finding:
    """A feature with a module parameter that says whether KVM uses it."""
    for parameter in parameters:
        value = machine.tree.text(f"/sys/module/{parameter}")
        if value is not None:
            on = value in ("Y", "1")
            present = flag.present or on or None if flag.present is None else flag.present or on
            return Finding(present, on, f"/sys/module/{parameter}: {value}")
    evidence = f"{flag.evidence}; KVM is not loaded" if flag.present else flag.evidence
    return Finding(flag.present, None if flag.present else flag.enabled, evidence)


def _virtualization(machine: Machine) -> Finding:
    flag = _flag(machine, "vmx", "svm")
    device = machine.tree.exists("/dev/kvm")
    present = flag.present or device or flag.present
    return Finding(present, device, f"{flag.evidence}; /dev/kvm is {'there' if device else 'not there'}")


def _nested_paging(machine: Machine) -> Finding:
    return _parameter(machine, _flag(machine, "ept", "npt"), "kvm_intel/parameters/ept", "kvm_amd/parameters/npt")


def _accessed_dirty(machine: Machine) -> Finding:
    flag = _flag(machine, "ept_ad", "npt")
    return _parameter(machine, flag, "kvm_intel/parameters/eptad", "kvm_amd/parameters/npt")


def _tagged_tlb(machine: Machine) -> Finding:
    return _parameter(machine, _flag(machine, "vpid", "flushbyasid"), "kvm_intel/parameters/vpid")


def _posted_interrupts(machine: Machine) -> Finding:
    flag = _flag(machine, "posted_intr", "avic", "apicv")
    return _parameter(machine, flag, "kvm_intel/parameters/enable_apicv", "kvm_amd/parameters/avic")


def _tpr_shadow(machine: Machine) -> Finding:
    return _flag(machine, "tpr_shadow", "flexpriority", "avic")


def _preemption_timer(machine: Machine) -> Finding:
    flag = _flag(machine, "preemption_timer") if machine.intel else Finding(False, False, "a feature of Intel's")
    return _parameter(machine, flag, "kvm_intel/parameters/preemption_timer")


def _pause_loop(machine: Machine) -> Finding:
    flag = _flag(machine, "ple", "pausefilter")
    gap = machine.tree.text("/sys/module/kvm_intel/parameters/ple_gap")
    if gap is not None:
        return Finding(flag.present, gap != "0", f"/sys/module/kvm_intel/parameters/ple_gap: {gap}")
    return flag


def _descriptor_exiting(machine: Machine) -> Finding:
    return _flag(machine, "umip", "desc_exiting")


def _iommu(machine: Machine) -> Finding:
    units = machine.tree.names("/sys/class/iommu")
    table = next(
        (name for name in ("DMAR", "IVRS", "IORT") if machine.tree.exists(f"/sys/firmware/acpi/tables/{name}")), None
    )
    present = bool(units or table)
    evidence = f"/sys/class/iommu: {', '.join(units)}" if units else "/sys/class/iommu is empty"
    return Finding(present, bool(units), f"{evidence}; ACPI table {table or 'DMAR, IVRS, IORT: none'}")


def _interrupt_remapping(machine: Machine) -> Finding:
    for path, name in (("/sys/class/iommu", "intel-iommu/ecap"), ("/sys/class/iommu", "amd-iommu/features")):
        for unit in machine.tree.names(path):
            value = machine.tree.number_hex(f"{path}/{unit}/{name}")
            if value is not None:
                bit = 3 if "ecap" in name else 6
                on = bool(value >> bit & 1)
                return Finding(on, on, f"{path}/{unit}/{name}: {value:x}")
    return Finding(_iommu(machine).present and None, None, "no IOMMU tells of it")


def _iommu_pages(bit: int, size: str) -> Callable[[Machine], Finding]:
    def find(machine: Machine) -> Finding:
        for unit in machine.tree.names("/sys/class/iommu"):
            value = machine.tree.number_hex(f"/sys/class/iommu/{unit}/intel-iommu/cap")
            if value is not None:
                there = bool(value >> bit & 1)
                return Finding(there, there, f"/sys/class/iommu/{unit}/intel-iommu/cap: {value:x}")
            if machine.tree.exists(f"/sys/class/iommu/{unit}/amd-iommu"):
                return Finding(True, True, f"/sys/class/iommu/{unit}: AMD's IOMMU maps pages of any power of two")
        return Finding(_iommu(machine).present and None, None, f"no IOMMU tells whether it maps pages of {size}")

    return find


def _device_tlb(machine: Machine) -> Finding:
    for unit in machine.tree.names("/sys/class/iommu"):
        value = machine.tree.number_hex(f"/sys/class/iommu/{unit}/intel-iommu/ecap")
        if value is not None:
            there = bool(value >> 2 & 1)
            return Finding(there, there, f"/sys/class/iommu/{unit}/intel-iommu/ecap: {value:x}")
    return Finding(_iommu(machine).present and None, None, "no IOMMU tells of it")


def _sriov(machine: Machine) -> Finding:
    able = [nic for nic in machine.nics if nic.most_vfs]
    if not able:
        return Finding(False, False, "no network card shows sriov_totalvfs")
    shown = ", ".join(f"{nic.name} {nic.vfs} of {nic.most_vfs}" for nic in able)
    return Finding(True, any(nic.vfs for nic in able), f"virtual functions: {shown}")


def _direct_cache(machine: Machine) -> Finding:
    flag = _flag(machine, "dca")
    if machine.intel and "Xeon" in machine.model:
        return Finding(True, True, f"{machine.model}: Xeon processors place what devices write in the last-level cache")
    return Finding(flag.present or None, flag.enabled or None, flag.evidence)


def _accelerators(machine: Machine) -> Finding:
    if not machine.accelerators:
        return Finding(False, False, "no known device in /sys/bus/pci/devices")
    return Finding(True, True, ", ".join(f"{each.address} {each.name}" for each in machine.accelerators))


def _aes(machine: Machine) -> Finding:
    return _flag(machine, "aes", "vaes")


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
    flag = _flag(machine, "cat_l3", "cat_l2")
    mounted = machine.tree.exists("/sys/fs/resctrl/schemata")
    return Finding(
        flag.present or mounted, mounted, f"{flag.evidence}; /sys/fs/resctrl is {'' if mounted else 'not '}mounted"
    )


def _one_gib(machine: Machine) -> Finding:
    flag = _flag(machine, "pdpe1gb")
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


def _capabilities() -> Iterator[Capability]:
    yield Capability(
        "virtualization",
        "Hardware virtualisation (VT-x, SVM)",
        "guests run on the CPU itself",
        "firmware setting; `modprobe kvm_intel` or `modprobe kvm_amd`",
        _virtualization,
    )
    yield Capability(
        "nested-paging",
        "Nested page tables (EPT, NPT)",
        "a guest changes its page tables without an exit",
        "kvm_intel.ept=1, kvm_amd.npt=1 (both the default)",
        _nested_paging,
    )
    yield Capability(
        "accessed-dirty",
        "Accessed and dirty bits in nested page tables",
        "what a guest wrote is found without write protection: cheap live migration",
        "kvm_intel.eptad=1 (the default)",
        _accessed_dirty,
    )
    yield Capability(
        "tagged-tlb",
        "Tagged TLB (VPID, ASID)",
        "address translations survive an exit",
        "kvm_intel.vpid=1 (the default)",
        _tagged_tlb,
    )
    yield Capability(
        "posted-interrupts",
        "Virtual APIC and posted interrupts (APICv, AVIC)",
        "an interrupt reaches a running guest without an exit",
        "kvm_intel.enable_apicv=1, kvm_amd.avic=1",
        _posted_interrupts,
    )
    yield Capability(
        "tpr-shadow",
        "TPR shadow",
        "a guest changes its task priority without an exit",
        "always on where present",
        _tpr_shadow,
    )
    yield Capability(
        "preemption-timer",
        "VMX preemption timer",
        "a guest's timer costs the host no timer of its own",
        "kvm_intel.preemption_timer=1 (the default)",
        _preemption_timer,
    )
    yield Capability(
        "pause-loop-exiting",
        "Pause-loop exiting",
        "frees a CPU that a guest only spins on; on a CPU of one's own it only costs exits",
        "kvm_intel.ple_gap=128; 0 turns it off, which a pinned guest wants",
        _pause_loop,
    )
    yield Capability(
        "descriptor-exiting",
        "Descriptor-table exiting (UMIP)",
        "a guest's user space cannot see or move descriptor tables",
        "always on where present",
        _descriptor_exiting,
    )
    yield Capability(
        "iommu",
        "IOMMU (VT-d, AMD-Vi, SMMU)",
        "a device given to a guest reaches that guest's memory only",
        "firmware setting; intel_iommu=on iommu=pt or amd_iommu=on iommu=pt",
        _iommu,
    )
    yield Capability(
        "interrupt-remapping",
        "Interrupt remapping",
        "a device given to a guest cannot forge interrupts, and can post them",
        "firmware setting; on with the IOMMU",
        _interrupt_remapping,
    )
    yield Capability(
        "iommu-2mib",
        "IOMMU pages of 2 MiB",
        "fewer translations for devices",
        "on with the IOMMU and huge pages",
        _iommu_pages(34, "2 MiB"),
    )
    yield Capability(
        "iommu-1gib",
        "IOMMU pages of 1 GiB",
        "fewer translations for devices",
        "on with the IOMMU and huge pages",
        _iommu_pages(35, "1 GiB"),
    )
    yield Capability(
        "device-tlb",
        "Device TLB (ATS)",
        "a device keeps translations itself",
        "on with the IOMMU where the device has it",
        _device_tlb,
    )
    yield Capability(
        "sr-iov",
        "SR-IOV",
        "a network card gives every guest a device of its own",
        "echo N > /sys/class/net/NIC/device/sriov_numvfs",
        _sriov,
    )
    yield Capability(
        "direct-cache",
        "Direct cache access (DDIO)",
        "what a device writes lies in the cache when it is read",
        "firmware setting",
        _direct_cache,
    )
    yield Capability(
        "accelerators",
        "Crypto and compression devices",
        "frees cores from cryptography",
        "bind to a driver: vfio-pci for DPDK",
        _accelerators,
    )
    yield Capability("aes", "AES instructions", "cryptography in a few cycles a byte", "firmware setting", _aes)
    yield Capability(
        "invariant-tsc",
        "Invariant time-stamp counter",
        "one clock for all cores, in every power state: what all latencies are measured with",
        "firmware; tsc=reliable keeps it",
        _invariant_tsc,
    )
    yield Capability(
        "smt",
        "Simultaneous multithreading",
        "two threads share a core: more throughput, and each delays the other",
        f"{CPUS}/smt/control, or take single siblings offline",
        _smt,
    )
    yield Capability(
        "cache-allocation",
        "Cache allocation (CAT)",
        "a neighbour cannot evict a function's cache lines",
        "mount -t resctrl resctrl /sys/fs/resctrl",
        _cache_allocation,
    )
    yield Capability(
        "huge-pages",
        "Huge pages",
        "fewer TLB misses, and memory that stays in place",
        "/sys/devices/system/node/nodeN/hugepages",
        _huge_pages,
    )
    yield Capability(
        "huge-pages-1gib",
        "Huge pages of 1 GiB",
        "one translation for a guest's memory",
        "hugepagesz=1G hugepages=N",
        _one_gib,
    )
    yield Capability(
        "realtime",
        "Real-time kernel",
        "the kernel itself can be preempted nearly everywhere",
        "install linux-image-rt-amd64 and boot it",
        _realtime,
    )
    yield Capability(
        "tickless",
        "Full tickless operation",
        "no timer tick on a core with one running thread",
        "nohz_full=CPUS",
        _tickless,
    )
    yield Capability(
        "isolation",
        "CPU isolation",
        "the scheduler leaves a core alone",
        "isolcpus=CPUS, or a cpuset partition",
        _isolation,
    )
    yield Capability(
        "frequency",
        "Frequency control",
        "a core that changes its frequency changes its latency",
        "governor performance",
        _frequency,
    )
    yield Capability(
        "idle",
        "Idle states",
        "a core that sleeps deeply wakes late",
        "pm_qos_resume_latency_us, /dev/cpu_dma_latency, processor.max_cstate=1",
        _idle,
    )


CAPABILITIES = tuple(_capabilities())
