"""Debian's Netdata beside the dashboard, watching an interface of a network namespace: how soon it knows of a change of
a counter, and what it costs.

It is asked by its HTTP interface, as its page asks it: what it does not know there its page cannot show. The page is
not drawn: its figures have no part of a browser in them, those of the dashboard have.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tailrace.bench.hub import packet_socket
from tailrace.bench.setting import Setting, check_alive
from tailrace.errors import Failure
from tailrace.fabric.network import Network
from tailrace.process.plain import plain
from tailrace.process.process import Limits, cpu_seconds, descendants, undisturbed
from tailrace.process.programs import system_program
from tailrace.state.record import Process

PROGRAM = "netdata"
_FRAME = bytes(12) + b"\x88\xb5" + bytes(46)
"""Of a type for experiments (IEEE 802), for nobody."""
_FRAMES = 100
_PATIENCE = 60.0
_LOOK = 0.005
_CONFIG = """\
[global]
    run as user = root
[db]
    mode = ram
[directories]
    config = {folder}
    cache = {folder}
    lib = {folder}
    log = {folder}
[web]
    bind to = unix:{socket}
"""


@dataclass(frozen=True)
class Netdata:
    """It runs, and sees the interface."""

    process: Process
    path: Path
    """Of its socket."""
    interface: str
    frames: socket.socket
    """What is sent here the interface receives."""

    def change(self) -> float:
        """Milliseconds from the first frame after none to when it is known."""
        self._wait(lambda known: known == 0)
        time.sleep(random.random())  # it looks once a second: at any moment of that
        began = time.monotonic()
        self.send()
        return (self._wait(lambda known: known is not None and known > 0) - began) * 1e3

    def percent(self, seconds: float) -> tuple[float, float]:
        """Per cent of a core, asked once a second: of its main process, and with the plugins that are processes of
        their own."""
        before, began = self._used(), time.monotonic()
        while (done := time.monotonic() - began) < seconds:
            self.received()
            time.sleep(min(1.0, seconds - done))
        now, each = self._used(), 100 / (time.monotonic() - began)
        grown = {pid: used - before.get(pid, 0.0) for pid, used in now.items()}
        return grown[self.process.pid] * each, sum(grown.values()) * each

    def _used(self) -> dict[int, float]:
        """CPU seconds of each process of it, by pid."""
        pid = self.process.pid
        return {each: cpu_seconds(each) for each in (pid, *descendants(pid))}

    def send(self) -> None:
        for _ in range(_FRAMES):
            self.frames.send(_FRAME)

    def received(self) -> float | None:
        """What the interface has received in the last second, as it is known now; None: it is not known yet."""
        with closing(_Unix(self.path)) as connection:
            try:
                query = f"chart=net.{self.interface}&dimensions=received&after=-1&points=1&format=array"
                connection.request("GET", f"/api/v1/data?{query}")
                answer = connection.getresponse()
                said = answer.read()
            except (OSError, http.client.HTTPException):  # it is starting, or ending
                return None
        return number_of(said) if answer.status == 200 else None

    def wait_ready(self) -> None:
        """An interface that has received nothing yet is none to it. Raises Failure."""

        def there(known: float | None) -> bool:
            if known is None:
                self.send()
            return known is not None

        self._wait(there, 0.5)

    def _wait(self, wanted: Callable[[float | None], bool], each: float = _LOOK) -> float:
        """When it was. Raises Failure."""
        deadline = time.monotonic() + _PATIENCE
        while not wanted(self.received()):
            check_alive([self.process])
            if time.monotonic() > deadline:
                raise Failure("Netdata does not show what its interface receives")
            time.sleep(each)
        return time.monotonic()


def number_of(said: bytes) -> float | None:
    """The number in an answer, which is a list of one; None if it is not known yet. Raises Failure."""
    try:
        values = json.loads(said)
        return abs(float(values[0])) if values and values[0] is not None else None
    except (ValueError, TypeError, LookupError, RecursionError):
        shown = plain(said.decode(errors="replace"), 80)
        raise Failure(f"Netdata answers with something else than a number: {shown}") from None


@contextmanager
def netdata(setting: Setting, folder: Path) -> Iterator[Netdata]:
    """With the settings that it comes with, and none of the machine's; ended with the block."""
    program = system_program(PROGRAM)
    network = Network(setting.launcher.state)
    network.create()
    try:
        inside, outside = network.veth()
        path = setting.launcher.state.sockets / "netdata.sock"
        config = folder / "netdata.conf"
        config.write_text(_CONFIG.format(folder=folder, socket=path))
        launcher = replace(setting.launcher, network=network.name)
        process = launcher.start(PROGRAM, [program, "-D", "-c", str(config)], Limits())
        try:
            with packet_socket(network.name, outside) as frames:
                found = Netdata(process, path, inside, frames)
                found.wait_ready()
                yield found
        finally:
            with undisturbed():
                setting.launcher.state.undo(process)
    finally:
        with undisturbed():
            network.remove()


class _Unix(http.client.HTTPConnection):
    """HTTP on a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
