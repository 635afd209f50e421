"""Guests that listen for a switch and outlive it, as QEMU's do, and numbered frames between them."""

from __future__ import annotations

import socket
import struct
import threading
from pathlib import Path

from front_end import RECEIVES, SENDS, FrontEnd
from running_switch import wait_until

BURST = 64
"""Frames that a switch may have taken from a sender and not yet given to the receiver."""


class Traffic:
    """Numbered frames from one guest to another, as fast as Python goes, whether a switch is there or not."""

    def __init__(self, sender: FrontEnd, receiver: FrontEnd) -> None:
        self.sender, self.receiver = sender, receiver
        self.sent = 0
        self.received: list[int] = []
        self._stop = threading.Event()
        self._quiet = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.receiver.offer_buffers(self.receiver.room(RECEIVES))
            if not self._quiet.is_set() and self.sender.room(SENDS) > 0:
                self.sender.send(struct.pack("<Q", self.sent) * 8)
                self.sent += 1
            self.received += [struct.unpack_from("<Q", frame)[0] for frame in self.receiver.received()]

    def wait_more(self, count: int, what: str) -> None:
        seen = len(self.received)
        wait_until(lambda: len(self.received) > seen + count, what)

    def pause(self) -> None:
        """Send no more, and wait until what was sent has arrived."""
        self._quiet.set()
        wait_until(lambda: bool(self.received) and self.received[-1] == self.sent - 1, "the last frame arrives")

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


class Pair:
    """Two guests that listen, as QEMU does, for a switch that connects to them."""

    def __init__(
        self, folder: Path, kinds: tuple[type[FrontEnd], type[FrontEnd]], names: tuple[str, str] = ("a", "b")
    ) -> None:
        self.guests = {name: kind() for name, kind in zip(names, kinds, strict=True)}
        self.listeners = {}
        for name in self.guests:
            self.listeners[name] = socket.socket(socket.AF_UNIX)
            self.listeners[name].settimeout(60)
            self.listeners[name].bind(str(folder / f"{name}.sock"))
            (folder / f"{name}.sock").chmod(0o666)  # the switch that connects may be another user
            self.listeners[name].listen()

    def serve(self, name: str) -> None:
        """Take the switch's connection and say everything anew; the rings stay as they are. QEMU then says of a packed
        ring what it knew before, which is where it began."""
        guest = self.guests[name]
        guest.close()
        guest.accept(self.listeners[name])
        guest.set_up()

    def end(self) -> None:
        for name, guest in self.guests.items():
            guest.end()
            self.listeners[name].close()
