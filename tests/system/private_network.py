"""A network namespace of a test's own, with veth pairs in it, raw sockets at their ends, and TAPs."""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import os
import select
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_LIBC = ctypes.CDLL(None, use_errno=True)
_ALL = 3  # ETH_P_ALL
# linux/if_tun.h
_TUNSETIFF, _TUNSETOFFLOAD, _TUNSETVNETHDRSZ = 0x400454CA, 0x400454D0, 0x400454D8
_TAP, _NO_PI, _VNET_HDR = 0x0002, 0x1000, 0x4000
_OFFLOADS = 0x0F  # checksums, TCP segments over IPv4 and IPv6, and with ECN
VNET_HDR = struct.Struct("<BBHHHH")
"""struct virtio_net_hdr: flags, gso_type, hdr_len, gso_size, csum_start, csum_offset (linux/virtio_net.h)."""
_numbers = itertools.count()


class Network:
    """Gone with all that is in it after end()."""

    def __init__(self) -> None:
        self.name = f"tailrace-test-{os.getpid()}-{next(_numbers)}"
        subprocess.run(["ip", "netns", "add", self.name], check=True)
        # Without IPv6 nothing but the test's own traffic is on the way.
        self.run("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
        self.run("ip", "link", "set", "lo", "up")

    @property
    def within(self) -> tuple[str, ...]:
        """Put before a command, so that it runs here."""
        return ("ip", "netns", "exec", self.name)

    def run(self, *command: str) -> str:
        done = subprocess.run([*self.within, *command], capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def pair(self, one: str, other: str) -> None:
        """Two ends of a cable, up."""
        self.run("ip", "link", "add", "name", one, "type", "veth", "peer", "name", other)
        for end in (one, other):
            self.run("ip", "link", "set", end, "up")
        for end in (one, other):
            self._wait_up(end)

    def _wait_up(self, interface: str, seconds: float = 60) -> None:
        """Returns when frames can leave by it: the kernel drops them until a worker of its own has seen the carrier."""
        deadline = time.monotonic() + seconds
        while self.run("cat", f"/sys/class/net/{interface}/operstate").strip() != "up":
            assert time.monotonic() < deadline, f"{interface} is not up in {seconds} s"
            time.sleep(0.01)

    def reach(self, name: str, other: Network, there: str) -> None:
        """A cable from here to another namespace, up at both ends."""
        self.run("ip", "link", "add", "name", name, "type", "veth", "peer", "name", there, "netns", other.name)
        self.run("ip", "link", "set", name, "up")
        other.run("ip", "link", "set", there, "up")
        self._wait_up(name)
        other._wait_up(there)

    def _here(self, act: Callable[[], T]) -> T:
        """What `act` opens in this namespace; a thread enters it, and ends."""
        opened: list[T] = []

        def enter() -> None:
            handle = os.open(f"/run/netns/{self.name}", os.O_RDONLY)
            if _LIBC.setns(handle, 0) == 0:
                opened.append(act())
            os.close(handle)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        return opened[0]

    def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        return self._here(lambda: socket.socket(family, kind, protocol))

    def tap(self, name: str) -> int:
        """A TAP interface, up, as QEMU opens it for a machine: what is written to the file comes from the machine.
        Each frame has a VNET_HDR in front."""
        tap = self._here(lambda: os.open("/dev/net/tun", os.O_RDWR))
        fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP | _NO_PI | _VNET_HDR))
        fcntl.ioctl(tap, _TUNSETVNETHDRSZ, struct.pack("i", VNET_HDR.size))
        fcntl.ioctl(tap, _TUNSETOFFLOAD, _OFFLOADS)
        self.run("ip", "link", "set", name, "up")
        return tap

    def end(self) -> None:
        subprocess.run(["ip", "netns", "delete", self.name], check=False)


class End:
    """An interface's end: what a test sends and receives there, frame by frame."""

    def __init__(self, network: Network, interface: str) -> None:
        self._socket = network.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
        self._socket.bind((interface, _ALL))

    @property
    def descriptor(self) -> int:
        """Readable when something has come."""
        return self._socket.fileno()

    def send(self, frame: bytes) -> None:
        self._socket.send(frame)

    def received(self) -> list[bytes]:
        """The frames that have come from elsewhere since they were asked for last."""
        frames: list[bytes] = []
        while select.select([self._socket], [], [], 0)[0]:
            frame, address = self._socket.recvfrom(1 << 20)
            if address[2] != socket.PACKET_OUTGOING:
                frames.append(frame)
        return frames

    def wait_received(self, count: int, seconds: float = 60) -> list[bytes]:
        """The next `count` frames that came from elsewhere. Fails when they do not arrive in time."""
        frames: list[bytes] = []
        deadline = time.monotonic() + seconds
        while len(frames) < count:
            left = deadline - time.monotonic()
            assert left > 0, f"{len(frames)} of {count} frames arrived"
            if select.select([self._socket], [], [], left)[0]:
                frame, address = self._socket.recvfrom(65536)
                if address[2] != socket.PACKET_OUTGOING:
                    frames.append(frame)
        return frames

    def close(self) -> None:
        self._socket.close()


def statistics(network: Network, interface: str, name: str) -> int:
    """A counter that the kernel keeps of an interface."""
    return int(network.run("cat", str(Path("/sys/class/net") / interface / "statistics" / name)))
