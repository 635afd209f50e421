"""What bounds the traffic of functions on one machine: each limit by name, of which the lowest is the bottleneck.

Rates are of all functions together, as the published tables have them: each function counts what it forwards. Frames
are with FCS; their bytes without it. Sources: the Ethernet MAC (IEEE 802.3: preamble and gap, 20 bytes); "SR-IOV for
NFV solutions" (Intel, 2017): east/west, every hop of virtual functions crosses PCIe twice; R. Neugebauer et al.,
"Understanding PCIe performance for end host networking", SIGCOMM 2018, section 3: what a frame takes of PCIe.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tailrace.advise.machine import Machine
from tailrace.resources.pcie_link import AROUND, USUAL_PAYLOAD

Traffic = Literal["north-south", "east-west", "stack-netperf"]
Interface = Literal["virtio", "vhost-user", "sr-iov"]
STACK: Traffic = "stack-netperf"
TRAFFICS: Sequence[Traffic] = ("north-south", "east-west", STACK)
INTERFACES: Sequence[Interface] = ("virtio", "vhost-user", "sr-iov")
GAP, FCS = 20, 4
SHORTEST = 64
ONE_COPY, TWO_COPIES = 2, 4
"""Touches of a frame's bytes by one hop: a copy reads and writes. Tailrace's switch copies once; others copy into a
buffer of their own, and out of it."""
RING, BESIDE = 256, 256
"""Entries of a virtqueue as QEMU makes it (virtio-net, rx_queue_size); bytes that a copy into one touches beside the
frame's: those of DPDK's mbuf (128), of the descriptor and of the rings on either side (a cache line each)."""
READ, DESCRIPTOR, DESCRIPTORS = 512, 32, 4
"""The most bytes that a card asks for at once (Max_Read_Request_Size, the specification's default); bytes of a
descriptor that it writes back for a frame that it received, and how many of these a packet has (XL710, with DPDK's
driver)."""


@dataclass(frozen=True)
class Cell:
    """What is asked: one kind of traffic, by one interface."""

    traffic: Traffic
    interface: Interface
    frame: int
    """Bytes with FCS; of the stack, bytes of a message."""
    functions: int


@dataclass(frozen=True)
class Limit:
    """One thing that bounds the rate."""

    name: str
    mpps: float


CARD = ("card_mpps", "direct_ns", "pcie_gbps")
"""What is to be known of a card for functions on its virtual functions."""
POLLER = ("poller_ns", "poller_cache_kib", "poller_miss_ns", "poller_byte_ns", "poller_line", "line_gbps")
"""And of the core that polls a card for another switch than Tailrace's."""
FED = ("vhost_ns", "vhost_byte_ns")
BETWEEN = ("hop_ns", "hop_byte_ns")


def needs(cell: Cell) -> Sequence[str]:
    """The parameters that a cell's limits need, and that can be fitted to it; none of a cell without a model."""
    of = _MODELLED.get((cell.traffic, cell.interface))
    return () if of is None else of[1]


def lacking(machine: Machine, cell: Cell) -> tuple[str, ...] | None:
    """The parameters that a cell's limits need and the machine has not; None of a cell that the model has none for."""
    of = _MODELLED.get((cell.traffic, cell.interface))
    return None if of is None else machine.lacks(of[1])


def limits(machine: Machine, cell: Cell) -> list[Limit]:
    """All that bounds a cell, lowest first. Empty where the machine has no such interface."""
    of = _MODELLED.get((cell.traffic, cell.interface))
    if of is None or machine.lacks(of[1]):
        return []
    return sorted(of[0](machine, cell), key=lambda limit: limit.mpps)


def mpps_of(gbps: float, frame: int) -> float:
    """Frames a second, in millions, that carry so many bits without FCS."""
    return gbps * 1e3 / (8 * (frame - FCS))


def gbps_of(mpps: float, cell: Cell) -> float:
    """Bits a second without FCS; of the stack, of messages."""
    return mpps * _kilobits(cell)


def mpps_at(gbps: float, cell: Cell) -> float:
    """Frames a second, in millions, that are so many bits of a cell's; of the stack, messages."""
    return gbps / _kilobits(cell)


def _kilobits(cell: Cell) -> float:
    return 8 * (cell.frame - (0 if cell.traffic == STACK else FCS)) / 1e3


def line_mpps(machine: Machine, frame: int) -> float:
    """Frames a second, in millions, that the link carries."""
    return machine["line_gbps"] * 1e3 / (8 * (frame + GAP))


def _each(fixed: float, byte: float, frame: int) -> float:
    """Frames a second, in millions, of what takes so many ns for each, and for each byte above the shortest. A message
    may be shorter, and takes no less."""
    return 1e3 / (fixed + byte * max(frame - SHORTEST, 0))


def poller(machine: Machine, frame: int, guests: int) -> Limit:
    """The core that polls the card, and copies what comes into the rings of so many functions in turn. What these hold
    is touched again once the other rings have been, so what its cache does not hold of all of them is missed."""
    held = guests * RING * (BESIDE + frame) / 1024
    missed = max(0.0, 1 - machine["poller_cache_kib"] / held)
    fixed = machine["poller_ns"] + machine["poller_miss_ns"] * missed
    return Limit("the core that polls the card", _each(fixed, machine["poller_byte_ns"], frame))


def pcie_ns(machine: Machine, frame: int) -> float:
    """How long PCIe has to do with a frame that crosses it each way once. The way from the card to memory is the fuller
    one: it has the frames that come, the requests for those that go, and descriptors."""
    data = frame - FCS
    written = data + AROUND * math.ceil(data / USUAL_PAYLOAD)
    beside = AROUND * math.ceil(data / READ) + DESCRIPTOR + AROUND / DESCRIPTORS
    return 8 * (written + beside) / machine["pcie_gbps"]


def direct_mpps(machine: Machine, frame: int) -> float:
    """Frames a second, in millions, of a function on a virtual function of the card: it has one queue, whose frames
    cross PCIe one after the other."""
    return 1e3 / (machine["direct_ns"] + pcie_ns(machine, frame))


def memory(machine: Machine, frame: int, touches: int) -> Iterator[Limit]:
    """What memory carries if each byte of a frame is read or written so many times, none of it out of a cache."""
    if "memory_gbps" in machine:
        yield Limit(f"memory, {touches} touches of each byte", mpps_of(machine["memory_gbps"], frame) / touches)


def _direct(machine: Machine, cell: Cell) -> Iterator[Limit]:
    yield Limit("the functions' cores", direct_mpps(machine, cell.frame) * cell.functions)
    yield Limit("the card's frame rate", machine["card_mpps"])
    yield Limit("the link", line_mpps(machine, cell.frame))
    yield Limit("PCIe", 1e3 / pcie_ns(machine, cell.frame))


def _card_switch(machine: Machine, cell: Cell) -> Iterator[Limit]:
    """A hop leaves one function and enters the next by the card: it handles the frame twice."""
    yield Limit("the functions' cores", direct_mpps(machine, cell.frame) * cell.functions)
    yield Limit("the card's frame rate, twice for each hop", machine["card_mpps"] / 2)
    yield Limit("PCIe, which each hop crosses both ways", 1e3 / pcie_ns(machine, cell.frame))


def _switched(machine: Machine, cell: Cell) -> Iterator[Limit]:
    core = _each(machine["vhost_ns"], machine["vhost_byte_ns"], cell.frame)
    yield Limit("the functions' cores and their hops", core * cell.functions)
    yield poller(machine, cell.frame, cell.functions)
    yield Limit("the link, as that core takes it without loss", machine["poller_line"] * line_mpps(machine, cell.frame))


def _hops(machine: Machine, cell: Cell) -> Iterator[Limit]:
    yield Limit(
        "the cores that copy between functions",
        _each(machine["hop_ns"], machine["hop_byte_ns"], cell.frame) * cell.functions,
    )
    yield from memory(machine, cell.frame, TWO_COPIES)


def _kernel(machine: Machine, cell: Cell) -> Iterator[Limit]:
    """Dropping takes time as forwarding does, so the more is offered the less is forwarded (receive livelock)."""
    offered = line_mpps(machine, cell.frame)
    yield Limit("the kernel, busy with dropping", machine["kernel_mpps"] / (1 + offered / machine["kernel_drop_mpps"]))


def _stack(machine: Machine, cell: Cell) -> Iterator[Limit]:
    """Messages, not frames, of as many guests as there are functions."""
    fixed, byte = _STACK[cell.interface]
    whose = "the guest's stack" if cell.functions == 1 else "the guests' stacks"
    yield Limit(whose, _each(machine[fixed], machine[byte], cell.frame) * cell.functions)
    yield Limit("the link, as TCP uses it", machine["stack_gbps"] * 1e3 / (8 * cell.frame))


_STACK: Mapping[Interface, tuple[str, str]] = {
    "virtio": ("stack_virtio_ns", "stack_byte_ns"),
    "vhost-user": ("stack_vhost_ns", "stack_byte_ns"),
    "sr-iov": ("stack_direct_ns", "stack_direct_byte_ns"),
}
_MODELLED: Mapping[tuple[Traffic, Interface], tuple[Callable[[Machine, Cell], Iterator[Limit]], Sequence[str]]] = {
    ("north-south", "sr-iov"): (_direct, (*CARD, "line_gbps")),
    ("north-south", "vhost-user"): (_switched, (*FED, *POLLER)),
    ("north-south", "virtio"): (_kernel, ("kernel_mpps", "kernel_drop_mpps", "line_gbps")),
    ("east-west", "sr-iov"): (_card_switch, CARD),
    ("east-west", "vhost-user"): (_hops, BETWEEN),
    **{(STACK, each): (_stack, (*names, "stack_gbps")) for each, names in _STACK.items()},
}
"""What bounds each kind of cell, and the parameters that it needs."""
