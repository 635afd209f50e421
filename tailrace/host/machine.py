"""What this machine is made of, as tuning needs to know it: CPUs, nodes, caches, network cards, kernel, disturbers.

Everything is read through a `Tree`, so a copied /sys and /proc of another machine gives that machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tailrace.host.command_line import CommandLine, parse_line
from tailrace.kernel.cpus import cpus_of
from tailrace.kernel.tree import Tree
from tailrace.resources.topology import CPUS, PCI, Topology, read_topology

_COMM = 15
"""So many letters of a program's name the kernel keeps."""
#: Services that change what tuning sets, or run when they like: what each does.
DISTURBERS = {
    "irqbalance": "moves interrupts between CPUs",
    "tuned": "sets the same knobs by a profile of its own",
    "power-profiles-daemon": "changes governor and energy preference",
    "thermald": "limits frequencies",
    "ksmtuned": "turns page merging on and off",
    "numad": "moves memory and threads between nodes",
    "cpupower": "changes governors",
    "auto-cpufreq": "changes governors",
}
#: PCI vendor and device of crypto and compression accelerators that DPDK or the kernel drives.
ACCELERATORS = {
    ("0x8086", "0x0435"): "Intel QuickAssist DH895xCC",
    ("0x8086", "0x37c8"): "Intel QuickAssist C62x",
    ("0x8086", "0x19e2"): "Intel QuickAssist C3xxx",
    ("0x8086", "0x6f54"): "Intel QuickAssist D15xx",
    ("0x8086", "0x4940"): "Intel QuickAssist 4xxx",
    ("0x8086", "0x4942"): "Intel QuickAssist 401xx",
    ("0x8086", "0x4944"): "Intel QuickAssist 402xx",
    ("0x1022", "0x1456"): "AMD Cryptographic Coprocessor",
    ("0x1022", "0x1468"): "AMD Cryptographic Coprocessor",
    ("0x1022", "0x1486"): "AMD Cryptographic Coprocessor",
    ("0x1af4", "0x1054"): "virtio crypto",
    ("0x15b3", "0xa2d6"): "NVIDIA BlueField-2",
}
#: Implementer and part of Arm's server cores (Arm's technical reference manuals, MIDR_EL1): Linux gives only these.
ARM_CORES = {
    ("0x41", "0xd08"): "Arm Cortex-A72",
    ("0x41", "0xd0c"): "Arm Neoverse N1",
    ("0x41", "0xd40"): "Arm Neoverse V1",
    ("0x41", "0xd49"): "Arm Neoverse N2",
    ("0x41", "0xd4f"): "Arm Neoverse V2",
    ("0x41", "0xd84"): "Arm Neoverse V3",
    ("0x41", "0xd85"): "Arm Cortex-X925",
    ("0x41", "0xd87"): "Arm Cortex-A725",
    ("0x41", "0xd8e"): "Arm Neoverse N3",
    ("0x48", "0xd01"): "HiSilicon Kunpeng 920",
    ("0xc0", "0xac3"): "Ampere-1",
    ("0xc0", "0xac4"): "Ampere-1a",
}


@dataclass(frozen=True)
class Cache:
    """A cache, and which CPUs share it."""

    level: int
    kind: str
    """Data, Instruction or Unified."""
    kib: int
    cpus: tuple[int, ...]
    id: int | None = None
    """What resctrl calls it, among those of its level."""


@dataclass(frozen=True)
class Accelerator:
    """A device that does cryptography or compression."""

    address: str
    name: str
    node: int | None


@dataclass(frozen=True)
class Clock:
    """What the kernel tells the time with."""

    source: str
    sources: tuple[str, ...]
    """Those it could use."""
    tsc_khz: int | None
    """The time-stamp counter's rate, where the kernel tells."""


@dataclass(frozen=True)
class Power:
    """Who decides on frequency and idle states; empty or None where nobody does."""

    frequency: str | None
    governor: str | None
    idle: str | None
    states: tuple[str, ...]


@dataclass(frozen=True)
class Kernel:
    """The running kernel."""

    release: str
    version: str
    line: CommandLine
    """What it was given by the boot loader."""
    config: dict[str, str]
    """Its build options, CONFIG_... without the prefix; empty where it does not tell."""
    realtime: bool

    def built(self, option: str) -> bool | None:
        """Whether CONFIG_`option` is y or m; None if the kernel does not tell."""
        return self.config.get(option) in ("y", "m") if self.config else None

    def since(self, *version: int) -> bool:
        """Whether it is of this version or a later one; a copied machine that does not tell is taken for a late one."""
        found = re.match(r"(\d+)\.(\d+)", self.release)
        return found is None or tuple(map(int, found.groups())) >= version


@dataclass(frozen=True)
class Machine(Topology):
    """The whole machine."""

    architecture: str
    vendor: str
    model: str
    flags: frozenset[str]
    caches: tuple[Cache, ...]
    accelerators: tuple[Accelerator, ...]
    clock: Clock
    power: Power
    kernel: Kernel
    disturbers: tuple[str, ...]
    """Those of DISTURBERS that run."""
    tree: Tree = field(repr=False, compare=False)

    @property
    def parts(self) -> str:
        """How many it has of what, in words."""
        online = [cpu for cpu in self.cpus if cpu.online]  # the others have no topology
        sockets, cores = {cpu.package for cpu in online}, {(cpu.package, cpu.core) for cpu in online}
        counts = ((sockets, "socket"), (self.nodes, "node"), (cores, "core"), (self.online, "CPU"))
        words = (f"{len(those)} {name}{'' if len(those) == 1 else 's'}" for those, name in counts)
        return f"{', '.join(words)} online"

    @property
    def intel(self) -> bool:
        return self.vendor == "GenuineIntel"

    @property
    def amd(self) -> bool:
        return self.vendor in ("AuthenticAMD", "HygonGenuine")


def read_machine(tree: Tree) -> Machine:
    """The machine behind `tree`. What it does not tell is empty, never a failure."""
    processor, topology = _processor(tree), read_topology(tree)
    # One CPU stands for all where they are alike, and CPU 0 may be offline.
    first = f"{CPUS}/cpu{min((cpu.number for cpu in topology.cpus if cpu.online), default=0)}"
    return Machine(
        architecture=_architecture(processor),
        vendor=processor.get("vendor_id", processor.get("CPU implementer", "unknown")),
        model=_model(tree, processor),
        # Of those of Intel's VMX most have a line of their own, since Linux 5.6.
        flags=frozenset(
            word for line in ("flags", "vmx flags", "Features") for word in processor.get(line, "").split()
        ),
        cpus=topology.cpus,
        nodes=topology.nodes,
        caches=_caches(tree),
        nics=topology.nics,
        accelerators=_accelerators(tree),
        clock=_clock(tree, first),
        power=_power(tree, first),
        kernel=read_kernel(tree),
        disturbers=_disturbers(tree),
        tree=tree,
    )


def _processor(tree: Tree) -> dict[str, str]:
    first = (tree.text("/proc/cpuinfo") or "").split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _model(tree: Tree, processor: dict[str, str]) -> str:
    if "model name" in processor or "CPU part" not in processor:
        return processor.get("model name", "unknown")
    # Arm has several kinds of cores in one machine.
    text = tree.text("/proc/cpuinfo") or ""
    kinds = dict.fromkeys(re.findall(r"CPU implementer\s*: (\w+)(?:\n.+)*?\nCPU part\s*: (\w+)", text))
    return " and ".join(ARM_CORES.get(kind, f"Arm core {kind[1]} of implementer {kind[0]}") for kind in kinds)


def _architecture(processor: dict[str, str]) -> str:
    """From what /proc/cpuinfo looks like, because a copied one does not say more."""
    if {"vendor_id", "flags"} <= processor.keys():
        return "x86_64"
    return "aarch64" if processor.get("CPU architecture") == "8" else "unknown"


def _caches(tree: Tree) -> tuple[Cache, ...]:
    found: dict[Cache, None] = {}
    for path, _ in tree.find(CPUS, "cpu*"):
        for index, _ in tree.find(f"{path}/cache", "index*"):
            size = re.fullmatch(r"(\d+)K", tree.text(f"{index}/size") or "")
            level = tree.number(f"{index}/level")
            if size and level:
                kind = tree.text(f"{index}/type") or "Unified"
                cpus, id_ = cpus_of(tree.text(f"{index}/shared_cpu_list")), tree.number(f"{index}/id")
                found[Cache(level, kind, int(size[1]), cpus, id_)] = None
    return tuple(found)


def _accelerators(tree: Tree) -> tuple[Accelerator, ...]:
    found = []
    for address in tree.names(PCI):
        path = f"{PCI}/{address}"
        name = ACCELERATORS.get((tree.text(f"{path}/vendor") or "", tree.text(f"{path}/device") or ""))
        if name:
            node = tree.number(f"{path}/numa_node")
            found.append(Accelerator(address, name, node if node is not None and node >= 0 else None))
    return tuple(found)


def _clock(tree: Tree, first: str) -> Clock:
    path = "/sys/devices/system/clocksource/clocksource0"
    source, sources = (tree.text(f"{path}/{which}_clocksource") for which in ("current", "available"))
    khz = tree.number(f"{first}/tsc_freq_khz")
    return Clock(source or "unknown", tuple((sources or "").split()), khz)


def _power(tree: Tree, first: str) -> Power:
    driver, governor = (tree.text(f"{first}/cpufreq/scaling_{name}") for name in ("driver", "governor"))
    idle = tree.text(f"{CPUS}/cpuidle/current_driver")
    states = tuple(tree.text(f"{path}/name") or "?" for path, _ in tree.find(f"{first}/cpuidle", "state*"))
    return Power(driver, governor, None if idle == "none" else idle, states)


def read_kernel(tree: Tree) -> Kernel:
    """The kernel that runs."""
    whole = tree.text("/proc/version") or ""
    named = re.match(r"Linux version (\S+)", whole)
    release = tree.text("/proc/sys/kernel/osrelease") or (named[1] if named else "unknown")
    version = tree.text("/proc/sys/kernel/version") or whole
    lines = (tree.text(f"/boot/config-{release}") or tree.gzipped("/proc/config.gz") or "").splitlines()
    config = dict(line.removeprefix("CONFIG_").split("=", 1) for line in lines if line.startswith("CONFIG_"))
    realtime = tree.text("/sys/kernel/realtime") == "1" or re.search("PREEMPT[_ ]RT", version) is not None
    return Kernel(release, version, parse_line(tree.text("/proc/cmdline") or ""), config, realtime)


def _disturbers(tree: Tree) -> tuple[str, ...]:
    names = {tree.text(f"{path}/comm") for path, _ in tree.find("/proc", "*")}
    return tuple(name for name in DISTURBERS if name[:_COMM] in names)
