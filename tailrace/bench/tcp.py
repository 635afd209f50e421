"""TCP between two Linux network stacks through the switch, with checksums and segmentation passed on, beside peers.

Each stack lives in a network namespace with one TAP interface, which a small guest (`tailrace-tap-guest`) carries to
the switch over virtio-user; so 64 KiB segments cross as a virtual machine's would. iperf3 measures one connection, with
writes of a size; ping measures the round trip beside no other traffic.
The stacks, the guests and iperf3 share the load's core: it is their limit as much as the switch's.

Beside switches there are ways of Linux's own between the stacks (`tailrace.bench.stacks`), without a guest.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tailrace.bench.compare import Plan, Side, Step, compare, total_seconds
from tailrace.bench.model import OVS_DPDK, TAILRACE, Comparison, Figures, Ratio, Sample
from tailrace.bench.setting import Setting, check_alive
from tailrace.bench.sides import ALONE, check_installed, running
from tailrace.bench.stacks import ADDRESSES, MTU, OWN_WAYS, PASSTHROUGH, add_stack, check_card, ip, joined
from tailrace.errors import Fault, Mistake
from tailrace.fabric import ovs_dpdk
from tailrace.fabric.base import Fabric
from tailrace.measure.progress import Reporter
from tailrace.process.process import UMASK_GUEST, Limits, undisturbed
from tailrace.process.programs import own_program, system_program
from tailrace.resources import hugepages
from tailrace.state.record import Namespace, Process

TAP_GUEST = "tailrace-tap-guest"
GUEST_MIB = 96
"""DPDK's memory of one guest."""
IPERF_PORT = 5201
READY_SECONDS = 20.0
START_SECONDS = 6.0
BULK = 128 * 1024
"""Bytes that iperf3 writes at once unless told."""
PINGS, PING_SECONDS = 1000, 0.001
"""How many, and from one to the next."""


@dataclass(frozen=True)
class TcpPlan(Plan):
    """What is to be measured."""

    against: str = OVS_DPDK
    """Several with commas: switches, and ways of Linux's own."""
    card: str | None = None
    """Whose virtual functions the stacks have by PASSTHROUGH."""
    messages: tuple[int, ...] = (BULK,)
    """Bytes of each write; each size is measured by itself."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.seconds.is_integer():
            raise Mistake(f"--seconds {self.seconds:g}: expected whole seconds, 1 to 3600, as iperf3 does")
        if not self.messages or not all(1 <= each <= BULK for each in self.messages):
            raise Mistake(f"--messages: expected bytes from 1 to {BULK}, such as 64,256,1518,65536")
        if len({*self.messages}) < len(self.messages):
            raise Mistake("--messages: a size is there twice; expected each once")
        if (PASSTHROUGH in self.names) != (self.card is not None):
            raise Mistake(f"--card: expected the network card of --against {PASSTHROUGH}, and only there")

    @property
    def names(self) -> list[str]:
        """Of the sides, ours first. Raises Mistake if one is not known."""
        others = self.against.split(",")
        if len({*others}) < len(others) or (len(others) > 1 and ALONE in others):
            raise Mistake(f"--against {self.against}: expected each once, and {ALONE} alone")
        if unknown := [each for each in others if each not in (ALONE, OVS_DPDK, *OWN_WAYS)]:
            raise Mistake(f"--against {unknown[0]}: expected {', '.join((OVS_DPDK, *OWN_WAYS))} or {ALONE}")
        return [TAILRACE, *(each for each in others if each != ALONE)]

    @property
    def ratios(self) -> list[Ratio]:
        """Above 1 favours Tailrace. With several peers a ratio's name ends with the peer's."""
        found = []
        for other in self.names[1:]:
            suffix = f"_{other}" if len(self.names) > 2 else ""
            found += [Ratio(f"{name}{suffix}", name, TAILRACE, other) for name in map(figure_of, self.messages)]
            found.append(Ratio(f"round_trip{suffix}", "ping_avg_us", other, TAILRACE))
        return found

    @property
    def sides(self) -> Sequence[Side]:
        seconds = START_SECONDS + PINGS * PING_SECONDS + self.seconds * len(self.messages)
        return [Side(name, seconds, partial(_side, self, name)) for name in self.names]

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, self.sides)


def figure_of(message: int) -> str:
    """What the rate by writes of so many bytes is called in a result."""
    return "gbps" if message == BULK else f"gbps_{message}"


def run(plan: TcpPlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all pairs."""
    names = plan.names
    check_installed(names)
    if plan.card is not None:
        check_card(plan.card)
    for program in ("iperf3", "ip", "ping"):
        system_program(program)
    mib = 2 * GUEST_MIB + (ovs_dpdk.MEMORY_MIB if OVS_DPDK in names else 0)
    return compare(
        "tcp",
        plan,
        plan.sides,
        plan.ratios,
        folder=folder,
        report=report,
        pages=mib // hugepages.PAGE_MIB + 8,
        programs=("tailrace-switch", TAP_GUEST),
        settings={"mtu": MTU, "messages": list(plan.messages)},
    )


def _side(plan: TcpPlan, name: str, setting: Setting, step: Step) -> list[Sample]:
    with _ends(plan, setting, name) as needed:
        step(START_SECONDS / 2)

        def measure() -> Figures:
            found = dict(_ping(needed))
            retransmits = 0.0
            for message in plan.messages:
                bulk = transfer(setting, needed, plan.seconds, message)
                found[figure_of(message)] = bulk["gbps"]
                retransmits += bulk["retransmits"]
            return found | {"retransmits": retransmits}

        return setting.samples(needed, measure)


@contextmanager
def _ends(plan: TcpPlan, setting: Setting, name: str) -> Iterator[list[Process]]:
    """Two stacks that are joined in a way; yields the processes without which they are not."""
    if name in OWN_WAYS:
        with joined(setting.launcher.state, name, plan.card, (namespace(0), namespace(1))):
            yield []
        return
    with stacks(setting, name) as (switch, guests):
        yield [*switch.processes(), *guests]


@contextmanager
def stacks(setting: Setting, name: str) -> Iterator[tuple[Fabric, list[Process]]]:
    """A fabric that is up, and the guests through which the two stacks reach it."""
    with ExitStack() as stack:
        switch, sockets = stack.enter_context(running(setting, name, offloads=True))
        yield switch, [stack.enter_context(_stack(setting, end, socket)) for end, socket in enumerate(sockets)]


def namespace(end: int) -> str:
    """Where a stack is; the ways between them have namespaces of their own (`tailrace.fabric.network`)."""
    return f"tailrace-{os.getpid()}-stack-{end}"


def transfer(setting: Setting, needed: Sequence[Process], seconds: float, message: int = BULK) -> Figures:
    """One transfer from the first stack to the second, by writes of so many bytes."""
    iperf = system_program("iperf3")
    server, client = [iperf, "--server", "--one-off"], [iperf, "--client", ADDRESSES[1]]
    client += ["--time", f"{seconds:g}", "--length", str(message), "--json"]
    return figures(ask(setting, needed, server, client, IPERF_PORT, seconds))


def _ping(needed: Sequence[Process]) -> Figures:
    """Round trips from the first stack to the second, one each millisecond, once the first has been answered: until
    then the stacks look for each other's addresses."""
    _run_ping("-c", "1", "-w", f"{READY_SECONDS:g}")
    text = _run_ping("-i", str(PING_SECONDS), "-c", str(PINGS))
    check_alive(needed)
    return round_trips(text)


def _run_ping(*options: str) -> str:
    argv = ["ip", "netns", "exec", namespace(0), system_program("ping"), "-q", "-n", *options, ADDRESSES[1]]
    seconds = PINGS * PING_SECONDS + 2 * READY_SECONDS
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False).stdout
    except subprocess.TimeoutExpired:
        raise Fault(f"ping has not ended {seconds:g} s after it was started") from None


def round_trips(text: str) -> dict[str, float]:
    """What ping found, from its summary. Raises Fault if nothing was answered.

    `ping_min_us`, `ping_avg_us`, `ping_max_us`, `ping_mdev_us`: of the round trips, mdev their standard deviation
    (ping(8)).
    `ping_lost`: those that were not answered.
    """
    counts = re.search(r"(\d+) packets transmitted, (\d+) received", text)
    times = re.search(r"= ([\d.]+)/([\d.]+)/([\d.]+)/([\d.]+) ms", text)
    if counts is None or times is None:
        raise Fault("ping had no answer")
    shortest, average, longest, deviation = (round(1e3 * float(each), 1) for each in times.groups())
    lost = int(counts[1]) - int(counts[2])
    found = {"ping_min_us": shortest, "ping_avg_us": average, "ping_max_us": longest, "ping_mdev_us": deviation}
    return {**found, "ping_lost": lost}


def ask(
    setting: Setting,
    needed: Sequence[Process],
    server: Sequence[str],
    client: Sequence[str],
    port: int,
    seconds: float,
) -> str:
    """What a client in the first stack prints, which runs for so many seconds, of a server in the second. Raises Fault
    if it does not end, or one of the processes that it needs has."""
    program = Path(client[0]).name
    inside = Limits(cpus=setting.cores.load_place.cpus, network=namespace(1))
    listening = setting.launcher.start(program, server, inside)
    try:
        _wait_listening(port, listening)
        argv = ["ip", "netns", "exec", namespace(0), *client]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds + 30, check=False)
        except subprocess.TimeoutExpired:
            raise Fault(f"{program} has not ended {seconds + 30:g} s after it was started") from None
        check_alive(needed)
        return done.stdout
    finally:
        with undisturbed():
            setting.launcher.state.undo(listening)


def figures(text: str) -> dict[str, float]:
    """What iperf3 found, from its JSON. Raises Fault if there was no connection.

    `gbps`: payload that the receiver got, Gbit/s. `retransmits`: segments that TCP sent again.
    """
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError:
        raise Fault("iperf3 said nothing that could be read") from None
    if "error" in found:
        raise Fault(f"iperf3: {found['error']}")
    end = found["end"]
    return {
        "gbps": round(end["sum_received"]["bits_per_second"] / 1e9, 3),
        "retransmits": end["sum_sent"]["retransmits"],
    }


@contextmanager
def _stack(setting: Setting, end: int, socket: Path) -> Iterator[Process]:
    """A namespace whose only interface leads to the switch. Yields the guest's process."""
    launcher, tap, name = setting.launcher, f"tr{os.getpid() % 100_000}{end}", namespace(end)
    record = Namespace(name)
    launcher.state.add(record)
    argv = [str(own_program(TAP_GUEST)), "--socket", str(socket), "--tap", tap, "--huge"]
    argv += ["--core", str(setting.cores.load)]
    process = None
    try:
        ip("netns", "add", name)
        limits = Limits(cpus=setting.cores.load_place.cpus, umask=UMASK_GUEST)
        process = launcher.start(f"tap-guest-{end}", argv, limits)
        _wait_interface(tap, process)
        add_stack(tap, name, end)
        yield process
    finally:
        with undisturbed():
            if process is not None:
                launcher.state.undo(process)
            launcher.state.undo(record)


def _wait(ready: Callable[[], bool], process: Process, otherwise: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not ready():
        check_alive([process])
        if time.monotonic() > deadline:
            raise Fault(otherwise)
        time.sleep(0.02)


def _wait_interface(name: str, process: Process) -> None:
    _wait(Path(f"/sys/class/net/{name}").exists, process, f"{TAP_GUEST} made no interface {name}")


def _wait_listening(port: int, server: Process) -> None:
    """The port in LISTEN state, /proc/net/tcp of the server, which is in the namespace."""

    def listening() -> bool:
        tables = [Path(f"/proc/{server.pid}/net/{table}") for table in ("tcp", "tcp6")]
        listed = [line for table in tables for line in table.read_text().splitlines()]
        return any(f":{port:04X} " in line and " 0A " in line for line in listed)

    _wait(listening, server, f"{server.program} does not listen")
