"""Mirrors: copies for a probe, of what was asked for, and never at the original's cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from running_tester import both_ways, stream
from watched_switch import Watched, watched_switch

CHAIN = {"chains": {"x": {"from": "a", "through": [], "to": "b"}}}
FRAMES = 2000


def mirrored(watched: Watched, mirror: dict[str, Any]) -> dict[str, int]:
    """What the mirror counted while frames crossed both ways; the frames themselves must all arrive."""
    watched.switch.patch(mirrors={"m": None})
    watched.switch.patch(mirrors={"m": {"to": "p", **mirror}})
    result = watched.tester.trial(both_ways(4 * FRAMES, frames=[64, 1518]), 0.25)
    for each in result["streams"]:
        assert (each["lost"], each["duplicate"], each["out_of_sequence"]) == (0, 0, 0)
    (slot,) = [slot for slot in watched.switch.page.slots() if slot.kind == "mirror"]
    assert slot.name == "m"
    sent = {each["name"]: each["sent"] for each in result["streams"]}
    return {**slot.counters, "there": sent["there"], "back": sent["back"]}


def test_a_port_is_mirrored_each_way(asan_binaries: Path, tmp_path: Path) -> None:
    with watched_switch(asan_binaries, tmp_path, "abp", CHAIN) as watched:
        total = 0
        for direction, ways in (("in", ["there"]), ("out", ["back"]), ("both", ["there", "back"])):
            found = mirrored(watched, {"port": "a", "direction": direction})
            assert found["packets"] == sum(found[way] for way in ways)
            total += found["packets"]
        assert watched.switch.counters("p")["sent_packets"] == total > 0
        # Without a mirror the hop is what it was.
        watched.switch.patch(mirrors={"m": None})
        assert not [slot for slot in watched.switch.page.slots() if slot.kind == "mirror"]
        sent = watched.switch.counters("p")["sent_packets"]
        watched.tester.trial(both_ways(4 * FRAMES), 0.1)
        assert watched.switch.counters("p")["sent_packets"] == sent


def test_a_chain_is_mirrored_where_it_begins_and_ends(asan_binaries: Path, tmp_path: Path) -> None:
    with watched_switch(asan_binaries, tmp_path, "abp", CHAIN) as watched:
        found = mirrored(watched, {"chain": "x", "direction": "in"})
        assert found["packets"] == found["there"] + found["back"]
        found = mirrored(watched, {"chain": "x"})
        assert found["packets"] == 2 * (found["there"] + found["back"])


def test_a_bridge_port_is_mirrored(asan_binaries: Path, tmp_path: Path) -> None:
    config = {"bridges": {"lan": {"ports": {"a": {}, "b": {}}}}}
    with watched_switch(asan_binaries, tmp_path, "abp", config) as watched:
        found = mirrored(watched, {"port": "b", "direction": "both"})
        assert found["packets"] == found["there"] + found["back"]


def test_a_probe_that_is_gone_costs_the_mirror_alone(asan_binaries: Path, tmp_path: Path) -> None:
    with watched_switch(asan_binaries, tmp_path, "ab", CHAIN) as watched:
        watched.switch.add_guest("p")
        found = mirrored(watched, {"port": "a", "direction": "in"})
        assert found["packets"] == 0
        assert found["drop_receiver_down"] == found["there"]
        assert watched.drops("p") == {"drop_receiver_down": found["there"]}
        assert not watched.drops("a", "b")


def test_the_copies_are_the_frames(asan_binaries: Path, tmp_path: Path) -> None:
    """The probe is an end of the tester too: there the copies are test frames of no stream that ends there."""
    with watched_switch(asan_binaries, tmp_path, "abp", CHAIN) as watched:
        watched.switch.patch(mirrors={"m": {"port": "a", "direction": "in", "to": "p"}})
        streams = [stream("there", "a", "b", 4 * FRAMES, frames=[1518]), stream("none", "b", "p", 1)]
        result = watched.tester.trial(streams, 0.25)
        there, none = result["streams"]
        assert there["lost"] == 0
        assert none["foreign"] == there["sent"]


@pytest.mark.parametrize(
    ("mirror", "expected"),
    [
        ({"port": "a", "to": "b"}, "mirrors.m.to"),
        ({"port": "a", "chain": "x", "to": "p"}, "mirrors.m"),
        ({"to": "p"}, "mirrors.m"),
        ({"port": "nosuch", "to": "p"}, "mirrors.m.port"),
        ({"chain": "nosuch", "to": "p"}, "mirrors.m.chain"),
        ({"port": "a", "to": "p", "direction": "up"}, "mirrors.m.direction"),
    ],
)
def test_a_mirror_that_cannot_be_is_refused_with_its_key(
    asan_binaries: Path, tmp_path: Path, mirror: dict[str, Any], expected: str
) -> None:
    with watched_switch(asan_binaries, tmp_path, "abp", CHAIN) as watched, pytest.raises(Exception, match=expected):
        watched.switch.patch(mirrors={"m": mirror})
