"""Machines for tests: the files of /sys, /proc and /etc that tuning reads, made in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tailrace.kernel.cpus import show_list
from tailrace.kernel.tree import Tree

INTEL_FLAGS = "vmx ept ept_ad vpid tpr_shadow flexpriority constant_tsc nonstop_tsc aes pdpe1gb cat_l3 dca umip"
VMX_FLAGS = (
    "vnmi preemption_timer posted_intr invvpid ept_x_only ept_ad ept_1gb flexpriority apicv tsc_offset vtpr mtf vapic "
    "ept vpid unrestricted_guest vapic_reg vid ple shadow_vmcs pml ept_mode_based_exec tsc_scaling"
)
"""In a line of its own, "vmx flags"."""
AMD_FLAGS = "svm npt avic flushbyasid pausefilter constant_tsc nonstop_tsc aes vaes pdpe1gb cat_l3 umip"


def make(folder: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        file = folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")


def link(folder: Path, path: str, target: str) -> None:
    at = folder / path.lstrip("/")
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(target)


def machine(
    folder: Path,
    *,
    nodes: int = 1,
    cores: int = 4,
    threads: int = 1,
    vendor: str = "GenuineIntel",
    flags: str = INTEL_FLAGS,
    interrupts: int = 3,
    cpuinfo: str | None = None,
) -> Tree:
    """A machine with so many cores on each of its nodes; a core's second thread is numbered after all first ones."""
    count = nodes * cores * threads
    every = show_list(range(count))
    files = {
        "/proc/cpuinfo": cpuinfo
        or f"processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: Xeon of tests\nflags\t\t: {flags}\n"
        + (f"vmx flags\t: {VMX_FLAGS}\n" if "vmx" in flags.split() else ""),
        "/proc/cmdline": "BOOT_IMAGE=/vmlinuz quiet",
        "/proc/sys/kernel/osrelease": "6.1.0-rt",
        "/proc/sys/kernel/version": "#1 SMP PREEMPT_RT",
        "/proc/sys/kernel/random/boot_id": "first-boot",
        "/proc/sys/kernel/timer_migration": "1",
        "/proc/sys/kernel/nmi_watchdog": "1",
        "/proc/sys/kernel/watchdog_cpumask": every,
        "/proc/sys/kernel/hung_task_timeout_secs": "120",
        "/proc/sys/kernel/sched_rt_runtime_us": "950000",
        "/proc/sys/kernel/numa_balancing": "1",
        "/proc/sys/vm/stat_interval": "1",
        "/sys/devices/system/cpu/online": every,
        "/sys/devices/system/cpu/isolated": "",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "/sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never",
        "/sys/kernel/mm/ksm/run": "1",
        "/sys/devices/virtual/workqueue/cpumask": f"{(1 << count) - 1:x}",
        "/proc/irq/default_smp_affinity": f"{(1 << count) - 1:x}",
        "/etc/default/grub": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"',
        "/boot/grub/grub.cfg": "linux /vmlinuz quiet",
    }
    for number in range(interrupts):
        files[f"/proc/irq/{30 + number}/smp_affinity_list"] = every
    for cpu in range(count):
        at = f"/sys/devices/system/cpu/cpu{cpu}"
        core = cpu % (nodes * cores)
        siblings = show_list(core + nodes * cores * thread for thread in range(threads))
        files[f"{at}/topology/thread_siblings_list"] = siblings
        files[f"{at}/topology/physical_package_id"] = str(core // cores)
        files[f"{at}/cpufreq/scaling_governor"] = "powersave"
        files[f"{at}/cpufreq/scaling_driver"] = "intel_cpufreq"
        files[f"{at}/power/pm_qos_resume_latency_us"] = "0"
        for index, (level, kind, size, shared) in enumerate(
            ((1, "Data", "48K", siblings), (2, "Unified", "2048K", siblings))
        ):
            cache = f"{at}/cache/index{index}"
            files |= {f"{cache}/level": str(level), f"{cache}/type": kind, f"{cache}/size": size}
            files[f"{cache}/shared_cpu_list"] = shared
    for node in range(nodes):
        at = f"/sys/devices/system/node/node{node}"
        own = [cpu for cpu in range(count) if cpu % (nodes * cores) // cores == node]
        files[f"{at}/cpulist"] = show_list(own)
        files[f"{at}/meminfo"] = f"Node {node} MemTotal:       67108864 kB"
        files[f"{at}/distance"] = " ".join("10" if other == node else "21" for other in range(nodes))
        for size in (2048, 1048576):
            files[f"{at}/hugepages/hugepages-{size}kB/nr_hugepages"] = "0"
            files[f"{at}/hugepages/hugepages-{size}kB/free_hugepages"] = "0"
    make(folder, files)
    return Tree(folder)


def add_nic(folder: Path, name: str, address: str, node: int, *, vfs: int = 64) -> None:
    """A network card's port on a node."""
    device = f"/sys/devices/pci0000:00/{address}"
    make(
        folder,
        {
            f"{device}/numa_node": str(node),
            f"{device}/sriov_totalvfs": str(vfs),
            f"{device}/sriov_numvfs": "0",
            f"/sys/class/net/{name}/speed": "25000",
            f"/sys/class/net/{name}/queues/rx-0/rps_cpus": "0",
        },
    )
    link(folder, f"/sys/class/net/{name}/device", f"../../../devices/pci0000:00/{address}")
    link(folder, f"{device}/driver", "../../../bus/pci/drivers/ice")
