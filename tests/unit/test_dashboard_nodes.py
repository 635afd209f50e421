"""Other nodes in one page: the list of them, and what is passed on."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import threading
from contextlib import closing
from pathlib import Path

import pytest
from run_folders import run_folder
from served_dashboard import BEARER, FACTS, RATES, TOKEN, MadeUp, ask, served

from tailrace.dashboard.nodes import MOST, Remote, read_nodes, why_not
from tailrace.errors import Mistake


def remote(port: int, token: str = TOKEN) -> tuple[Remote, ...]:
    return (Remote(name="lab-2", url=f"http://127.0.0.1:{port}", token=token),)


def test_what_another_node_shows_is_passed_on(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "runs", profiles=("64",), chains=1).path.name
    other = MadeUp(rates={("hop", "far/0", 1): RATES["hop", "web/0", 1]}, facts=FACTS)
    with served(other, folder=tmp_path) as far, served(MadeUp(), remotes=remote(far)) as port:
        assert json.loads(ask(port, "/nodes", BEARER).text) == {"nodes": ["lab-2"]}
        assert ask(port, "/nodes/lab-2/stream").status == 401, "only for who may look here"
        assert json.loads(ask(port, "/nodes/lab-2/api/runs", BEARER).text)["runs"][0]["folder"] == run
        report = ask(port, f"/nodes/lab-2/api/runs/{run}/report?token={TOKEN}", BEARER)
        assert report.status == 200
        assert report.getheader("Content-Security-Policy").startswith("sandbox ")
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            connection.request("GET", "/nodes/lab-2/stream", headers=BEARER)
            answer = connection.getresponse()
            assert answer.getheader("Content-Type").startswith("text/event-stream")
            lines = [answer.readline() for _ in range(4)]
            assert lines[2] == b"event: whole\n" and b'"far"' in lines[3]
        for path in ("lab-2/page.js", "lab-2/../stream", "none/stream", "lab-2/nodes", "lab-2/"):
            assert ask(port, f"/nodes/{path}", BEARER).status == 404
        assert ask(port, "/nodes/lab-2/api/functions/nat/restart", BEARER, "POST").status == 405


def test_one_that_cannot_be_reached_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()[1]
    with served(MadeUp(), remotes=remote(nobody)) as port:
        answer = ask(port, "/nodes/lab-2/stream", BEARER)
        assert answer.status == 502
        assert "does `tailrace dashboard` run there?" in json.loads(answer.text)["error"]
    with served(MadeUp()) as far, served(MadeUp(), remotes=remote(far, "another-token-than-theirs")) as port:
        answer = ask(port, "/nodes/lab-2/stream", BEARER)
        assert (answer.status, "another token" in answer.text) == (502, True)


@pytest.mark.parametrize("said", [b"nonsense\r\n\r\n", b"HTTP/1.0\r\n\r\n", b"x" * 100_000, b""])
def test_one_that_talks_nonsense(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        with served(MadeUp(), remotes=remote(listening.getsockname()[1])) as port:
            assert ask(port, "/nodes/lab-2/stream", BEARER).status == 502
        thread.join()


def test_what_is_wrong_with_another_nodes_tls_is_said() -> None:
    remote = Remote(name="lab-2", url="https://lab-2:9753", token=TOKEN)
    untrusted = ssl.SSLCertVerificationError("certificate verify failed")
    untrusted.verify_message = "self-signed certificate"
    untrusted.verify_code = 18
    assert "not trusted (self-signed certificate); name it" in why_not(remote, untrusted)
    untrusted.verify_code, untrusted.verify_message = 64, "IP address mismatch"
    assert "not trusted (IP address mismatch); use a name or an address" in why_not(remote, untrusted)
    with served(MadeUp(), remotes=()) as plain:
        other = Remote(name="lab-2", url=f"https://127.0.0.1:{plain}", token=TOKEN)
        with served(MadeUp(), remotes=(other,)) as port:
            answer = ask(port, "/nodes/lab-2/api/summary", BEARER)
    assert answer.status == 502 and "lab-2: TLS does not come about" in answer.text and "http://" in answer.text


def test_the_list(tmp_path: Path) -> None:
    file = tmp_path / "nodes.yaml"
    file.touch(mode=0o600)
    file.write_text(f"- {{name: lab-2, url: 'https://lab-2:9753', token: {TOKEN}}}\n")
    assert read_nodes(file)[0].name == "lab-2"
    for wrong, where in (
        ("[1", ":1: not YAML"), (f"- {{name: a, token: {TOKEN}", ":1: not YAML"), ("\x00", "not YAML"),
        (f"- {{name: a, token: *{TOKEN}}}", ":1: not YAML: an alias"), (f"- !{TOKEN}", ":1: not YAML: an alias"),
        (f"- !!int {TOKEN}x", "not YAML: a date or a number"),
        ("{a: b}", "the file: expected a list"), ("- a", "[0]: expected keys"),
        (f"- {{name: 'a/b', url: 'http://h', token: {TOKEN}}}", "[0].name: expected up to 64 letters"),
        (f"- {{name: a, url: 'file:///x', token: {TOKEN}}}", "[0].url: expected http://HOST:PORT"),
        ("- {name: a, url: 'http://h', token: b}", "[0].token: expected the other's token"),
        ("- {name: a, url: 'http://h'}", "[0].token: is missing"),
        ("- name: a\n  url: h\n  tokn: b", ":2:3: [0].url: expected http"),
        ("- name: a\n  url: h\n  tokn: b", ":3:3: [0].tokn: there is no such key; expected one of name, url, token, "),
        ("- name: a\n  url: h\n  tokn: b", "(did you mean token?)"),
        (f"- {{name: a, url: 'http://h', token: {TOKEN}}}\n" * (MOST + 1), f"expected at most {MOST} items"),
        (2 * f"- {{name: a, url: 'http://h', token: {TOKEN}}}\n", "one name"),
    ):  # fmt: skip
        file.write_text(wrong)
        with pytest.raises(Mistake, match=re.escape(where)) as raised:
            read_nodes(file)
        assert "tokn" not in wrong or "missing" not in str(raised.value)
        assert TOKEN not in str(raised.value)
    signed = f"- {{name: a, url: 'https://h', token: {TOKEN}, certificate: {file}}}"
    file.write_text(signed)
    with pytest.raises(Mistake, match=r"a: .*not a certificate in PEM form"):
        read_nodes(file)
    file.write_text(signed.replace(str(file), "none.pem"))
    with pytest.raises(Mistake, match=r"a: none\.pem: No such file"):
        read_nodes(file)
    file.write_text("")
    assert read_nodes(file) == ()
    file.chmod(0o644)
    with pytest.raises(Mistake, match="chmod 600"):
        read_nodes(file)
