"""The service's sockets, with clients as one meets them: good ones, others' versions, garbage, many, and slow ones."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import Failure, Mistake
from tailrace.node import api, client, server
from tailrace.node.client import API, Client, NoService, Said, ask
from tailrace.node.events import KINDS
from tailrace.node.server import Call, Server
from tailrace.process.control import ControlLost
from tailrace.spec.source import Position, SpecError
from tailrace.state.folder import LOOK, OPERATE


class Service:
    """The sockets, with answers of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.cancelled: dict[Any, str] = {}
        self.call: Call | None = None
        """The last one."""
        self.server = Server(folder, self.answer, self.cancel)
        self._goes_on = asyncio.Event()

    async def answer(self, call: Call) -> Mapping[str, Any]:
        name = call.method.name
        if name == "service.version":
            return {"program": "tailraced", "version": "1", "api": API, "pid": os.getpid()}
        if name == "events.subscribe":
            params: Any = call.params
            return {"next": self.server.subscribe(call.client, params.since)}
        if name == "node.drain":
            raise SpecError("x.yaml", Position(2, 3), "wrong")
        if name == "node.rollback":
            raise RuntimeError("a fault of ours")
        self.call = call
        if name == "node.resume":  # until it is cancelled
            call.tell("progress", text="at work")
            await self._goes_on.wait()
            raise Failure(self.cancelled.get(call.number, "another call was cancelled"))
        return {"state": "down"}

    def cancel(self, call: Call, why: str) -> None:
        self.cancelled[call.number] = why
        self._goes_on.set()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    started = Service(tmp_path)
    started.server.start()
    yield started
    started.server.stop()
    assert not list(tmp_path.iterdir())


def raw(path: Path, *lines: bytes, timeout: float = 10.0) -> list[dict[str, Any]]:
    """The answers to what is sent, as many as there are lines."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        connection.connect(str(path))
        with connection.makefile("rb") as stream:
            found = []
            for line in lines:
                connection.sendall(line)
                found.append(json.loads(stream.readline()))
            return found


@pytest.mark.usefixtures("service")
def test_a_call_and_its_answer(tmp_path: Path) -> None:
    assert ask(tmp_path, "node.status", look=True, start=False) == {"state": "down"}
    assert Client(tmp_path).pid == os.getpid()


@pytest.mark.usefixtures("service")
def test_an_error_has_its_lines_and_its_exit_status(tmp_path: Path) -> None:
    with pytest.raises(Said, match=r"^x\.yaml:2:3: wrong$") as caught:
        ask(tmp_path, "node.drain", replica="fw", start=False)
    assert caught.value.exit_status == 2 and caught.value.lines == ["x.yaml:2:3: wrong"]
    with pytest.raises(Said, match="internal error of the service: RuntimeError: a fault of ours"):
        ask(tmp_path, "node.rollback", start=False)


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    ("method", "params", "said"),
    [
        (
            "function.cpus",
            {"name": "first", "count": 100},
            "count (how many CPUs it is to have): 100 is not possible; expected 1 to 64",
        ),
        (
            "function.cpus",
            {"name": "first", "count": 10**22},
            "count (how many CPUs it is to have): 10000000000000000000000 is not possible; expected 1 to 64",
        ),
        ("function.scale", {"name": "first", "count": 0}, "are to be active): 0 is not possible; expected 1 to 64"),
        ("migrate.run", {"name": "first", "host": "a", "downtime_ms": 60_001}, "60001 is not possible; expected 1 to"),
        ("migrate.run", {"name": "first", "host": "a", "bandwidth": 1}, "expected greater than or equal to 1048576"),
        ("node.rollback", {"base": "one"}, "(only if this version is up): 'one' is not possible; expected a whole"),
        ("function.stop", {"name": "n" * 300}, f"'{'n' * 63}… is not possible; expected a text of at most 256"),
        ("function.stop", {"name": "\udcff"}, r"'\udcff' is not possible; expected a text in UTF-8"),
        ("node.drain", {}, "replica (its name, such as fw-2): is missing; expected it"),
        ("node.down", {"x": 1}, "x: is unknown; expected none"),
    ],
)
def test_a_value_that_cannot_be_is_refused_in_plain_words(
    tmp_path: Path, method: str, params: dict[str, Any], said: str
) -> None:
    with pytest.raises(Said, match=re.escape(said)) as caught:
        ask(tmp_path, method, start=False, **params)
    assert caught.value.exit_status == 2


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (b"rubbish\n", -32700, "not JSON"),
        (b"\xff\xfe\n", -32700, "not JSON"),
        (b"[" * 100_000 + b"\n", -32700, "not JSON"),
        (b"[]\n", -32600, "a request is an object"),
        (b'{"jsonrpc":"2.0","id":1}\n', -32600, "a request is an object"),
        (b'{"jsonrpc":"2.0","id":1,"method":7}\n', -32600, "a request is an object"),
        (b'{"jsonrpc":"2.0","id":1,"method":"node.status","params":[]}\n', -32600, "a request is an object"),
        (b'{"id":1,"method":"node.status"}\n', -32600, 'jsonrpc: expected "2.0"'),
        (b'{"jsonrpc":"1.0","id":1,"method":"node.status"}\n', -32600, 'jsonrpc: expected "2.0"'),
        (b'{"method":"node.status"}\n', -32600, 'jsonrpc: expected "2.0"'),
        (b'{"jsonrpc":"2.0","id":null,"method":"node.status"}\n', -32600, "id: expected a number or a string, or none"),
        (b'{"jsonrpc":"2.0","id":{},"method":"node.status"}\n', -32600, "id: expected a number or a string"),
        (b'{"jsonrpc":"2.0","id":true,"method":"node.status"}\n', -32600, "id: expected a number or a string"),
        (b'{"jsonrpc":"2.0","id":1,"method":"node.explode"}\n', -32601, "no method 'node.explode'"),
        (b'{"jsonrpc":"2.0","id":1,"method":"node.drain","params":{}}\n', -32602, "node.drain: replica"),
        (b'{"jsonrpc":"2.0","id":1,"method":"node.drain","params":{"replica":"a","x":1}}\n', -32602, "node.drain: x"),
        (b'{"jsonrpc":"2.0","id":1,"method":"node.rollback","params":{"base":"1"}}\n', -32602, "node.rollback: base"),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"events.subscribe","params":{"since":0}}\n',
            -32602,
            "events.subscribe: since",
        ),
    ],
)
def test_what_is_no_request_is_named(tmp_path: Path, line: bytes, code: int, words: str) -> None:
    garbage, good = raw(tmp_path / OPERATE, line, b'{"jsonrpc":"2.0","id":2,"method":"node.status"}\n')
    assert garbage["error"]["code"] == code and words in garbage["error"]["message"]
    assert good["result"] == {"state": "down"}


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","method":"node.explode"}\n',
        b'{"jsonrpc":"2.0","method":"call.cancel","params":{"call":"1"}}\n',
        b'{"jsonrpc":"2.0","method":"node.status"}\n',
    ],
)
def test_a_notification_is_never_answered(tmp_path: Path, line: bytes) -> None:
    (answer,) = raw(tmp_path / OPERATE, line + b'{"jsonrpc":"2.0","id":2,"method":"node.status"}\n')
    assert answer["id"] == 2


@pytest.mark.usefixtures("service")
def test_a_line_without_an_end_is_not_kept(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(tmp_path / LOOK))
        try:
            while True:
                connection.sendall(b"x" * 65536)
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert ask(tmp_path, "node.status", start=False)["state"] == "down"


@pytest.mark.usefixtures("service")
def test_who_may_look_may_not_operate(tmp_path: Path) -> None:
    for method in api.METHODS.values():
        if method.operates:
            (answer,) = raw(
                tmp_path / LOOK, json.dumps({"jsonrpc": "2.0", "id": 1, "method": method.name}).encode() + b"\n"
            )
            assert answer["error"]["code"] == server.NOT_ALLOWED, method.name
    for name in (LOOK, OPERATE):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_a_groups_socket_is_its_own(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a file is given to another group by root")
    Service.__init__(started := Service.__new__(Service), tmp_path)
    started.server = Server(tmp_path, started.answer, started.cancel, groups=(7, 8))
    started.server.start()
    for name, group in ((OPERATE, 7), (LOOK, 8)):
        found = (tmp_path / name).stat()
        assert (found.st_gid, found.st_mode & 0o777) == (group, 0o660)
    started.server.stop()


@pytest.mark.usefixtures("service")
def test_too_many_clients_are_turned_away_and_the_others_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_CLIENTS", 3)
    clients = [Client(tmp_path) for _ in range(3)]
    with pytest.raises(Failure):
        Client(tmp_path)
    assert clients[0].call("node.status")["state"] == "down"
    assert ask(tmp_path, "node.status", look=True, start=False)["state"] == "down"  # which has a number of its own
    clients.pop().close()
    deadline = time.monotonic() + 60
    while True:
        try:
            Client(tmp_path).close()
            break
        except Failure:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize("number", [b"5", b'"five"'])
def test_a_call_is_cancelled_and_says_why(service: Service, tmp_path: Path, number: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as stream:
        connection.settimeout(60)
        connection.connect(str(tmp_path / OPERATE))
        connection.sendall(b'{"jsonrpc":"2.0","id":%s,"method":"node.resume"}\n' % number)
        assert json.loads(stream.readline())["params"] == {"text": "at work"}
        # A call of this number of another client's is another call.
        cancel = b'{"jsonrpc":"2.0","method":"call.cancel","params":{"call":%s,"why":"enough"}}\n' % number
        raw(tmp_path / OPERATE, cancel + b'{"jsonrpc":"2.0","id":1,"method":"node.status"}\n')
        assert not service.cancelled
        connection.sendall(cancel)
        assert json.loads(stream.readline())["error"]["message"] == "enough"


@pytest.mark.usefixtures("service")
def test_notifications_are_calls_of_their_own(tmp_path: Path) -> None:
    """Several run at once, and are as many as other calls may be; a cancellation is heard beside all of them."""
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as stream:
        connection.settimeout(60)
        connection.connect(str(tmp_path / OPERATE))
        for _ in range(server.MOST_CALLS - 1):
            connection.sendall(b'{"jsonrpc":"2.0","method":"node.resume"}\n')
            assert json.loads(stream.readline())["params"] == {"text": "at work"}
        connection.sendall(b'{"jsonrpc":"2.0","id":5,"method":"node.resume"}\n')
        assert json.loads(stream.readline())["params"] == {"text": "at work"}
        connection.sendall(
            b'{"jsonrpc":"2.0","method":"node.resume"}\n{"jsonrpc":"2.0","id":6,"method":"node.status"}\n'
        )
        assert json.loads(stream.readline())["id"] == 6  # refused: there are as many as may be
        connection.sendall(b'{"jsonrpc":"2.0","method":"call.cancel","params":{"call":5,"why":"enough"}}\n')
        assert json.loads(stream.readline())["error"]["message"] == "enough"


def test_a_call_knows_that_its_client_is_gone(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "UNREAD_SECONDS", 0.1)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(tmp_path / OPERATE))
        connection.sendall(b'{"jsonrpc":"2.0","id":1,"method":"node.resume"}\n')
        assert b"at work" in connection.recv(4096)
        assert service.call is not None and not service.call.client.gone
    deadline = time.monotonic() + 60
    while not service.call.client.gone:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    service.server.soon(lambda: service.cancel(service.call, "the test is over"))  # type: ignore[arg-type]


def test_events_come_in_order_and_from_a_number_on(service: Service, tmp_path: Path) -> None:
    for number in range(5):
        service.server.publish("port.up", f"p{number}", why="x")
    late, early = Client(tmp_path), Client(tmp_path)
    assert late.subscribe() == 6
    assert early.subscribe(since=4) == 6
    service.server.publish("port.down", "p5")
    found = [early.next_event(60) for _ in range(3)]
    assert [each["number"] for each in found if each] == [4, 5, 6]
    assert found[0] and found[0]["about"] == "p3" and found[0]["details"] == {"why": "x"} and found[0]["kind"] in KINDS
    last = late.next_event(60)
    assert last and last["number"] == 6 and late.next_event(0.0) is None


def test_a_slow_listener_costs_nobody_anything_and_is_told_what_it_lost(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.node.events.KEPT", 2000)
    slow, quick = Client(tmp_path), Client(tmp_path)
    slow.subscribe()
    quick.subscribe()
    text = "x" * 1000
    for number in range(8000):
        service.server.publish("port.up", str(number), why=text)
        if number % 100 == 99:
            for _ in range(100):
                event = quick.next_event(60)
                assert event and event["kind"] == "port.up"
    assert ask(tmp_path, "node.status", start=False)["state"] == "down"
    numbers, lost = [], 0
    while lost + len(numbers) < 8000:
        event = slow.next_event(60)
        assert event is not None
        if event["kind"] == "events.lost":
            assert event["from"] == lost + len(numbers) + 1
            lost += event["to"] - event["from"] + 1
        else:
            numbers.append(event["number"])
            assert event["number"] == lost + len(numbers)
    assert lost > 0 and numbers


def test_who_reads_nothing_is_left(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "UNREAD_SECONDS", 0.2)
    stuck = Client(tmp_path)
    stuck.subscribe()
    text, deadline = "x" * 10_000, time.monotonic() + 60
    while len(service.server._clients) > 0:
        assert time.monotonic() < deadline
        service.server.publish("port.up", "p", why=text)
        time.sleep(0.002)
    with pytest.raises(Failure):
        while True:
            stuck.next_event(60)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"220 smtp.example.org\r\n", "not the socket of a service of Tailrace's"),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no method"}}\n', "not the socket of a service"),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}\n', "not the socket of a service"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"api":1}}\n', "not the socket of a service"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"api":"x","version":"9.0"}}\n', "not the socket of a service"),
        pytest.param(
            b'{"jsonrpc":"2.0","id":1,"result":{"api":99,"pid":"1; reboot","version":"9.0\\u001b[31m"}}\n',
            f"(process {os.getpid()}) is of Tailrace 9.0",
            id="no number",
        ),
        pytest.param(  # named, because processes of pytest's that share the tests have to know them by the same names
            b'{"jsonrpc":"2.0","id":1,"result":{"api":99,"version":"9.0"}}\n',
            f"end it with `kill {os.getpid()}`",
            id="no process",
        ),
        (
            b'{"jsonrpc":"2.0","id":1,"result":{"api":99,"pid":4711,"version":"9.0"}}\n',
            "the service (process 4711) is of Tailrace 9.0 and speaks version 99 of its API",
        ),
    ],
)
def test_anothers_socket_is_named(tmp_path: Path, answer: bytes, words: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / OPERATE))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises((Mistake, Failure)) as caught:
            Client(tmp_path)
        thread.join()
    assert words in str(caught.value)
    assert not isinstance(caught.value, NoService)


def test_an_event_says_what_the_schema_says() -> None:
    """Wherever the service publishes one of a kind that is written there."""
    said: dict[str, set[str]] = {}
    for path in Path(api.__file__).parent.glob("*.py"):
        for each in ast.walk(ast.parse(path.read_text())):
            if isinstance(each, ast.Call) and getattr(each.func, "attr", "") == "publish" and each.args:
                kind, names = each.args[0], {word.arg for word in each.keywords if word.arg}
                if isinstance(kind, ast.Constant):
                    said.setdefault(kind.value, set()).update(names)
                elif isinstance(kind, ast.Call) and isinstance(kind.args[1], ast.Constant):
                    for of in ("function", "switch"):
                        said.setdefault(f"{of}.{kind.args[1].value}", set()).update(names)
    assert len(said) > 20
    for kind, names in said.items():
        assert names <= set(KINDS[kind].details), kind
        assert not KINDS[kind].details.keys() - names or kind == "function.resized", kind


@pytest.mark.parametrize(("mode", "group"), [(0o600, False), (0o660, True)])
def test_who_may_not_use_a_socket_is_told_of_its_group_only_where_that_may(
    tmp_path: Path, mode: int, group: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / OPERATE
    path.touch()
    path.chmod(mode)
    monkeypatch.setattr(client.os, "access", lambda *_: False)
    said = str(client._why_not(path, ControlLost("no")))
    how = "run it with sudo" if os.geteuid() == 0 else "run it as its owner"
    assert f"{path}: you may not use it; {how}" in said
    assert ("or join its group" in said) is group


def test_where_no_service_runs_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(NoService):
        Client(tmp_path)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / OPERATE))
    with pytest.raises(NoService):  # of one that was killed
        ask(tmp_path, "node.status", start=False)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a" * 110, "too long for a socket's path; set TAILRACE_STATE to a shorter folder"),
        ("file", "a file is in its place; set TAILRACE_STATE to a folder of your own"),
    ],
)
def test_a_folder_that_cannot_be_is_refused_in_a_line(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "file").touch()
    for option in ([], ["--while-up"]):
        argv = [sys.executable, "-m", "tailrace.node.service", tmp_path / name, *option]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_the_page_and_the_schema_are_as_the_code_says() -> None:
    again = "run `python -m tailrace.node.api`"
    assert json.loads(api.SCHEMA.read_text()) == api.schema(), again
    assert (api.SCHEMA.parent / "service.md").read_text() == api.page(), again


def test_every_method_is_described_and_refers_to_nothing_that_is_missing() -> None:
    document = api.schema()
    assert {each["name"] for each in document["methods"]} == set(api.METHODS)
    for each in document["methods"]:
        for param in each["params"]:
            if "$ref" in json.dumps(param["schema"]):
                assert "$defs" in param["schema"], each["name"]
    assert client.ENDING not in (-32700, -32600, -32601, -32602, server.FAILED, server.NOT_ALLOWED)
