"""`tailrace measure interrupts`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli import commands, complete
from tailrace.cli.measure_host import words
from tailrace.cli.options import DEFAULT_RUNS, JsonOption, RunsOption
from tailrace.cli.output import run_command
from tailrace.errors import Mistake
from tailrace.functions.acceleration import acceleration
from tailrace.functions.images import DEFAULT, machine_image
from tailrace.functions.machine import InMachine
from tailrace.kernel.cpus import show_list
from tailrace.measure.beside import BOOT_SECONDS, PROGRAM, Guest, Neighbour
from tailrace.measure.beside import LOAD as MACHINES
from tailrace.measure.host.loads import LOADS
from tailrace.measure.host.plan import HostPlan
from tailrace.measure.interrupt_plan import COMMAND, InterruptPlan, read_interrupt_plan
from tailrace.measure.interrupt_trace import check_path
from tailrace.measure.interrupts import (
    FIGURES,
    GUESTS,
    NATIVE,
    RECEIVER,
    SENDS,
    SIDES,
    Clock,
    Side,
    Way,
    measure_interrupts,
)
from tailrace.measure.progress import Reporter, Silent
from tailrace.measure.session import Request, run_on_host
from tailrace.plan.make import priority_of
from tailrace.resources.topology import allowed_cpus
from tailrace.results import RunFolder, load_run
from tailrace.results.run import SPEC, find_folder
from tailrace.spec.load import load_spec
from tailrace.spec.units import parse_duration, show_span
from tailrace.state.folder import default_folder
from tailrace.state.launch import Launcher

METHOD = "interrupts"
PERIOD_LEAST, PERIOD_MOST = 10e-6, 1.0
TTI_BUDGET_NS = 50_000


def interrupts(
    context: typer.Context,
    spec: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SPEC]",
            help="A spec: its machines are the receivers, beside the host, in place of tuned and untuned.",
            autocompletion=complete.spec,
        ),
    ] = None,
    sides: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help=f"Receivers that take turns. Default: all of {', '.join(SIDES)}, or of the spec.",
            autocompletion=complete.interrupt_side,
        ),
    ] = None,
    period: Annotated[str, typer.Option(metavar="TIME", help="From one interrupt to the next: 10us to 1s.")] = "1ms",
    duration: Annotated[str, typer.Option(metavar="TIME", help="Of the whole run, such as 40m.")] = "60s",
    cpu: Annotated[
        int | None, typer.Option(metavar="N", help="The CPU of the receivers. Default: the last that is free.")
    ] = None,
    tti: Annotated[
        bool,
        typer.Option(
            "--tti", help="Transmission time intervals: they begin at whole periods of TAI; a budget of 50us."
        ),
    ] = False,
    path: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="How they come, in turn: msix (a device's), vring (a network device's receive queue, virtio), ipi "
            "(from another CPU of the receiver), timer (its own). To the host by an eventfd in place of the first two.",
            autocompletion=complete.interrupt_path,
        ),
    ] = "msix",
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Count those that arrive later than that, and say a verdict.")
    ] = None,
    causes: Annotated[
        bool,
        typer.Option("--causes", help="Also record events on the receivers' CPU, and show why the slowest were slow."),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Record as --causes, and write a trace of the slowest for Perfetto; FILE.txt: as text.",
        ),
    ] = None,
    functions: Annotated[
        bool,
        typer.Option(
            "--functions",
            help="With --trace: also which functions of the kernels the slowest interrupt so far went through. It "
            "slows interrupts down.",
        ),
    ] = False,
    beside: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Machines of the spec that receive nothing: in turn stress-ng runs in them."),
    ] = None,
    load: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="What else runs, in turn: none, cpu, memory; machines: --beside. Default: none, and machines if any.",
            autocompletion=complete.interrupt_load,
        ),
    ] = None,
    image: Annotated[
        str, typer.Option(metavar="NAME", help="The machines' image.", autocompletion=complete.image)
    ] = DEFAULT,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Continue the interrupted run in this folder.", autocompletion=complete.run),
    ] = None,
    runs: RunsOption = DEFAULT_RUNS,
    as_json: JsonOption = False,
) -> None:
    """Measure how long an interrupt takes to user space: of this host, and of machines.

    \b
    sudo tailrace measure interrupts
    sudo tailrace measure interrupts examples/machines.yaml    # in machines as those of the spec
    sudo tailrace measure interrupts --sides native --period 100us --duration 10s
    sudo tailrace measure interrupts --duration 40m --load cpu
    sudo tailrace measure interrupts --tti --sides native --duration 10s
    sudo tailrace measure interrupts --path vring         # as a network function gets them
    sudo tailrace measure interrupts --path ipi           # from one CPU of theirs to another
    sudo tailrace measure interrupts --path timer         # how late receivers' own timers wake them
    sudo tailrace measure interrupts --causes             # and why the slowest were slow
    sudo tailrace measure interrupts --trace trace.json   # the same, for https://ui.perfetto.dev
    sudo tailrace measure interrupts --trace trace.txt --functions   # and the kernels' functions, as text
    sudo tailrace measure interrupts examples/consolidation.yaml --beside office --budget 50us
    sudo tailrace measure interrupts --resume runs/2026-11-21-143005-interrupts

    native: a thread of real-time priority waits in a process. tuned and untuned: it waits in a machine, at `latency:
    high` and `latency: normal`. There the interrupt is a message-signalled one (MSI-X) of a device, unless --path says
    otherwise. All take turns on the same CPU, by one clock. Each slice is on disk when it ends: after Ctrl-C, a crash
    or a reboot, --resume measures the rest.
    """

    def call() -> int:
        if functions and trace is None:
            raise Mistake("--functions: expected --trace FILE beside it, which shows them")
        if resume is not None:
            _check_no_more(context)
            folder = find_folder(resume, runs)
            before, done = _left_of(folder, traced=trace is not None)
            return _measure(before, done, trace, runs, functions=functions, resume=folder, as_json=as_json)
        guests = dict(GUESTS) if spec is None else _machines_of(spec)
        neighbours = [] if beside is None else _neighbours(beside, {} if spec is None else guests)
        for each in neighbours:
            del guests[each.name]
        known = (NATIVE, *guests)
        names = words("--sides", ",".join(known) if sides is None else sides, known)
        more = (MACHINES,) if neighbours else ()
        loads = words("--load", ",".join(("none", *more)) if load is None else load, (*LOADS, *more))
        every = _seconds("--period", period)
        if not PERIOD_LEAST <= every <= PERIOD_MOST:
            raise Mistake(f"--period {period}: expected 10us to 1s")
        within = _budget(budget, every, tti=tti)
        ways = [each for each in FIGURES if each in words("--path", path, list(FIGURES))]
        if tti and not {"ipi", "timer"}.isdisjoint(ways):
            raise Mistake(f"--path {path} and --tti: a receiver's own clock knows no TAI; expected msix or vring")
        clock: Clock = "tai" if tti else "monotonic"
        receivers = [
            Side(name, round(every * 1e9), guests.get(name), within, clock, _paths_to(name, ways)) for name in names
        ]
        core, control = _cpus(cpu)
        plan = HostPlan(
            [tool for side in receivers for tool in side.tools()],
            loads,
            {core: RECEIVER, control[0]: SENDS},
            control,
            _seconds("--duration", duration),
        )
        asked = InterruptPlan(plan, receivers, neighbours, image, causes or trace is not None)
        return _measure(asked, 0, trace, runs, functions=functions, as_json=as_json)

    raise typer.Exit(run_command(call))


def _check_no_more(context: typer.Context) -> None:
    """With --resume nothing else is said but what does not change the run. Raises Mistake."""
    others = set(context.params) - {"resume", "trace", "functions", "runs", "as_json"}
    sources = filter(None, map(context.get_parameter_source, others))
    if any(each.name == "COMMANDLINE" for each in sources):
        raise Mistake(
            "--resume continues the run as it began; expected no other settings with it but --trace and --functions"
        )


def _left_of(path: Path, *, traced: bool) -> tuple[InterruptPlan, int]:
    """What a run was asked for, and how many of its slices are measured. Raises Mistake, also where the rest is to be
    traced and the run does not record."""
    run = load_run(path)
    soak = run.host_soak
    if soak is None or run.method != METHOD:
        raise Mistake(f"{path}: not a run of `tailrace {COMMAND}`, or nothing of it is measured yet; begin a new run")
    if soak.done >= soak.slices:
        raise Mistake(f"{path}: its {soak.slices} slices are all measured; begin a new run")
    plan = read_interrupt_plan((path / SPEC).read_text(), str(path / SPEC))
    if traced and not plan.causes:
        raise Mistake(
            f"{path}: --trace needs a run that was begun with --causes or --trace: only some of its slices would be "
            "recorded; resume it without --trace, or begin a new run"
        )
    missing = sorted({*plan.host.cpus, *plan.host.control} - {cpu.number for cpu in allowed_cpus()})
    if missing:
        raise Mistake(f"{path}: CPU {missing[0]}, which it measured, is not available to this process; begin a new run")
    return plan, soak.done


def _measure(
    plan: InterruptPlan,
    done: int,
    trace: Path | None,
    runs: Path,
    *,
    functions: bool,
    resume: Path | None = None,
    as_json: bool,
) -> int:
    """What is left after so many slices."""
    if trace is not None:
        check_path(trace)
    commands.needs_root(COMMAND, "real-time priorities and machines")
    machines = {side.guest.image or plan.image for side in plan.sides if side.guest is not None}
    notes = _check_machines(machines, {each.guest.image or plan.image for each in plan.beside})
    names = ", ".join(side.side for side in plan.sides)
    core, sender = plan.host.cpus
    text = f"# tailrace {COMMAND}: {names}\n{plan.text()}"
    command = tuple(commands.command_line())
    request = Request("interrupts", runs, default_folder(), command, text, METHOD, METHOD, resume=resume)
    left = plan.host.time_left(done)
    line = f"Measuring for {show_span(left)}: {names}; receivers on CPU {core}, senders on {sender}."
    commands.say([line, *notes], as_json=as_json)

    def work(folder: RunFolder, launcher: Launcher, report: Reporter) -> None:
        for each in notes:
            if each not in folder.run.notes:
                folder.note(each)
        measure_interrupts(
            plan.host,
            plan.sides,
            plan.image,
            folder,
            launcher,
            report,
            causes=plan.causes,
            trace=trace,
            functions=functions,
            beside=plan.beside,
        )

    return commands.run_with_bar(
        lambda bar: run_on_host(
            request, lambda folder, launcher: work(folder, launcher, bar or Silent()), (core, sender)
        ),
        left + sum(side.start_seconds for side in plan.sides) + BOOT_SECONDS * len(plan.beside),
        as_json=as_json,
    )


def _machines_of(path: Path) -> dict[str, Guest]:
    """What a receiver's machine takes from each machine of a spec. Raises Mistake."""
    found = {
        name: Guest(function.latency, function.memory, None if function.disk else function.image, priority_of(function))
        for name, function in load_spec(path).functions.items()
        if function.runs == "machine"
    }
    if not found:
        raise Mistake(f"{path}: no function of it has `runs: machine`; without a spec two machines are measured")
    if NATIVE in found:
        raise Mistake(f"{path}: the name of functions.{NATIVE} means the host here; give it another one")
    return found


def _neighbours(names: str, machines: Mapping[str, Guest]) -> list[Neighbour]:
    """Those of a spec's machines that are a load. Raises Mistake."""
    if not machines:
        raise Mistake(f"--beside {names}: expected a spec that has these machines, such as examples/consolidation.yaml")
    found = words("--beside", names, list(machines))
    for name in found:
        if machines[name].latency == "high":
            raise Mistake(
                f"--beside {name}: at `latency: high` it would keep this host's other work from its CPU; expected "
                "normal or medium"
            )
    return [Neighbour(name, machines[name]) for name in found]


def _paths_to(receiver: str, wanted: Sequence[Way]) -> tuple[Way, ...]:
    """This host has no virtio device: its other interrupts are what those of machines are compared with."""
    return tuple(each for each in wanted if receiver != NATIVE or each != "vring") or ("msix",)


def _seconds(option: str, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise Mistake(f"{option}: {error}") from None


def _budget(text: str | None, period: float, *, tti: bool) -> int | None:
    """In ns; None: there is none."""
    if text is None:
        return min(TTI_BUDGET_NS, round(period * 1e9)) if tti else None
    seconds = _seconds("--budget", text)
    if not 1e-6 <= seconds <= period:
        raise Mistake(f"--budget {text}: expected 1us to the period, {period * 1e3:g}ms")
    return round(seconds * 1e9)


def _cpus(wanted: int | None) -> tuple[int, tuple[int, ...]]:
    """The receivers' CPU, and those of everything else."""
    allowed = [cpu.number for cpu in allowed_cpus()]
    if len(allowed) < 2:
        raise Mistake("an interrupt goes from one CPU to another, and this process may use one only")
    core = allowed[-1] if wanted is None else wanted
    if core not in allowed:
        raise Mistake(f"--cpu {core} is not available to this process; expected one of {show_list(allowed)}")
    return core, tuple(each for each in allowed if each != core)


def _check_machines(receivers: Collection[str], loads: Collection[str]) -> list[str]:
    """What is to be said of machines that boot from these images, of which `loads` need the load's program. Raises
    Mistake where there can be none."""
    for name in sorted({*receivers, *loads}):
        programs = machine_image(name).programs
        if name in loads and PROGRAM not in programs:
            raise Mistake(
                f"the image {name} has no {PROGRAM}; build it: `tailrace image build {name} --with {PROGRAM}`"
            )
    if not receivers and not loads:
        return []
    InMachine().check()
    return list(acceleration().notes)
