"""`tailrace measure host` and `tailrace compare host`: how late the host's CPUs wake up, as it is or by profile."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli import compare as comparing
from tailrace.cli import complete
from tailrace.cli.options import DEFAULT_RUNS, JsonOption, RunsOption
from tailrace.cli.output import print_line, run_command, show_finished
from tailrace.errors import Failure, Interrupted, Mistake, TailraceError
from tailrace.host import tuner
from tailrace.host.journal import Journal, hold_journal, read_journal, state_folder
from tailrace.host.machine import Machine, read_machine
from tailrace.host.profile import Profile, load_profile
from tailrace.host.tuning import make_tuning_plan
from tailrace.kernel.cpus import parse_list, show_list
from tailrace.kernel.tree import Tree
from tailrace.measure.host.loads import LOADS
from tailrace.measure.host.plan import HostPlan, read_plan
from tailrace.measure.host.run import measure_host, usable
from tailrace.measure.host.tools import Cyclictest, Oslat, Tool
from tailrace.measure.host.tracers import TRACERS, available_tracers
from tailrace.measure.progress import Reporter, Silent, reporter
from tailrace.measure.session import Request, run_on_host
from tailrace.process.process import undisturbed
from tailrace.resources.roles import ROLES, Roles, deal_roles
from tailrace.results import RunFolder, load_run
from tailrace.results.run import SPEC, find_folder
from tailrace.spec.units import parse_duration, show_span
from tailrace.state.folder import default_folder

HOST = "host"
"""What the run is called."""
PROGRAMS: dict[str, Tool] = {"cyclictest": Cyclictest(), "oslat": Oslat()}


@dataclass(frozen=True)
class HostOptions:
    """What the command line says; None is "as it suits the machine"."""

    duration: str | None
    tools: str | None
    loads: str | None
    cpus: str | None
    runs: Path
    as_json: bool
    resume: Path | None = None


compare_app = comparing.app

ToolsOption = Annotated[
    str | None,
    typer.Option(
        "--tools", metavar="LIST", help="cyclictest, oslat, timerlat, osnoise, hwlat. Default: all that are available."
    ),
]
LoadsOption = Annotated[
    str | None,
    typer.Option("--load", metavar="LIST", help="What else runs, in turn: none, cpu, memory."),
]
CpusOption = Annotated[
    str | None,
    typer.Option("--cpus", metavar="LIST", help="The CPUs to measure: 1,4-7. Default: those of every role."),
]
TimeOption = Annotated[str | None, typer.Option("--duration", metavar="TIME", help="Of the whole run: 60s, 12h.")]


def measure(
    duration: Annotated[
        str | None, typer.Option(metavar="TIME", help="Of the whole run, such as 12h. Default: 60s.")
    ] = None,
    tools: ToolsOption = None,
    loads: LoadsOption = None,
    cpus: CpusOption = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Continue the interrupted run in this folder.", autocompletion=complete.run),
    ] = None,
    runs: RunsOption = DEFAULT_RUNS,
    as_json: JsonOption = False,
) -> None:
    """Measure how late the CPUs of each role wake up, and how long they are taken away, idle and under load.

    \b
    sudo tailrace measure host
    sudo tailrace measure host --duration 12h --load memory --cpus 2-7
    sudo tailrace measure host --resume runs/2026-11-21-143005-host

    cyclictest and oslat run anywhere; timerlat, osnoise and hwlat need a kernel with these tracers. Tools and loads run
    in turn, in slices of at most a minute. Each slice has its own record, so a long run shows when something happened.
    Each slice is on disk when it ends. After Ctrl-C, a crash or a reboot, --resume measures the rest, and the report
    shows the gap.
    """
    options = HostOptions(duration, tools, loads, cpus, runs, as_json, resume)
    raise typer.Exit(run_command(lambda: _measure(options)))


@compare_app.command("host")
def compare(
    profiles: Annotated[
        str,
        typer.Option(
            "--profiles", metavar="LIST", help="Tuning profiles to measure in turn; the first is the baseline."
        ),
    ] = "vanilla,latency",
    pairs: Annotated[int, typer.Option("--pairs", min=1, help="How often each profile is measured, at least.")] = 5,
    duration: TimeOption = "100s",
    tools: ToolsOption = "cyclictest",
    loads: LoadsOption = "cpu",
    cpus: CpusOption = None,
    runs: RunsOption = DEFAULT_RUNS,
    as_json: JsonOption = False,
) -> None:
    """Compare tuning profiles, each in turn (A B A B). Only settings that need no reboot; all are undone at the end.

    \b
    sudo tailrace compare host --profiles vanilla,latency
    sudo tailrace compare host --profiles vanilla,throughput,latency --tools cyclictest,oslat --duration 1h
    """
    options = HostOptions(duration, tools, loads, cpus, runs, as_json)
    raise typer.Exit(run_command(lambda: _compare(profiles, pairs, options)))


def _measure(options: HostOptions) -> int:
    """The host as it is."""
    machine = _check_able()
    if options.resume is not None:
        return _resume(find_folder(options.resume, options.runs), options)
    applied = read_journal(state_folder()).applied
    profile = load_profile((applied.roles or applied.profile) if applied else "latency")
    node, system = (applied.node, applied.system) if applied else (None, None)
    roles = deal_roles(machine, profile.roles, kept=node, kept_system=system)
    plan = _plan(options, roles)
    plan.check_space(options.runs)
    return _run(HOST, options, plan, lambda folder, report: measure_host(plan, folder, report))


def _resume(path: Path, options: HostOptions) -> int:
    """What is left of a run."""
    if options.duration or options.tools or options.loads or options.cpus:
        raise Mistake("--resume continues the run as it began; expected no other settings with it")
    run = load_run(path)
    soak = run.host_soak
    if soak is None or run.method != HOST:
        raise Mistake(f"{path}: not a run of `tailrace measure host`; expected its folder")
    if soak.done >= soak.slices:
        raise Mistake(f"{path}: its {soak.slices} slices are all measured; begin a new run")
    plan = read_plan((path / SPEC).read_text(), str(path / SPEC), lambda name: _tools(name)[0])
    wanted = (*plan.cpus, *plan.control)
    missing = sorted(set(wanted) - set(usable(wanted)))
    if missing:
        raise Mistake(f"{path}: CPU {missing[0]}, which it measured, is not available to this process; begin a new run")
    return _run(HOST, options, plan, lambda folder, report: measure_host(plan, folder, report), soak.done)


def _compare(profiles: str, pairs: int, options: HostOptions) -> int:
    """Profiles in turn, at run time; the host is as it was afterwards."""
    names = [name.strip() for name in profiles.split(",")]
    if len(names) < 2 or len(set(names)) < len(names):
        raise Mistake(f"--profiles {profiles}: expected two or more different profiles, such as vanilla,latency")
    loaded = {name: load_profile(name) for name in names}
    machine = _check_able()
    tuner.check_tunable(machine)
    roles = deal_roles(machine, loaded[names[-1]].roles)
    plan = _plan(options, roles, names, pairs)
    with hold_journal(state_folder()) as journal:
        if journal.entries:
            raise Mistake("the host is tuned already; run `tailrace host undo` first")

        def switch(name: str | None) -> None:
            # The facts are read anew, because the profile before has changed them.
            now = read_machine(Tree())
            made = make_tuning_plan(now, loaded[name or ""], roles_of=loaded[names[-1]])
            tuner.apply(made, now, journal, boot=False)

        def work(folder: RunFolder, report: Reporter) -> None:
            for note in _left_out(names, machine, loaded):
                folder.note(note)
            with _putting_back(journal, Tree()):
                measure_host(plan, folder, report, switch)

        return _run("compare-host", options, plan, work)


@contextmanager
def _putting_back(journal: Journal, tree: Tree) -> Iterator[None]:
    """Puts the host back after the block; what cannot be is reported beside whatever else has ended the block."""
    try:
        yield
    except BaseException as error:
        if problem := _put_back(journal, tree):
            kind = Interrupted if isinstance(error, KeyboardInterrupt) else Failure
            raise kind(f"{str(error) or 'interrupted by Ctrl-C'}; besides, {problem}") from error
        raise
    if problem := _put_back(journal, tree):
        raise Failure(problem)


def _put_back(journal: Journal, tree: Tree) -> str | None:
    """Why the host is not as it was, and what to do; None if it is."""
    with undisturbed():
        try:
            problems = tuner.undo(read_machine(tree), journal)
        except (OSError, TailraceError) as error:
            problems = [str(error)]
    return f"not all was put back: {'; '.join(problems)}; run `tailrace host undo`" if problems else None


def _left_out(names: Sequence[str], machine: Machine, loaded: Mapping[str, Profile]) -> list[str]:
    """What of the profiles a comparison without a reboot cannot show."""
    said = []
    for name in names:
        made = make_tuning_plan(machine, loaded[name])
        waiting = [step.setting.target for step in made.steps("boot") if not step.done]
        if waiting:
            said.append(f"Profile {name} without its kernel arguments, which need a reboot: {', '.join(waiting)}.")
        nothing = [each.knob.name for each in made.tuned if each.knob.when == "run" and not each.steps]
        if nothing:
            said.append(f"Profile {name}: knobs that this machine does not have: {', '.join(nothing)}.")
    return said


def _check_able() -> Machine:
    if os.geteuid() != 0:
        raise Mistake("measuring the host needs root, for real-time priorities and tracers; start it with sudo")
    return read_machine(Tree())


def _plan(options: HostOptions, roles: Roles, profiles: Sequence[str | None] = (None,), pairs: int = 1) -> HostPlan:
    role = {cpu: name for name in ROLES for cpu in roles.cpus[name]}
    wanted = sorted(role) if options.cpus is None else _listed(options.cpus)
    try:
        seconds = parse_duration(options.duration or "60s")
    except ValueError as error:
        raise Mistake(f"--duration: {error}") from None
    cpus = usable(wanted)
    missing = sorted(set(wanted) - set(cpus))
    if missing and options.cpus is not None:
        raise Mistake(f"--cpus {options.cpus}: CPU {missing[0]} is not available to this process")
    control = tuple(usable(roles.system))
    if not control or not cpus:
        raise Mistake(
            "no CPU of the role system is available; expected at least one for everything that does not measure"
        )
    loads = words("--load", options.loads or ",".join(LOADS), LOADS)
    return HostPlan(
        _tools(options.tools), loads, {cpu: role[cpu] for cpu in cpus}, control, seconds, tuple(profiles), pairs
    )


def _listed(text: str) -> list[int]:
    """The CPUs of --cpus."""
    try:
        cpus = list(parse_list(text))
    except ValueError as error:
        raise Mistake(f"--cpus: {error}") from None
    if not cpus:
        raise Mistake("--cpus: no CPU is named; expected a list such as 1,4-7")
    return cpus


def _tools(wanted: str | None) -> list[Tool]:
    here = {**PROGRAMS, **{name: TRACERS[name] for name in available_tracers()}}
    if wanted is None:
        return list(here.values())
    names = words("--tools", wanted, (*PROGRAMS, *TRACERS))
    missing = [name for name in names if name not in here]
    if missing:
        raise Mistake(
            f"--tools {wanted}: {missing[0]} needs a kernel with CONFIG_{missing[0].upper()}_TRACER, and tracefs "
            f"mounted at /sys/kernel/tracing; Debian's linux-image-rt-amd64 has it; here there are {', '.join(here)}"
        )
    return [here[name] for name in names]


def words(option: str, text: str, known: Sequence[str]) -> list[str]:
    """The words of a list, each once. Raises Mistake if one is not known."""
    found = [word.strip() for word in text.split(",")]
    wrong = [word for word in found if word not in known]
    if wrong:
        raise Mistake(f"{option} {text}: {wrong[0]!r} is unknown; expected {', '.join(known)}")
    return list(dict.fromkeys(found))


def _run(
    name: str, options: HostOptions, plan: HostPlan, work: Callable[[RunFolder, Reporter], None], done: int = 0
) -> int:
    tools, loads = (", ".join(each) for each in ([tool.name for tool in plan.tools], plan.loads))
    text = (
        f"# tailrace {name}: {tools}; loads {loads}; CPUs {show_list(plan.cpus)}\n"
        f"# {plan.rounds} rounds of slices of {plan.slice_seconds} s\n{plan.text()}"
    )
    command = ("tailrace", *sys.argv[1:])
    request = Request(name, options.runs, default_folder(), command, text, name, None, resume=options.resume)
    left = plan.time_left(done)
    if not options.as_json:
        print_line(f"Measuring for {show_span(left)}: {tools}; loads {loads}; CPUs {show_list(plan.cpus)}.")
    bar = reporter(left, wanted=not options.as_json)
    if bar is None:
        finished = run_on_host(request, lambda folder, _: work(folder, Silent()), plan.cpus)
    else:
        with bar:
            finished = run_on_host(request, lambda folder, _: work(folder, bar), plan.cpus)
    return show_finished(finished, as_json=options.as_json)
