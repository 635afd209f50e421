"""Disks that machines boot from: what is looked at before, what they are told, and what libvirt is."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from test_machines import SETTING

from tailrace.errors import Mistake
from tailrace.functions import disks
from tailrace.functions.domain import Disks, domain_xml
from tailrace.functions.loaders import foreign_loaders
from tailrace.plan.make import make_plan
from tailrace.plan.planned import PlannedFunction
from tailrace.resources.topology import Cpu
from tailrace.spec.load import parse_spec

needs_tools = pytest.mark.skipif(
    not all(shutil.which(each) for each in ("qemu-img", "mformat", "syslinux")), reason="qemu-utils, mtools, syslinux"
)


def first_sectors(*partitions: tuple[int, int], code: bytes = b"\xeb\x63", table: bytes = b"") -> bytes:
    """The beginning of a disk with these partitions: first sector, and number of sectors."""
    entries = b"".join(struct.pack("<B3xB3xII", 0, 0x83, first, count) for first, count in partitions)
    return code.ljust(446, b"\0") + entries.ljust(64, b"\0") + b"\x55\xaa" + table.ljust(512, b"\0")


def test_what_a_pc_cannot_boot_is_told() -> None:
    assert disks.boots_not(first_sectors((2048, 2048)), 4096 * 512, "bios") is None
    assert "partitions end at" in str(disks.boots_not(first_sectors((2048, 2048)), 4095 * 512, "bios"))
    assert "no signature" in str(disks.boots_not(bytes(1024), 1 << 20, "bios"))
    assert "expected `firmware: uefi`" in str(disks.boots_not(first_sectors((1, 1), code=b""), 1 << 20, "bios"))
    assert "nor a partition for UEFI" in str(disks.boots_not(first_sectors((1, 1), code=b""), 1 << 20, "uefi"))
    gpt = b"EFI PART" + bytes(24) + struct.pack("<Q", 4095)
    hybrid = first_sectors(table=gpt)
    assert disks.boots_not(hybrid, 4096 * 512, "bios") is None
    assert "cut short" in str(disks.boots_not(hybrid, 4000 * 512, "bios"))
    protective = bytes(450) + b"\xee" + bytes(59) + b"\x55\xaa" + gpt.ljust(512, b"\0")
    assert disks.boots_not(protective, 4096 * 512, "uefi") is None
    assert "cut short" in str(disks.boots_not(protective, 4000 * 512, "uefi"))


def test_a_seed_says_who_the_machine_is_and_its_addresses() -> None:
    files = disks.seed_files("0" * 32, "fw", {"52:54:00:00:00:00": "10.0.0.1/24", "52:54:00:00:00:01": ""})
    assert json.loads(files["meta-data"]) == {"instance-id": "0" * 32, "local-hostname": "fw"}
    assert json.loads(files["network-config"])["ethernets"] == {
        "port0": {"match": {"macaddress": "52:54:00:00:00:00"}, "set-name": "port0", "addresses": ["10.0.0.1/24"]},
        "port1": {"match": {"macaddress": "52:54:00:00:00:01"}, "set-name": "port1", "optional": True},
    }
    assert files["user-data"].startswith(b"#cloud-config\n")
    assert disks.seed_files("0", "fw", {}, b"#!/bin/sh\n")["user-data"] == b"#!/bin/sh\n"


@needs_tools
def test_a_seed_is_a_file_system_that_cloud_init_finds(tmp_path: Path) -> None:
    seed = tmp_path / "seed"
    disks.make_seed(seed, {"meta-data": b"{}\n", "user-data": b"#cloud-config\n"}, os.geteuid())
    listed = subprocess.run(["mdir", "-i", seed, "-b", "::"], capture_output=True, text=True, check=True).stdout
    assert "meta-data" in listed and "user-data" in listed
    label = subprocess.run(["mlabel", "-i", seed, "-s", "::"], capture_output=True, text=True, check=True).stdout
    assert "CIDATA" in label


@needs_tools
def test_a_boot_disk_is_sound_and_the_same_for_the_same_files(tmp_path: Path) -> None:
    files: dict[str, Path | bytes] = {"vmlinuz": os.urandom(5000), "syslinux.cfg": b"DEFAULT tailrace\n"}
    for name in ("a.raw", "b.raw"):
        disks.make_boot_disk(tmp_path / name, files)
    assert (tmp_path / "a.raw").read_bytes() == (tmp_path / "b.raw").read_bytes()
    user = os.geteuid()
    assert disks.check_disk(tmp_path / "a.raw", user) == "bios"
    assert disks.check_disk(tmp_path / "a.raw", user, "uefi") == "uefi"


GPT = (
    b"EFI PART".ljust(72, b"\0")
    + struct.pack("<QII", 2, 128, 128).ljust(440, b"\0")
    + (bytes.fromhex("28732ac11ff8d211ba4b00a0c93ec93b") + bytes(16) + struct.pack("<QQ", 2048, 98304 + 2047)).ljust(
        128, b"\0"
    )
)


@needs_tools
@pytest.mark.parametrize("fat32", [False, True])
@pytest.mark.parametrize("gpt", [False, True])
def test_an_image_of_another_architecture_is_named(tmp_path: Path, *, fat32: bool, gpt: bool) -> None:
    """By the loader that UEFI would start, in a FAT of 16 or 32 bits, in either kind of partition table."""
    disk, user = tmp_path / "arm.raw", os.geteuid()
    disks.make_boot_disk(disk, {"vmlinuz": b"x", "grub/a long name": b"x"})
    sectors = 98304
    with disk.open("r+b") as file:
        file.truncate((2048 + sectors) * 512)
        file.write(bytes(446) + struct.pack("<B3xB3xII", 0, 0xEE if gpt else 0xEF, 2048, sectors))
        if gpt:
            file.seek(512)
            file.write(GPT)
            file.seek(512 + 32)
            file.write(struct.pack("<Q", 2048 + sectors - 1))
    at = f"{disk}@@{2048 * 512}"
    subprocess.run(
        ["mformat", "-i", at, *(["-F"] if fat32 else []), "-T", str(sectors), "-h", "255", "-s", "63", "::"], check=True
    )
    subprocess.run(["mmd", "-i", at, "::/grub", "::/EFI", "::/EFI/debian", "::/EFI/BOOT"], check=True)
    (tmp_path / "loader").write_bytes(b"MZ")
    assert disks.check_disk(disk, user, "uefi") == "uefi"  # nobody knows what its owner has in mind
    subprocess.run(["mcopy", "-i", at, tmp_path / "loader", "::/EFI/BOOT/BOOTAA64.EFI"], check=True)
    with pytest.raises(Mistake, match=r"arm\.raw: is for another architecture: UEFI finds BOOTAA64\.EFI, and not"):
        disks.check_disk(disk, user)
    subprocess.run(["mcopy", "-i", at, tmp_path / "loader", "::/EFI/BOOT/BOOTX64.EFI"], check=True)
    assert disks.check_disk(disk, user) == "uefi"


def test_a_disk_that_says_anything_is_no_more_than_looked_at() -> None:
    """Random sectors, and those of a sound beginning: it ends, asks for little, and raises nothing."""
    numbers = random.Random(5)

    def read(at: int, count: int) -> bytes:
        assert at >= 0 and 0 <= count <= 32 << 10
        return numbers.randbytes(count) if numbers.random() < 0.9 else numbers.randbytes(count // 2)

    for _ in range(2000):
        begin = bytearray(numbers.randbytes(1024))
        begin[512:520] = b"EFI PART" if numbers.random() < 0.5 else begin[512:520]
        begin[450] = 0xEF
        assert foreign_loaders(bytes(begin), read) == []


@needs_tools
def test_an_image_that_is_missing_cut_short_or_not_whole_is_named(tmp_path: Path) -> None:
    user = os.geteuid()
    whole, packed = tmp_path / "whole.raw", tmp_path / "packed.qcow2"
    disks.make_boot_disk(whole, {"file": os.urandom(1 << 20)})
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", whole, packed], check=True)
    disks.check_disk(packed, user)

    def refused(path: Path, said: str) -> None:
        with pytest.raises(Mistake, match=said):
            disks.check_disk(path, user)

    refused(tmp_path / "none.raw", "none.raw: there is no such file")
    refused(tmp_path, "expected a name that ends in .qcow2 or .raw")
    (tmp_path / "text.qcow2").write_text("hello")
    refused(tmp_path / "text.qcow2", "cannot be read as qcow2")
    (tmp_path / "short.raw").write_bytes(whole.read_bytes()[: 2 << 20])
    refused(tmp_path / "short.raw", "cut short")
    (tmp_path / "short.qcow2").write_bytes(packed.read_bytes()[:-65536])
    refused(tmp_path / "short.qcow2", "cut short")
    words = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", packed, tmp_path / "over.qcow2"]
    subprocess.run(words, check=True)
    refused(tmp_path / "over.qcow2", "needs another file")


def test_the_machine_boots_from_an_overlay_and_looks_into_nothing() -> None:
    found = Disks(Path("/i/own.raw"), "raw", Path("/d/fw.qcow2"), Path("/d/fw.seed"))
    domain = ElementTree.fromstring(domain_xml(replace(SETTING, kernel=None, initramfs=None, disks=found)))
    assert domain.find("os/kernel") is None and domain.find("os/bios").get("useserial") == "yes"  # type: ignore[union-attr]
    first, second = domain.iterfind("devices/disk")
    assert first.find("source").get("file") == "/d/fw.qcow2"  # type: ignore[union-attr]
    assert first.find("backingStore/format").get("type") == "raw"  # type: ignore[union-attr]
    assert first.find("backingStore/backingStore") is not None  # the end of what it is made of
    assert first.find("readonly") is None and second.find("readonly") is not None
    by_uefi = replace(found, variables=Path("/d/fw.variables"))
    domain = ElementTree.fromstring(domain_xml(replace(SETTING, kernel=None, initramfs=None, disks=by_uefi)))
    assert domain.find("os/bios") is None and domain.findtext("os/nvram") == "/d/fw.variables"
    assert domain.find("os/loader").get("readonly") == "yes"  # type: ignore[union-attr]


OWN = "functions: {fw: {runs: machine, image: own.qcow2%s}}\nchains: {voice: [tester.a, fw, tester.b]}\n"
CPUS = [Cpu(number, core=number) for number in range(8)]


def test_a_machine_with_a_disk_of_ones_own_has_no_kind_and_is_told_its_seed(tmp_path: Path) -> None:
    text = OWN % ", ports: 3, seed: {hostname: wall, addresses: [10.0.0.1/24], user_data: more.yaml}"
    (function,) = make_plan(parse_spec(text, "s"), cpus=CPUS, real_time=None, folder=tmp_path).started
    assert function.kind is None and function.image == str(tmp_path / "own.qcow2") and len(function.ports) == 3
    assert function.settings == ("hostname=wall", "address0=10.0.0.1/24", f"user-data={tmp_path}/more.yaml")
    (function,) = make_plan(
        parse_spec(OWN % ", firmware: uefi", "s"), cpus=CPUS, real_time=None, folder=tmp_path
    ).started
    assert function.settings == ("firmware=uefi",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OWN % ", kind: skeleton", "expected no kind"),
        (OWN.replace("own.qcow2", "own") % ", kind: skeleton, firmware: uefi", "firmware is of a machine with a disk"),
        (OWN % ", seed: {addresses: [10.0.0.1.2]}", "no address; expected one with its network"),
        (OWN % ", seed: {addresses: [10.0.0.1/8, 10.0.0.2/8, 10.0.0.3/8]}", "3 addresses for 2 ports"),
        (
            "functions: {fw: {kind: skeleton, seed: {}}}\nchains: {v: [tester.a, fw, tester.b]}\n",
            "seed is for a machine",
        ),
        (
            OWN.replace("own.qcow2", "own.iso") % "",
            "own.iso is no disk by its name; expected one that ends in .qcow2 or .raw",
        ),
        (OWN % ", seed: {addresses: [10.0.0.1]}", "'10.0.0.1' is no address; expected one with its network"),
        (OWN % ", seed: {addresses: ['2001:db8::1%eth0/64']}", "names a zone.*; expected 2001:db8::1/64"),
        (OWN % ", seed: {addresses: [255.255.255.255/32]}", "an address that no host has in a network .240.0.0.0/4"),
    ],
)
def test_what_does_not_fit_a_disk_of_ones_own_is_refused(text: str, said: str) -> None:
    with pytest.raises(Mistake, match=said):
        parse_spec(text, "s")


def test_one_with_a_disk_of_ones_own_has_its_cpus_by_its_load(tmp_path: Path) -> None:
    def planned(fw: str) -> PlannedFunction:
        text = (
            "functions: {fw: {runs: machine, %s, cpus: {most: 3, automatic: true}}}\n"
            "chains: {v: [tester.a, fw, tester.b]}"
        )
        (function,) = make_plan(parse_spec(text % fw, "s"), cpus=CPUS, real_time=None, folder=tmp_path).started
        return function

    function = planned("image: own.qcow2")
    assert function.automatic and (function.cpus, function.most_cpus) == (1, 3)
    assert function.load == "time"
    assert planned("kind: skeleton").load == "rings"


@needs_tools
def test_a_short_look_leaves_out_whether_a_disk_is_whole(tmp_path: Path) -> None:
    disk, user = tmp_path / "disk.qcow2", os.geteuid()
    disks.make_boot_disk(tmp_path / "disk.raw", {"file": os.urandom(1 << 20)})
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", tmp_path / "disk.raw", disk], check=True)
    with disk.open("r+b") as file:  # a cluster that one entry of the table names twice
        file.seek(40)
        (first,) = struct.unpack(">Q", file.read(8))
        file.seek(first)
        (second,) = struct.unpack(">Q", file.read(8))
        file.seek((second & ~(1 << 63)) + 8)
        file.write(struct.pack(">Q", 1 << 63 | 1 << 20 | 512))
    disks.check_disk(disk, user, whole=False)
    with pytest.raises(Mistake, match=r"disk\.qcow2: is damaged"):
        disks.check_disk(disk, user)


@needs_tools
@pytest.mark.parametrize(
    "options",
    ["compat=0.10", "compat=1.1", "cluster_size=512", "cluster_size=2M", "refcount_bits=1", "refcount_bits=64"],
)
def test_a_disk_that_is_cut_short_is_told_by_a_short_look_too(tmp_path: Path, options: str) -> None:
    whole, disk, user = tmp_path / "disk.raw", tmp_path / "disk.qcow2", os.geteuid()
    disks.make_boot_disk(whole, {"file": os.urandom(5 << 20)})
    for more in ([], ["-c"]):
        subprocess.run(["qemu-img", "convert", *more, "-O", "qcow2", "-o", options, whole, disk], check=True)
        size = disk.stat().st_size
        disks.check_disk(disk, user, whole=False)
        for left in (size // 4 * 3, size // 3, 200):
            with disk.open("r+b") as file:
                file.truncate(left)
            for look in (lambda: disks.check_disk(disk, user, whole=False), lambda: disks.check_beginning(disk)):
                with pytest.raises(Mistake, match=rf"disk\.qcow2: (is cut short \({left} of|cannot be read as qcow2)"):
                    look()
