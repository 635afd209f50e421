"""A virtual machine with NICs behind an IOMMU, the far ends of their cables, and a switch that runs inside."""

from __future__ import annotations

import base64
import gzip
import os
import select
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine import Hardware, Machine, Value, mac
from private_network import Network
from running_switch import RunningSwitch

from tailrace.observe.page import Page, Slot
from tailrace.process.control import Control
from tailrace.resources.hugepages import POOL

FOLDER = Path("/run/switch")
"""Inside: the switch's own."""
USER = 61000
PAGE_START = 1 << 17
"""Bytes of the page of counters that hold every slot in use here; all of it would take seconds to carry out."""
FIRST_SLOT = 0x10
NO_IOMMU_BUS = 0x80
"""Of the root whose devices are behind no IOMMU."""
QUEUES = 2
"""Of the NIC that has several."""

VIRTIO: Mapping[str, Value] = {"disable-legacy": "on", "iommu_platform": "on"}
"""Such a device keeps to the IOMMU."""


@dataclass(frozen=True)
class Nic:
    driver: str
    """QEMU's."""
    options: Mapping[str, Value] = field(default_factory=dict)
    for_vfio: bool = True
    """Else it stays with Linux's driver."""
    port: Mapping[str, Value] = field(default_factory=dict)
    """Options of its slot, QEMU's pcie-root-port: disable-acs="on" puts all below it into one IOMMU group."""
    iommu: bool = True
    """Else it is on a root of its own, behind no IOMMU."""


NICS = {
    "left": Nic("e1000e", {}),
    "right": Nic("virtio-net-pci", VIRTIO),
    "third": Nic("vmxnet3", {}),
    "fourth": Nic("e1000e", {}),
    "many": Nic("virtio-net-pci", {**VIRTIO, "mq": "on", "vectors": 2 * QUEUES + 2, "rss": "on"}),
}
"""By the name of port, cable and device.  Several queues need a back end that has them: the last hangs on a TAP."""


def wire_backend(name: str, here: Path, there: Path) -> str:
    """QEMU's end of a cable, and where the other end is."""
    return f"dgram,id={name},local.type=unix,local.path={here},remote.type=unix,remote.path={there}"


class Wire:
    """The far end of a NIC's cable: a datagram of a Unix socket is a frame."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path, self._nic = folder / f"{name}.wire", folder / f"{name}.nic"
        self.backend = wire_backend(name, self._nic, self._path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(60)
        self._socket.bind(str(self._path))

    def send(self, frame: bytes) -> None:
        """Waits for a NIC that takes no more."""
        self._socket.sendto(frame, str(self._nic))

    def wait_received(self, count: int, seconds: float = 60) -> list[bytes]:
        """The next `count` frames. Fails when they do not arrive in time."""
        frames: list[bytes] = []
        deadline = time.monotonic() + seconds
        while len(frames) < count:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self._socket], [], [], left)[0], f"{len(frames)} of {count} arrived"
            frames.append(self._socket.recv(65536))
        return frames

    def forget(self, seconds: float = 0) -> None:
        """What has arrived, until nothing more has for so long."""
        while select.select([self._socket], [], [], seconds)[0]:
            self._socket.recv(65536)

    def close(self) -> None:
        self._socket.close()


class NicMachine:
    """The machine, with all NICs bound to vfio-pci but those whose driver is Linux's."""

    def __init__(self, machine: Machine, nics: Mapping[str, Nic], wires: Mapping[str, Wire], network: Network) -> None:
        self.machine = machine
        self.nics = nics
        self.wires = wires
        self.network = network
        """Where the TAP `many` is."""
        machine.run("for name in vfio-pci vfio_iommu_type1 virtio_console; do modprobe $name; done")
        # For a function beside the switch.
        machine.run(f"echo 40 >{POOL}/nr_hugepages")
        self.addresses = {
            name: self._find(0 if nic.iommu else NO_IOMMU_BUS, slot)
            for slot, (name, nic) in enumerate(nics.items(), FIRST_SLOT)
        }
        for name, nic in nics.items():
            if nic.for_vfio:
                self.bind(name, "vfio-pci")

    def _find(self, bus: int, slot: int) -> str:
        port = f"/sys/bus/pci/devices/0000:{bus:02x}:{slot:02x}.0"
        return Path(self.machine.run(f"echo {port}/0000:??:??.?").strip()).name

    def uri(self, name: str) -> str:
        return f"pci:{self.addresses[name]}"

    def unbind(self, name: str) -> None:
        device = self._path(name)
        self.machine.run(f"[ ! -e {device}/driver ] || echo {self.addresses[name]} >{device}/driver/unbind")

    def bind(self, name: str, driver: str) -> None:
        self.unbind(name)
        device, address = self._path(name), self.addresses[name]
        self.machine.run(f"echo {driver} >{device}/driver_override; echo {address} >/sys/bus/pci/drivers_probe")
        assert Path(self.machine.run(f"readlink {device}/driver").strip()).name == driver

    def has(self, name: str) -> bool:
        return self.machine.ask(f"[ -e {self._path(name)} ]")[0] == 0

    def _path(self, name: str) -> str:
        return f"/sys/bus/pci/devices/{self.addresses[name]}"

    def groups(self, program: str) -> int:
        """Devices that it has from vfio."""
        return int(self.machine.run(f"ls -l /proc/$(pidof {program})/fd | grep -c '/dev/vfio/[0-9]' || true"))

    def set_link(self, name: str, *, up: bool) -> None:
        self.machine.execute("set_link", name=name, up=up)

    def unplug(self, name: str) -> None:
        """Returns at once; QEMU says when the kernel inside has let go of it."""
        self.machine.execute("device_del", id=name)

    def plug(self, name: str) -> None:
        """Back into its slot, bound again."""
        words = dict(word.partition("=")[::2] for word in _device(self.nics, name).split(",")[1:])
        self.machine.execute("device_add", driver=self.nics[name].driver, **words)
        self.machine.wait(f"[ -e {self._path(name)} ]")
        self.bind(name, "vfio-pci")


def _device(nics: Mapping[str, Nic], name: str) -> str:
    nic, number = nics[name], list(nics).index(name)
    options = {"id": name, "netdev": name, "bus": f"slot-{name}", "mac": mac(number + 1), "romfile": "", **nic.options}
    return ",".join([nic.driver, *(f"{key}={value}" for key, value in options.items())])


@contextmanager
def nic_machine(
    folder: Path,
    accelerator: str,
    nics: Mapping[str, Nic] = NICS,
    cables: Mapping[str, str] | None = None,
    **kind: Any,
) -> Iterator[NicMachine]:
    """`cables`: NICs that are joined with each other. `kind`: of its hardware, where it is to be another."""
    network = Network()
    joined = {**(cables or {}), **{other: one for one, other in (cables or {}).items()}}
    wires = {name: Wire(folder, name) for name in nics if name != "many" and name not in joined}
    backends = {name: wire.backend for name, wire in wires.items()}
    backends |= {
        one: wire_backend(one, folder / f"{one}.nic", folder / f"{other}.nic") for one, other in joined.items()
    }
    backends["many"] = f"tap,id=many,ifname=many,queues={QUEUES},vhost=off,script=no,downscript=no"
    arguments: list[str | Path] = ["-device", "intel-iommu,intremap=on,aw-bits=48"]
    if not all(nic.iommu for nic in nics.values()):
        arguments += ["-device", f"pxb-pcie,id=outer,bus_nr={NO_IOMMU_BUS},bypass_iommu=on"]
    for slot, (name, nic) in enumerate(nics.items(), FIRST_SLOT):
        port = {
            "bus": "pcie.0" if nic.iommu else "outer",
            "chassis": slot,
            "slot": slot,
            "addr": f"{slot:#x}",
            **nic.port,
        }
        arguments += ["-netdev", backends[name]]
        arguments += [
            "-device",
            ",".join(["pcie-root-port", f"id=slot-{name}", *(f"{k}={v}" for k, v in port.items())]),
        ]
        arguments += ["-device", _device(nics, name)]
    arguments += ["-chardev", f"socket,id=control,path={folder}/control,server=on,wait=off"]
    arguments += ["-device", "virtio-serial-pci,bus=pcie.0", "-device", "virtserialport,chardev=control"]
    common: dict[str, Any] = {
        "memory": 768,
        "layers": ("base", "dpdk", "python"),
        "command_line": "intel_iommu=on",
        # KVM's own interrupt controller cannot remap interrupts.
        "machine": "q35,kernel-irqchip=split" if accelerator == "kvm" else "q35",
        "arguments": arguments,
    }
    hardware = Hardware(**{**common, **kind})
    try:
        with Machine(folder, "machine", hardware, accelerator=accelerator, within=network.within) as machine:
            if "many" in nics:
                network.run("ip", "link", "set", "many", "up")
            yield NicMachine(machine, nics, wires, network)
    finally:
        for wire in wires.values():
            wire.close()
        network.end()


RELAY = """
import os, socket, threading
port = os.open("/dev/vport0p1", os.O_RDWR)
control = socket.socket(socket.AF_UNIX)
control.connect("/run/switch/control")
def carry(read, write):
    while data := read(4096):
        write(data)
threading.Thread(target=carry, args=(lambda size: os.read(port, size), control.sendall), daemon=True).start()
carry(control.recv, lambda data: os.write(port, data))
"""


class SwitchInside(RunningSwitch):
    """A switch in the machine, as `tailrace up` starts one. Virtio-serial carries its control socket out."""

    def __init__(self, nics: NicMachine, *options: str) -> None:
        self.machine = nics.machine
        self.folder = FOLDER
        self._files = nics.machine.folder.parent
        self.machine.run(f"rm -rf {FOLDER}; mkdir {FOLDER}; chown {USER}:{USER} {FOLDER}")
        self._running = self.machine.begin(
            f"exec tailrace-switch --control {FOLDER}/control --page {FOLDER}/page --idle sleep --memory 128 "
            f"--backpressure-us 1000000 --user {USER}:{USER} --keep dac_override,ipc_lock,sys_rawio {' '.join(options)}"
        )
        self.machine.wait(f"[ -S {FOLDER}/control ]")
        self.control = Control(self._files / "control", timeout=60)
        self._relay = self.machine.begin(f"exec /usr/bin/python3 -ISc '{RELAY}'")
        self.call("version")

    def said(self, text: str) -> int:
        """How often, in its log."""
        return self._running.output().count(text)

    def slots(self) -> list[Slot]:
        read = f"stat -c %s {FOLDER}/page; head -c {PAGE_START} {FOLDER}/page | gzip -1 | base64 -w 0"
        size, start = self.machine.run(read).split()
        copy = self._files / "page"
        copy.write_bytes(gzip.decompress(base64.b64decode(start)))
        os.truncate(copy, int(size))
        page = Page(copy)
        slots = page.slots()
        page.close()
        return slots

    def counters(self, name: str) -> dict[str, int]:
        """Of a port: the sums over its queues."""
        queues = [slot.counters for slot in self.slots() if slot.kind == "queue" and slot.name.startswith(f"{name}/")]
        return {key: sum(queue[key] for queue in queues) for key in queues[0]}

    def end(self) -> int:
        self.control.close()
        self._running.end()
        self._running.wait()  # that its status was 0
        return 0
