"""What this machine is made of, as tuning needs to know it: CPUs, nodes, caches, network cards, kernel, disturbers.

Everything is read through a `Tree`, so a copied /sys and /proc of another machine gives that machine.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from tailrace.host.command_line import CommandLine, parse_line
from tailrace.host.tree import Tree
from tailrace.resources.cpus import cpus_of

CPUS = "/sys/devices/system/cpu"
NODES = "/sys/devices/system/node"
HUGE_PAGES = "/sys/kernel/mm/hugepages"
PCI = "/sys/bus/pci/devices"
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
_ETHERNET = "0x0200"
"""PCI's class of Ethernet controllers."""
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
SLOW = 0.85
"""A core that reaches less than this part of the fastest one's speed is of another kind; less is a better or worse
piece of one kind, such as Intel's favoured cores."""
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
class Cpu:
    """One logical CPU."""

    number: int
    online: bool
    node: int
    package: int
    siblings: tuple[int, ...]
    """The logical CPUs of its core, itself included."""
    speed: int | None = None
    """What it can do at most, comparable within the machine: its capacity, or its highest frequency in kHz."""

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
    """Its interface, or its address where Linux has none of it: DPDK has the card, or nobody."""
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

    @property
    def interface(self) -> bool:
        """Whether Linux has an interface of it."""
        return self.name != self.address


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

    @property
    def slow(self) -> tuple[int, ...]:
        """The online CPUs of cores that are slower than others: efficiency cores, Arm's small ones."""
        fastest = max((cpu.speed or 0 for cpu in self.cpus if cpu.online), default=0)
        return tuple(
            cpu.number for cpu in self.cpus if cpu.online and cpu.speed is not None and cpu.speed < SLOW * fastest
        )

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

    def nearest(self, node: int | None, among: Collection[int]) -> int | None:
        """Of some nodes that one, or else the one of the least distance to it; None if there are none, or if no node is
        named and there are several."""
        if node in among:
            return node
        if len(among) < 2:
            return next(iter(among), None)
        if node is None:
            return None
        numbers = [each.number for each in self.nodes]
        distances = next((each.distances for each in self.nodes if each.number == node), ())
        # The kernel lists the distances to the nodes that are online, whose numbers may have gaps.
        far = dict(zip(numbers, distances, strict=True)) if len(distances) == len(numbers) else {}
        return min(among, key=lambda other: (far.get(other, 0), other))

    def home(self, node: int | None) -> int:
        """The node that a device is shown with: its own, or the first where it names none that is there."""
        numbers = [each.number for each in self.nodes]
        return node if node in numbers else min(numbers, default=0)

    def pools(self, kib: int) -> list[HugePool]:
        """Each node's pool of huge pages of this size; they are there where kernel and processor know the size."""
        return [pool for node in self.nodes for pool in node.huge if pool.kib == kib]

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
    processor, cpus = _processor(tree), _cpus(tree)
    # One CPU stands for all where they are alike, and CPU 0 may be offline.
    first = f"{CPUS}/cpu{min((cpu.number for cpu in cpus if cpu.online), default=0)}"
    return Machine(
        architecture=_architecture(processor),
        vendor=processor.get("vendor_id", processor.get("CPU implementer", "unknown")),
        model=_model(tree, processor),
        # Of those of Intel's VMX most have a line of their own, since Linux 5.6.
        flags=frozenset(
            word for line in ("flags", "vmx flags", "Features") for word in processor.get(line, "").split()
        ),
        cpus=cpus,
        nodes=_nodes(tree, cpus),
        caches=_caches(tree),
        nics=_nics(tree),
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


def _cpus(tree: Tree) -> tuple[Cpu, ...]:
    online = set(_list(tree, f"{CPUS}/online"))
    offline = set(_list(tree, f"{CPUS}/offline"))
    nodes = {cpu: node for path, node in tree.find(NODES, "node*") for cpu in _list(tree, f"{path}/cpulist")}
    found = []
    for path, number in tree.find(CPUS, "cpu*"):
        siblings = _list(tree, f"{path}/topology/thread_siblings_list") or (number,)
        package = tree.number(f"{path}/topology/physical_package_id")
        is_online = number in online if online else number not in offline
        node = nodes.get(number)
        if node is None:  # the node's list leaves out offline CPUs, which keep their link to it
            node = next((of for _, of in tree.find(path, "node*")), 0)
        speed = tree.number(f"{path}/cpu_capacity") or tree.number(f"{path}/cpufreq/cpuinfo_max_freq")
        found.append(Cpu(number, is_online, node, max(package or 0, 0), siblings, speed))
    return tuple(found)


def _list(tree: Tree, path: str) -> tuple[int, ...]:
    return cpus_of(tree.text(path))


def _nodes(tree: Tree, cpus: Sequence[Cpu]) -> tuple[Node, ...]:
    """Those that the kernel lists, and those that only CPUs name; without any (CONFIG_NUMA) the machine is node 0. One
    that is offline has neither CPUs nor memory."""
    online = _list(tree, f"{NODES}/online")
    paths = {number: path for path, number in tree.find(NODES, "node*") if not online or number in online}
    own: dict[int, list[int]] = {number: [] for number in paths}
    for cpu in cpus:
        if cpu.online:
            own.setdefault(cpu.node, []).append(cpu.number)
    found = []
    for number, numbers in sorted(own.items()):
        path = paths.get(number, f"{NODES}/node{number}")
        pools = f"{path}/hugepages" if paths else HUGE_PAGES
        # One node has all the memory of the machine.
        meminfo = tree.text(f"{path}/meminfo") or (tree.text("/proc/meminfo") if len(own) == 1 else None)
        memory = re.search(r"MemTotal:\s+(\d+) kB", meminfo or "")
        distances = _distances(tree.text(f"{path}/distance") or "")
        mib = int(memory[1]) // 1024 if memory else 0
        found.append(Node(number, tuple(numbers), mib, distances, _pools(tree, pools)))
    return tuple(found)


def _distances(text: str) -> tuple[int, ...]:
    """Of a node to each; none if the file says something else."""
    parts = text.split()
    return tuple(map(int, parts)) if all(part.isdecimal() and part.isascii() for part in parts) else ()


def _pools(tree: Tree, folder: str) -> tuple[HugePool, ...]:
    found = []
    for name in tree.names(folder):
        size = re.fullmatch(r"hugepages-(\d+)kB", name)
        if size:
            total, free = (tree.number(f"{folder}/{name}/{key}_hugepages") or 0 for key in ("nr", "free"))
            found.append(HugePool(int(size[1]), total, free))
    return tuple(found)


def _caches(tree: Tree) -> tuple[Cache, ...]:
    found: dict[Cache, None] = {}
    for path, _ in tree.find(CPUS, "cpu*"):
        for index, _ in tree.find(f"{path}/cache", "index*"):
            size = re.fullmatch(r"(\d+)K", tree.text(f"{index}/size") or "")
            level = tree.number(f"{index}/level")
            if size and level:
                kind = tree.text(f"{index}/type") or "Unified"
                cpus, id_ = _list(tree, f"{index}/shared_cpu_list"), tree.number(f"{index}/id")
                found[Cache(level, kind, int(size[1]), cpus, id_)] = None
    return tuple(found)


def _nics(tree: Tree) -> tuple[Nic, ...]:
    found = []
    for name in tree.names("/sys/class/net"):
        path = f"/sys/class/net/{name}"
        address = tree.target(f"{path}/device")
        if address is None or not re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", address):
            continue
        speed = tree.number(f"{path}/speed")
        mbps = speed if speed is not None and speed > 0 else None
        queues = len(list(tree.find(f"{path}/queues", "rx-*")))
        found.append(_nic(tree, f"{path}/device", name, address, mbps, queues))
    known = {nic.address for nic in found}
    for address in tree.names(PCI):
        path = f"{PCI}/{address}"
        if address in known or not (tree.text(f"{path}/class") or "").startswith(_ETHERNET):
            continue
        nic = _nic(tree, path, address, address, None, 0)
        # A virtual machine's card is no physical one, and of virtual functions those count that are an interface.
        if nic.driver != "virtio-pci" and not nic.virtual_function:
            found.append(nic)
    return tuple(found)


def _nic(tree: Tree, device: str, name: str, address: str, mbps: int | None, queues: int) -> Nic:
    node = tree.number(f"{device}/numa_node")
    return Nic(
        name,
        address,
        tree.target(f"{device}/driver") or ("no driver" if name == address else "unknown"),
        node if node is not None and node >= 0 else None,
        mbps,
        queues,
        tree.number(f"{device}/sriov_numvfs") or 0,
        tree.number(f"{device}/sriov_totalvfs") or 0,
        tree.exists(f"{device}/physfn"),
    )


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


def last_cpu(tree: Tree) -> int | None:
    """The highest number that a CPU can have while the kernel runs, of which some may never have been plugged in."""
    possible = _list(tree, f"{CPUS}/possible") or tuple(number for _, number in tree.find(CPUS, "cpu*"))
    return max(possible, default=None)


def _disturbers(tree: Tree) -> tuple[str, ...]:
    names = {tree.text(f"{path}/comm") for path, _ in tree.find("/proc", "*")}
    return tuple(name for name in DISTURBERS if name[:_COMM] in names)
