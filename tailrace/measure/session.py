"""A measurement from beginning to end: what it needs is started, watched while it runs, and taken down; what was
measured is kept whatever happens.

A process that ends, a port that is quarantined, Ctrl-C: each marks the run invalid with the reason, and the figures
measured so far stay in the run folder.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tailrace.errors import Failure, Fault, Interrupted, Mistake, TailraceError
from tailrace.kernel.cpus import show_list
from tailrace.measure.cause_meter import GAP_LIMIT
from tailrace.measure.clock import check_clock
from tailrace.measure.facts import host_facts, tool_versions
from tailrace.measure.floor import floor_seconds, measure_floor
from tailrace.measure.frame_causes import FrameCauses
from tailrace.measure.hop_meter import LOOK, HopMeter
from tailrace.measure.overtaking import overtaking_note
from tailrace.measure.profile import Profile
from tailrace.measure.progress import Reporter, Silent
from tailrace.measure.recorder import Recorder, place_recorder, pollers_of, worker_of
from tailrace.measure.tester import TESTER_PROGRAM, Stopped, Tester
from tailrace.node.claiming import claim_cpus, claim_place
from tailrace.node.running import Node, quietly, reserve_pages
from tailrace.plan.planned import TESTER_BUFFERS_MIB, Plan
from tailrace.process.process import identify, undisturbed
from tailrace.process.programs import own_program
from tailrace.report.html import write_report
from tailrace.resources import hugepages
from tailrace.resources.place import Place
from tailrace.results import ResultError, Run, RunFolder
from tailrace.results.lock import alone_in
from tailrace.spec.model import TESTER_ENDS
from tailrace.state.folder import run_folder
from tailrace.state.launch import Launcher, why_ended
from tailrace.state.record import Process, Record, State, hold_run, peek

#: How often the switch is asked about its ports while a trial runs, in seconds.
_log = logging.getLogger(__name__)
_PORT_CHECK = 1.0


@dataclass(frozen=True)
class Request:
    """What a run is called, where it goes and what it came from."""

    name: str
    runs: Path
    state: Path
    command: tuple[str, ...]
    spec_text: str
    spec_name: str
    fabric: str | None = "tailrace"
    repeat: int = 1
    method: str | None = None
    """What is measured, such as latency; the name unless given."""
    resume: Path | None = None
    """The folder of a run that is gone on with."""
    floor: tuple[Profile, ...] = ()
    """The traffic of the run, of which the tester measures itself before anything else."""


@dataclass
class Finished:
    """A run that has ended, well or not."""

    folder: Path
    run: Run
    error: TailraceError | None = None
    report: Path | None = None


@dataclass
class Session:
    """What a measurement works with while everything is up."""

    tester: Tester
    folder: RunFolder
    check: Callable[[], None]
    node: Node | None = None
    report: Reporter = field(default_factory=Silent)
    stage_seconds: float = 0.0
    hops: HopMeter | None = None
    """Where latency is taken apart by hop."""

    def stage(self, label: str, seconds: float) -> None:
        """Begins a part of the work that is expected to take so long."""
        self.stage_seconds = 0.0
        self.report.stage(label, seconds)

    def measure(self, streams: list[dict[str, Any]], seconds: float, wait: float, label: str) -> dict[str, Any]:
        """One trial, watched (`latency.Measurer`)."""
        before = self.stage_seconds
        more = self.hops.begin(streams, seconds) if self.hops else None

        def watch() -> None:
            self.check()
            if self.hops:
                self.hops.look(self.tester.control)

        try:
            result = self.tester.trial(
                streams,
                seconds,
                wait=wait,
                watch=watch,
                progress=lambda done: self.report.advance(label, before + done),
                # Enough intervals for a curve over time, and no more than a reader can use.
                interval=max(0.05, seconds / 600),
                more=more,
                **({"pace": LOOK} if self.hops else {}),
            )
            if self.hops:
                with undisturbed():  # the trial has been measured, and is to be kept
                    result["hops"] = self.hops.end(self.tester.control, result)
        except Stopped as stopped:
            raise Stopped(self.explained(stopped), stopped.result) from stopped
        self.stage_seconds = before + seconds + wait
        _log.debug("%s: a trial of %g s, %d streams", label, seconds, len(streams))
        return result

    def pause(self, seconds: float) -> None:
        """Leaves the device alone for a while. Raises Stopped if that is cut short, as a trial does."""
        try:
            self.check()
            time.sleep(seconds)
        except (Exception, KeyboardInterrupt) as error:
            raise Stopped(self.explained(Stopped(error, None)), None) from error
        self.stage_seconds += seconds

    def explained(self, stopped: Stopped) -> TailraceError:
        """Why a trial was cut short, traced back to the process that broke."""
        with undisturbed():
            return _cause(_first_fault(self.node, stopped))


@dataclass(frozen=True)
class Tracing:
    """Whether single frames are followed through the chain while it is measured."""

    hops: bool = False
    """Latency is taken apart by hop."""
    causes: bool = False
    """What can delay a frame is recorded too, and said of the slowest."""
    gap_limit: float = GAP_LIMIT
    """With `causes`: a round of a polling loop longer than so many seconds is a gap."""

    def begin(self, session: Session) -> None:
        """Called once everything is up. Raises Failure."""
        if (self.hops or self.causes) and session.node is not None:
            causes = _start_causes(session, self.gap_limit) if self.causes else None
            session.hops = HopMeter(session.node.fabric.control, causes)

    def end(self, session: Session) -> None:
        """Called before everything is taken down."""
        if session.hops is not None:
            with suppress(Failure):  # a switch that has gone has no trace either
                session.hops.close()


def _start_causes(session: Session, limit: float) -> FrameCauses:
    """Starts to record what can delay a frame on the session's node; gaps are rounds longer than `limit` seconds."""
    node = session.node
    if node is None:
        raise Mistake("causes can only be recorded for a chain that Tailrace runs")
    placement = node.plan.placement
    watched = pollers_of(placement, node.fabric.processes(), node.state.processes(), session.tester)
    pollers = [each.poller for each in watched]
    recorder = Recorder.start(node.launcher, pollers, place_recorder(placement))
    for note in recorder.missing():
        session.folder.note(note)
    return FrameCauses(recorder, watched, watched[0].gaps.tsc_hz, limit * 1e6, worker_of=worker_of(node))


def _cause(error: BaseException) -> TailraceError:
    """The error to report to the user."""
    if isinstance(error, Stopped):
        return _cause(error.cause)
    if isinstance(error, KeyboardInterrupt):
        return Interrupted(str(error) or "interrupted by Ctrl-C")
    if isinstance(error, TailraceError):
        return error
    if isinstance(error, ResultError):
        return Failure(str(error))
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return Failure(f"{where}{error.strerror or error}")
    raise error


def short_name(spec: str) -> str:
    """A spec's name as results know it: a file's without folders and .yaml; anything else as it is."""
    return Path(spec).stem if Path(spec).suffix in (".yaml", ".yml") else spec


@contextmanager
def _into(request: Request, *, oversubscribed: bool = False, notes: Sequence[str] = ()) -> Iterator[RunFolder]:
    """The folder of the run, which is this command's alone for the block. Raises Mistake."""
    with ExitStack() as held:
        if request.resume is not None:
            held.enter_context(alone_in(request.resume))
        folder = _new_folder(request, oversubscribed=oversubscribed, notes=notes)
        if request.resume is None:
            held.enter_context(alone_in(folder.path))
        yield folder


def _new_folder(request: Request, *, oversubscribed: bool, notes: Sequence[str]) -> RunFolder:
    try:
        if request.resume is not None:
            return RunFolder.reopen(request.resume)
        return RunFolder.create(
            request.runs,
            request.name,
            spec=request.spec_text,
            host=host_facts(),
            command=request.command,
            versions=tool_versions(),
            method=request.method,
            spec_name=short_name(request.spec_name),
            fabric=request.fabric,
            oversubscribed=oversubscribed,
            notes=(*notes, *(each.note for each in request.floor if each.note is not None)),
            repeat=request.repeat,
        )
    except ResultError as error:
        raise Mistake(f"{request.resume}: {error}; this run cannot be gone on with") from None
    except OSError as error:
        raise Mistake(
            f"{request.runs}: no run folder can be made ({error.strerror}); choose another place with --runs FOLDER"
        ) from None


def _finish(folder: RunFolder, error: TailraceError | None) -> Finished:
    try:
        folder.reserve.spend()
        if error is not None:
            folder.invalidate(str(error))
        folder.finish()
    except OSError as problem:  # the disk took not even this; what was kept before says that the run has not finished
        return Finished(folder.path, folder.run, error or _cause(problem))
    finished = Finished(folder.path, folder.run, error)
    try:
        finished.report = write_report(folder.path)
    except (ResultError, OSError) as problem:
        finished.error = finished.error or Failure(f"the report could not be written: {problem}")
    return finished


def _changed(up: State) -> bool:
    """Whether what is up is another plan than it was, or other processes."""
    try:
        now = peek(up.folder)
    except Failure:
        return True
    was = up.record
    return (now.plan, now.instances, now.around) != (was.plan, was.instances, was.around)


def _watch(node: Node) -> Callable[[], None]:
    last = [time.monotonic()]

    def check() -> None:
        node.check_alive()
        if time.monotonic() - last[0] > _PORT_CHECK:
            last[0] = time.monotonic()
            if node.launcher.state is not node.state and _changed(node.state):
                raise Fault("what is up was changed while it was measured")
            node.check_ports()

    return check


def run_on_node(
    request: Request, plan: Plan, work: Callable[[Session], None], report: Reporter | None = None
) -> Finished:
    """Runs a measurement on a plan's node: on what `tailrace up` has started if it is the same, else on its own.

    What is found before any process is started is raised; from then on every end is a finished run.
    """
    check_clock()
    with hold_clean(request.state) as state:
        record = _up(request)
        if record is not None and _is_same(record, plan):
            return _on_what_is_up(request, State(request.state, record), state, work, report or Silent())
        with _own(request, state, plan.as_data()):
            node = Node.of(state, plan, logs=state.logs, tied=True)
            node.prepare()
            with _into(request, oversubscribed=plan.placement.oversubscribed, notes=node.notes) as folder:
                node.log_to(folder.logs)

                def everything() -> None:
                    node.start()
                    _with_tester(node, request, folder, work, report or Silent())

                return _finish(folder, _attempt(everything, node))


def _on_what_is_up(
    request: Request, up: State, own: State, work: Callable[[Session], None], report: Reporter
) -> Finished:
    """Measures what is `up`; the tester, and what else the measurement starts, is its `own`."""
    plan = Plan.read(up.record.plan)
    with _own(request, own, {}):
        if plan.placement.tester is not None:
            claim_place(own, plan.placement.tester)
        node = Node.of(up, plan, logs=up.logs, tied=True)
        node.attach()
        with _into(request, oversubscribed=plan.placement.oversubscribed, notes=node.notes) as folder:
            node.launcher = Launcher(own, folder.logs, tied=True)
            error = _attempt(lambda: _with_tester(node, request, folder, work, report), node)
            with undisturbed():
                for chain in (each for each in plan.chains if each.tested and not _changed(up)):
                    quietly(lambda chain=chain: node.lead(chain.name, chain.through))  # type: ignore[misc]
                with suppress(OSError):  # where the disk is full, the run still ends in order
                    for log in up.logs.glob("*.log"):
                        shutil.copy(log, folder.logs)
            return _finish(folder, error)


def _measure_floor(
    launcher: Launcher,
    request: Request,
    ports: Sequence[tuple[str, str]],
    place: Place,
    folder: RunFolder,
    report: Reporter,
    *,
    huge: bool,
) -> None:
    """Also where a run is gone on with: it is another time, and the machine may be another."""
    if request.floor:
        report.stage("the tester's own floor", floor_seconds(request.floor))
        measure_floor(launcher, ports[0][1], place, folder, request.floor, memory_mib=TESTER_BUFFERS_MIB, huge=huge)


def _with_tester(
    node: Node, request: Request, folder: RunFolder, work: Callable[[Session], None], report: Reporter
) -> None:
    for note in (*node.notes, *filter(None, [node.plan.where])):
        folder.note(note)
    place = node.plan.placement.tester
    if place is None:
        raise Mistake("no chain runs from tester.a to tester.b, so there is nothing to measure; add one to the spec")
    keep_aside(node.plan.placement.switch)
    ports = [(name.removeprefix("tester."), f"vhost:{node.socket(name)}") for name in TESTER_ENDS]
    _measure_floor(node.launcher, request, ports, place, folder, report, huge=node.plan.huge)
    tester = Tester.start(node.launcher, ports, place, memory_mib=TESTER_BUFFERS_MIB, huge=node.plan.huge)
    tester.learn = any(not function.started for function in node.plan.functions)  # a guest may be a bridge
    node.wait_for(list(TESTER_ENDS))
    folder.ran(node.fabric.version() | tester.version())
    try:
        work(Session(tester, folder, _watch(node), node, report))
    finally:
        overtaking = overtaking_note(node.plan, folder.run)
        if overtaking is not None:
            with suppress(OSError):  # where the disk is full, that is what is reported
                folder.note(overtaking)


def run_between(
    request: Request,
    ports: Sequence[tuple[str, str]],
    place: Place,
    work: Callable[[Session], None],
    *,
    huge: bool,
    report: Reporter | None = None,
) -> Finished:
    """Runs a measurement of a device that Tailrace does not manage: only the tester is started."""

    def with_tester(launcher: Launcher, folder: RunFolder, report: Reporter) -> None:
        keep_aside(place)
        _measure_floor(launcher, request, ports, place, folder, report, huge=huge)
        tester = Tester.start(launcher, ports, place, memory_mib=TESTER_BUFFERS_MIB, huge=huge)
        tester.learn = True
        folder.ran(tester.version())

        def check() -> None:
            if not tester.process.id.alive():
                raise Fault(why_ended(launcher, tester.process))

        work(Session(tester, folder, check, None, report))

    own_program(TESTER_PROGRAM)
    pages = TESTER_BUFFERS_MIB // hugepages.PAGE_MIB if huge else 0
    return run_own(request, pages, lambda state: claim_place(state, place), with_tester, report=report)


def run_own(
    request: Request,
    pages: int,
    claim: Callable[[State], None],
    work: Callable[[Launcher, RunFolder, Reporter], None],
    *,
    oversubscribed: bool = False,
    notes: Sequence[str] = (),
    report: Reporter | None = None,
) -> Finished:
    """Runs a measurement that starts what it needs by itself, on the CPUs that it claims and with so many 2 MiB pages
    free; all is gone after it."""
    check_clock()
    with hold_clean(request.state) as state:
        check_nothing_up(request.state)
        with _own(request, state, {}):
            claim(state)
            if pages:
                reserve_pages(state, pages)
            with _into(request, oversubscribed=oversubscribed, notes=notes) as folder:
                launcher = Launcher(state, folder.logs, tied=True)
                return _finish(folder, _attempt(lambda: work(launcher, folder, report or Silent()), None))


def run_in_turn(
    request: Request,
    plans: Mapping[str, Plan],
    work: Callable[[str, Session], None],
    report: Reporter | None = None,
) -> Finished:
    """Runs a measurement on nodes of its own, one after the other; `work` is told the name of the plan that is up."""

    def everything(launcher: Launcher, folder: RunFolder, report: Reporter) -> None:
        for name, plan in plans.items():
            report.stage(f"{name}: starting", 0.0)
            logs = launcher.logs / name
            logs.mkdir()
            node = Node.of(launcher.state, plan, logs=logs, tied=True)
            try:
                node.prepare()
                node.start()
                _with_tester(node, request, folder, partial(work, name), report)
            finally:
                with undisturbed():
                    problems = node.stop()
            if problems:
                raise Failure("not everything could be removed: " + "; ".join(problems))

    oversubscribed = any(plan.placement.oversubscribed for plan in plans.values())
    return run_own(request, 0, lambda _: None, everything, oversubscribed=oversubscribed, report=report)


def run_on_host(request: Request, work: Callable[[RunFolder, Launcher], None], cpus: Collection[int]) -> Finished:
    """Runs a measurement of the host, on these CPUs: there is no switch, and nothing else of Tailrace's may be there.
    What the launcher starts ends with it."""
    with hold_clean(request.state) as state:
        _check_left_out(_up(request), cpus)
        with _own(request, state, {}):
            claim_cpus(state, cpus)
            with _into(request) as folder:
                launcher = Launcher(state, folder.logs, tied=True)
                return _finish(folder, _attempt(lambda: work(folder, launcher), None))


def _check_left_out(record: Record | None, cpus: Collection[int]) -> None:
    """Raises Mistake if a poller of what is up has one of the CPUs."""
    if record is None:
        return
    placement = Plan.read(record.plan).placement
    pollers = {*placement.workers, *(core for place in placement.functions.values() for core in place.cores)}
    if taken := sorted(pollers.intersection(cpus)):
        raise Mistake(
            f"{record.spec or 'something'} is up and has CPU {show_list(taken)}; run `tailrace down`, or leave "
            "its CPUs out with --cpus"
        )


@contextmanager
def hold_clean(folder: Path) -> Iterator[State]:
    """A run's own state, without what a measurement that was killed has left: nobody else holds it, so that one has
    ended. Raises Mistake, Damaged and Failure."""
    with hold_run(folder) as state:
        if state.record.things:
            with undisturbed():
                problems = state.undo_all()
            if problems:
                raise Failure("what a killed run left could not be removed: " + "; ".join(problems))
    with hold_run(folder) as state:
        yield state


@contextmanager
def _own(request: Request, state: State, plan: dict[str, Any]) -> Iterator[None]:
    """Everything that is started in the block belongs to this run and is taken down after it."""
    state.record.purpose = "run"
    state.record.owner = identify(os.getpid())
    state.record.plan = plan
    state.record.spec = request.spec_name
    state.save()
    try:
        yield
    finally:
        with undisturbed():
            problems = state.undo_all()
        if problems:
            raise Failure("not everything could be removed: " + "; ".join(problems))


def _attempt(work: Callable[[], None], node: Node | None) -> TailraceError | None:
    """Does the work; returns what ended it early, traced back to the process that broke."""
    try:
        work()
        return None
    except BaseException as problem:
        with undisturbed():
            return _cause(_first_fault(node, problem))


def _up(request: Request) -> Record | None:
    """What is up beside the run; None if nothing is."""
    record = peek(request.state)
    return record if record.things else None


def check_nothing_up(folder: Path) -> None:
    """For what needs the machine for itself. Raises Mistake if something is up."""
    record = peek(folder)
    if record.things:
        raise Mistake(f"{record.spec or 'something'} is up, and this needs its cores; run `tailrace down` first")


def plan_beside(folder: Path, make: Callable[[Collection[Path]], Plan]) -> Plan:
    """The plan of what is up in a folder if that is what is made, else one that leaves its CPUs to it."""
    plan, record = make([folder, run_folder(folder)]), peek(folder)
    if record.things and not (record.complete and _same_plan(record.plan, plan)):
        plan = make([run_folder(folder)])
    return plan


def _is_same(record: Record, plan: Plan) -> bool:
    """Whether what is up is this very plan; another one is measured beside it. Raises Mistake if part of it has
    ended."""
    if not record.complete or not _same_plan(record.plan, plan):
        return False
    dead = [thing.name for thing in record.things if isinstance(thing, Process) and not thing.id.alive()]
    if dead:
        raise Mistake(f"{dead[0]} of what is up has ended; run `tailrace up {record.spec}` to bring it back")
    return True


def _same_plan(up: dict[str, Any], plan: Plan) -> bool:
    old = Plan.read(up)
    return plan.placed_as(old).identity == old.identity


def _first_fault(node: Node | None, problem: BaseException) -> BaseException:
    """The reason behind a lost connection: the process that has ended, if one has."""
    inner = problem.cause if isinstance(problem, Stopped) else problem
    if node is not None and isinstance(inner, Failure) and not isinstance(inner, Fault):
        try:
            node.check_alive()
        except Fault as fault:
            return fault
    return problem


def keep_aside(place: Place) -> None:
    """Keeps this process off a polling core, where it would hold packets up."""
    elsewhere = set(place.cpus) - {place.core}
    if elsewhere:
        os.sched_setaffinity(0, elsewhere)
