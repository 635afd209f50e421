"""The seed of a machine with a disk of the user's, read by cloud-init itself, as Debian has it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from machine import IMAGES

from tailrace.functions import disks
from tailrace.functions.domain import mac_address, machine_id

MODULES = IMAGES / "cloud-init/usr/lib/python3/dist-packages"
USER_DATA = b"#cloud-config\npackages: [iperf3]\nruncmd: [[systemctl, enable, fw]]\n"

pytestmark = [
    pytest.mark.requires_program("mformat", "mcopy", "blkid"),
    pytest.mark.skipif(not MODULES.exists(), reason="no cloud-init: scripts/setup guest"),
]


@pytest.mark.parametrize("user_data", [None, USER_DATA])
def test_cloud_init_takes_all_that_a_seed_says(tmp_path: Path, user_data: bytes | None) -> None:
    name = "tailrace-fw"
    first, second = (mac_address(name, port) for port in (0, 1))
    files = disks.seed_files(machine_id(name).hex, "fw", {first: "10.0.0.1/24", second: ""}, user_data)
    disk, seed = tmp_path / "disk", tmp_path / "seed/nocloud"
    disks.make_seed(disk, files, os.geteuid())
    for tag, wanted in (("LABEL", "CIDATA"), ("TYPE", "vfat")):  # by these it looks for the disk
        said = subprocess.run(
            ["blkid", "-p", "-o", "value", "-s", tag, disk], capture_output=True, text=True, check=True
        )
        assert said.stdout.strip() == wanted
    seed.mkdir(parents=True)
    subprocess.run(["mcopy", "-n", "-i", disk, "::/*", seed], check=True)
    program = Path(__file__).with_name("read_seed.py")
    done = subprocess.run(
        ["/usr/bin/python3", "-I", program, MODULES, tmp_path], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["found"] is True and found["instance"] == machine_id(name).hex and found["hostname"] == "fw"
    assert found["user_data"].encode() == (user_data or b"#cloud-config\n{}\n")
    # An interface is given the name that the files are for, whoever reads them.
    assert found["renamed"] == {first: "port0", second: "port1"}
    networkd = found["written"]["networkd"]["etc/systemd/network/10-cloud-init-port0.network"].splitlines()
    assert {"Name=port0", f"MACAddress={first}", "Address=10.0.0.1/24"} <= set(networkd)
    assert "iface port0 inet static\n    address 10.0.0.1/24" in found["written"]["eni"]["etc/network/interfaces"]
    netplan = found["written"]["netplan"]["etc/netplan/50-cloud-init.yaml"]
    assert "set-name: port0" in netplan and "10.0.0.1/24" in netplan
