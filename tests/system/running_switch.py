"""A tailrace-switch of the test's own: started, driven over its control socket, ended."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tailrace.fabric.tailrace import chain_through
from tailrace.observe.page import Page
from tailrace.process.control import Control, connect_when_ready

KEEP = ("--keep", "net_raw,net_admin,sys_admin,ipc_lock")
"""Of the switch: what it takes to open any device."""


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Return when `holds()` is true; fail with `what` when it is not in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not in {seconds} s: {what}"
        time.sleep(0.005)


class RunningSwitch:
    def __init__(self, program: Path, folder: Path, *options: str | Path, within: Sequence[str] = ()) -> None:
        """`within`: a command that runs another one, as `ip netns exec NAME` does. Tests may share cores."""
        self.folder = folder
        self.log = folder / "switch.log"
        self.command = [*within, program, "--control", folder / "control", "--page", folder / "page", *options]
        self.command.append("--share-cores")
        self.start()

    def start(self) -> None:
        """Start it again after `kill()`."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self.command, stderr=log)
        self.control: Control = connect_when_ready(self.folder / "control", lambda: self.process.poll() is None, 60)
        self.page = Page(self.folder / "page")

    def kill(self) -> None:
        """SIGKILL: nothing of what it would do at its end is done."""
        self.control.close()
        self.process.kill()
        self.process.wait()

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """All of its threads stand still; on a busy machine that takes a while after the signal."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: set(self._thread_states()) <= {"T"}, "all of its threads are stopped")
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def _thread_states(self) -> Iterator[str]:
        for stat in Path(f"/proc/{self.process.pid}/task").glob("*/stat"):
            with suppress(OSError):  # it has ended meanwhile
                yield stat.read_text().rpartition(")")[2].split()[0]

    def call(self, method: str, **params: Any) -> Any:
        return self.control.call(method, **params)

    def add_guest(self, name: str, mode: str = "server", **more: Any) -> Path:
        path = self.folder / f"{name}.sock"
        self.patch(ports={name: {"kind": "guest", "path": str(path), "mode": mode, **more}})
        return path

    def join(self, *names: str) -> None:
        """A chain from the first port to the second."""
        self.set_chain("-".join(names), *names)

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def memory(self) -> int:
        """Resident, in bytes, without what is mapped from files of others."""
        status = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return 1024 * int(next(line for line in status if line.startswith("RssAnon")).split()[1])

    def mapped(self, name: str) -> int:
        """Bytes of the memfd of this name whose pages the switch has mapped."""
        mappings = Path(f"/proc/{self.process.pid}/smaps").read_text().split("/memfd:")[1:]
        ours = [mapping for mapping in mappings if mapping.split(" ", 1)[0] == name]
        return sum(1024 * int(mapping.split("Rss:", 1)[1].split()[0]) for mapping in ours)

    def patch(self, **sections: Any) -> dict[str, Any]:
        """Change the configuration by these sections of a merge patch; None deletes."""
        answer: dict[str, Any] = self.call("config.apply", patch=sections)
        return answer

    def set_chain(self, name: str, *ports: str, **more: Any) -> None:
        """Join the 1st port with the 2nd, the 3rd with the 4th, ...: what is between them is a function each."""
        chain, functions = chain_through(ports)
        self.patch(functions=functions, chains={name: {**chain, **more}})

    def remove_chain(self, name: str) -> None:
        self.patch(chains={name: None})

    def remove_port(self, name: str) -> None:
        self.patch(ports={name: None})

    def add_device(self, name: str, uri: str, **more: Any) -> None:
        self.patch(ports={name: {"kind": "device", "device": uri, **more}})

    def port(self, name: str) -> dict[str, Any]:
        return next(port for port in self.call("port.list") if port["name"] == name)

    def wait_state(self, name: str, state: str) -> None:
        wait_until(lambda: self.port(name)["state"] == state, f"port {name} {state}, it is {self.port(name)}")

    def counters(self, name: str) -> dict[str, int]:
        """Of a port: the sums over its queues."""
        return self.page.ports()[name]

    def end(self) -> int:
        """Stop it as an operator does. Returns the exit status; fails when a sanitizer had something to say."""
        self.control.close()
        self.process.terminate()
        status = self.process.wait(60)
        self.assert_sane()
        return status

    def assert_sane(self) -> None:
        log = self.log.read_text()
        assert "Sanitizer" not in log and "runtime error" not in log, log


@contextmanager
def switch_of_devices(binaries: Path, folder: Path, within: Sequence[str]) -> Iterator[RunningSwitch]:
    """With what it takes to open any device; `within` a network namespace, as RunningSwitch has it."""
    program = binaries / "switch/tailrace-switch"
    running = RunningSwitch(program, folder, "--memory", "256", "--idle", "sleep", *KEEP, within=within)
    yield running
    assert running.end() == 0


class SharedSwitch:
    """A switch that many tests have, one after the other. Each finds it without a configuration, and what it leaves is
    taken away and found to be gone. One that is not well then is no other test's: the next has a new one."""

    def __init__(self, program: Path, folder: Path, *options: str | Path) -> None:
        self._make = (program, folder, options)
        self._count = 0
        self._start()

    @contextmanager
    def lent(self) -> Iterator[RunningSwitch]:
        """To one test."""
        yield self.running
        try:
            self.running.call("config.apply", config={})
            wait_until(lambda: self.running.open_files() <= self._files, "it closes all that it opened for a test")
            assert not list(self.running.folder.glob("*.sock"))
            self.running.assert_sane()
        except BaseException:
            self.running.kill()
            self._start()
            raise

    def _start(self) -> None:
        program, folder, options = self._make
        self._count += 1
        own = folder / str(self._count)
        own.mkdir()
        self.running = RunningSwitch(program, own, *options)
        self.running.add_guest("first")  # with the first it opens what it has for all
        self.running.call("config.apply", config={})
        self._files = self.running.open_files()

    def end(self) -> None:
        assert self.running.end() == 0
