"""A machine moves to another QEMU while traffic runs: nothing that the switch wrote into its memory is left behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import linux
import pytest
from machine import Hardware, Machine, MachineError, Nic, Value, mac
from running_switch import RunningSwitch, wait_until

pytestmark = pytest.mark.requires_program("tailrace-switch", "qemu-system-x86_64")

MEMORY = 160
BANDWIDTH = 32 << 20
"""Bytes a second for the migration: some seconds for all of the memory."""
CRAWL = 1 << 20
"""The same, for a migration that shall not end by itself."""
PAGE = 4096
PORTS = ("peer", "here", "there")
PAIRS = 3
RATE = 60
"""Megabits a second of the load."""


def memory_file(machine: Machine) -> int:
    """The machine's memory, opened to be read."""
    for entry in Path(f"/proc/{machine.process.pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            if "memory-backend-memfd" in str(entry.readlink()) and entry.stat().st_size == MEMORY << 20:
                return os.open(entry, os.O_RDONLY)
    raise AssertionError("QEMU has no memory file")


def pages_that_differ(one: Machine, other: Machine, frame: bytes | None) -> list[str]:
    """Each with what is there around the first and up to the last difference, for whoever looks for who wrote it.

    A processor that QEMU emulates writes to a page unnoticed where its write and the next round's look cross (seen of
    kernel stacks): then only those count that hold a frame, which the switch has written.
    """

    def described(at: int) -> str:
        differing = [byte for byte in range(at, at + PAGE) if left[byte] != right[byte]]
        around = slice(max(differing[0] - 16, at), min(differing[-1] + 17, at + PAGE, differing[0] + 128))
        return f"{differing[0]:#x} to {differing[-1]:#x}: {left[around].hex(' ')} there {right[around].hex(' ')}"

    files = [memory_file(machine) for machine in (one, other)]
    try:
        left, right = (os.pread(file, MEMORY << 20, 0) for file in files)
    finally:
        for file in files:
            os.close(file)
    assert len(left) == len(right) == MEMORY << 20
    differ = [at for at in range(0, len(left), PAGE) if left[at : at + PAGE] != right[at : at + PAGE]]
    return [described(at) for at in differ if frame is None or frame in left[at : at + PAGE]]


def begin_to_migrate(source: Machine, target: Machine, bandwidth: int) -> None:
    channel = f"unix:{target.folder}/migration"
    target.execute("migrate-incoming", uri=channel)
    source.execute("migrate-set-parameters", max_bandwidth=bandwidth, downtime_limit=1000)
    source.execute("migrate", uri=channel)


def wait_migration(source: Machine, target: Machine, wanted: str, seconds: float = 120) -> dict[str, object]:
    """QEMU's account of it, once it has come to this end."""
    deadline = time.monotonic() + seconds
    while (status := source.execute("query-migrate"))["status"] != wanted:
        if status["status"] in ("completed", "failed", "cancelled") or time.monotonic() > deadline:
            raise MachineError(f"no migration {wanted} in {seconds} s: {status}{source.ends()}{target.ends()}")
        time.sleep(0.05)
    return dict(status)


def wait_logs(switch: RunningSwitch, logs: bool) -> None:
    wait_until(lambda: switch.port("here")["attached"]["logs"] == logs, f"a dirty log is {'' if logs else 'not '}kept")


def cancel_one(switch: RunningSwitch, peer: Machine, source: Machine, target: Machine, address: str) -> None:
    """A migration that begins and is cancelled while frames go both ways: none is lost."""
    count = 1000
    load = peer.begin(f"ping -i 0.005 {linux.PATIENT} -c {count} {address}")
    begin_to_migrate(source, target, CRAWL)
    wait_logs(switch, True)
    linux.ping(peer, address)
    source.execute("migrate_cancel")
    wait_migration(source, target, "cancelled")
    wait_logs(switch, False)
    linux.assert_answered(load.wait(120), count)


def chain(switch: RunningSwitch, to: str) -> None:
    switch.set_chain("wire", "peer", to)


def bridge(switch: RunningSwitch, _: str) -> None:
    """It finds the machine by itself, and nobody tells it where that is."""
    switch.patch(bridges={"lan": {"ports": {name: {} for name in PORTS}}})


MOVES = [
    # how it is found, QEMU's options, queue pairs, whether a first attempt is cancelled
    pytest.param(chain, {}, 1, False, id="split"),
    pytest.param(chain, {"packed": "on"}, 1, False, id="packed", marks=pytest.mark.whole),
    pytest.param(chain, {}, PAIRS, False, id="pairs", marks=pytest.mark.whole),
    pytest.param(chain, {"packed": "on"}, PAIRS, False, id="pairs-packed", marks=pytest.mark.whole),
    pytest.param(bridge, {}, 1, False, id="bridge", marks=pytest.mark.whole),
    pytest.param(bridge, {"packed": "on"}, PAIRS, False, id="bridge-pairs-packed", marks=pytest.mark.whole),
    pytest.param(chain, {}, 1, True, id="cancelled", marks=pytest.mark.whole),
    pytest.param(bridge, {"packed": "on"}, 1, True, id="bridge-cancelled-packed", marks=pytest.mark.whole),
]


@pytest.mark.parametrize(("lead", "options", "pairs", "cancelled"), MOVES)
def test_a_machine_moves_under_load(
    switch: RunningSwitch,
    tmp_path: Path,
    backported: str,
    lead: Callable[[RunningSwitch, str], None],
    options: dict[str, Value],
    pairs: int,
    cancelled: bool,
) -> None:
    paths = {name: switch.add_guest(name, queues=pairs) for name in PORTS}
    lead(switch, "here")

    def machine(name: str, port: str, number: int, *, incoming: bool = False) -> Machine:
        nic = Nic(paths[port], queues=pairs, options={"mac": mac(number), **options})
        # An older QEMU damages what it emulates and moves under load.
        # Linux would write to every page that it gives the switch, and QEMU would see that it did.
        hardware = Hardware([nic], memory=MEMORY, command_line="init_on_alloc=0", backported=True)
        return Machine(tmp_path, name, hardware, accelerator=backported, incoming=incoming)

    def sent_by_pair() -> list[int]:
        counted = {slot.name: slot.counters for slot in switch.page.slots()}
        return [counted[f"here/{pair}"]["sent_bytes"] for pair in range(pairs)]

    with machine("peer", "peer", 1) as peer, machine("source", "here", 2) as source:
        linux.configure(peer, 1)
        address = linux.configure(source, 2)
        if pairs > 1:
            for each in (peer, source):
                linux.use_pairs(each, pairs)
                linux.choose_pairs_by_flow(each)
        linux.ping(peer, address, count=10)
        if cancelled:
            with machine("early", "there", 2, incoming=True) as early:
                cancel_one(switch, peer, source, early, address)
        with machine("target", "there", 2, incoming=True) as target:
            server = source.begin("iperf3 --server --one-off --json")
            source.wait("netstat -ltn | grep -q :5201")
            flows = 2 * pairs
            load = peer.begin(
                f"iperf3 --client {address} --time 20 --parallel {flows} --bitrate {RATE // flows}M --json"
            )
            peer.wait("[ $(cat /sys/class/net/eth0/statistics/tx_bytes) -gt 5000000 ]")

            before = sent_by_pair()
            # Slow, so that much is written to pages that have been sent already.
            begin_to_migrate(source, target, BANDWIDTH)
            account = wait_migration(source, target, "completed")
            moved = [now - then for now, then in zip(sent_by_pair(), before, strict=True)]
            assert sum(moved) > 500_000, f"there was no load during the migration: {moved}"
            assert pairs == 1 or sum(count > 0 for count in moved) > 1, f"all on one pair: {moved}"
            assert account["ram"]["dirty-sync-count"] >= 2  # type: ignore[index]
            frame = None if backported == "kvm" else bytes.fromhex(mac(2).replace(":", "") + mac(1).replace(":", ""))
            assert pages_that_differ(source, target, frame) == []

            lead(switch, "there")
            target.execute("cont")
            server.follow(target)
            assert '"error"' not in load.wait()
            assert '"error"' not in server.wait()
            linux.ping(peer, address)
            assert switch.counters("there")["received_packets"] > 100
            assert switch.port("there")["pairs"] == pairs


@pytest.mark.whole
def test_a_machine_that_cannot_say_where_it_is_now(switch: RunningSwitch, tmp_path: Path, accelerator: str) -> None:
    """Its driver lacks the feature, so QEMU asks the switch to say it. QEMU does so several times."""
    paths = {name: switch.add_guest(name) for name in ("here", "there")}
    switch.patch(bridges={"lan": {"ports": {name: {} for name in paths}}})

    def hardware(port: str) -> Hardware:
        nic = Nic(paths[port], options={"mac": mac(2), "guest_announce": "off"})
        return Hardware([nic], memory=MEMORY, command_line="init_on_alloc=0")

    def is_at(port: str) -> bool:
        return (mac(2), port) in {(entry["mac"], entry["port"]) for entry in switch.call("bridge.list")[0]["macs"]}

    with (
        Machine(tmp_path, "source", hardware("here"), accelerator=accelerator) as source,
        Machine(tmp_path, "target", hardware("there"), accelerator=accelerator, incoming=True) as target,
    ):
        linux.configure(source, 2)
        # Nobody is there, which is soon given up.
        source.run(f"ping -c 1 -W 1 {linux.ADDRESS}.9 || true")
        source.wait(f"ip neighbour show {linux.ADDRESS}.9 | grep -q FAILED")
        wait_until(lambda: is_at("here"), "it is known where it is")
        said = linux.counter(source, "tx_packets")
        begin_to_migrate(source, target, BANDWIDTH)
        wait_migration(source, target, "completed")
        target.execute("cont")
        wait_until(lambda: is_at("there"), "it is known where it is now")
        assert linux.counter(target, "tx_packets") == said, "it has said nothing itself"
