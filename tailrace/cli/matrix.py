"""`tailrace measure matrix`: begun, or gone on with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, get_args

import typer
from pydantic import ValidationError

from tailrace.cli import commands, complete
from tailrace.cli.options import DEFAULT_RUNS, HugeOption, JsonOption, RepeatOption, RunsOption
from tailrace.cli.output import print_json, print_line, run_command
from tailrace.cli.table import PlainTable, print_table
from tailrace.errors import Mistake
from tailrace.fabric.kinds import MATRIX_KINDS
from tailrace.measure.matrix import PATTERNS, Cell, MatrixRun, done, left, pages, placements, seconds
from tailrace.measure.matrix_stacks import Way, way_seconds, ways_left
from tailrace.measure.progress import Reporter
from tailrace.measure.session import Request, run_own
from tailrace.node.claiming import claim_placements
from tailrace.results.run import RunFolder, find_folder, load_run, write_atomically
from tailrace.spec.load import load_located
from tailrace.spec.tests import Matrix, StackWay
from tailrace.state.folder import default_folder
from tailrace.state.launch import Launcher

PLAN = "matrix.json"
"""In the run folder: the matrix as it was asked for, for whoever goes on with it."""
WAYS: tuple[str, ...] = get_args(StackWay)


@dataclass(frozen=True)
class MatrixOptions:
    changes: dict[str, str | None]
    repeat: int
    runs: Path
    huge: bool
    as_json: bool
    dry_run: bool = False


def matrix(
    spec: Annotated[
        Path | None,
        typer.Argument(
            metavar="[SPEC]", help="A spec. Without a matrix test the defaults apply.", autocompletion=complete.spec
        ),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Continue the matrix of this run folder.")
    ] = None,
    fabrics: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...", help=", ".join(MATRIX_KINDS) + ".", autocompletion=complete.listed(*MATRIX_KINDS)
        ),
    ] = None,
    interfaces: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="vhost-user, memif, tap, veth, passthrough; those that a fabric has.",
            autocompletion=complete.listed("vhost-user", "memif", "tap", "veth", "passthrough"),
        ),
    ] = None,
    card: Annotated[
        str | None,
        typer.Option(
            metavar="A[,B]",
            help="The network card of fabric card; two for north/south.",
            autocompletion=complete.cards,
        ),
    ] = None,
    outside: Annotated[
        str | None, typer.Option(metavar="A,B", help="The interface at the far end of each card's cable.")
    ] = None,
    patterns: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="P2P, PVP, PVVP, VV, north/south, east/west.",
            autocompletion=complete.listed(*PATTERNS),
        ),
    ] = None,
    functions: Annotated[
        str | None, typer.Option(metavar="N,...", help="Number of functions in north/south and east/west: 1 to 8.")
    ] = None,
    runs_in: Annotated[
        str | None, typer.Option(metavar="process|machine", help="Where the functions live.  [default: process]")
    ] = None,
    stacks: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help=f"TCP between two stacks too: {', '.join(WAYS)}.",
            autocompletion=complete.listed(*WAYS),
        ),
    ] = None,
    messages: Annotated[
        str | None, typer.Option(metavar="BYTES,...", help="Of --stacks, bytes of each write: 64,256,1518,65536.")
    ] = None,
    frames: Annotated[str | None, typer.Option(metavar="LIST", help="Frame sizes with FCS, and imix: 64,imix.")] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="RATE", help="Each way: 100kpps, or 90% of the cell's own no-loss rate.")
    ] = None,
    duration: Annotated[str | None, typer.Option(metavar="TIME", help="Of each measured trial: 5s.")] = None,
    repeat: RepeatOption = 1,
    runs: RunsOption = DEFAULT_RUNS,
    huge: HugeOption = True,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print what would be measured, and what this machine cannot have and why; do nothing.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure fabrics by kind of port, pattern (RFC 8204), number of functions and frame size.

    \b
    sudo tailrace measure matrix examples/matrix.yaml
    sudo tailrace measure matrix --fabrics tailrace,direct --patterns VV,PVP --frames 64 --duration 5s
    sudo tailrace measure matrix examples/matrix.yaml --repeat 3
    sudo tailrace measure matrix --fabrics card --interfaces passthrough --patterns east/west --card ens1f0
    sudo tailrace measure matrix --fabrics tailrace,ovs-dpdk --interfaces vhost-user --runs-in machine
    sudo tailrace measure matrix examples/study.yaml --card ens1f0,ens1f1 --outside ens2f0,ens2f1
    sudo tailrace measure matrix --resume runs/2026-11-21-143005-matrix
    tailrace measure matrix examples/study.yaml --dry-run

    P is an end outside the machine (a veth in a private network namespace stands for a NIC), V a function. Each cell is
    kept when it is done, so --resume measures only missing and failed cells. With --repeat the whole matrix is
    measured in rounds, and each figure is their median. A cell that this machine cannot have shows why.

    Fabric card has functions on virtual functions of a network card (SR-IOV; interface passthrough), joined by the
    card itself. North/south two cards carry them, and the tester has the far ends of their cables (--outside).

    With --stacks, TCP between two of Linux's network stacks is measured beside the cells, by what joins them: iperf3
    with writes of each size, and the round trips and jitter of 1000 pings.
    """
    changes = {
        "fabrics": fabrics, "interfaces": interfaces, "patterns": patterns, "functions": functions, "frames": frames,
        "rate": rate, "duration": duration, "card": card, "outside": outside, "runs_in": runs_in, "stacks": stacks,
        "messages": messages,
    }  # fmt: skip
    options = MatrixOptions(changes, repeat, runs, huge, as_json, dry_run)

    def call() -> int:
        if resume is None:
            return _begin(spec, options)
        if spec is not None or any(changes.values()) or repeat > 1:
            raise Mistake(
                "--resume continues the matrix as it began; expected neither a SPEC nor other settings with it"
            )
        return _resume(find_folder(resume, options.runs), options)

    raise typer.Exit(run_command(call))


def _matrix_of(path: Path, changes: Mapping[str, str | None]) -> Matrix:
    """The matrix of a spec, or one with its defaults if it has none."""
    spec, document = load_located(path)
    found = [(number, test.settings) for number, test in enumerate(spec.tests) if isinstance(test.settings, Matrix)]
    if len(found) > 1:
        raise document.mistake(("tests", found[1][0]), "a second test of matrix; expected one in a spec")
    commands.check_captures(spec, document, "matrix", changes)
    return found[0][1] if found else Matrix()


def _begin(path: Path | None, options: MatrixOptions) -> int:
    test = commands.override(_matrix_of(path, options.changes) if path else Matrix(), options.changes)
    if not isinstance(test, Matrix):
        raise TypeError(test)
    text = path.read_text(encoding="utf-8-sig") if path else "# a matrix of the command line; see matrix.json\n"
    request = Request(
        "matrix",
        options.runs,
        default_folder(),
        tuple(commands.command_line()),
        text,
        str(path.absolute()) if path else "matrix",
        ",".join(test.fabrics),
        method="matrix",
        repeat=options.repeat,
    )
    return _run(request, test, options, ())


def _resume(path: Path, options: MatrixOptions) -> int:
    try:
        test = Matrix.model_validate_json((path / PLAN).read_bytes())
    except (OSError, ValidationError):
        raise Mistake(f"{path}: no matrix was begun there; expected the run folder of one") from None
    run = load_run(path)
    known = done(run)
    if run.valid and not any((*left(test, known, run.repeat)[0], *ways_left(test, known, run.repeat)[0])):
        raise Mistake(f"{path}: every cell that this machine can have is done; nothing is left to measure")
    command = tuple(commands.command_line())
    request = Request(
        "matrix", path.parent, default_folder(), command, "", str(path), run.fabric, run.repeat, resume=path
    )
    return _run(request, test, options, known)


def _run(request: Request, test: Matrix, options: MatrixOptions, known: Collection[tuple[str, int]]) -> int:
    rounds, refused = left(test, known, request.repeat)
    ways, refused_ways = ways_left(test, known, request.repeat)
    wanted = list({cell.name: cell for cell in chain.from_iterable(rounds)}.values())
    joining = list(dict.fromkeys(chain.from_iterable(ways)))
    cannot = {cell.name: reason for cell, reason in refused} | {way.case: reason for way, reason in refused_ways}
    if not wanted and not joining and request.resume is None:
        raise Mistake(f"this machine can have no cell: {'; '.join(dict.fromkeys(cannot.values()))}")
    total = seconds(rounds, test) + way_seconds(test) * sum(map(len, ways))
    cannot_words = f"; {len(cannot)} more are not possible here" if cannot else ""
    between = f" and {len(joining)} ways between TCP stacks" if joining else ""
    many = f"{len(wanted)} cells{between}" + (f" in {request.repeat} rounds" if request.repeat > 1 else "")
    headline = f"{many}, about {round(total / 60) or 1} min{cannot_words}"
    if options.dry_run:
        return _show(headline, wanted, joining, cannot, total, as_json=options.as_json)
    commands.needs_root("measure matrix")
    places = [*placements(wanted), *(way.placed() for way in joining)]
    commands.say([headline], as_json=options.as_json)

    def work(launcher: Launcher, into: RunFolder, report: Reporter) -> None:
        write_atomically(into.path / PLAN, test.model_dump_json(indent=1) + "\n")
        MatrixRun(test, launcher, into, report, huge=options.huge).run()

    return commands.run_with_bar(
        lambda bar: run_own(
            request,
            max([pages(wanted, huge=options.huge), *(way.pages(huge=options.huge) for way in joining)]),
            lambda state: claim_placements(state, places),
            work,
            oversubscribed=any(place.oversubscribed for place in places),
            report=bar,
        ),
        total,
        as_json=options.as_json,
    )


def _show(
    headline: str,
    wanted: Sequence[Cell],
    joining: Sequence[Way],
    cannot: Mapping[str, str],
    total: float,
    *,
    as_json: bool,
) -> int:
    """Prints what would be measured, and what cannot be, by the reason. Returns 0."""
    if as_json:
        names = [each.name for each in wanted], [each.name for each in joining]
        print_json({"cells": names[0], "stacks": names[1], "seconds": round(total), "not_here": dict(cannot)})
        return 0
    commands.say([headline], as_json=False)
    measured: dict[tuple[str, str], list[str]] = {}
    for cell in wanted:
        measured.setdefault((cell.kind.name, cell.interface), []).append(cell.pattern)
    found = PlainTable("fabric", "interface", "cells", "patterns")
    for (fabric, interface), patterns in measured.items():
        found.add_row(fabric, interface, str(len(patterns)), ", ".join(dict.fromkeys(patterns)))
    for way in joining:
        found.add_row(way.name, "a TCP stack at each end")
    print_table(found)
    if cannot:
        missing = PlainTable("not here", "why")
        for reason, count in Counter(cannot.values()).items():
            missing.add_row(str(count), reason)
        print_line("")
        print_table(missing)
    return 0
