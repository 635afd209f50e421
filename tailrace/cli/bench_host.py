"""`tailrace bench host`: how long the commands of `tailrace host` take."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from tailrace.bench.host import HERE, HostBenchPlan, host_table, run
from tailrace.cli.options import JsonOption
from tailrace.cli.output import print_json, run_command
from tailrace.measure.progress import Silent, reporter
from tailrace.report.screen import Screen


def host(
    root: Annotated[
        Path, typer.Option(metavar="FOLDER", help="A copied machine, which is only read. Default: this machine.")
    ] = HERE,
    profile: Annotated[str, typer.Option(metavar="P", help="The tuning profile.")] = "latency",
    times: Annotated[int, typer.Option(metavar="N", help="How often each command is run.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """The time that `tailrace host inspect`, plan, apply, verify and undo take, each as a user starts it.

    \b
    sudo tailrace bench host
    tailrace bench host --root my-server

    On this machine the run-time part of the profile is applied and undone each time, under a journal of its own; this
    needs root. On a copied machine (`tailrace host inspect --copy`) only inspect, plan and verify are measured.
    """

    def work() -> int:
        plan = HostBenchPlan(Path(sys.argv[0]).absolute(), root, profile, times)
        bar = reporter(plan.total_seconds, wanted=not as_json)
        with bar or nullcontext():
            found = run(plan, bar or Silent())
        if as_json:
            print_json(found.document())
        else:
            Screen().print(host_table(found))
        return 0

    raise typer.Exit(run_command(work))
