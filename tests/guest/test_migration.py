"""A machine moves to another QEMU while traffic runs: nothing that the switch wrote into its memory is left behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

import linux
import pytest
from machine import Hardware, Machine, MachineError, Nic, mac
from running_switch import RunningSwitch

pytestmark = pytest.mark.requires_program("tailrace-switch", "qemu-system-x86_64")

MEMORY = 160
BANDWIDTH = 32 << 20
"""Bytes a second for the migration: some seconds for all of the memory."""
PAGE = 4096


def memory_file(machine: Machine) -> int:
    """The machine's memory, opened to be read."""
    for entry in Path(f"/proc/{machine.process.pid}/fd").iterdir():
        if "memory-backend-memfd" in str(entry.readlink()) and entry.stat().st_size == MEMORY << 20:
            return os.open(entry, os.O_RDONLY)
    raise AssertionError("QEMU has no memory file")


def pages_that_differ(one: Machine, other: Machine) -> list[int]:
    files = [memory_file(machine) for machine in (one, other)]
    try:
        left, right = (os.pread(file, MEMORY << 20, 0) for file in files)
    finally:
        for file in files:
            os.close(file)
    assert len(left) == len(right) == MEMORY << 20
    return [at for at in range(0, len(left), PAGE) if left[at : at + PAGE] != right[at : at + PAGE]]


def migrate(source: Machine, target: Machine, seconds: float = 60) -> dict[str, object]:
    """QEMU's account of it, once it has completed; the target stays stopped."""
    channel = f"unix:{target.folder}/migration"
    target.execute("migrate-incoming", uri=channel)
    # Slow, so that much is written to pages that have been sent already.
    source.execute("migrate-set-parameters", max_bandwidth=BANDWIDTH, downtime_limit=1000)
    source.execute("migrate", uri=channel)
    deadline = time.monotonic() + seconds
    while (status := source.execute("query-migrate"))["status"] != "completed":
        if status["status"] in ("failed", "cancelled") or time.monotonic() > deadline:
            raise MachineError(f"no migration in {seconds} s: {status}{source.ends()}{target.ends()}")
        time.sleep(0.05)
    return dict(status)


@pytest.mark.parametrize("packed", ["off", pytest.param("on", marks=pytest.mark.whole)])
def test_a_machine_moves_under_load(switch: RunningSwitch, tmp_path: Path, accelerator: str, packed: str) -> None:
    paths = {name: switch.add_guest(name) for name in ("peer", "here", "there")}
    switch.set_chain("wire", "peer", "here")

    def hardware(port: str, number: int) -> Hardware:
        nic = Nic(paths[port], options={"mac": mac(number), "packed": packed})
        # Linux would write to every page that it gives the switch, and QEMU would see that it did.
        return Hardware([nic], memory=MEMORY, command_line="init_on_alloc=0")

    with (
        Machine(tmp_path, "peer", hardware("peer", 1), accelerator=accelerator) as peer,
        Machine(tmp_path, "source", hardware("here", 2), accelerator=accelerator) as source,
        Machine(tmp_path, "target", hardware("there", 2), accelerator=accelerator, incoming=True) as target,
    ):
        linux.configure(peer, 1)
        address = linux.configure(source, 2)
        linux.ping(peer, address, count=10)
        server = source.begin("iperf3 --server --one-off --json")
        source.wait("netstat -ltn | grep -q :5201")
        load = peer.begin(f"iperf3 --client {address} --time 20 --bitrate 60M --json")
        peer.wait("[ $(cat /sys/class/net/eth0/statistics/tx_bytes) -gt 5000000 ]")

        before = switch.counters("here")["sent_bytes"]
        account = migrate(source, target)
        assert switch.counters("here")["sent_bytes"] > before + 500_000, "there was no load during the migration"
        assert account["ram"]["dirty-sync-count"] >= 2  # type: ignore[index]
        assert pages_that_differ(source, target) == []

        switch.set_chain("wire", "peer", "there")
        target.execute("cont")
        server.follow(target)
        assert '"error"' not in load.wait()
        assert '"error"' not in server.wait()
        linux.ping(peer, address)
        assert switch.counters("there")["received_packets"] > 100
