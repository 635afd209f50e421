"""What two real TCP/IP stacks say to each other, replayed through a firewall and a NAT: each frame is accounted for."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from one_network import Host
from routed_hosts import run
from running_switch import wait_until
from test_firewall import SERVER, WEB

from tailrace.process.control import Control

pytestmark = [
    pytest.mark.requires_root,
    pytest.mark.unsanitized,
    pytest.mark.requires_program("tailrace-vnf", "ip", "ping", "curl", "ethtool"),
]
EVERYTHING, OUTGOING, TIMES = 3, 4, 35  # ETH_P_ALL, PACKET_OUTGOING, SO_TIMESTAMPNS
IPV4, IPV6 = b"\x08\x00", b"\x86\xdd"
POOL, INSIDE = "203.0.113.0/30", "198.18.80.1/32"


@dataclass
class Seen:
    port: int  # 0: from the host on the left
    frame: bytes


def listening(interface: str) -> socket.socket:
    heard = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERYTHING))
    heard.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    heard.setsockopt(socket.SOL_SOCKET, TIMES, 1)
    heard.bind((interface, EVERYTHING))
    heard.setblocking(False)
    return heard


def heard_by(ear: socket.socket) -> Iterator[tuple[bytes, int]]:
    """The frames that have come in there, and when, in ns."""
    while select.select([ear], [], [], 0)[0]:
        frame, told, _, (_, _, kind, *_) = ear.recvmsg(65536, 256)
        if kind != OUTGOING:
            seconds, ns = struct.unpack("qq", next(data for _, what, data in told if what == TIMES))
            yield frame, seconds * 1_000_000_000 + ns


@contextmanager
def function(program: Path, folder: Path, kind: str, ports: tuple[str, str], *settings: str) -> Iterator[Control]:
    """One between two interfaces, without a switch."""
    path, log = folder / f"{kind}.control", folder / f"{kind}.log"
    argv: list[str | Path] = [program, kind, "--mode", "interrupt", "--memory", "64", "--control", path]
    argv += [f"--port=if:{port}" for port in ports] + [f"--set={each}" for each in settings]
    with log.open("w") as said:
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=said)
    try:
        wait_until(lambda: "forwarding" in log.read_text(), f"the {kind} forwards")
        with closing(Control(path)) as control:
            yield control
    finally:
        process.terminate()
        assert process.wait(20) == 0


def shown(control: Control) -> dict[str, Any]:
    counters = control.call("show", most=0)["counters"]
    assert isinstance(counters, dict)
    return counters


def received(control: Control) -> int:
    return sum(int(each["received"]) for each in shown(control)["ports"])


@pytest.fixture(scope="module")
def conversation(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    """Pings, also in fragments, and a page by HTTP, of IPv4 and IPv6."""
    mark = os.getpid() % 100_000
    left, right = Host(f"tql{mark}", 1), Host(f"tqr{mark}", 2)
    folder, program = tmp_path_factory.mktemp("replay"), binaries / "functions/tailrace-vnf"
    with ExitStack() as stack:
        for host in (left, right):
            stack.callback(host.remove)
            host.make()
            host.run("ethtool", "-K", "eth0", "tx", "off")
        ears = [stack.enter_context(listening(host.namespace)) for host in (left, right)]
        stack.enter_context(function(program, folder, "skeleton", (left.namespace, right.namespace)))
        for to in right.addresses.values():
            wait_until(lambda to=to: left.reaches(to), "the hosts reach each other")  # type: ignore[misc]
            assert left.reaches(to, "-s", "3000")
        with right.serves(WEB, "python3", "-c", SERVER):
            for version in (4, 6):
                host = right.addresses[version] if version == 4 else f"[{right.addresses[version]}]"
                left.run("curl", "-sS", "-I", "--max-time", "20", f"http://{host}:{WEB}/")
        seen = [(when, port, frame) for port, ear in enumerate(ears) for frame, when in heard_by(ear)]
    frames = [Seen(port, frame) for _, port, frame in sorted(seen)]
    four = {each.frame[23] for each in frames if each.frame[12:14] == IPV4}
    six = {each.frame[20] for each in frames if each.frame[12:14] == IPV6}
    assert four >= {socket.IPPROTO_ICMP, socket.IPPROTO_TCP}
    assert six >= {socket.IPPROTO_ICMPV6, socket.IPPROTO_TCP, socket.IPPROTO_FRAGMENT}
    return frames


@dataclass
class Replay:
    control: Control
    outside: list[socket.socket]  # where frames go in, and where they come out

    def play(self, frames: list[Seen]) -> list[list[bytes]]:
        """What came out at the other port, by the port where it went in. A frame waits until the one before is
        counted."""
        out: list[list[bytes]] = [[], []]
        for number, each in enumerate(frames, 1):
            self.outside[each.port].send(each.frame)
            wait_until(lambda number=number: received(self.control) >= number, "the frame is counted")  # type: ignore[misc]
        for port in range(2):
            sent = int(shown(self.control)["ports"][port]["sent"])

            def all_out(port: int = port, sent: int = sent) -> bool:
                out[port] += [frame for frame, _ in heard_by(self.outside[not port])]
                return len(out[port]) >= sent

            wait_until(all_out, "all that was sent comes out")
        return out


@contextmanager
def replaying(binaries: Path, folder: Path, kind: str, *settings: str) -> Iterator[Replay]:
    mark = os.getpid() % 100_000
    pairs = [(f"tqi{mark}{port}", f"tqo{mark}{port}") for port in range(2)]
    with ExitStack() as stack:
        for inner, outer in pairs:
            stack.callback(subprocess.run, ["ip", "link", "delete", inner], check=False)
            run("ip", "link", "add", inner, "type", "veth", "peer", "name", outer)
            for name in (inner, outer):
                run("ip", "link", "set", name, "addrgenmode", "none")  # so that the kernel says nothing
                run("ip", "link", "set", name, "up")
        ears = [stack.enter_context(listening(outer)) for _, outer in pairs]
        program = binaries / "functions/tailrace-vnf"
        inner = (pairs[0][0], pairs[1][0])
        control = stack.enter_context(function(program, folder, kind, inner, *settings))
        yield Replay(control, ears)


def accounted(counters: dict[str, Any], of: str, frames: list[Seen], out: list[list[bytes]]) -> None:
    for port in range(2):
        forwarded, did = counters["ports"][port], counters[of][port]
        drops = sum(count for name, count in did.items() if name.startswith("drop_"))
        assert forwarded["received"] == sum(each.port == port for each in frames) == did["passed"] + drops
        assert forwarded["sent"] == did["passed"] == len(out[port]) and forwarded["drop_full"] == 0


def test_a_firewall_passes_what_belongs_together(binaries: Path, tmp_path: Path, conversation: list[Seen]) -> None:
    with replaying(binaries, tmp_path, "firewall") as replay:
        replay.control.call("configure", rules=[{"name": "out", "action": "allow", "port": 0, "match": [{}]}])
        out = replay.play(conversation)
        counters = shown(replay.control)
    accounted(counters, "filtered", conversation, out)
    for port in range(2):
        assert out[port] == [each.frame for each in conversation if each.port == port]


def test_a_nat_accounts_for_every_frame(binaries: Path, tmp_path: Path, conversation: list[Seen]) -> None:
    with replaying(binaries, tmp_path, "nat", f"pool={POOL}", f"inside={INSIDE}") as replay:
        out = replay.play(conversation)
        counters = shown(replay.control)
    accounted(counters, "translated", conversation, out)
    sources = [ip_address(frame[26:30]) for frame in out[0] if frame[12:14] == IPV4]
    assert sources and all(source in ip_network(POOL) for source in sources)
    # The answers are to the inside address itself, which nobody outside knows: no connection gets beyond its SYN.
    assert counters["translated"][1]["drop_inside"] > 0
    assert counters["translated"][0]["drop_state"] > 0
