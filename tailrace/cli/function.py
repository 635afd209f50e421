"""`tailrace function`: one function of what is up, wherever it lives."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from typing import Annotated

import typer

from tailrace.cli import complete, operate
from tailrace.cli.options import JsonOption
from tailrace.cli.output import plain_table, print_json, print_line, run_command, wide_console
from tailrace.errors import Mistake
from tailrace.node.folder import default_folder
from tailrace.node.record import Process, peek
from tailrace.observe.function_log import last_lines, log_of, process_of

app = typer.Typer(help="Look at one function of what is up.", no_args_is_help=True, rich_markup_mode=None)

NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A function's name, or a replica's.", autocompletion=complete.replica),
]


@app.command()
def log(
    name: NameArgument,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="The last so many lines.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print what is added, until Ctrl-C.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print what a function has said: of a machine, its console.

    \b
    sudo tailrace function log first
    sudo tailrace function log first --follow
    """
    raise typer.Exit(run_command(lambda: _log(name, lines, follow=follow, as_json=as_json)))


@app.command()
def restart(name: NameArgument, as_json: JsonOption = False) -> None:
    """Replace what runs of a function by a new instance, without losing a frame.

    \b
    sudo tailrace function restart second

    The new one starts beside the old one, which ends when the switch has changed over. A replica's name replaces that
    replica, the function's all of them.
    """
    raise typer.Exit(run_command(lambda: operate.restart(name, as_json=as_json)))


@app.command()
def stop(name: NameArgument, as_json: JsonOption = False) -> None:
    """End a function, and do not start it again by itself. Its chain does what `on_failure` says.

    \b
    sudo tailrace function stop second
    """
    raise typer.Exit(run_command(lambda: operate.stop(name, as_json=as_json)))


@app.command()
def start(name: NameArgument, as_json: JsonOption = False) -> None:
    """Start a function that was stopped.

    \b
    sudo tailrace function start second
    """
    raise typer.Exit(run_command(lambda: operate.start(name, as_json=as_json)))


@app.command()
def explain(name: NameArgument, as_json: JsonOption = False) -> None:
    """Say what a function's latency level has set, why, and what the host does not allow.

    \b
    sudo tailrace function explain first
    """
    raise typer.Exit(run_command(lambda: _explain(name, as_json=as_json)))


@app.command()
def console(name: NameArgument) -> None:
    """Open a shell in a machine, on its second serial port. Ctrl-] leaves it.

    \b
    sudo tailrace function console first
    """
    raise typer.Exit(run_command(lambda: _console(name)))


@app.command()
def xml(name: NameArgument, as_json: JsonOption = False) -> None:
    """Print a machine in libvirt's words, as it runs.

    \b
    sudo tailrace function xml first | less
    """
    raise typer.Exit(run_command(lambda: _xml(name, as_json=as_json)))


def _process(name: str) -> Process:
    """The process of a function that is up. Raises Mistake."""
    return process_of(default_folder(), name)


def _machine(name: str) -> Process:
    process = _process(name)
    if process.runtime != "machine":
        raise Mistake(f"{name} lives in a {process.runtime}, which has no such thing; expected a machine's name")
    return process


def _log(name: str, lines: int, *, follow: bool, as_json: bool) -> int:
    path = log_of(default_folder(), name)
    try:
        with path.open("rb") as file:
            found = last_lines(file, lines)
            if as_json:
                print_json({"log": str(path), "lines": found})
                return 0
            for line in found:
                print_line(line)
            while follow:
                if added := file.readline():
                    print_line(added.decode(errors="replace").rstrip("\n"))
                else:
                    time.sleep(0.1)
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}; run as the user who has started it (sudo)") from None
    return 0


def _explain(name: str, *, as_json: bool) -> int:
    from tailrace.functions.acceleration import acceleration
    from tailrace.functions.levels import Machine, explained
    from tailrace.functions.traits import read_traits
    from tailrace.node.plan import Plan
    from tailrace.resources.topology import read_cpus
    from tailrace.resources.tree import Tree

    _process(name)
    plan = Plan.read(peek(default_folder()).plan)
    function = next(each for each in plan.started if each.name == name)
    points = explained(
        function,
        plan.placement.functions[name],
        huge=plan.huge,
        cpus=read_cpus(Tree()),
        machine=Machine(acceleration(), read_traits(Tree())) if function.runs == "machine" else None,
    )
    if as_json:
        print_json({"name": name, "latency": function.latency, "points": [asdict(each) for each in points]})
        return 0
    print_line(f"{name} runs in a {function.runs}, latency {function.latency}.")
    table = plain_table("", "set", "why")
    for each in points:
        table.add_row(each.what, each.is_set, each.why)
    wide_console().print(table)
    for each in points:
        if each.lacking:
            print_line(f"not here: {each.lacking}")
    return 0


def _console(name: str) -> int:
    from tailrace.functions.hypervisor import console_command

    words = console_command(_machine(name).outside)
    os.execv(words[0], words)


def _xml(name: str, *, as_json: bool) -> int:
    from tailrace.functions.hypervisor import machine_xml

    process = _machine(name)
    xml = machine_xml(process.outside)
    if as_json:
        print_json({"name": process.outside, "xml": xml})
    else:
        print_line(xml.rstrip("\n"))
    return 0
