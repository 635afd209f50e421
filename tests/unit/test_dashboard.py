"""The dashboard without a browser: what is made of snapshots, the stream of changes, and who is turned away."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from running_node import wait_until
from served_dashboard import BEARER, FACTS, RATES, TOKEN, Heard, MadeUp, Tables, ask, at, hop, queue, served

from tailrace.cli.dashboard import DashboardOptions, _named, dashboard
from tailrace.dashboard import door, functions, passwords, server
from tailrace.dashboard.access import token_of
from tailrace.dashboard.alarms import Alarms
from tailrace.dashboard.door import Bounds, bounds
from tailrace.dashboard.feed import Feed
from tailrace.dashboard.host import Host
from tailrace.dashboard.measurement import Measurement
from tailrace.dashboard.nodes import Remote
from tailrace.dashboard.passwords import Passwords
from tailrace.dashboard.picture import Pictures
from tailrace.dashboard.rules import EVERYTHING, Rules
from tailrace.dashboard.server import Certificate
from tailrace.dashboard.turns import FIRST, ROUND, Between, Rows, Turns, patch
from tailrace.errors import Mistake
from tailrace.observe.page import Table
from tailrace.observe.snapshot import Snapshot

Event = tuple[str, dict[str, Any]]


@pytest.fixture
def sampler() -> MadeUp:
    return MadeUp()


@pytest.fixture
def port(sampler: MadeUp) -> Iterator[int]:
    with served(sampler) as port:
        yield port


@contextmanager
def events(port: int) -> Iterator[Iterator[Event]]:
    """The stream's events, as they come."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", "/stream", headers=BEARER)
        with connection.getresponse() as answer:
            assert (answer.status, answer.getheader("Content-Type")) == (200, "text/event-stream; charset=utf-8")
            yield _events(answer)


def _events(answer: http.client.HTTPResponse) -> Iterator[Event]:
    name = ""
    for line in answer:
        field, _, value = line.decode().rstrip("\n").partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


def merge(old: Any, change: Any) -> Any:
    """RFC 7386, as it stands there."""
    if not isinstance(change, dict):
        return change
    made = dict(old) if isinstance(old, dict) else {}
    for name, value in change.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = merge(made.get(name), value)
    return made


# --- pictures ------------------------------------------------------------------------------------------------------

documents = some.recursive(
    some.integers(0, 3) | some.text("ab", max_size=1) | some.lists(some.integers(0, 2), max_size=2),
    lambda inner: some.dictionaries(some.sampled_from("abc"), inner, max_size=3),
).filter(lambda made: isinstance(made, dict))


@given(documents, documents)
def test_a_patch_makes_one_document_of_another(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert merge(old, patch(old, new)) == new
    assert patch(new, new) == {}


def two(seconds: float) -> tuple[Snapshot, Snapshot]:
    """What grows by RATES, so long apart."""
    return Snapshot(10.0, at(10.0), FACTS), Snapshot(10.0 + seconds, at(10.0 + seconds), FACTS)


class Taken:
    """Pictures of snapshots that are made up."""

    def __init__(self) -> None:
        self._pictures, self._tables = Pictures(), (Tables(), Tables())

    def __call__(self, *snapshots: Snapshot) -> dict[str, Any]:
        """The picture of the last of these."""
        for each in snapshots:
            queues, hops = self._tables
            slots = {key: found for key, found in each.slots.items() if key[0] == "worker"}
            made = self._pictures.take(
                replace(each, slots=slots), queues.of(each.slots, "queue"), hops.of(each.slots, "hop")
            )
        return made


def test_a_picture_has_rates_and_reasons() -> None:
    made = Taken()(*two(2.0))
    assert (made["up"], made["version"], made["time"], made["seconds"]) == (True, 7, 12.0, 2.0)
    assert made["chains"]["voice"]["places"] == ["tester.a", "firewall", "nat", "tester.b"]
    assert made["chains"]["voice"]["hops"]["1"] == {
        "forward": {
            "packets": 1.23e6, "bits": 4.999e9, "drops": {"receiver full": {"rate": 3400.0, "total": 40800}},
        },
        "back": {"packets": 845e3, "bits": 405.6e6, "drops": {}},
    }  # fmt: skip
    assert made["ports"]["nat.0"]["drops"] == {"receiver full": {"rate": 3400.0, "total": 40800}}
    assert made["ports"]["wan"]["state"] == "waiting"
    assert made["functions"]["nat"] == {"what": "nat · machine", "ports": ["nat.0", "nat.1"]}
    assert made["workers"]["worker-0"]["busy"] == 0.7
    assert made["workers"]["worker-0"]["bursts"] == {"1": 0.25, "8": 0.0, "16": 0.75}
    json.dumps(made, allow_nan=False)


def test_queues_of_a_port_count_together() -> None:
    before, now = two(1.0)
    for each, factor in ((before, 10), (now, 11)):
        each.slots["queue", "wan/1", 1] = {name: int(value) * factor for name, value in queue(0, 5e3, 7).items()}
    made = Taken()(before, now)["ports"]["wan"]
    assert made["sent"]["packets"] == 25e3
    assert made["drops"] == {"receiver full": {"rate": 7.0, "total": 77}}


def test_a_new_instance_is_the_same_function() -> None:
    before, now = two(1.0)
    now.slots["queue", "nat@2.0/0", 1] = now.slots.pop(("queue", "nat.0/0", 1))
    assert sorted(Taken()(before, now)["functions"]["nat"]["ports"]) == ["nat.1", "nat@2.0"]


def test_what_is_the_same_is_no_change() -> None:
    before, now = two(1.0)
    later = Snapshot(12.0, at(12.0), FACTS)
    taken = Taken()
    change = patch(taken(before, now), taken(later))
    drops = {"drops": {"receiver full": {"total": 40800}}}
    assert change == {
        "time": 12.0,
        "chains": {"voice": {"hops": {"1": {"forward": drops}}}},
        "ports": {"nat.0": drops},
    }


class Many:
    """A thousand hops that each forward a thousand packets a second, but for some."""

    def __init__(self) -> None:
        self.slots = [(f"chain-{n}/0", 1) for n in range(1000)]
        self.rates: dict[str, float] = {}
        self.drops: dict[str, float] = {}
        self.counted = {name: [0.0, 0.0] for name, _ in self.slots}
        self.time = 0.0
        self.turns = Turns("forward_")
        self.shown: dict[str, Any] = {}

    def next(self, *, live: bool = False) -> set[str]:
        """Those that are written anew for the next picture."""
        self.time += 0.1
        for name, _ in self.slots:
            counted = self.counted.setdefault(name, [0.0, 0.0])
            counted[0] += 0.1 * self.rates.get(name, 1000)
            counted[1] += 0.1 * self.drops.get(name, 0)
        columns = ([int(self.counted[name][which]) for name, _ in self.slots] for which in (0, 1))
        fields = ("forward_packets", "forward_drop_receiver_full")
        table = Table(self.slots, dict(zip(fields, columns, strict=True)), live=live)

        written = set()

        def show(name: str, rows: Rows, between: Between) -> dict[str, Any]:
            written.add(name)
            drops = between.drops("forward_drop_", rows)
            return {"packets": between.rate("forward_packets", rows), "drops": drops}

        before, self.shown = self.shown, self.turns.take(self.time, table, show)
        assert self.turns.changes == patch(before, self.shown)
        return written

    def settle(self) -> Many:
        for _ in range(ROUND + 12):
            self.next()
        return self


def test_of_a_thousand_all_have_their_turn() -> None:
    many = Many().settle()
    pictures = [many.next() for _ in range(ROUND)]
    assert set().union(*pictures) == {f"chain-{n}" for n in range(1000)}
    assert max(map(len, pictures)) < 100
    assert {f"chain-{n}" for n in range(FIRST)} <= set.intersection(*pictures)


def test_of_a_thousand_those_that_change_are_shown_at_once() -> None:
    many = Many().settle()
    many.rates = {"chain-977/0": 0.0, "chain-978/0": 5000.0, "chain-979/0": 1001.0}
    shown = [many.next() for _ in range(4)]
    assert "chain-978" in shown[0], "five times as many"
    assert "chain-977" in shown[1] | shown[2]
    assert not all("chain-979" in each for each in shown), "that cannot be seen"
    many.settle()
    assert many.shown["chain-977"]["packets"] == 0
    many.rates["chain-977/0"] = 10.0
    many.next()
    assert many.shown["chain-977"]["packets"] > 0


def test_of_a_thousand_drops_are_shown_until_they_end() -> None:
    many = Many().settle()
    many.drops = {"chain-977/0": 100.0}
    many.next()
    assert many.shown["chain-977"]["drops"]["receiver full"]["rate"] > 0
    many.drops = {}
    for _ in range(12):
        many.next()
    assert many.shown["chain-977"]["drops"] == {"receiver full": {"rate": 0.0, "total": 10}}


def test_all_of_a_thousand_change() -> None:
    many = Many().settle()
    many.rates = {name: 0.0 for name, _ in many.slots}
    pictures = [many.next() for _ in range(2 * ROUND)]
    assert max(map(len, pictures)) < 100
    assert {each["packets"] for each in many.shown.values()} == {0.0}


def test_between_two_comparisons_of_all_some_are_shown() -> None:
    many = Many().settle()
    many.rates = {"chain-0/0": 3000.0, "chain-977/0": 5000.0}
    many.drops = {"chain-3/0": 100.0, "chain-978/0": 100.0}
    live = many.next(live=True)
    assert {f"chain-{n}" for n in range(FIRST)} <= live
    assert not {"chain-977", "chain-978"} & live, "that takes a comparison"
    assert many.shown["chain-0"]["packets"] > 1100
    assert {"chain-977", "chain-978"} <= many.next()
    assert many.shown["chain-978"]["drops"]["receiver full"]["rate"] > 0
    assert "chain-978" in many.next(live=True), "it is known to drop"
    assert many.shown["chain-3"]["drops"]["receiver full"]["total"] == 30
    many.drops = {}
    for n in range(16):
        many.next(live=n % 2 == 0)
    assert many.shown["chain-978"]["drops"]["receiver full"]["rate"] == 0
    assert many.shown["chain-0"]["packets"] == pytest.approx(3000, rel=0.01)
    written = set().union(*(many.next(live=n % 2 == 0) for n in range(ROUND)))
    assert written == {f"chain-{n}" for n in range(1000)}


def test_many_are_compared_in_every_other_picture(port: int, sampler: MadeUp) -> None:
    sampler.rates.update({("hop", f"chain-{n}/0", 1): hop(1000, 0) for n in range(100)})
    with events(port) as stream:
        for _ in range(12):
            next(stream)
    assert not sampler.live[0] and all(one != other for one, other in pairwise(sampler.live))


def test_slots_that_come_and_go() -> None:
    many = Many().settle()
    many.slots = [("new/0", 1), *many.slots[500:], ("chain-0/0", 2)]
    many.counted["chain-0/0"] = [0.0, 0.0]
    many.next()
    assert sorted(many.shown) == sorted(["new", "chain-0", *(f"chain-{n}" for n in range(500, 1000))])
    assert many.shown["chain-777"]["packets"] == 1000, "it counts on"
    assert 0 < many.shown["new"]["packets"] < 200
    many.settle()
    assert {each["packets"] for each in many.shown.values()} == {1000.0}


# --- the stream ----------------------------------------------------------------------------------------------------


def test_the_stream_is_a_whole_and_then_changes(port: int, sampler: MadeUp) -> None:
    with events(port) as stream:
        name, document = next(stream)
        assert name == "whole"
        assert document["chains"]["voice"]["hops"]["0"]["back"]["packets"] == pytest.approx(845e3, rel=0.01)
        sampler.rates["hop", "voice/0", 2] = hop(0, 1e9)  # a chain that was begun anew
        del sampler.rates["hop", "web/0", 1]
        for _ in range(15):
            name, change = next(stream)
            assert name == "change"
            document = merge(document, change)
    assert "web" not in document["chains"]
    assert document["time"] > document["seconds"] > 0.9


def test_counters_of_a_hop_and_of_ports(port: int) -> None:
    def asked(query: str) -> Any:
        answer = ask(port, f"/api/counters?{query}", BEARER)
        assert answer.status == 200
        return json.loads(answer.text)["counters"]

    assert asked("kind=hop&name=voice/1") == {}, "nobody looks"
    with events(port) as stream:
        next(stream)
        (found,) = asked("kind=hop&name=voice/1").values()
        assert found["forward_packets"] > found["back_packets"] > 0
        assert set(asked("kind=queue&name=nat.0&name=wan")) == {"nat.0/0", "wan/0"}
        assert asked("kind=queue&name=none") == asked("kind=hop") == {}
    assert ask(port, "/api/counters?kind=worker", BEARER).status == 404
    assert ask(port, "/api/counters?kind=hop&name=voice/1").status == 401


def wait_until_nothing_is_taken(sampler: MadeUp) -> None:
    """For a second, in which ten pictures would be."""
    taken, deadline = 0, time.monotonic() + 60
    while not taken or sampler.taken != taken:
        assert time.monotonic() < deadline
        taken = sampler.taken
        time.sleep(1)


def test_nobody_looks_so_nothing_is_taken(port: int, sampler: MadeUp) -> None:
    with events(port) as stream:
        next(stream)
    wait_until_nothing_is_taken(sampler)
    began = time.monotonic()
    with events(port) as stream:
        _, document = next(stream)
    assert document["seconds"] < time.monotonic() - began, "nothing of what was before"


def test_why_there_is_nothing_to_see(port: int, sampler: MadeUp) -> None:
    def refuse() -> None:
        raise Mistake("belongs to another user")

    with events(port) as stream:
        next(stream)
        sampler.look = refuse
        document: dict[str, Any] = {"up": True}
        while document.get("up", True):
            _, document = next(stream)
        assert document["why"] == "belongs to another user"
        sampler.look = lambda: None
        while not document.get("up"):
            _, document = next(stream)


def test_a_switch_that_counts_something_else(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with events(port) as stream:
        next(stream)
        for each in RATES.values():
            monkeypatch.delitem(each, "waiting_packets", raising=False)
        document: dict[str, Any] = {"up": True}
        while document.get("up", True):
            _, document = next(stream)
        assert "of another version of Tailrace (it counts no waiting_packets)" in document["why"]
        monkeypatch.undo()
        while not document.get("up"):
            _, document = next(stream)


def test_events_are_part_of_the_picture(sampler: MadeUp) -> None:
    heard = Heard({"3": {"time": "2026-11-27T10:36:31.428Z", "kind": "port.gone", "level": "alarm", "about": "wan"}})
    with served(sampler, heard, rules=Rules(rules=())) as port, events(port) as stream:
        _, document = next(stream)
        assert document["events"] == heard.latest
        heard.latest = {}
        while document["events"]:
            document = merge(document, next(stream)[1])


def test_who_is_slow_gets_the_whole_again(sampler: MadeUp) -> None:
    alarms = Alarms(EVERYTHING, Host(), Measurement(Path("/nonexistent")))

    async def follow() -> list[bytes]:
        feed = Feed(sampler, Heard(), alarms)  # type: ignore[arg-type]
        taking = asyncio.create_task(feed.run())
        slow, quick = feed.follow(), feed.follow()
        seen = [await anext(slow) for _ in range(3)]
        for _ in range(5):
            await anext(quick)
        seen.append(await anext(slow))
        taking.cancel()
        return [each.partition(b"\n")[0] for each in seen]

    assert asyncio.run(follow()) == [b"retry: 500", b"event: whole", b"event: change", b"event: whole"]


def test_who_takes_nothing_holds_up_nobody(port: int, sampler: MadeUp) -> None:
    sampler.rates.update({("hop", f"chain-{n}/0", 1): hop(1e6, 1e6, 1) for n in range(100)})
    with socket.create_connection(("127.0.0.1", port)) as stuck, events(port) as stream:
        stuck.sendall(f"GET /stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        times = [time.monotonic() for _, _ in (next(stream) for _ in range(20))]
    assert max(after - before for before, after in pairwise(times)) < 9, "until that one is let go is held up"


def test_who_takes_nothing_for_long_is_let_go(sampler: MadeUp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_STUCK_MS", 1000)
    chains = [("hop", f"chain-{n}/0", 1) for n in range(300)]

    def look() -> None:  # changes that fill what the kernel holds for a connection
        sampler.rates.update((each, hop(1e6 + sampler.taken * n, 1e6)) for n, each in enumerate(chains))

    sampler.look = look
    with served(sampler) as port, socket.socket() as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect(("127.0.0.1", port))
        stuck.sendall(f"GET /stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        wait_until_nothing_is_taken(sampler)  # nobody follows any more


def test_only_so_many_may_look_on(port: int) -> None:
    with ExitStack() as stack:
        for _ in range(bounds().followers):
            next(stack.enter_context(events(port)))
        refused = ask(port, "/stream", BEARER)
        assert (refused.status, refused.getheader("Retry-After")) == (503, "5")
        assert ask(port, "/", BEARER).status == 200
    with events(port) as stream:
        next(stream)


def test_a_thousand_chains_are_looked_at_in_turn(port: int, sampler: MadeUp) -> None:
    sampler.rates.update({("hop", f"chain-{n}/0", 1): hop(1e6 + n, 1e6) for n in range(1000)})
    with events(port) as stream:
        _, document = next(stream)
        assert len(document["chains"]) == 1002
        changed: list[int] = []
        sampler.rates.update({("hop", f"chain-{n}/0", 1): hop(5e5 + n, 0) for n in range(1000)})
        del sampler.rates["hop", "web/0", 1]
        for _ in range(30):
            _, change = next(stream)
            changed.append(len(change.get("chains", {})))
            document = merge(document, change)
    assert max(changed[2:]) < 100, "a picture has its share of them"
    assert "web" not in document["chains"]
    assert document["chains"]["chain-7"]["hops"]["0"]["forward"]["packets"] < 1e6


# --- who may look --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/stream", "/page.js", "/none"])
@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {TOKEN}x"},
     {"Cookie": f"tailrace={TOKEN}"}, {"Authorization": "Bearer \xff\xfe"}],
    ids=["none", "wrong", "empty", "longer", "another-cookie", "no-text"],
)  # fmt: skip
def test_no_token_no_look(port: int, path: str, headers: dict[str, str]) -> None:
    answer = ask(port, path, headers)
    assert answer.status == 401
    assert "tailrace dashboard" in answer.text
    assert answer.getheader("Set-Cookie") is None
    assert ask(port, f"{path}?token=wrong").status == 401


def test_the_link_gives_a_cookie(port: int) -> None:
    answer = ask(port, f"/?token={TOKEN}")
    assert answer.status == 200
    cookie, *attributes = answer.getheader("Set-Cookie").split("; ")
    assert attributes == ["Path=/", "HttpOnly", "SameSite=Strict"]
    assert ask(port, "/page.js", {"Cookie": f"other=1; {cookie}"}).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9753", "127.0.0.1.evil.example", "", "[::1", "a b"])
def test_a_name_that_is_not_ours_is_refused(port: int, host: str) -> None:
    """DNS rebinding: a page of that name asks us, with the cookie that is ours."""
    assert ask(port, f"/stream?token={TOKEN}", {"Host": host}).status == 421


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:9753", "LOCALHOST", socket.gethostname()])
def test_names_that_are_ours(port: int, host: str) -> None:
    assert ask(port, "/", {**BEARER, "Host": host}).status == 200


def test_another_page_is_refused(port: int) -> None:
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{port + 1}", f"https://127.0.0.1:{port}"):
        assert ask(port, f"/stream?token={TOKEN}", {"Origin": origin}).status == 403
    assert ask(port, "/", {**BEARER, "Origin": f"http://127.0.0.1:{port}"}).status == 200


@pytest.mark.parametrize(
    "path", ["/../server.py", "/..%2fserver.py", "/%2e%2e/server.py", "//etc/passwd", "/static/../../server.py",
             "/....//server.py", "/page.js/..", "/server.py%00.js"],
)  # fmt: skip
def test_no_path_leads_out(port: int, path: str) -> None:
    answer = ask(port, path, BEARER)
    assert answer.status == 404
    assert "import" not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
def test_it_only_shows(port: int, method: str) -> None:
    assert ask(port, "/", BEARER, method).status == 405


def test_what_a_browser_may_do_with_it(port: int) -> None:
    for path in ("/", "/page.js", "/none"):
        answer = ask(port, path, BEARER)
        policy = answer.getheader("Content-Security-Policy")
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
        assert answer.getheader("Referrer-Policy") == "no-referrer"
        assert answer.getheader("Access-Control-Allow-Origin") is None
        assert answer.getheader("Server") is None


# --- the token, and the command ------------------------------------------------------------------------------------


def test_a_token_is_kept_in_a_file_of_its_own(tmp_path: Path) -> None:
    assert token_of(None) != token_of(None)
    file = tmp_path / "token"
    token = token_of(file)
    assert len(token) >= 32
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert token_of(file) == token
    file.chmod(0o640)
    with pytest.raises(Mistake, match="others may read it; `chmod 600` it first"):
        token_of(file)


@pytest.mark.parametrize("content", [b"short", b"with spaces in it and more", b"\xff" * 30])
def test_what_is_no_token(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_bytes(content)
    with pytest.raises(Mistake, match=str(file)):
        token_of(file)
    with pytest.raises(Mistake, match="No such file"):
        token_of(tmp_path / "none/token")


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    made = Certificate(tmp_path / "certificate.pem", tmp_path / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
         "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-out", made.chain, "-keyout", made.key],
        check=True, capture_output=True,
    )  # fmt: skip
    return made


@pytest.mark.requires_program("openssl")
def test_by_https_the_cookie_is_secure(sampler: MadeUp, certificate: Certificate) -> None:
    certificate.check()
    trusted = ssl.create_default_context(cafile=certificate.chain)
    with (
        served(sampler, certificate=certificate) as port,
        closing(http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=trusted)) as connection,
    ):
        connection.request("GET", f"/?token={TOKEN}", headers={"Origin": f"https://127.0.0.1:{port}"})
        answer = connection.getresponse()
        assert answer.status == 200
        assert str(answer.getheader("Set-Cookie")).endswith("; Secure")


@pytest.mark.requires_program("openssl")
def test_what_is_no_certificate(certificate: Certificate, tmp_path: Path) -> None:
    with pytest.raises(Mistake, match="No such file"):
        Certificate(tmp_path / "none", certificate.key).check()
    with pytest.raises(Mistake, match="not a certificate and its key"):
        Certificate(certificate.key, certificate.key).check()
    with pytest.raises(Mistake, match="both --certificate and --key"):
        dashboard(DashboardOptions("127.0.0.1:0", None, certificate.chain))


def test_where_it_cannot_listen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAILRACE_STATE", str(tmp_path / "state"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(Mistake, match=rf"{taken}: cannot listen there \(Address already in use\)"):
            dashboard(DashboardOptions(taken, None))
    for wrong in ("9753", "127.0.0.1:", ":9753", "127.0.0.1:99999"):
        with pytest.raises(Mistake, match=r"--listen .* such as 127\.0\.0\.1:9753 or \[::1\]:9753"):
            dashboard(DashboardOptions(wrong, None))


def test_a_link_that_leads_here_from_elsewhere() -> None:
    for everywhere in ("0.0.0.0", "::"):
        assert _named(everywhere, everywhere) == socket.gethostname()
    assert _named("lab-1", "192.0.2.1") == "lab-1"
    assert _named("fe80::1%eth0", "fe80::1%eth0") == "fe80::1%eth0"


def test_programs_are_told_where_it_is(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tailrace.cli.main", "dashboard", "--listen", "127.0.0.1:0"]
    own = {**os.environ, "TAILRACE_STATE": str(tmp_path / "state"), "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([*words, "--json"], env=own, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            said = json.loads(process.stdout.readline())
            assert said["url"] == f"http://127.0.0.1:{said['port']}/"
            assert said["link"] == f"{said['url']}?token={said['token']}"
            assert ask(said["port"], "/", {"Authorization": f"Bearer {said['token']}"}).status == 200
        finally:
            process.terminate()
    mistaken = [*words, "--replay", str(tmp_path / "none")]
    done = subprocess.run(mistaken, env=own, capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.returncode) == ("", 1) and "No such file" in done.stderr


def test_facts_that_are_not_known(sampler: MadeUp, port: int) -> None:
    sampler.facts = replace(FACTS, chains={}, ports={}, workers={}, functions={}, version=None)
    with events(port) as stream:
        _, document = next(stream)
    assert document["chains"]["voice"]["places"] == []
    assert "version" not in document


def test_a_thousand_clients(port: int, sampler: MadeUp) -> None:
    """As many as may look on do, all others are told to come back; nobody is kept waiting, and pictures go on."""
    request = f"GET /stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    most = bounds().followers
    with ExitStack() as stack:
        clients = []
        for _ in range(1000):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            client.sendall(request)
            clients.append(client)
        answers = [client.recv(12).split()[1] for client in clients]
        assert answers.count(b"200") == most
        assert answers.count(b"503") == 1000 - most
        taken = sampler.taken
        wait_until(lambda: sampler.taken > taken)
        assert ask(port, "/", BEARER).status == 200


def ended(client: socket.socket) -> bool:
    """Whether the server ends this connection; that is waited for."""
    try:
        while client.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


#: Nothing, half a request, and one whose body does not come.
NO_REQUEST = (
    b"",
    b"GET / HTTP/1.1\r\nHost: loc",
    b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
)


def test_connections_that_ask_for_nothing_make_room(tmp_path: Path) -> None:
    """More than the process has descriptors for, without a token: who has it is answered, and nothing is written."""
    own = {**os.environ, "TAILRACE_STATE": str(tmp_path / "state"), "PYTHONPATH": os.pathsep.join(sys.path)}
    words = ["prlimit", "--nofile=256:256", sys.executable, "-m", "tailrace.cli.main", "dashboard"]
    with (
        (tmp_path / "errors").open("wb") as errors,
        subprocess.Popen(
            [*words, "--listen", "127.0.0.1:0", "--json"], env=own, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
        ExitStack() as stack,
    ):
        stack.callback(process.terminate)
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        bearer = {"Authorization": f"Bearer {said['token']}"}
        for sent in NO_REQUEST:
            for _ in range(150):
                client = stack.enter_context(socket.create_connection(("127.0.0.1", said["port"]), timeout=60))
                with suppress(ConnectionError):  # it may have made room already
                    client.sendall(sent)
            assert ask(said["port"], "/", bearer).status == 200
    assert (tmp_path / "errors").read_bytes().count(b"\n") == 1, "that it was ended"


@pytest.mark.parametrize("sent", NO_REQUEST[:2], ids=["nothing", "half"])
def test_what_is_no_whole_request_is_ended(port: int, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(sent)
        assert ended(client)


LET_IN = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"


@pytest.mark.parametrize(
    "begins", ["", f"GET / HTTP/1.1\r\n{LET_IN}Content-Length: 1000000\r\n\r\n"], ids=["head", "body"]
)
def test_a_request_that_drips_is_ended(port: int, begins: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte in time, but never the whole. No route waits for a body: it drips after the answer."""
    monkeypatch.setattr(door, "SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client, pytest.raises(ConnectionError):
        client.sendall(begins.encode())
        while True:
            client.sendall(b"x")
            time.sleep(0.05)


def test_who_is_not_let_in_has_a_fixed_time_in_all(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it asks."""
    monkeypatch.setattr(door, "SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client, pytest.raises(ConnectionError):
        while True:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            if not client.recv(4096):
                raise ConnectionResetError


def test_who_guesses_passwords_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses wait for each other. Who has the token is let in meanwhile, though they have all places."""
    monkeypatch.setattr(server, "bounds", lambda: Bounds(connections=2, followers=1))
    monkeypatch.setattr(door, "SECONDS", 1000.0)
    (tmp_path / "passwords").touch(0o600)
    guessed, goes_on = threading.Event(), threading.Event()

    def stuck(*_: object) -> bytes:
        guessed.set()
        goes_on.wait()
        return b"another"

    monkeypatch.setattr(passwords, "_hash", stuck)
    with served(MadeUp(), passwords=Passwords(tmp_path / "passwords")) as port, ExitStack() as stack:
        stack.callback(goes_on.set)
        for _ in range(2):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YTpi\r\n\r\n")
        assert guessed.wait(60)
        assert ask(port, "/", BEARER).status == 200


def test_who_follows_another_node_is_counted_too(sampler: MadeUp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "bounds", lambda: Bounds(connections=100, followers=2))
    with (
        served(MadeUp()) as far,
        served(sampler, remotes=(Remote(name="far", url=f"http://127.0.0.1:{far}", token=TOKEN),)) as port,
        ExitStack() as stack,
    ):
        for path, status in (
            ("/stream", 200),
            ("/nodes/far/stream", 200),
            ("/stream", 503),
            ("/nodes/far/stream", 503),
        ):
            connection = stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)))
            connection.request("GET", path, headers=BEARER)
            assert stack.enter_context(connection.getresponse()).status == status


def test_who_begins_no_tls_makes_room_and_is_ended(
    sampler: MadeUp, certificate: Certificate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "bounds", lambda: Bounds(connections=4, followers=1))
    trusted = ssl.create_default_context(cafile=certificate.chain)
    with served(sampler, certificate=certificate) as port, ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(20)]
        clients[-1].sendall(b"GET / HTTP/1.1\r\n\r\n")
        with closing(http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=trusted)) as connection:
            connection.request("GET", "/", headers=BEARER)
            assert connection.getresponse().status == 200
        monkeypatch.setattr(door, "SECONDS", 0.5)  # not before: it is the good client's too
        assert all(map(ended, clients))
    assert caplog.records == []


def test_where_all_wait_for_answers_the_next_waits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "bounds", lambda: Bounds(connections=2, followers=2))
    with served(MadeUp()) as port, socket.socket() as client:
        client.settimeout(60)
        with events(port) as one, events(port) as two:
            next(one), next(two)
            client.connect(("127.0.0.1", port))
            client.sendall(f"GET / HTTP/1.1\r\n{LET_IN}\r\n".encode())
            next(one), next(two)
        assert client.recv(12).split()[1] == b"200"


def test_an_answer_after_which_its_client_stays_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "bounds", lambda: Bounds(connections=1, followers=1))
    monkeypatch.setattr(door, "_SWEEP", 1000.0)
    monkeypatch.setattr(door._Visitor, "timeout_keep_alive_handler", lambda _: None)
    asked, goes_on, paused = threading.Event(), threading.Event(), threading.Event()
    pause = door.Door._pause

    def lines(*_: object) -> list[str]:
        asked.set()
        goes_on.wait()
        return []

    def pauses(which: door.Door) -> None:
        pause(which)
        paused.set()

    monkeypatch.setattr(functions, "log", lines)
    monkeypatch.setattr(door.Door, "_pause", pauses)
    with served(MadeUp(), folder=tmp_path) as port, ExitStack() as stack:
        stack.callback(goes_on.set)
        one, two = (stack.enter_context(closing(socket.socket())) for _ in range(2))
        for client, path, happened in ((one, "/api/functions/nat/log", asked), (two, "/", paused)):
            client.settimeout(60)
            client.connect(("127.0.0.1", port))
            client.sendall(f"GET {path} HTTP/1.1\r\n{LET_IN}\r\n".encode())
            assert happened.wait(60)
        goes_on.set()
        assert two.recv(12).split()[1] == b"200"
