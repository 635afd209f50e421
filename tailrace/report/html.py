"""report.html: one file that needs no network, holds no untrusted markup and prints; of one run or of several.

Whatever a run folder holds is untrusted. The template escapes it, data for the charts is JSON with <, > and &
escaped, and a content security policy lets only the page's own two scripts run, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tailrace.advise.machine import Machine
from tailrace.kernel.plain_file import plain_file
from tailrace.process.plain import plain
from tailrace.report import bars, causes, curves, figures, findings, hops, host, marks, predicted, soak
from tailrace.report.caveats import warnings
from tailrace.report.headline import headline
from tailrace.report.marked import MOST_RUNS, Marked, mark, trials
from tailrace.report.marks import bound_remark, short_remark
from tailrace.report.section import Section
from tailrace.results.diff import differing, differing_hosts, facts
from tailrace.results.model import sent_of
from tailrace.results.run import write_atomically
from tailrace.results.stored import StoredRun, read_run

__all__ = ["MOST_RUNS", "REPORT", "render", "write_comparison", "write_report"]

REPORT = "report.html"
_HERE = Path(__file__).parent


def write_report(folder: Path, path: Path | None = None, machine: Machine | None = None) -> Path:
    """Make the report of the run in `folder` from what lies there, at `path` or as its report.html; returns where.
    With a machine its throughputs stand beside what is predicted for that.

    A histogram that is missing or damaged costs its curve, and the report says so. Raises Unreadable if there is no
    results.json that can be read, OSError if the report cannot be written.
    """
    stored = read_run(folder)
    path = path or stored.folder / REPORT
    write_atomically(plain_file(path), render([stored], machine))
    return path


def write_comparison(folders: Sequence[Path], path: Path, machine: Machine | None = None) -> Path:
    """Make one report of the runs in `folders` side by side at `path`, and return it. Raises as write_report does."""
    write_atomically(plain_file(path), render([read_run(folder) for folder in folders], machine))
    return path


def render(stored: Sequence[StoredRun], machine: Machine | None = None) -> str:
    """The report of 1 to MOST_RUNS runs as HTML; with a machine, beside what is predicted for that."""
    environment = Environment(
        loader=PackageLoader("tailrace.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    uplot = (_HERE / "vendor/uPlot.iife.min.js").read_text(encoding="utf-8")
    own = (_HERE / "templates/report.js").read_text(encoding="utf-8")
    marked = mark(stored)
    runs = [each.run for each in stored]
    columns = figures.faults_matter(
        (*figures.naming(runs), *figures.TRAFFIC, *figures.latency_columns(runs)),
        lambda name: any(one.is_fault(name) for one in trials(marked)),
    )
    short = short_remark({one.name: sent_of([one.trial]) for one in trials(marked)})
    return environment.get_template("report.html.j2").render(
        runs=marked,
        several=len(marked) > 1,
        trials=trials(marked),
        together=any(one.place is not None for one in trials(marked)),
        columns=columns,
        groups=_groups,
        standing=[one for one in trials(marked) if one.trial.attempt is None],
        attempts=[one for one in trials(marked) if one.trial.attempt is not None],
        headline=headline,
        notes=[_folded(text) for text in _notes(marked, short)],
        sections=[(each, section) for each in marked for section in _sections(each.stored, machine)],
        throughput=bars.throughput(marked),
        confirmed=any(one.confirmed for one in marked),
        bounds=bound_remark(bars.bounds(marked)),
        maps=list(bars.heat_maps(marked)),
        short=short,
        budgets=bars.budgets(marked),
        hops=[(each, table) for each in marked for table in hops.tables(each.stored.run)],
        hop_titles=hops.TITLES,
        causes=[(each, table) for each in marked for table in causes.tables(each.stored.run)],
        cause_titles=causes.CAUSE_TITLES,
        figures=figures,
        marks=marks,
        lengths={each.functions for run in runs for each in (*run.trials, *run.findings)},
        differing=[
            (title, rows)
            for title, rows in (
                ("host", differing_hosts(runs)),
                ("version", differing([run.versions for run in runs])),
            )
            if rows
        ],
        hosts=_hosts(marked),
        specs=_specs(marked),
        join=shlex.join,
        measured_hosts=[(each, host.section(each.stored.run)) for each in marked if each.stored.run.host_trials],
        data=[*curves.charts(marked), *host.charts(marked)],
        style=_source("templates/report.css"),
        uplot_style=_source("vendor/uPlot.min.css"),
        scripts=[Markup(uplot), Markup(own)],
        hashes=" ".join(f"'{_hash(script)}'" for script in (uplot, own)),
    )


def _sections(stored: StoredRun, machine: Machine | None) -> Iterator[Section]:
    yield from findings.sections(stored.run)
    yield from soak.sections(stored.run)
    if machine is not None:
        yield predicted.section(stored.folder, machine)


def _groups(columns: Sequence[figures.Column]) -> list[tuple[str, int]]:
    """The headings above neighbouring columns, and how many each spans."""
    groups: list[tuple[str, int]] = []
    for column in columns:
        if groups and groups[-1][0] == column.group:
            groups[-1] = (column.group, groups[-1][1] + 1)
        else:
            groups.append((column.group, 1))
    return groups


LONG = 160
"""Letters of a note; what goes beyond is folded away."""


def _notes(runs: Sequence[Marked], short: str | None) -> list[str]:
    """What limits the figures, how they are to be read, and what they rest on."""
    notes = [each.label(text) for each in runs for text in _warnings(each)]
    if trials(runs):
        notes += [*filter(None, [short]), *figures.reading([each.stored.run for each in runs])]
    return notes + [each.label(text) for each in runs for text in figures.measured_with(each.stored.run)]


def _folded(note: str) -> tuple[str, str]:
    """A note; of a long one its beginning, and the whole of the rest."""
    end = re.search(r"(?<=[:.;]) ", note[20:LONG]) if len(note) > LONG else None
    return (note, "") if end is None else (note[: 20 + end.start()], note[20 + end.end() :])


def _warnings(marked: Marked) -> list[str]:
    run = marked.stored.run
    names = marked.names
    missing = [
        f"No curve for {names[name]}: {why}" if name in names else f"No {name}: {why}"
        for name, why in marked.stored.missing
    ]
    return [*warnings(run), *map(plain, missing)]


def _hosts(runs: Sequence[Marked]) -> list[tuple[str, list[tuple[str, str]]]]:
    """The facts of each host and its versions under the runs that were measured there."""
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for each in runs:
        run = each.stored.run
        listed = [*facts(run.host), *((f"version: {name}", text) for name, text in run.versions.items())]
        found.setdefault(tuple(listed), []).append(each.letter)
    return [(", ".join(letters), list(listed)) for listed, letters in found.items()]


def _specs(runs: Sequence[Marked]) -> list[tuple[str, str]]:
    """Each spec's text once, under the runs that had it."""
    found: dict[str, list[str]] = {}
    for each in runs:
        found.setdefault(each.stored.spec, []).append(each.letter)
    return [(", ".join(letters), text) for text, letters in found.items() if text]


def _source(name: str) -> Markup:
    return Markup((_HERE / name).read_text(encoding="utf-8"))


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
