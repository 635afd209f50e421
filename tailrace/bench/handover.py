"""How long connections take from one instance of a firewall to the one that replaces it, as in `apply`.

Both instances are real, and have nothing to forward. The old one gets its connections in the same way, as records that
are made here. Then the node's own hand-over (functions/handover.py) is timed: first of all that there is, and once more
of what was seen since, which is when frames have been led to the new one. Last, rounds that keep a standby in step
(node/standby.py), in which nothing has changed.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from tailrace import __version__
from tailrace.bench.compare import Plan, Side, Step, compare, total_seconds
from tailrace.bench.model import Comparison, Figures, Sample
from tailrace.bench.setting import Setting
from tailrace.errors import Fault, Mistake
from tailrace.functions.handover import HandOver
from tailrace.functions.program import NAME, control_beside, wait_until_ready
from tailrace.functions.show import call
from tailrace.measure.progress import Reporter
from tailrace.node.standby import InStep, Pair
from tailrace.observe.pcap import header
from tailrace.process.process import Limits, undisturbed
from tailrace.process.programs import own_program
from tailrace.resources.hugepages import PAGE_MIB
from tailrace.resources.place import POLLER_NICE
from tailrace.spec.firewall import Firewall
from tailrace.state.record import Process

KIND = "firewall"
MOST = 4_000_000
_BUFFERS_MIB = 64
_PAGE = 4096
_ESTABLISHED, _TCP, _IPV4 = 4, 6, 4
"""By the program's own numbers (functions/connections.h, steer/parse.h), and IP's."""
_READY_SECONDS = 60.0
_SLOWEST = 10_000
"""Connections a second, of a host that has no time."""
_START_SECONDS = 20.0
_ROUNDS = 20


@dataclass(frozen=True)
class HandOverPlan(Plan):
    """What is to be measured. Raises Mistake where it cannot be."""

    connections: int = 1_000_000

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1000 <= self.connections <= MOST:
            raise Mistake(f"--connections {self.connections}: expected 1000 to {MOST}")

    @property
    def settings(self) -> Firewall:
        """With as much room again, because a bucket that is full takes no more."""
        return Firewall(connections=2 * self.connections)

    @property
    def mib(self) -> int:
        return _BUFFERS_MIB + self.settings.tables_mib()

    @property
    def patience(self) -> float:
        """Seconds for a hand-over, which is measured however slow it is."""
        return 60 + self.connections / _SLOWEST

    @property
    def sides(self) -> list[Side]:
        return [Side(KIND, _START_SECONDS, partial(_side, self))]

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, self.sides)


def run(plan: HandOverPlan, folder: Path, report: Reporter) -> Comparison:
    """Hands over as often as there are pairs."""
    return compare(
        "handover",
        plan,
        plan.sides,
        (),
        folder=folder,
        report=report,
        pages=2 * plan.mib // PAGE_MIB + 16,
        programs=[NAME],
        settings={"function": KIND, "connections": plan.connections},
    )


def record(number: int, tick: int) -> bytes:
    """An established TCP connection over IPv4, as an instance gives it (struct handover_record); each number's is
    another one."""
    ends = [(0x0A000000 + number).to_bytes(4), socket.inet_aton("198.51.100.1")]
    ends.sort(key=lambda end: int.from_bytes(end, "little"))  # the order of the program's keys
    key = struct.pack("=16s16sHHHBBHHB3x", *ends, 0, 0, 0x0800, _IPV4, _TCP, 1024, 80, 1)
    return key + struct.pack("=IBBB", tick, _ESTABLISHED, 0, 0).ljust(40, b"\0")


@contextmanager
def _instance(plan: HandOverPlan, setting: Setting, number: int, core: int) -> Iterator[Process]:
    launcher, name = setting.launcher, f"{KIND}@{number}"
    control = control_beside(launcher.state.sockets / f"{name}.0" / "sock")
    control.parent.mkdir(exist_ok=True)  # of the pair before
    nothing = control.with_name("nothing.pcap")
    nothing.write_bytes(header(65535))
    argv = [str(own_program(NAME)), KIND, "--core", str(core), "--memory", str(plan.mib), "--huge"]
    for port in range(2):
        argv += ["--port", f"vdev:net_pcap{port},rx_pcap={nothing}"]
    argv += ["--control", str(control), *(word for each in plan.settings.settings(1) for word in ("--set", each))]
    process = launcher.start(name, argv, Limits(cpus=(core, setting.cores.control), nice=POLLER_NICE))
    try:
        wait_until_ready(launcher, process, time.monotonic() + _READY_SECONDS)
        yield process
    finally:
        with undisturbed():
            launcher.state.undo(process)
            nothing.unlink()


def _fill(plan: HandOverPlan, setting: Setting, process: Process) -> None:
    """Raises Fault if it does not take nearly all: of a full bucket a connection is lost."""
    state, taken = setting.launcher.state, 0
    tick = int(call(state, process, "give_connections", **{"from": 1})["tick"])
    for first in range(0, plan.connections, _PAGE):
        numbers = range(first, min(first + _PAGE, plan.connections))
        page = b"".join(record(number, tick) for number in numbers).hex()
        taken += int(call(state, process, "take_connections", connections=page)["taken"])
    if taken < 0.999 * plan.connections:
        raise Fault(f"{process.name} has taken {taken} of {plan.connections} connections")


def _side(plan: HandOverPlan, setting: Setting, step: Step) -> list[Sample]:
    setting.versions["tailrace"] = __version__
    with ExitStack() as stack:
        old = stack.enter_context(_instance(plan, setting, 1, setting.cores.switch))
        _fill(plan, setting, old)
        new = stack.enter_context(_instance(plan, setting, 2, setting.cores.load))
        step(_START_SECONDS / 2)
        return setting.samples([old, new], partial(_measured, plan, setting, old, new))


def _measured(plan: HandOverPlan, setting: Setting, old: Process, new: Process) -> Figures:
    hand_over = HandOver(setting.launcher.state, old, new, patience=plan.patience)
    began = time.monotonic()
    hand_over.step()
    first = time.monotonic()
    hand_over.step()
    rest = time.monotonic() - first
    taken = hand_over.counts.get("taken", 0)
    if hand_over.why is not None or taken < 0.999 * plan.connections:
        raise Fault(f"{taken} of {plan.connections} connections were handed over: {hand_over.said()}")
    in_step = InStep(setting.launcher.state, Pair(old, new, refresh=3600.0))
    in_step.round()
    rounds = []
    for _ in range(_ROUNDS):
        began_round = time.monotonic()
        in_step.round()
        rounds.append(time.monotonic() - began_round)
    return {
        "round_seconds": round(median(rounds), 4),
        "seconds": round(first - began, 3),
        "rest_seconds": round(rest, 3),
        "per_second": round(taken / (first - began)),
        "taken": taken,
    }
