"""What the service costs, and how soon it acts: commands as a user runs them, what was killed and is there again, its
own time and memory while nothing happens, and events to many listeners."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.bench.model import Spread
from tailrace.bench.own_node import own_folder, resident_mib
from tailrace.bench.setting import Setting
from tailrace.errors import Failure, Mistake
from tailrace.functions.runtimes import STARTERS
from tailrace.measure.own_node import OwnNode
from tailrace.measure.progress import Reporter
from tailrace.node.client import Client
from tailrace.process.process import cpu_seconds
from tailrace.state.folder import LOOK
from tailrace.state.record import Process, peek

#: A chain of a function that is started again, and one of a function that is led past.
SPEC = """\
ports: {{c: , d: }}
functions:
  first: {{kind: skeleton, runs: {place}}}
  second: {{kind: skeleton, runs: {place}, restart: never, on_failure: bypass}}
chains: {{again: [tester.a, first, tester.b], past: [c, second, d]}}
"""
UP, STATUS, DOWN = "tailrace up", "tailrace status", "tailrace down"
FUNCTION = "a function killed to forwarding"
BYPASS = "a function killed to bypassed"
SWITCH = "the switch killed to running"
TIMED = (UP, STATUS, FUNCTION, BYPASS, SWITCH, DOWN)
_EVENT_SECONDS = 30.0
_AGAIN_SECONDS = 240.0
"""In which what was killed is there again; an emulated machine boots."""
#: Sends so many events a second for so many seconds from a process of its own: the sockets of the service, alone.
_SENDER = """\
import os, sys, time
from pathlib import Path
from tailrace.node.server import Server
rate, seconds = float(sys.argv[2]), float(sys.argv[3])
async def answer(call):
    if call.method.name == "events.subscribe":
        return {"next": server.subscribe(call.client, call.params.since)}
    return {"program": "tailraced", "version": "bench", "api": 1, "pid": os.getpid()}
server = Server(Path(sys.argv[1]), answer, lambda call, why: None)
server.start()
print(flush=True)
sys.stdin.readline()
began, before = time.monotonic(), time.process_time()
for number in range(int(rate * seconds)):
    if number % max(int(rate / 100), 1) == 0:  # as the switch notifies: each 10 ms of all that is new
        time.sleep(max(began + number / rate - time.monotonic(), 0))
    server.publish("port.up", f"port-{number}", why="a reason of some words, as a port has")
print(time.process_time() - before, time.monotonic() - began, flush=True)
sys.stdin.readline()
server.stop()
"""


@dataclass(frozen=True)
class ServicePlan:
    """What is to be measured. Raises Mistake where that cannot be."""

    times: int = 10
    place: str = "process"
    """Where the functions live."""
    listeners: int = 20
    rate: int = 1000
    """Events a second."""
    seconds: float = 10.0
    """Of events, and of nothing."""

    def __post_init__(self) -> None:
        for name, value, most in (("times", self.times, 1000), ("listeners", self.listeners, 120)):
            if not 1 <= value <= most:
                raise Mistake(f"--{name} {value}: expected 1 to {most}")
        if self.place not in STARTERS:
            raise Mistake(f"--of {self.place}: no such place; expected {', '.join(STARTERS)}")
        if not 1 <= self.rate <= 10_000:
            raise Mistake(f"--rate {self.rate}: expected 1 to 10000")
        if not 1 <= self.seconds <= 600:
            raise Mistake(f"--seconds {self.seconds:g}: expected 1 to 600")

    @property
    def total_seconds(self) -> float:
        return 6.0 * self.times + 2 * self.seconds + 5


@dataclass(frozen=True)
class ServiceResult:
    """What came out."""

    times_ms: Mapping[str, Spread]
    idle_percent: float
    """Of a core, while a node is up and nothing happens."""
    memory_mib: float
    events: Mapping[str, float]
    """rate (a second), listeners, sent, received (by all listeners), percent (of a core)."""
    machine: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        return {
            "bench": "service",
            "times_ms": {name: spread.document() for name, spread in self.times_ms.items()},
            "idle_percent": round(self.idle_percent, 3),
            "memory_mib": round(self.memory_mib, 1),
            "events": {name: round(value, 2) for name, value in self.events.items()},
            "machine": dict(self.machine),
        }


def run(plan: ServicePlan, folder: Path, report: Reporter) -> ServiceResult:
    """Measures all of it. Everything that it starts and reserves is gone when it returns or raises."""
    STARTERS[plan.place].check()
    taken: dict[str, list[float]] = {name: [] for name in TIMED}
    with own_folder("bench service", folder, report) as (setting, made):
        report.stage("commands and ends", plan.total_seconds)
        node = _Node(made, SPEC.format(place=plan.place))
        idle = memory = 0.0
        for number in range(plan.times):
            with node.up(taken):
                if number == 0:
                    idle, memory = node.idle(plan.seconds)
                node.kill_all_in_turn(taken)
            report.advance("commands and ends", plan.total_seconds * (number + 1) / plan.times)
        events = _events(setting, plan)
        times = {name: Spread.of(values) for name, values in taken.items()}
        return ServiceResult(times, idle, memory, events, setting.machine())


class _Node(OwnNode):
    """A node of the benchmark's own that breaks."""

    @contextmanager
    def up(self, taken: dict[str, list[float]]) -> Iterator[None]:
        try:
            taken[UP].append(self.command("up", str(self.spec)))
            taken[STATUS].append(self.command("status"))
            yield
        finally:
            took = self.command("down")
        taken[DOWN].append(took)

    def idle(self, seconds: float) -> tuple[float, float]:
        """The service's per cent of a core while nothing happens, and its memory in MiB."""
        client = Client(self.state)
        client.close()
        before = cpu_seconds(client.pid)
        time.sleep(seconds)
        percent = (cpu_seconds(client.pid) - before) / seconds * 100
        return percent, resident_mib(client.pid)

    def kill_all_in_turn(self, taken: dict[str, list[float]]) -> None:
        client = Client(self.state, look=True)
        client.subscribe()
        try:
            for name, kind, of in (
                ("first", "function.restarted", FUNCTION),
                ("second", "chain.bypassed", BYPASS),
                ("switch", "switch.restarted", SWITCH),
            ):
                process = self._process(name)
                inner = process.inner()
                began = time.monotonic()
                os.kill(inner[-1].pid if inner else process.pid, signal.SIGKILL)
                _wait(client, kind)
                taken[of].append((time.monotonic() - began) * 1e3)
        finally:
            client.close()

    def _process(self, name: str) -> Process:
        found = [thing for thing in peek(self.state).things if isinstance(thing, Process) and thing.name == name]
        if not found:
            raise Failure(f"{name} does not run")
        return found[0]


def _wait(client: Client, kind: str) -> None:
    while (event := client.next_event(_AGAIN_SECONDS)) is None or event["kind"] != kind:
        if event is None:
            raise Failure(f"no {kind} came within {_AGAIN_SECONDS:g} s")


def _events(setting: Setting, plan: ServicePlan) -> dict[str, float]:
    """Events from a process that does nothing else, to listeners that count them."""
    folder = setting.launcher.state.folder
    words = [sys.executable, "-c", _SENDER, str(folder), str(plan.rate), str(plan.seconds)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sender:
        assert sender.stdin is not None and sender.stdout is not None
        try:
            sender.stdout.readline()
            listeners = [_subscribed(folder / LOOK) for _ in range(plan.listeners)]
            sender.stdin.write("\n")
            sender.stdin.flush()
            sent = int(plan.rate * plan.seconds)
            received = _count(listeners, sent, plan.seconds + _EVENT_SECONDS)
            busy, lasted = map(float, sender.stdout.readline().split())
        finally:
            with suppress(OSError):
                sender.stdin.close()  # it removes its sockets, and ends
            try:
                sender.wait(_EVENT_SECONDS)
            except subprocess.TimeoutExpired:
                sender.kill()
    return {
        "rate": plan.rate,
        "listeners": plan.listeners,
        "sent": sent,
        "received": received,
        "percent": busy / lasted * 100,
    }


def _subscribed(path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
    found.connect(str(path))
    found.sendall(b'{"jsonrpc":"2.0","id":1,"method":"events.subscribe"}\n')
    while not found.recv(4096).endswith(b"\n"):
        pass
    return found


def _count(listeners: list[socket.socket], sent: int, seconds: float) -> int:
    """How many events came to all of them; returns when all have come, or after so long."""
    come = dict.fromkeys(listeners, 0)
    poller, deadline = select.poll(), time.monotonic() + seconds
    by_number = {each.fileno(): each for each in listeners}
    for each in listeners:
        poller.register(each, select.POLLIN)
    while min(come.values()) < sent and time.monotonic() < deadline:
        for number, _ in poller.poll(1000):
            come[by_number[number]] += by_number[number].recv(1 << 20).count(b'"method":"event"')
    for each in listeners:
        each.close()
    return sum(come.values())
