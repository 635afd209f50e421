"""Where a function lives: one interface, whatever is behind it.

`tailrace.node` knows this interface and nothing of the places behind it, but for moves to another node, which machines
alone can make. Each is a file, and a row of `tailrace.functions.runtimes`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel

from tailrace.errors import Mistake
from tailrace.resources.hugepages import PAGE_KIB
from tailrace.resources.place import Place
from tailrace.resources.virtual_functions import Failover
from tailrace.spec.interface import VHOST_USER
from tailrace.spec.kind import Network
from tailrace.state.launch import Launcher
from tailrace.state.record import Process, State

Behind = Literal["socket", "interface"]
"""What the switch opens as a function's port: a vhost-user socket, or an interface of Linux's that is made for it."""
Load = Literal["rounds", "time", "rings"]
"""How it is read how busy a function is: by the rounds of its loops, which it counts itself (`tailrace.observe.gaps`);
by the CPU time that it takes, which of one that polls says nothing; or, of one that polls and counts nothing that could
be read from outside, by how often frames wait in its rings (`tailrace.observe.unread`)."""


class Runtime:
    """A place where functions live."""

    name: ClassVar[str]
    """The word for it in a spec."""
    counted: ClassVar[str] = "function"
    """What one of its functions is called among all that is up."""
    usual: ClassVar[bool] = False
    """Functions live in it unless a spec says otherwise, so it goes without saying."""
    reserves: ClassVar[bool] = False
    """All memory that its functions may use is the host's to give: together they cannot have more than it has."""

    listens: ClassVar[bool] = False
    """Its functions listen on their sockets, and the switch connects: so they outlive the switch."""

    own_kernel: ClassVar[bool] = False
    """Its functions have one: their networks are set inside, where others have a namespace of the host's."""

    hands_over: ClassVar[bool] = False
    """Connections of its functions go on in the instance that replaces them (`tailrace.functions.handover`)."""

    threads: ClassVar[bool] = False
    """A function of Tailrace's has a thread for each of its CPUs, and a queue for each that it may have."""

    elastic: ClassVar[bool] = False
    """Its functions can have more and fewer CPUs while they run (`Starter.use_cpus`)."""

    def tells_load(self, kind: str | None, driver: str, *, polls: bool) -> Load | None:
        """How it is read how busy such a function is in it, so that it can have more and fewer CPUs by that."""
        del kind, driver, polls
        return None

    def refuses_cpus(self, kind: str | None, start: int, most: int) -> str | None:
        """Why no function of this kind can start in it with so many CPUs, and have `most`; None if one can."""
        del kind
        if start != most and not self.elastic:
            return f"a {self.name} keeps the CPUs that it starts with; expected a number, or `runs: process`"
        return None

    def refuses_automatic(self, kind: str | None, driver: str, interfaces: Sequence[str], *, polls: bool) -> str | None:
        """Why no function of this kind can have its CPUs by its load in it; None if one can."""
        if polls and (kind is not None or not self.own_kernel):
            return "polls: it is said of a machine with an image of your own; of a kind it is known"
        load = self.tells_load(kind, driver, polls=polls)
        if load is None:
            return (
                f"how busy {kind or 'an image'} is in a {self.name} is not known here; expected `runs: process` with a "
                "kind, a machine, or `tailrace function cpus` by hand"
            )
        other = next((each for each in interfaces if each != VHOST_USER), None)
        if load == "rings" and other is not None:
            return (
                f"how busy a guest is that polls shows in rings that the switch serves, and those of {other} it does "
                f"not; expected `interface: {VHOST_USER}`, or `tailrace function cpus` by hand"
            )
        return None

    def refuses_fewer(self, latency: str, *, stacked: bool) -> str | None:
        """Why no function of this latency level can have fewer CPUs than its most in it, where `stacked` says what the
        spec allows; None if one can."""
        del latency, stacked
        return None

    def cpus_without_frames(self, kind: str | None, driver: str, most: int) -> str | None:
        """Why frames are not forwarded by all of the `most` CPUs of such a function in it; None if they are, or it is
        not known."""
        del kind, driver, most
        return None

    def refuses_memory(self, memory: int, kind: str | None, driver: str, tables_mib: int) -> str | None:
        """Why no function of a kind, with such drivers and tables, fits into so many bytes in it; None if one does."""
        del memory, kind, driver, tables_mib
        return None


class Used(BaseModel):
    """What it took to have a function use other CPUs; times in µs from when it was told."""

    queues_moved: int = 0
    """To other threads."""
    vcpus_moved: int | None = None
    """Of a machine: virtual CPUs that are on others now."""
    handed_over_us: int
    first_frame_us: int | None = None
    ended_us: int | None = None


@dataclass(frozen=True)
class Origin:
    """What an instance goes on from, in a file."""

    path: Path
    """As `Starter.save` has written it."""
    copy: bool = False
    """It is another one than what was saved, with an identity of its own."""


@dataclass(frozen=True)
class Arrival:
    """An instance that comes from another node while it runs."""

    domain: str
    """What it is there, in libvirt's words."""
    ready: Callable[[str, str], None]
    """Called with what it is to be here, and its name here, when it can come."""
    go: threading.Event
    """It has ended there, so it goes on here."""
    given_up: Callable[[], str | None]
    """Why it is not to come any more; None: it is."""
    cut_off: Callable[[], bool]
    """Whether the switch has ended at whose ports it has come; once it goes on it outlives that."""
    move: str
    """Its move, by a name that no other one has."""


@dataclass(frozen=True)
class PriorityRange:
    """Bounds for the priority of a machine's virtual CPUs, which follows what its guest runs."""

    least: int
    most: int
    """SCHED_FIFO; 0: an ordinary thread's."""
    tasks: tuple[str, ...] = ()
    """The real-time tasks inside that count, by name; none: all."""
    period_us: int = 1000
    """How often its word is read."""

    def word(self) -> str:
        """All of it, for a kernel's command line."""
        return ":".join(map(str, (self.least, self.most, self.period_us, *self.tasks)))

    @classmethod
    def of_word(cls, word: str) -> PriorityRange:
        """As `word` has written it. Raises ValueError."""
        least, most, period, *tasks = word.split(":")
        return cls(int(least), int(most), tuple(tasks), int(period))


@dataclass(frozen=True)
class Instance:
    """One instance of a function, to be started."""

    name: str
    kind: str
    ports: tuple[str, ...]
    """Its ports in order, as URIs (dataplane/common/device.h): vhost:SOCKET, which is there already;
    vhost-server:SOCKET, memif:SOCKET,ROLE and vdev:net_vhostN,iface=SOCKET, whose folders are its own to make sockets
    in; tap:NAME, if:NAME; pci:ADDRESS of a device that it has to itself."""
    place: Place
    memory_bytes: int
    """The most that it may use."""
    huge: bool
    """Its memory that the switch maps is in huge pages."""
    settings: tuple[str, ...] = ()
    """Of the function, as NAME=VALUE."""
    cpus: int = 1
    """How many it has."""
    most_cpus: int = 1
    """How many it can have."""
    latency: Literal["normal", "medium", "high"] = "medium"
    group: int = 0
    """The group, by number, that may make sockets in its folders."""
    image: str | None = None
    """What it starts from; None: Tailrace's own. One of somebody else's has no kind."""
    origin: Origin | Arrival | None = None
    """What it goes on from; None: it starts anew."""
    interfaces: tuple[str, ...] = ()
    """What a machine's guest sees as each of its ports (`tailrace.spec.interface`)."""
    failover: tuple[Failover, ...] = ()
    """Of a machine: the ports in front of which there may be a virtual function."""
    driver: Literal["dpdk", "linux"] = "dpdk"
    """Whose drivers these have in a machine."""
    plugged: int | None = None
    """Of a machine: how many of its virtual CPUs are there when it boots, where others are plugged into it later."""
    stacked: bool = False
    """Of a machine: its virtual CPUs may share CPUs at any latency level."""
    domain: str | None = None
    """Of a machine: what is merged into libvirt's domain."""
    in_place: str | None = None
    """Of a machine: what its kernel is told in place of what has it run a function (functions/guest/init)."""
    priority: PriorityRange | None = None
    """Of a machine: that of its virtual CPUs follows what its guest runs; None: it stays."""
    tables_mib: int = 0
    """What its program's tables take of DPDK's memory, beside packet buffers."""
    network: str | None = None
    """The network namespace that it lives in, with TAP interfaces that its group may open; None: it has none."""
    inner_network: Network | None = None
    """What its own kernel is told of its network, where it lives in one that has TAP interfaces for its ports."""
    page_kib: int = PAGE_KIB
    """The size of the huge pages."""


@dataclass(frozen=True)
class Started:
    """An instance that was started."""

    process: Process
    notes: Sequence[str] = ()
    """What is to be said of how it lives."""


class Starter(Runtime, ABC):
    """A place where Tailrace starts functions, gives them CPUs and memory, and looks after them."""

    early: ClassVar[bool] = True
    """An instance can be started before the switch has its ports."""
    passes: ClassVar[bool] = False
    """It reaches its folders by their whole paths; others see them elsewhere."""
    images: ClassVar[bool] = True
    """What it starts is of an image."""
    several: ClassVar[bool] = False
    """Instances can be started by several threads at the same time."""
    patience: ClassVar[float] = 30.0
    """Seconds after its start in which an instance forwards, on a busy host too."""

    last_lines: ClassVar[int] = 1
    """How many lines of its log say why an instance has failed."""
    boot_seconds: ClassVar[float] = 0.0
    """Usual seconds until an instance's own system has started, for forecasts; 0: it has none."""
    buffers_mib: ClassVar[int | None] = None
    """Of packet buffers and rings, beside the memory that it may use; None: that holds them, and is shared whole."""

    def shared_bytes(self, memory: int, tables_mib: int = 0) -> int:
        """The most memory that a function which may use `memory` bytes beside its tables shares with the switch."""
        return memory + ((self.buffers_mib or 0) + tables_mib << 20)

    def huge_bytes(self, memory: int, tables_mib: int = 0) -> int:
        """What of it is in huge pages, where there are any."""
        return memory if self.buffers_mib is None else self.buffers_mib + tables_mib << 20

    def ordinary_bytes(self, memory: int, tables_mib: int = 0, *, huge: bool) -> int:
        """The most ordinary memory that it may use. Of a machine: its own; QEMU's has no limit."""
        if self.buffers_mib is None:
            return 0 if huge else memory
        return memory + (0 if huge else self.huge_bytes(memory, tables_mib))

    def behind(self, interface: str) -> Behind:
        """What the switch opens as a port of this kind (`tailrace.spec.interface`)."""
        del interface
        return "socket"

    def refuses_interface(self, interface: str) -> str | None:
        """Why this machine has no such port for its functions, with the cure; None if it has."""
        del interface
        return None

    @abstractmethod
    def check(self) -> None:
        """Whether this machine has what it needs. Raises Mistake with the cure."""

    def check_by_looking(self) -> None:
        """As `check`, without starting anything. Raises Mistake with the cure."""
        self.check()

    def check_image(self, kind: str | None, image: str, settings: Sequence[str]) -> None:
        """Whether this machine has an image that a spec names, as far as that shows by looking. Raises Failure, Mistake
        with the cure."""
        del kind, image, settings

    def check_image_file(self, kind: str | None, image: str, settings: Sequence[str]) -> None:
        """As `check_image`, as far as the image's own file shows it where this machine lacks what it needs. Raises
        Failure, Mistake with the cure."""
        del kind, image, settings

    def check_drivers(self, image: str | None, interfaces: Sequence[str], driver: str) -> None:
        """Whether an image of Tailrace's own has drivers for what a guest sees as its ports, whose they are as
        `driver` says. Raises Mistake with the cure."""
        del image, interfaces, driver

    def check_files(self, settings: Sequence[str]) -> None:
        """Whether the other files that a spec names are there. Raises Mistake, which begins with the key."""
        del settings

    def check_whole_image(self, kind: str | None, image: str, settings: Sequence[str]) -> None:
        """As `check_image`, and whether the image is whole, which may take long. Raises Failure, Mistake with the
        cure."""
        self.check_image(kind, image, settings)

    def prepare(self, launcher: Launcher, instance: Instance) -> None:
        """Makes, on record first, the interfaces that the switch opens as an instance's ports. Raises Failure."""

    @abstractmethod
    def start(self, launcher: Launcher, instance: Instance) -> Started:
        """Starts an instance, all that outlives the call on record first. It does not forward yet. Raises Failure."""

    @abstractmethod
    def wait(self, launcher: Launcher, process: Process, place: Place, deadline: float, *, says: bool = True) -> None:
        """Waits until it forwards; `deadline` is of time.monotonic(). One that does not say so is taken to do that when
        its ports are up, which they are. Raises Fault if it has ended, and Failure after the deadline."""

    @abstractmethod
    def program(self, process: Process) -> int | None:
        """The pid of the function itself, which may be inside its process; None while it is not there."""

    def cpus_of(self, place: Place, cpus: int, most: int) -> list[int]:
        """The CPU of each thread of a function that has so many CPUs, or of each virtual CPU of a machine."""
        del cpus, most
        return list(place.cores)

    def use_cpus(self, state: State, process: Process, cpus: Sequence[int], wait_ms: int = 0) -> Used:
        """Has an instance that is up run on these CPUs from now on, as `cpus_of` says; waits at most so long for frames
        on new ones. Raises Mistake, Failure, and then those before are to be used again."""
        del state, cpus, wait_ms
        raise Mistake(f"{process.name} lives in a {self.name}, which keeps the CPUs that it starts with")

    def save(self, process: Process, path: Path) -> int:
        """Writes an instance that runs, whole, to a file; returns its bytes. What was there stays if that fails. Raises
        Failure, Mistake."""
        del path
        raise self._not_kept(process.name)

    def check_origin(self, name: str, origin: Origin | Arrival) -> None:
        """Whether an instance can go on from there, as far as the file shows it. Raises Mistake."""
        del origin
        raise self._not_kept(name)

    def _not_kept(self, name: str) -> Mistake:
        return Mistake(f"{name} lives in a {self.name}, whose state cannot be kept; expected a machine's name")

    def beside(self, process: Process, words: Sequence[str]) -> list[str]:
        """The command that runs these words where an instance lives. Raises Mistake where nothing can be run there."""
        raise Mistake(f"nothing is run in a {self.name} beside {process.name}; {words[0]} cannot be")

    def unlike(self, process: Process, logs: Path) -> list[str]:
        """What somebody else has changed of an instance that runs, in words. Raises Failure, Mistake."""
        del process, logs
        return []

    @abstractmethod
    def ended_well(self, process: Process, logs: Path) -> bool:
        """Whether an instance that has ended did so by itself and with status 0."""
