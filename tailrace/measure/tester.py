"""The tester as Python drives it: one process, trials one at a time, watched while they run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tailrace.errors import Failure, Fault, Mistake
from tailrace.process.control import INVALID_PARAMS, Control, ControlError, ControlLost, connect_when_ready
from tailrace.process.process import UMASK_GUEST, Limits, undisturbed
from tailrace.process.programs import own_program
from tailrace.resources.interface import check_interface
from tailrace.resources.pci import check_pci
from tailrace.resources.place import Place
from tailrace.spec.model import INTERFACE_NAME, is_interface_name
from tailrace.state.launch import Launcher
from tailrace.state.record import FilePath, Process

TESTER = "tester"
TESTER_PROGRAM = "tailrace-tester"
_READY_SECONDS = 30.0


class Stopped(Exception):
    """A trial was cut short; carries what the tester measured until then, if it could still be asked."""

    def __init__(self, cause: BaseException, result: dict[str, Any] | None) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.result = result


@dataclass
class Tester:
    """A running tester."""

    launcher: Launcher
    process: Process
    control: Control
    ports: tuple[tuple[str, str], ...]
    """Names and URIs."""
    place: Place
    huge: bool
    learn: bool = False
    """Learning frames go ahead of each trial (RFC 2544, section 23)."""

    @classmethod
    def start(
        cls, launcher: Launcher, ports: Sequence[tuple[str, str]], place: Place, *, memory_mib: int, huge: bool,
        name: str = TESTER,
    ) -> Tester:  # fmt: skip
        """Starts the tester with ports (name, URI); returns when its links are up. Raises Failure or Mistake."""
        path = launcher.state.folder / f"{name}.control"
        launcher.state.add(FilePath(str(path)))
        argv = [str(own_program(TESTER_PROGRAM)), "--control", str(path), "--core", str(place.core)]
        for port, uri in ports:
            argv += ["--port", f"{port}={uri}"]
        argv += ["--memory", str(memory_mib), "--huge" if huge else "--no-huge"]
        process = launcher.start(name, argv, Limits(cpus=place.cpus, nice=place.nice, umask=UMASK_GUEST))
        try:
            control = connect_when_ready(path, process.id.alive, _READY_SECONDS)
        except ControlLost as error:
            raise launcher.failure(name, f"the tester {error}") from None
        tester = cls(launcher, process, control, tuple(ports), place, huge)
        tester._wait_for_links()
        return tester

    def _wait_for_links(self) -> None:
        deadline = time.monotonic() + 10
        while True:
            down = [port for port in self.control.call("port.list") if port["link"] != "up"]
            if not down:
                return
            if time.monotonic() > deadline:
                raise Failure(f"nobody answers at the tester's port {down[0]['name']} ({down[0]['uri']})")
            time.sleep(0.02)

    def version(self) -> dict[str, str]:
        answer = self.control.call("version")
        return {answer["program"]: answer["version"], "dpdk": answer["dpdk"].removeprefix("DPDK ")}

    def trial(
        self,
        streams: list[dict[str, Any]],
        seconds: float,
        *,
        wait: float,
        watch: Callable[[], None],
        progress: Callable[[float], None] = lambda _: None,
        interval: float = 0.1,
        pace: float = 1.0,
        more: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """One whole trial; returns the tester's result.

        `watch` is called every `pace` seconds and raises if something that the trial depends on has broken;
        `progress` with the seconds done. Raises Stopped, with what was measured, if anything cuts the trial short.
        """
        self.begin(streams, seconds, wait=wait, interval=interval, watch=watch, more=more)
        try:
            self._wait_for_end(seconds, wait, watch, progress, pace)
            result: dict[str, Any] = self.control.call("trial.result")
            return result
        except (Exception, KeyboardInterrupt) as error:
            with undisturbed():  # whoever presses Ctrl-C twice wants what was measured no less
                measured = self.cut_short(wait)
            raise Stopped(error, measured) from error

    def begin(
        self,
        streams: list[dict[str, Any]],
        seconds: float,
        *,
        wait: float,
        watch: Callable[[], None] = lambda: None,
        interval: float = 0.1,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """Starts a trial and leaves it running, to be ended by `cut_short` or by itself; `more` are further params."""
        further = {**({"learn": True} if self.learn else {}), **(more or {})}
        try:
            self.control.call("trial.start", duration=seconds, wait=wait, interval=interval, streams=streams, **further)
        except ControlError as error:
            if error.code == INVALID_PARAMS:
                raise Mistake(f"the tester refuses the traffic: {error}") from None
            watch()
            raise Failure(f"the tester cannot start: {error}") from None

    def _wait_for_end(
        self,
        seconds: float,
        wait: float,
        watch: Callable[[], None],
        progress: Callable[[float], None],
        pace: float,
    ) -> None:
        # The tester's thread may share this process's core: look as seldom as a person would notice.
        began = time.monotonic()
        limit = seconds + wait + 30
        while True:
            elapsed = time.monotonic() - began
            left = seconds + wait - elapsed
            # A short trial is asked for only when it should have ended.
            time.sleep(max(min(left, pace), 0.005))
            watch()
            progress(min(time.monotonic() - began, seconds + wait))
            if left > 0.3:
                continue
            status = self.control.call("trial.status")
            if status["state"] == "done":
                return
            if status["state"] == "failed":
                raise Fault(f"the tester failed: {status['reason']}")
            if elapsed > limit:
                raise Fault("the tester does not end")

    def cut_short(self, wait: float) -> dict[str, Any] | None:
        """Ends the trial that runs and returns what it measured; None if the tester is gone."""
        try:
            if self.control.call("trial.status")["state"] in ("running", "waiting"):
                self.control.call("trial.stop")
            deadline = time.monotonic() + wait + 5
            while self.control.call("trial.status")["state"] in ("running", "waiting"):
                if time.monotonic() > deadline or not self.process.id.alive():
                    return None
                time.sleep(0.02)
            result: dict[str, Any] = self.control.call("trial.result")
            return result
        except (Failure, OSError):
            return None

    def stop(self) -> None:
        self.control.close()
        self.launcher.state.undo(self.process)


def absolute_uri(uri: str) -> str:
    """A port's URI with its path made absolute, because the tester has a working directory of its own.

    Raises Mistake if the URI is not one, or names a socket, an interface or a PCI device that is not there.
    """
    scheme, separator, rest = uri.partition(":")
    known = ("vhost", "vhost-server", "if", "pci", "vdev")
    if not separator or not rest or scheme not in known:
        raise Mistake(
            f"{uri!r} is no port; expected vhost:SOCKET, vhost-server:SOCKET, if:NAME, pci:ADDRESS or vdev:ARGUMENTS"
        )
    if scheme in ("vhost", "vhost-server"):
        path = Path(rest).absolute()
        if scheme == "vhost" and not path.is_socket():
            raise Mistake(f"{uri}: there is no socket at {path}; start the device under test first")
        if scheme == "vhost-server" and path.exists():
            raise Mistake(f"{uri}: {path} exists; end what uses it, or remove it with `rm {path}`")
        return f"{scheme}:{path}"
    if scheme == "if":
        if not is_interface_name(rest):
            raise Mistake(f"{uri}: {rest!r} is no interface's name; {INTERFACE_NAME}")
        check_interface(rest)
    if scheme == "pci":
        check_pci(rest)
    return uri
