"""The switch is killed under load and started again: machines that listen for it resume by themselves."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import linux
import pytest
from machine import Background, Machine
from running_switch import RunningSwitch, wait_until
from wiring import two_machines

pytestmark = [
    pytest.mark.requires_program("tailrace-switch", "qemu-system-x86_64", "iperf3"),
    pytest.mark.unsanitized,  # it tells how long a restart takes
]

SOON = 3.0
"""Seconds from the start of the switch until it serves the rings of all machines again, and until frames of all move
both ways."""
LATER = 4.0
"""The same until frames move where Linux looks at the link, and forgets its neighbours when that is lost: it asks for
one at once, in vain, and again a second after the switch has gone."""
KEEP_NEIGHBOURS = "echo 0 >/proc/sys/net/ipv4/conf/all/arp_evict_nocarrier"
"""By which it forgets none."""
AS_IT_IS = ":"


def start_again(switch: RunningSwitch) -> tuple[float, float]:
    """Seconds until the rings of both machines are served, and until frames come from, and go to, both."""
    began = time.monotonic()
    switch.start()
    for name in "ab":
        switch.wait_state(name, "up")
    up = time.monotonic() - began

    def move() -> bool:
        counters = [switch.counters(name) for name in "ab"]
        return all(each["received_packets"] > 10 and each["sent_packets"] > 10 for each in counters)

    wait_until(move, "frames move again")
    return up, time.monotonic() - began


def stream_of(client: Background) -> dict[str, int]:
    """What iperf3's server counted of its one UDP stream."""
    (stream,) = json.loads(client.wait())["end"]["streams"]
    counted: dict[str, int] = stream["udp"]
    return counted


def live_through(
    machines: tuple[Machine, Machine], switch: RunningSwitch, most: float, outages: Sequence[float], setting: str
) -> None:
    """The switch is killed and started again after so many seconds, again and again, while frames go both ways: within
    `most` seconds they do again, and none came twice or too late."""
    left, right = machines
    address = f"{linux.ADDRESS}.2"
    for machine in machines:
        machine.run(setting)
    linux.ping(left, address, count=10)
    server = right.begin("iperf3 --server --one-off")
    right.wait("netstat -ltn | grep -q :5201")
    # Both ways at once: ping's answers from the right, datagrams from the left.
    left.begin(f"ping -i 0.005 {address}")
    client = left.begin(f"iperf3 --client {address} --udp --bitrate 8M --length 500 --time 10 --json")
    left.wait("[ $(cat /sys/class/net/eth0/statistics/tx_bytes) -gt 1000000 ]")
    took = []
    for seconds in outages:
        switch.kill()
        time.sleep(seconds)
        took.append(start_again(switch))
    print(f"seconds from the start of the switch until rings are served, and frames move: {took}")
    assert min(up for up, _ in took) < SOON, took
    assert min(move for _, move in took) < most, took
    counted = stream_of(client)
    server.wait()
    # iperf3 numbers its datagrams: one that came twice, or too late, would be out of order.
    assert counted["out_of_order"] == 0, counted
    assert 0 < counted["lost_packets"] < counted["packets"] / 2, counted
    linux.exchange(left, right)


@pytest.mark.parametrize(
    ("options", "setting", "most"),
    [
        ({"status": "off"}, AS_IT_IS, SOON),
        pytest.param({}, KEEP_NEIGHBOURS, SOON, marks=pytest.mark.whole),
        pytest.param({}, AS_IT_IS, LATER, marks=pytest.mark.whole),
        pytest.param({"packed": "on"}, KEEP_NEIGHBOURS, SOON, marks=pytest.mark.whole),
        pytest.param({"packed": "on"}, AS_IT_IS, LATER, marks=pytest.mark.whole),
        pytest.param({"packed": "on", "status": "off"}, AS_IT_IS, SOON, marks=pytest.mark.whole),
    ],
    ids=["without-link", "neighbours-kept", "with-link", "packed-neighbours-kept", "packed", "packed-without-link"],
)
def test_machines_resume_after_the_switch_was_killed(
    switch: RunningSwitch, tmp_path: Path, accelerator: str, options: dict[str, str], setting: str, most: float
) -> None:
    """How to attach a machine that it may resume within a second, docs/guests.md says."""
    with two_machines(switch, tmp_path, accelerator, options, server=True) as machines:
        live_through(machines, switch, most, (0, 0, 0), setting)


@pytest.mark.whole
@pytest.mark.parametrize("packed", ["off", "on"], ids=["split", "packed"])
def test_machines_that_do_not_look_at_the_link_resume_after_seconds(
    switch: RunningSwitch, tmp_path: Path, accelerator: str, packed: str
) -> None:
    """They send all the while, and fill their rings, which QEMU empties meanwhile."""
    with two_machines(switch, tmp_path, accelerator, {"status": "off", "packed": packed}, server=True) as machines:
        live_through(machines, switch, SOON, (3.0,), AS_IT_IS)
