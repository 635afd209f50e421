"""The control socket and the page of counters, against a real socket and a real file."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from tailrace.errors import Failure
from tailrace.observe.page import Page, Table
from tailrace.process.control import Control, ControlError, ControlLost, connect_when_ready


@contextmanager
def server(path: Path, answers: list[bytes]) -> Iterator[list[dict[str, object]]]:
    """A daemon that gives these answers in turn and then closes the connection."""
    heard: list[dict[str, object]] = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as stream:
            for answer in answers:
                heard.append(json.loads(stream.readline()))
                connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield heard
    thread.join(5)
    listener.close()


def test_who_comes_while_many_others_do_waits_for_a_turn(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with ExitStack() as opened:
        listener = opened.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen(0)
        first = opened.enter_context(socket.socket(socket.AF_UNIX))
        first.connect(str(path))
        with pytest.raises(ControlLost, match="nobody answers"):
            Control(path, timeout=0.05)
        later = threading.Timer(0.1, listener.accept)
        later.start()
        Control(path, timeout=60).close()
        later.join()


class Interrupted:
    """A stream that somebody presses Ctrl-C at, once, before anything has come."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.pressed = stream, False
        self.close = stream.close

    def readline(self, *_: object) -> bytes:
        if not self.pressed:
            self.pressed = True
            raise KeyboardInterrupt
        return self.stream.readline()


def test_calls_errors_and_the_end(tmp_path: Path) -> None:
    path = tmp_path / "c"
    answers = [
        b'{"jsonrpc":"2.0","id":1,"result":{"program":"x"}}\n',
        b'{"jsonrpc":"2.0","id":2,"error":{"code":-32002,"message":"in use"}}\n',
        b"rubbish\n",
    ]
    with server(path, answers) as heard:
        control = Control(path)
        assert control.call("version") == {"program": "x"}
        with pytest.raises(ControlError, match="in use") as caught:
            control.call("port.add", name="a")
        assert caught.value.code == -32002
        with pytest.raises(ControlLost, match="not JSON"):
            control.call("port.list")
        with pytest.raises(ControlLost):
            control.call("port.list")
        control.close()
    assert heard[1]["method"] == "port.add"
    assert heard[1]["params"] == {"name": "a"}


def test_an_answer_that_ctrl_c_left_unread_is_not_taken_for_the_next(tmp_path: Path) -> None:
    path = tmp_path / "c"
    late = b'{"jsonrpc":"2.0","id":1,"result":"late"}\n'
    with server(path, [late, b'{"jsonrpc":"2.0","id":2,"result":"own"}\n']):
        control = Control(path)
        control._stream = cast(Any, Interrupted(control._stream))
        with pytest.raises(KeyboardInterrupt):
            control.call("version")
        assert control.call("config.get") == "own"
        control.close()


def test_an_answer_has_one_limit_however_it_trickles(tmp_path: Path) -> None:
    """And however much else is said meanwhile."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "c"))
    listener.listen()
    ended = threading.Event()

    def trickle() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            while not ended.is_set():  # so much that there is always more to read
                connection.sendall(b'{"jsonrpc":"2.0","method":"port","params":{}}\n' * 1000)

    thread = threading.Thread(target=trickle, daemon=True)
    thread.start()
    control = Control(tmp_path / "c", timeout=0.5)
    try:
        with pytest.raises(ControlLost):
            control.call("version")
    finally:
        ended.set()
        control.close()
        thread.join(5)
        listener.close()


def test_a_daemon_that_ends_before_it_is_ready(tmp_path: Path) -> None:
    with pytest.raises(ControlLost, match="ended before"):
        connect_when_ready(tmp_path / "none", lambda: False, 5)
    with pytest.raises(ControlLost, match="not ready"):
        connect_when_ready(tmp_path / "none", lambda: True, 0.05)


def write_page(path: Path) -> None:
    schema = json.dumps(
        {"kinds": {"worker": 1, "queue": 2}, "worker": ["busy"], "queue": ["received", None, "drop_x"]}
    ).encode()
    data = bytearray(4096 + 4 * 128)
    struct.pack_into("<8sIIIIII", data, 0, b"TAILRACE", 2, len(schema), 4096, 128, 4, 3)
    data[64 : 64 + len(schema)] = schema
    struct.pack_into("<II56sQ", data, 4096, 1, 1, b"worker-0", 77)
    struct.pack_into("<II56sQQQ", data, 4096 + 128, 2, 1, b"first.0/1", 5, 9, 4)
    struct.pack_into("<II56sQQQ", data, 4096 + 256, 2, 5, b"first.0/0", 1 << 40, 9, 3)
    struct.pack_into("<II56sQ", data, 4096 + 384, 1, 1, b"never-used", 1)
    path.write_bytes(data)


def test_the_page_is_read_by_its_own_schema(tmp_path: Path) -> None:
    path = tmp_path / "page"
    write_page(path)
    page = Page(path)
    worker, _, queue = page.slots()
    assert (worker.kind, worker.counters) == ("worker", {"busy": 77})
    assert (queue.name, queue.generation, queue.counters) == ("first.0/0", 5, {"received": 1 << 40, "drop_x": 3})
    assert page.ports() == {"first.0": {"received": (1 << 40) + 5, "drop_x": 7}}
    page.close()


def test_the_page_field_by_field(tmp_path: Path) -> None:
    path = tmp_path / "page"
    write_page(path)
    page = Page(path)
    table = page.table("queue")
    assert table.slots == [("first.0/1", 1), ("first.0/0", 5)]
    assert table.columns == {"received": [5, 1 << 40], "drop_x": [4, 3]}
    assert page.table("queue").slots is table.slots
    assert page.table("hop") == Table([], {})
    with path.open("r+b") as file:  # a worker has come after the queues, and one queue is another's
        file.seek(28)
        file.write(struct.pack("<I", 4))
        file.seek(4096 + 128)
        file.write(struct.pack("<II56sQQQ", 2, 2, b"other/0", 1, 0, 2))
    assert page.table("queue").slots == [("other/0", 2), ("first.0/0", 5)]
    assert page.table("queue").columns == {"received": [1, 1 << 40], "drop_x": [2, 3]}
    assert page.table("worker") == Table([("worker-0", 1), ("never-used", 1)], {"busy": [77, 1]})
    assert [slot.name for slot in page.slots("worker")] == ["worker-0", "never-used"]
    page.close()


def test_a_few_counters_of_the_page_as_they_are_now(tmp_path: Path) -> None:
    path = tmp_path / "page"
    write_page(path)
    page = Page(path)
    assert page.live("queue") is None, "not looked for yet"
    for kind in ("queue", "worker"):  # workers stand before and after queues
        slots = page.table(kind).slots
        live = page.live(kind)
        assert live is not None and live.live and live.slots is slots
    with path.open("r+b") as file:
        file.seek(4096 + 256 + 64)
        file.write(struct.pack("<Q", 6))
    queues = page.live("queue")
    assert queues is not None
    assert (queues.columns["received"][1], queues.columns["drop_x"][0]) == (6, 4)
    with path.open("r+b") as file:
        file.seek(28)
        file.write(struct.pack("<I", 4))
    table = page.table("worker")
    assert page.live("queue") is None, "a slot has come"
    workers = page.live("worker")
    assert workers is not None and [len(each) for each in workers.columns.values()] == [2]
    assert list(workers.columns["busy"]) == table.columns["busy"] == [77, 1]
    page.close()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"short",
        b"x" * 5000,
        b"TAILRACE" + struct.pack("<IIIIII", 2, 2, 64, 72, 9, 9),
        *(
            b"TAILRACE"
            + struct.pack("<IIIIII", 2, len(schema), 4096, 72, 1, 1).ljust(56, b"\0")
            + schema.ljust(8192, b"\0")
            for schema in (
                b"{",
                b"\xff",
                b"[]",
                b"{}",
                b'{"kinds": 7}',
                b'{"kinds": {"hop": []}, "hop": []}',
                b'{"kinds": {"hop": 1}}',
                b'{"kinds": {"hop": 1}, "hop": 7}',
                b'{"kinds": {"hop": 1}, "hop": ["a", "b"]}',
                b"[" * 8000,
            )
        ),
    ],
)
def test_what_is_no_page_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "page"
    path.write_bytes(content)
    with pytest.raises(Failure):
        Page(path)
