"""A plan made real: starts what it says in order, tells what stands, and takes it down again.

Everything is put on record before it is made (`tailrace.host.state`), so that `tailrace down` finds it after any end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tailrace.errors import Failure, Fault, Mistake
from tailrace.fabric.tailrace import SwitchOptions, TailraceFabric
from tailrace.host import hugepages
from tailrace.host.interface import changes_for, check_interface, set_offloads
from tailrace.host.launch import Launcher
from tailrace.host.pci import check_pci
from tailrace.host.process import how_it_ended, reap
from tailrace.host.programs import own_program, system_program
from tailrace.host.state import HugePages, Offloads, Process, State
from tailrace.plan import FUNCTION_BUFFERS_MIB, Plan
from tailrace.spec.model import TESTER_ENDS
from tailrace.vnf.sandbox import Sandboxed, start_function

_ATTACH_SECONDS = 10.0
#: The longest path of a Unix socket (unix(7): 108 bytes with the terminating zero).
_LONGEST_SOCKET = 107


@dataclass
class Node:
    """What is up under one state."""

    state: State
    plan: Plan
    launcher: Launcher
    fabric: TailraceFabric
    notes: list[str]

    @classmethod
    def of(cls, state: State, plan: Plan, *, logs: Path, tied: bool) -> Node:
        launcher = Launcher(state, logs, tied)
        return cls(state, plan, launcher, _fabric(plan, launcher), list(plan.notes))

    def log_to(self, logs: Path) -> None:
        """Sends the output of what is started from now on to another folder."""
        self.launcher = replace(self.launcher, logs=logs)
        self.fabric = _fabric(self.plan, self.launcher)

    def socket(self, port: str) -> Path:
        """Where the fabric listens for the guest of a port."""
        return self.state.sockets / f"{port}.sock"

    def check(self) -> None:
        """Finds what is missing on this machine before anything is started. Raises Mistake with the cure."""
        own_program("tailrace-switch")
        if self.plan.functions:
            own_program("tailrace-vnf")
            system_program("bwrap")
        if self.plan.tester:
            own_program("tailrace-tester")
        for port in self.plan.ports:
            if port.guest and len(str(self.socket(port.name)).encode()) > _LONGEST_SOCKET:
                raise Mistake(
                    f"{self.socket(port.name)}: too long for a socket's path; set TAILRACE_STATE to a shorter folder"
                )
            if port.device is not None and port.device.startswith("if:"):
                check_interface(port.device.removeprefix("if:"))
            if port.device is not None and port.device.startswith("pci:"):
                check_pci(port.device.removeprefix("pci:"))

    def prepare(self) -> None:
        """Makes the machine ready, before any process is started. Raises Mistake or Failure with the cure."""
        self.check()
        if self.plan.pages:
            reserve_pages(self.state, self.plan.pages)
        self._prepare_interfaces()

    def start(self) -> None:
        """Applies the plan; on return every function is attached and every chain is wired. Raises Failure."""
        state = self.state
        for folder in (state.sockets, state.logs):
            folder.mkdir(exist_ok=True)
        self.fabric.start()
        for port in self.plan.ports:
            if port.device is not None:
                self.fabric.add_device_port(port.name, port.device)
            else:
                self.fabric.add_guest_port(port.name, self.socket(port.name))
        mechanisms = [self._start_function(name) for name in (each.name for each in self.plan.functions)]
        self.wait_for([port for each in self.plan.functions for port in each.ports])
        for chain in self.plan.chains:
            self.fabric.wire(chain.name, chain.ports)
        if "RLIMIT_DATA" in mechanisms:
            self.notes.append("no memory cgroup can be made here, so sandboxes are limited by RLIMIT_DATA")
        state.record.complete = True
        state.save()

    def _prepare_interfaces(self) -> None:
        for port in self.plan.ports:
            if port.device is None or not port.device.startswith("if:"):
                continue
            changes, notes = changes_for(port.device.removeprefix("if:"))
            self.notes += notes
            for change in changes:
                self.state.add(Offloads(change.interface, change.namespace, change.before))
                set_offloads(change.interface, change.namespace, change.wanted)

    def _start_function(self, name: str) -> str:
        planned = next(each for each in self.plan.functions if each.name == name)
        _, mechanism = start_function(
            self.launcher,
            Sandboxed(
                name=name,
                kind=planned.kind,
                ports=tuple(self.socket(port) for port in planned.ports),
                place=self.plan.placement.functions[name],
                memory_bytes=planned.memory_bytes,
                buffers_mib=FUNCTION_BUFFERS_MIB,
                huge=self.plan.huge,
            ),
        )
        return mechanism

    def wait_for(self, ports: list[str], seconds: float = _ATTACH_SECONDS) -> None:
        """Waits until somebody is attached to each of the ports. Raises Fault if what should attach has ended."""
        deadline = time.monotonic() + seconds
        while True:
            states = {port.name: port for port in self.fabric.ports()}
            waiting = [name for name in ports if states[name].state != "up"]
            if not waiting:
                return
            self.check_alive()
            if time.monotonic() > deadline:
                port = states[waiting[0]]
                owner = next(each.owner for each in self.plan.ports if each.name == port.name)
                who = "tester" if owner in TESTER_ENDS else owner
                reason = f" ({port.reason})" if port.reason else ""
                raise self.launcher.failure(who, f"{who} did not attach to {port.name} within {seconds:g} s{reason}")
            time.sleep(0.01)

    def check_alive(self) -> None:
        """Raises Fault if a process of ours has ended, or a port was quarantined."""
        for process in self.state.processes():
            if not process.id.alive():
                raise Fault(why_ended(self.launcher, process))

    def check_ports(self) -> None:
        """Raises Fault if the switch has quarantined a port."""
        for port in self.fabric.ports():
            if port.state == "quarantined":
                raise Fault(f"the port {port.name} was quarantined: {port.reason}")

    def attach(self) -> None:
        """Takes up what `tailrace up` has left running."""
        self.fabric.attach()

    def stop(self) -> list[str]:
        """Takes everything down; returns what could not be."""
        try:
            self.fabric.stop()
        except Failure as error:
            return [str(error), *self.state.undo_all()]
        return self.state.undo_all()


def _fabric(plan: Plan, launcher: Launcher) -> TailraceFabric:
    options = SwitchOptions(
        place=plan.placement.switch,
        backpressure_us=plan.backpressure_us,
        idle=plan.idle,
        pci=any((port.device or "").startswith("pci:") for port in plan.ports),
    )
    return TailraceFabric(launcher, options)


def reserve_pages(state: State, pages: int) -> None:
    """Sees to it that so many 2 MiB pages are free; what is added is on record first."""
    lacking = hugepages.missing(pages)
    if lacking:
        state.add(HugePages(before=hugepages.pool().total, added=lacking))
        hugepages.add(lacking)


def why_ended(launcher: Launcher, process: Process) -> str:
    """One line about a process of ours that is gone."""
    how = how_it_ended(reap(process.pid))
    words = launcher.last_words(process.name)
    who = f"the {process.name}" if process.name in ("switch", "tester") else f"the function {process.name}"
    return f"{who} {how}" + (f" ({words})" if words and "killed" not in how else "")


def quietly(call: Callable[[], object]) -> None:
    """Runs something whose failure changes nothing any more."""
    with suppress(Failure, OSError):
        call()
