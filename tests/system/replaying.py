"""One of Tailrace's functions between two interfaces, without a switch, and frames that are replayed through it one by
one: what it counts, and what comes out."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from routed_hosts import run
from running_switch import wait_until

from tailrace.process.control import Control

EVERYTHING, OUTGOING, TIMES = 3, 4, 35  # ETH_P_ALL, PACKET_OUTGOING, SO_TIMESTAMPNS


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
def function(
    program: Path, folder: Path, kind: str, ports: tuple[str, str], *settings: str, threads: int = 1
) -> Iterator[Control]:
    """One between two interfaces, without a switch. So the kernel spreads frames over the queues of its threads."""
    path, log = folder / f"{kind}.control", folder / f"{kind}.log"
    argv: list[str | Path] = [program, kind, "--mode", "interrupt", "--memory", str(64 * threads), "--control", path]
    argv += [f"--port=if:{port}" for port in ports] + [f"--set={each}" for each in settings]
    if threads > 1:
        cpu = str(min(os.sched_getaffinity(0)))
        argv += ["--queues", str(threads), "--core", ",".join([cpu] * threads)]
    with log.open("w") as said:
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=said)
    try:
        wait_until(lambda: "forwarding" in log.read_text(), f"the {kind} forwards")
        with closing(Control(path)) as control:
            yield control
    finally:
        process.terminate()
        assert process.wait(60) == 0


def shown(control: Control) -> dict[str, Any]:
    counters = control.call("show", most=0)["counters"]
    assert isinstance(counters, dict)
    return counters


def _did(counters: dict[str, Any]) -> list[dict[str, int]]:
    """What became of the frames of each port."""
    return [each for of in ("filtered", "translated") for each in counters.get(of, ())]


def decided(control: Control) -> int:
    """The frames of which it is known what becomes of them."""
    did = _did(shown(control))
    return sum(count for each in did for name, count in each.items() if name == "passed" or name.startswith("drop_"))


def all_counted(control: Control, frames: int) -> bool:
    """Whether so many frames have come, and what passed of them has been sent or found no room: a thread counts what it
    has received after it has handed it on, and what it has sent after that is gone."""
    counters = shown(control)
    came = sum(each["received"] for each in counters["ports"])
    went = sum(each["sent"] + each["drop_full"] for each in counters["ports"])
    return bool(came >= frames and went >= sum(each["passed"] for each in _did(counters)))


@dataclass
class Replay:
    control: Control
    outside: list[socket.socket]  # where frames go in, and where they come out

    def play(self, frames: list[Seen]) -> list[list[bytes]]:
        """What came out at the other port, by the port where it went in. A frame waits until the one before is
        decided on."""
        out: list[list[bytes]] = [[], []]
        for number, each in enumerate(frames, 1):
            self.outside[each.port].send(each.frame)
            wait_until(lambda number=number: decided(self.control) >= number, "the frame is decided on")  # type: ignore[misc]
        wait_until(lambda: all_counted(self.control, len(frames)), "what came and what passed is counted")
        for port in range(2):
            sent = int(shown(self.control)["ports"][port]["sent"])

            def all_out(port: int = port, sent: int = sent) -> bool:
                out[port] += [frame for frame, _ in heard_by(self.outside[not port])]
                return len(out[port]) >= sent

            wait_until(all_out, "all that was sent comes out")
        return out


@contextmanager
def replaying(binaries: Path, folder: Path, kind: str, *settings: str, threads: int = 1) -> Iterator[Replay]:
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
        control = stack.enter_context(function(program, folder, kind, inner, *settings, threads=threads))
        yield Replay(control, ears)


def accounted(counters: dict[str, Any], of: str, frames: list[Seen], out: list[list[bytes]]) -> None:
    for port in range(2):
        forwarded, did = counters["ports"][port], counters[of][port]
        drops = sum(count for name, count in did.items() if name.startswith("drop_"))
        assert forwarded["received"] == sum(each.port == port for each in frames) == did["passed"] + drops
        assert forwarded["sent"] == did["passed"] == len(out[port]) and forwarded["drop_full"] == 0
