"""How often the guest of a machine is left, by reason, while something is measured.

KVM counts its exits, and some of them by reason: I/O, halts, interrupts and windows for them, signals. All else is
`other`: writes of model-specific registers, faults of second-level paging, CPUID, and notifications by an eventfd.

An emulated machine has no exits: there, accesses of the guest to device registers stand in, each of which would be one
with KVM. QEMU's trace events say which device they were to. What QEMU does not see is missing: notifications of
vhost-user rings go from the guest's CPU to the switch by an eventfd.

Sources: arch/x86/kvm/x86.c of Linux (kvm_vcpu_stats_desc); docs/devel/tracing.rst of QEMU.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from tailrace.errors import Failure
from tailrace.process.hypervisor import monitor
from tailrace.process.plain import plain
from tailrace.state.record import Process

_KVM = Path("/sys/kernel/debug/kvm")
_EVENTS = ("memory_region_ops_read", "memory_region_ops_write", "virtio_queue_notify")
#: A CPU's; QEMU's own have the number -1.
_ACCESS = re.compile(r"memory_region_ops_(read|write) cpu \d+ .* name '(.*)'$")
_NOTIFICATION = "virtio_queue_notify "
_OF_THE_MACHINE = {"apic-msi", "ioapic", "pic", "pit", "hpet", "acpi-tmr"}
"""Clocks and interrupt controllers: with KVM the kernel has them, or the guest has others."""


@contextmanager
def counting(machine: Process, kind: Literal["kvm", "tcg"], folder: Path) -> Iterator[Counter[str]]:
    """Counts in the block; what is yielded has the counts by reason after it. `folder` is one in which QEMU may write.
    Raises Failure."""
    found: Counter[str] = Counter()
    if kind == "kvm":
        before = kvm_exits(machine.pid)
        yield found
        found.update(kvm_exits(machine.pid) - before)
        return
    log = folder / "accesses"
    said = monitor(machine.outside, f"logfile {log}", human=True).strip()
    if said:
        raise Failure(f"{machine.name}: QEMU does not log to {log}: {plain(said)}")
    _trace(machine.outside, on=True)
    try:
        yield found
    finally:
        _trace(machine.outside, on=False)
    with log.open(errors="replace") as lines:
        found.update(accesses(lines))
    log.unlink()


def kvm_exits(pid: int) -> Counter[str]:
    """The exits of a machine by reason, since it was started. Raises Failure."""
    try:
        (folder,) = _KVM.glob(f"{pid}-*")
        found = Counter({path.name.removesuffix("_exits"): int(path.read_text()) for path in folder.glob("*_exits")})
        found["other"] = max(int((folder / "exits").read_text()) - found.total(), 0)
    except (OSError, ValueError):
        raise Failure(
            f"{_KVM}: KVM's counters of process {pid} cannot be read; `mount -t debugfs debugfs /sys/kernel/debug`"
        ) from None
    return found


def accesses(lines: Iterator[str]) -> Iterator[str]:
    """What each line of QEMU's log is an access to: `e1000e-mmio write`."""
    for line in lines:
        found = _ACCESS.search(line.rstrip("\n"))
        if found is not None and found[2] not in _OF_THE_MACHINE:
            yield f"{found[2]} {found[1]}"
        elif _NOTIFICATION in line:
            yield "virtio notification"


def _trace(name: str, *, on: bool) -> None:
    for event in _EVENTS:
        arguments = {"name": event, "enable": on}
        monitor(name, json.dumps({"execute": "trace-event-set-state", "arguments": arguments}))
