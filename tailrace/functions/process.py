"""A function in a process of its own, and that in a sandbox: its own user, mount, PID, network, IPC and host-name
namespace; no capabilities; a memory limit; a file system in which nothing stands but its program, that program's
libraries and its own sockets, and in which /proc cannot be written.

A function that was given a network namespace is in that one, without capabilities there: it may open the TAP interfaces
that are its group's (`tailrace.functions.namespace`).

A function on a device that vfio-pci has (`pci:`) sees that device in /sys and the file of its IOMMU group, and no
other. It needs no capability: the file is its owner's, and it may lock as much memory as it has.

A function on an interface of Linux's (TAP, veth) is in that interface's network namespace instead of one of its own,
with the capabilities that opening it takes there, and so in no user namespace of its own.

bubblewrap builds it. What a function may reach of the machine is listed here and nowhere else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from tailrace.errors import Mistake
from tailrace.functions.limit import UNGROUPED, limit_memory
from tailrace.functions.program import (
    BUFFERS_MIB,
    HOST_CARD,
    NAME,
    function_command,
    refuses_cpus,
    threads_of,
    visible_libraries,
    wait_until_ready,
)
from tailrace.functions.runtime import Instance, Load, Started, Starter, Used
from tailrace.functions.threads import use_cpus
from tailrace.kernel.tree import Tree
from tailrace.process.process import UMASK_GUEST, Limits, set_real_time
from tailrace.process.programs import own_program, system_program
from tailrace.resources.pci import check_passthrough
from tailrace.resources.place import Place
from tailrace.resources.virtual_functions import vfio_group
from tailrace.spec.interface import passed_through
from tailrace.state.launch import Launcher
from tailrace.state.record import Process, State

#: Read by DPDK at its start: which CPUs there are, and which huge pages: those that are reserved for it, of 2 MiB. By
#: itself it would take the largest that are free, somebody else's of 1 GiB, and share all of one with the switch.
_SYSTEM = ("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/hugepages/hugepages-2048kB")
#: What begins the URI of an interface of Linux's.
_LINUX = ("tap:", "if:")
TUN = "/dev/net/tun"
#: Where the program stands in the sandbox.
_INSIDE = "/tailrace-vnf"


def inside(uri: str, number: int) -> tuple[str, list[str]]:
    """A port's URI in the sandbox, and the arguments that let the sandbox see its socket, at /run/portNUMBER."""
    scheme, _, rest = uri.partition(":")
    place = f"/run/port{number}"
    if scheme == "vhost":
        return f"vhost:{place}", ["--ro-bind", rest, place]
    if scheme in ("memif", "vhost-server"):
        path, comma, words = rest.partition(",")
        folder, _, name = path.rpartition("/")
        return f"{scheme}:{place}/{name}{comma}{words}", ["--bind", folder, place]
    if uri.startswith("vdev:net_vhost"):
        before, _, after = rest.partition("iface=")
        path, comma, words = after.partition(",")
        folder, _, name = path.rpartition("/")
        return f"vdev:{before}iface={place}/{name}{comma}{words}", ["--bind", folder, place]
    return uri, []


def command(function: Instance, ends: int | None = None) -> list[str]:
    """The whole command line: the sandbox and the function in it. How that ends is written to the descriptor `ends`."""
    program = own_program(NAME)
    linux = any(uri.startswith(_LINUX) for uri in function.ports)
    argv = [system_program("bwrap")]
    if ends is not None:
        argv += ["--json-status-fd", str(ends)]
    argv += ["--unshare-ipc", "--unshare-pid", "--unshare-uts"]
    argv += ["--unshare-cgroup-try", "--hostname", function.name]
    argv += ["--cap-drop", "ALL", "--die-with-parent", "--new-session", "--clearenv"]
    argv += ["--proc", "/proc", "--remount-ro", "/proc"]
    argv += ["--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run"]
    if linux:
        argv += ["--cap-add", "CAP_NET_ADMIN", "--cap-add", "CAP_NET_RAW", "--cap-add", "CAP_IPC_LOCK"]
        argv += ["--dev-bind", TUN, TUN]
    else:
        # Started by root, the function is still root to the owner check of /proc/sys (core_pattern, nr_hugepages),
        # which asks for no capability: only a read-only mount refuses it. A user namespace of the function's own could
        # make mounts of its own, so it gets none.
        argv += ["--unshare-user", "--uid", "65534", "--gid", "65534", "--disable-userns"]
        argv += ["--unshare-net"] if function.network is None else ["--dev-bind", TUN, TUN]
    # DPDK asks there whether VFIO is loaded, and takes a missing folder for an error: this one is empty.
    argv += ["--dir", "/sys/module"]
    for shown in _SYSTEM:
        if Path(shown).exists():
            argv += ["--ro-bind", shown, shown]
    on_card = any(uri.startswith("pci:") for uri in function.ports)
    for library in visible_libraries(program, (*function.ports, *([HOST_CARD] if on_card else []))):
        argv += ["--ro-bind", str(library.resolve()), str(library)]
    argv += ["--ro-bind", str(program), _INSIDE]
    argv += devices(Tree(), [uri.removeprefix("pci:") for uri in function.ports if uri.startswith("pci:")])
    seen = [inside(uri, number) for number, uri in enumerate(function.ports)]
    for _, arguments in seen:
        argv += arguments
    argv += ["--chdir", "/", "--remount-ro", "/", "--"]
    return argv + function_command(_INSIDE, function, [uri for uri, _ in seen])


def devices(tree: Tree, addresses: Sequence[str]) -> list[str]:
    """The arguments that let a sandbox see these devices, and nothing else of the PCI bus. Raises Mistake if one is not
    to be given away."""
    if not addresses:
        return []
    argv = ["--dir", "/sys/module/vfio", "--dir", "/sys/module/vfio_pci", "--dir", "/sys/bus/pci/drivers/vfio-pci"]
    files = dict.fromkeys(vfio_group(tree, address) for address in addresses)
    for file in ("/dev/vfio/vfio", *files):
        argv += ["--dev-bind", file, file]
    root = tree.root.resolve()
    for address in addresses:
        link = f"/sys/bus/pci/devices/{address}"
        device = f"/{tree.at(link).resolve().relative_to(root)}"
        argv += ["--ro-bind", device, device, "--symlink", device, link]
        # DPDK asks it how long addresses may be.
        iommu = f"/{tree.at(f'{link}/iommu').resolve().relative_to(root)}"
        argv += ["--ro-bind", iommu, iommu] if tree.exists(iommu) else []
    return argv


def _ends(logs: Path, name: str) -> Path:
    """Where the sandbox of a function says how that ended."""
    return logs / f"{name}.end"


def lockable(instance: Instance) -> int | None:
    """How much memory a function may lock: a device reaches all that DPDK has, so vfio locks that."""
    if not any(uri.startswith("pci:") for uri in instance.ports):
        return None
    return instance.memory_bytes + (BUFFERS_MIB + instance.tables_mib << 20)


class InProcess(Starter):
    """The runtime of functions that Tailrace brings along (tailrace-vnf)."""

    name = "process"
    usual = True
    images = False
    listens = True
    hands_over = True
    threads = True
    elastic = True
    buffers_mib = BUFFERS_MIB

    def refuses_cpus(self, kind: str | None, start: int, most: int) -> str | None:
        return super().refuses_cpus(kind, start, most) or refuses_cpus(kind, most)

    def tells_load(self, kind: str | None, driver: str, *, polls: bool) -> Load | None:
        del driver, polls
        return "rounds" if kind is not None else None

    def refuses_interface(self, interface: str) -> str | None:
        if passed_through(interface) and not interface.startswith("vf:"):
            try:
                check_passthrough(interface.removeprefix("pci:"))
            except Mistake as mistake:
                return str(mistake)
        return None

    def check(self) -> None:
        own_program(NAME)
        system_program("bwrap")

    def start(self, launcher: Launcher, instance: Instance) -> Started:
        """It has no real-time priority before it forwards: see `wait`."""
        # Ordinary memory holds packet buffers and tables too where there are no huge pages.
        size = self.ordinary_bytes(instance.memory_bytes, instance.tables_mib, huge=instance.huge)
        limit = limit_memory(launcher, instance.name, size)
        limits = Limits(
            cpus=instance.place.cpus,
            nice=instance.place.nice,
            memory_bytes=limit.memory_bytes,
            cgroup=limit.cgroup,
            data_bytes=limit.data_bytes,
            groups=(instance.group,) if instance.group else (),
            network=instance.network,
            locked_bytes=lockable(instance),
            umask=UMASK_GUEST if any(uri.startswith("vhost-server:") for uri in instance.ports) else None,
        )
        ends = os.open(_ends(launcher.logs, instance.name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            words = command(instance, ends)
            process = launcher.start(
                instance.name, words, limits, keep=[ends], bounded=True, before=limit.before, runtime=self.name
            )
        finally:
            os.close(ends)
        return Started(process, [UNGROUPED] if limit.data_bytes is not None else ())

    def wait(self, launcher: Launcher, process: Process, place: Place, deadline: float, *, says: bool = True) -> None:
        """Waits until it says that it forwards, and gives it its real-time priority. That it is attached does not say
        so: in interrupt mode its ports go down once more while it starts."""
        if not says:
            return
        wait_until_ready(launcher, process, deadline)
        if place.priority is not None:
            set_real_time(process.pid, place.priority)

    def cpus_of(self, place: Place, cpus: int, most: int) -> list[int]:
        del most
        return threads_of(place, cpus)

    def use_cpus(self, state: State, process: Process, cpus: Sequence[int], wait_ms: int = 0) -> Used:
        return use_cpus(state, process, cpus, wait_ms)

    def program(self, process: Process) -> int | None:
        for name in reversed(process.inner()):
            try:
                if Path(f"/proc/{name.pid}/exe").readlink().name == NAME:
                    return name.pid
            except OSError:
                continue
        return None

    def ended_well(self, process: Process, logs: Path) -> bool:
        """Not if its sandbox was killed, or anything else is said of it."""
        try:
            said = [json.loads(line) for line in _ends(logs, process.name).read_text().splitlines()]
        except (OSError, ValueError):
            return False
        return any(isinstance(each, dict) and each.get("exit-code") == 0 for each in said)
