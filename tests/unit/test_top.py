"""Rows and metrics from snapshots of the counter page: pure, so no switch is needed."""

from __future__ import annotations

import io
import json
import socket
import struct
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from rich.console import Console

from tailrace.cli import counters
from tailrace.errors import Failure, Mistake
from tailrace.observe import scraped
from tailrace.observe.metrics import metrics, serve
from tailrace.observe.scraped import MOST
from tailrace.observe.snapshot import Facts, Sampler, Snapshot, rates
from tailrace.observe.top import Rows, draw, only, rows, short
from tailrace.process.process import identify
from tailrace.state.record import FilePath, Process, hold

HZ = 2_000_000_000
FACTS = Facts(
    chains={"voice": ["tester.a", "fw", "tester.b"], "web": ["tester.a", "wan"]},
    ports={"tester.a": "up", "fw.0": "up", "fw.1": "up", "tester.b": "waiting", "wan": "quarantined"},
    workers={"worker-0": {"core": 3, "idle": "sleep", "tsc_hz": HZ}},
    version=7,
    spec="/etc/tailrace/office.yaml",
    crowded={"fw": 12345, "nat": 0},
)


def queue(received: int, sent: int, full: int = 0) -> dict[str, int]:
    return {
        "received_packets": received,
        "received_bytes": received * 60,
        "waiting_packets": received // 100,
        "drop_no_chain": 0,
        "sent_packets": sent,
        "sent_bytes": sent * 60,
        "drop_receiver_full": full,
    }


def hop(forward: int, back: int, full: int = 0) -> dict[str, int]:
    return {
        "forward_packets": forward,
        "forward_bytes": forward * 60,
        "forward_drop_receiver_full": full,
        "back_packets": back,
        "back_bytes": back * 60,
        "back_drop_receiver_full": 0,
    }


def snapshot(time: float, factor: int) -> Snapshot:
    """Counters that have grown `factor` times since the beginning."""
    return Snapshot(
        time,
        {
            ("queue", "tester.a/0", 1): queue(1000 * factor, 500 * factor),
            ("queue", "tester.a/1", 1): queue(200 * factor, 100 * factor),
            ("queue", "tester.b/0", 1): queue(600 * factor, 1100 * factor, 100 * factor),
            ("queue", "wan/0", 3): queue(0, 10 * factor),
            ("hop", "voice/0", 1): hop(1100 * factor, 590 * factor),
            ("hop", "voice/1", 1): hop(1000 * factor, 600 * factor, 100 * factor),
            ("hop", "web/0", 1): hop(10 * factor, 0),
            ("worker", "worker-0", 1): {
                "busy_cycles": HZ // 4 * factor,
                "idle_cycles": HZ // 4 * 3 * factor,
                "busy_polls": 100 * factor,
                "idle_polls": 50 * factor,
                "packets": 1800 * factor,
                "asleep_cycles": HZ // 2 * factor,
                "sleeps": 3 * factor,
                "burst_1": 10 * factor,
                "burst_2": 30 * factor,
                "burst_4": 60 * factor,
            },
        },
        FACTS,
    )


def test_rates_are_growth_for_each_second() -> None:
    grown = rates(snapshot(10.0, 1), snapshot(12.0, 3))
    assert grown["queue", "tester.a/0", 1]["received_packets"] == pytest.approx(1000)
    before = snapshot(10.0, 5)
    now = Snapshot(11.0, {("queue", "tester.a/0", 2): queue(7, 0)}, FACTS)
    assert rates(before, now)["queue", "tester.a/0", 2]["received_packets"] == pytest.approx(7), "begun anew"


def test_rows_of_ports_chains_and_workers() -> None:
    found = rows(snapshot(10.0, 1), snapshot(11.0, 2))
    assert [row.name for row in found.ports] == ["tester.a", "tester.b", "wan"]
    a, b, wan = found.ports
    assert (a.received_packets, a.sent_packets, a.queues) == (1200, 600, 2)
    assert a.received_bits == 1200 * 60 * 8
    assert (b.drops, b.total_drops, b.reason, b.state) == (100, 200, "receiver full", "waiting")
    assert wan.state == "quarantined"
    whole, first, second, web, _ = found.hops
    assert (whole.chain, whole.hop, whole.places) == ("voice", None, "tester.a fw tester.b")
    assert (whole.forward_packets, whole.back_packets, whole.drops) == (1000, 590, 100)
    assert (first.places, second.places) == ("tester.a → fw", "fw → tester.b")
    assert second.total_drops == 200
    assert web.chain == "web"
    (worker,) = found.workers
    assert worker.busy == pytest.approx(0.25)
    assert worker.asleep == pytest.approx(0.5)
    assert worker.cycles_a_packet == pytest.approx(HZ / 4 / 1800)
    assert worker.burst == pytest.approx(18)
    assert worker.bursts == {"1": pytest.approx(0.1), "2": pytest.approx(0.3), "4": pytest.approx(0.6)}
    assert (worker.core, worker.idle, worker.sleeps) == (3, "sleep", 3)
    json.dumps(found.as_data())


def test_sorting_and_choosing() -> None:
    pair = snapshot(10.0, 1), snapshot(11.0, 2)
    assert [row.name for row in rows(*pair, "packets").ports] == ["tester.a", "tester.b", "wan"]
    assert rows(*pair, "drops").ports[0].name == "tester.b"
    assert rows(*pair, "drops").hops[0].chain == "voice"
    chosen = only(rows(*pair), "w")
    assert ([row.name for row in chosen.ports], {row.chain for row in chosen.hops}) == (["wan"], {"web"})


def drawn(found: Rows, width: int = 80, height: int | None = None) -> list[str]:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(draw(found, height=height))
    return console.export_text().splitlines()


def test_it_fits_80_columns_and_says_it_all() -> None:
    lines = drawn(rows(snapshot(10.0, 1), snapshot(11.0, 2)))
    assert all(len(line) <= 80 for line in lines)
    text = "\n".join(lines)
    for word in ("tester.a", "quarantined", "voice: tester.a fw tester.b", "fw → tester.b", "worker-0", "25%", "278k"):
        assert word in text, text


@pytest.mark.parametrize(
    ("counted", "busy", "asleep"),
    [
        ({}, 0.0, 1.0),  # asleep all the time: a sleep is counted when it ends
        ({"busy_cycles": HZ // 10, "idle_cycles": HZ // 10}, 0.1, 0.8),  # awake for a fifth of it, and asleep again
        ({"idle_cycles": 7 * HZ, "asleep_cycles": 7 * HZ}, 0.0, 1.0),  # woken, after a sleep of seven seconds
    ],
)
def test_a_worker_that_sleeps_is_said_to(counted: dict[str, int], busy: float, asleep: float) -> None:
    fields = ("busy_cycles", "idle_cycles", "asleep_cycles")
    before = Snapshot(10.0, {("worker", "worker-0", 1): dict.fromkeys(fields, 0)}, FACTS)
    now = Snapshot(11.0, {("worker", "worker-0", 1): dict.fromkeys(fields, 0) | counted}, FACTS)
    (worker,) = rows(before, now).workers
    assert (worker.busy, worker.asleep) == (pytest.approx(busy), pytest.approx(asleep))


def test_a_small_window_keeps_the_workers() -> None:
    lines = drawn(rows(snapshot(10.0, 1), snapshot(11.0, 2)), height=12)
    assert len(lines) <= 12
    text = "\n".join(lines)
    assert "worker-0" in text
    assert "more rows" in text


def test_flows_without_a_slot_are_reported_by_function_where_there_are_any() -> None:
    now = replace(snapshot(11.0, 2), facts=replace(FACTS, crowded={"fw": 12395, "nat": 0}))
    found = rows(snapshot(10.0, 1), now)
    assert [(row.name, row.crowded, row.total_crowded) for row in found.functions] == [("fw", 50, 12395), ("nat", 0, 0)]
    unknown = replace(snapshot(10.0, 1), facts=Facts())  # the switch did not answer: what was before is not new
    assert [row.crowded for row in rows(unknown, now).functions] == [0, 0]
    lines = drawn(found)
    assert [line for line in lines if line.startswith("function")] == [
        "function fw: 12.4k times the flow table was full"
    ]
    assert len(drawn(found, height=13)) <= 13
    assert only(found, "na").functions == found.functions[1:]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.5, "0.5"), (12.34, "12"), (999, "999"), (1000, "1k"), (12345, "12.3k"), (2.5e9, "2.5G")],
)
def test_short_figures(value: float, text: str) -> None:
    assert short(value) == text


class Fixed(Collector):
    def collect(self):  # type: ignore[no-untyped-def]
        return metrics(snapshot(1.0, 2))


def test_metrics_follow_the_conventions_and_say_every_counter() -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Fixed())
    families = {family.name: family for family in text_string_to_metric_families(generate_latest(registry).decode())}
    received = {
        (sample.labels["port"], sample.labels["queue"]): sample.value
        for sample in families["tailrace_port_received_packets"].samples
        if sample.name == "tailrace_port_received_packets_total"
    }
    assert received == {("tester.a", "0"): 2000, ("tester.a", "1"): 400, ("tester.b", "0"): 1200, ("wan", "0"): 0}
    # How many frames wait goes up and down: a rate of it would mean nothing.
    waiting = families["tailrace_port_waiting_packets"]
    assert waiting.type == "gauge"
    assert {sample.name for sample in waiting.samples} == {"tailrace_port_waiting_packets"}
    assert {sample.labels["port"]: sample.value for sample in waiting.samples if sample.labels["queue"] == "0"} == {
        "tester.a": 20, "tester.b": 12, "wan": 0,
    }  # fmt: skip
    assert all(
        family.type == "counter"
        for name, family in families.items()
        if name.startswith("tailrace_port") and name not in ("tailrace_port_waiting_packets", "tailrace_port_up")
    )
    drops = {
        (sample.labels["port"], sample.labels["reason"]): sample.value
        for sample in families["tailrace_port_dropped_packets"].samples
    }
    assert drops["tester.b", "receiver_full"] == 200
    hops = {
        (sample.labels["chain"], sample.labels["hop"], sample.labels["direction"]): sample.value
        for sample in families["tailrace_hop_packets"].samples
    }
    assert hops["voice", "1", "forward"] == 2000
    delivered = {
        (sample.labels["chain"], sample.labels["direction"]): sample.value
        for sample in families["tailrace_chain_delivered_packets"].samples
    }
    assert delivered["voice", "back"] == 1180
    buckets = {
        sample.labels["le"]: sample.value
        for sample in families["tailrace_worker_burst_packets"].samples
        if sample.name.endswith("_bucket")
    }
    assert buckets == {"1.0": 20, "3.0": 80, "4.0": 200, "+Inf": 200}
    assert families["tailrace_worker_busy_cycles"].type == "counter"
    crowded = families["tailrace_function_crowded_flows"]
    assert crowded.type == "counter"
    assert {sample.labels["function"]: sample.value for sample in crowded.samples} == {"fw": 12345, "nat": 0}
    assert families["tailrace_configuration_version"].samples[0].value == 7
    assert all(name.startswith("tailrace_") for name in families)


def page_with(path: Path, packets: int, layout: int = 2) -> None:
    """A counter page with one queue, as the switch lays it out."""
    schema = json.dumps({"kinds": {"queue": 1}, "queue": ["received_packets"]}).encode()
    head = struct.pack("<8sIIIIII", b"TAILRACE", layout, len(schema), 4096, 128, 1, 1)
    slot = struct.pack("<II56sQ", 1, 1, b"p/0", packets)
    path.write_bytes((head.ljust(64, b"\0") + schema).ljust(4096, b"\0") + slot.ljust(128, b"\0"))


def put_on_record(folder: Path, pid: int, packets: int, layout: int = 2) -> None:
    """A process as the switch that is up, and its counter page."""
    name = identify(pid)
    assert name is not None
    with hold(folder) as state:
        state.record.things = [FilePath(str(state.page)), Process("switch", name.pid, name.start)]
        state.save()
        state.page.parent.mkdir(exist_ok=True)
        page_with(state.page, packets, layout)


def test_a_watcher_follows_the_switch_through_an_end_and_a_new_beginning(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    sampler = Sampler(folder)
    assert sampler.snapshot() is None
    for packets in (5, 9):
        child = subprocess.Popen(["sleep", "60"])
        try:
            put_on_record(folder, child.pid, packets)
            found = sampler.snapshot()
            assert found is not None
            assert found.of("queue") == {"p/0": {"received_packets": packets}}
            for name in ("p", "p/0"):
                assert sampler.counters("queue", [name]) == {"p/0": {"received_packets": packets}}
            assert sampler.counters("queue", ["p/1", ""]) == {}
            assert found.facts.version is None, "nobody answers at the control socket"
        finally:
            child.kill()
            child.wait()
        assert sampler.snapshot() is None
        assert sampler.counters("queue", ["p"]) == {}


def test_a_switch_of_another_version_is_said(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            put_on_record(tmp_path / "state", child.pid, 5, layout=1)
            with pytest.raises(Failure, match=r"of another version of Tailrace .* has layout 1"):
                Sampler(tmp_path / "state").snapshot()
        finally:
            child.kill()


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A switch that has lost 5 more flows each time that it is asked."""
    folder, asked = tmp_path / "state", count(1)
    child = subprocess.Popen(["sleep", "60"])
    put_on_record(folder, child.pid, 7)

    def ask(_sampler: Sampler) -> Facts:
        number = next(asked)
        return Facts(version=1, ports={"p": "waiting" if number == 1 else "up"}, crowded={"fw": 5 * number})

    monkeypatch.setattr(counters, "default_folder", lambda: folder)
    monkeypatch.setattr(Sampler, "_ask", ask)
    yield
    child.kill()
    child.wait()


@pytest.mark.usefixtures("running")
def test_facts_are_as_new_as_the_counters_beside_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert counters.top(counters.TopOptions(as_json=True, once=True, sort="name", every="100ms", only=None)) == 0
    found = json.loads(capsys.readouterr().out)
    (function,), (port,) = found["functions"], found["ports"]
    assert function["total_crowded"] == 10
    assert function["crowded"] == pytest.approx(5 / found["seconds"])
    assert port["state"] == "up"


@pytest.mark.parametrize("every", ["9999999999h", "25h"])
def test_a_time_that_is_too_long_to_wait_for(every: str) -> None:
    with pytest.raises(Mistake, match=rf"^--every {every}: expected at most 24h$"):
        counters.top(counters.TopOptions(as_json=False, once=True, sort="name", every=every, only=None))


@pytest.mark.parametrize("listen", ["127.0.0.1:²", "127.0.0.1:٣", "127.0.0.1:65536", "127.0.0.1:" + "9" * 5000, ":1"])
def test_an_address_that_is_none(listen: str) -> None:
    with pytest.raises(Mistake, match="expected an address and a port, such as"):
        counters.metrics(listen)


def test_drops_of_mirrors_are_one_metric_with_the_reason_as_a_label() -> None:
    fields = {"packets": 9, "drop_receiver_full": 4, "drop_no_memory": 1}
    found = {each.name: each for each in metrics(Snapshot(1.0, {("mirror", "m", 1): fields}, Facts()))}
    assert set(found) == {"tailrace_mirror_packets", "tailrace_mirror_dropped_packets"}
    drops = found["tailrace_mirror_dropped_packets"]
    assert [(sample.name, sample.labels, sample.value) for sample in drops.samples] == [
        ("tailrace_mirror_dropped_packets_total", {"name": "m", "reason": "receiver_full"}, 4),
        ("tailrace_mirror_dropped_packets_total", {"name": "m", "reason": "no_memory"}, 1),
    ]


def test_scrapes_without_a_switch(tmp_path: Path) -> None:
    server = serve(Sampler(tmp_path / "none"), dict, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        (family,) = text_string_to_metric_families(text)
        assert (family.name, family.samples[0].value) == ("tailrace_up", 0)
        with pytest.raises(Mistake, match="cannot listen there"):
            serve(Sampler(tmp_path / "none"), dict, "127.0.0.1", server.server_port)
    finally:
        server.shutdown()
        server.server_close()


def test_connections_without_a_request_keep_no_scrape_out(tmp_path: Path) -> None:
    """The oldest of them is ended for it, whether it has sent nothing or half a request."""
    server = serve(Sampler(tmp_path / "none"), dict, "127.0.0.1", 0)
    try:
        with ExitStack() as stack:
            for sent in (b"", b"GET /met"):
                clients = []
                for _ in range(MOST):
                    client = socket.create_connection(("127.0.0.1", server.server_port), timeout=60)
                    clients.append(stack.enter_context(client))
                    clients[-1].sendall(sent)
                with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=60) as answer:
                    assert answer.status == 200
                with suppress(ConnectionResetError):
                    assert clients[0].recv(1) == b"", "it made room"
    finally:
        server.shutdown()
        server.server_close()


LARGE = bytes(64 << 20)


def large(environ: dict[str, Any], begin: Callable[..., Any]) -> list[bytes]:
    """Answers /large with more than any socket holds."""
    begin("200 OK", [("Content-Type", "text/plain")])
    return [LARGE if environ["PATH_INFO"] == "/large" else b"up\n"]


def taken(client: socket.socket) -> int:
    """How many bytes the server has sent until it ended the connection."""
    count = 0
    with suppress(ConnectionResetError):
        while got := client.recv(1 << 16):
            count += len(got)
    return count


def test_who_takes_no_answer_keeps_no_scrape_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = serve(Sampler(tmp_path / "none"), dict, "127.0.0.1", 0)
    server.set_app(large)
    try:
        with ExitStack() as stack:
            clients = []
            for _ in range(MOST):
                client = socket.create_connection(("127.0.0.1", server.server_port), timeout=60)
                clients.append(stack.enter_context(client))
                clients[-1].sendall(b"GET /large HTTP/1.0\r\n\r\n")
                clients[-1].recv(1)
            with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/", timeout=60) as answer:
                assert answer.read() == b"up\n"
            assert taken(clients[0]) < len(LARGE), "it made room"
    finally:
        server.shutdown()
        server.server_close()
    assert capsys.readouterr().err == ""


def test_nothing_is_written_of_who_takes_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scraped._Handler, "timeout", 0.5)
    server = serve(Sampler(tmp_path / "none"), dict, "127.0.0.1", 0)
    server.set_app(large)
    ended = threading.Event()
    end = server.shutdown_request

    def then(request: Any) -> None:
        end(request)
        ended.set()

    monkeypatch.setattr(server, "shutdown_request", then)
    try:
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=60) as client:
            client.sendall(b"GET /large HTTP/1.0\r\n\r\n")
            assert ended.wait(60)
    finally:
        server.shutdown()
        server.server_close()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("host", ["a..b", "x" * 70])
def test_a_name_that_no_host_can_have_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(Mistake, match=f"{host}:0: cannot listen there"):
        serve(Sampler(tmp_path / "none"), dict, host, 0)
