"""A machine on a chain with the host's Linux stack: a device port at the end of a network namespace's interface."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import linux
import pytest
from machine import Hardware, Machine, Nic, Value, mac
from running_switch import RunningSwitch
from wiring import assert_no_fault

pytestmark = [
    pytest.mark.requires_root,
    pytest.mark.requires_program("tailrace-switch", "qemu-system-x86_64", "iperf3", "ip", "ethtool"),
]


class Namespace:
    """A network namespace with one interface, whose other end is here."""

    def __init__(self) -> None:
        self.name = self.interface = f"trg{os.getpid() % 100_000}"
        self.address = f"{linux.ADDRESS}.1"

    def run(self, *arguments: str, timeout: float = 60) -> str:
        return _run("ip", "netns", "exec", self.name, *arguments, timeout=timeout)


def _run(*arguments: str, timeout: float = 60) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    made = Namespace()
    try:
        _run("ip", "netns", "add", made.name)
        made.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
        _run("ip", "link", "add", made.interface, "type", "veth", "peer", "name", "eth0", "netns", made.name)
        made.run("ip", "address", "add", f"{made.address}/24", "dev", "eth0")
        _run("sysctl", "-qw", f"net.ipv6.conf.{made.interface}.disable_ipv6=1")
        # The interface leaves checksums and segments to a NIC, which the device port is not.
        made.run("ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off")
        made.run("ip", "link", "set", "eth0", "up")
        _run("ip", "link", "set", made.interface, "up")
        yield made
    finally:
        subprocess.run(["ip", "netns", "delete", made.name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", made.interface], check=False, capture_output=True)


@pytest.mark.parametrize("packed", ["off", pytest.param("on", marks=pytest.mark.whole)])
def test_a_machine_and_the_host_talk(
    switch: RunningSwitch, tmp_path: Path, accelerator: str, namespace: Namespace, packed: str
) -> None:
    path = switch.add_guest("inside")
    # In one patch: a frame of the host's own that came to a device without a chain would be a fault.
    switch.patch(
        ports={"outside": {"kind": "device", "device": f"if:{namespace.interface}"}},
        chains={"wire": {"from": "inside", "to": "outside"}},
    )
    options: dict[str, Value] = {"packed": packed, "mac": mac(2)}
    with Machine(tmp_path, "machine", Hardware([Nic(path, options=options)]), accelerator=accelerator) as machine:
        address = linux.configure(machine, 2)
        linux.ping(machine, namespace.address)
        for more in ((), ("--reverse",)):
            server = machine.begin("iperf3 --server --one-off")
            machine.wait("netstat -ltn | grep -q :5201")
            text = namespace.run("iperf3", "--client", address, "--time", "2", "--json", *more)
            assert json.loads(text)["end"]["sum_received"]["bytes"] > 1e6
            server.wait()
        assert_no_fault(switch, "inside", "outside")
