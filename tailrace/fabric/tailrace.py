"""Tailrace's own one-copy switch as a fabric: runs tailrace-switch and drives its control socket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tailrace.control import IN_USE, INVALID_PARAMS, UNKNOWN, Control, ControlError, ControlLost, connect_when_ready
from tailrace.errors import Failure, Mistake
from tailrace.fabric.base import PortState
from tailrace.host.launch import Launcher
from tailrace.host.place import Place
from tailrace.host.process import Limits
from tailrace.host.programs import own_program
from tailrace.host.state import FilePath, Process
from tailrace.page import Page

SWITCH = "switch"
_READY_SECONDS = 10.0


@dataclass(frozen=True)
class SwitchOptions:
    """How the switch runs."""

    place: Place
    backpressure_us: int
    idle: str
    pci: bool = False


class TailraceFabric:
    """The switch of one state: started here, or found running (`attach`)."""

    kind = "tailrace"

    def __init__(self, launcher: Launcher, options: SwitchOptions) -> None:
        self._launcher = launcher
        self._options = options
        self._control: Control | None = None
        self._page: Page | None = None
        self._process: Process | None = None

    def start(self) -> None:
        state = self._launcher.state
        program = own_program("tailrace-switch")
        for path in (state.control, state.page):
            state.add(FilePath(str(path)))
        options = self._options
        argv = [str(program), "--control", str(state.control), "--page", str(state.page)]
        argv += ["--core", str(options.place.core), "--idle", options.idle]
        argv += ["--backpressure-us", str(options.backpressure_us)]
        if options.pci:
            argv.append("--pci")
        self._process = self._launcher.start(SWITCH, argv, Limits(cpus=options.place.cpus, nice=options.place.nice))
        self._connect()

    def attach(self) -> None:
        """Takes up a switch that runs already. Raises Failure if it does not answer."""
        found = [process for process in self._launcher.state.processes() if process.name == SWITCH]
        if not found:
            raise Failure("the switch is not running; run `tailrace down` and `tailrace up SPEC`")
        self._process = found[0]
        self._connect()

    def _connect(self) -> None:
        process = self._running()
        try:
            self._control = connect_when_ready(self._launcher.state.control, process.id.alive, _READY_SECONDS)
        except ControlLost as error:
            raise self._launcher.failure(SWITCH, f"the switch {error}") from None
        self._page = Page(self._launcher.state.page)

    def _running(self) -> Process:
        if self._process is None:
            raise Failure("the switch was not started")
        return self._process

    @property
    def control(self) -> Control:
        if self._control is None:
            raise Failure("the switch was not started")
        return self._control

    def add_guest_port(self, name: str, path: Path) -> None:
        self._launcher.state.add(FilePath(str(path)))
        try:
            self.control.call("port.add", name=name, kind="guest", path=str(path), mode="server")
        except ControlError as error:
            raise _worded(error, f"port {name}", f"remove {path} if nothing uses it") from None

    def add_device_port(self, name: str, uri: str) -> None:
        try:
            self.control.call("port.add", name=name, kind="device", device=uri)
        except ControlError as error:
            raise _worded(error, f"port {name} ({uri})", "see what else uses the device") from None

    def wire(self, chain: str, ports: Sequence[str]) -> None:
        self.control.call("chain.set", name=chain, ports=list(ports))

    def unwire(self, chain: str) -> None:
        try:
            self.control.call("chain.remove", name=chain)
        except ControlError as error:
            if error.code != UNKNOWN:
                raise

    def ports(self) -> list[PortState]:
        return port_states(self.control, self._page)

    def worker_cycles(self) -> dict[str, int]:
        """The worker's busy and idle cycles and polls, as counted by itself."""
        for slot in self._page.slots() if self._page else []:
            if slot.kind == "worker":
                return slot.counters
        return {}

    def processes(self) -> list[Process]:
        return [self._process] if self._process else []

    def version(self) -> dict[str, str]:
        answer = self.control.call("version")
        return {answer["program"]: answer["version"], "dpdk": answer["dpdk"]}

    def stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._page is not None:
            self._page.close()
            self._page = None
        if self._process is not None:
            problem = self._launcher.state.undo(self._process)
            self._process = None
            if problem:
                raise Failure(problem)


def port_states(control: Control, page: Page | None) -> list[PortState]:
    """All ports of a running switch, with their counters from its page."""
    counters = {slot.name: slot.counters for slot in (page.slots() if page else []) if slot.kind == "port"}
    return [
        PortState(entry["name"], entry["state"], entry.get("reason"), counters.get(entry["name"], {}))
        for entry in control.call("port.list")
    ]


def _worded(error: ControlError, what: str, hint: str) -> Failure | Mistake:
    if error.code == IN_USE:
        return Mistake(f"{what}: {error}; {hint}")
    if error.code == INVALID_PARAMS:
        return Mistake(f"{what}: {error}")
    return Failure(f"{what}: {error}")
