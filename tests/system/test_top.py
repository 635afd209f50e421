"""`tailrace top` on a running switch: it agrees with the traffic, and goes on when the switch is another."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest
from running_node import ONE, Command, needs_a_node
from running_tester import RunningTester, beside_a_node, both_ways

from tailrace.state.record import holding

pytestmark = [*needs_a_node, pytest.mark.unsanitized]


def attached(command: Command, binaries: Path) -> RunningTester:
    ports = {name: f"vhost:{command.state / 'sockets' / f'tester.{name}'}.sock" for name in "ab"}
    return beside_a_node(binaries, command.folder, ports)


def test_who_only_looks_is_told_of_a_damaged_record(command: Command) -> None:
    with holding(command.state) as held:
        held.take()
        (command.state / "state.json").write_text("{")
    for look in (("top", "--once"), ("metrics", "--listen", "127.0.0.1:0")):
        assert "state.json: damaged, so what is up is not known" in command(*look, status=1).stderr
    command("down")
    assert not command.state.exists()


def test_once_says_what_is_happening(command: Command, binaries: Path) -> None:
    assert "no switch is up" in command("top", "--once", status=1).stderr
    assert "expected name, packets, drops" in command("top", "--sort", "size", status=2).stderr
    command("up", command.spec(ONE))
    tester = attached(command, binaries)
    tester.start(both_ways(2000), 3600)
    tester.wait_sent(500)
    found = json.loads(command("top", "--once", "--json", "--sort", "packets").stdout)
    text = command("top", "--once", "--only", "voice").stdout
    tester.call("trial.stop")
    tester.wait_end()
    assert tester.end() == 0
    ports = {row["name"]: row for row in found["ports"]}
    assert set(ports) == {"tester.a", "tester.b", "first.0", "first.1"}
    assert all(row["state"] == "up" for row in ports.values())
    # What is given to the chain at one end comes out at the other; the rate itself is the machine's affair.
    assert ports["tester.a"]["received_packets"] > 0
    assert ports["tester.b"]["sent_packets"] == pytest.approx(ports["tester.a"]["received_packets"], rel=0.5)
    whole, *hops = [row for row in found["hops"] if row["chain"] == "voice"]
    assert whole["places"] == "tester.a first tester.b"
    assert [row["places"] for row in hops] == ["tester.a → first", "first → tester.b"]
    assert all(row["forward_packets"] > 0 and row["back_packets"] > 0 for row in hops)
    (worker,) = found["workers"]
    assert 0 < worker["busy"] <= 1
    assert worker["cycles_a_packet"] > 0
    assert worker["burst"] >= 1
    assert found["version"] == command.status()["version"]
    assert "voice: tester.a first tester.b" in text
    assert "first → tester.b" in text
    assert all(len(line) <= 80 for line in text.splitlines())


class Terminal:
    """`tailrace top` in a terminal of 80 by 24."""

    def __init__(self, command: Command) -> None:
        self.descriptor, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = {**command.environment, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
        self.process = subprocess.Popen(
            [command.program, "top", "--every", "100ms"], stdin=inner, stdout=inner, stderr=inner, env=environment
        )
        os.close(inner)

    def read(self, pattern: str, seconds: float = 60) -> str:
        """What was written from now on until the pattern stood there."""
        seen, deadline = "", time.monotonic() + seconds
        while not re.search(pattern, seen):
            assert time.monotonic() < deadline, f"no {pattern} in {seen[-3000:]}"
            if select.select([self.descriptor], [], [], 0.1)[0]:
                seen += os.read(self.descriptor, 65536).decode(errors="replace")
        return seen

    def key(self, key: str) -> None:
        os.write(self.descriptor, key.encode())

    def end(self) -> int:
        os.close(self.descriptor)
        return self.process.wait(60)


def test_live_goes_on_when_the_switch_begins_anew(command: Command) -> None:
    terminal = Terminal(command)
    try:
        terminal.read("waiting")
        command("up", command.spec(ONE))
        terminal.read("first\\.0")
        terminal.key("s")
        terminal.read("sorted by packets")
        command("down")
        terminal.read("waiting")
        command("up", command.spec(ONE.replace("first", "second")))
        terminal.read("second\\.0")
        terminal.key("q")
        assert terminal.process.wait(60) == 0
    finally:
        terminal.process.kill()
        terminal.end()
