"""Checksums and segmentation: left to the receiver where it can, done by the switch where it cannot."""

from __future__ import annotations

from pathlib import Path

import linux
import pytest
from machine import Machine, Value
from running_switch import RunningSwitch
from wiring import assert_no_fault, two_machines

pytestmark = pytest.mark.requires_program("tailrace-switch", "qemu-system-x86_64", "iperf3")

LONGEST = 1514
"""Bytes of a frame of an Ethernet with an MTU of 1500, without the FCS."""

WITHOUT: dict[str, Value] = dict.fromkeys(
    (
        "csum",
        "guest_csum",
        *(f"{side}_{kind}" for side in ("guest", "host") for kind in ("tso4", "tso6", "ufo", "ecn")),
    ),
    "off",
)


def average(machine: Machine, action: str) -> float:
    """Bytes a packet that a machine received so far, as `action` says: rx, tx."""
    return linux.counter(machine, f"{action}_bytes") / linux.counter(machine, f"{action}_packets")


@pytest.mark.parametrize("packed", [pytest.param("off", marks=pytest.mark.whole), "on"])
def test_long_segments_cross_whole(switch: RunningSwitch, tmp_path: Path, accelerator: str, packed: str) -> None:
    with two_machines(switch, tmp_path, accelerator, {"packed": packed}) as (left, right):
        for machine in (left, right):
            assert {"csum", "guest_csum", "host_tso4", "guest_tso4"} <= linux.features(machine)
        linux.tcp(left, right, f"{linux.ADDRESS}.2")
        assert average(right, "rx") > 5 * LONGEST, "segments were cut on the way"
        linux.exchange(left, right)
        assert_no_fault(switch, "a", "b")


@pytest.mark.parametrize("packed", ["off", pytest.param("on", marks=pytest.mark.whole)])
def test_a_receiver_without_offloads_gets_frames_of_its_size(
    switch: RunningSwitch, tmp_path: Path, accelerator: str, packed: str
) -> None:
    options = ({"packed": packed}, {"packed": packed, **WITHOUT})
    with two_machines(switch, tmp_path, accelerator, *options) as (left, right):
        assert {"csum", "host_tso4"} <= linux.features(left)
        assert not {"csum", "guest_csum", "host_tso4", "guest_tso4"} & linux.features(right)
        # Counted by the driver, before the system joins them again.
        right.run("ethtool -K eth0 gro off")
        linux.tcp(left, right, f"{linux.ADDRESS}.2")
        assert average(left, "tx") > 2 * LONGEST, "the sender cut them itself"
        assert LONGEST / 2 < average(right, "rx") <= LONGEST
        linux.exchange(left, right)
        bad = right.run("cat /proc/net/snmp | awk '/^Tcp:/ {print $NF}' | tail -n 1").strip()
        assert bad == "0", f"{bad} segments with a wrong checksum"
        assert_no_fault(switch, "a", "b")
