"""Frames from one NIC of a machine to another, through the switch that runs inside, and what must be exact of it."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from emulated_nics import NicMachine, SwitchInside, Wire
from machine import Background
from running_switch import wait_until

from tailrace.process.control import ControlError

ADDRESSES = bytes.fromhex("02000000000b 02000000000a")
TAG = bytes.fromhex("8100 0064")
TYPE = bytes.fromhex("88b5")  # for experiments


def frame(size: int, number: int, tag: bytes = b"") -> bytes:
    """To the second of the addresses, from the first."""
    head = ADDRESSES + tag + TYPE
    return head + random.Random(f"{size} {number}").randbytes(size - len(head))


def answer(frame: bytes) -> bytes:
    """The same the other way: a virtual function gets only what is sent to its address."""
    return frame[6:12] + frame[:6] + frame[12:]


PLAIN = [frame(size, number) for number in range(4) for size in (60, 61, 127, 128, 590, 1514)]
PLAIN.append(frame(1518, 0, TAG))
JUMBO = [frame(size, 0) for size in (1515, 4000, 9014)]
BURST = 8


def open_ports(switch: SwitchInside, nics: NicMachine, *names: str) -> None:
    for name in names:
        switch.add_device(name, nics.uri(name))
    for name in names:
        switch.wait_state(name, "up")
        if name in nics.wires:
            nics.wires[name].forget()


def counted(switch: SwitchInside, *names: str) -> dict[str, dict[str, int]]:
    """What of it must be exact."""
    moved = ("received_packets", "received_bytes", "sent_packets", "sent_bytes")
    return {
        name: {key: count for key, count in switch.counters(name).items() if key in moved or key.startswith("drop_")}
        for name in names
    }


def cross(switch: SwitchInside, nics: NicMachine, one: str, other: str, *through: str, wanted: list[bytes]) -> None:
    """Every byte of every frame, and of its answer the other way, in their order; and each port has counted them, and
    nothing else."""
    names = (one, other, *through)
    expected = counted(switch, *names)
    for name in names:
        for key, sum_ in (("packets", len(wanted)), ("bytes", sum(map(len, wanted)))):
            expected[name][f"received_{key}"] += sum_
            expected[name][f"sent_{key}"] += sum_
    for sender, receiver, frames in ((one, other, wanted), (other, one, [answer(each) for each in wanted])):
        for start in range(0, len(frames), BURST):
            burst = frames[start : start + BURST]
            for each in burst:
                nics.wires[sender].send(each)
            assert nics.wires[receiver].wait_received(len(burst)) == burst
    wait_until(lambda: counted(switch, *names) == expected, f"{expected}, it is {counted(switch, *names)}")


def assert_dropped(switch: SwitchInside, source: Wire, name: str) -> None:
    """Frames for a port that is not there, each of them, counted."""
    before = switch.counters(name)["drop_receiver_down"]
    for each in PLAIN:
        source.send(each)
    wait_until(
        lambda: switch.counters(name)["drop_receiver_down"] == before + len(PLAIN), "each frame for it is dropped"
    )


def begin_function(switch: SwitchInside, nics: NicMachine) -> Background:
    """A function between the guest ports `in` and `out`."""
    ports = " ".join(f"--port vhost:{switch.add_guest(name)}" for name in ("in", "out"))
    function = nics.machine.begin(f"exec tailrace-vnf skeleton --mode interrupt --huge --memory 64 {ports}")
    for name in ("in", "out"):
        switch.wait_state(name, "up")
    return function


@contextmanager
def traffic(source: Wire, target: Wire) -> Iterator[None]:
    """Frames without end; who receives them is not asked."""
    ending = threading.Event()

    def send() -> None:
        while not ending.is_set():
            source.send(PLAIN[0])
            target.forget()

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def refusal(switch: SwitchInside, uri: str, **more: Any) -> str:
    """One line."""
    with pytest.raises(ControlError) as raised:
        switch.add_device("wan", uri, **more)
    text = str(raised.value)
    assert "\n" not in text
    assert "wan" not in {port["name"] for port in switch.call("port.list")}
    return text
