"""The switch is killed under load and started again: machines that listen for it resume by themselves."""

from __future__ import annotations

import json
import time
from pathlib import Path

import linux
import pytest
from machine import Background
from running_switch import RunningSwitch, wait_until
from wiring import two_machines

pytestmark = pytest.mark.requires_program("tailrace-switch", "qemu-system-x86_64", "iperf3")

SOON = 1.0
"""Seconds from the start of the switch until it serves the rings of all machines again, and, where the machines do not
look at the link, until frames of all move both ways."""
LATER = 3.0
"""The same where they do: Linux looks for its neighbours again when a link has come back, and asks once a second."""


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

    wait_until(move, "frames move again", 20)
    return up, time.monotonic() - began


def stream_of(client: Background) -> dict[str, int]:
    """What iperf3's server counted of its one UDP stream."""
    (stream,) = json.loads(client.wait())["end"]["streams"]
    counted: dict[str, int] = stream["udp"]
    return counted


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"status": "off"}, SOON),
        pytest.param({}, LATER, marks=pytest.mark.whole),
        pytest.param({"packed": "on"}, LATER, marks=pytest.mark.whole),
        pytest.param({"packed": "on", "status": "off"}, SOON, marks=pytest.mark.whole),
    ],
    ids=["without-link", "with-link", "packed", "packed-without-link"],
)
def test_machines_resume_after_the_switch_was_killed(
    switch: RunningSwitch, tmp_path: Path, accelerator: str, options: dict[str, str], most: float
) -> None:
    """What resumes within a second is QEMU as the socket's server with `status=off` (docs/guests.md)."""
    address = f"{linux.ADDRESS}.2"
    with two_machines(switch, tmp_path, accelerator, options, server=True) as (left, right):
        linux.ping(left, address, count=10)
        server = right.begin("iperf3 --server --one-off")
        right.wait("netstat -ltn | grep -q :5201")
        # Both ways at once: ping's answers from the right, datagrams from the left.
        left.begin(f"ping -i 0.005 {address}")
        client = left.begin(f"iperf3 --client {address} --udp --bitrate 8M --length 500 --time 10 --json")
        left.wait("[ $(cat /sys/class/net/eth0/statistics/tx_bytes) -gt 1000000 ]")
        took = []
        for _ in range(3):
            switch.kill()
            took.append(start_again(switch))
        print(f"seconds from the start of the switch until rings are served, and frames move: {took}")
        assert max(up for up, _ in took) < SOON
        assert max(move for _, move in took) < most
        counted = stream_of(client)
        server.wait()
        # iperf3 numbers its datagrams: one that came twice, or too late, would be out of order.
        assert counted["out_of_order"] == 0, counted
        assert 0 < counted["lost_packets"] < counted["packets"] / 2, counted
        linux.exchange(left, right)
