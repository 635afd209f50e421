"""The switch's one configuration: planned, applied whole or refused whole, rolled back, kept, and beside traffic."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from front_end import FrontEnd
from guest_pair import GuestPair
from running_switch import RunningSwitch, wait_until
from running_tester import RunningTester, stream

from tailrace.process.control import Control, ControlError


@pytest.fixture
def switch(asan_binaries: Path, tmp_path: Path) -> Iterator[RunningSwitch]:
    running = RunningSwitch(asan_binaries / "switch/tailrace-switch", tmp_path)
    yield running
    assert running.end() == 0
    assert not list(tmp_path.glob("*.sock"))


def guest(folder: Path, name: str, **more: Any) -> dict[str, Any]:
    return {"kind": "guest", "path": str(folder / f"{name}.sock"), **more}


def config(switch: RunningSwitch) -> dict[str, Any]:
    document: dict[str, Any] = switch.call("config.get")["config"]
    return document


# ------- versions -------


def test_a_plan_says_what_apply_does_and_does_nothing(switch: RunningSwitch, tmp_path: Path) -> None:
    patch: dict[str, Any] = {
        "ports": {name: guest(tmp_path, name) for name in "abcd"},
        "functions": {"fw": {"replicas": {"fw1": {"left": "c", "right": "d"}}}},
        "chains": {"x": {"from": "a", "through": ["fw"], "to": "b"}},
        "trace": {"every": 1024},
    }
    planned = switch.call("config.plan", patch=patch)
    assert planned["version"] == 0
    assert {(entry["change"], entry["what"], entry["name"]) for entry in planned["changes"]} == {
        *(("add", "port", name) for name in "abcd"),
        ("add", "function", "fw"),
        ("add", "chain", "x"),
        ("add", "trace", ""),
    }
    assert switch.call("config.get") == {"version": 0, "config": {}}
    assert switch.call("port.list") == []
    applied = switch.call("config.apply", patch=patch)
    assert applied == {"version": 1, "changes": planned["changes"]}
    assert config(switch) == patch
    assert switch.call("config.apply", patch=patch) == {"version": 1, "changes": []}
    changed = switch.call("config.plan", patch={"chains": {"x": {"priority": 3}}, "trace": None})["changes"]
    assert [(entry["change"], entry["what"]) for entry in changed] == [("change", "chain"), ("remove", "trace")]
    # A whole document says all there is: what it does not name goes.
    whole = {"ports": {"a": patch["ports"]["a"]}}
    assert len(switch.call("config.apply", config=whole)["changes"]) == 6
    assert [port["name"] for port in switch.call("port.list")] == ["a"]


def test_rolling_back_twice_is_where_one_was(switch: RunningSwitch) -> None:
    with pytest.raises(ControlError, match="no earlier configuration"):
        switch.call("config.rollback")
    switch.add_guest("a")
    switch.add_guest("b")
    with_both = config(switch)
    assert switch.call("config.rollback")["version"] == 3
    assert [port["name"] for port in switch.call("port.list")] == ["a"]
    assert switch.call("config.rollback")["version"] == 4
    assert config(switch) == with_both


def test_the_second_of_two_writers_is_told_who_won(switch: RunningSwitch, tmp_path: Path) -> None:
    version = switch.call("config.get")["version"]
    other = Control(tmp_path / "control")
    other.call("config.apply", patch={"ports": {"a": guest(tmp_path, "a")}}, base=version)
    wanted: list[tuple[str, dict[str, Any]]] = [
        ("config.apply", {"patch": {"ports": {"b": guest(tmp_path, "b")}}}),
        ("config.plan", {"config": {}}),
        ("config.rollback", {}),
    ]
    for method, params in wanted:
        with pytest.raises(ControlError, match=f"version 1 won: process {os.getpid()} of user {os.getuid()}") as caught:
            switch.call(method, base=version, **params)
        assert caught.value.code == -32003
    other.close()
    assert list(config(switch)["ports"]) == ["a"]
    switch.call("config.apply", patch={"ports": {"b": guest(tmp_path, "b")}}, base=1)


# ------- whole or not at all -------


def test_one_port_that_cannot_be_refuses_all(switch: RunningSwitch, tmp_path: Path) -> None:
    pair = GuestPair(switch, ("a", "b"))
    before = switch.call("config.get")
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(str(tmp_path / "taken.sock"))
        taken.listen()
        ports = {name: guest(tmp_path, name) for name in ("c", "d", "taken", "e")}
        with pytest.raises(ControlError, match=r"^ports\.taken: .*taken\.sock is in use"):
            switch.call("config.apply", patch={"ports": ports, "chains": {"y": {"from": "c", "to": "d"}}})
    (tmp_path / "taken.sock").unlink()
    assert switch.call("config.get") == before
    assert sorted(path.name for path in tmp_path.glob("*.sock")) == ["a.sock", "b.sock"]
    assert {slot.name for slot in switch.page.slots() if slot.kind != "worker"} == {"a/0", "b/0", "a-b/0"}
    pair.exchange()
    pair.end()


def test_a_port_that_cannot_be_changed_stays_what_it_was(switch: RunningSwitch, tmp_path: Path) -> None:
    pair = GuestPair(switch, ("a", "b"))
    ports = {"a": guest(tmp_path, "elsewhere"), "b": guest(tmp_path, "no/such")}
    with pytest.raises(ControlError, match=r"^ports\.b: .* No such file or directory"):
        switch.call("config.apply", patch={"ports": ports})
    assert not (tmp_path / "elsewhere.sock").exists()
    pair.exchange()  # nobody was disturbed
    # With its own path it has to go first, and comes back.
    ports = {"a": {"queues": 2}, "b": guest(tmp_path, "a"), "c": guest(tmp_path, "b", socket={"group": "nobody knows"})}
    with pytest.raises(ControlError, match=r"^ports\.c: .*nobody knows"):
        switch.call("config.apply", patch={"ports": {**ports, "a": guest(tmp_path, "c")}})
    for number in range(2):
        pair.guests[number].close()
        pair.guests[number].reset()
        pair.guests[number].start(pair.paths[number])
    for name in pair.names:
        switch.wait_state(name, "up")
    pair.exchange()
    pair.end()


def test_paths_may_change_hands(switch: RunningSwitch, tmp_path: Path) -> None:
    """A port under another name, and two that swap what they have: what leaves makes room for what comes."""
    first = GuestPair(switch, ("a", "b"))
    first.end()
    switch.patch(
        ports={"a": None, "north": guest(tmp_path, "a"), "b": guest(tmp_path, "c")}, chains={"a-b": {"from": "north"}}
    )
    assert switch.port("north")["path"] == str(tmp_path / "a.sock")
    assert sorted(path.name for path in tmp_path.glob("*.sock")) == ["a.sock", "c.sock"]
    switch.patch(ports={"north": guest(tmp_path, "c"), "b": guest(tmp_path, "a")})
    guests = [FrontEnd(), FrontEnd()]
    for each, path in zip(guests, ("c", "a"), strict=True):
        each.start(tmp_path / f"{path}.sock")
        each.offer_buffers(2)
    for name in ("north", "b"):
        switch.wait_state(name, "up")
    guests[0].send(b"from north".ljust(60))
    assert guests[1].wait_received(1) == [b"from north".ljust(60)]
    switch.call("config.rollback")
    assert [switch.port(name)["path"] for name in ("north", "b")] == [str(tmp_path / f"{path}.sock") for path in "ac"]
    for each in guests:
        each.end()


def test_a_port_may_become_another_on_its_own_path(switch: RunningSwitch, tmp_path: Path) -> None:
    pair = GuestPair(switch, ("a", "b"))
    switch.patch(ports={"b": {"queues": 4}})
    assert len(switch.port("b")["queues"]) == 4
    pair.guests[1].close()
    pair.guests[1].reset()
    pair.guests[1].start(pair.paths[1])
    switch.wait_state("b", "up")
    pair.exchange()
    switch.patch(ports={"b": guest(tmp_path, "moved", queues=None)})
    assert not pair.paths[1].exists()
    pair.guests[1].close()
    pair.guests[1].reset()
    pair.guests[1].start(tmp_path / "moved.sock")
    switch.wait_state("b", "up")
    pair.exchange()
    pair.end()


# ------- kept -------


def test_a_killed_switch_is_what_it_was(asan_binaries: Path, tmp_path: Path) -> None:
    program, kept = asan_binaries / "switch/tailrace-switch", tmp_path / "kept.json"
    first = RunningSwitch(program, tmp_path, "--config", str(kept))
    pair = GuestPair(first, ("a", "b"))
    was = first.call("config.get")
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    for one in pair.guests:
        one.close()
        one.reset()
    second = RunningSwitch(program, tmp_path, "--config", str(kept))
    pair.switch = second
    assert second.call("config.get") == was
    for one, path, name in zip(pair.guests, pair.paths, pair.names, strict=True):
        one.start(path)
        second.wait_state(name, "up")
    pair.exchange()
    assert second.call("config.rollback")["version"] == was["version"] + 1
    assert config(second).get("chains", {}) == {}
    pair.end()
    assert second.end() == 0
    assert kept.stat().st_mode & 0o777 == 0o600
    assert not kept.with_name("kept.json.new").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", r"kept\.json: line 1: "),
        ("[]", r"kept\.json: not a configuration"),
        (
            '{"version":3,"config":{"chains":{"x":{"from":"a","to":"b"}}},"previous":null,'
            '"author":{"pid":1,"uid":0,"when":""}}',
            r"kept\.json: chains\.x\.from: no port 'a'; correct the file",
        ),
    ],
)
def test_a_kept_configuration_that_is_wrong_is_not_started_with(
    binaries: Path, tmp_path: Path, content: str, reason: str
) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text(content)
    options = ["--control", tmp_path / "control", "--page", tmp_path / "page", "--config", kept]
    done = subprocess.run(
        [binaries / "switch/tailrace-switch", *options], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert re.search(reason, done.stderr), done.stderr
    assert kept.read_text() == content
    assert not (tmp_path / "control").exists()


def test_a_folder_that_cannot_be_written_refuses_the_change(switch: RunningSwitch, tmp_path: Path) -> None:
    assert switch.end() == 0
    folder = tmp_path / "gone"
    folder.mkdir()
    again = RunningSwitch(Path(str(switch.process.args[0])), tmp_path, "--config", str(folder / "kept"))  # type: ignore[index]
    folder.rmdir()
    with pytest.raises(ControlError, match=r"the configuration cannot be kept in .*gone/kept"):
        again.add_guest("a")
    assert again.call("config.get") == {"version": 0, "config": {}}
    assert not (tmp_path / "a.sock").exists()
    switch.process, switch.control, switch.page = again.process, again.control, again.page


# ------- rules -------


def tagged(vlan: int, text: bytes) -> bytes:
    return bytes.fromhex("020000000002 020000000001 8100") + struct.pack(">HH", vlan, 0x88B5) + text.ljust(46)


def test_chains_share_a_port_and_part_by_their_matches(switch: RunningSwitch) -> None:
    guests = {name: FrontEnd() for name in "abc"}
    for name, each in guests.items():
        each.start(switch.add_guest(name))
        switch.wait_state(name, "up")
    switch.patch(
        chains={
            "ten": {"from": "a", "to": "b", "match": [{"vlan": 10}]},
            "many": {"from": "a", "to": "c", "match": [{"vlan": [5, 50]}, {"vlan": 99}]},
        }
    )
    for each in guests.values():
        each.offer_buffers(8)
    for vlan in (10, 20, 99, 100):
        guests["a"].send(tagged(vlan, b"there"))
    assert guests["b"].wait_received(1) == [tagged(10, b"there")]
    assert guests["c"].wait_received(2) == [tagged(20, b"there"), tagged(99, b"there")]
    wait_until(lambda: switch.counters("a")["drop_no_match"] == 1, "the frame without a chain is dropped")
    guests["c"].send(tagged(99, b"back"))
    assert guests["a"].wait_received(1) == [tagged(99, b"back")]
    # By the order in the document, of which another one is a change; a priority stands above it.
    config = switch.call("config.get")["config"]
    turned = {**config, "chains": dict(reversed(config["chains"].items()))}
    assert switch.call("config.plan", config=turned)["changes"] == [
        {"change": "change", "what": "chain", "name": "many"}
    ]
    version = switch.call("config.apply", config=turned)["version"]
    guests["a"].send(tagged(10, b"turned"))
    assert guests["c"].wait_received(1) == [tagged(10, b"turned")]
    assert switch.call("config.apply", config=turned) == {"version": version, "changes": []}
    switch.call("config.rollback")
    switch.patch(chains={"many": {"priority": 1}})
    guests["a"].send(tagged(10, b"now"))
    assert guests["c"].wait_received(1) == [tagged(10, b"now")]
    chains = {chain["name"]: chain for chain in switch.call("chain.list")}
    assert (chains["ten"]["forward"]["packets"], chains["many"]["forward"]["packets"]) == (1, 4)
    assert chains["many"]["back"]["packets"] == 1
    for each in guests.values():
        each.end()


def test_frames_of_a_chain_pass_its_functions_both_ways(switch: RunningSwitch) -> None:
    names = ["a", "f.0", "f.1", "b"]
    guests = {name: FrontEnd() for name in names}
    for name, each in guests.items():
        each.start(switch.add_guest(name))
        switch.wait_state(name, "up")
        each.offer_buffers(4)
    switch.set_chain("x", *names)
    for sender, receiver in (("a", "f.0"), ("f.1", "b"), ("b", "f.1"), ("f.0", "a")):
        guests[sender].send(sender.encode() * 20)
        assert guests[receiver].wait_received(1) == [sender.encode() * 20]

    def hops() -> dict[str, tuple[int, int]]:
        """There and back, which the worker counts after the receiver has the frame."""
        found = (slot for slot in switch.page.slots() if slot.kind == "hop")
        return {slot.name: (slot.counters["forward_packets"], slot.counters["back_packets"]) for slot in found}

    wait_until(lambda: hops() == {"x/0": (1, 1), "x/1": (1, 1)}, "each hop has counted both frames")
    assert list(hops()) == ["x/0", "x/1"]
    for each in guests.values():
        each.end()


# ------- beside traffic -------


def assert_exact(result: dict[str, Any], name: str) -> None:
    """Every frame of the stream was sent in time and came once and in order."""
    each = next(entry for entry in result["streams"] if entry["name"] == name)
    assert each["sent"] > 0
    assert each["received"] == each["sent"], each
    for key in ("lost", "duplicate", "out_of_sequence", "foreign"):
        assert each[key] == 0, (key, each)


def skeleton(binaries: Path, *paths: Path) -> subprocess.Popen[bytes]:
    argv: list[str | Path] = [binaries / "functions/tailrace-vnf", "skeleton", "--mode", "interrupt"]
    return subprocess.Popen([*argv, *(f"--port=vhost:{path}" for path in paths)], stdout=subprocess.DEVNULL)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(60)


@pytest.mark.parametrize("cores", ["1", "0,1"])
def test_changes_beside_a_chain_cost_it_nothing(binaries: Path, tmp_path: Path, cores: str) -> None:
    switch = RunningSwitch(binaries / "switch/tailrace-switch", tmp_path, "--idle", "sleep", "--cores", cores)
    ends = {name: f"vhost:{switch.add_guest(name)}" for name in "ab"}
    switch.set_chain("beside", "a", "b")
    tester = RunningTester(binaries / "tester/tailrace-tester", tmp_path, ends)
    for name in ends:
        switch.wait_state(name, "up")
    tester.start([stream("there", "a", "b", 5000), stream("back", "b", "a", 5000)], 3600, wait=1.0)
    tester.wait_sent(100)
    for number in range(15):
        added = {f"p{number}.{side}": guest(tmp_path, f"p{number}.{side}") for side in range(4)}
        switch.patch(ports=added)
        switch.set_chain(f"chain{number}", *added)
        if number % 3 == 0:
            switch.call("config.rollback")
            switch.call("config.rollback")
        if number % 2:
            switch.patch(chains={f"chain{number}": None}, functions={f"p{number}": None}, ports=dict.fromkeys(added))
    tester.call("trial.stop")
    result = tester.wait_end()
    assert_exact(result, "there")
    assert_exact(result, "back")
    assert tester.end() == 0
    assert switch.end() == 0


def test_replacing_a_function_costs_other_chains_nothing(binaries: Path, tmp_path: Path) -> None:
    switch = RunningSwitch(binaries / "switch/tailrace-switch", tmp_path, "--idle", "sleep")
    paths = {name: switch.add_guest(name) for name in ("a", "b", "c", "d", "one.0", "one.1", "two.0", "two.1")}
    functions = [skeleton(binaries, paths[f"{name}.0"], paths[f"{name}.1"]) for name in ("one", "two")]
    switch.set_chain("beside", "c", "d")
    switch.set_chain("through", "a", "one.0", "one.1", "b")
    tester = RunningTester(
        binaries / "tester/tailrace-tester", tmp_path, {name: f"vhost:{paths[name]}" for name in "abcd"}
    )
    for name in paths:
        switch.wait_state(name, "up")
    tester.start([stream("beside", "c", "d", 5000), stream("through", "a", "b", 2000)], 3600, wait=1.0)
    tester.wait_sent(200)
    rounds = 8
    for number in range(rounds):
        now = ("two", "one")[number % 2]
        switch.patch(functions={"one": {"replicas": {"only": {"left": f"{now}.0", "right": f"{now}.1"}}}})
        sent = tester.call("trial.status")["streams"][1]["sent"]
        tester.wait_sent(sent + 50)
    tester.call("trial.stop")
    result = tester.wait_end()
    assert_exact(result, "beside")
    through = next(entry for entry in result["streams"] if entry["name"] == "through")
    # What was in the function when it was taken out comes back into nothing: a few frames each time, by name.
    assert through["duplicate"] == 0
    dropped = sum(switch.counters(f"{name}.{side}")["drop_no_chain"] for name in ("one", "two") for side in (0, 1))
    assert through["lost"] == dropped
    assert through["lost"] <= rounds * 64
    for function in functions:
        end(function)
    assert tester.end() == 0
    assert switch.end() == 0
