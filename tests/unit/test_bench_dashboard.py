"""The dashboard's benchmark: what it can measure, and the peer beside it, without either."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.bench import dashboard, looking
from tailrace.bench.netdata import Netdata, number_of
from tailrace.bench.own_node import resident_mib
from tailrace.errors import Failure, Mistake
from tailrace.process.process import cpu_seconds, descendants, identify
from tailrace.state.record import Process


class Peer(UnixStreamServer):
    """Answers as Netdata does: without its chart first, then with what the interface received a while ago."""

    def __init__(self, path: Path, frames: socket.socket) -> None:
        super().__init__(str(path), _Handler)
        self.frames = frames
        self.asked: list[str] = []
        self.since = 0
        """Requests since the frames came."""


class _Handler(BaseHTTPRequestHandler):
    server: Peer

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if (come := self.server.since > 0) or self._come():
            self.server.since += 1
        known = 12.5 if come and self.server.since > 3 else 0
        answer = b"No metrics" if len(self.server.asked) == 1 else f"[{known}]".encode()
        self.send_response(404 if len(self.server.asked) == 1 else 200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _come(self) -> bool:
        try:
            return bool(self.server.frames.recv(1 << 16, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return False

    def address_string(self) -> str:
        return "a Unix socket"

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[tuple[Peer, Netdata]]:
    here, there = socket.socketpair()
    own = identify(os.getpid())
    assert own is not None
    with here, there, Peer(tmp_path / "socket", there) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        try:
            yield server, Netdata(Process("netdata", own.pid, own.start), tmp_path / "socket", "veth0", here)
        finally:
            server.shutdown()


def test_the_peer_is_asked_until_it_knows(peer: tuple[Peer, Netdata]) -> None:
    server, netdata = peer
    assert netdata.received() is None, "it has no such chart yet"
    assert netdata.received() == 0
    assert 0 < netdata.change() < 10_000
    assert server.since == 4, "as soon as it knows"
    assert all("chart=net.veth0&dimensions=received&after=-1" in each for each in server.asked)
    main, with_plugins = netdata.percent(0.1)
    assert 0 <= main <= with_plugins


@pytest.mark.parametrize("answer", [b"", b"[", b"{}1", b'["x"]', b"[[1]]", b'{"a": 1}', b"7", b"\xff", b"[" * 100_000])
def test_what_is_no_number_is_said(answer: bytes) -> None:
    with pytest.raises(Failure, match="Netdata answers with something else than a number"):
        number_of(answer)
    assert number_of(b"[-2.5]") == 2.5 and number_of(b"[]") is None and number_of(b"[null]") is None


def test_a_peer_that_speaks_no_http_knows_nothing(tmp_path: Path) -> None:
    own = identify(os.getpid())
    assert own is not None
    with socket.socket() as frames, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"nonsense\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        netdata = Netdata(Process("netdata", own.pid, own.start), tmp_path / "socket", "veth0", frames)
        assert netdata.received() is None
        thread.join(10)


def test_a_peer_that_is_not_there_knows_nothing(tmp_path: Path) -> None:
    own = identify(os.getpid())
    assert own is not None
    with socket.socket() as frames:
        netdata = Netdata(Process("netdata", own.pid, own.start), tmp_path / "none", "veth0", frames)
        assert netdata.received() is None


def test_what_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (dashboard, looking):
        monkeypatch.setattr(module, "CHROMIUM", None)
    for plan in (dashboard.DashboardPlan, looking.LookingPlan):
        with pytest.raises(Mistake, match="Chromium"):
            plan()
    monkeypatch.setattr(dashboard, "CHROMIUM", "/usr/bin/chromium")
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(Mistake, match="netdata is missing"):
        dashboard.DashboardPlan(netdata=True)


def test_the_hop_is_measured_with_and_without_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(looking, "CHROMIUM", "/usr/bin/chromium")
    plan = looking.LookingPlan(pairs=3, seconds=1.0)
    sides = [looking.OPEN, looking.RECORD, looking.BUSY, looking.NONE]
    assert [side.name for side in plan.sides(tmp_path, tmp_path)] == sides
    cycles = dict(zip(sides, (102.0, 100.0, 25.5, 50.0), strict=True))
    figures = {name: {"cycles_per_packet": value} for name, value in cycles.items()}
    assert [ratio.of(figures) for ratio in looking.RATIOS] == [1.02, 4.0, 2.04]


def test_a_process_is_as_busy_as_the_page_was() -> None:
    before = set(descendants(os.getpid()))
    with looking._busy(0.05) as pictures:
        (busy,) = set(descendants(os.getpid())) - before
        watched = looking._Watched([busy], lambda _: None)
        watched.step(0.0)
        deadline = time.monotonic() + 60
        while cpu_seconds(busy) < 0.1 and time.monotonic() < deadline:
            time.sleep(0.1)
        watched.step(0.0)
        assert pictures() == 0 and 0 < watched.share < 1
    assert identify(busy) is None


def test_a_record_is_played_from_where_a_switch_is_seen(tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.write_text('{"tailrace":1}\n{"at":3.000,"whole":{"up":false,"why":"no switch"}}\n')
    with pytest.raises(Failure, match="no picture of the switch"):
        looking._first_up(record)
    with record.open("a") as file:
        file.write('{"at":4.125,"change":{"why":null,"up":true}}\n{"end":true}\n')
    assert looking._first_up(record) == 4.125


def test_a_function_dies_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    words: list[tuple[str, ...]] = []

    def status(_: Path) -> dict[str, Any]:
        """The function is started again where it has ended, and is up at the next look."""
        began = not started or started[-1].poll() is not None
        if began:
            started.append(subprocess.Popen(["sleep", "60"]))
        processes = [{"function": "dies", "alive": each.poll() is None, "pid": each.pid} for each in started]
        return {"state": "broken" if began else "up", "processes": processes}

    class Painted:
        """Paints the alarm 200 ms after it is asked whether it has."""

        def evaluate(self, expression: str) -> Any:
            return (time.time() + 0.2) * 1e3 if expression == "bench.painted" else True

    monkeypatch.setattr(dashboard, "status", status)
    monkeypatch.setattr(dashboard, "CHROMIUM", "/usr/bin/chromium")
    node = SimpleNamespace(state=tmp_path, spec=tmp_path / "spec", command=lambda *said: words.append(said))
    try:
        figures = dashboard._deaths(dashboard.DashboardPlan(chains=2, ports=2, deaths=2), node, Painted())  # type: ignore[arg-type]
    finally:
        for each in started:
            each.kill()
            each.wait()
    assert 200 <= figures["death_to_alarm_p50_ms"] <= figures["death_to_alarm_max_ms"] < 60_000
    assert words == [("apply", str(tmp_path / "spec"))] and "dies: skeleton" in node.spec.read_text()
    assert [each.returncode for each in started] == [-signal.SIGKILL] * 2


def test_the_work_of_a_picture_is_that_of_its_tasks() -> None:
    page, other = {"pid": 7, "tid": 7}, {"pid": 7, "tid": 8}

    def task(thread: dict[str, int], at: int, dur: int, tdur: int) -> dict[str, Any]:
        return {
            "name": "RunTask",
            "cat": "disabled-by-default-devtools.timeline",
            "ts": at,
            "dur": dur,
            "tdur": tdur,
            **thread,
        }

    marks = [{"name": "picture", "cat": "blink.user_timing", "ts": at, **page} for at in (1_010, 101_010, 201_010)]
    tasks = [task(page, 500, 100, 90), task(page, 1_000, 9_000, 4_000), task(page, 20_000, 3_000, 2_500)]
    tasks += [task(page, 101_000, 50_000, 3_000), task(page, 201_000, 500, 400), task(other, 20_000, 50, 50)]
    assert dashboard.work_of([*tasks, *marks]) == [6.5, 3.0]
    assert dashboard.work_of(tasks) == []


def test_the_memory_of_a_process() -> None:
    assert 5 < resident_mib(os.getpid()) < 5000
