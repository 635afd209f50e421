"""Rules for alarms: what rings, what does not ring again, and who is told."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
import yaml
from served_dashboard import Heard, MadeUp, served

from tailrace.dashboard import webhook
from tailrace.dashboard.alarms import Alarms
from tailrace.dashboard.rules import EVERYTHING, Rule, Rules, read_rules, schema_text
from tailrace.errors import Mistake
from tailrace.node.events import KINDS

SCHEMA = Path(__file__).parents[2] / "docs/alarms.schema.json"
LOSS = {"voice": {"hops": {"0": {"forward": {"drops": {"receiver full": {"rate": 9.0, "total": 9}}},
                                 "back": {"drops": {}}}}}}  # fmt: skip
DIED = {"time": "2026-11-27T10:36:31.428Z", "kind": "function.died", "level": "warning", "about": "nat"}


class Told(BaseHTTPRequestHandler):
    """Takes alarms."""

    taken: list[dict[str, Any]]
    answer = 200

    def do_POST(self) -> None:
        self.taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(self.answer)
        self.send_header("Location", "/other")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def told() -> Iterator[tuple[str, type[Told]]]:
    handler = type("Handler", (Told,), {"taken": []})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/secret", handler
    server.shutdown()
    thread.join()
    server.server_close()


def alarms(
    rules: Rules = EVERYTHING, verify: dict[str, Any] | None = None, run: dict[str, Any] | None = None
) -> Alarms:
    host = SimpleNamespace(verify=lambda: verify or {"why": "none"})
    return Alarms(rules, host, SimpleNamespace(document=lambda: run or {"why": "none"}))  # type: ignore[arg-type]


def kinds(found: dict[str, dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["about"], each["kind"]) for each in found.values()]


def test_a_condition_rings_once_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    watched = alarms()
    for _ in range(100):
        now += 0.1
        found = watched.look({"chains": LOSS}, {})
    assert kinds(found) == [("voice", "loss: receiver full")]
    now += 1.0
    watched.look({}, {})
    now += 3.0
    assert len(watched.look({"chains": LOSS}, {})) == 1, "it was hardly over"
    now += 6.0
    assert len(watched.look({"chains": LOSS}, {})) == 2


def test_what_is_an_alarm_is_said_by_rules() -> None:
    ports = {"wan": {"state": "down"}, "nat.0": {"state": "waiting"}, "lan": {"state": "gone"}}
    down = {"1": {**DIED, "kind": "port.down", "about": "wan"}}
    everything = alarms().look({"ports": ports, "chains": LOSS}, {**down, "2": DIED})
    assert set(kinds(everything)) == {
        ("wan", "port down"), ("lan", "port gone"), ("voice", "loss: receiver full"), ("nat", "function.died"),
    }  # fmt: skip
    some = Rules(rules=(Rule(when="port-down", about="l*", level="warning"), Rule(when="loss", above=10.0)))
    found = alarms(some).look({"ports": ports, "chains": LOSS}, down)
    assert sorted(kinds(found)) == [("lan", "port gone"), ("wan", "port.down")]
    assert alarms(Rules(rules=())).look({"ports": ports, "chains": LOSS}, {}) == {}


def test_a_rule_about_a_function_is_about_each_instance_of_it() -> None:
    rule = Rule(when="function-restarted", about="fw")
    assert [rule.fits(each) for each in ("fw", "fw@2", "fw@12", "fw-2", "fw.0", "fw@2.0")] == [True] * 3 + [False] * 3
    port = Rule(when="port-down", about="fw.0")
    assert [port.fits(each) for each in ("fw.0", "fw@2.0", "fw@2.1", "fw@2")] == [True, True, False, False]
    again = alarms(Rules(rules=(rule,), webhooks=()))
    told: list[dict[str, Any]] = []
    again.webhooks.tell = told.append  # type: ignore[method-assign, assignment]
    again.look({}, {"3": {**DIED, "about": "fw@2"}, "4": {**DIED, "about": "nat"}})
    assert [each["about"] for each in told] == ["fw@2"]


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.level == "alarm"])
def test_a_webhook_is_told_of_each_alarm_of_the_service(kind: str) -> None:
    """By the rules that there are without a file. Of ports the picture says it."""
    watched = alarms()
    told: list[dict[str, Any]] = []
    watched.webhooks.tell = told.append  # type: ignore[method-assign, assignment]
    about = "" if kind.startswith(("node.", "switch.")) else "fw.0"
    ports = {"fw.0": {"state": kind.removeprefix("port.")}} if kind.startswith("port.") else {}
    event = {**DIED, "kind": kind, "level": "alarm", "about": about}
    for _ in range(2):
        watched.look({"ports": ports}, {"7": event})
    assert [(each["about"], each["level"]) for each in told] == [(about, "alarm")]


def test_drift_of_the_host_and_frames_out_of_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    run: dict[str, Any] = {"run": "soak", "state": "running", "ways": [{"out_of_sequence": 100}]}
    watched = alarms(EVERYTHING, {"lost": True, "places": [1, 2]}, run)
    watched.check()
    assert kinds(watched.look({}, {})) == [("host", "drift: 2 places are not as they were set")]
    now = 1.0
    run["ways"][0]["out_of_sequence"] = 150
    watched.check()
    assert kinds(watched.look({}, {}))[1:] == [("soak", "out of sequence: 50 frames a second")]


def test_webhooks_are_told_also_while_nobody_looks(told: tuple[str, type[Told]]) -> None:
    url, handler = told
    rules = Rules.model_validate({"webhooks": [{"url": url}]})
    with served(MadeUp(), Heard({"3": DIED}), rules=rules):
        deadline = time.monotonic() + 60
        while len(handler.taken) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
    found = {each["about"]: each for each in handler.taken}
    assert set(found) == {"voice", "nat"}
    assert set(found["voice"]) == {"host", "time", "kind", "level", "about"}
    assert found["nat"]["level"] == "alarm"


def test_a_webhook_that_does_not_take_it_is_said(told: tuple[str, type[Told]], monkeypatch: pytest.MonkeyPatch) -> None:
    url, handler = told
    handler.answer = 302
    monkeypatch.setattr(webhook, "_PAUSES", (0.0, 0.0))
    hooks = webhook.Webhooks([url])
    hooks.tell(DIED)
    deadline = time.monotonic() + 60
    while not hooks.failures and time.monotonic() < deadline:
        time.sleep(0.02)
    [failure] = hooks.failures.values()
    assert (failure["about"], failure["kind"]) == ("127.0.0.1", "webhook: it answers 302")
    assert len(handler.taken) == 2, "a redirect is not followed"
    assert "secret" not in json.dumps(hooks.failures)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"220 mail.example ESMTP\r\n", "it does not speak HTTP"),
        (b"", "it ended the connection"),
        (b"HTTP/1.1 200 OK\r\nX: " + bytes(70_000), "got more than 65536 bytes when reading header line"),
    ],
)
def test_a_webhook_that_gives_no_answer_is_said(monkeypatch: pytest.MonkeyPatch, answer: bytes, said: str) -> None:
    monkeypatch.setattr(webhook, "_PAUSES", (0.0,))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        hooks = webhook.Webhooks([f"http://127.0.0.1:{listening.getsockname()[1]}/"])
        for number in range(2):
            hooks.tell(DIED)
            connection, _ = listening.accept()
            with connection:
                taken = b""
                while not taken.endswith(b"}"):  # what is left unread would end the connection otherwise
                    taken += connection.recv(4096)
                connection.sendall(answer)
            deadline = time.monotonic() + 60
            while not hooks.failures and time.monotonic() < deadline:
                time.sleep(0.02)
            [failure] = hooks.failures.values()
            assert failure["kind"] == f"webhook: {said}", f"alarm {number}: it is told of the next, too"
            hooks.failures = {}


def test_the_file_and_its_schema(tmp_path: Path) -> None:
    assert SCHEMA.read_text() == schema_text(), "run `python -m tailrace.dashboard.rules > docs/alarms.schema.json`"
    text = "rules:\n- {when: loss, about: voice*, above: 10}\nwebhooks:\n- url: https://example.org/hook\n"
    file = tmp_path / "alarms.yaml"
    file.write_text(text)
    jsonschema.validate(yaml.safe_load(text), json.loads(SCHEMA.read_text()))
    assert read_rules(file).rules == (Rule(when="loss", about="voice*", above=10.0),)
    file.write_text("")
    assert read_rules(file) == EVERYTHING
    for wrong, said in (
        ("rules: [{when: rain}]", "rules[0].when: expected 'loss', "), ("rules: 7", "rules: expected a list"),
        ("rules: [{when: loss, over: 1}]", "rules[0].over: there is no such key"),
        ("[1", "not YAML"), ("rules: [{when: 2026-99-99}]", "not YAML: a date or a number that there is not"),
        ("rules: " + "[" * 5000, "not YAML: nested too deeply"), ("rules: !!int ''", "not YAML: a date or a number"),
        ("webhooks: [{url: 'file:///etc/passwd'}]", "webhooks[0].url: expected http://"), ("- a", "the file"),
        ("webhooks: [{url: 'http://a b'}]", "in ASCII and without spaces"),
        ("webhooks: [{url: 'http://a:x/'}]", "webhooks[0].url: expected http://"),
        ("rules: [{when: loss, above: -1}]", "rules[0].above: expected greater"),
    ):  # fmt: skip
        file.write_text(wrong)
        with pytest.raises(Mistake, match=re.escape(said)):
            read_rules(file)
    with pytest.raises(Mistake, match="No such file"):
        read_rules(tmp_path / "none")
