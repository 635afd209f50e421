"""What the machine is made of, as far as CPUs, memory and network cards are concerned: the one reader of it.

Everything is read through a `Tree`, so a copied /sys of another machine gives that machine. What the kernel does not
tell is empty, never a failure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

from tailrace.kernel.cpus import cpus_of
from tailrace.kernel.tree import Tree

CPUS = "/sys/devices/system/cpu"
NODES = "/sys/devices/system/node"
HUGE_PAGES = "/sys/kernel/mm/hugepages"
PCI = "/sys/bus/pci/devices"
_ETHERNET = "0x0200"
"""PCI's class of Ethernet controllers."""
MOST_VFS = 0xFFFF
"""TotalVFs of SR-IOV has 16 bits."""
SLOW = 0.85
"""A core that reaches less than this part of the fastest one's speed is of another kind; less is a better or worse
piece of one kind, such as Intel's favoured cores."""


@dataclass(frozen=True)
class Role:
    """What a CPU is for, by the profile that `tailrace host apply` has applied."""

    name: str
    profile: str

    def __str__(self) -> str:
        return f"role {self.name} of profile {self.profile}"


@dataclass(frozen=True)
class Cpu:
    """One logical CPU and where it sits."""

    number: int
    node: int = 0
    core: int = 0
    """The first logical CPU of its core, which names the core."""
    isolated: bool = False
    """Kept free by the kernel (isolcpus, or an isolated cpuset partition) for whoever asks for it by number."""
    slow: bool = False
    """Of a core that is slower than others: an efficiency core, Arm's small ones."""
    online: bool = True
    package: int = 0
    siblings: tuple[int, ...] = ()
    """The logical CPUs of its core, itself included."""
    speed: int | None = None
    """What it can do at most, comparable within the machine: its capacity, or its highest frequency in kHz."""
    role: Role | None = None
    """None: no roles are applied."""


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
class Topology:
    """CPUs, nodes and network cards."""

    cpus: tuple[Cpu, ...]
    nodes: tuple[Node, ...]
    nics: tuple[Nic, ...]

    @property
    def online(self) -> tuple[int, ...]:
        return tuple(cpu.number for cpu in self.cpus if cpu.online)

    @property
    def slow(self) -> tuple[int, ...]:
        """The online CPUs of cores that are slower than others."""
        return tuple(cpu.number for cpu in self.cpus if cpu.online and cpu.slow)

    def cpu(self, number: int) -> Cpu:
        return next(cpu for cpu in self.cpus if cpu.number == number)

    def with_cores(self, cores: Iterable[Sequence[int]]) -> Self:
        """The machine as it is with all CPUs of these cores online. An offline one has no topology of its own and is
        in nobody else's, so it has that of a CPU of its core which is online."""
        cpus = {cpu.number: cpu for cpu in self.cpus}
        for core in cores:
            siblings = tuple(number for number in core if number in cpus)
            online = next((cpus[number] for number in siblings if cpus[number].online), None)
            if online is not None:
                cpus |= {n: replace(online, number=n, siblings=siblings, core=siblings[0]) for n in siblings}
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


def read_topology(tree: Tree) -> Topology:
    """The machine behind `tree`."""
    cpus = read_cpus(tree)
    return Topology(cpus, read_nodes(tree, cpus), read_nics(tree))


# --- CPUs ----------------------------------------------------------------------------------------------------------


def read_cpus(tree: Tree) -> tuple[Cpu, ...]:
    """All CPUs, in the order of their numbers. An offline one has no topology of its own."""
    online, offline, isolated = (_list(tree, f"{CPUS}/{name}") for name in ("online", "offline", "isolated"))
    # Where a CPU sits stays the same while the same CPUs are online, and a large machine has hundreds of such files.
    read = _read_once if tree.live else _read_cpus
    return read(tree, online, offline, isolated)


def _read_cpus(
    tree: Tree, online: Collection[int], offline: Collection[int], isolated: Collection[int]
) -> tuple[Cpu, ...]:
    nodes = {cpu: node for path, node in tree.find(NODES, "node*") for cpu in _list(tree, f"{path}/cpulist")}
    found = []
    for path, number in tree.find(CPUS, "cpu*"):
        siblings = _list(tree, f"{path}/topology/thread_siblings_list") or (number,)
        package = tree.number(f"{path}/topology/physical_package_id")
        node = nodes.get(number)
        if node is None:  # the node's list leaves out offline CPUs, which keep their link to it
            node = next((of for _, of in tree.find(path, "node*")), 0)
        found.append(
            Cpu(
                number,
                node,
                siblings[0],
                number in isolated,
                online=number in online if online else number not in offline,
                package=max(package or 0, 0),
                siblings=siblings,
                speed=tree.number(f"{path}/cpu_capacity") or tree.number(f"{path}/cpufreq/cpuinfo_max_freq"),
            )
        )
    return _mark_slow(found)


_read_once = lru_cache(maxsize=4)(_read_cpus)


def _mark_slow(cpus: Iterable[Cpu]) -> tuple[Cpu, ...]:
    """The same, where those are slow that are slower than others of them."""
    cpus = tuple(cpus)
    fastest = max((cpu.speed or 0 for cpu in cpus if cpu.online), default=0)
    slow = {cpu.number for cpu in cpus if cpu.speed is not None and cpu.speed < SLOW * fastest}
    return tuple(cpu if cpu.slow == (cpu.number in slow) else replace(cpu, slow=not cpu.slow) for cpu in cpus)


def last_cpu(tree: Tree) -> int | None:
    """The highest number that a CPU can have while the kernel runs, of which some may never have been plugged in."""
    possible = _list(tree, f"{CPUS}/possible") or tuple(number for _, number in tree.find(CPUS, "cpu*"))
    return max(possible, default=None)


def allowed_cpus() -> list[Cpu]:
    """The CPUs that this process may use.

    The kernel leaves isolated CPUs out of every process's affinity, and lets whoever asks for them have them; a process
    that was given less than the others (taskset, a container) is not given more here.
    """
    own, cpus = os.sched_getaffinity(0), read_cpus(Tree())
    if own >= {cpu.number for cpu in cpus if cpu.online and not cpu.isolated}:
        own |= {cpu.number for cpu in cpus if cpu.isolated and _may_use(cpu.number)}
    known = {cpu.number: cpu for cpu in cpus}
    return list(_mark_slow(known.get(number, Cpu(number, core=number)) for number in sorted(own)))


def _may_use(cpu: int) -> bool:
    """Whether this process's cpuset lets it run there."""
    own = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {cpu})
    except OSError:
        return False
    os.sched_setaffinity(0, own)
    return True


def _list(tree: Tree, path: str) -> tuple[int, ...]:
    return cpus_of(tree.text(path))


# --- memory --------------------------------------------------------------------------------------------------------


def read_nodes(tree: Tree, cpus: Sequence[Cpu]) -> tuple[Node, ...]:
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
        # One node has all the memory of the machine: some virtual machines' kernels count less in the node's own file.
        meminfo = (tree.text("/proc/meminfo") if len(own) == 1 else None) or tree.text(f"{path}/meminfo")
        memory = re.search(r"MemTotal:\s+(\d+) kB", meminfo or "")
        distances = _distances(tree.text(f"{path}/distance") or "")
        mib = int(memory[1]) // 1024 if memory else 0
        found.append(Node(number, tuple(numbers), mib, distances, _pools(tree, pools)))
    return tuple(found)


def available_mib(tree: Tree) -> dict[int, int]:
    """How much of each node's memory a program can have now, in MiB: what is free, and what the kernel gives up for it.
    Huge pages are apart. Of one node the kernel says it (Linux, Documentation/filesystems/proc.rst, MemAvailable), of
    several it does not: their file pages and reclaimable slabs are counted, as it does."""
    nodes = read_nodes(tree, read_cpus(tree))
    if len(nodes) == 1:
        return {nodes[0].number: _kib(tree.text("/proc/meminfo") or "", "MemAvailable") >> 10}
    texts = {each.number: tree.text(f"{NODES}/node{each.number}/meminfo") or "" for each in nodes}
    return {number: sum(_kib(text, key) for key in _RECLAIMED) >> 10 for number, text in texts.items()}


_RECLAIMED = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")


def _kib(meminfo: str, key: str) -> int:
    found = re.search(rf"\b{re.escape(key)}:\s+(\d+) kB", meminfo)
    return int(found[1]) if found else 0


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


# --- network cards -------------------------------------------------------------------------------------------------


def read_nics(tree: Tree) -> tuple[Nic, ...]:
    """Those with an interface, in the order of their names, then those that Linux has none of."""
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
        _vfs(tree, device, "num"),
        _vfs(tree, device, "total"),
        tree.exists(f"{device}/physfn"),
    )


def _vfs(tree: Tree, device: str, which: str) -> int:
    return min(max(tree.number(f"{device}/sriov_{which}vfs") or 0, 0), MOST_VFS)
