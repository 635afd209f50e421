"""The connection to libvirt, which owns the machines, and what of it there is on this host.

It is the system's (qemu:///system), so that `virsh` and an operator's monitoring see the machines. Where no service
manager starts libvirt's daemons, Tailrace starts them itself, with a socket of its own; they end by themselves when
they have had no machine and no client for a while.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

from tailrace.errors import Failure, Mistake
from tailrace.kernel.boot import boot_id
from tailrace.kernel.tree import Tree
from tailrace.process import lock
from tailrace.process import reaper as reaper_program
from tailrace.process.if_killed import if_killed
from tailrace.process.plain import last_line, plain
from tailrace.process.process import Limits, ProcessId, end, identify, start
from tailrace.process.programs import system_program
from tailrace.process.systemd import systemd_has

_SYSTEMS = Path("/run/libvirt/libvirt-sock")
ENVIRONMENT = "TAILRACE_LIBVIRT"
OWN = Path(os.environ.get(ENVIRONMENT) or "/run/tailrace-libvirt")
"""Where the daemons that Tailrace has started have their socket: another one for each node that has a libvirt of its
own, in a mount namespace where /run/libvirt and /var/lib/libvirt are its own too."""
_SYSTEM = "qemu:///system"
_OWN = f"qemu+unix:///system?socket={OWN}/libvirt-sock"
_LOGGER = Path("/run/libvirt/virtlogd-sock")
_PIDS = Path("/run/libvirt/qemu")
_STARTING = re.compile("<domstatus [^>]*reason='starting up'")
_WAITED = re.compile(r"\S+Z qemu-system-x86_64: -chardev \S+: info: QEMU waiting for connection on: \S+\s*")
#: What to do about it, by what libvirt says.
_CURES = {
    "guest RAM: Cannot allocate memory": "its memory was set aside, and another program has taken it meanwhile: try "
    "again, or see who has memory and huge pages by `tailrace node resources` and `grep Huge /proc/meminfo`",
    "load of migration failed": "the state is damaged or cut short, or of another QEMU or CPU: save it anew",
    "End of file while reading data": "libvirt's daemon has ended meanwhile: try again",
}
_VCPU = re.compile(r"CPU (\d{1,3})/")
_IDLE_SECONDS = 10
_START_SECONDS = 20.0
_ASK_SECONDS = 2.0
_PATIENCE_SECONDS = 10.0
"""After which a reaper is asked again for daemons that do not answer."""
_RESUME = """\
export LC_ALL=C
sleep 1
while [ "$("$1" --connect "$2" domstate "$3")" = paused ]; do
  "$1" --connect "$2" resume "$3" && exit
  sleep 1
done
"""
"""Has a machine go on that stands still: libvirt refuses that as long as it saves it."""
_CONFIGURATION = """\
unix_sock_dir = "{folder}"
unix_sock_rw_perms = "0700"
unix_sock_ro_perms = "0700"
unix_sock_admin_perms = "0700"
auth_unix_ro = "none"
auth_unix_rw = "none"
host_uuid = "{host}"
"""


def library() -> ModuleType:
    """libvirt's binding. Raises Mistake where it is missing."""
    try:
        import libvirt
    except ImportError:
        raise Mistake("libvirt's binding for Python is missing: run `scripts/setup machines`") from None
    libvirt.registerErrorHandler(lambda *_: None, None)  # else it prints what is also raised
    return libvirt  # type: ignore[no-any-return]


def connect() -> Any:
    """A connection (virConnect). Raises Failure, Mistake."""
    libvirt = library()
    if _SYSTEMS.exists():
        try:
            return libvirt.open(_SYSTEM)
        except libvirt.libvirtError as error:
            if systemd_has(Tree()):
                raise Failure(
                    f"libvirt does not answer: {plain(str(error))}; start it: `systemctl start libvirtd.service`"
                ) from None
    elif systemd_has(Tree()):
        raise Mistake("libvirtd does not run; start it: `systemctl enable --now libvirtd.socket`")
    if _LOGGER.exists():
        with suppress(libvirt.libvirtError):  # they run already
            return libvirt.open(_OWN)
    try:
        _start()
        return libvirt.open(_OWN)
    except libvirt.libvirtError as error:
        raise Failure(f"libvirt does not answer: {plain(str(error))}; see {OWN}/log") from None


def create(begin: Callable[[], Any], seconds: float, sockets: Sequence[Path]) -> str:
    """Starts a machine by a call of libvirt's that returns it, and returns it in libvirt's words. QEMU makes the
    `sockets` of its ports, each when the switch has come to the one before, and they are opened to it here: nobody else
    can enter their folders. Raises Failure, also where a socket is not there, or nobody comes, within so many
    seconds."""
    libvirt = library()
    made: list[str] = []
    said: list[Exception] = []

    def call() -> None:
        try:
            made.append(begin().XMLDesc())
        except libvirt.libvirtError as error:
            said.append(error)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    deadline = time.monotonic() + seconds
    closed = list(sockets)
    while caller.is_alive() and time.monotonic() < deadline:
        closed = [each for each in closed if not open_to_all(each)]
        caller.join(0.02)
    if caller.is_alive():
        raise Failure(f"libvirt has not started the machine within {seconds:g} s: does the switch come to its ports?")
    if said:
        raise Failure(f"libvirt does not start the machine: {_why_not_started(str(said[0]))}")
    return made[0]


def _why_not_started(said: str) -> str:
    """What libvirt says, without what QEMU has said of ports that it waited at; with the cure where there is one."""
    why = plain(_WAITED.sub("", said)).strip()
    return why + next((f"; {cure}" for words, cure in _CURES.items() if words in why), "")


def open_to_all(socket: Path) -> bool:
    """Whether a socket is there, which is then open to who can reach it. What else may stand there is left alone."""
    try:
        handle = os.open(socket, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if stat.S_ISSOCK(os.fstat(handle).st_mode):
            Path(f"/proc/self/fd/{handle}").chmod(0o666)
    finally:
        os.close(handle)
    return True


def device_name(address: str) -> str:
    """What libvirt calls a PCI device."""
    return f"pci_{address.replace(':', '_').replace('.', '_')}"


def give_back(address: str) -> str | None:
    """Gives a PCI device that libvirt has bound to vfio-pci back to its own driver; returns why that cannot be, or
    None. libvirt may learn of the end of the machine that had it a moment later."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            libvirt = library()
            connect().nodeDeviceLookupByName(device_name(address)).reAttach()
            return None
        except (Failure, Mistake) as error:
            return f"PCI device {address}: {error}"
        except libvirt.libvirtError as error:
            if error.get_error_code() == libvirt.VIR_ERR_NO_NODE_DEVICE:  # it has gone
                return None
            if time.monotonic() > deadline:
                return f"PCI device {address}: libvirt does not give it back to its driver: {plain(str(error))}"
        time.sleep(0.1)


def end_machine(name: str) -> None:
    """Ends a machine, if there is one of this name; also where libvirt's daemon ends meanwhile and comes back. Raises
    Failure, Mistake."""
    libvirt = library()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        if not (_PIDS / f"{name}.pid").exists():  # libvirt has forgotten it, or was never asked
            return
        if not _SYSTEMS.exists() and _half_started(name) and not _answers():
            _end_forgotten(name)
            return
        try:
            connect().lookupByName(name).destroy()
            return
        except libvirt.libvirtError as error:
            if error.get_error_code() in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_OPERATION_INVALID):
                _end_forgotten(name)
                return
            if time.monotonic() > deadline:
                raise Failure(f"libvirt does not end it: {plain(str(error))}") from None
        except Failure:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _end_forgotten(name: str) -> None:
    """Ends the QEMU of a machine whose libvirt was killed while it started that, with what it has written of it."""
    try:
        process = identify(machine_pid(name))
        words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0") if process is not None else []
    except (OSError, ValueError):
        return
    if process is not None and any(word.startswith(f"guest={name},".encode()) for word in words):
        end(process, grace=0.0)
        process = None
    if process is None:
        for ending in ("pid", "xml"):
            (_PIDS / f"{name}.{ending}").unlink(missing_ok=True)


def _half_started(name: str) -> bool:
    """Whether libvirt has written that it is about to start a machine: another daemon that reads this waits for that
    machine without end."""
    try:
        return _STARTING.search((_PIDS / f"{name}.xml").read_text(errors="replace")) is not None
    except OSError:
        return False


def save(name: str, path: Path, beside: Callable[[], None] | None = None) -> None:
    """Writes a machine's memory and devices to a file; it stands still meanwhile, and goes on afterwards. `beside` adds
    what else there is to be saved while it does. Raises Failure, Mistake, and what `beside` does."""
    libvirt = library()
    ran = False
    snapshot = ElementTree.Element("domainsnapshot")
    ElementTree.SubElement(snapshot, "memory", snapshot="external", file=str(path))
    try:
        connection = connect()
        domain = connection.lookupByName(name)
        disks = ElementTree.SubElement(snapshot, "disks")
        for target in ElementTree.fromstring(domain.XMLDesc()).iterfind("devices/disk/target"):
            ElementTree.SubElement(disks, "disk", name=target.get("dev", ""), snapshot="no")
        xml = ElementTree.tostring(snapshot, encoding="unicode")
        ran = domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING
        stops = ran and beside is not None
        after = if_killed(_RESUME, system_program("virsh"), connection.getURI(), name) if stops else nullcontext()
        with after:
            try:
                if stops:
                    domain.suspend()
                domain.snapshotCreateXML(xml, libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_NO_METADATA)
                if beside is not None:
                    beside()
            finally:
                if stops:
                    domain.resume()
    except libvirt.libvirtError as error:
        if ran:
            _go_on(name)
        raise Failure(f"libvirt does not save it: {plain(str(error))}") from None


def _go_on(name: str) -> None:
    """Has a machine run that was being saved: if libvirt's daemon has ended, it stands still until another one takes it
    up."""
    libvirt = library()
    with suppress(libvirt.libvirtError, Failure, Mistake):
        domain = connect().lookupByName(name)
        if domain.state()[0] == libvirt.VIR_DOMAIN_PAUSED:
            domain.resume()


def console_command(name: str) -> list[str]:
    """The command that connects a terminal to a machine's shell. Raises Failure, Mistake."""
    # What boots from a disk has its shell where its system has it: on the first port.
    port = "serial1" if "<kernel>" in machine_xml(name) else "serial0"
    return [system_program("virsh"), "--connect", connect().getURI(), "console", "--devname", port, name]


def machine_xml(name: str) -> str:
    """A machine that runs, in libvirt's words. Raises Failure, Mistake."""
    libvirt = library()
    try:
        return str(connect().lookupByName(name).XMLDesc())
    except libvirt.libvirtError as error:
        raise Failure(f"libvirt does not show it: {plain(str(error))}") from None


def stands_still(name: str) -> str | None:
    """Why a machine stands still that somebody has suspended, or that cannot write to its disk; None: neither. Raises
    Failure, Mistake."""
    libvirt = library()
    try:
        state, reason = connect().lookupByName(name).state()
    except libvirt.libvirtError as error:
        raise Failure(f"libvirt does not show it: {plain(str(error))}") from None
    whys = {
        libvirt.VIR_DOMAIN_PAUSED_USER: "suspended (`virsh resume` has it go on)",
        libvirt.VIR_DOMAIN_PAUSED_IOERROR: "its disk has an error, such as no room (make some, then `virsh resume`)",
    }
    return whys.get(reason) if state == libvirt.VIR_DOMAIN_PAUSED else None


def monitor(name: str, command: str, *, human: bool = False) -> str:
    """What the monitor of a machine's QEMU answers: to a command of QMP, or of the human monitor. Raises Failure,
    Mistake."""
    libvirt = library()
    import libvirt_qemu

    flags = libvirt_qemu.VIR_DOMAIN_QEMU_MONITOR_COMMAND_HMP if human else 0
    try:
        return str(libvirt_qemu.qemuMonitorCommand(connect().lookupByName(name), command, flags))
    except libvirt.libvirtError as error:
        raise Failure(f"QEMU's monitor does not answer: {plain(str(error))}") from None


def pin_vcpus(name: str, cpus: Sequence[int]) -> int:
    """Has each virtual CPU of a machine that runs be on one CPU; returns how many were elsewhere. A virtual CPU that
    runs is there when this returns. Raises Failure, Mistake."""
    libvirt = library()
    try:
        domain = connect().lookupByName(name)
        now = [[cpu for cpu, may in enumerate(pin) if may] for pin in domain.vcpuPinInfo()]
        other = [number for number, cpu in enumerate(cpus) if number >= len(now) or now[number] != [cpu]]
        for number in other:
            on = tuple(each == cpus[number] for each in range(cpus[number] + 1))
            domain.pinVcpuFlags(number, on, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    except libvirt.libvirtError as error:
        raise Failure(f"libvirt does not move its virtual CPUs: {plain(str(error))}") from None
    return len(other)


def plug_vcpus(name: str, count: int) -> None:
    """Has a machine that runs have so many virtual CPUs, more than it has, as `virsh setvcpus` does. Its system has to
    bring them up. Raises Failure, Mistake."""
    libvirt = library()
    try:
        connect().lookupByName(name).setVcpusFlags(count, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    except libvirt.libvirtError as error:
        raise Failure(f"libvirt does not plug a virtual CPU: {plain(str(error))}") from None


def machine_pid(name: str) -> int:
    """The process of a machine that runs. Raises OSError, ValueError."""
    return int((_PIDS / f"{name}.pid").read_text())


def _threads(pid: int) -> Iterator[tuple[int, str]]:
    """The threads of a process, by name. QEMU's own come and go meanwhile."""
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                yield int(thread.name), (thread / "comm").read_text()


def vcpu_thread(pid: int) -> int:
    """The thread of a machine's first CPU, as QEMU names it. Raises Failure."""
    for thread, name in _threads(pid):
        if name.startswith(("CPU 0/", "ALL CPUs/")):
            return thread
    raise Failure(f"process {pid}: no thread of it is named as QEMU names that of a machine's CPU")


def vcpu_threads(pid: int) -> list[int]:
    """The threads of a machine's CPUs in their order, as QEMU names them. Raises Failure."""
    found: dict[int, int] = {}
    for thread, name in _threads(pid):
        if cpu := _VCPU.match(name):
            found[int(cpu[1])] = thread
    if not found or sorted(found) != list(range(len(found))):
        raise Failure(f"process {pid}: its threads are not named as QEMU names those of a machine's CPUs")
    return [found[number] for number in sorted(found)]


def _start() -> None:
    """Starts libvirt's daemons unless they run. Where machines are left of one that was killed, their reaper starts it
    again: so the log daemon that they have is its own too, and ends with the last of them."""
    OWN.mkdir(mode=0o700, exist_ok=True)
    with lock.locked(OWN / "lock", patience=_START_SECONDS):
        if _LOGGER.exists() and _answers():
            return
        (OWN / "libvirtd.conf").write_text(_CONFIGURATION.format(folder=OWN, host=_host_id()))
        log, file = OWN / "log", OWN / "reaper"
        words = ["--", system_program("virtlogd"), "--pid-file", f"{OWN}/virtlogd.pid"]
        words += ["--", system_program("libvirtd"), "--config", f"{OWN}/libvirtd.conf"]
        words += ["--pid-file", f"{OWN}/libvirtd.pid"]
        words += ["--timeout", str(_IDLE_SECONDS)]
        deadline = time.monotonic() + _START_SECONDS
        reaper, asked = _reaper(file), 0.0
        while not (_LOGGER.exists() and _answers()):
            if time.monotonic() > deadline:
                said = last_line(log.read_text(errors="replace"), f"see {log}")
                raise Failure(f"libvirt's daemons do not start: {said}")
            # One that is about to end still has its pid file, and the new one ends at once.
            if reaper is None or not reaper.alive():
                log.unlink(missing_ok=True)
                argv = [sys.executable, "-I", "-S", reaper_program.__file__, *words]
                reaper = start(argv, log=log, limits=Limits(tied=False), record=partial(_note, file))
                asked = time.monotonic()  # it handles signals when it has started both
            elif time.monotonic() - asked > _ASK_SECONDS:
                asked = time.monotonic()
                reaper.signal(signal.SIGUSR1)
            time.sleep(0.05)


def _note(file: Path, reaper: ProcessId) -> None:
    file.write_text(f"{reaper.pid} {reaper.start}\n")


def _reaper(file: Path) -> ProcessId | None:
    """Who has started the daemons last, if anything of theirs is left."""
    try:
        pid, began = file.read_text().split()
        found = ProcessId(int(pid), int(began))
    except (OSError, ValueError):
        return None
    return found if found.alive() else None


def _host_id() -> uuid.UUID:
    """Of the host, for libvirt, which moves no machine to where it is: each libvirt here is a host of its own."""
    return uuid.uuid5(uuid.NAMESPACE_OID, f"{boot_id()} {OWN}")


def _answers() -> bool:
    libvirt = library()
    try:
        libvirt.open(_OWN).close()
    except libvirt.libvirtError:
        return False
    return True
