"""The command as a user runs it, in a state folder of the test's own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import ready_command

from tailrace.node.client import Client, NoService, ask
from tailrace.process.control import Control, ControlLost
from tailrace.process.process import descendants, identify
from tailrace.resources.hugepages import pool
from tailrace.state.folder import run_folder

REPOSITORY = Path(__file__).resolve().parents[2]

needs_a_node = [
    pytest.mark.requires_root,
    pytest.mark.requires_hugepages,
    pytest.mark.requires_program("tailrace-switch", "tailrace-vnf", "tailrace-tester", "bwrap"),
]

needs_machines = [
    *needs_a_node,
    pytest.mark.requires_program("virtlogd", "qemu-system-x86_64"),
    pytest.mark.timeout(900),
]
"""The same, with functions in machines, which may be emulated."""

ONE = """\
functions: {first: skeleton}
chains: {voice: [tester.a, first, tester.b]}
tests: [latency: {frames: 64, rate: 20kpps, duration: 60s}]
"""


def wait_until(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What `what` returns as soon as it is true; fails the test if that takes too long."""
    deadline = time.monotonic() + seconds
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < deadline, "what was waited for did not happen"
        time.sleep(0.02)


def next_event(client: Client, kind: str) -> dict[str, Any]:
    """The next one of this kind; fails the test if none comes."""
    while True:
        found = client.next_event(120)
        assert found is not None, f"no {kind} came"
        if found["kind"] == kind:
            return found


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, as /run/tailrace is: beside it the switch becomes a user of its own. In
    pytest's own folders, which are closed to others, it would stay root."""
    made = Path(tempfile.mkdtemp(prefix="tailrace-test-", dir="/run"))
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made)


class Command:
    """`tailrace`, with state and runs in folders of its own."""

    def __init__(self, program: Path, folder: Path, state: Path | None = None) -> None:
        self.program = program
        self.state = state or folder / "state"
        self.run = run_folder(self.state)
        self.runs = folder / "runs"
        self.folder = folder
        self.limit = 150.0
        """Seconds that a command may take."""
        self.environment = {**os.environ, "TAILRACE_STATE": str(self.state)}
        self.begun: list[subprocess.Popen[str]] = []

    def spec(self, text: str, name: str = "spec.yaml") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def folder_for_sockets(self) -> Path:
        """A new folder in which both the switch, whoever it is, and guests of the test's own can make sockets."""
        made = Path(tempfile.mkdtemp(dir=self.state.parent))
        made.chmod(0o777)
        return made

    def __call__(self, *arguments: str | Path, status: int | None = 0) -> subprocess.CompletedProcess[str]:
        done = ready_command.run(
            self.program,
            [str(each) for each in arguments],
            environment=self.environment,
            folder=self.folder,
            timeout=self.limit,
        )
        if status is not None:
            assert done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def begin(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Starts the command and returns while it runs."""
        running = subprocess.Popen(
            [self.program, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            cwd=self.folder,
        )
        self.begun.append(running)
        return running

    def end_begun(self) -> None:
        """Kills each command that was begun and still runs."""
        for running in self.begun:
            if running.poll() is None:
                running.kill()
                running.communicate(timeout=60)

    def status(self) -> dict[str, Any]:
        """What `tailrace status --json` prints. Where a service runs it is asked from here, as the command does: tests
        look often, and each start of the command takes a tenth of a second of a CPU."""
        document: dict[str, Any]
        try:
            document = ask(Path(self.environment["TAILRACE_STATE"]), "node.status", look=True, start=False)
        except NoService:
            document = json.loads(self("status", "--json", status=None).stdout)
        return document

    def process(self, name: str) -> dict[str, Any] | None:
        """A process of the record, once it is there."""
        return next((each for each in self.status()["processes"] if each["name"] == name and each["alive"]), None)

    def results(self) -> dict[str, Any]:
        """results.json of the only run."""
        (folder,) = self.runs.iterdir()
        document: dict[str, Any] = json.loads((folder / "results.json").read_text())
        return document

    def trial_is_running(self) -> bool:
        """Whether test traffic has been through the switch."""
        return any(port["received_packets"] > 1000 for port in self.status()["ports"])

    def service(self) -> int:
        """The process of the service that runs."""
        client = Client(self.state)
        client.close()
        return client.pid

    @property
    def mark(self) -> bytes:
        """What is in the environment of all that is started for this state."""
        return f"TAILRACE_STATE={self.state}".encode()

    def leftovers(self) -> list[str]:
        """Processes and cgroups that belong to this state, and its folder."""
        found, mark = [], self.mark
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                stat = (entry / "stat").read_text()
                if mark in (entry / "environ").read_bytes().split(b"\0") and stat[stat.rindex(")") + 2] not in "ZX":
                    found.append(f"process {entry.name}")
            except OSError:
                continue
        if self.state.exists():
            found.append(str(self.state))
        return found


def elapsed(command: Command) -> float:
    """Seconds of the trial that runs; 0 without one."""
    try:
        control = Control(command.run / "tester.control")
        try:
            return float(control.call("trial.status")["elapsed"])
        finally:
            control.close()
    except ControlLost:
        return 0.0


def pages() -> int:
    return pool().total


def kill_all(command: Command) -> None:
    """SIGKILL to everything that carries this state's mark, as a crash of the whole would. Returns when all of that has
    ended, and what it had started, which in a sandbox carries no mark."""
    marked = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if command.mark in (entry / "environ").read_bytes().split(b"\0"):
                marked.append(int(entry.name))
    ending = [identify(each) for pid in marked for each in (pid, *descendants(pid))]
    for pid in marked:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(process.alive() for process in ending if process is not None))
