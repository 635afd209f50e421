"""A function in a sandbox: its own user, mount, PID, network, IPC and host-name namespace; no capabilities; a memory
limit; a file system in which nothing stands but its program, that program's libraries and its own sockets, and in which
/proc cannot be written.

bubblewrap builds it. What a function may reach of the machine is listed here and nowhere else.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tailrace.errors import Failure
from tailrace.host.launch import Launcher
from tailrace.host.place import Place
from tailrace.host.process import Limits
from tailrace.host.programs import own_program, system_program
from tailrace.host.state import Process
from tailrace.vnf.limit import limit_memory

#: Read by DPDK at its start: which CPUs there are, and which huge pages.
_SYSTEM = ("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/hugepages")
#: DPDK's drivers for a port on vhost-user, and what they stand on.
_DRIVERS = ("librte_bus_vdev", "librte_mempool_ring", "librte_net_virtio")
#: Where the program stands in the sandbox.
_INSIDE = "/tailrace-vnf"
_LIBRARY = re.compile(r"(?:=>\s*)?(/\S+)\s+\(0x[0-9a-f]+\)")


@dataclass(frozen=True)
class Sandboxed:
    """A function to start."""

    name: str
    kind: str
    ports: tuple[Path, ...]
    """The sockets of its ports, in order; it connects to them."""
    place: Place
    memory_bytes: int
    """The limit of the sandbox."""
    buffers_mib: int
    """What DPDK gets for packet buffers and rings, in huge pages where `huge`."""
    huge: bool
    settings: tuple[str, ...] = ()
    """Of the function, as NAME=VALUE."""


def libraries(program: Path) -> list[Path]:
    """The libraries that a program loads, as ldd(1) finds them, the loader included."""
    done = subprocess.run(["ldd", str(program)], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        raise Failure(f"{program}: ldd cannot read it: {done.stderr.strip()}")
    missing = [line.split()[0] for line in done.stdout.splitlines() if "not found" in line]
    if missing:
        raise Failure(f"{program}: the library {missing[0]} is missing; build again with `make`")
    return [Path(path) for path in _LIBRARY.findall(done.stdout)]


def visible_libraries(program: Path) -> list[Path]:
    """What a function's program needs of the machine's libraries: what it is linked to, and the drivers it uses.

    DPDK loads every driver that it finds in its folder, some two hundred; in the sandbox it finds these.
    """
    drivers = [
        found
        for folder in sorted(Path("/usr/lib").glob("*/dpdk/pmds-*"))
        for name in _DRIVERS
        for found in sorted(folder.glob(f"{name}.so.*.*"))
    ]
    needed: dict[Path, None] = dict.fromkeys(libraries(program))
    for driver in drivers:
        needed.update(dict.fromkeys([driver, *libraries(driver)]))
    return list(needed)


def command(function: Sandboxed) -> list[str]:
    """The whole command line: the sandbox and the function in it."""
    program = own_program("tailrace-vnf")
    argv = [system_program("bwrap")]
    argv += ["--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    argv += ["--unshare-cgroup-try", "--hostname", function.name, "--uid", "65534", "--gid", "65534"]
    argv += ["--cap-drop", "ALL", "--die-with-parent", "--new-session", "--clearenv"]
    # Started by root, the function is still root to the owner check of /proc/sys (core_pattern, nr_hugepages), which
    # asks for no capability: only a read-only mount refuses it. A user namespace of the function's own could make
    # mounts of its own, so it gets none.
    argv += ["--proc", "/proc", "--remount-ro", "/proc", "--disable-userns"]
    argv += ["--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run"]
    # DPDK asks there whether VFIO is loaded, and takes a missing folder for an error: this one is empty.
    argv += ["--dir", "/sys/module"]
    for shown in _SYSTEM:
        if Path(shown).exists():
            argv += ["--ro-bind", shown, shown]
    for library in visible_libraries(program):
        argv += ["--ro-bind", str(library.resolve()), str(library)]
    argv += ["--ro-bind", str(program), _INSIDE]
    inside = [f"/run/port{index}" for index in range(len(function.ports))]
    for path, place in zip(function.ports, inside, strict=True):
        argv += ["--ro-bind", str(path), place]
    argv += ["--chdir", "/", "--remount-ro", "/", "--"]
    return argv + function_command(_INSIDE, function, inside)


def function_command(program: str, function: Sandboxed, sockets: Sequence[str]) -> list[str]:
    """The function's own command line."""
    argv = [program, function.kind]
    for socket in sockets:
        argv += ["--port", f"vhost:{socket}"]
    argv += ["--mode", function.place.mode, "--core", str(function.place.core)]
    argv += ["--memory", str(function.buffers_mib)]
    for setting in function.settings:
        argv += ["--set", setting]
    return argv + (["--huge"] if function.huge else [])


def start_function(launcher: Launcher, function: Sandboxed) -> tuple[Process, str]:
    """Starts a function in its sandbox; returns its process and what limits its memory.

    It has no real-time priority yet: see `set_real_time`.
    """
    # Ordinary memory holds the packet buffers too where there are no huge pages.
    size = function.memory_bytes + (0 if function.huge else function.buffers_mib << 20)
    limit = limit_memory(launcher.state, function.name, size)
    limits = Limits(
        cpus=function.place.cpus,
        nice=function.place.nice,
        cgroup=limit.cgroup,
        data_bytes=limit.data_bytes,
    )
    process = launcher.start(function.name, command(function), limits)
    return process, limit.mechanism


def program_in(process: Process) -> int | None:
    """The pid of the function itself, inside the sandbox; None while it is not there."""
    inner = process.inner()
    for name in reversed(inner):
        try:
            if Path(f"/proc/{name.pid}/exe").readlink().name == "tailrace-vnf":
                return name.pid
        except OSError:
            continue
    return None
