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

Acceleration = Literal["kvm", "tcg"]
_QEMU = "http://libvirt.org/schemas/domain/qemu/1.0"
_RING = "1024"
"""Descriptors of a virtqueue, the most that QEMU has."""


@dataclass(frozen=True)
class Nic:
    """A port of a machine."""

    mac: str
    socket: Path
    """Where QEMU listens for the switch."""


@dataclass(frozen=True)
class Disks:
    """What a machine boots from by its firmware."""

    image: Path
    format: str
    overlay: Path
    """On the image, in qcow2: what the machine writes."""
    seed: Path
    """What it is told at its first boot."""


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
    """Its memory is never in swap."""
    disks: Disks | None = None


def mac_address(name: str, port: int) -> str:
    """Of a machine's port: locally administered, and the same whenever that machine is started."""
    mark = zlib.crc32(name.encode())
    return f"52:54:{mark >> 24 & 0xFF:02x}:{mark >> 16 & 0xFF:02x}:{mark >> 8 & 0xFF:02x}:{port:02x}"


def machine_id(name: str) -> uuid.UUID:
    """Of a machine: the same whenever it is started; inside it is what firmware says that it is."""
    return uuid.uuid5(uuid.NAMESPACE_OID, name)


def domain_xml(setting: MachineSetting) -> str:
    """The domain of a machine."""
    ElementTree.register_namespace("qemu", _QEMU)
    kvm = setting.acceleration == "kvm"
    domain = ElementTree.Element("domain", type="kvm" if kvm else "qemu")
    _text(domain, "name", setting.name)
    _text(domain, "uuid", str(machine_id(setting.name)))
    _text(domain, "title", setting.title)
    _text(domain, "memory", str(setting.memory_bytes >> 10), unit="KiB")
    backing = ElementTree.SubElement(domain, "memoryBacking")
    if setting.huge:
        ElementTree.SubElement(ElementTree.SubElement(backing, "hugepages"), "page", size="2", unit="M")
    if setting.locked:
        ElementTree.SubElement(backing, "locked")
    # The switch reads and writes its rings and buffers there.
    ElementTree.SubElement(backing, "source", type="memfd")
    ElementTree.SubElement(backing, "access", mode="shared")
    ElementTree.SubElement(backing, "allocation", mode="immediate")
    _text(domain, "vcpu", str(len(setting.pins)), placement="static")
    tune = ElementTree.SubElement(domain, "cputune")
    for number, cpus in enumerate(setting.pins):
        ElementTree.SubElement(tune, "vcpupin", vcpu=str(number), cpuset=_cpu_set(cpus))
    ElementTree.SubElement(tune, "emulatorpin", cpuset=_cpu_set(setting.others))
    system = ElementTree.SubElement(domain, "os")
    _text(system, "type", "hvm", arch="x86_64", machine="q35")
    if setting.kernel is not None:
        _text(system, "kernel", str(setting.kernel))
        _text(system, "initrd", str(setting.initramfs))
        _text(system, "cmdline", setting.command_line)
    else:  # where nothing boots, the firmware says so on the console, and the machine ends
        ElementTree.SubElement(system, "bios", useserial="yes", rebootTimeout="0")
    features = ElementTree.SubElement(domain, "features")
    ElementTree.SubElement(features, "acpi")
    ElementTree.SubElement(features, "apic")
    ElementTree.SubElement(domain, "cpu", mode="host-passthrough" if kvm else "maximum", check="none")
    ElementTree.SubElement(domain, "clock", offset="utc")
    # What ends is started again by the node, by its policy.
    for event in ("on_poweroff", "on_reboot", "on_crash"):
        _text(domain, event, "destroy")
    devices = ElementTree.SubElement(domain, "devices")
    ElementTree.SubElement(devices, "controller", type="usb", model="none")
    if setting.disks is not None:
        _disks(devices, setting.disks)
    for number, nic in enumerate(setting.nics):
        _interface(devices, number, nic)
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
        arguments = ElementTree.SubElement(domain, f"{{{_QEMU}}}commandline")
        for word in ("-overcommit", "cpu-pm=on"):
            ElementTree.SubElement(arguments, f"{{{_QEMU}}}arg", value=word)
    if not kvm:
        _without_msix(domain, len(setting.nics))
    ElementTree.indent(domain)
    return ElementTree.tostring(domain, encoding="unicode") + "\n"


def differing(before: str, now: str) -> list[str]:
    """What of a domain is another than before, by where it stands: cputune/vcpupin, devices/interface."""
    was, has = (_elements(ElementTree.fromstring(xml)) for xml in (before, now))
    return sorted({at for at, _, _ in (was - has) + (has - was)})


def _elements(domain: ElementTree.Element) -> Counter[tuple[str, str, str]]:
    """Each element by its place, its attributes and its text, and how often it stands there."""
    found: Counter[tuple[str, str, str]] = Counter()

    def add(element: ElementTree.Element, at: str) -> None:
        for child in element:
            place = f"{at}/{child.tag}".lstrip("/")
            found[place, str(sorted(child.attrib.items())), (child.text or "").strip()] += 1
            add(child, place)

    add(domain, "")
    return found


def _text(parent: ElementTree.Element, tag: str, text: str, **attributes: str) -> None:
    ElementTree.SubElement(parent, tag, attributes).text = text


def _interface(devices: ElementTree.Element, number: int, nic: Nic) -> None:
    interface = ElementTree.SubElement(devices, "interface", type="vhostuser")
    ElementTree.SubElement(interface, "mac", address=nic.mac)
    ElementTree.SubElement(interface, "source", type="unix", path=str(nic.socket), mode="server")
    ElementTree.SubElement(interface, "model", type="virtio")
    ElementTree.SubElement(interface, "driver", rx_queue_size=_RING, tx_queue_size=_RING)
    ElementTree.SubElement(interface, "rom", enabled="no")
    ElementTree.SubElement(interface, "alias", name=f"ua-port{number}")


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


def _without_msix(domain: ElementTree.Element, ports: int) -> None:
    """With MSI-X, QEMU 7.2 crashes under emulation when a driver starts a vhost-user device."""
    override = ElementTree.SubElement(domain, f"{{{_QEMU}}}override")
    for number in range(ports):
        device = ElementTree.SubElement(override, f"{{{_QEMU}}}device", alias=f"ua-port{number}")
        front = ElementTree.SubElement(device, f"{{{_QEMU}}}frontend")
        ElementTree.SubElement(front, f"{{{_QEMU}}}property", name="vectors", type="unsigned", value="0")


def _cpu_set(cpus: Sequence[int]) -> str:
    return ",".join(map(str, cpus))
