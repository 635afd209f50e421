"""Two virtual machines on a chain, with Linux's virtio-net driver and the options that QEMU has for the rings."""

from __future__ import annotations

from pathlib import Path

import linux
import pytest
from machine import Value
from running_switch import RunningSwitch
from wiring import assert_no_fault, two_machines

pytestmark = pytest.mark.requires_program("tailrace-switch", "qemu-system-x86_64", "iperf3")


RINGS: list[tuple[str, dict[str, Value], set[str], set[str]]] = [
    # name, QEMU's options, features that must be agreed on, features that must not
    ("default", {}, {"mrg_rxbuf", "indirect_desc", "version_1"}, {"packed"}),
    ("packed", {"packed": "on"}, {"packed", "mrg_rxbuf"}, set()),
    ("packed-plain", {"packed": "on", "mrg_rxbuf": "off", "indirect_desc": "off"}, {"packed"}, {"indirect_desc"}),
    ("packed-no-event-index", {"packed": "on", "event_idx": "off"}, {"packed"}, {"event_idx"}),
    ("packed-1024", {"packed": "on", "rx_queue_size": 1024, "tx_queue_size": 1024}, {"packed"}, set()),
    ("no-mergeable", {"mrg_rxbuf": "off"}, {"version_1"}, {"mrg_rxbuf"}),
    ("no-indirect", {"indirect_desc": "off"}, {"mrg_rxbuf"}, {"indirect_desc"}),
    ("event-index", {"event_idx": "on"}, {"event_idx"}, set()),
    ("no-event-index", {"event_idx": "off"}, set(), {"event_idx"}),
    ("legacy", {"disable-modern": "on"}, set(), {"version_1"}),
    ("ring-1024", {"rx_queue_size": 1024, "tx_queue_size": 1024}, set(), set()),
    ("ring-512", {"rx_queue_size": 512, "tx_queue_size": 512}, set(), set()),
]


@pytest.mark.parametrize(
    ("options", "agreed", "refused"),
    [pytest.param(*rest, id=name, marks=() if name == "packed" else pytest.mark.whole) for name, *rest in RINGS],
)
def test_traffic_crosses_with_every_kind_of_ring(
    switch: RunningSwitch,
    tmp_path: Path,
    accelerator: str,
    options: dict[str, Value],
    agreed: set[str],
    refused: set[str],
) -> None:
    with two_machines(switch, tmp_path, accelerator, options) as (left, right):
        for machine in (left, right):
            features = linux.features(machine)
            assert agreed <= features and not refused & features, features
        linux.exchange(left, right)
        assert_no_fault(switch, "a", "b")


@pytest.mark.whole
def test_rings_of_both_kinds_on_one_chain(switch: RunningSwitch, tmp_path: Path, accelerator: str) -> None:
    with two_machines(switch, tmp_path, accelerator, {"packed": "on"}, {"packed": "off"}) as (left, right):
        assert "packed" in linux.features(left) and "packed" not in linux.features(right)
        linux.exchange(left, right)
        assert_no_fault(switch, "a", "b")


@pytest.mark.whole
@pytest.mark.parametrize("packed", ["off", "on"])
def test_jumbo_frames_cross(switch: RunningSwitch, tmp_path: Path, accelerator: str, packed: str) -> None:
    with two_machines(switch, tmp_path, accelerator, {"packed": packed}, mtu=9000) as (left, right):
        linux.exchange(left, right, longest=8972)
        assert linux.counter(right, "rx_bytes") / linux.counter(right, "rx_packets") > 1518
        assert_no_fault(switch, "a", "b")
