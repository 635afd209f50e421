"""What `bench function router` measures in: a network namespace with a full table of IPv4 routes, and files of frames
to random destinations among them."""

from __future__ import annotations

import os
import random
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from tailrace.bench.setting import Setting
from tailrace.errors import Failure
from tailrace.functions.namespace import prepare_namespace
from tailrace.observe.pcap import RECORD, header
from tailrace.process.plain import last_line
from tailrace.process.process import undisturbed
from tailrace.process.programs import system_program
from tailrace.spec.kind import Network
from tailrace.state.record import Namespace

PORTS = 2
HOPS = 16
"""Neighbours of each port, which all routes lead to."""
FRAMES = 2048
"""In the file of each port; DPDK's device has each in memory, and hands out copies of them in turn."""
CHANGES = 50_000
"""Routes that are changed while frames move; all, if there are fewer."""
_LOAD_SECONDS = 600.0
_NETWORKS = ("198.18.78.", "198.18.79.")
_NETWORKS6 = ("2001:db8:78::", "2001:db8:79::")
_NOBODY = "02:00:00:00:ff:ff"
Route = tuple[int, int, int]
"""Address, length of the prefix, port."""


@dataclass(frozen=True)
class FullTable:
    """What all sides share."""

    namespace: str
    frames: tuple[Path, Path]
    """To the MAC address of each port."""
    foreign: Path
    """The first ones, to a MAC address that nobody has."""
    entering: Path
    """The first ones, to that of the interface `ENTRY`."""
    change: Callable[[], None]
    """Has `CHANGES` of the routes lead to another neighbour of the same port: Linux tells nobody of one that stays."""
    rules: tuple[Path, Path]
    """The routes as l3fwd reads them: IPv4, and one of IPv6, without which it takes none."""


ENTRY, ENTRY_MAC = "entry", "02:00:00:00:03:00"
"""By which frames come to the kernel: the end of a veth in the namespace."""


MARKER = "203.0.113.0/24"
"""A route beside the others: it comes and goes with the last of some changes."""


def random_routes(count: int) -> list[Route]:
    """Different prefixes in order, of lengths roughly as in the Internet's table: most have 24 bits, none has more."""
    dice, found = random.Random(count), set[tuple[int, int]]()
    while len(found) < count:
        which = dice.randrange(10)
        length = 24 if which < 6 else 22 if which < 9 else dice.randrange(16, 22)
        address = dice.randrange(0x10000000, 0xC6000000) & (0xFFFFFFFF << (32 - length))
        if address >> 24 != 127:
            found.add((address, length))
    return [(address, length, number % PORTS) for number, (address, length) in enumerate(sorted(found))]


def random_ipv6_prefixes(count: int) -> list[str]:
    """Different ones in order; most have 48 bits, none has more."""
    dice, found = random.Random(count), set[tuple[int, int]]()
    while len(found) < count:
        length = dice.choice((48, 48, 48, 48, 48, 44, 40, 36, 32))
        address = (dice.randrange(0x2400, 0x3000) << 112) | dice.getrandbits(112)
        found.add((address >> (128 - length) << (128 - length), length))
    return [f"{IPv6Address(address)}/{length}" for address, length in sorted(found)]


def station(port: int) -> str:
    """The MAC address of a port of the router."""
    return f"02:00:00:00:00:{port:02x}"


def _checksum(data: bytes) -> int:
    """RFC 1071, of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def frame(to: str, source: int, destination: int, size: int) -> bytes:
    """A UDP datagram in a frame of `size` bytes with its check sequence, which is not there."""
    length = size - 4 - 14
    head = struct.pack("!BBHHHBBHII", 0x45, 0, length, 0, 0, 64, 17, 0, source, destination)
    head = head[:10] + _checksum(head).to_bytes(2) + head[12:]
    udp = struct.pack("!HHHH", 1000, 2000, length - 20, 0)
    return (bytes.fromhex(to.replace(":", "")) + bytes(6) + b"\x08\x00" + head + udp).ljust(size - 4, b"\0")


def _capture(path: Path, to: str, port: int, routes: Sequence[Route], size: int) -> Path:
    """Frames that come in at the port and leave by the other one."""
    dice, source = random.Random(port), int(IPv4Address(f"{_NETWORKS[port]}99"))
    others = [route for route in routes if route[2] != port]
    made = [frame(to, source, dice.choice(others)[0] | 1, size) for _ in range(FRAMES)]
    path.write_bytes(header(65535) + b"".join(RECORD.pack(0, 0, len(each), len(each)) + each for each in made))
    return path


def _batch(namespace: str, path: Path, lines: Sequence[str]) -> None:
    """Has ip(8) do all of it. Raises Failure."""
    path.write_text("\n".join(lines) + "\n")
    argv = [system_program("ip"), "-n", namespace, "-batch", str(path)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_LOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Failure(f"{' '.join(argv)}: not done after {_LOAD_SECONDS:g} s; use fewer --routes") from None
    if done.returncode != 0:
        raise Failure(f"{' '.join(argv)}: {last_line(done.stderr)}")


def _commands(routes: Sequence[tuple[str, int]], ipv6_routes: Sequence[str]) -> list[str]:
    """For ip(8): the routes of each port lead to its neighbours in turn."""
    lines = [f"link set port{port} address {station(port)}" for port in range(PORTS)]
    for port, network in enumerate(_NETWORKS):
        for hop in range(2, 2 + HOPS):
            lladdr = f"02:00:00:01:{port:02x}:{hop:02x}"
            lines.append(f"neigh add {network}{hop} lladdr {lladdr} dev port{port} nud permanent")
    for number, (prefix, port) in enumerate(routes):
        lines.append(f"route add {prefix} via {_NETWORKS[port]}{2 + number // PORTS % HOPS}")
    for number, prefix in enumerate(ipv6_routes):
        lines.append(f"route add {prefix} via {_NETWORKS6[number % PORTS]}{2 + number // PORTS % HOPS}")
    return lines


@contextmanager
def full_table(setting: Setting, routes: int, ipv6_routes: int, size: int) -> Iterator[FullTable]:
    """Makes the namespace, its routes and the files; all are gone after the block."""
    state = setting.launcher.state
    addresses = ((f"{four}1/24", f"{six}1/64") for four, six in zip(_NETWORKS, _NETWORKS6, strict=True))
    network = Network(tuple(addresses))
    table = random_routes(routes)
    with TemporaryDirectory() as made:
        folder = Path(made)
        name = prepare_namespace(state, "router", network, os.getgid())
        try:
            words = [(f"{IPv4Address(address)}/{length}", port) for address, length, port in table]
            _batch(name, folder / "batch", _commands(words, random_ipv6_prefixes(ipv6_routes)))

            turns = count(1)

            def change() -> None:
                turn = next(turns)
                marker = f"route {'add' if turn % 2 else 'delete'} {MARKER} via {_NETWORKS[0]}2"
                lines = [
                    f"route replace {prefix} via {_NETWORKS[port]}{2 + (number // PORTS + turn) % HOPS}"
                    for number, (prefix, port) in enumerate(words[:CHANGES])
                ]
                _batch(name, folder / "changes", [*lines, marker])

            rules = folder / "rules4", folder / "rules6"
            rules[0].write_text("".join(f"R{prefix} {port}\n" for prefix, port in words))
            rules[1].write_text("R2001:0db8:0000:0000:0000:0000:0000:0000/32 0\n")
            to_ports = [
                _capture(folder / f"port{each}.pcap", station(each), each, table, size) for each in range(PORTS)
            ]
            yield FullTable(
                name,
                (to_ports[0], to_ports[1]),
                _capture(folder / "foreign.pcap", _NOBODY, 0, table, size),
                _capture(folder / "entering.pcap", ENTRY_MAC, 0, table, size),
                change,
                rules,
            )
        finally:
            with undisturbed():
                state.undo(Namespace(name, "router"))
