"""Machines on chains of the switch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import linux
from machine import Hardware, Machine, Nic, Value, mac
from running_switch import RunningSwitch


@contextmanager
def two_machines(
    switch: RunningSwitch,
    folder: Path,
    accelerator: str,
    *options: Mapping[str, Value],
    server: bool = False,
    queues: int = 1,
    mtu: int = 1500,
    **hardware: int | str,
) -> Iterator[tuple[Machine, Machine]]:
    """Both ends of the chain between ports a and b, up and with addresses 1 and 2.

    `options`: of the one NIC, and of the other if that differs.  `server`: the machines listen, the switch connects.
    """
    mode = "client" if server else "server"
    paths = [switch.add_guest(name, mode, queues=queues) for name in ("a", "b")]
    switch.set_chain("wire", "a", "b")
    both = [
        Hardware([Nic(path, server=server, queues=queues, options={"mac": mac(number), **each})], **hardware)  # type: ignore[arg-type]
        for number, (path, each) in enumerate(zip(paths, (options[0], options[-1]), strict=True), 1)
    ]
    with (
        Machine(folder, "left", both[0], accelerator=accelerator) as left,
        Machine(folder, "right", both[1], accelerator=accelerator) as right,
    ):
        for number, machine in enumerate((left, right), 1):
            linux.configure(machine, number, mtu=mtu)
        for name in ("a", "b"):
            switch.wait_state(name, "up")
        yield left, right


def assert_no_fault(switch: RunningSwitch, *ports: str) -> None:
    """Nothing was dropped there but for a receiver that had no room, or was not there, or with a queue given up."""
    expected = ("drop_receiver_full", "drop_receiver_down", "drop_queue_disabled")
    for name in ports:
        faults = {
            key: count
            for key, count in switch.counters(name).items()
            if key.startswith("drop_") and count and key not in expected
        }
        assert not faults, f"port {name}: {faults}"
        assert switch.port(name)["state"] == "up"
