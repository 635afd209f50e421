"""A whole Debian on a disk, as its cloud images have it: its own loader, kernel, drivers and cloud-init. It takes its
seed, answers, and routes between two real TCP/IP stacks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import partial

import pytest
from machine import BOOT, IMAGES
from routed_hosts import Host
from running_node import Command, needs_machines, wait_until

from tailrace.functions.domain import machine_id
from tailrace.functions.names import outer_name

DISKS = sorted(IMAGES.glob("debian-*.qcow2"))

pytestmark = [
    *needs_machines,
    pytest.mark.whole,
    pytest.mark.requires_program("ping"),
    pytest.mark.skipif(not DISKS, reason="no disk with a whole Debian: scripts/debian-disk"),
    pytest.mark.timeout(2 * BOOT),
]

SPEC = """\
fabric: {{idle: sleep}}
functions:
  first: skeleton
  debian:
    runs: machine
    image: {disk}
    memory: 768MiB
    seed: {{hostname: router, addresses: [{left}/24, {right}/24], user_data: user-data}}
chains: {{wan: [{{if: {west}}}, first, debian, {{if: {east}}}]}}
"""
# Once the network is there. What is said on the console is in the function's log.
USER_DATA = """\
#cloud-config
bootcmd:
  - [sysctl, --write, net.ipv4.ip_forward=1]
  - - sh
    - -c
    - >-
      echo "told: $(hostname) $(cat /run/cloud-init/.instance-id) $(cat /etc/machine-id)
      $(basename $(readlink /sys/class/net/port0/device/driver)) $(uname -r)" >/dev/console
"""
TOLD = re.compile(r"told: (\S+) (\S+) \S+ virtio_net \S+-cloud-amd64")


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    mark = os.getpid() % 100_000
    made = (Host(f"tdl{mark}", 78), Host(f"tdr{mark}", 79))
    try:
        for host in made:
            host.make()
        yield made
    finally:
        for host in made:
            host.remove()


def test_a_whole_debian_takes_its_seed_and_routes(command: Command, hosts: tuple[Host, Host]) -> None:
    left, right = hosts
    (command.folder / "user-data").write_text(USER_DATA)
    text = SPEC.format(
        disk=DISKS[0], left=left.routers[4], right=right.routers[4], west=left.interface, east=right.interface
    )
    command("up", command.spec(text))
    try:
        wait_until(partial(left.reaches, left.routers[4]), BOOT)  # its addresses are there
        wait_until(partial(left.reaches, right.addresses[4]), BOOT)  # the file has been heeded
        for host, other in ((left, right), (right, left)):
            host.ping_all(host.routers[4], 20)
            host.ping_all(other.addresses[4], 20)
        found = wait_until(lambda: TOLD.search((command.state / "logs/debian.log").read_text(errors="replace")), BOOT)
        assert found.groups() == ("router", machine_id(outer_name(command.state, "debian")).hex)
    finally:
        command("down")
