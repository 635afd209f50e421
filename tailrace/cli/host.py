"""`tailrace host`: shows this machine, tunes it, checks it and puts it back."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from tailrace.cli import complete
from tailrace.cli.output import ask, can_ask, error_line, json_text, print_json, print_line, run_command, wide_console
from tailrace.errors import ExitCode, Failure, Mistake
from tailrace.host import show, tuner
from tailrace.host.applied import LATENCY, check, machine_of
from tailrace.host.capabilities import find_capabilities
from tailrace.host.copy import copy_machine
from tailrace.host.journal import hold_journal, read_journal, state_folder
from tailrace.host.knobs import FAMILIES
from tailrace.host.machine import Machine, read_machine
from tailrace.host.picture import write_picture
from tailrace.host.profile import load_profile
from tailrace.host.tuning import TuningPlan, make_tuning_plan
from tailrace.host.watching import changes
from tailrace.host.writers import Writers
from tailrace.kernel.boot import boot_id
from tailrace.kernel.tree import Tree
from tailrace.resources.cards import read_cards
from tailrace.spec.units import parse_duration

app = typer.Typer(
    help="Show this machine, tune it, check it and put it back.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ProfileOption = Annotated[
    str,
    typer.Option(
        "--profile",
        metavar="P",
        help="vanilla, throughput, latency, optimized-1, optimized-2, or a YAML file.",
        autocompletion=complete.profile,
    ),
]
NicOption = Annotated[
    str | None, typer.Option("--nic", metavar="NAME", help="Use the node of this network card (name or address).")
]
RootOption = Annotated[
    Path,
    typer.Option("--root", metavar="FOLDER", help="Use a copy of a machine (`inspect --copy`) instead of this one."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
HERE = Path("/")
MODES = ("latency", "throughput")


@app.command()
def inspect(
    root: RootOption = HERE,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Draw the topology, with the roles of the cores.")
    ] = None,
    profile: ProfileOption = LATENCY,
    copy: Annotated[
        Path | None, typer.Option("--copy", metavar="FOLDER", help="Copy what Tailrace reads, for --root.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the machine: topology, network cards, clocks, kernel; each capability, what it is for and how to enable it.

    \b
    tailrace host inspect
    tailrace host inspect --svg machine.svg --profile latency
    tailrace host inspect --copy my-server && tailrace host plan --root my-server
    """

    def work() -> int:
        machine = machine_of(Tree(root))
        found = find_capabilities(machine)
        cards = read_cards(machine.tree, machine.nics)
        if copy is not None:
            print(f"{copy_machine(copy, Tree(root))} files copied to {copy}", file=sys.stderr)
        if svg is not None:
            write_picture(svg, machine, _plan(root, profile, None)[1].roles)
        if as_json:
            print_json(show.machine_document(machine, found, cards))
        else:
            wide_console().print(show.machine_tree(machine, found, cards))
        return 0

    raise typer.Exit(run_command(work))


@app.command()
def knobs(as_json: JsonOption = False) -> None:
    """List every knob: what it does, why, what it costs, which values it takes."""

    def work() -> int:
        if as_json:
            keys = ("name", "what", "why", "cost", "source", "when", "takes", "kernels", "verified")
            print_json(
                [
                    {"family": family.name, **{key: getattr(knob, key) for key in keys}}
                    for family in FAMILIES
                    for knob in family.knobs
                ]
            )
            return 0
        for family in FAMILIES:
            print_line(f"{family.title}: {family.text}")
            for knob in family.knobs:
                print_line(f"  {knob.name}: {knob.what} ({knob.takes}; {knob.when} time)")
        return 0

    raise typer.Exit(run_command(work))


@app.command()
def plan(
    profile: ProfileOption = LATENCY, nic: NicOption = None, root: RootOption = HERE, as_json: JsonOption = False
) -> None:
    """Show what a profile would change: the role of each core; each knob now and then, why, and the cost.

    \b
    tailrace host plan --profile latency
    """

    def work() -> int:
        _, made = _plan(root, profile, nic)
        if as_json:
            print_json(show.plan_document(made))
            return 0
        _print_plan(made)
        return 0

    raise typer.Exit(run_command(work))


@app.command()
def apply(
    profile: ProfileOption = LATENCY,
    nic: NicOption = None,
    root: RootOption = HERE,
    run_time: Annotated[
        bool, typer.Option("--run-time", help="Only what needs no reboot; leave the kernel arguments out.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Apply a profile: run-time knobs at once, kernel arguments by one file for the boot loader.

    \b
    sudo tailrace host apply --profile latency
    sudo tailrace host apply --run-time --yes

    A journal records the former values first; `tailrace host undo` puts them back, also after a crash or a reboot. If a
    change fails, all earlier ones are undone. Without a terminal, kernel arguments change only with --yes.
    """

    def work() -> int:
        _check_root(root, "host apply")
        if not yes and can_ask():
            machine, made = _plan(root, profile, nic)
            tuner.check_tunable(machine)
            if not as_json:
                _print_plan(made)
                sys.stdout.flush()
            ask(f"Apply {made.profile.name}?")
        with hold_journal(state_folder(Tree(root))) as journal:
            machine, made = _plan(root, profile, nic)  # again: the lock keeps others out from here on
            if not (yes or run_time or can_ask()) and tuner.changes_boot(made, machine):
                raise Mistake(
                    "the kernel arguments of the next boot would be changed, and there is no terminal to ask on; agree "
                    "with --yes, or leave them out with --run-time"
                )
            outcome = tuner.apply(made, machine, journal, boot=not run_time)
        _print_outcome(made, outcome, as_json=as_json)
        return 0

    raise typer.Exit(run_command(work))


@app.command("switch-mode")
def switch_mode(
    mode: Annotated[str, typer.Argument(metavar="latency|throughput", help="The mode to change to.")],
    root: RootOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Change between latency and throughput at run time. Functions keep running; cores keep their roles.

    \b
    sudo tailrace host switch-mode throughput
    sudo tailrace host switch-mode latency

    What the former mode had set and the new one leaves alone is put back. Kernel arguments stay as they are.
    """

    def work() -> int:
        if mode not in MODES:
            raise Mistake(f"{mode}: no such mode; expected {' or '.join(MODES)}")
        with hold_journal(state_folder(Tree(root))) as journal:
            applied, machine = journal.applied, machine_of(Tree(root))
            keeps = load_profile(applied.roles or applied.profile) if applied else None
            made = make_tuning_plan(machine, load_profile(mode), roles_of=keeps, kept=applied)
            outcome = tuner.apply(made, machine, journal, boot=False)
        _print_outcome(made, outcome, as_json=as_json)
        return 0

    raise typer.Exit(run_command(work))


@app.command()
def verify(
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="P",
            help="Check against this profile; the applied one unless given.",
            autocompletion=complete.profile,
        ),
    ] = None,
    nic: NicOption = None,
    root: RootOption = HERE,
    as_json: JsonOption = False,
) -> None:
    """Check every place: right, drifted, gone with the reboot, cannot be set here, waits for a reboot, or wrong.

    \b
    tailrace host verify

    The exit code is 1 if something that was set has been changed, or has gone with a reboot. `tailrace function verify
    NAME` checks how a machine is tuned inside.
    """

    def work() -> int:
        found = _check(root, profile, nic)
        document = show.check_document(found)
        if as_json:
            print_json(document)
        else:
            if len(found) > document["counts"][tuner.State.RIGHT.value]:
                wide_console().print(show.check_table(found))
            print_line(", ".join(f"{count} {state}" for state, count in document["counts"].items() if count))
        return ExitCode.FAILED if document["lost"] else ExitCode.DONE

    raise typer.Exit(run_command(work))


@app.command()
def watch(
    nic: NicOption = None,
    root: RootOption = HERE,
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="Time between two checks.")] = "10s",
    count: Annotated[
        int | None, typer.Option("--count", metavar="N", min=1, help="Number of checks; endless unless given.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Verify continuously: report each drift when it appears and when it is gone. Ctrl-C ends it.

    \b
    sudo tailrace host watch

    As root it sees who writes to the files that were set: it reports drift at once, with the name, and `verify` then
    knows the name too. With --json each event is one line.
    """

    def work() -> int:
        try:
            seconds = parse_duration(every)
        except ValueError as error:
            raise Mistake(f"--every: {error}") from None
        writers, ever = None, False
        try:
            writers = Writers.start(state_folder(), boot_id(Tree(root))) if root == HERE else None
        except Failure as error:
            error_line(str(error))
        try:
            for change in changes(lambda: _check(root, None, nic), writers, seconds, count):
                _event(change.what, change.checked, as_json=as_json)
                ever = True
        finally:
            if writers is not None:
                writers.close()
        return ExitCode.FAILED if ever else ExitCode.DONE

    raise typer.Exit(run_command(work))


@app.command()
def undo(root: RootOption = HERE, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """Put back everything that `tailrace host` has changed. Harmless if nothing is changed.

    \b
    sudo tailrace host undo
    """

    def work() -> int:
        folder = state_folder(Tree(root))
        entries = read_journal(folder).entries
        if entries:
            _check_root(root, "host undo")
            if not yes and can_ask():
                ask(f"Put {len(entries)} places back?")
        problems: list[str] = []
        if entries:
            with hold_journal(folder) as journal:
                problems = tuner.undo(read_machine(Tree(root)), journal)
        if as_json:
            print_json({"places": len(entries), "problems": problems})
        if problems:
            raise Failure(f"not all was put back: {'; '.join(problems)}")
        if not as_json:
            print_line(f"{len(entries)} places are as they were." if entries else "Nothing is changed.")
        return 0

    raise typer.Exit(run_command(work))


def _check_root(root: Path, what: str) -> None:
    """Raises Mistake where this machine is to be changed by somebody who may not."""
    if root == HERE and os.geteuid() != 0:
        raise Mistake(f"{what} changes the machine, which needs root; start it with sudo")


def _plan(root: Path, profile: str, nic: str | None) -> tuple[Machine, TuningPlan]:
    machine = machine_of(Tree(root))
    applied = None
    if root == HERE:
        with suppress(Failure):  # only root may read it; a plan changes nothing
            applied = read_journal(state_folder()).applied
    return machine, make_tuning_plan(machine, load_profile(profile), nic, kept=applied)


def _check(root: Path, profile: str | None, nic: str | None) -> list[tuner.Checked]:
    return check(Tree(root), profile, nic)[1]


def _print_outcome(made: TuningPlan, outcome: tuner.Outcome, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "profile": made.profile.name,
                "changed": [step.setting.place for step in outcome.changed],
                "put_back": list(outcome.put_back),
                "refused": {step.setting.place: why for step, why in outcome.refused},
                "missing": made.missing(),
                "warnings": list(made.warnings),
                "reboot": outcome.reboot,
            }
        )
        return
    print_line(f"Changed {len(outcome.changed)} places.")
    if outcome.put_back:
        print_line(f"Put back {len(outcome.put_back)} places that this profile leaves alone.")
    for line in show.refused_lines(outcome):
        print_line(line)
    if missing := made.missing():
        print_line(f"Not on this machine: {', '.join(f'{name} (needs {needs})' for name, needs in missing.items())}.")
    if outcome.reboot:
        print_line("Reboot for the kernel arguments to take effect.")


def _print_plan(made: TuningPlan) -> None:
    for line in show.plan_lines(made):
        print_line(line)
    wide_console().print(show.plan_table(made))
    for warning in made.warnings:
        print_line(f"Note: {warning}.")
    costs = made.costs()
    if costs:
        print_line("What it costs:")
        for cost in costs:
            print_line(f"  {cost}")


def _event(what: str, checked: tuner.Checked, *, as_json: bool) -> None:
    step = checked.step
    if as_json:
        at = {"time": time.time(), "event": what, "knob": step.knob.name, "place": step.setting.place}
        text = json_text({**at, "wanted": step.setting.wanted, "now": step.now, "by": checked.by})
    else:
        by = f", by {checked.by}" if checked.by else ""
        stamp = time.strftime("%H:%M:%S")
        text = f"{stamp} {step.knob.name} {what}: {step.setting.target} wanted {step.setting.wanted}, is {step.now}{by}"
    print_line(text)
    sys.stdout.flush()
