"""Two nodes on one machine, each with a libvirt of its own: what both would share is a folder of its own in each one's
mount namespace, and each has a host name. Their network is one namespace, of which no frame leaves; beside it stands a
hub that sends frames to both nodes and counts what comes from either.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from tailrace.errors import Failure
from tailrace.process import hypervisor
from tailrace.process.process import ProcessId, identify
from tailrace.process.programs import system_program

FUNCTION = "first"
_SPEC = """\
fabric: {{idle: sleep, cores: [{core}]}}
functions: {{{function}: {{kind: skeleton, runs: machine, latency: normal{arrives}}}}}
chains: {{voice: [{{if: {ends[0]}}}, {function}, {{if: {ends[1]}}}]}}
"""

_OWN = ("run/libvirt", "var/lib/libvirt", "var/cache/libvirt", "var/log/libvirt")
_SPACE = """\
set -e
for each in {own}; do mkdir -p {folder}/$each /$each; mount --bind {folder}/$each /$each; done
mkdir -p /run/libvirt/common
hostname {host}
echo ready
exec sleep infinity
"""
_LIBC = ctypes.CDLL(None, use_errno=True)
_ALL = 3  # ETH_P_ALL
_SO_RCVBUFFORCE = 33
_HEAD = bytes.fromhex("0200000000bb0200000000aa88b5")
_NUMBER = struct.Struct(">Q")
_FRAME = 60
_LOOK_SECONDS = 0.1
_END_SECONDS = 60.0


def spec_of(core: int, ends: tuple[str, str], *, arrives: bool) -> str:
    """A chain through a machine, between two interfaces; `arrives`: which comes from the other node."""
    return _SPEC.format(core=core, ends=ends, function=FUNCTION, arrives=", arrives: true" if arrives else "")


class Space:
    """The namespaces of a node, which end with this process."""

    def __init__(self, folder: Path, host: str, network: str) -> None:
        """In a network namespace that is there. Raises Failure."""
        script = _SPACE.format(own=" ".join(_OWN), folder=folder, host=host)
        words = [system_program("ip"), "netns", "exec", network, "setpriv", "--pdeathsig", "KILL"]
        words += ["unshare", "--mount", "--uts", "--propagation", "private", "sh", "-c", script]
        self._holder = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "ready\n":
            said = self._holder.communicate()[1].strip()
            raise Failure(f"a node's namespaces cannot be made: {said}")
        self.libvirt = folder / "libvirt"
        """Where its libvirt has its socket."""

    @property
    def within(self) -> list[str]:
        """Put before a command, so that it runs there."""
        return [system_program("nsenter"), "--target", str(self._holder.pid), "--mount", "--uts", "--net"]

    @property
    def environment(self) -> dict[str, str]:
        """What a command there has beside that."""
        return {hypervisor.ENVIRONMENT: str(self.libvirt)}

    def _daemons(self) -> list[ProcessId]:
        """libvirt's that run; one that was killed leaves its file."""
        found = []
        for file in self.libvirt.glob("*.pid"):
            with suppress(OSError, ValueError):
                found.append(identify(int(file.read_text())))
        return [each for each in found if each is not None]

    def end(self) -> None:
        """Once nothing is up there: libvirt's daemons end by themselves. Raises Failure if they do not."""
        try:
            _wait(lambda: not self._daemons(), _END_SECONDS, "a node's libvirt does not end")
        finally:
            self._holder.kill()
            self._holder.communicate()


def packet_socket(network: str, interface: str) -> socket.socket:
    """Of an interface in a network namespace: a thread enters that, and ends. Raises Failure."""
    opened: list[socket.socket] = []

    def enter() -> None:
        handle = os.open(f"/run/netns/{network}", os.O_RDONLY)
        try:
            if _LIBC.setns(handle, 0) == 0:
                opened.append(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL)))
        finally:
            os.close(handle)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if not opened:
        raise Failure(f"network namespace {network}: a packet socket cannot be opened there")
    opened[0].setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 16 << 20)
    opened[0].bind((interface, _ALL))
    return opened[0]


@dataclass(frozen=True)
class Account:
    """What became of the frames from one that came on, up to the last one that has come."""

    received: int
    lost: int
    duplicate: int
    out_of_sequence: int
    """Which came after a later one."""
    outage_ms: float
    """The longest time between two frames."""

    @classmethod
    def of(cls, frames: Sequence[tuple[float, int]]) -> Account:
        """From when each came, in seconds, and its number."""
        numbers = [number for _, number in frames]
        different = set(numbers)
        late, last = 0, -1
        for number in numbers:
            late += number < last
            last = max(last, number)
        return cls(
            len(numbers),
            last - min(numbers) + 1 - len(different) if numbers else 0,
            len(numbers) - len(different),
            late,
            round(1e3 * max((after - before for (before, _), (after, _) in pairwise(frames)), default=0.0), 1),
        )

    def document(self) -> dict[str, float]:
        return asdict(self)


class Hub:
    """Sends numbered frames to all of some interfaces, and notes which come back from others."""

    def __init__(self, network: str, into: Sequence[str], out: Sequence[str], rate: float) -> None:
        """`rate`: frames a second. Raises Failure."""
        self._into = [packet_socket(network, each) for each in into]
        self._out = [packet_socket(network, each) for each in out]
        self._pause = 1 / rate
        self.sent = 0
        self.received: list[tuple[float, int, int]] = []
        """When a frame came (time.monotonic()), its number, and from which of the interfaces."""
        self._ending = threading.Event()
        self._failed: OSError | None = None
        """Why no more is sent or received."""
        self._threads = [threading.Thread(target=self._work, args=(each,)) for each in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def _work(self, part: Callable[[], None]) -> None:
        try:
            part()
        except OSError as error:
            self._failed = error

    def _send(self) -> None:
        due = time.monotonic()
        while not self._ending.is_set():
            frame = (_HEAD + _NUMBER.pack(self.sent)).ljust(_FRAME, b"\0")
            for each in self._into:
                with _lost_in_a_full_queue():
                    each.send(frame)
            self.sent += 1
            due += self._pause
            time.sleep(max(due - time.monotonic(), 0.0))

    def _receive(self) -> None:
        numbers = {each: number for number, each in enumerate(self._out)}
        while not self._ending.is_set():
            for each in select.select(self._out, [], [], _LOOK_SECONDS)[0]:
                frame, address = each.recvfrom(65536)
                if address[2] != socket.PACKET_OUTGOING and frame.startswith(_HEAD):
                    (number,) = _NUMBER.unpack_from(frame, len(_HEAD))
                    self.received.append((time.monotonic(), number, numbers[each]))

    def account(self, since: int = 0) -> Account:
        """Of what came after the first so many frames."""
        return Account.of([(when, number) for when, number, _ in self.received[since:]])

    def from_(self, which: int) -> int:
        """How many came from one of the interfaces."""
        return sum(each == which for _, _, each in self.received)

    def wait_from(self, which: int, seconds: float = 60.0, count: int = 50) -> None:
        """Waits for so many more from one of them. Raises Failure."""
        before = self.from_(which)

        def enough() -> bool:
            if self._failed is not None:
                raise Failure(f"the hub of both nodes has ended: {self._failed.strerror}")
            return self.from_(which) >= before + count

        try:
            _wait(enough, seconds, "not enough frames come")
        except Failure as error:
            came = [self.from_(each) for each in range(len(self._out))]
            raise Failure(f"{error}: {self.sent} were sent, {came[0]} and {came[1]} came of the nodes in all") from None

    def end(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()
        for each in (*self._into, *self._out):
            each.close()


@contextmanager
def _lost_in_a_full_queue() -> Iterator[None]:
    """A frame for which an interface has no room is as lost as one on the way."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOBUFS:
            raise


def _wait(what: Callable[[], bool], seconds: float, why: str) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            raise Failure(f"{why} in {seconds:g} s")
        time.sleep(0.01)
