"""All nodes at a glance: what is said of this one, and what is taken of others, whatever they say."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from running_node import wait_until
from served_dashboard import BEARER, FACTS, RATES, TOKEN, Heard, MadeUp, ask, hop, served

from tailrace.dashboard import feed, overview
from tailrace.dashboard.nodes import Remote
from tailrace.dashboard.picture import Totals
from tailrace.dashboard.summary import Summary, summary

DIED = {"time": "2026-11-27T10:36:31.428Z", "kind": "function.died", "level": "alarm", "about": "nat"}


def asked(port: int, path: str) -> Any:
    answer = ask(port, f"/api/{path}", BEARER)
    assert answer.status == 200, answer.text
    return json.loads(answer.text)


def remotes(**ports: int) -> tuple[Remote, ...]:
    return tuple(Remote(name=name, url=f"http://127.0.0.1:{port}", token=TOKEN) for name, port in ports.items())


def rows(port: int) -> dict[str, Any]:
    return {each["name"]: each for each in asked(port, "overview")["nodes"]}


def heard(port: int, name: str) -> dict[str, Any]:
    """What the overview has of a node, once it was asked."""
    wait_until(lambda: rows(port)[name]["state"] != "connecting")
    return rows(port)[name]


def test_a_node_sums_its_chains_up() -> None:
    with served(MadeUp(facts=replace(FACTS, ports={**FACTS.ports, "wan": "gone"})), Heard({"7": DIED})) as port:
        assert ask(port, "/api/summary").status == 401
        found = asked(port, "summary")
    assert (found["up"], found["chains"], found["losing"]) == (True, 2, 1)
    assert found["packets"] == pytest.approx(1.226e6 + 845e3 + 20e3, rel=0.01)
    assert found["bits"] == pytest.approx((1.246e6 * 508 + 845e3 * 60) * 8, rel=0.01)
    assert found["drops"] == pytest.approx(3.4e3, rel=0.05)
    assert (found["ports"], found["down"]) == (7, 1)
    assert (found["alarms"], found["latest"]["about"]) >= (1, "")
    Summary.model_validate(found)


def test_all_of_a_thousand_chains_are_in_the_sum() -> None:
    """A picture has only some of them anew."""
    sampler = MadeUp(rates={("hop", f"chain-{n}/0", 1): hop(10, 0) for n in range(1000)})
    with served(sampler) as port:
        wait_until(lambda: asked(port, "summary")["packets"] == pytest.approx(10_000, rel=0.1))
        sampler.rates = {key: hop(1000, 0) for key in sampler.rates}
        wait_until(lambda: asked(port, "summary")["packets"] == pytest.approx(1e6, rel=0.1))


def test_how_the_host_stands() -> None:
    up = {"up": True}
    assert summary(up, Totals(), {"why": "no profile is applied"}).drift is None
    assert summary(up, Totals(), {"lost": False, "places": [{}]}).drift == 0
    assert summary(up, Totals(), {"lost": True, "places": [{}, {}]}).drift == 2
    assert summary({"up": False, "why": "x" * 999}, Totals(), {"why": ""}).why == "x" * 300


def test_pictures_are_taken_seldom_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "GLANCED", 3.0)
    sampler = MadeUp()
    with served(sampler) as port:
        asked(port, "summary")
        first, began = sampler.taken, time.monotonic()
        wait_until(lambda: time.monotonic() - began > 7.0)
        assert 1 <= sampler.taken - first <= 4, "not ten a second, and none once nobody has asked for so long"


def test_this_node_and_others() -> None:
    with served(MadeUp(rates={("hop", "far/0", 1): RATES["hop", "web/0", 1]})) as far, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        with served(MadeUp(), remotes=remotes(lab=far, off=closed.getsockname()[1])) as port:
            assert heard(port, "lab")["state"] == "live"
            assert "does `tailrace dashboard` run there?" in heard(port, "off")["why"]
            found = rows(port)
            assert list(found) == ["", "lab", "off"]
            assert (found[""]["summary"]["chains"], found["lab"]["summary"]["chains"]) == (2, 1)
            assert found["off"]["state"] == "unreachable" and "summary" not in found["off"]
            assert ask(port, "/api/overview").status == 401


def test_one_that_is_lost_and_found_again() -> None:
    with served(MadeUp()) as far:
        others = remotes(lab=far)
        with served(MadeUp(), remotes=others) as port:
            assert heard(port, "lab")["state"] == "live"
            others[0].__dict__["token"] = "another-token-than-theirs"
            wait_until(lambda: rows(port)["lab"].get("why") == "lab: its dashboard has another token than the list of "
                       "nodes")  # fmt: skip
            others[0].__dict__["token"] = TOKEN
            wait_until(lambda: rows(port)["lab"]["state"] == "live")


@contextmanager
def saying(said: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A port where everybody is told this, and what they asked."""
    taken: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        over = threading.Event()

        def answer() -> None:
            while not over.is_set():
                try:
                    connection, _ = listening.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.settimeout(10)
                    taken.append(connection.recv(4096))
                    with suppress(OSError):  # it may be too much
                        connection.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield listening.getsockname()[1], taken
        finally:
            over.set()
            thread.join()


OK = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"nonsense\r\n\r\n", "does `tailrace dashboard` run there?"),
        (b"", "does `tailrace dashboard` run there?"),
        (b"HTTP/1.0 404 Not Found\r\n\r\n", "is Tailrace older there?"),
        (b"HTTP/1.0 500 Oh\r\n\r\n", "answers 500"),
        (OK + b"not JSON", "cannot be read"),
        (OK + b"[" * 60_000, "cannot be read"),
        (OK + b"{}", "cannot be read: up"),
        (OK + b'{"up": true, "packets": NaN}', "cannot be read: packets"),
        (OK + b'{"up": true, "packets": -1}', "cannot be read: packets"),
        (OK + b'{"up": true, "chains": 99999999999}', "cannot be read: chains"),
        (OK + b'{"up": true, "spec": "' + b"x" * 1000 + b'"}', "cannot be read: spec"),
        (OK + b'{"up": true, "latest": {"time": 1}}', "cannot be read: latest"),
        (OK + b" " * 10_000_000, "too long"),
    ],
)
def test_one_that_says_something_else(said: bytes, why: str) -> None:
    with saying(said) as (other, taken), served(MadeUp(), remotes=remotes(lab=other)) as port:
        found = heard(port, "lab")
        assert found["state"] == "unreachable" and why in found["why"]
        assert len(found["why"]) < 400
        assert taken[0].startswith(b"GET /api/summary HTTP/1.0\r\n")


def test_one_that_says_nothing_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent, served(MadeUp()) as far:
        both = remotes(mute=silent.getsockname()[1], lab=far)
        with served(MadeUp(), remotes=both) as port:
            wait_until(lambda: rows(port)["lab"]["state"] == "live")
            wait_until(lambda: rows(port)["mute"]["state"] == "unreachable")
            assert "does not answer" in rows(port)["mute"]["why"]


def asked_within(taken: list[Any], seconds: float) -> bool:
    before = len(taken)
    time.sleep(seconds)
    return len(taken) > before


def test_nobody_is_asked_while_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("EVERY", 0.05), ("LINGER", 0.5)):
        monkeypatch.setattr(overview, name, seconds)
    said = OK + b'{"up": true, "later": 1}'
    with saying(said) as (other, taken), served(MadeUp(), remotes=remotes(lab=other)) as port:
        assert taken == []
        assert heard(port, "lab")["state"] == "live"
        looked = time.monotonic()
        wait_until(lambda: not asked_within(taken, 1.0))
        lab = rows(port)["lab"]
        old = time.monotonic() - looked
        assert lab["state"] == "connecting" or lab["seconds"] < old, "what is old is not shown"
        wait_until(lambda: rows(port)["lab"]["state"] == "live")
