"""A vhost-user front end in Python, for tests: it does what a guest may do, and what a guest must not.

It speaks the messages that set up a network device (vhost-user specification, "Front-end message types"), and reads
and writes its own rings byte by byte. Slow, and that does not matter: each test moves a few frames.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import struct
import time
from pathlib import Path

GET_FEATURES, SET_FEATURES, SET_OWNER, RESET_OWNER = 1, 2, 3, 4
SET_MEM_TABLE, SET_LOG_BASE, SET_LOG_FD = 5, 6, 7
SET_VRING_NUM, SET_VRING_ADDR, SET_VRING_BASE, GET_VRING_BASE = 8, 9, 10, 11
SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR = 12, 13, 14
GET_PROTOCOL_FEATURES, SET_PROTOCOL_FEATURES = 15, 16
GET_QUEUE_NUM, SET_VRING_ENABLE, SEND_RARP, NET_SET_MTU = 17, 18, 19, 20
IOTLB_MSG, GET_INFLIGHT_FD, SET_INFLIGHT_FD, RESET_DEVICE = 22, 31, 32, 34
GET_MAX_MEM_SLOTS, ADD_MEM_REG, REM_MEM_REG, SET_STATUS, GET_STATUS = 36, 37, 38, 39, 40

NEXT, WRITE, INDIRECT = 1, 2, 4
RECEIVES, SENDS = 0, 1
F_MERGEABLE, F_VERSION_1, F_INDIRECT, F_EVENT_INDEX, F_PROTOCOL = 1 << 15, 1 << 32, 1 << 28, 1 << 29, 1 << 30
F_PACKED, F_IN_ORDER = 1 << 34, 1 << 35
F_LOG_ALL = 1 << 26
RARP, REPLY_ACK = 1 << 2, 1 << 3
NEED_REPLY = 1 << 3  # of a message's flags
NO_FD = 1 << 8  # of the number that SET_VRING_KICK, CALL and ERR carry

BASE = 0x1000_0000  # guest-physical address of the memory's first byte
USER = 0x7F00_0000_0000  # where the front end says it has mapped it
SIZE = 4 << 20
# Of a second pair too, whose rings are of 128 descriptors at the most.
RING_AT = (0x0_0000, 0x1_0000, 0x2_0000, 0x3_0000)
BUFFERS_AT = (0x10_0000, 0x20_0000, 0x30_0000, 0x34_0000)
BUFFER = 2048


def fill(descriptor: int) -> None:
    """Make an eventfd full, so that whoever writes to it next waits until it is read."""
    os.set_blocking(descriptor, False)
    with contextlib.suppress(BlockingIOError):
        os.read(descriptor, 8)
    os.write(descriptor, struct.pack("<Q", 2**64 - 2))
    os.set_blocking(descriptor, True)


class FrontEnd:
    """One guest. `ring_size` descriptors a ring; features as wanted by the test, if the back end offers them."""

    def __init__(self, ring_size: int = 64, features: int = F_VERSION_1 | F_MERGEABLE | F_INDIRECT) -> None:
        self.ring_size = ring_size
        self.wanted = features
        self.memory_fd = os.memfd_create("guest")
        os.ftruncate(self.memory_fd, SIZE)
        self.memory = mmap.mmap(self.memory_fd, SIZE)
        # Indexes are stored whole through this view; struct.pack_into() clears them first and writes byte by byte.
        self.words = memoryview(self.memory).cast("H")
        self.kick = [os.eventfd(0, os.EFD_NONBLOCK) for _ in RING_AT]
        self.call = [os.eventfd(0, os.EFD_NONBLOCK) for _ in RING_AT]
        self.socket: socket.socket | None = None
        self.reset()

    def reset(self) -> None:
        """Forget the rings, as a driver does that starts anew."""
        self.memory[:] = bytes(SIZE)
        self.added = [0] * len(RING_AT)
        self.seen = [0] * len(RING_AT)
        self.next_desc = [0] * len(RING_AT)

    # ------- the protocol -------

    def connect(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(path))

    def accept(self, listener: socket.socket) -> None:
        self.socket, _ = listener.accept()
        self.socket.settimeout(60)

    def send_message(self, request: int, payload: bytes = b"", fds: tuple[int, ...] = (), flags: int = 1) -> None:
        assert self.socket is not None
        message = struct.pack("<III", request, flags, len(payload)) + payload
        socket.send_fds(self.socket, [message], fds)

    def acknowledged(self, request: int, payload: bytes = b"", fds: tuple[int, ...] = ()) -> bool:
        """Send a message that has no answer of its own; was it taken? False too when the connection ended."""
        try:
            answer = self.ask(request, payload, fds, NEED_REPLY | 1)
        except OSError:
            return False
        return len(answer) == 8 and struct.unpack("<Q", answer)[0] == 0

    def ask(self, request: int, payload: bytes = b"", fds: tuple[int, ...] = (), flags: int = 1) -> bytes:
        """Send a message that has an answer, and return the answer's payload; empty when the connection ended."""
        self.send_message(request, payload, fds, flags)
        assert self.socket is not None
        header = self.socket.recv(12, socket.MSG_WAITALL)
        if len(header) < 12:
            return b""
        return self.socket.recv(struct.unpack("<III", header)[2], socket.MSG_WAITALL)

    def negotiate(self) -> None:
        offered: int = struct.unpack("<Q", self.ask(GET_FEATURES))[0]
        self.features = (offered & self.wanted) | (offered & F_PROTOCOL)
        (protocol,) = struct.unpack("<Q", self.ask(GET_PROTOCOL_FEATURES))
        self.send_message(SET_PROTOCOL_FEATURES, struct.pack("<Q", protocol & self.wanted_protocol))
        self.send_message(SET_OWNER)
        self.send_message(SET_FEATURES, struct.pack("<Q", self.features))

    def announce(self, mac: bytes) -> bool:
        """Have the back end say that the station with this address is here. Was that taken?"""
        return self.acknowledged(SEND_RARP, mac + bytes(2))

    def give_memory(self, size: int = SIZE) -> None:
        table = struct.pack("<II", 1, 0) + struct.pack("<QQQQ", BASE, size, USER, 0)
        self.send_message(SET_MEM_TABLE, table, (self.memory_fd,))

    wanted_protocol = 0
    """Features of the protocol itself, if the back end offers them."""

    first = 0
    """The position of a ring that has not been used, as SET_VRING_BASE says it."""

    pairs = 1

    def start_rings(self, first: int | None = None, enable: bool = True) -> None:
        for ring in range(2 * self.pairs):
            at = USER + RING_AT[ring]
            self.send_message(SET_VRING_NUM, struct.pack("<II", ring, self.ring_size))
            self.send_message(SET_VRING_BASE, struct.pack("<II", ring, self.first if first is None else first))
            self.send_message(SET_VRING_ADDR, struct.pack("<IIQQQQ", ring, 0, at, at + 0x8000, at + 0x4000, 0))
            self.send_message(SET_VRING_CALL, struct.pack("<Q", ring), (self.call[ring],))
            self.send_message(SET_VRING_KICK, struct.pack("<Q", ring), (self.kick[ring],))
        for ring in range(2 * self.pairs) if enable else ():
            self.send_message(SET_VRING_ENABLE, struct.pack("<II", ring, 1))

    def start(self, path: Path) -> None:
        """Connect and set up everything; the port is up soon after."""
        self.connect(path)
        self.set_up()

    def set_up(self) -> None:
        self.negotiate()
        self.give_memory()
        self.start_rings()

    def position(self, ring: int) -> int:
        """Where the ring stands, as GET_VRING_BASE says it, once everything that was done has been taken back."""
        return self.used_index(ring)

    def stop_rings(self) -> list[int]:
        """Stop both rings as a driver's reset does; returns where the back end says they stand."""
        return [struct.unpack("<II", self.ask(GET_VRING_BASE, struct.pack("<II", ring, 0)))[1] for ring in (0, 1)]

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def end(self) -> None:
        self.close()
        self.words.release()
        self.memory.close()
        for fd in (self.memory_fd, *self.kick, *self.call):
            with contextlib.suppress(OSError):
                os.close(fd)

    # ------- the rings -------

    @property
    def header(self) -> int:
        return 12 if self.features & (F_VERSION_1 | F_MERGEABLE) else 10

    def write_desc(self, ring: int, index: int, address: int, length: int, flags: int, following: int = 0) -> None:
        struct.pack_into("<QIHH", self.memory, RING_AT[ring] + index * 16, address, length, flags, following)

    def offer(self, ring: int, head: int) -> None:
        """Make the chain at `head` available."""
        at = RING_AT[ring] + 0x4000
        struct.pack_into("<H", self.memory, at + 4 + self.added[ring] % self.ring_size * 2, head)
        self.added[ring] = (self.added[ring] + 1) & 0xFFFF
        self.words[at // 2 + 1] = self.added[ring]

    def set_available_index(self, ring: int, index: int) -> None:
        self.words[RING_AT[ring] // 2 + 0x2001] = index

    def used_index(self, ring: int) -> int:
        return int(self.words[RING_AT[ring] // 2 + 0x4001])

    def _slot(self, ring: int) -> int:
        slot = self.next_desc[ring] % self.ring_size
        self.next_desc[ring] += 1
        return slot

    def buffer_address(self, ring: int, slot: int) -> int:
        return BUFFERS_AT[ring] + slot * BUFFER

    def offer_buffers(self, count: int) -> None:
        for _ in range(count):
            slot = self._slot(RECEIVES)
            self.write_desc(RECEIVES, slot, BASE + self.buffer_address(RECEIVES, slot), BUFFER, WRITE)
            self.offer(RECEIVES, slot)

    def send(self, frame: bytes, header: bytes = b"") -> None:
        """With this network header, or one that says nothing."""
        self.send_by(SENDS, frame, header)

    def send_by(self, ring: int, frame: bytes, header: bytes = b"") -> None:
        slot = self._slot(ring)
        at = self.buffer_address(ring, slot)
        self.memory[at : at + self.header + len(frame)] = header.ljust(self.header, b"\0") + frame
        self.write_desc(ring, slot, BASE + at, self.header + len(frame), 0)
        self.offer(ring, slot)

    def kicks(self, ring: int) -> None:
        """Wake the worker, in case it sleeps."""
        os.eventfd_write(self.kick[ring], 1)

    def received(self) -> list[bytes]:
        """The frames that have arrived since the last call, each from one buffer."""
        frames = []
        while self.seen[RECEIVES] != self.used_index(RECEIVES):
            place = RING_AT[RECEIVES] + 0x8000 + 4 + self.seen[RECEIVES] % self.ring_size * 8
            slot, length = struct.unpack_from("<II", self.memory, place)
            at = self.buffer_address(RECEIVES, slot)
            frames.append(bytes(self.memory[at + self.header : at + length]))
            self.seen[RECEIVES] = (self.seen[RECEIVES] + 1) & 0xFFFF
        return frames

    def room(self, ring: int) -> int:
        """How many more chains the ring takes. A receive buffer is free once its frame has been looked at."""
        done = self.seen[RECEIVES] if ring == RECEIVES else self.used_index(SENDS)
        return self.ring_size - (self.added[ring] - done & 0xFFFF)

    def wait_received(self, count: int, seconds: float = 60) -> list[bytes]:
        """The next `count` frames. Fails when they do not arrive in time."""
        frames: list[bytes] = []
        deadline = time.monotonic() + seconds
        while len(frames) < count:
            frames += self.received()
            assert time.monotonic() < deadline, f"{len(frames)} of {count} frames arrived"
        return frames


class PackedFrontEnd(FrontEnd):
    """The same with packed rings; each chain is one descriptor, and its number in the ring is its id."""

    first = 1 << 15

    def __init__(self, ring_size: int = 64, features: int = F_VERSION_1 | F_MERGEABLE) -> None:
        super().__init__(ring_size, features | F_PACKED)

    def reset(self) -> None:
        super().reset()
        self.added_wrap = [1, 1]
        self.done = [0, 0]
        self.done_wrap = [1, 1]
        self.outstanding = [0, 0]

    @property
    def header(self) -> int:
        return 12

    def _flags_at(self, ring: int, slot: int) -> int:
        return (RING_AT[ring] + slot * 16 + 14) // 2

    def add(self, ring: int, address: int, length: int, flags: int) -> None:
        slot, wrap = self.added[ring], self.added_wrap[ring]
        struct.pack_into("<QIH", self.memory, RING_AT[ring] + slot * 16, address, length, slot)
        self.words[self._flags_at(ring, slot)] = flags | wrap << 7 | (1 - wrap) << 15
        self.outstanding[ring] += 1
        self.added[ring] = (slot + 1) % self.ring_size
        if self.added[ring] == 0:
            self.added_wrap[ring] ^= 1

    def _take_back(self, ring: int) -> tuple[int, int] | None:
        """The next chain that the switch is done with: its id and length."""
        slot, wrap = self.done[ring], self.done_wrap[ring]
        flags = int(self.words[self._flags_at(ring, slot)])
        if self.outstanding[ring] == 0 or flags >> 7 & 1 != wrap or flags >> 15 & 1 != wrap:
            return None
        length, number = struct.unpack_from("<IH", self.memory, RING_AT[ring] + slot * 16 + 8)
        self.outstanding[ring] -= 1
        self.done[ring] = (slot + 1) % self.ring_size
        if self.done[ring] == 0:
            self.done_wrap[ring] ^= 1
        return number, length

    def offer_buffers(self, count: int) -> None:
        for _ in range(count):
            at = self.buffer_address(RECEIVES, self.added[RECEIVES])
            self.add(RECEIVES, BASE + at, BUFFER, WRITE)

    def send(self, frame: bytes, header: bytes = b"") -> None:
        at = self.buffer_address(SENDS, self.added[SENDS])
        self.memory[at : at + self.header + len(frame)] = header.ljust(self.header, b"\0") + frame
        self.add(SENDS, BASE + at, self.header + len(frame), 0)

    def position(self, ring: int) -> int:
        self.room(ring)
        return self.done[ring] | self.done_wrap[ring] << 15

    def room(self, ring: int) -> int:
        while ring == SENDS and self._take_back(SENDS) is not None:
            pass
        return self.ring_size - self.outstanding[ring]

    def forget_recorded(self, places: int) -> None:
        """The switch's record of its position (dataplane/vring/vring.c) as before it gave back the last `places`
        buffers: so it is left when the switch is killed between the two."""
        for ring in (RECEIVES, SENDS):
            at = (RING_AT[ring] + 0x8000) // 2
            plain, wrap, place = self.words[at] & 1 << 14, self.words[at] >> 15, self.words[at] & 0x3FFF
            back = min(places, place)
            if self.words[at] != 0 and not (place == back and not wrap):
                self.words[at] = wrap << 15 | plain | place - back

    def received(self) -> list[bytes]:
        frames = []
        while (done := self._take_back(RECEIVES)) is not None:
            number, length = done
            at = self.buffer_address(RECEIVES, number)
            frames.append(bytes(self.memory[at + self.header : at + length]))
        return frames
