"""The priority of a machine's virtual CPUs follows what its guest runs, within bounds.

An agent in the machine has its kernel say in a page of its memory what each of its CPUs runs; `tailrace-priority` reads
that page here, once a period, and sets the priorities of QEMU's threads. Nothing that the machine says is followed
beyond the bounds, and the priority that was planned is there again when the machine is silent, or the program ends;
where the program is killed, whoever watches it gives that back.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tailrace.errors import Failure, Fault
from tailrace.functions import agent
from tailrace.functions.program import PRIORITY_AGENT
from tailrace.functions.runtime import PriorityRange
from tailrace.process import hypervisor
from tailrace.process.plain import plain
from tailrace.process.process import Limits, undisturbed
from tailrace.process.programs import own_program
from tailrace.process.real_time_groups import grant, groups_without_time
from tailrace.state.launch import Launcher
from tailrace.state.record import Follower, Process, RealTimeGroups, Thing

PROGRAM = "tailrace-priority"
_WORD = re.compile(r"\btailrace\.priority=(\S+?)[\s<]")
_ADDRESS = re.compile(r"0x[0-9a-f]{1,16}\n?")
_HERE = re.compile(r"Host virtual address for 0x[0-9a-f]+ \([^)]*\) is (0x[0-9a-f]+)")
_FOLLOWS = "follows what the machine runs"
"""What that program says when it does (dataplane/priority/main.c)."""
_SECONDS = 30.0
"""In which the agent of an emulated machine on a busy host has begun, and is believed."""


def priority_words(bounds: PriorityRange | None) -> list[str]:
    """What the command line of a machine's kernel says of it."""
    return [f"tailrace.priority={bounds.word()}"] if bounds is not None else []


def priority_range(as_started: Path) -> PriorityRange | None:
    """The bounds of a machine that was started, whose XML is in this file; None: its priority stays."""
    try:
        found = _WORD.search(as_started.read_text())
        return PriorityRange.of_word(found[1]) if found is not None else None
    except (OSError, ValueError):
        return None


def follow(launcher: Launcher, machine: Process, bounds: PriorityRange, cpus: Sequence[int]) -> Follower:
    """Has the priority of a machine's virtual CPUs follow what it runs, until the machine ends or that is undone; on
    these CPUs, which are not its own. Raises Failure, Mistake."""
    threads = hypervisor.vcpu_threads(machine.pid)
    others = [each for each in launcher.state.record.things if isinstance(each, RealTimeGroups)]
    given = {path for each in others for path in each.paths}
    groups = RealTimeGroups(tuple(groups_without_time(threads, given)), machine.name)
    launcher.state.add(groups)
    grant(groups.paths, len(threads))
    return _start(launcher, machine, bounds, cpus)


def follow_again(launcher: Launcher, machine: Process, before: Follower) -> Follower:
    """The same, where who did it has ended by itself. Raises Failure, Mistake."""
    bounds = priority_range(launcher.logs / f"{machine.name}.xml")
    if bounds is None:
        raise Failure(f"{machine.name}: as it was started it has no bounds for its priority; restart it")
    if not before.planned:
        raise Failure(f"{machine.name}: a version before has not noted which priority was planned; restart it")
    give_back(machine, before)
    known = list(launcher.state.record.things)
    try:
        found = _start(launcher, machine, bounds, before.cpus)
    except BaseException:
        with undisturbed():
            _undo_but(launcher, known)
        raise
    launcher.state.undo(before)
    return found


def give_back(machine: Process, follower: Follower) -> None:
    """Gives the virtual CPUs of a machine the priority of before, where who changed it was killed. Raises Failure."""
    for thread, policy, priority in follower.planned:
        if Path(f"/proc/{machine.pid}/task/{thread}").exists():
            try:
                os.sched_setscheduler(thread, policy, os.sched_param(priority))
            except ProcessLookupError:
                continue
            except OSError as error:
                raise Failure(f"{machine.name}: its priority cannot be given back: {error.strerror}") from None


def _start(launcher: Launcher, machine: Process, bounds: PriorityRange, cpus: Sequence[int]) -> Follower:
    page = _page_here(machine, _page_inside(launcher, machine, bounds))
    threads = hypervisor.vcpu_threads(machine.pid)
    argv = [str(own_program(PROGRAM)), "--process", str(machine.pid), "--page", f"{page:x}"]
    argv += [word for thread in threads for word in ("--thread", str(thread))]
    argv += ["--least", str(bounds.least), "--most", str(bounds.most), "--period", str(bounds.period_us)]
    try:
        planned = tuple((each, os.sched_getscheduler(each), os.sched_getparam(each).sched_priority) for each in threads)
    except ProcessLookupError:
        raise Failure(f"{machine.name} has ended") from None
    started = launcher.start(f"{machine.name}.priority", argv, Limits(cpus=tuple(cpus)))
    follower = Follower(started.pid, started.start, machine.name, started.unit, tuple(cpus), planned)
    launcher.state.alter(started, follower)
    deadline = time.monotonic() + _SECONDS
    while not launcher.said(started.name, _FOLLOWS):
        if not started.id.alive() or time.monotonic() > deadline:
            raise launcher.failure(started.name, f"{machine.name}: its priority does not follow what it runs")
        time.sleep(0.02)
    return follower


@contextmanager
def followed(launcher: Launcher, machine: Process, bounds: PriorityRange, cpus: Sequence[int]) -> Iterator[None]:
    """The same, for the block. Raises Fault at its end where it was not followed until then."""
    before = list(launcher.state.record.things)
    try:
        follower = follow(launcher, machine, bounds, cpus)
        yield
        if not follower.id.alive():
            give_back(machine, follower)
            raise Fault(f"{machine.name}: {PROGRAM} has ended, and its priority did not follow what it runs to the end")
    finally:
        with undisturbed():
            _undo_but(launcher, before)


def _undo_but(launcher: Launcher, known: Sequence[Thing]) -> None:
    """Undoes what was made since these were all."""
    for thing in reversed([each for each in launcher.state.record.things if each not in known]):
        launcher.state.undo(thing)


def _page_inside(launcher: Launcher, machine: Process, bounds: PriorityRange) -> int:
    """The physical address of the agent's page, which is started unless it runs. Raises Failure."""
    words = [PRIORITY_AGENT, *(word for task in bounds.tasks for word in ("--task", task))]
    none = f"its image has no {PRIORITY_AGENT}; build it again: `tailrace image build`"
    command = f"command -v {PRIORITY_AGENT} >/dev/null || {{ echo {shlex.quote(none)}; exit 1; }}\n{shlex.join(words)}"
    try:
        said = agent.ask(agent.beside(launcher.log(machine.name)), command, _SECONDS)
    except Failure as error:
        raise Failure(f"{machine.name}: its priority cannot follow what it runs: {error}") from None
    if _ADDRESS.fullmatch(said) is None:
        raise Failure(f"{machine.name}: its agent names no page of memory: {plain(said)[:80]}")
    return int(said, 16)


def _page_here(machine: Process, address: int) -> int:
    """Where QEMU has a page of a machine's memory. Raises Failure."""
    said = hypervisor.monitor(machine.outside, f"gpa2hva 0x{address:x}", human=True)
    found = _HERE.search(said)
    if found is None:
        raise Failure(f"{machine.name}: its agent names a page that is not of its memory: {plain(said.strip())[:200]}")
    return int(found[1], 16)
