"""The order of a change, and how one that cannot be made is undone: with a fabric and functions of the test's own."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tailrace.errors import Failure, Refused
from tailrace.fabric.tailrace import Conflict, TailraceFabric
from tailrace.node.change import _end_change, change_over, recover
from tailrace.node.difference import Difference
from tailrace.node.running import Node
from tailrace.plan.planned import Plan
from tailrace.process.control import ControlLost
from tailrace.spec.kind import Network
from tailrace.state.record import (
    Change,
    Domain,
    FilePath,
    HugePages,
    Planned,
    Process,
    Record,
    State,
    Unsettled,
    peek,
)


class Fabric:
    """Remembers what it was asked, and refuses where it is told to."""

    def __init__(self, refuse: str = "") -> None:
        self.said: list[str] = []
        self.refuse = refuse
        self.version = 4
        self.config: dict[str, Any] = {"ports": {"a": {"kind": "guest", "path": "/s/a.sock"}}}

    def _ask(self, what: str, base: int | None) -> None:
        self.said.append(what)
        if self.refuse == what:
            raise Refused("chains.v: no")
        if base is not None and base != self.version:
            raise Conflict(f"version {self.version} won")

    def check(self, _config: dict[str, Any], base: int | None = None) -> None:
        self._ask("check", base)

    def apply(self, patch: dict[str, Any], base: int | None = None) -> int:
        self._ask("unstage" if None in patch["ports"].values() else "stage", base)
        ports = {**self.config["ports"], **patch["ports"]}
        self.config = {**self.config, "ports": {name: port for name, port in ports.items() if port is not None}}
        self.version += 1
        return self.version

    def configure(self, config: dict[str, Any], base: int | None = None) -> int:
        self._ask("configure", base)
        self.config = config
        self.version += 1
        return self.version

    def configuration(self) -> tuple[int, dict[str, Any]]:
        return self.version, self.config


MOVE = 32 * "1"
STAGED = {"fw.0": {"kind": "guest", "path": "/s/fw.0.sock"}, "fw.1": {"kind": "guest", "path": "/s/fw.1.sock"}}
AFTER = {"ports": {"a": {"kind": "guest", "path": "/s/a.sock"}, **STAGED}, "chains": {"v": {}}}
CHANGE = Change(
    to=Planned({"new": 1}, "new.yaml"), previous=Planned({"old": 1}, "old.yaml"), instances={}, config=AFTER,
    start=["fw"], stop=[], staged=list(STAGED),
)  # fmt: skip


def wanted() -> Difference:
    return Difference((), ("fw",), (), {}, AFTER, {"ports": STAGED}, config_changes=True)


def node(tmp_path: Path, fabric: Fabric, *, fails: str = "") -> Any:
    """A node that can start one function; `fails` says at what it fails."""
    state = State(tmp_path, Record("boot", things=[FilePath("/s/a.sock")]))

    def start_functions(_plan: object, instances: dict[str, int]) -> list[Process]:
        fabric.said.append(f"start {' '.join(instances)}")
        if fails == "start":
            raise Failure("fw could not be started")
        processes = [Process(name, 1 << 22, 1, "bwrap") for name in instances]  # processes that there are not
        state.add(*processes)
        return processes

    def wait_for(ports: list[str], processes: list[Process]) -> None:
        assert [process.name for process in processes] == ["fw"]
        fabric.said.append(f"wait {' '.join(ports)}")
        if fails == "attach":
            raise Failure("fw did not attach")

    placement = SimpleNamespace(functions={"fw": SimpleNamespace(priority=None)})
    plan = SimpleNamespace(placement=placement, functions=(), started=())

    def wait_for_functions(names: list[str], processes: list[Process]) -> None:
        assert [process.name for process in processes] == list(names)
        fabric.said.append(f"ready {' '.join(names)}")

    return SimpleNamespace(
        state=state,
        fabric=fabric,
        plan=plan,
        notes=[],
        prepare_function=lambda *_: None,
        start_functions=start_functions,
        wait_for=wait_for,
        wait_for_functions=wait_for_functions,
    )


def names(state: State) -> list[str]:
    return [str(getattr(thing, "path", None) or getattr(thing, "name", thing.kind)) for thing in state.record.things]


def test_new_functions_stand_before_the_switch_changes_over(tmp_path: Path) -> None:
    fabric = Fabric()
    here = node(tmp_path, fabric)
    done: list[str] = []
    version = change_over(cast(Node, here), wanted(), 4, commit=lambda: done.append("committed"))
    assert fabric.said == ["check", "stage", "start fw", "wait fw.0 fw.1", "ready fw", "configure"]
    assert (version, fabric.config, done) == (6, AFTER, ["committed"])
    assert names(here.state) == ["/s/a.sock", "/s/fw.0.sock", "/s/fw.1.sock", "fw"]


@pytest.mark.parametrize(
    ("refuse", "fails", "steps"),
    [
        ("check", "", ["check"]),
        ("stage", "", ["check", "stage", "unstage"]),
        ("", "start", ["check", "stage", "start fw", "unstage"]),
        ("", "attach", ["check", "stage", "start fw", "wait fw.0 fw.1", "unstage"]),
        ("configure", "", ["check", "stage", "start fw", "wait fw.0 fw.1", "ready fw", "configure", "unstage"]),
    ],
)
def test_what_cannot_be_made_is_undone(tmp_path: Path, refuse: str, fails: str, steps: list[str]) -> None:
    fabric = Fabric(refuse)
    before = fabric.config
    here = node(tmp_path, fabric, fails=fails)

    def prepare() -> None:
        here.state.add(HugePages(before=10**9, added=5))

    with pytest.raises((Refused, Failure)):
        change_over(cast(Node, here), wanted(), 4, prepare=prepare)
    assert fabric.said == steps
    assert fabric.config == before
    assert names(here.state) == ["/s/a.sock"]


@pytest.mark.parametrize("how", ["made", "fails", "cut short"])
def test_a_network_is_given_back_what_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    fabric, before, given = Fabric(), Network((("192.0.2.1/24",), ())), []
    here = node(tmp_path, fabric, fails="attach" if how == "fails" else "")
    here.state.record.plan = {"old": 1}

    def prepare(_state: State, name: str, network: Network, _group: int) -> str:
        given.append((name, network))
        raise Failure("not all of it can be had")

    def planned(name: str, network: Network | None) -> SimpleNamespace:
        return SimpleNamespace(name=name, runs="process", network=network)

    old = SimpleNamespace(
        **{**vars(here.plan), "started": (planned("fw", before), planned("other", before), planned("third", None))}
    )
    monkeypatch.setattr(Plan, "read", lambda _: old)
    monkeypatch.setattr("tailrace.node.change.prepare_namespace", prepare)
    if how == "made":
        change_over(cast(Node, here), wanted(), 4)
    elif how == "fails":
        with pytest.raises(Failure, match="did not attach"):
            change_over(cast(Node, here), wanted(), 4)
    else:
        here.state.record.changing = CHANGE
        recover(here.state, cast(TailraceFabric, fabric))
    assert given == ([] if how == "made" else [("fw", before)])


def test_somebody_elses_version_is_not_overwritten(tmp_path: Path) -> None:
    fabric = Fabric()
    fabric.version = 5
    with pytest.raises(Conflict, match="version 5 won"):
        change_over(cast(Node, node(tmp_path, fabric)), wanted(), 4)
    assert fabric.said == ["check"]


def with_socket(path: Path) -> Difference:
    after = {"ports": {"a": {"kind": "guest", "path": "/s/a.sock"}, "b": {"kind": "guest", "path": str(path)}}}
    return Difference((), (), (), {}, after, {}, config_changes=True)


@pytest.mark.parametrize("what", ["file", "folder", "link", "another program's socket"])
def test_what_is_in_the_place_of_a_socket_is_left_alone(tmp_path: Path, what: str) -> None:
    place, theirs = tmp_path / "b.sock", tmp_path / "theirs"
    theirs.write_text("precious")
    listener = socket.socket(socket.AF_UNIX)
    if what == "file":
        theirs.rename(place)
    elif what == "folder":
        place.mkdir()
    elif what == "link":
        place.symlink_to(theirs)
    else:
        listener.bind(str(place))
        listener.listen()
    fabric = Fabric()
    here = node(tmp_path, fabric)
    reason = "is in use; stop" if "socket" in what else "a file that is no socket is there"
    with listener, pytest.raises(Refused, match=f"^ports\\.b: socket {place}.*{reason}"):
        change_over(cast(Node, here), with_socket(place), 4)
    assert os.path.lexists(place)
    assert names(here.state) == ["/s/a.sock"], "what is on record is removed by `tailrace down`"


def test_a_socket_of_a_crash_is_no_obstacle_and_one_that_is_gone_is_off_the_record(tmp_path: Path) -> None:
    place = tmp_path / "vm1"
    with socket.socket(socket.AF_UNIX) as crashed:
        crashed.bind(str(place))
    here = node(tmp_path, Fabric())
    here.wait_for = lambda *_, **__: None  # nothing is started
    change_over(cast(Node, here), with_socket(place), 4)
    assert names(here.state) == ["/s/a.sock", str(place)]
    without = {"ports": {"a": {"kind": "guest", "path": "/s/a.sock"}}}
    change_over(cast(Node, here), Difference((), (), (), {}, without, {}, config_changes=True), 5)
    assert names(here.state) == ["/s/a.sock"]


@pytest.mark.parametrize("when", ["check", "stage", "configure", "unstage"])
def test_what_a_lost_switch_leaves_stays_on_record(tmp_path: Path, when: str) -> None:
    """Whether it had changed over can be asked when it is back."""
    fabric = Fabric()
    lost: list[bool] = []

    def ask(what: str, _base: int | None) -> None:
        if lost or what == when:
            lost.append(True)
            raise ControlLost("connection lost")

    def configuration() -> tuple[int, dict[str, Any]]:
        ask("configuration", None)
        return fabric.version, fabric.config

    fabric._ask, fabric.configuration = ask, configuration  # type: ignore[method-assign]
    here = node(tmp_path, fabric, fails="attach" if when == "unstage" else "")
    here.state.record.changing = CHANGE
    with pytest.raises(Failure, match="attach" if when == "unstage" else "connection lost"):
        change_over(cast(Node, here), wanted(), 4)
    assert here.state.record.changing == CHANGE
    assert ("fw" in names(here.state)) == (when == "configure")


@pytest.mark.parametrize("changed_over", [True, False])
def test_a_change_cut_short_is_kept_or_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed_over: bool
) -> None:
    fabric = Fabric()
    here = node(tmp_path, fabric)
    monkeypatch.setattr(Plan, "read", lambda _: here.plan)
    state = here.state
    state.record.plan, state.record.spec = {"old": 1}, "old.yaml"
    fabric.apply({"ports": STAGED})
    here.start_functions(None, {"fw": 1})
    state.add(FilePath("/s/fw.0.sock"), FilePath("/s/fw.1.sock"))
    if changed_over:
        fabric.configure(AFTER)
    change = replace(CHANGE, move=MOVE)
    state.record.changing, state.record.stopped = change, ["fw", "nat"]
    state.record.unsettled = {each: Unsettled("other", MOVE) for each in ("fw", "nat")}
    state.record.moved = {"fw": "other", "nat": "other"}
    state.save()
    assert peek(tmp_path).changing == change and peek(tmp_path).moves == {}
    (said,) = recover(state, cast(TailraceFabric, fabric))
    assert said.startswith("a change to new.yaml that was cut short is " + ("kept" if changed_over else "undone"))
    assert recover(state, cast(TailraceFabric, fabric)) == []
    assert state.record.changing is None
    assert peek(tmp_path).stopped == (["nat"] if changed_over else ["fw", "nat"])
    assert list(peek(tmp_path).unsettled) == list(peek(tmp_path).moved) == peek(tmp_path).stopped
    assert peek(tmp_path).moves == {MOVE: changed_over}
    if changed_over:
        assert (state.record.plan, state.record.spec) == ({"new": 1}, "new.yaml")
        assert peek(tmp_path).previous == CHANGE.previous
        assert set(names(state)) == {"/s/a.sock", "/s/fw.0.sock", "/s/fw.1.sock", "fw"}
        assert fabric.config == AFTER
    else:
        assert (state.record.plan, state.record.spec) == ({"old": 1}, "old.yaml")
        assert names(state) == ["/s/a.sock"]
        assert set(fabric.config["ports"]) == {"a"}


@pytest.mark.parametrize("when", ["configuration", "configure"])
def test_a_machine_that_has_come_goes_on_whatever_the_switch_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """It is nowhere else any more. The change stays on record, and is ended when the switch answers."""
    fabric, went_on, lost = Fabric(), list[list[str]](), [True, True]
    here = node(tmp_path, fabric)
    monkeypatch.setattr(Plan, "read", lambda _: here.plan)
    monkeypatch.setattr("tailrace.node.change._let_go_on", lambda _, functions: went_on.append(list(functions)))
    asked = getattr(fabric, when)

    def late(*given: Any) -> Any:
        if lost:
            lost.pop()
            raise ControlLost("no answer")
        return asked(*given)

    monkeypatch.setattr(fabric, when, late)
    state = here.state
    state.record.changing = replace(CHANGE, arrived=True)
    if when == "configure":
        with pytest.raises(ControlLost):
            change_over(cast(Node, here), wanted(), 4)
    else:
        with pytest.raises(ControlLost):
            recover(state, cast(TailraceFabric, fabric))
    assert went_on == [["fw"]]
    with pytest.raises(ControlLost):
        recover(state, cast(TailraceFabric, fabric))
    assert went_on == [["fw"]] * 2
    (said,) = recover(state, cast(TailraceFabric, fabric))
    assert "kept, as its machine had come" in said
    assert went_on == [["fw"]] * 3
    assert fabric.config == AFTER


def test_a_move_has_not_come_once_nothing_of_it_is_left(tmp_path: Path) -> None:
    state = node(tmp_path, Fabric()).state

    def end(left: str) -> dict[str, bool]:
        """What is known of the move after a change whose machine cannot be ended, where it has a part left."""
        state.record.changing = replace(CHANGE, move=MOVE)
        things = {"process": Process("fw", 1, 1), "domain": Domain("tailrace-fw", "fw"), "other": Process("nat", 1, 1)}
        state.record.things = [things[left]]
        _end_change(state, made=False)
        state.save()
        assert state.record.changing is None
        return peek(tmp_path).moves

    assert end("process") == end("domain") == {}, "its copy may run on"
    assert end("other") == {MOVE: False}


def test_what_has_come_stays_so(tmp_path: Path) -> None:
    """It is known before it may go on, and only of the last moves."""
    state = node(tmp_path, Fabric()).state
    for number in range(100):
        state.record.changing = replace(CHANGE, move=f"{number:032}")
        state.keep_change()
        assert peek(tmp_path).moves[f"{number:032}"] is True
        _end_change(state, made=False)
    assert list(state.record.moves.items()) == [(f"{number:032}", True) for number in range(36, 100)]
