"""A machine's virtual CPUs on a pool of the host's CPUs: which is on which, and how that changes while it runs.

The machine has all its virtual CPUs from its start. Where it has fewer CPUs of the host, some are stacked on one: they
take turns there. Their threads are moved by libvirt, so that `virsh vcpupin` shows where they are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from tailrace.functions.runtime import Used
from tailrace.process import hypervisor


def spread(own: Sequence[int], vcpus: int) -> list[int]:
    """The CPU of each of so many virtual CPUs on these of the host: the last one, on which its function polls, has the
    first, and the others have the rest in turn. So it is alone where there are two."""
    rest = own[1:] or own
    return [*(rest[number % len(rest)] for number in range(vcpus - 1)), own[0]]


def move(name: str, cpus: Sequence[int], as_started: Path) -> Used:
    """Moves the virtual CPUs of a machine that runs, each to its CPU; `as_started` is the file with its XML, which says
    so from then on. Raises Failure, Mistake."""
    began = time.monotonic()
    moved = hypervisor.pin_vcpus(name, cpus)
    done = round(1e6 * (time.monotonic() - began))
    try:
        xml = as_started.read_text()
        as_started.write_text(with_pins(xml, cpus))
    except (OSError, ElementTree.ParseError):  # then nothing is compared with it either
        pass
    return Used(vcpus_moved=moved, handed_over_us=done)


def with_pins(xml: str, cpus: Sequence[int]) -> str:
    """A domain in libvirt's words with its virtual CPUs on these."""
    domain = ElementTree.fromstring(xml)
    for pin in domain.iterfind("cputune/vcpupin"):
        number = int(pin.get("vcpu", "0"))
        if number < len(cpus):
            pin.set("cpuset", str(cpus[number]))
    return ElementTree.tostring(domain, encoding="unicode") + "\n"
