"""What a function says of itself: asked at its socket, and shown whatever its kind."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.cli.function import _show
from tailrace.cli.output import run_command
from tailrace.errors import Failure, Fault, Mistake
from tailrace.functions import agent
from tailrace.functions.show import Rows, Shown, ask, tell
from tailrace.kernel.boot import boot_id
from tailrace.process.control import ControlError
from tailrace.state.folder import ENVIRONMENT
from tailrace.state.record import Process, Record, State

ANSWER = {
    "function": "router",
    "counters": {
        "function": "router",
        "ports": [{"port": "vhost-server:/run/port0/sock", "received": 5}, {"port": "x", "received": 0}],
        "sleeps": 0,
        "routes": {"ipv4": 2, "ipv6": 0},
    },
    "tables": {
        "ipv4_routes": {"total": 2, "rows": [{"prefix": "192.0.2.0/24", "to": ["198.18.79.2 port1", "port0"]}]},
        "neighbours": {"total": 1, "rows": [{"address": "198.18.79.2\x1b", "port": 1, "mac": None}]},
    },
}
SHOWN = json.loads(json.dumps(ANSWER).replace("\\u001b", ""))
HOSTILE = "\x1b]0;x\x07\x1b[2J[/x][bold]\r\n\u202e\x9b31m\x7f\ud800:smile:"
LEFT = "]0;x [2J[/x][bold] 31m :smile:"
"""What is left of it, apart from spaces."""


@pytest.fixture(name="state")
def fixture_state(tmp_path: Path) -> State:
    state = State(tmp_path, Record(boot_id()))
    state.save()  # takes the folder
    (state.sockets / "edge@2.0").mkdir(parents=True)
    return state


EDGE = Process("edge@2", 1, 1, "tailrace-vnf", runtime="process")


@contextmanager
def machine(state: State, status: int, answer: Callable[[dict[str, Any]], object]) -> Iterator[None]:
    """A machine whose agent runs what it is asked to: the function inside answers so, once."""
    state.logs.mkdir(exist_ok=True)
    path = state.logs / "edge@2.agent"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as stream:
                command = base64.b64decode(stream.readline()).decode()
                assert f"\ntailrace-vnf --ask {agent.FUNCTION} <<'END'\n" in command
                (request,) = [line for line in command.splitlines() if line.startswith("{")]
                token = command.partition("\n")[0].removeprefix("echo ")
                told = answer(json.loads(request))
                text = told if isinstance(told, str) else json.dumps(told)
                said = base64.b64encode(f"{token}\n{text}\n".encode(errors="replace"))
                connection.sendall(b"%d %s\n" % (status, said))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        thread.join(10)
    path.unlink()


@contextmanager
def function(state: State, result: object, key: str = "result", method: str = "show") -> Iterator[None]:
    """A function that answers so, once."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(state.sockets / "edge@2.0" / "control"))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as stream:
                asked = json.loads(stream.readline())
                assert asked["method"] == method and asked["params"] == {"most": 7}
                connection.sendall(json.dumps({"id": asked["id"], key: result}).encode() + b"\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        thread.join(10)


def machine_of_one(state: State, result: object) -> AbstractContextManager[None]:
    """The same, in a machine."""
    return machine(state, 0, lambda asked: {"id": asked["id"], "result": result})


def test_counters_and_tables_of_any_kind_are_shown(state: State) -> None:
    with function(state, ANSWER):
        shown = ask(state, EDGE, 7)
    assert shown.model_dump() == SHOWN
    assert list(shown.counted()) == [("received", [5, 0]), ("routes: ipv4", [2])]
    routes, neighbours = shown.tables.values()
    assert routes.columns == ["prefix", "to"]
    assert list(routes.texts()) == [["192.0.2.0/24", "198.18.79.2 port1, port0"]]
    assert list(neighbours.texts()) == [["198.18.79.2", "1", "-"]]  # nothing that a terminal acts on
    assert list(Shown(function="skeleton", counters={}, tables={}).counted()) == []


def test_times_are_read_by_people_whatever_a_function_says() -> None:
    rows = [{"time": 1795981071, "number": 1795981071}, {"time": 10**30, "number": 1}, {"time": "soon", "number": 2}]
    table = Rows.model_validate({"total": 3, "rows": rows})
    said = ["2026-11-29 19:37:51 UTC", str(10**30), "soon"]
    assert [time for time, _ in table.texts()] == said and next(table.texts())[1] == "1795981071"


def test_what_cannot_be_asked_is_said(state: State) -> None:
    with pytest.raises(Mistake, match="edge@2 cannot be asked"):
        ask(state, EDGE, 7)
    control = state.sockets / "edge@2.0" / "control"
    control.symlink_to(state.control)  # no function leads a root's command elsewhere
    with pytest.raises(Mistake, match="edge@2 cannot be asked"):
        ask(state, EDGE, 7)
    control.unlink()
    with function(state, {"function": 1}), pytest.raises(Fault, match="answers with something else"):
        ask(state, EDGE, 7)


def test_a_machine_with_somebody_elses_disk_is_not_asked(state: State) -> None:
    """It would not be known before half a minute has passed."""
    state.logs.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(state.logs / "edge@2.agent"))  # nobody is there
        state.record.plan = {"functions": [{"name": "edge", "kind": None}]}
        with pytest.raises(Mistake, match="edge@2 cannot be asked; expected one of Tailrace's own kinds"):
            ask(state, EDGE, 7)


def test_a_function_in_a_machine_answers_by_the_agent(state: State) -> None:
    def answers(asked: dict[str, Any]) -> object:
        assert asked["method"] == "show" and asked["params"] == {"most": 7}
        return {"id": asked["id"], "result": ANSWER}

    with machine(state, 0, answers):
        assert ask(state, EDGE, 7).model_dump() == SHOWN
    refusal = {"code": -32602, "message": "rules[0]: expected an object"}
    with (
        machine(state, 0, lambda asked: {"id": asked["id"], "error": refusal}),
        pytest.raises(ControlError, match=r"rules\[0\]: expected an object"),
    ):
        tell(state, EDGE, {"rules": [1]})
    with (
        machine(state, 0, lambda asked: {"id": asked["id"] + 1, "result": ANSWER}),
        pytest.raises(Fault, match="edge@2 answers with something else"),
    ):
        ask(state, EDGE, 7)
    for nonsense in ({}, {"error": 1}, {"error": {"code": "x", "message": 1}}, {"error": []}):
        with (
            machine(state, 0, lambda asked, said=nonsense: {"id": asked["id"], **said}),  # type: ignore[misc]
            pytest.raises(Fault, match="edge@2: show: answered with neither a result nor an error"),
        ):
            ask(state, EDGE, 7)
    with machine(state, 0, lambda _: "[" * 100_000), pytest.raises(Fault, match="answers with something else"):
        ask(state, EDGE, 7)
    with machine(state, 1, lambda _: "no function"), pytest.raises(Failure, match="edge@2: inside the machine"):
        ask(state, EDGE, 7)


def hostile(name: str) -> dict[str, Any]:
    return {
        "function": name,
        "counters": {name: 1, "of": {name: 2}, "ports": [{name: 3}, {name: 4}]},
        "tables": {name: {"total": 1, "rows": [{name: name, "list": [name, name], "number": 10**4000}]}},
    }


def packed(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("where", [machine_of_one, function])
@pytest.mark.parametrize("as_json", [False, True])
def test_what_a_function_calls_things_does_nothing_to_a_terminal(
    state: State,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    where: Callable[[State, object], AbstractContextManager[None]],
    as_json: bool,
) -> None:
    """Nor is it taken for Rich's markup."""
    monkeypatch.setenv(ENVIRONMENT, str(state.folder))
    state.add(EDGE)
    with where(state, hostile(HOSTILE)):
        assert run_command(lambda: _show("edge", 7, as_json=as_json)) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert all(line.isprintable() for line in said.out.split("\n"))
    assert packed(LEFT) in packed(said.out)
    if as_json:
        assert packed(json.loads(said.out)["function"]) == packed(LEFT)


@pytest.mark.parametrize("where", [machine_of_one, function])
def test_a_name_without_an_end_is_cut(state: State, where: Callable[..., AbstractContextManager[None]]) -> None:
    answer = {"function": "x" * (600 << 10), "counters": {"ports": [{"y" * 99: 1}]}, "tables": {}}
    with where(state, answer):
        shown = ask(state, EDGE, 7)
    assert shown.function == "x" * 63 + "…"
    assert list(shown.counted()) == [("y" * 63 + "…", [1])]


@pytest.mark.parametrize(
    "part",
    [
        {"counters": {"ports": [{}] * 100_000}},
        {"counters": dict.fromkeys(map(str, range(2000)), 1)},
        {"tables": {str(number): {"total": 0, "rows": []} for number in range(100)}},
        {"tables": {"wide": {"total": 1, "rows": [dict.fromkeys(map(str, range(100)), 1)]}}},
        {"tables": {"long": {"total": 2000, "rows": [{"a": 1}] * 2000}}},
    ],
)
def test_an_answer_has_bounds(state: State, part: dict[str, Any]) -> None:
    with (
        function(state, {"function": "x", "counters": {}, "tables": {}, **part}),
        pytest.raises(Fault, match="answers"),
    ):
        ask(state, EDGE, 7)


@pytest.mark.parametrize(("by", "length"), [("machine", 700 << 10), ("function", 1 << 20)])
def test_why_a_function_refuses_does_nothing_to_a_terminal(
    state: State, capsys: pytest.CaptureFixture[str], by: str, length: int
) -> None:
    refusal = {"code": -32602, "message": HOSTILE + "x" * length}

    def answer() -> int:
        tell(state, EDGE, {"most": 7})
        return 0

    if by == "machine":
        with machine(state, 0, lambda asked: {"id": asked["id"], "error": refusal}):
            assert run_command(answer) == 1
    else:
        with function(state, refusal, key="error", method="configure"):
            assert run_command(answer) == 1
    assert_harmless(capsys.readouterr().err)
    if by == "machine":
        words = HOSTILE.replace("\ud800", "") + "x" * length
        with machine(state, 1, lambda _: words):  # the command itself fails inside
            assert run_command(answer) == 1
        assert_harmless(capsys.readouterr().err)


def assert_harmless(said: str) -> None:
    line, end = said.split("\n")
    assert (end, line.isprintable()) == ("", True)
    assert packed(LEFT) in packed(line) and len(line) < 5000
