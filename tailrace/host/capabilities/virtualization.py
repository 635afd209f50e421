"""How guests run: what the processor spares them of exits, by KVM's own account."""

from __future__ import annotations

from tailrace.host.capabilities.base import Capability, Finding, find_flag, in_this_tree
from tailrace.host.machine import Machine


def _find_vmx(machine: Machine, *flags: str) -> Finding:
    """A feature of VMX: kernels before 5.6 list few of them."""
    flag = find_flag(machine, *flags)
    if flag.present or "vmx" not in machine.flags or "\nvmx flags" in (machine.tree.text("/proc/cpuinfo") or ""):
        return flag
    return Finding(None, None, f"{flag.evidence}, and no line of vmx flags, which Linux has from 5.6 on")


def _parameter(machine: Machine, flag: Finding, *parameters: str) -> Finding:
    """A feature with a module parameter that says whether KVM uses it."""
    for parameter in parameters:
        value = machine.tree.text(f"/sys/module/{parameter}")
        if value is not None:
            on = value in ("Y", "1")
            present = flag.present or on or None if flag.present is None else flag.present or on
            return Finding(present, on, f"/sys/module/{parameter}: {value}")
    loaded = "KVM is not loaded" if in_this_tree(machine, "/sys/module") else "/sys/module cannot be read here"
    evidence = f"{flag.evidence}; {loaded}" if flag.present else flag.evidence
    return Finding(flag.present, None if flag.present else flag.enabled, evidence)


def _virtualization(machine: Machine) -> Finding:
    device, words = _device(machine)
    if machine.architecture == "aarch64":  # the kernel lists no flag for it
        return Finding(device or None, device, words)
    flag = find_flag(machine, "vmx", "svm")
    return Finding(flag.present or device or flag.present, device, f"{flag.evidence}; {words}")


def _device(machine: Machine) -> tuple[bool | None, str]:
    """Whether KVM offers its device, and how we know."""
    if machine.tree.exists("/dev/kvm"):
        return True, "/dev/kvm is there"
    there = in_this_tree(machine, "/dev")
    return False if there else None, "/dev/kvm is not there" if there else "/dev cannot be read here"


def _part_of_kvm(machine: Machine, what: str) -> Finding:
    """What KVM on Arm does not work without."""
    there, words = _device(machine)
    return Finding(there or None, there, f"{words}; KVM on Arm needs {what}")


def _nested_paging(machine: Machine) -> Finding:
    if machine.architecture == "aarch64":
        return _part_of_kvm(machine, "translation in two stages")
    return _parameter(machine, find_flag(machine, "ept", "npt"), "kvm_intel/parameters/ept", "kvm_amd/parameters/npt")


def _accessed_dirty(machine: Machine) -> Finding:
    flag = _find_vmx(machine, "ept_ad", "npt")
    return _parameter(machine, flag, "kvm_intel/parameters/eptad", "kvm_amd/parameters/npt")


def _tagged_tlb(machine: Machine) -> Finding:
    if machine.architecture == "aarch64":
        return _part_of_kvm(machine, "VMIDs")
    return _parameter(machine, find_flag(machine, "vpid", "flushbyasid"), "kvm_intel/parameters/vpid")


def _posted_interrupts(machine: Machine) -> Finding:
    flag = _find_vmx(machine, "posted_intr", "avic", "apicv")
    return _parameter(machine, flag, "kvm_intel/parameters/enable_apicv", "kvm_amd/parameters/avic")


def _tpr_shadow(machine: Machine) -> Finding:
    return find_flag(machine, "tpr_shadow", "vtpr", "flexpriority", "avic")


def _preemption_timer(machine: Machine) -> Finding:
    flag = _find_vmx(machine, "preemption_timer") if machine.intel else Finding(False, False, "a feature of Intel's")
    return _parameter(machine, flag, "kvm_intel/parameters/preemption_timer")


def _pause_loop(machine: Machine) -> Finding:
    flag = _find_vmx(machine, "ple", "pausefilter")
    for parameter in ("kvm_intel/parameters/ple_gap", "kvm_amd/parameters/pause_filter_count"):
        value = machine.tree.text(f"/sys/module/{parameter}")
        if value is not None:
            return Finding(flag.present, value != "0", f"/sys/module/{parameter}: {value}")
    return flag


def _descriptor_exiting(machine: Machine) -> Finding:
    return _find_vmx(machine, "umip", "desc_exiting")


CAPABILITIES = (
    Capability(
        "virtualization",
        "Hardware virtualisation (VT-x, SVM)",
        "guests run on the CPU itself",
        "firmware setting; `modprobe kvm_intel` or `modprobe kvm_amd`",
        _virtualization,
    ),
    Capability(
        "nested-paging",
        "Nested page tables (EPT, NPT)",
        "a guest changes its page tables without an exit",
        "kvm_intel.ept=1, kvm_amd.npt=1 (both the default)",
        _nested_paging,
    ),
    Capability(
        "accessed-dirty",
        "Accessed and dirty bits in nested page tables",
        "what a guest wrote is found without write protection: cheap live migration",
        "kvm_intel.eptad=1 (the default)",
        _accessed_dirty,
    ),
    Capability(
        "tagged-tlb",
        "Tagged TLB (VPID, ASID)",
        "address translations survive an exit",
        "kvm_intel.vpid=1 (the default)",
        _tagged_tlb,
    ),
    Capability(
        "posted-interrupts",
        "Virtual APIC and posted interrupts (APICv, AVIC)",
        "an interrupt reaches a running guest without an exit",
        "kvm_intel.enable_apicv=1, kvm_amd.avic=1",
        _posted_interrupts,
    ),
    Capability(
        "tpr-shadow",
        "TPR shadow",
        "a guest changes its task priority without an exit",
        "always on where present",
        _tpr_shadow,
    ),
    Capability(
        "preemption-timer",
        "VMX preemption timer",
        "a guest's timer costs the host no timer of its own",
        "kvm_intel.preemption_timer=1 (the default)",
        _preemption_timer,
    ),
    Capability(
        "pause-loop-exiting",
        "Pause-loop exiting (PLE, pause filter)",
        "frees a CPU that a guest only spins on; on a CPU of one's own it only costs exits",
        "kvm_intel.ple_gap=128, kvm_amd.pause_filter_count=3000; 0 turns it off, which a pinned guest wants",
        _pause_loop,
    ),
    Capability(
        "descriptor-exiting",
        "Descriptor-table exiting (UMIP)",
        "a guest's user space cannot see or move descriptor tables",
        "always on where present",
        _descriptor_exiting,
    ),
)
