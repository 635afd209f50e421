"""What is up on this machine, on record before it exists, so that it can be undone after any end.

One folder (/run/tailrace for root) holds state.json, sockets, the counter page and logs. Every thing that outlives a
function call is recorded first and made afterwards, and is forgotten only when it is gone. The record is
replaced whole (write, rename), so a reader never sees half of one. Undoing goes backwards and may be repeated.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import TypeAdapter

from tailrace.errors import Failure, Mistake
from tailrace.kernel.acl import withdraw
from tailrace.kernel.boot import boot_id
from tailrace.kernel.tree import Tree
from tailrace.process import lock, units
from tailrace.process.plain import last_line
from tailrace.process.process import ProcessId, descendants, end, identify
from tailrace.process.programs import run_system, system_program
from tailrace.resources import hugepages
from tailrace.resources.claim import Pages
from tailrace.resources.ledger import remove_claim, unclaim_pages
from tailrace.state.folder import ENVIRONMENT, no_folder, run_folder
from tailrace.state.function_tracer import disarm_here
from tailrace.state.ours import clear, clear_sockets, leave, mark, marked, take
from tailrace.state.room import Room

FORMAT = 1
_MOST_MOVES = 64
"""That are remembered. Who asks does so within seconds, and what is not known is not started anew."""
_GROWTH = 16 << 10
"""By which a record may grow while room is kept for it."""


@dataclass(frozen=True)
class Thing(ABC):
    """Something of ours on the machine, and how it is undone."""

    kind: ClassVar[str]

    @property
    def whose(self) -> str | None:
        """The name of the process that it is, or that it was made for; None where it is the whole node's."""
        return None

    @abstractmethod
    def undo(self) -> str | None:
        """Undoes it; doing so again is harmless. Returns why it could not, or None."""


@dataclass(frozen=True)
class Process(Thing):
    """A process and, where it is a sandbox, what runs inside it."""

    kind = "process"
    name: str
    pid: int
    start: int
    program: str = ""
    runtime: str = ""
    """Of a function: where it lives (`tailrace.functions.runtimes`)."""
    writer_pid: int = 0
    """Of whoever writes its log (`tailrace.process.log_writer`) and ends after it; 0: it does that itself."""
    writer_start: int = 0
    unit: str = ""
    """The unit of systemd's that it is (`tailrace.process.units`): on record before it has a process."""
    outside: str = ""
    """The name by which the program that has started it (podman, libvirt) knows it."""

    @property
    def whose(self) -> str:
        return self.name

    @property
    def id(self) -> ProcessId:
        return ProcessId(self.pid, self.start)

    @property
    def writer(self) -> ProcessId:
        return ProcessId(self.writer_pid, self.writer_start)

    def wait_for_words(self, seconds: float) -> None:
        """Waits, once it has ended, until what it said last is in its log, at most so long."""
        if self.unit:
            units.wait_until_empty(self.unit, seconds)
        else:
            self.writer.wait(seconds)

    def inner(self) -> list[ProcessId]:
        """The processes below it, outermost first."""
        if not self.id.alive():
            return []
        return [name for name in (identify(pid) for pid in descendants(self.pid)) if name is not None]

    def undo(self) -> str | None:
        inner = self.inner()
        # The program in a sandbox ends cleanly if it hears SIGTERM itself; the sandbox's own would only kill it.
        gone = bool(inner) and end(inner[-1], grace=2.0) and self.id.wait(1.0)
        if not gone and not end(self.id):
            return f"process {self.pid} ({self.name}) does not end; see `cat /proc/{self.pid}/stack`"
        for name in inner:
            if not name.wait(2.0) and not end(name):
                return f"process {name.pid} (inside {self.name}) does not end"
        if not self.writer.wait(2.0) and not end(self.writer, grace=0.0):
            return f"process {self.writer_pid}, which writes the log of {self.name}, does not end"
        if self.unit and (problem := units.stop(self.unit)) is not None:
            return f"unit {self.unit} ({self.name}): {problem}"
        return None


def _what_lies_at(path: str) -> str:
    """A name for this very file, empty if there is none. An inode's number alone is soon another file's."""
    try:
        found = os.lstat(path)
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}:{found.st_ctime_ns}"


@dataclass(frozen=True)
class FilePath(Thing):
    """A socket or a file."""

    kind = "file"
    path: str
    before: str = field(default="", compare=False)
    """What lay there when this was put on record, to be replaced: while it still does, it is somebody else's."""

    @classmethod
    def to_be(cls, path: str) -> FilePath:
        """What is about to be made where a leftover of somebody may lie."""
        return cls(path, _what_lies_at(path))

    def undo(self) -> str | None:
        if self.before and _what_lies_at(self.path) == self.before:
            return None
        try:
            Path(self.path).unlink(missing_ok=True)
        except OSError as error:
            return f"{self.path}: {error.strerror}"
        return None


@dataclass(frozen=True)
class Claimed(Thing):
    """The file that says what of the machine is held (`tailrace.resources.ledger`)."""

    kind = "claim"
    path: str

    def undo(self) -> str | None:
        try:
            remove_claim(Path(self.path))
        except OSError as error:
            return f"{self.path}: {error.strerror}"
        return None


@dataclass(frozen=True)
class Folder(Thing):
    """A folder with sockets in it."""

    kind = "folder"
    path: str

    @property
    def whose(self) -> str:
        return Path(self.path).name.rpartition(".")[0]

    def give(self, mode: int, user: int = -1, group: int = -1) -> None:
        """Sets who may enter it and write there; -1: its owner stays. Whatever has taken its place is left alone."""
        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchown(handle, user, group)
            os.fchmod(handle, mode)
        finally:
            os.close(handle)

    def undo(self) -> str | None:
        try:
            self.give(0o700)
            shutil.rmtree(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            return f"{self.path}: {error.strerror}"
        return None


@dataclass(frozen=True)
class HugePages(Thing):
    """Huge pages of one size added to the pool of a node, or of the machine."""

    kind = "hugepages"
    before: int
    added: int
    there: bool = False
    """Whether they have been added; the record is older than the act."""
    node: int | None = None
    """The node whose CPUs they are for."""
    kib: int = hugepages.PAGE_KIB
    """The size of each."""
    claim: str = ""
    """The file that says so too, once they are there (`tailrace.resources.ledger`)."""

    def undo(self) -> str | None:
        base = hugepages.pool_of(self.node, kib=self.kib)
        try:
            with hugepages.alone():
                extra = self.added
                if not self.there:
                    # After a crash before the act there is nothing above `before`, if nobody else adds pages.
                    extra = min(extra, max(hugepages.pool(base).total - self.before, 0))
                elif self.claim:
                    extra = unclaim_pages(Path(self.claim), Pages(self.kib, extra, self.node, self.before))
                return self._remove(extra, base)
        except (Failure, Mistake) as error:
            return f"huge pages: {error}"

    def _remove(self, extra: int, base: Path) -> str | None:
        try:
            hugepages.remove(extra, base)
        except OSError as error:
            left = max(hugepages.pool(base).total - extra, 0)
            return f"{extra} huge pages: {error.strerror}; run `{hugepages.command(left, base)}`"
        return None


@dataclass(frozen=True)
class Cgroup(Thing):
    """A cgroup that limits the memory of one sandbox."""

    kind = "cgroup"
    path: str

    @property
    def whose(self) -> str:
        return self.path.rpartition("/")[2].split("-", 2)[-1]

    def undo(self) -> str | None:
        deadline = time.monotonic() + 2
        while True:
            try:
                Path(self.path).rmdir()
                return None
            except FileNotFoundError:
                return None
            except OSError as error:  # busy while the kernel still buries the last process
                if time.monotonic() > deadline:
                    return f"cgroup {self.path}: {error.strerror}"
                time.sleep(0.02)


class MadeFor(Thing):
    """Something that somebody else keeps, made for one process."""

    of: str
    """That one's name."""

    @property
    def whose(self) -> str:
        return self.of


@dataclass(frozen=True)
class Scope(MadeFor):
    """A scope of systemd's, which holds one sandbox to its memory; it goes with its last process."""

    kind = "scope"
    unit: str
    of: str

    def undo(self) -> str | None:
        problem = units.stop(self.unit)
        return f"scope {self.unit}: {problem}" if problem is not None else None


@dataclass(frozen=True)
class MachineFile(MadeFor):
    """A file that a machine has while it runs."""

    kind = "machine file"
    path: str
    of: str

    def undo(self) -> str | None:
        return FilePath(self.path).undo()


@dataclass(frozen=True)
class Admitted(MadeFor):
    """A file of the host's that a machine's own user may use while it runs."""

    kind = "admitted user"
    path: str
    of: str
    user: int

    def undo(self) -> str | None:
        try:
            withdraw(Path(self.path), "user", self.user)
        except FileNotFoundError:
            pass
        except OSError as error:
            return f"{self.path}: {error.strerror}"
        return None


@dataclass(frozen=True)
class VfioFile(MadeFor):
    """The file of a device's IOMMU group, which QEMU may open for a machine."""

    kind = "vfio file"
    path: str
    of: str
    address: str
    """Of the device, on the PCI bus."""
    user: int
    """Whose it was."""
    bound: bool = False
    """To vfio-pci by libvirt, for this: then its own driver gets it back."""
    card: str = ""
    number: int = 0
    """Of a virtual function in front of a port: its card has the machine's address for it until then."""
    leaves: bool = False
    """The machine's system has been asked to let go of it."""

    def undo(self) -> str | None:
        from tailrace.process import hypervisor
        from tailrace.state.card_functions import take_address

        if self.card:
            take_address(Tree(), self.card, self.number)
        try:
            os.chown(self.path, self.user, -1)
        except FileNotFoundError:  # vfio-pci has no device of it any more
            pass
        except OSError as error:
            return f"{self.path}: {error.strerror}"
        return hypervisor.give_back(self.address) if self.bound else None


@dataclass(frozen=True)
class Follower(MadeFor):
    """Who gives the virtual CPUs of a machine the priority of what it runs, and gives the planned one back when it
    ends: by itself once the machine has."""

    kind = "follower"
    pid: int
    start: int
    of: str
    unit: str = ""
    cpus: tuple[int, ...] = ()
    """That it runs on."""
    planned: tuple[tuple[int, int, int], ...] = ()
    """The machine's threads that it changes, each with its policy and priority of before."""

    @property
    def id(self) -> ProcessId:
        return ProcessId(self.pid, self.start)

    def undo(self) -> str | None:
        return Process(f"{self.of}.priority", self.pid, self.start, unit=self.unit).undo()


@dataclass(frozen=True)
class RealTimeGroups(MadeFor):
    """Cgroups of a machine's threads that had no time at real-time priority (`tailrace.process.real_time_groups`)."""

    kind = "real-time groups"
    paths: tuple[str, ...]
    of: str

    def undo(self) -> str | None:
        from tailrace.process.real_time_groups import take_back

        take_back(self.paths)
        return None


@dataclass(frozen=True)
class Container(MadeFor):
    """A container of podman's."""

    kind = "container"
    name: str
    of: str

    def removal(self) -> list[str]:
        """The command that ends it and leaves nothing of it."""
        return [system_program("podman"), "rm", "--force", "--time", "2", "--ignore", self.name]

    def undo(self) -> str | None:
        for _ in range(2):
            try:
                done = subprocess.run(self.removal(), capture_output=True, text=True, timeout=60, check=False)
            except subprocess.TimeoutExpired:
                return f"container {self.name}: podman has not removed it within 60 s"
            if done.returncode == 0:
                return None
            if done.returncode > 0:
                break
        how = "podman failed" if done.returncode > 0 else f"podman was killed by signal {-done.returncode}, twice"
        return f"container {self.name}: {last_line(done.stderr, how)}"


@dataclass(frozen=True)
class Domain(MadeFor):
    """A machine of libvirt's, which forgets it when its QEMU has ended: what is left of it after that is a name."""

    kind = "domain"
    name: str
    of: str

    def undo(self) -> str | None:
        from tailrace.process.hypervisor import end_machine

        try:
            end_machine(self.name)
        except (Failure, Mistake) as error:
            return f"machine {self.name}: {error}"
        return None


@dataclass(frozen=True)
class Tap(MadeFor):
    """A TAP interface that stays while nobody has it open."""

    kind = "tap"
    name: str
    of: str

    def undo(self) -> str | None:
        if not Path("/sys/class/net", self.name).exists():
            return None
        return _ip(f"interface {self.name}", "link", "delete", self.name)


def _ip(what: str, *words: str) -> str | None:
    """Runs ip(8); returns why that failed, or None."""
    try:
        run_system("ip", *words)
    except Failure as error:
        return f"{what}: {error}"
    return None


@dataclass(frozen=True)
class Namespace(Thing):
    """A network namespace, with the interfaces in it."""

    kind = "namespace"
    name: str
    of: str = ""
    """The function that lives there, whichever instance of it; none: it is the whole node's."""

    def undo(self) -> str | None:
        if not Path("/run/netns", self.name).exists():
            return None
        return _ip(f"network namespace {self.name}", "netns", "delete", self.name)


@dataclass(frozen=True)
class Offloads(Thing):
    """Offloads of a Linux interface that were switched, as they were before."""

    kind = "offloads"
    interface: str
    namespace: str | None
    before: dict[str, bool]

    def undo(self) -> str | None:
        from tailrace.resources.ethtool import set_offloads

        try:
            set_offloads(self.interface, self.namespace, self.before)
        except (Failure, Mistake, OSError):
            return None  # the interface has gone, and its settings with it
        return None


@dataclass(frozen=True)
class MadeFunctions(Thing):
    """Virtual functions that a card had not."""

    kind = "virtual functions"
    path: str
    """The card's PCI address."""
    count: int
    autoprobe: str | None
    """Whether Linux's drivers took new ones (sriov_drivers_autoprobe), before."""

    def undo(self) -> str | None:
        from tailrace.resources.virtual_functions import unmake

        return unmake(Tree(), self.path, self.count, self.autoprobe)


@dataclass(frozen=True)
class TakenFunction(Thing):
    """A virtual function that is the switch's, as it was before."""

    kind = "virtual function"
    path: str
    """Its PCI address."""
    card: str
    number: int
    driver: str
    """That had it; empty: none."""
    override: str
    made: bool
    """Whether it was made for this: then it goes with all that was set."""
    before: dict[str, Any]
    """What its card did with it (`tailrace.resources.card_netlink`)."""
    changed: list[str] = field(default_factory=list, compare=False)
    """What of that may be otherwise now."""

    def undo(self) -> str | None:
        from tailrace.state.card_functions import give_back

        return give_back(self, Tree())


@dataclass(frozen=True)
class ArmedTracer(Thing):
    """This kernel's tracer of functions, armed."""

    kind = "function tracer"
    note: str
    """The file with what was set before."""
    instance: str
    """Of the kernel's tracer, where it is armed in one."""

    def undo(self) -> str | None:
        return disarm_here(self.note, self.instance)


_EVERY: tuple[type[Thing], ...] = (
    Process, FilePath, Claimed, Folder, HugePages, Cgroup, Scope, MachineFile, Admitted, VfioFile, Follower,
    RealTimeGroups, Container, Domain, Tap, Namespace, Offloads, MadeFunctions, TakenFunction, ArmedTracer,
)  # fmt: skip
_KINDS = {kind.kind: kind for kind in _EVERY}


@dataclass(frozen=True)
class Granted:
    """What a switch has kept at its start, and cannot have later."""

    capabilities: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    pci: bool = False


@dataclass(frozen=True)
class Planned:
    """A plan as data (`Plan.as_data`), and the spec that it was made of."""

    plan: dict[str, Any]
    spec: str


@dataclass(frozen=True)
class Change:
    """A change at work: what is to be ended, or undone, where a crash cuts it short."""

    to: Planned
    previous: Planned | None
    """What `tailrace rollback` goes back to when it is made."""
    instances: dict[str, int]
    """Which instance of a function runs then, as `Record.instances`."""
    config: dict[str, Any]
    """The switch's configuration then, whole."""
    start: list[str]
    """The functions that it starts."""
    stop: list[str]
    """The processes that it ends when the switch has changed over."""
    staged: list[str]
    """The ports that it adds before that."""
    around: list[str] = field(default_factory=list)
    """As `Record.around`, then."""
    arrived: bool = False
    """A machine that it starts has come from another node, and is there no more: it is made, whatever happens."""
    move: str = ""
    """Which move of a machine from another node it is made for."""


@dataclass(frozen=True)
class Unsettled:
    """A machine that has ended here for another node, which has not said that it has it."""

    host: str
    """As `tailrace migrate` was told."""
    move: str
    """The move, by a name that no other one has, on any host."""


@dataclass(frozen=True)
class Outages:
    """How often a function was out, by what its chains did meanwhile, and what was lost (`tailrace.node.outages`)."""

    bypass: int = 0
    block: int = 0
    drop: int = 0
    lost: int = 0
    """Frames for its ports while nobody was attached, of instances that were replaced."""
    last: tuple[str, ...] = ()
    """The processes that had ended the last time."""

    @property
    def counts(self) -> dict[str, int]:
        return {key: value for key, value in vars(self).items() if key != "last"}


@dataclass
class Record:
    """state.json as data."""

    boot: str
    purpose: str = "up"
    """`up` (lives on by itself) or `run` (belongs to a measurement that runs now)."""
    owner: ProcessId | None = None
    plan: dict[str, Any] = field(default_factory=dict)
    spec: str = ""
    complete: bool = False
    """Everything of the plan has started."""
    instances: dict[str, int] = field(default_factory=dict)
    """Which instance of a function runs, where it is not the first (`tailrace.switch.config`)."""
    version: int = 0
    """The version of the switch's configuration that this plan was made into."""
    previous: Planned | None = None
    """What `tailrace rollback` goes back to."""
    changing: Change | None = None
    around: list[str] = field(default_factory=list)
    """Functions that have ended, of which the switch uses none."""
    stopped: list[str] = field(default_factory=list)
    """Functions (or replicas) that an operator has stopped: they stay so until they are started."""
    unsettled: dict[str, Unsettled] = field(default_factory=dict)
    """Of these, machines that have ended here for another node (`tailrace migrate`)."""
    moved: dict[str, str] = field(default_factory=dict)
    """Of these, machines that are at another node, by its name as `tailrace migrate` was told."""
    moves: dict[str, bool] = field(default_factory=dict)
    """Of the last moves to here that have ended: whether the machine came. False: its copy here has ended, and never
    went on."""
    restarts: dict[str, int] = field(default_factory=dict)
    """How often what has ended by itself was started again, by name."""
    outages: dict[str, Outages] = field(default_factory=dict)
    """Of functions that were out."""
    groups: dict[str, int] = field(default_factory=dict)
    """The groups of functions, by number (`tailrace.switch.confine`)."""
    kept: str = ""
    """The file that brings it back after a boot; it goes when this is taken down."""
    granted: Granted = Granted()
    """To the switch that runs."""
    things: list[Thing] = field(default_factory=list)


class State:
    """The folder and the record in it, held by one process at a time."""

    def __init__(self, folder: Path, record: Record, *, known: bool = False) -> None:
        """`known`: the folder is ours, for there is a record of ours in it."""
        self.folder = folder
        self.record = record
        self._alone = threading.RLock()
        """Functions are started by several threads."""
        self._texts: dict[int, tuple[object, str]] = {}
        """What was written last and is never altered in place, by its id: itself, and as JSON."""
        self.known = known
        self._taken = False
        self._rooms: list[Room] = []
        """For saves that a full disk would refuse otherwise."""

    # --- files -----------------------------------------------------------------------------------------------------

    @property
    def sockets(self) -> Path:
        return self.folder / "sockets"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def control(self) -> Path:
        return self.sockets / "switch.control"

    @property
    def page(self) -> Path:
        return self.sockets / "switch.page"

    @property
    def config(self) -> Path:
        """Where the switch keeps its configuration, for the one that is started when it has crashed."""
        return self.sockets / "switch.config"

    @property
    def group(self) -> int:
        """The group, by number, that may enter the folder of sockets; root's before it is there."""
        try:
            return self.sockets.stat().st_gid
        except FileNotFoundError:
            return 0

    # --- the record ------------------------------------------------------------------------------------------------

    def add(self, *things: Thing) -> None:
        """Puts things on record; to be called before they are made."""
        if not things:
            return
        with self._alone:
            self.record.things.extend(things)
            self.save()

    def keep_change(self) -> None:
        """The change at work is made whatever happens: a machine has come for it, and is nowhere else."""
        with self._alone:
            if self.record.changing is not None:
                self.record.changing = replace(self.record.changing, arrived=True)
                self.note_move(came=True)
                self.save()

    def note_move(self, *, came: bool) -> None:
        """Notes how the move has ended that the change at work is for, if it is for one; to be saved after that. What
        has come stays so, whatever becomes of it here."""
        if self.record.changing is not None and (move := self.record.changing.move):
            moves = self.record.moves
            moves[move] = moves.get(move, False) or came
            for old in list(moves)[:-_MOST_MOVES]:
                del moves[old]

    def group_of(self, function: str, numbers: range, first: int, others: Callable[[], set[int]] = set) -> int:
        """The group of a function: the same for as long as the record is kept, and no other function's. One that has
        none yet is given the first that is free, in a circle from `first` on, and none of `others`. Raises Failure if
        none is."""
        with self._alone:
            groups = self.record.groups
            if function not in groups:
                taken = {*groups.values(), *others()}
                free = (each for each in (*numbers[first:], *numbers[:first]) if each not in taken)
                number = next(free, None)
                if number is None:
                    raise Failure(f"{function}: {len(numbers)} functions have had a group here; run `tailrace down`")
                groups[function] = number
                self.save()
            return groups[function]

    def alter(self, thing: Thing, now: Thing) -> None:
        """Puts on record what has become of a thing."""
        with self._alone:
            self.record.things[self.record.things.index(thing)] = now
            self.save()

    def undo(self, thing: Thing) -> str | None:
        """Undoes one thing and forgets it, also where that cannot be written down: a full disk is no reason to leave
        something running."""
        problem = thing.undo()
        if problem is None and thing in self.record.things:
            self.record.things.remove(thing)
            with suppress(Unwritable):
                self.save(rooms=False)
        return problem

    def undo_all(self) -> list[str]:
        """Undoes everything, last first; returns what could not be."""
        problems = []
        for thing in reversed(list(self.record.things)):
            problem = self.undo(thing)
            if problem is not None:
                problems.append(problem)
        if problems:
            try:
                self.save()  # what has been undone is not to be undone with the rest
            except Unwritable as error:
                problems.append(str(error))
            return problems
        if not (self.known or marked(self.folder)):
            return []
        return clear(self.folder)

    def processes(self) -> list[Process]:
        return [thing for thing in self.record.things if isinstance(thing, Process)]

    @contextmanager
    def room_kept(self, saves: int) -> Iterator[None]:
        """For the block, room for so many saves: those are made also where the disk is full by then. Raises
        Unwritable."""
        try:
            try:
                for _ in range(saves):
                    self._rooms.append(Room(self.folder, (self.folder / "state.json").stat().st_size + _GROWTH))
            except OSError as error:
                raise self._unwritable(error) from None
            yield
        finally:
            while self._rooms:
                self._rooms.pop().close()

    def save(self, *, rooms: bool = True) -> None:
        """`rooms`: where there is no other, it takes one that is kept (`room_kept`). Raises Unwritable; the record is
        then as it was. Raises Mistake where the folder is somebody else's."""
        record = self.record
        small = {
            "format": FORMAT,
            "boot": record.boot,
            "purpose": record.purpose,
            "owner": record.owner,
            "spec": record.spec,
            "complete": record.complete,
            "instances": record.instances,
            "version": record.version,
            "around": record.around,
            "stopped": record.stopped,
            "unsettled": record.unsettled,
            "moved": record.moved,
            "moves": record.moves,
            "restarts": record.restarts,
            "outages": record.outages,
            "groups": record.groups,
            "kept": record.kept,
            "granted": record.granted,
        }
        texts = {key: json.dumps(value, default=vars) for key, value in small.items()}
        # Hundreds of things are put on record one after the other: what is the same as before is not encoded again.
        kept: dict[int, tuple[object, str]] = {}
        for key, value in (("previous", record.previous), ("changing", record.changing), ("plan", record.plan)):
            texts[key] = self._text(value, kept)
        texts["things"] = f"[{', '.join([self._text(thing, kept) for thing in record.things])}]"
        self._texts = kept
        # With an indent it takes five times as long, and with asdict() twice.
        text = "{" + ", ".join(f'"{key}": {text}' for key, text in texts.items()) + "}\n"
        try:
            self._take()
            try:
                self._new.write_text(text)
            except OSError as error:
                if not (rooms and self._rooms) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                with self._rooms.pop() as room:
                    room.write(self._new, text)
            self._new.replace(self.folder / "state.json")
        except OSError as error:
            with suppress(OSError):  # half of one
                self._new.unlink()
            raise self._unwritable(error) from None

    @property
    def _new(self) -> Path:
        return self.folder / "state.json.new"

    def _unwritable(self, error: OSError) -> Unwritable:
        return Unwritable(
            f"{self._new}: {error.strerror}, so what is up cannot be recorded; make room there and try again"
        )

    def _text(self, value: object, kept: dict[int, tuple[object, str]]) -> str:
        """A thing or a plan as JSON, which is never altered in place."""
        known = self._texts.get(id(value))
        if known is None or known[0] is not value:
            data = {"kind": value.kind, **vars(value)} if isinstance(value, Thing) else value
            known = value, json.dumps(data, default=vars)
        kept[id(value)] = known
        return known[1]

    def clear_sockets(self) -> list[str]:
        """Takes the folder, and removes what is ours in its folder of sockets, also what a record that was lost has
        left; returns what could not be. Raises Mistake where the folder is somebody else's, Unwritable."""
        try:
            self._take()
        except OSError as error:
            raise Unwritable(f"{self.folder}: {error.strerror}; make room there and try again") from None
        return clear_sockets(self.folder)

    def _take(self) -> None:
        if not self._taken:
            take(self.folder, known=self.known)
            self._taken = self.known = True


class Unwritable(Failure):
    """The record cannot be written."""


class Damaged(Failure):
    """What is in the record makes no sense."""


class Unreadable(Failure):
    """The record may well be whole, and cannot be read now."""


def _load(folder: Path) -> Record:
    path = folder / "state.json"
    try:
        document = json.loads(path.read_text())
        if document["format"] != FORMAT:
            raise Mistake(f"{path}: written by another version of Tailrace; run `tailrace down` of that version")
        things = [_reader(_KINDS[entry["kind"]]).validate_python(entry) for entry in document["things"]]
        record: Record = _reader(Record).validate_python({**document, "things": []})
        if not all(isinstance(each, dict) for part in ("functions", "chains") for each in record.plan.get(part, [])):
            raise TypeError
    except FileNotFoundError:
        return Record(boot=boot_id())
    except OSError as error:
        raise Unreadable(f"{path}: cannot be read ({error.strerror}), so what is up is not known") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise Damaged(
            f"{path}: damaged, so what is up is not known; `tailrace down` ends what can be found of it"
        ) from None
    if record.boot != boot_id():
        # The machine was restarted: processes, cgroups and pages went with it; only files can be left.
        things = [thing for thing in things if isinstance(thing, FilePath | MachineFile | Admitted | Folder | Claimed)]
        record.complete = False
    record.boot, record.things = boot_id(), things
    return record


@cache
def _reader(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def peek(folder: Path) -> Record:
    """The record as it stands, without holding it; for looking only."""
    return _load(folder)


def run_at_work(folder: Path) -> bool:
    """Whether a measurement is at work beside what is up in a folder."""
    try:
        owner = peek(run_folder(folder)).owner
    except (Damaged, Unreadable, Mistake):
        return False
    return owner is not None and owner.alive()


def check_ours(folder: Path) -> None:
    """For who looks: raises Mistake where what is up is another user's. Its sockets would seem to be dead."""
    sockets = folder / "sockets"
    if sockets.exists() and not os.access(sockets, os.X_OK):
        raise Mistake(f"{folder}: what is up there belongs to user {folder.stat().st_uid}; run as that user (sudo)")


@dataclass(frozen=True)
class Held:
    """A folder that this process alone holds."""

    folder: Path

    def take(self) -> None:
        """Marks the folder as ours, before anything is written to it. Raises Mistake where it is somebody else's, or
        another version's, and OSError."""
        if not marked(self.folder):
            with suppress(Damaged):
                peek(self.folder)
                take(self.folder, known=(self.folder / "state.json").is_file())
                return
            take(self.folder, known=False)

    def state(self, *, damaged: bool = False) -> State:
        """The state as it is on record now. `damaged`: also where the record is, as if nothing were on it. Raises
        Damaged."""
        known = (self.folder / "state.json").is_file()
        try:
            record = _load(self.folder)
        except Damaged:
            if not damaged:
                raise
            record, known = Record(boot=boot_id()), False
        return State(self.folder, record, known=known)


@contextmanager
def holding(folder: Path, *, patience: float = 0.0) -> Iterator[Held]:
    """The folder, which is made where it is missing, held by this process alone until the block ends. Raises Mistake if
    another still holds it after `patience` seconds."""
    with _locked(folder, patience):
        yield Held(folder)


@contextmanager
def hold(folder: Path, *, damaged: bool = False) -> Iterator[State]:
    """Its state, for a block that is one operation. Raises Mistake, Damaged, as the two above."""
    with holding(folder) as held:
        yield held.state(damaged=damaged)


@contextmanager
def hold_run(folder: Path, *, damaged: bool = False) -> Iterator[State]:
    """The same of the one measurement that may be at work beside what is up in a folder."""
    ours = False
    with suppress(OSError):  # which hold() says
        ours = _make(folder)
    try:
        with hold(run_folder(folder), damaged=damaged) as state:
            check_owner(folder)
            yield state
    finally:
        if ours:
            leave(folder)


def _at_work(folder: Path, held: lock.Held) -> str:
    """Who holds the folder, and what to do about it: a measurement may last for days, other commands do not."""
    record = peek(folder)
    owner = record.owner
    measures = owner is not None and owner.alive() and record.purpose == "run"
    who = lock.Held(owner.pid) if owner is not None and measures else held
    hint = f"end it with `kill -INT {who.pid}`" if measures else "wait for it to end"
    if "`tailraced " in str(who):
        hint = f"`kill {who.pid}` ends that, and leaves running what is up"
    return f"{who} of Tailrace is at work; {hint}"


def check_owner(folder: Path) -> None:
    """Raises Mistake where others than we may change what is in a folder."""
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Mistake(
            f"{folder}: belongs to somebody else or is open to all; "
            f"run as its owner (sudo), or set {ENVIRONMENT} to a folder of your own"
        )


def _make(folder: Path) -> bool:
    """Makes a folder, and marks it; returns whether it is ours. Raises OSError."""
    try:
        folder.mkdir(mode=0o755, parents=True)
    except FileExistsError:
        if not folder.is_dir():
            raise
        return marked(folder)
    with suppress(OSError):  # it is empty, so it can be taken later
        mark(folder)
    return True


@contextmanager
def _locked(folder: Path, patience: float) -> Iterator[None]:
    """The folder, which is made where it is missing, for this process alone; one of ours goes afterwards if nothing is
    left in it."""
    for _ in range(10):
        try:
            ours = _make(folder)
            check_owner(folder)
        except FileNotFoundError:  # its last holder, or that of the one above it, has just removed it
            continue
        except (FileExistsError, NotADirectoryError):
            raise no_folder(folder) from None
        except OSError as error:
            cure = f"run as root, or set {ENVIRONMENT} to a folder of your own"
            raise Mistake(f"{folder}: {error.strerror}; {cure}") from None
        with ExitStack() as held:
            try:
                held.enter_context(lock.locked(folder / "lock", patience=patience))
            except lock.Held as error:
                raise Mistake(f"{folder} is in use: {_at_work(folder, error)}") from None
            except FileNotFoundError:  # the last holder has just removed the folder
                continue
            except OSError as error:
                raise Mistake(f"{folder}/lock: {error.strerror}; set {ENVIRONMENT} to another folder") from None
            try:
                yield
            finally:
                held.close()
                if ours or marked(folder):
                    leave(folder)
            return
    raise Failure(
        f"{folder}: cannot be made there, or another command keeps removing it; set {ENVIRONMENT} to another folder"
    )
