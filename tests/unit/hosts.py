"""Whole machines for tests. Real ones, which somebody copied: COPIES, whose sources are in data/hosts/README.md, and
`this`, a small virtual machine. And composed ones, for what no public copy has: kernel threads, interrupts' chips,
IOMMUs, KVM's parameters, cache allocation, the uncore, boot loaders. Their files, names and values are those that
Linux's Documentation/ABI and Documentation/admin-guide give for such machines.

`python tests/unit/hosts.py NAME FOLDER` makes one, to be looked at with `tailrace host inspect --root FOLDER`.
`python tests/unit/hosts.py pack ROOT FILE.json.xz` makes a new copy of the machine whose files are in ROOT, or of this
one (/): what inspecting and planning read of it (`tailrace host inspect --copy`), packed.
"""

from __future__ import annotations

import gzip
import json
import lzma
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from machines import AMD_FLAGS, INTEL_FLAGS, VMX_FLAGS, add_nic, link, machine, make

from tailrace.host.copy import copy_machine
from tailrace.kernel.tree import Tree

DATA = Path(__file__).parent / "data"
COPIES = (
    "intel-sr-iov",
    "intel-real-time",
    "intel-hybrid",
    "intel-offline",
    "amd-opteron",
    "amd-ryzen",
    "arm-kunpeng",
    "arm-two-kinds",
)
"""Real machines: data/hosts/NAME.json.xz."""
CPU = "/sys/devices/system/cpu"
THREADS = ("rcu_preempt", "kcompactd0", "kswapd0", "khugepaged", "ksmd", "kauditd")


def unpack(path: Path, folder: Path) -> None:
    """A copy that was packed as JSON: texts by path, links by path, and empty folders."""
    content = path.read_bytes()
    packed = json.loads(lzma.decompress(content) if path.suffix == ".xz" else content)
    for name in packed["folders"]:
        (folder / name).mkdir(parents=True, exist_ok=True)
    make(folder, packed["texts"])
    for name, target in packed["links"].items():
        link(folder, name, target)
    for name, text in packed.get("gzipped", {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(gzip.compress(text.encode(), mtime=0))
    for name, text in packed.get("raw", {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes.fromhex(text))


def pack(folder: Path) -> str:
    """A copied machine as JSON."""
    found: dict[str, dict[str, str] | list[str]] = {"texts": {}, "links": {}, "folders": []}
    texts: dict[str, str] = {}
    gzipped: dict[str, str] = {}
    raw: dict[str, str] = {}
    links: dict[str, str] = {}
    folders: list[str] = []
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            links[name] = str(path.readlink())
        elif path.is_dir():
            folders += [] if any(path.iterdir()) else [name]
        elif path.suffix == ".gz":
            gzipped[name] = gzip.decompress(path.read_bytes()).decode()
        elif path.name == "config" and "devices" in path.parts:
            raw[name] = path.read_bytes().hex()
        else:
            texts[name] = path.read_text().removesuffix("\n")
    found = {"texts": texts, "links": links, "folders": folders} | ({"gzipped": gzipped} if gzipped else {})
    found |= {"raw": raw} if raw else {}
    return json.dumps(found, indent=0, sort_keys=True) + "\n"


def store(root: Path, path: Path) -> None:
    """Packs the machine whose files are in `root` into a new file; the same files give the same one."""
    with tempfile.TemporaryDirectory() as folder:
        copy_machine(Path(folder) / "copy", Tree(root))
        path.write_bytes(lzma.compress(pack(Path(folder) / "copy").encode(), preset=9))


def this(folder: Path) -> None:
    unpack(DATA / "small-virtual-machine.json", folder)


def intel(folder: Path) -> None:
    """Two sockets of 24 cores with two threads, two SR-IOV cards, VT-d with interrupt remapping, QuickAssist, CAT.

    No copy has VT-d, KVM's parameters, QuickAssist, mounted cache allocation or the uncore.
    """
    cpuinfo = (
        f"processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Gold 6342 CPU @ 2.80GHz\n"
        f"flags\t\t: {INTEL_FLAGS} arch_perfmon tsc_deadline_timer\nvmx flags\t: {VMX_FLAGS}\n"
    )
    machine(folder, nodes=2, cores=24, threads=2, interrupts=64, cpuinfo=cpuinfo)
    add_nic(folder, "ens1f0", "0000:31:00.0", 0, vfs=128)
    add_nic(folder, "ens2f0", "0000:b1:00.0", 1, vfs=128)
    for unit in range(2):
        # Capability bits of VT-d: 34 and 35 pages of 2 MiB and 1 GiB; extended: 2 device TLB, 3 interrupt remapping.
        at = f"/sys/devices/virtual/iommu/dmar{unit}"
        make(folder, {f"{at}/intel-iommu/cap": "8d2078c106f0466", f"{at}/intel-iommu/ecap": "f020df"})
        link(folder, f"/sys/class/iommu/dmar{unit}", f"../../devices/virtual/iommu/dmar{unit}")
    files = {
        "/sys/kernel/irq/30/chip_name": "IR-PCI-MSI",
        "/sys/module/kvm_intel/parameters/ept": "Y",
        "/sys/module/kvm_intel/parameters/eptad": "Y",
        "/sys/module/kvm_intel/parameters/vpid": "Y",
        "/sys/module/kvm_intel/parameters/enable_apicv": "Y",
        "/sys/module/kvm_intel/parameters/preemption_timer": "Y",
        "/sys/module/kvm_intel/parameters/ple_gap": "128",
        "/sys/module/kvm/parameters/halt_poll_ns": "200000",
        "/sys/module/kvm/parameters/lapic_timer_advance_ns": "-1",
        "/dev/kvm": "",
        "/sys/firmware/acpi/tables/DMAR": "",
        "/sys/bus/pci/devices/0000:6b:00.0/vendor": "0x8086",
        "/sys/bus/pci/devices/0000:6b:00.0/device": "0x37c8",
        "/sys/bus/pci/devices/0000:6b:00.0/numa_node": "0",
        "/sys/fs/resctrl/info/L3/cbm_mask": "fff",
        "/sys/fs/resctrl/info/L3/min_cbm_bits": "1",
        "/sys/fs/resctrl/info/L3/shareable_bits": "c00",
        "/sys/fs/resctrl/info/L3/bit_usage": "0=XXSSSSSSSSSS;1=XXSSSSSSSSSS",
        "/sys/fs/resctrl/mode": "shareable",
        "/sys/fs/resctrl/schemata": "    MB:0=100;1=100\n    L3:0=fff;1=fff",
        f"{CPU}/smt/control": "on",
        f"{CPU}/smt/active": "1",
        f"{CPU}/cpuidle/current_driver": "intel_idle",
    }
    for cpu in range(96):
        files[f"{CPU}/cpu{cpu}/cpufreq/energy_performance_preference"] = "balance_performance"
        files[f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq"] = "3500000"
        files[f"{CPU}/cpu{cpu}/cpufreq/scaling_min_freq"] = "800000"
        files[f"{CPU}/cpu{cpu}/cpufreq/scaling_max_freq"] = "3500000"
        files[f"{CPU}/cpu{cpu}/power/energy_perf_bias"] = "6"
    for package in range(2):
        uncore = f"{CPU}/intel_uncore_frequency/package_0{package}_die_00"
        files |= {f"{uncore}/min_freq_khz": "800000", f"{uncore}/max_freq_khz": "2400000"}
    make(folder, {**files, **_common(96)})


def amd(folder: Path) -> None:
    """One socket of 32 cores with two threads as two nodes, an L3 for every four cores, AMD-Vi, AVIC off.

    No copy has AMD-Vi, KVM's parameters or an EPYC.
    """
    cpuinfo = (
        "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 7543P 32-Core Processor\n"
        f"flags\t\t: {AMD_FLAGS}\n"
    )
    machine(folder, nodes=2, cores=16, threads=2, interrupts=40, cpuinfo=cpuinfo)
    add_nic(folder, "enp65s0f0np0", "0000:41:00.0", 1, vfs=16)
    at = "/sys/devices/virtual/iommu/ivhd0"
    make(folder, {f"{at}/amd-iommu/features": "246577efa2254afa", f"{at}/amd-iommu/cap": "190b640f"})
    link(folder, "/sys/class/iommu/ivhd0", "../../devices/virtual/iommu/ivhd0")
    files = {
        "/sys/kernel/irq/30/chip_name": "IR-PCI-MSIX",
        "/sys/module/kvm_amd/parameters/npt": "Y",
        "/sys/module/kvm_amd/parameters/avic": "N",
        "/sys/module/kvm/parameters/halt_poll_ns": "200000",
        "/dev/kvm": "",
        "/sys/firmware/acpi/tables/IVRS": "",
        "/sys/bus/pci/devices/0000:22:00.1/vendor": "0x1022",
        "/sys/bus/pci/devices/0000:22:00.1/device": "0x1486",
        f"{CPU}/smt/control": "on",
        f"{CPU}/smt/active": "1",
        f"{CPU}/cpuidle/current_driver": "acpi_idle",
    }
    for cpu in range(64):
        core = cpu % 32
        cache = f"{CPU}/cpu{cpu}/cache/index3"
        first = core // 4 * 4
        files |= {f"{cache}/level": "3", f"{cache}/type": "Unified", f"{cache}/size": "32768K"}
        files[f"{cache}/shared_cpu_list"] = f"{first}-{first + 3},{first + 32}-{first + 35}"
        files[f"{CPU}/cpu{cpu}/cpufreq/scaling_driver"] = "acpi-cpufreq"
        files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = "0"
    make(folder, {**files, **_common(64)})


def arm(folder: Path) -> None:
    """One socket of 64 cores of one thread, an SMMU, no x86 anything; booted by systemd-boot.

    No copy has an SMMU, KVM on Arm, interrupts of an Arm server or a boot loader.
    """
    cpuinfo = (
        "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp\n"
        "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n"
    )
    machine(folder, nodes=1, cores=64, threads=1, interrupts=40, cpuinfo=cpuinfo)
    add_nic(folder, "enP2p1s0f0", "0002:01:00.0", 0, vfs=32)
    make(folder, {"/sys/devices/platform/arm-smmu-v3.0/iommu/smmu3.0/name": "smmu3.0"})
    link(folder, "/sys/class/iommu/smmu3.0", "../../devices/platform/arm-smmu-v3.0/iommu/smmu3.0")
    (folder / "etc/default/grub").unlink()
    files = {
        "/etc/kernel/install.d/README": "",
        "/etc/kernel/cmdline": "root=/dev/sda1",
        "/boot/efi/loader/entries/machine-6.1.0.conf": "options root=/dev/sda1",
        "/lib/modules/6.1.0/vmlinuz": "",
        "/sys/firmware/acpi/tables/IORT": "",
        "/dev/kvm": "",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource": "arch_sys_counter",
        "/sys/devices/system/clocksource/clocksource0/available_clocksource": "arch_sys_counter",
        f"{CPU}/cpuidle/current_driver": "acpi_idle",
    }
    for cpu in range(64):
        files[f"{CPU}/cpu{cpu}/cpufreq/scaling_driver"] = "cppc_cpufreq"
    make(folder, {**files, **_common(64)})


def large(folder: Path) -> None:
    """256 CPUs on two nodes, with as many kernel threads and interrupts as such machines have."""
    machine(folder, nodes=2, cores=64, threads=2, interrupts=512)
    add_nic(folder, "ens1f0", "0000:31:00.0", 0, vfs=128)
    files = _common(256)
    for cpu in range(256):
        files[f"{CPU}/cpu{cpu}/cpufreq/energy_performance_preference"] = "balance_performance"
        files[f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq"] = "3500000"
        files[f"{CPU}/cpu{cpu}/cpufreq/scaling_min_freq"] = "800000"
        files[f"{CPU}/cpu{cpu}/power/energy_perf_bias"] = "6"
    for queue in range(64):
        files[f"/sys/class/net/ens1f0/queues/rx-{queue}/rps_cpus"] = "0"
    for pid in range(100, 3100):
        files |= _thread(pid, f"kworker/{pid % 256}:1", "0-255")
    make(folder, files)


def _common(cpus: int) -> dict[str, str]:
    """Kernel threads and a cgroup hierarchy of version 2."""
    files = {
        "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids",
        "/sys/fs/cgroup/cgroup.subtree_control": "cpu io memory pids",
    }
    for number, name in enumerate(THREADS):
        files |= _thread(20 + number, name, f"0-{cpus - 1}")
    return files


def _thread(pid: int, name: str, cpus: str) -> dict[str, str]:
    at = f"/proc/{pid}"
    return {f"{at}/comm": name, f"{at}/cmdline": "", f"{at}/status": f"Name:\t{name}\nCpus_allowed_list:\t{cpus}"}


HOSTS: Mapping[str, Callable[[Path], None]] = {
    "intel": intel,
    "amd": amd,
    "arm": arm,
    "this": this,
    "large": large,
    **{name: partial(unpack, DATA / f"hosts/{name}.json.xz") for name in COPIES},
}

if __name__ == "__main__":
    if sys.argv[1] == "pack":
        store(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        HOSTS[sys.argv[1]](Path(sys.argv[2]))
