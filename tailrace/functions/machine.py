"""A function in a virtual machine, which libvirt owns: `virsh` sees it, and QEMU listens at its ports for the switch.

The domain is transient: libvirt forgets it when it ends, and what ends is started again by the node.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tailrace.errors import Failure, Mistake
from tailrace.functions import agent, saved, transfer
from tailrace.functions.acceleration import KVM, acceleration
from tailrace.functions.disks import (
    DISK_PROGRAMS,
    admit,
    check_beginning,
    check_disk,
    check_overlay,
    disk_format,
    machine_user,
    make_overlay,
    make_seed,
    make_variables,
    qemu_user,
    seed_files,
)
from tailrace.functions.domain import (
    Disks,
    MachineSetting,
    Nic,
    differing,
    domain_xml,
    inner_address,
    mac_address,
    machine_id,
)
from tailrace.functions.guest_tuning import kernel_arguments, tune
from tailrace.functions.images import DEFAULT, DRIVER_FOR_PROGRAMS, DRIVERS, Image, images_folder, machine_image
from tailrace.functions.names import outer_name
from tailrace.functions.namespace import network_commands, with_failed_line
from tailrace.functions.priority import follow, priority_range, priority_words
from tailrace.functions.program import BUFFERS_MIB, NAME, READY, function_command, wait_until_ready
from tailrace.functions.runtime import Arrival, Behind, Instance, Load, Origin, Started, Starter, Used
from tailrace.functions.tap import make_tap
from tailrace.functions.traits import Traits, read_traits
from tailrace.functions.vcpus import move, spread
from tailrace.functions.vfio import take_device
from tailrace.kernel.tree import Tree
from tailrace.process import hypervisor, units
from tailrace.process.process import identify
from tailrace.process.programs import system_program
from tailrace.resources.hugepages import PAGE_MIB
from tailrace.resources.pci import check_passthrough
from tailrace.resources.place import Place
from tailrace.spec.fragment import read_fragment
from tailrace.spec.interface import VHOST_USER, passed_through
from tailrace.state.launch import Launcher
from tailrace.state.record import Domain, FilePath, MachineFile, Process, State
from tailrace.state.room import Room

_QEMU = "qemu-system-x86_64"
_LIBVIRTS = Path("/var/lib/libvirt/qemu")
"""Below it libvirt makes a folder for each machine, with its key, and gives it to the machine's user."""
_UNITS = ("/lib/systemd/system", "/usr/lib/systemd/system")
"""Where units of packages are."""
_START_SECONDS = 120.0
"""In which QEMU runs on a busy host; the first time, libvirt asks it what it can do."""
_XML_GROWTH = 64 << 10
"""By which the XML of a machine that runs may be longer than twice what libvirt was given."""
_ANSWER_SECONDS = 5.0
"""In which a disk of Tailrace's own, that goes on from a file, has answered."""
_SYSTEM_MIB = 128
"""Of a machine's memory: what its own system takes, beside the function."""
_SPARE_PAGES = 4
"""Huge pages inside, beside those of packet buffers and tables."""
VCPU_PRIORITY = 1
"""Of the CPUs of a machine that has its own: below all that the kernel does at real-time priority."""
_LINES = 200
"""Of what its kernel is told of the network, in one request."""
_IP = "/usr/bin/ip"
"""By its path: busybox's shell would run its own, which can do less."""
_HAS_IP = f"[ -e {_IP} ] || {{ echo 'its image has no ip(8); build it again: tailrace image build'; exit 1; }}"
_ENDED = re.compile(r"the function has ended with status (\d+)")
"""What a machine says (functions/guest/init) whose function has ended; then it powers off, however that was."""
_PROFILE = re.compile(r"\btailrace\.profile=(\w+)")
_POWERED_OFF = "reboot: Power down"
"""What Linux says last on its console: of an image of somebody's own nothing else is known."""
#: Machines that end with this process, each with the connection by whose end libvirt ends it.
_tied: list[tuple[Process, Any]] = []
#: Fragments that libvirt has held against its schema, which takes 10 ms and more: once for all machines with one.
_allowed: set[str] = set()


class InMachine(Starter):
    """The runtime of virtual machines."""

    name = "machine"
    reserves = True
    listens = True
    elastic = True
    early = False
    passes = True
    last_lines = 5
    several = True
    own_kernel = True
    boot_seconds = 20.0
    patience = 240.0
    """An emulated one boots for ten seconds on an idle host."""

    def tells_load(self, kind: str | None, driver: str, *, polls: bool) -> Load | None:
        return "rings" if polls or (kind is not None and driver == "dpdk") else "time"

    def behind(self, interface: str) -> Behind:
        return "socket" if interface == VHOST_USER else "interface"

    def refuses_interface(self, interface: str) -> str | None:
        if passed_through(interface) and not interface.startswith("vf:"):
            try:
                check_passthrough(interface.removeprefix("pci:"))
            except Mistake as mistake:
                return str(mistake)
        return None

    def refuses_fewer(self, latency: str, *, stacked: bool) -> str | None:
        if latency == "normal":
            return "with latency normal a machine has no CPU of its own; expected `latency: medium`"
        if latency == "high" and not stacked:
            return (
                "with latency high no virtual CPU waits for another, so it has all its CPUs; expected `latency: "
                "medium`, or `cpus: {stacked: true}`"
            )
        return None

    def cpus_without_frames(self, kind: str | None, driver: str, most: int) -> str | None:
        if kind is None or driver != "dpdk" or most == 1:
            return None
        rest = "the other one is" if most == 2 else f"the other {most - 1} are"
        return (
            f"of its {most} virtual CPUs one polls, because each port of a machine has one queue; {rest} its own "
            "system's (in a process or a container each CPU has a queue)"
        )

    def refuses_memory(self, memory: int, kind: str | None, driver: str, tables_mib: int) -> str | None:
        pages = _inner_pages(tables_mib) * PAGE_MIB
        needed = pages + _SYSTEM_MIB
        if kind is None or driver != "dpdk" or memory >= needed << 20:
            return None
        has = f"tables of {tables_mib} MiB" if tables_mib else f"{pages} MiB of huge pages inside"
        return f"{memory >> 20}MiB hold no machine whose function has {has}; expected {needed}MiB"

    def cpus_of(self, place: Place, cpus: int, most: int) -> list[int]:
        del cpus
        return spread(place.cores, most)

    def use_cpus(self, state: State, process: Process, cpus: Sequence[int], wait_ms: int = 0) -> Used:
        del wait_ms
        return move(process.outside, cpus, _as_started(state.logs, process.name))

    def check(self) -> None:
        self.check_by_looking()
        acceleration()

    def check_by_looking(self) -> None:
        system_program(_QEMU)
        system_program("virtlogd")
        if os.geteuid() != 0:
            raise Mistake("machines are started by root: run as root, or use `runs: process`")
        hypervisor.library()
        machine_image()

    def check_image(self, kind: str | None, image: str, settings: Sequence[str]) -> None:
        _check_image(kind, image, settings, whole=False)

    def check_image_file(self, kind: str | None, image: str, settings: Sequence[str]) -> None:
        if kind is not None:
            if os.geteuid() == 0:  # an image of Tailrace's own is root's
                machine_image(image)
            return
        if not _visible(Path(image)):
            return
        try:
            user = qemu_user()
            for program in DISK_PROGRAMS:
                system_program(program)
        except Mistake:
            check_beginning(Path(image))
        else:
            check_disk(Path(image), user, _by_name(settings).get("firmware"), whole=False)

    def check_drivers(self, image: str | None, interfaces: Sequence[str], driver: str) -> None:
        name = image or DEFAULT
        try:
            found = machine_image(name)
        except Mistake:  # check_image() says so
            return
        if found.drivers is None:
            return
        for interface in interfaces or (VHOST_USER,):
            if passed_through(interface):
                continue  # nothing here says what drives the device
            wanted = DRIVERS[interface] if driver == "linux" else DRIVER_FOR_PROGRAMS
            if wanted not in found.drivers:
                otherwise = ", or use `driver: dpdk`" if driver == "linux" else ""
                raise Mistake(
                    f"{interface}: the kernel of the image {name!r} ({found.kernel}) has no driver {wanted}; `tailrace "
                    f"image build stock --kernel stock`, and name that image (`image: stock`){otherwise}"
                )

    def check_files(self, settings: Sequence[str]) -> None:
        path = _by_name(settings).get("user-data")
        if path is not None and _visible(Path(path)) and not Path(path).is_file():
            raise Mistake(f"seed.user_data: {path}: {'is no file' if Path(path).exists() else 'there is no such file'}")

    def check_whole_image(self, kind: str | None, image: str, settings: Sequence[str]) -> None:
        _check_image(kind, image, settings, whole=True)

    def prepare(self, launcher: Launcher, instance: Instance) -> None:
        for scheme, _, name in (uri.partition(":") for uri in instance.ports):
            if scheme == "if":
                user = machine_user(instance.group)
                make_tap(launcher.state, name, instance.name, user, instance.group)

    def start(self, launcher: Launcher, instance: Instance) -> Started:
        libvirt = hypervisor.library()
        name = outer_name(launcher.state.folder, instance.name)
        domain = Domain(name, instance.name)
        launcher.state.add(domain)
        domain.undo()  # one of that name which a record that was lost has left
        log = launcher.log_begins(instance.name).absolute()  # libvirt has a working directory of its own
        connection = hypervisor.connect()
        how = acceleration()
        boots_from = machine_image(instance.image or DEFAULT) if instance.kind else _disks(name, instance)
        setting = machine_setting(name, instance, boots_from, log, how.kind, read_traits(Tree()))
        setting = replace(setting, partition=partition(Tree()))
        try:
            user = machine_user(instance.group)
            admit(launcher.state, instance.name, _LIBVIRTS, user, 1)
            if setting.acceleration == "kvm":
                admit(launcher.state, instance.name, KVM, user, 6)
            for path, permissions in _of_fragment(instance.domain):
                admit(launcher.state, instance.name, path, user, permissions)
            if setting.disks is not None:
                _make_disks(launcher, instance, setting, setting.disks, user)
            for uri in filter(passed_through, instance.interfaces):
                take_device(launcher.state, instance.name, uri.removeprefix("pci:"), user, connection)
            if isinstance(instance.origin, Arrival):
                xml = _arrive(launcher, instance.name, instance.origin, setting)
            elif instance.origin is not None:
                xml = _restore(connection, launcher, instance, instance.origin, setting)
            else:
                # What a fragment says is held against libvirt's schema; the rest is always of it.
                fragment = instance.domain
                flags = 0 if fragment is None or fragment in _allowed else libvirt.VIR_DOMAIN_START_VALIDATE
                flags |= libvirt.VIR_DOMAIN_START_AUTODESTROY if launcher.tied else 0
                xml = _begin(lambda: connection.createXML(domain_xml(setting), flags), setting)
                if fragment is not None:
                    _allowed.add(fragment)
            pid = hypervisor.machine_pid(name)
        except Failure as error:
            added = "" if instance.domain in {None, *_allowed} else "; libvirt was given what its `domain` adds, too"
            raise Failure(f"{instance.name}: {error}{added}") from None
        except (OSError, ValueError) as error:
            raise Failure(f"{instance.name}: the machine has ended at its start ({error}); see {log}") from None
        process = identify(pid)
        if process is None:
            raise launcher.failure(instance.name, f"{instance.name} has ended at its start")
        if not isinstance(instance.origin, Arrival):
            _as_started(launcher.logs, instance.name).write_text(xml)
        recorded = Process(instance.name, process.pid, process.start, _QEMU, runtime=self.name, outside=name)
        launcher.state.add(recorded)
        _note_network(launcher, instance)
        if isinstance(instance.origin, Arrival):
            launcher.state.keep_change()  # it goes on once its chain leads to it
        if launcher.tied:
            _tie(recorded, connection)
        return Started(recorded, how.notes)

    def wait(self, launcher: Launcher, process: Process, place: Place, deadline: float, *, says: bool = True) -> None:
        if says:
            wait_until_ready(launcher, process, deadline, self.last_lines)
            _give_network(launcher, process.name)
            if profile := machine_profile(launcher.logs, process.name):
                tune(agent.beside(launcher.log(process.name)), profile)
            bounds = priority_range(_as_started(launcher.logs, process.name))
            if bounds is not None:
                others = [cpu for cpu in place.cpus if cpu not in place.cores] or [place.core]
                follow(launcher, process, bounds, others)

    def save(self, process: Process, path: Path) -> int:
        return saved.save(process.outside, path)

    def check_origin(self, name: str, origin: Origin | Arrival) -> None:
        del name
        if isinstance(origin, Origin):
            saved.read(origin.path)

    def program(self, process: Process) -> int | None:
        return process.pid if process.id.alive() else None

    def unlike(self, process: Process, logs: Path) -> list[str]:
        try:
            before = _as_started(logs, process.name).read_text()
        except OSError:
            return []
        why = hypervisor.stands_still(process.outside)
        found = differing(before, hypervisor.machine_xml(process.outside))
        return found if why is None else [*found, f"it stands still: {why}"]

    def ended_well(self, process: Process, logs: Path) -> bool:
        try:
            said = (logs / f"{process.name}.log").read_text(errors="replace")[-4096:]
        except OSError:
            return False
        statuses = _ENDED.findall(said)
        return bool(statuses[-1] == "0" if statuses else _POWERED_OFF in said)


def _visible(path: Path) -> bool:
    """Whether this user sees what is there, if anything is: an ordinary one only makes plans of machines."""
    return os.geteuid() == 0 or (os.access(path.parent, os.X_OK) and (not path.exists() or os.access(path, os.R_OK)))


def _check_image(kind: str | None, image: str, settings: Sequence[str], *, whole: bool) -> None:
    if kind is None:
        check_disk(Path(image), qemu_user(), _by_name(settings).get("firmware"), whole=whole)
    else:
        machine_image(image)


def _tie(machine: Process, connection: Any) -> None:
    """Keeps a connection as long as its machine and this process live. A matrix starts hundreds one after another, so
    those of machines that have ended are closed."""
    for each in list(_tied):
        if not each[0].id.alive():
            with suppress(ValueError):  # another thread has it
                _tied.remove(each)
                with suppress(hypervisor.library().libvirtError):  # libvirt has ended
                    each[1].close()
    _tied.append((machine, connection))


def _begin(call: Callable[[], Any], setting: MachineSetting) -> str:
    return hypervisor.create(call, _START_SECONDS, _sockets(setting))


def _sockets(setting: MachineSetting) -> list[Path]:
    return [Path(nic.at) for nic in setting.nics if nic.interface == VHOST_USER]


def _restore(connection: Any, launcher: Launcher, instance: Instance, origin: Origin, setting: MachineSetting) -> str:
    """Has a machine go on that was saved, tells it the time and, if it is a copy, who it is. Returns it in XML."""

    def restored() -> Any:
        connection.restoreFlags(str(file), None, flags)
        return connection.lookupByName(setting.name)

    found = saved.read(origin.path)
    file = launcher.state.folder / f"{instance.name}.state"
    flags = hypervisor.library().VIR_DOMAIN_SAVE_RUNNING
    on_record = FilePath(str(file))
    on_record.undo()
    launcher.state.add(on_record)
    try:
        saved.write_as(found, saved.domain_of(found, setting, copy=origin.copy), file)
        xml = _begin(restored, setting)
    finally:
        launcher.state.undo(on_record)
    told = agent.taken_up(round(time.time()), os.urandom(32))
    if origin.copy:
        told += agent.identity(setting.name, machine_id(setting.name).hex, [nic.mac for nic in setting.nics])
    told.append(f"echo 'tailrace: {READY}' >/dev/console")
    if setting.disks is None or origin.copy:
        agent.ask(setting.agent, "; ".join(told))
    else:  # whether anybody inside listens is the user's affair
        with suppress(Failure):
            agent.ask(setting.agent, "; ".join(told), _ANSWER_SECONDS)
    return xml


def _arrive(launcher: Launcher, name: str, arrival: Arrival, setting: MachineSetting) -> str:
    """Waits for a machine that comes from another node, and for its end there: it stands still. Returns it in XML,
    which is kept as that of one that was started. A disk that is full when it has ended there does not lose it: what is
    written then has been written before, or has room. Raises Failure."""
    domain, path = transfer.domain_there(arrival.domain, setting), launcher.log(name)
    try:
        # It has said so where it came from. As virtlogd makes it.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "w") as log:
            log.write(f"tailrace: {READY}\n")
        with Room(launcher.logs, 2 * len(domain) + _XML_GROWTH) as room:
            arrival.ready(domain, setting.name)
            xml = str(transfer.await_arrival(setting.name, _sockets(setting), arrival.given_up).XMLDesc())
            if not arrival.go.wait(transfer.GO_SECONDS):
                raise Failure("the other node has not said that the machine has ended there; it is not wanted twice")
            if arrival.cut_off():
                raise Failure("the switch here has ended before the machine went on: the next one could not serve it")
            room.write(_as_started(launcher.logs, name), xml)
    except OSError as error:
        raise Failure(f"{error.filename or path}: {error.strerror}") from None
    return xml


def _disks(name: str, instance: Instance) -> Disks:
    """What a machine boots from whose image is a disk of the user's. Raises Mistake."""
    image = Path(instance.image or "")
    firmware = check_disk(image, qemu_user(), _by_name(instance.settings).get("firmware"))
    folder = images_folder() / "disks"
    variables = folder / f"{name}.variables" if firmware == "uefi" else None
    return Disks(image, disk_format(image), folder / f"{name}.qcow2", folder / f"{name}.seed", variables)


def _of_fragment(fragment: str | None) -> Iterator[tuple[Path, int]]:
    """The host's files that are disks by what a spec adds to a domain, and how QEMU uses them: 4 to read, 2 to
    write."""
    for disk in read_fragment(fragment).iterfind("devices/disk") if fragment else ():
        source = disk.find("source")
        name = None if source is None else source.get("file") or source.get("dev")
        if name is not None:
            yield Path(name), 4 if disk.find("readonly") is not None else 6


def _by_name(settings: Sequence[str]) -> dict[str, str]:
    """The settings of a function by name."""
    return dict(each.split("=", 1) for each in settings)


def _make_disks(launcher: Launcher, instance: Instance, setting: MachineSetting, disks: Disks, user: int) -> None:
    """Makes what it needs beside that image, on record: it goes with the machine. Raises Failure, Mistake."""
    admit(launcher.state, instance.name, disks.image, user, 4)
    for path in (each for each in (disks.overlay, disks.seed, disks.variables) if each is not None):
        thing = MachineFile(str(path), instance.name)
        launcher.state.add(thing)
        thing.undo()
    try:
        disks.overlay.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        told = _by_name(instance.settings)
        if disks.variables is not None:
            make_variables(disks.variables, user)
    except OSError as error:
        raise Mistake(f"{instance.name}: {error.filename}: {error.strerror}") from None
    try:
        user_data = Path(told["user-data"]).read_bytes() if "user-data" in told else None
    except OSError as error:
        raise Mistake(f"functions.{instance.name}.seed.user_data: {error.filename}: {error.strerror}") from None
    addresses = {nic.mac: told.get(f"address{number}", "") for number, nic in enumerate(setting.nics)}
    files = seed_files(machine_id(setting.name).hex, told.get("hostname", setting.name), addresses, user_data)
    if isinstance(instance.origin, Origin):
        saved.take_disk(saved.read(instance.origin.path), disks.image, disks.overlay)
        check_overlay(disks.overlay, user)
    else:
        make_overlay(disks.image, disks.overlay, user)
    make_seed(disks.seed, files, user)


def _network_of(logs: Path, name: str) -> Path:
    """Where stands what the kernel of a machine is told of its function's network once that runs."""
    return logs / f"{name}.network"


def _note_network(launcher: Launcher, instance: Instance) -> None:
    """One that goes on from somewhere has all that; a copy is told anew."""
    file, network, origin = _network_of(launcher.logs, instance.name), instance.inner_network, instance.origin
    file.unlink(missing_ok=True)
    if network is None or isinstance(origin, Arrival) or (origin is not None and not origin.copy):
        return
    # Of the function, so that neighbours know those of an instance that replaces another.
    name = outer_name(launcher.state.folder, instance.name.partition("@")[0])
    macs = [mac_address(name, number) for number in range(len(instance.ports))]
    file.write_text("".join(f"{line}\n" for line in network_commands(network, macs)))


def _give_network(launcher: Launcher, name: str) -> None:
    try:
        lines = _network_of(launcher.logs, name).read_text().splitlines()
    except FileNotFoundError:
        return
    for first in range(0, len(lines), _LINES):
        part = lines[first : first + _LINES]
        told = "\n".join([": its network", _HAS_IP, f"{_IP} -batch - <<'END'", *part, "END", ""])
        try:
            agent.ask(agent.beside(launcher.log(name)), told)
        except Failure as error:
            raise Failure(with_failed_line(str(error), part)) from None


def _as_started(logs: Path, name: str) -> Path:
    """Where a machine is kept in libvirt's words as it was when it was started."""
    return logs / f"{name}.xml"


def machine_setting(
    name: str, instance: Instance, image: Image | Disks, console: Path, kind: str, traits: Traits
) -> MachineSetting:
    """What the machine of an instance is to be."""
    place, high = instance.place, instance.latency == "high"
    alone = high and not instance.stacked  # of those that share a CPU, one that is never left would starve the others
    own = place.cores if instance.latency != "normal" else ()
    ports = zip_longest(instance.ports, instance.interfaces, fillvalue=VHOST_USER)
    behind = {each.port: each.mac for each in instance.failover}
    nics = tuple(
        Nic(
            behind.get(number) or mac_address(name, number),
            uri.partition(":")[2],
            interface,
            stands_by=number in behind,
        )
        for number, (uri, interface) in enumerate(ports)
    )
    return MachineSetting(
        name=name,
        title=f"Tailrace: {instance.name}",
        memory_bytes=instance.memory_bytes,
        pins=tuple((cpu,) for cpu in spread(own, instance.most_cpus)) if own else (place.cpus,) * instance.most_cpus,
        others=tuple(cpu for cpu in place.cpus if cpu not in own) or (place.core,),
        huge=instance.huge,
        nics=nics,
        kernel=image.vmlinuz if isinstance(image, Image) else None,
        initramfs=image.initramfs if isinstance(image, Image) else None,
        command_line=" ".join(
            [_command_line(instance, nics), *_tuning(instance, image), *priority_words(instance.priority)]
        ),
        disks=image if isinstance(image, Disks) else None,
        console=console,
        agent=agent.beside(console),
        user=f"+{machine_user(instance.group)}:+{instance.group}",
        acceleration="kvm" if kind == "kvm" else "tcg",
        # One that is idle has the highest priority, and would keep others from its CPU.
        keeps_cpus=alone and kind == "kvm" and instance.priority is None,
        # What emulates has a buffer of its own of 1 GiB, which is not to be had whole.
        locked=high and traits.memory_lock is None and (kind == "kvm" or not instance.huge),
        passes_cpu=instance.latency != "normal",
        invariant_tsc=high and traits.invariant_tsc,
        priority=VCPU_PRIORITY if alone and traits.real_time is None else None,
        node=traits.node(place.core) if traits.several_nodes else None,
        plugged=instance.plugged,
        fragment=instance.domain,
        page_kib=instance.page_kib,
    )


def partition(tree: Tree) -> str | None:
    """Our slice, as libvirt has it (https://libvirt.org/cgroups.html); None where there is none, or no machined, by
    which libvirt asks systemd for it."""
    own = units.slice_name()
    there = any(tree.exists(f"{folder}/systemd-machined.service") for folder in _UNITS)
    return f"/{own.removesuffix('.slice')}" if own is not None and there else None


def _command_line(instance: Instance, nics: tuple[Nic, ...]) -> str:
    """Of the kernel; functions/guest/init reads what is Tailrace's in it."""
    words = ["console=ttyS0", "panic=-1", "quiet"]
    if instance.in_place is not None:
        return " ".join([*words, instance.in_place])
    words += [f"tailrace.ports={','.join(inner_address(number) for number, _ in enumerate(nics))}"]
    if instance.driver == "linux":
        words += ["tailrace.coalescing=off"] if instance.latency == "high" else []
        return " ".join([*words, "tailrace.run=bridge"])
    inside = function_command(
        NAME, instance, (), core=instance.most_cpus - 1, mode="poll", huge=True, commands=agent.COMMANDS
    )
    pages = _inner_pages(instance.tables_mib)
    return " ".join([*words, f"tailrace.run={','.join(inside)}", f"tailrace.pages={pages}"])


def _inner_pages(tables_mib: int) -> int:
    """The huge pages that a function takes inside."""
    return -(-(BUFFERS_MIB + tables_mib) // PAGE_MIB) + _SPARE_PAGES


def _tuning(instance: Instance, image: Image | Disks) -> list[str]:
    """What its kernel is told for the profile of its image."""
    if not isinstance(image, Image) or not image.profile:
        return []
    return [*kernel_arguments(image.profile, image.kernel, instance.most_cpus), f"tailrace.profile={image.profile}"]


def machine_profile(logs: Path, name: str) -> str:
    """The profile by which a machine is tuned inside; empty: by none."""
    try:
        found = _PROFILE.search(_as_started(logs, name).read_text())
    except OSError:
        return ""
    return found[1] if found else ""
