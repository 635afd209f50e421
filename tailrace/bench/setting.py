"""What every benchmark starts from: its own cores and huge pages, a record of all it starts, and how far the cores are.

Two cores: the switch polls on one, the load on the other; everything that sleeps goes elsewhere where there is a third.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailrace.bench.model import Figures, Sample
from tailrace.errors import Failure, Fault, Mistake
from tailrace.measure.core_to_core import CORE_TO_CORE, core_to_core
from tailrace.measure.progress import Reporter
from tailrace.measure.session import check_nothing_up, hold_clean, keep_aside
from tailrace.node.claiming import claim_cpus
from tailrace.node.running import reserve_pages
from tailrace.process.process import how_it_ended, identify, real_time_refusal, reap, stopped, undisturbed
from tailrace.process.programs import own_program
from tailrace.resources.ledger import exclusive_of_others
from tailrace.resources.place import FUNCTION_PRIORITY, Place, Placement, interrupt_place
from tailrace.resources.topology import allowed_cpus
from tailrace.state.folder import run_folder
from tailrace.state.launch import Launcher
from tailrace.state.record import Process, State

__all__ = ["CORE_TO_CORE", "Cores", "Setting", "check_able", "check_alive", "prepared"]


RESUME_SECONDS = 0.1
"""From a look to the window after it: what stood still runs as before."""
LOOK_SECONDS = RESUME_SECONDS + 0.1
"""What a look at the distance of the cores costs, with that."""


@dataclass(frozen=True)
class Cores:
    """Which CPU does what."""

    switch: int
    load: int
    control: int
    """The CPU of everything that sleeps; the load's where there is no third."""
    others: tuple[int, ...] = ()
    """CPUs that nobody has yet."""

    @classmethod
    def choose(cls, wanted: tuple[int, int] | None, what: str) -> Cores:
        """The switch's and the load's as wanted, else the best of those allowed. Raises Mistake."""
        allowed = [cpu.number for cpu in allowed_cpus()]
        if wanted is None:
            if len(allowed) < 2:
                raise Mistake(
                    f"{what} needs two CPUs, one for the switch and one for the load; this process may use one"
                )
            wanted = (allowed[-1], allowed[0] if len(allowed) == 2 else allowed[-2])
        if wanted[0] == wanted[1] or not set(wanted) <= set(allowed):
            expected = f"two different CPUs of {','.join(map(str, allowed))}"
            raise Mistake(f"--cores {wanted[0]},{wanted[1]}: expected {expected}")
        spare = [cpu for cpu in allowed if cpu not in wanted]
        return cls(wanted[0], wanted[1], spare[0] if spare else wanted[1], tuple(spare[1:]))

    @property
    def switch_place(self) -> Place:
        return Place(self.switch, tuple(sorted({self.switch, self.control})))

    @property
    def load_place(self) -> Place:
        return Place(self.load, tuple(sorted({self.load, self.control})))

    def placement(self, functions: Sequence[str]) -> Placement:
        """Where the switch, the tester (the load) and functions run.

        Functions poll where there is a CPU for each; else they sleep on the load's until there is something to do.
        """
        free = len(functions) <= len(self.others)
        if free:
            places = [Place(core, tuple(sorted({core, self.control}))) for core in self.others[: len(functions)]]
        else:
            shared = interrupt_place(self.load, real_time=real_time_refusal(FUNCTION_PRIORITY) is None)
            places = [shared] * len(functions)
        return Placement(
            self.switch_place,
            self.load_place,
            dict(zip(functions, places, strict=True)),
            oversubscribed=not free,
            pollers=2 + len(functions),
            cores=len({self.switch, self.load, self.control, *self.others}),
            workers=(self.switch,),
        )


@dataclass
class Setting:
    """One run: what all its measurements have in common."""

    launcher: Launcher
    cores: Cores
    report: Reporter
    cpus: int
    """How many this process may use."""
    versions: dict[str, str] = field(default_factory=dict)
    """Names and versions of what ran, gathered on the way."""

    def core_to_core(self) -> float:
        """Round trip of a cache line between the two cores while both are otherwise idle, in ns."""
        return core_to_core(self.launcher, self.cores.switch, self.cores.load)

    def samples(self, processes: Sequence[Process], measure: Callable[[], Figures], windows: int = 1) -> list[Sample]:
        """What `measure` finds in each of so many windows, with the distance of the cores before and after each.

        For a look, `processes`, which are the switch's first and the load's last, stand still: the load goes on first,
        so that the switch finds room for what it could not deliver.
        """

        def look() -> float:
            with stopped([process.id for process in processes]):
                return self.core_to_core()

        found, before = [], look()
        for _ in range(windows):
            time.sleep(RESUME_SECONDS)
            figures = measure()
            after = look()
            found.append(Sample(figures, (before, after)))
            before = after
        return found

    def machine(self) -> dict[str, Any]:
        """What the figures were measured on and with."""
        cpu = next(
            (
                line.split(":", 1)[1].strip()
                for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")
            ),
            "unknown",
        )
        return {
            "cpu": cpu,
            "cpus": self.cpus,
            "switch_core": self.cores.switch,
            "load_core": self.cores.load,
            "kernel": platform.release(),
            "versions": self.versions,
        }


@contextmanager
def prepared(folder: Path, cores: Cores, pages: int, report: Reporter) -> Iterator[Setting]:
    """A setting with so many huge pages free. Everything that is started or reserved in the block is gone after it."""
    allowed = os.sched_getaffinity(0)
    with _session(folder, cores, pages) as state:
        keep_aside(Place(cores.switch, tuple(allowed)))
        try:
            with _ahead_of_pollers():
                yield Setting(Launcher(state, state.logs, tied=True), cores, report, len(allowed))
        finally:
            os.sched_setaffinity(0, allowed)  # another benchmark may follow


@contextmanager
def _ahead_of_pollers() -> Iterator[None]:
    """This process, not those it starts, runs at once when it has something to do.

    On two cores it shares the load's, whose priority leaves it a hundredth of that: half a second of its own work, such
    as reading counters, would then last a minute. Between these it sleeps, and what is measured is the switch's core.
    """
    policy, param = os.sched_getscheduler(0), os.sched_getparam(0)
    with suppress(PermissionError):  # a container may have no right to it
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    try:
        yield
    finally:
        with suppress(PermissionError):
            os.sched_setscheduler(0, policy, param)


def check_able(what: str, programs: Sequence[str]) -> None:
    """What is missing is said before anything starts: root, or one of our own programs."""
    if os.geteuid() != 0:
        raise Mistake(f"{what} needs root, for huge pages and the priority of polling threads; start it with sudo")
    for program in programs:
        own_program(program)


def check_unpolled(folder: Path, cores: Cores) -> None:
    """Raises Mistake where somebody of another state folder polls on one of the two CPUs: a switch in a network
    namespace of its own does not find out."""
    held = exclusive_of_others([folder, run_folder(folder)])
    for cpu in (cores.switch, cores.load):
        if cpu in held:
            raise Mistake(f"CPU {cpu} is polled on by {held[cpu].words}; {held[cpu].ending}, or choose by --cores")


def check_alive(processes: Sequence[Process]) -> None:
    """Raises Fault, with how it ended, if one of them has."""
    for process in processes:
        if not process.id.alive():
            raise Fault(f"{process.program} {how_it_ended(reap(process.pid))}")


@contextmanager
def _session(folder: Path, cores: Cores, pages: int) -> Iterator[State]:
    """The state held for this run, with its CPUs claimed and huge pages reserved; all undone at the end."""
    with hold_clean(folder) as state:
        check_nothing_up(folder)
        check_unpolled(folder, cores)
        state.record.purpose, state.record.owner = "run", identify(os.getpid())
        state.save()
        state.logs.mkdir(exist_ok=True)
        state.sockets.mkdir(mode=0o700, exist_ok=True)
        try:
            claim_cpus(state, [cores.switch, cores.load, *cores.others], [cores.control])
            reserve_pages(state, pages)
            yield state
        finally:
            with undisturbed():
                problems = state.undo_all()
        if problems:
            raise Failure(f"not all was undone: {'; '.join(problems)}; run `tailrace down`")
