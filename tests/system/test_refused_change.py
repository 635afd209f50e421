"""A change that is refused has touched nothing that runs: what a port may send, who learns how many addresses, which
worker polls what.

Each is refused late, when all but the rules of one port have been made for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from front_end import SENDS
from guest_pair import GuestPair
from running_switch import RunningSwitch, wait_until
from steered import Guests
from test_steer_bridge import ALL, to

from tailrace.process.control import ControlError

REFUSED = {"vlan": [1, 4094], "inner_vlan": [1, 4094], "source_port": [1, 65534], "destination_port": [1, 65534]}
"""A match whose ranges are too many to be looked up quickly."""


@pytest.fixture
def switch(asan_binaries: Path, tmp_path: Path) -> Iterator[RunningSwitch]:
    running = RunningSwitch(asan_binaries / "switch/tailrace-switch", tmp_path, "--cores", "0,1")
    yield running
    assert running.end() == 0


def refuse(switch: RunningSwitch, **sections: Any) -> None:
    """Try to make the change, together with a chain whose rules cannot be compiled."""
    before = switch.call("config.get")
    ports = {name: {"kind": "guest", "path": str(switch.folder / f"{name}.sock")} for name in ("late", "later")}
    patch = {**sections, "ports": {**sections.get("ports", {}), **ports}}
    patch["chains"] = {"refused": {"from": "late", "to": "later", "match": [REFUSED]}}
    with pytest.raises(ControlError, match=r"chains\.refused\.match\[0\]: the ranges"):
        switch.patch(**patch)
    assert switch.call("config.get") == before


def test_what_a_port_owes_to_its_rate_it_still_owes(switch: RunningSwitch) -> None:
    pair = GuestPair(switch, ("a", "b"))
    sender, receiver = pair.guests
    receiver.offer_buffers(2)
    # A frame of 1514 bytes, and its FCS, at 1000 bit/s: the next may pass 12 seconds later.
    switch.patch(ports={"a": {"rate": {"max": 1000}}})
    sender.send(bytes(1514))
    receiver.wait_received(1)
    sender.send(bytes(1514))
    refuse(switch, ports={"a": {"rate": {"max": 1_000_000_000}}})
    time.sleep(0.3)
    assert receiver.received() == []
    # A change that is made does hold, at once.
    switch.patch(ports={"a": {"rate": {"max": 1_000_000_000}}})
    receiver.wait_received(1, seconds=5)
    wait_until(lambda: sender.used_index(SENDS) == 2, "the sender has its frames back")
    pair.end()


def test_each_port_of_a_bridge_still_has_its_share_of_addresses(switch: RunningSwitch) -> None:
    guests = Guests(switch, ["p1", "p2"])
    switch.patch(bridges={"lan": {"ports": {"p1": {}, "p2": {}}, "macs": 64}})
    more = [f"more{number}" for number in range(14)]
    paths = {name: {"kind": "guest", "path": str(switch.folder / f"{name}.sock")} for name in more}
    refuse(switch, ports=paths, bridges={"lan": {"ports": {name: {} for name in more}}})
    for station in range(1, 200):
        guests.send("p1", to(ALL, station))
    (bridge,) = switch.call("bridge.list")
    # Half of the table is for all; the other half is divided among two ports.
    assert len(bridge["macs"]) == 32 + 32 // 2
    guests.end()


def test_a_chain_counts_where_it_did(switch: RunningSwitch) -> None:
    """Where the change fails after a port was closed for it, and all that runs is wired again."""
    guests = Guests(switch, ["a", "f.0", "f.1", "b"])
    switch.add_device("device", "vdev:net_null0")
    switch.set_chain("c", "a", "b")
    frame = to(ALL, 1)

    def counted() -> int:
        (listed,) = switch.call("chain.list")
        return int(listed["forward"]["packets"])

    for count in (1, 2):
        assert guests.where("a", frame) == "b"
        # The worker counts for the chain after the receiver has the frame.
        wait_until(lambda count=count: counted() == count, "it is counted")  # type: ignore[misc]
        with pytest.raises(ControlError, match=r"ports\.device"):
            switch.patch(
                ports={"device": {"kind": "device", "device": "vdev:net_nothing0"}},
                functions={"f": {"replicas": {"f": {"left": "f.0", "right": "f.1"}}}},
                chains={"c": {"through": ["f"]}},
            )
    assert guests.where("a", frame) == "b"
    wait_until(lambda: counted() == 3, "it is counted where the others were")
    guests.end()


def test_queues_stay_with_their_workers(switch: RunningSwitch) -> None:
    pair = GuestPair(switch, ("a", "b"))
    switch.patch(workers={"pins": {"a/0": 0, "b/0": 1}})
    switch.patch(workers=None)
    before = {worker["name"]: worker["queues"] for worker in switch.call("worker.list")}
    refuse(switch, workers={"pins": {"a/0": 1, "b/0": 0}})
    assert {worker["name"]: worker["queues"] for worker in switch.call("worker.list")} == before
    pair.exchange()
    pair.end()
