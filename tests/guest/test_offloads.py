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

WITHOUT_TSO6: dict[str, Value] = {"guest_tso6": "off", "host_tso6": "off"}


def address_of(left: Machine, right: Machine, version: int) -> str:
    """The right one's, of this version of IP."""
    if version == 6:
        linux.configure6(left, 1)
        return linux.configure6(right, 2)
    return f"{linux.ADDRESS}.2"


def average(machine: Machine, action: str) -> float:
    """Bytes a packet that a machine received so far, as `action` says: rx, tx."""
    return linux.counter(machine, f"{action}_bytes") / linux.counter(machine, f"{action}_packets")


whole = pytest.mark.whole


@whole
@pytest.mark.parametrize(("packed", "version"), [("off", 4), ("on", 4), ("off", 6), ("on", 6)])
def test_long_segments_cross_whole(
    switch: RunningSwitch, tmp_path: Path, accelerator: str, packed: str, version: int
) -> None:
    with two_machines(switch, tmp_path, accelerator, {"packed": packed}) as (left, right):
        for machine in (left, right):
            assert {"csum", "guest_csum", f"host_tso{version}", f"guest_tso{version}"} <= linux.features(machine)
        address = address_of(left, right, version)
        linux.tcp(left, right, address)
        assert average(right, "rx") > 5 * LONGEST, "segments were cut on the way"
        linux.exchange(left, right, address=address)
        assert_no_fault(switch, "a", "b")


@pytest.mark.parametrize(
    ("packed", "version", "lacks"),
    [
        ("off", 4, WITHOUT),
        pytest.param("on", 4, WITHOUT, marks=whole),
        pytest.param("off", 6, WITHOUT_TSO6, marks=whole),
        pytest.param("on", 6, WITHOUT_TSO6, marks=whole),
        pytest.param("off", 6, WITHOUT, marks=whole),
        pytest.param("on", 6, WITHOUT, marks=whole),
    ],
    ids=["split-4", "packed-4", "split-6-tso6", "packed-6-tso6", "split-6", "packed-6"],
)
def test_a_receiver_without_offloads_gets_frames_of_its_size(
    switch: RunningSwitch, tmp_path: Path, accelerator: str, packed: str, version: int, lacks: dict[str, Value]
) -> None:
    options = ({"packed": packed}, {"packed": packed, **lacks})
    with two_machines(switch, tmp_path, accelerator, *options) as (left, right):
        assert {"csum", f"host_tso{version}"} <= linux.features(left)
        assert not lacks.keys() & linux.features(right)
        # Counted by the driver, before the system joins them again.
        right.run("ethtool -K eth0 gro off")
        address = address_of(left, right, version)
        linux.tcp(left, right, address)
        assert average(left, "tx") > 2 * LONGEST, "the sender cut them itself"
        assert LONGEST / 2 < average(right, "rx") <= LONGEST
        linux.exchange(left, right, address=address)
        assert linux.bad_checksums(right) == 0
        assert_no_fault(switch, "a", "b")
