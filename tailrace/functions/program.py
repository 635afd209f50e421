"""Tailrace's own functions (tailrace-vnf), wherever they live: their program, what it needs beside it, how it is told
what to do."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tailrace.errors import Failure, Fault
from tailrace.functions.runtime import Instance
from tailrace.process.plain import last_line
from tailrace.resources.place import Place
from tailrace.spec.model import SETTINGS
from tailrace.spec.port import MOST_QUEUES
from tailrace.state.launch import Launcher, why_ended
from tailrace.state.record import Process

NAME = "tailrace-vnf"
INTERRUPT_RECEIVER = "tailrace-interrupt-receiver"
"""What `measure interrupts` runs in a machine."""
RECORDER_PROGRAM = "tailrace-recorder"
"""What notes there what its kernel did."""
PRIORITY_AGENT = "tailrace-priority-agent"
"""What says in a machine what its CPUs run."""
HOST_CARD = "card:"
"""Stands for any card of this machine's, beside `pci:`; a machine's guest sees few kinds."""
#: DPDK's drivers for ports by the beginning of their URI, and what every one stands on.
_DRIVERS = {
    "": ("librte_bus_vdev", "librte_mempool_ring"),
    "vhost:": ("librte_net_virtio",),
    "vhost-server:": ("librte_net_virtio",),
    "pci:": ("librte_bus_pci", "librte_net_virtio", "librte_net_e1000", "librte_net_vmxnet3"),
    HOST_CARD: ("librte_net_iavf", "librte_net_ixgbe", "librte_net_ice", "librte_net_i40e", "librte_net_bnxt"),
    "vdev:net_vhost": ("librte_net_vhost",),
    "memif:": ("librte_net_memif",),
    "tap:": ("librte_net_tap",),
    "if:": ("librte_net_af_packet",),
}
#: DPDK's memory of a function: packet buffers and rings.
BUFFERS_MIB = 64
READY = "forwarding"
"""What a function says when it forwards (dataplane/functions/main.c)."""
_LIBRARY = re.compile(r"(?:=>\s*)?(/\S+)\s+\(0x[0-9a-f]+\)")


def libraries(program: Path) -> list[Path]:
    """The libraries that a program loads, as ldd(1) finds them, the loader included."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, timeout=30, check=False)
    if "not a dynamic executable" in done.stdout + done.stderr:  # it has all inside
        return []
    if done.returncode != 0:
        raise Failure(f"{program}: ldd cannot read it: {last_line(done.stderr)}")
    missing = [line.split()[0] for line in done.stdout.splitlines() if "not found" in line]
    if missing:
        raise Failure(f"{program}: the library {missing[0]} is missing; build again with `make setup`")
    return [Path(path) for path in _LIBRARY.findall(done.stdout)]


@cache
def _found(program: Path, changed: int) -> list[Path]:
    """The libraries of a program that was last changed at that time: a service starts the same one again and again."""
    del changed
    return libraries(program)


def visible_libraries(program: Path, ports: Sequence[str] = ("vhost:",)) -> list[Path]:
    """What a function's program needs of the machine's libraries: what it is linked to, and the drivers of its ports.

    DPDK loads every driver that it finds in its folder, some two hundred; in the sandbox it finds these.
    """
    names = [name for begin, needed in _DRIVERS.items() if any(p.startswith(begin) for p in ports) for name in needed]
    drivers = [
        found
        for folder in sorted(Path("/usr/lib").glob("*/dpdk/pmds-*"))
        for name in names
        for found in sorted(folder.glob(f"{name}.so.*.*"))
    ]
    needed: dict[Path, None] = dict.fromkeys(_found(program, program.stat().st_mtime_ns))
    for driver in drivers:
        needed.update(dict.fromkeys([driver, *_found(driver, driver.stat().st_mtime_ns)]))
    return list(needed)


def function_command(
    program: str,
    function: Instance,
    uris: Sequence[str],
    *,
    core: int | None = None,
    mode: str | None = None,
    huge: bool | None = None,
    commands: str | None = None,
) -> list[str]:
    """The function's own command line. Where it lives in a system of its own, it has that one's `core`, `mode` and
    huge pages, and takes `commands` from a FIFO there."""
    argv = [program, function.kind]
    for uri in uris:
        argv += ["--port", uri]
    cores = threads_of(function.place, function.cpus) if core is None else [core]
    argv += ["--mode", mode or function.place.mode, "--core", ",".join(map(str, cores))]
    if core is None and function.most_cpus > 1:
        argv += ["--queues", str(function.most_cpus)]
    argv += ["--memory", str(BUFFERS_MIB + function.tables_mib)]
    for setting in function.settings:
        argv += ["--set", setting]
    if commands is not None:
        argv += ["--commands", commands]
    scheme, _, path = uris[0].partition(":") if uris else ("", "", "")
    if scheme == "vhost-server":
        argv += ["--control", str(control_beside(Path(path)))]
    return argv + (["--huge"] if (function.huge if huge is None else huge) else [])


def threads_of(place: Place, cpus: int) -> list[int]:
    """The CPU of each thread of a function that has so many: where it has none of its own, they share."""
    if place.mode == "poll":
        return list(place.cores)
    shared = place.cpus if place.core in place.cpus else (place.core,)
    at = shared.index(place.core)
    return [shared[(at + number) % len(shared)] for number in range(cpus)]


def control_beside(socket: Path) -> Path:
    """Where a function answers what it is asked, in the folder of the socket of its first port."""
    return socket.with_name("control")


def refuses_cpus(kind: str | None, most: int) -> str | None:
    """Why a function of this kind cannot use so many CPUs; None if it can, or is somebody else's."""
    if most == 1 or kind is None:
        return None
    why = SETTINGS[kind].one_thread
    if why is not None:
        return f"{most} CPUs; kind {kind} has one thread, because {why}; expected 1"
    return (
        f"{most} CPUs; each has a queue, and ports have {MOST_QUEUES}; expected no more" if most > MOST_QUEUES else None
    )


def wait_until_ready(launcher: Launcher, process: Process, deadline: float, lines: int = 1) -> None:
    """Waits until a function says that it forwards; `deadline` is of time.monotonic(). Raises Fault if it has ended,
    and Failure after the deadline, with the last `lines` of its log."""
    while not launcher.said(process.name, READY):
        if not process.id.alive():
            raise Fault(why_ended(launcher, process, lines))
        if time.monotonic() > deadline:
            raise launcher.failure(
                process.name, f"{process.name} was not ready in time: nobody came to its ports", lines
            )
        time.sleep(0.01)
