"""A card with virtual functions in a folder, and what Linux does with them when its files are written to.

The rules are those of Linux, drivers/pci/iov.c (sriov_numvfs_store) and drivers/pci/pci-driver.c
(pci_device_can_probe, pci_match_device), as Documentation/ABI/testing/sysfs-bus-pci has them.
"""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from machines import link, make

from tailrace.kernel.tree import Tree

CARD = "0000:3b:00.0"
ROOT = "/sys/devices/pci0000:3a/0000:3a:00.0"
PCI = "/sys/bus/pci"


def express(payload: int = 512, *, acs: int | None = None) -> bytes:
    """A configuration space with the PCI Express capability, and ACS with these bits where it has any."""
    content = bytearray(4096)
    content[0x34] = 0x40
    content[0x40:0x42] = bytes((0x01, 0x70))  # power management first
    content[0x70:0x72] = bytes((0x10, 0x00))
    content[0x78:0x7A] = ((payload // 128).bit_length() - 1 << 5).to_bytes(2, "little")
    content[0x100:0x104] = (0x0001 | 1 << 16 | 0x140 << 20).to_bytes(4, "little")  # advanced error reporting
    if acs is not None:
        content[0x140:0x144] = (0x000D | 1 << 16).to_bytes(4, "little")
        content[0x146:0x148] = acs.to_bytes(2, "little")
    return bytes(content)


def add_card(folder: Path, name: str = "ens1f0", *, most: int = 8, iommu: bool = True, up: bool = True) -> Tree:
    """A card of one port below a bridge, and vfio-pci."""
    device = f"{ROOT}/{CARD}"
    make(
        folder,
        {
            f"{ROOT}/class": "0x060400",
            f"{device}/class": "0x020000",
            f"{device}/numa_node": "0",
            f"{device}/sriov_totalvfs": str(most),
            f"{device}/sriov_numvfs": "0",
            f"{device}/sriov_drivers_autoprobe": "1",
            f"{device}/sriov_offset": "16",
            f"{device}/sriov_stride": "2",
            f"{device}/current_link_speed": "8.0 GT/s PCIe",
            f"{device}/max_link_speed": "16.0 GT/s PCIe",
            f"{device}/current_link_width": "8",
            f"{device}/max_link_width": "16",
            f"{device}/net/{name}/address": "02:00:00:00:00:01",
            f"/sys/class/net/{name}/speed": "25000",
            f"/sys/class/net/{name}/flags": "0x1003" if up else "0x1002",
            f"/sys/class/net/{name}/queues/rx-0/rps_cpus": "0",
            f"{PCI}/drivers/vfio-pci/new_id": "",
            f"{PCI}/drivers/igbvf/new_id": "",
            f"{PCI}/drivers_probe": "",
        },
    )
    for path, content in ((device, express()), (ROOT, express(acs=0x1D))):
        (folder / f"{path}/config".lstrip("/")).write_bytes(content)
    link(folder, f"/sys/class/net/{name}/device", f"../../..{device[4:]}")
    link(folder, f"{PCI}/devices/{CARD}", f"../../..{device[4:]}")
    link(folder, f"{PCI}/devices/{Path(ROOT).name}", f"../../..{ROOT[4:]}")
    link(folder, f"{device}/driver", "../../../../bus/pci/drivers/igb")
    if iommu:
        _group(folder, device, 20)
    return Tree(folder)


def _group(folder: Path, device: str, number: int, *others: str) -> None:
    make(folder, {f"/sys/kernel/iommu_groups/{number}/type": "DMA"})
    link(folder, f"{device}/iommu_group", f"{'../' * (device.count('/') - 1)}kernel/iommu_groups/{number}")
    for path in (device, *others):
        name = Path(path).name
        link(folder, f"/sys/kernel/iommu_groups/{number}/devices/{name}", f"../../../../{path[5:]}")


@dataclass(frozen=True)
class SriovKernel(Tree):
    """The same folder with a kernel behind it, which answers what is written."""

    refuses: dict[str, int] = field(default_factory=dict, compare=False)
    """By the end of a path: the error of a write to it."""
    shared: bool = False
    """Whether all functions are in the card's group."""
    written: list[tuple[str, str]] = field(default_factory=list, compare=False)

    def write(self, path: str, value: str) -> None:
        self.written.append((path, value))
        for end, code in self.refuses.items():
            if path.endswith(end):
                raise OSError(code, os.strerror(code))
        name = path.rpartition("/")[2]
        if name == "sriov_numvfs":
            self._make(path.rpartition("/")[0], int(value))
        elif name == "drivers_probe":
            self._probe(value)
        elif name == "unbind":
            self._of(value, "driver").unlink()
        elif name == "driver_override":
            super().write(path, value or "(null)")
        else:
            super().write(path, value)

    def _of(self, address: str, name: str) -> Path:
        return self.at(f"{PCI}/devices/{address}").resolve() / name

    def _make(self, device: str, count: int) -> None:
        have = self.number(f"{device}/sriov_numvfs") or 0
        if count > (self.number(f"{device}/sriov_totalvfs") or 0):
            raise OSError(errno.ERANGE, os.strerror(errno.ERANGE))
        if have and count:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        for number in range(have):
            self.at(f"{device}/virtfn{number}").unlink()
            address = function_at(number)
            self._leave_group(address)
            shutil.rmtree(self.at(f"{ROOT}/{address}"))
            self.at(f"{PCI}/devices/{address}").unlink()
        for number in range(count):
            self._make_one(device, number)
        super().write(f"{device}/sriov_numvfs", str(count))

    def _leave_group(self, address: str) -> None:
        group = self.at(f"{ROOT}/{address}/iommu_group")
        if group.is_symlink():
            (group.resolve() / "devices" / address).unlink()
            if not any((group.resolve() / "devices").iterdir()):
                shutil.rmtree(group.resolve())

    def _make_one(self, device: str, number: int) -> None:
        address = function_at(number)
        at = f"{ROOT}/{address}"
        make(self.root, {f"{at}/class": "0x020000", f"{at}/driver_override": "(null)"})
        link(self.root, f"{PCI}/devices/{address}", f"../../..{at[4:]}")
        link(self.root, f"{at}/physfn", f"../{CARD}")
        link(self.root, f"{device}/virtfn{number}", f"../{address}")
        if self.exists(f"{ROOT}/{CARD}/iommu_group"):
            _group(self.root, at, 20 if self.shared else 30 + number)
        if self.text(f"{ROOT}/{CARD}/sriov_drivers_autoprobe") == "1":
            self._probe(address)

    def _probe(self, address: str) -> None:
        override = self.text(f"{PCI}/devices/{address}/driver_override") or "(null)"
        if self._of(address, "driver").is_symlink():
            return
        if override == "(null)" and self.text(f"{ROOT}/{CARD}/sriov_drivers_autoprobe") != "1":
            return
        driver = "igbvf" if override == "(null)" else override
        self._of(address, "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")


def function_at(number: int) -> str:
    """Where a function of the card is: by the card's own offset and stride."""
    return f"0000:3b:{(16 + 2 * number) >> 3:02x}.{2 * number & 7}"
