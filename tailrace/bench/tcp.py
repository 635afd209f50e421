"""TCP between two Linux network stacks through the switch, with checksums and segmentation passed on, beside a peer.

Each stack lives in a network namespace with one TAP interface, which a small guest (`tailrace-tap-guest`) carries to
the switch over virtio-user; so 64 KiB segments cross as a virtual machine's would. iperf3 measures one connection.
The stacks, the guests and iperf3 share the load's core: it is their limit as much as the switch's.
"""

from __future__ import annotations

import json
import os
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
from tailrace.bench.sides import against_known, check_installed, running
from tailrace.errors import Failure, Fault, Mistake
from tailrace.fabric import ovs_dpdk
from tailrace.fabric.base import Fabric
from tailrace.measure.progress import Reporter
from tailrace.node.record import Namespace, Process
from tailrace.process.process import UMASK_GUEST, Limits, undisturbed
from tailrace.process.programs import own_program, system_program
from tailrace.resources import hugepages

TAP_GUEST = "tailrace-tap-guest"
GUEST_MIB = 96
"""DPDK's memory of one guest."""
MTU = 1500
INTERFACE = "eth0"
ADDRESSES = ("198.18.88.1", "198.18.88.2")
READY_SECONDS = 20.0
START_SECONDS = 6.0
RATIOS = (Ratio("gbps", "gbps", TAILRACE, OVS_DPDK),)
"""Above 1 favours Tailrace."""


@dataclass(frozen=True)
class TcpPlan(Plan):
    """What is to be measured."""

    against: str = OVS_DPDK

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.seconds.is_integer():
            raise Mistake(f"--seconds {self.seconds:g}: expected whole seconds, 1 to 3600, as iperf3 does")
        against_known(self.against)

    @property
    def sides(self) -> Sequence[Side]:
        return [
            Side(name, self.seconds + START_SECONDS, partial(_side, self, name)) for name in against_known(self.against)
        ]

    @property
    def total_seconds(self) -> float:
        return total_seconds(self, self.sides)


def run(plan: TcpPlan, folder: Path, report: Reporter) -> Comparison:
    """Measures all pairs."""
    names = against_known(plan.against)
    check_installed(names)
    for program in ("iperf3", "ip"):
        system_program(program)
    mib = 2 * GUEST_MIB + (ovs_dpdk.MEMORY_MIB if OVS_DPDK in names else 0)
    return compare(
        "tcp",
        plan,
        plan.sides,
        RATIOS,
        folder=folder,
        report=report,
        pages=mib // hugepages.PAGE_MIB + 8,
        programs=("tailrace-switch", TAP_GUEST),
        settings={"mtu": MTU},
    )


def _side(plan: TcpPlan, name: str, setting: Setting, step: Step) -> list[Sample]:
    with ExitStack() as stack:
        switch, sockets = stack.enter_context(running(setting, name, offloads=True))
        names = [f"tailrace-{os.getpid()}-{end}" for end in (0, 1)]
        guests = [
            stack.enter_context(_stack(setting, end, namespace, sockets[end])) for end, namespace in enumerate(names)
        ]
        step(START_SECONDS / 2)
        return setting.samples([*switch.processes(), *guests], lambda: _iperf(plan, setting, names, guests, switch))


def _iperf(
    plan: TcpPlan, setting: Setting, namespaces: Sequence[str], guests: Sequence[Process], switch: Fabric
) -> Figures:
    """One transfer from the first namespace to the second."""
    iperf = system_program("iperf3")
    server = ["ip", "netns", "exec", namespaces[1], iperf, "--server", "--one-off"]
    listening = setting.launcher.start("iperf3", server, Limits(cpus=setting.cores.load_place.cpus))
    try:
        _wait_listening(namespaces[1], listening)
        client = ["ip", "netns", "exec", namespaces[0], iperf, "--client", ADDRESSES[1]]
        client += ["--time", f"{plan.seconds:g}", "--json"]
        try:
            done = subprocess.run(client, capture_output=True, text=True, timeout=plan.seconds + 30, check=False)
        except subprocess.TimeoutExpired:
            raise Fault(f"iperf3 has not ended {plan.seconds + 30:g} s after it was started") from None
        check_alive([*guests, *switch.processes()])
        return figures(done.stdout)
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
def _stack(setting: Setting, end: int, namespace: str, socket: Path) -> Iterator[Process]:
    """A namespace whose only interface leads to the switch. Yields the guest's process."""
    launcher, tap = setting.launcher, f"tr{os.getpid() % 100_000}{end}"
    record = Namespace(namespace)
    launcher.state.add(record)
    argv = [str(own_program(TAP_GUEST)), "--socket", str(socket), "--tap", tap, "--huge"]
    argv += ["--core", str(setting.cores.load)]
    process = None
    try:
        _ip("netns", "add", namespace)
        limits = Limits(cpus=setting.cores.load_place.cpus, umask=UMASK_GUEST)
        process = launcher.start(f"tap-guest-{end}", argv, limits)
        _wait_interface(tap, process)
        _ip("link", "set", tap, "netns", namespace, "name", INTERFACE)
        _ip("-n", namespace, "address", "add", f"{ADDRESSES[end]}/24", "dev", INTERFACE)
        _ip("-n", namespace, "link", "set", INTERFACE, "mtu", str(MTU), "up")
        yield process
    finally:
        with undisturbed():
            if process is not None:
                launcher.state.undo(process)
            launcher.state.undo(record)


def _ip(*words: str) -> None:
    done = subprocess.run([system_program("ip"), *words], capture_output=True, text=True, timeout=10, check=False)
    if done.returncode != 0:
        raise Failure(f"ip {' '.join(words)}: {done.stderr.strip()}")


def _wait(ready: Callable[[], bool], process: Process, otherwise: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not ready():
        check_alive([process])
        if time.monotonic() > deadline:
            raise Fault(otherwise)
        time.sleep(0.02)


def _wait_interface(name: str, process: Process) -> None:
    _wait(Path(f"/sys/class/net/{name}").exists, process, f"{TAP_GUEST} made no interface {name}")


def _wait_listening(namespace: str, server: Process) -> None:
    """Port 5201 in LISTEN state, /proc/net/tcp of the server, which runs in the namespace."""

    def listening() -> bool:
        tables = [Path(f"/proc/{server.pid}/net/{table}") for table in ("tcp", "tcp6")]
        return any(":1451 " in line and " 0A " in line for table in tables for line in table.read_text().splitlines())

    _wait(listening, server, f"iperf3 does not listen in {namespace}")
