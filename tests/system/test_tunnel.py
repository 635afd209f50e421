"""A tunnel's end between real TCP/IP stacks: its other end is the kernel's own device, or another one of Tailrace's."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from frr import asked, frr
from iperf import iperf
from one_network import Host, shown
from routed_hosts import run
from running_node import Command, needs_a_node, open_folder, wait_until
from scapy.contrib.geneve import GENEVE
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

pytestmark = [*needs_a_node, pytest.mark.requires_program("ip", "ping", "iperf3")]
PERF, VNI, MTU = 5201, 42, 1500
SECONDS = 60
EVERYTHING = 3  # ETH_P_ALL
#: By IP version: this end, the other end, their prefix's length, and what stands before the packet within.
OUTER = {4: ("203.0.113.1", "203.0.113.2", 24, 50), 6: ("2001:db8:99::1", "2001:db8:99::2", 64, 70)}


@dataclass
class Beyond(Host):
    """A host whose address is that of a tunnel's device, on eth0."""

    protocol: str
    version: int

    def make(self) -> None:
        near, far, length, headers = OUTER[self.version]
        run("ip", "netns", "add", self.namespace)
        run("ip", "link", "add", self.namespace, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        self.run("ip", "address", "add", f"{far}/{length}", "dev", "eth0", *["nodad"][: self.version // 6])
        self.run("ip", "link", "set", "eth0", "up")
        run("ip", "link", "set", self.namespace, "up")
        more = ["local", far, "dstport", "4789"] if self.protocol == "vxlan" else []
        self.run("ip", "link", "add", "inner", "type", self.protocol, "id", str(VNI), "remote", near, *more)
        self.run("ip", "link", "set", "inner", "mtu", str(MTU - headers))
        self.run("ip", "address", "add", f"{self.addresses[4]}/24", "dev", "inner")
        self.run("ip", "address", "add", f"{self.addresses[6]}/64", "dev", "inner", "nodad")
        self.run("ip", "link", "set", "inner", "up")


def kernel_has(protocol: str) -> bool:
    name = f"tr{os.getpid()}"
    made = ["unshare", "--net", "ip", "link", "add", name, "type", protocol, "id", "1", "remote", "203.0.113.2"]
    return subprocess.run(made, capture_output=True, check=False).returncode == 0


def end(name: str, near: str, far: str, *more: str) -> str:
    words = ", ".join([f"vni: {VNI}", f"local: '{near}'", f"remote: '{far}'", *more])
    return f"  {name}: {{kind: tunnel, tunnel: {{{words}}}}}\n"


@contextmanager
def up(tailrace: Path, runs: Path, hosts: tuple[Host, ...], spec: str) -> Iterator[Command]:
    with open_folder() as folder, ExitStack() as stack:
        command = Command(tailrace, runs, folder / "state")
        for host in hosts:
            stack.callback(host.remove)
            host.make()
        try:
            command("up", command.spec(spec))
            yield command
        finally:
            command("down")
        assert not command.leftovers()


def counters(command: Command, name: str) -> list[dict[str, int]]:
    """Of the tunnel, by port."""
    ports = shown(command, name).counters["tunnelled"]
    assert isinstance(ports, list)
    return [{key: int(value) for key, value in each.items()} for each in ports]


def frames_pass(left: Host, right: Host, headers: int) -> None:
    """Both ways, by the other's address and as long as they may be."""
    left.run("ip", "link", "set", "eth0", "mtu", str(MTU - headers))
    for version in (4, 6):
        wait_until(lambda version=version: left.reaches(right.addresses[version]))  # type: ignore[misc]
        assert right.reaches(left.addresses[version])
        longest = str(MTU - headers - 8 - (20 if version == 4 else 40))
        assert left.reaches(right.addresses[version], "-M", "do", "-s", longest)
        assert right.reaches(left.addresses[version], "-M", "do", "-s", longest)
    with right.serves(PERF, "iperf3", "--server"):
        for options in ((), ("--reverse",)):
            assert iperf(left.run, right.addresses[4], 1, *options)["sum_received"]["bytes"] > 1e6


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("protocol", ["vxlan", pytest.param("geneve", marks=pytest.mark.whole)])  # few kernels have it
def test_frames_pass_to_the_kernels_tunnel(tailrace: Path, tmp_path: Path, protocol: str, version: int) -> None:
    if not kernel_has(protocol):
        pytest.skip(f"this kernel has no {protocol}")
    mark = os.getpid() % 100_000
    near, far, _, headers = OUTER[version]
    left, right = Host(f"tuk{mark}", 1), Beyond(f"tur{mark}", 2, protocol, version)
    spec = (
        f"functions:\n{end('away', near, far, f'protocol: {protocol}')}"
        f"chains: {{wan: [{{if: {left.namespace}}}, away, {{if: {right.namespace}}}]}}\n"
    )
    with up(tailrace, tmp_path, (left, right), spec) as command:
        frames_pass(left, right, headers)
        before = counters(command, "away")
        assert [port["drop_too_long"] for port in before] == [0, 0]
        left.run("ip", "link", "set", "eth0", "mtu", str(MTU))
        assert not left.reaches(right.addresses[4], "-M", "do", "-s", str(MTU - headers - 28 + 1))
        after = counters(command, "away")
        assert after[0]["drop_too_long"] >= 1
        assert after[0]["passed"] > 100 and after[1]["passed"] > 100
        assert [port[f"drop_{why}"] for port in after for why in ("checksum", "length", "header", "vni")] == [0] * 8
        (hop,) = shown(command, "away").tables["next_hop"].rows
        assert hop["address"] == far and hop["state"] == "known"
        assert hop["mac"] and str(hop["mac"]).lower() in right.run("ip", "link", "show", "eth0")


def liveness(command: Command) -> dict[str, object]:
    (row,) = shown(command, "away").tables["liveness"].rows
    return dict(row)


def is_in(command: Command, state: str, other: str) -> bool:
    """Whether the session is in this state, and so is the other end as far as is known."""
    row = liveness(command)
    return (row["state"], row["other_end"]) == (state, other)


@pytest.mark.requires_program("vtysh")
@pytest.mark.parametrize("version", [4, pytest.param(6, marks=pytest.mark.whole)])
def test_liveness_with_frr_at_the_other_end(tailrace: Path, tmp_path: Path, version: int) -> None:
    mark = os.getpid() % 100_000
    near, far, _, _ = OUTER[version]
    left, right = Host(f"tuk{mark}", 1), Beyond(f"tur{mark}", 2, "vxlan", version)
    session = "liveness: {interval: 100ms, missed: 50}"  # a busy machine may keep both from their work for a while
    spec = (
        f"functions:\n{end('away', near, far, session)}"
        f"chains: {{wan: [{{if: {left.namespace}}}, away, {{if: {right.namespace}}}]}}\n"
    )
    peer = f"peer {near} local-address {far} interface eth0"
    pace = "".join(f"  {each}\n" for each in ("receive-interval 100", "transmit-interval 100", "detect-multiplier 50"))
    folder = tmp_path / "frr"
    with (
        up(tailrace, tmp_path, (left, right), spec) as command,
        frr(right.namespace, folder, bfdd=f"bfd\n {peer}\n{pace} !\n!\n") as daemons,
    ):
        wait_until(partial(is_in, command, "up", "up"), SECONDS)
        (seen,) = asked(folder, "show bfd peers json")
        assert (seen["status"], seen["peer"], seen["remote-detect-multiplier"]) == ("up", near, 50)
        left.run("ip", "link", "set", "eth0", "mtu", "1400")
        wait_until(partial(left.reaches, right.addresses[4]))
        assert liveness(command)["detection_ms"] == 5000

        os.kill(daemons["bfdd"], signal.SIGSTOP)
        try:
            wait_until(lambda: liveness(command)["state"] == "down", SECONDS)
            row = liveness(command)
            assert (row["why"], row["losses"]) == ("nothing heard in time", 1)
            assert not left.reaches(right.addresses[4])
            assert counters(command, "away")[0]["drop_lost"] >= 1
        finally:
            os.kill(daemons["bfdd"], signal.SIGCONT)
        wait_until(partial(is_in, command, "up", "up"), SECONDS)
        wait_until(partial(left.reaches, right.addresses[4]))

        asked(folder, "configure terminal", "bfd", peer, "shutdown")
        wait_until(partial(is_in, command, "down", "admin down"), SECONDS)
        wait_until(partial(left.reaches, right.addresses[4]))  # which says nothing of the way there
        asked(folder, "configure terminal", "bfd", peer, "no shutdown")
        wait_until(partial(is_in, command, "up", "up"), SECONDS)
        command("function", "stop", "away")
        wait_until(lambda: asked(folder, "show bfd peers json")[0]["status"] == "down", SECONDS)


def heard(interface: str) -> socket.socket:
    """All frames at this interface, from now on."""
    ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERYTHING))
    ear.bind((interface, EVERYTHING))
    ear.settimeout(60)
    return ear


def dissected(frame: bytes) -> tuple[object, ...] | None:
    """What scapy makes of a ping that is in Geneve over IPv6."""
    outer = Ether(frame)
    if GENEVE not in outer or ICMP not in outer:
        return None
    again = outer.copy()
    del again[UDP].chksum
    right = Ether(bytes(again))[UDP].chksum == outer[UDP].chksum
    tunnel, inner = outer[GENEVE], outer[IP]
    return outer[IPv6].src, outer[UDP].dport, right, tunnel.vni, tunnel.proto, inner.src, inner.dst


def test_geneve_joins_two_of_tailrace(tailrace: Path, tmp_path: Path) -> None:
    mark = os.getpid() % 100_000
    left, right = Host(f"tul{mark}", 1), Host(f"tum{mark}", 2)
    one, other = f"tua{mark}", f"tub{mark}"
    near, far, _, headers = OUTER[6]
    spec = (
        f"functions:\n{end('here', near, far, 'protocol: geneve')}{end('there', far, near, 'protocol: geneve')}"
        f"chains:\n  one: [{{if: {left.namespace}}}, here, {{if: {one}}}]\n"
        f"  other: [{{if: {right.namespace}}}, there, {{if: {other}}}]\n"
    )
    run("ip", "link", "add", one, "type", "veth", "peer", "name", other)
    try:
        for each in (one, other):
            run("ip", "link", "set", each, "up")
        with up(tailrace, tmp_path, (left, right), spec) as command, closing(heard(other)) as ear:
            right.run("ip", "link", "set", "eth0", "mtu", str(MTU - headers))
            wait_until(lambda: left.reaches(right.addresses[4]))
            expected = (near, 6081, True, VNI, 0x6558, left.addresses[4], right.addresses[4])
            wait_until(lambda: dissected(ear.recv(65536)) == expected)
            frames_pass(left, right, headers)
            for name in ("here", "there"):
                both = counters(command, name)
                assert both[0]["passed"] > 100 and both[1]["passed"] > 100
    finally:
        run("ip", "link", "delete", one)
