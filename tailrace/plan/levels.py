"""What a function's latency level came to, point by point: what was set, why, and what the host does not allow.

normal: no CPU of its own. medium: its own core where there are enough, and memory that is reserved. high: its own core
or none at all, which nothing of it gives away. The settings themselves are where they are made (resources/place.py,
functions/domain.py); here they are read from the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tailrace.functions.acceleration import Answer
from tailrace.functions.machine import VCPU_PRIORITY
from tailrace.functions.traits import Traits
from tailrace.plan.planned import PlannedFunction
from tailrace.resources.hugepages import PAGE_KIB, size_words
from tailrace.resources.place import Place
from tailrace.resources.topology import Cpu
from tailrace.spec.interface import VHOST_USER, passed_through

_VIRTIO = "its device offers Linux's driver no coalescing (NOTF_COAL)"
_UNCOALESCED = {
    VHOST_USER: _VIRTIO,
    "virtio": _VIRTIO,
    "e1000e": "set inside at its start (ethtool -C, rx-usecs 0)",
    "vmxnet3": "the version that QEMU emulates has none",
    "passthrough": "set inside at its start where the driver has it (ethtool -C; `tailrace function log` says what)",
}
"""Why interrupts of Linux's drivers are not coalesced at latency high; what is set, functions/guest/init sets."""


@dataclass(frozen=True)
class Point:
    """One thing that a level decides."""

    what: str
    is_set: str
    why: str
    lacking: str | None = None
    """What the host does not allow, and the cure."""


@dataclass(frozen=True)
class Machine:
    """What is known of a host that runs machines."""

    acceleration: Answer
    traits: Traits


def explained(
    function: PlannedFunction, place: Place, *, huge: bool, cpus: Sequence[Cpu], machine: Machine | None
) -> list[Point]:
    """The points of one function; `machine` of one in a machine."""
    return [
        *_cpu(function, place, cpus),
        *_threads(function, place),
        _scheduling(place) if machine is None else _vcpu_scheduling(function, machine.traits),
        _memory(function, machine, huge=huge),
        *([] if machine is None else _machine(function, place, machine)),
    ]


def _cpu(function: PlannedFunction, place: Place, cpus: Sequence[Cpu]) -> Iterator[Point]:
    if function.latency == "normal":
        yield Point("CPU", f"any of {', '.join(map(str, place.cpus))}", "it shares them with control threads")
        return
    if place.mode != "poll":
        lacking = "a core of its own: there are too few; give others `latency: normal`, or use a larger machine"
        yield Point("CPU", place.words, place.why, lacking)
        return
    yield Point("CPU", f"{place.words}, its own", place.why)
    open_to_all = [cpu.number for cpu in cpus if cpu.number in place.cores and not cpu.isolated]
    if open_to_all:
        numbers = ", ".join(map(str, open_to_all))
        lacking = f"core {numbers} is not isolated, so Linux's own work may run there: `tailrace host plan`"
        yield Point("isolation", "none", "only the host's own set-up keeps interrupts and kernel threads off", lacking)
    else:
        yield Point("isolation", "the host's", "interrupts and kernel threads are kept off by the host's set-up")


def _threads(function: PlannedFunction, place: Place) -> Iterator[Point]:
    if function.elastic:
        on = ", ".join(map(str, function.runs_on(place)))
        more = f"cpus; `tailrace function cpus {function.name} N` gives it others"
        if function.runs == "machine":
            yield Point("CPUs", f"{function.cpus} for {function.most_cpus} virtual CPUs, which are on CPU {on}", more)
        else:
            yield Point("threads", f"{function.cpus} of {function.most_cpus}, on CPU {on}", more)


def _scheduling(place: Place) -> Point:
    if place.priority is not None:
        return Point(
            "scheduling", f"real-time priority {place.priority}", "its core is shared, and it goes first there"
        )
    if place.mode == "poll":
        return Point(
            "scheduling", f"nice {place.nice}", "a real-time thread that never sleeps is throttled by the kernel"
        )
    return Point("scheduling", "ordinary", "it waits its turn")


def _vcpu_scheduling(function: PlannedFunction, traits: Traits) -> Point:
    if (bounds := function.priority) is not None:
        said = f"virtual CPUs at priority {bounds.least} to {bounds.most}, read every {bounds.period_us} µs"
        return Point("scheduling", said, "it follows what its guest runs")
    if function.latency != "high":
        return Point("scheduling", "ordinary", "only latency high goes before the host's own work")
    if function.stacked:
        return Point("scheduling", "ordinary", "its virtual CPUs may share a CPU, and one would starve the others")
    if traits.real_time is None:
        return Point(
            "scheduling", f"virtual CPUs at real-time priority {VCPU_PRIORITY}", "nothing ordinary runs before them"
        )
    return Point("scheduling", "ordinary", "its core is its own", f"a real-time priority: {traits.real_time}")


def _memory(function: PlannedFunction, machine: Machine | None, *, huge: bool) -> Point:
    size = f"{function.memory_bytes >> 20} MiB"
    if machine is None:
        return Point("memory", f"at most {size}; buffers in {'huge' if huge else 'ordinary'} pages", "it is limited")
    high = function.latency == "high"
    refused = machine.traits.memory_lock
    large = "huge pages" if function.page_kib == PAGE_KIB else f"huge pages of {size_words(function.page_kib)}"
    if high and refused is not None:
        pages, kept = (large, "reserved, and never in swap") if huge else ("ordinary pages", "reserved")
        return Point("memory", f"{size} in {pages}", kept, f"memory that is locked: {refused}")
    if huge and high and machine.acceleration.kind == "kvm":
        return Point("memory", f"{size} in {large}, locked", "reserved, and never in swap, nor is QEMU's own")
    if huge:
        return Point("memory", f"{size} in {large}", "reserved, and never in swap")
    if high:
        return Point("memory", f"{size}, locked", "never in swap")
    return Point("memory", f"{size} in ordinary pages", "reserved when it starts", "it may be swapped out; use --huge")


def _machine(function: PlannedFunction, place: Place, machine: Machine) -> Iterator[Point]:
    acceleration, traits = machine.acceleration, machine.traits
    if acceleration.kind == "kvm":
        yield Point("acceleration", "KVM", "it was tried")
    else:
        yield Point("acceleration", "none: emulated", "it was tried", f"KVM: {acceleration.why_not}")
    others = [cpu for cpu in place.cpus if cpu not in place.cores] or [place.core]
    pinned = "pinned, one to one" if function.cpus == function.most_cpus else "pinned, some to the same CPU"
    pinned = "not pinned to one" if function.latency == "normal" else pinned
    yield Point("virtual CPUs", pinned, f"QEMU's other threads run on {', '.join(map(str, others))}")
    yield from _cpu_model(function, acceleration, traits)
    cell = f"one, with all of it; node {traits.node(place.core)} of the host"
    yield Point("NUMA node", cell, "CPUs and memory are on one" if traits.several_nodes else "the host has one only")
    if function.priority is None and _alone(function) and acceleration.kind == "kvm":
        why = "the guest's own halt does not leave it, so KVM's halt polling (halt_poll_ns) has no part"
        yield Point("idle", "the CPU is not given up (cpu-pm)", why)
    elif function.priority is None and _alone(function):
        halts = "its function polls, and never halts" if _polls(function) else "a halt gives the CPU to the host"
        yield Point("idle", halts, "", "cpu-pm, which is KVM's")
    else:
        yield Point("idle", "a halt gives the CPU to the host", "others may run while it waits")
    yield _interrupts(function)
    yield Point("balloon, USB, display", "none", "each would be one more reason to leave the guest")


def _interrupts(function: PlannedFunction) -> Point:
    if _polls(function):
        return Point("interrupts", "none", "its function polls its ports, so there is nothing to coalesce")
    if function.kind is None:
        own = "as the system on its disk has set them"
        lacking = "none that are coalesced: inside, `ethtool -C PORT rx-usecs 0 tx-usecs 0` where its driver has that"
        why = "Tailrace sets nothing inside it"
        return Point("interrupts", own, why, lacking if function.latency == "high" else None)
    if function.latency != "high":
        return Point("interrupts", "those of its ports", "Linux's drivers wait for them, which may coalesce them")
    kinds = dict.fromkeys("passthrough" if passed_through(each) else each for each in function.interfaces)
    why = "; ".join(f"{kind}: {_UNCOALESCED[kind]}" for kind in kinds or (VHOST_USER,))
    return Point("interrupts", "those of its ports, none coalesced", why)


def _polls(function: PlannedFunction) -> bool:
    """Whether what is inside the machine polls, and waits for no interrupt: of a disk of the user's nobody knows."""
    return function.kind is not None and function.driver == "dpdk"


def _alone(function: PlannedFunction) -> bool:
    return function.latency == "high" and not function.stacked


def _cpu_model(function: PlannedFunction, acceleration: Answer, traits: Traits) -> Iterator[Point]:
    if acceleration.kind != "kvm":
        yield Point("CPU model", "all that QEMU emulates (maximum)", "the host's own takes KVM")
    elif function.latency == "normal":
        yield Point("CPU model", "like the host's (host-model)", "other hosts have it too")
    else:
        yield Point("CPU model", "the host's own (host-passthrough)", "it can do what the host's can")
    if function.latency != "high" or acceleration.kind != "kvm":
        return
    if traits.invariant_tsc:
        yield Point("TSC", "invariant (invtsc)", "its clock is the host's, without an exit")
    else:
        yield Point("TSC", "as KVM has it", "", "invtsc: the host's own is not invariant")
