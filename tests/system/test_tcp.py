"""A real TCP/IP stack at both ends of a chain: two network namespaces behind device ports, two functions between.

ping and iperf3 (TCP and UDP) run without an error, with the offloads of the namespaces' own ends as they are by
default: checksums unfinished, TCP in long segments. `tailrace up` switches off what the switch cannot have, and puts it
back.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from iperf import iperf
from running_node import Command, needs_a_node, wait_until

pytestmark = [*needs_a_node, pytest.mark.sanitized, pytest.mark.requires_program("ip", "ping", "iperf3", "ethtool")]

SECONDS = 1


def run(*arguments: str, timeout: float = 60) -> str:
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@dataclass
class Side:
    namespace: str
    interface: str
    """The end in the root namespace, which is the device port."""
    address: str

    def run(self, *arguments: str, timeout: float = 60) -> str:
        return run("ip", "netns", "exec", self.namespace, *arguments, timeout=timeout)

    def socket_overflows(self) -> int:
        """UDP datagrams that arrived and found the socket's buffer full, since the namespace was made (RFC 4113)."""
        names, values = (line.split()[1:] for line in self.run("cat", "/proc/net/snmp").splitlines() if "Udp: " in line)
        return int(dict(zip(names, values, strict=True))["RcvbufErrors"])

    def offloads(self) -> str:
        keep = ("tx-checksumming:", "tcp-segmentation-offload:", "tx-udp-segmentation:", "tx-sctp-segmentation:")
        lines = (line.strip() for line in self.run("ethtool", "-k", "eth0").splitlines())
        return "\n".join(line for line in lines if line.startswith(keep))


@pytest.fixture
def sides() -> Iterator[tuple[Side, Side]]:
    mark = os.getpid() % 100_000
    pair = (Side(f"trl{mark}", f"trl{mark}", "198.18.77.1"), Side(f"trr{mark}", f"trr{mark}", "198.18.77.2"))
    try:
        for side in pair:
            run("ip", "netns", "add", side.namespace)
            # Without IPv6 nothing but the test's own traffic is on the way.
            side.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
            run("ip", "link", "add", side.interface, "type", "veth", "peer", "name", "eth0", "netns", side.namespace)
            side.run("ip", "address", "add", f"{side.address}/24", "dev", "eth0")
            side.run("ip", "link", "set", "lo", "up")
            side.run("ip", "link", "set", "eth0", "up")
            run("ip", "link", "set", side.interface, "up")
        yield pair
    finally:
        for side in pair:
            subprocess.run(["ip", "netns", "delete", side.namespace], check=False, capture_output=True)
            subprocess.run(["ip", "link", "delete", side.interface], check=False, capture_output=True)


@pytest.fixture(name="_server")
def server(sides: tuple[Side, Side]) -> Iterator[None]:
    """iperf3's server on the right side, listening."""
    right = sides[1]
    process = subprocess.Popen(
        ["ip", "netns", "exec", right.namespace, "iperf3", "--server"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_until(lambda: ":5201" in right.run("ss", "-ltn"))
    yield
    process.terminate()
    process.wait(60)


def test_ping_tcp_and_udp_go_through_two_functions(
    tailrace: Path, tmp_path: Path, sides: tuple[Side, Side], _server: None
) -> None:
    left, right = sides
    command = Command(tailrace, tmp_path)
    before = (left.offloads(), right.offloads())
    assert {line.partition(": ")[2] for line in before[0].splitlines()} == {"on"}
    spec = command.spec(
        "functions: {first: skeleton, second: skeleton}\n"
        f"chains: {{tcp: [{{if: {left.interface}}}, first, second, {{if: {right.interface}}}]}}\n"
    )
    try:
        command("up", spec)
        for side in sides:
            off = {line.partition(":")[0] for line in side.offloads().splitlines() if line.endswith(": off")}
            assert off == {"tx-udp-segmentation", "tx-sctp-segmentation"}

        ping = left.run("ping", "-i", "0.2", "-W", "5", "-c", str(SECONDS * 5), right.address)
        sent, received = re.search(r"(\d+) packets transmitted, (\d+) received", ping).groups()  # type: ignore[union-attr]
        assert sent == received == str(SECONDS * 5)
        assert "duplicates" not in ping
        assert "errors" not in ping

        tcp = iperf(left.run, right.address, SECONDS)["sum_received"]
        assert tcp["bits_per_second"] > 1e6
        assert tcp["bytes"] > 0

        back = iperf(left.run, right.address, SECONDS, "--reverse")["sum_received"]
        assert back["bits_per_second"] > 1e6

        total = iperf(left.run, right.address, SECONDS, "--udp", "--bitrate", "20M")["sum"]
        assert total["packets"] > 100
        # What came through the chain and found the receiver's own socket full, because it waited for a core, is not
        # the chain's loss; the receiving kernel counts it.
        assert total["lost_packets"] <= right.socket_overflows()

        for port in command.status()["ports"]:
            assert port["state"] == "up"
            assert not {name for name in port["drops"] if "short" in name or "long" in name or "malformed" in name}
    finally:
        command("down")
    assert (left.offloads(), right.offloads()) == before
    assert not command.leftovers()


@pytest.mark.parametrize(
    ("way", "rates"),
    [
        pytest.param("chains: {c: [l, r]}", (1, 100), id="chain"),
        pytest.param("chains: {c: [l, r]}", (1, 10, 100), id="chain at each rate", marks=pytest.mark.whole),
        pytest.param("bridges: {lan: {ports: [l, r]}}", (1, 10, 100), id="bridge", marks=pytest.mark.whole),
    ],
)
def test_tcp_fills_the_rate_of_its_receiver(
    tailrace: Path, tmp_path: Path, sides: tuple[Side, Side], _server: None, way: str, rates: tuple[int, ...]
) -> None:
    """Frames above the rate wait, so that TCP slows down; where they were lost it got a twentieth of the rate."""
    left, right = sides
    command = Command(tailrace, tmp_path)

    def spec(rate: int) -> Path:
        ports = f"ports: {{l: {{if: {left.interface}}}, r: {{if: {right.interface}, rate: {{to: {rate}Mbps}}}}}}\n"
        return command.spec(f"{ports}{way}\n")

    try:
        command("up", spec(1))
        for rate in rates:
            command("apply", spec(rate))
            tcp = iperf(left.run, right.address, 3)["sum_received"]
            # Of 1518 bytes 1448 are TCP's payload. What a busy machine keeps it from sending is not the rate's fault.
            filled = tcp["bits_per_second"] * 1518 / 1448 / (rate * 1e6)
            assert 0.3 < filled < 1.1
    finally:
        command("down")
    assert not command.leftovers()
