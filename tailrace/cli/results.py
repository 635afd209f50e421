"""`tailrace runs`, `report`, `diff`, `export`, `import`: what was measured is found, shown, compared and carried."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tailrace.advise.machine import read_machine
from tailrace.cli import complete
from tailrace.cli.options import DEFAULT_RUNS
from tailrace.cli.output import error_line, print_json, print_line, run_command
from tailrace.errors import ExitCode, Mistake, TailraceError
from tailrace.process.plain import plain
from tailrace.report.difference import print_difference
from tailrace.report.html import MOST_RUNS, write_comparison, write_report
from tailrace.report.screen import Screen
from tailrace.report.table import width_of
from tailrace.results.archive import MOST_BYTES, SUFFIX, export_run, import_run
from tailrace.results.diff import diff as differ
from tailrace.results.index import Entry, find_runs
from tailrace.results.model import Run
from tailrace.results.run import UNFINISHED, find_folder, load_run
from tailrace.results.soak import is_unkept
from tailrace.results.stored import read_run
from tailrace.results.table import csv_text
from tailrace.spec.units import parse_duration, parse_size

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
RunsOption = Annotated[Path, typer.Option("--runs", metavar="FOLDER", help="The folder of runs.")]
RunArgument = Annotated[
    str,
    typer.Argument(metavar="RUN", help="A run folder, or its name in the folder of runs.", autocompletion=complete.run),
]
COMPARISON = Path("comparison.html")


def runs(
    spec: Annotated[str | None, typer.Option(metavar="NAME", help="Runs of this spec (chain, or its file).")] = None,
    host: Annotated[str | None, typer.Option(metavar="NAME", help="Runs on this host.")] = None,
    fabric: Annotated[str | None, typer.Option(metavar="NAME", help="Runs on this fabric.")] = None,
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help="Runs of this method: latency, throughput, …")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Not older: 2026-11-21 (UTC), '2026-11-21 14:00', 12h, 7d.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="WHEN", help="Not newer; a date is its beginning.")] = None,
    folder: RunsOption = DEFAULT_RUNS,
    as_json: JsonOption = False,
) -> None:
    """List the runs in a folder, the newest first, with fabric, host, number of trials, and whether they are valid.

    \b
    tailrace runs
    tailrace runs --spec examples/chain.yaml --since 7d
    tailrace runs --since 2026-11-20 --until 2026-11-22      # of the 20th and the 21st
    tailrace runs --host 'lab-*' --fabric tailrace --json | jq -r '.[].folder'

    Names may have the wildcards * and ?. The index, .index.sqlite in the folder, is rebuilt from the run folders if it
    is missing.
    """
    raise typer.Exit(run_command(lambda: _runs(spec, host, fabric, method, since, until, folder, as_json=as_json)))


def report(
    run: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="Run folders, or names in the folder of runs.", autocompletion=complete.run
        ),
    ],
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all figures as CSV on standard output instead.")] = False,
    machine: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A machine by `advise`: show what it predicts beside each throughput."),
    ] = None,
    folder: RunsOption = DEFAULT_RUNS,
) -> None:
    """Write the HTML report of a run again, or one page of several runs side by side; or print their figures as CSV.

    \b
    tailrace report runs/2026-11-21-143005-demo
    tailrace report runs/*-latency-chain -o before-and-after.html
    tailrace report runs/* --csv > figures.csv
    tailrace report runs/2026-11-21-143005-throughput-chain --machine here.yaml

    The page is one file that needs no network, and prints well. The default of one run is report.html in its folder, of
    several runs comparison.html in the current folder. A run that cannot be read is named and left out; the exit status
    is then not 0.
    """
    raise typer.Exit(run_command(lambda: _report(run, output, machine, folder, as_csv=as_csv)))


def diff(a: RunArgument, b: RunArgument, folder: RunsOption = DEFAULT_RUNS, as_json: JsonOption = False) -> None:
    """Show what changed from run A to run B: spec, host, versions, and the figures of trials that match.

    Repeated trials (--repeat, pairs) are compared by their medians, with the spread.

    \b
    tailrace diff runs/2026-11-20-101500-latency-chain runs/2026-11-21-143005-latency-chain

    The runs are of two times. If a floor changed, the functions are not the cause, because a floor has none.
    """
    raise typer.Exit(run_command(lambda: _diff(a, b, folder, as_json=as_json)))


def export(
    run: RunArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write. Default: RUN.zip here.")
    ] = None,
    folder: RunsOption = DEFAULT_RUNS,
    as_json: JsonOption = False,
) -> None:
    """Pack a whole run into one file.

    \b
    tailrace export runs/2026-11-21-143005-demo
    scp 2026-11-21-143005-demo.zip lab:
    ssh lab tailrace import 2026-11-21-143005-demo.zip
    """
    raise typer.Exit(run_command(lambda: _export(run, output, folder, as_json=as_json)))


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `tailrace export` made.")],
    folder: RunsOption = DEFAULT_RUNS,
    most: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Refuse more than this, unpacked. Default: 4GiB.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Unpack an exported run into the folder of runs.

    \b
    tailrace import 2026-11-21-143005-demo.zip
    tailrace report runs/2026-11-21-143005-demo

    Nothing in the file is trusted. A file with paths that lead elsewhere, with links, or with content that is damaged,
    missing or larger than listed is refused, and nothing is left behind.
    """
    raise typer.Exit(run_command(lambda: _import(file, folder, most, as_json=as_json)))


def register(app: typer.Typer) -> None:
    """Adds the commands to `tailrace`."""
    for name, command in (("runs", runs), ("report", report), ("diff", diff), ("export", export), ("import", import_)):
        app.command(name)(command)


def parse_time(option: str, text: str, now: datetime) -> datetime:
    """A time in UTC from a date, a date and time, or a duration before `now` (12h, 7d). Raises Mistake."""
    try:
        if text.endswith("d") and text[:-1].isdecimal():
            return now - timedelta(days=int(text[:-1]))
        if text[:4].isdecimal() and text[4:5] == "-":
            given = datetime.fromisoformat(text)
            return given if given.tzinfo else given.replace(tzinfo=UTC)
        return now - timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError):
        raise Mistake(
            f"{option} {text}: not a time; expected a date such as 2026-11-21, or a duration before now such as 12h "
            "or 7d"
        ) from None


def _runs(
    spec: str | None,
    host: str | None,
    fabric: str | None,
    method: str | None,
    since: str | None,
    until: str | None,
    folder: Path,
    *,
    as_json: bool,
) -> int:
    if spec is not None and Path(spec).suffix in (".yaml", ".yml"):
        spec = Path(spec).stem
    now = datetime.now(UTC)
    begin, end = (
        parse_time(option, when, now) if when is not None else None
        for option, when in (("--since", since), ("--until", until))
    )
    found = find_runs(folder, spec=spec, host=host, fabric=fabric, method=method, since=begin, until=end)
    if as_json:
        print_json([{**asdict(each), "folder": str(folder / each.folder)} for each in found])
    elif not found:
        print_line(f"No such run in {folder}.")
    else:
        console = Screen()
        console.print(_table(found, console))
        for each in found:
            if each.unreadable is not None:
                print_line(f"cannot be read: {plain(each.unreadable)}")
    return 0


def _table(found: list[Entry], console: Console) -> Table:
    """One line for each run: where they are too long for `console`, of several fabrics the first and how many more
    there are, and of the host's name as much as there is room for."""
    rows = [_cells(each, brief=False) for each in found]
    if width_of(_drawn(rows), console) > console.width:
        rows = [_cells(each, brief=True) for each in found]
    excess = max(width_of(_drawn(rows), console) - console.width, 0)
    room = max(max(cell_len(row[2].plain) for row in rows) - excess, _HOST_LEAST)
    for row in rows:
        row[2].truncate(room, overflow="ellipsis")
    return _drawn(rows)


def _drawn(rows: Sequence[tuple[Text, ...]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for title in _TITLES:
        justify: Literal["left", "right"] = "right" if title == "trials" else "left"
        table.add_column(title, justify=justify, overflow="fold", no_wrap=title == "run")
    for row in rows:
        table.add_row(*row)
    return table


_TITLES = ("run", "fabric", "host", "trials", "")  # the name of a run has the method and the spec in it
_HOST_LEAST = 8
_NOT_VALID = Text("not valid", style="red")


def _cells(each: Entry, *, brief: bool) -> tuple[Text, ...]:
    if each.unreadable is not None:
        return (Text(plain(each.folder)), *(Text() for _ in range(3)), Text("unreadable", style="red"))
    first, *others = (each.fabric or "-").split(",")
    fabric = f"{first} +{len(others)}" if brief and others else ", ".join((first, *others))
    state = Text() if each.reason is None else Text("not finished") if each.reason == UNFINISHED else _NOT_VALID
    return (
        *(Text(plain(name or "-")) for name in (each.folder, fabric, each.host)),
        Text(str(each.trials or "-")),
        state,
    )


def _report(names: list[str], output: Path | None, machine: Path | None, folder: Path, *, as_csv: bool) -> int:
    if machine is not None and as_csv:
        raise Mistake("--csv prints what was measured alone; expected --machine without it")
    predicting = None if machine is None else read_machine(machine)
    errors: list[TailraceError] = []
    found = _readable(names, folder, errors)
    if as_csv:
        text = csv_text(run for _, run in found)
        if len(errors) == len(names):
            return _status(errors)
        if output is None:
            sys.stdout.write(text)
        else:
            output.write_text(text, encoding="utf-8", newline="")
        return _status(errors)
    if len(names) > MOST_RUNS:
        raise Mistake(f"{len(names)} runs side by side are too many to read; expected at most {MOST_RUNS}")
    folders = [path for path, _ in found]
    if folders:
        several = len(names) > 1
        written = (
            write_comparison(folders, output or COMPARISON, predicting)
            if several
            else write_report(folders[0], output, predicting)
        )
        print_line(f"Report: {written}")
    return _status(errors)


def _folder_of(name: str, runs: Path) -> Path:
    """The run folder that is meant. A soak in it whose command was killed has by now what its log has."""
    path = find_folder(name, runs)
    if is_unkept(load_run(path)):
        # What measures takes half a second to load.
        from tailrace.measure.soak import recover

        recover(path)
    return path


def _readable(names: list[str], folder: Path, errors: list[TailraceError]) -> Iterator[tuple[Path, Run]]:
    """Those of the runs that can be read, with their folders; why others cannot is reported, and put in `errors`."""
    for name in names:
        try:
            path = _folder_of(name, folder)
            run = load_run(path)
        except TailraceError as error:
            error_line(str(error))
            errors.append(error)
        else:
            yield path, run


def _status(errors: Sequence[TailraceError]) -> int:
    """The exit status of a command that went on after `errors`."""
    return max((error.exit_status for error in errors), default=ExitCode.DONE)


def _diff(a: str, b: str, folder: Path, *, as_json: bool) -> int:
    found = differ(*(read_run(_folder_of(name, folder), distributions=False) for name in (a, b)))
    if as_json:
        print_json(found.as_data())
    else:
        print_difference(found, Screen(highlight=False))
    return 0


def _export(run: str, output: Path | None, folder: Path, *, as_json: bool) -> int:
    source = _folder_of(run, folder)
    target = output or Path(load_run(source).id + SUFFIX)
    exported = export_run(source, target)
    size = target.stat().st_size
    if as_json:
        print_json({"file": str(target), "run": exported.id, "bytes": size})
    else:
        state = "" if exported.finished else "; the run has not finished"
        print_line(f"{target}: {size / 1024:,.0f} KiB{state}")
    return 0


def _import(file: Path, folder: Path, most: str | None, *, as_json: bool) -> int:
    try:
        limit = parse_size(most) if most is not None else MOST_BYTES
    except ValueError as error:
        raise Mistake(f"--most: {error}") from None
    imported = import_run(file, folder, most_bytes=limit)
    if as_json:
        print_json({"folder": str(imported)})
    else:
        print_line(f"Run folder: {imported}")
    return 0
