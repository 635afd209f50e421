"""The recorder as Python drives it: one process beside a measurement, and the pollers that it watches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tailrace.errors import Failure
from tailrace.functions.program import RECORDER_PROGRAM
from tailrace.functions.runtimes import program_of
from tailrace.measure.causes import Poller
from tailrace.measure.tester import Tester
from tailrace.node.running import Node
from tailrace.observe.gaps import Gaps, Loop
from tailrace.observe.recording import Recording
from tailrace.process.process import Limits
from tailrace.process.programs import own_program
from tailrace.resources.place import Placement
from tailrace.resources.topology import allowed_cpus
from tailrace.state.launch import Launcher
from tailrace.state.record import FilePath, Process

RECORDER = "recorder"
_READY_SECONDS = 10.0


@dataclass(frozen=True)
class Watched:
    """A poller, and where it notes its gaps."""

    poller: Poller
    gaps: Gaps
    loop: Loop


def watch_process(pid: int, cpus: Sequence[int], name: str | None = None) -> list[Watched]:
    """The pollers of one process, on these CPUs in the order of its loops. Raises Failure."""
    gaps = Gaps(pid)
    return [
        Watched(Poller(name or loop.name, loop.thread, cpu), gaps, loop)
        for loop, cpu in zip(gaps.loops, cpus, strict=False)
        if loop.thread
    ]


def pollers_of(
    placement: Placement, switch: Sequence[Process], functions: Sequence[Process], tester: Tester
) -> list[Watched]:
    """All pollers of these processes; among `functions` may be others, which are no functions of the placement.

    Raises Failure.
    """
    workers = placement.workers or (placement.switch.core,)
    found: list[Watched] = []
    for process in switch:
        found += watch_process(process.pid, workers)
    for process in functions:
        name = process.name.partition("@")[0]
        place = placement.functions.get(name)
        pid = program_of(process)
        if place is not None and pid is not None:
            found += watch_process(pid, place.cores, name)
    if placement.tester is not None:
        found += watch_process(tester.process.pid, [placement.tester.core])
    return found


def worker_of(node: Node) -> Callable[[str], str]:
    """Which worker polls a port, as it stands now."""
    found: dict[str, str] = {}
    for port in node.fabric.control.call("port.list"):
        for queue in port.get("queues", ())[:1]:
            found[port["name"]] = f"worker-{queue['worker']}"
    return lambda port: found.get(port, "worker-0")


@dataclass
class Recorder:
    """A running recorder."""

    launcher: Launcher
    process: Process
    file: FilePath
    recording: Recording
    _files: list[FilePath] = field(default_factory=list)

    @classmethod
    def start(
        cls, launcher: Launcher, pollers: Sequence[Poller], cpus: Sequence[int], *, exits: bool = False
    ) -> Recorder:
        """Starts it on these CPUs, to record the pollers' own; returns when it records. With `exits` some of them are
        CPUs of machines that KVM runs, and it records when and why they are left. Raises Failure."""
        path = launcher.state.folder / "recorder.file"
        file = FilePath(str(path))
        launcher.state.add(file)
        argv = [str(own_program(RECORDER_PROGRAM)), "--file", str(path)]
        for cpu in sorted({poller.cpu for poller in pollers}):
            argv += ["--cpu", str(cpu)]
        for poller in pollers:
            argv += ["--thread", str(poller.thread)]
        argv += ["--exits"] if exits else []
        process = launcher.start(RECORDER, argv, Limits(cpus=tuple(cpus)))
        deadline = time.monotonic() + _READY_SECONDS
        while not path.exists():
            if not process.id.alive() or time.monotonic() > deadline:
                raise launcher.failure(RECORDER, "the recorder did not start")
            time.sleep(0.01)
        return cls(launcher, process, file, Recording(path))

    def missing(self) -> Iterator[str]:
        """What cannot be recorded on this machine, to be said."""
        for source in self.recording.sources:
            if source.origin is None:
                yield f"{source.what} cannot be recorded here: {source.why}"

    def close(self) -> None:
        """Ends it."""
        self.recording.close()
        with suppress(Failure):
            self.launcher.state.undo(self.process)
            self.launcher.state.undo(self.file)


def place_recorder(placement: Placement) -> tuple[int, ...]:
    """CPUs for the recorder: those that no poller has; where there are none, the tester's, never the switch's."""
    taken = set(placement.workers) | {placement.switch.core}
    pollers = taken | {core for place in placement.functions.values() for core in place.cores}
    tester = placement.tester
    if tester is not None:
        pollers.add(tester.core)
    free = {cpu.number for cpu in allowed_cpus()} - pollers
    if not free and tester is not None:
        free = {tester.core} - taken
    return tuple(sorted(free or taken))
