"""A device under test that errs as planned: it forwards between two interfaces, and loses, repeats, delays and makes up
frames by their number. The plan is the same function for the device and for the test that knows what to expect.

Run as a program: faulty_device.py INTERFACE INTERFACE; forwards until SIGTERM, then prints its counts.
"""

from __future__ import annotations

import json
import select
import signal
import socket
import sys
from collections.abc import Iterator

TEST_NETWORK = b"\xc6"  # the first byte of 198.18.0.0/15
_ANOTHER_LENGTH = 100


class Plan:
    """What leaves for each frame that comes, in order; frames are counted from 1."""

    def __init__(self) -> None:
        self._count = 0
        self._late: dict[int, list[object]] = {}  # leaves after frame number ...

    def arrive(self, frame: object) -> Iterator[object]:
        """The frames that leave because this one came; None stands for one that is none of the tester's."""
        self._count += 1
        number = self._count
        if number % 7 == 0:
            pass  # lost
        elif number % 13 == 0:
            self._late.setdefault(number + 2, []).append(frame)  # overtaken by two
        elif number % 97 == 0:
            self._late.setdefault(number + 60, []).append(frame)  # very late, and again later still
            self._late.setdefault(number + 75, []).append(frame)
        else:
            yield frame
            if number % 11 == 0:
                yield frame
            if number % 17 == 0:
                self._late.setdefault(number + 5, []).append(frame)  # an older duplicate
        if number % 50 == 0:
            yield None
        yield from self._late.pop(number, [])


def open_interface(name: str) -> socket.socket:
    ethernet_all = 3
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ethernet_all))
    opened.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE: hold what comes while we are not running
    opened.bind((name, ethernet_all))
    return opened


def main() -> None:
    ends = [open_interface(name) for name in sys.argv[1:3]]
    plans = [Plan(), Plan()]
    counts = [{"received": 0, "sent": 0, "foreign": 0} for _ in ends]
    stop_reader, stop_writer = socket.socketpair()
    stop_writer.setblocking(False)
    signal.set_wakeup_fd(stop_writer.fileno())
    signal.signal(signal.SIGTERM, lambda *_: None)
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([*ends, stop_reader], [], [])
        if stop_reader in ready:
            break
        for side in (0, 1):
            if ends[side] not in ready:
                continue
            frame, address = ends[side].recvfrom(65536)
            if address[2] == socket.PACKET_OUTGOING or frame[26:27] != TEST_NETWORK:
                continue
            counts[side]["received"] += 1
            for leaving in plans[side].arrive(frame):
                if leaving is None:
                    counts[side]["foreign"] += 1
                    ends[1 - side].send(frame[:14] + bytes(_ANOTHER_LENGTH))
                else:
                    counts[side]["sent"] += 1
                    assert isinstance(leaving, bytes)
                    ends[1 - side].send(leaving)
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    main()
