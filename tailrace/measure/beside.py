"""Machines that are a load: stress-ng runs in them on the CPUs of everything else, while interrupts to others are
measured. They stand still but for the turns of that load.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Literal

from tailrace.errors import Fault
from tailrace.functions.machine import InMachine
from tailrace.functions.runtime import Instance, PriorityRange
from tailrace.measure.host.loads import load
from tailrace.process.process import cpu_seconds
from tailrace.resources.place import Place
from tailrace.state.launch import Launcher, why_ended
from tailrace.state.record import Process
from tailrace.switch.confine import group_for

PROGRAM = "stress-ng"
LOAD = "machines"
"""What this load is called."""
BOOT_SECONDS = InMachine.boot_seconds
"""Of a machine, for the progress bar."""
_WORDS = (PROGRAM, "--cpu", "1", "--vm", "1", "--vm-bytes", "64M", "--timeout", "0")
_BEGINS = "dispatching hogs"
"""What stress-ng says when it starts its workers."""


@dataclass(frozen=True)
class Guest:
    """A machine that a receiver waits in, or that is a load."""

    latency: Literal["normal", "medium", "high"]
    memory_bytes: int = 256 << 20
    image: str | None = None
    """By name; None: the one of the command."""
    priority: PriorityRange | None = None
    """Of its virtual CPUs, which follows what it runs."""


@dataclass
class Neighbour:
    """One machine that is a load."""

    name: str
    guest: Guest
    seconds: float = 0.0
    """For which it ran while others were measured."""
    cpu_seconds: float = 0.0
    """Of CPUs that it took meanwhile."""
    _since: tuple[float, float] | None = None
    """While it runs: when that began, and the CPU time that it had taken by then."""
    _process: Process | None = None
    _launcher: Launcher | None = None

    @contextmanager
    def up(self, launcher: Launcher, control: Sequence[int], image: str | None) -> Iterator[None]:
        """It has stress-ng in it for the block, and stands still; it is the session's to end. Raises Failure,
        Mistake."""
        instance = Instance(
            name=self.name,
            kind="load",
            ports=(),
            place=Place(control[0], tuple(control)),
            memory_bytes=self.guest.memory_bytes,
            huge=False,
            latency=self.guest.latency,
            group=group_for(launcher.state, self.name),
            image=self.guest.image or image,
            in_place=f"tailrace.run={','.join(_WORDS)}",
        )
        self._launcher = launcher
        self._process = InMachine().start(launcher, instance).process
        self._wait_for_work(time.monotonic() + InMachine.patience)
        self._process.id.signal(SIGSTOP)
        try:
            yield
        finally:
            self._process.id.signal(SIGCONT)

    def _wait_for_work(self, deadline: float) -> None:
        assert self._process is not None and self._launcher is not None
        while not self._launcher.said(self.name, _BEGINS):
            self._check_alive()
            if time.monotonic() > deadline:
                raise self._launcher.failure(self.name, f"{PROGRAM} in {self.name} did not start in time")
            time.sleep(0.05)

    def _check_alive(self) -> None:
        """Raises Fault if it has ended: then there is no load."""
        assert self._process is not None and self._launcher is not None
        if not self._process.id.alive():
            raise Fault(why_ended(self._launcher, self._process, InMachine.last_lines))

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """It runs in the block. Raises Fault if it has ended."""
        assert self._process is not None
        self._check_alive()
        self._since = time.monotonic(), cpu_seconds(self._process.pid)
        self._process.id.signal(SIGCONT)
        try:
            yield
        finally:
            self._process.id.signal(SIGSTOP)
            taken, self._since = self._taken(), None
        self._check_alive()
        self.seconds, self.cpu_seconds = taken

    def _taken(self) -> tuple[float, float]:
        """Both, with what it has taken since it runs."""
        if self._since is None or self._process is None:
            return self.seconds, self.cpu_seconds
        began, before = self._since
        used = max(cpu_seconds(self._process.pid) - before, 0.0)  # it may have ended
        return self.seconds + time.monotonic() - began, self.cpu_seconds + used

    def note(self) -> str:
        """How much of a load it was so far."""
        seconds, used = self._taken()
        return f"{self.name} ran beside for {seconds:.1f} s and took {used:.1f} s of CPU in these"


@dataclass(frozen=True)
class Loads:
    """What else runs, as `measure host` has it, and these machines too."""

    neighbours: Sequence[Neighbour] = ()

    @contextmanager
    def __call__(
        self, kind: str, workers: int, control: Sequence[int], anywhere: Sequence[int], folder: Path
    ) -> Iterator[None]:
        """As `tailrace.measure.host.loads.load`."""
        with ExitStack() as running:
            if kind == LOAD:
                for each in self.neighbours:
                    running.enter_context(each.at_work())
            else:
                running.enter_context(load(kind, workers, control, anywhere, folder))
            yield
