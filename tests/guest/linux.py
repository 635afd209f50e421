"""What a Linux system in a virtual machine does with its NICs: addresses, ping, iperf3, what its driver negotiated."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from machine import Machine

FEATURES = {
    "csum": 0,
    "guest_csum": 1,
    "mtu": 3,
    "guest_tso4": 7,
    "guest_tso6": 8,
    "host_tso4": 11,
    "host_tso6": 12,
    "mrg_rxbuf": 15,
    "mq": 22,
    "indirect_desc": 28,
    "event_idx": 29,
    "version_1": 32,
    "packed": 34,
}
"""Bits of the virtio specification, by QEMU's names for them."""

ADDRESS = "198.18.7"
ADDRESS6 = "2001:2:"


def features(machine: Machine, interface: str = "eth0") -> set[str]:
    """Those of FEATURES that the driver and the switch agreed on."""
    bits = machine.run(f"cat /sys/class/net/{interface}/device/features").strip()
    return {name for name, bit in FEATURES.items() if bits[bit] == "1"}


def configure(machine: Machine, number: int, interface: str = "eth0", mtu: int = 1500) -> str:
    """Bring an interface up; its address."""
    address = f"{ADDRESS}.{number}"
    machine.run(f"ip address add {address}/24 dev {interface}; ip link set {interface} mtu {mtu} up")
    return address


def configure6(machine: Machine, number: int) -> str:
    """Give an interface that is up an address of IPv6 too, which machines do not use by themselves."""
    address = f"{ADDRESS6}:{number}"
    machine.run(f"echo 0 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6; ip address add {address}/64 dev eth0 nodad")
    return address


PATIENT = "-w 60"
"""Of ping, which else ends two round trips after its last request, whatever is still on its way. So it goes on asking
until so many answers have come as it was to send requests."""


def ping(machine: Machine, address: str, count: int = 100, size: int = 56) -> None:
    """Every request is answered once; without fragments."""
    assert_answered(machine.run(f"ping -M do -i 0.005 {PATIENT} -c {count} -s {size} {address}", 120), count)


def assert_answered(text: str, count: int) -> None:
    """By what a patient ping said: so many requests, and each up to the last of them, were answered once."""
    answered = sorted(int(number) for number in re.findall(r"icmp_seq=(\d+) ttl=", text))
    assert len(answered) >= count and answered == list(range(1, len(answered) + 1)), text
    assert "duplicates" not in text and "errors" not in text, text


def use_pairs(machine: Machine, pairs: int) -> None:
    """Of queues; in place of as many as there are CPUs."""
    machine.run(f"ethtool -L eth0 combined {pairs}")


def choose_pairs_by_flow(machine: Machine) -> None:
    """Linux would choose by the CPU that it runs on."""
    machine.run("for queue in /sys/class/net/eth0/queues/tx-*; do echo 0 >$queue/xps_cpus; done")


def counter(machine: Machine, name: str, interface: str = "eth0") -> int:
    return int(machine.run(f"cat /sys/class/net/{interface}/statistics/{name}"))


def full_sockets(machine: Machine) -> int:
    """UDP datagrams that came in and found the socket's buffer full, since the machine came up (RFC 4113)."""
    names, values = (line.split()[1:] for line in machine.run("grep ^Udp: /proc/net/snmp").splitlines())
    six = machine.run("grep ^Udp6RcvbufErrors /proc/net/snmp6").split()[1]
    return int(dict(zip(names, values, strict=True))["RcvbufErrors"]) + int(six)


def iperf(client: Machine, server: Machine, address: str, *options: str, seconds: float = 2) -> dict[str, Any]:
    """What iperf3's client says at the end, of traffic to a server that is started for it."""
    listener = server.begin("iperf3 --server --one-off")
    server.wait("netstat -ltn | grep -q :5201")
    command = f"iperf3 --client {address} --time {seconds} --json {' '.join(options)}"
    result: dict[str, Any] = json.loads(client.run(command, seconds + 60))
    listener.wait()
    assert "error" not in result, result["error"]
    end: dict[str, Any] = result["end"]
    return end


def tcp(client: Machine, server: Machine, address: str, *options: str, seconds: float = 2) -> float:
    """Bytes that arrived."""
    arrived = float(iperf(client, server, address, *options, seconds=seconds)["sum_received"]["bytes"])
    assert arrived > 1e6, f"only {arrived} bytes in {seconds} s"
    return arrived


def scp(client: Machine, server: Machine, address: str, size: int = 1 << 20) -> None:
    """A file of so many random bytes comes to the server whole, and back. Both have the layer ssh."""
    server.run("mkdir -p -m 700 /root/.ssh /run/ssh; dropbearkey -t ed25519 -f /run/ssh/host")
    client.run("ssh-keygen -q -t ed25519 -N '' -f /run/key")
    key = client.run("cat /run/key.pub").strip()
    server.run(f"echo '{key}' >/root/.ssh/authorized_keys; chmod 600 /root/.ssh/authorized_keys")
    listener = server.begin("dropbear -F -E -s -r /run/ssh/host -p 22")
    server.wait("netstat -ltn | grep -q :22")
    options = "-q -O -i /run/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    client.run(f"head -c {size} /dev/urandom >/run/sent")
    client.run(f"scp {options} /run/sent root@{address}:/run/there", 120)
    client.run(f"scp {options} root@{address}:/run/there /run/back", 120)
    assert client.run("sha256sum </run/back") == client.run("sha256sum </run/sent")
    listener.end()


def bad_checksums(machine: Machine) -> int:
    """TCP segments that came in with one, over either version of IP."""
    return int(machine.run("awk '/^Tcp:/ {print $NF}' /proc/net/snmp | tail -n 1"))


def udp(client: Machine, server: Machine, address: str, rate: str = "4M", seconds: float = 2) -> None:
    """What arrives is all but what the receiving kernel says that it had no room for in the socket."""
    before = full_sockets(server)
    total = iperf(client, server, address, "--udp", "--bitrate", rate, seconds=seconds)["sum"]
    assert total["packets"] > 100
    assert total["lost_packets"] <= full_sockets(server) - before, total


def exchange(left: Machine, right: Machine, longest: int = 1472, address: str = f"{ADDRESS}.2") -> None:
    """ping of the shortest and the longest, TCP both ways, UDP: to the right machine's address."""
    ping(left, address, size=0)
    # The header of IPv6 is longer.
    ping(left, address, size=longest - (20 if ":" in address else 0))
    tcp(left, right, address)
    tcp(left, right, address, "--reverse")
    udp(left, right, address)


def virtio_device(machine: Machine, interface: str = "eth0") -> str:
    """virtio0, …"""
    return Path(machine.run(f"readlink -f /sys/class/net/{interface}/device").strip()).name


def pci_address(machine: Machine, interface: str = "eth0") -> str:
    return Path(machine.run(f"readlink -f /sys/class/net/{interface}/device").strip()).parent.name
