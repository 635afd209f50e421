"""A hub beside two nodes (`tailrace.measure.two_nodes`): it sends frames to both, and counts what comes from either."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise

from tailrace.errors import Failure
from tailrace.measure.two_nodes import wait_until

_LIBC = ctypes.CDLL(None, use_errno=True)
_ALL = 3  # ETH_P_ALL
_SO_RCVBUFFORCE = 33
_HEAD = bytes.fromhex("0200000000bb0200000000aa88b5")
_NUMBER = struct.Struct(">Q")
_FRAME = 60
_LOOK_SECONDS = 0.1


def packet_socket(network: str, interface: str | None = None) -> socket.socket:
    """Of an interface in a network namespace, or of all of them: a thread enters that, and ends. Raises Failure."""
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
    if interface is not None:
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
        self._out = {name: number for number, name in enumerate(out)}
        # One for all: of several, whoever reads late does not find out in which order frames came.
        self._back = packet_socket(network)
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
        while not self._ending.is_set():
            if not select.select([self._back], [], [], _LOOK_SECONDS)[0]:
                continue
            frame, (interface, _, kind, *_) = self._back.recvfrom(65536)
            if interface in self._out and kind != socket.PACKET_OUTGOING and frame.startswith(_HEAD):
                (number,) = _NUMBER.unpack_from(frame, len(_HEAD))
                self.received.append((time.monotonic(), number, self._out[interface]))

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
            wait_until(enough, seconds, "not enough frames come")
        except Failure as error:
            came = [self.from_(each) for each in range(len(self._out))]
            raise Failure(f"{error}: {self.sent} were sent, {came[0]} and {came[1]} came of the nodes in all") from None

    def end(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()
        for each in (*self._into, self._back):
            each.close()


@contextmanager
def _lost_in_a_full_queue() -> Iterator[None]:
    """A frame for which an interface has no room is as lost as one on the way."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOBUFS:
            raise
