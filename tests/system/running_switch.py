"""A tailrace-switch of the test's own: started, driven over its control socket, ended."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tailrace.control import Control, connect_when_ready
from tailrace.page import Page


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 10) -> None:
    """Return when `holds()` is true; fail with `what` when it is not in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not in {seconds} s: {what}"
        time.sleep(0.005)


class RunningSwitch:
    def __init__(self, program: Path, folder: Path, *options: str) -> None:
        self.folder = folder
        self.log = folder / "switch.log"
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [program, "--control", folder / "control", "--page", folder / "page", *options], stderr=log
            )
        self.control: Control = connect_when_ready(folder / "control", lambda: self.process.poll() is None, 20)
        self.page = Page(folder / "page")

    def call(self, method: str, **params: Any) -> Any:
        return self.control.call(method, **params)

    def add_guest(self, name: str, mode: str = "server") -> Path:
        path = self.folder / f"{name}.sock"
        self.call("port.add", name=name, kind="guest", path=str(path), mode=mode)
        return path

    def port(self, name: str) -> dict[str, Any]:
        return next(port for port in self.call("port.list") if port["name"] == name)

    def wait_state(self, name: str, state: str) -> None:
        wait_until(lambda: self.port(name)["state"] == state, f"port {name} {state}, it is {self.port(name)}")

    def counters(self, name: str) -> dict[str, int]:
        return next(slot.counters for slot in self.page.slots() if slot.name == name)

    def end(self) -> int:
        """Stop it as an operator does. Returns the exit status; fails when a sanitizer had something to say."""
        self.control.close()
        self.process.terminate()
        status = self.process.wait(20)
        log = self.log.read_text()
        assert "Sanitizer" not in log and "runtime error" not in log, log
        return status
