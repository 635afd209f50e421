"""Rates and shares with real traffic: what a port may send, what it may be sent, and who gets how much of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from running_node import Command
from running_tester import beside_a_node, stream
from watched_switch import Watched, watched_switch

FRAME = 512
MEGABIT = 1_000_000
UNLIMITED = 1.1 * 40 * MEGABIT
"""More than the rates here let pass; how much more than that depends on what else the machine does."""


def bits(received: dict[str, Any]) -> float:
    """Bits a second that arrived, FCS included."""
    frames = received["received"]
    return float(received["received_bytes"] * 8 * (frames - 1) / frames / received["received_seconds"])


def by_name(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in result["streams"]}


def send(watched: Watched, seconds: float, *ways: tuple[str, float]) -> dict[str, dict[str, Any]]:
    """Streams such as ("ab", frames a second) for so many seconds."""
    streams = [stream(way, way[0], way[1], rate, frames=[FRAME]) for way, rate in ways]
    return by_name(watched.tester.trial(streams, seconds))


def kept(received: dict[str, Any], most: float) -> bool:
    """Whether the rate was kept, and used: a machine that has other things to do may leave much unused."""
    return 0.3 * most <= bits(received) <= 1.02 * most


def limit(watched: Watched, port: str, rate: dict[str, Any] | None) -> None:
    watched.switch.patch(ports={port: {"rate": rate}})


PAIRS = {"chains": {"x": {"from": "a", "through": [], "to": "b"}, "y": {"from": "c", "through": [], "to": "d"}}}


def test_a_port_sends_no_more_than_its_rate_and_nothing_is_lost(asan_binaries: Path, tmp_path: Path) -> None:
    with watched_switch(asan_binaries, tmp_path, "abcd", PAIRS) as watched:
        limit(watched, "a", {"max": 40 * MEGABIT})
        found = send(watched, 2.0, ("ab", 60_000), ("ba", 5_000), ("cd", 40_000))
        assert kept(found["ab"], 40 * MEGABIT)
        assert all(each["lost"] == 0 for each in found.values())
        # Those without a limit are not held back by it.
        assert bits(found["cd"]) > UNLIMITED
        assert not watched.drops("a", "b", "c", "d")

        limit(watched, "a", {"packets": 4_000})
        found = send(watched, 2.0, ("ab", 60_000))
        assert kept(found["ab"], 4_000 * FRAME * 8)
        assert found["ab"]["lost"] == 0

        limit(watched, "a", None)
        found = send(watched, 1.0, ("ab", 60_000))
        assert bits(found["ab"]) > UNLIMITED


def test_a_port_is_sent_no_more_than_its_rate(asan_binaries: Path, tmp_path: Path) -> None:
    with watched_switch(asan_binaries, tmp_path, "abcd", PAIRS) as watched:
        limit(watched, "b", {"to": {"max": 40 * MEGABIT}})
        found = send(watched, 2.0, ("ab", 60_000), ("ba", 40_000), ("cd", 5_000))
        assert kept(found["ab"], 40 * MEGABIT)
        assert all(each["lost"] == 0 for each in found.values())
        assert bits(found["ba"]) > UNLIMITED
        assert not watched.drops("a", "b", "c", "d")


def test_a_limited_receiver_is_divided_by_share(asan_binaries: Path, tmp_path: Path) -> None:
    udp = {"match": [{"protocol": 17}]}
    chains = {"one": {"from": "a", "to": "c", **udp}, "two": {"from": "b", "to": "c", **udp}}
    with watched_switch(asan_binaries, tmp_path, "abc", {"chains": chains}) as watched:
        watched.switch.patch(ports={"a": {"rate": {"share": 3}}, "c": {"rate": {"to": {"max": 40 * MEGABIT}}}})
        found = send(watched, 2.0, ("ac", 60_000), ("bc", 60_000))
        assert kept(found["ac"], 30 * MEGABIT)
        assert kept(found["bc"], 10 * MEGABIT)
        assert bits(found["ac"]) / bits(found["bc"]) == pytest.approx(3, rel=0.15)
        # A receiver of several senders loses what is above its rate, with a name, at once.
        lost = found["ac"]["lost"] + found["bc"]["lost"]
        assert set(watched.drops("a", "b", "c")) == {"drop_rate"}
        assert watched.drops("c")["drop_rate"] == lost

        # What one does not use the other gets, and the one that is below its share loses nothing: neither where a busy
        # machine has its sender make up for lost time.
        watched.switch.patch(ports={"c": {"rate": {"to": {"latency": 5_000_000}}}})
        found = send(watched, 2.0, ("ac", 60_000), ("bc", 1_000))
        assert found["bc"]["lost"] == 0
        # What has waited is received after the other has ended, at the whole rate.
        both = {**found["ac"], "received_bytes": sum(each["received_bytes"] for each in found.values())}
        assert kept(both, 40 * MEGABIT)


@pytest.mark.requires_root
@pytest.mark.unsanitized
def test_a_spec_says_what_a_port_sends_and_what_it_is_sent(command: Command, binaries: Path, tmp_path: Path) -> None:
    chain = "chains: {way: [c, d]}\n"
    command("up", command.spec(chain + "ports: {c: , d: {rate: {max: 10Mbps, to: 40Mbps}}}\n"))
    ports = {name: f"vhost:{command.state / 'sockets' / name}.sock" for name in "cd"}
    tester = beside_a_node(binaries, tmp_path, ports, "--memory", "256")
    streams = [stream(way, way[0], way[1], 60_000, frames=[FRAME]) for way in ("cd", "dc")]
    found = by_name(tester.trial(streams, 2.0, wait=5.0))
    assert kept(found["cd"], 40 * MEGABIT)
    assert kept(found["dc"], 10 * MEGABIT)
    swapped = command.spec(chain + "ports: {c: , d: {rate: {to: 10Mbps}}}\n")
    assert "rate.max: 10000000 → none; rate.to.max: 40000000 → 10000000" in command("plan", swapped, status=3).stdout
    command("apply", swapped)
    found = by_name(tester.trial(streams, 2.0))
    assert tester.end() == 0
    assert kept(found["cd"], 10 * MEGABIT)
    assert bits(found["dc"]) > UNLIMITED


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        ({"max": 10}, "ports.a.rate.max"),
        ({"share": 0}, "ports.a.rate.share"),
        ({"to": {"share": 2}}, "ports.a.rate.to.share"),
        ({"to": {"packets": "many"}}, "ports.a.rate.to.packets"),
    ],
)
def test_a_rate_that_is_none_is_refused_with_its_key(
    asan_binaries: Path, tmp_path: Path, rate: dict[str, Any], expected: str
) -> None:
    with watched_switch(asan_binaries, tmp_path, "ab", PAIRS | {"chains": {}}) as watched:
        with pytest.raises(Exception, match=expected):
            limit(watched, "a", rate)
        assert watched.switch.call("config.get")["config"]["ports"]["a"].get("rate") is None
