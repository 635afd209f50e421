"""TCP between two Linux network stacks: iperf3 measures one connection, with writes of a size; ping the round trip.

Each stack lives in a network namespace. A switch joins them by a small guest for each (`tailrace-tap-guest`), which
carries a TAP interface's frames to the switch over virtio-user, with checksums and segmentation passed on; so 64 KiB
segments cross as a virtual machine's would. Beside switches there are ways of Linux's own (`tailrace.measure.stacks`),
without a guest.
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
from pathlib import Path
from typing import Any

from tailrace.errors import Fault, Mistake
from tailrace.measure.stacks import ADDRESSES, PASSTHROUGH, add_stack, ip, joined
from tailrace.process.process import UMASK_GUEST, Limits, undisturbed
from tailrace.process.programs import own_program, system_program
from tailrace.resources.place import Place
from tailrace.state.launch import Launcher, why_ended
from tailrace.state.record import Namespace, Process

TAP_GUEST = "tailrace-tap-guest"
GUEST_MIB = 96
"""DPDK's memory of one guest."""
IPERF_PORT = 5201
_TUN = Path("/dev/net/tun")
READY_SECONDS = 20.0
_AGAIN_SECONDS = 0.1
START_SECONDS = 6.0
BULK = 128 * 1024
"""Bytes that iperf3 writes at once unless told."""
PINGS, PING_SECONDS = 1000, 0.001
"""How many, and from one to the next."""


def check_programs() -> None:
    """Raises Mistake, with the package, if a program that measures is not installed."""
    for program in ("iperf3", "ip", "ping"):
        system_program(program)


def check_guests() -> None:
    """Raises Mistake, with the cure, if stacks cannot be behind a switch: no program for that, or no TAP interfaces."""
    own_program(TAP_GUEST)
    if not _TUN.exists():
        raise Mistake(
            f"this machine has no {_TUN}, so a stack cannot be behind a switch; run `sudo modprobe tun`, and give a "
            "container the device"
        )


def side_seconds(seconds: float, messages: int) -> float:
    """How long all of one way takes, with transfers of so many seconds and sizes."""
    return START_SECONDS + PINGS * PING_SECONDS + seconds * messages


@dataclass(frozen=True)
class Stacks:
    """Two stacks that are joined."""

    launcher: Launcher
    place: Place
    """Where the guests are, and the servers in the second stack."""
    needed: tuple[Process, ...] = ()
    """The processes without which the stacks are not joined."""
    card: bool = False
    """A card joins them."""

    def check(self) -> None:
        """Raises Fault, with its last words, if one of them has ended."""
        for process in self.needed:
            if not process.id.alive():
                raise Fault(why_ended(self.launcher, process))


def namespace(end: int) -> str:
    """Where a stack is; the ways between them have namespaces of their own (`tailrace.fabric.network`)."""
    return f"tailrace-{os.getpid()}-stack-{end}"


@contextmanager
def own_way(launcher: Launcher, place: Place, way: str, card: str | None) -> Iterator[Stacks]:
    """Two stacks that are joined in one of OWN_WAYS. Raises Failure, Mistake."""
    with joined(launcher.state, way, card, (namespace(0), namespace(1))):
        yield Stacks(launcher, place, card=way == PASSTHROUGH)


@contextmanager
def behind(
    launcher: Launcher, place: Place, sockets: Sequence[Path], switch: Sequence[Process], *, huge: bool = True
) -> Iterator[Stacks]:
    """Two stacks behind a switch that runs, and comes to guests at these sockets. Raises Failure."""
    with ExitStack() as stack:
        guests = [
            stack.enter_context(_guest(launcher, place, end, path, huge=huge)) for end, path in enumerate(sockets)
        ]
        yield Stacks(launcher, place, (*switch, *guests))


def transfer(stacks: Stacks, seconds: float, message: int = BULK) -> dict[str, float]:
    """One transfer from the first stack to the second, by writes of so many bytes, over whole seconds."""
    iperf = system_program("iperf3")
    server, client = [iperf, "--server", "--one-off"], [iperf, "--client", ADDRESSES[1]]
    client += ["--time", f"{seconds:g}", "--length", str(message), "--json"]
    return figures(ask(stacks, server, client, IPERF_PORT, seconds))


def ping(stacks: Stacks) -> dict[str, float]:
    """Round trips from the first stack to the second, one each millisecond, once the first has been answered: until
    then the stacks look for each other's addresses, and wait for a link. Raises Fault if nothing is answered."""
    deadline = time.monotonic() + READY_SECONDS
    # With -w ping ends sooner where the network refuses, as it does when nobody answers for the address.
    while not _answered(_run_ping("-c", "1", "-w", "1")):
        stacks.check()
        if time.monotonic() > deadline:
            which = "; `dmesg` says which has no link" if stacks.card else ""
            raise Fault(f"one stack did not reach the other in {READY_SECONDS:g} s{which}")
        time.sleep(_AGAIN_SECONDS)
    text = _run_ping("-i", str(PING_SECONDS), "-c", str(PINGS))
    stacks.check()
    return round_trips(text)


def _answered(text: str) -> bool:
    """Whether ping had an answer, by its summary."""
    return re.search(r"\b[1-9]\d* received", text) is not None


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
    stacks: Stacks,
    server: Sequence[str],
    client: Sequence[str],
    port: int,
    seconds: float,
) -> str:
    """What a client in the first stack prints, which runs for so many seconds, of a server in the second. Raises Fault
    if it does not end, or one of the processes that it needs has."""
    program = Path(client[0]).name
    inside = Limits(cpus=stacks.place.cpus, network=namespace(1))
    listening = stacks.launcher.start(program, server, inside)
    try:
        _wait_listening(stacks.launcher, port, listening)
        argv = ["ip", "netns", "exec", namespace(0), *client]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds + 30, check=False)
        except subprocess.TimeoutExpired:
            raise Fault(f"{program} has not ended {seconds + 30:g} s after it was started") from None
        stacks.check()
        return done.stdout
    finally:
        with undisturbed():
            stacks.launcher.state.undo(listening)


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
def _guest(launcher: Launcher, place: Place, end: int, socket: Path, *, huge: bool) -> Iterator[Process]:
    """A namespace whose only interface leads to the switch. Yields the guest's process."""
    tap, name = f"tr{os.getpid() % 100_000}{end}", namespace(end)
    record = Namespace(name)
    launcher.state.add(record)
    argv = [str(own_program(TAP_GUEST)), "--socket", str(socket), "--tap", tap]
    argv += ["--core", str(place.core), *(["--huge"] if huge else [])]
    process = None
    try:
        ip("netns", "add", name)
        limits = Limits(cpus=place.cpus, umask=UMASK_GUEST)
        process = launcher.start(f"tap-guest-{end}", argv, limits)
        _wait_interface(launcher, tap, process)
        add_stack(tap, name, end)
        yield process
    finally:
        with undisturbed():
            if process is not None:
                launcher.state.undo(process)
            launcher.state.undo(record)


def _wait(launcher: Launcher, ready: Callable[[], bool], process: Process, otherwise: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not ready():
        if not process.id.alive():
            raise Fault(why_ended(launcher, process))
        if time.monotonic() > deadline:
            raise Fault(otherwise)
        time.sleep(0.02)


def _wait_interface(launcher: Launcher, name: str, process: Process) -> None:
    _wait(launcher, Path(f"/sys/class/net/{name}").exists, process, f"{TAP_GUEST} made no interface {name}")


def _wait_listening(launcher: Launcher, port: int, server: Process) -> None:
    """The port in LISTEN state, /proc/net/tcp of the server, which is in the namespace."""

    def listening() -> bool:
        tables = [Path(f"/proc/{server.pid}/net/{table}") for table in ("tcp", "tcp6")]
        listed = [line for table in tables for line in table.read_text().splitlines()]
        return any(f":{port:04X} " in line and " 0A " in line for line in listed)

    _wait(launcher, listening, server, f"{server.program} does not listen")
