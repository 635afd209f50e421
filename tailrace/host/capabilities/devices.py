"""Devices: the IOMMU between them and guests' memory, virtual functions, accelerators, where what they write lands."""

from __future__ import annotations

import re
from collections.abc import Callable

from tailrace.host.capabilities.base import Capability, Finding, find_flag, in_this_tree
from tailrace.host.machine import Machine
from tailrace.resources.topology import PCI

_UNITS, _TABLES = "/sys/class/iommu", "/sys/firmware/acpi/tables"


def _iommu(machine: Machine) -> Finding:
    units = machine.tree.names(_UNITS)
    table = next((name for name in ("DMAR", "IVRS", "IORT") if machine.tree.exists(f"{_TABLES}/{name}")), None)
    if not (units or table or in_this_tree(machine, _UNITS, _TABLES)):
        return Finding(None, None, f"{_UNITS} and {_TABLES} cannot be read here")
    evidence = f"{_UNITS}: {', '.join(units)}" if units else f"{_UNITS} is empty"
    return Finding(bool(units or table), bool(units), f"{evidence}; ACPI table {table or 'DMAR, IVRS, IORT: none'}")


def _interrupt_remapping(machine: Machine) -> Finding:
    tree = machine.tree
    chips = (f"{path}/chip_name" for path, _ in tree.find("/sys/kernel/irq", "*"))
    remapped = next((chip for chip in chips if (tree.text(chip) or "").startswith("IR-")), None)
    if remapped is not None:
        return Finding(True, True, f"{remapped}: {tree.text(remapped)}")
    for unit in tree.names("/sys/class/iommu"):
        path = f"/sys/class/iommu/{unit}/intel-iommu/ecap"
        value = tree.number_hex(path)
        if value is not None:
            return Finding(bool(value >> 3 & 1), False, f"{path}: {value:x}; no interrupt's chip is called IR-...")
        if tree.exists(f"/sys/class/iommu/{unit}/amd-iommu"):
            return Finding(True, False, f"{unit}: every AMD-Vi has it; no interrupt's chip is called IR-...")
    if not in_this_tree(machine, "/sys/kernel/irq") and re.search(r"\bIR-", tree.text("/proc/interrupts") or ""):
        return Finding(True, True, "/proc/interrupts: chips called IR-...")
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
        # VT-d: extended capability DT; AMD-Vi: IotlbSup of the capability header.
        for name, bit in (("intel-iommu/ecap", 2), ("amd-iommu/cap", 24)):
            value = machine.tree.number_hex(f"/sys/class/iommu/{unit}/{name}")
            if value is not None:
                there = bool(value >> bit & 1)
                return Finding(there, there, f"/sys/class/iommu/{unit}/{name}: {value:x}")
    return Finding(_iommu(machine).present and None, None, "no IOMMU tells of it")


def _sriov(machine: Machine) -> Finding:
    able = [nic for nic in machine.nics if nic.most_vfs]
    if able:
        shown = ", ".join(f"{nic.name} {nic.vfs} of {nic.most_vfs}" for nic in able)
        return Finding(True, any(nic.vfs for nic in able), f"virtual functions: {shown}")
    # Linux shows sriov_totalvfs of devices that have it, and config of every one: without that a copy has no more.
    whole = in_this_tree(machine, *(f"{PCI}/{nic.address}/config" for nic in machine.nics))
    if not whole and (machine.nics or not in_this_tree(machine, "/sys/class/net", PCI)):
        return Finding(None, None, f"what network cards are able to cannot be read here: no config in {PCI}")
    return Finding(False, False, "no network card shows sriov_totalvfs")


def _direct_cache(machine: Machine) -> Finding:
    flag = find_flag(machine, "dca")
    # From Sandy Bridge on, which brought AVX; the E3 are desktop processors by another name.
    xeon = machine.intel and "Xeon" in machine.model and "E3-" not in machine.model and "avx" in machine.flags
    if xeon and "hypervisor" not in machine.flags:
        return Finding(True, True, f"{machine.model}: Xeon processors place what devices write in the last-level cache")
    return Finding(flag.present or None, flag.enabled or None, flag.evidence)


def _accelerators(machine: Machine) -> Finding:
    if not machine.accelerators:
        if not in_this_tree(machine, PCI):
            return Finding(None, None, f"{PCI} cannot be read here")
        return Finding(False, False, f"no known device in {PCI}")
    return Finding(True, True, ", ".join(f"{each.address} {each.name}" for each in machine.accelerators))


def _aes(machine: Machine) -> Finding:
    return find_flag(machine, "aes", "vaes")


CAPABILITIES = (
    Capability(
        "iommu",
        "IOMMU (VT-d, AMD-Vi, SMMU)",
        "a device given to a guest reaches that guest's memory only",
        "firmware setting; intel_iommu=on iommu=pt or amd_iommu=on iommu=pt",
        _iommu,
    ),
    Capability(
        "interrupt-remapping",
        "Interrupt remapping",
        "a device given to a guest cannot forge interrupts, and can post them",
        "firmware setting; on with the IOMMU",
        _interrupt_remapping,
    ),
    Capability(
        "iommu-2mib",
        "IOMMU pages of 2 MiB",
        "fewer translations for devices",
        "on with the IOMMU and huge pages",
        _iommu_pages(34, "2 MiB"),
    ),
    Capability(
        "iommu-1gib",
        "IOMMU pages of 1 GiB",
        "fewer translations for devices",
        "on with the IOMMU and huge pages",
        _iommu_pages(35, "1 GiB"),
    ),
    Capability(
        "device-tlb",
        "Device TLB (ATS)",
        "a device keeps translations itself",
        "on with the IOMMU where the device has it",
        _device_tlb,
    ),
    Capability(
        "sr-iov",
        "SR-IOV",
        "a network card gives every guest a device of its own",
        "echo N > /sys/class/net/NIC/device/sriov_numvfs",
        _sriov,
    ),
    Capability(
        "direct-cache",
        "Direct cache access (DDIO)",
        "what a device writes lies in the cache when it is read",
        "firmware setting",
        _direct_cache,
    ),
    Capability(
        "accelerators",
        "Crypto and compression devices",
        "frees cores from cryptography",
        "bind to a driver: vfio-pci for DPDK",
        _accelerators,
    ),
    Capability("aes", "AES instructions", "cryptography in a few cycles a byte", "firmware setting", _aes),
)
