"""`tailrace measure interrupts`: from an interrupt that is raised to its arrival in user space of a receiver.

The receiver waits in a process of this host, or in a machine: there the interrupt is an MSI-X vector of a device, which
VFIO gives to it as an eventfd, or that of a network device's receive queue. The sides take turns, and while one is
measured the others stand still.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any, Literal

from tailrace.errors import Failure, Fault
from tailrace.functions import agent
from tailrace.functions.acceleration import acceleration
from tailrace.functions.domain import inner_address
from tailrace.functions.machine import InMachine
from tailrace.functions.priority import follow, follow_again
from tailrace.functions.program import INTERRUPT_RECEIVER
from tailrace.functions.runtime import Instance
from tailrace.measure.beside import BOOT_SECONDS, Guest, Loads, Neighbour
from tailrace.measure.causes import Poller
from tailrace.measure.discipline import Watched, source
from tailrace.measure.function_trace import FunctionPaths, FunctionTracer
from tailrace.measure.guest_recorder import GuestRecorder
from tailrace.measure.host.plan import HostPlan
from tailrace.measure.host.run import elapsed, measure_host
from tailrace.measure.host.tools import PRIORITY, Progress, Setting, Slice
from tailrace.measure.interrupt_causes import InterruptCauses
from tailrace.measure.interrupt_trace import Trace
from tailrace.measure.progress import Reporter
from tailrace.measure.recorder import Recorder
from tailrace.process.control import Control, ControlLost, connect_when_ready
from tailrace.process.hypervisor import vcpu_thread
from tailrace.process.process import Limits
from tailrace.process.programs import own_program
from tailrace.resources.place import Place
from tailrace.results import RunFolder
from tailrace.results.histogram import Histogram
from tailrace.results.host import Budget
from tailrace.state.launch import Launcher, why_ended
from tailrace.state.record import FilePath, Follower, Process
from tailrace.switch.confine import group_for, let_pass, make_folder

SENDER = "tailrace-interrupts"
NATIVE, TUNED, UNTUNED = SIDES = ("native", "tuned", "untuned")
RECEIVER, SENDS = "receiver", "sender"
"""What the CPUs are for."""
Way = Literal["msix", "vring", "ipi", "timer"]
"""How interrupts come to a machine: by a device's MSI-X, by the receive queue of a network device (virtio), from
another of its CPUs, by its own timer. To a process of this host they come by an eventfd, or in the last two ways."""
FIGURES: Mapping[Way, str] = {"msix": "interrupt", "vring": "vring", "ipi": "ipi", "timer": "wakeup"}
"""What the figures of receivers are called."""
_SENT: tuple[Way, ...] = ("msix", "vring")
"""Where it is raised from here."""
_LOST = "interrupts did not arrive within a second"
_OVERWRITTEN = "wake-ups were not read before later ones took their place"
_LOST_MEANS: Mapping[Way, str] = {"timer": _OVERWRITTEN, "ipi": _OVERWRITTEN}
Clock = Literal["monotonic", "tai"]
TIMER = "timer"
"""The figure of how much later than asked interrupts were raised."""
_START_SECONDS = 1.0
_READY_SECONDS = 10.0
_LOOK_SECONDS = 0.2
_CLOCK_SECONDS = 1.0
"""From one look at who disciplines the clock to the next."""
_QUESTION_PERIODS = 5000
"""From one question to a machine's recorder to the next: in each there are some ten events, and it holds 127,000."""
_PATIENCE = 200.0
"""Seconds beyond its time until a slice counts as stuck: who raises waits a minute for an answer up to three times."""
_DEVICE = "0000:00:07.0"
"""The interrupt's in a machine: below the places of ports."""
_NIC = inner_address(0)
"""The network device's."""
_DOMAIN = """\
<features><ioapic driver='qemu'/></features>
<devices>
  <iommu model='intel'><driver intremap='on'/></iommu>
  <shmem name='interrupts'>
    <model type='ivshmem-doorbell'/>
    <server path='{socket}'/>
    <msi vectors='1'/>
    <address type='pci' domain='0x0000' bus='0x00' slot='0x07' function='0x0'/>
  </shmem>
</devices>
"""


GUESTS: Mapping[str, Guest] = {TUNED: Guest("high"), UNTUNED: Guest("normal")}
"""What there is where no spec says more."""


@dataclass
class Account:
    """What became of all moments of a side: raised + held + reset, and raised = arrived + lost + wrong."""

    lost_means: str = _LOST
    raised: int = 0
    lost: int = 0
    wrong: int = 0
    held: int = 0
    reset: int = 0
    clock_error_ns: float = 0.0
    ipis: int = 0
    """Interprocessor interrupts of the CPU meanwhile, by its system's word."""
    recording_ns: int = 0
    """What it took the receiver to write an interrupt down, by its word; on average in the slice with the highest."""

    def add(self, result: Mapping[str, Any]) -> None:
        for name in ("raised", "lost", "wrong", "held", "reset", "ipis"):
            setattr(self, name, getattr(self, name) + int(result[name]))
        self.recording_ns = max(self.recording_ns, int(result.get("recording_ns", 0)))
        self.clock_error_ns = max(self.clock_error_ns, float(result["clock_error_ns"]))

    def notes(self, side: str) -> Iterator[str]:
        """What is to be said of them."""
        if self.lost:
            yield f"{side}: {self.lost} of {self.raised} {self.lost_means}"
        if self.wrong:
            yield f"{side}: of {self.wrong} of {self.raised} interrupts the receiver named a time that cannot be true"
        if self.held:
            yield (
                f"{side}: {self.held} times no interrupt was raised, because the one before had not arrived: the "
                "period is too short for it"
            )
        if self.reset:
            yield f"{side}: {self.reset} times the clock was set, and the moments began anew from there"
        if self.ipis:
            yield f"{side}: its system has counted {self.ipis} interprocessor interrupts for {self.raised} wake-ups"
        if self.recording_ns:
            yield f"{side}: to write an interrupt down took its receiver {self.recording_ns / 1000:.3f} µs"
        if self.clock_error_ns > 0:
            yield f"{side}: its clock and this host's are joined within {self.clock_error_ns / 1000:.2f} µs"


@dataclass
class Side:
    """One receiver, and who raises its interrupts. On its first path a tool of `measure host`'s runs, whose slices take
    turns; for the others, `tools`."""

    side: str
    period_ns: int
    guest: Guest | None = None
    """None: the receiver is a process of this host."""
    budget_ns: int | None = None
    """Within which each is to arrive."""
    clock: Clock = "monotonic"
    """By which they are due at whole periods."""
    paths: tuple[Way, ...] = ("msix",)
    """On which it is measured, in turn."""
    follows: bool = True
    """The priority of the machine's CPU follows what it runs, where its guest has bounds for that."""
    accounts: dict[Way, Account] = field(default_factory=dict)
    causes: InterruptCauses | None = None
    """Who finds out why the slowest were slow, where that is asked for."""
    trace: Trace | None = None
    """Who is told of all that happened meanwhile, where that is asked for."""
    remarks: list[str] = field(default_factory=list)
    """What has happened."""
    meanwhile: Callable[[], None] = lambda: None
    """Called now and then while it is measured."""
    _control: Control | None = None
    _sender: Process | None = None
    _receiver: Process | None = None
    _launcher: Launcher | None = None
    _follower: Follower | None = None
    """Who has the priority of the machine's CPU follow what it runs."""

    @property
    def name(self) -> str:
        return self.figure(self.paths[0])

    def figure(self, path: Way) -> str:
        """The name of what is found on this path."""
        return f"{FIGURES[path]}-{self.side}"

    def tools(self) -> list[Along]:
        """It on each of its paths."""
        return [Along(self, path) for path in self.paths]

    def counted(self) -> Iterator[str]:
        """What is to be said of all its interrupts so far."""
        for path, account in self.accounts.items():
            yield from account.notes(self.side if len(self.paths) == 1 else self.figure(path))

    def notes(self) -> Iterator[str]:
        """What else there is to be said."""
        yield from self.remarks
        if self.causes is not None:
            for fault in self.causes.faults:
                yield f"{self.side}: what its guest did is not known from then on: {fault}"
            for fault in self.causes.paths.faults if self.causes.paths is not None else ():
                yield f"{self.side}: functions are not known any more from then on, {fault}"
            if self.causes.guest is not None:
                for what, why in self.causes.guest.lacks.items():
                    yield f"{what} cannot be recorded in {self.side}: {why}"

    @property
    def start_seconds(self) -> float:
        """What starting it takes, for the progress bar."""
        return _START_SECONDS if self.guest is None else BOOT_SECONDS

    @contextmanager
    def up(self, launcher: Launcher, core: int, control: Sequence[int], image: str | None) -> Iterator[None]:
        """Sender and receiver in the block, the latter standing still but for slices; what is started is the session's
        to end. Raises Failure, Mistake."""
        sender = f"{self.side}-sender"
        group = group_for(launcher.state, self.side)
        launcher.state.sockets.mkdir(mode=0o700, exist_ok=True)
        let_pass(launcher.state.sockets, group)
        socket = make_folder(launcher.state, self.side, group) / "interrupts"
        path = launcher.state.folder / f"{sender}.control"
        for file in (path, socket):
            launcher.state.add(FilePath(str(file)))
        argv = [str(own_program(SENDER)), "--control", str(path), "--socket", str(socket)]
        argv += ["--core", str(control[0]), "--priority", str(PRIORITY)]
        if "vring" in self.paths:
            argv += ["--nic", str(_nic_of(socket))]
        self._launcher = launcher
        self._sender = launcher.start(sender, argv, Limits(cpus=tuple(control)))
        try:
            self._control = connect_when_ready(path, self._sender.id.alive, _READY_SECONDS)
        except ControlLost as error:
            raise launcher.failure(sender, f"{SENDER} {error}") from None
        with closing(self._control):
            if self.guest is None:
                self._receiver, patience = self._native(launcher, socket, core, control), _READY_SECONDS
            else:
                self._receiver = self._machine(launcher, socket, core, control, image, group)
                patience = InMachine.patience
            self._wait_ready(time.monotonic() + patience)
            if self.follows and self.guest is not None and self.guest.priority is not None:
                self._follower = follow(launcher, self._receiver, self.guest.priority, control)
            self._receiver.id.signal(SIGSTOP)
            try:
                yield
            finally:
                self._receiver.id.signal(SIGCONT)

    @property
    def process(self) -> Process:
        """The receiver's, while it is up."""
        assert self._receiver is not None
        return self._receiver

    @contextmanager
    def going(self) -> Iterator[None]:
        """The receiver does not stand still in the block."""
        self.process.id.signal(SIGCONT)
        try:
            yield
        finally:
            self.process.id.signal(SIGSTOP)

    def _native(self, launcher: Launcher, socket: Path, core: int, control: Sequence[int]) -> Process:
        argv = [str(own_program(INTERRUPT_RECEIVER)), "--socket", str(socket), "--core", str(core)]
        argv += ["--priority", str(PRIORITY)]
        if "ipi" not in self.paths:
            return launcher.start(self.side, argv, Limits(cpus=(core,)))
        return launcher.start(self.side, [*argv, "--waker", str(control[0])], Limits(cpus=(core, control[0])))

    def _machine(
        self, launcher: Launcher, socket: Path, core: int, control: Sequence[int], image: str | None, group: int
    ) -> Process:
        assert self.guest is not None
        guest = self.guest
        words = [INTERRUPT_RECEIVER, "--device", _DEVICE]
        words += ["--nic", _NIC] if "vring" in self.paths else []
        pair = "ipi" in self.paths
        words += ["--core", "0", "--waker", "1"] if pair else []
        words += ["--priority", str(PRIORITY)] if guest.latency == "high" or guest.priority is not None else []
        instance = Instance(
            name=self.side,
            kind="interrupts",
            ports=(f"vhost-server:{_nic_of(socket).absolute()}",) if "vring" in self.paths else (),
            # Of two virtual CPUs the first has the last of these.
            place=Place(
                control[0] if pair else core,
                tuple(sorted({core, *control})),
                cores=(control[0], core) if pair else (core,),
            ),
            cpus=2 if pair else 1,
            most_cpus=2 if pair else 1,
            # Its second CPU shares one with the sender, and must not keep it.
            stacked=pair,
            memory_bytes=guest.memory_bytes,
            huge=False,
            latency=guest.latency,
            priority=guest.priority,
            group=group,
            image=guest.image or image,
            domain=_DOMAIN.format(socket=socket.absolute()),
            # no_timer_check: with interrupt remapping, Linux panics where an emulated timer is late while it boots.
            in_place=f"intel_iommu=on no_timer_check tailrace.vfio={_DEVICE} tailrace.run={','.join(words)}"
            # Devices' interrupts where the receiver is.
            + (" irqaffinity=0" if pair else ""),
        )
        return InMachine().start(launcher, instance).process

    def _wait_ready(self, deadline: float) -> None:
        assert self._control is not None and self._receiver is not None and self._launcher is not None
        while not self._control.call("interrupts.look")["ready"]:
            if not self._receiver.id.alive():
                raise Fault(why_ended(self._launcher, self._receiver))
            if time.monotonic() > deadline:
                raise self._launcher.failure(self.side, f"the receiver {self.side} was not ready in time")
            time.sleep(0.05)

    def poller(self, core: int) -> Poller:
        """The receiver's thread: of a machine that of its CPU. While it is up. Raises Failure."""
        assert self._receiver is not None
        pid = self._receiver.pid
        return Poller(self.side, pid if self.guest is None else vcpu_thread(pid), core)

    def record(self, recorder: Recorder, core: int, trace: Trace | None) -> None:
        """From now on the recorder's events say why interrupts were slow. While it is up. Raises Failure."""
        assert self._control is not None
        hz = int(self._control.call("interrupts.look")["tsc_hz"])
        self.causes = InterruptCauses(
            recorder, (), hz, poller=self.poller(core), guest=self._guest_recorder(), pause=self._pause
        )
        if trace is not None:
            self.trace, trace.hz = trace, hz

    def trace_functions(self, here: FunctionTracer | None) -> None:
        """From now on the functions are known that the slowest interrupt so far went through: of this host's kernel by
        that tracer, of the machine's by its own; why these cannot be is to be said. After `record()`."""
        assert self.causes is not None and self._launcher is not None
        inside = None
        if self.guest is not None:
            try:
                with self.going():
                    inside = FunctionTracer.inside(self.side, agent.beside(self._launcher.log(self.side)))
            except Failure as error:
                self.remarks.append(f"{self.side}: the functions of its kernel are not known: {error}")
        self.causes.paths = FunctionPaths(self.causes.hz, here, inside)

    def _watch_follower(self, seconds: float) -> None:
        """Where who follows the priority has ended, the planned one is given back, and it is started again; what was
        measured is kept, with a note."""
        if self._follower is None or self._follower.id.alive():
            return
        assert self._launcher is not None and self._receiver is not None
        said = f"{self.side}: {seconds:.0f} s after a slice began, what has its priority follow what it runs had ended"
        before, self._follower = self._follower, None
        try:
            self._follower = follow_again(self._launcher, self._receiver, before)
        except Failure as error:
            self.remarks.append(f"{said}, and its priority is the planned one from then on: {error}")
        else:
            self.remarks.append(f"{said}; it was started again at once")

    @property
    def _pause(self) -> float:
        return max(1.0, _QUESTION_PERIODS * self.period_ns / 1e9)

    def _guest_recorder(self) -> GuestRecorder | None:
        """Who records in the machine; why nobody does is to be said. Raises Failure."""
        if self.guest is None:
            return None
        assert self._launcher is not None
        socket = agent.beside(self._launcher.log(self.side))
        try:
            with self.going():
                return GuestRecorder.start(self.side, socket, aside=1 if "ipi" in self.paths else None)
        except Failure as error:
            self.remarks.append(f"{self.side}: what its guest does is not recorded: {error}")
            return None

    def measure(self, setting: Setting, seconds: int, progress: Progress) -> Mapping[str, Mapping[int, Slice]]:
        return self.along(self.paths[0], setting, seconds, progress)

    def along(self, path: Way, setting: Setting, seconds: int, progress: Progress) -> Mapping[str, Mapping[int, Slice]]:
        """What was found on one of its paths. Raises Failure."""
        assert self._control is not None and self._receiver is not None and self._launcher is not None
        self._receiver.id.signal(SIGCONT)
        if self.causes is not None:
            self.causes.begin()
        result = self._slice(self._control, path, seconds, progress)
        causes = self.causes.explain() if self.causes is not None else None
        if self.trace is not None and self.causes is not None and causes is not None:
            self.trace.add(self.causes.slow(causes))
        self._receiver.id.signal(SIGSTOP)
        account = self.accounts.setdefault(path, Account(_LOST_MEANS.get(path, _LOST)))
        account.add(result)
        if result["fault"] is not None:
            said = f"{self.side}: {result['fault']}"
            raise Failure(said) if self.guest is None else self._launcher.failure(self.side, said)
        missed, budget = int(result["lost"]) + int(result["wrong"]), None
        if self.budget_ns is not None:
            budget = Budget(us=self.budget_ns / 1000, late=int(result["over"]), missed=missed + int(result["held"]))
        found = {
            self.figure(path): {
                _cpu(setting.cpus, RECEIVER): Slice(_histogram(result["latency"]), missed, budget, causes)
            }
        }
        if path in _SENT:
            found[TIMER] = {_cpu(setting.cpus, SENDS): Slice(_histogram(result["late"]))}
        return found

    def _slice(self, control: Control, path: Way, seconds: int, progress: Progress) -> Mapping[str, Any]:
        assert self._sender is not None and self._receiver is not None and self._launcher is not None
        began = time.monotonic()
        control.call(
            "interrupts.begin",
            count=max(1, seconds * 1_000_000_000 // self.period_ns),
            period_ns=self.period_ns,
            budget_ns=self.budget_ns or 0,
            clock=self.clock,
            path=path,
        )
        try:
            while True:
                # Meanwhile what a machine is asked takes its time: then there is one more look.
                done = time.monotonic() - began
                found: dict[str, Any] = control.call("interrupts.look")
                if self.causes is not None:
                    self.causes.note(found)
                if "result" in found:
                    result: dict[str, Any] = found["result"]
                    return result
                for process in (self._sender, self._receiver):
                    if not process.id.alive():
                        raise Fault(why_ended(self._launcher, process))
                if done > seconds + _PATIENCE:
                    raise Failure(f"{self.side}: its interrupts did not end in {done:.0f} s")
                self._watch_follower(done)
                progress(min(done, seconds))
                self.meanwhile()
                time.sleep(_LOOK_SECONDS)
        except BaseException:
            with suppress(Failure):
                control.call("interrupts.end")
            raise


@dataclass(frozen=True)
class Along:
    """A receiver on one of its paths: a tool."""

    side: Side
    path: Way

    @property
    def name(self) -> str:
        return self.side.figure(self.path)

    def measure(self, setting: Setting, seconds: int, progress: Progress) -> Mapping[str, Mapping[int, Slice]]:
        return self.side.along(self.path, setting, seconds, progress)


def _nic_of(socket: Path) -> Path:
    """Where QEMU listens for who raises interrupts by a network device."""
    return socket.with_name("nic")


def _cpu(cpus: Mapping[int, str], role: str) -> int:
    return next(cpu for cpu, each in cpus.items() if each == role)


def _histogram(latency: Mapping[str, Any]) -> Histogram:
    counts = tuple((int(index), int(count)) for index, count in latency["counts"])
    return Histogram(counts, int(latency["min_ns"]), int(latency["max_ns"]), int(latency["sum_ns"]))


def notes_of(sides: Sequence[Side], beside: Sequence[Neighbour], part: int) -> Iterator[str]:
    """What is to be said so far. Of a run that was resumed each part has counts of its own, from 1 on."""
    counted = [*(note for side in sides for note in side.counted()), *(each.note() for each in beside)]
    yield from counted if part == 1 else (f"part {part} of the run: {note}" for note in counted)
    for side in sides:
        yield from side.notes()


def measure_interrupts(
    plan: HostPlan,
    sides: Sequence[Side],
    image: str | None,
    folder: RunFolder,
    launcher: Launcher,
    report: Reporter,
    *,
    causes: bool = False,
    trace: Path | None = None,
    functions: bool = False,
    beside: Sequence[Neighbour] = (),
) -> None:
    """All sides in turn, as the plan has it; with `causes` also why the slowest interrupts were slow, with `trace` all
    that is known of these in a file there, with `functions` also those of kernels that the slowest went through.
    `beside` are the machines of the load of this name.

    Raises Failure, Mistake.
    """
    core = _cpu(plan.cpus, RECEIVER)
    soak = folder.run.host_soak
    part = 1 if soak is None else len(soak.gaps) + 2
    clock, began = Watched(who=source), time.monotonic() - elapsed(folder.run)
    next_look = time.monotonic()

    def look() -> None:
        nonlocal next_look
        if not any(side.clock == "tai" for side in sides):
            return
        for note in clock.look(time.monotonic() - began):
            folder.note(note)
        next_look = time.monotonic() + _CLOCK_SECONDS

    def look_now_and_then() -> None:
        if time.monotonic() >= next_look:
            look()

    with ExitStack() as up:
        for side in sides:
            side.meanwhile = look_now_and_then
            report.stage(f"starting {side.side}", side.start_seconds)
            up.enter_context(side.up(launcher, core, plan.control, image))
        for each in beside:
            report.stage(f"starting {each.name}", BOOT_SECONDS)
            up.enter_context(each.up(launcher, plan.control, image))
        traced = Trace(resumed=part > 1) if trace is not None else None
        if causes or traced is not None:
            by_kvm = any(side.guest is not None for side in sides) and acceleration().kind == "kvm"
            recorder = Recorder.start(launcher, [side.poller(core) for side in sides], plan.control, exits=by_kvm)
            up.callback(recorder.close)
            for note in recorder.missing():
                folder.note(note)
            for side in sides:
                side.record(recorder, core, traced)
            if functions:
                here = _functions_here(launcher, core, folder)
                for side in sides:
                    report.stage(f"tracing functions of {side.side}", side.start_seconds)
                    side.trace_functions(here)
        look()
        try:
            measure_host(
                plan, folder, report, after=look, under=Loads(beside), notes=lambda: notes_of(sides, beside, part)
            )
        finally:
            folder.note_anew(notes_of(sides, beside, part))
            if traced is not None and trace is not None:
                traced.write(trace)


def _functions_here(launcher: Launcher, core: int, folder: RunFolder) -> FunctionTracer | None:
    """This host's tracer of functions on that CPU, until the session ends; why there is none is noted."""
    try:
        return FunctionTracer.here(launcher, core)
    except Failure as error:
        folder.note(f"the functions of this host's kernel are not traced: {error}")
        return None
