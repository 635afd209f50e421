"""Results in the terminal: a summary of a few lines, or all of it.

A table that is too wide for the terminal is two, traffic and latency, one above the other.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tailrace.process.plain import plain
from tailrace.report import causes, host, soak
from tailrace.report.caveats import warnings
from tailrace.report.figures import (
    TRAFFIC,
    Column,
    disturbed,
    faults_matter,
    in_order,
    is_fault,
    latency_columns,
    measured_with,
    naming,
    reading,
    tone,
    trial_names,
    verdict,
)
from tailrace.report.findings import Section, sections
from tailrace.report.headline import headline, standing
from tailrace.report.hops import TITLES
from tailrace.report.hops import Table as HopTable
from tailrace.report.hops import tables as hop_tables
from tailrace.report.marks import short_remark
from tailrace.report.screen import Screen
from tailrace.results.model import Run, Trial, sent_of
from tailrace.results.pooled import COMPARING

MOST_NOTES = 3
"""Of the summary; the report has all."""


def print_summary(run: Run, console: Console) -> None:
    """Print `run` in a few lines: whether it is valid, the figures that matter, the verdict, and what limits them."""
    if not run.valid:
        console.print(Text(f"Not valid: {plain(run.reason or '')}", style="bold red"))
    _print_name(run, console)
    if run.host_trials:
        _print_host(run, console)
        for heading, incidents in causes.worst(run):
            console.print(Text(heading, style="bold"))
            for incident in incidents:
                _print_incident(incident, console)
    elif run.trials and run.repeat == 1 and not run.findings:
        console.print(_summary(run))
    else:
        for text in headline(run):
            console.print(Text(text))
        for section in sections(run):
            _print_section(section, console, remarks=False)
    _print_verdict(run, console)
    notes = warnings(run)
    for text in notes[:MOST_NOTES]:
        console.print(Text(text, style="yellow"), no_wrap=True, overflow="ellipsis")
    if (more := len(notes) - MOST_NOTES) > 0:
        console.print(Text(f"{more} more {'note is' if more == 1 else 'notes are'} in the report.", style="dim"))


def _summary(run: Run) -> Table:
    """The trials that the answer is about, in the columns that matter; narrow enough for 80 characters."""
    trials, planned = standing(run), disturbed(run)
    columns = faults_matter(
        (*TRAFFIC, *latency_columns([run])), lambda name: any(is_fault(name, trial, planned) for trial in trials)
    )
    names = [each for each in naming([run]) if each.title != "attempt"]
    return _table(trials, [*names, *(each for each in columns if each.matters)], planned, compact=True)


def print_run(run: Run, console: Console | None = None) -> None:
    """Print all of `run`: warnings (an oversubscribed host first), the tables, how to read them, and the verdict."""
    console = console or Screen()
    caveats = warnings(run)
    if run.oversubscribed:
        console.print(Text(caveats.pop(0), style="yellow"))
    if not run.valid:
        console.print(Text(f"Not valid: {plain(run.reason or '')}", style="bold red"))
    _print_name(run, console)
    if run.host_trials:
        _print_host(run, console)
    for section in sections(run):
        _print_section(section, console)
    if run.trials and run.repeat == 1 and not any(isinstance(each, COMPARING) for each in run.findings):
        console.print(table(run, console))
        names = trial_names(run)
        short = short_remark({names[trial.name]: sent_of([trial]) for trial in run.trials})
        for text in (*reading([run]), *filter(None, [short])):
            console.print(Text(text, style="dim"))
    for section in soak.sections(run):
        _print_section(section, console)
    for text in measured_with(run):
        console.print(Text(text, style="dim"))
    for hops in hop_tables(run):
        _print_hops(hops, console)
    for table_of_causes in causes.tables(run):
        _print_causes(table_of_causes, console)
    for text in caveats:
        console.print(Text(text, style="yellow"))
    _print_verdict(run, console)


def _print_name(run: Run, console: Console) -> None:
    heading = f"{plain(run.name)}, {run.started:%Y-%m-%d %H:%M:%S} UTC"
    console.print(Text(f"{heading}, fabric {plain(run.fabric)}" if run.fabric else heading, style="bold"))


def _print_verdict(run: Run, console: Console) -> None:
    style = {"good": "green", "bad": "red"}.get(tone(run), "") if run.valid else "red"
    console.print(Text(verdict(run), style=style))


def table(run: Run, console: Console) -> RenderableType:
    """The table of `run` for the width of `console`: whole, or as two or more, each with the names of its rows."""
    trials, names, planned = in_order(run), naming([run]), disturbed(run)
    latency = latency_columns([run])

    def made(columns: Sequence[Column]) -> Table:
        return _table(trials, (*names, *columns), planned)

    def fits(columns: Sequence[Column]) -> bool:
        return width_of(made(columns), console) <= console.width

    if fits((*TRAFFIC, *latency)):
        return made((*TRAFFIC, *latency))
    parts: list[list[Column]] = []
    for half in (TRAFFIC, latency):
        parts.append([])
        for column in half:
            if parts[-1] and not fits([*parts[-1], column]):
                parts.append([])
            parts[-1].append(column)
    return Group(*map(made, parts))


def _table(
    trials: Sequence[Trial], columns: Sequence[Column], planned: Collection[str], *, compact: bool = False
) -> Table:
    frame = None if compact else box.SIMPLE_HEAD
    made = Table(box=frame, padding=(0, 1 + compact, 0, 0), pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        heading = column.short if compact else f"{column.title}\n{column.unit}"
        made.add_column(heading, justify="left" if number == 0 else "right", no_wrap=True)
    for number, trial in enumerate(trials):
        last = number + 1 == len(trials) or trials[number + 1].profile != trial.profile
        cells = [_cell(column, trial, planned) for column in columns]
        made.add_row(*cells, style=None if trial.valid else "red", end_section=last)
    return made


def _print_section(section: Section, console: Console, *, remarks: bool = True) -> None:
    console.print(Text(section.heading, style="bold"))
    for part in _parts(section, console):
        console.print(_section_table(section, part))
    if section.ends is not None:
        worst, best = section.ends
        ramp = Text.assemble(*((" ", heat_style(step / 9)) for step in range(10)))
        console.print(Text.assemble(f"worst, {worst} ", ramp, f" {best}, best (logarithmic)"))
    for text in section.remarks if remarks else ():
        console.print(Text(text, style="dim"))


def _parts(section: Section, console: Console) -> list[list[int]]:
    """The columns of each part of a table that is too wide for `console`, by number; all of them where it fits."""
    naming, others = list(range(section.naming)), range(section.naming, len(section.titles))
    parts = [naming]
    for column in others:
        wider = _section_table(section, [*parts[-1], column])
        if parts[-1] != naming and width_of(wider, console) > console.width:
            parts.append(naming)
        parts[-1] = [*parts[-1], column]
    return parts


def width_of(table: Table, console: Console) -> int:
    """The columns of a terminal that a table needs to have all on one line."""
    return Measurement.get(console, console.options.update(max_width=10_000), table).maximum


def _section_table(section: Section, columns: Sequence[int]) -> Table:
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(section.titles[column], justify="right" if column else "left", overflow="fold")
    for number, row in enumerate(section.rows):
        warm = section.heat[number] if section.heat else (None,) * len(row)
        made.add_row(*(Text(row[column], style=heat_style(warm[column])) for column in columns))
    return made


def heat_style(warmth: float | None) -> str:
    """The colours of a cell of a map: from white, the worst, to blue."""
    if warmth is None:
        return ""
    red, green, blue = (round(255 + 0.6 * warmth * (full - 255)) for full in (0, 114, 178))
    return f"black on rgb({red},{green},{blue})"


def _print_hops(hops: HopTable, console: Console) -> None:
    console.print(Text(hops.heading, style="bold"))
    for titles, rows in ((TITLES, hops.rows), (hops.slow_titles, hops.slow_rows)):
        _print_rows(titles, rows, console)
    console.print(Text(hops.remark, style="dim"))


def _print_host(run: Run, console: Console) -> None:
    for text in headline(run):
        console.print(Text(text, style="bold"))
    for heading, rows in host.groups(run):
        console.print(Text(heading, style="bold"))
        made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
        for number, title in enumerate(host.GROUP_TITLES):
            made.add_column(title, justify="left" if number < 2 else "right", no_wrap=True)
        for row in rows:
            made.add_row(*(Text(cell) for cell in row))
        console.print(made)
    for each in host.compared(run):
        what = f"{each.test}, load {each.load}, CPU {each.cpu} ({each.role}), {each.figure}"
        ratios = ", ".join(f"{ratio:.2f}" for ratio in each.ratios)
        console.print(Text(f"{what}: {each.other} ÷ {each.first} = {each.summary} (median of {ratios})"))
    for text in host.remarks(run):
        console.print(Text(text, style="dim"))


def _print_causes(table: causes.Table, console: Console) -> None:
    console.print(Text(f"Why the slowest were slow: {table.heading}", style="bold"))
    for incident in table.incidents:
        _print_incident(incident, console)
    _print_rows(causes.CAUSE_TITLES, table.cause_rows, console, words=causes.KNOBS)
    for remark in table.remarks:
        console.print(Text(remark, style="dim"))


def _print_incident(incident: causes.Incident, console: Console) -> None:
    console.print(Text(incident.heading))
    made = Table.grid(padding=(0, 1, 0, 0))
    for justify in ("right", "right", "left"):
        made.add_column(justify=justify)
    for us, share, text in incident.parts:
        made.add_row(Text(us.rjust(13)), Text(share), Text(text))
    if incident.evidence:
        made.add_row("", "", Text(f"meanwhile: {'; '.join(incident.evidence)}", style="dim"))
    console.print(made)


def _print_rows(
    titles: Sequence[str], rows: Sequence[Sequence[str]], console: Console, *, words: int | None = None
) -> None:
    """A table of texts, figures to the right; column `words` holds words beside the first."""
    if not rows:
        return
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for number, title in enumerate(titles):
        made.add_column(title, justify="left" if number in (0, words) else "right")
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    console.print(made)


def _cell(column: Column, trial: Trial, planned: Collection[str]) -> Text:
    fault = column.fault and is_fault(column.fault, trial, planned)
    return Text(column.cell(trial), style="bold red" if fault else "")
