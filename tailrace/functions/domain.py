"""A machine in libvirt's words: what it is made of, and why.

Sources: libvirt's formatdomain.html; the virtio specification 1.2, 5.1 (network device).
"""

from __future__ import annotations

import uuid
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from tailrace.functions.disks import UEFI_CODE
from tailrace.resources.hugepages import PAGE_KIB
from tailrace.spec.fragment import QEMU, read_fragment
from tailrace.spec.interface import VHOST_USER, passed_through

Acceleration = Literal["kvm", "tcg"]
_RING = "1024"
"""Descriptors of a virtqueue, the most that QEMU has."""
_FIRST_SLOT = 8
"""Of the ports, on the machine's first PCI bus: libvirt gives out those below."""


@dataclass(frozen=True)
class Nic:
    """A port of a machine."""

    mac: str
    at: str
    """The socket where QEMU listens for the switch, a TAP, or the PCI address of a device of the host's."""
    interface: str = VHOST_USER
    """What it is inside (`tailrace.spec.interface`)."""
    stands_by: bool = False
    """A virtual function may carry its frames (`tailrace.functions.failover`)."""


@dataclass(frozen=True)
class Disks:
    """What a machine boots from by its firmware."""

    image: Path
    format: str
    overlay: Path
    """On the image, in qcow2: what the machine writes."""
    seed: Path
    """What it is told at its first boot."""
    variables: Path | None = None
    """What UEFI keeps about it; None: it boots by a PC's BIOS."""


@dataclass(frozen=True)
class MachineSetting:
    """What a machine is to be."""

    name: str
    title: str
    memory_bytes: int
    pins: tuple[tuple[int, ...], ...]
    """For each of its own CPUs, those that it may run on."""
    others: tuple[int, ...]
    """The CPUs of QEMU's other threads."""
    huge: bool
    """In huge pages."""
    nics: tuple[Nic, ...]
    kernel: Path | None
    """That QEMU starts itself; None: the firmware boots from `disks`."""
    initramfs: Path | None
    command_line: str
    console: Path
    """What it prints goes there too."""
    agent: Path
    """The socket of its third serial port, where Tailrace's image answers (functions/agent.py)."""
    user: str
    """Whom QEMU runs as, in libvirt's words: +UID:+GID."""
    acceleration: Acceleration
    keeps_cpus: bool = False
    """Its CPUs do not leave the host's while it is idle (KVM's cpu-pm)."""
    locked: bool = False
    """Its memory, and QEMU's, is never in swap."""
    passes_cpu: bool = True
    """With KVM: its CPU is the host's own. Otherwise one like that, which other hosts have too."""
    invariant_tsc: bool = False
    """With KVM: it is told that its time stamp counter has one rate."""
    priority: int | None = None
    """The SCHED_FIFO priority of its CPUs."""
    node: int | None = None
    """The host's NUMA node that all of it is on; None: the host has one only."""
    plugged: int | None = None
    """How many of its CPUs are there at its start; None: all."""
    fragment: str | None = None
    """What of the spec is merged into it."""
    disks: Disks | None = None
    page_kib: int = PAGE_KIB
    """The size of these pages."""
    partition: str | None = None
    """Where in the tree of cgroups it is; None: where libvirt puts it."""


def mac_address(name: str, port: int) -> str:
    """Of a machine's port: locally administered, and the same whenever that machine is started."""
    mark = zlib.crc32(name.encode())
    return f"52:54:{mark >> 24 & 0xFF:02x}:{mark >> 16 & 0xFF:02x}:{mark >> 8 & 0xFF:02x}:{port:02x}"


def machine_id(name: str) -> uuid.UUID:
    """Of a machine: the same whenever it is started; inside it is what firmware says that it is."""
    return uuid.uuid5(uuid.NAMESPACE_OID, name)


def user_of(xml: str) -> int:
    """The number of the user that the QEMU of a machine runs as, which was made by domain_xml()."""
    label = ElementTree.fromstring(xml).findtext("seclabel[@model='dac']/label", "")
    return int(label.partition(":")[0].removeprefix("+"))


def inner_address(port: int) -> str:
    """The PCI address of a machine's port inside it."""
    return f"0000:00:{_FIRST_SLOT + port:02x}.0"


def domain_xml(setting: MachineSetting) -> str:
    """The domain of a machine."""
    ElementTree.register_namespace("qemu", QEMU)
    kvm = setting.acceleration == "kvm"
    domain = ElementTree.Element("domain", type="kvm" if kvm else "qemu")
    _text(domain, "name", setting.name)
    _text(domain, "uuid", str(machine_id(setting.name)))
    _text(domain, "title", setting.title)
    _text(domain, "memory", str(setting.memory_bytes >> 10), unit="KiB")
    backing = ElementTree.SubElement(domain, "memoryBacking")
    if setting.huge:
        mib = str(setting.page_kib >> 10)
        ElementTree.SubElement(ElementTree.SubElement(backing, "hugepages"), "page", size=mib, unit="M")
    if setting.locked:
        ElementTree.SubElement(backing, "locked")
    # The switch reads and writes its rings and buffers there.
    ElementTree.SubElement(backing, "source", type="memfd")
    ElementTree.SubElement(backing, "access", mode="shared")
    ElementTree.SubElement(backing, "allocation", mode="immediate")
    if setting.partition is not None:
        _text(ElementTree.SubElement(domain, "resource"), "partition", setting.partition)
    # Where I/O threads run too, which a fragment may ask for.
    current = {} if setting.plugged is None else {"current": str(setting.plugged)}
    _text(domain, "vcpu", str(len(setting.pins)), placement="static", cpuset=_cpu_set(setting.others), **current)
    tune = ElementTree.SubElement(domain, "cputune")
    for number, cpus in enumerate(setting.pins):
        ElementTree.SubElement(tune, "vcpupin", vcpu=str(number), cpuset=_cpu_set(cpus))
    ElementTree.SubElement(tune, "emulatorpin", cpuset=_cpu_set(setting.others))
    every = f"0-{len(setting.pins) - 1}"
    if setting.priority is not None:
        ElementTree.SubElement(tune, "vcpusched", vcpus=every, scheduler="fifo", priority=str(setting.priority))
    if setting.node is not None:
        numa = ElementTree.SubElement(domain, "numatune")
        ElementTree.SubElement(numa, "memory", mode="strict", nodeset=str(setting.node))
        ElementTree.SubElement(numa, "memnode", cellid="0", mode="strict", nodeset=str(setting.node))
    system = ElementTree.SubElement(domain, "os")
    _text(system, "type", "hvm", arch="x86_64", machine="q35")
    if setting.kernel is not None:
        _text(system, "kernel", str(setting.kernel))
        _text(system, "initrd", str(setting.initramfs))
        _text(system, "cmdline", setting.command_line)
    elif setting.disks is not None and setting.disks.variables is not None:
        _text(system, "loader", str(UEFI_CODE), readonly="yes", type="pflash")
        _text(system, "nvram", str(setting.disks.variables))
    else:  # where nothing boots, the firmware says so on the console, and the machine ends
        ElementTree.SubElement(system, "bios", useserial="yes", rebootTimeout="0")
    features = ElementTree.SubElement(domain, "features")
    ElementTree.SubElement(features, "acpi")
    ElementTree.SubElement(features, "apic")
    cpu = _cpu(domain, setting) if kvm else ElementTree.SubElement(domain, "cpu", mode="maximum", check="none")
    cells = ElementTree.SubElement(cpu, "numa")
    ElementTree.SubElement(cells, "cell", id="0", cpus=every, memory=str(setting.memory_bytes >> 10), unit="KiB")
    ElementTree.SubElement(domain, "clock", offset="utc")
    # What ends is started again by the node, by its policy.
    for event in ("on_poweroff", "on_reboot", "on_crash"):
        _text(domain, event, "destroy")
    devices = ElementTree.SubElement(domain, "devices")
    ElementTree.SubElement(devices, "controller", type="usb", model="none")
    if setting.disks is not None:
        _disks(devices, setting.disks)
    for number, nic in enumerate(setting.nics):
        (_host_device if passed_through(nic.interface) else _interface)(devices, number, nic)
    for index, number in enumerate((number for number, nic in enumerate(setting.nics) if nic.stands_by), 1):
        # A device that comes and goes needs a PCI Express slot; those of the first bus are for good.
        slot = ElementTree.SubElement(devices, "controller", type="pci", index=str(index), model="pcie-root-port")
        ElementTree.SubElement(slot, "alias", name=f"{SLOT}{number}")
    console = ElementTree.SubElement(devices, "serial", type="pty")
    ElementTree.SubElement(console, "log", file=str(setting.console), append="on")
    ElementTree.SubElement(devices, "serial", type="pty")
    agent = ElementTree.SubElement(devices, "serial", type="unix")
    ElementTree.SubElement(agent, "source", mode="bind", path=str(setting.agent))
    ElementTree.SubElement(devices, "memballoon", model="none")
    ElementTree.SubElement(ElementTree.SubElement(devices, "video"), "model", type="none")
    label = ElementTree.SubElement(domain, "seclabel", type="static", model="dac", relabel="no")
    _text(label, "label", setting.user)
    if setting.keeps_cpus:
        arguments = ElementTree.SubElement(domain, f"{{{QEMU}}}commandline")
        for word in ("-overcommit", "cpu-pm=on"):
            ElementTree.SubElement(arguments, f"{{{QEMU}}}arg", value=word)
    if not kvm:
        _without_msix(domain, [number for number, nic in enumerate(setting.nics) if nic.interface == VHOST_USER])
    if setting.fragment is not None:
        _merge(domain, read_fragment(setting.fragment))
    ElementTree.indent(domain)
    return ElementTree.tostring(domain, encoding="unicode") + "\n"


_OURS = "ua-"
"""What the name of a device begins with that is not libvirt's own."""
PORT, SLOT, FAILOVER = f"{_OURS}port", f"{_OURS}slot", f"{_OURS}failover"
"""And those of ours, before the number of a port: that port, the slot for what may carry its frames, and that."""


def alias(device: ElementTree.Element) -> str:
    """The name of a device; empty: it has none."""
    found = device.find("alias")
    return found.get("name", "") if found is not None else ""


def differing(before: str, now: str) -> list[str]:
    """What of a domain is another than before, by where it stands: cputune/vcpupin, devices/interface. What comes and
    goes in front of ports is not looked at."""
    domains = [ElementTree.fromstring(xml) for xml in (before, now)]
    for devices in (found for domain in domains if (found := domain.find("devices")) is not None):
        for each in devices.findall("hostdev"):
            if alias(each).startswith(FAILOVER):
                devices.remove(each)
    was, has = map(_elements, domains)
    return sorted({at for at, _, _ in (was - has) + (has - was)})


def _elements(domain: ElementTree.Element) -> Counter[tuple[str, str, str]]:
    """Each element by its place, its attributes and its text, and how often it stands there. But for the names that
    libvirt gives to devices: one that starts anew has none for some (a controller that is no device)."""
    found: Counter[tuple[str, str, str]] = Counter()

    def add(element: ElementTree.Element, at: str) -> None:
        for child in element:
            if child.tag == "alias" and not child.get("name", "").startswith(_OURS):
                continue
            place = f"{at}/{child.tag}".lstrip("/")
            found[place, str(sorted(child.attrib.items())), (child.text or "").strip()] += 1
            add(child, place)

    add(domain, "")
    return found


#: Each element in these is one more.
_LISTS = ("devices", f"{{{QEMU}}}commandline")
_KEYS = ("name", "id")
"""What tells elements of one tag apart elsewhere."""


def _merge(into: ElementTree.Element, fragment: ElementTree.Element) -> None:
    """Adds the elements of a fragment. One that is there already gets the attributes, the text and the elements of the
    fragment's."""
    for each in fragment:
        same = (old for old in into if old.tag == each.tag and all(old.get(key) == each.get(key) for key in _KEYS))
        found = None if into.tag in _LISTS else next(same, None)
        if found is None:
            into.append(each)
            continue
        found.attrib.update(each.attrib)
        found.text = each.text if (each.text or "").strip() else found.text
        _merge(found, each)


def _cpu(domain: ElementTree.Element, setting: MachineSetting) -> ElementTree.Element:
    """The CPU of a machine that KVM runs."""
    if not setting.passes_cpu:
        return ElementTree.SubElement(domain, "cpu", mode="host-model", check="partial")
    cpu = ElementTree.SubElement(domain, "cpu", mode="host-passthrough", check="none")
    if setting.invariant_tsc:
        cpu.set("migratable", "off")
        ElementTree.SubElement(cpu, "feature", policy="require", name="invtsc")
    return cpu


def _text(parent: ElementTree.Element, tag: str, text: str, **attributes: str) -> None:
    ElementTree.SubElement(parent, tag, attributes).text = text


def _interface(devices: ElementTree.Element, number: int, nic: Nic) -> None:
    vhost_user = nic.interface == VHOST_USER
    interface = ElementTree.SubElement(devices, "interface", type="vhostuser" if vhost_user else "ethernet")
    ElementTree.SubElement(interface, "mac", address=nic.mac)
    if vhost_user:
        ElementTree.SubElement(interface, "source", type="unix", path=nic.at, mode="server")
        ElementTree.SubElement(interface, "driver", rx_queue_size=_RING, tx_queue_size=_RING)
    else:
        ElementTree.SubElement(interface, "target", dev=nic.at, managed="no")
    ElementTree.SubElement(interface, "model", type="virtio" if vhost_user else nic.interface)
    if nic.stands_by:
        ElementTree.SubElement(interface, "teaming", type="persistent")
    ElementTree.SubElement(interface, "rom", enabled="no")
    ElementTree.SubElement(interface, "alias", name=f"{PORT}{number}")
    _place(interface, inner_address(number)).set("type", "pci")


def _host_device(devices: ElementTree.Element, number: int, nic: Nic) -> None:
    """A device of the host's, which libvirt binds to vfio-pci for as long as the machine runs."""
    device = ElementTree.SubElement(devices, "hostdev", mode="subsystem", type="pci", managed="yes")
    ElementTree.SubElement(device, "driver", name="vfio")
    _place(ElementTree.SubElement(device, "source"), nic.at)
    ElementTree.SubElement(device, "alias", name=f"{PORT}{number}")
    _place(device, inner_address(number)).set("type", "pci")


def failover_device(port: int, address: str, bus: int) -> str:
    """A virtual function of the host's, bound to vfio-pci, to be plugged into a bus in front of a port."""
    device = ElementTree.Element("hostdev", mode="subsystem", type="pci", managed="no")
    ElementTree.SubElement(device, "driver", name="vfio")
    _place(ElementTree.SubElement(device, "source"), address)
    ElementTree.SubElement(device, "teaming", type="transient", persistent=f"{PORT}{port}")
    ElementTree.SubElement(device, "alias", name=f"{FAILOVER}{port}")
    _place(device, f"0000:{bus:02x}:00.0").set("type", "pci")
    return ElementTree.tostring(device, encoding="unicode")


def address_of(place: ElementTree.Element) -> str:
    """A PCI address of libvirt's, as the kernel writes it."""
    domain, bus, slot, function = (int(place.get(word, "0"), 16) for word in ("domain", "bus", "slot", "function"))
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def _place(device: ElementTree.Element, address: str) -> ElementTree.Element:
    """Adds a PCI address in libvirt's words."""
    domain, bus, rest = address.split(":")
    slot, _, function = rest.partition(".")
    numbers = {"domain": domain, "bus": bus, "slot": slot, "function": function}
    return ElementTree.SubElement(device, "address", {key: f"0x{number}" for key, number in numbers.items()})


def _disks(devices: ElementTree.Element, disks: Disks) -> None:
    """All formats are said: nobody looks into a file for what it might be."""
    disk = _disk(devices, "vda", "qcow2", disks.overlay)
    backing = ElementTree.SubElement(disk, "backingStore", type="file")
    ElementTree.SubElement(backing, "format", type=disks.format)
    ElementTree.SubElement(backing, "source", file=str(disks.image))
    ElementTree.SubElement(backing, "backingStore")
    ElementTree.SubElement(disk, "boot", order="1")
    ElementTree.SubElement(_disk(devices, "vdb", "raw", disks.seed), "readonly")


def _disk(devices: ElementTree.Element, name: str, kind: str, path: Path) -> ElementTree.Element:
    disk = ElementTree.SubElement(devices, "disk", type="file", device="disk")
    ElementTree.SubElement(disk, "driver", name="qemu", type=kind)
    ElementTree.SubElement(disk, "source", file=str(path))
    ElementTree.SubElement(disk, "target", dev=name, bus="virtio")
    return disk


def _without_msix(domain: ElementTree.Element, ports: Sequence[int]) -> None:
    """With MSI-X, QEMU 7.2 crashes under emulation when a driver starts a vhost-user device."""
    if not ports:
        return
    override = ElementTree.SubElement(domain, f"{{{QEMU}}}override")
    for number in ports:
        device = ElementTree.SubElement(override, f"{{{QEMU}}}device", alias=f"{PORT}{number}")
        front = ElementTree.SubElement(device, f"{{{QEMU}}}frontend")
        ElementTree.SubElement(front, f"{{{QEMU}}}property", name="vectors", type="unsigned", value="0")


def _cpu_set(cpus: Sequence[int]) -> str:
    return ",".join(map(str, cpus))
