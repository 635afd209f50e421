"""A function in a virtual machine, which libvirt owns: `virsh` sees it, and QEMU listens at its ports for the switch.

The domain is transient: libvirt forgets it when it ends, and what ends is started again by the node.
"""

from __future__ import annotations

import os
import pwd
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tailrace.errors import Failure, Mistake
from tailrace.functions import hypervisor
from tailrace.functions.acceleration import acceleration
from tailrace.functions.domain import MachineSetting, Nic, differing, domain_xml, inner_address, mac_address
from tailrace.functions.images import DEFAULT, Image, machine_image
from tailrace.functions.names import outer_name
from tailrace.functions.program import BUFFERS_MIB, NAME, function_command, wait_until_ready
from tailrace.functions.runtime import Behind, Instance, Started, Starter
from tailrace.functions.tap import make_tap
from tailrace.functions.traits import Traits, read_traits
from tailrace.node.record import Domain, Process
from tailrace.process.launch import Launcher
from tailrace.process.process import identify
from tailrace.process.programs import system_program
from tailrace.resources.hugepages import PAGE_MIB
from tailrace.resources.pci import check_passthrough
from tailrace.resources.place import Place
from tailrace.resources.tree import Tree
from tailrace.spec.interface import VHOST_USER, passed_through

_QEMU = "qemu-system-x86_64"
_USER = "libvirt-qemu"
_START_SECONDS = 120.0
"""In which QEMU runs on a busy host; the first time, libvirt asks it what it can do."""
_PAGES = BUFFERS_MIB // PAGE_MIB + 4
"""Huge pages inside: those of the packet buffers, and some to spare."""
VCPU_PRIORITY = 1
"""Of the CPUs of a machine that has its own: below all that the kernel does at real-time priority."""
_ENDED = "the function has ended with status 0"
"""What a machine says last (functions/guest/init) whose function has ended well."""
#: Connections that must live as long as this process: with them ends what is tied to it.
_tied: list[Any] = []


class InMachine(Starter):
    """The runtime of virtual machines."""

    name = "machine"
    listens = True
    early = False
    passes = True
    several = True
    patience = 240.0
    """An emulated one boots for ten seconds on an idle host."""

    def behind(self, interface: str) -> Behind:
        return "socket" if interface == VHOST_USER else "interface"

    def refuses_interface(self, interface: str) -> str | None:
        if passed_through(interface):
            try:
                check_passthrough(interface.removeprefix("pci:"))
            except Mistake as mistake:
                return str(mistake)
        return None

    def check(self) -> None:
        system_program(_QEMU)
        system_program("virtlogd")
        if os.geteuid() != 0:
            raise Mistake("machines are started by root: run as root, or use `runs: process`")
        hypervisor.library()
        machine_image()
        acceleration()

    def prepare(self, launcher: Launcher, instance: Instance) -> None:
        for scheme, _, name in (uri.partition(":") for uri in instance.ports):
            if scheme == "if":
                make_tap(launcher.state, name, instance.name, _user(), instance.group)

    def start(self, launcher: Launcher, instance: Instance) -> Started:
        libvirt = hypervisor.library()
        name = outer_name(launcher.state.folder, instance.name)
        domain = Domain(name, instance.name)
        launcher.state.add(domain)
        domain.undo()  # one of that name which a record that was lost has left
        log = launcher.log_begins(instance.name).absolute()  # libvirt has a working directory of its own
        connection = hypervisor.connect()
        how = acceleration()
        image = machine_image(instance.image or DEFAULT)
        setting = machine_setting(name, instance, image, log, how.kind, read_traits(Tree()))
        try:
            # What a fragment says is held against libvirt's schema; the rest is always of it.
            flags = libvirt.VIR_DOMAIN_START_VALIDATE if instance.domain is not None else 0
            flags |= libvirt.VIR_DOMAIN_START_AUTODESTROY if launcher.tied else 0
            sockets = [Path(nic.at) for nic in setting.nics if nic.interface == VHOST_USER]
            xml = hypervisor.create(connection, domain_xml(setting), flags, _START_SECONDS, sockets)
            pid = hypervisor.machine_pid(name)
        except Failure as error:
            raise Failure(f"{instance.name}: {error}") from None
        except (OSError, ValueError) as error:
            raise Failure(f"{instance.name}: the machine has ended at its start ({error}); see {log}") from None
        process = identify(pid)
        if process is None:
            raise launcher.failure(instance.name, f"{instance.name} has ended at its start")
        _as_started(launcher.logs, instance.name).write_text(xml)
        recorded = Process(instance.name, process.pid, process.start, _QEMU, runtime=self.name, outside=name)
        launcher.state.add(recorded)
        if launcher.tied:
            _tied.append(connection)
        return Started(recorded, how.notes)

    def wait(self, launcher: Launcher, process: Process, place: Place, deadline: float, *, says: bool = True) -> None:
        del place  # of its own threads' priorities the machine's system knows nothing
        if says:
            wait_until_ready(launcher, process, deadline)

    def program(self, process: Process) -> int | None:
        return process.pid if process.id.alive() else None

    def unlike(self, process: Process, logs: Path) -> list[str]:
        try:
            before = _as_started(logs, process.name).read_text()
        except OSError:
            return []
        return differing(before, hypervisor.machine_xml(process.outside))

    def ended_well(self, process: Process, logs: Path) -> bool:
        try:
            return _ENDED in (logs / f"{process.name}.log").read_text(errors="replace")[-4096:]
        except OSError:
            return False


def _as_started(logs: Path, name: str) -> Path:
    """Where a machine is kept in libvirt's words as it was when it was started."""
    return logs / f"{name}.xml"


def machine_setting(
    name: str, instance: Instance, image: Image, console: Path, kind: str, traits: Traits
) -> MachineSetting:
    """What the machine of an instance is to be."""
    place, high = instance.place, instance.latency == "high"
    own = place.cores if instance.latency != "normal" else ()
    ports = zip_longest(instance.ports, instance.interfaces, fillvalue=VHOST_USER)
    nics = tuple(
        Nic(mac_address(name, number), uri.partition(":")[2], interface)
        for number, (uri, interface) in enumerate(ports)
    )
    return MachineSetting(
        name=name,
        title=f"Tailrace: {instance.name}",
        memory_bytes=instance.memory_bytes,
        pins=tuple((own[number % len(own)],) if own else place.cpus for number in range(instance.cpus)),
        others=tuple(cpu for cpu in place.cpus if cpu not in own) or (place.core,),
        huge=instance.huge,
        nics=nics,
        kernel=image.vmlinuz,
        initramfs=image.initramfs,
        command_line=_command_line(instance, nics),
        console=console,
        user=f"+{_user()}:+{instance.group}",
        acceleration="kvm" if kind == "kvm" else "tcg",
        keeps_cpus=high and kind == "kvm",
        # What emulates has a buffer of its own of 1 GiB, which is not to be had whole.
        locked=high and traits.memory_lock is None and (kind == "kvm" or not instance.huge),
        passes_cpu=instance.latency != "normal",
        invariant_tsc=high and traits.invariant_tsc,
        priority=VCPU_PRIORITY if high and traits.real_time is None else None,
        node=traits.node(place.core) if traits.several_nodes else None,
        fragment=instance.domain,
    )


def _command_line(instance: Instance, nics: tuple[Nic, ...]) -> str:
    """Of the kernel; functions/guest/init reads what is Tailrace's in it."""
    words = ["console=ttyS0", "panic=-1", "quiet"]
    if instance.in_place is not None:
        return " ".join([*words, instance.in_place])
    words += [f"tailrace.ports={','.join(inner_address(number) for number, _ in enumerate(nics))}"]
    if instance.driver == "linux":
        return " ".join([*words, "tailrace.run=bridge"])
    inside = function_command(NAME, instance, (), core=instance.cpus - 1, mode="poll", huge=True)
    return " ".join([*words, f"tailrace.run={','.join(inside)}", f"tailrace.pages={_PAGES}"])


def _user() -> int:
    """The number of the user that QEMU runs as."""
    try:
        return pwd.getpwnam(_USER).pw_uid
    except KeyError:
        raise Mistake(f"there is no user {_USER}, which Debian's libvirt makes: run `scripts/setup machines`") from None
