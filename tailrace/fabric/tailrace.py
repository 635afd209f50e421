"""Tailrace's own one-copy switch as a fabric: runs tailrace-switch and drives its control socket."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.errors import Failure, Fault, Mistake, Refused
from tailrace.fabric.base import KERNEL, Counters, Port, PortState
from tailrace.fabric.linux_bridge import kernel_port
from tailrace.fabric.network import Network
from tailrace.observe.page import Page
from tailrace.process.control import (
    CONFLICT,
    IN_USE,
    INVALID_PARAMS,
    UNKNOWN,
    Control,
    ControlError,
    ControlLost,
    connect_when_ready,
)
from tailrace.process.process import UMASK_GUEST, Limits
from tailrace.process.programs import own_program
from tailrace.resources.claims import END_IT, taken
from tailrace.resources.place import Place
from tailrace.state.launch import Launcher
from tailrace.state.record import FilePath, Granted, Process
from tailrace.switch.config import SECTIONS, SWITCH, Config
from tailrace.switch.confine import confine, listening_at, make_folder

_READY_SECONDS = 10.0
_REFUSED = 3  # exit status of --check
#: DPDK's memory, in MiB: what it takes by itself, what the packet buffers of a device's queue take (the most of any:
#: dataplane/port/device.c), and for how many queues there is room beyond those that are known. What is not used is not
#: taken from the machine, but for 1.5 % of it.
_MEMORY_ITSELF = 48
_MEMORY_QUEUE = 20
_MEMORY_SPARE = 8


@dataclass(frozen=True)
class SwitchOptions:
    """How the switch runs."""

    place: Place
    backpressure_us: int
    idle: str
    pci: bool = False
    keep: tuple[str, ...] = ()
    """Capabilities that the device ports need (capabilities(7), in small letters and without CAP_)."""
    cores: tuple[int, ...] = ()
    """One worker on each; the place's own core if none is named."""
    user: str | None = None
    """Whom the switch becomes once it runs: NAME or UID:GID; None: a number that is nobody's."""
    groups: tuple[str, ...] = ()
    """Those that sockets are given to."""
    device_queues: int = 0
    """Queues of all ports that are no guests'."""
    memory_mib: int | None = None
    """DPDK's memory; None: what the device queues need, and some to spare."""
    kept: bool = False
    """It keeps its configuration in a file also where it ends with whoever started it."""
    offloads: bool = True
    """Guests of `carry` may ask for checksums and segmentation."""


class Conflict(Mistake):
    """Somebody else changed the configuration first."""


def used_mib(device_queues: int, memory_mib: int | None) -> int:
    """The most memory that a switch uses with so many queues of devices, where `memory_mib` is what it was given."""
    return memory_mib or _MEMORY_ITSELF + _MEMORY_QUEUE * device_queues


class TailraceFabric:
    """The switch of one state: started here, or found running (`attach`)."""

    kind = "tailrace"

    def __init__(self, launcher: Launcher, options: SwitchOptions, network: Network | None = None) -> None:
        self._launcher = launcher
        self._options = options
        self._network = network
        """Where TAPs and veths of `carry` are; the launcher's."""
        self._control: Control | None = None
        self._page: Page | None = None
        self._process: Process | None = None

    def would_take(self, config: Config) -> None:
        """Asks the program whether a switch that is started with it would take a configuration; starts none, and opens
        nothing. Raises Refused, with the key, Mistake or Failure."""
        argv = [str(own_program("tailrace-switch")), "--check", "--memory", str(self._memory_mib())]
        argv += ["--cores", ",".join(map(str, self._cores()))]
        done = subprocess.run(argv, input=json.dumps(config), capture_output=True, text=True, check=False)
        if done.returncode == _REFUSED:
            raise Refused(done.stdout.strip())
        if done.returncode != 0:
            raise Failure(f"{argv[0]} --check: {done.stderr.strip() or f'ended with status {done.returncode}'}")

    def _cores(self) -> Sequence[int]:
        return self._options.cores or (self._options.place.core,)

    def _memory_mib(self) -> int:
        return used_mib(self._options.device_queues + _MEMORY_SPARE, self._options.memory_mib)

    def start(self) -> None:
        """Starts the switch; returns when it answers. Raises Failure."""
        self.launch()
        self.await_answer()

    def launch(self) -> None:
        """Starts the switch, and does not wait for it. Raises Failure."""
        state = self._launcher.state
        program = own_program("tailrace-switch")
        cores = self._cores()
        if (said := taken(cores)) is not None:
            raise Failure(f"{said}; {END_IT}")
        files = {"--control": state.control, "--page": state.page}
        if self._options.kept or not self._launcher.tied:
            files["--config"] = state.config
        things = [FilePath(str(path)) for path in files.values()]
        state.add(*[thing for thing in things if thing not in state.record.things])
        options = self._options
        argv = [str(program), *(word for option, path in files.items() for word in (option, str(path)))]
        argv += ["--cores", ",".join(map(str, cores)), "--idle", options.idle]
        argv += ["--backpressure-us", str(options.backpressure_us)]
        argv += ["--memory", str(self._memory_mib())]
        if options.pci:
            argv.append("--pci")
        argv += confine(state, options.keep, options.user)
        if options.groups:
            argv += ["--groups", ",".join(options.groups)]
        # Who reads counters finds those of this switch, or none: not what one that was killed has left.
        state.page.unlink(missing_ok=True)
        state.record.granted = Granted(options.keep, options.groups, options.pci)
        # Who connects to a memif that it makes is another user; nobody else can enter the folder of sockets.
        limits = Limits(cpus=options.place.cpus, nice=options.place.nice, umask=UMASK_GUEST if self._network else None)
        self._process = self._launcher.start(SWITCH, argv, limits)

    def await_answer(self) -> None:
        """Returns when the switch that was launched answers. Raises Failure."""
        try:
            self._connect(self._running())
        except ControlLost as error:
            raise self._launcher.failure(SWITCH, f"the switch {error}") from None

    def resume(self) -> None:
        """Starts a switch that has ended once more: by the configuration that it kept it is what it was, and the guests
        that listen for it go on. Raises Failure if it does not come up."""
        state = self._launcher.state
        things = state.record.things
        ended = [process for process in state.processes() if process.name == SWITCH]
        place = min((things.index(process) for process in ended), default=0)
        self.start()  # the other stays on record until then, lest a crash in between forget that there is a switch
        for process in ended:
            state.undo(process)
        # In the place of the other, so that the functions end before it.
        things.remove(self._running())
        things.insert(place, self._running())
        state.save()

    def attach(self) -> None:
        """Takes up a switch that runs already. Raises Failure if it does not answer."""
        state = self._launcher.state
        found = [process for process in state.processes() if process.name == SWITCH]
        if not found or not found[0].id.alive():
            raise Failure(f"the switch has ended; resume it with `tailrace up {state.record.spec}`")
        self._process = found[0]
        who = f"the switch (process {self._process.pid})"
        if self._process.id.stopped():
            raise Failure(f"{who} is stopped; let it go on with `kill -CONT {self._process.pid}`")
        try:
            self._connect(self._process)
        except ControlLost:
            raise Failure(
                f"{who} does not answer at {state.control}; see {self._launcher.log(SWITCH)}, or end it with "
                f"`kill -KILL {self._process.pid}` and resume it with `tailrace up {state.record.spec}`"
            ) from None

    def _connect(self, process: Process) -> None:
        """Raises ControlLost, Failure."""
        self._control = connect_when_ready(self._launcher.state.control, process.id.alive, _READY_SECONDS)
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

    # --- configuration ---------------------------------------------------------------------------------------------

    def configuration(self) -> tuple[int, Config]:
        """The version and the whole configuration that runs."""
        answer = self.control.call("config.get")
        return int(answer["version"]), dict(answer["config"])

    def check(self, config: Config, base: int | None = None) -> None:
        """Asks whether a configuration would be taken; changes nothing. Raises Refused or Conflict."""
        self._ask("config.plan", base, config=config)

    def configure(self, config: Config, base: int | None = None) -> int:
        """Makes the whole configuration this one, or changes nothing and raises Refused or Conflict.

        With `base`, only if that version is the current one. Returns the new version.
        """
        return int(self._ask("config.apply", base, config=config)["version"])

    def apply(self, patch: Config, base: int | None = None) -> int:
        """The same with a JSON merge patch (RFC 7386): only what it names changes, None takes away."""
        return int(self._ask("config.apply", base, patch=patch)["version"])

    def _ask(self, method: str, base: int | None, **params: Any) -> Any:
        try:
            return self.control.call(method, **params, **({} if base is None else {"base": base}))
        except ControlError as error:
            if error.code == CONFLICT:
                raise Conflict(f"{error}; look again with `tailrace plan SPEC`") from None
            names_a_key = str(error).partition(".")[0] in SECTIONS
            if names_a_key or error.code in (IN_USE, INVALID_PARAMS, UNKNOWN):
                raise Refused(str(error)) from None
            raise

    # --- ports joined by hand ----------------------------------------------------------------------------------------

    def carry(self, chain: str, ports: Sequence[Port]) -> dict[str, str]:
        uris: dict[str, str] = {}
        config = {port.name: self._port(port, uris) for port in ports}
        wanted, functions = chain_through([port.name for port in ports])
        self.apply({"ports": config, "functions": functions, "chains": {chain: wanted}})
        return uris

    def plug(self, ports: Sequence[Port]) -> dict[str, str]:
        """The same ports, which nothing joins yet."""
        uris: dict[str, str] = {}
        self.apply({"ports": {port.name: self._port(port, uris) for port in ports}})
        return uris

    def release(self, chain: str, ports: Sequence[str]) -> None:
        """Takes away what `carry` has made."""
        _, functions = chain_through(ports)
        self.apply({"chains": {chain: None}, "functions": dict.fromkeys(functions), "ports": dict.fromkeys(ports)})

    def _port(self, port: Port, uris: dict[str, str]) -> Config:
        """A port of the configuration; the URI of its other end is put into `uris`."""
        state = self._launcher.state
        path = state.sockets / f"{port.name}.sock"
        if port.group is not None:
            path = listening_at(state, port.name, port.group)
        if port.interface in KERNEL:
            if self._network is None:
                raise Mistake(f"{port.name}: {port.interface} needs a network namespace")
            interface, uris[port.name] = kernel_port(self._network, port)
            return {"kind": "device", "device": f"if:{interface}"}
        if port.interface == "memif":
            path = make_folder(state, port.name) / "link.sock"
            uris[port.name] = f"memif:{path},role=client"
            return {"kind": "device", "device": f"memif:{path},role=server"}
        state.add(FilePath(str(path)))
        listens = port.interface == "vhost-user-client"
        uris[port.name] = f"vhost-server:{path}" if listens else f"vhost:{path}"
        mode = "client" if listens else "server"
        return {"kind": "guest", "path": str(path), "mode": mode, "offloads": self._options.offloads}

    # --- looking -----------------------------------------------------------------------------------------------------

    def ports(self) -> list[PortState]:
        return port_states(self.control, self._page)

    def layouts(self) -> list[str]:
        """The layout of each guest's rings: split or packed."""
        return [port.attached["layout"] for port in self.ports() if port.attached]

    def rule_packets(self) -> list[int]:
        """The frames of each chain until now, both ways together."""
        return [each["forward"]["packets"] + each["back"]["packets"] for each in self.control.call("chain.list")]

    def worker_cycles(self) -> dict[str, int]:
        """The worker's busy and idle cycles and polls, as counted by itself."""
        for slot in self._page.slots() if self._page else []:
            if slot.kind == "worker":
                return slot.counters
        return {}

    def counters(self) -> Counters:
        """What its first worker has counted until now. Raises Fault if there is none."""
        worker = self.worker_cycles()
        if not worker:
            raise Fault("tailrace-switch shows no worker in its counters")
        dropped = sum(sum(port.drops.values()) for port in self.ports())
        return Counters(worker["packets"], worker["busy_cycles"], worker["idle_cycles"], dropped)

    def processes(self) -> list[Process]:
        return [self._process] if self._process else []

    def version(self) -> dict[str, str]:
        answer = self.control.call("version")
        return {answer["program"]: answer["version"], "dpdk": answer["dpdk"].removeprefix("DPDK ")}

    def close(self) -> None:
        """Leaves the switch running."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._page is not None:
            self._page.close()
            self._page = None

    def stop(self) -> None:
        self.close()
        if self._process is not None:
            problem = self._launcher.state.undo(self._process)
            self._process = None
            if problem:
                raise Failure(problem)


def chain_through(ports: Sequence[str]) -> tuple[Config, Config]:
    """A chain, and the functions that it goes through, from all their ports in order: each function has two of them."""
    inner = ports[1:-1]
    functions = {}
    for left, right in zip(inner[::2], inner[1::2], strict=True):
        name, _, _ = left.rpartition(".")
        functions[name or f"{left}-{right}"] = {"replicas": {"only": {"left": left, "right": right}}}
    return {"from": ports[0], "through": list(functions), "to": ports[-1]}, functions


def port_states(control: Control, page: Page | None) -> list[PortState]:
    """All ports of a running switch, with their counters from its page."""
    counters = page.ports() if page else {}
    return [
        PortState(
            entry["name"],
            entry["state"],
            entry.get("reason"),
            counters.get(entry["name"], {}),
            entry.get("attached"),
            entry.get("bond"),
        )
        for entry in control.call("port.list")
    ]
