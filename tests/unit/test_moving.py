"""How frames for a machine that moves are sent on, with a switch and another node of the test's own."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tailrace.errors import Failure, Mistake, TailraceError
from tailrace.functions.runtime import Arrival, Origin
from tailrace.functions.transfer import Limits, Outgoing, Progress
from tailrace.node import moving, operations
from tailrace.node.api import Clone, MigrateReceive, Named, Restore
from tailrace.node.client import Client, Said
from tailrace.node.moving import Receiving
from tailrace.node.server import refusal_of
from tailrace.node.service import Service
from tailrace.plan.make import make_plan
from tailrace.process.process import identify
from tailrace.resources.topology import Cpu
from tailrace.spec.load import parse_spec
from tailrace.state.record import Held, Record, State, Unsettled, holding, peek
from tailrace.switch import parking as switch_parking
from tailrace.switch.parking import Parking


class Refused(Exception):
    """The switch does not do it."""


class Gone(Exception):
    """The switch ends."""


@contextmanager
def parking(path: Path, answer: Callable[[str, dict[str, Any]], Any], *sides: str) -> Iterator[Parking]:
    """Of these sides, numbered from 1, at a switch that answers so."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    started = 0

    def serve() -> None:
        nonlocal started
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as stream:
            for line in stream:
                request = json.loads(line)
                said: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
                try:
                    if request["method"] == "park.start":
                        started += 1
                        said["result"] = {"park": started}
                    else:
                        said["result"] = answer(request["method"], request["params"])
                except Refused:
                    said["error"] = {"code": -32001, "message": "no parking"}
                except Gone:
                    return
                connection.sendall(json.dumps(said).encode() + b"\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    made = Parking(path, {side: [f"fw.{side}"] for side in sides}, slides=False)
    try:
        yield made
    finally:
        made.end()
        thread.join(60)
        listener.close()
    assert not thread.is_alive()


@pytest.mark.parametrize("why", [Gone, Refused])
def test_who_keeps_a_machine_moving_does_not_care_whether_the_switch_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: type[Exception]
) -> None:
    asked = []

    def answer(method: str, _params: dict[str, Any]) -> Any:
        asked.append(method)
        raise why

    monkeypatch.setattr(switch_parking, "_KEEP_SECONDS", 0.0)
    with parking(tmp_path / "c", answer, "0") as made:
        for _ in range(3):
            made.keep()
    assert asked[0] == "park.status"


def test_a_switch_that_is_stuck_is_not_waited_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = threading.Event()

    def answer(method: str, _params: dict[str, Any]) -> Any:
        if method == "park.status":
            assert let_go.wait(60)
        return {"waiting": 0, "delivered": 0}

    monkeypatch.setattr(switch_parking, "_KEEP_SECONDS", 0.0)
    monkeypatch.setattr(switch_parking, "_SOON_SECONDS", 0.05)
    with parking(tmp_path / "c", answer, "0") as made:
        made.keep()
        assert not let_go.is_set()
        let_go.set()
        made.drain()


def test_each_side_is_ended_though_one_has_ended_already(tmp_path: Path) -> None:
    stopped = []

    def answer(method: str, params: dict[str, Any]) -> Any:
        assert method == "park.stop"
        stopped.append(params["park"])
        if params["park"] == 1:
            raise Refused
        return {}

    with parking(tmp_path / "c", answer, "0", "1"):
        pass
    assert stopped == [1, 2]


class Other:
    """The other node: what it was told, and what it says to it."""

    def __init__(self, says: Callable[[str], None] = lambda _side: None) -> None:
        self.told: list[tuple[str, list[str]]] = []
        self.says = says

    def patience(self, _seconds: float) -> None:
        pass

    def call(self, method: str, name: str, side: str, frames: list[str]) -> None:
        assert (method, name) == ("migrate.park", "fw")
        self.told.append((side, frames))
        self.says(side)


def takes(found: dict[int, list[list[str]]]) -> Callable[[str, dict[str, Any]], Any]:
    """A switch that has these for each parking: [] in between is where all that waited has been taken."""

    def answer(method: str, params: dict[str, Any]) -> Any:
        if method != "park.take":
            return {}
        left = found[params["park"]]
        frames = left.pop(0) if left else []
        more = bool(left) and left[0] != []
        if left and left[0] == []:
            left.pop(0)
        return {"frames": frames, "more": more}

    return answer


def test_what_came_is_sent_on_and_what_has_come_meanwhile(tmp_path: Path) -> None:
    """And no more: the machine stands still."""
    found = {1: [["a"], ["b"], [], ["c"], ["d"], [], ["e"]], 2: [["f"]]}
    other = Other()
    with parking(tmp_path / "c", takes(found), "0", "1") as made:
        assert moving._forward(made, cast(Client, other), "fw") == 5
    assert other.told == [
        ("0", ["a"]), ("0", ["b"]), ("1", ["f"]),
        ("0", ["c"]), ("0", ["d"]), ("1", []),
    ]  # fmt: skip
    assert found[1] == [["e"]]


def test_what_one_side_is_refused_costs_the_others_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def says(side: str) -> None:
        if side == "0":
            raise Said(["frames: no"], 1)

    other = Other(says)
    with parking(tmp_path / "c", takes({1: [["a", "b"]], 2: [["c"]]}), "0", "1") as made:
        assert moving._forward(made, cast(Client, other), "fw") == 1
    assert ("1", ["c"]) in other.told
    assert "fw: 2 frames for its port 0 are not sent on: frames: no" in caplog.text


def test_a_node_that_does_not_answer_is_told_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def says(_side: str) -> None:
        raise Failure("no answer to migrate.park")

    other = Other(says)
    with parking(tmp_path / "c", takes({1: [["a"]], 2: [["c"]]}), "0", "1") as made:
        assert moving._forward(made, cast(Client, other), "fw") == 0
    assert other.told == [("0", ["a"])]
    assert "no answer to migrate.park" in caplog.text


def test_frames_without_an_end_do_not_keep_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "_FORWARD_SECONDS", 0.1)

    def answer(method: str, _params: dict[str, Any]) -> Any:
        return {"frames": ["a"], "more": True} if method == "park.take" else {}

    other = Other()
    with parking(tmp_path / "c", answer, "0") as made:
        assert moving._forward(made, cast(Client, other), "fw") == len(other.told) > 0


class Given:
    """A parking at the target."""

    def __init__(self) -> None:
        self.sides = ["0", "1"]
        self.given: list[tuple[str, Sequence[str]]] = []

    def give(self, side: str, frames: Sequence[str]) -> None:
        self.given.append((side, frames))


def test_of_a_side_that_nothing_was_said_of_all_counts_as_delivered(tmp_path: Path) -> None:
    receiving, given = Receiving(tmp_path, "fw"), Given()
    receiving.settle()
    receiving._parking = cast(Parking, given)
    receiving.give("0", ["a"])
    receiving.settle()
    assert given.given == [("0", ["a"]), ("1", [])]


def test_who_receives_a_machine_knows_that_the_switch_has_ended(tmp_path: Path) -> None:
    switch = subprocess.Popen(["sleep", "60"])
    try:
        receiving = Receiving(tmp_path, "fw")
        assert not receiving.cut_off, "it has not begun"
        ran = identify(switch.pid)
        assert ran is not None
        receiving._switch = [ran]
        assert not receiving.cut_off
    finally:
        switch.kill()
        switch.wait()
    assert receiving.cut_off


class Clock:
    """The time, as `moving` sees it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Sending:
    """A machine whose memory gets through as `sent` says, of one look after the other, each of which takes so many
    `seconds`; libvirt ends it when asked."""

    connections = ways = 1

    def __init__(self, sent: list[int | None], clock: Clock, seconds: float = 20.0) -> None:
        self.sent, self.clock, self.seconds = sent, clock, seconds
        self.ended = threading.Event()
        self.problem: str | None = None

    def progress(self) -> Progress | None:
        self.clock.now += self.seconds
        sent = self.sent.pop(0) if len(self.sent) > 1 else self.sent[0]
        if sent == END:
            self.ended.set()
        return Progress(1.0, 100, 50, 0, 0, 1, 0, sent) if sent is not None else None

    def give_up_after(self, seconds: float) -> int:
        assert seconds == moving.STALLED_SECONDS
        return 1

    def still(self) -> bool:
        return False

    def here(self) -> bool:
        return True

    def cancel(self) -> None:
        self.problem = "operation aborted"
        self.ended.set()


MOVE = 32 * "1"
END = 1000
GIVEN_UP = (
    "fw goes on here: nothing of it has come through to other for 60 s, and its move has ended .operation aborted"
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(moving, "time", made)
    monkeypatch.setattr(moving, "_TELL_SECONDS", 0.0)
    return made


def send(
    sending: Sending,
    path: Path,
    kept: Callable[[], None] = lambda: None,
    tell: Callable[[str], None] = lambda _: None,
) -> None:
    """`kept` is called whenever the switch is asked to go on."""

    def answer(method: str, _params: dict[str, Any]) -> Any:
        if method == "park.status":
            kept()
        return {"waiting": 0, "delivered": 0}

    with parking(path, answer, "0") as made:
        reception = moving._Reception(cast(Client, None), "fw", "<domain/>", MOVE)
        moving._send(cast(Outgoing, sending), reception, made.keep, "fw", "other", tell)


def test_what_gets_through_slowly_goes_on(tmp_path: Path, clock: Clock) -> None:
    """200 s before it begins, and 200 s in which each look finds more."""
    send(Sending([*(10 * [None]), *range(10), END], clock), tmp_path / "c")


@pytest.mark.parametrize("same", [3, None])
def test_what_does_not_get_through_for_less_than_the_limit_goes_on(
    tmp_path: Path, clock: Clock, same: int | None
) -> None:
    """Asked 0, 20 and 40 s after more had got through, and again as soon as it has."""
    send(Sending([3, same, same, same, 4, same, same, same, END], clock), tmp_path / "c")


@pytest.mark.parametrize("same", [3, None])
def test_what_does_not_get_through_for_long_is_given_up(tmp_path: Path, clock: Clock, same: int | None) -> None:
    """No answer is none that more has got through."""
    with pytest.raises(Failure, match=GIVEN_UP) as failed:
        send(Sending([3, same, same, same, same, END], clock), tmp_path / "c")
    assert "QEMU" not in str(failed.value)


def test_what_several_connections_leave_is_said(tmp_path: Path, clock: Clock) -> None:
    sending = Sending([3], clock)
    sending.connections = 2
    with pytest.raises(Failure, match=GIVEN_UP + ".*QEMU is 7.2.*`tailrace function restart fw`"):
        send(sending, tmp_path / "c")


@pytest.mark.parametrize("found", [3, 4, None])
def test_an_answer_that_takes_longer_than_the_limit_ends_no_move(
    tmp_path: Path, clock: Clock, found: int | None
) -> None:
    """What was asked before the limit says nothing of it."""
    send(Sending([3, found, END], clock, seconds=61.0), tmp_path / "c")


class Interrupting(threading.Event):
    """Who waits for it and does not watch is interrupted once, when that is `due`."""

    def __init__(self) -> None:
        super().__init__()
        self.due, self.interrupted = threading.Event(), threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        if self.due.is_set() and not self.interrupted.is_set() and threading.current_thread().name != "watch":
            self.interrupted.set()
            raise KeyboardInterrupt("enough")
        return super().wait(timeout)


def test_while_qemu_does_not_answer_the_rest_goes_on(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told once that nothing comes through, a cancel counts, and the switch is asked to go on after that."""
    monkeypatch.setattr(switch_parking, "_KEEP_SECONDS", 0.0)
    monkeypatch.setattr(moving, "_CANCEL_SECONDS", float("inf"))
    ended, kept, came, told = Interrupting(), threading.Semaphore(0), list[bool](), list[str]()

    class Stuck(Sending):
        def progress(self) -> Progress | None:
            found = super().progress()
            if found is not None and found.sent_bytes == 4:
                came.append(ended.interrupted.wait(60))
                came.extend(kept.acquire(timeout=60) for _ in range(3))
            return found

    def tell(line: str) -> None:
        told.append(line)
        if line.startswith("nothing of it is known to have come through to other for 60 s"):
            while kept.acquire(blocking=False):
                pass
            ended.due.set()

    sending = Stuck([3, 4, 5, 6], clock, seconds=61.0)
    sending.ended = ended
    with pytest.raises(KeyboardInterrupt, match="enough"):
        send(sending, tmp_path / "c", kept.release, tell)
    assert came == 4 * [True] and sending.sent == [5, 6] and sending.problem == "operation aborted"
    assert sum(line.startswith("nothing") for line in told) == 1


def test_a_cancel_that_libvirt_does_not_come_to_is_left_to_who_receives_it(tmp_path: Path, clock: Clock) -> None:
    """As where its copy there stands still: that is to be ended first."""

    class Waiting(Sending):
        asked = 0

        def cancel(self) -> None:
            self.asked += 1
            self.clock.now += 1.0

    ended = Interrupting()
    ended.due.set()
    sending = Waiting([3], clock, seconds=0.0)
    sending.ended = ended
    with pytest.raises(KeyboardInterrupt, match="enough"):
        send(sending, tmp_path / "c")
    assert sending.asked >= 5 and not ended.is_set()
    ended.set()


@pytest.mark.parametrize("ways", [1, 3])
def test_its_connections_are_bounded_before_qemu_is_asked_anything(tmp_path: Path, clock: Clock, ways: int) -> None:
    """QEMU may not answer from then on; each look finds one more until all are there."""
    asked: list[str] = []

    class Sent(Sending):
        def give_up_after(self, seconds: float) -> int:
            super().give_up_after(seconds)
            asked.append("bound")
            return asked.count("bound") - 1

        def progress(self) -> Progress | None:
            asked.append("progress")
            return super().progress()

    sending = Sent([None, 1, 2, 3, 4, END], clock)
    sending.ways = ways
    send(sending, tmp_path / "c")
    assert asked[: 2 * ways + 2] == (ways + 1) * ["bound", "progress"]
    assert asked.count("bound") == ways + 1


CPUS = tuple(Cpu(number, core=number) for number in range(8))
MACHINES = """\
functions: {fw: {kind: skeleton, runs: machine}, nat: {kind: skeleton, runs: machine}}
chains: {v: [tester.a, fw, nat, tester.b]}
"""
HANDED = Unsettled("other", MOVE)


@pytest.mark.parametrize("host", ["other", "/run/other", ""])
def test_nobody_else_is_asked_where_nothing_is_up(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "reached", lambda _: pytest.fail("another host was asked"))
    limits = Limits(None, 300, None)
    with holding(tmp_path) as here:
        with pytest.raises(Mistake, match="nothing is up"):
            moving.propose(here, "fw", host)
        with pytest.raises(Mistake, match="nothing is up"):
            moving.move(here, "fw", host, limits, lambda _: None, moving.Beside())


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    """Of a node that does not know what has become of a machine."""
    with holding(tmp_path) as here:
        state = here.state()
        state.record.stopped, state.record.unsettled = ["fw"], {"fw": HANDED}
        state.save()
        yield here


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was started anew."""
    found: list[str] = []

    def replace_function(here: Held, name: str, *, stopped: bool, alone: bool) -> None:
        assert stopped and alone
        found.append(name)
        state = here.state()
        state.record.stopped, state.record.unsettled = [], {}
        state.save()

    monkeypatch.setattr(moving, "replace_function", replace_function)
    monkeypatch.setattr(moving, "resume", lambda _: [])
    return found


def ask(path: Path, monkeypatch: pytest.MonkeyPatch, moves: dict[str, bool] | TailraceError) -> bool:
    """What is known where the other node says this of its moves."""

    @contextmanager
    def other(host: str) -> Iterator[Any]:
        assert host == "other"
        if isinstance(moves, TailraceError):
            raise moves
        yield SimpleNamespace(facts=lambda _: SimpleNamespace(moves=moves, state="stopped"))

    monkeypatch.setattr(moving, "reached", other)
    return moving.came(path, "fw", HANDED)


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        ({"stopped": True, "origin": Arrival("<domain/>", *5 * [cast(Any, None)])}, ["fw"]),
        ({"origin": Origin(Path("/saved"))}, ["fw"]),
        ({"stopped": True, "alone": True}, ["fw"]),
        ({"stopped": True}, ["fw", "fw-2"]),
        ({}, ["fw", "fw-2"]),
    ],
)
def test_the_first_of_two_replicas_comes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: dict[str, Any], begins: list[str]
) -> None:
    """It is called like their function, all of whose replicas a start and a restart are of. The second one may run at
    the other node still."""
    text = MACHINES.replace("machine}", "machine, replicas: {1: active, 2: active}}", 1)
    plan = make_plan(parse_spec(text, "s"), cpus=CPUS, real_time=None)
    record = Record("boot", plan=plan.as_data(), stopped=["fw", "fw-2"])
    fabric = SimpleNamespace(ports=list)
    node = SimpleNamespace(state=State(tmp_path, record), plan=plan, fabric=fabric, origins={})
    begun: list[str] = []
    monkeypatch.setattr(operations, "changing", lambda _: nullcontext(node))
    monkeypatch.setattr(operations, "_apply", lambda *_, anew: begun.extend(anew))
    monkeypatch.setattr("tailrace.functions.saved.read", lambda _: None)
    operations.replace_function(cast(Held, None), "fw", **words)
    assert begun == begins and list(node.origins) == (["fw"] if "origin" in words else [])


@pytest.mark.parametrize("came", [True, False])
def test_what_the_other_node_says_of_a_move_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, came: bool
) -> None:
    assert ask(tmp_path, monkeypatch, {32 * "0": not came, MOVE: came}) is came


def test_that_a_machine_is_stopped_there_says_nothing_of_its_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change for it may be at work, it may have gone on to a third node, or another host may have that name."""
    with pytest.raises(Failure, match=r"does not know, or not yet.*`tailrace function start fw`"):
        ask(tmp_path, monkeypatch, {32 * "0": False})
    with pytest.raises(Failure, match="no answer"):
        ask(tmp_path, monkeypatch, Failure("no answer"))


@pytest.mark.parametrize("came", [True, False])
def test_only_a_machine_that_has_not_come_is_started_anew(held: Held, started: list[str], came: bool) -> None:
    assert moving.settle(held, "fw", HANDED, came=came) is not came
    assert started == ([] if came else ["fw"])
    assert peek(held.folder).unsettled == {} and peek(held.folder).moved == ({"fw": "other"} if came else {})


@pytest.mark.parametrize("state", ["running", "stopped", None])
def test_a_machine_that_runs_where_it_has_moved_to_is_not_started_here(
    held: Held, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    """One whose host does not answer is: it may be lost."""

    @contextmanager
    def other(host: str) -> Iterator[Any]:
        assert host == "far"
        if state is None:
            raise Failure("far: ssh does not get there")
        yield SimpleNamespace(facts=lambda _: SimpleNamespace(state=state))

    monkeypatch.setattr(moving, "reached", other)
    here = held.state()
    here.record.plan = make_plan(parse_spec(MACHINES, "s"), cpus=CPUS, real_time=None).as_data()
    here.record.moved = {"fw": "far"}
    here.save()
    moving.check_not_there(held, "nat")
    if state == "running":
        with pytest.raises(Mistake, match=r"^fw has moved to far, and runs there; `tailrace function stop fw` there"):
            moving.check_not_there(held, "fw")
    else:
        moving.check_not_there(held, "fw")


@pytest.mark.parametrize(
    ("method", "params"),
    [
        (Service._start_function, Named(name="fw")),
        (Service._replace, Named(name="fw")),
        (Service._restore, Restore(name="fw", file="/saved")),
        (Service._clone, Clone(name="nat", to="fw")),
    ],
)
def test_nothing_takes_its_name_here_while_it_runs_there(
    monkeypatch: pytest.MonkeyPatch, method: Callable[[Any, Any], Any], params: Any
) -> None:
    def runs_there(_held: Held, name: str) -> None:
        assert name == "fw"
        raise Mistake("fw has moved")

    monkeypatch.setattr(moving, "check_not_there", runs_there)
    with pytest.raises(Mistake, match="fw has moved"):
        method(SimpleNamespace(held=None), SimpleNamespace(params=params))


def test_an_answer_about_what_somebody_has_seen_to_since_starts_nothing(held: Held, started: list[str]) -> None:
    assert not moving.settle(held, "fw", Unsettled("other", 32 * "2"), came=False), "it has moved again"
    state = held.state()
    assert state.record.unsettled == {"fw": HANDED}
    state.record.stopped = []
    state.save()
    assert not moving.settle(held, "fw", HANDED, came=False), "it was started"
    assert started == [] and peek(held.folder).unsettled == {}


@pytest.mark.parametrize("problem", [None, Failure("lost"), Said(["fw: it did not arrive"], 1)])
def test_what_the_other_node_does_not_say_leaves_a_machine_ended(
    held: Held, monkeypatch: pytest.MonkeyPatch, problem: TailraceError | None
) -> None:
    """Neither that a connection is lost nor that a call has failed says that its copy there has ended."""
    state, ended = held.state(), list[str]()
    state.record.stopped, state.record.unsettled = [], {}

    def end(_state: State, names: Sequence[str]) -> list[str]:
        ended.extend(names)
        return []

    class Going:
        def call(self, method: str, name: str) -> None:
            assert (method, name) == ("migrate.go", "fw")
            assert peek(held.folder).unsettled == {"fw": HANDED}, "first it is on record"
            if problem is not None:
                raise Failure("no connection")

    monkeypatch.setattr(moving, "end_processes", end)
    reception = moving._Reception(cast(Client, None), "fw", "<domain/>", MOVE, problem=problem)
    reception.ended.set()
    if problem is None:
        moving._hand_over(state, "fw@2", "fw", "other", cast(Client, Going()), reception)
    else:
        with pytest.raises(Failure, match=f"fw has ended here, and other does not say.*{problem}"):
            moving._hand_over(state, "fw@2", "fw", "other", cast(Client, Going()), reception)
    found = peek(held.folder)
    assert found.stopped == ["fw"] and found.unsettled == ({} if problem is None else {"fw": HANDED})
    assert found.moved == ({"fw": "other"} if problem is None else {})
    assert ended == ["fw@2"]


def test_the_other_node_is_told_which_move_it_is() -> None:
    """By what `came` asks for."""

    def call(method: str, **params: str) -> None:
        assert method == "migrate.receive"
        assert params == {"name": "fw", "domain": "<domain/>", "move": MOVE}
        MigrateReceive(**params)

    reception = moving._Reception(cast(Client, SimpleNamespace(call=call)), "fw", "<domain/>", MOVE)
    reception._receive()
    assert reception.problem is None and reception.ended.is_set()


def test_a_full_disk_of_the_other_node_is_named_and_leaves_it_where_it_is(tmp_path: Path) -> None:
    def call(_method: str, **_params: str) -> None:
        full = refusal_of(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/run/two/state.json.new"))
        raise Said(full.data["lines"], full.data["exit_status"])

    client = SimpleNamespace(call=call, patience=lambda _: None, cancel=lambda _: None)
    reception = moving._Reception(cast(Client, client), "fw", "<domain/>", MOVE)
    said = r"^other does not take fw: /run/two/state.json.new: No space left on device; it goes on here$"
    with (
        parking(tmp_path / "c", lambda _method, _params: {"waiting": 0, "delivered": 0}, "0") as made,
        pytest.raises(Failure, match=said),
        moving._received(reception, made.keep, "fw", "other"),
    ):
        pytest.fail("it was sent")
