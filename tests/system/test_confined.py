"""Every command that looks at or changes what is up, beside a switch that `tailrace up` has made another user: it reads
what that user has written, and writes what that user can read."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from clean_machine import clean
from front_end import SENDS, FrontEnd
from running_node import Command, needs_a_node, wait_until
from scapy.utils import rdpcap

pytestmark = [*needs_a_node, pytest.mark.unsanitized]

CHANGES = 3
SPEC = """\
fabric: {{idle: sleep, restart: never{user}}}
ports: {{a: , b: , p: }}
functions: {{fw: {{kind: skeleton, replicas: 2}}}}
chains:
  plain: [a, b]
  pool: [tester.a, fw, tester.b]
"""
FRAME = bytes.fromhex("02000000000b02000000000a88b5") + bytes(46)
#: Commands of the list that `tailrace --help` prints which have nothing to do with the switch that is up.
APART = {"advise", "demo", "version", "runs", "report", "diff", "export", "import", "compare", "bench", "host", "image"}


@pytest.fixture(
    scope="module", params=["", pytest.param(", user: 64123:64124", marks=pytest.mark.whole)], ids=["number", "named"]
)
def command(
    request: pytest.FixtureRequest, tailrace: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Command]:
    """A node of this file's own, for all of its tests."""
    with clean(tailrace, tmp_path_factory.mktemp("confined")) as command:
        command("up", command.spec(SPEC.format(user=request.param)))
        assert (command.state / "sockets").stat().st_uid != 0
        yield command


@pytest.fixture
def guests(command: Command) -> Iterator[dict[str, FrontEnd]]:
    """What is attached to the plain chain and to the port beside it."""
    found = {name: FrontEnd() for name in "abp"}
    for name, guest in found.items():
        guest.start(command.state / f"sockets/{name}.sock")
    found["p"].offer_buffers(8)

    def up() -> bool:
        return all(port["state"] == "up" for port in command.status()["ports"] if port["name"] in found)

    wait_until(up)
    yield found
    for guest in found.values():
        guest.end()


def cross(guests: dict[str, FrontEnd], count: int = 1) -> None:
    """Frames on the plain chain, there and back."""
    for source, target in ("ab", "ba"):
        guests[target].offer_buffers(count)
        for _ in range(count):
            guests[source].send(FRAME)
        guests[source].kicks(SENDS)
        assert guests[target].wait_received(count) == [FRAME] * count


def test_every_command_is_here(command: Command) -> None:
    """Or, of those that measure, in a file of its own, whose node is like this one (clean_machine.py)."""
    listed = set(re.findall(r"^\W*([a-z]+)  +[A-Z]", command("--help").stdout, re.MULTILINE))
    tested = {"up", "plan", "apply", "rollback", "drain", "status", "top", "metrics", "dashboard", "events", "down"}
    assert listed - APART == tested | {"capture", "trace", "measure", "node", "watch", "function", "scale", "migrate"}


def test_what_does_not_move_is_told(command: Command) -> None:
    """tests/guest/test_migrate.py has what does."""
    done = command("migrate", "fw", command.state, "--dry-run", status=2)
    assert "is this very node" in done.stderr


@pytest.mark.parametrize("what", [("--port", "a"), ("--chain", "plain")], ids=["port", "chain"])
def test_a_capture_reads_the_rings_of_the_switchs_user(
    command: Command, guests: dict[str, FrontEnd], what: tuple[str, ...]
) -> None:
    file = command.folder / "x.pcap"
    capturing = command.begin("capture", *what, "--count", "6", "--json", file)
    wait_until(lambda: list((command.state / "sockets").glob("*.capture-*.0")))
    command.status()  # which the switch answers once the capture has begun
    cross(guests, 4)
    out, error = capturing.communicate(timeout=60)
    assert capturing.returncode == 0, error
    assert (json.loads(out)["frames"], json.loads(out)["dropped"]) == (6, 0)
    assert [bytes(frame) for frame in rdpcap(str(file))] == [FRAME] * 6
    assert file.stat().st_uid == 0


def test_a_frame_is_followed(command: Command, guests: dict[str, FrontEnd]) -> None:
    tracing = command.begin("trace", "--match", "ethertype=0x88b5", "--duration", "20s", "--json")
    while tracing.poll() is None:
        cross(guests)
    out, error = tracing.communicate()
    assert tracing.returncode == 0, error
    (frame,) = json.loads(out)
    assert frame["length"] == len(FRAME)
    assert re.match(r"leaves by port [ab]: chain plain", frame["steps"][-1]["text"])


def test_events_are_shown(command: Command, guests: dict[str, FrontEnd]) -> None:
    showing = command.begin("events", "--since", "1")
    assert showing.stdout is not None
    lines: list[str] = []
    while not lines or not re.search(r"Z port\.up a$", lines[-1]):
        lines.append(showing.stdout.readline().rstrip())
        assert lines[-1]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z switch\.up switch \(pid \d+\)", lines[0])
    guests["a"].close()
    while not re.search(r"Z port\.waiting a$", lines[-1]):
        lines.append(showing.stdout.readline().rstrip())
        assert lines[-1]
    showing.send_signal(signal.SIGINT)
    _, error = showing.communicate(timeout=60)
    assert (showing.returncode, error) == (0, "")


def test_status_top_and_metrics(command: Command, guests: dict[str, FrontEnd]) -> None:
    def counted() -> int:
        return next(int(port["received_packets"]) for port in command.status()["ports"] if port["name"] == "a")

    before = counted()
    cross(guests, 3)
    assert counted() == before + 3
    top = json.loads(command("top", "--once", "--json").stdout)
    assert {row["name"]: row["state"] for row in top["ports"]}["a"] == "up"
    assert top["workers"][0]["idle"] == "sleep"
    serving = command.begin("metrics", "--listen", "127.0.0.1:0")
    assert serving.stdout is not None
    url = re.search(r"http://\S+/metrics", serving.stdout.readline())
    assert url is not None
    with urllib.request.urlopen(url[0], timeout=60) as answer:
        assert f'tailrace_port_received_packets_total{{port="a",queue="0"}} {before + 3}.0' in answer.read().decode()
    serving.send_signal(signal.SIGINT)
    serving.communicate(timeout=60)


def test_a_change_and_back(command: Command, guests: dict[str, FrontEnd]) -> None:
    """With a mirror, a pin and a new function."""
    was = (command.folder / "spec.yaml").read_text()
    new = was.replace("idle: sleep", "idle: sleep, pins: {a/0: 0}").replace("fw, tester.b", "fw, other, tester.b")
    new = (
        new.replace("functions: {", "functions: {other: skeleton, ") + "mirrors: {m: {port: a, direction: in, to: p}}\n"
    )
    spec = command.spec(new, "new.yaml")
    assert "mirror m" in command("plan", spec, status=CHANGES).stdout
    command("apply", spec)
    cross(guests, 2)
    assert guests["p"].wait_received(2) == [FRAME] * 2
    assert command.process("other") is not None
    command("rollback")
    assert command.process("other") is None
    cross(guests)
    assert guests["p"].received() == []
    command("plan", command.folder / "spec.yaml")


def test_a_replica_is_drained(command: Command) -> None:
    command("drain", "fw-2")
    assert "fw-2 (draining" in command("status").stdout
    command("drain", "fw-2", "--active")
    assert "draining" not in command("status").stdout


def test_a_function_is_scaled_stopped_replaced_and_looked_at(command: Command) -> None:
    command("scale", "fw", "3")
    command("function", "restart", "fw-3")
    command("function", "stop", "fw-3")
    assert "fw-3 (stopped" in command("status").stdout
    command("function", "start", "fw-3")
    assert "forwarding" in command("function", "log", "fw-3").stdout
    assert "fw-3 runs in a process, latency medium." in command("function", "explain", "fw-3").stdout
    command("scale", "fw", "2")
    assert command.process("fw-2") is not None and "fw-3" not in command("status").stdout


def test_up_resumes_it(command: Command) -> None:
    switch = command.process("switch")
    assert switch is not None
    os.kill(switch["pid"], signal.SIGKILL)
    wait_until(lambda: command.process("switch") is None)
    assert "resumed" in command("up", command.folder / "spec.yaml").stdout
    assert command.status()["state"] == "up"
