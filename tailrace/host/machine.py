"""What this machine is made of, as tuning needs to know it: CPUs, nodes, caches, network cards, kernel, disturbers.

Everything is read through a `Tree`, so a copied /sys and /proc of another machine gives that machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tailrace.host.cpus import parse_list
from tailrace.host.tree import Tree

CPUS = "/sys/devices/system/cpu"
NODES = "/sys/devices/system/node"
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


@dataclass(frozen=True)
class Cpu:
    """One logical CPU."""

    number: int
    online: bool
    node: int
    package: int
    siblings: tuple[int, ...]
    """The logical CPUs of its core, itself included."""

    @property
    def core(self) -> int:
        """The first logical CPU of its core, which names the core."""
        return self.siblings[0]


@dataclass(frozen=True)
class HugePool:
    """Huge pages of one size on one node."""

    kib: int
    total: int
    free: int


@dataclass(frozen=True)
class Node:
    """One NUMA node."""

    number: int
    cpus: tuple[int, ...]
    memory_mib: int
    distances: tuple[int, ...]
    huge: tuple[HugePool, ...]


@dataclass(frozen=True)
class Nic:
    """A physical network card's port."""

    name: str
    address: str
    """Of the PCI device."""
    driver: str
    node: int | None
    mbps: int | None
    queues: int
    vfs: int
    """Virtual functions now."""
    most_vfs: int
    virtual_function: bool


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
    arguments: tuple[str, ...]
    config: dict[str, str]
    """Its build options, CONFIG_... without the prefix; empty where it does not tell."""
    realtime: bool

    def built(self, option: str) -> bool | None:
        """Whether CONFIG_`option` is y or m; None if the kernel does not tell."""
        return self.config.get(option) in ("y", "m") if self.config else None

    def since(self, *version: int) -> bool:
        """Whether it is of this version or a later one."""
        found = re.match(r"(\d+)\.(\d+)", self.release)
        return found is not None and tuple(map(int, found.groups())) >= version


@dataclass(frozen=True)
class Machine:
    """The whole machine."""

    architecture: str
    vendor: str
    model: str
    flags: frozenset[str]
    cpus: tuple[Cpu, ...]
    nodes: tuple[Node, ...]
    caches: tuple[Cache, ...]
    nics: tuple[Nic, ...]
    accelerators: tuple[Accelerator, ...]
    clock: Clock
    power: Power
    kernel: Kernel
    disturbers: tuple[str, ...]
    """Those of DISTURBERS that run."""
    tree: Tree = field(repr=False, compare=False)

    @property
    def online(self) -> tuple[int, ...]:
        return tuple(cpu.number for cpu in self.cpus if cpu.online)

    def cpu(self, number: int) -> Cpu:
        return next(cpu for cpu in self.cpus if cpu.number == number)

    def with_cores(self, cores: Sequence[Sequence[int]]) -> Machine:
        """The machine as it is with all CPUs of these cores online. An offline one has no topology of its own and is
        in nobody else's, so it has that of a CPU of its core which is online."""
        cpus = {cpu.number: cpu for cpu in self.cpus}
        for core in cores:
            siblings = tuple(number for number in core if number in cpus)
            online = next((cpus[number] for number in siblings if cpus[number].online), None)
            if online is not None:
                cpus |= {number: replace(online, number=number, siblings=siblings) for number in siblings}
        return replace(self, cpus=tuple(cpus.values()))

    @property
    def parts(self) -> str:
        """How many it has of what, in words."""
        sockets, cores = {cpu.package for cpu in self.cpus}, {(cpu.package, cpu.core) for cpu in self.cpus}
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
    processor = _processor(tree)
    return Machine(
        architecture=_architecture(tree),
        vendor=processor.get("vendor_id", processor.get("CPU implementer", "unknown")),
        model=_model(processor),
        # Of those of Intel's VMX most have a line of their own, since Linux 5.6.
        flags=frozenset(
            word for line in ("flags", "vmx flags", "Features") for word in processor.get(line, "").split()
        ),
        cpus=_cpus(tree),
        nodes=_nodes(tree),
        caches=_caches(tree),
        nics=_nics(tree),
        accelerators=_accelerators(tree),
        clock=_clock(tree),
        power=_power(tree),
        kernel=_kernel(tree),
        disturbers=_disturbers(tree),
        tree=tree,
    )


def _processor(tree: Tree) -> dict[str, str]:
    first = (tree.text("/proc/cpuinfo") or "").split("\n\n", 1)[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _model(processor: dict[str, str]) -> str:
    part = processor.get("CPU part")
    if "model name" in processor or part is None:
        return processor.get("model name", "unknown")
    implementer = processor.get("CPU implementer", "")
    return ARM_CORES.get((implementer, part), f"Arm core {part} of implementer {implementer}")


def _architecture(tree: Tree) -> str:
    """From what /proc/cpuinfo looks like, because a copied one does not say more."""
    text = tree.text("/proc/cpuinfo") or ""
    if "vendor_id" in text:
        return "x86_64"
    return "aarch64" if "CPU implementer" in text else "unknown"


def _cpus(tree: Tree) -> tuple[Cpu, ...]:
    online = set(_list(tree, f"{CPUS}/online"))
    offline = set(_list(tree, f"{CPUS}/offline"))
    nodes = {cpu: node for path, node in tree.find(NODES, "node*") for cpu in _list(tree, f"{path}/cpulist")}
    found = []
    for path, number in tree.find(CPUS, "cpu*"):
        siblings = _list(tree, f"{path}/topology/thread_siblings_list") or (number,)
        package = tree.number(f"{path}/topology/physical_package_id")
        is_online = number in online if online else number not in offline
        found.append(Cpu(number, is_online, nodes.get(number, 0), max(package or 0, 0), siblings))
    return tuple(found)


def _list(tree: Tree, path: str) -> tuple[int, ...]:
    try:
        return parse_list(tree.text(path) or "")
    except ValueError:
        return ()


def _nodes(tree: Tree) -> tuple[Node, ...]:
    found = []
    for path, number in tree.find(NODES, "node*"):
        memory = re.search(r"MemTotal:\s+(\d+) kB", tree.text(f"{path}/meminfo") or "")
        huge = []
        for name in tree.names(f"{path}/hugepages"):
            pool = f"{path}/hugepages/{name}"
            size = re.fullmatch(r"hugepages-(\d+)kB", name)
            if size:
                total, free = (tree.number(f"{pool}/{key}_hugepages") or 0 for key in ("nr", "free"))
                huge.append(HugePool(int(size[1]), total, free))
        distances = tuple(int(part) for part in (tree.text(f"{path}/distance") or "").split())
        cpus = _list(tree, f"{path}/cpulist")
        found.append(Node(number, cpus, int(memory[1]) // 1024 if memory else 0, distances, tuple(huge)))
    return tuple(found)


def _caches(tree: Tree) -> tuple[Cache, ...]:
    found: dict[Cache, None] = {}
    for path, _ in tree.find(CPUS, "cpu*"):
        for index, _ in tree.find(f"{path}/cache", "index*"):
            size = re.fullmatch(r"(\d+)K", tree.text(f"{index}/size") or "")
            level = tree.number(f"{index}/level")
            if size and level:
                kind = tree.text(f"{index}/type") or "Unified"
                found[Cache(level, kind, int(size[1]), _list(tree, f"{index}/shared_cpu_list"))] = None
    return tuple(found)


def _nics(tree: Tree) -> tuple[Nic, ...]:
    found = []
    for name in tree.names("/sys/class/net"):
        path = f"/sys/class/net/{name}"
        address = tree.target(f"{path}/device")
        if address is None or not re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", address):
            continue
        node, speed = tree.number(f"{path}/device/numa_node"), tree.number(f"{path}/speed")
        found.append(
            Nic(
                name,
                address,
                tree.target(f"{path}/device/driver") or "unknown",
                node if node is not None and node >= 0 else None,
                speed if speed is not None and speed > 0 else None,
                len(list(tree.find(f"{path}/queues", "rx-*"))),
                tree.number(f"{path}/device/sriov_numvfs") or 0,
                tree.number(f"{path}/device/sriov_totalvfs") or 0,
                tree.exists(f"{path}/device/physfn"),
            )
        )
    return tuple(found)


def _accelerators(tree: Tree) -> tuple[Accelerator, ...]:
    found = []
    for address in tree.names("/sys/bus/pci/devices"):
        path = f"/sys/bus/pci/devices/{address}"
        name = ACCELERATORS.get((tree.text(f"{path}/vendor") or "", tree.text(f"{path}/device") or ""))
        if name:
            node = tree.number(f"{path}/numa_node")
            found.append(Accelerator(address, name, node if node is not None and node >= 0 else None))
    return tuple(found)


def _clock(tree: Tree) -> Clock:
    path = "/sys/devices/system/clocksource/clocksource0"
    source, sources = (tree.text(f"{path}/{which}_clocksource") for which in ("current", "available"))
    khz = tree.number(f"{CPUS}/cpu0/tsc_freq_khz")
    return Clock(source or "unknown", tuple((sources or "").split()), khz)


def _power(tree: Tree) -> Power:
    driver, governor = (tree.text(f"{CPUS}/cpu0/cpufreq/scaling_{name}") for name in ("driver", "governor"))
    idle = tree.text(f"{CPUS}/cpuidle/current_driver")
    states = tuple(tree.text(f"{path}/name") or "?" for path, _ in tree.find(f"{CPUS}/cpu0/cpuidle", "state*"))
    return Power(driver, governor, None if idle == "none" else idle, states)


def _kernel(tree: Tree) -> Kernel:
    release = tree.text("/proc/sys/kernel/osrelease") or "unknown"
    version = tree.text("/proc/sys/kernel/version") or tree.text("/proc/version") or ""
    lines = (tree.text(f"/boot/config-{release}") or tree.gzipped("/proc/config.gz") or "").splitlines()
    config = dict(line.removeprefix("CONFIG_").split("=", 1) for line in lines if line.startswith("CONFIG_"))
    realtime = tree.text("/sys/kernel/realtime") == "1" or "PREEMPT_RT" in version
    return Kernel(release, version, tuple((tree.text("/proc/cmdline") or "").split()), config, realtime)


def _disturbers(tree: Tree) -> tuple[str, ...]:
    names = {tree.text(f"{path}/comm") for path, _ in tree.find("/proc", "*")}
    return tuple(name for name in DISTURBERS if name[:_COMM] in names)
